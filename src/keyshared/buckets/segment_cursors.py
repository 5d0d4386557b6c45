"""The cursors of the buckets of one segment: kept by `BucketCheckpoints` and `keyshared.segments.SegmentProgress`."""

from collections.abc import Iterable, Mapping
from typing import Final

from keyshared._checks import check_offset, require
from keyshared.cursor import ContiguousCursor
from keyshared.errors import OffsetOrderError, SnapshotError

__all__ = ["SegmentCursors", "read_segments", "write_segments"]

_FIELDS: Final = frozenset({"segment", "buckets"})
_PAIR: Final = 2  # a bucket and its token


class SegmentCursors:
    """The position of a reader in one segment, and a cursor for each bucket. Buckets are not checked.

    Attributes:
        buckets: The cursor of each bucket of which an entry was offered.
        next: One past the last offer, and after a restart where to read on; None before any.
    """

    __slots__ = ("buckets", "next")

    def __init__(self) -> None:
        self.buckets: dict[int, ContiguousCursor] = {}
        self.next: int | None = None

    def offer(self, buckets: Iterable[int], offset: int) -> tuple[int, ...]:
        """Take the next entry of the segment, and return those of its buckets in which it was not settled before.

        Raises:
            OffsetOrderError: ``offset`` is no int, or not above the last one. Nothing was changed.
            ArgumentError: It has more than 63 bits. Nothing was changed.
        """
        if type(offset) is not int or (self.next is not None and offset < self.next):
            raise OffsetOrderError(offset, None if self.next is None else self.next - 1)
        check_offset("offset", offset)
        self.next = offset + 1
        return tuple(bucket for bucket in buckets if self._cursor(bucket).offer(offset))

    def settle(self, bucket: int, offset: int) -> bool:
        """Settle an entry in one bucket; return whether it was outstanding there."""
        cursor = self.buckets.get(bucket)
        return cursor is not None and cursor.settle(offset)

    def outstanding(self, bucket: int | None = None) -> int:
        """Count what is outstanding in a bucket, or in all of them."""
        return sum(cursor.outstanding for number, cursor in self.buckets.items() if bucket in {None, number})

    def resume_offset(self, bucket: int | None = None) -> int | None:
        """Return where to read on after a restart, for one bucket or for all; where nothing waits, nothing is held."""
        found = [cursor.resume_after(self.next) for number, cursor in self.buckets.items() if bucket in {None, number}]
        return min((place for place in found if place is not None), default=self.next)

    def check_invariants(self) -> None:
        """Check every cursor, and that none is ahead of the segment."""
        for bucket, cursor in self.buckets.items():
            cursor.check_invariants()
            ahead = self.next is None or cursor.last is None or cursor.last >= self.next
            require(not (cursor.outstanding and ahead), f"bucket {bucket} is not ahead of its segment")

    def _cursor(self, bucket: int) -> ContiguousCursor:
        cursor = self.buckets.get(bucket)
        if cursor is None:
            cursor = self.buckets[bucket] = ContiguousCursor()
        return cursor


def write_segments(segments: Mapping[int, SegmentCursors], max_token_bytes: int) -> list[dict[str, object]]:
    """Return cursors by segment as plain data: a token of at most so many bytes for each bucket."""
    return [
        {
            "segment": number,
            "buckets": [
                [bucket, cursor.to_token(max_token_bytes, read_to=cursors.next).text]
                for bucket, cursor in sorted(cursors.buckets.items())
            ],
        }
        for number, cursors in sorted(segments.items())
    ]


def read_segments(rows: object) -> dict[int, SegmentCursors]:
    """Restore the cursors that `write_segments` wrote; SnapshotError if the data is damaged."""
    if type(rows) is not list:
        raise SnapshotError("segments", rows, "be a list")
    return dict(map(_read_segment, rows))


def _read_segment(row: object) -> tuple[int, SegmentCursors]:
    if not isinstance(row, Mapping) or row.keys() != _FIELDS or type(row["segment"]) is not int:
        raise SnapshotError("segment", row, "be a mapping with a number and the buckets of a segment")
    pairs = row["buckets"]
    if type(pairs) is not list or not all(map(_is_pair, pairs)):
        raise SnapshotError("buckets", pairs, "be a list of pairs of a bucket and a cursor token")
    cursors = SegmentCursors()
    cursors.buckets = {bucket: ContiguousCursor.from_token(token) for bucket, token in pairs}
    cursors.next = cursors.resume_offset()
    return row["segment"], cursors


def _is_pair(pair: object) -> bool:
    return type(pair) is list and len(pair) == _PAIR and type(pair[0]) is int
