"""From the delivery log and the summaries of a replay to the figures of the demo's report, in native Spark."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.history import Event
from keyshared.spark.demo_plan import Story
from keyshared.spark.report import Backlog, Change, ConsumerLoad, HotKey

__all__ = ["backlogs", "changes", "consumer_loads", "hot_keys", "totals"]

_ACCURACY: Final = 10_000  # of percentile_approx: ranks are right to one in 10,000
_LEAVES: Final = frozenset({Event.EVICTED, Event.LEFT})


def totals(deliveries: DataFrame, story: Story) -> dict[str | None, Row]:
    """Count and measure; runs the job.

    Args:
        deliveries: The delivery log.
        story: What happened to the group.

    Returns:
        For each consumer a row with ``deliveries``, ``keys``, ``redeliveries``, ``p50``, ``p99`` and a list ``phases``
        of deliveries before the crash, between crash and join, and after the join; for None, all consumers together.
    """
    at = F.col("delivered_ms")
    phases = (at < story.crash_ms, at.between(story.crash_ms, story.join_ms - 1), at >= story.join_ms)
    rows = deliveries.rollup("consumer").agg(
        F.count("*").alias("deliveries"),
        F.count_distinct("key").alias("keys"),
        F.count_if(F.col("attempt") > 1).alias("redeliveries"),
        _percentile(50).alias("p50"),
        _percentile(99).alias("p99"),
        F.array(*map(F.count_if, phases)).alias("phases"),
    )
    return {row["consumer"]: row for row in rows.collect()}


def consumer_loads(found: dict[str | None, Row], story: Story) -> tuple[ConsumerLoad, ...]:
    """Compare each consumer's load with an even split over whoever was there.

    Args:
        found: What `totals` gave.
        story: What happened to the group.

    Returns:
        One value for each consumer, in the order of joining, also for those that got nothing.
    """
    everybody: Sequence[int] = found[None]["phases"] if None in found else [0, 0, 0]
    ideal = dict.fromkeys(story.names, 0.0)
    for deliveries, present in zip(everybody, story.phases(), strict=True):
        for name in present:
            ideal[name] += deliveries / len(present)
    return tuple(
        ConsumerLoad(
            consumer=name,
            deliveries=row["deliveries"] if row else 0,
            ideal=ideal[name],
            keys=row["keys"] if row else 0,
            wait_p50_ms=row["p50"] if row else 0,
            wait_p99_ms=row["p99"] if row else 0,
        )
        for name, row in ((name, found.get(name)) for name in story.names)
    )


def changes(summaries: Sequence[Row], story: Story) -> tuple[Change, ...]:
    """Tell how many keys the leave and the join moved, all topic-partitions together.

    A key that occurs in two topic-partitions counts twice, because each has a dispatcher of its own.

    Args:
        summaries: Rows of `SUMMARY_SCHEMA`.
        story: What happened to the group.

    Returns:
        The two changes.
    """
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for row in summaries:
        for moved in row["moved_keys"]:
            what = "leaves" if moved["event"] in _LEAVES else "joins"
            at_ms, keys_moved, keys = found.get((what, moved["consumer"]), (0, 0, 0))
            found[what, moved["consumer"]] = (
                max(at_ms, moved["at_ms"]),
                keys_moved + moved["moved"],
                keys + moved["keys"],
            )
    after = [("leaves", story.crashed), ("joins", story.joined)]
    return tuple(
        Change(at_ms=at_ms, what=what, consumer=name, keys_moved=moved, keys=keys, ideal=1 / story.consumers)
        for what, name in after
        for at_ms, moved, keys in [found[what, name]]
    )


def hot_keys(log: DataFrame, deliveries: DataFrame, count: int) -> tuple[HotKey, ...]:
    """Find the keys with most messages, who had them, and how long their messages waited; runs two jobs.

    Args:
        log: The messages, with ``key``.
        deliveries: The delivery log.
        count: How many keys are wanted.

    Returns:
        The hottest first; of equal ones, the smaller key.
    """
    keyed = (
        log.filter("key is not null")
        .groupBy(F.col("key").cast("binary").alias("key"))
        .agg(F.count("*").alias("messages"))
    )
    hottest = keyed.orderBy(F.desc("messages"), "key").limit(count).collect()
    if not hottest:
        return ()
    wanted = deliveries.sparkSession.createDataFrame([(row["key"],) for row in hottest], "key binary")
    rows = (
        deliveries.join(F.broadcast(wanted), "key")
        .rollup("key", "consumer")
        .agg(F.min("delivered_ms").alias("first_ms"), _percentile(99).alias("p99"))
        .filter("key is not null")
        .orderBy("first_ms", "consumer")
        .collect()
    )
    waits = {bytes(row["key"]): row["p99"] for row in rows if row["consumer"] is None}
    return tuple(
        HotKey(
            key=bytes(hot["key"]).decode(errors="backslashreplace"),
            messages=hot["messages"],
            owners=tuple(row["consumer"] for row in rows if row["key"] == hot["key"] and row["consumer"] is not None),
            wait_p99_ms=waits[bytes(hot["key"])],
        )
        for hot in hottest
    )


def backlogs(summaries: Sequence[Row]) -> tuple[Backlog, ...]:
    """Take the backlog over time out of the summaries.

    Args:
        summaries: Rows of `SUMMARY_SCHEMA`.

    Returns:
        One for each topic-partition, in their order.
    """
    return tuple(
        Backlog(
            topic_partition=row["topic_partition"],
            points=tuple((point["at_ms"], point["outstanding"]) for point in row["backlog"]),
        )
        for row in summaries
    )


def _percentile(percent: int) -> Column:
    return F.percentile_approx("wait_ms", percent / 100, _ACCURACY)
