"""Who may call a runner, and when: hooks, other threads, other loops, and after its end."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread, active_count
from time import monotonic, sleep
from typing import Any
from weakref import ref

import pytest

from keyshared import Poison
from keyshared.errors import ArgumentError
from keyshared.run import (
    AsyncRunner,
    CalledFromHookError,
    EventLoopError,
    Hooks,
    Reject,
    RunnerConfig,
    StoppedError,
    ThreadRunner,
    UnknownLogError,
)
from keyshared.run.tasks import ask_loop

LONG_S = 30


async def nothing(_: object) -> None: ...


ONCE = RunnerConfig(call_attempts=1)


def unstorable(*_: object) -> None:
    raise OSError("the store is away")


def read_one(runner: ThreadRunner[int]) -> None:
    with runner:
        runner.add_log("log", start=0)
        runner.submit("log", 0, "key", 0)


QUERIES: dict[str, Callable[[Any], object]] = {
    "stats": lambda runner: runner.stats(),
    "metrics": lambda runner: runner.metrics(),
    "room": lambda runner: runner.room("log"),
    "stop": lambda runner: runner.stop(),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_hook_that_calls_its_threads_stops_them_and_hangs_nothing(name: str) -> None:
    runner: ThreadRunner[int]
    hooks = Hooks(ended=lambda *_: QUERIES[name](runner))
    runner = ThreadRunner(lambda _: None, hooks=hooks)
    with pytest.raises(CalledFromHookError, match="called from one of its hooks"):
        read_one(runner)
    assert runner.stats().done == 1


def test_another_thread_may_call_the_runner_while_a_hook_goes_on() -> None:
    asked: list[Thread] = []

    def ended(*_: object) -> None:
        asked.append(Thread(target=runner.stats))
        asked[0].start()  # it waits until the hook has returned

    runner = ThreadRunner[int](lambda _: None, hooks=Hooks(ended=ended))
    with runner:
        runner.add_log("log")
        runner.submit("log", 0, "key", 0)
    asked[0].join(LONG_S)
    assert not asked[0].is_alive()


def in_another_thread(call: Callable[[], object]) -> object:
    """Return what it returns there, or raise what it raises."""
    said: list[object] = []

    def run() -> None:
        try:
            said.append(call())
        except BaseException as error:  # noqa: BLE001 - raised below
            said.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join(LONG_S)
    (answer,) = said
    if isinstance(answer, BaseException):
        raise answer
    return answer


CHANGES: dict[str, Callable[[AsyncRunner[int]], object]] = {
    "add_log": lambda runner: runner.add_log("other"),
    "lose_log": lambda runner: runner.lose_log("log"),
    "try_submit": lambda runner: runner.try_submit("log", 1, "key", 1),
    "submit": lambda runner: asyncio.run(runner.submit("log", 1, "key", 1)),
    "wait_for_room": lambda runner: asyncio.run(runner.wait_for_room("log")),
    "remove_log": lambda runner: asyncio.run(runner.remove_log("log")),
    "drain": lambda runner: asyncio.run(runner.drain()),
    "stop": lambda runner: asyncio.run(runner.stop()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_tasks_are_changed_in_their_own_loop_only(name: str) -> None:
    async def main() -> None:
        async with AsyncRunner[int](nothing) as runner:
            runner.add_log("log")
            with pytest.raises(EventLoopError, match="changed in its own event loop only"):
                await asyncio.to_thread(in_another_thread, lambda: CHANGES[name](runner))
            await runner.submit("log", 0, "key", 0)
        assert (runner.error, runner.stats().done) == (None, 1)

    asyncio.run(main())


def test_an_operator_may_look_and_act_from_any_thread() -> None:
    async def handle(message: str) -> None:
        raise Reject(message)

    async def main() -> None:
        runner = AsyncRunner[str](handle, config=RunnerConfig(poison=Poison.BLOCK))
        runner.add_log("log", start=0)
        await runner.submit("log", 0, "key", "no such customer")
        await runner.drain()
        (stuck,) = await asyncio.to_thread(runner.stuck)
        assert (stuck.offset, stuck.key) == (0, b"key")
        assert "no such customer" in stuck.what
        assert await asyncio.to_thread(runner.park, "log", 0)
        assert await runner.drain()
        await runner.stop()
        assert await asyncio.to_thread(runner.stuck) == []

    asyncio.run(main())


def test_outside_of_a_loop_tasks_take_no_log() -> None:
    runner = AsyncRunner[int](nothing)
    with pytest.raises(EventLoopError):
        runner.add_log("log")
    assert runner.stats().logs == {}


def test_figures_are_read_by_any_thread_while_the_loop_runs_and_after_its_end() -> None:
    async def main() -> AsyncRunner[int]:
        async with AsyncRunner[int](nothing, config=RunnerConfig(measure=True)) as runner:
            runner.add_log("log")
            for offset in range(50):
                await runner.submit("log", offset, None, offset)
                rows = await asyncio.to_thread(runner.metrics)
                assert any(name == "keyshared_outstanding" for name, _, _ in rows), rows
        return runner

    runner = asyncio.run(main())
    assert runner.error is None
    assert ("keyshared_handler_ends_total", (("how", "done"),), 50) in runner.metrics()


def test_a_loop_that_ends_before_it_answers_is_not_waited_for() -> None:
    loop = asyncio.new_event_loop()
    assert ask_loop(loop, lambda: "there", lambda: "here") == "here"  # it does not run
    loop.run_until_complete(asyncio.sleep(0))  # and nobody waits for its answer any more
    loop.close()
    assert ask_loop(loop, lambda: "there", lambda: "here") == "here"


def test_what_is_asked_of_a_loop_may_raise() -> None:
    def fail() -> None:
        raise ArgumentError("busiest", -1, "be more")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ArgumentError):
            await asyncio.to_thread(ask_loop, loop, fail, fail)

    asyncio.run(main())


AFTER: dict[str, Callable[[ThreadRunner[int]], object]] = {
    "remove_log": lambda runner: runner.remove_log("log"),
    "lose_log": lambda runner: runner.lose_log("log"),
    "unblock": lambda runner: runner.unblock("log", "key"),
    "why_blocked": lambda runner: runner.why_blocked("log", 0),
    "submit": lambda runner: runner.submit("log", 1, "key", 1),
    "submit_many": lambda runner: runner.submit_many("log", []),
    "add_log": lambda runner: runner.add_log("log"),
    "room": lambda runner: runner.room("log"),
}


@pytest.mark.parametrize("name", AFTER)
def test_whoever_calls_after_the_end_hears_why_it_has_ended(name: str) -> None:
    stopped = ThreadRunner[int](lambda _: None)
    failed = ThreadRunner[int](lambda _: None, commit=unstorable, config=ONCE)
    with pytest.raises(OSError, match="the store is away"):
        read_one(failed)
    with pytest.raises(OSError, match="the store is away"):
        AFTER[name](failed)
    with stopped:
        stopped.add_log("log")
    with pytest.raises(StoppedError):
        AFTER[name](stopped)


def test_a_log_that_is_not_there_is_named_while_the_runner_works() -> None:
    with ThreadRunner[int](lambda _: None) as runner, pytest.raises(UnknownLogError, match="there is no log 'log'"):
        runner.why_blocked("log", 0)


@pytest.mark.parametrize("row", [(0, "key"), 5, "a text"])
def test_rows_of_another_shape_are_named_and_what_stands_before_them_is_taken(row: Any) -> None:
    with ThreadRunner[int](lambda _: None) as runner:
        runner.add_log("log")
        with pytest.raises(ArgumentError, match=r"messages is .*; it must be tuples of offset, key and message"):
            runner.submit_many("log", [(0, "key", 0), row])
    assert runner.stats().done == 1


@pytest.mark.parametrize("threads_that_start", range(4))
def test_a_runner_that_cannot_start_a_thread_takes_nothing(
    threads_that_start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Thread] = []
    start = Thread.start

    def start_some(thread: Thread) -> None:
        if len(started) == threads_that_start:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    runner = ThreadRunner[int](lambda _: None, commit=print, config=RunnerConfig(workers=2))
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", start_some)
        with pytest.raises(RuntimeError, match="can't start"):
            runner.add_log("log")
    for call in (AFTER["add_log"], AFTER["submit"], AFTER["room"], lambda runner: runner.stop()):
        with pytest.raises(RuntimeError, match="can't start"):
            call(runner)
    for thread in started:
        thread.join(LONG_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("calls_stop", ["a thread", "a handler"])
def test_a_block_whose_runner_is_stopped_while_it_drains_ends_without_an_error(calls_stop: str) -> None:
    def handle(_: int) -> None:
        if calls_stop == "a handler":
            runner.stop(0)
        else:
            Thread(target=runner.stop).start()

    with ThreadRunner(handle, config=RunnerConfig(workers=1)) as runner:
        runner.add_log("log")
        runner.submit_many("log", [(offset, "key", offset) for offset in range(5)])
    assert runner.error is None


def test_a_block_of_tasks_that_are_stopped_while_it_drains_ends_without_an_error() -> None:
    async def main() -> None:
        async def handle(_: int) -> None:
            stops.append(asyncio.create_task(runner.stop(0)))
            await asyncio.sleep(0.01)

        stops: list[Any] = []
        async with AsyncRunner(handle, config=RunnerConfig(workers=1)) as runner:
            runner.add_log("log")
            await runner.submit_many("log", [(offset, "key", offset) for offset in range(5)])
        assert runner.error is None
        await asyncio.gather(*stops)

    asyncio.run(main())


def test_tasks_that_an_error_has_stopped_leave_no_thread_behind() -> None:
    before = active_count()

    async def main() -> None:
        runner = AsyncRunner[int](lambda _: None, commit=unstorable, config=ONCE)
        runner.add_log("log", start=0)
        await runner.submit("log", 0, "key", 0)
        with pytest.raises(OSError, match="the store is away"):
            await runner.drain()  # and nobody calls `stop`
        for _ in range(1_000):
            await asyncio.sleep(0.002)
            if active_count() == before:
                break
        assert active_count() == before

    asyncio.run(main())


class Payload:
    """Can be referred to weakly."""


@pytest.mark.parametrize("end", ["returns nothing", "returns its message", "raises"])
def test_a_thread_that_waits_keeps_no_message_alive(end: str) -> None:
    def handle(message: Payload) -> Payload | None:
        if end == "raises":
            raise Reject("no")
        return message if end == "returns its message" else None

    messages = [Payload() for _ in range(20)]
    left = [ref(message) for message in messages]
    runner = ThreadRunner(handle, dead_letter=lambda _: None, config=RunnerConfig(workers=4))
    with runner:
        runner.add_log("log")
        while messages:
            runner.submit("log", len(left) - len(messages), None, messages.pop())
        assert runner.drain()
        assert wait_for(lambda: not any(each() for each in left))


def wait_for(is_so: Callable[[], bool]) -> bool:
    until = monotonic() + LONG_S
    while not is_so() and monotonic() < until:
        sleep(0.005)
    return is_so()


@pytest.mark.parametrize("kind", [ThreadRunner, AsyncRunner])
def test_a_log_whose_last_commit_has_failed_has_not_left_in_order(kind: Any) -> None:
    begun = Event()

    def fail(*_: object) -> None:
        if begun.is_set():
            raise OSError("the store is away")

    async def main() -> None:

        def handle(_: int) -> None:
            begun.set()
            sleep(0.05)

        runner = kind(handle, commit=fail, config=ONCE)
        runner.add_log("log", start=0)
        runner.add_log("another", start=0)
        given = runner.submit("log", 0, "key", 0)
        if given is not None:
            await given
        await asyncio.to_thread(begun.wait, LONG_S)
        with pytest.raises(OSError, match="the store is away"):  # noqa: PT012  # a coroutine has to be awaited
            left = runner.remove_log("log")
            assert left is True or await left
        with pytest.raises(OSError, match="the store is away"):  # as above
            await runner.stop()

    asyncio.run(main())


def test_threads_that_read_figures_take_turns_when_the_loop_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[AsyncRunner[int]] = []
    reading, most = 0, 0

    async def main() -> None:
        made.append(AsyncRunner(asyncio.sleep))
        made[0].add_log("log", start=0)

    def metrics(**_: object) -> list[object]:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        sleep(0.005)
        reading -= 1
        return []

    asyncio.run(main())
    monkeypatch.setattr(made[0]._engine, "metrics", metrics)
    with ThreadPoolExecutor(4) as pool:
        assert [told.result() for told in [pool.submit(made[0].metrics) for _ in range(8)]] == [[]] * 8
    assert most == 1
