"""Which consumers a plan has at which time, and each one's even share. Plain Python; needs no Spark."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from keyshared.simulate.group import Group, Join, SetWeight
from keyshared.spark.plans.members import members

__all__ = ["Moment", "Phase", "everybody", "ideal_moves", "phases", "shares"]


class Phase(NamedTuple):
    """A stretch of time in which the same consumers are there.

    Attributes:
        from_ms: When it begins; it ends where the next one begins.
        weights: Who is there, and what share of the keys each should have, relative to the others.
    """

    from_ms: int
    weights: Mapping[str, float]


class Moment(NamedTuple):
    """A change of membership as a replay tells it.

    Attributes:
        at_ms: When.
        event: What: joined, left, evicted, changed.
        consumer: Who.
    """

    at_ms: int
    event: str
    consumer: str


def everybody(plan: Group) -> tuple[str, ...]:
    """Name all consumers of a plan.

    Args:
        plan: The plan.

    Returns:
        Each name once, in the order of joining.
    """
    later = (change.consumer.name for change in plan.changes if isinstance(change, Join))
    return tuple(dict.fromkeys([*(consumer.name for consumer in plan.consumers), *later]))


def phases(plan: Group) -> tuple[Phase, ...]:
    """Cut the time of a plan wherever a consumer comes, goes, or gets another weight.

    A crashed consumer is not there, although its keys wait for it during its grace period.

    Args:
        plan: The plan.

    Returns:
        In order of time; the first begins at 0, and none is empty of time.

    Example:
        >>> from keyshared.simulate.group import SimulatedConsumer, Crash, Return
        >>> plan = Group(consumers=[SimulatedConsumer("a"), SimulatedConsumer("b")], changes=[Crash(50, "a"), Return(90, "a")])
        >>> [(phase.from_ms, list(phase.weights)) for phase in phases(plan)]
        [(0, ['a', 'b']), (50, ['b']), (90, ['b', 'a'])]
    """
    found = {
        each.at_ms: {name: float(consumer.weight) for name, consumer in each.here.items()} for each in members(plan)
    }
    starts = list(found)
    kept = [start for before, start in zip([None, *starts], starts, strict=False) if _differs(found, before, start)]
    return tuple(Phase(start, found[start]) for start in kept)


def shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Split evenly, by weight.

    Args:
        weights: Of each consumer.

    Returns:
        The part of each, 1 together; equal parts if no consumer has a weight.
    """
    total = sum(weights.values())
    return {name: weight / total if total else 1 / len(weights) for name, weight in weights.items()}


def ideal_moves(plan: Group, moments: Iterable[Moment]) -> Iterator[float]:
    """Return the least part of the keys that each change of membership has to move: 1/N if all N weigh the same.

    Args:
        plan: The plan.
        moments: What happened, in order of time, without the joins at the start.

    Yields:
        For each moment the sum by which shares grow; other shares shrink by as much.
    """
    here = {consumer.name: float(consumer.weight) for consumer in plan.consumers}
    for moment in moments:
        before = shares(here)
        if moment.event == "joined":
            here[moment.consumer] = _weight(plan, moment)
        elif moment.event == "changed":
            if moment.consumer in here:
                here[moment.consumer] = _weight(plan, moment)
        else:
            here.pop(moment.consumer, None)
        after = shares(here)
        changed = [after.get(name, 0.0) - before.get(name, 0.0) for name in {**before, **after}]
        # the same, but for the first who comes and the last who goes
        yield max(sum(part for part in changed if part > 0), -sum(part for part in changed if part < 0))


def _differs(found: Mapping[int, Mapping[str, float]], before: int | None, start: int) -> bool:
    return before is None or found[before] != found[start]


def _weight(plan: Group, moment: Moment) -> float:
    """Return the weight that a consumer has from a moment on: that of its last join, or the one set since."""
    weight = next((float(consumer.weight) for consumer in plan.consumers if consumer.name == moment.consumer), 1.0)
    for change in plan.changes:
        if change.at_ms > moment.at_ms:
            break
        match change:
            case Join(_, consumer) if consumer.name == moment.consumer:
                weight = float(consumer.weight)
            case SetWeight(_, name, given) if name == moment.consumer:
                weight = float(given)
            case _:
                pass
    return weight
