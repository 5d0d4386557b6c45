"""What whole jobs cost on Spark: a replay beside the same replay in plain Python, co-location beside a sort.

Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it by ``make bench-spark``. A replay is compared
with one Python process per core that reads the same files and replays the same topic-partitions; co-location with what
Spark does for ``repartition`` and ``sortWithinPartitions``. ``--grow`` measures both again with more rows, more keys
and more consumers, ``--only`` one of them.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from benchmarks._harness import Report
from benchmarks._spark import Turns, bench_parser, bench_session, exit_code, noop, take_turns, zipf_key
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.ring import HashRing
from keyshared.simulate import Crash, Fixed, Group, Join, Pace, SimulatedConsumer
from keyshared.spark.columns.colocation import colocate
from keyshared.spark.columns.owners import with_owner
from keyshared.spark.replays.partition import Message, replay_partition
from keyshared.spark.replays.replay import replay

ROWS = 1_000_000
KEYS = 100_000
CONSUMERS = 10
TOPIC_PARTITIONS = 8
SERVICE_MS = 5
CORES = os.cpu_count() or 1
REPLAY_TARGET = 0.8
COLOCATE_TARGET = 1.2
BY_KEY, PLAIN_BY_KEY = "colocate by key", "repartition by key, and sort"
BY_OWNER, PLAIN_BY_OWNER = "colocate by owner", "with_owner, repartition by owner, and sort"


class Load(NamedTuple):
    """The size of a log and of the group that replays it."""

    rows: int
    keys: int = KEYS
    consumers: int = CONSUMERS

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.keys:,} keys, {self.consumers:,} consumers"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("bench_spark_jobs", str(__doc__), rows=ROWS, repeats=3)
    parser.add_argument("--grow", action="store_true", help="other sizes too")
    parser.add_argument("--only", choices=("replay", "colocate"), help="one of the two jobs")
    options = parser.parse_args(arguments)
    with bench_session(options) as (spark, folder):
        load = Load(options.rows)
        log = written(spark, load, folder / "log")
        sizes = list(grown(spark, options.rows, folder)) if options.grow else []
        found: list[Report] = []
        if options.only != "colocate":
            found.append(replays(load, measured(log, load, folder / "log", options.repeats)))
            print(found[-1], flush=True)
            if sizes:
                print(replay_growth(sizes), flush=True)
        if options.only != "replay":
            found.append(colocations(load, take_turns(co_located(log, load), options.repeats)))
            print(found[-1], flush=True)
            if sizes:
                print(colocation_growth(sizes), flush=True)
    return exit_code(options, found)


def grown(spark: SparkSession, rows: int, folder: Path) -> Iterator[tuple[Load, DataFrame, Path]]:
    """Logs that differ in one thing at a time: in rows, in keys, in consumers."""
    loads = [
        Load(rows // 10),
        Load(rows),
        Load(rows, keys=KEYS // 100),
        Load(rows, keys=KEYS * 10),
        Load(rows, consumers=CONSUMERS * 10),
    ]
    for number, load in enumerate(loads):
        path = folder / f"grown-{number}"
        yield load, written(spark, load, path), path


def written(spark: SparkSession, load: Load, path: Path) -> DataFrame:
    """A log that a group of its size is busy with two thirds of the time, one file for each topic-partition."""
    gap = SERVICE_MS * TOPIC_PARTITIONS * 3 / (2 * load.consumers)  # between messages of all topic-partitions
    number = F.col("id") % TOPIC_PARTITIONS
    spark.range(load.rows).select(
        F.concat(F.lit("p"), number.cast("string")).alias("topic_partition"),
        F.floor(F.col("id") / TOPIC_PARTITIONS).alias("offset"),
        zipf_key(load.keys).alias("key"),
        F.floor(F.col("id") * (gap / TOPIC_PARTITIONS)).alias("at_ms"),
        F.repeat(F.lit("x"), 50).alias("payload"),
        number.alias("file"),
    ).repartitionById(TOPIC_PARTITIONS, F.col("file").cast("int")).sortWithinPartitions("offset").drop(
        "file"
    ).write.parquet(str(path))
    return spark.read.parquet(str(path))


def plan_of(load: Load) -> Group:
    """A group from which one crashes and which one joins, a third and two thirds of the way."""
    end_ms = load.rows * SERVICE_MS * 3 // (2 * load.consumers)
    names = [f"c{number}" for number in range(load.consumers)]
    return Group(
        consumers=[SimulatedConsumer(name, Fixed(SERVICE_MS)) for name in names],
        changes=[Crash(end_ms // 3, names[0]), Join(end_ms * 2 // 3, SimulatedConsumer("newcomer", Fixed(SERVICE_MS)))],
        placement=HashRing(),
        pace=Pace.ARRIVALS,
        count_moved_keys=False,
    )


def measured(log: DataFrame, load: Load, path: Path, repeats: int) -> Turns:
    plan = plan_of(load)
    # handed out largest first would matter only if they differed: each has as many rows
    files = [str(file) for file in sorted(path.glob("*.parquet"))]
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:
        cases: dict[str, Callable[[], None]] = {
            "one Python process per core": lambda: check(load, sum(pool.map(replayed, files, [plan] * len(files)))),
            "replay on Spark": lambda: check(load, on_spark(log, plan)),
            "read, sort and pass through Python": lambda: noop(
                log.select("topic_partition", "offset", "key", "at_ms")
                .repartition("topic_partition")
                .sortWithinPartitions("topic_partition", "offset")
                .mapInArrow(lambda batches: batches, "topic_partition string, offset long, key string, at_ms long")
            ),
        }
        return take_turns(cases, repeats)


def replayed(file: str, plan: Group) -> int:
    """Replay the topic-partition of one file, and count what came out: in a process of its own."""
    return sum(1 for _ in replay_partition(messages(file), plan))


def messages(file: str) -> Iterator[Message]:
    for batch in pq.ParquetFile(file).iter_batches(columns=["topic_partition", "offset", "key", "at_ms"]):
        yield from map(Message, *(column.to_pylist() for column in batch.columns))


def on_spark(log: DataFrame, plan: Group) -> int:
    with replay(log, plan) as result:
        noop(result.deliveries)
        return sum(row.deliveries for row in result.summaries.select("deliveries").collect())


def check(load: Load, deliveries: int) -> None:
    """Check that every message was delivered at least once: nothing was skipped to be fast."""
    if deliveries < load.rows:
        sys.exit(f"only {deliveries:,} deliveries of {load.rows:,} messages")


def replays(load: Load, turns: Turns) -> Report:
    found = Report("replay on Spark", ("cpu us/row", "wall us/row", "of Python"), [str(load)])
    alone = "one Python process per core"
    for case in turns:
        seconds = turns.median(case)
        found.add(case, *(each / load.rows * 1e6 for each in seconds), turns.ratio(alone, case).processor)
    share = turns.ratio(alone, "replay on Spark").processor
    found.judge("of one Python process per core", share, REPLAY_TARGET, at_most=False)
    found.notes.extend(map(str, found.verdicts))
    return found


def co_located(log: DataFrame, load: Load) -> dict[str, Callable[[], None]]:
    ring = HashRing([f"c{number}" for number in range(load.consumers)])
    order = ("topic_partition", "offset")
    frames = {
        "noop": log,
        PLAIN_BY_KEY: log.repartition(load.consumers, "key").sortWithinPartitions(*order),
        BY_KEY: colocate(log, partitions=load.consumers),
        PLAIN_BY_OWNER: with_owner(log, ring).repartition(load.consumers, "owner").sortWithinPartitions(*order),
        BY_OWNER: colocate(log, ring),
    }
    return {name: partial(noop, frame) for name, frame in frames.items()}


def colocations(load: Load, turns: Turns) -> Report:
    found = Report("co-location on Spark", ("cpu us/row", "x plain cpu", "x plain wall", "x noop cpu"), [str(load)])
    for case in turns:
        plain = PLAIN_BY_OWNER if "owner" in case else PLAIN_BY_KEY
        each = turns.median(case).processor / load.rows * 1e6
        found.add(case, each, *turns.ratio(case, plain), turns.ratio(case, "noop").processor)
    for case, plain in ((BY_KEY, PLAIN_BY_KEY), (BY_OWNER, PLAIN_BY_OWNER)):
        found.judge(f"{case}, x plain cpu", turns.ratio(case, plain).processor, COLOCATE_TARGET)
    found.notes.extend(map(str, found.verdicts))
    return found


def replay_growth(logs: Sequence[tuple[Load, DataFrame, Path]]) -> Report:
    found = Report("how replays grow", ("cpu us/row", "of Python"), ["one turn after a warm one"])
    for load, log, path in logs:
        turns = measured(log, load, path, 1)
        each = turns.median("replay on Spark").processor / load.rows * 1e6
        found.add(str(load), each, turns.ratio("one Python process per core", "replay on Spark").processor)
    return found


def colocation_growth(logs: Sequence[tuple[Load, DataFrame, Path]]) -> Report:
    found = Report("how co-location by owner grows", ("cpu us/row", "x plain cpu"), ["one turn after a warm one"])
    for load, log, _ in logs:
        turns = take_turns(co_located(log, load), 1)
        each = turns.median(BY_OWNER).processor / load.rows * 1e6
        found.add(str(load), each, turns.ratio(BY_OWNER, PLAIN_BY_OWNER).processor)
    return found


if __name__ == "__main__":
    sys.exit(main())
