"""The points of a ring, their map and what a change of them moved."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from keyshared.errors import ArgumentError, InvariantError, KeyTypeError
from keyshared.hashing import XXH64_SEED_42
from keyshared.placement import Moved, RangeMap
from keyshared.placement.ring_points import Point, RingMoves, RingPoints
from keyshared.ring import HashRing

SIZE = 1 << 16
Query = Callable[[RangeMap], object]


def points_of(name: str, hashes: Any, rank: int = 0) -> list[Point]:
    return [(point, rank, name) for point in hashes]


def points(found: list[Point], *, bits: int = 16) -> RingPoints:
    return RingPoints(found, bits, bits, latest_owns_exact=False)


EVENS = points_of("a", range(0, 1_000, 2))
ODDS = points_of("b", range(1, 1_000, 2))


def test_many_points_come_and_go_at_once_as_they_do_one_by_one() -> None:
    evens = points(EVENS, bits=10)
    both = evens.including(ODDS)
    one_by_one = evens
    for odd in ODDS:
        one_by_one = one_by_one.including([odd])

    assert sorted(EVENS + ODDS) == list(both) == list(one_by_one) == list(points(EVENS + ODDS, bits=10))
    assert list(evens) == list(both.excluding(ODDS)) == EVENS
    assert [1_000, 500, 0] == [len(both), len(evens), len(both.excluding(EVENS + ODDS))]
    for each in (evens, both, one_by_one, both.excluding(ODDS), both.excluding(EVENS + ODDS)):
        each.check_invariants()


def test_a_crowd_in_one_slot_stays_in_order_however_many_come_and_go() -> None:
    crowd = points(points_of("a", [7] * 300, 1) + points_of("b", [7] * 300, 3))

    more = crowd.including(points_of("c", [7] * 200, 2))
    assert ["a"] * 300 + ["c"] * 200 + ["b"] * 300 == [name for _, _, name in more]
    less = more.excluding(points_of("a", [7] * 299, 1))
    assert ["a"] + ["c"] * 200 + ["b"] * 300 == [name for _, _, name in less]
    more.check_invariants()


def test_a_change_replaces_the_buckets_that_it_touches_and_no_others() -> None:
    before = points(points_of("a", range(0, SIZE, 8)))
    after = before.including(points_of("b", [17, 50_000]))

    changed = {id(bucket) for bucket in after._buckets} - {id(bucket) for bucket in before._buckets}
    assert 2 == len(changed)
    assert len(after._buckets) == len(before._buckets)
    assert SIZE // 8 == len(list(before))


def test_there_are_about_as_many_buckets_for_so_many_points_however_they_came() -> None:
    all_points = points_of("a", range(0, SIZE, 8))
    grown, shrunk = points([]), points(all_points)
    for at in range(0, len(all_points), 100):
        grown = grown.including(all_points[at : at + 100])
        shrunk = shrunk.excluding(all_points[at : at + 100]) if at < 8_000 else shrunk

    assert 64 <= len(grown._buckets) <= 256
    assert len(shrunk._buckets) <= 8
    grown.check_invariants()
    shrunk.check_invariants()


def test_without_points_nobody_owns_anything() -> None:
    nothing = points([])

    assert nothing.owner_at(5) is None
    assert (0, SIZE) == nothing.stretch_at(5) == nothing.run_at(5)
    assert ([SIZE], [None]) == nothing.runs()


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (lambda p: p._buckets[0].reverse(), "in order"),
        (lambda p: setattr(p, "_size", 7), "counted"),
        (lambda p: p._buckets.append([]), "a bucket for every slot"),
        (lambda p: p._buckets.insert(0, p._buckets.pop()), "in order"),
        (lambda p: p._buckets[1].insert(0, p._buckets[0].pop()), "in the bucket of their top bits"),
    ],
    ids=["order", "count", "too many", "moved", "bucket"],
)
def test_broken_points_are_found_out(damage: Any, fact: str) -> None:
    broken = points(points_of("a", range(0, SIZE, 100)))
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
    quarters = points(points_of("a", [1]) + points_of("b", [2, 3, 5]), bits=3)

    assert [Moved(2, 6, "b", "a")] == RingMoves(
        quarters, points(points_of("a", [1]), bits=3), points_of("b", [2, 3, 5])
    )


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
def test_a_walk_begins_among_the_points_and_goes_on_in_the_runs(*, danube: bool) -> None:
    ring = HashRing.danube(range(40), vnodes=3) if danube else HashRing([f"c{n}" for n in range(40)], vnodes=3)
    flat = RangeMap.from_json(ring.copy().ranges.to_json())

    for slot in (0, 5, (1 << ring.ranges.slot_bits) - 1):
        ring.set_weight("1" if danube else "c1", 1 + slot % 7)
        ring.set_weight("1" if danube else "c1", 1)
        assert next(flat.walk(slot)) == next(ring.ranges.walk(slot))
        assert list(flat.walk(slot)) == list(ring.ranges.walk(slot))


def test_a_walk_without_points_names_nobody() -> None:
    ranges = HashRing().ranges

    assert [] == list(ranges.walk(5))
    assert ranges.owner(5) is None


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
