"""What a simulation costs on Spark, beside the same simulation in plain Python.

Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it by ``make bench-spark``. It is compared with
one Python process per core that reads the same files and simulates the same topic-partitions.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from benchmarks._harness import Report
from benchmarks._spark import Turns, bench_parser, bench_session, exit_code, noop, take_turns, zipf_key
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.simulate import Crash, Fixed, Group, Join, SimulatedConsumer
from keyshared.spark.deliveries import simulate, simulate_rows
from keyshared.spark.log_columns import LogColumns

ROWS = 1_000_000
KEYS = 100_000
CONSUMERS = 10
TOPIC_PARTITIONS = 8
SERVICE_MS = 5
CORES = os.cpu_count() or 1
TARGET = 0.85
ALONE, ON_SPARK = "one Python process per core", "simulate on Spark"


class Load(NamedTuple):
    """The size of a log and of the group that consumes it."""

    rows: int
    keys: int = KEYS
    consumers: int = CONSUMERS

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.keys:,} keys, {self.consumers:,} consumers"


def main(arguments: Sequence[str] | None = None) -> int:
    options = bench_parser("bench_spark_jobs", str(__doc__), rows=ROWS, repeats=3).parse_args(arguments)
    load = Load(options.rows)
    with bench_session(options) as (spark, folder):
        log = written(spark, load, folder / "log")
        found = report(load, measured(log, load, folder / "log", options.repeats))
    print(found)
    return exit_code(options, [found])


def written(spark: SparkSession, load: Load, path: Path) -> DataFrame:
    """A log that a group of its size is busy with two thirds of the time, one file for each topic-partition."""
    gap = SERVICE_MS * TOPIC_PARTITIONS * 3 / (2 * load.consumers)  # between messages of all topic-partitions
    number = (F.col("id") % TOPIC_PARTITIONS).cast("int")
    spark.range(load.rows).select(
        F.lit("orders").alias("topic"),
        number.alias("partition"),
        F.floor(F.col("id") / TOPIC_PARTITIONS).alias("offset"),
        zipf_key(load.keys).alias("key"),
        F.floor(F.col("id") * (gap / TOPIC_PARTITIONS)).alias("timestamp"),
        F.repeat(F.lit("x"), 50).alias("payload"),
    ).repartitionById(TOPIC_PARTITIONS, "partition").sortWithinPartitions("offset").write.parquet(str(path))
    return spark.read.parquet(str(path))


def group_of(load: Load) -> Group:
    """A group from which one crashes and which one joins, a third and two thirds of the way."""
    end_ms = load.rows * SERVICE_MS * 3 // (2 * load.consumers)
    names = [f"c{number}" for number in range(load.consumers)]
    return Group(
        consumers=[SimulatedConsumer(name, Fixed(SERVICE_MS)) for name in names],
        changes=[Crash(end_ms // 3, names[0]), Join(end_ms * 2 // 3, SimulatedConsumer("newcomer", Fixed(SERVICE_MS)))],
    )


def measured(log: DataFrame, load: Load, path: Path, repeats: int) -> Turns:
    group = group_of(load)
    files = [str(file) for file in sorted(path.glob("*.parquet"))]
    columns = ["topic", "partition", "offset", "key", "timestamp"]
    placed = log.select(*columns).repartition("partition").sortWithinPartitions("partition", "offset")
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:
        cases: dict[str, Callable[[], None]] = {
            ALONE: lambda: check(load, sum(pool.map(in_python, files, [group] * len(files)))),
            ON_SPARK: lambda: check(load, on_spark(log, group)),
            "read, sort and pass through Python": lambda: noop(placed.mapInArrow(lambda each: each, placed.schema)),
        }
        return take_turns(cases, repeats)


def in_python(file: str, group: Group) -> int:
    """Simulate the topic-partition of one file, and count the deliveries: in a process of its own."""
    return sum(1 for _ in simulate_rows(messages(file), group))


def messages(file: str) -> Iterator[tuple[Any, ...]]:
    for batch in pq.ParquetFile(file).iter_batches(columns=["offset", "key", "timestamp"]):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def on_spark(log: DataFrame, group: Group) -> int:
    """Simulate the log, with all columns of the deliveries, and count the deliveries."""
    deliveries = simulate(log, group, LogColumns(start=0))
    everything = F.count_if(F.xxhash64(*deliveries.columns).isNotNull())
    return int(deliveries.agg(everything).head()[0])  # type: ignore[index]  # an aggregate has a row


def check(load: Load, deliveries: int) -> None:
    """Check that every message was delivered at least once: nothing was skipped to be fast."""
    if deliveries < load.rows:
        sys.exit(f"only {deliveries:,} deliveries of {load.rows:,} messages")


def report(load: Load, turns: Turns) -> Report:
    found = Report("simulate on Spark", ("cpu us/row", "wall us/row", "of Python"), [str(load)])
    for case in turns:
        seconds = turns.median(case)
        found.add(case, *(each / load.rows * 1e6 for each in seconds), turns.ratio(ALONE, case).processor)
    found.judge(f"of {ALONE}", turns.ratio(ALONE, ON_SPARK).processor, TARGET, at_most=False)
    found.notes.extend(map(str, found.verdicts))
    return found


if __name__ == "__main__":
    sys.exit(main())
