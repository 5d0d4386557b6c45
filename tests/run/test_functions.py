"""A handler that only returns something to be awaited has handled nothing."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest

from keyshared.errors import ArgumentError, ConfigError
from keyshared.run import (
    AsyncRunner,
    Hooks,
    NotAwaitedError,
    PartlyDone,
    Reject,
    RetryLater,
    RunnerConfig,
    ThreadRunner,
)
from keyshared.run.workers import ForeignError, InExecutors

ONE = RunnerConfig(workers=1)


async def work(_: object) -> None:
    raise AssertionError("it is never awaited")


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
    with pytest.raises(NotAwaitedError, match="returned a coroutine, which is never awaited"):
        run(lambda message: work(message), commits, executor=executor)  # noqa: PLW0108  # what people write
    assert set(commits) <= {0}


def numbers(_: object) -> Iterator[int]:
    raise AssertionError("nobody runs it")
    yield 1


async def later_numbers(_: object) -> AsyncIterator[int]:
    raise AssertionError("nobody runs it")
    yield 1


class Worker:
    async def __call__(self, _: object) -> None:
        raise AssertionError("it is never awaited")


@pytest.mark.parametrize("function", [work, partial(work), Worker()])
def test_a_thread_takes_no_coroutine_function(function: Any) -> None:
    with pytest.raises(ArgumentError, match=r"handle is .*; it must be no coroutine function; it is not awaited here"):
        ThreadRunner(function)
    for name in ("commit", "dead_letter", "load", "settled", "executor"):
        with pytest.raises(ArgumentError, match=f"^{name} is .*; it must be no coroutine function"):
            ThreadRunner(print, **{name: function})
    with pytest.raises(ConfigError, match=r"^ended is .*; it must be no coroutine function"):
        Hooks(ended=function)


@pytest.mark.parametrize("function", [numbers, later_numbers])
@pytest.mark.parametrize("runner", [ThreadRunner, AsyncRunner])
def test_no_runner_takes_a_function_that_yields(runner: Any, function: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"handle is .*; it must be a function that does its work when it is called"
    ):
        runner(function)
    with pytest.raises(ArgumentError, match=r"commit is .*; it must be a function that does its work"):
        runner(print, commit=function)


def pending(_: object) -> Future[None]:
    return Future()


UNDONE = {
    "a coroutine": lambda *_: work(0),
    "a generator": lambda *_: numbers(0),
    "an async generator": lambda *_: later_numbers(0),
    "a future": pending,
}


@pytest.mark.parametrize("run", [in_threads, in_tasks])
@pytest.mark.parametrize("name", UNDONE)
def test_whatever_a_handler_leaves_to_be_done_stops_the_runner(run: Any, name: str) -> None:
    commits: list[int] = []
    with pytest.raises(NotAwaitedError, match=r"handle returned a .*, which is never awaited or run; return when"):
        run(UNDONE[name], commits)
    assert set(commits) <= {0}


def test_a_coroutine_that_returns_another_one_has_done_nothing() -> None:
    async def forgets_to_await(message: object) -> object:
        return work(message)

    commits: list[int] = []
    with pytest.raises(NotAwaitedError, match="handle returned a coroutine"):
        in_tasks(forgets_to_await, commits)
    assert set(commits) <= {0}


def reject(_: object) -> None:
    raise Reject("no")


@pytest.mark.parametrize("name", ["commit", "settled", "load", "dead_letter"])
@pytest.mark.parametrize("answer", ["a coroutine", "a generator"])
def test_a_call_that_leaves_its_work_to_be_done_stops_the_threads_at_once(name: str, answer: str) -> None:
    settings = RunnerConfig(workers=1, max_loaded_per_key=1)
    calls: dict[str, Any] = {name: UNDONE[answer]}
    runner = ThreadRunner[int](reject if name == "dead_letter" else print, config=settings, **calls)
    said = rf"^{name} returned a .*, which is never awaited or run; return when the work is done"
    with pytest.raises(NotAwaitedError, match=said):
        read(runner, 3 if name == "load" else 1)
    assert (runner.stats().dead_letters, runner.stats().commits) == (0, 0)


def read(runner: ThreadRunner[int], many: int) -> None:
    with runner:
        runner.add_log("log", start=0)
        runner.submit_many("log", [(offset, "a", offset) for offset in range(many)])


def test_a_call_of_tasks_may_be_awaited_and_yields_nothing() -> None:
    with pytest.raises(NotAwaitedError, match=r"^dead_letter returned a generator"):
        in_tasks(reject, [], dead_letter=UNDONE["a generator"])


@pytest.mark.parametrize("run", [in_threads, in_tasks])
def test_a_hook_that_leaves_its_work_to_be_done_stops_the_runner(run: Any) -> None:
    with pytest.raises(NotAwaitedError, match="a hook returned a coroutine"):
        run(lambda _: None, [], hooks=Hooks(ended=UNDONE["a coroutine"]))


def test_a_handler_that_cannot_travel_stops_the_runner_and_costs_no_message() -> None:
    letters: list[object] = []
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        in_threads(lambda _: None, [], executor=in_a_process, dead_letter=letters.append)
    assert [] == letters


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


def only_returns_a_coroutine(message: object) -> object:
    return work(message)


def test_a_coroutine_of_a_process_stops_the_runner() -> None:
    commits: list[int] = []
    with pytest.raises(NotAwaitedError, match="returned a coroutine, which is never awaited"):
        in_threads(only_returns_a_coroutine, commits, executor=in_a_process)
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


def given(message: object) -> Any:
    """As much of a run as an executor needs."""
    return Given(message)


class Given:
    def __init__(self, message: object) -> None:
        self.message = message
        self.is_abandoned, self.cancelled, self.started_ms = False, None, None


def raise_one(name: str) -> None:
    error = ERRORS[name]()
    raise error


def test_an_error_comes_from_a_process_as_it_is_or_as_what_can_be_told_of_it() -> None:
    call: InExecutors[Any] = InExecutors(in_a_process, raise_one)
    found: dict[str, Any] = {}
    for name in ERRORS:
        with pytest.raises(Exception) as raised:  # noqa: PT011  # looked at below
            call.handle(given(name))
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

    call: InExecutors[Any] = InExecutors(lambda: ThreadPoolExecutor(1), fail)
    with pytest.raises(DeclinedError) as raised:
        call.handle(given(0))
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


@pytest.mark.parametrize("kind", [ThreadRunner, AsyncRunner])
def test_a_hook_may_start_what_runs_by_itself(kind: Any) -> None:
    ran: list[str] = []

    async def tell(log: str) -> None:
        ran.append(log)

    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:

            def committed(log: str, *_: object) -> object:
                if kind is AsyncRunner:
                    return asyncio.get_running_loop().create_task(tell(log))
                return pool.submit(ran.append, log)

            runner = kind(print, commit=lambda *_: None, hooks=Hooks(committed=committed))
            runner.add_log("log", start=0)
            given = runner.submit("log", 0, "a", 0)
            if given is not None:
                await given
            for wait in (runner.drain, runner.stop):
                ended = wait()
                assert ended is True or await ended

    asyncio.run(main())
    assert {*ran} == {"log"}


def fail_to_begin() -> None:
    raise OSError("the database is away")


@pytest.mark.parametrize(
    "make",
    [
        partial(ThreadPoolExecutor, 1, initializer=fail_to_begin),
        partial(ProcessPoolExecutor, 1, mp_context=get_context("fork"), initializer=fail_to_begin),
    ],
)
def test_an_executor_that_cannot_begin_stops_the_runner_and_costs_no_message(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    letters: list[object] = []
    runner = ThreadRunner[int](print, executor=make, dead_letter=letters.append)
    with pytest.raises(BrokenExecutor):
        read(runner, 1)
    assert letters == []
    assert runner.stats().failed == 0
    assert "the database is away" in caplog.text or "Process" in str(make)


class Carried:
    """A handler that only a process pool knows how to send."""

    def __reduce__(self) -> str:
        raise TypeError("by no other means")

    def __call__(self, message: object) -> None:
        assert message == 0


def test_a_handler_that_a_process_pool_can_carry_is_taken() -> None:
    ForkingPickler.register(Carried, lambda _: (Carried, ()))
    with pytest.raises(TypeError, match="by no other means"):
        pickle.dumps(Carried())
    runner = ThreadRunner[int](Carried(), executor=partial(ProcessPoolExecutor, 1, mp_context=get_context("fork")))
    read(runner, 1)
    assert runner.stats().done == 1
