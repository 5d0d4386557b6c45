"""Copies as a Spark expression are those of the tree in Python, for every flags value in every form."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.distribution.trees import BALANCED, UNBALANCED

from keyshared.copyflags import MAX_LEVEL, BigEndian, CopyFlags, FlagsHeader
from keyshared.distribution import DistributionTree
from keyshared.errors import ArgumentError

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import Column  # noqa: E402 - needs pyspark
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark
from tests.spark.since import JOB_FAILED  # noqa: E402 - needs pyspark

from keyshared.spark.columns import copies as adapter  # noqa: E402 - needs pyspark
from keyshared.spark.columns.copies import copies_due, flags_header, with_copy_due  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TREES = {
    "balanced": DistributionTree(BALANCED),
    "unbalanced": DistributionTree(UNBALANCED),
    "wide": DistributionTree({9: [{8: ["1", "2", "3"]}, {5: ["4", {4: ["5", "6", "7", "8"]}]}, "9"]}),
    "levels handed out": DistributionTree([["1", ["2", "3"]], ["4", "5"]]),
    "highest of a number": DistributionTree({63: [{62: ["1", "2"]}, {1: ["3", "4"]}]}),
}
DEEP = DistributionTree({MAX_LEVEL: [{1_000: [{65: [{64: ["1", "2"]}, "3"]}, "4"]}, {17: ["5", "6"]}]})
Copies = list[tuple[int, str, CopyFlags]]
some_tree = pytest.mark.parametrize("tree", TREES.values(), ids=TREES)


def exactly(tree: DistributionTree, cluster: str, flags: int | None) -> Copies:
    """What the distributors of the cluster do, one by one."""
    return [
        (distributor.level, *copy)
        for distributor in tree.distributors(cluster)
        for copy in distributor.copies(CopyFlags(flags or 0))
    ]


def by_spark(
    spark: "SparkSession",
    tree: DistributionTree,
    clusters: Sequence[str],
    values: Sequence[Any],
    codec: BigEndian | None = None,
) -> list[list[list[tuple[int, str, Any]]]]:
    """For each cluster the copies of each value."""
    kind = "binary" if any(isinstance(value, bytes) for value in values) else "long"
    df = spark.createDataFrame(list(enumerate(values)), f"id long, flags {kind}").repartition(2)
    for cluster in clusters:
        df = with_copy_due(df, tree, cluster, codec=codec, into=f"at {cluster}")
    rows = df.orderBy("id").collect()
    assert list(values) == [row["flags"] for row in rows]
    return [[[tuple(copy) for copy in row[f"at {cluster}"]] for row in rows] for cluster in clusters]


def some_flags(levels: int, count: int = 300) -> list[int]:
    """Sets of many, few, single and neighbouring levels."""
    rng = Random(levels)
    few = [sum({1 << rng.randrange(levels) for _ in range(rng.randrange(4))}) for _ in range(count)]
    single = [1 << level for level in range(levels)]
    return [0, *few, *single, *(2 * flags - 1 for flags in single), *(rng.getrandbits(levels) for _ in range(count))]


@some_tree
def test_copies_of_numbers_are_those_of_python(spark: "SparkSession", tree: DistributionTree) -> None:
    values = [None, *range(1 << 11), *some_flags(63)]
    expected = [[exactly(tree, cluster, flags) for flags in values] for cluster in tree.clusters]
    assert expected == by_spark(spark, tree, tree.clusters, values)


def test_ints_are_numbers_too(spark: "SparkSession") -> None:
    tree = TREES["unbalanced"]
    df = with_copy_due(spark.createDataFrame([(4,), (None,)], "flags int"), tree, "3")
    assert [[(2, "1", 6), (1, "2", 5)], exactly(tree, "3", 0)] == [list(map(tuple, row.copies)) for row in df.collect()]


CODECS = [BigEndian(), BigEndian(width=8), BigEndian(width=11)]
_QUICK = {(3, 0), (4, 1), (2, 2)}


# Each codec with a tree in every run; all pairs at night.
@pytest.mark.parametrize(
    ("tree", "codec"),
    [
        pytest.param(tree, codec, id=f"{name}-{codec!r}", marks=[] if (i, j) in _QUICK else [pytest.mark.slow])
        for i, (name, tree) in enumerate(TREES.items())
        for j, codec in enumerate(CODECS)
    ],
)
def test_copies_of_headers_are_those_of_python(spark: "SparkSession", tree: DistributionTree, codec: BigEndian) -> None:
    numbers = [*range(1 << 9), *some_flags(64)]
    values = [None, *(codec.encode(CopyFlags(flags)) for flags in numbers)]
    clusters = tree.clusters[:4]
    expected = [
        [
            [(level, target, codec.encode(flags)) for level, target, flags in exactly(tree, cluster, number)]
            for number in [None, *numbers]
        ]
        for cluster in clusters
    ]
    assert expected == by_spark(spark, tree, clusters, values, codec)


@pytest.mark.parametrize("width", [None, MAX_LEVEL // 8])
def test_headers_reach_to_the_highest_level_there_is(spark: "SparkSession", width: int | None) -> None:
    codec = BigEndian(width)
    numbers = some_flags(MAX_LEVEL, 100)
    values = [codec.encode(CopyFlags(flags)) for flags in numbers]
    expected = [
        [
            [(level, target, codec.encode(flags)) for level, target, flags in exactly(DEEP, cluster, number)]
            for number in numbers
        ]
        for cluster in ("1", "6")
    ]
    assert expected == by_spark(spark, DEEP, ("1", "6"), values, codec)


def test_zeros_in_front_of_a_header_are_not_copied(spark: "SparkSession") -> None:
    copies = [(2, "1", b"\x06"), (1, "2", b"\x05")]
    assert [[copies]] == by_spark(spark, TREES["unbalanced"], ["3"], [b"\x00\x00\x00\x04"])


def test_a_cluster_without_others_copies_nothing(spark: "SparkSession") -> None:
    assert [[[]]] == by_spark(spark, DistributionTree("alone"), ["alone"], [0])


def test_flags_may_lie_in_a_struct_and_the_columns_be_called_otherwise(spark: "SparkSession") -> None:
    df = spark.sql("SELECT named_struct('flags', 4L) AS header")
    row = with_copy_due(df, TREES["unbalanced"], "3", flags="header.flags", into="due").collect()[0]
    assert exactly(TREES["unbalanced"], "3", 4) == [tuple(copy) for copy in row["due"]]


def test_no_row_passes_through_python(spark: "SparkSession") -> None:
    df = spark.createDataFrame([(1, b"\x01")], "number long, header binary")
    for column in ("number", "header"):
        plan = with_copy_due(df, TREES["wide"], "5", flags=column)._jdf.queryExecution().executedPlan().toString()
        assert "Python" not in plan
        assert "Arrow" not in plan


@pytest.mark.parametrize(
    ("value", "codec", "text"),
    [
        (-1, None, "these are no copy flags: -1"),
        (b"", None, "these are no copy flags: 0 bytes"),
        (b"\x01" * (MAX_LEVEL // 8 + 1), None, "these are no copy flags: 257 bytes"),
        (b"\x01", BigEndian(width=2), "these are no copy flags: 1 bytes"),
    ],
)
def test_the_job_fails_on_flags_that_are_none(
    spark: "SparkSession", value: object, codec: BigEndian | None, text: str
) -> None:
    with pytest.raises(JOB_FAILED, match=text):
        by_spark(spark, TREES["unbalanced"], ["3"], [value], codec)


def _headers(*pairs: tuple[str, bytes | None]) -> list[tuple[str, bytes | None]]:
    return list(pairs)


HEADERS = [
    _headers(),
    _headers(("trace", b"7")),
    _headers(("Axual-Copy-Flags", b"\x04"), ("trace", None)),
    _headers(("Axual-Copy-Flags", b"\x01"), ("Axual-Copy-Flags", b"\x06")),
    _headers(("axual-copy-flags", b"\x04")),
    _headers(("Axual-Copy-Flags", None), ("Axual-Copy-Flags", b"\x02")),
]
KAFKA = "id int, headers array<struct<key: string, value: binary>>"


def test_the_header_of_a_record_is_the_one_that_python_reads(spark: "SparkSession") -> None:
    df = spark.createDataFrame(list(enumerate(HEADERS)), KAFKA).withColumn("flags", flags_header(F.col("headers")))
    tree = TREES["unbalanced"]
    rows = with_copy_due(df, tree, "2").orderBy("id").collect()
    header = FlagsHeader()
    expected = [
        [(level, target, header.codec.encode(flags)) for level, target, flags in exactly(tree, "2", header.read(pairs))]
        for pairs in HEADERS
    ]
    assert expected == [[tuple(copy) for copy in row["copies"]] for row in rows]
    other = df.filter("id < 2").orderBy("id").select(flags_header(F.col("headers"), "trace")).collect()
    assert [None, b"7"] == [row["flags"] for row in other]


def test_the_job_fails_on_a_header_without_a_value(spark: "SparkSession") -> None:
    df = spark.createDataFrame([(0, _headers(("Axual-Copy-Flags", None)))], KAFKA)
    with pytest.raises(JOB_FAILED, match="a header without a value"):
        df.select(flags_header(F.col("headers"))).collect()


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_header_has_a_name(spark: "SparkSession", name: Any) -> None:
    with pytest.raises(ArgumentError, match=r"name is .*it must be a non-empty str"):
        flags_header(F.col("headers"), name)
    assert spark is not None  # a column needs a session


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"flags": "flag"}, r"column is 'flag'; it must be a column of the frame \(flags, text, header\)"),
        ({"flags": "text"}, "flags column is 'text'; it must be int, long or binary, and it is string; cast it first"),
        ({"into": "FLAGS"}, "into is 'FLAGS'; it must be the name of a new column, none of flags, text, header"),
        ({"into": ""}, "into is ''"),
        ({"cluster": "6"}, "cluster is '6'; it must be one of '1', '2', '3', '4', '5'"),
        ({"tree": DEEP}, "level of '1' is 2048; it must be at most 63 where flags are numbers; keep them as binary"),
        ({"flags": "header", "codec": "big"}, r"codec is 'big'; it must be BigEndian\(\)"),
        (
            {"flags": "header", "codec": BigEndian(1), "tree": TREES["levels handed out"]},
            "level of '1' is 48; it must fit into the codec's 1 bytes",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_the_job(
    spark: "SparkSession", arguments: dict[str, Any], text: str
) -> None:
    df = spark.createDataFrame([(0, "x", b"")], "flags long, text string, header binary")
    given = {"tree": TREES["unbalanced"], "cluster": "1", **arguments}
    with pytest.raises(ArgumentError, match=text):
        with_copy_due(df, **given)


def _own_bit_only(flags: Column) -> Callable[[Any], Column]:
    def copy(hop: Any) -> Column:
        bit = F.lit(CopyFlags.bit(hop.level)).cast("bigint")
        return F.when(F.coalesce(flags, F.lit(0)).bitwiseAND(bit) == 0, adapter._copy(hop, flags.bitwiseOR(bit)))

    return copy


def test_a_distributor_that_looks_at_its_own_bit_only_is_caught(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_of_numbers", _own_bit_only)
    tree = TREES["unbalanced"]
    assert [[exactly(tree, "2", 1)]] != by_spark(spark, tree, ["2"], [1])


def test_copies_as_an_expression_have_a_name(spark: "SparkSession") -> None:
    df = spark.createDataFrame([(4,)], "flags long").select(copies_due(F.col("flags"), TREES["unbalanced"], "3"))
    assert ["copies"] == df.columns
