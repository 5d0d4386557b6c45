"""Messages per slot and the hottest key of each, in one pass over the log: the start of bucket boundaries.

Messages are counted by key before a slot is looked at, because the slot follows from the key: with a hash that Spark
lacks, only the different keys of the log pass through Python, not its messages.
"""

from decimal import Decimal
from fractions import Fraction
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import DecimalType, IntegralType

from keyshared.buckets.boundaries import SlotLoad
from keyshared.errors import ArgumentError
from keyshared.hashing import XXH64_SEED_42, KeyHash
from keyshared.placement.protocol import Placement
from keyshared.placement.range_map import RangeMap
from keyshared.spark.columns import bucket_hash, slot

__all__ = ["loads", "slot_histogram"]

_MEASURES: Final = ("weight", "messages")


def slot_histogram(
    df: DataFrame,
    *,
    key: str = "key",
    weight: str | None = None,
    slots: KeyHash | Placement | RangeMap = XXH64_SEED_42,
) -> DataFrame:
    """Count the messages of each slot.

    Args:
        df: A log, batch.
        key: String or binary column.
        weight: Column with the weight of a message (bytes, milliseconds of work): whole numbers or decimals, not
            negative and never NULL. Floats are refused because their sum depends on the order of rows. Without a
            column each message weighs 1.
        slots: A hash means the bucket hashes that a `BucketLayout` cuts (see `bucket_hash`); a placement means its own
            slots.

    Returns:
        A row for each slot that has messages, in no order, and one with the slot NULL if there are messages without
        a key: ``slot`` (bigint), ``messages`` (bigint), ``weight`` (bigint, or decimal with a decimal weight),
        ``keys`` (bigint, the number of different keys), and the key of most weight, ``hot_key`` (of the type of the
        key), with its ``hot_messages`` and ``hot_weight``. All figures are exact, and the same however the log is
        partitioned.

    Raises:
        ArgumentError: A weight of another type, a hash of less than 32 bits, or not a placement. A weight that is
            negative or NULL fails the job, and so does a sum beyond 63 bits or 38 digits.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        One pass over the log; a row for each different key and partition is shuffled.

    Example:
        >>> df = spark.createDataFrame([("order-1", 700), ("order-1", 20)], ["key", "bytes"])
        >>> slot_histogram(df, weight="bytes").select("slot", "messages", "weight", "keys", "hot_key").collect()
        [Row(slot=50421, messages=2, weight=720, keys=1, hot_key='order-1')]
    """
    weighed = F.lit(1).cast("bigint") if weight is None else _weight(df, weight)
    number = bucket_hash("key", key_hash=slots) if isinstance(slots, KeyHash) else slot(slots, "key")
    per_key = (
        df.select(F.col(key).alias("key"), weighed.alias("weight"))
        .groupBy("key")
        .agg(F.count("*").alias("messages"), _total("weight"))
    )
    hottest = F.min_by(F.struct("key", "messages", "weight"), F.struct(-F.col("weight"), -F.col("messages"), "key"))
    per_slot = (
        per_key.withColumn("slot", number.cast("bigint"))
        .groupBy("slot")
        .agg(
            F.sum("messages").alias("messages"),
            _total("weight"),
            F.count("key").alias("keys"),
            hottest.alias("hottest"),
        )
    )
    hot = [F.col(f"hottest.{name}").alias(f"hot_{name}") for name in ("key", "messages", "weight")]
    return per_slot.select("slot", "messages", "weight", "keys", *hot)


def loads(histogram: DataFrame, *, by: str = "weight") -> dict[int, SlotLoad]:
    """Bring the loads of slots to the driver, for `keyshared.buckets.balanced_boundaries` and its like; runs the job.

    Args:
        histogram: The frame of `slot_histogram`.
        by: ``weight`` or ``messages``.

    Returns:
        The load of each slot that has one, in the order of slots: an int, or a `Fraction` with decimal weights.
        Messages without a key do not count.

    Raises:
        ArgumentError: ``by`` is another name. No job was started.

    Complexity:
        At most one row for each slot comes to the driver: 65,536 with 16 bits.

    Example:
        >>> from keyshared.buckets import balanced_boundaries
        >>> log = spark.range(100).selectExpr("'user-' || id % 7 as key")
        >>> balanced_boundaries(loads(slot_histogram(log)), 4).splits
        (29392, 43797, 52897)
    """
    if by not in _MEASURES:
        raise ArgumentError("by", by, f"be one of {', '.join(_MEASURES)}")
    rows = histogram.select("slot", by).filter("slot is not null").collect()
    return {row["slot"]: _exact(row[by]) for row in sorted(rows, key=lambda row: int(row["slot"]))}


def _weight(df: DataFrame, name: str) -> Column:
    kind = df.select(name).schema[0].dataType
    if not isinstance(kind, IntegralType | DecimalType):
        requirement = f"be a column of whole numbers or decimals, and it is {kind.simpleString()}; cast it first"
        raise ArgumentError("weight", name, requirement)
    given = F.col(name) if isinstance(kind, DecimalType) else F.col(name).cast("bigint")
    found = F.coalesce(F.col(name).cast("string"), F.lit("NULL"))
    wrong = F.raise_error(F.concat(F.lit(f"keyshared: the weight {name!r} must be at least 0, and it is "), found))
    return F.when(given >= 0, given).otherwise(wrong)


def _total(weight: str) -> Column:
    """Add weights up; outside of ANSI mode Spark would wrap too large a sum around, or make it NULL."""
    total = F.try_sum(weight)
    wrong = F.raise_error(F.lit("keyshared: the weights add up to more than Spark can hold"))
    return F.when(total.isNull(), wrong).otherwise(total).alias(weight)


def _exact(weight: int | Decimal) -> SlotLoad:
    exact = Fraction(weight)
    return exact.numerator if exact.denominator == 1 else exact
