"""Ranges assigned by hand: the last word counts, splits and merges show, and what is left over has a policy."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.steps import steps_of

from keyshared.dispatcher import KeySharedDispatcher
from keyshared.errors import (
    ArgumentError,
    ConsumerExistsError,
    InvariantError,
    KeySharedError,
    KeyTypeError,
    RangeOverlapError,
    UnknownConsumerError,
    UnownedSlotError,
)
from keyshared.hashing import DANUBE_32
from keyshared.placement import HashRange, Moved, RangeMap
from keyshared.placement.assigned import AssignedRanges, Unowned, member_name
from keyshared.ring import HashRing

SIZE = 65536
LOWER, UPPER = HashRange(0, SIZE // 2), HashRange(SIZE // 2, SIZE)


def pieces(placement: AssignedRanges) -> list[tuple[int, int, str]]:
    return [(piece.start, piece.stop, owner) for piece, owner in placement.assignments]


def test_what_nobody_is_assigned_is_a_hole() -> None:
    placement = AssignedRanges([(LOWER, "a")])

    assert (UPPER,) == placement.unowned()
    assert {"a", None} == {placement.owner(f"k{i}") for i in range(40)}
    assert (HashRange(0, SIZE),) == AssignedRanges().unowned()


def test_a_later_assignment_splits_what_it_cuts_and_replaces_what_it_covers() -> None:
    placement = AssignedRanges([(HashRange(0, 10), "a"), (HashRange(10, 20), "b"), (HashRange(20, 30), "a")])

    assert [Moved(5, 10, "a", "c"), Moved(10, 20, "b", "c"), Moved(20, 25, "a", "c")] == placement.assign(
        HashRange(5, 25), "c"
    )
    assert [(0, 5, "a"), (5, 25, "c"), (25, 30, "a")] == pieces(placement)
    assert [Moved(5, 25, "c", "a")] == placement.assign(HashRange(0, 30), "a")
    assert [(0, 30, "a")] == pieces(placement)


def test_neighbours_of_one_owner_stay_two_assignments_and_are_one_run() -> None:
    placement = AssignedRanges([(HashRange(0, 10), "a"), (HashRange(10, 20), "a")])

    assert [(0, 10, "a"), (10, 20, "a")] == pieces(placement)
    assert (HashRange(0, 20),) == placement.ranges.ranges_of("a")


@pytest.mark.parametrize(
    ("first", "last"), [(2, 5), (3, 4), (2, 3), (4, 5), (1, 6), (2, 6), (6, 7), (0, 1), (0, 7)], ids=str
)
def test_strictly_equal_inner_outer_and_separate_ranges_are_accepted(first: int, last: int) -> None:
    placement = AssignedRanges([(HashRange.inclusive(2, 5), "a")], strict_overlap=True)

    placement.assign(HashRange.inclusive(first, last), "b")
    assert {"b"} == {placement.ranges.owner(slot) for slot in range(first, last + 1)}


@pytest.mark.parametrize(("first", "last"), [(1, 2), (1, 4), (3, 6), (5, 9)], ids=str)
@pytest.mark.parametrize("owner", ["a", "b"])
def test_strictly_a_partial_overlap_is_refused_whoever_owns_it(first: int, last: int, owner: str) -> None:
    placement = AssignedRanges([(HashRange.inclusive(2, 5), "a")], strict_overlap=True)
    before = placement.copy()

    with pytest.raises(RangeOverlapError) as caught:
        placement.assign(HashRange.inclusive(first, last), owner)
    assert (owner, (first, last + 1), "a", (2, 6)) == caught.value.args
    assert before == placement


def test_strictness_sees_the_assignments_and_not_the_joined_runs() -> None:
    # [0, 10) and [10, 20) of one owner are one run, but [5, 15) cuts through both of what was assigned.
    placement = AssignedRanges([(HashRange(0, 10), "a"), (HashRange(10, 20), "a")], strict_overlap=True)

    with pytest.raises(RangeOverlapError):
        placement.assign(HashRange(5, 15), "b")


def test_the_fallback_owns_what_is_left() -> None:
    ring = HashRing(["x", "y"])
    placement = AssignedRanges([(LOWER, "vip")], fallback=ring)

    assert ("x", "y", "vip") == placement.consumers
    assert () == placement.unowned()
    assert {"vip"} == {owner for start, _, owner in placement.ranges.runs if start < SIZE // 2}
    assert [] == [m for m in placement.ranges.moved(ring.ranges) if m.start >= SIZE // 2]
    moved = placement.release(LOWER)
    assert {"vip"} == {move.old for move in moved}
    assert ring.ranges == placement.ranges


def test_who_joins_joins_the_fallback_and_who_was_only_assigned_something_does_not() -> None:
    placement = AssignedRanges([(LOWER, "vip")], fallback=HashRing())

    assert (UPPER,) == placement.unowned()
    assert [Moved(SIZE // 2, SIZE, None, "x")] == placement.add("x", weight=2)
    assert [Moved(0, SIZE // 2, "vip", "x")] == placement.remove("vip")
    assert [] == placement.set_weight("x", 1)
    assert {"x"} == {move.old for move in placement.remove("x")}
    assert (HashRange(0, SIZE),) == placement.unowned()


def test_a_weight_reaches_the_fallback() -> None:
    placement = AssignedRanges([(LOWER, "vip")], fallback=HashRing(["x", "y"]))

    assert {"x"} == {move.new for move in placement.set_weight("x", 3)}
    assert [] == placement.set_weight("vip", 1)
    with pytest.raises(ArgumentError, match="a consumer owns what it is assigned"):
        placement.set_weight("vip", 2)


def test_without_a_fallback_who_joins_owns_nothing_yet() -> None:
    placement = AssignedRanges()

    assert [] == placement.add("a")
    assert ("a",) == placement.consumers
    assert [Moved(0, SIZE // 2, None, "a")] == placement.assign(LOWER, "a")


def test_who_leaves_gives_everything_back() -> None:
    placement = AssignedRanges([(HashRange(0, 10), "a"), (HashRange(10, 20), "b"), (HashRange(20, 30), "a")])

    assert [Moved(0, 10, "a", None), Moved(20, 30, "a", None)] == placement.remove("a")
    assert ("b",) == placement.consumers
    assert [(10, 20, "b")] == pieces(placement)


def test_the_policy_error_raises_for_a_slot_that_nobody_owns() -> None:
    placement = AssignedRanges([(LOWER, "a")], unowned=Unowned.ERROR, fallback=HashRing())
    held, homeless = (
        next(key for key in map(str, range(99)) if placement.ranges.slot_of(key) in half) for half in (LOWER, UPPER)
    )

    assert "a" == placement.owner(held)
    with pytest.raises(UnownedSlotError) as caught:
        placement.owner(homeless)
    assert placement.ranges.slot_of(homeless) == caught.value.slot
    placement.add("x")
    assert "x" == placement.owner(homeless)


def test_a_sole_owner_owns_every_key_and_others_are_on_standby() -> None:
    placement = AssignedRanges.sole_owner("ann")

    assert {"ann": 1} == placement.ranges.shares()
    assert [] == placement.add("bob")
    assert [Moved(0, 2, "ann", None)] == placement.remove("ann")
    assert [] == placement.remove("bob")
    assert placement == AssignedRanges.sole_owner()
    assert AssignedRanges.sole_owner("bob").owner("k") == "bob"


def test_groups_and_ids_never_run_together() -> None:
    pairs = [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("a%", "2Fb"), ("a", "%2Fb"), ("b", "a"), ("a", "b")]

    assert len(pairs) == len({member_name(*pair) for pair in pairs})
    for group, consumer in pairs:
        before, _, after = member_name(group, consumer).partition("/")
        assert (group, consumer) == (before.replace("%2F", "/").replace("%25", "%"), after)


@pytest.mark.parametrize(("group", "consumer"), [("", "c"), ("g", ""), (1, "c"), ("g", None), ("g", "\ud800")])
def test_a_group_or_id_that_is_no_name_is_refused(group: Any, consumer: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^(group|consumer) is"):
        member_name(group, consumer)


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("assign", ((0, 5), "a"), ArgumentError),
        ("assign", (HashRange(0, SIZE + 1), "a"), ArgumentError),
        ("assign", (LOWER, ""), ArgumentError),
        ("assign", (LOWER, None), ArgumentError),
        ("assign", (LOWER, "\ud800"), ArgumentError),
        ("release", (HashRange(SIZE, SIZE + 1),), ArgumentError),
        ("release", (5,), ArgumentError),
        ("add", ("a",), ConsumerExistsError),
        ("add", ("b",), ConsumerExistsError),
        ("add", ("",), ArgumentError),
        ("set_weight", ("a", 0), ArgumentError),
        ("set_weight", ("a", True), ArgumentError),
        ("set_weight", ("nobody", 1), UnknownConsumerError),
        ("remove", ("nobody",), UnknownConsumerError),
        ("remove", (5,), UnknownConsumerError),
        ("owner", (None,), ArgumentError),
        ("owner", (5,), KeyTypeError),
    ],
    ids=ascii,
)
def test_a_mistake_raises_and_changes_nothing(method: str, arguments: Any, error: type[KeySharedError]) -> None:
    placement = AssignedRanges([(LOWER, "a")])
    placement.add("b")
    before = placement.copy()

    with pytest.raises(error):
        getattr(placement, method)(*arguments)
    assert before == placement
    placement.check_invariants()


def test_who_joins_without_a_fallback_has_no_weight() -> None:
    placement = AssignedRanges()

    with pytest.raises(ArgumentError, match="a consumer owns what it is assigned"):
        placement.add("a", weight=2)
    assert () == placement.consumers


def test_a_mistake_of_the_fallback_changes_nothing_either() -> None:
    placement = AssignedRanges(fallback=HashRing(["a"]))
    before = placement.copy()

    with pytest.raises(ArgumentError):
        placement.add("b", weight=-1)
    with pytest.raises(ArgumentError):
        placement.set_weight("a", 0)
    assert before == placement


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"unowned": "hold"}, "unowned"),
        ({"strict_overlap": 1}, "strict_overlap"),
        ({"slot_bits": 0}, "slot_bits"),
        ({"fallback": HashRing(slot_bits=8)}, "fallback"),
        ({"fallback": HashRing(), "key_hash": DANUBE_32}, "fallback"),
    ],
    ids=str,
)
def test_options_that_can_never_work_are_refused(options: Any, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        AssignedRanges(**options)
    assert parameter == caught.value.parameter


def test_assignments_of_the_constructor_are_as_strict() -> None:
    with pytest.raises(RangeOverlapError):
        AssignedRanges([(HashRange(0, 10), "a"), (HashRange(5, 15), "b")], strict_overlap=True)


def test_assignments_change_while_a_dispatcher_runs() -> None:
    dispatcher = KeySharedDispatcher(AssignedRanges(fallback=HashRing()))
    dispatcher.add_consumer("a")
    dispatcher.add_consumer("vip")
    placement = dispatcher.placement
    assert isinstance(placement, AssignedRanges)
    placement.assign(HashRange(0, SIZE), "vip")
    assert AssignedRanges(fallback=HashRing(["a", "vip"])) == dispatcher.placement  # a copy was changed

    dispatcher.set_placement(placement)
    assert placement == dispatcher.placement
    assert {"vip"} == {dispatcher.owner(f"k{i}") for i in range(20)}
    again = KeySharedDispatcher.restore(dispatcher.snapshot(), dispatcher.placement, now_ms=0)
    assert {"vip"} == {again.owner(f"k{i}") for i in range(20)}


def test_it_says_what_it_is() -> None:
    assert "<AssignedRanges of 1 ranges to 2 consumers>" == repr(
        AssignedRanges([(LOWER, "a")], fallback=HashRing(["x"]))
    )


def _overlap(placement: AssignedRanges) -> None:
    placement._pieces = [(0, 10, "a"), (5, 15, "a")]


def _forget_owner(placement: AssignedRanges) -> None:
    del placement._consumers["a"]


def _forget_member_of_the_fallback(placement: AssignedRanges) -> None:
    del placement._consumers["x"]


def _keep_old_value(placement: AssignedRanges) -> None:
    placement._ranges = RangeMap()


@pytest.mark.parametrize("damage", [_overlap, _forget_owner, _forget_member_of_the_fallback, _keep_old_value])
def test_damage_is_found(damage: Callable[[AssignedRanges], None]) -> None:
    placement = AssignedRanges([(LOWER, "a")], fallback=HashRing(["x"]))
    placement.check_invariants()
    damage(placement)

    with pytest.raises(InvariantError):
        placement.check_invariants()


@pytest.mark.no_cover
@pytest.mark.parametrize("strict_overlap", [False, True])
@pytest.mark.parametrize("way", [1, -1, 7], ids=["upwards", "downwards", "scattered"])
def test_an_assignment_takes_hardly_more_steps_the_more_there_are(way: int, *, strict_overlap: bool) -> None:
    cost: list[float] = []
    for count in (50, 1_000):
        rows = [(HashRange(way * i % count, way * i % count + 1), f"c{i % 7}") for i in range(count)]
        cost.append(steps_of(AssignedRanges, rows, strict_overlap=strict_overlap) / count)
        assert count == len(AssignedRanges(rows).assignments)

    assert cost[1] < 1.5 * cost[0], cost


def test_a_release_takes_hardly_more_steps_the_more_there_are() -> None:
    def cut(count: int) -> int:
        placement = AssignedRanges([(HashRange(2 * i, 2 * i + 2), f"c{i % 7}") for i in range(count)])
        steps = steps_of(placement._replace, HashRange(count + 1, count + 4), [])
        placement.check_invariants()
        return steps

    assert cut(1_000) < 1.5 * cut(50)
