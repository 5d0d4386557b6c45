"""Checks of arguments and of the library's own state: one wording for one fault."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from fractions import Fraction
from importlib import import_module
from typing import Any, Final, TypeVar

from keyshared.errors import (
    ArgumentError,
    ClockError,
    ConfigError,
    InvariantError,
    MissingExtraError,
    SnapshotError,
    shown,
)

__all__ = [
    "OFFSET_BITS",
    "OFFSET_STOP",
    "check_bool",
    "check_callable",
    "check_enum",
    "check_extra",
    "check_int",
    "check_kind",
    "check_log_offset",
    "check_log_position",
    "check_mapping",
    "check_members",
    "check_number",
    "check_offset",
    "check_position",
    "check_several",
    "check_text",
    "check_timestamp",
    "checked_kinds",
    "checked_list",
    "checked_now",
    "checked_rows",
    "checked_state",
    "configuration",
    "java_order",
    "require",
]


_T = TypeVar("_T")
_E = TypeVar("_E", bound=Enum)

OFFSET_BITS: Final = 63
"""How many bits an offset may have besides its sign: what Kafka, Danube, a Parquet column and a cursor token hold."""

OFFSET_STOP: Final = 1 << OFFSET_BITS
"""Offsets lie between this, exclusively, and its negative. The next one to read may be just this."""


def check_extra(extra: str, *packages: str) -> None:
    """Raise `MissingExtraError` unless the packages of an extra of keyshared can be imported."""
    for package in packages:
        try:
            import_module(package)
        except ModuleNotFoundError as missing:
            raise MissingExtraError((missing.name or package).partition(".")[0], extra) from None


@contextmanager
def configuration() -> Iterator[None]:
    """Raise `ConfigError` for each `ArgumentError` within: the fields of a configuration are checked there.

    It is a decorator too, of a constructor or of a function that a constructor calls.

    Example:
        >>> with configuration():
        ...     check_int("window", 0, 1)
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: window is 0; it must be an int of at least 1
    """
    try:
        yield
    except ArgumentError as error:
        if type(error) is not ArgumentError:  # a kind of its own says more
            raise
        raise ConfigError(error.parameter, error.value, error.requirement) from error.__cause__


def check_int(
    parameter: str, value: object, least: int | None = None, alternative: str = "", *, most: int | None = None
) -> int:
    """Return an int, or raise `ArgumentError`; ``alternative`` ends the sentence, as in ``", or None for never"``.

    It is at least ``least``, if that is given; and at most ``most``, if both are given, else it has at most 63 bits.
    """
    # A bool is an int to Python, but never meant as a number.
    if type(value) is not int or (least is not None and value < least) or (most is not None and value > most):
        if least is None:
            bounds = ""
        else:
            bounds = f" of at least {shown(least)}" if most is None else f" from {shown(least)} to {shown(most)}"
        raise ArgumentError(parameter, value, f"be an int{bounds}{alternative}")
    if most is None and not -OFFSET_STOP < value < OFFSET_STOP:
        raise ArgumentError(parameter, value, f"be an int of at most {OFFSET_BITS} bits{alternative}")
    return value


def check_number(parameter: str, value: object, *, above: bool = False) -> Any:  # noqa: ANN401 - three types of number
    """Return a finite number (int, float, Fraction) of at least 0, or ``above`` 0, or raise `ArgumentError`."""
    known = isinstance(value, int | float | Fraction) and not isinstance(value, bool)
    if not known or not 0 <= value < float("inf") or (above and value == 0):  # type: ignore[operator]
        raise ArgumentError(parameter, value, f"be a finite number {'above' if above else 'of at least'} 0")
    return value


def check_bool(parameter: str, value: object) -> bool:
    """Return a bool, or raise `ArgumentError`."""
    if type(value) is not bool:
        raise ArgumentError(parameter, value, "be a bool")
    return value


def check_enum(parameter: str, value: object, kind: type[_E], *allowed: _E) -> _E:
    """Return a member of an enumeration, one of those that are allowed if any are given, or raise `ArgumentError`."""
    if not isinstance(value, kind) or (allowed and value not in allowed):
        members = ", ".join(f"{kind.__name__}.{member.name}" for member in allowed or kind)
        raise ArgumentError(parameter, value, f"be one of {members}")
    return value


def check_callable(parameter: str, value: object, what: str) -> None:
    """Raise `ArgumentError` unless a value can be called; ``what`` is what it is called with."""
    if not callable(value):
        raise ArgumentError(parameter, value, f"be callable with {what}")


def check_several(parameter: str, values: object, what: str) -> Iterable[Any]:
    """Return a collection, or raise `ArgumentError`: one text is none, although its characters would pass for items."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ArgumentError(parameter, values, f"be a collection of {what}")
    return values


def checked_list(parameter: str, values: object, what: str) -> list[Any]:
    """Return a list of a collection, all of it read, or raise `ArgumentError`.

    An iterator may call its caller while it is read, so read it before you look at the clock and the state.
    """
    return values if type(values) is list else list(check_several(parameter, values, what))


def check_offset(parameter: str, value: object, wanted: str = "be an int") -> None:
    """Raise `ArgumentError` unless a value is an int of at most 63 bits; ``wanted`` begins the sentence."""
    # A bool is an int to Python, but never an offset that somebody meant.
    if type(value) is not int or not -OFFSET_STOP < value < OFFSET_STOP:
        raise ArgumentError(parameter, value, f"{wanted} of at most {OFFSET_BITS} bits")


def check_position(parameter: str, value: object, wanted: str = "be an int") -> None:
    """Raise `ArgumentError` unless a value is an offset, or one beyond the greatest: the next offset to read."""
    if type(value) is not int or value != OFFSET_STOP:
        check_offset(parameter, value, wanted)


def check_timestamp(parameter: str, value: object, alternative: str = "") -> None:
    """Check a timestamp of a record, which may lie before 1970: an int of 63 bits and a sign, as Kafka has it.

    Raises:
        ArgumentError: It is something else.
    """
    if type(value) is not int or not -OFFSET_STOP <= value < OFFSET_STOP:
        raise ArgumentError(parameter, value, f"be an int of at most {OFFSET_BITS} bits and a sign{alternative}")


def check_log_offset(parameter: str, value: object) -> None:
    """Raise `ArgumentError` unless a value is an offset of a log whose offsets are never negative."""
    if type(value) is not int or not 0 <= value < OFFSET_STOP:
        raise ArgumentError(parameter, value, f"be an int from 0 up to {OFFSET_BITS} bits")


def check_log_position(parameter: str, value: object) -> None:
    """Raise `ArgumentError` unless a value is the next offset to read of a log without negative offsets."""
    if type(value) is not int or value != OFFSET_STOP:
        check_log_offset(parameter, value)


def check_text(parameter: str, value: object) -> str:
    """Return a str that is not empty, or raise `ArgumentError`."""
    if type(value) is not str or not value:
        raise ArgumentError(parameter, value, "be a non-empty str")
    return value


def check_kind(parameter: str, value: object, kind: type[_T], alternative: str = "") -> _T:
    """Return an instance of a class, or raise `ArgumentError`; ``alternative`` ends the sentence."""
    if not isinstance(value, kind):
        name = kind.__name__
        raise ArgumentError(parameter, value, f"be {'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}{alternative}")
    return value


def checked_kinds(parameter: str, values: Iterable[object], kind: type[_T]) -> Iterator[_T]:
    """Yield values, and raise `ArgumentError` for the first that is no instance of a class."""
    for value in values:
        yield check_kind(parameter, value, kind)


def checked_rows(parameter: str, rows: Iterable[Any], width: int, what: str) -> Iterator[tuple[Any, ...]]:
    """Yield tuples or lists of ``width`` parts, and raise `ArgumentError` for the first that is none."""
    for row in rows:
        if not isinstance(row, tuple | list) or len(row) != width:
            raise ArgumentError(parameter, row, f"be a tuple of {what}")
        yield row  # type: ignore[misc]  # a list serves as well


def check_mapping(parameter: str, value: object) -> Mapping[Any, Any]:
    """Return a mapping, or raise `ArgumentError`."""
    if not isinstance(value, Mapping):
        raise ArgumentError(parameter, value, "be a mapping")
    return value


def checked_state(name: str, data: object, version: int, *fields: str) -> Mapping[str, Any]:
    """Check that stored data has a version and exactly these other fields.

    Args:
        name: What the data is called in the error.
        data: The data.
        version: The version that it must have.
        fields: Its other fields.

    Returns:
        The data.

    Raises:
        SnapshotError: It is no mapping with these fields, or of another version.

    Example:
        >>> checked_state("spoon", {"version": 1, "size": 5}, 1, "size")["size"]
        5
    """
    wanted = {"version", *fields}
    if not isinstance(data, Mapping) or data.keys() != wanted:
        raise SnapshotError(name, data, f"be a mapping with exactly the fields {', '.join(sorted(wanted))}")
    if type(data["version"]) is not int or data["version"] != version:
        raise SnapshotError("version", data["version"], f"be {version}")
    return data


def check_members(parameter: str, value: object, kind: type) -> None:
    """Raise `ArgumentError` unless an object has all members of a protocol, and is no class."""
    if isinstance(value, type):
        raise ArgumentError(parameter, value, f"be an instance, such as {value.__name__}(...), and not the class")
    for member, what in vars(kind).items():
        asked = hasattr(what, "__get__") and not member.startswith("_")  # a method or property, compiled or not
        if asked and not hasattr(value, member):
            raise ArgumentError(parameter, value, f"be what {kind.__name__} describes: it has no {member}")


def checked_now(now_ms: int | None, last_ms: int) -> int:
    """Return an instant that is not before the last one, which None stands for, or raise `ClockError`."""
    if now_ms is None:
        return last_ms
    if type(now_ms) is not int or not last_ms <= now_ms < OFFSET_STOP:
        raise ClockError(now_ms, last_ms)
    return now_ms


def require(holds: object, fact: str) -> None:
    """Raise `InvariantError` unless a fact holds that only a bug in this library can break."""
    if not holds:
        raise InvariantError(fact)


def java_order(name: str) -> bytes:
    """Return the UTF-16 code units of a name, by which parties in Java sort names."""
    return name.encode("utf-16-be", "surrogatepass")
