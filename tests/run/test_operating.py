"""What an operator does: hold, skip, let go, redrive, limit groups; and what follow-ups and group retries do."""

import asyncio
from typing import Any

import pytest
from tests.run.test_engine import begun, engine_of, places

from keyshared import Poison, RetryPolicy
from keyshared.config import GroupLimits, Rules
from keyshared.effects import BlockReason
from keyshared.errors import ArgumentError, ConfigError
from keyshared.run import (
    AsyncRunner,
    DeadLetter,
    Reject,
    RetryLater,
    RoomError,
    RunnerConfig,
    ThreadRunner,
    UnknownLogError,
)
from keyshared.run.actions import LoadMany, Withdraw, WriteDeadLetter
from keyshared.run.engine import Engine

TENANTS = Rules(mark="1", group_of=lambda key: key.partition(b"/")[0].decode())


def offsets(engine: Engine[int], now_ms: int | None = None) -> list[int]:
    return [offset for _, offset in places(begun(engine, now_ms))]


def test_a_paused_key_begins_nothing_until_it_is_resumed_in_any_log() -> None:
    engine = engine_of("one", "two", workers=8)
    engine.pause_key("a")
    for log in ("one", "two"):
        engine.submit(log, 0, "a", 0)
        engine.submit(log, 1, "b", 1)
    assert sorted(places(begun(engine, 0))) == [("one", 1), ("two", 1)]
    assert [str(each) for each in engine.stuck(0)][:2] != []
    assert {each.what for each in engine.stuck(0) if each.key == b"a"} == {"its key is paused"}
    assert engine.why_blocked("one", 0) == (BlockReason.GROUP_PAUSED, None, None, None)
    engine.resume_key("a")
    assert sorted(places(begun(engine, 0))) == [("one", 0), ("two", 0)]
    engine.pause_key("b")
    engine.submit("one", 2, "b", 2)
    (run,) = [run for run in engine.log("one").runs if run.delivery.offset == 1]
    engine.ended(run, None)
    assert begun(engine) == [], "a handler that ran when its key was paused is the last one"


def test_a_run_that_has_not_begun_is_taken_back_when_its_key_is_paused() -> None:
    engine = engine_of("log", workers=1)
    engine.submit("log", 0, "a", 0)
    (run,) = begun(engine, 0)
    engine.pause_key("a")
    assert Withdraw((run,)) in engine.advance()
    engine.withdrawn(run)
    engine.advance(now_ms=10**6)
    assert not engine.log("log").runs
    assert engine.is_idle(), "a drain does not wait for an operator"
    engine.resume_key("a")
    assert offsets(engine) == [0]


def test_a_message_without_a_key_cannot_be_paused() -> None:
    engine = engine_of("log")
    with pytest.raises(ArgumentError, match="messages without a key"):
        engine.pause_key(None)


@pytest.mark.parametrize("how", ["blocked", "retry", "queued", "paused"])
def test_a_message_that_waits_is_given_up_and_its_key_goes_on(how: str) -> None:
    engine = engine_of("log", poison=Poison.BLOCK, workers=1, retry=RetryPolicy(base_delay_ms=10**6))
    if how == "paused":
        engine.pause_key("a")
    for offset in range(2):
        engine.submit("log", offset, "a", offset)
    runs = begun(engine, 0)
    if how != "paused":
        assert not engine.park("log", 0), "it is at a handler"
    if how in {"blocked", "retry"}:
        engine.ended(runs[0], Reject("bad") if how == "blocked" else ValueError())
    victim = 1 if how == "queued" else 0
    assert engine.park("log", victim)
    assert not engine.park("log", victim)
    if how == "queued":
        engine.ended(runs[0], None)
    engine.resume_key("a")
    assert offsets(engine) == ([] if how == "queued" else [1])
    assert engine.outstanding() == (0 if how == "queued" else 1)


def test_a_message_at_a_handler_is_gone_when_that_ends() -> None:
    engine = engine_of("log")
    engine.submit("log", 0, "a", 0)
    (run,) = begun(engine, 0)
    assert engine.gone("log", 0)
    assert engine.outstanding() == 1
    engine.ended(run, ValueError())
    engine.advance()
    assert engine.outstanding() == 0
    assert not engine.gone("log", 0)
    engine.submit("log", 1, "a", 1, now_ms=10**6)
    assert engine.gone("log", 1)
    assert engine.outstanding() == 0


def test_all_messages_of_a_key_or_a_group_are_skipped_but_those_at_handlers() -> None:
    engine = engine_of("log", workers=1, rules=TENANTS)
    for offset, key in enumerate(["big/1", "big/1", "big/2", "small/1", "big/1"]):
        engine.submit("log", offset, key, offset)
    (run,) = begun(engine, 0)
    assert engine.skip_key("big/1") == 2
    assert engine.skip_group("big") == 1
    engine.ended(run, None)
    assert offsets(engine) == [3]


def test_groups_take_turns_and_keep_their_limits_in_logs_that_come_later() -> None:
    engine = engine_of("log", workers=4, rules=TENANTS, group=GroupLimits(max_in_flight=1))
    engine.set_group("big", {"weight": 1, "max_in_flight": 2, "per_second": None, "burst": 1})
    engine.pause_group("small")
    engine.add_log("later", start=0)
    for log in ("log", "later"):
        for offset, key in enumerate(["big/1", "big/2", "big/3", "small/1", "small/2"]):
            engine.submit(log, offset, key, offset)
    assert len([each for each in engine.stuck(0) if "is paused" in each.what]) == 2, "one of each log"
    assert sorted(places(begun(engine, 0))) == [("later", 0), ("later", 1), ("log", 0), ("log", 1)]
    assert {each.what for each in engine.stuck(0) if each.key == b"small/1"} == {"its group 'small' is paused"}
    for log in ("log", "later"):
        for run in list(engine.log(log).runs):
            engine.ended(run, None)
    assert 3 not in offsets(engine)
    engine.resume_group("small")
    assert {("log", 3), ("later", 3)} & {*places(begun(engine))}


def test_a_group_with_a_rate_goes_on_when_its_permits_come_back() -> None:
    """Nothing else happens meanwhile: only the alarm of the engine asks again."""
    engine = engine_of("log", workers=100, rules=TENANTS)
    engine.set_group("big", {"per_second": 10, "burst": 2})
    for offset in range(5):
        engine.submit("log", offset, f"big/{offset}", offset)
    assert offsets(engine, 0) == [0, 1]
    for now_ms, offset in ((100, 2), (200, 3), (300, 4)):
        assert (engine.next_deadline_ms(), offsets(engine, now_ms)) == (now_ms, [offset])


def test_groups_need_rules() -> None:
    engine = engine_of("log")
    for call in (engine.pause_group, engine.resume_group, engine.skip_group):
        with pytest.raises(ArgumentError, match="which is not given"):
            call("big")
    engine = engine_of(rules=TENANTS)
    with pytest.raises(ConfigError, match="weight"):
        engine.set_group("big", {"weight": 0})


def test_one_tenant_that_is_throttled_delays_itself_and_no_other() -> None:
    """The window is full of messages of the tenant, and what follows is read all the same: they wait in the log."""
    engine = engine_of("log", window=500, workers=8, rules=TENANTS, loads=True, max_tracked=100_000)
    done = throttled = offset = idle = now = 0
    while done < 4_800:
        while offset < 6_000 and (room := engine.room("log")):
            for _ in range(min(room, 6_000 - offset)):
                tenant = "busy" if offset % 5 == 0 else f"other-{offset % 7}"
                engine.submit("log", offset, f"{tenant}/{offset}", offset, now_ms=now)
                offset += 1
        actions = engine.advance(now_ms=now)
        runs = begun_of(engine, actions)
        idle = 0 if runs else idle + 1  # loads have to be answered first
        assert idle < 100, f"stuck after {done}, read {offset}"
        for run in runs:
            if run.message % 5 == 0:
                throttled += 1
                engine.ended(run, RetryLater(60_000, group=True), now_ms=now)
            else:
                done += 1
                engine.ended(run, None, now_ms=now)
    assert throttled <= 8, "the group waits after the first one"
    assert not engine.is_idle()
    engine.advance(now_ms=60_000)
    assert any(run.message % 5 == 0 for run in engine.log("log").runs)


def begun_of(engine: Engine[int], actions: list[Any]) -> list[Any]:
    for action in actions:
        if isinstance(action, LoadMany):
            engine.loaded(action, {offset: offset for offset in action.offsets})
    return [action for action in actions if type(action).__name__ == "Run"]


def test_a_group_that_an_operator_pauses_stays_so_when_its_postponement_is_over() -> None:
    engine = engine_of("log", workers=1, rules=TENANTS)
    engine.submit("log", 0, "a/1", 0)
    (run,) = begun(engine, 0)
    engine.ended(run, RetryLater(10, group=True), now_ms=0)
    engine.pause_group("a")
    assert begun(engine, 20) == []
    engine.resume_group("a")
    assert offsets(engine) == [0]
    engine.ended(next(iter(engine.log("log").runs)), RetryLater(10, group=True))
    assert not engine.is_idle()


def test_the_longest_wait_of_a_group_counts() -> None:
    engine = engine_of("log", workers=3, rules=TENANTS)
    for offset in range(3):
        engine.submit("log", offset, f"a/{offset}", offset)
    runs = begun(engine, 0)
    for run, delay in zip(runs, (20, 10, 30), strict=True):
        engine.ended(run, RetryLater(delay, group=True), now_ms=0)
    assert begun(engine, 29) == []
    assert len(begun(engine, 30)) == 3


def test_every_verb_works_on_a_runner() -> None:
    runner = ThreadRunner[str](print, config=RunnerConfig(rules=TENANTS, redrive=True, workers=1))
    runner.pause_key("a/1")
    runner.add_log("log", start=0)
    runner.submit_many("log", [(offset, "a/1", "m") for offset in range(3)])
    runner.set_group("a", max_in_flight=1)
    runner.pause_group("a")
    runner.resume_group("a")
    assert not runner.unblock("log", "a/1")
    assert runner.gone("log", 1)
    assert runner.redrive("log", "a/1", []) == 0
    assert (runner.skip_key("a/1"), runner.skip_group("a")) == (2, 0)
    runner.resume_key("a/1")
    assert (runner.drain(), runner.busiest_keys(), runner.stop()) == (True, [], True)


def test_messages_that_are_submitted_on_credit_are_kept_if_they_spill() -> None:
    engine = engine_of("log", max_loaded_per_key=1, workers=1)
    engine.submit("log", 0, "a", 0)
    assert all(engine.submit_on_credit("log", offset, "a", offset, now_ms=offset * 1_000) for offset in range(1, 4))
    served = []
    while runs := begun(engine):
        served += [run.message for run in runs]
        engine.ended(runs[0], None)
    assert served == [0, 1, 2, 3]
    assert not engine.submit_on_credit("elsewhere", 0, "a", 0, now_ms=0)


def test_without_groups_only_the_key_waits() -> None:
    engine = engine_of("log", workers=1)
    engine.submit("log", 0, "a", 0)
    engine.submit("log", 1, "b", 1)
    (run,) = begun(engine, 0)
    engine.ended(run, RetryLater(10, group=True), now_ms=0)
    assert offsets(engine, 0) == [1]


def test_dead_letters_come_back_at_their_places() -> None:
    engine = engine_of("log", writes=True, redrive=True, workers=1)
    stored: list[DeadLetter[int]] = []
    for offset in range(2):
        engine.submit("log", offset, "a", offset)
        (run,) = begun(engine, 0)
        engine.ended(run, Reject("the release was broken"))
        (asked,) = [action for action in engine.advance() if isinstance(action, WriteDeadLetter)]
        stored.append(asked.dead_letter)
        engine.written(asked, None)
    engine.submit("log", 2, "a", 2)
    engine.pause_key("a")
    assert engine.redrive("log", "a", reversed(stored)) == 2
    assert engine.redrive("log", "a", stored) == 0
    engine.resume_key("a")
    served = []
    while runs := begun(engine):
        served += [run.message for run in runs]
        engine.ended(runs[0], None)
    assert served == [0, 1, 2]


def test_a_newer_message_takes_the_place_of_one_that_waits() -> None:
    engine = engine_of("log", latest_only=True, workers=1)
    for offset in range(3):
        engine.submit("log", offset, "a", offset)
    (run,) = begun(engine, 0)
    engine.ended(run, None)
    assert [run.message, *offsets(engine)] == [2] or [run.message, *offsets(engine)] == [0, 2]


def test_a_handler_may_submit_follow_ups_and_never_waits_for_room() -> None:
    made: list[int] = []

    def handle(message: str) -> None:
        if message == "parent":
            for _ in range(3):
                made.append(len(made) + 1)
                runner.submit("children", made[-1], f"child-{made[-1]}", "child")

    config = RunnerConfig(workers=1, window=4, max_tracked=4)
    with ThreadRunner(handle, config=config) as runner:
        runner.add_log("parents", start=0)
        runner.add_log("children", start=0)
        for offset in range(20):
            runner.submit("parents", offset, f"parent-{offset}", "parent")
    assert runner.stats().done == 80
    assert runner.stats().failed == 0


def test_a_coroutine_may_submit_follow_ups_and_never_waits_for_room() -> None:
    made: list[int] = []

    async def main() -> None:
        async def handle(message: str) -> None:
            if message == "parent":
                for _ in range(3):
                    made.append(len(made) + 1)
                    await runner.submit("children", made[-1], f"child-{made[-1]}", "child")

        async with AsyncRunner(handle, config=RunnerConfig(workers=1, window=4, max_tracked=4)) as runner:
            runner.add_log("parents", start=0)
            runner.add_log("children", start=0)
            for offset in range(20):
                await runner.submit("parents", offset, f"parent-{offset}", "parent")
        assert runner.stats().done == 80

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_submit_that_does_not_wait_is_refused_when_too_much_is_unfinished() -> None:
    runner = ThreadRunner(lambda _: None, config=RunnerConfig(window=4, max_tracked=4, stop_ms=0))
    runner.add_log("log", start=0)
    runner.pause_key("a")
    with pytest.raises(RoomError, match="without waiting"):
        runner.submit_many("log", [(offset, "a", 0) for offset in range(10_000)], wait=False)
    assert runner.room("log") == 0
    assert not runner.drain()
    with pytest.raises(UnknownLogError):
        runner.park("elsewhere", 0)
    runner.stop()


def test_a_message_is_not_handled_before_its_time() -> None:
    engine = engine_of("log", workers=2)
    engine.submit_many("log", [(0, "a", 0, 1_000), (1, "b", 1, None)], now_ms=0)
    assert offsets(engine, 0) == [1]
    assert offsets(engine, 999) == []
    assert offsets(engine, 1_000) == [0]


def test_a_time_is_given_in_milliseconds_since_1970() -> None:
    done: list[str] = []
    with ThreadRunner(done.append) as runner:
        runner.add_log("log", start=0)
        runner.submit("log", 0, "a", "past", not_before_epoch_ms=0)
        with pytest.raises(ArgumentError, match="not_before_epoch_ms"):
            runner.submit("log", 1, "a", "never", not_before_epoch_ms="soon")  # type: ignore[arg-type]
    assert done == ["past"]
