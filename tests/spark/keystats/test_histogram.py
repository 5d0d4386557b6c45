"""The histogram of a log: equal to counting in Python, however the log is partitioned, in one pass over it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, TypeAlias

import pytest
from tests.spark.keys import SOME_BYTES, SOME_TEXTS, random_texts
from tests.spark.settings import settings

from keyshared.buckets import (
    BucketLayout,
    BucketPlacement,
    balanced_boundaries,
    bucket_loads,
    hot_slots,
    imbalance,
    key_halves,
    owner_loads,
)
from keyshared.errors import ArgumentError
from keyshared.hashing import MURMUR3_32, PULSAR_RING, XXH64_SEED_42, KeyHash
from keyshared.ring import HashRing

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark
from tests.spark.since import JOB_FAILED  # noqa: E402 - needs pyspark

from keyshared.spark.columns.buckets import with_bucket, with_bucket_owner  # noqa: E402 - needs pyspark
from keyshared.spark.keystats.counts import SlotCount  # noqa: E402
from keyshared.spark.keystats.histogram import KeyHistogram, collect_histogram, key_histogram  # noqa: E402
from keyshared.spark.keystats.histogram import balanced_boundaries as boundaries_of_frame  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Log: TypeAlias = list[tuple[str | None, int]]


def skewed_log(messages: int = 3_000) -> Log:
    rng = Random(7)
    keys: list[str | None] = [*SOME_TEXTS, *random_texts(300), None]
    return [(rng.choice(keys[: rng.randrange(1, len(keys) + 1)]), rng.randrange(1_000)) for _ in range(messages)]


def frame_of(spark: "SparkSession", log: Log) -> "DataFrame":
    return spark.createDataFrame(log, "key string, bytes int")


def counted(log: Log, slot_of: Callable[[str], int]) -> dict[int, SlotCount]:
    """The same by plain dictionaries."""
    keys: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    for key, weight in log:
        if key is not None:
            of_slot = keys[slot_of(key)]
            messages, weights = of_slot.get(key, (0, 0))
            of_slot[key] = messages + 1, weights + weight
    found = {}
    for slot, of_slot in sorted(keys.items()):
        hot = min(of_slot, key=lambda key: (-of_slot[key][1], -of_slot[key][0], key.encode()))
        found[slot] = SlotCount(
            messages=sum(messages for messages, _ in of_slot.values()),
            weight=sum(weight for _, weight in of_slot.values()),
            keys=len(of_slot),
            hot_key=hot.encode(),
            hot_messages=of_slot[hot][0],
            hot_weight=of_slot[hot][1],
        )
    return found


@pytest.mark.parametrize("key_hash", [XXH64_SEED_42, MURMUR3_32], ids=lambda one: one.name)
def test_a_histogram_of_bucket_hashes_is_what_counting_gives(spark: "SparkSession", key_hash: KeyHash) -> None:
    log = skewed_log()
    found = collect_histogram(key_histogram(frame_of(spark, log), weight="bytes", slots=key_hash))
    assert counted(log, lambda key: key_halves(key, key_hash).bucket) == found.slots
    keyless = [weight for key, weight in log if key is None]
    assert (len(keyless), sum(keyless)) == (found.keyless_messages, found.keyless_weight)
    assert len(log) == sum(found.messages.values()) + found.keyless_messages
    assert sorted(found.slots) == list(found.slots)


@pytest.mark.parametrize("ring", [HashRing(["a"], slot_bits=4), HashRing.pulsar(["a"])], ids=["16 slots", "pulsar"])
def test_a_histogram_of_a_placement_has_its_slots(spark: "SparkSession", ring: HashRing) -> None:
    log = skewed_log()
    found = collect_histogram(key_histogram(frame_of(spark, log), weight="bytes", slots=ring))
    assert counted(log, ring.ranges.slot_of) == found.slots
    assert max(count.keys for count in found.slots.values()) > 1 or ring.ranges.slot_bits > 4


def test_without_a_weight_each_message_weighs_one(spark: "SparkSession") -> None:
    log = skewed_log()
    found = collect_histogram(key_histogram(frame_of(spark, log)))
    slots = Counter(key_halves(key, XXH64_SEED_42).bucket for key, _ in log if key is not None)
    assert slots == found.messages
    assert found.messages == found.weights
    assert found.keyless_messages == found.keyless_weight


def test_of_equally_heavy_keys_the_one_with_more_messages_is_hot_then_the_smaller(spark: "SparkSession") -> None:
    everything = KeyHash("one-slot", 32, lambda _: 5)
    log = [("c", 4), ("b", 2), ("b", 2), ("d", 2), ("d", 2), ("é", 1)]
    frame = spark.createDataFrame(log, "key string, bytes int")
    found = collect_histogram(key_histogram(frame, weight="bytes", slots=everything))
    assert {5: SlotCount(messages=6, weight=13, keys=4, hot_key=b"b", hot_messages=2, hot_weight=4)} == found.slots


@pytest.mark.parametrize("partitions", [1, 17])
def test_partitions_make_no_difference(spark: "SparkSession", partitions: int) -> None:
    log = skewed_log(500)
    frame = frame_of(spark, log).repartition(partitions).unionByName(frame_of(spark, []))
    expected = counted(log, lambda key: key_halves(key, XXH64_SEED_42).bucket)
    assert expected == collect_histogram(key_histogram(frame, weight="bytes")).slots


def test_binary_keys_are_counted_as_they_are(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(key,) for key in SOME_BYTES * 2], "k binary")
    for kind in ("binary", "string"):  # some are no text to Python
        found = collect_histogram(key_histogram(frame.select(F.col("k").cast(kind)), key="k"))
        assert dict.fromkeys(SOME_BYTES, 2) == {count.hot_key: count.messages for count in found.slots.values()}
        assert {bytes} == {type(count.hot_key) for count in found.slots.values()}


def test_decimal_weights_stay_exact(spark: "SparkSession") -> None:
    log = [("a", Decimal("0.10"))] * 3 + [("a", Decimal("0.03")), ("b", Decimal("1.00"))]
    frame = spark.createDataFrame(log, "key string, cost decimal(6,2)")
    found = collect_histogram(key_histogram(frame, weight="cost")).weights
    assert {
        key_halves("a", XXH64_SEED_42).bucket: Fraction(33, 100),
        key_halves("b", XXH64_SEED_42).bucket: 1,
    } == found
    assert len(balanced_boundaries(found, 2)) == 2


def test_a_log_without_messages_gives_the_empty_histogram(spark: "SparkSession") -> None:
    found = collect_histogram(key_histogram(frame_of(spark, []), weight="bytes"))
    assert KeyHistogram({}, 0, 0) == found
    assert BucketLayout.equal_width(8) == balanced_boundaries(found.weights, 8)


def test_the_key_may_be_a_field_and_columns_may_have_the_names_of_the_results(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(("k", 3), 1)], "event struct<key: string, weight: int>, slot int")
    found = collect_histogram(key_histogram(frame, key="event.key", weight="event.weight"))
    assert {key_halves("k", XXH64_SEED_42).bucket: 3} == found.weights


def test_the_schema_is_the_documented_one(spark: "SparkSession") -> None:
    frame = key_histogram(frame_of(spark, []), weight="bytes")
    assert (
        "slot bigint, messages bigint, weight bigint, keys bigint, hot_key string, hot_messages bigint, "
        "hot_weight bigint"
    ) == ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)


def test_the_log_is_read_once_and_only_keys_pass_through_python(spark: "SparkSession") -> None:
    read = spark.sparkContext.accumulator(0)

    def counting(rows: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int]]:
        for row in rows:
            read.add(1)
            yield row

    log = [(f"k{number % 10}", 1) for number in range(400)]
    rows = spark.sparkContext.parallelize(log, 3).mapPartitions(counting)
    frame = spark.createDataFrame(rows, "key string, w int")
    counts = key_histogram(frame, weight="w", slots=MURMUR3_32)
    collect_histogram(counts)
    assert 400 == read.value
    plan = counts._jdf.queryExecution().executedPlan().toString()
    assert plan.index("ArrowEvalPython") < plan.index("HashAggregate(keys=[key#")  # the plan's last step stands first


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("weight", ["n", "cast(n as decimal(38, 0)) * 10000000000000000000"])
def test_a_sum_that_nothing_can_hold_fails_the_job_in_either_mode(
    spark: "SparkSession", ansi: str, weight: str
) -> None:
    with settings(spark, {"spark.sql.ansi.enabled": ansi}):
        frame = spark.createDataFrame([("a", (1 << 62) + 1)] * 3, "key string, n long").selectExpr("key", f"{weight} w")
        with pytest.raises(JOB_FAILED, match="the weights add up to more than Spark can hold"):
            key_histogram(frame, weight="w").collect()


def test_from_the_log_to_owners_in_one_pass(spark: "SparkSession") -> None:
    log = skewed_log()
    frame = frame_of(spark, log)
    weights = collect_histogram(key_histogram(frame, weight="bytes")).weights
    layout = balanced_boundaries(weights, 16)
    loads = bucket_loads(weights, layout)
    placement = BucketPlacement.by_load(layout, loads, ["a", "b", "c"])
    seen = with_bucket_owner(with_bucket(frame, layout), placement).dropna(subset=["key"])
    by_bucket: dict[int, int] = dict(seen.groupBy("bucket").agg(F.sum("bytes")).collect())
    assert {number: load for number, load in enumerate(loads) if load} == {b: w for b, w in by_bucket.items() if w}
    by_owner: dict[str, int] = dict(seen.groupBy("owner").agg(F.sum("bytes")).collect())
    assert owner_loads(weights, placement.ranges) == by_owner
    assert imbalance(by_owner.values()) <= imbalance(
        owner_loads(weights, BucketPlacement(BucketLayout.equal_width(16), ["a", "b", "c"]).ranges).values()
    )
    assert all(weights[hot.slot] * 16 > sum(weights.values()) for hot in hot_slots(weights, 16))


def test_hashing_keys_anew_for_the_histogram_would_misplace_boundaries(spark: "SparkSession") -> None:
    """The segment's half, the slot of a ring, says nothing of buckets: loads by it are not those of the buckets."""
    frame = frame_of(spark, skewed_log()).dropna(subset=["key"])
    wrong = collect_histogram(key_histogram(frame, slots=HashRing(["a"]))).messages
    layout = balanced_boundaries(wrong, 16)
    by_bucket: dict[int, int] = dict(with_bucket(frame, layout).groupBy("bucket").count().collect())
    assert {number: load for number, load in enumerate(bucket_loads(wrong, layout)) if load} != by_bucket


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"key": "nope"}, r"'nope'; it must be a column of the frame \(key, n, x\)"),
        ({"key": "n"}, "key column is 'n'; it must be string or binary, and it is int"),
        ({"weight": "nope"}, r"'nope'; it must be a column of the frame \(key, n, x\)"),
        ({"weight": "x"}, "weight is 'x'; it must be a column of whole numbers or decimals, and it is double"),
        ({"weight": "key"}, "weight is 'key'; it must be a column of whole numbers or decimals, and it is string"),
        ({"slots": PULSAR_RING}, "be a KeyHash of at least 32 bits"),
        ({"slots": "ring"}, "placement is 'ring'; it must be a RangeMap"),
    ],
)
def test_what_cannot_work_is_refused_before_any_job(spark: "SparkSession", options: dict[str, str], told: str) -> None:
    frame = spark.createDataFrame([("a", 1, 1.0)], "key string, n int, x double")
    with pytest.raises(ArgumentError, match=told):
        key_histogram(frame, **options)  # type: ignore[arg-type]  # that is the mistake


@pytest.mark.parametrize(("weight", "told"), [(-1, "it is -1"), (None, "it is NULL")])
def test_a_weight_that_is_none_fails_the_job_and_is_named(spark: "SparkSession", weight: int | None, told: str) -> None:
    frame = spark.createDataFrame([("a", 1), ("a", weight)], "key string, n int")
    with pytest.raises(JOB_FAILED, match=f"the weight 'n' must be at least 0, and {told}"):
        collect_histogram(key_histogram(frame, weight="n"))


def test_something_else_than_a_histogram_is_refused(spark: "SparkSession") -> None:
    with pytest.raises(ArgumentError, match=r"'slot'; it must be a column of the frame \(id\)"):
        collect_histogram(spark.range(1))


def test_boundaries_of_a_frame_are_those_of_its_histogram(spark: "SparkSession") -> None:
    rows = [(slot, slot % 5 + 1, Decimal(slot % 7) / 4) for slot in range(0, 65_536, 97)] + [(None, 9, Decimal(9))]
    frame = spark.createDataFrame(rows, "slot bigint, messages bigint, weight decimal(10, 2)")
    messages = {row[0]: row[1] for row in rows if row[0] is not None}
    weights = {row[0]: Fraction(row[2]) for row in rows if row[0] is not None}
    assert balanced_boundaries(weights, 16) == boundaries_of_frame(frame, 16)
    assert balanced_boundaries(messages, 16) == boundaries_of_frame(frame, 16, by="messages")
    assert balanced_boundaries(messages, 16) != balanced_boundaries(weights, 16)


@pytest.mark.parametrize(
    ("schema", "n", "by", "told"),
    [
        ("slot bigint, weight bigint", 0, "weight", "it must be an int from 1 to 32768"),
        ("slot bigint, weight bigint", 4, "keys", "by is 'keys'; it must be one of weight, messages"),
        ("slot bigint, messages bigint", 4, "weight", "'weight'; it must be a column of the frame"),
        ("slot bigint, weight double", 4, "weight", "'weight'; it must be whole numbers or decimals, and it is double"),
        ("slot string, weight bigint", 4, "weight", "'slot'; it must be long or int .* and it is string"),
    ],
    ids=["buckets", "measure", "missing", "floats", "slots"],
)
def test_boundaries_of_what_is_no_histogram_are_refused_before_any_job(
    spark: "SparkSession", schema: str, n: int, by: str, told: str
) -> None:
    with pytest.raises(ArgumentError, match=told):
        boundaries_of_frame(spark.createDataFrame([], schema), n, by=by)


def test_slots_that_are_no_bucket_hashes_are_refused(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(65_536, 1)], "slot bigint, weight bigint")
    with pytest.raises(ArgumentError, match="slot is 65536; it must be an int from 0 to 65535"):
        boundaries_of_frame(frame, 4)
