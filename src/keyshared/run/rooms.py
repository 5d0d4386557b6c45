"""One budget of messages in memory for all logs: what is left of it, or of a log's own share."""

from typing import Generic, TypeVar

from keyshared.run.actions import Full, Roomy
from keyshared.run.log import Log

__all__ = ["Rooms"]

Message = TypeVar("Message")


class Rooms(Generic[Message]):
    """Counts messages in memory, and notices when a log becomes full or has room again.

    A log may use what all others leave, and its own share in any case: a log that is stuck starves nobody. So at most
    twice the budget is in memory.

    Args:
        budget: Messages in memory.
        logs: All logs, kept up to date by their owner.

    Attributes:
        full: Logs that were said to be full, and not yet to be roomy.
        refused: Logs of which somebody has heard that they have no room: they are said to be full, even if they are not
            any more. Whoever has heard it may wait for the word that there is room again.
    """

    def __init__(self, budget: int, logs: dict[str, Log[Message]]) -> None:
        self._budget = budget
        self._logs = logs
        self._used = 0
        self.full: dict[Log[Message], None] = {}
        self.refused: dict[Log[Message], None] = {}

    def count(self, log: Log[Message]) -> None:
        """Count the messages of a log anew. O(1)."""
        used = log.count()
        self._used += used - log.used
        log.used = used

    def room(self, log: Log[Message]) -> int:
        """How many messages of a log may be submitted now."""
        return max(0, min(self._most(log) - log.used, log.dispatcher.free_slots))

    def refuse(self, log: Log[Message]) -> None:
        """Note that somebody has heard that a log has no room."""
        if log not in self.full:
            self.refused[log] = None

    def newly_full(self, log: Log[Message]) -> list[Full[Message]]:
        """Return `Full` if a log has no room, and that was not said."""
        return [] if self.room(log) else self._note_full(log)

    def newly_refused(self) -> list[Full[Message]]:
        """Return `Full` for the logs whose room was asked for in vain, where that was not said."""
        told: list[Full[Message]] = []
        while self.refused:
            log, _ = self.refused.popitem()  # another thread may ask meanwhile
            if not log.is_leaving:
                told += self._note_full(log)
        return told

    def newly_roomy(self) -> list[Roomy[Message]]:
        """Return the logs that were full, and have a quarter of what they may use now free again."""
        roomy = [log for log in self.full if self.room(log) >= max(1, self._most(log) // 4)]
        for log in roomy:
            del self.full[log]
        return [Roomy(log) for log in roomy]

    def _note_full(self, log: Log[Message]) -> list[Full[Message]]:
        if log in self.full:
            return []
        self.full[log] = None
        return [Full(log)]

    def _most(self, log: Log[Message]) -> int:
        """How many messages of a log may be in memory now: what all others leave, or its share."""
        share = max(1, self._budget // len(self._logs))
        return max(share, self._budget - (self._used - log.used))

    def forget(self, log: Log[Message]) -> None:
        """Stop counting a log that leaves."""
        self._used -= log.used
        log.used = 0
        self.full.pop(log, None)
