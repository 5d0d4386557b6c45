"""What an audit on Spark costs beside the in-process checker, per core, and for each million rows.

Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it by ``make bench-spark``. The same histories
are judged in each turn by the checker alone, on happenings that are decoded already; by the checker that reads the rows
of the file without Spark; by the Python part of an audit, on Arrow batches; and by ``audit`` as a whole, from the file
over the sort to the verdicts. What counts is processor time: of the whole audit that of the JVM, compiling and
collecting garbage included, and of Python workers. An audit of few rows is measured too: it separates the cost of
starting from the cost of rows. Needs Linux (``/proc``).

On a machine that is shared, processor time is dearer at one moment than at another: speeds are compared within a turn.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks._harness import Report
from benchmarks._spark import Seconds, Turns, bench_parser, bench_session, exit_code, take_turns
from benchmarks.bench_checker import CLAIMS, history
from pyspark.sql import DataFrame

from keyshared.spark.audits.audit import audit, audit_batches
from keyshared.testing import Checker, from_rows, to_rows
from keyshared.testing.history import Happening
from keyshared.testing.rows import COLUMNS

TOPIC_PARTITIONS = 4
ROWS = 500_000
REPEATS = 3
OUTSTANDING = 1_000
GUARANTEES = replace(CLAIMS, window=2 * OUTSTANDING + 2)
TARGET = 0.8
FEW = 20  # a twentieth
ARROW = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string(), "binary": pa.binary(), "bool": pa.bool_()}
SCHEMA = pa.schema(
    [("topic_partition", pa.string()), ("sequence", pa.int64()), *((each.name, ARROW[each.arrow]) for each in COLUMNS)]
)
BATCH_ROWS = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("bench_spark_audit", __doc__ or "", rows=ROWS, repeats=REPEATS)
    parser.set_defaults(master="local[1]")
    options = parser.parse_args(arguments)
    told = list(history(options.rows // TOPIC_PARTITIONS, OUTSTANDING, quiet=True))
    with bench_session(options) as (spark, folder):
        path, few = folder / "history", folder / "few"
        write(told, path)
        write(told[: len(told) // FEW], few)
        logs = [spark.read.parquet(str(where)) for where in (path, few)]
        found = report(TOPIC_PARTITIONS * len(told), take_turns(cases(told, path, logs), options.repeats))
    print(found)
    return exit_code(options, [found])


def write(told: Sequence[Happening], path: Path) -> None:
    """The same history for each topic-partition, a file each."""
    table = pa.Table.from_pylist(list(to_rows(told)), schema=pa.schema(list(SCHEMA)[2:]))
    table = table.add_column(0, "sequence", pa.array(range(len(told)), pa.int64()))
    path.mkdir()
    for number in range(TOPIC_PARTITIONS):
        names = pa.array([f"t-{number}"] * len(told), pa.string())
        pq.write_table(table.add_column(0, "topic_partition", names), path / f"{number}.parquet")


def cases(told: Sequence[Happening], path: Path, logs: Sequence[DataFrame]) -> dict[str, Callable[[], None]]:
    tables = [pq.read_table(file).cast(SCHEMA) for file in sorted(path.iterdir())]
    return {
        "checker alone": lambda: in_process(told),
        "checker on rows of the file": lambda: on_rows(tables),
        "Arrow batches to verdicts": lambda: on_batches(tables),
        "audit": lambda: on_spark(logs[0]),
        "audit of few rows": lambda: on_spark(logs[1]),
    }


def in_process(told: Sequence[Happening]) -> None:
    for _ in range(TOPIC_PARTITIONS):
        check_silence(sum(1 for _ in Checker(GUARANTEES).violations(told)))


def on_rows(tables: Sequence[pa.Table]) -> None:
    """Judge the same file without Spark, as docs/history.md shows for a table."""
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


def report(rows: int, turns: Turns) -> Report:
    whole, start = turns.each("audit"), turns.each("audit of few rows")
    added = [
        Seconds(*(long - short for long, short in zip(*pair, strict=True))) for pair in zip(whole, start, strict=True)
    ]
    alone = [each.processor / rows for each in turns.each("checker alone")]
    starting = turns.median("audit of few rows")
    notes = [
        f"{rows:,} rows in {TOPIC_PARTITIONS} topic-partitions, {OUTSTANDING:,} outstanding in each",
        f"{rows // FEW:,} rows take {starting.processor:.1f} s of processors, {starting.wall:.1f} s by the clock",
    ]
    found = Report("audit on Spark", ("cpu us/row", "wall us/row", "of checker"), notes)
    share = 0.0
    own = [(name, turns.each(name), rows) for name in turns if name != "audit of few rows"]
    for name, took, count in (*own, ("audit, each row more", added, rows - rows // FEW)):
        processor, wall = (median(times) / count for times in zip(*took, strict=True))
        share = median(one * count / each.processor for one, each in zip(alone, took, strict=True))
        found.add(name, processor * 1e6, wall * 1e6, share)
    found.judge("each row more, of the checker alone, per core", share, TARGET, at_most=False)
    found.notes.extend(map(str, found.verdicts))
    return found


if __name__ == "__main__":
    sys.exit(main())
