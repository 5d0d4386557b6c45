"""What a column with a key's slot, owner or bucket costs on Spark, native and through Arrow.

Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it by ``make bench-spark``. The unit is a *noop
pass*: reading the same columns from the same Parquet file and writing them to Spark's ``noop`` sink, in the same run.
Times are the wall clock's, because the work is in other processes; cases take turns, and the median of the ratios to
the noop pass of the same turn is what counts.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.buckets import BucketLayout
from keyshared.hashing import MURMUR3_32
from keyshared.ring import HashRing
from keyshared.spark.buckets import with_bucket, with_bucket_owner
from keyshared.spark.histogram import key_histogram
from keyshared.spark.owner import with_owner
from keyshared.spark.session import local_session
from keyshared.spark.slots import with_slot
from keyshared.spread import BucketPlacement

ROWS = 1_000_000
KEYS = 100_000
CONSUMERS = [f"c{number}" for number in range(10)]
NATIVE = HashRing(CONSUMERS)
ARROW = HashRing.pulsar(CONSUMERS)
LAYOUT = BucketLayout.equal_width(1_024)
BUCKETS = BucketPlacement(LAYOUT, CONSUMERS)

CASES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "noop": lambda log: log,
    "slot, native": lambda log: with_slot(log, NATIVE),
    "owner, native": lambda log: with_owner(log, NATIVE),
    "owner of 32-bit slots, native": lambda log: with_owner(log, HashRing(CONSUMERS, slot_bits=32)),
    "bucket, native": lambda log: with_bucket(log, LAYOUT),
    "owner of the bucket, native": lambda log: with_bucket_owner(log, BUCKETS),
    "slot, Arrow": lambda log: with_slot(log, ARROW),
    "owner, Arrow": lambda log: with_owner(log, ARROW),
    "bucket, Arrow": lambda log: with_bucket(log, LAYOUT, key_hash=MURMUR3_32),
    "groupBy(key).count()": lambda log: log.groupBy("key").count(),
    "key_histogram, native": lambda log: key_histogram(log, weight="bytes"),
    "key_histogram, Arrow": lambda log: key_histogram(log, weight="bytes", slots=MURMUR3_32),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m benchmarks.bench_spark_columns", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"how many messages ({ROWS:,})")
    parser.add_argument("--repeats", type=int, default=5, help="how often each case takes its turn (5)")
    parser.add_argument("--master", default="local[2]", help="Spark master (local[2])")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        spark = local_session("keyshared benchmark", master=options.master, log=Path(folder, "spark.log"))
        try:
            log = written(spark, options.rows, str(Path(folder, "log")))
            print_table(options.rows, measured(log, options.repeats))
        finally:
            spark.stop()
    return 0


def written(spark: SparkSession, rows: int, path: str) -> DataFrame:
    """A log of Zipf-like keys: the n-th hottest has about 1/n of the messages of the hottest."""
    uniform = (F.xxhash64(F.col("id")) % 1_000_003 + 1_000_003) / 2_000_006
    key = F.concat(F.lit("user-"), F.pow(F.lit(float(KEYS)), uniform).cast("bigint").cast("string"))
    spark.range(rows).select(key.alias("key"), (F.col("id") % 1_000).alias("bytes")).write.parquet(path)
    return spark.read.parquet(path)


def measured(log: DataFrame, repeats: int) -> dict[str, list[float]]:
    """Seconds of each case, turn by turn; the first turn only warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    for turn in range(repeats + 1):
        for name, case in CASES.items():
            frame = case(log)
            started = perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            if turn:
                seconds[name].append(perf_counter() - started)
    return seconds


def print_table(rows: int, seconds: dict[str, list[float]]) -> None:
    print(f"{rows:,} messages, {KEYS:,} keys, {len(CONSUMERS)} consumers\n{'':34}{'x noop':>8}{'seconds':>10}")
    for name, own in seconds.items():
        ratio = median(one / noop for one, noop in zip(own, seconds["noop"], strict=True))
        print(f"{name:34}{ratio:8.2f}{median(own):10.2f}")


if __name__ == "__main__":
    sys.exit(main())
