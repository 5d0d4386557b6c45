"""Values of a time column as milliseconds, in Spark: what `keyshared.spark.logs.times.read_ms` says in Python."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.logs.times import ISO, MS_OF

__all__ = ["exact_ms"]

_NUMBER: Final = "decimal(28,9)"  # 19 digits before the point, as a bigint, and nanoseconds of a second behind it
_FACTOR: Final = "decimal(14,6)"
_MINUTES: Final = r"^(.{16})(Z|[+-].*)?$"  # no seconds: Spark reads no zone after minutes
_ZONED: Final = r"(Z|[+-]\d\d:?\d\d)$"  # of more than a date


def exact_ms(value: Column, time: str) -> Column:
    """Return the milliseconds since 1970 that a value means, with what is finer than a millisecond.

    Args:
        value: A column of numbers or text.
        time: One of `keyshared.spark.logs.times.TIMES`.

    Returns:
        A decimal; NULL where the value means none.
    """
    if time in MS_OF:
        return value.try_cast(_NUMBER) * F.lit(MS_OF[time]).cast(_FACTOR)
    text = F.trim(value.cast("string"))
    if time == "iso":
        zone = F.when(F.length(text) == len("2025-01-01"), "T00:00:00Z").when(text.rlike(_ZONED), "").otherwise("Z")
        found = F.when(text.rlike(ISO), F.concat(F.regexp_replace(text, _MINUTES, "$1:00$2"), zone))
    else:
        days = F.concat_ws("-", F.substring(text, 1, 4), F.substring(text, 5, 2), F.substring(text, 7, 2))
        found = F.when(text.rlike(r"^\d{8}$"), F.concat(days, F.lit("T00:00:00Z")))
    return F.unix_micros(found.try_cast("timestamp")).cast(_NUMBER) * F.lit("0.001").cast(_FACTOR)
