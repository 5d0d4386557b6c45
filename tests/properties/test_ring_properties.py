"""The ring against the obvious one, and placements that break a promise, which must be caught."""

from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from keyshared.errors import ConsumerExistsError, UnknownConsumerError
from keyshared.hashing import XXH64_SEED_42, KeyHash, danube32
from keyshared.placement import RangeMap
from keyshared.ring import HashRing

BITS = 5
SIZE = 1 << BITS


def _seven_bits(data: bytes) -> int:
    return danube32(data) & 127


CROWDED = KeyHash("crowded", 7, _seven_bits)  # points share slots and even whole hashes all the time
HASHES = [XXH64_SEED_42, CROWDED]
Build = Callable[[list[str]], RangeMap]
Weights = Mapping[str, int]

names = st.sampled_from(["a", "b", "c", "d", "e", "a1"])
name_lists = st.lists(names, unique=True, max_size=6)
operations = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "set_weight"]), names, st.integers(1, 4)), max_size=10
)


def _slow_owners(weights: Weights, vnodes: int, key_hash: KeyHash) -> list[str | None]:
    """Ask every point for every slot: the first slot with a point, in it the lowest hash, then the smaller name."""
    points = [
        (key_hash.function(name.encode() + b"\0" + str(i).encode()), name)
        for name, weight in weights.items()
        for i in range(vnodes * weight)
    ]
    if not points:
        return [None] * SIZE
    shift = key_hash.bits - BITS
    ahead = [[(hashed, name) for hashed, name in points if hashed >> shift >= slot] for slot in range(SIZE)]
    return [min(candidates or points)[1] for candidates in ahead]


def _slots(ranges: RangeMap) -> list[str | None]:
    return [ranges.owner(slot) for slot in range(1 << ranges.slot_bits)]


@pytest.mark.parametrize("key_hash", HASHES, ids=lambda key_hash: key_hash.name)
@given(ops=operations, vnodes=st.integers(1, 6))
def test_the_ring_is_the_slow_ring_after_every_change(
    key_hash: KeyHash, ops: list[tuple[str, str, int]], vnodes: int
) -> None:
    ring = HashRing(vnodes=vnodes, slot_bits=BITS, key_hash=key_hash)
    weights: dict[str, int] = {}
    for operation, name, weight in ops:
        before = ring.ranges
        if (operation == "add") is (name in weights):
            with pytest.raises((ConsumerExistsError, UnknownConsumerError)):
                _apply(ring, operation, name, weight)
            assert before is ring.ranges
            continue
        moves = _apply(ring, operation, name, weight)
        old_weight = weights.get(name, 0)
        if operation == "remove":
            del weights[name]
        else:
            weights[name] = weight
        assert _slow_owners(weights, vnodes, key_hash) == _slots(ring.ranges)
        assert before.moved(ring.ranges) == moves
        if weights.get(name, 0) >= old_weight:
            assert all(move.new == name for move in moves)
        else:
            assert all(move.old == name for move in moves)
    ring.check_invariants()
    assert tuple(weights) == ring.consumers
    assert HashRing(weights, vnodes=vnodes, slot_bits=BITS, key_hash=key_hash) == ring


def _apply(ring: HashRing, operation: str, name: str, weight: int) -> object:
    if operation == "add":
        return ring.add(name, weight=weight)
    return ring.remove(name) if operation == "remove" else ring.set_weight(name, weight)


@given(consumers=name_lists, key=st.binary(max_size=4), n=st.integers(0, 7))
def test_a_preference_list_is_the_distinct_walk(consumers: list[str], key: bytes, n: int) -> None:
    ring = HashRing(consumers, vnodes=3, slot_bits=BITS)
    slots = _slots(ring.ranges)
    start = ring.ranges.slot_of(key)

    assert list(dict.fromkeys(owner for owner in slots[start:] + slots[:start] if owner))[:n] == ring.owners(key, n)


def _points_walk(ring: HashRing, slot: int) -> list[str]:
    """Walk the points themselves, as Danube restricted to the consumers that accept a key does."""
    shift = ring.ranges.key_hash.bits - ring.ranges.slot_bits
    ahead = [name for point, name in ring.points if point >> shift >= slot]
    behind = [name for point, name in ring.points if point >> shift < slot]
    return list(dict.fromkeys(ahead + behind))


@given(consumers=name_lists, slot=st.integers(0, 2**32 - 1))
def test_the_walk_over_ranges_is_the_walk_over_points_where_no_slot_is_shared(consumers: list[str], slot: int) -> None:
    ring = HashRing(consumers, slot_bits=32)

    assume(len({point >> 32 for point, _ in ring.points}) == len(ring.points))
    assert _points_walk(ring, slot) == list(ring.ranges.walk(slot))


# the promises, as checks of any way to turn a list of names into a map


def _movement_is_minimal(build: Build, consumers: list[str], newcomer: str) -> bool:
    return all(move.new == newcomer for move in build(consumers).moved(build([*consumers, newcomer])))


def _join_order_does_not_matter(build: Build, consumers: list[str]) -> bool:
    return build(consumers) == build(consumers[::-1])


def _ours(consumers: list[str]) -> RangeMap:
    return HashRing(consumers, vnodes=4, slot_bits=BITS, key_hash=CROWDED).ranges


def _ties_by_join(consumers: list[str]) -> RangeMap:
    """Give a slot with several points to whoever joined first, as Danube does."""
    slots: dict[int, str] = {}
    for name in consumers:
        for i in range(4):
            slots.setdefault(CROWDED.slot(name.encode() + b"\0" + str(i).encode(), BITS), name)
    return _from_points(slots)


def _ties_by_load(consumers: list[str]) -> RangeMap:
    """Give a slot with several points to whoever has fewest slots so far: fair, and never at rest."""
    claims: dict[int, list[str]] = {}
    for name in sorted(consumers):
        for i in range(12):
            claims.setdefault(CROWDED.slot(name.encode() + b"\0" + str(i).encode(), BITS), []).append(name)
    slots: dict[int, str] = {}
    for slot in sorted(claims):
        slots[slot] = min(claims[slot], key=lambda name: list(slots.values()).count(name))
    return _from_points(slots)


def _from_points(slots: dict[int, str]) -> RangeMap:
    if not slots:
        return RangeMap(key_hash=CROWDED, slot_bits=BITS)
    ends = sorted(slots)
    owners: list[str | None] = [slots[end] for end in ends]
    stops = [end + 1 for end in ends]
    if stops[-1] < SIZE:
        stops.append(SIZE)
        owners.append(owners[0])
    return RangeMap.from_stops(stops, owners, key_hash=CROWDED, slot_bits=BITS)


def _even_spread(consumers: list[str]) -> RangeMap:
    """Give consumer j of k the slots from floor(j n / k) to floor((j + 1) n / k): PIP-486's published spread."""
    if not consumers:
        return RangeMap(key_hash=CROWDED, slot_bits=BITS)
    k = len(consumers)
    stops = [(j + 1) * SIZE // k for j in range(k)]
    return RangeMap.from_stops(stops, sorted(consumers), key_hash=CROWDED, slot_bits=BITS)


WORLDS = [["a"], ["a", "b"], ["b", "a", "c"], ["c", "d", "a", "b"], ["e", "a1", "d", "b", "a"]]


@given(consumers=name_lists)
def test_our_ring_keeps_its_promises(consumers: list[str]) -> None:
    assert _movement_is_minimal(_ours, consumers, "new")
    assert _join_order_does_not_matter(_ours, consumers)


@pytest.mark.parametrize("build", [_even_spread, _ties_by_load])
def test_a_placement_that_moves_too_much_is_caught(build: Build) -> None:
    newcomers = [f"new-{i}" for i in range(10)]

    assert all(_movement_is_minimal(_ours, consumers, new) for consumers in WORLDS for new in newcomers)
    assert not all(_movement_is_minimal(build, consumers, new) for consumers in WORLDS for new in newcomers)


def test_a_placement_that_depends_on_the_order_of_joins_is_caught() -> None:
    assert all(_join_order_does_not_matter(_ours, consumers) for consumers in WORLDS)
    assert not all(_join_order_does_not_matter(_ties_by_join, consumers) for consumers in WORLDS)


@settings(max_examples=20)
@given(n=st.integers(2, 12))
def test_shares_are_about_even_and_a_join_takes_about_its_share(n: int) -> None:
    ring = HashRing(f"consumer-{i}" for i in range(n))
    moved = sum(move.stop - move.start for move in ring.add("new")) / 65536

    assert 0.5 / (n + 1) < moved < 1.6 / (n + 1)
    assert all(0.5 / (n + 1) < share < 1.6 / (n + 1) for share in ring.ranges.shares().values())


def test_runs_never_grow_beyond_the_points() -> None:
    ring = HashRing(f"consumer-{i}" for i in range(20))

    stops = [stop for _, stop, _ in ring.ranges.runs]
    assert len(stops) <= len(ring.points) + 1
    assert all(a < b for a, b in pairwise(stops))
