"""All messages of a consumer, or of a key, in one partition, in offset order, at the price of one shuffle and sort."""

from collections import defaultdict
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.spark.keys import SOME_BYTES, SOME_TEXTS

from keyshared.buckets import BucketLayout, BucketPlacement, key_halves
from keyshared.errors import ArgumentError
from keyshared.hashing import MURMUR3_32
from keyshared.placement import RangeMap
from keyshared.ring import HashRing

pyspark = pytest.importorskip("pyspark", minversion="4.1")
from pyspark.errors import PySparkException  # noqa: E402 - needs pyspark
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.spark.colocation import colocate  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RING = HashRing(["ann", "bob", "eve"])
OWNERS: list[str | None] = [*RING.ranges.owners, None]


class Placed(NamedTuple):
    """A row, and the Spark partition in which it came out."""

    at: int
    owner: str | None
    key: str | bytes | None
    topic: str
    partition: int
    offset: int


def log(spark: "SparkSession", keys: list[Any], kind: str = "string") -> "DataFrame":
    rng = Random(1)
    chosen = [rng.choice([None, *keys]) for _ in range(150)] + keys
    rows = [(key, f"t{index % 2}", index % 3, index // 6) for index, key in enumerate(chosen)]
    rng.shuffle(rows)
    return spark.createDataFrame(rows, f"key {kind}, topic string, partition int, offset long").repartition(3)


def collected(df: "DataFrame") -> dict[int, list[Placed]]:
    """The rows of each Spark partition, in order: collect() keeps it."""
    owner = "owner" if "owner" in df.columns else "cast(null as string) as owner"
    rows = df.withColumn("at", F.spark_partition_id()).selectExpr("at", owner, "key", "topic", "partition", "offset")
    found: defaultdict[int, list[Placed]] = defaultdict(list)
    for row in rows.collect():
        found[row.at].append(Placed(*row))
    return found


def same_rows(df: "DataFrame", parts: dict[int, list[Placed]]) -> bool:
    return sorted(map(repr, map(tuple, df.collect()))) == sorted(
        repr(row[2:]) for rows in parts.values() for row in rows
    )


@pytest.mark.parametrize(("kind", "keys"), [("string", SOME_TEXTS), ("binary", SOME_BYTES)])
def test_each_owner_has_a_partition_and_messages_without_owner_the_last(
    spark: "SparkSession", kind: str, keys: list[Any]
) -> None:
    df = log(spark, keys, kind)
    parts = collected(colocate(df, RING))
    assert same_rows(df, parts)
    for at, rows in parts.items():
        assert {OWNERS[at]} == {row.owner for row in rows}
        assert all(row.owner == (None if row.key is None else RING.ranges.owner_of(row.key)) for row in rows)
        assert rows == sorted(rows, key=lambda row: row[3:])


def test_a_key_is_in_one_partition_in_order_and_messages_without_one_are_spread(spark: "SparkSession") -> None:
    df = log(spark, [f"k{number}" for number in range(30)])
    parts = collected(colocate(df, tasks=4))
    assert same_rows(df, parts)
    places: defaultdict[object, set[int]] = defaultdict(set)
    for at, rows in parts.items():
        assert rows == sorted(rows, key=lambda row: row[3:])
        for row in rows:
            places[row.key].add(at)
    assert {*range(4)} == places.pop(None)
    assert {1} == {len(each) for each in places.values()}


def test_owners_that_share_a_partition_come_one_after_the_other(spark: "SparkSession") -> None:
    df = log(spark, [f"k{number}" for number in range(30)])
    parts = collected(colocate(df, RING, tasks=2))
    assert same_rows(df, parts)
    assert {at: {row.owner for row in rows} for at, rows in parts.items()} == {0: {*OWNERS[::2]}, 1: {*OWNERS[1::2]}}
    assert all(rows == sorted(rows, key=lambda row: (OWNERS.index(row.owner), row[3:])) for rows in parts.values())


@pytest.mark.parametrize("arguments", [{"placement": RING}, {"tasks": 3}, {"placement": RING, "tasks": 2}])
def test_the_plan_has_one_exchange_and_one_sort_and_no_python(spark: "SparkSession", arguments: Any) -> None:
    plan = str(colocate(log(spark, ["a"]).coalesce(1), **arguments)._jdf.queryExecution().optimizedPlan().toString())
    operators = [line.lstrip("+- :").split()[0] for line in plan.splitlines()]
    assert (1, 1) == (operators.count("Sort"), operators.count("RepartitionByExpression"))
    assert "Python" not in plan


def test_a_placement_of_buckets_looks_up_the_bucket_of_the_key(spark: "SparkSession") -> None:
    placement = BucketPlacement(BucketLayout.equal_width(64), ["ann", "bob"])
    df = log(spark, [f"k{number}" for number in range(9)]).withColumnRenamed("key", "user")
    rows = colocate(df, placement, key="user", owner="who", key_hash=MURMUR3_32).collect()
    assert all(
        row.who == (None if row.user is None else placement.ranges.owner(key_halves(row.user, MURMUR3_32).bucket))
        for row in rows
    )


def test_a_placement_without_owners_puts_everything_into_one_partition(spark: "SparkSession") -> None:
    df = log(spark, ["a"])
    parts = collected(colocate(df, RangeMap()))
    assert same_rows(df, parts)
    assert {0} == {*parts}
    assert {None} == {row.owner for row in parts[0]}


@pytest.mark.parametrize("name", ["topic", "partition", "offset"])
def test_a_row_without_a_place_in_the_order_fails_the_job(spark: "SparkSession", name: str) -> None:
    row = {"key": "k", "topic": "t", "partition": 0, "offset": 1, name: None}
    df = spark.createDataFrame([tuple(row.values())], "key string, topic string, partition int, offset long")
    with pytest.raises(PySparkException, match=f"the column {name} orders the log and must not be NULL"):
        colocate(df, RING).collect()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"owner": "key"}, "owner is 'key'; it must be the name of a new column, none of key, topic"),
        ({"tasks": 0}, "tasks is 0; it must be an int of at least 1"),
        ({"placement": "ann"}, "placement is 'ann'; it must be a RangeMap"),
    ],
)
def test_a_wrong_argument_is_refused_before_any_job(spark: "SparkSession", arguments: Any, text: str) -> None:
    df = spark.createDataFrame([], "key string, topic string, partition int, offset long")
    with pytest.raises(ArgumentError, match=text):
        colocate(df, **{"placement": RING, **arguments})


def test_a_stream_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    lines = spark.readStream.text(str(tmp_path)).selectExpr("value as key", "'t' as topic", "1 as offset")
    with pytest.raises(ArgumentError, match="be batch, for Spark sorts no stream; colocate within foreachBatch"):
        colocate(lines, RING, topic_partition="topic")
