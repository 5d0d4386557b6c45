from pathlib import Path

import pytest
from tools.stage_docs import FIRST_SCREEN, Site, main, public_modules, public_names, reference_page

ROOT = Path(__file__).resolve().parents[2]


def written(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        written(tmp_path, name, "# A paper\n\nSee [home](docs/index.md) and [me](README.md).\n")
    written(tmp_path, "src/keyshared/__init__.py", '"""The package.\n\nMore."""\n\n__all__ = ["b", "a"]\n')
    written(tmp_path, "src/keyshared/part/__init__.py", '"""A part."""\n\n__all__ = ["c"]\n')
    written(tmp_path, "src/keyshared/_own/__init__.py", '"""Private."""\n\n__all__ = ["d"]\n')
    written(tmp_path, "src/keyshared/empty.py", '"""Exports nothing."""\n')
    written(tmp_path, "examples/run.py", "print('```')\n")
    written(tmp_path, "docs/gallery/redis.md", "[home](../index.md), [run](../../examples/run.py)\n")
    links = (
        "[paper](../README.md#top) [deep](gallery/redis.md) [run](../examples/run.py) [out](https://example.org/x.md)\n"
    )
    written(tmp_path, "docs/index.md", f"# Home\n\n{links}\n```python\nfirst[0](../README.md)\n```\n")
    return tmp_path


def staged(project: Path) -> Path:
    assert 0 == main(project)
    return project / "build" / "docs"


def test_links_that_leave_the_documents_lead_to_copies(project: Path) -> None:
    text = (staged(project) / "index.md").read_text("utf-8")

    assert "[paper](readme.md#top) [deep](gallery/redis.md) [run](files/examples-run.py.md)" in text
    assert "[out](https://example.org/x.md)" in text


def test_the_first_page_begins_as_the_readme(project: Path) -> None:
    written(project, "README.md", "# A paper\n\nOne rule, [here](docs/index.md).\n\n## More\n\nLater.\n")
    written(project, "docs/index.md", f"# Home\n\n{FIRST_SCREEN}\nThe map.\n")

    assert "# Home\n\n\nOne rule, [here](index.md).\n\n\nThe map.\n" == (staged(project) / "index.md").read_text(
        "utf-8"
    )


def test_code_is_left_alone(project: Path) -> None:
    assert "first[0](../README.md)" in (staged(project) / "index.md").read_text("utf-8")


def test_a_page_in_a_folder_links_from_there(project: Path) -> None:
    text = (staged(project) / "gallery" / "redis.md").read_text("utf-8")

    assert "[home](../index.md), [run](../files/examples-run.py.md)\n" == text


def test_papers_link_into_the_documents(project: Path) -> None:
    assert "[home](index.md) and [me](readme.md)" in (staged(project) / "changelog.md").read_text("utf-8")


def test_pictures_come_along(project: Path) -> None:
    written(project, "docs/pictures/lane.svg", "<svg/>\n")
    written(project, "docs/lanes.md", "![a lane](pictures/lane.svg)\n")
    place = staged(project)

    assert "![a lane](pictures/lane.svg)\n" == (place / "lanes.md").read_text("utf-8")
    assert "<svg/>\n" == (place / "pictures" / "lane.svg").read_text("utf-8")


def test_a_diagram_is_shown_as_text_because_a_browser_would_fetch_what_draws_it(project: Path) -> None:
    written(project, "docs/tree.md", "```mermaid\nflowchart TD\n    a --> b\n```\n")

    assert "```text\nflowchart TD\n    a --> b\n```\n" == (staged(project) / "tree.md").read_text("utf-8")


def test_a_file_that_is_linked_is_shown_whole(project: Path) -> None:
    shown = (staged(project) / "files" / "examples-run.py.md").read_text("utf-8")

    assert "# examples/run.py\n\n````python\nprint('```')\n````\n" == shown


def test_a_link_that_leads_nowhere_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(project, "docs/index.md", "[gone](nowhere.md)\n")

    assert 1 == main(project)
    assert "broken link in docs/index.md: nowhere.md\n" == capsys.readouterr().err


def test_what_was_there_before_goes(project: Path) -> None:
    stale = written(project, "build/docs/stale.md", "old\n")
    staged(project)

    assert not stale.exists()


def test_each_module_that_exports_something_has_a_page_of_its_names(project: Path) -> None:
    names = sorted(path.name for path in (staged(project) / "reference").iterdir())

    assert ["keyshared.md", "keyshared.part.md"] == names
    page = reference_page("keyshared", project / "src" / "keyshared" / "__init__.py")
    assert "# keyshared\n\nThe package.\n\n::: keyshared.a\n\n::: keyshared.b\n" == page


def test_the_site_names_every_page_that_there_is() -> None:
    navigation = (ROOT / "zensical.toml").read_text("utf-8")
    site = Site(ROOT, ROOT / "build" / "docs")
    pages = [path.relative_to(site.docs).as_posix() for path in site.docs.rglob("*.md")]
    reference = [f"reference/{module}.md" for module in public_modules(ROOT / "src" / "keyshared")]

    assert [page for page in [*pages, *reference] if f'"{page}"' not in navigation] == []
    assert "HashRing" in public_names(ROOT / "src" / "keyshared" / "ring.py")
