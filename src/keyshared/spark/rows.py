"""The one way from Spark to Python: the rows of each topic-partition, in order, as an iterator.

A job is a plain function over the rows of one topic-partition. `by_partition` runs it on Spark; `each_partition` runs
it over any iterator, so that the same function works in ``rdd.mapPartitions``, in ``mapInArrow``, and without Spark.

Rows are checked while they are used: Spark may read a source again for each job and find other rows then, so a check
beforehand would not be about the same rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from keyshared._checks import check_int
from keyshared.errors import ArgumentError, KeySharedError

__all__ = [
    "KEYS",
    "TOPIC_PARTITION",
    "WHOLE",
    "RowError",
    "Rows",
    "Work",
    "batches_of",
    "by_partition",
    "check_columns",
    "each_partition",
    "label_of",
    "names_of",
    "never_null",
    "parsed",
    "refuse_types",
    "refused_where",
    "time_ms",
]

Rows: TypeAlias = Iterator[tuple[Any, ...]]
Work: TypeAlias = Callable[[Rows], Iterable[tuple[Any, ...]]]
"""Takes the rows of one topic-partition, in order, and returns the rows of its result."""

TOPIC_PARTITION: Final = ("topic", "partition")
"""The columns that name a topic-partition in the rows of Spark's Kafka source."""

WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
KEYS: Final = ("string", "binary")
_TIMES: Final = ("timestamp", "timestamp_ntz", *WHOLE)
_BATCH_ROWS: Final = 4_000


class RowError(KeySharedError):
    """The rows of a topic-partition cannot be used.

    Attributes:
        place: The topic-partition and the last row that was read of it.
        problem: The reason.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place = place
        self.problem = problem

    def _text(self) -> str:
        return f"at {self.place}: {self.problem}"


def by_partition(
    df: DataFrame,
    order: str | Sequence[str],
    columns: Sequence[str],
    schema: str,
    work: Work,
    *,
    topic_partition: str | Sequence[str] = TOPIC_PARTITION,
    tasks: int | None = None,
) -> DataFrame:
    """Run a Python function over the rows of each topic-partition, in order.

    Like ``groupBy(...).applyInPandas``, except that rows come as an iterator and in order: nothing has to fit into
    memory.

    Args:
        df: The rows; no stream.
        order: Columns that rows are sorted by within their topic-partition, NULLs first.
        columns: Columns that the function gets, as a tuple for each row.
        schema: The rows that the function returns, such as ``"offset bigint, key binary"``.
        work: The function. It travels to the workers as a pickled value, and they need keyshared installed.
        topic_partition: One or several columns, texts or whole numbers, that name a topic-partition.
        tasks: How many Spark tasks share the topic-partitions; None for ``spark.sql.shuffle.partitions``.

    Returns:
        The columns of ``topic_partition``, then those of ``schema``. Lazy.

    Raises:
        ArgumentError: A column is missing or of another type, ``tasks`` is less than 1, or ``df`` is a stream. While
            the job runs, a `KeySharedError` of ``work`` fails it, with the topic-partition and the last row read.

    Complexity:
        One shuffle and sort of the columns. Memory of a worker: that of ``work``, and two Arrow batches.

    Example:
        >>> def distances(rows):
        ...     last = None
        ...     for (offset,) in rows:
        ...         yield (offset, None if last is None else offset - last)
        ...         last = offset
        >>> log = spark.createDataFrame([("p", 0, 7), ("p", 0, 3)], "topic string, partition int, offset long")
        >>> found = by_partition(log, "offset", ["offset"], "offset long, distance long", distances)
        >>> [tuple(row) for row in found.collect()]
        [('p', 0, 3, None), ('p', 0, 7, 4)]
    """
    names, sorting = names_of(topic_partition), names_of(order, "order")
    check_columns(df, {**dict.fromkeys((*columns, *sorting), ()), **dict.fromkeys(names, ("string", *WHOLE))})
    if tasks is not None:
        check_int("tasks", tasks, 1)
    spark = df.sparkSession
    count = int(spark.conf.get("spark.sql.shuffle.partitions", "200")) if tasks is None else tasks  # type: ignore[arg-type]  # pyspark's stub forgets the default
    own = [field for field in df.schema.fields if field.name in names]
    returned = StructType([*sorted(own, key=lambda field: names.index(field.name)), *parsed(df, schema)])
    arrow, shown = to_arrow_schema(returned), [name if name in sorting else None for name in columns]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = chain.from_iterable(zip(*map(_values, batch.columns), strict=True) for batch in batches)
        return batches_of(each_partition(rows, names, work, shown=shown), arrow)

    wanted = list(dict.fromkeys((*names, *columns, *sorting)))
    rows = df.select(*(never_null(name) if name in names else F.col(name) for name in wanted))
    in_order = rows.repartition(count, *names).sortWithinPartitions(*names, *sorting)
    # the columns by number: one that names the topic-partition may be among them once more
    return in_order.select(*names, *(F.col(name).alias(f"_{place}") for place, name in enumerate(columns))).mapInArrow(
        run, returned
    )


def each_partition(
    rows: Iterable[tuple[Any, ...]],
    names: Sequence[str],
    work: Work,
    *,
    shown: Sequence[str | None] = (),
) -> Iterator[tuple[Any, ...]]:
    """Run a function over the rows of each topic-partition: what `by_partition` does in a task.

    Args:
        rows: Tuples that begin with the topic-partition; those of one topic-partition follow each other, in order.
        names: What the values that name the topic-partition are called; as many are taken from each row.
        work: The function; it gets the rest of each row.
        shown: What the values after them are called in an error; None for those that it does not show.

    Yields:
        The topic-partition and the rows that the function returns, as one tuple.

    Raises:
        RowError: The function raised a `KeySharedError`, or the rows of a topic-partition are not together.

    Example:
        >>> rows = [("orders", 0, 3), ("orders", 0, 7), ("orders", 1, 5)]
        >>> list(each_partition(rows, ["topic", "partition"], lambda rows: [(sum(n for (n,) in rows),)]))
        [('orders', 0, 10), ('orders', 1, 5)]
    """
    width, done = len(names), set()
    for name, own in groupby(rows, key=lambda row: row[:width]):
        last: list[tuple[Any, ...]] = []
        if name in done:
            raise RowError(_place(names, name, (), last), "its rows are not together: sort them first")
        done.add(name)
        try:
            for row in work(_remembering(own, width, last)):
                yield name + row
        except KeySharedError as error:
            raise RowError(_place(names, name, shown, last), str(error)) from None


def names_of(columns: str | Sequence[str], parameter: str = "topic_partition") -> tuple[str, ...]:
    """Return the names of one or several columns as a tuple.

    Args:
        columns: A name, or several.
        parameter: What the argument is called in an error.

    Returns:
        The names, at least one, each once.

    Raises:
        ArgumentError: It is something else.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, list | tuple) else ()
    if not names or len(set(names)) != len(names) or not all(isinstance(name, str) and name for name in names):
        raise ArgumentError(parameter, columns, "name one column, or several as a list, each once")
    return names


def label_of(topic_partition: str | Sequence[str]) -> Column:
    """Return a column that shows a topic-partition to people, such as ``orders-3``.

    Args:
        topic_partition: As everywhere.
    """
    return F.concat_ws("-", *(F.col(name).cast("string") for name in names_of(topic_partition)))


def check_columns(df: DataFrame, columns: Mapping[str, Sequence[str]]) -> None:
    """Check that a batch frame has some columns.

    Args:
        df: The frame.
        columns: Their names, and for each the types that will do, as Spark writes them; empty for any type.

    Raises:
        ArgumentError: One is missing or of another type, or the frame is a stream.
    """
    if df.isStreaming:
        raise ArgumentError("df", "a stream", "be a batch; only stream_dispatch takes streams")
    refuse_types(dict(df.dtypes), columns)


def refuse_types(types: Mapping[str, str], columns: Mapping[str, Sequence[str]]) -> None:
    """Check the types of some columns, of a batch or a stream.

    Args:
        types: The columns that there are, and their types.
        columns: As in `check_columns`.

    Raises:
        ArgumentError: One is missing or of another type.
    """
    for name, kinds in columns.items():
        if name not in types:
            raise ArgumentError("column", name, f"be one of {', '.join(types)}")
        if kinds and types[name] not in kinds:
            raise ArgumentError(f"type of column {name}", types[name], f"be {' or '.join(kinds)}")


def time_ms(df: DataFrame, name: str) -> Column:
    """Return a time column as whole milliseconds.

    Args:
        df: The frame.
        name: A timestamp, which becomes milliseconds since 1970, or a column of whole milliseconds.

    Raises:
        ArgumentError: It is of another type.
    """
    check_columns(df, {name: _TIMES})
    kind = dict(df.dtypes)[name]
    return F.col(name).cast("bigint") if kind in WHOLE else F.unix_millis(F.col(name).cast("timestamp"))


def parsed(df: DataFrame, schema: str) -> list[StructField]:
    """Return the fields of a schema that is written as Spark SQL does.

    Args:
        df: Any frame of the session.
        schema: Such as ``"offset bigint, key binary"``.
    """
    return df.sparkSession.createDataFrame([], schema).schema.fields


def never_null(name: str, value: Column | None = None, *, place: Sequence[str] = ()) -> Column:
    """Return a column of which NULL fails the job.

    Args:
        name: The column.
        value: Its values; None for the column as it is.
        place: Columns that the error shows, so that the row can be found.
    """
    value = F.col(name) if value is None else value
    return refused_where(value.isNull(), "NULL", name, place=place).otherwise(value).alias(name)


def refused_where(wrong: Column, what: str, name: str, *, place: Sequence[str] = ()) -> Column:
    """Return a condition that fails the job where it holds; go on with ``otherwise``.

    Args:
        wrong: Where.
        what: What a value is there, for the error.
        name: The column that it is about.
        place: As in `never_null`.
    """
    text = F.lit(f"keyshared: column {name} must not be {what} in any row")
    if place:
        shown = F.to_json(F.struct(*place), {"ignoreNullFields": "false"})
        text = F.concat(text, F.lit(", and it is in "), shown)
    return F.when(wrong, F.raise_error(text))


def _values(column: pa.Array) -> list[Any]:
    """Return Python's values of an Arrow column; whole numbers without NULL by way of numpy, in a third of the time."""
    if pa.types.is_integer(column.type) and not column.null_count:
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    return list(column.to_pylist())


def _remembering(rows: Iterable[tuple[Any, ...]], width: int, last: list[tuple[Any, ...]]) -> Rows:
    """Yield the rows without their topic-partition, and keep the last one for an error."""
    for row in rows:
        last[:] = (row[width:],)
        yield last[0]


def _place(
    names: Sequence[str], name: tuple[Any, ...], shown: Sequence[str | None], last: Sequence[tuple[Any, ...]]
) -> str:
    values = last[0] if last else ()
    pairs = [*zip(names, name, strict=True), *zip(shown, values, strict=False)]
    return ", ".join(f"{called}={value!r}" for called, value in pairs if called is not None)


def batches_of(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Put rows into Arrow batches.

    Args:
        rows: Tuples; read lazily.
        schema: Of the rows.

    Yields:
        Batches of some thousand rows, none empty.
    """
    found: list[tuple[Any, ...]] = []
    for row in rows:
        found.append(row)
        if len(found) == _BATCH_ROWS:
            yield _batch(found, schema)
            found = []
    if found:
        yield _batch(found, schema)


def _batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
