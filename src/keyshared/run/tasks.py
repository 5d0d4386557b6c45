"""The runner for coroutines: tasks of one event loop."""

import logging
from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Future,
    Task,
    TimerHandle,
    create_task,
    current_task,
    get_running_loop,
    sleep,
    wait,
)
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from inspect import isawaitable
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from keyshared.errors import ArgumentError
from keyshared.hashing import Key
from keyshared.run.actions import Commit
from keyshared.run.assignment import Run, Why
from keyshared.run.engine import Engine
from keyshared.run.errors import EventLoopError, StoppedError
from keyshared.run.functions import check_answer, check_function, is_coroutine_function
from keyshared.run.loops import MainTask, ask_loop, running_loop
from keyshared.run.runner import (
    IN_HANDLER_OF,
    Asked,
    Handle,
    Runner,
    left_ms,
    now_ms,
    on_our_clock,
    seconds,
    until_ms,
)
from keyshared.run.signals import StopRequest, listening
from keyshared.run.spans import Spans
from keyshared.run.values import DeadLetter, Hooks, RunnerConfig
from keyshared.run.workers import InExecutors, NotBegunError, Threads, Todo

__all__ = ["AsyncRunner", "ask_loop"]

Answer = TypeVar("Answer")
Message = TypeVar("Message")

_AT_ONCE: Final = 100  # messages that are taken before handlers have their turn: about a millisecond
_Loaded = Mapping[int, Message | None] | Awaitable[Mapping[int, Message | None]]


class AsyncRunner(Runner[Message]):
    """Runs handlers as tasks of one event loop: one message of a key at a time, in order, different keys at once.

    Handlers end as those of `ThreadRunner` do. A coroutine that runs for too long is cancelled, and so is one that has
    not finished when the runner stops or its log leaves; either way nothing of its key runs before it has ended. A
    handler that is no coroutine function runs in a thread, as that of a `ThreadRunner`.

    Use it inside one running loop; the calls of `Verbs` and those for figures may come from any thread. An error stops
    the runner as it stops a `ThreadRunner`; then the ``async with`` block is cancelled where it waits, as an
    `asyncio.TaskGroup` does it, and raises that error.

    Args:
        handle: Called as that of `ThreadRunner`: a coroutine function, or a function that runs in a thread.
        commit: As for `ThreadRunner`; a function or a coroutine function. A function must not block.
        dead_letter: As for `ThreadRunner`; a function or a coroutine function.
        load: As for `ThreadRunner`; a function or a coroutine function.
        settled: As for `ThreadRunner`; a function or a coroutine function.
        executor: As for `ThreadRunner`; ``handle`` must be no coroutine function then.
        hooks: Functions that are called when something has happened.
        config: Settings.
        logger: As for `ThreadRunner`.

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
        dead_letter: Callable[[DeadLetter[Message]], object] | None = None,
        load: Callable[[str, Sequence[int]], _Loaded[Message]] | None = None,
        settled: Callable[[str, Sequence[int]], object] | None = None,
        executor: Callable[[], Executor] | None = None,
        hooks: Hooks | None = None,
        config: RunnerConfig | None = None,
        logger: logging.Logger | None = None,
        spans: Spans | None = None,
    ) -> None:
        check_function("handle", handle, "a message", is_awaited=True, arguments=1)
        is_async = is_coroutine_function(handle)
        if is_async and executor is not None:
            raise ArgumentError("handle", handle, "be no coroutine function with an executor")
        super().__init__(
            {"commit": commit, "dead_letter": dead_letter, "load": load, "settled": settled, "executor": executor},
            nullcontext(),
            hooks=hooks,
            config=config,
            logger=logger,
            spans=spans,
            has_queue=is_async,
            cancels=is_async or executor is not None,
            awaits=True,
        )
        self._handle: Callable[[Any], Any] = handle
        self._is_async = is_async
        self._executors = None if executor is None else InExecutors[Message](executor, handle)
        self._lock = Lock()  # of the queue of threads
        self._threads = Threads()
        self._in_threads: Todo[Message] = Todo(self._lock)
        self._todo: deque[Run[Message]] = deque()
        self._tasks: dict[Run[Message], Task[None]] = {}  # handlers that are coroutines, while they run
        self._workers = 0  # tasks that run them
        self._replaced: set[Task[None]] = set()  # those whose handlers hang, and whose places others have
        self._calling: set[Task[None]] = set()
        self._committing: dict[str, Task[None]] = {}  # the last commit of each log, until it is made
        self._loop: AbstractEventLoop | None = None
        self._last_lock = Lock()
        self._is_step_due = False
        self._is_hiring = False
        self._timer: TimerHandle | None = None
        self._timer_ms: int | None = None
        self._waiters: set[Future[None]] = set()
        self._main_task = MainTask()
        self._stop_request = StopRequest()

    # calls that wait; all of them end at once when the runner stops

    async def submit(
        self,
        log: str,
        offset: int,
        key: Key,
        message: Message,
        *,
        not_before_epoch_ms: int | None = None,
        wait: bool = True,
    ) -> None:
        """Take the next message of a log; wait while there is no capacity for it. As `ThreadRunner.submit`."""
        if wait and not_before_epoch_ms is None:
            if get_running_loop() is not self._loop:
                self._check_caller()
            if self._engine.submit_on_credit(log, offset, key, message, now_ms=now_ms()):
                if not self._is_step_due:
                    self._step_soon()
                return
        row = (offset, key, message)
        await self.submit_many(log, [row if not_before_epoch_ms is None else (*row, not_before_epoch_ms)], wait=wait)

    async def submit_many(self, log: str, messages: Iterable[Any], *, wait: bool = True) -> None:
        """Take several messages of a log, as `ThreadRunner.submit_many`."""
        self._check_caller()
        rows = deque(map(on_our_clock, messages))
        if not wait or self._is_own_handler():
            self._take_at_once(log, rows)
            return
        while True:
            self._take_some(log, rows, _AT_ONCE)
            if not rows:
                break
            if self._engine.room(log):
                await sleep(0)
            else:
                await self._wait()

    async def wait_for_room(self, log: str, within_ms: int | None = None) -> int:
        """Wait until a log has room, and return what `room` says then: as `ThreadRunner.wait_for_room`."""
        self._check_caller()
        until = until_ms(within_ms)
        while not (room := self._engine.room(log)):
            left = left_ms(until)
            if left == 0:
                break
            await self._wait(left)
        return room

    async def remove_log(self, log: str, within_ms: int | None = None) -> bool:
        """End with a log, as `ThreadRunner.remove_log`; a handler that has not finished in time is cancelled.

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
        """Stop, as `ThreadRunner.stop`; a handler that has not finished in time is cancelled."""
        self._check_caller()
        self._begin_stop(within_ms)
        while not self._is_over:
            await self._wait()
        return self._outcome()

    @asynccontextmanager
    async def stopping_on_signals(self, *signals: int) -> AsyncIterator[Self]:
        """Use it in the place of the runner's own block, to stop in order when the process is asked to end.

        The block is cancelled where it waits, and ends without an error. Handlers finish meanwhile, all that is done is
        committed, and the handler of the signal of before is restored. If an error stops the runner meanwhile, such as
        that of the last commit, the block raises it. SIGUSR1 logs `stuck`. Outside the main thread no signal is
        handled.

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
        soon = get_running_loop().call_soon_threadsafe  # a thread that waited for the loop could wait for ever
        with listening(signals, partial(soon, self._begin_stop, None), partial(soon, self._report_stuck)) as request:
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
        self._main_task.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Drain and stop; after an error in the block, stop without draining.

        When the runner fails, or a signal asks it to stop, the block is cancelled; that cancellation ends here.
        """
        was_interrupted = self._main_task.leave(error)
        try:
            if error is None and not self._engine.is_stopping:
                with suppress(StoppedError):  # another task has called `stop` meanwhile
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
        if self._loop is not None and (self._engine.error is not None or self._stop_request.has_come):
            self._main_task.interrupt(self._loop)

    def _control(self, act: Callable[[Engine[Any]], Answer]) -> Answer:
        loop = self._loop
        if loop is None or loop is running_loop():
            return super()._control(act)
        return ask_loop(loop, partial(super()._control, act), partial(self._control_last, act))

    def _control_last(self, act: Callable[[Engine[Any]], Answer]) -> Answer:
        """Call it in this thread: the loop has ended, and nothing else changes any more."""
        with self._last_lock:
            self._engine.note_time(now_ms=now_ms())
            return act(self._engine)

    def _check_caller(self) -> None:
        here = running_loop()
        if here is None or here is not (self._loop or here):
            raise EventLoopError

    # Every end of a task asks for one step, in the loop's next turn, whatever else ends until then.

    def _begin_work(self) -> None:
        if self._loop is None:
            self._loop = get_running_loop()
            if not self._is_async:
                self._threads.begin([self._work_in_thread] * self._config.workers)

    def _end_work(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._executors is not None:
            self._executors.close()
        with self._lock:
            self._in_threads.wake_all()

    def _step_soon(self) -> None:
        if not self._is_step_due and self._loop is not None:
            self._is_step_due = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._is_step_due = False
        super()._step()
        if self._waiters and (self._engine.wants_messages() or self._engine.is_idle()):
            self._wake()
        due_ms = self._engine.next_deadline_ms()
        if due_ms != self._timer_ms and self._loop is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = due_ms
            self._timer = None
            if due_ms is not None and not self._is_over:
                self._timer = self._loop.call_later(seconds(due_ms - now_ms()), self._ring)

    def _ring(self) -> None:
        self._timer = self._timer_ms = None  # a loop may fire early: then the step sets it again
        self._step()

    # What the base wants done.

    def _has_more(self) -> None:
        self._step_soon()

    # While there is much to do, a task runs one coroutine after another: a new task for each would begin two turns of
    # the loop later. One that was cancelled ends with its handler: what is left of that must hit no other.

    def _start(self, run: Run[Message]) -> None:
        if not self._is_async:
            with self._lock:
                self._in_threads.put(run)
                self._in_threads.wake()
            return
        self._todo.append(run)
        if not self._is_hiring:
            self._hire_soon(1)

    def _hire_soon(self, most: int) -> None:
        if not self._is_hiring and self._loop is not None and self._workers < self._config.workers:
            self._is_hiring = True
            self._loop.call_soon(self._hire, most)

    def _hire(self, most: int) -> None:
        """Start workers. The first one is alone until its handler waits: one that never does needs no other."""
        self._is_hiring = False
        for _ in range(min(most, len(self._todo), self._config.workers - self._workers)):
            self._workers += 1
            worker = create_task(self._work_on())
            self._calling.add(worker)
            worker.add_done_callback(self._leave)
        if self._todo:
            self._hire_soon(self._config.workers)

    def _leave(self, worker: Task[None]) -> None:
        self._calling.discard(worker)
        if worker in self._replaced:
            self._replaced.discard(worker)
        else:
            self._workers -= 1
        if not worker.cancelled():
            worker.exception()  # it was noted with its message, and ends the loop
        if self._todo:
            self._hire_soon(1)

    async def _work_on(self) -> None:
        IN_HANDLER_OF.set(self)  # of this task, and of those that handlers start
        task = cast("Task[None]", current_task())
        todo, tasks, handle, ended, spans = self._todo, self._tasks, self._handle, self._ended, self._spans
        now = now_ms()
        while todo and not task.cancelling() and task not in self._replaced:
            run = todo.popleft()
            run.started_ms = now
            tasks[run] = task
            raised: BaseException | None = None
            try:
                if spans is not None:
                    with spans.around(run, now_ms):
                        check_answer(await handle(run.message))
                elif (answer := await handle(run.message)) is not None:
                    check_answer(answer)
            except KeyboardInterrupt as error:  # it ends the loop, too
                raised = error
                raise
            except BaseException as error:  # noqa: BLE001  # every end is an outcome
                raised = error
                if isinstance(error, CancelledError) and task.cancelling() and run.cancelled is None:
                    run.cancelled = Why.LEAVES  # the loop ends, and not this runner has asked for it
            finally:
                del tasks[run]
                now = now_ms()  # the next one begins at once
                ended.append((run, raised, now))
                if not self._is_step_due:
                    self._step_soon()

    def _work_in_thread(self) -> None:
        """Run handlers in this thread."""
        IN_HANDLER_OF.set(self)
        loop, todo = cast("AbstractEventLoop", self._loop), self._in_threads
        is_replaced = False
        while not is_replaced:
            with self._lock:
                while not todo and not self._is_over:
                    todo.wait()
                run = todo.take()
                todo.wake()
            if run is None:
                return
            raised: BaseException | None = None
            try:
                self._handle_in_thread(run)
            except NotBegunError as none:
                self._in_loop(loop, partial(self._not_begun, run, none.error))
                continue
            except BaseException as error:  # noqa: BLE001  # every end is an outcome
                raised = error
            self._ended.append((run, raised, now_ms()))
            is_replaced = run.is_replaced
            self._in_loop(loop, self._step_soon)
            del run, raised  # a thread that waits keeps no message alive

    def _handle_in_thread(self, run: Run[Message]) -> None:
        spans = self._spans
        if self._executors is not None:
            with nullcontext() if spans is None else spans.around(run, now_ms):
                self._executors.handle(run)
            return
        run.started_ms = now_ms()
        if run.is_abandoned:  # written before the engine looks whether it has started, read after
            raise NotBegunError(None)
        with nullcontext() if spans is None else spans.around(run, now_ms):
            check_answer(self._handle(run.message))

    def _in_loop(self, loop: AbstractEventLoop, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nothing waits any more
            loop.call_soon_threadsafe(act)

    def _cancel(self, run: Run[Message]) -> None:
        if run in self._tasks:
            self._tasks[run].cancel()
        elif self._executors is not None:
            self._executors.kill(run)

    def _replace(self, run: Run[Message]) -> None:
        if not self._is_async:
            self._threads.add(self._work_in_thread)
        elif run in self._tasks:
            self._replaced.add(self._tasks[run])
            self._workers -= 1
            if self._todo:
                self._hire_soon(1)

    def _withdraw(self, runs: tuple[Run[Message], ...]) -> None:
        if self._is_async:
            wanted = set(runs)
            queued = list(self._todo)
            self._todo.clear()
            self._todo.extend(run for run in queued if run not in wanted)
            taken = [run for run in queued if run in wanted]
        else:
            with self._lock:
                taken = self._in_threads.take_back(runs)
        for run in taken:
            self._engine.withdrawn(run)

    def _ask(self, asked: Asked[Message]) -> None:
        name = asked.log.name
        former = self._committing.get(name) if isinstance(asked, Commit) else None
        task = create_task(self._call(asked, former))
        self._calling.add(task)
        task.add_done_callback(self._calling.discard)
        if isinstance(asked, Commit):
            self._committing[name] = task
            task.add_done_callback(partial(self._committed, name))

    def _committed(self, name: str, task: Task[None]) -> None:
        if self._committing.get(name) is task:
            del self._committing[name]

    async def _call(self, asked: Asked[Message], former: Task[None] | None) -> None:
        if former is not None and not former.done():
            await wait([former])  # of an earlier assignment of the log: the position would go back
        if asked.log.is_gone:
            return  # it was lost in this turn of the loop
        name, function, arguments = self._call_of(asked)
        answer, failed = None, None
        try:
            answer = function(*arguments)
            if isawaitable(answer):
                answer = await answer
            check_answer(answer, name)
        except BaseException as error:  # noqa: BLE001  # the engine decides what becomes of it
            failed = error
        self._answer(asked, answer, failed)


def _is_stop(raised: BaseException) -> bool:
    """Whether a block has ended because the runner stops; the tasks of an `asyncio.TaskGroup` raise it in a group."""
    return not isinstance(raised, BaseExceptionGroup) or raised.split(StoppedError)[1] is None


def _end(waiter: Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
