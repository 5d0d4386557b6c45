"""The rows that a replay writes and an audit reads: one for each delivery of a message.

Positions (``sequence``, ``end_sequence``, ``settled_sequence``) are drawn from one counter for each topic-partition,
which counts every start, end and settlement there. They give an exact order also within one millisecond.
"""

from typing import Final

from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

__all__ = ["DELIVERY_SCHEMA", "VIOLATION_SCHEMA"]

DELIVERY_SCHEMA: Final = StructType(
    [
        StructField("topic_partition", StringType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("key", BinaryType(), nullable=True),  # NULL: a message without a key
        StructField("consumer", StringType(), nullable=False),
        StructField("attempt", IntegerType(), nullable=False),  # grows with each delivery of the message
        StructField("delivered_ms", LongType(), nullable=False),
        StructField("ended_ms", LongType(), nullable=True),  # NULL: open when the history ends
        StructField("outcome", StringType(), nullable=False),  # acked, nacked, timed_out, released, evicted, open, ...
        StructField("wait_ms", LongType(), nullable=False),  # delivered_ms minus the time it could first have gone out
        StructField("sequence", LongType(), nullable=False),  # position of the delivery
        StructField("end_sequence", LongType(), nullable=True),  # position of its end on the books
        # position at which this delivery settled its message for good, NULL if it did not: the same as end_sequence for
        # an ack, later for an ack that came after the delivery had timed out, and for a confirmed dead letter
        StructField("settled_sequence", LongType(), nullable=True),
    ]
)
"""One row for each delivery of a message."""

VIOLATION_SCHEMA: Final = StructType(
    [
        StructField("promise", StringType(), nullable=False),  # the stable id: one-holder, key-order, no-loss, fence
        StructField("topic_partition", StringType(), nullable=False),
        StructField("key", BinaryType(), nullable=True),
        StructField("offset", LongType(), nullable=False),  # the message that should not have gone out, or that is lost
        StructField("other_offset", LongType(), nullable=True),  # the message that proves it, if another one does
        StructField("sequence", LongType(), nullable=True),  # where it happened; NULL for what never happened
        StructField("explanation", StringType(), nullable=False),
    ]
)
"""One row for each broken promise."""
