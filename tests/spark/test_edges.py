"""Keys of every kind, and frames from everywhere, come through every job."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.errors import ArgumentError
from keyshared.ring import HashRing
from keyshared.simulate import Fixed, Group, SimulatedConsumer
from keyshared.testing import Guarantees

pyspark = pytest.importorskip("pyspark")
import pandas as pd  # noqa: E402 - comes with pyspark's extra
import pyarrow as pa  # noqa: E402 - likewise

from keyshared import spark as ks  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RING = HashRing(["ann", "bob"])
PLAN = Group(consumers=[SimulatedConsumer("ann", Fixed(1)), SimulatedConsumer("bob", Fixed(1))])
TEXTS = ["", " ", "é", "e\u0301", "日本語", "🙂", "\x00", "x" * 1_000_000]
BLOBS = [b"", b"\x00", b"\xff\xfe", bytes(range(256)), b"\xff" * 1_000_000]


def as_bytes(key: Any) -> bytes | None:
    return key.encode() if isinstance(key, str) else None if key is None else bytes(key)


@pytest.mark.parametrize("keys", [TEXTS, BLOBS], ids=["texts", "bytes"])
def test_keys_of_every_kind_come_through_every_job(spark: "SparkSession", keys: list[str] | list[bytes]) -> None:
    kind = "string" if isinstance(keys[0], str) else "binary"
    every = [*keys, None, *keys, None]
    rows = [("t", offset, key, offset) for offset, key in enumerate(every)]
    log = spark.createDataFrame(rows, f"topic_partition string, offset long, key {kind}, at_ms long").repartition(3)
    expected = {offset: as_bytes(key) for offset, key in enumerate(every)}

    placed = ks.colocate(log, RING).select("offset", "key", "owner").collect()
    assert expected == {row.offset: as_bytes(row.key) for row in placed}
    assert {offset: None if key is None else RING.ranges.owner_of(key) for offset, key in expected.items()} == {
        row.offset: row.owner for row in placed
    }
    with ks.replay(log, PLAN) as replayed:
        delivered = replayed.deliveries.select("offset", "key").collect()
    assert expected == {row.offset: as_bytes(row.key) for row in delivered}
    with ks.what_if(log, {"two": PLAN}, hottest=20) as compared:
        [summary] = compared.summaries.select("keys", "keyless", "hottest_keys").collect()
    assert (len(keys), 2) == (summary["keys"], summary.keyless)
    assert {as_bytes(key): 2 for key in keys} == {as_bytes(hot.key): hot.messages for hot in summary.hottest_keys}


@pytest.mark.parametrize("keys", [TEXTS, BLOBS], ids=["texts", "bytes"])
def test_an_audit_names_keys_of_every_kind(spark: "SparkSession", keys: list[str] | list[bytes]) -> None:
    """Of each key two messages are out at two consumers at once; a message without a key is a lane of its own."""
    kind = "string" if isinstance(keys[0], str) else "binary"
    every = [*keys, None, *keys, None]
    published: list[Any] = [("published", offset, key, None) for offset, key in enumerate(every)]
    delivered = [("delivered", offset, key, f"c{offset // (len(keys) + 1)}") for offset, key in enumerate(every)]
    rows = [("t", sequence, 1, *row) for sequence, row in enumerate(published + delivered)]
    columns = (
        f"topic_partition string, sequence int, version int, happening string, offset int, key {kind}, consumer string"
    )
    with ks.audit(spark.createDataFrame(rows, columns), Guarantees(promises={"one-holder"})) as audited:
        found = audited.violations.select("key").collect()
    assert sorted(map(as_bytes, keys), key=repr) == sorted((as_bytes(row.key) for row in found), key=repr)


def of_numbers(spark: "SparkSession") -> "DataFrame":
    return spark.range(3).selectExpr(
        "id as key", "'t' as topic_partition", "id as offset", "id as at_ms", "id as sequence", "1 as version",
        "'published' as happening",
    )  # fmt: skip


PLACEMENT = BucketPlacement(BucketLayout.equal_width(4), ["ann"])
JOBS: dict[str, Callable[["DataFrame"], object]] = {
    "with_slot": lambda log: ks.with_slot(log, RING),
    "with_owner": lambda log: ks.with_owner(log, RING),
    "with_bucket": lambda log: ks.with_bucket(log, BucketLayout.equal_width(4)),
    "with_bucket_owner": lambda log: ks.with_bucket_owner(log, PLACEMENT),
    "colocate": lambda log: ks.colocate(log, RING),
    "colocate by key": ks.colocate,
    "key_histogram": ks.key_histogram,
    "replay": lambda log: ks.replay(log, PLAN),
    "what_if": lambda log: ks.what_if(log, {"two": PLAN}),
    "audit": ks.audit,
}


@pytest.mark.parametrize("job", JOBS)
def test_a_number_is_no_key_of_any_job(spark: "SparkSession", job: str) -> None:
    with pytest.raises(ArgumentError, match=r"key.*(string|binary).*(bigint|long)"):
        JOBS[job](of_numbers(spark))


@pytest.mark.parametrize("job", sorted({*JOBS} - {"audit"}))  # columns of a history that may be null may be missing
def test_a_missing_key_column_is_missed_by_every_job(spark: "SparkSession", job: str) -> None:
    with pytest.raises(ArgumentError, match="'key'; it must be a column of the frame"):
        JOBS[job](of_numbers(spark).drop("key"))


@pytest.mark.parametrize("kind", ["rdd", "large_string", "binary", "categories"])
def test_frames_from_rdds_arrow_and_pandas_have_the_same_owners(spark: "SparkSession", kind: str) -> None:
    keys = ["é", None, "order-1", "é", ""]
    if kind == "rdd":  # what a list of rows becomes outside these tests
        frame = spark.createDataFrame(spark.sparkContext.parallelize([(key,) for key in keys]), "key string")
    elif kind == "categories":
        frame = spark.createDataFrame(pd.DataFrame({"key": pd.Categorical(keys)}), "key string")
    else:
        given = keys if kind == "large_string" else [as_bytes(key) for key in keys]
        frame = spark.createDataFrame(pa.table({"key": pa.array(given, getattr(pa, kind)())}))
    owners = [row.owner for row in ks.with_owner(frame, HashRing.pulsar(["ann", "bob"])).collect()]
    says = HashRing.pulsar(["ann", "bob"]).ranges
    assert [None if key is None else says.owner_of(key) for key in keys] == owners
