"""The points of a ring, the owners of slots among them, and what a change of points moved.

A ring changes at the points of one consumer. So its map looks for owners among the points at first, and derives its
runs after so many lookups that this pays; and what moved is worked out at those points only, if it is read.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Final, Self, TypeAlias, overload

from keyshared._checks import require
from keyshared.hashing import KeyHash
from keyshared.placement.range_map import Moved, RangeMap

__all__ = ["Point", "RingMoves", "RingPoints", "RingRanges"]

Point: TypeAlias = tuple[int, int, str]
"""Full hash, rank among equal hashes, name of the consumer."""

_USUAL: Final = 64  # points of a bucket
_LOOKUPS_PER_RUN: Final = 8  # among the points: both ends of a run are looked for, over several of them
_POINTS_PER_LOOKUP: Final = 8  # deriving costs for eight points what a lookup among the points costs more than in runs


class RingPoints:
    """An immutable sorted sequence of points, and the owner of each slot because of them.

    Points are in buckets by the top bits of their hashes. A change copies the buckets that it touches and shares all
    others with the value before it.

    Args:
        points: In any order.
        bits: Width of a hash.
        slot_bits: A slot is so many top bits of a hash.
        latest_owns_exact: See `RingRules`.

    Complexity:
        O(log p) for each question about a slot, p points. A change is O(d log p), d points that come or go, and copies
        references to all buckets, one for some fifty points.
    """

    __slots__ = ("_bucket_shift", "_buckets", "_exact", "_shift", "_size", "slots")

    def __init__(self, points: Iterable[Point], bits: int, slot_bits: int, *, latest_owns_exact: bool) -> None:
        self.slots = 1 << slot_bits
        self._shift = bits - slot_bits
        self._exact = latest_owns_exact
        self._fill(sorted(points))

    def _fill(self, points: list[Point]) -> None:
        bucket_bits = self._bucket_bits(len(points))
        self._size = len(points)
        self._bucket_shift = self.slots.bit_length() - 1 - bucket_bits  # from a slot to the number of its bucket
        width = self._bucket_shift + self._shift
        cuts = [bisect_left(points, (number << width, -1, "")) for number in range((1 << bucket_bits) + 1)]
        self._buckets = [points[start:stop] for start, stop in pairwise(cuts)]

    def _bucket_bits(self, size: int) -> int:
        """Return how many bits number the buckets of so many points: all points of a slot are in one bucket."""
        return min((size // _USUAL).bit_length(), self.slots.bit_length() - 1)

    # changes

    def including(self, points: Iterable[Point]) -> Self:
        """Return these and more points."""
        return self._changed(points, insort, 1)

    def excluding(self, points: Iterable[Point]) -> Self:
        """Return all but these points, each of which is here."""
        return self._changed(points, _discard, -1)

    def _changed(self, points: Iterable[Point], change: Callable[[list[Point], Point], None], step: int) -> Self:
        twin = self._twin()
        copied: set[int] = set()
        for point in points:
            number = point[0] >> self._shift >> self._bucket_shift
            if number not in copied:
                copied.add(number)
                twin._buckets[number] = twin._buckets[number].copy()
            change(twin._buckets[number], point)
            twin._size += step
        if abs(self._bucket_bits(twin._size) - (len(twin._buckets).bit_length() - 1)) > 1:
            twin._fill(list(twin))
        return twin

    def _twin(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.slots, twin._shift, twin._exact = self.slots, self._shift, self._exact
        twin._size, twin._bucket_shift, twin._buckets = self._size, self._bucket_shift, self._buckets.copy()
        return twin

    # questions

    def owner_at(self, slot: int) -> str | None:
        """Return the owner of a slot; None if there are no points."""
        point = self._ahead(slot) or self._ahead(0)  # beyond the last point the circle begins again
        if self._exact and point is not None and point[0] >> self._shift == slot:
            point = self._behind(slot)
        return None if point is None else point[2]

    def stretch_at(self, slot: int) -> tuple[int, int]:
        """Return a stretch around a slot that has one owner; the next ones may have the same."""
        ahead, behind = self._ahead(slot), self._behind(slot - 1)
        start = 0 if behind is None else (behind[0] >> self._shift) + 1
        if ahead is None:
            return start, self.slots
        own = ahead[0] >> self._shift
        if not self._exact:
            return start, own + 1
        return (start, own) if slot < own else (own, own + 1)

    def run_at(self, slot: int) -> tuple[int, int]:
        """Return the longest stretch with one owner around a slot."""
        owner = self.owner_at(slot)
        start, stop = self.stretch_at(slot)
        while stop < self.slots and self.owner_at(stop) == owner:
            _, stop = self.stretch_at(stop)
        while start and self.owner_at(start - 1) == owner:
            start, _ = self.stretch_at(start - 1)
        return start, stop

    def stretches(self, points: Iterable[Point]) -> list[tuple[int, int]]:
        """Return the stretches whose owner some of the points have a say in, in order, and perhaps others."""
        slots = {point[0] >> self._shift for point in points}
        if self._exact:  # the slot of a point is a stretch of its own, and those before it are another
            slots |= {slot - 1 for slot in slots if slot}
        slots.add(self.slots - 1)  # belongs to the first point, if it is beyond the last
        return sorted({self.stretch_at(slot) for slot in slots})

    def runs(self) -> tuple[list[int], list[str | None]]:
        """Return all stops and owners of runs in slot order; neighbours may have one owner. O(p)."""
        shift, exact = self._shift, self._exact
        stops: list[int] = []
        owners: list[str | None] = []
        last = -1
        for point, _, name in self:
            slot = point >> shift
            if slot != last:
                stops.append(slot + 1)
                owners.append(name)
                last = slot
            elif exact and slot == (stops[-2] if len(stops) > 1 else 0):
                owners[-1] = name  # the run before has no other slot than the point's own
            elif exact:
                stops[-1] = slot
                stops.append(slot + 1)
                owners.append(name)
        if last != self.slots - 1:
            stops.append(self.slots)
            owners.append(self.owner_at(self.slots - 1))
        return stops, owners

    def __iter__(self) -> Iterator[Point]:
        return chain.from_iterable(self._buckets)

    def __len__(self) -> int:
        return self._size

    def check_invariants(self) -> None:
        """Raise `InvariantError` if points, their buckets and their number do not fit together. O(p)."""
        points = list(self)
        require(points == sorted(points), "points are in order")
        require(len(points) == self._size, "points are counted")
        shift = self._shift + self._bucket_shift
        require(len(self._buckets) << self._bucket_shift == self.slots, "there is a bucket for every slot")
        here = all(point[0] >> shift == number for number, bucket in enumerate(self._buckets) for point in bucket)
        require(here, "points are in the bucket of their top bits")

    def _ahead(self, slot: int) -> Point | None:
        """Return the first point of a slot, or the first one behind it."""
        number = slot >> self._bucket_shift
        bucket = self._buckets[number]
        place = bisect_left(bucket, (slot << self._shift, -1, ""))
        while place == len(bucket):
            number += 1
            if number == len(self._buckets):
                return None
            bucket, place = self._buckets[number], 0
        return bucket[place]

    def _behind(self, slot: int) -> Point | None:
        """Return the last point of a slot, or the last one before it; None also for the slot -1."""
        number = slot >> self._bucket_shift
        place = bisect_left(self._buckets[number], (slot + 1 << self._shift, -1, "")) if slot >= 0 else 0
        while not place:
            number -= 1
            if number < 0:
                return None
            place = len(self._buckets[number])
        return self._buckets[number][place - 1]


def _discard(points: list[Point], point: Point) -> None:
    del points[bisect_left(points, point)]


class RingRanges(RangeMap):
    """The map of a ring: a `RangeMap` that derives its runs from the points when they are wanted.

    Args:
        points: All points of the ring.
        key_hash: Which hash turns a key into a slot.
        slot_bits: There are ``2**slot_bits`` slots.

    Complexity:
        O(1) to build. `owner`, `owner_of`, `run_at` and `walk` take O(log p) for each point that they pass, p points in
        all; every other query derives the runs, in O(p), unless they are there.
    """

    __slots__ = ("_lookups", "_points")

    def __init__(self, points: RingPoints, key_hash: KeyHash, slot_bits: int) -> None:
        self._set_space(key_hash, slot_bits)
        self._points = points
        self._lookups = len(points) // _POINTS_PER_LOOKUP  # before the runs are derived
        self._stops = ()

    def owner(self, slot: int) -> str | None:
        """See `RangeMap.owner`."""
        if self._has_runs():
            return super().owner(slot)
        return self._points.owner_at(self._checked_slot(slot))

    def owner_of(self, key: str | bytes) -> str | None:
        """See `RangeMap.owner_of`."""
        return RangeMap.owner_of(self, key) if self._stops else self.owner(self.slot_of(key))

    def run_at(self, slot: int) -> tuple[int, int]:
        """See `RangeMap.run_at`."""
        if self._has_runs(_LOOKUPS_PER_RUN):
            return super().run_at(slot)
        return self._points.run_at(self._checked_slot(slot))

    def walk(self, slot: int) -> Iterator[str]:
        """See `RangeMap.walk`."""
        if self._has_runs():
            return super().walk(slot)
        return self._walk_on(self._checked_slot(slot))

    def _walk_on(self, slot: int) -> Iterator[str]:
        seen: set[str | None] = {None}
        at = slot
        while not self._has_runs():
            owner = self._points.owner_at(at)
            if owner is not None and owner not in seen:
                yield owner
                seen.add(owner)
            at = self._points.stretch_at(at)[1] % self._points.slots
        yield from (name for name in RangeMap.walk(self, slot) if name not in seen)

    def _has_runs(self, lookups: int = 1) -> bool:
        """Count lookups, and return whether they find runs."""
        if not self._stops:
            if self._lookups > 0:
                self._lookups -= lookups
            else:
                self._derive()
        return bool(self._stops)

    def _derive(self) -> None:
        if not self._stops:
            self._fill(*self._points.runs(), self._key_hash, self._slot_bits)


class RingMoves(Sequence[Moved]):
    """The slots that a change of a ring moved, in order; worked out when it is first read.

    Equal to any list of the same moves.

    Args:
        before: All points before the change.
        after: All points after it.
        changed: Those that came, or those that went.

    Complexity:
        O(1) until it is read; then O(d log p), d points changed and p in all.
    """

    __slots__ = ("_after", "_before", "_changed", "_moves")

    def __init__(self, before: RingPoints, after: RingPoints, changed: list[Point]) -> None:
        self._before = before
        self._after = after
        self._changed = changed
        self._moves: list[Moved] | None = None

    def _read(self) -> list[Moved]:
        if self._moves is None:
            self._moves = self._worked_out()
        return self._moves

    def _worked_out(self) -> list[Moved]:
        moves: list[Moved] = []
        # Those that came or went are all on the side that has more; one stretch of it is never two on the other side.
        richer = max(self._before, self._after, key=len)
        for start, stop in richer.stretches(self._changed):
            old, new = self._before.owner_at(start), self._after.owner_at(start)
            if old == new:
                continue
            if moves and moves[-1][1:] == (start, old, new):
                start = moves.pop().start  # noqa: PLW2901 - the run goes on
            moves.append(Moved(start, stop, old, new))
        return moves

    def __len__(self) -> int:
        return len(self._read())

    @overload
    def __getitem__(self, index: int) -> Moved: ...
    @overload
    def __getitem__(self, index: slice) -> list[Moved]: ...
    def __getitem__(self, index: int | slice) -> Moved | list[Moved]:
        return self._read()[index]

    def __eq__(self, other: object) -> bool:
        return self._read() == list(other) if isinstance(other, RingMoves | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr(self._read())

    def __reduce__(self) -> tuple[object, ...]:
        return list, (self._read(),)
