"""Replays of one log by several plans at once: plain Python iterators that read each row once for all plans.

The simulations of a topic-partition take turns: each runs until it has taken the next block of messages, so that no
simulation runs ahead of the others and no more than a block of the log is kept.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import tee
from typing import Final, NamedTuple

from keyshared._checks import check_kind, check_text
from keyshared.errors import ArgumentError
from keyshared.simulate.group import Arrival, Group
from keyshared.simulate.simulation import Simulation
from keyshared.simulate.summary import DEFAULT_HOTTEST, DEFAULT_POINTS, Tally
from keyshared.spark.replays.partition import MessageRow, SummaryRow, arrivals_of

__all__ = ["PlanSummary", "check_plans", "what_if_partition"]

_BLOCK: Final = 1_000


class PlanSummary(NamedTuple):
    """What a plan would have done with a topic-partition: what becomes a row of `WHAT_IF_SCHEMA`.

    Attributes:
        plan: Name of the plan.
        summary: The figures, and how it ended.
    """

    plan: str
    summary: SummaryRow


def what_if_partition(
    rows: Iterable[MessageRow],
    plans: Mapping[str, Group],
    *,
    points: int = DEFAULT_POINTS,
    hottest: int = DEFAULT_HOTTEST,
) -> Iterator[PlanSummary]:
    """Replay topic-partitions one after the other by several plans at once: the function for ``rdd.mapPartitions``.

    Args:
        rows: Messages, see `keyshared.spark.replays.partition.Message`; read lazily, and once. Those of a
            topic-partition stand together, in offset order.
        plans: Plans by name. They are not changed.
        points: How many points of the backlog over time are wanted, at most.
        hottest: How many of the keys with most messages are wanted.

    Yields:
        Of each topic-partition one `PlanSummary` for each plan, in the order of plans: what `replay_partition` says
        with that plan alone.

    Raises:
        ArgumentError: Rows of a topic-partition do not stand together; see `check_plans` and `Simulation`.
        MisuseError: Offsets do not grow; see `Simulation`. A note says in which plan and topic-partition.

    Complexity:
        That of `replay_partition` for each plan. Memory O(outstanding messages + keys) of one topic-partition for each
        plan, and 1,000 messages.

    Example:
        >>> from keyshared.simulate import SimulatedConsumer, Fixed
        >>> one, two = (SimulatedConsumer(name, Fixed(10), limit=1) for name in ("a", "b"))
        >>> plans = {"one": Group(consumers=[one]), "two": Group(consumers=[one, two])}
        >>> log = [("p", offset, f"key-{offset}", 0, None) for offset in range(10)]
        >>> for plan, row in what_if_partition(log, plans):
        ...     print(plan, row.topic_partition, row.summary.wait.max_ms)
        one p 90
        two p 50
    """
    check_plans(plans)
    for topic_partition, arrivals in arrivals_of(rows):
        feeds = tee(arrivals, len(plans))
        runs = [
            _Run(name, topic_partition, Simulation(plan, counted), counted, Tally(points=points, hottest=hottest))
            for (name, plan), counted in zip(plans.items(), map(_Counted, feeds), strict=True)
        ]
        del feeds  # or they would keep what every plan has read
        yield from _side_by_side(runs)


def check_plans(plans: object) -> None:
    """Check that there are plans, each with a name.

    Args:
        plans: See `what_if_partition`.

    Raises:
        ArgumentError: They are no mapping, there is none, a name is no text or empty, or a value is no `Group`.
    """
    if not isinstance(plans, Mapping) or not plans:
        raise ArgumentError("plans", plans, "be a mapping from names to plans, with at least one of them")
    for name, plan in plans.items():
        check_text("plans", name)
        check_kind(f"plan {name!r}", plan, Group)


class _Counted:
    """Messages, and how many of them were taken."""

    __slots__ = ("_arrivals", "taken")

    def __init__(self, arrivals: Iterator[Arrival]) -> None:
        self._arrivals = arrivals
        self.taken = 0

    def __iter__(self) -> "_Counted":
        return self

    def __next__(self) -> Arrival:
        arrival = next(self._arrivals)
        self.taken += 1
        return arrival


class _Run(NamedTuple):
    """A plan at work on a topic-partition."""

    plan: str
    topic_partition: str
    simulation: Simulation
    arrivals: _Counted
    tally: Tally

    def advance(self, goal: int) -> PlanSummary | None:
        """Run until so many messages were taken; return the result if that was the end."""
        arrivals, add = self.arrivals, self.tally.add
        try:
            for row in self.simulation:
                add(row)
                if arrivals.taken >= goal:
                    return None
        except Exception as error:
            error.add_note(f"in plan {self.plan!r}, topic-partition {self.topic_partition!r}")
            raise
        state = self.simulation.state
        summary = SummaryRow(self.topic_partition, str(state.stop), state.outstanding, self.tally.summary())
        return PlanSummary(self.plan, summary)


def _side_by_side(runs: list[_Run]) -> Iterator[PlanSummary]:
    """Run iterators in turns until all are over; close each that is over, and with it what it would have read."""
    order = [run.plan for run in runs]
    found: dict[str, PlanSummary] = {}
    goal = 0
    while runs:
        goal += _BLOCK
        waiting = []
        while runs:
            run = runs.pop(0)
            over = run.advance(goal)
            if over is None:
                waiting.append(run)
            else:
                found[run.plan] = over
        runs = waiting
    yield from (found[plan] for plan in order)
