"""Key statistics of a log: what each slot carries and which of its keys is the hottest, in one pass over the log.

Messages are counted by key before a slot is looked at, because the slot follows from the key: with a hash that Spark
lacks only the different keys of the log pass through Python, not its messages.

What comes out is what `keyshared.buckets.boundaries` starts from: bucket boundaries, owners by load, and the slots that
no boundary can help.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from os import PathLike
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import DecimalType, IntegralType

from keyshared._checks import check_int
from keyshared.buckets.boundaries import SlotLoad
from keyshared.buckets.boundaries import balanced_boundaries as boundaries_of
from keyshared.buckets.layout import BucketLayout
from keyshared.errors import ArgumentError
from keyshared.hashing.named import XXH64_SEED_42, KeyHash
from keyshared.placement.protocol import Placement
from keyshared.placement.ranges import RangeMap
from keyshared.simulate.summary import DEFAULT_HOTTEST
from keyshared.spark.columns.slots import bucket_hash, ranges_of, slot
from keyshared.spark.frames.checks import WHOLE, check_columns, check_key, type_of
from keyshared.spark.keystats.bucket_figures import BUCKETS, CONSUMERS
from keyshared.spark.keystats.counts import KeyCounts, SlotCount
from keyshared.spark.keystats.histogram_report import html
from keyshared.spark.pages.page import check_words, checked_target

__all__ = ["KeyHistogram", "balanced_boundaries", "collect_histogram", "key_histogram"]

_MEASURES: Final = ("weight", "messages")
_COLUMNS: Final = ("slot", "messages", "weight", "keys", "hot_key", "hot_messages", "hot_weight")


@dataclass(frozen=True, slots=True)
class KeyHistogram(KeyCounts):
    """The statistics of a log, at the driver: what its slots carry, and a page about that.

    Example:
        >>> count = SlotCount(messages=3, weight=900, keys=2, hot_key=b"a", hot_messages=2, hot_weight=800)
        >>> KeyHistogram({34068: count}, 0, 0).weights
        {34068: 900}
    """

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str = "Keys of a log",
        about: str = "",
        placement: Placement | RangeMap | None = None,
        consumers: Sequence[str] = CONSUMERS,
        buckets: int = BUCKETS,
        hottest: int = DEFAULT_HOTTEST,
    ) -> None:
        """Write a page about the hottest keys, and about what owners or buckets carry. Starts no job.

        Args:
            path: Where, on this machine; an older file is replaced.
            title: Headline.
            about: What log it is of, for the reader.
            placement: The placement over whose slots the histogram is, if it is: what each owner carries is shown
                then; otherwise bucket boundaries of equal width are compared with balanced ones.
            consumers: The consumers that share the buckets.
            buckets: How many buckets there are.
            hottest: How many of the hottest keys are shown.

        Raises:
            ArgumentError: ``path`` is in no folder, ``consumers`` is empty, or ``buckets``, ``hottest`` or
                ``placement`` cannot be. Nothing is written.
            MissingExtraError: ``keyshared[demo]``, which draws pages, is not installed.

        Complexity:
            O(slots log slots); the file stays below 1.1 MB.

        Example:
            >>> collect_histogram(key_histogram(df)).report("keys.html", about="orders of May")  # doctest: +SKIP
        """
        target = checked_target(path)
        check_words(title, about)
        check_int("hottest", hottest, 0)
        made = html(
            self,
            title=title,
            about=about,
            hottest=hottest,
            consumers=consumers,
            buckets=buckets if placement is None else None,
            owners=None if placement is None else ranges_of(placement),
        )
        target.write_text(made, encoding="utf-8")


def key_histogram(
    df: DataFrame,
    *,
    key: str = "key",
    weight: str | None = None,
    slots: KeyHash | Placement | RangeMap = XXH64_SEED_42,
) -> DataFrame:
    """Count what each slot carries.

    Args:
        df: A log, batch.
        key: Name of the key column, string or binary.
        weight: Name of a column with what a message weighs (bytes, milliseconds of work): whole numbers or decimals,
            not negative and never NULL. Floats are refused because their sum depends on the order of rows; without a
            column each message weighs 1.
        slots: What is a slot: a hash means the bucket hashes that a `BucketLayout` cuts (see `bucket_hash`); a
            placement means its own slots.

    Returns:
        A row for each slot that has messages, in no order, and one with the slot NULL if there are messages without
        a key: ``slot`` (bigint), ``messages`` (bigint), ``weight`` (bigint, or decimal with a decimal weight),
        ``keys`` (bigint, how many different ones), and the key of most weight, ``hot_key`` (of the type of the key),
        with its ``hot_messages`` and ``hot_weight``. All figures are exact, and the same however the log is
        partitioned.

    Raises:
        ArgumentError: No such column, or one of another type; a hash of less than 32 bits; or no placement. No job was
            started. A weight that is negative or NULL fails the job.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        One pass over the log; what is shuffled is a row for each different key and partition. A sum beyond 63 bits, or
        beyond 38 digits of decimals, fails the job.

    Example:
        >>> df = spark.createDataFrame([("order-1", 700), ("order-1", 20)], ["key", "bytes"])
        >>> key_histogram(df, weight="bytes").select("slot", "messages", "weight", "keys", "hot_key").collect()
        [Row(slot=50421, messages=2, weight=720, keys=1, hot_key='order-1')]
    """
    check_key(df, key)
    weighed = F.lit(1).cast("bigint") if weight is None else _weight(df, weight)
    number = bucket_hash(F.col("key"), key_hash=slots) if isinstance(slots, KeyHash) else slot(F.col("key"), slots)
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


def collect_histogram(counted: DataFrame) -> KeyHistogram:
    """Bring a histogram to the driver; runs the job.

    Args:
        counted: What `key_histogram` gave.

    Returns:
        At most one entry for each slot, and with 16 bits at most 65,536.

    Raises:
        ArgumentError: A column of `key_histogram` is missing. No job was started.

    Example:
        >>> counted = key_histogram(spark.createDataFrame([("order-1",), (None,)], "key string"))
        >>> statistics = collect_histogram(counted)
        >>> statistics.weights, statistics.keyless_messages
        ({50421: 1}, 1)
    """
    for column in _COLUMNS:
        type_of(counted, column)
    rows = counted.select(*_COLUMNS).withColumn("hot_key", F.col("hot_key").cast("binary")).collect()
    keyless = [row for row in rows if row["slot"] is None]
    keyed = sorted((row for row in rows if row["slot"] is not None), key=lambda row: int(row["slot"]))
    return KeyHistogram(
        {row["slot"]: _slot_count(row) for row in keyed},
        sum(row["messages"] for row in keyless),
        sum(_load(row["weight"]) for row in keyless),
    )


def balanced_boundaries(counted: DataFrame, n: int, *, by: str = "weight") -> BucketLayout:
    """Place the boundaries of buckets by a histogram that is a frame; runs the job.

    The same as `keyshared.buckets.balanced_boundaries` over ``collect_histogram(counted).weights``, but only two
    columns come to the driver.

    Args:
        counted: What `key_histogram` gave for a hash, the bucket hashes. Slots of a placement are another part of the
            hash and say nothing of buckets; a frame does not show which they are.
        n: How many buckets, from 1 to 32,768.
        by: What is to be even: the column ``weight``, or ``messages``.

    Returns:
        The layout. Messages without a key do not count.

    Raises:
        ArgumentError: ``by`` is another one, or a column is missing or of another type; no job was started. Or ``n`` is
            no such number, or a slot is no bucket hash.

    Complexity:
        At most 65,536 rows come to the driver; then see `keyshared.buckets.balanced_boundaries`.

    Example:
        >>> log = spark.range(100).selectExpr("'user-' || id % 7 as key")
        >>> balanced_boundaries(key_histogram(log), 4).splits
        (29392, 43797, 52897)
    """
    BucketLayout.equal_width(n)  # says what is wrong with it
    if by not in _MEASURES:
        raise ArgumentError("by", by, f"be one of {', '.join(_MEASURES)}")
    kind = type_of(counted, by)
    if not isinstance(kind, IntegralType | DecimalType):
        raise ArgumentError("column", by, f"be whole numbers or decimals, and it is {kind.simpleString()}")
    check_columns(counted, {"slot": WHOLE})
    rows = counted.select("slot", by).filter("slot is not null").collect()
    return boundaries_of({row["slot"]: _load(row[by]) for row in rows}, n)


def _weight(df: DataFrame, name: str) -> Column:
    kind = type_of(df, name)
    if not isinstance(kind, IntegralType | DecimalType):
        requirement = f"be a column of whole numbers or decimals, and it is {kind.simpleString()}; cast it first"
        raise ArgumentError("weight", name, requirement)
    given = F.col(name) if isinstance(kind, DecimalType) else F.col(name).cast("bigint")
    told = F.coalesce(F.col(name).cast("string"), F.lit("NULL"))
    wrong = F.raise_error(F.concat(F.lit(f"keyshared: the weight {name!r} must be at least 0, and it is "), told))
    return F.when(given >= 0, given).otherwise(wrong)


def _total(weight: str) -> Column:
    """Add weights up; outside of ANSI mode Spark would wrap too large a sum around, or make it NULL."""
    total = F.try_sum(weight)
    wrong = F.raise_error(F.lit("keyshared: the weights add up to more than Spark can hold"))
    return F.when(total.isNull(), wrong).otherwise(total).alias(weight)


def _slot_count(row: Row) -> SlotCount:
    return SlotCount(
        messages=row["messages"],
        weight=_load(row["weight"]),
        keys=row["keys"],
        hot_key=bytes(row["hot_key"]),
        hot_messages=row["hot_messages"],
        hot_weight=_load(row["hot_weight"]),
    )


def _load(weight: int | Decimal) -> SlotLoad:
    exact = Fraction(weight)
    return exact.numerator if exact.denominator == 1 else exact
