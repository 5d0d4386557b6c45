"""The processes of workers."""

import os
import signal
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Final

__all__ = ["make_process"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def make_process() -> Executor:
    """Make the process of one worker; a fork would copy the threads of the client half."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """Let the consumer alone decide when this process ends.

    A terminal sends Ctrl-C to its child processes too, and a service manager SIGTERM; but their handlers shall finish.
    What a handler starts ends by signals as ever: to ignore them would be inherited.
    """
    for number in _SIGNALS:
        signal.signal(number, _pass_over)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_end_by_signals)
    _end_with_parent()


def _pass_over(number: int, frame: object) -> None:
    """Do nothing; a program that is started gets none of this."""


def _end_by_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _end_with_parent() -> None:
    """End this process when the consumer's does, however that ends: nothing else would tell it."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()
