"""Translation of consumer groups' offsets between two clusters, for many groups and large logs at once.

Spark looks up what the logs know: the record that a group processed last, the first one that is young enough, the first
one that a provenance vector does not cover. Each look-up is one window over log and questions together: the questions
are put among the records, and take what precedes them. `OffsetDistributor` and `OffsetCommitter` themselves decide
what follows from that, row by row of the commits: no rule is written twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

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
from keyshared.spark.rows import (
    TOPIC_PARTITION,
    WHOLE,
    batches_of,
    check_columns,
    names_of,
    never_null,
    parsed,
    time_ms,
)

__all__ = ["translate_offsets"]

_Row: TypeAlias = Mapping[str, Any]
_Answer: TypeAlias = dict[str, Any]

_ORIGIN: Final = {"origin": ("string",), "origin_offset": WHOLE}
_BOUNDS: Final = {"start": WHOLE, "end": WHOLE}
_STANDING: Final = {
    "metadata": "string",
    "target_active": "boolean",
    "target_committed": "bigint",
    "target_metadata": "string",
}
"""The columns of a commit that may be missing."""

_SENT: Final = "timestamp_epoch_ms bigint, sent_flags string, declined string"
_PLANNED: Final = "timestamp_epoch_ms bigint, target_offset bigint, metadata string, declined string"
_KNOWN: Final = ("last_ms", "found", "start", "end")
_SOURCE_SIDE: Final = 0
_TARGET_SIDE: Final = 1
_ASKED_SIDE: Final = 2


def translate_offsets(
    commits: DataFrame,
    source_log: DataFrame,
    target_log: DataFrame,
    *,
    topic_partition: str | Sequence[str] = TOPIC_PARTITION,
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
        commits: ``group`` (string), the columns of ``topic_partition``, and ``offset`` (the *next* to read). If they
            are there, also ``metadata`` (string) of the commit, and the state of the group on the target:
            ``target_active`` (boolean), ``target_committed`` (bigint) and ``target_metadata`` (string). NULL counts as:
            no metadata, not active, no commit.
        source_log: The records there: the columns of ``topic_partition``, ``offset`` and ``timestamp`` (a timestamp, or
            whole milliseconds since 1970); and with ``provenance``, ``origin`` (string) and ``origin_offset``.
        target_log: The same columns of the target.
        topic_partition: One or several columns that name a topic-partition.
        margin_ms: How much older than the last processed record an unprocessed one may be. With ``provenance`` it only
            counts for the clusters to which the timestamp in the envelope goes on.
        provenance: Resume at the first record that the group has not processed, and ignore timestamps.
        level: Level of the distributor in the tree.
        keep_foreign: See `OffsetCommitter`.
        target_bounds: The columns of ``topic_partition``, ``start`` and ``end`` of the target's logs, for partitions in
            which there is no record: a log of which nothing is known begins and ends at 0.

    Returns:
        One row for each commit: ``group``, the columns of ``topic_partition``, ``offset``; ``timestamp_epoch_ms``, what
        was sent (NULL: the beginning, or nothing); ``target_offset`` and ``metadata`` of the commit to make on the
        target, or in ``declined`` why there is none, the name of a `DeclineReason`. Lazy. The job fails on a record of
        which a column that is used is NULL, and on a value that is none (a negative offset, an empty name).

    Raises:
        ArgumentError: A column is missing or of another type; or ``margin_ms`` or ``level`` are none.

    Complexity:
        By timestamp each log is sorted once within its topic-partitions, and the commits with it; by provenance both
        logs together, three times, and there commits at one offset are looked up once, however many groups have it. A
        topic-partition is worked on by one task. Python sees the commits and no record.

    Example:
        >>> log = "topic string, partition int, offset long, timestamp long, origin string, origin_offset long"
        >>> here = spark.createDataFrame([("t", 0, 25, 900, "eu", 0), ("t", 0, 26, 950, "eu", 1)], log)
        >>> there = spark.createDataFrame([("t", 0, 0, 900, "eu", 0), ("t", 0, 1, 950, "eu", 1)], log)
        >>> columns = "group string, topic string, partition int, offset long"
        >>> commits = spark.createDataFrame([("g", "t", 0, 26)], columns)
        >>> translated = translate_offsets(commits, here, there, provenance=True)
        >>> translated.select("offset", "target_offset", "declined").collect()
        [Row(offset=26, target_offset=1, declined=None)]
    """
    distributor = OffsetDistributor(level=level, margin_ms=margin_ms)
    committer = OffsetCommitter(keep_foreign=keep_foreign)
    check_bool("provenance", provenance)
    names = names_of(topic_partition)
    given = _commits(commits, names)
    source, target = (_log(log, names, provenance=provenance) for log in (source_log, target_log))
    bounds = None if target_bounds is None else _bounds(target_bounds, names)
    plan = partial(_plan, committer=committer, provenance=provenance)
    send = partial(_send, distributor=distributor)
    if provenance:
        planned = _mapped(_uncovered(given, source, target, bounds), lambda row: plan(row | send(row)), _PLANNED)
    else:
        sent = _mapped(_last_timestamps(given, source), send, _SENT)
        planned = _mapped(_young_enough(sent, target, bounds), plan, _PLANNED)
    return planned.select("group", "topic_partition.*", "offset", *_names(_PLANNED))


def _commits(commits: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the commits with every optional column."""
    types = dict(commits.dtypes)
    optional = {name: WHOLE if kind == "bigint" else (kind,) for name, kind in _STANDING.items() if name in types}
    check_columns(commits, {"group": ("string",), "offset": WHOLE, **optional, **_kinds(names)})
    standing = [
        (F.col(name) if name in types else F.lit(None)).cast(kind).alias(name) for name, kind in _STANDING.items()
    ]
    return commits.select(_complete("group", names), _place(names), _complete("offset", names, "bigint"), *standing)


def _log(log: DataFrame, names: Sequence[str], *, provenance: bool) -> DataFrame:
    """Return the records; one without a place fails the job, because it would be skipped in silence."""
    check_columns(log, {"offset": WHOLE, **_kinds(names), **(_ORIGIN if provenance else {})})
    origin = [_complete("origin", names), _complete("origin_offset", names, "bigint")] if provenance else []
    at_ms = never_null("timestamp", time_ms(log, "timestamp"), place=[*names, "offset"])
    return log.select(_place(names), _complete("offset", names, "bigint"), at_ms, *origin)


def _bounds(bounds: DataFrame, names: Sequence[str]) -> DataFrame:
    check_columns(bounds, {**_BOUNDS, **_kinds(names)})
    ends = [never_null(name, F.col(name).cast("bigint"), place=names) for name in _BOUNDS]
    return bounds.select(_place(names), *ends)


def _kinds(names: Sequence[str]) -> dict[str, Sequence[str]]:
    return dict.fromkeys(names, ("string", *WHOLE))


def _place(names: Sequence[str]) -> Column:
    return F.struct(*map(never_null, names)).alias("topic_partition")


def _complete(name: str, names: Sequence[str], kind: str | None = None) -> Column:
    value = F.col(name) if kind is None else F.col(name).cast(kind)
    return never_null(name, value, place=list(dict.fromkeys([*names, "offset"])))


def _names(schema: str) -> list[str]:
    return [field.split()[0] for field in schema.split(", ")]


# what the logs know: questions among the records


def _last_timestamps(given: DataFrame, log: DataFrame) -> DataFrame:
    """Return each commit with ``last_ms``: the timestamp of the last record below it, else of the first record."""
    # in a struct, since the columns of a commit would make every record of the log as much longer
    questions = given.select("topic_partition", "offset", F.struct("*").alias("asked"))
    union = log.select("topic_partition", "offset", "timestamp").unionByName(questions, allowMissingColumns=True)
    # at one offset the question comes first: a commit is the next offset
    order = Window.partitionBy("topic_partition").orderBy("offset", F.col("asked").isNull())
    below = order.rowsBetween(Window.unboundedPreceding, 0)
    everywhere = order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    last = F.last("timestamp", ignorenulls=True).over(below)
    first = F.first("timestamp", ignorenulls=True).over(everywhere)
    answers = union.withColumn("last_ms", F.coalesce(last, first)).filter("asked is not null")
    return answers.select("asked.*", "last_ms")


def _young_enough(sent: DataFrame, log: DataFrame, bounds: DataFrame | None) -> DataFrame:
    """Return each question with ``found``: the lowest offset of a record that is not older than what was sent.

    NULL if there is none, or if nothing was sent; and with the ``start`` and ``end`` of the log.
    """
    # in a struct, since the columns of a question would make every record of the log as much longer
    asked = sent.select("topic_partition", F.col("timestamp_epoch_ms").alias("timestamp"), F.struct("*").alias("asked"))
    union = _with_bounds(log.select("topic_partition", "timestamp", "offset"), bounds)
    union = union.unionByName(asked, allowMissingColumns=True)
    # from the youngest down, and of equal ones the question last: rows before it are not older
    order = Window.partitionBy("topic_partition").orderBy(F.desc("timestamp"), F.col("asked").isNotNull())
    lowest = F.min("offset").over(order.rowsBetween(Window.unboundedPreceding, 0))
    known = union.withColumns({"found": F.when(F.col("timestamp").isNotNull(), lowest), **_edges(order)})
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
    times = F.when(of_source, F.col("timestamp"))
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
    # from the greatest down, and of equal ones the question last: rows before it are not below it
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


def _send(row: _Row, *, distributor: OffsetDistributor) -> _Answer:
    """Answer a commit at the source."""
    commit = GroupCommit(_position(row), row["offset"], row["metadata"] or "")
    sent = distributor.translate(commit, _Found(timestamp=row["last_ms"]))
    if isinstance(sent, Declined):
        return {"timestamp_epoch_ms": None, "sent_flags": None, "declined": sent.reason.name}
    return {"timestamp_epoch_ms": sent.timestamp_epoch_ms, "sent_flags": f"{int(sent.flags):x}", "declined": None}


def _plan(row: _Row, *, committer: OffsetCommitter, provenance: bool) -> _Answer:
    """Answer a commit at the target."""
    sent_ms, flags, declined = row["timestamp_epoch_ms"], row["sent_flags"], row["declined"]
    planned: _Answer = {"timestamp_epoch_ms": None, "target_offset": None, "metadata": None, "declined": declined}
    if flags is None:
        return planned
    log = _Found(row["start"] or 0, row["end"] or 0, row["found"])
    told = GroupTimestamp(_position(row), sent_ms, CopyFlags(int(flags, 16)))
    group = TargetGroup(bool(row["target_active"]), row["target_committed"], row["target_metadata"] or "")
    answer = committer.propose(told, group, log, offset=log.resume if provenance else None)
    if isinstance(answer, Declined):
        return planned | {"timestamp_epoch_ms": sent_ms, "declined": answer.reason.name}
    return planned | {
        "timestamp_epoch_ms": sent_ms,
        "target_offset": answer.offset,
        "metadata": answer.metadata,
    }


def _position(row: _Row) -> GroupPartition:
    return GroupPartition("-".join(map(str, row["topic_partition"].values())), 0, row["group"])


def _mapped(df: DataFrame, function: Callable[[_Answer], _Answer], schema: str) -> DataFrame:
    """Apply a function to every row, and put the columns that it returns behind those of the row."""
    answers = parsed(df, schema)
    own = [field for field in df.schema.fields if field.name not in {answer.name for answer in answers}]
    returned = StructType([*own, *answers])
    arrow = to_arrow_schema(returned)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        return batches_of((tuple((row | function(row)).get(name) for name in arrow.names) for row in rows), arrow)

    return df.mapInArrow(run, returned)
