"""The runner for coroutines: tasks of one event loop."""

from asyncio import AbstractEventLoop, CancelledError, Future, Task, TimerHandle, current_task, get_running_loop, wait
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from inspect import isawaitable
from threading import Lock
from typing import Any, cast

from keyshared._core.values import MetricRow
from keyshared.errors import ArgumentError
from keyshared.run.actions import Commit
from keyshared.run.answers import check_answer, check_function, is_coroutine_function
from keyshared.run.awaits import WaitingTasks
from keyshared.run.body import Body
from keyshared.run.clock import now_ms, seconds
from keyshared.run.executors import InExecutors, NoExecutorError
from keyshared.run.host import Asked, Handle, Message
from keyshared.run.log import Run
from keyshared.run.loops import ask_loop, running_loop
from keyshared.run.signals import StopRequest
from keyshared.run.values import EventLoopError, Hooks, Letter, RunnerConfig

__all__ = ["AsyncRunner"]

_Loaded = Mapping[int, Message | None] | Awaitable[Mapping[int, Message | None]]


class AsyncRunner(WaitingTasks[Message]):
    """Runs handlers as tasks of one event loop: one message of a key at a time, in order, different keys at once.

    Handlers end as those of `ThreadRunner` do. A coroutine that runs for too long is cancelled, and so is one that has
    not finished when the runner stops or its log leaves; either way nothing of its key runs before it has ended. A
    handler that is no coroutine function runs in a thread, and can be waited for only.

    Use it inside one running loop. What fails in ``commit``, ``dead_letter``, ``load``, ``settled``, ``executor`` or a
    hook stops the runner, as in `ThreadRunner`; whatever its ``async with`` block waits for is cancelled then, as an
    `asyncio.TaskGroup` does it, and the block raises that error.

    Args:
        handle: Called as that of `ThreadRunner`: a coroutine function, or a function that runs in a thread.
        commit: As for `ThreadRunner`; a function or a coroutine function. A function must not block.
        dead_letter: As for `ThreadRunner`; a function or a coroutine function.
        load: As for `ThreadRunner`; a function or a coroutine function.
        settled: As for `ThreadRunner`; a function or a coroutine function.
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
        settled: Callable[[str, Sequence[int]], object] | None = None,
        executor: Callable[[], Executor] | None = None,
        hooks: Hooks | None = None,
        config: RunnerConfig | None = None,
    ) -> None:
        check_function("handle", handle, "a message", is_awaited=True)
        is_async = is_coroutine_function(handle)
        if is_async and executor is not None:
            raise ArgumentError("handle", handle, "be no coroutine function with an executor")
        super().__init__(
            {"commit": commit, "dead_letter": dead_letter, "load": load, "settled": settled, "executor": executor},
            nullcontext(),
            hooks=hooks,
            config=config,
            has_queue=is_async,
            cancels=is_async,
            awaits=True,
        )
        self._handle: Callable[[Any], Any] = handle
        self._is_async = is_async
        self._executors = None if executor is None else InExecutors(executor, handle)
        self._pool: ThreadPoolExecutor | None = None
        self._todo: deque[Run[Message]] = deque()
        self._tasks: dict[Run[Message], Task[None]] = {}  # handlers that are coroutines, while they run
        self._workers = 0  # tasks that run them
        self._calling: set[Task[None]] = set()
        self._commits: dict[str, Task[None]] = {}  # the last one of each log, until it is made
        self._loop: AbstractEventLoop | None = None
        self._last_lock = Lock()
        self._is_step_due = False
        self._timer: TimerHandle | None = None
        self._timer_ms: int | None = None
        self._waiters: set[Future[None]] = set()
        self._body = Body()
        self._stop_request = StopRequest()

    def metrics(self, busiest: int = 0) -> list[MetricRow]:
        """Return the figures of this moment, as `ThreadRunner.metrics`; another thread waits for the event loop."""
        loop = self._loop
        if loop is None or loop is running_loop():
            return super().metrics(busiest)
        return ask_loop(loop, partial(super().metrics, busiest), partial(self._last_metrics, busiest))

    def _last_metrics(self, busiest: int) -> list[MetricRow]:
        """Return the figures when the loop has ended, and nothing changes any more."""
        with self._last_lock:
            return self._heart.metrics(busiest=busiest, now_ms=now_ms())

    def _check_caller(self) -> None:
        here = running_loop()
        if here is None or here is not (self._loop or here):
            raise EventLoopError

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
                self._timer = self._loop.call_later(seconds(due_ms - now_ms()), self._ring)

    def _ring(self) -> None:
        self._timer = self._timer_ms = None  # a loop may fire early: then the step sets it again
        self._step()

    # What the host asks for.

    def _has_more(self) -> None:
        self._step_soon()

    # While there is much to do, a task runs one coroutine after another: a new task for each would begin two turns of
    # the loop later. One that was cancelled ends with its handler: what is left of that must hit no other.

    def _start(self, run: Run[Message]) -> None:
        if not self._is_async:
            running = get_running_loop().run_in_executor(self._pool, self._work, run)
            running.add_done_callback(partial(self._done, run))
            return
        self._todo.append(run)
        if self._workers < self._config.workers:
            self._hire()

    def _hire(self) -> None:
        self._workers += 1
        worker = get_running_loop().create_task(self._work_on())
        self._calling.add(worker)
        worker.add_done_callback(self._leave)

    def _leave(self, worker: Task[None]) -> None:
        self._calling.discard(worker)
        self._workers -= 1
        if not worker.cancelled():
            worker.exception()  # it was noted with its message, and ends the loop
        if self._todo:
            self._hire()

    async def _work_on(self) -> None:
        task = cast("Task[None]", current_task())
        todo, tasks, handle = self._todo, self._tasks, self._handle
        while todo and not task.cancelling():
            run = todo.popleft()
            run.started_ms = now_ms()
            tasks[run] = task
            raised: BaseException | None = None
            try:
                if (answer := await handle(run.message)) is not None:
                    check_answer(answer)
            except (KeyboardInterrupt, SystemExit) as error:  # it ends the loop, too
                raised = error
                raise
            except BaseException as error:  # noqa: BLE001  # every end is an answer
                raised = error
            finally:
                del tasks[run]
                self._ended.append((run, raised, now_ms()))
                self._step_soon()

    def _work(self, run: Run[Message]) -> BaseException | None:
        """Run a handler in a thread, and return what it raises: a future cannot carry a StopIteration."""
        run.started_ms = now_ms()
        try:
            check_answer((self._executors or self._handle)(run.message))
        except BaseException as error:  # noqa: BLE001  # every end is an answer
            return error
        return None

    def _done(self, run: Run[Message], running: Future[BaseException | None]) -> None:
        raised = CancelledError() if running.cancelled() else running.exception() or running.result()
        if isinstance(raised, NoExecutorError):
            self._give_back(run, raised.error)
            return
        self._ended.append((run, raised, now_ms()))
        self._step_soon()

    def _cancel(self, run: Run[Message]) -> None:
        if run in self._tasks:
            self._tasks[run].cancel()

    def _withdraw(self, runs: tuple[Run[Message], ...]) -> None:
        wanted = set(runs)
        queued = list(self._todo)
        self._todo.clear()
        self._todo.extend(run for run in queued if run not in wanted)
        for run in filter(wanted.__contains__, queued):
            self._heart.withdrawn(run)

    def _ask(self, asked: Asked[Message]) -> None:
        name = asked.log.name
        former = self._commits.get(name) if isinstance(asked, Commit) else None
        task = get_running_loop().create_task(self._call(asked, former))
        self._calling.add(task)
        task.add_done_callback(self._calling.discard)
        if isinstance(asked, Commit):
            self._commits[name] = task
            task.add_done_callback(partial(self._committed, name))

    def _committed(self, name: str, task: Task[None]) -> None:
        if self._commits.get(name) is task:
            del self._commits[name]

    async def _call(self, asked: Asked[Message], former: Task[None] | None) -> None:
        if former is not None and not former.done():
            await wait([former])  # of an earlier stay of the log: what is stored would go back
        if asked.log.is_gone:
            return  # it was lost in this turn of the loop
        name, function, arguments = self._call_of(asked)
        answer, failed = None, None
        try:
            answer = function(*arguments)
            if isawaitable(answer):
                answer = await answer
            check_answer(answer, name)
        except BaseException as error:  # noqa: BLE001  # the heart decides what becomes of it
            failed = error
        self._answer(asked, answer, failed)
