"""confluent-kafka with a thread for each key: one process reads, threads handle, and each commits what it has done.

The cluster is librdkafka's own mock, with one partition. The threads are right: a key is with one thread at a time, in
order. What is tried is the commit, and where the process goes on after a crash.
"""

from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.machine import KeySharedMachine

PATIENCE_S = 60
TOPICS = count()


@cache
def cluster() -> Any:  # the client has no types
    """Return the producer that owns the mock cluster."""
    return Producer({"test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 0})


class CommitEachDriver(Driver):
    """Each thread commits its message when it is done: ``consumer.commit(message)``, as it stands in many answers."""

    remembers_acks = False

    def __init__(self) -> None:
        self.topic = TopicPartition(f"orders-{next(TOPICS)}", 0)
        found = cluster().list_topics(self.topic.topic, timeout=PATIENCE_S)  # makes it
        broker = next(iter(found.brokers.values()))
        self.config = {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "group.id": "workers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
        self.published = 0
        self.committed: int | None = None
        self.threads: dict[str, Delivery | None] = {}
        self.restart()

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.threads[consumer] = None

    def disconnect(self, consumer: str) -> None:
        """The thread ends; what it had is the next of its key again."""
        had = self.threads.pop(consumer)
        if had is not None:
            self.waiting[had.key].appendleft(had.token)

    def publish(self, key: bytes | None) -> int:
        cluster().produce(self.topic.topic, key=key or b"", partition=0)
        assert cluster().flush(PATIENCE_S) == 0
        self.published += 1
        return self.published - 1

    def receive(self, consumer: str) -> Sequence[Delivery]:
        self._read()
        busy = {had.key for had in self.threads.values() if had is not None}
        key = next((key for key, messages in self.waiting.items() if messages and key not in busy), None)
        if self.threads[consumer] is not None or key is None:
            return []
        message = self.waiting[key].popleft()
        self.attempts[message.offset()] = self.attempts.get(message.offset(), 0) + 1
        delivery = Delivery(message.offset(), key, self.attempts[message.offset()], message)
        self.threads[consumer] = delivery
        return [delivery]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        if self.threads.get(consumer) is not delivery:
            return False
        self.threads[consumer] = None
        self.commit(delivery.token)
        return True

    def commit(self, message: Any) -> None:  # as above
        """Commit what is done."""
        self.consumer.commit(message, asynchronous=False)
        self.committed = message.offset() + 1

    def cursor(self) -> int | None:
        return self.committed

    def restart(self) -> None:
        """The process dies; the next one goes on where the commit is."""
        self.consumer: Any = Consumer(self.config)
        committed = self.consumer.committed([self.topic], timeout=PATIENCE_S)[0].offset
        self.committed = None if committed < 0 else int(committed)
        self.read_to = self.committed or 0
        self.consumer.assign([TopicPartition(self.topic.topic, 0, self.read_to)])
        self.threads.clear()
        self.attempts: dict[int, int] = {}
        self.waiting: dict[bytes | str | None, deque[Any]] = {}

    def close(self) -> None:
        self.consumer.close()

    def _read(self) -> None:
        while self.read_to < self.published:
            message = self.consumer.poll(PATIENCE_S)
            assert message is not None, "nothing came"
            assert message.error() is None, message.error()
            self.waiting.setdefault(message.key(), deque()).append(message)
            self.read_to += 1


class CommitEachMachine(KeySharedMachine):
    """The order of keys that a partition promises, and a commit that nothing is lost by."""

    driver_class = CommitEachDriver
    claims = Claims(
        promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.SAFE_CURSOR, Promise.NO_LOSS}, per_consumer=1
    )


class CommitLowestDriver(CommitEachDriver):
    """The same threads; what is committed is the lowest offset that is not done."""

    def restart(self) -> None:
        super().restart()
        self.done: set[int] = set()
        self.lowest = self.read_to

    def commit(self, message: Any) -> None:  # as above
        self.done.add(message.offset())
        while self.lowest in self.done:
            self.lowest += 1
        self.consumer.commit(offsets=[TopicPartition(self.topic.topic, 0, self.lowest)], asynchronous=False)
        self.committed = self.lowest


class CommitLowestMachine(CommitEachMachine):
    """The same claims."""

    driver_class = CommitLowestDriver
