"""The replay inside a partition, without Spark: the simulation's deliveries, and where each message was settled."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.test_simulate_properties import arrivals, plans
from tests.spark.attempts import Attempt, obvious

from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.errors import ArgumentError, OffsetOrderError
from keyshared.simulate import (
    Answer,
    Arrival,
    Crash,
    Event,
    FailFirst,
    Fixed,
    Group,
    Pace,
    Poisoned,
    Redrive,
    Sampled,
    SimulatedConsumer,
    Simulation,
    Tally,
    deliveries,
)
from keyshared.spark.replays.partition import OPEN, DeliveryRow, Message, SummaryRow, replay_partition

WORKER = SimulatedConsumer("a", Fixed(10))


def replayed(plan: Group, *logs: tuple[str, list[Arrival]]) -> tuple[list[DeliveryRow], list[SummaryRow]]:
    rows = list(replay_partition(chain(*(messages(name, log) for name, log in logs)), plan))
    return [row for row in rows if isinstance(row, DeliveryRow)], [row for row in rows if isinstance(row, SummaryRow)]


def messages(name: str, log: list[Arrival]) -> list[Message]:
    return [Message(name, *arrival) for arrival in log]


def expected_rows(name: str, plan: Group, log: list[Arrival]) -> list[DeliveryRow]:
    """What the simulation itself says, except for settlements."""
    return sorted(
        (
            DeliveryRow(
                name,
                each.offset,
                each.key,
                each.consumer,
                each.attempt,
                each.delivered_ms,
                each.ended_ms,
                each.outcome or OPEN,
                each.wait_ms,
                each.sequence,
                each.end_sequence,
                None,
            )
            for each in deliveries(Simulation(plan, log))
        ),
        key=lambda row: row.sequence,
    )


def without_settlement(rows: list[DeliveryRow]) -> list[DeliveryRow]:
    return sorted((row._replace(settled_sequence=None) for row in rows), key=lambda row: row.sequence)


SETTLING = {Event.ACKED, Event.SETTLED, Event.DEAD_LETTERED, Event.DROPPED, Event.SKIPPED}


@given(plans(redrives=False), arrivals, arrivals)
def test_every_delivery_is_there_once_and_the_last_of_a_message_says_where_it_was_settled(
    plan: Group, first: list[Arrival], second: list[Arrival]
) -> None:
    rows, summaries = replayed(plan, ("p", first), ("q", second))
    for name, log in (("p", first), ("q", second)):
        mine = [row for row in rows if row.topic_partition == name]
        assert expected_rows(name, plan, log) == without_settlement(mine)
        settled = {row.offset: row.sequence for row in Simulation(plan, log) if row.event in SETTLING}
        last = {row.offset: row for row in sorted(mine, key=lambda row: row.attempt)}
        assert {offset: settled.get(offset) for offset in last} == {
            offset: row.settled_sequence for offset, row in last.items()
        }
        assert all(row.settled_sequence is None for row in mine if row is not last[row.offset])
    assert [name for name, log in (("p", first), ("q", second)) if log] == [row.topic_partition for row in summaries]


@given(plans(redrives=False), arrivals)  # the audit takes what comes back for something that was never settled
def test_no_delivery_breaks_a_promise(plan: Group, log: list[Arrival]) -> None:
    lanes: defaultdict[object, list[Attempt]] = defaultdict(list)
    for row in replayed(plan, ("p", log))[0]:
        attempt = Attempt(row.offset, row.consumer, row.attempt, row.sequence, row.end_sequence, row.settled_sequence)
        lanes[row.key or row.offset].append(attempt)
    assert {} == {lane: found for lane, rows in lanes.items() if (found := obvious(rows))}


@given(plans(), arrivals, st.integers(1, 5))
def test_the_summary_is_the_simulations(plan: Group, log: list[Arrival], points: int) -> None:
    simulation, tally = Simulation(plan, log), Tally(points=points, hottest=2)
    tally.add_all(simulation)
    outcome = simulation.state
    rows = replay_partition(messages("p", log), plan, points=points, hottest=2)
    expected = [SummaryRow("p", str(outcome.stop), outcome.outstanding, tally.summary())] if log else []
    assert expected == [row for row in rows if isinstance(row, SummaryRow)]


def test_what_comes_back_is_settled_once_more_in_the_row_of_its_next_delivery() -> None:
    config = DispatcherConfig(redrive=True, retry=RetryPolicy(max_redeliveries=0))
    plan = Group(consumers=[WORKER], config=config, answers=[FailFirst(1)], changes=[Redrive(100, "k")])
    rows, (summary,) = replayed(plan, ("p", [Arrival(0, "k")]))

    assert [("nacked", 10, True), ("acked", 110, True)] == [
        (row.outcome, row.ended_ms, row.settled_sequence is not None) for row in rows
    ]
    assert (1, 0) == (summary.summary.redriven, summary.outstanding)


def test_what_is_for_later_waits_until_then_and_its_key_behind_it() -> None:
    log = [Arrival(0, "k", 0, not_before_ms=500), Arrival(1, "k", 0), Arrival(2, "l", 1)]
    rows, _ = replayed(Group(consumers=[WORKER]), ("p", log))

    assert [(2, 1), (0, 500), (1, 510)] == [(row.offset, row.delivered_ms) for row in rows]


def test_a_row_without_the_last_field_is_for_now() -> None:
    delivery, _ = replay_partition([("p", 0, "k", 7, None)], Group(consumers=[WORKER]))

    assert isinstance(delivery, DeliveryRow)
    assert 7 == delivery.delivered_ms


def test_a_late_ack_settles_its_message_after_the_delivery_has_ended() -> None:
    config = DispatcherConfig(ack_timeout_ms=5, retry=RetryPolicy(base_delay_ms=100))
    [row], _ = replayed(Group(consumers=[WORKER], config=config), ("p", [Arrival(0, "k")]))
    assert ("timed_out", 5) == (row.outcome, row.ended_ms)
    assert row.end_sequence is not None
    assert row.settled_sequence is not None
    assert row.end_sequence < row.settled_sequence


def test_a_dead_letter_settles_its_message_when_it_is_written() -> None:
    plan = Group(
        consumers=[WORKER],
        config=DispatcherConfig(retry=RetryPolicy(max_redeliveries=0), poison=Poison.DEAD_LETTER),
        answers=[Poisoned(["k"])],
        archive_ms=7,
    )
    [poisoned, after], _ = replayed(plan, ("p", [Arrival(0, "k"), Arrival(1, "l")]))
    assert "nacked" == poisoned.outcome
    assert (poisoned.end_sequence or 0) < (poisoned.settled_sequence or 0)
    assert after.end_sequence == after.settled_sequence


def test_what_is_open_at_the_end_says_so() -> None:
    plan = Group(consumers=[WORKER], config=DispatcherConfig(ack_timeout_ms=None), until_ms=3)
    [row], [summary] = replayed(plan, ("p", [Arrival(0, "k")]))
    assert (OPEN, None, None, None) == (row.outcome, row.ended_ms, row.end_sequence, row.settled_sequence)
    assert ("until", 1) == (summary.stop, summary.outstanding)


def test_a_topic_partition_that_stops_early_leaves_the_next_one_whole() -> None:
    plan = Group(consumers=[WORKER], until_ms=15)
    log = [Arrival(offset, "k", at_ms=10 * offset) for offset in range(10)]
    rows, summaries = replayed(plan, ("p", log), ("q", log))
    assert ["p", "q"] == [row.topic_partition for row in summaries]
    assert [row.offset for row in rows if row.topic_partition == "p"] == [
        row.offset for row in rows if row.topic_partition == "q"
    ]


def test_rows_are_read_as_they_are_needed_and_answers_come_before_the_last_is_read() -> None:
    read: list[int] = []

    def log() -> Iterator[Message]:
        for offset in range(1_000):
            read.append(offset)
            yield Message("p", offset, "k", 100 * offset)

    stream = replay_partition(log(), Group(consumers=[WORKER]))
    assert 0 == next(stream)[1]
    assert len(read) < 5


def test_rows_of_a_topic_partition_must_stand_together() -> None:
    log = [Message("p", 0, "k"), Message("q", 0, "k"), Message("p", 1, "k")]
    with pytest.raises(ArgumentError, match="'p'; it must come in one piece: sort the partition by topic-partition"):
        list(replay_partition(log, Group(consumers=[WORKER])))


def test_offsets_must_grow_and_the_error_says_where_they_do_not() -> None:
    log = [Message("p", 1, "k"), Message("q", 1, "k"), Message("q", 1, "k")]
    with pytest.raises(OffsetOrderError, match="cannot take offset 1 after 1") as caught:
        list(replay_partition(log, Group(consumers=[WORKER])))
    assert ["in topic_partition 'q'"] == caught.value.__notes__


def test_no_rows_give_no_rows() -> None:
    assert [] == list(replay_partition([], Group(consumers=[WORKER])))


def test_the_plan_is_not_changed() -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Sampled([1, 5])), SimulatedConsumer("b", Fixed(3))],
        changes=[Crash(2, "b")],
        answers=[Poisoned(["l"], reply=Answer.REJECT)],
        pace=Pace.BACKLOG,
    )
    log = [Message("p", offset, "kl"[offset % 2]) for offset in range(20)]
    assert list(replay_partition(log, plan)) == list(replay_partition(log, plan))
    assert () == plan.placement.ranges.owners
