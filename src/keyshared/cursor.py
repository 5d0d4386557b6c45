"""The contiguous cursor: how far everything is settled, whatever the order of the acks and the gaps between the offsets.

Two faces of one structure. Unchecked, for the window that composes it and pays for every nanosecond: `ContiguousCursor.append`,
`close`, `skip` on `Cell` objects. Checked, for a consumer that commits its position by itself: `offer`, `settle` and, over a restart,
`token` and `from_token`.

One list holds the offered cells in offset order. Each cell remembers the greatest offset that was offered *before* it, so the cursor
moves to "what was offered before the lowest open one" and needs no +1 chain: an offset that was never offered (compaction, transaction
markers, filtered batches) cannot stall it. Settled cells above the lowest open one stay in the list until they are half of it; then
the list is rebuilt without them. What was acked above the cursor is read off the cells that are left, never recorded a second time.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import Final

from keyshared.errors import InvariantError

__all__ = ["SETTLED", "Cell", "ContiguousCursor"]

SETTLED: Final = 0
_OPEN: Final = 1
# Settled cells that may stay beyond one for each live cell: keeps a nearly empty list from being rebuilt all the time.
_SLACK: Final = 64
_offset_of: Final = attrgetter("offset")


class Cell:
    """One offered offset. Subclasses add what their owner needs to know about it.

    Attributes:
        offset: Its place in the log.
        prev: Greatest offset that was offered before it, None for the first; set by `ContiguousCursor.append`.
        state: `SETTLED`, or any positive int while it is outstanding.
    """

    __slots__ = ("offset", "prev", "state")

    def __init__(self, offset: int, state: int = _OPEN) -> None:
        self.offset = offset
        self.prev: int | None = None
        self.state = state


class ContiguousCursor:
    """Tracks which of the offered offsets are settled, and up to where all of them are.

    Not thread-safe. The attributes are plain for speed: read them, never assign them.

    Args:
        start: What `resume_offset` answers before anything was offered.

    Attributes:
        start: As given.
        last: Greatest offset offered so far, None before any.
        safe_cursor: Greatest offered offset below the lowest outstanding one; the greatest offered if nothing is outstanding;
            None before any. Never moves back, never passes an outstanding offset.
        outstanding: How many offered offsets are not settled.

    Complexity:
        Memory O(outstanding), whatever was settled above the lowest outstanding one.
    """

    __slots__ = ("_head", "_order", "last", "outstanding", "safe_cursor", "start")

    def __init__(self, start: int | None = None) -> None:
        self.start = start
        self.last: int | None = None
        self.safe_cursor: int | None = None
        self.outstanding = 0
        self._order: list[Cell] = []
        self._head = 0

    def append(self, cell: Cell) -> None:
        """Offer a cell, unchecked: it must be outstanding, and its offset above `last`.

        Complexity:
            O(1). `safe_cursor` does not change.
        """
        cell.prev = self.last
        self.last = cell.offset
        self.outstanding += 1
        self._order.append(cell)

    def close(self, cell: Cell) -> None:
        """Settle a cell, unchecked: it must be outstanding in this cursor.

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
                self.safe_cursor = self.last
                return
            head += 1
            while not order[head].state:  # stops: something is outstanding, and nothing below the head is
                head += 1
            self._head = head
            self.safe_cursor = order[head].prev
        if len(order) > live + live + _SLACK:
            # A new list, not a change in place: an iteration that is under way goes on over the old one.
            self._order = [other for other in order if other.state]
            self._head = 0

    def skip(self, offset: int) -> None:
        """Offer an offset that is settled already, unchecked: it must be above `last`.

        Restoring is done with this: for each outstanding cell in offset order `skip` its ``prev`` if that is above `last`, `append`
        it, and at the end `skip` the old `last`; then every answer is the same as before.

        Complexity:
            O(1), and no memory.
        """
        self.last = offset
        if not self.outstanding:
            self.safe_cursor = offset

    @property
    def resume_offset(self) -> int | None:
        """The next offset to read after a restart: the lowest outstanding one, else ``last + 1``, else `start`."""
        if self.outstanding:
            return self._order[self._head].offset
        return self.start if self.last is None else self.last + 1

    def find(self, offset: int) -> Cell | None:
        """The outstanding cell of ``offset``, or None if there is none.

        Complexity:
            O(log n), n outstanding cells.
        """
        order = self._order
        index = bisect_left(order, offset, lo=self._head, key=_offset_of)
        if index == len(order):
            return None
        cell = order[index]
        return cell if cell.offset == offset and cell.state else None

    def __iter__(self) -> Iterator[Cell]:
        """Outstanding cells in offset order; cells may be closed meanwhile."""
        return (cell for cell in islice(self._order, self._head, None) if cell.state)

    def acked_ranges(self) -> list[tuple[int, int]]:
        """Half-open stretches above the cursor in which every offered offset is settled, lowest first.

        Complexity:
            O(n), n outstanding cells.
        """
        ranges: list[tuple[int, int]] = []
        below: int | None = None
        for cell in self:
            if below is not None and cell.prev is not None and cell.prev != below:
                ranges.append((below + 1, cell.prev + 1))
            below = cell.offset
        if below is not None and self.last is not None and self.last != below:
            ranges.append((below + 1, self.last + 1))
        return ranges

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure contradicts itself. For tests; O(n)."""
        live = list(self)
        if len(live) != self.outstanding:
            raise InvariantError(f"cursor counts {self.outstanding} outstanding cells but holds {len(live)}")
