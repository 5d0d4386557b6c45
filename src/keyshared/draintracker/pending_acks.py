"""What one consumer was sent and has not acked: by position in order, and by hash in order.

Two questions have to be quick. "Everything up to here is gone" (expiry, truncation) walks positions; "who holds what of
these hashes" (a change of owners) walks hashes. So both orders are kept, and a change of owners looks only at hashes
that have moved, however many entries are pending.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from sortedcontainers import SortedDict

from keyshared._checks import check_int, require
from keyshared.errors import ArgumentError

__all__ = ["PendingAck", "PendingAcks", "Position", "check_position"]

Position: TypeAlias = tuple[int, int]
"""Place of an entry in its log: any two ints that are ordered as a pair; Pulsar's are (ledger, entry)."""

_PARTS: Final = 2


class PendingAck(NamedTuple):
    """One entry that was sent and is not acked: an immutable value, as of the moment of asking.

    Attributes:
        position: Where it is in the log.
        hash: Its hash.
        remaining: How many messages of it are unacked; more than 1 only if the entry is a batch. 0 is legal.
        generation: Number of this sending, given by whoever sent it.
    """

    position: Position
    hash: int
    remaining: int = 1
    generation: int = 0


def check_position(position: object) -> None:
    """Check that something is a position.

    Args:
        position: Must be a pair of ints.

    Raises:
        ArgumentError: It is not.
    """
    if (
        not isinstance(position, tuple)
        or len(position) != _PARTS
        or type(position[0]) is not int
        or type(position[1]) is not int
    ):
        raise ArgumentError("position", position, "be a pair of ints, such as (ledger, entry)")


class PendingAcks:
    """One consumer's unacked entries.

    Source:
        Pulsar's PendingAcksMap. Differs: nothing is called back; what was removed is returned, so that the caller can
        act on it. Walks are in ascending order, always. Hashes are indexed.

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
        """Enter an entry, before it is sent: the consumer could be gone in between.

        Args:
            position: Where it is in the log. If it is pending already, the new sending takes the place of the old one.
            hash_: Its hash; any int.
            remaining: How many messages it holds.
            generation: Number of this sending.

        Returns:
            False if this is closed: the entry must not be sent then. Nothing was changed.

        Raises:
            ArgumentError: An argument has the wrong type, or ``remaining`` is negative. Nothing was changed.

        Complexity:
            O(log n), n entries pending.
        """
        check_position(position)
        check_int("hash_", hash_)
        check_int("generation", generation)
        if type(remaining) is not int or remaining < 0:
            raise ArgumentError("remaining", remaining, "be an int of at least 0")
        if self._closed:
            return False
        if position in self._acks:
            self.remove(position)
        self._acks[position] = PendingAck(position, hash_, remaining, generation)
        positions = self._by_hash.get(hash_)
        if positions is None:
            self._by_hash[hash_] = {position: None}
        else:
            positions[position] = None
        return True

    def remove(self, position: Position) -> PendingAck | None:
        """Take an entry off, because it was acked, nacked or has expired.

        Args:
            position: Where it is in the log.

        Returns:
            What was known of it; None if it was not pending.

        Complexity:
            O(log n), n entries pending.
        """
        ack = self._acks.get(position)
        if ack is not None:
            self._take(ack)
        return ack

    def remove_matching(self, position: Position, hash_: int, remaining: int) -> PendingAck | None:
        """Take an entry off only if it still is what the caller believes.

        Args:
            position: Where it is in the log.
            hash_: The hash that it must have.
            remaining: How many unacked messages it must have.

        Returns:
            What was known of it; None if it was not pending, or is not so. Nothing was changed then.

        Complexity:
            O(log n), n entries pending.
        """
        ack = self._acks.get(position)
        if ack is None or (ack.hash, ack.remaining) != (hash_, remaining):
            return None
        self._take(ack)
        return ack

    def reduce_remaining(self, position: Position, messages: int) -> int | None:
        """Count some messages of an entry as acked. The entry stays pending, even with none left.

        Args:
            position: Where it is in the log.
            messages: How many were acked. More than there are is a peer's double ack, and leaves none.

        Returns:
            How many remain, never less than 0; None if the entry is not pending.

        Raises:
            ArgumentError: ``messages`` is no int of at least 1. Nothing was changed.

        Complexity:
            O(1).
        """
        if type(messages) is not int or messages < 1:
            raise ArgumentError("messages", messages, "be an int of at least 1")
        ack = self._acks.get(position)
        if ack is None:
            return None
        left = max(0, ack.remaining - messages)
        self._acks[position] = ack._replace(remaining=left)
        return left

    def remove_up_to(self, position: Position) -> list[PendingAck]:
        """Take off every entry at or below a position.

        Args:
            position: The highest one to go; need not be pending.

        Returns:
            What was taken off, in ascending order.

        Raises:
            ArgumentError: ``position`` is not one. Nothing was changed.

        Complexity:
            O((1 + k) log n), k entries taken off, n pending; what stays is not looked at.
        """
        check_position(position)
        acks = [self._acks[below] for below in self._acks.irange(maximum=position)]
        for ack in acks:
            self._take(ack)
        return acks

    def remove_hash(self, hash_: int) -> list[PendingAck]:
        """Take off every entry of a hash.

        Args:
            hash_: The hash.

        Returns:
            What was taken off, in ascending order.

        Complexity:
            O(k log n), k entries taken off, n pending.
        """
        acks = [self._acks[position] for position in self.positions_of(hash_)]
        for ack in acks:
            self._take(ack)
        return acks

    def clear(self) -> list[PendingAck]:
        """Take off everything; more may be added.

        Returns:
            What was taken off, in ascending order.

        Complexity:
            O(n), n entries pending.
        """
        acks = list(self._acks.values())
        self._acks.clear()
        self._by_hash.clear()
        return acks

    def close(self) -> list[PendingAck]:
        """Take off everything and refuse what is added later, because the consumer leaves.

        Returns:
            What was taken off, in ascending order: it has to be sent again, to whoever is next.

        Complexity:
            O(n), n entries pending.
        """
        self._closed = True
        return self.clear()

    @property
    def closed(self) -> bool:
        """Whether adding is refused."""
        return self._closed

    def get(self, position: Position) -> PendingAck | None:
        """Return what is known of an entry, or None if it is not pending. O(1)."""
        return self._acks.get(position)

    def count(self, hash_: int) -> int:
        """Return how many entries of a hash are pending. O(1)."""
        positions = self._by_hash.get(hash_)
        return 0 if positions is None else len(positions)

    def positions_of(self, hash_: int) -> list[Position]:
        """List where the pending entries of a hash are, in ascending order. O(k log k), k of them."""
        return sorted(self._by_hash.get(hash_, ()))

    def hashes_between(self, start: int, stop: int) -> Iterator[int]:
        """Walk the hashes in ``range(start, stop)`` of which anything is pending.

        Args:
            start: First hash.
            stop: One past the last hash.

        Returns:
            The hashes in ascending order. Nothing may be added or taken off before the walk is over.

        Complexity:
            O(log n + k), k hashes found, n pending.
        """
        return self._by_hash.irange(start, stop, inclusive=(True, False))

    def hashes(self) -> Iterator[int]:
        """Walk all hashes of which anything is pending, in ascending order."""
        return iter(self._by_hash)

    def __iter__(self) -> Iterator[PendingAck]:
        """Entries in ascending order of position; nothing may be added or taken off meanwhile."""
        return iter(self._acks.values())

    def __len__(self) -> int:
        return len(self._acks)

    def __contains__(self, position: object) -> bool:
        return position in self._acks

    def check_invariants(self) -> None:
        """Check the structure against itself; for tests.

        Raises:
            InvariantError: It contradicts itself.

        Complexity:
            O(n), n entries pending.
        """
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
