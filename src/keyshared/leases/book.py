"""The book of lease ids: which lease or reservation covers which message now.

It holds nothing that decides who may get what; that is the dispatcher's. Whatever the dispatcher has open is covered
here by exactly one grant, and `LeaseBook.check_invariants` compares the two.
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

__all__ = ["Grant", "LeaseBook"]

_new: Final = tuple.__new__  # builds a message in half the time that its own constructor takes
_by_id: Final = attrgetter("id")
_first: Final = itemgetter(0)


class Grant:
    """A reservation, or the lease that it became.

    Attributes:
        id: Of both.
        consumer: Who holds it.
        deliveries: The deliveries that it still covers, by offset.
        committed: Whether it is a lease.
        deadline: When the reservation expires; None for a lease, whose messages have their own deadlines.
    """

    __slots__ = ("committed", "consumer", "deadline", "deliveries", "id")

    def __init__(self, grant_id: int, consumer: str, deliveries: Iterable[Deliver[Any]], *, committed: bool) -> None:
        self.id = grant_id
        self.consumer = consumer
        self.deliveries = {delivery.offset: delivery for delivery in deliveries}
        self.committed = committed
        self.deadline: int | None = None

    @property
    def messages(self) -> tuple[Leased[Any], ...]:
        """What it covers, as its consumer sees it."""
        return tuple(
            [
                _new(Leased, (delivery.offset, delivery.key, delivery.item, delivery.failures + 1))
                for delivery in self.deliveries.values()
            ]
        )


class Drain:
    """A consumer that has left, and when all that it still holds ends.

    Attributes:
        consumer: Its name.
        deadline: When.
    """

    __slots__ = ("consumer", "deadline")

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        self.deadline: int | None = None


class LeaseBook:
    """Grants by id and by offset.

    Attributes:
        by_offset: What covers a message now.
        held: How many messages each consumer holds; those who hold nothing are left out.
    """

    __slots__ = (
        "_before",
        "_drain_timers",
        "_drains",
        "_first_id",
        "_grants",
        "_last_id",
        "_timers",
        "by_offset",
        "held",
    )

    def __init__(self) -> None:
        self.by_offset: dict[int, Grant] = {}
        self.held: dict[str, int] = {}
        self._grants: dict[int, Grant] = {}
        self._before: list[tuple[int, int]] = []  # first and last id of each earlier epoch in which ids were given
        self._first_id = 1  # of this epoch
        self._last_id = 0
        self._timers = Timers()
        self._drains: dict[str, Drain] = {}  # of those that hold something
        self._drain_timers = Timers()

    def reserve(self, consumer: str, deliveries: Iterable[Deliver[Any]], deadline: int) -> Grant:
        """Cover deliveries by a new reservation."""
        grant = self._cover(self._next_id(), consumer, deliveries, committed=False)
        self._timers.start(grant, deadline)
        return grant

    def lease(self, consumer: str, deliveries: Iterable[Deliver[Any]]) -> Grant:
        """Cover deliveries by a new lease."""
        return self._cover(self._next_id(), consumer, deliveries, committed=True)

    def commit(self, grant: Grant) -> None:
        """Make a lease of a reservation."""
        grant.committed = True
        grant.deadline = None

    def end(self, offset: int) -> Grant:
        """Remove a message from whatever covers it, and return that."""
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
        """Note when a consumer that has left is cut off; None for never. One that holds nothing is gone already."""
        self._stop_drain(consumer)
        if deadline is not None and consumer in self.held:
            drain = self._drains[consumer] = Drain(consumer)
            self._drain_timers.start(drain, deadline)

    def cut_off(self, consumer: str) -> int | None:
        """Return when all that a consumer still holds ends because it has left; None for never. O(1)."""
        drain = self._drains.get(consumer)
        return None if drain is None else drain.deadline

    def _stop_drain(self, consumer: str) -> None:
        drain = self._drains.pop(consumer, None)
        if drain is not None:
            drain.deadline = None

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
        """Return everything that covers something, by id. O(result)."""
        return list(self._grants.values())

    @property
    def next_deadline(self) -> int | None:
        """When the next reservation expires, or the next consumer is cut off; or None."""
        deadlines = (self._timers.next_deadline, self._drain_timers.next_deadline)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def take_due(self, now: int) -> list[Grant]:
        """Return the reservations that have expired, by id; they still cover what they covered."""
        return sorted((cast("Grant", grant) for _, grant in self._timers.pop_due(now)), key=_by_id)

    def take_drained(self, now: int) -> list[str]:
        """Return the consumers whose time to drain is over, the first one first; they still hold what they hold."""
        due = sorted(self._drain_timers.pop_due(now), key=_first)
        return [cast("Drain", drain).consumer for _, drain in due]

    def dump(self, now: int) -> dict[str, object]:
        """Return the grants as plain data: deadlines as what remains of them."""
        grants = [
            [grant.id, grant.committed, None if grant.deadline is None else grant.deadline - now, [*grant.deliveries]]
            for grant in self._grants.values()
        ]
        ids = [[first, last] for first, last in [*self._before, self._current]]
        drains = [[name, cast("int", drain.deadline) - now] for name, drain in self._drains.items()]
        return {"ids": ids, "grants": grants, "drains": drains}

    def load(self, data: Reader, in_flight: Mapping[int, Deliver[Any]], *, now: int, epoch: int) -> None:
        """Fill a new book with what `dump` wrote beside the dispatcher that has this in flight."""
        for stored in data.field("ids").items():
            first, last = (number.integer() for number in stored.items(2))
            self._begin_ids(first)
            self._last_id = last
        for stored in data.field("grants").items():
            self._load_grant(stored, in_flight, now)
        for stored in data.field("drains").items():
            name, left_ms = stored.items(2)
            self.drain(name.text(), now + left_ms.integer())
        self.begin_epoch(epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Begin the ids of this epoch: none of those that were given out before it, and then forgotten, comes again."""
        if epoch << EPOCH_BITS > self._last_id:
            self._begin_ids((epoch << EPOCH_BITS) + 1)

    def _load_grant(self, stored: Reader, in_flight: Mapping[int, Deliver[Any]], now: int) -> None:
        grant_id, committed, remaining, offsets = stored.items(4)
        deliveries = [in_flight[offset.integer()] for offset in offsets.items()]
        grant = self._cover(grant_id.integer(), deliveries[0].consumer, deliveries, committed=committed.flag())
        left = remaining.maybe(Reader.integer)
        if left is not None:
            self._timers.start(grant, now + left)

    def _begin_ids(self, first: int) -> None:
        if self._last_id >= self._first_id:
            self._before.append(self._current)
        self._first_id, self._last_id = first, first - 1

    @property
    def _current(self) -> tuple[int, int]:
        return self._first_id, self._last_id

    def _was_given(self, grant_id: int) -> bool:
        if grant_id >= self._first_id:
            return grant_id <= self._last_id
        place = bisect_right(self._before, grant_id, key=_first)
        return place > 0 and grant_id <= self._before[place - 1][1]

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _cover(self, grant_id: int, consumer: str, deliveries: Iterable[Deliver[Any]], *, committed: bool) -> Grant:
        grant = Grant(grant_id, consumer, deliveries, committed=committed)
        self._grants[grant.id] = grant
        self.by_offset.update(dict.fromkeys(grant.deliveries, grant))
        self.held[consumer] = self.held.get(consumer, 0) + len(grant.deliveries)
        return grant

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
