"""What a commit stores beside the cursor token, so that a message that ends its process ends in the dead letters.

Text of a stored token: ``<cursor token>`` alone after an orderly end without failures, else
``<cursor token>~<horizon>;<offset>:<failures><flags>;...~<checksum>``. All offsets count from the position of the
token. The horizon is there from the first commit of an assignment to its orderly end: a start that finds it knows that
the process has crashed, and that the message which was to blame lies below it. Flags: ``o`` open, ``s`` run alone.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import crc32

from keyshared.errors import SnapshotError

__all__ = ["CrashRecord", "Suspect", "read_record", "read_token", "write_token"]

_MARK: Final = "~"
_LEAST: Final = len("~;~") + 8 + 20  # marks, checksum, horizon


class Suspect(NamedTuple):
    """A message that has failed, or is open.

    Attributes:
        offset: Its offset.
        failures: How often it has failed, in all processes so far.
        is_open: Whether a handler works on it.
        is_alone: Whether no other suspect runs beside it, as it was open at a crash before.
    """

    offset: int
    failures: int
    is_open: bool
    is_alone: bool


class CrashRecord(NamedTuple):
    """The stored record that a start reads.

    Attributes:
        horizon: Offset below which a message may have ended the process; None after an orderly end.
        suspects: Messages that have failed, or were open.
    """

    horizon: int | None
    suspects: tuple[Suspect, ...]


def write_token(cursor: str, position: int, record: CrashRecord, most_bytes: int) -> str:
    """Return a cursor token with as much of a crash record as there is space for, the first suspects first.

    Args:
        cursor: The cursor token.
        position: Its position.
        record: The crash record.
        most_bytes: Greatest length of the result, if the cursor token alone is not longer.
    """
    space = most_bytes - len(cursor) - _LEAST
    if space < 0 or (record.horizon is None and not record.suspects):
        return cursor
    parts = ["" if record.horizon is None else str(record.horizon - position)]
    for suspect in record.suspects:
        part = f"{suspect.offset - position}:{suspect.failures}{'o' * suspect.is_open}{'s' * suspect.is_alone}"
        space -= len(part) + 1
        if space < 0:
            break
        parts.append(part)
    text = f"{cursor}{_MARK}{';'.join(parts)}"
    return f"{text}{_MARK}{crc32(text.encode()):08x}"


def read_token(token: str) -> tuple[str, str]:
    """Return the cursor token and the text of the crash record of a stored token.

    Raises:
        SnapshotError: The crash record is damaged.

    Example:
        >>> read_token("AAAA")
        ('AAAA', '')
    """
    cursor, mark, rest = token.partition(_MARK)
    text, _, checksum = rest.partition(_MARK)
    if mark and checksum != f"{crc32((cursor + mark + text).encode()):08x}":
        raise SnapshotError("resume_from", token, "be a token as commit has got it, and its checksum differs")
    return cursor, text


def read_record(text: str, position: int) -> CrashRecord:
    """Return the crash record of a text that `read_token` has returned."""
    if not text:
        return CrashRecord(None, ())
    horizon, *parts = text.split(";")
    return CrashRecord(position + int(horizon) if horizon else None, tuple(_read_suspects(parts, position)))


def _read_suspects(parts: Iterable[str], position: int) -> Iterable[Suspect]:
    for part in parts:
        offset, _, rest = part.partition(":")
        yield Suspect(position + int(offset), int(rest.rstrip("os")), "o" in rest, "s" in rest)
