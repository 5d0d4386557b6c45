"""How Celeriant places a partition key.

A partition key is an unsigned number of 128 bits. Its slot is the first two bytes of the blake3 of its sixteen bytes,
read as little-endian. In which order those sixteen are hashed is written nowhere; all other 128-bit numbers that
Celeriant hashes are little-endian, so that is the likely one, and the other one is here too. The package ``blake3``
comes with ``keyshared[celeriant]``.
"""

from collections.abc import Callable
from typing import Final

from keyshared.errors import ArgumentError, MissingExtraError

__all__ = ["big_endian_slot", "little_endian_slot", "partition_key_bytes"]

_KEY_BYTES: Final = 16
_SLOT_BYTES: Final = 2


def _without_blake3(_: bytes) -> bytes:
    raise MissingExtraError("blake3", "celeriant")


def _find_blake3() -> Callable[[bytes], bytes]:
    try:
        from blake3 import blake3  # noqa: PLC0415 - may not be installed
    except ImportError:
        return _without_blake3
    return lambda data: blake3(data).digest(length=_SLOT_BYTES)


_first_bytes: Final = _find_blake3()


def partition_key_bytes(number: int) -> bytes:
    """Return the sixteen bytes of a partition key, little-endian, as both hashes of Celeriant here expect them.

    Raises:
        ArgumentError: Not an unsigned 128-bit number.

    Example:
        >>> partition_key_bytes(258).hex()
        '02010000000000000000000000000000'
    """
    if type(number) is not int or not 0 <= number < 1 << 8 * _KEY_BYTES:
        raise ArgumentError("partition key", number, "be an int of at least 0 and below 2**128")
    return number.to_bytes(_KEY_BYTES, "little")


def little_endian_slot(data: bytes) -> int:
    """Return Celeriant's 16-bit slot of a key if Celeriant hashes the bytes as `partition_key_bytes` returns them.

    Raises `MissingExtraError` without ``blake3``.

    Example:
        >>> little_endian_slot(partition_key_bytes(42))
        58486
    """
    return int.from_bytes(_first_bytes(data), "little")


def big_endian_slot(data: bytes) -> int:
    """Return Celeriant's 16-bit slot of a key from `partition_key_bytes` if Celeriant hashes the opposite order.

    Raises `MissingExtraError` without ``blake3``.

    Example:
        >>> big_endian_slot(partition_key_bytes(42))
        34046
    """
    backwards = memoryview(data)[::-1]  # of bytes only: from Python 3.12 on a dictionary can be asked for a slice
    return int.from_bytes(_first_bytes(bytes(backwards)), "little")
