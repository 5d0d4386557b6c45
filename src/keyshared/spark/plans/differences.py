"""In what plans differ, as texts for people."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, NamedTuple

from keyshared.buckets.placement import BucketPlacement
from keyshared.config import DispatcherConfig, GroupLimits, KeySessions, LookAhead, Poison, RetryPolicy
from keyshared.errors import shown
from keyshared.placement.protocol import Placement
from keyshared.ring import HashRing
from keyshared.simulate.group import Change, Group, Join, SimulatedConsumer
from keyshared.simulate.service import Fixed, PerMessage, SampledAnswers, Scaled

__all__ = ["Difference", "differences", "time_text"]

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))
_FEW: Final = 3  # names that are told one by one
_PROBE: Final = "1"  # Danube's names are numbers
_OF_CONSUMERS: Final = tuple(field.name for field in fields(SimulatedConsumer) if field.name != "name")
_GROUPS: Final = (DispatcherConfig, GroupLimits, KeySessions, LookAhead, RetryPolicy)


class Difference(NamedTuple):
    """A setting that is not the same in all plans.

    Attributes:
        setting: Its name, as in a file: ``config.retry.max_redeliveries``.
        values: What it is in each plan, in their order; empty where it has none.
    """

    setting: str
    values: tuple[str, ...]


def differences(plans: Mapping[str, Group]) -> list[Difference]:
    """Find in what plans differ.

    Args:
        plans: Plans by name.

    Returns:
        What is not the same in all of them, consumers first.

    Complexity:
        O(consumers + changes) for each plan.

    Example:
        >>> few, many = [SimulatedConsumer("a", Fixed(20))], [SimulatedConsumer("a", Fixed(20)), SimulatedConsumer("b", Fixed(90_000))]
        >>> for each in differences({"one": Group(consumers=few), "two": Group(consumers=many)}):
        ...     print(each.setting, each.values)
        consumers ('1: a', '2: a, b')
        service ('20 ms', '20 ms: a; 1 min 30 s: b')
    """
    told = [_settings(plan) for plan in plans.values()]
    names = dict.fromkeys(name for settings in told for name in settings)
    rows = ((name, [settings.get(name, _NOTHING) for settings in told]) for name in names)
    return [
        Difference(name, tuple(each.text for each in found))
        for name, found in rows
        if any(each.value != found[0].value for each in found)
    ]


def time_text(ms: int) -> str:
    """Write a time exactly, the way a file may say it.

    Args:
        ms: 0 or more.

    Example:
        >>> time_text(5_400_250), time_text(0)
        ('1 h 30 min 250 ms', '0 ms')
    """
    parts = []
    for unit, size in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 ms"


class _Setting(NamedTuple):
    """What a plan has for a setting: the value, which says whether another one is the same, and a text for people."""

    value: object
    text: str


_NOTHING: Final = _Setting(None, "")


def _settings(plan: Group) -> dict[str, _Setting]:
    names = [each.name for each in plan.consumers]
    told = {"consumers": _Setting(names, f"{len(names)}: {_named(names)}")}
    for field in _OF_CONSUMERS:
        each = {consumer.name: getattr(consumer, field) for consumer in plan.consumers}
        values = list(each.values())
        alike = all(value == values[0] for value in values)
        text = _shared({name: _text(field, value) for name, value in each.items()})
        told[field] = _Setting(values[:1] if alike else each, text)
    for change in plan.changes:
        what, how = _changed(change)
        before, text = told.get(what, _Setting((), ""))
        told[what] = _Setting((*before, change), f"{text}; {how}" if text else how)  # type: ignore[misc]
    told["placement"] = _placed(plan.placement)
    for other in fields(Group):
        if other.name not in {"consumers", "changes", "placement"}:
            told |= _flat(other.name, getattr(plan, other.name))
    return told


def _flat(name: str, value: Any) -> dict[str, _Setting]:  # noqa: ANN401 - of any type
    if not isinstance(value, _GROUPS):
        return {name: _Setting(value, _text(name, value))}
    inner = ((f"{name}.{field.name}", getattr(value, field.name)) for field in fields(value))
    return {path: setting for each, part in inner for path, setting in _flat(each, part).items()}


def _text(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return "; ".join(_text(name, each) for each in value) or "none"
    if isinstance(value, bool) or value is None:
        return {None: "none", False: "false", True: "true"}[value]
    if isinstance(value, int) and name.endswith("_ms"):
        return time_text(value)
    if isinstance(value, Poison):
        return value.name.lower().replace("_", "-")
    return str(value) if isinstance(value, str) else _model(value)  # members of an enumeration are texts here


def _model(value: object) -> str:
    match value:
        case Fixed(ms):
            return time_text(ms)
        case PerMessage(default_ms):
            return "as each message says" + ("" if default_ms is None else f", or {time_text(default_ms)}")
        case Scaled(model, factor):
            return f"{factor} times {_model(model)}"
        case SampledAnswers(samples, seed, reason):
            counts = Counter(str(each.value) for each in samples)
            told = [*(f"{count} {answer}" for answer, count in counts.items()), f"seed {seed}"]
            return ", ".join(told if reason is None else [*told, repr(reason)])
        case _:
            return shown(value)


def _named(names: Sequence[str]) -> str:
    if len(names) <= _FEW:
        return ", ".join(names)
    return f"{names[0]}, {names[1]}, ... {names[-1]}"


def _shared(values: Mapping[str, str]) -> str:
    """Return a value once if all consumers have it, else who has which."""
    owners: dict[str, list[str]] = {}
    for name, value in values.items():
        owners.setdefault(value, []).append(name)
    if len(owners) <= 1:
        return "".join(owners)
    return "; ".join(f"{value}: {_named(names)}" for value, names in owners.items())


def _changed(change: Change) -> tuple[str, str]:
    """Return to whom what happens, and when and how."""
    what = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(change).__name__).lower()
    who = change.consumer.name if isinstance(change, Join) else getattr(change, "name", None)
    if who is None:
        who = "what has no key" if change.key is None else shown(change.key)  # type: ignore[union-attr]
    if isinstance(change, Join):
        default = SimulatedConsumer(who)
        odd = [each for each in _OF_CONSUMERS if getattr(change.consumer, each) != getattr(default, each)]
        rest = [(each, getattr(change.consumer, each)) for each in odd]
    else:
        rest = [(f.name, getattr(change, f.name)) for f in fields(change) if f.name not in {"at_ms", "name", "key"}]
    return f"{what} {who}", ", ".join([f"at {time_text(change.at_ms)}", *(f"{n} {_text(n, v)}" for n, v in rest)])


def _placed(placement: Placement) -> _Setting:
    ranges = placement.ranges
    text = f"{type(placement).__name__}, {1 << ranges.slot_bits:,} slots, {ranges.key_hash.name}"
    if isinstance(placement, HashRing):
        probe = placement.copy()  # how many points a consumer has shows when one joins
        if _PROBE not in probe.consumers:
            probe.add(_PROBE)
        text += f", {sum(name == _PROBE for _, name in probe.points)} points of each consumer"
    elif isinstance(placement, BucketPlacement):
        text += f", {len(placement.layout)} buckets"
    compared = type(placement).__eq__ is not object.__eq__
    return _Setting(placement if compared else text, text)
