"""A journal for each topic-partition over rows that are all there, in plain Python: no Spark, no store."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from keyshared.config import DispatcherConfig
from keyshared.journal.commands import Command
from keyshared.journal.journal import Journal
from keyshared.ring import HashRing

__all__ = ["dispatch_partition"]


def dispatch_partition(
    rows: Iterable[tuple[Any, ...]], placement: HashRing, *, config: DispatcherConfig | None = None
) -> Iterator[tuple[Any, ...]]:
    """Carry out the commands of one Spark partition, each topic-partition from its beginning to its end.

    Args:
        rows: Topic-partition, until when time passes, then the fields of `Command`. The rows of a topic-partition
            stand next to each other, in order of sequence.
        placement: See `Journal`.
        config: See `Journal`.

    Yields:
        Topic-partition and the fields of `OutcomeRow`, in order.

    Raises:
        ArgumentError: See `Journal`.

    Complexity:
        That of the journals; memory O(outstanding messages) of one topic-partition at a time.

    Example:
        >>> rows = [("p", 90, 0, 5, "add_consumer", None, None, "c1"), ("p", 90, 1, 6, "offer", 0, b"order-1")]
        >>> [row[:5] for row in dispatch_partition(rows, HashRing())]
        [('p', 0, 1, 6, 'deliver')]
    """
    for topic_partition, mine in groupby(rows, itemgetter(0)):
        journal, until = Journal(placement, config), 0
        for row in mine:
            until = row[1]
            for outcome in journal.apply(Command(*row[2:])):
                yield topic_partition, *outcome
        for outcome in journal.advance(until):
            yield topic_partition, *outcome
