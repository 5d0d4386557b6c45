"""The runner for handlers that block: a pool of threads, and on request processes."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from keyshared.hashing import Key
from keyshared.run.actions import Commit, LoadMany, Settle, WriteDeadLetter
from keyshared.run.assignment import Run
from keyshared.run.errors import StoppedError
from keyshared.run.functions import check_answer, check_function
from keyshared.run.guard import Guard
from keyshared.run.runner import IN_HANDLER_OF, Asked, Handle, Runner, left_ms, now_ms, on_our_clock, until_ms
from keyshared.run.signals import listening
from keyshared.run.spans import Spans
from keyshared.run.values import DeadLetter, Hooks, RunnerConfig
from keyshared.run.workers import Calls, InExecutors, NotBegunError, Sleeper, Threads, Todo

__all__ = ["ThreadRunner"]

Message = TypeVar("Message")
Answer = TypeVar("Answer")

_LATEST_NEWS_MS: Final = 100  # how late an end is reported while all workers are busy
_SOONEST_NEWS_MS: Final = 10  # likewise, however often commits are wanted
_KINDS: Final = {"commit": Commit, "dead_letter": WriteDeadLetter, "load": LoadMany, "settled": Settle}


class ThreadRunner(Runner[Message]):
    """Runs handlers in threads: one message of a key at a time, in order, different keys at once.

    A message is done when its handler returns. `Reject` gives it up, `RetryLater` lets it come again later, any other
    exception is a failure and is retried, also `SystemExit`. `KeyboardInterrupt` gives the message back.

    All methods may be called from any thread but not from a hook. A call of ``commit``, ``dead_letter``, ``load`` or
    ``settled`` that fails is tried again (`RunnerConfig.call_attempts`). Its last error, or one of ``executor`` or a
    hook, stops the runner: handlers finish, all that is done is committed, and from then on every call raises that
    error, also one that waits, except calls for figures and calls about a log that is still leaving.

    Args:
        handle: Called with each message, or with a list of them (`RunnerConfig.batch`), by several threads.
        commit: Stores where a restart begins: log, position (the next offset to read) and token. Called by one thread,
            for one log at a time, when a log begins and ends, and whenever a restart would redo less than before, and
            never backwards. It returns when the commit is made, or a `concurrent.futures.Future` that ends then. No
            handler begins before the first commit is made.
        dead_letter: Stores a message that was given up (`DeadLetter`); its key waits until it returns. Without it a
            message that should go to the dead letters stops the runner with the handler's error.
        load: Reads messages again that were left in the log: log and offsets. Returns a message for each offset, None
            for one that the log does not have any more; it is lost, and reported as such. Without ``load`` all messages
            stay in memory.
        settled: Acks messages where the transport wants that: log and offsets, each once, of those that are done, whose
            dead letters are written, that were dropped, or that the token knows. Called by one thread, for one log at a
            time, as soon as the call before has returned: under load with many at once.
        executor: Makes the executor in which one worker runs its handlers, for example
            ``lambda: ProcessPoolExecutor(1)`` for handlers that compute. If its process dies, the message that it had
            has failed, and the worker gets a new one. A process whose handler outlasts its timeout, or the stop of the
            runner, is killed. Handler and messages have to be picklable then. If no executor can be made, or it can
            start nothing, or the handler cannot be pickled, the runner stops with that error.
        hooks: Functions that are called when something has happened.
        config: Settings.
        logger: Where records go: failures, blocked, slow and lost messages, the error that stops the runner; by default
            `logging.getLogger("keyshared.run")`. Each record has a dict ``keyshared`` with event, log, offset and key.
        spans: Makes an OpenTelemetry span for each run of a handler.

    Example:
        >>> done = []
        >>> with ThreadRunner(done.append) as runner:
        ...     runner.add_log("orders")
        ...     for offset, message in enumerate(["created", "paid", "shipped"]):
        ...         runner.submit("orders", offset, "order-1", message)
        >>> done
        ['created', 'paid', 'shipped']
    """

    def __init__(
        self,
        handle: Handle[Message],
        *,
        commit: Callable[[str, int, str], object] | None = None,
        dead_letter: Callable[[DeadLetter[Message]], object] | None = None,
        load: Callable[[str, Sequence[int]], Mapping[int, Message | None]] | None = None,
        settled: Callable[[str, Sequence[int]], object] | None = None,
        executor: Callable[[], Executor] | None = None,
        hooks: Hooks | None = None,
        config: RunnerConfig | None = None,
        logger: logging.Logger | None = None,
        spans: Spans | None = None,
    ) -> None:
        check_function("handle", handle, "a message", is_awaited=False, arguments=1)
        guard = Guard()
        self._news, self._lock = guard, guard.lock  # our own threads need no more than the lock
        super().__init__(
            {"commit": commit, "dead_letter": dead_letter, "load": load, "settled": settled, "executor": executor},
            guard,
            hooks=hooks,
            config=config,
            logger=logger,
            spans=spans,
            has_queue=True,
            cancels=executor is not None,
            awaits=False,
        )
        self._executors = None if executor is None else InExecutors[Message](executor, handle)
        self._handle: Callable[[Any], object] = handle
        self._todo: Todo[Message] = Todo(self._lock)
        self._sleeper = Sleeper(self._lock)
        self._asked = {kind: Calls(self._call) for name, kind in _KINDS.items() if self._calls[name] is not None}
        self._threads = Threads()

    # calls that wait; all of them end at once when the runner stops

    def submit(
        self,
        log: str,
        offset: int,
        key: Key,
        message: Message,
        *,
        not_before_epoch_ms: int | None = None,
        wait: bool = True,
    ) -> None:
        """Take the next message of a log; wait while there is no capacity for it.

        A handler of this runner never waits here: its follow-up is taken as with ``wait=False``.

        Args:
            log: Its log.
            offset: Greater than any of this log before; gaps are fine.
            key: Its key; None for no order.
            message: What the handler gets.
            not_before_epoch_ms: The time, in milliseconds since 1970, before which no handler begins with it; its key
                waits behind it.
            wait: False to take it at once, beyond the window if need be, while fewer than `RunnerConfig.max_tracked`
                messages of the log are unfinished.

        Raises:
            OffsetOrderError: The offset is not above the last one. Nothing was taken, and the runner goes on.
            KeyTypeError: The key is neither bytes, str nor None. As above.
            RoomError: It may not wait, and there is no capacity. As above.
            UnknownLogError: There is no such log, or it left while this waited.
            StoppedError: The runner stops; if an error made it stop, that is raised instead.
        """
        if wait and not_before_epoch_ms is None:
            with self._guard:
                if self._engine.submit_on_credit(log, offset, key, message, now_ms=now_ms()):
                    self._has_more()
                    return
        row = (offset, key, message)
        self.submit_many(log, [row if not_before_epoch_ms is None else (*row, not_before_epoch_ms)], wait=wait)

    def submit_many(self, log: str, messages: Iterable[Any], *, wait: bool = True) -> None:
        """Take several messages of a log: as `submit` for one after another.

        Args:
            log: Their log.
            messages: Tuples of offset, key and message, and perhaps ``not_before_epoch_ms``.
            wait: As for `submit`.
        """
        rows = deque(map(on_our_clock, messages))  # outside the lock: reading them may take its time
        if not wait or self._is_own_handler():
            with self._guard:
                self._take_at_once(log, rows)
            return
        with self._guard:
            while True:
                self._take_some(log, rows, len(rows))
                if not rows:
                    break
                self._step()
                while not self._engine.room(log):
                    self._news.wait()

    def wait_for_room(self, log: str, within_ms: int | None = None) -> int:
        """Wait until a log has capacity, and return how many messages of it would be taken, to ask its transport for.

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
            if not self._engine.room(log):
                self._step()
            while not (room := self._engine.room(log)):
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
            self._engine.check_open()
            while left := left_ms(until):
                self._news.wait(left)
                self._engine.check_open()

    def remove_log(self, log: str, within_ms: int | None = None) -> bool:
        """End with a log: start nothing more of it, let its handlers finish, commit, and forget it. Waits for that.

        Args:
            log: Its name.
            within_ms: How long handlers may go on; by default ``stop_ms`` of the settings. A message whose handler runs
                longer is not committed and will be redelivered; the outcome of the handler does not count.

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
            Whether all is done. If not, the time is over, or the rest waits for an operator (`Poison.BLOCK`, a pause).
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
            Whether every handler has finished in time. A thread that has not goes on in the background, and so does a
            call of ``commit``, ``dead_letter``, ``load`` or ``settled`` that does not return. No handler begins after
            this has returned.

        Raises:
            BaseException: The error that has stopped the runner before.
        """
        until = now_ms() + self._allowed(within_ms)
        with self._guard:
            self._begin_stop(within_ms)
            while not self._is_over:
                self._news.wait()
        if self._is_finished:
            self._threads.join(until)
        return self._outcome()

    @contextmanager
    def stopping_on_signals(self, *signals: int) -> Iterator[Self]:
        """Use it in the place of the runner's own ``with`` block, to stop in order when the process is asked to end.

        The block goes on until it submits, or waits in `submit`, `wait_for_room` or `sleep`. That raises `StoppedError`
        then, which ends the block and goes no further. Handlers finish meanwhile, all that is done is committed, and
        the handler of the signal of before is restored. If an error stops the runner meanwhile, such as that of the
        last commit, the block raises it. SIGUSR1 logs `stuck`. Outside the main thread no signal is handled.

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
        with listening(signals, self._stop_soon, self._report_stuck) as request:
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
            if error is None and not self._engine.is_stopping:
                with suppress(StoppedError):  # another thread has called `stop` meanwhile
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

    # The thread that has the lock reports results and carries out all actions: a worker that has run out of work, a
    # submitter, the clock thread. So there is one hand-over for many messages while there is much to do.

    def _begin_work(self) -> None:
        calls = [calls.work for calls in self._asked.values()]
        self._threads.begin([self._watch_the_clock, *[self._work_on] * self._config.workers], calls)

    def _end_work(self) -> None:
        self._todo.wake_all()
        self._sleeper.wake()
        for calls in self._asked.values():
            calls.end()
        if self._executors is not None:
            self._executors.close()

    def _work_on(self) -> None:
        IN_HANDLER_OF.set(self)  # of this thread
        handle, executors, ended, spans = self._handle, self._executors, self._ended, self._spans
        is_replaced = False
        while not is_replaced and (run := self._next_run()) is not None:
            raised = answer = None
            try:
                if executors is not None:
                    with nullcontext() if spans is None else spans.around(run, now_ms):
                        executors.handle(run)
                else:
                    run.started_ms = now_ms()
                    if run.is_abandoned:  # written before the engine looks whether it has started, read after
                        raise NotBegunError(None)  # noqa: TRY301
                    if spans is not None:
                        with spans.around(run, now_ms):
                            check_answer(handle(run.message))
                    elif (answer := handle(run.message)) is not None:
                        check_answer(answer)
            except NotBegunError as none:
                with self._lock:
                    self._not_begun(run, none.error)
                continue
            except BaseException as error:  # noqa: BLE001  # every end is an outcome
                raised = error
            ended.append((run, raised, now_ms()))
            is_replaced = run.is_replaced  # another thread has its place
            del run, raised, answer  # a thread that waits keeps no message alive
        if is_replaced:
            with self._lock:
                self._step()

    def _next_run(self) -> Run[Message] | None:
        """Take the next run; the thread that takes the last one fetches more before it begins."""
        todo = self._todo
        while not self._is_over:
            run = todo.take()
            if run is not None:
                if todo.needs_more():
                    with self._lock:
                        todo.wake()
                elif not todo and self._ended:
                    with self._lock:
                        self._step()
                return run
            with self._lock:
                self._step()
                while not todo and not self._is_over:
                    todo.wait()
                    if not todo:
                        self._step()
        return None

    def _watch_the_clock(self) -> None:
        """Act when it is time, and look for results while all workers are too busy to report them."""
        with self._lock:
            while not self._is_over:
                self._step()
                if not self._is_over:  # this step may have been the last one, and nothing would wake this thread
                    self._sleeper.sleep(self._wakes_at_ms(), now_ms=now_ms())

    def _wakes_at_ms(self) -> int | None:
        times = self._engine.next_deadline_ms(), self._soon_ms() if self._todo else None
        return min((each for each in times if each is not None), default=None)

    def _soon_ms(self) -> int:
        return now_ms() + max(_SOONEST_NEWS_MS, min(_LATEST_NEWS_MS, self._config.commit_every_ms))

    def _call(self, asked: Asked[Message]) -> None:
        if asked.log.is_gone:
            return  # it was lost while this waited for its turn, and belongs to another process
        name, function, arguments = self._call_of(asked)
        answer, failed = None, None
        try:
            answer = function(*arguments)
            if isinstance(asked, Commit) and isinstance(answer, Future):
                answer.add_done_callback(partial(self._committed, asked))
                return
            check_answer(answer, name)
        except BaseException as error:  # noqa: BLE001  # the engine decides what becomes of it
            failed = error
        with self._lock:
            self._answer(asked, answer, failed)

    def _committed(self, asked: Commit[Message], made: "Future[object]") -> None:
        """Report a commit that another thread has made or not."""
        error = CancelledError() if made.cancelled() else made.exception()
        with self._lock:
            self._answer(asked, None, error)

    # What the base wants done, under the lock.

    def _outside(self, call: Callable[..., Answer], *arguments: object) -> Answer:
        return self._news.call_outside(call, *arguments)

    def _step(self) -> None:
        super()._step()
        self._todo.wake()
        if self._news.waiting and (self._engine.wants_messages() or self._engine.is_idle()):
            self._wake()
        self._sleeper.wake_at(self._wakes_at_ms())

    def _has_more(self) -> None:
        if self._todo.idle:
            self._todo.wake_to_look()
        else:
            self._sleeper.wake_at(self._soon_ms())

    def _start(self, run: Run[Message]) -> None:
        self._todo.put(run)

    def _cancel(self, run: Run[Message]) -> None:
        if self._executors is not None:
            self._executors.kill(run)

    def _replace(self, run: Run[Message]) -> None:  # noqa: ARG002  # its thread ends when its handler does
        self._threads.add(self._work_on)

    def _withdraw(self, runs: tuple[Run[Message], ...]) -> None:
        for run in self._todo.take_back(runs):
            self._engine.withdrawn(run)

    def _ask(self, asked: Asked[Message]) -> None:
        self._asked[type(asked)].put(asked)

    def _wake(self) -> None:
        self._news.wake()
        if self._is_over:
            self._end_work()
