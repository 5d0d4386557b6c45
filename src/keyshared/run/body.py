"""The task in the ``async with`` block of a runner, which is cancelled when there is nothing left for it to do."""

from asyncio import AbstractEventLoop, CancelledError, Task, current_task
from typing import Any

__all__ = ["Body"]


class Body:
    """Cancels the task of a block as an `asyncio.TaskGroup` does, and tells that cancellation from all others."""

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
        """Cancel whatever the block waits for, once, in the loop's next turn: a call of the runner may raise first."""
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
