"""The lease table: which lease or reservation covers which open delivery.

It is a feature of the core, which reports each delivery that ends and each reservation that is due, and keeps the table
in its snapshot. The core decides who may get what, and why; the table only knows under which id it was handed out.
"""

from bisect import bisect_right
from operator import attrgetter, itemgetter
from typing import Any, Final

from keyshared._checks import require
from keyshared._core.feature import Feature
from keyshared._core.machine import Machine
from keyshared._core.reader import EPOCH_BITS, Reader
from keyshared._core.records import Consumer, Entry
from keyshared._core.timers import Duties, Duty, Stage
from keyshared.effects import ReleaseReason
from keyshared.leases.lease import InvalidReservation, InvalidReservationReason, Leased

__all__ = ["Grant", "LeaseTable"]

_new: Final = tuple.__new__  # builds a message in half the time that its own constructor takes
_id_of: Final = attrgetter("id")
_first: Final = itemgetter(0)
_UNCOUNTED: Final = (ReleaseReason.BATCH_BROKEN, ReleaseReason.RELEASED)


class Grant:
    """A reservation, or the lease that it became.

    Attributes:
        id: The id of both.
        consumer: The consumer that holds it.
        entries: The messages that it still covers, by offset.
        deadline: When the reservation expires; None for a lease, whose messages have their own deadlines.
    """

    __slots__ = ("consumer", "deadline", "entries", "id")

    def __init__(self, grant_id: int, consumer: str, entries: dict[int, Entry]) -> None:
        self.id = grant_id
        self.consumer = consumer
        self.entries = entries
        self.deadline: int | None = None

    @property
    def is_lease(self) -> bool:
        """Whether it is committed."""
        return self.deadline is None

    @property
    def messages(self) -> tuple[Leased[Any], ...]:
        """The messages that it covers, as its consumer receives them."""
        return tuple(
            [
                _new(Leased, (entry.offset, entry.lane.key, entry.item, _failures(entry) + 1))
                for entry in self.entries.values()
            ]
        )


class LeaseTable(Feature):
    """Grants by id and by offset, and the producers of their messages.

    Attributes:
        machine: The core that it belongs to, from `watch` on.
        by_offset: The grant that covers a message.
        producers: The greatest number taken from each producer.
        leased: How many messages were leased since the start, if that is measured.
    """

    name = "leases"
    machine: Machine

    def __init__(self) -> None:
        self.by_offset: dict[int, Grant] = {}
        self.producers: dict[str, int] = {}
        self.leased = 0
        self._grants: dict[int, Grant] = {}
        self._ids: list[list[int]] = [[1, 0]]  # first and last id of each epoch in which ids were given, and of this

    def watch(self, machine: Machine) -> None:
        """Begin with the core that it was made for: there a lease that ends with its consumer counts as a failure."""
        self.machine = machine
        machine.endings.uncounted = _UNCOUNTED

    # grants

    def lease(self, entries: dict[int, Entry], consumer: str) -> Grant:
        """Cover open deliveries of a consumer by a lease."""
        return self._counted(self._cover(Grant(self._next_id(), consumer, entries)))

    def reserve(self, entries: dict[int, Entry], consumer: str, deadline: int) -> Grant:
        """Cover open deliveries of a consumer by a reservation."""
        grant = self._cover(Grant(self._next_id(), consumer, entries))
        self._reserve(grant, deadline)
        return grant

    def commit(self, grant: Grant, deadline: int) -> Grant:
        """Make a lease of a reservation: its messages get the time of a lease, which no other one has exceeded."""
        grant.deadline = None
        self.machine.endings.reserved.difference_update(grant.entries)
        entries = list(grant.entries.values())
        due = self.machine.timers.start_last(entries, deadline)
        for entry in entries:
            entry.deadline = due
        return self._counted(grant)

    def release(self, grant: Grant, now: int) -> None:
        """End a reservation: nothing is counted, and no effect reports it."""
        while grant.entries:  # each one ends what is newer of its batch, too
            self.machine.endings.end(next(iter(grant.entries.values())), ReleaseReason.RELEASED, now)

    # questions

    def leased_entry(self, offset: int, lease_id: int) -> Entry | None:
        """Return the message that a handle names, if that lease covers it now. O(1)."""
        grant = self.by_offset.get(offset)
        if grant is None or grant.id != lease_id or grant.deadline is not None:
            return None
        return grant.entries[offset]

    def reserved(self, reservation_id: int) -> Grant | InvalidReservation:
        """Return the reservation of an id, or why there is none. O(1), for one that has ended O(log epochs)."""
        grant = self._grants.get(reservation_id)
        if grant is not None and not grant.is_lease:
            return grant
        if grant is not None:
            reason = InvalidReservationReason.COMMITTED
        elif self._was_given(reservation_id):
            reason = InvalidReservationReason.ENDED
        else:
            reason = InvalidReservationReason.UNKNOWN
        return InvalidReservation(reservation_id, reason)

    def grants(self) -> list[Grant]:
        """Return all grants, by id. O(result)."""
        return list(self._grants.values())

    def deadline_of(self, entry: Entry) -> int:
        """Return when the lease or reservation of a message ends, or the drain of its consumer if that is earlier."""
        grant = self.by_offset[entry.offset]
        deadlines = (entry.deadline, grant.deadline, self.machine.members[grant.consumer].deadline)
        return min(deadline for deadline in deadlines if deadline is not None)

    # what the core reports

    def closed(self, entry: Entry, consumer: Consumer) -> None:  # noqa: ARG002  # a feature's method
        """Remove a message whose delivery has ended from the grant that covers it."""
        grant = self.by_offset.pop(entry.offset)
        self.machine.endings.reserved.discard(entry.offset)
        del grant.entries[entry.offset]
        if not grant.entries:
            grant.deadline = None
            del self._grants[grant.id]

    def duties(self) -> Duties:
        """End reservations that are due."""
        return {Grant: Duty(Stage.RESERVATIONS, _id_of, self.release)}

    def dump(self, now: int) -> object:
        """Return the grants with what remains of their time, and the owner of everything with ordering_required."""
        machine = self.machine
        grants = [
            [grant.id, grant.consumer, None if grant.deadline is None else grant.deadline - now, [*grant.entries]]
            for grant in self._grants.values()
        ]
        return {
            "ids": [list(ids) for ids in self._ids],
            "grants": grants,
            "producers": dict(self.producers),
            "leased": self.leased,
            "line": machine.routing.owner(b"") if machine.config.ordering_required else None,
        }

    def load(self, row: Reader, now: int) -> None:
        """Take what `dump` returned; ids of the epoch of now are above all that were given and forgotten."""
        for stored in row.field("ids").items():
            first, last = (number.integer() for number in stored.items(2))
            self._begin_ids(first)
            self._ids[-1][1] = last
        for stored in row.field("grants").items():
            grant_id, name, left, offsets = stored.items(4)
            consumer = name.one_of(self.machine.members)
            entries = {offset: consumer.open[offset] for offset in map(Reader.integer, offsets.items())}
            grant = self._cover(Grant(grant_id.integer(), consumer.name, entries))
            left_ms = left.maybe(Reader.integer)
            if left_ms is not None:
                self._reserve(grant, now + left_ms)
        self.producers = {name: last.integer() for name, last in row.field("producers").fields().items()}
        self.leased = row.field("leased").count()
        self.begin_epoch(self.machine.epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Begin the ids of an epoch, above all that were given in earlier ones and forgotten."""
        if epoch << EPOCH_BITS > self._ids[-1][1]:
            self._begin_ids((epoch << EPOCH_BITS) + 1)

    # inside

    def _next_id(self) -> int:
        self._ids[-1][1] += 1
        return self._ids[-1][1]

    def _cover(self, grant: Grant) -> Grant:
        self._grants[grant.id] = grant
        self.by_offset.update(dict.fromkeys(grant.entries, grant))
        return grant

    def _reserve(self, grant: Grant, deadline: int) -> None:
        self.machine.endings.reserved.update(grant.entries)
        self.machine.timers.start(grant, deadline)

    def _counted(self, grant: Grant) -> Grant:
        """Count a lease for `health`: the core counts reservations too, which are not delivered to anybody."""
        if self.machine.health is not None:
            self.leased += len(grant.entries)
        return grant

    def _begin_ids(self, first: int) -> None:
        if self._ids[-1][1] < self._ids[-1][0]:
            self._ids.pop()  # no id was given in that epoch
        self._ids.append([first, first - 1])

    def _was_given(self, grant_id: int) -> bool:
        place = bisect_right(self._ids, grant_id, key=_first)
        return place > 0 and grant_id <= self._ids[place - 1][1]

    def check_invariants(self) -> None:
        """Raise `InvariantError` if this is not exactly what the core has open. For tests; O(n)."""
        consumers = self.machine.members.values()
        opened = {(consumer.name, offset): entry for consumer in consumers for offset, entry in consumer.open.items()}
        covered = {
            (grant.consumer, offset): entry for grant in self.grants() for offset, entry in grant.entries.items()
        }
        require(covered == opened, "what is in flight is covered by one grant of its consumer")
        found = {(grant.consumer, offset): grant.entries[offset] for offset, grant in self.by_offset.items()}
        require(found == covered, "grants cover what they are found by")
        require(all(grant.entries for grant in self._grants.values()), "a grant covers something")
        require(not any(consumer.quota for consumer in consumers), "every consumer has to ask")
        reserved = {offset for offset, grant in self.by_offset.items() if not grant.is_lease}
        require(reserved == self.machine.endings.reserved, "the core knows what is only reserved")
        require(list(self._grants) == sorted(self._grants), "ids rise")
        require(all(map(self._was_given, self._grants)), "a grant has an id that was given")


def _failures(entry: Entry) -> int:
    return 0 if entry.note is None else entry.note.failures
