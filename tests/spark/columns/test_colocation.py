"""All messages of a consumer, or of a key, in one partition, in offset order, at the price of one shuffle and sort."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.spark.keys import SOME_BYTES, SOME_TEXTS
from tests.spark.settings import BATCH_ROWS, settings

from keyshared.buckets import BucketLayout, BucketPlacement, key_halves
from keyshared.errors import ArgumentError
from keyshared.hashing import MURMUR3_32
from keyshared.placement import RangeMap
from keyshared.ring import HashRing

pyspark = pytest.importorskip("pyspark")
import pyarrow as pa  # noqa: E402 - comes with pyspark's extra
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark
from tests.spark.since import JOB_FAILED  # noqa: E402 - needs pyspark

from keyshared.spark.columns.colocation import colocate  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "key {}, topic_partition string, offset long"
RING = HashRing(["ann", "bob", "eve"])


class Placed(NamedTuple):
    """A row, and the Spark partition in which it came out."""

    at: int
    owner: str | None
    key: str | bytes | None
    topic_partition: str
    offset: int


def shuffled(keys: list[str] | list[bytes], *, topic_partitions: int = 3, seed: int = 1) -> list[tuple[object, ...]]:
    rng = Random(seed)
    chosen = [rng.choice([None, *keys]) for _ in range(40 * topic_partitions)] + keys
    rows: list[tuple[object, ...]] = [
        (key, f"t-{index % topic_partitions}", index // topic_partitions) for index, key in enumerate(chosen)
    ]
    rng.shuffle(rows)
    return rows


def frame(spark: "SparkSession", rows: list[tuple[object, ...]], kind: str = "string") -> "DataFrame":
    return spark.createDataFrame(rows, SCHEMA.format(kind))


def collected(df: "DataFrame") -> list[Placed]:
    """In the order within each partition: collect() keeps it."""
    owner = "owner" if "owner" in df.columns else "cast(null as string) as owner"
    rows = df.withColumn("at", F.spark_partition_id()).selectExpr("at", owner, "key", "topic_partition", "offset")
    return [
        Placed(row[0], row[1], bytes(row[2]) if isinstance(row[2], bytearray) else row[2], row[3], row[4])
        for row in rows.collect()
    ]


def by_partition(rows: list[Placed]) -> dict[int, list[Placed]]:
    found: defaultdict[int, list[Placed]] = defaultdict(list)
    for row in rows:
        found[row.at].append(row)
    return found


def contents(rows: Iterable[tuple[object, ...]]) -> list[str]:
    return sorted(map(repr, rows))


def plan_of(df: "DataFrame") -> str:
    return str(df._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_each_owner_has_a_partition_of_its_own_and_what_nobody_owns_is_in_the_last(
    spark: "SparkSession", kind: str
) -> None:
    log = shuffled(SOME_TEXTS) if kind == "string" else shuffled(SOME_BYTES)
    rows = collected(colocate(frame(spark, log, kind).repartition(3), RING))
    assert contents(log) == contents(row[2:] for row in rows)
    assert all(row.owner == (None if row.key is None else RING.ranges.owner_of(row.key)) for row in rows)
    owners: list[str | None] = [*RING.ranges.owners, None]
    assert {*range(4)} == {row.at for row in rows}
    assert all(owners[row.at] == row.owner for row in rows)
    assert all([row[3:] for row in part] == sorted(row[3:] for row in part) for part in by_partition(rows).values())


def test_a_key_is_in_one_partition_in_order_and_messages_without_one_are_spread(spark: "SparkSession") -> None:
    log = shuffled([f"k{number}" for number in range(30)]) + [(None, "t-9", offset) for offset in range(40)]
    rows = collected(colocate(frame(spark, log), partitions=4))
    assert contents(log) == contents(row[2:] for row in rows)
    places: defaultdict[object, set[int]] = defaultdict(set)
    for row in rows:
        places[row.key].add(row.at)
    assert {*range(4)} == places.pop(None)
    assert {1} == {len(each) for each in places.values()}
    assert all([row[3:] for row in part] == sorted(row[3:] for row in part) for part in by_partition(rows).values())


def test_owners_that_share_a_partition_come_one_after_the_other(spark: "SparkSession") -> None:
    log = shuffled([f"k{number}" for number in range(30)])
    rows = collected(colocate(frame(spark, log), RING, partitions=2))
    owners: list[str | None] = [*RING.ranges.owners, None]
    assert contents(log) == contents(row[2:] for row in rows)
    assert {number: {row.owner for row in part} for number, part in by_partition(rows).items()} == {
        0: {owners[0], owners[2]},
        1: {owners[1], owners[3]},
    }
    order = {name: number for number, name in enumerate(owners)}
    for part in by_partition(rows).values():
        assert [(order[row.owner], *row[3:]) for row in part] == sorted((order[row.owner], *row[3:]) for row in part)


@pytest.mark.parametrize("arguments", [{"placement": RING}, {"partitions": 3}, {"placement": RING, "partitions": 2}])
def test_the_plan_has_one_exchange_and_one_sort_and_no_python(
    spark: "SparkSession", arguments: dict[str, object]
) -> None:
    plan = plan_of(colocate(frame(spark, shuffled(["a"])), **arguments))  # type: ignore[arg-type]  # one of three
    operators = [line.lstrip("+- :") for line in plan.splitlines()]
    assert 1 == sum(operator.startswith("Exchange") for operator in operators)
    assert 1 == sum(operator.startswith("Sort ") for operator in operators)
    assert "Python" not in plan


def test_a_consumer_is_read_as_a_stream_of_batches_in_order(spark: "SparkSession") -> None:
    """The way that docs/spark.md shows: a function for ``mapInArrow`` sees its consumer's rows batch by batch."""
    log = shuffled([f"k{number}" for number in range(30)])

    def watch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        owners: set[str | None] = set()
        sizes: list[int] = []
        places: list[tuple[str, int]] = []
        for batch in batches:
            sizes.append(batch.num_rows)
            owners.update(batch.column("owner").to_pylist())
            places += zip(batch.column("topic_partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
        told = {
            "owners": [len(owners)],
            "largest": [max(sizes)],
            "rows": [sum(sizes)],
            "sorted": [places == sorted(places)],
        }
        yield pa.RecordBatch.from_pydict(told)

    with settings(spark, {BATCH_ROWS: "5"}):
        schema = "owners long, largest long, rows long, sorted boolean"
        rows = colocate(frame(spark, log), RING).mapInArrow(watch, schema).collect()
    assert [(1, 5, True)] * 4 == [(row.owners, row.largest, row.sorted) for row in rows]
    assert len(log) == sum(row.rows for row in rows)


def test_a_consumer_with_almost_everything_and_one_with_nothing_change_nothing(spark: "SparkSession") -> None:
    ranges = RangeMap.from_stops([1, 65_535, 65_536], ["nothing", "all", "little"])
    log = shuffled([f"k{number}" for number in range(9)])
    rows = collected(colocate(frame(spark, log), ranges))
    assert contents(log) == contents(row[2:] for row in rows)
    assert {"all": {ranges.owners.index("all")}, None: {3}} == {
        owner: {row.at for row in rows if row.owner == owner} for owner in {row.owner for row in rows}
    }


def test_no_rows_give_no_rows(spark: "SparkSession") -> None:
    nothing = frame(spark, [("k", "t", 0)]).filter("offset > length(key)")
    assert [] == colocate(nothing, RING).collect()


def test_a_placement_of_another_hash_and_columns_within_structs_and_maps_are_taken(spark: "SparkSession") -> None:
    ring = HashRing.pulsar(["ann", "bob"])
    rows = [(({"user": f"k{number}"}, "p"), 9 - number) for number in range(10)]
    log = spark.createDataFrame(rows, "event struct<Headers: map<string, string>, shard: string>, pos int")
    placed = colocate(log, ring, key="event.headers.user", topic_partition="event.shard", offset="pos", into="who")
    found = placed.select("who", "pos").collect()
    assert [ring.ranges.owner_of(f"k{9 - row.pos}") for row in found] == [row.who for row in found]
    assert 10 == len(found)


def test_a_placement_of_nobody_puts_everything_into_one_partition(spark: "SparkSession") -> None:
    rows = collected(colocate(frame(spark, shuffled(["a"])), RangeMap()))
    assert {(0, None)} == {(row.at, row.owner) for row in rows}


@pytest.mark.parametrize("row", [("k", None, 1), ("k", "t", None)], ids=["topic_partition", "offset"])
def test_a_row_without_a_place_fails_the_job_and_is_named(
    spark: "SparkSession", request: pytest.FixtureRequest, row: tuple[object, ...]
) -> None:
    rows = [("k", "t", 0), row]
    told = f"column {request.node.callspec.id} must not be NULL in any row, and it is in"
    with pytest.raises(JOB_FAILED, match=told):
        colocate(frame(spark, rows), RING).collect()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"key": "nope"}, "'nope'; it must be a column of the frame"),
        ({"key": "offset"}, "'offset'; it must be string or binary, and it is bigint; cast it to string first"),
        ({"topic_partition": "offset"}, "'offset'; it must be string, and it is long"),
        ({"offset": "key"}, "'key'; it must be long or int or smallint or tinyint, and it is string"),
        ({"into": "key"}, "into is 'key'; it must be the name of a new column"),
        ({"into": "_Keyshared_place"}, "'_Keyshared_place'; it must not begin with _keyshared_, .* rename it first"),
        ({"partitions": 0}, "partitions is 0; it must be an int of at least 1, or None"),
        ({"placement": "ann"}, "placement is 'ann'; it must be a RangeMap"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_job(
    spark: "SparkSession", arguments: dict[str, object], told: str
) -> None:
    log = frame(spark, [("k", "t", 0)])
    with pytest.raises(ArgumentError, match=told):
        colocate(log, **{"placement": RING, **arguments})  # type: ignore[arg-type]  # that is the mistake


def test_a_stream_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    lines = spark.readStream.text(str(tmp_path))
    log = lines.selectExpr("value as key", "'t' as topic_partition", "1 as offset")
    with pytest.raises(ArgumentError, match="be batch, for Spark sorts no stream; colocate within foreachBatch"):
        colocate(log, RING)


def test_a_placement_of_buckets_takes_keys_of_messages_by_their_hash(spark: "SparkSession") -> None:
    placement = BucketPlacement(BucketLayout.equal_width(64), ["ann", "bob"])
    log = shuffled([f"k{number}" for number in range(9)])
    rows = collected(colocate(frame(spark, log), placement, key_hash=MURMUR3_32))
    assert [
        None if row.key is None else placement.ranges.owner(key_halves(row.key, MURMUR3_32).bucket) for row in rows
    ] == [row.owner for row in rows]
    with pytest.raises(ArgumentError, match="for any other placement use with_owner"):
        colocate(frame(spark, log), RING, key_hash=MURMUR3_32)
