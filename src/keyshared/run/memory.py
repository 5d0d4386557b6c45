"""The memory budget: how many messages of all logs are in memory, and how many more a log may submit."""

from typing import Generic, TypeVar

from keyshared.run.actions import Full, Roomy
from keyshared.run.assignment import Assignment

__all__ = ["MemoryBudget"]

Message = TypeVar("Message")


class MemoryBudget(Generic[Message]):
    """Counts messages in memory, and notices when a log becomes full or has capacity again.

    A log may use what all others leave, and its own share in any case: a log that is stuck starves no other.

    Args:
        budget: Messages in memory.
        capacity: How many runs there may be at once: what idle workers get beyond the budget.
        logs: All logs, kept up to date by their owner.

    Attributes:
        full: Logs that were reported as full, and not yet as roomy.
        refused: Logs whose reader has learnt that they have no capacity: they are reported as full, even if they are
            not full any more, because the reader may wait for the report that there is capacity again.
    """

    def __init__(self, budget: int, capacity: int, logs: dict[str, Assignment[Message]]) -> None:
        self._budget = budget
        self._capacity = capacity
        self._logs = logs
        self._used = 0
        self.full: dict[Assignment[Message], None] = {}
        self.refused: dict[Assignment[Message], None] = {}

    def count(self, log: Assignment[Message]) -> None:
        """Update the count of the messages of a log. O(1)."""
        used = log.count()
        self._used += used - log.used
        log.used = used

    def room(self, log: Assignment[Message], *, is_idle: bool = False) -> int:
        """Return how many messages of a log may be submitted now.

        Args:
            log: The log.
            is_idle: Whether workers have nothing to do, and the log can leave what waits where it is: then all that is
                in memory waits for something, and what follows may not.
        """
        most = self._most(log)
        room = most - log.used
        if is_idle:
            room = max(room, self._capacity, most // 2)
        tracked = log.most_tracked - log.dispatcher.restart_mark.outstanding
        return max(0, min(room, log.dispatcher.free_slots, tracked))

    def refuse(self, log: Assignment[Message]) -> None:
        """Note that the reader of a log has learnt that it has no capacity."""
        if log not in self.full:
            self.refused[log] = None

    def newly_full(self, log: Assignment[Message], *, is_idle: bool) -> list[Full[Message]]:
        """Return `Full` if a log has no capacity and was not reported as full."""
        return [] if self.room(log, is_idle=is_idle) else self._note_full(log)

    def newly_refused(self) -> list[Full[Message]]:
        """Return `Full` for the refused logs that were not reported as full."""
        full: list[Full[Message]] = []
        while self.refused:
            log, _ = self.refused.popitem()  # another thread may ask meanwhile
            if not log.is_leaving:
                full += self._note_full(log)
        return full

    def newly_roomy(self, *, is_idle: bool) -> list[Roomy[Message]]:
        """Return the logs that were full, and have a quarter of what they may use now free again."""
        roomy = [log for log in self.full if self._is_roomy(log, is_idle=is_idle and not log.is_hungry)]
        for log in roomy:
            del self.full[log]
        return [Roomy(log) for log in roomy]

    def _is_roomy(self, log: Assignment[Message], *, is_idle: bool) -> bool:
        return self.room(log, is_idle=is_idle) >= max(1, self._most(log) // 4)

    def _note_full(self, log: Assignment[Message]) -> list[Full[Message]]:
        if log in self.full:
            return []
        self.full[log] = None
        return [Full(log)]

    def _most(self, log: Assignment[Message]) -> int:
        """Return how many messages of a log may be in memory now: what all others leave, or its share."""
        share = max(1, self._budget // len(self._logs))
        return min(max(log.part, share), max(share, self._budget - (self._used - log.used)))

    def forget(self, log: Assignment[Message]) -> None:
        """Stop counting a log that leaves."""
        self._used -= log.used
        log.used = 0
        self.full.pop(log, None)
