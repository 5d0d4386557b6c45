"""A quiet Spark session, and a line of progress in place of Spark's own.

For the demo, for tests and for small jobs. Code that has a session already does not need this module.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from keyshared.errors import ConfigError

__all__ = ["Progress", "local_session", "reason"]

_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",  # timestamps become milliseconds: the machine's zone must not matter
    "spark.log.structuredLogging.enabled": "false",
}
_LOCAL: Final = {
    # never ask the network for this machine's own name
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",  # 200 is for clusters; adaptive execution does not split what is too small
}
_REDRAW_SECONDS: Final = 0.25
_LINE_SECONDS: Final = 5.0


def local_session(
    app: str = "keyshared",
    *,
    master: str | None = "local[*]",
    log: Path | None = None,
    jvm_options: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a quiet session, or get the one that is running.

    If this process has a JVM already (``spark-submit``, a notebook), its log settings cannot be changed any more;
    everything else still holds. Workers run the interpreter that runs this, unless ``PYSPARK_PYTHON`` names another.

    Args:
        app: Name of the application.
        master: Any Spark master: ``local[2]``, ``spark://host:7077``, ``yarn``. If it is not local, the cluster's own
            defaults for network and shuffle stay. None for the one that ``spark-submit`` was told.
        log: File that gets whatever the JVM and the Python workers write to standard error, which is otherwise this
            process's. Nothing of it is lost.
        jvm_options: More options for the driver's JVM; ``-XX:TieredStopAtLevel=1`` makes short jobs start faster.
        settings: More Spark settings; they win over the ones made here.

    Returns:
        The session.

    Raises:
        ConfigError: Spark cannot start with that ``master``, or ``log`` cannot be written. What Spark said is in
            ``log``.

    Example:
        >>> spark = local_session(master="local[2]", log=Path("spark.log"))  # doctest: +SKIP
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # the builder is shared by the whole process and remembers settings: a new one does not
    builder = SparkSession.Builder().appName(app)
    if master is not None:
        builder = builder.master(master)
    for name, value in _settings(master, jvm_options, settings or {}).items():
        builder = builder.config(name, value)
    with _standard_error_to(log):
        try:
            return builder.getOrCreate()
        except (PySparkException, Py4JJavaError, OSError) as error:
            where = "" if log is None else f"; details are in {log}"
            requirement = f"be a master that Spark can start with ({reason(error)}){where}"
            raise ConfigError("master", master, requirement) from error


def _settings(master: str | None, jvm_options: str, more: Mapping[str, str]) -> dict[str, str]:
    log4j = files("keyshared.spark") / "log4j2.properties"
    options = f"-Dlog4j2.configurationFile={Path(str(log4j)).as_uri()} {jvm_options}".strip()
    local = _LOCAL if master is not None and master.startswith("local") else {}
    return {**_QUIET, **local, "spark.driver.extraJavaOptions": options, **more}


def reason(error: Exception) -> str:
    """Say in one line what Spark complains of.

    Args:
        error: What was raised by pyspark, or by the JVM.

    Returns:
        The line that tells most: the first one, or of an exception of the JVM the second, because the first only names
        the call.
    """
    lines = str(error).strip().splitlines()
    return lines[1 if isinstance(error, Py4JJavaError) else 0].removeprefix(": ")


@contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """Point file descriptor 2 at a file for a while: a JVM that is started meanwhile keeps it for its whole life.

    It is the only way to catch what the JVM says before it reads any configuration.
    """
    if log is None:
        yield
        return
    try:
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    except OSError as error:
        raise ConfigError("log", str(log), f"be a file that can be written ({error.strerror})") from None
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


class Progress:
    """A line that says how far Spark is, redrawn on a terminal, printed every few seconds elsewhere.

    Use it as a context manager around an action. It asks Spark's status tracker from a thread of its own. On Spark
    Connect, which has no tracker, only the time is shown.

    Args:
        spark: The session; None while there is none, then only the time is shown.
        doing: What is being done, for the reader.
        stream: Where to, standard error by default.

    Example:
        >>> with Progress(spark, "replaying"):  # doctest: +SKIP
        ...     deliveries.write.parquet("deliveries.parquet")
        replaying: done in 12.3 s
    """

    def __init__(self, spark: SparkSession | None, doing: str, *, stream: TextIO | None = None) -> None:
        self._spark = spark
        self._doing = doing
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keyshared-progress", daemon=True)
        self._started = 0.0
        self._width = 0

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._show("done in" if kind is None else "failed after", end="\n")

    def _run(self) -> None:
        pause = _REDRAW_SECONDS if self._live else _LINE_SECONDS
        while not self._stop.wait(pause):
            self._show(_tasks(self._spark), end="" if self._live else "\n")

    def _show(self, state: str, *, end: str) -> None:
        line = f"{self._doing}: {state} {time.monotonic() - self._started:.1f} s".replace(":  ", ": ")
        start = "\r" if self._live else ""
        # blanks wipe what a longer line left behind
        self._stream.write(f"{start}{line.ljust(self._width) if self._live else line}{end}")
        self._stream.flush()
        self._width = len(line)


def _tasks(spark: SparkSession | None) -> str:
    """How many tasks of the running stages are done, as "3 of 8 tasks,"; empty if there is nothing to tell."""
    if spark is None:
        return ""
    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except (PySparkException, AttributeError, OSError):  # Connect; or the context is being stopped
        return ""
    known = [stage for stage in stages if stage is not None]
    total = sum(stage.numTasks for stage in known)
    return f"{sum(stage.numCompletedTasks for stage in known)} of {total} tasks," if total else ""
