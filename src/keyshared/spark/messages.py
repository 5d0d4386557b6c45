"""The messages of a log as a simulation reads them: checked, and each topic-partition in one piece and in order."""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import ConfigError
from keyshared.spark.columns import WHOLE, check_columns, check_key
from keyshared.spark.packing import check_partitions, packed
from keyshared.spark.partition import Message

__all__ = ["packed_messages", "read_messages"]


def packed_messages(
    df: DataFrame,
    *,
    topic_partition: str,
    key: str,
    offset: str,
    at_ms: str | None,
    service_ms: str | None,
    partitions: int | None,
) -> DataFrame:
    """Take the messages out of a log; runs a job to count them and to look for rows that cannot be simulated.

    Args:
        df: The log, one row for each message.
        topic_partition: String column; no NULL.
        key: String or binary column; NULL for a message without a key.
        offset: Column of whole numbers; no NULL.
        at_ms: Column of whole milliseconds from 0, no NULL; None for 0 in every row.
        service_ms: Column of whole milliseconds from 0; None for NULL in every row.
        partitions: See `packed`.

    Returns:
        The columns of `Message`; each topic-partition within one Spark partition, in the order of offsets.

    Raises:
        ConfigError: A column is missing or of another type, or has NULL or negative values where it must not; or
            ``partitions`` is none.
    """
    columns = {"topic_partition": topic_partition, "offset": offset, "at_ms": at_ms, "service_ms": service_ms}
    _check(df, columns, key)
    check_partitions(partitions)
    messages = df.select(
        F.col(topic_partition).alias("topic_partition"),
        F.col(offset).cast("bigint").alias("offset"),
        F.col(key).cast("binary").alias("key"),
        _millis(at_ms, 0).alias("at_ms"),
        _millis(service_ms, None).alias("service_ms"),
    )
    return packed(messages, _count(messages, columns), partitions, order="offset")


def read_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[Message]:
    """Read messages from Arrow batches.

    Args:
        batches: With the columns of `packed_messages`.

    Yields:
        One message for each row, in their order.
    """
    for batch in batches:
        yield from map(Message, *(column.to_pylist() for column in batch.columns))


def _check(df: DataFrame, columns: Mapping[str, str | None], key: str) -> None:
    check_columns(df, {str(columns["topic_partition"]): ("string",)})
    check_key(df, key)
    numbers = (columns[name] for name in ("offset", "at_ms", "service_ms"))
    check_columns(df, {name: WHOLE for name in numbers if name is not None})


def _millis(column: str | None, otherwise: int | None) -> Column:
    return F.lit(otherwise).cast("bigint") if column is None else F.col(column).cast("bigint")


def _count(messages: DataFrame, columns: Mapping[str, str | None]) -> dict[str, int]:
    """Count the messages of each topic-partition, and refuse rows that cannot be simulated: the first such column."""
    bad = {
        "topic_partition": (F.col("topic_partition").isNull(), "NULL"),
        "offset": (F.col("offset").isNull(), "NULL"),
        "at_ms": (F.coalesce(F.col("at_ms") < 0, F.lit(True)), "NULL or negative"),
        "service_ms": (F.coalesce(F.col("service_ms") < 0, F.lit(False)), "negative"),
    }
    counts = (
        messages.groupBy("topic_partition")
        .agg(F.count("*").alias("size"), *(F.count_if(wrong).alias(f"bad_{name}") for name, (wrong, _) in bad.items()))
        .collect()
    )
    for name, (_, what) in bad.items():
        rows = sum(row[f"bad_{name}"] for row in counts)
        if rows:
            raise ConfigError(f"column {name}", columns[name], f"not be {what} in any row, and it is in {rows}")
    return {row["topic_partition"]: row["size"] for row in counts}
