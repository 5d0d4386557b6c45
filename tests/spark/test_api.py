"""What a Spark job calls is in one place, is documented, and is called in one way."""

import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from keyshared import spark as ks

pytestmark = pytest.mark.spark

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(ks, name) for name in ks.__all__ if inspect.isfunction(getattr(ks, name))
}
FRAMES = {"df", "counted", "deliveries", "violations", "faults", "commits", "source_log", "target_log"}
VALUES = {"placement", "layout", "tree", "cluster", "plan", "plans", "guarantees", "n"}
GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


def of_frames() -> list[str]:
    return [name for name, function in FUNCTIONS.items() if FRAMES & {*inspect.signature(function).parameters}]


@pytest.mark.parametrize("name", of_frames())
def test_after_frames_and_what_is_applied_to_them_everything_is_given_by_name(name: str) -> None:
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    positional = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    frames = [each for each in positional if each in FRAMES]
    assert frames == positional[: len(frames)]
    assert {*positional[len(frames) :]} <= VALUES


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_says_what_it_takes_and_gives_and_shows_it(name: str) -> None:
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    assert "Args:" in text
    assert ("Returns:" in text) != ("Yields:" in text)
    assert "Example:" in text
    assert f"{name}(" in text.split("Example:")[1]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_in_the_guide(name: str) -> None:
    assert f"{name}(" in GUIDE.read_text()


def test_no_function_has_the_name_of_a_package_beside_it() -> None:
    assert set() == set(ks.__all__) & {module.name for module in pkgutil.iter_modules(ks.__path__)}
