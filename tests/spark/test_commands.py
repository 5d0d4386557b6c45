"""Commands of a simulated group make the same deliveries in a stream's dispatcher as in the simulation."""

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.logs import group_of, log_frame, random_group, random_log

from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.config.rules import Rules
from keyshared.errors import ArgumentError
from keyshared.ring import HashRing
from keyshared.simulate import Group, Redrive, SimulatedConsumer, Unblock
from keyshared.simulate.engine import Engine
from keyshared.simulate.history import History
from keyshared.spark import command_rows, dispatch_rows, simulate, simulate_commands, stream_dispatch
from keyshared.spark.log_columns import arrivals_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: list[dict[str, Any]] = [
    {},
    {"ack_timeout_ms": 15, "retry": RetryPolicy(max_redeliveries=1, base_delay_ms=7)},
    {"retry": RetryPolicy(max_redeliveries=0)},
]


def rows_of(seed: int, messages: int = 60) -> list[tuple[Any, ...]]:
    rng, at_ms = Random(seed), 1_000
    found = []
    for offset in range(messages):
        at_ms += rng.choice([0, 5, 40])
        later = at_ms + rng.randrange(50) if rng.random() < 0.1 else None
        found.append((2 * offset, rng.choice([b"k1", b"k2", b"k3", None]), at_ms, None, later))
    return found


def group_with(seed: int, **settings: Any) -> Group:
    drawn = random_group(seed)
    changes = [*drawn.changes, Unblock(1_500, "k1")]
    config = DispatcherConfig(**{"poison": Poison.BLOCK, **settings})
    return Group(consumers=drawn.consumers, changes=changes, answers=drawn.answers, config=config)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", range(20))
def test_a_stream_delivers_what_the_simulation_delivered(seed: int, settings: dict[str, Any]) -> None:
    group, log = group_with(seed, **settings), rows_of(seed)
    history = History()
    engine = Engine(group, arrivals_of(iter(log), 1_000), history, note=id)
    engine.begin()
    while engine.stop is None:
        engine.run(100)
    delivered = [row for row in history.rows if row.event == "delivered"]
    told = dispatch_rows(command_rows(iter(log), group, start=1_000), HashRing(), config=group.config)
    assert [(row[4], row[6], row[7], row[2]) for row in told if row[3] == "deliver"] == [
        (row.offset, row.consumer, row.attempt, row.at_ms + 1_000) for row in delivered
    ]
    assert delivered


@pytest.mark.parametrize("seed", range(20))
def test_commands_of_a_group_that_spills_are_never_refused(seed: int) -> None:
    group = group_with(seed, window=4, max_loaded_per_key=2, redrive=True, poison=Poison.DEAD_LETTER)
    group = replace(group, changes=[*group.changes, Redrive(9_000, "k2")])
    commands = list(command_rows(iter(rows_of(seed)), group))
    told = [row[3] for row in dispatch_rows(iter(commands), HashRing(), config=group.config)]
    assert not {"refused", "late"} & set(told)
    assert any(command[2] == "redrive" for command in commands)


def test_rules_are_refused(spark: "SparkSession") -> None:
    group = Group(consumers=[SimulatedConsumer("a")], rules=Rules(mark="1", latest_only=lambda _: True))
    with pytest.raises(ArgumentError, match="have no rules"):
        simulate_commands(log_frame(spark, random_log(1)), group)


def test_each_topic_partition_has_its_own_commands(spark: "SparkSession") -> None:
    group, log = group_of("a", "b", service_ms=7), log_frame(spark, random_log(3))
    outcomes = stream_dispatch(simulate_commands(log, group), HashRing(), config=group.config)
    columns = ["topic", "partition", "offset", "consumer", "attempt"]
    told = outcomes.filter("effect = 'deliver'").select(*columns, "at_ms")
    expected = simulate(log, group).filter("consumer is not null").selectExpr(*columns, "delivered_ms as at_ms")
    assert told.exceptAll(expected).isEmpty()
    assert expected.exceptAll(told).isEmpty()
    assert not expected.isEmpty()
