"""The plain iterator functions say what the native columns say, for the same rows."""

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.buckets import BucketLayout, BucketPlacement, key_halves
from keyshared.distribution import DistributionTree
from keyshared.errors import ArgumentError, KeyTypeError
from keyshared.hashing import MURMUR3_32, PULSAR_RING, XXH64_SEED_42
from keyshared.placement import RangeMap
from keyshared.ring import HashRing

pyspark = pytest.importorskip("pyspark")

from keyshared.spark.columns.buckets import with_bucket, with_bucket_owner  # noqa: E402 - needs pyspark
from keyshared.spark.columns.copies import with_copy_due  # noqa: E402 - needs pyspark
from keyshared.spark.columns.iterators import (  # noqa: E402 - needs pyspark
    bucket_owner_partition,
    bucket_partition,
    copies_partition,
    owner_partition,
    slot_partition,
)
from keyshared.spark.columns.owners import with_owner  # noqa: E402 - needs pyspark
from keyshared.spark.columns.slots import with_slot  # noqa: E402 - needs pyspark
from keyshared.spark.keystats.counting import histogram_of, histogram_partition  # noqa: E402 - needs pyspark
from keyshared.spark.keystats.histogram import collect_histogram, key_histogram  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RING = HashRing(["ann", "bob"])
LAYOUT = BucketLayout.equal_width(64)
PLACEMENT = BucketPlacement(LAYOUT, ["ann", "bob"])
TREE = DistributionTree({3: [{1: ["c1", "c2"]}, {1: ["c3", "c4"]}]})
FUNCTIONS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "slot": partial(slot_partition, placement=RING),
    "owner": partial(owner_partition, placement=RING),
    "bucket": partial(bucket_partition, layout=LAYOUT),
    "bucket owner": partial(bucket_owner_partition, placement=PLACEMENT),
}


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_on_an_rdd_they_say_what_the_columns_say(spark: "SparkSession", kind: str) -> None:
    texts = ["", "a", "é", "order-1", None, "\x00", "x" * 1_000_000]
    keys = [key if key is None or kind == "string" else key.encode() for key in texts]
    log = spark.createDataFrame([(key, 1) for key in keys], f"key {kind}, flags int").repartition(2).cache()
    native = with_bucket_owner(with_slot(log, RING), PLACEMENT, into="bucket owner")
    columns = with_bucket(with_owner(native, RING), LAYOUT).select(*FUNCTIONS)
    found = {name: log.rdd.mapPartitions(function).map(_answer).collect() for name, function in FUNCTIONS.items()}
    expected = [row.asDict() for row in columns.collect()]
    log.unpersist()
    assert expected == [dict(zip(found, answers, strict=True)) for answers in zip(*found.values(), strict=True)]


def _answer(pair: tuple[object, object]) -> object:
    return pair[1]


def test_copies_are_those_of_the_column(spark: "SparkSession") -> None:
    flags = [None, *range(8)]
    due = with_copy_due(spark.createDataFrame([(each,) for each in flags], "flags int"), TREE, "c2").collect()
    plain = copies_partition([(each,) for each in flags], TREE, "c2", flags=0)
    assert [[(copy.target, copy.flags) for copy in row.copies] for row in due] == [
        [(copy.target, int(copy.flags)) for copy in copies] for _, copies in plain
    ]


def test_rows_are_read_one_by_one_and_given_back_as_they_are() -> None:
    read: list[int] = []

    def rows() -> Iterator[tuple[int, str]]:
        for number in range(100):
            read.append(number)
            yield number, f"k{number}"

    answers = owner_partition(rows(), RING, key=1)
    assert ((0, "k0"), RING.ranges.owner_of("k0")) == next(answers)
    assert [0] == read


def test_hashes_and_kinds_of_rows_and_keys_are_free() -> None:
    ring = HashRing.pulsar(["ann", "bob"])
    assert PULSAR_RING == ring.ranges.key_hash
    rows = [{"k": "é"}, {"k": "é".encode()}, {"k": bytearray("é".encode())}, {"k": None}]
    assert [ring.ranges.owner_of("é")] * 3 + [None] == [owner for _, owner in owner_partition(rows, ring, key="k")]
    bucket = key_halves("é", MURMUR3_32).bucket
    assert [LAYOUT.bucket_of(bucket)] == [
        found for _, found in bucket_partition(rows[:1], LAYOUT, key="k", key_hash=MURMUR3_32)
    ]
    assert [PLACEMENT.ranges.owner(bucket)] == [
        found for _, found in bucket_owner_partition(rows[:1], PLACEMENT, key="k", key_hash=MURMUR3_32)
    ]


def test_a_hole_has_no_owner() -> None:
    assert [(("k",), None)] == list(owner_partition([("k",)], RangeMap(), key=0))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: slot_partition([], "ann"), "placement is 'ann'; it must be a RangeMap"),  # type: ignore[arg-type]  # as above
        (lambda: owner_partition([], "ann"), "placement is 'ann'; it must be a RangeMap"),  # type: ignore[arg-type]  # as above
        (lambda: bucket_partition([], "layout"), "layout is 'layout'; it must be a BucketLayout"),  # type: ignore[arg-type]  # as above
        (lambda: bucket_partition([], LAYOUT, key_hash=PULSAR_RING), "be a KeyHash of at least 32 bits"),
        (lambda: bucket_owner_partition([], RING), "for any other placement use with_owner"),
        (lambda: bucket_owner_partition([], PLACEMENT, key_hash=PULSAR_RING), "be a KeyHash of at least 32 bits"),
        (lambda: copies_partition([], TREE, "c9"), "'c9'"),
        (lambda: list(histogram_partition([("a", -1)])), "weight is -1; it must be an int or a Fraction of at least 0"),
        (lambda: list(histogram_partition([("a", 1.5)])), "weight is 1.5; it must be an int or a Fraction"),  # type: ignore[list-item]  # that is the mistake
        (lambda: list(histogram_partition([("a", 1)], slots=PULSAR_RING)), "be a KeyHash of at least 32 bits"),
    ],
    ids=map(str, range(10)),
)
def test_what_cannot_be_done_is_said_at_once(call: Callable[[], object], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        call()


def test_a_number_is_no_key() -> None:
    with pytest.raises(KeyTypeError):
        list(owner_partition([(7,)], RING, key=0))


def test_flags_that_are_none_are_refused() -> None:
    with pytest.raises(ArgumentError):
        list(copies_partition([(-1,)], TREE, "c1", flags=0))


rows_of_keys = st.lists(st.tuples(st.sampled_from([None, "", "a", "b", "é", "c"]), st.integers(0, 3)), max_size=30)


@given(st.lists(rows_of_keys, max_size=4))
def test_counts_of_parts_are_the_counts_of_the_whole(parts: list[list[tuple[str | None, int]]]) -> None:
    whole = histogram_of(histogram_partition(row for part in parts for row in part))
    assert whole == histogram_of(count for part in parts for count in histogram_partition(part))
    messages = Counter(key for part in parts for key, _ in part)
    assert messages[None] == whole.keyless_messages
    keyed = {key: key_halves(key, XXH64_SEED_42).bucket for key in messages if key is not None}
    assert {
        slot: sum(messages[key] for key in keyed if keyed[key] == slot) for slot in keyed.values()
    } == whole.messages


@pytest.mark.parametrize("slots", [XXH64_SEED_42, RangeMap(slot_bits=2)], ids=["bucket hashes", "four slots"])
def test_the_histogram_of_an_rdd_is_the_one_of_a_frame(spark: "SparkSession", slots: Any) -> None:
    rows = [(None if number % 11 == 0 else f"k{number % 13}".encode(), number % 5) for number in range(200)]
    log = spark.createDataFrame(rows, "key binary, weight int").repartition(3)
    native = collect_histogram(key_histogram(log, weight="weight", slots=slots))
    assert native == histogram_of(log.rdd.mapPartitions(partial(histogram_partition, slots=slots)).collect())
    assert native.slots == histogram_of(histogram_partition(rows, slots=slots)).slots


def test_fractions_are_weights() -> None:
    [count] = histogram_partition([("a", Fraction(1, 3)), ("a", 1)])
    assert Fraction(4, 3) == count.weight
