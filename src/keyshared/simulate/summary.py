"""The figures of a simulated subscription, folded row by row in memory for its keys and consumers only."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from keyshared._checks import check_int, check_kind
from keyshared.effects import ReleaseReason
from keyshared.errors import ArgumentError
from keyshared.simulate.history import Event, Row

__all__ = ["BacklogPoint", "ConsumerSummary", "MovedKeys", "Summary", "Tally", "WaitHistogram", "Waits"]

DEFAULT_POINTS: Final = 100
DEFAULT_HOTTEST: Final = 10

_SUB_BUCKET_BITS: Final = 7  # 128 buckets for each power of two: an error of at most 1/128
_ROW_WIDTH: Final = len(Row._fields)
_EXACT: Final = 255  # up to here every value has a bucket of its own
_PER_CENT: Final = 100


@dataclass(frozen=True, slots=True)
class Waits:
    """How long messages waited to be delivered. The percentiles are at most 1/128 too high, the rest is exact."""

    p50_ms: int
    p99_ms: int
    max_ms: int


class WaitHistogram:
    """Percentiles of non-negative ints in O(1) memory: exact counts in buckets that widen with the value.

    Values below 256 have a bucket each; above, every power of two is cut into 128 buckets of equal width. A percentile
    is the greatest value of its bucket, or the greatest value seen if that is smaller: never below the truth, and above
    it by less than 1/128 of it.

    Source:
        Gil Tene's HdrHistogram, with two significant digits.

    Example:
        >>> waits = WaitHistogram()
        >>> for wait_ms in range(1, 1001):
        ...     waits.add(wait_ms)
        >>> waits.percentile(50), waits.percentile(99), waits.percentile(100)
        (501, 991, 1000)
    """

    __slots__ = ("_counts", "_max", "_total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # by the greatest value of the bucket
        self._total = 0
        self._max = 0

    def add(self, value: int) -> None:
        """Count a value of at least 0."""
        bucket = check_int("value", value, 0)
        if value > _EXACT:
            bucket |= (1 << value.bit_length() - _SUB_BUCKET_BITS - 1) - 1
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self._total += 1
        self._max = max(self._max, value)

    def merge(self, other: Self) -> None:
        """Count everything that another histogram has counted."""
        check_kind("other", other, WaitHistogram)
        for bucket, number in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + number
        self._total += other._total
        self._max = max(self._max, other._max)

    def percentile(self, percent: int) -> int:
        """Return the least value that so many per cent (1 to 100) of the values do not exceed, by nearest rank.

        It is up to 1/128 too high; 0 if there are no values.
        """
        rank = -(-self._total * percent // _PER_CENT)
        for bucket, number in sorted(self._counts.items()):
            rank -= number
            if rank <= 0:
                return min(self._max, bucket)
        return 0

    def waits(self) -> Waits:
        """Return the usual figures."""
        return Waits(self.percentile(50), self.percentile(99), self._max)


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
        O(1) for each row; memory O(keys + consumers + points).

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
        self._keys: Counter[bytes | None] = Counter()
        self._consumers: dict[str, Counter[str]] = {}  # fields of `ConsumerSummary`
        self._waits: dict[str, WaitHistogram] = {}
        self._redeliveries = 0
        self._redriven = 0
        self._moved: list[MovedKeys] = []
        self._safe_cursor: int | None = None
        self._start_ms: int | None = None
        self._end_ms: int | None = None

    def add(self, row: Row) -> None:
        """Count the next row of a history."""
        if len(row) != _ROW_WIDTH:
            raise ArgumentError("row", row, "be a Row")
        event = row.event
        if self._start_ms is None:
            self._start_ms = row.at_ms
        self._end_ms = row.at_ms
        if event is _CURSOR:
            self._safe_cursor = row.offset
        elif event is _OFFERED:
            self._keys[row.key] += 1
            self._curve.add(row.at_ms, 1)
        elif event is _DELIVERED:
            self._add_delivery(row)
        elif event is _ACKED:
            self._add_end(row, "acked")
            self._curve.add(row.at_ms, -1)
        else:
            self._add_other(row)

    def add_all(self, rows: Iterable[Row]) -> None:
        """Count the next rows of a history, in their order."""
        for row in rows:
            self.add(row)

    def summary(self) -> Summary:
        """Return the figures so far; more rows may follow."""
        events, keys = self._events, self._keys
        wait = WaitHistogram()
        for waits in self._waits.values():
            wait.merge(waits)
        keyed = Counter({key: number for key, number in keys.items() if key is not None})
        return Summary(
            messages=sum(keys.values()),
            keys=len(keyed),
            keyless=keys[None],
            deliveries=sum(counts["deliveries"] for counts in self._consumers.values()),
            redeliveries=self._redeliveries,
            acked=sum(counts["acked"] for counts in self._consumers.values()),
            late_acked=events[Event.SETTLED],
            dead_lettered=events[Event.DEAD_LETTERED],
            dropped=events[Event.DROPPED],
            skipped=events[Event.SKIPPED],
            spilled=events[Event.SPILLED],
            redriven=self._redriven,
            consumers={name: self._summary_of(name) for name in self._consumers},
            wait=wait.waits(),
            largest_backlog=self._curve.peak,
            largest_backlog_ms=self._curve.peak_ms,
            backlog=self._curve.points(),
            hottest_keys=tuple(keyed.most_common(self._hottest)),
            moved_keys=tuple(self._moved),
            safe_cursor=self._safe_cursor,
            start_ms=self._start_ms,
            end_ms=self._end_ms,
        )

    def _summary_of(self, name: str) -> ConsumerSummary:
        counts = {field: self._consumers[name][field] for field in _COUNTED}
        return ConsumerSummary(**counts, wait=self._waits[name].waits())

    def _add_other(self, row: Row) -> None:
        self._events[row.event] += 1
        if row.event in _OUTCOMES:
            postponed = row.event is Event.RELEASED and row.reason == ReleaseReason.RELEASED
            self._add_end(row, "postponed" if postponed else _OUTCOMES[row.event])
        elif row.event in _SETTLING:
            self._curve.add(row.at_ms, -1)
        elif row.event is Event.REDRIVEN and row.offset is not None:
            self._redriven += 1
            self._curve.add(row.at_ms, 1)
        elif row.event is Event.JOINED:
            self._consumers.setdefault(str(row.consumer), Counter())
            self._waits.setdefault(str(row.consumer), WaitHistogram())
        if row.moved_keys is not None:
            seen = len(self._keys) - (None in self._keys)
            self._moved.append(MovedKeys(row.at_ms, row.event, str(row.consumer), row.moved_keys, seen))

    def _add_delivery(self, row: Row) -> None:
        name = str(row.consumer)
        self._consumers[name]["deliveries"] += 1
        self._waits[name].add(row.at_ms - row.available_ms)  # type: ignore[operator]  # a delivery has one
        self._redeliveries += row.attempt != 1

    def _add_end(self, row: Row, outcome: str) -> None:
        counts = self._consumers[str(row.consumer)]
        counts[outcome] += 1
        counts["busy_ms"] += row.service_ms or 0


_COUNTED: Final = ("deliveries", "acked", "failed", "postponed", "lost", "busy_ms")
_OUTCOMES: Final = {
    Event.NACKED: "failed",
    Event.REJECTED: "failed",
    Event.TIMED_OUT: "lost",
    Event.RELEASED: "lost",
}
_SETTLING: Final = frozenset({Event.SETTLED, Event.DEAD_LETTERED, Event.DROPPED, Event.SKIPPED})
# Python 3.11 takes as long to find a member of an Enum as for all else that is done with a row.
_OFFERED: Final = Event.OFFERED
_DELIVERED: Final = Event.DELIVERED
_ACKED: Final = Event.ACKED
_CURSOR: Final = Event.CURSOR
