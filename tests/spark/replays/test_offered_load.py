"""The load of a log, by Spark: what plain sums over its rows say, and why a replay of it waits."""

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared import spark as ks
from keyshared.config import DispatcherConfig
from keyshared.errors import ArgumentError
from keyshared.simulate import Fixed, Group, Pace, PerMessage, Scaled, SimulatedConsumer
from keyshared.spark.replays.offered_load import offered_loads

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

OWN = Group(consumers=[SimulatedConsumer("a", PerMessage(7)), SimulatedConsumer("b", PerMessage(7), concurrency=2)])
FIXED = Group(consumers=[SimulatedConsumer("a", Fixed(300))], config=DispatcherConfig(ack_timeout_ms=200))
# topic-partition, key, offset, at_ms, service_ms: one key of p0 is hot, p1 has messages without a key
ROWS = [
    (
        f"p{i % 2}",
        None if i % 2 and i % 5 == 0 else f"k{i % 3 if i % 4 else 0}",
        i,
        5_000 + i * 10,
        None if i % 7 == 0 else i // 20,
    )
    for i in range(200)
]


def log(spark: "SparkSession") -> "DataFrame":
    return spark.createDataFrame(ROWS, "topic_partition string, key string, offset long, at_ms long, service_ms long")


def test_the_load_is_what_plain_sums_say(spark: "SparkSession") -> None:
    asks = Group(consumers=[SimulatedConsumer("a", Scaled(PerMessage(), 2))])
    found = offered_loads(log(spark), {"own": OWN, "fixed": FIXED, "asks": asks}, service_ms="service_ms")
    silent = sum(row[4] is None for row in ROWS)
    assert {"own": 0, "fixed": 0, "asks": silent} == {name: each.untold for name, each in found.items()}
    span = ROWS[-1][3] - ROWS[0][3]
    took_by: dict[str, Callable[[int | None], int]] = {
        "own": lambda own: 7 if own is None else own,
        "fixed": lambda _: 300,
    }
    for name, took in took_by.items():
        slots = {"own": 3, "fixed": 1}[name]
        groups: defaultdict[str, list[int]] = defaultdict(list)
        keys: defaultdict[tuple[str, str], int] = defaultdict(int)
        for place, key, _, _, own in ROWS:
            groups[place].append(took(own))
            if key is not None:
                keys[place, key] += took(own)
        assert span == found[name].span_ms
        assert {place: sum(each) / span / slots for place, each in groups.items()} == pytest.approx(
            {each.topic_partition: each.load for each in found[name].topic_partitions}
        )
        for each in found[name].topic_partitions:
            here = {key: work for (place, key), work in keys.items() if place == each.topic_partition}
            assert max(here, key=lambda key: here[key]) == each.hottest
            assert pytest.approx(max(here.values()) / span) == each.key_load
            assert sum(work > span for work in here.values()) == each.keys_over
            assert pytest.approx(sum(groups[each.topic_partition]) / len(groups[each.topic_partition])) == each.mean_ms
    assert [True, False] == [found[name].keys_over > 0 for name in ("fixed", "own")]
    assert 3 == len(found["fixed"].warnings())


def test_a_replay_takes_at_least_as_long_as_the_load_says(spark: "SparkSession") -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(30), concurrency=4), SimulatedConsumer("b", Fixed(30), concurrency=4)]
    )
    load = ks.offered_load(log(spark), plan)
    [worst] = [each for each in load.topic_partitions if each.key_load == load.key_load]
    assert "alone needs" in load.warnings()[0]
    assert worst.load < 1  # consumers enough: it is the key
    with ks.replay(log(spark), plan) as result:
        ends = {row.topic_partition: row.end_ms for row in result.summaries.collect()}
    assert ends[worst.topic_partition] - ROWS[0][3] >= worst.key_load * load.span_ms


def test_a_log_of_one_instant_has_no_load_and_keys_may_be_bytes(spark: "SparkSession") -> None:
    rows = log(spark).selectExpr("topic_partition", "cast(key as binary) key", "offset", "5 at_ms")
    assert () == ks.offered_load(rows, FIXED).topic_partitions
    timed = rows.withColumn("at_ms", rows["offset"])
    for key, hottest in (
        ("cast(concat(cast(key as binary), X'FF0A') as string)", r"k0\xff\n"),
        ("concat(key, '\n')", "k0\n"),
    ):
        odd = timed.withColumn("key", F.expr(key))  # the first one is no text to Python
        assert hottest == ks.offered_load(odd, FIXED).topic_partitions[0].hottest
    assert 0 == ks.offered_load(timed.limit(0), FIXED).load
    assert float("inf") == ks.offered_load(timed, Group()).load


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (("p", "k", None, 5), "column at_ms is 'at_ms'; it must not be NULL, negative or above .* it is in 1"),
        (("p", "k", -1, 5), "column at_ms is 'at_ms'; it must not be NULL, negative"),
        (("p", "k", 7, -5), "column service_ms is 'took'; it must not be negative .* topic_partition 'p', at_ms 7"),
        ((None, "k", 7, 5), "column topic_partition is 'topic_partition'; it must not be NULL"),
    ],
)
def test_rows_that_a_replay_refuses_are_refused_here_too(
    spark: "SparkSession", row: tuple[object, ...], told: str
) -> None:
    columns = "topic_partition string, key string, at_ms long, took long"
    rows = spark.createDataFrame([("p", "k", 0, 5), ("q", None, 9, None), row], columns)
    with pytest.raises(ArgumentError, match=told):
        ks.offered_load(rows, OWN, service_ms="took")
    with pytest.raises(ArgumentError, match=told.partition(" .*")[0]):
        ks.replay(rows.withColumn("offset", F.monotonically_increasing_id()), OWN, service_ms="took")


def test_what_cannot_be_weighed_is_refused_before_a_job(spark: "SparkSession") -> None:
    with pytest.raises(ArgumentError, match="'nope'"):
        ks.offered_load(log(spark), FIXED, service_ms="nope")
    with pytest.raises(ArgumentError, match="be Pace"):
        ks.offered_load(log(spark), Group(pace=Pace.BACKLOG))
