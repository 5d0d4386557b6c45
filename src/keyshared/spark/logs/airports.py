"""A log with hot keys: three million flights within the United States in the first half of 2001, keyed by airport.

The flights are those of the Bureau of Transportation Statistics, a federal agency, as the npm package ``vega-datasets``
carries them. They are not part of this library: they are fetched when they are asked for, and nothing but the very
bytes that were looked at is taken.
"""

from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import ArgumentError
from keyshared.spark.frames.checks import type_of
from keyshared.spark.logs.npm import NpmPackage, extracted, fetched
from keyshared.spark.logs.source import as_log

__all__ = ["AIRPORT_FLIGHTS", "KEYS", "PACKAGE", "airport_log", "load_airport_flights"]

AIRPORT_FLIGHTS: Final = 3_000_000

PACKAGE: Final = NpmPackage(
    "vega-datasets",
    "3.2.1",
    "9534b0640eb2abaa925366199bee9ba882e222f4cf3f19f88ad8abee33c61661"
    "c874fbd47d0f690b3cdcae4958cb030980b51b68879291941d88977ac01c4fba",
)
"""What the flights come in."""

KEYS: Final = ("airport", "route")
"""What may be the key: where a flight leaves, or from where to where it goes."""

_MEMBER: Final = "data/flights-3m.parquet"
_COLUMNS: Final = ("date", "delay", "distance", "origin", "destination")
_PARTITIONS: Final = 8


def load_airport_flights(spark: SparkSession, folder: Path, *, key: str = "airport") -> DataFrame:
    """Read the 3,000,000 flights of January to June 2001, and fetch them first if they are not there.

    Args:
        spark: The session.
        folder: Where the package and the file in it are kept: 31 MB. It must exist, and workers must reach it.
        key: One of `KEYS`.

    Returns:
        See `airport_log`.

    Raises:
        ArgumentError: ``key`` is none of these, or the package cannot be had, see `keyshared.spark.logs.npm.fetched`.

    Example:
        >>> load_airport_flights(spark, Path("demo-output")).groupBy("key").count().orderBy(F.desc("count")).show(1)
        ... # doctest: +SKIP
        +---+------+
        |key| count|
        +---+------+
        |ORD|166341|
        +---+------+
    """
    _check_key(key)
    file = extracted(fetched(PACKAGE, folder), _MEMBER, folder)
    return airport_log(spark.read.parquet(file.resolve().as_uri()), key=key)


def airport_log(flights: DataFrame, *, key: str = "airport") -> DataFrame:
    """Make a log of flights, as a producer would write it: to one of 8 topic-partitions, by the hash of the key.

    Args:
        flights: Columns ``date`` (timestamp), ``delay`` (minutes), ``distance`` (miles), ``origin`` and ``destination``
            (codes of airports).
        key: One of `KEYS`.

    Returns:
        The columns of a log (see `keyshared.spark.logs.source`), and all of these but the date. The order is
        milliseconds.

    Raises:
        ArgumentError: ``key`` is none of these, or a column is missing.
    """
    for column in _COLUMNS:
        type_of(flights, column)
    keyed = flights.withColumn("key", _key(key))
    partition = F.concat(F.lit(f"{key}-"), F.pmod(F.xxhash64("key"), F.lit(_PARTITIONS)))
    return as_log(keyed.withColumn("partition", partition), key="key", partition="partition", order="date")


def _check_key(key: str) -> None:
    if key not in KEYS:
        raise ArgumentError("key", key, f"be one of {', '.join(KEYS)}")


def _key(key: str) -> Column:
    _check_key(key)
    return F.col("origin") if key == "airport" else F.concat_ws("-", "origin", "destination")
