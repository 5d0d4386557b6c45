"""Replays of the rows of one Spark partition: plain Python iterators, with all state inside.

The rows of a topic-partition stand next to each other, in offset order; several topic-partitions may follow one
another. Each of them gets a dispatcher and simulated consumers of its own, as in brokers whose subscriptions keep one
dispatcher for each partition. Only outstanding messages, keys and consumers are kept in memory, never a
topic-partition's rows.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from keyshared.errors import KeySharedError
from keyshared.hashing.named import Key
from keyshared.simulate.group import Arrival, Group
from keyshared.simulate.history import Event, Row
from keyshared.simulate.simulation import Simulation
from keyshared.simulate.summary import DEFAULT_HOTTEST, DEFAULT_POINTS, Summary, Tally
from keyshared.spark.frames.pieces import in_one_piece

__all__ = [
    "ENDS",
    "OPEN",
    "SETTLING",
    "DeliveryRow",
    "Message",
    "MessageRow",
    "SummaryRow",
    "arrivals_of",
    "outcome_of",
    "replay_partition",
]

OPEN: Final = "open"
"""The outcome of a delivery that has not ended when the history does."""

ENDS: Final = frozenset({Event.NACKED, Event.REJECTED, Event.TIMED_OUT, Event.RELEASED})
"""What ends a delivery and leaves its message outstanding."""

SETTLING: Final = frozenset({Event.SETTLED, Event.DEAD_LETTERED, Event.DROPPED, Event.SKIPPED})
"""What settles a message without an ack of its current delivery."""


class Message(NamedTuple):
    """One row of a log; any tuple with these fields in this order will do, the last one may be left out.

    Attributes:
        topic_partition: Where it is from.
        offset: Its offset; offsets of a topic-partition grow strictly.
        key: Its key, or None.
        at_ms: When it arrives; matters to `Pace.ARRIVALS` only.
        service_ms: How long it takes to work on, for `PerMessage`; None if it does not say.
        not_before_ms: Before when it is not delivered, on the same clock; its key waits behind it. None: at once.
    """

    topic_partition: str
    offset: int
    key: Key
    at_ms: int = 0
    service_ms: int | None = None
    not_before_ms: int | None = None


MessageRow: TypeAlias = tuple[str, int, Key, int, int | None] | tuple[str, int, Key, int, int | None, int | None]


class DeliveryRow(NamedTuple):
    """One delivery of a message: the columns of `DELIVERY_SCHEMA`, in its order.

    Attributes:
        topic_partition: Where the message is from.
        offset: The message.
        key: Its key as bytes, or None.
        consumer: Who had it.
        attempt: Which delivery of it.
        delivered_ms: When it was delivered.
        ended_ms: When that ended, or None if it never did.
        outcome: How it ended; "open" if it never did.
        wait_ms: How long the message had been ready for it.
        sequence: Position of the delivery in the history of the topic-partition.
        end_sequence: Position of its end, or None.
        settled_sequence: Position at which the message was settled, in the row of its last delivery, or of the last one
            before it came back from the dead-letter store; else None.
    """

    topic_partition: str
    offset: int
    key: bytes | None
    consumer: str
    attempt: int
    delivered_ms: int
    ended_ms: int | None
    outcome: str
    wait_ms: int
    sequence: int
    end_sequence: int | None
    settled_sequence: int | None


class SummaryRow(NamedTuple):
    """The figures of one topic-partition, and how it ended: what becomes a row of `SUMMARY_SCHEMA`.

    Attributes:
        topic_partition: Which.
        stop: Why the simulation ended, see `Stop`.
        outstanding: Messages that were offered and never settled.
        summary: The figures.
    """

    topic_partition: str
    stop: str
    outstanding: int
    summary: Summary


def replay_partition(
    rows: Iterable[MessageRow],
    plan: Group,
    *,
    points: int = DEFAULT_POINTS,
    hottest: int = DEFAULT_HOTTEST,
) -> Iterator[DeliveryRow | SummaryRow]:
    """Replay topic-partitions one after the other: the function for ``rdd.mapPartitions``.

    Args:
        rows: Messages, see `Message`; read lazily. Those of a topic-partition stand together, in offset order.
        plan: The consumers and what happens to them: the same for every topic-partition. It is not changed.
        points: How many points of the backlog over time are wanted, at most.
        hottest: How many of the keys with most messages are wanted.

    Yields:
        Of each topic-partition, one `DeliveryRow` for each attempt, as soon as it is known whether it settled its
        message, and after them one `SummaryRow`.

    Raises:
        ArgumentError: Rows of a topic-partition do not stand together; or see `Simulation`.
        MisuseError: Offsets do not grow; see `Simulation`. A note says in which topic-partition.

    Complexity:
        O(log n) for each thing that happens, n messages outstanding at once. Memory O(outstanding messages + keys) of
        one topic-partition at a time.

    Example:
        >>> from keyshared.simulate import SimulatedConsumer, Fixed
        >>> plan = Group(consumers=[SimulatedConsumer("a", Fixed(10))])
        >>> log = [Message("p", 0, "k", 100), Message("p", 1, "k", 104), Message("q", 0, None, 100)]
        >>> for row in replay_partition(log, plan):
        ...     print(row.topic_partition, row.offset if isinstance(row, DeliveryRow) else row.stop)
        p 0
        p 1
        p at_rest
        q 0
        q at_rest
    """
    for topic_partition, arrivals in arrivals_of(rows):
        simulation = Simulation(plan, arrivals)
        tally = Tally(points=points, hottest=hottest)
        try:
            yield from _deliveries(topic_partition, simulation, tally)
        except KeySharedError as error:
            error.add_note(f"in topic_partition {topic_partition!r}")
            raise
        state = simulation.state
        yield SummaryRow(topic_partition, str(state.stop), state.outstanding, tally.summary())


def arrivals_of(rows: Iterable[MessageRow]) -> Iterator[tuple[str, Iterator[Arrival]]]:
    """Cut the rows of a Spark partition into topic-partitions.

    Args:
        rows: As in `replay_partition`.

    Yields:
        Each topic-partition, and its messages; what is not read of them when the next one is asked for is skipped.

    Raises:
        ArgumentError: Rows of a topic-partition do not stand together.
    """
    for topic_partition, group in in_one_piece(rows, "offset"):
        yield topic_partition, (Arrival(*row[1:]) for row in group)


def outcome_of(end: Row) -> str:
    """Return how a delivery has ended.

    Args:
        end: The row of the history that tells it.
    """
    return str(end.reason if end.event is Event.RELEASED else end.event.value)


class _Open(NamedTuple):
    """A delivery of an unsettled message, and its end if there was one."""

    start: Row
    end: Row | None


def _deliveries(topic_partition: str, history: Iterable[Row], tally: Tally) -> Iterator[DeliveryRow]:
    """Fold a history into deliveries: each is known when its message is settled, or delivered once more."""
    last: dict[int, _Open] = {}  # of outstanding messages
    for row in history:
        tally.add(row)
        event = row.event
        if event is Event.DELIVERED:
            before = last.get(row.offset)  # type: ignore[arg-type]  # a delivery names its message
            if before is not None:
                yield _row(topic_partition, before, None)
            last[row.offset] = _Open(row, None)  # type: ignore[index]  # as above
        elif event is Event.ACKED:
            start = last.pop(row.offset).start  # type: ignore[arg-type]  # as above
            yield _row(topic_partition, _Open(start, row), row.sequence)
        elif event in ENDS:
            last[row.offset] = _Open(last[row.offset].start, row)  # type: ignore[index]  # as above
        elif event in SETTLING:
            # what was never delivered has no row: skipped, or the dead letter of a quarantined key
            settled = last.pop(row.offset, None)  # type: ignore[arg-type]  # as above
            if settled is not None:
                yield _row(topic_partition, settled, row.sequence)
    for left in last.values():
        yield _row(topic_partition, left, None)


def _row(topic_partition: str, delivery: _Open, settled_sequence: int | None) -> DeliveryRow:
    sequence, at_ms, _, offset, key, consumer, attempt, _, available_ms, *_ = delivery.start
    ended_ms, outcome, end_sequence = None, OPEN, None
    if delivery.end is not None:
        end_sequence, ended_ms, *_ = delivery.end
        outcome = outcome_of(delivery.end)
    wait_ms = at_ms - available_ms  # type: ignore[operator]  # a delivery says since when it was possible
    return DeliveryRow(
        topic_partition,
        offset,  # type: ignore[arg-type]  # and names its message,
        key,
        consumer,  # type: ignore[arg-type]  # its consumer
        attempt,  # type: ignore[arg-type]  # and which one it is
        at_ms,
        ended_ms,
        outcome,
        wait_ms,
        sequence,
        end_sequence,
        settled_sequence,
    )
