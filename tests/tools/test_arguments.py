"""No tool does anything before its arguments are read."""

import runpy
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
SCRIPTS = sorted(path.name for path in TOOLS.glob("*.py") if "__main__" in path.read_text("utf-8"))


@pytest.mark.no_cover
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_tool_reads_its_arguments_first(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    monkeypatch.setattr(Path, "mkdir", None)  # what would write says so
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(TOOLS / script), run_name="__main__")
    assert 0 == ended.value.code
    assert capsys.readouterr().out.startswith(f"usage: {script}")
