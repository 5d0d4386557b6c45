"""What both runners have in common: what they are made of, and everything that answers at once."""

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from keyshared.dispatcher import Blocking
from keyshared.hashing.named import Key
from keyshared.run.values import BusyKey, Hooks, RunnerConfig, RunnerStats

__all__ = ["Host"]

Message = TypeVar("Message")


class Host(Generic[Message]):
    """The part of a runner that never waits."""

    def add_log(self, log: str, *, start: int | None = None, resume_from: str | None = None) -> None:
        """Begin with a log: a partition, a stream, a queue. It may have been here before.

        A handler that still works for an earlier stay of the log holds its key until it ends.

        Args:
            log: Its name.
            start: Offset to begin with, if the log was committed up to there; what lies below is done. None: the first
                submitted message is the beginning, and is committed as such.
            resume_from: Token of the last commit; its position counts instead of ``start``.

        Raises:
            ConfigError: The name is there already, or an argument can never work.
            SnapshotError: The token is damaged or foreign: begin with ``start`` alone, and redo what lies above.
            StoppedError: The runner stops.
        """
        raise NotImplementedError

    def lose_log(self, log: str) -> None:
        """Forget a log that belongs to somebody else already: cancel what runs, commit nothing, ignore its answers.

        Raises:
            UnknownLogError: There is no such log.
        """
        raise NotImplementedError

    def try_submit(self, log: str, offset: int, key: Key, message: Message) -> bool:
        """Take the next message of a log if there is room. Never waits; `submit` says what it raises.

        Returns:
            Whether it was taken.
        """
        raise NotImplementedError

    def room(self, log: str) -> int:
        """Return how many messages of a log would be taken without waiting; pause its reader at 0.

        Raises:
            UnknownLogError: There is no such log.
            StoppedError: The runner stops.
        """
        raise NotImplementedError

    def unblock(self, log: str, key: Key) -> None:
        """Try all blocked messages of a key again (`Poison.BLOCK`), and end its quarantine.

        Raises:
            UnknownLogError: There is no such log.
        """
        raise NotImplementedError

    @property
    def error(self) -> BaseException | None:
        """What stopped the runner; None while it runs, and after an orderly stop."""
        raise NotImplementedError

    def stats(self) -> RunnerStats:
        """Return the figures of this moment. O(logs)."""
        raise NotImplementedError

    def why_blocked(self, log: str, offset: int) -> Blocking | None:
        """Return what a message waits for; None if it is at a handler, put off, or done.

        Raises:
            UnknownLogError: There is no such log.
        """
        raise NotImplementedError

    def busiest_keys(self, most: int = 10) -> list[BusyKey]:
        """Return the keys with the most messages that are not done, the busiest first. O(messages not done)."""
        raise NotImplementedError
