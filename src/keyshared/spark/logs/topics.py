"""Kafka topics as logs and as streams, by Spark's own connector."""

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import ArgumentError
from keyshared.spark.logs.snapshots import check_kafka, kafka_package

__all__ = ["load_kafka", "messages_of"]


def load_kafka(spark: SparkSession, options: Mapping[str, str], *, stream: bool = False) -> DataFrame:
    """Read Kafka topics by Spark's connector, as messages that `replay` and `what_if` take as they are.

    Args:
        spark: The session, started with the connector (``org.apache.spark:spark-sql-kafka-0-10_2.13`` of Spark's own
            version, and ``_2.12`` before Spark 4.0).
        options: Those of the connector (``subscribe``, ``startingOffsets``), and those of Kafka's consumer with
            ``kafka.`` before them (``kafka.bootstrap.servers``).
        stream: Whether to go on reading, as a streaming frame. Otherwise ``startingOffsets`` and ``endingOffsets`` name
            by numbers where each partition begins and stops, so that a job that reads twice reads the same twice.

    Returns:
        ``topic_partition`` (``orders-3``), ``key`` (binary), ``offset``, ``at_ms`` (of the message's timestamp), and
        what else the connector gives: ``value``, ``topic``, ``partition`` and so on.

    Raises:
        ArgumentError: An option is unknown or missing, no numbers say where to begin and to stop, or Spark has no
            connector.

    Example:
        >>> options = {"kafka.bootstrap.servers": "host:9092", "subscribe": "orders"}
        >>> options["startingOffsets"] = '{"orders": {"0": 40, "1": 12}}'
        >>> options["endingOffsets"] = '{"orders": {"0": 1200, "1": 1175}}'
        >>> log = load_kafka(spark, options)  # doctest: +SKIP
        >>> with replay(log, plan) as result:  # doctest: +SKIP
        ...     result.report("orders.html")
    """
    check_kafka(options, stream=stream)
    reader = spark.readStream if stream else spark.read
    try:
        return messages_of(reader.format("kafka").options(**options).load())
    except AnalysisException as error:
        if "kafka" not in str(error).casefold() or "data source" not in str(error).casefold():
            raise
        package = kafka_package(spark.version)
        raise ArgumentError("spark", "a session", f"have the Kafka connector: spark.jars.packages={package}") from None


def messages_of(rows: DataFrame) -> DataFrame:
    """Bring rows of the connector into the form of messages.

    Args:
        rows: With ``topic``, ``partition``, ``key``, ``offset`` and ``timestamp``.

    Returns:
        ``topic_partition``, ``key``, ``offset``, ``at_ms``, and the others.
    """
    own = {"topic_partition", "key", "offset", "at_ms"}
    return rows.select(
        F.concat_ws("-", "topic", F.col("partition").cast("string")).alias("topic_partition"),
        "key",
        "offset",
        F.unix_millis("timestamp").alias("at_ms"),
        *(name for name in rows.columns if name not in own),
    )
