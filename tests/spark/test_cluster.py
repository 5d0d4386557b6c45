"""The jobs give the same answers where driver and workers share nothing: on two hosts, and through Spark Connect.

Each runs in a process of its own, because a process has one JVM and one kind of session.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.spark.small_jobs import answers
from tests.spark.standalone import standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), *sys.path])}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server in another process."""
    pytest.importorskip("grpc")
    command = [sys.executable, "-m", "tests.spark.connect_server"]
    with subprocess.Popen(
        command,
        env=ENVIRONMENT,
        cwd=tmp_path_factory.mktemp("server"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdecimal()  # or a client would try for minutes
        yield f"sc://127.0.0.1:{port}"
        process.communicate()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master that has two workers."""
    with standalone(tmp_path_factory.mktemp("cluster"), ENVIRONMENT) as url:
        yield url


@pytest.fixture(scope="module")
def expected(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file with the answers of a local session."""
    path = tmp_path_factory.mktemp("expected") / "answers.json"
    path.write_text(json.dumps(answers(spark)), "utf-8")
    return str(path)


@pytest.mark.parametrize("where", ["cluster", "server"])
def test_the_answers_are_those_of_a_local_session(
    where: str, expected: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.spark.everywhere", request.getfixturevalue(where), expected]
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=tmp_path)
    assert 0 == told.returncode, told.stderr[-5_000:]
