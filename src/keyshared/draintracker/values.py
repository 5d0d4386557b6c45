"""What a drain tracker answers: receipts, refusals, what came back, what moved, what was handed over."""

from enum import StrEnum
from typing import NamedTuple

from keyshared.draintracker.pending_acks import PendingAck, Position
from keyshared.placement.spans import Moved

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
    NOT_OWNER = "the hash belongs to somebody else: ask owner again"
    DRAINING = "its previous owner has not acked everything of the hash: keep it until the hash is unblocked"


class SendReceipt(NamedTuple):
    """Names one sending of one entry. Give it back with the ack.

    Attributes:
        consumer: To whom.
        position: What.
        generation: Number of the sending: never the same for two, so an ack of an earlier one settles nothing.
    """

    consumer: str
    position: Position
    generation: int


class EntryAcked(NamedTuple):
    """What an ack has done.

    Attributes:
        settled: Whether the entry is off the books.
        entry: What is known of it; None if the ack was late, double or foreign, and did nothing.
        unblocked: Hashes that somebody was refused and that can go out now.
    """

    settled: bool
    entry: PendingAck | None
    unblocked: tuple[int, ...] = ()


class Returned(NamedTuple):
    """What was taken off the books without an ack.

    Attributes:
        entries: What it was, in ascending order of position, each with its hash.
        unblocked: Hashes that somebody was refused and that can go out now.
    """

    entries: tuple[PendingAck, ...] = ()
    unblocked: tuple[int, ...] = ()


class OwnersChanged(NamedTuple):
    """What a change of owners has done.

    Attributes:
        moved: Which slots have another owner now: gained by ``new``, lost by ``old``. Messages that waited because
            nobody owned their hash can go out where ``old`` is None.
        replay: What the leaver held, in ascending order of position: to be sent again. Whoever waited for one of these
            hashes can go on, and is told by this list only.
        unblocked: Hashes that somebody was refused and that can go out now, because they came home.
    """

    moved: tuple[Moved, ...] = ()
    replay: tuple[PendingAck, ...] = ()
    unblocked: tuple[int, ...] = ()


class HandedOver(NamedTuple):
    """The drain of a hash took too long, so it is over: from here on the hash is delivered *at least once*.

    Whatever is in ``entries`` has to be sent again, to the new owner, before anything newer of the hash. The old owner
    may still be working on it, and its late acks settle nothing but its own books.

    Attributes:
        hash: Which hash.
        consumer: Who did not ack in time.
        owner: Who owns the hash now; None if nobody does.
        entries: What is unacked there, in ascending order of position.
        refused: How often somebody was refused meanwhile.
        since_ms: When the drain began.
    """

    hash: int
    consumer: str
    owner: str | None
    entries: tuple[PendingAck, ...]
    refused: int
    since_ms: int


class HashState(NamedTuple):
    """Everything that is known of one hash: why its messages do not arrive.

    Attributes:
        hash: Which hash.
        owner: Whose it is; None if nobody's.
        holder: Who has unacked entries of it that count; None if nobody has.
        draining: Whether the owner has to wait for the holder.
        positions: Where those entries are, in ascending order.
        refused: How often somebody was refused because of this drain.
        since_ms: When the drain began; None if there is none.
        deadline_ms: When it will be handed over; None if never.
        late: Who still holds entries that were handed over, and which. They block nobody.
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
