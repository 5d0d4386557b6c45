"""Segments of a scalable topic: which segment covers which part of the ring of segment hashes, and how they descend.

A topic is cut into segments, each a log of its own over a half-open range of segment hashes. A segment never changes: a
split, a merge or a rebucketing seals it and hands its range to successors. So the segments form a graph from parents to
children; those without children are *active*, and their ranges tile the ring. A segment is sealed exactly if it has
children; no separate mark is kept.

Order of a key survives a change because ordered readers finish the parents before they begin the children
(`SegmentMap.ancestors`, and `keyshared.segments.rollover`, which keeps track of it).
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from keyshared._checks import check_int, check_kind, check_several, checked_kinds, checked_state
from keyshared.buckets.layout import HASH_STOP, BucketLayout
from keyshared.errors import ArgumentError, SegmentSealedError, SnapshotError, UnknownSegmentError
from keyshared.placement.range_map import HashRange
from keyshared.segments.segment import Segment, plain_segment, segment_in

__all__ = [
    "DEFAULT_BUCKET_BUDGET",
    "DEFAULT_MAX_BUCKETS",
    "Location",
    "SegmentMap",
    "SegmentStats",
    "buckets_for_budget",
]

DEFAULT_BUCKET_BUDGET: Final = 4  # Pulsar's scalableTopicEntryBucketBudget
DEFAULT_MAX_BUCKETS: Final = 1_024  # Pulsar's scalableTopicEntryBucketMaxPerSegment

_FORMAT_VERSION: Final = 1
_NARROWEST_SPLIT: Final = 2


def buckets_for_budget(budget: int, segments: int) -> int:
    """Return the buckets of each segment, at least 1, when so many segments share a topic's budget.

    Source:
        PIP-486: ``max(1, budget // segments)``.

    Example:
        >>> [buckets_for_budget(4, segments) for segments in (1, 2, 3, 8)]
        [4, 2, 1, 1]
    """
    return max(1, check_int("budget", budget, 1) // check_int("segments", segments, 1))


class Location(NamedTuple):
    """The segment of a message by id, and its bucket by the layout of that segment."""

    segment: int
    bucket: int


class SegmentStats(NamedTuple):
    """The figures of a map.

    Attributes:
        active: Active segments.
        sealed: Sealed segments that are not pruned.
        buckets: Buckets of all active segments: so many ordered consumers can work at once.
        rollovers: Rebucketings since the beginning.
        epoch: Changes since the beginning.
    """

    active: int
    sealed: int
    buckets: int
    rollovers: int
    epoch: int


class SegmentMap:
    """The segments of a topic at one epoch: an immutable value. Every change returns another map, one epoch later.

    A segment is named by its id; one that is not there is an `UnknownSegmentError`, and a change of a sealed one a
    `SegmentSealedError`.

    Args:
        segments: All of them, in any order. Parents that were pruned may be missing.
        epoch: Changes so far; None for the greatest epoch of the segments.
        next_id: Id of the next segment; None for one above the greatest.
        rollovers: Rebucketings so far.

    Raises:
        ArgumentError: An id is taken twice, or the active segments do not tile the ring.

    Complexity:
        O(n log n), n segments; so are the changes. They happen a few times an hour.

    Source:
        PIP-468 (the graph), PIP-486 (the layouts); differs: sealed is derived, and split points are free.

    Example:
        >>> segments = SegmentMap.equal_width(2)
        >>> segments.locate(40_000, 9)
        Location(segment=1, bucket=0)
        >>> halves = segments.split(1)
        >>> halves.locate(40_000, 9), halves.active_ids, halves.successors(1)
        (Location(segment=2, bucket=0), (0, 2, 3), (2, 3))
    """

    __slots__ = ("_active", "_children", "_epoch", "_next_id", "_rollovers", "_segments", "_stops")

    _segments: dict[int, Segment]
    _children: dict[int, tuple[int, ...]]

    def __init__(
        self,
        segments: Iterable[Segment],
        *,
        epoch: int | None = None,
        next_id: int | None = None,
        rollovers: int = 0,
    ) -> None:
        given = list(checked_kinds("segment", check_several("segments", segments, "segments"), Segment))
        self._segments = {segment.id: segment for segment in sorted(given, key=lambda s: s.id)}
        if not given or len(self._segments) < len(given):
            raise ArgumentError("segments", given, "be at least one, each with an id of its own")
        self._children = _children_of(given)
        latest = max(segment.epoch for segment in given)
        self._epoch = latest if epoch is None else check_int("epoch", epoch, latest)
        above = max(self._segments) + 1
        self._next_id = above if next_id is None else check_int("next_id", next_id, above)
        self._rollovers = check_int("rollovers", rollovers, 0)
        active = (segment for segment in given if segment.id not in self._children)
        self._active = tuple(sorted(active, key=lambda s: s.range))
        self._stops = tuple(segment.range.stop for segment in self._active)
        end = 0
        for segment in self._active:
            if segment.range.start != end:
                raise ArgumentError("start", segment.range.start, f"be {end}, where the active segment before it ends")
            end = segment.range.stop
        if end != HASH_STOP:
            raise ArgumentError("last stop", end, f"be {HASH_STOP}: the active segments cover the whole ring")

    @classmethod
    def equal_width(cls, n: int = 1, *, budget: int = DEFAULT_BUCKET_BUDGET) -> "SegmentMap":
        """Build the first map of a topic: 1 to 65,536 segments of one width that share a budget of buckets.

        The ids grow with the ranges.

        Example:
            >>> [(s.range.start, len(s.layout)) for s in SegmentMap.equal_width(3, budget=6).active]
            [(0, 2), (21845, 2), (43690, 2)]
        """
        check_int("n", n, 1, most=HASH_STOP)
        layout = BucketLayout.equal_width(buckets_for_budget(budget, n))
        starts = [i * HASH_STOP // n for i in range(n + 1)]
        return cls(Segment(i, HashRange(starts[i], starts[i + 1]), layout) for i in range(n))

    def split(self, segment: int, *, at: int | None = None, layout: BucketLayout | None = None) -> "SegmentMap":
        """Seal a segment and give its range to two children.

        Args:
            segment: Id of an active segment.
            at: First hash of the upper child; None for the middle (the lower child is larger if the width is odd).
            layout: Buckets of both children; None for equal ones, half as many as the parent has, and at least one.

        Raises:
            ArgumentError: ``at`` leaves a child nothing.

        Source:
            PIP-468: ``[start, mid]`` and ``[mid + 1, end]``, inclusive; PIP-486 halves the buckets.

        Example:
            >>> [(s.range.start, len(s.layout)) for s in SegmentMap.equal_width().split(0).active]
            [(0, 2), (32768, 2)]
        """
        parent = self._open(segment)
        start, stop = parent.range.start, parent.range.stop
        if stop - start < _NARROWEST_SPLIT:
            raise ArgumentError("segment", segment, "cover at least two hashes to be split")
        middle = (start + stop + 1) // 2 if at is None else at
        if type(middle) is not int or not start < middle < stop:
            raise ArgumentError("at", at, f"be an int greater than {start} and less than {stop}, inside the segment")
        buckets = BucketLayout.equal_width(max(1, len(parent.layout) // 2)) if layout is None else layout
        return self._with([parent], [HashRange(start, middle), HashRange(middle, stop)], buckets)

    def merge(
        self,
        first: int,
        second: int,
        *,
        layout: BucketLayout | None = None,
        max_buckets: int = DEFAULT_MAX_BUCKETS,
    ) -> "SegmentMap":
        """Seal two neighbours and give their ranges to one child.

        Args:
            first: Id of an active segment.
            second: Id of another one, whose range follows or precedes.
            layout: Buckets of the child; None for equal ones, as many as both parents have together.
            max_buckets: The most buckets without a given layout.

        Raises:
            ArgumentError: They are no neighbours (the ring has a seam at 0).

        Example:
            >>> merged = SegmentMap.equal_width(2).merge(0, 1)
            >>> merged.active_ids, len(merged.segment(2).layout)
            ((2,), 4)
        """
        lower, upper = sorted((self._open(first), self._open(second)), key=lambda s: s.range)
        if lower.range.stop != upper.range.start:
            raise ArgumentError("second", second, f"be a neighbour of segment {first}, which covers {lower.range}")
        most = check_int("max_buckets", max_buckets, 1)
        total = min(len(lower.layout) + len(upper.layout), most)
        buckets = BucketLayout.equal_width(total) if layout is None else layout
        return self._with([lower, upper], [HashRange(lower.range.start, upper.range.stop)], buckets)

    def rebucket(self, segment: int, layout: BucketLayout) -> "SegmentMap":
        """Seal a segment and give its range to one successor with other buckets.

        Old entries keep the old buckets, so more of them help new data only.

        Raises:
            ArgumentError: The segment has that layout: every ordered reader would drain for nothing.

        Source:
            PIP-486, rebucket rollover.

        Example:
            >>> rolled = SegmentMap.equal_width().rebucket(0, BucketLayout.equal_width(8))
            >>> rolled.active_ids, rolled.ancestors(1), rolled.stats().rollovers
            ((1,), (0,), 1)
        """
        parent = self._open(segment)
        if layout == parent.layout:
            raise ArgumentError("layout", layout, f"differ from the one that segment {segment} has")
        return self._with([parent], [parent.range], layout, rollovers=1)

    def prune(self, segment: int) -> "SegmentMap":
        """Forget a sealed segment whose data is gone; whether all have read it, `keyshared.segments.removable` says.

        Raises:
            ArgumentError: It is active, or a parent of it is still there.
        """
        old = self.segment(segment)
        if self.is_active(segment):
            raise ArgumentError("segment", segment, "be sealed: an active one is the only one that covers its range")
        if kept := self.predecessors(segment):
            raise ArgumentError("segment", segment, f"be the oldest of its line; prune {kept} first")
        rest = (s for s in self._segments.values() if s is not old)
        return SegmentMap(rest, epoch=self._epoch + 1, next_id=self._next_id, rollovers=self._rollovers)

    @property
    def next_id(self) -> int:
        """The id of the next segment: every id below was given, to a segment that is here or was pruned."""
        return self._next_id

    @property
    def epoch(self) -> int:
        """The number of changes of the topic. Of two maps of a topic the one with the greater epoch is newer."""
        return self._epoch

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every segment that is not pruned, in the order of the ids: parents before children."""
        return tuple(self._segments.values())

    @property
    def active(self) -> tuple[Segment, ...]:
        """The active segments in the order of their ranges."""
        return self._active

    @property
    def active_ids(self) -> tuple[int, ...]:
        """Their ids, in the order of their ranges."""
        return tuple(segment.id for segment in self._active)

    def segment(self, segment: int) -> Segment:
        """Return a segment by its id."""
        found = self._segments.get(segment) if type(segment) is int else None
        if found is None:
            raise UnknownSegmentError(segment, self._epoch)
        return found

    def is_active(self, segment: int) -> bool:
        """Return whether a segment takes new messages."""
        return self.segment(segment).id not in self._children

    def predecessors(self, segment: int) -> tuple[int, ...]:
        """Return the parents of a segment that are not pruned, lowest id first."""
        return tuple(parent for parent in self.segment(segment).parents if parent in self._segments)

    def successors(self, segment: int) -> tuple[int, ...]:
        """Return the children of a segment in the order of their ranges; none if it is active."""
        return self._children.get(self.segment(segment).id, ())

    def ancestors(self, segment: int) -> tuple[int, ...]:
        """Return the segments that an ordered reader has to drain before it may read a segment.

        Its parents, their parents and so on, as far as they are not pruned; parents before children.

        Example:
            >>> SegmentMap.equal_width().split(0).merge(1, 2).ancestors(3)
            (0, 1, 2)
        """
        found: set[int] = set()
        ahead = list(self.predecessors(segment))
        while ahead:
            one = ahead.pop()
            if one not in found:
                found.add(one)
                ahead += self.predecessors(one)
        return tuple(sorted(found))

    def readable(self, drained: Collection[int]) -> tuple[int, ...]:
        """Return the segments that an ordered reader may read, lowest id first: not drained, all ancestors drained.

        ``drained`` may name pruned segments. O(n), n segments.
        """
        done = set(check_several("drained", drained, "ids of segments"))
        open_line: set[int] = set()  # not drained, or below something that is not
        readable = []
        for one in self._segments.values():  # by id, so parents come first
            waits = not open_line.isdisjoint(one.parents)
            if waits or one.id not in done:
                open_line.add(one.id)
            if not waits and one.id not in done:
                readable.append(one.id)
        return tuple(readable)

    def segment_at(self, segment_hash: int) -> Segment:
        """Find the active segment of a key, by the high half of its hash in ``range(65536)``. O(log n).

        A producer that finds its segment sealed looks in the newer map: that is the whole redirection.
        """
        check_int("segment hash", segment_hash, 0, most=HASH_STOP - 1)
        return self._active[bisect_right(self._stops, segment_hash)]

    def locate(self, segment_hash: int, bucket_hash: int) -> Location:
        """Route a new message by both halves of its key's hash (see `keyshared.buckets.hash_halves`).

        Without a key ``bucket_hash`` is 0. O(log n + log b), n active segments and b buckets.
        """
        found = self.segment_at(segment_hash)
        return Location(found.id, found.layout.bucket_of(bucket_hash))

    def supersedes(self, older: "SegmentMap") -> bool:
        """Return whether this map is newer than another one of its topic.

        Raises:
            ArgumentError: A segment of both is not the same: they are of two topics.
        """
        check_kind("segments", older, SegmentMap)
        for one in older.segments:
            if self._segments.get(one.id, one) != one:
                raise ArgumentError("segments", self, f"be of one topic: segment {one.id} is another one there")
        return self._epoch > older.epoch

    def stats(self) -> SegmentStats:
        """Return the figures of this map."""
        buckets = sum(len(segment.layout) for segment in self._active)
        sealed = len(self._segments) - len(self._active)
        return SegmentStats(len(self._active), sealed, buckets, self._rollovers, self._epoch)

    def to_json(self) -> dict[str, object]:
        """Return the map as plain data that JSON can hold; `from_json` reads it."""
        return {
            "version": _FORMAT_VERSION,
            "epoch": self._epoch,
            "next_id": self._next_id,
            "rollovers": self._rollovers,
            "segments": [plain_segment(segment) for segment in self._segments.values()],
        }

    @classmethod
    def from_json(cls, data: object) -> "SegmentMap":
        """Restore a map from what `to_json` returned; anything else raises SnapshotError.

        Example:
            >>> segments = SegmentMap.equal_width(3).split(1)
            >>> SegmentMap.from_json(segments.to_json()) == segments
            True
        """
        state = checked_state("segments", data, _FORMAT_VERSION, "epoch", "next_id", "rollovers", "segments")
        if type(state["segments"]) is not list:
            raise SnapshotError("segments", state["segments"], "be a list")
        try:
            segments = [segment_in(one) for one in state["segments"]]
            epoch, next_id = check_int("epoch", state["epoch"], 0), check_int("next_id", state["next_id"], 0)
            return cls(segments, epoch=epoch, next_id=next_id, rollovers=state["rollovers"])
        except ArgumentError as error:
            raise SnapshotError(*error.args) from error

    def _open(self, segment: int) -> Segment:
        found = self.segment(segment)
        if successors := self._children.get(found.id):
            raise SegmentSealedError(found.id, successors)
        return found

    def _with(
        self, parents: list[Segment], ranges: list[HashRange], layout: BucketLayout, *, rollovers: int = 0
    ) -> "SegmentMap":
        merges = max(parent.merges for parent in parents) + (len(parents) - 1)
        ids = tuple(sorted(parent.id for parent in parents))
        epoch = self._epoch + 1
        born = [Segment(self._next_id + i, each, layout, ids, epoch, merges) for i, each in enumerate(ranges)]
        return SegmentMap(
            [*self._segments.values(), *born],
            epoch=epoch,
            next_id=self._next_id + len(born),
            rollovers=self._rollovers + rollovers,
        )

    @property
    def _state(self) -> tuple[object, ...]:
        return self._epoch, self._next_id, self._rollovers, tuple(self._segments.values())

    def __eq__(self, other: object) -> bool:
        return self._state == other._state if isinstance(other, SegmentMap) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._state)

    def __repr__(self) -> str:
        return f"<SegmentMap of {len(self._active)} active segments of {len(self._segments)} at epoch {self._epoch}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, self._state


def _children_of(segments: Iterable[Segment]) -> dict[int, tuple[int, ...]]:
    """Return the children of each segment that has some, in the order of their ranges; pruned parents included."""
    children: dict[int, tuple[int, ...]] = {}
    for segment in sorted(segments, key=lambda s: s.range):
        for parent in segment.parents:
            children[parent] = (*children.get(parent, ()), segment.id)
    return children


def _unpickle(epoch: int, next_id: int, rollovers: int, segments: tuple[Segment, ...]) -> SegmentMap:
    return SegmentMap(segments, epoch=epoch, next_id=next_id, rollovers=rollovers)
