"""What an operator sees and does: records, `stuck`, metrics, and the verbs."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import pytest

from keyshared.config import GroupLimits, Rules
from keyshared.errors import ConfigError
from keyshared_kafka import ParallelConsumer, Poison, Reject, RetryLater, RetryPolicy
from tests.cluster import Cluster
from tests.killed import REDELIVERIES
from tests.running import Running, until
from tests.test_crashes import HERE, environment
from tests.test_parts import OPTIONS

QUICK = RetryPolicy(max_redeliveries=1, base_delay_ms=5)


def fields(caplog: pytest.LogCaptureFixture, level: int) -> list[dict[str, Any]]:
    return [record.keyshared for record in caplog.records if record.levelno == level]  # type: ignore[attr-defined]


def value_of(consumer: ParallelConsumer, metric: str) -> list[float]:
    return [value for name, _, value in consumer.metrics() if name == metric]


def test_a_consumer_that_a_handler_stops_says_once_where_and_why_and_is_no_longer_up(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"k", b"0"), (b"k", b"bad")], partition=0)

    def handle(message: Any) -> None:
        if message.value() == b"bad":
            raise ValueError("no such customer")

    consumer = ParallelConsumer(cluster.options(topic), [topic], handle, retries=QUICK)
    with Running(consumer) as running:
        running.wait()
    (record,) = fields(caplog, logging.ERROR)
    assert (record["event"], record["log"], record["offset"], record["key"]) == (
        "stopped_by_error",
        f"{topic}-0",
        1,
        b"k",
    )
    assert record["reason"] == "ValueError: no such customer"
    assert running.error is not None
    assert any(f"{topic}-0[1]" in note for note in running.error.__notes__)
    assert value_of(consumer, "keyshared_up") == [0]


def test_a_consumer_that_an_error_of_its_own_stops_says_so_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"k", b"v")], partition=0)
    with Running(ParallelConsumer(cluster.options(topic), [topic], print, order=lambda _: 1 / 0)) as running:  # type: ignore[arg-type, return-value]
        running.wait()
    (record,) = fields(caplog, logging.ERROR)
    assert (record["event"], record["reason"]) == ("stopped_by_error", "ZeroDivisionError: division by zero")
    assert f"{topic}-0[0]" in caplog.records[-1].getMessage()
    assert running.error is not None
    assert f"the consumer of group {topic} stopped" in running.error.__notes__[-1]


def test_a_handler_that_cannot_take_a_message_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^handle is .*; it must take a message as its only argument"):
        ParallelConsumer(OPTIONS, ["orders"], lambda _first, _second: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("groups", {"a": GroupLimits()}),  # without rules there are none
        ("not_before", lambda: 5),
        ("slow_s", 0),
        ("max_in_flight", 0),
        ("rules", "customer"),
    ],
)
def test_a_wrong_setting_of_a_verb_is_named(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{setting}"):
        ParallelConsumer(OPTIONS, ["orders"], print, **{setting: value})


def test_a_stuck_key_is_found_let_go_and_seen_done(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"k", b"bad"), (b"k", b"good"), (b"hung", b"hung")], partition=0)
    go, done = threading.Event(), list[bytes]()

    def handle(message: Any) -> None:
        if message.value() == b"bad":
            raise Reject("no such customer")
        if message.value() == b"hung":
            go.wait(60)
        done.append(message.value())

    consumer = ParallelConsumer(cluster.options(topic), [topic], handle, poison=Poison.BLOCK, slow_s=0.1)
    with Running(consumer):
        until(lambda: consumer._running is not None and reasons(consumer) == {"blocked", "handler"})
        lines = {each.key: str(each) for each in consumer.stuck(0)}
        assert lines[b"k"].startswith(f"{topic}-0[0] key=b'k': blocked for ")
        assert lines[b"k"].endswith("after 1 failure, Reject: no such customer; 1 message waits behind it")
        assert lines[b"hung"].startswith(f"{topic}-0[2] key=b'hung': handler runs for ")
        until(lambda: "slow" in {each["event"] for each in fields(caplog, logging.WARNING)})
        assert consumer.park(f"{topic}-0", 0)
        until(lambda: done == [b"good"])
        until(lambda: value_of(consumer, "keyshared_oldest_handler_seconds")[0] > 0)
        go.set()
        until(lambda: cluster.committed(topic, topic)[0][0] == 3)
        assert consumer.stuck(0) == []
    (blocked,) = [each for each in fields(caplog, logging.WARNING) if each["event"] == "blocked"]
    assert (blocked["log"], blocked["offset"], blocked["key"]) == (f"{topic}-0", 0, b"k")


def reasons(consumer: ParallelConsumer) -> set[str]:
    """Return how the reasons begin."""
    return {each.what.split()[0] for each in consumer.stuck(0)}


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no SIGUSR1")
def test_a_signal_reports_what_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = ParallelConsumer(OPTIONS, ["orders"], print)
    reports: list[int] = []

    def consume(_make: object) -> None:
        signal.raise_signal(signal.SIGUSR1)
        until(lambda: len(reports) == 1)

    monkeypatch.setattr(consumer, "_consume", consume)
    monkeypatch.setattr(consumer, "_report_stuck", lambda: reports.append(1))
    consumer.run()


def test_a_429_of_one_tenant_delays_that_tenant_alone(cluster: Cluster) -> None:
    topic, many = cluster.topic(), 4_800
    rows = [(b"a/%d" % (n % 200), b"%d" % n) for n in range(200)]
    rows += [(b"t%d/%d" % (n % 40, n % 400), b"%d" % n) for n in range(many)]
    cluster.produce(topic, rows, partition=0)
    done: Counter[bytes] = Counter()
    tries: list[bytes] = []

    def handle(message: Any) -> None:
        tenant = message.key().split(b"/")[0]
        if tenant == b"a":
            tries.append(message.value())
            raise RetryLater(60_000, group=True)
        done[tenant] += 1

    consumer = ParallelConsumer(
        cluster.options(topic),
        [topic],
        handle,
        workers=8,
        window=500,
        rules=Rules(mark="tenants", group_of=lambda key: key.decode().split("/")[0]),
        groups={"a": GroupLimits(max_in_flight=2)},
    )
    with Running(consumer):
        until(lambda: done.total() == many, 60)
        assert len(tries) <= 2
        (line,) = [line for line in consumer.stuck(0) if line.key is not None and line.key.startswith(b"a/")][:1]
        assert "postponed" in str(line)


def test_a_key_and_a_group_are_held_skipped_and_let_go(cluster: Cluster) -> None:
    topic = cluster.topic()
    seen: list[bytes] = []
    consumer = ParallelConsumer(
        cluster.options(topic),
        [topic],
        lambda message: seen.append(message.value()),
        rules=Rules(mark="tenants", group_of=lambda key: key.decode()[0]),
    )
    with Running(consumer):
        until(lambda: consumer._running is not None)
        consumer.pause_key("a1")
        consumer.pause_group("b")
        cluster.produce(topic, [(b"a1", b"held"), (b"a2", b"free"), (b"b1", b"of the group")], partition=0)
        until(lambda: seen == [b"free"])
        until(lambda: sum(each.unfinished for each in consumer.stats().partitions.values()) == 2)
        assert consumer.skip_key("a1") == 1
        consumer.resume_group("b")
        until(lambda: seen == [b"free", b"of the group"])
        until(lambda: cluster.committed(topic, topic)[0][0] == 3)


def test_dead_letters_come_back_in_the_order_of_their_key(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"k", b"%d" % n) for n in range(6)], partition=0, headers=[("trace", b"abc")])
    is_broken, seen = threading.Event(), list[Any]()
    is_broken.set()

    def handle(message: Any) -> None:
        if is_broken.is_set() and message.value() in {b"1", b"3"}:
            raise Reject("the schema is unknown")
        seen.append(message)

    consumer = ParallelConsumer(
        cluster.options(topic), [topic], handle, dead_letters=topic + ".dlq", redrive=True, order="partition"
    )
    log = f"{topic}-0"
    with Running(consumer):
        until(lambda: cluster.committed(topic, topic)[0][0] == 6)
        is_broken.clear()
        assert consumer.read_dead_letters(log, b"another key") == []
        letters = consumer.read_dead_letters(log, b"")
        assert [(each.offset, each.failures) for each in letters] == [(1, 1), (3, 1)]
        assert consumer.redrive(log, b"", reversed(letters)) == 2
        until(lambda: len(seen) == 6)
    again = seen[4:]
    assert [(each.offset(), each.value(), each.key(), each.topic()) for each in again] == [
        (1, b"1", b"k", topic),
        (3, b"3", b"k", topic),
    ]
    assert again[0].headers() == [("trace", b"abc")]
    with pytest.raises(ConfigError, match="dead_letters is None"):
        ParallelConsumer(cluster.options(topic), [topic], handle).read_dead_letters(log, b"k")


def test_a_message_waits_for_its_time_and_no_other_key_waits_with_it(cluster: Cluster) -> None:
    topic = cluster.topic()
    soon = time.time() * 1_000 + 4_000
    cluster.produce(topic, [(b"a", b"%d" % soon), (b"b", b"0")], partition=0)
    handled: dict[bytes, float] = {}

    def handle(message: Any) -> None:
        handled[message.key()] = time.time() * 1_000

    consumer = ParallelConsumer(
        cluster.options(topic), [topic], handle, not_before=lambda message: int(message.value() or 0) or None
    )
    with Running(consumer):
        until(lambda: len(handled) == 2)
    assert list(handled) == [b"b", b"a"]
    assert handled[b"a"] >= soon - 1


def test_a_span_is_linked_to_the_producers_context(cluster: Cluster) -> None:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from opentelemetry.sdk.trace import TracerProvider, export  # noqa: PLC0415 - it may not be there

    topic, exporter, provider = cluster.topic(), memory.InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    header = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    cluster.produce(topic, [(b"k", b"v")], partition=0, headers=[header, ("empty", None)])
    consumer = ParallelConsumer(cluster.options(topic), [topic], lambda _: None, spans=True)
    assert consumer._spans is not None
    consumer._spans._tracer = provider.get_tracer("test")
    with Running(consumer):
        until(lambda: len(exporter.get_finished_spans()) == 1)
    (span,) = exporter.get_finished_spans()
    assert f"{span.links[0].context.trace_id:x}" == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert (span.attributes["keyshared.log"], span.attributes["keyshared.key"]) == (f"{topic}-0", "k")


def test_messages_that_retention_takes_before_they_are_handled_are_reported_as_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The mock keeps 5 MB of a partition; a hot key beyond a tenth of the window is left in the log."""
    with Cluster() as cluster:
        topic = cluster.topic()
        go, done = threading.Event(), set[int]()

        def handle(message: Any) -> None:
            if message.offset() == 0:
                go.wait(60)
            done.add(message.offset())

        consumer = ParallelConsumer(cluster.options(topic), [topic], handle, workers=4, window=1_000, drain_s=1)
        cluster.produce(topic, [(b"hot", b"x" * 500)] * 2_000, partition=0)
        with Running(consumer):
            until(lambda: consumer._running is not None and any(each.in_log for each in parts(consumer)))
            cluster.produce(topic, [(b"other-%d" % (n % 500), b"x" * 500) for n in range(14_000)], partition=0)
            go.set()
            until(lambda: consumer.stats().expired > 0)
            until(lambda: cluster.committed(topic, topic)[0][0] == 16_000, 60)
            expired = consumer.stats().expired
        lost = [each for each in fields(caplog, logging.ERROR) if each["event"] == "expired"]
        assert sum(offset < 2_000 for offset in done) + expired == 2_000
        assert lost
        assert {each["log"] for each in lost} == {f"{topic}-0"}
        assert value_of(consumer, "keyshared_expired_total") == [expired]


def parts(consumer: ParallelConsumer) -> list[Any]:
    return list(consumer.stats().partitions.values())


def test_a_message_that_kills_its_process_ends_in_the_dead_letters(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"k%d" % (n % 5), b"killer" if n == 57 else b"%d" % n) for n in range(200)], partition=0)
    for life in range(1, 16):
        group = f"{topic}-{life}"
        command = [sys.executable, "-m", "tests.killed", cluster.bootstrap, group, topic]
        with subprocess.Popen(command, cwd=HERE, env=environment()) as member:
            until(lambda: member.poll() is not None or is_done(cluster, topic, group), 60)  # noqa: B023
            if member.poll() is None:
                member.terminate()
                assert member.wait(30) == 0
                break
            assert member.returncode == -signal.SIGKILL
        cluster.inherit(topic, group, f"{topic}-{life + 1}")
    assert life <= REDELIVERIES + 3
    (letter,) = cluster.read(topic + ".dead")
    assert letter.value() == b"killer"
    assert b"CrashedError" in dict(letter.headers())["keyshared.reason"]


def is_done(cluster: Cluster, topic: str, group: str) -> bool:
    return cluster.committed(topic, group)[0][0] == 200
