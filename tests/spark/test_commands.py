"""Commands of a simulated group make the same deliveries in a stream's dispatcher as in the simulation."""

from typing import TYPE_CHECKING

import pytest
from tests.spark.logs import group_of, log_frame, random_log

from keyshared.config.dispatcher import Rules
from keyshared.errors import ArgumentError
from keyshared.ring import HashRing
from keyshared.simulate import Group, SimulatedConsumer
from keyshared.spark import command_rows, simulate, simulate_commands, stream_dispatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_sequences_count_and_times_are_those_of_the_rows() -> None:
    group = group_of("a")
    rows = [(7, b"k", 1_000), (9, b"k", 1_005)]
    commands = [row[:4] for row in command_rows(iter(rows), group, start=1_000)]
    assert [
        (0, 1_000, "add_consumer", None),
        (1, 1_000, "offer", 7),
        (2, 1_005, "offer", 9),
        (3, 1_020, "ack", 7),
        (4, 1_040, "ack", 9),
    ] == commands


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
