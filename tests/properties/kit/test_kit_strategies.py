"""What the strategies of the kit draw."""

from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from tests.kit.later_broker import LaterDriver
from tests.kit.own_machines import DispatcherMachine
from tests.kit.small_broker import SmallDriver, SmallMachine

from keyshared.testing.driver import Driver
from keyshared.testing.find import run_schedule
from keyshared.testing.steps import (
    Ack,
    AckLate,
    AckThrough,
    Connect,
    Disconnect,
    Fail,
    Flap,
    Nack,
    NackLate,
    Poll,
    Postpone,
    Publish,
    PublishLater,
    ReadOn,
    Restart,
    Schedule,
    StopReading,
    Wait,
)
from keyshared.testing.strategies import schedules

EVERY_KIND: set[type[Any]] = {
    *(Connect, Disconnect, Flap, StopReading, ReadOn, Publish, PublishLater, Ack, AckLate, AckThrough, Nack, NackLate),
    *(Postpone, Fail, Wait, Restart, Poll),
}


@given(schedules(most=10))
def test_a_schedule_begins_with_a_join_and_is_as_long_as_it_may_be(schedule: Schedule) -> None:
    assert isinstance(schedule[0], Connect)
    assert len(schedule) <= 10


@pytest.mark.parametrize("kind", sorted(EVERY_KIND, key=str), ids=lambda kind: kind.__name__)
def test_every_kind_of_step_is_drawn(kind: type) -> None:
    def has(schedule: Schedule) -> bool:
        return any(isinstance(step, kind) for step in schedule[1:])

    assert has(find(schedules(LaterDriver), has, settings=settings(database=None, phases=[Phase.generate])))


class Bare(SmallDriver):
    """Can do what every driver has to, and no more."""

    takes_filters = False
    nack, advance, cursor, restart, notices = (
        *(Driver.nack, Driver.advance, Driver.cursor, Driver.restart, Driver.notices),
    )


@given(schedules(Bare))
def test_only_steps_that_the_driver_can_take_are_drawn(schedule: Schedule) -> None:
    rare = Nack | NackLate | Fail | Wait | Restart | AckThrough | Postpone | PublishLater
    assert not any(isinstance(step, rare) for step in schedule)
    assert not any(step.filters for step in schedule if isinstance(step, Connect))


@given(schedules(SmallDriver))
def test_a_correct_broker_keeps_its_promises_whatever_the_schedule(schedule: Schedule) -> None:
    assert run_schedule(SmallMachine, schedule).violation is None


@given(schedules(DispatcherMachine.driver_class))
def test_the_dispatcher_keeps_its_promises_whatever_the_schedule(schedule: Schedule) -> None:
    assert run_schedule(DispatcherMachine, schedule).violation is None
