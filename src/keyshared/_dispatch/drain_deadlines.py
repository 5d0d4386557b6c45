"""How long a key that has moved may wait for the deliveries that others than its new owner still hold.

Which lanes drain is known in one place, the window's list of them. A lane has a deadline exactly while it stands there:
the list itself notes who enters and who leaves (`WatchedList`), and what was noted is looked at once, at the end of
each call. So a lane that leaves and comes back within one call has never stopped draining.
"""

from typing import TYPE_CHECKING, Final, cast

from keyshared._checks import require
from keyshared._dispatch.endings import Endings
from keyshared._dispatch.snapshot import Reader, first_offset, leads
from keyshared._dispatch.timers import Duties, Duty, Stage, Timers
from keyshared._window.lanes import Entry, Lane
from keyshared.effects import Effect, ReleaseReason
from keyshared.window import InFlightWindow

if TYPE_CHECKING:
    from keyshared._window.watched import WatchedList

__all__ = ["Drain", "DrainDeadlines"]


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

    def lowest(self) -> int:
        """The lowest offset that it ends."""
        return min((entry.offset for entry in self.open_entries()), default=0)


class DrainDeadlines:
    """Starts a timer for every lane that begins to drain, and stops it when the drain is over.

    Args:
        window: Whose lanes; its list of those that drain is watched.
        timers: Where their deadlines are kept.
        endings: Ends the deliveries that a lane has waited for long enough.
        timeout_ms: How long a lane may drain.
    """

    __slots__ = ("_draining", "_drains", "_endings", "_timeout_ms", "_timers", "_window", "duties")

    name: Final = "drains"

    def __init__(self, window: InFlightWindow, timers: Timers, endings: Endings, timeout_ms: int) -> None:
        self._window = window
        self._draining = cast("WatchedList", window.draining)
        self._timers = timers
        self._endings = endings
        self._timeout_ms = timeout_ms
        self._drains: dict[Lane, Drain] = {}
        # Of one offset, its own deadline acts before that of a drain.
        self.duties: Duties = {Drain: Duty(Stage.DELIVERIES, Drain.lowest, self.due, is_last=True)}

    def refresh(self, now: int, notices: list[Effect]) -> None:  # noqa: ARG002  # it tells nothing
        """Look at the lanes that entered or left the list since the last call. O(changes)."""
        changed = self._draining.changed
        for lane in changed:
            if lane not in self._draining:
                self._stop(lane)
            elif lane not in self._drains:
                self._start(lane, now + self._timeout_ms)
        changed.clear()

    def due(self, drain: Drain, notices: list[Effect], now: int) -> None:
        """End the deliveries that a lane has waited for; if it has to wait for others then, its time begins anew."""
        del self._drains[drain.lane]
        self._draining.changed[drain.lane] = None
        for entry in drain.open_entries():
            self._endings.end(entry, ReleaseReason.DRAIN_TIMEOUT, notices, now)

    def dump(self, now: int) -> object:
        """The first offset of each lane that drains, and the time it has left."""
        drains = ((first_offset(lane), self._drains[lane].deadline) for lane in self._draining)
        return [[first, deadline - now] for first, deadline in drains if deadline is not None] or None

    def load(self, data: Reader, now: int) -> None:
        """Set the deadlines of lanes that were draining."""
        for row in data.items():
            first, remaining = row.items(2)
            entry = self._window.find(first.integer())
            if entry is None or not leads(entry) or entry.lane.listed is not self._draining:
                raise row.refuse("be the first offset of a lane that drains")
            if entry.lane in self._drains:
                raise row.refuse("be the only deadline of its lane")
            self._start(entry.lane, now + remaining.remaining())
        if set(self._drains) != set(self._draining):
            raise data.refuse("be of every lane that drains, or absent, if they had no deadline before")

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless every lane that drains has one timer, and nothing else has. For tests; O(n)."""
        timed = [running.lane for running in self._timers.running() if isinstance(running, Drain)]
        require(len(timed) == len(set(timed)), "a lane that drains has one timer")
        require(set(timed) == set(self._draining), "lanes have a drain deadline exactly while they drain")
        require(set(timed) == set(self._drains), "drain deadlines are known by their lanes")

    def _start(self, lane: Lane, deadline: int) -> None:
        drain = self._drains[lane] = Drain(self._window, lane)
        self._timers.start(drain, deadline)

    def _stop(self, lane: Lane) -> None:
        drain = self._drains.pop(lane, None)
        if drain is not None:
            drain.deadline = None
