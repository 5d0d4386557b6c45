"""Ranges that split at a join and are absorbed at a leave."""

from collections.abc import Callable
from typing import Any

import pytest

from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.errors import (
    ArgumentError,
    ConsumerExistsError,
    InvariantError,
    KeySharedError,
    MisuseError,
    SnapshotError,
)
from keyshared.hashing import PULSAR_RANGES
from keyshared.placement import Moved, RangeMap
from keyshared.placement.autosplit import AutoSplit


def runs(placement: AutoSplit) -> list[tuple[int, int, str | None]]:
    return list(placement.ranges.runs)


def small(*consumers: str) -> AutoSplit:
    return AutoSplit(consumers, slot_bits=4)


def test_without_consumers_there_is_one_hole() -> None:
    assert RangeMap() == AutoSplit().ranges
    assert AutoSplit().owner("key") is None
    assert () == AutoSplit().consumers


def test_a_newcomer_takes_the_lower_half_of_the_widest_range() -> None:
    placement = small()

    assert [Moved(0, 16, None, "a")] == placement.add("a")
    assert [Moved(0, 8, "a", "b")] == placement.add("b")
    assert [Moved(0, 4, "b", "c")] == placement.add("c")  # of two ranges of 8 the lower one
    assert [Moved(8, 12, "a", "d")] == placement.add("d")  # now the upper one is the widest
    assert [(0, 4, "c"), (4, 8, "b"), (8, 12, "d"), (12, 16, "a")] == runs(placement)


def test_an_odd_range_is_split_in_the_newcomers_favour() -> None:
    placement = AutoSplit(["a", "b", "c", "d"], slot_bits=2)  # c, b, d, a: one slot each
    placement.remove("c")
    placement.remove("b")

    assert [(0, 3, "d"), (3, 4, "a")] == runs(placement)
    assert [Moved(0, 2, "d", "x")] == placement.add("x")


def test_there_are_as_many_consumers_as_slots_at_most() -> None:
    placement = AutoSplit(["a", "b", "c", "d"], slot_bits=2)
    before = placement.copy()

    with pytest.raises(MisuseError, match="4 consumers have one slot each"):
        placement.add("e")
    assert before == placement
    with pytest.raises(MisuseError):
        AutoSplit(list("abcde"), slot_bits=2)


def test_pulsars_ranges_lie_one_slot_higher() -> None:
    placement = AutoSplit.pulsar(["a", "b", "c"])

    assert PULSAR_RANGES == placement.ranges.key_hash
    assert [(0, 16385, "c"), (16385, 32769, "b"), (32769, 65536, "a")] == runs(placement)


def test_pulsars_topmost_range_may_have_no_slot() -> None:
    placement = AutoSplit.pulsar(["a", "b", "c"], range_size=4)

    assert [Moved(3, 4, "a", "d")] == placement.add("d")  # up to 4, which is beyond the last slot
    assert ("a", "b", "c", "d") == placement.consumers
    assert ("b", "c", "d") == placement.ranges.owners
    assert [] == placement.remove("a")
    assert ("b", "c", "d") == placement.ranges.owners


def test_the_order_of_joins_matters_and_history_does() -> None:
    history = small("a", "b", "c")
    history.remove("b")
    history.add("d")

    assert small("a", "b") != small("b", "a")
    assert ("a", "c", "d") == history.consumers
    assert small("a", "c", "d") != history


def test_a_snapshot_needs_the_placement_that_was_kept_with_it() -> None:
    dispatcher = KeySharedDispatcher(AutoSplit())
    for name in ("a", "b", "c"):
        dispatcher.add_consumer(name)
    dispatcher.remove_consumer("b")
    dispatcher.add_consumer("d")
    kept, state = dispatcher.placement, dispatcher.snapshot()

    again = KeySharedDispatcher.restore(state, kept, DispatcherConfig(), now_ms=0)
    assert [dispatcher.owner(f"k{i}") for i in range(50)] == [again.owner(f"k{i}") for i in range(50)]
    with pytest.raises(SnapshotError, match="belong to the placement"):
        KeySharedDispatcher.restore(state, AutoSplit(), DispatcherConfig(), now_ms=0)


@pytest.mark.parametrize("weight", [2, 0, 0.5, True, "1"])
def test_weights_are_refused_with_the_reason(weight: Any) -> None:
    placement = small("a")

    with pytest.raises(ArgumentError, match="be 1: half of the widest range"):
        placement.add("b", weight=weight)
    assert ("a",) == placement.consumers
    assert [] == placement.set_weight("a", 1)


@pytest.mark.parametrize(
    ("consumers", "options", "error"),
    [
        ("ab", {}, ArgumentError),
        (["a", "a"], {}, ConsumerExistsError),
        ([], {"slot_bits": 33}, ArgumentError),
        ([], {"key_hash": "xxh64"}, ArgumentError),
    ],
    ids=ascii,
)
def test_what_can_never_work_is_refused(consumers: Any, options: Any, error: type[KeySharedError]) -> None:
    with pytest.raises(error):
        AutoSplit(consumers, **options)


def test_it_says_what_it_is() -> None:
    assert "<AutoSplit of 1 consumers over 2**4 slots>" == repr(small("a"))


def _forget_a_bound(placement: AutoSplit) -> None:
    placement._bounds.pop()


def _empty_a_range(placement: AutoSplit) -> None:
    placement._bounds[0] = (0, "b")


def _end_too_early(placement: AutoSplit) -> None:
    placement._bounds[-1] = (15, "a")


def _keep_the_old_value(placement: AutoSplit) -> None:
    placement._ranges = small("a").ranges


@pytest.mark.parametrize("damage", [_forget_a_bound, _empty_a_range, _end_too_early, _keep_the_old_value])
def test_damage_is_found(damage: Callable[[AutoSplit], None]) -> None:
    placement = small("a", "b")
    placement.check_invariants()
    damage(placement)

    with pytest.raises(InvariantError):
        placement.check_invariants()
