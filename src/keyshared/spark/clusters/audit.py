"""An audit of a distribution: is every message on every cluster once, over the logs of all clusters?

Two steps, so that a distribution without faults costs no Python:

1. *Screen*, native: a message with exactly one copy on each cluster of the tree is in order.
2. *Proof*, Python: what is left is judged exactly, message by message (`faults_of`).

Equal copies are counted before they are put together, so that a message that has gone in circles a million times is
one row with a number, not a million rows in memory.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from keyshared._checks import check_kind
from keyshared.copyflags import CopyFlags
from keyshared.distribution.tree import DistributionTree
from keyshared.spark.clusters.faults import FAULTS, Copies, faults_of
from keyshared.spark.frames.checks import check_columns, type_of
from keyshared.spark.frames.rules import Rule, never_null, place_of

__all__ = ["FAULT_SCHEMA", "audit_distribution", "count_by_fault"]

FAULT_SCHEMA: Final = StructType(
    [
        StructField("fault", StringType(), nullable=False),  # lost, duplicated, looped
        StructField("message_id", StringType(), nullable=False),
        StructField("cluster", StringType(), nullable=False),  # where something is wrong with it
        StructField("copies", LongType(), nullable=False),  # how many lie there; 0 if it is lost
        # flags of the copies there, each once, as hexadecimal digits: "0" for a message that was produced there
        StructField("flags", ArrayType(StringType(), containsNull=False), nullable=False),
        StructField("present", ArrayType(StringType(), containsNull=False), nullable=False),  # clusters that have it
        StructField("origin", StringType(), nullable=True),  # the one cluster that has it without flags
        # of a lost message, the link that had to bring it into the subtree that has not got it
        StructField("from_cluster", StringType(), nullable=True),
        StructField("level", IntegerType(), nullable=True),
        StructField("to_cluster", StringType(), nullable=True),
        StructField("explanation", StringType(), nullable=False),
    ]
)
"""One row for each message and each cluster that something is wrong with: fault, and proof."""

_FAULT: Final = to_arrow_schema(FAULT_SCHEMA)
_IDS: Final = ("string", "int", "bigint")
_BATCH_ROWS: Final = 10_000
_SHOWN: Final = 16


def audit_distribution(df: DataFrame, tree: DistributionTree, *, produced: DataFrame | None = None) -> DataFrame:
    """Find the messages that were lost, duplicated or looped between the clusters of a tree.

    Lost, and duplicated or looped, are what `keyshared.distribution.judge` finds lost and duplicated.

    Args:
        df: One row for each record in the log of each cluster: ``message_id`` (string, int or long), ``cluster``
            (string) and ``flags`` (int or long; or binary as `BigEndian` writes it; NULL for none). More columns do no
            harm. Leave out the rows of clusters that are not in the tree, as those of one that has left it; what lies
            there only shows that a message exists, and its id may go into ``produced``.
        tree: The distribution; after a change the tree that it led to. Only the proof of a loss knows links.
        produced: ``message_id`` of everything that was produced, if that is known from elsewhere: without it a message
            that is in no log at all goes unnoticed.

    Returns:
        One row for each message and cluster with a fault, see `FAULT_SCHEMA`; none if every message is on every cluster
        once. Lazy, as every frame is. The job fails on a row without a message id, of a cluster that is not in the
        tree (a misspelt one would look like a loss), and on flags that are none; the error shows the row.

    Raises:
        ArgumentError: A column is missing or of another type. No job was started.

    Complexity:
        One shuffle of the rows, native; Python sees only messages with faults.

    Example:
        >>> tree = DistributionTree({1: ["c1", "c2"]})
        >>> records = spark.createDataFrame([("m", "c1", None)], "message_id string, cluster string, flags int")
        >>> audit_distribution(records, tree).select("fault", "cluster", "explanation").collect()
        [Row(fault='lost', cluster='c2', explanation='c1 did not copy it to c2 at level 1')]
    """
    check_columns(df, {"message_id": _IDS, "cluster": ("string",), "flags": ("int", "bigint", "binary")})
    check_kind("tree", tree, DistributionTree)
    place = place_of({name: name for name in ("message_id", "cluster")})
    flags = _flags(type_of(df, "flags"))
    copies = df.select(*(rule.kept(place) for rule in (_identified(), _known(tree), flags)))
    if produced is not None:
        check_columns(produced, {"message_id": _IDS})
        nowhere = F.lit(None).cast("string")
        copies = copies.unionByName(
            produced.select(
                _identified("message_id of produced").kept(F.lit("it")),
                nowhere.alias("cluster"),
                F.lit("0").alias("flags"),
            )
        )
    # all of a message in one place at once: counting equal copies before the shuffle would not make it smaller
    placed = copies.repartition("message_id")
    counted = placed.groupBy("message_id", "cluster", "flags").agg(F.count("*").alias("number"))
    messages = counted.groupBy("message_id").agg(F.collect_list(F.struct("cluster", "flags", "number")).alias("copies"))
    return messages.filter(~_in_order(tree)).mapInArrow(_judging(tree), FAULT_SCHEMA)


def count_by_fault(faults: DataFrame) -> dict[str, int]:
    """Count faults; runs the job.

    Args:
        faults: What `audit_distribution` gave.

    Returns:
        A count for each of `FAULTS`, 0 included.

    Example:
        >>> count_by_fault(spark.createDataFrame([("lost",)], ["fault"]))
        {'lost': 1, 'duplicated': 0, 'looped': 0}
    """
    counts = {row[0]: row[1] for row in faults.groupBy("fault").count().collect()}
    return {fault: counts.get(fault, 0) for fault in FAULTS}


def _identified(called: str = "message_id") -> Rule:
    return never_null("message_id", called, F.col("message_id").cast("string"))


def _known(tree: DistributionTree) -> Rule:
    value, clusters = F.col("cluster"), tree.clusters
    shown = ", ".join(clusters[:_SHOWN]) + (", ..." if len(clusters) > _SHOWN else "")
    wrong = ~F.coalesce(value.isin(*clusters), F.lit(False))
    return Rule("cluster", "cluster", value, wrong, f"NULL or none of the tree ({shown})")


def _flags(kind: DataType) -> Rule:
    """Return flags as hexadecimal digits without zeros in front: equal flags are equal texts, whatever their type."""
    flags = F.col("flags")
    if isinstance(kind, BinaryType):
        # no flags have no bytes: see BigEndian.decode
        bad, digits = F.octet_length(flags) == 0, F.hex(flags)
    else:
        bad, digits = flags < 0, F.hex(flags.cast("bigint"))
    short = F.call_function("ltrim", F.lit("0"), digits)  # by its name: the function took no zeros before Spark 4.0
    value = F.when(flags.isNull() | (short == ""), "0").otherwise(short)
    return Rule("flags", "flags", value, F.coalesce(bad, F.lit(False)), "negative or empty")


def _in_order(tree: DistributionTree) -> Column:
    """Return whether each cluster of the tree has one copy of the message."""
    clusters = tree.clusters
    judged = F.filter("copies", lambda copy: F.coalesce(copy["cluster"].isin(*clusters), F.lit(False)))
    names = F.array_distinct(judged["cluster"])
    once = F.forall(judged, lambda copy: copy["number"] == 1)
    return once & (F.size(judged) == len(clusters)) & (F.size(names) == len(clusters))


def _judging(tree: DistributionTree) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Judge batches: the function for ``mapInArrow``; the tree, an immutable value, goes along with it."""

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[object, ...]] = []
        for batch in batches:
            for message_id, copies in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                rows.extend(_faults(tree, message_id, copies))
                if len(rows) >= _BATCH_ROWS:
                    yield _batch(rows)
                    rows.clear()
        if rows:
            yield _batch(rows)

    return judge


def _faults(tree: DistributionTree, message_id: str, copies: list[dict[str, object]]) -> Iterator[tuple[object, ...]]:
    found = [
        Copies(str(copy["cluster"]), CopyFlags(int(str(copy["flags"]), 16)), int(str(copy["number"])))
        for copy in copies
        if copy["cluster"] is not None
    ]
    for fault, cluster, count, flags, *proof in faults_of(tree, sorted(found)):
        yield (fault, message_id, cluster, count, [f"{int(each):X}" for each in flags], *proof)


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _FAULT, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_FAULT)
