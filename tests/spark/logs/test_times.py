"""What values of a time column mean: recognised where they can mean one thing, read alike by Python and Spark."""

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.spark.settings import settings

from keyshared.errors import ArgumentError
from keyshared.spark.logs.instants import exact_ms, in_63_bits
from keyshared.spark.logs.times import MS_OF, TIMES, check_time, examples_of, read_ms, time_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW_YEAR = 1_735_689_600_000

VALUES = [
    "1735689600",
    "1735689600.1239",
    "-1.0005",
    "0",
    "1735689600123456789",
    "9223372036854775807",
    "1.5e9",
    "infinity",
    "nan",
    "ten",
    "20250101",
    "20250231",
    "2025010",
    "2025-01-01",
    "2025-02-30",
    "2025-01-01T10:20",
    "2025-01-01 10:20:30",
    "2025-01-01 10:20:30.123456",
    "2025-01-01T10:20:30.1239999Z",
    "2025-01-01T10:20:30+05:30",
    "2025-01-01T00:00:00-0100",
    "1969-12-31T23:59:59.9999Z",
    "2025-01-01Z",
    "2025-1-1",
    "2025-01-01T25:00:00",
    " 2025-01-01 ",
    "10:20",
    "2025",
    "2025-01-01T10:20Z",
    "2025-01-01 10:20+05:30",
    "1735689600.9999999999",
    "999999.9999999999999",
    "-0.0000000000001",
    "0.0000166666666666666",
    "0.0000166666666666667",
]


@pytest.mark.parametrize(
    ("values", "time"),
    [
        (["1735689600", "1735689601.25"], "seconds"),
        ([NEW_YEAR], "milliseconds"),
        ([NEW_YEAR * 1_000], "microseconds"),
        ([NEW_YEAR * 1_000_000], "nanoseconds"),
        (["20250101", "19991231"], "yyyymmdd"),
        ([20250101], "yyyymmdd"),
        (["2025-01-01", "2025-01-01T00:00:00Z"], "iso"),
    ],
)
def test_what_can_mean_one_thing_only_is_recognised_and_may_be_said(values: list[object], time: str) -> None:
    assert time == time_of("at", values, said=None) == time_of("at", values, said=time)


@pytest.mark.parametrize("time", ["seconds", "milliseconds", "microseconds", "nanoseconds"])
@pytest.mark.parametrize("year", [1990, 2099])
def test_the_same_instant_in_any_unit_is_recognised_from_1990_to_2099(time: str, year: int) -> None:
    at_ms = int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000
    value = next(n for n in (at_ms // 1_000, at_ms, at_ms * 1_000, at_ms * 10**6) if read_ms(n, time) == at_ms)
    assert time == time_of("at", [value], said=None)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([0, 1], r"\(0 is read as 1970-01-01 00:00:00 UTC in seconds, 0 is read as .* in milliseconds, .* in days\)$"),
        (["1735689600", "1735689600000"], "2025-01-01 00:00:00 UTC in seconds"),
        (["20250231"], "one of seconds, milliseconds, .*, iso, yyyymmdd"),
        (["next week"], "; 'next week' is none of them that can be recognised"),
        ([date(2025, 1, 1), 7], "none of them"),
    ],
)
def test_what_may_mean_several_things_or_none_is_refused_with_the_choices(values: list[object], told: str) -> None:
    with pytest.raises(ArgumentError, match=f"--time is None; it must say what at holds: .*{told}"):
        time_of("at", values, said=None)


def test_dates_and_times_that_are_stored_as_such_need_nothing_said() -> None:
    values = [date(2025, 1, 1), datetime(2025, 1, 1, tzinfo=UTC)]
    assert time_of("at", values, said=None) is None
    with pytest.raises(ArgumentError, match="it must be left out: at holds dates or times already"):
        time_of("at", values, said="iso")


def test_what_was_said_holds_where_there_are_no_values_and_is_refused_where_they_say_otherwise() -> None:
    assert ("hours", None) == (time_of("at", [], said="hours"), time_of("at", [], said=None))
    with pytest.raises(ArgumentError, match="'iso'; it must fit column at, and '7' cannot be read so"):
        time_of("at", ["2025-01-01", "7"], said="iso")
    with pytest.raises(ArgumentError, match="time is 'ticks'; it must be one of seconds, "):
        check_time("time", "ticks")


def test_two_examples_are_shown_and_a_fraction_where_there_is_one() -> None:
    shown = "1735689600 is read as 2025-01-01 00:00:00 UTC, 1735689600.5 is read as 2025-01-01 00:00:00.500 UTC"
    assert shown == examples_of(["1735689600", "1735689600", "1735689600.5", "1735689602"], "seconds")
    assert not examples_of(["x", "1e30"], "seconds")


@pytest.mark.parametrize(
    "session",
    [
        {},
        {
            "spark.sql.timestampType": "TIMESTAMP_NTZ",
            "spark.sql.session.timeZone": "America/New_York",
            "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        },
    ],
)
def test_spark_reads_each_value_as_python_does(spark: "SparkSession", session: dict[str, str]) -> None:
    frame = spark.createDataFrame([(value,) for value in VALUES], "value string")
    with settings(spark, session):
        columns = [in_63_bits(F.floor(exact_ms("value", time))).alias(time) for time in TIMES]
        told = {row["value"]: row.asDict() for row in frame.select("value", *columns).collect()}
    expected = {value: {"value": value, **{time: _kept(value, time) for time in TIMES}} for value in VALUES}
    assert expected == told


def _kept(value: str, time: str) -> int | None:
    """What fits: Spark holds 19 digits before the point, and 63 bits."""
    at_ms = read_ms(value, time)
    too_large = at_ms is None or (time in MS_OF and not -(10**19) < float(value) < 10**19)
    return None if at_ms is None or too_large or not -(1 << 63) <= at_ms < 1 << 63 else at_ms
