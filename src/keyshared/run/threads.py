"""The runner for handlers that block: a pool of threads, and on request processes."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from keyshared.run.actions import Commit, LoadMany, Settle, WriteLetter
from keyshared.run.answers import check_answer, check_function
from keyshared.run.clock import now_ms
from keyshared.run.executors import InExecutors, NoExecutorError
from keyshared.run.guard import Guard
from keyshared.run.hands import Calls, Crew, Sleeper, Todo
from keyshared.run.host import Asked, Handle, Message
from keyshared.run.log import Run
from keyshared.run.values import Hooks, Letter, RunnerConfig
from keyshared.run.waits import WaitingThreads

__all__ = ["ThreadRunner"]

_LATEST_NEWS_MS: Final = 100  # how late an end is told while all workers are busy
_SOONEST_NEWS_MS: Final = 10  # likewise, however often commits are wanted
_KINDS: Final = {"commit": Commit, "dead_letter": WriteLetter, "load": LoadMany, "settled": Settle}


class ThreadRunner(WaitingThreads[Message]):
    """Runs handlers in threads: one message of a key at a time, in order, different keys at once.

    A handler that returns has done its message. One that raises `Reject` gives it up, `RetryLater` puts it off, any
    other `Exception` is a failure and is retried. An exception that is no `Exception` (`SystemExit`, a cancellation)
    gives the message back: it comes again after the first delay of the retry policy, and no failure is counted.

    All methods may be called from any thread but not from a hook. Whatever fails in ``commit``, ``dead_letter``,
    ``load``, ``settled``, ``executor`` or a hook stops the runner: handlers finish, what is done is committed, and
    every call raises that error from then on, also one that waits, but those for figures and those about a log that is
    still leaving.

    Args:
        handle: Called with each message, or with a list of them (`RunnerConfig.batch`), by several threads.
        commit: Stores where a restart begins: log, position (the next offset to read) and token. Called by one thread,
            for one log at a time, whenever a restart would redo less than before, and never backwards. It returns when
            the commit is made.
        dead_letter: Stores a message that was given up; its key waits until it returns. It is tried again if it raises.
            Without it a message that should go to the dead letters stops the runner with the handler's error.
        load: Reads messages again that were left in the log: log and offsets. Returns a message for each offset, None
            for one that is no longer there. Without it all messages stay in memory.
        settled: Acks messages where the transport wants that: log and offsets, each once, of those that are done, whose
            dead letters are written, that were dropped, or that the token knows. Called by one thread, for one log at a
            time, as soon as the call before has returned: under load with many at once.
        executor: Makes the executor in which one worker runs its handlers, for example
            ``lambda: ProcessPoolExecutor(1)`` for handlers that compute. If its process dies, the message that it had
            has failed, and the worker gets a new one. Handler and messages have to be picklable then. If none
            can be made, or it can start nothing, or the handler cannot be pickled, the runner stops with that error.
        hooks: Functions that are told what happens.
        config: Settings.

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
        dead_letter: Callable[[Letter[Message]], object] | None = None,
        load: Callable[[str, Sequence[int]], Mapping[int, Message | None]] | None = None,
        settled: Callable[[str, Sequence[int]], object] | None = None,
        executor: Callable[[], Executor] | None = None,
        hooks: Hooks | None = None,
        config: RunnerConfig | None = None,
    ) -> None:
        guard = Guard()
        self._news, self._lock = guard, guard.lock  # our own threads need no more than the lock
        super().__init__(
            {"commit": commit, "dead_letter": dead_letter, "load": load, "settled": settled, "executor": executor},
            guard,
            hooks=hooks,
            config=config,
            has_queue=True,
            cancels=False,
            awaits=False,
        )
        check_function("handle", handle, "a message", is_awaited=False)
        self._executors = None if executor is None else InExecutors(executor, handle)
        self._handle: Callable[[Any], object] = self._executors or handle
        self._todo: Todo[Message] = Todo(self._lock)
        self._sleeper = Sleeper(self._lock)
        self._asked = {kind: Calls(self._call) for name, kind in _KINDS.items() if self._calls[name] is not None}
        self._crew = Crew()

    # Whoever has the lock reports results and takes what is to be done: a worker that has run out of work, a submitter,
    # the clock thread. So there is one hand-over for many messages while there is much to do.

    def _begin_work(self) -> None:
        calls = [calls.work for calls in self._asked.values()]
        self._crew.begin([self._watch_the_clock, *[self._work_on] * self._config.workers], calls)

    def _end_work(self) -> None:
        self._todo.wake_all()
        self._sleeper.wake()
        for calls in self._asked.values():
            calls.end()
        if self._executors is not None:
            self._executors.close()

    def _work_on(self) -> None:
        handle, ended = self._handle, self._ended
        while (run := self._next_run()) is not None:
            run.started_ms = now_ms()
            raised = answer = None
            try:
                if (answer := handle(run.message)) is not None:
                    check_answer(answer)
            except NoExecutorError as none:
                with self._lock:
                    self._give_back(run, none.error)
                continue
            except BaseException as error:  # noqa: BLE001  # every end is an answer
                raised = error
            ended.append((run, raised, now_ms()))
            del run, raised, answer  # a thread that waits keeps no message alive

    def _next_run(self) -> Run[Message] | None:
        """Take the next run; who takes the last one fetches more before it begins."""
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
        return None

    def _watch_the_clock(self) -> None:
        """Act when time has come, and look for results while all workers are too busy to report them."""
        with self._lock:
            while not self._is_over:
                self._step()
                if not self._is_over:  # this step may have been the last one, and nobody would wake this thread
                    self._sleeper.sleep(self._wakes_at_ms(), now_ms=now_ms())

    def _wakes_at_ms(self) -> int | None:
        times = self._heart.next_deadline_ms(), self._soon_ms() if self._todo else None
        return min((each for each in times if each is not None), default=None)

    def _soon_ms(self) -> int:
        return now_ms() + max(_SOONEST_NEWS_MS, min(_LATEST_NEWS_MS, self._config.commit_every_ms))

    def _call(self, asked: Asked[Message]) -> None:
        if asked.log.is_gone:
            return  # it was lost while this waited for its turn, and is somebody else's
        name, function, arguments = self._call_of(asked)
        answer, failed = None, None
        try:
            answer = function(*arguments)
            check_answer(answer, name)
        except BaseException as error:  # noqa: BLE001  # the heart decides what becomes of it
            failed = error
        with self._lock:
            self._answer(asked, answer, failed)

    # What the host asks for, under the lock.

    def _tell(self, hook: Callable[..., object] | None, *arguments: object) -> None:
        if hook is not None:
            self._news.tell(super()._tell, hook, *arguments)

    def _step(self) -> None:
        super()._step()
        self._todo.wake()
        if self._news.waiting and (self._heart.wants_messages() or self._heart.is_idle()):
            self._wake()
        self._sleeper.wake_at(self._wakes_at_ms())

    def _has_more(self) -> None:
        if self._todo.idle:
            self._step()
        else:
            self._sleeper.wake_at(self._soon_ms())

    def _start(self, run: Run[Message]) -> None:
        self._todo.put(run)

    def _cancel(self, run: Run[Message]) -> None:
        """Do nothing: a thread cannot be cancelled, and the heart was told so."""

    def _withdraw(self, runs: tuple[Run[Message], ...]) -> None:
        for run in self._todo.take_back(runs):
            self._heart.withdrawn(run)

    def _ask(self, asked: Asked[Message]) -> None:
        self._asked[type(asked)].put(asked)

    def _wake(self) -> None:
        self._news.wake()
        if self._is_over:
            self._end_work()
