"""What callers may pass, and what must always hold of the library's own state: one wording for one fault."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from fractions import Fraction
from importlib import import_module
from typing import Any, Final, NoReturn, TypeVar

from keyshared.errors import (
    ArgumentError,
    ClockError,
    ConfigError,
    InvariantError,
    KeySharedError,
    MissingExtraError,
    shown,
)

__all__ = [
    "OFFSET_BITS",
    "OFFSET_STOP",
    "check_bool",
    "check_callable",
    "check_enum",
    "check_extra",
    "check_hashed",
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
    "checked_kinds",
    "checked_list",
    "checked_now",
    "checked_rows",
    "configuration",
    "java_order",
    "refuse_hashed",
    "require",
]


_T = TypeVar("_T")
_E = TypeVar("_E", bound=Enum)

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


@contextmanager
def configuration() -> Iterator[None]:
    """Raise `ConfigError` for each `ArgumentError` within: what is checked there are the fields of a configuration.

    Serves as a decorator too, of a constructor or of what a constructor calls.

    Raises:
        ConfigError: A check within failed.

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
    """Check a whole number.

    Args:
        parameter: What it is called in the error.
        value: The number.
        least: The smallest one allowed; None for no bound.
        alternative: Ends the sentence, for example ``", or None for never"``.
        most: The greatest one allowed, if ``least`` is given; None for 63 bits.

    Returns:
        The number.

    Raises:
        ArgumentError: It is no int, or out of these bounds.

    Example:
        >>> check_int("limit", 0, 1)
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: limit is 0; it must be an int of at least 1
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
    """Check a number that need not be whole: an int, a float or a Fraction.

    Args:
        parameter: What it is called in the error.
        value: The number.
        above: Whether it has to be above 0; else 0 will do.

    Returns:
        The number.

    Raises:
        ArgumentError: It is no number, has no end, or is too small.

    Example:
        >>> check_number("weight", 0, above=True)
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: weight is 0; it must be a finite number above 0
    """
    known = isinstance(value, int | float | Fraction) and not isinstance(value, bool)
    if not known or not 0 <= value < float("inf") or (above and value == 0):  # type: ignore[operator]
        raise ArgumentError(parameter, value, f"be a finite number {'above' if above else 'of at least'} 0")
    return value


def check_bool(parameter: str, value: object) -> bool:
    """Check a switch.

    Raises:
        ArgumentError: It is neither True nor False.

    Example:
        >>> check_bool("active", 1)
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: active is 1; it must be a bool
    """
    if type(value) is not bool:
        raise ArgumentError(parameter, value, "be a bool")
    return value


def check_enum(parameter: str, value: object, kind: type[_E], *allowed: _E) -> _E:
    """Check a member of an enumeration.

    Args:
        parameter: What it is called in the error.
        value: The member.
        kind: The enumeration.
        allowed: Those of its members that will do here; none for all of them.

    Returns:
        The member.

    Raises:
        ArgumentError: It is something else, be it the text that the member stands for.

    Example:
        >>> class Pace(Enum):
        ...     SLOW = "slow"
        ...     FAST = "fast"
        >>> check_enum("pace", "slow", Pace)
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: pace is 'slow'; it must be one of Pace.SLOW, Pace.FAST
    """
    if not isinstance(value, kind) or (allowed and value not in allowed):
        members = ", ".join(f"{kind.__name__}.{member.name}" for member in allowed or kind)
        raise ArgumentError(parameter, value, f"be one of {members}")
    return value


def check_callable(parameter: str, value: object, what: str) -> None:
    """Check a function of the caller's.

    Args:
        parameter: What it is called in the error.
        value: The function.
        what: What it is called with.

    Raises:
        ArgumentError: It cannot be called.

    Example:
        >>> check_callable("function", 7, "bytes")
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: function is 7; it must be callable with bytes
    """
    if not callable(value):
        raise ArgumentError(parameter, value, f"be callable with {what}")


def check_several(parameter: str, values: object, what: str) -> Iterable[Any]:
    """Check that several things are given, and not one text, whose characters would pass for them.

    Args:
        parameter: What they are called in the error.
        values: The things.
        what: What they are, such as ``"names"``.

    Returns:
        The things; each of them is still to be checked.

    Raises:
        ArgumentError: They are one text, or cannot be walked through.

    Example:
        >>> check_several("consumers", "ab", "names")
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: consumers is 'ab'; it must be a collection of names
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ArgumentError(parameter, values, f"be a collection of {what}")
    return values


def checked_list(parameter: str, values: object, what: str) -> list[Any]:
    """Check several things, and read all of them: an iterator may call whoever asks for them while it is read.

    So the clock and the books are looked at after this, and what the iterator has done is done before.

    Args:
        parameter: What they are called in the error.
        values: The things.
        what: What they are, such as ``"receipts"``.

    Returns:
        A list of the things, or the very list that was given; each of them is still to be checked.

    Raises:
        ArgumentError: They are one text, or cannot be walked through.

    Example:
        >>> checked_list("receipts", (receipt for receipt in "ab"), "receipts")
        ['a', 'b']
    """
    return values if type(values) is list else list(check_several(parameter, values, what))


def check_offset(parameter: str, value: object, wanted: str = "be an int") -> None:
    """Check an offset of a log.

    Args:
        parameter: What it is called in the error.
        value: The offset.
        wanted: Begins the sentence that says what it must be.

    Raises:
        ArgumentError: It is no int, or has more than 63 bits.

    Example:
        >>> check_offset("before", 1 << 63)
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: before is 9223372036854775808; it must be an int of at most 63 bits
    """
    # A bool is an int to Python, but never an offset that somebody meant.
    if type(value) is not int or not -OFFSET_STOP < value < OFFSET_STOP:
        raise ArgumentError(parameter, value, f"{wanted} of at most {OFFSET_BITS} bits")


def check_position(parameter: str, value: object, wanted: str = "be an int") -> None:
    """Check the next offset to read: an offset, or one beyond the greatest there can be.

    Args:
        parameter: What it is called in the error.
        value: The position.
        wanted: Begins the sentence that says what it must be.

    Raises:
        ArgumentError: It is no int, or has more than 63 bits.
    """
    if type(value) is not int or value != OFFSET_STOP:
        check_offset(parameter, value, wanted)


def check_log_offset(parameter: str, value: object) -> None:
    """Check an offset of a log whose offsets are never negative.

    Args:
        parameter: What it is called in the error.
        value: The offset.

    Raises:
        ArgumentError: It is no int, negative, or has more than 63 bits.
    """
    if type(value) is not int or not 0 <= value < OFFSET_STOP:
        raise ArgumentError(parameter, value, f"be an int from 0 up to {OFFSET_BITS} bits")


def check_log_position(parameter: str, value: object) -> None:
    """Check the next offset to read of a log whose offsets are never negative.

    Args:
        parameter: What it is called in the error.
        value: The position.

    Raises:
        ArgumentError: It is no int, negative, or above the greatest offset by more than one.
    """
    if type(value) is not int or value != OFFSET_STOP:
        check_log_offset(parameter, value)


def check_text(parameter: str, value: object) -> str:
    """Check a text that names something.

    Args:
        parameter: What it is called in the error.
        value: The text.

    Returns:
        The text.

    Raises:
        ArgumentError: It is no text, or empty.

    Example:
        >>> check_text("topic", "")
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: topic is ''; it must be a non-empty str
    """
    if type(value) is not str or not value:
        raise ArgumentError(parameter, value, "be a non-empty str")
    return value


def check_kind(parameter: str, value: object, kind: type[_T], alternative: str = "") -> _T:
    """Check a value of a class of this library.

    Args:
        parameter: What it is called in the error.
        value: The value.
        kind: Its class.
        alternative: Ends the sentence, for example ``", or None"``.

    Returns:
        The value.

    Raises:
        ArgumentError: It is something else.

    Example:
        >>> check_kind("count", "7", int)
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: count is '7'; it must be an int
    """
    if not isinstance(value, kind):
        name = kind.__name__
        raise ArgumentError(parameter, value, f"be {'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}{alternative}")
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
        ArgumentError: One of them is something else.

    Example:
        >>> list(checked_kinds("count", [7, 8], int))
        [7, 8]
    """
    for value in values:
        yield check_kind(parameter, value, kind)


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
        ArgumentError: One of them is no tuple or list of that length.

    Example:
        >>> list(checked_rows("header", ["ab"], 2, "a name and a value"))
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: header is 'ab'; it must be a tuple of a name and a value
    """
    for row in rows:
        if not isinstance(row, tuple | list) or len(row) != width:
            raise ArgumentError(parameter, row, f"be a tuple of {what}")
        yield row  # type: ignore[misc]  # a list serves as well


def check_mapping(parameter: str, value: object) -> Mapping[Any, Any]:
    """Check a mapping.

    Args:
        parameter: What it is called in the error.
        value: The mapping.

    Returns:
        The mapping.

    Raises:
        ArgumentError: It is something else.

    Example:
        >>> check_mapping("loads", {0: 1})
        {0: 1}
    """
    if not isinstance(value, Mapping):
        raise ArgumentError(parameter, value, "be a mapping")
    return value


def check_members(parameter: str, value: object, kind: type) -> None:
    """Check that an object of the caller's own class can do what a protocol asks for.

    Args:
        parameter: What it is called in the error.
        value: The object.
        kind: The protocol.

    Raises:
        ArgumentError: Something that the protocol names is missing, or it is a class and no instance of one.

    Example:
        >>> class Bell:
        ...     def ring(self): ...
        >>> check_members("bell", 7, Bell)
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: bell is 7; it must be what Bell describes: it has no ring
    """
    if isinstance(value, type):
        raise ArgumentError(parameter, value, f"be an instance, such as {value.__name__}(...), and not the class")
    for member, what in vars(kind).items():
        asked = callable(what) or isinstance(what, property)
        if asked and not member.startswith("_") and not hasattr(value, member):
            raise ArgumentError(parameter, value, f"be what {kind.__name__} describes: it has no {member}")


def checked_now(now_ms: int | None, last_ms: int) -> int:
    """Check an instant of a clock that never goes back.

    Args:
        now_ms: The instant; None for that of the last call.
        last_ms: That of the last call.

    Returns:
        The instant.

    Raises:
        ClockError: It is no int of at most 63 bits, or before the last one.

    Example:
        >>> checked_now(None, 5), checked_now(7, 5)
        (5, 7)
    """
    if now_ms is None:
        return last_ms
    if type(now_ms) is not int or not last_ms <= now_ms < OFFSET_STOP:
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


def refuse_hashed(
    hash_name: str, value: object, error: Exception, *, parameter: str = "key", needs: str = "a hash"
) -> NoReturn:
    """Raise what the function of a hash has raised, under the name of what it was called for.

    Args:
        hash_name: The name of the hash.
        value: What it was called for.
        error: What was raised.
        parameter: What the value is called in the error.
        needs: What it has to have.

    Raises:
        KeySharedError: It was one already.
        ArgumentError: It was something else.

    Example:
        >>> refuse_hashed("mine", b"k", KeyError("k"))
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: key is b'k'; it must have a hash 'mine'; its function raised KeyError('k')
    """
    if isinstance(error, KeySharedError):
        raise error
    raise ArgumentError(parameter, value, f"have {needs} {hash_name!r}; its function raised {shown(error)}") from error


def check_hashed(
    hash_name: str, bits: int, value: object, answer: int, *, parameter: str = "key", needs: str = "a hash"
) -> None:
    """Raise unless the function of a hash has returned one: an int that is neither negative nor too large.

    Args:
        hash_name: The name of the hash.
        bits: How many bits it has.
        value: What its function was called for.
        answer: What was returned.
        parameter: What the value is called in the error.
        needs: What it has to have.

    Raises:
        ArgumentError: It is none.

    Example:
        >>> check_hashed("mine", 8, b"k", -1)
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: key is b'k'; it must have a hash 'mine'; its function returned -1, and no int \
of 8 bits
    """
    try:
        is_wrong = answer >> bits  # something is left of what is negative or too large
    except TypeError:
        is_wrong = True
    if is_wrong:
        said = f"its function returned {shown(answer)}, and no int of {bits} bits"
        raise ArgumentError(parameter, value, f"have {needs} {hash_name!r}; {said}")


def java_order(name: str) -> bytes:
    r"""Return what names of consumers are sorted by where parties in Java sort them too: their UTF-16 code units.

    Example:
        >>> sorted(["\uff61", "\U0001f600"], key=java_order) == ["\U0001f600", "\uff61"]  # not Python's order
        True
    """
    return name.encode("utf-16-be", "surrogatepass")
