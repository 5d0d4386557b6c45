"""A handler that only returns something to be awaited has handled nothing."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from keyshared.run import AsyncRunner, NotAwaitedError, PartlyDone, Reject, RetryLater, RunnerConfig, ThreadRunner
from keyshared.run.executors import ForeignError, InExecutors

ONE = RunnerConfig(workers=1)


async def work(_: object) -> None:
    raise AssertionError("nobody awaits it")


def in_threads(handle: Any, commits: list[int], **arguments: Any) -> None:
    with ThreadRunner[int](
        handle, commit=lambda _, position, __: commits.append(position), config=ONE, **arguments
    ) as runner:
        runner.add_log("log", start=0)
        runner.submit("log", 0, "a", 0)


def in_tasks(handle: Any, commits: list[int], **arguments: Any) -> None:
    async def main() -> None:
        async with AsyncRunner[int](
            handle, commit=lambda _, position, __: commits.append(position), config=ONE, **arguments
        ) as runner:
            runner.add_log("log", start=0)
            await runner.submit("log", 0, "a", 0)

    asyncio.run(main())


@pytest.mark.parametrize("run", [in_threads, in_tasks])
@pytest.mark.parametrize("executor", [None, lambda: ThreadPoolExecutor(1)], ids=["plain", "executor"])
def test_a_coroutine_that_nobody_awaits_stops_the_runner_and_is_not_done(run: Any, executor: Any) -> None:
    commits: list[int] = []
    with pytest.raises(NotAwaitedError, match="returned a coroutine, which nobody awaits"):
        run(lambda message: work(message), commits, executor=executor)  # noqa: PLW0108  # what people write
    assert set(commits) <= {0}


def test_a_thread_awaits_no_coroutine_function_either() -> None:
    with pytest.raises(NotAwaitedError, match="give an AsyncRunner an `async def` function"):
        in_threads(work, [])


def test_a_future_is_named_by_its_type() -> None:
    loop = asyncio.new_event_loop()
    with pytest.raises(NotAwaitedError, match="returned a Future"):
        in_threads(lambda _: loop.create_future(), [])
    loop.close()


@pytest.mark.parametrize("run", [in_threads, in_tasks])
def test_any_other_answer_means_nothing(run: Any) -> None:
    commits: list[int] = []
    run(lambda _: "done", commits)
    assert 1 == commits[-1]


def give_what_cannot_travel(path: Path, _: int) -> object:
    with path.open("a") as runs:
        runs.write("run ")
    return lambda: path


@pytest.mark.parametrize("run", [in_threads, in_tasks])
def test_an_answer_need_not_travel_from_a_process(run: Any, tmp_path: Path) -> None:
    commits: list[int] = []
    run(partial(give_what_cannot_travel, tmp_path / "runs"), commits, executor=in_a_process)
    assert "run " == (tmp_path / "runs").read_text()
    assert 1 == commits[-1]


def test_a_coroutine_of_a_process_stops_the_runner() -> None:
    commits: list[int] = []
    with pytest.raises(NotAwaitedError, match="returned a coroutine, which nobody awaits"):
        in_threads(work, commits, executor=in_a_process)
    assert set(commits) <= {0}


class DeclinedError(Exception):
    """Is pickled and cannot be read again, as many errors: its arguments are not those that it takes."""

    def __init__(self, one: object, other: object) -> None:
        super().__init__(f"{one} and {other}")


class Unwanted(Reject):
    def __init__(self, one: object, other: object) -> None:
        super().__init__(f"{one} and {other}")


class Throttled(RetryLater):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(one * other)


class SomeAreDone(PartlyDone):
    def __init__(self) -> None:
        super().__init__(2, Throttled(2, 3))


ERRORS: dict[str, Callable[[], BaseException]] = {
    "plain": lambda: ValueError("no"),
    "declined": lambda: DeclinedError("this", "that"),
    "unwanted": lambda: Unwanted("this", "that"),
    "throttled": lambda: Throttled(2, 3),
    "partly": SomeAreDone,
}


def raise_one(name: str) -> None:
    error = ERRORS[name]()
    raise error


def test_an_error_comes_from_a_process_as_it_is_or_as_what_can_be_told_of_it() -> None:
    call = InExecutors(in_a_process, raise_one)
    found: dict[str, Any] = {}
    for name in ERRORS:
        with pytest.raises(Exception) as raised:  # noqa: PT011  # looked at below
            call(name)
        found[name] = raised.value
    call.close()
    told = {name: (type(error), str(error)) for name, error in found.items() if name not in {"throttled", "partly"}}
    assert told == {
        "plain": (ValueError, "no"),
        "declined": (ForeignError, "DeclinedError: this and that"),
        "unwanted": (Reject, "this and that"),
    }
    assert (6, 2, 6) == (found["throttled"].delay_ms, found["partly"].done, found["partly"].error.delay_ms)


def test_an_error_of_a_thread_is_the_same_object() -> None:
    error = DeclinedError("this", "that")

    def fail(_: object) -> None:
        raise error

    call = InExecutors(lambda: ThreadPoolExecutor(1), fail)
    with pytest.raises(DeclinedError) as raised:
        call(0)
    assert raised.value is error
    call.close()


def test_whoever_is_left_behind_finds_a_closed_executor_and_fails_nobody() -> None:
    async def main() -> BaseException | None:
        runner: AsyncRunner[str] = AsyncRunner(
            lambda _: None, executor=lambda: ThreadPoolExecutor(1), config=RunnerConfig(workers=1)
        )
        async with runner:
            runner.add_log("a")
            await runner.submit("a", 0, "k", "m")
            await asyncio.sleep(0)
            await runner.stop(0)
            await asyncio.sleep(0.02)
        return runner.error

    assert [None] * 5 == [asyncio.run(main()) for _ in range(5)]


def in_a_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


class Refuses(ThreadPoolExecutor):
    def __init__(self, error: Exception) -> None:
        super().__init__(1)
        self.error = error

    def submit(self, *_: Any, **__: Any) -> Any:
        raise self.error


def no_executor() -> ThreadPoolExecutor:
    raise OSError("no more processes")


@pytest.mark.parametrize("run", [in_threads, in_tasks])
@pytest.mark.parametrize(
    "executor",
    [
        no_executor,
        lambda: Refuses(OSError("no more processes")),
        lambda: Refuses(RuntimeError("no more processes")),
    ],
    ids=["none", "no process", "no thread"],
)
def test_an_executor_that_starts_nothing_stops_the_runner_and_costs_no_message(run: Any, executor: Any) -> None:
    letters: list[object] = []
    with pytest.raises((OSError, RuntimeError), match="no more processes"):
        run(lambda _: None, [], executor=executor, dead_letter=letters.append)
    assert [] == letters
