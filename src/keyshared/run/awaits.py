"""The calls of a runner on tasks that wait, and the block that it is used in."""

from abc import abstractmethod
from asyncio import AbstractEventLoop, Future, get_running_loop, sleep
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self

from keyshared.hashing.named import Key
from keyshared.run.body import Body
from keyshared.run.clock import seconds
from keyshared.run.host import Host, Message, left_ms, until_ms
from keyshared.run.signals import StopRequest, listening
from keyshared.run.values import StoppedError

__all__ = ["WaitingTasks"]

_AT_ONCE: Final = 100  # messages that are taken before handlers have their turn: about a millisecond


class WaitingTasks(Host[Message]):
    """What waits for the tasks of a runner. All of it ends at once when the runner stops."""

    _loop: AbstractEventLoop | None
    _waiters: set[Future[None]]
    _body: Body
    _stop_request: StopRequest

    async def submit(self, log: str, offset: int, key: Key, message: Message) -> None:
        """Take the next message of a log; wait while there is no room for it. As `ThreadRunner.submit`."""
        await self.submit_many(log, [(offset, key, message)])

    async def submit_many(self, log: str, messages: Iterable[tuple[int, Key, Message]]) -> None:
        """Take several messages of a log, each an offset, a key and a message: as `submit` for one after another."""
        self._check_caller()
        rows = deque(messages)
        while True:
            self._take_some(log, rows, _AT_ONCE)
            if not rows:
                break
            if self._heart.room(log):
                await sleep(0)
            else:
                await self._wait()

    async def wait_for_room(self, log: str, within_ms: int | None = None) -> int:
        """Wait until a log has room, and return what `room` says then: as `ThreadRunner.wait_for_room`."""
        self._check_caller()
        until = until_ms(within_ms)
        while not (room := self._heart.room(log)):
            left = left_ms(until)
            if left == 0:
                break
            await self._wait(left)
        return room

    async def remove_log(self, log: str, within_ms: int | None = None) -> bool:
        """End with a log, as `ThreadRunner.remove_log`; what has not finished in time is cancelled.

        Returns:
            Whether every handler has ended, if only by its cancellation.
        """
        self._check_caller()
        leaving = self._let_leave(log, within_ms)
        while not (leaving.is_gone or self._is_over):
            await self._wait()
        return self._has_left(leaving)

    async def drain(self, within_ms: int | None = None) -> bool:
        """Wait until everything that was submitted is done and committed, as `ThreadRunner.drain`."""
        self._check_caller()
        until = until_ms(within_ms)
        self._step()
        while not self._is_at_rest():
            left = left_ms(until)
            if left == 0:
                return False
            await self._wait(left)
        return self._is_drained()

    async def stop(self, within_ms: int | None = None) -> bool:
        """Stop, as `ThreadRunner.stop`; what has not finished in time is cancelled, and waited for a little."""
        self._check_caller()
        self._begin_stop(within_ms)
        while not self._is_over:
            await self._wait()
        return self._outcome()

    @asynccontextmanager
    async def stopping_on_signals(self, *signals: int) -> AsyncIterator[Self]:
        """Use it in the place of the runner's own block, to stop in order when the process is asked to end.

        Whatever the block waits for is cancelled then, and the block ends without an error. Handlers finish meanwhile,
        what is done is committed, and whoever listened for the signal before does so again. If an error stops the
        runner meanwhile, such as that of the last commit, the block raises it. Outside the main thread no signal is
        listened for.

        Args:
            signals: Which; SIGTERM if none is named.

        Raises:
            ArgumentError: A signal that no program can handle.

        Example:
            >>> import asyncio
            >>> from keyshared.run import AsyncRunner
            >>> async def main():
            ...     async with AsyncRunner(print).stopping_on_signals() as runner:
            ...         runner.add_log("orders")
            ...         await runner.submit("orders", 0, "order-1", "created")
            >>> asyncio.run(main())
            created
        """
        loop = get_running_loop()
        with listening(signals, lambda: loop.call_soon_threadsafe(self._begin_stop, None)) as request:
            self._stop_request = request
            try:
                async with self:
                    yield self
            except (StoppedError, BaseExceptionGroup) as stopped:
                if not request.has_come or not _is_stop(stopped):
                    raise
                if self.error is not None:
                    raise self.error from None

    async def __aenter__(self) -> Self:
        self._body.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Drain and stop; after an error in the block, stop without draining.

        When the runner fails, or a signal asks it to stop, the block is cancelled; that cancellation ends here.
        """
        was_interrupted = self._body.leave(error)
        try:
            if error is None and not self._heart.is_stopping:
                with suppress(StoppedError):  # somebody has called `stop` meanwhile, as is their right
                    await self.drain()
        finally:
            try:
                await self.stop()
            except BaseException:
                if error is None or was_interrupted:
                    raise
        return was_interrupted

    async def _wait(self, ms: int | None = None) -> None:
        loop = get_running_loop()
        waiter: Future[None] = loop.create_future()
        timer = None if ms is None else loop.call_later(seconds(ms), _end, waiter)
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        for waiter in self._waiters:
            _end(waiter)
        if self._is_over:
            self._end_work()
        if self._loop is not None and (self._heart.error is not None or self._stop_request.has_come):
            self._body.interrupt(self._loop)

    @abstractmethod
    def _end_work(self) -> None:
        """End whatever works."""


def _is_stop(raised: BaseException) -> bool:
    """Whether a block has ended because the runner stops; the tasks of a `asyncio.TaskGroup` tell it all together."""
    return not isinstance(raised, BaseExceptionGroup) or raised.split(StoppedError)[1] is None


def _end(waiter: Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
