"""A simulation on Spark is the simulation in Python, for every topic-partition, on the clock of the log."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.spark.logs import MAY, Record, group_of, log_frame, random_group, random_log

from keyshared.errors import ArgumentError
from keyshared.simulate import Arrival, Group, Join, Pace, PerMessage, SimulatedConsumer, simulated_deliveries
from keyshared.spark.deliveries import simulate, simulate_rows, summaries
from keyshared.spark.log_columns import LogColumns


def in_python(records: list[Record], group: Group, *, start: int | None = None) -> list[tuple[Any, ...]]:
    """Simulate each topic-partition without Spark, on the clock of the log."""
    times = {record: round(record[4].timestamp() * 1_000) for record in records}
    zero = min(times.values()) if start is None else start
    found = []
    for name in sorted({record[:2] for record in records}):
        own = sorted((record for record in records if record[:2] == name), key=lambda record: record[2])
        arrivals = [Arrival(record[2], record[3], max(times[record] - zero, 0)) for record in own]
        for each in simulated_deliveries(group, arrivals):
            moved: dict[str, Any] = {
                field: None if getattr(each, field) is None else getattr(each, field) + zero
                for field in ("available_ms", "delivered_ms", "ended_ms")
            }
            found.append((*name, *each._replace(**moved)))
    return found


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in rows]


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("seed", range(4))
def test_spark_gives_the_deliveries_of_python(spark: SparkSession, seed: int) -> None:
    records, group = random_log(seed), random_group(seed)
    found = plain(simulate(log_frame(spark, records), group).collect())
    assert in_order(in_python(records, group)) == in_order(found)


def test_several_groups_are_simulated_side_by_side(spark: SparkSession) -> None:
    records, groups = random_log(5), {"now": random_group(5), "more": group_of("a", "b", "c", "d")}
    found = plain(simulate(log_frame(spark, records), groups).collect())
    for name, group in groups.items():
        own = [row[1:] for row in found if row[0] == name]
        assert in_order(in_python(records, group)) == in_order(own)


def test_partitions_of_two_topics_stay_apart_and_offsets_are_kept(spark: SparkSession) -> None:
    records = [("a", 0, 4_191, b"k", MAY), ("b", 0, 4_191, b"k", MAY), ("a", 0, 47_089, b"k", MAY)]
    found = simulate(log_frame(spark, records), group_of("c")).filter("outcome = 'acked'")
    assert {("a", 0, 4_191), ("a", 0, 47_089), ("b", 0, 4_191)} == {
        (row.topic, row.partition, row.offset) for row in found.collect()
    }


def test_timestamps_are_milliseconds_since_1970_and_the_group_begins_with_the_log(spark: SparkSession) -> None:
    records = [("t", 0, n, b"k", MAY + timedelta(milliseconds=100 * n)) for n in range(3)]
    late = Join(150, SimulatedConsumer("late", PerMessage(5)))
    df = log_frame(spark, records)
    found = simulate(df, Group(changes=[late])).orderBy("offset")
    began = round(MAY.timestamp() * 1_000)
    assert [began + 150, began + 155, began + 200] == [row.delivered_ms for row in found.collect()]
    as_numbers = df.withColumn("timestamp", F.unix_millis("timestamp"))
    without_zone = df.withColumn("timestamp", F.col("timestamp").cast("timestamp_ntz"))
    assert found.collect() == simulate(as_numbers, Group(changes=[late])).orderBy("offset").collect()
    assert found.collect() == simulate(without_zone, Group(changes=[late])).orderBy("offset").collect()


def test_the_clock_may_begin_elsewhere(spark: SparkSession) -> None:
    records = [("t", 0, n, b"k", MAY + timedelta(milliseconds=100 * n)) for n in range(3)]
    began = round(MAY.timestamp() * 1_000) + 100
    found = simulate(log_frame(spark, records), group_of("a"), LogColumns(start=began)).orderBy("offset").collect()
    assert [began, began + 20, began + 100] == [row.delivered_ms for row in found]


def test_a_backlog_needs_no_times_and_nothing_else_does_without(spark: SparkSession) -> None:
    df = log_frame(spark, random_log(6)).drop("timestamp")
    with pytest.raises(ArgumentError, match="time is None; it must name a column"):
        simulate(df, group_of("a"), LogColumns(time=None))
    backlog = Group(consumers=group_of("a").consumers, pace=Pace.BACKLOG)
    assert [0] == [
        row[0] for row in simulate(df, backlog, LogColumns(time=None)).agg({"available_ms": "max"}).collect()
    ]


def test_service_times_and_delays_come_with_messages(spark: SparkSession) -> None:
    df = spark.createDataFrame(
        [("t", 0, 0, "k", 10, 5, None), ("t", 0, 1, "k", 10, 7, 100)],
        "topic string, partition int, offset int, key string, timestamp int, service int, after int",
    )
    group = Group(consumers=[SimulatedConsumer("a", PerMessage())])
    found = simulate(df, group, LogColumns(service_ms="service", not_before="after")).orderBy("offset").collect()
    assert [(10, 15, 5), (100, 107, 7)] == [(row.delivered_ms, row.ended_ms, row.service_ms) for row in found]
    with pytest.raises(Exception, match=r"RowError: at topic='t', partition=0, offset=0: service_ms is None"):
        simulate(df, group).collect()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (("t", 0, 1, b"k", MAY), "topic='t', partition=0, .*offset is 1; it must be there once in a topic-partition"),
        (("t", 0, None, b"k", MAY), "offset is None; it must have a value in every row"),
        (("t", 0, 2, b"k", None), "time is None; it must have a value in every row"),
        (("t", None, 2, b"k", MAY), "column partition must not be NULL in any row"),
    ],
)
def test_an_odd_row_fails_the_job_and_is_named(spark: SparkSession, record: Any, message: str) -> None:
    df = log_frame(spark, [("t", 0, n, b"k", MAY) for n in range(3)] + [record])
    with pytest.raises(Exception, match=message):
        simulate(df, group_of("a")).collect()


def test_times_that_go_back_arrive_with_the_message_before(spark: SparkSession) -> None:
    records = [("t", 0, 0, b"k", MAY + timedelta(seconds=1)), ("t", 0, 1, b"l", MAY)]
    found = simulate(log_frame(spark, records), group_of("a", "b")).collect()
    assert {1_000} == {row.available_ms - round(MAY.timestamp() * 1_000) for row in found}


def test_wrong_arguments_start_no_job(spark: SparkSession) -> None:
    df = log_frame(spark, random_log(7))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"group": {}}, "group is {}; it must be a Group, or several by name"),
        ({"group": {"a": 3}}, "group 'a' is 3"),
        ({"group": {"": group_of("a")}}, "have texts for names"),
        ({"columns": {"key": "key"}}, "be a LogColumns"),
        ({"columns": LogColumns(time="key")}, "type of column key is 'binary'; it must be timestamp or"),
        ({"columns": LogColumns(key="timestamp")}, "type of column timestamp is 'timestamp'"),
        ({"columns": LogColumns(offset="topic")}, "type of column topic is 'string'"),
        ({"columns": LogColumns(service_ms="nowhere")}, "column is 'nowhere'"),
        ({"columns": LogColumns(topic_partition="timestamp")}, "type of column timestamp"),
    ]
    for changes, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            simulate(df, **{"group": group_of("a"), **changes})
    for columns, message in (({"start": 0.5}, "start is 0.5"), ({"topic_partition": []}, "name one column")):
        with pytest.raises(ArgumentError, match=message):
            LogColumns(**columns)


def test_every_message_has_a_row_even_if_nobody_consumes(spark: SparkSession) -> None:
    records = random_log(8)
    found = simulate(log_frame(spark, records), Group()).collect()
    assert sorted(record[:3] for record in records) == sorted((row.topic, row.partition, row.offset) for row in found)
    assert {("outstanding", 0, None)} == {(row.outcome, row.attempt, row.consumer) for row in found}


def test_summaries_agree_with_pandas(spark: SparkSession) -> None:
    records, groups = random_log(9, messages=200), {"a": random_group(9), "none": Group()}
    deliveries = simulate(log_frame(spark, records), groups).persist()
    frame = deliveries.toPandas()
    for row in summaries(deliveries).collect():
        here = frame[
            (frame["consumer_group"] == row.consumer_group)
            & (frame["topic"] == row.topic)
            & (frame["partition"] == row.partition)
        ]
        began = (here["ended_ms"] - here["service_ms"]).fillna(here["delivered_ms"])
        waits = (began - here["available_ms"]).dropna()
        assert 200 == row.messages == here["offset"].nunique()
        assert here["consumer"].count() == row.deliveries
        assert row.messages == sum(
            row[name] for name in ("acked", "late_acked", "dead_lettered", "dropped", "skipped", "unfinished")
        )
        assert (here["outcome"] == "acked").sum() == row.acked
        assert here["service_ms"].sum() == row.busy_ms
        assert row.wait_p99_ms == pytest.approx(waits.quantile(0.99)) if len(waits) else row.wait_p99_ms is None
        assert (here["available_ms"].min(), waits.max()) == (row.start_ms, row.wait_max_ms) if len(waits) else True
        assert pd.isna(here["ended_ms"].max()) if row.end_ms is None else here["ended_ms"].max() == row.end_ms
    deliveries.unpersist()


def test_the_work_reads_rows_as_it_goes() -> None:
    read = []

    def rows() -> Iterator[tuple[Any, ...]]:
        for offset in range(10_000):
            read.append(offset)
            yield offset, b"k", offset

    found = simulate_rows(rows(), group_of("a", service_ms=0))
    assert "acked" == next(found)[7]
    assert len(read) < 20


def test_a_topic_partition_with_many_keys_is_simulated(spark: SparkSession) -> None:
    df = spark.range(50_000).selectExpr(
        "'t' topic", "0 partition", "id as offset", "string(id) key", "id div 10 as timestamp"
    )
    found = summaries(simulate(df, group_of("a", "b", service_ms=0))).collect()
    assert [(50_000, 50_000, 0)] == [(row.messages, row.acked, row.wait_max_ms) for row in found]
