"""The heart by hand: who gets a worker, who has room, and when what is asked for."""

from asyncio import CancelledError
from functools import partial
from traceback import walk_tb
from typing import Any

import pytest

from keyshared import DispatcherConfig, KeySharedDispatcher, Poison, RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.effects import Blocked, BlockReason, Dropped, Spilled
from keyshared.errors import ArgumentError
from keyshared.placement import SoleOwner
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
    WriteLetter,
)
from keyshared.run.heart import Heart
from keyshared.run.log import Run, Why
from keyshared.run.stays import GRACE_MS


def heart_of(*logs: str, **settings: Any) -> Heart[int]:
    parts = {
        name: settings.pop(name)
        for name in ("ahead", "cancels", "commits", "writes", "loads", "settles")
        if name in settings
    }
    heart: Heart[int] = Heart(RunnerConfig(**settings), **parts)
    for log in logs:
        heart.add_log(log, start=0, now_ms=0)
    return heart


def begun(heart: Heart[int], now_ms: int | None = None) -> list[Run[int]]:
    return [action for action in heart.advance(now_ms=now_ms) if isinstance(action, Run)]


def places(runs: list[Run[int]]) -> list[tuple[str, int]]:
    return [(run.log.name, run.delivery.offset) for run in runs]


def test_a_free_worker_goes_to_each_log_in_turn_however_much_another_has() -> None:
    heart = heart_of("busy", "quiet", workers=1)
    for offset in range(20):
        heart.submit("busy", offset, f"key-{offset}", offset)
    (run,) = begun(heart)
    heart.submit("quiet", 0, "key", 0)
    heart.submit("quiet", 1, "key", 1)
    served = []
    for _ in range(4):
        heart.ended(run, None)
        (run,) = begun(heart)
        served += places([run])
    assert served == [("busy", 1), ("quiet", 0), ("busy", 2), ("quiet", 1)]


def test_no_worker_is_idle_while_any_log_has_something() -> None:
    heart = heart_of("one", "two", workers=6)
    for offset in range(5):
        heart.submit("one", offset, f"key-{offset}", offset)
    for offset in range(5):
        heart.submit("two", offset, "the same key", offset)
    assert sorted(places(begun(heart))) == [("one", 0), ("one", 1), ("one", 2), ("one", 3), ("one", 4), ("two", 0)]


def test_a_log_may_use_what_others_leave_and_its_own_share_in_any_case() -> None:
    heart = heart_of("greedy", "late", window=10, workers=1)
    for offset in range(10):
        heart.submit("greedy", offset, "key", offset)
    assert (heart.room("greedy"), heart.room("late")) == (0, 5)
    for offset in range(5):
        heart.submit("late", offset, "key", offset)
    assert heart.room("late") == 0
    run, full, also_full = heart.advance()
    assert isinstance(run, Run)
    assert isinstance(full, Full)
    assert isinstance(also_full, Full)


def test_a_full_log_is_roomy_again_when_another_has_left() -> None:
    heart = heart_of("greedy", "other", window=8, workers=1)
    for offset in range(8):
        heart.submit("other", offset, "key", offset)
    for offset in range(4):
        heart.submit("greedy", offset, "key", offset)
    assert len([action for action in heart.advance() if isinstance(action, Full)]) == 2
    heart.lose_log("other")
    assert [action.log.name for action in heart.advance() if isinstance(action, Roomy)] == ["greedy"]


def test_a_full_log_is_roomy_when_a_quarter_of_what_it_may_use_is_free_however_many_logs_there_are() -> None:
    heart = heart_of("stuck", "other", *map(str, range(8)), window=100, workers=20)
    for offset in range(100):
        heart.submit("stuck", offset, "key", offset)
    for offset in range(heart.room("other")):
        heart.submit("other", offset, f"key-{offset}", offset)
    runs = [run for run in begun(heart, 0) if run.log.name == "other"]
    assert len(runs) == 10, "its share"
    roomy = []
    for run in runs:
        heart.ended(run, None)
        roomy.append([action.log.name for action in heart.advance() if isinstance(action, Roomy)])
    assert roomy == [[], ["other"], *[[]] * 8], "a quarter of its share, rounded down"


def test_a_commit_is_made_when_a_restart_would_redo_less_and_not_more_often_than_allowed() -> None:
    heart = heart_of("log", workers=3, commits=True, commit_every_ms=100)
    for offset in range(3):
        heart.submit("log", offset, f"key-{offset}", offset, now_ms=0)
    first, second, third = begun(heart, 0)
    heart.ended(third, None, now_ms=10)
    (above,) = heart.advance(now_ms=10)  # at once: nothing was committed in the last 100 ms
    assert isinstance(above, Commit)
    assert above.position == 0, "the first is not done, but the token says what is"
    heart.ended(second, None, now_ms=20)
    heart.committed(above, None, now_ms=30)
    assert heart.advance(now_ms=109) == []
    assert heart.next_deadline_ms() == 110
    (more,) = heart.advance(now_ms=110)
    assert isinstance(more, Commit)
    assert (more.position, more.token) == (0, heart.log("log").dispatcher.cursor_token().text)
    heart.ended(first, None, now_ms=300)
    assert heart.advance(now_ms=300) == [], "one commit of a log at a time"
    heart.committed(more, None, now_ms=310)
    (last,) = heart.advance(now_ms=310)
    assert isinstance(last, Commit)
    assert last.position == 3


def test_the_beginning_of_a_log_that_was_never_committed_is_committed() -> None:
    heart: Heart[int] = Heart(RunnerConfig(), commits=True)
    heart.add_log("log")
    heart.submit("log", 17, "key", 17)
    _, commit = heart.advance(now_ms=0)
    assert isinstance(commit, Commit)
    assert commit.position == 17


def test_a_log_of_which_nothing_was_read_has_no_position_to_commit() -> None:
    heart: Heart[int] = Heart(RunnerConfig(), commits=True)
    heart.add_log("log")
    heart.submit_many("log", [])
    assert heart.advance(now_ms=0) == []


def test_what_is_put_off_comes_again_when_it_was_asked_for_and_without_a_failure() -> None:
    heart = heart_of("log", retry=RetryPolicy(max_delay_ms=50, base_delay_ms=1))
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    heart.ended(run, RetryLater(10**6), now_ms=5)
    assert heart.why_blocked("log", 0) == Blocking(BlockReason.POSTPONED)
    assert heart.advance(now_ms=10**6 + 4) == []
    assert heart.next_deadline_ms() == 10**6 + 5
    (again,) = begun(heart, 10**6 + 5)
    assert again.delivery.failures == 0
    assert heart.why_blocked("log", 0) is None
    assert heart.stats().put_off == 1


def test_a_handler_that_exits_each_time_does_not_spin() -> None:
    heart = heart_of("log", retry=RetryPolicy(max_redeliveries=0, base_delay_ms=1_000))
    heart.submit("log", 0, "key", 0)
    for now in range(0, 10_000, 1_000):
        (run,) = begun(heart, now)
        heart.ended(run, SystemExit(), now_ms=now)
        assert heart.advance(now_ms=now + 999) == []
    assert heart.stats().released == 10


def test_a_dead_letter_is_tried_again_with_growing_delays_and_then_stops_everything() -> None:
    heart = heart_of("log", writes=True, letter_tries=3, stop_ms=0)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    heart.ended(run, Reject("bad"), now_ms=0)
    now, waits = 0, []
    for _ in range(2):
        (letter,) = heart.advance(now_ms=now)
        assert isinstance(letter, WriteLetter)
        heart.written(letter, OSError("away"), now_ms=now)
        due = heart.next_deadline_ms()
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits == [100, 200]
    (letter,) = heart.advance(now_ms=now)
    assert isinstance(letter, WriteLetter)
    heart.written(letter, OSError("gone"), now_ms=now)
    assert [type(action) for action in heart.advance(now_ms=now)] == [Stopping, Left, Stopped]
    assert repr(heart.error) == "OSError('gone')"
    with pytest.raises(OSError, match="gone"):
        heart.submit("log", 1, "key", 1)


def test_what_is_left_in_the_log_is_asked_for_together_and_one_request_at_a_time() -> None:
    heart = heart_of("log", loads=True, max_loaded_per_key=2)
    for offset in range(6):
        heart.submit("log", offset, "key", offset)
    spilled = [action.effect for action in heart.advance(now_ms=0) if isinstance(action, Noticed)]
    assert spilled == [Spilled(offset) for offset in (2, 3, 4, 5)]
    (run,) = heart.log("log").runs
    asked = []
    for _ in range(2):
        heart.ended(run, None)
        actions = heart.advance()
        (run,) = [action for action in actions if isinstance(action, Run)]
        asked += [action for action in actions if isinstance(action, LoadMany)]
        if run.message == 1:
            break
    (load,) = asked
    assert load.offsets == (2,)
    heart.ended(run, None)
    assert heart.advance() == [], "the next two wait for the first request"
    heart.loaded(load, {2: 2})
    actions = heart.advance()
    assert [action.offsets for action in actions if isinstance(action, LoadMany)] == [(3,)]
    assert [run.message for run in actions if isinstance(run, Run)] == [2]


def test_a_log_that_leaves_late_is_given_up_step_by_step() -> None:
    heart = heart_of("log", cancels=True, commits=True)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    log = heart.remove_log("log", until_ms=50, now_ms=0)
    assert [type(action).__name__ for action in heart.advance(now_ms=0)] == ["Withdraw"]
    assert [type(action).__name__ for action in heart.advance(now_ms=50)] == ["Cancel"]
    assert heart.advance(now_ms=50 + GRACE_MS - 1) == []
    (left,) = heart.advance(now_ms=50 + GRACE_MS)
    assert left == Left(log, is_finished=False)
    with pytest.raises(UnknownLogError):
        heart.log("log")
    heart.ended(run, None)
    assert heart.stats().late == 1


def test_a_commit_that_does_not_come_back_does_not_keep_a_log() -> None:
    heart = heart_of("log", commits=True)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    heart.ended(run, None)
    (commit,) = heart.advance(now_ms=0)
    heart.stop(until_ms=10, now_ms=0)
    assert heart.advance(now_ms=10 + 2 * GRACE_MS - 1) == [Stopping()]
    assert [type(action) for action in heart.advance(now_ms=10 + 2 * GRACE_MS)] == [Left, Stopped]
    assert isinstance(commit, Commit)
    heart.committed(commit, None)
    with pytest.raises(StoppedError):
        heart.add_log("log")


def test_a_second_stop_may_be_shorter() -> None:
    heart = heart_of("log")
    heart.submit("log", 0, "key", 0)
    begun(heart, 0)
    heart.stop(until_ms=10_000, now_ms=0)
    heart.advance(now_ms=0)
    heart.stop(until_ms=0, now_ms=0)
    assert heart.advance(now_ms=0)[-1] == Stopped(is_finished=False)


def test_a_blocked_key_is_told_of_and_waits_for_nobody() -> None:
    heart = heart_of("log", poison=Poison.BLOCK)
    heart.submit("log", 0, "key", 0)
    heart.submit("log", 1, "key", 1)
    (run,) = begun(heart, 0)
    heart.ended(run, Reject("bad"))
    (noticed,) = heart.advance(now_ms=0)
    assert isinstance(noticed, Noticed)
    assert noticed.effect == Blocked(0, b"key", 1)
    assert heart.is_idle()
    assert heart.outstanding() == 2
    assert not heart.unblock("log", "another")
    assert heart.unblock("log", "key")
    assert not heart.unblock("log", "key")
    assert places(begun(heart)) == [("log", 0)]


def test_to_unblock_a_key_in_quarantine_ends_that() -> None:
    heart = heart_of("log", poison=Poison.DEAD_LETTER, quarantine=True, writes=True)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    heart.ended(run, Reject("bad"))
    (letter,) = (each for each in heart.advance(now_ms=0) if isinstance(each, WriteLetter))
    heart.written(letter, None)
    heart.submit("log", 1, "another key", 1)
    assert not heart.unblock("log", "another key")
    assert heart.unblock("log", "key")
    assert not heart.unblock("log", "key")


def test_a_name_can_be_had_once_and_again_when_it_has_left() -> None:
    heart = heart_of("log")
    with pytest.raises(ArgumentError, match="log is 'log'"):
        heart.add_log("log")
    heart.remove_log("log", until_ms=0)
    heart.advance(now_ms=0)
    heart.add_log("log")


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
        {"commit_every_ms": -1},
        {"letter_tries": 0},
        {"token_bytes": 63},
    ],
)
def test_nonsense_is_refused_when_it_is_configured(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        RunnerConfig(**settings)


def refused(heart: Heart[int], offset: int = 0, now_ms: int = 0) -> Run[int]:
    """Submit a message, and end its handler with a `Reject`."""
    heart.submit("log", offset, f"key-{offset}", offset, now_ms=now_ms)
    (run,) = begun(heart, now_ms)
    heart.ended(run, Reject("bad"), now_ms=now_ms)
    return run


def back_while_its_handler_runs() -> tuple[Heart[int], Run[int]]:
    """A log that was lost and has come back, with a message that waits for the handler of the earlier stay."""
    heart = heart_of("log", workers=2)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    heart.lose_log("log")
    heart.add_log("log", start=0)
    heart.submit("log", 0, "key", 0)
    assert begun(heart) == []
    return heart, run


def test_a_run_of_a_lost_log_that_is_taken_back_lets_its_key_go_on() -> None:
    heart, run = back_while_its_handler_runs()
    heart.withdrawn(run)
    assert places(begun(heart)) == [("log", 0)]
    assert heart.stats().late == 0, "its handler never began"


def test_what_waits_for_a_handler_of_an_earlier_stay_is_forgotten_with_its_log() -> None:
    heart = heart_of("log", workers=3)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    for _ in range(2):
        heart.lose_log("log")
        heart.add_log("log", start=0)
        heart.submit("log", 0, "key", 0)
        assert begun(heart) == []
    heart.ended(run, None)
    (again,) = begun(heart)
    assert again.log is heart.log("log")
    assert heart.stats().running == 1


def test_what_waited_for_a_handler_of_an_earlier_stay_does_not_begin_when_its_log_leaves() -> None:
    heart, run = back_while_its_handler_runs()
    heart.ended(run, None)
    heart.remove_log("log", until_ms=10)
    assert begun(heart) == []


def test_a_coroutine_of_a_lost_log_is_cancelled_at_once() -> None:
    heart = heart_of("log", cancels=True)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    heart.lose_log("log")
    assert Cancel(run) in heart.advance()


def test_a_dead_letter_that_is_written_when_its_log_has_gone_counts_for_nothing() -> None:
    heart = heart_of("log", writes=True)
    refused(heart)
    (letter,) = heart.advance(now_ms=0)
    assert isinstance(letter, WriteLetter)
    heart.lose_log("log")
    heart.advance(now_ms=0)
    heart.written(letter, None, now_ms=1)
    heart.written(letter, OSError("away"), now_ms=1)
    assert heart.advance(now_ms=10**6) == []
    assert (heart.stats().letters, heart.error) == (0, None)


def test_a_dead_letter_is_not_tried_again_when_its_log_has_left_meanwhile() -> None:
    heart = heart_of("log", writes=True)
    refused(heart)
    (letter,) = heart.advance(now_ms=0)
    assert isinstance(letter, WriteLetter)
    heart.written(letter, OSError("away"), now_ms=0)
    heart.remove_log("log", until_ms=10, now_ms=0)
    assert [type(action) for action in heart.advance(now_ms=10)] == [Left]
    assert heart.advance(now_ms=10**6) == []


def test_a_second_letter_that_cannot_be_written_changes_neither_the_error_nor_the_time_of_the_end() -> None:
    heart = heart_of("log", writes=True, letter_tries=1, stop_ms=50)
    letters = []
    for offset in range(2):
        refused(heart, offset)
        letters += [action for action in heart.advance(now_ms=0) if isinstance(action, WriteLetter)]
    first, second = letters
    heart.written(first, OSError("first"), now_ms=0)
    heart.written(second, OSError("second"), now_ms=40)
    assert repr(heart.error) == "OSError('first')"
    assert [type(action) for action in heart.advance(now_ms=50)] == [Stopping, Left, Stopped]


def test_a_message_that_is_given_up_without_dead_letters_stops_everything_with_its_error() -> None:
    heart = heart_of("log")
    refused(heart)
    heart.advance(now_ms=0)
    assert repr(heart.error) == "Reject('bad')"


def test_messages_that_were_read_for_a_log_that_has_gone_are_ignored() -> None:
    heart = heart_of("log", loads=True, max_loaded_per_key=1, workers=1)
    for offset in range(3):
        heart.submit("log", offset, "key", offset)
    (run,) = begun(heart, 0)
    heart.ended(run, None)
    (load,) = [action for action in heart.advance() if isinstance(action, LoadMany)]
    heart.lose_log("log")
    heart.advance()
    heart.loaded(load, {1: 1})
    assert heart.advance() == []


def test_messages_that_nobody_can_read_again_are_kept_and_take_room() -> None:
    heart = heart_of("log", window=3, max_loaded_per_key=1, workers=1)
    for offset in range(3):
        heart.submit("log", offset, "key", offset)
    assert heart.room("log") == 0
    for offset in range(3):
        (run,) = begun(heart, 0)
        assert run.message == offset
        heart.ended(run, None)
    assert heart.room("log") == 3


def test_a_message_that_is_no_longer_in_the_log_is_passed_over() -> None:
    heart = heart_of("log", loads=True, max_loaded_per_key=1, workers=1)
    for offset in range(3):
        heart.submit("log", offset, "key", offset)
    (run,) = begun(heart, 0)
    heart.ended(run, None)
    (load,) = [action for action in heart.advance() if isinstance(action, LoadMany)]
    heart.loaded(load, dict.fromkeys(load.offsets))
    actions = heart.advance()
    assert [action.offsets for action in actions if isinstance(action, LoadMany)] == [(2,)]
    assert heart.outstanding() == 1


def test_a_commit_that_fails_is_the_last_one_of_its_log() -> None:
    heart = heart_of("log", commits=True, commit_every_ms=0)
    for offset in range(2):
        heart.submit("log", offset, f"key-{offset}", offset)
    first, second = begun(heart, 0)
    heart.ended(first, None)
    (commit,) = heart.advance(now_ms=0)
    assert isinstance(commit, Commit)
    heart.committed(commit, OSError("no"))
    heart.ended(second, None)
    assert [type(action) for action in heart.advance(now_ms=0)] == [Stopping, Withdraw, Left, Stopped]
    assert repr(heart.error) == "OSError('no')"


def test_a_drain_hurries_the_last_commit_but_not_while_something_runs() -> None:
    heart = heart_of("log", commits=True, commit_every_ms=100)
    for offset in range(2):
        heart.submit("log", offset, f"key-{offset}", offset)
    first, second = begun(heart, 0)
    heart.ended(first, None)
    (commit,) = heart.advance(now_ms=0)
    assert isinstance(commit, Commit)
    heart.committed(commit, None)
    assert not heart.hurry(), "nothing has changed"
    heart.ended(second, None)
    heart.advance(now_ms=10)
    assert heart.hurry()
    (last,) = heart.advance(now_ms=10)
    assert isinstance(last, Commit)
    assert not heart.hurry(), "the commit is on its way"
    heart.committed(last, None)
    assert heart.is_idle()


def test_a_drain_does_not_hurry_while_something_runs() -> None:
    heart = heart_of("log", commits=True, commit_every_ms=100)
    for offset in range(3):
        heart.submit("log", offset, f"key-{offset}", offset)
    first, second, _ = begun(heart, 0)
    heart.ended(first, None)
    (commit,) = heart.advance(now_ms=0)
    assert isinstance(commit, Commit)
    heart.committed(commit, None)
    heart.ended(second, None)
    assert not heart.hurry()
    assert heart.advance(now_ms=10) == []


def test_retries_of_a_log_that_has_gone_do_not_come() -> None:
    heart = heart_of("log", retry=RetryPolicy(base_delay_ms=10))
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    heart.ended(run, ValueError("broken"), now_ms=0)
    heart.advance(now_ms=0)
    heart.lose_log("log")
    heart.advance(now_ms=0)
    assert heart.next_deadline_ms() is not None
    assert heart.advance(now_ms=10**6) == []


def test_a_retry_that_is_due_before_another_comes_at_its_own_time() -> None:
    heart = heart_of("log", retry=RetryPolicy(base_delay_ms=10), workers=2)
    for offset in range(2):
        heart.submit("log", offset, f"key-{offset}", offset)
    first, second = begun(heart, 0)
    heart.ended(first, ValueError("broken"), now_ms=0)
    (first,) = begun(heart, 10)
    heart.ended(first, ValueError("broken"), now_ms=10)  # due in 20 ms
    heart.ended(second, ValueError("broken"), now_ms=15)  # due in 10 ms
    assert begun(heart, 24) == []
    assert places(begun(heart, 25)) == [("log", 1)]
    assert begun(heart, 29) == []
    assert places(begun(heart, 30)) == [("log", 0)]


def test_a_dropped_message_is_noticed_and_can_be_committed() -> None:
    heart = heart_of("log", poison=Poison.DROP, commits=True)
    refused(heart)
    noticed, commit = heart.advance(now_ms=0)
    assert isinstance(noticed, Noticed)
    assert isinstance(noticed.effect, Dropped)
    assert isinstance(commit, Commit)
    assert commit.position == 1


def test_figures_of_a_moment_and_the_keys_with_the_most_to_do() -> None:
    heart = heart_of("log", workers=2)
    assert heart.wants_messages()
    for offset, key in enumerate(["busy", "busy", "other", "busy"]):
        heart.submit("log", offset, key, offset)
    begun(heart, 0)
    assert not heart.wants_messages()
    assert heart.busiest_keys(1) == [BusyKey("log", b"busy", 3)]
    assert heart.stats().running == 2
    with pytest.raises(ArgumentError, match="most is 0"):
        heart.busiest_keys(0)


@pytest.mark.parametrize("start", [0, 2**63 - 2, 1 - 2**63])
def test_the_shortest_token_that_is_allowed_holds_any_position(start: int) -> None:
    heart: Heart[int] = Heart(RunnerConfig(token_bytes=64), commits=True)
    heart.add_log("log", start=start)
    heart.submit("log", 2**63 - 2, "key", 0)
    (run,) = begun(heart, 0)
    heart.ended(run, None)
    (commit,) = heart.advance(now_ms=0)
    assert isinstance(commit, Commit)
    assert commit.position == 2**63 - 1


def test_a_log_that_leaves_takes_nothing_more() -> None:
    heart = heart_of("log")
    heart.submit("log", 0, "key", 0)
    begun(heart, 0)
    heart.remove_log("log", until_ms=100, now_ms=0)
    for call in (partial(heart.room, "log"), partial(heart.submit, "log", 1, "key", 1), partial(heart.room, "other")):
        with pytest.raises(UnknownLogError, match="call add_log first"):
            call()


def test_a_heart_that_has_stopped_says_what_can_be_done() -> None:
    heart = heart_of("log")
    heart.stop(until_ms=0, now_ms=0)
    with pytest.raises(StoppedError, match="begin another one"):
        heart.room("log")


def test_hooks_have_to_be_callable() -> None:
    assert Hooks(full=print).roomy is None
    with pytest.raises(ArgumentError, match="full"):
        Hooks(full=3)  # type: ignore[arg-type]


def test_whoever_waits_hears_of_a_stop_and_of_a_first_error_after_it_once() -> None:
    heart = heart_of("log")
    for _ in range(2):
        heart.stop(until_ms=50, now_ms=0)
    assert [type(action) for action in heart.advance(now_ms=0)] == [Stopping, Left, Stopped]
    for error in ("first", "second"):
        heart.fail(OSError(error))
    assert heart.advance(now_ms=0) == [Stopping()]
    assert repr(heart.error) == "OSError('first')"


def settlements(heart: Heart[int]) -> list[Settle[int]]:
    return [action for action in heart.advance() if isinstance(action, Settle)]


def test_what_is_settled_is_told_once_together_and_one_call_of_a_log_at_a_time() -> None:
    heart = heart_of("log", settles=True, writes=True, workers=8, poison=Poison.DEAD_LETTER)
    for offset in range(5):
        heart.submit("log", offset, f"key-{offset}", offset)
    runs = begun(heart, 0)
    for run in runs[:2]:
        heart.ended(run, None)
    (first,) = settlements(heart)
    assert first.offsets == (0, 1)
    heart.ended(runs[2], ValueError("comes again"))
    heart.ended(runs[3], Reject("bad"))
    (letter,) = [action for action in heart.advance() if isinstance(action, WriteLetter)]
    heart.ended(runs[4], None)
    assert settlements(heart) == [], "the call before has not returned"
    heart.written(letter, None)
    assert not heart.is_idle()
    heart.settled(first, None)
    (second,) = settlements(heart)
    assert second.offsets == (4, 3), "in the order of their ends; a failed message is not among them"


def test_a_log_leaves_when_its_last_settled_message_is_told() -> None:
    heart = heart_of("log", settles=True)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    log = heart.remove_log("log", until_ms=50, now_ms=0)
    heart.ended(run, None)
    (asked,) = settlements(heart)
    assert heart.advance(now_ms=40) == []
    heart.settled(asked, None)
    assert heart.advance(now_ms=40) == [Left(log, is_finished=True)]


def test_a_log_that_cannot_be_told_what_is_settled_stops_everything_and_is_told_no_more() -> None:
    heart = heart_of("log", settles=True, workers=2)
    for offset in range(2):
        heart.submit("log", offset, f"key-{offset}", offset)
    first, second = begun(heart, 0)
    heart.ended(first, None)
    (asked,) = settlements(heart)
    heart.settled(asked, OSError("no"))
    heart.ended(second, None)
    assert [type(action) for action in heart.advance()] == [Stopping, Withdraw, Left, Stopped]
    assert repr(heart.error) == "OSError('no')"


def test_what_comes_of_telling_a_log_that_was_lost_means_nothing() -> None:
    heart = heart_of("log", settles=True)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    heart.ended(run, None)
    (asked,) = settlements(heart)
    heart.lose_log("log")
    heart.settled(asked, OSError("its connection is gone"))
    assert heart.error is None


def test_a_log_says_where_to_read_it() -> None:
    heart = heart_of(commits=True)
    assert heart.add_log("new") is None
    assert heart.add_log("old", start=7) == 7
    token = KeySharedDispatcher[int](SoleOwner("c1"), DispatcherConfig(start=9)).cursor_token().text
    assert heart.add_log("known", start=7, resume_from=token) == 9


def test_what_a_store_says_of_a_log_that_was_lost_means_nothing() -> None:
    heart = heart_of("lost", commits=True, loads=True, max_loaded_per_key=1, workers=1)
    for offset in range(3):
        heart.submit("lost", offset, "key", offset)
    (run,) = begun(heart, 0)
    heart.ended(run, None)
    actions = heart.advance(now_ms=0)
    (commit,) = [action for action in actions if isinstance(action, Commit)]
    (load,) = [action for action in actions if isinstance(action, LoadMany)]
    heart.lose_log("lost")
    heart.committed(commit, OSError("it is somebody else's"))
    heart.loaded(load, {}, OSError("it is somebody else's"))
    assert (heart.error, heart.stats().commits) == (None, 0)


def test_an_end_is_told_as_it_counts() -> None:
    heart = heart_of("log", cancels=True, timeout_ms=10, batch=3)
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
        heart.submit("log", offset, f"key-{offset}", offset, now_ms=0)
        (run,) = begun(heart, 0)
        run.started_ms, run.cancelled = 0, Why.TIMEOUT
        told.append(repr(heart.ended(run, raised)))
    too_slow = "TimeoutError('it ran for 0 ms and was cancelled')"
    assert told == [
        too_slow,
        f"PartlyDone(0, {too_slow})",
        "ArgumentError('done', 1, 'be below 1, the length of the batch')",
        too_slow,
        too_slow,
        "Reject('bad')",
    ]
    assert (heart.stats().put_off, heart.stats().rejected) == (0, 1)


def cancelled(actions: list[Any]) -> list[int]:
    """The messages whose handlers are to be cancelled."""
    return [action.run.message for action in actions if isinstance(action, Cancel)]


@pytest.mark.parametrize("first", ["timeout", "stop", "remove_log"])
def test_a_coroutine_is_cancelled_once_whatever_asks_for_it_later(first: str) -> None:
    heart = heart_of("log", cancels=True, timeout_ms=20 if first == "timeout" else 1_000)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    run.started_ms = 0
    if first == "stop":
        heart.stop(until_ms=20, now_ms=0)
    elif first == "remove_log":
        heart.remove_log("log", until_ms=20, now_ms=0)
    heart.advance(now_ms=0)
    assert cancelled(heart.advance(now_ms=20)) == [0]
    heart.stop(until_ms=30, now_ms=20)
    assert cancelled([*heart.advance(now_ms=20), *heart.advance(now_ms=30), *heart.advance(now_ms=1_000)]) == []
    if first == "timeout":
        heart.lose_log("log", now_ms=1_000)
        assert cancelled(heart.advance(now_ms=1_000)) == []


def test_what_was_cancelled_because_its_log_leaves_and_returns_is_not_done() -> None:
    heart = heart_of("log", cancels=True, commits=True)
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    log = heart.remove_log("log", until_ms=0, now_ms=0)
    heart.advance(now_ms=0)
    assert cancelled(heart.advance(now_ms=0)) == [0]
    assert repr(heart.ended(run, None)) == "BaseException('it was cancelled, and returned all the same')"
    assert heart.advance(now_ms=1) == [Left(log, is_finished=True)]
    assert (heart.stats().done, heart.stats().released) == (0, 1)


def test_what_has_not_begun_is_taken_back_before_its_log_is_given_up() -> None:
    heart = heart_of("log")
    heart.submit("log", 0, "key", 0)
    (run,) = begun(heart, 0)
    log = heart.remove_log("log", until_ms=0, now_ms=0)
    assert [type(action).__name__ for action in heart.advance(now_ms=0)] == ["Withdraw"]
    heart.withdrawn(run, now_ms=0)
    assert heart.advance(now_ms=0) == [Left(log, is_finished=True)]


def test_an_error_that_is_raised_again_and_again_stays_as_short_as_it_was() -> None:
    def frames(error: BaseException) -> int:
        return len(list(walk_tb(error.__traceback__)))

    heart = heart_of("log")
    error = OSError("the disk is full")
    heart.fail(error)
    lengths = set()
    for _ in range(3):
        with pytest.raises(OSError, match="the disk is full") as raised:
            heart.room("log")
        lengths.add(frames(raised.value))
    assert len(lengths) == 1
