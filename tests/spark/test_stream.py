"""Real streams over real files and a real state store give each outcome of the batch once, whatever happens to them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from shutil import copytree, rmtree
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from tests.command_logs import from_zero, lag_of, ring, written_log
from tests.spark import killed_stream
from tests.spark.killed_stream import CONFIG, NAMES, SCHEMA

from keyshared.errors import ArgumentError, TooOldError
from keyshared.journal import Command
from keyshared.ring import HashRing
from keyshared.spark.rows import parsed
from keyshared.spark.stream import (
    OUTCOME_COLUMNS,
    STATE_STORE_SETTINGS,
    dispatch_rows,
    stream_dispatch,
)
from keyshared.spark.stream_rows import pack_batches, unpacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 4
WRITTEN_S = 1_700_000_000  # the time of change of the first file
HUGE = (1 << 53) + 1  # no float is that number
ROOT = Path(__file__).parents[2]
needs_streams = pytest.mark.skipif(pyspark.__version__ < "4.1", reason="streams need PySpark 4.1")
NEEDED = "topic string, partition int, sequence long, at_ms long, command string"


@pytest.fixture
def store(spark: "SparkSession") -> Iterator["SparkSession"]:
    """The session with the settings that a stream needs, and as few tasks as will show something."""
    settings = {**STATE_STORE_SETTINGS, "spark.sql.shuffle.partitions": "2"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, kept in before.items():
        spark.conf.set(name, str(kept))


def logs(rng: Random) -> dict[tuple[str, int], list[Command]]:
    """Two that are busy, one of them with huge offsets, and one that falls silent with a message in flight."""
    silent = [Command(0, 0, "add_consumer", consumer="x"), Command(1, 3, "offer", offset=0, key=b"a")]
    huge = [
        command if command.offset is None else command._replace(offset=command.offset + HUGE)
        for command in written_log(rng, 70, CONFIG).commands
    ]
    busy = from_zero(written_log(rng, 80, CONFIG).commands)
    return {("p", 0): busy, ("p", 1): from_zero(huge), ("q", 0): silent}


def files_of(rng: Random, commands: dict[tuple[str, int], list[Command]]) -> list[list[tuple[Any, ...]]]:
    """A file for each stretch of time; its rows in any order, and some of the file before."""
    files: list[list[tuple[Any, ...]]] = [[] for _ in range(FILES)]
    latest = max(command.at_ms for mine in commands.values() for command in mine)
    for name, mine in commands.items():
        reached = 0
        for command in mine:
            reached = max(reached, command.at_ms)
            files[reached * FILES // (latest + 1)].append((*name, *command))
    for number in range(FILES - 1, 0, -1):
        files[number] += rng.sample(files[number - 1], min(9, len(files[number - 1])))
    for rows in files:
        rng.shuffle(rows)
    return files


def lag(files: Sequence[Sequence[tuple[Any, ...]]]) -> int:
    return lag_of([[((topic, partition), *rest) for topic, partition, *rest in rows] for rows in files])


def put(spark: "SparkSession", folder: Path, number: int, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write a file of commands; it appears whole or not at all."""
    plain = [tuple(key.encode() if isinstance(key, str) and at == 6 else key for at, key in enumerate(r)) for r in rows]
    schema = to_arrow_schema(spark.createDataFrame([], SCHEMA).schema)
    columns = [pa.array(values, field.type) for values, field in zip(zip(*plain, strict=True), schema, strict=True)]
    hidden = folder / f".{number}.parquet"
    pa.parquet.write_table(pa.Table.from_arrays(columns, schema=schema), hidden)
    # Spark reads them by their time of change, and Linux gives the same one to files that are written within 4 ms
    os.utime(hidden, (WRITTEN_S + number, WRITTEN_S + number))
    hidden.rename(folder / f"{number}.parquet")


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
    """Keeps the rows of each micro-batch, or fails at one of them."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.fails_at: int | None = None

    def __call__(self, batch: "DataFrame", number: int) -> None:
        rows = sorted(map(tuple, batch.collect()))
        if number == self.fails_at:
            message = "the sink is gone"
            raise OSError(message)
        self.rows += rows


class Stream:
    """A stream over a folder of files into a sink, which can be run again and again."""

    def __init__(self, spark: "SparkSession", folder: Path, delay_ms: int) -> None:
        self.spark, self.delay_ms = spark, delay_ms
        self.source, self.checkpoint, self.sink = folder / "in", folder / "checkpoint", Sink()
        self.source.mkdir()

    def run(self, *, at_once: int = 1) -> None:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", at_once)
        stream = reader.parquet(str(self.source))
        outcomes = stream.transform(stream_dispatch, ring(), config=CONFIG, delay_ms=self.delay_ms)
        writer = outcomes.writeStream.foreachBatch(self.sink).option("checkpointLocation", str(self.checkpoint))
        start_again(lambda: writer.trigger(availableNow=True).start().awaitTermination())

    def of_batch(self) -> list[tuple[Any, ...]]:
        batch = self.spark.read.schema(SCHEMA).parquet(str(self.source))
        outcomes = batch.transform(stream_dispatch, ring(), config=CONFIG, delay_ms=self.delay_ms)
        return sorted(map(tuple, outcomes.collect()))


@needs_streams
def test_a_stream_whose_sink_fails_gives_each_row_of_the_batch_once(store: "SparkSession", tmp_path: Path) -> None:
    commands = logs(Random(5))
    files = files_of(Random(5), commands)
    stream = Stream(store, tmp_path, lag(files))
    for number in (0, 1):
        put(store, stream.source, number, files[number])
    stream.sink.fails_at = 1
    with pytest.raises(PySparkException, match="the sink is gone"):
        stream.run()  # the first file is through, the second was carried out and got lost behind it
    before = list(stream.sink.rows)
    stream.sink.fails_at = None
    stream.run()  # the second again, from the state of the first
    for number in (2, 3):
        put(store, stream.source, number, files[number])
    stream.run()

    expected = stream.of_batch()
    until = max(command.at_ms for mine in commands.values() for command in mine) - stream.delay_ms
    in_python = [
        (*name, *row)
        for name, mine in commands.items()
        for row in dispatch_rows(iter(mine), ring(), config=CONFIG, until_ms=until)
    ]
    assert sorted(in_python) == expected
    assert expected == sorted(stream.sink.rows)
    assert 0 < len(before) < len(expected)
    # time goes on for a topic-partition that has fallen silent
    assert ["deliver", "released", "deliver", "released", "dead_letter"] == [r[5] for r in expected if r[0] == "q"]


@needs_streams
def test_a_restart_from_an_older_checkpoint_gives_the_same_rows_again_under_the_same_names(
    store: "SparkSession", tmp_path: Path
) -> None:
    """[no-loss] A sink that merges by topic-partition and position has each of them once."""
    files = files_of(Random(11), logs(Random(11)))
    stream, older = Stream(store, tmp_path, lag(files)), tmp_path / "older"
    put(store, stream.source, 0, files[0])
    stream.run()
    first = len(stream.sink.rows)
    copytree(stream.checkpoint, older)
    put(store, stream.source, 1, files[1])
    stream.run()
    before = list(stream.sink.rows)
    rmtree(stream.checkpoint)
    older.rename(stream.checkpoint)
    for number in (2, 3):
        put(store, stream.source, number, files[number])
    stream.run(at_once=3)  # the second file again, now in one micro-batch with two that are new

    expected, again = stream.of_batch(), stream.sink.rows[len(before) :]
    assert expected == sorted({row[:3]: row for row in stream.sink.rows}.values())
    assert expected == sorted(before[:first] + again)
    assert before[first:]
    assert all(row in again for row in before[first:])


@needs_streams
@pytest.mark.slow
def test_a_stream_that_is_killed_three_times_gives_each_row_of_the_batch_once(
    store: "SparkSession", tmp_path: Path
) -> None:
    """[no-loss] SIGKILL takes driver, JVM and workers wherever they are; Spark's file sink has each row once."""
    files = files_of(Random(7), logs(Random(7)))
    stream = Stream(store, tmp_path, lag(files))
    for number, rows in enumerate(files):
        put(store, stream.source, number, rows)
    command = [sys.executable, "-m", killed_stream.__name__, str(tmp_path), str(stream.delay_ms)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    killed = 0
    for number in range(3):
        with subprocess.Popen(command, env=environment, cwd=tmp_path, start_new_session=True) as process:
            while process.poll() is None and len(list(tmp_path.glob("checkpoint/offsets/[0-9]"))) <= number:
                time.sleep(0.05)
            killed += process.poll() is None
            os.killpg(process.pid, signal.SIGKILL)
    subprocess.run(command, env=environment, cwd=tmp_path, check=True)

    found = store.read.schema(f"{NAMES}, {OUTCOME_COLUMNS}").parquet(str(tmp_path / "out")).collect()
    assert killed == 3
    assert stream.of_batch() == sorted(map(tuple, found))


LATE_FILES: tuple[list[tuple[Any, ...]], ...] = (
    [
        ("p", 0, 0, 0, "add_consumer", None, None, "a", None),
        ("p", 0, 1, 1, "offer", HUGE, None, None, None),
        ("p", 0, 3, 3, "offer", HUGE + 2, None, None, None),
    ],
    [
        ("p", 0, 2, 2, "offer", HUGE + 1, None, None, None),
        ("p", 0, 1, 1, "offer", HUGE, None, None, None),
        ("p", 0, 4, 4, "offer", HUGE + 3, None, None, None),
        ("p", 0, 5, 5, "ack", HUGE, None, "nobody", 1),
        ("q", 0, 0, 0, "ack", HUGE, None, "nobody", None),
    ],
)
FIGURES = {"outcomes": 6, "late": 1, "ignored": 1, "refused": 1, "duplicate": 1}


@needs_streams
def test_a_command_that_comes_a_micro_batch_late_is_an_outcome_and_a_figure(
    store: "SparkSession", tmp_path: Path
) -> None:
    """[no-loss] Neither it nor anything after it disappears; a command that comes twice has no outcome."""
    schema = f"{NEEDED}, offset long, key string, consumer string, attempt long"
    source, sink, queries = str(tmp_path / "in"), Sink(), list[Any]()

    def run() -> None:
        outcomes = stream_dispatch(store.readStream.schema(schema).parquet(source), HashRing(), delay_ms=1_000)
        writer = outcomes.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        queries.append(writer.trigger(availableNow=True).start())
        queries[-1].awaitTermination()

    for rows in LATE_FILES:
        store.createDataFrame(rows, schema).coalesce(1).write.mode("append").parquet(source)
        start_again(run)
    assert [(1, "deliver", 0), (3, "deliver", 2), (2, "late", 1), (4, "deliver", 3), (5, "ignored", 0)] == [
        (row[3], row[5], row[6] - HUGE) for row in sorted(sink.rows) if row[0] == "p"
    ]
    figures = [progress.observedMetrics for query in queries for progress in query.recentProgress]
    assert FIGURES == {name: sum(told["stream_dispatch"][name] for told in figures) for name in FIGURES}


@needs_streams
def test_a_stream_has_the_schema_of_a_batch(store: "SparkSession", tmp_path: Path) -> None:
    stream = stream_dispatch(store.readStream.schema(SCHEMA).parquet(str(tmp_path)), HashRing())
    batch = stream_dispatch(store.createDataFrame([], NEEDED), HashRing())
    expected = store.createDataFrame([], f"{NAMES}, {OUTCOME_COLUMNS}")
    assert expected.dtypes == batch.dtypes == stream.dtypes
    assert [field.name for field in parsed(batch, OUTCOME_COLUMNS)] == batch.columns[2:]


def test_wrong_arguments_are_refused_at_once(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    def call(schema: str = NEEDED, placement: HashRing | None = None, **options: Any) -> None:
        stream_dispatch(spark.createDataFrame([], schema), placement or HashRing(), **options)

    for schema, match in (
        (NEEDED.replace(", command string", ""), "column is 'command'"),
        (NEEDED.replace("partition int", "partition double"), "type of column partition is 'double'"),
        (NEEDED.replace("at_ms long", "at_ms timestamp"), "type of column at_ms is 'timestamp'"),
        (f"{NEEDED}, key int", "type of column key"),
        (f"{NEEDED}, filters string", "type of column filters"),
    ):
        with pytest.raises(ArgumentError, match=match):
            call(schema)
    for options, match in (
        ({"placement": HashRing(["c1"])}, "placement"),
        ({"config": {}}, "config"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"observed_as": ""}, "observed_as"),
    ):
        with pytest.raises(ArgumentError, match=match):
            call(**options)
    stream = (
        spark.readStream.format("rate")
        .load()
        .selectExpr("'p' topic", "0 partition", "value sequence", "value at_ms", "'handle_timeout' command")
    )
    with pytest.raises(ArgumentError, match=r"providerClass is .*HDFS.*; it must be .*RocksDB"):
        stream_dispatch(stream, HashRing())
    monkeypatch.setattr(pyspark, "__version__", "4.0.1")
    with pytest.raises(TooOldError, match=r"a stream of commands needs pyspark 4\.1 or later"):
        stream_dispatch(stream, HashRing())


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (("p", 0, None, 0, "handle_timeout"), "topic='p', partition=0, sequence=None: sequence is None"),
        (("p", 0, 1, None, "handle_timeout"), "sequence=1: at_ms is None"),
        ((None, 0, 1, 1, "handle_timeout"), "column topic must not be NULL in any row"),
    ],
)
def test_a_command_without_a_place_fails_the_job(spark: "SparkSession", row: tuple[Any, ...], match: str) -> None:
    with pytest.raises(Exception, match=match):
        stream_dispatch(spark.createDataFrame([row], NEEDED), HashRing()).collect()


@given(
    st.lists(st.tuples(st.sampled_from("pq"), st.integers(0, 2), st.integers() | st.none(), st.binary()), max_size=20),
    st.integers(1, 7),
)
def test_rows_of_a_topic_partition_are_packed_and_unpacked_in_their_order(rows: list[Any], size: int) -> None:
    rows = [(topic, partition, n if n is None or abs(n) < 1 << 63 else 0, key) for topic, partition, n, key in rows]
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("n", pa.int64()), ("key", pa.binary())])
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=False)]
    table = pa.Table.from_arrays(columns, schema=schema) if rows else schema.empty_table()
    found: dict[tuple[str, int], list[Any]] = {}
    for batch in pack_batches(table.to_batches(max_chunksize=size), 2):
        for topic, partition, packed in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found.setdefault((topic, partition), []).extend(unpacked(packed))
    expected: dict[tuple[str, int], list[Any]] = {}
    for topic, partition, *rest in rows:
        expected.setdefault((topic, partition), []).append(tuple(rest))
    assert expected == found
