"""A first audit of a delivery log: was every key at one consumer at a time, in order, and was nothing lost?

Two steps, so that a log without faults costs no Python:

1. *Screen*, native: within a lane, in the order of delivery, each delivery must have ended before the next one starts,
   and the next one is either a newer message after this one was settled, or the same message again if it was not. A
   lane in which this holds from row to row breaks no promise: offsets never fall, nothing overlaps, nothing is left
   behind.
2. *Proof*, Python: lanes that fail the screen are replayed exactly (`lanes.audit_lane`). They need not be wrong: with a
   per-key limit above 1, messages of a key are out side by side.

Only the second step decides, so the answer depends neither on the number of partitions nor on the per-key limit.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.columns import check_columns, check_key
from keyshared.spark.deliveries import VIOLATION_SCHEMA
from keyshared.spark.lanes import Attempt, audit_lane

__all__ = ["PROMISES", "check_deliveries", "check_offered", "check_order", "count_by_promise"]

PROMISES: Final = ("one-holder", "key-order", "no-loss", "fence")
"""What is checked, by the ids of the dispatcher's promises."""

_DELIVERIES: Final = {
    "topic_partition": ("string",),
    "offset": ("bigint",),
    "key": ("binary", "string"),
    "consumer": ("string",),
    "attempt": ("int", "bigint"),
    "sequence": ("bigint",),
    "end_sequence": ("bigint",),
    "settled_sequence": ("bigint",),
}
_OFFERED: Final = {"topic_partition": ("string",), "offset": ("bigint",)}
_LANE: Final = ("topic_partition", "key", "_keyless")  # every message without a key is a lane of its own
_BATCH_ROWS: Final = 10_000
_VIOLATION: Final = pa.schema(
    [
        ("promise", pa.string()),
        ("topic_partition", pa.string()),
        ("key", pa.binary()),
        ("offset", pa.int64()),
        ("other_offset", pa.int64()),
        ("sequence", pa.int64()),
        ("explanation", pa.string()),
    ]
)


def check_order(deliveries: DataFrame, *, offered: DataFrame | None = None) -> DataFrame:
    """Audit a delivery log against the promises one-holder, key-order, no-loss and fence.

    Args:
        deliveries: One row for each delivery, with the columns of `DELIVERY_SCHEMA` that say who got what in which
            order: ``topic_partition, offset, key, consumer, attempt, sequence, end_sequence, settled_sequence``. More
            columns do no harm.
        offered: What must have been settled by the end of the history: ``topic_partition`` and ``offset``, and ``key``
            if it is to be shown. Leave out what was still outstanding then, and what a policy skipped or dropped
            without a delivery. Without this frame, lost messages cannot be told from outstanding ones.

    Returns:
        One row for each violation, see `VIOLATION_SCHEMA`; none if all promises were kept. Lazy, as every frame is.

    Raises:
        ConfigError: A column is missing or of another type. No job was started.

    Complexity:
        One shuffle and sort of the deliveries, in native code; Python sees only lanes that are not strictly one after
        the other, one lane in memory at a time. ``offered`` costs one more shuffle.

    Example:
        >>> columns = "topic_partition string, offset long, key string, consumer string, attempt int, sequence long, "
        >>> columns += "end_sequence long, settled_sequence long"
        >>> rows = [("p", 0, "k", "ann", 1, 0, 2, 2), ("p", 1, "k", "bob", 1, 1, 3, 3)]
        >>> check_order(spark.createDataFrame(rows, columns)).select("promise", "offset", "other_offset").collect()
        [Row(promise='one-holder', offset=1, other_offset=0)]
    """
    check_deliveries(deliveries)
    if offered is not None:
        check_offered(offered)
    lanes = deliveries.select(
        "topic_partition",
        F.col("key").cast("binary").alias("key"),
        F.when(F.col("key").isNull(), F.col("offset")).alias("_keyless"),
        "offset",
        "consumer",
        F.col("attempt").cast("bigint").alias("attempt"),
        "sequence",
        "end_sequence",
        "settled_sequence",
    )
    found = _screened(lanes).mapInArrow(audit_batches, VIOLATION_SCHEMA)
    return found if offered is None else found.unionByName(_lost(lanes, offered))


def count_by_promise(violations: DataFrame) -> dict[str, int]:
    """Count violations; runs the job.

    Args:
        violations: What `check_order` gave.

    Returns:
        A count for each of `PROMISES`, 0 included.

    Example:
        >>> count_by_promise(spark.createDataFrame([("fence",)], ["promise"]))
        {'one-holder': 0, 'key-order': 0, 'no-loss': 0, 'fence': 1}
    """
    counts = {row[0]: row[1] for row in violations.groupBy("promise").count().collect()}
    return {promise: counts.get(promise, 0) for promise in PROMISES}


def check_deliveries(deliveries: DataFrame) -> None:
    """Check that a frame has the columns of a delivery log that an audit reads.

    Args:
        deliveries: See `check_order`.

    Raises:
        ConfigError: A column is missing or of another type.
    """
    check_columns(deliveries, _DELIVERIES)


def check_offered(offered: DataFrame) -> None:
    """Check that a frame names messages.

    Args:
        offered: See `check_order`.

    Raises:
        ConfigError: A column is missing or of another type.
    """
    check_columns(offered, _OFFERED)
    if "key" in {name.casefold() for name in offered.columns}:
        check_key(offered, "key")


def _screened(lanes: DataFrame) -> DataFrame:
    """Keep the lanes that are not strictly one delivery after the other; the rows of a lane stay together."""
    lane = Window.partitionBy(*_LANE)
    in_order = lane.orderBy("sequence")
    before = F.lag(F.struct("offset", "attempt", "end_sequence", "settled_sequence")).over(in_order)
    # one window function for one look back: four lag() would be four
    looked = lanes.withColumn("_before", before)
    looked = looked.withColumn("_fails", F.max(~F.coalesce(_follows(), F.lit(False))).over(lane))
    return looked.filter("_fails").drop("_before", "_fails")


def _follows() -> Column:
    """This delivery may follow the one before it in its lane; NULL where something is missing."""
    before = F.col("_before")
    ended = before["end_sequence"] <= F.col("sequence")
    settled = before["settled_sequence"] <= F.col("sequence")
    newer = settled & (before["offset"] < F.col("offset"))
    again = (
        before["settled_sequence"].isNull()
        & (before["offset"] == F.col("offset"))
        & (before["attempt"] < F.col("attempt"))
    )
    # what the exact audit refuses must reach it
    sane = (F.col("end_sequence").isNull() & F.col("settled_sequence").isNull()) | (
        (F.col("end_sequence") > F.col("sequence"))
        & F.coalesce(F.col("settled_sequence") >= F.col("end_sequence"), F.lit(True))
    )
    return sane & (before.isNull() | (ended & (newer | again)))


def audit_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Audit lanes that arrive as Arrow batches: the function for ``mapInArrow``.

    Args:
        batches: Rows of whole lanes, each lane's rows next to each other, in any order within it.

    Returns:
        Violations, lazily, in batches of 10,000.

    Raises:
        ConfigError: See `audit_lane`.
    """
    rows: list[tuple[object, ...]] = []
    for (topic_partition, key, _), attempts in groupby(_rows(batches), key=itemgetter(0, 1, 2)):
        for finding in audit_lane(row[3] for row in attempts):
            rows.append((finding.promise, topic_partition, key, *finding[1:]))
            if len(rows) == _BATCH_ROWS:
                yield _batch(rows)
                rows.clear()
    if rows:
        yield _batch(rows)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, bytes | None, int | None, Attempt]]:
    """Each delivery with what names its lane; the columns are in the order in which `check_order` selects them."""
    for batch in batches:
        where, key, keyless, *attempt = (column.to_pylist() for column in batch.columns)
        yield from zip(where, key, keyless, map(Attempt, *attempt), strict=True)


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _VIOLATION, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_VIOLATION)


def _lost(lanes: DataFrame, offered: DataFrame) -> DataFrame:
    """Messages that were offered and not settled, or delivered and never offered: one shuffle, no join."""
    key = F.col("key").cast("binary") if "key" in offered.columns else F.lit(None).cast("binary")
    sent = lanes.select(
        "topic_partition",
        "offset",
        "key",
        F.lit("sent").alias("what"),
        F.col("settled_sequence").isNotNull().alias("done"),
    )
    said = offered.select(
        "topic_partition", "offset", key.alias("key"), F.lit("offered").alias("what"), F.lit(False).alias("done")
    )
    messages = (
        said.unionByName(sent)
        .groupBy("topic_partition", "offset")
        .agg(
            F.max("key").alias("key"),
            F.bool_or(F.col("what") == "offered").alias("offered"),
            F.bool_or(F.col("what") == "sent").alias("sent"),
            F.bool_or("done").alias("done"),
        )
    )
    offset = F.col("offset").cast("string")
    why = (
        F.when(~F.col("offered"), F.concat(offset, F.lit(" was delivered but never offered")))
        .when(~F.col("sent"), F.concat(offset, F.lit(" was offered but never delivered")))
        .when(~F.col("done"), F.concat(offset, F.lit(" was delivered but never settled")))
    )
    nothing = F.lit(None).cast("bigint")
    return messages.select(
        F.lit("no-loss").alias("promise"),
        "topic_partition",
        "key",
        "offset",
        nothing.alias("other_offset"),
        nothing.alias("sequence"),
        why.alias("explanation"),
    ).filter("explanation is not null")
