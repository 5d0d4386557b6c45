"""What callers may pass, and what must always hold of the library's own state: one wording for one fault."""

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, TypeVar

from keyshared.errors import ClockError, ConfigError, InvariantError, MissingExtraError, shown

__all__ = [
    "OFFSET_BITS",
    "OFFSET_STOP",
    "check_extra",
    "check_int",
    "check_kind",
    "check_log_offset",
    "check_mapping",
    "check_members",
    "check_offset",
    "check_position",
    "check_text",
    "checked_kinds",
    "checked_now",
    "checked_rows",
    "require",
]


_T = TypeVar("_T")

OFFSET_BITS: Final = 63
"""How many bits an offset may have besides its sign: what Kafka, Danube, a Parquet column and a cursor token hold."""

OFFSET_STOP: Final = 1 << OFFSET_BITS
"""Offsets lie between this, exclusively, and its negative. The next one to read may be just this."""


def check_extra(extra: str, *packages: str) -> None:
    """Check, before a module imports them, that the packages of an extra are installed.

    Args:
        extra: The extra of keyshared that brings them.
        packages: What the module imports.

    Raises:
        MissingExtraError: One of them, or something that it needs itself, is not installed.

    Example:
        >>> check_extra("demo", "x")
        Traceback (most recent call last):
        ...
        keyshared.errors.MissingExtraError: this needs the package 'x', which is not installed; install keyshared[demo]
    """
    for package in packages:
        try:
            import_module(package)
        except ModuleNotFoundError as missing:
            raise MissingExtraError((missing.name or package).partition(".")[0], extra) from None


def check_int(parameter: str, value: object, least: int, alternative: str = "") -> int:
    """Check a whole number.

    Args:
        parameter: What it is called in the error.
        value: The number.
        least: The smallest one allowed.
        alternative: Ends the sentence, for example ``" or None for never"``.

    Returns:
        The number.

    Raises:
        ConfigError: It is no int, or below ``least``.

    Example:
        >>> check_int("limit", 0, 1)
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: limit is 0; it must be an int of at least 1
    """
    # A bool is an int to Python, but never a number that somebody meant.
    if type(value) is not int or value < least:
        raise ConfigError(parameter, value, f"be an int of at least {shown(least)}{alternative}")
    return value


def check_offset(parameter: str, value: object, wanted: str = "be an int") -> None:
    """Check an offset of a log.

    Args:
        parameter: What it is called in the error.
        value: The offset.
        wanted: Begins the sentence that says what it must be.

    Raises:
        ConfigError: It is no int, or has more than 63 bits.

    Example:
        >>> check_offset("before", 1 << 63)
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: before is 9223372036854775808; it must be an int of at most 63 bits
    """
    # A bool is an int to Python, but never an offset that somebody meant.
    if type(value) is not int or not -OFFSET_STOP < value < OFFSET_STOP:
        raise ConfigError(parameter, value, f"{wanted} of at most {OFFSET_BITS} bits")


def check_position(parameter: str, value: object, wanted: str = "be an int") -> None:
    """Check the next offset to read: an offset, or one beyond the greatest there can be.

    Args:
        parameter: What it is called in the error.
        value: The position.
        wanted: Begins the sentence that says what it must be.

    Raises:
        ConfigError: It is no int, or has more than 63 bits.
    """
    if type(value) is not int or value != OFFSET_STOP:
        check_offset(parameter, value, wanted)


def check_log_offset(parameter: str, value: object) -> None:
    """Check an offset of a log whose offsets are never negative.

    Args:
        parameter: What it is called in the error.
        value: The offset.

    Raises:
        ConfigError: It is no int, negative, or has more than 63 bits.
    """
    if type(value) is not int or not 0 <= value < OFFSET_STOP:
        raise ConfigError(parameter, value, f"be an int from 0 up to {OFFSET_BITS} bits")


def check_text(parameter: str, value: object) -> str:
    """Check a text that names something.

    Args:
        parameter: What it is called in the error.
        value: The text.

    Returns:
        The text.

    Raises:
        ConfigError: It is no text, or empty.

    Example:
        >>> check_text("topic", "")
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: topic is ''; it must be a text that is not empty
    """
    if type(value) is not str or not value:
        raise ConfigError(parameter, value, "be a text that is not empty")
    return value


def check_kind(parameter: str, value: object, kind: type[_T]) -> _T:
    """Check a value of a class of this library.

    Args:
        parameter: What it is called in the error.
        value: The value.
        kind: Its class.

    Returns:
        The value.

    Raises:
        ConfigError: It is something else.

    Example:
        >>> check_kind("count", "7", int)
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: count is '7'; it must be an int
    """
    if not isinstance(value, kind):
        name = kind.__name__
        raise ConfigError(parameter, value, f"be {'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}")
    return value


def checked_kinds(parameter: str, values: Iterable[object], kind: type[_T]) -> Iterator[_T]:
    """Check values of a class of this library, one by one as they are read.

    Args:
        parameter: What each of them is called in the error.
        values: The values.
        kind: Their class.

    Yields:
        The values.

    Raises:
        ConfigError: One of them is something else.

    Example:
        >>> list(checked_kinds("count", [7, 8], int))
        [7, 8]
    """
    return (check_kind(parameter, value, kind) for value in values)


def checked_rows(parameter: str, rows: Iterable[Any], width: int, what: str) -> Iterator[tuple[Any, ...]]:
    """Check that each of several values has so many parts, one by one as they are read.

    Args:
        parameter: What each of them is called in the error.
        rows: The values.
        width: How many parts each has.
        what: What the parts are.

    Yields:
        The values, as they were given.

    Raises:
        ConfigError: One of them is no tuple or list of that length.

    Example:
        >>> list(checked_rows("header", ["ab"], 2, "a name and a value"))
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: header is 'ab'; it must be a tuple of a name and a value
    """
    for row in rows:
        if not isinstance(row, tuple | list) or len(row) != width:
            raise ConfigError(parameter, row, f"be a tuple of {what}")
        yield row  # type: ignore[misc]  # a list serves as well


def check_mapping(parameter: str, value: object) -> Mapping[Any, Any]:
    """Check a mapping.

    Args:
        parameter: What it is called in the error.
        value: The mapping.

    Returns:
        The mapping.

    Raises:
        ConfigError: It is something else.

    Example:
        >>> check_mapping("loads", {0: 1})
        {0: 1}
    """
    if not isinstance(value, Mapping):
        raise ConfigError(parameter, value, "be a mapping")
    return value


def check_members(parameter: str, value: object, kind: type) -> None:
    """Check that an object of the caller's own class can do what a protocol asks for.

    Args:
        parameter: What it is called in the error.
        value: The object.
        kind: The protocol.

    Raises:
        ConfigError: Something that the protocol names is missing.

    Example:
        >>> class Bell:
        ...     def ring(self): ...
        >>> check_members("bell", 7, Bell)
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: bell is 7; it must be what Bell describes: it has no ring
    """
    for member, what in vars(kind).items():
        asked = callable(what) or isinstance(what, property)
        if asked and not member.startswith("_") and not hasattr(value, member):
            raise ConfigError(parameter, value, f"be what {kind.__name__} describes: it has no {member}")


def checked_now(now_ms: int | None, last_ms: int) -> int:
    """Check an instant of a clock that never goes back.

    Args:
        now_ms: The instant; None for that of the last call.
        last_ms: That of the last call.

    Returns:
        The instant.

    Raises:
        ClockError: It is no int, or before the last one.

    Example:
        >>> checked_now(None, 5), checked_now(7, 5)
        (5, 7)
    """
    if now_ms is None:
        return last_ms
    if type(now_ms) is not int or now_ms < last_ms:
        raise ClockError(now_ms, last_ms)
    return now_ms


def require(holds: object, fact: str) -> None:
    """Check a fact that only a bug in this library can break.

    Args:
        holds: Whether it is true.
        fact: What should be true, as a sentence.

    Raises:
        InvariantError: It is not.

    Example:
        >>> require(1 + 1 == 2, "numbers add up")
    """
    if not holds:
        raise InvariantError(fact)
