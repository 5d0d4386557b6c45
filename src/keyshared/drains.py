"""How long a key that has moved may wait for the deliveries that its previous owner still holds."""

from keyshared.lanes import Entry, Lane
from keyshared.members import Member
from keyshared.timers import Timed, Timers
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

    A quarantined key waits for its open deliveries too, but has not moved to another consumer: it gets no deadline.
    """

    __slots__ = ("_drains", "_timeout_ms", "_timers", "_window")

    def __init__(self, window: InFlightWindow, timers: Timers, timeout_ms: int) -> None:
        self._window = window
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._drains: dict[Lane, Drain] = {}

    def deadline_of(self, lane: Lane) -> int | None:
        """When a lane stops draining, or None."""
        drain = self._drains.get(lane)
        return None if drain is None else drain.deadline

    def refresh(self, now: int) -> None:
        """Look at the lanes that entered or left the draining list since the last call."""
        changed = self._window.drain_changes
        for lane in changed:
            drains = lane.listed is self._window.draining and lane.key not in self._window.quarantined
            drain = self._drains.get(lane)
            if drains and drain is None:
                self.start(lane, now + self._timeout_ms)
            elif drain is not None and not drains:
                drain.deadline = None
                del self._drains[lane]
        changed.clear()

    def start(self, lane: Lane, deadline: int) -> None:
        """Let a lane that drains do so until that deadline."""
        drain = self._drains[lane] = Drain(self._window, lane)
        self._timers.start(drain, deadline)


def due_order(due: list[tuple[int, Timed]]) -> list[Timed]:
    """What fell due at one instant, in the order in which it acts: messages and drains first, consumers last."""
    return [timed for _, timed in sorted(due, key=_due_rank)]


def _due_rank(due: tuple[int, Timed]) -> tuple[bool, int, int, bool]:
    deadline, timed = due
    if isinstance(timed, Member):
        return True, deadline, timed.order, False
    if isinstance(timed, Drain):
        return False, deadline, min((entry.offset for entry in timed.open_entries()), default=0), True
    return False, deadline, timed.offset if isinstance(timed, Entry) else 0, False
