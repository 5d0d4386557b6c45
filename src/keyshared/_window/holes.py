"""How long the text of a token is at this moment, kept up to date as messages are settled.

A token names the position and each settled stretch above it. Writing it down to see how long it is would cost a walk
over everything outstanding; here a settlement costs a search among the stretches, of which a token holds at most a few
thousand.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final

from keyshared._checks import require
from keyshared.cursor import Cell, ContiguousCursor
from keyshared.cursor.token import gap_bytes, position_bytes, text_length

__all__ = ["Holes", "MeasuringCursor"]

_MOST_OF_A_SETTLEMENT: Final = 68
"""Characters by which one settlement can lengthen a text: a position, a stretch and the distance to the next one."""


class Holes:
    """Settled stretches above a position, and how many bytes a token takes for them.

    Attributes:
        starts: Where the stretches begin, lowest first.
        stops: Where they end; none touches the next.

    Example:
        >>> holes = Holes()
        >>> for offset in (12, 14, 17):
        ...     holes.add(offset, offset + 1)
        >>> holes.add(13, 14)                       # now three are one
        >>> list(zip(holes.starts, holes.stops))
        [(12, 15), (17, 18)]
        >>> holes.bytes_above(10)
        4
        >>> holes.drop_below(16)
        >>> holes.bytes_above(16)
        2
    """

    __slots__ = ("_bytes", "starts", "stops")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        self._bytes = 0  # of all stretches, and of all distances but the first, which is one from the position

    def add(self, start: int, stop: int) -> None:
        """Settle a stretch; those that it touches become one with it. O(log n) amortised, and a shift of a list."""
        starts, stops = self.starts, self.stops
        first = bisect_left(stops, start)
        last = bisect_right(starts, stop)
        self._count(first, min(last + 1, len(starts)), -1)
        if first < last:
            start, stop = min(start, starts[first]), max(stop, stops[last - 1])
        starts[first:last] = [start]
        stops[first:last] = [stop]
        self._count(first, min(first + 2, len(starts)), 1)

    def drop_below(self, position: int) -> None:
        """Forget the stretches that the position has passed."""
        passed = bisect_right(self.stops, position)
        if not passed:
            return
        self._count(0, min(passed + 1, len(self.starts)), -1)
        del self.starts[:passed], self.stops[:passed]
        self._count(0, min(1, len(self.starts)), 1)

    def bytes_above(self, position: int) -> int:
        """How many bytes a token takes for all stretches; they lie above the position."""
        return self._bytes + gap_bytes(self.starts[0] - position) if self.starts else 0

    def _count(self, first: int, last: int, sign: int) -> None:
        """Count stretches, and their distances from the ones below, in or out."""
        starts, stops = self.starts, self.stops
        for index in range(first, last):
            self._bytes += sign * gap_bytes(stops[index] - starts[index])
            if index:
                self._bytes += sign * gap_bytes(starts[index] - stops[index - 1])


class MeasuringCursor(ContiguousCursor):
    """A cursor with a budget for its token.

    Args:
        start: As for a cursor.
        budget: How long the text of the token may be.

    Attributes:
        holes: What is settled above the position.
        length: How long the text is that leaves nothing out.
        is_full: Whether it was longer than three quarters of the budget, and has not come down to one half since.
    """

    # no slots: so it can be one with a cursor of another kind

    def __init__(self, start: int | None = None, *, budget: int) -> None:
        super().__init__(start)
        self._budget = budget
        self.holes = Holes()
        self.is_full = False
        self._measure()

    @property
    def is_near(self) -> bool:
        """Whether one more settlement may make it too long."""
        return 4 * (self.length + _MOST_OF_A_SETTLEMENT) > 3 * self._budget

    @property
    def lowest(self) -> Any:  # noqa: ANN401  # a cell of this cursor
        """The lowest outstanding cell; None if nothing is outstanding. O(1)."""
        return self._order[self._head] if self.outstanding else None

    def fill(self) -> None:
        """Take the token for full, as it was, unless it is no longer than one half of the budget."""
        self.is_full = self.is_full or 2 * self.length > self._budget

    def resume_from(self, text: str) -> None:
        """Begin with what a token says."""
        super().resume_from(text)
        self._remember()

    def recall(self, start: int | None, ranges: list[tuple[int, int]]) -> None:
        """Begin with what a stored cursor says."""
        super().recall(start, ranges)
        self.is_full = False  # whatever it seemed to be while it was put together
        self._remember()

    def append(self, cell: Cell) -> None:
        """Offer a cell; the first one is the position from now on."""
        super().append(cell)
        if self.outstanding == 1:
            self._follow()

    def close(self, cell: Cell) -> None:
        """Settle a cell, and note the stretch that it makes, or those that the position has passed."""
        lowest = self.lowest
        super().close(cell)
        if cell is lowest:
            self._follow()
        else:  # what lies between it and the one that was offered before was never offered
            self.holes.add(cell.prev + 1, cell.offset + 1)  # type: ignore[operator]  # the first one is the lowest
            self._measure()
        if self.is_full and 2 * self.length <= self._budget:
            self.is_full = False

    def append_many(self, cells: Sequence[Cell]) -> None:
        """Offer several cells, and measure after each of them."""
        for cell in cells:
            self.append(cell)

    def close_many(self, cells: Sequence[Cell]) -> None:
        """Settle several cells, and measure after each of them."""
        for cell in cells:
            self.close(cell)

    def skip(self, offset: int) -> None:
        """Offer an offset that is settled already, and note it."""
        last = self.last
        super().skip(offset)
        if self.outstanding:
            self.holes.add(last + 1, offset + 1)  # type: ignore[operator]  # something was offered before
            self._measure()
        else:
            self._follow()

    def check_invariants(self) -> None:
        """As of any cursor; the stretches are those of the token, and its length is known."""
        super().check_invariants()
        resume = self.resume_offset
        stretches = list(zip(self.holes.starts, self.holes.stops, strict=True))
        expected = [each for each in self.acked_ranges() if resume is not None and each[0] > resume]
        require(stretches == expected, "the stretches that are counted are those that are settled")
        require(self.length == len(self.to_token(self.length).text), "the length of the token is known")
        require(self.is_full or 4 * self.length <= 3 * self._budget, "a token that is too long is full")

    def _remember(self) -> None:
        """Count what an earlier life has settled."""
        for start, stop in self._known:
            self.holes.add(start, stop)
        self._follow()

    def _follow(self) -> None:
        """Forget the stretches that the position has passed."""
        resume = self.resume_offset
        if resume is not None and self.holes.starts:
            self.holes.drop_below(resume)
        self._measure()

    def _measure(self) -> None:
        resume = self.resume_offset
        holes = 0 if resume is None else self.holes.bytes_above(resume)
        self.length = text_length(position_bytes(resume, self.safe_cursor) + holes)
        if 4 * self.length > 3 * self._budget:
            self.is_full = True
