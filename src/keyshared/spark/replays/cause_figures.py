"""From the delivery log of a replay to who or what made messages wait, in native Spark.

What comes to the driver is bounded by the plan and by how many keys and slots are wanted, never by the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.simulate.group import Group
from keyshared.spark.frames.tables import frame_of
from keyshared.spark.keystats.histogram import key_histogram
from keyshared.spark.pages.page import as_text
from keyshared.spark.plans.load import held_of_key
from keyshared.spark.replays.cause_report import HotKey, HotSlot, MembershipChange
from keyshared.spark.replays.detail_report import key_anchor

__all__ = ["HotKeys", "hot_keys", "hot_slots", "percentile", "with_waits"]

_DETAILED: Final = 20  # keys with a part of their own
_ACCURACY: Final = 10_000  # of percentile_approx: ranks are right to one in 10,000


class HotKeys(NamedTuple):
    """Keys to look at.

    Attributes:
        hottest: Those with most messages.
        waited: Those that waited most.
        detailed: Those of them that have a part of the page, in the order of their anchors.
    """

    hottest: tuple[HotKey, ...]
    waited: tuple[HotKey, ...]
    detailed: tuple[bytes, ...]


def percentile(percent: int) -> Column:
    """Return the wait that so many deliveries in a hundred do not exceed."""
    return F.percentile_approx("wait_ms", percent / 100, _ACCURACY)


def hot_keys(deliveries: DataFrame, count: int, plan: Group) -> HotKeys:
    """Find the keys with most messages and those that waited most; runs up to three jobs.

    Args:
        deliveries: The delivery log.
        count: How many of each are wanted.
        plan: What was replayed.

    Returns:
        Both, of equal ones the smaller key first.
    """
    since = F.col("delivered_ms") - F.col("wait_ms")
    # each topic-partition has a dispatcher of its own, and what a key needs is needed there
    per_lane = (
        deliveries.filter("key is not null")
        .groupBy("topic_partition", "key")
        .agg(
            F.count_if(F.col("attempt") == 1).alias("messages"),
            F.sum("wait_ms").alias("wait_ms"),
            F.sum(F.coalesce("ended_ms", "delivered_ms") - F.col("delivered_ms")).alias("held_ms"),
            (F.max(F.when(F.col("attempt") == 1, since)) - F.min(since)).alias("arrivals_ms"),
        )
    )
    span = F.struct("held_ms", "arrivals_ms")
    needs_most = F.max_by(span, F.when(F.col("arrivals_ms") > 0, F.col("held_ms") / F.col("arrivals_ms")))
    per_key = (
        per_lane.groupBy("key")
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("wait_ms").alias("wait_ms"),
            F.coalesce(needs_most, F.max(span)).alias("lane"),
        )
        .select("key", "messages", "wait_ms", "lane.*")
    )
    hottest = per_key.orderBy(F.desc("messages"), "key").limit(count).collect()
    waited = per_key.filter("wait_ms > 0").orderBy(F.desc("wait_ms"), "key").limit(count).collect()
    detailed = tuple(dict.fromkeys(bytes(row["key"]) for row in [*waited, *hottest]))[:_DETAILED]
    anchors = {key: key_anchor(number) for number, key in enumerate(detailed)}
    found = {
        key: replace(hot, at_once=_most_held(plan, key, hot.owners))
        for key, hot in _looked_up(deliveries, [*hottest, *waited], anchors).items()
    }
    return HotKeys(
        hottest=tuple(found[bytes(row["key"])] for row in hottest),
        waited=tuple(found[bytes(row["key"])] for row in waited),
        detailed=detailed,
    )


def hot_slots(deliveries: DataFrame, count: int) -> tuple[HotSlot, ...]:
    """Find the bucket hashes whose messages waited most; runs a job.

    Args:
        deliveries: The delivery log.
        count: How many are wanted.

    Returns:
        Those that waited at all, of equal ones the lower first.
    """
    slots = key_histogram(deliveries, weight="wait_ms").filter("slot is not null and weight > 0")
    return tuple(
        HotSlot(
            slot=row["slot"],
            wait_ms=row["weight"],
            deliveries=row["messages"],
            keys=row["keys"],
            hot_key=as_text(bytes(row["hot_key"])),
            hot_wait_ms=row["hot_weight"],
        )
        for row in slots.orderBy(F.desc("weight"), "slot").limit(count).collect()
    )


def with_waits(
    changes: Sequence[MembershipChange], deliveries: DataFrame, first_ms: int
) -> tuple[MembershipChange, ...]:
    """Add to each change of membership how long messages waited after it; runs a job if there are changes.

    Args:
        changes: In order of time.
        deliveries: The delivery log.
        first_ms: When the replay began.

    Returns:
        The same changes. Of several at one instant the last one has what came after them.
    """
    if not changes:
        return ()
    starts = F.array(*(F.lit(first_ms + change.at_ms).cast("bigint") for change in changes))
    since = F.col("delivered_ms") - F.col("wait_ms")
    begun = F.size(F.filter(starts, lambda start: start <= since))
    rows = (
        deliveries.groupBy((begun - 1).alias("number"))
        .agg(F.sum("wait_ms").alias("wait_ms"), percentile(99).alias("p99"))
        .collect()
    )
    after = {row["number"]: row for row in rows}
    return tuple(
        replace(change, wait_ms=after[number]["wait_ms"], p99_ms=after[number]["p99"]) if number in after else change
        for number, change in enumerate(changes)
    )


def _most_held(plan: Group, key: bytes, owners: Sequence[str]) -> float:
    held = held_of_key(plan, key)
    return max(held.get(owner, 1) for owner in owners)  # a log may name somebody that the plan does not know


def _looked_up(deliveries: DataFrame, keys: Sequence[Row], anchors: Mapping[bytes, str]) -> dict[bytes, HotKey]:
    """Find who had each of these keys, and how long it waited."""
    if not keys:
        return {}
    wanted = {bytes(row["key"]): row for row in keys}
    table = pa.table({"key": pa.array(list(wanted), pa.binary())})
    rows = (
        deliveries.join(F.broadcast(frame_of(deliveries.sparkSession, table)), "key")
        .rollup("key", "consumer")
        .agg(F.min("delivered_ms").alias("first_ms"), percentile(99).alias("p99"))
        .filter("key is not null")
        .orderBy("first_ms", "consumer")
        .collect()
    )
    waits = {bytes(row["key"]): row["p99"] for row in rows if row["consumer"] is None}
    owners: dict[bytes, list[str]] = {}
    for row in rows:
        if row["consumer"] is not None:
            owners.setdefault(bytes(row["key"]), []).append(row["consumer"])
    return {
        key: HotKey(
            key=as_text(key),
            messages=row["messages"],
            owners=tuple(owners[key]),
            wait_p99_ms=waits[key],
            wait_ms=row["wait_ms"],
            held_ms=row["held_ms"],
            arrivals_ms=row["arrivals_ms"] or 0,
            anchor=anchors.get(key, ""),
        )
        for key, row in wanted.items()
    }
