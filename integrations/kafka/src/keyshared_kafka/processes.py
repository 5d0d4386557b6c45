"""The processes of workers."""

import os
import signal
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread

__all__ = ["make_process"]


def make_process() -> Executor:
    """Make the process of one worker; a fork would copy the threads of the client half."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """Let the consumer alone decide when this process ends.

    A terminal sends Ctrl-C to its child processes too, and a service manager SIGTERM; but their handlers shall finish.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _end_with_parent()


def _end_with_parent() -> None:
    """End this process when the consumer's does, however that ends: nothing else would tell it."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()
