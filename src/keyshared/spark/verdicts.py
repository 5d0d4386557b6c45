"""Audit: the promises that a log of deliveries, or a history, breaks, with proofs.

A promise such as one-holder is judged on all deliveries of a topic-partition in order. So each topic-partition is
judged in one piece, by the checker of `keyshared.testing`, while its rows stream by; topic-partitions are judged side
by side. `delivery_events` and `judge_events` hold all contact with the kit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared._checks import check_int, check_kind
from keyshared.errors import KeySharedError
from keyshared.spark.rows import Rows, by_partition, check_columns, names_of
from keyshared.testing import Checker, Claims, Promise, Violation
from keyshared.testing.errors import HistoryError
from keyshared.testing.files import not_judged
from keyshared.testing.history import (
    Acked,
    AtRest,
    Connected,
    DeadLettered,
    Delivered,
    Dropped,
    Event,
    Expired,
    Nacked,
    Published,
    Redriven,
    Released,
    Settled,
    SettledBy,
    Skipped,
)
from keyshared.testing.rows import COLUMNS, from_rows

__all__ = ["AUDIT", "DELIVERY_CLAIMS", "Verdict", "audit", "delivery_events", "judge_events"]

AUDIT: Final = (
    "promise string, events bigint, violations bigint, unjudged string, "
    "proofs array<struct<offset: bigint, key: binary, explanation: string, excerpt: string>>"
)
"""A row for each topic-partition and claimed promise, after the columns of the topic-partition."""

DELIVERY_CLAIMS: Final = Claims(
    promises={"one-holder", "key-order", "no-loss", "fence"}, may_drop=True, may_skip=True, may_dead_letter=True
)
"""What a log of deliveries can show: it has no cursors, no limits, and no connected consumers."""

DEFAULT_PROOFS: Final = 100

_DELIVERY_COLUMNS: Final = {
    "offset": ("bigint", "int"),
    "key": ("string", "binary"),
    "consumer": ("string",),
    "attempt": ("bigint", "int"),
    "outcome": ("string",),
    "sequence": ("bigint", "int"),
    "end_sequence": ("bigint", "int"),
}
_PUBLISHED: Final = "published"
_DELIVERED: Final = "delivered"
_DEAD_LETTERED: Final = "dead_lettered"
_LAST: Final = (1 << 63) - 1  # a place after all others
_UNFINISHED: Final = frozenset({"open", "outstanding"})


class Verdict(NamedTuple):
    """The verdict about one promise in one topic-partition: a row of `AUDIT`.

    Attributes:
        promise: Its id.
        events: The number of events that were judged.
        violations: How often it was broken.
        unjudged: Why it could not be judged, or not in full; None if it was.
        proofs: The first violations: offset and key of a message that the proof names, an explanation in one sentence,
            and the events that prove it, one in a line.
    """

    promise: str
    events: int
    violations: int
    unjudged: str | None
    proofs: list[tuple[int | None, bytes | None, str, str]]


def audit(
    df: DataFrame,
    claims: Claims | None = None,
    *,
    topic_partition: str | Sequence[str] = ("topic", "partition"),
    most: int = DEFAULT_PROOFS,
    tasks: int | None = None,
) -> DataFrame:
    """Judge the deliveries, or the history, of each topic-partition. The workers need keyshared, but no Hypothesis.

    Args:
        df: Either deliveries with the columns ``offset, key, consumer, attempt, outcome, sequence, end_sequence``, as
            `simulate` returns them. ``sequence`` and ``end_sequence`` order the starts and the ends of deliveries in a
            topic-partition; at one place ends come first. A row without a consumer is a message: its outcome and
            end_sequence say how it ended without an ack, and without an outcome it has not ended. Rows with the outcome
            "open" or "outstanding" say that the log stops too early for no-loss to be judged.
            Or a history: a row for each event, with the columns of ``docs/history.md`` and ``sequence``, its order.
        claims: The claims. By default `DELIVERY_CLAIMS` for deliveries, and every promise that a history can show
            for a history.
        topic_partition: The column, or the columns, that name the topic-partition. A subscription of several has a
            column of its own here, and so has ``consumer_group``.
        most: How many violations of each promise are in ``proofs``, the first ones.
        tasks: Number of Spark partitions; by default ``spark.sql.shuffle.partitions``.

    Returns:
        The columns of the topic-partition and those of `AUDIT`: a row for each claimed promise. A promise that is kept
        has 0 ``violations`` and no ``unjudged``. ``selectExpr("promise", "inline(proofs)")`` makes rows of violations.

    Raises:
        ArgumentError: A column is missing or of another type, or ``claims`` or ``most`` is invalid. No job was
            started. While it runs, a `RowError` names topic-partition and offset of a row that contradicts the history.

    Complexity:
        Two shuffles of the rows. A worker's memory is that of a checker: O(outstanding messages).

    Example:
        >>> columns = "shard string, offset long, key string, consumer string, attempt int, outcome string, "
        >>> columns += "sequence long, end_sequence long"
        >>> rows = [("p", 0, "k", "ann", 1, "acked", 0, 2), ("p", 1, "k", "bob", 1, "acked", 1, 3)]
        >>> verdicts = audit(spark.createDataFrame(rows, columns), topic_partition="shard")
        >>> for row in verdicts.filter("violations > 0").selectExpr("promise", "inline(proofs)").collect():
        ...     print(row.promise, row.offset, row.explanation)
        one-holder 1 offset 1 went to 'bob' while offset 0 of its key was open at 'ann'
    """
    keys = names_of(topic_partition)
    check_int("most", most, 0)
    is_history = "sequence" in df.columns and "end_sequence" not in df.columns
    claims = claims if claims is not None else Claims() if is_history else DELIVERY_CLAIMS
    check_kind("claims", claims, Claims)
    events_of: Callable[[Rows], Iterator[Event]]
    if is_history:
        columns = ["sequence", *(column.name for column in COLUMNS if column.name in df.columns)]
        rows, order, events_of = df, ["sequence"], partial(_history_events, columns)
    else:
        check_columns(df, _DELIVERY_COLUMNS)
        columns = ["event", "offset", "key", "consumer", "attempt"]
        rows, order, events_of = _events(df, keys), ["place", "rank", "offset"], delivery_events

    def work(rows: Rows) -> Iterator[Verdict]:
        try:
            yield from judge_events(events_of(rows), claims, most)
        except HistoryError as error:  # of the kit, which shares no errors with the library
            raise KeySharedError(str(error)) from None

    return by_partition(rows, order, columns, AUDIT, work, topic_partition=keys, tasks=tasks)


def _history_events(columns: Sequence[str], rows: Rows) -> Iterator[Event]:
    """Yield the events of the rows of a history; the first of their columns orders them."""
    return from_rows(_named(columns, rows))


def _named(columns: Sequence[str], rows: Rows) -> Iterator[dict[str, object]]:
    last: int | None = None
    for number, (sequence, *values) in enumerate(rows):
        if sequence is None or sequence == last:
            raise HistoryError(number, "row", "sequence", sequence, "be there, and differ from that of other rows")
        last = sequence
        yield {name: value for name, value in zip(columns[1:], values, strict=True) if value is not None}


def _events(df: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Make a row for each event of a delivery: its message was published, it was delivered, it ended.

    A log of deliveries does not say when a message was published. So the message is published just before it or a newer
    one is delivered first, the latest possible place: then the checker holds the outstanding messages, not the log.
    """
    newer = Window.partitionBy(*keys).orderBy(F.desc("offset"))
    started = F.when(F.col("sequence").isNotNull(), F.col("sequence")).otherwise(
        F.raise_error(F.lit("keyshared: the column sequence must not be NULL in a row with a consumer"))
    )
    published = F.coalesce(F.min("sequence").over(newer), F.lit(_LAST))
    ends = F.when(F.col("outcome").isin(*_UNFINISHED), F.lit(_LAST)).otherwise(F.col("end_sequence"))
    # at one place ends come before the next message and its delivery
    events = F.array(
        _event(published, 1, F.lit(_PUBLISHED)),
        F.when(F.col("consumer").isNotNull(), _event(started, 2, F.lit(_DELIVERED))),
        F.when(ends.isNotNull(), _event(ends, 0, F.col("outcome"))),
    )
    columns = [*keys, "offset", "key", "consumer", "attempt"]
    return (
        df.withColumns({"key": F.col("key").cast("binary"), "_events": events})
        .select(*columns, F.explode(F.array_compact("_events")).alias("_event"))
        .select(*columns, "_event.*")
    )


def _event(place: Column, rank: int, event: Column) -> Column:
    return F.struct(place.cast("bigint").alias("place"), F.lit(rank).alias("rank"), event.alias("event"))


def delivery_events(rows: Iterable[tuple[Any, ...]]) -> Iterator[Event]:
    """Yield the history of one topic-partition from what happened to its deliveries.

    Args:
        rows: In order: "published", "delivered" or an outcome of `simulate`; offset, key, consumer and attempt. A
            message may be published several times, of which only the first counts.

    Yields:
        Events of the kit. If nothing is open or outstanding, the history ends at rest, with a consumer that would take
        any message.

    Example:
        >>> for event in delivery_events([("published", 0, None, None, None), ("dropped", 0, None, None, None)]):
        ...     print(event)
        Published(offset=0, key=None, until_ms=None, at_ms=None)
        Dropped(offset=0, reason=None, at_ms=None)
        Connected(consumer='(any)', limit=None, at_ms=None)
        AtRest(at_ms=None)
    """
    published: int | None = None
    dead_letters: set[int] = set()
    is_over = True
    for what, offset, key, consumer, attempt in rows:
        if what == _PUBLISHED:
            if published is None or offset > published:
                published = offset
                yield Published(offset=offset, key=key)
        elif what in _UNFINISHED:
            is_over = False
        elif consumer is None:
            if what == _DEAD_LETTERED:
                dead_letters.add(offset)
            yield _MESSAGE_ENDS.get(what, _settled)(offset=offset)
        elif what == _DELIVERED:
            if offset in dead_letters:
                dead_letters.remove(offset)
                yield Redriven(offset=offset)
            yield Delivered(offset=offset, key=key, consumer=consumer, attempt=attempt)
        else:
            yield _ended(what, offset, consumer, attempt)
    if is_over:
        yield Connected(consumer="(any)")
        yield AtRest()


def _ended(outcome: str, offset: int, consumer: str, attempt: int | None) -> Event:
    """Return how a delivery ended."""
    if outcome == "acked":
        return Acked(offset=offset, consumer=consumer, attempt=attempt, counted=True)
    if outcome in {"nacked", "rejected"}:
        return Nacked(offset=offset, consumer=consumer, attempt=attempt, counted=True)
    if outcome == "timed_out":
        return Expired(offset=offset, consumer=consumer, attempt=attempt)
    return Released(offset=offset, consumer=consumer, attempt=attempt, reason=outcome)


def _settled(*, offset: int) -> Event:
    return Settled(offset=offset, reason=SettledBy.OPERATOR)


_MESSAGE_ENDS: Final[dict[str, Callable[..., Event]]] = {
    _DEAD_LETTERED: DeadLettered,
    "dropped": Dropped,
    "skipped": Skipped,
}
"""How a message ends that no delivery acked, by its outcome; of a late ack, the log does not say whose it was."""


def judge_events(events: Iterable[Event], claims: Claims, most: int = DEFAULT_PROOFS) -> Iterator[Verdict]:
    """Judge one history; the work of `audit`, for ``rdd.mapPartitions`` and without Spark.

    Args:
        events: The history, read lazily.
        claims: The claims.
        most: How many violations of each promise are proved.

    Yields:
        A verdict for each claimed promise, when the history is over, in the order of their ids.

    Raises:
        HistoryError: The history contradicts itself.

    Example:
        >>> from keyshared.testing.history import Committed, Published
        >>> history = [Published(offset=0, key=b"k"), Committed(resume_offset=1)]
        >>> [verdict] = judge_events(history, Claims(promises={"safe-cursor"}))
        >>> verdict.violations, verdict.proofs[0][2]
        (1, 'cursor 1 passed outstanding offset 0')
    """
    checker = Checker(claims)
    number = count()
    # the zip stops at the events, so the next number is how many there were
    feed = (event for event, _ in zip(events, number, strict=False))
    claimed = sorted(map(str, claims.promises))
    violations = dict.fromkeys(claimed, 0)
    proofs: dict[str, list[Violation]] = {promise: [] for promise in claimed}
    overtaken: Counter[tuple[int | None, int]] = Counter()  # by the message, and where its history begins
    lost: set[tuple[int | None, int]] = set()
    for violation in checker.violations(feed):
        promise, message = str(violation.promise), (violation.offset, violation.proof[0])
        violations[promise] += 1
        if violation.promise is Promise.KEY_ORDER:
            overtaken[message] += 1
        elif violation.promise is Promise.NO_LOSS:
            lost.add(message)
        if len(proofs[promise]) < most:
            proofs[promise].append(violation)
    # of a message that is lost, only the loss is told, as `check_history` does
    if Promise.KEY_ORDER in claims.promises:
        violations[Promise.KEY_ORDER] -= sum(overtaken[message] for message in lost)
        kept = [each for each in proofs[Promise.KEY_ORDER] if (each.offset, each.proof[0]) not in lost]
        proofs[Promise.KEY_ORDER] = kept
    unjudged = {str(each.promise): each.reason for each in checker.unjudged()}
    unclear = not_judged(checker.unjudged_messages) if checker.unjudged_messages else None
    events_read = next(number)
    for promise in claimed:
        proved = list(map(_proof, proofs[promise]))
        yield Verdict(promise, events_read, violations[promise], unjudged.get(promise, unclear), proved)


def _proof(violation: Violation) -> tuple[int | None, bytes | None, str, str]:
    """Return what a verdict tells of a violation."""
    offsets = [each for each in (getattr(event, "offset", None) for event in violation.events) if each is not None]
    keys = [each for each in (getattr(event, "key", None) for event in violation.events) if each is not None]
    offset = violation.offset if violation.offset is not None else offsets[-1] if offsets else None
    return offset, keys[-1] if keys else None, violation.explanation, violation.excerpt
