"""From the delivery log of a replay to what was done when, in native Spark.

What comes to the driver is bounded by the plan: two rows for each consumer and interval of time.
"""

from collections import Counter
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.replays.flow_report import Flow, Work
from keyshared.spark.replays.intervals import ALL, CONSUMER, Replayed, Sums, means
from keyshared.spark.replays.presence import everybody

__all__ = ["flow"]

_DONE: Final = "done"
_AGAIN: Final = "again"
_ALL_NAME: Final = "all"


def flow(deliveries: DataFrame, replayed: Replayed, sums: Sums) -> Flow:
    """Count what was done in each interval of time; runs a job over the deliveries.

    Args:
        deliveries: The delivery log.
        replayed: The time of the replay.
        sums: What `keyshared.spark.replays.intervals.interval_sums` gave for it.

    Returns:
        The figures. The last interval has its end, too.
    """
    done = F.when(F.col("outcome") == "acked", _event(_DONE, "ended_ms"))
    again = F.when(F.col("attempt") > 1, _event(_AGAIN, "delivered_ms"))
    since = F.col("event.at_ms") - replayed.first_ms
    number = F.least(F.floor(since / replayed.width_ms), F.lit(max(0, replayed.intervals - 1)))
    rows = (
        deliveries.select("consumer", F.explode(F.array(done, again)).alias("event"))
        .filter("event is not null")
        .groupBy("consumer", F.col("event.what").alias("what"), number.alias("number"))
        .count()
        .collect()
    )
    counts: Counter[tuple[str | None, str, int]] = Counter()
    for row in rows:
        for name in (row["consumer"], None):
            counts[name, row["what"], row["number"]] += row["count"]
    numbers = range(max(replayed.intervals, 1) if rows else replayed.intervals)

    def work(name: str | None) -> Work:
        of = (ALL, "") if name is None else (CONSUMER, name)
        found = {
            what: tuple((number * replayed.width_ms, counts[name, what, number]) for number in numbers)
            for what in (_DONE, _AGAIN)
        }
        return Work(
            name=_ALL_NAME if name is None else name,
            done=found[_DONE],
            again=found[_AGAIN],
            unacked=means("held", *of, sums, replayed),
        )

    return Flow(
        width_ms=replayed.width_ms,
        everybody=work(None),
        consumers=tuple(work(name) for name in everybody(replayed.plan)),
    )


def _event(what: str, at_ms: str) -> Column:
    return F.struct(F.lit(what).alias("what"), F.col(at_ms).alias("at_ms"))
