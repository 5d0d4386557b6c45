"""A task that fails and is tried again changes no row of any job."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("unlucky_job.py")
SOURCES = JOB.parents[2] / "src"


def run(master: str, folder: Path) -> dict[str, dict[str, Any]]:
    """In a process of its own: how often a task may fail is a setting of the whole application."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, str(JOB), master, str(folder)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr[-4_000:]
    told: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return told


def assert_undisturbed(told: dict[str, dict[str, Any]]) -> None:
    assert dict.fromkeys(told, True) == {name: job["same"] for name, job in told.items()}
    assert all(job["rows"] > 0 for job in told.values())
    assert all(job["later"] > 0 for job in told.values()), told  # or nothing was disturbed


@pytest.mark.slow
def test_tasks_that_fail_on_their_first_attempt_change_no_row(tmp_path: Path) -> None:
    assert_undisturbed(run("local[2,3]", tmp_path))
