"""Draining hashes: the hashes that are still unacked at the consumer that used to own them.

When consumers join or leave, hashes change their owner. Until the previous owner has acked what it holds of a hash, no
other consumer may receive messages of it: the hash *drains*. `DrainingHashes` counts the unacked entries of each
draining hash, for a broker that keeps its own records of unacked messages. A broker that does not should use
`keyshared.draintracker.DrainTracker`, which keeps the records and the counts.

Many keys may share a hash, so a key may wait for another key's messages. `KeySharedDispatcher` knows keys and has no
such collisions.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from keyshared._checks import check_int, check_text, require
from keyshared.errors import ArgumentError, MisuseError, shown

__all__ = ["DEFAULT_UNSET_HASH", "DrainingEntry", "DrainingHash", "DrainingHashes", "DrainingStats"]

DEFAULT_UNSET_HASH: Final = 0  # Pulsar's "no hash was computed"; its hashes begin at 1


class DrainingEntry(NamedTuple):
    """One draining hash at the moment of the query.

    Attributes:
        hash: The hash.
        unacked: How many entries of it its holder has not acked.
        refused: How often another consumer was refused because of it.
    """

    hash: int
    unacked: int
    refused: int


class DrainingStats(NamedTuple):
    """The draining hashes of one consumer or of all consumers.

    Attributes:
        hashes: How many hashes drain.
        cleared_total: How many drains have ended so far.
        unacked: How many unacked entries they wait for.
        entries: The draining hashes in ascending order.
    """

    hashes: int = 0
    cleared_total: int = 0
    unacked: int = 0
    entries: tuple[DrainingEntry, ...] = ()

    def to_pulsar(self) -> dict[str, object]:
        """Return the same as JSON data, with the field names of Pulsar 4.0's consumer statistics.

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


class DrainingHash:
    """One drain of one hash; a later drain of the same hash is another object. Live and read-only.

    Attributes:
        hash: The hash.
        holder: The consumer that has unacked entries of it.
        unacked: How many.
        refused: How often another consumer was refused because of it.
        since_ms: When the drain began, as given to `DrainingHashes.add`.
    """

    __slots__ = ("hash", "holder", "refused", "since_ms", "unacked")

    def __init__(self, hash_: int, holder: str, unacked: int, since_ms: int = 0) -> None:
        self.hash = hash_
        self.holder = holder
        self.unacked = unacked
        self.refused = 0
        self.since_ms = since_ms

    def __repr__(self) -> str:
        return f"DrainingHash({self.hash}, {self.holder!r}, unacked={self.unacked}, refused={self.refused})"


class DrainingHashes:
    """Counts, for each draining hash, the unacked entries for which its new owner waits.

    The caller calls `add` for each unacked entry of a hash that moves away, `reduce` for each that is acked or taken
    back, and `reduce` for each when the hash returns to its holder. Without the last one the hash stays blocked for
    ever once it moves again.

    A consumer's name identifies one session: if a client may reconnect under its old name, make a session number part
    of the name. A call that raises has changed nothing.

    Args:
        unset_hash: The hash that means "none was computed" and never drains. None if every number is a hash.

    Raises:
        ArgumentError: ``unset_hash`` is neither an int nor None.

    Source:
        PIP-379, DrainingHashesTracker. Differs: a call returns the hash that it unblocked, where the original calls a
        handler; and an ack may name its drain.

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
        self._drains: OrderedDict[int, DrainingHash] = OrderedDict()
        self._cleared: dict[str, int] = {}
        self._batch_level = 0
        self._batched: dict[int, None] = {}

    def add(self, consumer: str, hash_: int, count: int = 1, *, since_ms: int = 0) -> DrainingHash:
        """Block a hash until a consumer has acked its entries.

        Args:
            consumer: The consumer that holds the entries.
            hash_: Their hash.
            count: How many entries.
            since_ms: The time of this call, if the caller wants to read it from the drain; the first call counts.

        Returns:
            The drain that the entries belong to, for `reduce`.

        Raises:
            MisuseError: The hash drains at another consumer.
            ArgumentError: The hash is the unset one, or an argument is of the wrong type or range.
        """
        drain = self._checked(consumer, hash_, count)
        check_int("since_ms", since_ms)
        if hash_ == self._unset:
            raise ArgumentError("hash_", hash_, "be the hash of a message; this number means that none was computed")
        if drain is None:
            drain = self._drains[hash_] = DrainingHash(hash_, consumer, count, since_ms)
        elif drain.holder != consumer:
            raise _drains_elsewhere(drain, consumer)
        else:
            drain.unacked += count
        return drain

    def reduce(
        self, consumer: str, hash_: int, count: int = 1, *, of: DrainingHash | None = None, closing: bool = False
    ) -> list[int]:
        """Count entries as acked, taken back, or returned to their owner.

        Args:
            consumer: The consumer that held the entries.
            hash_: Their hash. One that does not drain is ignored.
            count: How many entries.
            of: The drain that they belong to, as returned by `add`. If it has ended, nothing happens, even if another
                drain of the same hash has begun. None means the current drain.
            closing: The consumer leaves; its entries are replayed anyway, so the hash is not reported as unblocked.

        Returns:
            ``[hash_]`` if the drain ended and another consumer had been refused; else, or within a batch, ``[]``.

        Raises:
            MisuseError: The hash drains at another consumer.
            ArgumentError: ``count`` is more than the hash waits for, or an argument is of the wrong type.
        """
        drain = self._checked(consumer, hash_, count)
        if drain is None or (of is not None and of is not drain):
            return []
        if drain.holder != consumer:
            raise _drains_elsewhere(drain, consumer)
        if count > drain.unacked:
            raise ArgumentError("count", count, f"be at most {drain.unacked}, what hash {hash_} waits for")
        drain.unacked -= count
        if drain.unacked:
            return []
        self._end(drain)
        if closing or not drain.refused:
            return []
        if self._batch_level:
            self._batched[hash_] = None
            return []
        return [hash_]

    def should_block(self, consumer: str, hash_: int) -> bool:
        """Return whether the hash drains at another consumer, and count the refusal. O(1).

        If the consumer is the holder of the drain, the hash has returned to it: the drain ends, and is not reported
        because the caller itself may go on.
        """
        drain = self._checked(consumer, hash_, 1)
        if drain is None:
            return False
        if drain.holder == consumer:
            self._end(drain)
            return False
        drain.refused += 1
        return True

    def start_batch(self) -> None:
        """Collect unblocked hashes until the matching `end_batch`. Batches may be nested."""
        self._batch_level += 1

    def end_batch(self) -> list[int]:
        """End the innermost batch; raises `MisuseError` if none has begun.

        Returns:
            At the end of the outermost batch, each hash that was unblocked within it, in the order of first unblocking;
            else ``[]``. A returned hash may be draining again.
        """
        if not self._batch_level:
            raise MisuseError("no batch has begun; call start_batch first, once for each end_batch")
        self._batch_level -= 1
        if self._batch_level:
            return []
        unblocked = list(self._batched)
        self._batched.clear()
        return unblocked

    def clear(self) -> None:
        """Remove every drain and all statistics, because the last consumer has left. An open batch stays open."""
        self._drains.clear()
        self._cleared.clear()

    def consumer_removed(self, consumer: str) -> None:
        """Remove the statistics of a consumer that has left, after its entries were reduced. Ignores unknown names."""
        self._cleared.pop(consumer, None)

    def entry(self, hash_: int) -> DrainingHash | None:
        """Return the live drain of a hash; None if the hash does not drain."""
        return self._drains.get(hash_)

    @property
    def oldest(self) -> DrainingHash | None:
        """The live drain that began first; None if nothing drains. O(1)."""
        return next(iter(self._drains.values()), None)

    def __len__(self) -> int:
        return len(self._drains)

    def __contains__(self, hash_: object) -> bool:
        return hash_ in self._drains

    def stats(self, consumer: str | None = None) -> DrainingStats:
        """Return the statistics of one holder, or of all consumers. O(d log d), d draining hashes.

        The total excludes what removed consumers have cleared.
        """
        entries = sorted(
            DrainingEntry(drain.hash, drain.unacked, drain.refused)
            for drain in self._drains.values()
            if consumer is None or drain.holder == consumer
        )
        cleared = sum(self._cleared.values()) if consumer is None else self._cleared.get(consumer, 0)
        return DrainingStats(len(entries), cleared, sum(entry.unacked for entry in entries), tuple(entries))

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure contradicts itself; for tests. O(d), d draining hashes."""
        require(self._unset not in self._drains, "the unset hash never drains")
        require(all(hash_ == drain.hash for hash_, drain in self._drains.items()), "a drain is filed under its hash")
        require(all(drain.unacked > 0 for drain in self._drains.values()), "a drain waits for something")
        require(self._batch_level > 0 or not self._batched, "nothing is held back outside a batch")

    def _checked(self, consumer: object, hash_: int, count: int) -> DrainingHash | None:
        """Check the arguments, and find the drain."""
        check_text("consumer", consumer)
        check_int("hash_", hash_)
        check_int("count", count, 1)
        return self._drains.get(hash_)

    def _end(self, drain: DrainingHash) -> None:
        del self._drains[drain.hash]
        self._cleared[drain.holder] = self._cleared.get(drain.holder, 0) + 1


def _drains_elsewhere(drain: DrainingHash, consumer: str) -> MisuseError:
    holder = f"hash {drain.hash} drains at {shown(drain.holder)}"
    return MisuseError(f"{holder}, so {shown(consumer)} can have no entries of it; call should_block before you send")
