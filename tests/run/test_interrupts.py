"""Ctrl-C, wherever it comes: the runner stops in order, and what is done is committed."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread, current_thread, main_thread

import pytest

from keyshared.run import AsyncRunner, Hooks, RunnerConfig, StoppedError, ThreadRunner, UnknownLogError
from keyshared.run.guard import Guard

LONG_S = 20  # ends a test that hangs; nothing waits for it otherwise


@pytest.fixture(autouse=True)
def _interrupts_count() -> Iterator[None]:
    """A process that a shell has started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_from_elsewhere() -> None:
    ident = main_thread().ident
    assert ident is not None
    Thread(target=signal.pthread_kill, args=(ident, signal.SIGINT)).start()


class Program:
    """The main thread fills the window while the only handler waits; then something happens in the middle of a step."""

    def __init__(self) -> None:
        self.begun, self.release = Event(), Event()
        self.done: list[int] = []
        self.commits: list[int] = []
        self.told_in: list[Thread] = []

    def handle(self, message: int) -> None:
        self.begun.set()
        assert self.release.wait(LONG_S)
        self.done.append(message)

    def runner(self, hooks: Hooks) -> ThreadRunner[int]:
        config = RunnerConfig(workers=1, window=4, commit_every_ms=10**6)
        return ThreadRunner(
            self.handle, commit=lambda _, position, __: self.commits.append(position), hooks=hooks, config=config
        )

    def serve(self, runner: ThreadRunner[int]) -> None:
        with runner:
            runner.add_log("log", start=0)
            runner.submit("log", 0, "key", 0)
            assert self.begun.wait(LONG_S)
            for offset in range(1, 5):
                runner.submit("log", offset, "key", offset)  # the last one finds no room, and waits
            raise AssertionError("the interrupt was lost")


def interrupt_a_step() -> None:
    """The runner's own thread may be the first to see that there is no room: then it is tried again."""
    while interrupt_whoever_sees_it() is not main_thread():
        pass


def interrupt_whoever_sees_it() -> Thread:
    program = Program()

    def full(_: str) -> None:
        program.told_in.append(current_thread())
        try:
            signal.raise_signal(signal.SIGINT)  # it is not raised here
        finally:
            program.release.set()

    runner = program.runner(Hooks(full=full))
    with pytest.raises(KeyboardInterrupt):
        program.serve(runner)
    program.release.set()
    assert runner.error is None
    assert program.done
    assert program.commits[-1] == len(program.done)
    (told_in,) = program.told_in
    return told_in


def test_an_interrupt_in_the_middle_of_a_step_is_raised_at_its_end_and_the_last_commit_is_made() -> None:
    interrupt_a_step()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_runner_that_holds_no_interrupts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "hold_interrupts", lambda _: None)
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        interrupt_a_step()


def test_an_interrupt_of_a_loop_cancels_what_runs_and_the_last_commit_is_made() -> None:
    commits: list[int] = []

    async def handle(message: int) -> None:
        if message == 1:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()

    async def serve() -> None:
        config = RunnerConfig(workers=1, commit_every_ms=10**6, stop_ms=0)
        runner = AsyncRunner(handle, commit=lambda _, position, __: commits.append(position), config=config)
        async with runner:
            runner.add_log("log", start=0)
            await runner.submit_many("log", [(n, "key", n) for n in range(3)])

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(serve())
    assert commits[-1] == 1


def test_an_interrupt_ends_the_wait_for_room_and_then_the_runner_in_order() -> None:
    program = Program()

    def full(_: str) -> None:
        interrupt_from_elsewhere()

    runner = program.runner(Hooks(full=full))
    releaser = Thread(target=release_when_it_stops, args=(runner, program.release))
    releaser.start()
    with pytest.raises(KeyboardInterrupt):
        program.serve(runner)
    releaser.join(LONG_S)
    assert runner.error is None
    assert program.done == [0], "nothing is begun after it"
    assert program.commits[-1] == 1


def release_when_it_stops(runner: ThreadRunner[int], release: Event) -> None:
    with suppress(StoppedError):
        while True:
            with suppress(UnknownLogError):  # it is not there yet
                runner.room("log")
            time.sleep(0.001)
    release.set()


def test_an_interrupt_outside_of_the_runner_is_raised_at_once() -> None:
    outer, inner = ThreadRunner[int](print), ThreadRunner[int](print)

    def serve() -> None:
        with outer, inner:
            outer.add_log("log")
            inner.add_log("log")
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("the interrupt was lost")

    with pytest.raises(KeyboardInterrupt):
        serve()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert outer.stop()
    assert inner.stop()


def test_whoever_handles_interrupts_goes_on_doing_so() -> None:
    def mine(*_: object) -> None: ...

    before = signal.signal(signal.SIGINT, mine)
    try:
        with ThreadRunner[int](print):
            assert signal.getsignal(signal.SIGINT) is mine
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)


def test_whoever_begins_to_handle_interrupts_in_the_block_goes_on_doing_so() -> None:
    def mine(*_: object) -> None: ...

    with ThreadRunner[int](print):
        signal.signal(signal.SIGINT, mine)
    assert signal.getsignal(signal.SIGINT) is mine


def test_a_runner_in_another_thread_leaves_interrupts_alone() -> None:
    handlers: list[object] = []

    def serve() -> None:
        with ThreadRunner[int](print):
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = Thread(target=serve)
    thread.start()
    thread.join(LONG_S)
    assert handlers == [signal.default_int_handler]


def test_a_hook_that_calls_another_runner_leaves_no_hole_for_an_interrupt() -> None:
    """The hook is in the middle of the work of its own runner, and still is when the other one has answered."""
    other: ThreadRunner[int] = ThreadRunner(print)
    other.add_log("log")

    with Guard() as guard:
        guard.hold_interrupts()
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # where it is raised is what counts
            with guard:
                other.stats()
                signal.raise_signal(signal.SIGINT)
                went_on = True
            raise AssertionError("the interrupt was lost")
        assert went_on
    finally:
        guard.free_interrupts()
        other.stop()
