"""What it costs to keep dispatchers from micro-batch to micro-batch on Spark, against the same commands in process.

Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it by ``make bench-spark``. The processor
seconds are those to compare.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks._spark import Turns, bench_parser, bench_session, noop, take_turns
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from keyshared.commands import Command
from keyshared.config import DispatcherConfig
from keyshared.journal import Journal
from keyshared.ring import HashRing
from keyshared.spark.streaming import COMMAND_SCHEMA, STATE_STORE, stream_dispatch

ROWS = 200_000
TOPIC_PARTITIONS = 4
FILES = 10
OUTSTANDING = 1_000
CONSUMERS = [f"c{number}" for number in range(10)]
CONFIG = DispatcherConfig(ack_timeout_ms=None)
STREAM = "stream, {} micro-batches"
QUIET = "stream of 4 rows each"


def main(arguments: Sequence[str] | None = None) -> int:
    options = bench_parser("bench_spark_streaming", str(__doc__), rows=ROWS, repeats=3).parse_args(arguments)
    commands = list(life(options.rows // TOPIC_PARTITIONS))
    with bench_session(options) as (spark, folder):
        for name, value in STATE_STORE.items():
            spark.conf.set(name, value)
        size = -(-len(commands) // FILES)
        files = [commands[start : start + size] for start in range(0, len(commands), size)]
        write(files, folder / "log")
        write([[Command(at, at, "handle_timeout")] for at in range(FILES)], folder / "quiet")
        print(report(options.rows, take_turns(cases(spark, folder, files), options.repeats)))
    return 0


def life(rows: int) -> Iterator[Command]:
    """Messages with keys of their own, each acked when so many more have come."""
    ring, number = HashRing(CONSUMERS), count()
    for name in CONSUMERS:
        yield Command(next(number), 0, "add_consumer", consumer=name)
    for offset in range(rows // 2):
        yield Command(next(number), offset, "offer", offset, b"order-%d" % offset)
        if offset >= OUTSTANDING:
            old = offset - OUTSTANDING
            yield Command(next(number), offset, "ack", old, consumer=ring.owner(f"order-{old}"), attempt=1)


def write(files: Sequence[Sequence[Command]], folder: Path) -> None:
    schema = to_arrow_schema(COMMAND_SCHEMA)
    folder.mkdir()
    for number, mine in enumerate(files):
        rows = [(f"t-{t}", *command) for t in range(TOPIC_PARTITIONS) for command in mine]
        columns = [pa.array(each, field.type) for each, field in zip(zip(*rows, strict=True), schema, strict=True)]
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), folder / f"{number:03}.parquet")


def cases(spark: SparkSession, folder: Path, files: Sequence[Sequence[Command]]) -> dict[str, Callable[[], object]]:
    checkpoints = count()

    def stream(name: str) -> None:
        source = spark.readStream.schema(COMMAND_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        checkpoint = str(folder / f"checkpoint-{next(checkpoints)}")
        writer = dispatched(source).writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    def batch() -> None:
        noop(dispatched(spark.read.schema(COMMAND_SCHEMA).parquet(str(folder / "log"))))

    return {
        "in process": lambda: in_process(files, stored=False),
        "in process, stored after each file": lambda: in_process(files, stored=True),
        "batch": batch,
        STREAM.format(FILES + 1): lambda: stream("log"),
        QUIET: lambda: stream("quiet"),
    }


def dispatched(frame: DataFrame) -> DataFrame:
    return frame.transform(stream_dispatch, HashRing(), config=CONFIG)


def in_process(files: Sequence[Sequence[Command]], *, stored: bool) -> None:
    for _ in range(TOPIC_PARTITIONS):
        journal = Journal(HashRing(), CONFIG)
        for mine in files:
            deque(journal.apply_all(mine), maxlen=0)
            if stored:
                journal = Journal.from_bytes(journal.to_bytes(), HashRing(), CONFIG)


def report(rows: int, turns: Turns) -> str:
    lines = [f"{rows:,} commands, {TOPIC_PARTITIONS} topic-partitions, {OUTSTANDING:,} messages outstanding in each"]
    lines.append(f"{'':36}{'processor s':>12}{'wall s':>8}{'x in process':>14}{'commands/s':>12}")
    for name in turns:
        taken, ratio = turns.median(name), turns.ratio(name, "in process").processor
        speed = "" if name == QUIET else f"{rows / taken.processor:12,.0f}"
        lines.append(f"{name:36}{taken.processor:12.2f}{taken.wall:8.2f}{ratio:14.2f}{speed}")
    quiet = turns.median(QUIET)
    each = quiet.processor / (FILES + 1), quiet.wall / (FILES + 1)
    lines.append(f"a micro-batch with next to nothing: {each[0]:.2f} s of processors, {each[1]:.2f} s of the clock")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
