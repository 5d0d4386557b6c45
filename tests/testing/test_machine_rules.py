"""Each rule of the machine, called by hand: what it asks of the driver, and what it writes down."""

import importlib
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar

import pytest
from tests.kit.asked_broker import AskedMachine
from tests.kit.jittery_broker import TOLERANCE_MS, JitteryMachine
from tests.kit.later_broker import LaterBroker, LaterDriver, LaterMachine
from tests.kit.mortal_broker import MortalMachine
from tests.kit.own_machines import BatchingMachine, DispatcherMachine
from tests.kit.small_broker import ACK_TIMEOUT_MS, RETRY_MS, SmallBroker, SmallDriver, SmallMachine

from keyshared.testing import Delivery, Driver, Guarantees, Promise
from keyshared.testing import machine as machines
from keyshared.testing.driver import AnyDriver
from keyshared.testing.history import (
    Acked,
    AtRest,
    Connected,
    DeadLettered,
    Delivered,
    Dropped,
    Expired,
    Gone,
    Happening,
    Held,
    HoldReason,
    LimitChanged,
    Nacked,
    Owned,
    Published,
    Quiet,
    Released,
)
from keyshared.testing.machine import KeySharedMachine, PromiseBrokenError
from keyshared.testing.steps import (
    LATE_ANSWERS,
    Ack,
    AckLate,
    BeginReceive,
    Connect,
    Flap,
    KillAt,
    NackLate,
    Poll,
    Publish,
    Wait,
)


class CursorOnlyDriver(SmallDriver):
    """Stores nothing but the cursor, and says so."""

    remembers_acks = False

    def restart(self) -> None:
        first = self.broker.cursor()
        log, self.broker = self.broker.log, SmallBroker()
        for key in log:
            self.broker.append(key)
        for offset in range(first):
            self.broker.settle(self.broker.messages[offset])


class CursorOnlyMachine(SmallMachine):
    driver_class = CursorOnlyDriver


class ScriptedDriver(Driver):
    """Delivers and says what the test has put there."""

    def __init__(self) -> None:
        self.length = 0
        self.inbox: list[Delivery] = []
        self.said: list[Happening] = []
        self.is_closed = False

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    def disconnect(self, consumer: str) -> None: ...

    def publish(self, key: bytes | None) -> int:
        self.length += 1
        return self.length - 1

    def receive(self, consumer: str) -> Sequence[Delivery]:
        inbox, self.inbox = self.inbox, []
        return inbox

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        return None

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        return False

    def notices(self) -> Sequence[Happening]:
        said, self.said = self.said, []
        return said

    def close(self) -> None:
        self.is_closed = True


class ScriptedMachine(KeySharedMachine):
    """Claims next to nothing: what is written down is looked at, not what is made of it."""

    driver_class: ClassVar[type[AnyDriver]] = ScriptedDriver
    guarantees = Guarantees(promises={Promise.MINIMAL_MOVE})


def scripted() -> tuple[ScriptedMachine, ScriptedDriver]:
    machine = ScriptedMachine()
    assert isinstance(machine.bench.driver, ScriptedDriver)
    return machine, machine.bench.driver


def fail_in(machine: KeySharedMachine) -> None:
    try:
        raise ValueError("abandoned")  # by Hypothesis, or a driver
    finally:
        machine.teardown()


def kinds(machine: KeySharedMachine) -> list[type[Happening]]:
    return [type(happening) for happening in machine.bench.history]


def told(machine: KeySharedMachine, *kind: type[Happening]) -> list[Happening]:
    return [happening for happening in machine.bench.history if isinstance(happening, kind)]


# --- consumers ------------------------------------------------------------------------------------------------------


def test_a_consumer_joins_once() -> None:
    machine = SmallMachine()
    machine.connect("c1", ("a",))
    machine.connect("c1", ())
    assert {"c1": ("a",)} == machine.bench.members
    assert [Connected(consumer="c1", at_ms=0)] == told(machine, Connected)
    assert [Connect("c1", ("a",))] == machine.bench.taken


def test_a_consumer_that_leaves_is_gone_and_what_it_had_is_over() -> None:
    machine = SmallMachine()
    machine.connect("c1", ())
    machine.publish(b"a")
    machine.disconnect(0)
    assert [Gone(consumer="c1", at_ms=0)] == told(machine, Gone)
    assert ({}, {}, 1) == (machine.bench.members, machine.bench.open, len(machine.bench.over))


def test_a_consumer_that_flaps_is_back_with_its_filters_and_has_its_message_again() -> None:
    machine = SmallMachine()
    machine.connect("c1", ("a",))
    machine.publish(b"a")
    machine.flap(0)
    assert {"c1": ("a",)} == machine.bench.members
    attempts = [happening.attempt for happening in machine.bench.history if isinstance(happening, Delivered)]
    assert [1, 2] == attempts


def test_who_does_not_read_gets_it_later_and_the_checker_knows() -> None:
    machine = SmallMachine()
    machine.connect("c1", ())
    machine.stop_reading(0)
    machine.publish(b"a")
    assert [] == told(machine, Delivered)
    machine.read_on()
    assert [0, None] == [each.limit for each in machine.bench.history if isinstance(each, LimitChanged)]
    assert 1 == len(told(machine, Delivered))


def test_a_consumer_that_leaves_unread_has_read_first() -> None:
    machine = SmallMachine()
    machine.connect("c1", ())
    machine.stop_reading(0)
    machine.publish(b"a")
    machine.disconnect(0)
    assert kinds(machine).index(Delivered) < kinds(machine).index(Gone)


def test_each_step_draws_who_is_polled_first_and_how_much_is_asked_for() -> None:
    orders, amounts = set(), set()
    for seed in range(60):
        machine = AskedMachine()
        machine.draw_polls(Random(seed))
        for name in ("c1", "c2", "c3"):
            machine.connect(name, ())
        machine.publish(b"a")
        poll = next((step for step in machine.bench.taken[-3:-1] if isinstance(step, Poll)), Poll())
        orders.add(poll.first)
        amounts.add(poll.most)
    assert orders == {(), ("c1", "c3"), ("c2",), ("c2", "c3"), ("c3",), ("c3", "c2")}, "all six, as short as can be"
    assert amounts == {None, 1, 2}


def test_who_joins_may_be_polled_first_at_once() -> None:
    def first(seed: int) -> bool:
        machine = AskedMachine()
        machine.connect("c1", ())
        machine.draw_polls(Random(seed))
        machine.connect("c2", ())
        return any(isinstance(step, Poll) and step.first == ("c2",) for step in machine.bench.taken)

    assert {True, False} == {first(seed) for seed in range(10)}


def test_each_step_draws_rarely_who_stands_still_and_whether_it_is_killed() -> None:
    kinds_drawn: set[type] = set()
    for seed in range(30):
        for machine in (AskedMachine(), MortalMachine()):
            machine.draw_polls(Random(seed))
            machine.connect("c1", ())
            machine.publish(b"a")
            kinds_drawn |= {type(step) for step in machine.bench.taken}
    assert {Connect, BeginReceive, KillAt, Publish} <= kinds_drawn


def test_what_stands_still_is_finished_by_rules_of_the_machine() -> None:
    machine = AskedMachine()
    machine.connect("c1", ())
    machine.bench.take(BeginReceive("c1", 1))
    machine.publish(b"a")
    machine.finish_receive(0)
    machine.begin_ack(0, 1)
    machine.finish_ack(3)
    assert [True] == [each.counted for each in machine.bench.history if isinstance(each, Acked)]


def test_without_dice_and_where_a_broker_pushes_nothing_is_drawn() -> None:
    machine = SmallMachine()
    machine.draw_polls(Random(1))
    machine.connect("c1", ())
    assert [Connect("c1")] == machine.bench.taken


# --- messages -------------------------------------------------------------------------------------------------------


def test_no_more_is_published_than_may_be_outstanding() -> None:
    machine = SmallMachine()
    machine.publish_some(b"a", 4)
    machine.publish_some(b"b", 3)
    machine.publish_some(b"c", 4)
    assert machine.max_outstanding == len(machine.bench.outstanding) == len(told(machine, Published))


def test_an_ack_ends_a_delivery_and_a_late_one_changes_nothing() -> None:
    machine = SmallMachine()
    machine.connect("c1", ())
    machine.publish(b"a")
    machine.ack(7)
    assert (set(), {}) == (machine.bench.outstanding, machine.bench.open)
    machine.ack_late(0)
    assert [True, False] == [each.counted for each in machine.bench.history if isinstance(each, Acked)]


def test_a_late_ack_that_counts_ends_the_message() -> None:
    machine = SmallMachine()
    machine.connect("c1", ())
    machine.publish(b"a")
    machine.disconnect(0)
    machine.ack_late(0)
    assert set() == machine.bench.outstanding


def test_a_nack_ends_a_delivery_until_its_retry_and_a_late_one_changes_nothing() -> None:
    machine = SmallMachine()
    machine.connect("c1", ())
    machine.publish(b"a")
    machine.nack(0)
    assert {} == machine.bench.open
    assert [RETRY_MS] == [each.until_ms for each in machine.bench.history if isinstance(each, Held)]
    machine.nack_late(0)
    assert [True, False] == [each.counted for each in machine.bench.history if isinstance(each, Nacked)]
    machine.advance(RETRY_MS)
    assert 1 == len(machine.bench.open)


def test_a_nack_that_does_not_count_leaves_the_delivery_open() -> None:
    machine, driver = scripted()
    machine.connect("c1", ())
    driver.inbox = [Delivery(0, "a", 1)]
    machine.publish(b"a")
    machine.nack(0)
    assert [("c1", 0)] == [*machine.bench.open]


def test_poison_is_nacked_until_it_is_dead() -> None:
    machine = SmallMachine()
    machine.connect("c1", ())
    machine.publish(b"a")
    machine.fail_again_and_again(0, 2)
    assert 2 == len(told(machine, Nacked))
    machine.fail_again_and_again(0, 6)
    assert 4 == len(told(machine, Nacked))
    assert 1 == len(told(machine, DeadLettered))
    assert set() == machine.bench.outstanding


# --- time and crashes -----------------------------------------------------------------------------------------------


def test_what_is_not_answered_in_time_is_over() -> None:
    machine = SmallMachine()
    machine.connect("c1", ())
    machine.publish(b"a")
    machine.advance(ACK_TIMEOUT_MS - 1)
    assert 1 == len(machine.bench.open)
    machine.advance(1)
    assert ({}, 1) == (machine.bench.open, len(machine.bench.over))


def test_within_the_tolerance_a_delivery_is_open_and_its_retry_may_be_under_way() -> None:
    machine = JitteryMachine()
    machine.connect("c1", ())
    machine.publish(b"a")
    machine.advance(ACK_TIMEOUT_MS - TOLERANCE_MS - 1)
    assert [] == told(machine, Held)
    machine.advance(1)
    assert (1, 1) == (len(machine.bench.open), len(told(machine, Held)))
    machine.advance(2 * TOLERANCE_MS)
    assert {} == machine.bench.open
    machine.teardown()
    assert AtRest is kinds(machine)[-1]


def test_time_passes_up_to_the_edges_of_the_tolerance() -> None:
    near = {ACK_TIMEOUT_MS - TOLERANCE_MS, ACK_TIMEOUT_MS, ACK_TIMEOUT_MS + TOLERANCE_MS}
    assert near <= {*JitteryMachine.world().timeouts}
    assert (ACK_TIMEOUT_MS, RETRY_MS, SmallMachine.rest_ms) == SmallMachine.world().timeouts


def test_what_a_machine_does_not_want_is_not_tried() -> None:
    class InTime(SmallMachine):
        untried = LATE_ANSWERS | {Flap}

    late, in_time = SmallMachine(), InTime()
    for machine in (late, in_time):
        machine.connect("c1", ())
        machine.publish(b"a")
        machine.ack(0)
        for step in (AckLate(), NackLate(), Flap("c1"), Wait(1)):
            machine.take(step)
    assert [AckLate(), NackLate(), Flap("c1"), Wait(1)] == late.bench.taken[-4:]
    assert [Ack(), Wait(1)] == in_time.bench.taken[-2:]


def test_after_a_crash_everybody_is_back() -> None:
    machine = SmallMachine()
    machine.connect("c1", ("a",))
    machine.publish(b"a")
    machine.restart()
    assert {"c1": ("a",)} == machine.bench.members
    assert ["Connected", "Gone", "Connected"] == [type(each).__name__ for each in told(machine, Connected, Gone)]
    machine.ack(0)
    assert set() == machine.bench.outstanding


def test_a_broker_with_nothing_but_its_cursor_is_judged_from_there() -> None:
    machine = CursorOnlyMachine()
    machine.connect("c1", ())
    machine.publish(b"a")
    machine.publish(b"b")
    machine.publish(b"c")
    machine.ack(0)
    machine.restart()
    assert [1, 2] == [each.offset for each in machine.bench.history if isinstance(each, Published)]
    assert {b"a": "c1", b"b": "c1", b"c": "c1"} == machine.bench.owners
    assert {1, 2} == machine.bench.outstanding
    assert [] == machine.bench.over


def test_a_broker_that_has_committed_nothing_is_judged_from_the_beginning() -> None:
    driver = type("NoCursor", (CursorOnlyDriver,), {"cursor": Driver.cursor})
    machine = type("NoCursorMachine", (CursorOnlyMachine,), {"driver_class": driver})()
    machine.publish(b"a")
    machine.restart()
    assert {0} == machine.bench.outstanding


# --- what the broker does -------------------------------------------------------------------------------------------


def test_a_second_copy_takes_the_place_of_the_first() -> None:
    machine, driver = scripted()
    machine.connect("c1", ())
    driver.inbox = [Delivery(0, b"a", 1), Delivery(0, b"a", 2)]
    machine.publish(b"a")
    assert [2] == [receipt.delivery.attempt for receipt in machine.bench.open.values()]
    assert [1] == [receipt.delivery.attempt for receipt in machine.bench.over]


def test_keys_may_be_text() -> None:
    machine, driver = scripted()
    machine.connect("c1", ())
    driver.inbox = [Delivery(0, "ключ", 1)]
    machine.publish("ключ".encode())
    assert ["ключ".encode()] == [each.key for each in machine.bench.history if isinstance(each, Delivered)]


@pytest.mark.parametrize("kind", [Expired, Released])
def test_what_the_broker_has_taken_back_is_over(kind: type[Expired | Released]) -> None:
    machine, driver = scripted()
    machine.connect("c1", ())
    driver.inbox = [Delivery(0, b"a", 1)]
    machine.publish(b"a")
    driver.said = [kind(offset=0, consumer="c1", attempt=2), kind(offset=1, consumer="c1", attempt=1)]
    machine.publish(b"b")
    assert [("c1", 0)] == [*machine.bench.open], "that was another delivery"
    driver.said = [kind(offset=0, consumer="c1", attempt=1)]
    machine.publish(b"c")
    assert [] == [*machine.bench.open]
    assert 1 == len(told(machine, kind))


def test_what_the_broker_has_dropped_is_no_longer_outstanding() -> None:
    machine, driver = scripted()
    machine.publish(b"a")
    driver.said = [Dropped(offset=0), Owned(key=b"a", consumer="c1"), Held(offset=1, reason=HoldReason.BLOCKED)]
    machine.publish(b"b")
    assert {1} == machine.bench.outstanding
    assert {b"a": "c1"} == machine.bench.owners


# --- the end --------------------------------------------------------------------------------------------------------


def test_in_the_end_everything_is_answered_and_the_broker_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(machines, "event", said.append)
    machine = SmallMachine()
    machine.connect("c1", ("a",))
    machine.publish_some(b"a", 3)
    machine.publish(b"b")
    machine.teardown()
    assert set() == machine.bench.outstanding
    assert AtRest is kinds(machine)[-1]
    assert [] == said


def test_what_nobody_could_judge_is_told_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(machines, "event", said.append)
    machine, driver = scripted()
    machine.connect("c1", ())
    machine.teardown()
    assert driver.is_closed
    assert [str(unjudged) for unjudged in machine.bench.checker.unjudged()] == said != []


def test_a_broker_without_time_and_with_a_due_date_is_healed_by_answers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "event", lambda _: None)
    claims = replace(ScriptedMachine.guarantees, progress_ms=10)
    machine = type("NoTime", (ScriptedMachine,), {"guarantees": claims})()
    machine.connect("c1", ())
    driver = machine.bench.driver
    assert isinstance(driver, ScriptedDriver)
    driver.inbox = [Delivery(0, b"a", 1)]
    machine.publish(b"a")
    machine.teardown()
    assert ["c1"] == [*machine.bench.members], "somebody is there, and wants everything"
    assert [AtRest, Acked] == kinds(machine)[:-3:-1]


class Endless(ScriptedDriver):
    """Forgets every ack."""

    def receive(self, consumer: str) -> Sequence[Delivery]:
        return [Delivery(0, b"a", 1)] if self.length else []


def test_healing_ends_where_the_broker_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "event", lambda _: None)
    machine = type("EndlessMachine", (ScriptedMachine,), {"driver_class": Endless})()
    machine.connect("c1", ())
    machine.publish(b"a")
    machine.teardown()
    assert AtRest is kinds(machine)[-1]


def test_a_broker_that_says_nothing_of_itself_is_looked_at_all_the_same() -> None:
    driver = type("Silent", (ScriptedDriver,), {"notices": Driver.notices})
    machine = type("SilentMachine", (ScriptedMachine,), {"driver_class": driver})()
    machine.connect("c1", ())
    assert [Connected, Quiet] == kinds(machine)


def test_time_takes_nothing_back_where_no_timeout_is_claimed() -> None:
    driver = type("Timed", (ScriptedDriver,), {"advance": lambda _, __: None})
    machine = type("TimedMachine", (ScriptedMachine,), {"driver_class": driver})()
    machine.connect("c1", ())
    machine.bench.driver.inbox = [Delivery(0, b"a", 1)]
    machine.publish(b"a")
    machine.advance(1_000)
    assert (1_000, [("c1", 0)]) == (machine.bench.now, [*machine.bench.open])


def test_a_broker_that_is_broken_is_stopped_and_not_healed() -> None:
    driver = type("Loses", (ScriptedDriver,), {})
    machine = type("LosesMachine", (ScriptedMachine,), {"driver_class": driver, "guarantees": Guarantees()})()
    machine.connect("c1", ())
    with pytest.raises(PromiseBrokenError, match=r"progress: offset 0 waits.*\n(.*\n)*.*docs/contract\.md#progress"):
        machine.publish(b"a")
    machine.teardown()
    assert AtRest not in kinds(machine)
    assert machine.bench.driver.is_closed


def test_an_example_is_healed_while_somebody_handles_an_error_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "event", str)
    try:
        importlib.import_module("no_such_module")
    except ImportError:
        machine = SmallMachine()
        machine.connect("c1", ())
        machine.teardown()
        assert AtRest is kinds(machine)[-1]


def test_an_example_that_is_abandoned_is_not_healed() -> None:
    machine, driver = scripted()
    with pytest.raises(ValueError, match="abandoned"):
        fail_in(machine)
    assert driver.is_closed
    assert [] == machine.bench.history


# --- later, and several at once -------------------------------------------------------------------------------------


LATER = [LaterMachine, DispatcherMachine]


@pytest.mark.parametrize("kind", LATER)
def test_a_message_for_later_comes_when_its_time_has_come(kind: type[KeySharedMachine]) -> None:
    machine = kind()
    machine.connect("c1", ())
    machine.publish_later(b"a", 50)
    machine.publish(b"a")
    machine.advance(49)
    assert [] == told(machine, Delivered)
    machine.advance(1)
    assert Published(offset=0, key=b"a", until_ms=50, at_ms=0) in machine.bench.history
    assert [Held(offset=0, reason=HoldReason.NOT_BEFORE, until_ms=50, at_ms=0)] == told(machine, Held)
    assert [(0, 50)] == [(each.offset, each.at_ms) for each in machine.bench.history if isinstance(each, Delivered)]


@pytest.mark.parametrize("kind", LATER)
def test_a_message_that_is_postponed_comes_again_and_holds_its_key(kind: type[KeySharedMachine]) -> None:
    machine = kind()
    machine.connect("c1", ())
    machine.publish_some(b"a", 2)
    machine.postpone(0, 70)
    assert [Released(offset=0, consumer="c1", attempt=1, until_ms=70, at_ms=0)] == told(machine, Released)
    assert [Held(offset=0, reason=HoldReason.POSTPONED, until_ms=70, at_ms=0)] == told(machine, Held)
    machine.advance(70)
    assert [0, 0] == [each.offset for each in machine.bench.history if isinstance(each, Delivered)]


def test_what_the_broker_does_not_postpone_stays_open() -> None:
    class Stubborn(LaterDriver):
        def postpone(self, consumer: str, delivery: Delivery, ms: int) -> bool | None:
            return False

    machine = type("StubbornMachine", (LaterMachine,), {"driver_class": Stubborn})()
    machine.connect("c1", ())
    machine.publish(b"a")
    machine.postpone(0, 70)
    assert ([], 1) == (told(machine, Released), len(machine.bench.open))


def test_an_ack_of_several_is_one_of_each_older_one_of_the_key() -> None:
    machine = BatchingMachine()
    machine.publish_some(b"a", 2)
    machine.publish(b"b")
    machine.connect("c1", ())
    machine.ack_through(1)
    assert [(0, True), (1, True)] == [
        (each.offset, each.counted) for each in machine.bench.history if isinstance(each, Acked)
    ]
    assert {2} == machine.bench.outstanding


def test_in_the_end_there_is_time_for_what_was_wanted_latest() -> None:
    machine = LaterMachine()
    machine.publish_later(b"a", 100_000)
    machine.teardown()
    assert (set(), 1) == (machine.bench.outstanding, len(told(machine, Acked)))


def test_what_is_published_again_after_a_crash_has_its_time_again() -> None:
    class Forgetful(LaterDriver):
        """Stores nothing but its log, with the times."""

        remembers_acks = False

        def restart(self) -> None:
            log, self.broker = self.broker.log, LaterBroker(now=self.broker.now)
            for key in log:
                self.broker.append_later(key, 50 - self.broker.now)

    machine = type("ForgetfulMachine", (LaterMachine,), {"driver_class": Forgetful})()
    machine.connect("c1", ())
    machine.publish_later(b"a", 50)
    machine.advance(20)
    machine.restart()
    assert Published(offset=0, key=b"a", until_ms=50, at_ms=20) == machine.bench.history[0]
    machine.teardown()
