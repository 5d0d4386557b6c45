"""What a finding says: tries until the first fault, the promise found first, the steps that are left."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis.errors import Flaky, FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test
from hypothesis.strategies import sampled_from
from tests.kit.all_faults import FAULTS
from tests.kit.broken_others import CursorOneTooFar, MovesWithoutDraining
from tests.kit.small_broker import RETRY_MS, Message, SmallBroker, SmallDriver, SmallMachine

from keyshared.testing import Delivery, Driver, Guarantees, Promise, Violation, trial
from keyshared.testing.ending import HEALER
from keyshared.testing.history import Connected
from keyshared.testing.machine import KeySharedMachine, PromiseBrokenError
from keyshared.testing.replay import ScheduleRun, run_schedule
from keyshared.testing.steps import Ack, Connect, Disconnect, Nack, Publish
from keyshared.testing.trial import BUDGET, Finding, _find_by_chance, find_violation, find_violations


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
    claims, most, retry_ms, rest_ms, *_ = fault.machine.world()
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


@pytest.mark.no_cover
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


class BreaksOnceDriver(SmallDriver):
    """A real system may do something once and never again: here one cursor is too far."""

    has_broken: ClassVar[bool]

    def cursor(self) -> int | None:
        if BreaksOnceDriver.has_broken:
            return super().cursor()
        BreaksOnceDriver.has_broken = True
        return self.broker.cursor() + 1


def test_what_is_broken_once_and_never_again_is_told_as_it_was_found() -> None:
    BreaksOnceDriver.has_broken = False
    found = find_violation(type("BreaksOnceMachine", (SmallMachine,), {"driver_class": BreaksOnceDriver}))
    assert found is not None
    assert found.violation.promise is Promise.SAFE_CURSOR
    assert found.schedule
    assert found.history[-1] == found.violation.happenings[-1]


class RaisesOnceDriver(SmallDriver):
    """The first publish fails, and no other."""

    has_raised: ClassVar[bool]

    def publish(self, key: bytes | None) -> int:
        if not RaisesOnceDriver.has_raised:
            RaisesOnceDriver.has_raised = True
            raise ConnectionError
        return super().publish(key)


def test_what_the_driver_raises_once_is_not_a_finding_either() -> None:
    RaisesOnceDriver.has_raised = False
    with pytest.raises(Flaky):
        find_violation(type("RaisesOnceMachine", (SmallMachine,), {"driver_class": RaisesOnceDriver}))


def test_what_the_driver_raises_is_not_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(trial, "run_state_machine_as_test", fails)
    with pytest.raises(OSError):  # noqa: PT011  # it has no text
        find_violation(SmallMachine)


class BreaksTwo(CursorOneTooFar, MovesWithoutDraining):
    """The cursor is wrong at once, which hides that a key has two holders later."""


class BreaksTwoMachine(SmallMachine):
    driver_class = type("BreaksTwoDriver", (SmallDriver,), {"broker_class": BreaksTwo})
    guarantees = replace(SmallMachine.guarantees, promises={"safe-cursor", "one-holder", "no-loss"})


@pytest.mark.no_cover
def test_every_broken_promise_is_found_and_shortened_by_itself() -> None:
    few = settings(BUDGET, max_examples=100)
    cursor, holder = find_violations(BreaksTwoMachine, few)
    assert (cursor.violation.promise, holder.violation.promise) == (Promise.SAFE_CURSOR, Promise.ONE_HOLDER)
    assert cursor.steps <= 1
    assert holder.steps <= 5
    assert find_violation(BreaksTwoMachine, few) == cursor


def test_of_a_correct_broker_nothing_is_found() -> None:
    assert find_violations(SmallMachine, settings(BUDGET, max_examples=2, phases=[Phase.generate])) == ()


def test_what_shows_only_in_the_end_is_explained_and_so_is_who_joins_for_it() -> None:
    violation = Violation(Promise.NO_LOSS, "offset 0 is gone", (), "")
    steps, healed = (Publish(b"a"),), (Connected(consumer="healer"),)
    text = str(Finding(violation, 1, healed, steps, in_the_end=True))
    assert "Publish(key=b'a', count=1)\n(then everybody answers whatever comes, and time passes, until nothing" in text
    assert "'healer' is the kit's own consumer" in text
    alone = str(Finding(violation, 1, (Connected(consumer="c1"),), steps, in_the_end=True))
    assert "until nothing comes any more)\nno-loss" in alone
    assert "then everybody" not in str(Finding(violation, 1, healed, steps))
    error = PromiseBrokenError(violation, steps, healed, in_the_end=True)
    assert str(error).startswith("(then everybody answers")
    assert str(PromiseBrokenError(violation, steps, healed)).startswith("no-loss: ")


class Loses(SmallBroker):
    """What a consumer has open when it leaves is forgotten."""

    def put_back(self, messages: Iterable[Message]) -> None:
        for message in messages:
            del self.messages[message.offset]


class LosesDriver(SmallDriver):
    broker_class = Loses


OVERTAKES_WHAT_IS_LOST = (Connect("c1"), Publish(b"a", 2), Disconnect("c1"), Connect("c1"))
LOSES = Guarantees(promises={"key-order", "no-loss"})


def test_what_is_lost_is_not_called_overtaken_where_both_are_claimed() -> None:
    replay = run_schedule(LosesDriver, OVERTAKES_WHAT_IS_LOST, LOSES)
    assert replay.violation is not None
    assert (replay.violation.promise, replay.violation.offset) == (Promise.NO_LOSS, 0)
    assert replay.in_the_end
    overtaken = run_schedule(LosesDriver, OVERTAKES_WHAT_IS_LOST, replace(LOSES, promises={"key-order"})).violation
    assert overtaken is not None
    assert str(overtaken).startswith("key-order: offset 1 overtook offset 0 of its key, which waits or is lost\n")


def test_what_is_overtaken_and_comes_later_waits() -> None:
    fault = next(fault for fault in FAULTS if fault.name == "NackedLetsNewerOnesPass")
    claims = replace(fault.machine.guarantees, promises={"key-order", "no-loss"})
    steps = (Connect("c1"), Publish(b"a", 2), Nack())
    replay = run_schedule(fault.machine.driver_class, steps, claims, retry_ms=RETRY_MS)
    assert replay.violation is not None
    assert replay.violation.explanation == "offset 1 overtook offset 0 of its key, which waits"
    assert replay.history[-1] == replay.violation.happenings[-1]
    assert not replay.in_the_end


class BreaksDown(LosesDriver):
    """It loses a message, and cannot go on when something newer was sent."""

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # noqa: ARG002  # it does not get there
        raise OSError


def test_what_a_broker_raises_after_an_overtaking_hides_nothing() -> None:
    replay = run_schedule(BreaksDown, OVERTAKES_WHAT_IS_LOST, LOSES)
    assert replay.violation is not None
    assert replay.violation.explanation.endswith("overtook offset 0 of its key, which waits or is lost")
    with pytest.raises(OSError):  # noqa: PT011  # it has no text
        run_schedule(BreaksDown, (Connect("c1"), Publish(b"a"), Ack()), LOSES)


class ByChance(SmallDriver):
    """Who asks may be put off, so nobody can foretell who gets a message."""

    dice = Random(1)  # one for all drivers: the same steps never have the same outcome

    def receive(self, consumer: str) -> list[Delivery]:
        return list(super().receive(consumer)) if self.dice.random() < 0.5 else []


class ByChanceAndWrong(ByChance):
    """As above, with a cursor that is one too far."""

    broker_class = CursorOneTooFar


def by_chance(driver: type[Driver], *promises: str) -> type[KeySharedMachine]:
    claims = replace(SmallMachine.guarantees, promises=frozenset(promises))
    return type("Machine", (SmallMachine,), {"driver_class": driver, "guarantees": claims})


def test_where_chance_decides_schedules_are_drawn_first() -> None:
    few = settings(BUDGET, max_examples=60)
    with pytest.raises(FlakyStrategyDefinition):
        run_state_machine_as_test(by_chance(ByChance, "fence"), settings=few)
    assert find_violation(by_chance(ByChance, "fence"), few) is None
    found = _find_by_chance(by_chance(ByChanceAndWrong, "safe-cursor"), few)
    assert found is not None
    assert found.violation.promise is Promise.SAFE_CURSOR
    longer = _find_by_chance(by_chance(ByChanceAndWrong, "safe-cursor"), settings(few, phases=[Phase.generate]))
    assert longer is not None
    assert longer.steps >= found.steps


def test_a_test_case_says_what_it_means_that_chance_decides() -> None:
    case: Any = by_chance(ByChance, "fence").TestCase
    case.settings = settings(case.settings, max_examples=60, derandomize=True, database=None)
    with pytest.raises(FlakyStrategyDefinition) as caught:
        case().runTest()
    assert any("docs/prove-your-broker.md#when-chance-decides" in note for note in caught.value.__notes__)


class NobodyHome(Driver):
    """Takes everything, and delivers nothing."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...
    def disconnect(self, consumer: str) -> None: ...
    def publish(self, key: bytes | None) -> int:
        self.keys.append(key)
        return len(self.keys) - 1

    def receive(self, consumer: str) -> list[Delivery]:  # noqa: ARG002  # nobody gets anything
        return []


class Onlooker(NobodyHome):
    """Writes down for which world it was made. It knows no key but two, and loses everything."""

    seen: ClassVar[set[object]]

    def __init__(self) -> None:
        super().__init__()
        self.connected: set[str] = set()

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # noqa: ARG002  # it takes none
        self.connected.add(consumer)
        self.seen.update({consumer, len(self.connected)})

    def disconnect(self, consumer: str) -> None:
        self.connected.remove(consumer)

    def publish(self, key: bytes | None) -> int:
        if key not in {b"x", b"y"}:
            raise LookupError(key)
        return super().publish(key)

    def nack(self, consumer: str, delivery: Delivery) -> bool | None: ...


class OneConsumerMachine(KeySharedMachine):
    """As a queue that is first in, first out claims it."""

    driver_class = Onlooker
    guarantees = Guarantees(promises={"key-order"}, total_order=True)
    max_consumers = 1
    keys = sampled_from([b"x", b"y"])
    names = sampled_from(["one", "other"])


def test_schedules_that_are_drawn_first_keep_to_the_world_of_the_machine() -> None:
    Onlooker.seen = set()
    assert _find_by_chance(OneConsumerMachine, settings(BUDGET, max_examples=60)) is None
    assert Onlooker.seen - {HEALER} == {"one", "other", 1}


def test_schedules_that_are_drawn_first_have_as_many_steps_as_the_settings_say() -> None:
    Onlooker.seen = set()
    loses = type("Loses", (OneConsumerMachine,), {"guarantees": Guarantees(promises={"no-loss"})})
    few = settings(BUDGET, max_examples=60, stateful_step_count=3, phases=[Phase.generate])
    found = _find_by_chance(loses, few)
    assert found is not None
    assert found.steps <= 3


def test_what_is_shortened_keeps_to_the_keys_of_the_machine() -> None:
    Onlooker.seen = set()
    loses = type("Loses", (OneConsumerMachine,), {"guarantees": Guarantees(promises={"no-loss"})})
    for found in (find_violation(loses), _find_by_chance(loses, BUDGET)):
        assert found is not None
        assert {step.key for step in found.schedule if isinstance(step, Publish)} <= {b"x", b"y"}
        assert found.steps == 1


def test_a_driver_claims_what_is_claimed_by_default() -> None:
    found = find_violation(NobodyHome, settings(BUDGET, max_examples=20))
    assert found is not None
    assert found.violation.promise in Guarantees().promises
    assert found.steps <= 2


def test_what_is_no_class_of_a_machine_or_driver_is_refused() -> None:
    for subject in (NobodyHome(), Guarantees, None):
        with pytest.raises(TypeError, match="a class derived from KeySharedMachine or Driver or AsyncDriver"):
            find_violations(subject)  # type: ignore[arg-type]
