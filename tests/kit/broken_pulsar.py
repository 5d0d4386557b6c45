"""Faults that Pulsar's Key_Shared subscriptions had, by the number of the issue or proposal that tells of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

from tests.kit.fault import Fault
from tests.kit.small_broker import Message, SmallBroker

from keyshared.testing import Promise

__all__ = ["FAULTS"]

POINTS = 20
SLOTS = 64
RING = 97


@dataclass
class CountsTwiceWhatComesHome(SmallBroker):
    """A key that moves away and back before anything else happens is counted twice among the draining ones."""

    draining: Counter[bytes] = field(default_factory=Counter)
    owners: dict[bytes, str | None] = field(default_factory=dict)

    def joined(self, name: str) -> None:
        self.count()

    def left(self, name: str) -> None:
        self.count()

    def count(self) -> None:
        for message in self.messages.values():
            key = message.key
            if message.state == "open" and key is not None:
                before, owner = self.owners.get(key, message.consumer), self.owner_of_key(key)
                if before != owner and before == message.consumer:
                    self.draining[key] += 1  # and coming home takes nothing back
                self.owners[key] = owner

    def is_held(self, message: Message) -> bool:
        return super().is_held(message) or self.draining[message.key or b""] > 0

    def settle(self, message: Message) -> None:
        self.released(message)
        super().settle(message)

    def fail(self, message: Message) -> None:
        if message.state == "open":
            self.released(message)
        super().fail(message)

    def put_back(self, messages: Sequence[Message]) -> None:  # type: ignore[override]  # it gets lists only
        for message in messages:
            self.released(message)
        super().put_back(messages)

    def released(self, message: Message) -> None:
        key = message.key or b""
        if message.state == "open" and self.draining[key]:
            self.draining[key] -= 1


class AckDuringThePassUnblocks(SmallBroker):
    """Acks that come in the middle of a pass free their key for what is looked at later in that pass."""

    def ack(self, name: str, offset: int, attempt: int) -> bool:
        message = self.messages.get(offset)
        if message is None or not self.may_settle(message, name, attempt):
            return False
        refused: list[Message] = []
        for waiting in self.queue():
            if waiting.key == message.key is not None and not refused:
                refused.append(waiting)  # its key is still taken
                self.settle(message)  # and now it is not
                continue
            owner = self.owner(waiting)
            passed = [
                each for each in self.messages.values() if each.key == waiting.key and each.offset < waiting.offset
            ]
            if owner and self.has_room(owner, waiting) and all(each in refused for each in passed):
                self.send(waiting, owner)
        if not refused:
            self.settle(message)
        self.dispatch()
        return True


@dataclass
class PointsThatCollide(SmallBroker):
    """A point of the ring that two consumers share is the later one's, and goes with whoever of them leaves.

    They share many: the ring is small, and a point is named by name and number with nothing between.
    """

    points: dict[int, str] = field(default_factory=dict)

    def joined(self, name: str) -> None:
        self.points |= dict.fromkeys(self.points_of(name), name)

    def left(self, name: str) -> None:
        for point in self.points_of(name):
            self.points.pop(point, None)

    def crash(self) -> None:
        super().crash()
        self.points.clear()

    def points_of(self, name: str) -> list[int]:
        return [crc32(f"{name}{number}".encode()) % SLOTS for number in range(POINTS)]

    def owner_of_key(self, key: bytes) -> str | None:
        takers = self.takers(key)
        ring = sorted((point, name) for point, name in self.points.items() if name in takers)
        place = crc32(key) % SLOTS
        return next((name for point, name in ring if point >= place), ring[0][1] if ring else None)


class NackedLetsNewerOnesPass(SmallBroker):
    """What was nacked is queued for a replay without its key, and holds nothing."""

    def is_held(self, message: Message) -> bool:
        return message.key is not None and any(
            other.key == message.key and other.offset < message.offset and other.state != "retry"
            for other in self.messages.values()
        )


class EqualSpread(SmallBroker):
    """Everybody gets an equal run of the hashes, by the order of the names: a join moves keys between the others."""

    def owner_of_key(self, key: bytes) -> str | None:
        takers = sorted(self.takers(key))
        return takers[crc32(key) % RING * len(takers) // RING] if takers else None


FAULTS = (
    Fault(CountsTwiceWhatComesHome, Promise.PROGRESS, "Pulsar #23845"),
    Fault(AckDuringThePassUnblocks, Promise.KEY_ORDER, "Pulsar #23870"),
    Fault(PointsThatCollide, Promise.MINIMAL_MOVE, "Pulsar #22050, #23315"),
    Fault(NackedLetsNewerOnesPass, Promise.KEY_ORDER, "Pulsar, PIP-379"),
    Fault(EqualSpread, Promise.MINIMAL_MOVE, "Pulsar, PIP-486"),
)
