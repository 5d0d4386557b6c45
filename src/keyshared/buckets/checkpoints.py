"""How far each bucket of each segment has come: one safe cursor per (segment, bucket), and where to read on.

With one cursor for the whole segment a slow bucket would hold back all others; a cursor for each bucket is handed over
with the bucket, and a restart redelivers nothing that was settled.
"""

from collections.abc import Mapping
from typing import Final, Self

from keyshared._checks import OFFSET_BITS, OFFSET_STOP, check_log_offset, checked_state
from keyshared.cursor import ContiguousCursor
from keyshared.errors import InvariantError, OffsetOrderError, SegmentBusyError, SnapshotError

__all__ = ["BucketCheckpoints"]

_FORMAT_VERSION: Final = 1
_SEGMENT_FIELDS: Final = frozenset({"segment", "buckets"})
_TOKEN_BYTES: Final = 1 << 40  # no limit: a checkpoint that forgets what was settled is none


class _Segment:
    __slots__ = ("cursors", "next")

    def __init__(self, resume: int) -> None:
        self.cursors: dict[int, ContiguousCursor] = {}
        self.next = resume  # no offer may be below it: one past the last one

    @property
    def resume_offset(self) -> int:
        found = (cursor.resume_after(self.next) for cursor in self.cursors.values())
        return min((place for place in found if place is not None), default=self.next)


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
        self._segments: dict[int, _Segment] = {}

    @classmethod
    def restore(cls, state: object) -> Self:
        """Restore what `snapshot` returned: nothing is outstanding, and it is known what was settled.

        Read each segment again from `resume_offset` and `offer` each entry: the result says whether it needs work.

        Raises:
            SnapshotError: The state is truncated, of another version or not as `snapshot` writes it.
        """
        fields = checked_state("checkpoints", state, _FORMAT_VERSION, "segments")
        checkpoints = cls()
        for item in _list(fields["segments"], "segments"):
            row = _mapping(item, _SEGMENT_FIELDS, "segment")
            number = _index(row["segment"], "segment")
            if number <= next(reversed(checkpoints._segments), -1):
                raise SnapshotError("segment", number, "be there once, and segments in the order of their numbers")
            checkpoints._segments[number] = _read_segment(row)
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
        known = self._segments.get(segment)
        if known is None:
            known = self._segments[segment] = _Segment(offset)
        if offset < known.next:
            raise OffsetOrderError(offset, known.next - 1)
        cursor = known.cursors.get(bucket)
        if cursor is None:
            cursor = known.cursors[bucket] = ContiguousCursor()
        known.next = offset + 1
        # A restored cursor knows what is below its start only as a whole, and would take it for a step back.
        settled = cursor.start is not None and offset < cursor.start
        return not settled and bool(cursor.offer(offset))

    def settle(self, segment: int, bucket: int, offset: int) -> bool:
        """Settle one entry; False if it was not outstanding in that bucket. O(log n) amortised, n entries."""
        _check_place(segment, bucket, offset)
        cursor = self._cursor(segment, bucket)
        return cursor is not None and cursor.settle(offset)

    def safe_cursor(self, segment: int, bucket: int) -> int | None:
        """Return the greatest offset of a bucket up to which all of it is settled; None before any was offered."""
        cursor = self._cursor(segment, bucket)
        return None if cursor is None else cursor.safe_cursor

    def resume_offset(self, segment: int) -> int | None:
        """Return where a restart reads a segment from: its lowest outstanding entry, else behind the last one.

        None for a segment that is not known. Buckets in which nothing waits do not hold it. What was settled before a
        restart and would come next is passed over. O(b), b buckets of the segment.
        """
        known = self._segments.get(segment)
        return None if known is None else known.resume_offset

    def outstanding(self, segment: int, bucket: int | None = None) -> int:
        """Count the entries of a bucket, or of all buckets of a segment, that are not settled."""
        known = self._segments.get(segment)
        if known is None:
            return 0
        return sum(cursor.outstanding for number, cursor in known.cursors.items() if bucket in {None, number})

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
        return {
            "version": _FORMAT_VERSION,
            "segments": [
                {
                    "segment": number,
                    "buckets": [
                        [bucket, cursor.to_token(_TOKEN_BYTES, read_to=known.next).text]
                        for bucket, cursor in sorted(known.cursors.items())
                    ],
                }
                for number, known in sorted(self._segments.items())
            ],
        }

    def check_invariants(self) -> None:
        """Check every cursor, and that none is ahead of its segment; an InvariantError is a bug in this library."""
        for number, known in self._segments.items():
            for bucket, cursor in known.cursors.items():
                cursor.check_invariants()
                if cursor.outstanding and (cursor.last is None or cursor.last >= known.next):
                    raise InvariantError(f"bucket {bucket} is not ahead of segment {number}")

    def _cursor(self, segment: int, bucket: int) -> ContiguousCursor | None:
        known = self._segments.get(segment)
        return None if known is None else known.cursors.get(bucket)

    def __repr__(self) -> str:
        buckets = sum(len(known.cursors) for known in self._segments.values())
        return f"<BucketCheckpoints of {len(self._segments)} segments and {buckets} buckets>"


def _check_place(segment: object, bucket: object, offset: object) -> None:
    for name, value in (("segment", segment), ("bucket", bucket), ("offset", offset)):
        check_log_offset(name, value)


def _read_segment(row: Mapping[str, object]) -> _Segment:
    known = _Segment(0)
    for item in _list(row["buckets"], "buckets"):
        match item:
            case [int() as bucket, str() as token] if bucket > next(reversed(known.cursors), -1):
                known.cursors[_index(bucket, "bucket")] = _read_cursor(token)
            case _:
                raise SnapshotError("bucket", item, "be a number above the one before, and a cursor token")
    if not known.cursors:
        raise SnapshotError("buckets", row["buckets"], "not be empty: a segment is known by what was offered of it")
    known.next = known.resume_offset
    return known


def _read_cursor(token: str) -> ContiguousCursor:
    cursor = ContiguousCursor.from_token(token)
    resume, safe = cursor.resume_offset, cursor.safe_cursor
    if resume is None or resume < 0 or (safe is not None and safe < 0):
        raise SnapshotError("token", token, "have a position, and nothing below 0")
    return cursor


def _index(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value <= OFFSET_STOP:
        raise SnapshotError(name, value, f"be an int of at least 0 and at most {OFFSET_BITS} bits")
    return value


def _list(value: object, name: str) -> list[object]:
    if type(value) is not list:
        raise SnapshotError(name, value, "be a list")
    return value


def _mapping(value: object, fields: frozenset[str], name: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or value.keys() != fields:
        raise SnapshotError(name, value, f"be a mapping with exactly the fields {', '.join(sorted(fields))}")
    return value
