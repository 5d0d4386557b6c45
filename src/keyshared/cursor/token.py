"""The text of a cursor token: a position and what is settled above it, short and with a checksum.

It is "ksc1." and base64url, unpadded, of varints and the CRC-32 of everything before it. The varints:

- 1 + zigzag(resume offset), or a single 0 if no position is known;
- resume offset - safe cursor, 0 if there is no safe cursor;
- for each acked range, from below: unsettled stretch - 1, settled stretch - 1 (both are at least 1).

So a text that passes the checksum is either one cursor, or one of the few forms that `read_token` refuses.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from keyshared._checks import OFFSET_BITS, OFFSET_STOP
from keyshared.errors import ArgumentError, SnapshotError

__all__ = ["DEFAULT_TOKEN_BYTES", "LEAST_TOKEN_BYTES", "CursorToken", "Position", "read_token", "write_token"]

DEFAULT_TOKEN_BYTES: Final = 4_096  # Kafka's offset.metadata.max.bytes

_MAGIC: Final = "ksc1."  # keyshared cursor, format 1
_CHECKSUM_BYTES: Final = 4
_LOW_BITS: Final = 0x7F  # of a varint's byte; the other bit says that more bytes follow
_MORE: Final = 0x80
# The largest number written is a distance between two offsets, or a zigzag offset plus one: OFFSET_BITS + 2 bits.
_VARINT_BYTES: Final = (OFFSET_BITS + 2 + 6) // 7
_SHOWN_CHARACTERS: Final = 64


class Position(NamedTuple):
    """The content of a token.

    Attributes:
        resume: The next offset to read; None if no position is known.
        safe: The safe cursor, or None.
        ranges: Half-open stretches above ``resume`` in which everything is settled, lowest first.
    """

    resume: int | None
    safe: int | None
    ranges: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class CursorToken:
    """A cursor as a line of text, and the ranges that did not fit.

    Attributes:
        text: ASCII, safe in URLs, headers and commit metadata; `ContiguousCursor.from_token` reads it.
        omitted_ranges: Acked ranges that did not fit. The lowest ones go in first.
        omitted_span: Sum of their lengths: at most so many settled messages are delivered again after a restart.
    """

    text: str
    omitted_ranges: int = 0
    omitted_span: int = 0

    @property
    def complete(self) -> bool:
        """Whether a restart from it redelivers nothing that was settled."""
        return self.omitted_ranges == 0


LEAST_TOKEN_BYTES: Final = len(_MAGIC) + -(-4 * (2 * _VARINT_BYTES + _CHECKSUM_BYTES) // 3)
"""So many bytes hold the position of any log."""


def write_token(position: Position, max_bytes: int) -> CursorToken:
    """Return the token of a position, with as many ranges as fit, lowest first; `ArgumentError` if it does not fit."""
    resume, safe, ranges = position
    numbers = bytearray()
    if resume is None:
        _write(numbers, 0)
    else:
        _write(numbers, 1 + _zigzag(resume))
        _write(numbers, 0 if safe is None else resume - safe)
    least = len(_seal(numbers))
    if type(max_bytes) is not int or max_bytes < least:
        raise ArgumentError("max_bytes", max_bytes, f"be an int of at least {least} to hold the position")
    room = (max_bytes - len(_MAGIC)) * 3 // 4 - _CHECKSUM_BYTES
    omitted = [] if resume is None else _write_ranges(numbers, room, resume, ranges)
    return CursorToken(_seal(numbers), len(omitted), sum(stop - start for start, stop in omitted))


def _zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def _write(numbers: bytearray, number: int) -> None:
    """Append a varint: seven bits a byte, lowest first."""
    while number > _LOW_BITS:
        numbers.append(_MORE | number & _LOW_BITS)
        number >>= 7
    numbers.append(number)


def _write_ranges(numbers: bytearray, room: int, resume: int, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Append ranges until the next one does not fit; return those left over."""
    below = resume
    for index, (start, stop) in enumerate(ranges):
        fitting = len(numbers)
        _write(numbers, start - below - 1)
        _write(numbers, stop - start - 1)
        if len(numbers) > room:
            del numbers[fitting:]
            return ranges[index:]
        below = stop
    return []


def _seal(numbers: bytes | bytearray) -> str:
    checksum = crc32(numbers, crc32(_MAGIC.encode()))
    sealed = numbers + checksum.to_bytes(_CHECKSUM_BYTES, "big")
    return _MAGIC + urlsafe_b64encode(sealed).rstrip(b"=").decode()


def read_token(text: str) -> Position:
    """Return the content of a token; raise `SnapshotError` if it is damaged, of another version or no token."""
    position, *rest = _read_numbers(text, _unseal(text))
    if position == 0 and not rest:
        return Position(None, None, [])
    if position == 0 or len(rest) % 2 == 0:
        raise _bad_token(text, "hold a position, the distance to the safe cursor, and pairs")
    back, *runs = rest
    resume = (position - 1) >> 1 ^ -((position - 1) & 1)
    safe = resume - back if back else None
    ranges: list[tuple[int, int]] = []
    stop = resume
    for gap, length in zip(runs[::2], runs[1::2], strict=True):
        start = stop + gap + 1
        stop = start + length + 1
        ranges.append((start, stop))
    # One beyond the greatest offset is a legal position.
    if resume - back <= -OFFSET_STOP or stop > OFFSET_STOP:
        raise _bad_token(text, f"hold offsets of at most {OFFSET_BITS} bits")
    return Position(resume, safe, ranges)


def _unseal(text: object) -> bytes:
    if not isinstance(text, str) or not text.startswith(_MAGIC):
        raise _bad_token(text, f"be a text that starts with {_MAGIC!r}: a cursor token of this version")
    body = text[len(_MAGIC) :]
    try:
        numbers = urlsafe_b64decode(body + "=" * (-len(body) % 4))[:-_CHECKSUM_BYTES]
    except ValueError:  # wrong length, or not ASCII
        numbers = b""
    # Sealing again finds what decoding accepts: stray characters, padding, unused bits; and a wrong checksum.
    if _seal(numbers) != text or not numbers:
        raise _bad_token(text, "be whole and unchanged: its checksum does not match")
    return numbers


def _read_numbers(text: str, data: bytes) -> list[int]:
    numbers: list[int] = []
    first = 0
    for index, byte in enumerate(data):
        if byte & _MORE:
            continue
        digits = data[first : index + 1]
        # A leading zero digit would give one cursor two tokens.
        if (byte == 0 and len(digits) > 1) or len(digits) > _VARINT_BYTES:
            raise _bad_token(text, f"hold shortest varints of at most {_VARINT_BYTES} bytes")
        numbers.append(sum((digit & _LOW_BITS) << 7 * place for place, digit in enumerate(digits)))
        first = index + 1
    if first != len(data):
        raise _bad_token(text, "end with a whole varint")
    return numbers


def _bad_token(text: object, requirement: str) -> SnapshotError:
    shown = text[:_SHOWN_CHARACTERS] if isinstance(text, str) else text
    return SnapshotError("token", shown, requirement)
