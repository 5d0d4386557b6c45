"""One small job of every kind that takes frames: what it says is a list of rows, figures and pages."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared import HashRing
from keyshared import spark as ks
from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.copyflags import COPY_FLAGS_HEADER
from keyshared.distribution import DistributionTree
from keyshared.errors import ArgumentError
from keyshared.hashing import MURMUR3_32
from keyshared.simulate import Answer, Crash, Fixed, Group, Join, PerMessage, SampledAnswers, SimulatedConsumer
from keyshared.spark.logs.files import Source
from keyshared.spark.logs.source import log_columns

RING: Final = HashRing(["ann", "bob"])
PULSAR: Final = HashRing.pulsar(["ann", "bob"])  # Spark cannot hash for it
LAYOUT: Final = BucketLayout.equal_width(64)
BUCKETS: Final = BucketPlacement(LAYOUT, ["ann", "bob", "eve"])
TREE: Final = DistributionTree({3: [{2: ["c1", {1: ["c2", "c3"]}]}, {1: ["c4", "c5"]}]})
PLAN: Final = Group(
    consumers=[SimulatedConsumer("a", PerMessage(default_ms=7), limit=2), SimulatedConsumer("b", Fixed(9))],
    changes=[Join(60, SimulatedConsumer("c", Fixed(5))), Crash(150, "a")],
    config=DispatcherConfig(ack_timeout_ms=30, inactive_grace_ms=60, retry=RetryPolicy(base_delay_ms=9)),
    answers=[SampledAnswers([Answer.ACK] * 8 + [Answer.NACK, Answer.SILENT], seed=5)],
)
PLANS: Final = {"as it is": PLAN, "one alone": Group(consumers=PLAN.consumers[1:])}
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


def broken_log(spark: SparkSession) -> DataFrame:
    """Deliveries that break promises: every fifth ends late, every ninth is never settled."""
    place = F.col("offset") * 10
    end = place + F.when(F.col("offset") % 5 == 0, 2_000).otherwise(5)
    return keyed(spark).select(
        "topic_partition",
        "offset",
        F.col("key").cast("binary").alias("key"),
        F.concat(F.lit("c"), F.col("offset") % 3).alias("consumer"),
        F.lit(1).alias("attempt"),
        place.alias("sequence"),
        end.alias("end_sequence"),
        F.when(F.col("offset") % 9 != 0, end).alias("settled_sequence"),
    )


def keyed(spark: SparkSession) -> DataFrame:
    """What was offered to those who made `broken_log`."""
    return messages(spark).filter("key is not null").select("topic_partition", "offset", "key")


def page(write: Callable[[Path], None]) -> str:
    """What a report writes."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        write(path)
        return path.read_text(encoding="utf-8")


def owners(spark: SparkSession) -> list[Row]:
    """Native columns and columns through Arrow, of placements, buckets and slots."""
    frame = messages(spark).transform(ks.with_owner, RING).transform(ks.with_owner, PULSAR, into="pulsar_owner")
    frame = frame.transform(ks.with_slot, RING).transform(ks.with_bucket, LAYOUT)
    frame = frame.transform(ks.with_bucket, LAYOUT, key_hash=MURMUR3_32, into="pulsar_bucket")
    return frame.transform(ks.with_bucket_owner, BUCKETS, into="bucket_owner").collect()


def colocated(spark: SparkSession) -> list[Row]:
    """By owner and by key: each row with its partition and its place in there."""
    place = F.monotonically_increasing_id()
    forms = [
        ks.colocate(messages(spark), RING),
        ks.colocate(messages(spark), PULSAR, partitions=2),
        ks.colocate(messages(spark), BUCKETS, key_hash=MURMUR3_32),
        ks.colocate(messages(spark), partitions=3),
    ]
    return [row for frame in forms for row in frame.select("*", place).collect()]


def histogram(spark: SparkSession) -> list[object]:
    """By the buckets' hash, with weights; and by the slots of a placement that Spark cannot hash for."""
    counted = ks.key_histogram(messages(spark), weight="service_ms")
    found = ks.collect_histogram(counted)
    pulsars = ks.key_histogram(messages(spark), slots=PULSAR)
    layouts = [ks.balanced_boundaries(counted, 5, by=by).splits for by in ("weight", "messages")]
    told = [found.keyless_messages, found.keyless_weight, *found.slots.items(), *layouts, *pulsars.collect()]
    return [*told, page(found.report), page(lambda path: ks.collect_histogram(pulsars).report(path, placement=PULSAR))]


def replayed(spark: SparkSession) -> list[object]:
    """Deliveries, summaries and the page of one replay."""
    with ks.replay(messages(spark), PLAN, service_ms="service_ms") as result:
        return [*result.deliveries.collect(), *result.summaries.collect(), page(result.report)]


def compared(spark: SparkSession) -> list[object]:
    """All frames of a comparison, and its page."""
    with ks.what_if(messages(spark), PLANS, service_ms="service_ms") as found:
        frames = [found.summaries, found.totals, found.consumers, found.moved_keys]
        return [*(row for frame in frames for row in frame.collect()), page(found.report)]


def audited(spark: SparkSession) -> list[object]:
    """Both audits of a delivery log that breaks promises, and the page of the one."""
    log, offered = broken_log(spark), keyed(spark)
    fast = ks.check_order(log, offered=offered)
    # with all columns that there may be, and below with those that there must be
    times = {"delivered_ms": "sequence", "ended_ms": "end_sequence"}
    timed = log.withColumns({name: F.col(of) for name, of in times.items()}).withColumn("outcome", F.lit("nacked"))
    timed_counts = ks.delivery_history(timed).groupBy("happening").agg(F.count("*"), F.sum("at_ms")).collect()
    with ks.audit(ks.delivery_history(log, offered=offered), ks.DELIVERY_GUARANTEES) as found:
        counts = [ks.count_by_promise(fast), found.counts(), found.unjudged(), *timed_counts]
        rows = [*fast.collect(), *found.violations.collect(), *found.verdicts.collect()]
        return [*counts, *rows, page(found.report)]


def distributed(spark: SparkSession) -> list[object]:
    """Copies that are due of numbers and of bytes, and the faults of a log in which one hop was never made."""
    produced = spark.range(0, 20, 1, 2).select(
        F.concat(F.lit("m"), "id").alias("message_id"), F.lit("c2").alias("cluster"), (F.col("id") % 5).alias("flags")
    )
    due = ks.with_copy_due(produced, TREE, "c2")
    header = F.struct(F.lit(COPY_FLAGS_HEADER).alias("key"), F.unhex(F.hex("flags")).alias("value"))
    headers = produced.select(ks.flags_header(F.array(header)))
    copied = due.select("message_id", F.explode("copies").alias("copy"))
    records = produced.unionByName(copied.selectExpr("message_id", "copy.target AS cluster", "copy.flags AS flags"))
    faults = ks.audit_distribution(records, TREE, produced=produced.select("message_id"))
    of_bytes = ks.with_copy_due(headers, TREE, "c2").collect()
    return [ks.count_by_fault(faults), *due.collect(), *of_bytes, *faults.collect()]


def translated(spark: SparkSession) -> list[Row]:
    """Commits by timestamp and by provenance."""
    here = spark.createDataFrame([("p", 25 + i, 1_000 * i, "eu", i) for i in range(10)], RECORDS)
    there = spark.createDataFrame([("p", i, 1_000 * i, "eu", i) for i in range(10)], RECORDS)
    rows = [("billing", "p", 33, True, 4), ("audit", "p", 28, False, None), ("new", "q", 3, None, None)]
    schema = "group string, topic_partition string, offset long, target_active boolean, target_committed long"
    commits = spark.createDataFrame(rows, schema)
    by_time = ks.translate_offsets(commits, here, there, margin_ms=5_000)
    return [*by_time.collect(), *ks.translate_offsets(commits, here, there, provenance=True).collect()]


def saved(spark: SparkSession) -> list[object]:
    """A histogram that was saved twice, and what is refused then."""
    counted = ks.key_histogram(messages(spark), weight="service_ms")
    with TemporaryDirectory() as folder:
        ks.save_results({"histogram": counted}, folder)
        second = ks.save_results({"histogram": counted}, folder, mode="append")
        both = [row["run"] for row in ks.load_results(spark, folder)["histogram"].select("run").distinct().collect()]
        again = ks.load_results(spark, folder, run=second)["histogram"].drop("run")
        refused = []
        for frame, mode in ((counted, "error"), (again, "overwrite")):
            try:
                ks.save_results({"histogram": frame}, folder, mode=mode)
            except ArgumentError as error:
                refused.append(error.parameter)
        return [len(both), max(both) == second, *refused, *again.collect()]


def loaded(spark: SparkSession) -> list[object]:
    """A log from a file that lies beside this program."""
    path = str(Path(__file__).with_name("small_jobs.csv"))
    log = ks.load_log(spark, path, key="user", partition="shard", order="at")
    return [log_columns(spark, Source(path)), log.schema.simpleString(), *log.collect()]
