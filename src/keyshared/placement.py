"""What every way to build a placement has in common."""

from typing import Protocol, Self

from keyshared.ranges import Moved, RangeMap, Weight

__all__ = ["Placement"]


class Placement(Protocol):
    """A builder of placements: consumers come and go, and `ranges` is the value that says who owns what.

    A call that raises has changed nothing. Not thread-safe.

    Example:
        >>> from keyshared.ring import HashRing
        >>> placement: Placement = HashRing(["a", "b"])
        >>> {move.new for move in placement.add("c")}
        {'c'}
    """

    @property
    def ranges(self) -> RangeMap:
        """Who owns which slot now; the same object until something changes."""
        ...

    @property
    def consumers(self) -> tuple[str, ...]:
        """Everyone who was added, in join order, also those who own nothing."""
        ...

    def add(self, name: str, *, weight: Weight = 1) -> list[Moved]:
        """Add a consumer.

        Args:
            name: Who joins.
            weight: Its share relative to the others'.

        Returns:
            What changed owners, in slot order.

        Raises:
            ConsumerExistsError: The name is there already.
            ConfigError: The name or the weight can never work here.
        """
        ...

    def remove(self, name: str) -> list[Moved]:
        """Remove a consumer.

        Args:
            name: Who leaves.

        Returns:
            What changed owners, in slot order.

        Raises:
            UnknownConsumerError: There is no such consumer.
        """
        ...

    def set_weight(self, name: str, weight: Weight) -> list[Moved]:
        """Change a consumer's weight.

        Args:
            name: Whose.
            weight: Its share relative to the others'.

        Returns:
            What changed owners, in slot order.

        Raises:
            UnknownConsumerError: There is no such consumer.
            ConfigError: The weight can never work here.
        """
        ...

    def copy(self) -> Self:
        """Give an independent builder with the same consumers; it shares only values."""
        ...
