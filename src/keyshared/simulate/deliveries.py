"""The deliveries of a simulated subscription, without its other events: half the time that a whole history takes."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from keyshared.effects import Deliver
from keyshared.hashing import key_bytes
from keyshared.simulate.engine import Engine
from keyshared.simulate.group import Arrival, Group
from keyshared.simulate.history import Event, History, Row

__all__ = ["SimulatedDelivery", "simulated_deliveries"]


class SimulatedDelivery(NamedTuple):
    """One delivery of a message; or, without a consumer, how a message ended that no delivery acked.

    Attributes:
        offset: The message.
        key: Its key.
        consumer: The consumer; None if the row is about a message and not about a delivery.
        attempt: The number of the delivery of this message, from 1. Without a consumer 0 if the message was never
            delivered, else None: so 0 and 1 occur once for each message.
        available_ms: The instant from which on the message could be delivered: its arrival, or the end of a wait. None
            for a message that was settled without a delivery that acked it.
        delivered_ms: The instant of the delivery; None without a consumer.
        ended_ms: The instant at which the delivery or the message ended; None if it has not.
        outcome: How a delivery ended: "acked", "nacked", "rejected", "timed_out", "released" if the consumer postponed
            it, or why else it was released ("evicted", "removed", "session_lost", "drain_timeout", "batch_broken");
            "open" if it has not ended. How a message ended that no delivery acked: "dead_lettered", "dropped",
            "skipped", "late_acked", or "outstanding" if it has not.
        wait_ms: How long the message waited for this delivery; None without a consumer.
        service_ms: How long the consumer worked on the message, if it answered in time.
        sequence: The place of the delivery's start among all starts and ends, from 0; None without a consumer.
        end_sequence: The place of the end; None if it has not come.
    """

    offset: int
    key: bytes | None
    consumer: str | None
    attempt: int | None
    available_ms: int | None
    delivered_ms: int | None
    ended_ms: int | None
    outcome: str
    wait_ms: int | None
    service_ms: int | None
    sequence: int | None
    end_sequence: int | None


def simulated_deliveries(group: Group, arrivals: Iterable[Arrival]) -> Iterator[SimulatedDelivery]:
    """Simulate a group, and keep its deliveries only.

    Args:
        group: The subscription.
        arrivals: Its messages, in offset order; read lazily, and to the last one.

    Yields:
        Deliveries as they end, and messages that end without an ack of a delivery. Deliveries that never end follow in
        the order in which they began; then messages that are left over, in offset order. So every message has a row.

    Raises:
        ArgumentError: See `Simulation`.
        MisuseError: See `Simulation`.

    Complexity:
        O(log n) for each delivery, n deliveries open at once; memory O(outstanding messages).

    Example:
        >>> from keyshared.simulate import Fixed, SimulatedConsumer
        >>> group = Group(consumers=[SimulatedConsumer("a", Fixed(10))])
        >>> found = simulated_deliveries(group, [Arrival(0, "k", at_ms=0), Arrival(1, "k", at_ms=4)])
        >>> [(each.offset, each.wait_ms, each.delivered_ms, each.ended_ms, each.outcome) for each in found]
        [(0, 0, 0, 10, 'acked'), (1, 6, 10, 20, 'acked')]
    """
    log = _DeliveryLog()
    engine = Engine(group, arrivals, log)
    engine.begin()
    while engine.stop is None:
        engine.run(_STEPS)
        yield from log.found
        log.found.clear()
    yield from log.unfinished(engine)


class _DeliveryLog(History):
    """Keeps deliveries, and messages that end without an ack of a delivery, instead of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[SimulatedDelivery] = []
        self._open: dict[int, tuple[Deliver, int, int, int]] = {}
        self._first: dict[int, int] = {}  # since when messages are available that were never delivered

    def offered(self, now: int, offset: int, key: bytes | None, available_ms: int) -> None:  # noqa: ARG002 - inherited
        self._first[offset] = available_ms

    def advanced(self, now: int, safe_cursor: int) -> None:
        """Only deliveries count."""

    def delivered(self, now: int, delivery: Deliver, available_ms: int) -> None:
        self._open[delivery[0]] = delivery, available_ms, now, self._number
        self._first.pop(delivery[0], None)
        self._number += 1

    def acked(self, now: int, delivery: Deliver, service_ms: int) -> None:
        self._end(now, delivery[0], "acked", service_ms)

    def record(self, row: Row) -> None:
        if row.offset is None:
            return
        if row.event in _ENDS:
            outcome = str(row.reason) if row.event is Event.RELEASED else row.event.value
            self._end(row.at_ms, row.offset, outcome, row.service_ms)
        elif row.event in _SETTLING:
            self.found.append(self._message(row.offset, row.key, _SETTLING[row.event], ended=(row.at_ms, self._number)))
            self._number += 1

    def _end(self, now: int, offset: int, outcome: str, service_ms: int | None) -> None:
        self.found.append(self._delivery(offset, now, outcome, service_ms, self._number))
        self._number += 1

    def _delivery(
        self, offset: int, now: int | None, outcome: str, service_ms: int | None, end: int | None
    ) -> SimulatedDelivery:
        (_, key, consumer, attempt, _, _), available_ms, begun_ms, number = self._open.pop(offset)
        wait_ms = begun_ms - available_ms
        fields = (offset, key, consumer, attempt, available_ms, begun_ms, now, outcome, wait_ms, service_ms)
        return _new(SimulatedDelivery, (*fields, number, end))

    def unfinished(self, engine: Engine) -> Iterator[SimulatedDelivery]:
        """Yield the last rows, deliveries that have not ended, and messages that are left over."""
        yield from self.found
        open_offsets = list(self._open)
        for offset in open_offsets:
            yield self._delivery(offset, None, "open", None, None)
        again, done = engine.host.again, set(open_offsets)
        for offset, key, *_ in engine.host.dispatcher.outstanding():
            if offset not in done:
                yield self._message(offset, key, "outstanding", again.get(offset))
        while engine.arrival is not None:
            offset, raw_key, *_ = engine.arrival
            self._first[offset] = engine.arrival_ms
            yield self._message(offset, key_bytes(raw_key), "outstanding")
            engine.next_arrival()

    def _message(
        self,
        offset: int,
        key: bytes | None,
        outcome: str,
        again_ms: int | None = None,
        *,
        ended: tuple[int | None, int | None] = (None, None),
    ) -> SimulatedDelivery:
        """Return a row about a message, not about a delivery."""
        available_ms, attempt = again_ms, None
        if offset in self._first:
            available_ms, attempt = self._first.pop(offset), 0
        ended_ms, sequence = ended
        return SimulatedDelivery(
            offset, key, None, attempt, available_ms, None, ended_ms, outcome, None, None, None, sequence
        )


_STEPS: Final = 8  # few, so that rows are read as they are needed
_new: Final = tuple.__new__  # builds a delivery in half the time that its own constructor takes
_ENDS: Final = frozenset({Event.NACKED, Event.REJECTED, Event.TIMED_OUT, Event.RELEASED})
_SETTLING: Final = {
    Event.SETTLED: "late_acked",
    Event.DEAD_LETTERED: "dead_lettered",
    Event.DROPPED: "dropped",
    Event.SKIPPED: "skipped",
}
