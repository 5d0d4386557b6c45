"""Many commands of a topic-partition in one row, and back: ``transformWithState`` moves rows one by one."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DUPLICATE", "PACKED", "pack_batches", "unpacked"]

PACKED: Final = "packed"
DUPLICATE: Final = "duplicate"
"""Beside arrays of outcomes: how many commands came a second time."""


def pack_batches(batches: Iterable[pa.RecordBatch], width: int) -> Iterator[pa.RecordBatch]:
    """Put the rows that a topic-partition has in an Arrow batch into one.

    Args:
        batches: The first columns name the topic-partition.
        width: How many they are.

    Yields:
        For each batch the names, and beside them the other columns as the bytes of an Arrow stream. Rows keep their
        order within a topic-partition.

    Example:
        >>> batch = pa.record_batch({"shard": ["p", "q", "p"], "offset": [7, 3, 8]})
        >>> [packed] = pack_batches([batch], 1)
        >>> [(row["shard"], unpacked(row["packed"])) for row in packed.to_pylist()]
        [('p', [(7,), (8,)]), ('q', [(3,)])]
    """
    for batch in batches:
        names = batch.schema.names[:width]
        rows = batch.take(pc.sort_indices(batch, [(name, "ascending") for name in names]))  # stable
        ends = {end for column in rows.columns[:width] for end in pc.run_end_encode(column).run_ends.to_pylist()}
        cuts = list(pairwise([0, *sorted(ends)]))
        others = rows.select(batch.schema.names[width:])
        starts = pa.array([start for start, _ in cuts], pa.int64())
        packed = pa.array([_bytes_of(others.slice(start, end - start)) for start, end in cuts], pa.binary())
        columns = [*(column.take(starts) for column in rows.columns[:width]), packed]
        yield pa.RecordBatch.from_arrays(columns, names=[*names, PACKED])


def _bytes_of(batch: pa.RecordBatch) -> bytes:
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
