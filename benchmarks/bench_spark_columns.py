"""What a column with a key's slot, owner or bucket costs on Spark, native and through Python.

Needs pyspark and Java, so it is not one of `python -m benchmarks`: run it by ``make bench-spark``. The unit is a *noop
pass*: reading the same columns from the same Parquet file and writing them to Spark's ``noop`` sink, in the same run.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd
from benchmarks._harness import Report
from benchmarks._spark import Turns, bench_parser, bench_session, exit_code, noop, take_turns, zipf_key
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.pandas.functions import pandas_udf

from keyshared import spark as ks
from keyshared.buckets import BucketLayout
from keyshared.ring import HashRing

ROWS = 10_000_000
KEYS = 100_000
CONSUMERS = [f"c{number}" for number in range(10)]
NATIVE = HashRing(CONSUMERS)
ARROW = HashRing.pulsar(CONSUMERS)
LAYOUT = BucketLayout.equal_width(1_024)
OWNER_TARGET = 1.15

Case = Callable[[DataFrame], DataFrame]
CASES: dict[str, Case] = {
    "noop": lambda log: log,
    "slot, native": lambda log: log.withColumn("slot", ks.slot(NATIVE, "key")),
    "owner, native": lambda log: log.withColumn("owner", ks.owner(NATIVE, "key")),
    "owner of 1,000 consumers, native": lambda log: log.withColumn("owner", ks.owner(ring_of(1_000), "key")),
    "bucket, native": lambda log: log.withColumn("bucket", ks.bucket(LAYOUT, "key")),
    "owner, Arrow": lambda log: log.withColumn("owner", ks.owner(ARROW, "key")),
    "owner, in a pandas UDF": lambda log: log.withColumn("owner", by_hand()(F.col("key"))),
    "slot_histogram, native": lambda log: ks.slot_histogram(log, weight="bytes"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("bench_spark_columns", str(__doc__), rows=ROWS, repeats=5)
    parser.add_argument("--only", default="", help="just the cases with this in their name, beside the noop pass")
    options = parser.parse_args(arguments)
    with bench_session(options) as (spark, folder):
        path = str(folder / "log")
        keyed = spark.range(options.rows).select(zipf_key(KEYS).alias("key"), (F.col("id") % 1_000).alias("bytes"))
        keyed.write.parquet(path)
        log = spark.read.parquet(path)
        ways = {name: way for name, way in CASES.items() if name == "noop" or options.only in name}
        found = report(options.rows, take_turns(runs(ways, log), options.repeats))
    print(found)
    return exit_code(options, [found])


def runs(cases: Mapping[str, Case], log: DataFrame) -> dict[str, Callable[[], None]]:
    """The frames are built here: building the table of a placement is no part of a pass."""
    return {name: partial(noop, case(log)) for name, case in cases.items()}


def ring_of(consumers: int) -> HashRing:
    return HashRing([f"c{number}" for number in range(consumers)])


def owners_of(keys: pd.Series) -> pd.Series:
    """Return the owners as a user does it: the first lines of docs/spark.md."""
    return keys.map(NATIVE.ranges.owner_of)


def by_hand() -> Callable[[Column], Column]:
    made: Callable[[Column], Column] = pandas_udf(owners_of, "string")  # type: ignore[call-overload]  # not in its stubs
    return made


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
