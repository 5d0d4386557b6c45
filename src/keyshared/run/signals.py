"""Signals that ask a program to end in order, or to log what is stuck."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Thread, current_thread, main_thread
from typing import Any, Final

from keyshared.errors import ArgumentError
from keyshared.run.errors import StoppedError

__all__ = ["StopRequest", "listening"]

_USR1: Final = getattr(signal, "SIGUSR1", None)  # Windows has none

_NEVER: Final = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}  # Windows has neither


class StopRequest:
    """A request to stop by a signal.

    Attributes:
        has_come: True from the first one on.
    """

    def __init__(self) -> None:
        self.has_come = False


@contextmanager
def listening(
    numbers: Sequence[int], stop: Callable[[], object], report: Callable[[], object] | None = None
) -> Iterator[StopRequest]:
    """Call ``stop`` in a thread of its own whenever a signal comes, and restore the handlers of before at the end.

    Python handles a signal between any two steps of the main thread, perhaps while that has a lock which ``stop``
    wants; so the handler itself only puts a function into a queue. Outside the main thread no handler can be set, and
    no signal ever comes.

    Args:
        numbers: Signals; SIGTERM if there are none.
        stop: Begins an orderly stop, and returns.
        report: Called at SIGUSR1, where there is such a signal and it is not among ``numbers``.
    """
    request = StopRequest()
    _check_signals(numbers)
    if current_thread() is not main_thread():
        yield request
        return
    came: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def handle_stop(*_: object) -> None:
        request.has_come = True
        came.put(stop)

    def handle_report(*_: object) -> None:
        came.put(report)

    def listen() -> None:
        while (act := came.get()) is not None:
            with suppress(StoppedError):
                act()

    handlers: dict[int, Callable[..., None]] = {} if report is None or _USR1 is None else {_USR1: handle_report}
    handlers |= dict.fromkeys(numbers or (signal.SIGTERM,), handle_stop)
    listener = Thread(target=listen, name="keyshared", daemon=True)
    before: dict[int, Any] = {}
    try:
        listener.start()
        for number, handler in handlers.items():
            before[number] = signal.signal(number, handler)
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        came.put(None)
        if listener.ident is not None:  # a Ctrl-C may come before it is started
            listener.join()


def _check_signals(numbers: Sequence[int]) -> None:
    for number in numbers:
        if number not in signal.valid_signals() or number in _NEVER:
            raise ArgumentError("signals", number, "be signals that a program can handle")
