"""Logs of several processes become one history, by offsets and by one clock with its error.

Messages are ordered by their offsets, and each stands as late as it may: just before the first row that tells of it, or
of a newer one. All other rows are ordered by their times. Where two rows of different logs are closer than the error of
the clocks, and their order matters to the messages of a key, the earlier row's message is not judged from there on.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from itertools import pairwise
from typing import Final, NamedTuple, get_args

from keyshared.testing import history as h
from keyshared.testing._arguments import check_count, check_kind
from keyshared.testing.claims import Claims, Promise, Unjudged
from keyshared.testing.errors import LogEntry, MergeError
from keyshared.testing.history import Event

__all__ = ["MergedHistory", "merge_histories", "merge_logs"]

_MEMBERSHIP: Final = (h.Connected, h.Gone, h.Suspended, h.Resumed, h.LimitChanged)
_OF_A_CONSUMER: Final = (*_MEMBERSHIP, h.Delivered, h.Acked, h.Nacked, h.Expired, h.Released)
_OF_A_KEY: Final = (h.Owned, h.SessionBegun, h.SessionEnding, h.SessionEnded)
_ENDS: Final = (h.Acked, h.Settled, h.DeadLettered, h.Dropped, h.Skipped)
_TOO_CLOSE: Final = "give the logs clocks that differ by less: two rows of it are closer than --clock-error-ms"
_OF_MEMBERS: Final = frozenset({Promise.AFFINITY, Promise.MINIMAL_MOVE})


class MergedHistory(NamedTuple):
    """The history that several logs tell together.

    Attributes:
        history: The events, in order. Messages that are not judged have an `Unclear`.
        claims: What can be judged of the claims.
        unjudged: Claimed promises that no order of the logs can show, and why.
    """

    history: tuple[Event, ...]
    claims: Claims
    unjudged: tuple[Unjudged, ...]


class _Row(NamedTuple):
    """A row of a log, with a time that does not go back in its log."""

    ms: int
    log: int
    number: int
    event: Event


def merge_histories(
    producers: Iterable[Iterable[Event]],
    consumers: Iterable[Iterable[Event]],
    claims: Claims | None = None,
    *,
    clock_error_ms: int | None = None,
) -> MergedHistory:
    """Merge the logs of several processes that tell of one log and its consumers.

    Args:
        producers: Each is what one producer tells, `Published` only, in any order.
        consumers: Likewise of consumers, brokers and operators; each in order.
        claims: What the system claims; None: every promise that a history can show.
        clock_error_ms: How wrong the times of two logs may be against each other. Needed if more than one log of
            ``consumers`` has rows; every row then needs a time, or one before it in its log.

    Raises:
        MergeError: An entry is no event, a message was published twice, or a time is missing.
        ClaimsError: ``clock_error_ms`` is negative.

    Complexity:
        O(n log n) for n events, all of them in memory.

    Example:
        >>> from keyshared.testing.history import Delivered, Published
        >>> one, other = (Delivered(offset=0, key=b"k", consumer=name, at_ms=5) for name in "ab")
        >>> merged = merge_histories([[Published(offset=0, key=b"k")]], [[one], [other]], clock_error_ms=1)
        >>> [type(event).__name__ for event in merged.history]
        ['Published', 'Unclear', 'Delivered', 'Delivered']
    """
    logs = [(f"producers[{place}]", log, True) for place, log in enumerate(producers)]
    logs += [(f"consumers[{place}]", log, False) for place, log in enumerate(consumers)]
    return merge_logs(logs, claims, clock_error_ms)


def merge_logs(
    logs: Sequence[tuple[str, Iterable[Event], bool]], claims: Claims | None, clock_error_ms: int | None
) -> MergedHistory:
    """Merge logs as `merge_histories` does; each with its name, and whether it is of a producer."""
    claims = Claims() if claims is None else claims
    check_kind("claims", claims, Claims)
    if clock_error_ms is not None:
        check_count("clock_error_ms", clock_error_ms, 0)
    published, others = _read(logs)
    several = sum(map(bool, others)) > 1
    if several and clock_error_ms is None:
        names = [(name, log) for (name, _, _), log in zip(logs, others, strict=True) if log]
        entries = tuple(LogEntry(name, number, event) for name, log in names for number, event in log[:1])
        raise MergeError(entries, "be ordered by time: give clock_error_ms")
    rows = list(_by_time(logs, others, needs_times=several))
    end = [row for row in rows if type(row.event) is h.AtRest and row.number == others[row.log][-1][0]]
    rows = [row for row in rows if row not in end]
    missing: set[Promise] = set()
    if several:
        assert clock_error_ms is not None
        races = _Races(published, claims, clock_error_ms)
        unclear = races.find(rows)
        rows = [row for row in rows if row not in races.unquiet]
        missing = set(map(Promise, claims.promises)) & {Promise.FAIRNESS, *(_OF_MEMBERS if races.has_members else ())}
        claims = _reduced(claims, missing)
    else:
        unclear = {}
    history = (*_with_published(rows, published, unclear), *(row.event for row in end[:1]))
    reason = "it needs one log, or clocks that differ by less"
    return MergedHistory(history, claims, tuple(Unjudged(each, reason) for each in Promise if each in missing))


def _read(
    logs: Sequence[tuple[str, Iterable[Event], bool]],
) -> tuple[list[h.Published], list[list[tuple[int, Event]]]]:
    """Return what was published, by offset, and the other rows of each log with their numbers."""
    published: list[tuple[h.Published, LogEntry]] = []
    others: list[list[tuple[int, Event]]] = []
    for name, log, is_producer in logs:
        rows: list[tuple[int, Event]] = []
        for number, event in enumerate(log):
            entry = LogEntry(name, number, event)
            if not isinstance(event, get_args(Event)):
                raise MergeError((entry,), "be a value of keyshared.testing.history")
            if isinstance(event, h.Published):
                published.append((event, entry))
            elif is_producer:
                raise MergeError((entry,), "be Published, or stand in a log of a consumer")
            else:
                rows.append((number, event))
        others.append(rows)
    published.sort(key=lambda each: each[0].offset)
    for (one, entry), (two, other) in pairwise(published):
        if one.offset == two.offset:
            raise MergeError((entry, other), "have offsets of their own")
    return [event for event, _ in published], others


def _by_time(
    logs: Sequence[tuple[str, Iterable[Event], bool]], others: Sequence[list[tuple[int, Event]]], *, needs_times: bool
) -> Iterator[_Row]:
    timed: list[list[_Row]] = []
    for place, rows in enumerate(others):
        ms, own = None if needs_times else 0, list[_Row]()
        for number, event in rows:
            if event.at_ms is not None and needs_times:
                ms = event.at_ms if ms is None else max(ms, event.at_ms)
            if ms is None:
                raise MergeError((LogEntry(logs[place][0], number, event),), "have a time: logs are ordered by at_ms")
            own.append(_Row(ms, place, number, event))
        timed.append(own)
    return merge(*timed)


class _Races:
    """Finds the messages whose verdict depends on what the clocks do not tell."""

    def __init__(self, published: Iterable[h.Published], claims: Claims, error_ms: int) -> None:
        self.unquiet: list[_Row] = []  # moments of quiet that may have been before or after something else
        self.has_members = False  # whether a change of membership is too close to a row of another log
        self._error = error_ms
        self._claims = claims
        self._keys = {event.offset: event.key for event in published}
        self._recent: dict[Hashable, deque[_Row]] = {}

    def find(self, rows: Sequence[_Row]) -> dict[tuple[int, int], int]:
        """Return before which rows, by log and number, which message becomes unclear."""
        for row in rows:
            if isinstance(row.event, h.Delivered):
                self._keys.setdefault(row.event.offset, row.event.key)
        found: dict[tuple[int, int], int] = {}
        for row in rows:
            for other in self._near(row, None):
                self._race(other, row, found)
            self._remember(row, None)
            for subject in self._subjects(row.event):
                for other in self._near(row, subject):
                    self._mark(other, row, found)
                self._remember(row, subject)
        return found

    def _race(self, one: _Row, two: _Row, found: dict[tuple[int, int], int]) -> None:
        """Look at two close rows of different logs, whatever they tell of."""
        for row, other in ((one, two), (two, one)):
            if isinstance(row.event, h.Quiet | h.AtRest):
                self.unquiet.append(row)
            elif isinstance(row.event, (*_MEMBERSHIP, h.PlacementChanged)):
                self.has_members = True
            elif isinstance(row.event, h.Committed):
                ended = other.event.offset if isinstance(other.event, _ENDS) else None
                if ended is not None and ended < row.event.resume_offset:
                    found.setdefault((one.log, one.number), ended)

    def _mark(self, one: _Row, two: _Row, found: dict[tuple[int, int], int]) -> None:
        offsets = [getattr(row.event, "offset", None) for row in (one, two)]
        offset = offsets[0] if offsets[0] is not None else offsets[1]
        if offset is not None:
            found.setdefault((one.log, one.number), offset)

    def _subjects(self, event: Event) -> list[Hashable]:
        """Return what an event touches: a key or unit, and a consumer."""
        claims, subjects = self._claims, list[Hashable]()
        offset: int | None = getattr(event, "offset", None)
        if offset is not None or isinstance(event, _OF_A_KEY):
            key = self._keys.get(offset) if offset is not None else event.key  # type: ignore[union-attr]
            if claims.total_order:
                subjects.append("log")
            elif key is None:
                subjects.append(("message", offset))
            else:
                subjects.append(("key", key) if claims.unit_of is None else ("unit", claims.unit_of(key)))
        if isinstance(event, _OF_A_CONSUMER):
            subjects.append(("consumer", event.consumer))
        return subjects

    def _near(self, row: _Row, subject: Hashable) -> list[_Row]:
        recent = self._recent.get(subject, deque())
        while recent and recent[0].ms < row.ms - self._error:
            recent.popleft()
        close = [each for each in recent if each.log != row.log]
        if isinstance(subject, tuple) and subject[0] == "consumer":
            return [each for each in close if isinstance(each.event, _MEMBERSHIP) or isinstance(row.event, _MEMBERSHIP)]
        return close

    def _remember(self, row: _Row, subject: Hashable) -> None:
        self._recent.setdefault(subject, deque()).append(row)


def _with_published(
    rows: Iterable[_Row], published: Sequence[h.Published], unclear: dict[tuple[int, int], int]
) -> Iterator[Event]:
    place = 0
    for row in rows:
        event = row.event
        told = event.resume_offset - 1 if isinstance(event, h.Committed) else getattr(event, "offset", None)
        while told is not None and place < len(published) and published[place].offset <= told:
            yield _no_later(published[place], event.at_ms)
            place += 1
        offset = unclear.get((row.log, row.number))
        if offset is not None:
            while place < len(published) and published[place].offset <= offset:
                yield _no_later(published[place], event.at_ms)
                place += 1
            yield h.Unclear(offset=offset, reason=_TOO_CLOSE, at_ms=event.at_ms)
        yield event
    yield from published[place:]


def _no_later(event: h.Published, at_ms: int | None) -> h.Published:
    """It was published before a row that tells of it, whatever its own clock said."""
    if event.at_ms is None or at_ms is None:
        return event
    return replace(event, at_ms=min(event.at_ms, at_ms))


def _reduced(claims: Claims, missing: set[Promise]) -> Claims:
    return replace(
        claims,
        promises=frozenset(map(Promise, claims.promises)) - missing,
        max_tracked=None,
        open_at_once=None,
    )
