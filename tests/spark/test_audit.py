"""The audit on Spark says of each topic-partition what the checker says, and each planted fault breaks its promise."""

import re
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.simulate import (
    Answer,
    Arrival,
    Change,
    Crash,
    Fixed,
    Group,
    Join,
    Leave,
    Redrive,
    SampledAnswers,
    SimulatedConsumer,
    simulated_deliveries,
)
from keyshared.testing import Claims, HistoryError, to_rows
from keyshared.testing.history import Acked, Committed, Connected, Delivered, Event, Published

pytest.importorskip("pyspark")
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from keyshared.spark.verdicts import DELIVERY_CLAIMS, audit, delivery_events, judge_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Log = list[dict[str, Any]]
PROMISES = ["fence", "key-order", "no-loss", "one-holder"]
COLUMNS = (
    "offset bigint, key binary, consumer string, attempt int, outcome string, sequence bigint, end_sequence bigint"
)
NAMES = [column.split()[0] for column in COLUMNS.split(", ")]
JOB_FAILED = (PySparkException, Py4JJavaError)


def simulated(seed: int) -> Log:
    """The deliveries of a group with joins, leaves, crashes, failures and redrives."""
    rng = Random(seed)
    consumers = [SimulatedConsumer(name, Fixed(rng.choice([3, 9, 20, 70])), limit=3, concurrency=2) for name in "abc"]
    new = SimulatedConsumer("d", Fixed(5))
    changes: list[Change] = [
        Crash(50, "a"),
        Join(80, new),
        Leave(120, "b"),
        *(Redrive(at_ms, "k1") for at_ms in (300, 600)),
    ]
    config = DispatcherConfig(
        ack_timeout_ms=100,
        retry=RetryPolicy(max_redeliveries=rng.choice([1, 3, None])),
        poison=rng.choice([Poison.DEAD_LETTER, Poison.DROP]),
        redrive=True,
    )
    answers = [SampledAnswers((Answer.ACK,) * 7 + (Answer.NACK,) * 2 + (Answer.SILENT,))]
    group = Group(consumers=consumers, changes=changes, config=config, answers=answers)
    arrivals = [Arrival(offset, f"k{rng.randrange(5)}", at_ms=offset * rng.randrange(3)) for offset in range(60)]
    return [delivery._asdict() for delivery in simulated_deliveries(group, arrivals)]


def frame(spark: "SparkSession", logs: dict[str, Log]) -> "DataFrame":
    rows = [(shard, *(row[name] for name in NAMES)) for shard, log in logs.items() for row in log]
    return spark.createDataFrame(Random(1).sample(rows, len(rows)), f"shard string, {COLUMNS}").repartition(3)


def violations(spark: "SparkSession", logs: dict[str, Log], **options: Any) -> dict[str, dict[str, int]]:
    rows = audit(frame(spark, logs), topic_partition="shard", **options).collect()
    found: dict[str, dict[str, int]] = {shard: {} for shard in logs}
    for row in rows:
        found[row.shard][row.promise] = row.violations if row.unjudged is None else -1
    assert all([*promises] == sorted(promises) for promises in found.values())
    return found


def test_a_simulated_group_keeps_all_promises(spark: "SparkSession") -> None:
    logs = {f"p{seed}": simulated(seed) for seed in range(20)}
    outcomes = {row["outcome"] for log in logs.values() for row in log}
    assert outcomes >= {"late_acked", "acked", "nacked", "timed_out", "dead_lettered", "dropped"}
    assert {shard: dict.fromkeys(PROMISES, 0) for shard in logs} == violations(spark, logs)


def straight(keys: str) -> Log:
    """A log in which messages are delivered and acked one after the other."""
    return [
        dict(zip(NAMES, (offset, key.encode(), "a", 1, "acked", 2 * offset, 2 * offset + 1), strict=True))
        for offset, key in enumerate(keys)
    ]


def two_holders(log: Log) -> None:
    log[0]["end_sequence"], log[1]["consumer"], log[1]["end_sequence"] = 4, "b", 5


def overtaken(log: Log) -> None:
    log[0]["sequence"], log[0]["end_sequence"], log[1]["sequence"], log[1]["end_sequence"] = 2, 3, 0, 1


def not_done(log: Log) -> None:
    log[1] |= {"outcome": "nacked"}


def never_delivered(log: Log) -> None:
    log[1] |= dict.fromkeys(["consumer", "attempt", "outcome", "sequence", "end_sequence"])


def acked_while_open(log: Log) -> None:
    log[3] |= {"end_sequence": 10, "outcome": "timed_out"}
    log.append(log[3] | {"attempt": 2, "outcome": "acked", "sequence": 8, "end_sequence": 9})


@pytest.mark.parametrize(
    ("plant", "promise", "text"),
    [
        (two_holders, "one-holder", "offset 1 went to 'b' while offset 0"),
        (overtaken, "key-order", "offset 1 overtook offset 0 of its key"),
        (not_done, "no-loss", "offset 1"),
        (never_delivered, "no-loss", "offset 1"),
        (acked_while_open, "one-holder", "offset 3"),
    ],
)
def test_a_planted_fault_breaks_its_promise_and_is_proved(
    spark: "SparkSession", plant: Callable[[Log], None], promise: str, text: str
) -> None:
    logs = {"right": straight("kkkk"), "wrong": straight("kkkk")}
    plant(logs["wrong"])
    rows = audit(frame(spark, logs), topic_partition="shard").filter("violations > 0").collect()
    assert ("wrong", promise) in {(row.shard, row.promise) for row in rows}
    assert {"wrong"} == {row.shard for row in rows}
    [proofs] = [row.proofs for row in rows if row.promise == promise]
    assert any(re.search(text, proof.explanation) for proof in proofs), proofs
    assert all(proof.key in {None, b"k"} and proof.offset in range(4) and "#" in proof.excerpt for proof in proofs)


def damaged(log: Log, rng: Random) -> Log:
    rows = [dict(row) for row in rng.sample(log, rng.randrange(len(log) - 5, len(log)))]
    for row in rng.sample(rows, 3):
        if row["consumer"] is not None:
            row["consumer"] = rng.choice("abc")
            row["outcome"] = rng.choice(["acked", "nacked", "released"])
            row["end_sequence"] += rng.choice([0, 40])
    return rows


def by_python(log: Log, most: int) -> list[Any]:
    """The verdicts of a log, with its events in order by plain Python."""
    events: list[tuple[Any, ...]] = []
    for row in log:
        sequences = [other["sequence"] for other in log if other["offset"] >= row["offset"]]
        first = min((each for each in sequences if each is not None), default=1 << 63)
        message = row["offset"], row["key"], row["consumer"], row["attempt"]
        events.append((first, 1, "published", *message))
        if row["consumer"] is not None:
            events.append((row["sequence"], 2, "delivered", *message))
        if row["end_sequence"] is not None:
            events.append((row["end_sequence"], 0, row["outcome"], *message))
    return [
        *judge_events(
            delivery_events(event[2:] for event in sorted(events, key=lambda each: (*each[:2], each[3]))),
            DELIVERY_CLAIMS,
            most,
        )
    ]


def test_verdicts_of_damaged_logs_are_those_of_the_checker_in_python(spark: "SparkSession") -> None:
    rng = Random(3)
    logs = {f"p{seed}": damaged(simulated(seed), rng) for seed in range(30)}
    rows = audit(frame(spark, logs), topic_partition="shard", most=2, tasks=5).collect()
    found: dict[str, list[Any]] = {shard: [] for shard in logs}
    for row in rows:
        found[row.shard].append((*row[1:5], [tuple(proof) for proof in row.proofs]))
    assert {shard: [tuple(verdict) for verdict in by_python(log, 2)] for shard, log in logs.items()} == found
    assert {row.promise for row in rows if row.violations} >= {"one-holder", "no-loss", "fence"}
    assert max(row.violations for row in rows) > 2


@pytest.mark.parametrize("outcome", ["open", "outstanding"])
def test_a_log_that_stops_too_early_is_not_judged_for_losses(spark: "SparkSession", outcome: str) -> None:
    log = straight("kkk")
    log[2] |= {"outcome": outcome, "end_sequence": None}
    if outcome == "outstanding":
        log[2] |= {"consumer": None, "attempt": None, "sequence": None}
    assert {"p": {**dict.fromkeys(PROMISES, 0), "no-loss": -1}} == violations(spark, {"p": log})


def test_ends_come_before_starts_at_one_place_and_unknown_outcomes_release(spark: "SparkSession") -> None:
    log = straight("kk")
    log[0] |= {"end_sequence": 2}
    assert {"p": dict.fromkeys(PROMISES, 0)} == violations(spark, {"p": log})
    events = [
        *delivery_events([("published", 0, b"k", None, None), ("gone", 0, b"k", "a", 1), ("x", 0, b"k", None, None)])
    ]
    assert ["Published", "Released", "Settled", "Connected", "AtRest"] == [type(event).__name__ for event in events]


HISTORY: list[Event] = [
    Connected(consumer="a"),
    Published(offset=0, key=b"k"),
    Published(offset=1, key=b"k"),
    Delivered(offset=0, key=b"k", consumer="a", attempt=1),
    Committed(resume_offset=1),
    Acked(offset=0, consumer="a", attempt=1, counted=True),
]


def test_a_history_is_judged_by_the_claims(spark: "SparkSession") -> None:
    columns = "topic string, partition int, sequence bigint, version int, event string, at_ms bigint, offset bigint, "
    columns += "key binary, consumer string, attempt bigint, counted boolean, resume_offset bigint"
    names = [column.split()[0] for column in columns.split(", ")][3:]
    rows = [
        ("t", partition, 10 * sequence, *(row.get(name) for name in names))
        for sequence, row in enumerate(to_rows(HISTORY))
        for partition in (0, 1)
    ]
    df = spark.createDataFrame(rows, columns)
    found = audit(df, Claims(promises={"safe-cursor", "one-holder"})).collect()
    assert {(row.topic, row.partition, row.promise): (row.events, row.violations) for row in found} == {
        ("t", partition, promise): (6, count)
        for partition in (0, 1)
        for promise, count in (("safe-cursor", 1), ("one-holder", 0))
    }
    assert len(audit(df).filter("partition = 0").collect()) > 10  # all promises
    twice = df.withColumn("sequence", df["sequence"] * 0)
    with pytest.raises(JOB_FAILED, match=r"topic='t', partition=\d, sequence=0.*: sequence of row 1 is 0"):
        audit(twice).collect()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("cast(sequence as string) sequence", "type of column sequence is 'string'"),
        ("outcome result", "column is 'outcome'; it must be one of"),
    ],
)
def test_a_wrong_column_is_refused_before_any_job(spark: "SparkSession", change: str, text: str) -> None:
    df = frame(spark, {"p": straight("k")})
    changed = df.selectExpr(*(name for name in df.columns if name not in change.replace("cast(", "").split()), change)
    with pytest.raises(ArgumentError, match=text):
        audit(changed, topic_partition="shard")
    with pytest.raises(ArgumentError, match="most is -1"):
        audit(df, topic_partition="shard", most=-1)
    with pytest.raises(ArgumentError, match="claims is 'all'"):
        audit(df, "all", topic_partition="shard")  # type: ignore[arg-type]  # that is the mistake


def test_a_delivery_without_a_sequence_fails_the_job(spark: "SparkSession") -> None:
    log = straight("kk")
    log[1]["sequence"] = None
    with pytest.raises(JOB_FAILED, match="the column sequence must not be NULL in a row with a consumer"):
        violations(spark, {"p": log})


def test_an_error_of_a_history_is_the_kits(spark: "SparkSession") -> None:
    assert spark is not None
    with pytest.raises(HistoryError):
        [*judge_events([Published(offset=1), Published(offset=0)], DELIVERY_CLAIMS)]
