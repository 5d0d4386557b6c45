"""How the Spark jobs grow from 1 to 100 million rows: time, shuffle, and memory of JVM, Python workers and driver.

Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it by ``make scale``. It takes an hour on two
cores, and tens of GB of disk. Each job at each size runs once, in a process and a JVM of its own with Spark's default
heap of 1 GB, after the same job over the smallest log, which warms up. A log has 8 topic-partitions and a hundred
messages of each key, so keys grow as rows do. Judged is processor time for a row: it may not grow. Needs Linux
(``/proc``).
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple, TypeVar

from benchmarks._harness import Report
from benchmarks._processes import Peaks, ProcessorTime
from benchmarks._spark import exit_code, noop
from benchmarks.bench_spark_jobs import CONSUMERS, Load, check, group_of, on_spark, written
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from keyshared import spark as ks
from keyshared.ring import HashRing

ROWS: Final = (1_000_000, 10_000_000, 100_000_000)
MESSAGES_OF_A_KEY: Final = 100
GROWTH_TARGET: Final = 1.25
COLUMNS: Final = ("cpu us/row", "cpu s", "wall s", "shuffle MB", "JVM MB", "worker MB", "driver MB")

_Answer = TypeVar("_Answer")


class Task(NamedTuple):
    """One job over a log of one size, in a session of its own."""

    job: str
    rows: int
    warm_rows: int
    folder: Path
    master: str


class Took(NamedTuple):
    """What a job took; memory and shuffle in MB."""

    processor: float
    wall: float
    shuffled: float
    jvm: float
    worker: float
    driver: float


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    found = {job: Report(f"{job}, by rows", COLUMNS) for job in options.only}
    sizes = sorted(options.rows)
    with TemporaryDirectory(dir=options.folder) as folder:
        for rows in sizes:
            alone(write_log, rows, Path(folder), options.master)
            for job, report in found.items():
                took = alone(measured, Task(job, rows, sizes[0], Path(folder), options.master))
                report.add(f"{rows:,}", took.processor / rows * 1e6, *took)
                print(f"{job}, {rows:,} rows: {took}", file=sys.stderr, flush=True)
    for report in found.values():
        judge_growth(report)
        print(report, flush=True)
    return exit_code(options, list(found.values()))


def parsed(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks.bench_scale", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="sizes of logs (1, 10, 100 million)")
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), help="some of the jobs")
    parser.add_argument("--master", default="local[2]", help="Spark master (local[2])")
    parser.add_argument("--folder", type=Path, help="where logs and shuffles go for the time of the run (the system's)")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    return parser.parse_args(arguments)


def alone(call: Callable[..., _Answer], *arguments: object) -> _Answer:
    """Call it in a new process: its memory and its JVM are its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def write_log(rows: int, folder: Path, master: str) -> None:
    """Write the log that every job reads."""
    with session(master, folder) as spark:
        written(spark, load_of(rows), folder / f"log-{rows}")


def load_of(rows: int) -> Load:
    return Load(rows, keys=rows // MESSAGES_OF_A_KEY)


def measured(task: Task) -> Took:
    with session(task.master, task.folder) as spark:
        with Peaks() as peaks:
            carry_out(task, spark, task.warm_rows)
            before, meter = shuffled(spark), ProcessorTime()
            started, spent = perf_counter(), meter.read()
            carry_out(task, spark, task.rows)
            wall, processor = perf_counter() - started, meter.read() - spent
        return Took(processor, wall, shuffled(spark) - before, peaks.jvm, peaks.worker, peaks.driver)


def carry_out(task: Task, spark: SparkSession, rows: int) -> None:
    """Do the job over the log of a size; an error of Spark's could not be sent to another process."""
    try:
        JOBS[task.job](spark, task.folder, rows)
    except Py4JJavaError as error:
        raise RuntimeError(f"{task.job}, {rows:,} rows: {error.java_exception}") from None


def session(master: str, folder: Path) -> SparkSession:
    """A quiet session whose shuffles go beside the logs."""
    settings = {"spark.local.dir": str(folder)}
    return ks.local_session("keyshared benchmark", master=master, log=folder / "spark.log", settings=settings)


def shuffled(spark: SparkSession) -> float:
    """MB that Spark has written for shuffles since it started."""
    driver = spark.sparkContext._jsc.sc().statusStore().executorList(True).head()  # noqa: SLF001 - Python has no way to it
    return float(driver.totalShuffleWrite()) / 1e6


def count_keys(spark: SparkSession, folder: Path, rows: int) -> None:
    noop(ks.slot_histogram(spark.read.parquet(str(folder / f"log-{rows}"))))


def move_to_owners(spark: SparkSession, folder: Path, rows: int) -> None:
    ring = HashRing([f"c{number}" for number in range(CONSUMERS)])
    noop(ks.colocate(spark.read.parquet(str(folder / f"log-{rows}")), ring))


def simulate_log(spark: SparkSession, folder: Path, rows: int) -> None:
    load = load_of(rows)
    check(load, on_spark(spark.read.parquet(str(folder / f"log-{rows}")), group_of(load)))


def audit_log(spark: SparkSession, folder: Path, rows: int) -> None:
    log = spark.read.parquet(str(folder / f"log-{rows}"))
    broken = (
        ks.audit(ks.simulate(log, group_of(load_of(rows)), ks.LogColumns(start=0))).filter("violations > 0").count()
    )
    if broken:
        raise RuntimeError(f"{broken} promises broken in {rows:,} rows")


JOBS: Final[Mapping[str, Callable[[SparkSession, Path, int], None]]] = {
    "slot_histogram": count_keys,
    "colocate by owner": move_to_owners,
    "simulate": simulate_log,
    "simulate and audit": audit_log,
}


def judge_growth(report: Report) -> None:
    """Judge what a row costs at each size beside the size before."""
    for smaller, larger in pairwise(report.rows):
        growth = larger.values[0] / smaller.values[0]
        report.judge(f"cpu us/row at {larger.case} beside {smaller.case}", growth, GROWTH_TARGET)
    report.notes.extend(f"{verdict}  {verdict.target}" for verdict in report.verdicts)


if __name__ == "__main__":
    sys.exit(main())
