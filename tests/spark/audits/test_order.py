"""The audit as a Spark job: the same answer as the exact audit of every lane, however the rows are spread."""

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from keyshared.errors import ArgumentError
from keyshared.spark.audits.lanes import Attempt, audit_lane

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.spark.audits.order import _screened, check_order, count_by_promise  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LaneHistory = Callable[[Random, int, int], list[Attempt]]
Row = tuple[str, bytes | None, Attempt]
Found = tuple[str, str, bytes | None, int, int | None, int | None, str]

SCHEMA = (
    "topic_partition string, key binary, offset long, consumer string, attempt int, sequence long, end_sequence long, "
    "settled_sequence long"
)
NOTHING = {"one-holder": 0, "key-order": 0, "no-loss": 0, "fence": 0}


def frame(spark: "SparkSession", rows: list[Row]) -> "DataFrame":
    return spark.createDataFrame([(where, key, *attempt) for where, key, attempt in rows], SCHEMA)


def clean_log(lane_history: LaneHistory, rng: Random, limit: int) -> list[Row]:
    keyed: list[Row] = [
        (where, key, row)
        for where in ("EWR", "JFK")
        for key in (b"", b"N1", "é".encode(), b"\xff\x00")
        for row in lane_history(rng, 12, limit)
    ]
    # all of them overlap, at different consumers, newest first: without a key there is no order
    keyless: list[Row] = [
        ("JFK", None, Attempt(100 - i, "abc"[i % 3], 1, 1000 + i, 2000 + i, 2000 + i)) for i in range(9)
    ]
    return keyed + keyless


def damaged(rows: list[Row], rng: Random) -> Iterator[Row]:
    """Some deliveries go elsewhere, end late, settle nothing, belong to another message or come again."""
    for where, key, row in rows:
        fate = rng.randrange(20)
        if fate == 0 and row.end_sequence is not None:
            late = row.end_sequence + 9
            yield where, key, row._replace(consumer="z", end_sequence=late, settled_sequence=late)
        elif fate == 1:
            yield where, key, row._replace(settled_sequence=None)
        elif fate == 2:
            yield where, key, row._replace(offset=row.offset + 2)
        elif fate == 3 and row.end_sequence is not None:
            again = row.sequence + 5
            yield where, key, row
            yield where, key, row._replace(sequence=again, end_sequence=again + 3, settled_sequence=again + 3)
        else:
            yield where, key, row


def small_lanes(rng: Random, count: int) -> Iterator[Row]:
    """Lanes of one to three deliveries at random: each is judged for itself, so every condition decides somewhere."""
    for i in range(count):
        rows = rng.randrange(1, 4)
        starts = sorted(rng.sample(range(8), rows))
        for start in starts:
            end = start + rng.randrange(1, 4)
            settled = rng.choice([None, end, end, end + 1])
            row = Attempt(rng.randrange(2), rng.choice("ab"), rng.randrange(1, 4), start, end, settled)
            yield (
                "t",
                str(i).encode(),
                row._replace(end_sequence=None, settled_sequence=None) if rng.random() < 0.1 else row,
            )


def exactly(rows: list[Row]) -> list[Found]:
    lanes: dict[tuple[str, bytes | None, int | None], list[Attempt]] = {}
    for where, key, row in rows:
        lanes.setdefault((where, key, row.offset if key is None else None), []).append(row)
    found = [
        (finding.promise, where, key, *finding[1:])
        for (where, key, _), lane in lanes.items()
        for finding in audit_lane(lane)
    ]
    return sorted(found, key=repr)


def by_spark(violations: "DataFrame") -> list[Found]:
    columns = ["promise", "topic_partition", "key", "offset", "other_offset", "sequence", "explanation"]
    rows: Any = [tuple(row) for row in violations.select(columns).collect()]  # the tuple is right by VIOLATION_SCHEMA
    return sorted(((*row[:2], None if row[2] is None else bytes(row[2]), *row[3:]) for row in rows), key=repr)


@pytest.mark.parametrize("limit", [1, 3])
def test_a_log_that_keeps_its_promises_has_no_violations(
    spark: "SparkSession", lane_history: LaneHistory, limit: int
) -> None:
    rows = clean_log(lane_history, Random(limit), limit)
    offered = spark.createDataFrame(
        [(where, row.offset) for where, _, row in rows], "topic_partition string, offset long"
    )
    assert NOTHING == count_by_promise(check_order(frame(spark, rows), offered=offered))


@pytest.mark.parametrize(("limit", "spreads"), [(1, [2]), (3, [1, 7])])
def test_the_job_finds_exactly_what_the_exact_audit_of_each_lane_finds(
    spark: "SparkSession", lane_history: LaneHistory, limit: int, spreads: list[int]
) -> None:
    rng = Random(limit)
    rows = list(damaged(clean_log(lane_history, rng, limit), rng))
    expected = exactly(rows)
    assert {"one-holder", "key-order", "no-loss", "fence"} == {found[0] for found in expected}
    log = frame(spark, rows)
    for partitions in spreads:
        assert expected == by_spark(check_order(log.repartition(partitions, "offset")))


def test_every_small_lane_is_judged_as_the_exact_audit_judges_it(spark: "SparkSession") -> None:
    rows = list(small_lanes(Random(11), 3_000))
    expected = exactly(rows)
    broken = {found[2] for found in expected}
    assert 300 < len(broken) < 2_700  # both kinds of lane are there in numbers
    assert expected == by_spark(check_order(frame(spark, rows)))


def test_the_number_of_shuffle_partitions_changes_nothing(spark: "SparkSession", lane_history: LaneHistory) -> None:
    rng = Random(7)
    rows = list(damaged(clean_log(lane_history, rng, 2), rng))
    kept: Any = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        for partitions in ("1", "5"):
            spark.conf.set("spark.sql.shuffle.partitions", partitions)
            assert exactly(rows) == by_spark(check_order(frame(spark, rows)))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", kept)


def test_lanes_that_run_one_by_one_are_never_shown_to_python(spark: "SparkSession", lane_history: LaneHistory) -> None:
    log = frame(spark, [("t", b"k", row) for row in lane_history(Random(3), 50, 1)])
    lanes = log.withColumns({"_keyless": F.lit(None).cast("long"), "_why": F.lit(None).cast("string")})
    assert 0 == _screened(lanes).count()


def test_text_keys_and_binary_keys_are_the_same_keys(spark: "SparkSession") -> None:
    rows = [("t", "é", 2, "a", 1, 0, 1, 1), ("t", "é", 1, "a", 1, 2, 3, 3)]
    text = SCHEMA.replace("key binary", "key string")
    [violation] = check_order(spark.createDataFrame(rows, text)).collect()
    assert "é".encode() == bytes(violation["key"])


def test_what_was_offered_and_not_settled_is_lost(spark: "SparkSession") -> None:
    log = frame(
        spark,
        [
            ("t", b"k", Attempt(1, "a", 1, 0, 1, 1)),
            ("t", b"k", Attempt(2, "a", 1, 2, None, None)),
            ("t", None, Attempt(4, "a", 1, 3, 4, 4)),
            ("u", b"k", Attempt(2, "a", 1, 0, 1, 1)),  # the same offset elsewhere is another message
        ],
    )
    offered = spark.createDataFrame(
        [("t", 1, "k"), ("t", 1, "k"), ("t", 2, "k"), ("t", 3, "k"), ("u", 2, "k")],
        "topic_partition string, offset long, key string",
    )
    expected = [
        ("no-loss", "t", b"k", 2, None, None, "2 was delivered but never settled"),
        ("no-loss", "t", b"k", 3, None, None, "3 was offered but never delivered"),
        ("no-loss", "t", None, 4, None, None, "4 was delivered but never offered"),
    ]
    violations = check_order(log, offered=offered)
    assert expected == sorted(by_spark(violations), key=lambda found: found[3])
    assert {**NOTHING, "no-loss": 3} == count_by_promise(violations)
    assert NOTHING == count_by_promise(check_order(log))  # without the log, 2 may just be outstanding


def test_a_missing_column_is_refused_before_any_job(spark: "SparkSession") -> None:
    log = frame(spark, []).drop("settled_sequence")
    with pytest.raises(ArgumentError, match="'settled_sequence'; it must be a column of the frame"):
        check_order(log)


def test_a_column_of_the_wrong_type_is_refused_before_any_job(spark: "SparkSession") -> None:
    log = frame(spark, []).withColumn("offset", F.col("offset").cast("int"))
    with pytest.raises(ArgumentError, match="'offset'; it must be long, and it is int; cast it first"):
        check_order(log)
    with pytest.raises(ArgumentError, match="'topic_partition'; it must be a column of the frame"):
        check_order(frame(spark, []), offered=log.select("offset"))


def test_impossible_positions_fail_the_job_with_a_text_that_says_which(spark: "SparkSession") -> None:
    log = frame(spark, [("t", b"k", Attempt(1, "a", 1, 5, 4, None))])
    with pytest.raises(pyspark.errors.PythonException, match="end_sequence is 4"):
        check_order(log).collect()
