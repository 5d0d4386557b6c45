"""A quiet local Spark session, for the command, the demo, tests and small jobs.

Code that has a session already does not need this module.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["local_session"]

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",  # timestamps become milliseconds: the machine's zone must not matter
    "spark.log.structuredLogging.enabled": "false",
}
_LOCAL: Final = {
    # never ask the network for this machine's own name
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",  # 200 is for clusters; adaptive execution does not split small partitions
}


def local_session(
    app: str = "keyshared",
    *,
    master: str = "local[*]",
    log: Path | None = None,
    jvm_options: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a quiet session, or get the one that is running.

    If this process has a JVM already (``spark-submit``, a notebook), its log settings cannot change any more. Workers
    run the interpreter that runs this, unless ``PYSPARK_PYTHON`` names another.

    Args:
        app: Name of the application.
        master: Any Spark master. If it is not local, the cluster's own defaults for network and shuffle stay.
        log: File for the standard error of the JVM and the Python workers, which is otherwise this process's.
        jvm_options: More options for the driver's JVM; ``-XX:TieredStopAtLevel=1`` makes short jobs start faster.
        settings: More Spark settings; they override the ones made here.

    Returns:
        The session.

    Raises:
        OSError: ``log`` cannot be written.
        PySparkException: Spark cannot start with that ``master``.

    Example:
        >>> spark = local_session(master="local[2]", log=Path("spark.log"))  # doctest: +SKIP
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log4j = Path(str(files("keyshared.spark") / "log4j2.properties"))
    options = f"-Dlog4j2.configurationFile={log4j.as_uri()} {jvm_options}".strip()
    local = _LOCAL if master.startswith("local") else {}
    # the builder is shared by the whole process and remembers settings: a new one does not
    builder = SparkSession.Builder().appName(app).master(master)
    for name, value in {**_SETTINGS, **local, "spark.driver.extraJavaOptions": options, **(settings or {})}.items():
        builder = builder.config(name, value)
    with _standard_error_to(log):
        return builder.getOrCreate()


@contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """Point file descriptor 2 at a file for a while: a JVM that is started meanwhile keeps it for its whole life.

    It is the only way to catch what the JVM says before it reads any configuration.
    """
    if log is None:
        yield
        return
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    sys.stderr.flush()
    own = os.dup(2)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(target)
