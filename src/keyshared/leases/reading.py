"""What a lease queue answers about itself, without letting time act and without changing anything."""

from dataclasses import replace
from typing import Generic

from keyshared._checks import check_kind, check_position
from keyshared.dispatcher import Health, KeySharedDispatcher
from keyshared.effects import DeadLetter, Effect, Item, Load
from keyshared.errors import UnknownConsumerError
from keyshared.hashing.named import Key
from keyshared.leases.book import LeaseBook
from keyshared.leases.config import LeaseConfig
from keyshared.leases.ledger import LeaseLedger
from keyshared.leases.values import Lease, LeaseStats, NothingToLease, Reservation
from keyshared.placement.protocol import Placement

__all__ = ["LeaseReading"]


class LeaseReading(Generic[Item]):
    """The queries of `LeaseQueue`."""

    _config: LeaseConfig
    _dispatcher: KeySharedDispatcher[Item]
    _ledger: LeaseLedger
    _book: LeaseBook
    _consumers: dict[str, None]

    @property
    def config(self) -> LeaseConfig:
        """The configuration it was made with."""
        return self._config

    @property
    def placement(self) -> Placement:
        """A copy of the placement as it is now: to be kept beside a snapshot, or changed and given to `set_placement`.

        With ``ordering_required`` nothing has to be kept: the snapshot knows who holds the line.
        """
        return self._dispatcher.placement

    @property
    def free_slots(self) -> int:
        """How many messages may be offered now; at 0 stop until `Resumed`."""
        return self._dispatcher.free_slots

    def room_for(self, key: Key) -> int:
        """Return how many messages of a key may be offered now, the limits of what waits included. O(log vnodes)."""
        return self._dispatcher.room_for(key)

    @property
    def keep_from(self) -> int | None:
        """The trim cursor: everything below is settled, or has come back with its item. Never moves back."""
        return self._dispatcher.resume_offset

    def trimmable(self, wanted: int) -> int:
        """Return how far a log may be cut when somebody wants to cut it below an offset: never above `keep_from`.

        Args:
            wanted: The first offset to keep.

        Returns:
            The first offset that has to be kept.

        Raises:
            ArgumentError: ``wanted`` is no int.
        """
        check_position("wanted", wanted)
        keep_from = self.keep_from
        return wanted if keep_from is None else min(wanted, keep_from)

    def delivery_count(self, offset: int) -> int | None:
        """Return how many leases covered a message since it was unblocked or came back; None if not outstanding."""
        message = self._dispatcher.describe(offset)
        if message is None:
            return None
        grant = self._book.by_offset.get(offset)
        return message.failures + (grant is not None and grant.committed)

    def leases(self) -> list[Lease[Item]]:
        """Return what is leased, by id; deadlines are those of the message that expires first. O(result)."""
        return [
            Lease(grant.id, grant.consumer, grant.messages, min(map(self._ledger.deadline_of, grant.deliveries)))
            for grant in self._book.grants()
            if grant.committed
        ]

    def reservations(self) -> list[Reservation[Item]]:
        """Return what is reserved, by id. O(result)."""
        return [
            Reservation(grant.id, grant.consumer, grant.messages, min(map(self._ledger.deadline_of, grant.deliveries)))
            for grant in self._book.grants()
            if not grant.committed
        ]

    def why_empty(self, consumer: str) -> NothingToLease | None:
        """Return why `reserve` has nothing for a consumer; None if it has something. As of the last call's time. O(n).

        Args:
            consumer: Who would ask.

        Returns:
            The cap that is reached, or what the first message waits for that would be this consumer's. None if one is
            ready; `reserve` may still answer with only a `Load` of what is spilled and comes before it.

        Example:
            >>> from keyshared import HashRing, LeaseQueue
            >>> queue = LeaseQueue(HashRing())
            >>> _ = queue.add_consumer("c1"), queue.offer(0, "k")
            >>> lease, _ = queue.consume("c1")
            >>> _ = queue.nack(0, lease.id, delay_ms=500)
            >>> nothing = queue.why_empty("c1")
            >>> nothing.offset, nothing.blocking.reason.value, nothing.until_ms
            (0, 'retry_wait', 500)
        """
        self._check_consumer(consumer)
        return self._ledger.why_empty(consumer)

    def outstanding_effects(self) -> list[Effect[Item]]:
        """Return every obligation of the host that is not met: `DeadLetter`, then `Load`, each by offset. O(n)."""
        return [effect for effect in self._dispatcher.outstanding_effects() if isinstance(effect, DeadLetter | Load)]

    def is_current(self, effect: Effect) -> bool:
        """Return whether an effect still holds; ask just before acting on a `DeadLetter` or `Load`.

        Raises:
            ArgumentError: That is no effect.
        """
        return self._dispatcher.is_current(effect)

    def health(self, *, busiest: int = 10) -> Health:
        """Return ages, busiest keys and counts, at the instant of the last call; changes nothing.

        Args:
            busiest: How many keys to name at most.

        Returns:
            The figures; ``delivered`` counts messages of leases. Without ``LeaseConfig(measure=True)`` those are None
            that somebody had to keep.

        Raises:
            ArgumentError: ``busiest`` is not an int of at least 0.

        Complexity:
            O(outstanding + keys log keys).

        Example:
            >>> from keyshared import HashRing, LeaseConfig, LeaseQueue
            >>> queue = LeaseQueue(HashRing(), LeaseConfig(measure=True))
            >>> _ = queue.add_consumer("c1"), queue.offer(0, "a"), queue.reserve("c1", now_ms=2_000)
            >>> queue.health().oldest_ms, queue.health().delivered       # nobody has been handed anything
            (2000, 0)
        """
        below = self._dispatcher.health(busiest=busiest)
        return below if below.delivered is None else replace(below, delivered=self._ledger.leased)

    def stats(self) -> LeaseStats:
        """Return figures of this moment. O(consumers + n)."""
        below = self._dispatcher.stats()
        keep_from, tail = self.keep_from, self._ledger.tail
        reserved = sum(len(grant.deliveries) for grant in self._book.grants() if not grant.committed)
        return LeaseStats(
            depth=below.outstanding,
            retained=0 if keep_from is None or tail is None else tail + 1 - keep_from,
            leased=below.in_flight - reserved,
            reserved=reserved,
            delayed=below.delayed,
            blocked=below.blocked,
            dead_lettering=below.dead_lettering,
            spilled=below.spilled,
            ack_holes=len(self._dispatcher.acked_ranges()),
            held={name: self._book.held.get(name, 0) for name in below.consumers},
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the books contradict one another. For tests; O(n)."""
        self._ledger.check_invariants()

    def _check_consumer(self, consumer: str) -> None:
        check_kind("consumer", consumer, str)
        if consumer not in self._consumers:
            raise UnknownConsumerError(consumer)
