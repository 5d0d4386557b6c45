"""Tables and topics as sources: what has to be said so that a job that reads twice reads the same twice.

Plain Python; needs neither Spark nor the packages of the formats.
"""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from keyshared.errors import ArgumentError
from keyshared.spark.logs.files import Source

__all__ = ["NO_SOURCE", "PACKAGES", "check_kafka", "check_snapshot", "kafka_package", "session_with"]

PACKAGES: Final = {
    "delta": {
        "3.5": "io.delta:delta-spark_2.12:3.3.2",
        "4.0": "io.delta:delta-spark_2.13:4.0.0",
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.1",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.1",
    },
    "iceberg": {
        "3.5": "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.11.0",
        "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    },
}
"""Maven coordinates of what reads a format, by Spark's version: each is built for one, and works with no other."""

NO_SOURCE: Final = "DATA_SOURCE_NOT_FOUND"
"""What Spark says in one or another error where the package of a format is not there."""

_SNAPSHOTS: Final = {
    "delta": ("versionAsOf", "timestampAsOf"),
    "iceberg": ("snapshot-id", "as-of-timestamp", "tag", "versionAsOf", "timestampAsOf"),
}
_KAFKA: Final = "kafka"
_SERVERS: Final = "kafka.bootstrap.servers"
_TOPICS: Final = ("subscribe", "subscribePattern", "assign")
_START_TIMES: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy")
_END_TIMES: Final = ("endingTimestamp", "endingOffsetsByTimestamp")
_ENDS: Final = ("endingOffsets", *_END_TIMES)
_RATES: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_OPTIONS: Final = (
    *_TOPICS,
    "startingOffsets",
    *_START_TIMES,
    *_ENDS,
    *_RATES,
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
)


def kafka_package(spark_version: str) -> str:
    """Return the Maven coordinates of Spark's Kafka connector, which is of Spark's own version.

    Args:
        spark_version: Spark's. What pip installs is built for Scala 2.12 up to Spark 3.5, and for 2.13 since.

    Example:
        >>> kafka_package("4.1.2")
        'org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.2'
    """
    scala = "2.12" if spark_version.startswith("3.") else "2.13"
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark_version}"


def session_with(kind: str, spark_version: str) -> str:
    """Return what a session needs that cannot read a format, for the error.

    Args:
        kind: The format, one of `PACKAGES`.
        spark_version: Spark's own.

    Example:
        >>> session_with("iceberg", "4.1.1")
        'have its package in the session: spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0'
        >>> session_with("iceberg", "4.3.0")  # doctest: +NORMALIZE_WHITESPACE
        'have its package in the session, and none for Spark 4.3 was known when this was written;
        for Spark 4.1 it is spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0'
    """
    minor = ".".join(spark_version.split(".")[:2])
    known = PACKAGES[kind]
    if minor in known:
        return f"have its package in the session: spark.jars.packages={known[minor]}"
    newest, package = max(known.items())
    none = f"none for Spark {minor} was known when this was written"
    return f"have its package in the session, and {none}; for Spark {newest} it is spark.jars.packages={package}"


def check_snapshot(source: Source) -> None:
    """Check that a table that may change meanwhile is read as it was at one time.

    Args:
        source: What Spark is to read.

    Raises:
        ArgumentError: It is a Delta or Iceberg table without a snapshot, or a Kafka topic, which has a reader of its
            own.

    Example:
        >>> check_snapshot(Source("s3a://lake/events", "delta", None, {"versionAsOf": "12"}))
        >>> check_snapshot(Source("s3a://lake/events", "delta"))
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: options is {}; it must name a snapshot of the delta table, by versionAsOf or \
timestampAsOf: a log is read more than once, and a write in between would change it
    """
    kind = (source.format or "").casefold()
    if kind == _KAFKA:
        raise ArgumentError("format", source.format, "be one of tables or files: a topic is read by load_kafka")
    names = _SNAPSHOTS.get(kind, ())
    if names and not _given(source.options).keys() & {name.casefold() for name in names}:
        requirement = f"name a snapshot of the {kind} table, by {' or '.join(names)}: a log is read more than once"
        raise ArgumentError("options", dict(source.options), f"{requirement}, and a write in between would change it")


def check_kafka(options: Mapping[str, str], *, stream: bool) -> None:
    """Check the options of a topic.

    Args:
        options: Those of Spark's connector, and those of Kafka's consumer with ``kafka.`` before them.
        stream: Whether they are of a stream, which goes on; else what is read has to begin and end somewhere.

    Raises:
        ArgumentError: A name is unknown; servers or topics are missing, or topics are named in two ways; what is read
            has no beginning or no end that stays where it is, or a stream has an end.

    Example:
        >>> check_kafka({"kafka.bootstrap.servers": "host:9092", "subscrib": "orders"}, stream=True)
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: options is 'subscrib'; it must be an option of Spark's Kafka connector, or of \
a consumer with kafka. before it; did you mean subscribe?
    """
    known = {name.casefold(): name for name in _OPTIONS}
    for name in options:
        if name.casefold() not in known and not name.casefold().startswith("kafka."):
            close = get_close_matches(name.casefold(), known, n=1)
            meant = f"; did you mean {known[close[0]]}?" if close else ""
            requirement = f"be an option of Spark's Kafka connector, or of a consumer with kafka. before it{meant}"
            raise ArgumentError("options", name, requirement)
    given = _given(options)
    if _SERVERS not in given:
        raise ArgumentError("options", dict(options), f"name {_SERVERS}, such as host:9092")
    topics = [name for name in _TOPICS if name.casefold() in given]
    if len(topics) != 1:
        raise ArgumentError("options", dict(options), f"name topics in one way: {', '.join(_TOPICS)}")
    if stream:
        _refuse_any(given, _ENDS, "be left out of a stream, which goes on")
    else:
        _refuse_any(given, _RATES, "be left out here: it is for streams")
        _refuse_any(
            given, _END_TIMES, "be left out: where no message is later it means the latest offset; name endingOffsets"
        )
        _refuse_any(
            given, _START_TIMES, "be left out: what retention deletes would be missing unsaid; name startingOffsets"
        )
        _check_fixed(given, "endingOffsets", "at which to stop", "what comes in between would change it")
        _check_fixed(
            given, "startingOffsets", "with which to begin", "what retention deletes in between would be missing unsaid"
        )


def _given(options: Mapping[str, str]) -> dict[str, str]:
    return {name.casefold(): value for name, value in options.items()}


def _refuse_any(given: Mapping[str, str], names: tuple[str, ...], requirement: str) -> None:
    for name in names:
        if name.casefold() in given:
            raise ArgumentError(name, given[name.casefold()], requirement)


def _check_fixed(given: Mapping[str, str], name: str, what: str, why: str) -> None:
    """Refuse a beginning or an end that moves."""
    said = given.get(name.casefold())
    try:
        fixed = [offset for topic in json.loads(said or "{}").values() for offset in topic.values()]
    except (ValueError, AttributeError):
        fixed = []
    if not fixed or any(type(offset) is not int or offset < 0 for offset in fixed):
        requirement = (
            f'name the offset of each partition {what}, such as {{"orders": {{"0": 1200, "1": 1175}}}}: a log is read '
            f"more than once, and {why}"
        )
        raise ArgumentError(name, said, requirement)
