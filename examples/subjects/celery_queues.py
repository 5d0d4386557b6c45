"""Celery on Redis with a queue for each key: ``acks_late``, one task at a time in each worker.

The driver says what a worker says, through Celery's own messaging (kombu): it gets, acks, and rejects with requeue.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

import celery
import kombu
import redis
from examples.subjects.servers import redis_socket

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS, Fail, Nack, NackLate

VISIBILITY_MS = 100
# The kit's clock stands still between steps, Redis' does not: a millisecond of the kit is a minute there.
S_PER_MS = 60


class QueueOfKeyDriver(Driver):
    """A worker is a connection with one task in hand; it looks through the queues of all keys in turn."""

    def __init__(self) -> None:
        self.redis: Any = redis.Redis(unix_socket_path=redis_socket())
        self.redis.flushall()
        self.app: Any = celery.Celery(broker=f"redis+socket://{redis_socket()}", set_as_current=False)
        self.app.conf.broker_transport_options = {"visibility_timeout": VISIBILITY_MS * S_PER_MS}
        self.offsets = count()
        self.attempts: Counter[int] = Counter()
        self.queues: dict[str, bytes] = {}
        self.workers: dict[str, Any] = {}
        self.in_hand: dict[str, Delivery | None] = {}
        self.now = 0
        self.taken_ms: dict[str, int] = {}

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.workers[consumer] = self.app.connection_for_read().channel()
        self.in_hand[consumer] = None

    def disconnect(self, consumer: str) -> None:
        """The process is killed: nobody puts its task back before the visibility timeout."""
        channel = self.workers.pop(consumer)
        channel.qos._delivered.clear()  # noqa: SLF001  # else a channel that is closed politely puts it back
        channel.connection.client.close()
        del self.in_hand[consumer]

    def publish(self, key: bytes | None) -> int:
        offset, queue = next(self.offsets), f"key-{(key or b'').hex()}"
        self.queues[queue] = key or b""
        self.app.send_task("handle", args=[offset], queue=queue)
        return offset

    def receive(self, consumer: str) -> Sequence[Delivery]:
        for queue, key in self.queues.items() if self.in_hand[consumer] is None else ():
            message = kombu.Queue(queue, channel=self.workers[consumer]).get()
            if message is not None:
                offset = message.payload[0][0]
                self.attempts[offset] += 1
                self.taken_ms[consumer] = self.now
                delivery = self.in_hand[consumer] = Delivery(offset, key, self.attempts[offset], message)
                return [delivery]
        return []

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self._answer(consumer, delivery, "ack")

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self._answer(consumer, delivery, "requeue")

    def advance(self, ms: int) -> None:
        """Make older what is not acked, and let a worker look for what has become visible, as it does now and then."""
        self.now += ms
        for consumer, taken_ms in self.taken_ms.items():
            if self.now - taken_ms >= VISIBILITY_MS and consumer in self.in_hand:
                self.in_hand[consumer] = None  # it hangs no longer, and may answer late
        for tag in self.redis.zrange("unacked_index", 0, -1):
            self.redis.zincrby("unacked_index", -ms * S_PER_MS, tag)
        for channel in list(self.workers.values())[:1]:
            channel.qos.restore_visible(interval=1)

    def close(self) -> None:
        for consumer in list(self.workers):
            self.disconnect(consumer)
        self.app.close()
        self.redis.close()

    def _answer(self, consumer: str, delivery: Delivery, verb: str) -> bool | None:
        message: Any = delivery.token
        if message.acknowledged or message.channel is not self.workers.get(consumer):
            return False  # the client itself refuses, or its connection is gone
        before = self.redis.hlen("unacked")
        getattr(message, verb)()
        if self.in_hand[consumer] is delivery:
            self.in_hand[consumer] = None
        return bool(self.redis.hlen("unacked") < before)


class OneWorkerMachine(KeySharedMachine):
    """One worker for all queues: what can be asked of an order at all."""

    driver_class = QueueOfKeyDriver
    untried = LATE_ANSWERS
    max_consumers = 1
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS}, ack_timeout_ms=VISIBILITY_MS)
    rest_ms = VISIBILITY_MS


class WorkersMachine(OneWorkerMachine):
    """Three workers, which all consume the queues of all keys."""

    max_consumers = 3


class LateAckMachine(KeySharedMachine):
    """The same, asked whether a late ack counts while another worker has the task.

    Nobody rejects a task, so that only the visibility timeout takes it from its worker.
    """

    driver_class = QueueOfKeyDriver
    untried = frozenset({Nack, NackLate, Fail})
    claims = Claims(promises={Promise.FENCE}, ack_timeout_ms=VISIBILITY_MS)
    rest_ms = VISIBILITY_MS
