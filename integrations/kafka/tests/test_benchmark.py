"""The benchmark of the transports must not rot. No test here looks at a time."""

import subprocess
import sys

import pytest

from tests.test_crashes import HERE, environment


@pytest.mark.slow
def test_each_case_of_the_benchmark_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_transports", "--quick"],
        cwd=HERE.parent.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for title in ("a: ", "b: ", "c: ", "d: ", "e: ", "memory"):
        assert f"\n{title}" in "\n" + done.stdout
    assert " at most " in done.stdout
