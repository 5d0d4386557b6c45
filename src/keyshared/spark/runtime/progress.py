"""A line that says how far Spark is: tasks done, rows and rows per second; in place of Spark's own.

On a Spark master, local or not, a thread asks Spark's status tracker, and its status stores for rows. On Spark Connect
the server tells by itself, tasks only.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias, TypeGuard, cast

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from keyshared._checks import check_extra
from keyshared.errors import ArgumentError
from keyshared.spark.runtime.progress_lines import ProgressLines, StageSeen
from keyshared.spark.runtime.python_rows import PythonRows

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler

__all__ = ["watch"]

_Write: TypeAlias = Callable[[str], None]
_Look: TypeAlias = Callable[[], tuple[list[StageSeen], dict[int, int]]]  # and rows from Python, by counter

# a context that is being stopped, a JVM that is gone, a Spark whose store is another one
_NO_ANSWER: Final = (PySparkException, Py4JError, AttributeError, OSError)
_NO_READER: Final = (OSError, ValueError)  # ValueError: it was closed meanwhile


def watch(
    spark: SparkSession | None,
    doing: str,
    *,
    every_s: float = 10.0,
    quiet_s: float = 2.0,
    out: TextIO | None = None,
) -> AbstractContextManager[None]:
    """Show how far Spark is while a job runs.

    A terminal gets one line that is drawn again four times a second, by the extra ``keyshared[demo]``; a notebook, a
    file or a pipe gets whole lines, fewer the longer it takes, and needs no extra. What is over within ``quiet_s``
    writes nothing. The display never fails the job: where Spark does not answer, or nobody reads, it shows less.

    Rows are what the tasks of the running stages have read from files, caches and shuffles; on a local master Spark
    tells them when a task ends. Rows from Python are what its functions have given back meanwhile, which may be more
    or fewer than they were given; executors tell them with their heartbeats, every 10 s, or every second in a local
    session of `local_session`. The rate is by the time since the first of these stages began. On Spark Connect rows
    are unknown.

    Args:
        spark: The session, classic or Connect; None while there is none, then only the time is shown. All running jobs
            of its context count as one. Of Connect before Spark 4.0 only the time is shown, too.
        doing: What is being done, for the reader.
        every_s: Seconds between two whole lines, later a tenth of the time that has passed; without meaning on a
            terminal.
        quiet_s: Seconds before anything is written.
        out: Where to, standard error by default.

    Returns:
        A context manager; its thread has ended when its block has.

    Raises:
        ArgumentError: ``doing`` is no text of one line, ``every_s`` no number above 0, or ``quiet_s`` no number of at
            least 0.
        MissingExtraError: ``out`` is a terminal, and rich is not installed.

    Example:
        >>> with watch(spark, "replaying"):  # doctest: +SKIP
        ...     save_results(result, "lake/may")
        replaying: 2 of 3 tasks, 232,114 rows, 1,769 rows/s, 181.0 s
        replaying: done in 291.8 s
    """
    _check(doing, every_s, quiet_s)
    stream = sys.stderr if out is None else out
    if stream.isatty():
        check_extra("demo", "rich")
    return _watching(spark, doing, every_s, quiet_s, stream)


def _check(doing: object, every_s: object, quiet_s: object) -> None:
    if not isinstance(doing, str) or len(doing.splitlines()) != 1:
        raise ArgumentError("doing", doing, "be a text of one line")
    if not _is_number(every_s) or not every_s > 0:
        raise ArgumentError("every_s", every_s, "be a number of seconds above 0")
    if not _is_number(quiet_s) or not quiet_s >= 0:
        raise ArgumentError("quiet_s", quiet_s, "be a number of seconds of at least 0")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


@contextmanager
def _watching(spark: SparkSession | None, doing: str, every_s: float, quiet_s: float, out: TextIO) -> Iterator[None]:
    terminal = out.isatty()
    lines = ProgressLines(doing, time.monotonic(), every_s=every_s, quiet_s=quiet_s, terminal=terminal)
    over = threading.Event()
    failed = True
    with _looking(spark) as look, _drawing(out) if terminal else nullcontext(_writing(out)) as write:
        thread = threading.Thread(target=_show, args=(lines, look, over, write), name="keyshared-progress", daemon=True)
        thread.start()
        try:
            yield
            failed = False
        finally:
            over.set()
            thread.join()
            _tell(write, lines.end(time.monotonic(), failed=failed))


def _writing(out: TextIO) -> _Write:
    """How to write whole lines."""

    def write(line: str) -> None:
        out.write(f"{line}\n")
        out.flush()

    return write


@contextmanager
def _drawing(out: TextIO) -> Iterator[_Write]:
    """How to draw one line again and again; the last one stays."""
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs the extra
    from rich.live import Live  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    console = Console(file=out, force_terminal=True, force_jupyter=False)
    # what the job itself writes goes where it would go without us
    live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def write(line: str) -> None:
        live.start()  # once
        live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    try:
        yield write
    finally:
        with suppress(*_NO_READER):
            live.stop()


def _show(lines: ProgressLines, look: _Look, over: threading.Event, write: _Write) -> None:
    while not over.wait(lines.pause_s):
        stages, from_python = look()
        if not _tell(write, lines.look(time.monotonic(), stages, from_python)):
            return


def _tell(write: _Write, line: str) -> bool:
    """Whether somebody still reads."""
    try:
        if line:
            write(line)
    except _NO_READER:
        return False
    return True


def _looking(spark: SparkSession | None) -> AbstractContextManager[_Look]:
    """How to see what runs on this session."""
    if spark is None:
        return _nothing_seen()
    try:
        context = spark.sparkContext
    except (AttributeError, NotImplementedError):  # Connect has none
        return _told_by_server(spark) if hasattr(spark, "registerProgressHandler") else _nothing_seen()
    returned = PythonRows(spark)
    return nullcontext(lambda: (_active_stages(context), _from_python(returned)))


def _nothing_seen() -> AbstractContextManager[_Look]:
    return nullcontext(lambda: ([], {}))


def _active_stages(context: SparkContext) -> list[StageSeen]:
    try:
        tracker = context.statusTracker()
        known = [(number, tracker.getStageInfo(number)) for number in tracker.getActiveStageIds()]
        return [
            StageSeen(number, info.numTasks, info.numCompletedTasks, _rows(context, number))
            for number, info in known
            if info is not None
        ]
    except _NO_ANSWER:
        return []


def _rows(context: SparkContext, stage: int) -> int | None:
    """What the tasks of a stage have read; the tracker does not know, the store behind Spark's own UI does."""
    try:
        data = context._jsc.sc().statusStore().lastStageAttempt(stage)  # noqa: SLF001 - no public way tells rows
        return int(data.inputRecords() + data.shuffleReadRecords())
    except (*_NO_ANSWER, TypeError):  # TypeError: no longer a method
        return None


def _from_python(returned: PythonRows) -> dict[int, int]:
    try:
        return returned.look()
    except (*_NO_ANSWER, TypeError, ValueError):  # as above; ValueError: figures are written otherwise
        return {}


@contextmanager
def _told_by_server(spark: SparkSession) -> Iterator[_Look]:
    """Remember what the Connect server says of each operation that runs."""
    running: dict[object, list[StageSeen]] = {}

    def hear(*, stages: Any, operation_id: str | None, done: bool, **_: object) -> None:  # noqa: ANN401 - Connect's own
        if done:
            running.pop(operation_id, None)
            return
        running[operation_id] = [
            StageSeen(stage.stage_id, stage.num_tasks, stage.num_completed_tasks, None)
            for stage in stages or ()
            if not stage.done
        ]

    # Connect asks for a class that nobody could import without its packages; it only calls
    handler = cast("ProgressHandler", hear)
    spark.registerProgressHandler(handler)
    try:
        yield lambda: ([stage for stages in list(running.values()) for stage in stages], {})
    finally:
        try:
            spark.removeProgressHandler(handler)
        except ValueError:  # the user has cleared all of them meanwhile
            running.clear()
