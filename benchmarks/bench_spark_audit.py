"""What an audit on Spark costs beside the in-process checker, per core, and for each million rows.

Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it by ``make bench-spark``. The same histories
are judged in each turn by the checker alone, on happenings that are decoded already; by the checker that reads the rows
of the file without Spark; by the Python part of an audit, on Arrow batches; and by ``audit`` as a whole, from the file
over the sort to the verdicts. What counts is processor time: of the whole audit that of the JVM, compiling and
collecting garbage included, and of Python workers. An audit of few rows is measured too: what starting costs is told
apart from what rows cost. Needs Linux (``/proc``).

On a machine that is shared, processor time is dearer at one moment than at another: speeds are compared within a turn.
"""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.bench_checker import CLAIMS, history
from pyspark.sql import DataFrame

from keyshared.spark.audit import audit, audit_batches
from keyshared.spark.session import local_session
from keyshared.testing import Checker, from_rows, to_rows
from keyshared.testing.history import Happening
from keyshared.testing.rows import COLUMNS

TOPIC_PARTITIONS = 4
ROWS = 500_000
REPEATS = 3
OUTSTANDING = 1_000
GUARANTEES = replace(CLAIMS, window=2 * OUTSTANDING + 2)
TARGET = 0.6
FEW = 20  # a twentieth
ARROW = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string(), "binary": pa.binary(), "bool": pa.bool_()}
SCHEMA = pa.schema(
    [("topic_partition", pa.string()), ("sequence", pa.int64()), *((each.name, ARROW[each.arrow]) for each in COLUMNS)]
)
BATCH_ROWS = 10_000


class Seconds(NamedTuple):
    """What a case took."""

    processor: float
    wall: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m benchmarks.bench_spark_audit", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of all histories together ({ROWS:,})")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"how often each case takes its turn ({REPEATS})")
    parser.add_argument("--master", default="local[1]", help="Spark master (local[1])")
    options = parser.parse_args(arguments)
    told = list(history(options.rows // TOPIC_PARTITIONS, OUTSTANDING, quiet=True))
    with TemporaryDirectory() as folder:
        path, few = str(Path(folder, "history")), str(Path(folder, "few"))
        write(told, path)
        write(told[: len(told) // FEW], few)
        spark = local_session("keyshared benchmark", master=options.master, log=Path(folder, "spark.log"))
        try:
            logs = [spark.read.parquet(where) for where in (path, few)]
            print_table(TOPIC_PARTITIONS * len(told), measured(told, path, logs, options.repeats))
        finally:
            spark.stop()
    return 0


def write(told: Sequence[Happening], path: str) -> None:
    """The same history for each topic-partition, a file each."""
    table = pa.Table.from_pylist(list(to_rows(told)), schema=pa.schema(list(SCHEMA)[2:]))
    table = table.add_column(0, "sequence", pa.array(range(len(told)), pa.int64()))
    Path(path).mkdir()
    for number in range(TOPIC_PARTITIONS):
        names = pa.array([f"t-{number}"] * len(told), pa.string())
        pq.write_table(table.add_column(0, "topic_partition", names), Path(path, f"{number}.parquet"))


def measured(told: Sequence[Happening], path: str, logs: Sequence[DataFrame], repeats: int) -> dict[str, list[Seconds]]:
    """Seconds of each case, turn by turn; the first turn only warms up."""
    tables = [pq.read_table(file).cast(SCHEMA) for file in sorted(Path(path).iterdir())]
    cases: dict[str, Callable[[], None]] = {
        "checker alone": lambda: in_process(told),
        "checker on rows of the file": lambda: on_rows(tables),
        "Arrow batches to verdicts": lambda: on_batches(tables),
        "audit": lambda: on_spark(logs[0]),
        "audit of few rows": lambda: on_spark(logs[1]),
    }
    seconds: dict[str, list[Seconds]] = {name: [] for name in cases}
    for turn in range(repeats + 1):
        for name, case in cases.items():
            started, before = perf_counter(), processor_seconds()
            case()
            took = Seconds(processor_seconds() - before, perf_counter() - started)
            print(f"turn {turn} of {repeats}: {name}, {took.processor:.1f} s", file=sys.stderr, flush=True)
            if turn:
                seconds[name].append(took)
    return seconds


def in_process(told: Sequence[Happening]) -> None:
    for _ in range(TOPIC_PARTITIONS):
        check_silence(sum(1 for _ in Checker(GUARANTEES).violations(told)))


def on_rows(tables: Sequence[pa.Table]) -> None:
    """The same file without Spark: what docs/history.md shows for a table."""
    for table in tables:
        checker = Checker(GUARANTEES)
        for batch in table.select([each.name for each in COLUMNS]).to_batches(max_chunksize=BATCH_ROWS):
            check_silence(sum(1 for _ in checker.violations(from_rows(batch.to_pylist()))))


def on_batches(tables: Sequence[pa.Table]) -> None:
    for table in tables:
        for packet in audit_batches(table.to_batches(max_chunksize=BATCH_ROWS), GUARANTEES):
            check_silence(len(packet.column("violations").to_pylist()[0]))


def on_spark(log: DataFrame) -> None:
    with audit(log, GUARANTEES) as found:
        check_silence(sum(found.counts().values()))


def check_silence(violations: int) -> None:
    if violations:
        message = f"{violations} violations in a history that has none"
        raise AssertionError(message)


def processor_seconds() -> float:
    """Of this process and of all below it: the JVM and its Python workers."""
    ticks = sum(ticks_of(pid) for pid in descendants(os.getpid()))
    return process_time() + ticks / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            yield from descendants(child)


def ticks_of(pid: int) -> int:
    """User and system time, its own and of children that have ended: fields 14 to 17 of ``/proc/PID/stat``."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def print_table(rows: int, seconds: dict[str, list[Seconds]]) -> None:
    *named, few = seconds.items()
    added = [
        Seconds(*(long - short for long, short in zip(whole, start, strict=True)))
        for whole, start in zip(seconds["audit"], few[1], strict=True)
    ]
    print(f"{rows:,} rows in {TOPIC_PARTITIONS} topic-partitions, {OUTSTANDING:,} outstanding in each")
    print(f"{'seconds for a million rows':28}{'processor':>12}{'wall':>8}{'of checker':>12}")
    alone = [each.processor / rows for each in seconds["checker alone"]]
    share = 0.0
    cases = [(name, own, rows) for name, own in named]
    for name, own, count in (*cases, ("audit, each row more", added, rows - rows // FEW)):
        processor, wall = (median(times) / count for times in zip(*own, strict=True))
        share = median(one * count / each.processor for one, each in zip(alone, own, strict=True))
        print(f"{name:28}{processor * 1e6:12.2f}{wall * 1e6:8.2f}{share:12.0%}")
    start = [median(times) for times in zip(*few[1], strict=True)]
    print(f"an audit of {rows // FEW:,} rows took {start[0]:.1f} s of processors, {start[1]:.1f} s of the clock")
    outcome = "PASS" if share >= TARGET else "MISSED"
    print(f"{outcome}: each row more at {share:.0%} of the checker alone, per core; at least {TARGET:.0%} is wanted")


if __name__ == "__main__":
    sys.exit(main())
