"""A handler that only returns something to be awaited has handled nothing."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
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
