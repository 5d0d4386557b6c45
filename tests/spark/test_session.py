"""The session of the package is quiet and local, and progress is a line at most every ten seconds, or one bar."""

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
from keyshared.spark import progress_bar as adapter
from keyshared.spark.progress_bar import progress
from keyshared.spark.session import local_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FAILING_JOB = """
import sys
from pathlib import Path
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from keyshared.spark.progress_bar import progress
from keyshared.spark.session import local_session

spark = local_session("t", master="local[1]", log=Path(sys.argv[1]), jvm_options="-XX:TieredStopAtLevel=1")
try:
    with progress(spark, "working"):
        spark.range(3).select(F.raise_error(F.lit("on purpose"))).collect()
except PySparkException:
    pass
assert local_session(settings={"spark.sql.shuffle.partitions": "3"}).conf.get("spark.sql.shuffle.partitions") == "3"
spark.stop()
"""


class Terminal(io.StringIO):
    """A text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_run_writes_nothing_of_spark_to_the_screen_even_if_a_job_fails(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    run = subprocess.run(  # the only way to see what a JVM says while it starts
        [sys.executable, "-c", FAILING_JOB, str(log)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (0, "") == (run.returncode, run.stdout)
    assert all(line.startswith("working: ") for line in run.stderr.splitlines())
    assert log.read_text()  # not lost
    assert [log] == list(tmp_path.iterdir())


def test_the_session_has_no_ui_no_network_name_and_this_interpreter(spark: "SparkSession", tmp_path: Path) -> None:
    context = spark.sparkContext
    assert context.uiWebUrl is None
    assert "127.0.0.1" == context.getConf().get("spark.driver.host")
    assert "UTC" == spark.conf.get("spark.sql.session.timeZone")
    assert {os.environ["PYSPARK_PYTHON"]} == set(context.range(2).map(lambda _: sys.executable).collect())
    with pytest.raises(FileNotFoundError):
        local_session(log=tmp_path / "nowhere" / "spark.log")


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_the_tasks_of_the_running_stages(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, *, terminal: bool
) -> None:
    looked = threading.Event()
    tasks: Callable[[SparkSession], tuple[int, int]] = adapter._tasks

    def look(session: "SparkSession") -> tuple[int, int]:
        found = tasks(session)
        if found[1]:
            looked.set()
        return found

    monkeypatch.setattr(adapter, "_tasks", look)
    monkeypatch.setattr(adapter, "_LOOK_S", 0.01)
    monkeypatch.setattr(adapter, "_LINE_S", 0.01)
    out = Terminal() if terminal else io.StringIO()
    with progress(spark, "working", out=out):
        while not looked.is_set():  # a stage is seen while it runs, sooner or later
            spark.sparkContext.range(2_000, numSlices=8).map(lambda number: number + 1).count()
    assert "working" in out.getvalue()
    assert terminal or "of 8 tasks" in out.getvalue()


def test_a_spark_that_does_not_answer_shows_no_tasks() -> None:
    assert (0, 0) == adapter._tasks(None)  # type: ignore[arg-type]  # as Spark Connect, which has no context
