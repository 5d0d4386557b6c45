"""The pictures of the documents show what the program beside them computes, and everybody can read them."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from keyshared._core.records import Transition
from keyshared.window import NEXT_STATE, State

DOCS = Path(__file__).resolve().parents[1] / "docs"
PICTURES = sorted(DOCS.rglob("*.svg"))
SHOWN = re.compile(r"^!\[(.+?)\]\((.+?\.svg)\)$", flags=re.MULTILINE | re.DOTALL)
NUMBERED = [path for path in PICTURES if path.stem != "states"]
picture = pytest.mark.parametrize("picture", PICTURES, ids=lambda path: str(path.stem))


def _root(picture: Path) -> ET.Element:
    return ET.parse(picture).getroot()  # noqa: S314 - our own file


def _texts(root: ET.Element, tag: str) -> list[str]:
    return [element.text or "" for element in root.iter(f"{{http://www.w3.org/2000/svg}}{tag}")]


def _words(text: str) -> set[str]:
    """Return the numbers and the names with numbers, however they are punctuated: 65,536 and 65_536 are one."""
    bare = re.sub(r"(?<=\d)[_,](?=\d{3})", "", text)
    return set(re.findall(r"\b(?:[a-z]+-?)?\d+\b", bare))


def _programs(picture: Path) -> str:
    """Return the programs of the sections that show a picture."""
    found = []
    for page in DOCS.rglob("*.md"):
        for section in re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE):
            if any((page.parent / target).resolve() == picture for _, target in SHOWN.findall(section)):
                found += re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    return "".join(found)


@pytest.mark.parametrize("picture", NUMBERED, ids=lambda path: str(path.stem))
def test_a_picture_shows_only_numbers_of_the_program_beside_it(picture: Path) -> None:
    shown = _words(" ".join(_texts(_root(picture), "text")))

    assert shown
    assert shown - _words(_programs(picture)) == set()


@picture
def test_a_picture_tells_in_words_what_it_shows(picture: Path) -> None:
    root = _root(picture)
    (title,), (description,) = _texts(root, "title"), _texts(root, "desc")

    assert title
    assert len(description) > len(title)
    assert root.get("aria-labelledby") == "title desc"


@picture
def test_a_picture_can_be_read_in_the_dark_and_fetches_nothing(picture: Path) -> None:
    text = picture.read_text("utf-8")

    assert "prefers-color-scheme: dark" in text
    assert re.findall(r"href|@import|https?://(?!www\.w3\.org/2000/svg)", text) == []


def test_the_picture_of_the_states_has_the_arrows_of_the_table_and_no_other() -> None:
    drawn = [path.get("data-step") for path in _root(DOCS / "pictures" / "states.svg").iter() if path.get("data-step")]
    steps = {
        f"{before.name} {change.name.lower().replace('_', ' ')} {after.name}"
        for (before, change), after in NEXT_STATE.items()
        if change is not Transition.SETTLE
    }

    assert steps == set(drawn)
    assert len(steps) == len(drawn)


def test_every_state_of_a_message_can_end_as_the_picture_says() -> None:
    ends = {before for (before, change), after in NEXT_STATE.items() if change is Transition.SETTLE}

    assert set(State) - {State.SETTLED} == ends
