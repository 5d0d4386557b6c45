"""Logs for tests: frames with the columns of Spark's Kafka source."""

from collections.abc import Iterable
from datetime import UTC, datetime
from random import Random
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession

from keyshared.simulate import (
    Answer,
    Change,
    Crash,
    Fixed,
    Group,
    Join,
    Leave,
    Return,
    SampledAnswers,
    Scaled,
    SimulatedConsumer,
)

__all__ = ["LOG", "MAY", "Record", "group_of", "log_frame", "random_group", "random_log"]

Record: TypeAlias = tuple[str, int, int, bytes | None, datetime]
"""Topic, partition, offset, key and timestamp."""

LOG = "topic string, partition int, offset bigint, key binary, timestamp timestamp"
MAY = datetime(2026, 5, 1, tzinfo=UTC)


def log_frame(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    """Make a log of records."""
    return spark.createDataFrame(list(records), LOG)


def random_log(
    seed: int, *, topics: Iterable[str] = ("orders", "bills"), partitions: int = 2, messages: int = 60
) -> list[Record]:
    """Make records with gaps in their offsets, some without a key, and some times that go back."""
    rng, found = Random(seed), list[Record]()
    for topic in topics:
        for partition in range(partitions):
            offset, at_ms = rng.randrange(5), 1_000 * rng.randrange(3)
            for _ in range(messages):
                key = rng.choice([*(f"k{n}".encode() for n in range(8)), None])
                found.append((topic, partition, offset, key, MAY.fromtimestamp(MAY.timestamp() + at_ms / 1_000, UTC)))
                offset += rng.choice([1, 1, 2, 40])
                at_ms += rng.choice([0, 5, 40, -20])
    rng.shuffle(found)
    return found


def group_of(*names: str, service_ms: int = 20, changes: Iterable[Change] = ()) -> Group:
    """Return a group of equal consumers."""
    return Group(consumers=[SimulatedConsumer(name, Fixed(service_ms)) for name in names], changes=tuple(changes))


def random_group(seed: int) -> Group:
    """Return a group with joins, leaves, crashes, slow consumers and failures."""
    rng = Random(seed)
    at = sorted(rng.randrange(1_000) for _ in range(4))
    return Group(
        consumers=[SimulatedConsumer("a", Fixed(rng.randrange(30))), SimulatedConsumer("b", Scaled(Fixed(7), 2))],
        changes=[
            Join(at[0], SimulatedConsumer("c", Fixed(rng.randrange(30)))),
            Crash(at[1], "a"),
            Return(at[2], "a", resumed=rng.random() < 0.5),
            Leave(at[3], "b", rng.choice([0, 10, None])),
        ],
        answers=[SampledAnswers([Answer.ACK] * 9 + [rng.choice([Answer.NACK, Answer.REJECT])], seed=seed)],
    )
