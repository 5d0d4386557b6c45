"""Deadlines without scans: what is due, and when to come back.

Almost every deadline is an ack timeout, and those are all equally long: they fall due in the order in which they were
set, so a queue holds them. Everything else (retries, extensions, grace periods, drains) goes into a heap. A record is
stale, and silently passed over, when the deadline that its owner carries is not the one in the record; so ending a
timer is one assignment.
"""

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Protocol

__all__ = ["Timed", "Timers"]


class Timed(Protocol):
    """Whatever can have one deadline; None when it has none."""

    deadline: int | None


class Timers:
    """One deadline per object, on a clock of whole milliseconds that never goes back.

    Example:
        >>> from keyshared.lanes import Consumer
        >>> class Egg:
        ...     deadline = None
        >>> soft, hard = Egg(), Egg()
        >>> timers = Timers()
        >>> timers.start(hard, 600)
        >>> timers.start(soft, 240)
        >>> timers.next_deadline
        240
        >>> soft.deadline = None                   # taken out of the water
        >>> timers.next_deadline
        600
        >>> timers.pop_due(700) == [(600, hard)]
        True
    """

    __slots__ = ("_count", "_dues", "_heap", "_heap_limit", "_queue", "_queue_limit")

    def __init__(self) -> None:
        self._dues: deque[int] = deque()
        self._queue: deque[Timed] = deque()
        self._heap: list[tuple[int, int, Timed]] = []
        self._count = 0
        self._queue_limit = self._heap_limit = 64

    def start(self, timed: Timed, deadline: int) -> None:
        """Set an object's deadline, whatever it was before. O(log n) amortised."""
        timed.deadline = deadline
        self._count += 1
        heappush(self._heap, (deadline, self._count, timed))
        if len(self._heap) > self._heap_limit:
            live = {id(record[2]): record for record in self._heap if record[2].deadline == record[0]}
            self._heap = list(live.values())
            heapify(self._heap)
            self._heap_limit = 2 * len(self._heap) + 64

    def start_last(self, timed: Timed, deadline: int) -> None:
        """Set a deadline that is not before any other set by this method. O(1) amortised."""
        timed.deadline = deadline
        dues, queue = self._dues, self._queue
        while dues and queue[0].deadline != dues[0]:
            dues.popleft()
            queue.popleft()
        dues.append(deadline)
        queue.append(timed)
        if len(dues) > self._queue_limit:
            self._drop_stale()

    def _drop_stale(self) -> None:
        # By object: one that was set to the same deadline twice has two records that are not stale.
        queue = {id(timed): timed for due, timed in zip(self._dues, self._queue, strict=True) if timed.deadline == due}
        live = list(queue.values())
        self._dues = deque(timed.deadline for timed in live if timed.deadline is not None)
        self._queue = deque(live)
        self._queue_limit = 2 * len(live) + 64

    @property
    def next_deadline(self) -> int | None:
        """The earliest deadline of anything, or None. O(log n) amortised."""
        dues, queue, heap = self._dues, self._queue, self._heap
        while dues and queue[0].deadline != dues[0]:
            dues.popleft()
            queue.popleft()
        while heap and heap[0][2].deadline != heap[0][0]:
            heappop(heap)
        if heap and dues:
            return min(heap[0][0], dues[0])
        return heap[0][0] if heap else dues[0] if dues else None

    def pop_due(self, now: int) -> list[tuple[int, Timed]]:
        """Everything that is due at ``now``, with its deadline; none of it has one any more. In no order."""
        due: list[tuple[int, Timed]] = []
        dues, queue, heap = self._dues, self._queue, self._heap
        while dues and dues[0] <= now:
            _take(due, dues.popleft(), queue.popleft())
        while heap and heap[0][0] <= now:
            deadline, _, timed = heappop(heap)
            _take(due, deadline, timed)
        return due


def _take(due: list[tuple[int, Timed]], deadline: int, timed: Timed) -> None:
    if timed.deadline == deadline:
        timed.deadline = None
        due.append((deadline, timed))
