import ast
import time
from pathlib import Path

import pytest
from tools.mutants import Mutant, all_mutants, allowed, living, mutants_of

from tools import mutants

SOURCE = b'''"""A module with an umlaut: \xc3\xa4."""

LIMIT = 3  # outside of functions nothing is changed


class Queue:
    """A queue."""

    def take(self, size: int, *, most: int = 5) -> list[int] | None:
        """Take some; not more than 7."""
        if size > most or not self.items:
            return None
        found = min(size, 1 + len(self.items)); text = f"{size + 1}"
        for item in zip(self.items, self.items, strict=True):
            self.note(item)
            break
        self.count += 1
        raise ValueError(size + 1)
'''


def names(source: bytes = SOURCE) -> set[str]:
    return {f"{mutant.before} -> {mutant.after}" for mutant in mutants_of("queue.py", source)}


def test_one_thing_is_wrong_in_each() -> None:
    assert names() == {
        "size > most or not self.items -> (True)",
        "size > most or not self.items -> (False)",
        "size > most or not self.items -> (size > most and (not self.items))",
        "size > most -> (size >= most)",
        "not self.items -> (self.items)",
        "min -> (max)",
        "1 -> (2)",
        "1 + len(self.items) -> (1 - len(self.items))",
        "self.note(item) -> pass",
        "break -> continue",
        "self.count += 1 -> self.count -= 1",
    }


def test_each_is_a_module_that_differs_in_its_place_only() -> None:
    for mutant in mutants_of("queue.py", SOURCE):
        text = mutant.put_into(SOURCE)
        ast.parse(text)
        assert text[: mutant.start] == SOURCE[: mutant.start]
        assert text.endswith(SOURCE[mutant.stop :])
        assert text != SOURCE


def test_a_name_stays_when_lines_are_added_above() -> None:
    moved = [mutant.name for mutant in mutants_of("queue.py", SOURCE.replace(b"LIMIT", b"\n\nLIMIT"))]

    assert [mutant.name for mutant in mutants_of("queue.py", SOURCE)] == moved
    assert "queue.py Queue.take: self.count += 1 | self.count += 1 -> self.count -= 1" in moved


def test_adapters_and_self_checks_are_no_part_of_the_core(tmp_path: Path) -> None:
    for name in ("window.py", "spark/a.py", "testing/b.py", "_core/invariants.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(SOURCE)

    assert {mutant.module for mutant in all_mutants(tmp_path)} == {"window.py"}
    assert {mutant.module for mutant in all_mutants(tmp_path, ["spark"])} == {"spark/a.py"}


def test_who_may_live_has_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "mutants.toml"
    assert {} == allowed(path)

    path.write_text('[[mutant]]\nname = "a.py f: x | 1 -> (2)"\nbecause = "any positive number does"\n', "utf-8")
    assert {"a.py f: x | 1 -> (2)": "any positive number does"} == allowed(path)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one module, and a test that notices half of what may be wrong."""
    source = tmp_path / "src" / "keyshared"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("", "utf-8")
    (source / "toy.py").write_text("def f(size):\n    return size < 3\n", "utf-8")
    (tmp_path / "tests").mkdir()
    test = "from keyshared.toy import f\n\ndef test_toy():\n    assert f(2) and not f(9)\n"
    (tmp_path / "tests" / "test_toy.py").write_text(test, "utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "SOURCE", source)
    monkeypatch.setattr(mutants, "PLACE", tmp_path / "build")
    monkeypatch.setattr(mutants, "TOGETHER", ())
    monkeypatch.setattr(mutants, "OPTIONS", ("-p", "no:cacheprovider"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a test of one line needs none of them
    return source


def test_what_no_test_notices_lives(toy: Path) -> None:
    tried, lived = living(all_mutants(toy), workers=2, until=time.monotonic() + 600)

    assert 3 == tried
    assert ["3 -> (4)", "size < 3 -> (size <= 3)"] == sorted(f"{each.before} -> {each.after}" for each in lived)


def test_nothing_is_tried_when_the_time_is_over(toy: Path) -> None:
    assert (0, list[Mutant]()) == living(all_mutants(toy), workers=1, until=time.monotonic() - 1)
