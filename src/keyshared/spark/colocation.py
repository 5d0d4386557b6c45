"""Co-location: all messages of a consumer, or of a key, in one Spark partition, in offset order.

``repartitionById`` puts each row into the partition that was chosen for it. So two consumers never share a partition
while a third one is empty, and adaptive execution neither merges nor splits the partitions. The plan has one Exchange
and one Sort. After it, ``mapInArrow`` or ``rdd.mapPartitions`` read a consumer's messages as a stream, so that no group
has to fit into memory.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared._checks import check_int
from keyshared.buckets.layout import BUCKET_HASH
from keyshared.errors import ArgumentError
from keyshared.hashing import XXH64_SEED_42, KeyHash
from keyshared.placement.protocol import Placement
from keyshared.placement.range_map import RangeMap
from keyshared.spark.columns import bucket_hash, constant, owner_number, ranges_of, slot
from keyshared.spark.rows import names_of

__all__ = ["colocate"]

_PLACE: Final = "_keyshared_place"


def colocate(
    df: DataFrame,
    placement: Placement | RangeMap | None = None,
    *,
    key: str = "key",
    topic_partition: str | Sequence[str] = ("topic", "partition"),
    offset: str = "offset",
    owner: str = "owner",
    key_hash: KeyHash = XXH64_SEED_42,
    tasks: int | None = None,
) -> DataFrame:
    """Put all messages of a consumer, or of a key, into one Spark partition, in offset order. Needs PySpark 4.1.

    With a placement, each of its owners has a partition of its own, in the order of ``placement.ranges.owners``, and
    messages without an owner (no key, or a key whose slot has no owner) are in one more, the last. Without a placement,
    all messages of a key are in one partition, among those of other keys; messages without a key go anywhere.

    Args:
        df: The log, batch. On a stream call it within ``foreachBatch``: Spark sorts no stream.
        placement: Who owns which key; None to keep together what has the same key. In a `BucketPlacement` the bucket
            of the key is looked up.
        key: String or binary column.
        topic_partition: The column, or the columns, that name the topic-partition.
        offset: Column of whole numbers. The job fails on a row where it, or a topic-partition, is NULL.
        owner: With a placement, the name of the new column with the owner.
        key_hash: In a `BucketPlacement`, the hash of the keys of messages, as in `bucket_owner`.
        tasks: Number of Spark partitions. By default one more than the placement has owners, and without a placement
            ``spark.sql.shuffle.partitions``. With fewer, owners share a partition, one after the other.

    Returns:
        The frame, with a placement with the column ``owner`` (string) added. Each partition is sorted by
        topic-partition and offset; where owners share it, by owner before that.

    Raises:
        ArgumentError: The frame is a stream, ``tasks`` is less than 1, the column ``owner`` exists already, or the
            placement cannot be expressed, see `owner`. No job was started.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        One shuffle and one sort of whole rows: select what is needed before. A partition is as large as its consumer's
        share, or its hottest key's.

    Example:
        >>> halves = RangeMap.from_stops([32768, 65536], ["a", "b"])
        >>> rows = [("order-1", "p", 1), (None, "p", 2), ("order-1", "p", 0)]
        >>> log = spark.createDataFrame(rows, "key string, shard string, offset long")
        >>> placed = colocate(log, halves, topic_partition="shard")
        >>> for row in placed.withColumn("at", F.spark_partition_id()).collect():
        ...     print(row.at, row.owner, row.key, row.offset)
        1 b order-1 0
        1 b order-1 1
        2 None None 2
    """
    if df.isStreaming:
        raise ArgumentError("frame", "a stream", "be batch, for Spark sorts no stream; colocate within foreachBatch")
    if tasks is not None:
        check_int("tasks", tasks, 1)
    by = [*names_of(topic_partition), offset]
    if placement is None:
        count = int(str(df.sparkSession.conf.get("spark.sql.shuffle.partitions"))) if tasks is None else tasks
        # messages without a key have no order: they fill up evenly instead of making one partition heavy
        spread = F.when(F.col(key).isNull(), F.xxhash64(*by)).otherwise(F.xxhash64(key))
        return _moved(df, F.pmod(spread, F.lit(count)), count, by).sortWithinPartitions(*by).drop(_PLACE)
    if owner in df.columns:
        raise ArgumentError("owner", owner, f"be the name of a new column, none of {', '.join(df.columns)}")
    ranges = ranges_of(placement)
    slots = bucket_hash(key, key_hash=key_hash) if ranges.key_hash == BUCKET_HASH else slot(ranges, key)
    unowned = len(ranges.owners)
    count = unowned + 1 if tasks is None else tasks
    number = F.coalesce(owner_number(slots, ranges), F.lit(unowned))
    # where each owner has a partition, to sort by owner would only cost time
    shared = [_PLACE] if count <= unowned else []
    return (
        _moved(df, number, count, by)
        .sortWithinPartitions(*shared, *by)
        .withColumn(owner, F.get(constant(ranges.owners, "array<string>"), F.col(_PLACE)))
        .drop(_PLACE)
    )


def _moved(df: DataFrame, number: Column, count: int, order: list[str]) -> DataFrame:
    """Move each row to its partition; fails on a row that has no place in the order.

    The check runs here, once for each row: in the sort it would run for each comparison, and from a filter Spark could
    move it below a join.
    """
    place = number.cast("int")
    for name in order:
        wrong = F.raise_error(F.lit(f"keyshared: the column {name} orders the log and must not be NULL"))
        place = F.when(F.col(name).isNull(), wrong).otherwise(place)
    # a column of its own, because Spark Connect takes no expression there
    return df.withColumn(_PLACE, place).repartitionById(count, _PLACE)
