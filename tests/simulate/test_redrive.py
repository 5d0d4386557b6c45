"""Dead letters that come back in a simulated subscription."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from tests.histories import HistoryJudge
from tests.kit.simulated import from_simulation

from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.hashing import Key
from keyshared.journal import Command, Journal
from keyshared.ring import HashRing
from keyshared.simulate import (
    Arrival,
    Event,
    FailFirst,
    Fixed,
    Group,
    Poisoned,
    Redrive,
    Row,
    SimulatedConsumer,
    Simulation,
    Stop,
    Unblock,
    summarize,
)
from keyshared.testing import Claims, check_history
from keyshared.testing.history import Redriven

LAST = RetryPolicy(max_redeliveries=0)


def plan(*changes: Redrive | Unblock, **config: Any) -> Group:
    """Consumer a fails everything at the first time; its dead letters take 5 ms to be written."""
    chosen = DispatcherConfig(**{"redrive": True, "retry": LAST, **config})
    return Group(
        consumers=[SimulatedConsumer("a", Fixed(10))],
        changes=changes,
        config=chosen,
        answers=[FailFirst(1)],
        archive_ms=5,
    )


def run(plan: Group, keys: Iterable[Key]) -> tuple[list[Row], Simulation]:
    simulation = Simulation(plan, [Arrival(offset, key) for offset, key in enumerate(keys)])
    rows = list(simulation)
    HistoryJudge().see_all(rows)
    return rows, simulation


def told(rows: Iterable[Row], *events: Event) -> list[tuple[int, Event, int | None]]:
    return [(row.at_ms, row.event, row.offset) for row in rows if row.event in events]


def test_letters_of_a_key_go_out_again_in_their_order() -> None:
    rows, simulation = run(plan(Redrive(100, "k")), ["k", "k", "l"])

    assert [(100, Event.REDRIVEN, 0), (100, Event.REDRIVEN, 1)] == told(rows, Event.REDRIVEN)
    assert [(110, Event.ACKED, 0), (120, Event.ACKED, 1)] == told(rows, Event.ACKED)
    assert Stop.AT_REST is simulation.state.stop, "what stays in the dead-letter store is settled"


def test_what_was_never_delivered_waits_from_its_return_too() -> None:
    rows, _ = run(plan(Unblock(100, "k"), Redrive(100, "k"), quarantine=True), ["k", "k", "k"])

    delivered = [(row.at_ms, row.offset, row.attempt, row.available_ms) for row in rows if row.event is Event.DELIVERED]
    assert [(0, 0, 1, 0), (100, 0, 2, 100), (110, 1, 1, 100)] == delivered[:3]


def test_what_is_open_stays_so_and_the_wait_of_a_letter_counts_from_its_return() -> None:
    rows, _ = run(plan(Redrive(20, "k")), ["k", "k"])

    delivered = [(row.at_ms, row.offset, row.attempt, row.available_ms) for row in rows if row.event is Event.DELIVERED]
    assert [(0, 0, 1, 0), (15, 1, 1, 0), (25, 0, 2, 20)] == delivered


def test_nothing_comes_back_twice_and_nothing_of_other_keys() -> None:
    rows, _ = run(plan(Redrive(100, "k"), Redrive(200, "k"), Redrive(300, "other")), ["k", "l"])

    assert [(100, Event.REDRIVEN, 0), (200, Event.REDRIVEN, None), (300, Event.REDRIVEN, None)] == told(
        rows, Event.REDRIVEN
    )


def test_a_letter_that_fails_again_is_a_letter_again() -> None:
    twice = Group(
        consumers=[SimulatedConsumer("a", Fixed(10))],
        changes=[Redrive(100, "k"), Redrive(200, "k")],
        config=DispatcherConfig(redrive=True, retry=LAST),
        answers=[Poisoned(["k"])],
    )
    rows, _ = run(twice, ["k"])

    assert [1, 2] == [row.attempt for row in rows if row.event is Event.REDRIVEN]
    assert 3 == len(told(rows, Event.DEAD_LETTERED))


def test_as_many_come_back_as_there_is_room_for() -> None:
    rows, _ = run(plan(Redrive(100, "k"), Redrive(300, "k"), window=2, max_tracked=2), ["k", "k", "k"])

    redriven = told(rows, Event.REDRIVEN)
    assert [(100, Event.REDRIVEN, 0), (100, Event.REDRIVEN, 1), (300, Event.REDRIVEN, 2)] == redriven


def test_letters_of_a_quarantined_key_stay_where_they_are() -> None:
    changes = (Redrive(100, "k"), Unblock(200, "k"), Redrive(300, "k"))
    rows, _ = run(plan(*changes, quarantine=True), ["k", "k"])

    assert [(100, None), (300, 0), (300, 1)] == [(at, offset) for at, _, offset in told(rows, Event.REDRIVEN)]
    assert ["is_quarantined"] * 2 == [row.reason for row in rows if row.event is Event.IGNORED_CALL]


def test_figures_count_what_came_back_and_the_backlog_knows_it() -> None:
    summary, state = summarize(plan(Redrive(100, "k")), [Arrival(0, "k"), Arrival(1, "k"), Arrival(2, "l")])

    assert (2, 3, 2, 2) == (summary.redriven, summary.dead_lettered, summary.acked, summary.redeliveries)
    assert (0, [(100, 2), (110, 2), (120, 1)]) == (
        state.outstanding,
        [(point.at_ms, point.outstanding) for point in summary.backlog if point.at_ms >= 100],
    )


def test_the_checker_reads_it_and_finds_the_promise_kept() -> None:
    rows, _ = run(plan(Redrive(20, "k"), Redrive(100, "l"), Redrive(200, "other")), ["k", "k", "l", None])
    history = from_simulation(rows)

    assert [0, 2] == [event.offset for event in history if isinstance(event, Redriven)]
    assert [] == check_history(history, Claims())


def test_a_journal_of_the_same_calls_replays_it() -> None:
    """Whoever writes commands down and carries them out again sees every delivery that the simulation saw."""
    changed = plan(Redrive(20, "k"), Redrive(100, "l"))
    rows, _ = run(changed, ["k", "k", "l", "m"])
    journal = Journal(HashRing(), changed.config)
    outcomes = [outcome for command in commands_of(rows) for outcome in journal.apply(command)]

    delivered = [(row.offset, row.consumer, row.attempt) for row in rows if row.event is Event.DELIVERED]
    assert delivered == [(each.offset, each.consumer, each.attempt) for each in outcomes if each.effect == "deliver"]


def commands_of(rows: Iterable[Row]) -> Iterator[Command]:
    """What the simulated host has called."""
    number = 0
    for (at_ms, event, key), group in groupby(rows, lambda row: (row.at_ms, row.event, row.key)):
        together = [row for row in group if row.offset is not None or row.consumer is not None]
        if event is Event.REDRIVEN and together:
            letters = [(row.offset or 0, row.attempt or 0) for row in together]
            yield Command(number, at_ms, "redrive", key=key, letters=letters)
            number += 1
        for row in together:
            command = COMMANDS.get(event)
            if command is not None:
                fields = {name: getattr(row, name) for name in command[1:]}
                yield Command(number, at_ms, command[0], **fields)
                number += 1


COMMANDS = {
    Event.JOINED: ("add_consumer", "consumer"),
    Event.OFFERED: ("offer", "offset", "key"),
    Event.ACKED: ("ack", "offset", "consumer", "attempt"),
    Event.NACKED: ("nack", "offset", "consumer", "attempt"),
    Event.DEAD_LETTERED: ("dead_lettered", "offset"),
}
