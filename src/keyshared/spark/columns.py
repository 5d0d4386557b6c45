"""Owner, slot and bucket of a key, each as a Spark column: ``df.withColumn("owner", ks.owner(ring, "key"))``.

A placement is an immutable `RangeMap`, and its default hash is Spark's own ``xxhash64``. So the owner of a key is a
table look-up that Catalyst compiles, and no row passes through Python. All other hashes (Pulsar's murmur3, Celeriant's
blake3, Danube's FNV) run in a pandas function that hashes each different key of a batch once; the plan then shows an
``ArrowEvalPython`` with ``keyshared_`` and the name of the hash, and the workers need keyshared and the package of the
hash. Looking up what belongs to a slot is native for every hash.

A column says what the placement says when the column is made. Later changes of the placement have no effect on it.
"""

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.pandas.functions import pandas_udf

from keyshared._checks import check_kind
from keyshared.buckets.layout import BUCKET_HASH, HASH_STOP, BucketLayout
from keyshared.errors import ArgumentError
from keyshared.hashing import XXH64_SEED_42, KeyHash, required_key_bytes
from keyshared.placement.protocol import Placement
from keyshared.placement.range_map import RangeMap, check_space

__all__ = ["bucket", "bucket_hash", "bucket_owner", "owner", "slot"]

# 65,536 numbers: 130 kB of plan, and a ring of 10,000 runs has about one start in each part
_DIRECTORY_BITS: Final = 16
_MAX_CROWD: Final = 64  # each is one more comparison for every row
_RAW_BITS: Final = 32  # of the hash whose lower half is the bucket's


def owner(placement: Placement | RangeMap, key: Column | str = "key") -> Column:
    """Return the owner of each key: what ``placement.ranges.owner_of(key)`` returns in Python, for every key.

    Args:
        placement: A `RangeMap`, or an object that has one as its ``ranges``, as `HashRing` has. For a
            `BucketPlacement` and keys of messages use `bucket_owner`.
        key: String or binary column, or its name. Any other type fails when the job runs, because ``xxhash64`` of a
            number is not the hash of its text.

    Returns:
        A string column called ``owner``: NULL for a NULL key, and for a key whose slot has no owner.

    Raises:
        ArgumentError: Not a placement, or more than 64 of its runs start within one 65,536th of the space.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        O(len(key)) a row. The constants take 130 kB of the plan, and 10 to 20 bytes for each run of maps finer than
        16 bits, so do not print the plan.

    Example:
        >>> halves = RangeMap.from_stops([32768, 65536], ["a", "b"])
        >>> df = spark.createDataFrame([("order-1",), (None,)], "key string")
        >>> df.withColumn("owner", owner(halves)).collect()
        [Row(key='order-1', owner='b'), Row(key=None, owner=None)]
    """
    ranges = ranges_of(placement)
    return _owner_of_slot(slot(ranges, key), ranges)


def slot(placement: Placement | RangeMap, key: Column | str = "key") -> Column:
    """Return the slot of each key: what ``placement.ranges.slot_of(key)`` returns in Python, for every key.

    Args:
        placement: As in `owner`.
        key: As in `owner`.

    Returns:
        A bigint column called ``slot``, NULL for a NULL key.

    Raises:
        ArgumentError: Not a placement.
        MissingExtraError: The hash needs a package that is not installed.

    Example:
        >>> df = spark.createDataFrame([("order-1",), ("order-1",)], ["key"])
        >>> df.groupBy(slot(RangeMap())).count().collect()
        [Row(slot=34068, count=2)]
    """
    ranges = ranges_of(placement)
    return _hashed(key, ranges.key_hash, ranges.slot_bits).alias("slot")


def bucket_hash(key: Column | str = "key", *, key_hash: KeyHash = XXH64_SEED_42) -> Column:
    """Return the bucket hash of each key: what ``key_halves(key, key_hash).bucket`` returns in Python.

    Args:
        key: As in `owner`.
        key_hash: Any hash of at least 32 bits. `XXH64_SEED_42` is native; `MURMUR3_32` gives Pulsar's values.

    Returns:
        An int column called ``bucket_hash`` from 0 to 65,535, NULL for a NULL key (a producer stamps 0 for it).

    Raises:
        ArgumentError: The hash is narrower than 32 bits.
        MissingExtraError: The hash needs a package that is not installed.

    Source:
        PIP-486, hashB: the low half of a 32-bit hash, here of the top 32 bits. The high half is the segment's, and the
        slot of a placement with 65,536 slots.

    Example:
        >>> df = spark.createDataFrame([("order-1",), (None,)], "key string")
        >>> df.select(bucket_hash()).collect()
        [Row(bucket_hash=50421), Row(bucket_hash=None)]
    """
    check_kind("key_hash", key_hash, KeyHash)
    if key_hash.bits < _RAW_BITS:
        raise ArgumentError("key_hash", key_hash, f"be a KeyHash of at least {_RAW_BITS} bits")
    return _hashed(key, key_hash, _RAW_BITS, HASH_STOP - 1).cast("int").alias("bucket_hash")


def bucket(layout: BucketLayout, key: Column | str = "key", *, key_hash: KeyHash = XXH64_SEED_42) -> Column:
    """Return the bucket of each key: what ``layout.bucket_of(key_halves(key, key_hash).bucket)`` returns in Python.

    Args:
        layout: The buckets.
        key: As in `owner`.
        key_hash: As in `bucket_hash`.

    Returns:
        An int column called ``bucket``, NULL for a NULL key.

    Raises:
        ArgumentError: Not a layout, or the hash is narrower than 32 bits.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        O(len(key)) a row. The constant takes up to 400 kB of the plan, so do not print it.

    Example:
        >>> df = spark.createDataFrame([("order-1",), ("order-1",)], ["key"])
        >>> df.groupBy(bucket(BucketLayout.equal_width(4))).count().collect()
        [Row(bucket=3, count=2)]
    """
    check_kind("layout", layout, BucketLayout)
    numbers = [number for number, hashes in enumerate(layout.ranges) for _ in range(len(hashes))]
    return F.get(constant(numbers, "array<int>"), bucket_hash(key, key_hash=key_hash)).alias("bucket")


def bucket_owner(
    placement: Placement | RangeMap, key: Column | str = "key", *, key_hash: KeyHash = XXH64_SEED_42
) -> Column:
    """Return the owner of the bucket of each key.

    `owner` looks a key up as it is, and a placement of buckets is over bucket keys. This function takes the keys of
    *messages*: the owner is ``placement.ranges.owner(key_halves(key, key_hash).bucket)``.

    Args:
        placement: A `BucketPlacement` over `BUCKET_HASH`, its default, or its ranges.
        key: As in `owner`.
        key_hash: As in `bucket_hash`.

    Returns:
        A string column called ``owner``: NULL for a NULL key, and for a bucket without owner.

    Raises:
        ArgumentError: Not a placement of buckets, or the hash is narrower than 32 bits.
        MissingExtraError: The hash needs a package that is not installed.

    Example:
        >>> from keyshared.buckets import BucketPlacement
        >>> placement = BucketPlacement(BucketLayout.equal_width(4), ["ann", "bob"])
        >>> df = spark.createDataFrame([("order-1",), (None,)], "key string")
        >>> df.select(bucket_owner(placement)).collect()
        [Row(owner='bob'), Row(owner=None)]
    """
    ranges = ranges_of(placement)
    if ranges.key_hash != BUCKET_HASH or ranges.slot_bits != BUCKET_HASH.bits:
        requirement = f"be {BUCKET_HASH.name} with {BUCKET_HASH.bits} bits; for any other placement use owner"
        raise ArgumentError("key_hash of the placement", ranges.key_hash, requirement)
    return _owner_of_slot(bucket_hash(key, key_hash=key_hash), ranges)


def ranges_of(placement: object) -> RangeMap:
    """Return the current value of a placement.

    Args:
        placement: A `RangeMap`, or an object that has one as its ``ranges``.

    Returns:
        The value; later changes of the placement do not change it.

    Raises:
        ArgumentError: It is neither.
    """
    ranges = getattr(placement, "ranges", placement)
    if not isinstance(ranges, RangeMap):
        raise ArgumentError("placement", placement, "be a RangeMap, or have one as its ranges, as HashRing has")
    return ranges


def constant(values: Sequence[object], kind: str) -> Column:
    """Build an array that is a constant of the plan.

    It is parsed from one JSON text, which takes milliseconds; creating 65,536 literals one by one takes 17 seconds.

    Args:
        values: Numbers, texts or None.
        kind: The type of the array, as Spark writes it ("array<int>").

    Returns:
        The constant.
    """
    return F.from_json(F.lit(json.dumps(values)), kind)


def as_column(column: Column | str) -> Column:
    """Return a column, given as itself or by its name.

    Args:
        column: The column; a field of a struct is named as usual, ``"event.key"``.

    Returns:
        The column.

    Raises:
        ArgumentError: It is neither.
    """
    if isinstance(column, str):
        return F.col(column)
    if type(column).__name__ != "Column":  # Spark's own, or that of Spark Connect, which are no relatives before 4.0
        raise ArgumentError("column", column, "be a Column, or the name of one")
    return column


def owner_number(slots: Column, ranges: RangeMap) -> Column:
    """Return the position of a slot's owner in ``ranges.owners``.

    The table goes into the plan as constants. A *directory* maps the top bits of the slot (16 at most) to the run in
    which that part of the space begins. In finer maps runs begin inside a part, and as many comparisons as the most
    crowded part has *starts* find the right run.

    Args:
        slots: Whole numbers in the space of the map, or NULL.
        ranges: Who owns which slot.

    Returns:
        An int column: NULL for NULL, and for a slot without owner.

    Raises:
        ArgumentError: More than 64 runs start within one 65,536th of the space.
    """
    number = {name: index for index, name in enumerate(ranges.owners)}
    starts = [start for start, _, _ in ranges.runs]
    owners = [None if name is None else number[name] for _, _, name in ranges.runs]
    part_bits = max(ranges.slot_bits - _DIRECTORY_BITS, 0)
    directory = _directory(starts, part_bits, ranges.slot_bits)
    part = F.shiftright(slots, part_bits).cast("int")
    if part_bits == 0:
        return F.get(constant([owners[run] for run in directory], "array<int>"), part)
    crowd = max(following - first for first, following in pairwise((*directory, len(starts) - 1)))
    if crowd > _MAX_CROWD:
        requirement = (
            f"have at most {_MAX_CROWD} runs starting within one {1 << _DIRECTORY_BITS}th of the space to be looked up "
            "by Spark; build it with slot_bits=16"
        )
        raise ArgumentError("placement", f"so crowded that {crowd} start in one", requirement)
    run = F.get(constant(directory, "array<int>"), part)
    # beyond the last run: starts that no slot reaches, so that every comparison has an answer
    table = constant([*starts, *[1 << ranges.slot_bits] * crowd], "array<bigint>")
    near = F.slice(table, run + 2, crowd)
    passed = [(F.get(near, step) <= slots).cast("int") for step in range(crowd)]
    return F.get(constant(owners, "array<int>"), sum(passed, run))


def _owner_of_slot(slots: Column, ranges: RangeMap) -> Column:
    # owners are numbers until the last step, because an array of 65,536 texts is slower than one of numbers
    return F.get(constant(ranges.owners, "array<string>"), owner_number(slots, ranges)).alias("owner")


def _directory(starts: Sequence[int], part_bits: int, slot_bits: int) -> list[int]:
    """Return for each part of the space the run that holds its first slot."""
    directory = []
    run = 0
    for first in range(0, 1 << slot_bits, 1 << part_bits):
        while run + 1 < len(starts) and starts[run + 1] <= first:
            run += 1
        directory.append(run)
    return directory


def _hashed(key: Column | str, key_hash: KeyHash, bits: int, mask: int | None = None) -> Column:
    """Return the top ``bits`` of a key's hash, of them those in ``mask``; NULL for a NULL key."""
    given = as_column(key)
    # typeof is known when Spark plans, so the condition costs nothing; a text with a collation is refused too, because
    # its hash is that of its collation key
    text_or_bytes = F.when(F.typeof(given).isin("string", "binary"), given).otherwise(
        F.raise_error(F.concat(F.lit("keyshared: the key must be string or binary, and it is "), F.typeof(given)))
    )
    if key_hash != XXH64_SEED_42:
        check_space(key_hash, bits)  # a missing package raises here, not on a worker
        # as bytes: Spark's texts need not be UTF-8; by way of a text, which any type becomes
        return _in_pandas(key_hash, bits, mask)(text_or_bytes.cast("string").cast("binary"))
    top = F.shiftrightunsigned(F.xxhash64(text_or_bytes), key_hash.bits - bits)  # unsigned: Spark's hash is signed
    # NULL hashes to the seed, and would have a slot. Added as a NULL, not as a condition around the whole: a branch of
    # a condition is not shared, and the hash would be computed once for each use
    known = F.when(given.isNotNull(), F.lit(0))
    return (top if mask is None else top.bitwiseAND(mask)) + known


def _in_pandas(key_hash: KeyHash, bits: int, mask: int | None) -> Callable[[Column], Column]:
    def hashed(keys: pd.Series) -> pd.Series:
        return hashed_once(keys, key_hash, bits, mask)

    hashed.__name__ = f"keyshared_{re.sub('[^0-9a-z]+', '_', key_hash.name.lower())}"  # what explain() shows
    made: Callable[[Column], Column] = pandas_udf(hashed, "bigint")  # type: ignore[call-overload]  # not in its stubs
    return made


def hashed_once(keys: pd.Series, key_hash: KeyHash, bits: int, mask: int | None = None) -> pd.Series:
    """Hash a batch of keys, each different one once; plain pandas, needs no Spark.

    Args:
        keys: Bytes or None.
        key_hash: The hash.
        bits: How many of its top bits.
        mask: Which of those; None for all.

    Returns:
        As many integers, missing for None.
    """
    codes, different = pd.factorize(keys)
    numbers = [key_hash.slot(required_key_bytes(bytes(key)), bits) for key in different]
    table = pd.array([*(number if mask is None else number & mask for number in numbers), None], dtype="Int64")
    return pd.Series(table.take(codes))  # -1, a missing key, takes the last one
