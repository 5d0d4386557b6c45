"""Handlers in threads and executors: one for each worker, so that a process that dies takes one message with it."""

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from inspect import isawaitable, iscoroutine
from threading import local
from typing import Any

from keyshared.run.values import NotAwaitedError

__all__ = ["InExecutors", "NoExecutorError", "check_answer"]


class NoExecutorError(Exception):
    """A worker has no executor, or one that takes nothing, so nothing has handled its message.

    Attributes:
        error: Why.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def check_answer(answer: object) -> None:
    """Raise `NotAwaitedError` if what a handler returned in a thread would have to be awaited.

    Example:
        >>> check_answer("anything else")
    """
    if isawaitable(answer):
        if iscoroutine(answer):
            answer.close()  # or Python warns that it was never awaited
        raise NotAwaitedError(type(answer).__name__)


class InExecutors:
    """Calls a function in the executor of the calling thread, and replaces one that is broken.

    Args:
        make: Makes an executor.
        handle: The function; it and its arguments travel to the executor.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> call = InExecutors(lambda: ThreadPoolExecutor(1), print)
        >>> call("hello")
        hello
        >>> call.close()
    """

    def __init__(self, make: Callable[[], Executor], handle: Callable[[Any], object]) -> None:
        self._make = make
        self._handle = handle
        self._own = local()
        self._made: list[Executor] = []

    def __call__(self, message: object) -> object:
        """Run the function, and return or raise what it does; `BrokenExecutor` if its process has died meanwhile."""
        executor = getattr(self._own, "executor", None) or self._replace()
        try:
            running = executor.submit(self._handle, message)
        except BrokenExecutor:  # it died while nothing ran: nobody has to pay for that
            running = self._replace().submit(self._handle, message)
        try:
            return running.result()
        except BrokenExecutor:
            self._replace()
            raise

    def close(self) -> None:
        """End all executors once what they run has ended."""
        for executor in self._made:
            executor.shutdown(wait=False)

    def _replace(self) -> Executor:
        executor: Executor = self._make()
        old = getattr(self._own, "executor", None)
        if old is not None:
            old.shutdown(wait=False)
            self._made.remove(old)
        self._own.executor = executor
        self._made.append(executor)
        return executor
