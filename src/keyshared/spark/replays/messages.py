"""The messages of a log as a simulation reads them: checked, and each topic-partition in one piece and in order."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.simulate.group import Arrival
from keyshared.spark.frames.batches import runs_of, values_of
from keyshared.spark.frames.checks import WHOLE, check_batch, check_columns, check_key
from keyshared.spark.frames.layout import layout_of
from keyshared.spark.frames.packing import check_partitions, packed
from keyshared.spark.frames.pieces import in_one_piece
from keyshared.spark.frames.rules import Rule, count_wrong, never_null, place_of, refuse, text_for_python, whole_ms
from keyshared.spark.replays.partition import Message

__all__ = ["packed_messages", "read_arrivals", "read_messages"]

_new_arrival: Final = partial(tuple.__new__, Arrival)  # half the time that its own constructor takes


def packed_messages(
    df: DataFrame,
    *,
    topic_partition: str,
    key: str,
    offset: str,
    at_ms: str | None,
    service_ms: str | None,
    not_before_ms: str | None,
    partitions: int | None,
) -> DataFrame:
    """Take the messages out of a log; runs a job to count them and to look for rows that cannot be simulated.

    The count only balances the load. The rows that count are those of the second read, when they are used: each of them
    comes through, or fails the job because it cannot be simulated.

    Args:
        df: The log, one row for each message.
        topic_partition: String column; no NULL.
        key: String or binary column; NULL for a message without a key.
        offset: Column of whole numbers; no NULL.
        at_ms: Column of whole milliseconds from 0 to `MAX_MS`, no NULL; None for 0 in every row.
        service_ms: Column of whole milliseconds from 0; None for NULL in every row.
        not_before_ms: Likewise.
        partitions: See `packed`. None also leaves a log as it is laid out already.

    Returns:
        The columns of `Message`; each topic-partition within one Spark partition, in the order of offsets.

    Raises:
        ArgumentError: A column is missing or of another type, or has values that it must not have; or ``partitions`` is
            none.
    """
    numbers = (offset, at_ms, service_ms, not_before_ms)
    _check(df, (topic_partition,), key, tuple(name for name in numbers if name is not None))
    check_batch(df)
    check_partitions(partitions)
    place = place_of({"topic_partition": topic_partition, "offset": offset})
    rules = [
        text_for_python("topic_partition", topic_partition, F.col(topic_partition)),
        never_null("offset", offset, F.col(offset).cast("bigint")),
    ]
    if at_ms is not None:
        rules.append(whole_ms("at_ms", at_ms, F.col(at_ms).cast("bigint")))
    for name, column in (("service_ms", service_ms), ("not_before_ms", not_before_ms)):
        if column is not None:
            rules.append(whole_ms(name, column, F.col(column).cast("bigint"), optional=True))
    layout = layout_of(df, topic_partition=topic_partition, offset=offset)
    sizes = _count(df if layout is None else layout.source, rules, topic_partition, place)
    columns = {
        "at_ms": F.lit(0).cast("bigint"),
        "service_ms": F.lit(None).cast("bigint"),
        "not_before_ms": F.lit(None).cast("bigint"),
        "key": F.col(key).cast("binary"),
        **{rule.name: rule.kept(place) for rule in rules},
    }
    messages = df.select(*(columns[name].alias(name) for name in Message._fields))
    if layout is not None and partitions in {None, layout.partitions}:
        return messages
    return packed(messages, sizes, partitions, order="offset")


def read_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[Message]:
    """Read messages from Arrow batches.

    Args:
        batches: With the columns of `packed_messages`.

    Yields:
        One message for each row, in their order.
    """
    for batch in batches:
        yield from map(Message, *(column.to_pylist() for column in batch.columns))


def read_arrivals(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Iterator[Arrival]]]:
    """Read topic-partitions from Arrow batches, cut anywhere.

    Args:
        batches: With the columns of `packed_messages`.

    Yields:
        Each topic-partition, and its messages; take them before the next.

    Raises:
        ArgumentError: Rows of a topic-partition do not stand together.
    """
    for topic_partition, pieces in in_one_piece(_pieces(batches), "offset"):
        yield topic_partition, chain.from_iterable(arrivals for _, arrivals in pieces)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Iterator[Arrival]]]:
    """Read what a batch has of each topic-partition."""
    for batch in batches:
        for topic_partition, start, stop in runs_of(batch.column(0)):
            columns = batch.slice(start, stop - start).columns[1:]
            yield topic_partition, map(_new_arrival, zip(*map(values_of, columns), strict=True))


def _check(df: DataFrame, texts: Sequence[str], key: str, numbers: Sequence[str]) -> None:
    check_columns(df, dict.fromkeys(texts, ("string",)))
    check_key(df, key)
    check_columns(df, dict.fromkeys(numbers, WHOLE))


def _count(df: DataFrame, rules: Sequence[Rule], topic_partition: str, place: Column) -> dict[str, int]:
    """Count the messages of each topic-partition, and refuse rows that cannot be simulated."""
    counts = df.groupBy(F.col(topic_partition).alias("name")).agg(F.count("*").alias("size"), *count_wrong(rules))
    rows = counts.collect()
    refuse(df, rules, {rule.name: sum(row[f"bad_{rule.name}"] for row in rows) for rule in rules}, place)
    return {row["name"]: row["size"] for row in rows}
