"""From the summaries of several plans over one log to the figures of their report, in native Spark.

What comes to the driver is bounded by the plans and by what a page can show, never by the log.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import ArgumentError
from keyshared.simulate.group import Group
from keyshared.spark.frames.checks import type_of
from keyshared.spark.pages.page import as_text
from keyshared.spark.plans.ranking import PlanOutcome
from keyshared.spark.replays.plan_contents import contents
from keyshared.spark.replays.presence import everybody
from keyshared.spark.replays.replay_figures import backlog, changes, membership
from keyshared.spark.replays.schemas import SUMMARY_SCHEMA
from keyshared.spark.replays.what_if_report import ConsumerWork, PlanFigures, WhatIfReport

__all__ = ["outcomes_of", "totals", "what_if_report"]

_PLAN: Final = "plan"
_ADDED: Final = ("messages", "outstanding", "deliveries", "redeliveries", "acked", "late_acked", "dead_lettered")
_WORST: Final = ("wait_p50_ms", "wait_p99_ms", "wait_max_ms", "largest_backlog")
_NOT_OF_ROWS: Final = ("plan", "consumers", "lost", "moved_keys")


def totals() -> list[Column]:
    """Return the columns of `WhatIf.totals`, as aggregates of the summaries of a plan."""
    moved = F.aggregate("moved_keys", F.lit(0).cast("bigint"), _plus_moved)
    return [
        F.count("*").alias("topic_partitions"),
        *(F.sum(name).alias(name) for name in _ADDED),
        F.sum(moved).alias("moved_keys"),
        *(F.max(name).alias(name) for name in _WORST),
    ]


def outcomes_of(rows: Iterable[Row], plans: Mapping[str, Group]) -> tuple[PlanOutcome, ...]:
    """Return what became of the log under each plan.

    The log has as many messages as the plan that was offered most of them: one that ends early is not offered them all.

    Args:
        rows: With the columns of `WhatIf.totals`.
        plans: The plans by name; the outcomes come in their order, without plans that have no row.
    """
    found = {row[_PLAN]: row for row in rows}
    messages = max((row["messages"] for row in found.values()), default=0)
    names = [name for name in PlanOutcome.__dataclass_fields__ if name not in _NOT_OF_ROWS]
    return tuple(
        PlanOutcome(
            plan=name,
            consumers=len(everybody(plan)),
            lost=messages - found[name]["acked"] - found[name]["late_acked"],
            moved_keys=found[name]["moved_keys"] if plan.count_moved_keys else None,
            **{each: found[name][each] for each in names},
        )
        for name, plan in plans.items()
        if name in found
    )


def what_if_report(
    summaries: DataFrame, plans: Mapping[str, Group], *, title: str, source: str, by: str, hottest: int
) -> WhatIfReport:
    """Find what a report of several plans shows; runs four jobs over the summaries.

    Args:
        summaries: The columns of `SUMMARY_SCHEMA`, and ``plan``, the name of the plan.
        plans: The plans by name, in the order in which they are to be shown.
        title: Headline of the page.
        source: Where the messages are from, for the reader.
        by: What the best plan is found by, one of `CRITERIA`.
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
    return WhatIfReport(
        title=title,
        source=source,
        messages=max((row["messages"] for row in sums.values()), default=0),
        topic_partitions=max((row["topic_partitions"] for row in sums.values()), default=0),
        by=by,
        plans=tuple(
            _figures(
                outcome,
                plans[outcome.plan],
                sums[outcome.plan],
                {row["consumer"]: row for row in works if row[_PLAN] == outcome.plan},
                [row for row in moves if row[_PLAN] == outcome.plan],
            )
            for outcome in outcomes_of(sums.values(), plans)
        ),
        hot_keys=_hot_keys(summaries.filter(F.col(_PLAN) == named), hottest),
    )


def _sums(summaries: DataFrame) -> DataFrame:
    curve = F.struct("topic_partition", "backlog")
    return summaries.groupBy(_PLAN).agg(
        *totals(),
        F.count_if(F.col("stop") != "at_rest").alias("stopped"),
        F.min("start_ms").alias("first_ms"),
        F.max("end_ms").alias("last_ms"),
        F.max_by(curve, F.struct("largest_backlog", "topic_partition")).alias("largest"),
    )


def _works(summaries: DataFrame) -> DataFrame:
    each = summaries.select(_PLAN, F.explode("consumers").alias("one")).select(_PLAN, "one.*")
    return each.groupBy(_PLAN, "consumer").agg(
        F.sum("deliveries").alias("deliveries"), F.sum("busy_ms").alias("busy_ms")
    )


def _figures(outcome: PlanOutcome, plan: Group, sums: Row, works: Mapping[str, Row], moves: list[Row]) -> PlanFigures:
    first: int = sums["first_ms"] or 0
    return PlanFigures(
        outcome=outcome,
        stopped=sums["stopped"],
        span_ms=(sums["last_ms"] or 0) - first,
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


def _plus_moved(total: Column, change: Column) -> Column:
    return total + change["moved"]
