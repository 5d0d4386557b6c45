"""Deadlines without scans: what is due, and when to come back.

Almost every deadline is an ack timeout, and those are all equally long: they fall due in the order in which they were
set, so a queue holds them, one list for each instant. Everything else (retries, extensions, grace periods, drains) goes
into a heap. A record is stale, and silently passed over, when the deadline that its owner carries is not the one in the
record; so ending a timer is one assignment.

What happens when a deadline has come is a *duty*, looked up by the class of what is due, so that nobody has to know all
the classes that have deadlines.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

__all__ = ["Due", "Duties", "Duty", "Stage", "Timed", "Timers", "due_order"]

_SLACK: Final = 64  # stale records that may stay beyond one for each live one


class Timed(Protocol):
    """An object with one deadline; None when it has none."""

    deadline: int | None


class Due(NamedTuple):
    """Something whose deadline has come."""

    deadline: int
    timed: Timed


class Stage(IntEnum):
    """Which kinds of things act before which others, however long they are due."""

    RESERVATIONS = 0  # of leases, which end without a count
    DELIVERIES = 1  # what ends or retries single deliveries
    SESSIONS = 2
    GROUPS = 3
    CONSUMERS = 4


class Duty(NamedTuple):
    """The action when the deadline of an object of one class has come.

    Attributes:
        stage: Those of a lower stage act first.
        rank: Of one stage and deadline, the object of the lowest rank acts first.
        act: What happens then; something that acted before may have done it already.
        is_last: Whether it acts after others of the same rank.
    """

    stage: Stage
    rank: Callable[[Any], int]
    act: Callable[[Any, int], None]
    is_last: bool = False


Duties: TypeAlias = dict[type[Any], Duty]
"""The duty of each class that can have a deadline."""


class _Record(NamedTuple):
    """One deadline in the heap; the number keeps two of one instant from being compared further."""

    deadline: int
    number: int
    timed: Timed

    @property
    def is_live(self) -> bool:
        return self.timed.deadline == self.deadline


class Timers:
    """One deadline per object, on a clock of whole milliseconds that never goes back."""

    __slots__ = ("_count", "_heap", "_heap_limit", "_latest", "_latest_due", "_queue", "_queue_limit", "_queued")

    def __init__(self) -> None:
        self._queue: deque[tuple[int, list[Timed]]] = deque()  # what falls due at one instant, instant by instant
        self._latest: list[Timed] = []
        self._latest_due: int | None = None
        self._queued = 0
        self._heap: list[_Record] = []
        self._count = 0
        self._queue_limit = self._heap_limit = _SLACK

    def start(self, timed: Timed, deadline: int) -> None:
        """Set an object's deadline, whatever it was before. O(log n) amortised."""
        timed.deadline = deadline
        self._count += 1
        heappush(self._heap, _Record(deadline, self._count, timed))
        if len(self._heap) > self._heap_limit:
            # By object: one that was set to the same deadline twice has two records that are not stale.
            live = {id(record.timed): record for record in self._heap if record.is_live}
            self._heap = list(live.values())
            heapify(self._heap)
            self._heap_limit = 2 * len(self._heap) + _SLACK

    def start_last(self, several: Sequence[Timed], deadline: int) -> int | None:
        """Take objects whose deadline is not before any other that was given here. O(1) amortised for each.

        Returns:
            The deadline, which the caller has to set: compiled, only who knows the class does that quickly. It is one
            int for all of an instant, a tenth of what a delivery takes.
        """
        if self._queued >= self._queue_limit:
            self._drop_stale()
        if deadline != self._latest_due:
            self._begin_instant(deadline)
        self._latest += several
        self._queued += len(several)
        return self._latest_due

    def _begin_instant(self, deadline: int) -> None:
        self._latest = []
        self._latest_due = deadline
        self._queue.append((deadline, self._latest))

    def _drop_stale(self) -> None:
        queue: deque[tuple[int, list[Timed]]] = deque()
        self._queued = 0
        for due, records in self._queue:
            live = {id(timed): timed for timed in records if timed.deadline == due}
            if live:
                queue.append((due, list(live.values())))
                self._queued += len(live)
        self._queue = queue
        self._latest_due = None
        self._queue_limit = 2 * self._queued + _SLACK

    @property
    def next_deadline(self) -> int | None:
        """The earliest deadline of anything, or None. O(log n) amortised."""
        queue, heap = self._queue, self._heap
        while queue and not self._is_live(*queue[0]):
            self._pop_first()
        while heap and not heap[0].is_live:
            heappop(heap)
        if heap and queue:
            return min(heap[0].deadline, queue[0][0])
        return heap[0].deadline if heap else queue[0][0] if queue else None

    def pop_due(self, now: int) -> list[Due]:
        """Everything that is due at ``now``, with its deadline; none of it has one any more. In no order."""
        due: list[Due] = []
        heap = self._heap
        while self._queue and self._queue[0][0] <= now:
            deadline, records = self._pop_first()
            for timed in records:
                _take(due, deadline, timed)
        while heap and heap[0].deadline <= now:
            deadline, _, timed = heappop(heap)
            _take(due, deadline, timed)
        return due

    def running(self) -> Iterator[Timed]:
        """Yield all that will fall due, once for each record that says so. For tests; O(records)."""
        for due, records in self._queue:
            yield from (timed for timed in records if timed.deadline == due)
        yield from (record.timed for record in self._heap if record.is_live)

    def _is_live(self, due: int, records: list[Timed]) -> bool:
        """Whether anything in the records of one instant is not stale; drops stale ones from their end."""
        while records and records[-1].deadline != due:
            records.pop()
            self._queued -= 1
        return bool(records)

    def _pop_first(self) -> tuple[int, list[Timed]]:
        due, records = self._queue.popleft()
        self._queued -= len(records)
        if due == self._latest_due:
            self._latest_due = None
        return due, records


def _take(due: list[Due], deadline: int, timed: Timed) -> None:
    if timed.deadline == deadline:
        timed.deadline = None
        due.append(Due(deadline, timed))


def due_order(due: list[Due], duties: Duties) -> list[tuple[Duty, Timed]]:
    """Return what fell due by one instant, in the order in which it acts, and what it does."""
    ranked = [(duties[type(timed)], deadline, timed) for deadline, timed in due]
    ranked.sort(key=_rank)
    return [(duty, timed) for duty, _, timed in ranked]


def _rank(due: tuple[Duty, int, Timed]) -> tuple[int, int, int, bool]:
    duty, deadline, timed = due
    return duty.stage, deadline, duty.rank(timed), duty.is_last
