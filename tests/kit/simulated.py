"""Histories of `keyshared.simulate` as histories of the kit.

The rows are taken by the names of their fields and events, so that nothing of the simulation is imported.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from keyshared.testing.history import (
    Acked,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Done,
    Dropped,
    Event,
    Expired,
    Freed,
    Gone,
    Held,
    HoldReason,
    LimitChanged,
    Nacked,
    PlacementChanged,
    Published,
    Redriven,
    Released,
    Resumed,
    SessionBegun,
    SessionEnded,
    SessionEnding,
    SessionEnds,
    Settled,
    SettledBy,
    Skipped,
    Suspended,
)

__all__ = ["SimulatedRow", "from_simulation"]


class SimulatedRow(Protocol):
    """What is read of a row of a simulation."""

    @property
    def at_ms(self) -> int: ...  # see keyshared.simulate.Row
    @property
    def event(self) -> str: ...  # likewise
    @property
    def offset(self) -> int | None: ...  # likewise
    @property
    def key(self) -> bytes | None: ...  # likewise
    @property
    def consumer(self) -> str | None: ...  # likewise
    @property
    def attempt(self) -> int | None: ...  # likewise
    @property
    def available_ms(self) -> int | None: ...  # likewise
    @property
    def reason(self) -> str | None: ...  # likewise


def from_simulation(rows: Iterable[SimulatedRow]) -> Iterator[Event]:
    """Read what happened in a simulation.

    What its rows do not tell is left out: who owns a key, the limit of a consumer that joins, and when it was quiet. So
    affinity is judged by where keys went, and progress is not judged.

    Args:
        rows: In their order; read lazily.

    Yields:
        The events, in the order of the rows.

    Complexity:
        O(1) for each row, and nothing is kept.

    Example:
        >>> from keyshared.simulate import Arrival, SimulatedConsumer, Fixed, Group, Simulation
        >>> simulation = Simulation(Group(consumers=[SimulatedConsumer("a", Fixed(10))]), [Arrival(0, "k", at_ms=0)])
        >>> [type(event).__name__ for event in from_simulation(simulation)]
        ['Connected', 'Published', 'Delivered', 'Acked', 'Committed']
    """
    for row in rows:
        event = str(row.event)
        if event in _READERS:
            yield from _READERS[event](row)


_POSTPONED: Final = "released"
"""The reason of a row that tells of a consumer that gave something back."""


def _acked(row: SimulatedRow, *, counted: bool = True) -> Iterator[Event]:
    offset, consumer = _int(row.offset), row.consumer or ""
    yield Acked(offset=offset, consumer=consumer, attempt=row.attempt, counted=counted, at_ms=row.at_ms)


def _ignored(row: SimulatedRow) -> Iterator[Event]:
    yield from _acked(row, counted=False)


def _ignored_nack(row: SimulatedRow) -> Iterator[Event]:
    offset, consumer = _int(row.offset), row.consumer or ""
    yield Nacked(offset=offset, consumer=consumer, attempt=row.attempt, counted=False, at_ms=row.at_ms)


def _nacked(row: SimulatedRow) -> Iterator[Event]:
    offset, consumer = _int(row.offset), row.consumer or ""
    yield Nacked(
        offset=offset, consumer=consumer, attempt=row.attempt, counted=True, reason=row.reason, at_ms=row.at_ms
    )
    yield from _wait(row, HoldReason.RETRY)


def _expired(row: SimulatedRow) -> Iterator[Event]:
    yield Expired(offset=_int(row.offset), consumer=row.consumer or "", attempt=row.attempt, at_ms=row.at_ms)
    yield from _wait(row, HoldReason.RETRY)


def _released(row: SimulatedRow) -> Iterator[Event]:
    offset, consumer = _int(row.offset), row.consumer or ""
    postponed = row.reason == _POSTPONED
    until_ms = _later(row) if postponed else None
    yield Released(
        offset=offset,
        consumer=consumer,
        attempt=row.attempt,
        reason=row.reason,
        until_ms=until_ms,
        at_ms=row.at_ms,
    )
    if postponed:
        yield from _wait(row, HoldReason.POSTPONED)


def _later(row: SimulatedRow) -> int | None:
    """When the message of a row can be delivered, if that is later than the row."""
    return row.available_ms if row.available_ms is not None and row.available_ms > row.at_ms else None


def _wait(row: SimulatedRow, reason: HoldReason) -> Iterator[Event]:
    until_ms = _later(row)
    if until_ms is not None:
        yield Held(offset=_int(row.offset), reason=reason, until_ms=until_ms, at_ms=row.at_ms)


def _held(reason: HoldReason) -> Callable[[SimulatedRow], Iterator[Event]]:
    def read(row: SimulatedRow) -> Iterator[Event]:
        yield Held(offset=_int(row.offset), reason=reason, at_ms=row.at_ms)

    return read


def _freed(row: SimulatedRow) -> Iterator[Event]:
    if row.offset is not None:  # else nothing was blocked
        yield Freed(offset=row.offset, at_ms=row.at_ms)


def _published(row: SimulatedRow) -> Iterator[Event]:
    yield Published(offset=_int(row.offset), key=row.key, until_ms=_later(row), at_ms=row.at_ms)
    yield from _wait(row, HoldReason.NOT_BEFORE)


def _delivered(row: SimulatedRow) -> Iterator[Event]:
    offset, consumer = _int(row.offset), row.consumer or ""
    yield Delivered(offset=offset, key=row.key, consumer=consumer, attempt=row.attempt, at_ms=row.at_ms)


def _settled(row: SimulatedRow) -> Iterator[Event]:
    if row.consumer is not None:
        yield from _acked(row)  # it came while the message waited, and counted at once
    else:
        late = row.reason == SettledBy.LATE_ACK
        how = SettledBy.LATE_ACK if late else SettledBy.OPERATOR
        yield Settled(offset=_int(row.offset), reason=how, at_ms=row.at_ms)


def _dead_lettered(row: SimulatedRow) -> Iterator[Event]:
    yield DeadLettered(offset=_int(row.offset), reason=row.reason, at_ms=row.at_ms)


def _redriven(row: SimulatedRow) -> Iterator[Event]:
    if row.offset is not None:  # else nothing came back
        yield Redriven(offset=row.offset, key=row.key, attempt=row.attempt, at_ms=row.at_ms)


def _dropped(row: SimulatedRow) -> Iterator[Event]:
    yield Dropped(offset=_int(row.offset), reason=row.reason, at_ms=row.at_ms)


def _skipped(row: SimulatedRow) -> Iterator[Event]:
    if row.reason == SettledBy.SUPERSEDED:
        yield Settled(offset=_int(row.offset), reason=SettledBy.SUPERSEDED, at_ms=row.at_ms)
    else:
        yield Skipped(offset=_int(row.offset), reason=row.reason, at_ms=row.at_ms)


def _done(row: SimulatedRow) -> Iterator[Event]:
    yield Done(offset=_int(row.offset), reason=row.reason, at_ms=row.at_ms)


def _joined(row: SimulatedRow) -> Iterator[Event]:
    yield Connected(consumer=row.consumer or "", at_ms=row.at_ms)


def _left(row: SimulatedRow) -> Iterator[Event]:
    yield Gone(consumer=row.consumer or "", drains=True, at_ms=row.at_ms)  # what it has open is released row by row


def _inactive(row: SimulatedRow) -> Iterator[Event]:
    yield Suspended(consumer=row.consumer or "", at_ms=row.at_ms)


def _active(row: SimulatedRow) -> Iterator[Event]:
    yield Resumed(consumer=row.consumer or "", at_ms=row.at_ms)


def _changed(row: SimulatedRow) -> Iterator[Event]:
    what, _, value = (row.reason or "").partition(" ")
    if what == "limit":
        yield LimitChanged(consumer=row.consumer or "", limit=int(value), at_ms=row.at_ms)
    elif what == "weight":
        yield PlacementChanged(at_ms=row.at_ms)


def _committed(row: SimulatedRow) -> Iterator[Event]:
    yield Committed(resume_offset=_int(row.offset) + 1, at_ms=row.at_ms)


def _key_begun(row: SimulatedRow) -> Iterator[Event]:
    yield SessionBegun(key=row.key or b"", consumer=row.consumer or "", session=_int(row.attempt), at_ms=row.at_ms)


def _key_ending(row: SimulatedRow) -> Iterator[Event]:
    yield SessionEnding(key=row.key or b"", consumer=row.consumer or "", session=_int(row.attempt), at_ms=row.at_ms)


def _key_ended(row: SimulatedRow) -> Iterator[Event]:
    key, consumer, session = row.key or b"", row.consumer or "", _int(row.attempt)
    reason = SessionEnds(row.reason) if row.reason in set(SessionEnds) else SessionEnds.MOVED
    yield SessionEnded(key=key, consumer=consumer, session=session, reason=reason, at_ms=row.at_ms)


def _int(value: int | None) -> int:
    assert value is not None, "this kind of row has it"
    return value


_READERS: Final[dict[str, Callable[[SimulatedRow], Iterator[Event]]]] = {
    "offered": _published,
    "delivered": _delivered,
    "acked": _acked,
    "nacked": _nacked,
    "rejected": _nacked,
    "timed_out": _expired,
    "released": _released,
    "ignored": _ignored,
    "ignored_nack": _ignored_nack,
    "settled": _settled,
    "blocked": _held(HoldReason.BLOCKED),
    "unblocked": _freed,
    "dead_lettering": _held(HoldReason.DEAD_LETTERING),
    "dead_lettered": _dead_lettered,
    "archived": _held(HoldReason.BLOCKED),
    "redriven": _redriven,
    "dropped": _dropped,
    "skipped": _skipped,
    "done": _done,
    "spilled": _held(HoldReason.SPILLED),
    "loading": _held(HoldReason.LOADING),
    "loaded": _freed,
    "key_begun": _key_begun,
    "key_ending": _key_ending,
    "key_ended": _key_ended,
    "cursor": _committed,
    "joined": _joined,
    "left": _left,
    "evicted": _left,
    "inactive": _inactive,
    "active": _active,
    "changed": _changed,
}
