"""A lease queue: consumers ask, get messages for a time, and settle them under the id of their lease.

It is a pull face of the core of the dispatcher, and no second state machine: every consumer has a limit of 0, so its
messages wait in the core until `LeaseQueue.reserve` pulls them. A reservation and a lease are open deliveries there.
This package adds what only a pull needs: one id for several messages, reservations that expire, caps that are answered
and not waited for, and sequence numbers of producers.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from keyshared._arguments import checked_message, checked_restart
from keyshared._checks import check_int, check_kind, check_members, check_number, checked_now
from keyshared._core.machine import Machine
from keyshared._core.reader import LAST_EPOCH, Reader
from keyshared._core.records import Consumer, Entry
from keyshared._core.snapshot import SNAPSHOT_VERSION, restore, unsealed
from keyshared.config import Rules
from keyshared.config.dispatcher import check_rules
from keyshared.dispatcher import NO_ITEM, Health
from keyshared.effects import Deliver, Effect, Item
from keyshared.errors import ArgumentError, ConsumerExistsError
from keyshared.glob import KeyFilter
from keyshared.hashing import Key
from keyshared.leases.answers import LeaseAnswers
from keyshared.leases.config import LeaseConfig
from keyshared.leases.lease import (
    Duplicate,
    EmptyReason,
    InvalidReservation,
    Lease,
    LeaseAnswer,
    NothingToLease,
    Produced,
    Reservation,
)
from keyshared.leases.table import Grant, LeaseTable
from keyshared.leases.why_empty import capacity_of, has_too_many_holes, why_empty
from keyshared.placement.assigned import AssignedRanges
from keyshared.placement.protocol import Placement, check_name
from keyshared.placement.range_map import Weight

__all__ = ["LeaseQueue"]


class LeaseQueue(LeaseAnswers[Item]):
    """Leases messages of a queue to consumers that ask, key by key in order.

    Every call returns a `LeaseAnswer`: the answer to the caller, and the effects that the host has to apply, as
    those of `KeySharedDispatcher`; never a `Deliver`, because leases carry their messages. Queries are those of a
    dispatcher: ``resume_offset`` is the trim cursor, below which everything is settled, or was redriven with its
    item; cut the log at ``min(wanted, resume_offset)``. Messages that are leased or reserved are ``in_flight``
    with the deadline of a delivery; a reservation, or the drain of their consumer, may end earlier: see `leases` and
    `reservations`. ``now_ms`` is a monotonic clock in whole milliseconds, None for that of the previous call; time that
    goes back raises `ClockError`. A handle is an offset and the id of the lease that covers it; values of other types
    raise `ArgumentError`, a consumer that was not added or has left `UnknownConsumerError`.

    Every call lets time act first, so you need no timer; only `offer` takes its message before. A call that raises has
    changed nothing: the state before the call accepts or refuses `offer`, `add_consumer`, `set_placement`, `redrive`
    and groups. Call `handle_timeout` before them to let time act. Not thread-safe.

    A consumer is one name; `keyshared.placement.assigned.member_name` makes one of a group and an id.

    Args:
        placement: Where keys go; copied. None with ``ordering_required``, where the consumer that asks first gets all.
        config: Limits, times and policies.
        epoch: Raise it by one at every start of a queue that is kept without a `snapshot`: leases get ids above
            ``epoch << 32``, so that those of its earlier lives stay fenced.
        rules: Functions of a key, such as the one that returns its group.

    Raises:
        ArgumentError: A placement together with ``ordering_required``, or none without; or ``epoch`` is not an int from
            0 to 2**31 - 1.
        ConfigError: ``rules`` and ``config`` contradict each other.

    Source:
        Celeriant "Sticky routing and ordering"; differs: its drain remembers the prior owner of a range, and so stalls
        or is passed by in four ways (docs/leases.md); reserve and commit are public; a nack holds its key.

    Example:
        >>> from keyshared.ring import HashRing
        >>> queue = LeaseQueue(HashRing())
        >>> _ = queue.add_consumer("c1")
        >>> for offset, key in enumerate(["order-1", "order-1", "order-2"]):
        ...     _ = queue.offer(offset, key)
        >>> lease, _ = queue.consume("c1", 10, now_ms=5)
        >>> lease.offsets                              # 1 waits for 0, which is of its key
        (0, 2)
        >>> queue.ack(0, lease.id)
        LeaseAnswer(result=None, effects=[CursorAdvanced(safe_cursor=0)])
        >>> queue.ack(0, lease.id).result.reason.value
        'below_trim'
    """

    def __init__(
        self,
        placement: Placement | None = None,
        config: LeaseConfig | None = None,
        *,
        epoch: int = 0,
        rules: Rules | None = None,
    ) -> None:
        check_int("epoch", epoch, 0, most=LAST_EPOCH)
        config = LeaseConfig() if config is None else check_kind("config", config, LeaseConfig)
        is_line = config.dispatcher.ordering_required
        if (placement is None) is not is_line:
            wanted = "None with ordering_required" if is_line else "a placement, unless ordering_required is set"
            raise ArgumentError("placement", placement, f"be {wanted}")
        self._config = config
        self._begin(AssignedRanges.sole_owner() if placement is None else placement, rules)
        self._table.begin_epoch(epoch)

    def _begin(self, placement: Placement, rules: Rules | None) -> None:
        check_members("placement", placement, Placement)
        config = self._config.for_dispatcher()
        self._table = LeaseTable()
        self._machine = Machine(placement, config, None if rules is None else check_rules(rules, config), self._table)
        self._table.watch(self._machine)

    # messages in

    def offer(
        self,
        offset: int,
        key: Key,
        item: Item = NO_ITEM,
        *,
        producer: Produced | None = None,
        not_before_ms: int | None = None,
        now_ms: int | None = None,
    ) -> LeaseAnswer[Duplicate | None, Item]:
        """Put a message into the queue; arguments and errors as `KeySharedDispatcher.offer`.

        Args:
            producer: A producer and its number for the message, which rises strictly; a number seen before makes it a
                duplicate. Not looked at for messages that the queue knew before a restart.

        Returns:
            None, or `Duplicate`: the offset was not used. `Spilled` is among the effects if the item is not needed
            now; with ``latest_only`` also `Skipped` of an older message of its key.

        Raises:
            ArgumentError: ``producer`` is no pair of a text and an int; or as `KeySharedDispatcher.offer`.
        """
        now = checked_now(now_ms, self._machine.now)
        _, data, _, _ = checked_message((offset, key, item, not_before_ms), self._machine.window.cursor.last)
        if producer is None:
            return self._then_time(None, self._machine.offer(offset, data, item, not_before_ms, now), now)
        client_id, client_seq = _checked_producer(producer)
        producers, tail = self._table.producers, self._tail
        last, is_new = producers.get(client_id), tail is None or offset > tail
        if is_new and last is not None and client_seq <= last:
            return LeaseAnswer(Duplicate(client_id, client_seq, last), self._pass_time(now))
        effects = self._machine.offer(offset, data, item, not_before_ms, now)
        if is_new:
            producers[client_id] = client_seq
        return self._then_time(None, effects, now)

    def forget_producer(self, client_id: str) -> None:
        """Forget the numbers of a producer that will never repeat anything."""
        self._table.producers.pop(client_id, None)

    # consumers

    def add_consumer(
        self, name: str, *, weight: Weight | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[None, Item]:
        """Add a consumer that may ask for messages.

        Args:
            weight: Its share relative to the others', where the placement knows shares.

        Raises:
            ConsumerExistsError: The name is there, perhaps still draining; `remove_consumer` ends that.
            ArgumentError: The name or the weight can never work.
        """
        now = checked_now(now_ms, self._machine.now)
        check_name(name)
        if weight is not None:
            check_number("weight", weight, above=True)
        if name in self._machine.members:
            raise ConsumerExistsError(name)
        self._machine.membership.join(name, KeyFilter(), weight, 0, now)
        return self._then_time(None, self._machine.wake(now), now)

    def remove_consumer(
        self, name: str, *, drain_ms: int | None = 0, now_ms: int | None = None
    ) -> LeaseAnswer[None, Item]:
        """Remove a consumer; its keys go to others. An unknown name is ignored.

        Args:
            drain_ms: How long it may go on with its leases and reservations, an int of at least 0; None for as long as
                they last. After that each of its leases counts as a failed delivery; its reservations are aborted.

        Returns:
            `Released` for each message of a lease that ended, and what the poison policy decided.
        """
        check_kind("name", name, str)
        if drain_ms is not None:
            check_int("drain_ms", drain_ms, 0, ", or None for no limit")
        before, machine = self._at(now_ms), self._machine
        machine.membership.leave(name, drain_ms, machine.now)
        return self._answer(None, before, machine.wake(machine.now))

    def set_placement(self, placement: Placement, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Place keys in another way: a range was assigned, split or released.

        A key that moves waits until its previous owner's leases and reservations of it have ended.

        Args:
            placement: Copied; consumers that it lacks are added to the copy.

        Raises:
            ArgumentError: With ``ordering_required`` there is no placement; or as `KeySharedDispatcher.set_placement`.
        """
        now = checked_now(now_ms, self._machine.now)
        check_members("placement", placement, Placement)
        if self._config.dispatcher.ordering_required:
            raise ArgumentError("placement", placement, "not be set with ordering_required")
        self._machine.membership.set_placement(placement)
        return self._then_time(None, self._machine.wake(now), now)

    # leasing

    def reserve(
        self, consumer: str, most: int = 1, *, per_key: int | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[Reservation[Item] | NothingToLease, Item]:
        """Reserve messages: no other consumer gets them until `commit`, `abort` or the reservation's deadline.

        The first of two phases, for a host that stores leases before it hands them out: between the two the write can
        fail, or race with that of another connection. No delivery is counted yet.

        Args:
            per_key: Messages of one key at most, from 1 to ``batch_per_key``.

        Returns:
            `Reservation`, or `NothingToLease` with the reason. A `Load` among the effects takes the place of a message
            that has to be read again first, and counts for ``most``: hand it in with `loaded`, and reserve again.

        Raises:
            ArgumentError: ``most`` is not an int of at least 1, or ``per_key`` is above the configured batch.
        """
        before, taken = self._take(consumer, most, per_key, now_ms)
        if isinstance(taken, NothingToLease):
            return LeaseAnswer(taken, before)
        # Never beyond the deadline of the deliveries themselves, whose end would count.
        deadline = self._machine.now + min(self._config.reservation_timeout_ms, self._timeout_ms)
        grant = self._table.reserve(taken, consumer, deadline)
        return LeaseAnswer(Reservation(grant.id, consumer, grant.messages, deadline), before)

    def commit(
        self, reservation_id: int, *, now_ms: int | None = None
    ) -> LeaseAnswer[Lease[Item] | InvalidReservation, Item]:
        """Make a lease of a reservation: the delivery counts, and its ack timeout starts.

        Args:
            reservation_id: `Reservation.id`; the lease has the same.

        Returns:
            `Lease`, or `InvalidReservation`: it has expired, for example. Then hand nothing out.
        """
        before, grant = self._reserved(reservation_id, now_ms)
        if isinstance(grant, InvalidReservation):
            return LeaseAnswer(grant, before)
        self._table.commit(grant, self._machine.now + self._timeout_ms)
        return LeaseAnswer(self._lease(grant), before)

    def abort(self, reservation_id: int, *, now_ms: int | None = None) -> LeaseAnswer[InvalidReservation | None, Item]:
        """Return a reservation to the queue, without a count; returns None, or `InvalidReservation`."""
        before, grant = self._reserved(reservation_id, now_ms)
        if isinstance(grant, InvalidReservation):
            return LeaseAnswer(grant, before)
        self._table.release(grant, self._machine.now)
        return self._answer(None, before, self._machine.wake(self._machine.now))

    def consume(
        self, consumer: str, most: int = 1, *, per_key: int | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[Lease[Item] | NothingToLease, Item]:
        """Lease messages at once: `reserve` and `commit` in one, for a host that has nothing to store in between.

        Arguments and errors as `reserve`. Returns `Lease`, or `NothingToLease`.
        """
        before, taken = self._take(consumer, most, per_key, now_ms)
        if isinstance(taken, NothingToLease):
            return LeaseAnswer(taken, before)
        return LeaseAnswer(self._lease(self._table.lease(taken, consumer)), before)

    # time

    def next_deadline_ms(self) -> int | None:
        """Return when time ends something next, or None. For a host that wants to know early: every call ends it."""
        return self._machine.timers.next_deadline

    def handle_timeout(self, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """End what is over by now, and do nothing else.

        Returns:
            `Released` for each message of a lease that ended, and what the poison policy decided.
        """
        return LeaseAnswer(None, self._at(now_ms))

    # queries: they change nothing, and take no time

    @property
    def config(self) -> LeaseConfig:
        """The configuration it was made with."""
        return self._config

    def delivery_count(self, offset: int) -> int | None:
        """Return how many leases covered a message since it was unblocked or redriven; None if not outstanding."""
        message, grant = self.describe(offset), self._table.by_offset.get(offset)
        return None if message is None else message.failures + (grant is not None and grant.is_lease)

    def leases(self) -> list[Lease[Item]]:
        """Return the leases, by id; deadlines are those of the message that expires first. O(result)."""
        return [
            Lease(grant.id, grant.consumer, grant.messages, self._deadline_of(grant))
            for grant in self._table.grants()
            if grant.is_lease
        ]

    def reservations(self) -> list[Reservation[Item]]:
        """Return the reservations, by id. O(result)."""
        return [
            Reservation(grant.id, grant.consumer, grant.messages, self._deadline_of(grant))
            for grant in self._table.grants()
            if not grant.is_lease
        ]

    def why_empty(self, consumer: str) -> NothingToLease | None:
        """Return why `reserve` has nothing for a consumer; None if it has something. As of the last call's time. O(n).

        Returns:
            The cap that is reached, or what the first message waits for that would be this consumer's. None if one is
            ready; `reserve` may still return only the `Load` of a spilled message that comes before it.

        Example:
            >>> from keyshared import HashRing
            >>> from keyshared.leases import LeaseQueue
            >>> queue = LeaseQueue(HashRing())
            >>> _ = queue.add_consumer("c1"), queue.offer(0, "k")
            >>> lease, _ = queue.consume("c1")
            >>> _ = queue.nack(0, lease.id, delay_ms=500)
            >>> nothing = queue.why_empty("c1")
            >>> nothing.offset, nothing.blocking.reason.value, nothing.until_ms
            (0, 'retry_wait', 500)
        """
        return why_empty(self._table, self._connected(consumer), self._config.max_in_flight)

    def health(self, *, busiest: int = 10) -> Health:
        """Return `KeySharedDispatcher.health`, in which ``delivered`` counts messages of leases, not of reservations.

        Example:
            >>> from keyshared import DispatcherConfig, HashRing
            >>> from keyshared.leases import LeaseConfig, LeaseQueue
            >>> queue = LeaseQueue(HashRing(), LeaseConfig(dispatcher=DispatcherConfig(measure=True)))
            >>> _ = queue.add_consumer("c1"), queue.offer(0, "a"), queue.reserve("c1", now_ms=2_000)
            >>> queue.health().oldest_ms, queue.health().delivered
            (2000, 0)
        """
        health = super().health(busiest=busiest)
        return health if health.delivered is None else replace(health, delivered=self._table.leased)

    @classmethod
    def restore(
        cls,
        state: object,
        placement: Placement | None = None,
        config: LeaseConfig | None = None,
        *,
        now_ms: int,
        epoch: int = 0,
        items: Mapping[int, Item] | None = None,
        rules: Rules | None = None,
    ) -> Self:
        """Rebuild a queue from a `snapshot`, as `KeySharedDispatcher.restore`; leases go on for the time they had left.

        Args:
            epoch: Raise it by one after every crash: leases get ids above ``epoch << 32``, so that those given out
                after the snapshot stay fenced.

        Returns:
            The queue; ``outstanding_effects()`` has the `DeadLetter` and `Load` that are to be done at once,
            `leases` the leases that go on.

        Example:
            >>> from keyshared.ring import HashRing
            >>> queue = LeaseQueue(HashRing())
            >>> _ = queue.add_consumer("c1"), queue.offer(7, "k", "hello")
            >>> lease, _ = queue.consume("c1")
            >>> again = LeaseQueue.restore(queue.snapshot(), HashRing(), now_ms=0, epoch=1)
            >>> again.ack(7, lease.id).result is None
            True
        """
        now, known = checked_restart(now_ms, epoch, items)
        new = cls(placement, config, rules=rules)
        row = unsealed(state, SNAPSHOT_VERSION).field("features").field("leases")
        if placement is None:
            new._begin(AssignedRanges.sole_owner(row.field("line").maybe(Reader.text)), rules)
        restore(new._machine, state, epoch=epoch, items=known, now=now)
        return new

    # inside

    @property
    def _timeout_ms(self) -> int:
        return self._config.dispatcher.ack_timeout_ms  # type: ignore[return-value]  # `LeaseConfig` refuses None

    def _connected(self, consumer: str) -> Consumer:
        return self._machine.membership.connected(check_kind("consumer", consumer, str))

    def _take(
        self, consumer: str, most: int, per_key: int | None, now_ms: int | None
    ) -> tuple[list[Effect[Item]], dict[int, Entry] | NothingToLease]:
        """Return what time did, and the messages that a consumer gets now, which no grant covers yet."""
        member = self._connected(consumer)
        check_int("most", most, 1)
        if per_key is not None:
            most_per_key = self._config.dispatcher.batch_per_key
            check_int("per_key", per_key, 1, ", the batch_per_key that is configured", most=most_per_key)
        before, machine = self._at(now_ms), self._machine
        capacity = capacity_of(self._table, member, self._config.max_in_flight)
        if isinstance(capacity, NothingToLease):
            return before, capacity
        if machine.config.ordering_required and machine.routing.owner(b"") != consumer:
            # No other one holds anything, so nothing drains.
            machine.membership.set_placement(AssignedRanges.sole_owner(consumer))
            machine.window.wake()
        pulled = machine.pull(consumer, min(most, capacity), None, per_key, machine.now)
        taken = {effect.offset: member.open[effect.offset] for effect in pulled if isinstance(effect, Deliver)}
        others: list[Effect[Item]] = [effect for effect in pulled if not isinstance(effect, Deliver)]
        nothing = NothingToLease(EmptyReason.NOT_READY)
        if has_too_many_holes(machine):
            nothing = NothingToLease(EmptyReason.ACK_HOLES, self.resume_offset)
        return self._answer(None, before, others).effects, taken or nothing

    def _lease(self, grant: Grant) -> Lease[Item]:
        deadline, cut_off = self._machine.now + self._timeout_ms, self._machine.members[grant.consumer].deadline
        return Lease(grant.id, grant.consumer, grant.messages, deadline if cut_off is None else min(deadline, cut_off))

    def _deadline_of(self, grant: Grant) -> int:
        return min(map(self._table.deadline_of, grant.entries.values()))

    def _reserved(
        self, reservation_id: int, now_ms: int | None
    ) -> tuple[list[Effect[Item]], Grant | InvalidReservation]:
        check_int("reservation_id", reservation_id)
        return self._at(now_ms), self._table.reserved(reservation_id)


def _checked_producer(producer: object) -> Produced:
    """Return a producer and its number for a message, or raise `ArgumentError`."""
    if not isinstance(producer, tuple) or len(producer) != 2:  # noqa: PLR2004  # client id, number
        raise ArgumentError("producer", producer, "be a tuple of client id and number")
    client_id, client_seq = producer
    return check_kind("client_id", client_id, str), check_int("client_seq", client_seq)
