"""From the frames of a replay to single topic-partitions and keys, in native Spark.

What comes to the driver is bounded by how many are shown: for each a row for each interval of time, for some consumers,
and for each change of the plan.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.frames.tables import frame_of
from keyshared.spark.pages.page import as_text
from keyshared.spark.replays.cause_figures import percentile
from keyshared.spark.replays.cause_report import said
from keyshared.spark.replays.detail_report import Holding, Move, Subject, key_anchor, place_anchor
from keyshared.spark.replays.intervals import Replayed, in_intervals, moment, stretches_of

__all__ = ["subjects"]

_MOST: Final = 12  # rows of a table
_COLUMNS: Final = (
    "topic_partition",
    "consumer",
    "attempt",
    "delivered_ms",
    "ended_ms",
    "outcome",
    "wait_ms",
    "sequence",
)


def subjects(
    deliveries: DataFrame, summaries: DataFrame, replayed: Replayed, *, places: Sequence[str], keys: Sequence[bytes]
) -> tuple[Subject, ...]:
    """Look at some topic-partitions and keys; runs up to four jobs.

    Args:
        deliveries: The delivery log.
        summaries: Rows of `SUMMARY_SCHEMA`.
        replayed: The time of the replay.
        places: The topic-partitions, in the order of their anchors.
        keys: The keys, likewise; each has been delivered.

    Returns:
        The topic-partitions, then the keys.
    """
    if not places and not keys:
        return ()
    each = _each(deliveries, places, keys)
    facts, outcomes = _facts(each)
    lags = _lags(each, replayed)
    holdings = _holdings(each, replayed)
    moves = _moves(summaries, replayed, places) if places else {}
    names = [*places, *map(as_text, keys)]
    found = []
    for number, row in sorted(facts.items()):
        is_key = number >= len(places)
        had = holdings.get(number, [])
        found.append(
            Subject(
                anchor=key_anchor(number - len(places)) if is_key else place_anchor(number),
                is_key=is_key,
                name=names[number],
                deliveries=row["deliveries"],
                again=row["again"],
                wait_p50_ms=row["p50"],
                wait_p99_ms=row["p99"],
                wait_max_ms=row["longest"],
                outcomes=tuple(outcomes[number]),
                lag=tuple(
                    (at * replayed.width_ms, lags.get((number, at), 0) / replayed.width_ms)
                    for at in range(replayed.intervals)
                ),
                holdings=tuple(_holding(one, replayed) for one in had),
                holding_count=had[0]["all"] if had else 0,
                moves=() if is_key else tuple(moves.get(names[number], ())),
            )
        )
    return tuple(found)


def _each(deliveries: DataFrame, places: Sequence[str], keys: Sequence[bytes]) -> DataFrame:
    """Return the deliveries of each of them, with its number; one of a key may be there twice."""
    frames = []
    for column, names, kind, first in (
        ("topic_partition", places, pa.string(), 0),
        ("key", keys, pa.binary(), len(places)),
    ):
        if names:
            numbers = pa.array(range(first, first + len(names)), pa.int32())
            table = pa.table({column: pa.array(list(names), kind), "subject": numbers})
            found = deliveries.join(F.broadcast(frame_of(deliveries.sparkSession, table)), column)
            frames.append(found.select("subject", F.lit(column == "key").alias("is_key"), *_COLUMNS))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _facts(each: DataFrame) -> tuple[dict[int, Row], dict[int, list[tuple[str, int]]]]:
    rows = (
        each.rollup("subject", "outcome")
        .agg(
            F.count("*").alias("deliveries"),
            F.count_if(F.col("attempt") > 1).alias("again"),
            percentile(50).alias("p50"),
            percentile(99).alias("p99"),
            F.max("wait_ms").alias("longest"),
        )
        .filter("subject is not null")
        .orderBy(F.desc("deliveries"), "outcome")
        .collect()
    )
    outcomes: dict[int, list[tuple[str, int]]] = {}
    for row in rows:
        if row["outcome"] is not None:
            outcomes.setdefault(row["subject"], []).append((row["outcome"], row["deliveries"]))
    return {row["subject"]: row for row in rows if row["outcome"] is None}, outcomes


def _lags(each: DataFrame, replayed: Replayed) -> dict[tuple[int, int], int]:
    """Add up for each of them and each interval of time how long messages waited."""
    moments = moment(F.col("delivered_ms") - F.col("wait_ms"), 1, 0), moment(F.col("delivered_ms"), -1, 0)
    stretches = stretches_of(each, ["subject"], moments, replayed)
    rows = (
        in_intervals(stretches, replayed)
        .groupBy("subject", "number")
        .agg(F.sum(F.col("waiting") * F.col("length")).alias("waiting_ms"))
        .collect()
    )
    return {(row["subject"], row["number"]): row["waiting_ms"] for row in rows}


def _holdings(each: DataFrame, replayed: Replayed) -> dict[int, list[Row]]:
    """Find who had each of them when: a key goes from one consumer to the next, a topic-partition is everybody's."""
    end = F.coalesce("ended_ms", F.lit(replayed.last_ms).cast("bigint"))
    lane = Window.partitionBy("subject", "topic_partition").orderBy("sequence")
    other = F.col("is_key") & (F.col("consumer") != F.lag("consumer").over(lane))
    before = lane.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    stretches = (
        each.withColumn("other", F.coalesce(other.cast("int"), F.lit(0)))
        .withColumn("stretch", F.sum("other").over(before))
        .groupBy("subject", "topic_partition", "stretch", "consumer")
        .agg(
            F.min("delivered_ms").alias("from_ms"),
            F.max(end).alias("until_ms"),
            F.count("*").alias("deliveries"),
            F.count_if(F.col("attempt") > 1).alias("again"),
        )
    )
    placed = ("from_ms", "topic_partition", "stretch", "consumer")
    order = Window.partitionBy("subject").orderBy(F.desc("deliveries"), *placed)
    rows = (
        stretches.withColumn("place", F.row_number().over(order))
        .withColumn("all", F.count("*").over(Window.partitionBy("subject")))
        .filter(F.col("place") <= _MOST)
        .orderBy("subject", *placed)
        .collect()
    )
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["subject"], []).append(row)
    return found


def _holding(row: Row, replayed: Replayed) -> Holding:
    return Holding(
        consumer=row["consumer"],
        topic_partition=row["topic_partition"],
        from_ms=row["from_ms"] - replayed.first_ms,
        until_ms=row["until_ms"] - replayed.first_ms,
        deliveries=row["deliveries"],
        again=row["again"],
    )


def _moves(summaries: DataFrame, replayed: Replayed, places: Sequence[str]) -> Mapping[str, Sequence[Move]]:
    """Find the changes that moved most keys of each topic-partition."""
    changes = (
        summaries.filter(F.col("topic_partition").isin(*places))
        .select("topic_partition", F.posexplode("moved_keys").alias("place", "change"))
        .select("topic_partition", "place", "change.*")
        .filter("moved > 0")
    )
    order = Window.partitionBy("topic_partition").orderBy(F.desc("moved"), "place")
    rows = (
        changes.withColumn("rank", F.row_number().over(order))
        .filter(F.col("rank") <= _MOST)
        .orderBy("topic_partition", "place")
        .collect()
    )
    found: dict[str, list[Move]] = {}
    for row in rows:
        told = f"{row['consumer']} {said(row['event'])}"
        move = Move(row["at_ms"] - replayed.first_ms, told, row["moved"], row["keys"])
        found.setdefault(row["topic_partition"], []).append(move)
    return found
