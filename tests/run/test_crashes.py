"""Messages that end their process, handlers that hang, calls that fail once, and handlers that begin after a stop."""

import asyncio
import json
import os
import subprocess
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.run.test_engine import begun, engine_of, record
from tests.run.test_waiting import wait_until

from keyshared import RetryPolicy
from keyshared.errors import SnapshotError
from keyshared.run import (
    AsyncRunner,
    CrashedError,
    DeadLetter,
    HungWorkersError,
    RunnerConfig,
    ThreadRunner,
)
from keyshared.run.actions import Commit, LoadMany, Replace, Settle, WriteDeadLetter
from keyshared.run.assignment import Run
from keyshared.run.commit_token import CrashRecord, Suspect, read_record, read_token, write_token
from keyshared.run.engine import Engine

LONG_S = 20
RECORD = CrashRecord(500, (Suspect(7, 2, True, True), Suspect(3, 1, False, False)))


def test_a_token_carries_a_crash_record_and_gives_it_back() -> None:
    token = write_token("cursor", 5, RECORD, 200)
    cursor, text = read_token(token)
    assert (cursor, read_record(text, 5)) == ("cursor", RECORD)
    assert write_token("cursor", 5, CrashRecord(None, ()), 200) == "cursor"
    assert read_record("", 5) == (None, ())


@pytest.mark.parametrize("space", range(60))
def test_a_crash_record_takes_no_more_than_its_space_and_keeps_the_first_suspects(space: int) -> None:
    many = CrashRecord(500, tuple(Suspect(offset, 1, False, False) for offset in range(100)))
    token = write_token("cursor", 0, many, len("cursor") + space)
    assert len(token) <= len("cursor") + space
    kept = read_record(read_token(token)[1], 0).suspects
    assert kept == many.suspects[: len(kept)]


@pytest.mark.parametrize(
    "damage", [lambda token: token[:-1], lambda token: token.replace("~", "~1", 1)], ids=["cut", "changed"]
)
def test_a_damaged_crash_record_is_refused(damage: Any) -> None:
    engine: Engine[int] = Engine(RunnerConfig())
    token = write_token(engine_of("log").log("log").dispatcher.cursor_token().text, 0, RECORD, 500)
    assert engine.add_log("whole", resume_from=token) == 0
    with pytest.raises(SnapshotError):
        engine.add_log("damaged", resume_from=damage(token))


class Store:
    """Keeps what is committed, and lives through processes."""

    def __init__(self, **settings: Any) -> None:
        self.settings = {"workers": 4, "retry": RetryPolicy(max_redeliveries=3, base_delay_ms=10), **settings}
        self.token: str | None = None
        self.dead: list[DeadLetter[int]] = []

    def live(self, log: list[str], bad: int, how: str) -> None:
        """Run a process until the bad message ends it, or all is done."""
        engine: Engine[int] = Engine(RunnerConfig(**self.settings), commits=True, writes=True)
        position = engine.add_log("log", start=0, resume_from=self.token, now_ms=0) or 0
        engine.submit_many("log", [(offset, log[offset], offset) for offset in range(position, len(log))], now_ms=0)
        now, due = 0, []
        while True:
            actions = engine.advance(now_ms=now)
            due += [action for action in actions if isinstance(action, Run)]
            self.answer(engine, actions)
            if due:
                run = due.pop(0)
                is_bad = run.message == bad
                if not is_bad or how == "raises":
                    engine.ended(run, ValueError("always") if is_bad else None, now_ms=now)
                if is_bad:
                    if how == "raises":
                        self.answer(engine, engine.advance(now_ms=now + 200))
                    return
            elif not actions:
                if engine.is_idle():
                    break
                now = max(now, engine.next_deadline_ms() or now)
        engine.stop(until_ms=now, now_ms=now)
        self.answer(engine, engine.advance())

    def answer(self, engine: Engine[int], actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, Commit):
                self.token = action.token
                engine.committed(action, None)
            elif isinstance(action, WriteDeadLetter):
                self.dead.append(action.dead_letter)
                engine.written(action, None)


@pytest.mark.parametrize("bad", [0, 1, 57, 199])
@pytest.mark.parametrize("keys", [1, 5, 200])
def test_a_message_that_ends_its_process_ends_in_the_dead_letters_and_takes_no_other_along(bad: int, keys: int) -> None:
    log = [f"key-{number % keys}" for number in range(200)]
    store = Store()
    lives = 0
    while lives < 15 and not store.dead:
        store.live(log, bad, "kills")
        lives += 1
    assert [dead.offset for dead in store.dead] == [bad]
    assert isinstance(store.dead[0].error, CrashedError)
    assert store.dead[0].failures == 4
    assert lives == 6, "the first crash only tells that there was one"
    assert read_token(store.token or "") == (store.token, ""), "after an orderly end there is nothing to remember"


def test_a_message_is_given_up_for_crashes_only_after_it_has_run_alone() -> None:
    store = Store(retry=RetryPolicy(max_redeliveries=0))
    log = [f"key-{number}" for number in range(50)]
    for _ in range(15):
        store.live(log, 20, "kills")
    assert [dead.offset for dead in store.dead] == [20]


def test_failures_are_counted_across_restarts() -> None:
    store = Store()
    for _ in range(15):
        store.live(["key"] * 3, 1, "raises")
        if store.dead:
            break
    assert [(dead.offset, dead.failures) for dead in store.dead] == [(1, 4)]
    assert "always" in str(store.dead[0].error)


def test_after_a_crash_no_handler_begins_unrecorded_and_suspects_run_one_at_a_time() -> None:
    first = engine_of("log", commits=True)
    first.submit("log", 0, "a", 0)
    token = first.log("log").to_store()
    assert token is not None
    engine: Engine[int] = Engine(RunnerConfig(workers=4), commits=True)
    engine.add_log("log", resume_from=token[1])
    record(engine)
    for offset, key in enumerate("abc"):
        engine.submit("log", offset, key, offset)
    (commit,) = engine.advance()
    assert isinstance(commit, Commit)
    assert [each[:3] for each in engine.stuck(0)] == [("log", n, key) for n, key in enumerate([b"a", b"b", b"c"])]
    cursor, text = read_token(commit.token)
    opened = [suspect.offset for suspect in read_record(text, 0).suspects if suspect.is_open]
    assert opened == [0, 1, 2]
    engine.committed(commit, None)
    assert [run.message for run in begun(engine)] == [0, 1, 2]
    again: Engine[int] = Engine(RunnerConfig(workers=4), commits=True)
    again.add_log("log", resume_from=commit.token)
    record(again)
    for offset, key in enumerate("abcd"):
        again.submit("log", offset, key, offset)
    (commit,) = again.advance()
    assert isinstance(commit, Commit)
    again.committed(commit, None)
    runs = begun(again)
    assert [run.message for run in runs] == [0, 3], "three were open, and any of them may be to blame"
    again.lose_log("log")
    assert cursor


KILLER = """
import json, os, signal, sys
from threading import Lock
from keyshared import RetryPolicy
from keyshared.run import RunnerConfig, ThreadRunner

path, lock = sys.argv[1], Lock()
state = json.load(open(path)) if os.path.exists(path) else {"token": None, "dead": []}

def save():
    with lock:  # commits and dead letters come from two threads
        with open(path + ".new", "w") as file:
            json.dump(state, file)
        os.replace(path + ".new", path)

def handle(number):
    if number == 57:
        os.kill(os.getpid(), signal.SIGKILL)

def commit(log, position, token):
    state["token"] = token
    save()

def give_up(dead):
    state["dead"].append(dead.offset)
    save()

config = RunnerConfig(workers=4, retry=RetryPolicy(max_redeliveries=3, base_delay_ms=1))
with ThreadRunner(handle, commit=commit, dead_letter=give_up, config=config) as runner:
    at = runner.add_log("log", start=0, resume_from=state["token"])
    runner.submit_many("log", [(offset, f"key-{offset % 5}", offset) for offset in range(at, 200)])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_a_message_that_kills_real_processes_ends_in_the_dead_letters(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    path = tmp_path / "state"
    ends: list[int] = []
    while len(ends) < 15 and 0 not in ends:
        ran = subprocess.run([sys.executable, "-c", KILLER, path], env=env, check=False, capture_output=True)
        ends.append(ran.returncode)
    state = json.loads(path.read_text())
    assert (state["dead"], ends) == ([57], [-9] * 5 + [0])


# handlers that hang


def test_a_hung_thread_is_replaced_and_its_key_waits() -> None:
    release = Event()
    done: list[int] = []

    def handle(number: int) -> None:
        if number < 2:
            assert release.wait(LONG_S)
        done.append(number)

    config = RunnerConfig(workers=2, timeout_ms=20)
    with ThreadRunner(handle, config=config) as runner:
        runner.add_log("log", start=0)
        runner.submit_many("log", [(n, f"key-{n % 50}", n) for n in range(102)])
        until = time.monotonic() + LONG_S
        while len(done) < 96 and time.monotonic() < until:
            runner.sleep(1)
        assert sorted(done) == [n for n in range(102) if n % 50 > 1], "all but their keys"
        assert runner.stats().replaced == 2
        release.set()
    assert sorted(done) == [*range(102)]
    assert runner.stats().failed == 0, "a thread that returns has done its message"


@pytest.mark.parametrize("stop_ms", [0, 50])
def test_too_many_hung_workers_stop_the_runner_and_name_the_key(stop_ms: int) -> None:
    release = Event()
    config = RunnerConfig(workers=1, timeout_ms=10, max_hung_workers=1, stop_ms=stop_ms)
    runner = ThreadRunner(lambda _: release.wait(LONG_S), config=config)
    runner.add_log("log", start=0)
    runner.submit_many("log", [(n, f"key-{n}", n) for n in range(3)])
    with pytest.raises(HungWorkersError, match="2 handlers have outlasted") as raised:
        runner.drain()
    assert "log[1] key=b'key-1'" in raised.value.__notes__[0]
    release.set()


def test_a_stop_does_not_wait_for_a_hung_handler_of_a_log_that_has_left() -> None:
    release = Event()
    with ThreadRunner(lambda _: release.wait(LONG_S), config=RunnerConfig(workers=1, timeout_ms=10)) as runner:
        runner.add_log("log", start=0)
        runner.submit("log", 0, "key", 0)
        wait_until(lambda: runner.stats().replaced == 1)
        assert not runner.remove_log("log", 0)
        assert not runner.stop(0)
        assert not release.is_set()
        release.set()


def test_a_process_whose_handler_hangs_is_killed_and_its_message_has_failed() -> None:
    dead: list[DeadLetter[int]] = []
    config = RunnerConfig(workers=1, timeout_ms=200, retry=RetryPolicy(max_redeliveries=0))
    spawn = get_context("spawn")
    with ThreadRunner(  # a handler that a new process need not import, as that takes its time
        time.sleep, executor=lambda: ProcessPoolExecutor(1, mp_context=spawn), dead_letter=dead.append, config=config
    ) as runner:
        runner.add_log("log", start=0)
        runner.submit_many("log", [(n, "key", 0 if n else 3_600) for n in range(5)])
    assert [type(letter.error) for letter in dead] == [TimeoutError]
    assert runner.stats().done == 4


def test_a_process_that_outlasts_a_stop_is_killed() -> None:
    runner = ThreadRunner(
        time.sleep,
        executor=lambda: ProcessPoolExecutor(1, mp_context=get_context("spawn")),
        config=RunnerConfig(workers=1),
    )
    runner.add_log("log", start=0)
    runner.submit("log", 0, "key", 3_600)
    while runner.stuck(0) == []:
        time.sleep(0.01)
    began = time.monotonic()
    assert runner.stop(within_ms=0), "it has ended"
    assert time.monotonic() - began < LONG_S
    assert runner.stats().released == 1


def test_a_coroutine_that_swallows_its_cancellation_gives_its_place_back() -> None:
    done: list[int] = []

    async def main() -> None:
        release = asyncio.Event()

        async def handle(number: int) -> None:
            while number == 0 and not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            done.append(number)

        config = RunnerConfig(workers=1, timeout_ms=10, retry=RetryPolicy(base_delay_ms=1))
        async with AsyncRunner(handle, config=config) as runner:
            runner.add_log("log", start=0)
            await runner.submit_many("log", [(0, "a", 0), (1, "a", 1), (2, "b", 2)])
            async with asyncio.timeout(LONG_S):
                while done != [2]:  # noqa: ASYNC110  # the list wakes nobody
                    await asyncio.sleep(0.01)
            assert runner.stats().replaced == 1
            release.set()
        assert runner.stats().done == 3

    asyncio.run(main())


def test_a_replaced_worker_is_counted_by_the_engine() -> None:
    engine = engine_of("log", workers=1, timeout_ms=100)
    engine.submit("log", 0, "a", 0)
    engine.submit("log", 1, "b", 1)
    (run,) = begun(engine, 0)
    run.started_ms = 0
    actions = engine.advance(now_ms=100)
    assert Replace(run) in actions
    actions += engine.advance(now_ms=100)
    assert [each.message for each in actions if isinstance(each, Run)] == [1]
    assert engine.stats().running == 2
    engine.ended(run, None)
    assert engine.stats().running == 1


def test_suspects_that_are_given_up_or_whose_log_leaves_let_the_next_one_begin() -> None:
    def after_a_crash(log: str, engine: Engine[int]) -> None:
        record_text = CrashRecord(50, tuple(Suspect(offset, 0, True, False) for offset in range(3)))
        cursor = engine_of("log").log("log").dispatcher.cursor_token().text
        engine.add_log(log, resume_from=write_token(cursor, 0, record_text, 500))
        for offset, key in enumerate("abc"):
            engine.submit(log, offset, key, offset)

    engine: Engine[int] = Engine(RunnerConfig(workers=4))
    after_a_crash("one", engine)
    after_a_crash("two", engine)
    (first,) = begun(engine)
    assert engine.stuck(0)[-1].what == "waits for an earlier handler of its key, or of its batch"
    assert engine.park("one", 1), "a suspect that waits"
    engine.lose_log("one")
    engine.ended(first, None)
    (second,) = begun(engine)
    assert second.log.name == "two"
    engine.pause_key("b")
    engine.ended(second, None)
    assert [run.message for run in begun(engine)] == [2], "the paused one waits for its operator, not the next"


def test_a_suspect_without_a_worker_lets_the_next_one_begin_when_its_log_is_lost() -> None:
    engine: Engine[int] = Engine(RunnerConfig(workers=1, batch=2))
    cursor = engine_of("log").log("log").dispatcher.cursor_token().text
    token = write_token(cursor, 0, CrashRecord(50, (Suspect(1, 0, True, False),)), 500)
    for log in ("one", "two"):
        engine.add_log(log, resume_from=token)
    engine.submit_many("one", [(0, "a", 0), (1, "b", 1)])
    (run,) = begun(engine)
    engine.lose_log("one")
    engine.ended(run, None)
    engine.submit_many("two", [(1, "b", 1)])
    assert [run.message for run in begun(engine)] == [[1]]


def test_a_key_waits_for_all_abandoned_handlers_of_it() -> None:
    engine = engine_of("log", max_in_flight_per_key=2, workers=4)
    for offset in range(2):
        engine.submit("log", offset, "a", offset)
    first, second = begun(engine, 0)
    engine.lose_log("log")
    engine.add_log("log", start=0)
    engine.submit("log", 2, "a", 2)
    engine.ended(first, None)
    assert begun(engine) == []
    engine.ended(second, None)
    assert [run.message for run in begun(engine)] == [2]


# calls that fail once


def test_a_commit_that_fails_is_tried_again_with_what_is_true_then() -> None:
    engine = engine_of("log", commits=True, commit_every_ms=0, workers=2)
    for offset in range(2):
        engine.submit("log", offset, f"key-{offset}", offset)
    first, second = begun(engine, 0)
    engine.ended(first, None, now_ms=0)
    (commit,) = engine.advance(now_ms=0)
    assert isinstance(commit, Commit)
    engine.committed(commit, OSError("away"), now_ms=0)
    engine.ended(second, None, now_ms=50)
    assert engine.advance(now_ms=98) == []
    assert engine.hurry(), "there is something to commit"
    assert engine.advance(now_ms=99) == [], "a drain does not shorten the delay"
    (again,) = engine.advance(now_ms=100)
    assert isinstance(again, Commit)
    assert again.position == 2
    engine.committed(again, None)
    assert engine.error is None
    assert [report.event for report in engine.reports] == ["call_failed"]


def test_a_load_that_fails_is_tried_again_for_what_is_missing() -> None:
    engine = engine_of("log", loads=True, max_loaded_per_key=1, workers=1)
    for offset in range(3):
        engine.submit("log", offset, "key", offset)
    (run,) = begun(engine, 0)
    engine.ended(run, None)
    (load,) = [action for action in engine.advance(now_ms=0) if isinstance(action, LoadMany)]
    engine.loaded(load, {}, OSError("away"), now_ms=0)
    assert engine.advance(now_ms=99) == []
    assert engine.advance(now_ms=100) == [load._replace(attempts=2)]
    engine.loaded(load, {1: 1})
    assert [run.message for run in begun(engine)] == [1]


def test_a_report_of_settled_messages_that_fails_is_made_again() -> None:
    engine = engine_of("log", settles=True, workers=1)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, None)
    (settle,) = [action for action in engine.advance(now_ms=0) if isinstance(action, Settle)]
    engine.settled(settle, OSError("away"), now_ms=0)
    assert not engine.is_idle()
    assert engine.advance(now_ms=100) == [settle._replace(attempts=2)]
    engine.settled(settle, None)
    assert engine.is_idle()


def test_a_commit_may_be_a_future() -> None:
    made: list[Future[None]] = []

    def commit(*_: object) -> Future[None]:
        made.append(Future())
        if len(made) > 1:
            made[-1].set_result(None)
        return made[-1]

    done = Event()
    with ThreadRunner(lambda _: done.set(), commit=commit) as runner:
        runner.add_log("log", start=0)
        runner.submit("log", 0, "key", 0)
        while not made:
            runner.sleep(1)
        assert not done.is_set(), "the first commit is not made"
        made[0].set_result(None)
        assert done.wait(LONG_S)


# stops


@pytest.mark.parametrize("kind", [ThreadRunner, AsyncRunner])
def test_no_handler_begins_after_a_stop_with_any_executor(kind: Any) -> None:
    began: list[int] = []
    making, go_on = Event(), Event()

    def slow_executor() -> ThreadPoolExecutor:
        making.set()
        assert go_on.wait(LONG_S)
        return ThreadPoolExecutor(1)

    async def main() -> None:
        runner = kind(began.append, executor=slow_executor, config=RunnerConfig(workers=1))
        runner.add_log("log", start=0)
        given = runner.submit("log", 0, "key", 0)
        if given is not None:
            await given
        await asyncio.to_thread(making.wait, LONG_S)
        ended = runner.stop(0) if kind is AsyncRunner else asyncio.to_thread(runner.stop, 0)
        await ended
        assert began == []
        go_on.set()
        await asyncio.sleep(0.05)
        assert began == []

    asyncio.run(main())
