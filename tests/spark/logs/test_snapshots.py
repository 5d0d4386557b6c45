"""Tables and topics have to say where they end, or two reads of one job are of two logs."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from keyshared.errors import ArgumentError
from keyshared.spark.logs.files import Source, head_of
from keyshared.spark.logs.snapshots import PACKAGES, check_kafka, check_snapshot, kafka_package, session_with

SERVERS = {"kafka.bootstrap.servers": "host:9092"}
TOPIC = {**SERVERS, "subscribe": "orders"}
BEGIN = '{"orders": {"0": 40, "1": 0}}'
END = '{"orders": {"0": 1200, "1": 0}}'
SPAN = {"startingOffsets": BEGIN, "endingOffsets": END}


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("delta", "versionAsOf"),
        ("Delta", "timestampasof"),
        ("iceberg", "snapshot-id"),
        ("iceberg", "as-of-timestamp"),
        ("iceberg", "tag"),
    ],
)
def test_a_table_is_read_at_a_snapshot_or_not_at_all(kind: str, option: str) -> None:
    check_snapshot(Source("db.events", kind, None, {option: "12"}))
    with pytest.raises(
        ArgumentError, match=rf"options is \{{'branch': 'main'\}}; it must name a snapshot of the {kind.lower()}"
    ):
        check_snapshot(Source("db.events", kind, None, {"branch": "main"}))


def test_what_is_no_table_needs_none_and_a_topic_has_a_reader_of_its_own() -> None:
    check_snapshot(Source("log.csv"))
    check_snapshot(Source("log", "orc"))
    with pytest.raises(ArgumentError, match="a topic is read by load_kafka"):
        check_snapshot(Source("orders", "kafka"))


@pytest.mark.parametrize("kind", sorted(PACKAGES))
def test_a_session_is_told_the_package_for_its_own_spark_or_that_none_is_known(kind: str) -> None:
    for minor, package in PACKAGES[kind].items():
        assert ("_2.12:" if minor == "3.5" else "_2.13:") in package
        assert f"have its package in the session: spark.jars.packages={package}" == session_with(kind, f"{minor}.7")
    told = f"none for Spark 9.9 was known when this was written; for Spark {max(PACKAGES[kind])} it is "
    assert told in session_with(kind, "9.9.0")


def test_the_guide_names_the_packages() -> None:
    text = (Path(__file__).parents[3] / "docs" / "spark-sources.md").read_text("utf-8")
    assert [] == [each for known in PACKAGES.values() for each in known.values() if f"`{each}`" not in text]
    assert f"`{kafka_package('4.1.2')}`" in text
    assert f"`{kafka_package('3.5.9')}`" in text


def test_the_name_of_a_table_is_no_missing_file() -> None:
    assert head_of(Source("lake.db.events", "iceberg", None, {"tag": "may"})) is None


def test_a_topic_that_can_be_read_passes() -> None:
    check_kafka({**TOPIC, **SPAN, "kafka.security.protocol": "SSL", "minpartitions": "9"}, stream=False)
    check_kafka({**TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "9"}, stream=True)


@pytest.mark.parametrize(
    ("options", "stream", "told"),
    [
        (
            {**TOPIC, "endingOffset": END},
            False,
            "options is 'endingOffset'; it must be an option of Spark's Kafka conne",
        ),
        ({**TOPIC, "endingOffset": END}, False, "did you mean endingOffsets?"),
        ({**TOPIC, "zzz": "1"}, True, "options is 'zzz'; it must be an option"),
        ({"subscribe": "orders"}, True, "name kafka.bootstrap.servers, such as host:9092"),
        (SERVERS, True, "it must name topics in one way: subscribe, subscribePattern, assign"),
        ({**TOPIC, "subscribePattern": "o.*"}, True, "it must name topics in one way"),
        ({**TOPIC, "endingOffsets": END}, True, "it must be left out of a stream, which goes on"),
        (
            {**TOPIC, "endingOffsets": END, "maxTriggerDelay": "1m"},
            False,
            "maxTriggerDelay is '1m'; it must be left out",
        ),
        (TOPIC, False, "endingOffsets is None; it must name the offset of each partition"),
        ({**TOPIC, "endingTimestamp": "1000"}, False, "endingTimestamp is '1000'; it must be left out: where no me"),
        (
            {**TOPIC, "endingOffsets": END, "endingoffsetsbytimestamp": "{}"},  # Spark would stop there, not at END
            False,
            "endingOffsetsByTimestamp is '{}'; it must be left out",
        ),
        ({**TOPIC, "endingOffsets": "latest"}, False, "endingOffsets is 'latest'; it must name the offset"),
        ({**TOPIC, "endingOffsets": '{"orders": {"0": 5, "1": -1}}'}, False, "it must name the offset"),
        ({**TOPIC, "endingOffsets": '{"orders": {"0": true}}'}, False, "it must name the offset"),
        ({**TOPIC, "endingOffsets": '{"orders": 5}'}, False, "it must name the offset"),
        ({**TOPIC, "endingOffsets": "[5]"}, False, "it must name the offset"),
        # where a topic begins moves, too
        ({**TOPIC, "endingOffsets": END}, False, "startingOffsets is None; it must name the offset of each partition"),
        (
            {**TOPIC, **SPAN, "startingOffsets": "earliest"},
            False,
            "startingOffsets is 'earliest'; it must name the off",
        ),
        ({**TOPIC, **SPAN, "startingOffsets": '{"orders": {"0": -2}}'}, False, "what retention deletes in between"),
        ({**TOPIC, **SPAN, "startingTimestamp": "1000"}, False, "startingTimestamp is '1000'; it must be left out"),
        ({**TOPIC, **SPAN, "STARTINGoffsetsByTimestamp": "{}"}, False, "startingOffsetsByTimestamp is '{}'; it must"),
    ],
)
def test_a_topic_that_cannot_or_that_ends_elsewhere_each_time_is_refused(
    options: dict[str, str],
    stream: bool,
    told: str,
) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_kafka(options, stream=stream)
    assert told in str(caught.value)
