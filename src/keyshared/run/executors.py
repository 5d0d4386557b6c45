"""Handlers in threads and executors: one for each worker, so that a process that dies takes one message with it."""

import pickle
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from threading import local
from typing import Any

from keyshared.run.answers import check_answer
from keyshared.run.values import PartlyDone, Reject, RetryLater

__all__ = ["ForeignError", "InExecutors", "NoExecutorError"]


class ForeignError(Exception):
    """What a handler has raised in a process, and what cannot be told as it is: its class and its text."""


class NoExecutorError(Exception):
    """A worker has no executor, or one that takes nothing, so nothing has handled its message.

    Attributes:
        error: Why.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


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
        for executor in [*self._made]:  # a worker may replace its own meanwhile
            executor.shutdown(wait=False)

    def _submit(self, executor: Executor, message: object) -> Future[None]:
        try:
            return executor.submit(_call, self._handle, message, _HERE)
        except BrokenExecutor:
            raise
        except (OSError, RuntimeError) as error:  # no process or thread can be started
            raise NoExecutorError(error) from error

    def _replace(self) -> Executor:
        try:
            executor = self._make()
            if _is_in_processes(executor):
                _check_it_travels(self._handle)
            executor.submit(_do_nothing).result()  # what cannot start would give up each message that it never handled
        except BaseException as error:
            raise NoExecutorError(error) from error
        old = getattr(self._own, "executor", None)
        if old is not None:
            old.shutdown(wait=False)
            self._made.remove(old)
        self._own.executor = executor
        self._made.append(executor)
        return executor


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
    """Return an error that can be read again where it is told: one that cannot would break the pool, and hang it."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    except Exception:  # noqa: BLE001  # whatever a foreign class raises
        match error:
            case PartlyDone():
                return PartlyDone(error.done, _fit_to_travel(error.error))
            case RetryLater():
                return RetryLater(error.delay_ms)
            case Reject():
                return Reject(str(error))
            case _:
                return ForeignError(f"{type(error).__qualname__}: {error}")
    return error
