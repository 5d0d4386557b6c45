"""Frames of literal rows that reach the JVM as Arrow.

The usual way makes an RDD of them, and in every job that reads it a Python worker hands the rows over.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def of_literal_rows(session: "SparkSession") -> Callable[..., "DataFrame"]:
    """``createDataFrame`` of a session that sends rows with a schema as Arrow, and all else as it always does.

    Args:
        session: The session.

    Returns:
        The function.
    """
    usual: Callable[..., DataFrame] = session.createDataFrame

    def create(data: Any, schema: Any = None, **options: Any) -> "DataFrame":
        columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
        if not isinstance(data, list) or not isinstance(columns, StructType) or options:
            return usual(data, schema, **options)
        return usual(_table(data, columns), columns)

    return create


def _table(rows: list[Any], columns: StructType) -> "pa.Table":
    if not rows:
        return to_arrow_schema(columns, timezone="UTC").empty_table()
    return LocalDataToArrowConversion.convert(rows, columns, use_large_var_types=False)
