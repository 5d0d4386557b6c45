"""How long a key that has moved may wait for the deliveries that others than its new owner still hold.

Which lanes drain is known in one place, the window's list of them. A lane has a deadline exactly while it stands there:
the list itself notes who enters and who leaves (`WatchedList`), and what was noted is looked at once, at the end of
each call. So a lane that leaves and comes back within one call has never stopped draining.
"""

from typing import NamedTuple

from keyshared._checks import require
from keyshared._dispatch.members import Member
from keyshared._dispatch.timers import Due, Timed, Timers
from keyshared._window.lanes import Entry, Lane, WatchedList
from keyshared.window import InFlightWindow

__all__ = ["Drain", "DrainDeadlines", "due_order"]


class Drain:
    """The drain of one lane: over with the last delivery that it waits for, or at the deadline.

    Attributes:
        lane: Which lane.
        deadline: When it stops waiting.
    """

    __slots__ = ("_window", "deadline", "lane")

    def __init__(self, window: InFlightWindow, lane: Lane) -> None:
        self._window = window
        self.lane = lane
        self.deadline: int | None = None

    def open_entries(self) -> list[Entry]:
        """The deliveries that the lane waits for, in offset order."""
        return self._window.awaited(self.lane)


class DrainDeadlines:
    """Starts a timer for every lane that begins to drain, and stops it when the drain is over.

    Args:
        window: Whose lanes.
        draining: Its list of those that drain.
        timers: Where their deadlines are kept.
        timeout_ms: How long a lane may drain.
    """

    __slots__ = ("_draining", "_drains", "_timeout_ms", "_timers", "_window")

    def __init__(self, window: InFlightWindow, draining: WatchedList, timers: Timers, timeout_ms: int) -> None:
        self._window = window
        self._draining = draining
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._drains: dict[Lane, Drain] = {}

    def deadline_of(self, lane: Lane) -> int | None:
        """When a lane stops draining, or None."""
        drain = self._drains.get(lane)
        return None if drain is None else drain.deadline

    def refresh(self, now: int) -> None:
        """Look at the lanes that entered or left the list since the last call. O(changes)."""
        changed = self._draining.changed
        for lane in changed:
            if lane not in self._draining:
                self._stop(lane)
            elif lane not in self._drains:
                self.start(lane, now + self._timeout_ms)
        changed.clear()

    def start(self, lane: Lane, deadline: int) -> None:
        """Let a lane that drains do so until that deadline."""
        drain = self._drains[lane] = Drain(self._window, lane)
        self._timers.start(drain, deadline)

    def expire(self, drain: Drain) -> list[Entry]:
        """End a drain whose deadline has come; if its lane has to wait for others after that, its time begins anew.

        Returns:
            The deliveries that it has waited for long enough.
        """
        del self._drains[drain.lane]
        self._draining.changed[drain.lane] = None
        return drain.open_entries()

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless every lane that drains has one timer, and nothing else has. For tests; O(n)."""
        timed = [running.lane for running in self._timers.running() if isinstance(running, Drain)]
        require(len(timed) == len(set(timed)), "a lane that drains has one timer")
        require(set(timed) == set(self._draining), "lanes have a drain deadline exactly while they drain")
        require(set(timed) == set(self._drains), "drain deadlines are known by their lanes")

    def _stop(self, lane: Lane) -> None:
        drain = self._drains.pop(lane, None)
        if drain is not None:
            drain.deadline = None


class _Rank(NamedTuple):
    """What decides who of those that are due acts first, field by field."""

    is_consumer: bool
    deadline: int
    lowest: int  # offset that it ends, or place in the order of joining
    is_drain: bool = False


def due_order(due: list[Due]) -> list[Timed]:
    """What fell due at one instant, in the order in which it acts: messages and drains first, consumers last."""
    return [timed for _, timed in sorted(due, key=_due_rank)]


def _due_rank(due: Due) -> _Rank:
    """By deadline, then by the lowest offset that it ends; of one offset its own deadline before that of a drain."""
    deadline, timed = due
    if isinstance(timed, Member):
        return _Rank(is_consumer=True, deadline=deadline, lowest=timed.order)
    if isinstance(timed, Drain):
        lowest = min((entry.offset for entry in timed.open_entries()), default=0)
        return _Rank(is_consumer=False, deadline=deadline, lowest=lowest, is_drain=True)
    return _Rank(is_consumer=False, deadline=deadline, lowest=timed.offset if isinstance(timed, Entry) else 0)
