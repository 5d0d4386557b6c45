"""Checkpoints of buckets: one safe cursor per (segment, bucket), and where to read on.

With one cursor for the whole segment a slow bucket would hold back all others; a cursor for each bucket is handed over
with the bucket, and a restart redelivers nothing that was settled.
"""

from typing import Final, Self

from keyshared._checks import check_log_offset, checked_state
from keyshared.buckets.segment_cursors import SegmentCursors, read_segments, write_segments
from keyshared.errors import SegmentBusyError

__all__ = ["BucketCheckpoints"]

_FORMAT_VERSION: Final = 1
_TOKEN_BYTES: Final = 1 << 40  # no limit: a checkpoint that forgets what was settled is none


class BucketCheckpoints:
    """Tracks which entries are settled, by segment and bucket.

    Offsets are positions in a segment's log; they grow strictly within a segment, gaps are legal. An offset belongs to
    one bucket: an entry that straddles two cannot be tracked here before it is split into entries of their own. Not
    thread-safe.

    Complexity:
        Memory O(outstanding + segments * buckets seen).

    Source:
        PIP-486: the checkpoint unit is (segment, bucket).

    Example:
        >>> checkpoints = BucketCheckpoints()
        >>> [checkpoints.offer(7, bucket, offset) for offset, bucket in enumerate([0, 1, 0, 1])]
        [True, True, True, True]
        >>> checkpoints.settle(7, 1, 1), checkpoints.settle(7, 1, 3), checkpoints.resume_offset(7)
        (True, True, 0)
        >>> again = BucketCheckpoints.restore(checkpoints.snapshot())
        >>> [again.offer(7, bucket, offset) for offset, bucket in enumerate([0, 1, 0, 1])]
        [True, False, True, False]
    """

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: dict[int, SegmentCursors] = {}

    @classmethod
    def restore(cls, state: object) -> Self:
        """Restore what `snapshot` returned: nothing is outstanding, and it is known what was settled.

        Read each segment again from `resume_offset` and `offer` each entry: the result says whether it needs work.

        Raises:
            SnapshotError: The state is truncated, of another version or not as `snapshot` writes it.
        """
        checkpoints = cls()
        rows = checked_state("checkpoints", state, _FORMAT_VERSION, "segments")["segments"]
        checkpoints._segments = read_segments(rows)
        return checkpoints

    def offer(self, segment: int, bucket: int, offset: int) -> bool:
        """Take the next entry of a segment; return whether it needs work: after a restart not what was settled before.

        Args:
            segment: Number of the segment.
            bucket: Its bucket, as `BucketLayout.route` returns it.
            offset: Its place in the segment's log, above all that were offered before.

        Raises:
            OffsetOrderError: The offset is not above the last one of the segment.
        """
        _check_place(segment, bucket, offset)
        cursors = self._segments.get(segment) or self._segments.setdefault(segment, SegmentCursors())
        return bool(cursors.offer((bucket,), offset))

    def settle(self, segment: int, bucket: int, offset: int) -> bool:
        """Settle one entry; False if it was not outstanding in that bucket. O(log n) amortised, n entries."""
        _check_place(segment, bucket, offset)
        cursors = self._segments.get(segment)
        return cursors is not None and cursors.settle(bucket, offset)

    def safe_cursor(self, segment: int, bucket: int) -> int | None:
        """Return the greatest offset of a bucket up to which all of it is settled; None before any was offered."""
        cursors = self._segments.get(segment)
        cursor = cursors.buckets.get(bucket) if cursors is not None else None
        return None if cursor is None else cursor.safe_cursor

    def resume_offset(self, segment: int) -> int | None:
        """Return where a restart reads a segment from: its lowest outstanding entry, else behind the last one.

        None for a segment that is not known. Buckets in which nothing waits do not hold it. What was settled before a
        restart and would come next is passed over. O(b), b buckets of the segment.
        """
        cursors = self._segments.get(segment)
        return None if cursors is None else cursors.resume_offset()

    def outstanding(self, segment: int, bucket: int | None = None) -> int:
        """Count the entries of a bucket, or of all buckets of a segment, that are not settled."""
        cursors = self._segments.get(segment)
        return 0 if cursors is None else cursors.outstanding(bucket)

    def forget(self, segment: int) -> None:
        """Drop a segment that is drained and will not be read again; one that is not known is ignored.

        Raises:
            SegmentBusyError: Entries of it are outstanding.
        """
        left = self.outstanding(segment)
        if left:
            raise SegmentBusyError(segment, left)
        self._segments.pop(segment, None)

    def snapshot(self) -> dict[str, object]:
        """Return the checkpoints as plain data that JSON can hold: a text for each bucket. O(n), n outstanding."""
        return {"version": _FORMAT_VERSION, "segments": write_segments(self._segments, _TOKEN_BYTES)}

    def check_invariants(self) -> None:
        """Check every cursor, and that none is ahead of its segment; an InvariantError is a bug in this library."""
        for cursors in self._segments.values():
            cursors.check_invariants()

    def __repr__(self) -> str:
        buckets = sum(len(cursors.buckets) for cursors in self._segments.values())
        return f"<BucketCheckpoints of {len(self._segments)} segments and {buckets} buckets>"


def _check_place(segment: object, bucket: object, offset: object) -> None:
    for name, value in (("segment", segment), ("bucket", bucket), ("offset", offset)):
        check_log_offset(name, value)
