"""The replay as a Spark job: what the simulation says of each topic-partition, however the rows are spread."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.settings import BATCH_ROWS, settings

from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.simulate import (
    Answer,
    Crash,
    Fixed,
    Group,
    Join,
    Leave,
    Pace,
    PerMessage,
    Poisoned,
    Return,
    Sampled,
    SampledAnswers,
    SimulatedConsumer,
)
from keyshared.spark.replays.partition import DeliveryRow, Message, SummaryRow, replay_partition

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.spark.audits.order import check_order, count_by_promise  # noqa: E402 - needs pyspark
from keyshared.spark.frames.packing import _bins  # noqa: E402 - needs pyspark
from keyshared.spark.replays.replay import Replay, replay, summary_fields  # noqa: E402 - needs pyspark
from keyshared.spark.replays.schemas import DELIVERY_SCHEMA, SUMMARY_SCHEMA  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "topic_partition string, offset long, key binary, at_ms long, service_ms long, not_before_ms long"
STORMY = Group(
    consumers=[
        SimulatedConsumer("a", PerMessage(default_ms=7), limit=2, concurrency=2),
        SimulatedConsumer("b", Sampled([1, 40])),
    ],
    changes=[
        Join(150, SimulatedConsumer("c", Fixed(5))),
        Crash(250, "a"),
        Return(330, "a"),
        Crash(500, "b"),
        Leave(700, "c", 20),
    ],
    config=DispatcherConfig(
        window=6,
        max_loaded_per_key=2,
        ack_timeout_ms=30,
        inactive_grace_ms=60,
        retry=RetryPolicy(max_redeliveries=2, base_delay_ms=9),
        poison=Poison.DEAD_LETTER,
    ),
    answers=[SampledAnswers([Answer.ACK] * 7 + [Answer.NACK] * 2 + [Answer.SILENT], seed=5)],
    archive_ms=4,
    load_ms=3,
)
BACKLOG = Group(
    consumers=[SimulatedConsumer("a", Fixed(3)), SimulatedConsumer("b", Fixed(4))],
    config=DispatcherConfig(max_in_flight_per_key=3, retry=RetryPolicy(max_redeliveries=0), poison=Poison.QUARANTINE),
    answers=[Poisoned(["k1"])],
    pace=Pace.BACKLOG,
    count_moved_keys=False,
)
CALM = Group(consumers=[SimulatedConsumer("a", Fixed(3)), SimulatedConsumer("b", Fixed(3))])


def random_log(seed: int, topic_partitions: int, most: int = 60, *, later: bool = False) -> list[Message]:
    rng = Random(seed)
    found = []
    for number in range(topic_partitions):
        offset = at_ms = 0
        for _ in range(rng.randrange(1, most)):
            offset += rng.randrange(1, 4)  # gaps are legal
            at_ms += rng.randrange(30)
            key = rng.choice([None, *(f"k{i}".encode() for i in range(6)), b"", b"\xff\x00"])
            service_ms = rng.choice([None, 0, 12])
            not_before_ms = rng.choice([None, 0, at_ms + 40]) if later else None
            found.append(Message(f"t-{number}", offset, key, at_ms, service_ms, not_before_ms))
    rng.shuffle(found)
    return found


def frame(spark: "SparkSession", log: list[Message]) -> "DataFrame":
    return spark.createDataFrame([tuple(row) for row in log], SCHEMA)


def in_process(log: list[Message], plan: Group) -> tuple[list[DeliveryRow], list[SummaryRow]]:
    rows = list(replay_partition(sorted(log, key=lambda row: row[:2]), plan, points=10, hottest=3))
    return (
        sorted(row for row in rows if isinstance(row, DeliveryRow)),
        sorted((row for row in rows if isinstance(row, SummaryRow)), key=lambda row: row.topic_partition),
    )


def plain(value: Any) -> Any:
    if isinstance(value, pyspark.sql.Row):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


def by_spark(result: Replay) -> tuple[list[DeliveryRow], list[Any]]:
    rows: list[Any] = [DeliveryRow(*map(plain, row)) for row in result.deliveries.collect()]
    return sorted(rows), [plain(row) for row in result.summaries.orderBy("topic_partition").collect()]


def assert_same(expected: tuple[list[DeliveryRow], list[SummaryRow]], result: Replay) -> None:
    deliveries, summaries = by_spark(result)
    assert expected[0] == deliveries
    assert [summary_fields(row) for row in expected[1]] == summaries


@pytest.mark.parametrize("plan", [STORMY, BACKLOG], ids=["stormy", "backlog"])
def test_many_small_random_logs_are_replayed_as_the_simulation_replays_each(spark: "SparkSession", plan: Group) -> None:
    log = random_log(seed=1, topic_partitions=40, later=True)
    expected = in_process(log, plan)
    assert expected != in_process([row._replace(not_before_ms=None) for row in log], plan)
    assert any(row.attempt > 1 for row in expected[0]) == (plan is STORMY)
    assert any(row.settled_sequence != row.end_sequence for row in expected[0])
    columns: Any = {"service_ms": "service_ms", "not_before_ms": "not_before_ms"}
    with replay(frame(spark, log), plan, **columns, points=10, hottest=3) as result:
        assert_same(expected, result)


@pytest.mark.parametrize(("partitions", "batch"), [(1, 10_000), (1, 3), (2, 7), (9, 1)])
def test_neither_partitions_nor_batches_change_anything(spark: "SparkSession", partitions: int, batch: int) -> None:
    log = random_log(seed=2, topic_partitions=5)  # with 9 partitions, some are empty
    with settings(spark, {BATCH_ROWS: str(batch)}):
        rows = frame(spark, log).repartition(3)
        with replay(rows, STORMY, service_ms="service_ms", partitions=partitions, points=10, hottest=3) as result:
            assert partitions == result._rows.rdd.getNumPartitions()
            assert_same(in_process(log, STORMY), result)


def test_a_topic_partition_longer_than_a_batch_is_whole(spark: "SparkSession") -> None:
    log = [Message("p", offset, b"k%d" % (offset % 50), offset) for offset in range(9_001)]
    with replay(frame(spark, log), CALM, points=10, hottest=3) as result:
        assert len(log) + 1 == result._rows.count()  # and a summary
        assert_same(in_process(log, CALM), result)


def test_the_frames_have_exactly_the_promised_schemas(spark: "SparkSession") -> None:
    with replay(frame(spark, random_log(3, 1)), CALM) as result:
        assert DELIVERY_SCHEMA == result.deliveries.schema
        assert SUMMARY_SCHEMA == result.summaries.schema


def test_the_replay_runs_once_for_both_frames_and_topic_partitions_run_side_by_side(
    spark: "SparkSession", tmp_path: Path
) -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Witness(str(tmp_path)))])
    log = [Message(f"t-{number}", offset, b"k") for number in range(3) for offset in range(2)]
    with replay(frame(spark, log), plan) as result:
        assert [] == list(tmp_path.iterdir())  # nothing has run yet
        assert 6 == result.deliveries.count()
        assert 3 == result.summaries.count()
        assert 6 == result.deliveries.count()
        assert 3 == result._rows.rdd.getNumPartitions()  # one for each, whatever their names hash to
    calls = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert 6 == len(calls)


@dataclass(frozen=True)
class Witness:
    """A service time that leaves a trace of each delivery."""

    folder: str

    def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:
        with Path(self.folder, "calls").open("a") as file:
            file.write(f"{offset} {attempt} {own_ms}\n")
        return 1


def test_an_empty_log_gives_empty_frames(spark: "SparkSession") -> None:
    with replay(frame(spark, []), CALM) as result:
        assert 0 == result.deliveries.count()
        assert 0 == result.summaries.count()


def test_text_keys_other_names_and_narrow_numbers_are_taken_as_they_are(spark: "SparkSession") -> None:
    rows = [("é", 1, 5, "t"), (None, 2, 9, "t")]
    log = spark.createDataFrame(rows, "id string, pos int, due int, shard string")
    with replay(log, CALM, topic_partition="shard", key="id", offset="pos", at_ms="due") as result:
        found = result.deliveries.orderBy("offset").select("key", "offset", "delivered_ms").collect()
    assert [("é".encode(), 1, 5), (None, 2, 9)] == [(plain(row[0]), *row[1:]) for row in found]


def test_without_a_column_of_times_a_backlog_is_replayed(spark: "SparkSession") -> None:
    log = random_log(4, 2)
    timeless = [row._replace(at_ms=0, service_ms=None) for row in log]
    with replay(frame(spark, log).drop("at_ms", "service_ms"), BACKLOG, at_ms=None, points=10, hottest=3) as result:
        assert_same(in_process(timeless, BACKLOG), result)


def test_the_plain_function_gives_the_same_rows_on_an_rdd(spark: "SparkSession") -> None:
    log = random_log(5, 4)
    one_each = spark.sparkContext.parallelize(range(4), 4).mapPartitions(partial(_of_partition, log))
    rows: list[Any] = one_each.mapPartitions(partial(replay_partition, plan=STORMY, points=10, hottest=3)).collect()
    expected = in_process(log, STORMY)
    assert expected[0] == sorted(row for row in rows if isinstance(row, DeliveryRow))
    summaries = sorted((row for row in rows if isinstance(row, SummaryRow)), key=lambda row: row.topic_partition)
    assert expected[1] == summaries


def _of_partition(log: list[Message], numbers: Iterator[int]) -> list[Message]:
    names = {f"t-{number}" for number in numbers}
    return sorted((row for row in log if row.topic_partition in names), key=lambda row: row.offset)


def test_what_was_replayed_stands_up_to_the_audit(spark: "SparkSession") -> None:
    log = random_log(6, 3)
    offered = spark.createDataFrame([(row[0], row[1]) for row in log], "topic_partition string, offset long")
    plan = Group(consumers=STORMY.consumers, config=STORMY.config, answers=STORMY.answers, changes=STORMY.changes[:1])
    with replay(frame(spark, log), plan, service_ms="service_ms") as result:
        nothing = {"one-holder": 0, "key-order": 0, "no-loss": 0, "fence": 0}
        assert nothing == count_by_promise(check_order(result.deliveries, offered=offered))
        lost = result.deliveries.filter("not (topic_partition = 't-1' and attempt = 1 and outcome = 'acked')")
        assert 0 < count_by_promise(check_order(lost, offered=offered))["no-loss"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"topic_partition": "nope"}, "'nope'; it must be a column of the frame"),
        ({"topic_partition": "offset"}, "'offset'; it must be string, and it is long"),
        ({"key": "at_ms"}, "'at_ms'; it must be string or binary, and it is bigint"),
        ({"offset": "key"}, "'key'; it must be long or int or smallint or tinyint, and it is binary"),
        ({"at_ms": "when"}, "'when'; it must be long or int.* and it is timestamp"),
        ({"service_ms": "nope"}, "'nope'; it must be a column of the frame"),
        ({"not_before_ms": "key"}, "'key'; it must be long or int"),
        ({"partitions": 0}, "partitions is 0; it must be an int of at least 1, or None"),
        ({"partitions": True}, "partitions is True; it must be an int of at least 1"),
        ({"points": 0}, "points is 0"),
        ({"hottest": -1}, "hottest is -1"),
        ({"plan": DispatcherConfig()}, "plan is DispatcherConfig.*; it must be a Group"),
        (
            {"at_ms": "missing"},
            "column at_ms is 'missing'; it must not be NULL, negative or above .* and it is in 1, such as .*offset 2",
        ),
        (
            {"at_ms": "below"},
            "column at_ms is 'below'; it must not be NULL, negative or above .* in any row, and it is in 2",
        ),
        (
            {"service_ms": "below"},
            "column service_ms is 'below'; it must not be negative or above .* in any row, and it is in 2",
        ),
        (
            {"not_before_ms": "below"},
            "column not_before_ms is 'below'; it must not be negative or above .* in any row, and it is in 2",
        ),
        (
            {"offset": "missing"},
            "column offset is 'missing'; it must not be NULL in any row, and it is in 1, such as",
        ),
        ({"topic_partition": "text"}, "column topic_partition is 'text'; it must not be NULL or a text that is not"),
    ],
)
def test_what_cannot_be_replayed_is_refused_before_it_runs(
    spark: "SparkSession", arguments: dict[str, Any], told: str
) -> None:
    log = frame(spark, [Message("t", 1, b"k"), Message("t", 2, b"k")]).withColumns(
        {
            "when": F.timestamp_millis("at_ms"),
            "below": F.lit(-1),
            "missing": F.when(F.col("offset") == 1, 3),
            "text": F.when(F.col("offset") == 1, "t"),
        }
    )
    with pytest.raises(ArgumentError, match=told):
        replay(log, **{"plan": CALM, **arguments})


def test_an_offset_that_is_there_twice_fails_the_job_and_is_named(spark: "SparkSession") -> None:
    log = frame(spark, [Message("t", 7, b"k"), Message("t", 7, b"k")])
    with (
        replay(log, CALM) as result,
        pytest.raises(pyspark.errors.PythonException, match="cannot take offset 7 after 7"),
    ):
        result.deliveries.collect()


def test_topic_partitions_are_spread_by_size() -> None:
    sizes = {"a": 10, "b": 9, "c": 8, "d": 3, "e": 2, "f": 2}
    bins: dict[int, int] = {}
    for name, number in _bins(sizes, 3):
        bins[number] = bins.get(number, 0) + sizes[name]
    assert [11, 11, 12] == sorted(bins.values())


def test_more_topic_partitions_than_shuffle_partitions_share_them(spark: "SparkSession") -> None:
    log = random_log(8, 11, most=4)
    kept = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    with replay(frame(spark, log), CALM) as result:
        assert kept == result._rows.rdd.getNumPartitions()
        assert 11 == result.summaries.count()
