"""The options of the demo, checked together and with the file that they name, before Spark starts."""

import argparse
from collections.abc import Sequence
from itertools import chain
from typing import Final

from keyshared.errors import ArgumentError
from keyshared.simulate.group import Group, Join, SetService
from keyshared.simulate.service import PerMessage, Scaled, ServiceTime
from keyshared.spark.demo.plan import Story, Workload
from keyshared.spark.logs.files import Source, check_named, format_of, head_of, local_path, sample_of
from keyshared.spark.logs.snapshots import check_snapshot
from keyshared.spark.logs.times import MS_OF, check_time, time_of
from keyshared.spark.plans.files import load_plans
from keyshared.spark.plans.ranking import CRITERIA
from keyshared.spark.results.place import check_folder

__all__ = [
    "check_input",
    "check_options",
    "check_place",
    "check_plans",
    "consumers_of",
    "needs_service",
    "refuse_missing",
    "source_of",
]

_NUMBERS: Final = ("limit", "partitions")
_COLUMNS: Final = ("key", "partition", "order")
_OF_INPUT: Final = (*_COLUMNS, "service", "time", "format", "schema")
_DEFAULT_CONSUMERS: Final = 8
_SEVERAL: Final = 2
_NO_WORK: Final = Workload(first_ms=0, span_ms=0, busiest=0.0, mean=0.0, largest=0.0)


def check_options(options: argparse.Namespace) -> None:
    """Check the options alone.

    Args:
        options: Those of the demo.

    Raises:
        ArgumentError: A number is too small, one option contradicts another, or Spark would take the place of the
            results for a pattern.
    """
    for name in _NUMBERS:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ArgumentError(_flag(name), value, "be at least 1")
    check_time("--time", options.time)
    if options.input is None:
        for name in _OF_INPUT:
            value = getattr(options, name)
            if value is not None:
                raise ArgumentError(_flag(name), value, "come with --input: the flights have their own")
        if options.option:
            raise ArgumentError("--option", options.option[0], "come with --input: the flights have their own")
    else:
        check_snapshot(source_of(options))
        _check_apart(options)
    check_place(options, "--results", options.results)


def check_place(options: argparse.Namespace, flag: str, given: str | None) -> None:
    """Check that Spark and this process mean the same place by the one that Spark writes to.

    Args:
        options: Those of the demo; without a place of its own everything goes below ``--out``.
        flag: Names that place.
        given: What it was given as.

    Raises:
        ArgumentError: Spark would take it for a pattern.
    """
    check_folder(*(("--out", str(options.out.resolve())) if given is None else (flag, given)))


def check_plans(options: argparse.Namespace) -> dict[str, Group]:
    """Read the plans, and check what may stand beside them.

    Args:
        options: Those of the demo.

    Returns:
        The plans by name; none where the demo makes one of its own.

    Raises:
        ArgumentError: A plan cannot be used, or contradicts another option.
        MissingExtraError: One is a YAML file, and PyYAML is not installed.
    """
    for name, known in (("by", CRITERIA), ("service_unit", MS_OF)):
        value = getattr(options, name)
        if value is not None and value not in known:
            raise ArgumentError(_flag(name), value, f"be one of {', '.join(known)}")
    for name, misplaced, requirement in _misplaced(options):
        value = getattr(options, name)
        if value is not None and misplaced:
            raise ArgumentError(_flag(name), value, requirement)
    if not options.plan:
        Story(consumers=consumers_of(options), workload=_NO_WORK)
        return {}
    plans = load_plans(options.plan)
    if options.input is not None and options.service is None:
        for name, plan in plans.items():
            if needs_service(plan):
                requirement = f"name a column, because consumers of plan {name!r} take as long as each message says"
                raise ArgumentError("--service", None, requirement)
    return plans


def needs_service(plan: Group) -> bool:
    """Return whether each message has to say how long it takes."""
    later = (change.consumer.service for change in plan.changes if isinstance(change, Join))
    other = (change.service for change in plan.changes if isinstance(change, SetService))
    return any(map(_asks_all, chain((each.service for each in plan.consumers), later, other)))


def consumers_of(options: argparse.Namespace) -> int:
    """Return how many consumers the group of the demo has."""
    return _DEFAULT_CONSUMERS if options.consumers is None else options.consumers


def check_input(options: argparse.Namespace, *, near: bool) -> list[object] | None:
    """Check that there is a log at ``--input``, and that it has the columns that the options name.

    Args:
        options: Those of the demo.
        near: Whether the path means the same here as to Spark; where it does not, only its extension is looked at.

    Returns:
        Some values of ``--order``; None if they could not be read here.

    Raises:
        ArgumentError: The extension is unknown, there is nothing, it is of another format, a column is missing or not
            named, or what ``--order`` holds is neither said nor recognised.
    """
    if options.input is None:
        return None
    source = source_of(options)
    head = head_of(source) if near else None
    if head is None:
        format_of(source)
        return None
    refuse_missing(options, head.columns)
    for name in (*_COLUMNS, "service"):
        column = getattr(options, name)
        if column is not None:
            check_named(_flag(name), column, head, options.input)
    values = sample_of(source, options.order)
    if values is not None:
        time_of(options.order, values, said=options.time)
    return values


def source_of(options: argparse.Namespace) -> Source:
    """Return what is to be read, and how.

    Args:
        options: Those of the demo, with ``--input``.

    Raises:
        ArgumentError: An ``--option`` is no name and value, or has the name of one before it, in whatever letters.
    """
    named: dict[str, str] = {}
    for given in options.option:
        name, equals, value = given.partition("=")
        if not (name and equals):
            raise ArgumentError("--option", given, "be a name and a value, such as sep=;")
        if name.casefold() in map(str.casefold, named):
            raise ArgumentError("--option", given, "stand once: upper and lower case make no other name")
        named[name] = value
    return Source(options.input, options.format, options.schema, named)


def refuse_missing(options: argparse.Namespace, columns: Sequence[str]) -> None:
    """Refuse a log whose columns are not named.

    Args:
        options: Those of the demo.
        columns: What the log has.

    Raises:
        ArgumentError: ``--key``, ``--partition`` or ``--order`` is missing.
    """
    missing = [_flag(name) for name in _COLUMNS if getattr(options, name) is None]
    if missing:
        raise ArgumentError(" and ".join(missing), None, f"name a column of {options.input} ({', '.join(columns)})")


def _check_apart(options: argparse.Namespace) -> None:
    """Refuse to save results, which replace what is there, over the log that is read."""
    source = local_path(options.input)
    target = local_path(options.results or str(options.out / "results"))
    if source is None or target is None:
        same = options.results == options.input
    else:
        here, there = source.resolve(), target.resolve()
        same = here.is_relative_to(there) or there.is_relative_to(here)
    if same:
        told = options.results or str(options.out / "results")
        raise ArgumentError("--results", told, f"lie apart from --input ({options.input}): it is replaced")


def _misplaced(options: argparse.Namespace) -> tuple[tuple[str, bool, str], ...]:
    """Return which options may not stand beside the others, and why."""
    plans = len(options.plan)
    in_proportion = "come with --plan: without it, work is taken in proportion"
    return (
        ("by", plans < _SEVERAL, "come with two plans or more: it says which is the winner"),
        ("consumers", plans > 0, "come without --plan, which names its consumers"),
        ("service_unit", plans == 0, in_proportion),
        ("service_unit", options.service is None, "come with --service: it is what the column counts"),
    )


def _asks_all(service: ServiceTime) -> bool:
    while isinstance(service, Scaled):
        service = service.model
    return isinstance(service, PerMessage) and service.default_ms is None


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
