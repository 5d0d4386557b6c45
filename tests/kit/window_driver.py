"""A driver of keyshared's bare in-flight window: what a broker with timers of its own builds around it."""

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from keyshared.ring import HashRing
from keyshared.testing.dispatcher import owners_told
from keyshared.testing.driver import Delivery, Driver
from keyshared.testing.history import Event
from keyshared.window import Entry, InFlightWindow, State

__all__ = ["WindowDriver"]

_CAPACITY: Final = 32
_MAX_TRACKED: Final = 64
_LOADED_PER_KEY: Final = 2


class WindowDriver(Driver):
    """Operates an `InFlightWindow`, or anything of its surface, with members, retries and a log around it.

    Only the cursor is stored: after a restart the log is offered again from there.

    Attributes:
        window_class: What is operated.
        limit: How many messages a consumer may have.
        per_key: How many of a key may be open.
        retry_ms: How long a message waits after a nack.
    """

    remembers_acks = False
    window_class: ClassVar[Any] = InFlightWindow
    limit: ClassVar[int] = 2
    per_key: ClassVar[int] = 1
    retry_ms: ClassVar[int] = 10

    def __init__(self) -> None:
        self.log: list[bytes | None] = []
        self.owners: dict[bytes, str | None] = {}
        self.now = 0
        self._start(0)

    def _start(self, resume: int) -> None:
        self.ring = HashRing()
        self.window = self.window_class(
            self.ring,
            capacity=_CAPACITY,
            max_tracked=_MAX_TRACKED,
            per_key=self.per_key,
            loaded_per_key=_LOADED_PER_KEY,
            start=resume,
        )
        self.offered = resume
        self.inboxes: dict[str, list[Delivery]] = {}
        self.retries: deque[tuple[int, Entry]] = deque()  # when, and what: the delay is one, so they are in order

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # noqa: ARG002  # a window has none
        """Join with an empty inbox."""
        self.inboxes[consumer] = []
        self.ring.add(consumer)
        self.window.add(consumer, limit=self.limit)
        self.window.reassign()
        self._apply(self.window.wake())

    def disconnect(self, consumer: str) -> None:
        """Leave at once; what it had is put back."""
        for entry in list(self.window.consumers[consumer].open.values()):
            self.window.move(entry, State.QUEUED)
        self.window.discard(consumer)
        self.ring.remove(consumer)
        del self.inboxes[consumer]
        self.window.reassign()
        self._apply(self.window.wake())

    def publish(self, key: bytes | None) -> int:
        """Append to the log; it is offered when there is a slot."""
        self.log.append(key)
        self._apply([])
        return len(self.log) - 1

    def receive(self, consumer: str) -> Sequence[Delivery]:
        """Empty the inbox."""
        deliveries, self.inboxes[consumer] = self.inboxes[consumer], []
        return deliveries

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        """Settle, if the delivery is the open one."""
        entry = self._open(consumer, delivery)
        if entry is None:
            return False
        self._apply(self.window.settle(entry))
        return True

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        """Start the wait for a retry, if the delivery is the open one."""
        entry = self._open(consumer, delivery)
        if entry is None:
            return False
        self.window.move(entry, State.DELAYED)
        self.retries.append((self.now + self.retry_ms, entry))
        self._apply(self.window.wake())
        return True

    def advance(self, ms: int) -> None:
        """Move time on in one step; what is due goes back into its lane."""
        self.now += ms
        while self.retries and self.retries[0][0] <= self.now:
            _, entry = self.retries.popleft()
            self.window.move(entry, State.QUEUED)
        self._apply(self.window.wake())

    def cursor(self) -> int | None:
        """Return the offset to resume from."""
        resume: int | None = self.window.cursor.resume_offset
        return resume

    def restart(self) -> None:
        """Begin anew at the cursor, with nobody connected."""
        self._start(self.window.cursor.resume_offset)
        self._apply([])

    def notices(self) -> Sequence[Event]:
        """Return who owns which key."""
        return owners_told(self.ring, self.log, self.owners)

    def _open(self, consumer: str, delivery: Delivery) -> Entry | None:
        entry: Entry | None = self.window.find(delivery.offset)
        if entry is None or entry.state != State.IN_FLIGHT or entry.attempt != delivery.attempt:
            return None
        return entry if entry.consumer is not None and entry.consumer.name == consumer else None

    def _apply(self, granted: list[Entry]) -> None:
        """Act on what was granted, and read on."""
        todo = deque(granted)
        while todo or (self.offered < len(self.log) and self.window.free_slots):
            if not todo:
                offset = self.offered
                self.offered += 1
                todo += self.window.offer(offset, self.log[offset], offset)
                continue
            entry = todo.popleft()
            if entry.state == State.IN_FLIGHT and entry.consumer is not None:
                self.inboxes[entry.consumer.name].append(Delivery(entry.offset, entry.key, entry.attempt))
            elif entry.state == State.LOADING:
                self.window.provide(entry, entry.offset)
                todo += self.window.wake()
