"""Whoever waits is told at once when the runner fails, or when a signal asks it to stop."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from keyshared.errors import ArgumentError
from keyshared.run import AsyncRunner, RunnerConfig, StoppedError, ThreadRunner, UnknownLogError

LONG_S = 20  # ends a test that hangs; nothing waits for it otherwise
LONG_MS = 1_000 * LONG_S
ONE = RunnerConfig(workers=1, window=1, stop_ms=LONG_MS, call_attempts=1)
WAITS: dict[str, Any] = {
    "submit": lambda runner: runner.submit("log", 1, "key", 1),
    "wait_for_room": lambda runner: runner.wait_for_room("log"),
    "drain": lambda runner: runner.drain(),
}


@pytest.fixture(autouse=True)
def _terminations_count() -> Iterator[None]:
    """Whoever listens for SIGTERM does so after each test as before."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    assert signal.signal(signal.SIGTERM, before) is signal.SIG_DFL


def wait_until(is_so: Any) -> None:
    until = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.001)


class Program:
    """A runner whose only handler works on until it is released; the commit of another log fails when a call waits."""

    def __init__(self) -> None:
        self.begun, self.release = Event(), Event()
        self.runner = ThreadRunner(self.handle, commit=self.commit, config=ONE)

    def handle(self, _: int) -> None:
        self.begun.set()
        assert self.release.wait(LONG_S)

    def commit(self, log: str, *_: object) -> None:
        if log == "another":
            wait_until(lambda: self.runner._news.waiting)
            raise OSError("no commit")


@pytest.mark.parametrize("name", [*WAITS, "sleep"])
def test_a_thread_that_waits_is_told_at_once_when_the_runner_fails_though_handlers_work_on(name: str) -> None:
    program = Program()
    runner = program.runner
    runner.add_log("log")
    runner.submit("log", 0, "key", 0)
    assert program.begun.wait(LONG_S)
    runner.add_log("another", start=0)
    with pytest.raises(OSError, match="no commit"):
        {**WAITS, "sleep": lambda runner: runner.sleep(LONG_MS)}[name](runner)
    assert runner.stats().running == 1
    program.release.set()
    with pytest.raises(OSError, match="no commit"):
        runner.stop()


def test_a_wait_for_room_ends_with_its_time_or_when_there_is_some() -> None:
    begun, release = Event(), Event()

    def handle(_: int) -> None:
        begun.set()
        assert release.wait(LONG_S)

    with ThreadRunner(handle, config=ONE) as runner:
        runner.add_log("log")
        assert runner.wait_for_room("log") == 1
        runner.submit("log", 0, "key", 0)
        assert begun.wait(LONG_S)
        assert runner.wait_for_room("log", 1) == 0

        def release_when_it_waits() -> None:
            wait_until(lambda: runner._news.waiting)
            release.set()

        Thread(target=release_when_it_waits).start()
        assert runner.wait_for_room("log") == 1
        with pytest.raises(UnknownLogError):
            runner.wait_for_room("elsewhere")
        runner.sleep(2)
        for wait in (runner.sleep, partial(runner.wait_for_room, "log")):
            with pytest.raises(ArgumentError):
                wait(-1)
        runner.stop()
        with pytest.raises(StoppedError):
            runner.sleep(0)


def test_a_wait_of_a_task_for_room_ends_with_its_time_or_when_there_is_some() -> None:
    async def main() -> None:
        release = asyncio.Event()

        async def handle(_: int) -> None:
            await release.wait()

        async with AsyncRunner(handle, config=ONE) as runner:
            runner.add_log("log")
            await runner.submit("log", 0, "key", 0)
            assert await runner.wait_for_room("log", 1) == 0
            asyncio.get_running_loop().call_later(0.001, release.set)
            assert await runner.wait_for_room("log") == 1
            await runner.stop()

    asyncio.run(main())


async def fail_while(waiting: Any, told: list[str]) -> None:
    """Wait in the block of a runner whose commit fails while its handler works on."""
    release, begun = asyncio.Event(), asyncio.Event()

    async def handle(_: int) -> None:
        begun.set()
        await release.wait()

    async def commit(log: str, *_: object) -> None:
        if log == "another":
            await begun.wait()
            raise OSError("no commit")

    async with AsyncRunner(handle, commit=commit, config=ONE) as runner:
        runner.add_log("log")
        await runner.submit("log", 0, "key", 0)
        runner.add_log("another", start=0)
        try:
            await waiting(runner)
        except BaseException as error:
            told.append(type(error).__name__)
            assert runner.stats().running == 1, "nobody has waited for the handler"
            raise
        finally:
            release.set()


@pytest.mark.parametrize("name", WAITS)
def test_a_task_that_waits_in_the_runner_gets_its_error_at_once(name: str) -> None:
    told: list[str] = []
    with pytest.raises(OSError, match="no commit"):
        asyncio.run(fail_while(WAITS[name], told))
    assert told == ["OSError"]


async def forever(_: object) -> None:
    await asyncio.sleep(LONG_S)


async def stubbornly(_: object) -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(LONG_S)
    await asyncio.sleep(0)


async def of_others(_: object) -> None:
    async with asyncio.timeout(LONG_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.sleep(LONG_S))


@pytest.mark.parametrize("waiting", [forever, stubbornly, of_others])
def test_whatever_the_block_of_a_runner_waits_for_is_cancelled_when_the_runner_fails(waiting: Any) -> None:
    told: list[str] = []

    async def main() -> int:
        with pytest.raises(OSError, match="no commit"):
            await fail_while(waiting, told)
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)  # nothing of it is left
        return task.cancelling()

    assert asyncio.run(main()) == 0
    assert told == ([] if waiting is stubbornly else ["CancelledError"])


def test_a_cancellation_by_others_goes_on_though_the_runner_fails_as_well() -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None

        async def waiting(_: object) -> None:
            try:
                await asyncio.sleep(LONG_S)
            except asyncio.CancelledError:
                task.cancel()  # as somebody else does at the same moment
                raise

        await fail_while(waiting, [])

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_a_block_that_has_ended_is_not_cancelled() -> None:
    async def main() -> None:
        runner = AsyncRunner[int](forever, config=RunnerConfig(stop_ms=0))
        async with runner:
            runner.add_log("log")
        runner._engine.fail(OSError("late"))
        runner._step()
        await asyncio.sleep(0)

    asyncio.run(main())


def test_a_signal_ends_a_block_of_threads_in_order() -> None:
    done: list[int] = []
    begun, commits = Event(), list[int]()

    def handle(message: int) -> None:
        begun.set()
        wait_until(lambda: runner._engine.is_stopping)
        done.append(message)

    runner = ThreadRunner(handle, commit=lambda _, position, __: commits.append(position), config=ONE)
    with runner.stopping_on_signals():
        runner.add_log("log", start=0)
        runner.submit("log", 0, "key", 0)
        assert begun.wait(LONG_S)
        signal.raise_signal(signal.SIGTERM)
        for offset in range(1, 10):
            runner.submit("log", offset, "key", offset)  # there is no room: it raises
        raise AssertionError("it goes on")
    assert runner.error is None
    assert (done, commits[-1]) == ([0], 1)


def test_a_signal_ends_a_block_of_tasks_in_order() -> None:
    done: list[int] = []
    commits: list[int] = []

    async def handle(message: int) -> None:
        signal.raise_signal(signal.SIGUSR1)
        await asyncio.sleep(0.01)
        done.append(message)

    async def main() -> None:
        runner = AsyncRunner(handle, commit=lambda _, position, __: commits.append(position), config=ONE)
        async with runner.stopping_on_signals(signal.SIGUSR1, signal.SIGUSR2):
            runner.add_log("log", start=0)
            await runner.submit("log", 0, "key", 0)
            await asyncio.sleep(LONG_S)
            raise AssertionError("it goes on")
        assert runner.error is None
        await asyncio.sleep(0)

    asyncio.run(main())
    assert (done, commits[-1]) == ([0], 1)


def test_a_signal_that_asks_what_is_stuck_at_the_very_end_does_not_hang(caplog: pytest.LogCaptureFixture) -> None:
    class Asked(AsyncRunner[int]):
        async def __aexit__(self, *raised: object) -> bool:
            try:
                return await super().__aexit__(*raised)  # type: ignore[arg-type]  # it gets what this got
            finally:
                signal.raise_signal(signal.SIGUSR1)

    async def main() -> None:
        async with Asked(forever).stopping_on_signals() as runner:
            runner.add_log("log", start=0)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert "nothing is stuck" in caplog.text


def no_commit(_: str, position: int, __: str) -> None:
    if position:  # the first one is made
        raise OSError("no commit")


def test_a_signal_ends_a_block_whose_readers_are_a_group_of_tasks() -> None:
    async def main() -> None:
        async def handle(_: int) -> None:
            await asyncio.sleep(0.05)

        async def read(log: str) -> None:
            for offset in range(1_000):
                await runner.submit(log, offset, "key", offset)

        runner = AsyncRunner(handle, config=RunnerConfig(workers=1, window=2))
        async with runner.stopping_on_signals(), asyncio.TaskGroup() as readers:
            for log in ("one", "other"):
                runner.add_log(log, start=0)
                readers.create_task(read(log))
            await asyncio.sleep(0.1)
            signal.raise_signal(signal.SIGTERM)
        assert runner.error is None

    asyncio.run(main())


def test_a_signal_hides_no_error_of_a_group_of_tasks() -> None:
    async def main() -> None:
        async def read() -> None:
            try:
                await runner.drain()
            except StoppedError:
                raise ValueError("a fault of the reader") from None

        runner = AsyncRunner[int](forever, config=RunnerConfig(workers=1, stop_ms=0))
        async with runner.stopping_on_signals(), asyncio.TaskGroup() as readers:
            runner.add_log("log", start=0)
            await runner.submit("log", 0, "key", 0)
            readers.create_task(read())
            await asyncio.sleep(0.02)
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(LONG_S)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(main())
    assert "a fault of the reader" in repr(raised.value.exceptions)


def test_an_interrupt_before_anybody_listens_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    runner = ThreadRunner[int](print)
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            enter(runner.stopping_on_signals())
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def enter(block: Any) -> None:
    with block:
        raise AssertionError("it has not begun")


def test_a_last_commit_that_fails_after_a_signal_is_raised_by_the_block_of_threads() -> None:
    begun = Event()

    def handle(_: int) -> None:
        begun.set()
        wait_until(lambda: runner._engine.is_stopping)

    runner = ThreadRunner(handle, commit=no_commit, config=ONE)

    def serve() -> None:
        with runner.stopping_on_signals():
            runner.add_log("log", start=0)
            runner.submit("log", 0, "key", 0)
            assert begun.wait(LONG_S)
            signal.raise_signal(signal.SIGTERM)
            runner.sleep(LONG_MS)

    with pytest.raises(OSError, match="no commit"):
        serve()


def test_a_last_commit_that_fails_after_a_signal_is_raised_by_the_block_of_tasks() -> None:
    async def main() -> None:
        begun, release = asyncio.Event(), asyncio.Event()

        async def handle(_: int) -> None:
            begun.set()
            await release.wait()

        async with AsyncRunner(handle, commit=no_commit, config=ONE).stopping_on_signals() as runner:
            runner.add_log("log", start=0)
            await runner.submit("log", 0, "key", 0)
            await begun.wait()
            signal.raise_signal(signal.SIGTERM)
            try:
                while True:
                    runner.room("log")
                    await asyncio.sleep(0)  # the cancellation comes after the error of the call
            finally:
                release.set()

    with pytest.raises(OSError, match="no commit"):
        asyncio.run(main())


def test_a_signal_in_the_last_drain_ends_that_too() -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def handle(_: int) -> None:
            begun.set()
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(LONG_S)

        async with AsyncRunner(handle, config=RunnerConfig(workers=1, stop_ms=0)).stopping_on_signals() as runner:
            runner.add_log("log")
            await runner.submit_many("log", [(0, "key", 0), (1, "key", 1)])
        assert runner.stats().done == 0

    asyncio.run(main())


def test_without_a_signal_a_block_drains_and_what_is_wrong_in_it_is_raised() -> None:
    done: list[int] = []

    def misuse() -> None:
        with ThreadRunner(done.append).stopping_on_signals() as runner:
            runner.add_log("log")
            runner.submit("log", 0, "key", 0)
            runner.drain()
            runner.submit("elsewhere", 0, "key", 0)

    with pytest.raises(UnknownLogError):
        misuse()

    async def misuse_tasks() -> None:
        async with AsyncRunner(done.append).stopping_on_signals() as runner:
            runner.add_log("log")
            await runner.submit("log", 0, "key", 1)
            await runner.drain()
            await runner.stop()
            await runner.submit("log", 1, "key", 1)

    with pytest.raises(StoppedError):
        asyncio.run(misuse_tasks())
    assert done == [0, 1]


def test_signals_that_cannot_be_handled_are_refused_and_outside_the_main_thread_none_is_taken() -> None:
    for wrong in (signal.SIGKILL, 0, 10**6, "SIGTERM", None):
        with (
            pytest.raises(ArgumentError, match="signals"),
            ThreadRunner(print).stopping_on_signals(signal.SIGTERM, wrong),  # type: ignore[arg-type]
        ):
            raise AssertionError("it begins")
    listens: list[Any] = []

    def serve() -> None:
        with ThreadRunner(print).stopping_on_signals():
            listens.append(signal.getsignal(signal.SIGTERM))

    thread = Thread(target=serve)
    thread.start()
    thread.join(LONG_S)
    assert listens == [signal.SIG_DFL]


PROGRAM = """
import asyncio, sys, time
from keyshared.run import AsyncRunner, RunnerConfig, ThreadRunner

done, began, committed = [], [], []
config = RunnerConfig(workers=4, window=20, commit_every_ms=10**6)

def commit(log, position, token):
    committed.append(position)

def begin(message):
    began.append(message)
    if message == 10:
        print("ready", flush=True)

def handle(message):
    begin(message)
    time.sleep(0.02)
    done.append(message)

async def handle_later(message):
    begin(message)
    await asyncio.sleep(0.02)
    done.append(message)

def threads():
    with ThreadRunner(handle, commit=commit, config=config).stopping_on_signals() as runner:
        runner.add_log("log", start=0)
        for offset in range(10**6):
            runner.submit("log", offset, "key-%d" % (offset % 4), offset)

async def tasks():
    async with AsyncRunner(handle_later, commit=commit, config=config).stopping_on_signals() as runner:
        runner.add_log("log", start=0)
        await runner.submit_many("log", [(offset, "key-%d" % (offset % 4), offset) for offset in range(18)])
        await asyncio.Event().wait()

threads() if sys.argv[1] == "threads" else asyncio.run(tasks())
assert sorted(began) == sorted(done)
print("left", committed[-1] == min(set(range(10**6)) - set(done)), flush=True)
"""


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_process_that_is_asked_to_end_finishes_what_it_has_begun_and_commits_it(kind: str) -> None:
    source = str(Path(__file__).resolve().parents[2] / "src")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=LONG_S)
    assert (process.returncode, out) == (0, "left True\n")
