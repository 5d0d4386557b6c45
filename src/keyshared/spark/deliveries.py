"""What a group of consumers would have done with a log, simulated for each topic-partition in parallel.

`simulate` yields deliveries; every figure about them is a ``groupBy``. Its work, `simulate_rows`, is a plain function
over the rows of one topic-partition.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared._checks import check_kind
from keyshared.errors import ArgumentError
from keyshared.simulate import Group, Pace, simulated_deliveries
from keyshared.spark.log_columns import KAFKA_COLUMNS, LogColumns, arrivals_of
from keyshared.spark.rows import TOPIC_PARTITION, WHOLE, Rows, by_partition, check_columns, names_of

__all__ = [
    "CONSUMER_GROUP",
    "DELIVERIES",
    "simulate",
    "simulate_rows",
    "summaries",
    "work_began",
]

CONSUMER_GROUP: Final = "consumer_group"
"""The first column of the deliveries of several groups."""

DELIVERIES: Final = (
    "offset bigint, key binary, consumer string, attempt int, available_ms bigint, delivered_ms bigint, "
    "ended_ms bigint, outcome string, wait_ms bigint, service_ms bigint, sequence bigint, end_sequence bigint"
)
"""The columns of `simulate` after those of the topic-partition: the fields of `SimulatedDelivery`."""


def simulate(
    df: DataFrame,
    group: Group | Mapping[str, Group],
    columns: LogColumns = KAFKA_COLUMNS,
    *,
    tasks: int | None = None,
) -> DataFrame:
    """Simulate what a group of consumers would have done with a log.

    Every topic-partition gets a dispatcher of its own and the whole group, on a virtual clock. Messages are offered in
    the order of their offsets, which may have gaps. One whose time is before its predecessor's arrives right after it.

    Args:
        df: The log, a row for each message.
        group: The consumers and what happens to them; several by name are simulated side by side.
        columns: The columns of the log.
        tasks: As in `by_partition`.

    Returns:
        A row for each delivery, and one for each message that no delivery acked; see `SimulatedDelivery`. The columns
        are those of the topic-partition, then `DELIVERIES`, on the clock of ``time``: milliseconds since 1970 if it is
        a timestamp. Of several groups the first column is ``consumer_group``. Lazy, except for one look at ``time``
        without ``start``.

    Raises:
        ArgumentError: A column is missing or of another type, there is no group, or ``time`` is None and a group does
            not take a backlog. While the job runs, NULL where it must not be, an offset that is there twice, and a
            message without the service time that `PerMessage` needs fail it, and the error shows the row.

    Complexity:
        One shuffle and sort of the log for all groups together; then that of `simulated_deliveries`. Memory of a
        worker: O(outstanding messages).

    Example:
        >>> from keyshared.simulate import Fixed, SimulatedConsumer
        >>> group = Group(consumers=[SimulatedConsumer("a", Fixed(20)), SimulatedConsumer("b", Fixed(20))])
        >>> log = spark.range(5).selectExpr("'t' topic", "0 partition", "id as offset", "'k' as key", "id as timestamp")
        >>> found = simulate(log, group).filter("offset > 2").orderBy("offset")
        >>> found.select("offset", "delivered_ms", "outcome").collect()
        [Row(offset=3, delivered_ms=60, outcome='acked'), Row(offset=4, delivered_ms=80, outcome='acked')]
    """
    groups = _groups(group)
    rows, read, zero = check_kind("columns", columns, LogColumns).select(df, groups.values())
    if isinstance(group, Group):
        return by_partition(
            rows,
            "offset",
            read,
            DELIVERIES,
            lambda each: simulate_rows(each, group, start=zero),
            topic_partition=columns.names,
            tasks=tasks,
        )
    return by_partition(
        rows.withColumn(CONSUMER_GROUP, F.explode(F.array(*map(F.lit, groups)))),
        "offset",
        [CONSUMER_GROUP, *read],
        DELIVERIES,
        lambda each: _simulate_named(each, groups, zero),
        topic_partition=[CONSUMER_GROUP, *columns.names],
        tasks=tasks,
    )


def simulate_rows(rows: Rows, group: Group, *, start: int = 0) -> Iterator[tuple[Any, ...]]:
    """Simulate a group over the rows of one topic-partition: the work of `simulate`.

    Args:
        rows: Offset, key, time in milliseconds, and if wanted service time and the instant before which the message is
            not delivered, in the order of offsets.
        group: The consumers.
        start: The time at which the clock of the group is at 0.

    Yields:
        The columns of `DELIVERIES`, on the clock of the rows.

    Raises:
        ArgumentError: NULL instead of an offset or a time, or an offset twice.

    Example:
        >>> from keyshared.simulate import Fixed, SimulatedConsumer
        >>> group = Group(consumers=[SimulatedConsumer("a", Fixed(20))])
        >>> [row[5:8] for row in simulate_rows(iter([(7, b"k", 1_000), (9, b"k", 1_005)]), group, start=1_000)]
        [(1000, 1020, 'acked'), (1020, 1040, 'acked')]
    """
    found = simulated_deliveries(group, arrivals_of(rows, start))
    if not start or group.pace is Pace.BACKLOG:
        return found
    return (_later(each, start) for each in found)


def summaries(deliveries: DataFrame, *, topic_partition: str | Sequence[str] = TOPIC_PARTITION) -> DataFrame:
    """Sum up the deliveries of each topic-partition.

    Args:
        deliveries: What `simulate` returned.
        topic_partition: As given to `simulate`.

    Returns:
        A row for each topic-partition (and consumer group, if there are several): ``messages``, ``deliveries``,
        ``redeliveries``; messages that were ``acked``, ``late_acked``, ``dead_lettered``, ``dropped`` and ``skipped``,
        and those ``unfinished`` at the end; the exact percentiles ``wait_p50_ms``, ``wait_p99_ms`` and ``wait_max_ms``
        of the waits until work began; ``busy_ms``, the time that consumers worked; ``start_ms`` and ``end_ms``.

    Example:
        >>> from keyshared.simulate import Fixed, SimulatedConsumer
        >>> group = Group(consumers=[SimulatedConsumer("a", Fixed(20))])
        >>> log = spark.range(5).selectExpr("'t' topic", "0 partition", "id as offset", "'k' as key", "id as timestamp")
        >>> summaries(simulate(log, group)).select("messages", "acked", "wait_max_ms", "end_ms").collect()
        [Row(messages=5, acked=5, wait_max_ms=76, end_ms=100)]
    """
    names = names_of(topic_partition)
    check_columns(deliveries, {**dict.fromkeys(names, ()), "outcome": ("string",), "attempt": WHOLE, "wait_ms": WHOLE})
    by = [CONSUMER_GROUP, *names] if CONSUMER_GROUP in deliveries.columns else [*names]
    waited = deliveries.withColumn("wait_ms", F.coalesce(work_began() - F.col("available_ms"), F.col("wait_ms")))
    return waited.groupBy(*dict.fromkeys(by)).agg(
        F.count_if(F.col("attempt") <= 1).alias("messages"),
        F.count("consumer").alias("deliveries"),
        F.count_if(F.col("attempt") > 1).alias("redeliveries"),
        *(_how_many(name).alias(name) for name in ("acked", "late_acked", "dead_lettered", "dropped", "skipped")),
        _how_many("open", "outstanding").alias("unfinished"),
        *(
            F.percentile("wait_ms", F.lit(share)).alias(f"wait_{name}_ms")
            for name, share in (("p50", 0.5), ("p99", 0.99))
        ),
        F.max("wait_ms").alias("wait_max_ms"),
        F.coalesce(F.sum("service_ms"), F.lit(0).cast("bigint")).alias("busy_ms"),
        F.min("available_ms").alias("start_ms"),
        F.max("ended_ms").alias("end_ms"),
    )


def work_began() -> Column:
    """Return the instant, in milliseconds, at which the consumer of a delivery began to work on the message.

    A consumer that was delivered more than its concurrency lets messages wait. Where ``service_ms`` is unknown, the
    work is taken to begin with the delivery.
    """
    return F.coalesce(F.col("ended_ms") - F.col("service_ms"), F.col("delivered_ms"))


def _how_many(*outcomes: str) -> Column:
    return F.count_if(F.col("outcome").isin(*outcomes))


def _groups(group: object) -> dict[str, Group]:
    if isinstance(group, Group):
        return {"": group}
    if not isinstance(group, Mapping) or not group:
        raise ArgumentError("group", group, "be a Group, or several by name")
    for name, each in group.items():
        if not isinstance(name, str) or not name:
            raise ArgumentError("group", name, "have texts for names")
        check_kind(f"group {name!r}", each, Group)
    return dict(group)


def _simulate_named(rows: Rows, groups: Mapping[str, Group], start: int) -> Iterator[tuple[Any, ...]]:
    first = next(rows)
    own = (row[1:] for row in _after(first, rows))
    return simulate_rows(own, groups[first[0]], start=start)


def _after(first: tuple[Any, ...], rows: Rows) -> Rows:
    yield first
    yield from rows


def _later(delivery: Sequence[Any], start: int) -> tuple[Any, ...]:
    """Move a delivery from the clock of the group to that of the log."""
    offset, key, consumer, attempt, available_ms, delivered_ms, ended_ms, *rest = delivery
    return (
        offset,
        key,
        consumer,
        attempt,
        None if available_ms is None else available_ms + start,
        None if delivered_ms is None else delivered_ms + start,
        None if ended_ms is None else ended_ms + start,
        *rest,
    )
