"""The runner on threads: what its handlers see, what is committed, and that every failure is told."""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier, Event, Lock, Semaphore, Thread
from typing import Any

import pytest
from tests.run.watch import Message, Watch, mixed_log

from keyshared import Poison, RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason, Deliver
from keyshared.errors import ArgumentError, KeyTypeError, OffsetOrderError
from keyshared.run import (
    DeadLetter,
    Hooks,
    Reject,
    RetryLater,
    RunnerConfig,
    StoppedError,
    ThreadRunner,
    UnknownLogError,
)
from keyshared.run.assignment import Assignment, Run
from keyshared.run.runner import now_ms
from keyshared.run.workers import Sleeper, Threads, Todo

FAST = RetryPolicy(max_redeliveries=1, base_delay_ms=1)
LONG_S = 20  # ends a test that hangs; nothing waits for it otherwise


@pytest.mark.no_cover
def test_every_key_is_worked_on_in_order_and_everything_is_done_or_given_up() -> None:
    watch = Watch()
    letters: list[DeadLetter[Message]] = []
    commits: list[tuple[str, int]] = []
    log = mixed_log(400)

    def handle(message: Message) -> None:
        watch.begin(message)
        time.sleep(0.0005 * (message.offset % 5))
        watch.end(message)

    config = RunnerConfig(workers=8, window=32, max_loaded_per_key=4, retry=FAST, commit_every_ms=1)
    with ThreadRunner(
        handle,
        commit=lambda name, position, _: commits.append((name, position)),
        dead_letter=letters.append,
        config=config,
    ) as runner:
        runner.add_log("log")
        for message in log:
            runner.submit("log", message.offset, message.key, message)
    stats = runner.stats()

    watch.check()
    given_up = [message.offset for message in log if message.ends in {"reject", "fail"}]
    assert sorted(letter.offset for letter in letters) == given_up
    assert sorted([*watch.done, *given_up]) == [message.offset for message in log]
    assert {message.offset: 2 for message in log if message.ends not in {"ok", "reject"}} == {
        offset: runs for offset, runs in watch.runs.items() if runs > 1
    }
    assert commits == sorted(commits)
    assert commits[0] == ("log", 0)
    assert commits[-1] == ("log", 400)
    assert watch.peak > 1, "nothing ran at the same time, so nothing was shown"
    assert (stats.done, stats.rejected, stats.dead_letters) == (400 - len(given_up), 10, len(letters))


def test_a_dead_letter_says_what_the_last_handler_raised() -> None:
    letters: list[DeadLetter[str]] = []

    def handle(message: str) -> None:
        raise ValueError(message)

    with ThreadRunner(handle, dead_letter=letters.append, config=RunnerConfig(retry=FAST)) as runner:
        runner.add_log("log", start=7)
        runner.submit("log", 7, "key", "message")
    (letter,) = letters
    assert letter._replace(error=None) == ("log", 7, b"key", "message", 2, None, 2)
    assert repr(letter.error) == "ValueError('message')"


def test_a_thread_that_is_overdue_is_told_of_and_never_run_beside_itself() -> None:
    watch = Watch()
    overdue: list[int] = []
    told = Event()

    def hook(_: str, offset: int, ran_ms: int) -> None:
        assert ran_ms >= 5
        assert watch.runs[offset] == 1, "what waits for a worker is not overdue"
        overdue.append(offset)
        if overdue.count(0) == 2:
            told.set()

    def handle(message: Message) -> None:
        watch.begin(message)
        if message.offset == 0:
            assert told.wait(LONG_S)
        watch.end(message)

    config = RunnerConfig(workers=1, timeout_ms=5, retry=FAST)
    with ThreadRunner(handle, hooks=Hooks(overdue=hook), config=config) as runner:
        runner.add_log("log")
        runner.submit_many("log", [(n, "key", Message(n, "key")) for n in range(20)])
    watch.check()
    assert set(watch.runs.values()) == {1}
    assert overdue.count(0) >= 2


def test_what_is_wrong_with_a_message_is_told_to_who_submits_it_and_the_runner_goes_on() -> None:
    done: list[str] = []
    with ThreadRunner(done.append) as runner:
        runner.add_log("log")
        runner.submit("log", 5, "key", "first")
        with pytest.raises(OffsetOrderError):
            runner.submit("log", 5, "key", "again")
        with pytest.raises(KeyTypeError):
            runner.submit("log", 6, 7, "message")  # type: ignore[arg-type]
        with pytest.raises(UnknownLogError):
            runner.submit("other", 0, "key", "message")
        with pytest.raises(ArgumentError):
            runner.add_log("log")
        runner.submit("log", 6, "key", "second")
    assert done == ["first", "second"]
    for call in (partial(runner.submit, "log", 7, "key", "late"), partial(runner.add_log, "new"), runner.drain):
        with pytest.raises(StoppedError):
            call()
    assert runner.stop()


def test_what_stands_before_a_message_that_is_wrong_is_worked_on_without_another_call() -> None:
    done = Event()
    runner = ThreadRunner(lambda _: done.set())
    runner.add_log("log")
    with pytest.raises(OffsetOrderError):
        runner.submit_many("log", [(5, "key", "good"), (5, "key", "again"), (6, "key", "not taken")])
    assert done.wait(LONG_S)
    assert runner.drain()
    assert runner.stop()
    assert runner.stats().done == 1


def test_a_commit_of_a_log_that_is_lost_before_its_turn_is_not_made() -> None:
    begun, go = Event(), Event()
    commits: list[str] = []

    def commit(log: str, _: int, __: str) -> None:
        commits.append(log)
        begun.set()
        assert go.wait(LONG_S)

    done = [Event(), Event()]
    runner = ThreadRunner(lambda number: done[number].set(), commit=commit)
    for number, log in enumerate(("kept", "lost")):
        runner.add_log(log)
        runner.submit(log, 0, "key", number)
        assert begun.wait(LONG_S), "its commit keeps the others waiting"
    runner.lose_log("lost")
    go.set()
    assert runner.drain()
    assert runner.stop()
    assert set(commits) == {"kept"}


@pytest.mark.parametrize("what", ["commit", "dead_letter", "load", "settled", "hook"])
def test_whatever_fails_stops_the_runner_with_that_error(what: str) -> None:
    def fail(*_: object) -> Any:
        raise OSError(what)

    def handle(message: int) -> None:
        if what == "dead_letter" and message == 3:
            raise Reject("bad")

    calls: dict[str, Any] = {name: fail for name in ("commit", "dead_letter", "load", "settled") if name == what}
    hooks = Hooks(ended=fail) if what == "hook" else None
    config = RunnerConfig(workers=2, call_attempts=1, max_loaded_per_key=1, window=8)
    runner = ThreadRunner(handle, hooks=hooks, config=config, **calls)
    runner.add_log("log")

    def submit_all() -> None:
        for offset in range(10_000):
            runner.submit("log", offset, "key", offset)

    with pytest.raises(OSError, match=what):
        submit_all()
    assert repr(runner.error) == f"OSError('{what}')"
    for call in (runner.stop, runner.drain, partial(runner.room, "log")):
        with pytest.raises(OSError, match=what):
            call()


def test_an_answer_of_load_that_leaves_a_message_out_stops_the_runner() -> None:
    config = RunnerConfig(workers=1, max_loaded_per_key=1, call_attempts=1)
    runner = ThreadRunner(lambda _: None, load=lambda *_: {}, config=config)
    runner.add_log("log")

    def submit_all() -> None:
        for offset in range(10_000):
            runner.submit("log", offset, "key", offset)

    with pytest.raises(KeyError):
        submit_all()


def test_without_dead_letters_a_message_that_is_given_up_stops_the_runner_with_its_error() -> None:
    def handle(_: str) -> None:
        raise Reject("no such customer")

    runner = ThreadRunner(handle, commit=lambda *_: None)
    runner.add_log("log")
    runner.submit("log", 0, "key", "message")
    with pytest.raises(Reject, match="no such customer"):
        runner.drain()
    with pytest.raises(Reject, match="no such customer"):
        runner.stop()


def test_a_dead_letter_is_tried_again_and_nothing_passes_it_meanwhile() -> None:
    commits: list[int] = []
    tries: list[int] = []

    def write(letter: DeadLetter[int]) -> None:
        tries.append(letter.offset)
        assert max(commits, default=0) == 0
        if len(tries) < 3:
            raise OSError("away")

    def handle(message: int) -> None:
        if message == 0:
            raise Reject("bad")

    config = RunnerConfig(commit_every_ms=0)
    with ThreadRunner(
        handle, dead_letter=write, commit=lambda _, position, __: commits.append(position), config=config
    ) as runner:
        runner.add_log("log")
        runner.submit_many("log", [(n, f"key-{n % 2}", n) for n in range(10)])
    assert tries == [0, 0, 0]
    assert commits[-1] == 10


def test_messages_beyond_the_bound_of_their_key_are_read_again() -> None:
    done: list[str] = []
    loads: list[int] = []
    release = Event()

    def handle(message: str) -> None:
        assert release.wait(LONG_S)
        done.append(message)

    def load(name: str, offsets: Sequence[int]) -> Mapping[int, str | None]:
        assert name == "log"
        loads.extend(offsets)
        return {offset: None if offset == 7 else f"message {offset}" for offset in offsets}

    with ThreadRunner(handle, load=load, config=RunnerConfig(workers=2, max_loaded_per_key=2)) as runner:
        runner.add_log("log")
        for offset in range(12):
            runner.submit("log", offset, "hot", f"message {offset}")
        release.set()
    assert done == [f"message {offset}" for offset in range(12) if offset != 7]
    assert loads == list(range(2, 12))


def test_messages_beyond_the_bound_of_their_key_stay_in_memory_if_nobody_can_read_them_again() -> None:
    done: list[int] = []
    with ThreadRunner(done.append, config=RunnerConfig(window=8, max_loaded_per_key=2)) as runner:
        runner.add_log("log")
        for offset in range(50):
            runner.submit("log", offset, "hot", offset)
    assert done == list(range(50))


def test_who_submits_waits_for_room_and_others_can_ask() -> None:
    release, full, roomy = Event(), Event(), Event()
    hooks = Hooks(full=lambda _: full.set(), roomy=lambda _: roomy.set())
    runner: ThreadRunner[int] = ThreadRunner(
        lambda _: release.wait(LONG_S), hooks=hooks, config=RunnerConfig(workers=1, window=4)
    )
    runner.add_log("log")
    assert [runner.try_submit("log", offset, "key", offset) for offset in range(5)] == [True] * 4 + [False]
    assert runner.room("log") == 0
    assert full.wait(LONG_S)
    thread = Thread(target=runner.submit, args=("log", 4, "key", 4))
    thread.start()
    assert not roomy.is_set()
    release.set()
    thread.join(LONG_S)
    assert runner.drain()
    assert roomy.is_set()
    assert runner.room("log") == 4
    assert runner.stop()


def test_a_log_that_is_removed_waits_for_its_handlers_and_is_committed_with_them() -> None:
    commits: list[tuple[int, str]] = []
    begun, release = Event(), Event()

    def handle(_: int) -> None:
        begun.set()
        assert release.wait(LONG_S)

    runner = ThreadRunner(
        handle, commit=lambda _, *stored: commits.append(stored), config=RunnerConfig(workers=1, commit_every_ms=10**6)
    )
    runner.add_log("log")
    runner.submit_many("log", [(n, "key", n) for n in range(5)])
    assert begun.wait(LONG_S)
    answers: list[bool] = []
    remover = Thread(target=lambda: answers.append(runner.remove_log("log")))
    remover.start()
    wait_until_unknown(runner, "log")
    release.set()
    remover.join(LONG_S)
    assert answers == [True]
    assert commits[-1][0] == 1, "the first is done, the others were not begun"
    runner.add_log("log", resume_from=commits[-1][1])
    runner.submit_many("log", [(n, "key", n) for n in range(5)])
    assert runner.drain()
    assert runner.stop()
    assert commits[-1][0] == 5
    assert runner.stats().done == 5


def wait_until_unknown(runner: ThreadRunner[int], log: str) -> None:
    while True:
        try:
            runner.room(log)
        except UnknownLogError:
            return
        time.sleep(0.001)


@pytest.mark.parametrize("leave", ["remove", "lose"])
def test_a_handler_that_outlives_its_log_does_not_count_and_its_key_waits_for_it(leave: str) -> None:
    watch = Watch()
    commits: list[int] = []
    begun, release = Event(), Event()

    def handle(message: Message) -> None:
        watch.begin(message)
        if not begun.is_set():
            begun.set()
            assert release.wait(LONG_S)
        watch.end(message)

    with ThreadRunner(
        handle, commit=lambda _, position, __: commits.append(position), config=RunnerConfig(workers=2)
    ) as runner:
        runner.add_log("log")
        runner.submit("log", 0, "slow", Message(0, "slow"))
        assert begun.wait(LONG_S)
        if leave == "remove":
            assert not runner.remove_log("log", within_ms=0)
        else:
            runner.lose_log("log")
        assert 1 not in commits
        with pytest.raises(UnknownLogError):
            runner.room("log")
        runner.add_log("log")
        runner.submit("log", 0, "slow", Message(0, "slow"))
        runner.submit("log", 1, "other", Message(1, "other"))
        while 1 not in watch.done:
            time.sleep(0.001)
        assert runner.why_blocked("log", 0) == Blocking(BlockReason.RETRY_WAIT)
        assert runner.stats().held == 1
        release.set()
    watch.check()
    assert watch.runs == {0: 2, 1: 1}
    assert runner.stats().late == 1
    assert commits[-1] == 2


def test_a_stop_that_does_not_wait_gives_back_what_runs() -> None:
    begun, release = Event(), Event()

    def handle(_: int) -> None:
        begun.set()
        release.wait(LONG_S)

    commits: list[int] = []
    runner = ThreadRunner(handle, commit=lambda _, position, __: commits.append(position))
    runner.add_log("log")
    runner.submit("log", 3, "key", 3)
    assert begun.wait(LONG_S)
    assert not runner.stop(within_ms=0)
    assert {*commits} == {3}
    release.set()


def test_a_drain_ends_with_its_time_or_when_only_an_operator_can_help() -> None:
    release = Event()

    def handle(message: str) -> None:
        assert release.wait(LONG_S)
        if message == "bad" and release.is_set() and not fixed.is_set():
            raise Reject("bad")

    fixed = Event()
    runner = ThreadRunner(handle, config=RunnerConfig(poison=Poison.BLOCK))
    runner.add_log("log")
    runner.submit("log", 0, "key", "bad")
    runner.submit("log", 1, "key", "behind it")
    assert not runner.drain(within_ms=5)
    release.set()
    assert not runner.drain()
    assert runner.why_blocked("log", 1) == Blocking(BlockReason.OLDER_WAITS, behind=0)
    assert runner.busiest_keys() == [("log", b"key", 2)]
    fixed.set()
    assert runner.unblock("log", "key")
    assert runner.drain()
    assert runner.stop()


def test_a_message_that_is_put_off_costs_no_failure_and_no_worker() -> None:
    letters: list[DeadLetter[str]] = []
    done: list[str] = []
    tries: list[str] = []

    def handle(message: str) -> None:
        tries.append(message)
        if message == "throttled" and len(tries) < 8:
            raise RetryLater(1)
        done.append(message)

    config = RunnerConfig(workers=1, retry=RetryPolicy(max_redeliveries=0))
    with ThreadRunner(handle, dead_letter=letters.append, config=config) as runner:
        runner.add_log("log")
        runner.submit("log", 0, "a", "throttled")
        runner.submit("log", 1, "a", "behind it")
        runner.submit("log", 2, "b", "another key")
    assert letters == []
    assert done == ["another key", "throttled", "behind it"]


def test_an_error_in_the_block_stops_without_waiting_for_the_rest() -> None:
    begun = Event()

    def handle(_: int) -> None:
        begun.set()

    def serve(runner: ThreadRunner[int]) -> None:
        with runner:
            runner.add_log("log")
            runner.submit("log", 0, "key", 0)
            assert begun.wait(LONG_S)
            raise RuntimeError("mine")

    runner = ThreadRunner(handle)
    with pytest.raises(RuntimeError, match="mine"):
        serve(runner)
    assert runner.stop()


def die_once(path: str) -> None:
    """Kill the process that this runs in, the first time."""
    flag = Path(path)
    if path and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_costs_one_retry_of_one_message(tmp_path: Path) -> None:
    ends: list[tuple[Sequence[int], BaseException | None]] = []
    hooks = Hooks(ended=lambda _, offsets, raised, __: ends.append((offsets, raised)))
    make = partial(ProcessPoolExecutor, 1, mp_context=get_context("spawn"))
    with ThreadRunner(die_once, executor=make, hooks=hooks, config=RunnerConfig(workers=2, retry=FAST)) as runner:
        runner.add_log("log")
        for offset in range(8):
            runner.submit("log", offset, f"key-{offset % 4}", str(tmp_path / "flag") if offset == 3 else "")
    assert runner.stats().done == 8
    (failed,) = [(offsets, isinstance(raised, BrokenExecutor)) for offsets, raised in ends if raised is not None]
    assert failed == ((3,), True)


@pytest.mark.parametrize("name", ["handle", "commit", "dead_letter", "load", "executor", "hooks", "config"])
def test_what_cannot_be_called_is_refused(name: str) -> None:
    arguments: dict[str, Any] = {"handle": print} | {name: 7}
    with pytest.raises(ArgumentError, match=name):
        ThreadRunner(**arguments)


def test_a_block_may_stop_by_itself_and_one_whose_runner_fails_ends_with_the_last_commit() -> None:
    commits: list[int] = []
    with ThreadRunner[int](lambda _: None) as runner:
        runner.add_log("log")
        runner.stop()

    def handle(message: int) -> None:
        if message == 1:
            raise Reject("bad")

    def serve() -> None:
        with ThreadRunner(
            handle, commit=lambda _, position, __: commits.append(position), config=RunnerConfig(workers=1)
        ) as runner:
            runner.add_log("log")
            runner.submit_many("log", [(0, "a", 0), (1, "b", 1)])

    with pytest.raises(Reject):
        serve()
    assert commits[-1] == 1


def test_each_message_is_told_once_when_it_is_settled_however_that_came_and_many_together() -> None:
    watch, calls = Watch(), list[tuple[str, tuple[int, ...]]]()
    begun = Event()

    def settled(log: str, offsets: Sequence[int]) -> None:
        calls.append((log, tuple(offsets)))
        assert begun.wait(LONG_S)  # so the next call has many

    def handle(message: Message) -> None:
        watch.begin(message)
        watch.end(message)

    log = mixed_log(300)
    with ThreadRunner[Message](
        handle, settled=settled, dead_letter=len, config=RunnerConfig(workers=4, retry=FAST)
    ) as runner:
        runner.add_log("log")
        runner.submit_many("log", [(message.offset, message.key, message) for message in log[:200]])
        begun.set()
        runner.submit_many("log", [(message.offset, message.key, message) for message in log[200:]])
    assert {name for name, _ in calls} == {"log"}
    assert sorted(offset for _, offsets in calls for offset in offsets) == [message.offset for message in log]
    assert max(len(offsets) for _, offsets in calls) > 1


def test_the_clock_does_not_sleep_after_the_step_that_ends_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stops waits for all threads, and nobody wakes this one any more."""
    slept: list[bool] = []
    monkeypatch.setattr(Threads, "begin", lambda *_: None)
    runner = ThreadRunner[object](print)
    monkeypatch.setattr(Sleeper, "sleep", lambda *_, **__: slept.append(runner._is_over))  # no other way
    runner._engine.stop(until_ms=10_000, now_ms=0)  # as above

    runner._watch_the_clock()  # as above
    assert runner.stop()
    assert True not in slept


@pytest.mark.parametrize("what", ["load", "commit", "settled"])
def test_a_stop_waits_no_longer_than_it_may_for_a_call_that_does_not_return(what: str) -> None:
    begun, release = Event(), Event()

    def hang(_: str, asked: Any, *__: object) -> Mapping[int, int]:
        begun.set()
        release.wait(LONG_S)
        return dict.fromkeys(asked, 0) if what == "load" else {}

    calls: dict[str, Any] = {what: hang}
    runner = ThreadRunner[int](lambda _: None, config=RunnerConfig(workers=1, max_loaded_per_key=1), **calls)
    runner.add_log("log", start=0)
    runner.submit_many("log", [(n, "key", n) for n in range(4)])
    assert begun.wait(LONG_S)
    runner.lose_log("log")
    began = time.monotonic()
    assert runner.stop(50)
    assert time.monotonic() - began < LONG_S / 2
    release.set()


@pytest.mark.parametrize("what", ["commit", "load"])
def test_what_comes_of_a_call_for_a_log_that_was_lost_meanwhile_means_nothing(what: str) -> None:
    begun, release, done = Event(), Event(), Event()
    told: list[str] = []

    def answer(log: str, *_: object) -> None:
        if log == "lost":
            begun.set()
            assert release.wait(LONG_S)
            if what == "load":
                raise OSError("it is somebody else's")

    def handle(log: str) -> None:
        if log == "kept":
            done.set()

    calls: dict[str, Any] = {what: answer}
    hooks = Hooks(committed=lambda log, *_: told.append(log))
    config = RunnerConfig(workers=1, max_loaded_per_key=1)
    with ThreadRunner(handle, hooks=hooks, config=config, **calls) as runner:
        for log in ("lost", "kept"):
            runner.add_log(log, start=0)
        runner.submit_many("lost", [(n, "key", "lost") for n in range(4)])
        assert begun.wait(LONG_S)
        runner.lose_log("lost")
        release.set()
        runner.submit("kept", 0, "key", "kept")
        assert done.wait(LONG_S)
    assert {*told} == ({"kept"} if what == "commit" else set())


@pytest.mark.parametrize("what", ["ended", "committed", "load"])
def test_an_exit_in_a_hook_or_an_answer_ends_the_block_with_it(what: str) -> None:
    class Answer(dict[int, int]):
        def __missing__(self, _: int) -> int:
            sys.exit(3)

    hooks = Hooks(**{what: lambda *_: sys.exit(3)}) if what != "load" else None
    load = (lambda *_: Answer()) if what == "load" else None
    ran: list[int] = []

    def serve() -> None:
        config = RunnerConfig(workers=1, max_loaded_per_key=1)
        with ThreadRunner(ran.append, commit=lambda *_: None, load=load, hooks=hooks, config=config) as runner:
            runner.add_log("log", start=0)
            runner.submit_many("log", [(n, "key", n) for n in range(3)])

    outcome: list[BaseException] = []

    def note() -> None:
        try:
            serve()
        except BaseException as error:  # noqa: BLE001  # it is the outcome
            outcome.append(error)

    program = Thread(target=note, daemon=True)
    program.start()
    program.join(LONG_S)
    assert [repr(error) for error in outcome] == ["SystemExit(3)"]


def test_a_fault_of_our_own_ends_a_drain_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ThreadRunner[int](lambda _: None, commit=lambda *_: None)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("our own")

    monkeypatch.setattr(runner._engine, "committed", fail)
    runner.add_log("log", start=0)
    with pytest.raises(AssertionError, match="our own"):  # noqa: PT012  # whichever call comes first
        runner.submit("log", 0, "key", 0)
        runner.drain(1_000 * LONG_S)
    assert repr(runner.error) == "AssertionError('our own')"


def test_a_time_that_is_too_far_for_a_clock_ends_nothing() -> None:
    far = (1 << 62) - 1
    runs: list[str] = []

    def handle(message: str) -> None:
        runs.append(message)
        if message == "far":
            raise RetryLater(far)
        if runs.count(message) == 1:
            raise ValueError(message)

    runner = ThreadRunner(handle, config=RunnerConfig(workers=1, retry=RetryPolicy(base_delay_ms=20)))
    runner.add_log("log", start=0)
    runner.submit("log", 0, "a", "far")
    while runner.stats().postponed == 0:
        time.sleep(0.001)
    runner.submit("log", 1, "b", "near")
    until = time.monotonic() + LONG_S
    while runner.stats().done == 0:
        assert time.monotonic() < until, "nobody looks at the clock any more"
        time.sleep(0.001)
    runner.lose_log("log")
    assert runner.drain(far)
    assert runner.stop(far)


def test_ends_are_told_soon_though_all_workers_are_busy_and_commits_are_rare() -> None:
    told, release = Event(), Event()

    def handle(message: int) -> None:
        if message == 0:
            time.sleep(0.05)  # the others have begun, and some wait behind them
        else:
            release.wait(LONG_S)

    config = RunnerConfig(workers=2, commit_every_ms=10**6)
    with ThreadRunner[int](handle, settled=lambda *_: told.set(), config=config) as runner:
        runner.add_log("log", start=0)
        runner.submit_many("log", [(n, f"key-{n}", n) for n in range(8)])
        assert told.wait(LONG_S / 2)
        release.set()


@pytest.mark.parametrize("submit", ["submit", "try_submit"])
def test_the_age_of_a_message_counts_from_its_own_time(submit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead_ms = [0]
    monkeypatch.setattr(Threads, "begin", lambda *_: None)  # nobody else looks at the clock
    monkeypatch.setattr("keyshared.run.runner.now_ms", lambda: now_ms() + ahead_ms[0])
    runner = ThreadRunner[int](print, config=RunnerConfig(measure=True))
    runner.add_log("log", start=0)
    ahead_ms[0] = 10**6
    getattr(runner, submit)("log", 0, "key", 0)
    (age,) = [value for name, _, value in runner.metrics() if name == "keyshared_oldest_age_seconds"]
    assert age < 500
    assert runner.stop()


def test_all_workers_are_woken_while_there_is_a_run_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadRunner, "_soon_ms", lambda _: now_ms() + 10**9)  # the clock would wake them in the end
    together = Barrier(12)
    config = RunnerConfig(workers=12)
    with ThreadRunner(lambda _: together.wait(LONG_S), config=config) as runner:
        runner.add_log("log", start=0)
        for first in range(0, 48, 12):  # and again when all have gone to sleep
            runner.submit_many("log", [(offset, f"key-{offset}", None) for offset in range(first, first + 12)])
            assert runner.drain(LONG_S * 1_000)
    assert runner.stats().failed == 0


def test_one_thread_is_woken_at_a_time_and_has_to_wake_the_next() -> None:
    lock, woken = Lock(), Semaphore(0)
    todo: Todo[None] = Todo(lock)

    def wait() -> None:
        with lock:
            todo.wait()
        woken.release()

    waiting = [Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    while todo.idle < len(waiting):
        time.sleep(0.001)
    delivery = Deliver(0, None, "workers", 1, 0, None)
    with lock:
        assert not todo.needs_more()
        todo.put(Run(Assignment("log", RunnerConfig(), 0, None), (delivery,)))
        assert todo.needs_more()
        todo.wake()
        assert not todo.needs_more(), "one is on its way"
        todo.wake()
    assert woken.acquire(timeout=LONG_S)
    assert todo.needs_more()
    assert todo.idle == 2
    with lock:
        todo.wake_all()
    for thread in waiting:
        thread.join(LONG_S)
    assert todo.idle == 0
