"""The figures of a simulated subscription, folded row by row in memory that grows with keys and consumers only."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from operator import itemgetter
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
_BLOCK: Final = 1_000  # rows that are counted at once
# for the loop over all rows: to ask an Enum for a member costs more than all else that is done with a row
_OFFERED: Final = Event.OFFERED
_DELIVERED: Final = Event.DELIVERED
_ACKED: Final = Event.ACKED
_CURSOR: Final = Event.CURSOR
_WORK: Final = itemgetter(Row._fields.index("consumer"), Row._fields.index("service_ms"))


@dataclass(frozen=True, slots=True)
class Waits:
    """How long messages waited to be delivered. The percentiles are at most 1/128 above the truth, the rest is exact.

    Attributes:
        p50_ms: Half of them waited no longer.
        p99_ms: 99 % of them waited no longer.
        max_ms: Nobody waited longer.
    """

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

    def add(self, value: int, number: int = 1) -> None:
        """Count a value.

        Args:
            value: At least 0.
            number: How often it is there; at least 1.
        """
        bucket = value
        check_int("value", value, 0)
        check_int("number", number, 1)
        if value > _EXACT:
            bucket |= (1 << value.bit_length() - _SUB_BUCKET_BITS - 1) - 1
        self._counts[bucket] = self._counts.get(bucket, 0) + number
        self._total += number
        if value > self._max:  # noqa: PLR1730 - a call of max() for each delivery is dearer
            self._max = value

    def merge(self, other: Self) -> None:
        """Count everything that another histogram has counted.

        Args:
            other: It is not changed.
        """
        check_kind("other", other, WaitHistogram)
        for bucket, number in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + number
        self._total += other._total
        self._max = max(self._max, other._max)

    def percentile(self, percent: int) -> int:
        """Return the least value that so many per cent of the values do not exceed (nearest rank).

        Args:
            percent: From 1 to 100.

        Returns:
            That value, or up to 1/128 more; 0 if there are no values.
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
    """What one consumer did; all sessions of its name together.

    Attributes:
        deliveries: Deliveries that it got.
        acked: Those that it acked in time.
        failed: Those that it nacked or rejected in time.
        postponed: Those that it gave back for later.
        lost: Those that ended without an answer of it: timed out, or released.
        busy_ms: Time that it worked on what it answered in time.
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
    """The backlog in an interval of time in which something happened to it.

    Attributes:
        at_ms: Start of the interval.
        outstanding: The greatest number of outstanding messages in it.
    """

    at_ms: int
    outstanding: int


class MovedKeys(NamedTuple):
    """What a change of membership did to the keys.

    Attributes:
        at_ms: When.
        event: What changed.
        consumer: Who.
        moved: How many of the keys seen until then got another owner.
        keys: How many keys had been seen until then.
    """

    at_ms: int
    event: Event
    consumer: str
    moved: int
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run. The outstanding messages are the backlog.

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
        moved_keys: What each change of membership did; empty if the plan does not count.
        safe_cursor: Where the cursor was in the end.
        start_ms: When the first thing happened; None if nothing did.
        end_ms: When the last thing happened.
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
        """Virtual time from the first thing that happened to the last."""
        return 0 if self.start_ms is None or self.end_ms is None else self.end_ms - self.start_ms


@dataclass(slots=True)
class _ConsumerTally:
    deliveries: int = 0
    acked: int = 0
    failed: int = 0
    postponed: int = 0
    lost: int = 0
    busy_ms: int = 0
    wait: WaitHistogram = field(default_factory=WaitHistogram)

    def summary(self) -> ConsumerSummary:
        return ConsumerSummary(
            deliveries=self.deliveries,
            acked=self.acked,
            failed=self.failed,
            postponed=self.postponed,
            lost=self.lost,
            busy_ms=self.busy_ms,
            wait=self.wait.waits(),
        )


class _Curve:
    """The backlog over time, in at most so many points: when they run out, neighbouring intervals become one.

    Intervals count from the first change, so that none of them begins before it.
    """

    __slots__ = ("_end", "_first", "_now", "_points", "_size", "_width", "peak", "peak_ms")

    def __init__(self, size: int) -> None:
        self._size = size
        self._width = 1
        self._points: list[list[int]] = []
        self._first = 0  # when the first interval begins
        self._end = -1  # of the last interval
        self._now = 0
        self.peak = 0
        self.peak_ms: int | None = None

    def add(self, at_ms: int, change: int) -> None:
        before = self._now
        now = self._now = before + change
        if now > self.peak:
            self.peak, self.peak_ms = now, at_ms
        if at_ms >= self._end:
            self._begin(at_ms, before)
        if now > self._points[-1][1]:  # noqa: PLR1730 - as in `WaitHistogram.add`
            self._points[-1][1] = now

    def add_all(self, times: Sequence[int], changes: Iterable[int]) -> None:
        """Do what `add` does with each, an interval of time at once."""
        levels = list(accumulate(changes, initial=self._now))
        self._now = levels[-1]
        peak = max(levels)
        if peak > self.peak:
            self.peak, self.peak_ms = peak, times[levels.index(peak) - 1]
        done = 0
        while done < len(times):
            if times[done] >= self._end:
                self._begin(times[done], levels[done])
            end = bisect_left(times, self._end, done + 1)
            last = self._points[-1]
            last[1] = max(last[1], *levels[done + 1 : end + 1])
            done = end

    def points(self) -> tuple[BacklogPoint, ...]:
        return tuple(BacklogPoint(at_ms, peak) for at_ms, peak in self._points)

    def _begin(self, at_ms: int, level: int) -> None:
        if not self._points:
            self._first = at_ms
        start = at_ms - (at_ms - self._first) % self._width
        self._end = start + self._width
        self._points.append([start, level])
        while len(self._points) > self._size:
            self._widen()

    def _widen(self) -> None:
        self._width *= 2
        merged: dict[int, int] = {}
        for at_ms, peak in self._points:
            start = at_ms - (at_ms - self._first) % self._width
            merged[start] = max(peak, merged.get(start, 0))
        self._points = [[start, peak] for start, peak in merged.items()]
        self._end = self._points[-1][0] + self._width


class Tally:
    """Folds rows into a `Summary`.

    Args:
        points: How many points of the backlog over time are wanted, at most.
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
        for name, value, least in (("points", points, 1), ("hottest", hottest, 0)):
            check_int(name, value, least)
        self._hottest = hottest
        self._curve = _Curve(points)
        self._events: Counter[Event] = Counter()
        self._keys: Counter[bytes | None] = Counter()
        self._consumers: dict[str, _ConsumerTally] = {}
        self._redeliveries = 0
        self._redriven = 0
        self._moved: list[MovedKeys] = []
        self._safe_cursor: int | None = None
        self._start_ms: int | None = None
        self._end_ms: int | None = None

    def add(self, row: Row) -> None:
        """Take the next row of a history.

        Args:
            row: Must follow the one taken last.
        """
        if len(row) != _ROW_WIDTH:
            raise ArgumentError("row", row, "be a Row")
        _, at_ms, event, offset, key, _, _, _, _, _, _, _ = row
        if self._start_ms is None:
            self._start_ms = at_ms
        self._end_ms = at_ms
        if event is Event.CURSOR:
            self._safe_cursor = offset
        elif event is Event.OFFERED:
            self._keys[key] = self._keys.get(key, 0) + 1  # += costs three times as much
            self._curve.add(at_ms, 1)
        elif event is Event.DELIVERED:
            self._add_delivery(row)
        elif event is Event.ACKED:
            self._add_end(row)
            self._curve.add(at_ms, -1)
        else:
            self._add_other(row)

    def add_all(self, rows: Iterable[Row]) -> None:
        """Take the next rows of a history.

        Args:
            rows: In their order; read in blocks, each counted at once. That costs a quarter of adding them one by one.

        Raises:
            ArgumentError: One of them is no row; those of its block are not counted.
        """
        unread = iter(rows)
        while block := list(islice(unread, _BLOCK)):
            if set(map(len, block)) != {_ROW_WIDTH}:
                raise ArgumentError("row", next(row for row in block if len(row) != _ROW_WIDTH), "be a Row")
            self._add_block(block)

    def summary(self) -> Summary:
        """Return the figures so far.

        Returns:
            A value; the fold can go on.
        """
        events, keys = self._events, self._keys
        tallies = self._consumers.values()
        wait = WaitHistogram()
        for tally in tallies:
            wait.merge(tally.wait)
        keyed = Counter({key: number for key, number in keys.items() if key is not None})
        return Summary(
            messages=sum(keys.values()),
            keys=len(keyed),
            keyless=keys.get(None, 0),
            deliveries=sum(tally.deliveries for tally in tallies),
            redeliveries=self._redeliveries,
            acked=sum(tally.acked for tally in tallies),
            late_acked=events[Event.SETTLED],
            dead_lettered=events[Event.DEAD_LETTERED],
            dropped=events[Event.DROPPED],
            skipped=events[Event.SKIPPED],
            spilled=events[Event.SPILLED],
            redriven=self._redriven,
            consumers={name: tally.summary() for name, tally in self._consumers.items()},
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

    def _add_block(self, block: list[Row]) -> None:
        """Sort rows by what is to be counted of them; fields by position, which costs half of asking by name."""
        times: list[int] = []  # of changes of the backlog, and what they change
        changes: list[int] = []
        keys: list[bytes | None] = []
        delivered: list[Row] = []
        acked: list[Row] = []
        if self._start_ms is None:
            self._start_ms = block[0].at_ms
        self._end_ms = block[-1].at_ms
        for row in block:
            event = row[2]
            if event is _OFFERED:
                keys.append(row[4])
                times.append(row[1])
                changes.append(1)
            elif event is _DELIVERED:
                delivered.append(row)
            elif event is _ACKED:
                acked.append(row)
                times.append(row[1])
                changes.append(-1)
            elif event is _CURSOR:
                self._safe_cursor = row[3]
            else:
                self._add_changes(keys, times, changes)  # which this row may have to come after
                self._add_other(row)
        self._add_changes(keys, times, changes)
        self._add_deliveries(delivered)
        self._add_acks(acked)

    def _add_changes(self, keys: list[bytes | None], times: list[int], changes: list[int]) -> None:
        """Count messages and the backlog, and empty the lists."""
        self._keys.update(keys)
        keys.clear()
        if times:
            self._curve.add_all(times, changes)
            times.clear()
            changes.clear()

    def _add_deliveries(self, rows: list[Row]) -> None:
        waits = Counter((row[5], row[1] - row[8]) for row in rows)  # type: ignore[operator]  # as in `_add_delivery`
        for (name, wait_ms), number in waits.items():
            tally = self._consumers[name]  # type: ignore[index]  # likewise
            tally.deliveries += number
            tally.wait.add(wait_ms, number)
        self._redeliveries += len(rows) - [row[6] for row in rows].count(1)

    def _add_acks(self, rows: list[Row]) -> None:
        for (name, service_ms), number in Counter(map(_WORK, rows)).items():
            tally = self._consumers[name]
            tally.acked += number
            tally.busy_ms += number * (service_ms or 0)

    def _add_other(self, row: Row) -> None:
        self._events[row.event] += 1
        if row.event in _ENDS:
            self._add_end(row)
        elif row.event in _SETTLING:
            self._curve.add(row.at_ms, -1)
        elif row.event is Event.REDRIVEN and row.offset is not None:
            self._redriven += 1
            self._curve.add(row.at_ms, 1)
        elif row.event is Event.JOINED:
            self._consumers.setdefault(str(row.consumer), _ConsumerTally())
        if row.moved_keys is not None:
            seen = len(self._keys) - (None in self._keys)
            self._moved.append(MovedKeys(row.at_ms, row.event, str(row.consumer), row.moved_keys, seen))

    def _add_delivery(self, row: Row) -> None:
        tally = self._consumers[row.consumer]  # type: ignore[index]  # a delivery names its consumer
        tally.deliveries += 1
        tally.wait.add(row.at_ms - row.available_ms)  # type: ignore[operator]  # and says since when it was possible
        if row.attempt != 1:
            self._redeliveries += 1

    def _add_end(self, row: Row) -> None:
        tally = self._consumers[row.consumer]  # type: ignore[index]  # a delivery names its consumer
        tally.busy_ms += row.service_ms or 0
        if row.event is Event.ACKED:
            tally.acked += 1
        elif row.event in _FAILED:
            tally.failed += 1
        elif row.reason == ReleaseReason.RELEASED:
            tally.postponed += 1
        else:
            tally.lost += 1


_FAILED: Final = frozenset({Event.NACKED, Event.REJECTED})
_ENDS: Final = frozenset({*_FAILED, Event.TIMED_OUT, Event.RELEASED})
_SETTLING: Final = frozenset({Event.SETTLED, Event.DEAD_LETTERED, Event.DROPPED, Event.SKIPPED})
