"""What the documentation says about files, tests and promises is there."""

import re
from pathlib import Path
from textwrap import indent

import pytest
from tests.broken import BROKEN

from keyshared.testing import Promise

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TESTS = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
DEFINED = set(re.findall(r"^ *(?:def|async def) (test_\w+)", TESTS, flags=re.MULTILINE))
FILES = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
OF_TESTS = {"verification.md", "compatibility.md"}  # the second only says how compatibility is held
OF_USERS = [path for path in PAGES if path.name not in OF_TESTS]
OF_USERS += [ROOT / "README.md", ROOT / "integrations" / "kafka" / "README.md"]
SHOWN = {"prove-your-broker.md": {"tests/kit/killed_broker.py", "tests/kit/paused_broker.py"}}  # examples to read
page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
page_of_users = pytest.mark.parametrize("page", OF_USERS, ids=lambda path: str(path.relative_to(ROOT)))


def _prose(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def _anchor(heading: str) -> str:
    """What a heading is called in a link, by GitHub's rule."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _prose(path.read_text("utf-8")), flags=re.MULTILINE)
    return {_anchor(heading) for heading in headings}


def _sections(text: str) -> dict[str, str]:
    """Text below each heading of the third level, up to the next heading."""
    parts = re.split(r"^(#+ .*)$", text, flags=re.MULTILINE)
    return {head.removeprefix("### "): body for head, body in zip(parts[1::2], parts[2::2], strict=True)}


@page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", _prose(page.read_text("utf-8"))):
        name, _, anchor = target.partition("#")
        if name.startswith("https://"):
            continue  # what others say of their systems
        path = (page.parent / name).resolve() if name else page
        assert path.is_file(), target
        assert not anchor or anchor in _anchors(path), target


@page
def test_every_test_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", page.read_text("utf-8")))
    assert named - DEFINED == set()


@page
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`((?:tests|tools|examples|src)/[\w./]+)`", page.read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


@page
def test_every_part_of_an_example_that_is_shown_stands_in_one_that_the_page_names(page: Path) -> None:
    text = page.read_text("utf-8")
    named = set(re.findall(r"\]\(((?:\.\./)+(?:examples|tests)/[\w./]+\.py)\)", text))
    examples = [(page.parent / name).read_text("utf-8") for name in named]
    for part in re.findall(r"^```py\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        in_a_class = indent(part, "    ")
        assert any(part in example or in_a_class in example for example in examples), part


@page
def test_every_page_is_on_the_map(page: Path) -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    if page.parent.name == "gallery":
        assert "(gallery/index.md)" in index
        index = (page.parent / "index.md").read_text("utf-8")
    assert page.name == "index.md" or f"({page.name})" in index


@page_of_users
def test_no_page_for_users_names_a_test_or_a_broken_variant(page: Path) -> None:
    prose = _prose(page.read_text("utf-8"))
    variants = {variant.broken.__name__ for variants in BROKEN.values() for variant in variants}
    assert set(re.findall(r"\w+", prose)) & (DEFINED | FILES | variants) == set()
    assert set(re.findall(r"\btests/[\w./]+", prose)) == SHOWN.get(page.name, set())


@pytest.mark.parametrize("promise", Promise)
def test_every_promise_has_an_example_that_runs(promise: Promise) -> None:
    section = _sections((ROOT / "docs" / "contract.md").read_text("utf-8"))[promise]
    assert re.search(r"^```python\n.*assert .*^```", section, flags=re.MULTILINE | re.DOTALL)
