"""A small correct broker, nothing like the library's dispatcher, and its driver: the broken ones are built from it.

It looks at everything after every call. What a fault changes is a method of its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar
from zlib import crc32

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.claims import JUDGED
from keyshared.testing.driver import AnyDriver
from keyshared.testing.history import DeadLettered, Event, Owned
from keyshared.testing.machine import KeySharedMachine

__all__ = ["ACK_TIMEOUT_MS", "LIMIT", "RETRY_MS", "WINDOW", "Message", "SmallBroker", "SmallDriver", "SmallMachine"]

ACK_TIMEOUT_MS = 100
RETRY_MS = 10
MAX_FAILURES = 3
LIMIT = 2
WINDOW = 8


@dataclass
class Message:
    """What is not settled yet."""

    offset: int
    key: bytes | None
    state: str = "waiting"  # open, retry
    consumer: str = ""
    attempt: int = 0
    failures: int = 0
    due_ms: int = 0  # when it expires, or is tried again


@dataclass
class SmallBroker:
    """One log, its consumers, and whatever is not settled."""

    log: list[bytes | None] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)
    filters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    inboxes: dict[str, list[Delivery]] = field(default_factory=dict)
    notices: list[Event] = field(default_factory=list)
    owned: dict[bytes, str | None] = field(default_factory=dict)
    now: int = 0

    # --- inputs -----------------------------------------------------------------------------------------------------

    def join(self, name: str, filters: Sequence[str] = ()) -> None:
        self.filters[name] = tuple(filters)
        self.inboxes[name] = []
        self.joined(name)
        self.dispatch()

    def leave(self, name: str) -> None:
        del self.filters[name], self.inboxes[name]
        self.put_back([message for message in self.messages.values() if self.is_open_at(message, name)])
        self.left(name)
        self.dispatch()

    def append(self, key: bytes | None) -> int:
        offset = len(self.log)
        self.log.append(key)
        self.messages[offset] = Message(offset, key)
        self.dispatch()
        return offset

    def ack(self, name: str, offset: int, attempt: int) -> bool:
        message = self.messages.get(offset)
        if message is None or not self.may_settle(message, name, attempt):
            return False
        self.settle(message)
        self.dispatch()
        return True

    def nack(self, name: str, offset: int, attempt: int) -> bool:
        message = self.messages.get(offset)
        if message is None or not self.is_current(message, name, attempt):
            return False
        self.fail(message)
        self.dispatch()
        return True

    def tick(self, ms: int) -> None:
        self.now += ms
        for message in list(self.messages.values()):
            if message.state == "open" and message.due_ms <= self.now:
                self.fail(message)
            elif message.state == "retry" and message.due_ms <= self.now:
                self.retry(message)
        self.dispatch()

    def crash(self) -> None:
        """Everything but the sessions is stored."""
        self.filters.clear()
        self.inboxes.clear()
        self.put_back([message for message in self.messages.values() if message.state == "open"])

    # --- what faults change -----------------------------------------------------------------------------------------

    def joined(self, name: str) -> None:
        """Somebody has joined; nothing is dispatched yet."""

    def left(self, name: str) -> None:
        """Somebody has left; nothing is dispatched yet."""

    def may_settle(self, message: Message, name: str, attempt: int) -> bool:
        late = message.state != "open" and 0 < attempt <= message.attempt
        return late or self.is_current(message, name, attempt)

    def is_current(self, message: Message, name: str, attempt: int) -> bool:
        return self.is_open_at(message, name) and message.attempt == attempt

    def put_back(self, messages: Iterable[Message]) -> None:
        for message in messages:
            message.state, message.consumer = "waiting", ""

    def retry(self, message: Message) -> None:
        message.state = "waiting"

    def fail(self, message: Message) -> None:
        message.failures += 1
        message.consumer = ""
        if message.failures > MAX_FAILURES:
            self.poison(message)
        else:
            message.state, message.due_ms = "retry", self.now + RETRY_MS

    def poison(self, message: Message) -> None:
        self.settle(message)
        self.notices.append(DeadLettered(offset=message.offset))

    def settle(self, message: Message) -> None:
        del self.messages[message.offset]

    def queue(self) -> list[Message]:
        """What waits, in the order in which it is looked at."""
        return sorted((each for each in self.messages.values() if each.state == "waiting"), key=lambda m: m.offset)

    def is_held(self, message: Message) -> bool:
        """Whether something of its key is in the way: with one delivery at a time that is everything older."""
        return message.key is not None and any(
            other.key == message.key and other.offset < message.offset for other in self.messages.values()
        )

    def owner(self, message: Message) -> str | None:
        """Who the message goes to: the highest draw for its key, so a join moves keys to the newcomer only."""
        if message.key is None:
            takers = [name for name, patterns in self.filters.items() if not patterns or "*" in patterns]
            return min(takers, key=lambda name: len(self.open_at(name)), default=None)
        return self.owner_of_key(message.key)

    def owner_of_key(self, key: bytes) -> str | None:
        return max(self.takers(key), key=lambda name: crc32(name.encode() + b"/" + key), default=None)

    def takers(self, key: bytes) -> list[str]:
        """Who wants a key."""
        text = key.decode("latin-1")
        return [
            name
            for name, patterns in self.filters.items()
            if not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
        ]

    def has_room(self, name: str, message: Message) -> bool:  # noqa: ARG002  # a fault looks at it
        return len(self.open_at(name)) < LIMIT

    def dispatch(self) -> None:
        """Send whatever can go out."""
        for message in self.queue():
            owner = self.owner(message)
            if owner is not None and not self.is_held(message) and self.has_room(owner, message):
                self.send(message, owner)

    def send(self, message: Message, name: str) -> None:
        message.attempt += 1
        message.state, message.consumer, message.due_ms = "open", name, self.now + ACK_TIMEOUT_MS
        self.inboxes[name].append(Delivery(message.offset, message.key, message.attempt))

    def cursor(self) -> int:
        return min(self.messages, default=len(self.log))

    # --- facts ------------------------------------------------------------------------------------------------------

    def is_open_at(self, message: Message, name: str) -> bool:
        return message.state == "open" and message.consumer == name

    def open_at(self, name: str) -> list[Message]:
        return [message for message in self.messages.values() if self.is_open_at(message, name)]

    def tell(self) -> list[Event]:
        """Everything that it says of itself since the last call, owners first."""
        told: list[Event] = []
        for key in dict.fromkeys(key for key in self.log if key is not None):
            owner = self.owner_of_key(key)
            if key not in self.owned or self.owned[key] != owner:
                self.owned[key] = owner
                told.append(Owned(key=key, consumer=owner))
        told += self.notices
        self.notices.clear()
        return told


class SmallDriver(Driver):
    """Operates a small broker, correct or not."""

    takes_filters = True
    broker_class: ClassVar[type[SmallBroker]] = SmallBroker

    def __init__(self) -> None:
        self.broker = self.broker_class()

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        self.broker.join(consumer, filters)

    def disconnect(self, consumer: str) -> None:
        self.broker.leave(consumer)

    def publish(self, key: bytes | None) -> int:
        return self.broker.append(key)

    def receive(self, consumer: str) -> Sequence[Delivery]:
        inbox = self.broker.inboxes[consumer]
        deliveries = [*inbox]
        inbox.clear()
        return deliveries

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.broker.ack(consumer, delivery.offset, delivery.attempt or 0)

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.broker.nack(consumer, delivery.offset, delivery.attempt or 0)

    def advance(self, ms: int) -> None:
        self.broker.tick(ms)

    def cursor(self) -> int | None:
        return self.broker.cursor()

    def restart(self) -> None:
        self.broker.crash()

    def notices(self) -> Sequence[Event]:
        return self.broker.tell()


class SmallMachine(KeySharedMachine):
    """Everything that the small broker claims."""

    driver_class: ClassVar[type[AnyDriver]] = SmallDriver
    claims = Claims(
        promises=JUDGED
        - {Promise.FAIRNESS, Promise.ATTEMPTS, Promise.ONE_SESSION, Promise.SETTLED_ONCE}
        - {Promise.LATEST_ONLY, Promise.REDRIVE_ORDER, Promise.WHOLE_BATCH},
        per_consumer=LIMIT,
        ack_timeout_ms=ACK_TIMEOUT_MS,
        may_dead_letter=True,
        cursor_keeps_up=True,
    )
    retry_ms = RETRY_MS
    max_outstanding = WINDOW
