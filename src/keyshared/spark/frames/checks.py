"""Checks of a frame's columns before a job starts, so that a fault is reported at once and by its name."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructField, StructType

from keyshared.errors import ArgumentError

__all__ = [
    "WHOLE",
    "as_declared",
    "check_batch",
    "check_columns",
    "check_distinct",
    "check_key",
    "check_new",
    "check_not_ours",
    "column_names",
    "folding",
    "parts_of",
    "quoted",
    "type_of",
]

WHOLE: Final = ("bigint", "int", "smallint", "tinyint")
"""Types of whole numbers, for `check_columns`."""

_CASE_SENSITIVE: Final = "spark.sql.caseSensitive"
_OURS: Final = "_keyshared_"
_SPARK_NAMES: Final = {"bigint": "long"}
_PARTS: Final = re.compile(r"(?:[^.`]+|`(?:[^`]|``)+`)(?:\.|$)")  # of a path; what has a dot in its name is quoted


def type_of(df: DataFrame, column: str) -> DataType:
    """Find the type of a column, of a field of a struct (``"event.key"``), or of a value in a map (``"headers.user"``).

    Args:
        df: The frame.
        column: Its name, as Spark reads it: upper and lower case are the same, unless the session says otherwise and
            except among the keys of a map, and a name with a dot in it stands in backticks.

    Returns:
        The type.

    Raises:
        ArgumentError: There is no such column, or there are several; or this is no frame.
    """
    if not hasattr(type(df), "selectExpr"):  # of Spark itself, or of Spark Connect, which once were no relatives
        raise ArgumentError("frame", df, "be a DataFrame")
    parts = parts_of(column)
    found = _descend(df.schema, parts, folding(df)) if parts else []
    if not found:
        meant = f"; in backticks it is one: {quoted(column)}" if column in df.columns else ""
        raise ArgumentError("column", column, f"be a column of the frame ({', '.join(df.columns)}){meant}")
    if len(found) > 1:
        raise ArgumentError(
            "column", column, f"be one column, and the frame has {len(found)} of that name; rename them"
        )
    return found[0]


def folding(df: DataFrame) -> Callable[[str], str]:
    """Return the function that makes names equal if the frame's session takes them for one: it folds case, or keeps it.

    Args:
        df: A frame of the session.
    """
    sensitive = str(df.sparkSession.conf.get(_CASE_SENSITIVE)).lower() == "true"
    return str if sensitive else str.lower  # as Spark: to casefold(), ß and ss are one


def column_names(df: DataFrame) -> set[str]:
    """Return the names of a frame's columns, folded as `folding` does: for columns that may be missing.

    Args:
        df: The frame.
    """
    return set(map(folding(df), df.columns))


def check_distinct(df: DataFrame, columns: Iterable[str]) -> None:
    """Check that each name occurs once in a frame, before these columns are selected by name.

    Args:
        df: The frame.
        columns: Names as they stand in it, without quotes.

    Raises:
        ArgumentError: Several columns have one of these names.
    """
    fold = folding(df)
    counts = Counter(map(fold, df.columns))
    for name in columns:
        if counts[fold(name)] > 1:
            requirement = f"be one column, and the frame has {counts[fold(name)]} of that name; rename them"
            raise ArgumentError("column", name, requirement)


def quoted(name: str) -> str:
    """Return a name as Spark reads it back as one, whatever is in it: dots, for example.

    Args:
        name: As it stands in the schema.
    """
    return f"`{name.replace('`', '``')}`"


def as_declared(field: StructField) -> Column:
    """Return a column as one that never is NULL, where its field says so.

    Spark forgets this for values from arrays, as soon as one of the arrays might be shorter or empty.

    Args:
        field: Of a plain type, neither array nor struct.

    Returns:
        The column of that name, as it is.
    """
    column = F.col(field.name)
    # never taken: a constant is what tells Spark
    return column if field.nullable else F.coalesce(column, F.lit(0).cast(field.dataType)).alias(field.name)


def check_key(df: DataFrame, column: str) -> None:
    """Check that a column can be hashed as a key.

    Args:
        df: The frame.
        column: Name of the key column.

    Raises:
        ArgumentError: There is no such column, or it is neither string nor binary. A text with a collation is hashed by
            its collation key instead of its bytes, so it is refused, too.
    """
    found = type_of(df, column)
    if not isinstance(found, BinaryType) and found != StringType():
        raise ArgumentError(
            "key column", column, f"be string or binary, and it is {found.simpleString()}; cast it to string first"
        )


def check_new(df: DataFrame, column: str) -> None:
    """Check that a column can be added without replacing one.

    Args:
        df: The frame.
        column: Name of the new column.

    Raises:
        ArgumentError: It is empty, or taken; upper and lower case are the same, if they are in this session.
    """
    if type(column) is not str or not column or folding(df)(column) in column_names(df):
        raise ArgumentError("into", column, f"be the name of a new column, none of {', '.join(df.columns)}")


def check_not_ours(df: DataFrame, columns: Iterable[str]) -> None:
    """Check that columns which stay in a frame have no names of this library's own, which it adds and drops again.

    Args:
        df: The frame.
        columns: Names as they stand in it, without quotes.

    Raises:
        ArgumentError: A name begins as those of the library do.
    """
    fold = folding(df)
    for name in columns:
        if fold(name).startswith(_OURS):
            requirement = f"not begin with {_OURS}, as names of keyshared's own columns do; rename it first"
            raise ArgumentError("column", name, requirement)


def check_batch(df: DataFrame) -> None:
    """Check that a frame can be asked for its rows at once.

    Args:
        df: The frame.

    Raises:
        ArgumentError: It is a stream.
    """
    if df.isStreaming:
        raise ArgumentError("frame", "a stream", "be batch; within foreachBatch each micro-batch is one")


def check_columns(df: DataFrame, expected: Mapping[str, tuple[str, ...]]) -> None:
    """Check that a frame has certain columns of certain types.

    Args:
        df: The frame; it may have more columns.
        expected: For each column the types that will do, as Spark writes them ("bigint", "string").

    Raises:
        ArgumentError: A column is missing or of another type; the first one in the order of ``expected``.
    """
    for column, kinds in expected.items():
        found = type_of(df, column).simpleString()
        if found not in kinds:
            wanted = " or ".join(_SPARK_NAMES.get(kind, kind) for kind in kinds)
            raise ArgumentError(
                "column", column, f"be {wanted}, and it is {_SPARK_NAMES.get(found, found)}; cast it first"
            )


def parts_of(path: object) -> list[str]:
    """Return the names along a path, without backticks; none if it is no path.

    Args:
        path: A column, a field of a struct, or a value in a map, as Spark reads it.
    """
    if not isinstance(path, str):
        return []
    parts = [found.group() for found in _PARTS.finditer(path)]
    if "".join(parts) != path or path.endswith("."):
        return []
    names = [part.removesuffix(".") for part in parts]
    return [name[1:-1].replace("``", "`") if name.startswith("`") else name for name in names]


def _descend(kind: DataType, names: Sequence[str], fold: Callable[[str], str]) -> list[DataType]:
    """Return the types of all that these names can mean."""
    if not names:
        return [kind]
    if isinstance(kind, MapType):
        return _descend(kind.valueType, names[1:], fold) if kind.keyType == StringType() else []
    if not isinstance(kind, StructType):
        return []
    wanted = fold(names[0])
    fields = (field.dataType for field in kind.fields if fold(field.name) == wanted)
    return [found for field in fields for found in _descend(field, names[1:], fold)]
