"""huey on Redis: ``lock_task`` with a lock for each key, so that no two tasks of a key run at once.

The driver says what a worker says: it dequeues a task, and runs it in ``with huey.lock_task(key)``.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any, ClassVar

import redis
from examples.subjects.servers import redis_socket
from huey import RedisExpireHuey
from huey.exceptions import TaskLockedException

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS

LOCKED_MS = 100
# The kit's clock stands still between steps, Redis' does not: a millisecond of the kit is a minute there.
S_PER_MS = 60


class LockDriver(Driver):
    """Each worker runs a task with the lock of its key, which lasts until the task ends."""

    locked_s: ClassVar[int | None] = None

    def __init__(self) -> None:
        self.redis: Any = redis.Redis(unix_socket_path=redis_socket())
        self.redis.flushall()
        self.huey: Any = RedisExpireHuey("kit", url=f"unix://{redis_socket()}", blocking=False)
        self.offsets = count()
        self.attempts: Counter[int] = Counter()
        self.processes: dict[str, object] = {}
        self.in_hand: dict[str, Delivery | None] = {}
        self.over: list[Delivery] = []
        self.now = 0
        self.taken_ms: dict[str, int] = {}

        def charge(offset: int, key: str) -> None: ...  # only its messages are of interest

        self.charge = self.huey.task(retries=1_000)(charge)

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.processes[consumer] = object()
        self.in_hand[consumer] = None

    def disconnect(self, consumer: str) -> None:
        """The process is killed: its task is gone, and the lock stays."""
        del self.processes[consumer], self.in_hand[consumer]

    def publish(self, key: bytes | None) -> int:
        offset = next(self.offsets)
        self.charge(offset, (key or b"").hex())
        return offset

    def receive(self, consumer: str) -> Sequence[Delivery]:
        for _ in range(self.huey.pending_count() if self.in_hand[consumer] is None else 0):
            task = self.huey.dequeue()
            offset, key = task.args
            lock = self.huey.lock_task(key, ttl=self.locked_s)
            try:
                lock.__enter__()
            except TaskLockedException:
                self.huey.enqueue(task)  # it is retried, as the guide says
                continue
            self.attempts[offset] += 1
            self.taken_ms[consumer] = self.now
            token = task, lock, self.processes[consumer]
            delivery = self.in_hand[consumer] = Delivery(offset, bytes.fromhex(key), self.attempts[offset], token)
            return [delivery]
        return []

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self._end(consumer, delivery, retried=False)

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self._end(consumer, delivery, retried=True)

    def advance(self, ms: int) -> None:
        """Bring the end of every lock nearer; a worker whose lock has expired may take the next task."""
        self.now += ms
        for lock in self.redis.keys("*.lock.*") if self.locked_s else ():
            self.redis.pexpire(lock, max(0, self.redis.pttl(lock) - ms * S_PER_MS * 1_000))
        for consumer, delivery in self.in_hand.items() if self.locked_s else ():
            if delivery is not None and self.now - self.taken_ms[consumer] >= LOCKED_MS:
                self.in_hand[consumer] = None

    def close(self) -> None:
        self.huey.storage.conn.close()
        self.redis.close()

    def _end(self, consumer: str, delivery: Delivery, *, retried: bool) -> bool | None:
        token: Any = delivery.token
        task, lock, process = token
        if self.processes.get(consumer) is not process or delivery in self.over:
            return False  # it was killed, or has ended: a task ends once
        self.over.append(delivery)
        lock.__exit__(None, None, None)
        if retried:
            self.huey.enqueue(task)
        if self.in_hand[consumer] is not delivery:
            return None  # its lock had expired; huey does not say
        self.in_hand[consumer] = None
        return True


class LockMachine(KeySharedMachine):
    """Three workers, and locks that do not expire."""

    driver_class = LockDriver
    untried = LATE_ANSWERS
    claims = Claims(promises={Promise.ONE_HOLDER})


class ExpiringDriver(LockDriver):
    """The same with locks that expire (``ttl``), so that one which a killed worker leaves behind goes away."""

    locked_s = LOCKED_MS * S_PER_MS


class InTimeLockMachine(KeySharedMachine):
    """The same, where no task ends after its lock has expired."""

    driver_class = ExpiringDriver
    untried = LATE_ANSWERS
    claims = Claims(promises={Promise.ONE_HOLDER}, ack_timeout_ms=LOCKED_MS)
    rest_ms = LOCKED_MS


class SlowDriver(ExpiringDriver):
    """The same with tasks that never fail; some take longer than their lock lasts."""

    nack = Driver.nack


class LateLockMachine(KeySharedMachine):
    """The same, where tasks may end after their lock has expired. One key: three tasks of it have to meet."""

    driver_class = SlowDriver
    claims = Claims(promises={Promise.ONE_HOLDER}, ack_timeout_ms=LOCKED_MS)
    rest_ms = LOCKED_MS
    keys = (b"customer-7",)
