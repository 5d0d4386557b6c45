"""A long log needs no larger heap than a short one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.small_heap import MESSAGES

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def test_a_replay_of_millions_of_messages_fits_into_half_a_gigabyte(tmp_path: Path) -> None:
    """In a process of its own: the heap is that of the JVM."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "tests.spark.small_heap"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr[-4_000:]
    assert f"{MESSAGES}\n" == done.stdout
