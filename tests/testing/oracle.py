"""One-holder, key-order and safe-cursor from their definitions: each answer is read from all that was before.

Slow and obvious; it keeps no books, so it shares no mistake with those of the checker.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keyshared.testing.guarantees import Guarantees, Promise
from keyshared.testing.history import (
    Acked,
    Committed,
    DeadLettered,
    Delivered,
    Dropped,
    Expired,
    Gone,
    Happening,
    Nacked,
    Published,
    Released,
    Settled,
    Skipped,
)

__all__ = ["broken_promises"]


class Fate(NamedTuple):
    """What has become of a message."""

    phase: str  # unknown, waiting, open, doubtful or done
    key: bytes | None = None
    consumer: str | None = None
    attempt: int | None = None
    came_back: bool = False


UNKNOWN = Fate("unknown")


def broken_promises(history: Sequence[Happening], guarantees: Guarantees) -> Iterator[tuple[Promise, int]]:
    """Which of the three promises is broken, and where that shows."""
    for position, happening in enumerate(history):
        before = history[:position]
        if isinstance(happening, Delivered):
            if two_holders(before, happening, guarantees):
                yield Promise.ONE_HOLDER, position
            if overtakes(before, happening, guarantees):
                yield Promise.KEY_ORDER, position
        elif isinstance(happening, Committed):
            yield from ((Promise.SAFE_CURSOR, position) for _ in cursor_faults(before, happening))


def two_holders(before: Sequence[Happening], happening: Delivered, guarantees: Guarantees) -> bool:
    own = fate(before, happening.offset)
    if own.phase == "open":
        return True
    key = happening.key if own.phase in {"unknown", "done"} else own.key
    holders = {
        other.consumer
        for offset in offsets(before)
        if offset != happening.offset
        and (other := fate(before, offset)).phase == "open"
        and (guarantees.total_order or (key is not None and other.key == key))
    }
    return bool(holders - {happening.consumer})


def overtakes(before: Sequence[Happening], happening: Delivered, guarantees: Guarantees) -> bool:
    own = fate(before, happening.offset)
    if own.phase in {"unknown", "done"}:
        return False
    older = (fate(before, offset) for offset in offsets(before) if offset < happening.offset)
    return any(
        other.phase == "waiting"
        and (guarantees.nack_holds_key or not other.came_back)
        and (guarantees.total_order or (own.key is not None and other.key == own.key))
        for other in older
    )


def cursor_faults(before: Sequence[Happening], happening: Committed) -> Iterator[str]:
    published = [earlier.offset for earlier in before if isinstance(earlier, Published)]
    commits = [earlier.resume_offset for earlier in before if isinstance(earlier, Committed)]
    if commits and happening.resume_offset < commits[-1]:
        yield "back"
    passed = [offset for offset in published if offset < happening.resume_offset]
    if any(fate(before, offset).phase in {"waiting", "open"} for offset in passed):
        yield "passed"
    if published and happening.resume_offset > published[-1] + 1:
        yield "beyond"


def offsets(before: Sequence[Happening]) -> set[int]:
    return {earlier.offset for earlier in before if isinstance(earlier, Published | Delivered)}


def fate(before: Sequence[Happening], offset: int) -> Fate:
    found = UNKNOWN
    log_is_told = False
    for happening in before:
        if isinstance(happening, Gone):
            if not happening.drains and found.phase == "open" and found.consumer == happening.consumer:
                found = found._replace(phase="waiting", came_back=True)
        elif isinstance(happening, Committed):
            if found.phase == "doubtful" and offset < happening.resume_offset:
                found = found._replace(phase="done")
        elif getattr(happening, "offset", None) == offset:
            found = following(found, happening, log_is_told=log_is_told)
        log_is_told = log_is_told or isinstance(happening, Published)
    return found


def following(found: Fate, happening: Happening, *, log_is_told: bool) -> Fate:  # noqa: PLR0911  # one for each case
    outstanding = found.phase not in {"unknown", "done"}
    match happening:
        case Published(key=key) if not outstanding:
            return Fate("waiting", key)
        case Delivered() if outstanding or not log_is_told:
            key = found.key if outstanding else happening.key
            return Fate("open", key, happening.consumer, happening.attempt, found.came_back)
        case Acked() if outstanding:
            return answered(found, happening)
        case Nacked() if happening.counted is not False and names(found, happening):
            return found._replace(phase="waiting", came_back=True)
        case Expired() | Released() if names(found, happening):
            return found._replace(phase="waiting", came_back=True)
        case Settled() | DeadLettered() | Dropped() | Skipped() if outstanding:
            return found._replace(phase="done")
        case _:
            return found


def answered(found: Fate, ack: Acked) -> Fate:
    if ack.counted or (ack.counted is None and names(found, ack)):
        return found._replace(phase="done")
    was_delivered = found.consumer is not None
    newer = ack.attempt is not None and found.attempt is not None and ack.attempt > found.attempt
    elsewhere = ack.attempt == found.attempt and ack.consumer != found.consumer
    if ack.counted is None and found.phase == "waiting" and was_delivered and not newer and not elsewhere:
        return found._replace(phase="doubtful")
    return found


def names(found: Fate, answer: Acked | Nacked | Expired | Released) -> bool:
    same = answer.attempt is None or found.attempt is None or answer.attempt == found.attempt
    return found.phase == "open" and same and answer.consumer == found.consumer
