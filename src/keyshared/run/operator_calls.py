"""What an operator does with a runner, or with a consumer that has one: look, hold, skip, let go, redrive."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from keyshared.dispatcher import Blocking
from keyshared.hashing import Key
from keyshared.run.engine import Engine
from keyshared.run.reports import Stuck
from keyshared.run.values import BusyKey, DeadLetter

__all__ = ["Verbs"]

Answer = TypeVar("Answer")


class Verbs(ABC):
    """The same calls on `ThreadRunner`, `AsyncRunner` and every consumer that is built on them.

    Calls about one message or about the dead letters of a key name their log. Calls about a key or a group count for
    all logs, and for logs that come later. All of them raise `UnknownLogError` for a log that is not there, and
    `StoppedError`, or the error that stopped the runner, once it has stopped.

    Example:
        >>> from keyshared import Poison
        >>> from keyshared.run import Reject, RunnerConfig, ThreadRunner
        >>> def handle(message):
        ...     if message == "bad":
        ...         raise Reject("no such customer")
        >>> with ThreadRunner(handle, config=RunnerConfig(poison=Poison.BLOCK)) as runner:
        ...     runner.add_log("orders", start=0)
        ...     runner.submit_many("orders", [(0, "order-7", "bad"), (1, "order-7", "good")])
        ...     assert not runner.drain()  # an operator looks, and lets the key go
        ...     stuck, = runner.stuck()
        ...     (stuck.offset, stuck.key, stuck.behind), runner.park("orders", 0), runner.drain()
        0
        ((0, b'order-7', 1), True, True)
    """

    @abstractmethod
    def _control(self, act: Callable[[Engine[Any]], Answer]) -> Answer:
        """Call a function with the engine where that is safe, carry out what it wants done, return what it returns."""

    # look

    def stuck(self, least_ms: int = 1_000) -> list[Stuck]:
        """Return the messages that keep others or the position waiting, oldest first; each prints as one line.

        These are the messages whose handler has run for a while, that are blocked, wait for a retry or for the store of
        dead letters, or are paused; of a paused group only the first one. O(messages not done).

        Args:
            least_ms: How long a handler has to run to be among them.
        """
        return self._control(lambda engine: engine.stuck(least_ms))

    def why_blocked(self, log: str, offset: int) -> Blocking | None:
        """Return what a message waits for; None if it is at a handler, or done."""
        return self._control(lambda engine: engine.why_blocked(log, offset))

    def busiest_keys(self, most: int = 10) -> list[BusyKey]:
        """Return the keys with the most messages that are not done, the busiest first. O(messages not done)."""
        return self._control(lambda engine: engine.busiest_keys(most))

    # one message, or one key

    def unblock(self, log: str, key: Key) -> bool:
        """Try all blocked messages of a key again (`Poison.BLOCK`), and end its quarantine.

        Returns:
            Whether a message of the key was blocked, or the key in quarantine.
        """
        return self._control(lambda engine: engine.unblock(log, key))

    def park(self, log: str, offset: int) -> bool:
        """Skip a message that is blocked or waits for anything else; its key goes on.

        Returns:
            Whether it was given up: not if it is at a handler, or done.
        """
        return self._control(lambda engine: engine.park(log, offset))

    def gone(self, log: str, offset: int) -> bool:
        """Settle a message, as one that its log does not have any more; if it is at a handler, when that ends.

        Returns:
            Whether it was not done before.
        """
        return self._control(lambda engine: engine.gone(log, offset))

    def pause_key(self, key: Key) -> None:
        """Hold a key: start nothing of it until `resume_key`. A handler that runs may finish."""
        self._control(lambda engine: engine.pause_key(key))

    def resume_key(self, key: Key) -> None:
        """Resume a key that `pause_key` holds."""
        self._control(lambda engine: engine.resume_key(key))

    def skip_key(self, key: Key) -> int:
        """Skip all messages of a key that were read and are not at a handler; return how many there were."""
        return self._control(lambda engine: engine.skip_key(key))

    def redrive(self, log: str, key: Key, dead_letters: Iterable[DeadLetter[Any]]) -> int:
        """Handle dead letters of a key again, each at the place in its key that it always had.

        Args:
            log: Their log.
            key: Their key.
            dead_letters: As ``dead_letter`` got them, in any order. Take each out of the store when it is done; until
                then you may redrive it once more.

        Returns:
            How many were taken; the others are on their way already.

        Raises:
            ConfigError: The configuration has no ``redrive``.
            RedriveTooEarlyError: The log was not read as far as one of them yet.
            WindowFullError: There are more of them than free slots.
        """
        given = list(dead_letters)
        return self._control(lambda engine: engine.redrive(log, key, given))

    # groups

    def set_group(
        self,
        name: str,
        *,
        weight: int = 1,
        max_in_flight: int | None = None,
        per_second: int | None = None,
        burst: int = 1,
    ) -> None:
        """Set all limits of a group of keys, of each log by itself.

        Args:
            name: The group; ``""`` has the keys that are in no other.
            weight: How many turns in a row its keys get.
            max_in_flight: How many of its messages are handled at once; None for no limit.
            per_second: How many of its handlers may begin in a second, in the long run; None for no limit.
            burst: How many of them may begin at once.

        Raises:
            ArgumentError: There are no groups, or a limit is out of range.
        """
        limits = {"weight": weight, "max_in_flight": max_in_flight, "per_second": per_second, "burst": burst}
        self._control(lambda engine: engine.set_group(name, limits))

    def pause_group(self, name: str) -> None:
        """Hold a group: start nothing of it until `resume_group`. Raises as `set_group`."""
        self._control(lambda engine: engine.pause_group(name))

    def resume_group(self, name: str) -> None:
        """Resume a group that `pause_group` or a ``RetryLater(group=True)`` holds. Raises as `set_group`."""
        self._control(lambda engine: engine.resume_group(name))

    def skip_group(self, name: str) -> int:
        """Skip all messages of a group that were read and are not at a handler; return how many there were."""
        return self._control(lambda engine: engine.skip_group(name))
