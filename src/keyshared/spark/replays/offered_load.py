"""How much of what its consumers can do a log asks of a plan, in native Spark: a sum for each key, and no replay."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import StringType

from keyshared._checks import check_kind
from keyshared.simulate.group import Group
from keyshared.spark.frames.checks import WHOLE, check_columns, check_key, type_of
from keyshared.spark.frames.rules import Rule, count_wrong, place_of, refuse, text_for_python, whole_ms
from keyshared.spark.pages.page import as_text
from keyshared.spark.plans.load import (
    Cost,
    OfferedLoad,
    TopicPartitionLoad,
    Work,
    asks_each_message,
    key_costs,
    load_of,
    mean_ms_of,
)

__all__ = ["offered_load", "offered_loads"]

_PLAN: Final = "plan"


def offered_load(
    df: DataFrame,
    plan: Group,
    *,
    topic_partition: str = "topic_partition",
    key: str = "key",
    at_ms: str = "at_ms",
    service_ms: str | None = None,
) -> OfferedLoad:
    """Compute how much of what its consumers can do a log asks of a plan: why waits are endless, before they are.

    A key above 1 means that its messages, one after the other, take longer than the log lasts, however many
    consumers there are. A topic-partition above 1 means that all consumers together are too few. Redeliveries
    and uneven shares are left out, so a replay can only do worse.

    Args:
        df: The log, one row for each message.
        plan: The consumers.
        topic_partition: String column; no NULL.
        key: String or binary column; NULL for a message without a key.
        at_ms: Column of whole milliseconds from 0, no NULL: when messages arrive.
        service_ms: Column of whole milliseconds from 0: how long a message takes, for `PerMessage`; NULL if it does not
            say. Where the plan has no ``default_ms`` for such a message, it counts as 0 ms, `OfferedLoad.untold` counts
            it, and a replay refuses it.

    Returns:
        The load of each topic-partition and of its hottest key.

    Raises:
        ArgumentError: A column is missing or of another type; messages do not arrive at a time of their own
            (`Pace.BACKLOG`); or a service time is none of `keyshared.simulate`: no job was started. Or a column has
            NULL or negative values where it must not.

    Complexity:
        One shuffle of a row for each key and Spark partition; another such job where a key has more work than a
        consumer can do. The driver gets a row for each topic-partition.

    Example:
        >>> from keyshared.simulate import SimulatedConsumer, Fixed
        >>> plan = Group(consumers=[SimulatedConsumer(name, Fixed(20)) for name in "abcd"])
        >>> log = spark.range(101).selectExpr("'p' topic_partition", "'k' || least(id % 5, 1) key", "id * 10 at_ms")
        >>> found = offered_load(log, plan)
        >>> round(found.load, 2), round(found.key_load, 2), found.topic_partitions[0].hottest
        (0.51, 1.6, 'k1')
    """
    return offered_loads(
        df, {_PLAN: plan}, topic_partition=topic_partition, key=key, at_ms=at_ms, service_ms=service_ms
    )[_PLAN]


def offered_loads(
    df: DataFrame,
    plans: Mapping[str, Group],
    *,
    topic_partition: str = "topic_partition",
    key: str = "key",
    at_ms: str = "at_ms",
    service_ms: str | None = None,
) -> dict[str, OfferedLoad]:
    """Compute the load of several plans at once, see `offered_load`.

    Args:
        df: As there.
        plans: Plans by name.
        topic_partition: As there.
        key: Likewise.
        at_ms: Likewise.
        service_ms: Likewise.

    Returns:
        The load of each plan.
    """
    for name, plan in plans.items():
        check_kind(f"plan {name!r}", plan, Group)
    costs = [key_costs(plan) for plan in plans.values()]
    check_columns(df, {topic_partition: ("string",), at_ms: WHOLE, **({service_ms: WHOLE} if service_ms else {})})
    check_key(df, key)
    own = F.lit(None).cast("bigint") if service_ms is None else F.col(service_ms).cast("bigint")
    rows = df.select(
        F.col(topic_partition).alias("place"),
        F.col(key).alias("key"),
        F.col(at_ms).cast("bigint").alias("at_ms"),
        own.alias("own_ms"),
    )
    rules = [
        text_for_python("topic_partition", topic_partition, F.col("place")),
        whole_ms("at_ms", at_ms, F.col("at_ms")),
        *([whole_ms("service_ms", service_ms, F.col("own_ms"), optional=True)] if service_ms else []),
    ]
    keys = _keys(rows, costs, rules)
    bad = [f"bad_{rule.name}" for rule in rules]
    found = keys.groupBy("place").agg(*_sums(len(costs)), *(F.sum(name).alias(name) for name in bad)).collect()
    counts = {rule.name: sum(row[name] for row in found) for rule, name in zip(rules, bad, strict=True)}
    refuse(rows, rules, counts, place_of({"topic_partition": "place", "at_ms": "at_ms"}))
    span_ms = max((row["last_ms"] for row in found), default=0) - min((row["first_ms"] for row in found), default=0)
    hot = [index for index in range(len(costs)) if any((row[f"most_{index}"] or 0.0) > span_ms for row in found)]
    over = _count_over(keys, hot, span_ms)
    is_text = isinstance(type_of(df, key), StringType)
    return {
        name: _load(plan, index, found, over.get(index, {}), is_text=is_text)
        for index, (name, plan) in enumerate(plans.items())
    }


def _keys(rows: DataFrame, costs: Sequence[Sequence[Cost]], rules: Sequence[Rule]) -> DataFrame:
    """Sum up the messages of each key, and how long each plan's fastest consumer would take with them alone."""
    summed = rows.groupBy("place", "key").agg(
        F.count("*").alias("messages"),
        F.count_if(F.col("own_ms").isNull()).alias("silent"),
        F.coalesce(F.sum(F.col("own_ms").cast("double")), F.lit(0.0)).alias("own_ms"),
        F.min("at_ms").alias("first_ms"),
        F.max("at_ms").alias("last_ms"),
        *count_wrong(rules),
    )
    needs = {f"need_{index}": _least(each) for index, each in enumerate(costs)}
    return summed.withColumns(needs)


def _least(costs: Sequence[Cost]) -> Column:
    """Return the time of the fastest consumer; NULL for messages without a key, which wait for no other."""
    times = [
        cost.each_ms * F.col("messages") + cost.silent_ms * F.col("silent") + cost.factor * F.col("own_ms")
        for cost in costs
    ]
    fastest = F.least(*times) if len(times) > 1 else times[0] if times else F.lit(None).cast("double")
    return F.when(F.col("key").isNotNull(), fastest)


def _sums(plans: int) -> list[Column]:
    sums = [F.sum(name).alias(name) for name in ("messages", "silent", "own_ms")]
    ends = [F.min("first_ms").alias("first_ms"), F.max("last_ms").alias("last_ms")]
    hottest = [
        each
        for index in range(plans)
        for each in (
            F.max(f"need_{index}").alias(f"most_{index}"),
            F.max_by(F.col("key").cast("binary"), F.struct(f"need_{index}", "key")).alias(f"hottest_{index}"),
        )
    ]
    return [*sums, *ends, *hottest]


def _count_over(keys: DataFrame, plans: Sequence[int], span_ms: int) -> dict[int, dict[str, int]]:
    """Count the keys of each topic-partition that take longer than the log lasts, where there are any."""
    if not plans or not span_ms:
        return {}
    counts = (F.count_if(F.col(f"need_{index}") > span_ms).alias(f"over_{index}") for index in plans)
    rows = keys.groupBy("place").agg(*counts).collect()
    return {index: {row["place"]: row[f"over_{index}"] for row in rows} for index in plans}


def _load(plan: Group, index: int, rows: Sequence[Row], over: Mapping[str, int], *, is_text: bool) -> OfferedLoad:
    first_ms = min((row["first_ms"] for row in rows), default=0)
    last_ms = max((row["last_ms"] for row in rows), default=0)
    span_ms = last_ms - first_ms
    untold = sum(row["silent"] for row in rows) if asks_each_message(plan) else 0
    if not span_ms:  # all at once: whatever it takes, there is no time in which it could be done
        return OfferedLoad(span_ms=0, ack_timeout_ms=plan.config.ack_timeout_ms, topic_partitions=(), untold=untold)
    works = {row["place"]: Work(row["messages"], row["silent"], row["own_ms"]) for row in rows}
    found = [
        TopicPartitionLoad(
            topic_partition=row["place"],
            mean_ms=mean_ms_of(plan, works[row["place"]]),
            load=load_of(plan, works[row["place"]], first_ms, last_ms),
            hottest=_key(row[f"hottest_{index}"], is_text=is_text),
            key_load=(row[f"most_{index}"] or 0.0) / span_ms,
            keys_over=over.get(row["place"], 0),
        )
        for row in rows
    ]
    return OfferedLoad(
        span_ms=span_ms,
        ack_timeout_ms=plan.config.ack_timeout_ms,
        topic_partitions=tuple(sorted(found, key=lambda each: (-each.load, each.topic_partition))),
        untold=untold,
    )


def _key(key: bytes | bytearray | None, *, is_text: bool) -> str | None:
    if key is None:
        return None
    if is_text:
        with suppress(UnicodeDecodeError):  # bytes that Spark was told to take for a text
            return key.decode()
    return as_text(bytes(key))
