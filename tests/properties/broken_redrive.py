"""A dispatcher with one fault each, of what it does with dead letters that come back."""

from collections.abc import Sequence
from typing import Any

from tests.broken_parts import put_at_the_tail

from keyshared._dispatch.receipts import StoredLetter
from keyshared._dispatch.redrive import Redriven
from keyshared._window.beside import SideCursor
from keyshared._window.lanes import Entry
from keyshared.cursor import Cell
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Effect, Ending

__all__ = [
    "OldAckSettlesARedriven",
    "RedriveAtTheTail",
    "RedriveMovesTheCursorBack",
    "RedriveOutOfOrder",
    "RedriveTwiceMakesTwo",
]


class _AtTheTail(Redriven):
    __slots__ = ()

    def take(self, key: bytes | None, letters: Sequence[StoredLetter[Any]]) -> list[Effect]:
        known = set(self._cursor.beside)
        ignored = super().take(key, letters)
        for offset in sorted(self._cursor.beside.keys() - known):
            entry = self._cursor.beside[offset]
            assert isinstance(entry, Entry)
            if entry.lane.tail is not entry:
                put_at_the_tail(entry)
        return ignored


class _NewestFirst(Redriven):
    __slots__ = ()

    def take(self, key: bytes | None, letters: Sequence[StoredLetter[Any]]) -> list[Effect]:
        ignored = super().take(key, letters)
        for cell in self._cursor.beside.values():
            assert isinstance(cell, Entry)
            if cell.lane.key == key and cell.lane.back:
                cell.lane.back.sort(key=lambda entry: -entry.offset)
        return ignored


class _Twice(Redriven):
    __slots__ = ()

    def take(self, key: bytes | None, letters: Sequence[StoredLetter[Any]]) -> list[Effect]:
        again = list(letters)
        for letter in again:
            self._cursor.beside.pop(letter[0], None)
        return super().take(key, again)


class _MovesBack(SideCursor):
    __slots__ = ()

    def put(self, cell: Cell) -> None:
        super().put(cell)
        if self.safe_cursor is not None:
            self.safe_cursor = min(self.safe_cursor, cell.offset - 1)


class RedriveAtTheTail(KeySharedDispatcher[object]):
    """What comes back is treated as if it was offered: it stands behind everything of its key."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._redriven is not None:
            self._redriven.__class__ = _AtTheTail


class RedriveOutOfOrder(KeySharedDispatcher[object]):
    """What comes back together goes out as the dead-letter store lists it: the newest first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._redriven is not None:
            self._redriven.__class__ = _NewestFirst


class RedriveTwiceMakesTwo(KeySharedDispatcher[object]):
    """Whoever redrives the same letter twice gets it twice."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._redriven is not None:
            self._redriven.__class__ = _Twice


class RedriveMovesTheCursorBack(KeySharedDispatcher[object]):
    """The cursor waits for what has come back, so it moves back."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self._window.cursor, SideCursor):
            self._window.cursor.__class__ = _MovesBack


class OldAckSettlesARedriven(KeySharedDispatcher[object]):
    """An ack of a delivery from before the dead letter settles what has come back."""

    def _late_ack(self, offset: int, consumer: str, attempt: int, now: int) -> list[Effect[Any]]:
        entry = self._window.find(offset)
        if entry is None or offset not in self._window.beside or attempt > entry.attempt:
            return super()._late_ack(offset, consumer, attempt, now)
        self._now = now
        self._endings.settle(entry, Ending.LATE_ACK)
        return self._outbox.wake([], now)
