"""The processes of workers, and what may be handled in them."""

import os
import signal
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.reduction import ForkingPickler
from threading import Thread
from typing import Final

from keyshared.errors import ConfigError, shown

__all__ = ["check_processes", "make_process"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def check_processes(processes: object, handle: object, *, is_async: bool) -> None:
    """Check the switch, and that the handler can travel to a process: else no message could ever be handled.

    Args:
        processes: The switch.
        handle: The handler.
        is_async: Whether it is a coroutine function.

    Raises:
        ConfigError: The switch is no bool, or the handler cannot travel.
    """
    if type(processes) is not bool:
        raise ConfigError("processes", processes, "be True or False; `workers` says how many there are")
    if not processes:
        return
    if is_async:
        raise ConfigError("processes", processes, "be False with a coroutine function")
    try:
        ForkingPickler.dumps(handle)  # what carries it to the processes
    except Exception as error:
        wanted = "be picklable with processes=True, as a function at the top level of a module is"
        raise ConfigError("handle", handle, f"{wanted}; pickle says {shown(error)}") from error


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
