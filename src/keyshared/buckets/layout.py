"""Entry buckets (PIP-486): contiguous hash ranges that a producer batches by and a broker dispatches by.

A key's 32-bit hash has two independent halves: the high one says which segment of a topic the key belongs to, the low
one which bucket of that segment. A producer that fills its batches bucket by bucket frees a broker from looking into
them: a whole batch (an *entry*) goes to one consumer, by the lowest and highest hash stamped on it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from keyshared._checks import check_int, check_kind, check_several, checked_rows
from keyshared.errors import ArgumentError, LayoutMismatchError
from keyshared.hashing import KeyHash, required_key_bytes
from keyshared.placement.range_map import HashRange

__all__ = [
    "BUCKET_HASH",
    "HASH_STOP",
    "BadStamp",
    "BucketLayout",
    "EntryPart",
    "HashHalves",
    "Route",
    "Straddles",
    "hash_halves",
    "key_halves",
]

HASH_STOP: Final = 1 << 16
"""One past the greatest bucket hash (and the greatest segment hash)."""

_RAW_BITS: Final = 32
_RAW_STOP: Final = 1 << _RAW_BITS
_FIRST_BUCKET_STOP: Final = 2  # at least: Pulsar calls hash 0 "not set" and puts such keys at 1

_BUCKET_KEY_BYTES: Final = 2

T = TypeVar("T")


def _identity(key: bytes) -> int:
    # A key of a message is hashed by nothing, and would land anywhere.
    if type(key) is not bytes or len(key) != _BUCKET_KEY_BYTES:
        raise ArgumentError("bucket key", key, f"be {_BUCKET_KEY_BYTES} bytes, as BucketLayout.bucket_key() gives them")
    return int.from_bytes(key, "big")


BUCKET_HASH: Final = KeyHash("bucket:16", 16, _identity)
"""The hash of bucket keys (`BucketLayout.bucket_key`), which are hashes already: any other key raises ArgumentError."""


class HashHalves(NamedTuple):
    """The two halves of a key's 32-bit hash: the high one routes to a segment, the low one to a bucket."""

    segment: int
    bucket: int


def hash_halves(raw: int) -> HashHalves:
    """Split a 32-bit hash into the half that routes segments and the half that routes buckets.

    The halves share no bit, so with a hash that mixes well the buckets of one segment fill as evenly as those of the
    whole topic. Two remainders of *one* number do not: with ``h % 8`` segments and ``h % 4`` buckets all keys of a
    segment are in one bucket. ``raw`` is the whole unsigned hash of 32 bits; Pulsar masks off the sign bit everywhere
    else.

    Source:
        PIP-486, hashA and hashB.

    Example:
        >>> hash_halves(0x1234ABCD) == (0x1234, 0xABCD)
        True
    """
    if type(raw) is not int or not 0 <= raw < _RAW_STOP:
        raise ArgumentError("raw", raw, f"be an int from 0 to {_RAW_STOP - 1}: an unsigned 32-bit hash")
    return HashHalves(raw >> 16, raw & 0xFFFF)


def key_halves(key: str | bytes, key_hash: KeyHash) -> HashHalves:
    """Return both halves of a key's hash: the top 32 bits of any hash that has so many.

    A producer gives a message without a key bucket hash 0 instead. Unmasked murmur3 gives what Pulsar gives.

    Example:
        >>> from keyshared.hashing import XXH64_SEED_42
        >>> key_halves("order-1", XXH64_SEED_42)
        HashHalves(segment=34068, bucket=50421)
    """
    return hash_halves(_wide(key_hash).slot(required_key_bytes(key), _RAW_BITS))


class Straddles(NamedTuple):
    """An entry with messages of several buckets: it cannot go to one consumer as a whole.

    Its producer used another layout, or none. Split it by `BucketLayout.split`, or refuse it. Routed by its lowest hash
    alone, as the broker of PIP-486 does, the messages of all but the first bucket would reach a consumer that does not
    own their keys.
    """

    first: int
    last: int


class BadStamp(NamedTuple):
    """An entry whose stamp cannot be true: its producer is broken, and nothing is known about its messages."""

    hash_min: int
    hash_max: int


Route: TypeAlias = int | Straddles | BadStamp
"""The route of an entry: its bucket, or why it cannot go to one as it is."""


class EntryPart(NamedTuple, Generic[T]):
    """The part of an entry in one bucket, ready to be an entry of its own.

    Attributes:
        bucket: The bucket.
        hash_min: The lowest hash of the messages: the stamp of the new entry.
        hash_max: The highest.
        messages: ``(hash, payload)`` in the order they had.
    """

    bucket: int
    hash_min: int
    hash_max: int
    messages: tuple[tuple[int, T], ...]


class BucketLayout:
    """The buckets of a segment: contiguous ranges that tile the 16-bit bucket hashes; an immutable value.

    Widths may differ, so that a hot hash can have a bucket of its own (see `keyshared.buckets.boundaries`). A bucket is
    an int in ``range(len(layout))``; any other is an `ArgumentError`.

    Args:
        starts: The first hash of each bucket: 0, then growing strictly. Bucket 0 contains hashes 0 and 1 at least, as 0
            means "not set" to Pulsar's dispatcher and is handled as 1.

    Raises:
        ArgumentError: The buckets do not tile the space, or bucket 0 does not contain 0 and 1.

    Source:
        PIP-486.

    Example:
        >>> layout = BucketLayout([0, 4096, 61440])
        >>> layout.bucket_of(4095), layout.bucket_of(4096), len(layout)
        (0, 1, 3)
    """

    __slots__ = ("_splits",)

    _splits: tuple[int, ...]

    def __init__(self, starts: Iterable[int]) -> None:
        given = tuple(check_several("starts", starts, "starts of buckets"))
        if not given:
            raise ArgumentError("starts", given, "name at least one bucket")
        if type(given[0]) is not int or given[0] != 0:
            raise ArgumentError("first start", given[0], "be 0, or the lowest hashes have no bucket")
        _check_splits(given[1:])
        self._splits = given[1:]

    @classmethod
    def equal_width(cls, n: int) -> "BucketLayout":
        """Build 1 to 32,768 buckets of one width, or of two that differ by 1 where ``n`` is no power of two.

        Source:
            Pulsar's EntryBucketSplits: bucket ``i`` starts at ``i * 65536 // n``.

        Example:
            >>> BucketLayout.equal_width(3).splits
            (21845, 43690)
        """
        most = HASH_STOP // _FIRST_BUCKET_STOP
        check_int("n", n, 1, most=most)
        return cls(i * HASH_STOP // n for i in range(n))

    @classmethod
    def from_splits(cls, splits: Iterable[int]) -> "BucketLayout":
        """Build the layout from Pulsar's wire form ``entry_bucket_splits``: the starts of all buckets but the first.

        Example:
            >>> len(BucketLayout.from_splits([]))
            1
        """
        return cls((0, *splits))

    @classmethod
    def from_ranges(cls, ranges: Iterable[HashRange]) -> "BucketLayout":
        """Build the layout from the half-open ranges that a consumer declares, one for each bucket in order.

        Pulsar's ranges are inclusive: ``HashRange(start, end + 1)``.
        """
        given = tuple(check_several("ranges", ranges, "HashRanges"))
        end = 0
        for piece in given:
            check_kind("range", piece, HashRange)
            if piece.start != end:
                raise ArgumentError("start", piece.start, f"be {end}, where the bucket before it ends")
            end = piece.stop
        if given and end != HASH_STOP:
            raise ArgumentError("last stop", end, f"be {HASH_STOP}, the number of hashes")
        return cls(piece.start for piece in given)

    @property
    def starts(self) -> tuple[int, ...]:
        """The first hash of each bucket."""
        return (0, *self._splits)

    @property
    def splits(self) -> tuple[int, ...]:
        """The starts of all buckets but the first: the wire form."""
        return self._splits

    @property
    def ranges(self) -> tuple[HashRange, ...]:
        """The buckets in order."""
        return tuple(HashRange(start, stop) for start, stop in pairwise((0, *self._splits, HASH_STOP)))

    def range_of(self, bucket: int) -> HashRange:
        """Return the hashes of a bucket."""
        start = self._start_of(bucket)
        return HashRange(start, self._splits[bucket] if bucket < len(self._splits) else HASH_STOP)

    def canonical_hash(self, bucket: int) -> int:
        """Return the one hash that stands for a bucket where a broker counts by hash: its start, but never 0.

        Example:
            >>> [BucketLayout.equal_width(4).canonical_hash(bucket) for bucket in range(4)]
            [1, 16384, 32768, 49152]
        """
        return max(self._start_of(bucket), 1)

    def bucket_key(self, bucket: int) -> bytes:
        r"""Return the key under which a dispatcher serves the entries of a bucket, with a placement over `BUCKET_HASH`.

        A dispatcher keeps order and hands over by key. With the bucket as the key, entries of a bucket go to one
        consumer at a time and in order, and a bucket drains as a whole, as PIP-486 asks. The key is the canonical hash
        as two bytes, big-endian.

        Example:
            >>> BucketLayout.equal_width(4).bucket_key(3)
            b'\xc0\x00'
        """
        return self.canonical_hash(bucket).to_bytes(_BUCKET_KEY_BYTES, "big")

    def bucket_of_key(self, bucket_key: bytes) -> int:
        """Find the bucket of a `bucket_key`, as it comes back in a delivery."""
        return bisect_right(self._splits, BUCKET_HASH.function(bucket_key))

    def bucket_of(self, bucket_hash: int) -> int:
        """Find the bucket of a hash in ``range(65536)``. O(log n), n buckets.

        An entry without a stamp goes by its key: ``bucket_of(key_halves(key, key_hash).bucket)``. Pulsar's classic
        sticky hash of a key is the same number except that 0 becomes 1, and those two are always in bucket 0.
        """
        return bisect_right(self._splits, check_int("bucket hash", bucket_hash, 0, most=HASH_STOP - 1))

    def route(self, hash_min: int, hash_max: int) -> Route:
        """Route an entry by the lowest and highest bucket hash stamped on it. O(log n), n buckets.

        Returns its bucket, or `Straddles`, or `BadStamp`: a broken producer is no reason for a broker to fall over.

        Source:
            PIP-486; differs: the published broker looks at the lowest hash only.

        Example:
            >>> layout = BucketLayout.equal_width(4)
            >>> layout.route(100, 200), layout.route(100, 40_000)
            (0, Straddles(first=0, last=2))
        """
        if type(hash_min) is not int or type(hash_max) is not int:
            bound = hash_min if type(hash_min) is not int else hash_max
            raise ArgumentError(
                "bound of an entry", bound, "be an int; without a stamp, ask bucket_of() with the key's"
            )
        if not 0 <= hash_min <= hash_max < HASH_STOP:
            return BadStamp(hash_min, hash_max)
        first = bisect_right(self._splits, hash_min)
        if first == len(self._splits) or hash_max < self._splits[first]:
            return first
        return Straddles(first, bisect_right(self._splits, hash_max))

    def split(self, messages: Iterable[tuple[int, T]]) -> list[EntryPart[T]]:
        """Split the messages of an entry, ``(bucket hash, payload)`` in order, by bucket.

        All messages of a key are in one part, in the order they had. Returns a part for each bucket that has messages,
        in the order of the parts' first messages. O(m log n), m messages and n buckets.

        Example:
            >>> [part.messages for part in BucketLayout.equal_width(2).split([(9, "a"), (40_000, "b"), (7, "c")])]
            [((9, 'a'), (7, 'c')), ((40000, 'b'),)]
        """
        parts: dict[int, list[tuple[int, T]]] = {}
        given = check_several("messages", messages, "pairs of a bucket hash and a payload")
        for bucket_hash, payload in checked_rows("message", given, 2, "a bucket hash and a payload"):
            parts.setdefault(self.bucket_of(bucket_hash), []).append((bucket_hash, payload))
        return [
            EntryPart(bucket, min(m[0] for m in part), max(m[0] for m in part), tuple(part))
            for bucket, part in parts.items()
        ]

    def check_declared(self, declared: "BucketLayout") -> None:
        """Check that another consumer of the same segment declares the same buckets: entries were batched by them.

        Raises:
            LayoutMismatchError: It is another layout.
        """
        check_kind("declared", declared, BucketLayout)
        if declared != self:
            raise LayoutMismatchError(declared.starts, self.starts)

    def _start_of(self, bucket: int) -> int:
        check_int("bucket", bucket, 0, most=len(self._splits))
        return self._splits[bucket - 1] if bucket else 0

    def __len__(self) -> int:
        return len(self._splits) + 1

    def __eq__(self, other: object) -> bool:
        return self._splits == other._splits if isinstance(other, BucketLayout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._splits)

    def __repr__(self) -> str:
        return f"BucketLayout.from_splits({list(self._splits)})"

    def __reduce__(self) -> tuple[object, ...]:
        return BucketLayout, (self.starts,)


def _check_splits(splits: Sequence[int]) -> None:
    last, why = _FIRST_BUCKET_STOP - 1, "the end of what bucket 0 must contain"
    for split in splits:
        if type(split) is not int or not last < split < HASH_STOP:
            raise ArgumentError("split", split, f"be an int below {HASH_STOP} and greater than {last}, {why}")
        last, why = split, "the one before it"


def _wide(key_hash: object) -> KeyHash:
    if isinstance(key_hash, KeyHash) and key_hash.bits >= _RAW_BITS:
        return key_hash
    raise ArgumentError("key_hash", key_hash, f"be a KeyHash of at least {_RAW_BITS} bits")
