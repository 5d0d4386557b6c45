"""The columns of a log, and its messages by topic-partition on the clock of a group."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared._checks import check_int
from keyshared.errors import ArgumentError
from keyshared.simulate import Arrival, Group, Pace
from keyshared.spark.rows import KEYS, TOPIC_PARTITION, WHOLE, Rows, check_columns, names_of, time_ms

__all__ = ["KAFKA_COLUMNS", "LogColumns", "arrivals_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogColumns:
    """The columns of a log, a row for each message; by default those of Spark's Kafka source.

    Args:
        topic_partition: One or several columns that name a topic-partition.
        offset: Whole numbers, each once in a topic-partition.
        key: String or binary; NULL for a message without a key.
        time: When messages arrive: a timestamp, or whole milliseconds. None if the group takes messages as fast as it
            can (`Pace.BACKLOG`).
        service_ms: Whole milliseconds that a message takes, for `PerMessage`; None if the group knows it.
        not_before: A column like ``time``: the instant before which a message is not delivered. NULL for none.
        start: The time in milliseconds at which the clock of the group is at 0, so that a change at 60,000 ms comes a
            minute later; messages before it arrive at 0. None for the first message of the log.

    Raises:
        ArgumentError: ``topic_partition`` names no columns, or ``start`` is no int.

    Example:
        >>> LogColumns(topic_partition="shard", time="at_ms").names
        ('shard',)
    """

    topic_partition: str | Sequence[str] = TOPIC_PARTITION
    offset: str = "offset"
    key: str = "key"
    time: str | None = "timestamp"
    service_ms: str | None = None
    not_before: str | None = None
    start: int | None = None

    def __post_init__(self) -> None:
        names_of(self.topic_partition)
        if self.start is not None:
            check_int("start", self.start)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that name a topic-partition."""
        return names_of(self.topic_partition)

    def select(self, df: DataFrame, groups: Iterable[Group]) -> tuple[DataFrame, list[str], int]:
        """Check the columns of a log, and select those that a simulation of some groups reads.

        Args:
            df: The log.
            groups: The groups.

        Returns:
            The rows; their columns after those of the topic-partition; and the time at which the clock is at 0.

        Raises:
            ArgumentError: A column is missing or of another type, or ``time`` is None and a group follows arrivals.
        """
        service = {} if self.service_ms is None else {self.service_ms: WHOLE}
        names = dict.fromkeys(self.names, ("string", *WHOLE))
        check_columns(df, {**names, self.offset: WHOLE, self.key: KEYS, **service})
        follows_arrivals = any(group.pace is Pace.ARRIVALS for group in groups)
        if self.time is None and follows_arrivals:
            raise ArgumentError("time", None, "name a column, or every Group must have pace=Pace.BACKLOG")
        nothing = F.lit(None).cast("bigint")
        read = {
            "offset": F.col(self.offset).cast("bigint"),
            "_key": F.col(self.key).cast("binary"),
            "_time": F.lit(0).cast("bigint") if self.time is None else time_ms(df, self.time),
        }
        if self.service_ms is not None or self.not_before is not None:
            read["_service_ms"] = nothing if self.service_ms is None else F.col(self.service_ms).cast("bigint")
            read["_not_before"] = nothing if self.not_before is None else time_ms(df, self.not_before)
        rows = df.select(*self.names, *(column.alias(name) for name, column in read.items()))
        start = self.start
        if start is None and follows_arrivals:
            start = rows.agg(F.min("_time")).head()[0]  # type: ignore[index]  # an aggregate has a row
        return rows, [*read], start or 0


KAFKA_COLUMNS: Final = LogColumns()
"""The columns of Spark's Kafka source."""

_new: Final = tuple.__new__  # builds an Arrival in half the time that its own constructor takes


def arrivals_of(rows: Rows, start: int) -> Iterator[Arrival]:
    """Return the messages of one topic-partition on the clock of a group, checking each row."""
    last = None
    for offset, key, time, *more in rows:
        if offset is None or time is None:
            raise ArgumentError("offset" if offset is None else "time", None, "have a value in every row")
        if offset == last:
            raise ArgumentError("offset", offset, "be there once in a topic-partition: remove duplicates first")
        last = offset
        service_ms, not_before = more or (None, None)
        later = None if not_before is None else max(not_before - start, 0)
        yield _new(Arrival, (offset, key, max(time - start, 0), service_ms, later))
