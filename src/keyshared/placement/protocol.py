"""The protocol of placements, and the base of their builders."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar

from keyshared._checks import check_text, configuration
from keyshared.errors import ArgumentError, ConsumerExistsError, InvariantError, UnknownConsumerError, shown
from keyshared.hashing import KeyHash
from keyshared.placement.range_map import Moved, RangeMap, Weight, check_space

__all__ = ["Placement", "PlacementBuilder", "check_name", "check_unit_weight", "find_consumer"]

T = TypeVar("T")


class Placement(Protocol):
    """A builder of placements: consumers come and go, and `ranges` is the value: the owner of each slot.

    A call that raises has changed nothing. Not thread-safe.

    Example:
        >>> from keyshared.ring import HashRing
        >>> placement: Placement = HashRing(["a", "b"])
        >>> {move.new for move in placement.add("c")}
        {'c'}
    """

    @property
    def ranges(self) -> RangeMap:
        """The owner of each slot now; the same object until something changes."""
        ...

    @property
    def consumers(self) -> tuple[str, ...]:
        """Every consumer that was added, in join order, also those that own nothing."""
        ...

    def add(self, name: str, *, weight: Weight = 1) -> Sequence[Moved]:
        """Add a consumer.

        Args:
            name: The consumer that joins.
            weight: Its share relative to the others'.

        Returns:
            What changed owners, in slot order.

        Raises:
            ConsumerExistsError: The name is there already.
            ArgumentError: The name or the weight can never work here.
        """
        ...

    def remove(self, name: str) -> Sequence[Moved]:
        """Remove a consumer; returns what changed owners, in slot order. Raises `UnknownConsumerError`."""
        ...

    def set_weight(self, name: str, weight: Weight) -> Sequence[Moved]:
        """Change a consumer's weight; returns what changed owners, in slot order.

        Raises:
            UnknownConsumerError: There is no such consumer.
            ArgumentError: The weight can never work here.
        """
        ...

    def copy(self) -> Self:
        """Copy the builder: the same consumers, and nothing shared that can change."""
        ...


class PlacementBuilder(ABC):
    """A builder of placements. Each kind adds its state, and builds the value from it."""

    __slots__ = ("_consumers", "_key_hash", "_ranges", "_slot_bits")

    _NO_WEIGHTS: ClassVar[str]
    """Why only the weight 1 can work here, as the end of the sentence."""

    _consumers: dict[str, Any]  # the state of each consumer, in join order
    _key_hash: KeyHash
    _slot_bits: int
    _ranges: RangeMap | None  # None after a change, until it is built again

    def _set_space(self, key_hash: KeyHash, slot_bits: int) -> None:
        """Begin without consumers, over so many slots of a hash; raises `ConfigError`."""
        with configuration():
            check_space(key_hash, slot_bits)
        self._key_hash = key_hash
        self._slot_bits = slot_bits
        self._consumers = {}
        self._ranges = None

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
        """Accept the weight 1, which every consumer has; no slot moves. As `Placement.set_weight`."""
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


def check_name(name: object, parameter: str = "name") -> None:
    """Raise `ArgumentError` unless something can name a consumer: a str that UTF-8 can express, and not empty."""
    text = check_text(parameter, name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(parameter, name, "be a str that UTF-8 can express") from None


def check_unit_weight(weight: object, reason: str) -> None:
    """Raise `ArgumentError` unless a weight is 1; the reason ends the sentence."""
    if isinstance(weight, bool) or weight != 1:
        raise ArgumentError("weight", weight, f"be 1: {reason}")


def find_consumer(consumers: Mapping[str, T], name: object) -> T:
    """Return what a placement knows of a consumer, or raise `UnknownConsumerError`."""
    if not isinstance(name, str):
        raise UnknownConsumerError(shown(name))
    if name not in consumers:
        raise UnknownConsumerError(name)
    return consumers[name]
