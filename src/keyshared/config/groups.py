"""How much of the subscription a group of keys gets."""

from dataclasses import dataclass

from keyshared._checks import check_int, configuration

__all__ = ["GroupLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The limits of a group of keys.

    Args:
        weight: How many turns in a row its keys get at a consumer, before the next group has its turns.
        max_in_flight: Its open deliveries; None for no limit.
        per_second: How many of its deliveries may begin in a second, in the long run; None for no limit.
        burst: How many of them may begin at once, after a pause that was long enough. Only with ``per_second``.

    Raises:
        ConfigError: A field is out of range.

    Example:
        >>> GroupLimits(per_second=50, burst=10).weight
        1
    """

    weight: int = 1
    max_in_flight: int | None = None
    per_second: int | None = None
    burst: int = 1

    @configuration()
    def __post_init__(self) -> None:
        check_group_limits(self.weight, self.max_in_flight, self.per_second, self.burst)


def check_group_limits(weight: object, max_in_flight: object, per_second: object, burst: object) -> None:
    """Check the limits of a group.

    Args:
        weight: An int of at least 1.
        max_in_flight: An int of at least 1, or None.
        per_second: An int of at least 1, or None.
        burst: An int of at least 1.

    Raises:
        ArgumentError: One of them is something else.
    """
    check_int("weight", weight, 1)
    for name, limit in (("max_in_flight", max_in_flight), ("per_second", per_second)):
        if limit is not None:
            check_int(name, limit, 1, ", or None for no limit")
    check_int("burst", burst, 1)
