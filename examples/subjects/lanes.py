"""The pool that every team writes first: ``crc32(key) % n`` names the worker, and each worker has its own queue.

Needs no server. The lanes are right as long as no worker joins or leaves.
"""

from collections import deque
from collections.abc import Sequence
from zlib import crc32

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.history import Event, Owned
from keyshared.testing.machine import KeySharedMachine


class LanePool:
    """A queue for each worker; a message is in its worker's queue until it is acked."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[tuple[int, bytes]]] = {}
        self.homeless: list[tuple[int, bytes]] = []

    def worker_of(self, key: bytes) -> str | None:
        workers = sorted(self.queues)
        return workers[crc32(key) % len(workers)] if workers else None

    def submit(self, offset: int, key: bytes) -> None:
        worker = self.worker_of(key)
        if worker is None:
            self.homeless.append((offset, key))
        else:
            self.queues[worker].append((offset, key))

    def join(self, worker: str) -> None:
        self.queues[worker] = deque()
        waiting, self.homeless = self.homeless, []
        for offset, key in waiting:
            self.submit(offset, key)

    def leave(self, worker: str) -> None:
        """Hand what the worker has not done to those that are left."""
        for offset, key in self.queues.pop(worker):
            self.submit(offset, key)

    def done(self, worker: str, offset: int) -> bool:
        """Take a message off the worker's queue."""
        queue = self.queues.get(worker, deque())
        entry = next((each for each in queue if each[0] == offset), None)
        if entry is not None:
            queue.remove(entry)
        return entry is not None


class LanePoolDriver(Driver):
    """A driver of the pool, in which each worker holds the first message of its queue."""

    def __init__(self) -> None:
        self.pool = LanePool()
        self.keys: list[bytes] = []
        self.attempts: dict[int, int] = {}
        self.taken: dict[str, int] = {}  # what each worker has in hand
        self.told: dict[bytes, str | None] = {}

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.pool.join(consumer)

    def disconnect(self, consumer: str) -> None:
        self.pool.leave(consumer)
        self.taken.pop(consumer, None)

    def publish(self, key: bytes | None) -> int:
        self.keys.append(key or b"")
        self.pool.submit(len(self.keys) - 1, key or b"")
        return len(self.keys) - 1

    def receive(self, consumer: str) -> Sequence[Delivery]:
        queue = self.pool.queues[consumer]
        if not queue or self.taken.get(consumer) == queue[0][0]:
            return []
        offset, key = queue[0]
        self.taken[consumer] = offset
        self.attempts[offset] = self.attempts.get(offset, 0) + 1
        return [Delivery(offset, key, self.attempts[offset])]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        if self.taken.get(consumer) != delivery.offset or self.attempts[delivery.offset] != delivery.attempt:
            return False
        del self.taken[consumer]
        return self.pool.done(consumer, delivery.offset)

    def notices(self) -> Sequence[Event]:
        owners = {key: self.pool.worker_of(key) for key in dict.fromkeys(self.keys)}
        changed = [Owned(key=key, consumer=owner) for key, owner in owners.items() if self.told.get(key, ...) != owner]
        self.told = owners
        return changed


class LanePoolMachine(KeySharedMachine):
    """The promises of its author: one worker for each key, in order, and nothing is lost."""

    driver_class = LanePoolDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS}, per_consumer=1)


class LanePlacementMachine(LanePoolMachine):
    """The same pool, asked only whether keys move to the newcomer alone: ``% n`` moves nearly all."""

    claims = Claims(promises={Promise.MINIMAL_MOVE})


class LaneProgressMachine(LanePoolMachine):
    """The same pool with a worker that has room for a second message of another key, as a hash of keys suggests."""

    claims = Claims(promises={Promise.PROGRESS}, per_consumer=2)
