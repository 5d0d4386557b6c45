"""Slots and bucket hashes as Spark expressions are those of Python, for every hash, native or through Arrow."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest
from tests.spark.keys import SOME_BYTES, SOME_TEXTS, random_bytes, random_texts
from tests.spark.settings import BATCH_ROWS, settings

from keyshared.buckets import key_halves
from keyshared.errors import ArgumentError
from keyshared.hashing import (
    CELERIANT_BE,
    CELERIANT_LE,
    DANUBE_32,
    MURMUR3_32,
    PULSAR_RANGES,
    PULSAR_RING,
    XXH64_SEED_42,
    KeyHash,
    pulsar_ring_hash,
)
from keyshared.placement import RangeMap
from keyshared.ring import HashRing

pyspark = pytest.importorskip("pyspark")
import pyarrow as pa  # noqa: E402 - comes with pyspark's extra
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark
from tests.spark.since import JOB_FAILED  # noqa: E402 - needs pyspark

from keyshared.spark.columns.slots import bucket_hash, hashed_once, slot, with_slot  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SPACES = [
    (XXH64_SEED_42, 1),
    (XXH64_SEED_42, 16),
    (XXH64_SEED_42, 32),
    (DANUBE_32, 32),
    (MURMUR3_32, 20),
    (PULSAR_RING, 16),
    (pulsar_ring_hash(256), 8),
    (PULSAR_RANGES, 16),
    (CELERIANT_LE, 16),
    (CELERIANT_BE, 5),
]
WIDE = [XXH64_SEED_42, DANUBE_32, MURMUR3_32]
TEXTS = [*SOME_TEXTS, *random_texts(500)]
BYTES = [*SOME_BYTES, *random_bytes(500)]


def name_of(value: object) -> str:
    return value.name if isinstance(value, KeyHash) else str(value)


def frame_of(spark: "SparkSession", keys: list[str] | list[bytes]) -> "DataFrame":
    kind = "string" if isinstance(keys[0], str) else "binary"
    return spark.createDataFrame([(key,) for key in keys], f"key {kind}")


def plan_of(frame: "DataFrame") -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def batches_of(spark: "SparkSession", rows: int) -> AbstractContextManager[None]:
    return settings(spark, {BATCH_ROWS: str(rows)})


@pytest.mark.parametrize("keys", [TEXTS, BYTES], ids=["texts", "bytes"])
def test_the_slot_of_a_key_is_the_one_of_python_in_every_space(
    spark: "SparkSession", keys: list[str] | list[bytes]
) -> None:
    spaces = {f"{key_hash.name}, {bits} bits": RangeMap(key_hash=key_hash, slot_bits=bits) for key_hash, bits in SPACES}
    frame = frame_of(spark, keys)
    for name, ranges in spaces.items():
        frame = with_slot(frame, ranges, into=name)
    rows = frame.collect()
    assert {name: [ranges.slot_of(key) for key in keys] for name, ranges in spaces.items()} == {
        name: [row[name] for row in rows] for name in spaces
    }


@pytest.mark.parametrize("keys", [TEXTS, BYTES], ids=["texts", "bytes"])
def test_the_bucket_hash_of_a_key_is_the_one_of_python_for_every_hash(
    spark: "SparkSession", keys: list[str] | list[bytes]
) -> None:
    hashes = {each.name: bucket_hash(F.col("key"), key_hash=each).alias(each.name) for each in WIDE}
    rows = frame_of(spark, keys).select(*hashes.values()).collect()
    assert {each.name: [key_halves(key, each).bucket for key in keys] for each in WIDE} == {
        name: [row[name] for row in rows] for name in hashes
    }


def test_a_text_that_is_none_to_python_has_the_slot_of_its_bytes(spark: "SparkSession") -> None:
    rings = {key_hash.name: RangeMap(key_hash=key_hash) for key_hash in (XXH64_SEED_42, MURMUR3_32)}
    texts = frame_of(spark, BYTES).select(F.col("key"), F.col("key").cast("string").alias("text"))
    slots = {name: slot(F.col("text"), ring).alias(name) for name, ring in rings.items()}
    for row in texts.select("key", *slots.values()).collect():
        assert {name: ring.slot_of(bytes(row.key)) for name, ring in rings.items()} == {n: row[n] for n in slots}


def test_the_bucket_hash_is_not_the_lowest_bits_of_a_wider_hash(spark: "SparkSession") -> None:
    wrong = F.xxhash64("key").bitwiseAND(0xFFFF).alias("bucket_hash")  # hashB is the low half of the top 32 bits
    rows = frame_of(spark, TEXTS).select(wrong).collect()
    assert [key_halves(key, XXH64_SEED_42).bucket for key in TEXTS] != [row.bucket_hash for row in rows]


def test_a_signed_shift_would_give_other_slots(spark: "SparkSession") -> None:
    rows = frame_of(spark, TEXTS).select(F.shiftright(F.xxhash64("key"), 48).alias("slot")).collect()
    assert [RangeMap().slot_of(key) for key in TEXTS] != [row.slot for row in rows]


@pytest.mark.parametrize("key_hash", [XXH64_SEED_42, MURMUR3_32], ids=name_of)
def test_keys_of_a_megabyte_have_their_slots(spark: "SparkSession", key_hash: KeyHash) -> None:
    keys = ["x" * 1_000_000, "é" * 500_000, "x" * 1_000_001]
    ranges = RangeMap(key_hash=key_hash)
    rows = with_slot(frame_of(spark, keys), ranges).select("slot").collect()
    assert [ranges.slot_of(key) for key in keys] == [row.slot for row in rows]


@pytest.mark.parametrize("key_hash", WIDE, ids=name_of)
def test_a_row_without_a_key_has_no_slot_and_no_bucket_hash(spark: "SparkSession", key_hash: KeyHash) -> None:
    frame = spark.createDataFrame([(None,), ("a",), (None,)], "key string").coalesce(1)
    ranges = RangeMap(key_hash=key_hash)
    rows = with_slot(frame, ranges).withColumn("bucket", bucket_hash(F.col("key"), key_hash=key_hash)).collect()
    expected = ("a", ranges.slot_of("a"), key_halves("a", key_hash).bucket)
    assert [(None, None, None), expected, (None, None, None)] == [tuple(row) for row in rows]


@pytest.mark.parametrize("rows_of_a_batch", [1, 7, 100_000])
@pytest.mark.parametrize(
    "split",
    [
        lambda frame: frame.coalesce(1),
        lambda frame: frame.repartition(5),
        lambda frame: frame.repartition(5, F.lit(1)),  # four of them are empty
    ],
    ids=["one", "five", "empty ones"],
)
def test_partitions_and_arrow_batches_make_no_difference(
    spark: "SparkSession", split: Callable[["DataFrame"], "DataFrame"], rows_of_a_batch: int
) -> None:
    keys = random_texts(20) * 5
    ranges = RangeMap(key_hash=MURMUR3_32)
    with batches_of(spark, rows_of_a_batch):
        rows = with_slot(split(frame_of(spark, keys)), ranges).collect()
    assert Counter((key, ranges.slot_of(key)) for key in keys) == Counter(tuple(row) for row in rows)


def test_an_empty_frame_stays_empty(spark: "SparkSession") -> None:
    empty = spark.createDataFrame([], "key string")
    assert [] == with_slot(empty, RangeMap(key_hash=MURMUR3_32)).collect()


def test_any_hash_of_the_users_own_will_do(spark: "SparkSession") -> None:
    mine = KeyHash("Length & such", 8, lambda key: len(key) % 256)
    frame = with_slot(frame_of(spark, TEXTS), RangeMap(key_hash=mine, slot_bits=8))
    assert [len(key.encode()) % 256 for key in TEXTS] == [row.slot for row in frame.collect()]
    assert "keyshared_length_such(" in plan_of(frame)


def test_the_default_hash_is_compiled_and_no_row_passes_through_python(spark: "SparkSession") -> None:
    keys = spark.range(10).select(F.col("id").cast("string").alias("key"))
    plan = plan_of(with_slot(keys, HashRing(["a"])).withColumn("bucket", bucket_hash(F.col("key"))))
    assert all(line.lstrip("+- ").startswith("*(1)") for line in plan.splitlines() if line), plan
    assert "Python" not in plan


def test_what_is_looked_up_from_one_key_is_hashed_in_one_go(spark: "SparkSession") -> None:
    keys = spark.range(10).select(F.col("id").cast("string").alias("key"))
    both = with_slot(keys, RangeMap(key_hash=MURMUR3_32)).withColumn(
        "bucket", bucket_hash(F.col("key"), key_hash=MURMUR3_32)
    )
    assert 1 == plan_of(both).count("ArrowEvalPython")


def test_the_column_form_works_in_a_group_by(spark: "SparkSession") -> None:
    ring = HashRing.pulsar(["a", "b"])
    counts = frame_of(spark, TEXTS).groupBy(slot(F.col("key"), ring)).count().collect()
    assert Counter(map(ring.ranges.slot_of, TEXTS)) == {row.slot: row["count"] for row in counts}


@pytest.mark.parametrize("key_hash", [XXH64_SEED_42, MURMUR3_32], ids=name_of)
def test_the_column_form_fails_the_job_of_another_type(spark: "SparkSession", key_hash: KeyHash) -> None:
    frame = spark.range(1).select(slot(F.col("id"), RangeMap(key_hash=key_hash)))
    with pytest.raises(JOB_FAILED, match="the key must be string or binary, it is bigint"):
        frame.collect()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"key": "nope"}, r"'nope'; it must be a column of the frame \(key, n\)"),
        ({"key": "n"}, "key column is 'n'; it must be string or binary, and it is int"),
        ({"into": "N"}, "into is 'N'; it must be the name of a new column, none of key, n"),
        ({"into": ""}, "into is ''; it must be the name of a new column"),
        ({"placement": "ring"}, "placement is 'ring'; it must be a RangeMap"),
    ],
)
def test_what_cannot_work_is_refused_before_any_job(spark: "SparkSession", options: dict[str, str], told: str) -> None:
    frame = spark.createDataFrame([("a", 1)], "key string, n int")
    with pytest.raises(ArgumentError, match=told):
        with_slot(frame, **{"placement": RangeMap(), **options})  # type: ignore[arg-type]  # that is the mistake


@pytest.mark.parametrize("key_hash", [PULSAR_RING, "murmur3"])
def test_a_hash_of_less_than_32_bits_has_no_bucket_half(spark: "SparkSession", key_hash: KeyHash) -> None:
    with pytest.raises(ArgumentError, match="be a KeyHash of at least 32 bits"):
        spark.range(1).select(bucket_hash(F.lit("a"), key_hash=key_hash))


class Counting:
    """A hash that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, key: bytes) -> int:
        self.asked += 1
        return MURMUR3_32.function(key)


KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int8(), pa.string())]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_batch_is_hashed_whatever_holds_its_keys_each_key_once(kind: pa.DataType) -> None:
    counting = Counting()
    keys = ["a", None, "é", "a", "", None, "a"]
    found = hashed_once(pa.array(keys, kind), KeyHash("counting", 32, counting), 16, None)
    assert [None if key is None else MURMUR3_32.slot(key.encode(), 16) for key in keys] == found.to_pylist()
    assert pa.int64() == found.type
    assert 3 == counting.asked


@pytest.mark.parametrize("keys", [[], [None], [None] * 3])
def test_a_batch_without_keys_is_hashed_to_nulls(keys: list[None]) -> None:
    assert keys == hashed_once(pa.array(keys, pa.string()), MURMUR3_32, 16, 0xFF).to_pylist()


def test_a_slice_of_a_batch_is_hashed_by_itself() -> None:
    counting = Counting()
    found = hashed_once(pa.array(["x", "a", "b", "y"])[1:3], KeyHash("counting", 32, counting), 32, 0xFFFF)
    assert [key_halves("a", MURMUR3_32).bucket, key_halves("b", MURMUR3_32).bucket] == found.to_pylist()
    assert 2 == counting.asked
