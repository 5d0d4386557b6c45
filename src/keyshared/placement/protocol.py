"""What every way to build a placement has in common."""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self, TypeVar

from keyshared._checks import check_text
from keyshared.errors import ArgumentError, UnknownConsumerError, shown
from keyshared.placement.ranges import RangeMap, Weight
from keyshared.placement.spans import Moved

__all__ = ["Placement", "check_name", "check_unit_weight", "find_consumer"]

T = TypeVar("T")


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
        """Remove a consumer.

        Returns:
            What changed owners, in slot order.

        Raises:
            UnknownConsumerError: There is no such consumer.
        """
        ...

    def set_weight(self, name: str, weight: Weight) -> Sequence[Moved]:
        """Change a consumer's weight.

        Args:
            name: The consumer.
            weight: Its share relative to the others'.

        Returns:
            What changed owners, in slot order.

        Raises:
            UnknownConsumerError: There is no such consumer.
            ArgumentError: The weight can never work here.
        """
        ...

    def copy(self) -> Self:
        """Copy the builder: the same consumers, and nothing shared that can change."""
        ...


def check_name(name: object, parameter: str = "name") -> None:
    """Check that something can name a consumer, and can become the bytes of a point on a ring.

    Args:
        name: The name.
        parameter: What it is called in the error.

    Raises:
        ArgumentError: It is no text, is empty, or holds a lone surrogate.
    """
    text = check_text(parameter, name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(parameter, name, "be a str that UTF-8 can express") from None


def check_unit_weight(weight: object, reason: str) -> None:
    """Check a weight where a placement cannot tell one consumer's share from another's.

    Args:
        weight: The weight.
        reason: Why no other weight than 1 can work, as the end of the sentence.

    Raises:
        ArgumentError: It is not 1.
    """
    if isinstance(weight, bool) or weight != 1:
        raise ArgumentError("weight", weight, f"be 1: {reason}")


def find_consumer(consumers: Mapping[str, T], name: object) -> T:
    """Look up what a placement knows of a consumer.

    Args:
        consumers: Whatever it knows, by name.
        name: The name that is asked for.

    Raises:
        UnknownConsumerError: There is no such consumer, or that is no name.
    """
    if not isinstance(name, str):
        raise UnknownConsumerError(shown(name))
    if name not in consumers:
        raise UnknownConsumerError(name)
    return consumers[name]
