"""What the build hook writes into the sources before mypyc reads them. No compiler is called here."""

import ast
import tomllib
from pathlib import Path

import hatch_build
import pytest
from hatch_build import with_attributes

ROOT = Path(hatch_build.__file__).parent
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MODULES = CONFIG["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]

SOURCE = '''"""A module."""

from enum import StrEnum


class Colour(StrEnum):
    """Stays as it is."""


class Part:
    """Becomes native."""

    def take(self) -> None:
        """Take some."""
'''


def lines_of(text: str) -> dict[str, int]:
    named = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef | ast.FunctionDef))
    return {node.name: node.lineno for node in named}


def test_each_native_class_may_be_subclassed_and_copied_and_no_line_moves() -> None:
    text = with_attributes(SOURCE)

    assert lines_of(SOURCE) == lines_of(text)
    assert 1 == text.count("@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)")
    assert text.split("\n")[lines_of(text)["Part"] - 2].startswith("@mypyc_attr")


@pytest.mark.parametrize("module", MODULES)
def test_the_modules_that_are_compiled_have_empty_lines_for_it(module: str) -> None:
    source = (ROOT / "src" / "keyshared" / module).read_text("utf-8")

    written = [
        (before, after)
        for before, after in zip(source.split("\n"), with_attributes(source).split("\n"), strict=True)
        if before != after
    ]
    assert all(not before or before in after for before, after in written)
    assert "dataclass" not in source


def test_without_a_compiler_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -x")
    monkeypatch.setattr("sys.platform", "linux")

    with pytest.raises(SystemExit, match="there is no C compiler 'no-such-compiler': install one"):
        hatch_build.check_compiler()
