"""How far the running Spark jobs are: one bar of rich on a terminal, a line at most every ten seconds elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from keyshared._checks import check_extra

__all__ = ["progress"]

_LOOK_S: Final = 0.5
_LINE_S: Final = 10.0
# a context that is being stopped, a JVM that is gone, Spark Connect
_NO_ANSWER: Final = (PySparkException, Py4JError, AttributeError, NotImplementedError, OSError)


@contextmanager
def progress(spark: SparkSession, doing: str, *, out: TextIO | None = None) -> Iterator[None]:
    """Show the tasks done of all tasks of the running stages, while the block runs.

    The display never fails the job: where Spark does not answer, as on Spark Connect, only the time is shown.

    Args:
        spark: The session.
        doing: The name of the work, for the reader.
        out: Where to, standard error by default. A terminal gets one bar, anything else a line at most every ten
            seconds.

    Raises:
        MissingExtraError: ``out`` is a terminal, and rich is not installed.

    Example:
        >>> with progress(spark, "simulating"):  # doctest: +SKIP
        ...     deliveries.write.parquet("out/deliveries")
    """
    stream = sys.stderr if out is None else out
    over = threading.Event()
    shown = _bar if stream.isatty() else _lines
    if stream.isatty():
        check_extra("demo", "rich")
    thread = threading.Thread(target=shown, args=(lambda: _tasks(spark), doing, stream, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tasks(spark: SparkSession) -> tuple[int, int]:
    """Return the tasks done, and all tasks, of the stages that are running."""
    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    except _NO_ANSWER:
        return 0, 0
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


def _bar(tasks: Callable[[], tuple[int, int]], doing: str, out: TextIO, over: threading.Event) -> None:
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs the extra
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=out, force_jupyter=False)
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        while not over.wait(_LOOK_S):
            done, total = tasks()
            bar.update(task, completed=done, total=total or None)


def _lines(tasks: Callable[[], tuple[int, int]], doing: str, out: TextIO, over: threading.Event) -> None:
    started = time.monotonic()
    while not over.wait(_LINE_S):
        done, total = tasks()
        out.write(f"{doing}: {done:,} of {total:,} tasks, {time.monotonic() - started:.0f} s\n")
        out.flush()
