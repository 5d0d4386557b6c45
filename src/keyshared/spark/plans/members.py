"""Which consumers a plan has at which time. Plain Python; needs no Spark."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from keyshared.simulate.group import (
    Change,
    Crash,
    Group,
    Join,
    Leave,
    Return,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
)

__all__ = ["Members", "members"]


class Members(NamedTuple):
    """Who is there from an instant on.

    Attributes:
        at_ms: The instant; it lasts until the next one.
        here: Each consumer by its name, with the limit, weight and service time that it has by then.
        known: The same of everybody who has ever been there, with what was last said of them.
    """

    at_ms: int
    here: Mapping[str, SimulatedConsumer]
    known: Mapping[str, SimulatedConsumer]


def members(plan: Group) -> Iterator[Members]:
    """Follow the consumers of a plan, change by change.

    A crashed consumer is not there, although its keys wait for it during its grace period.

    Args:
        plan: The plan.

    Yields:
        Who is there at 0, and after each change, in order of time.

    Example:
        >>> plan = Group(consumers=[SimulatedConsumer("a"), SimulatedConsumer("b")], changes=[Crash(50, "a"), Return(90, "a")])
        >>> [(each.at_ms, list(each.here)) for each in members(plan)]
        [(0, ['a', 'b']), (50, ['b']), (90, ['b', 'a'])]
    """
    known = {each.name: each for each in plan.consumers}
    here = dict(known)
    yield Members(0, dict(here), dict(known))
    for change in plan.changes:
        _apply(change, here, known)
        yield Members(change.at_ms, dict(here), dict(known))


def _apply(change: Change, here: dict[str, SimulatedConsumer], known: dict[str, SimulatedConsumer]) -> None:
    """Follow one change: ``known`` has what every consumer was told last, also those that are away."""
    match change:
        case Join(_, consumer):
            here[consumer.name] = known[consumer.name] = consumer
        case Return(_, name):
            here[name] = known[name]
        case Leave(_, name) | Crash(_, name):
            here.pop(name, None)
        case SetLimit(_, name, limit):
            known[name] = replace(known[name], limit=limit)
        case SetService(_, name, service):
            known[name] = replace(known[name], service=service)
        case SetWeight(_, name, weight):
            known[name] = replace(known[name], weight=weight)
        case _:
            pass
    here.update({name: known[name] for name in here})
