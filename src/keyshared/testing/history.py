"""What can happen in a Key-Shared system, as far as its promises go: a closed set of values.

A *history* is what happened to one log (one topic-partition) and its consumers, in the order in which it happened.
Any system can write one, see docs/history.md. The position of a happening in its history, counted from 0, is how proofs
name it. Order is what counts; times are needed only where a promise speaks of time.

Every value has ``at_ms``: milliseconds on any clock that does not go back, or None if nobody looked.
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
    "Expired",
    "Freed",
    "Gone",
    "Happening",
    "Held",
    "HoldReason",
    "LimitChanged",
    "Measured",
    "Nacked",
    "Owned",
    "PlacementChanged",
    "Published",
    "Quiet",
    "Redriven",
    "Released",
    "Resumed",
    "SessionBegun",
    "SessionEnded",
    "SessionEnding",
    "SessionEnds",
    "Settled",
    "SettledBy",
    "Skipped",
    "Suspended",
]


class HoldReason(StrEnum):
    """Why a system holds a message back on purpose."""

    RETRY = "retry"  # it waits before it is tried again
    NOT_BEFORE = "not_before"  # it was published for later, and that has not come yet
    POSTPONED = "postponed"  # it was given back for later, and that has not come yet
    BLOCKED = "blocked"  # poisoned, until somebody decides
    DEAD_LETTERING = "dead_lettering"  # its dead letter is being written
    SPILLED = "spilled"  # its payload is not in memory: it does not count for the window
    FLUSHING = "flushing"  # somebody has still to flush what it keeps for its key
    LOADING = "loading"  # its payload is being read again; a slot at a consumer may be reserved for it
    LIMITED = "limited"  # its group, or all that is open, has reached a limit, or its group is paused
    TOKEN_FULL = "token_full"  # noqa: S105  # what a restart has to know would not fit what it may have
    OTHER = "other"


class SessionEnds(StrEnum):
    """Why a session of a key has ended."""

    IDLE = "idle"  # nothing of the key was open for long enough
    MOVED = "moved"  # the key belongs to somebody else, or to nobody
    LEFT = "left"  # its consumer leaves
    LOST = "lost"  # its consumer is gone, or came back without what it had
    FLUSH_TIMEOUT = "flush_timeout"  # its consumer did not flush in time


class SettledBy(StrEnum):
    """What settled a message, if not the ack of its open delivery."""

    LATE_ACK = "late_ack"  # an ack of an earlier delivery, noted when it came
    OPERATOR = "operator"  # somebody outside decided so
    SUPERSEDED = "superseded"  # a newer message of its key, before its first delivery
    NOBODY = "nobody"  # the system treats it as settled and does not say why: always a loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A message has entered the log; from now on it is outstanding.

    Attributes:
        offset: Its place in the log. Offsets grow strictly; gaps are fine.
        key: Its key, or None if it has none.
        until_ms: Before when it shall not be delivered first, if it was published for later.
        at_ms: When.
    """

    offset: int
    key: bytes | None = None
    until_ms: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A consumer was handed a message. This delivery is open until something ends it.

    Attributes:
        offset: The message.
        key: Its key, or None if it has none.
        consumer: Who got it.
        attempt: Number of this delivery among those of the message, or None in a system that does not number them.
        at_ms: When.
    """

    offset: int
    key: bytes | None = None
    consumer: str
    attempt: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """A consumer said that it is done with a message.

    Attributes:
        offset: The message.
        consumer: Who said so.
        attempt: Which delivery it named, or None if it named none.
        counted: Whether the system took it as the end of the message. None: nobody knows, only the ack was seen.
        at_ms: When.
    """

    offset: int
    consumer: str
    attempt: int | None = None
    counted: bool | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nacked:
    """A consumer gave a delivery back; the message is still outstanding.

    Attributes:
        offset: The message.
        consumer: Who said so.
        attempt: Which delivery it named, or None if it named none.
        counted: Whether the system took it as the end of that delivery. None: nobody knows.
        reason: What went wrong, in the consumer's words, or None.
        at_ms: When.
    """

    offset: int
    consumer: str
    attempt: int | None = None
    counted: bool | None = None
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The system ended a delivery because no answer came in time; the message is still outstanding.

    Attributes:
        offset: The message.
        consumer: Who had it.
        attempt: Which delivery, or None.
        at_ms: When.
    """

    offset: int
    consumer: str
    attempt: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The system ended a delivery for another reason; the message is still outstanding.

    Attributes:
        offset: The message.
        consumer: Who had it.
        attempt: Which delivery, or None.
        reason: Why, in the system's words.
        until_ms: Before when it shall not be delivered again, if whoever gave it back asked for that.
        at_ms: When.
    """

    offset: int
    consumer: str
    attempt: int | None = None
    reason: str | None = None
    until_ms: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A message is done without an ack of its open delivery.

    Attributes:
        offset: The message.
        reason: What settled it.
        at_ms: When.
    """

    offset: int
    reason: SettledBy
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered:
    """A message is safe in the dead-letter store, and thereby done.

    Attributes:
        offset: The message.
        reason: What the store was told of its last failure, or None.
        at_ms: When.
    """

    offset: int
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A message was given up by a policy, and is thereby done.

    Attributes:
        offset: The message.
        reason: Which policy, in the system's words.
        at_ms: When.
    """

    offset: int
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Nobody can ever get a message (no consumer wants it, or it can no longer be read), and so it is done.

    Attributes:
        offset: The message.
        reason: Why, in the system's words.
        at_ms: When.
    """

    offset: int
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """A message that was done has come back from the dead-letter store: it is outstanding again, at its old place.

    The cursor does not wait for it. Its failures begin anew.

    Attributes:
        offset: The message. What is published after this has greater offsets.
        key: Its key, or None if it has none.
        attempt: Number of its last delivery, or None in a system that does not number them.
        at_ms: When.
    """

    offset: int
    key: bytes | None = None
    attempt: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The system said of a message that it is done: to whoever keeps the log, or its transport.

    It stands behind what ended the message.

    Attributes:
        offset: The message.
        reason: How it ended, in the system's words.
        at_ms: When.
    """

    offset: int
    reason: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The system holds a message back on purpose. A delivery of it that is open goes on.

    It lasts until the message is freed, delivered, done or held for another reason, or until its time is over.

    Attributes:
        offset: The message.
        reason: Why.
        until_ms: When it will be over by itself, or None.
        at_ms: When it began.
    """

    offset: int
    reason: HoldReason
    until_ms: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """A message is no longer held back.

    Attributes:
        offset: The message.
        at_ms: When.
    """

    offset: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A consumer has joined, or came back after it was gone: a new session.

    Attributes:
        consumer: Its name.
        limit: How many deliveries it may have open, or None: as in the guarantees.
        at_ms: When.
    """

    consumer: str
    limit: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A consumer has left or was thrown out: it owns nothing any more and gets nothing.

    Attributes:
        consumer: Its name.
        drains: Whether what it has open stays open, until something else ends it. If not, this ends it.
        at_ms: When.
    """

    consumer: str
    drains: bool = False
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """A consumer keeps its keys and its open deliveries, and gets nothing for a while.

    Attributes:
        consumer: Its name.
        at_ms: When.
    """

    consumer: str
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A suspended consumer gets messages again.

    Attributes:
        consumer: Its name.
        at_ms: When.
    """

    consumer: str
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChanged:
    """A consumer may have another number of deliveries open.

    Attributes:
        consumer: Its name.
        limit: How many; None: as in the guarantees.
        at_ms: When.
    """

    consumer: str
    limit: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementChanged:
    """Keys may have moved although nobody joined or left: weights, filters or ranges were changed by hand.

    Attributes:
        at_ms: When.
    """

    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """From now on a key belongs to a consumer, by the system's own word. Said again only when that changes.

    Attributes:
        key: The key.
        consumer: Who owns it, or None: nobody.
        at_ms: When.
    """

    key: bytes
    consumer: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBegun:
    """A consumer begins to keep something for a key.

    Attributes:
        key: The key.
        consumer: Who.
        session: Number of the session.
        at_ms: When.
    """

    key: bytes
    consumer: str
    session: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnding:
    """A session has to end: its consumer was asked to flush what it keeps for the key.

    Attributes:
        key: The key.
        consumer: Who.
        session: Number of the session.
        at_ms: When.
    """

    key: bytes
    consumer: str
    session: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded:
    """A consumer keeps nothing for a key any more.

    Attributes:
        key: The key.
        consumer: Who.
        session: Number of the session.
        reason: Why.
        at_ms: When.
    """

    key: bytes
    consumer: str
    session: int
    reason: SessionEnds
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The cursor is safe: after a crash the system would read on from here.

    Attributes:
        resume_offset: The next offset to read. Everything below is done. (Systems that keep the *last* offset that is
            done write one more than that.)
        at_ms: When.
    """

    resume_offset: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The system said how many messages of this log are done, by its own count.

    Attributes:
        count: How many, since whenever it began to count.
        at_ms: When.
    """

    count: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """The system had time to act: what it could deliver at this moment, it has delivered before.

    Attributes:
        at_ms: When.
    """

    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRest:
    """As `Quiet`, and nothing more will happen by itself, however long one waits.

    Attributes:
        at_ms: When.
    """

    at_ms: int | None = None


Happening: TypeAlias = (
    Published
    | Delivered
    | Acked
    | Nacked
    | Expired
    | Released
    | Settled
    | DeadLettered
    | Dropped
    | Skipped
    | Redriven
    | Done
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
    | Measured
    | Quiet
    | AtRest
)
"""Whatever can stand in a history."""
