"""Histories as data: one flat row for each event, as JSON Lines, CSV or the rows of any table (docs/history.md).

Nothing here opens a file: readers take lines or rows and yield events, writers do the reverse, both lazily.
"""

import csv
import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from json.scanner import make_scanner
from operator import itemgetter
from typing import Final, NamedTuple, NoReturn, get_args

from keyshared.testing.errors import HistoryError
from keyshared.testing.history import Event, Held, HoldReason, SessionEnded, SessionEnds, Settled, SettledBy

__all__ = [
    "COLUMNS",
    "HISTORY_VERSION",
    "KINDS",
    "Column",
    "from_rows",
    "read_csv",
    "read_jsonl",
    "to_rows",
    "write_jsonl",
]

HISTORY_VERSION: Final = 2
"""Version of the format. A reader refuses every other one."""


class Column(NamedTuple):
    """A column of the wide row.

    Attributes:
        name: Its name.
        arrow: Its type, as Apache Arrow and Parquet call it.
        nullable: Whether it may be null: all but two may, because no event has all of them.
    """

    name: str
    arrow: str
    nullable: bool = True


COLUMNS: Final = (
    Column("version", "int32", nullable=False),
    Column("event", "string", nullable=False),
    Column("at_ms", "int64"),
    Column("offset", "int64"),
    Column("key", "binary"),
    Column("consumer", "string"),
    Column("attempt", "int64"),
    Column("counted", "bool"),
    Column("reason", "string"),
    Column("until_ms", "int64"),
    Column("limit", "int64"),
    Column("drains", "bool"),
    Column("resume_offset", "int64"),
    Column("session", "int64"),
)
"""The columns of a row, in order. What does not apply to an event is null."""

_TYPES: Final = {column.name: column.arrow for column in COLUMNS}
_OWN_PREFIX: Final = "x_"
_SHOWN_CHARACTERS: Final = 80
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1  # of 64 bits
_JSON_SPACE: Final = " \t\n\r"
_EVENT: Final = itemgetter(1)  # of one that comes with its number
# `json.loads` costs as much again for what is around the text.
_read_json: Final = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]  # its stub asks for the scanner itself


class _Field(NamedTuple):
    """How a field of an event is read from a value that is not taken as it is.

    Attributes:
        parse: Returns the field, or raises ValueError.
        requirement: What the value must be.
    """

    parse: Callable[[object], object]
    requirement: str


class _Kind(NamedTuple):
    """How an event is read.

    Attributes:
        cls: Its class.
        columns: Of each field its name, the type of values that are taken as they are (ints of 64 bits), what assigns
            it, and what it is if it is null: MISSING if it must not be.
        fields: How other values become one.
        names: Of all columns that its rows may have.
    """

    cls: type[Event]
    columns: tuple[tuple[str, type, Callable[[object, object], None], object], ...]
    fields: Mapping[str, _Field]
    names: frozenset[str]


def _nothing_else(value: object) -> NoReturn:  # noqa: ARG001  # one shape for all
    raise ValueError


def _key(value: object) -> bytes:
    if type(value) is not str:
        raise ValueError
    return value.encode()  # a lone surrogate is a ValueError too


_REASONS: Final[Mapping[type[Event], type[HoldReason | SessionEnds | SettledBy]]] = {
    Held: HoldReason,
    SessionEnded: SessionEnds,
    Settled: SettledBy,
}
_PARSERS: Final[Mapping[str, tuple[type, Callable[[object], object], str]]] = {
    "int64": (int, _nothing_else, "be an int of 64 bits"),
    "string": (str, _nothing_else, "be a str"),
    "bool": (bool, _nothing_else, "be true or false"),
    "binary": (bytes, _key, "be bytes, or a str that UTF-8 can encode"),
}


def _kind(cls: type[Event]) -> _Kind:
    parsers = {each.name: _PARSERS[_TYPES[each.name]] for each in fields(cls)}
    if cls in _REASONS:
        reasons = _REASONS[cls]
        parsers["reason"] = reasons, reasons, f"be one of {', '.join(map(repr, map(str, reasons)))}"
    columns = tuple(
        (each.name, parsers[each.name][0], getattr(cls, each.name).__set__, each.default) for each in fields(cls)
    )
    others = {name: _Field(parse, requirement) for name, (_, parse, requirement) in parsers.items()}
    return _Kind(cls, columns, others, frozenset({*parsers, "version", "event"}))


def _name(cls: type[Event]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


_BY_NAME: Final = {_name(cls): _kind(cls) for cls in get_args(Event)}
KINDS: Final[Mapping[str, type[Event]]] = {name: kind.cls for name, kind in _BY_NAME.items()}
"""What can stand in the column ``event``, and its class."""
_NAMES: Final = {cls: name for name, cls in KINDS.items()}


def from_rows(rows: Iterable[Mapping[str, object]]) -> Iterator[Event]:
    """Read a history from rows, for instance of a table: ``from_rows(table.to_pylist())``.

    Args:
        rows: Each with the columns of `COLUMNS`; columns that are null may be left out, and ``key`` may be a text.
            Columns whose names begin with ``x_`` are yours and ignored.

    Yields:
        The events, in the order of the rows.

    Raises:
        HistoryError: While iterating: a row that is none, naming it and its field.

    Complexity:
        O(1) for each row; one row is in memory.

    Example:
        >>> list(from_rows([{"version": 2, "event": "published", "offset": 0, "key": "order-1"}]))
        [Published(offset=0, key=b'order-1', until_ms=None, at_ms=None)]
    """
    for number, row in enumerate(rows):
        yield _decode(row, number, "row")


def read_jsonl(lines: Iterable[str]) -> Iterator[Event]:
    r"""Read a history from lines of JSON, for instance from an open text file.

    Args:
        lines: One object a line, with the columns of `COLUMNS`; blank lines are passed over. A key that is no UTF-8
            stands in ``key_base64`` instead of ``key``.

    Yields:
        The events, in the order of the lines.

    Raises:
        HistoryError: While iterating: a line that is none, naming it and its field.

    Complexity:
        O(1) for each line; one line is in memory.

    Example:
        >>> list(read_jsonl(['{"version": 2, "event": "committed", "resume_offset": 3}\n']))
        [Committed(resume_offset=3, at_ms=None)]
        >>> next(read_jsonl(['{"version": 2, "event": "committed", "resume_offset": "3"}\n']))
        Traceback (most recent call last):
        keyshared.testing.errors.HistoryError: resume_offset of line 1 is '3'; it must be an int of 64 bits
    """
    return map(_EVENT, numbered_jsonl(lines))


def numbered_jsonl(lines: Iterable[str]) -> Iterator[tuple[int, Event]]:
    """Read as `read_jsonl`, each event with the number of its line."""
    for number, line in enumerate(lines, start=1):
        if type(line) is not str:
            raise HistoryError(number, "line", None, line, "be a str")
        text = line.strip(_JSON_SPACE)
        try:
            row, end = _read_json(text, 0)
        except (StopIteration, ValueError, RecursionError):  # the first: no value begins there
            row, end = None, -1
        if end != len(text):
            if not line or line.isspace():
                continue
            raise HistoryError(number, "line", None, line[:_SHOWN_CHARACTERS], "be one JSON object")
        if type(row) is dict and "key_base64" in row and row["key_base64"] is not None:
            row["key"] = _base64(row, number)
        yield number, _decode(row, number, "line")


def read_csv(lines: Iterable[str]) -> Iterator[Event]:
    r"""Read a history from lines of CSV, for instance from a text file that was opened with ``newline=""``.

    Args:
        lines: The first one names the columns, which are those of `COLUMNS` or begin with ``x_``. Without a column
            ``version`` it is version 2. An empty cell is null; ints are written in decimal digits, bools as ``true`` or
            ``false``. A key that is no UTF-8 stands in ``key_base64``. Blank lines are passed over.

    Yields:
        The events, in the order of the lines.

    Raises:
        HistoryError: While iterating: a line that is none, naming it and its field.

    Complexity:
        O(1) for each line; one line is in memory.

    Example:
        >>> list(read_csv(["event,offset,key,consumer\n", "delivered,3,order-1,c1\n"]))
        [Delivered(offset=3, key=b'order-1', consumer='c1', attempt=None, at_ms=None)]
        >>> list(read_csv(["event,offset,key\n", "published,first,order-1\n"]))
        Traceback (most recent call last):
        keyshared.testing.errors.HistoryError: offset of line 2 is 'first'; it must be an int of 64 bits
    """
    return map(_EVENT, numbered_csv(lines))


def numbered_csv(lines: Iterable[str]) -> Iterator[tuple[int, Event]]:
    """Read as `read_csv`, each event with the number of the line on which it ends."""
    reader = csv.reader(lines, strict=True)
    columns: list[str] | None = None
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise HistoryError(reader.line_num, "line", None, str(error), "be CSV") from None
        if cells is None:
            return
        if not cells:
            continue
        if columns is None:
            columns = _checked_columns(cells, reader.line_num)
        elif len(cells) != len(columns):
            raise HistoryError(
                reader.line_num, "line", None, cells, f"have {len(columns)} cells, as the first line has"
            )
        else:
            yield reader.line_num, _decode(_row_of(columns, cells, reader.line_num), reader.line_num, "line")


def to_rows(history: Iterable[Event]) -> Iterator[dict[str, object]]:
    """Write a history as rows, for instance for a table: ``pyarrow.Table.from_pylist(list(to_rows(history)))``.

    Args:
        history: The events, in order.

    Yields:
        One row for each, with all columns of `COLUMNS`.
    """
    for number, event in enumerate(history):
        row: dict[str, object] = dict.fromkeys(_TYPES)
        row.update(_fields(event, number))
        yield row


def write_jsonl(history: Iterable[Event]) -> Iterator[str]:
    r"""Write a history as lines of JSON, for instance ``file.writelines(write_jsonl(history))``.

    Args:
        history: The events, in order.

    Yields:
        One line for each, in ASCII, with its end of line. What is None is left out.

    Example:
        >>> from keyshared.testing.history import Published
        >>> list(write_jsonl([Published(offset=0, key=b"\xff")]))
        ['{"version":2,"event":"published","offset":0,"key_base64":"/w=="}\n']
    """
    for number, event in enumerate(history):
        row = {name: value for name, value in _fields(event, number).items() if value is not None}
        if isinstance(key := row.get("key"), bytes):
            del row["key"]
            row.update(_json_key(key))
        yield json.dumps(row, separators=(",", ":")) + "\n"


def _fields(event: Event, number: int) -> dict[str, object]:
    name = _NAMES.get(type(event))
    if name is None:
        raise HistoryError(number, "event", None, event, "be a value of keyshared.testing.history")
    row: dict[str, object] = {"version": HISTORY_VERSION, "event": name}
    for column in _BY_NAME[name].fields:
        value = getattr(event, column)
        row[column] = str(value) if isinstance(value, str) else value  # an Enum's value, plainly
    return row


def _json_key(key: bytes) -> dict[str, str]:
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_base64": b64encode(key).decode()}


def _base64(row: dict[str, object], number: int) -> bytes:
    text = row.pop("key_base64")
    if row.get("key") is not None:
        raise HistoryError(number, "line", "key_base64", text, "not stand beside key")
    if isinstance(text, str):
        with suppress(ValueError, Base64Error):
            return b64decode(text, validate=True)
    raise HistoryError(number, "line", "key_base64", text, "be a str in base64")


def _checked_columns(names: list[str], number: int) -> list[str]:
    """Refuse a misspelt column here: where its cells are empty, no line would show it."""
    known = [*_TYPES, "key_base64"]
    for name in names:
        if name not in known and not name.startswith(_OWN_PREFIX):
            raise HistoryError(number, "line", "a column", name, f"be one of {', '.join(known)}, or begin with x_")
        if names.count(name) > 1:
            raise HistoryError(number, "line", "a column", name, "be there once")
    return names


def _row_of(columns: list[str], cells: list[str], number: int) -> dict[str, object]:
    """Read the cells of a line of CSV by the types of their columns; a text that cannot be read is left as it is."""
    row: dict[str, object] = {"version": HISTORY_VERSION}
    for column, cell in zip(columns, cells, strict=True):
        if cell:
            row[column] = _FROM_TEXT.get(_TYPES.get(column, "string"), str)(cell)
    if "key_base64" in row:
        row["key"] = _base64(row, number)
    return row


def _int_from_text(cell: str) -> int | str:
    return int(cell) if _DIGITS.fullmatch(cell) else cell


def _bool_from_text(cell: str) -> bool | str:
    return {"true": True, "false": False}.get(cell, cell)


_DIGITS: Final = re.compile(r"-?[0-9]{1,20}")  # more are no int of 64 bits
_FROM_TEXT: Final[Mapping[str, Callable[[str], object]]] = {
    "int32": _int_from_text,
    "int64": _int_from_text,
    "bool": _bool_from_text,
}


def _decode(row: object, number: int, unit: str) -> Event:
    if type(row) is not dict and not isinstance(row, Mapping):
        raise HistoryError(number, unit, None, row, "be an object with the fields of an event")
    version = row.get("version")
    if type(version) is not int or version != HISTORY_VERSION:
        raise HistoryError(
            number, unit, "version", version, f"be {HISTORY_VERSION}, the version that this reader knows"
        )
    name = row.get("event")
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        raise HistoryError(number, unit, "event", name, f"be one of {', '.join(_BY_NAME)}")
    event = object.__new__(kind.cls)  # its constructor would only assign, at three times the cost
    told = 2
    for column, wanted, assign, default in kind.columns:
        value = row.get(column)
        if value is None and default is not MISSING:
            assign(event, default)
            continue
        told += 1
        if wanted is int:
            if type(value) is not int or not _LOWEST <= value <= _HIGHEST:
                value = _parsed(column, value, kind, number, unit)
        elif type(value) is not wanted:
            value = _parsed(column, value, kind, number, unit)
        assign(event, value)
    if len(row) > told:
        _check_others(row, kind, number, unit)
    return event


def _parsed(column: str, value: object, kind: _Kind, number: int, unit: str) -> object:
    if value is None:
        raise HistoryError(number, unit, column, None, f"be there: {_NAMES[kind.cls]} needs it")
    field = kind.fields[column]
    try:
        return field.parse(value)
    except ValueError:
        raise HistoryError(number, unit, column, value, field.requirement) from None


def _check_others(row: Mapping[object, object], kind: _Kind, number: int, unit: str) -> None:
    """A misspelt optional column would otherwise be silently without effect."""
    for name, value in row.items():
        if name in kind.names or (isinstance(name, str) and name.startswith(_OWN_PREFIX)):
            continue
        if name not in _TYPES:
            raise HistoryError(
                number, unit, str(name), value, f"not be there: columns of your own begin with {_OWN_PREFIX}"
            )
        if value is not None:
            raise HistoryError(number, unit, name, value, f"be null: {row['event']} has no such field")
