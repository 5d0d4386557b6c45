"""The points of a ring, their map and what a change of them moved."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from keyshared.errors import ArgumentError, InvariantError, KeyTypeError
from keyshared.hashing import XXH64_SEED_42
from keyshared.placement import Moved, RangeMap
from keyshared.placement.ring_points import Point, RingPoints
from keyshared.placement.ring_ranges import RingMoves
from keyshared.ring import HashRing

SIZE = 1 << 16
Query = Callable[[RangeMap], object]


def points_of(name: str, hashes: Any, rank: int = 0) -> list[Point]:
    return [(point, rank, name) for point in hashes]


def points(found: list[Point], *, exact: bool = False) -> RingPoints:
    return RingPoints(found, shift=0, latest_owns_exact=exact)


def no_rank(_: str) -> int:
    return 0


EVENS = points_of("a", range(0, 1_000, 2))
ODDS = points_of("b", range(1, 1_000, 2))


def test_many_points_come_and_go_at_once_as_they_do_one_by_one() -> None:
    evens = points(EVENS)
    both = evens.including(ODDS, no_rank)
    one_by_one = evens
    for odd in ODDS:
        one_by_one = one_by_one.including([odd], no_rank)

    assert list(points(EVENS + ODDS)) == list(both) == list(one_by_one)
    assert list(evens) == list(both.excluding(ODDS)) == [(point, "a") for point, _, _ in EVENS]
    assert [1_000, 500, 0] == [len(both), len(evens), len(both.excluding(EVENS + ODDS))]
    for each in (evens, both, one_by_one, both.excluding(ODDS), both.excluding(EVENS + ODDS)):
        each.check_invariants()


def test_a_crowd_in_one_slot_stays_together_however_many_come_and_go() -> None:
    crowd = points(points_of("a", [7] * 300, 1) + points_of("b", [7] * 300, 3))
    ranks = {"a": 1, "b": 3, "c": 2}

    more = crowd.including(points_of("c", [7] * 200, 2), ranks.__getitem__)
    assert ["a"] * 300 + ["c"] * 200 + ["b"] * 300 == [name for _, name in more]
    less = more.excluding(points_of("a", [7] * 299, 1))
    assert ["a"] + ["c"] * 200 + ["b"] * 300 == [name for _, name in less]
    assert (1, 1) == (len(more._parts), len(less._parts))
    more.check_invariants()


def test_parts_that_hardly_hold_anything_are_put_together() -> None:
    many = points(points_of("a", range(10_000)))

    few = many.excluding(points_of("a", set(range(10_000)) - set(range(0, 10_000, 100))))
    assert 100 == len(few)
    assert len(few._parts) < 10
    few.check_invariants()


def test_a_change_replaces_the_parts_that_it_touches_and_no_others() -> None:
    before = points(points_of("a", range(10_000)))
    after = before.including(points_of("b", [17, 5_000]), no_rank)

    changed = {id(part) for part in after._parts} - {id(part) for part in before._parts}
    assert 2 == len(changed)
    assert len(after._parts) == len(before._parts)
    assert 10_000 == len(list(before))


def test_without_points_nobody_owns_anything() -> None:
    nothing = points([])

    assert (None, None) == (nothing.owner_at(5), nothing.stop_at(5))
    assert [] == list(nothing.stretches([], SIZE))
    assert ([SIZE], [None]) == nothing.runs(SIZE)


def _tear_a_slot(damaged: RingPoints) -> None:
    damaged._shift = 9
    damaged._lasts = [0] * len(damaged._lasts)


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (lambda p: p._parts[0][0].reverse(), "in order"),
        (lambda p: setattr(p, "_size", 7), "counted"),
        (lambda p: p._parts.append(([], [])), "no part is empty"),
        (lambda p: p._lasts.__setitem__(0, 7), "found by their last slot"),
        (_tear_a_slot, "in one part"),
    ],
    ids=["order", "count", "empty part", "places", "torn slot"],
)
def test_broken_points_are_found_out(damage: Any, fact: str) -> None:
    broken = points(points_of("a", range(200)))
    damage(broken)

    with pytest.raises(InvariantError, match=fact):
        broken.check_invariants()


def test_what_a_change_moved_is_read_like_a_list() -> None:
    ring = HashRing(["a"])
    moves = ring.add("b")
    ring.remove("a")  # what is read later is what that change moved

    assert isinstance(moves, RingMoves)
    listed = list(moves)
    assert {("a", "b")} == {(move.old, move.new) for move in moves}
    assert (len(listed), listed[0], listed[1:3]) == (len(moves), moves[0], moves[1:3])
    assert moves == listed
    assert listed == moves
    assert moves == HashRing(["a"]).add("b")
    assert moves != tuple(listed)
    assert repr(listed) == repr(moves)
    assert listed[0] in moves
    for again in (copy.deepcopy(moves), pickle.loads(pickle.dumps(moves))):  # noqa: S301 - our own bytes
        assert listed == again
    with pytest.raises(TypeError, match="unhashable"):
        hash(moves)


def test_what_touches_is_one_move() -> None:
    quarters = points(points_of("a", [1]) + points_of("b", [2, 3, 5]))

    assert [Moved(2, 6, "b", "a")] == RingMoves(quarters, points(points_of("a", [1])), points_of("b", [2, 3, 5]), 8)


def ring_of(consumers: int) -> HashRing:
    return HashRing(f"c{n}" for n in range(consumers))


def test_the_first_lookups_find_owners_among_the_points_and_later_ones_in_the_runs() -> None:
    ranges, flat = ring_of(3).ranges, ring_of(3).ranges
    owners = {key: RangeMap.from_json(flat.to_json()).owner_of(key) for key in map(str, range(100))}

    assert not ranges._stops
    assert owners == {key: ranges.owner_of(key) for key in owners}
    assert ranges._stops
    assert owners == {key: ranges.owner_of(key) for key in owners}
    assert owners == {key: ranges.owner(ranges.slot_of(key.encode())) for key in owners}


@pytest.mark.parametrize("danube", [False, True])
def test_a_walk_that_is_begun_among_the_points_may_end_in_the_runs(*, danube: bool) -> None:
    ring = HashRing.danube(range(40), vnodes=3) if danube else HashRing([f"c{n}" for n in range(40)], vnodes=3)
    slots = [0, 5, (1 << ring.ranges.slot_bits) - 1]
    flat = RangeMap.from_json(ring.copy().ranges.to_json())

    for slot in slots:
        ring.set_weight("1" if danube else "c1", 1 + slot % 7)
        ring.set_weight("1" if danube else "c1", 1)
        found = list(ring.ranges.walk(slot))
        assert list(flat.walk(slot)) == found == list(ring.ranges.walk(slot))


def test_a_walk_without_points_names_nobody() -> None:
    ranges = HashRing().ranges

    assert [] == list(ranges.walk(5))
    assert ranges.owner(5) is None


def test_a_walk_whose_lookups_suffice_goes_round_once() -> None:
    ranges: Any = HashRing(["a", "b"]).ranges
    ranges._lookups = 10_000

    assert ["a", "b"] == sorted(ranges.walk(40_000))
    assert not ranges._stops


@pytest.mark.parametrize("early", [True, False])
def test_a_map_of_a_ring_refuses_what_any_map_refuses(*, early: bool) -> None:
    ranges = ring_of(3).ranges
    if not early:
        assert ranges.owners

    for slot in (-1, SIZE, True, "a"):
        with pytest.raises(ArgumentError, match="slot is"):
            ranges.owner(slot)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(ArgumentError, match="slot is"):
            ranges.walk(slot)  # type: ignore[arg-type]  # as above
    with pytest.raises(KeyTypeError, match="int"):
        ranges.owner_of(5)  # type: ignore[arg-type]  # as above
    with pytest.raises(ArgumentError, match="key is"):
        ranges.owner_of(None)  # type: ignore[arg-type]  # as above


def test_a_map_of_a_ring_is_a_value_like_any_map() -> None:
    queries: list[Query] = [
        lambda ranges: ranges.owners,
        lambda ranges: list(ranges.runs),
        lambda ranges: ranges.shares(),
        lambda ranges: ranges.to_json(),
        lambda ranges: ranges.finder()(b"order-1"),
        lambda ranges: ranges.ranges_of("c1"),
        lambda ranges: ranges.moved(ring_of(2).ranges),
        ring_of(2).ranges.moved,
        repr,
        hash,
        pickle.dumps,
        lambda ranges: ranges.check_invariants(),
        lambda ranges: ranges == ring_of(3).ranges,
        lambda ranges: ring_of(3).ranges == ranges,
    ]
    flat = RangeMap.from_json(ring_of(3).ranges.to_json())
    for query in queries:
        assert query(flat) == query(ring_of(3).ranges)  # each of a map of which nobody asked anything
    assert (XXH64_SEED_42, 16) == (ring_of(3).ranges.key_hash, ring_of(3).ranges.slot_bits)


@pytest.mark.parametrize("make", [HashRing, HashRing.danube], ids=["default", "danube"])
@pytest.mark.parametrize("consumers", [0, 1, 3], ids=lambda count: f"{count} consumers")
def test_a_run_is_found_among_the_points_as_in_the_runs(make: Callable[..., HashRing], consumers: int) -> None:
    ranges: Any = make([str(n) for n in range(consumers)], vnodes=5).ranges
    flat = RangeMap.from_json(make([str(n) for n in range(consumers)], vnodes=5).ranges.to_json())
    ranges._lookups = 10_000
    size = 1 << flat.slot_bits
    slots = sorted(
        {0, size - 1, *(at for start, stop, _ in flat.runs for at in (start, stop - 1, (start + stop) // 2))}
    )

    assert [flat.run_at(slot) for slot in slots] == [ranges.run_at(slot) for slot in slots]
    assert not ranges._stops
    ranges._lookups = 0
    assert [flat.run_at(slot) for slot in slots] == [ranges.run_at(slot) for slot in slots]
    assert ranges._stops
    for one in (flat, ranges):
        with pytest.raises(ArgumentError, match="slot is"):
            one.run_at(size)
