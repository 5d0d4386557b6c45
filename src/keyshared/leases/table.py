"""The lease table: which lease or reservation covers which message.

It decides nothing; the dispatcher does. Exactly one grant covers each open delivery of the dispatcher, and
`LeaseTable.check_invariants` compares the two.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import Any, Final, cast

from keyshared._checks import require
from keyshared._core.reader import EPOCH_BITS, Reader
from keyshared._core.timers import Timers
from keyshared.effects import Deliver
from keyshared.leases.values import InvalidReservation, InvalidReservationReason, Leased

__all__ = ["Grant", "LeaseTable"]

_new: Final = tuple.__new__  # builds a message in half the time that its own constructor takes
_by_id: Final = attrgetter("id")
_first: Final = itemgetter(0)


class Grant:
    """A reservation, or the lease that it became.

    Attributes:
        id: The id of both.
        consumer: The consumer that holds it.
        deliveries: The deliveries that it still covers, by offset.
        committed: Whether it is a lease.
        deadline: When the reservation expires; None for a lease, whose messages have their own deadlines.
    """

    __slots__ = ("committed", "consumer", "deadline", "deliveries", "id")

    def __init__(self, grant_id: int, deliveries: list[Deliver[Any]], *, committed: bool) -> None:
        self.id = grant_id
        self.consumer = deliveries[0].consumer
        self.deliveries = {delivery.offset: delivery for delivery in deliveries}
        self.committed = committed
        self.deadline: int | None = None

    @property
    def messages(self) -> tuple[Leased[Any], ...]:
        """The messages that it covers, as its consumer receives them."""
        return tuple(
            [
                _new(Leased, (delivery.offset, delivery.key, delivery.item, delivery.failures + 1))
                for delivery in self.deliveries.values()
            ]
        )


class Drain:
    """A removed consumer that still holds messages, and the instant at which all of its grants end."""

    __slots__ = ("consumer", "deadline")

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        self.deadline: int | None = None


class LeaseTable:
    """Grants by id and by offset.

    Attributes:
        by_offset: The grant that covers a message.
        held: How many messages each consumer holds; consumers that hold nothing are left out.
    """

    __slots__ = ("_drains", "_grants", "_ids", "_timers", "by_offset", "held")

    def __init__(self) -> None:
        self.by_offset: dict[int, Grant] = {}
        self.held: dict[str, int] = {}
        self._grants: dict[int, Grant] = {}
        self._ids: list[list[int]] = [[1, 0]]  # first and last id of each epoch in which ids were given, and of this
        self._timers = Timers()
        self._drains: dict[str, Drain] = {}  # of consumers that hold something

    def cover(self, deliveries: list[Deliver[Any]], expires: int | None) -> Grant:
        """Cover deliveries by a reservation that expires, or with None by a lease."""
        self._ids[-1][1] += 1
        return self._cover(self._ids[-1][1], deliveries, expires, committed=expires is None)

    def commit(self, grant: Grant) -> None:
        """Make a lease of a reservation."""
        grant.committed = True
        grant.deadline = None

    def end(self, offset: int) -> Grant:
        """Remove a message from the grant that covers it, and return that."""
        grant = self.by_offset.pop(offset)
        del grant.deliveries[offset]
        if not grant.deliveries:
            grant.deadline = None
            del self._grants[grant.id]
        left = self.held[grant.consumer] - 1
        if left:
            self.held[grant.consumer] = left
        else:
            del self.held[grant.consumer]
            if self._drains:
                self._stop_drain(grant.consumer)
        return grant

    def drain(self, consumer: str, deadline: int | None) -> None:
        """Set when the grants of a removed consumer end, None for never; nothing if it holds none."""
        self._stop_drain(consumer)
        if deadline is not None and consumer in self.held:
            drain = self._drains[consumer] = Drain(consumer)
            self._timers.start(drain, deadline)

    def cut_off(self, consumer: str) -> int | None:
        """Return when the drain of a removed consumer ends; None for never. O(1)."""
        drain = self._drains.get(consumer)
        return None if drain is None else drain.deadline

    def leased(self, offset: int, lease_id: int) -> Deliver[Any] | None:
        """Return the delivery that a handle names, if that lease covers the message now. O(1)."""
        grant = self.by_offset.get(offset)
        if grant is None or grant.id != lease_id or not grant.committed:
            return None
        return grant.deliveries[offset]

    def reserved(self, reservation_id: int) -> Grant | InvalidReservation:
        """Return the reservation of an id, or why there is none. O(1), for one that has ended O(log epochs)."""
        grant = self._grants.get(reservation_id)
        if grant is not None and not grant.committed:
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

    @property
    def next_deadline(self) -> int | None:
        """When the next reservation expires, or the next drain ends; or None."""
        return self._timers.next_deadline

    def take_due(self, now: int) -> tuple[list[Grant], list[str]]:
        """Return the reservations that expired, by id, and the consumers whose drain ended, by time.

        All of them still hold what they held.
        """
        due = [timed for _, timed in self._timers.pop_due(now)]
        expired = sorted((timed for timed in due if isinstance(timed, Grant)), key=_by_id)
        return expired, [timed.consumer for timed in due if isinstance(timed, Drain)]

    def begin_epoch(self, epoch: int) -> None:
        """Begin the ids of an epoch, above all that were given in earlier ones and forgotten."""
        if epoch << EPOCH_BITS > self._ids[-1][1]:
            self._begin_ids((epoch << EPOCH_BITS) + 1)

    def dump(self, now: int) -> dict[str, object]:
        """Return the grants as plain data: deadlines as what remains of them."""
        grants = [
            [grant.id, grant.committed, None if grant.deadline is None else grant.deadline - now, [*grant.deliveries]]
            for grant in self._grants.values()
        ]
        drains = [[name, cast("int", drain.deadline) - now] for name, drain in self._drains.items()]
        return {"ids": [list(ids) for ids in self._ids], "grants": grants, "drains": drains}

    def load(self, data: Reader, in_flight: Mapping[int, Deliver[Any]], *, now: int, epoch: int) -> None:
        """Fill a new table with what `dump` wrote beside the dispatcher that has these deliveries in flight."""
        for stored in data.field("ids").items():
            first, last = (number.integer() for number in stored.items(2))
            self._begin_ids(first)
            self._ids[-1][1] = last
        for stored in data.field("grants").items():
            grant_id, committed, left, offsets = stored.items(4)
            deliveries = [in_flight[offset.integer()] for offset in offsets.items()]
            left_ms = left.maybe(Reader.integer)
            expires = None if left_ms is None else now + left_ms
            self._cover(grant_id.integer(), deliveries, expires, committed=committed.flag())
        for stored in data.field("drains").items():
            name, left = stored.items(2)
            self.drain(name.text(), now + left.integer())
        self.begin_epoch(epoch)

    # inside

    def _cover(self, grant_id: int, deliveries: list[Deliver[Any]], expires: int | None, *, committed: bool) -> Grant:
        grant = Grant(grant_id, deliveries, committed=committed)
        self._grants[grant.id] = grant
        self.by_offset.update(dict.fromkeys(grant.deliveries, grant))
        self.held[grant.consumer] = self.held.get(grant.consumer, 0) + len(deliveries)
        if expires is not None:
            self._timers.start(grant, expires)
        return grant

    def _stop_drain(self, consumer: str) -> None:
        drain = self._drains.pop(consumer, None)
        if drain is not None:
            drain.deadline = None

    def _begin_ids(self, first: int) -> None:
        if self._ids[-1][1] < self._ids[-1][0]:
            self._ids.pop()  # no id was given in that epoch
        self._ids.append([first, first - 1])

    def _was_given(self, grant_id: int) -> bool:
        place = bisect_right(self._ids, grant_id, key=_first)
        return place > 0 and grant_id <= self._ids[place - 1][1]

    def check_invariants(self, in_flight: Iterable[Deliver[Any]]) -> None:
        """Raise `InvariantError` if this is not exactly what the dispatcher has open. For tests; O(n)."""
        covered = {
            offset: (delivery.receipt, grant.consumer)
            for offset, grant in self.by_offset.items()
            for delivery in [grant.deliveries[offset]]
        }
        opened = {delivery.offset: (delivery.receipt, delivery.consumer) for delivery in in_flight}
        require(covered == opened, "what is in flight is covered by one grant of its consumer")
        listed = [offset for grant in self._grants.values() for offset in grant.deliveries]
        require(sorted(listed) == sorted(self.by_offset), "grants cover what they are found by")
        counted: dict[str, int] = {}
        for grant in self._grants.values():
            require(bool(grant.deliveries), "a grant covers something")
            require((grant.deadline is None) == grant.committed, "a reservation has a deadline, a lease has none")
            counted[grant.consumer] = counted.get(grant.consumer, 0) + len(grant.deliveries)
        require(counted == self.held, "what each consumer holds is counted")
        require(self._drains.keys() <= self.held.keys(), "who drains holds something")
        require(all(drain.deadline is not None for drain in self._drains.values()), "a drain has a deadline")
        require(list(self._grants) == sorted(self._grants), "ids rise")
        require(all(map(self._was_given, self._grants)), "a grant has an id that was given")
