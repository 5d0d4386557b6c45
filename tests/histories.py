"""A judge of simulated histories that knows nothing but their rows."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from keyshared.simulate import Event, Row

ENDS = {Event.ACKED, Event.NACKED, Event.REJECTED, Event.TIMED_OUT, Event.RELEASED}
SETTLED = {Event.ACKED, Event.SETTLED, Event.DEAD_LETTERED, Event.DROPPED, Event.SKIPPED}


@dataclass
class HistoryJudge:
    """Raises at the first row that breaks a promise; remembers what settled every message."""

    outstanding: dict[int, bytes | None] = field(default_factory=dict)
    open: dict[int, tuple[str | None, int | None]] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    settled: dict[int, Event] = field(default_factory=dict)
    beside: set[int] = field(default_factory=set)
    cursor: int = -1
    last: Row | None = None

    def see_all(self, rows: Iterable[Row]) -> "HistoryJudge":
        for row in rows:
            self.see(row)
        return self

    def see(self, row: Row) -> None:
        if self.last is not None:
            assert self.last.sequence + 1 == row.sequence
            assert self.last.at_ms <= row.at_ms
        self.last = row
        offset = -1 if row.offset is None else row.offset
        if row.event is Event.OFFERED:
            assert offset not in self.outstanding.keys() | self.settled.keys()
            self.outstanding[offset] = row.key
        elif row.event is Event.REDRIVEN and row.offset is not None:
            assert Event.DEAD_LETTERED is self.settled.pop(offset), "only dead letters come back"
            self.outstanding[offset] = row.key
            self.beside.add(offset)
        elif row.event is Event.DELIVERED:
            self._judge_delivery(row, offset)
        elif row.event is Event.CURSOR:
            of_log = self.outstanding.keys() - self.beside
            assert self.cursor < offset < min(of_log, default=offset + 1)
            self.cursor = offset
        if row.event in ENDS:
            assert (row.consumer, row.attempt) == self.open.pop(offset)
        if row.event in SETTLED:
            assert offset not in self.open
            assert row.key in {self.outstanding.pop(offset), b""}  # the one lane of ordering_required
            self.settled[offset] = row.event
            self.beside.discard(offset)

    def _judge_delivery(self, row: Row, offset: int) -> None:
        assert row.key in {self.outstanding[offset], b""}
        assert offset not in self.open, "a message is at one consumer at a time"
        assert self.attempts.get(offset, 0) + 1 == row.attempt
        assert row.available_ms in range(row.at_ms + 1)
        if row.key is not None:
            lane = [other for other, key in self.outstanding.items() if key == row.key]
            older = [other for other in lane if other < offset]
            assert all(other in self.open for other in older), "older messages of the key are out"
            holders = {self.open[other][0] for other in lane if other in self.open}
            assert holders <= {row.consumer}, "a key is at one consumer at a time"
        self.attempts[offset] = row.attempt or 0
        self.open[offset] = (row.consumer, row.attempt)
