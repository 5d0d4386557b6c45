"""A ring after every change against one that is built anew, with points that collide all the time."""

import pickle
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import count, islice
from operator import itemgetter
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.errors import InvariantError
from keyshared.hashing import KeyHash, danube32
from keyshared.placement import Moved, RangeMap, ring_points
from keyshared.placement.ring_points import RingPoints, RingRanges
from keyshared.ring import DANUBE_RULES, DEFAULT_RULES, HashRing, RingRules, pulsar_rules

BITS: Final = 4
SIZE: Final = 1 << BITS
VNODES: Final = 3


def _six_bits(data: bytes) -> int:
    return danube32(data) & 63


CROWDED: Final = KeyHash("crowded", 6, _six_bits)
RULES: Final = {"default": DEFAULT_RULES, "danube": DANUBE_RULES, "pulsar": pulsar_rules("#")}
NAMES: Final = {
    "default": ["a", "b", "c", "d", "e"],
    "danube": ["1", "2", "3", "40", "5"],
    "pulsar": ["a#1", "a#2", "a#3", "b#1", "c"],
}

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(st.sampled_from(["toggle", "toggle", "weigh", "copy", "pickle"]), st.integers(0, 4), st.integers(1, 4)),
    max_size=9,
)


@pytest.fixture(autouse=True, scope="module")
def _short_parts() -> Iterator[None]:
    """Let a handful of points fill several parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring_points, "_USUAL", 2)
        yield


class SlowRing:
    """The consumers, and nothing that is kept from one change to the next but their numbers."""

    def __init__(self, rules: RingRules) -> None:
        self.rules = rules
        self.members: dict[str, tuple[int, int]] = {}  # weight and number, in join order

    def toggle(self, name: str, weight: int) -> None:
        if name in self.members:
            del self.members[name]
            return
        alike = {n for other, (_, n) in self.members.items() if self._point_name(other) == self._point_name(name)}
        free = next(number for number in count() if number not in alike)
        self.members[name] = weight, 0 if self.rules.separator is None else free

    def weigh(self, name: str, weight: int) -> None:
        self.members[name] = weight, self.members[name][1]

    def map(self) -> RangeMap:
        owners = [self._owner(slot) for slot in range(SIZE)]
        return RangeMap.from_stops(range(1, SIZE + 1), owners, key_hash=CROWDED, slot_bits=BITS)

    def _point_name(self, name: str) -> str:
        return name if self.rules.separator is None else name.rpartition("#")[0] or name

    def _owner(self, slot: int) -> str | None:
        claims = [
            (_six_bits(self.rules.point_text(self._point_name(name), number, vnode)), order, name)
            for order, (name, (weight, number)) in enumerate(self.members.items())
            for vnode in range(VNODES * weight)
        ]
        key: Callable[[Any], Any] = (lambda c: c[:2]) if self.rules.ties_by_join else (lambda c: (c[0], c[2]))
        claims.sort(key=key)
        mine = [claim for claim in claims if claim[0] >> CROWDED.bits - BITS == slot]
        if mine and self.rules.latest_owns_exact:
            return str(mine[-1][2])
        ahead = [claim for claim in claims if claim[0] >> CROWDED.bits - BITS >= slot]
        return str((ahead or claims)[0][2]) if claims else None


def start(kind: str) -> HashRing:
    ring = HashRing.__new__(HashRing)
    ring._start((), VNODES, BITS, CROWDED, RULES[kind])
    return ring


def check_answers(ring: HashRing, expected: RangeMap) -> None:
    """Compare what is found among the points, and what is found in the runs that are derived of them."""
    ranges = ring._build()
    assert isinstance(ranges, RingRanges)
    ranges._lookups = 10_000
    assert [expected.owner(slot) for slot in range(SIZE)] == [ranges.owner(slot) for slot in range(SIZE)]
    runs = [expected.run_at(slot) for slot in range(SIZE)]
    assert {(start, stop) for start, stop, _ in expected.runs} == set(runs)
    assert all(start <= slot < stop for slot, (start, stop) in enumerate(runs))
    assert runs == [ranges.run_at(slot) for slot in range(SIZE)]
    keys = [b"%d" % n for n in range(30)]
    assert [expected.owner_of(key) for key in keys] == [ranges.owner_of(key) for key in keys]
    walks = [list(expected.walk(slot)) for slot in range(SIZE)]
    assert not ranges._stops
    assert [walk[:1] for walk in walks] == [list(islice(ranges.walk(slot), 1)) for slot in range(SIZE)]
    for lookups in (0, 3, 40):
        again: Any = ring._build()
        again._lookups = lookups
        assert walks[5] == list(again.walk(5))  # begun among the points, ended in the runs
    assert expected == ranges
    assert walks == [list(ranges.walk(slot)) for slot in range(SIZE)]
    assert expected.owners == ring.ranges.owners


def follow(kind: str, path: list[Step]) -> None:
    ring, slow = start(kind), SlowRing(RULES[kind])
    kept: list[tuple[HashRing, RangeMap]] = []
    changes: list[tuple[object, list[Moved]]] = []
    for step, number, weight in path:
        name = NAMES[kind][number]
        if step == "copy":
            kept.append((ring, slow.map()))
            ring = ring.copy()
        elif step == "pickle":
            ring = pickle.loads(pickle.dumps(ring))  # noqa: S301 - our own bytes
        elif step == "toggle" or name in slow.members:
            before, was = ring.ranges, slow.map()
            moves = change(ring, step, name, weight)
            (slow.toggle if step == "toggle" else slow.weigh)(name, weight)
            assert was == before
            changes.append((moves, was.moved(slow.map())))
        check_answers(ring, slow.map())
        assert tuple(slow.members) == ring.consumers
        ring.check_invariants()
    for moves, expected in changes:  # only now, after all the others
        assert moves == expected
        assert repr(moves) == repr(expected)
    for old, expected_map in kept:
        assert expected_map == old.ranges
        old.check_invariants()


def change(ring: HashRing, step: str, name: str, weight: int) -> object:
    if step == "weigh":
        return ring.set_weight(name, weight)
    return ring.remove(name) if name in ring.consumers else ring.add(name, weight=weight)


@pytest.mark.parametrize("kind", RULES)
@given(path=steps)
def test_a_ring_that_changes_is_the_ring_that_is_built_anew(kind: str, path: list[Step]) -> None:
    follow(kind, path)


# broken: one short cut at a time

_changed, _stretches = RingPoints._changed, RingPoints.stretches


def _without_ranks(self: RingPoints, points: Any, change: Any, step: int) -> RingPoints:
    def insert(bucket: Any, point: Any) -> None:
        bucket.insert(bisect_right(bucket, point[0], key=itemgetter(0)), point)

    return _changed(self, points, insert if step > 0 else change, step)


def _first_of_equals(self: RingPoints, points: Any, change: Any, step: int) -> RingPoints:
    def discard(bucket: Any, point: Any) -> None:
        del bucket[bisect_left(bucket, point[0], key=itemgetter(0))]

    return _changed(self, points, change if step > 0 else discard, step)


def _in_place(self: RingPoints) -> RingPoints:
    twin = _twin(self)
    twin._buckets = self._buckets
    return twin


_twin = RingPoints._twin


def _never_stale(self: HashRing, points: Any, *, join: bool) -> Any:
    kept = self._ranges
    moves = _change(self, points, join=join)
    self._ranges = kept
    return moves


_change = HashRing._change

FAULTS: Final[dict[str, tuple[object, str, object]]] = {
    "ranks are not looked at": (RingPoints, "_changed", _without_ranks),
    "a point of another consumer goes": (RingPoints, "_changed", _first_of_equals),
    "changes are made in place": (RingPoints, "_twin", _in_place),
    "the circle has an end": (RingPoints, "stretches", lambda *a: [s for s in _stretches(*a) if s[1] < SIZE]),
    "the value is not new": (HashRing, "_change", _never_stale),
    "numbers are not looked at": (HashRing, "_free_index", lambda *_: 0),
}
PATHS: Final[list[list[Step]]] = [
    [("toggle", n % 5, 1 + n % 3) for n in range(first, first + 12)]
    + [("weigh", n % 5, 4) for n in range(4)]
    + [("copy", 0, 1), ("toggle", first % 5, 2), ("weigh", 2, 1), ("toggle", 1, 1), ("toggle", 1, 1)]
    for first in range(5)
]


def follow_all() -> None:
    for kind in RULES:
        for path in PATHS:
            follow(kind, path)


def test_the_paths_themselves_are_right() -> None:
    follow_all()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_ring_that_takes_one_short_cut_too_many_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, broken = FAULTS[fault]
    monkeypatch.setattr(where, name, broken)

    with pytest.raises((AssertionError, ValueError, IndexError, InvariantError)):
        follow_all()
