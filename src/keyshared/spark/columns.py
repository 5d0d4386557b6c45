"""Looking at a frame's columns before a job starts, so that what is wrong is said at once and by its name."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructField, StructType

from keyshared.errors import ConfigError

__all__ = ["WHOLE", "as_declared", "check_columns", "check_key", "check_new", "type_of"]

WHOLE: Final = ("bigint", "int", "smallint", "tinyint")
"""Types of whole numbers, for `check_columns`."""

_SPARK_NAMES: Final = {"bigint": "long"}
_PARTS: Final = re.compile(r"(?:[^.`]+|`(?:[^`]|``)+`)(?:\.|$)")  # of a path; what has a dot in its name is quoted


def type_of(df: DataFrame, column: str) -> DataType:
    """Find the type of a column, of a field of a struct (``"event.key"``), or of a value in a map (``"headers.user"``).

    Args:
        df: The frame.
        column: Its name, as Spark reads it: upper and lower case are the same, except among the keys of a map, and a
            name with a dot in it stands in backticks.

    Returns:
        The type.

    Raises:
        ConfigError: There is no such column.
    """
    found = _field(df.schema, column)
    if found is None:
        raise ConfigError("column", column, f"be a column of the frame ({', '.join(df.columns)})")
    return found


def as_declared(field: StructField) -> Column:
    """Give a column that never is NULL, where its field says so.

    Spark forgets that of what it takes out of arrays, as soon as one of them might be shorter or empty.

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
        ConfigError: There is no such column, or it is neither string nor binary. A text with a collation is hashed by
            its collation key instead of its bytes, so it is refused, too.
    """
    found = type_of(df, column)
    if not isinstance(found, BinaryType) and found != StringType():
        raise ConfigError(
            "key column", column, f"be string or binary, and it is {found.simpleString()}; cast it to string first"
        )


def check_new(df: DataFrame, column: str) -> None:
    """Check that a column can be added without replacing one.

    Args:
        df: The frame.
        column: Name of the new column.

    Raises:
        ConfigError: It is empty, or taken; upper and lower case are the same, as in Spark.
    """
    taken = {name.casefold() for name in df.columns}
    if not column or column.casefold() in taken:
        raise ConfigError("into", column, f"be the name of a new column, none of {', '.join(df.columns)}")


def check_columns(df: DataFrame, expected: Mapping[str, tuple[str, ...]]) -> None:
    """Check that a frame has certain columns of certain types.

    Args:
        df: The frame; it may have more columns.
        expected: For each column the types that will do, as Spark writes them ("bigint", "string").

    Raises:
        ConfigError: A column is missing or of another type; the first one in the order of ``expected``.
    """
    for column, kinds in expected.items():
        found = type_of(df, column).simpleString()
        if found not in kinds:
            wanted = " or ".join(_SPARK_NAMES.get(kind, kind) for kind in kinds)
            raise ConfigError(
                "column", column, f"be {wanted}, and it is {_SPARK_NAMES.get(found, found)}; cast it first"
            )


def _field(kind: DataType, path: str) -> DataType | None:
    parts = _parts(path)
    return _descend(kind, parts) if parts else None


def _parts(path: object) -> list[str]:
    """The names along a path; none if it is no path."""
    if not isinstance(path, str):
        return []
    parts = [found.group() for found in _PARTS.finditer(path)]
    if "".join(parts) != path or path.endswith("."):
        return []
    names = [part.removesuffix(".") for part in parts]
    return [name[1:-1].replace("``", "`") if name.startswith("`") else name for name in names]


def _descend(kind: DataType, names: Sequence[str]) -> DataType | None:
    if not names:
        return kind
    if isinstance(kind, MapType):
        return _descend(kind.valueType, names[1:]) if kind.keyType == StringType() else None
    if not isinstance(kind, StructType):
        return None
    for field in kind.fields:
        if field.name.casefold() == names[0].casefold():
            return _descend(field.dataType, names[1:])
    return None
