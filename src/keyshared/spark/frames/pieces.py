"""Topic-partitions in a stream of rows, one after the other, each in one piece."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from keyshared.errors import ArgumentError

__all__ = ["in_one_piece"]

_Row = TypeVar("_Row", bound=tuple[Any, ...])


def in_one_piece(rows: Iterable[_Row], order: str) -> Iterator[tuple[str, Iterator[_Row]]]:
    """Yield each topic-partition and its rows, which are read lazily.

    Args:
        rows: Tuples that begin with their topic-partition.
        order: What they should have been sorted by within it, for the error.

    Yields:
        Each topic-partition once, in the order of the rows; take its rows before the next.

    Raises:
        ArgumentError: Rows of a topic-partition do not stand together.

    Complexity:
        O(1) a row; memory O(topic-partitions).

    Example:
        >>> [(name, len(list(own))) for name, own in in_one_piece([("p", 0), ("p", 1), ("q", 0)], "offset")]
        [('p', 2), ('q', 1)]
    """
    done: set[str] = set()
    for topic_partition, own in groupby(rows, key=itemgetter(0)):
        if topic_partition in done:
            requirement = f"come in one piece: sort the partition by topic-partition and {order} first"
            raise ArgumentError("topic_partition", topic_partition, requirement)
        done.add(topic_partition)
        yield topic_partition, own
