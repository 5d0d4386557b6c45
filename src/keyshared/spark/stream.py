"""A dispatcher for each topic-partition of a stream of commands, and the same over a batch.

Commands go in as rows, outcomes come out as rows: deliveries, cursors, dead letters. In a stream the dispatchers are
kept in Spark's state store from micro-batch to micro-batch, with a timer at the next deadline; in a batch each lives as
long as its rows. The outcomes are the same, row for row.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import ArrayType, BinaryType, LongType, StructField, StructType

from keyshared._checks import check_extra, check_int
from keyshared.config import DispatcherConfig
from keyshared.errors import ArgumentError, TooOldError
from keyshared.journal import Command, Journal
from keyshared.journal.commands import LATE, REFUSED
from keyshared.ring import HashRing
from keyshared.spark.rows import (
    TOPIC_PARTITION,
    WHOLE,
    Rows,
    by_partition,
    names_of,
    never_null,
    parsed,
    refuse_types,
)
from keyshared.spark.stream_rows import DUPLICATE, PACKED, pack_batches

__all__ = ["COMMAND_COLUMNS", "OUTCOME_COLUMNS", "STATE_STORE_SETTINGS", "dispatch_rows", "stream_dispatch"]

COMMAND_COLUMNS: Final = (
    "sequence bigint, at_ms bigint, command string, offset bigint, key binary, consumer string, attempt bigint, "
    "duration_ms bigint, `limit` bigint, weight bigint, filters array<string>, resumed boolean, reason string, "
    "per_key bigint, `group` string, per_second bigint, burst bigint, letters array<array<bigint>>"
)
"""The columns that are read, the fields of `keyshared.journal.Command`; all but the first three may be missing."""

OUTCOME_COLUMNS: Final = (
    "position bigint, sequence bigint, at_ms bigint, effect string, offset bigint, key binary, consumer string, "
    "attempt bigint, failures int, retry_at_ms bigint, call string, reason string"
)
"""The columns after those of the topic-partition: the fields of `keyshared.journal.OutcomeRow`."""

DEFAULT_DELAY_MS: Final = 10_000
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE_STORE_SETTINGS: Final = {_PROVIDER: _ROCKSDB}
"""The settings of a session that runs streams; give them to `local_session` or ``spark.conf.set``."""

_NEEDED: Final = ("sequence", "at_ms", "command")
_COUNTED: Final = (LATE, "ignored", REFUSED)
_STREAMS_SINCE: Final = (4, 1)


def stream_dispatch(
    df: DataFrame,
    placement: HashRing,
    *,
    config: DispatcherConfig | None = None,
    delay_ms: int = DEFAULT_DELAY_MS,
    topic_partition: str | Sequence[str] = TOPIC_PARTITION,
    observed_as: str = "stream_dispatch",
    tasks: int | None = None,
) -> DataFrame:
    """Run a dispatcher for every topic-partition, and carry out the commands in the rows; for ``df.transform``.

    Within a micro-batch rows may come in any order. From one to the next the sequences of a topic-partition grow: a
    command whose turn has passed is not carried out and has the outcome "late". A command that comes a second time is
    ignored. So a source that repeats itself does no harm, and no command disappears.

    Time is the commands' ``at_ms``. A deadline acts at its own instant: before the first command that is later, or when
    the watermark passes it, which is ``delay_ms`` behind the greatest ``at_ms`` of all topic-partitions. In a batch
    time passes to that same instant after the last command.

    Args:
        df: `COMMAND_COLUMNS` and the columns of ``topic_partition``, a stream or not; other columns are left out. A
            stream needs PySpark 4.1, the extra ``keyshared[streams]`` and `STATE_STORE_SETTINGS`.
        placement: Where keys go; it has no consumers, they come as commands.
        config: The dispatchers' limits, times and policies.
        delay_ms: How far a topic-partition may lag behind the others, in milliseconds of ``at_ms``. A command that lags
            more is not lost: it acts at the instant that was reached.
        topic_partition: One or several columns, texts or whole numbers, that name a topic-partition.
        observed_as: Name of the figures in ``observedMetrics`` of the query's progress: how many ``outcomes`` a
            micro-batch had, how many of them ``late``, ``ignored`` and ``refused``, and how many commands were
            ``duplicate``. Two streams of one query need two names.
        tasks: Of a batch, as in `by_partition`; a stream has ``spark.sql.shuffle.partitions``.

    Returns:
        The columns of ``topic_partition``, then `OUTCOME_COLUMNS`; the output mode of a stream is append. Lazy, except
        for one look at ``at_ms`` of a batch.

    Raises:
        ArgumentError: A column is missing or of another type, ``placement``, ``config`` or ``delay_ms`` can never work,
            or the session keeps its state elsewhere. While the job runs, NULL in a needed column fails it.
        TooOldError: The frame is a stream, and PySpark is older than 4.1.
        MissingExtraError: The frame is a stream, and the extra is not installed.

    Complexity:
        One shuffle, and that of `Journal`. A micro-batch reads and writes the state of each topic-partition that
        commands or deadlines touch, O(n) for n messages outstanding, and holds its commands in memory. In a batch one
        sort, and memory O(outstanding messages).

    Example:
        >>> rows = [("p", 1, 0, "add_consumer", None, None, "ann"), ("p", 2, 5, "offer", 0, "order-1", None)]
        >>> names = "shard string, sequence long, at_ms long, command string, offset long, key string, consumer string"
        >>> commands = spark.createDataFrame(rows, names)
        >>> [outcome] = stream_dispatch(commands, HashRing(), topic_partition="shard").collect()
        >>> outcome.effect, outcome.offset, bytes(outcome.key), outcome.consumer, outcome.attempt
        ('deliver', 0, b'order-1', 'ann', 1)
    """
    check_int("delay_ms", delay_ms, 0)
    if type(observed_as) is not str or not observed_as:
        raise ArgumentError("observed_as", observed_as, "be a name")
    Journal(placement, config)  # raises the typed errors
    names = names_of(topic_partition)
    fields = parsed(df, COMMAND_COLUMNS)
    rows = _commands(df, names, fields)
    if df.isStreaming:
        return _stream(rows, names, placement, config, delay_ms, observed_as)
    latest = rows.agg(F.max("at_ms")).head()[0]  # type: ignore[index]  # an aggregate has a row
    return by_partition(
        rows,
        "sequence",
        [field.name for field in fields],
        OUTCOME_COLUMNS,
        partial(dispatch_rows, placement=placement, config=config, until_ms=max((latest or 0) - delay_ms, 0)),
        topic_partition=names,
        tasks=tasks,
    )


def dispatch_rows(
    rows: Rows, placement: HashRing, *, config: DispatcherConfig | None = None, until_ms: int = 0
) -> Iterator[tuple[Any, ...]]:
    """Carry out the commands of one topic-partition: the work of `stream_dispatch` over a batch.

    Args:
        rows: The fields of `keyshared.journal.Command`, in order of sequence.
        placement: See `Journal`.
        config: See `Journal`.
        until_ms: The instant to which time passes after the last command.

    Yields:
        The fields of `keyshared.journal.OutcomeRow`, in order.

    Raises:
        ArgumentError: See `Journal`.

    Example:
        >>> rows = [(0, 5, "add_consumer", None, None, "c1"), (1, 6, "offer", 0, b"order-1")]
        >>> [row[:4] for row in dispatch_rows(iter(rows), HashRing())]
        [(0, 1, 6, 'deliver')]
    """
    journal = Journal(placement, config)
    for row in rows:
        yield from journal.apply(Command(*row))
    yield from journal.advance(until_ms)


def _commands(df: DataFrame, names: Sequence[str], fields: Sequence[StructField]) -> DataFrame:
    """Return the frame with all columns of `COMMAND_COLUMNS`."""
    types = dict(df.dtypes)
    wanted: dict[str, Sequence[str]] = dict.fromkeys(names, ("string", *WHOLE))
    for field in fields:
        if field.name in _NEEDED or field.name in types:
            kind = field.dataType.simpleString()
            wanted[field.name] = ("string", "binary") if field.name == "key" else WHOLE if kind == "bigint" else (kind,)
    refuse_types(types, wanted)
    columns = [
        (F.col(field.name) if field.name in types else F.lit(None)).cast(field.dataType).alias(field.name)
        for field in fields
    ]
    return df.select(*map(never_null, names), *columns)


def _stream(  # noqa: PLR0917 - what the caller was given
    rows: DataFrame,
    names: Sequence[str],
    placement: HashRing,
    config: DispatcherConfig | None,
    delay_ms: int,
    observed_as: str,
) -> DataFrame:
    version = tuple(map(int, pyspark.__version__.split(".")[:2]))
    if version < _STREAMS_SINCE:
        raise TooOldError("a stream of commands", "pyspark", "4.1", pyspark.__version__, "dispatch batches, or upgrade")
    check_extra("streams", "google.protobuf")
    from keyshared.spark.stream_state import DispatchProcessor  # noqa: PLC0415 - older versions cannot import it

    provider = rows.sparkSession.conf.get(_PROVIDER)
    if provider != _ROCKSDB:
        raise ArgumentError(_PROVIDER, provider, f"be {_ROCKSDB}: other stores cannot hold this state")
    # The watermark is taken of a column that then goes: else Spark would drop late rows, and commands would be lost.
    marked = rows.withColumn("_at", F.timestamp_millis("at_ms")).withWatermark("_at", f"{delay_ms} milliseconds")
    own = [field for field in rows.schema.fields if field.name in names]
    width = len(own)
    packed = marked.drop("_at").mapInArrow(
        lambda batches: pack_batches(batches, width), StructType([*own, StructField(PACKED, BinaryType())])
    )
    outcomes = parsed(rows, OUTCOME_COLUMNS)
    arrays = [StructField(field.name, ArrayType(field.dataType), nullable=False) for field in outcomes]
    told = packed.groupBy(*names).transformWithState(
        statefulProcessor=DispatchProcessor(placement, config, names),
        outputStructType=StructType([*own, *arrays, StructField(DUPLICATE, LongType(), nullable=False)]),
        outputMode="append",
        timeMode="eventTime",
    )
    return told.observe(observed_as, *_figures()).select(
        *names, F.inline(F.arrays_zip(*(field.name for field in outcomes)))
    )


def _figures() -> list[Column]:
    """Return the figures of a micro-batch: a processor in Python has no counters of its own."""
    counts = {"outcomes": F.size("effect"), **{name: _how_many(name) for name in _COUNTED}, DUPLICATE: F.col(DUPLICATE)}
    return [F.coalesce(F.sum(count), F.lit(0).cast("bigint")).alias(name) for name, count in counts.items()]


def _how_many(effect: str) -> Column:
    """Count an effect among the outcomes of a row."""
    return F.size(F.filter("effect", lambda each: each == effect))
