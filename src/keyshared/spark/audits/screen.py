"""Which lanes of a delivery log cannot break a promise? Native, so that a log without faults costs no Python.

A *lane* is what has an order: the messages of a key in a topic-partition, or one message without a key. Within it, in
the order of delivery, each delivery must have ended before the next one starts, and the next one is either a newer
message after this one was settled, or the same message again, under a greater attempt, if it was not. Where that holds
from row to row nothing overlaps, offsets never fall, and nothing is left behind; if it is also told what was offered,
the last delivery must have settled its message, and every message must have been delivered.

The screen judges nothing: a lane that fails it need not be wrong, for with a limit above 1 messages of a key are out
side by side. What passes is left out of the history that the checker reads. Lanes say nothing of each other, so the
checker says the same of those that are left. Only a message under two keys, or one that nobody offered, touches lanes
that are not its own: then the topic-partition stays whole.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

__all__ = ["doubtful"]

_LANE: Final = ("topic_partition", "_own_key", "_keyless")


def doubtful(rows: DataFrame, *, is_over: bool) -> DataFrame:
    """Keep the rows of lanes, and of topic-partitions, that may break a promise.

    Args:
        rows: What `keyshared.spark.audits.delivery_history` knows of each row.
        is_over: Whether it is told what was offered, all of which must be settled.

    Returns:
        The same columns. All rows of a lane are kept, or none.
    """
    looked = rows.withColumn("_keyless", F.when(F.col("_own_key").isNull(), F.col("offset")))
    lane = Window.partitionBy(*_LANE)
    in_order = lane.orderBy("_said", "sequence")  # deliveries come first
    before = F.lag(F.struct("offset", "attempt", "end_sequence", "settled_sequence")).over(in_order)
    # one window function for one look back: four lag() would be four
    is_last = F.coalesce(F.lead("_said").over(in_order), F.lit(True))
    looked = looked.withColumns({"_before": before, "_last_of_lane": is_last})
    out_of_order = ~F.coalesce(F.col("_before").isNull() | _follows(), F.lit(False))
    unsettled = F.lit(is_over) & F.col("_last_of_lane") & F.col("settled_sequence").isNull()
    never_delivered = F.col("_said") & F.col("_first_row")
    fails = never_delivered | (~F.col("_said") & (out_of_order | unsettled))
    odd = F.max("_odd").over(Window.partitionBy("topic_partition"))
    looked = looked.withColumn("_fails", F.max(fails).over(lane)).withColumn("_odd_place", odd)
    return looked.filter("_fails or _odd_place").select(*rows.columns)


def _follows() -> Column:
    """This delivery may follow the one before it in its lane; NULL where something is missing."""
    before = F.col("_before")
    ended = before["end_sequence"] <= F.col("sequence")
    settled = before["settled_sequence"] <= F.col("sequence")
    newer = settled & (before["offset"] < F.col("offset"))
    again = (
        before["settled_sequence"].isNull()
        & (before["offset"] == F.col("offset"))
        & (before["attempt"] < F.col("attempt"))
    )
    return ended & (newer | again)
