"""What a frame reads: so that nobody empties the place from which the rows are still to come."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["sources_of"]


def sources_of(df: DataFrame) -> set[str]:
    """Return the files that a frame reads, and the tables by name that are no files to Spark; starts no job.

    Args:
        df: The frame. What is kept of it does not count: kept rows may be lost, and are then read anew. Spark Connect
            tells only files, and none of those whose rows are kept.
    """
    if getattr(df, "_jdf", None) is None:
        return set(df.inputFiles())
    plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001 - inputFiles() passes over what is kept
    return {source for leaf in _leaves(plan) for source in _read_by(leaf)}


def _leaves(plan: Any) -> Iterator[Any]:  # noqa: ANN401 - objects of the JVM, as those below
    for each in (plan, *_each(plan.subqueriesAll())):
        yield from _each(each.collectLeaves())


def _read_by(leaf: Any) -> list[str]:  # noqa: ANN401
    kind = leaf.getClass().getSimpleName()
    if kind == "DataSourceV2Relation":
        return [str(leaf.name())]
    if kind == "LogicalRelation" and leaf.relation().getClass().getSimpleName() == "HadoopFsRelation":
        return [*leaf.relation().inputFiles()]
    return []


def _each(sequence: Any) -> Iterator[Any]:  # noqa: ANN401
    return (sequence.apply(index) for index in range(sequence.size()))
