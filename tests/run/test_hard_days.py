"""Days on which hosts that were written by hand ran a message beside itself, lost a worker, or hung."""

import asyncio
import time
from threading import Thread
from threading import enumerate as threads_alive
from typing import Any

import pytest
from tests.run.watch import Message, Watch

from keyshared import RetryPolicy
from keyshared.errors import KeyTypeError
from keyshared.run import AsyncRunner, Reject, RunnerConfig, StoppedError, ThreadRunner

LONG_S = 20  # ends a test that hangs; nothing waits for it otherwise
MANY = [Message(n, f"key-{n}") for n in range(60)]


@pytest.mark.parametrize("workers", [1, 4])
def test_what_waits_for_a_thread_for_longer_than_the_timeout_runs_once(workers: int) -> None:
    watch = Watch()

    def handle(message: Message) -> None:
        watch.begin(message)
        time.sleep(0.002)
        watch.end(message)

    # the last message waits for a worker several times as long as a handler may run
    config = RunnerConfig(workers=workers, timeout_ms=10, retry=RetryPolicy(max_redeliveries=0))
    with ThreadRunner(handle, config=config) as runner:
        runner.add_log("log")
        runner.submit_many("log", [(message.offset, message.key, message) for message in MANY])
    watch.check()
    assert dict(watch.runs) == {message.offset: 1 for message in MANY}
    assert runner.stats().failed == 0


def test_what_waits_for_a_task_for_longer_than_the_timeout_runs_once() -> None:
    watch = Watch()

    async def handle(message: Message) -> None:
        watch.begin(message)
        for _ in range(3):
            await asyncio.sleep(0)
        watch.end(message)

    async def serve() -> AsyncRunner[Message]:
        config = RunnerConfig(workers=1, timeout_ms=10_000, retry=RetryPolicy(max_redeliveries=0))
        async with AsyncRunner(handle, config=config) as runner:
            runner.add_log("log")
            await runner.submit_many("log", [(message.offset, message.key, message) for message in MANY])
        return runner

    runner = asyncio.run(serve())
    watch.check()
    assert dict(watch.runs) == {message.offset: 1 for message in MANY}
    assert runner.stats().failed == 0


def test_cancelled_handlers_cost_no_worker() -> None:
    """As many as there are workers, each once: afterwards everything is done, and committed."""
    commits: list[int] = []
    runs: list[int] = []

    async def handle(message: int) -> None:
        runs.append(message)
        if message < 4 and runs.count(message) == 1:
            raise asyncio.CancelledError  # as a handler sees whose inner scope was cancelled

    async def serve() -> None:
        config = RunnerConfig(workers=4, window=10, retry=RetryPolicy(max_redeliveries=1, base_delay_ms=1))
        async with AsyncRunner(
            handle, commit=lambda _, position, __: commits.append(position), config=config
        ) as runner:
            runner.add_log("log")
            for offset in range(50):
                await runner.submit("log", offset, f"key-{offset}", offset)

    asyncio.run(asyncio.wait_for(serve(), LONG_S))
    assert sorted(runs) == sorted([*range(50), *range(4)])
    assert commits[-1] == 50


def test_a_key_that_is_no_key_ends_the_program_with_its_error_and_the_last_commit() -> None:
    before = set(threads_alive())
    commits: list[int] = []

    def serve() -> None:
        with ThreadRunner(print_nothing, commit=lambda _, position, __: commits.append(position)) as runner:
            runner.add_log("log")
            rows: list[tuple[int, Any]] = [(0, "a"), (1, 5), (2, "c")]
            for offset, key in rows:
                runner.submit("log", offset, key, offset)
                assert runner.drain()

    with pytest.raises(KeyTypeError):
        serve()
    assert commits[-1] == 1, "what came before it is done, and the next start begins with it"
    assert [] == left_over(before)


def test_a_commit_that_fails_ends_the_program_with_its_error() -> None:
    before = set(threads_alive())

    def commit(_: str, position: int, __: str) -> None:
        if position > 20:
            raise OSError("commit failed")

    raised: list[BaseException] = []
    stopped: list[ThreadRunner[int]] = []

    def serve() -> None:
        config = RunnerConfig(window=20, call_attempts=1)
        try:
            with ThreadRunner(print_nothing, commit=commit, config=config) as runner:
                stopped.append(runner)
                runner.add_log("log")
                for offset in range(200):
                    runner.submit("log", offset, f"key-{offset}", offset)
        except (OSError, StoppedError) as error:
            raised.append(error)

    program = Thread(target=serve, daemon=True)
    program.start()
    program.join(LONG_S)
    assert not program.is_alive()
    assert [repr(error) for error in raised] == ["OSError('commit failed')"]
    assert stopped[0].error is raised[0]
    assert [] == left_over(before)


def print_nothing(_: int) -> None: ...


def left_over(before: set[Thread]) -> list[Thread]:
    return [thread for thread in set(threads_alive()) - before if thread.name == "keyshared"]


def test_a_runner_that_has_stopped_by_itself_leaves_no_thread_behind() -> None:
    """Nobody calls `stop`: an error has ended it, and the program goes on."""
    before = set(threads_alive())

    def fail(_: int) -> None:
        raise Reject("bad")

    runner = ThreadRunner(fail, commit=lambda *_: None, load=lambda *_: {})
    runner.add_log("log")
    runner.submit("log", 0, "key", 0)
    with pytest.raises(Reject):
        runner.drain()
    for thread in left_over(before):
        thread.join(LONG_S)
    assert [] == left_over(before)
