"""The calls of a runner on threads that wait, and the block that it is used in."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from keyshared.hashing.named import Key
from keyshared.run.clock import now_ms
from keyshared.run.guard import Guard
from keyshared.run.hands import Crew
from keyshared.run.host import Host, Message, left_ms, until_ms
from keyshared.run.signals import listening
from keyshared.run.values import StoppedError

__all__ = ["WaitingThreads"]


class WaitingThreads(Host[Message]):
    """What waits for the threads of a runner. All of it ends at once when the runner stops."""

    _news: Guard
    _crew: Crew

    def submit(self, log: str, offset: int, key: Key, message: Message) -> None:
        """Take the next message of a log; wait while there is no room for it.

        Args:
            log: Its log.
            offset: Greater than any of this log before; gaps are fine.
            key: What it is ordered by; None for nothing.
            message: What the handler gets.

        Raises:
            OffsetOrderError: The offset is not above the last one. Nothing was taken, and the runner goes on.
            KeyTypeError: The key is neither bytes, str nor None. As above.
            UnknownLogError: There is no such log, or it left while this waited.
            StoppedError: The runner stops; if an error made it stop, that is raised instead.
        """
        self.submit_many(log, [(offset, key, message)])

    def submit_many(self, log: str, messages: Iterable[tuple[int, Key, Message]]) -> None:
        """Take several messages of a log, each an offset, a key and a message: as `submit` for one after another."""
        rows = deque(messages)  # outside the lock: reading them may take its time
        with self._guard:
            while True:
                self._take_some(log, rows, len(rows))
                if not rows:
                    break
                self._step()
                while not self._heart.room(log):
                    self._news.wait()

    def wait_for_room(self, log: str, within_ms: int | None = None) -> int:
        """Wait until a log has room, and return how many messages of it would be taken: what to ask its transport for.

        Args:
            log: Its name.
            within_ms: How long; None for as long as it takes.

        Returns:
            The number; 0 if the time is over.

        Raises:
            UnknownLogError: There is no such log, or it left while this waited.
            StoppedError: The runner stops; if an error made it stop, that is raised instead.
        """
        until = until_ms(within_ms)
        with self._guard:
            if not self._heart.room(log):
                self._step()
            while not (room := self._heart.room(log)):
                left = left_ms(until)
                if left == 0:
                    break
                self._news.wait(left)
            return room

    def sleep(self, ms: int) -> None:
        """Wait for so long, as a reader does that has found nothing to read.

        Raises:
            StoppedError: The runner stops, and this ends at once; if an error made it stop, that is raised instead.
        """
        until = until_ms(ms, "ms")
        with self._guard:
            self._heart.check_open()
            while left := left_ms(until):
                self._news.wait(left)
                self._heart.check_open()

    def remove_log(self, log: str, within_ms: int | None = None) -> bool:
        """End with a log: start nothing more of it, let its handlers finish, commit, and forget it. Waits for that.

        Args:
            log: Its name.
            within_ms: How long handlers may go on; by default ``stop_ms`` of the settings. What runs longer is given
                back to the log: it is not committed, and what its handler answers later does not count.

        Returns:
            Whether every handler has finished in time.

        Raises:
            UnknownLogError: There is no such log.
            StoppedError: The runner has stopped. If an error made it stop, such as that of the last commit of this log,
                that is raised instead.
        """
        with self._guard:
            leaving = self._let_leave(log, within_ms)
            while not (leaving.is_gone or self._is_over):
                self._news.wait()
            return self._has_left(leaving)

    def drain(self, within_ms: int | None = None) -> bool:
        """Wait until everything that was submitted is done and committed.

        Args:
            within_ms: How long; None for as long as something can still happen by itself.

        Returns:
            Whether all is done. If not, the time is over, or what is left waits for an operator (`Poison.BLOCK`).
        """
        until = until_ms(within_ms)
        with self._guard:
            self._step()
            while not self._is_at_rest():
                left = left_ms(until)
                if left == 0:
                    return False
                self._news.wait(left)
            return self._is_drained()

    def stop(self, within_ms: int | None = None) -> bool:
        """Stop: take nothing more, start nothing more, let handlers finish, commit, and end. Twice does no harm.

        Args:
            within_ms: As for `remove_log`.

        Returns:
            Whether every handler has finished in time. A thread that has not works on and is left to the interpreter,
            and so is a call of ``commit``, ``dead_letter``, ``load`` or ``settled`` that does not return.

        Raises:
            BaseException: What has stopped the runner before, if that was an error.
        """
        until = now_ms() + self._allowed(within_ms)
        with self._guard:
            self._begin_stop(within_ms)
            while not self._is_over:
                self._news.wait()
        if self._is_finished:
            self._crew.join(until)
        return self._outcome()

    @contextmanager
    def stopping_on_signals(self, *signals: int) -> Iterator[Self]:
        """Use it in the place of the runner's own ``with`` block, to stop in order when the process is asked to end.

        The block goes on until it submits, or waits in `submit`, `wait_for_room` or `sleep`. That raises `StoppedError`
        then, which ends the block and goes no further. Handlers finish meanwhile, what is done is committed, and
        whoever listened for the signal before does so again. If an error stops the runner meanwhile, such as that of
        the last commit, the block raises it. Outside the main thread no signal is listened for.

        Args:
            signals: Which; SIGTERM if none is named.

        Raises:
            ArgumentError: A signal that no program can handle.

        Example:
            >>> from keyshared.run import ThreadRunner
            >>> with ThreadRunner(print).stopping_on_signals() as runner:
            ...     runner.add_log("orders")
            ...     runner.submit("orders", 0, "order-1", "created")
            created
        """
        with listening(signals, self._stop_soon) as request:
            try:
                with self:
                    yield self
            except StoppedError:
                if not request.has_come:
                    raise
                if self.error is not None:
                    raise self.error from None

    def __enter__(self) -> Self:
        self._news.hold_interrupts()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain and stop; after an error or a Ctrl-C, stop without draining. A second Ctrl-C ends that too."""
        try:
            if error is None and not self._heart.is_stopping:
                with suppress(StoppedError):  # somebody has called `stop` meanwhile, as is their right
                    self.drain()
        finally:
            try:
                self.stop()
            except BaseException:
                if error is None:
                    raise
            finally:
                self._news.free_interrupts()

    def _stop_soon(self) -> None:
        with self._guard:
            self._begin_stop(None)
