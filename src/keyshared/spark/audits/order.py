"""A first audit of a delivery log: was every key at one consumer at a time, in order, and was nothing lost?

Two steps, so that a log without faults costs no Python:

1. *Screen*, native: within a lane, in the order of delivery, each delivery must have ended before the next one starts,
   and the next one is either a newer message after this one was settled, or the same message again if it was not. A
   lane in which this holds from row to row breaks no promise: offsets never fall, nothing overlaps, nothing is left
   behind.
2. *Proof*, Python: lanes that fail the screen are replayed exactly (`lanes.audit_lane`). They need not be wrong: with a
   per-key limit above 1, messages of a key are out side by side.

Only the second step decides, so the answer depends neither on the number of partitions nor on the per-key limit.

Each frame is read once. What was offered is looked up first, message by message, and the deliveries go on from there to
their lanes: two answers about two reads of a log that grows would contradict each other.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import ArgumentError
from keyshared.spark.audits.lanes import Attempt, audit_lane
from keyshared.spark.frames.checks import check_columns, check_key, column_names
from keyshared.spark.frames.rules import Rule, never_null, place_of
from keyshared.spark.replays.schemas import VIOLATION_SCHEMA

__all__ = [
    "PROMISES",
    "check_deliveries",
    "check_offered",
    "check_order",
    "count_by_promise",
    "place_of_message",
    "rules_of_deliveries",
    "rules_of_offered",
]

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
_POSITIONS: Final = ("attempt", "sequence", "end_sequence", "settled_sequence")
_NUMBERS: Final = {
    name: number
    for number, name in enumerate(
        (
            "topic_partition",
            "offset",
            "consumer",
            "attempt",
            "sequence",
            "topic_partition of offered",
            "offset of offered",
        )
    )
}
_BATCH_ROWS: Final = 10_000
_Row: TypeAlias = tuple[
    str | None, bytes | None, int | None, Attempt, str | None, bytes | None, bool
]  # what names its lane, the delivery, why its message is lost, that one's key, and whether its lane is not in order
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
            order: ``topic_partition, offset, key, consumer, attempt, sequence, end_sequence, settled_sequence``. NULL
            is a key that is not there, an end or a settlement that never was, and nothing else may be NULL. More
            columns do no harm.
        offered: What must have been settled by the end of the history: ``topic_partition`` and ``offset``, and ``key``
            if it is to be shown. Leave out what was still outstanding then, and what a policy skipped or dropped
            without a delivery. Without this frame, lost messages cannot be told from outstanding ones.

    Returns:
        One row for each violation, see `VIOLATION_SCHEMA`; none if all promises were kept. Lazy, as every frame is.

    Raises:
        ArgumentError: A column is missing or of another type. No job was started. While it runs, NULL in a column that
            must have a value comes as Spark's ``PythonException``, which says in how many rows and shows one.

    Complexity:
        One shuffle and sort of the deliveries, in native code; Python sees only lanes that are not strictly one after
        the other, one lane in memory at a time. ``offered`` costs one more shuffle and sort, of both.

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
    lanes = _of_deliveries(deliveries)
    nothing = {"_why": F.lit(None).cast("string"), "_lost_key": F.lit(None).cast("binary")}
    judged = lanes.withColumns(nothing) if offered is None else _looked_up(lanes, offered)
    return _screened(judged).mapInArrow(audit_batches, VIOLATION_SCHEMA)


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
        ArgumentError: A column is missing or of another type.
    """
    check_columns(deliveries, _DELIVERIES)


def check_offered(offered: DataFrame) -> None:
    """Check that a frame names messages.

    Args:
        offered: See `check_order`.

    Raises:
        ArgumentError: A column is missing or of another type.
    """
    check_columns(offered, _OFFERED)
    if "key" in column_names(offered):
        check_key(offered, "key")


def rules_of_deliveries() -> list[Rule]:
    """Return what must hold in every row of a delivery log."""
    return [never_null(name) for name in ("topic_partition", "offset", "consumer", "attempt", "sequence")]


def rules_of_offered() -> list[Rule]:
    """Return what must hold in every row that names a message."""
    return [never_null(name, f"{name} of offered", F.col(name)) for name in _OFFERED]


def place_of_message() -> Column:
    """Return a text that says which row of a delivery log it is, or of what was offered."""
    return place_of({"topic_partition": "topic_partition", "offset": "offset"})


def _of_deliveries(deliveries: DataFrame) -> DataFrame:
    """The deliveries with the names of their lanes."""
    return _in_lanes(
        deliveries.select(
            "topic_partition",
            F.col("key").cast("binary").alias("key"),
            "offset",
            "consumer",
            F.col("attempt").cast("bigint").alias("attempt"),
            "sequence",
            "end_sequence",
            "settled_sequence",
        ),
        rules_of_deliveries(),
    )


def _in_lanes(rows: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Give each row its lane. Rows that cannot be judged are a lane of nobody's, so that one task can count them."""
    broken = [F.when(rule.wrong, F.lit(_NUMBERS[rule.column])) for rule in rules]
    fine = F.col("_broken").isNull()
    return (
        rows.withColumn("_broken", F.coalesce(*broken))
        .withColumn("_shown", F.when(~fine, place_of_message()))
        .select(
            F.when(fine, F.col("topic_partition")).alias("topic_partition"),
            F.when(fine, F.col("key")).alias("key"),
            F.coalesce("_broken", F.when(F.col("key").isNull(), F.col("offset"))).alias("_keyless"),
            F.coalesce("offset", F.lit(0)).alias("offset"),
            F.coalesce("_shown", "consumer").alias("consumer"),
            *_POSITIONS,
        )
    )


def _screened(lanes: DataFrame) -> DataFrame:
    """Keep the lanes that are not strictly one delivery after the other; the rows of a lane stay together."""
    lane = Window.partitionBy(*_LANE)
    in_order = lane.orderBy("sequence")
    before = F.lag(F.struct("offset", "attempt", "end_sequence", "settled_sequence")).over(in_order)
    # one window function for one look back: four lag() would be four
    looked = lanes.withColumn("_before", before)
    unusable = F.col("topic_partition").isNull()
    looked = looked.withColumn("_fails", F.max(unusable | ~F.coalesce(_follows(), F.lit(False))).over(lane))
    return looked.filter("_fails or _why is not null").drop("_before")


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
        batches: Rows of whole lanes, each lane's rows next to each other, in any order within it; and of lanes that are
            in order the rows with lost messages.

    Returns:
        Violations, lazily, in batches of 10,000.

    Raises:
        ArgumentError: See `audit_lane`; or rows have no value where they must have one.
    """
    rows: list[tuple[object, ...]] = []
    for (topic_partition, key, keyless), own in groupby(_rows(batches), key=itemgetter(0, 1, 2)):
        for found in _findings(topic_partition, key, keyless, own):
            rows.append(found)
            if len(rows) == _BATCH_ROWS:
                yield _batch(rows)
                rows.clear()
    if rows:
        yield _batch(rows)


def _findings(
    topic_partition: str | None, key: bytes | None, keyless: int | None, rows: Iterator[_Row]
) -> Iterator[tuple[object, ...]]:
    if topic_partition is None:
        raise _unusable(keyless, rows)
    attempts: list[Attempt] = []
    for *_, attempt, why, lost_key, fails in rows:
        if fails:
            attempts.append(attempt)
        if why is not None:
            yield "no-loss", topic_partition, lost_key, attempt.offset, None, None, why
    for finding in audit_lane(attempts):
        yield finding.promise, topic_partition, key, *finding[1:]


def _unusable(number: int | None, rows: Iterator[_Row]) -> ArgumentError:
    """What is wrong with rows that have no lane."""
    [column] = (name for name, each in _NUMBERS.items() if each == number)
    attempt = next(rows)[3]
    count = 1 + sum(1 for _ in rows)
    requirement = f"not be NULL in any row, and it is in {count}; the first that was found is {attempt.consumer}"
    return ArgumentError("column", column, requirement)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    """Each delivery with what names its lane; the columns are in the order in which `_screened` leaves them."""
    for batch in batches:
        where, key, keyless, offset, consumer, *positions, why, lost_key, fails = (
            column.to_pylist() for column in batch.columns
        )
        attempts = map(Attempt, offset, consumer, *positions)
        yield from zip(where, key, keyless, attempts, why, lost_key, fails, strict=True)


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _VIOLATION, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_VIOLATION)


def _looked_up(lanes: DataFrame, offered: DataFrame) -> DataFrame:
    """The deliveries, and with the first of a message that is lost why; what was never delivered is a row, too.

    Lost are messages that were offered and not settled, and those that were delivered and never offered.
    """
    key = F.col("key").cast("binary") if "key" in column_names(offered) else F.lit(None).cast("binary")
    nothing = {name: F.lit(None).cast("bigint") for name in _POSITIONS}
    named = offered.select("topic_partition", "offset", key.alias("key")).withColumns(nothing)
    said = _in_lanes(named.withColumn("consumer", F.lit(None).cast("string")), rules_of_offered())
    # deliveries come first
    message = Window.partitionBy("topic_partition", "offset").orderBy("_said", "sequence")
    whole = message.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    asked = lanes.withColumn("_said", F.lit(False)).unionByName(
        said.withColumn("_said", F.col("topic_partition").isNotNull())
    )
    known = asked.withColumns(
        {
            "_first": F.row_number().over(message) == 1,
            "_offered": F.bool_or("_said").over(whole),
            "_done": F.bool_or(F.col("settled_sequence").isNotNull()).over(whole),
            "_lost_key": F.max("key").over(whole),
        }
    )
    offset = F.col("offset").cast("string")
    why = (
        F.when(~F.col("_first") | F.col("topic_partition").isNull(), None)
        .when(~F.col("_offered"), F.concat(offset, F.lit(" was delivered but never offered")))
        .when(F.col("_said"), F.concat(offset, F.lit(" was offered but never delivered")))
        .when(~F.col("_done"), F.concat(offset, F.lit(" was delivered but never settled")))
    )
    # of what was offered a lane has nothing to say, but for messages that never were in one
    kept = known.withColumn("_why", why).filter("not _said or _why is not null")
    return kept.select(
        "topic_partition",
        F.when(~F.col("_said"), F.col("key")).alias("key"),
        F.when(F.col("_said"), F.col("offset")).otherwise(F.col("_keyless")).alias("_keyless"),
        *("offset", "consumer", *_POSITIONS, "_why"),
        F.when(F.col("_why").isNotNull(), F.col("_lost_key")).alias("_lost_key"),
    )
