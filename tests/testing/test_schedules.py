"""Schedules: steps as plain values, taken again without the machine, and made shorter."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.kit.all_faults import FAULTS
from tests.kit.asked_broker import AskedMachine, GroupedMachine, LeasesMoreThanItHandsOver, SplitsTheGroup
from tests.kit.small_broker import RETRY_MS, WINDOW, SmallBroker, SmallDriver, SmallMachine
from tests.properties.kit.test_kit_finds_faults import OneLoopBroker

from keyshared.testing import Claims, Driver, Promise, check_history
from keyshared.testing.find import ScheduleRun, run_schedule, shorten
from keyshared.testing.history import Acked, AtRest, Connected, Delivered, Event, Gone, Nacked, Published, Quiet
from keyshared.testing.steps import (
    Ack,
    AckLate,
    AckThrough,
    BeginAck,
    BeginReceive,
    Connect,
    Disconnect,
    Fail,
    FinishAck,
    FinishReceive,
    Flap,
    KillAt,
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

EVERYTHING: Schedule = (
    Connect("c1"),
    Connect("c2", ("a",)),
    Publish(b"a", 3),
    StopReading("c2"),
    Publish(b"b"),
    ReadOn(),
    Ack(0),
    AckLate(0),
    Nack(1),
    NackLate(1),
    Fail(0, 6),
    Flap("c1"),
    Wait(100),
    Restart(),
    Disconnect("c2"),
)
CAUGHT: dict[str, tuple[Promise, Schedule]] = {
    "NackedLetsNewerOnesPass": (Promise.KEY_ORDER, (Connect("c1"), Publish(b"a", 2), Nack())),
    "EvictionLoses": (Promise.SAFE_CURSOR, (Connect("c1"), Publish(b"a"), Disconnect("c1"))),
    "CursorIsTheGreatestAck": (Promise.SAFE_CURSOR, (Connect("c1"), Publish(b"a"), Publish(b"b"), Ack(1))),
    "MovesWithoutDraining": (Promise.ONE_HOLDER, (Connect("c2"), Publish(b"a", 2), Connect("c1"), Connect("c3"))),
    "ParksWhileItReads": (Promise.PROGRESS, (Connect("c1"), Publish(b"a", 2), Ack())),
    "AttemptsStandStill": (Promise.FENCE, (Connect("c1"), Publish(b"a"), Flap("c1"))),
    "TimeoutForgetsTheMessage": (Promise.PROGRESS, (Connect("c1"), Publish(b"a"), Wait(100), Wait(10))),
    "RestartsAtTheLatest": (Promise.PROGRESS, (Connect("c1"), Publish(b"a"), Restart())),
    "LimitForgottenOnRetry": (
        Promise.BOUNDS,
        (Connect("c1"), Publish(b"a"), Publish(b"b"), Publish(b"c"), Publish(b"d"), Nack(), Wait(RETRY_MS)),
    ),
}
"""What is wrong with each broker, written down by hand."""


def small(schedule: Sequence[Any], driver: type[Any] = SmallDriver, **claims: Any) -> ScheduleRun:
    machine = type("Machine", (SmallMachine,), {"driver_class": driver})
    return run_schedule(machine, schedule, replace(SmallMachine.claims, **claims))


def broken(name: str) -> type[SmallDriver]:
    fault = next(fault for fault in FAULTS if fault.name == name)
    return type("Broken", (SmallDriver,), {"broker_class": fault.broker})


def kinds(history: Sequence[Event]) -> list[type[Event]]:
    return [type(event) for event in history]


# --- run ------------------------------------------------------------------------------------------------------------


def test_a_correct_broker_keeps_its_promises_in_a_schedule_of_every_step() -> None:
    replay = small(EVERYTHING)
    assert replay.violation is None
    assert EVERYTHING == replay.taken
    assert replay.in_the_end
    assert AtRest is kinds(replay.history)[-1]
    assert 4 == kinds(replay.history).count(Published)


@pytest.mark.parametrize("name", CAUGHT)
def test_a_schedule_written_by_hand_shows_what_is_wrong(name: str) -> None:
    promise, schedule = CAUGHT[name]
    assert small(schedule).violation is None
    found = small(schedule, broken(name))
    assert found.violation is not None
    assert promise is found.violation.promise


def test_a_replay_ends_with_what_it_shows_and_the_broker_is_stopped() -> None:
    closed: list[SmallBroker] = []

    class Closing(broken("ParksWhileItReads")):  # type: ignore[misc]  # a class made here
        def close(self) -> None:
            closed.append(self.broker)

    replay = small((Connect("c1"), Publish(b"a", 2), Ack(), Publish(b"b")), Closing)
    assert (Connect("c1"), Publish(b"a", 2), Ack()) == replay.taken
    assert not replay.in_the_end
    assert AtRest not in kinds(replay.history)
    assert 1 == len(closed)


def test_a_broker_of_which_nothing_is_claimed_is_recorded_to_the_end_and_judged_afterwards() -> None:
    _, schedule = CAUGHT["EvictionLoses"]
    replay = small(schedule, broken("EvictionLoses"), promises=frozenset())
    assert replay.violation is None
    found = check_history(replay.history, SmallMachine.claims)
    assert Promise.SAFE_CURSOR in {violation.promise for violation in found}


def test_a_broker_of_coroutines_takes_the_same_steps() -> None:
    assert small(EVERYTHING).history == small(EVERYTHING, OneLoopBroker).history


def test_everything_is_claimed_by_default() -> None:
    assert run_schedule(SmallDriver, (Connect("c1"), Publish(b"a"))).violation is None
    _, schedule = CAUGHT["EvictionLoses"]
    assert run_schedule(broken("EvictionLoses"), schedule).violation is not None


# --- what cannot be done --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        Disconnect("c2"),
        Flap("c2"),
        StopReading("c2"),
        Connect("c1"),
        ReadOn(),
        Ack(),
        AckLate(),
        Nack(),
        NackLate(),
        Fail(),
        AckThrough(),
        Postpone(),
        PublishLater(b"a", 1),
        Poll(),
        Poll(most=1),
        KillAt(1),
        BeginReceive("c1"),
        FinishReceive(),
        BeginAck(),
        FinishAck(),
    ],
    ids=str,
)
def test_a_step_that_cannot_be_taken_is_passed_over(step: object) -> None:
    assert (Connect("c1"),) == small((Connect("c1"), step)).taken


def test_no_more_is_published_than_may_be_outstanding() -> None:
    replay = small((Publish(b"a", WINDOW + 1), Publish(b"b")))
    assert [b"a"] * WINDOW == [each.key for each in replay.history if isinstance(each, Published)]
    assert 1 == len(replay.taken)


def test_who_does_not_read_can_not_stop_again() -> None:
    assert 2 == len(small((Connect("c1"), StopReading("c1"), StopReading("c1"))).taken)


class Bare(Driver):
    """Can do what every driver has to, and no more, and loses everything."""

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        assert not filters, "it takes none"

    def disconnect(self, consumer: str) -> None: ...

    def publish(self, key: bytes | None) -> int:
        return 0

    def receive(self, consumer: str) -> Sequence[object]:  # type: ignore[override]  # never anything
        return ()


def test_what_the_driver_cannot_do_is_passed_over() -> None:
    schedule = (Connect("c1", ("a",)), Nack(), NackLate(), Fail(), Wait(1), Restart())
    replay = run_schedule(Bare, schedule, Claims(promises=set()))
    assert (Connect("c1", ("a",)),) == replay.taken


# --- more than one of a key -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_key", [2, None])
def test_what_was_sent_before_a_nack_is_read_before_it_where_two_of_a_key_may_be_out(per_key: int | None) -> None:
    class Eager(SmallBroker):
        """Sends two of a key while both are at their owner."""

        def is_held(self, message: object) -> bool:
            return False

    driver = type("EagerDriver", (SmallDriver,), {"broker_class": Eager})
    schedule = (Connect("c1"), Publish(b"a"), StopReading("c1"), Publish(b"a"), Nack())
    replay = small(schedule, driver, per_key=per_key)
    assert replay.violation is None
    order = [kind for kind in kinds(replay.history) if kind in {Delivered, Nacked, Connected, Gone}]
    assert [Connected, Delivered, Delivered, Nacked] == order[:4]


# --- in which order, and how much -------------------------------------------------------------------------------------

SPLIT: Schedule = (Connect("c1"), Connect("c2"), Publish(b"a", 2), Poll(("c2", "nobody")), Nack())


def asked(machine: type[AskedMachine], broker: type | None, schedule: Schedule) -> ScheduleRun:
    driver: Any = machine.driver_class
    driver = driver if broker is None else type("Broken", (driver,), {"broker_class": broker})
    return run_schedule(type("Machine", (machine,), {"driver_class": driver}), schedule)


def test_who_is_polled_first_gets_what_comes_back() -> None:
    assert asked(GroupedMachine, None, SPLIT).violation is None
    found = asked(GroupedMachine, SplitsTheGroup, SPLIT).violation
    assert found is not None
    assert Promise.ONE_HOLDER is found.promise
    in_joining_order = tuple(step for step in SPLIT if not isinstance(step, Poll))
    assert asked(GroupedMachine, SplitsTheGroup, in_joining_order).violation is None


def test_an_order_is_for_one_step_only() -> None:
    later = (*SPLIT[:-1], Publish(b"b"), Nack())
    assert asked(GroupedMachine, SplitsTheGroup, later).violation is None


SOME: Schedule = (Publish(b"a"), Publish(b"b"), Poll(most=1), Connect("c1"), Ack())


def test_who_asks_for_less_gets_the_rest_at_the_next_step() -> None:
    replay = asked(AskedMachine, None, (*SOME[:-1], Poll(most=1), Publish(b"c")))
    assert replay.violation is None
    first, second, *_ = (
        at for at, each in enumerate(replay.history) if isinstance(each, Delivered) and each.attempt == 1
    )
    assert Quiet not in kinds(replay.history[first:second]), "it had room, and did not ask"
    assert asked(AskedMachine, LeasesMoreThanItHandsOver, SOME).violation is not None
    everything = tuple(step for step in SOME if not isinstance(step, Poll))
    assert asked(AskedMachine, LeasesMoreThanItHandsOver, everything).violation is None


def test_before_time_passes_everybody_has_asked_for_all() -> None:
    schedule = (*SOME[:-1], Wait(50), Publish(b"c"))
    replay = run_schedule(AskedMachine, schedule)
    assert replay.violation is None
    assert [0, 0] == [each.at_ms for each in replay.history if isinstance(each, Delivered) and each.attempt == 1][:2]


# --- shorten --------------------------------------------------------------------------------------------------------


def test_what_is_not_needed_is_left_out_and_numbers_are_lowered() -> None:
    def breaks(schedule: Schedule) -> bool:
        found = small(schedule, broken("CursorIsTheGreatestAck")).violation
        return found is not None and found.promise is Promise.SAFE_CURSOR

    long = (Connect("c1"), Publish(b"b"), Flap("c1"), Publish(b"a", 2), Wait(1), Fail(0, 2), Ack(0), Publish(b"c", 4))
    assert breaks(long)
    shortest = shorten(long, breaks)
    assert len(shortest) <= 3
    assert breaks(shortest)
    assert not any(breaks(shortest[:place] + shortest[place + 1 :]) for place in range(len(shortest)))


@pytest.mark.parametrize(
    ("step", "wanted", "easiest"),
    [
        (Fail(3, 4), (Fail, Nack), Nack(0)),
        (Fail(2, 4), (Fail,), Fail(0, 2)),
        (Publish(b"a", 4), (Publish,), Publish(b"a", 1)),
        (Publish(b"c"), (Publish,), Publish(b"a")),
        (Publish(b"plumless"), (Publish,), Publish(b"a")),
        (Publish(None, 2), (Publish,), Publish(None)),
        (Wait(1_001), (Wait,), Wait(1)),
        (Ack(3), (Ack,), Ack(0)),
        (NackLate(2), (NackLate,), NackLate(0)),
        (AckThrough(3), (AckThrough,), AckThrough(0)),
        (AckThrough(3), (AckThrough, Ack), Ack(0)),
        (Postpone(3, 50), (Postpone,), Postpone(0, 1)),
        (PublishLater(b"c", 50), (PublishLater,), PublishLater(b"a", 1)),
        (PublishLater(b"c", 50), (PublishLater, Publish), Publish(b"a")),
        (Disconnect("c1"), (Disconnect,), Disconnect("c1")),
        (Poll(("c2", "c1"), 1), (Poll,), Poll((), None)),
        (KillAt(5), (KillAt,), KillAt(1)),
        (BeginReceive("c1", 3), (BeginReceive,), BeginReceive("c1", 1)),
        (BeginAck(2, 3), (BeginAck,), BeginAck(0, 1)),
        (BeginAck(2, 3), (BeginAck, Ack), Ack(0)),
        (FinishAck(2), (FinishAck,), FinishAck(0)),
        (FinishReceive(2), (FinishReceive,), FinishReceive(0)),
    ],
    ids=str,
)
def test_each_kind_of_step_is_made_easier(step: object, wanted: tuple[type, ...], easiest: object) -> None:
    kept = shorten((step,), lambda steps: len(steps) == 1 and isinstance(steps[0], wanted))  # type: ignore[arg-type]  # of steps
    assert (easiest,) == kept


def test_a_step_may_go_if_a_later_answer_means_another_delivery() -> None:
    answers = {(Nack(0), Ack(0)), (Ack(1),)}
    assert (Ack(1),) == shorten((Nack(0), Ack(0)), lambda steps: steps in answers)


def test_long_schedules_are_not_tried_in_pairs() -> None:
    long: Schedule = (*[Connect("c1")] * 12, Nack(0), Ack(0))
    assert long == shorten(long, lambda steps: steps in {long, (*[Connect("c1")] * 12, Ack(1))})


def test_what_cannot_be_shortened_stays() -> None:
    assert (Connect("c1"), Ack()) == shorten((Connect("c1"), Ack()), lambda _: False)
    assert () == shorten((), lambda _: True)


def test_what_is_not_to_be_tried_and_who_has_no_place_is_passed_over() -> None:
    steps = (Connect("c1"), Connect("c2"), Publish(b"a"), Nack(), Disconnect("c1"), Connect("c2"))
    machine = type("Machine", (SmallMachine,), {"untried": {Nack}, "max_consumers": 1})
    run = run_schedule(machine, steps, Claims(promises=set()))
    assert (Connect("c1"), Publish(b"a"), Disconnect("c1"), Connect("c2")) == run.taken


def test_answers_are_recorded_with_the_deliveries_that_they_name() -> None:
    replay = small((Connect("c1"), Publish(b"a"), Publish(b"b"), Ack(1), Ack(0)))
    assert [1, 0] == [each.offset for each in replay.history if isinstance(each, Acked)]
