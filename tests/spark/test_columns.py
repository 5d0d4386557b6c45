"""Owner, slot and bucket as a Spark column are those of Python, for every kind of key, hash and shape of map."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.keys import SOME_BYTES, SOME_TEXTS, random_bytes, random_texts

from keyshared.buckets import BucketLayout, BucketPlacement, key_halves
from keyshared.errors import ArgumentError
from keyshared.hashing import MURMUR3_32, PULSAR_RING, XXH64_SEED_42, KeyHash
from keyshared.placement import RangeMap
from keyshared.ring import HashRing

pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark")
from py4j.protocol import Py4JJavaError  # noqa: E402 - needs pyspark
from pyspark.errors import PySparkException  # noqa: E402 - needs pyspark
from pyspark.sql import Column  # noqa: E402 - needs pyspark
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.spark import columns as ks  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SHAPES = [(1, 2), (4, 7), (15, 300), (16, 2), (16, 1_000), (17, 1_000), (24, 5_000), (32, 1), (32, 3_000)]
KEYS: dict[str, list[Any]] = {
    "string": [None, *SOME_TEXTS, *random_texts(1_000)],
    "binary": [None, *SOME_BYTES, *random_bytes(1_000)],
}
JOB_FAILED = (PySparkException, Py4JJavaError)


def random_map(slot_bits: int, runs: int, *, seed: int = 0) -> RangeMap:
    rng = Random(seed)
    stops = sorted(rng.sample(range(1, 1 << slot_bits), runs - 1))
    names = [None, 'c"1', "c,2", "größe", *(f"c{i}" for i in range(20))]
    return RangeMap.from_stops([*stops, 1 << slot_bits], [rng.choice(names) for _ in range(runs)], slot_bits=slot_bits)


def wrong(value: object) -> Any:
    """An argument that the type checker would refuse."""
    return value


def values(spark: "SparkSession", kind: str, columns: dict[str, Column]) -> dict[str, list[object]]:
    """The values of each column for all keys of a kind, in one job."""
    frame = spark.createDataFrame([(key,) for key in KEYS[kind]], f"key {kind}").repartition(1)
    rows = frame.withColumns(columns).collect()
    assert [row.key for row in rows] == KEYS[kind]
    return {name: [row[name] for row in rows] for name in columns}


def by_python(kind: str, of_key: Callable[[Any], object]) -> list[object]:
    return [None if key is None else of_key(key) for key in KEYS[kind]]


@pytest.mark.parametrize("kind", KEYS)
def test_owners_and_slots_are_those_of_python_for_every_shape_of_map(spark: "SparkSession", kind: str) -> None:
    maps = {f"{runs} runs of {bits} bits": random_map(bits, runs) for bits, runs in SHAPES}
    maps |= {"ring": HashRing(["ann", "bob"]).ranges, "no owners": RangeMap()}
    found = values(spark, kind, {name: ks.owner(ranges) for name, ranges in maps.items()})
    assert found == {name: by_python(kind, ranges.owner_of) for name, ranges in maps.items()}
    found = values(spark, kind, {name: ks.slot(ranges, "key") for name, ranges in maps.items()})
    assert found == {name: by_python(kind, ranges.slot_of) for name, ranges in maps.items()}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("key_hash", [XXH64_SEED_42, MURMUR3_32], ids=lambda one: one.name)
def test_buckets_are_those_of_python_for_every_hash(spark: "SparkSession", kind: str, key_hash: KeyHash) -> None:
    layout = BucketLayout.equal_width(37)
    placement = BucketPlacement(layout, ["ann", "bob", "eve"])
    ring = HashRing.pulsar(["ann", "bob"])  # its hash is never native
    found = values(
        spark,
        kind,
        {
            "hash": ks.bucket_hash(key_hash=key_hash),
            "bucket": ks.bucket(layout, F.col("key"), key_hash=key_hash),
            "owner": ks.bucket_owner(placement, key_hash=key_hash),
            "pulsar": ks.owner(ring),
        },
    )
    halves = [None if key is None else key_halves(key, key_hash).bucket for key in KEYS[kind]]
    assert found["hash"] == halves
    assert found["bucket"] == [None if half is None else layout.bucket_of(half) for half in halves]
    assert found["owner"] == [None if half is None else placement.ranges.owner(half) for half in halves]
    assert found["pulsar"] == by_python(kind, ring.ranges.owner_of)


def test_every_boundary_is_on_the_right_side(spark: "SparkSession") -> None:
    slots = spark.range(1 << 16).select((F.col("id") * (1 << 4) + F.col("id") % 16).alias("slot"))
    ranges = RangeMap.from_stops([1, 2, 15, 16, 17, 4096, 4111, 1 << 20], [*"abcdefg", None], slot_bits=20)
    rows = slots.select("slot", ks.owner_number(F.col("slot"), ranges).alias("number")).collect()
    owners = [None if row.number is None else ranges.owners[row.number] for row in rows]
    assert owners == [ranges.owner(row.slot) for row in rows]


def test_bytes_that_are_no_text_are_hashed_as_they_are(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(key,) for key in SOME_BYTES], "key binary").selectExpr("cast(key as string) as key")
    ring = HashRing.pulsar(["ann", "bob"])
    rows = frame.select(ks.slot(ring), ks.slot(RangeMap()).alias("native")).collect()
    assert [tuple(row) for row in rows] == [(ring.ranges.slot_of(key), RangeMap().slot_of(key)) for key in SOME_BYTES]


@pytest.mark.parametrize("slot_bits", [16, 32])
def test_the_default_hash_is_native_and_everything_is_compiled(spark: "SparkSession", slot_bits: int) -> None:
    frame = spark.range(10).select(F.col("id").cast("string").alias("key"))
    plan = frame.select(ks.owner(random_map(slot_bits, 100)))._jdf.queryExecution().executedPlan().toString()
    operators = [line.lstrip("+- ")[:12] for line in plan.splitlines() if line]
    assert all(operator.startswith("*(1)") for operator in operators), operators
    assert "Python" not in plan


def test_another_hash_runs_in_python_once_for_each_different_key(spark: "SparkSession") -> None:
    plan = spark.range(1).selectExpr("'a' as key").select(ks.bucket_hash(key_hash=MURMUR3_32))._jdf.queryExecution()
    assert "keyshared_murmur3" in plan.executedPlan().toString()
    asked: list[bytes] = []

    def length(key: bytes) -> int:
        asked.append(key)
        return len(key)

    counting = KeyHash("counting", 32, length)
    hashed = ks.hashed_once(pd.Series([b"a", None, b"bcd", b"a"], dtype=object), counting, 32)
    assert (asked, hashed.tolist()) == ([b"a", b"bcd"], [1, pd.NA, 3, 1])
    assert ks.hashed_once(pd.Series([None], dtype=object), counting, 32).isna().all()


def test_the_key_may_be_a_field_of_a_struct(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(("k",),)], "event struct<Key: string>")
    ranges = random_map(16, 500)
    assert [ranges.owner_of("k")] == [
        row.owner for row in frame.withColumn("owner", ks.owner(ranges, "event.key")).collect()
    ]


@pytest.mark.parametrize("kind", ["bigint", "double", "date"])
@pytest.mark.parametrize("placement", [RangeMap(), HashRing.pulsar(["a"])], ids=["native", "pandas"])
def test_a_key_that_is_not_string_or_binary_fails_the_job(spark: "SparkSession", kind: str, placement: Any) -> None:
    frame = spark.sql(
        f"select cast('2024-01-01' as {kind}) as key" if kind == "date" else f"select cast(1 as {kind}) as key"
    )
    with pytest.raises(JOB_FAILED, match=f"the key must be string or binary, and it is {kind}"):
        frame.select(ks.owner(placement)).collect()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ks.owner(wrong("ann")), "placement is 'ann'; it must be a RangeMap, or have one as its ranges"),
        (lambda: ks.slot(RangeMap(), wrong(7)), "column is 7; it must be a Column, or the name of one"),
        (lambda: ks.bucket_owner(RangeMap()), "key_hash of the placement .* for any other placement use owner"),
        (lambda: ks.bucket_hash(key_hash=PULSAR_RING), "key_hash .* it must be a KeyHash of at least 32 bits"),
        (lambda: ks.bucket(wrong(7)), "layout is 7"),
        (
            lambda: ks.owner(RangeMap.from_stops([*range(1, 70), 1 << 32], [*"ab" * 35], slot_bits=32)),
            "so crowded that .* start in one.*have at most 64 runs",
        ),
    ],
)
def test_a_wrong_argument_is_refused_before_any_job(call: Callable[[], object], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        call()


def test_a_directory_that_is_one_run_late_is_caught(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    right = ks._directory
    monkeypatch.setattr(ks, "_directory", lambda *given: [max(0, run - 1) for run in right(*given)])
    ranges = random_map(16, 300)
    assert values(spark, "string", {"owner": ks.owner(ranges)})["owner"] != by_python("string", ranges.owner_of)
