"""The skeletons of drivers: they run as they stand, accuse nobody, and are short."""

import ast
from pathlib import Path

import pytest

from keyshared.testing.__main__ import main

SKELETONS = sorted(Path(__file__).parents[2].glob("examples/skeletons/*.py"))


@pytest.mark.parametrize("path", SKELETONS, ids=lambda path: path.stem)
def test_a_skeleton_is_not_accused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", f"{path}", "--seconds", "1"]) == 0
    table = capsys.readouterr().out
    for promise in ("one-holder", "key-order", "no-loss", "bounds"):
        assert f"{promise} " in table
    assert " holds " in table
    assert " breaks " not in table


@pytest.mark.parametrize("path", SKELETONS, ids=lambda path: path.stem)
def test_the_driver_of_a_skeleton_is_short(path: Path) -> None:
    driver = next(node for node in ast.parse(path.read_text("utf-8")).body if ast.unparse(node).find("(Driver)") > 0)
    assert driver.end_lineno is not None
    assert driver.end_lineno - driver.lineno + 1 < 40
