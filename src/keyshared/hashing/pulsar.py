"""The part of a message that Apache Pulsar hashes, and its three readings of that hash.

One murmur3 of 32 bits, and three numbers made of it: on the ring, in ranges, and raw. They differ for the same key, so
a number is only of use to the selector that it was made for. The package ``mmh3`` computes murmur3; it comes with
``keyshared[pulsar]``.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Final

from keyshared._checks import check_int
from keyshared.errors import MissingExtraError

__all__ = ["NONE_KEY", "murmur3_32", "range_slot", "ring_slot", "sticky_key"]

NONE_KEY: Final = b"NONE_KEY"
"""The key of a message that has neither a key nor anything to make one of."""

_MASK_31: Final = 0x7FFF_FFFF


def _without_mmh3(_: bytes) -> int:
    raise MissingExtraError("mmh3", "pulsar")


def _find_murmur3() -> Callable[[bytes], int]:
    try:
        from mmh3 import mmh3_32_uintdigest  # noqa: PLC0415 - may not be installed
    except ImportError:
        return _without_mmh3
    return mmh3_32_uintdigest


_murmur3: Final = _find_murmur3()


def murmur3_32(data: bytes) -> int:
    """Hash bytes with the 32-bit murmur3 (x86, seed 0), unmasked: an unsigned number. O(len(data)).

    Raises `MissingExtraError` without ``mmh3``.

    Source:
        PIP-486: its upper half chooses a segment, its lower half a bucket. Everything older masks it first.

    Example:
        >>> murmur3_32(b"ab")
        2613040991
    """
    return _murmur3(data)


def ring_slot(range_size: int, data: bytes) -> int:
    """Return the sticky hash of bytes by Pulsar's consistent-hashing selector: an int from 1 to ``range_size - 1``.

    Raises:
        MissingExtraError: ``mmh3`` is not installed.
        ArgumentError: ``range_size`` is not an int of at least 2.

    Example:
        >>> ring_slot(65536, b"a")
        42456
    """
    check_int("range_size", range_size, 2)
    return ring_slot_unchecked(range_size, data)


def range_slot(range_size: int, data: bytes) -> int:
    """Return the sticky hash of bytes by Pulsar's selectors of ranges: split, exclusive, buckets.

    It is an int from 1 to ``range_size - 1``: 0 becomes 1, which is therefore twice as likely as any other.

    Raises:
        MissingExtraError: ``mmh3`` is not installed.
        ArgumentError: ``range_size`` is not an int of at least 1.

    Example:
        >>> range_slot(65536, b"a")
        27058
    """
    check_int("range_size", range_size, 1)
    return range_slot_unchecked(range_size, data)


def ring_slot_unchecked(range_size: int, data: bytes) -> int:
    """`ring_slot` of a size that was checked once, for every message."""
    return (_murmur3(data) & _MASK_31) % (range_size - 1) + 1


def range_slot_unchecked(range_size: int, data: bytes) -> int:
    """`range_slot` of a size that was checked once, for every message."""
    return (_murmur3(data) & _MASK_31) % range_size or 1


def sticky_key(
    *,
    ordering_key: bytes | None = None,
    key: str | None = None,
    key_is_base64: bool = False,
    producer: str | None = None,
    sequence_id: int | None = None,
) -> str | bytes:
    """Choose what Pulsar hashes of a message: its ordering key, else its key, else its producer and number.

    Without any key every message is placed by itself, so that messages without keys spread over the consumers. Of a
    batch only the metadata around it counts: one key for the whole entry.

    Args:
        ordering_key: The ordering key, if there is one; an empty one counts.
        key: The partition key, if there is one.
        key_is_base64: Whether the partition key is base64 of the real one, as the metadata's flag says.
        producer: Name of the producer.
        sequence_id: The message's number at its producer.

    Returns:
        A key for `owner_of` and all others, still text where Pulsar takes its UTF-8. `NONE_KEY` if nothing is there or
        base64 was promised and is not there: what a peer sent is no reason to raise.

    Example:
        >>> sticky_key(key="order-1"), sticky_key(key="b3JkZXI=", key_is_base64=True)
        ('order-1', b'order')
        >>> sticky_key(producer="p", sequence_id=7)
        'p-7'
    """
    if ordering_key is not None:
        return ordering_key
    if key is not None:
        return _decoded(key) if key_is_base64 else key
    if producer is not None and sequence_id is not None:
        return f"{producer}-{sequence_id}"
    return NONE_KEY


def _decoded(text: str) -> bytes:
    try:
        # Java's decoder does without the padding
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (Base64Error, ValueError):
        return NONE_KEY
