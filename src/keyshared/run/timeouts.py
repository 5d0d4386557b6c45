"""Handlers that run for too long."""

from typing import Generic, TypeVar

from keyshared.run.actions import Overdue
from keyshared.run.log import Log

__all__ = ["Timeouts"]

Message = TypeVar("Message")


class Timeouts(Generic[Message]):
    """Names each handler whenever it has run for the whole timeout once more. It counts from the handler's start.

    Args:
        timeout_ms: How long a handler may run; None for ever.
        logs: All logs, kept up to date by their owner.

    Attributes:
        due_ms: When to `look` next; None while nothing runs.
    """

    def __init__(self, timeout_ms: int | None, logs: dict[str, Log[Message]]) -> None:
        self._timeout_ms = timeout_ms
        self._logs = logs
        self.due_ms: int | None = None

    def begin(self, *, now_ms: int) -> bool:
        """Return whether ``due_ms`` is new, now that a run begins. One that begins later is due later."""
        if self._timeout_ms is None or self.due_ms is not None:
            return False
        self.due_ms = now_ms + self._timeout_ms
        return True

    def look(self, *, now_ms: int) -> list[Overdue[Message]]:
        """Return the handlers that have run for too long, and move ``due_ms``."""
        overdue = []
        runs = [run for log in self._logs.values() for run in log.runs]
        timeout_ms = self._timeout_ms or 0
        next_ms = now_ms + timeout_ms
        for run in runs:
            if run.started_ms is None:
                continue  # still on its way to a worker: its time has not begun
            due_ms = max(run.started_ms, run.named_ms) + timeout_ms
            if due_ms > now_ms:
                next_ms = min(next_ms, due_ms)
            else:
                overdue.append(Overdue(run, now_ms - run.started_ms))
                run.named_ms = now_ms
        self.due_ms = next_ms if runs else None
        return overdue
