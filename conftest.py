"""The three lanes of the test suite (core, Spark, slow), documents as tests, the session, the Hypothesis profiles."""

import os
import re
import sys
import threading  # noqa: TID251 - only to trace nothing in them
from collections.abc import Generator, Iterator
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser
from sybil.sybil import SybilCollection

import keyshared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent
# Searches, whole runs of the demo and much else, the longest first: a file stays in one worker, and one that is begun
# last would keep it busy while the other has nothing left to do.
LONGEST = [
    ROOT / "tests" / name
    for name in (
        "properties/kit/test_kit_finds_faults.py",
        "properties/test_small_worlds.py",
        "properties/test_checker_searches.py",
        "properties/test_broken_variants.py",
        "properties/test_lease_small_worlds.py",
        "properties/test_drains.py",
        "properties/test_leases_oracle.py",
        "properties/test_lease_schedules.py",
        "properties/test_queries_write_nothing.py",
        "properties/test_journal_properties.py",
        "properties/test_changing_trees.py",
        "properties/test_runner_small_worlds.py",
        "properties/kit/test_runner_kit.py",
        "test_benchmarks.py",
        "test_odd_arguments.py",
        "test_damaged_states.py",
        "testing/test_slow_judge.py",
        "testing/test_merge.py",
        "testing/test_find.py",
        "spark/test_stream.py",
        "spark/test_figures.py",
        "spark/test_cli.py",
        "spark/test_simulate.py",
        "spark/test_audit.py",
        "spark/test_copy_audit.py",
    )
]

# Chosen with --hypothesis-profile; tests never set max_examples themselves, or the choice would not reach them.
settings.register_profile("ci", max_examples=100, derandomize=True, deadline=None)
# Other dice each night: what fails prints the line that replays it.
settings.register_profile(
    "nightly", max_examples=int(os.environ.get("EXAMPLES", "2000")), deadline=None, print_blob=True
)
settings.load_profile("ci")

if keyshared.COMPILED:  # doctests are found in the sources: without this, their modules would be loaded from there
    PACKAGE = Path(keyshared.__file__).parent
    for source in sorted(PACKAGE.rglob("*.py")):
        if any(source.with_name(source.stem + suffix).exists() for suffix in EXTENSION_SUFFIXES):
            import_module(".".join(("keyshared", *source.relative_to(PACKAGE).with_suffix("").parts)))

pytest_collect_file = SybilCollection(
    [
        Sybil(parsers=[PythonCodeBlockParser()], patterns=["*.md"], excludes=["*spark*.md"]),
        Sybil(parsers=[PythonCodeBlockParser()], patterns=["*spark*.md"], fixtures=["spark"]),
    ]
).pytest()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """One quiet session for all tests and documents of this process that need one."""
    pytest.importorskip("pyspark")
    from tests.spark.known_names import remember_names  # noqa: PLC0415 - other tests run without pyspark
    from tests.spark.literal_rows import of_literal_rows  # noqa: PLC0415 - as above
    from tests.spark.settings import QUICK  # noqa: PLC0415 - as above

    from keyshared.spark.session import local_session  # noqa: PLC0415 - as above

    folder = tmp_path_factory.mktemp("spark")
    session = local_session(
        "tests",
        master="local[2]",
        log=folder / "spark.log",
        # Many small plans, each compiled once. By default there would be room for 48 MB of machine code only, and what
        # was compiled would be thrown away for it.
        jvm_options=f"{QUICK} -XX:ReservedCodeCacheSize=256m -Xmn256m",
        settings={
            "spark.sql.warehouse.dir": str(folder),
            "spark.python.sql.dataFrameDebugging.enabled": "false",  # it asks the JVM six times for each column
            # tests make the same plans again and again; of 100, as by default, most are gone when they come back
            "spark.sql.codegen.cache.maxEntries": "10000",
            # what it makes of a literal is computed by the planner: an expression would never be compiled
            "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
        },
    )
    remember_names(session.sparkContext._jvm)  # noqa: SLF001 - nothing else has it
    session.createDataFrame = of_literal_rows(session)  # type: ignore[method-assign]
    yield session
    session.stop()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Trace nothing of what is marked with no_cover.

    In a worker of pytest-xdist, pytest-cov has two collectors, one above the other. It pauses the upper one, and so
    wakes the other, which traces for nobody.
    """
    if item.get_closest_marker("no_cover") is None:
        return (yield)
    here, in_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(here)
        threading.settrace(in_threads)


@pytest.fixture(autouse=True)
def _names_of_doctests(request: pytest.FixtureRequest, doctest_namespace: dict[str, object]) -> None:
    """Docstrings of the adapter name the session ``spark``, as documents do, and a ``folder``: where they do, only."""
    if not isinstance(request.node, pytest.DoctestItem) or not _in_spark_lane(request.node.path):
        return
    code = "".join(example.source for example in request.node.dtest.examples)
    for name, fixture in (("spark", "spark"), ("folder", "tmp_path")):
        if re.search(rf"(?<![.\w]){name}\b", code):
            doctest_namespace[name] = request.getfixturevalue(fixture)


def _in_spark_lane(path: Path) -> bool:
    """Whether a test in this file may import pyspark."""
    if not path.is_relative_to(ROOT):
        return False
    top, *below = path.relative_to(ROOT).parts or ("",)
    return (
        (top == "tests" and below[:1] == ["spark"])
        or (top == "src" and below[:2] == ["keyshared", "spark"])
        or (top == "docs" and path.suffix == ".md" and "spark" in path.stem)
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing of Spark or of a real subject unless it was asked for, and nothing of the core for Spark alone."""
    wanted = str(config.getoption("markexpr"))
    if "not spark" in wanted and _in_spark_lane(collection_path):
        return True
    if wanted.startswith("spark") and collection_path.is_file() and not _in_spark_lane(collection_path):
        return True
    return True if "not slow" in wanted and collection_path.is_relative_to(ROOT / "tests" / "real_subjects") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the Spark lane by place, begin with the longest files, and leave the blocks of a document in their order."""
    for item in items:
        if _in_spark_lane(item.path):
            item.add_marker(pytest.mark.spark)
        if keyshared.COMPILED and (mark := item.get_closest_marker("interpreted")) is not None:
            item.add_marker(pytest.mark.skip(reason=f"the core is compiled: {mark.args[0]}"))
    places = {path: place for place, path in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    blocks = [index for index, item in enumerate(items) if isinstance(item, SybilItem)]
    in_order = sorted((items[index] for index in blocks), key=lambda item: (item.path, item.location[1] or 0))
    for index, item in zip(blocks, in_order, strict=True):
        items[index] = item
