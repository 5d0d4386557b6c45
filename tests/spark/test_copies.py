"""Copies as a Spark column are those of the tree in Python, for every value of the flags in every form."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from examples.clusters import __main__ as example
from tests.distribution.trees import BALANCED, UNBALANCED

from keyshared.copyflags import MAX_LEVEL, BigEndian, CopyFlags, FlagsHeader
from keyshared.distribution import DistributionTree
from keyshared.errors import ArgumentError

pytest.importorskip("pyspark")
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - needs pyspark

from keyshared.spark import copies as adapter
from keyshared.spark.copies import copies_due, flags_header

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TREES = {
    "balanced": DistributionTree(BALANCED),
    "unbalanced": DistributionTree(UNBALANCED),
    "wide": DistributionTree({9: [{8: ["1", "2", "3"]}, {5: ["4", {4: ["5", "6", "7", "8"]}]}, "9"]}),
    "levels handed out": DistributionTree([["1", ["2", "3"]], ["4", "5"]]),
    "highest of a number": DistributionTree({63: [{62: ["1", "2"]}, {1: ["3", "4"]}]}),
    "alone": DistributionTree("1"),
}
DEEP = DistributionTree({MAX_LEVEL: [{1_000: [{65: [{64: ["1", "2"]}, "3"]}, "4"]}, {17: ["5", "6"]}]})
KAFKA = "id int, headers array<struct<key: string, value: binary>>"
JOB_FAILED = (PySparkException, Py4JJavaError)


def by_python(tree: DistributionTree, cluster: str, flags: int | None) -> list[tuple[int, str, CopyFlags]]:
    return [
        (distributor.level, *copy)
        for distributor in tree.distributors(cluster)
        for copy in distributor.copies(CopyFlags(flags or 0))
    ]


def by_spark(
    spark: "SparkSession",
    tree: DistributionTree,
    clusters: Sequence[str],
    flags: Sequence[Any],
    codec: BigEndian | None = None,
) -> list[list[list[tuple[int, str, Any]]]]:
    """For each cluster the copies of each value."""
    kind = "binary" if any(isinstance(value, bytes) for value in flags) else "long"
    frame = spark.createDataFrame(list(enumerate(flags)), f"id long, flags {kind}").repartition(2)
    due = {f"at {cluster}": copies_due(tree, cluster, codec=codec) for cluster in clusters}
    rows = frame.withColumns(due).orderBy("id").collect()
    return [[[tuple(copy) for copy in row[f"at {cluster}"]] for row in rows] for cluster in clusters]


def some_flags(levels: int, count: int = 200) -> list[int]:
    """Sets of many, few, single and neighbouring levels."""
    rng = Random(levels)
    few = [sum({1 << rng.randrange(levels) for _ in range(rng.randrange(4))}) for _ in range(count)]
    single = [1 << level for level in range(levels)]
    return [0, *few, *single, *(2 * flags - 1 for flags in single), *(rng.getrandbits(levels) for _ in range(count))]


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_copies_of_numbers_are_those_of_python(spark: "SparkSession", tree: DistributionTree) -> None:
    flags = [None, *range(1 << 10), *some_flags(63)]
    expected = [[by_python(tree, cluster, value) for value in flags] for cluster in tree.clusters]
    assert expected == by_spark(spark, tree, tree.clusters, flags)


@pytest.mark.parametrize(
    ("tree", "clusters", "levels", "codec"),
    [
        (TREES["balanced"], TREES["balanced"].clusters[:4], 64, BigEndian()),
        (TREES["wide"], TREES["wide"].clusters[:4], 64, BigEndian(width=8)),
        (TREES["unbalanced"], TREES["unbalanced"].clusters, 64, BigEndian(width=11)),
        (DEEP, ("1", "6"), MAX_LEVEL, BigEndian()),
        (DEEP, ("1", "6"), MAX_LEVEL, BigEndian(width=MAX_LEVEL // 8)),
    ],
)
def test_copies_of_headers_are_those_of_python(
    spark: "SparkSession", tree: DistributionTree, clusters: Sequence[str], levels: int, codec: BigEndian
) -> None:
    numbers = [*range(1 << 8), *some_flags(levels, 100)]
    expected = [
        [
            [(level, target, codec.encode(flags)) for level, target, flags in by_python(tree, cluster, number)]
            for number in [None, *numbers]
        ]
        for cluster in clusters
    ]
    assert expected == by_spark(spark, tree, clusters, [None, *(codec.encode(CopyFlags(n)) for n in numbers)], codec)


def test_leading_zeros_of_a_header_are_not_copied_and_ints_are_numbers(spark: "SparkSession") -> None:
    copies = [(2, "1", b"\x06"), (1, "2", b"\x05")]
    assert [[copies]] == by_spark(spark, TREES["unbalanced"], ["3"], [b"\x00\x00\x00\x04"], BigEndian())
    row = spark.sql("select named_struct('flags', 4) as header").select(
        copies_due(TREES["unbalanced"], "3", F.col("header.flags"))
    )
    assert by_python(TREES["unbalanced"], "3", 4) == [tuple(copy) for copy in row.collect()[0].copies]


def test_no_row_passes_through_python(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(1, b"\x01")], "number long, header binary")
    for column, codec in (("number", None), ("header", BigEndian())):
        due = frame.select(copies_due(TREES["wide"], "5", column, codec=codec))
        assert "Python" not in due._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize(
    ("value", "codec", "text"),
    [
        (-1, None, "not valid copy flags: -1"),
        (b"", BigEndian(), "not valid copy flags: 0 bytes"),
        (b"\x01" * (MAX_LEVEL // 8 + 1), BigEndian(), "not valid copy flags: 257 bytes"),
        (b"\x01", BigEndian(width=2), "not valid copy flags: 1 bytes"),
    ],
)
def test_invalid_flags_fail_the_job(spark: "SparkSession", value: object, codec: BigEndian | None, text: str) -> None:
    with pytest.raises(JOB_FAILED, match=text):
        by_spark(spark, TREES["unbalanced"], ["3"], [value], codec)


def test_the_header_of_a_record_is_the_one_that_python_reads(spark: "SparkSession") -> None:
    headers: list[list[tuple[str, bytes | None]]] = [
        [],
        [("trace", b"7")],
        [("Axual-Copy-Flags", b"\x04"), ("trace", None)],
        [("Axual-Copy-Flags", b"\x01"), ("Axual-Copy-Flags", b"\x06")],
        [("axual-copy-flags", b"\x04")],
        [("Axual-Copy-Flags", None), ("Axual-Copy-Flags", b"\x02")],
    ]
    codec = FlagsHeader().codec
    assert isinstance(codec, BigEndian)
    frame = spark.createDataFrame(list(enumerate(headers)), KAFKA).withColumn("flags", flags_header())
    tree = TREES["unbalanced"]
    rows = frame.withColumn("copies", copies_due(tree, "2", codec=codec)).orderBy("id").collect()
    read = [FlagsHeader().read(pairs) for pairs in headers]
    expected = [
        [(level, target, codec.encode(f)) for level, target, f in by_python(tree, "2", flags)] for flags in read
    ]
    assert expected == [[tuple(copy) for copy in row.copies] for row in rows]
    with pytest.raises(JOB_FAILED, match="a header without a value"):
        spark.createDataFrame([(0, [("Axual-Copy-Flags", None)])], KAFKA).select(flags_header()).collect()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("tree", "cluster", "codec", "text"),
    [
        (TREES["unbalanced"], "6", None, "cluster is '6'; it must be one of '1', '2', '3', '4', '5'"),
        (DEEP, "1", None, "level of '1' is 2048; it must be at most 63 where flags are numbers; keep them as binary"),
        (DEEP, "1", "big", r"codec is 'big'; it must be BigEndian\(\)"),
        (TREES["levels handed out"], "1", BigEndian(1), "level of '1' is 48; it must fit into the codec's 1 bytes"),
        ("tree", "1", None, "tree is 'tree'"),
    ],
)
def test_a_wrong_argument_is_refused_before_any_job(tree: Any, cluster: str, codec: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        copies_due(tree, cluster, codec=codec)
    with pytest.raises(ArgumentError, match=r"name is .*it must be a non-empty str"):
        flags_header("headers", "")


def test_a_distributor_that_looks_at_its_own_bit_only_is_caught(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    def own_bit_only(flags: Any) -> Any:
        def copy(hop: Any) -> Any:
            bit = F.lit(CopyFlags.bit(hop.level)).cast("bigint")
            return F.when(F.coalesce(flags, F.lit(0)).bitwiseAND(bit) == 0, adapter._copy(hop, flags.bitwiseOR(bit)))

        return copy

    monkeypatch.setattr(adapter, "_of_numbers", own_bit_only)
    assert [[by_python(TREES["unbalanced"], "2", 1)]] != by_spark(spark, TREES["unbalanced"], ["2"], [1])


def test_the_example_finds_what_a_link_lost_and_moves_a_group(
    spark: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    assert 0 == example.main(["100"])
    assert "500 records on 5 clusters, 0 faults" in capsys.readouterr().out
