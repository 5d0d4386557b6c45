"""The points of a ring in order, as a value that shares almost everything with the value before a change.

Points lie in short sorted parts. A change puts new parts in the place of those that it touches and leaves the others as
they are, so it costs what the changed points cost, and the value before stays as it was. All points of a
slot lie in one part. Their hashes are in arrays: to copy a part touches no object of a point.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, Self, TypeAlias

from keyshared._checks import require

__all__ = ["Point", "RankOf", "RingPoints"]

Point: TypeAlias = tuple[int, int, str]
"""Full hash, rank among equal hashes, name of the consumer."""

RankOf: TypeAlias = Callable[[str], int]
"""The name of a consumer to the rank of its points."""

_Part: TypeAlias = tuple["array[int]", list[str]]  # hashes and names, in parallel

_USUAL: Final = 64  # points of a part that is new; it is cut when it has twice as many


class RingPoints:
    """An immutable sorted sequence of points, and who owns a slot because of them.

    Args:
        points: In any order.
        shift: The slot of a point is its hash without so many low bits.
        latest_owns_exact: See `RingRules`.

    Complexity:
        O(log p) for each question about a slot, p points. A change is O(d log p), d points that come or go, and copies
        references to all parts, one for each hundred points or so.
    """

    __slots__ = ("_exact", "_lasts", "_parts", "_shift", "_size")

    def __init__(self, points: Iterable[Point], shift: int, *, latest_owns_exact: bool) -> None:
        self._shift = shift
        self._exact = latest_owns_exact
        self._fill(_part_of(sorted(points)))

    def _fill(self, points: _Part) -> None:
        self._parts = self._cut(points)
        self._lasts = [hashes[-1] >> self._shift for hashes, _ in self._parts]  # by which a slot finds its part
        self._size = len(points[0])

    # changes

    def including(self, points: Iterable[Point], rank_of: RankOf) -> Self:
        """Return these and more points; the ranks are of those that are here."""
        more = sorted(points)
        twin = self._twin(len(more))
        if not self._parts:
            twin._fill(_part_of(more))
        for index, chunk in reversed(self._by_part(more)):
            twin._replace(index, _merged(self._parts[index], chunk, rank_of))
        return twin

    def excluding(self, points: Iterable[Point]) -> Self:
        """Return all but these points, each of which is here."""
        doomed = sorted(points)
        twin = self._twin(-len(doomed))
        for index, chunk in reversed(self._by_part(doomed)):
            twin._replace(index, _without(self._parts[index], chunk))
        if len(twin._parts) * _USUAL > 4 * (twin._size + _USUAL):  # hardly anything is left in each
            twin._fill((array("Q", twin._hashes()), list(twin._names())))
        return twin

    def _twin(self, more: int) -> Self:
        twin = type(self).__new__(type(self))
        twin._shift, twin._exact, twin._size = self._shift, self._exact, self._size + more
        twin._parts, twin._lasts = self._parts.copy(), self._lasts.copy()
        return twin

    def _by_part(self, points: list[Point]) -> list[tuple[int, list[Point]]]:
        """Group sorted points by the part that they belong to; those behind all others belong to the last one."""
        lasts, shift = self._lasts, self._shift
        groups: list[tuple[int, list[Point]]] = []
        most = len(lasts) - 1
        if most < 0:
            return groups
        for point in points:
            index = min(bisect_left(lasts, point[0] >> shift), most)
            if groups and groups[-1][0] == index:
                groups[-1][1].append(point)
            else:
                groups.append((index, [point]))
        return groups

    def _replace(self, index: int, part: _Part) -> None:
        hashes = part[0]
        if 0 < len(hashes) <= 2 * _USUAL:
            self._parts[index] = part
            self._lasts[index] = hashes[-1] >> self._shift
        else:
            parts = self._cut(part)
            self._parts[index : index + 1] = parts
            self._lasts[index : index + 1] = [hashes[-1] >> self._shift for hashes, _ in parts]

    def _cut(self, points: _Part) -> list[_Part]:
        """Cut points between slots into parts of the usual length, or longer ones where a slot is crowded."""
        hashes, names = points
        parts: list[_Part] = []
        start = 0
        while start < len(hashes):
            stop = start + _USUAL
            while stop < len(hashes) and hashes[stop] >> self._shift == hashes[stop - 1] >> self._shift:
                stop += 1
            parts.append((hashes[start:stop], names[start:stop]))
            start = stop
        return parts

    # questions

    def owner_at(self, slot: int) -> str | None:
        """Return the owner of a slot; None if there are no points."""
        if not self._parts:
            return None
        hashes, names, place = self._ahead(slot)
        if self._exact and hashes[place] >> self._shift == slot:
            place = bisect_left(hashes, slot + 1 << self._shift) - 1
        return names[place]

    def stop_at(self, slot: int) -> int | None:
        """Return where the next slot begins that may have another owner; None if no point is ahead."""
        if not self._parts or slot > self._lasts[-1]:
            return None
        hashes, _, place = self._ahead(slot)
        found = hashes[place] >> self._shift
        return found if self._exact and found > slot else found + 1

    def run_at(self, slot: int, size: int) -> tuple[int, int]:
        """Return the longest stretch with one owner around a slot, of so many slots in all."""
        owner = self.owner_at(slot)
        stop = self.stop_at(slot)
        while stop is not None and stop < size and self.owner_at(stop) == owner:
            stop = self.stop_at(stop)
        start = self._start_at(slot)
        while start and self.owner_at(start - 1) == owner:
            start = self._start_at(start - 1)
        return start, size if stop is None else stop

    def stretches(self, points: Iterable[Point], size: int) -> Iterator[tuple[int, int]]:
        """Yield the stretches of slots, each of one owner, whose owner some of the points have a say in, in order.

        Args:
            points: Points of these; no others.
            size: The number of slots in all.
        """
        slots = sorted({point[0] >> self._shift for point in points})
        for slot in slots:
            start = self._stop_before(slot)
            if self._exact and start < slot:
                yield start, slot
                start = slot
            yield start, slot + 1
        if slots and slots[0] == self._parts[0][0][0] >> self._shift and self._lasts[-1] + 1 < size:
            yield self._lasts[-1] + 1, size  # beyond the last point the circle begins again

    def runs(self, size: int) -> tuple[list[int], list[str | None]]:
        """Return all stops and owners of runs in slot order; neighbours may have one owner. O(p)."""
        shift, exact = self._shift, self._exact
        stops: list[int] = []
        owners: list[str | None] = []
        last = -1
        for point, name in self:
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
        if last != size - 1:
            stops.append(size)
            owners.append(self.owner_at(size - 1))
        return stops, owners

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return zip(self._hashes(), self._names(), strict=True)

    def __len__(self) -> int:
        return self._size

    def check_invariants(self) -> None:
        """Raise `InvariantError` if parts, their last slots and the number of points do not fit together. O(p)."""
        hashes = list(self._hashes())
        require(hashes == sorted(hashes), "points are in order")
        require(len(hashes) == len(list(self._names())) == self._size, "points are counted")
        require(all(hashes for hashes, _ in self._parts), "no part is empty")
        lasts = [hashes[-1] >> self._shift for hashes, _ in self._parts]
        require(self._lasts == lasts, "parts are found by their last slot")
        firsts = [hashes[0] >> self._shift for hashes, _ in self._parts]
        require(all(a < b for a, b in zip(lasts, firsts[1:], strict=False)), "all points of a slot lie in one part")

    def _hashes(self) -> Iterator[int]:
        return chain.from_iterable(hashes for hashes, _ in self._parts)

    def _names(self) -> Iterator[str]:
        return chain.from_iterable(names for _, names in self._parts)

    def _ahead(self, slot: int) -> tuple["array[int]", list[str], int]:
        """Find the first point of a slot, or the first one behind it; beyond the last the circle begins again."""
        index = bisect_left(self._lasts, slot)
        if index == len(self._lasts):
            return *self._parts[0], 0
        hashes, names = self._parts[index]
        return hashes, names, bisect_left(hashes, slot << self._shift)

    def _start_at(self, slot: int) -> int:
        """Return where a stretch around a slot begins that has one owner; the stretch before it may have the same."""
        if self._exact and self.stop_at(slot) == slot + 1:
            return slot
        return self._stop_before(slot)

    def _stop_before(self, slot: int) -> int:
        """Return one past the last slot with a point before this one; 0 if there is none."""
        index = bisect_left(self._lasts, slot)
        if index < len(self._parts):
            hashes, _ = self._parts[index]
            place = bisect_left(hashes, slot << self._shift)
            if place:
                return (hashes[place - 1] >> self._shift) + 1
        return self._lasts[index - 1] + 1 if index else 0


def _part_of(points: list[Point]) -> _Part:
    return array("Q", [point for point, _, _ in points]), [name for _, _, name in points]


def _merged(part: _Part, more: list[Point], rank_of: RankOf) -> _Part:
    if len(more) > _USUAL:
        here = ((point, rank_of(name), name) for point, name in zip(*part, strict=True))
        return _part_of(sorted([*here, *more]))
    hashes, names = part[0][:], part[1].copy()
    for point, rank, name in more:  # mostly one: quicker than a sort
        place = bisect_right(hashes, point)  # a newcomer stands behind its equals where ranks count
        while place and hashes[place - 1] == point and (rank, name) < (rank_of(names[place - 1]), names[place - 1]):
            place -= 1
        hashes.insert(place, point)
        names.insert(place, name)
    return hashes, names


def _without(part: _Part, doomed: list[Point]) -> _Part:
    if len(doomed) > _USUAL:
        return _without_many(part, doomed)
    hashes, names = part[0][:], part[1].copy()
    for point, _, name in doomed:
        place = names.index(name, bisect_left(hashes, point))
        del hashes[place], names[place]
    return hashes, names


def _without_many(part: _Part, doomed: list[Point]) -> _Part:
    left = Counter((point, name) for point, _, name in doomed)  # two virtual nodes of one consumer may be one point
    hashes: array[int] = array("Q")
    names: list[str] = []
    for point, name in zip(*part, strict=True):
        if left[point, name]:
            left[point, name] -= 1
        else:
            hashes.append(point)
            names.append(name)
    return hashes, names
