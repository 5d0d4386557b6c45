"""Moving each row into the Spark partition that was chosen for it.

``repartitionById`` takes the number of the partition. Before Spark 4.1 there is only ``repartition``, which takes the
murmur3 of a column's value modulo the number of partitions, and so leaves some empty and crowds others. This module
turns that around: it finds for each partition a value that leads there, a *ticket*, and rows carry tickets instead of
numbers. Where Spark takes numbers, each is its own ticket.
"""

from collections.abc import Sequence

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.frames.tables import constant
from keyshared.spark.versions import BY_ID

__all__ = ["by_ticket", "moved", "ticket", "tickets"]

_SEED = 42  # of the hash by which Spark spreads rows


def tickets(numbers: int, partitions: int) -> Sequence[int]:
    """Return a ticket for each number: one that leads to the partition of that number, modulo how many there are.

    Args:
        numbers: How many numbers, from 0.
        partitions: How many partitions.

    Returns:
        The tickets, all different. Those that lead to the same partition grow with their numbers.

    Complexity:
        O(1) where Spark takes numbers, else O(n log n) for n numbers or partitions.
    """
    if BY_ID.is_here:
        return range(numbers)
    wanted = np.arange(numbers)
    needed = np.bincount(wanted % partitions, minlength=partitions)
    candidates = 2 * partitions
    while np.any((found := np.bincount(at := _partition_of(candidates, partitions), minlength=partitions)) < needed):
        candidates *= 2
    in_order = np.argsort(at, kind="stable")
    first = np.cumsum(found) - found
    chosen: list[int] = in_order[first[wanted % partitions] + wanted // partitions].tolist()
    return chosen


def ticket(number: Column, given: Sequence[int]) -> Column:
    """Look a number's ticket up.

    Args:
        number: One of the numbers.
        given: Their `tickets`.

    Returns:
        An int column.
    """
    whole = number.cast("int")
    return whole if isinstance(given, range) else F.get(constant(given, "array<int>"), whole)


def by_ticket(values: Sequence[object], given: Sequence[int]) -> list[object]:
    """Arrange a table of numbers as one of tickets.

    Args:
        values: By number.
        given: The `tickets` of as many numbers, or of more.

    Returns:
        By ticket; None at what is none.
    """
    arranged: list[object] = [None] * (max(given, default=-1) + 1)
    for place, value in zip(given, values, strict=False):
        arranged[place] = value
    return arranged


def moved(df: DataFrame, partitions: int, column: str) -> DataFrame:
    """Move each row to where its ticket leads. Adaptive execution neither merges nor splits what results.

    Args:
        df: The frame.
        partitions: How many partitions there shall be.
        column: The name of its column with the `ticket`, which is int and never NULL.

    Complexity:
        One shuffle.
    """
    return df.repartitionById(partitions, column) if BY_ID.is_here else df.repartition(partitions, column)


def _partition_of(stop: int, partitions: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return where ``repartition`` puts each whole number below ``stop``.

    Source:
        Spark's ``HashPartitioning``: ``pmod(hash(value), partitions)``, with the 32-bit murmur3 of the four bytes of an
        int.
    """
    mixed = np.arange(stop, dtype=np.uint32) * np.uint32(0xCC9E2D51)
    mixed = _rotated(mixed, 15) * np.uint32(0x1B873593)
    hashed = _rotated(mixed ^ np.uint32(_SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(4)  # bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = (hashed ^ (hashed >> np.uint32(shift))) * np.uint32(factor)
    hashed ^= hashed >> np.uint32(16)
    places: np.ndarray[tuple[int], np.dtype[np.int64]] = hashed.view(np.int32).astype(np.int64) % partitions
    return places


def _rotated(
    words: np.ndarray[tuple[int], np.dtype[np.uint32]], bits: int
) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
