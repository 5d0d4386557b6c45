"""A lease queue: consumers ask, get messages for a time, and settle them under the id of their lease.

A pull face of the dispatcher, and no second state machine: every consumer stands at a limit of 0, so what may go out
waits for it in the dispatcher, and `LeaseQueue.reserve` pulls it out. A reservation and a lease are open deliveries
there. Who must wait for whom, and for how long, is therefore what the dispatcher derives from open deliveries; nothing
here remembers that a range was reassigned. What this module adds is what only a pull needs: one id for several messages
(`LeaseBook`), reservations that expire by themselves, caps that are answers instead of waiting, and numbers of
producers.
"""

from collections.abc import Mapping
from typing import Final, Self

from keyshared import placement as placements
from keyshared._checks import check_int, check_kind, check_offset
from keyshared._core.reader import LAST_EPOCH, Reader
from keyshared._core.records import ConsumerState
from keyshared._core.snapshot import sealed, unsealed
from keyshared.config import Rules
from keyshared.dispatcher import NO_ITEM, KeySharedDispatcher
from keyshared.effects import (
    Deliver,
    Effect,
    Item,
    ReleaseReason,
)
from keyshared.errors import ConsumerExistsError
from keyshared.hashing.named import Key, key_bytes
from keyshared.leases.answers import LeaseAnswers
from keyshared.leases.book import Grant
from keyshared.leases.config import LeaseConfig
from keyshared.leases.ledger import LeaseLedger, checked_placement
from keyshared.leases.producers import Produced, ProducerSequences
from keyshared.leases.values import (
    Duplicate,
    InvalidReservation,
    Lease,
    LeaseAnswer,
    NothingToLease,
    Reservation,
)
from keyshared.placement.protocol import Placement
from keyshared.placement.ranges import Weight

__all__ = ["LeaseQueue"]

SNAPSHOT_VERSION: Final = 2

_new: Final = tuple.__new__  # builds an answer in half the time that its own constructor takes


class LeaseQueue(LeaseAnswers[Item]):
    """Leases messages of a queue to consumers that ask, key by key in order.

    Every call returns a `LeaseAnswer`: the answer to whoever asked, and the effects that the host has to apply, as
    those of `KeySharedDispatcher`. There is never a `Deliver` among them, because leases carry their messages.
    ``now_ms`` is a monotonic clock in whole milliseconds, None the instant of the previous call; time that goes back
    raises `ClockError`. A handle is an offset and the id of the lease that covers it; what cannot be one raises
    `ArgumentError`. A consumer that was not added, or has left, raises `UnknownConsumerError`. Every call lets time
    act first, so no timer and no sweeper is needed. A call that raises has changed nothing, so those that the state may
    refuse (`offer`, `add_consumer`, `set_placement`, `redrive`) are refused by the state as it stands: `handle_timeout`
    before them lets time act. Not thread-safe.

    The type of the items is a parameter, as with `KeySharedDispatcher`: a ``LeaseQueue[Order]`` leases orders.

    A consumer is one name. Where it has a group and an id, `keyshared.placement.member_name` makes one of both;
    otherwise two consumers of the same id in two groups are taken for one.

    Args:
        placement: Where keys go; copied. None with ``ordering_required``, where whoever asks first gets everything.
        config: Limits, times and policies.
        epoch: Raise it by one at every start of a queue that is kept without a `snapshot`: leases get ids above
            ``epoch << 32``, so that those of its earlier lives stay fenced.
        rules: Functions of a key, such as the one that answers with its group.

    Raises:
        ArgumentError: A placement together with ``ordering_required``, or none without; or ``epoch`` is not an int from
            0 to 2**31 - 1.
        ConfigError: ``rules`` and ``config`` contradict each other.

    Complexity:
        O(1) amortised for each message and answer, O(log n) where a deadline or an owner is searched.

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
        placement = checked_placement(placement, config)
        dispatcher: KeySharedDispatcher[Item] = KeySharedDispatcher(placement, config.for_dispatcher(), rules=rules)
        self._start(config, dispatcher)
        self._book.begin_epoch(epoch)

    def _start(self, config: LeaseConfig, dispatcher: KeySharedDispatcher[Item]) -> None:
        self._config = config
        self._dispatcher = dispatcher
        self._ledger = LeaseLedger(config, dispatcher)
        self._book = self._ledger.book
        self._producers = ProducerSequences()
        self._consumers: dict[str, None] = {}

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
        """Rebuild a queue from a `snapshot`; leases and reservations go on for the time they had left.

        Args:
            state: What `snapshot` returned, perhaps after a trip through JSON.
            placement: As it was: of the same kind and settings, and with the same ranges if those are history or made
                by hand (see `placement`); consumers come from the snapshot. None with ``ordering_required``.
            config: The configuration to go on with; what wider limits make possible can be leased at once.
            now_ms: The clock of this process; it may have started anew.
            epoch: Raise it by one after every crash: leases get ids above ``epoch << 32``, so that those given out
                after the snapshot stay fenced.
            items: Items by offset, which are not part of a snapshot.
            rules: Of the same mark as the original's.

        Returns:
            The queue; `outstanding_effects` says what is to be done at once, `leases` what goes on.

        Raises:
            SnapshotError: The state was cut or damaged, is of another version, of another placement, or of rules of
                another mark.
            ClockError: ``now_ms`` is not an int of at least 0.
            ArgumentError: ``epoch`` is not an int from 0 to 2**31 - 1, or as the constructor.

        Complexity:
            O(n log n), n messages outstanding.

        Example:
            >>> from keyshared.ring import HashRing
            >>> queue = LeaseQueue(HashRing())
            >>> _ = queue.add_consumer("c1"), queue.offer(7, "k", "hello")
            >>> lease, _ = queue.consume("c1")
            >>> again = LeaseQueue.restore(queue.snapshot(), HashRing(), now_ms=0, epoch=1)
            >>> again.ack(7, lease.id).result is None
            True
        """
        config = LeaseConfig() if config is None else check_kind("config", config, LeaseConfig)
        new = cls(placement, config, rules=rules)
        data = unsealed(state, SNAPSHOT_VERSION)
        line = placements.SoleOwner(data.field("line").maybe(Reader.text))
        dispatcher = KeySharedDispatcher.restore(
            data.field("dispatcher").raw,
            line if placement is None else placement,
            config.for_dispatcher(),
            now_ms=now_ms,
            epoch=epoch,
            items=items,
            rules=rules,
        )
        new._start(config, dispatcher)
        for name, consumer in dispatcher.stats().consumers.items():
            if consumer.state is ConsumerState.ACTIVE:
                new._consumers[name] = None
        new._ledger.load(data, now=now_ms, epoch=epoch)
        new._producers = ProducerSequences.restore(data.field("producers").raw)
        return new

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
        """Put a message into the queue.

        Args:
            offset: Greater than any offered before.
            key: What it is ordered by; None for nothing: any consumer may get it.
            item: A passenger that comes back in its lease.
            producer: Who sent it, and a number that rises strictly; a number seen before makes it a duplicate. Not
                asked of messages that the queue knew before a restart.
            not_before_ms: An instant of the same clock before which it is not leased, and its key waits behind it.

        Returns:
            None, or `Duplicate`: the offset was not used. `Spilled` is among the effects if the item is not wanted
            now; with ``latest_only`` also `Skipped` of an older message of its key.

        Raises:
            KeyTypeError: The key is of another type.
            OffsetOrderError: The offset is not an int above the last one.
            WindowFullError: `free_slots` is 0; as a `KeyFullError`: `room_for` its key is.
            ArgumentError: ``producer`` is no pair of a text and an int, or ``not_before_ms`` no int.
        """
        now = self._ledger.checked_now(now_ms)
        if not_before_ms is not None:
            check_int("not_before_ms", not_before_ms, alternative=", or None")
        last = None if producer is None else self._producers.repeated(producer)
        is_new = self._ledger.is_new(offset)
        if is_new and producer is not None and last is not None:
            check_offset("offset", offset)
            key_bytes(key)  # raises
            return LeaseAnswer(Duplicate(*producer, last), self._at(now))
        effects = self._dispatcher.offer(offset, key, item, not_before_ms=not_before_ms, now_ms=now)
        if is_new:
            self._ledger.offered(offset)
            if effects:
                effects = self._ledger.note(effects)
            if producer is not None:
                self._producers.take(producer)
        over = self._at(now)
        return _new(LeaseAnswer, (None, self._ledger.merged(over, effects) if over else effects))

    def forget_producer(self, client_id: str) -> None:
        """Forget the numbers of a producer that will never repeat anything."""
        self._producers.forget(client_id)

    # consumers

    def add_consumer(
        self, name: str, *, weight: Weight | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[None, Item]:
        """Add a consumer that may ask for messages.

        Args:
            weight: Its share, where the placement knows shares.

        Raises:
            ConsumerExistsError: The name is there, perhaps still draining; `remove_consumer` ends that.
            ArgumentError: The name or the weight can never work.
        """
        now = self._ledger.checked_now(now_ms)
        check_kind("name", name, str)
        if name in self._dispatcher.stats().consumers:
            raise ConsumerExistsError(name)
        effects = self._dispatcher.add_consumer(name, weight=weight, limit=0, now_ms=now)
        self._consumers[name] = None
        return LeaseAnswer(None, self._ledger.merged(self._at(now), effects))

    def remove_consumer(
        self, name: str, *, drain_ms: int | None = 0, now_ms: int | None = None
    ) -> LeaseAnswer[None, Item]:
        """Remove a consumer; its keys go to others.

        Args:
            name: Who leaves; an unknown name is ignored.
            drain_ms: How long it may go on with its leases and reservations; None for as long as they last. After that
                its leases end, and each counts as a delivery that failed; its reservations are aborted.

        Returns:
            `Released` for each message of a lease that ended, and what the poison policy decided.

        Raises:
            ArgumentError: The name is no text, or the time is not an int of at least 0.
        """
        now = self._ledger.checked_now(now_ms)
        check_kind("name", name, str)
        if drain_ms is not None:
            check_int("drain_ms", drain_ms, 0, ", or None for no limit")
        effects = self._at(now)
        lost = self._ledger.leave(name, ReleaseReason.REMOVED) if drain_ms == 0 else []
        # The dispatcher would end a drain without a count, so the deadline of one is kept with the leases that it ends.
        left = self._dispatcher.remove_consumer(name, drain_ms=None, now_ms=now)
        self._book.drain(name, None if drain_ms is None else now + drain_ms)
        self._consumers.pop(name, None)
        return LeaseAnswer(None, self._ledger.merged(effects, lost, left))

    def set_placement(self, placement: Placement, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Place keys in another way: a range was assigned, split or released.

        A key that moves waits until its previous owner's leases and reservations of it have ended.

        Args:
            placement: Copied; consumers that it lacks are added to the copy.

        Raises:
            ArgumentError: With ``ordering_required`` there are no ranges.
        """
        now = self._ledger.checked_now(now_ms)
        checked_placement(placement, self._config)
        effects = self._dispatcher.set_placement(placement, now_ms=now)
        return LeaseAnswer(None, self._ledger.merged(self._at(now), effects))

    # leasing

    def reserve(
        self, consumer: str, most: int = 1, *, per_key: int | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[Reservation[Item] | NothingToLease, Item]:
        """Reserve messages: nobody else gets them until `commit`, `abort` or the reservation's deadline.

        The first of two phases, for a host that writes leases down before it hands them out: between the two
        the write can fail, or race with that of another connection. No delivery is counted yet.

        Args:
            per_key: Messages of one key at most, where that is fewer than `LeaseConfig.batch_per_key`.

        Returns:
            `Reservation`, or `NothingToLease` with the reason. A `Load` among the effects stands for a message that has
            to be read again first, and counts for ``most``: hand it in with `loaded`, and ask again.

        Raises:
            ArgumentError: ``most`` is not an int of at least 1, or ``per_key`` is above the configured batch.
        """
        effects, taken = self._take(consumer, most, per_key, now_ms)
        if isinstance(taken, NothingToLease):
            return LeaseAnswer(taken, effects)
        # Never beyond the deadline of the deliveries themselves, whose end would count.
        wait = min(self._config.reservation_timeout_ms, self._config.visibility_timeout_ms)
        deadline = self._ledger.now + wait
        grant = self._book.reserve(consumer, taken, deadline)
        return LeaseAnswer(Reservation(grant.id, consumer, grant.messages, deadline), effects)

    def commit(
        self, reservation_id: int, *, now_ms: int | None = None
    ) -> LeaseAnswer[Lease[Item] | InvalidReservation, Item]:
        """Make a lease of a reservation: the delivery counts, and the visibility timeout starts.

        Args:
            reservation_id: `Reservation.id`; the lease has the same.

        Returns:
            `Lease`, or `InvalidReservation`: it has expired, for example. Then hand nothing out.
        """
        effects, grant = self._reserved(reservation_id, now_ms)
        if isinstance(grant, InvalidReservation):
            return LeaseAnswer(grant, effects)
        self._ledger.begin_lease(grant)
        return LeaseAnswer(self._new_lease(grant), effects)

    def abort(self, reservation_id: int, *, now_ms: int | None = None) -> LeaseAnswer[InvalidReservation | None, Item]:
        """Return a reservation to the queue; nothing is counted.

        Returns:
            None, or `InvalidReservation`.
        """
        effects, grant = self._reserved(reservation_id, now_ms)
        if isinstance(grant, InvalidReservation):
            return LeaseAnswer(grant, effects)
        return LeaseAnswer(None, self._ledger.merged(effects, self._ledger.release(grant)))

    def consume(
        self, consumer: str, most: int = 1, *, per_key: int | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[Lease[Item] | NothingToLease, Item]:
        """Lease messages at once: `reserve` and `commit` in one, for a host that has nothing to write in between.

        Args:
            per_key: As of `reserve`.

        Returns:
            `Lease`, or `NothingToLease`; as `reserve`.

        Raises:
            ArgumentError: As `reserve`.
        """
        effects, taken = self._take(consumer, most, per_key, now_ms)
        if isinstance(taken, NothingToLease):
            return LeaseAnswer(taken, effects)
        return LeaseAnswer(self._new_lease(self._ledger.lease(consumer, taken)), effects)

    # time

    def next_deadline_ms(self) -> int | None:
        """Return when time ends something next, or None. For a host that wants to know early: every call ends it."""
        deadlines = (self._book.next_deadline, self._dispatcher.next_deadline_ms())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def handle_timeout(self, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """End what is over by now, and do nothing else.

        Returns:
            `Released` for each message of a lease that ended, and what the poison policy decided.
        """
        return LeaseAnswer(None, self._at(now_ms))

    # restarts

    def snapshot(self) -> dict[str, object]:
        """Return the whole state as plain data that survives JSON: leases and reservations too, but no items. O(n)."""
        return sealed({"version": SNAPSHOT_VERSION, "producers": self._producers.snapshot(), **self._ledger.dump()})

    # inside

    def _take(
        self, consumer: str, most: int, per_key: int | None, now_ms: int | None
    ) -> tuple[list[Effect[Item]], list[Deliver[Item]] | NothingToLease]:
        """Return what time did, and the deliveries that a consumer gets now."""
        self._check_consumer(consumer)
        check_int("most", most, 1)
        if per_key is not None:
            check_int("per_key", per_key, 1, ", the batch_per_key that is configured", most=self._config.batch_per_key)
        effects = self._at(now_ms)
        taken, others = self._ledger.take(consumer, most, per_key)
        return self._ledger.merged(effects, others), taken

    def _new_lease(self, grant: Grant) -> Lease[Item]:
        deadline = self._ledger.now + self._config.visibility_timeout_ms
        cut_off = self._book.cut_off(grant.consumer)
        return Lease(grant.id, grant.consumer, grant.messages, deadline if cut_off is None else min(deadline, cut_off))

    def _reserved(
        self, reservation_id: int, now_ms: int | None
    ) -> tuple[list[Effect[Item]], Grant | InvalidReservation]:
        check_int("reservation_id", reservation_id)
        return self._at(now_ms), self._book.reserved(reservation_id)
