"""Record a sample again: ``python -m tests.testing.recorders.record SYSTEM``, where client and server are installed.

What happens in a sample is small, and shows what the system is known for: handlers of one process and of two, answers,
failures, and deliveries that end by themselves.
"""

import asyncio
import json
import os
import platform
import subprocess
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

from keyshared.testing.recorders.celery import CeleryRecorder
from keyshared.testing.recorders.jetstream import JetStreamRecorder
from keyshared.testing.recorders.kafka import KafkaRecorder
from keyshared.testing.recorders.redis_streams import RedisStreamsRecorder
from keyshared.testing.recorders.sqs import SqsRecorder

PROCESSES = ("p", "a", "b")  # a producer and two consumers
RUNS = 6  # of tasks
NOBODY = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_DEFAULT_REGION": "eu-central-1"}


def forget(log: str, happening: object) -> None:
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


def jetstream(lines: list[str]) -> str:
    """A real server: two processes share a durable consumer, which keeps no order of subjects."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory()))
        port = servers.free_port()
        program = servers.program("nats-server")
        command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "store")]
        opened.enter_context(servers.serving(command, port, folder))
        asyncio.run(in_jetstream(f"nats://127.0.0.1:{port}", taps(JetStreamRecorder, lines)))
        server = subprocess.run([program, "-v"], check=True, capture_output=True, text=True).stdout.split()[-1]
    return f"nats-py {version('nats-py')} on nats-server {server}"


async def in_jetstream(url: str, tapped: list[Any]) -> None:
    import nats  # noqa: PLC0415
    from nats.js import api  # noqa: PLC0415

    producer, one, other = tapped
    async with await nats.connect(url) as client:
        js = client.jetstream()
        await js.add_stream(name="orders", subjects=["orders.>"])
        for number in range(5):
            subject = f"orders.k{number % 2}"
            for _ in range(2):  # the second one is taken for the first
                ack = await js.publish(subject, b"%d" % number, headers={"Nats-Msg-Id": str(number)})
                producer.published(subject, ack)
        source = await js.pull_subscribe("orders.>", "billing", config=api.ConsumerConfig(ack_wait=1))
        first, second = await source.fetch(2, 1)
        one.delivered(first)
        one.delivered(second)
        (third,) = await source.fetch(1, 1)  # of the same subject as the first, which is still open
        other.delivered(third)
        await third.ack()
        other.acked(third)
        await first.ack_sync()
        one.acked(first, counted=True)
        await second.nak()
        one.nacked(second)
        await asyncio.sleep(0.1)
        for message in await source.fetch(5, 2):
            other.delivered(message)
            if message.metadata.sequence.stream == 5:
                await message.term()
                other.termed(message)
            else:
                await message.ack()
                other.acked(message)


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


def celery(lines: list[str]) -> str:
    """A producer and two workers, one after the other, on a queue of files."""
    with TemporaryDirectory() as folder:
        for name in ("queue", "control"):
            Path(folder, name).mkdir()
        Path(folder, "shop.py").write_text("from tests.testing.recorders.record import shop\n\napp = shop()\n")
        path = os.pathsep.join([folder, *sys.path])
        publish = [sys.executable, "-c", "from shop import app; app.publish()"]
        work = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-P", "solo", "--without-mingle"]
        for process, command in (("p", publish), ("a", work), ("b", work)):
            left = RUNS - sum('"call": "ended"' in line for line in lines)
            handled = str(left if process == "b" else left // 2)
            of_it = {"SAMPLE_FOLDER": folder, "SAMPLE_PROCESS": process, "SAMPLE_HANDLED": handled}
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path, **of_it}, capture_output=True)
            lines += Path(folder, process).read_text().splitlines()
    return f"celery {version('celery')} on the filesystem transport of kombu {version('kombu')}"


def shop() -> Any:
    """Make the application that `celery` runs in other processes, which write down what they tell a recorder."""
    from celery import Celery, signals  # noqa: PLC0415
    from celery.worker import state  # noqa: PLC0415

    folder, process = os.environ["SAMPLE_FOLDER"], os.environ["SAMPLE_PROCESS"]
    handled = int(os.environ["SAMPLE_HANDLED"])
    lines: list[str] = []
    queue, control = f"{folder}/queue", f"{folder}/control"
    options = {"data_folder_in": queue, "data_folder_out": queue, "control_folder": control}
    app = Celery("shop", broker="filesystem://", broker_transport_options=options, worker_prefetch_multiplier=1)
    tap = Tap(CeleryRecorder(forget, process, lambda args, _: args[0]), process, lines)
    CeleryRecorder.listen(tap, signals)  # type: ignore[arg-type]  # it hands all on

    def keep(**_: Any) -> None:
        Path(folder, process).write_text("\n".join(lines))
        if sum('"call": "ended"' in line for line in lines) >= handled:
            state.should_stop = 0  # the exit code

    def charge(self: Any, _: str, number: int) -> None:
        if number == 1 and not self.request.retries:
            raise self.retry(countdown=0)
        if number == 2:
            raise KeyError(number)

    def publish() -> None:
        for number in range(RUNS - 1):  # one of them runs twice
            task.apply_async(args=(f"k{number % 2}", number))
        keep()

    signals.task_postrun.connect(keep, weak=False)
    task = app.task(name="charge", bind=True, acks_late=True)(charge)
    app.publish = publish
    return app


def main(system: str) -> None:
    lines: list[str] = []
    how = {"sqs": sqs, "jetstream": jetstream, "redis_streams": redis_streams, "kafka": kafka, "celery": celery}[system]
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
