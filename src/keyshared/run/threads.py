"""The runner for handlers that block: a pool of threads, and on request processes."""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from types import TracebackType
from typing import Self

from keyshared.dispatcher import Message as Row
from keyshared.hashing.named import Key
from keyshared.run.host import Host, Message
from keyshared.run.values import Hooks, Letter, RunnerConfig

__all__ = ["ThreadRunner"]


class ThreadRunner(Host[Message]):
    """Runs handlers in threads: one message of a key at a time, in order, different keys at once.

    A handler that returns has done its message. One that raises `Reject` gives it up, `RetryLater` puts it off, any other
    `Exception` is a failure and is retried. An exception that is no `Exception` (`SystemExit`, a cancellation) gives the
    message back: it comes again after the first delay of the retry policy, and no failure is counted.

    All methods may be called from any thread. Whatever fails in ``commit``, ``dead_letter``, ``load`` or a hook stops the
    runner: handlers finish, what is done is committed, and every call raises that error from then on.

    Args:
        handle: Called with each message. It has to be safe to call from several threads.
        commit: Stores where a restart begins: log, position (the next offset to read) and token. Called by one thread,
            for one log at a time, whenever a restart would redo less than before, and never backwards. It returns when
            the commit is made.
        dead_letter: Stores a message that was given up; its key waits until it returns. It is tried again if it raises.
            Without it a message that should go to the dead letters stops the runner with the handler's error.
        load: Reads a message again that was left in the log: log and offset. Returns None if it is no longer there.
            Without it all messages stay in memory.
        executor: Makes the executor in which one worker runs its handlers, for example
            ``lambda: ProcessPoolExecutor(1)`` for handlers that compute. If its process dies, the message that it had
            has failed, and the worker gets a new one. Handler, messages and errors have to be picklable then.
        hooks: Functions that are told what happens.
        config: Settings.

    Example:
        >>> done = []
        >>> with ThreadRunner(done.append) as runner:
        ...     runner.add_log("orders")
        ...     for offset, message in enumerate(["created", "paid", "shipped"]):
        ...         runner.submit("orders", offset, "order-1", message)
        >>> done
        ['created', 'paid', 'shipped']
    """

    def __init__(
        self,
        handle: Callable[[Message], object],
        *,
        commit: Callable[[str, int, str], object] | None = None,
        dead_letter: Callable[[Letter[Message]], object] | None = None,
        load: Callable[[str, int], Message | None] | None = None,
        executor: Callable[[], Executor] | None = None,
        hooks: Hooks | None = None,
        config: RunnerConfig | None = None,
    ) -> None:
        raise NotImplementedError

    def submit(self, log: str, offset: int, key: Key, message: Message) -> None:
        """Take the next message of a log; wait while there is no room for it.

        Args:
            log: Its log.
            offset: Greater than any of this log before; gaps are fine.
            key: What it is ordered by; None for nothing.
            message: What the handler gets.

        Raises:
            OffsetOrderError: The offset is not above the last one. Nothing was taken, and the runner goes on.
            KeyTypeError: The key is neither bytes, str nor None. As above.
            UnknownLogError: There is no such log, or it left while this waited.
            StoppedError: The runner stops; if an error made it stop, that is raised instead.
        """
        raise NotImplementedError

    def submit_many(self, log: str, messages: Iterable[Row[Message]]) -> None:
        """Take several messages of a log, each an offset, a key and a message: as `submit` for one after another."""
        raise NotImplementedError

    def remove_log(self, log: str, within_ms: int | None = None) -> bool:
        """End with a log: start nothing more of it, let its handlers finish, commit, and forget it. Waits for that.

        Args:
            log: Its name.
            within_ms: How long handlers may go on; by default ``stop_ms`` of the settings. What runs longer is given
                back to the log: it is not committed, and what its handler answers later does not count.

        Returns:
            Whether every handler has finished in time.

        Raises:
            UnknownLogError: There is no such log.
        """
        raise NotImplementedError

    def drain(self, within_ms: int | None = None) -> bool:
        """Wait until everything that was submitted is done and committed.

        Args:
            within_ms: How long; None for as long as something can still happen by itself.

        Returns:
            Whether all is done. If not, the time is over, or what is left waits for an operator (`Poison.BLOCK`).
        """
        raise NotImplementedError

    def stop(self, within_ms: int | None = None) -> bool:
        """Stop: take nothing more, start nothing more, let handlers finish, commit, and end. Twice does no harm.

        Args:
            within_ms: As for `remove_log`.

        Returns:
            Whether every handler has finished in time. A thread that has not works on and is left to the interpreter.

        Raises:
            BaseException: What has stopped the runner before, if that was an error.
        """
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain and stop; after an error in the block, stop without draining."""
        raise NotImplementedError
