"""The history of a simulated subscription: a row for each event, in order."""

from enum import StrEnum
from typing import Any, Final, NamedTuple

from keyshared.effects import Deliver

__all__ = ["Event", "Row"]


class Event(StrEnum):
    """The event of a row of a history."""

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
    """One event. Fields that do not apply to it are None.

    Attributes:
        sequence: Number of the row, from 0, without gaps.
        at_ms: Instant on the virtual clock.
        event: What happened.
        offset: The message; with `Event.CURSOR` the safe cursor.
        key: Its key.
        consumer: The consumer.
        attempt: Number of the delivery.
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


class History:
    """Records events as rows.

    Attributes:
        rows: The rows since they were cleared last.
        counts_moved_keys: Whether changes of membership are to count the keys that they moved.
    """

    def __init__(self, *, counts_moved_keys: bool = False) -> None:
        self.counts_moved_keys = counts_moved_keys
        self.rows: list[Row] = []
        self._number = 0

    def offered(self, now: int, offset: int, key: bytes | None, available_ms: int) -> None:
        """Record that a message was offered."""
        self._add((now, _OFFERED, offset, key, None, None, None, available_ms, None, None, None))

    def delivered(self, now: int, delivery: Deliver, available_ms: int) -> None:
        """Record that a delivery began."""
        self._add((now, _DELIVERED, *delivery[:5], available_ms, None, None, None))

    def acked(self, now: int, delivery: Deliver, service_ms: int) -> None:
        """Record that an ack ended a delivery in time."""
        self._add((now, _ACKED, *delivery[:5], None, service_ms, None, None))

    def advanced(self, now: int, safe_cursor: int) -> None:
        """Record the safe cursor."""
        self._add((now, _CURSOR, safe_cursor, None, None, None, None, None, None, None, None))

    def record(self, row: Row) -> None:
        """Record any other event; the number of the row is set here."""
        self._add(row[1:])

    def _add(self, fields: tuple[Any, ...]) -> None:
        self.rows.append(_new(Row, (self._number, *fields)))
        self._number += 1


_new: Final = tuple.__new__  # builds a Row in half the time that its own constructor takes
# Python 3.11 takes as long to find a member of an Enum as for all else that is done with a row.
_OFFERED: Final = Event.OFFERED
_DELIVERED: Final = Event.DELIVERED
_ACKED: Final = Event.ACKED
_CURSOR: Final = Event.CURSOR
