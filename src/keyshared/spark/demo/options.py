"""The options of the demo, checked together and with the file that they name, before Spark starts."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from keyshared.errors import ArgumentError
from keyshared.spark.logs.files import Source, check_named, format_of, head_of, local_path, sample_of
from keyshared.spark.logs.times import check_time, time_of

__all__ = ["check_input", "check_options", "refuse_missing", "source_of"]

_NUMBERS: Final = ("limit", "partitions")
_COLUMNS: Final = ("key", "partition", "order")
_OF_INPUT: Final = (*_COLUMNS, "service", "time", "format", "schema")


def check_options(options: argparse.Namespace) -> None:
    """Check the options alone.

    Args:
        options: Those of the demo.

    Raises:
        ArgumentError: A number is too small, or one option contradicts another.
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
        source_of(options)
        _check_apart(options)


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
        ArgumentError: An ``--option`` is no name and value.
    """
    pairs = [each.partition("=") for each in options.option]
    for given, (name, equals, _) in zip(options.option, pairs, strict=True):
        if not (name and equals):
            raise ArgumentError("--option", given, "be a name and a value, such as sep=;")
    return Source(options.input, options.format, options.schema, {name: value for name, _, value in pairs})


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
    """Refuse to write the delivery log, which replaces what is there, over the log that is read."""
    source = local_path(options.input)
    target = local_path(options.deliveries or str(options.out / "deliveries"))
    if source is None or target is None:
        same = options.deliveries == options.input
    else:
        here, there = source.resolve(), target.resolve()
        same = here.is_relative_to(there) or there.is_relative_to(here)
    if same:
        told = options.deliveries or str(options.out / Path("deliveries"))
        raise ArgumentError("--deliveries", told, f"lie apart from --input ({options.input}): it is replaced")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
