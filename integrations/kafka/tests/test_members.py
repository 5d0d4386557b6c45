"""Partitions that are lost, and members that keep their place in the group."""

import logging
import threading
import time
from collections import Counter
from typing import Any

import pytest

from keyshared_kafka import ParallelConsumer
from tests.cluster import Cluster
from tests.running import Running, until

SESSION_MS = 3_000


def rows(first: int, last: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number % 20), b"%d" % number) for number in range(first, last)]


def is_at_the_end(cluster: Cluster, topic: str, group: str) -> bool:
    return {at: offset for at, (offset, _) in cluster.committed(topic, group).items()} == cluster.ends(topic)


def held(consumer: ParallelConsumer) -> int:
    assert consumer._running is not None
    return consumer._running[0].call(lambda runner: runner.stats().held)


def test_what_is_lost_and_comes_again_runs_beside_nothing_that_was_left_over(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader that stalls for longer than the group bears loses its partitions, while a handler still runs."""
    topic = cluster.topic()
    cluster.produce(topic, [(b"held", b"held"), *rows(0, 100)])
    go = threading.Event()
    lock = threading.Lock()
    running: set[bytes] = set()
    runs: Counter[bytes] = Counter()
    beside: list[bytes] = []
    stalls = [b"100"]

    def order(message: Any) -> bytes:
        if message.value() in stalls:
            stalls.clear()
            time.sleep(2 * SESSION_MS / 1_000)
        return bytes(message.key())

    def handle(message: Any) -> None:
        key = message.key()
        with lock:
            beside.extend({key} & running)
            running.add(key)
            runs[message.value()] += 1
        if key == b"held":
            assert go.wait(60)
        with lock:
            running.discard(key)

    options = cluster.options(topic, session_timeout_ms=SESSION_MS, max_poll_interval_ms=SESSION_MS + 500)
    consumer = ParallelConsumer(options, [topic], handle, order=order, drain_s=0)
    with Running(consumer) as member:
        until(lambda: len(runs) == 101)
        cluster.produce(topic, rows(100, 200))
        until(lambda: len(runs) == 201, 60)
        assert "lost" in {getattr(record, "keyshared", {}).get("event") for record in caplog.records}
        until(lambda: held(consumer) == 1)
        assert runs[b"held"] == 1, "it is here again, and waits for its first handler"
        go.set()
        until(lambda: is_at_the_end(cluster, topic, topic), 60)
        assert consumer.stats().late == 1
    assert member.error is None
    assert (beside, runs[b"held"]) == ([], 2)


def test_a_static_member_that_comes_again_goes_on_where_it_was(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster.topic()
    cluster.produce(topic, rows(0, 100))
    options = cluster.options(topic, group_instance_id="member-1", session_timeout_ms=6_000)  # the mock waits for it
    caplog.set_level(logging.INFO, "keyshared_kafka")
    done: list[bytes] = []
    handle: Any = lambda message: done.append(message.value())  # noqa: E731
    for many in (100, 200):
        with Running(ParallelConsumer(options, [topic], handle, drain_s=5)) as member:
            until(lambda: len(done) >= many)  # noqa: B023 - it is asked at once
        assert member.error is None
        cluster.produce(topic, rows(many, many + 100))
    assert sorted(map(int, done)) == list(range(200))
    places = [record.keyshared for record in caplog.records if record.keyshared["event"] == "begun"]  # type: ignore[attr-defined]
    assert [place["offset"] is None for place in places] == [True] * 4 + [False] * 4
    assert caplog.text.count(f"{topic}: waiting for partition assignment") == 2
    assert caplog.text.count("no committed offset; starting at auto.offset.reset") == 4
