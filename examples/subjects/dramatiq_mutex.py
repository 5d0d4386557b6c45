"""dramatiq on Redis: a ``ConcurrentRateLimiter`` of size 1 for each key, so that no two tasks of a key run at once.

The driver is a queue of tasks, and the workers that take them: a worker acquires the mutex of the key, and runs the
task. A task that finds the mutex taken is retried behind the newer ones, as dramatiq's retries do.
"""

from collections import Counter, deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import redis
from dramatiq.rate_limits import ConcurrentRateLimiter
from dramatiq.rate_limits.backends import RedisBackend
from examples.subjects.servers import redis_socket

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS

TTL_MS = 100
# The kit's clock stands still between steps, Redis' does not: a millisecond of the kit is a minute there.
REDIS_MS_PER_MS = 60_000


class Run(NamedTuple):
    """A worker runs a task while it has the mutex."""

    worker: object
    mutex: AbstractContextManager[Any]
    since_ms: int


class MutexDriver(Driver):
    """A worker runs a task with the mutex of its key, which expires after its ttl."""

    def __init__(self) -> None:
        self.redis: Any = redis.Redis(unix_socket_path=redis_socket())
        self.redis.flushall()
        self.backend: Any = RedisBackend(client=self.redis)
        self.keys: list[bytes] = []
        self.queue: deque[int] = deque()
        self.attempts: Counter[int] = Counter()
        self.workers: dict[str, object] = {}
        self.busy: dict[str, Delivery] = {}
        self.ended: list[Delivery] = []
        self.now = 0

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.workers[consumer] = object()

    def disconnect(self, consumer: str) -> None:
        """The process is killed: its task is gone, and the mutex stays until it expires."""
        del self.workers[consumer]
        self.busy.pop(consumer, None)

    def publish(self, key: bytes | None) -> int:
        self.keys.append(key or b"")
        self.queue.append(len(self.keys) - 1)
        return len(self.keys) - 1

    def receive(self, consumer: str) -> Sequence[Delivery]:
        for _ in range(0 if consumer in self.busy else len(self.queue)):
            offset = self.queue.popleft()
            limiter: Any = ConcurrentRateLimiter(
                self.backend, self.keys[offset].hex(), limit=1, ttl=TTL_MS * REDIS_MS_PER_MS
            )
            mutex = limiter.acquire(raise_on_failure=False)
            if mutex.__enter__():
                self.attempts[offset] += 1
                run = Run(self.workers[consumer], mutex, self.now)
                self.busy[consumer] = Delivery(offset, self.keys[offset], self.attempts[offset], run)
                return [self.busy[consumer]]
            self.queue.append(offset)
        return []

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        run: Any = delivery.token
        if self.workers.get(consumer) is not run.worker or delivery in self.ended:
            return False  # it was killed, or has ended: a task ends once
        self.ended.append(delivery)
        run.mutex.__exit__(None, None, None)
        if self.busy.get(consumer) is not delivery:
            return None  # its mutex had expired; dramatiq does not say
        del self.busy[consumer]
        return True

    def advance(self, ms: int) -> None:
        """Bring the end of every mutex nearer; a worker whose mutex has expired may take the next task."""
        self.now += ms
        for mutex in self.redis.scan_iter():
            self.redis.pexpire(mutex, max(0, self.redis.pttl(mutex) - ms * REDIS_MS_PER_MS))
        for consumer, delivery in list(self.busy.items()):
            run: Any = delivery.token
            if self.now - run.since_ms >= TTL_MS:
                del self.busy[consumer]

    def close(self) -> None:
        self.redis.close()


class InTimeMachine(KeySharedMachine):
    """No task ends after its mutex has expired."""

    driver_class = MutexDriver
    untried = LATE_ANSWERS
    claims = Claims(promises={Promise.ONE_HOLDER}, ack_timeout_ms=TTL_MS)
    rest_ms = TTL_MS


class LateMachine(KeySharedMachine):
    """Tasks may end after their mutex has expired. One key: three tasks of it have to meet."""

    driver_class = MutexDriver
    claims = Claims(promises={Promise.ONE_HOLDER}, ack_timeout_ms=TTL_MS)
    rest_ms = TTL_MS
    keys = (b"customer-7",)
