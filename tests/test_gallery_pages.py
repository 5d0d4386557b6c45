"""The pages of the gallery have their parts, and agree with their files and the locked versions; nothing is run."""

import ast
import re
from pathlib import Path

import pytest
from examples.subjects.exhibits import EXHIBITS, Exhibit
from tools.draw_gallery import (
    BEGIN,
    GALLERY,
    ROOT,
    SUBJECTS,
    cut,
    draw_index,
    draw_programs,
    page_of,
    programs,
    rows,
    schedule_of,
)

from keyshared.testing import Promise
from keyshared.testing.steps import Connect, Publish, Wait

LOCKED = {
    name: version
    for lock in ("kafka", "subjects")
    for name, version in re.findall(
        r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements" / f"{lock}.txt").read_text("utf-8"), re.MULTILINE
    )
}
PARTS = ["What it promises", "What is found", "What it means", "What holds"]
exhibit = pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.page)


def text_of(exhibit: Exhibit) -> str:
    return page_of(exhibit).read_text("utf-8")


def classes_of(module: str) -> list[str]:
    tree = ast.parse((SUBJECTS / f"{module}.py").read_text("utf-8"))
    return [each.name for each in tree.body if isinstance(each, ast.ClassDef)]


def test_every_page_has_its_system_and_every_system_its_page() -> None:
    pages = {page.stem for page in GALLERY.glob("*.md")} - {"index"}
    assert pages == {exhibit.page for exhibit in EXHIBITS}


@exhibit
def test_a_page_has_its_parts_and_an_address_for_what_is_promised(exhibit: Exhibit) -> None:
    text = text_of(exhibit)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == PARTS
    assert all(f"(../../examples/subjects/{module}.py)" in text for module in exhibit.modules)
    promised = text.partition("## What it promises")[2].partition("## ")[0]
    assert "https://" in promised or not exhibit.packages


@exhibit
def test_a_page_was_drawn_with_the_locked_versions(exhibit: Exhibit) -> None:
    named = dict(re.findall(r"([\w.-]+) (\d[\w.]*\w)[,.]", cut(page_of(exhibit))[1].partition("\n")[0]))
    assert set(named) == {*exhibit.packages, *exhibit.servers}
    assert {name: named[name] for name in exhibit.packages} == {name: LOCKED[name] for name in exhibit.packages}


@exhibit
def test_a_page_tells_of_machines_that_exist_and_of_promises_that_exist(exhibit: Exhibit) -> None:
    said = rows(cut(page_of(exhibit))[1])
    defined = [name for module in exhibit.modules for name in classes_of(module)]
    assert {row.machine for row in said} == {name for name in defined if name.endswith("Machine")}
    assert {row.promise for row in said} <= set(Promise)


@exhibit
def test_every_broken_promise_has_a_schedule_and_the_page_a_program(exhibit: Exhibit) -> None:
    found = [row for row in rows(cut(page_of(exhibit))[1]) if row.schedule is not None]
    assert found
    assert all(row.schedule for row in found)
    assert programs(exhibit)
    assert all(program.about for program in programs(exhibit))


@exhibit
def test_the_programs_of_a_page_are_those_of_its_file(exhibit: Exhibit) -> None:
    assert cut(page_of(exhibit))[1].endswith(draw_programs(exhibit))


def test_the_map_says_what_the_pages_say() -> None:
    assert cut(GALLERY / "index.md")[1] == draw_index()


def test_a_schedule_is_read_as_it_was_printed() -> None:
    steps = (Connect("c1", ("a*",)), Publish(b"a", 2), Wait(30))
    printed = "\n".join([*map(repr, steps), "key-order: offset 1 overtook\n#1 Published(offset=1)"])
    assert schedule_of(printed, "key-order") == steps


def test_a_page_without_a_place_for_what_is_drawn_is_no_such_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(BEGIN, "utf-8")
    with pytest.raises(SystemExit, match="has no place for what is drawn"):
        cut(page)
