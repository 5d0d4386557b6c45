"""Streams: dispatchers that are stopped and started again, beside those of a batch; and micro-batches, co-located."""

from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.command_logs import from_zero, lag_of, ring, written_log
from tests.spark.settings import SHUFFLE_PARTITIONS, settings
from tests.spark.small_jobs import RING, messages

from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.journal import Command
from keyshared.spark.columns.colocation import colocate
from keyshared.spark.streams.dispatch import COMMAND_SCHEMA, OUTCOME_SCHEMA, STATE_STORE, stream_dispatch

CONFIG: Final = DispatcherConfig(
    window=4,
    max_tracked=6,
    max_in_flight_per_consumer=2,
    ack_timeout_ms=10,
    retry=RetryPolicy(max_redeliveries=1, base_delay_ms=5),
    poison=Poison.DEAD_LETTER,
)
SEQUENCES: Final = (0, 20, 40, 60)  # where files are cut; some commands are in two
REPEATED: Final = 4
SETTINGS: Final = {**STATE_STORE, SHUFFLE_PARTITIONS: "2"}  # a micro-batch costs a process for each


def commands() -> list[tuple[Any, ...]]:
    """Of two topic-partitions, as `COMMAND_SCHEMA` has them."""
    logs = {name: from_zero(written_log(Random(name), SEQUENCES[-1], CONFIG).commands) for name in ("p", "q")}
    return [(name, *plain(command)) for name, log in logs.items() for command in log]


def plain(command: Command) -> Command:
    """Arrow and Connect take no text for bytes and no tuple for a list."""
    key = command.key.encode() if isinstance(command.key, str) else command.key
    return command._replace(key=key, filters=None if command.filters is None else list(command.filters))


def dispatched(spark: SparkSession) -> list[object]:
    """Both forms; the stream is started twice, and goes on from its checkpoint."""
    rows, cuts = commands(), pairwise(SEQUENCES)
    files = [[row for row in rows if start - REPEATED <= row[1] < stop] for start, stop in cuts]
    delay_ms = lag_of(files)
    with TemporaryDirectory() as folder, settings(spark, SETTINGS):
        frames = [spark.createDataFrame(file, COMMAND_SCHEMA) for file in files]
        started = [run(spark, Path(folder), some, delay_ms) for some in (frames[:2], frames[2:])]
    batch = stream_dispatch(spark.createDataFrame(rows, COMMAND_SCHEMA), ring(), config=CONFIG, delay_ms=delay_ms)
    return [*map(len, started), *started[-1], *batch.collect()]


def run(spark: SparkSession, folder: Path, files: list[DataFrame], delay_ms: int) -> list[Row]:
    """Go on with a stream until it has carried out these files, too: all of its rows."""
    source, sink = str(folder / "commands"), str(folder / "outcomes")
    for file in files:
        file.coalesce(1).write.mode("append").parquet(source)
    stream = spark.readStream.schema(COMMAND_SCHEMA).option("maxFilesPerTrigger", 1).parquet(source)
    writer = stream_dispatch(stream, ring(), config=CONFIG, delay_ms=delay_ms).writeStream.option("path", sink)
    query = writer.option("checkpointLocation", str(folder / "state")).trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.read.schema(OUTCOME_SCHEMA).parquet(sink).collect()


def colocated(spark: SparkSession) -> list[Row]:
    """What can be done to no stream is done to its micro-batches: by each there is a file for each owner."""
    log = messages(spark)
    with TemporaryDirectory() as folder:
        source, sink = f"{folder}/log", f"{folder}/colocated"
        log.coalesce(1).write.parquet(source)
        stream = spark.readStream.schema(log.schema).parquet(source)
        writer = stream.writeStream.foreachBatch(partial(_colocate_into, sink)).trigger(availableNow=True)
        writer.option("checkpointLocation", f"{folder}/state").start().awaitTermination()
        return spark.read.parquet(sink).collect()


def _colocate_into(path: str, batch: DataFrame, number: int) -> None:
    place = F.monotonically_increasing_id().alias("place")
    colocate(batch, RING).select("*", place, F.lit(number).alias("batch")).write.mode("append").parquet(path)
