"""The demand of a log on a group: window by window, and never hidden by an average."""

import math
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.logs import MAY, group_of, log_frame, random_log

from keyshared.errors import ArgumentError
from keyshared.simulate import (
    Change,
    Crash,
    Fixed,
    Group,
    Join,
    Leave,
    PerMessage,
    Return,
    Sampled,
    Scaled,
    SetLimit,
    SetService,
    SimulatedConsumer,
)
from keyshared.spark.demand_windows import demand, stays
from keyshared.spark.log_columns import LogColumns


def test_an_overload_in_the_first_quarter_shows_though_the_average_is_low(spark: SparkSession) -> None:
    busy = "if(id < 300, id * 10, 3000 + (id - 300) * 90)"
    log = spark.range(400).selectExpr("'t' topic", "0 partition", "concat('k', id % 40) key", f"{busy} as timestamp")
    found = demand(log, group_of("a", service_ms=15), window_ms=3_000).orderBy("start_ms").collect()
    assert [1.5] == [row.demand for row in found[:1]]
    assert all(row.demand < 0.2 for row in found[1:])
    assert sum(row.messages * 15 for row in found) / (4 * 3_000) < 0.6


def test_a_hot_key_is_named_and_demands_a_consumer_of_its_own(spark: SparkSession) -> None:
    log = spark.range(100).selectExpr(
        "'t' topic", "0 partition", "if(id % 4 = 0, concat('k', id), 'hot') key", "id * 10 as timestamp"
    )
    [row] = demand(log, group_of("a", "b", "c", "d"), window_ms=1_000).collect()
    assert (0.5, 1.5, b"hot") == (row.demand, row.key_demand, bytes(row.hottest_key))


def test_windows_are_those_of_pandas(spark: SparkSession) -> None:
    records = random_log(3, messages=200)
    frame = log_frame(spark, records)
    found = demand(frame, group_of("a", "b"), window_ms=700).toPandas()
    local = frame.toPandas()
    ms = frame.selectExpr("unix_millis(timestamp) ms").toPandas()["ms"]
    local["start_ms"] = (ms - ms.min()) // 700 * 700 + ms.min()
    counts = local.groupby(["topic", "partition", "start_ms"]).size()
    assert counts.to_dict() == found.set_index(["topic", "partition", "start_ms"])["messages"].to_dict()
    assert (found["demand"] == found["messages"] * 20 / (2 * 700)).all()


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        (Fixed(10), 0.2),
        (Sampled([5, 15]), 0.2),
        (Scaled(Fixed(10), 2), 0.4),
        (PerMessage(4), (5 * 4 + 5 * 30) / 500),
        (Scaled(PerMessage(), 2), 5 * 60 / 500),
        (Fixed(0), 0.0),
    ],
)
def test_every_service_time_counts(spark: SparkSession, service: Any, expected: float) -> None:
    log = spark.range(10).selectExpr(
        "'t' topic", "0 partition", "'k' key", "id * 50 as timestamp", "if(id < 5, 30, null) service"
    )
    group = Group(consumers=[SimulatedConsumer("a", service)])
    [row] = demand(log, group, LogColumns(service_ms="service"), window_ms=500).collect()
    assert expected == pytest.approx(row.demand)


def test_a_service_time_of_ones_own_cannot_be_added_up(spark: SparkSession) -> None:
    class Own:
        def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:
            raise NotImplementedError

    with pytest.raises(ArgumentError, match="it must be Fixed, Sampled, PerMessage or Scaled"):
        demand(log_frame(spark, []), Group(consumers=[SimulatedConsumer("a", Own())]))


def test_only_those_count_who_are_up(spark: SparkSession) -> None:
    log = spark.range(40).selectExpr("'t' topic", "0 partition", "'k' key", "id * 10 as timestamp")
    group = group_of("a", "b", service_ms=10, changes=[Crash(100, "a"), Leave(200, "b"), Return(300, "a")])
    found = demand(log, group, window_ms=100).orderBy("start_ms").collect()
    assert [0.5, 1.0, math.inf, 1.0] == [row.demand for row in found]
    assert [math.inf] * 4 == [row.demand for row in demand(log, Group(), window_ms=100).collect()]


def test_the_clock_of_the_group_begins_where_it_is_said_to(spark: SparkSession) -> None:
    records = [("t", 0, n, b"k", MAY) for n in range(3)]
    began = round(MAY.timestamp() * 1_000)
    [row] = demand(log_frame(spark, records), group_of("a"), LogColumns(start=began - 250), window_ms=100).collect()
    assert (began - 50, 3, 0.6) == (row.start_ms, row.messages, row.demand)


def test_stays_follow_every_change() -> None:
    a, b = SimulatedConsumer("a", Fixed(1), concurrency=2), SimulatedConsumer("b", Fixed(2))
    changes: list[Change] = [
        SetService(5, "a", Fixed(7)),
        Join(6, b),
        Crash(8, "a"),
        SetService(9, "a", Fixed(9)),
        SetLimit(9, "b", 3),
        Return(10, "a"),
        Leave(12, "b"),
    ]
    found = [tuple(stay) for stay in stays(Group(consumers=[a], changes=changes))]
    assert [
        ("a", 0, 5, 2, Fixed(1)),
        ("a", 5, 8, 2, Fixed(7)),
        ("b", 6, 12, 1, Fixed(2)),
        ("a", 10, None, 2, Fixed(9)),
    ] == found


def test_wrong_arguments_are_refused(spark: SparkSession) -> None:
    df = log_frame(spark, [])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"window_ms": 0}, "window_ms is 0"),
        ({"columns": LogColumns(key="timestamp")}, "type of column timestamp"),
        ({"columns": LogColumns(time=None)}, "time is None"),
        ({"columns": LogColumns(service_ms="topic")}, "type of column topic"),
    ]
    for options, match in wrong:
        with pytest.raises(ArgumentError, match=match):
            demand(df, group_of("a"), **options)
