"""Which bucket a key is in, and who owns it: PIP-486's entry buckets as Spark expressions.

A key's bucket follows from its bucket hash (see `keyshared.spark.columns.slots`: native, or through Arrow for hashes
that Spark lacks) by a table of 65,536 numbers that is a constant of the plan.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared._checks import check_kind
from keyshared.buckets.layout import BUCKET_HASH, BucketLayout
from keyshared.errors import ArgumentError
from keyshared.hashing.named import XXH64_SEED_42, KeyHash
from keyshared.placement.protocol import Placement
from keyshared.placement.ranges import RangeMap
from keyshared.spark.columns.owners import owner_of_slot
from keyshared.spark.columns.slots import bucket_hash, ranges_of
from keyshared.spark.frames.checks import check_key, check_new
from keyshared.spark.frames.tables import constant

__all__ = ["bucket", "bucket_owner", "bucket_ranges_of", "check_layout", "with_bucket", "with_bucket_owner"]


def with_bucket(
    df: DataFrame, layout: BucketLayout, *, key: str = "key", into: str = "bucket", key_hash: KeyHash = XXH64_SEED_42
) -> DataFrame:
    """Add a column with the bucket of each row's key.

    The bucket is ``layout.bucket_of(key_halves(key, key_hash).bucket)`` in Python, for every key and every hash.

    Args:
        df: Any frame, batch or streaming.
        layout: The buckets.
        key: Name of the key column, string or binary. A field of a struct is written as usual, ``"event.key"``.
        into: Name of the new column.
        key_hash: Any hash of at least 32 bits: `XXH64_SEED_42` is native, `MURMUR3_32` answers what Pulsar answers.

    Returns:
        The frame with the column ``into`` (int) added; NULL where there is no key.

    Raises:
        ArgumentError: No such column, or one of another type; ``into`` is taken; or the layout or the hash is none. No
            job was started.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        O(len(key)) a row.

    Example:
        >>> layout = BucketLayout.equal_width(4)
        >>> with_bucket(spark.createDataFrame([("order-1",)], ["key"]), layout).collect()
        [Row(key='order-1', bucket=3)]
    """
    check_key(df, key)
    check_new(df, into)
    return df.withColumn(into, bucket(F.col(key), layout, key_hash=key_hash))


def bucket(key: Column, layout: BucketLayout, *, key_hash: KeyHash = XXH64_SEED_42) -> Column:
    """Return the bucket of a key as a column expression.

    Args:
        key: String or binary column; any other type fails when the job runs (`with_bucket` says so before).
        layout: The buckets.
        key_hash: As in `with_bucket`.

    Returns:
        An int column called ``bucket``, NULL for a NULL key.

    Raises:
        ArgumentError: The layout or the hash is none.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        O(len(key)) a row. The constant takes up to 400 kB of the plan: do not print it.

    Example:
        >>> df = spark.createDataFrame([("order-1",), ("order-1",)], ["key"])
        >>> df.groupBy(bucket(F.col("key"), BucketLayout.equal_width(4))).count().collect()
        [Row(bucket=3, count=2)]
    """
    check_layout(layout)
    numbers = [number for number, hashes in enumerate(layout.ranges) for _ in range(len(hashes))]
    return F.get(constant(numbers, "array<int>"), bucket_hash(key, key_hash=key_hash)).alias("bucket")


def with_bucket_owner(
    df: DataFrame,
    placement: Placement | RangeMap,
    *,
    key: str = "key",
    into: str = "owner",
    key_hash: KeyHash = XXH64_SEED_42,
) -> DataFrame:
    """Add a column with the owner of the bucket that each row's key is in.

    `with_owner` looks a key up as it stands, and a placement of buckets is over bucket keys; this takes the keys of
    *messages*: the owner is ``placement.ranges.owner(key_halves(key, key_hash).bucket)``.

    Args:
        df: Any frame, batch or streaming.
        placement: A `BucketPlacement` over `BUCKET_HASH`, its default, or its ranges. What it says now is what counts.
        key: Name of the key column, string or binary.
        into: Name of the new column.
        key_hash: As in `with_bucket`.

    Returns:
        The frame with the column ``into`` (string) added; NULL where there is no key, and for a bucket without owner.

    Raises:
        ArgumentError: No such column, or one of another type; ``into`` is taken; no placement of buckets; or the hash
            is none. No job was started.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        O(len(key)) a row.

    Example:
        >>> from keyshared.buckets import BucketPlacement
        >>> placement = BucketPlacement(BucketLayout.equal_width(4), ["ann", "bob"])
        >>> with_bucket_owner(spark.createDataFrame([("order-1",)], ["key"]), placement).collect()
        [Row(key='order-1', owner='bob')]
    """
    check_key(df, key)
    check_new(df, into)
    return df.withColumn(into, bucket_owner(F.col(key), placement, key_hash=key_hash))


def bucket_owner(key: Column, placement: Placement | RangeMap, *, key_hash: KeyHash = XXH64_SEED_42) -> Column:
    """Return the owner of a key's bucket as a column expression.

    Args:
        key: String or binary column; any other type fails when the job runs.
        placement: As in `with_bucket_owner`.
        key_hash: As in `with_bucket`.

    Returns:
        A string column called ``owner``: NULL for a NULL key, and for a bucket without owner.

    Raises:
        ArgumentError: No placement of buckets, or the hash is none.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        O(len(key)) a row.

    Example:
        >>> from keyshared.buckets import BucketPlacement
        >>> placement = BucketPlacement(BucketLayout.equal_width(4), ["ann", "bob"])
        >>> df = spark.createDataFrame([("order-1",), (None,)], "key string")
        >>> df.select(bucket_owner(F.col("key"), placement)).collect()
        [Row(owner='bob'), Row(owner=None)]
    """
    ranges = bucket_ranges_of(placement)
    return owner_of_slot(bucket_hash(key, key_hash=key_hash), ranges).alias("owner")


def bucket_ranges_of(placement: object) -> RangeMap:
    """Take a placement of buckets as it stands now.

    Args:
        placement: A `BucketPlacement` over `BUCKET_HASH`, or its ranges.

    Returns:
        The value.

    Raises:
        ArgumentError: It is none, or not of buckets.
    """
    ranges = ranges_of(placement)
    if ranges.key_hash != BUCKET_HASH or ranges.slot_bits != BUCKET_HASH.bits:
        requirement = f"be {BUCKET_HASH.name} with {BUCKET_HASH.bits} bits; for any other placement use with_owner"
        raise ArgumentError("key_hash of the placement", ranges.key_hash, requirement)
    return ranges


def check_layout(layout: object) -> None:
    """Check that something is a layout.

    Args:
        layout: What is to be checked.

    Raises:
        ArgumentError: It is none.
    """
    check_kind("layout", layout, BucketLayout)
