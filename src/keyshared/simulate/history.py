"""What happened in a simulated subscription: rows in the order of happening, and the deliveries that they tell of."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from keyshared._checks import checked_kinds

__all__ = ["Event", "Row", "SimulatedDelivery", "deliveries"]


class Event(StrEnum):
    """What a row of a history tells."""

    OFFERED = "offered"
    DELIVERED = "delivered"
    ACKED = "acked"
    NACKED = "nacked"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"  # no answer came in time
    RELEASED = "released"  # the delivery was ended for another reason: ``released`` says that it was postponed
    IGNORED = "ignored"  # an ack that came too late to count at once
    IGNORED_NACK = "ignored_nack"  # a nack or a reject that came too late to count
    IGNORED_CALL = "ignored_call"  # any other call that changed nothing
    # By a late ack: of that consumer and attempt, or if these are None by one that was ignored before.
    SETTLED = "settled"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    DEAD_LETTERING = "dead_lettering"  # its dead letter is being written
    DEAD_LETTERED = "dead_lettered"  # and is there now: the message is settled
    REDRIVEN = "redriven"  # a dead letter is outstanding again; without an offset nothing of the key came back
    ARCHIVED = "archived"  # the dead letter is there, and the message stays blocked
    DROPPED = "dropped"
    SKIPPED = "skipped"
    SPILLED = "spilled"
    LOADING = "loading"
    LOADED = "loaded"
    DONE = "done"  # settled, however it was: ``reason`` says how. With ``tell_settled`` only
    KEY_BEGUN = "key_begun"  # ``attempt`` is the number of the session
    KEY_ENDING = "key_ending"
    KEY_ENDED = "key_ended"
    CURSOR = "cursor"  # the safe cursor is at ``offset``
    PAUSED = "paused"  # a message could not be offered: there was no room
    RESUMED = "resumed"
    JOINED = "joined"
    LEFT = "left"
    INACTIVE = "inactive"
    ACTIVE = "active"  # back from inactive, in time
    EVICTED = "evicted"
    CHANGED = "changed"  # a consumer's limit, weight or service time


class Row(NamedTuple):
    """One thing that happened. Whatever a field does not apply to has None there.

    Attributes:
        sequence: Number of the row, from 0, without gaps.
        at_ms: When, on the virtual clock.
        event: What.
        offset: The message; with `Event.CURSOR` the safe cursor.
        key: Its key.
        consumer: Who.
        attempt: Which delivery.
        failures: How often the message has failed, this time included.
        available_ms: Since when the message is ready for delivery, or from when it will be. Of an offer: its arrival,
            or the later instant before which it is not delivered.
        service_ms: How long the consumer worked on what it answers here.
        reason: Why, or what exactly; of a failure, a dead letter and a blocked message what the consumer said.
        moved_keys: How many of the keys seen so far have another owner now. Of several evictions in one instant the
            first counts for all of them.
    """

    sequence: int
    at_ms: int
    event: Event
    offset: int | None = None
    key: bytes | None = None
    consumer: str | None = None
    attempt: int | None = None
    failures: int | None = None
    available_ms: int | None = None
    service_ms: int | None = None
    reason: str | None = None
    moved_keys: int | None = None


class SimulatedDelivery(NamedTuple):
    """One attempt at one message, from its delivery to whatever ended it.

    Attributes:
        offset: The message.
        key: Its key.
        consumer: Who had it.
        attempt: Which delivery of it.
        available_ms: Since when it could have been delivered: its arrival, or the end of a wait.
        delivered_ms: When it was delivered.
        ended_ms: When that ended, or None if it never did.
        outcome: How it ended: "acked", "nacked", "rejected", "timed_out", "released" if it was postponed, or why else
            it was released ("evicted", "removed", "session_lost", "drain_timeout", "batch_broken"); None if it never
            did.
        wait_ms: How long it waited to be delivered.
        sequence: The row that tells of its delivery.
        end_sequence: The row that tells of its end, or None.
    """

    offset: int
    key: bytes | None
    consumer: str
    attempt: int
    available_ms: int
    delivered_ms: int
    ended_ms: int | None
    outcome: str | None
    wait_ms: int
    sequence: int
    end_sequence: int | None


def deliveries(history: Iterable[Row]) -> Iterator[SimulatedDelivery]:
    """Fold a history into one row for each delivery.

    Args:
        history: The rows in their order; read lazily.

    Yields:
        Deliveries as they end; those that never end follow in the order in which they were delivered.

    Complexity:
        O(1) for each row, memory O(open deliveries).

    Example:
        >>> from keyshared.simulate import Arrival, ConsumerPlan, Fixed, Plan, Simulation
        >>> plan = Plan(consumers=[ConsumerPlan("a", Fixed(10))])
        >>> rows = Simulation(plan, [Arrival(0, "k", at_ms=0), Arrival(1, "k", at_ms=4)])
        >>> [(each.offset, each.wait_ms, each.delivered_ms, each.ended_ms, each.outcome) for each in deliveries(rows)]
        [(0, 0, 0, 10, 'acked'), (1, 6, 10, 20, 'acked')]
    """
    opened: dict[int, Row] = {}
    for row in checked_kinds("row", history, Row):
        event = row.event
        if event is Event.DELIVERED:
            opened[_offset(row)] = row
        elif event is Event.ACKED or event in _ENDS:  # first the usual one: an Enum's hash is slow
            start = opened.pop(_offset(row))
            outcome = row.reason if event is Event.RELEASED else event.value
            yield _delivery(start, row.at_ms, outcome, row.sequence)
    for start in opened.values():
        yield _delivery(start, None, None, None)


_ENDS = frozenset({Event.ACKED, Event.NACKED, Event.REJECTED, Event.TIMED_OUT, Event.RELEASED})


def _offset(row: Row) -> int:
    return row.offset  # type: ignore[return-value]  # rows about deliveries name a message


def _delivery(start: Row, ended_ms: int | None, outcome: str | None, end_sequence: int | None) -> SimulatedDelivery:
    available_ms: int = start.available_ms  # type: ignore[assignment]  # a delivered row says all of these
    return SimulatedDelivery(
        _offset(start),
        start.key,
        start.consumer,  # type: ignore[arg-type]  # as above
        start.attempt,  # type: ignore[arg-type]  # as above
        available_ms,
        start.at_ms,
        ended_ms,
        outcome,
        start.at_ms - available_ms,
        start.sequence,
        end_sequence,
    )
