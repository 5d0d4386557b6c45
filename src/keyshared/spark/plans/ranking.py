"""Which of several plans did best, by a criterion that has a name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from keyshared.errors import ArgumentError

__all__ = ["CRITERIA", "PlanOutcome", "best"]

CRITERIA: Final = {
    "wait-p99": "wait_p99_ms",
    "wait-p50": "wait_p50_ms",
    "wait-max": "wait_max_ms",
    "backlog": "largest_backlog",
    "redeliveries": "redeliveries",
}
"""What plans may be compared by, and the field of `PlanOutcome` that should be small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOutcome:
    """What became of a log under a plan: sums over its topic-partitions, and what was worst in one of them.

    Attributes:
        plan: Its name.
        consumers: How many there are, those who join later included.
        outstanding: Messages that were not settled in the end.
        deliveries: How many, redeliveries included.
        redeliveries: How many of them were not the first of their message.
        dead_lettered: Messages that were given up.
        moved_keys: How many keys changed their owner, over all changes; None if the plan does not count them.
        wait_p50_ms: Of the topic-partition where half of the deliveries waited longest.
        wait_p99_ms: Likewise for all but one in a hundred.
        wait_max_ms: The longest of all.
        largest_backlog: The most messages that were available and not settled, in one topic-partition.
    """

    plan: str
    consumers: int
    outstanding: int
    deliveries: int
    redeliveries: int
    dead_lettered: int
    moved_keys: int | None
    wait_p50_ms: int
    wait_p99_ms: int
    wait_max_ms: int
    largest_backlog: int


def best(outcomes: Sequence[PlanOutcome], by: str) -> tuple[PlanOutcome, ...]:
    """Find the best of several plans.

    A plan that leaves or gives up fewer messages beats one that leaves or gives up more, whatever the waits are. Then
    the criterion decides, and then the number of consumers.

    Args:
        outcomes: What became of the log under each.
        by: One of `CRITERIA`.

    Returns:
        The best one; several if nothing tells them apart.

    Raises:
        ArgumentError: There is no such criterion, or no plan.

    Example:
        >>> def outcome(plan, wait_ms, consumers):
        ...     counts = ("outstanding", "redeliveries", "dead_lettered", "moved_keys", "largest_backlog")
        ...     none = dict.fromkeys(counts, 0)
        ...     waits = dict.fromkeys(("wait_p50_ms", "wait_p99_ms", "wait_max_ms"), wait_ms)
        ...     return PlanOutcome(plan=plan, consumers=consumers, deliveries=9, **none, **waits)
        >>> found = [outcome("few", 70, 2), outcome("many", 5, 9), outcome("some", 5, 4)]
        >>> [each.plan for each in best(found, "wait-p99")]
        ['some']
    """
    if by not in CRITERIA:
        raise ArgumentError("by", by, f"be one of {', '.join(CRITERIA)}")
    if not outcomes:
        raise ArgumentError("outcomes", outcomes, "hold at least one plan")
    places = [(each.outstanding + each.dead_lettered, getattr(each, CRITERIA[by]), each.consumers) for each in outcomes]
    return tuple(each for each, place in zip(outcomes, places, strict=True) if place == min(places))
