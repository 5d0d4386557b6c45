"""Faults that hand-written dispatchers have again and again: one broker each."""

from tests.kit.fault import Fault
from tests.kit.small_broker import LIMIT, Message, SmallBroker

from keyshared.testing import Delivery, Promise

__all__ = ["FAULTS"]


class CursorOneTooFar(SmallBroker):
    """The cursor is one more than the next offset to read."""

    def cursor(self) -> int:
        return super().cursor() + 1


class CursorIsTheGreatestAck(SmallBroker):
    """The cursor follows the last ack, whatever is open below it."""

    def cursor(self) -> int:
        done = [offset for offset in range(len(self.log)) if offset not in self.messages]
        return max(done, default=-1) + 1


class CursorCountsAcks(SmallBroker):
    """The cursor is the number of acks."""

    def cursor(self) -> int:
        return len(self.log) - len(self.messages)


class LimitForgottenOnRetry(SmallBroker):
    """The limit of a consumer is looked at for first deliveries only."""

    def has_room(self, name: str, message: Message) -> bool:
        return message.attempt > 0 or super().has_room(name, message)


class OneTooManyOfAKey(SmallBroker):
    """Two of a key may be open where one was promised."""

    def is_held(self, message: Message) -> bool:
        older = [
            other
            for other in self.messages.values()
            if other.key == message.key is not None and other.offset < message.offset
        ]
        at_owner = all(self.is_open_at(other, self.owner(message) or "") for other in older)
        return len(older) > 1 or not at_owner


class MovesWithoutDraining(SmallBroker):
    """A key goes to its new owner while the old one still works on it."""

    def is_held(self, message: Message) -> bool:
        return message.key is not None and any(
            other.key == message.key
            and other.offset < message.offset
            and not (other.state == "open" and other.consumer != self.owner(message))
            for other in self.messages.values()
        )


class IgnoresOwnership(SmallBroker):
    """A key whose owner is full goes to somebody else."""

    def owner(self, message: Message) -> str | None:
        owner = super().owner(message)
        if owner is None or message.key is None or self.has_room(owner, message):
            return owner
        return next((name for name in self.takers(message.key) if self.has_room(name, message)), owner)


class ModuloOfTheConsumers(SmallBroker):
    """The hash modulo the number of consumers: a join moves most keys."""

    def owner_of_key(self, key: bytes) -> str | None:
        takers = sorted(self.takers(key))
        return takers[sum(key) % len(takers)] if takers else None


class AttemptsStandStill(SmallBroker):
    """Every delivery of a message has the same number."""

    def send(self, message: Message, name: str) -> None:
        message.attempt = 0
        super().send(message, name)


class TimeoutForgetsTheMessage(SmallBroker):
    """What has expired once is not tried again, and holds the cursor for ever."""

    def retry(self, message: Message) -> None:
        message.state = "waiting" if message.failures > 1 else "forgotten"


class AckWakesOnlyItsKey(SmallBroker):
    """The room that an ack has made is offered to the same key only."""

    def ack(self, name: str, offset: int, attempt: int) -> bool:
        message = self.messages.get(offset)
        if message is None or not self.may_settle(message, name, attempt):
            return False
        self.settle(message)
        asleep = [other for other in self.queue() if other.key != message.key]
        for other in asleep:
            other.state = "asleep"
        self.dispatch()
        for other in asleep:
            other.state = "waiting"
        return True


class CrashForgetsAcks(SmallBroker):
    """It promises to remember acks above the cursor, and stores only the cursor."""

    def crash(self) -> None:
        for offset in range(self.cursor(), len(self.log)):
            self.messages.setdefault(offset, Message(offset, self.log[offset], attempt=1))
        super().crash()


class SendsTwice(SmallBroker):
    """A consumer that comes back gets what it has already got once more, though only one copy was put back."""

    def join(self, name: str, filters: tuple[str, ...] = ()) -> None:  # type: ignore[override]  # the driver's kind
        super().join(name, filters)
        for message in self.open_at(name)[:LIMIT]:
            self.inboxes[name].append(Delivery(message.offset, message.key, message.attempt))


class AcksFreeNothing(SmallBroker):
    """The slot of an acked message stays taken until its timeout."""

    def has_room(self, name: str, message: Message) -> bool:
        return super().has_room(name, message) and len(self.log) - len(self.messages) < 2 * LIMIT


FAULTS = (
    Fault(CursorOneTooFar, Promise.SAFE_CURSOR, "by one"),
    Fault(CursorIsTheGreatestAck, Promise.SAFE_CURSOR, "Faust #355"),
    Fault(CursorCountsAcks, Promise.SAFE_CURSOR, "pools without a window"),
    Fault(LimitForgottenOnRetry, Promise.BOUNDS, "Danube"),
    Fault(OneTooManyOfAKey, Promise.BOUNDS, "by one"),
    Fault(MovesWithoutDraining, Promise.ONE_HOLDER, "pools that rebalance"),
    Fault(IgnoresOwnership, Promise.AFFINITY, "work stealing"),
    Fault(ModuloOfTheConsumers, Promise.MINIMAL_MOVE, "lane pools"),
    Fault(AttemptsStandStill, Promise.FENCE, "queues without receipts"),
    Fault(TimeoutForgetsTheMessage, Promise.PROGRESS, "timers"),
    Fault(AckWakesOnlyItsKey, Promise.PROGRESS, "lane pools"),
    Fault(CrashForgetsAcks, Promise.NO_LOSS, "restarts"),
    Fault(SendsTwice, Promise.FENCE, "reconnects"),
    Fault(AcksFreeNothing, Promise.PROGRESS, "counters"),
)
