"""Delivery logs as histories: one row for each delivery becomes what happened, in order. All of it is native.

A delivery log says when deliveries started and ended and when messages were settled. When messages were published it
does not say, only their offsets do: a message was there when it or a newer one was delivered first. It is said to be
published just before that, the latest moment there is, so that what the checker keeps in memory is what was outstanding
and not the whole log. No promise is judged otherwise for that: what holds a message back are older ones of its key, and
those are there in time.
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.columns import check_columns
from keyshared.spark.order import PROMISES, check_deliveries, check_offered
from keyshared.testing.guarantees import Guarantees
from keyshared.testing.rows import HISTORY_VERSION

__all__ = ["DELIVERY_GUARANTEES", "delivery_history"]

DELIVERY_GUARANTEES: Final = Guarantees(promises=frozenset(PROMISES))
"""What a delivery log can show: it tells nothing of cursors, limits, and who was there."""

# At one position, ends come before settlements and those before starts: deliveries are half-open.
_END: Final = 0
_SETTLED: Final = 1
_PUBLISHED: Final = 2
_DELIVERED: Final = 3
_LEFT_OPEN: Final = 4
_PRESENT: Final = 5
_AT_REST: Final = 6

_TYPES: Final = {
    "position": "bigint",
    "rank": "int",
    "happening": "string",
    "at_ms": "bigint",
    "offset": "bigint",
    "key": "binary",
    "consumer": "string",
    "attempt": "bigint",
    "counted": "boolean",
    "reason": "string",
}
_MILLIS: Final = ("bigint", "int")
_BEFORE_ALL: Final = -(1 << 63)
_ANYBODY: Final = "(anybody)"
_OVER: Final = "the history is over"


def delivery_history(deliveries: DataFrame, *, offered: DataFrame | None = None) -> DataFrame:
    """Write a delivery log as histories, one for each topic-partition, for `keyshared.spark.audit.audit`.

    Of a delivery come ``delivered`` and what ended it: ``acked`` where it settled its message, else ``nacked``,
    ``expired`` or ``released``, as the outcome says. What was settled later (a late ack, a dead letter, a policy) is
    ``settled`` by the ``operator``, for the log does not say why. With ``offered``, what never ended is ``released`` at
    the end, and the history ends ``at_rest`` with somebody there who would take anything: what is outstanding then is
    lost.

    Args:
        deliveries: As for `check_order`. ``outcome``, ``delivered_ms`` and ``ended_ms`` are used if they are there.
        offered: As for `check_order`; with a key it is the message's, without one that of its first delivery. None:
            every message that was delivered was offered, and the history is not over.

    Returns:
        Columns of a history, with ``sequence`` counting from 0 in each topic-partition, so that it is the position that
        a proof names, and ``x_position``: the position in the delivery log, NULL at the end of the history.

    Raises:
        ConfigError: A column is missing or of another type. No job was started.

    Complexity:
        Two shuffles and sorts; a topic-partition is numbered by one task.

    Example:
        >>> columns = "topic_partition string, offset long, key string, consumer string, attempt int, sequence long, "
        >>> columns += "end_sequence long, settled_sequence long"
        >>> delivered = spark.createDataFrame([("p", 0, "k", "ann", 1, 0, 2, 2)], columns)
        >>> [row.happening for row in delivery_history(delivered).orderBy("sequence").collect()]
        ['published', 'delivered', 'acked']
    """
    check_deliveries(deliveries)
    optional = {"outcome": ("string",), "delivered_ms": _MILLIS, "ended_ms": _MILLIS}
    there = {name.casefold() for name in deliveries.columns}
    check_columns(deliveries, {name: kinds for name, kinds in optional.items() if name in there})
    if offered is not None:
        check_offered(offered)
    # one by one: Connect refuses to add no columns at all
    missing = (name for name in optional if name not in there)
    log = reduce(lambda frame, name: frame.withColumn(name, _nothing()), missing, deliveries)
    parts = [_of_deliveries(log, is_over=offered is not None), _published(log, offered)]
    if offered is not None:
        parts.append(_the_end(offered))
    in_order = Window.partitionBy("topic_partition").orderBy(
        F.col("position").asc_nulls_last(), "rank", "offset", "attempt", "consumer"
    )
    return reduce(DataFrame.unionByName, parts).select(
        "topic_partition",
        (F.row_number().over(in_order) - 1).cast("bigint").alias("sequence"),
        F.lit(HISTORY_VERSION).alias("version"),
        *(name for name in _TYPES if name not in {"position", "rank"}),
        F.col("position").alias("x_position"),
    )


def _nothing() -> Column:
    return F.lit(None)


def _true() -> Column:
    return F.lit(True)


def _event(rank: int, happening: Column | str, position: Column, **fields: Column) -> Column:
    """One row of a history, as a struct."""
    name = F.lit(happening) if isinstance(happening, str) else happening
    values = {"position": position, "rank": F.lit(rank), "happening": name, **fields}
    return F.struct(*(values.get(each, _nothing()).cast(kind).alias(each) for each, kind in _TYPES.items()))


def _of_deliveries(log: DataFrame, *, is_over: bool) -> DataFrame:
    """What each delivery tells: its start, its end, and a settlement after its end."""
    message = {name: F.col(name) for name in ("offset", "key", "consumer", "attempt")}
    delivery = {name: column for name, column in message.items() if name != "key"}
    end, settled = F.col("end_sequence"), F.col("settled_sequence")
    how = (
        F.when(settled == end, "acked")
        .when(F.col("outcome").isin("nacked", "rejected"), "nacked")
        .when(F.col("outcome") == "timed_out", "expired")
        .otherwise("released")
    )
    ended = _event(
        _END,
        how,
        end,
        at_ms=F.col("ended_ms"),
        counted=F.when(how.isin("acked", "nacked"), _true()),
        reason=F.when(how == "released", F.col("outcome")),
        **delivery,
    )
    later = _event(_SETTLED, "settled", settled, offset=F.col("offset"), reason=F.lit("operator"))
    open_at_the_end = _event(_LEFT_OPEN, "released", _nothing(), reason=F.lit(_OVER), **delivery)
    told = F.array_compact(
        F.array(
            _event(_DELIVERED, "delivered", F.col("sequence"), at_ms=F.col("delivered_ms"), **message),
            F.when(end.isNotNull(), ended),
            F.when(settled.isNotNull() & ~settled.eqNullSafe(end), later),
            F.when(end.isNull() & F.lit(is_over), open_at_the_end),
        )
    )
    return log.select("topic_partition", F.inline(told))


def _published(log: DataFrame, offered: DataFrame | None) -> DataFrame:
    """Each message just before it or a newer one goes out; the first one before everything, so that there is a log."""
    names = ("topic_partition", "offset", "key")
    messages = log.select(*names, F.col("sequence").alias("first"), F.lit(offered is None).alias("offered"))
    key = F.min_by("key", "first")
    if offered is not None:
        has_keys = "key" in {name.casefold() for name in offered.columns}
        said = offered.select(
            "topic_partition",
            "offset",
            (F.col("key") if has_keys else _nothing()).cast("binary").alias("key"),
            F.lit(None).cast("bigint").alias("first"),
            _true().alias("offered"),
        )
        messages = messages.withColumn("key", F.col("key").cast("binary")).unionByName(said)
        key = F.min(F.when(F.col("offered"), F.col("key"))) if has_keys else key
    of_topic = Window.partitionBy("topic_partition")
    newer = of_topic.orderBy(F.desc("offset")).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    lowest = F.min(F.when(F.col("offered"), F.col("offset"))).over(of_topic)
    return (
        messages.groupBy("topic_partition", "offset")
        .agg(F.min("first").alias("first"), F.bool_or("offered").alias("offered"), key.alias("key"))
        .withColumns({"first": F.min("first").over(newer), "is_lowest": F.col("offset") == lowest})
        .filter("offered")
        .withColumn("position", F.when(F.col("is_lowest"), F.lit(_BEFORE_ALL)).otherwise(F.col("first")))
        .select(
            "topic_partition",
            _event(_PUBLISHED, "published", F.col("position"), offset=F.col("offset"), key=F.col("key")).alias("event"),
        )
        .select("topic_partition", "event.*")
    )


def _the_end(offered: DataFrame) -> DataFrame:
    present = _event(_PRESENT, "connected", _nothing(), consumer=F.lit(_ANYBODY))
    at_rest = _event(_AT_REST, "at_rest", _nothing())
    return offered.select("topic_partition").distinct().select("topic_partition", F.inline(F.array(present, at_rest)))
