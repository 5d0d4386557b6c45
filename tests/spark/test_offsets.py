"""Offsets translated by Spark are those of the pure functions on exact indexes, for every rule and any partitioning."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.copyflags import CopyFlags
from keyshared.errors import ArgumentError
from keyshared.offsets import (
    Declined,
    DeclineReason,
    GroupCommit,
    GroupPartition,
    OffsetCommitter,
    OffsetDistributor,
    OffsetEnvelope,
    OffsetIndex,
    ProvenanceVector,
    TargetGroup,
    compose_metadata,
)
from keyshared.spark import offsets as adapter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMITS = (
    "group string, topic_partition string, offset long, metadata string, target_active boolean, target_committed long, "
    "target_metadata string"
)
LOG = "topic_partition string, offset long, timestamp long, origin string, origin_offset long"
BOUNDS = "topic_partition string, start long, end long"


class Record(NamedTuple):
    offset: int
    timestamp: int
    origin: str
    origin_offset: int


class Commit(NamedTuple):
    group: str
    offset: int
    metadata: str | None = None
    active: bool | None = None
    committed: int | None = None
    target_metadata: str | None = None


@dataclass
class Partition:
    """A topic-partition on two clusters, and the groups that read it."""

    name: str
    source: list[Record] = field(default_factory=list)
    target: list[Record] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    bounds: tuple[int, int] | None = None


Found = list[tuple[Any, ...]]
RESULT = ["group", "topic_partition", "offset", "timestamp_epoch_ms", "target_offset", "metadata", "declined"]


def translate_offsets(*frames: "DataFrame", **options: Any) -> "DataFrame":
    return adapter.translate_offsets(*frames, topic_partition="topic_partition", **options)


def some_log(records: list[tuple[int, str, int]], rng: Random) -> list[Record]:
    """Records in an order of their own, with gaps between offsets, from any start on, and maybe cut by retention."""
    offset = rng.choice([0, 0, 5, 1_000])
    log = []
    for timestamp, origin, origin_offset in records[rng.choice([0, 0, 3]) :]:
        offset += rng.choice([0, 0, 0, 1, 9])
        log.append(Record(offset, timestamp, origin, origin_offset))
        offset += 1
    return log


def some_metadata(offset: int, rng: Random) -> str | None:
    envelope = OffsetEnvelope(CopyFlags.of(rng.randrange(1, 4)), rng.choice([None, 90, 150]), rng.choice([offset, 1]))
    text = compose_metadata(rng.choice(["", "AgAAAXtQ"]), envelope)
    assert isinstance(text, str)
    return rng.choice([None, None, None, "", "AgAAAXtQ", text, text, text[:-1]])


def some_partition(number: int, rng: Random) -> Partition:
    origins = rng.sample(["eu", "us", "ap"], rng.randrange(1, 4))
    records = [
        (rng.choice([100, 100 + 10 * i, rng.randrange(100, 300)]), name, i) for name in origins for i in range(12)
    ]
    sizes = [0, 1, len(records) // 2, len(records)]
    source, target = (some_log(rng.sample(records, rng.choice(sizes)), rng) for _ in range(2))
    ends = [log[-1].offset if log else 3 for log in (source, target)]
    commits = []
    for group in range(16):
        offset = rng.choice([0, 1, rng.randrange(ends[0] + 3), ends[0] + 1, ends[0] + 50])
        commits.append(
            Commit(
                f"g{group}",
                offset,
                some_metadata(offset, rng),
                rng.choice([None, False, False, False, True]),
                rng.choice([None, None, rng.randrange(ends[1] + 3), 0]),
                rng.choice([None, some_metadata(offset, rng), "é\ud7ff"]),
            )
        )
    return Partition(f"t-{number}", source, target, commits)


def indexed(log: Iterable[Record], bounds: tuple[int, int] | None = None) -> OffsetIndex:
    rows = list(log)
    start = rows[0].offset if rows else 0
    index = OffsetIndex(1, start=start if bounds is None else bounds[0])
    for record in rows:
        index.append(record.offset, record.timestamp)
    return index


def exactly(world: Iterable[Partition], *, provenance: bool, keep_foreign: bool = False, **options: int) -> Found:
    rows: Found = []
    for partition in world:
        source, target = indexed(partition.source), indexed(partition.target, partition.bounds)
        for commit in partition.commits:
            head = (commit.group, partition.name, commit.offset)
            position = GroupPartition(partition.name, 0, commit.group)
            sent = OffsetDistributor(**options).translate(
                GroupCommit(position, commit.offset, commit.metadata or ""), source
            )
            if isinstance(sent, Declined):
                rows.append((*head, None, None, None, sent.reason.name))
                continue
            resume = _uncovered(partition, commit.offset, target.end) if provenance else None
            group = TargetGroup(bool(commit.active), commit.committed, commit.target_metadata or "")
            planned = OffsetCommitter(keep_foreign=keep_foreign).propose(sent, group, target, offset=resume)
            made = (
                (None, None, planned.reason.name)
                if isinstance(planned, Declined)
                else (planned.offset, planned.metadata, None)
            )
            rows.append((*head, sent.timestamp_epoch_ms, *made))
    return sorted(rows, key=repr)


def _uncovered(partition: Partition, commit: int, end: int) -> int:
    done = ProvenanceVector()
    for record in partition.source:
        if record.offset < commit:
            done.observe(record.origin, record.origin_offset)
    found = done.first_uncovered((record.offset, record.origin, record.origin_offset) for record in partition.target)
    return end if found is None else found


def frames(spark: "SparkSession", world: list[Partition]) -> tuple["DataFrame", "DataFrame", "DataFrame"]:
    commits = [(commit[0], p.name, *commit[1:]) for p in world for commit in p.commits]
    source = [(p.name, *record) for p in world for record in p.source]
    target = [(p.name, *record) for p in world for record in p.target]
    return (
        spark.createDataFrame(commits, COMMITS),
        spark.createDataFrame(source, LOG),
        spark.createDataFrame(target, LOG),
    )


def by_spark(translated: "DataFrame") -> Found:
    return sorted((tuple(row) for row in translated.select(RESULT).collect()), key=repr)


@pytest.mark.parametrize("provenance", [False, True])
@pytest.mark.parametrize(("seed", "spreads"), [(1, [5]), pytest.param(2, [1, 5], marks=pytest.mark.slow)])
def test_translations_are_those_of_the_pure_functions_however_rows_are_spread(
    spark: "SparkSession", seed: int, spreads: list[int], *, provenance: bool
) -> None:
    rng = Random(seed)
    world = [some_partition(number, rng) for number in range(40)]
    commits, source, target = frames(spark, world)
    margin_ms, level = rng.choice([0, 25]), 2
    keep_foreign = seed == 2
    expected = exactly(world, provenance=provenance, keep_foreign=keep_foreign, margin_ms=margin_ms, level=level)
    reasons = {row[-1] for row in expected}
    assert {reason.name for reason in DeclineReason if reason.name.isupper()} - reasons <= {
        "METADATA_TOO_LONG",
        "METADATA_NOT_UTF8",
        *(["FOREIGN_METADATA"] if keep_foreign else []),
    }
    for spread in spreads:
        logs = [log.repartition(spread, F.rand(seed)) for log in (source, target)]
        found = translate_offsets(
            commits.repartition(spread),
            *logs,
            provenance=provenance,
            keep_foreign=keep_foreign,
            margin_ms=margin_ms,
            level=level,
        )
        assert RESULT == found.columns
        assert expected == by_spark(found)


TIMES = [100, 110, 120, 130]


def log(start: int, times: Iterable[int] = TIMES, origin: str = "eu") -> list[Record]:
    return [Record(start + i, time, origin, i) for i, time in enumerate(times)]


CASES: list[tuple[str, int, list[Record], list[Record], tuple[int | None, int | None, str | None], int | None]] = [
    ("a commit is the next offset", 12, log(10), log(70), (110, 71, None), 72),
    ("gone by retention: the earliest that remains", 3, log(10), log(70), (100, 70, None), 70),
    ("no record is that young: the end", 14, log(10), log(70, [90, 95]), (130, 72, None), 72),
    ("nothing is processed: the beginning", 0, log(10), log(70), (None, 70, None), 70),
    ("nothing is processed, and nothing there", 0, log(10), [], (None, 0, None), 0),
    ("nothing is there at all", 14, log(10), [], (130, 0, None), 0),
    ("the source is empty", 14, [], log(70), (None, None, "EMPTY_LOG"), None),
    ("a commit beyond the log", 99, log(10), log(70), (130, 73, None), 74),
    ("an older record after a younger one", 12, log(10), log(70, [90, 115, 95, 112]), (110, 71, None), 72),
]
"""Name, commit, both logs; by timestamp without a margin what is sent, found, and why not; and the offset by origin."""


def test_every_rule_by_its_name(spark: "SparkSession") -> None:
    world = [Partition(name, source, target, [Commit("g", commit)]) for name, commit, source, target, *_ in CASES]
    given = frames(spark, world)
    by_timestamp = translate_offsets(*given, margin_ms=0).collect()
    found = {row.topic_partition: (row.timestamp_epoch_ms, row.target_offset, row.declined) for row in by_timestamp}
    assert {name: expected for name, *_, expected, _ in CASES} == found
    by_origin = translate_offsets(*given, provenance=True).collect()
    assert {name: expected for name, *_, expected in CASES} == {
        row.topic_partition: row.target_offset for row in by_origin
    }


def test_bounds_tell_where_a_log_begins_that_has_no_record(spark: "SparkSession") -> None:
    empty = Partition("t-0", log(10), [], [Commit("end", 14), Commit("beginning", 0)], bounds=(500, 500))
    commits, source, target = frames(spark, [empty])
    bounds = spark.createDataFrame([("t-0", 500, 500), ("t-1", 7, 9)], BOUNDS)
    for provenance in (False, True):
        found = by_spark(translate_offsets(commits, source, target, provenance=provenance, target_bounds=bounds))
        assert exactly([empty], provenance=provenance) == found
        assert {500} == {row[4] for row in found}


def test_a_commit_needs_no_more_columns_than_three(spark: "SparkSession") -> None:
    commits, source, target = frames(spark, [Partition("t-0", log(10), log(70), [Commit("g", 12)])])
    found = translate_offsets(
        commits.select("group", "topic_partition", "offset"),
        source.drop("origin", "origin_offset"),
        target.drop("origin", "origin_offset"),
        margin_ms=0,
    )
    assert [71] == [row.target_offset for row in found.collect()]


def test_the_margin_is_a_minute_by_default(spark: "SparkSession") -> None:
    partition = Partition(
        "t-0", log(0, range(0, 200_000, 10_000)), log(0, range(0, 200_000, 10_000)), [Commit("g", 10)]
    )
    row = translate_offsets(*frames(spark, [partition])).collect()[0]
    assert (30_000, 3) == (row.timestamp_epoch_ms, row.target_offset)


def test_each_of_many_groups_at_one_offset_gets_its_answer(spark: "SparkSession") -> None:
    partition = Partition("t-0", log(10), log(70), [Commit(f"g{i}", 12) for i in range(50)])
    commits, source, target = frames(spark, [partition])
    found = translate_offsets(commits, source, target, margin_ms=0).collect()
    assert [(f"g{i}", 71) for i in range(50)] == sorted(
        ((row.group, row.target_offset) for row in found), key=lambda row: int(row[0][1:])
    )


def test_nothing_is_run_before_it_is_asked_for(spark: "SparkSession") -> None:
    commits, source, target = frames(spark, [Partition("t-0", log(10), log(70), [Commit("g", 12)])])
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("lazy", "lazy")
    for provenance in (False, True):
        translate_offsets(commits, source, target, provenance=provenance)
    assert [] == list(tracker.getJobIdsForGroup("lazy"))


@pytest.mark.parametrize("column", ["topic_partition", "offset", "timestamp", "origin", "origin_offset"])
def test_the_job_fails_on_a_record_without_a_place(spark: "SparkSession", column: str) -> None:
    commits, source, target = frames(spark, [Partition("t-0", log(10), log(70), [Commit("g", 12)])])
    broken = source.withColumn(column, F.when(F.col("offset") != 11, F.col(column)))
    with pytest.raises(Exception, match=f"column {column} must not be NULL in any row"):
        translate_offsets(commits, broken, target, provenance=True).collect()


def test_the_job_fails_on_a_commit_that_is_none(spark: "SparkSession") -> None:
    commits, source, target = frames(spark, [Partition("t-0", log(10), log(70), [Commit("g", -1)])])
    # which of them depends on the stage in which it happens
    with pytest.raises(Exception, match="offset is -1; it must be an int from 0 up to 63 bits"):
        translate_offsets(commits, source, target).collect()


@pytest.mark.parametrize(
    ("which", "change", "text"),
    [
        (0, {"offset": "cast('x' AS string)"}, "type of column offset is 'string'"),
        (0, {"metadata": "cast('x' AS binary)"}, "type of column metadata is 'binary'; it must be string"),
        (0, {"target_active": "1"}, "type of column target_active is 'int'"),
        (1, {"timestamp": "'now'"}, "type of column timestamp is 'string'; it must be timestamp or"),
        (2, {"origin": "1"}, "type of column origin is 'int'"),
        (3, {"end": "1.5"}, "type of column end is 'decimal"),
    ],
)
def test_wrong_columns_are_named_before_the_job(
    spark: "SparkSession", which: int, change: dict[str, str], text: str
) -> None:
    given: list[Any] = [*frames(spark, []), spark.createDataFrame([], BOUNDS)]
    given[which] = given[which].withColumns({name: F.expr(text) for name, text in change.items()})
    with pytest.raises(ArgumentError, match=text):
        translate_offsets(*given[:3], provenance=True, target_bounds=given[3])


@pytest.mark.parametrize(
    ("which", "column"), [(0, "group"), (1, "offset"), (2, "origin_offset"), (2, "topic_partition")]
)
def test_missing_columns_are_named_before_the_job(spark: "SparkSession", which: int, column: str) -> None:
    given = list(frames(spark, []))
    given[which] = given[which].drop(column)
    with pytest.raises(ArgumentError, match=f"column is '{column}'; it must be one of"):
        translate_offsets(*given, provenance=True)


@pytest.mark.parametrize(
    ("option", "value"), [("margin_ms", -1), ("level", 0), ("provenance", 1), ("keep_foreign", "no")]
)
def test_wrong_options_are_refused_before_the_job(spark: "SparkSession", option: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{option} is {value!r}"):
        translate_offsets(*frames(spark, []), **{option: value})


def _the_last_record_for_the_next(asked: "DataFrame", log: "DataFrame") -> "DataFrame":
    """A broken variant: takes a commit for the last processed record, not the next one."""
    shifted = log.withColumn("offset", F.col("offset") - 1)
    return _LAST(asked, shifted)


def _one_position_for_all_origins(
    given: "DataFrame", source: "DataFrame", target: "DataFrame", bounds: "DataFrame | None"
) -> "DataFrame":
    """A broken variant: a vector that forgets which origin an offset is of."""
    everything = F.lit("all")
    return _UNCOVERED(given, source.withColumn("origin", everything), target.withColumn("origin", everything), bounds)


_LAST = adapter._last_timestamps
_UNCOVERED = adapter._uncovered


@pytest.mark.parametrize(
    ("name", "variant", "provenance"),
    [
        ("_last_timestamps", _the_last_record_for_the_next, False),
        ("_uncovered", _one_position_for_all_origins, True),
    ],
)
def test_broken_look_ups_are_caught(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, name: str, variant: Any, *, provenance: bool
) -> None:
    monkeypatch.setattr(adapter, name, variant)
    rng = Random(3)
    world = [some_partition(number, rng) for number in range(10)]
    found = by_spark(translate_offsets(*frames(spark, world), margin_ms=0, provenance=provenance))
    assert exactly(world, provenance=provenance, margin_ms=0) != found


def test_topic_and_partition_may_be_two_columns_and_times_timestamps(spark: "SparkSession") -> None:
    columns = "topic string, partition int, offset long, timestamp long"
    here = spark.createDataFrame([("a", n, 10 + i, time) for n in (0, 1) for i, time in enumerate(TIMES)], columns)
    there = here.withColumn("offset", F.col("offset") + 60 + F.col("partition"))
    commits = spark.createDataFrame(
        [("g", "a", 0, 12), ("g", "a", 1, 13)], "group string, topic string, partition int, offset long"
    )
    found = adapter.translate_offsets(
        commits,
        here.withColumn("timestamp", F.timestamp_millis("timestamp")),
        there.withColumn("timestamp", F.timestamp_millis("timestamp")),
        margin_ms=0,
    )
    assert ["group", "topic", "partition", *RESULT[2:]] == found.columns
    assert [("a", 0, 71), ("a", 1, 73)] == sorted((r.topic, r.partition, r.target_offset) for r in found.collect())
