"""The lock of a runner on threads. A Ctrl-C never tears what is done under it."""

from collections.abc import Callable
from enum import Enum, auto
from signal import SIGINT, default_int_handler, getsignal, signal
from threading import Lock, get_ident, main_thread
from types import FrameType, TracebackType
from typing import Final, Self

from keyshared.run.clock import seconds
from keyshared.run.values import CalledFromHookError

__all__ = ["Guard"]


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
        self.thread: int | None = None  # None: nobody holds interrupts
        self.place = _Place.OUTSIDE
        self.is_pending = False
        self._holders = 0

    def hold(self) -> bool:
        """Hold interrupts; return whether that is possible: in the main thread, if nobody else handles them."""
        if get_ident() != main_thread().ident or not (self._holders or getsignal(SIGINT) is default_int_handler):
            return False
        if not self._holders:
            signal(SIGINT, self._handle)
            self.thread = get_ident()
        self._holders += 1
        return True

    def free(self) -> None:
        """Hold interrupts no longer. Whoever has begun to handle them meanwhile goes on doing so."""
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
            self.place = _Place.INSIDE  # what cleans up after the wait is not to be torn either
        default_int_handler(number, frame)


_INTERRUPTS: Final = _Interrupts()


class Guard:
    """A lock, and waiting for news under it.

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
        self._teller: int | None = None  # the thread that is in a hook, and has the lock

    def __enter__(self) -> Self:
        if self._teller is not None and self._teller == get_ident():
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

    def tell(self, call: Callable[..., None], *arguments: object) -> None:
        """Call a hook under the lock: what it calls must not wait for the lock."""
        self._teller = get_ident()
        try:
            call(*arguments)
        finally:
            self._teller = None

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
        """Keep Ctrl-C out of what is done under the lock, until `free_interrupts`."""
        self._is_holding = self._is_holding or _INTERRUPTS.hold()

    def free_interrupts(self) -> None:
        """End what `hold_interrupts` began."""
        if self._is_holding:
            self._is_holding = False
            _INTERRUPTS.free()
