"""The holes of a drain that is written down in a list of its own, as Celeriant documents it: one broker each."""

from dataclasses import dataclass, field

from tests.kit.fault import Fault
from tests.kit.small_broker import Message, SmallBroker

from keyshared.testing import Promise

__all__ = ["FAULTS"]


@dataclass
class ListedDrains(SmallBroker):
    """Remembers for each key who had it before its owner changed, and blocks it as long as that one works on it."""

    owners: dict[bytes, str | None] = field(default_factory=dict)
    prior: dict[bytes, str] = field(default_factory=dict)

    def is_held(self, message: Message) -> bool:
        if message.key is None:
            return False
        ours = [other for other in self.messages.values() if other.key == message.key and other is not message]
        if any(other.offset < message.offset and other.state != "open" for other in ours):
            return True
        owner = self.owner(message)
        if any(other.state == "open" and self.is_same(other.consumer, owner) for other in ours):
            return True
        prior = self.prior.get(message.key)
        return prior is not None and self.works_on(prior, message.key)

    def is_same(self, name: str, owner: str | None) -> bool:
        return name == owner

    def works_on(self, name: str, key: bytes) -> bool:
        return any(message.key == key for message in self.open_at(name))

    def joined(self, name: str) -> None:
        self.note_moves()

    def left(self, name: str) -> None:
        self.note_moves()

    def note_moves(self) -> None:
        for key in dict.fromkeys(key for key in self.log if key is not None):
            owner, before = self.owner_of_key(key), self.owners.get(key)
            if before is not None and before != owner:
                self.note_move(key, before, owner)
            self.owners[key] = owner

    def note_move(self, key: bytes, before: str, owner: str | None) -> None:
        if not self.works_on(self.prior.get(key, ""), key):
            self.prior[key] = before

    def append(self, key: bytes | None) -> int:
        if key is not None:
            self.owners.setdefault(key, self.owner_of_key(key))
        return super().append(key)


@dataclass
class DrainNeverExpires(ListedDrains):
    """The drain ends with the prior owner's acks only: a prior owner that is dead wedges the key."""

    leased: set[tuple[str, int]] = field(default_factory=set)

    def send(self, message: Message, name: str) -> None:
        self.leased.add((name, message.offset))
        super().send(message, name)

    def settle(self, message: Message) -> None:
        self.leased.discard((message.consumer, message.offset))
        super().settle(message)

    def works_on(self, name: str, key: bytes) -> bool:
        leases = [offset for holder, offset in self.leased if holder == name and offset in self.messages]
        return any(self.messages[offset].key == key for offset in leases)


class SplitsStartNoDrain(ListedDrains):
    """Only a move of everything that somebody had is found in the list; a join that splits it starts no drain."""

    def note_move(self, key: bytes, before: str, owner: str | None) -> None:
        if before not in self.filters:
            super().note_move(key, before, owner)


class IdentityWithoutGroup(ListedDrains):
    """Who holds a key is compared by the name without its group: a namesake in another group starts beside it."""

    def is_held(self, message: Message) -> bool:
        if message.key is None:
            return False
        ours = [other for other in self.messages.values() if other.key == message.key and other is not message]
        if any(other.offset < message.offset and other.state != "open" for other in ours):
            return True
        bare = (self.owner(message) or "").rpartition("/")[2]
        at_owner = len([other for other in ours if self.is_open_at(other, self.owner(message) or "")])
        return at_owner > 0 or any(
            other.state == "open" and other.consumer.rpartition("/")[2] != bare for other in ours
        )


class ChainsForgetTheFirst(ListedDrains):
    """A key that moves twice has one prior owner, the second: the first one still works on it."""

    def note_move(self, key: bytes, before: str, owner: str | None) -> None:
        self.prior[key] = before


FAULTS = (
    Fault(DrainNeverExpires, Promise.PROGRESS, "Celeriant"),
    Fault(SplitsStartNoDrain, Promise.ONE_HOLDER, "Celeriant"),
    Fault(IdentityWithoutGroup, Promise.ONE_HOLDER, "Celeriant"),
    Fault(ChainsForgetTheFirst, Promise.ONE_HOLDER, "Celeriant"),
)
