"""The columns of saved tables are pinned: who changes one gives its table a new version, and says so in the guide."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from keyshared import spark as ks
from keyshared.spark.results.catalogue import MANIFEST
from keyshared.spark.results.runs import MANIFEST_SCHEMA

GUIDE = Path(__file__).parents[3] / "docs" / "spark-results.md"

SUMMARY = (
    "stop string, outstanding bigint, messages bigint, keys bigint, keyless bigint, deliveries bigint, "
    "redeliveries bigint, acked bigint, late_acked bigint, dead_lettered bigint, dropped bigint, skipped bigint, "
    "spilled bigint, redriven bigint, wait_p50_ms bigint, wait_p99_ms bigint, wait_max_ms bigint, "
    "largest_backlog bigint, largest_backlog_ms bigint?, safe_cursor bigint?, start_ms bigint?, end_ms bigint?, "
    "consumers array<struct<consumer:string,deliveries:bigint,acked:bigint,failed:bigint,lost:bigint,busy_ms:bigint,"
    "wait_p50_ms:bigint,wait_p99_ms:bigint,wait_max_ms:bigint>>, "
    "backlog array<struct<at_ms:bigint,outstanding:bigint>>, "
    "hottest_keys array<struct<key:binary,messages:bigint>>, "
    "moved_keys array<struct<at_ms:bigint,event:string,consumer:string,moved:bigint,keys:bigint>>"
)
WAITS = "wait_p50_ms bigint, wait_p99_ms bigint, wait_max_ms bigint"
PINNED = {
    "deliveries": (
        1,
        (
            "topic_partition string, offset bigint, key binary?, consumer string, attempt int, delivered_ms bigint, "
            "ended_ms bigint?, outcome string, wait_ms bigint, sequence bigint, end_sequence bigint?, "
            "settled_sequence bigint?"
        ),
    ),
    "summaries": (1, f"topic_partition string, {SUMMARY}"),
    "plan_summaries": (1, f"plan string, topic_partition string, {SUMMARY}"),
    "plan_totals": (
        1,
        (
            "plan string, topic_partitions bigint, messages bigint, outstanding bigint, deliveries bigint, "
            "redeliveries bigint, acked bigint, late_acked bigint, dead_lettered bigint, moved_keys bigint, "
            f"{WAITS}, largest_backlog bigint"
        ),
    ),
    "plan_consumers": (
        1,
        (
            "plan string, topic_partition string, consumer string, deliveries bigint, acked bigint, failed bigint, "
            f"lost bigint, busy_ms bigint, {WAITS}"
        ),
    ),
    "plan_moved_keys": (
        1,
        "plan string, topic_partition string, at_ms bigint, event string, consumer string, moved bigint, keys bigint",
    ),
    "violations": (
        1,
        (
            "promise string, topic_partition string, key binary?, sequence bigint, explanation string, "
            "proof array<bigint>, offsets array<bigint>, excerpt string"
        ),
    ),
    "verdicts": (1, "topic_partition string, promise string, happenings bigint, violations bigint, unjudged string?"),
    "order_violations": (
        1,
        (
            "promise string, topic_partition string, key binary?, offset bigint, other_offset bigint?, "
            "sequence bigint?, explanation string"
        ),
    ),
    "histogram": (
        1,
        (
            "slot bigint?, messages bigint, weight decimal(38,9), keys bigint, hot_key binary?, hot_messages bigint, "
            "hot_weight decimal(38,9)"
        ),
    ),
    "faults": (
        1,
        (
            "fault string, message_id string, cluster string, copies bigint, flags array<string>, "
            "present array<string>, origin string?, from_cluster string?, level int?, "
            "to_cluster string?, explanation string"
        ),
    ),
    "translations": (
        1,
        (
            "group string, topic_partition string, offset bigint, timestamp_epoch_ms bigint?, target_offset bigint?, "
            "metadata string?, declined string?"
        ),
    ),
}
"""Written by hand: never edit the columns of a version, add the next one."""


def columns_of(schema: StructType) -> list[str]:
    fields = schema.fields
    return [f"{each.name} {each.dataType.simpleString()}{'?' if each.nullable else ''}" for each in fields]


def test_who_changes_a_column_gives_its_table_a_new_version() -> None:
    found = {name: (table.version, ", ".join(columns_of(table.schema))) for name, table in ks.RESULT_TABLES.items()}
    assert found == PINNED
    assert ["table_name string", "schema_version int", "saved_at timestamp"] == columns_of(MANIFEST_SCHEMA)


def test_the_guide_has_the_columns_of_each_table() -> None:
    text = GUIDE.read_text("utf-8")
    documented = {
        name: [
            f"{column} {kind}" for column, kind in re.findall(r"^\| `(\w+)` \| (\S+) \|", section, flags=re.MULTILINE)
        ]
        for name, section in re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    }
    documented["plan_summaries"] += documented["summaries"]  # as it says there
    assert documented == {name: columns_of(table.schema) for name, table in ks.RESULT_TABLES.items()}
    assert f"The last table that is written is `{MANIFEST}`" in text
    assert all(f"| `{column.split()[0]}` | {column.split()[1]} |" in text for column in columns_of(MANIFEST_SCHEMA))
    assert {1} == {table.version for table in ks.RESULT_TABLES.values()}
    assert "All are of version 1." in text
