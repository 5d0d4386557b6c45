"""How long a key that has moved may wait for the deliveries that its previous owner still holds."""

from keyshared.lanes import Consumer, Entry, Lane, State
from keyshared.members import Member
from keyshared.timers import Timed, Timers
from keyshared.window import InFlightWindow

__all__ = ["Drain", "DrainDeadlines", "due_order"]


class Drain:
    """The drain of one lane: over with the holder's last delivery, or at the deadline.

    Attributes:
        lane: Which lane.
        holder: Whose deliveries it waits for.
        deadline: When it stops waiting.
    """

    __slots__ = ("deadline", "holder", "lane")

    def __init__(self, lane: Lane, holder: Consumer | None) -> None:
        self.lane = lane
        self.holder = holder
        self.deadline: int | None = None

    def open_entries(self) -> list[Entry]:
        """The deliveries that the lane waits for, in offset order. O(per-key limit)."""
        entries: list[Entry] = []
        entry = self.lane.head
        while entry is not None and entry is not self.lane.fresh:
            if entry.state == State.IN_FLIGHT:
                entries.append(entry)
            entry = entry.after
        return entries


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
            if drain is not None and not (drains and drain.holder is lane.holder):
                drain.deadline = None
                del self._drains[lane]
                drain = None
            if drains and drain is None:
                self.start(lane, now + self._timeout_ms)
        changed.clear()

    def start(self, lane: Lane, deadline: int) -> None:
        """Let a lane that drains do so until that deadline."""
        drain = self._drains[lane] = Drain(lane, lane.holder)
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
