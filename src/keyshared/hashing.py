"""Named hashes of keys: the one place where a key becomes bytes, and where its bytes get a slot.

A slot is the top bits of a key's hash. Every placement carries the name of its hash, because the same key has different
slots under different hashes, and owners are only comparable within one of them. The name includes the version of the
function (its seed or variant): a function that would place keys differently gets another name, never the same one.

The hashes of Pulsar, Danube and Celeriant are here too, for placements with the same owners as theirs. Pulsar
makes three numbers of one 32-bit murmur3: on the ring, in ranges, and raw; a number is only of use to the selector that
it was made for. Celeriant hashes the sixteen bytes of a number; in which order is written nowhere. All other numbers
that it hashes are little-endian, so that is the likely one, and the other one is here too.

>>> XXH64_SEED_42.slot(b"order-1", 16)
34068
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias, overload

from xxhash import xxh64_intdigest

from keyshared._checks import check_callable, check_int, check_text, configuration
from keyshared.errors import ArgumentError, KeySharedError, KeyTypeError, MissingExtraError, shown

__all__ = [
    "CELERIANT_BE",
    "CELERIANT_LE",
    "DANUBE_32",
    "DEFAULT_SLOT_BITS",
    "KEY_HASHES",
    "MAX_SLOT_BITS",
    "MURMUR3_32",
    "NONE_KEY",
    "PULSAR_RANGES",
    "PULSAR_RING",
    "XXH64_SEED_42",
    "Key",
    "KeyHash",
    "danube32",
    "fnv64",
    "key_bytes",
    "key_hash_named",
    "murmur3_32",
    "partition_key_bytes",
    "pulsar_range_hash",
    "pulsar_ring_hash",
    "required_key_bytes",
    "sticky_key",
]

Key: TypeAlias = str | bytes | None
"""A key: a ``str`` is its UTF-8 bytes (``"a"`` and ``b"a"`` are one key), None is no key."""

DEFAULT_SLOT_BITS: Final = 16  # 65,536 slots: Pulsar's and Celeriant's space
MAX_SLOT_BITS: Final = 32  # Danube's space

NONE_KEY: Final = b"NONE_KEY"
"""The key of a message that has neither a key nor anything to make one of."""

_MASK_31: Final = 0x7FFF_FFFF
_MASK_32: Final = 0xFFFF_FFFF
_MASK_64: Final = 0xFFFF_FFFF_FFFF_FFFF
_FNV64_OFFSET_BASIS: Final = 0xCBF2_9CE4_8422_2325
_FNV64_PRIME: Final = 0x0000_0100_0000_01B3
_FMIX32_FIRST: Final = 0x85EB_CA6B
_FMIX32_SECOND: Final = 0xC2B2_AE35
_CELERIANT_KEY_BYTES: Final = 16
_CELERIANT_SLOT_BYTES: Final = 2


@overload
def key_bytes(key: str | bytes) -> bytes: ...
@overload
def key_bytes(key: None) -> None: ...
@overload
def key_bytes(key: Key) -> bytes | None: ...
def key_bytes(key: Key) -> bytes | None:
    """Return the bytes of a key; a ``str`` becomes UTF-8 here and nowhere else.

    Nothing is normalised: two spellings of one glyph are two keys, as they are in every broker.

    Raises:
        KeyTypeError: The key is of another type (``str(1)`` and ``"1"`` would be one key), or is text that UTF-8 cannot
            express (a lone surrogate).

    Example:
        >>> key_bytes("a") == key_bytes(b"a")
        True
    """
    return None if key is None else required_key_bytes(key)


def required_key_bytes(key: Key) -> bytes:
    """Return the bytes of a key that may not be None (`ArgumentError`); raises `KeyTypeError` as `key_bytes`.

    Example:
        >>> required_key_bytes("a")
        b'a'
    """
    if isinstance(key, str):
        try:
            return str.encode(key)
        except UnicodeEncodeError:
            raise KeyTypeError("str with a lone surrogate") from None
    if isinstance(key, bytes):
        return bytes(key)  # a subclass may be equal to other bytes than its own
    if key is None:
        raise ArgumentError("key", key, "be bytes or str: a message without a key has no slot and matches no pattern")
    raise KeyTypeError(type(key).__name__)


def fnv64(data: bytes) -> int:
    """Hash bytes with 64-bit FNV-1a, by which Danube's clients choose a partition. O(len(data)).

    Example:
        >>> f"{fnv64(b''):x}"
        'cbf29ce484222325'
    """
    value = _FNV64_OFFSET_BASIS
    prime, mask = _FNV64_PRIME, _MASK_64  # locals: this loop is the cost of every Danube lookup
    for byte in data:
        value = (value ^ byte) * prime & mask
    return value


def danube32(data: bytes) -> int:
    """Hash bytes as Danube does to place keys and virtual nodes.

    It is the **64-bit** FNV-1a, folded to 32 bits by xor, then murmur3's 32-bit finaliser.

    Returns:
        An unsigned 32-bit number.

    Complexity:
        O(len(data)).

    Source:
        Danube "Key-Shared Dispatch Architecture", Consistent Hashing; the page leaves out the width and the fold.

    Example:
        >>> danube32(b"0")
        77797724
    """
    value = fnv64(data)
    value = value >> 32 ^ value & _MASK_32
    value = (value ^ value >> 16) * _FMIX32_FIRST & _MASK_32
    value = (value ^ value >> 13) * _FMIX32_SECOND & _MASK_32
    return value ^ value >> 16


def _find_murmur3() -> Callable[[bytes], int]:
    try:
        from mmh3 import mmh3_32_uintdigest  # noqa: PLC0415 - may not be installed
    except ImportError:
        return _without_mmh3
    return mmh3_32_uintdigest


def _without_mmh3(_: bytes) -> int:
    raise MissingExtraError("mmh3", "pulsar")


murmur3_32: Final = _find_murmur3()
"""Hashes bytes with the 32-bit murmur3 (x86, seed 0): an unsigned number. Raises `MissingExtraError` without ``mmh3``.

PIP-486 takes a segment from its upper half and a bucket from its lower half. Everything older in Pulsar masks it first.
"""


def _ring_slot(range_size: int, data: bytes) -> int:
    return (murmur3_32(data) & _MASK_31) % (range_size - 1) + 1


def _range_slot(range_size: int, data: bytes) -> int:
    # 0 becomes 1, which is therefore twice as likely as any other
    return (murmur3_32(data) & _MASK_31) % range_size or 1


def _find_blake3() -> Callable[[bytes], bytes]:
    try:
        from blake3 import blake3  # noqa: PLC0415 - may not be installed
    except ImportError:
        return _without_blake3
    return lambda data: blake3(data).digest(length=_CELERIANT_SLOT_BYTES)


def _without_blake3(_: bytes) -> bytes:
    raise MissingExtraError("blake3", "celeriant")


_first_bytes: Final = _find_blake3()


def _little_endian_slot(data: bytes) -> int:
    return int.from_bytes(_first_bytes(data), "little")


def _big_endian_slot(data: bytes) -> int:
    backwards = memoryview(data)[::-1]  # of bytes only: from Python 3.12 on a dictionary can be asked for a slice
    return int.from_bytes(_first_bytes(bytes(backwards)), "little")


@dataclass(frozen=True, slots=True)
class KeyHash:
    """A named hash function of keys, as an immutable value.

    Two hashes of one name and width are equal: the name stands for the function.

    Attributes:
        name: What it is called in snapshots, with the version or seed ("xxh64:42").
        bits: Width of its unsigned result.
        function: Bytes to an int in ``range(2**bits)``; at module level if maps with this hash are to be pickled. It
            may raise for a key: an `ArgumentError` then names the key, as it does if something else is returned.

    Raises:
        ConfigError: The name is empty, or the width is not an int from 1 to 64.

    Example:
        >>> XXH64_SEED_42.slot(b"order-1", 16)
        34068
    """

    name: str
    bits: int
    function: Callable[[bytes], int] = field(compare=False, repr=False)

    @configuration()
    def __post_init__(self) -> None:
        check_text("name", self.name)
        check_int("bits", self.bits, 1, most=64)
        check_callable("function", self.function, "bytes")

    def slot(self, key: bytes, slot_bits: int) -> int:
        """Return the slot of the bytes of a key: the top ``slot_bits`` bits of its hash.

        Raises:
            ArgumentError: The function raises for the key, or returns no hash; or there are too many slot bits.
        """
        if slot_bits > self.bits:
            raise ArgumentError("slot_bits", slot_bits, f"be at most {self.bits}, the bits of {self.name}")
        return self.checked()(key) >> self.bits - slot_bits

    def checked(self) -> Callable[[bytes], int]:
        """Return the function itself if the library knows the hash by name, else one that checks what it returns."""
        return self.function if self.name in KEY_HASHES else self._checked

    def _checked(self, key: bytes) -> int:
        needs = f"have a hash {self.name!r}; its function"
        try:
            hashed: object = self.function(key)
        except KeySharedError:
            raise
        except Exception as error:
            raise ArgumentError("key", key, f"{needs} raised {shown(error)}") from error
        if not isinstance(hashed, int) or hashed >> self.bits:  # something is left of what is negative or too large
            raise ArgumentError("key", key, f"{needs} returned {shown(hashed)}, and no int of {self.bits} bits")
        return hashed


def _xxh64_seed_42(data: bytes) -> int:
    return xxh64_intdigest(data, 42)  # twice as fast as a partial with a keyword


XXH64_SEED_42: Final = KeyHash("xxh64:42", 64, _xxh64_seed_42)
"""The default. Spark's built-in ``xxhash64`` of a string or binary column, read as unsigned."""

DANUBE_32: Final = KeyHash("danube32", 32, danube32)
"""The hash of Danube v0.15.1."""

MURMUR3_32: Final = KeyHash("murmur3:0", 32, murmur3_32)
"""Murmur3 as it is, which PIP-486 takes the segment and the bucket from. Needs ``keyshared[pulsar]``."""

CELERIANT_LE: Final = KeyHash("celeriant:le", 16, _little_endian_slot)
"""Celeriant's slot of `partition_key_bytes`, hashed as they are: the likely one. Needs ``keyshared[celeriant]``."""

CELERIANT_BE: Final = KeyHash("celeriant:be", 16, _big_endian_slot)
"""Celeriant's slot if it hashes the bytes the other way round. Needs ``keyshared[celeriant]``."""

_PULSAR_BITS: Final = range(1, 17)  # Pulsar's own space has 16 bits, its tests have smaller ones
_RINGS: Final = {
    1 << bits: KeyHash(f"pulsar-ring:{1 << bits}", bits, partial(_ring_slot, 1 << bits)) for bits in _PULSAR_BITS
}
_RANGES: Final = {
    1 << bits: KeyHash(f"pulsar-range:{1 << bits}", bits, partial(_range_slot, 1 << bits)) for bits in _PULSAR_BITS
}

PULSAR_RING: Final = _RINGS[1 << DEFAULT_SLOT_BITS]
"""The sticky hash of Pulsar's consistent-hashing selector, 1 to 65,535. Needs ``keyshared[pulsar]``."""

PULSAR_RANGES: Final = _RANGES[1 << DEFAULT_SLOT_BITS]
"""The sticky hash of Pulsar's selectors of ranges, 1 to 65,535 by another formula. Needs ``keyshared[pulsar]``."""

_SINGLE_HASHES: Final = (XXH64_SEED_42, DANUBE_32, MURMUR3_32, CELERIANT_LE, CELERIANT_BE)

KEY_HASHES: Final[Mapping[str, KeyHash]] = MappingProxyType(
    {h.name: h for h in (*_SINGLE_HASHES, *_RINGS.values(), *_RANGES.values())}
)
"""Every hash that this library knows by name."""


def pulsar_ring_hash(range_size: int = 1 << DEFAULT_SLOT_BITS) -> KeyHash:
    """Return the sticky hash of Pulsar's consistent-hashing selector, which is the slot itself.

    Args:
        range_size: Number of slots with slot 0, which never occurs; Pulsar has 65,536.

    Raises:
        ConfigError: Not a power of two from 2 to 65,536.

    Example:
        >>> pulsar_ring_hash() is PULSAR_RING
        True
    """
    return _sized(_RINGS, range_size)


def pulsar_range_hash(range_size: int = 1 << DEFAULT_SLOT_BITS) -> KeyHash:
    """Return the sticky hash of Pulsar's selectors of ranges; otherwise as `pulsar_ring_hash`.

    Example:
        >>> pulsar_range_hash() is PULSAR_RANGES
        True
    """
    return _sized(_RANGES, range_size)


@configuration()
def _sized(hashes: Mapping[int, KeyHash], range_size: object) -> KeyHash:
    if type(range_size) is not int or range_size not in hashes:
        raise ArgumentError("range_size", range_size, f"be a power of two from 2 to {max(hashes)}")
    return hashes[range_size]


def key_hash_named(name: object) -> KeyHash:
    """Return the hash of the library that has a name, as in `KeyHash.name`; raises `ArgumentError` if there is none.

    Example:
        >>> key_hash_named("xxh64:42") is XXH64_SEED_42
        True
    """
    found = KEY_HASHES.get(name) if isinstance(name, str) else None
    if found is None:
        single = ", ".join(h.name for h in _SINGLE_HASHES)
        raise ArgumentError(
            "hash name", name, f"be one of {single}, or pulsar-ring:N or pulsar-range:N, N a power of two"
        )
    return found


def partition_key_bytes(number: int) -> bytes:
    """Return the sixteen bytes of a partition key, little-endian, as both hashes of Celeriant here expect them.

    Raises:
        ArgumentError: Not an unsigned 128-bit number.

    Example:
        >>> partition_key_bytes(258).hex()
        '02010000000000000000000000000000'
    """
    if type(number) is not int or not 0 <= number < 1 << 8 * _CELERIANT_KEY_BYTES:
        raise ArgumentError("partition key", number, "be an int of at least 0 and below 2**128")
    return number.to_bytes(_CELERIANT_KEY_BYTES, "little")


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
