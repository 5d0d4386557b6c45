"""The values that a drain tracker returns: receipts, refusals, and the results of each change."""

from enum import StrEnum
from typing import NamedTuple

from keyshared.draintracker.pending_acks import PendingAck, Position
from keyshared.placement.range_map import Moved

__all__ = [
    "EntryAcked",
    "HandedOver",
    "HashState",
    "OwnersChanged",
    "Refusal",
    "Returned",
    "SendReceipt",
]


class Refusal(StrEnum):
    """Why a message must not be sent."""

    GONE = "the consumer is not connected"
    NOT_OWNER = "another consumer owns the hash: ask owner again"
    DRAINING = "the previous owner has unacked entries of the hash: keep the message until the hash is unblocked"


class SendReceipt(NamedTuple):
    """Identifies one sending of one entry. Give it back with the ack.

    Attributes:
        consumer: The consumer that received the entry.
        position: Position of the entry.
        generation: Number of the sending, unique: an ack of an earlier sending settles nothing.
    """

    consumer: str
    position: Position
    generation: int


class EntryAcked(NamedTuple):
    """The result of an ack.

    Attributes:
        settled: Whether the entry is acked completely.
        entry: The entry; None if the ack was late, double or foreign, and changed nothing.
        unblocked: Hashes that were refused to a consumer and can be sent now.
    """

    settled: bool
    entry: PendingAck | None
    unblocked: tuple[int, ...] = ()


class Returned(NamedTuple):
    """Entries that stopped being pending without an ack.

    Attributes:
        entries: The entries, in ascending order of position.
        unblocked: Hashes that were refused to a consumer and can be sent now.
    """

    entries: tuple[PendingAck, ...] = ()
    unblocked: tuple[int, ...] = ()


class OwnersChanged(NamedTuple):
    """The result of a change of owners.

    Attributes:
        moved: The slots that have another owner now: gained by ``new``, lost by ``old``. Messages that waited for an
            owner can be sent where ``old`` is None.
        replay: The entries of the consumer that left, in ascending order of position, to be sent again. A consumer
            that was refused one of these hashes can receive it now; only this list says so.
        unblocked: Hashes that were refused to a consumer and returned to their holder, so that they can be sent now.
    """

    moved: tuple[Moved, ...] = ()
    replay: tuple[PendingAck, ...] = ()
    unblocked: tuple[int, ...] = ()


class HandedOver(NamedTuple):
    """The drain of a hash took too long and has ended: the hash is delivered *at least once* from here on.

    ``entries`` has to be sent again, to the new owner, before anything newer of the hash. The old owner may still be
    processing them; its late acks settle nothing but its own record.

    Attributes:
        hash: The hash.
        consumer: The consumer that did not ack in time.
        owner: The owner of the hash; None if it has none.
        entries: The unacked entries, in ascending order of position.
        refused: How often another consumer was refused during the drain.
        since_ms: When the drain began.
    """

    hash: int
    consumer: str
    owner: str | None
    entries: tuple[PendingAck, ...]
    refused: int
    since_ms: int


class HashState(NamedTuple):
    """Why messages of a hash do or do not arrive.

    Attributes:
        hash: The hash.
        owner: Its owner; None if it has none.
        holder: The consumer that has unacked entries of it; None if there is none.
        draining: Whether the owner has to wait for the holder.
        positions: The positions of those entries, in ascending order.
        refused: How often another consumer was refused during this drain.
        since_ms: When the drain began; None if the hash does not drain.
        deadline_ms: When the hash will be handed over; None if never.
        late: Consumers that hold entries that were handed over, and their positions. These block no consumer.
    """

    hash: int
    owner: str | None
    holder: str | None
    draining: bool
    positions: tuple[Position, ...]
    refused: int
    since_ms: int | None
    deadline_ms: int | None
    late: tuple[tuple[str, tuple[Position, ...]], ...]
