"""Real streams over real files and a real state store; and what is refused before one starts."""

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from shutil import copytree, rmtree
from typing import TYPE_CHECKING, Any

import pytest
from tests.command_logs import from_zero, lag_of, ring, written_log
from tests.spark.settings import SHUFFLE_PARTITIONS, settings

from keyshared.config import Backoff, DispatcherConfig, Poison, RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.journal import Command
from keyshared.ring import HashRing

pyspark = pytest.importorskip("pyspark")
import pyarrow as pa  # noqa: E402 - comes with pyspark
import pyarrow.parquet as pq  # noqa: E402 - as above
from pyspark.errors import PySparkException  # noqa: E402 - needs pyspark
from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402 - needs pyspark
from tests.spark.since import JOB_FAILED, only_since  # noqa: E402 - needs pyspark

from keyshared.spark.frames.rules import MAX_MS  # noqa: E402 - needs pyspark
from keyshared.spark.streams.dispatch import (  # noqa: E402 - needs pyspark
    COMMAND_SCHEMA,
    OUTCOME_SCHEMA,
    STATE_STORE,
    dispatch_batches,
    stream_dispatch,
)
from keyshared.spark.streams.partition import dispatch_partition  # noqa: E402 - needs pyspark
from keyshared.spark.versions import STATE_IN_ROWS, STREAMS, Since  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CONFIG = DispatcherConfig(
    window=4,
    max_tracked=6,
    max_in_flight_per_consumer=2,
    ack_timeout_ms=10,
    retry=RetryPolicy(max_redeliveries=1, base_delay_ms=5, backoff=Backoff.FIXED),
    poison=Poison.DEAD_LETTER,
    inactive_grace_ms=12,
    drain_timeout_ms=4,
)
FILES = 4
WRITTEN_S = 1_700_000_000  # when the first of them was, says its time of change
NEEDED = "topic_partition string, sequence int, at_ms int, command string"


@pytest.fixture
def store(spark: "SparkSession") -> Iterator["SparkSession"]:
    """The session with the settings that a stream needs, and as few tasks as will show something."""
    with settings(spark, {**STATE_STORE, SHUFFLE_PARTITIONS: "2"}):
        yield spark


HUGE = (1 << 53) + 1  # no float is that number


def logs(rng: Random) -> dict[str, list[Command]]:
    """Two that are busy, one of them with huge offsets, and one that falls silent with a message in flight."""
    silent = [Command(0, 0, "add_consumer", consumer="x"), Command(1, 3, "offer", offset=0, key=b"a")]
    huge = [
        command if command.offset is None else command._replace(offset=command.offset + HUGE)
        for command in written_log(rng, 70, CONFIG).commands
    ]
    return {"p": from_zero(written_log(rng, 80, CONFIG).commands), "q": from_zero(huge), "r": silent}


def files_of(rng: Random, commands: dict[str, list[Command]]) -> list[list[tuple[Any, ...]]]:
    """A file for each stretch of time; its rows in any order, and some of the file before."""
    files: list[list[tuple[Any, ...]]] = [[] for _ in range(FILES)]
    latest = max(command.at_ms for mine in commands.values() for command in mine)
    for name, mine in commands.items():
        reached = 0
        for command in mine:
            reached = max(reached, command.at_ms)
            files[reached * FILES // (latest + 1)].append((name, *command))
    for number in range(FILES - 1, 0, -1):
        files[number] += rng.sample(files[number - 1], min(9, len(files[number - 1])))
    for rows in files:
        rng.shuffle(rows)
    return files


def put(folder: Path, number: int, rows: Sequence[tuple[Any, ...]]) -> None:
    plain = [[key.encode() if isinstance(key, str) and at == 5 else key for at, key in enumerate(row)] for row in rows]
    schema = to_arrow_schema(COMMAND_SCHEMA)
    columns = [pa.array(values, field.type) for values, field in zip(zip(*plain, strict=True), schema, strict=True)]
    hidden = folder / f".{number}.parquet"
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), hidden)
    # Spark reads them by their time of change, and Linux gives the same one to files that are written within 4 ms
    os.utime(hidden, (WRITTEN_S + number, WRITTEN_S + number))
    hidden.rename(folder / f"{number}.parquet")  # a file appears whole or not at all


def start_again(run: Callable[[], object]) -> None:
    """Spark waits 10 s for a Python process to start, and no setting changes that: too little on a busy machine."""
    for _ in range(5):
        try:
            run()
        except PySparkException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return
    pytest.skip("this machine takes more than 10 s to start a Python process")


class Sink:
    """Keeps what it gets of each micro-batch, unless it is told to fail."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.fails_at: int | None = None

    def __call__(self, batch: "DataFrame", number: int) -> None:
        rows = sorted(map(tuple, batch.collect()))
        if number == self.fails_at:
            message = "the sink is gone"
            raise OSError(message)
        self.rows += rows


@only_since(STREAMS)
def test_a_stream_that_crashes_and_is_stopped_gives_each_row_of_the_batch_once(
    store: "SparkSession", tmp_path: Path
) -> None:
    rng = Random(5)
    commands = logs(rng)
    files = files_of(rng, commands)
    delay_ms = lag_of(files)
    source, sink = tmp_path / "in", Sink()
    source.mkdir()

    def run() -> None:
        stream = store.readStream.schema(COMMAND_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
        outcomes = stream.transform(stream_dispatch, ring(), config=CONFIG, delay_ms=delay_ms)
        writer = outcomes.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        start_again(lambda: writer.trigger(availableNow=True).start().awaitTermination())

    put(source, 0, files[0])
    put(source, 1, files[1])
    sink.fails_at = 1
    with pytest.raises(PySparkException, match="the sink is gone"):
        run()  # the first file is through, the second was carried out and got lost behind it
    before = list(sink.rows)
    sink.fails_at = None
    run()  # the second again, from the state of the first
    put(source, 2, files[2])
    put(source, 3, files[3])
    run()

    batch = store.read.schema(COMMAND_SCHEMA).parquet(str(source))
    outcomes = batch.transform(stream_dispatch, ring(), config=CONFIG, delay_ms=delay_ms)
    expected = sorted(map(tuple, outcomes.collect()))
    until = max(command.at_ms for mine in commands.values() for command in mine) - delay_ms
    rows = [(name, until, *command) for name, mine in commands.items() for command in mine]
    assert sorted(dispatch_partition(rows, ring(), config=CONFIG)) == expected
    assert expected == sorted(sink.rows)
    assert 0 < len(before) < len(expected)
    # time goes on for a topic-partition that has fallen silent
    assert ["deliver", "released", "deliver", "released", "dead_letter"] == [
        row[4] for row in expected if row[0] == "r"
    ]


def test_the_batch_form_of_arrow_takes_and_gives_any_size_of_batches() -> None:
    rows = [(name, 500, *command) for name, mine in logs(Random(7)).items() for command in mine]
    schema = pa.schema([field.with_nullable(True) for field in to_arrow_schema(COMMAND_SCHEMA)])
    schema = schema.insert(1, pa.field("until", pa.int64())).insert(2, pa.field("latest", pa.int64()))
    plain = [
        [key.encode() if isinstance(key, str) and at == 7 else key for at, key in enumerate(row)]
        for row in headed(rows)
    ]
    table = pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(zip(*plain, strict=True), schema, strict=True)],
        schema=schema,
    )
    expected = list(dispatch_partition(rows, ring(), config=CONFIG))

    for size in (1, 13, 1_000):
        batches = list(dispatch_batches(table.to_batches(max_chunksize=size), ring(), CONFIG))
        assert [to_arrow_schema(OUTCOME_SCHEMA)] * len(batches) == [batch.schema for batch in batches]
        assert expected == [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert [] == list(dispatch_batches([], ring(), CONFIG))
    for spoilt in (table.slice(1), table.slice(0, 1), table.slice(0, len(table) - 1)):  # r has no second command then
        with pytest.raises(ArgumentError, match="be the same source whenever it is read"):
            list(dispatch_batches(spoilt.to_batches(), ring(), CONFIG))


def headed(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Each topic-partition with a row before it that says how long time goes on, and its last instant."""
    found: list[tuple[Any, ...]] = []
    for name, mine in groupby(rows, key=itemgetter(0)):
        own = [(name, None, None, *row[2:]) for row in mine]
        found += [(name, 500, max(row[4] for row in own), *[None] * (len(own[0]) - 3)), *own]
    return found


@only_since(STREAMS)
def test_a_stream_has_the_schema_of_a_batch(store: "SparkSession", tmp_path: Path) -> None:
    stream = store.readStream.schema(COMMAND_SCHEMA).parquet(str(tmp_path))

    assert OUTCOME_SCHEMA == stream_dispatch(stream, HashRing()).schema
    assert OUTCOME_SCHEMA == stream_dispatch(frame(store), HashRing()).schema


def frame(
    spark: "SparkSession", schema: str = "topic_partition string, sequence int, at_ms int, command string"
) -> Any:
    return spark.createDataFrame([], schema)


def test_a_frame_that_lacks_a_column_or_has_one_of_another_type_is_refused_at_once(spark: "SparkSession") -> None:
    for schema, match in (
        ("topic_partition string, sequence long, at_ms long", "command"),
        ("topic_partition int, sequence long, at_ms long, command string", "topic_partition"),
        ("topic_partition string, sequence long, at_ms timestamp, command string", "at_ms"),
        ("topic_partition string, sequence long, at_ms long, command string, key int", "key"),
        ("topic_partition string, sequence long, at_ms long, command string, filters string", "filters"),
    ):
        with pytest.raises(ArgumentError, match=match):
            stream_dispatch(frame(spark, schema), HashRing())


def test_what_can_never_work_is_refused_at_once(spark: "SparkSession") -> None:
    with pytest.raises(ArgumentError, match="placement"):
        stream_dispatch(frame(spark), HashRing(["c1"]))
    with pytest.raises(ArgumentError, match="config"):
        stream_dispatch(frame(spark), HashRing(), config={})  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentError, match="delay_ms"):
        stream_dispatch(frame(spark), HashRing(), delay_ms=-1)


@only_since(STREAMS)
def test_a_stream_without_its_state_store_is_refused_at_once(spark: "SparkSession", tmp_path: Path) -> None:
    stream = spark.readStream.schema(COMMAND_SCHEMA).parquet(str(tmp_path))

    with pytest.raises(ArgumentError, match=r"providerClass is .*HDFS.*; it must be .*RocksDB"):
        stream_dispatch(stream, HashRing())


def test_a_command_without_a_place_in_the_order_fails_the_job_and_says_so(store: "SparkSession") -> None:
    rows = store.createDataFrame([("p", None, 0, "handle_timeout")], frame(store).schema)

    with pytest.raises(
        JOB_FAILED,
        match="column sequence must not be NULL in any row, and it is in topic_partition 'p', sequence NULL",
    ):
        stream_dispatch(rows, HashRing()).collect()


@pytest.mark.parametrize("at_ms", [None, -1, MAX_MS + 1])
def test_a_command_at_an_instant_that_is_none_fails_the_job_and_says_so(
    store: "SparkSession", at_ms: int | None
) -> None:
    rows = store.createDataFrame([("p", 1, at_ms, "handle_timeout")], NEEDED.replace("int", "long"))
    with pytest.raises(JOB_FAILED, match=f"column at_ms must not be NULL, negative or above {MAX_MS} in any row"):
        stream_dispatch(rows, HashRing()).collect()


LATE_FILES: tuple[list[tuple[str, int, int, str, int | None, str | None, int | None]], ...] = (
    [
        ("p", 0, 0, "add_consumer", None, "a", None),
        ("p", 1, 1, "offer", HUGE, None, None),
        ("p", 3, 3, "offer", HUGE + 2, None, None),
    ],
    [
        ("p", 2, 2, "offer", HUGE + 1, None, None),
        ("p", 1, 1, "offer", HUGE, None, None),
        ("p", 4, 4, "offer", HUGE + 3, None, None),
        ("p", 5, 5, "ack", HUGE, "nobody", 1),
        ("q", 0, 0, "ack", HUGE, "nobody", None),
    ],
)
ROWS_ARE_NOT_HERE = ("keyshared.spark.streams.frames.STATE_IN_ROWS", Since("nothing that there is", 99, 0))
FIGURES = {"outcomes": 6, "late": 1, "ignored": 1, "refused": 1, "duplicate": 1}


@only_since(STREAMS)
@pytest.mark.parametrize("how", [pytest.param("rows", marks=only_since(STATE_IN_ROWS)), "frames"])
def test_a_command_that_comes_a_micro_batch_late_is_an_outcome_and_a_figure(
    store: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """[no-loss] Neither it nor anything behind it disappears without a word; what comes once more is no news."""
    if how == "frames":
        monkeypatch.setattr(*ROWS_ARE_NOT_HERE)
    schema = (
        "topic_partition string, sequence long, at_ms long, command string, offset long, consumer string, attempt long"
    )
    source, sink = str(tmp_path / "in"), Sink()
    queries = []

    def run() -> None:
        outcomes = stream_dispatch(store.readStream.schema(schema).parquet(source), HashRing(), delay_ms=1_000)
        writer = outcomes.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        queries.append(writer.trigger(availableNow=True).start())
        queries[-1].awaitTermination()

    for rows in LATE_FILES:
        store.createDataFrame(rows, schema).coalesce(1).write.mode("append").parquet(source)
        start_again(run)

    assert [(1, "deliver", 0), (3, "deliver", 2), (2, "late", 1), (4, "deliver", 3), (5, "ignored", 0)] == [
        (row[2], row[4], row[5] - HUGE) for row in sorted(sink.rows) if row[0] == "p"
    ]
    figures = [progress.observedMetrics for query in queries for progress in query.recentProgress]
    assert {"stream_dispatch"} == {name for told in figures for name in told}
    assert FIGURES == {name: sum(told["stream_dispatch"][name] for told in figures) for name in FIGURES}


@only_since(STATE_IN_ROWS)
def test_a_checkpoint_of_spark_4_0_is_refused_by_later_ones_and_stays_as_it_was(
    store: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[no-loss] Spark tells the operators of pandas frames and of rows apart."""
    source, sink = str(tmp_path / "in"), Sink()
    store.createDataFrame([("p", 0, 0, "handle_timeout")], NEEDED).coalesce(1).write.parquet(source)

    def run() -> None:
        outcomes = stream_dispatch(store.readStream.schema(NEEDED).parquet(source), HashRing())
        writer = outcomes.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        start_again(lambda: writer.trigger(availableNow=True).start().awaitTermination())

    with monkeypatch.context() as patched:
        patched.setattr(*ROWS_ARE_NOT_HERE)
        run()
    store.createDataFrame([("p", 1, 1, "nonsense")], NEEDED).coalesce(1).write.mode("append").parquet(source)
    with pytest.raises(PySparkException, match="STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"):
        run()
    assert [] == sink.rows
    with monkeypatch.context() as patched:
        patched.setattr(*ROWS_ARE_NOT_HERE)
        run()
    assert [("p", 0, 1, "refused")] == [(*row[:3], row[4]) for row in sink.rows]


@only_since(STREAMS)
def test_a_restart_from_an_older_checkpoint_gives_the_same_rows_again_under_the_same_names(
    store: "SparkSession", tmp_path: Path
) -> None:
    """[no-loss] A sink that merges by topic-partition and position has each of them once."""
    commands = logs(Random(11))
    files = files_of(Random(11), commands)
    delay_ms = lag_of(files)
    source, checkpoint, sink = tmp_path / "in", tmp_path / "checkpoint", Sink()
    source.mkdir()

    def run() -> None:
        stream = store.readStream.schema(COMMAND_SCHEMA).parquet(str(source))
        outcomes = stream.transform(stream_dispatch, ring(), config=CONFIG, delay_ms=delay_ms)
        writer = outcomes.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
        start_again(lambda: writer.trigger(availableNow=True).start().awaitTermination())

    put(source, 0, files[0])
    run()
    first = len(sink.rows)
    copytree(checkpoint, tmp_path / "older")
    put(source, 1, files[1])
    run()
    before = list(sink.rows)
    rmtree(checkpoint)
    (tmp_path / "older").rename(checkpoint)
    put(source, 2, files[2])
    put(source, 3, files[3])
    run()  # the second file again, now in one micro-batch with two that are new

    batch = store.read.schema(COMMAND_SCHEMA).parquet(str(source))
    outcomes = batch.transform(stream_dispatch, ring(), config=CONFIG, delay_ms=delay_ms)
    expected = sorted(map(tuple, outcomes.collect()))
    again = sink.rows[len(before) :]
    assert expected == sorted({row[:2]: row for row in sink.rows}.values())
    assert expected == sorted(before[:first] + again)
    assert before[first:]
    assert all(row in again for row in before[first:])


@only_since(STREAMS)
def test_a_folder_of_files_leaves_out_what_it_has_by_number_after_an_older_checkpoint(
    store: "SparkSession", tmp_path: Path
) -> None:
    """What Spark's file sink does, and why it has to begin in an empty folder then."""
    schema = "topic_partition string, sequence long, at_ms long, command string, offset long, consumer string"
    source, sink, checkpoint = (str(tmp_path / name) for name in ("in", "out", "checkpoint"))

    def run() -> None:
        stream = store.readStream.schema(schema).parquet(source)
        writer = stream_dispatch(stream, HashRing(), delay_ms=1_000).writeStream.option("path", sink)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        start_again(lambda: query.start().awaitTermination())

    for number in range(3):
        rows = [("p", 2 * number, number, "add_consumer", None, f"c{number}")]
        rows += [("p", 2 * number + 1, number, "offer", number, None)]  # type: ignore[list-item]
        store.createDataFrame(rows, schema).coalesce(1).write.mode("append").parquet(source)
        if number == 2:
            rmtree(checkpoint)  # as old as can be: there was none yet
        run()
    numbers = {row.offset for row in store.read.schema(OUTCOME_SCHEMA).parquet(sink).collect()}
    assert {0, 1} == numbers  # of the third there is nothing: micro-batch 0 was there already
