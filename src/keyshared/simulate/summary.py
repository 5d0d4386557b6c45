"""The figures of a simulated subscription, folded row by row in memory for its keys and consumers only."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from keyshared._checks import check_int
from keyshared.effects import ReleaseReason
from keyshared.errors import ArgumentError
from keyshared.simulate.history import Event, Row

__all__ = ["BacklogPoint", "ConsumerSummary", "MovedKeys", "Summary", "Tally", "Waits"]

DEFAULT_POINTS: Final = 100
DEFAULT_HOTTEST: Final = 10


@dataclass(frozen=True, slots=True)
class Waits:
    """How long messages waited to be delivered: exact percentiles by nearest rank, 0 if there were no deliveries."""

    p50_ms: int
    p99_ms: int
    max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSummary:
    """The figures of one consumer, all sessions of its name together.

    Attributes:
        deliveries: Its deliveries.
        acked: Those that it acked in time.
        failed: Those that it nacked or rejected in time.
        postponed: Those that it released for later.
        lost: Those that ended without an answer of it: timed out, or released.
        busy_ms: Time that it worked on deliveries that it answered in time.
        wait: How long messages waited until they were delivered to it.
    """

    deliveries: int
    acked: int
    failed: int
    postponed: int
    lost: int
    busy_ms: int
    wait: Waits


class BacklogPoint(NamedTuple):
    """The greatest number of outstanding messages in the interval of time that begins at ``at_ms``."""

    at_ms: int
    outstanding: int


class MovedKeys(NamedTuple):
    """A change of membership: ``moved`` of the ``keys`` seen until then got another owner."""

    at_ms: int
    event: Event
    consumer: str
    moved: int
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one simulation. The outstanding messages are its backlog.

    Attributes:
        messages: Messages that were offered.
        keys: Different keys among them.
        keyless: Those without a key.
        deliveries: Deliveries of all messages.
        redeliveries: Those that were not the first of their message.
        acked: Messages settled by the ack of their current delivery.
        late_acked: Messages settled by an ack that came late.
        dead_lettered: Messages settled by a dead letter.
        dropped: Messages settled by being dropped.
        skipped: Messages settled because no consumer accepted their key, or because a newer one superseded them.
        spilled: Messages whose payload was dropped and read again.
        redriven: Dead letters that came back; each is settled once more.
        consumers: By name, in the order of first joining.
        wait: How long messages waited until they were delivered, all consumers together.
        largest_backlog: The greatest number of outstanding messages.
        largest_backlog_ms: When it was reached first; None if nothing was offered.
        backlog: The backlog over time.
        hottest_keys: Keys with most messages; of equal ones, those seen first.
        moved_keys: A row for each change of membership; empty if the group does not count.
        safe_cursor: The safe cursor at the end.
        start_ms: Instant of the first event; None if there was none.
        end_ms: Instant of the last event.
    """

    messages: int
    keys: int
    keyless: int
    deliveries: int
    redeliveries: int
    acked: int
    late_acked: int
    dead_lettered: int
    dropped: int
    skipped: int
    spilled: int
    redriven: int
    consumers: Mapping[str, ConsumerSummary]
    wait: Waits
    largest_backlog: int
    largest_backlog_ms: int | None
    backlog: tuple[BacklogPoint, ...]
    hottest_keys: tuple[tuple[bytes, int], ...]
    moved_keys: tuple[MovedKeys, ...]
    safe_cursor: int | None
    start_ms: int | None
    end_ms: int | None

    @property
    def duration_ms(self) -> int:
        """Virtual time from the first event to the last."""
        return 0 if self.start_ms is None or self.end_ms is None else self.end_ms - self.start_ms


@dataclass(slots=True)
class _Counts:
    """The counts of one consumer; see `ConsumerSummary`."""

    acked: int = 0
    failed: int = 0
    postponed: int = 0
    lost: int = 0
    busy_ms: int = 0
    waits: Counter[int] = field(default_factory=Counter)

    def summary(self) -> ConsumerSummary:
        return ConsumerSummary(
            deliveries=self.waits.total(),
            acked=self.acked,
            failed=self.failed,
            postponed=self.postponed,
            lost=self.lost,
            busy_ms=self.busy_ms,
            wait=_waits(self.waits),
        )


def _waits(counts: Counter[int]) -> Waits:
    """Return the percentiles of waits, given how often each was seen."""
    total, passed, percentiles = counts.total(), 0, list[int]()
    for wait_ms, number in sorted(counts.items()):
        passed += number
        while len(percentiles) < len(_PERCENTS) and passed * 100 >= total * _PERCENTS[len(percentiles)]:
            percentiles.append(wait_ms)
    return Waits(*percentiles) if percentiles else Waits(0, 0, 0)


class _Curve:
    """The backlog over time, in at most so many points: when they run out, neighbouring intervals become one.

    Intervals count from the first change, so that none of them begins before it.
    """

    __slots__ = ("_end", "_first", "_now", "_points", "_size", "_width", "peak", "peak_ms")

    def __init__(self, size: int) -> None:
        self._size = size
        self._width = 1
        self._points: dict[int, int] = {}  # by start of the interval, in order
        self._first = 0  # when the first interval begins
        self._end = -1  # of the last interval
        self._now = 0
        self.peak = 0
        self.peak_ms: int | None = None

    def add(self, at_ms: int, change: int) -> None:
        before, self._now = self._now, self._now + change
        if self._now > self.peak:
            self.peak, self.peak_ms = self._now, at_ms
        if at_ms >= self._end:
            self._first = at_ms if not self._points else self._first
            self._points[self._start_of(at_ms)] = before
            while len(self._points) > self._size:
                self._widen()
            self._end = next(reversed(self._points)) + self._width
        last = self._end - self._width
        self._points[last] = max(self._points[last], self._now)

    def points(self) -> tuple[BacklogPoint, ...]:
        return tuple(BacklogPoint(at_ms, peak) for at_ms, peak in self._points.items())

    def _start_of(self, at_ms: int) -> int:
        return at_ms - (at_ms - self._first) % self._width

    def _widen(self) -> None:
        self._width *= 2
        merged: dict[int, int] = {}
        for at_ms, peak in self._points.items():
            start = self._start_of(at_ms)
            merged[start] = max(peak, merged.get(start, 0))
        self._points = merged


class Tally:
    """Folds rows into a `Summary`.

    Args:
        points: The most points of the backlog over time.
        hottest: How many of the keys with most messages are wanted.

    Raises:
        ArgumentError: One of them is no int of at least 1 (``hottest``: 0).

    Complexity:
        O(1) for each row; memory O(keys + consumers + points + different waits).

    Example:
        >>> tally = Tally()
        >>> tally.add(Row(0, 5, Event.OFFERED, offset=0, key=b"k", available_ms=5))
        >>> tally.summary().hottest_keys
        ((b'k', 1),)
    """

    def __init__(self, *, points: int = DEFAULT_POINTS, hottest: int = DEFAULT_HOTTEST) -> None:
        self._hottest = check_int("hottest", hottest, 0)
        self._curve = _Curve(check_int("points", points, 1))
        self._events: Counter[Event] = Counter()
        self._keys: dict[bytes | None, int] = {}
        self._consumers: dict[str, _Counts] = {}
        self._redeliveries = 0
        self._redriven = 0
        self._moved: list[MovedKeys] = []
        self._safe_cursor: int | None = None
        self._start_ms: int | None = None
        self._end_ms: int | None = None

    def add(self, row: Row) -> None:
        """Count the next row of a history."""
        if type(row) is not Row:
            raise ArgumentError("row", row, "be a Row")
        _, at_ms, event, offset, key, consumer, attempt, _, available_ms, service_ms, _, _ = row
        if self._start_ms is None:
            self._start_ms = at_ms
        self._end_ms = at_ms
        if event is _CURSOR:
            self._safe_cursor = offset
        elif event is _OFFERED:
            self._keys[key] = self._keys.get(key, 0) + 1
            self._curve.add(at_ms, 1)
        elif event is _DELIVERED:
            waits, wait_ms = self._consumers[consumer].waits, at_ms - available_ms  # type: ignore[index, operator]  # there
            waits[wait_ms] = waits.get(wait_ms, 0) + 1
            self._redeliveries += attempt != 1
        elif event is _ACKED:
            counts = self._consumers[consumer]  # type: ignore[index]  # an answer has one
            counts.acked += 1
            counts.busy_ms += service_ms or 0
            self._curve.add(at_ms, -1)
        else:
            self._add_other(row)

    def add_all(self, rows: Iterable[Row]) -> None:
        """Count the next rows of a history, in their order."""
        for row in rows:
            self.add(row)

    def summary(self) -> Summary:
        """Return the figures so far; more rows may follow."""
        events, keyed = self._events, Counter({key: n for key, n in self._keys.items() if key is not None})
        keyless = self._keys.get(None, 0)
        consumers = {name: counts.summary() for name, counts in self._consumers.items()}
        waits = Counter[int]()
        for counts in self._consumers.values():
            waits.update(counts.waits)
        return Summary(
            messages=keyed.total() + keyless,
            keys=len(keyed),
            keyless=keyless,
            deliveries=waits.total(),
            redeliveries=self._redeliveries,
            acked=sum(each.acked for each in consumers.values()),
            late_acked=events[Event.SETTLED],
            dead_lettered=events[Event.DEAD_LETTERED],
            dropped=events[Event.DROPPED],
            skipped=events[Event.SKIPPED],
            spilled=events[Event.SPILLED],
            redriven=self._redriven,
            consumers=consumers,
            wait=_waits(waits),
            largest_backlog=self._curve.peak,
            largest_backlog_ms=self._curve.peak_ms,
            backlog=self._curve.points(),
            hottest_keys=tuple(keyed.most_common(self._hottest)),
            moved_keys=tuple(self._moved),
            safe_cursor=self._safe_cursor,
            start_ms=self._start_ms,
            end_ms=self._end_ms,
        )

    def _add_other(self, row: Row) -> None:
        event, name = row.event, str(row.consumer)
        self._events[event] += 1
        if event in _SETTLING:
            self._curve.add(row.at_ms, -1)
        elif event is Event.REDRIVEN and row.offset is not None:
            self._redriven += 1
            self._curve.add(row.at_ms, 1)
        elif event is Event.JOINED:
            self._consumers.setdefault(name, _Counts())
        elif event in _ENDS:
            counts = self._consumers[name]
            counts.busy_ms += row.service_ms or 0
            if event in {Event.NACKED, Event.REJECTED}:
                counts.failed += 1
            elif event is Event.RELEASED and row.reason == ReleaseReason.RELEASED:
                counts.postponed += 1
            else:
                counts.lost += 1
        if row.moved_keys is not None:
            seen = len(self._keys) - (None in self._keys)
            self._moved.append(MovedKeys(row.at_ms, event, name, row.moved_keys, seen))


_PERCENTS: Final = (50, 99, 100)
_ENDS: Final = frozenset({Event.NACKED, Event.REJECTED, Event.TIMED_OUT, Event.RELEASED})
_SETTLING: Final = frozenset({Event.SETTLED, Event.DEAD_LETTERED, Event.DROPPED, Event.SKIPPED})
# Python 3.11 takes as long to find a member of an Enum as for all else that is done with a row.
_OFFERED: Final = Event.OFFERED
_DELIVERED: Final = Event.DELIVERED
_ACKED: Final = Event.ACKED
_CURSOR: Final = Event.CURSOR
