"""What a finding says: tries until the first fault, the promise found first, the steps that are left."""

from collections.abc import Callable

import pytest
from hypothesis import Phase, settings
from tests.kit.all_faults import FAULTS
from tests.kit.small_broker import SmallMachine

from keyshared.testing import Promise, Violation, trial
from keyshared.testing.machine import KeySharedMachine, PromiseBrokenError
from keyshared.testing.trial import BUDGET, find_violation

SAFE_CURSOR = Violation(Promise.SAFE_CURSOR, "cursor", (), "")
PROGRESS = Violation(Promise.PROGRESS, "stands", (), "")


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


def test_shrinking_stays_with_the_promise_that_was_found_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def shrinks(factory: Callable[[], KeySharedMachine], **_: object) -> None:
        factory()
        with pytest.raises(PromiseBrokenError):
            factory().blame(SAFE_CURSOR)
        other = factory()
        other.blame(PROGRESS)
        assert other.is_broken, "nobody heals what is passed over"
        other.blame(SAFE_CURSOR)  # what follows may be the consequence of what was passed over
        factory().blame(SAFE_CURSOR)

    monkeypatch.setattr(trial, "run_state_machine_as_test", shrinks)
    found = find_violation(SmallMachine)
    assert found is not None
    assert (SAFE_CURSOR, 2) == (found.violation, found.examples)


def test_what_the_driver_raises_is_not_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(trial, "run_state_machine_as_test", fails)
    with pytest.raises(OSError):  # noqa: PT011  # it has no text
        find_violation(SmallMachine)
