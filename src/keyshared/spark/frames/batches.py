"""Arrow batches read by column, as Python's values: several times as fast as row by row."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import TypeAlias

import numpy as np
import pyarrow as pa

__all__ = ["Values", "runs_of", "values_of"]

Values: TypeAlias = Sequence[object] | Iterable[object]


def runs_of(topic_partitions: pa.Array) -> Iterator[tuple[str, int, int]]:
    """Cut a batch wherever another topic-partition begins.

    Args:
        topic_partitions: A column of texts without nulls.

    Yields:
        Each topic-partition with the first of its rows and the one after the last.
    """
    encoded = topic_partitions.dictionary_encode()
    numbers = encoded.indices.to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    names = encoded.dictionary.to_pylist()
    for start, stop in pairwise(cuts):
        if stop > start:
            yield names[numbers[start]], start, stop


def values_of(column: pa.Array) -> Values:
    """Return Python's values; NumPy is several times as fast as `to_pylist` where it loses nothing.

    Args:
        column: Of a plain type, or of texts in a dictionary.
    """
    if column.null_count == len(column):
        return repeat(None, len(column))
    if pa.types.is_dictionary(column.type):
        words = np.array([*column.dictionary.to_pylist(), None], object)  # NULL is the last one
        return words[column.indices.fill_null(-1).to_numpy()].tolist()  # type: ignore[no-any-return]  # as below
    if pa.types.is_integer(column.type) and column.null_count:
        return column.to_pylist()  # type: ignore[no-any-return]  # NumPy would make floats of them
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]  # pyarrow has no types
