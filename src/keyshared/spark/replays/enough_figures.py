"""From the delivery log of a replay to whether the group was enough, in native Spark.

What comes to the driver is bounded by the plan and by what a page can show: a row for each consumer and interval of
time, and for each of the topic-partitions shown; and the topic-partitions that were behind for the longest time.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.simulate.plan import Plan
from keyshared.spark.pages.page import MINUTE_MS
from keyshared.spark.replays.enough_report import Behind, Enough, Points, Series
from keyshared.spark.replays.presence import everybody
from keyshared.spark.replays.stays import Stay, concurrencies, here_ms, stays

__all__ = ["Replayed", "default_enough_ms", "enough"]

INTERVALS: Final = 60
"""Of a row of a chart: with 200 consumers, 12,000 fields."""

_BEHIND: Final = 20
_SERVICES: Final = 10
_ALL, _CONSUMER, _PLACE = "all", "consumer", "topic-partition"


class Replayed:
    """The time of a replay.

    Args:
        plan: What was replayed.
        first_ms: When the first thing happened.
        last_ms: When the last thing did.
        topic_partitions: How many there are.
        ended_ms: When the last delivery of each consumer ended.
    """

    def __init__(
        self, plan: Plan, first_ms: int, last_ms: int, topic_partitions: int, ended_ms: Mapping[str, int]
    ) -> None:
        self.plan = plan
        self.first_ms = first_ms
        self.last_ms = last_ms
        self.topic_partitions = topic_partitions
        self.width_ms = (last_ms - first_ms) // INTERVALS + 1
        self.stays = stays(plan, first_ms, last_ms, ended_ms)

    def slice_of(self, consumer: str, number: int) -> int:
        """Return for how long a consumer was there in an interval."""
        begin = self.first_ms + number * self.width_ms
        return here_ms(self.stays, consumer, begin, min(self.last_ms, begin + self.width_ms))


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


def enough(deliveries: DataFrame, replayed: Replayed, *, shown: Sequence[str], enough_ms: int, asked: bool) -> Enough:
    """Find out whether the group was enough; runs three jobs over the deliveries.

    Args:
        deliveries: The delivery log.
        replayed: The time of the replay.
        shown: The topic-partitions whose lag is shown.
        enough_ms: The wait that is enough.
        asked: Whether somebody asked for just that.

    Returns:
        The figures.
    """
    sums = _sums(deliveries, replayed, shown)
    behind = _behind(deliveries, enough_ms)
    [total] = behind.agg(
        F.count("*").alias("count"), F.min("first_ms").alias("first_ms"), F.max("last_ms").alias("last_ms")
    ).collect()
    worst = behind.orderBy(F.desc("total_ms"), "topic_partition").limit(_BEHIND).collect()
    first = replayed.first_ms
    return Enough(
        enough_ms=enough_ms,
        asked=asked,
        width_ms=replayed.width_ms,
        use=tuple(_use(name, sums, replayed) for name in everybody(replayed.plan)),
        waiting=_lag(_ALL, "", sums, replayed),
        topic_partitions=tuple(Series(name, _lag(_PLACE, name, sums, replayed)) for name in shown),
        consumers=tuple(Series(name, _lag(_CONSUMER, name, sums, replayed)) for name in everybody(replayed.plan)),
        behind=tuple(
            Behind(
                topic_partition=row["topic_partition"],
                from_ms=row["worst"]["since_ms"] - first,
                until_ms=row["worst"]["until_ms"] - first,
                longest_ms=row["longest_ms"],
                late=row["late"],
                stretches=row["stretches"],
                total_ms=row["total_ms"],
            )
            for row in worst
        ),
        behind_count=total["count"],
        behind_from_ms=None if total["first_ms"] is None else total["first_ms"] - first,
        behind_until_ms=None if total["last_ms"] is None else total["last_ms"] - first,
        stays=tuple(
            Stay(stay.consumer, stay.from_ms - first, stay.until_ms - first, stay.state) for stay in replayed.stays
        ),
    )


def _sums(deliveries: DataFrame, replayed: Replayed, shown: Sequence[str]) -> dict[tuple[str, str], dict[int, Row]]:
    """Add up, for each interval of time, how long messages waited and were worked on, by name and number.

    Each delivery is three moments: its message can go out, goes out, comes back. Between two moments of a
    topic-partition and a consumer the number of messages that wait for it and of those in its hands stays the same.
    """
    end = F.coalesce("ended_ms", F.lit(replayed.last_ms).cast("bigint"))
    moments = (
        _moment(F.col("delivered_ms") - F.col("wait_ms"), 1, 0),
        _moment(F.col("delivered_ms"), -1, 1),
        _moment(end, 0, -1),
    )
    each = deliveries.select("topic_partition", "consumer", F.explode(F.array(*moments)).alias("moment"))
    lane = Window.partitionBy("topic_partition", "consumer").orderBy("at_ms")
    so_far = lane.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    stretches = (
        each.select("topic_partition", "consumer", "moment.*")
        .select(
            "topic_partition",
            "consumer",
            (F.col("at_ms") - replayed.first_ms).alias("from_ms"),
            (F.lead("at_ms").over(lane) - replayed.first_ms).alias("until_ms"),
            F.sum("waits").over(so_far).alias("waiting"),
            F.least(F.sum("held").over(so_far), _concurrency(replayed.plan)).alias("working"),
        )
        .filter("until_ms > from_ms and (waiting > 0 or working > 0)")
    )
    width = replayed.width_ms
    numbered = stretches.withColumn(
        "number",
        F.explode(F.sequence(F.floor(F.col("from_ms") / width), F.floor((F.col("until_ms") - 1) / width))),
    )
    length = F.least("until_ms", (F.col("number") + 1) * width) - F.greatest("from_ms", F.col("number") * width)
    names = [_name(_ALL, F.lit("")), _name(_CONSUMER, F.col("consumer"))]
    if shown:
        place = F.col("topic_partition")
        names.append(F.when(place.isin(*shown), _name(_PLACE, place)))
    rows = (
        numbered.select("number", "waiting", "working", length.alias("length"), F.explode(F.array(*names)).alias("of"))
        .filter("of is not null")
        .groupBy("of", "number")
        .agg(
            F.sum(F.col("waiting") * F.col("length")).alias("waiting_ms"),
            F.sum(F.col("working") * F.col("length")).alias("working_ms"),
        )
        .collect()
    )
    found: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        found.setdefault((row["of"]["kind"], row["of"]["name"]), {})[row["number"]] = row
    return found


def _moment(at_ms: Column, waits: int, held: int) -> Column:
    return F.struct(at_ms.alias("at_ms"), F.lit(waits).alias("waits"), F.lit(held).alias("held"))


def _name(kind: str, name: Column) -> Column:
    return F.struct(F.lit(kind).alias("kind"), name.alias("name"))


def _concurrency(plan: Plan) -> Column:
    """Return how many messages of a topic-partition the consumer of a row works on at once."""
    by_number: dict[int, list[str]] = {}
    for name, number in concurrencies(plan).items():
        by_number.setdefault(number, []).append(name)
    usual, *others = sorted(by_number, key=lambda number: -len(by_number[number])) or [1]
    return reduce(
        lambda column, number: F.when(F.col("consumer").isin(*by_number[number]), number).otherwise(column),
        others,
        F.lit(usual),
    )


def _use(name: str, sums: Mapping[tuple[str, str], Mapping[int, Row]], replayed: Replayed) -> Series:
    """Compare work with the time for it, in the intervals in which the consumer was there."""
    rows = sums.get((_CONSUMER, name), {})
    room = replayed.topic_partitions * concurrencies(replayed.plan)[name]
    points = []
    for number in range(INTERVALS):
        here = replayed.slice_of(name, number)
        if here:
            worked = rows[number]["working_ms"] if number in rows else 0
            # what a crashed one had in its hands was no work, and stays there until it is taken away
            points.append((number * replayed.width_ms, min(1.0, worked / (here * room))))
    return Series(name, tuple(points))


def _lag(kind: str, name: str, sums: Mapping[tuple[str, str], Mapping[int, Row]], replayed: Replayed) -> Points:
    rows = sums.get((kind, name), {})
    return tuple(
        (number * replayed.width_ms, rows[number]["waiting_ms"] / replayed.width_ms if number in rows else 0)
        for number in range(-(-(replayed.last_ms - replayed.first_ms) // replayed.width_ms))
    )


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
