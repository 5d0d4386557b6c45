import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keyshared

# Their extras bring what they import; each has tests of its own.
ADAPTERS = ("keyshared.spark", "keyshared.testing")
BUILT = "keyshared._compiled__mypyc"  # all compiled modules in one file, in a wheel that carries some
CORE = sorted(
    module.name
    for module in pkgutil.walk_packages(keyshared.__path__, "keyshared.", onerror=lambda _: None)
    if not module.name.startswith(ADAPTERS) and module.name != BUILT
)
# What a first program does not need, and so must not pay for.
NOT_AT_THE_DOOR = (
    *(
        f"keyshared.{name}"
        for name in (
            "buckets",
            "copyflags",
            "distribution",
            "draining",
            "draintracker",
            "journal",
            "leases",
            "offsets",
            "placement.assigned",
            "placement.autosplit",
            "router",
            "run",
            "segments",
            "simulate",
            "spark",
            "subjects",
            "testing",
        )
    ),
    *(
        "asyncio",
        "hypothesis",
        "logging",
        "numpy",
        "pandas",
        "pickle",
        "pyarrow",
        "pyspark",
        "random",
        "socket",
        "threading",
    ),
)
MOST_MODULES = 48  # of keyshared, packages counted; it had 77 when everything stood at the top
MOST_NAMES = 20


def test_the_version_has_three_numbers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", keyshared.__version__)


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(keyshared.__file__).with_name("py.typed").is_file()


@pytest.mark.parametrize("name", CORE)
def test_every_module_lists_public_names_that_it_defines(name: str) -> None:
    module = importlib.import_module(name)
    assert [] == [public for public in module.__all__ if not hasattr(module, public)]
    assert [] == [public for public in module.__all__ if public.startswith("_")]
    assert set() == set(module.__all__) - set(dir(module))


def test_every_name_offered_at_the_top_is_there() -> None:
    offered: list[str] = getattr(keyshared, "__all__", [])
    assert [] == [name for name in offered if not hasattr(keyshared, name)]
    assert set() == set(offered) - set(dir(keyshared))


@pytest.mark.parametrize("name", CORE)
def test_no_package_offers_a_name_that_one_of_its_modules_has(name: str) -> None:
    module = importlib.import_module(name)
    assert set() == set(module.__all__) & {one.name for one in pkgutil.iter_modules(getattr(module, "__path__", []))}


@pytest.fixture(scope="module")
def loaded() -> frozenset[str]:
    """What a fresh interpreter has loaded after ``import keyshared``."""
    asked = "import sys, keyshared; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    return frozenset(ran.stdout.split())


@pytest.mark.parametrize("name", NOT_AT_THE_DOOR)
def test_the_front_door_does_not_load(name: str, loaded: frozenset[str]) -> None:
    assert [] == sorted(one for one in loaded if one == name or one.startswith(f"{name}."))


def test_the_front_door_loads_few_modules(loaded: frozenset[str]) -> None:
    assert MOST_MODULES >= len([name for name in loaded if name.partition(".")[0] == "keyshared" and name != BUILT])


def test_the_front_door_has_about_twenty_names() -> None:
    assert MOST_NAMES >= len(keyshared.__all__)
