"""Record a sample again: ``python -m tests.testing.recorders.record SYSTEM``, where client and server are installed.

What happens in a sample is small, and shows what the system is known for: handlers of one process and of two, answers,
failures, and deliveries that end by themselves.
"""

import json
import os
import platform
import sys
import time
from contextlib import ExitStack
from importlib.metadata import version
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.testing.recorders.sample import SAMPLES, Tap
from tests.transports import servers

from keyshared.testing.recorders.kafka import KafkaRecorder
from keyshared.testing.recorders.redis_streams import RedisStreamsRecorder
from keyshared.testing.recorders.sqs import SqsRecorder

PROCESSES = ("p", "a", "b")  # a producer and two consumers
NOBODY = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_DEFAULT_REGION": "eu-central-1"}


def forget(log: str, event: object) -> None:
    """Write nothing: a sample holds what a recorder was told."""


def taps(kind: Any, lines: list[str], *more: Any) -> list[Any]:
    return [Tap(kind(forget, name, *more), name, lines) for name in PROCESSES]


def sqs(lines: list[str]) -> str:
    """moto, in this process: its FIFO queue hands a group out of order once a batch of it comes back.

    It draws sequence numbers by chance. Here they grow, as SQS says that they do.
    """
    import boto3  # noqa: PLC0415  # installed only where samples are recorded; so are the others
    from moto import mock_aws  # noqa: PLC0415
    from moto.sqs import models  # noqa: PLC0415

    models.random = GrowingDigits(models.random)

    os.environ.update(NOBODY)
    with mock_aws():
        clients = []
        for tap in taps(SqsRecorder, lines):
            client = boto3.client("sqs")
            SqsRecorder.listen(tap, client)
            clients.append(client)
        producer, one, other = clients
        queue = producer.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        producer.send_message(QueueUrl=queue, **message_of(0))
        producer.send_message_batch(QueueUrl=queue, Entries=[{"Id": str(n), **message_of(n)} for n in range(1, 6)])
        got = one.receive_message(QueueUrl=queue, MaxNumberOfMessages=1)["Messages"]
        one.delete_message(QueueUrl=queue, ReceiptHandle=got[0]["ReceiptHandle"])
        got = one.receive_message(QueueUrl=queue, MaxNumberOfMessages=1)["Messages"]
        one.change_message_visibility(QueueUrl=queue, ReceiptHandle=got[0]["ReceiptHandle"], VisibilityTimeout=0)
        one.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=1)  # and dies
        time.sleep(1.2)
        while got := other.receive_message(QueueUrl=queue, MaxNumberOfMessages=1).get("Messages"):
            entries = [{"Id": "0", "ReceiptHandle": got[0]["ReceiptHandle"]}]
            other.change_message_visibility_batch(QueueUrl=queue, Entries=[{**entries[0], "VisibilityTimeout": 30}])
            other.delete_message_batch(QueueUrl=queue, Entries=entries)
    return f"boto3 {version('boto3')} on moto {version('moto')}, with sequence numbers that grow"


def message_of(number: int) -> dict[str, str]:
    return {
        "MessageBody": str(number),
        "MessageGroupId": f"k{number % 2}",
        "MessageDeduplicationId": str(number),
    }


class GrowingDigits:
    """Stands for moto's random numbers: digit by digit of numbers that look like those of SQS."""

    def __init__(self, right: Any) -> None:
        self._right = right
        self._digits = (digit for number in count(18_849_496_460_467_696_128, 256) for digit in str(number))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)

    def choice(self, _: object) -> str:
        return next(self._digits)


def redis_streams(lines: list[str]) -> str:
    """A real server: a group of two consumers, of which one claims what the other one left."""
    import redis  # noqa: PLC0415

    producer, one, other = taps(RedisStreamsRecorder, lines)
    with ExitStack() as opened:
        folder, port = Path(opened.enter_context(TemporaryDirectory())), servers.free_port()
        command = [servers.program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        opened.enter_context(servers.serving(command, port, folder))
        client = redis.Redis(port=port, protocol=2)
        for number in range(5):
            fields = {"key": f"k{number % 2}", "amount": number}
            producer.added("orders", fields, client.xadd("orders", fields))
        client.xgroup_create("orders", "billing", id="0")
        got = client.xreadgroup("billing", "a", {"orders": ">"}, count=2)
        one.read(got)
        first, second = got[0][1]
        one.acked("orders", [first[0]], client.xack("orders", "billing", first[0]))
        newer = redis.Redis(port=port, protocol=3)
        other.read(newer.xreadgroup("billing", "b", {"orders": ">"}, count=2))
        other.read(newer.xreadgroup("billing", "b", {"orders": ">"}, count=1))
        other.read(newer.xreadgroup("billing", "b", {"orders": ">"}))  # there is nothing new
        time.sleep(0.2)
        _, claimed, *_ = client.xautoclaim("orders", "billing", "b", 100, "0-0")
        other.claimed("orders", claimed)
        ids = [entry for entry, _ in claimed]
        other.acked("orders", ids, client.xack("orders", "billing", *ids))
        one.acked("orders", [second[0]], client.xack("orders", "billing", second[0]))  # too late
        decoding = redis.Redis(port=port, decode_responses=True, protocol=2)
        fields = {"key": "k2", "amount": 5}
        producer.added("orders", fields, decoding.xadd("orders", fields))
        one.read(decoding.xreadgroup("billing", "a", {"orders": ">"}))
        server = client.info("server")["redis_version"]
    return f"redis-py {version('redis')} on redis-server {server}"


def kafka(lines: list[str]) -> str:
    """librdkafka's own mock cluster: a consumer that commits beyond what it handled, and is revoked."""
    from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: PLC0415

    tapped, one, _ = taps(KafkaRecorder, lines)
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(owner.list_topics(timeout=10).brokers.values()))
    address = {"bootstrap.servers": f"{broker.host}:{broker.port}"}
    producer = Producer({**address, "enable.idempotence": True})
    for number in range(5):
        producer.produce("orders", b"%d" % number, key=f"k{number % 2}", partition=0, on_delivery=tapped.published)
        producer.flush(10)
    options = {"group.id": "billing", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**address, **options, "on_commit": one.on_commit})
    consumer.subscribe(["orders"], on_revoke=one.on_revoke, on_lost=one.on_revoke)
    got: list[Any] = []
    while len(got) < 3:
        message = consumer.poll(1)
        if message is not None:
            got.append(message)
            one.begun(message)
    one.ended("orders-0", 0, None, 5)
    one.ended("orders-0", 1, ValueError("no number"), 5)
    consumer.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=True)  # one is open, one has failed
    for _ in range(10):
        consumer.poll(0.1)
    consumer.close()
    one.ended("orders-0", 2, None, 5)  # too late
    return f"confluent-kafka {version('confluent-kafka')} on the mock cluster of its librdkafka"


def main(system: str) -> None:
    lines: list[str] = []
    how = {"sqs": sqs, "redis_streams": redis_streams, "kafka": kafka}[system]
    told = {
        "system": how(lines),
        "python": platform.python_version(),
        "recorded": time.strftime("%Y-%m-%d"),
        "how": f"python -m tests.testing.recorders.record {system}",
    }
    text = "\n".join([json.dumps(told), *lines, ""])
    (SAMPLES / f"{system}.jsonl").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1])
