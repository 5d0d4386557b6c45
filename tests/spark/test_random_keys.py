"""Every native expression is the Python object, for whatever keys, placements, layouts and trees Hypothesis thinks of.

A job for each example would take an hour. So Hypothesis draws first, all examples become one frame, and one job answers
for all of them; what fails is not shrunk, but the row that fails is shown.
"""

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.buckets import BucketLayout, BucketPlacement, key_halves
from keyshared.copyflags import CopyFlags
from keyshared.distribution import DistributionTree
from keyshared.hashing import MURMUR3_32, XXH64_SEED_42, KeyHash
from keyshared.placement import AutoSplit, RangeMap
from keyshared.ring import HashRing

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared import spark as ks  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_T = TypeVar("_T")

texts = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
blobs = st.one_of(st.none(), st.binary(max_size=40))
numbers = st.one_of(st.none(), st.integers(0, (1 << 63) - 1), st.integers(0, 15))
widths = st.sampled_from([1, 8, 16, 17, 24, 32])


@st.composite
def maps(draw: st.DrawFn) -> RangeMap:
    bits = draw(widths)
    stops = draw(st.lists(st.integers(1, (1 << bits) - 1), max_size=8, unique=True)) if bits > 1 else []
    owners = [draw(st.sampled_from(["ann", "bob", "é", None])) for _ in range(len(stops) + 1)]
    return RangeMap.from_stops([*sorted(stops), 1 << bits], owners, slot_bits=bits)


@st.composite
def layouts(draw: st.DrawFn) -> BucketLayout:
    return BucketLayout.from_splits(sorted(draw(st.sets(st.integers(2, 65_535), max_size=20))))


def together(strategy: st.SearchStrategy[_T]) -> list[_T]:
    """Lists of examples, as many as the profile says, put into one."""
    return list(chain.from_iterable(drawn(st.lists(strategy, max_size=20), 20_000)))


def drawn(strategy: st.SearchStrategy[_T], most: int) -> list[_T]:
    """What Hypothesis thinks of; of what would make the plan long only the last few."""
    found: list[_T] = []

    @given(strategy)
    def draw(value: _T) -> None:
        found.append(value)

    draw()
    return found[-most:]


def python_bucket(layout: BucketLayout, key_hash: KeyHash) -> Callable[[Any], int]:
    return lambda key: layout.bucket_of(key_halves(key, key_hash).bucket)


def python_bucket_owner(placement: BucketPlacement) -> Callable[[Any], str | None]:
    return lambda key: placement.ranges.owner(key_halves(key, XXH64_SEED_42).bucket)


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_columns_of_keys_are_what_python_says(spark: "SparkSession", kind: str) -> None:
    keys: list[Any] = together(texts) if kind == "string" else together(blobs)
    columns: dict[str, tuple[Any, Callable[[Any], Any]]] = {}
    key = F.col("key")
    placements = [HashRing(["ann", "bob", "eve"]).ranges, AutoSplit(["ann", "bob"]).ranges, *drawn(maps(), 4)]
    for number, ranges in enumerate(placements):
        columns[f"slot {number}"] = ks.slot(key, ranges), ranges.slot_of
        columns[f"owner {number}"] = ks.owner(key, ranges), ranges.owner_of
    for number, layout in enumerate(drawn(layouts(), 2)):
        columns[f"bucket {number}"] = ks.bucket(key, layout), python_bucket(layout, XXH64_SEED_42)
        columns[f"pulsar bucket {number}"] = (
            ks.bucket(key, layout, key_hash=MURMUR3_32),
            python_bucket(layout, MURMUR3_32),
        )
        placement = BucketPlacement(layout, ["ann", "bob"])
        columns[f"bucket owner {number}"] = ks.bucket_owner(key, placement), python_bucket_owner(placement)
    frame = spark.createDataFrame([(each,) for each in keys], f"key {kind}")
    rows = frame.select(*(column.alias(name) for name, (column, _) in columns.items())).collect()
    for name, (_, says) in columns.items():
        assert [None if each is None else says(each) for each in keys] == [row[name] for row in rows], name


def test_copies_are_what_python_says(spark: "SparkSession") -> None:
    flags = together(numbers)
    trees = [
        DistributionTree({1: ["c1", "c2"]}),
        DistributionTree({3: [{1: ["c1", "c2"]}, {2: ["c3", {1: ["c4", "c5"]}]}]}),
        DistributionTree({63: [{62: ["c1", "c2"]}, {7: ["c3", "c4"]}]}),
    ]
    columns = {
        f"{number} {cluster}": (ks.copies_due(F.col("flags"), tree, cluster), tree, cluster)
        for number, tree in enumerate(trees)
        for cluster in tree.clusters
    }
    frame = spark.createDataFrame([(each,) for each in flags], "flags long")
    rows = frame.select(*(column.alias(name) for name, (column, *_) in columns.items())).collect()
    for name, (_, tree, cluster) in columns.items():
        says = [
            [(copy.target, int(copy.flags)) for copy in tree.copies(cluster, CopyFlags(each or 0))] for each in flags
        ]
        assert says == [[(copy.target, copy.flags) for copy in row[name]] for row in rows], name
