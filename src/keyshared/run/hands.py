"""The threads of a runner, and what they wait for: a run, a call that is to be made, a moment."""

from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from threading import Condition, Lock, Thread, current_thread
from typing import Generic, TypeVar

from keyshared.run.clock import now_ms, seconds
from keyshared.run.log import Run

__all__ = ["Calls", "Crew", "Sleeper", "Todo"]

Message = TypeVar("Message")
Request = TypeVar("Request")


class Crew:
    """Threads that are started once, and do not keep a program from ending."""

    def __init__(self) -> None:
        self._threads: list[Thread] = []
        self._callers: list[Thread] = []

    def begin(self, works: Iterable[Callable[[], None]], calls: Iterable[Callable[[], None]] = ()) -> None:
        """Start a thread for each, if that was not done.

        Args:
            works: What ends by itself once the runner has stopped and every handler has ended.
            calls: What makes calls of the user, which may never return.
        """
        if self._threads:
            return
        for threads, functions in ((self._threads, works), (self._callers, calls)):
            for thread in map(_thread, functions):
                thread.start()
                threads.append(thread)  # one that could not start is not waited for

    def join(self, until_ms: int) -> None:
        """Wait for the end of all but the calling one; for those that make calls until a time, or an hour at most."""
        for thread in self._others(self._threads):
            thread.join()
        for thread in self._others(self._callers):
            thread.join(seconds(until_ms - now_ms()))

    def _others(self, threads: list[Thread]) -> list[Thread]:
        return [thread for thread in threads if thread is not current_thread()]


def _thread(work: Callable[[], None]) -> Thread:
    return Thread(target=work, name="keyshared", daemon=True)


class Todo(Generic[Message]):
    """Runs that wait for a free thread. All but `take` happens under the lock of the runner.

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
        """Whether whoever has taken a run has to call `wake` for the next one. Needs no lock."""
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

    def wake_all(self) -> None:
        """Wake all waiting threads."""
        self._more.notify_all()


class Calls(Generic[Request]):
    """Calls of one kind, made one after another by the thread that runs `work`.

    Args:
        make: Makes a call, and reports its answer.
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
            del request  # a thread that waits keeps no letter alive


class Sleeper:
    """Until when the thread sleeps that acts when time has come. Everything happens under the lock of the runner."""

    def __init__(self, lock: Lock) -> None:
        self._alarm = Condition(lock)
        self._until_ms: int | None = 0  # None: until it is woken

    def sleep(self, until_ms: int | None, *, now_ms: int) -> None:
        """Sleep until a time, or until somebody knows of an earlier one; for an hour at most."""
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
