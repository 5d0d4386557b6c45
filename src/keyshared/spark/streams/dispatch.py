"""A dispatcher for each topic-partition of a stream of commands, and the same over a batch.

Commands go in as rows, what the dispatchers say comes out as rows: deliveries, cursors, dead letters. In a streaming
frame the dispatchers are kept in the state store from micro-batch to micro-batch, with a timer at the next deadline;
in a batch frame each lives as long as its rows. The outcomes are the same, row for row.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from keyshared._checks import check_extra, check_int
from keyshared.config import DispatcherConfig
from keyshared.errors import ArgumentError
from keyshared.journal.commands import LATE, REFUSED
from keyshared.journal.journal import Journal
from keyshared.ring import HashRing
from keyshared.spark.frames.checks import WHOLE, check_columns, check_key, column_names
from keyshared.spark.frames.rules import never_null, place_of, text_for_python, whole_ms
from keyshared.spark.streams.partition import dispatch_partition
from keyshared.spark.streams.rows import DUPLICATE, PACKED_SCHEMA, bundled, pack_batches, unbundled
from keyshared.spark.versions import STREAMS, needs

__all__ = ["COMMAND_SCHEMA", "OUTCOME_SCHEMA", "STATE_STORE", "stream_dispatch"]

DEFAULT_DELAY_MS: Final = 10_000
OBSERVED_AS: Final = "stream_dispatch"

_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE_STORE: Final = {_PROVIDER: _ROCKSDB}
"""The settings that a session needs for the streaming form; give them to `local_session` or ``spark.conf.set``."""

COMMAND_SCHEMA: Final = StructType(
    [
        StructField("topic_partition", StringType(), nullable=False),
        StructField("sequence", LongType(), nullable=False),
        StructField("at_ms", LongType(), nullable=False),
        StructField("command", StringType(), nullable=False),  # one of keyshared.journal.COMMANDS
        StructField("offset", LongType()),
        StructField("key", BinaryType()),  # or string
        StructField("consumer", StringType()),
        StructField("attempt", LongType()),
        StructField("duration_ms", LongType()),
        StructField("limit", LongType()),
        StructField("weight", LongType()),
        StructField("filters", ArrayType(StringType())),
        StructField("resumed", BooleanType()),
        StructField("reason", StringType()),
        StructField("per_key", LongType()),
        StructField("group", StringType()),
        StructField("per_second", LongType()),
        StructField("burst", LongType()),
        StructField("letters", ArrayType(ArrayType(LongType()))),  # offset and attempt of each
    ]
)
"""The columns that are read, the fields of `keyshared.journal.Command`; all but the first four may be missing."""

OUTCOME_SCHEMA: Final = StructType(
    [
        StructField("topic_partition", StringType(), nullable=False),
        StructField("position", LongType(), nullable=False),  # with topic_partition it names the row
        StructField("sequence", LongType(), nullable=False),
        StructField("at_ms", LongType(), nullable=False),
        StructField("effect", StringType(), nullable=False),
        StructField("offset", LongType()),
        StructField("key", BinaryType()),
        StructField("consumer", StringType()),
        StructField("attempt", LongType()),
        StructField("failures", IntegerType()),
        StructField("retry_at_ms", LongType()),
        StructField("call", StringType()),  # of keyshared.effects.Call
        StructField("reason", StringType()),
    ]
)
"""The columns that come out, the fields of `keyshared.journal.OutcomeRow`."""

_NEEDED: Final = ("topic_partition", "sequence", "at_ms", "command")
_BATCH_ROWS: Final = 10_000
_COUNTED: Final = (LATE, "ignored", REFUSED)


def stream_dispatch(
    df: DataFrame,
    placement: HashRing,
    *,
    config: DispatcherConfig | None = None,
    delay_ms: int = DEFAULT_DELAY_MS,
    observed_as: str = OBSERVED_AS,
) -> DataFrame:
    """Run a dispatcher for every topic-partition, and carry out the commands in the rows; for ``df.transform``.

    Within a micro-batch rows may come in any order. From one to the next the sequences of a topic-partition grow: a
    command whose turn has passed is not carried out, and is an outcome, "late". One that has been there before is
    ignored. So a source that repeats itself does no harm, and nothing that comes disappears.

    Time is the commands' ``at_ms``. A deadline acts at its own instant: before the first command that is later, or when
    the watermark passes it, which is ``delay_ms`` behind the greatest ``at_ms`` of all topic-partitions. In a batch
    time passes to that same instant, once all commands are carried out.

    Args:
        df: `COMMAND_SCHEMA`, streaming or not; other columns are left out. A streaming one needs `STATE_STORE`, Spark
            4.0 (through Spark Connect 4.1) and the extra ``keyshared[streams]``.
        placement: Where keys go; nobody is on it, consumers come as commands.
        config: The dispatchers' limits, times and policies.
        delay_ms: How far a topic-partition may lag behind the others, in milliseconds of ``at_ms``. A command that lags
            more is not lost: should time have passed it already, it acts at the instant that was reached.
        observed_as: Name of the figures that the progress of the query has of each micro-batch, in ``observedMetrics``:
            how many ``outcomes`` there were, how many of them ``late``, ``ignored`` and ``refused``, and how many
            commands were ``duplicate``, which have no outcome. Two streams of one query need two names.

    Returns:
        `OUTCOME_SCHEMA`; the output mode of a stream of them is append.

    Raises:
        ArgumentError: A column is missing or of another type, ``placement``, ``config`` or ``delay_ms`` can never work,
            or the session keeps its state elsewhere. While it runs, NULL in one of the first four columns fails it, an
            ``at_ms`` below 0 or too great for a time of Spark's, and a batch whose source changes while it is read.
        TooOldError: The frame is a stream, and Spark is older than 4.0, or through Spark Connect older than 4.1.
        MissingExtraError: The frame is a stream, and the extra is not installed.

    Complexity:
        One shuffle, and that of `Journal`. A stream goes through Python twice: before the shuffle, where the rows of a
        topic-partition are put together, and behind it. A micro-batch reads and writes the state of each
        topic-partition that commands or deadlines touch, O(n) for n messages outstanding, and holds its commands in
        memory. In a batch one sort, and memory O(outstanding messages).

    Example:
        >>> told = [("p", 1, 0, "add_consumer", None, None, "ann"), ("p", 2, 5, "offer", 0, "order-1", None)]
        >>> names = "topic_partition string, sequence long, at_ms long, command string"
        >>> commands = spark.createDataFrame(told, f"{names}, offset long, key string, consumer string")
        >>> [outcome] = stream_dispatch(commands, HashRing()).collect()
        >>> outcome.effect, outcome.offset, bytes(outcome.key), outcome.consumer, outcome.attempt
        ('deliver', 0, b'order-1', 'ann', 1)

        As a stream, with its state kept from run to run in a folder:

        >>> commands = spark.readStream.schema(COMMAND_SCHEMA).json("commands")  # doctest: +SKIP
        >>> outcomes = stream_dispatch(commands, HashRing(), delay_ms=60_000)  # doctest: +SKIP
        >>> outcomes.writeStream.option("checkpointLocation", "state").start("outcomes")  # doctest: +SKIP
    """
    check_int("delay_ms", delay_ms, 0)
    if type(observed_as) is not str or not observed_as:
        raise ArgumentError("observed_as", observed_as, "be a name")
    Journal(placement, config)  # says what is wrong with them
    _check_frame(df)
    rows = df.select(*_commands(df))
    if df.isStreaming:
        return _streaming(rows, placement, config, delay_ms, observed_as)
    return _batch(rows, placement, config, delay_ms)


def _streaming(
    rows: DataFrame, placement: HashRing, config: DispatcherConfig | None, delay_ms: int, observed_as: str
) -> DataFrame:
    needs(STREAMS, "a streaming frame of commands", "dispatch batch frames, or upgrade Spark")
    check_extra("streams", "google.protobuf")
    from keyshared.spark.streams.frames import transform_with_state  # noqa: PLC0415 - there are Sparks that cannot
    from keyshared.spark.streams.state import DispatchProcessor  # noqa: PLC0415 - as above

    provider = rows.sparkSession.conf.get(_PROVIDER)
    if provider != _ROCKSDB:
        raise ArgumentError(_PROVIDER, provider, f"be {_ROCKSDB}: other stores cannot hold this state")
    # The watermark is taken of a column that then goes: else Spark would drop rows that are late, commands lost unseen.
    marked = rows.withColumn("_at", F.timestamp_millis("at_ms")).withWatermark("_at", f"{delay_ms} milliseconds")
    packed = marked.drop("_at").mapInArrow(pack_batches, PACKED_SCHEMA)
    outcomes = transform_with_state(
        packed.groupBy("topic_partition"),
        DispatchProcessor(placement, config),
        bundled(OUTCOME_SCHEMA).add(DUPLICATE, LongType(), nullable=False),
    )
    return outcomes.observe(observed_as, *_figures()).transform(unbundled, OUTCOME_SCHEMA)


def _figures() -> list[Column]:
    """What the progress of a query says of each micro-batch: a processor in Python has no counters of its own."""
    counts = {"outcomes": F.size("effect"), **{name: _how_many(name) for name in _COUNTED}, DUPLICATE: F.col(DUPLICATE)}
    return [F.coalesce(F.sum(count), F.lit(0).cast("bigint")).alias(name) for name, count in counts.items()]


def _how_many(effect: str) -> Column:
    """Count an effect among the outcomes of a row."""
    return F.size(F.filter("effect", lambda each: each == effect))


def _batch(rows: DataFrame, placement: HashRing, config: DispatcherConfig | None, delay_ms: int) -> DataFrame:
    topic_partition, *fields = COMMAND_SCHEMA.names

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return dispatch_batches(batches, placement, config)

    # How long time goes on is known by who has read everything. The source may have changed by the time that commands
    # are carried out, so each topic-partition is told its own last instant, too, in a row before the first.
    ends = rows.groupBy(topic_partition).agg(F.max("at_ms").alias("latest"))
    until = F.greatest(F.max("latest") - delay_ms, F.lit(0)).alias("until")  # as the watermark, which begins at 0
    all_ends = F.collect_list(F.struct(topic_partition, "latest")).alias("ends")
    heads = ends.agg(until, all_ends).select("until", F.inline("ends"))
    return (
        rows.unionByName(heads, allowMissingColumns=True)
        .select(topic_partition, "until", "latest", *fields)
        .repartition(topic_partition)
        .sortWithinPartitions(topic_partition, F.asc_nulls_first("sequence"))
        .mapInArrow(run, OUTCOME_SCHEMA)
    )


def dispatch_batches(
    batches: Iterable[pa.RecordBatch], placement: HashRing, config: DispatcherConfig | None
) -> Iterator[pa.RecordBatch]:
    """Carry out commands that arrive as Arrow batches, cut anywhere: the function for ``mapInArrow``.

    Args:
        batches: Topic-partition, until when time passes, the last ``at_ms``, and the fields of `Command`. The first row
            of a topic-partition has the two instants and nothing else, the others have neither.
        placement: See `Journal`.
        config: See `Journal`.

    Raises:
        ArgumentError: The last ``at_ms`` of a topic-partition is another one; or see `Journal`.
    """
    schema = to_arrow_schema(OUTCOME_SCHEMA)
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    outcomes = dispatch_partition(_timed(rows), placement, config=config)
    while chunk := list(islice(outcomes, _BATCH_ROWS)):
        columns: Iterable[tuple[Any, ...]] = zip(*chunk, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _timed(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Rows as `dispatch_partition` reads them; fails at the end of a topic-partition that has changed."""
    for topic_partition, mine in groupby(rows, key=itemgetter(0)):
        until = latest = last = None
        for row in mine:
            if row[1] is not None:
                _, until, latest, *_ = row
                continue
            last = row[4] if last is None else max(last, row[4])
            yield topic_partition, until, *row[3:]
        if last != latest:
            requirement = (
                f"be the same source whenever it is read: first its last at_ms was {latest}, then {last}; "
                "write it down, or persist it"
            )
            raise ArgumentError("topic_partition", topic_partition, requirement)


def _check_frame(df: DataFrame) -> None:
    there = column_names(df)
    wanted = {
        field.name: WHOLE if field.dataType == LongType() else (field.dataType.simpleString(),)
        for field in COMMAND_SCHEMA.fields
        if field.name in _NEEDED or (field.name in there and field.name != "key")
    }
    check_columns(df, wanted)
    if "key" in there:
        check_key(df, "key")


def _commands(df: DataFrame) -> list[Column]:
    """All columns of `COMMAND_SCHEMA`; a command without a place in the order fails the job."""
    there, place = column_names(df), place_of({name: name for name in ("topic_partition", "sequence")})
    types = {field.name: field.dataType for field in COMMAND_SCHEMA.fields}
    rules = {name: never_null(name, value=F.col(name).cast(types[name])) for name in _NEEDED}
    rules["topic_partition"] = text_for_python("topic_partition")
    rules["at_ms"] = whole_ms("at_ms", "at_ms", F.col("at_ms").cast("bigint"))
    return [
        rules[name].kept(place)
        if name in rules
        else (F.col(name) if name in there else F.lit(None)).cast(kind).alias(name)
        for name, kind in types.items()
    ]
