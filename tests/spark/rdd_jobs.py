"""The plain functions for ``rdd.mapPartitions``, each on partitions of a small log."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from pyspark.sql import Row, SparkSession
from tests.command_logs import ring
from tests.spark import stream_jobs
from tests.spark.small_jobs import BUCKETS, LAYOUT, PLAN, PLANS, PULSAR, RING, TREE, broken_log, keyed, messages

from keyshared import spark as ks
from keyshared.hashing import MURMUR3_32
from keyshared.spark.audits.audit import AuditRow
from keyshared.testing.history import Happening
from keyshared.testing.rows import from_rows

UNTIL_MS: Final = 10_000


def columns(spark: SparkSession) -> list[object]:
    """What is asked of each row alone, and the counts of keys."""
    log = messages(spark)
    numbers = spark.range(0, 20, 1, 2).selectExpr("id % 5 as flags").rdd
    counts = log.select("key", "service_ms").rdd.mapPartitions(ks.histogram_partition)
    answered = [
        log.rdd.mapPartitions(partial(ks.owner_partition, placement=RING)),
        log.rdd.mapPartitions(partial(ks.owner_partition, placement=PULSAR)),
        log.rdd.mapPartitions(partial(ks.slot_partition, placement=RING)),
        log.rdd.mapPartitions(partial(ks.bucket_partition, layout=LAYOUT, key_hash=MURMUR3_32)),
        log.rdd.mapPartitions(partial(ks.bucket_owner_partition, placement=BUCKETS)),
        numbers.mapPartitions(partial(ks.copies_partition, tree=TREE, cluster="c2")),
    ]
    return [*(row for rdd in answered for row in rdd.collect()), ks.histogram_of(counts.collect())]


def replays(spark: SparkSession) -> list[object]:
    """A replay and a comparison."""
    log = messages(spark).repartition(2, "topic_partition").sortWithinPartitions("topic_partition", "offset")
    rows = log.select("topic_partition", "offset", "key", "at_ms", "service_ms").rdd
    replayed = rows.mapPartitions(partial(ks.replay_partition, plan=PLAN))
    return [*replayed.collect(), *rows.mapPartitions(partial(ks.what_if_partition, plans=PLANS)).collect()]


def audits(spark: SparkSession) -> list[AuditRow]:
    """The audit of a delivery log that breaks promises."""
    history = ks.delivery_history(broken_log(spark), offered=keyed(spark))
    rows = history.repartition(2, "topic_partition").sortWithinPartitions("topic_partition", "sequence").rdd
    return (
        rows.mapPartitions(placed)
        .mapPartitions(partial(ks.audit_partition, guarantees=ks.DELIVERY_GUARANTEES))
        .collect()
    )


def streams(spark: SparkSession) -> list[tuple[object, ...]]:
    """A dispatcher for each topic-partition, until all of the log has happened."""
    log = spark.createDataFrame(stream_jobs.commands(), ks.COMMAND_SCHEMA)
    rows = log.repartition(2, "topic_partition").sortWithinPartitions("topic_partition", "sequence").rdd
    told = rows.map(lambda row: (row.topic_partition, UNTIL_MS, *row[1:]))
    return told.mapPartitions(partial(ks.dispatch_partition, placement=ring(), config=stream_jobs.CONFIG)).collect()


def placed(rows: Iterable[Row]) -> Iterator[tuple[str, int, Happening]]:
    """Read rows of histories."""
    for row in rows:
        fields = {name: value for name, value in row.asDict().items() if value is not None}
        place = fields.pop("topic_partition"), fields.pop("sequence")
        (happening,) = from_rows([fields])
        yield *place, happening
