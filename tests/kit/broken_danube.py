"""The faults that Danube's Key-Shared dispatcher had in its ordering, its losses and its stalls: one broker each."""

from dataclasses import dataclass, field

from tests.kit.fault import Fault
from tests.kit.small_broker import WINDOW, Message, SmallBroker

from keyshared.testing import Promise

__all__ = ["FAULTS"]


@dataclass
class PutsBackAtTheTail(SmallBroker):
    """One queue for all keys; what could not be sent is queued behind the newer ones of its key."""

    order: list[int] = field(default_factory=list)

    def is_held(self, message: Message) -> bool:
        return message.key is not None and any(
            other.key == message.key and other.state != "waiting" for other in self.messages.values()
        )

    def queue(self) -> list[Message]:
        waiting = {message.offset: message for message in super().queue()}
        self.order = [offset for offset in self.order if offset in waiting]
        self.order += [offset for offset in waiting if offset not in self.order]
        return [waiting[offset] for offset in self.order]

    def dispatch(self) -> None:
        for message in self.queue():
            owner = self.owner(message)
            if owner is None or self.is_held(message):
                continue
            if self.has_room(owner, message):
                self.send(message, owner)
            else:
                self.order.remove(message.offset)
                self.order.append(message.offset)


class WaitsWithoutItsKey(SmallBroker):
    """Only what is in flight holds its key: when there is room again, what was read last is looked at first."""

    def queue(self) -> list[Message]:
        return super().queue()[::-1]

    def is_held(self, message: Message) -> bool:
        return message.key is not None and any(
            other.key == message.key and other.state != "waiting" for other in self.messages.values()
        )


class EvictsWithoutWaking(SmallBroker):
    """What a consumer had that is thrown out goes to the others with the next message or ack, not before."""

    def leave(self, name: str) -> None:
        self.put_back(self.open_at(name))
        del self.filters[name], self.inboxes[name]


class EvictionLoses(SmallBroker):
    """What was in flight at a consumer that leaves is acked on its behalf."""

    def leave(self, name: str) -> None:
        for message in self.open_at(name):
            self.settle(message)
        super().leave(name)


class PoisonTakesItsKeyAlong(SmallBroker):
    """With the poison message everything that waits behind it is thrown away."""

    def poison(self, message: Message) -> None:
        super().poison(message)
        for other in self.queue():
            if other.key == message.key is not None:
                other.state = "thrown away"


class BlockedShareTheWindow(SmallBroker):
    """What is blocked behind a hot key fills the one window, and nothing else is read."""

    def queue(self) -> list[Message]:
        in_window = sorted(self.messages)[: WINDOW // 4]
        return [message for message in super().queue() if message.offset in in_window]


class ParksWhileItReads(SmallBroker):
    """The loop that waits for the next message does not look at acks, retries and timeouts."""

    def ack(self, name: str, offset: int, attempt: int) -> bool:
        message = self.messages.get(offset)
        if message is None or not self.may_settle(message, name, attempt):
            return False
        self.settle(message)
        return True


class ParksWhileItSends(SmallBroker):
    """A consumer that does not read stops the loop, and with it every other one."""

    def dispatch(self) -> None:
        if not any(self.inboxes.values()):
            super().dispatch()


class RateLimiterLoses(SmallBroker):
    """Out of tokens, it forgets the message that it has just read."""

    def append(self, key: bytes | None) -> int:
        if len(self.open_now()) < 3:  # tokens come back with the acks
            return super().append(key)
        offset = len(self.log)
        self.log.append(key)
        self.messages[offset] = Message(offset, key, state="forgotten")
        return offset

    def open_now(self) -> list[Message]:
        return [message for message in self.messages.values() if message.state == "open"]


class SkipsUnwanted(SmallBroker):
    """A message is settled because the only consumer that wants its key is away."""

    def dispatch(self) -> None:
        for message in self.queue():
            if self.filters and self.owner(message) is None:
                self.settle(message)
        super().dispatch()


class TakesStaleAcks(SmallBroker):
    """An ack names an offset, no attempt: one from before a redelivery settles the new one."""

    def may_settle(self, message: Message, name: str, attempt: int) -> bool:
        return message.attempt > 0


class StaleNacksCount(SmallBroker):
    """A nack of an earlier delivery ends the current one."""

    def is_current(self, message: Message, name: str, attempt: int) -> bool:
        return message.state == "open" and 0 < attempt <= message.attempt


@dataclass
class CountersDrift(SmallBroker):
    """A retry that moves to another consumer leaves the old one's count one too high, for ever."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[int, str] = field(default_factory=dict)

    def has_room(self, name: str, message: Message) -> bool:
        return self.counts.get(name, 0) < 2

    def send(self, message: Message, name: str) -> None:
        if message.offset not in self.first:
            self.first[message.offset] = name
            self.counts[name] = self.counts.get(name, 0) + 1
        super().send(message, name)

    def settle(self, message: Message) -> None:
        name = message.consumer or self.first.get(message.offset, "")
        self.counts[name] = self.counts.get(name, 0) - 1
        super().settle(message)


class AcksDoNotRead(SmallBroker):
    """A window that was full when the message came: its wake-up is lost, and acks do not read on."""

    def append(self, key: bytes | None) -> int:
        is_full = len(self.messages) >= WINDOW // 2
        offset = super().append(key)
        if is_full and self.messages[offset].state == "waiting":
            self.messages[offset].state = "unread"
        return offset

    def tick(self, ms: int) -> None:
        for message in self.messages.values():
            if message.state == "unread":
                message.state = "waiting"
        super().tick(ms)


@dataclass
class EvictedForGood(SmallBroker):
    """The subscription still lists the name of who has left, so coming back does not join the ring again."""

    known: set[str] = field(default_factory=set)

    def has_room(self, name: str, message: Message) -> bool:
        return name not in self.known and super().has_room(name, message)

    def left(self, name: str) -> None:
        self.known.add(name)


class RestartsAtTheLatest(SmallBroker):
    """Nothing was committed before the crash, so it starts at the end of the log."""

    def crash(self) -> None:
        super().crash()
        if self.cursor() == 0:
            for message in self.messages.values():
                message.state = "from before"


@dataclass
class KeepsOwnersOfThoseGone(SmallBroker):
    """All disconnect and others come: what waits for a retry is kept for its old consumer."""

    kept: dict[int, str] = field(default_factory=dict)

    def send(self, message: Message, name: str) -> None:
        self.kept[message.offset] = name
        super().send(message, name)

    def dispatch(self) -> None:
        for message in self.queue():
            if self.kept.get(message.offset, "") not in {"", *self.filters}:
                message.state = "kept"
        for message in self.messages.values():
            if message.state == "kept" and self.kept[message.offset] in self.filters:
                message.state = "waiting"
        super().dispatch()


class DeadLetterIsNeverWritten(SmallBroker):
    """Writing a dead letter fails, and nobody tries again: the message and its key wait for ever."""

    def poison(self, message: Message) -> None:
        message.state = "dead lettering"


FAULTS = (
    Fault(PutsBackAtTheTail, Promise.KEY_ORDER, "Danube"),
    Fault(WaitsWithoutItsKey, Promise.KEY_ORDER, "Danube"),
    Fault(EvictsWithoutWaking, Promise.PROGRESS, "Danube"),
    Fault(EvictionLoses, Promise.SAFE_CURSOR, "Danube", or_else=Promise.NO_LOSS),
    Fault(PoisonTakesItsKeyAlong, Promise.PROGRESS, "Danube"),
    Fault(BlockedShareTheWindow, Promise.PROGRESS, "Danube"),
    Fault(ParksWhileItReads, Promise.PROGRESS, "Danube"),
    Fault(ParksWhileItSends, Promise.PROGRESS, "Danube"),
    Fault(RateLimiterLoses, Promise.PROGRESS, "Danube"),
    Fault(SkipsUnwanted, Promise.SAFE_CURSOR, "Danube", or_else=Promise.NO_LOSS),
    Fault(TakesStaleAcks, Promise.FENCE, "Danube"),
    Fault(StaleNacksCount, Promise.FENCE, "Danube"),
    Fault(CountersDrift, Promise.PROGRESS, "Danube"),
    Fault(AcksDoNotRead, Promise.PROGRESS, "Danube"),
    Fault(EvictedForGood, Promise.PROGRESS, "Danube"),
    Fault(RestartsAtTheLatest, Promise.PROGRESS, "Danube"),
    Fault(KeepsOwnersOfThoseGone, Promise.PROGRESS, "Danube"),
    Fault(DeadLetterIsNeverWritten, Promise.PROGRESS, "Danube"),
)
