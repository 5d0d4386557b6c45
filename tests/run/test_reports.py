"""What an operator is told: log records, notes, and what is stuck."""

import logging
import signal
from threading import Event
from typing import Any

import pytest
from tests.run.test_engine import begun, engine_of

from keyshared import Poison, RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.run import AsyncRunner, DeadLetter, Hooks, Reject, RetryLater, RunnerConfig, ThreadRunner
from keyshared.run.actions import LoadMany, Overdue, Replace, WriteDeadLetter
from keyshared.run.assignment import Run
from keyshared.run.engine import Engine

LONG_S = 20


def reports(engine: Engine[int]) -> list[str]:
    lines = [str(report) for report in engine.reports]
    engine.reports.clear()
    return lines


def test_each_record_of_a_message_names_it_and_the_reason() -> None:
    retry = RetryPolicy(max_redeliveries=1, base_delay_ms=2_000)
    engine = engine_of("orders-0", retry=retry, writes=True)
    engine.submit("orders-0", 17, "order-7", 0, now_ms=0)
    for now, expected in (
        (0, "orders-0[17] key=b'order-7' attempt 1: failed (ValueError: broken; retry in 2 s)"),
        (2_000, "orders-0[17] key=b'order-7' attempt 2: failed (ValueError: broken; no retry is left)"),
    ):
        (run,) = begun(engine, now)
        engine.ended(run, ValueError("broken"), now_ms=now)
        assert reports(engine) == [expected]
    (asked,) = [action for action in engine.advance() if isinstance(action, WriteDeadLetter)]
    engine.written(asked, OSError("away"))
    engine.written(asked, None)
    assert reports(engine) == [
        "orders-0: dead_letter failed (OSError: away); the next attempt is in 0.1 s",
        "orders-0[17] key=b'order-7' attempt 2: written to the dead letters after 2 failures (ValueError: broken)",
    ]


@pytest.mark.parametrize(
    ("poison", "said"),
    [
        (Poison.BLOCK, "blocked after 1 failures (Reject: bad); its key waits for unblock or park"),
        (Poison.DROP, "dropped after 1 failures (Reject: bad)"),
    ],
)
def test_a_message_that_is_blocked_or_dropped_is_reported_with_its_reason(poison: Poison, said: str) -> None:
    engine = engine_of("log", poison=poison)
    engine.submit("log", 3, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, Reject("bad"))
    assert reports(engine)[-1].endswith(f"log[3] key=b'key': {said}".removeprefix("log[3] key=b'key': "))
    assert engine.reports == []


def test_messages_that_their_log_has_lost_are_reported_as_lost() -> None:
    engine = engine_of("log", loads=True, max_loaded_per_key=1, workers=1)
    for offset in range(3):
        engine.submit("log", offset, "hot", offset)
    (run,) = begun(engine, 0)
    engine.ended(run, None)
    (load,) = [action for action in engine.advance() if isinstance(action, LoadMany)]
    engine.loaded(load, dict.fromkeys(load.offsets))
    (report,) = engine.reports
    assert (report.level, report.event, report.fields["offsets"]) == (logging.ERROR, "expired", [1])
    assert "1 messages (offsets 1 to 1, keys b'hot') expired" in str(report)
    assert engine.stats().expired == 1


def test_a_handler_is_reported_after_a_minute_and_then_each_time_twice_as_long_later() -> None:
    engine = engine_of("log")
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    run.started_ms = 0
    said = []
    while engine.next_deadline_ms() is not None and engine.next_deadline_ms() < 600_000:  # type: ignore[operator]
        engine.advance(now_ms=engine.next_deadline_ms())
        said += [(report.event, report.fields["ran_ms"]) for report in engine.reports]
        engine.reports.clear()
    assert said == [("slow", 60_000), ("slow", 120_000), ("slow", 240_000), ("slow", 480_000)]


def test_a_timeout_is_told_each_time_and_logged_each_time_twice_as_long_later() -> None:
    engine = engine_of("log", timeout_ms=1_000, workers=1)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    run.started_ms = 0
    told, said = [], []
    for now in range(1_000, 9_000, 1_000):
        told += [action.ran_ms for action in engine.advance(now_ms=now) if isinstance(action, Overdue)]
        said += [report.fields["ran_ms"] for report in engine.reports if report.event == "overdue"]
        engine.reports.clear()
    assert told == [*range(1_000, 9_000, 1_000)]
    assert said == [1_000, 2_000, 4_000, 8_000]


def test_without_slow_ms_only_the_timeout_is_told() -> None:
    engine = engine_of("log", timeout_ms=1_000, slow_ms=None)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    run.started_ms = 0
    assert [type(action) for action in engine.advance(now_ms=1_000)] == [Overdue, Replace]
    assert [report.event for report in engine.reports] == ["replaced"]


def test_without_slow_ms_and_timeout_no_handler_is_watched() -> None:
    engine = engine_of("log", slow_ms=None, commits=False)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    run.started_ms = 0
    assert engine.next_deadline_ms() is None
    assert engine.advance(now_ms=10**9) == []


def test_the_timeout_counts_from_the_start_of_the_handler() -> None:
    engine = engine_of("log", timeout_ms=1_000, slow_ms=None, workers=2)
    engine.submit_many("log", [(0, "a", 0), (1, "b", 0)])
    first, second = begun(engine, 0)
    first.started_ms = 0  # the other one is on its way to a thread
    assert [action.run for action in engine.advance(now_ms=1_000) if isinstance(action, Overdue)] == [first]
    second.started_ms = 1_500
    assert [action.run for action in engine.advance(now_ms=2_000) if isinstance(action, Overdue)] == [first]
    assert second in [action.run for action in engine.advance(now_ms=2_500) if isinstance(action, Overdue)]


def test_the_age_of_the_oldest_unfinished_message_is_known_for_days() -> None:
    engine = engine_of("log", max_tracked=1_000_000)
    for second in range(0, 20_000, 2):
        engine.submit("log", second, "key", 0, now_ms=second * 1_000)
    log = engine.log("log")
    assert log.oldest_ms(now_ms=20_000_000) == 20_000_000
    assert len(log._samples) < 5_000
    (run,) = begun(engine)
    engine.ended(run, None)
    assert log.oldest_ms(now_ms=20_000_000) in range(19_990_000, 20_000_001)


def test_stuck_names_keys_and_reasons_oldest_first() -> None:
    retry = RetryPolicy(max_redeliveries=5, base_delay_ms=12_000)
    engine = engine_of("orders-0", retry=retry, writes=True, workers=5)
    for offset, key in enumerate(["hangs", "fails", "bad", "later", "quick", "hangs", "hangs"]):
        engine.submit("orders-0", offset, key, offset)
    hangs, fails, bad, later, quick = begun(engine, 0)
    for run in (hangs, quick):
        run.started_ms = 0
    engine.ended(fails, ValueError("broken"), now_ms=60_000)
    engine.ended(bad, Reject("no such customer"), now_ms=70_000)
    engine.ended(later, RetryLater(9_000), now_ms=74_000)
    quick.started_ms = 74_900
    engine.note_time(now_ms=75_000)
    assert [str(each) for each in engine.stuck(1_000)] == [
        "orders-0[0] key=b'hangs': handler runs for 75 s; 2 messages wait behind it",
        "orders-0[1] key=b'fails': retry in 0 s after 1 failure, ValueError: broken",
        "orders-0[2] key=b'bad': waits for the dead-letter store for 5 s after 1 failure, Reject: no such customer",
        "orders-0[3] key=b'later': postponed, comes again in 8 s",
    ]
    with pytest.raises(ArgumentError, match="least_ms is -1"):
        engine.stuck(-1)


def test_a_blocked_message_whose_copy_is_written_is_still_stuck() -> None:
    engine = engine_of("log", poison=Poison.BLOCK, archive_blocked=True, writes=True)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, Reject("bad"), now_ms=0)
    (asked,) = [action for action in engine.advance() if isinstance(action, WriteDeadLetter)]
    engine.written(asked, None, now_ms=0)
    engine.note_time(now_ms=2_000)
    (stuck,) = engine.stuck(0)
    assert stuck.what == "blocked for 2 s after 1 failure, Reject: bad"


def test_stuck_says_for_how_long_a_key_is_blocked() -> None:
    engine = engine_of("log", poison=Poison.BLOCK)
    for offset in range(2):
        engine.submit("log", offset, "key", offset)
    (run,) = begun(engine, 0)
    engine.ended(run, Reject("bad"), now_ms=1_000)
    engine.note_time(now_ms=62_000)
    (stuck,) = engine.stuck(1_000)
    assert str(stuck) == "log[0] key=b'key': blocked for 61 s after 1 failure, Reject: bad; 1 message waits behind it"
    engine.unblock("log", "key")
    assert engine.stuck(1_000) == []


@pytest.mark.parametrize("what", ["commit", "hook", "handler"])
def test_a_runner_that_an_error_stops_says_where_and_is_no_longer_up(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the store is away")

    runner: ThreadRunner[int] = ThreadRunner(
        fail if what == "handler" else lambda _: None,
        commit=fail if what == "commit" else lambda *_: None,
        hooks=Hooks(ended=fail) if what == "hook" else None,
        config=RunnerConfig(call_attempts=1, retry=RetryPolicy(max_redeliveries=0)),
    )

    def serve() -> None:
        with runner:
            runner.add_log("orders-0", start=17)
            runner.submit("orders-0", 17, "order-7", 0)

    with pytest.raises(OSError, match="the store is away") as raised:
        serve()
    assert up(runner) == 0
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    known: Any = record.__dict__["keyshared"]
    assert (known["event"], known["log"]) == ("stopped_by_error", "orders-0")
    (note,) = raised.value.__notes__
    assert "orders-0" in note
    if what != "commit":
        assert (known["offset"], known["key"]) == (17, b"order-7")
        assert "orders-0[17] key=b'order-7'" in note
        assert "orders-0[17] key=b'order-7'" in record.getMessage()


def up(runner: ThreadRunner[int]) -> float:
    return next(value for name, _, value in runner.metrics() if name == "keyshared_up")


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no such signal")
def test_a_signal_logs_what_is_stuck(caplog: pytest.LogCaptureFixture) -> None:
    begun, release = Event(), Event()

    def handle(_: int) -> None:
        begun.set()
        assert release.wait(LONG_S)

    with ThreadRunner(handle).stopping_on_signals() as runner:
        runner.add_log("orders", start=0)
        runner.submit("orders", 0, "order-1", 0)
        assert begun.wait(LONG_S)
        signal.raise_signal(signal.SIGUSR1)
        for _ in range(10_000):
            if "handler runs" in caplog.text:
                break
            runner.sleep(2)
        release.set()
    assert "orders[0] key=b'order-1': handler runs for" in caplog.text


def test_a_logger_that_calls_its_runner_does_not_hang_it() -> None:
    seen: list[str] = []

    class Curious(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            try:
                runner.stats()
            except Exception as error:  # noqa: BLE001  # noted
                seen.append(type(error).__name__)

    logger = logging.getLogger("curious")
    logger.addHandler(Curious())

    def handle(_: int) -> None:
        raise Reject("bad")

    dead: list[DeadLetter[int]] = []
    runner = ThreadRunner(handle, dead_letter=dead.append, logger=logger)
    with runner:
        runner.add_log("log", start=0)
        runner.submit("log", 0, "key", 0)
    assert {*seen} == {"CalledFromHookError"}
    assert len(dead) == 1


@pytest.mark.parametrize("kind", [ThreadRunner, AsyncRunner])
@pytest.mark.parametrize(
    "handle", [lambda: None, lambda _, __: None, lambda *, message: message], ids=["none", "two", "by name"]
)
def test_a_handler_that_cannot_take_one_message_is_refused(kind: Any, handle: Any) -> None:
    with pytest.raises(ArgumentError, match="take a message as its only argument"):
        kind(handle)


def test_functions_whose_arguments_are_not_known_are_taken() -> None:
    ThreadRunner(print)
    ThreadRunner(max)
    of_one: Any = lambda _: None  # noqa: E731  # and commit gets three
    with pytest.raises(ArgumentError, match=r"commit is .*; it must take a log, a position and a token"):
        ThreadRunner(print, commit=of_one)


def test_a_run_shows_its_offsets() -> None:
    engine = engine_of("log")
    engine.submit("log", 4, None, 0)
    (run,) = begun(engine, 0)
    assert isinstance(run, Run)
    assert run.offsets == (4,)
