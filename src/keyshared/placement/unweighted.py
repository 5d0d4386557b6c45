"""What placements without weights have in common: names, a value that is built when it is asked for, and its owners."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from keyshared.errors import ConsumerExistsError
from keyshared.hashing.named import KeyHash
from keyshared.placement.protocol import check_name, check_unit_weight, find_consumer
from keyshared.placement.ranges import RangeMap, Weight
from keyshared.placement.spans import Moved

__all__ = ["UnweightedPlacement"]


class UnweightedPlacement(ABC):
    """A builder of placements in which every consumer has the weight 1."""

    __slots__ = ("_key_hash", "_names", "_ranges", "_slot_bits")

    _NO_WEIGHTS: ClassVar[str]
    """Why no other weight than 1 can work, as the end of the sentence."""

    _key_hash: KeyHash
    _slot_bits: int
    _names: Mapping[str, object]  # what each consumer has, in join order
    _ranges: RangeMap | None  # None when something has changed since it was built

    def set_weight(self, name: str, weight: Weight) -> list[Moved]:
        """Accept the weight 1, which every consumer has; nothing moves.

        Raises:
            UnknownConsumerError: There is no such consumer.
            ArgumentError: The weight is not 1.
        """
        find_consumer(self._names, name)
        self._check_weight(weight)
        return []

    @property
    def ranges(self) -> RangeMap:
        """Who owns which slot now; the same object until something changes. Without consumers it is one hole."""
        if self._ranges is None:
            self._ranges = self._build()
        return self._ranges

    @property
    def consumers(self) -> tuple[str, ...]:
        """Every consumer, in join order."""
        return tuple(self._names)

    def owner(self, key: str | bytes) -> str | None:
        """Return the owner of a key; see `RangeMap.owner_of`, which is quicker for many keys.

        Returns:
            The owner of its slot; None in a hole.

        Raises:
            KeyTypeError: See `key_bytes`.
            ArgumentError: The key is None.
        """
        return self.ranges.owner_of(key)

    @abstractmethod
    def _build(self) -> RangeMap:
        """Build the value anew."""

    def _check_newcomer(self, name: str) -> None:
        check_name(name)
        if name in self._names:
            raise ConsumerExistsError(name)

    def _check_weight(self, weight: object) -> None:
        check_unit_weight(weight, self._NO_WEIGHTS)
