"""Calls that can never work, and jobs that fail on what they find: what is said of them."""

import re
from collections.abc import Callable
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.spark.small_jobs import PLAN, RING, TREE, broken_log, keyed, messages

from keyshared import HashRing
from keyshared import spark as ks
from keyshared.errors import KeySharedError

# what is wrong and where, natively or in Python; the other lines are of who ran it
TELLING: Final = re.compile(r"^(?:\[USER_RAISED_EXCEPTION\].*|keyshared\..*\nin topic_partition .*)", re.MULTILINE)


def refused(spark: SparkSession) -> list[str]:
    """What comes at the call, before any job of it has run; or with the first look at the rows."""
    log, deliveries = messages(spark), broken_log(spark)
    stream = spark.readStream.format("rate").load().selectExpr("'p' topic_partition", "value offset", "'k' key")
    commands = stream.selectExpr("topic_partition", "offset sequence", "offset at_ms", "'offer' command")
    headless = log.withColumn("topic_partition", F.when(F.col("offset") > 5, F.col("topic_partition")))
    history = ks.delivery_history(deliveries, offered=keyed(spark))
    calls: list[Callable[[], object]] = [
        lambda: ks.with_owner(log, RING, key="user"),
        lambda: ks.with_owner(log, RING, key="offset"),
        lambda: ks.with_owner(log, RING, key="key.name"),
        lambda: ks.with_slot(log, RING, into="at_ms"),
        lambda: ks.with_copy_due(log, TREE, "c2"),
        lambda: ks.colocate(stream, RING),
        lambda: ks.colocate(log, partitions=0),
        lambda: ks.key_histogram(log, weight="topic_partition"),
        lambda: ks.balanced_boundaries(log, 4),
        lambda: ks.replay(log, PLAN, service_ms="key"),
        lambda: ks.replay(headless, PLAN),
        lambda: ks.replay(log.withColumn("at_ms", -F.col("at_ms")), PLAN),
        lambda: ks.what_if(log, {}),
        lambda: ks.check_order(log),
        lambda: ks.audit(log),
        lambda: ks.audit(history.filter("topic_partition = 'p1'").withColumn("sequence", F.lit(None).cast("long"))),
        lambda: ks.audit_distribution(log, TREE),
        lambda: ks.translate_offsets(log, log, log),
        lambda: ks.load_log(spark, "/nowhere/log.csv", key="a", partition="b", order="c"),
        lambda: ks.load_log(spark, "log.txt", key="a", partition="b", order="c"),
        lambda: ks.stream_dispatch(commands, HashRing()),
        lambda: ks.stream_dispatch(log, HashRing()),
    ]
    return [said(call) for call in calls]


def failed(spark: SparkSession) -> list[str]:
    """What fails a job while it runs, natively or in Python."""
    log = messages(spark).filter("topic_partition = 'p1'")  # one of them, so that no other fails first
    placeless = log.withColumn("offset", F.when(F.col("offset") > 5, F.col("offset")))
    twice = log.withColumn("offset", (F.col("offset") / 4).cast("long"))
    history = ks.delivery_history(broken_log(spark).filter("topic_partition = 'p1'"))
    frames = [
        ks.colocate(placeless, RING),
        ks.with_copy_due(log.withColumn("flags", F.lit(-1)), TREE, "c2"),
        ks.replay(twice, PLAN).deliveries,
        ks.audit(history.withColumn("happening", F.lit("vanished"))).violations,
    ]
    return [said(frame.collect) for frame in frames]


def said(call: Callable[[], object]) -> str:
    """The error of a call: ours as it is, and what Spark's says of ours."""
    try:
        call()
    except KeySharedError as error:
        return f"{type(error).__name__}: {error}"
    except PySparkException as error:
        found = TELLING.search(str(error))
        return str(error) if found is None else found.group()
    raise AssertionError("it was not refused")
