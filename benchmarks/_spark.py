"""What the benchmarks on Spark share: a session, a log, turns of cases, and processor time of a tree of processes.

Other processes (the JVM, Python workers) do the work, so there are two clocks: the wall's, and the processor time of
this process and all below it. On a busy machine trust the second. Cases take turns, the first
turn only warms up, and ratios are medians of the ratios within a turn. Needs Linux (``/proc``).
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from benchmarks._harness import Report
from benchmarks._processes import ProcessorTime
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.session import local_session


class Seconds(NamedTuple):
    """What a case took in one turn."""

    processor: float
    wall: float


class Turns:
    """Seconds of each case, turn by turn."""

    def __init__(self, seconds: Mapping[str, list[Seconds]]) -> None:
        self._seconds = seconds

    def __iter__(self) -> Iterator[str]:
        return iter(self._seconds)

    def median(self, case: str) -> Seconds:
        return Seconds(*(median(each) for each in zip(*self._seconds[case], strict=True)))

    def each(self, case: str) -> list[Seconds]:
        """What a case took, turn by turn."""
        return self._seconds[case]

    def ratio(self, case: str, to: str) -> Seconds:
        """Median of the ratios within a turn."""
        pairs = zip(self._seconds[case], self._seconds[to], strict=True)
        ratios = [(one.processor / other.processor, one.wall / other.wall) for one, other in pairs]
        return Seconds(*(median(each) for each in zip(*ratios, strict=True)))


def bench_parser(module: str, description: str, *, rows: int, repeats: int) -> ArgumentParser:
    """The arguments that every benchmark on Spark takes."""
    parser = ArgumentParser(prog=f"python -m benchmarks.{module}", description=description)
    parser.add_argument("--rows", type=int, default=rows, help=f"how many ({rows:,})")
    parser.add_argument("--repeats", type=int, default=repeats, help=f"how often each case takes its turn ({repeats})")
    parser.add_argument("--master", default="local[2]", help="Spark master (local[2])")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    return parser


def exit_code(options: Namespace, reports: Sequence[Report]) -> int:
    """Return 1 if a target is missed and that is asked for."""
    return int(options.check and not all(verdict.met for report in reports for verdict in report.verdicts))


@contextmanager
def bench_session(options: Namespace) -> Iterator[tuple[SparkSession, Path]]:
    """A quiet session, and a folder that is gone afterwards."""
    with TemporaryDirectory() as folder:
        spark = local_session("keyshared benchmark", master=options.master, log=Path(folder, "spark.log"))
        try:
            yield spark, Path(folder)
        finally:
            spark.stop()


def take_turns(cases: Mapping[str, Callable[[], object]], repeats: int) -> Turns:
    """Run each case once to warm up, then each ``repeats`` times, one after the other."""
    seconds: dict[str, list[Seconds]] = {name: [] for name in cases}
    meter = ProcessorTime()
    for turn in range(repeats + 1):
        for name, case in cases.items():
            started, before = perf_counter(), meter.read()
            case()
            took = Seconds(meter.read() - before, perf_counter() - started)
            print(f"turn {turn} of {repeats}: {name}, {took.processor:.1f} s", file=sys.stderr, flush=True)
            if turn:
                seconds[name].append(took)
    return Turns(seconds)


def noop(frame: DataFrame) -> None:
    """Compute every row and column, and write them nowhere."""
    frame.write.format("noop").mode("overwrite").save()


def zipf_key(keys: int) -> Column:
    """A text key from the column ``id``: the n-th hottest has about 1/n of the messages of the hottest."""
    uniform = (F.xxhash64(F.col("id")) % 1_000_003 + 1_000_003) / 2_000_006
    return F.concat(F.lit("user-"), F.pow(F.lit(float(keys)), uniform).cast("bigint").cast("string"))
