"""The run behind docs/scale.md takes an hour; here it takes small logs, so that it runs when it is needed."""

import json
from pathlib import Path

import pytest
from benchmarks import bench_scale


@pytest.mark.slow
def test_each_job_is_measured_at_each_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "figures.json"
    arguments = ["--rows", "8000", "16000", "--only", "replay", "audit"]
    assert bench_scale.main([*arguments, "--folder", str(tmp_path), "--json", str(figures)]) == 0
    assert "audit, by rows: cpu us/row at 16,000 beside 8,000" in capsys.readouterr().out
    told = json.loads(figures.read_text())
    assert [list(sizes) for sizes in told.values()] == [["8,000", "16,000"]] * 2
    for sizes in told.values():
        for figure in ("cpu s", "shuffle MB", "JVM MB", "worker MB", "driver MB"):
            assert all(took[figure] > 0 for took in sizes.values()), figure
    assert [each.name for each in tmp_path.iterdir()] == [figures.name], "logs and shuffles are gone"
