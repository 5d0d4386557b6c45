"""The metadata of a translated commit: a tagged envelope behind the text of other programs.

Kafka gives a commit one string of at most 4,096 bytes. Consumers use it: Kafka Streams keeps its stream time there,
parallel-consumer the offsets acked above the commit. What they wrote is *foreign* here, and is kept byte for byte.
The envelope says for which offset it was written, so that one that an application carried along into a commit of
its own is recognised and does not make that commit look like a copy.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from zlib import crc32

from keyshared._checks import check_int, check_kind, check_log_position, check_timestamp
from keyshared.copyflags import CopyFlags
from keyshared.errors import ArgumentError

__all__ = [
    "MAX_METADATA_BYTES",
    "CommitMetadata",
    "MetadataProblem",
    "OffsetEnvelope",
    "compose_metadata",
    "parse_metadata",
]

MAX_METADATA_BYTES: Final = 4_096  # Kafka's offset.metadata.max.bytes

_TAG: Final = "~kso"  # keyshared offset; then the format's number
_FORMAT: Final = "1"
_BEGINNING: Final = "b"
# Lengths are bounded, so that a forged one costs nothing: flags of MAX_LEVEL bits, numbers of 64.
_ENVELOPE: Final = re.compile(r"~kso1\.([0-9a-f]{1,512})\.(b|-?[0-9]{1,19})\.([0-9]{1,19})\.([0-9a-f]{8})", re.ASCII)


class MetadataProblem(StrEnum):
    """Why metadata could not be read or written: a value, since another program wrote it."""

    DAMAGED = "it has an envelope that is truncated or altered"
    OTHER_FORMAT = "its envelope is of another version"
    TOO_LONG = "the envelope does not fit behind what is there"
    NOT_UTF8 = "it holds surrogates, which no UTF-8 can hold"


@dataclass(frozen=True, slots=True)
class OffsetEnvelope:
    """The note that a committer leaves about a commit that it made.

    Args:
        flags: The levels that the commit has crossed.
        timestamp_epoch_ms: What it was translated from, margin included; None for the beginning of the log. A cluster
            that passes the commit on sends this again, so that the margin is taken off once, not at each hop.
        offset: The offset that was committed with it.
    """

    flags: CopyFlags
    timestamp_epoch_ms: int | None
    offset: int

    def __post_init__(self) -> None:
        check_kind("flags", self.flags, CopyFlags)
        if self.timestamp_epoch_ms is not None:
            check_timestamp("timestamp_epoch_ms", self.timestamp_epoch_ms, ", or None")
        check_log_position("offset", self.offset)


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The metadata of a commit: what others wrote, byte for byte, and the committer's envelope, if there is one."""

    foreign: str
    envelope: OffsetEnvelope | None


def parse_metadata(text: str) -> CommitMetadata | MetadataProblem:
    """Split the metadata of a commit into its parts; texts without an envelope are foreign as a whole. O(length).

    Returns a problem if it has an envelope that cannot be read: the maker of such a commit is unknown, and if it was
    taken for a fresh one, it could travel in circles.

    Example:
        >>> parse_metadata("AgAAAXtQ").foreign
        'AgAAAXtQ'
        >>> note = OffsetEnvelope(CopyFlags(0b100), 1_700_000_000_000, 35)
        >>> text = compose_metadata("AgAAAXtQ", note)
        >>> text
        'AgAAAXtQ~kso1.4.1700000000000.35.e6c2cfa9'
        >>> parse_metadata(text) == CommitMetadata("AgAAAXtQ", note)
        True
        >>> parse_metadata(text[:-1]).name
        'DAMAGED'
    """
    check_kind("text", text, str)
    foreign, tag, rest = text.rpartition(_TAG)
    if not tag:
        return CommitMetadata(text, None)
    number, dot, _ = rest.partition(".")
    if dot and number.isdecimal() and number != _FORMAT:
        return MetadataProblem.OTHER_FORMAT
    found = _ENVELOPE.fullmatch(tag + rest)
    if found is None:
        return MetadataProblem.DAMAGED
    flags, timestamp, offset, _ = found.groups()
    try:
        when = None if timestamp == _BEGINNING else int(timestamp)
        envelope = OffsetEnvelope(CopyFlags(int(flags, 16)), when, int(offset))
    except ArgumentError:  # nineteen digits can be more than there may be
        return MetadataProblem.DAMAGED
    # One envelope has one form, checksum included.
    return CommitMetadata(foreign, envelope) if _written(envelope) == tag + rest else MetadataProblem.DAMAGED


def compose_metadata(
    foreign: str, envelope: OffsetEnvelope, max_bytes: int = MAX_METADATA_BYTES
) -> str | MetadataProblem:
    """Return metadata with an envelope behind what others wrote, or why there is none. Nothing is ever cut off.

    `parse_metadata` returns both again. ``max_bytes`` is what the cluster takes.
    """
    check_kind("foreign", foreign, str)
    check_kind("envelope", envelope, OffsetEnvelope)
    check_int("max_bytes", max_bytes, 1)
    text = foreign + _written(envelope)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return MetadataProblem.NOT_UTF8
    return text if size <= max_bytes else MetadataProblem.TOO_LONG


def _written(envelope: OffsetEnvelope) -> str:
    when = _BEGINNING if envelope.timestamp_epoch_ms is None else envelope.timestamp_epoch_ms
    body = f"{_TAG}{_FORMAT}.{int(envelope.flags):x}.{when}.{envelope.offset}"
    return f"{body}.{crc32(body.encode()):08x}"
