"""Handlers in threads and executors: one for each worker, so that a process that dies takes one message with it."""

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
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
        handle: The function; it and its arguments travel to the executor, but not its answer.

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

    def __call__(self, message: object) -> None:
        """Run the function, and raise what it raises.

        Raises:
            NotAwaitedError: What it returned would have to be awaited.
            BrokenExecutor: Its process has died meanwhile.
            NoExecutorError: It was not run.
        """
        executor = getattr(self._own, "executor", None) or self._replace()
        try:
            running = self._submit(executor, message)
        except BrokenExecutor:  # it died while nothing ran: nobody has to pay for that
            running = self._submit(self._replace(), message)
        try:
            running.result()
        except BrokenExecutor:
            self._replace()
            raise

    def close(self) -> None:
        """End all executors once what they run has ended."""
        for executor in self._made:
            executor.shutdown(wait=False)

    def _submit(self, executor: Executor, message: object) -> Future[None]:
        try:
            return executor.submit(_call, self._handle, message)
        except BrokenExecutor:
            raise
        except (OSError, RuntimeError) as error:  # no process or thread can be started
            raise NoExecutorError(error) from error

    def _replace(self) -> Executor:
        try:
            executor = self._make()
        except BaseException as error:
            raise NoExecutorError(error) from error
        old = getattr(self._own, "executor", None)
        if old is not None:
            old.shutdown(wait=False)
            self._made.remove(old)
        self._own.executor = executor
        self._made.append(executor)
        return executor


def _call(handle: Callable[[Any], object], message: object) -> None:
    """Run in the executor: what a handler returns means nothing, and may not be fit to travel."""
    check_answer(handle(message))
