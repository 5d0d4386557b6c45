"""Where the rows of a log lie: found in the plan of a frame, so that nothing is shuffled and sorted twice.

`keyshared.spark.logs.source` numbers the rows of topic-partitions that `keyshared.spark.frames.packing` has put into
Spark partitions: each lies in one of them, in the order of its offsets. Columns that are added or left out and rows
that are filtered out change nothing about that; whatever else happens to a log does, and then nothing is found.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from keyshared.spark.frames.packing import PLACE
from keyshared.spark.versions import datasets

__all__ = ["Layout", "layout_of"]

_ROW_BY_ROW: Final = frozenset({"Project", "Filter", "SubqueryAlias"})
_NUMBERED_BY: Final = re.compile(rf"\({PLACE}#\d+, topic_partition#(\d+)\)$")


class Layout(NamedTuple):
    """What is known of rows that are laid out.

    Attributes:
        partitions: In how many Spark partitions they are.
        source: The same rows before they were moved there, for jobs that only count them; where they are kept as they
            lie, the frame itself.
    """

    partitions: int
    source: DataFrame


def layout_of(df: DataFrame, *, topic_partition: str, offset: str) -> Layout | None:
    """Find out whether each topic-partition is one run of rows in one Spark partition, in the order of its offsets.

    Args:
        df: The frame.
        topic_partition: Its column with the topic-partition.
        offset: Its column with the offset.

    Returns:
        The layout; None if it is unknown. On Spark Connect it always is: there is no plan to look at.

    Complexity:
        O(nodes of the plan) calls of the JVM; no job.
    """
    if getattr(df, "_jdf", None) is None:
        return None
    columns = [each.exprId().id() for each in _each(_analyzed(df.select(topic_partition, offset)).output())]
    *above, window = _down(_analyzed(df))
    numbered_by = _NUMBERED_BY.search(window.partitionSpec().toString()) if window.nodeName() == "Window" else None
    if numbered_by is None:
        return None
    numbers = [each.exprId().id() for each in _each(above[-1].output()) if each.name() == "offset"]
    if columns != [int(numbered_by[1]), *numbers]:
        return None
    *between, moved = _down(window.children().apply(0))
    if _is_kept(df):
        return Layout(moved.numPartitions(), df)
    return Layout(moved.numPartitions(), _on(df, [*above, window, *between], moved.children().apply(0)))


def _analyzed(df: DataFrame) -> Any:  # noqa: ANN401 - an object of the JVM, as are those below
    return df._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public way tells what a plan is made of


def _is_kept(df: DataFrame) -> bool:
    """Return whether somebody keeps the rows where they lie, so that reading them reads no source again."""
    # a query of its own: what a frame's own one knows of what is kept may be older
    *_, kept = _down(df.select("*")._jdf.queryExecution().withCachedData())  # noqa: SLF001 - as above
    return bool(kept.nodeName() == "InMemoryRelation")


def _down(node: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield the nodes of a plan from the top, up to the first that may move rows."""
    while node.nodeName() in _ROW_BY_ROW:
        yield node
        node = node.children().apply(0)
    yield node


def _on(df: DataFrame, nodes: list[Any], source: Any) -> DataFrame:  # noqa: ANN401
    """Return a frame that does to another source what a part of a frame's plan does."""
    spark: Any = df.sparkSession
    spark_jvm = spark._jvm.org.apache.spark  # noqa: SLF001 - as above
    for node in reversed(nodes):
        source = node.withNewChildren(spark_jvm.api.python.PythonUtils.toSeq([source]))
    rows = datasets(spark_jvm).ofRows(spark._jsparkSession, source)  # noqa: SLF001
    return type(df)(rows, spark)


def _each(sequence: Any) -> Iterator[Any]:  # noqa: ANN401
    return (sequence.apply(index) for index in range(sequence.size()))
