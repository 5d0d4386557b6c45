"""The slot of a key: a native expression if Spark has the hash, otherwise an Arrow function.

Spark's ``xxhash64`` is `XXH64_SEED_42`, the default of every placement, so there no row passes through Python. All
other hashes (Pulsar's murmur3, Celeriant's blake3, Danube's FNV) are computed by the very functions of
`keyshared.hashing`, in an Arrow function that hashes each different key of a batch once. That is the same answer at
about five times the cost of reading the rows, and the plan says so: it has an ``ArrowEvalPython`` with ``keyshared_``
and the name of the hash. Only the slot is computed there; looking up what belongs to it is native for every hash.

An Arrow function runs on the workers: they need keyshared, and the package of the hash (``keyshared[pulsar]``,
``keyshared[celeriant]``).
"""

import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.buckets.layout import HASH_STOP
from keyshared.errors import ArgumentError
from keyshared.hashing.named import XXH64_SEED_42, KeyHash, required_key_bytes
from keyshared.placement.protocol import Placement
from keyshared.placement.ranges import RangeMap, check_space
from keyshared.spark.frames.checks import check_key, check_new
from keyshared.spark.versions import array_function

__all__ = ["bucket_hash", "check_wide", "hashed_once", "ranges_of", "slot", "with_slot"]

_KEY_TYPES: Final = ("string", "binary")
_RAW_BITS: Final = 32  # of the hash whose lower half is the bucket's


def with_slot(df: DataFrame, placement: Placement | RangeMap, *, key: str = "key", into: str = "slot") -> DataFrame:
    """Add a column with the slot of each row's key.

    The slot is the one that ``placement.ranges.slot_of(key)`` gives in Python, for every key and every hash.

    Args:
        df: Any frame, batch or streaming.
        placement: A `RangeMap`, or anything that builds one.
        key: Name of the key column, string or binary. A field of a struct is written as usual, ``"event.key"``.
        into: Name of the new column.

    Returns:
        The frame with the column ``into`` (bigint) added; NULL where there is no key.

    Raises:
        ArgumentError: No such column, or one of another type; ``into`` is taken; or not a placement. No job was
            started.

    Complexity:
        O(len(key)) a row; native or through Arrow, see the module.

    Example:
        >>> halves = RangeMap.from_stops([32768, 65536], ["a", "b"])
        >>> with_slot(spark.createDataFrame([("order-1",)], ["key"]), halves).collect()
        [Row(key='order-1', slot=34068)]
    """
    check_key(df, key)
    check_new(df, into)
    return df.withColumn(into, slot(F.col(key), placement))


def slot(key: Column, placement: Placement | RangeMap) -> Column:
    """Return the slot of a key as a column expression.

    Args:
        key: String or binary column; any other type fails when the job runs (`with_slot` says so before).
        placement: A `RangeMap`, or anything that builds one.

    Returns:
        A bigint column called ``slot``, NULL for a NULL key.

    Raises:
        ArgumentError: Not a placement.

    Complexity:
        O(len(key)) a row; native or through Arrow, see the module.

    Example:
        >>> df = spark.createDataFrame([("order-1",), ("order-1",)], ["key"])
        >>> df.groupBy(slot(F.col("key"), RangeMap())).count().collect()
        [Row(slot=34068, count=2)]
    """
    ranges = ranges_of(placement)
    return _hashed(key, ranges.key_hash, ranges.slot_bits).alias("slot")


def bucket_hash(key: Column, *, key_hash: KeyHash = XXH64_SEED_42) -> Column:
    """Return the bucket hash of a key, ``key_halves(key, key_hash).bucket``, as a column expression.

    Args:
        key: String or binary column; any other type fails when the job runs.
        key_hash: Any hash of at least 32 bits: `XXH64_SEED_42` is native, `MURMUR3_32` answers what Pulsar answers.

    Returns:
        An int column called ``bucket_hash`` from 0 to 65,535, NULL for a NULL key (a producer stamps 0 for it).

    Raises:
        ArgumentError: The hash is narrower than 32 bits.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        O(len(key)) a row; native or through Arrow, see the module.

    Source:
        PIP-486, hashB: the low half of a 32-bit hash, here of the top 32 bits. The high half is the segment's, and the
        slot of a placement with 65,536 slots.

    Example:
        >>> df = spark.createDataFrame([("order-1",), (None,)], "key string")
        >>> df.select(bucket_hash(F.col("key"))).collect()
        [Row(bucket_hash=50421), Row(bucket_hash=None)]
    """
    check_wide(key_hash)
    return _hashed(key, key_hash, _RAW_BITS, HASH_STOP - 1).cast("int").alias("bucket_hash")


def ranges_of(placement: object) -> RangeMap:
    """Take a placement as it stands now.

    Args:
        placement: A `RangeMap`, or anything that builds one.

    Returns:
        The value: what changes later does not change it.

    Raises:
        ArgumentError: It is neither.
    """
    ranges = getattr(placement, "ranges", placement)
    if not isinstance(ranges, RangeMap):
        raise ArgumentError("placement", placement, "be a RangeMap, or have one as its ranges, as HashRing has")
    return ranges


def check_wide(key_hash: object) -> None:
    """Check that a hash has two halves, and that its package is there.

    Args:
        key_hash: What is to be checked.

    Raises:
        ArgumentError: It is no hash of at least 32 bits.
        MissingExtraError: It needs a package that is not installed.
    """
    if not isinstance(key_hash, KeyHash) or key_hash.bits < _RAW_BITS:
        raise ArgumentError("key_hash", key_hash, f"be a KeyHash of at least {_RAW_BITS} bits")
    check_space(key_hash, _RAW_BITS)  # a missing package raises here, not on a worker


def _hashed(key: Column, key_hash: KeyHash, bits: int, mask: int | None = None) -> Column:
    """Return the top ``bits`` of a key's hash, of them those in ``mask``; NULL for a NULL key."""
    text_or_bytes = F.when(F.typeof(key).isin(*_KEY_TYPES), key).otherwise(
        F.raise_error(F.concat(F.lit("keyshared: the key must be string or binary, it is "), F.typeof(key)))
    )
    if key_hash != XXH64_SEED_42:
        # as bytes: what Spark takes for a text need not be one to Python; by way of a text, which any type becomes
        return _in_arrow(key_hash, bits, mask)(text_or_bytes.cast("string").cast("binary"))
    top = F.shiftrightunsigned(F.xxhash64(text_or_bytes), key_hash.bits - bits)  # unsigned: Spark's hash is signed
    # NULL hashes to the seed, and would have a slot. Added as a NULL, not as a condition around the whole: what
    # stands in a branch is not shared, and the hash would be computed once for each use
    known = F.when(key.isNotNull(), F.lit(0))
    return (top if mask is None else top.bitwiseAND(mask)) + known


def _in_arrow(key_hash: KeyHash, bits: int, mask: int | None) -> Callable[[Column], Column]:
    def hashed(keys: pa.Array) -> pa.Array:
        return hashed_once(keys, key_hash, bits, mask)

    hashed.__name__ = f"keyshared_{re.sub('[^0-9a-z]+', '_', key_hash.name.lower())}"  # what explain() shows
    return array_function(hashed, "bigint")


def hashed_once(keys: pa.Array, key_hash: KeyHash, bits: int, mask: int | None) -> pa.Array:
    """Hash a batch of keys, each different one once; plain Arrow, needs no Spark.

    Args:
        keys: Texts or bytes, of any Arrow type that holds them.
        key_hash: The hash.
        bits: How many of its top bits.
        mask: Which of those; None for all.

    Returns:
        As many int64, null for a null.

    Complexity:
        O(length of all keys) to tell them apart in C++, and O(length of the different keys) to hash them in Python.
    """
    encoded = keys.dictionary_encode()
    numbers = [key_hash.slot(required_key_bytes(key), bits) for key in encoded.dictionary.to_pylist()]
    kept = numbers if mask is None else [number & mask for number in numbers]
    return pa.array(kept, pa.int64()).take(encoded.indices)
