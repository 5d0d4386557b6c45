"""Translation of consumer groups' offsets between two clusters, for many groups and large logs at once.

Spark looks up what the logs know: the record that a group processed last, the first one that is young enough, the first
one that a provenance vector does not cover. Each look-up is one window over log and questions together: the questions
are put among the records, and take what stands before them. `OffsetDistributor` and `OffsetCommitter` themselves decide
what follows from that, row by row of the commits: no rule is written twice.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from keyshared._checks import check_bool
from keyshared.copyflags import CopyFlags
from keyshared.offsets.index import Bounds
from keyshared.offsets.translate import (
    DEFAULT_MARGIN_MS,
    Declined,
    GroupCommit,
    GroupPartition,
    GroupTimestamp,
    OffsetCommitter,
    OffsetDistributor,
    TargetGroup,
)
from keyshared.spark.frames.checks import check_columns, column_names
from keyshared.spark.frames.rules import never_null, place_of, text_for_python

__all__ = ["TRANSLATION_SCHEMA", "translate_offsets"]

TRANSLATION_SCHEMA: Final = StructType(
    [
        StructField("group", StringType(), nullable=False),
        StructField("topic_partition", StringType(), nullable=False),
        StructField("offset", LongType(), nullable=False),  # the commit on the source
        StructField("timestamp_epoch_ms", LongType(), nullable=True),  # what was sent; NULL: the beginning, or nothing
        StructField("target_offset", LongType(), nullable=True),  # what to commit on the target; NULL if declined
        StructField("metadata", StringType(), nullable=True),  # of that commit: its envelope
        StructField("declined", StringType(), nullable=True),  # why there is none: the name of a `DeclineReason`
    ]
)
"""One row for each commit: the commit to make on the target, or why there is none."""

_Mapping: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_COMMITS: Final = {"group": ("string",), "topic_partition": ("string",), "offset": ("int", "bigint")}
_OPTIONAL: Final = {
    "metadata": ("string",),
    "target_active": ("boolean",),
    "target_committed": ("int", "bigint"),
    "target_metadata": ("string",),
}
_LOG: Final = {"topic_partition": ("string",), "offset": ("int", "bigint"), "timestamp_epoch_ms": ("bigint",)}
_ORIGIN: Final = {"origin": ("string",), "origin_offset": ("int", "bigint")}
_BOUNDS: Final = {"topic_partition": ("string",), "start": ("int", "bigint"), "end": ("int", "bigint")}


class _Given(NamedTuple):
    """A commit with the question about it; in the order of `_GIVEN`."""

    group: str
    topic_partition: str
    offset: int
    metadata: str | None
    target_active: int | None
    target_committed: int | None
    target_metadata: str | None
    last_ms: int | None  # of the last processed record, or the first one that there is


class _Sent(NamedTuple):
    """The source's answer to it; in the order of `_SENT`."""

    group: str
    topic_partition: str
    offset: int
    target_active: int | None
    target_committed: int | None
    target_metadata: str | None
    timestamp_epoch_ms: int | None
    flags: str | None  # hexadecimal; None if nothing is sent
    declined: str | None


class _Facts(NamedTuple):
    """What the target's log adds: `_SENT` and three more columns, the last ones of `_KNOWN`."""

    sent: _Sent
    found: int | None
    start: int | None
    end: int | None


class _Planned(NamedTuple):
    """The result; in the order of `TRANSLATION_SCHEMA`."""

    group: str
    topic_partition: str
    offset: int
    timestamp_epoch_ms: int | None
    target_offset: int | None
    metadata: str | None
    declined: str | None


_KNOWN: Final = ("last_ms", "found", "start", "end")
_SOURCE_SIDE: Final = 0
_TARGET_SIDE: Final = 1
_ASKED_SIDE: Final = 2
_TARGET: Final = [
    StructField("target_active", LongType()),
    StructField("target_committed", LongType()),
    StructField("target_metadata", StringType()),
]
_GIVEN: Final = StructType([*TRANSLATION_SCHEMA.fields[:3], StructField("metadata", StringType()), *_TARGET])
_SENT: Final = StructType(
    [
        *TRANSLATION_SCHEMA.fields[:3],
        *_TARGET,
        StructField("timestamp_epoch_ms", LongType()),
        StructField("flags", StringType()),
        StructField("declined", StringType()),
    ]
)


def translate_offsets(
    commits: DataFrame,
    source_log: DataFrame,
    target_log: DataFrame,
    *,
    margin_ms: int = DEFAULT_MARGIN_MS,
    provenance: bool = False,
    level: int = 1,
    keep_foreign: bool = False,
    target_bounds: DataFrame | None = None,
) -> DataFrame:
    """Translate commits on one cluster into commits on another, by timestamp or by provenance.

    Each row is what `OffsetDistributor` and `OffsetCommitter` answer with an exact index of the two logs; and with
    ``provenance`` also a `ProvenanceVector` of everything that the source's log has below the commit.

    Args:
        commits: ``group``, ``topic_partition`` (strings) and ``offset`` (long: the *next* to read). If they are there,
            also ``metadata`` (string) of the commit, and how the group stands on the target: ``target_active``
            (boolean), ``target_committed`` (long) and ``target_metadata`` (string). NULL counts as: no metadata, not
            active, no commit.
        source_log: The records there: ``topic_partition``, ``offset``, ``timestamp_epoch_ms`` (long); and with
            ``provenance``, ``origin`` (string) and ``origin_offset`` (long).
        target_log: The same columns of the target.
        margin_ms: How much older than the last processed record an unprocessed one may be. With ``provenance`` it only
            counts for the clusters to which the timestamp in the envelope goes on.
        provenance: Resume at the first record that the group has not processed, whatever the timestamps.
        level: Level of the distributor in the tree.
        keep_foreign: See `OffsetCommitter`.
        target_bounds: ``topic_partition``, ``start`` and ``end`` (long) of the target's logs, for partitions in which
            there is no record: a log of which nothing is known begins and ends at 0.

    Returns:
        One row for each commit, see `TRANSLATION_SCHEMA`. Lazy, as every frame is. The job fails on a record of which
        a column that is used is NULL, and on a value that is none (a negative offset, an empty name); the error
        shows the row.

    Raises:
        ArgumentError: A column is missing or of another type; or ``margin_ms`` or ``level`` are none. No job was
            started.

    Complexity:
        By timestamp each log is sorted once within its topic-partitions, and the commits with it; by provenance both
        logs together, three times, and there commits at one offset are looked up once, however many groups have it. A
        topic-partition is worked on by one task. Python sees the commits and no record.

    Example:
        >>> log = "topic_partition string, offset long, timestamp_epoch_ms long, origin string, origin_offset long"
        >>> here = spark.createDataFrame([("p", 25, 900, "eu", 0), ("p", 26, 950, "eu", 1)], log)
        >>> there = spark.createDataFrame([("p", 0, 900, "eu", 0), ("p", 1, 950, "eu", 1)], log)
        >>> commits = spark.createDataFrame([("g", "p", 26)], "group string, topic_partition string, offset long")
        >>> translated = translate_offsets(commits, here, there, provenance=True)
        >>> translated.select("offset", "target_offset", "declined").collect()
        [Row(offset=26, target_offset=1, declined=None)]
    """
    distributor = OffsetDistributor(level=level, margin_ms=margin_ms)
    committer = OffsetCommitter(keep_foreign=keep_foreign)
    _check(commits, source_log, target_log, target_bounds, provenance=provenance)
    source, target = _log(source_log, provenance=provenance), _log(target_log, provenance=provenance)
    bounds = None if target_bounds is None else _bounds(target_bounds)
    given = _given(commits)
    if provenance:
        known = _uncovered(given, source, target, bounds)
        return known.select(*_GIVEN.names, *_KNOWN).mapInArrow(_mapping(distributor, committer), TRANSLATION_SCHEMA)
    sent = _last_timestamps(given, source).select(*_GIVEN.names, "last_ms").mapInArrow(_sending(distributor), _SENT)
    facts = _young_enough(sent, target, bounds).select(*_SENT.names, "found", "start", "end")
    return facts.mapInArrow(_planning(committer), TRANSLATION_SCHEMA)


def _check(
    commits: DataFrame, source: DataFrame, target: DataFrame, bounds: DataFrame | None, *, provenance: bool
) -> None:
    check_bool("provenance", provenance)
    there = column_names(commits)
    check_columns(commits, _COMMITS | {name: kinds for name, kinds in _OPTIONAL.items() if name in there})
    for log in (source, target):
        check_columns(log, _LOG | _ORIGIN if provenance else _LOG)
    if bounds is not None:
        check_columns(bounds, _BOUNDS)


def _given(commits: DataFrame) -> DataFrame:
    """Return the commits with every optional column."""
    there = column_names(commits)
    place = place_of({name: name for name in _COMMITS})
    columns = [
        _complete(field.name, "a commit", place)
        if field.name in _COMMITS
        else (F.col(field.name) if field.name in there else F.lit(None)).cast(field.dataType).alias(field.name)
        for field in _GIVEN
    ]
    return commits.select(columns)


def _log(log: DataFrame, *, provenance: bool) -> DataFrame:
    """Return the records; one without a place fails the job, because it would be skipped in silence."""
    place = place_of({name: name for name in ("topic_partition", "offset")})
    return log.select(*(_complete(name, "a record", place) for name in (*_LOG, *(_ORIGIN if provenance else ()))))


def _bounds(bounds: DataFrame) -> DataFrame:
    place = place_of({name: name for name in _BOUNDS})
    return bounds.select(*(_complete(name, "bounds", place) for name in _BOUNDS))


def _complete(name: str, of: str, place: Column) -> Column:
    value = F.col(name) if name in {"group", "topic_partition", "origin"} else F.col(name).cast("bigint")
    rule = text_for_python if name == "topic_partition" else never_null
    return rule(name, f"{name} of {of}", value).kept(place)


# what the logs know: questions among the records


def _last_timestamps(given: DataFrame, log: DataFrame) -> DataFrame:
    """Return each commit with ``last_ms``: the timestamp of the last record below it, else of the first record."""
    # in a struct, since the columns of a commit would make every record of the log as much longer
    questions = given.select("topic_partition", "offset", F.struct("*").alias("asked"))
    union = log.select("topic_partition", "offset", "timestamp_epoch_ms").unionByName(
        questions, allowMissingColumns=True
    )
    # at one offset the question comes first: a commit is the next offset
    order = Window.partitionBy("topic_partition").orderBy("offset", F.col("asked").isNull())
    below = order.rowsBetween(Window.unboundedPreceding, 0)
    everywhere = order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    last = F.last("timestamp_epoch_ms", ignorenulls=True).over(below)
    first = F.first("timestamp_epoch_ms", ignorenulls=True).over(everywhere)
    answers = union.withColumn("last_ms", F.coalesce(last, first)).filter("asked is not null")
    return answers.select("asked.*", "last_ms")


def _young_enough(sent: DataFrame, log: DataFrame, bounds: DataFrame | None) -> DataFrame:
    """Return each question with ``found``: the lowest offset of a record that is not older than what was sent.

    NULL if there is none, or if nothing was sent; and with the ``start`` and ``end`` of the log.
    """
    # in a struct, since the columns of a question would make every record of the log as much longer
    asked = sent.select("topic_partition", "timestamp_epoch_ms", F.struct("*").alias("asked"))
    union = _with_bounds(log.select("topic_partition", "timestamp_epoch_ms", "offset"), bounds)
    union = union.unionByName(asked, allowMissingColumns=True)
    # from the youngest down, and of equal ones the question last: what stands before it is not older
    order = Window.partitionBy("topic_partition").orderBy(F.desc("timestamp_epoch_ms"), F.col("asked").isNotNull())
    lowest = F.min("offset").over(order.rowsBetween(Window.unboundedPreceding, 0))
    known = union.withColumns({"found": F.when(F.col("timestamp_epoch_ms").isNotNull(), lowest), **_edges(order)})
    return known.filter("asked is not null").select("asked.*", "found", "start", "end")


def _uncovered(given: DataFrame, source: DataFrame, target: DataFrame, bounds: DataFrame | None) -> DataFrame:
    """Return each commit with `_KNOWN`; ``found`` is the lowest offset of an unprocessed target record.

    Of each origin, the records above its greatest origin offset below the commit are unprocessed. Origins that are not
    on the target do not matter. Both logs and the commits go through three windows together, and no row leaves Spark.
    """
    asked = given.groupBy("topic_partition", "offset").agg(F.collect_list(F.struct("*")).alias("asked"))
    union = _with_bounds(target, bounds).withColumn("side", F.lit(_TARGET_SIDE))
    for frame, side in ((source, _SOURCE_SIDE), (asked, _ASKED_SIDE)):
        union = union.unionByName(frame.withColumn("side", F.lit(side)), allowMissingColumns=True)
    of_target, of_source = F.col("side") == _TARGET_SIDE, F.col("side") == _SOURCE_SIDE
    is_asked = F.col("side") == _ASKED_SIDE
    # the source's records and the questions by offset: at one offset the question comes first; then the target's
    place = (F.when(~of_target, F.col("offset")).asc_nulls_last(), F.desc("side"))
    in_order = Window.partitionBy("topic_partition").orderBy(*place)
    whole = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    below = in_order.rowsBetween(Window.unboundedPreceding, 0)
    times = F.when(of_source, F.col("timestamp_epoch_ms"))
    looked = union.withColumns(
        {
            "last_ms": F.coalesce(
                F.last(times, ignorenulls=True).over(below), F.first(times, ignorenulls=True).over(whole)
            ),
            "origins": F.collect_set(F.when(of_target, F.col("origin"))).over(whole),
            **_edges(in_order, of_target),
        }
    )
    own = F.array("origin")  # of a question that nothing can answer, too: NULL
    each = F.when(is_asked & (F.size("origins") > 0), F.col("origins")).otherwise(own)
    by_origin = looked.filter(is_asked | F.col("origin").isNotNull()).withColumn("origin", F.explode(each))
    of_origin = Window.partitionBy("topic_partition", "origin")
    so_far = of_origin.orderBy(*place).rowsBetween(Window.unboundedPreceding, 0)
    done = F.max(F.when(of_source, F.col("origin_offset"))).over(so_far)
    vector = F.when(is_asked, F.coalesce(done, F.lit(-1)) + 1).otherwise(F.col("origin_offset"))
    # from the greatest down, and of equal ones the question last: what stands before it is not below it
    down = of_origin.orderBy(F.desc("next"), "side").rowsBetween(Window.unboundedPreceding, 0)
    answers = (
        by_origin.withColumn("next", vector)
        .filter(~of_source)
        .withColumn("found", F.min(F.when(of_target, F.col("offset"))).over(down))
        .filter(is_asked)
        .groupBy("topic_partition", "offset")
        .agg(
            F.min("found").alias("found"),
            *(F.first(name).alias(name) for name in ("asked", *_KNOWN) if name != "found"),
        )
    )
    return answers.select(*_KNOWN, F.inline("asked"))


def _with_bounds(log: DataFrame, bounds: DataFrame | None) -> DataFrame:
    """Return the records of a log together with the given ends."""
    nothing = F.lit(None).cast("bigint")
    told = log.withColumns({"told_start": nothing, "told_end": nothing})
    if bounds is None:
        return told
    renamed = bounds.withColumnsRenamed({"start": "told_start", "end": "told_end"})
    return told.unionByName(renamed, allowMissingColumns=True)


def _edges(order: WindowSpec, of_log: Column | None = None) -> dict[str, Column]:
    """Return first offset and end of each log, the given ones included; NULL if nothing is known."""
    whole = order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    offset = F.col("offset") if of_log is None else F.when(of_log, F.col("offset"))
    return {
        "start": F.min(F.least(offset, F.col("told_start"))).over(whole),
        "end": F.max(F.greatest(offset + 1, F.col("told_end"))).over(whole),
    }


# what follows from that: the pure functions


@dataclass(frozen=True, slots=True)
class _Found:
    """A log that knows the answers to the questions asked, and no others."""

    start: int = 0
    end: int = 0
    offset: int | None = None
    timestamp: int | None = None

    @property
    def resume(self) -> int:
        """Return what was found, or the end."""
        return self.end if self.offset is None else self.offset

    def find_offset(self, _: int, /) -> Bounds:
        return Bounds(self.resume, self.resume)

    def find_timestamp(self, _: int, /) -> Bounds | None:
        return None if self.timestamp is None else Bounds(self.timestamp, self.timestamp)


def _sending(distributor: OffsetDistributor) -> _Mapping:
    """Answer each commit at the source: the function for ``mapInArrow``."""
    return lambda batches: _mapped(batches, lambda row: _send(_Given(*row), distributor), _SENT)


def _planning(committer: OffsetCommitter) -> _Mapping:
    """Answer each commit at the target: the function for ``mapInArrow``."""

    def plan(row: tuple[Any, ...]) -> _Planned:
        return _plan(_Facts(_Sent(*row[:-3]), *row[-3:]), committer, provenance=False)

    return lambda batches: _mapped(batches, plan, TRANSLATION_SCHEMA)


def _mapping(distributor: OffsetDistributor, committer: OffsetCommitter) -> _Mapping:
    """Answer each commit at both, by provenance: the function for ``mapInArrow``."""

    def plan(row: tuple[Any, ...]) -> _Planned:
        return _plan(_Facts(_send(_Given(*row[:-3]), distributor), *row[-3:]), committer, provenance=True)

    return lambda batches: _mapped(batches, plan, TRANSLATION_SCHEMA)


def _send(row: _Given, distributor: OffsetDistributor) -> _Sent:
    commit = GroupCommit(GroupPartition(row.topic_partition, 0, row.group), row.offset, row.metadata or "")
    sent = distributor.translate(commit, _Found(timestamp=row.last_ms))
    if isinstance(sent, Declined):
        return _Sent(*row[:3], *row[4:7], None, None, sent.reason.name)
    return _Sent(*row[:3], *row[4:7], sent.timestamp_epoch_ms, f"{int(sent.flags):x}", None)


def _plan(row: _Facts, committer: OffsetCommitter, *, provenance: bool) -> _Planned:
    sent, commit = row.sent, row.sent[:3]
    if sent.flags is None:
        return _Planned(*commit, None, None, None, sent.declined)
    log = _Found(row.start or 0, row.end or 0, row.found)
    position = GroupPartition(sent.topic_partition, 0, sent.group)
    told = GroupTimestamp(position, sent.timestamp_epoch_ms, CopyFlags(int(sent.flags, 16)))
    group = TargetGroup(bool(sent.target_active), sent.target_committed, sent.target_metadata or "")
    planned = committer.propose(told, group, log, offset=log.resume if provenance else None)
    if isinstance(planned, Declined):
        return _Planned(*commit, told.timestamp_epoch_ms, None, None, planned.reason.name)
    return _Planned(*commit, told.timestamp_epoch_ms, planned.offset, planned.metadata, None)


def _mapped(
    batches: Iterable[pa.RecordBatch], function: Callable[[tuple[Any, ...]], tuple[object, ...]], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Apply a function to every row."""
    arrow = to_arrow_schema(schema)
    for batch in batches:
        if batch.num_rows:
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            columns = zip(*map(function, rows), strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, arrow, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow)
