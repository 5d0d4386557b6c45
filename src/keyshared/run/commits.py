"""Commits: when the place where a restart begins is stored anew."""

from typing import Generic, TypeVar

from keyshared.run.actions import Commit
from keyshared.run.log import Log
from keyshared.run.values import RunnerConfig

__all__ = ["Commits"]

Message = TypeVar("Message")


class Commits(Generic[Message]):
    """Asks for a commit when a restart would redo less than before: one of a log at a time, and not too often.

    Args:
        config: Settings.
        is_on: Whether there is somebody to commit.

    Attributes:
        changed: Logs of which a restart may have something else to do than at their last commit.
    """

    def __init__(self, config: RunnerConfig, *, is_on: bool) -> None:
        self._config = config
        self._is_on = is_on
        self.changed: dict[Log[Message], None] = {}

    def note(self, log: Log[Message]) -> None:
        """Look at a log with the next commits."""
        self.changed[log] = None

    def hurry(self) -> None:
        """Commit what has changed without waiting for its time."""
        for log in self.changed:
            log.commit_at_ms = 0

    def due(self, *, now_ms: int) -> list[Commit[Message]]:
        """Return the commits that are to be made now."""
        commits = []
        for log in list(self.changed):
            if log.is_unstorable or not self._is_on:
                del self.changed[log]
            elif not log.is_committing and (log.commit_at_ms <= now_ms or log.waits_for_no_handler()):
                del self.changed[log]
                commits += self._of(log, now_ms)
        return commits

    def _of(self, log: Log[Message], now_ms: int) -> list[Commit[Message]]:
        position = log.dispatcher.resume_offset
        if position is None:
            return []
        now_stored = position, log.cursor_token(self._config.token_bytes)
        if now_stored == log.stored:
            return []
        log.stored = now_stored
        log.is_committing = True
        log.commit_at_ms = now_ms + self._config.commit_every_ms
        return [Commit(log, *now_stored)]
