"""Delivery logs as frames: which columns they have, and what must hold in every row."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.frames.checks import check_columns, check_key, column_names
from keyshared.spark.frames.rules import Rule, never_null, place_of, text_for_python

__all__ = [
    "check_deliveries",
    "check_offered",
    "place_of_message",
    "rules_of_deliveries",
    "rules_of_offered",
]

_DELIVERIES: Final = {
    "topic_partition": ("string",),
    "offset": ("bigint",),
    "key": ("binary", "string"),
    "consumer": ("string",),
    "attempt": ("int", "bigint"),
    "sequence": ("bigint",),
    "end_sequence": ("bigint",),
    "settled_sequence": ("bigint",),
}
_OFFERED: Final = {"topic_partition": ("string",), "offset": ("bigint",)}


def check_deliveries(deliveries: DataFrame) -> None:
    """Check that a frame has the columns of a delivery log that an audit reads.

    Args:
        deliveries: See `check_order`.

    Raises:
        ArgumentError: A column is missing or of another type.
    """
    check_columns(deliveries, _DELIVERIES)


def check_offered(offered: DataFrame) -> None:
    """Check that a frame names messages.

    Args:
        offered: See `check_order`.

    Raises:
        ArgumentError: A column is missing or of another type.
    """
    check_columns(offered, _OFFERED)
    if "key" in column_names(offered):
        check_key(offered, "key")


def rules_of_deliveries() -> list[Rule]:
    """Return what must hold in every row of a delivery log."""
    start, end, settled = (F.col(name) for name in ("sequence", "end_sequence", "settled_sequence"))
    too_early = F.coalesce(end <= start, F.lit(False))
    settled_first = settled.isNotNull() & F.coalesce(settled < end, F.lit(True))
    return [
        text_for_python("topic_partition"),
        *(never_null(name) for name in ("offset", "consumer", "attempt", "sequence")),
        Rule("end_sequence", "end_sequence", end, too_early, "at or before the delivery's own sequence"),
        Rule("settled_sequence", "settled_sequence", settled, settled_first, "before the delivery's end"),
    ]


def rules_of_offered() -> list[Rule]:
    """Return what must hold in every row that names a message."""
    return [
        text_for_python("topic_partition", "topic_partition of offered", F.col("topic_partition")),
        never_null("offset", "offset of offered", F.col("offset")),
    ]


def place_of_message() -> Column:
    """Return a text that says which row of a delivery log it is, or of what was offered."""
    return place_of({"topic_partition": "topic_partition", "offset": "offset"})
