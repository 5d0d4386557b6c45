"""Pulsar's placements against obvious models slot by slot, and broken variants that must be caught."""

from collections.abc import Callable
from itertools import pairwise
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.errors import KeySharedError, MisuseError, RangeOverlapError
from keyshared.hashing import pulsar_ring_hash
from keyshared.placement import HashRange, Moved, RangeMap, gained, lost
from keyshared.placement.assigned import ExclusiveRanges
from keyshared.placement.autosplit import AutoSplit
from keyshared.ring import HashRing

SIZE = 16
POINTS = 4

Owners = list[str | None]
Changes = list[str]


def slots(ranges: RangeMap) -> Owners:
    return [ranges.owner(slot) for slot in range(1 << ranges.slot_bits)]


def changes_of(names: list[str]) -> st.SearchStrategy[Changes]:
    """Names; each joins when it is not there and leaves when it is."""
    return st.lists(st.sampled_from(names), max_size=14)


class SlowRing:
    """For each slot the queue of those who have a point there; lowest free numbers per name."""

    def __init__(self) -> None:
        self.queues: dict[int, list[str]] = {}
        self.numbers: dict[str, int] = {}

    def change(self, name: str) -> None:
        pulsar_name = name[0]
        if name in self.numbers:
            del self.numbers[name]
            queues = {slot: [each for each in queue if each != name] for slot, queue in self.queues.items()}
            self.queues = {slot: queue for slot, queue in queues.items() if queue}
            return
        taken = [number for other, number in self.numbers.items() if other[0] == pulsar_name]
        self.numbers[name] = min(set(range(len(taken) + 1)) - set(taken))
        for i in range(POINTS):
            slot = pulsar_ring_hash(SIZE).function(f"{pulsar_name}\0{self.numbers[name]}\0{i}".encode())
            self.queues.setdefault(slot, []).append(name)

    def owners(self) -> Owners:
        if not self.queues:
            return [None] * SIZE
        return [
            self.queues[next((s for s in sorted(self.queues) if s >= slot), min(self.queues))][0]
            for slot in range(SIZE)
        ]


class SlowSplit:
    """One name for each slot, counted as Pulsar does: it has one more beyond the last."""

    def __init__(self) -> None:
        self.line: list[str] = []

    def change(self, name: str) -> None:
        if name in self.line:
            start, stop = self.line.index(name), self.line.index(name) + self.line.count(name)
            heir = self.line[stop] if stop < SIZE else self.line[start - 1]
            self.line = [] if heir == name else self.line[:start] + [heir] * (stop - start) + self.line[stop:]
            return
        if not self.line:
            self.line = [name] * SIZE
            return
        widest = max(self.line, key=lambda each: (self.line.count(each), -self.line.index(each)))
        width = self.line.count(widest)
        if width == 1:
            raise MisuseError("full")
        start = self.line.index(widest)
        self.line[start : start + ceil(width / 2)] = [name] * ceil(width / 2)

    def owners(self) -> Owners:
        return list(self.line) or [None] * SIZE

    def pulsars_owners(self) -> Owners:
        """Slot 0 never occurs and goes with slot 1; the last number is beyond the slots."""
        return [self.line[0], *self.line[:-1]] if self.line else [None] * SIZE


def follow(placement: Any, model: Any, owners: Callable[[], Owners], changes: Changes) -> None:
    """Make all changes to both, and compare every slot and what moved after each."""
    for name in changes:
        before = placement.ranges
        joins = name not in placement.consumers
        try:
            model.change(name)
        except MisuseError:
            with pytest.raises(MisuseError):
                placement.add(name)
            assert before is placement.ranges
            continue
        moved = placement.add(name) if joins else placement.remove(name)
        assert owners() == slots(placement.ranges)
        assert before.moved(placement.ranges) == moved
        assert {name} >= ({each.new for each in moved} if joins else {each.old for each in moved}) - {None}
        placement.check_invariants()
        assert placement.copy() == placement


RING_NAMES = ["a#1", "a#2", "a#3", "b#1", "b#2", "c"]
SPLIT_NAMES = [f"n{i}" for i in range(6)]


def ring() -> HashRing:
    return HashRing.pulsar(points=POINTS, separator="#", range_size=SIZE)


@given(changes=changes_of(RING_NAMES))
def test_the_ring_is_the_queues_of_pulsar(changes: Changes) -> None:
    model = SlowRing()
    placement = ring()

    follow(placement, model, model.owners, changes)
    assert {name: member.index for name, member in placement._consumers.items()} == model.numbers


@given(changes=changes_of(SPLIT_NAMES))
def test_split_ranges_are_halves_of_the_widest(changes: Changes) -> None:
    model = SlowSplit()

    follow(AutoSplit(slot_bits=4), model, model.owners, changes)


@given(changes=changes_of(SPLIT_NAMES))
def test_pulsars_split_ranges_are_the_same_one_slot_higher(changes: Changes) -> None:
    model = SlowSplit()

    follow(AutoSplit.pulsar(range_size=SIZE), model, model.pulsars_owners, changes)


@given(joins=st.integers(1, 20))
def test_ranges_run_out_when_everybody_has_one_slot(joins: int) -> None:
    model = SlowSplit()

    follow(AutoSplit(slot_bits=4), model, model.owners, [f"n{i}" for i in range(joins)])


spans = st.tuples(st.integers(0, SIZE - 1), st.integers(1, 6)).map(lambda pair: (pair[0], min(SIZE, sum(pair))))
declarations = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.lists(spans, min_size=1, max_size=3)), max_size=8
)
Declarations = list[tuple[str, list[tuple[int, int]]]]


def declare_all(make: Callable[..., ExclusiveRanges], declared: Declarations) -> None:
    """Every name declares if it is not there, else leaves; compared with a dict of slots."""
    placement = make(slot_bits=4)
    owners: dict[int, str] = {}
    for name, ranges in declared:
        before = placement.copy()
        wanted = [slot for start, stop in ranges for slot in range(start, stop)]
        if name in placement.consumers:
            placement.remove(name)
            owners = {slot: owner for slot, owner in owners.items() if owner != name}
        elif len(set(wanted)) < len(wanted) or owners.keys() & set(wanted):
            with pytest.raises(KeySharedError) as caught:
                placement.declare(name, ranges)
            assert isinstance(caught.value, RangeOverlapError) == (len(set(wanted)) == len(wanted))
            assert before == placement
        else:
            placement.declare(name, ranges)
            owners.update(dict.fromkeys(wanted, name))
        assert [owners.get(slot) for slot in range(SIZE)] == slots(placement.ranges)
        placement.check_invariants()


@given(declared=declarations)
def test_every_slot_is_declared_by_one_consumer_at_most(declared: Declarations) -> None:
    declare_all(ExclusiveRanges, declared)


changing_owners = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=SIZE, max_size=SIZE)


@given(before=changing_owners, after=changing_owners)
def test_what_is_gained_and_lost_is_exact_slot_by_slot(before: Owners, after: Owners) -> None:
    old, new = (RangeMap.from_stops(range(1, SIZE + 1), owners, slot_bits=4) for owners in (before, after))
    moved = old.moved(new)

    for name in ("a", "b", "c"):
        got = [slot for slot in range(SIZE) if before[slot] != name == after[slot]]
        gone = [slot for slot in range(SIZE) if after[slot] != name == before[slot]]
        assert got == [slot for piece in gained(moved).get(name, ()) for slot in range(piece.start, piece.stop)]
        assert gone == [slot for piece in lost(moved).get(name, ()) for slot in range(piece.start, piece.stop)]
    for pieces in (*gained(moved).values(), *lost(moved).values()):
        assert all(one.stop < other.start for one, other in pairwise(pieces))


# broken variants


class NewcomerTakesAll(HashRing):
    """Broken: a contested point goes to whoever came last."""

    def _points_of(self, name: str, member: Any, start: int, stop: int) -> Any:
        return ((point, -rank, who) for point, rank, who in super()._points_of(name, member, start, stop))


class NumbersRunTogether(HashRing):
    """Broken: nothing stands between the name and the two numbers."""

    @classmethod
    def start(cls) -> "NumbersRunTogether":
        made = cls.pulsar(points=POINTS, separator="#", range_size=SIZE)
        text = made._rules.point_text
        object.__setattr__(made._rules, "point_text", lambda *given: text(*given).replace(b"\0", b""))
        return made


class NumbersGrow(HashRing):
    """Broken: a number that became free below others is not given again."""

    def _free_index(self, name: str) -> int:
        return max((m.index for other, m in self._consumers.items() if other[0] == name[0]), default=-1) + 1


class UpperHalf(AutoSplit):
    """Broken: the newcomer takes the upper half."""

    def _join(self, name: str) -> None:
        super()._join(name)
        lower = next(index for index, (_, owner) in enumerate(self._bounds) if owner == name)
        if lower + 1 < len(self._bounds):
            (bound, _), (upper, old) = self._bounds[lower : lower + 2]
            self._bounds[lower : lower + 2] = [(bound, old), (upper, name)]


class HighestOfEquals(AutoSplit):
    """Broken: of equally wide ranges the highest is split."""

    def _split(self) -> int:
        below, found = 0, (0, 0)
        for bound, _ in self._bounds:
            found = max(found, (bound - below, bound))
            below = bound
        if found[0] <= 1:
            raise MisuseError("full")
        return found[1] - found[0] // 2


class DownwardOnly(AutoSplit):
    """Broken: whoever leaves is always absorbed by the lower neighbour."""

    def remove(self, name: str) -> list[Moved]:
        before = self.ranges
        index = next(index for index, (_, owner) in enumerate(self._bounds) if owner == name)
        if 0 < index:
            (_, heir), (bound, _) = self._bounds[index - 1 : index + 1]
            self._bounds[index - 1 : index + 1] = [(bound, heir)]
            del self._consumers[name]
            return self._changed(before)
        return super().remove(name)


class HalfTaken(ExclusiveRanges):
    """Broken: ranges are taken one by one until one is refused."""

    def _take(self, name: str, ranges: Any) -> None:
        for number, each in enumerate(ranges):
            super()._take(name if not number else f"{name}{number}", [each])


class LowerNeighbourOnly(ExclusiveRanges):
    """Broken: only the range that starts before is looked at."""

    def _touched(self, start: int, stop: int) -> slice:
        return super()._touched(start, min(stop, start + 1))


RING_CHANGES = ["a#1", "a#2", "b#1", "b#2", "a#1", "c", "a#3", "b#1", "a#1"]
SPLIT_CHANGES = ["n0", "n1", "n2", "n1", "n0", "n3", "n1", "n4", "n2", "n3"]


@pytest.mark.parametrize(
    "broken",
    [
        lambda: NewcomerTakesAll.pulsar(points=POINTS, separator="#", range_size=SIZE),
        NumbersRunTogether.start,
        lambda: NumbersGrow.pulsar(points=POINTS, separator="#", range_size=SIZE),
    ],
    ids=["newcomer takes contested points", "names without separators", "numbers grow"],
)
def test_a_broken_ring_is_caught(broken: Callable[[], HashRing]) -> None:
    model = SlowRing()
    follow(ring(), model, model.owners, RING_CHANGES)

    model = SlowRing()
    with pytest.raises(AssertionError):
        follow(broken(), model, model.owners, RING_CHANGES)


@pytest.mark.parametrize("broken", [UpperHalf, HighestOfEquals, DownwardOnly])
def test_broken_split_ranges_are_caught(broken: Callable[..., AutoSplit]) -> None:
    model = SlowSplit()
    follow(AutoSplit(slot_bits=4), model, model.owners, SPLIT_CHANGES)

    model = SlowSplit()
    with pytest.raises(AssertionError):
        follow(broken(slot_bits=4), model, model.owners, SPLIT_CHANGES)


@pytest.mark.parametrize("broken", [HalfTaken, LowerNeighbourOnly])
def test_broken_declarations_are_caught(broken: Callable[..., ExclusiveRanges]) -> None:
    declared: Declarations = [("a", [(4, 8)]), ("b", [(0, 2), (3, 6)])]
    declare_all(ExclusiveRanges, declared)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        declare_all(broken, declared)


def test_a_range_is_told_as_one_where_two_others_lost_it() -> None:
    moved = [Moved(0, 4, "a", "c"), Moved(4, 8, "b", "c"), Moved(9, 12, None, "c"), Moved(12, 16, "b", None)]

    assert {"c": (HashRange(0, 8), HashRange(9, 12))} == gained(moved)
    assert {"a": (HashRange(0, 4),), "b": (HashRange(4, 8), HashRange(12, 16))} == lost(moved)
