"""Recorders write histories of what real systems told them; samples of that stand beside the tests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.testing.recorders.sample import SAMPLES, histories, note

from keyshared.testing import Guarantees, GuaranteesError, check_history, merge_histories, read_jsonl
from keyshared.testing.history import (
    Acked,
    Committed,
    Delivered,
    Dropped,
    Happening,
    Nacked,
    Published,
    Released,
)
from keyshared.testing.recorders.celery import CeleryRecorder
from keyshared.testing.recorders.jetstream import JetStreamRecorder
from keyshared.testing.recorders.kafka import KafkaRecorder
from keyshared.testing.recorders.log import LogFiles, wall_clock_ms
from keyshared.testing.recorders.redis_streams import RedisStreamsRecorder
from keyshared.testing.recorders.sqs import SqsRecorder

MOST_BYTES = 100_000


def key_of_task(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:  # noqa: ARG001
    return str(args[0])


RECORDERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "sqs": (SqsRecorder, (), "https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo"),
    "jetstream": (JetStreamRecorder, (), "orders"),
    "redis_streams": (RedisStreamsRecorder, (), "orders"),
    "kafka": (KafkaRecorder, (), "orders-0"),
    "celery": (CeleryRecorder, (key_of_task,), "celery"),
}
every_system = pytest.mark.parametrize("system", RECORDERS)


def told(system: str) -> dict[str, list[Happening]]:
    """What the producer and the consumers of a sample wrote of its one log."""
    kind, more, log = RECORDERS[system]
    found = histories(system, kind, *more)
    assert [log] == list(found)
    return found[log]


def words(history: Sequence[Happening]) -> list[str]:
    """The happenings of a history in short, with messages counted from 0."""
    offsets = sorted({each.offset for each in history if hasattr(each, "offset")})
    return [
        " ".join(
            [
                type(each).__name__.lower(),
                *([str(offsets.index(each.offset))] if hasattr(each, "offset") else []),
                *([each.consumer] if hasattr(each, "consumer") and each.consumer else []),
            ]
        )
        for each in history
    ]


def judged(system: str, promises: set[str], **claims: Any) -> tuple[set[str], set[str]]:
    """What the merged logs of a sample break for sure, and what they leave open."""
    logs = told(system)
    guarantees = Guarantees(promises=promises, **claims)
    consumers = [log for process, log in logs.items() if process != "p"]
    merged = merge_histories([logs["p"]], consumers, guarantees, clock_error_ms=0)
    broken = {violation.promise for violation in check_history(merged.history, guarantees)}
    return set(map(str, broken & merged.decided)), {str(each.promise) for each in merged.open}


@every_system
def test_a_sample_is_of_the_real_thing_and_says_of_which(system: str) -> None:
    said = note(system)
    assert set(said) == {"system", "python", "recorded", "how"}
    assert said["how"].endswith(f"record {system}")
    assert sum(path.stat().st_size for path in SAMPLES.iterdir()) < MOST_BYTES


@every_system
def test_each_message_is_published_once_and_delivered_with_the_same_key(system: str) -> None:
    logs = told(system)
    keys = {each.offset: each.key for each in logs["p"] if isinstance(each, Published)}
    assert len(keys) == len(logs["p"]) >= 5
    assert {key for key in keys.values() if key is not None} >= {b"k0", b"k1"}
    offsets = [each.offset for each in logs["p"] if isinstance(each, Published)]
    assert offsets == sorted(offsets)
    delivered = [each for process in logs for each in logs[process] if isinstance(each, Delivered)]
    assert delivered
    assert all(keys[each.offset] == each.key for each in delivered)
    assert all(each.at_ms is not None for process in logs for each in logs[process])


def test_what_sqs_is_asked_for_and_answers_becomes_a_history() -> None:
    logs = told("sqs")
    assert words(logs["p"]) == [f"published {number}" for number in range(6)]
