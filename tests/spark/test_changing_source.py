"""A source that has other rows whenever it is read: each result is true of one read, and none hides a violation."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.growing import growing, reads_of
from tests.spark.logs import group_of

from keyshared import HashRing
from keyshared import spark as ks
from keyshared.distribution import DistributionTree

LOG = "topic string, partition int, offset long, key string, timestamp long"
LOGS = [[("t", p, offset, "k", offset) for p in range(reads + 1) for offset in range(5 + reads)] for reads in range(4)]
COPIES = "message_id string, cluster string, flags long"
COPIED: list[list[tuple[Any, ...]]] = [[("m", "c1", None)], [("m", "c1", None), ("m", "c2", 1), ("n", "c1", None)]]
COMMANDS = "topic string, partition int, sequence long, at_ms long, command string, offset long, consumer string"
COMMANDED: list[list[tuple[Any, ...]]] = [
    [("t", 0, 0, 0, "add_consumer", None, "a"), *(("t", 0, 1 + i, 10 * i, "offer", i, None) for i in range(1 + reads))]
    for reads in range(3)
]


def test_a_simulation_and_its_summaries_have_the_rows_of_one_read(spark: SparkSession, tmp_path: Path) -> None:
    log = growing(spark, tmp_path / "log", LOG, LOGS)
    found = ks.summaries(ks.simulate(log, group_of("a", service_ms=0))).collect()
    sizes = {(row.partition, row.messages) for row in found}
    assert sizes in [{(p, 5 + reads) for p in range(reads + 1)} for reads in range(4)]
    assert reads_of(tmp_path / "log") == 2  # the first one looks at the times alone


def test_an_audit_judges_the_rows_of_one_read(spark: SparkSession, tmp_path: Path) -> None:
    deliveries = ks.simulate(spark.createDataFrame(LOGS[0], LOG), group_of("a", "b"))
    good = [tuple(row) for row in deliveries.collect()]
    lost = [row for row in good if row[2] != 3]
    twice = [*lost, *((*row[:4], "b", *row[5:]) for row in lost if row[2] == 1)]
    schema = ", ".join(f"{name} {kind}" for name, kind in deliveries.dtypes)
    changing = growing(spark, tmp_path / "deliveries", schema, [twice, good])
    broken = ks.audit(changing).filter("violations > 0").count()
    assert broken > 0
    assert reads_of(tmp_path / "deliveries") == 1


def test_an_audit_of_copies_judges_the_rows_of_one_read(spark: SparkSession, tmp_path: Path) -> None:
    records = growing(spark, tmp_path / "records", COPIES, COPIED)
    found = {
        (row.message_id, row.fault) for row in ks.audit_copies(records, DistributionTree({1: ["c1", "c2"]})).collect()
    }
    assert found in [{("m", "lost")}, {("n", "lost")}]


def test_commands_are_carried_out_once_each(spark: SparkSession, tmp_path: Path) -> None:
    commands = growing(spark, tmp_path / "commands", COMMANDS, COMMANDED)
    found = ks.stream_dispatch(commands, HashRing()).filter("effect = 'deliver'").collect()
    assert len(found) in {1, 2, 3}
    assert [row.offset for row in sorted(found)] == list(range(len(found)))
