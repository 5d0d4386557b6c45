"""Many rows of a topic-partition in one row of arrays, and back: what a stream gives to Python and takes from it.

``transformWithState`` moves rows one by one, and each value of a row by itself: that takes several times what the
dispatcher does with them. The values of an array it moves at once, and each keeps its type; pandas, its other way,
would make floats of whole numbers where some are NULL.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import ArrayType, StructField, StructType

from keyshared.spark.frames.checks import as_declared

__all__ = ["DUPLICATE", "bundle_batches", "bundled", "unbundled"]

DUPLICATE: Final = "duplicate"
"""The column beside arrays of outcomes: how many commands have been there before, since the row before."""


def bundled(schema: StructType) -> StructType:
    """Return the schema of rows that hold many rows of a topic-partition each.

    Args:
        schema: Of single rows; its first column is the topic-partition.

    Returns:
        The topic-partition, and for each other column an array of the same name.

    Example:
        >>> schema = StructType().add("topic_partition", "string").add("offset", "long")
        >>> bundled(schema).simpleString()
        'struct<topic_partition:string,offset:array<bigint>>'
    """
    first, *others = schema.fields
    arrays = [StructField(field.name, ArrayType(field.dataType, field.nullable), nullable=False) for field in others]
    return StructType([first, *arrays])


def bundle_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put the rows that a topic-partition has in an Arrow batch into one: the function for ``mapInArrow``.

    Args:
        batches: The first column is the topic-partition, never NULL.

    Yields:
        For each batch one with the schema of `bundled`. Rows keep their order within a topic-partition.

    Complexity:
        O(n log n) for n rows of a batch, without a Python object for any of them.

    Example:
        >>> batch = pa.record_batch({"topic_partition": ["p", "q", "p"], "offset": [7, 3, 8]})
        >>> [bundles.to_pylist() for bundles in bundle_batches([batch])]
        [[{'topic_partition': 'p', 'offset': [7, 8]}, {'topic_partition': 'q', 'offset': [3]}]]
    """
    for batch in batches:
        rows = batch.take(pc.sort_indices(batch.column(0)))  # stable
        runs = pc.run_end_encode(rows.column(0))
        ends = pa.concat_arrays([pa.array([0], pa.int32()), runs.run_ends])
        arrays = [pa.ListArray.from_arrays(ends, column) for column in rows.columns[1:]]
        yield pa.RecordBatch.from_arrays([runs.values, *arrays], names=batch.schema.names)


def unbundled(df: DataFrame, schema: StructType) -> DataFrame:
    """Make a row of each element of the arrays, natively.

    Args:
        df: Of `bundled` schema; the arrays of a row are of one length.
        schema: Of single rows.

    Returns:
        Rows of ``schema``.
    """
    first, *names = schema.names
    rows = df.select(first, F.inline(F.arrays_zip(*names)))
    return rows.select(*(as_declared(field) for field in schema.fields))
