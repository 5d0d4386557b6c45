"""The events of a history: what can happen to one log and its consumers, as far as promises go.

A *history* is what happened to one log (one topic-partition) and its consumers, in the order in which it happened.
Any system can write one, see docs/history.md. Proofs name an event by its position in the history, counted from 0.

Fields that several events share mean the same everywhere:

- ``offset``: the place of a message in the log. ``key``: its key, or None if it has none.
- ``consumer``: the name of a consumer.
- ``attempt``: the number of a delivery. A message's deliveries to one consumer have rising numbers.
- ``counted``: whether the system took an answer. None: it was not asked, and the answer names the open delivery.
- ``reason``: why, in the system's own words, where no fixed set is given.
- ``at_ms``: milliseconds on any clock that does not go back, or None if the time is not known.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

__all__ = [
    "Acked",
    "AtRest",
    "Committed",
    "Connected",
    "DeadLettered",
    "Delivered",
    "Done",
    "Dropped",
    "Event",
    "Expired",
    "Freed",
    "Gone",
    "Held",
    "HoldReason",
    "LimitChanged",
    "Nacked",
    "Owned",
    "PlacementChanged",
    "Published",
    "Quiet",
    "Redriven",
    "Released",
    "Resumed",
    "Rewound",
    "SessionBegun",
    "SessionEnded",
    "SessionEnding",
    "SessionEnds",
    "Settled",
    "SettledBy",
    "Skipped",
    "Suspended",
    "Unclear",
]


class HoldReason(StrEnum):
    """Why a system holds a message back on purpose."""

    RETRY = "retry"  # it waits before it is tried again
    NOT_BEFORE = "not_before"  # it was published for later
    POSTPONED = "postponed"  # it was given back for later
    BLOCKED = "blocked"  # poisoned, until an operator decides
    DEAD_LETTERING = "dead_lettering"  # its dead letter is being written
    SPILLED = "spilled"  # its payload is not in memory: it does not count for the window
    FLUSHING = "flushing"  # its consumer has still to flush what it keeps for the key
    LOADING = "loading"  # its payload is being read again; a slot at a consumer may be reserved for it
    LIMITED = "limited"  # its group, or all deliveries, have reached a limit, or its group is paused
    ACK_HOLES = "ack_holes"  # too many settled stretches lie above the lowest message: only that one goes out
    OTHER = "other"


class SessionEnds(StrEnum):
    """Why a session of a key has ended."""

    IDLE = "idle"  # nothing of the key was open for long enough
    MOVED = "moved"  # the key belongs to another consumer, or to none
    LEFT = "left"  # its consumer leaves
    LOST = "lost"  # its consumer is gone, or came back without its state
    FLUSH_TIMEOUT = "flush_timeout"  # its consumer did not flush in time


class SettledBy(StrEnum):
    """An event other than the ack of its open delivery that settled a message."""

    LATE_ACK = "late_ack"  # an ack of an earlier delivery, noted when it came
    OPERATOR = "operator"  # a decision from outside
    SUPERSEDED = "superseded"  # a newer message of its key, before its first delivery
    NOBODY = "nobody"  # the system treats it as settled and gives no reason: always a loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A message has entered the log and is outstanding from now on. Offsets grow strictly; gaps are legal.

    Attributes:
        until_ms: Before when it shall not be delivered first, if it was published for later.
    """

    offset: int
    key: bytes | None = None
    until_ms: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A consumer was handed a message. This delivery is open until another event ends it."""

    offset: int
    key: bytes | None = None
    consumer: str
    attempt: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """A consumer said that it is done with a message."""

    offset: int
    consumer: str
    attempt: int | None = None
    counted: bool | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nacked:
    """A consumer gave a delivery back as failed; the message is still outstanding."""

    offset: int
    consumer: str
    attempt: int | None = None
    counted: bool | None = None
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The system ended a delivery because no answer came in time: a failure. The message is still outstanding."""

    offset: int
    consumer: str
    attempt: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A delivery ended for another reason, which is no failure. The message is still outstanding.

    Attributes:
        until_ms: Before when it shall not be delivered again, if the consumer asked for that.
    """

    offset: int
    consumer: str
    attempt: int | None = None
    reason: str | None = None
    until_ms: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclear:
    """The recorder cannot know what became of a message: the message is not judged from here on.

    Attributes:
        reason: What would have to be recorded so that it is judged. Counted, and shown with the result.
    """

    offset: int
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A message is done without an ack of its open delivery."""

    offset: int
    reason: SettledBy
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered:
    """A message is safe in the dead-letter store, and thereby done.

    Attributes:
        reason: What the dead letter says of its last failure, or None.
    """

    offset: int
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A policy gave a message up, and it is thereby done."""

    offset: int
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """No consumer can ever get a message (none wants it, or it cannot be read), and so it is done."""

    offset: int
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The system reported that a message is done, after the event that ended it."""

    offset: int
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """A message that was done came back from the dead-letter store: it is outstanding again, at its old place.

    The cursor does not wait for it, and its failures are counted from 0.

    Attributes:
        attempt: Number of its last delivery, if the system goes on counting from there.
    """

    offset: int
    key: bytes | None = None
    attempt: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound:
    """The log is read again from an offset, as a Kafka group does at a rebalance. For ``Claims(rewinds=True)``.

    Messages at or above it that were done may be delivered again. Deliveries that are open now need not be answered for
    any more, and the numbers of later ones may start again at 1.

    Attributes:
        resume_offset: The first offset that is read again; None: that of the last `Committed`.
    """

    resume_offset: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The system holds a message back on purpose. An open delivery of it goes on.

    A hold lasts until the message is freed, delivered, done or held for another reason, or until ``until_ms``.
    """

    offset: int
    reason: HoldReason
    until_ms: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """A message is no longer held back."""

    offset: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A consumer joined, or came back: a new session.

    Attributes:
        limit: How many deliveries it may have open, or None: as claimed.
    """

    consumer: str
    limit: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A consumer left or was evicted: it owns nothing any more and gets nothing.

    Attributes:
        drains: Whether its open deliveries stay open until another event ends them. If not, this ends them.
    """

    consumer: str
    drains: bool = False
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """A consumer keeps its keys and its open deliveries, and gets nothing for a while."""

    consumer: str
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A suspended consumer gets messages again."""

    consumer: str
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChanged:
    """A consumer may have another number of deliveries open.

    Attributes:
        limit: How many; None: as claimed.
    """

    consumer: str
    limit: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementChanged:
    """Keys may have moved although no consumer joined or left: weights, filters or ranges were changed."""

    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """From now on a key belongs to a consumer, or to none. Written again only when that changes."""

    key: bytes
    consumer: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBegun:
    """A consumer begins to keep state for a key. ``session`` is the number of the session."""

    key: bytes
    consumer: str
    session: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnding:
    """A session has to end: its consumer was asked to flush its state of the key."""

    key: bytes
    consumer: str
    session: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded:
    """A consumer keeps no state for a key any more."""

    key: bytes
    consumer: str
    session: int
    reason: SessionEnds
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The cursor was stored: after a crash the system reads on from here.

    Attributes:
        resume_offset: The next offset to read; everything below is done. A system that stores the *last* offset that is
            done writes one more than that.
    """

    resume_offset: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """The system had time to act: it has delivered everything that it could deliver at this moment."""

    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRest:
    """As `Quiet`, and nothing more will happen by itself, however long one waits."""

    at_ms: int | None = None


Event: TypeAlias = (
    Published
    | Delivered
    | Acked
    | Nacked
    | Expired
    | Released
    | Unclear
    | Settled
    | DeadLettered
    | Dropped
    | Skipped
    | Done
    | Redriven
    | Rewound
    | Held
    | Freed
    | Connected
    | Gone
    | Suspended
    | Resumed
    | LimitChanged
    | PlacementChanged
    | Owned
    | SessionBegun
    | SessionEnding
    | SessionEnded
    | Committed
    | Quiet
    | AtRest
)
"""Every event that a history may hold."""
