"""The engine by hand: who gets a worker, who has room, and when what is asked for."""

from asyncio import CancelledError
from functools import partial
from traceback import walk_tb
from typing import Any

import pytest

from keyshared import DispatcherConfig, KeySharedDispatcher, Poison, RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.effects import Blocked, BlockReason, Dropped, Spilled
from keyshared.errors import ArgumentError
from keyshared.placement.assigned import AssignedRanges
from keyshared.run import BusyKey, Hooks, PartlyDone, Reject, RetryLater, RunnerConfig, StoppedError, UnknownLogError
from keyshared.run.actions import (
    Cancel,
    Commit,
    Full,
    Left,
    LoadMany,
    Noticed,
    Roomy,
    Settle,
    Stopped,
    Stopping,
    Withdraw,
    WriteDeadLetter,
)
from keyshared.run.assignment import Run, Why
from keyshared.run.assignments import GRACE_MS
from keyshared.run.commit_token import read_token
from keyshared.run.engine import Engine


def engine_of(*logs: str, **settings: Any) -> Engine[int]:
    parts = {
        name: settings.pop(name)
        for name in ("ahead", "cancels", "commits", "writes", "loads", "settles")
        if name in settings
    }
    engine: Engine[int] = Engine(RunnerConfig(**settings), **parts)
    for log in logs:
        engine.add_log(log, start=0, now_ms=0)
    record(engine)
    return engine


def record(engine: Engine[int]) -> None:
    """Make the first commits: no handler begins before them."""
    for action in engine.advance(now_ms=0):
        assert isinstance(action, Commit)
        engine.committed(action, None, now_ms=0)
        action.log.commit_at_ms = 0


def begun(engine: Engine[int], now_ms: int | None = None) -> list[Run[int]]:
    return [action for action in engine.advance(now_ms=now_ms) if isinstance(action, Run)]


def places(runs: list[Run[int]]) -> list[tuple[str, int]]:
    return [(run.log.name, run.delivery.offset) for run in runs]


def test_a_free_worker_goes_to_each_log_in_turn_however_much_another_has() -> None:
    engine = engine_of("busy", "quiet", workers=1)
    for offset in range(20):
        engine.submit("busy", offset, f"key-{offset}", offset)
    (run,) = begun(engine)
    engine.submit("quiet", 0, "key", 0)
    engine.submit("quiet", 1, "key", 1)
    served = []
    for _ in range(4):
        engine.ended(run, None)
        (run,) = begun(engine)
        served += places([run])
    assert served == [("busy", 1), ("quiet", 0), ("busy", 2), ("quiet", 1)]


def test_no_worker_is_idle_while_any_log_has_something() -> None:
    engine = engine_of("one", "two", workers=6)
    for offset in range(5):
        engine.submit("one", offset, f"key-{offset}", offset)
    for offset in range(5):
        engine.submit("two", offset, "the same key", offset)
    assert sorted(places(begun(engine))) == [("one", 0), ("one", 1), ("one", 2), ("one", 3), ("one", 4), ("two", 0)]


def test_a_log_may_use_what_others_leave_and_its_own_share_in_any_case() -> None:
    engine = engine_of("greedy", "late", window=10, workers=1)
    for offset in range(10):
        engine.submit("greedy", offset, "key", offset)
    assert (engine.room("greedy"), engine.room("late")) == (0, 5)
    for offset in range(5):
        engine.submit("late", offset, "key", offset)
    assert engine.room("late") == 0
    run, full, also_full = engine.advance()
    assert isinstance(run, Run)
    assert isinstance(full, Full)
    assert isinstance(also_full, Full)


def test_a_full_log_is_roomy_again_when_another_has_left() -> None:
    engine = engine_of("greedy", "other", window=8, workers=1)
    for offset in range(8):
        engine.submit("other", offset, "key", offset)
    for offset in range(4):
        engine.submit("greedy", offset, "key", offset)
    assert len([action for action in engine.advance() if isinstance(action, Full)]) == 2
    engine.lose_log("other")
    assert [action.log.name for action in engine.advance() if isinstance(action, Roomy)] == ["greedy"]


def test_a_full_log_is_roomy_when_a_quarter_of_what_it_may_use_is_free_however_many_logs_there_are() -> None:
    engine = engine_of("stuck", "other", *map(str, range(8)), window=100, workers=20)
    for offset in range(100):
        engine.submit("stuck", offset, "key", offset)
    for offset in range(engine.room("other")):
        engine.submit("other", offset, f"key-{offset}", offset)
    runs = [run for run in begun(engine, 0) if run.log.name == "other"]
    assert len(runs) == 10, "its share"
    roomy = []
    for run in runs:
        engine.ended(run, None)
        roomy.append([action.log.name for action in engine.advance() if isinstance(action, Roomy)])
    assert roomy == [[], ["other"], *[[]] * 8], "a quarter of its share, rounded down"


def test_a_commit_is_made_when_a_restart_would_redo_less_and_not_more_often_than_allowed() -> None:
    engine = engine_of("log", workers=3, commits=True, commit_every_ms=100)
    for offset in range(3):
        engine.submit("log", offset, f"key-{offset}", offset, now_ms=0)
    first, second, third = begun(engine, 0)
    engine.ended(third, None, now_ms=10)
    (above,) = engine.advance(now_ms=10)  # at once: nothing was committed in the last 100 ms
    assert isinstance(above, Commit)
    assert above.position == 0, "the first is not done, but the token says what is"
    engine.ended(second, None, now_ms=20)
    engine.committed(above, None, now_ms=30)
    assert engine.advance(now_ms=109) == []
    assert engine.next_deadline_ms() == 110
    (more,) = engine.advance(now_ms=110)
    assert isinstance(more, Commit)
    cursor, _ = read_token(more.token)
    assert (more.position, cursor) == (0, engine.log("log").dispatcher.cursor_token().text)
    engine.ended(first, None, now_ms=300)
    assert engine.advance(now_ms=300) == [], "one commit of a log at a time"
    engine.committed(more, None, now_ms=310)
    (last,) = engine.advance(now_ms=310)
    assert isinstance(last, Commit)
    assert last.position == 3


def test_the_beginning_of_a_log_that_was_never_committed_is_committed() -> None:
    engine: Engine[int] = Engine(RunnerConfig(), commits=True)
    engine.add_log("log")
    engine.submit("log", 17, "key", 17)
    (commit,) = engine.advance(now_ms=0)
    assert isinstance(commit, Commit)
    assert commit.position == 17
    engine.committed(commit, None)
    assert places(begun(engine)) == [("log", 17)], "no handler begins before the first commit"


def test_a_log_of_which_nothing_was_read_has_no_position_to_commit() -> None:
    engine: Engine[int] = Engine(RunnerConfig(), commits=True)
    engine.add_log("log")
    engine.submit_many("log", [])
    assert engine.advance(now_ms=0) == []


def test_what_is_put_off_comes_again_when_it_was_asked_for_and_without_a_failure() -> None:
    engine = engine_of("log", retry=RetryPolicy(max_delay_ms=50, base_delay_ms=1))
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, RetryLater(10**6), now_ms=5)
    assert engine.why_blocked("log", 0) == Blocking(BlockReason.POSTPONED)
    assert engine.advance(now_ms=10**6 + 4) == []
    assert engine.next_deadline_ms() == 10**6 + 5
    (again,) = begun(engine, 10**6 + 5)
    assert again.delivery.failures == 0
    assert engine.why_blocked("log", 0) is None
    assert engine.stats().postponed == 1


@pytest.mark.parametrize("raised", [SystemExit(), CancelledError(), GeneratorExit(), BaseException("odd")])
def test_a_handler_that_raises_no_exception_has_failed_and_does_not_spin(raised: BaseException) -> None:
    engine = engine_of(
        "log", writes=True, retry=RetryPolicy(max_redeliveries=2, base_delay_ms=1_000, max_delay_ms=1_000)
    )
    engine.submit("log", 0, "key", 0)
    for now in (0, 1_000, 2_000):
        (run,) = begun(engine, now)
        engine.ended(run, raised, now_ms=now)
        if now < 2_000:
            assert engine.advance(now_ms=now + 999) == []
    (asked,) = engine.advance(now_ms=2_000)
    assert isinstance(asked, WriteDeadLetter)
    assert (asked.dead_letter.failures, asked.dead_letter.error) == (3, raised)


def test_a_keyboard_interrupt_gives_the_message_back() -> None:
    engine = engine_of("log", retry=RetryPolicy(max_redeliveries=0, base_delay_ms=10))
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, KeyboardInterrupt(), now_ms=0)
    assert places(begun(engine, 10)) == [("log", 0)]
    assert (engine.stats().released, engine.stats().failed) == (1, 0)


def test_a_dead_letter_is_tried_again_with_growing_delays_and_then_stops_everything() -> None:
    engine = engine_of("log", writes=True, call_attempts=3, stop_ms=0)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, Reject("bad"), now_ms=0)
    now, waits = 0, []
    for _ in range(2):
        (letter,) = engine.advance(now_ms=now)
        assert isinstance(letter, WriteDeadLetter)
        engine.written(letter, OSError("away"), now_ms=now)
        due = engine.next_deadline_ms()
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits == [100, 200]
    (letter,) = engine.advance(now_ms=now)
    assert isinstance(letter, WriteDeadLetter)
    engine.written(letter, OSError("gone"), now_ms=now)
    assert [type(action) for action in engine.advance(now_ms=now)] == [Stopping, Left, Stopped]
    assert repr(engine.error) == "OSError('gone')"
    with pytest.raises(OSError, match="gone"):
        engine.submit("log", 1, "key", 1)


def test_what_is_left_in_the_log_is_asked_for_together_and_one_request_at_a_time() -> None:
    engine = engine_of("log", loads=True, max_loaded_per_key=2)
    for offset in range(6):
        engine.submit("log", offset, "key", offset)
    spilled = [action.effect for action in engine.advance(now_ms=0) if isinstance(action, Noticed)]
    assert spilled == [Spilled(offset) for offset in (2, 3, 4, 5)]
    (run,) = engine.log("log").runs
    asked = []
    for _ in range(2):
        engine.ended(run, None)
        actions = engine.advance()
        (run,) = [action for action in actions if isinstance(action, Run)]
        asked += [action for action in actions if isinstance(action, LoadMany)]
        if run.message == 1:
            break
    (load,) = asked
    assert load.offsets == (2,)
    engine.ended(run, None)
    assert engine.advance() == [], "the next two wait for the first request"
    engine.loaded(load, {2: 2})
    actions = engine.advance()
    assert [action.offsets for action in actions if isinstance(action, LoadMany)] == [(3,)]
    assert [run.message for run in actions if isinstance(run, Run)] == [2]


def test_a_log_that_leaves_late_is_given_up_step_by_step() -> None:
    engine = engine_of("log", cancels=True, commits=True)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    log = engine.remove_log("log", until_ms=50, now_ms=0)
    assert [type(action).__name__ for action in engine.advance(now_ms=0)] == ["Withdraw"]
    assert [type(action).__name__ for action in engine.advance(now_ms=50)] == ["Cancel"]
    assert engine.advance(now_ms=50 + GRACE_MS - 1) == []
    (commit,) = engine.advance(now_ms=50 + GRACE_MS)
    assert isinstance(commit, Commit)
    engine.committed(commit, None)
    assert engine.advance() == [Left(log, is_finished=False)]
    with pytest.raises(UnknownLogError):
        engine.log("log")
    engine.ended(run, None)
    assert engine.stats().late == 1


def test_a_commit_that_does_not_come_back_does_not_keep_a_log() -> None:
    engine = engine_of("log", commits=True)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, None)
    (commit,) = engine.advance(now_ms=0)
    engine.stop(until_ms=10, now_ms=0)
    assert engine.advance(now_ms=10 + 2 * GRACE_MS - 1) == [Stopping()]
    assert [type(action) for action in engine.advance(now_ms=10 + 2 * GRACE_MS)] == [Left, Stopped]
    assert isinstance(commit, Commit)
    engine.committed(commit, None)
    with pytest.raises(StoppedError):
        engine.add_log("log")


def test_a_second_stop_may_be_shorter() -> None:
    engine = engine_of("log")
    engine.submit("log", 0, "key", 0)
    begun(engine, 0)
    engine.stop(until_ms=10_000, now_ms=0)
    engine.advance(now_ms=0)
    engine.stop(until_ms=0, now_ms=0)
    assert engine.advance(now_ms=0)[-1] == Stopped(is_finished=False)


def test_a_blocked_key_is_told_of_and_waits_for_nobody() -> None:
    engine = engine_of("log", poison=Poison.BLOCK)
    engine.submit("log", 0, "key", 0)
    engine.submit("log", 1, "key", 1)
    (run,) = begun(engine, 0)
    engine.ended(run, Reject("bad"))
    (noticed,) = engine.advance(now_ms=0)
    assert isinstance(noticed, Noticed)
    assert noticed.effect == Blocked(0, b"key", 1)
    assert engine.is_idle()
    assert engine.outstanding() == 2
    assert not engine.unblock("log", "another")
    assert engine.unblock("log", "key")
    assert not engine.unblock("log", "key")
    assert places(begun(engine)) == [("log", 0)]


def test_to_unblock_a_key_in_quarantine_ends_that() -> None:
    engine = engine_of("log", quarantine=True, writes=True)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, Reject("bad"))
    (letter,) = (each for each in engine.advance(now_ms=0) if isinstance(each, WriteDeadLetter))
    engine.written(letter, None)
    engine.submit("log", 1, "another key", 1)
    assert not engine.unblock("log", "another key")
    assert engine.unblock("log", "key")
    assert not engine.unblock("log", "key")


def test_a_name_can_be_had_once_and_again_when_it_has_left() -> None:
    engine = engine_of("log")
    with pytest.raises(ArgumentError, match="log is 'log'"):
        engine.add_log("log")
    engine.remove_log("log", until_ms=0)
    engine.advance(now_ms=0)
    engine.add_log("log")


@pytest.mark.parametrize(
    "settings",
    [
        {"workers": 0},
        {"timeout_ms": 0},
        {"window": 0},
        {"window": 10, "max_tracked": 9},
        {"batch": 5, "max_loaded_per_key": 4},
        {"retry": 3},
        {"poison": "drop"},
        {"poison": Poison.DROP, "quarantine": True},
        {"archive_blocked": True},
        {"commit_every_ms": -1},
        {"call_attempts": 0},
        {"token_bytes": 63},
    ],
)
def test_nonsense_is_refused_when_it_is_configured(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        RunnerConfig(**settings)


def refused(engine: Engine[int], offset: int = 0, now_ms: int = 0) -> Run[int]:
    """Submit a message, and end its handler with a `Reject`."""
    engine.submit("log", offset, f"key-{offset}", offset, now_ms=now_ms)
    (run,) = begun(engine, now_ms)
    engine.ended(run, Reject("bad"), now_ms=now_ms)
    return run


def back_while_its_handler_runs() -> tuple[Engine[int], Run[int]]:
    """A log that was lost and has come back, with a message that waits for the handler of the earlier stay."""
    engine = engine_of("log", workers=2)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.lose_log("log")
    engine.add_log("log", start=0)
    engine.submit("log", 0, "key", 0)
    assert begun(engine) == []
    return engine, run


def test_a_run_of_a_lost_log_that_is_taken_back_lets_its_key_go_on() -> None:
    engine, run = back_while_its_handler_runs()
    engine.withdrawn(run)
    assert places(begun(engine)) == [("log", 0)]
    assert engine.stats().late == 0, "its handler never began"


def test_what_waits_for_a_handler_of_an_earlier_stay_is_forgotten_with_its_log() -> None:
    engine = engine_of("log", workers=3)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    for _ in range(2):
        engine.lose_log("log")
        engine.add_log("log", start=0)
        engine.submit("log", 0, "key", 0)
        assert begun(engine) == []
    engine.ended(run, None)
    (again,) = begun(engine)
    assert again.log is engine.log("log")
    assert engine.stats().running == 1


def test_what_waited_for_a_handler_of_an_earlier_stay_does_not_begin_when_its_log_leaves() -> None:
    engine, run = back_while_its_handler_runs()
    engine.ended(run, None)
    engine.remove_log("log", until_ms=10)
    assert begun(engine) == []


def test_a_coroutine_of_a_lost_log_is_cancelled_at_once() -> None:
    engine = engine_of("log", cancels=True)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.lose_log("log")
    assert Cancel(run) in engine.advance()


def test_a_dead_letter_that_is_written_when_its_log_has_gone_counts_for_nothing() -> None:
    engine = engine_of("log", writes=True)
    refused(engine)
    (letter,) = engine.advance(now_ms=0)
    assert isinstance(letter, WriteDeadLetter)
    engine.lose_log("log")
    engine.advance(now_ms=0)
    engine.written(letter, None, now_ms=1)
    engine.written(letter, OSError("away"), now_ms=1)
    assert engine.advance(now_ms=10**6) == []
    assert (engine.stats().dead_letters, engine.error) == (0, None)


def test_a_dead_letter_is_not_tried_again_when_its_log_has_left_meanwhile() -> None:
    engine = engine_of("log", writes=True)
    refused(engine)
    (letter,) = engine.advance(now_ms=0)
    assert isinstance(letter, WriteDeadLetter)
    engine.written(letter, OSError("away"), now_ms=0)
    engine.remove_log("log", until_ms=10, now_ms=0)
    assert [type(action) for action in engine.advance(now_ms=10)] == [Left]
    assert engine.advance(now_ms=10**6) == []


def test_a_second_letter_that_cannot_be_written_changes_neither_the_error_nor_the_time_of_the_end() -> None:
    engine = engine_of("log", writes=True, call_attempts=1, stop_ms=50)
    letters = []
    for offset in range(2):
        refused(engine, offset)
        letters += [action for action in engine.advance(now_ms=0) if isinstance(action, WriteDeadLetter)]
    first, second = letters
    engine.written(first, OSError("first"), now_ms=0)
    engine.written(second, OSError("second"), now_ms=40)
    assert repr(engine.error) == "OSError('first')"
    assert [type(action) for action in engine.advance(now_ms=50)] == [Stopping, Left, Stopped]


def test_a_message_that_is_given_up_without_dead_letters_stops_everything_with_its_error() -> None:
    engine = engine_of("log")
    refused(engine)
    engine.advance(now_ms=0)
    assert repr(engine.error) == "Reject('bad')"


def test_messages_that_were_read_for_a_log_that_has_gone_are_ignored() -> None:
    engine = engine_of("log", loads=True, max_loaded_per_key=1, workers=1)
    for offset in range(3):
        engine.submit("log", offset, "key", offset)
    (run,) = begun(engine, 0)
    engine.ended(run, None)
    (load,) = [action for action in engine.advance() if isinstance(action, LoadMany)]
    engine.lose_log("log")
    engine.advance()
    engine.loaded(load, {1: 1})
    assert engine.advance() == []


def test_messages_that_nobody_can_read_again_are_kept_and_take_room() -> None:
    engine = engine_of("log", window=3, max_loaded_per_key=1, workers=1)
    for offset in range(3):
        engine.submit("log", offset, "key", offset)
    assert engine.room("log") == 0
    for offset in range(3):
        (run,) = begun(engine, 0)
        assert run.message == offset
        engine.ended(run, None)
    assert engine.room("log") == 3


def test_a_message_that_is_no_longer_in_the_log_is_passed_over() -> None:
    engine = engine_of("log", loads=True, max_loaded_per_key=1, workers=1)
    for offset in range(3):
        engine.submit("log", offset, "key", offset)
    (run,) = begun(engine, 0)
    engine.ended(run, None)
    (load,) = [action for action in engine.advance() if isinstance(action, LoadMany)]
    engine.loaded(load, dict.fromkeys(load.offsets))
    actions = engine.advance()
    assert [action.offsets for action in actions if isinstance(action, LoadMany)] == [(2,)]
    assert engine.outstanding() == 1


def test_a_commit_that_fails_is_the_last_one_of_its_log() -> None:
    engine = engine_of("log", commits=True, commit_every_ms=0, call_attempts=1)
    for offset in range(2):
        engine.submit("log", offset, f"key-{offset}", offset)
    first, second = begun(engine, 0)
    engine.ended(first, None)
    (commit,) = engine.advance(now_ms=0)
    assert isinstance(commit, Commit)
    engine.committed(commit, OSError("no"))
    engine.ended(second, None)
    assert [type(action) for action in engine.advance(now_ms=0)] == [Stopping, Withdraw, Left, Stopped]
    assert repr(engine.error) == "OSError('no')"


def test_a_drain_hurries_the_last_commit_but_not_while_something_runs() -> None:
    engine = engine_of("log", commits=True, commit_every_ms=100)
    for offset in range(2):
        engine.submit("log", offset, f"key-{offset}", offset)
    first, second = begun(engine, 0)
    engine.ended(first, None)
    (commit,) = engine.advance(now_ms=0)
    assert isinstance(commit, Commit)
    engine.committed(commit, None)
    assert not engine.hurry(), "nothing has changed"
    engine.ended(second, None)
    engine.advance(now_ms=10)
    assert engine.hurry()
    (last,) = engine.advance(now_ms=10)
    assert isinstance(last, Commit)
    assert not engine.hurry(), "the commit is on its way"
    engine.committed(last, None)
    assert engine.is_idle()


def test_a_drain_does_not_hurry_while_something_runs() -> None:
    engine = engine_of("log", commits=True, commit_every_ms=100)
    for offset in range(3):
        engine.submit("log", offset, f"key-{offset}", offset)
    first, second, _ = begun(engine, 0)
    engine.ended(first, None)
    (commit,) = engine.advance(now_ms=0)
    assert isinstance(commit, Commit)
    engine.committed(commit, None)
    engine.ended(second, None)
    assert not engine.hurry()
    assert engine.advance(now_ms=10) == []


def test_retries_of_a_log_that_has_gone_do_not_come() -> None:
    engine = engine_of("log", retry=RetryPolicy(base_delay_ms=10))
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, ValueError("broken"), now_ms=0)
    engine.advance(now_ms=0)
    engine.lose_log("log")
    engine.advance(now_ms=0)
    assert engine.next_deadline_ms() is not None
    assert engine.advance(now_ms=10**6) == []


def test_a_retry_that_is_due_before_another_comes_at_its_own_time() -> None:
    engine = engine_of("log", retry=RetryPolicy(base_delay_ms=10), workers=2)
    for offset in range(2):
        engine.submit("log", offset, f"key-{offset}", offset)
    first, second = begun(engine, 0)
    engine.ended(first, ValueError("broken"), now_ms=0)
    (first,) = begun(engine, 10)
    engine.ended(first, ValueError("broken"), now_ms=10)  # due in 20 ms
    engine.ended(second, ValueError("broken"), now_ms=15)  # due in 10 ms
    assert begun(engine, 24) == []
    assert places(begun(engine, 25)) == [("log", 1)]
    assert begun(engine, 29) == []
    assert places(begun(engine, 30)) == [("log", 0)]


def test_a_dropped_message_is_noticed_and_can_be_committed() -> None:
    engine = engine_of("log", poison=Poison.DROP, commits=True)
    refused(engine)
    noticed, commit = engine.advance(now_ms=0)
    assert isinstance(noticed, Noticed)
    assert isinstance(noticed.effect, Dropped)
    assert isinstance(commit, Commit)
    assert commit.position == 1


def test_figures_of_a_moment_and_the_keys_with_the_most_to_do() -> None:
    engine = engine_of("log", workers=2)
    assert engine.wants_messages()
    for offset, key in enumerate(["busy", "busy", "other", "busy"]):
        engine.submit("log", offset, key, offset)
    begun(engine, 0)
    assert not engine.wants_messages()
    assert engine.busiest_keys(1) == [BusyKey("log", b"busy", 3)]
    assert engine.stats().running == 2
    with pytest.raises(ArgumentError, match="most is 0"):
        engine.busiest_keys(0)


@pytest.mark.parametrize("start", [0, 2**63 - 2, 1 - 2**63])
def test_the_shortest_token_that_is_allowed_holds_any_position(start: int) -> None:
    engine: Engine[int] = Engine(RunnerConfig(token_bytes=64), commits=True)
    engine.add_log("log", start=start)
    record(engine)
    engine.submit("log", 2**63 - 2, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, None)
    (commit,) = engine.advance(now_ms=0)
    assert isinstance(commit, Commit)
    assert commit.position == 2**63 - 1


def test_a_log_that_leaves_takes_nothing_more() -> None:
    engine = engine_of("log")
    engine.submit("log", 0, "key", 0)
    begun(engine, 0)
    engine.remove_log("log", until_ms=100, now_ms=0)
    for call in (
        partial(engine.room, "log"),
        partial(engine.submit, "log", 1, "key", 1),
        partial(engine.room, "other"),
    ):
        with pytest.raises(UnknownLogError, match="call add_log first"):
            call()


def test_a_heart_that_has_stopped_says_what_can_be_done() -> None:
    engine = engine_of("log")
    engine.stop(until_ms=0, now_ms=0)
    with pytest.raises(StoppedError, match="begin another one"):
        engine.room("log")


def test_hooks_have_to_be_callable() -> None:
    assert Hooks(full=print).roomy is None
    with pytest.raises(ArgumentError, match="full"):
        Hooks(full=3)  # type: ignore[arg-type]


def test_whoever_waits_hears_of_a_stop_and_of_a_first_error_after_it_once() -> None:
    engine = engine_of("log")
    for _ in range(2):
        engine.stop(until_ms=50, now_ms=0)
    assert [type(action) for action in engine.advance(now_ms=0)] == [Stopping, Left, Stopped]
    for error in ("first", "second"):
        engine.fail(OSError(error))
    assert engine.advance(now_ms=0) == [Stopping()]
    assert repr(engine.error) == "OSError('first')"


def settlements(engine: Engine[int]) -> list[Settle[int]]:
    return [action for action in engine.advance() if isinstance(action, Settle)]


def test_what_is_settled_is_told_once_together_and_one_call_of_a_log_at_a_time() -> None:
    engine = engine_of("log", settles=True, writes=True, workers=8, poison=Poison.DEAD_LETTER)
    for offset in range(5):
        engine.submit("log", offset, f"key-{offset}", offset)
    runs = begun(engine, 0)
    for run in runs[:2]:
        engine.ended(run, None)
    (first,) = settlements(engine)
    assert first.offsets == (0, 1)
    engine.ended(runs[2], ValueError("comes again"))
    engine.ended(runs[3], Reject("bad"))
    (letter,) = [action for action in engine.advance() if isinstance(action, WriteDeadLetter)]
    engine.ended(runs[4], None)
    assert settlements(engine) == [], "the call before has not returned"
    engine.written(letter, None)
    assert not engine.is_idle()
    engine.settled(first, None)
    (second,) = settlements(engine)
    assert second.offsets == (4, 3), "in the order of their ends; a failed message is not among them"


def test_a_log_leaves_when_its_last_settled_message_is_told() -> None:
    engine = engine_of("log", settles=True)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    log = engine.remove_log("log", until_ms=50, now_ms=0)
    engine.ended(run, None)
    (asked,) = settlements(engine)
    assert engine.advance(now_ms=40) == []
    engine.settled(asked, None)
    assert engine.advance(now_ms=40) == [Left(log, is_finished=True)]


def test_a_log_that_cannot_be_told_what_is_settled_stops_everything_and_is_told_no_more() -> None:
    engine = engine_of("log", settles=True, workers=2, call_attempts=1)
    for offset in range(2):
        engine.submit("log", offset, f"key-{offset}", offset)
    first, second = begun(engine, 0)
    engine.ended(first, None)
    (asked,) = settlements(engine)
    engine.settled(asked, OSError("no"))
    engine.ended(second, None)
    assert [type(action) for action in engine.advance()] == [Stopping, Withdraw, Left, Stopped]
    assert repr(engine.error) == "OSError('no')"


def test_what_comes_of_telling_a_log_that_was_lost_means_nothing() -> None:
    engine = engine_of("log", settles=True)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, None)
    (asked,) = settlements(engine)
    engine.lose_log("log")
    engine.settled(asked, OSError("its connection is gone"))
    assert engine.error is None


def test_a_log_says_where_to_read_it() -> None:
    engine = engine_of(commits=True)
    assert engine.add_log("new") is None
    assert engine.add_log("old", start=7) == 7
    token = KeySharedDispatcher[int](AssignedRanges.sole_owner("c1"), DispatcherConfig(start=9)).cursor_token().text
    assert engine.add_log("known", start=7, resume_from=token) == 9


def test_what_a_store_says_of_a_log_that_was_lost_means_nothing() -> None:
    engine = engine_of("lost", commits=True, loads=True, max_loaded_per_key=1, workers=1)
    for offset in range(3):
        engine.submit("lost", offset, "key", offset)
    (run,) = begun(engine, 0)
    engine.ended(run, None)
    actions = engine.advance(now_ms=0)
    (commit,) = [action for action in actions if isinstance(action, Commit)]
    (load,) = [action for action in actions if isinstance(action, LoadMany)]
    engine.lose_log("lost")
    engine.committed(commit, OSError("it is somebody else's"))
    engine.loaded(load, {}, OSError("it is somebody else's"))
    assert (engine.error, engine.stats().commits) == (None, 1)


def test_an_end_is_told_as_it_counts() -> None:
    engine = engine_of("log", cancels=True, timeout_ms=10, batch=3)
    told: list[str] = []
    for offset, raised in enumerate(
        [
            CancelledError(),
            PartlyDone(0, CancelledError()),
            PartlyDone(1, ValueError()),
            None,
            RetryLater(0),
            Reject("bad"),
        ]
    ):
        engine.submit("log", offset, f"key-{offset}", offset, now_ms=0)
        (run,) = begun(engine, 0)
        run.started_ms, run.cancelled = 0, Why.TIMEOUT
        told.append(repr(engine.ended(run, raised)))
    too_slow = "TimeoutError('the handler ran for 0 ms and was cancelled')"
    assert told == [
        too_slow,
        f"PartlyDone(0, {too_slow})",
        "ArgumentError('done', 1, 'be below 1, the length of the batch')",
        too_slow,
        too_slow,
        "Reject('bad')",
    ]
    assert (engine.stats().postponed, engine.stats().rejected) == (0, 1)


def cancelled(actions: list[Any]) -> list[int]:
    """The messages whose handlers are to be cancelled."""
    return [action.run.message for action in actions if isinstance(action, Cancel)]


@pytest.mark.parametrize("first", ["timeout", "stop", "remove_log"])
def test_a_coroutine_is_cancelled_once_whatever_asks_for_it_later(first: str) -> None:
    engine = engine_of("log", cancels=True, timeout_ms=20 if first == "timeout" else 1_000)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    run.started_ms = 0
    if first == "stop":
        engine.stop(until_ms=20, now_ms=0)
    elif first == "remove_log":
        engine.remove_log("log", until_ms=20, now_ms=0)
    engine.advance(now_ms=0)
    assert cancelled(engine.advance(now_ms=20)) == [0]
    engine.stop(until_ms=30, now_ms=20)
    assert cancelled([*engine.advance(now_ms=20), *engine.advance(now_ms=30), *engine.advance(now_ms=1_000)]) == []
    if first == "timeout":
        engine.lose_log("log", now_ms=1_000)
        assert cancelled(engine.advance(now_ms=1_000)) == []


def test_what_was_cancelled_because_its_log_leaves_and_returns_is_not_done() -> None:
    engine = engine_of("log", cancels=True, commits=True)
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    log = engine.remove_log("log", until_ms=0, now_ms=0)
    engine.advance(now_ms=0)
    assert cancelled(engine.advance(now_ms=0)) == [0]
    assert repr(engine.ended(run, None)) == "BaseException('the handler was cancelled, and returned all the same')"
    (commit,) = engine.advance(now_ms=1)
    assert isinstance(commit, Commit)
    assert read_token(commit.token)[1] == "", "an orderly end"
    engine.committed(commit, None)
    assert engine.advance(now_ms=1) == [Left(log, is_finished=True)]
    assert (engine.stats().done, engine.stats().released) == (0, 1)


def test_what_has_not_begun_is_taken_back_before_its_log_is_given_up() -> None:
    engine = engine_of("log")
    engine.submit("log", 0, "key", 0)
    (run,) = begun(engine, 0)
    log = engine.remove_log("log", until_ms=0, now_ms=0)
    assert [type(action).__name__ for action in engine.advance(now_ms=0)] == ["Withdraw"]
    engine.withdrawn(run, now_ms=0)
    assert engine.advance(now_ms=0) == [Left(log, is_finished=True)]


def test_an_error_that_is_raised_again_and_again_stays_as_short_as_it_was() -> None:
    def frames(error: BaseException) -> int:
        return len(list(walk_tb(error.__traceback__)))

    engine = engine_of("log")
    error = OSError("the disk is full")
    engine.fail(error)
    lengths = set()
    for _ in range(3):
        with pytest.raises(OSError, match="the disk is full") as raised:
            engine.room("log")
        lengths.add(frames(raised.value))
    assert len(lengths) == 1
