"""Batches of a key: what a handler gets, what its error means for each message, and who pays for it."""

import asyncio
import pickle
import time
from collections import Counter
from threading import Event
from typing import Any

import pytest
from tests.run.test_engine import begun, engine_of, record
from tests.run.watch import Message, Watch, mixed_log

from keyshared import RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.run import AsyncRunner, DeadLetter, Hooks, PartlyDone, Reject, RetryLater, RunnerConfig, ThreadRunner
from keyshared.run.actions import Cancel, Commit, Overdue, Withdraw, WriteDeadLetter
from keyshared.run.engine import Engine

FAST = RetryPolicy(max_redeliveries=1, base_delay_ms=1)
LONG_S = 20  # ends a test that hangs; nothing waits for it otherwise


def batch_of(many: int, **settings: Any) -> tuple[Engine[int], Any]:
    engine = engine_of("log", **{"batch": 10, "workers": 1, **settings})
    for offset in range(many):
        engine.submit("log", offset, "key", offset)
    (run,) = begun(engine, 0)
    return engine, run


def test_a_handler_gets_what_is_there_of_a_key_and_no_more_than_a_batch() -> None:
    engine = engine_of("log", batch=3, workers=2)
    for offset, key in enumerate(["a", "b", "a", None, "a", "a", "b"]):
        engine.submit("log", offset, key, offset)
    served = []
    while runs := begun(engine, 0):
        served += [run.message for run in runs]
        for run in runs:
            engine.ended(run, None)
    assert served == [[0, 2, 4], [1, 6], [3], [5]]
    assert engine.stats().done == 4


def test_without_batches_a_handler_gets_no_list_and_with_batches_of_one_it_does() -> None:
    for batch, expected in ((None, 0), (1, [0])):
        engine = engine_of("log", batch=batch)
        engine.submit("log", 0, "key", 0)
        (run,) = begun(engine, 0)
        assert run.message == expected


def test_no_more_handlers_run_than_there_are_workers_and_what_was_taken_out_comes_before_other_logs() -> None:
    engine = engine_of("one", "two", batch=4, workers=1)
    for log in ("one", "two"):
        for offset in range(6):
            engine.submit(log, offset, f"key-{offset}", offset)
    served = []
    while runs := begun(engine, 0):
        (run,) = runs
        assert engine.stats().running == 1
        served.append((run.log.name, run.message))
        engine.ended(run, None)
    assert [name for name, _ in served] == [*["one"] * 4, *["two"] * 4, *["one"] * 2, *["two"] * 2]
    assert engine.stats().held == 0


def test_a_part_of_a_batch_can_be_done_and_the_next_message_alone_has_failed() -> None:
    engine, run = batch_of(4, retry=RetryPolicy(base_delay_ms=10))
    engine.ended(run, PartlyDone(2, ValueError("third")), now_ms=0)
    assert begun(engine, 9) == [], "what follows waits for it"
    (failed,) = begun(engine, 10)
    assert (failed.message, failed.delivery.failures) == ([2], 1)
    engine.ended(failed, None)
    (last,) = begun(engine)
    assert (last.message, last.delivery.failures) == ([3], 0)
    assert engine.stats()[:4] == (1, 0, 1, 1)


@pytest.mark.parametrize("raised", [ValueError("broken"), Reject("bad"), PartlyDone(3, ValueError("of three"))])
def test_nobody_pays_for_a_batch_that_fails_without_a_word_which_message_it_was(raised: Exception) -> None:
    engine, run = batch_of(3, retry=RetryPolicy(max_redeliveries=0, base_delay_ms=10), writes=True)
    engine.ended(run, raised, now_ms=0)
    assert begun(engine, 9) == []
    (first,) = begun(engine, 10)
    assert (first.message, first.delivery.failures) == ([0], 0)
    assert engine.stats().held == 2, "they are taken out, and wait behind it"
    engine.ended(first, None, now_ms=10)
    (second,) = begun(engine)
    assert second.message == [1]
    engine.ended(second, Reject("bad"))
    actions = engine.advance()
    assert [action.dead_letter.offset for action in actions if isinstance(action, WriteDeadLetter)] == [1]
    (letter,) = [action for action in actions if isinstance(action, WriteDeadLetter)]
    engine.written(letter, None)
    (third,) = begun(engine)
    assert third.message == [2]
    engine.ended(third, None)
    assert engine.outstanding() == 0
    assert not engine.log("log").alone
    assert not engine.log("log").troubles


def test_a_batch_is_put_off_and_given_back_as_one() -> None:
    engine, run = batch_of(3, retry=RetryPolicy(base_delay_ms=10))
    engine.ended(run, RetryLater(50), now_ms=0)
    assert begun(engine, 49) == []
    (again,) = begun(engine, 50)
    assert again.message == [0, 1, 2]
    engine.ended(again, KeyboardInterrupt(), now_ms=50)
    (again,) = begun(engine, 60)
    assert again.message == [0, 1, 2]
    engine.ended(again, PartlyDone(1, RetryLater(5)), now_ms=60)
    (rest,) = begun(engine, 65)
    assert rest.message == [1, 2]
    assert (engine.stats().postponed, engine.stats().released, engine.stats().failed) == (2, 1, 0)


def test_a_batch_that_ran_for_too_long_comes_again_one_by_one() -> None:
    engine, run = batch_of(2, timeout_ms=20, cancels=True, retry=RetryPolicy(base_delay_ms=10))
    run.started_ms = 0
    actions = engine.advance(now_ms=20)
    assert actions == [Overdue(run, 20), Cancel(run)]
    engine.ended(run, asyncio.CancelledError(), now_ms=21)
    (first,) = begun(engine, 31)
    assert (first.message, first.delivery.failures) == ([0], 0)
    assert engine.stats().failed == 1


def test_what_waits_behind_the_first_of_a_batch_goes_back_with_its_log() -> None:
    engine, run = batch_of(3, commits=True)
    engine.ended(run, ValueError("broken"), now_ms=0)
    (first,) = begun(engine, 1_000)
    engine.remove_log("log", until_ms=2_000, now_ms=1_000)
    assert Withdraw((first,)) in engine.advance()
    engine.ended(first, None)
    (commit,) = [action for action in engine.advance() if isinstance(action, Commit)]
    assert commit.position == 1
    engine.add_log("new", start=0)
    record(engine)
    engine.submit("new", 0, "key", 0)
    assert [(run.log.name, run.message) for run in begun(engine)] == [("new", [0])], "its worker is free again"


def test_a_whole_batch_waits_for_a_handler_of_an_earlier_stay() -> None:
    engine, run = batch_of(3, workers=2)
    engine.lose_log("log")
    engine.add_log("log", start=0)
    for offset in range(3):
        engine.submit("log", offset, "key", offset)
    assert begun(engine) == []
    assert engine.stats().held == 3
    engine.ended(run, None)
    (again,) = begun(engine)
    assert (again.message, engine.stats().held) == ([0, 1, 2], 0)


def test_nonsense_about_parts_is_refused() -> None:
    nonsense: list[Any] = [(-1, ValueError()), (True, ValueError()), (1, "error"), (1, PartlyDone(0, ValueError()))]
    for arguments in nonsense:
        with pytest.raises(ArgumentError):
            PartlyDone(*arguments)
    with pytest.raises(ArgumentError, match="batch is 0"):
        RunnerConfig(batch=0)


def test_a_part_that_is_done_can_be_told_from_a_process() -> None:
    copy = pickle.loads(pickle.dumps(PartlyDone(5, Reject("bad"))))  # noqa: S301  # our own
    assert (copy.done, repr(copy.error)) == (5, "Reject('bad')")


class Rows:
    """A handler that does a batch message by message, and says how far it came, or does not."""

    def __init__(self, *, tells: bool) -> None:
        self.watch = Watch()
        self.lengths: Counter[int] = Counter()
        self.tells = tells
        self.hold = Event()  # the first handler waits, so that batches grow

    def __call__(self, messages: list[Message]) -> None:
        assert self.hold.wait(LONG_S)
        self.lengths[len(messages)] += 1
        for done, message in enumerate(messages):
            self.watch.begin(message)
            try:
                self.watch.end(message)
            except BaseException as raised:
                error = asyncio.CancelledError() if isinstance(raised, SystemExit) else raised  # one ends a loop
                raise PartlyDone(done, error) if self.tells else error from raised

    async def later(self, messages: list[Message]) -> None:
        await asyncio.sleep(0)
        self(messages)


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("with_tasks", [True, False])
def test_batches_keep_order_and_give_up_nothing_but_what_is_bad(*, tells: bool, with_tasks: bool) -> None:
    rows = Rows(tells=tells)
    letters: list[DeadLetter[Message]] = []
    commits: list[int] = []
    log = mixed_log(400)
    config = RunnerConfig(workers=4, batch=7, window=500, max_loaded_per_key=500, retry=FAST)
    settings: dict[str, Any] = {
        "dead_letter": letters.append,
        "commit": lambda _, position, __: commits.append(position),
        "config": config,
    }

    async def with_loop() -> None:
        async with AsyncRunner[Message](rows.later, **settings) as runner:
            runner.add_log("log")
            await runner.submit_many("log", [(message.offset, message.key, message) for message in log])

    if with_tasks:
        rows.hold.set()
        asyncio.run(with_loop())
    else:
        with ThreadRunner[Message](rows, **settings) as runner:
            runner.add_log("log")
            runner.submit_many("log", [(message.offset, message.key, message) for message in log])
            rows.hold.set()
    given_up = [message.offset for message in log if message.ends in {"reject", "fail"}]
    assert sorted(letter.offset for letter in letters) == given_up
    assert {letter.failures for letter in letters} == {1, 2}
    rows.watch.check_overlaps()
    assert {*rows.watch.done, *given_up} == {message.offset for message in log}
    if tells:
        rows.watch.check()
        assert len(rows.watch.done) == 400 - len(given_up), "what was done is not done again"
    assert max(rows.lengths) == 7
    assert commits[-1] == 400


def test_hooks_name_all_messages_of_a_batch() -> None:
    ends: list[tuple[object, str]] = []
    hold = Event()

    def handle(messages: list[int]) -> None:
        assert hold.wait(LONG_S)
        if len(messages) > 1:
            raise PartlyDone(len(messages) - 1, RetryLater(1))
        time.sleep(0)

    hooks = Hooks(ended=lambda _, offsets, raised, __: ends.append((offsets, type(raised).__name__)))
    with ThreadRunner[int](handle, hooks=hooks, config=RunnerConfig(workers=1, batch=3)) as runner:
        runner.add_log("log")
        runner.submit_many("log", [(offset, "key", offset) for offset in range(3)])
        hold.set()
    assert ends == [((0, 1, 2), "PartlyDone"), ((2,), "NoneType")]
