"""Dead letters that come back: each waits for another delivery at the place in its key that it always had.

Nothing of the log changes for that, so the position and the token do not know them. Loaded only where a configuration
asks for it.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from keyshared._checks import require
from keyshared._dispatch.endings import Endings
from keyshared._dispatch.receipts import StoredLetter, sorted_letters
from keyshared._dispatch.snapshot import Reader, dump_messages, load_beside
from keyshared._dispatch.timers import Duties, Timers
from keyshared._window.beside import SideCursor, come_back, readmit_beside
from keyshared.effects import Call, Effect, Ignored, IgnoredReason
from keyshared.errors import RedriveTooEarlyError
from keyshared.window import InFlightWindow

__all__ = ["Redriven"]


class Redriven:
    """Takes dead letters back, and keeps what the window tracks within its limit.

    Args:
        window: A new one, whose cursor has side cells.
        timers: Where the deadlines of its messages are kept.
        endings: Keeps what is noted of them.
        told: Whether somebody else takes what the cursor notes as settled.
    """

    __slots__ = ("_cursor", "_endings", "_max_tracked", "_timers", "_told", "_window")

    name: Final = "redriven"
    duties: Final[Duties] = {}

    def __init__(self, window: InFlightWindow, timers: Timers, endings: Endings, *, told: bool) -> None:
        self._cursor: SideCursor = window.cursor  # type: ignore[assignment]  # see the argument
        self._endings = endings
        self._max_tracked = window.max_tracked
        self._timers = timers
        self._told = told
        self._window = window

    def take(self, key: bytes | None, letters: Sequence[StoredLetter[Any]]) -> list[Effect]:
        """Put letters back before anything of them is delivered; return which were ignored.

        Raises:
            ArgumentError: One of them is no letter.
            RedriveTooEarlyError: One of them may still be offered, or what is older than it.
            WindowFullError: There are not so many free slots.
            ConfigError: A rule has no answer for the key.
        """
        window, wanted = self._window, sorted_letters(letters)
        self._check_below(wanted)
        if key in window.quarantined:
            return [_ignored(letter, IgnoredReason.IS_QUARANTINED) for letter in wanted]
        window.check_key(key)
        new: dict[int, StoredLetter[Any]] = {}
        known: list[StoredLetter[Any]] = []
        for letter in wanted:
            if letter.offset in new or window.find(letter.offset) is not None:
                known.append(letter)
            else:
                new[letter.offset] = letter
        if len(new) > window.free_slots:
            raise window.full_error()
        near = None
        for letter in new.values():
            near = come_back(window, letter.offset, key, letter.item, attempt=letter.attempt, near=near)
            self._endings.came_back(key)
        return [_ignored(letter, IgnoredReason.IS_OUTSTANDING) for letter in known]

    def readmit(self, rooms: Reader, now: int, items: Mapping[int, object]) -> None:
        """Put back what a snapshot has of it, before lanes are put where they waited."""
        kept = rooms.fields().get(self.name)
        if kept is not None:
            readmit = partial(readmit_beside, self._window)
            load_beside(kept, readmit, self._window, self._endings, self._timers, now=now, items=items)

    def dump(self, now: int) -> object:
        """Rows as those of the messages of the log."""
        back = [entry for entry in self._window.outstanding() if entry.offset in self._cursor.beside]
        return dump_messages(back, self._endings, now) or None

    def load(self, data: Reader, now: int) -> None:
        """Do nothing: see `readmit`."""

    def refresh(self, now: int, notices: list[Effect]) -> None:  # noqa: ARG002  # it has no deadlines
        """Leave to the log what may be tracked beside the letters that are back."""
        self._window.max_tracked = self._max_tracked - len(self._cursor.beside)
        if not self._told:
            self._cursor.ended.clear()

    def check_invariants(self) -> None:
        """Raise `InvariantError` if messages of the log could take the places of letters. For tests."""
        tracked = self._window.max_tracked + len(self._cursor.beside)
        require(tracked == self._max_tracked, "what has come back counts in what is tracked")
        require(self._told or not self._cursor.ended, "what was settled is forgotten if nobody asks for it")

    def _check_below(self, letters: list[StoredLetter[Any]]) -> None:
        """Raise unless everything up to the newest letter was offered, or is settled."""
        if not letters:
            return
        newest, next_offer = letters[-1].offset, self._cursor.next_offer
        if next_offer is None or newest >= next_offer:
            raise RedriveTooEarlyError(newest, self._cursor.last)


def _ignored(letter: StoredLetter[Any], reason: IgnoredReason) -> Ignored:
    return Ignored(letter.offset, None, letter.attempt, Call.REDRIVE, reason)
