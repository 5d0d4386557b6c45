"""The runner for coroutines: tasks of one event loop."""

from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from types import TracebackType
from typing import Self

from keyshared.dispatcher import Message as Row
from keyshared.hashing.named import Key
from keyshared.run.host import Host, Message
from keyshared.run.values import Hooks, Letter, RunnerConfig

__all__ = ["AsyncRunner"]


class AsyncRunner(Host[Message]):
    """Runs handlers as tasks of one event loop: one message of a key at a time, in order, different keys at once.

    Handlers end as those of `ThreadRunner` do. A coroutine that runs for too long is cancelled, and so is one that has
    not finished when the runner stops or its log leaves; either way nothing of its key runs before it has ended. A
    handler that is no coroutine function runs in a thread, and can be waited for only.

    Use it inside one running loop. What fails in ``commit``, ``dead_letter``, ``load`` or a hook stops the runner, as
    in `ThreadRunner`.

    Args:
        handle: Called with each message: a coroutine function, or a function that runs in a thread.
        commit: As for `ThreadRunner`; a function or a coroutine function. A function must not block.
        dead_letter: As for `ThreadRunner`; a function or a coroutine function.
        load: As for `ThreadRunner`; a function or a coroutine function.
        executor: As for `ThreadRunner`; ``handle`` must be no coroutine function then.
        hooks: Functions that are told what happens.
        config: Settings.

    Example:
        >>> import asyncio
        >>> done = []
        >>> async def handle(message):
        ...     done.append(message)
        >>> async def main():
        ...     async with AsyncRunner(handle) as runner:
        ...         runner.add_log("orders")
        ...         for offset, message in enumerate(["created", "paid", "shipped"]):
        ...             await runner.submit("orders", offset, "order-1", message)
        >>> asyncio.run(main())
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

    async def submit(self, log: str, offset: int, key: Key, message: Message) -> None:
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

    async def submit_many(self, log: str, messages: Iterable[Row[Message]]) -> None:
        """Take several messages of a log, each an offset, a key and a message: as `submit` for one after another."""
        raise NotImplementedError

    async def remove_log(self, log: str, within_ms: int | None = None) -> bool:
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

    async def drain(self, within_ms: int | None = None) -> bool:
        """Wait until everything that was submitted is done and committed.

        Args:
            within_ms: How long; None for as long as something can still happen by itself.

        Returns:
            Whether all is done. If not, the time is over, or what is left waits for an operator (`Poison.BLOCK`).
        """
        raise NotImplementedError

    async def stop(self, within_ms: int | None = None) -> bool:
        """Stop: take nothing more, start nothing more, let handlers finish, commit, and end. Twice does no harm.

        Args:
            within_ms: As for `remove_log`.

        Returns:
            Whether every handler has finished in time. A thread that has not works on and is left to the interpreter.

        Raises:
            BaseException: What has stopped the runner before, if that was an error.
        """
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain and stop; after an error in the block, stop without draining."""
        raise NotImplementedError
