"""Buckets and their owners as Spark expressions are those of Python, for every layout and hash."""

from random import Random
from typing import TYPE_CHECKING

import pytest
from tests.spark.keys import SOME_BYTES, SOME_TEXTS, random_bytes, random_texts

from keyshared.buckets import HASH_STOP, BucketLayout, BucketPlacement, key_halves
from keyshared.errors import ArgumentError
from keyshared.hashing import DANUBE_32, MURMUR3_32, PULSAR_RING, XXH64_SEED_42, KeyHash
from keyshared.ring import HashRing

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.spark.columns.buckets import bucket, bucket_owner, with_bucket, with_bucket_owner  # noqa: E402 - needs pyspark
from keyshared.spark.columns.owners import owner_of_slot, with_owner  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TEXTS = [*SOME_TEXTS, *random_texts(500)]
BYTES = [*SOME_BYTES, *random_bytes(500)]
LAYOUTS = {
    "one": BucketLayout.equal_width(1),
    "three": BucketLayout.equal_width(3),
    "1024": BucketLayout.equal_width(1024),
    "most": BucketLayout.equal_width(HASH_STOP // 2),
    "uneven": BucketLayout.from_splits(sorted(Random(3).sample(range(2, HASH_STOP), 200))),
    "edges": BucketLayout.from_splits([2, 3, HASH_STOP - 1]),
}
HASHES = [XXH64_SEED_42, MURMUR3_32, DANUBE_32]


@pytest.mark.parametrize(("keys", "kind"), [(TEXTS, "string"), (BYTES, "binary")], ids=["texts", "bytes"])
def test_the_bucket_of_a_key_is_the_one_of_python(
    spark: "SparkSession", keys: list[str] | list[bytes], kind: str
) -> None:
    frame = spark.createDataFrame([(key,) for key in keys], f"key {kind}")
    cases = {f"{name} by {one.name}": (layout, one) for name, layout in LAYOUTS.items() for one in HASHES}
    for name, (layout, key_hash) in cases.items():
        frame = with_bucket(frame, layout, key_hash=key_hash, into=name)
    rows = frame.collect()
    assert {
        name: [layout.bucket_of(key_halves(key, key_hash).bucket) for key in keys]
        for name, (layout, key_hash) in cases.items()
    } == {name: [row[name] for row in rows] for name in cases}


def test_every_bucket_hash_is_in_its_bucket(spark: "SparkSession") -> None:
    """Keys cannot be made for a given hash, so an identity stands in for one: all 65,536 in one batch of keys."""
    as_is = KeyHash("as-is", 32, lambda key: int.from_bytes(key, "big"))
    keys = spark.range(HASH_STOP).select("id", F.unhex(F.lpad(F.hex("id"), 8, "0")).alias("key"))
    numbers = {name: bucket(F.col("key"), layout, key_hash=as_is) for name, layout in LAYOUTS.items()}
    rows = keys.withColumns(numbers).drop("key").collect()
    found = dict(zip(["id", *numbers], zip(*rows, strict=True), strict=True))
    assert HASH_STOP == len(found["id"])
    for name, layout in LAYOUTS.items():
        assert tuple(map(layout.bucket_of, found["id"])) == found[name]


def test_the_owner_of_a_bucket_is_the_one_of_python_for_every_hash(spark: "SparkSession") -> None:
    placement = BucketPlacement(LAYOUTS["uneven"], {"ann": 2, "bob": 1, "größe": 1})
    placement.remove("bob")
    frame = spark.createDataFrame([*((key,) for key in TEXTS), (None,)], "key string")
    for key_hash in HASHES:
        frame = with_bucket_owner(frame, placement, into=key_hash.name, key_hash=key_hash)
    rows = frame.collect()
    assert {
        one.name: [*(placement.ranges.owner(key_halves(key, one).bucket) for key in TEXTS), None] for one in HASHES
    } == {one.name: [row[one.name] for row in rows] for one in HASHES}


def test_buckets_without_consumers_have_no_owner(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([("a",)], "key string")
    placement = BucketPlacement(LAYOUTS["three"])
    assert [None] == [row.owner for row in with_bucket_owner(frame, placement).collect()]


def test_entries_go_by_their_bucket_keys_with_the_placement_as_it_is(spark: "SparkSession") -> None:
    placement = BucketPlacement(LAYOUTS["1024"], ["a", "b", "c"])
    keys = [placement.layout.bucket_key(number) for number in range(1024)]
    rows = with_owner(spark.createDataFrame([(key,) for key in keys], "key binary"), placement).collect()
    assert [placement.owner(number) for number in range(1024)] == [row.owner for row in rows]


def test_keys_of_messages_are_not_taken_for_bucket_keys(spark: "SparkSession") -> None:
    frame = with_owner(spark.createDataFrame([("order-1",)], "key string"), BucketPlacement(LAYOUTS["three"], ["a"]))
    with pytest.raises(pyspark.errors.PythonException, match="it must be 2 bytes, as BucketLayout"):
        frame.collect()


def test_a_row_without_a_key_has_no_bucket(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(None,), ("",)], "key string")
    empty = LAYOUTS["1024"].bucket_of(key_halves("", XXH64_SEED_42).bucket)
    assert [None, empty] == [row.bucket for row in with_bucket(frame, LAYOUTS["1024"]).collect()]


def test_the_default_hash_is_compiled_and_no_row_passes_through_python(spark: "SparkSession") -> None:
    keys = spark.range(10).select(F.col("id").cast("string").alias("key"))
    frame = with_bucket(keys, LAYOUTS["1024"]).withColumn(
        "owner", bucket_owner(F.col("key"), BucketPlacement(LAYOUTS["1024"], ["a"]))
    )
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert all(line.lstrip("+- ").startswith("*(1)") for line in plan.splitlines() if line)
    assert "Python" not in plan


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"key": "nope"}, r"'nope'; it must be a column of the frame \(key, n\)"),
        ({"key": "n"}, "key column is 'n'; it must be string or binary, and it is int"),
        ({"into": "KEY"}, "into is 'KEY'; it must be the name of a new column"),
        ({"layout": 64}, "layout is 64; it must be a BucketLayout"),
        ({"key_hash": PULSAR_RING}, "be a KeyHash of at least 32 bits"),
    ],
)
def test_what_cannot_work_is_refused_before_any_job(
    spark: "SparkSession", options: dict[str, object], told: str
) -> None:
    frame = spark.createDataFrame([("a", 1)], "key string, n int")
    with pytest.raises(ArgumentError, match=told):
        with_bucket(frame, **{"layout": LAYOUTS["three"], **options})  # type: ignore[arg-type]  # that is the mistake


def test_a_placement_that_is_not_over_buckets_is_refused(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([("a", 1)], "key string, n int")
    with pytest.raises(ArgumentError, match="be bucket:16 with 16 bits; for any other placement use with_owner"):
        with_bucket_owner(frame, HashRing(["a"]))
    with pytest.raises(ArgumentError, match="key column is 'n'"):
        with_bucket_owner(frame, BucketPlacement(LAYOUTS["three"]), key="n")
    with pytest.raises(ArgumentError, match="into is 'n'"):
        with_bucket_owner(frame, BucketPlacement(LAYOUTS["three"]), into="n")


def test_the_owner_of_a_slot_is_looked_up_without_a_key(spark: "SparkSession") -> None:
    ranges = BucketPlacement(LAYOUTS["uneven"], ["a", "b"]).ranges
    rows = spark.range(HASH_STOP).select("id", owner_of_slot(F.col("id"), ranges).alias("owner")).collect()
    assert [] == [row.id for row in rows if row.owner != ranges.owner(row.id)]
