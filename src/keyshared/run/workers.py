"""The threads of a runner and their queues, and handlers in executors: one executor for each worker."""

import pickle
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from queue import SimpleQueue
from threading import Condition, Lock, Thread, current_thread, local
from typing import Any, Generic, TypeVar

from keyshared.run.assignment import Run
from keyshared.run.errors import PartlyDone, Reject, RetryLater
from keyshared.run.functions import check_answer
from keyshared.run.runner import now_ms, seconds

__all__ = ["Calls", "ForeignError", "InExecutors", "NotBegunError", "Sleeper", "Threads", "Todo"]

Message = TypeVar("Message")
Request = TypeVar("Request")


class Threads:
    """Threads that do not keep a program from ending."""

    def __init__(self) -> None:
        self._workers: list[Thread] = []
        self._callers: list[Thread] = []

    def begin(self, works: Iterable[Callable[[], None]], calls: Iterable[Callable[[], None]] = ()) -> None:
        """Start a thread for each, if that was not done.

        Args:
            works: Functions that end by themselves once the runner has stopped and every handler has ended.
            calls: Functions that make calls of the user, which may never return.
        """
        if self._workers:
            return
        for work in works:
            self.add(work)
        for call in calls:
            self._callers.append(_started(call))

    def add(self, work: Callable[[], None]) -> None:
        """Start one more worker."""
        self._workers.append(_started(work))  # one that could not start is not waited for

    def join(self, until_ms: int) -> None:
        """Wait for the end of all but the calling one; for those that make calls until a time, or an hour at most."""
        for thread in _others(self._workers):
            thread.join()
        for thread in _others(self._callers):
            thread.join(seconds(until_ms - now_ms()))


def _others(threads: list[Thread]) -> list[Thread]:
    return [thread for thread in threads if thread is not current_thread()]


def _started(work: Callable[[], None]) -> Thread:
    thread = Thread(target=work, name="keyshared", daemon=True)
    thread.start()
    return thread


class Todo(Generic[Message]):
    """Runs that wait for a free thread. All but `take` and `needs_more` happens under the lock of the runner.

    Attributes:
        idle: Threads that wait for a run.
    """

    def __init__(self, lock: Lock) -> None:
        self._runs: deque[Run[Message]] = deque()
        self._more = Condition(lock)
        self.idle = 0
        self._is_waking = False

    def __len__(self) -> int:
        return len(self._runs)

    def put(self, run: Run[Message]) -> None:
        """Add a run; `wake` wakes a thread for it."""
        self._runs.append(run)

    def take(self) -> Run[Message] | None:
        """Return the oldest run, or None if there is none. Needs no lock."""
        try:
            return self._runs.popleft()
        except IndexError:
            return None

    def needs_more(self) -> bool:
        """Whether the thread that has taken a run has to call `wake` for the next one. Needs no lock."""
        return bool(self._runs and self.idle and not self._is_waking)

    def take_back(self, runs: tuple[Run[Message], ...]) -> list[Run[Message]]:
        """Remove and return those of these that no thread has taken."""
        taken: list[Run[Message]] = []
        kept: list[Run[Message]] = []
        wanted = set(runs)
        while (run := self.take()) is not None:
            (taken if run in wanted else kept).append(run)
        self._runs += kept
        return taken

    def wait(self) -> None:
        """Wait until `wake` or `wake_all`."""
        self.idle += 1
        self._more.wait()
        self.idle -= 1
        self._is_waking = False

    def wake(self) -> None:
        """Wake a waiting thread, if there is a run for it, and the last one that was woken has come.

        That one wakes the next when it has taken its run. Where handlers are short, it takes most runs itself.
        """
        if self.needs_more():
            self._is_waking = True
            self._more.notify()

    def wake_to_look(self) -> None:
        """Wake a waiting thread although there is no run for it yet: it looks for one. One at a time."""
        if not self._is_waking:
            self._is_waking = True
            self._more.notify()

    def wake_all(self) -> None:
        """Wake all waiting threads."""
        self._more.notify_all()


class Calls(Generic[Request]):
    """Calls of one kind, made one after another by the thread that runs `work`.

    Args:
        make: Makes a call, and reports its outcome.
    """

    def __init__(self, make: Callable[[Request], None]) -> None:
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._make = make

    def put(self, request: Request) -> None:
        """Add a call."""
        self._requests.put(request)

    def end(self) -> None:
        """End `work` after the calls that are there."""
        self._requests.put(None)

    def work(self) -> None:
        """Make calls until the end."""
        while (request := self._requests.get()) is not None:
            self._make(request)
            del request  # a thread that waits keeps no message alive


class Sleeper:
    """Until when the thread sleeps that looks at the time. Everything happens under the lock of the runner."""

    def __init__(self, lock: Lock) -> None:
        self._alarm = Condition(lock)
        self._until_ms: int | None = 0  # None: until it is woken

    def sleep(self, until_ms: int | None, *, now_ms: int) -> None:
        """Sleep until a time, or until `wake_at` has an earlier one; for an hour at most."""
        self._until_ms = until_ms
        self._alarm.wait(None if until_ms is None else seconds(until_ms - now_ms))

    def wake_at(self, due_ms: int | None) -> None:
        """See that it is awake at a time; None for never."""
        if due_ms is not None and (self._until_ms is None or due_ms < self._until_ms):
            self._until_ms = due_ms
            self._alarm.notify()

    def wake(self) -> None:
        """Wake it now."""
        self._alarm.notify()


class ForeignError(Exception):
    """An exception of a handler in a process that cannot travel as it is: its class and its text."""


class NotBegunError(Exception):
    """A handler has not begun in an executor.

    Attributes:
        error: Why, if that is an error: there is no executor. None if the run was taken back.
    """

    def __init__(self, error: BaseException | None) -> None:
        super().__init__(error)
        self.error = error


class InExecutors(Generic[Message]):
    """Calls a function in the executor of the calling thread, and replaces one that is broken.

    Args:
        make: Makes an executor.
        handle: The function; it and its arguments travel to the executor, but not its result.
    """

    def __init__(self, make: Callable[[], Executor], handle: Callable[[Any], object]) -> None:
        self._make = make
        self._handle = handle
        self._own = local()
        self._made: list[Executor] = []
        self._running: dict[Run[Message], tuple[Executor, Future[None]]] = {}

    def handle(self, run: Run[Message]) -> None:
        """Run the handler, and raise what it raises.

        Raises:
            NotAwaitedError: Its result would have to be awaited.
            BrokenExecutor: Its process has died meanwhile.
            NotBegunError: It was not run.
        """
        executor = self._own_executor() or self._replace()
        run.started_ms = now_ms()
        if _is_unwanted(run):
            raise NotBegunError(None)
        try:
            running = self._submit(executor, run.message)
        except BrokenExecutor:  # it died while nothing ran: no message is to blame
            executor = self._replace()
            running = self._submit(executor, run.message)
        self._running[run] = executor, running
        if _is_unwanted(run):
            self.kill(run)  # it was asked to end before it was known where it runs
        try:
            running.result()
        except CancelledError:
            raise NotBegunError(None) from None
        except BrokenExecutor:
            self._drop()
            raise
        finally:
            del self._running[run]

    def kill(self, run: Run[Message]) -> None:
        """End a handler: one that has not begun never does, and the process of one that has is killed."""
        known = self._running.get(run)
        if known is None:
            return
        executor, running = known
        if running.cancel():
            return
        if hasattr(executor, "kill_workers"):
            executor.kill_workers()  # from Python 3.14 on
            return
        processes: dict[int, Any] | None = getattr(executor, "_processes", None)
        for process in list((processes or {}).values()):
            process.kill()

    def close(self) -> None:
        """End all executors once what they run has ended."""
        for executor in [*self._made]:  # a worker may replace its own meanwhile
            executor.shutdown(wait=False)

    def _drop(self) -> None:
        old, self._own.executor = self._own_executor(), None
        if old is not None:
            old.shutdown(wait=False)
            self._made.remove(old)

    def _own_executor(self) -> Executor | None:
        return getattr(self._own, "executor", None)

    def _submit(self, executor: Executor, message: object) -> Future[None]:
        try:
            return executor.submit(_call, self._handle, message, _HERE)
        except BrokenExecutor:
            raise
        except (OSError, RuntimeError) as error:  # no process or thread can be started
            raise NotBegunError(error) from error

    def _replace(self) -> Executor:
        try:
            executor = self._make()
            if _is_in_processes(executor):
                _check_it_travels(self._handle)
            executor.submit(_do_nothing).result()  # what cannot start would give up each message that it never handled
        except BaseException as error:
            raise NotBegunError(error) from error
        self._drop()
        self._own.executor = executor
        self._made.append(executor)
        return executor


def _is_unwanted(run: Run[Any]) -> bool:
    return run.is_abandoned or run.cancelled is not None


def _check_it_travels(handle: Callable[[Any], object]) -> None:
    """Raise what a process pool would raise: it would fail each message, which would be given up in the end."""
    from multiprocessing.reduction import ForkingPickler  # noqa: PLC0415 - as below

    ForkingPickler.dumps(handle)


def _do_nothing() -> None:
    """Show that an executor runs something."""


def _is_in_processes(executor: Executor) -> bool:
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - most programs never need multiprocessing

    return isinstance(executor, ProcessPoolExecutor)


class _Here:
    """This process: in another one, its copy is another object."""


_HERE = _Here()


def _call(handle: Callable[[Any], object], message: object, caller: _Here) -> None:
    """Run in the executor: what a handler returns means nothing, and may not be fit to travel to the caller."""
    try:
        check_answer(handle(message))
    except BaseException as error:
        known = error if caller is _HERE else _fit_to_travel(error)
        if known is error:
            raise
        raise known from None


def _fit_to_travel(error: BaseException) -> BaseException:
    """Return an error that can be read again in the main process: one that cannot would break the pool, and hang it."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    except Exception:  # noqa: BLE001  # whatever a foreign class raises
        match error:
            case PartlyDone():
                return PartlyDone(error.done, _fit_to_travel(error.error))
            case RetryLater():
                return RetryLater(error.delay_ms, error.group)
            case Reject():
                return Reject(str(error))
            case _:
                return ForeignError(f"{type(error).__qualname__}: {error}")
    return error
