"""The runner for coroutines: tasks of one event loop."""

from asyncio import AbstractEventLoop, CancelledError, Future, Task, TimerHandle, get_running_loop, sleep, wait_for
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from types import TracebackType
from typing import Any, Final, Self

from keyshared._checks import check_callable, check_int
from keyshared.errors import ArgumentError
from keyshared.hashing.named import Key
from keyshared.run.executors import InExecutors, check_answer
from keyshared.run.host import Asked, Handle, Host, Message, now_ms
from keyshared.run.log import Run
from keyshared.run.values import Hooks, Letter, RunnerConfig

__all__ = ["AsyncRunner"]

_AT_ONCE: Final = 100  # messages that are taken before handlers have their turn: about a millisecond

_Loaded = Mapping[int, Message | None] | Awaitable[Mapping[int, Message | None]]


class AsyncRunner(Host[Message]):
    """Runs handlers as tasks of one event loop: one message of a key at a time, in order, different keys at once.

    Handlers end as those of `ThreadRunner` do. A coroutine that runs for too long is cancelled, and so is one that has
    not finished when the runner stops or its log leaves; either way nothing of its key runs before it has ended. A
    handler that is no coroutine function runs in a thread, and can be waited for only.

    Use it inside one running loop. What fails in ``commit``, ``dead_letter``, ``load`` or a hook stops the runner, as
    in `ThreadRunner`.

    Args:
        handle: Called as that of `ThreadRunner`: a coroutine function, or a function that runs in a thread.
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
        handle: Handle[Message],
        *,
        commit: Callable[[str, int, str], object] | None = None,
        dead_letter: Callable[[Letter[Message]], object] | None = None,
        load: Callable[[str, Sequence[int]], _Loaded[Message]] | None = None,
        executor: Callable[[], Executor] | None = None,
        hooks: Hooks | None = None,
        config: RunnerConfig | None = None,
    ) -> None:
        check_callable("handle", handle, "a message")
        is_async = iscoroutinefunction(handle) or iscoroutinefunction(getattr(handle, "__call__", None))  # noqa: B004
        if is_async and executor is not None:
            raise ArgumentError("handle", handle, "be no coroutine function with an executor")
        super().__init__(
            {"commit": commit, "dead_letter": dead_letter, "load": load, "executor": executor},
            nullcontext(),
            hooks=hooks,
            config=config,
            has_queue=False,
            cancels=is_async,
        )
        self._handle: Callable[[Any], Any] = handle
        self._is_async = is_async
        self._executors = None if executor is None else InExecutors(executor, handle)
        self._pool: ThreadPoolExecutor | None = None
        self._tasks: dict[Run[Message], Future[Any]] = {}
        self._calling: set[Task[None]] = set()
        self._loop: AbstractEventLoop | None = None
        self._is_step_due = False
        self._timer: TimerHandle | None = None
        self._timer_ms: int | None = None
        self._waiters: set[Future[None]] = set()

    async def submit(self, log: str, offset: int, key: Key, message: Message) -> None:
        """Take the next message of a log; wait while there is no room for it. As `ThreadRunner.submit`."""
        await self.submit_many(log, [(offset, key, message)])

    async def submit_many(self, log: str, messages: Iterable[tuple[int, Key, Message]]) -> None:
        """Take several messages of a log, each an offset, a key and a message: as `submit` for one after another."""
        rows = deque(messages)
        while True:
            self._take_some(log, rows, _AT_ONCE)
            if not rows:
                break
            if self._heart.room(log):
                await sleep(0)
            else:
                await self._wait()

    async def remove_log(self, log: str, within_ms: int | None = None) -> bool:
        """End with a log, as `ThreadRunner.remove_log`; what has not finished in time is cancelled.

        Returns:
            Whether every handler has ended, if only by its cancellation.
        """
        leaving = self._let_leave(log, within_ms)
        while not (leaving.is_gone or self._is_over):
            await self._wait()
        return self._has_left(leaving)

    async def drain(self, within_ms: int | None = None) -> bool:
        """Wait until everything that was submitted is done and committed, as `ThreadRunner.drain`."""
        until_ms = None if within_ms is None else now_ms() + check_int("within_ms", within_ms, 0)
        self._step()
        while not self._is_at_rest():
            left_ms = None if until_ms is None else until_ms - now_ms()
            if left_ms is not None and left_ms <= 0:
                return False
            await self._wait(left_ms)
        return self._is_drained()

    async def stop(self, within_ms: int | None = None) -> bool:
        """Stop, as `ThreadRunner.stop`; what has not finished in time is cancelled, and waited for a little."""
        self._begin_stop(within_ms)
        while not self._is_over:
            await self._wait()
        self._end_work()
        return self._outcome()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain and stop; after an error in the block, stop without draining."""
        try:
            if error is None and not self._heart.is_stopping:
                await self.drain()
        finally:
            try:
                await self.stop()
            except BaseException:
                if error is None:
                    raise

    # Every end of a task asks for one step, in the loop's next turn, whatever else ends until then.

    def _begin_work(self) -> None:
        if self._loop is None:
            self._loop = get_running_loop()
            if not self._is_async:
                self._pool = ThreadPoolExecutor(self._config.workers, "keyshared-worker")

    def _end_work(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._executors is not None:
            self._executors.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _step_soon(self) -> None:
        if not self._is_step_due and self._loop is not None:
            self._is_step_due = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._is_step_due = False
        super()._step()
        if self._waiters and (self._heart.wants_messages() or self._heart.is_idle()):
            self._wake()
        due_ms = self._heart.next_deadline_ms()
        if due_ms != self._timer_ms and self._loop is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = due_ms
            self._timer = None
            if due_ms is not None and not self._is_over:
                self._timer = self._loop.call_later(max(0, due_ms - now_ms()) / 1_000, self._ring)

    def _ring(self) -> None:
        self._timer = self._timer_ms = None  # a loop may fire early: then the step sets it again
        self._step()

    async def _wait(self, left_ms: int | None = None) -> None:
        waiter: Future[None] = get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await wait_for(waiter, None if left_ms is None else left_ms / 1_000)
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)

    # What the host asks for.

    def _has_more(self) -> None:
        self._step_soon()

    def _start(self, run: Run[Message]) -> None:
        loop = get_running_loop()
        task: Future[Any]
        if self._is_async:
            run.started_ms = now_ms()
            task = loop.create_task(self._handle(run.message))
        else:
            task = loop.run_in_executor(self._pool, self._work, run)
        self._tasks[run] = task
        task.add_done_callback(partial(self._done, run))

    def _work(self, run: Run[Message]) -> BaseException | None:
        """Run a handler in a thread, and return what it raises: a future cannot carry a StopIteration."""
        run.started_ms = now_ms()
        try:
            check_answer((self._executors or self._handle)(run.message))
        except BaseException as error:  # noqa: BLE001  # every end is an answer
            return error
        return None

    def _done(self, run: Run[Message], task: Future[Any]) -> None:
        del self._tasks[run]
        raised = CancelledError() if task.cancelled() else task.exception()
        if not self._is_async:
            raised = raised or task.result()
        self._ended.append((run, raised, now_ms()))
        self._step_soon()

    def _cancel(self, run: Run[Message]) -> None:
        if run in self._tasks:
            self._tasks[run].cancel()

    def _withdraw(self, runs: tuple[Run[Message], ...]) -> None:
        """Do nothing: a task begins at once."""

    def _ask(self, asked: Asked[Message]) -> None:
        task = get_running_loop().create_task(self._call(asked))
        self._calling.add(task)
        task.add_done_callback(self._calling.discard)

    async def _call(self, asked: Asked[Message]) -> None:
        if asked.log.is_gone:
            return  # it was lost in this turn of the loop
        function, arguments = self._arguments(asked)
        answer, failed = None, None
        try:
            answer = function(*arguments)
            if isawaitable(answer):
                answer = await answer
        except BaseException as error:  # noqa: BLE001  # the heart decides what becomes of it
            failed = error
        self._answer(asked, answer, failed)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
