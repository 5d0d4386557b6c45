"""docs/api.md lists what is public, and a change of that shows in it."""

import importlib
import re
from pathlib import Path

import pytest

from tools import draw_api

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = draw_api.Library(ROOT / "src" / "keyshared")
DOCUMENTED = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "examples").rglob("*.py")]
IMPORTED = set().union(
    *(
        re.findall(r"^(?:from|import) (keyshared[\w.]*)", path.read_text("utf-8"), flags=re.MULTILINE)
        for path in DOCUMENTED
    )
)

ONE = '''
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias, overload

from small._hidden import Base, helper as renamed

__all__ = ["LIMIT", "Color", "Pair", "Size", "Thing", "Wide", "either", "renamed"]

LIMIT: Final = 5
Size: TypeAlias = int | str

class Color(StrEnum):
    RED = "red"

class Pair(NamedTuple):
    left: int
    right: str = "r"

@dataclass(frozen=True, kw_only=True)
class Wide:
    low: int
    high: int = LIMIT

class Thing(Base):
    """Public."""

    def __init__(self, name: str, *, size: Size = 1) -> None:
        self.name = name
        self._size = size

    @property
    def double(self) -> int: ...

    @classmethod
    def made(cls, of: int) -> "Thing": ...

    @staticmethod
    def counted() -> int: ...

    def __len__(self) -> int: ...

    def _private(self) -> None: ...

@overload
def either(of: int) -> int: ...
@overload
def either(of: str) -> str: ...
def either(of): ...
'''
HIDDEN = """
class Base:
    def inherited(self, x: int, /) -> None: ...

def helper(a: int, *rest: int) -> None: ...

def unseen() -> None: ...
"""
LINES = """
small.one.Color: class(StrEnum)
small.one.Color.RED = 'red'
small.one.LIMIT = 5
small.one.Pair: class(NamedTuple)
small.one.Pair(left: int, right: str = 'r')
small.one.Size = int | str
small.one.Thing: class(Base)
small.one.Thing(name: str, *, size: Size=1)
small.one.Thing.__len__() -> int
small.one.Thing.counted() -> int (static method)
small.one.Thing.double: int (property)
small.one.Thing.inherited(x: int, /) -> None
small.one.Thing.made(of: int) -> 'Thing' (class method)
small.one.Thing.name: str
small.one.Wide: class
small.one.Wide(*, low: int, high: int = LIMIT)
small.one.either(of: int) -> int
small.one.either(of: str) -> str
small.one.renamed(a: int, *rest: int) -> None
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A package of three files."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "__init__.py").write_text('from small.one import Thing\n\n__all__ = ["Thing"]\n')
    (folder / "one.py").write_text(ONE)
    (folder / "_hidden.py").write_text(HIDDEN)
    return folder


@pytest.mark.no_cover
def test_the_page_is_what_the_code_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == draw_api.main(["--check"]), capsys.readouterr().out


def test_a_page_that_is_out_of_date_is_told_and_then_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(draw_api, "PAGE", tmp_path / "api.md")
    monkeypatch.setattr(draw_api, "page", lambda _: "what the code says")

    assert 1 == draw_api.main(["--check"])
    assert "run: python tools/draw_api.py" in capsys.readouterr().out
    assert 0 == draw_api.main([])
    assert "what the code says" == (tmp_path / "api.md").read_text("utf-8")
    assert 0 == draw_api.main(["--check"])


def test_each_public_thing_has_one_line(small: Path) -> None:
    library = draw_api.Library(small)

    assert ["small", "small.one"] == library.modules()
    assert ["small.Thing = small.one.Thing"] == library.lines("small")
    assert LINES.strip().splitlines() == library.lines("small.one")


@pytest.mark.parametrize(
    ("before", "after"),
    [("x: int, /", "x: str, /"), ("*rest: int", "*rest: str"), ("def inherited", "def handed_down")],
)
def test_a_change_behind_the_scenes_shows(small: Path, before: str, after: str) -> None:
    (small / "_hidden.py").write_text(HIDDEN.replace(before, after))

    changed = set(draw_api.Library(small).lines("small.one")) ^ set(LINES.strip().splitlines())

    assert 2 == len(changed)


def test_a_name_that_is_offered_and_not_defined_is_refused(small: Path) -> None:
    (small / "__init__.py").write_text('__all__ = ["Nobody"]\n')

    with pytest.raises(SystemExit, match="small offers Nobody"):
        draw_api.page(small)


@pytest.mark.parametrize("module", sorted(IMPORTED - {"keyshared.spark", "keyshared_kafka"}))
def test_what_the_documents_import_is_public(module: str) -> None:
    assert module in LIBRARY.modules()


@pytest.mark.parametrize(
    "module", [name for name in LIBRARY.modules() if not name.startswith(("keyshared.spark", "keyshared.testing."))]
)
def test_every_name_that_a_module_offers_has_a_line(module: str) -> None:
    named = {re.split(r"[^\w]", line.removeprefix(f"{module}."))[0] for line in LIBRARY.lines(module)}

    assert set(importlib.import_module(module).__all__) == named
