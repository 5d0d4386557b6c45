"""The jobs give the same answers where driver and workers share nothing: on a cluster, on Connect, after a loss.

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
from tests.spark import lost_executor, speculative  # noqa: E402 - needs pyspark
from tests.spark.everywhere import JOBS, RDD_JOBS, answers  # noqa: E402 - needs pyspark
from tests.spark.settings import QUICK  # noqa: E402 - as above
from tests.spark.small_jobs import PLAN  # noqa: E402 - needs pyspark
from tests.spark.standalone import HOSTS, standalone  # noqa: E402 - needs pyspark

from keyshared.spark.replays.partition import DeliveryRow, SummaryRow, replay_partition  # noqa: E402 - needs pyspark
from keyshared.spark.replays.schemas import DELIVERY_SCHEMA  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT: Final = Path(__file__).parents[2]
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
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a master listens that has two workers."""
    with standalone(tmp_path_factory.mktemp("cluster"), ENVIRONMENT) as url:
        yield url


@pytest.fixture(scope="module")
def expected(spark: "SparkSession") -> dict[str, list[str]]:
    return answers(spark, {**JOBS, **RDD_JOBS})


@pytest.fixture(scope="module")
def undisturbed() -> list[DeliveryRow | SummaryRow]:
    """What a replay of the large log gives without Spark."""
    return list(replay_partition(lost_executor.messages(), PLAN))


def answers_on(master: str, folder: Path) -> dict[str, Any]:
    program("everywhere", master, str(folder / "answers.json"), cwd=folder)
    found: dict[str, Any] = json.loads((folder / "answers.json").read_text())
    return found


def program(name: str, *arguments: str, cwd: Path) -> None:
    told = run(sys.executable, "-m", f"tests.spark.{name}", *arguments, cwd=cwd)
    assert 0 == told.returncode, told.stderr[-5_000:]


def test_workers_on_two_hosts_give_the_answers_of_a_local_session(
    expected: dict[str, list[str]], cluster: str, tmp_path: Path
) -> None:
    found = answers_on(cluster, tmp_path)
    assert [*HOSTS] == found.pop("hosts")  # both have worked
    assert [*JOBS, *RDD_JOBS] == [*found]
    assert expected == found


def test_connect_gives_the_answers_of_a_local_session(
    expected: dict[str, list[str]], server: str, tmp_path: Path
) -> None:
    found = answers_on(server, tmp_path)
    assert [*JOBS] == [*found]
    assert {name: expected[name] for name in JOBS} == found


def test_the_demo_runs_on_connect(server: str, tmp_path: Path) -> None:
    told = run(sys.executable, "-m", "keyshared.spark.demo", "--master", server, *own_log(tmp_path), cwd=tmp_path)
    check_demo(told, tmp_path)


def test_the_demo_of_distributions_runs_on_connect(server: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "keyshared.spark.demo", "distribution", "--limit", "2000", "--master", server]
    told = run(*command, cwd=tmp_path)
    assert 0 == told.returncode, told.stderr[-5_000:]
    assert re.search(r"^  messages +2,000$", told.stdout, re.MULTILINE)
    page = (tmp_path / "demo-output" / "distribution.html").read_text(encoding="utf-8")
    assert "every promise kept" in page


def test_a_replay_that_loses_an_executor_ends_with_the_same_deliveries(
    undisturbed: list[DeliveryRow | SummaryRow], cluster: str, tmp_path: Path
) -> None:
    program("lost_executor", cluster, str(tmp_path), cwd=tmp_path)
    found = json.loads((tmp_path / "found.json").read_text())
    assert 2 == len(found["executors"])
    assert found["killed"] in found["executors"]  # in the middle of a task
    check_replay(undisturbed, tmp_path / "deliveries", found["summaries"])


def test_the_copy_of_a_task_that_hangs_takes_over_and_changes_no_row(
    undisturbed: list[DeliveryRow | SummaryRow], spark: "SparkSession", cluster: str, tmp_path: Path
) -> None:
    program("speculative", cluster, str(tmp_path), cwd=tmp_path)
    found = json.loads((tmp_path / "attempts.json").read_text())
    assert [*speculative.JOBS] == [*found]
    for stages in found.values():
        assert {"Success", "TaskKilled"} == {reason for stage in stages for _, _, reason in stage}
        assert any(map(took_over, stages)), stages

    names = lost_executor.SUMMARIES
    summaries = pq.read_table(tmp_path / "summaries").select(names).to_pylist()
    check_replay(undisturbed, tmp_path / "replayed", sorted([row[name] for name in names] for row in summaries))
    for job in (speculative.colocated, speculative.audited):
        check_files(job(spark), tmp_path / job.__name__)


def took_over(stage: list[list[Any]]) -> bool:
    """Whether a copy on the other host has won over the attempt that it is a copy of."""
    copies, hosts, reasons = zip(*stage, strict=True)
    return ((False, True), {*HOSTS}, ("TaskKilled", "Success")) == (copies, {*hosts}, reasons)


def check_replay(undisturbed: list[DeliveryRow | SummaryRow], path: Path, summaries: list[list[Any]]) -> None:
    deliveries = sorted(tuple(row) for row in undisturbed if isinstance(row, DeliveryRow))
    table = pq.read_table(path).select(DELIVERY_SCHEMA.names)
    assert deliveries == sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert len(deliveries) > lost_executor.MESSAGES

    expected = [row for row in undisturbed if isinstance(row, SummaryRow)]
    assert lost_executor.TOPIC_PARTITIONS == len(expected)
    assert [
        [row.topic_partition, row.summary.messages, row.summary.deliveries, row.summary.safe_cursor, row.outstanding]
        for row in expected
    ] == summaries


def check_files(expected: "DataFrame", path: Path) -> None:
    """A file for each partition that has rows, which are in the order of the frame."""
    partitions = [rows for rows in expected.rdd.glom().collect() if rows]
    files = sorted(path.glob("*.parquet"))
    assert [list(map(tuple, rows)) for rows in partitions] == [
        [tuple(row.values()) for row in pq.read_table(file).to_pylist()] for file in files
    ]
    assert len(partitions) > 1


def test_spark_submit_runs_the_demo_on_the_master_it_was_told(cluster: str, tmp_path: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    demo = str(ROOT / "src" / "keyshared" / "spark" / "demo" / "__main__.py")
    # 200 tasks for 200 rows take minutes, and so does machine code that is optimized for three JVMs
    quick = ["--conf", "spark.sql.shuffle.partitions=3", "--driver-java-options", QUICK]
    quick += ["--conf", f"spark.executor.extraJavaOptions={QUICK}"]
    check_demo(run(submit, "--master", cluster, *quick, demo, *own_log(tmp_path), cwd=tmp_path), tmp_path)


def own_log(folder: Path) -> list[str]:
    (folder / "log.csv").write_text(CSV)
    columns = ["--key", "user", "--partition", "shard", "--order", "at", "--time", "milliseconds"]
    return ["--input", str(folder / "log.csv"), *columns, "--consumers", "3", "--out", str(folder / "out")]


def check_demo(told: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert 0 == told.returncode, told.stderr[-5_000:]
    assert re.search(r"^  messages +200$", told.stdout, re.MULTILINE)
    assert re.search(r"^  violations +0$", told.stdout, re.MULTILINE)
    assert "replaying: done in " in told.stdout + told.stderr  # spark-submit puts both of a Python program into one
    deliveries = pq.read_table(folder / "out" / "results" / "deliveries")
    assert set(range(100)) == set(deliveries["offset"].to_pylist())
    assert {"0", "1"} == set(deliveries["topic_partition"].to_pylist())
    assert "every promise kept" in (folder / "out" / "report.html").read_text(encoding="utf-8")
