"""How much of its consumers' time a log demands of a group, window by window, in native Spark: no simulation.

Above 1 the backlog grows in that window with any placement. An average over the whole log would hide it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared._checks import check_int, check_kind
from keyshared.errors import ArgumentError
from keyshared.simulate import (
    Crash,
    Fixed,
    Group,
    Join,
    Leave,
    PerMessage,
    Return,
    Sampled,
    Scaled,
    ServiceTime,
    SetService,
    SimulatedConsumer,
)
from keyshared.spark.log_columns import KAFKA_COLUMNS, LogColumns
from keyshared.spark.rows import KEYS, WHOLE, check_columns, time_ms

__all__ = ["Stay", "demand", "stays"]

DEFAULT_WINDOW_MS: Final = 60_000


class Stay(NamedTuple):
    """A stretch of time in which a consumer is up and works at one speed.

    Attributes:
        name: The consumer.
        start_ms: Its beginning, on the clock of the group.
        end_ms: Its end; None if it has none.
        concurrency: Messages that the consumer works on at once.
        service: How long it works on each.
    """

    name: str
    start_ms: int
    end_ms: int | None
    concurrency: int
    service: ServiceTime


def demand(
    df: DataFrame,
    group: Group,
    columns: LogColumns = KAFKA_COLUMNS,
    *,
    window_ms: int = DEFAULT_WINDOW_MS,
) -> DataFrame:
    """Compare the work that arrives in each window of time with the time that the consumers have in it.

    Redeliveries, batches and uneven shares of the keys are left out, so a simulation can only do worse.

    Args:
        df: The log, a row for each message.
        group: The consumers. Their service times must be ones of `keyshared.simulate`.
        columns: The columns of the log; neither ``offset`` nor ``not_before`` is read. A message without ``service_ms``
            counts as the default of `PerMessage`.
        window_ms: The length of a window in milliseconds.

    Returns:
        A row for each topic-partition and window with messages: the columns of the topic-partition, ``start_ms`` of the
        window on the clock of ``time``, ``messages``, ``demand`` (1.0: all the time of all consumers that are up;
        infinite if none is), and ``key_demand`` of the ``hottest_key``: 1.0 if its messages, one after the other (or
        ``max_in_flight_per_key`` at once), take the fastest consumer all of the window. Lazy, except for one look at
        ``time`` without ``start``.

    Raises:
        ArgumentError: A column is missing or of another type, ``window_ms`` is less than 1, or a service time is none
            of `keyshared.simulate`.

    Complexity:
        Two shuffles, of a row for each key and window; the expression grows by each stay of a consumer.

    Example:
        >>> group = Group(consumers=[SimulatedConsumer(name, Fixed(20)) for name in "ab"])
        >>> log = spark.range(100).selectExpr("'t' topic", "0 partition", "'k' as key", "id * 10 as timestamp")
        >>> demand(log, group, window_ms=1_000).select("messages", "demand", "key_demand").collect()
        [Row(messages=100, demand=1.0, key_demand=2.0)]
    """
    check_int("window_ms", window_ms, 1)
    check_kind("group", group, Group)
    names, own, service_ms = check_kind("columns", columns, LogColumns).names, list(stays(group)), columns.service_ms
    if columns.time is None:
        raise ArgumentError("time", None, "name a column")
    check_columns(df, {**dict.fromkeys(names, ()), columns.key: KEYS, **({service_ms: WHOLE} if service_ms else {})})
    costs = [_cost(stay.service) for stay in own]  # raises the typed errors
    rows = df.select(
        *names,
        F.col(columns.key).cast("binary").alias("_key"),
        time_ms(df, columns.time).alias("_time"),
        (F.col(service_ms).cast("double") if service_ms else F.lit(None).cast("double")).alias("_own"),
    )
    start = columns.start
    if start is None:
        start = rows.agg(F.min("_time")).head()[0] or 0  # type: ignore[index]  # an aggregate has a row
    window = F.floor((F.col("_time") - start) / window_ms).alias("_window")
    sums = [F.count("*").alias("n"), F.count_if(F.col("_own").isNull()).alias("silent"), F.sum("_own").alias("own")]
    by_key = rows.groupBy(*names, window, "_key").agg(*sums).withColumn("own", F.coalesce("own", F.lit(0.0)))
    at_once = window_ms * group.config.max_in_flight_per_key
    need = F.when(F.col("_key").isNotNull(), _least([_work(cost) for cost in costs]) / at_once)
    windows = by_key.withColumn("_need", need).groupBy(*names, "_window")
    summed = windows.agg(
        F.sum("n").alias("n"),
        F.sum("silent").alias("silent"),
        F.sum("own").alias("own"),
        F.max("_need").alias("key_demand"),
        F.max_by("_key", F.struct("_need", "_key")).alias("hottest_key"),
    )
    return summed.select(
        *names,
        (F.col("_window") * window_ms + start).alias("start_ms"),
        F.col("n").alias("messages"),
        _share(own, costs, window_ms).alias("demand"),
        "key_demand",
        "hottest_key",
    )


def stays(group: Group) -> Iterator[Stay]:
    """Yield the stretches of time in which the consumers of a group are up, as far as the group alone can tell.

    Args:
        group: The group.

    Example:
        >>> ann = SimulatedConsumer("ann", Fixed(5))
        >>> crashing = Group(consumers=[ann], changes=[Crash(9, "ann")])
        >>> [(stay.name, stay.start_ms, stay.end_ms) for stay in stays(crashing)]
        [('ann', 0, 9)]
    """
    known = {each.name: each for each in group.consumers}
    since = dict.fromkeys(known, 0)  # of the consumers that are up
    for change in group.changes:
        if isinstance(change, Leave | Crash | SetService) and change.name in since:
            yield _stay(known[change.name], since.pop(change.name), change.at_ms)
            if isinstance(change, SetService):
                since[change.name] = change.at_ms
        if isinstance(change, SetService):
            known[change.name] = replace(known[change.name], service=change.service)
        elif isinstance(change, Join):
            known[change.consumer.name] = change.consumer
            since[change.consumer.name] = change.at_ms
        elif isinstance(change, Return):
            since[change.name] = change.at_ms
    for name, start_ms in since.items():
        yield _stay(known[name], start_ms, None)


def _stay(consumer: SimulatedConsumer, start_ms: int, end_ms: int | None) -> Stay:
    return Stay(consumer.name, start_ms, end_ms, consumer.concurrency, consumer.service)


class _Cost(NamedTuple):
    """The time that messages take: ``each`` for every one, ``silent`` for one that names no time, ``own`` times it."""

    each: float
    silent: float
    own: float


def _cost(service: ServiceTime) -> _Cost:
    match service:
        case Fixed(ms):
            return _Cost(ms, 0, 0)
        case Sampled(samples):
            return _Cost(sum(samples) / len(samples), 0, 0)
        case PerMessage(default_ms):
            return _Cost(0, default_ms or 0, 1)
        case Scaled(model, factor):
            return _Cost(*(float(factor) * value for value in _cost(model)))
        case _:
            raise ArgumentError("service", service, "be Fixed, Sampled, PerMessage or Scaled; simulate any other")


def _work(cost: _Cost) -> Column:
    """Return the time that the messages of a row take."""
    return cost.each * F.col("n") + cost.silent * F.col("silent") + cost.own * F.col("own")


def _least(values: Sequence[Column]) -> Column:
    return F.least(*values) if len(values) > 1 else values[0] if values else F.lit(None).cast("double")


def _share(own: Sequence[Stay], costs: Sequence[_Cost], window_ms: int) -> Column:
    """Return the messages of a window, divided by those that the consumers can do in it."""
    start = F.col("_window") * window_ms
    fitting = [F.lit(0.0)]
    for stay, cost in zip(own, costs, strict=True):
        end = start + window_ms if stay.end_ms is None else F.least(start + window_ms, F.lit(stay.end_ms))
        up_ms = F.greatest(end - F.greatest(start, F.lit(stay.start_ms)), F.lit(0))
        work = _work(cost)
        any_number = F.when(up_ms > 0, float("inf")).otherwise(0.0)
        fitting.append(F.when(work > 0, up_ms * stay.concurrency * F.col("n") / work).otherwise(any_number))
    total = reduce(add, fitting)
    return F.when(total > 0, F.col("n") / total).otherwise(float("inf"))
