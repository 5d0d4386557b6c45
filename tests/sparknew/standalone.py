"""A Spark cluster on this machine: a master and two workers, each a process of its own, on two hosts as Spark sees it.

Two hosts, because Spark starts the copy of a slow task only where that task does not run; all of 127.0.0.0/8 is this
machine, so no name has to be known.
"""

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

import pyspark
from tests.sparknew.settings import QUICK

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
_CLASS: Final = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
_WAIT_S: Final = 120  # a JVM starts in a second or two; this machine may be busy
_LOOK_S: Final = 0.1
_STARTED: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Registering worker (\S+):")
_T = TypeVar("_T")


@contextmanager
def standalone(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Start a master and its workers; what they write goes below ``folder``.

    Args:
        folder: Exists.
        environment: What the executors' Python workers find too, such as ``PYTHONPATH``.

    Yields:
        Where the master listens, ``spark://...``; both workers are registered. After it nothing of all that runs.
    """
    log = folder / "master.log"
    with ExitStack() as running:
        master = running.enter_context(_daemon("master.Master", HOSTS[0], log, environment))
        (url,) = _awaited(lambda: _STARTED.findall(log.read_text()), 1, master, log)
        for number, host in enumerate(HOSTS):
            arguments = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"worker-{number}"), url)
            own = folder / f"worker-{number}.log"
            running.enter_context(_daemon("worker.Worker", host, own, environment, *arguments))
        assert sorted(HOSTS) == sorted(_awaited(lambda: _REGISTERED.findall(log.read_text()), len(HOSTS), master, log))
        yield url


@contextmanager
def _daemon(
    name: str, host: str, log: Path, environment: Mapping[str, str], *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a class of Spark's for a while; a worker that ends takes its executors with it."""
    own = {"SPARK_LOCAL_IP": host, "SPARK_LOCAL_HOSTNAME": host, "SPARK_DAEMON_JAVA_OPTS": QUICK}
    command = [_CLASS, f"org.apache.spark.deploy.{name}", "--host", host, "--port", "0", "--webui-port", "0"]
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [*command, *arguments], env={**environment, **own}, cwd=log.parent, stdout=file, stderr=file
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()


def _awaited(look: Callable[[], list[_T]], count: int, process: subprocess.Popen[bytes], log: Path) -> list[_T]:
    until = time.monotonic() + _WAIT_S
    while len(found := look()) < count:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(_LOOK_S)
    return found
