"""Tables as a part of the plan: constants, so that a look-up is an expression that Catalyst compiles, and frames."""

import json
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.pandas.types import from_arrow_schema

from keyshared.spark.versions import ARROW_FRAMES

__all__ = ["brought_here", "constant", "frame_of"]


def constant(values: Sequence[object], kind: str) -> Column:
    """Build an array that is a constant of the plan.

    It is parsed from one JSON text: creating 65,536 literals one by one takes 17 seconds, this takes milliseconds.

    Args:
        values: Numbers, texts or None.
        kind: The type of the array, as Spark writes it ("array<int>").

    Returns:
        The constant.

    Complexity:
        The plan grows by the length of the text.
    """
    return F.from_json(F.lit(json.dumps(values)), kind)


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Make a frame of an Arrow table.

    Args:
        spark: The session.
        table: Of plain columns.

    Returns:
        The frame. From Spark 4.0 on the table is a part of its plan. Before, its rows go through a Python worker in
        each job that reads them.
    """
    if ARROW_FRAMES.is_here:
        return spark.createDataFrame(table)
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return spark.createDataFrame(rows, from_arrow_schema(table.schema))


def brought_here(df: DataFrame) -> DataFrame:
    """Run the job of a frame, and make a frame of the rows that come out: what is asked later runs no such job again.

    Args:
        df: Of few rows.

    Returns:
        A frame of the same schema, as in `frame_of`.
    """
    rows = df.toArrow() if ARROW_FRAMES.is_here else df.collect()
    return df.sparkSession.createDataFrame(rows, df.schema)
