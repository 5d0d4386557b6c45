import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import keyshared

# Their extras bring what they import; each has tests of its own.
ADAPTERS = ("keyshared.spark", "keyshared.testing")
CORE = sorted(
    module.name
    for module in pkgutil.walk_packages(keyshared.__path__, "keyshared.", onerror=lambda _: None)
    if not module.name.startswith(ADAPTERS)
)


def test_the_version_has_three_numbers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", keyshared.__version__)


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(keyshared.__file__).with_name("py.typed").is_file()


@pytest.mark.parametrize("name", CORE)
def test_every_module_lists_public_names_that_it_defines(name: str) -> None:
    module = importlib.import_module(name)
    assert [] == [public for public in module.__all__ if not hasattr(module, public)]
    assert [] == [public for public in module.__all__ if public.startswith("_")]


def test_every_name_offered_at_the_top_is_there() -> None:
    offered: list[str] = getattr(keyshared, "__all__", [])
    assert [] == [name for name in offered if not hasattr(keyshared, name)]


@pytest.mark.parametrize("name", CORE)
def test_no_package_offers_a_name_that_one_of_its_modules_has(name: str) -> None:
    module = importlib.import_module(name)
    assert set() == set(module.__all__) & {one.name for one in pkgutil.iter_modules(getattr(module, "__path__", []))}


@pytest.mark.parametrize("name", ["buckets", "distribution", "placement", "segments"])
def test_a_name_that_a_package_does_not_have_is_refused(name: str) -> None:
    package = importlib.import_module(f"keyshared.{name}")
    with pytest.raises(AttributeError, match=rf"module 'keyshared\.{name}' has no attribute 'nothing'"):
        _ = package.nothing
