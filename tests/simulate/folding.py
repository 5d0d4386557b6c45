"""The fold of a whole history into deliveries: the oracle of `simulated_deliveries`."""

from collections.abc import Iterable, Iterator

from keyshared.simulate import Event, Row, SimulatedDelivery

ENDS = {Event.ACKED, Event.NACKED, Event.REJECTED, Event.TIMED_OUT, Event.RELEASED}
SETTLING = {
    Event.SETTLED: "late_acked",
    Event.DEAD_LETTERED: "dead_lettered",
    Event.DROPPED: "dropped",
    Event.SKIPPED: "skipped",
}


def folded(history: Iterable[Row]) -> Iterator[SimulatedDelivery]:
    """Yield deliveries as they end, and after them those that have not; sequences are those of the rows."""
    opened: dict[int | None, Row] = {}
    for row in history:
        if row.event is Event.DELIVERED:
            opened[row.offset] = row
        elif row.event in ENDS:
            outcome = row.reason if row.event is Event.RELEASED else row.event.value
            yield _delivery(opened.pop(row.offset), row, str(outcome))
    for start in opened.values():
        yield _delivery(start, None, "open")


def settled(history: Iterable[Row]) -> list[tuple[int | None, bytes | None, str, int]]:
    """Return the messages that ended without an ack of a delivery: offset, key, outcome, instant."""
    return [(row.offset, row.key, SETTLING[row.event], row.at_ms) for row in history if row.event in SETTLING]


def _delivery(start: Row, end: Row | None, outcome: str) -> SimulatedDelivery:
    assert start.offset is not None
    assert start.available_ms is not None
    return SimulatedDelivery(
        start.offset,
        start.key,
        start.consumer,
        start.attempt,
        start.available_ms,
        start.at_ms,
        None if end is None else end.at_ms,
        outcome,
        start.at_ms - start.available_ms,
        None if end is None else end.service_ms,
        start.sequence,
        None if end is None else end.sequence,
    )
