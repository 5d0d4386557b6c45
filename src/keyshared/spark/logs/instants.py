"""Values of a time column as milliseconds, in Spark: what `keyshared.spark.logs.times.read_ms` says in Python."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.frames.checks import parts_of, quoted
from keyshared.spark.logs.times import ISO, MS_OF

__all__ = ["exact_ms", "in_63_bits"]

_NUMBER: Final = "decimal(28,9)"  # 19 digits before the point, as a bigint, and nanoseconds of a second behind it
_FACTOR: Final = "decimal(14,6)"
_MINUTES: Final = r"^(.{16})(Z|[+-].*)?$"  # no seconds: Spark reads no zone after minutes
_ZONED: Final = r"(Z|[+-]\d\d:?\d\d)$"  # of more than a date


def exact_ms(column: str, time: str) -> Column:
    """Return the milliseconds since 1970 that a value means, with what is finer than a millisecond.

    Args:
        column: The name of a column of numbers or text.
        time: One of `keyshared.spark.logs.times.TIMES`.

    Returns:
        A decimal; NULL where the value means none.
    """
    if time in MS_OF:
        name = ".".join(map(quoted, parts_of(column)))
        # as SQL: columns have no method for it before Spark 4.0
        return F.expr(f"try_cast({name} as {_NUMBER})") * F.lit(MS_OF[time]).cast(_FACTOR)
    text = F.trim(F.col(column).cast("string"))
    if time == "iso":
        zone = F.when(F.length(text) == len("2025-01-01"), "T00:00:00Z").when(text.rlike(_ZONED), "").otherwise("Z")
        found = F.when(text.rlike(ISO), F.concat(F.regexp_replace(text, _MINUTES, "$1:00$2"), zone))
    else:
        days = F.concat_ws("-", F.substring(text, 1, 4), F.substring(text, 5, 2), F.substring(text, 7, 2))
        found = F.when(text.rlike(r"^\d{8}$"), F.concat(days, F.lit("T00:00:00Z")))
    return F.unix_micros(F.try_to_timestamp(found)).cast(_NUMBER) * F.lit("0.001").cast(_FACTOR)


def in_63_bits(value: Column) -> Column:
    """Return whole numbers as bigint; NULL where they are too large for it.

    Args:
        value: A column of decimals without a fraction.
    """
    return F.when(value.between(-(1 << 63), (1 << 63) - 1), value.cast("bigint"))
