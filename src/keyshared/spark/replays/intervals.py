"""The time of a replay, cut into intervals, and what waited and was held in each of them, in native Spark."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.simulate.group import Group
from keyshared.spark.frames.tables import frame_of
from keyshared.spark.replays.enough_report import Points
from keyshared.spark.replays.presence import everybody
from keyshared.spark.replays.stays import Room, Visit, rooms, stays

__all__ = [
    "ALL",
    "CONSUMER",
    "INTERVALS",
    "PLACE",
    "Replayed",
    "Sums",
    "in_intervals",
    "interval_sums",
    "means",
    "moment",
    "stretches_of",
]

INTERVALS: Final = 60
"""Of a row of a chart: with 200 consumers, 12,000 fields."""

ALL, CONSUMER, PLACE = "all", "consumer", "topic-partition"

_ENDLESS: Final = 1 << 62  # milliseconds
_ROOMS: Final = pa.schema(
    [("consumer", pa.string()), ("from_ms", pa.int64()), ("until_ms", pa.int64()), ("messages", pa.int64())]
)

Sums: TypeAlias = Mapping[tuple[str, str], Mapping[int, Row]]
"""Rows by kind and name, and by number of the interval."""


class Replayed:
    """The time of a replay.

    Args:
        plan: What was replayed.
        first_ms: When the first thing happened.
        last_ms: When the last thing did.
        topic_partitions: How many there are.
        ended_ms: When the last delivery of each consumer ended, by visit.
    """

    def __init__(
        self, plan: Group, first_ms: int, last_ms: int, topic_partitions: int, ended_ms: Mapping[Visit, int]
    ) -> None:
        self.plan = plan
        self.first_ms = first_ms
        self.last_ms = last_ms
        self.topic_partitions = topic_partitions
        self.width_ms = (last_ms - first_ms) // INTERVALS + 1
        self.intervals = -(-(last_ms - first_ms) // self.width_ms)
        self.stays = stays(plan, first_ms, last_ms, ended_ms)
        self.rooms: dict[str, list[Room]] = {}
        for room in rooms(plan, self.stays):
            self.rooms.setdefault(room.consumer, []).append(room)

    def room_of(self, consumer: str, number: int) -> int | None:
        """Return the time that a consumer had for messages of a topic-partition in an interval, all it can do at once.

        Args:
            consumer: Who.
            number: Of the interval.

        Returns:
            Milliseconds, each as often as there is room for a message; None if it was not there.
        """
        begin = self.first_ms + number * self.width_ms
        end = min(self.last_ms, begin + self.width_ms)
        cut = [
            (min(end, room.until_ms) - max(begin, room.from_ms), room.messages) for room in self.rooms.get(consumer, ())
        ]
        here = [(length, messages) for length, messages in cut if length > 0]
        return sum(length * messages for length, messages in here) if here else None


def interval_sums(deliveries: DataFrame, replayed: Replayed, shown: Sequence[str]) -> Sums:
    """Add up, for each interval of time, how long messages waited and were worked on, by name and number.

    Each delivery is three moments: its message can go out, goes out, comes back. Between two moments of a
    topic-partition and a consumer the number of messages that wait for it and of those in its hands stays the same.
    Runs a job.

    Args:
        deliveries: The delivery log.
        replayed: The time of the replay.
        shown: The topic-partitions that are wanted.

    Returns:
        For each kind and name a row for each interval in which there is anything: ``waiting_ms``, ``held_ms`` and
        ``working_ms``, the part of it that the consumer can work on while it is there: what a crashed one had in its
        hands is no work, and stays there until it is taken away.
    """
    end = F.coalesce("ended_ms", F.lit(replayed.last_ms).cast("bigint"))
    moments = (
        moment(F.col("delivered_ms") - F.col("wait_ms"), 1, 0),
        moment(F.col("delivered_ms"), -1, 1),
        moment(end, 0, -1),
    )
    stretches = stretches_of(deliveries, ("topic_partition", "consumer"), moments, replayed)
    stretches = _with_room(stretches, replayed).withColumn("working", F.least("held", "room"))
    names = [_name(ALL, F.lit("")), _name(CONSUMER, F.col("consumer"))]
    if shown:
        place = F.col("topic_partition")
        names.append(F.when(place.isin(*shown), _name(PLACE, place)))
    amounts = ("waiting", "held", "working")
    rows = (
        in_intervals(stretches, replayed)
        .select("number", *amounts, "length", F.explode(F.array(*names)).alias("of"))
        .filter("of is not null")
        .groupBy("of", "number")
        .agg(*(F.sum(F.col(name) * F.col("length")).alias(f"{name}_ms") for name in amounts))
        .collect()
    )
    found: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        found.setdefault((row["of"]["kind"], row["of"]["name"]), {})[row["number"]] = row
    return found


def stretches_of(
    deliveries: DataFrame, lane: Sequence[str], moments: Sequence[Column], replayed: Replayed
) -> DataFrame:
    """Find the stretches of time between moments, in which as many messages wait and are held all the while.

    Args:
        deliveries: The delivery log, or some of it.
        lane: Columns; stretches are found for each combination of their values.
        moments: What `moment` returns: those of each delivery.
        replayed: The time of the replay.

    Returns:
        A row for each stretch in which there is anything: the columns of the lane, ``from_ms`` and ``until_ms`` since
        the first thing happened, ``waiting`` and ``held``.
    """
    of = Window.partitionBy(*lane).orderBy("at_ms")
    so_far = of.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        deliveries.select(*lane, F.explode(F.array(*moments)).alias("moment"))
        .select(*lane, "moment.*")
        .select(
            *lane,
            (F.col("at_ms") - replayed.first_ms).alias("from_ms"),
            (F.lead("at_ms").over(of) - replayed.first_ms).alias("until_ms"),
            F.sum("waits").over(so_far).alias("waiting"),
            F.sum("held").over(so_far).alias("held"),
        )
        .filter("until_ms > from_ms and (waiting > 0 or held > 0)")
    )


def in_intervals(stretches: DataFrame, replayed: Replayed) -> DataFrame:
    """Cut stretches of time where intervals end.

    Args:
        stretches: With ``from_ms`` and ``until_ms``, since the first thing happened.
        replayed: The time of the replay.

    Returns:
        The same columns, ``number`` of the interval and ``length`` of what of the stretch is in it; a row for each
        interval that a stretch is in.
    """
    width = replayed.width_ms
    numbers = F.sequence(F.floor(F.col("from_ms") / width), F.floor((F.col("until_ms") - 1) / width))
    length = F.least("until_ms", (F.col("number") + 1) * width) - F.greatest("from_ms", F.col("number") * width)
    return stretches.withColumn("number", F.explode(numbers)).withColumn("length", length)


def means(what: str, kind: str, name: str, sums: Sums, replayed: Replayed) -> Points:
    """Return how many messages there were on average in each interval.

    Args:
        what: "waiting" or "held".
        kind: `ALL`, `CONSUMER` or `PLACE`.
        name: Of the consumer or topic-partition; empty for all.
        sums: What `interval_sums` gave.
        replayed: The time of the replay.

    Returns:
        A value for each interval.
    """
    rows = sums.get((kind, name), {})
    return tuple(
        (number * replayed.width_ms, rows[number][f"{what}_ms"] / replayed.width_ms if number in rows else 0)
        for number in range(replayed.intervals)
    )


def moment(at_ms: Column, waits: int, held: int) -> Column:
    """Return a moment at which more or fewer messages wait and are held, as a struct with these names.

    Args:
        at_ms: When.
        waits: By how many more.
        held: Likewise.
    """
    return F.struct(at_ms.alias("at_ms"), F.lit(waits).alias("waits"), F.lit(held).alias("held"))


def _name(kind: str, name: Column) -> Column:
    return F.struct(F.lit(kind).alias("kind"), name.alias("name"))


def _with_room(stretches: DataFrame, replayed: Replayed) -> DataFrame:
    """Cut stretches where the consumer's room for messages changes, and add it: 0 while it is away."""
    rows = [row._asdict() for name in everybody(replayed.plan) for row in _all_rooms(name, replayed)]
    here = frame_of(stretches.sparkSession, pa.Table.from_pylist(rows, _ROOMS))
    stretch, room = stretches.alias("stretch"), F.broadcast(here).alias("room")
    meets = "stretch.consumer = room.consumer and room.from_ms < stretch.until_ms and room.until_ms > stretch.from_ms"
    return stretch.join(room, F.expr(meets)).selectExpr(
        "stretch.topic_partition",
        "stretch.consumer",
        "greatest(stretch.from_ms, room.from_ms) as from_ms",
        "least(stretch.until_ms, room.until_ms) as until_ms",
        "waiting",
        "held",
        "room.messages as room",
    )


def _all_rooms(name: str, replayed: Replayed) -> Iterator[Room]:
    """Yield the rooms of a consumer since the first thing happened, and those of no message around them."""
    end = -_ENDLESS
    for room in replayed.rooms.get(name, ()):
        begin = room.from_ms - replayed.first_ms
        if begin > end:
            yield Room(name, end, begin, 0)
        end = room.until_ms - replayed.first_ms
        yield Room(name, begin, end, room.messages)
    yield Room(name, end, _ENDLESS, 0)
