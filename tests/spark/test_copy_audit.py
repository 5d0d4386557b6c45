"""The audit of a distribution as a Spark job: what the core's judge finds, with proofs, however the rows are spread."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.distribution.trees import BALANCED, UNBALANCED
from tests.spark.copylogs import Lying, any_bit, broken_logs, counted, ignored, own_bit_only, spread

from keyshared.copyflags import BigEndian, CopyFlags
from keyshared.distribution import DistributionTree
from keyshared.errors import ArgumentError
from keyshared.spark import copy_audit as adapter
from keyshared.spark.copy_audit import FAULT_COLUMNS, audit_copies, faults_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TREE = DistributionTree(UNBALANCED)
TREES = {
    "unbalanced": TREE,
    "wide": DistributionTree({40: [{8: ["1", "2", "3"]}, {5: ["4", {4: ["5", "6"]}]}, "9"]}),
}
NAMES = [field.split()[0] for field in FAULT_COLUMNS.split(", ")]
SCHEMA = "message_id string, cluster string, flags long"
Found = list[tuple[Any, ...]]
NOTHING = {"lost": 0, "duplicated": 0, "looped": 0}


def frame(spark: "SparkSession", lying: Sequence[Lying]) -> "DataFrame":
    # a record that was produced has no header
    return spark.createDataFrame([(*record[:2], int(record.flags) or None) for record in lying], SCHEMA)


def exactly(tree: DistributionTree, logs: Sequence[Sequence[Lying]]) -> Found:
    rows = [
        (fault, lying[0].message_id, cluster, copies, [f"{int(each):X}" for each in flags], list(present), *proof)
        for lying in logs
        for fault, cluster, copies, flags, present, *proof in faults_of(tree, counted(lying))
    ]
    return sorted(rows, key=repr)


def by_spark(faults: "DataFrame") -> Found:
    return sorted((tuple(row) for row in faults.select(NAMES).collect()), key=repr)


def count_by_fault(faults: "DataFrame") -> dict[str, int]:
    return NOTHING | {row[0]: row[1] for row in faults.groupBy("fault").count().collect()}


def whole(tree: DistributionTree, count: int = 1) -> list[Lying]:
    plan = tree.hops()
    return [record for i in range(count) for name in tree.clusters for record in spread(f"{name}-{i}", plan, name)]


def in_the_tree(logs: Iterable[list[Lying]]) -> list[list[Lying]]:
    """Without the records of a cluster that has left it."""
    return [[record for record in lying if record.cluster != "gone"] for lying in logs]


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_the_audit_finds_what_the_exact_judge_finds_however_rows_are_spread(
    spark: "SparkSession", tree: DistributionTree
) -> None:
    logs = in_the_tree(broken_logs(tree, Random(7), 600))
    df = frame(spark, [record for lying in logs for record in lying])
    expected = exactly(tree, logs)
    assert {"lost", "duplicated", "looped"} == {row[0] for row in expected}
    assert expected == by_spark(audit_copies(df.repartition(1), tree))
    assert expected == by_spark(audit_copies(df.repartition(7, F.rand(3)), tree))
    counts = {fault: sum(row[0] == fault for row in expected) for fault in NOTHING}
    assert counts == count_by_fault(audit_copies(df, tree))


def test_flags_as_they_are_in_headers_are_the_same(spark: "SparkSession") -> None:
    logs = in_the_tree(broken_logs(TREE, Random(8), 200))
    rows = [
        (message_id, cluster, BigEndian(width=3).encode(flags) if flags else None)
        for lying in logs
        for message_id, cluster, flags in lying
    ]
    df = spark.createDataFrame(rows, "message_id string, cluster string, flags binary")
    assert exactly(TREE, logs) == by_spark(audit_copies(df, TREE))


def test_levels_beyond_63_are_audited_as_bytes(spark: "SparkSession") -> None:
    tree = DistributionTree({200: [{100: ["a", "b"]}, "c"]})
    lying = [*spread("m", tree.hops(), "a"), Lying("m", "a", CopyFlags.of(200))]
    rows = [(*record[:2], BigEndian().encode(record.flags)) for record in lying]
    df = spark.createDataFrame(rows, "message_id string, cluster string, flags binary")
    assert exactly(tree, [lying]) == by_spark(audit_copies(df, tree))


def test_a_distribution_that_is_right_has_no_faults_and_needs_no_python(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = audit_copies(frame(spark, whole(TREE, 20)).withColumn("more", F.lit(1)), TREE)
    assert NOTHING == count_by_fault(faults)
    seen = spark.sparkContext.accumulator(0)

    def counting(batches: Any, **_: object) -> Any:
        for batch in batches:
            seen.add(batch.num_rows)
            yield from ()

    monkeypatch.setattr(adapter, "_judge_batches", counting)
    assert NOTHING == count_by_fault(audit_copies(frame(spark, whole(TREE, 20)), TREE))
    assert 0 == seen.value


def test_a_fault_has_the_documented_columns(spark: "SparkSession") -> None:
    faults = audit_copies(frame(spark, spread("m", TREE.hops()[1:], "1")), TREE)
    assert NAMES == faults.columns
    row = faults.filter("cluster = '5'").collect()[0].asDict()
    assert {
        "fault": "lost",
        "message_id": "m",
        "cluster": "5",
        "copies": 0,
        "flags": [],
        "present": ["1", "2", "3"],
        "origin": "1",
        "from_cluster": "1",
        "level": 3,
        "to_cluster": "4",
        "explanation": "1 did not copy it to 4 at level 3",
    } == row


def test_a_million_turns_of_one_message_are_one_number(spark: "SparkSession") -> None:
    turns = spark.range(1_000_000).select(
        F.lit("m").alias("message_id"), F.lit("1").alias("cluster"), F.lit(4).alias("flags")
    )
    df = frame(spark, whole(TREE)).unionByName(turns)
    rows = audit_copies(df, TREE).filter("cluster = '1' and message_id = 'm'").collect()
    assert [("duplicated", 1_000_000, ["4"])] == [(row.fault, row.copies, row.flags) for row in rows]


def test_a_message_that_is_in_no_log_is_missed_if_it_is_known_to_have_been_produced(spark: "SparkSession") -> None:
    df = frame(spark, whole(TREE))
    produced = spark.createDataFrame([("1-0",), ("never seen",)], "message_id string")
    assert NOTHING == count_by_fault(audit_copies(df, TREE))
    found = audit_copies(df, TREE, produced=produced).orderBy("cluster").collect()
    expected: Found = [("lost", "never seen", name, [], "no cluster of the tree has it") for name in "12345"]
    assert expected == [(row.fault, row.message_id, row.cluster, row.present, row.explanation) for row in found]


def test_numbers_are_ids_too(spark: "SparkSession") -> None:
    df = frame(spark, [record._replace(message_id="7") for record in spread("", TREE.hops()[1:], "1")])
    faults = audit_copies(df.withColumn("message_id", F.col("message_id").cast("long")), TREE)
    assert {"7"} == {row.message_id for row in faults.collect()}


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("message_id", None, 'message_id must not be NULL in any row, and it is in {"message_id":null,"cluster":"'),
        ("flags", -1, 'flags must not be negative or empty in any row, and it is in {"message_id":"'),
        ("flags", b"", 'flags must not be negative or empty in any row, and it is in {"message_id":"'),
        ("cluster", "C5", r"cluster must not be NULL or none of the tree \(1, 2, 3, 4, 5\) in any row.*cluster.:.C5"),
        ("cluster", None, r"cluster must not be NULL or none of the tree \(1, 2, 3, 4, 5\) in any row.*cluster.:null"),
    ],
)
def test_the_job_fails_on_what_cannot_be_judged(spark: "SparkSession", column: str, value: object, text: str) -> None:
    kind = {"message_id": "string", "cluster": "string", "flags": "binary" if value == b"" else "long"}[column]
    df = frame(spark, whole(TREE)).withColumn(column, F.lit(value).cast(kind))
    with pytest.raises(Exception, match=text):
        audit_copies(df, TREE).collect()


@pytest.mark.parametrize(
    ("select", "text"),
    [
        ("message_id, flags", "column is 'cluster'; it must be one of message_id, flags"),
        ("message_id, cluster", "column is 'flags'"),
        ("message_id, cluster, 'x' flags", "type of column flags is 'string'; it must be int or bigint or binary"),
        ("1.5 message_id, cluster, flags", "type of column message_id is 'decimal.*it must be string or int or bigint"),
    ],
)
def test_wrong_columns_are_named_before_the_job(spark: "SparkSession", select: str, text: str) -> None:
    df = frame(spark, whole(TREE)).selectExpr(*select.split(", "))
    with pytest.raises(ArgumentError, match=text):
        audit_copies(df, TREE)


def test_wrong_columns_of_what_was_produced_are_named_too(spark: "SparkSession") -> None:
    with pytest.raises(ArgumentError, match="column is 'message_id'"):
        audit_copies(frame(spark, whole(TREE)), TREE, produced=spark.range(1))


@pytest.mark.parametrize("due", [own_bit_only, any_bit, ignored])
def test_each_broken_rule_is_flagged(spark: "SparkSession", due: Any) -> None:
    tree = DistributionTree(BALANCED)
    lying = [record for name in tree.clusters for record in spread(name, tree.hops(), name, due=due)]
    assert NOTHING != count_by_fault(audit_copies(frame(spark, lying), tree))
