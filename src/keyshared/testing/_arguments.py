"""What callers of the kit may pass: `TypeError` for a value of the wrong kind, `ClaimsError` for a wrong value."""

from typing import Final

from keyshared.testing.errors import ClaimsError, in_short

__all__ = ["check_class", "check_count", "check_function", "check_kind"]

_MOST: Final = 1_000_000  # names, steps or clusters of one test


def check_kind(parameter: str, value: object, kind: type) -> None:
    """Raise `TypeError` unless a value is of a class; shown like every error of the kit."""
    if not isinstance(value, kind):
        raise TypeError(f"{parameter} is {in_short(value)}; it must be of {kind.__name__}")


def check_class(parameter: str, value: object, *kinds: type) -> None:
    """Raise `TypeError` unless a value is a class that is derived from one of others."""
    if not isinstance(value, type) or not issubclass(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{parameter} is {in_short(value)}; it must be a class derived from {names}")


def check_count(parameter: str, value: object, least: int) -> None:
    """Raise `TypeError` unless a value is an int, `ClaimsError` if it is below the least, or beyond all reason."""
    if type(value) is not int:
        raise TypeError(f"{parameter} is {in_short(value)}; it must be an int")
    if value < least:
        raise ClaimsError(parameter, value, f"be at least {least}")
    if value > _MOST:
        raise ClaimsError(parameter, value, f"be at most {_MOST}")


def check_function(parameter: str, value: object) -> None:
    """Raise `TypeError` unless a value can be called."""
    if not callable(value):
        raise TypeError(f"{parameter} is {in_short(value)}; it must be a function")
