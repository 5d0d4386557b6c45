"""The unacked entries of one consumer, in order of position and indexed by hash.

Two queries have to be fast: "everything up to this position has expired" walks positions, "which of these hashes are
pending" walks hashes. Both orders are kept, so that a change of owners looks only at hashes that have moved.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from sortedcontainers import SortedDict

from keyshared._checks import check_int, require
from keyshared.errors import ArgumentError

__all__ = ["PendingAck", "PendingAcks", "Position", "check_position"]

Position: TypeAlias = tuple[int, int]
"""Place of an entry in its log: a pair of ints in the order of the log; Pulsar's are (ledger, entry)."""

_PARTS: Final = 2


class PendingAck(NamedTuple):
    """One entry that was sent and is not acked.

    Attributes:
        position: Its place in the log.
        hash: Its hash.
        remaining: How many of its messages are unacked; more than 1 only if the entry is a batch. 0 is legal.
        generation: Number of this sending, chosen by the sender.
    """

    position: Position
    hash: int
    remaining: int = 1
    generation: int = 0


def check_position(position: object) -> None:
    """Raise `ArgumentError` unless ``position`` is a pair of ints."""
    if (
        not isinstance(position, tuple)
        or len(position) != _PARTS
        or type(position[0]) is not int
        or type(position[1]) is not int
    ):
        raise ArgumentError("position", position, "be a pair of ints, such as (ledger, entry)")


class PendingAcks:
    """The unacked entries of one consumer.

    Source:
        Pulsar's PendingAcksMap. Differs: removed entries are returned, no handler is called; walks are always in
        ascending order; hashes are indexed.

    Example:
        >>> pending = PendingAcks()
        >>> pending.add((3, 0), 7), pending.add((3, 1), 9, 10), pending.add((4, 0), 7)
        (True, True, True)
        >>> pending.reduce_remaining((3, 1), 4)          # a part of the batch was acked
        6
        >>> pending.count(7), list(pending.hashes_between(8, 100))
        (2, [9])
        >>> [ack.position for ack in pending.remove_up_to((3, 1))]
        [(3, 0), (3, 1)]
        >>> pending.close()
        [PendingAck(position=(4, 0), hash=7, remaining=1, generation=0)]
        >>> pending.add((5, 0), 7)
        False
    """

    __slots__ = ("_acks", "_by_hash", "_closed")

    def __init__(self) -> None:
        self._acks: SortedDict[Position, PendingAck] = SortedDict()
        self._by_hash: SortedDict[int, dict[Position, None]] = SortedDict()
        self._closed = False

    def add(self, position: Position, hash_: int, remaining: int = 1, *, generation: int = 0) -> bool:
        """Record an entry before it is sent, in place of a pending one at the same position. O(log n).

        Returns:
            False if this is closed: the entry must not be sent. Nothing was changed.

        Raises:
            ArgumentError: An argument is of the wrong type, or ``remaining`` is negative. Nothing was changed.
        """
        check_position(position)
        check_int("hash_", hash_)
        check_int("generation", generation)
        check_int("remaining", remaining, 0)
        if self._closed:
            return False
        if position in self._acks:
            self.remove(position)
        self._acks[position] = PendingAck(position, hash_, remaining, generation)
        self._by_hash.setdefault(hash_, {})[position] = None
        return True

    def remove(self, position: Position) -> PendingAck | None:
        """Remove an entry and return it; None if it is not pending. O(log n)."""
        ack = self._acks.get(position)
        if ack is not None:
            self._take(ack)
        return ack

    def reduce_remaining(self, position: Position, messages: int) -> int | None:
        """Count some messages of an entry as acked; it stays pending, even with none left. O(1).

        Returns:
            How many remain: 0 after a double ack; None if the entry is not pending.

        Raises:
            ArgumentError: ``messages`` is not an int of at least 1. Nothing was changed.
        """
        check_int("messages", messages, 1)
        ack = self._acks.get(position)
        if ack is None:
            return None
        left = max(0, ack.remaining - messages)
        self._acks[position] = ack._replace(remaining=left)
        return left

    def remove_up_to(self, position: Position) -> list[PendingAck]:
        """Remove every entry at or below a position, and return them in ascending order. O((1 + k) log n), k removed.

        Raises:
            ArgumentError: ``position`` is not a pair of ints. Nothing was changed.
        """
        check_position(position)
        acks = [self._acks[below] for below in self._acks.irange(maximum=position)]
        for ack in acks:
            self._take(ack)
        return acks

    def remove_hash(self, hash_: int) -> list[PendingAck]:
        """Remove every entry of a hash, and return them in ascending order. O(k log n), k removed."""
        acks = [self._acks[position] for position in self.positions_of(hash_)]
        for ack in acks:
            self._take(ack)
        return acks

    def clear(self) -> list[PendingAck]:
        """Remove all entries, and return them in ascending order. O(n)."""
        acks = list(self._acks.values())
        self._acks.clear()
        self._by_hash.clear()
        return acks

    def close(self) -> list[PendingAck]:
        """Remove all entries and refuse further ones, because the consumer leaves. O(n).

        Returns:
            The removed entries in ascending order, to be sent again to another consumer.
        """
        self._closed = True
        return self.clear()

    @property
    def closed(self) -> bool:
        """Whether `add` refuses entries."""
        return self._closed

    def get(self, position: Position) -> PendingAck | None:
        """Return an entry; None if it is not pending. O(1)."""
        return self._acks.get(position)

    def count(self, hash_: int) -> int:
        """Return how many entries of a hash are pending. O(1)."""
        return len(self._by_hash.get(hash_, ()))

    def positions_of(self, hash_: int) -> list[Position]:
        """Return the positions of a hash's pending entries in ascending order. O(k log k)."""
        return sorted(self._by_hash.get(hash_, ()))

    def hashes_between(self, start: int, stop: int) -> Iterator[int]:
        """Iterate over the pending hashes in ``range(start, stop)``, ascending. O(log n + k).

        Do not add or remove entries during the iteration.
        """
        return self._by_hash.irange(start, stop, inclusive=(True, False))

    def hashes(self) -> Iterator[int]:
        """Iterate over all pending hashes in ascending order."""
        return iter(self._by_hash)

    def __iter__(self) -> Iterator[PendingAck]:
        """Iterate over the entries in ascending order; do not add or remove entries meanwhile."""
        return iter(self._acks.values())

    def __len__(self) -> int:
        return len(self._acks)

    def __contains__(self, position: object) -> bool:
        return position in self._acks

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure contradicts itself; for tests. O(n)."""
        require(all(where == ack.position for where, ack in self._acks.items()), "an entry knows its position")
        by_hash: dict[int, set[Position]] = {}
        for ack in self._acks.values():
            by_hash.setdefault(ack.hash, set()).add(ack.position)
            require(ack.remaining >= 0, "no entry has less than no messages left")
        indexed = {hash_: set(positions) for hash_, positions in self._by_hash.items()}
        require(by_hash == indexed, "the index by hash holds what is pending, and nothing else")
        require(not self._closed or not self._acks, "nothing is pending once this is closed")

    def _take(self, ack: PendingAck) -> None:
        del self._acks[ack.position]
        positions = self._by_hash[ack.hash]
        del positions[ack.position]
        if not positions:
            del self._by_hash[ack.hash]
