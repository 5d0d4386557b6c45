"""The consumer against a Kafka: what the user's program may rely on."""

import asyncio
import subprocess
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from keyshared_kafka import ParallelConsumer, PartlyDone, Poison, Reject, RetryLater, RetryPolicy
from tests.cluster import Cluster
from tests.running import Running, until

QUICK = RetryPolicy(max_redeliveries=2, base_delay_ms=5)


def rows(many: int, keys: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (n % keys), b"%d" % n) for n in range(many)]


def test_the_users_program_keeps_order_retries_and_leaves_dead_letters_as_they_were(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, rows(300, 10), headers=[("trace", b"abc")], timestamp=1_700_000_000_123)
    cluster.produce(topic, [(None, b"300"), (None, b"301")])
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    tries: dict[int, int] = defaultdict(int)

    def handle(message: Any) -> None:
        number = int(message.value())
        tries[number] += 1
        if number == 13:
            raise Reject("schema")
        if number == 14:
            raise ValueError("no such customer")
        if number == 15 and tries[number] < 3:
            raise RetryLater(5)
        seen[message.key()].append(number)

    consumer = ParallelConsumer(
        cluster.options(topic), [topic], handle, workers=8, retries=QUICK, dead_letters=topic + ".dlq", drain_s=5
    )
    with Running(consumer) as running:
        until(lambda: sum(map(len, seen.values())) == 300)
    assert running.error is None
    assert all(numbers == sorted(numbers) for key, numbers in seen.items() if key is not None)
    assert (tries[13], tries[14], tries[15]) == (1, 3, 3)
    assert {at: offset for at, (offset, _) in cluster.committed(topic, topic).items()} == cluster.ends(topic)
    letters = {int(message.value()): message for message in cluster.read(topic + ".dlq")}
    assert letters.keys() == {13, 14}
    headers = dict(letters[14].headers())
    assert letters[14].key() == b"k4"
    assert letters[14].timestamp()[1] == 1_700_000_000_123
    assert headers["trace"] == b"abc"
    assert headers["keyshared.reason"] == b"ValueError: no such customer"
    assert (headers["keyshared.topic"], headers["keyshared.failures"]) == (topic.encode(), b"3")
    assert dict(letters[13].headers())["keyshared.reason"] == b"Reject: schema"


def test_batches_are_of_one_key_and_only_what_is_bad_goes_to_the_dead_letters(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, rows(600, 6))
    seen: dict[bytes, list[int]] = defaultdict(list)
    lengths: list[int] = []

    def handle(messages: list[Any]) -> None:
        (key,) = {message.key() for message in messages}
        lengths.append(len(messages))
        for done, message in enumerate(messages):
            if message.value() == b"100":
                raise PartlyDone(done, Reject("bad"))
            if message.value() == b"101" and len(messages) > 1:
                seen[key] = seen[key][: len(seen[key]) - done]  # all or nothing
                raise ValueError("some row of these")
            seen[key].append(int(message.value()))

    consumer = ParallelConsumer(
        cluster.options(topic), [topic], handle, batch=50, retries=QUICK, dead_letters=topic + ".dlq", drain_s=5
    )
    with Running(consumer) as running:
        until(lambda: sum(map(len, seen.values())) >= 599)
    assert running.error is None
    assert {key: sorted(numbers) for key, numbers in seen.items()} == seen
    assert sum(map(len, seen.values())) == 599
    assert 1 < max(lengths) <= 50
    assert [message.value() for message in cluster.read(topic + ".dlq")] == [b"100"]
    assert {at: offset for at, (offset, _) in cluster.committed(topic, topic).items()} == cluster.ends(topic)


def test_a_restart_behind_a_head_that_did_not_end_redoes_the_head_only(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"head", b"head"), *rows(400, 20)])
    go = threading.Event()
    before: list[bytes] = []
    after: list[bytes] = []

    def handle(message: Any) -> None:
        if message.value() == b"head":
            go.wait(20)
        before.append(message.value())

    with Running(ParallelConsumer(cluster.options(topic), [topic], handle, drain_s=0)) as first:
        until(lambda: len(before) == 400)
    assert first.error is None
    cluster.inherit(topic, topic, topic + "-again")
    again: Any = lambda message: after.append(message.value())  # noqa: E731
    with Running(ParallelConsumer(cluster.options(topic + "-again"), [topic], again, drain_s=5)) as second:
        until(lambda: b"head" in after)
    go.set()
    assert second.error is None
    assert after == [b"head"]
    assert {at: offset for at, (offset, _) in cluster.committed(topic, topic + "-again").items()} == cluster.ends(topic)


def test_foreign_metadata_costs_nothing_but_a_line_in_the_log(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster.topic()
    cluster.produce(topic, rows(100, 10))
    ends = cluster.ends(topic)
    at = max(ends, key=lambda partition: ends[partition])
    cluster.commit(topic, TopicPartition(topic, at, 5, "of another program"))
    done: list[tuple[int, int]] = []
    handle: Any = lambda message: done.append((message.partition(), message.offset()))  # noqa: E731
    with Running(ParallelConsumer(cluster.options(topic), [topic], handle)):
        until(lambda: len(done) == 95)
    assert min(offset for partition, offset in done if partition == at) == 5
    assert "damaged or of another program" in caplog.text


def test_coroutines_with_a_hot_key_are_handled_in_order_and_stop_nothing_else(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"hot", b"%d" % n) for n in range(300)])
    cluster.produce(topic, [(b"k%d" % n, b"cold") for n in range(200)])
    hot: list[int] = []
    cold: list[int] = []

    async def handle(message: Any) -> None:
        assert consumer.stats().running, "it can be asked from within"
        if message.key() == b"hot":
            await asyncio.sleep(0.005)
            hot.append(int(message.value()))
        else:
            cold.append(len(hot))

    # The window holds 100 and 10 of a key: what stands behind the hot key comes only if that is left in the log.
    consumer = ParallelConsumer(cluster.options(topic), [topic], handle, window=100)
    assert consumer.metrics() == []
    with Running(consumer) as running:
        until(lambda: len(hot) == 300 and len(cold) == 200)
        until(lambda: ("keyshared_handler_ends_total", (("how", "done"),), 500) in consumer.metrics())
    assert running.error is None
    assert consumer.stats().done == 500, "and when it has ended"
    assert consumer.busiest_keys() == []
    assert ("keyshared_handler_ends_total", (("how", "done"),), 500) in consumer.metrics()
    assert hot == list(range(300))
    assert max(cold) < 250
    assert {at: offset for at, (offset, _) in cluster.committed(topic, topic).items()} == cluster.ends(topic)


def test_dead_letters_may_match_a_pattern_if_an_option_excludes_them(cluster: Cluster) -> None:
    topic, letters = cluster.topic(), cluster.topic()  # both are there before anybody subscribes
    cluster.produce(topic, rows(20, 5))
    handled: list[bytes] = []

    def handle(message: Any) -> None:
        handled.append(message.value())
        raise Reject("all of them")

    options = cluster.options(topic, topic_blacklist=f"^{letters}$")
    pattern = f"^({topic}|{letters})$"
    with Running(ParallelConsumer(options, [pattern], handle, dead_letters=letters, drain_s=5)) as running:
        until(lambda: len(cluster.read(letters)) == 20)
        until(
            lambda: {at: offset for at, (offset, _) in cluster.committed(topic, topic).items()} == cluster.ends(topic)
        )
    assert running.error is None
    assert sorted(map(int, handled)) == list(range(20))


def test_latest_commits_where_it_began_before_anything_comes(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, rows(40, 10))
    ends = cluster.ends(topic)
    with Running(ParallelConsumer(cluster.options(topic, auto_offset_reset="latest"), [topic], print)):
        until(lambda: {at: offset for at, (offset, _) in cluster.committed(topic, topic).items()} == ends)


def test_messages_before_one_that_the_function_of_order_cannot_read_are_handled_and_committed(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"k", b"no number" if n == 20 else b"%d" % n) for n in range(50)], partition=0)
    handled: list[Any] = []
    order: Any = lambda message: str(int(message.value()) % 5)  # noqa: E731
    with Running(ParallelConsumer(cluster.options(topic), [topic], handled.append, order=order, workers=4)) as running:
        running.wait()
    assert isinstance(running.error, ValueError)
    assert f"raised by the function of order for {topic}-0[20], key b'k'" in running.error.__notes__
    assert len(handled) == 20
    assert cluster.committed(topic, topic)[0][0] == 20


def test_the_lag_is_what_is_left_to_do_and_a_drain_timeout_names_the_partition_that_is_not_done(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster.topic()
    for partition in range(4):
        cluster.produce(topic, [(b"k%d" % n, b"%d" % n) for n in range(500)], partition=partition)
    go = threading.Event()

    def handle(message: Any) -> None:
        if (message.partition(), message.offset()) == (0, 0):
            go.wait(60)

    consumer = ParallelConsumer(cluster.options(topic), [topic], handle, workers=4, window=100, drain_s=0.1)
    with Running(consumer):
        until(lambda: consumer._running is not None and sum(each.lag for each in parts(consumer)) == 1)
        hung = consumer.stats().partitions[topic, 0]
        assert (hung.position, hung.end, hung.unread, hung.unfinished, hung.running) == (500, 500, 0, 1, 1)
        cluster.produce(topic, [(b"k0", b"behind")] * 5_000, partition=0)  # beyond what is read ahead
        until(lambda: parts(consumer)[0].lag == 5_001)
        assert parts(consumer)[0].unread > 0
        consumer.stop()
        until(lambda: "drain timeout" in caplog.text)
        go.set()
    assert f"{topic}-0: drain timeout (100 ms): unfinished messages will be redelivered" in caplog.text
    (late,) = [record.keyshared for record in caplog.records if "drain timeout" in record.getMessage()]  # type: ignore[attr-defined]
    assert late == {"event": "late", "partitions": [f"{topic}-0"]}


def parts(consumer: ParallelConsumer) -> list[Any]:
    return [consumer.stats().partitions[key] for key in sorted(consumer.stats().partitions)]


def test_a_broker_that_keeps_no_metadata_is_warned_of_once(tansu: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    topic = tansu.topic()
    tansu.produce(topic, rows(200, 10))
    done: list[Any] = []
    with Running(ParallelConsumer(tansu.options(topic), [topic], done.append)):
        until(lambda: len(done) == 200)
        until(lambda: "the broker keeps no metadata of commits" in caplog.text)
    assert caplog.text.count("the broker keeps no metadata of commits") == 1


def test_without_a_topic_for_dead_letters_the_error_of_the_handler_stops_the_consumer(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, rows(20, 5))

    def handle(message: Any) -> None:
        if message.value() == b"7":
            raise LookupError("no such customer")

    with Running(ParallelConsumer(cluster.options(topic), [topic], handle, retries=0)) as running:
        running.wait()
    assert isinstance(running.error, LookupError)
    ends = cluster.ends(topic)
    assert any(offset < ends[at] for at, (offset, _) in cluster.committed(topic, topic).items())


@pytest.mark.slow
def test_a_dead_letter_that_cannot_be_written_stops_the_consumer_before_the_cursor_passes(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"k", b"x" * 900_000)])

    def handle(_: Any) -> None:
        raise Reject("never")

    consumer = ParallelConsumer(
        cluster.options(topic), [topic], handle, dead_letters=topic + ".dlq", producer={"message.max.bytes": 10_000}
    )
    with Running(consumer) as running:
        running.wait()
    assert isinstance(running.error, KafkaException)
    assert max(offset for offset, _ in cluster.committed(topic, topic).values()) <= 0


def test_what_is_done_when_an_error_stops_it_is_committed(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"a", b"slow"), (b"b", b"bad")], partition=0)
    begun = threading.Event()

    def handle(message: Any) -> None:
        if message.value() == b"bad":
            assert begun.wait(20)
            raise Reject("there are no dead letters")
        begun.set()
        time.sleep(0.5)

    with Running(ParallelConsumer(cluster.options(topic), [topic], handle, drain_s=10)) as running:
        running.wait()
    assert isinstance(running.error, Reject)
    assert cluster.committed(topic, topic)[0][0] == 1


def test_coroutines_that_wait_for_threads_of_the_loop_hold_up_no_commit_no_load_and_no_dead_letter(
    cluster: Cluster,
) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"blocks", b"blocks")], partition=0)
    cluster.produce(topic, [(b"hot", b"%d" % number) for number in range(60)], partition=1)
    go = threading.Event()

    async def handle(message: Any) -> None:
        if message.value() == b"blocks":
            await asyncio.to_thread(go.wait, 60)
        elif message.value() == b"50":
            raise Reject("bad")

    consumer = ParallelConsumer(cluster.options(topic), [topic], handle, window=40, dead_letters=topic + ".dlq")

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await consumer.run_async()

    running = threading.Thread(target=asyncio.run, args=(main(),))
    running.start()
    try:
        until(lambda: cluster.committed(topic, topic)[1][0] == 60)
    finally:
        go.set()
        consumer.stop()
        running.join(30)
    assert not running.is_alive()


def test_a_second_cancellation_changes_nothing(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [(b"k", b"0")], partition=0)

    async def main() -> None:
        begun = asyncio.Event()

        async def handle(_: Any) -> None:
            begun.set()
            await asyncio.sleep(1)

        consuming = asyncio.create_task(ParallelConsumer(cluster.options(topic), [topic], handle).run_async())
        await begun.wait()
        for _ in range(3):
            consuming.cancel()
            await asyncio.sleep(0.1)
        with pytest.raises(asyncio.CancelledError):
            await consuming

    running = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    running.start()
    running.join(30)
    assert not running.is_alive()
    assert cluster.committed(topic, topic)[0][0] == 1


MOCK = Path(__file__).resolve().parents[3] / "examples" / "transports" / "kafka_mock.py"


@pytest.mark.skipif(not MOCK.is_file(), reason="the program is in the repository")
def test_it_stops_while_the_broker_is_away_and_messages_are_being_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("keyshared_kafka.member._LAST_COMMIT_S", 1)
    monkeypatch.setattr("keyshared_kafka.member._CLOSE_S", 1)
    done: list[int] = []

    def handle(_: Any) -> None:
        time.sleep(0.01)
        done.append(1)

    with subprocess.Popen([sys.executable, str(MOCK), "orders", "2000"], stdout=subprocess.PIPE, text=True) as mock:
        assert mock.stdout is not None
        options = {
            "bootstrap.servers": mock.stdout.readline().strip(),
            "group.id": "away",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        consumer = ParallelConsumer(options, ["orders"], handle, order="partition", window=40, workers=4, drain_s=1)
        try:
            with Running(consumer) as running:
                until(lambda: len(done) > 40)
                mock.kill()
                until(lambda: consumer.stats().running == 0)  # all that is here is done, and nothing more comes
                began = time.monotonic()
        finally:
            mock.kill()
    assert running.error is None
    assert time.monotonic() - began < 10
    assert "will be redelivered" in caplog.text


def in_a_process(message: Any) -> None:
    """Die at the first try of one message."""
    import os  # noqa: PLC0415 - in the worker
    from pathlib import Path  # noqa: PLC0415 - as above

    folder = Path(message.headers()[0][1].decode())
    if message.value() == b"3" and not (folder / "died").exists():
        (folder / "died").touch()
        os._exit(1)
    with (folder / "done").open("ab") as file:
        file.write(message.value() + b"\n")


@pytest.mark.slow
def test_a_process_that_dies_costs_one_retry_of_one_message(cluster: Cluster, tmp_path: Any) -> None:
    topic = cluster.topic()
    cluster.produce(topic, rows(20, 5), headers=[("folder", str(tmp_path).encode())])
    consumer = ParallelConsumer(
        cluster.options(topic), [topic], in_a_process, workers=2, processes=True, retries=QUICK, poison=Poison.BLOCK
    )
    with Running(consumer) as running:
        until(lambda: (tmp_path / "done").exists() and len((tmp_path / "done").read_bytes().split()) == 20)
        assert consumer.stats().failed == 1
    assert running.error is None
