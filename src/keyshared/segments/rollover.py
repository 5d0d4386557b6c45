"""The life of segments as an ordered subscription sees it: which may be read, which are drained, which can go.

A split, a merge or a rebucketing seals segments and opens successors. The messages of a key before the change are in
the old segment, those after it in the new one, and buckets of the two need not be the same. So a reader that keeps the
order of keys reads a successor only when every segment before it is *drained*: read to its end, and all of it settled.

Drained is never recorded: it follows from the cursors of the buckets, and from the end that a reader came to.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, Self

from keyshared._checks import check_int, check_kind, check_several, checked_kinds, checked_state, require
from keyshared.buckets.layout import BucketLayout, Straddles
from keyshared.buckets.segment_cursors import SegmentCursors, read_segments, write_segments
from keyshared.cursor import DEFAULT_TOKEN_BYTES
from keyshared.cursor.token import LEAST_TOKEN_BYTES
from keyshared.errors import ArgumentError, SegmentOrderError, SegmentSealedError, SnapshotError
from keyshared.segments.map import SegmentMap

__all__ = ["SegmentProgress", "SegmentState", "removable"]

_FORMAT_VERSION: Final = 1


class SegmentState(StrEnum):
    """The state of a segment for one subscription. It only ever goes down this list."""

    ACTIVE = "active"  # producers write to it
    SEALED = "sealed"  # nothing comes any more; something of it is not read, or not settled
    DRAINED = "drained"  # read to its end, and all of it is settled


class SegmentProgress:
    """The progress of one ordered subscription through the segments of a topic.

    Calls report a newer map, an entry that was read, one that is settled, the end of a segment; they return the
    segments that may be read from now on, lowest id first. A segment that is not there is an `UnknownSegmentError`. Not
    thread-safe.

    Args:
        segments: The map to begin with.
        drained: Segments drained before a restart; pruned segments may be among them, and active ones, whose end was
            seen before the map that seals them.

    Raises:
        ArgumentError: ``drained`` names a segment without its ancestors, or one that the map never had.

    Complexity:
        O(1) for an entry, but O(b) to settle one when the end of its segment was seen, and O(s) when a segment drains;
        b buckets, s segments. Memory O(outstanding + buckets of the segments that are not pruned).

    Source:
        PIP-468 (parents before children), PIP-486 (the buckets; checkpoints of segment and bucket).

    Example:
        >>> progress = SegmentProgress(SegmentMap.equal_width())
        >>> progress.offer(0, 7, 40_000, 40_100)  # offset 7, with its stamp
        (2,)
        >>> progress.update(SegmentMap.equal_width().split(0)), progress.reached_end(0), progress.waiting_for(1)
        ((), (), (0,))
        >>> progress.settle(0, 2, 7)
        (1, 2)
    """

    __slots__ = ("_cursors", "_ended", "_readable", "_segments")

    def __init__(self, segments: SegmentMap, *, drained: Iterable[int] = ()) -> None:
        check_kind("segments", segments, SegmentMap)
        known = {segment.id for segment in segments.segments}
        ended = known.intersection(_given("drained", drained, segments))
        for one in ended:
            if not ended.issuperset(segments.ancestors(one)):
                raise ArgumentError("drained", one, "be drained after all its ancestors")
        self._segments = segments
        self._ended = ended  # segments that were read to their end: drained if nothing of them is outstanding
        self._cursors: dict[int, SegmentCursors] = {}
        self._readable = set(self._now_readable())

    @classmethod
    def restore(cls, state: object, segments: SegmentMap) -> Self:
        """Go on after a restart. Outstanding entries are to be read and offered again, from `resume_offset`.

        The end of a segment is remembered only if the segment was drained; otherwise the reader sees it again. O(n +
        the size of the state), n segments.

        Args:
            state: What `snapshot` returned, perhaps after a trip through JSON.
            segments: A map, at least as new as the one of the snapshot. Segments that it has pruned are left out.

        Raises:
            SnapshotError: The state is truncated, of another version, or does not fit the map.

        Example:
            >>> segments = SegmentMap.equal_width()
            >>> progress = SegmentProgress(segments)
            >>> progress.offer(0, 7, 0, 0), progress.offer(0, 8, 0, 0), progress.settle(0, 0, 8)
            ((0,), (0,), ())
            >>> again = SegmentProgress.restore(progress.snapshot(), segments)
            >>> again.resume_offset(0, 0), again.offer(0, 7, 0, 0), again.offer(0, 8, 0, 0)
            (7, (0,), ())
        """
        data = checked_state("progress", state, _FORMAT_VERSION, "drained", "segments")
        try:
            progress = cls(segments, drained=data["drained"])
        except ArgumentError as error:
            check_kind("segments", segments, SegmentMap)
            raise SnapshotError(*error.args) from error
        cursors = read_segments(data["segments"])
        if any(one >= segments.next_id for one in cursors):
            raise SnapshotError("segments", list(cursors), "be those that the map has or had; is the map older?")
        known = {segment.id for segment in segments.segments}
        progress._cursors = {one: kept for one, kept in cursors.items() if one in known}
        return progress

    def update(self, segments: SegmentMap) -> tuple[int, ...]:
        """Take a newer map; one that is not newer is ignored. O(n), n segments."""
        check_kind("segments", segments, SegmentMap)
        if not segments.supersedes(self._segments):
            return ()
        self._segments = segments
        known = {segment.id for segment in segments.segments}
        self._ended &= known
        self._cursors = {one: cursors for one, cursors in self._cursors.items() if one in known}
        return self._newly_readable()

    def offer(self, segment: int, offset: int, hash_min: int, hash_max: int) -> tuple[int, ...]:
        """Record that an entry was read, by the stamp on it, and return its buckets.

        It belongs to the buckets of *its* segment, however many its successors have, and is outstanding in each until
        it is settled there. Mostly one; several if its bounds straddle them, and all if its stamp cannot be true: then
        open it, hand each bucket its part (see `BucketLayout.split`), and settle at once where there is none. After a
        restart only those where it was not settled before. An error changes nothing.

        Args:
            segment: Where it was read.
            offset: Its offset there; offsets of a segment grow strictly.
            hash_min: The lowest bucket hash of its messages, as stamped.
            hash_max: The highest.

        Raises:
            SegmentOrderError: Something before the segment is not drained.
            SegmentSealedError: The end of the segment was seen already.
            OffsetOrderError: The offset is not above the one before it.
        """
        layout = self._layout_to_read(segment)
        route = layout.route(hash_min, hash_max)
        if isinstance(route, int):
            buckets = range(route, route + 1)
        elif isinstance(route, Straddles):
            buckets = range(route.first, route.last + 1)
        else:
            buckets = range(len(layout))
        cursors = self._cursors.get(segment) or SegmentCursors()
        wanted = cursors.offer(buckets, offset)
        self._cursors[segment] = cursors
        return wanted

    def settle(self, segment: int, bucket: int, offset: int) -> tuple[int, ...]:
        """Settle an entry, or its part for one bucket; ignored if it is not outstanding, or of a pruned segment."""
        cursors = self._cursors.get(segment)
        if cursors is None:
            return ()
        self._layout(segment).range_of(bucket)  # raises
        settled = cursors.settle(bucket, offset)
        return self._newly_readable() if settled and self._is_drained(segment) else ()

    def reached_end(self, segment: int) -> tuple[int, ...]:
        """Record that the reader reached the end of a sealed segment: nothing follows what was offered.

        A broker may report the end before the newer map arrives; the successors are readable when both are there.
        Calling it again changes nothing.

        Raises:
            SegmentOrderError: Something before the segment is not drained.
        """
        if self.state(segment) is SegmentState.DRAINED:
            return ()
        if waits := self.waiting_for(segment):
            raise SegmentOrderError(segment, waits)
        self._ended.add(segment)
        return self._newly_readable() if self._is_drained(segment) else ()

    @property
    def segments(self) -> SegmentMap:
        """The newest map that was given."""
        return self._segments

    @property
    def readable(self) -> tuple[int, ...]:
        """Segments that may be read now and have not been read to their end, lowest id first."""
        return tuple(sorted(self._readable - self._ended))

    @property
    def drained(self) -> tuple[int, ...]:
        """Segments that are drained and not pruned, lowest id first; the constructor takes them after a restart."""
        return tuple(sorted(filter(self._is_drained, self._ended)))

    def state(self, segment: int) -> SegmentState:
        """Return the state of a segment. Drained implies that everything before it is drained, too."""
        active = self._segments.is_active(segment)
        if self._is_drained(segment):
            return SegmentState.DRAINED
        return SegmentState.ACTIVE if active and segment not in self._ended else SegmentState.SEALED

    def waiting_for(self, segment: int) -> tuple[int, ...]:
        """Return the segments that have to be drained before a segment may be read, lowest id first."""
        done = set(self.drained)
        return tuple(one for one in self._segments.ancestors(segment) if one not in done)

    def resume_offset(self, segment: int, bucket: int | None = None) -> int | None:
        """Return where a reader of a segment, or of one bucket of it, goes on after a restart.

        The lowest offset that is not settled, or one above the greatest of the segment; None if none of it was offered.
        A bucket in which nothing waits does not hold the segment back. What was settled before a restart and would come
        next is passed over.
        """
        layout = self._layout(segment)
        if bucket is not None:
            layout.range_of(bucket)  # raises
        cursors = self._cursors.get(segment)
        return None if cursors is None else cursors.resume_offset(bucket)

    def snapshot(self, max_token_bytes: int = DEFAULT_TOKEN_BYTES) -> dict[str, object]:
        """Return what has to survive a restart, as plain data that JSON can hold: a cursor for each segment and bucket.

        ``max_token_bytes`` is the longest text of one cursor, at least 37 bytes, into which any position fits; ranges
        that do not fit are delivered again after a restart. O(segments + buckets + outstanding).
        """
        check_int("max_token_bytes", max_token_bytes, LEAST_TOKEN_BYTES)
        done = list(self.drained)
        kept = {one: cursors for one, cursors in self._cursors.items() if one not in done}
        return {"version": _FORMAT_VERSION, "drained": done, "segments": write_segments(kept, max_token_bytes)}

    def check_invariants(self) -> None:
        """Check what must hold between any two calls; an InvariantError is a bug in this library."""
        require(self._readable == set(self._now_readable()), "what may be read follows from what is drained")
        done = set(self.drained)
        for one in self._ended | self._cursors.keys():
            require(done.issuperset(self._segments.ancestors(one)), f"{one} was touched after everything before it")
        for cursors in self._cursors.values():
            cursors.check_invariants()

    def _layout(self, segment: int) -> BucketLayout:
        return self._segments.segment(segment).layout

    def _layout_to_read(self, segment: int) -> BucketLayout:
        layout = self._layout(segment)
        if segment not in self._readable or segment in self._ended:
            if waits := self.waiting_for(segment):
                raise SegmentOrderError(segment, waits)
            raise SegmentSealedError(segment, self._segments.successors(segment))
        return layout

    def _is_drained(self, segment: int) -> bool:
        cursors = self._cursors.get(segment)
        return segment in self._ended and (cursors is None or not cursors.outstanding())

    def _now_readable(self) -> tuple[int, ...]:
        return self._segments.readable(self.drained)

    def _newly_readable(self) -> tuple[int, ...]:
        before, self._readable = self._readable, set(self._now_readable())
        return tuple(sorted(self._readable - before))


def removable(segments: SegmentMap, subscriptions: Iterable[SegmentProgress]) -> tuple[int, ...]:
    """Return the sealed segments that no ordered subscription needs any more, in an order in which they can be pruned.

    Other subscriptions, and retention, are for the caller to ask.

    Example:
        >>> progress = SegmentProgress(SegmentMap.equal_width())
        >>> after = SegmentMap.equal_width().split(0)
        >>> progress.update(after), removable(after, [progress]), progress.reached_end(0), removable(after, [progress])
        ((), (), (1, 2), (0,))
    """
    check_kind("segments", segments, SegmentMap)
    candidates = {one.id for one in segments.segments if not segments.is_active(one.id)}
    for subscription in checked_kinds("subscription", subscriptions, SegmentProgress):
        candidates.intersection_update(subscription.drained)
    return tuple(sorted(candidates))


def _given(parameter: str, ids: Iterable[int], segments: SegmentMap) -> Iterator[int]:
    """Ids of segments that the map has, or had."""
    for one in check_several(parameter, ids, "ids of segments"):
        if check_int(parameter, one, 0) >= segments.next_id:
            raise ArgumentError(parameter, one, "be a segment that the map has or had")
        yield one
