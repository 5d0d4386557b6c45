"""Co-location: all messages of a consumer, or of a key, in one Spark partition, in offset order.

Rows are shuffled by a number that is the partition's own (`keyshared.spark.frames.partitions`), not by a hash of a
name: two consumers never share a partition while a third one is empty, and adaptive execution neither merges nor splits
what results. The plan has one Exchange and one Sort. After it, ``mapInArrow`` reads a consumer's messages as a stream
of batches, so that no group has to fit into memory.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import ArgumentError
from keyshared.hashing.named import KeyHash
from keyshared.placement.protocol import Placement
from keyshared.placement.ranges import RangeMap
from keyshared.spark.columns.buckets import bucket_ranges_of
from keyshared.spark.columns.owners import owner_number
from keyshared.spark.columns.slots import bucket_hash, ranges_of, slot
from keyshared.spark.frames.checks import WHOLE, check_columns, check_key, check_new, check_not_ours
from keyshared.spark.frames.packing import check_partitions
from keyshared.spark.frames.partitions import by_ticket, moved, ticket, tickets
from keyshared.spark.frames.rules import never_null, place_of
from keyshared.spark.frames.tables import constant

__all__ = ["colocate"]

_PLACE: Final = "_keyshared_place"


def colocate(
    df: DataFrame,
    placement: Placement | RangeMap | None = None,
    *,
    key: str = "key",
    topic_partition: str = "topic_partition",
    offset: str = "offset",
    into: str = "owner",
    key_hash: KeyHash | None = None,
    partitions: int | None = None,
) -> DataFrame:
    """Put all messages of a consumer, or of a key, into one Spark partition, in offset order.

    With a placement, each of its owners has a partition of its own, in the order of ``placement.ranges.owners``, and
    messages without an owner (no key, or a key in a hole) are in one more, the last. Without a placement, all messages
    of a key are in one partition, among those of other keys; each message without a key is a lane, and goes anywhere.

    Args:
        df: The log, batch. On a stream call it within ``foreachBatch``: Spark sorts no stream.
        placement: Who owns which key, as it stands now; None to keep together what has the same key.
        key: Name of the key column, string or binary. A field of a struct is written as usual, ``"event.key"``.
        topic_partition: String column.
        offset: Column of whole numbers.
        into: With a placement, the name of the new column with the owner.
        key_hash: With a `BucketPlacement`, the hash of the keys of messages, as in `with_bucket_owner`. None: keys are
            looked up in the placement as they stand.
        partitions: How many Spark partitions there shall be. By default one more than the placement has owners, and
            without a placement ``spark.sql.shuffle.partitions``. With fewer than that, owners share a partition, one
            after the other.

    Returns:
        The frame, with a placement with the column ``into`` (string) added. Each partition is sorted by topic-partition
        and offset; where owners share it, by owner before that. The job fails on a row whose topic-partition or offset
        is NULL: it has no place in an order.

    Raises:
        ArgumentError: A column is missing or of another type; ``into`` is taken; a name begins with ``_keyshared_``;
            the frame is a stream; ``partitions`` is none; ``key_hash`` is none, or there is no placement of buckets; or
            the placement cannot be expressed, see `owner`. No job was started.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        One shuffle and one sort of whole rows: select what is needed before. A partition is as large as its consumer's
        share, or its hottest key's; what reads it with ``mapInArrow`` holds one batch of it.

    Example:
        >>> halves = RangeMap.from_stops([32768, 65536], ["a", "b"])
        >>> rows = [("order-1", "p", 1), (None, "p", 2), ("order-1", "p", 0)]
        >>> log = spark.createDataFrame(rows, "key string, topic_partition string, offset long")
        >>> for row in colocate(log, halves).select("*", F.spark_partition_id().alias("at")).collect():
        ...     print(row.at, row.owner, row.key, row.offset)
        1 b order-1 0
        1 b order-1 1
        2 None None 2
    """
    check_key(df, key)
    check_columns(df, {topic_partition: ("string",)})
    check_columns(df, {offset: WHOLE})
    check_partitions(partitions)
    if df.isStreaming:
        raise ArgumentError("frame", "a stream", "be batch, for Spark sorts no stream; colocate within foreachBatch")
    check_not_ours(df, [*df.columns, into])
    order = (topic_partition, offset)
    if placement is None and key_hash is not None:
        raise ArgumentError("key_hash", key_hash, "be left out without a placement of buckets: nobody is looked up")
    if placement is None:
        count = _shuffle_partitions(df) if partitions is None else partitions
        # messages without a key have no order: they fill up evenly instead of making one partition heavy
        spread = F.when(F.col(key).isNull(), F.xxhash64(offset)).otherwise(F.xxhash64(key))
        place = ticket(F.pmod(spread, F.lit(count)), tickets(count, count))
        return _placed(df, place, count, order).sortWithinPartitions(*order).drop(_PLACE)
    check_new(df, into)
    ranges = ranges_of(placement) if key_hash is None else bucket_ranges_of(placement)
    slots = slot(F.col(key), ranges) if key_hash is None else bucket_hash(F.col(key), key_hash=key_hash)
    nobody = len(ranges.owners)
    count = nobody + 1 if partitions is None else partitions
    given = tickets(nobody + 1, count)
    placed = _placed(df, ticket(F.coalesce(owner_number(slots, ranges), F.lit(nobody)), given), count, order)
    # what is the same in the whole partition would only make the sort slower
    shared = [_PLACE] if count <= nobody else []
    owners = F.get(constant(by_ticket(ranges.owners, given), "array<string>"), F.col(_PLACE))
    return placed.sortWithinPartitions(*shared, *order).withColumn(into, owners).drop(_PLACE)


def _shuffle_partitions(df: DataFrame) -> int:
    return int(str(df.sparkSession.conf.get("spark.sql.shuffle.partitions")))


def _placed(df: DataFrame, place: Column, count: int, order: Sequence[str]) -> DataFrame:
    """Shuffle rows by the ticket of their place; a column of its own, because Connect takes no expression there.

    A row without a value to sort by has no place in the order, and must not get one in silence. The check runs here,
    once for each row: in the sort it would run for each comparison, and from a filter Spark could move it below a join.
    """
    where = place_of({column: column for column in order})
    for column in reversed(order):
        rule = never_null(_PLACE, column)
        place = F.when(rule.wrong, F.raise_error(rule.said(where))).otherwise(place)
    return moved(df.withColumn(_PLACE, place), count, _PLACE)
