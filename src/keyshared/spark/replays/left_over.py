"""What a plan leaves over on purpose: messages that nobody has settled, or that no delivery has, in native Spark.

A delivery log shows no settlement of them, as it shows none of a message that is lost.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.config.retry import Then
from keyshared.simulate.group import Group

__all__ = ["REDRIVEN", "left_over", "settled_once", "why_unjudged"]

REDRIVEN: Final = "redriven"
"""What `left_over` calls dead letters that came back."""

_QUARANTINED: Final = "quarantined"  # dead letters that may never have gone out
_TOLD: Final = {
    "stopped": "topic-partitions that did not come to rest",
    "skipped": "messages skipped",
    "dropped": "messages dropped",
    REDRIVEN: "dead letters redriven",
    _QUARANTINED: "dead letters, those of keys in quarantine among them",
}


def left_over(summaries: DataFrame, plan: Group) -> dict[str, int]:
    """Count what a plan left over; runs a job over the summaries.

    Args:
        summaries: Rows of `SUMMARY_SCHEMA`.
        plan: What was replayed.

    Returns:
        How many there are of what; nothing if every message went out and was settled once.
    """
    is_quarantine = plan.config.poison.then is Then.QUARANTINE
    [row] = summaries.agg(
        F.count_if(F.col("stop") != "at_rest").alias("stopped"),
        *(F.sum(name).alias(name) for name in ("skipped", "dropped", REDRIVEN)),
        F.sum(F.when(F.lit(is_quarantine), F.col("dead_lettered")).otherwise(0)).alias(_QUARANTINED),
    ).collect()
    return {name: row[name] for name in _TOLD if row[name]}


def why_unjudged(left: Mapping[str, int]) -> str:
    """Return why a delivery log cannot show whether anything is lost, as a part of a sentence.

    Args:
        left: What `left_over` gave, and something is.
    """
    counts = ", ".join(f"{_TOLD[name]}: {count:,}" for name, count in left.items())
    return f"what this plan leaves over cannot be told from what is lost ({counts})"


def settled_once(deliveries: DataFrame) -> DataFrame:
    """Leave out the deliveries of dead letters that came back: an audit takes a message for settled once.

    Args:
        deliveries: The delivery log.

    Returns:
        Its other rows.
    """
    message = Window.partitionBy("topic_partition", "offset")
    settled = deliveries.withColumn("_settled", F.min("settled_sequence").over(message))
    return settled.filter("_settled is null or sequence < _settled").drop("_settled")
