"""Exceptions of the kit. It shares nothing with the code that it judges, so it has its own.

Each of them can be shown, whatever stands in it: its text is at most 500 characters long.
"""

import reprlib
from abc import abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

__all__ = [
    "ClaimsError",
    "DriverError",
    "HistoryError",
    "HistoryFileError",
    "KilledError",
    "LogEntry",
    "MergeError",
    "UnsupportedError",
    "describe",
    "in_short",
]

_MESSAGE_LIMIT: Final = 500
_VALUE_LIMIT: Final = 160


class _KitError(Exception):
    """Base of the exceptions of the kit that say what is wrong with something."""

    def __str__(self) -> str:
        return _cut(self._text())

    @abstractmethod
    def _text(self) -> str: ...


@dataclass(eq=False, repr=False)
class HistoryError(_KitError, ValueError):
    """A history that cannot be read: wrong whatever the system did.

    Attributes:
        number: Which one is wrong: the line from 1, or the row or event from 0.
        unit: "line", "row" or "event".
        field: Which field of it, or None if it is wrong as a whole.
        value: What stands there.
        requirement: What must be there, as the end of the sentence "it must ...".
    """

    number: int
    unit: str
    field: str | None
    value: object
    requirement: str

    def _text(self) -> str:
        place = f"{self.unit} {self.number}"
        what = place if self.field is None else f"{self.field} of {place}"
        return f"{what} is {in_short(self.value)}; it must {self.requirement}"


@dataclass(eq=False, repr=False)
class HistoryFileError(_KitError, ValueError):
    """A file that holds no history, or one that contradicts itself: nothing of it is judged.

    Attributes:
        path: Its name, as it was given.
        line: Which line is wrong, from 1; 0 if none could be read.
        problem: What is wrong there.
    """

    path: str
    line: int
    problem: str

    def _text(self) -> str:
        place = f"{self.path[:_VALUE_LIMIT]}:{self.line}" if self.line else self.path[:_VALUE_LIMIT]
        return f"{place}: {self.problem}"


class LogEntry(NamedTuple):
    """An entry of the log of one process.

    Attributes:
        log: Its file, or which one of those that were given it is, such as ``consumers[1]``.
        number: How many entries of that log stand before it.
        event: What it tells.
    """

    log: str
    number: int
    event: object

    def __str__(self) -> str:
        return f"{self.log[-_VALUE_LIMIT:]} #{self.number} {describe(self.event)}"


@dataclass(eq=False, repr=False)
class MergeError(_KitError, ValueError):
    """Logs of which no history can be made: an entry that is none, or entries that contradict each other.

    Attributes:
        entries: What is wrong.
        requirement: What it must be or do, as the end of the sentence "it must ...", or "each of them must ...".
    """

    entries: tuple[LogEntry, ...]
    requirement: str

    def _text(self) -> str:
        who = "it" if len(self.entries) == 1 else "each of them"
        return f"{who} must {self.requirement}: {'; '.join(map(str, self.entries))}"


@dataclass(eq=False, repr=False)
class ClaimsError(_KitError, ValueError):
    """A claim that can never be kept or judged.

    Attributes:
        parameter: Its name.
        value: What was given.
        requirement: What it must be, as the end of the sentence "it must ...".
    """

    parameter: str
    value: object
    requirement: str

    def _text(self) -> str:
        return f"{self.parameter} is {in_short(self.value)}; it must {self.requirement}"


@dataclass(eq=False, repr=False)
class UnsupportedError(_KitError, NotImplementedError):
    """A driver was asked for something that it has not said its broker can do.

    Attributes:
        driver: Its class.
        method: What was asked for.
    """

    driver: str
    method: str

    def _text(self) -> str:
        return f"{self.driver} cannot {self.method}; override it if the broker can"


@dataclass(eq=False, repr=False)
class DriverError(_KitError, TypeError):
    """A method of a driver has returned something that it must not.

    Attributes:
        driver: Its class.
        method: Which method.
        answer: What it has returned.
        requirement: What it must return, as the end of the sentence "it must return ...".
    """

    driver: str
    method: str
    answer: object
    requirement: str

    def _text(self) -> str:
        return f"{self.driver}.{self.method} returned {in_short(self.answer)}; it must return {self.requirement}"


class KilledError(Exception):
    """The process of a broker was killed before it answered: a driver raises it, and the kit asked for that.

    What the broker has done of the call nobody knows.
    """


def describe(event: object) -> str:
    """Write an event as a call of its class, without what is not known; another value in short."""
    if not is_dataclass(event):
        return in_short(event)
    values = ((field.name, getattr(event, field.name)) for field in fields(event))
    named = ", ".join(f"{name}={_plain(value)}" for name, value in values if value is not None)
    return f"{type(event).__name__}({named})"


def _plain(value: object) -> str:
    return repr(str(value)) if isinstance(value, StrEnum) else in_short(value)


def in_short(value: object) -> str:
    """Return a short text of any value, also of one whose ``repr`` raises or never ends."""
    try:
        return _SHORT.repr(value)[:_VALUE_LIMIT]
    except Exception:  # noqa: BLE001 - whatever a foreign __repr__ raises: the error that is being told matters more
        return f"<{type(value).__name__} that cannot be shown>"


class _ShortRepr(reprlib.Repr):
    """``repr`` that looks at the first few parts of a value only, however large or deep it is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxstring = self.maxother = self.maxlong = _VALUE_LIMIT

    def repr_instance(self, x: Any, level: int) -> str:  # noqa: ANN401 - as the base has it
        names = [field.name for field in fields(x)] if is_dataclass(x) else getattr(x, "_fields", ())
        if not names:
            return super().repr_instance(x, level)
        inner = [self.repr1(getattr(x, name), level - 1) for name in names] if level > 0 else ["..."]
        return f"{type(x).__name__}({', '.join(inner)})"


def _cut(text: str) -> str:
    return text[:_MESSAGE_LIMIT].encode(errors="backslashreplace").decode()[:_MESSAGE_LIMIT]


_SHORT: Final = _ShortRepr()
