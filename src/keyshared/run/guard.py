"""The lock of a runner on threads. A Ctrl-C never interrupts work under it."""

from collections.abc import Callable
from enum import Enum, auto
from signal import SIGINT, default_int_handler, getsignal, signal
from threading import Lock, get_ident, main_thread
from types import FrameType, TracebackType
from typing import Final, Self, TypeVar

from keyshared.run.errors import CalledFromHookError
from keyshared.run.runner import seconds

__all__ = ["Guard"]

Answer = TypeVar("Answer")


class _Place(Enum):
    OUTSIDE = auto()
    INSIDE = auto()  # an interrupt would tear something
    WAITING = auto()


class _Interrupts:
    """Where the main thread is, and the interrupt that came while it was inside. There is one, as of main threads.

    Python raises `KeyboardInterrupt` in the main thread between any two steps. While a runner holds interrupts, one
    that comes inside is raised on the way out, or when the main thread begins to wait.
    """

    def __init__(self) -> None:
        self.thread: int | None = None  # None: no runner holds interrupts
        self.place = _Place.OUTSIDE
        self.is_pending = False
        self._holders = 0

    def hold(self) -> bool:
        """Hold interrupts; return whether that is possible: in the main thread, unless the program handles them."""
        if get_ident() != main_thread().ident or not (self._holders or getsignal(SIGINT) is default_int_handler):
            return False
        if not self._holders:
            signal(SIGINT, self._handle)
            self.thread = get_ident()
        self._holders += 1
        return True

    def free(self) -> None:
        """Hold interrupts no longer. A handler that the program has set meanwhile stays."""
        self._holders -= 1
        if not self._holders:
            self.thread = None
            if getsignal(SIGINT) == self._handle:
                signal(SIGINT, default_int_handler)

    def raise_pending(self) -> None:
        """Raise the interrupt that came inside."""
        if self.is_pending:
            self.is_pending = False
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.place is _Place.INSIDE:
            self.is_pending = True
            return
        if self.place is _Place.WAITING:
            self.place = _Place.INSIDE  # the clean-up after the wait is not to be torn either
        default_int_handler(number, frame)


_INTERRUPTS: Final = _Interrupts()


class Guard:
    """A lock, and waiting for a change under it.

    Attributes:
        lock: The lock alone, for threads that no interrupt can come to.

    Example:
        >>> with Guard() as guard:
        ...     guard.wait(left_ms=0), guard.waiting
        (None, 0)
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self._bells: dict[Lock, None] = {}  # one for each thread that waits
        self._is_holding = False
        self._before = _Place.OUTSIDE  # where the main thread was: a hook of another runner may call this one
        self._outside: int | None = None  # the thread that is in a hook, and has the lock

    def __enter__(self) -> Self:
        if self._outside is not None and self._outside == get_ident():
            raise CalledFromHookError
        before = _Place.OUTSIDE
        if get_ident() == _INTERRUPTS.thread:
            before, _INTERRUPTS.place = _INTERRUPTS.place, _Place.INSIDE
        self.lock.acquire()
        self._before = before
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = self._before
        self.lock.release()
        if get_ident() == _INTERRUPTS.thread:
            _INTERRUPTS.place = before
            if before is _Place.OUTSIDE:
                _INTERRUPTS.raise_pending()

    def call_outside(self, call: Callable[..., Answer], *arguments: object) -> Answer:
        """Call a function of the user under the lock: its own calls raise instead of waiting for the lock."""
        self._outside = get_ident()
        try:
            return call(*arguments)
        finally:
            self._outside = None

    @property
    def waiting(self) -> int:
        """How many threads wait."""
        return len(self._bells)

    def wait(self, left_ms: int | None = None) -> None:
        """Wait for `wake`, without the lock; for an hour at most if there is a time. An interrupt ends it."""
        bell = Lock()
        bell.acquire()
        self._bells[bell] = None
        self.lock.release()
        is_held = get_ident() == _INTERRUPTS.thread
        try:
            if is_held:
                _INTERRUPTS.place = _Place.WAITING
                _INTERRUPTS.raise_pending()
            bell.acquire(timeout=-1 if left_ms is None else seconds(left_ms))
        finally:
            if is_held:
                _INTERRUPTS.place = _Place.INSIDE
            self.lock.acquire()
            self._bells.pop(bell, None)

    def wake(self) -> None:
        """Wake all threads that wait."""
        for bell in self._bells:
            bell.release()
        self._bells.clear()

    def hold_interrupts(self) -> None:
        """Hold Ctrl-C while the lock is held, until `free_interrupts`."""
        self._is_holding = self._is_holding or _INTERRUPTS.hold()

    def free_interrupts(self) -> None:
        """End what `hold_interrupts` began."""
        if self._is_holding:
            self._is_holding = False
            _INTERRUPTS.free()
