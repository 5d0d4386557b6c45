"""Deliveries alone: those of the history, and a row for each message that no delivery acked."""

import pytest
from tests.simulate.folding import folded, settled

from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.simulate import (
    Answer,
    Arrival,
    Crash,
    Fixed,
    Group,
    Leave,
    Pace,
    Poisoned,
    SampledAnswers,
    SimulatedConsumer,
    Simulation,
    simulated_deliveries,
)

LAST = RetryPolicy(max_redeliveries=1, base_delay_ms=5)


def of(group: Group, arrivals: list[Arrival]) -> list[tuple[object, ...]]:
    found = simulated_deliveries(group, arrivals)
    return [(each.offset, each.consumer, each.attempt, each.outcome, each.ended_ms) for each in found]


def test_a_history_and_its_deliveries_alone_agree() -> None:
    group = Group(
        consumers=[SimulatedConsumer(name, Fixed(7)) for name in "ab"],
        changes=[Crash(40, "a"), Leave(90, "b", 5)],
        config=DispatcherConfig(ack_timeout_ms=30, retry=LAST, inactive_grace_ms=20),
        answers=[SampledAnswers([Answer.ACK] * 3 + [Answer.NACK, Answer.REJECT, Answer.POSTPONE, Answer.SILENT])],
    )
    arrivals = [Arrival(number, f"k{number % 5}", at_ms=4 * number) for number in range(60)]
    rows, found = list(Simulation(group, arrivals)), list(simulated_deliveries(group, arrivals))
    unnumbered = [each._replace(sequence=None, end_sequence=None) for each in found]
    assert [each for each in unnumbered if each.consumer is not None] == [
        each._replace(sequence=None, end_sequence=None) for each in folded(rows)
    ]
    ended = [(e.offset, e.key, e.outcome, e.ended_ms) for e in found if e.consumer is None and e.ended_ms is not None]
    assert settled(rows) == ended
    assert [each.offset for each in arrivals] == sorted(each.offset for each in found if each.attempt in {0, 1})


def test_a_message_that_is_dead_lettered_has_a_row_of_its_own() -> None:
    config = DispatcherConfig(poison=Poison.DEAD_LETTER, retry=LAST)
    group = Group(consumers=[SimulatedConsumer("a", Fixed(10))], config=config, answers=[Poisoned(["k"])], archive_ms=3)
    assert [
        (0, "a", 1, "nacked", 10),
        (0, "a", 2, "nacked", 25),
        (0, None, None, "dead_lettered", 28),
    ] == of(group, [Arrival(0, "k")])


def test_messages_that_are_left_over_have_rows_too() -> None:
    group = Group(
        consumers=[SimulatedConsumer("a", Fixed(10))],
        config=DispatcherConfig(window=2, max_tracked=2, spill=False, retry=LAST),
        answers=[Poisoned(["k"])],
        until_ms=12,
    )
    arrivals = [Arrival(number, key, at_ms=number) for number, key in enumerate("kllm")]
    assert [
        (0, "a", 1, "nacked", 10),  # and waits for its retry
        (1, "a", 1, "open", None),
        (0, None, None, "outstanding", None),
        (2, None, 0, "outstanding", None),  # there was no room for it
        (3, None, 0, "outstanding", None),
    ] == of(group, arrivals)


def test_a_message_that_never_went_out_tells_since_when_it_could() -> None:
    [found] = simulated_deliveries(Group(), [Arrival(3, "k", at_ms=7)])
    assert (3, b"k", 0, 7, "outstanding", None) == (
        found.offset,
        found.key,
        found.attempt,
        found.available_ms,
        found.outcome,
        found.ended_ms,
    )


def test_starts_and_ends_are_numbered_without_gaps() -> None:
    group = Group(consumers=[SimulatedConsumer("a", Fixed(3))], pace=Pace.BACKLOG)
    found = list(simulated_deliveries(group, [Arrival(number, None) for number in range(5)]))
    numbers = [number for each in found for number in (each.sequence, each.end_sequence)]
    assert list(range(10)) == sorted(number for number in numbers if number is not None)


def test_only_a_group_can_be_simulated() -> None:
    with pytest.raises(ArgumentError, match="group"):
        list(simulated_deliveries({}, []))  # type: ignore[arg-type]  # on purpose
