"""An audit of replicated logs: is every message on every cluster of a tree once?

Two steps, so that logs without faults cost no Python:

1. *Screen*, native: a message with exactly one copy on each cluster of the tree is in order.
2. *Proof*, Python: the other messages are judged exactly, one by one (`faults_of`). The copies on each cluster and
   their flags are enough to name the link that failed: a message that a cluster lacks is missing from the whole of a
   largest subtree, and either a distributor beside that subtree had to copy it across and did not, or every copy there
   had flags too early.

Equal copies are counted before they are put together, so that a message that has gone in circles a million times is
one row with a number, not a million rows in memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from keyshared._checks import check_kind
from keyshared.copyflags import CopyFlags
from keyshared.distribution.shape import Branch, Node, leaves
from keyshared.distribution.tree import DistributionTree
from keyshared.spark.rows import batches_of, check_columns, never_null, parsed, refused_where

__all__ = ["FAULT_COLUMNS", "Copies", "Fault", "audit_copies", "faults_of"]

FAULT_COLUMNS: Final = (
    "fault string, message_id string, cluster string, copies bigint, flags array<string>, present array<string>, "
    "origin string, from_cluster string, level int, to_cluster string, explanation string"
)
"""The fields of `Fault`, and ``message_id``; flags as hexadecimal digits, "0" for a message that was produced there."""

_IDS: Final = ("string", "int", "bigint")
_FLAGS: Final = ("int", "bigint", "binary")
_SHOWN: Final = 16


def audit_copies(df: DataFrame, tree: DistributionTree, *, produced: DataFrame | None = None) -> DataFrame:
    """Find the messages that were lost, duplicated or looped between the clusters of a tree.

    Args:
        df: One row for each record in the log of each cluster: ``message_id`` (string or whole number), ``cluster``
            (string) and ``flags`` (whole number; or binary as `BigEndian` writes it; NULL for none). Leave out the rows
            of clusters that are not in the tree, as those of one that has left it.
        tree: The tree of clusters; after a change the tree that it led to.
        produced: ``message_id`` of everything that was produced, if that is known from elsewhere: without it a message
            that is in no log at all goes unnoticed.

    Returns:
        One row for each message and cluster with a fault, see `FAULT_COLUMNS`; none if every message is on every
        cluster once. Lazy. The job fails on a row without a message id, of a cluster that is not in the tree (a
        misspelt one would look like a loss), and on flags that are none; the error shows the row.

    Raises:
        ArgumentError: A column is missing or of another type.

    Complexity:
        One shuffle of the rows, native; Python sees only messages with faults.

    Example:
        >>> tree = DistributionTree({1: ["c1", "c2"]})
        >>> records = spark.createDataFrame([("m", "c1", None)], "message_id string, cluster string, flags int")
        >>> audit_copies(records, tree).select("fault", "cluster", "explanation").collect()
        [Row(fault='lost', cluster='c2', explanation='c1 did not copy it to c2 at level 1')]
    """
    check_columns(df, {"message_id": _IDS, "cluster": ("string",), "flags": _FLAGS})
    check_kind("tree", tree, DistributionTree)
    copies = df.select(
        _message_id(df), _known_cluster(tree), _flags(binary=dict(df.dtypes)["flags"] == "binary").alias("flags")
    )
    if produced is not None:
        check_columns(produced, {"message_id": _IDS})
        nowhere = F.lit(None).cast("string").alias("cluster")
        copies = copies.unionByName(produced.select(_message_id(produced), nowhere, F.lit("0").alias("flags")))
    # all of a message in one place at once: counting equal copies before the shuffle would not make it smaller
    placed = copies.repartition("message_id")
    counted = placed.groupBy("message_id", "cluster", "flags").agg(F.count("*").alias("number"))
    messages = counted.groupBy("message_id").agg(F.collect_list(F.struct("cluster", "flags", "number")).alias("copies"))
    returned = StructType(parsed(df, FAULT_COLUMNS))
    judge = partial(_judge_batches, tree=tree, schema=to_arrow_schema(returned))
    return messages.filter(~_in_order(tree)).mapInArrow(judge, returned)


def _message_id(df: DataFrame) -> Column:
    place = [name for name in ("message_id", "cluster") if name in df.columns]
    return never_null("message_id", F.col("message_id").cast("string"), place=place)


def _known_cluster(tree: DistributionTree) -> Column:
    value, clusters = F.col("cluster"), tree.clusters
    shown = ", ".join(clusters[:_SHOWN]) + (", ..." if len(clusters) > _SHOWN else "")
    wrong = ~F.coalesce(value.isin(*clusters), F.lit(False))
    what = f"NULL or none of the tree ({shown})"
    return refused_where(wrong, what, "cluster", place=["message_id", "cluster"]).otherwise(value).alias("cluster")


def _flags(*, binary: bool) -> Column:
    """Return flags as hexadecimal digits without zeros in front: equal flags are equal texts, for each type."""
    flags = F.col("flags")
    # no flags have no bytes: see BigEndian.decode
    wrong = F.octet_length(flags) == 0 if binary else flags < 0
    digits = F.hex(flags if binary else flags.cast("bigint"))
    short = F.regexp_replace(digits, "^0+", "")
    value = F.when(flags.isNull() | (short == ""), "0").otherwise(short)
    wrong = F.coalesce(wrong, F.lit(False))
    return refused_where(wrong, "negative or empty", "flags", place=["message_id", "cluster"]).otherwise(value)


def _in_order(tree: DistributionTree) -> Column:
    """Return whether each cluster of the tree has one copy of the message."""
    clusters = tree.clusters
    judged = F.filter("copies", lambda copy: F.coalesce(copy["cluster"].isin(*clusters), F.lit(False)))
    names = F.array_distinct(judged["cluster"])
    once = F.forall(judged, lambda copy: copy["number"] == 1)
    return once & (F.size(judged) == len(clusters)) & (F.size(names) == len(clusters))


def _judge_batches(
    batches: Iterable[pa.RecordBatch], *, tree: DistributionTree, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Judge messages and their copies, which come as Arrow batches."""
    messages = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return batches_of((row for message_id, copies in messages for row in _faults(tree, message_id, copies)), schema)


def _faults(tree: DistributionTree, message_id: str, copies: list[dict[str, object]]) -> Iterator[tuple[object, ...]]:
    found = [
        Copies(str(copy["cluster"]), CopyFlags(int(str(copy["flags"]), 16)), int(str(copy["number"])))
        for copy in copies
        if copy["cluster"] is not None
    ]
    for fault, cluster, count, flags, *proof in faults_of(tree, sorted(found)):
        yield (fault, message_id, cluster, count, [f"{int(each):X}" for each in flags], *proof)


class Copies(NamedTuple):
    """Equal copies of a message.

    Attributes:
        cluster: Where they lie.
        flags: Their flags.
        number: How many there are.
    """

    cluster: str
    flags: CopyFlags
    number: int


class Fault(NamedTuple):
    """A fault of one message on one cluster.

    Attributes:
        fault: "lost" (the cluster does not have the message), "duplicated" (more than once), or "looped" (it got its
            own message back); a message that has looped is not reported as duplicated as well.
        cluster: The cluster.
        copies: How many copies lie there.
        flags: Their different flags, the smallest first.
        present: Every cluster that has the message.
        origin: Where it was produced: the only cluster with a copy without flags. None if there is no such, or several.
        from_cluster: Of a lost message: the cluster that had to copy it into the subtree that lacks it. None if none
            had to, and for the other faults.
        level: Of a lost message: level of that subtree's parent.
        to_cluster: Of a lost message: the target of the link that failed.
        explanation: What happened, for the reader.
    """

    fault: str
    cluster: str
    copies: int
    flags: tuple[CopyFlags, ...]
    present: tuple[str, ...]
    origin: str | None
    from_cluster: str | None
    level: int | None
    to_cluster: str | None
    explanation: str


def faults_of(tree: DistributionTree, copies: Sequence[Copies]) -> Iterator[Fault]:
    """Judge one message.

    Args:
        tree: The distribution. Where targets have been moved, the tree after that: then `Fault.to_cluster` is the
            target as it is now.
        copies: Every copy of the message on any cluster. Clusters outside the tree are not judged, but show that the
            message exists.

    Yields:
        One fault for each cluster with which something is wrong, in the order of the tree.

    Complexity:
        O(n d + c n), n clusters, d the depth, c different copies.

    Example:
        >>> tree = DistributionTree({3: [{1: ["c1", "c2"]}, {1: ["c3", "c4"]}]})
        >>> found = faults_of(tree, [Copies("c1", CopyFlags(), 1), Copies("c2", CopyFlags(1), 2)])
        >>> [(fault.fault, fault.cluster, fault.explanation) for fault in found][:2]
        [('duplicated', 'c2', '2 copies'), ('lost', 'c3', 'c1 did not copy it to c3 at level 3')]
    """
    present = tuple(sorted({copy.cluster for copy in copies}))
    fresh = {copy.cluster for copy in copies if not copy.flags}
    origin = fresh.pop() if len(fresh) == 1 else None
    for cluster in tree.clusters:
        there = [copy for copy in copies if copy.cluster == cluster]
        flags = tuple(sorted({copy.flags for copy in there}))
        total = sum(copy.number for copy in there)
        if total == 0:
            yield Fault("lost", cluster, 0, (), present, origin, *_missed(tree, cluster, copies))
        elif total > 1:
            # a copy without flags is the message as it was produced: any other copy has been away
            looped = not flags[0] and flags[-1]
            fault, explanation = ("looped", _came_back(flags)) if looped else ("duplicated", f"{total:,} copies")
            yield Fault(fault, cluster, total, flags, present, origin, None, None, None, explanation)


def _came_back(flags: Sequence[CopyFlags]) -> str:
    ways = " and ".join("+".join(map(str, copy.levels)) for copy in flags if copy)
    return f"produced there, and came back across {ways}"


def _missed(
    tree: DistributionTree, cluster: str, copies: Sequence[Copies]
) -> tuple[str | None, int | None, str | None, str]:
    """Return the link that should have brought a message into the largest subtree around a cluster that lacks it."""
    present = {copy.cluster for copy in copies}
    node, empty = _largest_without(tree.root, cluster, present)
    if node is None:
        return None, None, None, "no cluster of the tree has it"
    beside = set(leaves(node)).difference(leaves(empty))
    for copy in copies:
        if copy.cluster in beside and copy.flags.is_due(node.level):
            links = (hop for distributor in tree.distributors(copy.cluster) for hop in distributor.hops)
            hop = next(hop for hop in links if hop.level == node.level and hop.target in leaves(empty))
            text = f"{hop.cluster} did not copy it to {hop.target} at level {hop.level}"
            return *hop, text
    text = f"no cluster had to copy it across level {node.level}: a flag was set before"
    return None, node.level, None, text


def _largest_without(root: Branch, cluster: str, present: set[str]) -> tuple[Node | None, Branch]:
    """Return the largest branch that holds a cluster and none of these, and the node above it."""
    above, branch = None, root
    while not present.isdisjoint(leaves(branch)):
        assert isinstance(branch, Node)  # noqa: S101 - a leaf that is present is not missing
        above, branch = branch, next(below for below in branch.branches if cluster in leaves(below))
    return above, branch
