"""The machine finds every fault that was put into a broker, names its promise, and finds nothing where nothing is."""

import os
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Sequence
from random import SystemRandom
from typing import ClassVar

import pytest
from tests.kit.all_faults import FAULTS
from tests.kit.asked_broker import ASKED_FAULTS, AskedFault
from tests.kit.broken_own import OWN_FAULTS, OwnFault
from tests.kit.dice import find_by_some_dice
from tests.kit.fault import Fault
from tests.kit.file_broker import AnswersBeforeItWrites
from tests.kit.jittery_broker import ExpiresEarlyMachine, JitteryMachine
from tests.kit.killed_broker import KilledMachine, broken
from tests.kit.later_broker import LATER_FAULTS, LaterFault
from tests.kit.own_machines import MACHINES
from tests.kit.paused_broker import PausedMachine, paused
from tests.kit.shared_file import LooksBeforeItClaims
from tests.kit.small_broker import Message, SmallBroker, SmallDriver, SmallMachine

from keyshared.testing import AsyncDriver, Delivery, Driver, Promise
from keyshared.testing.find import BUDGET, find_violation, search
from keyshared.testing.history import Event
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import BeginReceive

QUICK = BUDGET._replace(shortens=False)
"""A fault is not made smaller: that is what takes seconds."""
FEW = BUDGET._replace(tries=25)
MANY = int(os.environ.get("EXAMPLES", "500"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_is_caught_and_its_promise_named(fault: Fault) -> None:
    found = find_violation(fault.machine, QUICK)
    assert found is not None
    assert found.what in fault.promises


@pytest.mark.interpreted("changes methods of living parts")
@pytest.mark.parametrize("fault", OWN_FAULTS, ids=lambda fault: fault.machine.__name__)
def test_a_fault_in_a_part_of_the_library_is_caught_through_its_driver(fault: OwnFault) -> None:
    found = find_violation(fault.machine, QUICK)
    assert found is not None
    assert found.what in fault.promises


@pytest.mark.parametrize("fault", LATER_FAULTS, ids=lambda fault: fault.broker.__name__)
def test_a_fault_of_a_broker_with_delays_is_caught_and_its_promise_named(fault: LaterFault) -> None:
    found = find_violation(fault.machine, QUICK)
    assert found is not None
    assert found.what in fault.promises


@pytest.mark.parametrize("fault", ASKED_FAULTS, ids=lambda fault: fault.broker.__name__)
def test_a_fault_of_a_broker_that_is_asked_is_caught_and_its_promise_named(fault: AskedFault) -> None:
    found = find_violation(fault.machine, QUICK)
    assert found is not None
    assert found.what in fault.promises


def test_a_timeout_that_is_much_too_short_is_caught_within_a_tolerance_too() -> None:
    found = find_violation(ExpiresEarlyMachine, QUICK)
    assert found is not None
    # what has expired for the broker alone is open at one consumer too many, or open and not served
    assert found.what in {Promise.ONE_HOLDER, Promise.FENCE, Promise.BOUNDS, Promise.PROGRESS}


def test_a_clock_that_is_not_exact_looks_like_a_fault_where_no_tolerance_is_claimed() -> None:
    exact = type("ExactMachine", (JitteryMachine,), {"claims": SmallMachine.claims})
    assert find_violation(exact, QUICK) is not None


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_a_correct_system_breaks_nothing(machine: type[KeySharedMachine]) -> None:
    assert find_violation(machine, FEW) is None


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_is_found_within_the_default_budget_whatever_the_dice(fault: Fault) -> None:
    for dice in range(10):
        found = find_violation(fault.machine, QUICK._replace(seed=dice))
        assert found is not None, f"seed {dice}"
        assert found.what in fault.promises


@pytest.mark.slow
def test_a_process_that_is_killed_in_between_is_caught_and_a_correct_one_breaks_nothing() -> None:
    found = find_by_some_dice(broken(AnswersBeforeItWrites), QUICK)
    assert found is not None
    assert found.what == Promise.NO_LOSS
    assert find_violation(KilledMachine, BUDGET._replace(tries=20)) is None


@pytest.mark.slow
def test_a_process_that_is_paused_in_between_is_caught_and_a_correct_one_breaks_nothing() -> None:
    found = find_by_some_dice(paused(LooksBeforeItClaims))
    assert found is not None
    assert found.what == Promise.ONE_HOLDER
    assert any(isinstance(step, BeginReceive) for step in found.schedule)
    assert find_violation(PausedMachine, BUDGET._replace(tries=20)) is None


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_a_correct_system_breaks_nothing_for_long(machine: type[KeySharedMachine]) -> None:
    found = find_violation(machine, BUDGET._replace(tries=MANY, seed=SystemRandom().randrange(10**9)))
    assert found is None, f"run it again with run_schedule({machine.driver_class.__name__}, [...], ...):\n{found}"


def test_a_failure_shrinks_to_a_few_steps_and_prints_its_proof() -> None:
    fault = next(fault for fault in FAULTS if fault.name == "CursorOneTooFar")
    found = find_violation(fault.machine)
    assert found is not None
    assert found.steps <= 2
    assert "safe-cursor: cursor" in str(found)
    assert "Publish(key=" in str(found)
    assert "Committed(resume_offset=" in str(found)


class OneLoopBroker(AsyncDriver):
    """The small broker, operated by coroutines."""

    takes_filters = True
    broker_class = SmallBroker
    loops: ClassVar[list[AbstractEventLoop]] = []

    def __init__(self) -> None:
        self.inner: SmallDriver | None = None

    @property
    def driver(self) -> SmallDriver:
        assert self.inner is not None
        return self.inner

    async def open(self) -> None:
        self.loops.append(get_running_loop())
        self.inner = SmallDriver()
        self.inner.broker = self.broker_class()

    async def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        self.driver.connect(consumer, filters)

    async def disconnect(self, consumer: str) -> None:
        self.driver.disconnect(consumer)

    async def publish(self, key: bytes | None) -> int:
        return self.driver.publish(key)

    async def receive(self, consumer: str) -> Sequence[Delivery]:
        return self.driver.receive(consumer)

    async def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.driver.ack(consumer, delivery)

    async def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.driver.nack(consumer, delivery)

    async def advance(self, ms: int) -> None:
        self.driver.advance(ms)

    async def cursor(self) -> int | None:
        return self.driver.cursor()

    async def restart(self) -> None:
        self.driver.restart()

    async def notices(self) -> Sequence[Event]:
        return self.driver.notices()


class AsyncMachine(SmallMachine):
    driver_class = OneLoopBroker


def test_a_broker_of_coroutines_is_tried_in_a_loop_that_the_machine_owns() -> None:
    OneLoopBroker.loops.clear()
    assert find_violation(AsyncMachine, FEW) is None
    assert OneLoopBroker.loops
    assert all(loop.is_closed() for loop in OneLoopBroker.loops)


@pytest.mark.parametrize("name", ["PutsBackAtTheTail", "EvictionLoses", "CrashForgetsAcks"])
def test_faults_of_a_broker_of_coroutines_are_found(name: str) -> None:
    fault = next(fault for fault in FAULTS if fault.name == name)
    driver = type("Broken", (OneLoopBroker,), {"broker_class": fault.broker})
    found = find_violation(type("BrokenMachine", (AsyncMachine,), {"driver_class": driver}), QUICK)
    assert found is not None
    assert found.what in fault.promises


class CursorOnly(SmallBroker):
    """Stores its cursor and nothing else."""

    def crash(self) -> None:
        first = self.cursor()
        super().crash()
        for message in list(self.messages.values()):
            self.settle(message)
        for offset in range(first, len(self.log)):
            self.messages[offset] = Message(offset, self.log[offset])


class ForgetfulDriver(SmallDriver):
    remembers_acks = False
    broker_class = CursorOnly


class ForgetfulMachine(SmallMachine):
    driver_class = ForgetfulDriver


def test_what_was_acked_above_the_cursor_may_come_again_where_only_the_cursor_is_stored() -> None:
    assert find_violation(ForgetfulMachine, FEW) is None


def test_it_may_not_come_again_where_acks_are_remembered() -> None:
    driver = type("Claims", (ForgetfulDriver,), {"remembers_acks": True})
    found = find_violation(type("ClaimsMachine", (SmallMachine,), {"driver_class": driver}), QUICK)
    assert found is not None
    assert found.what in {Promise.NO_LOSS, Promise.FENCE}


class BareDriver(Driver):
    """Can do what every driver has to, and no more."""

    def __init__(self) -> None:
        self.driver = SmallDriver()
        self.connect, self.disconnect = self.driver.connect, self.driver.disconnect  # type: ignore[method-assign]
        self.publish, self.receive, self.ack = self.driver.publish, self.driver.receive, self.driver.ack  # type: ignore[method-assign]


class BareMachine(SmallMachine):
    driver_class = BareDriver


def test_what_a_driver_cannot_do_is_not_tried() -> None:
    assert find_violation(BareMachine, FEW) is None


def test_promises_that_could_not_be_judged_are_listed() -> None:
    assert {Promise.SAFE_CURSOR} <= {unjudged.promise for unjudged in search(BareMachine, FEW).unjudged}
