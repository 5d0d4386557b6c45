"""Unacked entries, owners of hashes and drains in one, for brokers that know hashes and no keys.

The draining hashes themselves, and their counts, are in `keyshared.draining`.

PIP-379 counts, beside the records of unacked messages, how many of them each draining hash waits for. Pulsar lost
counts when a hash returned to its old owner, and took acks of an earlier drain for acks of a later one. Here one object
keeps both, so that a hash drains exactly while a consumer that does not own it has unacked entries of it.

A change of owners looks only at the slots that moved: at the old owner's pending hashes among them, which begin to
drain, and at the new owner's, whose drain ends.
"""

from collections.abc import Iterable

from keyshared._checks import check_int, check_kind, check_text, checked_now, require
from keyshared.draining import DrainingHash, DrainingHashes, DrainingStats
from keyshared.draintracker.pending_acks import PendingAck, PendingAcks, Position, check_position
from keyshared.draintracker.values import (
    EntryAcked,
    HandedOver,
    HashState,
    OwnersChanged,
    Refusal,
    Returned,
    SendReceipt,
)
from keyshared.errors import ArgumentError, ClockError, ConsumerExistsError, UnknownConsumerError
from keyshared.placement.range_map import Moved, RangeMap

__all__ = ["DrainTracker"]


class _Consumer:
    """One session of one consumer."""

    __slots__ = ("late", "name", "pending")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending = PendingAcks()
        self.late = PendingAcks()  # handed over: these entries block no consumer


class DrainTracker:
    """The records of a broker that dispatches by hash: a hash is never unacked at two consumers.

    With ``drain_timeout_ms`` the embedder allows one exception: a hash is handed over while its old owner still has
    unacked entries of it, and `HandedOver` says so.

    A consumer is connected from `add_consumer` to `remove_consumer`; a name identifies one session at a time.
    ``now_ms`` is in monotonic milliseconds; None is the time of the last call. A call that raises has changed nothing:
    `ClockError` if time goes back, `ArgumentError` for a position that is not a pair of ints. Not thread-safe.

    Args:
        owners: The owner of each slot. Every owner is connected from the start. An empty map of the right hash and
            space will do.
        drain_timeout_ms: How long a hash may drain before it is handed over; None means for ever.
        now_ms: The time.

    Raises:
        ArgumentError: An argument is of the wrong type, or the timeout is less than 1.
        ClockError: ``now_ms`` is not an int of at least 0.

    Source:
        PIP-379 (draining hashes, pending acks and their registration). Differs: a refusal by `add` is counted and
        unblocked like one by `refusal`; an entry is refused if the hash has moved, even if nothing of it is pending;
        drains may have a deadline; acks are fenced.

    Example:
        >>> one, two = RangeMap.from_stops([65536], ["a"]), RangeMap.from_stops([32768, 65536], ["b", "a"])
        >>> tracker = DrainTracker(one)
        >>> receipt = tracker.add("a", (3, 0), 7)
        >>> tracker.add_consumer("b", two).moved           # hash 7 belongs to b now
        (Moved(start=0, stop=32768, old='a', new='b'),)
        >>> tracker.add("b", (3, 1), 7).name               # but a has not acked what it received
        'DRAINING'
        >>> tracker.ack(*receipt).unblocked
        (7,)
        >>> tracker.add("b", (3, 1), 7)
        SendReceipt(consumer='b', position=(3, 1), generation=2)
    """

    __slots__ = ("_consumers", "_draining", "_generation", "_now", "_owners", "_timeout_ms")

    def __init__(self, owners: RangeMap, *, drain_timeout_ms: int | None = None, now_ms: int = 0) -> None:
        check_kind("owners", owners, RangeMap)
        if drain_timeout_ms is not None:
            check_int("drain_timeout_ms", drain_timeout_ms, 1, ", or None for no deadline")
        if type(now_ms) is not int or now_ms < 0:
            raise ClockError(now_ms, 0)
        self._owners = owners
        self._timeout_ms = drain_timeout_ms
        self._now = now_ms
        self._consumers = {name: _Consumer(name) for name in owners.owners}
        self._draining = DrainingHashes(unset_hash=None)
        self._generation = 0

    def add_consumer(self, consumer: str, owners: RangeMap, *, now_ms: int | None = None) -> OwnersChanged:
        """Connect a consumer.

        Args:
            consumer: Its name.
            owners: The owner of each slot from now on.

        Returns:
            The moved slots, and the hashes that this unblocks. O(r + m log n), r runs of both maps, m moved slots with
            pending entries, n entries pending.

        Raises:
            ConsumerExistsError: It is connected.
            UnknownConsumerError: An owner is not connected.
            ArgumentError: ``consumer`` is no text, or ``owners`` is no map of the same space.
        """
        check_text("consumer", consumer)
        if consumer in self._consumers:
            raise ConsumerExistsError(consumer)
        moved = self._checked_moves(owners, joining=consumer)
        self._now = checked_now(now_ms, self._now)
        self._consumers[consumer] = _Consumer(consumer)
        return OwnersChanged(tuple(moved), (), self._move(owners, moved))

    def remove_consumer(self, consumer: str, owners: RangeMap, *, now_ms: int | None = None) -> OwnersChanged:
        """Disconnect a consumer: its entries are to be sent again, and its hashes stop draining.

        Args:
            consumer: Its name. If it is not connected, only the owners change.
            owners: The owner of each slot from now on; not this consumer.

        Returns:
            The moved slots, the entries to send again, and the hashes of other consumers that this unblocks. Entries
            that were handed over before are in none of them.

        Raises:
            UnknownConsumerError: An owner is not connected, or is this consumer.
            ArgumentError: ``consumer`` is no text, or ``owners`` is no map of the same space.
        """
        check_text("consumer", consumer)
        moved = self._checked_moves(owners, leaving=consumer)
        self._now = checked_now(now_ms, self._now)
        leaver = self._consumers.pop(consumer, None)
        replay: tuple[PendingAck, ...] = ()
        if leaver is not None:
            for hash_ in leaver.pending.hashes():
                self._end(hash_, closing=True)
            self._draining.consumer_removed(consumer)
            replay = tuple(leaver.pending.close())
        return OwnersChanged(tuple(moved), replay, self._move(owners, moved))

    def set_owners(self, owners: RangeMap, *, now_ms: int | None = None) -> OwnersChanged:
        """Change the owners of slots while all consumers stay connected. Otherwise as `add_consumer`."""
        moved = self._checked_moves(owners)
        self._now = checked_now(now_ms, self._now)
        return OwnersChanged(tuple(moved), (), self._move(owners, moved))

    def refusal(self, consumer: str, hash_: int) -> Refusal | None:
        """Return why a message of a hash must not be sent to a consumer; None if it may be sent. O(log r), r runs.

        A refusal because of a drain is counted: the hash is named by the call that ends the drain, as unblocked, as the
        hash of a replayed entry, or as handed over. Raises `ArgumentError` if there is no such slot.
        """
        owner = self._owners.owner(hash_)
        if consumer not in self._consumers:
            return Refusal.GONE
        if owner != consumer:
            return Refusal.NOT_OWNER
        return Refusal.DRAINING if self._draining.should_block(consumer, hash_) else None

    def add(self, consumer: str, position: Position, hash_: int, messages: int = 1) -> SendReceipt | Refusal:
        """Record an entry right before it is sent, after a last check of its owner. O(log n + log r).

        Args:
            consumer: The consumer that receives it.
            position: Its place in the log. If it is pending there, it is sent again: older receipts are void.
            hash_: Its hash: a slot of the owners' map.
            messages: How many messages it holds.

        Returns:
            The receipt; or why the entry must not be sent, as by `refusal`.

        Raises:
            ArgumentError: There is no such slot, an argument is of the wrong type, or the entry is pending there with
                another hash.
        """
        check_position(position)
        check_int("messages", messages, 1)
        holder = self._consumers.get(consumer)
        known = None if holder is None else holder.pending.get(position)
        if known is not None and known.hash != hash_:
            raise ArgumentError(
                "hash_", hash_, f"be {known.hash}, with which {position} is pending: hashes do not change"
            )
        refusal = self.refusal(consumer, hash_)
        if refusal is not None:
            return refusal
        self._generation += 1
        self._consumers[consumer].pending.add(position, hash_, messages, generation=self._generation)
        return SendReceipt(consumer, position, self._generation)

    def ack(
        self, consumer: str, position: Position, generation: int | None = None, *, messages: int | None = None
    ) -> EntryAcked:
        """Settle an entry, or some messages of it. O(log n).

        Args:
            consumer: The consumer that received it.
            position: Its place in the log.
            generation: Number of the sending, as in the receipt; None means the latest.
            messages: How many messages of the entry were acked, an int of at least 1; None means all. The last one
                settles the entry.

        Returns:
            What was settled: nothing, if the ack is late, double or foreign.
        """
        check_position(position)
        if messages is not None:
            check_int("messages", messages, 1, ", or None for all of them")
        holder = self._consumers.get(consumer)
        if holder is None:
            return EntryAcked(settled=False, entry=None)
        for acks in (holder.pending, holder.late):
            entry = acks.get(position)
            if entry is None or (generation is not None and generation != entry.generation):
                continue
            if messages is not None and acks.reduce_remaining(position, messages):
                return EntryAcked(settled=False, entry=acks.get(position))
            acks.remove(position)
            unblocked = self._reduced(holder, [entry]) if acks is holder.pending else ()
            return EntryAcked(settled=True, entry=entry, unblocked=unblocked)
        return EntryAcked(settled=False, entry=None)

    def take_back(self, consumer: str, positions: Iterable[Position] | None = None) -> Returned:
        """Remove entries so that they are sent again: a nack, an ack timeout, "redeliver everything". O(k log n).

        The caller sends the returned entries before anything newer of their hashes.

        Args:
            consumer: The consumer that held them.
            positions: Their positions; None means all. A position that is not pending there is ignored.

        Returns:
            The entries to send again, and the hashes that this unblocks, which may be hashes of these entries. Entries
            that were handed over before are removed too, but not returned.
        """
        wanted = None if positions is None else list(positions)
        for position in wanted or ():
            check_position(position)
        holder = self._consumers.get(consumer)
        if holder is None:
            return Returned()
        if wanted is None:
            entries = holder.pending.clear()
            holder.late.clear()
        else:
            entries = [entry for entry in map(holder.pending.remove, sorted(wanted)) if entry is not None]
            for position in wanted:
                holder.late.remove(position)
        return Returned(tuple(entries), self._reduced(holder, entries))

    def expire_up_to(self, position: Position) -> Returned:
        """Remove every entry at or below a position, at every consumer: expired, skipped or truncated.

        Returns:
            The entries that were pending, and the hashes that this unblocks, each once. O(c log n + k log n), c
            consumers, k removed entries, n pending.
        """
        check_position(position)
        entries: list[PendingAck] = []
        unblocked: tuple[int, ...] = ()
        for holder in self._consumers.values():
            removed = holder.pending.remove_up_to(position)
            holder.late.remove_up_to(position)
            entries += removed
            unblocked += self._reduced(holder, removed)
        return Returned(tuple(sorted(entries)), unblocked)

    def handle_timeout(self, *, now_ms: int | None = None) -> list[HandedOver]:
        """Hand over every hash that has drained for too long. Early and extra calls are free.

        Returns:
            One `HandedOver` for each hash, in the order in which the drains began. Each of these hashes is unblocked.
            O((1 + k) log n), k entries handed over, n pending.
        """
        self._now = now = checked_now(now_ms, self._now)
        handed_over: list[HandedOver] = []
        oldest = self._draining.oldest
        while self._timeout_ms is not None and oldest is not None and oldest.since_ms + self._timeout_ms <= now:
            handed_over.append(self._hand_over(oldest))
            oldest = self._draining.oldest
        return handed_over

    def next_deadline_ms(self) -> int | None:
        """Return when `handle_timeout` has something to do; None if never. O(1)."""
        oldest = self._draining.oldest
        return None if self._timeout_ms is None or oldest is None else oldest.since_ms + self._timeout_ms

    @property
    def owners(self) -> RangeMap:
        """The owner of each slot."""
        return self._owners

    @property
    def consumers(self) -> tuple[str, ...]:
        """The connected consumers in the order in which they joined."""
        return tuple(self._consumers)

    def owner(self, hash_: int) -> str | None:
        """Return the owner of a hash, or None; raises `ArgumentError` if there is no such slot. O(log r)."""
        return self._owners.owner(hash_)

    def pending(self, consumer: str) -> tuple[PendingAck, ...]:
        """Return a consumer's unacked entries in ascending order, without those that were handed over."""
        holder = self._consumers.get(consumer)
        return () if holder is None else tuple(holder.pending)

    def explain(self, hash_: int) -> HashState:
        """Return why messages of a hash do or do not arrive. O(c + k log k), c consumers, k entries of the hash.

        Raises:
            ArgumentError: ``hash_`` is no slot of the owners' map.
        """
        owner = self._owners.owner(hash_)
        drain = self._draining.entry(hash_)
        holder = next((each for each in self._consumers.values() if each.pending.count(hash_)), None)
        since = None if drain is None else drain.since_ms
        return HashState(
            hash=hash_,
            owner=owner,
            holder=None if holder is None else holder.name,
            draining=drain is not None,
            positions=() if holder is None else tuple(holder.pending.positions_of(hash_)),
            refused=0 if drain is None else drain.refused,
            since_ms=since,
            deadline_ms=None if since is None or self._timeout_ms is None else since + self._timeout_ms,
            late=tuple(
                (each.name, tuple(each.late.positions_of(hash_)))
                for each in self._consumers.values()
                if each.late.count(hash_)
            ),
        )

    def stats(self, consumer: str | None = None) -> DrainingStats:
        """Return the statistics of PIP-379 for one holder, or for all connected consumers. O(d log d), d drains.

        A hash that was handed over counts as cleared.
        """
        return self._draining.stats(consumer)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the records contradict themselves; for tests. O(n), n entries pending."""
        self._draining.check_invariants()
        holders: dict[int, _Consumer] = {}
        for name, each in self._consumers.items():
            each.pending.check_invariants()
            each.late.check_invariants()
            require(name == each.name, "a consumer is filed under its name")
            for hash_ in each.pending.hashes():
                require(hash_ not in holders, f"hash {hash_} is unacked at one consumer only")
                holders[hash_] = each
        away = {hash_: holder for hash_, holder in holders.items() if self._owners.owner(hash_) != holder.name}
        drains = {hash_: self._draining.entry(hash_) for hash_, _, _ in self._draining.stats().entries}
        require(
            {hash_: (holder.name, holder.pending.count(hash_)) for hash_, holder in away.items()}
            == {hash_: (drain.holder, drain.unacked) for hash_, drain in drains.items() if drain is not None},
            "a hash drains exactly while a consumer holds entries of it and does not own it, and waits for these",
        )
        require(set(self._consumers).issuperset(self._owners.owners), "every owner is connected")

    def _checked_moves(
        self, owners: RangeMap, *, joining: str | None = None, leaving: str | None = None
    ) -> list[Moved]:
        """Check a new map of owners, and return the slots that it moves."""
        check_kind("owners", owners, RangeMap)
        for name in owners.owners:
            if name == leaving or (name != joining and name not in self._consumers):
                raise UnknownConsumerError(name)
        return self._owners.moved(owners)

    def _move(self, owners: RangeMap, moved: list[Moved]) -> tuple[int, ...]:
        """Start the drain of hashes that left their holder, and end that of hashes that returned to it."""
        self._owners = owners
        unblocked: list[int] = []
        for start, stop, old, new in moved:
            loser = None if old is None else self._consumers.get(old)  # it may have just left
            if loser is not None:
                for hash_ in loser.pending.hashes_between(start, stop):
                    self._draining.add(loser.name, hash_, loser.pending.count(hash_), since_ms=self._now)
            if new is not None:
                unblocked += self._come_home(self._consumers[new], start, stop)
        return tuple(unblocked)

    def _come_home(self, owner: _Consumer, start: int, stop: int) -> list[int]:
        """End the drains of hashes that their holder owns again; return those that were refused to a consumer."""
        return [hash_ for hash_ in owner.pending.hashes_between(start, stop) if self._end(hash_)]

    def _end(self, hash_: int, *, closing: bool = False) -> list[int]:
        drain = self._draining.entry(hash_)
        return [] if drain is None else self._draining.reduce(drain.holder, hash_, drain.unacked, closing=closing)

    def _reduced(self, holder: _Consumer, entries: Iterable[PendingAck]) -> tuple[int, ...]:
        """Count entries off the drains that wait for them; return the hashes that this unblocks."""
        reduce = self._draining.reduce
        return tuple([hash_ for entry in entries for hash_ in reduce(holder.name, entry.hash)])

    def _hand_over(self, drain: DrainingHash) -> HandedOver:
        holder, hash_ = self._consumers[drain.holder], drain.hash
        entries = holder.pending.remove_hash(hash_)
        for position, _, remaining, generation in entries:
            holder.late.add(position, hash_, remaining, generation=generation)
        self._end(hash_, closing=True)
        owner = self._owners.owner(hash_)
        return HandedOver(hash_, holder.name, owner, tuple(entries), drain.refused, drain.since_ms)
