"""Simulations, read by the kit: nothing in them breaks a promise, and a plan that is late is caught."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.properties.schedules import guarantees_of
from tests.properties.test_simulate_properties import plans

from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.simulate import (
    Answer,
    Arrival,
    Event,
    FailFirst,
    Fixed,
    Group,
    Join,
    Leave,
    Redrive,
    Row,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
    Simulation,
)
from keyshared.testing import Guarantees, check_history
from keyshared.testing.adapters.simulated import from_simulation
from keyshared.testing.history import (
    Acked,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Done,
    Happening,
    Held,
    HoldReason,
    LimitChanged,
    Nacked,
    PlacementChanged,
    Published,
    Quiet,
    Released,
    Settled,
    SettledBy,
)

laters = st.sampled_from([None, None, None, 100, 400])
messages = st.lists(st.tuples(st.sampled_from(["k", "l", "m", None]), st.integers(0, 200), laters), max_size=30).map(
    lambda drawn: [Arrival(offset, key, at, not_before_ms=later) for offset, (key, at, later) in enumerate(drawn)]
)


@given(plans(), messages)
def test_a_simulation_breaks_no_promise(plan: Group, arrivals: list[Arrival]) -> None:
    claims = guarantees_of(plan.config)
    numbers = {name: getattr(claims, name) for name in claims.__slots__}
    claims = Guarantees(**(numbers | {"cursor_keeps_up": False, "per_consumer": None}))
    assert [] == check_history(from_simulation(Simulation(plan, arrivals)), claims)


def test_a_simulation_tells_of_each_message_that_it_is_done() -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(10))], config=DispatcherConfig(tell_settled=True))
    rows = list(Simulation(plan, [Arrival(0, "k", at_ms=0), Arrival(1, "k", at_ms=0)]))
    history = [*from_simulation(rows), Quiet()]

    assert [Event.ACKED, Event.DONE] == [row.event for row in rows if row.at_ms == 10 and row.offset == 0][:2]
    told = [happening for happening in history if isinstance(happening, Done)]
    assert [Done(offset=offset, reason="acked", at_ms=10 + 10 * offset) for offset in range(2)] == told
    claims = Guarantees(promises={"settled-once"}, tells_done=True)
    assert [] == check_history(history, claims)
    (violation,) = check_history([happening for happening in history if happening is not told[1]], claims)
    assert "settled-once: offset 1 is done, and nobody was told" == str(violation).partition("\n")[0]


def test_a_simulation_tells_which_messages_a_newer_one_superseded() -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(10))], config=DispatcherConfig(latest_only=True))
    arrivals = [Arrival(offset, "k", at_ms=offset) for offset in range(4)]
    history = [*from_simulation(Simulation(plan, arrivals)), Quiet()]
    assert [1, 2] == [each.offset for each in history if isinstance(each, Settled)]
    claims = Guarantees(promises={"latest-only", "no-loss"}, latest_only=True)
    assert [] == check_history(history, claims)
    unclaimed = Guarantees(promises={"no-loss"})
    assert 2 == len(check_history(history, unclaimed))


def test_a_simulation_is_read_row_by_row() -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(10))],
        changes=[SetLimit(1, "a", 5), SetWeight(2, "a", 3), SetService(3, "a", Fixed(4))],
    )
    history = list(from_simulation(Simulation(plan, [Arrival(0, "k", at_ms=0)])))
    assert [
        Connected(consumer="a", at_ms=0),
        Published(offset=0, key=b"k", at_ms=0),
        Delivered(offset=0, key=b"k", consumer="a", attempt=1, at_ms=0),
        LimitChanged(consumer="a", limit=5, at_ms=1),
        PlacementChanged(at_ms=2),
        Acked(offset=0, consumer="a", attempt=1, counted=True, at_ms=10),
        Committed(resume_offset=1, at_ms=10),
    ] == history


def rows(*events: tuple[Event, dict[str, object]]) -> list[Row]:
    return [Row(number, number, event, **fields) for number, (event, fields) in enumerate(events)]  # type: ignore[arg-type]


def test_a_late_ack_that_has_no_row_is_told() -> None:
    about: dict[str, object] = {"offset": 0, "key": b"k"}
    delivery: dict[str, object] = about | {"consumer": "a", "attempt": 1}
    history = rows(
        (Event.OFFERED, about),
        (Event.DELIVERED, delivery),
        (Event.NACKED, delivery | {"available_ms": 50}),
        (Event.IGNORED_NACK, delivery | {"reason": "stale_attempt"}),
        (Event.SETTLED, delivery | {"reason": "late_ack"}),
    )
    assert [
        Nacked(offset=0, consumer="a", attempt=1, counted=True, at_ms=2),
        Held(offset=0, reason=HoldReason.RETRY, until_ms=50, at_ms=2),
        Nacked(offset=0, consumer="a", attempt=1, counted=False, at_ms=3),
        Acked(offset=0, consumer="a", attempt=1, counted=True, at_ms=4),
    ] == list(from_simulation(history))[2:]


class FailsSecond:
    """Nacks the second delivery of each message."""

    reason: str | None = None

    def answer(self, offset: int, key: bytes | None, attempt: int) -> Answer:  # noqa: ARG002  # see AnswerModel
        return Answer.NACK if attempt == 2 else Answer.ACK


def test_a_late_ack_names_the_delivery_that_was_acked() -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(150), concurrency=5)],
        changes=[Join(101, SimulatedConsumer("b", Fixed(10))), Leave(102, "a", None)],
        answers=[FailsSecond()],
        config=DispatcherConfig(ack_timeout_ms=100, retry=RetryPolicy(base_delay_ms=15, max_delay_ms=1_000)),
    )
    history = list(from_simulation(Simulation(plan, [Arrival(0, "k", at_ms=0)])))
    assert Acked(offset=0, consumer="a", attempt=1, counted=True, at_ms=150) == history[-2]
    assert [] == check_history(history)


def test_a_late_ack_of_what_has_come_back_is_one() -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(150), concurrency=5)],
        changes=[Redrive(400, "k")],
        answers=[FailFirst(1)],
        config=DispatcherConfig(
            ack_timeout_ms=100,
            redrive=True,
            retry=RetryPolicy(max_redeliveries=1, base_delay_ms=100, max_delay_ms=1_000),
        ),
    )
    history = list(from_simulation(Simulation(plan, [Arrival(0, "k", at_ms=0)])))
    assert Acked(offset=0, consumer="a", attempt=3, counted=True, at_ms=550) == history[-1]
    assert [] == check_history(history, Guarantees(may_dead_letter=True))


def test_a_late_ack_that_was_noted_settles_later() -> None:
    about: dict[str, object] = {"offset": 0, "key": b"k"}
    delivery: dict[str, object] = about | {"consumer": "a"}
    history = rows(
        (Event.OFFERED, about),
        (Event.DELIVERED, delivery | {"attempt": 1}),
        (Event.TIMED_OUT, delivery | {"attempt": 1}),
        (Event.DELIVERED, delivery | {"attempt": 2}),
        (Event.IGNORED, delivery | {"attempt": 1, "reason": "late_ack_noted"}),
        (Event.NACKED, delivery | {"attempt": 2}),
        (Event.SETTLED, about | {"reason": "late_ack"}),
        (Event.IGNORED_CALL, {"offset": 0, "reason": "unknown_offset"}),
    )
    read: list[Happening] = list(from_simulation(history))
    assert Settled(offset=0, reason=SettledBy.LATE_ACK, at_ms=6) == read[-1]
    assert [] == check_history(read)


def test_every_event_of_a_simulation_is_known() -> None:
    about: dict[str, object] = {"offset": 0, "key": b"k", "consumer": "a", "attempt": 1, "reason": "limit 1"}
    read = Counter({event: len(list(from_simulation(rows((event, about))))) for event in Event})
    assert {Event.PAUSED, Event.RESUMED, Event.IGNORED_CALL} == {event for event in Event if not read[event]}


def test_what_is_for_later_is_read_with_its_time_and_what_failed_with_its_reason() -> None:
    answers = [FailFirst(1, Answer.POSTPONE), FailFirst(2, Answer.REJECT, "card refused")]
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(10), postpone_ms=50)], answers=answers)
    history = list(from_simulation(Simulation(plan, [Arrival(0, "k", not_before_ms=100)])))
    assert [
        Published(offset=0, key=b"k", until_ms=100, at_ms=0),
        Held(offset=0, reason=HoldReason.NOT_BEFORE, until_ms=100, at_ms=0),
        Delivered(offset=0, key=b"k", consumer="a", attempt=1, at_ms=100),
        Released(offset=0, consumer="a", attempt=1, reason="released", until_ms=160, at_ms=110),
        Held(offset=0, reason=HoldReason.POSTPONED, until_ms=160, at_ms=110),
        Delivered(offset=0, key=b"k", consumer="a", attempt=2, at_ms=160),
        Nacked(offset=0, consumer="a", attempt=2, counted=True, reason="card refused", at_ms=170),
        Held(offset=0, reason=HoldReason.DEAD_LETTERING, at_ms=170),
        DeadLettered(offset=0, reason="card refused", at_ms=170),
    ] == history[1:-1]
