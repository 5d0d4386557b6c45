"""When each consumer of a plan is up, draining or away. Plain Python; needs no Spark."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from keyshared.simulate.plan import ConsumerPlan, Crash, Join, Leave, Plan, Return

__all__ = ["State", "Stay", "concurrencies", "here_ms", "stays"]


class State(StrEnum):
    """What a consumer can be."""

    UP = "up"
    DRAINING = "draining"  # it has left, and ends what it has
    AWAY = "away"  # crashed, or gone


class Stay(NamedTuple):
    """A stretch of time in which a consumer is in one state.

    Attributes:
        consumer: Who.
        from_ms: When it begins.
        until_ms: When it ends.
        state: The state.
    """

    consumer: str
    from_ms: int
    until_ms: int
    state: State


def stays(plan: Plan, first_ms: int, last_ms: int, ended_ms: Mapping[str, int]) -> tuple[Stay, ...]:
    """Follow each consumer through the time of a replay.

    Args:
        plan: What was replayed.
        first_ms: When it began.
        last_ms: When it ended.
        ended_ms: When the last delivery of each consumer ended: so long it may have drained.

    Returns:
        Consumer by consumer in the order of joining, each in order of time, without stretches of no length. Before it
        joins a consumer has none.

    Example:
        >>> plan = Plan(consumers=[ConsumerPlan("a"), ConsumerPlan("b")], changes=[Crash(50, "a"), Return(90, "a")])
        >>> [(stay.consumer, stay.from_ms, stay.until_ms, str(stay.state)) for stay in stays(plan, 0, 100, {})]
        [('a', 0, 50, 'up'), ('a', 50, 90, 'away'), ('a', 90, 100, 'up'), ('b', 0, 100, 'up')]
    """
    begun: dict[str, list[tuple[int, State]]] = {consumer.name: [(first_ms, State.UP)] for consumer in plan.consumers}
    for change in plan.changes:
        match change:
            case Join(at_ms, consumer):
                begun.setdefault(consumer.name, []).append((at_ms, State.UP))
            case Return(at_ms, name):
                begun[name].append((at_ms, State.UP))
            case Crash(at_ms, name):
                begun[name].append((at_ms, State.AWAY))
            case Leave(at_ms, name, drain_ms):
                begun[name] += _leaving(change, at_ms if drain_ms == 0 else ended_ms.get(name, at_ms))
            case _:
                pass  # limits and weights change nobody's state
    return tuple(stay for name, states in begun.items() for stay in _cut(name, states, first_ms, last_ms))


def here_ms(stayed: tuple[Stay, ...], consumer: str, from_ms: int, until_ms: int) -> int:
    """Return for how long a consumer was up or draining.

    Args:
        stayed: What `stays` gave.
        consumer: Who.
        from_ms: Where to begin.
        until_ms: Where to end.
    """
    return sum(
        max(0, min(until_ms, stay.until_ms) - max(from_ms, stay.from_ms))
        for stay in stayed
        if stay.consumer == consumer and stay.state is not State.AWAY
    )


def concurrencies(plan: Plan) -> dict[str, int]:
    """Return how many messages of a topic-partition each consumer works on at once, at most."""
    joining: list[ConsumerPlan] = [change.consumer for change in plan.changes if isinstance(change, Join)]
    found: dict[str, int] = {}
    for consumer in [*plan.consumers, *joining]:
        found[consumer.name] = max(consumer.concurrency, found.get(consumer.name, 0))
    return found


def _leaving(change: Leave, ended_ms: int) -> list[tuple[int, State]]:
    latest = ended_ms if change.drain_ms is None else min(ended_ms, change.at_ms + change.drain_ms)
    return [(change.at_ms, State.DRAINING), (max(change.at_ms, latest), State.AWAY)]


def _cut(name: str, states: list[tuple[int, State]], first_ms: int, last_ms: int) -> Iterator[Stay]:
    """Make stretches of beginnings; who comes back before it has drained is up from then on."""
    for place, (from_ms, state) in enumerate(states):
        until_ms = min([last_ms, *(start for start, _ in states[place + 1 :])])
        start = max(first_ms, from_ms)
        if until_ms > start:
            yield Stay(name, start, until_ms, state)
