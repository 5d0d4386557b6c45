"""Settings of the session that hold for a test, or for a part of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BATCH_ROWS", "QUICK", "SHUFFLE_PARTITIONS", "settings"]

BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a JVM that does little: neither optimized machine code nor a collector in parallel pays off."""


@contextmanager
def settings(spark: "SparkSession", wanted: Mapping[str, str]) -> Iterator[None]:
    """Have them as long as the block runs, then what was there before."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            if kept is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, kept)
