"""Which of several plans did best, by a criterion that has a name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from keyshared.errors import ArgumentError
from keyshared.spark.pages.page import duration

__all__ = ["BY", "CRITERIA", "Criterion", "PlanOutcome", "best", "check_criterion", "figure", "verdict"]


class Criterion(NamedTuple):
    """What plans may be compared by.

    Attributes:
        field: The field of `PlanOutcome` that should be small.
        told: What the winner has, for the reader.
    """

    field: str
    told: str


CRITERIA: Final = {
    "wait-p99": Criterion("wait_p99_ms", "the shortest wait p99, in the topic-partition where it is longest"),
    "wait-p50": Criterion("wait_p50_ms", "the shortest wait p50, in the topic-partition where it is longest"),
    "wait-max": Criterion("wait_max_ms", "the shortest longest wait"),
    "backlog": Criterion("largest_backlog", "the smallest largest backlog, in the topic-partition where it is largest"),
    "redeliveries": Criterion("redeliveries", "the fewest redeliveries"),
}
"""The criteria by name."""

BY: Final = "wait-p99"
"""The criterion where nobody names one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOutcome:
    """What became of a log under a plan: sums over its topic-partitions, and what was worst in one of them.

    Attributes:
        plan: Its name.
        consumers: How many there are, those who join later included.
        lost: Messages of the log that were never acked: left, given up, dropped, skipped, or never offered because the
            plan ended before they arrived.
        outstanding: Messages that were offered and not settled in the end.
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
    lost: int
    outstanding: int
    deliveries: int
    redeliveries: int
    dead_lettered: int
    moved_keys: int | None
    wait_p50_ms: int
    wait_p99_ms: int
    wait_max_ms: int
    largest_backlog: int


def check_criterion(by: str) -> Criterion:
    """Return the criterion of that name.

    Args:
        by: One of `CRITERIA`.

    Raises:
        ArgumentError: There is none.
    """
    if by not in CRITERIA:
        raise ArgumentError("by", by, f"be one of {', '.join(CRITERIA)}")
    return CRITERIA[by]


def best(outcomes: Sequence[PlanOutcome], by: str) -> tuple[PlanOutcome, ...]:
    """Find the best of several plans.

    A plan under which more messages of the log are acked beats one under which fewer are, whatever the waits are. Then
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
        ...     counts = ("lost", "outstanding", "redeliveries", "dead_lettered", "moved_keys", "largest_backlog")
        ...     none = dict.fromkeys(counts, 0)
        ...     waits = dict.fromkeys(("wait_p50_ms", "wait_p99_ms", "wait_max_ms"), wait_ms)
        ...     return PlanOutcome(plan=plan, consumers=consumers, deliveries=9, **none, **waits)
        >>> found = [outcome("few", 70, 2), outcome("many", 5, 9), outcome("some", 5, 4)]
        >>> [each.plan for each in best(found, "wait-p99")]
        ['some']
        >>> verdict(found, "wait-p99")
        'winner by wait-p99: some, 5 ms; next is many, 5 ms, with 9 consumers instead of 4'
    """
    field = check_criterion(by).field
    if not outcomes:
        raise ArgumentError("outcomes", outcomes, "hold at least one plan")
    places = [(each.lost, getattr(each, field), each.consumers) for each in outcomes]
    return tuple(each for each, place in zip(outcomes, places, strict=True) if place == min(places))


def figure(outcome: PlanOutcome, field: str) -> str:
    """Return a figure of a plan for the reader.

    Args:
        outcome: Of the plan.
        field: Which one.
    """
    value = getattr(outcome, field)
    if value is None:
        return "not counted"
    return duration(value) if field.endswith("_ms") else f"{value:,}"


def verdict(outcomes: Sequence[PlanOutcome], by: str) -> str:
    """Return who is best, by what, and how far the next one is, in words.

    Args:
        outcomes: As for `best`.
        by: As for `best`.

    Raises:
        ArgumentError: As `best`.
    """
    winners, field = best(outcomes, by), check_criterion(by).field
    first = winners[0]
    if len(winners) > 1:
        alike = f"all have {figure(first, field)}, as many messages acked, and as many consumers"
        return f"no winner by {by}: {', '.join(each.plan for each in winners)} {alike}"
    told = f"winner by {by}: {first.plan}, {figure(first, field)}"
    others = [each for each in outcomes if each is not first]
    if not others:
        return told
    nearest = best(others, by)[0]
    told += f"; next is {nearest.plan}, {figure(nearest, field)}"
    if nearest.lost > first.lost:
        told += f", under which {nearest.lost - first.lost:,} more messages are never acked: that comes first"
    elif getattr(nearest, field) == getattr(first, field):
        told += f", with {nearest.consumers:,} consumers instead of {first.consumers:,}"
    return told
