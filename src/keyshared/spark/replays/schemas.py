"""The rows that a replay writes and an audit reads: one for each delivery of a message.

Positions (``sequence``, ``end_sequence``, ``settled_sequence``) are drawn from one counter for each topic-partition,
which counts every start, end and settlement there. They give an exact order also within one millisecond.
"""

from typing import Final

from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

__all__ = ["DELIVERY_SCHEMA", "SUMMARY_SCHEMA", "VIOLATION_SCHEMA"]

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
        # position at which its message was settled for good, in the row of the last delivery, NULL in the others: the
        # same as end_sequence for an ack, later for an ack that came after the delivery had timed out, for a confirmed
        # dead letter, and for what a policy dropped
        StructField("settled_sequence", LongType(), nullable=True),
    ]
)
"""One row for each delivery of a message."""

_WAITS: Final = [
    StructField("wait_p50_ms", LongType(), nullable=False),
    StructField("wait_p99_ms", LongType(), nullable=False),
    StructField("wait_max_ms", LongType(), nullable=False),
]
_CONSUMER: Final = StructType(
    [
        StructField("consumer", StringType(), nullable=False),
        *(StructField(name, LongType(), nullable=False) for name in ("deliveries", "acked", "failed", "lost")),
        StructField("busy_ms", LongType(), nullable=False),
        *_WAITS,
    ]
)
_BACKLOG_POINT: Final = StructType(
    [StructField("at_ms", LongType(), nullable=False), StructField("outstanding", LongType(), nullable=False)]
)
_HOT_KEY: Final = StructType(
    [StructField("key", BinaryType(), nullable=False), StructField("messages", LongType(), nullable=False)]
)
_MOVED_KEYS: Final = StructType(
    [
        StructField("at_ms", LongType(), nullable=False),
        StructField("event", StringType(), nullable=False),  # joined, left, evicted, changed
        StructField("consumer", StringType(), nullable=False),
        StructField("moved", LongType(), nullable=False),
        StructField("keys", LongType(), nullable=False),  # those seen until then
    ]
)
_COUNTS: Final = (
    "messages",
    "keys",
    "keyless",
    "deliveries",
    "redeliveries",
    "acked",
    "late_acked",
    "dead_lettered",
    "dropped",
    "skipped",
    "spilled",
    "redriven",
)

SUMMARY_SCHEMA: Final = StructType(
    [
        StructField("topic_partition", StringType(), nullable=False),
        StructField("stop", StringType(), nullable=False),  # at_rest, stuck, until, attempts
        StructField("outstanding", LongType(), nullable=False),
        *(StructField(name, LongType(), nullable=False) for name in _COUNTS),
        *_WAITS,
        StructField("largest_backlog", LongType(), nullable=False),
        StructField("largest_backlog_ms", LongType(), nullable=True),
        StructField("safe_cursor", LongType(), nullable=True),
        StructField("start_ms", LongType(), nullable=True),
        StructField("end_ms", LongType(), nullable=True),
        StructField("consumers", ArrayType(_CONSUMER, containsNull=False), nullable=False),
        StructField("backlog", ArrayType(_BACKLOG_POINT, containsNull=False), nullable=False),
        StructField("hottest_keys", ArrayType(_HOT_KEY, containsNull=False), nullable=False),
        StructField("moved_keys", ArrayType(_MOVED_KEYS, containsNull=False), nullable=False),
    ]
)
"""One row for each topic-partition: the fields of `keyshared.simulate.Summary`, and how the simulation ended."""

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
