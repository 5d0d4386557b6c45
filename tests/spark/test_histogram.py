"""The histogram of a log equals counting in Python, however the log is partitioned, in one pass over it."""

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from tests.spark.keys import SOME_TEXTS, random_texts

from keyshared.buckets import BucketPlacement, balanced_boundaries, bucket_loads, key_halves, owner_loads
from keyshared.errors import ArgumentError
from keyshared.hashing import MURMUR3_32, PULSAR_RING, XXH64_SEED_42, KeyHash
from keyshared.ring import HashRing

pytest.importorskip("pyspark")
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - needs pyspark

from keyshared.spark.columns import bucket, bucket_owner
from keyshared.spark.histogram import loads, slot_histogram

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Log: TypeAlias = list[tuple[str | None, int]]
JOB_FAILED = (PySparkException, Py4JJavaError)


def skewed_log(messages: int = 2_000) -> Log:
    rng = Random(7)
    keys: list[str | None] = [*SOME_TEXTS, *random_texts(300), None]
    return [(rng.choice(keys[: rng.randrange(1, len(keys) + 1)]), rng.randrange(1_000)) for _ in range(messages)]


def frame_of(spark: "SparkSession", log: Log) -> "DataFrame":
    return spark.createDataFrame(log, "key string, bytes int")


def by_python(log: Log, slot_of: Callable[[str], int]) -> dict[int | None, tuple[object, ...]]:
    """The rows of the histogram, by slot, from plain dictionaries."""
    keys: dict[int | None, dict[str | None, tuple[int, int]]] = defaultdict(dict)
    for key, weight in log:
        slot = keys[None if key is None else slot_of(key)]
        messages, weights = slot.get(key, (0, 0))
        slot[key] = messages + 1, weights + weight
    found: dict[int | None, tuple[object, ...]] = {}
    for number, slot in keys.items():
        hot = min(slot, key=lambda key: (-slot[key][1], -slot[key][0], (key or "").encode()))
        totals = [sum(column) for column in zip(*slot.values(), strict=True)]
        found[number] = (*totals, sum(key is not None for key in slot), hot, *slot[hot])
    return found


def by_slot(histogram: "DataFrame") -> dict[int | None, tuple[object, ...]]:
    return {row[0]: tuple(row[1:]) for row in histogram.collect()}


@pytest.mark.parametrize("partitions", [1, 7])
@pytest.mark.parametrize("key_hash", [XXH64_SEED_42, MURMUR3_32], ids=lambda one: one.name)
def test_a_histogram_of_bucket_hashes_is_what_counting_gives(
    spark: "SparkSession", key_hash: KeyHash, partitions: int
) -> None:
    log = skewed_log()
    histogram = slot_histogram(frame_of(spark, log).repartition(partitions), weight="bytes", slots=key_hash)
    assert by_python(log, lambda key: key_halves(key, key_hash).bucket) == by_slot(histogram)
    assert histogram.columns == ["slot", "messages", "weight", "keys", "hot_key", "hot_messages", "hot_weight"]
    plan = histogram._jdf.queryExecution().optimizedPlan().toString()
    assert 1 == plan.count("LogicalRDD") + plan.count("LocalRelation")
    if key_hash is MURMUR3_32:  # only different keys pass through Python; the plan's last step is its first line
        assert plan.index("ArrowEvalPython") < plan.index("Aggregate [key#")


@pytest.mark.parametrize("ring", [HashRing(["a"], slot_bits=4), HashRing.pulsar(["a"])], ids=["16 slots", "pulsar"])
def test_a_histogram_of_a_placement_has_its_slots(spark: "SparkSession", ring: HashRing) -> None:
    log: Log = [(key, 1) for key, _ in skewed_log()]
    assert by_python(log, ring.ranges.slot_of) == by_slot(slot_histogram(frame_of(spark, log), slots=ring))


def test_of_equally_heavy_keys_the_one_with_more_messages_is_hot_then_the_smaller(spark: "SparkSession") -> None:
    log = [("c", 4), ("b", 2), ("b", 2), ("d", 2), ("d", 2), ("é", 1)]
    found = by_slot(slot_histogram(frame_of(spark, [*log]), weight="bytes", slots=KeyHash("one-slot", 32, lambda _: 5)))
    assert {5: (6, 13, 4, "b", 2, 4)} == found


def test_decimal_weights_stay_exact(spark: "SparkSession") -> None:
    log = [("a", Decimal("0.10"))] * 3 + [("a", Decimal("0.03")), ("b", Decimal("1.00")), (None, Decimal(5))]
    histogram = slot_histogram(spark.createDataFrame(log, "key string, cost decimal(6,2)"), weight="cost")
    a, b = (key_halves(key, XXH64_SEED_42).bucket for key in "ab")
    assert {a: Fraction(33, 100), b: 1} == loads(histogram)
    assert {a: 4, b: 1} == loads(histogram, by="messages")
    assert {} == loads(histogram.filter("slot < 0"))


def test_from_the_log_to_owners_in_one_pass(spark: "SparkSession") -> None:
    frame = frame_of(spark, skewed_log())
    weights = loads(slot_histogram(frame, weight="bytes"))
    assert list(weights) == sorted(weights)
    layout = balanced_boundaries(weights, 16)
    of_buckets = bucket_loads(weights, layout)
    placement = BucketPlacement.by_load(layout, of_buckets, ["a", "b", "c"])
    seen = frame.dropna(subset=["key"]).withColumns({"bucket": bucket(layout), "owner": bucket_owner(placement)})
    by_bucket: dict[int, int] = dict(seen.groupBy("bucket").agg(F.sum("bytes")).collect())
    assert {number: load for number, load in enumerate(of_buckets) if load} == {b: w for b, w in by_bucket.items() if w}
    assert owner_loads(weights, placement.ranges) == dict(seen.groupBy("owner").agg(F.sum("bytes")).collect())


@pytest.mark.parametrize("weight", ["n", "cast(n as decimal(38, 0)) * 10000000000000000000"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_sum_beyond_what_spark_can_hold_fails_the_job(spark: "SparkSession", ansi: str, weight: str) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = spark.createDataFrame([("a", (1 << 62) + 1)] * 3, "key string, n long").selectExpr("key", f"{weight} w")
        with pytest.raises(JOB_FAILED, match="the weights add up to more than Spark can hold"):
            slot_histogram(frame, weight="w").collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))


@pytest.mark.parametrize(("weight", "text"), [(-1, "it is -1"), (None, "it is NULL")])
def test_a_wrong_weight_fails_the_job(spark: "SparkSession", weight: int | None, text: str) -> None:
    frame = spark.createDataFrame([("a", 1), ("a", weight)], "key string, n int")
    with pytest.raises(JOB_FAILED, match=f"the weight 'n' must be at least 0, and {text}"):
        slot_histogram(frame, weight="n").collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"weight": "x"}, "weight is 'x'; it must be a column of whole numbers or decimals, and it is double"),
        ({"slots": PULSAR_RING}, "be a KeyHash of at least 32 bits"),
        ({"slots": "ring"}, "placement is 'ring'; it must be a RangeMap"),
    ],
)
def test_a_wrong_argument_is_refused_before_any_job(spark: "SparkSession", options: Any, text: str) -> None:
    frame = spark.createDataFrame([("a", 1, 1.0)], "key string, n int, x double")
    with pytest.raises(ArgumentError, match=text):
        slot_histogram(frame, **options)
    with pytest.raises(ArgumentError, match="by is 'keys'; it must be one of weight, messages"):
        loads(slot_histogram(frame), by="keys")
