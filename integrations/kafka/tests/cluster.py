"""What the tests ask of a Kafka."""

import os
from collections.abc import Iterable
from itertools import count
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

PARTITIONS = 4  # what the mock gives a topic that it makes
_numbers = count()


class Cluster:
    """The mock lives in the process that made it, in a client; it listens on a port, so other processes reach it."""

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
