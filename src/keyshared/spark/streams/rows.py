"""Many rows of a topic-partition in one, and back: what a stream gives to Python and takes from it.

``transformWithState`` moves rows one by one, and each value of a row by itself: that takes several times what the
dispatcher does with them. So many rows are moved as one.

Commands go in *packed*, as the bytes of an Arrow batch. No Spark looks into these: the pandas frames of Spark 4.0 would
make floats of whole numbers where some are NULL, in arrays, too. Outcomes come out *bundled*, as arrays: Spark counts
them and takes them apart without Python, and of a list in Python every version makes an array as it stands.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from keyshared.spark.frames.checks import as_declared

__all__ = ["DUPLICATE", "PACKED_SCHEMA", "bundled", "pack_batches", "unbundled", "unpacked"]

DUPLICATE: Final = "duplicate"
"""The column beside arrays of outcomes: how many commands have been there before, since the row before."""

PACKED_SCHEMA: Final = StructType(
    [
        StructField("topic_partition", StringType(), nullable=False),
        StructField("packed", BinaryType(), nullable=False),  # its other columns: one batch in Arrow's stream format
    ]
)
"""The columns of rows that are packed."""


def pack_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put the rows that a topic-partition has in an Arrow batch into one: the function for ``mapInArrow``.

    Args:
        batches: The first column is the topic-partition, never NULL.

    Yields:
        For each batch one of `PACKED_SCHEMA`. Rows keep their order within a topic-partition.

    Complexity:
        O(n log n) for n rows of a batch, without a Python object for any of them.

    Example:
        >>> batch = pa.record_batch({"topic_partition": ["p", "q", "p"], "offset": [7, 3, 8]})
        >>> [packed] = pack_batches([batch])
        >>> [(row["topic_partition"], unpacked(row["packed"])) for row in packed.to_pylist()]
        [('p', [(7,), (8,)]), ('q', [(3,)])]
    """
    for batch in batches:
        rows = batch.take(pc.sort_indices(batch.column(0)))  # stable
        runs = pc.run_end_encode(rows.column(0))
        others = rows.remove_column(0)
        packed = [
            _stream_of(others.slice(start, end - start)) for start, end in pairwise([0, *runs.run_ends.to_pylist()])
        ]
        arrays = [runs.values, pa.array(packed, pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, names=PACKED_SCHEMA.names)


def _stream_of(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def unpacked(packed: bytes) -> list[tuple[Any, ...]]:
    """Take rows out of what `pack_batches` has made of them.

    Args:
        packed: The bytes of one row.

    Returns:
        The rows, without the topic-partition.
    """
    with pa.ipc.open_stream(packed) as stream:
        columns = stream.read_next_batch().columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


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
