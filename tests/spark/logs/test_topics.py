"""Rows of Spark's Kafka connector as messages; the connector itself is not at hand here."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from keyshared import spark as ks
from keyshared.errors import ArgumentError
from keyshared.simulate import Fixed, Group, SimulatedConsumer
from keyshared.spark.logs.topics import messages_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPAN = {"startingOffsets": '{"orders": {"0": 0}}', "endingOffsets": '{"orders": {"0": 3}}'}
OPTIONS = {"kafka.bootstrap.servers": "host:9092", "subscribe": "orders", **SPAN}
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"


def test_rows_of_the_connector_are_replayed_as_they_are(spark: "SparkSession") -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        (bytearray(b"a"), bytearray(b"x"), "orders", 3, 70, at, 0),
        (None, bytearray(b"y"), "orders", 3, 71, at, 0),
    ]
    messages = messages_of(spark.createDataFrame(rows, SCHEMA))
    assert ["topic_partition", "key", "offset", "at_ms", "value", "topic", "partition"] == messages.columns[:7]
    plan = Group(consumers=[SimulatedConsumer("c", Fixed(5), concurrency=2)])
    with ks.replay(messages, plan) as result:
        found = result.deliveries.select("topic_partition", "offset", "delivered_ms").orderBy("offset").collect()
    at_ms = int(at.timestamp() * 1_000)
    assert [("orders-3", 70, at_ms), ("orders-3", 71, at_ms)] == [tuple(row) for row in found]


@pytest.mark.parametrize("stream", [False, True])
def test_without_the_connector_its_coordinates_are_told(spark: "SparkSession", *, stream: bool) -> None:
    options = {name: value for name, value in OPTIONS.items() if not (stream and name.startswith("ending"))}
    with pytest.raises(ArgumentError, match=r"packages=org.apache.spark:spark-sql-kafka-0-10_2.1[23]:[34]\."):
        ks.load_kafka(spark, options, stream=stream)
    with pytest.raises(ArgumentError, match="did you mean subscribe"):
        ks.load_kafka(spark, {**options, "subscribes": "x"}, stream=stream)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_without_its_package_the_coordinates_of_a_table_are_told(spark: "SparkSession", kind: str) -> None:
    told = rf"it must have its package in the session.* spark.jars.packages=\S+:\S*{kind}\S+_2.1[23]:\d"
    with pytest.raises(ArgumentError, match=told):
        ks.load_log(spark, "/nowhere", key="k", partition="p", order="o", format=kind, options={"versionAsOf": "3"})
    with pytest.raises(ArgumentError, match="it must name a snapshot"):
        ks.load_log(spark, "/nowhere", key="k", partition="p", order="o", format=kind)
