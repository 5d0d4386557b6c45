"""What the values of a time column mean: said, or recognised where they can mean one thing only.

Plain Python. A number is recognised by the years that it would be in: seconds, milliseconds, microseconds and
nanoseconds from 1990 to 2099 have no number in common, and none with a date of eight digits.
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Final

import numpy as np

from keyshared.errors import ArgumentError

__all__ = ["ISO", "MS_OF", "TIMES", "check_time", "examples_of", "read_ms", "time_of"]

MS_OF: Final = {
    "seconds": "1000",
    "milliseconds": "1",
    "microseconds": "0.001",
    "nanoseconds": "0.000001",
    "minutes": "60000",
    "hours": "3600000",
    "days": "86400000",
}
"""Milliseconds of the units that numbers can count since 1970."""

TIMES: Final = (*MS_OF, "iso", "yyyymmdd")
"""What a time column may hold: a number of units since 1970 (UTC), ISO text, or days written as eight digits."""

ISO: Final = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?$"
"""What counts as ISO text, as an expression that Python and Java read alike. Without a zone it is UTC."""

_RECOGNISED: Final = ("seconds", "milliseconds", "microseconds", "nanoseconds")
_SHOWN: Final = 2
_CHOICES: Final = ("seconds", "milliseconds", "days")  # as examples for a number that nothing is known of
_RANGE: Final = range(
    int(datetime(1990, 1, 1, tzinfo=UTC).timestamp()) * 1_000, int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()) * 1_000
)


def check_time(parameter: str, time: str | None) -> None:
    """Check that something is one of `TIMES`, or None.

    Args:
        parameter: Who says it, for the error.
        time: What was said.

    Raises:
        ArgumentError: It is neither.
    """
    if time is not None and time not in TIMES:
        raise ArgumentError(parameter, time, f"be one of {', '.join(TIMES)}")


def read_ms(value: object, time: str) -> int | None:
    """Return the milliseconds since 1970 that a value means; None if it does not mean any.

    Args:
        value: A number, or text.
        time: One of `TIMES`.

    Example:
        >>> read_ms("1735689600", "seconds") == read_ms("2025-01-01", "iso") == read_ms(20250101, "yyyymmdd")
        True
    """
    text = str(value).strip()
    try:
        if time == "iso":
            return _ms_of(datetime.fromisoformat(text)) if re.match(ISO, text) else None
        if time == "yyyymmdd":
            plain = re.fullmatch(r"(\d{4})(\d\d)(\d\d)", text, re.ASCII)
            return _ms_of(datetime.fromisoformat("-".join(plain.groups()))) if plain else None
        return int((Decimal(text) * Decimal(MS_OF[time])).to_integral_value("ROUND_FLOOR"))
    except (InvalidOperation, ValueError, OverflowError):  # infinity is one of the last two
        return None


def time_of(column: str, values: Sequence[object], *, said: str | None) -> str | None:
    """Return what a column holds.

    Args:
        column: Its name, for the error.
        values: Some of its values, none of them empty.
        said: One of `TIMES`, if somebody said it.

    Returns:
        One of `TIMES`; None for a column that Spark stores as dates or times, or one without values here.

    Raises:
        ArgumentError: What was said does not fit the values, or nothing was said and they may mean several things.
    """
    if not values:
        return said
    if all(isinstance(value, date) for value in values):  # a datetime is a date, too
        if said is not None:
            raise ArgumentError("--time", said, f"be left out: {column} holds dates or times already")
        return None
    if said is not None:
        odd = next((value for value in values if read_ms(value, said) is None), None)
        if odd is not None:
            raise ArgumentError("--time", said, f"fit column {column}, and {_quoted(odd)} cannot be read so")
        return said
    possible = [time for time in TIMES if all(_is_likely(value, time) for value in values)]
    if len(possible) != 1:
        raise ArgumentError("--time", None, f"say what {column} holds: one of {', '.join(TIMES)}{_choices(values[0])}")
    return possible[0]


def examples_of(values: Sequence[object], time: str) -> str:
    """Return how two of a column's values are read, for whoever said it or has to see what was recognised.

    Args:
        values: Some of its values.
        time: One of `TIMES`.

    Example:
        >>> examples_of(["1735689600", "1735693200", "1735693201"], "seconds")
        '1735689600 is read as 2025-01-01 00:00:00 UTC, 1735693200 is read as 2025-01-01 01:00:00 UTC'
    """
    shown = [_shown(value, time) for value in dict.fromkeys(values)]
    return ", ".join([text for text in shown if text][:_SHOWN])


def _is_likely(value: object, time: str) -> bool:
    at_ms = read_ms(value, time)
    if at_ms is None:
        return False
    if time in MS_OF:
        return time in _RECOGNISED and at_ms in _RANGE
    return True


def _ms_of(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


def _shown(value: object, time: str) -> str:
    at_ms = read_ms(value, time)
    if at_ms is None or abs(at_ms) >= 1 << 62:
        return ""
    text = str(np.datetime64(at_ms, "ms")).replace("T", " ").removesuffix(".000")
    return f"{str(value).strip()} is read as {text} UTC"


def _choices(value: object) -> str:
    read = [(time, text) for time in _CHOICES if (text := _shown(value, time))]
    told = ", ".join(f"{text} in {time}" for time, text in read)
    return f" ({told})" if told else f"; {_quoted(value)} is none of them that can be recognised"


def _quoted(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)
