"""Which event loop a call comes from, and how another thread asks one."""

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Final, TypeVar

__all__ = ["ask_loop", "running_loop"]

_LOOK_EVERY_S: Final = 0.5  # whether the loop still runs

Answer = TypeVar("Answer")


def running_loop() -> AbstractEventLoop | None:
    """Return the loop that runs in this thread, if there is one."""
    try:
        return get_running_loop()
    except RuntimeError:
        return None


def ask_loop(loop: AbstractEventLoop, question: Callable[[], Answer], without: Callable[[], Answer]) -> Answer:
    """Call a function in a loop of another thread, and wait for its answer.

    Args:
        loop: The loop.
        question: Called in the loop.
        without: Called here instead, if the loop does not run or ends before it has answered.
    """
    answer: Future[Answer] = Future()
    try:
        loop.call_soon_threadsafe(_reply, answer, question)
    except RuntimeError:  # it is closed
        return without()
    while not answer.done():
        if not loop.is_running() and answer.cancel():
            return without()
        wait([answer], _LOOK_EVERY_S)
    return answer.result()


def _reply(answer: "Future[Answer]", question: Callable[[], Answer]) -> None:
    if answer.set_running_or_notify_cancel():
        try:
            answer.set_result(question())
        except BaseException as error:  # noqa: BLE001  # whoever asked gets it
            answer.set_exception(error)
