"""Ranges that consumers declare: all of them or none, each slot to one of them."""

from collections.abc import Callable
from typing import Any

import pytest

from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver
from keyshared.errors import (
    ArgumentError,
    InvariantError,
    RangeOverlapError,
)
from keyshared.hashing import PULSAR_RANGES
from keyshared.placement import HashRange, Moved, RangeMap
from keyshared.placement.assigned import ExclusiveRanges


def small(**declared: Any) -> ExclusiveRanges:
    return ExclusiveRanges(declared, slot_bits=4)


def test_what_nobody_declares_is_a_hole() -> None:
    placement = small(a=[(0, 4), HashRange(8, 12)])

    assert ["a"] * 4 + [None] * 4 + ["a"] * 4 + [None] * 4 == [placement.ranges.owner(slot) for slot in range(16)]
    assert ExclusiveRanges().owner("key") is None
    assert RangeMap() == ExclusiveRanges().ranges


def test_a_newcomer_gets_what_it_declares_and_gives_it_back() -> None:
    placement = small(a=[(4, 8)])

    assert [Moved(0, 4, None, "b"), Moved(12, 16, None, "b")] == placement.declare("b", [(12, 16), (0, 4)])
    assert ("a", "b") == placement.consumers
    assert [Moved(0, 4, "b", None), Moved(12, 16, "b", None)] == placement.remove("b")
    assert small(a=[(4, 8)]) == placement


def test_ranges_that_touch_are_fine() -> None:
    placement = small(a=[(4, 8)], b=[(0, 4), (8, 9), (9, 12)])

    assert [(0, 4, "b"), (4, 8, "a"), (8, 12, "b"), (12, 16, None)] == list(placement.ranges.runs)


ALONE: list[tuple[Any, str]] = [
    (None, "be given"),
    ("0-4", "be given"),
    (5, "be given"),
    ([], "hold at least one range"),
    ([(8, 6)], "end after it starts"),
    ([(8, 8)], "end after it starts"),
    ([(0, 4), (3, 6)], r"not overlap its own \(0, 4\)"),
    ([(3, 6), (0, 4)], r"not overlap its own \(0, 4\)"),
    ([(0, 4), (0, 4)], r"not overlap its own \(0, 4\)"),
    ([(15, 17)], "lie within the 16 slots"),
    ([(-1, 4)], "lie within the 16 slots"),
    ([(0, 4, 8)], "be a HashRange, or two ints"),
    ([[0, 4]], "be a HashRange, or two ints"),
    ([(0.0, 4)], "be a HashRange, or two ints"),
    ([(False, True)], "be a HashRange, or two ints"),
    ([0], "be a HashRange, or two ints"),
]
"""What is wrong with a declaration whoever else is there."""


@pytest.mark.parametrize(("ranges", "text"), ALONE, ids=ascii)
def test_a_declaration_that_can_never_work_is_refused_and_says_whose_it_is(ranges: Any, text: str) -> None:
    placement = small(a=[(0, 16)])  # in everybody's way, but that comes last
    before = placement.copy()

    with pytest.raises(ArgumentError, match=f"'b' is .*{text}"):
        placement.declare("b", ranges)
    assert before == placement


def test_of_two_mistakes_the_one_with_the_lower_start_is_told() -> None:
    with pytest.raises(ArgumentError, match="end after it starts"):
        small().declare("b", [(9, 12), (10, 14), (5, 5)])
    with pytest.raises(ArgumentError, match="not overlap"):
        small().declare("b", [(14, 13), (0, 4), (3, 8)])


@pytest.mark.parametrize(
    ("start", "stop"), [(4, 7), (1, 4), (2, 3), (5, 6), (1, 6), (2, 7), (2, 6), (1, 7), (3, 5)], ids=str
)
def test_a_slot_that_somebody_has_is_refused(start: int, stop: int) -> None:
    placement = small(a=[(2, 6)])
    before = placement.copy()

    with pytest.raises(RangeOverlapError) as caught:
        placement.declare("b", [(start, stop)])
    assert ("b", (start, stop), "a", (2, 6)) == caught.value.args
    assert before == placement


def test_one_conflict_among_many_ranges_refuses_all_of_them() -> None:
    placement = small(a=[(2, 6)])
    before = placement.copy()

    with pytest.raises(RangeOverlapError):
        placement.declare("b", [(0, 1), (5, 6), (10, 12)])
    assert before == placement
    assert [Moved(0, 1, None, "b")] == placement.declare("b", [(0, 1)])


def test_of_two_that_are_in_the_way_the_lower_one_is_named() -> None:
    placement = small(low=[(2, 4)], high=[(4, 6)])

    with pytest.raises(RangeOverlapError) as caught:
        placement.declare("b", [(3, 5)])
    assert "low" == caught.value.owner


def test_joining_without_ranges_is_refused() -> None:
    placement = small(a=[(0, 4)])
    before = placement.copy()

    with pytest.raises(ArgumentError, match=r"ranges of 'b' is None; it must be declared: call declare\(\)"):
        placement.add("b")
    with pytest.raises(ArgumentError, match="be 1: an exclusive consumer owns what it declared"):
        placement.add("b", weight=2)
    assert before == placement


def test_a_dispatcher_takes_a_consumer_that_has_declared_and_no_other() -> None:
    placement = ExclusiveRanges({"a": [(0, 65536)]})
    dispatcher = KeySharedDispatcher(placement, DispatcherConfig())

    dispatcher.add_consumer("a")
    with pytest.raises(ArgumentError, match="be declared"):
        dispatcher.add_consumer("b")
    assert ["a"] == [each.consumer for each in dispatcher.offer(0, "k") if isinstance(each, Deliver)]
    dispatcher.remove_consumer("a")
    with pytest.raises(ArgumentError, match="be declared"):
        dispatcher.add_consumer("a")  # it gave its ranges back
    dispatcher.set_placement(placement)
    assert [2] == [each.attempt for each in dispatcher.add_consumer("a") if isinstance(each, Deliver)]


def test_a_space_that_can_never_work_is_refused() -> None:
    with pytest.raises(ArgumentError):
        ExclusiveRanges(slot_bits=0)


def test_pulsars_slots_are_its_own() -> None:
    placement = ExclusiveRanges.pulsar({"a": [HashRange.inclusive(0, 32767)]})

    assert PULSAR_RANGES == placement.ranges.key_hash
    assert 4 == ExclusiveRanges.pulsar(range_size=16).ranges.slot_bits


def test_it_says_what_it_is() -> None:
    assert "<ExclusiveRanges of 1 consumers in 2 ranges>" == repr(small(a=[(0, 4), (8, 9)]))


def _leave_the_space(placement: ExclusiveRanges) -> None:
    placement._pieces = [(0, 17, "a")]


def _declare_twice(placement: ExclusiveRanges) -> None:
    placement._consumers["b"] = None
    placement._pieces = [(0, 4, "a"), (3, 5, "b")]


def _keep_the_old_value(placement: ExclusiveRanges) -> None:
    placement._ranges = small().ranges


@pytest.mark.parametrize("damage", [_leave_the_space, _declare_twice, _keep_the_old_value])
def test_damage_is_found(damage: Callable[[ExclusiveRanges], None]) -> None:
    placement = small(a=[(0, 4)])
    placement.check_invariants()
    damage(placement)

    with pytest.raises(InvariantError):
        placement.check_invariants()
