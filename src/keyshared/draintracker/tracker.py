"""Who was sent what, who owns which hash, and hence which hashes drain: for brokers that know hashes only.

PIP-379 counts, beside its books of unacked messages, how many of them each draining hash waits for. Two books of one
fact come apart: Pulsar lost counts when a hash came home, and took acks of an earlier drain for acks of a later one.
Here only the messages are booked. A hash drains exactly while somebody who does not own it holds unacked entries of it,
and how many is asked of that consumer's `PendingAcks`. Only what cannot be derived is kept of a drain: since when,
and how often somebody was refused.

A change of owners looks at the slots that moved and at nothing else: at the old owner's pending hashes among them,
which begin to drain, and at the new owner's, which have come home.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from keyshared._checks import check_int, check_kind, check_text, checked_now, require
from keyshared.draining import DrainingEntry, DrainingStats, add_up
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
from keyshared.placement.ranges import RangeMap
from keyshared.placement.spans import Moved

__all__ = ["DrainTracker"]


_SLACK: Final = 64  # numbers of ended drains that a wave may keep beyond one for each live one


class _Member:
    """One session of one consumer."""

    __slots__ = ("cleared", "late", "name", "pending")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending = PendingAcks()
        self.late = PendingAcks()  # handed over: on nobody's way
        self.cleared = 0


class _Wave:
    """The hashes that began to drain at one consumer in one call; for some of them that may be over.

    One object for all of them, and none for each: a join may let thousands begin. How many entries they wait for is not
    here, but in the holder's pending acks.
    """

    __slots__ = ("hashes", "holder", "live", "refused", "since_ms")

    def __init__(self, holder: _Member, since_ms: int) -> None:
        self.holder = holder
        self.since_ms = since_ms
        self.hashes: list[int] = []
        self.live = 0
        self.refused: dict[int, int] = {}  # only of drains that are not over


class DrainTracker:
    """Books of a broker that dispatches by hash: at no time is a hash unacked at two consumers.

    The embedder may choose one exception: with ``drain_timeout_ms`` a hash is handed over while its old owner still
    holds entries of it, and `HandedOver` always says so.

    A consumer is connected from `add_consumer` to `remove_consumer`; a name stands for one session at a time.
    ``now_ms`` is monotonic; None is the instant of the last call. Not thread-safe.

    Args:
        owners: Who owns which slot. Everyone who owns something is connected from the start. An empty map of the right
            hash and space will do.
        drain_timeout_ms: How long a hash may drain before it is handed over; None: for ever.
        now_ms: The time.

    Raises:
        ArgumentError: An argument is of the wrong type, or the timeout is less than 1.
        ClockError: ``now_ms`` is not an int of at least 0.

    Source:
        PIP-379 (draining hashes, pending acks and their registration). Differs: counts are derived; what is refused at
        the last moment wakes up like what was refused before; an entry is refused if the hash has moved, even if
        nothing of it is pending; drains may have a deadline; acks are fenced.

    Example:
        >>> one, two = RangeMap.from_stops([65536], ["a"]), RangeMap.from_stops([32768, 65536], ["b", "a"])
        >>> tracker = DrainTracker(one)
        >>> receipt = tracker.add("a", (3, 0), 7)
        >>> tracker.add_consumer("b", two).moved           # hash 7 belongs to b now
        (Moved(start=0, stop=32768, old='a', new='b'),)
        >>> tracker.add("b", (3, 1), 7).name               # but a has not acked what it was sent
        'DRAINING'
        >>> tracker.ack(*receipt).unblocked
        (7,)
        >>> tracker.add("b", (3, 1), 7)
        SendReceipt(consumer='b', position=(3, 1), generation=2)
    """

    __slots__ = ("_drains", "_generation", "_members", "_now", "_owners", "_timeout_ms", "_waves")

    def __init__(self, owners: RangeMap, *, drain_timeout_ms: int | None = None, now_ms: int = 0) -> None:
        check_kind("owners", owners, RangeMap)
        if drain_timeout_ms is not None:
            check_int("drain_timeout_ms", drain_timeout_ms, 1, ", or None for no deadline")
        if type(now_ms) is not int or now_ms < 0:
            raise ClockError(now_ms, 0)
        self._owners = owners
        self._timeout_ms = drain_timeout_ms
        self._now = now_ms
        self._members = {name: _Member(name) for name in owners.owners}
        self._drains: dict[int, _Wave] = {}  # the wave with which the hash began to drain
        self._waves: deque[_Wave] = deque()  # those with a deadline, which is in this order
        self._generation = 0

    def add_consumer(self, consumer: str, owners: RangeMap, *, now_ms: int | None = None) -> OwnersChanged:
        """Connect a consumer.

        Args:
            consumer: Its name.
            owners: Who owns which slot from now on.
            now_ms: Monotonic milliseconds.

        Returns:
            What has moved, and what that unblocks.

        Raises:
            ConsumerExistsError: It is connected. Nothing was changed.
            UnknownConsumerError: Somebody owns slots who is not connected. Nothing was changed.
            ArgumentError: ``consumer`` is no text, or ``owners`` is no map of the same space. Nothing was changed.
            ClockError: ``now_ms`` went back. Nothing was changed.

        Complexity:
            O(r + m log n), r runs of both maps, m moved slots with pending entries, n entries pending.
        """
        check_text("consumer", consumer)
        if consumer in self._members:
            raise ConsumerExistsError(consumer)
        moved = self._checked_moves(owners, joining=consumer)
        self._now = checked_now(now_ms, self._now)
        self._members[consumer] = _Member(consumer)
        return OwnersChanged(tuple(moved), (), self._move(owners, moved))

    def remove_consumer(self, consumer: str, owners: RangeMap, *, now_ms: int | None = None) -> OwnersChanged:
        """Disconnect a consumer: what it held is to be sent again, and nobody waits for it any more.

        Args:
            consumer: Its name. If it is not connected, only the owners change.
            owners: Who owns which slot from now on; not the one who leaves.
            now_ms: Monotonic milliseconds.

        Returns:
            What has moved, what is to be sent again, and which hashes came home to somebody else by that. What was
            handed over before is in none of them: it was told already.

        Raises:
            UnknownConsumerError: Somebody owns slots who is not connected, or leaves. Nothing was changed.
            ArgumentError: ``consumer`` is no text, or ``owners`` is no map of the same space. Nothing was changed.
            ClockError: ``now_ms`` went back. Nothing was changed.

        Complexity:
            O(r + m log n + k), k entries that it held; see `add_consumer`.
        """
        check_text("consumer", consumer)
        moved = self._checked_moves(owners, leaving=consumer)
        self._now = checked_now(now_ms, self._now)
        leaver = self._members.pop(consumer, None)
        replay: tuple[PendingAck, ...] = ()
        if leaver is not None:
            for hash_ in leaver.pending.hashes():
                if hash_ in self._drains:
                    self._end(hash_)  # silently: whoever was refused learns it from what is replayed
            replay = tuple(leaver.pending.close())
        return OwnersChanged(tuple(moved), replay, self._move(owners, moved))

    def set_owners(self, owners: RangeMap, *, now_ms: int | None = None) -> OwnersChanged:
        """Change who owns what while everybody stays connected.

        Args:
            owners: Who owns which slot from now on.
            now_ms: Monotonic milliseconds.

        Returns:
            What has moved, and what that unblocks.

        Raises:
            UnknownConsumerError: Somebody owns slots who is not connected. Nothing was changed.
            ArgumentError: ``owners`` is no map of the same space. Nothing was changed.
            ClockError: ``now_ms`` went back. Nothing was changed.

        Complexity:
            As `add_consumer`.
        """
        moved = self._checked_moves(owners)
        self._now = checked_now(now_ms, self._now)
        return OwnersChanged(tuple(moved), (), self._move(owners, moved))

    def refusal(self, consumer: str, hash_: int) -> Refusal | None:
        """Return whether a message must not go to a consumer, and remember that it was refused for a drain.

        Args:
            consumer: Who would get the message.
            hash_: Its hash: a slot of the owners' map.

        Returns:
            Why not; None if it may be sent. A hash that was refused as `Refusal.DRAINING` is named by the call that
            ends the drain: as unblocked, as the hash of what is replayed, or as handed over.

        Raises:
            ArgumentError: There is no such slot. Nothing was changed.

        Complexity:
            O(log r), r runs of the map; whatever drains and is pending.
        """
        owner = self._owners.owner(hash_)
        if consumer not in self._members:
            return Refusal.GONE
        if owner != consumer:
            return Refusal.NOT_OWNER
        wave = self._drains.get(hash_)
        if wave is None:
            return None
        wave.refused[hash_] = wave.refused.get(hash_, 0) + 1
        return Refusal.DRAINING

    def add(self, consumer: str, position: Position, hash_: int, messages: int = 1) -> SendReceipt | Refusal:
        """Enter an entry, right before it is sent: the last check against whatever has changed meanwhile.

        Args:
            consumer: Who gets it.
            position: Where it is in the log. If it is pending there, it is sent again: older receipts are void.
            hash_: Its hash: a slot of the owners' map.
            messages: How many messages it holds.

        Returns:
            The receipt; or why the entry must not be sent, as `refusal` gives it, and counted like there.

        Raises:
            ArgumentError: There is no such slot, an argument has the wrong type, or the entry is pending there with
                another hash. Nothing was changed.

        Complexity:
            O(log n + log r), n entries pending there, r runs of the map.
        """
        check_position(position)
        if type(messages) is not int or messages < 1:
            raise ArgumentError("messages", messages, "be an int of at least 1")
        member = self._members.get(consumer)
        known = None if member is None else member.pending.get(position)
        if known is not None and known.hash != hash_:
            raise ArgumentError(
                "hash_", hash_, f"be {known.hash}, with which {position} is pending: hashes do not change"
            )
        refusal = self.refusal(consumer, hash_)
        if refusal is not None:
            return refusal
        self._generation += 1
        self._members[consumer].pending.add(position, hash_, messages, generation=self._generation)
        return SendReceipt(consumer, position, self._generation)

    def ack(
        self, consumer: str, position: Position, generation: int | None = None, *, messages: int | None = None
    ) -> EntryAcked:
        """Settle an entry, or a part of it.

        Args:
            consumer: To whom it was sent.
            position: Where it is in the log.
            generation: Number of the sending, as in the receipt. None, if the consumers do not tell: the latest one.
            messages: How many messages of the entry were acked; None: all. The entry is settled with the last of them.
                More than there are is a double ack.

        Returns:
            What that did: nothing, if it was late, double or foreign.

        Raises:
            ArgumentError: ``messages`` is neither an int of at least 1 nor None, or ``position`` is not one. Nothing
                was changed.

        Complexity:
            O(log n), n entries pending there.
        """
        check_position(position)
        if messages is not None:
            check_int("messages", messages, 1, ", or None for all of them")
        member = self._members.get(consumer)
        if member is None:
            return EntryAcked(settled=False, entry=None)
        book = _book_of(member, position, generation)
        entry = book.get(position)
        if entry is None or (generation is not None and generation != entry.generation):
            return EntryAcked(settled=False, entry=None)
        if messages is not None and book.reduce_remaining(position, messages):
            return EntryAcked(settled=False, entry=book.get(position))
        book.remove(position)
        return EntryAcked(
            settled=True, entry=entry, unblocked=() if book is member.late else self._freed(member, [entry])
        )

    def take_back(self, consumer: str, positions: Iterable[Position] | None = None) -> Returned:
        """Take entries off the books so that they are sent again: a nack, an ack timeout, "redeliver everything".

        The embedder puts what is returned back in its place in front of anything newer of its hash.

        Args:
            consumer: Who held them.
            positions: Which ones; None: all. What is not pending there is passed over.

        Returns:
            What is to be sent again, and which hashes that unblocks; some of them may be hashes of these very entries.
            What was handed over before is forgotten, but not returned: it was told already.

        Raises:
            ArgumentError: One of them is no position. Nothing was changed.

        Complexity:
            O(k log n), k entries, n pending there.
        """
        wanted = None if positions is None else list(positions)
        for position in wanted or ():
            check_position(position)
        member = self._members.get(consumer)
        if member is None:
            return Returned()
        if wanted is None:
            entries = member.pending.clear()
            member.late.clear()
        else:
            entries = [entry for entry in map(member.pending.remove, sorted(wanted)) if entry is not None]
            for position in wanted:
                member.late.remove(position)
        return Returned(tuple(entries), self._freed(member, entries))

    def expire_up_to(self, position: Position) -> Returned:
        """Forget everything at or below a position, at every consumer: it has expired, or was skipped or truncated.

        Args:
            position: The highest one to go.

        Returns:
            What was pending, and which hashes that unblocks, each once.

        Raises:
            ArgumentError: ``position`` is not one. Nothing was changed.

        Complexity:
            O(c log n + k log n), c consumers, k entries taken off, n pending.
        """
        check_position(position)
        entries: list[PendingAck] = []
        unblocked: list[int] = []
        for member in self._members.values():
            gone = member.pending.remove_up_to(position)
            member.late.remove_up_to(position)
            entries += gone
            unblocked += self._freed(member, gone)
        return Returned(tuple(sorted(entries)), tuple(unblocked))

    def handle_timeout(self, *, now_ms: int | None = None) -> list[HandedOver]:
        """Hand over every hash that has drained for too long. Early and extra calls are free.

        Args:
            now_ms: Monotonic milliseconds.

        Returns:
            One `HandedOver` for each hash, in the order in which their drains began. Each of these hashes is unblocked.

        Raises:
            ClockError: ``now_ms`` went back. Nothing was changed.

        Complexity:
            O((1 + k) log n), k entries handed over, n pending.
        """
        self._now = now = checked_now(now_ms, self._now)
        handed: list[HandedOver] = []
        while (due := self.next_deadline_ms()) is not None and due <= now:
            wave = self._waves.popleft()
            hashes = wave.hashes.copy()  # the wave drops them as they end
            handed += [self._hand_over(hash_, wave) for hash_ in hashes if self._drains.get(hash_) is wave]
        return handed

    def next_deadline_ms(self) -> int | None:
        """Return when `handle_timeout` has something to do; None if never. O(1) amortised."""
        if self._timeout_ms is None:
            return None
        waves = self._waves
        while waves and not waves[0].live:
            waves.popleft()
        return waves[0].since_ms + self._timeout_ms if waves else None

    @property
    def owners(self) -> RangeMap:
        """Who owns which slot now."""
        return self._owners

    @property
    def consumers(self) -> tuple[str, ...]:
        """Who is connected, in the order of joining."""
        return tuple(self._members)

    def owner(self, hash_: int) -> str | None:
        """Return who owns a hash, or None in a hole; `ArgumentError` if there is no such slot. O(log r)."""
        return self._owners.owner(hash_)

    def pending(self, consumer: str) -> tuple[PendingAck, ...]:
        """List what a consumer holds, in ascending order; nothing if it is not connected. Without what is late."""
        member = self._members.get(consumer)
        return () if member is None else tuple(member.pending)

    def explain(self, hash_: int) -> HashState:
        """Return everything that is known of a hash: why its messages do not arrive.

        Args:
            hash_: A slot of the owners' map.

        Returns:
            Who owns it, who holds what of it, since when, and how often somebody was refused.

        Raises:
            ArgumentError: There is no such slot.

        Complexity:
            O(c + k log k), c consumers, k entries of the hash.
        """
        owner = self._owners.owner(hash_)
        wave = self._drains.get(hash_)
        holder = next((member for member in self._members.values() if member.pending.count(hash_)), None)
        since = None if wave is None else wave.since_ms
        return HashState(
            hash=hash_,
            owner=owner,
            holder=None if holder is None else holder.name,
            draining=wave is not None,
            positions=() if holder is None else tuple(holder.pending.positions_of(hash_)),
            refused=0 if wave is None else wave.refused.get(hash_, 0),
            since_ms=since,
            deadline_ms=None if since is None or self._timeout_ms is None else since + self._timeout_ms,
            late=tuple(
                (member.name, tuple(member.late.positions_of(hash_)))
                for member in self._members.values()
                if member.late.count(hash_)
            ),
        )

    def stats(self, consumer: str | None = None) -> DrainingStats:
        """Return what drains, as PIP-379 counts it.

        Args:
            consumer: At whom; None: at anybody.

        Returns:
            The statistics; zeros for a consumer that is not connected. What was handed over counts as cleared. The
            total counts what those have cleared who are connected.

        Complexity:
            O(d log d), d hashes draining.
        """
        cleared = sum(member.cleared for name, member in self._members.items() if consumer is None or consumer == name)
        entries = [
            DrainingEntry(hash_, wave.holder.pending.count(hash_), wave.refused.get(hash_, 0))
            for hash_, wave in self._drains.items()
            if consumer is None or consumer == wave.holder.name
        ]
        return add_up(entries, cleared)

    def check_invariants(self) -> None:
        """Check the books against themselves; for tests.

        Raises:
            InvariantError: They contradict themselves.

        Complexity:
            O(n), n entries pending.
        """
        holders: dict[int, _Member] = {}
        for name, member in self._members.items():
            member.pending.check_invariants()
            member.late.check_invariants()
            require(name == member.name, "a consumer is filed under its name")
            for hash_ in member.pending.hashes():
                require(hash_ not in holders, f"hash {hash_} is unacked at one consumer only")
                holders[hash_] = member
        strays = {hash_: member for hash_, member in holders.items() if self._owners.owner(hash_) != member.name}
        require(
            strays == {hash_: wave.holder for hash_, wave in self._drains.items()},
            "a hash drains exactly while somebody holds it who does not own it",
        )
        require(set(self._members).issuperset(self._owners.owners), "everyone who owns something is connected")
        waves = {id(wave): wave for wave in self._drains.values()}
        for wave in waves.values():
            live = {hash_ for hash_, other in self._drains.items() if other is wave}
            require(live.issuperset(wave.refused), "only a hash that drains refuses anybody")
            require(live.issubset(wave.hashes), "a wave lists its drains")
            require(len(live) == wave.live, "a wave counts its drains")
        timed = [wave for wave in self._waves if wave.live]
        since = [wave.since_ms for wave in timed]
        require(since == sorted(since), "deadlines are in order")
        expected = set() if self._timeout_ms is None else set(waves)
        require({id(wave) for wave in timed} == expected, "every drain has a deadline, if there are any")

    def _checked_moves(
        self, owners: RangeMap, *, joining: str | None = None, leaving: str | None = None
    ) -> list[Moved]:
        """Check a new map of owners, and return what it moves."""
        check_kind("owners", owners, RangeMap)
        for name in owners.owners:
            if name == leaving or (name != joining and name not in self._members):
                raise UnknownConsumerError(name)
        return self._owners.moved(owners)

    def _move(self, owners: RangeMap, moved: list[Moved]) -> tuple[int, ...]:
        """Begin the drain of hashes that moved away from their holder, and stop that of hashes that came home."""
        self._owners = owners
        members = self._members
        unblocked: list[int] = []
        waves: dict[str, _Wave] = {}
        for start, stop, old, new in moved:
            if old is not None and old in members:  # or it has just left
                hashes = list(members[old].pending.hashes_between(start, stop))
                if hashes:
                    wave = waves.setdefault(old, _Wave(members[old], self._now))
                    wave.hashes += hashes
                    self._drains.update(dict.fromkeys(hashes, wave))
            if new is not None:
                unblocked += self._come_home(members[new], start, stop)
        for wave in waves.values():
            wave.live = len(wave.hashes)
            if self._timeout_ms is not None:
                self._waves.append(wave)
        return tuple(unblocked)

    def _come_home(self, owner: _Member, start: int, stop: int) -> list[int]:
        # What it held without owning it was draining, every bit of it.
        return [hash_ for hash_ in owner.pending.hashes_between(start, stop) if self._end(hash_)]

    def _freed(self, member: _Member, gone: Iterable[PendingAck]) -> tuple[int, ...]:
        """End the drains that waited for these entries, and return which of them had kept somebody waiting."""
        count, drains = member.pending.count, self._drains
        return tuple(
            [entry.hash for entry in gone if entry.hash in drains and not count(entry.hash) and self._end(entry.hash)]
        )

    def _hand_over(self, hash_: int, wave: _Wave) -> HandedOver:
        holder, refused = wave.holder, wave.refused.get(hash_, 0)
        entries = holder.pending.remove_hash(hash_)
        for position, _, remaining, generation in entries:
            holder.late.add(position, hash_, remaining, generation=generation)
        self._end(hash_)
        return HandedOver(hash_, holder.name, self._owners.owner(hash_), tuple(entries), refused, wave.since_ms)

    def _end(self, hash_: int) -> bool:
        """End a drain; return whether somebody was refused because of it."""
        wave = self._drains.pop(hash_)
        wave.holder.cleared += 1
        wave.live -= 1
        if len(wave.hashes) > 2 * wave.live + _SLACK:  # or one stuck hash would keep the numbers of all
            wave.hashes = [other for other in wave.hashes if self._drains.get(other) is wave]
        return wave.refused.pop(hash_, 0) > 0


def _book_of(member: _Member, position: Position, generation: int | None) -> PendingAcks:
    """Where to look for the sending that an ack means: among what was handed over only if it is not pending."""
    entry = member.pending.get(position)
    if entry is None or (generation is not None and generation != entry.generation):
        return member.late
    return member.pending
