"""A small broker that is asked: a table of messages, from which consumers take some. Each call is two statements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.driver import AnyDriver
from keyshared.testing.machine import KeySharedMachine

__all__ = ["ASKED_FAULTS", "AskedBroker", "AskedDriver", "AskedFault", "AskedMachine", "GroupedMachine"]

LEASE_MS = 100
LIMIT = 2


@dataclass
class Row:
    """A message, and who has it until when."""

    offset: int
    key: bytes | None
    holder: str = ""
    attempt: int = 0
    until_ms: int = 0


class AskedBroker:
    """Hands out what nobody has of keys that nobody has; a lease that nobody answers ends by itself."""

    grouped: ClassVar[bool] = False  # whether who has one of a key may have the others of it too

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.published = 0
        self.now = 0

    def append(self, key: bytes | None) -> int:
        self.rows[self.published] = Row(self.published, key)
        self.published += 1
        return self.published - 1

    def tick(self, ms: int) -> None:
        self.now += ms
        self.put_back(row for row in self.held() if row.until_ms <= self.now)

    def leave(self, name: str) -> None:
        self.put_back(row for row in self.held() if row.holder == name)

    def give_back(self, name: str, delivery: Delivery) -> bool:
        row = self.rows.get(delivery.offset)
        if row is None or not self.has(row, name, delivery):
            return False
        self.put_back([row])
        return True

    # --- what faults change -----------------------------------------------------------------------------------------

    def find(self, name: str, most: int) -> list[Row]:
        """The first statement of a receive: what the consumer may have."""
        room = LIMIT - len([row for row in self.held() if row.holder == name])
        taken = {row.key for row in self.held() if not (self.grouped and row.holder == name)} - {None}
        found: list[Row] = []
        for row in self.rows.values():
            if not row.holder and row.key not in taken:
                found.append(row)
                taken |= set() if self.grouped or row.key is None else {row.key}
        return found[: max(0, min(room, most))]

    def take(self, name: str, rows: Iterable[Row]) -> list[Delivery]:
        """The second one: write down who has it, if it may still have it."""
        return [self.lease(name, row) for row in rows if row in self.find(name, LIMIT)]

    def delete(self, name: str, delivery: Delivery) -> bool:
        """The second statement of an ack, where the first has seen that the consumer has the message."""
        row = self.rows.get(delivery.offset)
        if row is None or not self.has(row, name, delivery):
            return False
        del self.rows[delivery.offset]
        return True

    # --- facts ------------------------------------------------------------------------------------------------------

    def lease(self, name: str, row: Row) -> Delivery:
        row.holder, row.attempt, row.until_ms = name, row.attempt + 1, self.now + LEASE_MS
        return Delivery(row.offset, row.key, row.attempt)

    def has(self, row: Row, name: str, delivery: Delivery) -> bool:
        return row.holder == name and row.attempt == delivery.attempt

    def held(self) -> list[Row]:
        return [row for row in self.rows.values() if row.holder]

    def put_back(self, rows: Iterable[Row]) -> None:
        for row in list(rows):
            row.holder = ""


class AskedDriver(Driver):
    """Operates a broker that is asked, correct or not."""

    broker_class: ClassVar[type[AskedBroker]] = AskedBroker

    def __init__(self) -> None:
        self.broker = self.broker_class()

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    def disconnect(self, consumer: str) -> None:
        self.broker.leave(consumer)

    def publish(self, key: bytes | None) -> int:
        return self.broker.append(key)

    def receive(self, consumer: str) -> Sequence[Delivery]:
        return self.receive_some(consumer, LIMIT)

    def receive_some(self, consumer: str, most: int) -> Sequence[Delivery]:
        return self.broker.take(consumer, self.broker.find(consumer, most))

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.finish_ack(self.begin_ack(consumer, delivery, 1))

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.broker.give_back(consumer, delivery)

    def advance(self, ms: int) -> None:
        self.broker.tick(ms)

    # Each half is one statement; a call that stands still after the second one has only its answer to give.

    def begin_receive(self, consumer: str, statements: int) -> object:
        found = self.broker.find(consumer, LIMIT)
        return consumer, found, self.broker.take(consumer, found) if statements > 1 else None

    def finish_receive(self, begun: Any) -> Sequence[Delivery]:
        consumer, found, taken = begun
        return self.broker.take(consumer, found) if taken is None else taken

    def begin_ack(self, consumer: str, delivery: Delivery, statements: int) -> object:
        row = self.broker.rows.get(delivery.offset)
        may = row is not None and self.broker.has(row, consumer, delivery)
        done = may and self.broker.delete(consumer, delivery) if statements > 1 or not may else None
        return consumer, delivery, done

    def finish_ack(self, begun: Any) -> bool | None:
        consumer, delivery, done = begun
        return self.broker.delete(consumer, delivery) if done is None else done


class AskedMachine(KeySharedMachine):
    """One of a key at a time, to whoever asks first."""

    driver_class: ClassVar[type[AnyDriver]] = AskedDriver
    claims = Claims(
        promises={
            *(Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS, Promise.BOUNDS, Promise.FENCE, Promise.PROGRESS),
        },
        per_consumer=LIMIT,
        ack_timeout_ms=LEASE_MS,
    )


class GroupedBroker(AskedBroker):
    """Who has one of a key may have the next ones too, and nobody else."""

    grouped = True


class GroupedDriver(AskedDriver):
    """Operates a broker that hands out groups."""

    broker_class = GroupedBroker


class GroupedMachine(AskedMachine):
    """Some of a key at a time, at one consumer."""

    driver_class = GroupedDriver
    claims = Claims(promises=AskedMachine.claims.promises, per_key=None, per_consumer=LIMIT, ack_timeout_ms=LEASE_MS)


class SplitsTheGroup(GroupedBroker):
    """Only what is older than a message keeps it back: the first one of a group goes to anybody when it comes back."""

    def find(self, name: str, most: int) -> list[Row]:
        room = LIMIT - len([row for row in self.held() if row.holder == name])
        taken: set[bytes] = set()
        found: list[Row] = []
        for row in self.rows.values():
            if row.holder not in {"", name} and row.key is not None:
                taken.add(row.key)
            elif not row.holder and row.key not in taken:
                found.append(row)
        return found[: max(0, min(room, most))]


class LeasesMoreThanItHandsOver(AskedBroker):
    """Everything that a consumer may have is leased to it, also if it asks for less."""

    def take(self, name: str, rows: Iterable[Row]) -> list[Delivery]:
        handed = super().take(name, rows)
        super().take(name, self.find(name, LIMIT))
        return handed


class TwoTakeTheSame(AskedBroker):
    """What was found free is leased, without a second look: two that ask at once get the same message."""

    def take(self, name: str, rows: Iterable[Row]) -> list[Delivery]:
        return [self.lease(name, row) for row in rows]


class DeletesWhatItHasSeen(AskedBroker):
    """The lease is looked at, and then the message is deleted by its number, whoever has it by then."""

    def delete(self, name: str, delivery: Delivery) -> bool:  # noqa: ARG002  # the fault
        return self.rows.pop(delivery.offset, None) is not None


class AskedFault(NamedTuple):
    """A broker that is asked, with one fault."""

    broker: type[AskedBroker]
    promises: frozenset[Promise]
    correct: type[AskedMachine] = AskedMachine

    @property
    def machine(self) -> type[KeySharedMachine]:
        """What is to find the fault."""
        name = self.broker.__name__
        driver = type(f"{name}Driver", (self.correct.driver_class,), {"broker_class": self.broker})
        return type(f"{name}Machine", (self.correct,), {"driver_class": driver})


ASKED_FAULTS: Final = (
    AskedFault(SplitsTheGroup, frozenset({Promise.ONE_HOLDER}), GroupedMachine),
    AskedFault(LeasesMoreThanItHandsOver, frozenset({Promise.PROGRESS, Promise.NO_LOSS})),
    # It is open twice, or comes when it is done, or beside the next one of its key.
    AskedFault(TwoTakeTheSame, frozenset({Promise.ONE_HOLDER, Promise.NO_LOSS, Promise.BOUNDS})),
    AskedFault(DeletesWhatItHasSeen, frozenset({Promise.FENCE})),
)
