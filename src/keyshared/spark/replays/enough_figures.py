"""From the delivery log of a replay to whether the group was enough, in native Spark.

What comes to the driver is bounded by the plan and by what a page can show: a row for each consumer and interval of
time, and for each of the topic-partitions shown; and the topic-partitions that were behind for the longest time.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.pages.page import MINUTE_MS
from keyshared.spark.replays.enough_report import Behind, Enough, Series
from keyshared.spark.replays.intervals import ALL, CONSUMER, INTERVALS, PLACE, Replayed, Sums, means
from keyshared.spark.replays.presence import everybody
from keyshared.spark.replays.stays import Stay

__all__ = ["default_enough_ms", "enough"]

_BEHIND: Final = 20
_SERVICES: Final = 10


def default_enough_ms(held_ms: float) -> int:
    """Return which wait is enough where nobody said so.

    Args:
        held_ms: How long a consumer has a message in its hands, on average.

    Returns:
        Ten times that, and at least a minute.

    Example:
        >>> default_enough_ms(2), default_enough_ms(60_000)
        (60000, 600000)
    """
    return max(MINUTE_MS, round(_SERVICES * held_ms))


def enough(
    deliveries: DataFrame,
    summaries: DataFrame,
    replayed: Replayed,
    sums: Sums,
    *,
    shown: Sequence[str],
    enough_ms: int,
    asked: bool,
) -> Enough:
    """Find out whether the group was enough; runs two jobs over the deliveries.

    Args:
        deliveries: The delivery log.
        summaries: Rows of `SUMMARY_SCHEMA`.
        replayed: The time of the replay.
        sums: What `interval_sums` gave for it.
        shown: The topic-partitions whose lag is shown.
        enough_ms: The wait that is enough.
        asked: Whether somebody asked for just that.

    Returns:
        The figures.
    """
    behind = _left(deliveries, summaries).join(_behind(deliveries, enough_ms), "topic_partition", "left")
    [total] = behind.agg(
        F.count_if("left").alias("left"),
        F.count("late").alias("count"),
        F.count_if(F.expr("left and late is not null")).alias("behind_left"),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
    ).collect()
    worst = behind.filter("late is not null").orderBy(F.desc("total_ms"), "topic_partition").limit(_BEHIND).collect()
    first = replayed.first_ms
    return Enough(
        enough_ms=enough_ms,
        asked=asked,
        width_ms=replayed.width_ms,
        use=tuple(_use(name, sums, replayed) for name in everybody(replayed.plan)),
        waiting=means("waiting", ALL, "", sums, replayed),
        topic_partitions=tuple(Series(name, means("waiting", PLACE, name, sums, replayed)) for name in shown),
        consumers=tuple(
            Series(name, means("waiting", CONSUMER, name, sums, replayed)) for name in everybody(replayed.plan)
        ),
        behind=tuple(
            Behind(
                topic_partition=row["topic_partition"],
                from_ms=row["worst"]["since_ms"] - first,
                until_ms=None if row["left"] else row["worst"]["until_ms"] - first,
                longest_ms=row["longest_ms"],
                late=row["late"],
                stretches=row["stretches"],
                total_ms=row["total_ms"],
            )
            for row in worst
        ),
        behind_count=total["count"],
        behind_left=total["behind_left"],
        behind_from_ms=None if total["first_ms"] is None else total["first_ms"] - first,
        behind_until_ms=None if total["last_ms"] is None or total["behind_left"] else total["last_ms"] - first,
        left=total["left"],
        stays=tuple(
            Stay(stay.consumer, stay.from_ms - first, stay.until_ms - first, stay.state) for stay in replayed.stays
        ),
    )


def _use(name: str, sums: Sums, replayed: Replayed) -> Series:
    """Compare work with the time for it, in the intervals in which the consumer was there."""
    rows = sums.get((CONSUMER, name), {})
    points = []
    for number in range(INTERVALS):
        room_ms = replayed.room_of(name, number)
        if room_ms is not None:
            worked = rows[number]["working_ms"] if number in rows else 0
            of = room_ms * replayed.topic_partitions
            points.append((number * replayed.width_ms, worked / of if of else 0.0))
    return Series(name, tuple(points))


def _left(deliveries: DataFrame, summaries: DataFrame) -> DataFrame:
    """Find of each topic-partition whether anything was left that had not gone out: what is in hand waits no more."""
    in_hand = deliveries.groupBy("topic_partition").agg(F.count_if(F.col("ended_ms").isNull()).alias("in_hand"))
    left = F.expr("stop != 'at_rest' and outstanding > coalesce(in_hand, 0)").alias("left")
    return summaries.join(in_hand, "topic_partition", "left").select("topic_partition", left)


def _behind(deliveries: DataFrame, enough_ms: int) -> DataFrame:
    """Find for each topic-partition the stretches in which something had been waiting for longer than is enough."""
    late = deliveries.filter(F.col("wait_ms") > enough_ms).select(
        "topic_partition",
        (F.col("delivered_ms") - F.col("wait_ms") + enough_ms).alias("since_ms"),
        F.col("delivered_ms").alias("until_ms"),
        "wait_ms",
    )
    place = Window.partitionBy("topic_partition").orderBy("since_ms", "until_ms")
    earlier = place.rowsBetween(Window.unboundedPreceding, -1)
    begins = F.col("since_ms") > F.max("until_ms").over(earlier)  # NULL for the first: it belongs to stretch 0
    numbered = late.withColumn("begins", F.coalesce(begins.cast("int"), F.lit(0))).withColumn(
        "stretch", F.sum("begins").over(place.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    )
    stretches = numbered.groupBy("topic_partition", "stretch").agg(
        F.min("since_ms").alias("since_ms"),
        F.max("until_ms").alias("until_ms"),
        F.max("wait_ms").alias("longest_ms"),
        F.count("*").alias("late"),
    )
    length = F.col("until_ms") - F.col("since_ms")
    return stretches.groupBy("topic_partition").agg(
        F.max_by(F.struct("since_ms", "until_ms"), F.struct(length, -F.col("since_ms"))).alias("worst"),
        F.min("since_ms").alias("first_ms"),
        F.max("until_ms").alias("last_ms"),
        F.max("longest_ms").alias("longest_ms"),
        F.sum("late").alias("late"),
        F.count("*").alias("stretches"),
        F.sum(length).alias("total_ms"),
    )
