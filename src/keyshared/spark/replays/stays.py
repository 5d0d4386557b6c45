"""When each consumer of a plan is up, draining or away. Plain Python; needs no Spark."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import groupby, pairwise
from typing import NamedTuple

from keyshared.config import DispatcherConfig
from keyshared.simulate.group import Crash, Group, Join, Leave, Return, SimulatedConsumer
from keyshared.spark.plans.load import limit_of
from keyshared.spark.plans.members import members

__all__ = ["Room", "State", "Stay", "Visit", "joins", "rooms", "stays"]


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


class Room(NamedTuple):
    """A stretch of time in which a consumer can work on the same number of messages at once.

    Attributes:
        consumer: Who.
        from_ms: When it begins.
        until_ms: When it ends.
        messages: How many, of each topic-partition.
    """

    consumer: str
    from_ms: int
    until_ms: int
    messages: int


class Visit(NamedTuple):
    """A time between two joins of a consumer: who leaves and joins again has nothing left of the time before.

    Attributes:
        consumer: Who.
        joins: How often the plan has let it join by then; 0 for a consumer of the beginning.
    """

    consumer: str
    joins: int


def stays(plan: Group, first_ms: int, last_ms: int, ended_ms: Mapping[Visit, int]) -> tuple[Stay, ...]:
    """Follow each consumer through the time of a replay.

    Args:
        plan: What was replayed.
        first_ms: When it began.
        last_ms: When it ended.
        ended_ms: When the last delivery of each consumer ended, by visit: so long it may have drained.

    Returns:
        Consumer by consumer in the order of joining, each in order of time, without stretches of no length. Before it
        joins a consumer has none.

    Example:
        >>> from keyshared.simulate.group import SimulatedConsumer
        >>> plan = Group(consumers=[SimulatedConsumer("a"), SimulatedConsumer("b")], changes=[Crash(50, "a"), Return(90, "a")])
        >>> [(stay.consumer, stay.from_ms, stay.until_ms, str(stay.state)) for stay in stays(plan, 0, 100, {})]
        [('a', 0, 50, 'up'), ('a', 50, 90, 'away'), ('a', 90, 100, 'up'), ('b', 0, 100, 'up')]
    """
    begun: dict[str, list[tuple[int, State]]] = {consumer.name: [(first_ms, State.UP)] for consumer in plan.consumers}
    joined: Counter[str] = Counter()
    for change in plan.changes:
        match change:
            case Join(at_ms, consumer):
                joined[consumer.name] += 1
                begun.setdefault(consumer.name, []).append((at_ms, State.UP))
            case Return(at_ms, name):
                begun[name].append((at_ms, State.UP))
            case Crash(at_ms, name):
                begun[name].append((at_ms, State.AWAY))
            case Leave(at_ms, name, drain_ms):
                ended = ended_ms.get(Visit(name, joined[name]), at_ms)
                begun[name] += _leaving(change, at_ms if drain_ms == 0 else ended)
            case _:
                pass  # limits and weights change nobody's state
    return tuple(stay for name, states in begun.items() for stay in _cut(name, states, first_ms, last_ms))


def joins(plan: Group) -> dict[str, list[int]]:
    """Return when the plan lets each consumer join, in order of time; the consumers of the beginning only if again."""
    found: dict[str, list[int]] = {}
    for change in plan.changes:
        if isinstance(change, Join):
            found.setdefault(change.consumer.name, []).append(change.at_ms)
    return found


def rooms(plan: Group, stayed: Iterable[Stay]) -> Iterator[Room]:
    """Return how many messages each consumer could work on at once, while it was up or draining.

    Args:
        plan: What was replayed.
        stayed: What `stays` gave.

    Yields:
        In the order of the stays; what follows without a change is one.

    Example:
        >>> from keyshared.simulate.group import SimulatedConsumer, SetLimit
        >>> plan = Group(consumers=[SimulatedConsumer("a", concurrency=4, limit=3)], changes=[SetLimit(50, "a", 1)])
        >>> [tuple(room) for room in rooms(plan, stays(plan, 0, 100, {}))]
        [('a', 0, 50, 3), ('a', 50, 100, 1)]
    """
    moments = list(members(plan))
    for stay in stayed:
        if stay.state is State.AWAY:
            continue
        starts = [max(stay.from_ms, min(stay.until_ms, moment.at_ms)) for moment in moments]
        pieces = [
            (begin, end, _room(moment.known[stay.consumer], plan.config))
            for (begin, end), moment in zip(pairwise([*starts, stay.until_ms]), moments, strict=True)
            if end > begin
        ]
        for messages, alike in groupby(pieces, key=lambda piece: piece[2]):
            run = list(alike)
            yield Room(stay.consumer, run[0][0], run[-1][1], messages)


def _room(consumer: SimulatedConsumer, config: DispatcherConfig) -> int:
    """A batch is worked on as one message."""
    return min(consumer.concurrency, limit_of(consumer, config))


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
