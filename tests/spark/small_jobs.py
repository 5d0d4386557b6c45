"""One small job of every kind, each a list of rows: the same on every master and every version of Spark."""

import re
from collections.abc import Callable, Mapping
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyspark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.command_logs import from_zero, lag_of, ring, written_log
from tests.spark.killed_stream import CONFIG, NAMES, SCHEMA
from tests.spark.logs import random_group

from keyshared import HashRing
from keyshared import spark as ks
from keyshared.distribution import DistributionTree

RING: Final = HashRing(["ann", "bob"])
PULSAR: Final = HashRing.pulsar(["ann", "bob"])  # its hash runs in Python
TREE: Final = DistributionTree({3: [{2: ["c1", {1: ["c2", "c3"]}]}, {1: ["c4", "c5"]}]})
RECORDS: Final = "topic string, partition int, offset long, timestamp long, origin string, origin_offset long"
GROUPS: Final = {"as it is": random_group(3), "other": random_group(4)}
_BYTES: Final = re.compile(r"bytearray\((b'.*?'|b\".*?\")\)")  # before 4.1 collect() makes these of binary


def messages(spark: SparkSession) -> DataFrame:
    """Two topic-partitions of a log; some messages have no key."""
    number = F.col("id")
    return spark.range(0, 120, 1, 3).select(
        F.lit("orders").alias("topic"),
        (number % 2).alias("partition"),
        number.alias("offset"),
        F.when(number % 11 != 0, F.concat(F.lit("user-"), number % 7)).alias("key"),
        F.timestamp_millis(number * 3).alias("timestamp"),
    )


def owners(spark: SparkSession) -> list[Row]:
    """A native column, and one through Arrow."""
    frame = messages(spark).withColumn("owner", ks.owner(RING, "key"))
    return frame.withColumn("pulsar", ks.owner(PULSAR, "key")).collect()


def colocated(spark: SparkSession) -> list[Row]:
    """Each row with its partition and its place in there."""
    return ks.colocate(messages(spark), PULSAR, tasks=2).select("*", F.monotonically_increasing_id()).collect()


def simulated(spark: SparkSession) -> list[Row]:
    """The deliveries of two groups, and their summaries."""
    deliveries = ks.simulate(messages(spark), GROUPS)
    return [*deliveries.collect(), *ks.summaries(deliveries).collect()]


def demanded(spark: SparkSession) -> list[Row]:
    """The demand of the log on a group."""
    return ks.demand(messages(spark), GROUPS["other"], window_ms=100).collect()


def audited(spark: SparkSession) -> list[Row]:
    """The verdicts of a simulation whose deliveries are cut: messages are lost."""
    return ks.audit(ks.simulate(messages(spark), GROUPS["other"]).filter("offset % 9 > 0 or attempt = 1")).collect()


def copied(spark: SparkSession) -> list[Row]:
    """The faults of logs in which a link was never followed."""
    records = spark.range(20).selectExpr("concat('m', id) message_id", "'c2' cluster", "id % 5 flags")
    return ks.audit_copies(records, TREE).collect()


def translated(spark: SparkSession) -> list[Row]:
    """Commits by timestamp and by provenance."""
    here = spark.createDataFrame([("t", 0, 25 + i, 1_000 * i, "eu", i) for i in range(10)], RECORDS)
    there = here.withColumn("offset", F.col("offset") - 25)
    columns = "group string, topic string, partition int, offset long"
    commits = spark.createDataFrame([("billing", "t", 0, 33), ("audit", "t", 0, 28), ("new", "u", 0, 3)], columns)
    by_time = ks.translate_offsets(commits, here, there, margin_ms=5_000)
    return [*by_time.collect(), *ks.translate_offsets(commits, here, there, provenance=True).collect()]


def commands() -> list[tuple[Any, ...]]:
    """Commands of two topic-partitions."""
    logs = {number: from_zero(written_log(Random(number), 60, CONFIG).commands) for number in (0, 1)}
    rows = [("p", number, *command) for number, log in logs.items() for command in log]
    return [tuple(key.encode() if isinstance(key, str) and at == 6 else key for at, key in enumerate(r)) for r in rows]


def dispatched(spark: SparkSession) -> list[Row]:
    """The outcomes of a batch of commands."""
    df = spark.createDataFrame(commands(), SCHEMA)
    return ks.stream_dispatch(df, ring(), config=CONFIG, delay_ms=100).collect()


def streamed(spark: SparkSession) -> list[Row]:
    """The outcomes of the same commands in three files."""
    rows = commands()
    files = [[row for row in rows if start <= row[2] < start + 20] for start in (0, 20, 40)]
    delay_ms = lag_of([[(row[:2], *row[2:]) for row in file] for file in files])
    with TemporaryDirectory() as folder:
        for file in files:
            spark.createDataFrame(file, SCHEMA).coalesce(1).write.mode("append").parquet(f"{folder}/in")
        for name, value in ks.STATE_STORE_SETTINGS.items():
            spark.conf.set(name, value)
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
        outcomes = ks.stream_dispatch(stream, ring(), config=CONFIG, delay_ms=delay_ms)
        writer = outcomes.writeStream.option("path", f"{folder}/out").option("checkpointLocation", f"{folder}/state")
        writer.trigger(availableNow=True).start().awaitTermination()
        return spark.read.schema(f"{NAMES}, {ks.OUTCOME_COLUMNS}").parquet(f"{folder}/out").collect()


JOBS: Final[Mapping[str, Callable[[SparkSession], list[Row]]]] = {
    "owners": owners,
    "colocate": colocated,
    "simulate": simulated,
    "demand": demanded,
    "audit": audited,
    "copies": copied,
    "offsets": translated,
    "dispatch": dispatched,
    **({"streams": streamed} if pyspark.__version__ >= "4.1" else {}),
}


def answers(spark: SparkSession) -> dict[str, list[str]]:
    """Return the rows of each job as texts, sorted: frames have no order."""
    return {name: sorted(_BYTES.sub(r"\1", repr(row)) for row in job(spark)) for name, job in JOBS.items()}
