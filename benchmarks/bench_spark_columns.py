"""What a column with a key's slot, owner or bucket costs on Spark, native, through Arrow, and by other ways.

Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it by ``make bench-spark``. The unit is a *noop
pass*: reading the same columns from the same Parquet file and writing them to Spark's ``noop`` sink, in the same run.
The other ways (*by hand*) are what people write: the same look-up in a Python UDF, in ``mapInArrow``, in
``rdd.mapPartitions``.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from benchmarks._harness import Report
from benchmarks._spark import Turns, bench_parser, bench_session, exit_code, noop, take_turns, zipf_key
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import StringType, StructField, StructType

from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.hashing import MURMUR3_32
from keyshared.ring import HashRing
from keyshared.spark.columns.buckets import with_bucket, with_bucket_owner
from keyshared.spark.columns.owners import with_owner
from keyshared.spark.columns.slots import with_slot
from keyshared.spark.keystats.histogram import key_histogram

ROWS = 1_000_000
KEYS = 100_000
CONSUMERS = [f"c{number}" for number in range(10)]
NATIVE = HashRing(CONSUMERS)
ARROW = HashRing.pulsar(CONSUMERS)
LAYOUT = BucketLayout.equal_width(1_024)
BUCKETS = BucketPlacement(LAYOUT, CONSUMERS)
OWNER_TARGET = 1.15

Case = Callable[[DataFrame], DataFrame]
CASES: dict[str, Case] = {
    "noop": lambda log: log,
    "slot, native": lambda log: with_slot(log, NATIVE),
    "owner, native": lambda log: with_owner(log, NATIVE),
    "owner of 1,000 consumers, native": lambda log: with_owner(log, ring_of(1_000)),
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
BY_HAND: dict[str, Case] = {
    "owner by hand, mapInArrow": lambda log: log.mapInArrow(owners_of_batches, with_owner_field(log)),
    "owner by hand, Arrow UDF": lambda log: log.withColumn("owner", udf(use_arrow=True)(F.col("key"))),
    "owner by hand, pickled UDF": lambda log: log.withColumn("owner", udf(use_arrow=False)(F.col("key"))),
    "owner by hand, rdd.mapPartitions": lambda log: log.sparkSession.createDataFrame(
        log.rdd.mapPartitions(owners_of_rows), with_owner_field(log)
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("bench_spark_columns", str(__doc__), rows=ROWS, repeats=5)
    parser.add_argument("--by-hand", action="store_true", help="the ways by hand too: up to 30 noop passes each")
    parser.add_argument("--only", default="", help="just the cases with this in their name, beside the noop pass")
    options = parser.parse_args(arguments)
    with bench_session(options) as (spark, folder):
        path = str(folder / "log")
        keyed = spark.range(options.rows).select(zipf_key(KEYS).alias("key"), (F.col("id") % 1_000).alias("bytes"))
        keyed.write.parquet(path)
        log = spark.read.parquet(path)
        ways = CASES | BY_HAND if options.by_hand else CASES
        ways = {name: way for name, way in ways.items() if name == "noop" or options.only in name}
        found = report(options.rows, take_turns(runs(ways, log), options.repeats))
    print(found)
    return exit_code(options, [found])


def runs(cases: Mapping[str, Case], log: DataFrame) -> dict[str, Callable[[], None]]:
    """The frames are built here: building the table of a placement is no part of a pass."""
    return {name: partial(noop, case(log)) for name, case in cases.items()}


def ring_of(consumers: int) -> HashRing:
    return HashRing([f"c{number}" for number in range(consumers)])


def udf(*, use_arrow: bool) -> Callable[[Column], Column]:
    return F.udf(NATIVE.ranges.owner_of, returnType=StringType(), useArrow=use_arrow)


def with_owner_field(log: DataFrame) -> StructType:
    return StructType([*log.schema.fields, StructField("owner", StringType())])


def owners_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ranges = NATIVE.ranges
    for batch in batches:
        owners = pa.array([ranges.owner_of(key) for key in batch.column("key").to_pylist()], pa.string())
        yield pa.RecordBatch.from_arrays([*batch.columns, owners], names=[*batch.schema.names, "owner"])


def owners_of_rows(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
    ranges = NATIVE.ranges
    for row in rows:
        yield (*row, ranges.owner_of(row.key))


def report(rows: int, turns: Turns) -> Report:
    notes = [f"{rows:,} messages, {KEYS:,} keys, {len(CONSUMERS)} consumers; x noop"]
    found = Report("columns on Spark", ("x noop cpu", "x noop wall", "cpu s", "wall s"), notes)
    for case in turns:
        ratio, seconds = turns.ratio(case, "noop"), turns.median(case)
        found.add(case, *ratio, *seconds)
    if "owner, native" in turns:
        found.judge("owner, native, x noop cpu", turns.ratio("owner, native", "noop").processor, OWNER_TARGET)
    found.notes.extend(map(str, found.verdicts))
    return found


if __name__ == "__main__":
    sys.exit(main())
