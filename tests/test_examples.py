import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_says_something(example: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", example], capture_output=True, text=True, check=False, timeout=120
    )
    assert (0, "") == (ran.returncode, ran.stderr)
    assert ran.stdout.strip()
