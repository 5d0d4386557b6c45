"""The line of progress follows a job, on Spark and on Connect, ends with it, and never fails it."""

import io
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from keyshared.errors import ArgumentError, MissingExtraError

pyspark = pytest.importorskip("pyspark")
from py4j.protocol import Py4JError  # noqa: E402 - comes with pyspark
from pyspark.errors import PySparkAttributeError  # noqa: E402 - needs pyspark

from keyshared.spark.runtime.progress import watch  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Remote:
    """A session of Spark Connect, as far as it matters here."""

    def __init__(self) -> None:
        self.handlers: list[Callable[..., None]] = []

    @property
    def sparkContext(self) -> object:  # noqa: N802 - Spark's name
        raise PySparkAttributeError(
            errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "sparkContext"}
        )

    def registerProgressHandler(self, handler: Callable[..., None]) -> None:  # noqa: N802 - Spark's name
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Callable[..., None]) -> None:  # noqa: N802 - Spark's name
        self.handlers.remove(handler)

    def tell(self, operation: str, *stages: tuple[int, int, int], done: bool = False) -> None:
        told = [
            SimpleNamespace(stage_id=number, num_tasks=tasks, num_completed_tasks=complete, done=complete == tasks)
            for number, tasks, complete in stages
        ]
        for handler in self.handlers:
            handler(stages=told, inflight_tasks=1, operation_id=operation, done=done)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "keyshared-progress"]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyshared.spark.runtime.progress_lines._LOOK_S", 0.01)


def shown(session: Any, out: io.StringIO, until: str) -> bool:
    """Watch until a text is shown, for half a minute at most."""
    with watch(session, "working", every_s=0.01, quiet_s=0, out=out):
        late = time.monotonic() + 30
        while until not in out.getvalue() and time.monotonic() < late:
            time.sleep(0.01)
        return until in out.getvalue()


def slow(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        time.sleep(0.4)
        yield batch


def test_a_terminal_shows_tasks_and_rows_of_a_job_in_one_line(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    screen = Terminal()
    with watch(spark, "counting", quiet_s=0, out=screen):
        assert 600 == spark.range(0, 600, 1, 6).mapInArrow(slow, "id long").count()
    *drawn, last, after = re.sub(r"\x1b\[\?25[lh]", "", screen.getvalue()).split("\r\x1b[2K")
    assert "\n" not in "".join(drawn)
    assert [line for line in drawn if re.match(r"counting: [1-5] of 6 tasks, [1-5]00 rows, [\d,]+ rows/s, \d", line)]
    assert re.fullmatch(r"counting: done in \d+\.\d s", last)
    assert after == f"{last}\n"


class Reader(io.StringIO):
    """Leaves a file when it has read what it waits for."""

    def __init__(self, pattern: str, file: Path) -> None:
        super().__init__()
        self.pattern = pattern
        self.file = file

    def write(self, text: str) -> int:
        if re.search(self.pattern, text):
            self.file.touch()
        return super().write(text)


def stuck_until(file: Path) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """Give back some rows, then none until there is a file, for a minute at most."""

    def run(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        yield from islice(batches, 4)
        late = time.monotonic() + 60
        while not file.exists() and time.monotonic() < late:
            time.sleep(0.05)
        yield from batches

    return run


@pytest.mark.usefixtures("often")
def test_a_task_that_passes_rows_through_python_tells_them_while_it_runs(spark: "SparkSession", tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    out = Reader(r"counting: 0 of 1 tasks, [1-4]0,000 rows from Python, [\d,]+ rows/s, \d", seen)
    with watch(spark, "counting", every_s=0.01, quiet_s=0, out=out):
        assert 80_000 == spark.range(0, 80_000, 1, 1).mapInArrow(stuck_until(seen), "id long").count()
    assert seen.exists()


def test_a_line_is_no_longer_than_the_terminal_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    screen = Terminal()
    with watch(None, "a very long thing to do", quiet_s=0, out=screen):
        pass
    shown = re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "\r", screen.getvalue())
    assert {"", "a very long thing t…"} == set(shown.replace("\n", "\r").split("\r"))


@pytest.mark.usefixtures("often")
def test_elsewhere_whole_lines_are_written() -> None:
    file = io.StringIO()
    with watch(None, "starting", every_s=0.01, quiet_s=0, out=file):
        while file.getvalue().count("\n") < 2:
            time.sleep(0.01)
    *lines, last = file.getvalue().splitlines()
    assert [] == [line for line in lines if not re.fullmatch(r"starting: \d+\.\d s", line)]
    assert re.fullmatch(r"starting: done in \d+\.\d s", last)


def test_a_short_job_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with watch(None, "starting"):
        pass
    assert ("", "") == capsys.readouterr()


def test_the_thread_ends_with_its_block_whatever_happens_in_it() -> None:
    file = io.StringIO()
    with watch(None, "working", quiet_s=0, out=file):
        assert ["keyshared-progress"] == threads()
    assert [] == threads()
    with pytest.raises(KeyError), watch(None, "working", quiet_s=0, out=file):
        raise KeyError
    assert [] == threads()
    assert ["done in", "failed after"] == [line[9:].rpartition(" 0")[0] for line in file.getvalue().splitlines()]


@pytest.mark.usefixtures("often")
def test_a_reader_who_is_gone_does_not_fail_the_job() -> None:
    file = io.StringIO()
    with watch(None, "working", every_s=0.01, quiet_s=0, out=file):
        file.close()
        while threads():  # it gives up by itself
            time.sleep(0.01)
    assert [] == threads()


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("error", [Py4JError("gone"), ConnectionRefusedError(), AttributeError("_jsc")])
def test_a_spark_that_does_not_answer_leaves_the_time(error: Exception) -> None:
    def tracker() -> object:
        raise error

    file = io.StringIO()
    assert shown(SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=tracker)), file, "s\nworking: ")
    assert "tasks" not in file.getvalue()


@pytest.mark.usefixtures("often")
def test_a_connect_client_that_hears_nothing_of_the_server_leaves_the_time() -> None:
    class Old:
        @property
        def sparkContext(self) -> object:  # noqa: N802 - Spark's name
            raise NotImplementedError

    assert shown(Old(), io.StringIO(), "s\nworking: ")


@pytest.mark.usefixtures("often")
def test_a_spark_without_the_store_still_shows_tasks() -> None:
    stage = SimpleNamespace(numTasks=4, numCompletedTasks=1)
    tracker = SimpleNamespace(getActiveStageIds=lambda: [7, 8], getStageInfo={7: stage, 8: None}.get)
    session = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    assert shown(session, io.StringIO(), "working: 1 of 4 tasks, 0.")


@pytest.mark.usefixtures("often")
def test_a_spark_that_writes_its_figures_otherwise_shows_tasks() -> None:
    stage = SimpleNamespace(numTasks=4, numCompletedTasks=1)
    tracker = SimpleNamespace(getActiveStageIds=lambda: [7], getStageInfo={7: stage}.get)

    def store() -> object:
        raise ValueError

    jvm = SimpleNamespace(sharedState=lambda: SimpleNamespace(statusStore=store))
    session = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker), _jsparkSession=jvm)
    assert shown(session, io.StringIO(), "working: 1 of 4 tasks, 0.")


@pytest.mark.usefixtures("often")
def test_connect_tells_tasks_by_itself() -> None:
    session: Any = Remote()
    file = io.StringIO()
    with watch(session, "working", every_s=0.01, quiet_s=0, out=file):
        session.tell("one", (1, 3, 3), (2, 4, 1))
        session.tell("two", (3, 10, 4))
        while "working: 5 of 14 tasks, " not in file.getvalue():
            time.sleep(0.01)
        session.tell("two", done=True)
        while "working: 1 of 4 tasks, " not in file.getvalue():
            time.sleep(0.01)
    assert [] == session.handlers


def test_connect_handlers_that_were_cleared_meanwhile_do_no_harm() -> None:
    session: Any = Remote()
    with watch(session, "working", out=io.StringIO()):
        session.handlers.clear()
    assert [] == session.handlers


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"doing": ""}, "doing is ''; it must be a text of one line"),
        ({"doing": "a\nb"}, "doing is 'a\\nb'; it must be a text of one line"),
        ({"doing": 1}, "doing is 1; it must be a text of one line"),
        ({"every_s": 0}, "every_s is 0; it must be a number of seconds above 0"),
        ({"every_s": True}, "every_s is True; it must be a number of seconds above 0"),
        ({"every_s": float("nan")}, "every_s is nan; it must be a number of seconds above 0"),
        ({"quiet_s": -1}, "quiet_s is -1; it must be a number of seconds of at least 0"),
        ({"quiet_s": "1"}, "quiet_s is '1'; it must be a number of seconds of at least 0"),
    ],
)
def test_arguments_that_are_none_are_refused_at_once(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        watch(**{"spark": None, "doing": "working", **arguments})
    assert told == str(refused.value)


def test_a_terminal_needs_the_extra_of_the_demo_and_a_file_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(MissingExtraError, match=r"needs the package 'rich'.*install keyshared\[demo\]"):
        watch(None, "working", out=Terminal())
    file = io.StringIO()
    with watch(None, "working", quiet_s=0, out=file):
        pass
    assert file.getvalue().startswith("working: done in ")


def test_a_terminal_that_is_gone_does_not_fail_the_job() -> None:
    screen = Terminal()
    with watch(None, "working", quiet_s=0, out=screen):
        screen.close()
    assert [] == threads()


def test_a_short_job_draws_nothing() -> None:
    screen = Terminal()
    with watch(None, "working", out=screen):
        pass
    assert "" == screen.getvalue()
