"""What a finding says: tries until the first fault, the promise found first, the steps that are left."""

from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from tests.kit.all_faults import FAULTS
from tests.kit.small_broker import SmallMachine

from keyshared.testing import Promise, trial
from keyshared.testing.replay import ScheduleRun, run_schedule
from keyshared.testing.trial import BUDGET, find_violation


def test_a_correct_broker_yields_nothing() -> None:
    assert find_violation(SmallMachine, settings(BUDGET, max_examples=2, phases=[Phase.generate])) is None


def test_a_broken_one_yields_its_promise_and_the_steps() -> None:
    fault = next(fault for fault in FAULTS if fault.name == "CursorOneTooFar")
    found = find_violation(fault.machine, settings(BUDGET, phases=[Phase.generate]))
    assert found is not None
    assert found.violation.promise is Promise.SAFE_CURSOR
    assert found.steps == len(found.schedule) > 0
    assert str(found) == "\n".join([*map(str, found.schedule), str(found.violation)])
    assert found.history


def test_what_is_found_is_shortened_until_every_step_is_needed() -> None:
    fault = next(fault for fault in FAULTS if fault.name == "CursorIsTheGreatestAck")
    found = find_violation(fault.machine)
    assert found is not None
    assert found.violation.promise is Promise.SAFE_CURSOR
    claims, most, retry_ms, rest_ms = fault.machine.world()
    for place in range(found.steps):
        fewer = found.schedule[:place] + found.schedule[place + 1 :]
        replay = run_schedule(
            fault.machine.driver_class, fewer, claims, max_outstanding=most, retry_ms=retry_ms, rest_ms=rest_ms
        )
        assert replay.violation is None or replay.violation.promise is not Promise.SAFE_CURSOR
    assert found.history[-1] == found.violation.happenings[-1]


def test_the_promise_that_was_found_first_is_shortened_and_no_other() -> None:
    fault = next(fault for fault in FAULTS if fault.name == "EvictionLoses")
    only = replace(fault.machine.guarantees, promises={Promise.KEY_ORDER, Promise.PROGRESS})
    found = find_violation(type("Fewer", (fault.machine,), {"guarantees": only}), settings(BUDGET, max_examples=2_000))
    assert found is not None
    replay = run_schedule(fault.machine.driver_class, found.schedule, only, retry_ms=fault.machine.retry_ms)
    assert replay.violation == found.violation


def test_what_no_replay_shows_again_is_told_as_it_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = next(fault for fault in FAULTS if fault.name == "CursorOneTooFar")
    monkeypatch.setattr(trial, "run_schedule", lambda *_, **__: ScheduleRun((), None, (), in_the_end=True))
    found = find_violation(fault.machine)
    assert found is not None
    assert found.violation.promise is Promise.SAFE_CURSOR
    assert found.schedule


def test_what_is_shown_once_more_and_then_no_longer_is_told_as_it_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = next(fault for fault in FAULTS if fault.name == "CursorOneTooFar")
    whole = find_violation(fault.machine, settings(BUDGET, phases=[Phase.generate]))
    assert whole is not None
    answers = [ScheduleRun(whole.history, whole.violation, whole.schedule, in_the_end=False)]
    monkeypatch.setattr(
        trial,
        "run_schedule",
        lambda *_, **__: answers.pop() if answers else ScheduleRun((), None, (), in_the_end=True),
    )
    assert whole == find_violation(fault.machine)


def test_what_the_driver_raises_is_not_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(trial, "run_state_machine_as_test", fails)
    with pytest.raises(OSError):  # noqa: PT011  # it has no text
        find_violation(SmallMachine)
