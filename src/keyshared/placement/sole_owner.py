"""A placement in which one consumer owns every key."""

from typing import Final

from keyshared._checks import check_number
from keyshared.errors import InvariantError
from keyshared.hashing import XXH64_SEED_42
from keyshared.placement.protocol import PlacementBuilder, check_name, find_consumer
from keyshared.placement.range_map import Moved, RangeMap, Weight

__all__ = ["SoleOwner"]

_BITS: Final = 1  # the narrowest space there is


class SoleOwner(PlacementBuilder):
    """A placement in which one named consumer owns every key, or no consumer owns any.

    A consumer that joins is on standby; another placement that names it makes it the owner. Weights have no effect.

    Args:
        owner: The owner of every key; None for no owner.

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

    __slots__ = ("_owner",)

    def __init__(self, owner: str | None = None) -> None:
        if owner is not None:
            check_name(owner, "owner")
        self._key_hash, self._slot_bits, self._ranges = XXH64_SEED_42, _BITS, None
        self._owner = owner
        self._consumers: dict[str, None] = {} if owner is None else {owner: None}

    def add(self, name: str, *, weight: Weight = 1) -> list[Moved]:
        """Add a consumer on standby; no slot moves.

        Raises:
            ConsumerExistsError: The name is there already.
            ArgumentError: The name or the weight can never work.
        """
        check_number("weight", weight, above=True)
        self._check_newcomer(name)
        self._consumers[name] = None
        return []

    def remove(self, name: str) -> list[Moved]:
        """Remove a consumer; if it was the owner, every slot becomes a hole.

        Raises:
            UnknownConsumerError: There is no such consumer.
        """
        find_consumer(self._consumers, name)
        del self._consumers[name]
        if name != self._owner:
            return []
        before, self._owner = self.ranges, None
        return self._changed(before)

    def set_weight(self, name: str, weight: Weight) -> list[Moved]:
        """Change nothing.

        Raises:
            UnknownConsumerError: There is no such consumer.
            ArgumentError: The weight can never work.
        """
        find_consumer(self._consumers, name)
        check_number("weight", weight, above=True)
        return []

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless the owner is a consumer; for tests."""
        super().check_invariants()
        if self._owner is not None and self._owner not in self._consumers:
            raise InvariantError("the owner is a consumer")

    def _build(self) -> RangeMap:
        return RangeMap.from_stops([1 << _BITS], [self._owner], slot_bits=_BITS)

    def _identity(self) -> object:
        return self._owner, self.consumers

    def __repr__(self) -> str:
        return f"<SoleOwner {self._owner!r} of {len(self._consumers)} consumers>"
