"""The one way to Python: each topic-partition in order, as an iterator, with errors that name the row."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.logs import log_frame, random_log

from keyshared.errors import ArgumentError
from keyshared.spark.rows import RowError, by_partition, each_partition, names_of

SCHEMA = "offset bigint, key binary, previous bigint"


def chained(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    last = None
    for offset, key in rows:
        yield offset, key, last
        last = offset


def refusing(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for offset, key in rows:
        if key == b"bad":
            raise ArgumentError("key", key, "be good")
        yield offset, key, None


def expected(records: list[Any]) -> list[tuple[Any, ...]]:
    found = []
    for name in sorted({record[:2] for record in records}):
        offsets = sorted(record[2:4] for record in records if record[:2] == name)
        found += [
            (*name, *now, before)
            for now, before in zip(offsets, [None, *(offset for offset, _ in offsets)], strict=False)
        ]
    return found


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in rows)


@pytest.mark.parametrize("tasks", [None, 1, 7])
def test_every_topic_partition_comes_in_order_whole_and_alone(spark: SparkSession, tasks: int | None) -> None:
    records = random_log(1, partitions=3)
    found = by_partition(log_frame(spark, records), "offset", ["offset", "key"], SCHEMA, chained, tasks=tasks)
    assert expected(records) == plain(found.collect())
    if tasks is not None:
        assert tasks == found.rdd.getNumPartitions()


def test_batches_are_cut_anywhere(spark: SparkSession) -> None:
    records = random_log(2, messages=9_000, topics=["one"], partitions=1)
    found = by_partition(log_frame(spark, records), "offset", ["offset", "key"], SCHEMA, chained)
    assert expected(records) == plain(found.collect())


def test_a_topic_partition_may_be_one_column_of_any_name(spark: SparkSession) -> None:
    df = spark.createDataFrame([("q", 2), ("p", 5), ("q", 1)], "shard string, at long")
    found = by_partition(df, "at", ["at"], "n long", lambda rows: [(len(list(rows)),)], topic_partition="shard")
    assert [("p", 1), ("q", 2)] == plain(found.collect())


def test_a_column_of_the_topic_partition_may_be_read_too_and_the_order_need_not(spark: SparkSession) -> None:
    df = spark.createDataFrame([("q", 2, "x"), ("q", 1, "y")], "shard string, at long, v string")
    found = by_partition(df, "at", ["v", "shard"], "v string, s string", list, topic_partition="shard")
    assert [("q", "y", "q"), ("q", "x", "q")] == [tuple(row) for row in found.collect()]


def test_the_work_of_a_job_runs_in_an_rdd_as_well(spark: SparkSession) -> None:
    records = random_log(3)
    in_order = (
        log_frame(spark, records).repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    )
    rows = in_order.select("topic", "partition", "offset", "key").rdd.map(tuple)
    found = rows.mapPartitions(lambda each: each_partition(each, ["topic", "partition"], chained)).collect()
    assert expected(records) == plain(found)


def test_an_error_names_the_topic_partition_and_the_row(spark: SparkSession) -> None:
    records = random_log(4)
    broken = [(*record[:3], b"bad", *record[4:]) if record[:2] == ("bills", 1) else record for record in records]
    first = min(record[2] for record in broken if record[3] == b"bad")
    found = by_partition(log_frame(spark, broken), "offset", ["offset", "key"], SCHEMA, refusing)
    with pytest.raises(PySparkException) as caught:
        found.collect()
    last_line = str(caught.value).strip().splitlines()[-1]
    assert f"RowError: at topic='bills', partition=1, offset={first}: key is b'bad'; it must be good" in str(
        caught.value
    )
    assert "spark/rows.py" not in last_line


def test_a_topic_partition_without_a_name_fails_the_job(spark: SparkSession) -> None:
    df = spark.createDataFrame([(None, 2)], "shard string, at long")
    found = by_partition(df, "at", ["at"], "at long", list, topic_partition="shard")
    with pytest.raises(Exception, match="column shard must not be NULL in any row"):
        found.collect()


def test_wrong_arguments_are_refused_at_once(spark: SparkSession) -> None:
    df = spark.createDataFrame([("q", 2, 0.5)], "shard string, at long, share double")

    def call(**changes: Any) -> None:
        given_: dict[str, Any] = {"order": "at", "columns": ["at"], "topic_partition": "shard", "tasks": None} | changes
        by_partition(df, schema="at long", work=list, **given_)

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"order": "offset"}, "column is 'offset'; it must be one of shard, at, share"),
        ({"columns": ["key"]}, "column is 'key'"),
        ({"topic_partition": "share"}, "type of column share is 'double'"),
        ({"topic_partition": []}, "topic_partition is .*name one column"),
        ({"topic_partition": ["shard", "shard"]}, "each once"),
        ({"tasks": 0}, "tasks is 0"),
    ]
    for changes, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            call(**changes)
    stream = spark.readStream.format("rate").load().selectExpr("'s' as shard", "value as at")
    with pytest.raises(ArgumentError, match="df is 'a stream'"):
        by_partition(stream, "at", ["at"], "at long", list, topic_partition="shard")


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(0, 1), st.integers(0, 9)), max_size=30))
def test_each_partition_reads_nothing_ahead_and_mixes_nothing(rows: list[tuple[str, int, int]]) -> None:
    rows.sort()
    found = list(each_partition(iter(rows), ["topic", "partition"], lambda own: [(sum(n for (n,) in own),)]))
    sums: dict[tuple[str, int], int] = {}
    for topic, partition, number in rows:
        sums[topic, partition] = sums.get((topic, partition), 0) + number
    assert [(*name, total) for name, total in sums.items()] == found


def test_rows_that_are_not_read_are_passed_over() -> None:
    rows = [("p", n) for n in range(5)] + [("q", n) for n in range(5)]
    assert [("p", 0), ("q", 0)] == list(each_partition(rows, ["shard"], lambda own: [next(own)]))


def test_rows_of_a_topic_partition_must_stand_together() -> None:
    rows = [("p", 1), ("q", 1), ("p", 2)]
    with pytest.raises(RowError, match="at shard='p': its rows are not together"):
        list(each_partition(rows, ["shard"], list))


def test_names_are_one_text_or_a_list_of_them() -> None:
    assert ("p",) == names_of("p")
    assert ("p", "q") == names_of(["p", "q"])
    wrong: list[Any] = ["", [], 3, None, ["p", 3], ["p", "p"], {"p": 1}]
    Random(1).shuffle(wrong)
    for each in wrong:
        with pytest.raises(ArgumentError):
            names_of(each)
