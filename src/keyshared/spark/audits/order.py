"""A first audit of a delivery log: was every key at one consumer at a time, in order, and was nothing lost?

Two steps, so that a log without faults costs no Python: a native screen leaves out the lanes that cannot break a
promise (`keyshared.spark.audits.screen`), and the history of what is left is judged by the checker of
`keyshared.testing`. The screen never decides: the answer is that of the checker on the whole log.

Each frame is read once: two answers about two reads of a log that grows would contradict each other.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from keyshared.spark.audits.delivery_history import DELIVERY_GUARANTEES, history_of
from keyshared.spark.audits.histories import runs
from keyshared.spark.audits.overtakings import Overtakings
from keyshared.spark.audits.screen import doubtful
from keyshared.spark.replays.schemas import VIOLATION_SCHEMA
from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import Acked, Happening, Published, Settled
from keyshared.testing.judges.checker import Checker

__all__ = ["check_order", "count_by_promise", "judge_batches"]

_BATCH_ROWS: Final = 10_000
_Row: TypeAlias = tuple[str, Happening, bytes | None, int | None]  # topic-partition, what happened, whose, where
_Found: TypeAlias = tuple[str, str, bytes | None, int, int | None, int | None, str]
_VIOLATION: Final = pa.schema(
    [
        ("promise", pa.string()),
        ("topic_partition", pa.string()),
        ("key", pa.binary()),
        ("offset", pa.int64()),
        ("other_offset", pa.int64()),
        ("sequence", pa.int64()),
        ("explanation", pa.string()),
    ]
)


def check_order(deliveries: DataFrame, *, offered: DataFrame | None = None) -> DataFrame:
    """Audit a delivery log against the promises one-holder, key-order, no-loss and fence.

    The verdict is that of ``audit(delivery_history(deliveries, offered=offered), DELIVERY_GUARANTEES)``; lanes that
    cannot break a promise are sorted out first, natively. It does not look at ``outcome``, so explanations call every
    delivery that ended without an ack released, where those of `audit` say nacked or expired.

    Args:
        deliveries: One row for each delivery, with the columns of `DELIVERY_SCHEMA` that say who got what in which
            order: ``topic_partition, offset, key, consumer, attempt, sequence, end_sequence, settled_sequence``. NULL
            is a key that is not there, an end or a settlement that never was, and nothing else may be NULL. More
            columns do no harm.
        offered: What must have been settled by the end of the history: ``topic_partition`` and ``offset``, and ``key``
            if keys are to be compared. What was still outstanding then, or was skipped or dropped without a delivery,
            counts as lost if it is in here. None: no-loss is not judged, because lost messages cannot be told from
            outstanding ones.

    Returns:
        One row for each violation, see `VIOLATION_SCHEMA`; none if all promises were kept. Of the lost messages of a
        key the oldest one is named: the others wait behind it. Lazy, as every frame is.

    Raises:
        ArgumentError: A column is missing or of another type. No job was started. The job fails on a row that cannot be
            used (NULL in a column that must have a value, a delivery that ends before it starts, or settles its message
            before it ends); the error counts such rows and shows one.

    Complexity:
        One shuffle and two sorts, in native code; a topic-partition is worked on by one task. Python sees only lanes
        that are not strictly one delivery after the other, as `audit` sees all of them.

    Example:
        >>> columns = "topic_partition string, offset long, key string, consumer string, attempt int, sequence long, "
        >>> columns += "end_sequence long, settled_sequence long"
        >>> rows = [("p", 0, "k", "ann", 1, 0, 2, 2), ("p", 1, "k", "bob", 1, 1, 3, 3)]
        >>> check_order(spark.createDataFrame(rows, columns)).select("promise", "offset", "other_offset").collect()
        [Row(promise='one-holder', offset=1, other_offset=0)]
    """
    history = history_of(deliveries, offered, only=doubtful, with_outcomes=False)
    return history.mapInArrow(judge_batches, VIOLATION_SCHEMA)


def count_by_promise(violations: DataFrame) -> dict[str, int]:
    """Count violations; runs the job.

    Args:
        violations: What `check_order` has returned.

    Returns:
        A count for each promise that a delivery log can show, 0 included.

    Example:
        >>> count_by_promise(spark.createDataFrame([("fence",)], ["promise"]))
        {'one-holder': 0, 'key-order': 0, 'no-loss': 0, 'fence': 1}
    """
    counts = {row[0]: row[1] for row in violations.groupBy("promise").count().collect()}
    return {str(promise): counts.get(promise, 0) for promise in Promise if promise in DELIVERY_GUARANTEES.promises}


def judge_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Judge histories of delivery logs that arrive as Arrow batches: the function for ``mapInArrow``.

    Args:
        batches: With the columns of `keyshared.spark.audits.delivery_history.history_of`, cut anywhere. Rows of a
            topic-partition stand together, in order.

    Yields:
        Violations, in batches of 10,000.
    """
    rows: list[_Found] = []
    for topic_partition, own in groupby(_rows(batches), key=itemgetter(0)):
        for found in _judged(topic_partition, own):
            rows.append(found)
            if len(rows) == _BATCH_ROWS:
                yield _batch(rows)
                rows.clear()
    if rows:
        yield _batch(rows)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    """Each happening with the key of its message, and where it stands in the log."""
    for batch in batches:
        keys, positions = (batch.column(name).to_pylist() for name in ("x_key", "x_position"))
        numbered = batch.set_column(1, "sequence", pa.array(range(len(batch)), pa.int64()))
        for topic_partition, run in runs([numbered]):
            for number, happening in run:
                yield topic_partition, happening, keys[number], positions[number]


def _judged(topic_partition: str, rows: Iterable[_Row]) -> Iterator[_Found]:
    checker = Checker(DELIVERY_GUARANTEES)
    overtakings: Overtakings[_Found] = Overtakings(DELIVERY_GUARANTEES)
    keys: dict[int, bytes | None] = {}  # of outstanding messages: what proves a fault need not name the key
    for _, happening, key, position in rows:
        offset = getattr(happening, "offset", None)
        if offset is not None:
            keys[offset] = key
        for violation in checker.feed(happening):
            row = _found(topic_partition, violation, keys, position)
            if not overtakings.hold(violation, row):
                yield row
        for sure in overtakings.after(happening):
            yield from sure.rows
        if isinstance(happening, Acked | Settled):
            del keys[happening.offset]
    for violation in checker.finish():
        yield _found(topic_partition, violation, keys, None)
    for sure in overtakings.finish():
        yield from sure.rows


def _found(topic_partition: str, violation: Violation, keys: dict[int, bytes | None], position: int | None) -> _Found:
    """Name the message that is accused: the last one of the proof, unless that one was only published."""
    named = [each for each in violation.happenings if hasattr(each, "offset")]
    accused = next((each for each in reversed(named) if not isinstance(each, Published)), named[-1])
    offset = accused.offset
    key = accused.key if hasattr(accused, "key") else keys.get(offset)
    other = next((each.offset for each in named if each.offset != offset), None)
    return str(violation.promise), topic_partition, key, offset, other, position, violation.explanation


def _batch(rows: list[_Found]) -> pa.RecordBatch:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _VIOLATION, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_VIOLATION)
