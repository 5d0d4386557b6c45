"""The runner on asyncio: what its handlers see, what is committed, and that every failure is told."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from tests.run.watch import Message, Watch, mixed_log

from keyshared import Poison, RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason
from keyshared.errors import ArgumentError, OffsetOrderError
from keyshared.run import (
    AsyncRunner,
    DeadLetter,
    Hooks,
    Reject,
    RetryLater,
    RunnerConfig,
    StoppedError,
    UnknownLogError,
)

LONG_S = 20  # ends a test that hangs; nothing waits for it otherwise
FAST = RetryPolicy(max_redeliveries=1, base_delay_ms=1)


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
def test_every_key_is_worked_on_in_order_and_everything_is_done_or_given_up(kind: str) -> None:
    watch = Watch()
    letters: list[DeadLetter[Message]] = []
    commits: list[tuple[str, int]] = []
    log = [message for message in mixed_log(400) if kind == "thread" or message.ends != "exit once"]

    async def handle(message: Message) -> None:
        watch.begin(message)
        await asyncio.sleep(0.0005 * (message.offset % 5))
        watch.end(message)

    def handle_in_thread(message: Message) -> None:
        watch.begin(message)
        time.sleep(0.0005 * (message.offset % 5))
        watch.end(message)

    async def commit(name: str, position: int, _: str) -> None:
        await asyncio.sleep(0)
        commits.append((name, position))

    async def serve() -> None:
        config = RunnerConfig(workers=8, window=32, max_loaded_per_key=4, retry=FAST, commit_every_ms=1)
        handler: Any = handle if kind == "coroutine" else handle_in_thread
        async with AsyncRunner(handler, commit=commit, dead_letter=letters.append, config=config) as runner:
            runner.add_log("log")
            for message in log:
                await runner.submit("log", message.offset, message.key, message)

    asyncio.run(serve())

    watch.check()
    given_up = [message.offset for message in log if message.ends in {"reject", "fail"}]
    assert sorted(letter.offset for letter in letters) == given_up
    assert sorted([*watch.done, *given_up]) == [message.offset for message in log]
    assert commits == sorted(commits)
    assert commits[-1] == ("log", 400)
    assert watch.peak > 1, "nothing ran at the same time, so nothing was shown"


def test_a_coroutine_that_is_overdue_is_cancelled_and_nothing_of_its_key_runs_before_it_has_ended() -> None:
    watch = Watch()
    letters: list[DeadLetter[Message]] = []
    overdue: list[int] = []
    ends: list[tuple[object, ...]] = []

    async def handle(message: Message) -> None:
        watch.begin(message)
        try:
            if message.offset == 0:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)  # takes its time to end
            watch.busy.discard(message.key)

    async def serve() -> None:
        hooks = Hooks(
            overdue=lambda _, offset, __: overdue.append(offset),
            ended=lambda _, offsets, raised, __: ends.append((*offsets, type(raised).__name__)),
        )
        config = RunnerConfig(workers=4, timeout_ms=500, retry=FAST)
        async with AsyncRunner(handle, dead_letter=letters.append, hooks=hooks, config=config) as runner:
            runner.add_log("log")
            await runner.submit_many("log", [(n, "key", Message(n, "key")) for n in range(4)])

    asyncio.run(serve())
    watch.check()
    assert watch.starts["key"] == [0, 0, 1, 2, 3]
    assert overdue == [0, 0]
    assert ends[:3] == [(0, "TimeoutError"), (0, "TimeoutError"), (1, "NoneType")], "as the letter has it"
    (letter,) = letters
    assert isinstance(letter.error, TimeoutError)
    assert letter.failures == 2


def test_a_coroutine_that_is_overdue_may_take_longer_to_clean_up_than_it_may_run() -> None:
    told: list[str] = []

    async def handle(message: str) -> None:
        try:
            await asyncio.sleep(LONG_S)
        finally:
            told.append(f"{message} begins to clean up")
            await asyncio.sleep(0.1)
            told.append(f"{message} is clean")

    async def main() -> None:
        config = RunnerConfig(timeout_ms=20, retry=RetryPolicy(max_redeliveries=0))
        runner = AsyncRunner(handle, dead_letter=lambda each: told.append(type(each.error).__name__), config=config)
        async with runner:
            runner.add_log("log")
            await runner.submit("log", 0, "key", "a message")
        assert runner.stats().overdue > 1

    asyncio.run(main())
    assert told == ["a message begins to clean up", "a message is clean", "TimeoutError"]


def test_a_coroutine_that_swallows_its_cancellation_after_its_timeout_has_failed() -> None:
    tries: list[int] = []

    async def handle(message: int) -> None:
        tries.append(message)
        if len(tries) == 1:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(LONG_S)

    async def main() -> None:
        config = RunnerConfig(timeout_ms=20, retry=RetryPolicy(base_delay_ms=1))
        async with AsyncRunner(handle, config=config) as runner:
            runner.add_log("log")
            await runner.submit("log", 0, "key", 0)
        assert (runner.stats().failed, runner.stats().done) == (1, 1)

    asyncio.run(main())
    assert tries == [0, 0]


def test_a_handler_that_is_cancelled_by_its_own_program_has_failed() -> None:
    ends: list[str] = []
    hooks = Hooks(ended=lambda _, __, raised, ___: ends.append(type(raised).__name__))
    runs = 0

    async def handle(_: str) -> None:
        nonlocal runs
        runs += 1
        if runs < 4:
            raise asyncio.CancelledError  # as a handler sees whose inner scope was cancelled

    async def serve() -> None:
        retry = RetryPolicy(max_redeliveries=3, base_delay_ms=1)
        async with AsyncRunner(handle, hooks=hooks, config=RunnerConfig(retry=retry)) as runner:
            runner.add_log("log")
            await runner.submit("log", 0, "key", "message")

    asyncio.run(serve())
    assert ends == ["CancelledError"] * 3 + ["NoneType"]


@pytest.mark.parametrize("what", ["commit", "dead_letter", "load", "settled", "hook"])
def test_whatever_fails_stops_the_runner_with_that_error(what: str) -> None:
    async def fail(*_: object) -> Any:
        raise OSError(what)

    def fail_now(*_: object) -> None:
        raise OSError(what)

    async def handle(message: int) -> None:
        if what == "dead_letter" and message == 3:
            raise Reject("bad")

    async def serve() -> None:
        calls: dict[str, Any] = {name: fail for name in ("commit", "dead_letter", "load", "settled") if name == what}
        hooks = Hooks(ended=fail_now) if what == "hook" else None
        config = RunnerConfig(workers=2, call_attempts=1, max_loaded_per_key=1, window=8)
        runner = AsyncRunner(handle, hooks=hooks, config=config, **calls)
        runner.add_log("log")

        async def submit_all() -> None:
            for offset in range(10_000):
                await runner.submit("log", offset, "key", offset)
                await asyncio.sleep(0)

        with pytest.raises(OSError, match=what):
            await submit_all()
        for call in (runner.stop, runner.drain, partial(runner.submit, "log", 10_000, "key", 0)):
            with pytest.raises(OSError, match=what):
                await call()

    asyncio.run(serve())


def test_messages_beyond_the_bound_of_their_key_are_read_again() -> None:
    done: list[str] = []
    loads: list[int] = []

    async def handle(message: str) -> None:
        done.append(message)

    async def load(_: str, offsets: Sequence[int]) -> Mapping[int, str | None]:
        loads.extend(offsets)
        return {offset: f"message {offset}" for offset in offsets}

    async def serve() -> None:
        async with AsyncRunner(handle, load=load, config=RunnerConfig(workers=2, max_loaded_per_key=2)) as runner:
            runner.add_log("log")
            for offset in range(12):
                await runner.submit("log", offset, "hot", f"message {offset}")

    asyncio.run(serve())
    assert done == [f"message {offset}" for offset in range(12)]
    assert loads == list(range(2, 12))


def test_who_submits_waits_for_room() -> None:
    async def serve() -> None:
        release = asyncio.Event()

        async def handle(_: int) -> None:
            await release.wait()

        runner = AsyncRunner(handle, config=RunnerConfig(workers=1, window=4))
        runner.add_log("log")
        assert [runner.try_submit("log", offset, "key", offset) for offset in range(5)] == [True] * 4 + [False]
        waiting = asyncio.create_task(runner.submit("log", 4, "key", 4))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        assert not await runner.drain(within_ms=1)
        release.set()
        await waiting
        with pytest.raises(OffsetOrderError):
            await runner.submit("log", 4, "key", 4)
        assert await runner.drain()
        assert await runner.stop()
        with pytest.raises(StoppedError):
            await runner.submit("log", 5, "key", 5)

    asyncio.run(serve())


def test_a_log_that_is_removed_cancels_what_does_not_end_in_time_and_commits_the_rest() -> None:
    commits: list[tuple[int, str]] = []
    cancelled: list[str] = []
    fast = asyncio.Event()

    async def handle(message: str) -> None:
        if message == "fast":
            fast.set()
        if message == "slow":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(message)
                raise

    async def serve() -> None:
        runner = AsyncRunner(handle, commit=lambda _, *stored: commits.append(stored))
        runner.add_log("log")
        await runner.submit_many("log", [(0, "a", "slow"), (1, "b", "fast"), (2, "a", "behind")])
        await fast.wait()
        await runner.remove_log("log", within_ms=0)
        with pytest.raises(UnknownLogError):
            runner.room("log")
        runner.add_log("log", resume_from=commits[-1][1])
        await runner.submit_many("log", [(0, "a", "quick"), (1, "b", "again"), (2, "a", "behind")])
        assert await runner.drain()
        assert await runner.stop()
        assert runner.stats().done == 3, "offset 1 was done in the first stay, and its token said so"

    asyncio.run(serve())
    assert cancelled == ["slow"]
    assert [position for position, _ in commits][-1] == 3


def test_a_handler_of_a_lost_log_is_cancelled_and_its_key_waits_for_its_end() -> None:
    watch = Watch()

    async def serve() -> None:
        begun, ends = asyncio.Event(), asyncio.Event()

        async def handle(message: Message) -> None:
            watch.begin(message)
            try:
                if not begun.is_set():
                    begun.set()
                    await asyncio.Event().wait()
            finally:
                await ends.wait()
                watch.busy.discard(message.key)

        runner = AsyncRunner(handle)
        runner.add_log("log")
        await runner.submit("log", 0, "key", Message(0, "key"))
        await begun.wait()
        runner.lose_log("log")
        runner.add_log("log")
        await runner.submit("log", 0, "key", Message(0, "key"))
        while not runner.stats().held:  # noqa: ASYNC110  # nothing tells when it is held
            await asyncio.sleep(0)
        assert runner.why_blocked("log", 0) == Blocking(BlockReason.RETRY_WAIT)
        ends.set()
        assert await runner.drain()
        assert await runner.stop()
        assert runner.stats().late == 1

    asyncio.run(serve())
    watch.check()
    assert watch.runs[0] == 2


def test_a_blocked_key_ends_a_drain_and_an_operator_lets_it_go_on() -> None:
    is_fixed = False

    async def handle(_: str) -> None:
        if not is_fixed:
            raise Reject("bad")

    async def serve() -> None:
        nonlocal is_fixed
        runner = AsyncRunner(handle, config=RunnerConfig(poison=Poison.BLOCK))
        runner.add_log("log")
        await runner.submit("log", 0, "key", "bad")
        assert not await runner.drain()
        is_fixed = True
        runner.unblock("log", "key")
        assert await runner.drain()
        assert await runner.stop()

    asyncio.run(serve())


def test_an_error_in_the_block_stops_without_waiting_for_the_rest() -> None:
    async def handle(_: int) -> None: ...

    async def serve() -> None:
        async with AsyncRunner(handle) as runner:
            runner.add_log("log")
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        asyncio.run(serve())


def test_a_coroutine_function_cannot_run_in_an_executor() -> None:
    async def handle(_: int) -> None: ...

    with pytest.raises(ArgumentError, match="handle"):
        AsyncRunner(handle, executor=lambda: None)  # type: ignore[arg-type, return-value]


def test_a_commit_that_is_asked_for_in_the_turn_in_which_its_log_is_lost_is_not_made() -> None:
    commits: list[int] = []

    async def serve() -> None:
        runner = AsyncRunner[int](later, commit=lambda _, position, __: commits.append(position))
        runner.add_log("log")
        await runner.submit("log", 0, "key", 0)
        runner._step()  # it asks for the commit of the beginning, which is made in the next turn of the loop
        assert runner._calling
        runner.lose_log("log")
        await runner.stop()

    asyncio.run(serve())
    assert commits == []


async def later(_: int) -> None:
    await asyncio.sleep(0)


def test_a_task_that_works_on_carries_no_cancellation_to_another_message() -> None:
    done: list[int] = []
    tasks: set[object] = set()

    async def handle(message: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        if message == 3:
            task.cancel()  # and it returns before that is raised
        else:
            await asyncio.sleep(0)
        done.append(message)

    async def serve() -> None:
        async with AsyncRunner(handle, config=RunnerConfig(workers=1)) as runner:
            runner.add_log("log")
            await runner.submit_many("log", [(offset, f"key-{offset}", offset) for offset in range(10)])
        assert runner.stats().released == 0

    asyncio.run(serve())
    assert done == list(range(10))
    assert 1 < len(tasks) < 10, "it has ended, and another one has worked on"


def test_what_waits_for_a_task_when_its_log_leaves_is_taken_back() -> None:
    begun: list[int] = []
    commits: list[int] = []

    async def handle(message: int) -> None:
        begun.append(message)
        if len(begun) == 2:
            both.set()
        await release.wait()

    both, release = asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        async with AsyncRunner(
            handle, commit=lambda _, position, __: commits.append(position), config=RunnerConfig(workers=2)
        ) as runner:
            runner.add_log("log", start=0)
            await runner.submit_many("log", [(offset, f"key-{offset}", offset) for offset in range(8)])
            await both.wait()
            assert runner.stats().running == 4, "two are on the way"
            leaving = asyncio.create_task(runner.remove_log("log"))
            await asyncio.sleep(0)
            release.set()
            assert await leaving
        assert runner.stats().released == 2

    asyncio.run(serve())
    assert (begun, commits[-1]) == ([0, 1], 2)


class ExitError(BaseException):
    """What is no `Exception`, and ends no loop."""


@pytest.mark.parametrize("what", ["ended", "committed"])
def test_a_hook_that_wants_out_ends_the_block_with_that(what: str) -> None:
    def leave(*_: object) -> None:
        raise ExitError

    async def serve() -> None:
        hooks = Hooks(**{what: leave})
        async with AsyncRunner[int](no_work, commit=lambda *_: None, hooks=hooks) as runner:
            runner.add_log("log", start=0)
            await runner.submit_many("log", [(n, "key", n) for n in range(3)])

    with pytest.raises(ExitError):
        asyncio.run(asyncio.wait_for(serve(), LONG_S))


async def no_work(_: int) -> None: ...


def test_a_time_that_is_too_far_for_a_clock_ends_nothing() -> None:
    far = (1 << 62) - 1

    async def serve() -> None:
        ran = [asyncio.Event(), asyncio.Event()]

        async def handle(message: int) -> None:
            ran[message].set()
            if message == 0:
                raise RetryLater(far)

        runner = AsyncRunner(handle)
        runner.add_log("log", start=0)
        await runner.submit("log", 0, "a", 0)
        await ran[0].wait()
        draining = asyncio.create_task(runner.drain(far))
        await runner.submit("log", 1, "b", 1)
        await ran[1].wait()
        runner.lose_log("log")
        assert await draining
        assert await runner.stop(far)

    asyncio.run(asyncio.wait_for(serve(), LONG_S))


def test_a_commit_waits_for_that_of_an_earlier_stay_of_its_log() -> None:
    begun: list[int] = []
    store: list[int] = []
    go_on = asyncio.Event()

    async def commit(_: str, position: int, __: str) -> None:
        begun.append(position)
        if begun.count(1) == 1 and position == 1:
            await go_on.wait()
        store.append(position)

    async def main() -> None:
        async with AsyncRunner(asyncio.sleep, commit=commit, config=RunnerConfig(commit_every_ms=1)) as runner:
            runner.add_log("log", start=0)
            await runner.submit("log", 0, None, 0)
            await until(lambda: runner.stats().done == 1)
            await asyncio.sleep(0.01)
            runner.lose_log("log")
            runner.add_log("log", start=0)
            for offset in range(3):
                await runner.submit("log", offset, None, 0)
            await asyncio.sleep(0.01)
            assert {*store} == {0}
            go_on.set()
            await runner.drain()
            assert next(position for position in store if position) == 1
            assert store[-1] == 3

    asyncio.run(main())


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not is_so():  # noqa: ASYNC110  # figures wake nobody
            await asyncio.sleep(0.001)
