"""What the documentation says about files, tests and promises is there."""

import re
from pathlib import Path
from textwrap import indent

import pytest
from tests.properties.broken import BROKEN

from keyshared.testing import Promise

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TESTS = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
DEFINED = set(re.findall(r"^ *(?:def|async def) (test_\w+)", TESTS, flags=re.MULTILINE))
page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))


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


@pytest.mark.parametrize("promise", Promise)
def test_every_promise_names_the_faults_that_prove_it_is_checked(promise: Promise) -> None:
    section = _sections((ROOT / "docs" / "contract.md").read_text("utf-8"))[promise]
    named = section.partition("Broken variants that must be caught:")[2]
    assert sorted(variant.__name__ for variant in BROKEN[promise]) == sorted(re.findall(r"`(\w+)`", named))


def test_every_twin_of_a_verb_that_is_built_is_one_that_is_caught() -> None:
    sections = _sections((ROOT / "docs" / "verbs.md").read_text("utf-8")).items()
    built = [body for head, body in sections if re.match(r"\d", head) and re.search(r"\b[Bb]uilt\b", body)]
    points = [point for body in built for point in re.split(r"^- ", body, flags=re.MULTILINE) if "wins" in point]
    named = {name for point in points for name in re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]*)+)`", point)}
    known = {variant.__name__ for variants in BROKEN.values() for variant in variants} | {"BatchWithAHole"}
    assert len(named) > 20
    assert named - known == set()


@pytest.mark.parametrize("promise", Promise)
def test_every_promise_has_an_example_that_runs(promise: Promise) -> None:
    section = _sections((ROOT / "docs" / "contract.md").read_text("utf-8"))[promise]
    assert re.search(r"^```python\n.*assert .*^```", section, flags=re.MULTILINE | re.DOTALL)
