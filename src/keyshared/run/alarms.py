"""What is to be done at a time, in the order of time."""

from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["Alarms"]


class Alarms:
    """Functions by the time at which they are due; of one time, the oldest alarm first.

    Example:
        >>> alarms = Alarms()
        >>> alarms.at(20, lambda: print("late"))
        >>> alarms.at(10, lambda: print("early"))
        >>> alarms.ring(now_ms=15)
        early
        >>> alarms.next_ms
        20
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def next_ms(self) -> int | None:
        """When the next one is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def at(self, due_ms: int, act: Callable[[], None]) -> None:
        """Set an alarm. There is no way to take it back: what it does looks at what is true then."""
        self._count += 1
        heappush(self._heap, (due_ms, self._count, act))

    def ring(self, *, now_ms: int) -> None:
        """Do all that is due."""
        while self._heap and self._heap[0][0] <= now_ms:
            heappop(self._heap)[2]()
