"""One consumer owns everything, and the others stand by."""

from typing import Final, Self

from keyshared._checks import check_number
from keyshared.errors import ConsumerExistsError, InvariantError
from keyshared.placement.protocol import check_name, find_consumer
from keyshared.placement.ranges import RangeMap, Weight
from keyshared.placement.spans import Moved

__all__ = ["SoleOwner"]

_BITS: Final = 1  # the narrowest space there is


class SoleOwner:
    """A placement in which one named consumer owns every key, or none owns any.

    A consumer that joins stands by; another placement that names it makes it the owner. Weights mean nothing here;
    what is none is refused all the same.

    Args:
        owner: The owner of everything; None for no owner.

    Raises:
        ArgumentError: The owner is no name.

    Source:
        Pulsar's exclusive and failover subscriptions, Celeriant's ordering_required.

    Example:
        >>> placement = SoleOwner("a")
        >>> placement.add("b")
        []
        >>> placement.owner("any key")
        'a'
    """

    __slots__ = ("_consumers", "_ranges")

    def __init__(self, owner: str | None = None) -> None:
        if owner is not None:
            check_name(owner, "owner")
        self._ranges = _all_to(owner)
        self._consumers: dict[str, None] = {} if owner is None else {owner: None}

    @property
    def ranges(self) -> RangeMap:
        """Who owns which slot now; the same object until something changes."""
        return self._ranges

    @property
    def consumers(self) -> tuple[str, ...]:
        """Every consumer that was added, in join order."""
        return tuple(self._consumers)

    def owner(self, key: str | bytes) -> str | None:
        """Return the owner of a key, which is that of every key.

        Returns:
            Its name; None if nobody owns anything.

        Raises:
            KeyTypeError: See `key_bytes`.
            ArgumentError: The key is None.
        """
        return self._ranges.owner_of(key)

    def add(self, name: str, *, weight: Weight = 1) -> list[Moved]:
        """Add a consumer that stands by; nothing moves.

        Raises:
            ConsumerExistsError: The name is there already.
            ArgumentError: The name or the weight can never work.
        """
        check_name(name)
        check_number("weight", weight, above=True)
        if name in self._consumers:
            raise ConsumerExistsError(name)
        self._consumers[name] = None
        return []

    def remove(self, name: str) -> list[Moved]:
        """Remove a consumer; if it was the owner, every slot becomes a hole.

        Raises:
            UnknownConsumerError: There is no such consumer.
        """
        find_consumer(self._consumers, name)
        del self._consumers[name]
        if name not in self._ranges.owners:
            return []
        before, self._ranges = self._ranges, _all_to(None)
        return before.moved(self._ranges)

    def set_weight(self, name: str, weight: Weight) -> list[Moved]:
        """Change nothing.

        Raises:
            UnknownConsumerError: There is no such consumer.
            ArgumentError: The weight can never work.
        """
        find_consumer(self._consumers, name)
        check_number("weight", weight, above=True)
        return []

    def copy(self) -> Self:
        """Copy the placement: the same consumers, and nothing shared that can change."""
        twin = type(self)()
        twin._ranges, twin._consumers = self._ranges, dict(self._consumers)  # noqa: SLF001  # of the same class
        return twin

    def check_invariants(self) -> None:
        """Check that the owner of everything is a consumer.

        Raises:
            InvariantError: It is not; a bug in this library.
        """
        self._ranges.check_invariants()
        if not self._consumers.keys() >= set(self._ranges.owners):
            raise InvariantError("the owner is a consumer")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SoleOwner):
            return NotImplemented
        return (self._ranges, self.consumers) == (other._ranges, other.consumers)

    __hash__ = None  # type: ignore[assignment]  # a builder changes

    def __repr__(self) -> str:
        return f"<SoleOwner {self._ranges.owner(0)!r} of {len(self._consumers)} consumers>"


def _all_to(owner: str | None) -> RangeMap:
    return RangeMap.from_stops([1 << _BITS], [owner], slot_bits=_BITS)
