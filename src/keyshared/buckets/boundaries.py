"""Bucket boundaries from key statistics: equal widths are unequal loads when a few keys make most of the traffic.

Three goals, each kept while the next is pursued:

1. The heaviest bucket is as light as contiguous buckets allow.
2. Slots heavier than the mean load of a bucket get a bucket of their own: the heaviest first, each unless that would
   break goal 1 or those before it.
3. The heaviest of the other buckets is as light as can be, and what is left is cut evenly.

Everything is exact: fractions are brought to one denominator. A *load* is what the histogram counts: messages, bytes,
milliseconds of work. The lightest possible maximum is found by bisection over the answer; filling ``n`` buckets
greedily, by binary searches over the prefix sums, tells whether a maximum suffices.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from math import lcm
from typing import Final, NamedTuple, TypeAlias

from keyshared._checks import check_int, check_kind, check_number, check_several
from keyshared.buckets.layout import HASH_STOP, BucketLayout
from keyshared.errors import ArgumentError
from keyshared.placement.range_map import RangeMap

__all__ = [
    "Histogram",
    "HotSlot",
    "SlotLoad",
    "balanced_boundaries",
    "bucket_loads",
    "hot_slots",
    "imbalance",
    "owner_loads",
]

SlotLoad: TypeAlias = int | Fraction
"""A load: not negative, exact."""

Histogram: TypeAlias = Mapping[int, SlotLoad] | Sequence[SlotLoad]
"""Load by bucket hash: a mapping that may leave out slots without load, or all 65,536 of them in order."""


class HotSlot(NamedTuple):
    """A slot that carries more than the mean load of a bucket: its hash, its load, and its share of the total.

    With any boundaries its bucket is heavier than the mean, and the keys in it cannot be told apart by their hash.
    Only a consumer of more capacity helps, or a finer key.
    """

    slot: int
    load: SlotLoad
    share: Fraction


class _Region(NamedTuple):
    """Atoms ``start`` up to ``stop``, to be cut into buckets."""

    start: int
    stop: int


_LOAD_TYPES: Final = frozenset({int, Fraction})


def balanced_boundaries(histogram: Histogram, n: int) -> BucketLayout:
    """Place the boundaries of ``n`` buckets so that their loads are even and hot slots stand alone.

    Hashes 0 and 1 count as one slot: they are always in one bucket. Boundaries between two loaded slots stand in the
    middle between them, so that keys not seen yet are shared; around a slot that stands alone they stand close. What is
    left when every loaded slot stands alone halves the widest buckets.

    Args:
        histogram: The load of each bucket hash, counted over the traffic that is to be spread.
        n: How many buckets, from 1 to 32,768.

    Returns:
        The layout; that of `BucketLayout.equal_width` if there is no load at all. The same histogram always gives the
        same layout.

    Complexity:
        O(s log s + n log s log W + h n log s), s loaded slots, h of them hot, W the total in units; well below a second
        for 65,536 slots and 1024 buckets.

    Source:
        The review of PIP-486 asked for boundaries from key statistics; the published policy is equal widths.

    Example:
        >>> balanced_boundaries({10: 1, 20: 1, 30: 96, 40: 1, 50: 1}, 3).splits
        (30, 31)
        >>> bucket_loads({10: 1, 20: 1, 30: 96, 40: 1, 50: 1}, BucketLayout.equal_width(3))
        (100, 0, 0)
    """
    equal = BucketLayout.equal_width(n)
    slots, loads = _atoms(histogram)
    if not slots:
        return equal
    cutter = _Cutter(loads)
    alone = _stand_alone(cutter, n)
    places = _places(slots, _cut_all(cutter, alone, n), alone)
    return BucketLayout.from_splits(_fill_up(places, n))


def bucket_loads(histogram: Histogram, layout: BucketLayout) -> tuple[SlotLoad, ...]:
    """Add up the exact load of each bucket. O(s log n), s slots given and n buckets.

    Example:
        >>> bucket_loads({1: 5, 40_000: 7}, BucketLayout.equal_width(2))
        (5, 7)
    """
    check_kind("layout", layout, BucketLayout)
    loads: list[SlotLoad] = [0] * len(layout)
    for slot, load in _checked(histogram):
        loads[layout.bucket_of(slot)] += load
    return tuple(loads)


def owner_loads(histogram: Histogram, ranges: RangeMap) -> dict[str | None, SlotLoad]:
    """Add up the load of each consumer of a placement over 65,536 slots, by the same hash as the histogram.

    Exact loads by owner in the order of `RangeMap.owners`, then that of the holes under None, if there is any. O(s log
    r), s slots given and r runs.

    Example:
        >>> from keyshared.buckets import BucketPlacement
        >>> placement = BucketPlacement(BucketLayout.equal_width(2), ["a", "b"])
        >>> owner_loads({1: 5, 40_000: 7}, placement.ranges)
        {'a': 5, 'b': 7}
    """
    check_ranges(ranges)
    loads: dict[str | None, SlotLoad] = dict.fromkeys(ranges.owners, 0)
    holes: SlotLoad = 0
    for slot, load in _checked(histogram):
        owner = ranges.owner(slot)
        if owner is None:
            holes += load
        else:
            loads[owner] += load
    return loads | {None: holes} if holes else loads


def imbalance(loads: Iterable[SlotLoad]) -> Fraction:
    """Divide the heaviest load by the mean, exactly: 1 is perfect (or no load at all), 2 carries twice its share.

    Example:
        >>> imbalance((100, 0, 0))
        Fraction(3, 1)
    """
    given = tuple(check_several("loads", loads, "loads"))
    if not given:
        raise ArgumentError("loads", given, "name at least one bucket or consumer")
    exact = [Fraction(check_number("loads", load)) for load in given]
    total = sum(exact)
    return max(exact) * len(exact) / total if total else Fraction(1)


def hot_slots(histogram: Histogram, n: int) -> tuple[HotSlot, ...]:
    """Find the slots that alone exceed the mean load of ``n`` buckets (or consumers); no boundary separates their keys.

    The heaviest first, then the lower one; fewer than ``n``. O(s + h log h), s slots given and h of them hot.

    Example:
        >>> hot_slots({10: 1, 30: 96, 50: 3}, 4)
        (HotSlot(slot=30, load=96, share=Fraction(24, 25)),)
    """
    BucketLayout.equal_width(n)  # checks it
    given = _merged(histogram)
    total = sum(given.values())
    hot = [HotSlot(slot, load, Fraction(load) / total) for slot, load in given.items() if load * n > total]
    return tuple(sorted(hot, key=lambda one: (-one.load, one.slot)))


class _Cutter:
    """Cuts runs of atoms (loaded slots) into buckets; loads are whole numbers above 0.

    Attributes:
        loads: The load of each atom.
        before: The load of all atoms before each one, and at last that of all.
    """

    __slots__ = ("before", "loads")

    def __init__(self, loads: Sequence[int]) -> None:
        self.loads = loads
        self.before = list(accumulate(loads, initial=0))

    def load(self, region: _Region) -> int:
        return self.before[region.stop] - self.before[region.start]

    def count(self, region: _Region, cap: int, most: int) -> int:
        """Count the buckets of at most ``cap`` that a region needs, each filled as far as it goes, up to ``most``.

        No atom is heavier than ``cap``.
        """
        before, (start, stop) = self.before, region
        buckets = 0
        while start < stop and buckets <= most:
            start = bisect_right(before, before[start] + cap, start + 1, stop + 1) - 1
            buckets += 1
        return buckets

    def least_cap(self, regions: Sequence[_Region], n: int) -> int:
        """Find the lightest maximum with which ``n`` buckets do for all regions, of which there are at most ``n``."""
        total = sum(map(self.load, regions))
        low = max(-(-total // n), *(max(self.loads[start:stop]) for start, stop in regions))
        high = max(map(self.load, regions))
        while low < high:
            cap = (low + high) // 2
            if self._suffices(regions, cap, n):
                high = cap
            else:
                low = cap + 1
        return low

    def _suffices(self, regions: Sequence[_Region], cap: int, n: int) -> bool:
        left = n
        for region in regions:
            left -= self.count(region, cap, left)
            if left < 0:
                return False
        return True

    def cut(self, region: _Region, n: int) -> list[int]:
        """Cut a region into ``n`` buckets, at most as many as it has atoms; gives the first atom of each.

        No bucket is heavier than it must be; within that, each is as near as can be to an even part of what is left.
        """
        before, (start, stop) = self.before, region
        cap = self.least_cap([region], n)
        earliest = self._earliest(region, cap, n)
        starts = [start]
        for bucket in range(1, n):
            parts = n - bucket + 1
            even = before[start] * (parts - 1) + before[stop]  # times the parts: where this bucket should end
            latest = min(bisect_right(before, before[start] + cap, start + 1, stop + 1) - 1, stop - parts + 1)
            low = max(earliest[bucket], start + 1)
            start = bisect_left(before, -(-even // parts), low, latest)
            if start > low and even - before[start - 1] * parts <= before[start] * parts - even:
                start -= 1
            starts.append(start)
        return starts

    def _earliest(self, region: _Region, cap: int, n: int) -> list[int]:
        """Return the earliest start of each bucket that leaves room for the load from it on."""
        before, (start, stop) = self.before, region
        earliest = [start] * n
        for bucket in range(n - 1, 0, -1):
            stop = max(start, bisect_left(before, before[stop] - cap, start, stop))
            earliest[bucket] = stop
        return earliest


def _stand_alone(cutter: _Cutter, n: int) -> dict[int, None]:
    """Choose the hot atoms that get a bucket of their own without making the heaviest bucket heavier."""
    loads, total = cutter.loads, cutter.before[-1]
    everything = _Region(0, len(loads))
    cap = cutter.least_cap([everything], n)
    needed = cutter.count(everything, cap, n)
    starts = [0]  # of the regions between those that stand alone
    regions = {0: (everything, needed)}
    alone: dict[int, None] = {}
    hot = (atom for atom, load in enumerate(loads) if load * n > total)
    for atom in sorted(hot, key=lambda atom: (-loads[atom], atom)):
        at = starts[bisect_right(starts, atom) - 1]
        region, count = regions[at]
        left, right = _Region(at, atom), _Region(atom + 1, region.stop)
        counts = cutter.count(left, cap, n), cutter.count(right, cap, n)
        if needed - count + 1 + sum(counts) > n:
            continue
        needed += 1 + sum(counts) - count
        alone[atom] = None
        regions[at] = left, counts[0]
        regions[right.start] = right, counts[1]
        insort(starts, right.start)
    return alone


def _cut_all(cutter: _Cutter, alone: Collection[int], n: int) -> list[int]:
    """Return the first atom of every bucket: those that stand alone, and the others cut as evenly as can be."""
    edges = [-1, *sorted(alone), len(cutter.loads)]
    regions = [_Region(left + 1, right) for left, right in pairwise(edges) if left + 1 < right]
    starts = list(alone)
    if regions:
        for region, count in zip(regions, _shares(cutter, regions, n - len(alone)), strict=True):
            starts += cutter.cut(region, count)
    return sorted(starts)


def _shares(cutter: _Cutter, regions: Sequence[_Region], n: int) -> list[int]:
    """Return the buckets of each region: what the lightest maximum takes, and more where the mean is highest."""
    cap = cutter.least_cap(regions, n)
    counts = [cutter.count(region, cap, n) for region in regions]
    waiting = [
        (Fraction(-cutter.load(region), count), index)
        for index, (region, count) in enumerate(zip(regions, counts, strict=True))
        if count < region.stop - region.start
    ]
    heapify(waiting)
    spare = n - sum(counts)
    while spare and waiting:
        _, index = heappop(waiting)
        counts[index] += 1
        spare -= 1
        region = regions[index]
        if counts[index] < region.stop - region.start:
            heappush(waiting, (Fraction(-cutter.load(region), counts[index]), index))
    return counts


def _places(slots: Sequence[int], starts: Sequence[int], alone: Collection[int]) -> list[int]:
    """Return the slot where each bucket but the first begins: close to what stands alone, else halfway."""
    places = []
    for atom in starts[1:]:
        below, above = slots[atom - 1], slots[atom]
        close_below, close_above = atom - 1 in alone, atom in alone
        if close_below == close_above:
            places.append((below + above + 1) // 2)
        else:
            places.append(below + 1 if close_below else above)
    return places


def _fill_up(splits: list[int], n: int) -> list[int]:
    """Halve the widest buckets until there are ``n``: only if no more buckets are needed for what is known."""
    edges = [0, *splits, HASH_STOP]
    widths = [(start - stop, start) for start, stop in pairwise(edges)]
    heapify(widths)
    while len(widths) < n:
        width, start = heappop(widths)
        half = (1 - width) // 2  # the bigger half stays, so that bucket 0 keeps 0 and 1
        heappush(widths, (-half, start))
        heappush(widths, (width + half, start + half))
    return sorted(start for _, start in widths)[1:]


def _atoms(histogram: Histogram) -> tuple[list[int], list[int]]:
    """Return the slots that carry load, in order, and their loads as whole numbers; hash 1 stands for 0 and 1."""
    given = _merged(histogram)
    common = lcm(*(load.denominator for load in given.values()))
    slots = sorted(given)
    return slots, [int(given[slot] * common) for slot in slots]


def _merged(histogram: Histogram) -> dict[int, SlotLoad]:
    given = dict(_checked(histogram))
    if 0 in given:
        given[1] = given.pop(0) + given.get(1, 0)
    return given


def _checked(histogram: Histogram) -> list[tuple[int, SlotLoad]]:
    """Return what carries load, and refuse what is no histogram."""
    given = _pairs(histogram)
    for slot, load in given:
        check_int("slot", slot, 0, most=HASH_STOP - 1)
        if type(load) not in _LOAD_TYPES or load < 0:
            raise ArgumentError("load", load, f"be an int or a Fraction of at least 0 (slot {slot})")
    return [pair for pair in given if pair[1]]


def _pairs(histogram: object) -> list[tuple[int, SlotLoad]]:
    if isinstance(histogram, Mapping):
        return list(histogram.items())
    if isinstance(histogram, Sequence) and len(histogram) == HASH_STOP:
        return list(enumerate(histogram))
    shown = type(histogram).__name__  # not the thing itself: it may be long
    raise ArgumentError("histogram", shown, f"be a mapping from slots to loads, or a sequence of {HASH_STOP} loads")


def check_ranges(ranges: object) -> RangeMap:
    """Return ranges over the bucket hashes, or raise ArgumentError."""
    if not isinstance(ranges, RangeMap) or 1 << ranges.slot_bits != HASH_STOP:
        raise ArgumentError("ranges", ranges, f"be a RangeMap over {HASH_STOP} slots")
    return ranges
