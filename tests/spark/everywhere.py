"""One small job of every kind, and a program that runs them all on the session it is told to make.

``python -m tests.spark.everywhere MASTER FILE`` writes the answers as JSON. MASTER is a Spark master, or where a Spark
Connect server listens (``sc://...``).
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared import BucketLayout, BucketPlacement, DistributionTree, HashRing
from keyshared.config import DispatcherConfig
from keyshared.hashing import MURMUR3_32
from keyshared.retry import RetryPolicy
from keyshared.simulate import Answer, ConsumerPlan, Crash, Fixed, Join, PerMessage, Plan, SampledAnswers
from keyshared.spark.audit import audit
from keyshared.spark.buckets import with_bucket, with_bucket_owner
from keyshared.spark.copies import with_copy_due
from keyshared.spark.delivery_history import DELIVERY_GUARANTEES, delivery_history
from keyshared.spark.distribution import audit_distribution, count_by_fault
from keyshared.spark.histogram import collect_histogram, key_histogram
from keyshared.spark.offsets import translate_offsets
from keyshared.spark.order import check_order, count_by_promise
from keyshared.spark.owner import with_owner
from keyshared.spark.replay import replay
from keyshared.spark.session import local_session
from keyshared.spark.slots import with_slot
from keyshared.spark.source import load_log, log_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

LAYOUT: Final = BucketLayout.equal_width(64)
TREE: Final = DistributionTree({3: [{2: ["c1", {1: ["c2", "c3"]}]}, {1: ["c4", "c5"]}]})
PLAN: Final = Plan(
    consumers=[ConsumerPlan("a", PerMessage(default_ms=7), limit=2), ConsumerPlan("b", Fixed(9))],
    changes=[Join(60, ConsumerPlan("c", Fixed(5))), Crash(150, "a")],
    config=DispatcherConfig(ack_timeout_ms=30, inactive_grace_ms=60, retry=RetryPolicy(base_delay_ms=9)),
    answers=[SampledAnswers([Answer.ACK] * 8 + [Answer.NACK, Answer.SILENT], seed=5)],
)
RECORDS: Final = "topic_partition string, offset long, timestamp_epoch_ms long, origin string, origin_offset long"


def messages(spark: SparkSession) -> DataFrame:
    """Two topic-partitions of a log; some messages have no key."""
    number = F.col("id")
    return spark.range(0, 120, 1, 3).select(
        F.concat(F.lit("p"), number % 2).alias("topic_partition"),
        number.alias("offset"),
        F.when(number % 11 != 0, F.concat(F.lit("user-"), number % 7)).alias("key"),
        (number * 3).alias("at_ms"),
        (1 + number % 5).alias("service_ms"),
    )


def owners(spark: SparkSession) -> list[Row]:
    """Native columns and columns through Arrow, of placements, buckets and slots."""
    ring, pulsar = HashRing(["ann", "bob"]), HashRing.pulsar(["ann", "bob"])
    frame = messages(spark).transform(with_owner, ring).transform(with_owner, pulsar, into="pulsar_owner")
    frame = frame.transform(with_slot, ring).transform(with_bucket, LAYOUT)
    frame = frame.transform(with_bucket, LAYOUT, key_hash=MURMUR3_32, into="pulsar_bucket")
    placement = BucketPlacement(LAYOUT, ["ann", "bob", "eve"])
    return frame.transform(with_bucket_owner, placement, into="bucket_owner").collect()


def histogram(spark: SparkSession) -> list[object]:
    """By the buckets' hash, with weights; and by the slots of a placement that Spark cannot hash for."""
    found = collect_histogram(key_histogram(messages(spark), weight="service_ms"))
    pulsars = key_histogram(messages(spark), slots=HashRing.pulsar(["ann", "bob"]))
    return [found.keyless_messages, found.keyless_weight, *found.slots.items(), *pulsars.collect()]


def replayed(spark: SparkSession) -> list[Row]:
    """Deliveries and summaries of one replay."""
    with replay(messages(spark), PLAN, service_ms="service_ms") as result:
        return [*result.deliveries.collect(), *result.summaries.collect()]


def audited(spark: SparkSession) -> list[object]:
    """Both audits of a delivery log that breaks promises."""
    told = messages(spark).filter("key is not null")
    place = F.col("offset") * 10
    # every fifth ends late, every ninth is never settled
    end = place + F.when(F.col("offset") % 5 == 0, 2_000).otherwise(5)
    log = told.select(
        "topic_partition",
        "offset",
        F.col("key").cast("binary").alias("key"),
        F.concat(F.lit("c"), F.col("offset") % 3).alias("consumer"),
        F.lit(1).alias("attempt"),
        place.alias("sequence"),
        end.alias("end_sequence"),
        F.when(F.col("offset") % 9 != 0, end).alias("settled_sequence"),
    )
    offered = told.select("topic_partition", "offset", "key")
    fast = check_order(log, offered=offered)
    # with all columns that there may be, and below with those that there must be
    times = {"delivered_ms": "sequence", "ended_ms": "end_sequence"}
    timed = log.withColumns({name: F.col(of) for name, of in times.items()}).withColumn("outcome", F.lit("nacked"))
    timed_counts = delivery_history(timed).groupBy("happening").agg(F.count("*"), F.sum("at_ms")).collect()
    with audit(delivery_history(log, offered=offered), DELIVERY_GUARANTEES) as found:
        counts = [count_by_promise(fast), found.counts(), found.unjudged(), *timed_counts]
        return [*counts, *fast.collect(), *found.violations.collect(), *found.verdicts.collect()]


def distributed(spark: SparkSession) -> list[object]:
    """Copies that are due of numbers and of bytes, and the faults of a log in which one hop was never made."""
    produced = spark.range(0, 20, 1, 2).select(
        F.concat(F.lit("m"), "id").alias("message_id"), F.lit("c2").alias("cluster"), (F.col("id") % 5).alias("flags")
    )
    due = with_copy_due(produced, TREE, "c2")
    header = produced.select(F.unhex(F.hex("flags")).alias("flags"))
    copied = due.select("message_id", F.explode("copies").alias("copy"))
    records = produced.unionByName(copied.selectExpr("message_id", "copy.target AS cluster", "copy.flags AS flags"))
    faults = audit_distribution(records, TREE, produced=produced.select("message_id"))
    return [count_by_fault(faults), *due.collect(), *with_copy_due(header, TREE, "c2").collect(), *faults.collect()]


def translated(spark: SparkSession) -> list[Row]:
    """Commits by timestamp and by provenance."""
    here = spark.createDataFrame([("p", 25 + i, 1_000 * i, "eu", i) for i in range(10)], RECORDS)
    there = spark.createDataFrame([("p", i, 1_000 * i, "eu", i) for i in range(10)], RECORDS)
    rows = [("billing", "p", 33, True, 4), ("audit", "p", 28, False, None), ("new", "q", 3, None, None)]
    schema = "group string, topic_partition string, offset long, target_active boolean, target_committed long"
    commits = spark.createDataFrame(rows, schema)
    by_time = translate_offsets(commits, here, there, margin_ms=5_000)
    return [*by_time.collect(), *translate_offsets(commits, here, there, provenance=True).collect()]


def loaded(spark: SparkSession) -> list[object]:
    """A log from a file that lies beside this program."""
    path = str(Path(__file__).with_name("everywhere.csv"))
    log = load_log(spark, path, key="user", partition="shard", order="at")
    return [log_columns(spark, path), log.schema.simpleString(), *log.collect()]


JOBS: Final[dict[str, Callable[[SparkSession], list[Any]]]] = {
    "owners": owners,
    "histogram": histogram,
    "replay": replayed,
    "audits": audited,
    "distribution": distributed,
    "offsets": translated,
    "log": loaded,
}


def answers(spark: SparkSession) -> dict[str, list[str]]:
    """What each job says, in an order of its own: frames have none."""
    return {name: sorted(map(repr, job(spark))) for name, job in JOBS.items()}


def session(master: str) -> SparkSession:
    """Make the session that is asked for; executors that start quickly, where it has some of its own."""
    quick = {} if master.startswith("sc://") else {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    return local_session("everywhere", master=master, settings={"spark.sql.shuffle.partitions": "3", **quick})


def workers(spark: SparkSession) -> list[str]:
    """The folders of the executors that ran a job's tasks: each executor has its own."""

    def here(batches: "Iterator[Any]") -> "Iterator[Any]":
        import time  # noqa: PLC0415 - it is sent to the workers by value

        import pyarrow  # noqa: PLC0415, ICN001

        time.sleep(1)  # until every executor has a task
        for _ in batches:
            yield pyarrow.RecordBatch.from_pylist([{"executor": os.environ["SPARK_EXECUTOR_DIRS"]}])

    rows = spark.range(0, 8, 1, 4).mapInArrow(here, "executor string").distinct().collect()
    return sorted(row[0] for row in rows)


def main(master: str, file: str) -> None:
    """Run everything and write the answers."""
    spark = session(master)
    try:
        found = answers(spark)
        if master.startswith("local-cluster"):
            found["workers"] = workers(spark)
    finally:
        spark.stop()
    Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
