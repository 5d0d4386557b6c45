"""The tables that results are saved as: their columns, and a version of these that changes with them.

A table of results is read by others, long after it was written: a column that is new, gone, renamed or means something
else demands a new version of its table.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from pyspark.sql.types import BinaryType, DecimalType, LongType, StringType, StructField, StructType

from keyshared.spark.audits.audit import AUDIT_SCHEMA, VERDICT_SCHEMA
from keyshared.spark.clusters.audit import FAULT_SCHEMA
from keyshared.spark.clusters.offsets import TRANSLATION_SCHEMA
from keyshared.spark.replays.schemas import DELIVERY_SCHEMA, SUMMARY_SCHEMA, VIOLATION_SCHEMA
from keyshared.spark.replays.what_if import WHAT_IF_SCHEMA

__all__ = ["MANIFEST", "RESULT_TABLES", "RUN", "ResultTable"]

RUN: Final = "run"
"""The first column of every saved table, by which it is partitioned: which call has saved the row."""

MANIFEST: Final = "keyshared_runs"
"""The table that says what was saved in whole."""


class ResultTable(NamedTuple):
    """What a table of results looks like.

    Attributes:
        version: Grows whenever the columns or their meaning change.
        schema: The columns, without ``run``.
    """

    version: int
    schema: StructType


def _counts(*names: str) -> list[StructField]:
    return [StructField(name, LongType(), nullable=False) for name in names]


_PLACE: Final = [StructField(name, StringType(), nullable=False) for name in ("plan", "topic_partition")]
_WAITS: Final = ("wait_p50_ms", "wait_p99_ms", "wait_max_ms")
_LOADS: Final = ("deliveries", "acked", "failed", "lost", "busy_ms", *_WAITS)
_SUMS: Final = (
    *("topic_partitions", "messages", "outstanding", "deliveries", "redeliveries", "acked", "late_acked"),
    *("dead_lettered", "moved_keys", *_WAITS, "largest_backlog"),
)
_WEIGHT: Final = DecimalType(38, 9)  # a sum of whole numbers, or of decimals

RESULT_TABLES: Final[Mapping[str, ResultTable]] = MappingProxyType(
    {
        "deliveries": ResultTable(1, DELIVERY_SCHEMA),
        "summaries": ResultTable(1, SUMMARY_SCHEMA),
        "plan_summaries": ResultTable(1, WHAT_IF_SCHEMA),
        "plan_totals": ResultTable(1, StructType([_PLACE[0], *_counts(*_SUMS)])),
        "plan_consumers": ResultTable(
            1, StructType([*_PLACE, StructField("consumer", StringType(), nullable=False), *_counts(*_LOADS)])
        ),
        "plan_moved_keys": ResultTable(
            1,
            StructType(
                [
                    *_PLACE,
                    *_counts("at_ms"),
                    StructField("event", StringType(), nullable=False),
                    StructField("consumer", StringType(), nullable=False),
                    *_counts("moved", "keys"),
                ]
            ),
        ),
        "violations": ResultTable(1, AUDIT_SCHEMA),
        "verdicts": ResultTable(1, VERDICT_SCHEMA),
        "order_violations": ResultTable(1, VIOLATION_SCHEMA),
        "histogram": ResultTable(
            1,
            StructType(
                [
                    StructField("slot", LongType(), nullable=True),
                    *_counts("messages"),
                    StructField("weight", _WEIGHT, nullable=False),
                    *_counts("keys"),
                    StructField("hot_key", BinaryType(), nullable=True),
                    StructField("hot_messages", LongType(), nullable=False),
                    StructField("hot_weight", _WEIGHT, nullable=False),
                ]
            ),
        ),
        "faults": ResultTable(1, FAULT_SCHEMA),
        "translations": ResultTable(1, TRANSLATION_SCHEMA),
    }
)
"""What each table of results looks like in this version of keyshared, by the name of the table."""
