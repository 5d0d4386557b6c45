"""A plan out of plain data, as a file holds it: tables whose keys are the fields of `keyshared.simulate.Group`.

What a field may hold is read off the classes themselves, so a plan in a file can say what a plan in Python can say.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from enum import StrEnum
from fractions import Fraction
from functools import cache
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from keyshared._checks import check_int, check_number
from keyshared.buckets.layout import BucketLayout
from keyshared.buckets.placement import BucketPlacement
from keyshared.config import Poison
from keyshared.errors import ArgumentError, KeySharedError
from keyshared.hashing.named import KeyHash, key_hash_named
from keyshared.placement.autosplit import AutoSplit
from keyshared.placement.protocol import Placement
from keyshared.placement.sole_owner import SoleOwner
from keyshared.ring import HashRing
from keyshared.simulate.group import (
    Change,
    Crash,
    Group,
    Join,
    Leave,
    Redrive,
    Return,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
    Unblock,
)
from keyshared.simulate.service import (
    Answer,
    AnswerModel,
    FailFirst,
    Fixed,
    PerMessage,
    Poisoned,
    Sampled,
    SampledAnswers,
    Scaled,
    ServiceTime,
)
from keyshared.simulate.simulation import Simulation

__all__ = ["checked_table", "nearest", "plan_of"]

_KIND: Final = "kind"
_COUNT: Final = "count"
_NONE: Final = "none"  # TOML has no word for it
_UNITS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)(?![a-z])")
_IN_PYTHON: Final[dict[tuple[object, str], str]] = {
    (Group, "rules"): "be given in Python: rules are functions of a key"
}


def _equal_buckets(count: int = 1_024, *, key_hash: KeyHash | None = None) -> Placement:
    layout = BucketLayout.equal_width(count)
    return BucketPlacement(layout) if key_hash is None else BucketPlacement(layout, key_hash=key_hash)


def _kinds(*classes: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {re.sub(r"(?<=[a-z])(?=[A-Z])", "-", each.__name__).lower(): each for each in classes}


_KINDS: Final[dict[object, dict[str, Callable[..., Any]]]] = {
    AnswerModel: _kinds(Poisoned, FailFirst, SampledAnswers),
    Change: _kinds(Join, Leave, Crash, Return, SetLimit, SetWeight, SetService, Unblock, Redrive),
    Placement: {
        "ring": HashRing,
        "danube": HashRing.danube,
        "pulsar": HashRing.pulsar,
        "auto-split": AutoSplit,
        "pulsar-auto-split": AutoSplit.pulsar,
        "sole-owner": SoleOwner,
        "buckets": _equal_buckets,
    },
    ServiceTime: _kinds(Fixed, PerMessage, Sampled, Scaled),
}
_POISONS: Final = tuple(name for name, each in vars(Poison).items() if isinstance(each, Poison))
_THEIR_CONSUMERS: Final = {"consumers", "consumer_ids", "names", "owner"}  # the plan's


def plan_of(data: object) -> Group:
    """Build a plan from plain data.

    Args:
        data: A mapping from the fields of `Group` to numbers, texts, lists and mappings of the same kind.

    Returns:
        The plan.

    Raises:
        ArgumentError: A key is unknown, or a value can never work. Its ``parameter`` is the path of the value.

    Example:
        >>> plan = plan_of({"consumers": [{"name": "c", "count": 2, "service": "20 ms"}]})
        >>> [(each.name, each.service) for each in plan.consumers]
        [('c1', Fixed(ms=20)), ('c2', Fixed(ms=20))]
        >>> plan_of({"consumers": [{"name": "a", "limits": 4}]})
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: a key of consumers[0] is 'limits'; it must be a known one; did you mean limit? \
There are name, service, filters, weight, limit, concurrency, takes_batches, postpone_ms, count
    """
    plan: Group = _built(Group, data, "")
    try:
        for _ in Simulation(plan, ()):  # only the placement knows which names and weights it can take
            pass
    except KeySharedError as error:
        raise _refused("", data, error) from error
    return plan


def checked_table(where: str, given: object, known: Collection[str]) -> Mapping[str, object]:
    """Check that something is a table whose keys are known.

    Args:
        where: Its path, for the error; empty for the whole file.
        given: What may be one.
        known: The keys that it may have.

    Returns:
        The table.

    Raises:
        ArgumentError: It is no table, or has another key; the error names what comes close.
    """
    if not isinstance(given, Mapping):
        raise ArgumentError(where or "the plan", given, f"be a table with keys such as {', '.join([*known][:3])}")
    for key in given:
        if key not in known:
            requirement = f"be a known one{nearest(key, known)} There are {', '.join(known)}"
            raise ArgumentError(f"a key of {where or 'the plan'}", key, requirement)
    return given


def nearest(given: object, known: Collection[str]) -> str:
    """Return how to ask whether something else was meant: a full stop where nothing comes close."""
    close = get_close_matches(str(given).casefold(), known, n=1)
    return f"; did you mean {close[0]}?" if close else "."


def _built(what: Callable[..., Any], given: object, where: str, *besides: str) -> Any:  # noqa: ANN401 - what it builds
    """Call a class with what a table holds for its fields."""
    hints, needed = _fields_of(what)
    table = checked_table(where, given, [*hints, *besides])
    values = {
        name: _field(what, name, hints[name], value, _path(where, name))
        for name, value in table.items()
        if name in hints
    }
    for name in needed:
        if name not in values:
            if NoneType not in get_args(hints[name]):
                raise ArgumentError(_path(where, name), None, "be given: it has no default")
            values[name] = None
    try:
        return what(**values)
    except (KeySharedError, TypeError) as error:
        raise _refused(where, given, error) from error


def _refused(where: str, given: object, error: Exception) -> ArgumentError:
    if isinstance(error, ArgumentError):
        return ArgumentError(_path(where, error.parameter), error.value, error.requirement)
    return ArgumentError(where or "the plan", given, f"hold what can be used ({error})")


@cache
def _fields_of(what: Callable[..., Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the types of the fields that a file may name, and those of them without a default."""
    if is_dataclass(what):
        hints = get_type_hints(what)
        named = [each for each in fields(what) if each.init]
        return {each.name: hints[each.name] for each in named}, tuple(each.name for each in named if _is_needed(each))
    hints = get_type_hints(vars(what)["__init__"] if isinstance(what, type) else what)
    parameters = signature(what).parameters
    return {name: hints[name] for name in parameters if name not in _THEIR_CONSUMERS}, tuple(
        name for name, each in parameters.items() if name not in _THEIR_CONSUMERS and each.default is Parameter.empty
    )


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _field(what: Callable[..., Any], name: str, hint: object, given: object, where: str) -> object:
    if (what, name) in _IN_PYTHON:
        raise ArgumentError(where, given, _IN_PYTHON[what, name])
    if (what, name) == (Group, "consumers"):
        return [each for i, table in enumerate(_listed(given, where)) for each in _several(table, f"{where}[{i}]")]
    if (what, name) == (SampledAnswers, "samples") and isinstance(given, Mapping):
        return _counted(given, where)
    if (what, name) == (Sampled, "samples"):
        return [_ms(each, where) if isinstance(each, str) else each for each in _listed(given, where)]
    if name == "weight":
        return check_number(where, given, above=True)
    value = _value(hint, given, where)
    return _ms(value, where) if isinstance(value, str) and (name == "ms" or name.endswith("_ms")) else value


def _value(hint: Any, given: object, where: str) -> object:  # noqa: ANN401 - of any form
    """Convert what a file can only say in other words; constructors check all the rest."""
    if get_origin(hint) is UnionType and hint not in _KINDS:
        parts = [part for part in get_args(hint) if part is not NoneType]
        if given is None or (given == _NONE and len(parts) < len(get_args(hint)) and str not in parts):
            return None
        return _value(parts[0], given, where) if len(parts) == 1 else given
    if get_origin(hint) in {Sequence, Collection}:
        (each,) = get_args(hint)
        return [_value(each, one, f"{where}[{i}]") for i, one in enumerate(_listed(given, where))]
    return _one(hint, given, where)


def _one(hint: Any, given: object, where: str) -> object:  # noqa: ANN401 - as above
    if hint in _KINDS:
        return _tagged(hint, given, where)
    if hint is Poison:
        return _poison(given, where)
    if hint is KeyHash:
        return _hash(given, where)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _member(hint, given, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return _built(hint, given, where)
    return given


def _tagged(hint: object, given: object, where: str) -> object:
    """Build one of several kinds, which a table names; a service time may be just a time."""
    if hint is ServiceTime and isinstance(given, int | str) and not isinstance(given, bool):
        given = {_KIND: "fixed", "ms": given}
    kinds = _KINDS[hint]
    kind = given.get(_KIND) if isinstance(given, Mapping) else given
    if not isinstance(given, Mapping) or not isinstance(kind, str) or kind not in kinds:
        requirement = f"be one of {', '.join(kinds)}{nearest(kind, kinds)}"
        raise ArgumentError(_path(where, _KIND), kind, requirement.removesuffix("."))
    return _built(kinds[kind], {name: value for name, value in given.items() if name != _KIND}, where)


def _poison(given: object, where: str) -> Poison:
    known = {name.lower().replace("_", "-"): name for name in _POISONS}
    if not isinstance(given, str) or given not in known:
        raise ArgumentError(where, given, f"be one of {', '.join(known)}{nearest(given, known)}".removesuffix("."))
    return Poison.from_name(known[given])


def _hash(given: object, where: str) -> KeyHash:
    try:
        return key_hash_named(given)
    except ArgumentError as error:
        raise ArgumentError(where, given, error.requirement) from error


def _member(kind: type[StrEnum], given: object, where: str) -> StrEnum:
    known = [member.value for member in kind]
    if given not in known:
        raise ArgumentError(where, given, f"be one of {', '.join(known)}{nearest(given, known)}".removesuffix("."))
    return kind(given)


def _several(given: object, where: str) -> list[SimulatedConsumer]:
    """Build a consumer, or as many alike as its table says: their names end in numbers from 1."""
    one: SimulatedConsumer = _built(SimulatedConsumer, given, where, _COUNT)
    if not isinstance(given, Mapping) or _COUNT not in given:
        return [one]
    count = check_int(_path(where, _COUNT), given[_COUNT], 1)
    alike = {each.name: getattr(one, each.name) for each in fields(one)}
    return [SimulatedConsumer(**{**alike, "name": f"{one.name}{number}"}) for number in range(1, count + 1)]


def _counted(given: Mapping[object, object], where: str) -> list[Answer]:
    """Return each answer as often as a table says."""
    counts = checked_table(where, given, [member.value for member in Answer])
    return [
        answer for name, count in counts.items() for answer in [Answer(name)] * check_int(_path(where, name), count, 0)
    ]


def _listed(given: object, where: str) -> Sequence[object]:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise ArgumentError(where, given, "be a list")
    return given


def _ms(text: str, where: str) -> int:
    """Return the milliseconds of a text such as ``1 h 30 min``."""
    found = _TIME.findall(text)
    ms = sum((Fraction(number) * _UNITS[unit] for number, unit in found), Fraction())
    repeated = len({unit for _, unit in found}) < len(found)
    if not found or repeated or _TIME.sub("", text).strip() or ms.denominator != 1:
        units = ", ".join(_UNITS)
        told = f"be whole milliseconds, or a time such as '1 h 30 min' (units: {units}), with each unit once"
        raise ArgumentError(where, text, told)
    return int(ms)


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
