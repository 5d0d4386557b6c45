"""What a plan consists of, written for people, so that several can stand side by side. Plain Python; needs no Spark."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from enum import StrEnum
from typing import Final, NamedTuple

from keyshared.config import DispatcherConfig
from keyshared.ring import HashRing
from keyshared.simulate.group import Change, Group, Join, Leave, SimulatedConsumer
from keyshared.spark.pages.page import duration, listed

__all__ = ["Item", "contents"]

_NOTHING: Final = "none"
_PROBE: Final = "one more consumer"


class Item(NamedTuple):
    """Something that a plan says.

    Attributes:
        name: Of what.
        text: What it is, however long.
    """

    name: str
    text: str


_OF_CONSUMERS: Final[tuple[tuple[str, Callable[[SimulatedConsumer], object]], ...]] = (
    ("weight", lambda consumer: consumer.weight),
    ("service time", lambda consumer: consumer.service),
    ("concurrency", lambda consumer: consumer.concurrency),
    ("limit", lambda consumer: "the dispatcher's" if consumer.limit is None else consumer.limit),
    ("filters", lambda consumer: ", ".join(consumer.filters) or _NOTHING),
    ("takes batches", lambda consumer: "yes" if consumer.takes_batches else "no"),
    ("postpones for", lambda consumer: duration(consumer.postpone_ms)),
)


def contents(plan: Group) -> tuple[Item, ...]:
    """Write what a plan consists of.

    Args:
        plan: The plan.

    Returns:
        The same items in the same order for every plan.

    Example:
        >>> plan = Group(consumers=[SimulatedConsumer("a", limit=2), SimulatedConsumer("b", limit=3)])
        >>> [item.text for item in contents(plan) if item.name in ("consumers", "concurrency", "limit")]
        ['2: a, b', '1', '2 (a); 3 (b)']
    """
    return tuple(_items(plan))


def _items(plan: Group) -> Iterator[Item]:
    names = [consumer.name for consumer in plan.consumers]
    yield Item("consumers", f"{len(names)}: {listed(names)}" if names else _NOTHING)
    for name, ask in _OF_CONSUMERS:
        yield Item(name, _of_consumers(plan, ask))
    yield Item("changes", "; ".join(map(_change, plan.changes)) or _NOTHING)
    yield Item("placement", _placement(plan))
    for field in fields(DispatcherConfig):
        yield Item(field.name, _text(getattr(plan.config, field.name)))
    yield Item("rules", _text(plan.rules))
    yield Item("answers", "; ".join(map(repr, plan.answers)) or "every message is acked")
    yield Item("pace", str(plan.pace))
    for name in ("archive_ms", "load_ms", "flush_ms", "start_ms", "until_ms", "max_attempts"):
        yield Item(name, _text(getattr(plan, name)))


def _of_consumers(plan: Group, ask: Callable[[SimulatedConsumer], object]) -> str:
    """Write what all consumers of the beginning have, or who has what."""
    found: dict[str, list[str]] = {}
    for consumer in plan.consumers:
        found.setdefault(str(ask(consumer)), []).append(consumer.name)
    if len(found) <= 1:
        return next(iter(found), _NOTHING)
    return "; ".join(f"{text} ({listed(names)})" for text, names in found.items())


def _change(change: Change) -> str:
    who = change.consumer.name if isinstance(change, Join) else getattr(change, "name", None)
    rest = {
        field.name: getattr(change, field.name)
        for field in fields(change)
        if field.name not in {"at_ms", "name", "consumer"} and not (isinstance(change, Leave) and change.drain_ms == 0)
    }
    told = ", ".join(f"{name}={value!r}" for name, value in rest.items())
    what = f"{type(change).__name__} {who}" if who is not None else type(change).__name__
    return f"{duration(change.at_ms)}: {what}" + (f" ({told})" if told else "")


def _placement(plan: Group) -> str:
    """Write of which kind the placement is, and how fine: two rings differ by their points."""
    placement = plan.placement.copy()
    name = type(placement).__name__
    if not isinstance(placement, HashRing):
        return name
    before = len(placement.points)
    placement.add(_PROBE)
    return f"{name}, {len(placement.points) - before:,} points for a consumer of weight 1"


def _text(value: object) -> str:
    return _NOTHING if value is None else str(value) if isinstance(value, StrEnum | int | float | str) else repr(value)
