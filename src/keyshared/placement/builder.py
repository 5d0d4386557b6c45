"""The base of all placements: consumers in join order, and a value that is built when it is read."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from keyshared.errors import ConsumerExistsError, InvariantError
from keyshared.hashing.named import KeyHash
from keyshared.placement.protocol import check_name, check_unit_weight, find_consumer
from keyshared.placement.ranges import RangeMap, Weight
from keyshared.placement.spans import Moved

__all__ = ["PlacementBuilder"]


class PlacementBuilder(ABC):
    """A builder of placements. Each kind adds its state, and says how the value is built from it."""

    __slots__ = ("_consumers", "_key_hash", "_ranges", "_slot_bits")

    _NO_WEIGHTS: ClassVar[str]
    """Why only the weight 1 can work here, as the end of the sentence."""

    _consumers: dict[str, Any]  # the state of each consumer, in join order
    _key_hash: KeyHash
    _slot_bits: int
    _ranges: RangeMap | None  # None after a change, until it is built again

    @property
    def ranges(self) -> RangeMap:
        """The owner of each slot; the same object until something changes. Without consumers it is one hole."""
        if self._ranges is None:
            self._ranges = self._build()
        return self._ranges

    @property
    def consumers(self) -> tuple[str, ...]:
        """Every consumer in join order."""
        return tuple(self._consumers)

    def owner(self, key: str | bytes) -> str | None:
        """Return the owner of a key, None in a hole; see `RangeMap.owner_of`, which is quicker for many keys."""
        return self.ranges.owner_of(key)

    def set_weight(self, name: str, weight: Weight) -> Sequence[Moved]:
        """Accept the weight 1, which every consumer has; no slot moves.

        Raises:
            UnknownConsumerError: There is no such consumer.
            ArgumentError: The weight is not 1.
        """
        find_consumer(self._consumers, name)
        check_unit_weight(weight, self._NO_WEIGHTS)
        return []

    def copy(self) -> Self:
        """Return a copy with the same consumers that shares nothing that can change."""
        twin = type(self).__new__(type(self))
        for kind in type(self).__mro__:
            for slot in getattr(kind, "__slots__", ()):
                value = getattr(self, slot)
                setattr(twin, slot, value.copy() if hasattr(value, "copy") else value)
        return twin

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the value is not that of the state; for tests. Builds it again."""
        self.ranges.check_invariants()
        if self.ranges != self._build():
            raise InvariantError("the ranges are those of the consumers")

    @abstractmethod
    def _build(self) -> RangeMap:
        """Build the value."""

    @abstractmethod
    def _identity(self) -> object:
        """Return all that makes two placements of this kind equal, besides hash and space."""

    def _changed(self, before: RangeMap) -> list[Moved]:
        self._ranges = None
        return before.moved(self.ranges)

    def _check_newcomer(self, name: str) -> None:
        check_name(name)
        if name in self._consumers:
            raise ConsumerExistsError(name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        space = (self._key_hash, self._slot_bits) == (other._key_hash, other._slot_bits)
        return space and self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment]  # a builder changes
