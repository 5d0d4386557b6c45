"""Packing the rows of whole topic-partitions into Spark partitions, in order, about as many into each."""

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared._checks import check_int
from keyshared.spark.frames.partitions import moved, ticket, tickets
from keyshared.spark.frames.tables import frame_of

__all__ = ["PLACE", "check_partitions", "packed", "placed"]

PLACE: Final = "_keyshared_place"
"""The column with the ticket of a row's Spark partition."""

_BIN: Final = "_keyshared_bin"


def check_partitions(partitions: int | None) -> None:
    """Check a number of Spark partitions.

    Args:
        partitions: How many there shall be; None leaves that to `packed`.

    Raises:
        ArgumentError: It is no int of at least 1.
    """
    if partitions is not None:
        check_int("partitions", partitions, 1, ", or None")


def packed(rows: DataFrame, sizes: Mapping[str, int], partitions: int | None, *, order: str) -> DataFrame:
    """Put each topic-partition into one Spark partition, in order, and about as much into each of them.

    Args:
        rows: With a string column ``topic_partition``, never NULL.
        sizes: See `placed`.
        partitions: See `placed`.
        order: The column by which the rows of a topic-partition are sorted.

    Returns:
        The same rows and columns.

    Complexity:
        One shuffle and sort.
    """
    there = placed(rows, sizes, partitions)
    # What has a Spark partition for itself is sorted by a number, and no names are compared; what was not counted comes
    # behind it, in an order of its own.
    alone = F.when(F.col(_BIN).isNotNull(), F.col(order)).asc_nulls_last()
    first = [alone] if len(sizes) <= _partitions(rows, sizes, partitions) else []
    return there.sortWithinPartitions(*first, "topic_partition", order).select(*rows.columns)


def placed(rows: DataFrame, sizes: Mapping[str, int], partitions: int | None = None) -> DataFrame:
    """Put each topic-partition into one Spark partition, and about as much into each of them.

    A partitioning by hash would put two of three topic-partitions into one of three Spark partitions more often than
    not, and adaptive execution might merge what is left. What `moved` has moved, it leaves alone.

    Sizes only balance the load: every row comes through, even if the size of its topic-partition is missing or wrong,
    because a source may have changed since it was counted.

    Args:
        rows: With a string column ``topic_partition``, never NULL.
        sizes: Rows of each topic-partition, as far as they are known.
        partitions: How many Spark partitions there shall be. None: one for each topic-partition, and at most
            ``spark.sql.shuffle.partitions``.

    Returns:
        The same rows, and columns of this module behind theirs.

    Complexity:
        One shuffle.
    """
    count = _partitions(rows, sizes, partitions)
    given = tickets(count, count)
    bins = frame_of(rows.sparkSession, _table([(name, given[number]) for name, number in _bins(sizes, count)]))
    anywhere = ticket(F.pmod(F.xxhash64("topic_partition"), F.lit(count)), given)
    known = rows.join(F.broadcast(bins), "topic_partition", "left")
    return moved(known.withColumn(PLACE, F.coalesce(_BIN, anywhere)), count, PLACE)


def _partitions(rows: DataFrame, sizes: Mapping[str, int], partitions: int | None) -> int:
    if partitions is not None:
        return partitions
    return max(1, min(len(sizes), int(str(rows.sparkSession.conf.get("spark.sql.shuffle.partitions")))))


def _table(bins: Sequence[tuple[str, int]]) -> pa.Table:
    """Return the table of tickets."""
    names, numbers = zip(*bins, strict=True) if bins else ((), ())
    return pa.table({"topic_partition": pa.array(names, pa.string()), _BIN: pa.array(numbers, pa.int32())})


def _bins(sizes: Mapping[str, int], partitions: int) -> list[tuple[str, int]]:
    """Put the largest first, each into the bin that has least: at most a third above the best there is (Graham 1969).

    An empty bin has least, so each is alone where there are enough bins.
    """
    load = [(0, number) for number in range(partitions)]
    heapify(load)
    placed = []
    for topic_partition, size in sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0])):
        total, number = load[0]
        heapreplace(load, (total + size, number))
        placed.append((topic_partition, number))
    return placed
