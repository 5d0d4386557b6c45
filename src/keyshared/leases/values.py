"""What a lease queue answers, as immutable values."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from keyshared._core.values import Blocking
from keyshared.effects import Effect, Item, Item_co

__all__ = [
    "Duplicate",
    "EmptyReason",
    "Handle",
    "InvalidHandle",
    "InvalidHandleReason",
    "InvalidReservation",
    "InvalidReservationReason",
    "Lease",
    "LeaseAnswer",
    "LeaseStats",
    "Leased",
    "NothingToLease",
    "Reservation",
]

_Result = TypeVar("_Result")

Handle = tuple[int, int]
"""An offset and the id of the lease that covers it: what names one delivery."""


class LeaseAnswer(NamedTuple, Generic[_Result, Item]):
    """What a call of a lease queue returns: ``result, effects = queue.ack(...)``.

    Attributes:
        result: The answer to whoever asked.
        effects: What the host has to know or to do, in order; of `CursorAdvanced` and `Resumed` the last one counts.
    """

    result: _Result
    effects: list[Effect[Item]]


class Leased(NamedTuple, Generic[Item_co]):
    """One message in a reservation or lease.

    Attributes:
        offset: Its number, and so its place in the queue.
        key: Its key as bytes, or None.
        item: What was offered with it.
        delivery_count: How many leases have covered it since it was unblocked or came back, this one included.
    """

    offset: int
    key: bytes | None
    item: Item_co
    delivery_count: int


@dataclass(frozen=True, slots=True)
class _Hold(Generic[Item_co]):
    id: int
    consumer: str
    messages: tuple[Leased[Item_co], ...]
    deadline_ms: int

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of its messages, in the order in which they were handed out."""
        return tuple(message.offset for message in self.messages)

    def __iter__(self) -> Iterator[Leased[Item_co]]:
        return iter(self.messages)


@dataclass(frozen=True, slots=True)
class Reservation(_Hold[Item_co]):
    """Messages that nobody else gets until they are committed, aborted, or the deadline has come. No delivery yet.

    Attributes:
        id: Names it in ``commit`` and ``abort``; becomes the id of the lease.
        consumer: Whose it is.
        messages: What it covers.
        deadline_ms: When it ends by itself, or with the drain of its consumer.
    """


@dataclass(frozen=True, slots=True)
class Lease(_Hold[Item_co]):
    """Messages that a consumer may work on.

    Attributes:
        id: The fencing token of all its messages: rises from lease to lease of the queue.
        consumer: Whose it is.
        messages: What it covers.
        deadline_ms: When the first of its messages goes back to the queue unless it is settled or extended; at the
            latest when the drain of its consumer ends.
    """

    @property
    def handles(self) -> tuple[Handle, ...]:
        """What names each of its messages in ``ack(*handle)``, ``nack`` and ``extend``."""
        return tuple((message.offset, self.id) for message in self.messages)


class EmptyReason(StrEnum):
    """Why nothing was handed out."""

    EMPTY = "empty"  # nothing is outstanding
    NOT_READY = "not_ready"  # nothing that is outstanding can go to this consumer now; `why_empty` says more
    WAITING = "waiting"  # its next message waits, see `NothingToLease.blocking`
    OTHERS = "others"  # all that waits belongs to other consumers, and the rest is leased
    LINE_HELD = "line_held"  # ordering_required: another consumer holds something
    QUEUE_LIMIT = "queue_limit"  # max_in_flight is reached
    CONSUMER_LIMIT = "consumer_limit"  # max_in_flight_per_consumer is reached
    ACK_HOLES = "ack_holes"  # max_ack_holes is exceeded, and the lowest message cannot go to this consumer now


@dataclass(frozen=True, slots=True)
class NothingToLease:
    """Nothing was handed out. Ask again later.

    Attributes:
        reason: Why.
        offset: The offset of the message that this is about.
        consumer: The consumer that this is about: who holds the line or the message, or what the key waits for.
        until_ms: When that message's delay, lease or reservation is over, if time alone will end it.
        blocking: What that message waits for.
    """

    reason: EmptyReason
    offset: int | None = None
    consumer: str | None = None
    until_ms: int | None = None
    blocking: Blocking | None = None


class InvalidHandleReason(StrEnum):
    """Why a handle names no current lease."""

    STALE = "stale"  # another lease or reservation covers the message now
    NOT_LEASED = "not_leased"  # none does: never leased, or nacked, expired, broken off, or its consumer was removed
    NOT_COMMITTED = "not_committed"  # that id is a reservation still
    DEAD_LETTERING = "dead_lettering"  # poison: its dead letter is being written
    BLOCKED = "blocked"  # poison: waits for unblock or park
    SETTLED = "settled"  # acked, parked, dead-lettered, expired, or never offered; something older is outstanding
    BELOW_TRIM = "below_trim"  # everything up to there is settled
    NOT_OFFERED = "not_offered"  # beyond the end of the queue


@dataclass(frozen=True, slots=True)
class InvalidHandle:
    """A handle that names no current lease. Nothing was changed; normal wherever leases expire.

    Attributes:
        offset: The offset that was named.
        lease_id: The lease that was named.
        reason: What is true instead.
    """

    offset: int
    lease_id: int
    reason: InvalidHandleReason


class InvalidReservationReason(StrEnum):
    """Why a reservation can be neither committed nor aborted."""

    COMMITTED = "committed"  # it is a lease already
    ENDED = "ended"  # it was aborted, has expired, or its consumer was removed; or its lease has ended
    UNKNOWN = "unknown"  # this queue never gave that id; perhaps it was given after the snapshot that it goes on from


@dataclass(frozen=True, slots=True)
class InvalidReservation:
    """No such reservation. Nothing was changed.

    Attributes:
        reservation_id: What was named.
        reason: What is true instead.
    """

    reservation_id: int
    reason: InvalidReservationReason


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The producer's number was seen before: the message is in the queue already, and was not taken again.

    Attributes:
        client_id: The producer.
        client_seq: The number that was offered.
        last_seq: The greatest number taken from it.
    """

    client_id: str
    client_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStats:
    """One look at a lease queue.

    Attributes:
        depth: Messages that are outstanding.
        retained: Offsets from the trim cursor to the end, settled ones and gaps included. This is what
            Celeriant calls the depth; settled messages above the lowest outstanding one make it larger than it is.
        leased: Messages in leases.
        reserved: Messages in reservations.
        delayed: Messages whose nack delay is not over.
        blocked: Poison messages that wait for unblock or park.
        dead_lettering: Poison messages whose dead letter is being written.
        spilled: Messages whose item was dropped, and no `Load` has asked for it again yet.
        ack_holes: Settled stretches above the lowest outstanding message.
        held: Messages in leases and reservations of each consumer, draining ones included.
    """

    depth: int
    retained: int
    leased: int
    reserved: int
    delayed: int
    blocked: int
    dead_lettering: int
    spilled: int
    ack_holes: int
    held: dict[str, int]
