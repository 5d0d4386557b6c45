"""The session that the package starts is quiet, local and complete."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keyshared.errors import ArgumentError
from keyshared.spark.runtime.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILING_JOB = """
import sys
from pathlib import Path
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from keyshared.spark.runtime.progress import watch
from keyshared.spark.runtime.session import local_session

log = Path(sys.argv[1])
spark = local_session("t", master="local[1]", log=log, jvm_options="-XX:TieredStopAtLevel=1")
try:
    with watch(spark, "working", every_s=1, quiet_s=0):
        spark.range(3).select(F.raise_error(F.lit("on purpose"))).collect()
except PySparkException:
    pass
assert local_session(settings={"spark.sql.shuffle.partitions": "3"}).conf.get("spark.sql.shuffle.partitions") == "3"
spark.stop()
"""


BAD_MASTER = """
import sys
from pathlib import Path
from keyshared.errors import ArgumentError
from keyshared.spark.runtime.session import local_session

try:
    local_session(master="nonsense", log=Path(sys.argv[1]))
except ArgumentError as error:
    sys.stdout.write(str(error))
"""


@pytest.mark.slow
def test_a_whole_run_writes_nothing_of_spark_to_the_screen_not_even_when_a_job_fails(tmp_path: Path) -> None:
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
    lines = run.stderr.splitlines()  # more than one on a busy machine
    assert all(line.startswith("working: ") for line in lines)
    assert lines[-1].startswith("working: failed after ")
    assert "jdk.incubator" in log.read_text()  # not lost
    assert [log] == list(tmp_path.iterdir())


def test_the_session_has_no_ui_no_network_name_and_the_interpreter_that_runs_this(spark: "SparkSession") -> None:
    context = spark.sparkContext
    assert context.uiWebUrl is None
    assert "127.0.0.1" == context.getConf().get("spark.driver.host")
    assert "UTC" == spark.conf.get("spark.sql.session.timeZone")
    assert {os.environ["PYSPARK_PYTHON"]} == set(context.range(2).map(lambda _: sys.executable).collect())


@pytest.mark.usefixtures("spark")
def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"nowhere.*spark\.log'; it must be a file that can be written"):
        local_session(log=tmp_path / "nowhere" / "spark.log")


def test_a_master_that_does_not_exist_is_refused_with_the_reason(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", BAD_MASTER, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.stdout.startswith("master is 'nonsense'; it must be a master that Spark can start with")
    assert run.stdout.endswith(f"details are in {tmp_path / 'log'}")
    assert "Master must either be yarn or start with spark, k8s, or local" in (tmp_path / "log").read_text()
    assert "" == run.stderr


def test_without_a_master_the_one_that_spark_was_told_stays(spark: "SparkSession") -> None:
    assert "local[2]" == local_session(master=None).sparkContext.master
    assert local_session(master=None).sparkContext is spark.sparkContext


@pytest.mark.usefixtures("spark")
def test_a_connect_server_is_refused_where_this_process_has_a_jvm_already(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a file pyspark takes the main module of a pytest-xdist worker for one of its doctests, and exits.
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    with pytest.raises(ArgumentError, match=r"'sc://127.0.0.1:1'; it must be a master that Spark can start with"):
        local_session(master="sc://127.0.0.1:1")
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ
