"""Signals that ask a program to end in order."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread, current_thread, main_thread
from typing import Any, Final

from keyshared.errors import ArgumentError

__all__ = ["StopRequest", "listening"]

_NEVER: Final = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}  # Windows has neither


class StopRequest:
    """A wish to stop that a signal may bring.

    Attributes:
        has_come: True from the first one on.
    """

    def __init__(self) -> None:
        self.has_come = False


@contextmanager
def listening(numbers: Sequence[int], stop: Callable[[], object]) -> Iterator[StopRequest]:
    """Call ``stop`` in a thread of its own whenever a signal comes, and restore who listened before.

    Python handles a signal between any two steps of the main thread, perhaps while that has a lock which ``stop``
    wants; so the handler itself only puts a word into a queue. Outside the main thread nobody can listen, and no signal
    ever comes.

    Args:
        numbers: Signals; SIGTERM if there are none.
        stop: Begins an orderly stop, and returns.
    """
    request = StopRequest()
    for number in numbers:
        if number not in signal.valid_signals() or number in _NEVER:
            raise ArgumentError("signals", number, "be signals that a program can handle")
    if current_thread() is not main_thread():
        yield request
        return
    came: SimpleQueue[bool] = SimpleQueue()

    def handle(*_: object) -> None:
        request.has_come = True
        came.put(True)

    def listen() -> None:
        while came.get():
            stop()

    listener = Thread(target=listen, name="keyshared", daemon=True)
    before: dict[int, Any] = {}
    try:
        listener.start()
        for number in numbers or (signal.SIGTERM,):
            before[number] = signal.signal(number, handle)
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        came.put(False)
        if listener.ident is not None:  # a Ctrl-C may come before it is started
            listener.join()
