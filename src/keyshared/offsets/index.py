"""An index over the offsets and timestamps of a partition, both ways, in a few bytes for each record.

It is as sparse as Kafka's time index, and also says how far off a result can be. Records are taken in *blocks*. A block
in which offsets and timestamps both advance evenly is kept as a *run*, three numbers for each column however long it
grows, and is exact. Any other block is *loose*: its first and last offset and its lowest and highest timestamp, which
bound the result. With blocks of one record everything is a run, and exact.

Timestamps need not grow. Kafka's rule is "the first offset whose timestamp is at least t", and the first offset at
which the greatest timestamp so far reaches t is just that one: so a lookup bisects the column of greatest timestamps so
far, which does grow.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from keyshared._checks import check_int, check_log_offset, check_timestamp, require
from keyshared.errors import OffsetOrderError

__all__ = ["DEFAULT_INTERVAL", "Bounds", "OffsetIndex"]

DEFAULT_INTERVAL: Final = 64  # records; Kafka's index.interval.bytes is 4,096, so an entry for 4 records of a kilobyte

_LOOSE: Final = 0  # as the step of a piece; runs advance by at least 1
_COLUMNS: Final = ("_first", "_last", "_step", "_low", "_high", "_top")


class Bounds(NamedTuple):
    """The bounds of a result, both included."""

    low: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether both bounds are one."""
        return self.low == self.high


class OffsetIndex:
    """Finds offsets by timestamp and timestamps by offset, within bounds that it states.

    Offsets grow strictly, with gaps as compaction and transactions leave them; timestamps are in any order. Not
    thread-safe.

    Args:
        interval: How much goes into one block, in the unit of `append`'s ``size``; 1 for an exact index.
        start: The log's first offset.

    Complexity:
        Memory: 48 bytes for a piece, which is a run of any length or a loose block, and the open block's records. So an
            exact index of timestamps without any pattern takes 24 bytes for each record: more than a full list.

    Source:
        Kafka's OffsetIndex and TimeIndex; differs: one structure for both ways, with bounds, and runs.

    Example:
        >>> index = OffsetIndex(interval=4)
        >>> for offset in range(100):  # a record every 10 ms
        ...     index.append(offset, 1_000 + 10 * offset)
        >>> index.find_offset(1_505), index.find_timestamp(50), index.pieces
        (Bounds(low=51, high=51), Bounds(low=1500, high=1500), 1)
        >>> for offset, timestamp in enumerate([2_000, 2_900, 2_100, 2_700], start=100):
        ...     index.append(offset, timestamp)
        >>> index.find_offset(2_500), index.find_timestamp(102)
        (Bounds(low=100, high=103), Bounds(low=2000, high=2900))
    """

    __slots__ = (*_COLUMNS, "_cut", "_end", "_filled", "_interval", "_offsets", "_start", "_timestamps", "_tops")

    def __init__(self, interval: int = DEFAULT_INTERVAL, *, start: int = 0) -> None:
        check_int("interval", interval, 1)
        check_log_offset("start", start)
        self._interval = interval
        self._start = start
        self._end = start
        # The pieces, column by column. Of a run low and high are the timestamps of its first and last record.
        self._first = array("q")
        self._last = array("q")
        self._step = array("q")
        self._low = array("q")
        self._high = array("q")
        self._top = array("q")  # greatest timestamp up to the end of the piece
        # The open block, with the greatest timestamp so far in it.
        self._offsets = array("q")
        self._timestamps = array("q")
        self._tops = array("q")
        self._filled = 0
        self._cut = False  # whether the first piece is a loose block that has lost records: which ones is not known

    def append(self, offset: int, timestamp_epoch_ms: int, size: int = 1) -> None:
        """Take the next record of the log. O(1) amortised. An error changes nothing.

        Args:
            offset: Its offset, not below `end`.
            timestamp_epoch_ms: Its timestamp.
            size: How much it fills the block: 1 to count records, its bytes if ``interval`` is in bytes.

        Raises:
            OffsetOrderError: ``offset`` is no int, or below `end`.
        """
        if type(offset) is not int or offset < self._end:
            raise OffsetOrderError(offset, self._end - 1)
        check_log_offset("offset", offset)
        check_timestamp("timestamp_epoch_ms", timestamp_epoch_ms)
        check_int("size", size, 1)
        tops = self._tops
        self._offsets.append(offset)
        self._timestamps.append(timestamp_epoch_ms)
        tops.append(max(tops[-1], timestamp_epoch_ms) if tops else timestamp_epoch_ms)
        self._end = offset + 1
        self._filled += size
        if self._filled >= self._interval:
            self._close_block()

    @property
    def start(self) -> int:
        """The first offset that the log still has or could have."""
        return self._start

    @property
    def end(self) -> int:
        """One past the last record, or `start` if there is none."""
        return self._end

    @property
    def pieces(self) -> int:
        """The number of runs and loose blocks; the open block is not one of them."""
        return len(self._first)

    @property
    def nbytes(self) -> int:
        """Bytes that the numbers of all pieces and of the open block take."""
        items = len(_COLUMNS) * self.pieces + 3 * len(self._offsets)
        return items * self._first.itemsize

    def find_offset(self, timestamp_epoch_ms: int) -> Bounds:
        """Find the first offset whose timestamp is at least a given one; `end` if there is none. O(log n), n pieces.

        ``low`` is the safe end: to read from there may repeat records and never omits one.

        Example:
            >>> index = OffsetIndex(interval=1)
            >>> for offset, timestamp in enumerate([100, 300, 200, 400]):
            ...     index.append(offset, timestamp)
            >>> [index.find_offset(timestamp).low for timestamp in (0, 150, 250, 400, 401)]
            [0, 1, 1, 3, 4]
        """
        check_int("timestamp_epoch_ms", timestamp_epoch_ms)
        if self._cut and self._high[0] >= timestamp_epoch_ms:
            # The record with the high timestamp may be among those that are gone; then the answer lies further on.
            high = self._last[0] if self._low[0] >= timestamp_epoch_ms else self._find_from(1, timestamp_epoch_ms).high
            return Bounds(self._first[0], high)
        return self._find_from(int(self._cut), timestamp_epoch_ms)

    def find_timestamp(self, offset: int) -> Bounds | None:
        """Find the timestamp of the last record that is not above an offset, or else of the first record there is.

        That is the record a consumer processed last if it commits ``offset + 1``, over any gap that compaction left;
        and the earliest one that remains if retention has taken it. None if there is no record; ``low`` is the safe
        end. O(log n), n pieces.
        """
        check_int("offset", offset)
        if self._offsets and (offset >= self._offsets[0] or not self._first):
            timestamp = self._timestamps[max(0, bisect_right(self._offsets, offset) - 1)]
            return Bounds(timestamp, timestamp)
        if not self._first:
            return None
        piece = max(0, bisect_right(self._first, offset) - 1)
        low, high, step = self._low[piece], self._high[piece], self._step[piece]
        if step == _LOOSE:
            return Bounds(low, high)
        first, last = self._first[piece], self._last[piece]
        records = (min(max(offset, first), last) - first) // step
        timestamp = low + records * self._rise(piece)
        return Bounds(timestamp, timestamp)

    def truncate(self, before: int) -> None:
        """Forget the records below the log's new `start`; a lower one is ignored. O(n), n pieces."""
        check_log_offset("before", before)
        if before <= self._start:
            return
        self._start = before
        self._end = max(self._end, before)
        gone = bisect_left(self._last, before)
        for name in _COLUMNS:
            del getattr(self, name)[:gone]
        passed = bisect_left(self._offsets, before)
        # How much of the block they filled is not known, so it closes as early as if they were there.
        del self._offsets[:passed], self._timestamps[:passed]
        self._tops = array("q", accumulate(self._timestamps, max))
        self._cut = self._cut and not gone
        if self._first and self._first[0] < before:
            self._cut_first(before)
        self._top = self._recounted_tops()

    def check_invariants(self) -> None:
        """Check the structure against itself; an InvariantError is a bug in this library. O(n), n pieces."""
        columns = [getattr(self, name) for name in _COLUMNS]
        require(len({len(column) for column in columns}) == 1, "columns are equally long")
        stops = [self._start, *(last + 1 for last in self._last)]
        require(all(stop <= first for stop, first in zip(stops, self._first, strict=False)), "pieces lie in order")
        require(all(first <= last for first, last in zip(self._first, self._last, strict=True)), "no piece is empty")
        require(all(one < other for one, other in pairwise((stops[-1] - 1, *self._offsets))), "the open block is last")
        require([*stops, *(offset + 1 for offset in self._offsets)][-1] == self._end, "the end follows the last record")
        for piece, step in enumerate(self._step):
            distance = self._last[piece] - self._first[piece]
            rise = self._high[piece] - self._low[piece]
            if step == _LOOSE:
                require(rise >= 0, "low is not above high in a loose block")
            else:
                require(distance % step == 0, "a run has a whole number of steps")
                require(rise % max(1, distance // step) == 0, "a run's timestamps advance evenly")
        require(list(self._tops) == list(accumulate(self._timestamps, max)), "the open block knows its tops")
        require(not self._cut or self._step[0] == _LOOSE, "only a loose block can be cut")
        require(self._top == self._recounted_tops(), "tops are the greatest timestamps so far")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of offsets {self._start} to {self._end} in {self.pieces} pieces>"

    def _find_from(self, lowest: int, timestamp: int) -> Bounds:
        piece = bisect_left(self._top, timestamp, lo=lowest)
        if piece < len(self._top):
            return self._find_in(piece, timestamp)
        at = bisect_left(self._tops, timestamp)
        offset = self._offsets[at] if at < len(self._offsets) else self._end
        return Bounds(offset, offset)

    def _find_in(self, piece: int, timestamp: int) -> Bounds:
        """Find an offset in a piece of which one record at least has the timestamp or a greater one."""
        first, last, low, step = self._first[piece], self._last[piece], self._low[piece], self._step[piece]
        if low >= timestamp:
            return Bounds(first, first)
        if step == _LOOSE:
            return Bounds(first, last)
        offset = first + -((low - timestamp) // self._rise(piece)) * step  # rounded up
        return Bounds(offset, offset)

    def _rise(self, piece: int) -> int:
        """Return by how much the timestamps of a run advance from record to record; maybe negative."""
        steps = (self._last[piece] - self._first[piece]) // self._step[piece]
        return (self._high[piece] - self._low[piece]) // steps if steps else 0

    def _close_block(self) -> None:
        offsets, timestamps = self._offsets, self._timestamps
        pace = _pace(offsets, timestamps)
        if pace is None:
            self._add(_LOOSE, min(timestamps), max(timestamps))
        elif not self._first or not self._continues(*pace):
            self._add(pace[0], timestamps[0], timestamps[-1])
        else:
            self._step[-1] = offsets[0] - self._last[-1]
            self._last[-1] = offsets[-1]
            self._high[-1] = timestamps[-1]
            self._top[-1] = max(self._top[-1], self._tops[-1])
        self._offsets, self._timestamps, self._tops = array("q"), array("q"), array("q")
        self._filled = 0

    def _continues(self, step: int, rise: int) -> bool:
        """Return whether the open block, even in itself, goes on with the last run's pace."""
        if self._step[-1] == _LOOSE:
            return False
        gap = self._offsets[0] - self._last[-1]
        jump = self._timestamps[0] - self._high[-1]
        alone = self._first[-1] == self._last[-1]
        return (alone or (gap, jump) == (self._step[-1], self._rise(-1))) and (
            len(self._offsets) == 1 or (gap, jump) == (step, rise)
        )

    def _add(self, step: int, low: int, high: int) -> None:
        self._first.append(self._offsets[0])
        self._last.append(self._offsets[-1])
        self._step.append(step)
        self._low.append(low)
        self._high.append(high)
        # A cut block's high timestamp may be gone from the log, so it does not count for those after it.
        before = self._top[-1] if len(self._top) > self._cut else low
        self._top.append(max(before, self._tops[-1]))

    def _cut_first(self, before: int) -> None:
        step = self._step[0]
        if step == _LOOSE:
            self._first[0] = before
            self._cut = True
            return
        gone = -((self._first[0] - before) // step)  # rounded up
        self._low[0] += gone * self._rise(0)
        self._first[0] += gone * step

    def _recounted_tops(self) -> "array[int]":  # quoted: before Python 3.12 only type checkers can subscript it
        highs = array("q", map(max, self._low, self._high))
        # What a cut block's records were is not known, so it counts for itself alone.
        return highs[: self._cut] + array("q", accumulate(highs[self._cut :], max))


def _pace(offsets: Sequence[int], timestamps: Sequence[int]) -> tuple[int, int] | None:
    """Return how far offsets and timestamps advance from record to record, if always equally far."""
    if len(offsets) == 1:
        return 1, 0
    step, rise = offsets[1] - offsets[0], timestamps[1] - timestamps[0]
    even = all(other - one == step for one, other in pairwise(offsets)) and all(
        other - one == rise for one, other in pairwise(timestamps)
    )
    return (step, rise) if even else None
