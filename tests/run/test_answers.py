"""A handler that only returns something to be awaited has handled nothing."""

import asyncio
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from keyshared.run import AsyncRunner, NotAwaitedError, RunnerConfig, ThreadRunner

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
