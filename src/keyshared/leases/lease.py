"""Leases, reservations, and everything else that calls of a lease queue return."""

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
    "Leased",
    "NothingToLease",
    "Produced",
    "Reservation",
]

_Result = TypeVar("_Result")

Handle = tuple[int, int]
"""An offset and the id of the lease that covers it: they name one delivery."""

Produced = tuple[str, int]
"""A producer, and its number for a message."""


class LeaseAnswer(NamedTuple, Generic[_Result, Item]):
    """The result of a call of a lease queue: ``result, effects = queue.ack(...)``.

    Attributes:
        result: The answer to the caller.
        effects: The effects that the host has to apply, in order.
    """

    result: _Result
    effects: list[Effect[Item]]


class Leased(NamedTuple, Generic[Item_co]):
    """One message in a reservation or lease.

    Attributes:
        offset: Its offset, which orders the queue.
        key: Its key as bytes, or None.
        item: The item that was offered with it.
        delivery_count: How many leases have covered it since it was unblocked or redriven, this one included.
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
    """Messages that no other consumer gets until they are committed, aborted, or the deadline has come.

    Attributes:
        id: Names it in ``commit`` and ``abort``; becomes the id of the lease.
        consumer: The consumer that it is for.
        messages: The messages that it covers.
        deadline_ms: When it ends by itself, or with the drain of its consumer.
    """


@dataclass(frozen=True, slots=True)
class Lease(_Hold[Item_co]):
    """Messages that a consumer may work on.

    Attributes:
        id: The fencing token of all its messages: rises from lease to lease of the queue.
        consumer: The consumer that holds it.
        messages: The messages that it covers.
        deadline_ms: When the first of its messages goes back to the queue unless it is settled or extended; at the
            latest when the drain of its consumer ends.
    """

    @property
    def handles(self) -> tuple[Handle, ...]:
        """The handles of its messages, for ``ack(*handle)``, ``nack`` and ``extend``."""
        return tuple((message.offset, self.id) for message in self.messages)


class EmptyReason(StrEnum):
    """The reason why a consumer got nothing."""

    EMPTY = "empty"  # nothing is outstanding
    NOT_READY = "not_ready"  # nothing that is outstanding can go to this consumer now; see `why_empty`
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
        reason: The reason.
        offset: The offset of the message that this is about.
        consumer: The consumer that this is about: it holds the line, the message, or the key.
        until_ms: When that message's delay, lease or reservation is over, if time alone will end it.
        blocking: What that message waits for.
    """

    reason: EmptyReason
    offset: int | None = None
    consumer: str | None = None
    until_ms: int | None = None
    blocking: Blocking | None = None


class InvalidHandleReason(StrEnum):
    """The reason why a handle names no current lease."""

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
        reason: The reason.
    """

    offset: int
    lease_id: int
    reason: InvalidHandleReason


class InvalidReservationReason(StrEnum):
    """The reason why a reservation can be neither committed nor aborted."""

    COMMITTED = "committed"  # it is a lease already
    ENDED = "ended"  # it was aborted, has expired, or its consumer was removed; or its lease has ended
    UNKNOWN = "unknown"  # never given by this queue; perhaps given after the snapshot that it was restored from


@dataclass(frozen=True, slots=True)
class InvalidReservation:
    """No such reservation. Nothing was changed.

    Attributes:
        reservation_id: The id that was named.
        reason: The reason.
    """

    reservation_id: int
    reason: InvalidReservationReason


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The producer's number was seen before: the message was not taken again.

    Attributes:
        client_id: The producer.
        client_seq: The number that was offered.
        last_seq: The greatest number taken from it.
    """

    client_id: str
    client_seq: int
    last_seq: int
