"""From the summaries of several plans over one log to the figures of their report, in native Spark.

What comes to the driver is bounded by the plans and by what a page can show, never by the log.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import ArgumentError
from keyshared.simulate.plan import Plan
from keyshared.spark.frames.checks import type_of
from keyshared.spark.pages.page import as_text
from keyshared.spark.replays.plan_contents import contents
from keyshared.spark.replays.presence import everybody
from keyshared.spark.replays.replay_figures import backlog, changes, membership
from keyshared.spark.replays.schemas import SUMMARY_SCHEMA
from keyshared.spark.replays.what_if_report import ConsumerWork, PlanFigures, WhatIfReport

__all__ = ["what_if_report"]

_PLAN: Final = "plan"


def what_if_report(
    summaries: DataFrame, plans: Mapping[str, Plan], *, title: str, source: str, hottest: int
) -> WhatIfReport:
    """Find what a report of several plans shows; runs four jobs over the summaries.

    Args:
        summaries: The columns of `SUMMARY_SCHEMA`, and ``plan``, the name of the plan.
        plans: The plans by name, in the order in which they are to be shown.
        title: Headline of the page.
        source: Where the messages are from, for the reader.
        hottest: How many hot keys are wanted.

    Returns:
        The figures.

    Raises:
        ArgumentError: There are no plans, or a column is missing. No job was started.
    """
    if not plans:
        raise ArgumentError("plans", plans, "name at least one plan")
    for column in (_PLAN, *SUMMARY_SCHEMA.names):
        type_of(summaries, column)
    sums = {row[_PLAN]: row for row in _sums(summaries).collect()}
    works = _works(summaries).collect()
    moves = membership(summaries, [_PLAN]).collect()
    named = next(iter(plans))
    any_plan = sums.get(named)
    return WhatIfReport(
        title=title,
        source=source,
        messages=any_plan["messages"] if any_plan else 0,
        topic_partitions=any_plan["topic_partitions"] if any_plan else 0,
        plans=tuple(
            _figures(
                name,
                plan,
                sums[name],
                {row["consumer"]: row for row in works if row[_PLAN] == name},
                [row for row in moves if row[_PLAN] == name],
            )
            for name, plan in plans.items()
            if name in sums
        ),
        hot_keys=_hot_keys(summaries.filter(F.col(_PLAN) == named), hottest),
    )


def _sums(summaries: DataFrame) -> DataFrame:
    curve = F.struct("topic_partition", "backlog")
    return summaries.groupBy(_PLAN).agg(
        F.count("*").alias("topic_partitions"),
        F.count_if(F.col("stop") != "at_rest").alias("stopped"),
        *(F.sum(name).alias(name) for name in ("messages", "deliveries", "redeliveries")),
        *(F.max(name).alias(name) for name in ("wait_p50_ms", "wait_p99_ms")),
        F.min("start_ms").alias("first_ms"),
        F.max("end_ms").alias("last_ms"),
        F.max_by(curve, F.struct("largest_backlog", "topic_partition")).alias("largest"),
    )


def _works(summaries: DataFrame) -> DataFrame:
    each = summaries.select(_PLAN, F.explode("consumers").alias("one")).select(_PLAN, "one.*")
    return each.groupBy(_PLAN, "consumer").agg(
        F.sum("deliveries").alias("deliveries"), F.sum("busy_ms").alias("busy_ms")
    )


def _figures(name: str, plan: Plan, sums: Row, works: Mapping[str, Row], moves: list[Row]) -> PlanFigures:
    first: int = sums["first_ms"] or 0
    return PlanFigures(
        plan=name,
        stopped=sums["stopped"],
        span_ms=(sums["last_ms"] or 0) - first,
        deliveries=sums["deliveries"],
        redeliveries=sums["redeliveries"],
        wait_p50_ms=sums["wait_p50_ms"],
        wait_p99_ms=sums["wait_p99_ms"],
        consumers=tuple(_work(consumer, works.get(consumer)) for consumer in everybody(plan)),
        changes=changes(moves, plan, first),
        backlog=backlog(sums["largest"]["topic_partition"], sums["largest"]["backlog"], first),
        contents=contents(plan),
    )


def _work(consumer: str, row: Row | None) -> ConsumerWork:
    return ConsumerWork(
        consumer=consumer, deliveries=row["deliveries"] if row else 0, busy_ms=row["busy_ms"] if row else 0
    )


def _hot_keys(summaries: DataFrame, most: int) -> tuple[tuple[str, int], ...]:
    """Add up the hottest keys of each topic-partition: exact where a key has one topic-partition, as is usual."""
    each = summaries.select(F.explode("hottest_keys").alias("hot")).select("hot.*")
    counts = each.groupBy("key").agg(F.sum("messages").alias("messages"))
    rows = counts.orderBy(F.desc("messages"), "key").limit(most).collect()
    return tuple((as_text(bytes(row["key"])), row["messages"]) for row in rows)
