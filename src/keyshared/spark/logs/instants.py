"""Values of a time column as milliseconds, in Spark: what `keyshared.spark.logs.times.read_ms` says in Python."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.frames.checks import parts_of, quoted
from keyshared.spark.logs.times import ISO, MS_OF

__all__ = ["exact_ms", "in_63_bits"]

_NUMBER: Final = "decimal(38,19)"  # 19 digits before the point, as a bigint
_FACTOR: Final = "decimal(14,6)"
_DIGITS: Final = 6  # of a millisecond: nanoseconds
_MINUTES: Final = r"^(.{16})(Z|[+-].*)?$"  # no seconds: Spark reads no zone after minutes
_EIGHT_DIGITS: Final = r"^\d{8}$"
_ZONED: Final = r"(Z|[+-]\d\d:?\d\d)$"  # of more than a date


def exact_ms(column: str, time: str) -> Column:
    """Return the milliseconds since 1970 that a value means, with what is finer, down to a nanosecond.

    Args:
        column: The name of a column of numbers or text.
        time: One of `keyshared.spark.logs.times.TIMES`.

    Returns:
        A decimal; NULL where the value means none.
    """
    # as SQL: columns have no method for such casts before Spark 4.0
    name = ".".join(map(quoted, parts_of(column)))
    if time in MS_OF:
        factor = F.lit(MS_OF[time]).cast(_FACTOR)
        number = F.expr(f"try_cast({name} as {_NUMBER})")
        # whole units and the rest apart: multiplied at once, they would be rounded to 38 digits
        rest = F.pmod(number, F.lit(1).cast("decimal(1,0)")) * factor
        return F.floor(number) * factor + F.call_function("floor", rest, F.lit(_DIGITS))
    text = f"trim(cast({name} as string))"
    if time == "iso":
        zone = f"case when length({text}) = 10 then 'T00:00:00Z' when {text} rlike r'{_ZONED}' then '' else 'Z' end"
        moment = f"concat(regexp_replace({text}, r'{_MINUTES}', '$1:00$2'), {zone})"
        found = f"case when {text} rlike r'{ISO}' then {moment} end"
    else:
        days = f"concat_ws('-', substring({text}, 1, 4), substring({text}, 5, 2), substring({text}, 7, 2))"
        found = f"case when {text} rlike r'{_EIGHT_DIGITS}' then concat({days}, 'T00:00:00Z') end"
    # not as what the session takes a timestamp for, which may have no zone
    micros = F.expr(f"unix_micros(try_cast({found} as timestamp_ltz))")
    return micros.cast("decimal(19,0)") * F.lit("0.001").cast(_FACTOR)


def in_63_bits(value: Column) -> Column:
    """Return whole numbers as bigint; NULL where they are too large for it.

    Args:
        value: A column of decimals without a fraction.
    """
    return F.when(value.between(-(1 << 63), (1 << 63) - 1), value.cast("bigint"))
