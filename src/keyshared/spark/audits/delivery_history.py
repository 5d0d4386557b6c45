"""Delivery logs as histories: one row for each delivery becomes what happened, in order. All of it is native.

A delivery log says when deliveries started and ended and when messages were settled. When messages were published it
does not say, only their offsets do: a message was there when it or a newer one was delivered first. It is said to be
published just before that, the latest moment there is, so that what the checker keeps in memory is what was outstanding
and not the whole log. No promise is judged otherwise for that: what holds a message back are older ones of its key, and
those are there in time.

Both frames are read once, together: of a log that grows between two reads a history would tell half of it twice.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.audits.delivery_log import (
    check_deliveries,
    check_offered,
    place_of_message,
    rules_of_deliveries,
    rules_of_offered,
)
from keyshared.spark.frames.checks import check_columns, column_names
from keyshared.spark.frames.rules import Rule
from keyshared.testing.guarantees import Guarantees
from keyshared.testing.rows import HISTORY_VERSION

__all__ = ["DELIVERY_GUARANTEES", "delivery_history", "history_of"]

DELIVERY_GUARANTEES: Final = Guarantees(promises={"one-holder", "key-order", "no-loss", "fence"})
"""What a delivery log can show: it tells nothing of cursors, limits, and who was there."""

# At one position, ends come before settlements and those before starts: deliveries are half-open.
_END: Final = 0
_SETTLED: Final = 1
_PUBLISHED: Final = 2
_DONE: Final = 3
_DELIVERED: Final = 4
_LEFT_OPEN: Final = 5
_PRESENT: Final = 6
_AT_REST: Final = 7

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
_OPTIONAL: Final = {"outcome": ("string",), "delivered_ms": _MILLIS, "ended_ms": _MILLIS}
_READ: Final = {
    "topic_partition": "string",
    "offset": "bigint",
    "key": "binary",
    "consumer": "string",
    "attempt": "bigint",
    "sequence": "bigint",
    "end_sequence": "bigint",
    "settled_sequence": "bigint",
    "outcome": "string",
    "delivered_ms": "bigint",
    "ended_ms": "bigint",
}
_BEFORE_ALL: Final = -(1 << 63)  # a position
_ANYBODY: Final = "(anybody)"
_OVER: Final = "the history is over"


class _Only(Protocol):
    """What leaves out a part of the rows; see `keyshared.spark.audits.screen`."""

    def __call__(self, rows: DataFrame, *, is_over: bool) -> DataFrame: ...


def delivery_history(deliveries: DataFrame, *, offered: DataFrame | None = None) -> DataFrame:
    """Write a delivery log as histories, one for each topic-partition, for `keyshared.spark.audit`.

    Of a delivery come ``delivered`` and what ended it: ``acked`` where it settled its message, else ``nacked``,
    ``expired`` or ``released``, as the outcome says. What was settled later (a late ack, a dead letter, a policy) is
    ``settled`` by the ``operator``, for the log does not say why; if the message had gone out again by then it is
    ``acked``, by the delivery in whose row it stands. With ``offered``, what never ended is ``released`` at the end,
    and the history ends ``at_rest`` with somebody there who would take anything: what is outstanding then is lost.

    Args:
        deliveries: As for `check_order`. ``outcome``, ``delivered_ms`` and ``ended_ms`` are used if they are there.
        offered: As for `check_order`; with a key it is the message's, without one that of its first delivery. None:
            every message that was delivered was offered, and the history is not over.

    Returns:
        Columns of a history, with ``sequence`` counting from 0 in each topic-partition, so that it is the position that
        a proof names, and ``x_position``: the position in the delivery log, NULL at the end of the history.

    Raises:
        ArgumentError: A column is missing or of another type. No job was started. The job fails on rows that cannot be
            used, see `check_order`; the error counts them and shows one.

    Complexity:
        One shuffle and two sorts; a topic-partition is worked on by one task.

    Example:
        >>> columns = "topic_partition string, offset long, key string, consumer string, attempt int, sequence long, "
        >>> columns += "end_sequence long, settled_sequence long"
        >>> delivered = spark.createDataFrame([("p", 0, "k", "ann", 1, 0, 2, 2)], columns)
        >>> [row.happening for row in delivery_history(delivered).orderBy("sequence").collect()]
        ['published', 'delivered', 'acked']
    """
    return history_of(deliveries, offered).drop("x_key")


def history_of(
    deliveries: DataFrame, offered: DataFrame | None, *, only: _Only | None = None, with_outcomes: bool = True
) -> DataFrame:
    """Write a delivery log, or a part of it, as histories.

    Args:
        deliveries: See `delivery_history`.
        offered: See `delivery_history`.
        only: What leaves out a part of the rows. None: nothing does.
        with_outcomes: Whether ``outcome``, ``delivered_ms`` and ``ended_ms`` are looked at.

    Returns:
        The columns of `delivery_history`, and ``x_key``: the key of the message that a row names. The rows of a
        topic-partition stand together, in order.

    Raises:
        ArgumentError: See `delivery_history`.
    """
    check_deliveries(deliveries)
    there = column_names(deliveries) if with_outcomes else set()
    check_columns(deliveries, {name: kinds for name, kinds in _OPTIONAL.items() if name in there})
    if offered is not None:
        check_offered(offered)
    is_over = offered is not None
    has_keys = offered is not None and "key" in column_names(offered)
    rows = _usable(_of_log(deliveries, there), rules_of_deliveries())
    if offered is not None:
        rows = rows.unionByName(_usable(_of_offered(offered, has_keys=has_keys), rules_of_offered()))
    known = _looked_up(rows, is_over=is_over, has_keys=has_keys)
    if only is not None:
        whole = Window.partitionBy("topic_partition")
        known = only(known, is_over=is_over)
        known = known.withColumns({name: least.over(whole) for name, least in _lowest().items()})
    told = _told(known, is_over=is_over)
    in_order = Window.partitionBy("topic_partition").orderBy(
        F.col("position").asc_nulls_last(), "rank", "offset", "attempt", "consumer", "happening", "x_key"
    )
    return told.select(
        "topic_partition",
        (F.row_number().over(in_order) - 1).cast("bigint").alias("sequence"),
        F.lit(HISTORY_VERSION).alias("version"),
        *(name for name in _TYPES if name not in {"position", "rank"}),
        F.col("position").alias("x_position"),
        "x_key",
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


def _of_log(deliveries: DataFrame, there: set[str]) -> DataFrame:
    """The deliveries as far as they are told, with NULL where a column is missing."""
    columns = [F.col(name).cast(kind).alias(name) for name, kind in _READ.items() if name not in _OPTIONAL]
    optional = [
        (F.col(name) if name in there else _nothing()).cast(kind).alias(name)
        for name, kind in _READ.items()
        if name in _OPTIONAL
    ]
    return deliveries.select(*columns, *optional, F.lit(False).alias("_said"))


def _of_offered(offered: DataFrame, *, has_keys: bool) -> DataFrame:
    """What was offered, as rows beside the deliveries."""
    known = ("topic_partition", "offset", "key") if has_keys else ("topic_partition", "offset")
    columns = [(F.col(name) if name in known else _nothing()).cast(kind).alias(name) for name, kind in _READ.items()]
    return offered.select(*columns, _true().alias("_said"))


def _usable(rows: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Put rows that cannot be told into a topic-partition of nobody's, where they are counted: see `_looked_up`."""
    broken = [F.when(rule.wrong, rule.said(place_of_message())) for rule in rules]
    marked = rows.withColumn("_broken", F.coalesce(*broken))
    return marked.withColumn("topic_partition", F.when(F.col("_broken").isNull(), F.col("topic_partition")))


def _looked_up(rows: DataFrame, *, is_over: bool, has_keys: bool) -> DataFrame:
    """Each row with what is known of its message: all of them go by once, from the newest message to the oldest.

    ``_first`` is the position at which it or a newer one was delivered first, ``_first_row`` and ``_last_row`` whether
    this is its first or last row, ``_again`` when it went out after this delivery, ``_own_key`` its key, and ``_odd``
    whether it has two keys or was never offered; ``_lowest`` is that of the topic-partition. What was offered comes
    behind its deliveries.

    All windows are alike, because each further one holds the topic-partition once more. So it is the last of the broken
    rows that fails, which has counted them.
    """
    positions = ("sequence", "end_sequence", "settled_sequence", "attempt", "consumer")  # so that no two rows are alike
    by_message = Window.partitionBy("topic_partition").orderBy(
        F.desc("offset"),
        "_said",
        *positions,
        F.col("key").desc_nulls_first(),  # offered is the least, as the last one
    )
    so_far = by_message.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = by_message.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    beside = F.struct("offset", "key", "_said", "sequence")
    looked = rows.withColumns(
        {
            "_first": F.min("sequence").over(so_far),
            "_row_before": F.lag(beside).over(by_message),
            "_row_after": F.lead(beside).over(by_message),
            "_rows": F.row_number().over(by_message),
            "_first_broken": F.first("_broken").over(so_far),
            **{name: least.over(whole) for name, least in _lowest().items()},
        }
    )
    before, after = F.col("_row_before"), F.col("_row_after")
    counted = F.concat(F.col("_first_broken"), F.lit("; rows that cannot be used: "), F.col("_rows").cast("string"))
    fails = after.isNull() & F.raise_error(counted).cast("boolean")
    usable = F.col("_broken").isNull() | F.coalesce(fails, F.lit(False))
    is_first, is_last = (~each["offset"].eqNullSafe(F.col("offset")) for each in (before, after))
    other_key = ~is_first & ~before["key"].eqNullSafe(F.col("key")) & (F.lit(has_keys) | ~F.col("_said"))
    looked = looked.filter(usable).withColumns(
        {
            "_first_row": is_first,
            "_last_row": is_last,
            "_again": F.when(~is_last & ~after["_said"], after["sequence"]),
            "_odd": other_key | (F.lit(is_over) & is_last & ~F.col("_said")),
        }
    )
    first_key = F.last(F.when(F.col("_first_row"), F.struct("key")), ignorenulls=True).over(so_far)["key"]
    return looked.withColumn("_own_key", F.col("key") if has_keys else first_key)


def _lowest() -> dict[str, Column]:
    offered = F.when(F.col("_said"), F.col("offset"))
    return {"_lowest": F.min("offset"), "_lowest_offered": F.min(offered)}


def _told(rows: DataFrame, *, is_over: bool) -> DataFrame:
    """What each row tells: of a delivery its start, its end, and a settlement after it; of the last of a message that.

    A message is published just before it or a newer one goes out; the first one before everything, so that there is a
    log. If the lowest of a topic-partition was not offered, the offset below is told of as done before everything: what
    is lower than all that was published would pass for older than the history. Below 0 there is none: message 0 itself
    is done then, and only its first delivery is told, which cannot be.
    """
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
    is_late = F.coalesce(F.col("_again") < settled, F.lit(False))
    later = F.when(is_late, _event(_SETTLED, "acked", settled, counted=_true(), **delivery)).otherwise(
        _event(_SETTLED, "settled", settled, offset=F.col("offset"), reason=F.lit("operator"))
    )
    open_at_the_end = _event(_LEFT_OPEN, "released", _nothing(), reason=F.lit(_OVER), **delivery)
    is_delivery, is_offered = ~F.col("_said"), F.col("_said") | F.lit(not is_over)
    rows = rows.withColumns(
        {
            "_is_lowest": F.col("_last_row") & (F.col("offset") == F.col("_lowest")),
            # NULL: nothing was offered
            "_stands_in": F.lit(is_over) & ~F.coalesce(F.col("_lowest_offered") == F.col("_lowest"), F.lit(False)),
        }
    )
    is_lowest, stands_in = F.col("_is_lowest"), F.col("_stands_in")
    is_whole = ~(stands_in & (F.col("offset") == 0))
    position = F.when(is_lowest, F.lit(_BEFORE_ALL)).otherwise(F.col("_first"))
    published = _event(_PUBLISHED, "published", position, offset=F.col("offset"), key=F.col("_own_key"))
    ends = is_delivery & is_whole
    events = [
        F.when(
            is_delivery & (is_whole | F.col("_first_row")),
            _event(_DELIVERED, "delivered", F.col("sequence"), at_ms=F.col("delivered_ms"), **message),
        ),
        F.when(ends & end.isNotNull(), ended),
        F.when(ends & settled.isNotNull() & ~settled.eqNullSafe(end), later),
        F.when(F.col("_last_row") & is_offered, published),
    ]
    if is_over:
        below = F.greatest(F.lit(0), F.col("offset") - 1)
        before = F.lit(_BEFORE_ALL)
        present = _event(_PRESENT, "connected", _nothing(), consumer=F.lit(_ANYBODY))
        at_rest = _event(_AT_REST, "at_rest", _nothing())
        events.append(F.when(ends & end.isNull(), open_at_the_end))
        events += [F.when(is_lowest, event) for event in (present, at_rest)]
        events += [
            F.when(is_lowest & stands_in, event)
            for event in (
                _event(_PUBLISHED, "published", before, offset=below),
                _event(_DONE, "settled", before, offset=below, reason=F.lit("operator")),
            )
        ]
    own_key = F.when(F.col("_said"), F.col("_own_key")).otherwise(F.col("key")).alias("x_key")
    return rows.select("topic_partition", own_key, F.inline(F.array_compact(F.array(*events))))
