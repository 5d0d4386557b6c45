"""Draining hashes: which hashes are still unacked at the consumer that used to own them.

When consumers join or leave, hashes change their owner. Until the previous owner has acked what it holds of a hash, no
other consumer may get messages of it: the hash *drains*. `DrainingHashes` counts that, and nothing else, for a broker
that keeps its own books of unacked messages and knows hashes only. A broker that does not should take
`keyshared.draintracker.DrainTracker`, which derives the counts from the messages themselves, so that they cannot be
wrong.

A hash is a number that many keys may share, so a key may wait for another one's messages. `KeySharedDispatcher` knows
keys and has no such collisions.
"""

from typing import Final, NamedTuple

from keyshared._checks import check_int, checked_kinds, require
from keyshared.errors import ArgumentError, BatchError, HashHolderError

__all__ = ["DEFAULT_UNSET_HASH", "DrainingEntry", "DrainingHash", "DrainingHashes", "DrainingStats", "add_up"]

DEFAULT_UNSET_HASH: Final = 0  # Pulsar's "no hash was computed"; its hashes begin at 1


class DrainingEntry(NamedTuple):
    """What is known of one draining hash, at the moment of asking.

    Attributes:
        hash: Which hash.
        unacked: How many entries of it its holder has not acked.
        refused: How often another consumer was refused because of it.
    """

    hash: int
    unacked: int
    refused: int


class DrainingStats(NamedTuple):
    """What one consumer, or all of them together, still has to drain.

    Attributes:
        hashes: How many hashes drain.
        cleared_total: How many have stopped draining so far, for whatever reason.
        unacked: How many entries they wait for.
        entries: The hashes one by one, in ascending order.
    """

    hashes: int = 0
    cleared_total: int = 0
    unacked: int = 0
    entries: tuple[DrainingEntry, ...] = ()

    def to_pulsar(self) -> dict[str, object]:
        """Return the same under the names that Pulsar's statistics have for a consumer.

        Returns:
            Plain data for JSON.

        Source:
            PIP-379, and the consumer's topic statistics as Pulsar 4.0 has them.

        Example:
            >>> DrainingStats(1, 7, 2, (DrainingEntry(5, 2, 0),)).to_pulsar()["drainingHashes"]
            [{'hash': 5, 'unackMsgs': 2, 'blockedAttempts': 0}]
        """
        return {
            "drainingHashesCount": self.hashes,
            "drainingHashesClearedTotal": self.cleared_total,
            "drainingHashesUnackedMessages": self.unacked,
            "drainingHashes": [
                {"hash": entry.hash, "unackMsgs": entry.unacked, "blockedAttempts": entry.refused}
                for entry in self.entries
            ],
        }


def add_up(entries: list[DrainingEntry], cleared_total: int) -> DrainingStats:
    """Build statistics of single hashes.

    Args:
        entries: In any order.
        cleared_total: How many hashes have stopped draining.

    Returns:
        The statistics, with the hashes in ascending order.
    """
    known = sorted(checked_kinds("entry", entries, DrainingEntry))
    return DrainingStats(len(known), cleared_total, sum(entry.unacked for entry in known), tuple(known))


class DrainingHash:
    """One drain of one hash; a later drain of the same hash is another object.

    Live: the numbers go on changing until the drain is over. Read it, never write to it.

    Attributes:
        hash: Which hash.
        holder: The consumer that has not acked everything of it.
        unacked: How many entries that are.
        refused: How often another consumer was refused because of it.
    """

    __slots__ = ("hash", "holder", "refused", "unacked")

    def __init__(self, hash_: int, holder: str, unacked: int) -> None:
        self.hash = hash_
        self.holder = holder
        self.unacked = unacked
        self.refused = 0

    def __repr__(self) -> str:
        return f"DrainingHash({self.hash}, {self.holder!r}, unacked={self.unacked}, refused={self.refused})"


class DrainingHashes:
    """Counts, per hash, the unacked entries for which its new owner has to wait.

    The caller keeps the counts right: one `add` for each unacked entry of a hash that moves away, one `reduce` when it
    is acked or taken back, and one `reduce` for each when the hash comes home. Without the last one the hash stays
    blocked for ever once it moves again.

    A consumer's name stands for one session: if a client may reconnect under its old name, put a number of the session
    into the name.

    Args:
        unset_hash: The hash that means "none was computed" and never drains. None if every number is a hash.

    Raises:
        ArgumentError: ``unset_hash`` is neither an int nor None.

    Source:
        PIP-379, DrainingHashesTracker. Differs: a call returns what it unblocked, where the original calls a handler;
        and an ack may name the drain that it belongs to.

    Example:
        >>> draining = DrainingHashes()
        >>> draining.add("c1", 7, 2)                 # 7 moves from c1 to c2, and c1 has 2 unacked messages of it
        DrainingHash(7, 'c1', unacked=2, refused=0)
        >>> draining.should_block("c2", 7)
        True
        >>> draining.reduce("c1", 7), draining.reduce("c1", 7)
        ([], [7])
    """

    __slots__ = ("_batch_level", "_batched", "_cleared", "_drains", "_unset")

    def __init__(self, *, unset_hash: int | None = DEFAULT_UNSET_HASH) -> None:
        if unset_hash is not None:
            check_int("unset_hash", unset_hash)
        self._unset = unset_hash
        self._drains: dict[int, DrainingHash] = {}
        self._cleared: dict[str, int] = {}
        self._batch_level = 0
        self._batched: dict[int, None] = {}

    def add(self, consumer: str, hash_: int, count: int = 1) -> DrainingHash:
        """Hold a hash until a consumer has acked its entries.

        Args:
            consumer: Their holder.
            hash_: Their hash.
            count: How many.

        Returns:
            The drain that they belong to, for `reduce`.

        Raises:
            HashHolderError: The hash drains at another consumer. Nothing was changed.
            ArgumentError: The hash is the unset one or no int, ``count`` is no int of at least 1, or ``consumer`` is no
                text. Nothing was changed.
        """
        drain = self._checked(consumer, hash_, count)
        if hash_ == self._unset:
            raise ArgumentError("hash_", hash_, "be the hash of a message; this number means that none was computed")
        if drain is None:
            drain = self._drains[hash_] = DrainingHash(hash_, consumer, count)
        elif drain.holder != consumer:
            raise HashHolderError(hash_, drain.holder, consumer)
        else:
            drain.unacked += count
        return drain

    def reduce(
        self, consumer: str, hash_: int, count: int = 1, *, of: DrainingHash | None = None, closing: bool = False
    ) -> list[int]:
        """Count entries as acked, taken back, or come home.

        Args:
            consumer: Their holder until now.
            hash_: Their hash. One that does not drain is passed over.
            count: How many.
            of: The drain that they belong to, as `add` gave it. If that one is over, nothing happens, even if another
                drain of the same hash has begun. None: whichever there is.
            closing: The consumer leaves; what it held is read again anyway, so nothing is reported as unblocked.

        Returns:
            ``[hash_]`` if this was the last of them and a consumer had been refused, so that a message may now go out;
            else, or within a batch, ``[]``.

        Raises:
            HashHolderError: The hash drains at another consumer. Nothing was changed.
            ArgumentError: ``count`` is more than the hash waits for, or an argument has the wrong type. Nothing was
                changed.
        """
        drain = self._checked(consumer, hash_, count)
        if drain is None or (of is not None and of is not drain):
            return []
        if drain.holder != consumer:
            raise HashHolderError(hash_, drain.holder, consumer)
        if count > drain.unacked:
            raise ArgumentError("count", count, f"be at most {drain.unacked}, what hash {hash_} waits for")
        drain.unacked -= count
        if drain.unacked:
            return []
        self._clear(drain)
        if closing or not drain.refused:
            return []
        if self._batch_level:
            self._batched[hash_] = None
            return []
        return [hash_]

    def should_block(self, consumer: str, hash_: int) -> bool:
        """Return whether a message must not go to a consumer, and count the refusal.

        If the consumer is the one that the hash waits for, the hash has come home: its drain ends at once and is not
        reported, because the caller itself may go on.

        Args:
            consumer: The consumer that would get the message.
            hash_: Its hash.

        Returns:
            Whether the hash drains at another consumer.

        Raises:
            ArgumentError: An argument has the wrong type. Nothing was changed.

        Complexity:
            O(1), whatever drains.
        """
        drain = self._checked(consumer, hash_, 1)
        if drain is None:
            return False
        if drain.holder == consumer:
            self._clear(drain)
            return False
        drain.refused += 1
        return True

    def start_batch(self) -> None:
        """Collect what is unblocked until the matching `end_batch`. Batches may be nested."""
        self._batch_level += 1

    def end_batch(self) -> list[int]:
        """End the batch that began last.

        Returns:
            At the end of the outermost batch, every hash that was unblocked within it, once each, in the order in which
            that happened first; else ``[]``. One of them may drain again by now.

        Raises:
            BatchError: No batch has begun. Nothing was changed.
        """
        if not self._batch_level:
            raise BatchError
        self._batch_level -= 1
        if self._batch_level:
            return []
        unblocked = list(self._batched)
        self._batched.clear()
        return unblocked

    def clear(self) -> None:
        """Forget every drain and all statistics, because the last consumer has left. An open batch stays open."""
        self._drains.clear()
        self._cleared.clear()

    def consumer_removed(self, consumer: str) -> None:
        """Forget the statistics of a consumer that has left; unknown names are passed over.

        Args:
            consumer: The consumer. What it held must have been reduced before.
        """
        self._cleared.pop(consumer, None)

    def entry(self, hash_: int) -> DrainingHash | None:
        """Return the drain of a hash.

        Returns:
            The drain, live; None if the hash does not drain.
        """
        return self._drains.get(hash_)

    def __len__(self) -> int:
        return len(self._drains)

    def __contains__(self, hash_: object) -> bool:
        return hash_ in self._drains

    def stats(self, consumer: str | None = None) -> DrainingStats:
        """List what drains, counted from the drains themselves.

        Args:
            consumer: The holder; None for all consumers.

        Returns:
            The statistics; zeros for a consumer that never held anything that drained. `consumer_removed` takes what a
            consumer has cleared out of the total, too.

        Complexity:
            O(d log d), d hashes draining.
        """
        entries = [
            DrainingEntry(drain.hash, drain.unacked, drain.refused)
            for drain in self._drains.values()
            if consumer is None or drain.holder == consumer
        ]
        cleared = sum(self._cleared.values()) if consumer is None else self._cleared.get(consumer, 0)
        return add_up(entries, cleared)

    def check_invariants(self) -> None:
        """Check the structure against itself; for tests.

        Raises:
            InvariantError: It contradicts itself.

        Complexity:
            O(d), d hashes draining.
        """
        require(self._unset not in self._drains, "the unset hash never drains")
        require(all(hash_ == drain.hash for hash_, drain in self._drains.items()), "a drain is filed under its hash")
        require(all(drain.unacked > 0 for drain in self._drains.values()), "a drain waits for something")
        require(self._batch_level > 0 or not self._batched, "nothing is held back outside a batch")

    def _checked(self, consumer: object, hash_: int, count: int) -> DrainingHash | None:
        """Check the arguments, and find the drain."""
        if type(consumer) is not str or not consumer:
            raise ArgumentError("consumer", consumer, "be a non-empty str")
        check_int("hash_", hash_)
        if type(count) is not int or count < 1:
            raise ArgumentError("count", count, "be an int of at least 1")
        return self._drains.get(hash_)

    def _clear(self, drain: DrainingHash) -> None:
        del self._drains[drain.hash]
        self._cleared[drain.holder] = self._cleared.get(drain.holder, 0) + 1
