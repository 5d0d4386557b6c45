"""Commands of a simulated group make the same deliveries in a journal as in the simulation."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.journal import Command, Journal
from keyshared.ring import HashRing
from keyshared.simulate import (
    Answer,
    Arrival,
    Crash,
    Event,
    Fixed,
    Group,
    Join,
    Leave,
    Redrive,
    Return,
    SampledAnswers,
    Scaled,
    SetLimit,
    SetWeight,
    SimulatedConsumer,
    Unblock,
)
from keyshared.simulate.engine import Engine
from keyshared.simulate.history import History, Row

SETTINGS: list[dict[str, Any]] = [
    {},
    {"ack_timeout_ms": 15, "retry": RetryPolicy(max_redeliveries=1, base_delay_ms=7)},
    {"retry": RetryPolicy(max_redeliveries=0)},
]


def group_with(seed: int, **settings: Any) -> Group:
    """A group with joins, leaves, crashes, slow consumers and failures."""
    rng = Random(seed)
    at = sorted(rng.randrange(1_000) for _ in range(6))
    return Group(
        consumers=[SimulatedConsumer("a", Fixed(rng.randrange(30))), SimulatedConsumer("b", Scaled(Fixed(7), 2))],
        changes=[
            Join(at[0], SimulatedConsumer("c", Fixed(rng.randrange(30)), limit=5)),
            SetLimit(at[1], "b", rng.choice([0, 1, 9])),
            Crash(at[2], "a"),
            SetWeight(at[3], "c", 3),
            Return(at[4], "a", resumed=rng.random() < 0.5),
            Leave(at[5], "b", rng.choice([0, 10, None])),
            Unblock(1_500, "k1"),
        ],
        answers=[SampledAnswers([Answer.ACK] * 9 + [rng.choice([Answer.NACK, Answer.REJECT])], seed=seed)],
        config=DispatcherConfig(**{"poison": Poison.BLOCK, **settings}),
    )


def arrivals(seed: int) -> list[Arrival]:
    rng, at_ms, found = Random(seed), 0, list[Arrival]()
    for offset in range(60):
        at_ms += rng.choice([0, 5, 40])
        later = at_ms + rng.randrange(50) if rng.random() < 0.1 else None
        found.append(Arrival(2 * offset, rng.choice([b"k1", b"k2", b"k3", None]), at_ms, None, later))
    return found


def noted(group: Group, messages: list[Arrival]) -> tuple[list[Row], list[Command]]:
    """Return the history of a simulation, and its calls as commands."""
    history, calls = History(), list[Command]()
    engine = Engine(group, messages, history, calls.append)
    engine.begin()
    while engine.stop is None:
        engine.run(100)
    return history.rows, [command._replace(sequence=number) for number, command in enumerate(calls)]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", range(20))
def test_a_journal_delivers_what_the_simulation_delivered(seed: int, settings: dict[str, Any]) -> None:
    group = group_with(seed, **settings)
    rows, commands = noted(group, arrivals(seed))
    told = list(Journal(HashRing(), group.config).apply_all(commands))
    delivered = [(row.offset, row.consumer, row.attempt, row.at_ms) for row in rows if row.event is Event.DELIVERED]
    assert delivered == [(row.offset, row.consumer, row.attempt, row.at_ms) for row in told if row.effect == "deliver"]
    assert delivered


@pytest.mark.parametrize("seed", range(20))
def test_commands_of_a_group_that_spills_are_never_refused(seed: int) -> None:
    group = group_with(seed, window=4, max_loaded_per_key=2, redrive=True, poison=Poison.DEAD_LETTER)
    group = replace(group, changes=[*group.changes, Redrive(9_000, "k2")])
    _, commands = noted(group, arrivals(seed))
    told = {row.effect for row in Journal(HashRing(), group.config).apply_all(commands)}
    assert not {"refused", "late"} & told
    assert any(command.command == "redrive" for command in commands)
