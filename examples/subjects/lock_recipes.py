"""Two recipes for a pool of threads that keeps the messages of a key apart by a lock, and the one that works.

Needs no server. For the kit the pool is one consumer: it cannot be told to which thread a message goes.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import ClassVar

from keyshared.testing import Claims, Delivery, Driver, Promise, wait_for_threads
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS, Disconnect, Flap

Handler = Callable[[int, bytes], None]
THREADS = 3


class LockPool:
    """A pool of threads and a dictionary of locks, one for each key."""

    def __init__(self, handle: Handler) -> None:
        self.handle = handle
        self.threads = ThreadPoolExecutor(THREADS)
        self.locks: dict[bytes, Lock] = {}

    def submit(self, offset: int, key: bytes) -> None:
        self.threads.submit(self.run, offset, key)

    def run(self, offset: int, key: bytes) -> None:
        with self.locks.setdefault(key, Lock()):
            self.handle(offset, key)


class CleaningPool(LockPool):
    """The same; a thread removes the lock of its key when it has done, so that the dictionary does not grow."""

    def run(self, offset: int, key: bytes) -> None:
        super().run(offset, key)
        self.locks.pop(key, None)


class QueuePool(LockPool):
    """A queue for each key: only the oldest message of a key is given to the threads."""

    def __init__(self, handle: Handler) -> None:
        super().__init__(handle)
        self.queues: dict[bytes, deque[int]] = {}
        self.lock = Lock()

    def submit(self, offset: int, key: bytes) -> None:
        with self.lock:
            self.queues.setdefault(key, deque()).append(offset)
            if len(self.queues[key]) == 1:
                self.threads.submit(self.run, offset, key)

    def run(self, offset: int, key: bytes) -> None:
        self.handle(offset, key)
        with self.lock:
            queue = self.queues[key]
            queue.popleft()
            if queue:
                self.threads.submit(self.run, queue[0], key)
            else:
                del self.queues[key]


class LockPoolDriver(Driver):
    """A thread takes the lock of the key; locks are kept."""

    pool_class: ClassVar[type[LockPool]] = LockPool

    def __init__(self) -> None:
        self.begun: list[Delivery] = []
        self.may_end: list[Event] = []
        self.pool = self.pool_class(self.handle)

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    def publish(self, key: bytes | None) -> int:
        self.may_end.append(Event())
        self.pool.submit(len(self.may_end) - 1, key or b"")
        return len(self.may_end) - 1

    def handle(self, offset: int, key: bytes) -> None:
        """Handle a message until the kit acks it."""
        self.begun.append(Delivery(offset, key))
        self.may_end[offset].wait()

    def receive(self, consumer: str) -> Sequence[Delivery]:
        wait_for_threads()
        begun, self.begun = self.begun, []
        return begun

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        self.may_end[delivery.offset].set()
        return True

    def close(self) -> None:
        for event in self.may_end:
            event.set()
        self.pool.threads.shutdown()


class CleaningPoolDriver(LockPoolDriver):
    """The same; a thread that has done removes the lock."""

    pool_class = CleaningPool


class QueuePoolDriver(LockPoolDriver):
    """A queue for each key."""

    pool_class = QueuePool


class LockPoolMachine(KeySharedMachine):
    """One handler of a key at a time, and no key waits for others while threads are free."""

    driver_class = LockPoolDriver
    max_consumers = 1
    untried = frozenset({Disconnect, Flap, *LATE_ANSWERS})
    claims = Claims(promises={Promise.BOUNDS, Promise.PROGRESS}, open_at_once=THREADS)


class CleaningPoolMachine(LockPoolMachine):
    """One handler of a key at a time."""

    driver_class = CleaningPoolDriver
    claims = Claims(promises={Promise.BOUNDS})


class QueuePoolMachine(LockPoolMachine):
    """The same as a pool of locks; keys are in order, and nothing is lost."""

    driver_class = QueuePoolDriver
    claims = Claims(
        promises={Promise.KEY_ORDER, Promise.BOUNDS, Promise.NO_LOSS, Promise.PROGRESS}, open_at_once=THREADS
    )
