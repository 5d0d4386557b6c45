"""A quiet Spark session.

For the demo, for tests and for small jobs. Code that has a session already does not need this module.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from keyshared.errors import ArgumentError

__all__ = ["local_session", "reason"]

_ZONE: Final = "spark.sql.session.timeZone"  # timestamps become milliseconds: the machine's zone must not matter
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    _ZONE: "UTC",
    "spark.log.structuredLogging.enabled": "false",
}
_LOCAL: Final = {
    # never ask the network for this machine's own name
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.heartbeatInterval": "1s",  # within this process: `watch` has rows to show ten times as often
    "spark.sql.shuffle.partitions": "4",  # 200 is for clusters; adaptive execution does not split what is too small
}


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
            defaults for network and shuffle stay. None for the one that ``spark-submit`` was told. A Spark Connect
            server is ``sc://host:15002``: its JVM is not ours, so ``jvm_options`` and ``log`` have no effect.
        log: File that gets whatever the JVM and the Python workers write to standard error, which is otherwise this
            process's. Nothing of it is lost.
        jvm_options: More options for the driver's JVM; ``-XX:TieredStopAtLevel=1`` makes short jobs start faster.
        settings: More Spark settings; they win over the ones made here.

    Returns:
        The session.

    Raises:
        ArgumentError: Spark cannot start with that ``master``, or ``log`` cannot be written. What Spark said is in
            ``log``.

    Example:
        >>> spark = local_session(master="local[2]", log=Path("spark.log"))  # doctest: +SKIP
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # the builder is shared by the whole process and remembers settings: a new one does not
    builder = SparkSession.Builder().appName(app)
    if master is not None:
        builder = builder.remote(master) if _is_remote(master) else builder.master(master)
    for name, value in _settings(master, jvm_options, settings or {}).items():
        builder = builder.config(name, value)
    if _is_remote(master):
        log = None  # what a server says stays there
    with _standard_error_to(log):
        try:
            return builder.getOrCreate()
        except (PySparkException, Py4JJavaError, OSError) as error:
            where = "" if log is None else f"; details are in {log}"
            requirement = f"be a master that Spark can start with ({reason(error)}){where}"
            raise ArgumentError("master", master, requirement) from error


def _is_remote(master: str | None) -> bool:
    return master is not None and master.startswith("sc://")


def _settings(master: str | None, jvm_options: str, more: Mapping[str, str]) -> dict[str, str]:
    if _is_remote(master):
        return {_ZONE: "UTC", **more}
    log4j = files("keyshared.spark.runtime") / "log4j2.properties"
    options = f"-Dlog4j2.configurationFile={Path(str(log4j)).as_uri()} {jvm_options}".strip()
    local = _LOCAL if master is not None and master.startswith("local") else {}
    return {**_QUIET, **local, "spark.driver.extraJavaOptions": options, **more}


def reason(error: Exception) -> str:
    """Return in one line what Spark complains of.

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
        raise ArgumentError("log", str(log), f"be a file that can be written ({error.strerror})") from None
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)
