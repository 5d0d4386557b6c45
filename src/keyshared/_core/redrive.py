"""Dead letters that come back: each waits for another delivery at the place in its key that it always had.

The position and the token do not know them, because nothing of the log changes for them.
"""

from collections.abc import Sequence
from typing import Any

from keyshared._core.admission import Admission
from keyshared._core.records import Entry
from keyshared._core.values import StoredLetter
from keyshared._core.window import Window
from keyshared.effects import Call, Ignored, IgnoredReason
from keyshared.errors import RedriveTooEarlyError

__all__ = ["redrive"]


def redrive(
    window: Window, admission: Admission, key: bytes | None, letters: Sequence[StoredLetter[Any]]
) -> list[Ignored]:
    """Put letters back, which are sorted by offset, before anything is delivered; return which were ignored.

    Raises:
        RedriveTooEarlyError: One of them may still be offered, or something older than it.
        WindowFullError: There are not so many free slots.
        ConfigError: A rule has no answer for the key.
    """
    if letters:
        newest, next_offer = letters[-1].offset, next_offer_of(window)
        if next_offer is None or newest >= next_offer:
            raise RedriveTooEarlyError(newest, window.cursor.last)
    if key in window.quarantined:
        return [_ignored(letter, IgnoredReason.IS_QUARANTINED) for letter in letters]
    new: dict[int, StoredLetter[Any]] = {}
    known: list[Ignored] = []
    for letter in letters:
        if letter.offset in new or window.find(letter.offset) is not None:
            known.append(_ignored(letter, IgnoredReason.IS_OUTSTANDING))
        else:
            new[letter.offset] = letter
    if len(new) > admission.free_slots:
        raise admission.full_error()
    near: Entry | None = None
    for letter in new.values():
        near = window.come_back(letter.offset, key, letter.item, letter.attempt, near)
    return known


def next_offer_of(window: Window) -> int | None:
    """Return the lowest offset that may still be offered; None before any, if no start is known. O(1)."""
    last, start = window.cursor.last, window.cursor.start
    if last is None:
        return start
    return last + 1 if start is None else max(start, last + 1)


def _ignored(letter: StoredLetter[Any], reason: IgnoredReason) -> Ignored:
    return Ignored(letter.offset, None, letter.attempt, Call.REDRIVE, reason)
