"""Histories as frames: which columns they have, and how Arrow batches of them become happenings.

A batch is decoded column by column, all happenings of a kind at once: several times as fast as row by row, which would
cost more than judging them. What is wrong in a batch is for `keyshared.testing.rows` to say: such a batch is read again
row by row. So there is one reader that decides what a history is, and this one only ever agrees.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import ArgumentError
from keyshared.spark.frames.batches import Values, runs_of, values_of
from keyshared.spark.frames.checks import check_columns, column_names, folding, parts_of
from keyshared.testing._garbage import collector_at_rest
from keyshared.testing.errors import HistoryError
from keyshared.testing.history import Happening, Held, HoldReason, SessionEnded, SessionEnds, Settled, SettledBy
from keyshared.testing.rows import COLUMNS, HISTORY_VERSION, KINDS, from_rows

__all__ = ["Run", "check_history_columns", "decode", "history_columns", "runs"]

Run: TypeAlias = tuple[str, Iterable[tuple[int, Happening]]]
"""A topic-partition, and some of its rows in order: sequence, and what happened."""

_SPARK_TYPES: Final = {
    "int32": ("int", "bigint"),
    "int64": ("bigint", "int"),
    "string": ("string",),
    "binary": ("binary", "string"),
    "bool": ("boolean",),
}
_ARROW_TYPES: Final = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
}
_CASTS: Final = {"int32": "int", "int64": "bigint", "string": "string", "binary": "binary", "bool": "boolean"}
_OWN_PREFIX: Final = "x_"
_NAMES: Final = tuple(column.name for column in COLUMNS)
_REASONS: Final[dict[type[Happening], type[StrEnum]]] = {
    Held: HoldReason,
    SessionEnded: SessionEnds,
    Settled: SettledBy,
}
_Places: TypeAlias = np.ndarray[tuple[int], np.dtype[np.intp]]


class _Kind(NamedTuple):
    """How happenings of a kind are built: its class, its fields (all are columns), what assigns them, what must be."""

    cls: type[Happening]
    fields: tuple[str, ...]
    slots: tuple[Callable[[object, object], None], ...]
    required: frozenset[str]
    defaults: Mapping[str, object]  # those that are not None


def _kind(cls: type[Happening]) -> _Kind:
    names = tuple(each.name for each in fields(cls))
    required = frozenset(each.name for each in fields(cls) if each.default is MISSING)
    defaults = {each.name: each.default for each in fields(cls) if each.default not in {MISSING, None}}
    return _Kind(cls, names, tuple(getattr(cls, name).__set__ for name in names), required, defaults)


_KINDS: Final = {name: _kind(cls) for name, cls in KINDS.items()}


def check_history_columns(df: DataFrame, *, topic_partition: str, sequence: str) -> None:
    """Check that a frame has the columns of a history.

    Args:
        df: The frame. Columns that may be null may be missing; names that begin with ``x_`` are the user's.
        topic_partition: The column that names the history, as Spark reads it: a name with a dot stands in backticks.
        sequence: The column that orders it, likewise.

    Raises:
        ArgumentError: A column is missing, of another type, or unknown: a misspelt one would have no effect.
    """
    check_columns(df, {topic_partition: ("string",), sequence: ("bigint", "int")})
    fold, there = folding(df), column_names(df)
    wanted = [column for column in COLUMNS if not column.nullable or column.name in there]
    check_columns(df, {column.name: _SPARK_TYPES[column.arrow] for column in wanted})
    known = {*_NAMES, *(fold(names[0]) for names in map(parts_of, (topic_partition, sequence)) if len(names) == 1)}
    for name in df.columns:
        if fold(name) not in known and not name.startswith(_OWN_PREFIX):
            requirement = f"be one of {', '.join(_NAMES)}; columns of your own begin with {_OWN_PREFIX}"
            raise ArgumentError("column", name, requirement)


def history_columns(df: DataFrame, *, topic_partition: str, sequence: str) -> DataFrame:
    """Select a checked history as `runs` reads it.

    Args:
        df: A frame that passed `check_history_columns`.
        topic_partition: As there.
        sequence: As there.

    Returns:
        ``topic_partition``, ``sequence``, and those columns of a history that are there, in their order.
    """
    there = column_names(df)
    return df.select(
        F.col(topic_partition).alias("topic_partition"),
        F.col(sequence).cast("bigint").alias("sequence"),
        *(
            F.col(column.name).cast(_CASTS[column.arrow]).alias(column.name)
            for column in COLUMNS
            if column.name in there
        ),
    )


def runs(batches: Iterable[pa.RecordBatch]) -> Iterator[Run]:
    """Read Arrow batches with the columns of `history_columns`, cut anywhere.

    Args:
        batches: Rows of a topic-partition stand next to each other, in order. A column that may be null may be missing.

    Yields:
        The rows of a batch that belong to one topic-partition.

    Raises:
        HistoryError: A row is no happening. Its number counts the rows of its topic-partition from 0, and a note names
            the topic-partition.

    Complexity:
        O(1) for each row; one batch is in memory.
    """
    last: str | None = None
    position = 0
    for batch in batches:
        for topic_partition, start, stop in runs_of(batch.column(0)):
            if topic_partition != last:
                last, position = topic_partition, 0
            rows = batch.slice(start, stop - start)
            try:
                happenings = decode(_with_all_columns(rows), position)
            except HistoryError as error:
                error.add_note(f"in topic_partition {topic_partition!r}")
                raise
            yield topic_partition, zip(rows.column(1).to_numpy().tolist(), happenings, strict=True)
            position += stop - start


def _with_all_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    there = set(rows.schema.names)
    columns = [
        rows.column(each.name) if each.name in there else pa.nulls(len(rows), _ARROW_TYPES[each.arrow])
        for each in COLUMNS
    ]
    return pa.RecordBatch.from_arrays(columns, names=_NAMES)


def decode(batch: pa.RecordBatch, position: int = 0) -> list[Happening]:
    """Read the rows of one history.

    Args:
        batch: With the columns of `keyshared.testing.rows.COLUMNS`, in their types.
        position: Position of its first row in the history, for errors.

    Returns:
        What `keyshared.testing.rows.from_rows` gives for these rows.

    Raises:
        HistoryError: A row is no happening.

    Complexity:
        O(rows).
    """
    with collector_at_rest():
        happenings = _decode_columns(batch)
    return list(_decode_rows(batch, position)) if happenings is None else happenings


def _decode_rows(batch: pa.RecordBatch, position: int) -> Iterator[Happening]:
    try:
        yield from from_rows(batch.to_pylist())
    except HistoryError as error:
        number = position + error.number
        raise HistoryError(number, error.unit, error.field, error.value, error.requirement) from None


def _decode_columns(batch: pa.RecordBatch) -> list[Happening] | None:
    """Decode by kind and column; None if any row is not as it must be."""
    version, names = batch.column("version"), batch.column("happening")
    if version.null_count or names.null_count or not pc.all(pc.equal(version, HISTORY_VERSION)).as_py():
        return None
    kinds = names.dictionary_encode()
    numbers = kinds.indices.to_numpy()
    columns = {name: _encoded(batch.column(name)) for name in _NAMES[2:]}
    found = np.empty(len(batch), dtype=object)
    told = dict.fromkeys(columns, 0)
    for number, name in enumerate(kinds.dictionary.to_pylist()):
        kind = _KINDS.get(name)
        places = np.flatnonzero(numbers == number)
        values = None if kind is None else _fields_of(columns, kind, places, told)
        if kind is None or values is None:
            return None
        found[places] = _built(kind, len(places), values)
    # a value that no field has taken stands where there must be none
    if any(len(column) - column.null_count != told[name] for name, column in columns.items()):
        return None
    return found.tolist()


def _fields_of(
    columns: Mapping[str, pa.Array], kind: _Kind, places: _Places, told: dict[str, int]
) -> list[Values] | None:
    """The fields of all happenings of a kind; counts the values of each column. None if one is missing or unknown."""
    found: list[Values] = []
    rows = pa.array(places)
    for name in kind.fields:
        column = columns[name].take(rows)
        told[name] += len(column) - column.null_count
        if column.null_count and name in kind.required:
            return None
        values = values_of(column)
        if column.null_count and name in kind.defaults:
            values = [kind.defaults[name] if value is None else value for value in values]
        if name == "reason" and kind.cls in _REASONS:
            reasons = {reason.value: reason for reason in _REASONS[kind.cls]}
            values = [reasons.get(str(value)) for value in values]
            if None in values:
                return None
        found.append(values)
    return found


def _built(kind: _Kind, count: int, columns: list[Values]) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Make happenings field by field, as unpickling does: their constructor only assigns, at five times the cost."""
    made = list(map(object.__new__, repeat(kind.cls, count)))
    for assign, values in zip(kind.slots, columns, strict=True):
        deque(map(assign, made, values), maxlen=0)
    # assigning the list itself, NumPy would ask every happening whether it is a sequence
    return np.fromiter(made, object, count)


def _encoded(column: pa.Array) -> pa.Array:
    """Make each text and its hash once: names of consumers and reasons are few and come again."""
    return column.dictionary_encode() if pa.types.is_string(column.type) else column
