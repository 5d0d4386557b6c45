"""The jobs give the same answers where driver and workers share nothing: in other JVMs, on Connect, after a loss.

Each runs in a process of its own, because a process has one JVM and one kind of session.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

pyspark = pytest.importorskip("pyspark")
import pyarrow.parquet as pq  # noqa: E402 - comes with pyspark
from tests.spark.everywhere import JOBS, PLAN, answers  # noqa: E402 - needs pyspark
from tests.spark.lost_executor import MESSAGES, TOPIC_PARTITIONS, messages  # noqa: E402 - needs pyspark

from keyshared.spark.deliveries import DELIVERY_SCHEMA  # noqa: E402 - needs pyspark
from keyshared.spark.partition import DeliveryRow, SummaryRow, replay_partition  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT: Final = Path(__file__).parents[2]
TWO_WORKERS: Final = "local-cluster[2,1,1024]"
CSV: Final = "user,shard,at\n" + "".join(f"u{i % 7},{i % 2},{i}\n" for i in range(200))


ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=cwd)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a Spark Connect server listens, in a process that is not this one."""
    pytest.importorskip("grpc")
    folder = tmp_path_factory.mktemp("server")
    command = [sys.executable, "-m", "tests.spark.connect_server"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdecimal()  # or a client would try for minutes
        yield f"sc://127.0.0.1:{port}"
        process.communicate()


@pytest.fixture(scope="module")
def expected(spark: "SparkSession") -> dict[str, list[str]]:
    return answers(spark)


def answers_on(master: str, folder: Path) -> dict[str, Any]:
    file = folder / "answers.json"
    told = run(sys.executable, "-m", "tests.spark.everywhere", master, str(file), cwd=folder)
    assert 0 == told.returncode, told.stderr[-5_000:]
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_two_worker_jvms_give_the_answers_of_a_local_session(expected: dict[str, list[str]], tmp_path: Path) -> None:
    found = answers_on(TWO_WORKERS, tmp_path)
    executors = found.pop("workers")
    assert 2 == len(executors)  # both have worked
    assert [*JOBS] == [*found]
    assert expected == found


def test_connect_gives_the_answers_of_a_local_session(
    expected: dict[str, list[str]], server: str, tmp_path: Path
) -> None:
    assert expected == answers_on(server, tmp_path)


def test_the_demo_runs_on_connect(server: str, tmp_path: Path) -> None:
    told = run(sys.executable, "-m", "keyshared.spark.demo", "--master", server, *own_log(tmp_path), cwd=tmp_path)
    check_demo(told, tmp_path)


def test_a_replay_that_loses_an_executor_ends_with_the_same_deliveries(tmp_path: Path) -> None:
    told = run(sys.executable, "-m", "tests.spark.lost_executor", str(tmp_path), cwd=tmp_path)
    assert 0 == told.returncode, told.stderr[-5_000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert 2 == len(found["executors"])
    assert found["killed"] in found["executors"]
    assert found["lost"]  # it took work with it

    undisturbed = list(replay_partition(messages(), PLAN))
    deliveries = sorted(tuple(row) for row in undisturbed if isinstance(row, DeliveryRow))
    table = pq.read_table(tmp_path / "deliveries").select(DELIVERY_SCHEMA.names)
    assert deliveries == sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert len(deliveries) > MESSAGES

    summaries = [row for row in undisturbed if isinstance(row, SummaryRow)]
    assert TOPIC_PARTITIONS == len(summaries)
    assert [
        [row.topic_partition, row.summary.messages, row.summary.deliveries, row.summary.safe_cursor, row.outstanding]
        for row in summaries
    ] == found["summaries"]


def test_spark_submit_runs_the_demo_on_the_master_it_was_told(tmp_path: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    program = str(ROOT / "src" / "keyshared" / "spark" / "demo.py")
    check_demo(run(submit, "--master", TWO_WORKERS, program, *own_log(tmp_path), cwd=tmp_path), tmp_path)


def own_log(folder: Path) -> list[str]:
    (folder / "log.csv").write_text(CSV)
    columns = ["--key", "user", "--partition", "shard", "--order", "at"]
    return ["--input", str(folder / "log.csv"), *columns, "--consumers", "3", "--out", str(folder / "out")]


def check_demo(told: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert 0 == told.returncode, told.stderr[-5_000:]
    assert re.search(r"^  messages +200$", told.stdout, re.MULTILINE)
    assert re.search(r"^  violations +0$", told.stdout, re.MULTILINE)
    assert "replaying: done in " in told.stdout + told.stderr  # spark-submit puts both of a Python program into one
    deliveries = pq.read_table(folder / "out" / "deliveries")
    assert set(range(100)) == set(deliveries["offset"].to_pylist())
    assert {"0", "1"} == set(deliveries["topic_partition"].to_pylist())
    assert "every promise kept" in (folder / "out" / "report.html").read_text(encoding="utf-8")
