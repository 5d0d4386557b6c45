"""What it costs to keep dispatchers from micro-batch to micro-batch on Spark, against the same commands in process.

First a log with much in each micro-batch, for what a command costs. Then micro-batches with nothing, and with one
command in each of some topic-partitions, for what grows with topic-partitions and with the messages outstanding in
them. Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it by ``make bench-spark``. The processor
seconds are those to compare.
"""

import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks._spark import Turns, bench_parser, bench_session, noop, take_turns
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from keyshared.config import DispatcherConfig
from keyshared.journal import Command, Journal
from keyshared.ring import HashRing
from keyshared.spark.streams.dispatch import COMMAND_SCHEMA, STATE_STORE, stream_dispatch

ROWS: Final = 200_000
TOPIC_PARTITIONS: Final = (4, 100)
OUTSTANDING: Final = 1_000
FILES: Final = 5
BATCHES: Final = FILES + 1  # when all is read one more lets time pass
CONSUMERS: Final = [f"c{number}" for number in range(10)]
CONFIG: Final = DispatcherConfig(ack_timeout_ms=None)


class Quiet(NamedTuple):
    """A stream that comes to micro-batches of one command in each of its topic-partitions."""

    topic_partitions: int
    outstanding: int

    @property
    def name(self) -> str:
        return f"{self.topic_partitions:,} topic-partitions, {self.outstanding:,} outstanding in each"


EMPTY: Final = "nothing"
QUIET: Final = (Quiet(10, 0), Quiet(100, 0), Quiet(1_000, 0), Quiet(10, 1_000), Quiet(10, 10_000))


def main(arguments: Sequence[str] | None = None) -> int:
    options = bench_parser("bench_spark_streaming", str(__doc__), rows=ROWS, repeats=3).parse_args(arguments)
    with bench_session(options) as (spark, folder):
        for name, value in STATE_STORE.items():
            spark.conf.set(name, value)
        cases = busy_cases(spark, folder, options.rows) | quiet_cases(spark, folder)
        print(report(options.rows, take_turns(cases, options.repeats)))
    return 0


def busy_cases(spark: SparkSession, folder: Path, rows: int) -> dict[str, Callable[[], object]]:
    """A log in process, as a batch and as a stream, in few and in many topic-partitions."""
    cases: dict[str, Callable[[], object]] = {}
    for several in TOPIC_PARTITIONS:
        commands = list(life(rows // several))
        size = -(-len(commands) // FILES)
        files = [commands[start : start + size] for start in range(0, len(commands), size)]
        source = folder / f"log-{several}"
        for number, mine in enumerate(files):
            write(source, number, mine, several)
        cases |= {
            f"in process, {several}": partial(in_process, files, several, stored=False),
            f"stored by file, {several}": partial(in_process, files, several, stored=True),
            f"batch, {several}": partial(batch, spark, source),
            f"stream, {several}": partial(stream, spark, source, folder / "checkpoint"),
        }
    return cases


def quiet_cases(spark: SparkSession, folder: Path) -> dict[str, Callable[[], object]]:
    """Streams that go on from a state; what it took to come there is not measured."""
    source = folder / "empty"
    for number in range(FILES):
        write(source, number, [], 1)
    cases: dict[str, Callable[[], object]] = {EMPTY: partial(stream, spark, source, folder / "checkpoint")}
    for case in QUIET:
        cases[case.name] = prepared(spark, folder, case)
    return cases


def prepared(spark: SparkSession, folder: Path, case: Quiet) -> Callable[[], object]:
    source, begun = folder / case.name, folder / f"{case.name}-begun"
    start = [*joins(), *(offer(1_000 + offset, offset) for offset in range(case.outstanding))]
    write(source, 0, start, case.topic_partitions)
    stream(spark, source, begun, keep=True)
    for number in range(1, FILES + 1):
        write(source, number, [offer(1_000_000 + number, case.outstanding + number)], case.topic_partitions)

    def run() -> None:
        shutil.copytree(begun, folder / "checkpoint")
        stream(spark, source, folder / "checkpoint")

    return run


def joins() -> Iterator[Command]:
    return (Command(number, 0, "add_consumer", consumer=name) for number, name in enumerate(CONSUMERS))


def offer(sequence: int, offset: int) -> Command:
    return Command(sequence, sequence, "offer", offset, b"order-%d" % offset)


def life(rows: int) -> Iterator[Command]:
    """Messages with keys of their own, each acked when so many more have come."""
    yield from joins()
    ring, number = HashRing(CONSUMERS), count(len(CONSUMERS))
    for offset in range((rows + OUTSTANDING) // 2):
        yield offer(next(number), offset)
        if offset >= OUTSTANDING:
            old = offset - OUTSTANDING
            yield Command(next(number), offset, "ack", old, consumer=ring.owner(f"order-{old}"), attempt=1)


def write(folder: Path, number: int, commands: Sequence[Command], topic_partitions: int) -> None:
    """Write the next file of a source: the same commands for each topic-partition."""
    rows = [(f"t-{t}", *command) for t in range(topic_partitions) for command in commands]
    schema = to_arrow_schema(COMMAND_SCHEMA)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    folder.mkdir(exist_ok=True)
    file = folder / f"{number:03}.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), file)
    os.utime(file, (number, number))  # a source is read from the oldest file on


def batch(spark: SparkSession, source: Path) -> None:
    noop(dispatched(spark.read.schema(COMMAND_SCHEMA).parquet(str(source))))


def stream(spark: SparkSession, source: Path, checkpoint: Path, *, keep: bool = False) -> None:
    """Read all files, each in a micro-batch of its own."""
    files = spark.readStream.schema(COMMAND_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = dispatched(files).writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    if not keep:
        shutil.rmtree(checkpoint)


def dispatched(frame: DataFrame) -> DataFrame:
    return frame.transform(stream_dispatch, HashRing(), config=CONFIG)


def in_process(files: Sequence[Sequence[Command]], topic_partitions: int, *, stored: bool) -> None:
    for _ in range(topic_partitions):
        journal = Journal(HashRing(), CONFIG)
        for mine in files:
            deque(journal.apply_all(mine), maxlen=0)
            if stored:
                journal = Journal.from_bytes(journal.to_bytes(), HashRing(), CONFIG, joined=journal.ring)


def report(rows: int, turns: Turns) -> str:
    empty = turns.median(EMPTY).processor
    lines = [f"{rows:,} commands, {FILES} files, {OUTSTANDING:,} outstanding where there are as many"]
    lines.append(f"{'':24}{'processor s':>12}{'wall s':>8}{'us for a command':>18}")
    for several in TOPIC_PARTITIONS:
        for name in (f"in process, {several}", f"stored by file, {several}", f"batch, {several}", f"stream, {several}"):
            taken = turns.median(name)
            own = taken.processor - (empty if name.startswith("stream") else 0)
            lines.append(f"{name:24}{taken.processor:12.2f}{taken.wall:8.2f}{own / rows * 1e6:18.1f}")
    lines.append("of a stream without what as many empty micro-batches take")
    lines.append("")
    lines.append(f"{'a micro-batch with':48}{'processor s':>12}{'wall s':>8}{'ms for each':>18}")
    lines.append(f"{EMPTY:48}{empty / BATCHES:12.2f}{turns.median(EMPTY).wall / BATCHES:8.2f}")
    for case in QUIET:
        taken = turns.median(case.name)
        each = (taken.processor - empty) / BATCHES / case.topic_partitions
        lines.append(f"{case.name:48}{taken.processor / BATCHES:12.2f}{taken.wall / BATCHES:8.2f}{each * 1e3:18.1f}")
    lines.append("each topic-partition, above a micro-batch with nothing")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
