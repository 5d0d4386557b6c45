"""The event loop of a runner: calls that come from other threads, and the task that its block runs in."""

from asyncio import AbstractEventLoop, CancelledError, Task, current_task, get_running_loop
from collections.abc import Callable
from concurrent import futures
from typing import Any, Final, TypeVar

__all__ = ["MainTask", "ask_loop", "running_loop"]

Answer = TypeVar("Answer")

_LOOK_EVERY_S: Final = 0.5  # whether the loop still runs


def running_loop() -> AbstractEventLoop | None:
    """Return the loop that runs in this thread, if there is one."""
    try:
        return get_running_loop()
    except RuntimeError:
        return None


def ask_loop(loop: AbstractEventLoop, question: Callable[[], Answer], without: Callable[[], Answer]) -> Answer:
    """Call a function in a loop of another thread, wait for the result and return it.

    Args:
        loop: The loop.
        question: Called in the loop.
        without: Called here instead, if the loop does not run or ends before it has called the function.
    """
    answer: futures.Future[Answer] = futures.Future()
    try:
        loop.call_soon_threadsafe(_reply, answer, question)
    except RuntimeError:  # it is closed
        return without()
    while not answer.done():
        if not loop.is_running() and answer.cancel():
            return without()
        futures.wait([answer], _LOOK_EVERY_S)
    return answer.result()


def _reply(answer: "futures.Future[Answer]", question: Callable[[], Answer]) -> None:
    if answer.set_running_or_notify_cancel():
        try:
            answer.set_result(question())
        except BaseException as error:  # noqa: BLE001  # the caller gets it
            answer.set_exception(error)


class MainTask:
    """The task in the ``async with`` block of a runner: cancelled, as by an `asyncio.TaskGroup`, when the runner ends.

    It tells that cancellation from all others.
    """

    def __init__(self) -> None:
        self._task: Task[Any] | None = None
        self._cancels_before = 0
        self._is_cancelled = False

    def enter(self) -> None:
        """Begin the block of the running task."""
        self._task = current_task()
        if self._task is not None:
            self._cancels_before = self._task.cancelling()

    def interrupt(self, loop: AbstractEventLoop) -> None:
        """Cancel what the block awaits, once, in the loop's next turn: a call of the runner may raise first."""
        loop.call_soon(self._cancel)

    def leave(self, error: BaseException | None) -> bool:
        """End the block, and return whether it ended by our cancellation and nothing else."""
        task, self._task = self._task, None
        if task is None or not self._is_cancelled:
            return False
        return task.uncancel() <= self._cancels_before and isinstance(error, CancelledError)

    def _cancel(self) -> None:
        if self._task is not None and not self._is_cancelled:
            self._is_cancelled = self._task.cancel()
