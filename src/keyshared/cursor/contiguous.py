"""The contiguous cursor: how far everything is settled, whatever the order of the acks and the gaps in the offsets.

Two faces of one structure. Unchecked, for a window that composes it: `append`, `close` and `skip` on `Cell` objects.
Checked, for a consumer that commits its position by itself: `offer`, `settle` and, over a restart, `to_token` and
`from_token`.

One list holds the offered cells in offset order, and two queues the *gaps*: cells before which another offset than the
next lower one was offered. So the cursor moves to "what was offered before the lowest open one" and needs no +1 chain:
an offset that was never offered (compaction, transaction markers, filtered batches) cannot stall it. Settled cells
above the lowest open one stay in the list until they are half of it; then the list is rebuilt without them. The acked
ranges above the cursor are derived from the cells that are left, never recorded a second time.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from operator import attrgetter, itemgetter
from typing import Final, Self

from keyshared._checks import check_offset, check_position, check_several, require
from keyshared.cursor.cells import SETTLED, Cell
from keyshared.cursor.token import Position, read_token, write_token
from keyshared.cursor.values import CursorToken, OfferAnswer
from keyshared.errors import OffsetOrderError

__all__ = ["DEFAULT_TOKEN_BYTES", "SETTLED", "Cell", "ContiguousCursor"]

DEFAULT_TOKEN_BYTES: Final = 4_096  # Kafka's offset.metadata.max.bytes

# Settled cells that may stay beyond one for each live cell: keeps a nearly empty list from being rebuilt all the time.
_SLACK: Final = 64
_offset_of: Final = attrgetter("offset")
_start_of: Final = itemgetter(0)


class _Passed(Cell):
    """Remains one object when a cursor is copied or pickled."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "_PASSED"


_PASSED: Final = _Passed(0, SETTLED)


class ContiguousCursor:
    """Tracks which of the offered offsets are settled, and up to where all of them are.

    Offsets are ints that grow strictly, negative ones too, of at most 63 bits. Gaps are legal and cost nothing. Not
    thread-safe. The attributes are plain for speed: read them, never assign them.

    Args:
        start: The first offset that needs work: everything below it counts as settled. None if that is not known.

    Attributes:
        start: As given.
        last: Greatest offset offered so far, None before any.
        safe_cursor: Greatest offered offset below the lowest outstanding one; the greatest offered if nothing is
            outstanding; None before any. Never moves back, never passes an outstanding offset.
        outstanding: How many offered offsets are not settled.

    Raises:
        ArgumentError: ``start`` is neither None nor an int, or has more than 63 bits.

    Complexity:
        Memory O(outstanding), however much was settled above the lowest outstanding offset; after `from_token` also
        the ranges of the token.

    Source:
        Danube "Key-Shared Dispatch Architecture", Contiguous Cursor Advancement; differs: gaps do not stall it, and
        acks of unknown offsets are not stored.

    Example:
        >>> cursor = ContiguousCursor()
        >>> [cursor.offer(offset).value for offset in (10, 11, 12, 13)]
        ['work', 'work', 'work', 'work']
        >>> cursor.settle_many([10, 12, 13]), cursor.safe_cursor, cursor.acked_ranges()
        (3, 10, [(12, 14)])
        >>> cursor.settle(11), cursor.safe_cursor, cursor.resume_offset
        (True, 13, 14)
    """

    __slots__ = (
        *("_before_gaps", "_gaps", "_head", "_known", "_order", "_passed"),
        *("last", "outstanding", "safe_cursor", "start"),
    )

    def __init__(self, start: int | None = None) -> None:
        if start is not None:
            check_position("start", start, "be None or an int")
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

    @classmethod
    def from_token(cls, text: str) -> Self:
        """Rebuild a cursor after a restart: nothing is outstanding, and it knows what was settled.

        Read the log again from `resume_offset` and `offer` each offset: the answer says whether it needs work.

        Args:
            text: `CursorToken.text` of the cursor before the restart.

        Returns:
            A cursor with the same `safe_cursor`, `resume_offset` and acked ranges.

        Raises:
            SnapshotError: The text is truncated, damaged, of another version or no token at all.

        Complexity:
            O(length of the text).

        Example:
            >>> cursor = ContiguousCursor()
            >>> for offset in range(10, 14):
            ...     _ = cursor.offer(offset)
            >>> cursor.settle_many([10, 12])
            2
            >>> again = ContiguousCursor.from_token(cursor.to_token().text)
            >>> [offset for offset in range(again.resume_offset, 14) if again.offer(offset)]
            [11, 13]
        """
        cursor = cls()
        cursor.resume_from(text)
        return cursor

    def resume_from(self, text: str) -> None:
        """Take over the content of a token, unchecked: nothing was offered to this cursor yet.

        Args:
            text: As for `from_token`. One of a cursor without a position changes nothing.

        Raises:
            SnapshotError: As `from_token`. Nothing was changed.
        """
        resume, safe, ranges = read_token(text)
        if resume is None:
            return
        self.start = resume
        self.last = self.safe_cursor = safe
        # No offered offset lies between the two, so a restart never has to read there.
        between = [] if safe is None or safe + 1 == resume else [(safe + 1, resume)]
        self._known = [*between, *ranges]

    def recall(self, start: int | None, ranges: list[tuple[int, int]]) -> None:
        """Take over `start` and `remembered` of a stored cursor, unchecked, once everything else is restored."""
        self.start = start
        self._known = ranges
        if self.last is not None:
            self.pass_to(self.last)

    def append(self, cell: Cell) -> None:
        """Offer a cell, unchecked: it is outstanding, above `last`, not below `start`.

        Args:
            cell: Kept by reference until it is settled.

        Complexity:
            O(1). `safe_cursor` does not change.
        """
        offset, last = cell.offset, self.last
        if last is None or offset != last + 1:
            self._gaps.append(offset)
            self._before_gaps.append(last)
        self.last = offset
        self.outstanding += 1
        self._order.append(cell)

    def close(self, cell: Cell) -> None:
        """Settle a cell, unchecked: it must be outstanding in this cursor.

        Args:
            cell: One that was given to `append`; its ``state`` becomes `SETTLED`.

        Complexity:
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
        """Offer an offset that is settled already, unchecked: it is above `last`, not below `start`.

        A stored cursor is restored with it: for each outstanding cell in offset order `skip` what `with_before` named,
        if that is above `last`, then `append` the cell; in the end `skip` the stored `last` if that is above.
        Each answer is then the same as before.

        Args:
            offset: The offset.

        Complexity:
            O(1), and no memory.
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

    def offer(self, offset: int) -> OfferAnswer:
        """Take the next offset of the log.

        Args:
            offset: Above every offset offered before.

        Returns:
            Whether it needs work; if not, whether it was settled above the position before the restart, or lies below
            the position. The latter is a rewind: of a log that is read from further back it is nothing, of a host that
            wants to repeat old messages it says that this cursor will not.

        Raises:
            OffsetOrderError: ``offset`` is no int, or not above `last`. Nothing was changed.
            ArgumentError: ``offset`` has more than 63 bits. Nothing was changed.

        Complexity:
            O(1) amortised.
        """
        last = self.last
        if type(offset) is not int:
            raise OffsetOrderError(offset, last)
        check_offset("offset", offset)
        start = self.start
        if start is not None and offset < start and (last is None or last < start):
            return OfferAnswer.REWIND
        if last is not None and offset <= last:
            raise OffsetOrderError(offset, last)
        is_settled = self.recalls(offset)
        self.pass_to(offset)
        if is_settled:
            self.skip(offset)
            return OfferAnswer.SETTLED
        self.append(Cell(offset))
        return OfferAnswer.WORK

    def settle(self, offset: int) -> bool:
        """Settle one offset.

        Args:
            offset: The offset.

        Returns:
            False if it was not outstanding: settled before, or never offered. Nothing was changed then, and nothing is
            remembered of it.

        Raises:
            ArgumentError: ``offset`` is no int, or has more than 63 bits. Nothing was changed.

        Complexity:
            O(log n) amortised, n offsets outstanding.
        """
        check_offset("offset", offset)
        cell = self.find(offset)
        if cell is None:
            return False
        self.close(cell)
        return True

    def settle_many(self, offsets: Iterable[int]) -> int:
        """Settle several offsets, in any order.

        Args:
            offsets: The offsets; those that are not outstanding are ignored.

        Returns:
            How many of them were outstanding.

        Raises:
            ArgumentError: One of them is no int, or has more than 63 bits. Nothing was changed.

        Complexity:
            O(k log n) amortised, k offsets given, n outstanding.
        """
        wanted = list(check_several("offsets", offsets, "offsets"))
        for offset in wanted:
            check_offset("offsets", offset)
        return sum(map(self.settle, wanted))

    @property
    def resume_offset(self) -> int | None:
        """The next offset to read after a restart: the lowest outstanding one, else ``last + 1``, else `start`.

        Never moves back and never passes an outstanding offset. Offsets that were settled before a restart are skipped.
        """
        return self.resume_after(None)

    def resume_after(self, read_to: int | None) -> int | None:
        """`resume_offset` of a cursor that is offered only some offsets of a log, which was read up to a place.

        Args:
            read_to: Everything below was read, and offsets that were not offered here belong to other cursors. None if
                the cursor is offered the whole log.

        Returns:
            The lowest outstanding offset; else the first one that is not below ``read_to``, nor known to be settled.

        Raises:
            ArgumentError: ``read_to`` is neither None nor an int, or has more than 63 bits.

        Complexity:
            O(1), and after `from_token` O(n), n ranges of the token.

        Example:
            >>> cursor = ContiguousCursor()
            >>> cursor.offer(3).value, cursor.settle(3), cursor.resume_offset, cursor.resume_after(9)
            ('work', True, 4, 9)
        """
        if read_to is not None:
            check_position("read_to", read_to, "be None or an int")
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

    def find(self, offset: int) -> Cell | None:
        """Return the outstanding cell of an offset, or None if there is none.

        Args:
            offset: Any int, unchecked.

        Complexity:
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
        """Half-open stretches above `resume_offset` in which every offered offset is settled.

        Returns:
            The stretches, lowest first, none touching the next. Each lies between two outstanding offsets or above the
            highest one; stretches in which nothing was offered are left out. Bounds need not be offered offsets.

        Complexity:
            O(n log n), n offsets outstanding, and after `from_token` the ranges of the token.
        """
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

    def to_token(self, max_bytes: int = DEFAULT_TOKEN_BYTES, *, read_to: int | None = None) -> CursorToken:
        """Return the token of a restart: where to resume, and what is settled above that.

        Args:
            max_bytes: Longest text that the store takes.
            read_to: As for `resume_after`, which the token then has as its position.

        Returns:
            The token; with as many acked ranges as fit, lowest first.

        Raises:
            ArgumentError: ``max_bytes`` is no int, or too small for the position alone (a few dozen do for any log);
                or ``read_to`` is no position.

        Complexity:
            O(n), n offsets outstanding.
        """
        resume = self.resume_after(read_to)
        ranges = [] if resume is None else [stretch for stretch in self.acked_ranges() if stretch[0] > resume]
        text, omitted = write_token(Position(resume, self.safe_cursor, ranges), max_bytes)
        return CursorToken(text, len(omitted), sum(stop - start for start, stop in omitted))

    def check_invariants(self) -> None:
        """Check the structure against itself; for tests.

        Raises:
            InvariantError: It contradicts itself: a bug here, or in the caller of an unchecked method.

        Complexity:
            O(n), n offsets outstanding.
        """
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

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(resume_offset={self.resume_offset}, safe_cursor={self.safe_cursor}, "
            f"outstanding={self.outstanding})"
        )


def _united(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same stretches, lowest first, none touching the next."""
    united: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(stop, united[-1][1]))
        else:
            united.append((start, stop))
    return united
