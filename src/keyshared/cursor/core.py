"""The cursor itself, unchecked: cells in offset order, which of them are settled, and the gaps between them.

One list holds the offered cells in offset order, and two queues the *gaps*: cells before which another offset than the
next lower one was offered. So the cursor moves to "what was offered before the lowest open one" and needs no +1 chain:
an offset that was never offered (compaction, transaction markers, filtered batches) cannot stall it. Settled cells
above the lowest open one stay in the list until they are half of it; then the list is rebuilt without them. The acked
ranges above the cursor are derived from the cells that are left, never recorded a second time.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice, pairwise
from operator import attrgetter, itemgetter
from typing import Final

from keyshared._checks import require
from keyshared.cursor.token import Position

__all__ = ["SETTLED", "Cell", "Cursor"]

SETTLED: Final = 0
OPEN: Final = 1

# Settled cells that may stay beyond one for each live cell: keeps a nearly empty list from being rebuilt all the time.
_SLACK: Final = 64
_offset_of: Final = attrgetter("offset")
_start_of: Final = itemgetter(0)


class Cell:
    """One offered offset. A subclass adds what its owner needs.

    Attributes:
        offset: Its place in the log.
        state: `SETTLED`, or any positive int while it is outstanding.
    """

    __slots__ = ("offset", "state")

    def __init__(self, offset: int, state: int = OPEN) -> None:
        self.offset = offset
        self.state = state

    def __repr__(self) -> str:
        return f"{type(self).__name__}(offset={self.offset}, state={self.state})"


class _Passed(Cell):
    """Remains one object when a cursor is copied or pickled."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "_PASSED"


_PASSED: Final = _Passed(0, SETTLED)


class Cursor:
    """`ContiguousCursor` without checks, for a window that composes it: it takes `Cell` objects.

    Args:
        start: As for `ContiguousCursor`.

    Attributes:
        start, last, safe_cursor, outstanding: As of `ContiguousCursor`; plain for speed.
    """

    __slots__ = (
        *("_before_gaps", "_gaps", "_head", "_known", "_order", "_passed"),
        *("last", "outstanding", "safe_cursor", "start"),
    )

    def __init__(self, start: int | None = None) -> None:
        self.start = start
        self.last: int | None = None
        self.safe_cursor: int | None = None
        self.outstanding = 0
        self._order: list[Cell] = []
        self._gaps: deque[int] = deque()
        self._before_gaps: deque[int | None] = deque()
        self._head = 0  # index of the lowest outstanding cell, 0 if there is none
        # Settled before a restart. Kept when they are passed, until the position has passed them too: an offset that is
        # not read again, or not offered because it is known, is settled for the next restart all the same.
        self._known: list[tuple[int, int]] = []
        self._passed = 0  # how many of them lie below the last offer

    def resume_at(self, position: Position) -> None:
        """Take over the content of a token; nothing was offered to this cursor yet. Without a position: nothing."""
        resume, safe, ranges = position
        if resume is None:
            return
        self.start = resume
        self.last = self.safe_cursor = safe
        # No offered offset lies between the two, so a restart never has to read there.
        between = [] if safe is None or safe + 1 == resume else [(safe + 1, resume)]
        self._known = [*between, *ranges]

    def recall(self, start: int | None, ranges: list[tuple[int, int]]) -> None:
        """Take over `start` and `remembered` of a stored cursor, once everything else is restored."""
        self.start = start
        self._known = ranges
        if self.last is not None:
            self.pass_to(self.last)

    def append(self, cell: Cell) -> None:
        """Offer a cell that is outstanding, above `last`, not below `start`; it is kept until it is settled. O(1)."""
        offset, last = cell.offset, self.last
        if last is None or offset != last + 1:
            self._gaps.append(offset)
            self._before_gaps.append(last)
        self.last = offset
        self.outstanding += 1
        self._order.append(cell)

    def close(self, cell: Cell) -> None:
        """Settle a cell that is outstanding in this cursor: its ``state`` becomes `SETTLED`.

        O(1) amortised: every cell is passed over once and left behind by a rebuild once.
        """
        cell.state = SETTLED
        self.outstanding = live = self.outstanding - 1
        order = self._order
        head = self._head
        if order[head] is cell:
            if not live:
                order.clear()
                self._head = 0
                self._gaps.clear()
                self._before_gaps.clear()
                self.safe_cursor = self.last
                return
            # A passed cell is released at once: until the next rebuild it would only be work for the garbage collector.
            order[head] = _PASSED
            head += 1
            while not order[head].state:  # stops: something is outstanding, and nothing below the head is
                order[head] = _PASSED
                head += 1
            self._head = head
            lowest = order[head].offset
            self.safe_cursor = self._before(lowest) if self._gaps else lowest - 1
        if len(order) > live + live + _SLACK:
            self._rebuild(live)

    def _before(self, lowest: int) -> int | None:
        """Return the greatest offset that was offered before the lowest outstanding one; forget gaps below that."""
        gaps, before = self._gaps, self._before_gaps
        while gaps and gaps[0] < lowest:
            gaps.popleft()
            before.popleft()
        return before[0] if gaps and gaps[0] == lowest else lowest - 1

    def _rebuild(self, live: int) -> None:
        """Leave settled cells behind."""
        order, head = self._order, self._head
        # A new list, not a change in place: an iteration that is under way goes on over the old one. With acks in
        # order the settled cells are a prefix, and a slice drops it at a tenth of the cost.
        is_prefix = head > live and len(order) - head <= live + live + _SLACK
        self._order = order[head:] if is_prefix else [other for other in order if other.state]
        self._head = 0

    def skip(self, offset: int) -> None:
        """Offer an offset that is settled already: it is above `last`, not below `start`. O(1), and no memory.

        A stored cursor is restored with it: for each outstanding cell in offset order `skip` what `with_before` named,
        if that is above `last`, then `append` the cell; in the end `skip` the stored `last` if that is above.
        Each answer is then the same as before.
        """
        self.last = offset
        if not self.outstanding:
            self.safe_cursor = offset

    def recalls(self, offset: int) -> bool:
        """Whether an offset above `last` was settled before the restart. O(log n), n ranges of the token."""
        if self.last is not None and offset <= self.last:
            return False
        index = bisect_right(self._known, offset, lo=self._passed, key=_start_of) - 1
        return index >= 0 and offset < self._known[index][1]

    def pass_to(self, offset: int) -> None:
        """Announce that `append` or `skip` will offer an offset next. O(1) amortised."""
        known = self._known
        while self._passed < len(known) and known[self._passed][1] <= offset:
            self._passed += 1

    @property
    def looks_ahead(self) -> bool:
        """Whether anything above `last` was settled before the restart."""
        return self._passed < len(self._known)

    def remembered(self) -> list[tuple[int, int]]:
        """Ranges that were settled before the restart and are not below all that is outstanding or was read. O(n)."""
        # Not the position: it has passed the range that comes next, because this range is remembered.
        read = self._order[self._head].offset if self.outstanding else self.last
        return [(start, stop) for start, stop in self._known if read is None or stop > read + 1]

    def resume_after(self, read_to: int | None) -> int | None:
        """Where a restart goes on that had read up to here, as `ContiguousCursor.resume_after` says."""
        if self.outstanding:
            return self._order[self._head].offset
        known = [place for place in (self.start if self.last is None else self.last + 1, read_to) if place is not None]
        if not known:
            return None
        resume = max(known)
        for start, stop in islice(self._known, self._passed, None):
            if start > resume:
                break
            resume = max(resume, stop)
        return resume

    @property
    def resume_offset(self) -> int | None:
        """Where a restart goes on that was offered the whole log."""
        return self.resume_after(None)

    def position(self, read_to: int | None = None) -> Position:
        """Return what a token holds: where a restart goes on, and what is settled above that. O(n)."""
        resume = self.resume_after(read_to)
        ranges = [] if resume is None else [stretch for stretch in self.acked_ranges() if stretch[0] > resume]
        return Position(resume, self.safe_cursor, ranges)

    def find(self, offset: int) -> Cell | None:
        """Return the outstanding cell of an offset, or None if there is none.

        O(log n), n offsets outstanding; O(1) where the log has no gaps and nothing below was left behind.
        """
        order, head = self._order, self._head
        if not order:
            return None
        index = head + offset - order[head].offset
        if not (head <= index < len(order) and order[index].offset == offset):
            index = bisect_left(order, offset, lo=head, key=_offset_of)
            if index == len(order):
                return None
        cell = order[index]
        return cell if cell.offset == offset and cell.state else None

    def __iter__(self) -> Iterator[Cell]:
        """Yield outstanding cells in offset order; any of them may be closed meanwhile."""
        for cell in islice(self._order, self._head, None):
            if cell.state:
                yield cell

    def with_before(self) -> Iterator[tuple[Cell, int | None]]:
        """Yield outstanding cells in offset order, each with the greatest offset that was offered before it."""
        before_gap = dict(zip(self._gaps, self._before_gaps, strict=True))
        for cell in self:
            yield cell, before_gap.get(cell.offset, cell.offset - 1)

    def acked_ranges(self) -> list[tuple[int, int]]:
        """Half-open stretches above `resume_offset` in which every offered offset is settled. O(n log n)."""
        ranges: list[tuple[int, int]] = []
        below: int | None = None
        for cell, before in self.with_before():
            if below is not None and before is not None and below < before:
                ranges.append((below + 1, before + 1))
            below = cell.offset
        if below is not None and self.last is not None and below < self.last:
            ranges.append((below + 1, self.last + 1))
        if not self._known:
            return ranges
        resume = self.resume_offset
        ahead = [(start, stop) for start, stop in self.remembered() if resume is None or stop > resume]
        return _united(ranges + ahead)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure contradicts itself: a bug here, or in the caller. O(n)."""
        order = self._order
        live = list(self)
        require(len(live) == self.outstanding, "the count of outstanding cells is what the list holds")
        require(len(order) <= 2 * len(live) + _SLACK, "settled cells are at most as many as live ones, and the slack")
        require(order[self._head : self._head + 1] == live[:1], "the head is the lowest outstanding cell")
        passed, ahead = order[: self._head], order[self._head :]
        require(all(cell is _PASSED for cell in passed), "what is below the head is settled and let go")
        require(all(one.offset < other.offset for one, other in pairwise(ahead)), "cells are in offset order")
        offered_before = list(self.with_before())
        for (one, _), (other, before) in pairwise(offered_before):
            require(before is not None and one.offset <= before < other.offset, "what was offered before lies between")
        if live:
            require(self.safe_cursor == offered_before[0][1], "the safe cursor is what was offered before the head")
            require(self.last is not None and self.last >= live[-1].offset, "last is the greatest offset offered")
            require(self.start is None or self.start <= live[0].offset, "what is below the start is not outstanding")
        else:
            require(self.safe_cursor == self.last, "the safe cursor is the last offset if nothing is outstanding")
        require(all(start < stop for start, stop in self._known), "no remembered range is empty")
        require(all(one[1] < other[0] for one, other in pairwise(self._known)), "remembered ranges do not touch")
        for cell in live:
            inside = any(start <= cell.offset < stop for start, stop in self._known)
            require(not inside, "nothing outstanding was settled before")


def _united(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same stretches, lowest first, none touching the next."""
    united: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(stop, united[-1][1]))
        else:
            united.append((start, stop))
    return united
