"""What copies, the audit of a distribution and the translation of offsets cost on Spark.

Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it as ``python -m
benchmarks.bench_spark_distribution``. The unit is a *noop pass*, as in `bench_spark_columns`: reading the same file and
writing it to Spark's ``noop`` sink, in the same run. It is a smoke test as well: a distribution without faults must
have none, and every commit must get an offset.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.copyflags import BigEndian
from keyshared.distribution import DistributionTree
from keyshared.spark.clusters.audit import audit_distribution
from keyshared.spark.clusters.offsets import translate_offsets
from keyshared.spark.columns.copies import with_copy_due
from keyshared.spark.runtime.session import local_session

ROWS = 1_000_000
PARTITIONS = 8
GROUPS = 100
TREE = DistributionTree({3: [{2: ["c1", {1: ["c2", "c3"]}]}, {1: ["c4", "c5"]}]})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m benchmarks.bench_spark_distribution", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"how many records ({ROWS:,})")
    parser.add_argument("--repeats", type=int, default=3, help="how often each case takes its turn (3)")
    parser.add_argument("--master", default="local[2]", help="Spark master (local[2])")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        spark = local_session("keyshared benchmark", master=options.master, log=Path(folder, "spark.log"))
        try:
            records = written(spark, options.rows, str(Path(folder, "records")))
            cases = cases_of(spark, records)
            check(cases)
            print_table(options.rows, measured(cases, options.repeats))
        finally:
            spark.stop()
    return 0


def written(spark: SparkSession, rows: int, path: str) -> DataFrame:
    """One record for each message and cluster; as a log, each cluster has its own order within a window of 100."""
    clusters = len(TREE.clusters)
    message, number = F.floor(F.col("id") / clusters), F.col("id") % clusters
    moved = message + F.pmod(F.xxhash64("id"), F.lit(100))
    spark.range(rows - rows % clusters).select(
        F.concat(F.lit("message-"), message.cast("string")).alias("message_id"),
        F.concat(F.lit("c"), (number + 1).cast("string")).alias("cluster"),
        F.when(number == 0, 0).otherwise(F.shiftleft(F.lit(1), 2)).cast("bigint").alias("flags"),
        F.concat(F.lit("p"), (message % PARTITIONS).cast("string")).alias("topic_partition"),
        (moved * 128 + F.pmod(F.xxhash64("id"), F.lit(127))).alias("offset"),
        (message * 10).alias("timestamp_epoch_ms"),
        F.lit("c1").alias("origin"),
        message.cast("bigint").alias("origin_offset"),
    ).write.parquet(path)
    return spark.read.parquet(path).withColumn("header", F.unhex(F.lpad(F.hex("flags"), 2, "0")))


def cases_of(spark: SparkSession, records: DataFrame) -> dict[str, DataFrame]:
    source, target = (records.filter(F.col("cluster") == name) for name in ("c4", "c2"))
    commits = spark.range(GROUPS * PARTITIONS).select(
        F.concat(F.lit("g"), (F.col("id") % GROUPS).cast("string")).alias("group"),
        F.concat(F.lit("p"), F.floor(F.col("id") / GROUPS).cast("string")).alias("topic_partition"),
        (F.col("id") * 10_000).alias("offset"),
    )
    return {
        "noop": records,
        "copies, flags as numbers": with_copy_due(records, TREE, "c3"),
        "copies, flags as bytes": with_copy_due(records, TREE, "c3", flags="header", codec=BigEndian()),
        "audit": audit_distribution(records, TREE),
        f"offsets of {GROUPS * PARTITIONS} commits, timestamp": translate_offsets(commits, source, target),
        f"offsets of {GROUPS * PARTITIONS} commits, provenance": translate_offsets(
            commits, source, target, provenance=True
        ),
    }


def check(cases: dict[str, DataFrame]) -> None:
    """Check that the distribution is in order, and that every commit has an answer."""
    faults = cases["audit"].count()
    unanswered = sum(frame.filter("declined IS NOT NULL").count() for name, frame in cases.items() if "commits" in name)
    if faults or unanswered:
        sys.exit(f"{faults} faults in a distribution without any, {unanswered} commits without an offset")


def measured(cases: dict[str, DataFrame], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each case, turn by turn."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    cases["noop"].count()  # only warms up
    for _ in range(repeats):
        for name, frame in cases.items():
            started = perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            seconds[name].append(perf_counter() - started)
    return seconds


def print_table(rows: int, seconds: dict[str, list[float]]) -> None:
    print(f"{rows:,} records on {len(TREE.clusters)} clusters\n{'':44}{'x noop':>8}{'seconds':>10}")
    for name, own in seconds.items():
        ratio = median(one / noop for one, noop in zip(own, seconds["noop"], strict=True))
        print(f"{name:44}{ratio:8.2f}{median(own):10.2f}")


if __name__ == "__main__":
    sys.exit(main())
