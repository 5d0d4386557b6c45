"""The owner as a Spark expression is the owner in Python, for every kind of key and every shape of map."""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from tests.spark.keys import SOME_BYTES, SOME_TEXTS, random_bytes, random_texts

from keyshared.errors import ArgumentError
from keyshared.placement import AssignedRanges, AutoSplit, HashRange, Placement, RangeMap
from keyshared.ring import HashRing

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark
from tests.spark.since import COLLATIONS, JOB_FAILED, only_since  # noqa: E402 - needs pyspark

from keyshared.spark.columns.owners import owner, owner_number, with_owner  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SHAPES = [(1, 2), (4, 7), (15, 300), (16, 2), (16, 1_000), (17, 1_000), (24, 5_000), (32, 1), (32, 3_000)]


def random_map(slot_bits: int, runs: int, *, seed: int = 0) -> RangeMap:
    rng = Random(seed)
    stops = sorted(rng.sample(range(1, 1 << slot_bits), runs - 1))
    names = [None, 'c"1', "c,2", "größe", *(f"c{i}" for i in range(20))]
    return RangeMap.from_stops([*stops, 1 << slot_bits], [rng.choice(names) for _ in range(runs)], slot_bits=slot_bits)


def owners_of(frame: "DataFrame", placements: Mapping[str, RangeMap | Placement]) -> dict[str, list[str | None]]:
    """The owner of each key in each placement, in one job."""
    for name, placement in placements.items():
        frame = with_owner(frame, placement, into=name)
    rows = frame.collect()
    return {name: [row[name] for row in rows] for name in placements}


def test_owner_of_a_text_key_is_the_one_of_python_for_every_shape_of_map(spark: "SparkSession") -> None:
    maps = {f"{runs} runs of {bits} bits": random_map(bits, runs) for bits, runs in SHAPES}
    keys = [*SOME_TEXTS, *random_texts(2_000)]
    found = owners_of(spark.createDataFrame([(key,) for key in keys], "key string"), maps)
    assert {name: [ranges.owner_of(key) for key in keys] for name, ranges in maps.items()} == found


def test_owner_of_a_binary_key_is_the_one_of_python_for_every_shape_of_map(spark: "SparkSession") -> None:
    maps = {f"{runs} runs of {bits} bits": random_map(bits, runs, seed=1) for bits, runs in SHAPES}
    keys = [*SOME_BYTES, *random_bytes(2_000)]
    found = owners_of(spark.createDataFrame([(key,) for key in keys], "key binary"), maps)
    assert {name: [ranges.owner_of(key) for key in keys] for name, ranges in maps.items()} == found


def test_a_column_of_owners_is_added_and_no_key_is_changed(spark: "SparkSession") -> None:
    keys = [*SOME_TEXTS, *random_texts(50)]
    ranges = random_map(16, 300)
    rows = with_owner(spark.createDataFrame([(key,) for key in keys], "key string"), ranges).collect()
    assert [(key, ranges.owner_of(key)) for key in keys] == [tuple(row) for row in rows]


def test_every_boundary_is_on_the_right_side(spark: "SparkSession") -> None:
    slots = spark.range(1 << 16).select((F.col("id") * (1 << 4) + F.col("id") % 16).alias("slot"))
    ranges = RangeMap.from_stops([1, 2, 15, 16, 17, 4096, 4111, 1 << 20], [*"abcdefg", None], slot_bits=20)
    numbers = slots.select("slot", owner_number(F.col("slot"), ranges).alias("number")).collect()
    wrong = [
        row.slot
        for row in numbers
        if ranges.owner(row.slot) != (None if row.number is None else ranges.owners[row.number])
    ]
    assert [] == wrong


def test_a_row_without_a_key_has_no_owner(spark: "SparkSession") -> None:
    ranges = RangeMap.from_stops([1 << 16], ["everything"])
    rows = with_owner(spark.createDataFrame([(None,), ("",)], "key string"), ranges).collect()
    assert [(None, None), ("", "everything")] == [tuple(row) for row in rows]


def test_a_map_of_holes_gives_no_owner(spark: "SparkSession") -> None:
    rows = with_owner(spark.createDataFrame([("a",)], "key string"), RangeMap()).collect()
    assert [None] == [row.owner for row in rows]


def test_the_key_may_be_a_field_of_a_struct_and_the_column_have_any_name(spark: "SparkSession") -> None:
    ranges = random_map(16, 500)
    frame = spark.createDataFrame([(("k",),)], "event struct<Key: string>")
    assert [ranges.owner_of("k")] == [
        row.who for row in with_owner(frame, ranges, key="event.key", into="who").collect()
    ]
    # to Spark these are two names
    frame = with_owner(spark.createDataFrame([("k",)], ["straße"]), ranges, key="STRAßE", into="strasse")
    assert ("k", *[ranges.owner_of("k")] * 2) == tuple(with_owner(frame, ranges, key="straße").first() or ())


def test_the_column_form_works_in_a_group_by(spark: "SparkSession") -> None:
    ranges = RangeMap.from_stops([1 << 15, 1 << 16], ["a", "b"])
    keys = random_texts(500)
    counts = (
        spark.createDataFrame([(k,) for k in keys], "k string").groupBy(owner(F.col("k"), ranges)).count().collect()
    )
    owners = [ranges.owner_of(k) for k in keys]
    assert {"a": owners.count("a"), "b": owners.count("b")} == {row.owner: row["count"] for row in counts}


@pytest.mark.parametrize("slot_bits", [16, 32])
def test_no_row_passes_through_python_and_everything_is_compiled(spark: "SparkSession", slot_bits: int) -> None:
    frame = with_owner(spark.range(10).select(F.col("id").cast("string").alias("key")), random_map(slot_bits, 100))
    plan = frame._jdf.queryExecution().executedPlan().toString()
    operators = [line.lstrip("+- ")[:12] for line in plan.splitlines() if line]
    assert all(operator.startswith("*(1)") for operator in operators), operators
    assert "Python" not in plan


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("long", "bigint"),
        ("double", "double"),
        pytest.param("string collate UTF8_LCASE", "string collate UTF8_LCASE", marks=only_since(COLLATIONS)),
    ],
)
def test_a_key_that_is_not_hashed_as_bytes_is_refused_before_any_job(
    spark: "SparkSession", kind: str, shown: str
) -> None:
    frame = spark.sql(f"select cast('1' as {kind}) as key")
    with pytest.raises(ArgumentError, match=f"'key'; it must be string or binary, and it is {shown}; cast it"):
        with_owner(frame, RangeMap())


def test_a_missing_key_column_is_refused(spark: "SparkSession") -> None:
    with pytest.raises(ArgumentError, match=r"'nope'; it must be a column of the frame \(id\)"):
        with_owner(spark.range(1), RangeMap(), key="nope")


def test_the_column_form_fails_the_job_of_another_type(spark: "SparkSession") -> None:
    with pytest.raises(JOB_FAILED, match="the key must be string or binary, it is bigint"):
        spark.range(1).select(owner(F.col("id"), RangeMap())).collect()


@pytest.mark.parametrize("into", ["", "key", "Other"])
def test_an_existing_column_is_not_overwritten(spark: "SparkSession", into: str) -> None:
    frame = spark.createDataFrame([("a", 1)], "key string, other int")
    with pytest.raises(ArgumentError, match="be the name of a new column, none of key, other"):
        with_owner(frame, RangeMap(), into=into)


def pulsar_ring() -> Placement:
    return HashRing.pulsar(["a", "b", "c"])


def danube_ring() -> Placement:
    return HashRing.danube(["1", "2", "3"])


def pulsar_splits() -> Placement:
    return AutoSplit.pulsar(["a", "b", "c"])


def celeriant_ranges() -> Placement:
    return AssignedRanges.celeriant([(HashRange(0, 20_000), "a"), (HashRange(30_000, 65_536), "b")])


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_a_placement_of_another_broker_answers_as_in_python(spark: "SparkSession", kind: str) -> None:
    placements = {build.__name__: build() for build in (pulsar_ring, danube_ring, pulsar_splits, celeriant_ranges)}
    keys: list[str | bytes] = [*SOME_TEXTS, *random_texts(500)]
    if kind == "binary":
        keys = [*SOME_BYTES, *random_bytes(500)]
    found = owners_of(spark.createDataFrame([(key,) for key in keys] + [(None,)], f"key {kind}"), placements)
    assert {name: [*map(placement.ranges.owner_of, keys), None] for name, placement in placements.items()} == found
    for name, placement in placements.items():
        assert {*placement.ranges.owners} <= {*found[name]}


def test_a_hash_that_spark_lacks_is_computed_in_python_and_the_plan_says_so(spark: "SparkSession") -> None:
    frame = with_owner(spark.range(10).select(F.col("id").cast("string").alias("key")), pulsar_ring())
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert 1 == plan.count("ArrowEvalPython [keyshared_pulsar_ring_65536(")


@pytest.mark.parametrize("build", [pulsar_ring, lambda: HashRing(["a", "b", "c"])], ids=["Arrow", "native"])
def test_a_stream_has_owners_as_well(spark: "SparkSession", tmp_path: Path, build: Callable[[], Placement]) -> None:
    placement = build()
    keys = [f"order-{number}" for number in range(50)]
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "first.txt").write_text("\n".join(keys))
    log = spark.readStream.text(str(tmp_path / "log")).withColumnRenamed("value", "key")
    query = (
        with_owner(log, placement)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "owned"))
    )
    query.awaitTermination()
    owned = spark.read.parquet(str(tmp_path / "owned")).collect()
    assert {key: placement.ranges.owner_of(key) for key in keys} == {row.key: row.owner for row in owned}


def test_a_builder_of_placements_is_taken_as_it_stands_now(spark: "SparkSession") -> None:
    ring = HashRing(["a", "b", "c"])
    keys = random_texts(300)
    frame = with_owner(spark.createDataFrame([(key,) for key in keys], "key string"), ring)
    before = [ring.ranges.owner_of(key) for key in keys]
    ring.add("d")
    assert before == [row.owner for row in frame.collect()]


def test_something_else_than_a_map_is_refused(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([("a",)], "key string")
    with pytest.raises(ArgumentError, match="placement is 'a'; it must be a RangeMap"):
        with_owner(frame, "a")  # type: ignore[arg-type]  # that is the mistake


def test_a_map_too_crowded_for_an_expression_is_refused(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([("a",)], "key string")
    crowded = RangeMap.from_stops([*range(1, 100), 1 << 32], [*"ab" * 49, "a", "b"], slot_bits=32)
    with pytest.raises(ArgumentError, match="at most 64 runs starting within one 65536th"):
        with_owner(frame, crowded)
