"""What must have happened before what in the logs of several processes, and one order that keeps to all of that."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from math import inf
from typing import Final, NamedTuple, NoReturn

from keyshared.testing.errors import LogEntry, MergeError
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Delivered,
    Expired,
    Happening,
    Nacked,
    Published,
    Redriven,
    Released,
)

__all__ = ["Log", "Order", "Spot"]

_Answer = Acked | Nacked | Expired | Released
_CONTRADICTS: Final = "come before the next entry that is named here, and the last one before the first"


class Spot(NamedTuple):
    """Where something stands: the number of a log, and how many entries of that log are before it."""

    log: int
    number: int


class Log:
    """What one process tells.

    Attributes:
        name: What errors call it.
        happenings: All of it, in order. What is only published is brought into the order of the offsets: threads of a
            producer hear of theirs in any order. Each was published no later than the next one was written down.
        earliest: Before when each entry cannot have been, by the times of its own log: no earlier than those before it.
        latest: After when not: no later than those behind it.
    """

    def __init__(self, name: str, happenings: Sequence[Happening]) -> None:
        self.name = name
        self._told = happenings
        self._numbers, self.happenings = _by_offset(happenings)
        times = [happening.at_ms for happening in self.happenings]
        self.earliest = list(accumulate((-inf if at_ms is None else at_ms for at_ms in times), max))
        backwards = accumulate((inf if at_ms is None else at_ms for at_ms in reversed(times)), min)
        self.latest = list(backwards)[::-1]

    def entry(self, number: int) -> LogEntry:
        """Return an entry as errors name it: as the log has it."""
        told = self._numbers[number]
        return LogEntry(self.name, told, self._told[told])


def _by_offset(happenings: Sequence[Happening]) -> tuple[Sequence[int], Sequence[Happening]]:
    """What a log tells in the order in which it happened, and the numbers by which the log tells it."""
    published = [each for each in happenings if isinstance(each, Published)]
    if len(published) < len(happenings) or all(one.offset <= two.offset for one, two in pairwise(published)):
        return range(len(happenings)), happenings
    numbers = sorted(range(len(published)), key=lambda number: published[number].offset)
    ordered: list[Happening] = []
    latest: int | None = None
    for number in reversed(numbers):
        each = published[number]
        if each.at_ms is not None:
            latest = each.at_ms if latest is None else min(latest, each.at_ms)
            each = replace(each, at_ms=latest)
        ordered.append(each)
    return numbers, ordered[::-1]


class Order:
    """Takes the entries of all logs one by one, none before what must have happened before it.

    What must have happened before an entry: what stands before it in its log; for a `Published` the one with the next
    lower offset; for what tells of an offset every `Published` up to that offset, for a `Committed` up to its cursor;
    for an answer its delivery, if another log tells of that; what is earlier by more than the clocks may differ; and
    for an `AtRest` without a time at the end of a log all that other logs tell.

    Attributes:
        logs: All of them.
    """

    def __init__(self, logs: Sequence[Log], clock_error_ms: int | None) -> None:
        self.logs = logs
        self._error = clock_error_ms
        self._spots = self._chain()
        self._offsets = [offset for offset, _ in self._spots]
        self._deliveries = self._delivery_of()
        self._heads = [0] * len(logs)
        self._told = 0  # how many of what was published
        self._clocks: list[list[list[int]]] = [[] for _ in logs]
        self._earlier = [[0] * len(logs) for _ in logs]  # of each log, how many of each other one are surely earlier

    def __iter__(self) -> Iterator[Spot]:
        waiting: list[list[int]] = [[] for _ in self.logs]  # for each log, which ones wait for something of it
        ready = [self._rank(place) for place in range(len(self.logs)) if self.logs[place].happenings]
        heapify(ready)
        while ready:
            _, place = heappop(ready)
            blocking = self._blocking(place)
            if blocking is not None:
                waiting[blocking.log].append(place)
                continue
            spot = Spot(place, self._heads[place])
            self._take(spot)
            yield spot
            if self._heads[place] < len(self.logs[place].happenings):
                heappush(ready, self._rank(place))
            for other in waiting[place]:
                heappush(ready, self._rank(other))
            waiting[place].clear()
        if any(waiting):
            self._refuse()

    def known(self, spot: Spot, log: int) -> int:
        """Return how many entries of a log surely happened before one that was taken."""
        return spot.number + 1 if spot.log == log else self._clocks[spot.log][spot.number][log]

    def _rank(self, place: int) -> tuple[float, int]:
        return self.logs[place].earliest[self._heads[place]], place

    def _chain(self) -> list[tuple[int, Spot]]:
        """What was published, by offsets."""
        spots = [
            (happening.offset, Spot(place, number))
            for place, log in enumerate(self.logs)
            for number, happening in enumerate(log.happenings)
            if isinstance(happening, Published)
        ]
        spots.sort()
        for (offset, one), (other, two) in pairwise(spots):
            if offset == other:
                raise MergeError((self._entry(one), self._entry(two)), "have offsets of their own")
        return spots

    def _delivery_of(self) -> dict[Spot, Spot]:
        """The delivery of each answer that is told by one other log, and not by its own."""
        told = _Deliveries()
        for place, log in enumerate(self.logs):
            for number, happening in enumerate(log.happenings):
                if isinstance(happening, Delivered):
                    told.add(happening, Spot(place, number))
        found: dict[Spot, Spot] = {}
        for place, log in enumerate(self.logs):
            for number, happening in enumerate(log.happenings):
                if isinstance(happening, _Answer):
                    fits = told.of(happening)
                    if len(fits) == 1 and place not in fits:
                        found[Spot(place, number)] = next(iter(fits.values()))
        return found

    # --- what an entry waits for ------------------------------------------------------------------------------------

    def _blocking(self, place: int) -> Spot | None:
        """Something that the next entry of a log waits for."""
        spot = Spot(place, self._heads[place])
        below = self._below(spot)
        if self._told < below:
            return self._spots[below - 1][1]
        delivery = self._deliveries.get(spot)
        if delivery is not None and self._heads[delivery.log] <= delivery.number:
            return delivery
        return self._blocking_by_time(spot) or self._blocking_rest(spot)

    def _below(self, spot: Spot) -> int:
        """How many publications must have been before an entry."""
        happening = self.logs[spot.log].happenings[spot.number]
        match happening:
            case Published():
                return bisect_left(self._offsets, happening.offset)
            case Committed():
                return bisect_left(self._offsets, happening.resume_offset)
            case Redriven():
                below = bisect_right(self._offsets, happening.offset)
                if not below or self._offsets[below - 1] == happening.offset:
                    return below
                if below == len(self._offsets):
                    requirement = f"be at most {self._offsets[-1]}, up to which everything is published"
                    raise MergeError((self._entry(spot),), requirement)
                return below + 1
            case _:
                offset: int | None = getattr(happening, "offset", None)
                return 0 if offset is None else bisect_right(self._offsets, offset)

    def _blocking_by_time(self, spot: Spot) -> Spot | None:
        if self._error is None:
            return None
        earliest = self.logs[spot.log].earliest[spot.number] - self._error
        for place, head in enumerate(self._heads):
            log = self.logs[place]
            if place != spot.log and head < len(log.happenings) and log.latest[head] < earliest:
                return Spot(place, head)
        return None

    def _blocking_rest(self, spot: Spot) -> Spot | None:
        if not self._rests(spot):
            return None
        for place, head in enumerate(self._heads):
            is_left = place != spot.log and head < len(self.logs[place].happenings)
            if is_left and (place < spot.log or not self._rests(Spot(place, head))):
                return Spot(place, head)
        return None

    def _rests(self, spot: Spot) -> bool:
        """Whether an entry tells of the end of everything, and no clock says when that was."""
        happenings = self.logs[spot.log].happenings
        happening = happenings[spot.number]
        is_last = spot.number == len(happenings) - 1 and isinstance(happening, AtRest)
        return is_last and (self._error is None or happening.at_ms is None)

    # --- what an entry knows ----------------------------------------------------------------------------------------

    def _take(self, spot: Spot) -> None:
        place, number = spot
        clock = self._clocks[place][number - 1] if number else [0] * len(self.logs)
        below = self._below(spot)
        if below:
            clock = self._joined(clock, spot, self._spots[below - 1][1])
        delivery = self._deliveries.get(spot)
        if delivery is not None:
            clock = self._joined(clock, spot, delivery)
        if self._error is not None:
            clock = self._joined_by_time(clock, spot, self._error)
        if self._rests(spot):
            for other, head in enumerate(self._heads):
                if head:
                    clock = self._joined(clock, spot, Spot(other, head - 1))
        self._clocks[place].append(clock)
        self._heads[place] += 1
        self._told += isinstance(self.logs[place].happenings[number], Published)

    def _joined_by_time(self, clock: list[int], spot: Spot, error: int) -> list[int]:
        earliest = self.logs[spot.log].earliest[spot.number] - error
        earlier = self._earlier[spot.log]
        for place, log in enumerate(self.logs):
            if place != spot.log:
                while earlier[place] < len(log.happenings) and log.latest[earlier[place]] < earliest:
                    earlier[place] += 1
                if earlier[place]:
                    clock = self._joined(clock, spot, Spot(place, earlier[place] - 1))
        return clock

    def _joined(self, clock: list[int], spot: Spot, before: Spot) -> list[int]:
        """What an entry knows that also knows what another one does; the same list, if that is nothing new."""
        if before.log == spot.log or clock[before.log] > before.number:
            return clock
        theirs = self._clocks[before.log][before.number]
        joined = list(map(max, clock, theirs))
        joined[before.log] = before.number + 1
        return joined

    # --- contradictions ---------------------------------------------------------------------------------------------

    def _refuse(self) -> NoReturn:
        """Follow what waits for what until it comes back to where it was."""
        place = next(at for at, log in enumerate(self.logs) if self._heads[at] < len(log.happenings))
        met: list[int] = []
        entries: dict[int, tuple[Spot, ...]] = {}
        while place not in met:
            met.append(place)
            blocking = self._blocking(place)
            assert blocking is not None
            head = Spot(blocking.log, self._heads[blocking.log])
            # what blocks stands in its log behind that log's head, which is blocked itself
            entries[place] = (blocking,) if head == blocking else (blocking, head)
            place = blocking.log
        cycle = [spot for at in met[met.index(place) :] for spot in entries[at]]
        cycle.reverse()
        reasons = map(self._reason, cycle, [*cycle[1:], cycle[0]])
        raise MergeError(tuple(map(self._entry, cycle)), _CONTRADICTS, tuple(reasons))

    def _reason(self, one: Spot, other: Spot) -> str:
        """Why one entry comes before another one, which is the next of its log, or stands there behind the first."""
        if one.log == other.log and one.number < other.number:
            return "as the log says"
        if self._told < self._below(other):
            is_published = isinstance(self.logs[other.log].happenings[other.number], Published)
            return "as offsets grow" if is_published else "as nothing is told of an offset before it is published"
        return "as a delivery comes before its answer" if self._deliveries.get(other) == one else "by their times"

    def _entry(self, spot: Spot) -> LogEntry:
        return self.logs[spot.log].entry(spot.number)


class _Deliveries:
    """Of each message and consumer, where each log tells first of a delivery, by its number; and of any."""

    def __init__(self) -> None:
        self._all: dict[tuple[int, str], dict[int, Spot]] = {}
        self._numbered: dict[tuple[int, str, int | None], dict[int, Spot]] = {}

    def add(self, delivery: Delivered, spot: Spot) -> None:
        """Take the next one of a log."""
        name = delivery.offset, delivery.consumer
        self._all.setdefault(name, {}).setdefault(spot.log, spot)
        self._numbered.setdefault((*name, delivery.attempt), {}).setdefault(spot.log, spot)

    def of(self, answer: _Answer) -> dict[int, Spot]:
        """Return where each log tells first of one that an answer may name. What has no number may have any."""
        name = answer.offset, answer.consumer
        if answer.attempt is None:
            return self._all.get(name, {})
        same = self._numbered.get((*name, answer.attempt), {})
        unnumbered = self._numbered.get((*name, None), {})
        return {log: min(each[log] for each in (same, unnumbered) if log in each) for log in same | unnumbered}
