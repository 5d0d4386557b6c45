"""The contiguous cursor: how far everything is settled, whatever the order of the acks and the gaps in the offsets.

Here each argument is checked, once. A window that composes the cursor takes `Cursor` of `keyshared.cursor.core`, which
checks nothing and is fed with cells.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Self

from keyshared._checks import check_offset, check_position, check_several
from keyshared.cursor.core import Cell, Cursor
from keyshared.cursor.token import DEFAULT_TOKEN_BYTES, CursorToken, read_token, write_token
from keyshared.errors import OffsetOrderError

__all__ = ["ContiguousCursor", "OfferAnswer"]


class OfferAnswer(Enum):
    """Whether an offset that is read needs work; true if it does."""

    WORK = "work"  # new: it is outstanding from now on
    SETTLED = "settled"  # above the position, and settled before the restart
    REWIND = "rewind"  # below the position: the log was read from further back than it had to be

    def __bool__(self) -> bool:
        return self is OfferAnswer.WORK


class ContiguousCursor:
    """Tracks which of the offered offsets are settled, and up to where all of them are.

    Offsets are ints that grow strictly, negative ones too, of at most 63 bits. Gaps are legal and cost nothing. Not
    thread-safe.

    Args:
        start: The first offset that needs work: everything below it counts as settled. None if that is not known.

    Attributes:
        core: The same without checks, for who composes it.

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

    __slots__ = ("core",)

    def __init__(self, start: int | None = None) -> None:
        if start is not None:
            check_position("start", start, "be None or an int")
        self.core = Cursor(start)

    @classmethod
    def from_token(cls, text: str) -> Self:
        """Rebuild a cursor after a restart: nothing is outstanding, and it knows what was settled. O(length).

        Read the log again from `resume_offset` and `offer` each offset: the answer says whether it needs work.

        Args:
            text: `CursorToken.text` of the cursor before the restart.

        Returns:
            A cursor with the same `safe_cursor`, `resume_offset` and acked ranges.

        Raises:
            SnapshotError: The text is truncated, damaged, of another version or no token at all.

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
        cursor.core.resume_at(read_token(text))
        return cursor

    @property
    def start(self) -> int | None:
        """The first offset that needs work, as given, or as a token said."""
        return self.core.start

    @property
    def last(self) -> int | None:
        """Greatest offset offered so far, None before any."""
        return self.core.last

    @property
    def safe_cursor(self) -> int | None:
        """Greatest offered offset below the lowest outstanding one; the greatest offered if nothing is outstanding.

        None before any. Never moves back, never passes an outstanding offset.
        """
        return self.core.safe_cursor

    @property
    def outstanding(self) -> int:
        """How many offered offsets are not settled."""
        return self.core.outstanding

    def offer(self, offset: int) -> OfferAnswer:
        """Take the next offset of the log. O(1) amortised.

        Args:
            offset: Above every offset offered before, unless those are read again after a restart.

        Returns:
            Whether it needs work; if not, whether it was settled above the position before the restart, or lies below
            the position. The latter is a rewind: of a log that is read from further back it is nothing, of a host that
            wants to repeat old messages it says that this cursor will not.

        Raises:
            OffsetOrderError: ``offset`` is no int, or not above `last` and no rewind. Nothing was changed.
            ArgumentError: ``offset`` has more than 63 bits. Nothing was changed.
        """
        core = self.core
        last, start = core.last, core.start
        if type(offset) is not int:
            raise OffsetOrderError(offset, last)
        check_offset("offset", offset)
        if start is not None and offset < start and (last is None or last < start):
            return OfferAnswer.REWIND
        if last is not None and offset <= last:
            raise OffsetOrderError(offset, last)
        is_settled = core.recalls(offset)
        core.pass_to(offset)
        if is_settled:
            core.skip(offset)
            return OfferAnswer.SETTLED
        core.append(Cell(offset))
        return OfferAnswer.WORK

    def settle(self, offset: int) -> bool:
        """Settle one offset. O(log n) amortised, n offsets outstanding.

        Returns:
            False if it was not outstanding: settled before, or never offered. Nothing was changed then, and nothing is
            remembered of it.

        Raises:
            ArgumentError: ``offset`` is no int, or has more than 63 bits. Nothing was changed.
        """
        check_offset("offset", offset)
        return self._settle(offset)

    def settle_many(self, offsets: Iterable[int]) -> int:
        """Settle several offsets, in any order.

        Args:
            offsets: The offsets; those that are not outstanding are ignored.

        Returns:
            How many of them were outstanding.

        Raises:
            ArgumentError: One of them is no int, or has more than 63 bits. Nothing was changed.
        """
        wanted = list(check_several("offsets", offsets, "offsets"))
        for offset in wanted:
            check_offset("offsets", offset)
        return sum(map(self._settle, wanted))

    def _settle(self, offset: int) -> bool:
        cell = self.core.find(offset)
        if cell is None:
            return False
        self.core.close(cell)
        return True

    @property
    def resume_offset(self) -> int | None:
        """The next offset to read after a restart: the lowest outstanding one, else ``last + 1``, else `start`.

        Never moves back and never passes an outstanding offset. Offsets that were settled before a restart are skipped.
        """
        return self.core.resume_offset

    def resume_after(self, read_to: int | None) -> int | None:
        """`resume_offset` of a cursor that is offered only some offsets of a log, which was read up to a place.

        O(1), and after `from_token` O(n), n ranges of the token.

        Args:
            read_to: Everything below was read, and offsets that were not offered here belong to other cursors. None if
                the cursor is offered the whole log.

        Returns:
            The lowest outstanding offset; else the first one that is not below ``read_to``, nor known to be settled.

        Raises:
            ArgumentError: ``read_to`` is neither None nor an int, or has more than 63 bits.

        Example:
            >>> cursor = ContiguousCursor()
            >>> cursor.offer(3).value, cursor.settle(3), cursor.resume_offset, cursor.resume_after(9)
            ('work', True, 4, 9)
        """
        return self.core.resume_after(_checked_place(read_to))

    def __iter__(self) -> Iterator[int]:
        """Yield outstanding offsets, lowest first; any of them may be settled meanwhile."""
        for cell in self.core:
            yield cell.offset

    def acked_ranges(self) -> list[tuple[int, int]]:
        """Return half-open stretches above `resume_offset` in which every offered offset is settled. O(n log n).

        Returns:
            The stretches, lowest first, none touching the next. Each lies between two outstanding offsets or above the
            highest one; stretches in which nothing was offered are left out. Bounds need not be offered offsets.
        """
        return self.core.acked_ranges()

    def to_token(self, max_bytes: int = DEFAULT_TOKEN_BYTES, *, read_to: int | None = None) -> CursorToken:
        """Return the token of a restart: where to resume, and what is settled above that. O(n), n outstanding.

        Args:
            max_bytes: Longest text that the store takes.
            read_to: As for `resume_after`, which the token then has as its position.

        Returns:
            The token; with as many acked ranges as fit, lowest first.

        Raises:
            ArgumentError: ``max_bytes`` is no int, or too small for the position alone (a few dozen do for any log);
                or ``read_to`` is no position.
        """
        return write_token(self.core.position(_checked_place(read_to)), max_bytes)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure contradicts itself. For tests; O(n)."""
        self.core.check_invariants()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(resume_offset={self.resume_offset}, safe_cursor={self.safe_cursor}, "
            f"outstanding={self.outstanding})"
        )


def _checked_place(read_to: int | None) -> int | None:
    if read_to is not None:
        check_position("read_to", read_to, "be None or an int")
    return read_to
