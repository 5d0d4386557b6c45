"""From the delivery log and the summaries of a replay to the figures of its report, in native Spark.

What comes to the driver is bounded by the plan and by what a page can show, never by the log.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.simulate.group import Group, Leave
from keyshared.simulate.history import Event
from keyshared.spark.keystats.bucket_figures import compare_layouts
from keyshared.spark.keystats.histogram import collect_histogram, key_histogram
from keyshared.spark.pages.clock import CALENDAR
from keyshared.spark.pages.parts import Counts
from keyshared.spark.replays.cause_figures import hot_keys, hot_slots, percentile, with_waits
from keyshared.spark.replays.cause_report import MembershipChange, said
from keyshared.spark.replays.detail_figures import subjects
from keyshared.spark.replays.enough_figures import default_enough_ms, enough
from keyshared.spark.replays.enough_report import Wait
from keyshared.spark.replays.flow_figures import flow
from keyshared.spark.replays.intervals import Replayed, interval_sums
from keyshared.spark.replays.presence import Moment, everybody, ideal_moves, phases, shares
from keyshared.spark.replays.replay_report import Backlog, ConsumerLoad, ReplayReport
from keyshared.spark.replays.stays import Visit, joins

__all__ = ["backlog", "changes", "membership", "replay_report"]

_INTERVALS: Final = 120  # of the waits over time: narrower ones cannot be told apart
_MAX_PANELS: Final = 8
_MAX_ROWS: Final = 40  # topic-partitions whose lag is shown
_HOT_SLOTS: Final = 5
_JOINED: Final = Event.JOINED.value
_DETAILED: Final = 30  # topic-partitions with a part of their own


def replay_report(
    deliveries: DataFrame,
    summaries: DataFrame,
    plan: Group,
    *,
    title: str,
    source: str,
    violations: Counts | None = None,
    unjudged: Mapping[str, str] = MappingProxyType({}),
    seconds: float | None = None,
    hottest: int,
    buckets: int | None,
    enough_ms: int | None = None,
    epoch_ms: int | None = None,
    zone: str = "UTC",
) -> ReplayReport:
    """Find what a report of a replay shows; runs up to 20 jobs, each of them a pass over what the replay wrote.

    Args:
        deliveries: The delivery log.
        summaries: Rows of `SUMMARY_SCHEMA`.
        plan: What was replayed.
        title: Headline of the page.
        source: Where the messages are from, for the reader.
        violations: What an audit found.
        unjudged: Promises that it could not judge, and why.
        seconds: How long the replay took.
        hottest: How many hot keys are wanted.
        buckets: With how many buckets boundaries are compared; None for no comparison.
        enough_ms: The wait that is enough for all but one delivery in a hundred; None for ten times the mean work.
        epoch_ms: Milliseconds since 1970 at which the clock of the replay is at 0; None for no calendar.
        zone: Of the times of the calendar.

    Returns:
        The figures.
    """
    sums = _sums(summaries)
    first: int = sums["first_ms"] or 0
    found = _totals(deliveries)
    everything = found.get(None)
    held_ms = (everything["held_ms"] or 0) if everything else 0
    last: int = sums["last_ms"] or 0
    largest = summaries.orderBy(F.desc("largest_backlog"), "topic_partition").limit(_MAX_ROWS)
    shown = largest.select("topic_partition", "backlog").collect()
    replayed = Replayed(
        plan,
        first,
        last,
        sums["topic_partitions"],
        _ended(deliveries, plan, last),
    )
    places = [row["topic_partition"] for row in shown]
    in_each = interval_sums(deliveries, replayed, places)
    keys = hot_keys(deliveries, hottest, plan)
    found_enough = enough(
        deliveries,
        summaries,
        replayed,
        in_each,
        shown=places,
        enough_ms=default_enough_ms(held_ms) if enough_ms is None else enough_ms,
        asked=enough_ms is not None,
    )
    worst = dict.fromkeys([*(behind.topic_partition for behind in found_enough.behind), *places])
    return ReplayReport(
        title=title,
        source=source,
        topic_partitions=sums["topic_partitions"],
        stopped=sums["stopped"],
        span_ms=last - first,
        epoch_ms=None if epoch_ms is None or epoch_ms + first not in CALENDAR else epoch_ms + first,
        zone=zone,
        messages=sums["messages"] or 0,
        keys=everything["keys"] if everything else 0,
        keyless=sums["keyless"] or 0,
        deliveries=everything["deliveries"] if everything else 0,
        redeliveries=everything["redeliveries"] if everything else 0,
        wait_p50_ms=everything["p50"] if everything else 0,
        wait_p99_ms=everything["p99"] if everything else 0,
        seconds=seconds,
        violations=violations,
        unjudged=unjudged,
        consumers=_consumer_loads(found, _per_phase(deliveries, plan), plan),
        changes=with_waits(changes(membership(summaries).collect(), plan, first), deliveries, first),
        hot_keys=keys.hottest,
        slow_keys=keys.waited,
        slow_slots=hot_slots(deliveries, hottest),
        wait_ms=(everything["wait_ms"] or 0) if everything else 0,
        backlogs=tuple(backlog(row["topic_partition"], row["backlog"], first) for row in shown[:_MAX_PANELS]),
        waits=_waits(deliveries, first, last),
        enough=found_enough,
        flow=flow(deliveries, replayed, in_each),
        subjects=subjects(deliveries, summaries, replayed, places=list(worst)[:_DETAILED], keys=keys.detailed),
        buckets=None
        if buckets is None
        else compare_layouts(
            collect_histogram(key_histogram(deliveries.filter("attempt = 1"))),
            [consumer.name for consumer in plan.consumers],
            hottest=_HOT_SLOTS,
            buckets=buckets,
        ),
    )


def membership(summaries: DataFrame, by: Sequence[str] = ()) -> DataFrame:
    """Add up what each change of membership did in all topic-partitions.

    A key that occurs in two topic-partitions counts twice, because each has a dispatcher of its own. All changes are
    numbered, also those before the first message of a topic-partition, so that in each of them the same have the same
    number.

    Args:
        summaries: Rows of `SUMMARY_SCHEMA`.
        by: More columns to group by.

    Returns:
        These columns, ``event``, ``consumer``, ``nth`` (how often this has happened to the consumer before), ``at_ms``
        (the latest, where topic-partitions differ), ``moved`` and ``keys``, in order of time.
    """
    happened = ("event", "consumer")
    # of several changes of one instant the summary has an order that a set of rows would lose
    told = summaries.select(*by, "topic_partition", F.posexplode("moved_keys").alias("place", "change"))
    before = Window.partitionBy(*by, "topic_partition", *happened).orderBy("place")
    return (
        told.select(*by, "topic_partition", "place", "change.*")
        .withColumn("nth", F.row_number().over(before) - 1)
        .groupBy(*by, *happened, "nth")
        .agg(
            F.max("at_ms").alias("at_ms"),
            F.sum("moved").alias("moved"),
            F.sum("keys").alias("keys"),
            F.max("place").alias("place"),
        )
        .orderBy(*by, "at_ms", "place", *happened)
    )


def changes(rows: Sequence[Row], plan: Group, first_ms: int) -> tuple[MembershipChange, ...]:
    """Count for each change of membership how many keys it moved, and how many it had to.

    The joins at the very start are left out: there was no key yet that they could have moved.

    Args:
        rows: What `membership` gave.
        plan: What was replayed.
        first_ms: When it began.

    Returns:
        In order of time.
    """
    first = {(consumer.name, _JOINED, 0) for consumer in plan.consumers}
    later = [row for row in rows if (row["consumer"], row["event"], row["nth"]) not in first]
    moments = [Moment(row["at_ms"], row["event"], row["consumer"]) for row in later]
    return tuple(
        MembershipChange(
            at_ms=row["at_ms"] - first_ms,
            what=said(row["event"]),
            consumer=row["consumer"],
            keys_moved=row["moved"],
            keys=row["keys"],
            ideal=ideal,
        )
        for row, ideal in zip(later, ideal_moves(plan, moments), strict=True)
    )


def backlog(name: str, points: Sequence[Row], first_ms: int) -> Backlog:
    """Take the backlog over time out of a summary.

    Args:
        name: What it is of.
        points: Its points.
        first_ms: When the replay began.

    Returns:
        The same, with times from then on.
    """
    return Backlog(
        topic_partition=name, points=tuple((point["at_ms"] - first_ms, point["outstanding"]) for point in points)
    )


def _sums(summaries: DataFrame) -> Row:
    [row] = summaries.agg(
        F.count("*").alias("topic_partitions"),
        F.count_if(F.col("stop") != "at_rest").alias("stopped"),
        F.sum("messages").alias("messages"),
        F.sum("keyless").alias("keyless"),
        F.min("start_ms").alias("first_ms"),
        F.max("end_ms").alias("last_ms"),
    ).collect()
    return row


def _totals(deliveries: DataFrame) -> dict[str | None, Row]:
    """Count and measure: for each consumer, and for None all of them together."""
    rows = deliveries.rollup("consumer").agg(
        F.count("*").alias("deliveries"),
        F.count_distinct("key").alias("keys"),
        F.count_if(F.col("attempt") > 1).alias("redeliveries"),
        percentile(50).alias("p50"),
        percentile(99).alias("p99"),
        F.sum("wait_ms").alias("wait_ms"),
        F.avg(F.col("ended_ms") - F.col("delivered_ms")).alias("held_ms"),
    )
    return {row["consumer"]: row for row in rows.collect()}


def _ended(deliveries: DataFrame, plan: Group, last_ms: int) -> dict[Visit, int]:
    """Find when the last delivery of each consumer ended, by visit; runs a job if somebody drains.

    What is open in the end is told to end then.
    """
    if all(change.drain_ms == 0 for change in plan.changes if isinstance(change, Leave)):
        return {}
    times = [
        F.when(F.col("consumer") == name, F.lit(at_ms).cast("bigint"))
        for name, each in joins(plan).items()
        for at_ms in each
    ]
    joined = F.size(F.filter(F.array(*times), lambda at_ms: at_ms <= F.col("delivered_ms"))) if times else F.lit(0)
    end = F.lit(last_ms).cast("bigint")
    rows = deliveries.groupBy("consumer", joined.alias("joins")).agg(
        F.max(F.coalesce("ended_ms", end)).alias("ended_ms")
    )
    return {Visit(row["consumer"], row["joins"]): row["ended_ms"] for row in rows.dropna().collect()}


def _per_phase(deliveries: DataFrame, plan: Group) -> Mapping[int, int]:
    """Count the deliveries of each phase of the plan."""
    starts = F.array(*(F.lit(phase.from_ms).cast("bigint") for phase in phases(plan)))
    begun = F.array_size(F.filter(starts, lambda start: start <= F.col("delivered_ms")))
    return {row["phase"]: row["count"] for row in deliveries.groupBy((begun - 1).alias("phase")).count().collect()}


def _consumer_loads(
    found: Mapping[str | None, Row], per_phase: Mapping[int, int], plan: Group
) -> tuple[ConsumerLoad, ...]:
    """Compare each consumer's load with an even split over those present, consumers that got nothing included."""
    ideal = dict.fromkeys(everybody(plan), 0.0)
    for number, phase in enumerate(phases(plan)):
        for name, share in shares(phase.weights).items():
            ideal[name] += per_phase.get(number, 0) * share
    return tuple(
        ConsumerLoad(
            consumer=name,
            deliveries=row["deliveries"] if row else 0,
            ideal=ideal[name],
            keys=row["keys"] if row else 0,
            wait_p50_ms=row["p50"] if row else 0,
            wait_p99_ms=row["p99"] if row else 0,
        )
        for name, row in ((name, found.get(name)) for name in ideal)
    )


def _waits(deliveries: DataFrame, first_ms: int, last_ms: int) -> tuple[Wait, ...]:
    width = (last_ms - first_ms) // _INTERVALS + 1
    since = F.col("delivered_ms") - first_ms
    number = (since - since % width).alias("since_ms")
    rows = deliveries.groupBy(number).agg(percentile(50).alias("p50"), percentile(99).alias("p99"))
    return tuple(Wait(*row) for row in rows.orderBy("since_ms").collect())
