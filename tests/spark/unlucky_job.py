"""Jobs whose tasks fail on their first attempt; run by test_unlucky_tasks.

Arguments: a Spark master that lets tasks fail more than once, and a folder. Prints one JSON object: for each job
whether its rows were those of the same job on undisturbed input, and how many first and later attempts that has seen.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared import HashRing
from keyshared import spark as ks
from keyshared.simulate import Fixed, Group, SimulatedConsumer

RING = HashRing.pulsar(["ann", "bob"])  # its hash runs in Python
PLAN = Group(consumers=[SimulatedConsumer("ann", Fixed(3)), SimulatedConsumer("bob", Fixed(4))])


def unlucky(trace: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Let some rows through, then fail on the first attempt, in every second partition."""
    task = TaskContext.get()
    assert task is not None
    with Path(trace).open("a") as file:
        file.write("later\n" if task.attemptNumber() else "first\n")
    for number, batch in enumerate(batches):
        if number == 1 and task.attemptNumber() == 0 and task.partitionId() % 2 == 0:
            raise OSError("as planned")
        yield batch


def delivered(log: DataFrame) -> DataFrame:
    return ks.replay(log, PLAN).deliveries


def compared(log: DataFrame) -> DataFrame:
    return ks.what_if(log, {"two": PLAN, "one": Group(consumers=PLAN.consumers[:1])}).summaries


def audited(log: DataFrame) -> DataFrame:
    published = log.selectExpr("topic_partition", "offset as sequence", "'published' as happening", "offset", "key")
    committed = log.groupBy("topic_partition").agg(F.max("offset").alias("offset"))
    committed = committed.selectExpr("topic_partition", "offset + 1 as sequence", "'committed' as happening", "offset")
    happened = published.unionByName(committed, allowMissingColumns=True).withColumn(
        "resume_offset", F.when(F.col("happening") == "committed", F.col("offset"))
    )
    happened = happened.withColumn("offset", F.when(F.col("happening") == "published", F.col("offset")))
    return ks.audit(happened.withColumn("version", F.lit(1))).violations


JOBS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "owner": partial(ks.with_owner, placement=RING),
    "colocate": partial(ks.colocate, placement=RING),
    "histogram": ks.key_histogram,
    "replay": delivered,
    "what_if": compared,
    "audit": audited,
}


def rows_of(df: DataFrame) -> Counter[str]:
    return Counter(map(repr, df.collect()))


def main(master: str, folder: str) -> None:
    settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": "20", "spark.sql.shuffle.partitions": "3"}
    spark = ks.local_session("unlucky", master=master, log=Path(folder, "spark.log"), settings=settings)
    key = F.when(F.col("id") % 7 > 0, F.concat(F.lit("user-"), (F.col("id") % 13).cast("string")))
    log = spark.range(0, 240, 1, 4).select(
        F.concat(F.lit("t-"), (F.col("id") % 3).cast("string")).alias("topic_partition"),
        F.col("id").alias("offset"),
        key.alias("key"),
        F.col("id").alias("at_ms"),
    )
    told = {}
    for name, job in JOBS.items():
        trace = Path(folder, name)
        disturbed = log.mapInArrow(partial(unlucky, str(trace)), log.schema)
        expected, found = rows_of(job(log)), rows_of(job(disturbed))
        attempts = Counter(trace.read_text().split())
        told[name] = {
            "rows": sum(expected.values()),
            "same": expected == found,
            "first": attempts["first"],
            "later": attempts["later"],
        }
    spark.stop()
    print(json.dumps(told))  # noqa: T201 - that is how the test reads it


if __name__ == "__main__":
    main(*sys.argv[1:])
