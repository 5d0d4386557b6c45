"""The logs of a runner: they come, share its memory, and leave, one after another or all at its end."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from keyshared._checks import check_text
from keyshared.errors import ArgumentError
from keyshared.run.actions import Action, Cancel, Left, Stopped, Stopping, Withdraw
from keyshared.run.alarms import Alarms
from keyshared.run.commits import Commits
from keyshared.run.leftovers import Leftovers
from keyshared.run.log import Log, Run, Why
from keyshared.run.rooms import Rooms
from keyshared.run.turns import Turns
from keyshared.run.values import RunnerConfig, StoppedError, UnknownLogError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["GRACE_MS", "Stays"]

GRACE_MS: Final = 1_000
"""How long a cancelled handler has for its end when its log leaves, and then the last commit of that log."""

Message = TypeVar("Message")


class Stays(Generic[Message]):
    """Knows which logs are here, and lets them leave in order.

    Args:
        config: Settings.
        ahead: How many messages may be on the way to a worker besides those at handlers.
        cancels: Whether the runner can cancel a handler.
        commits: Whether there is somebody to commit.
        settles: Whether there is somebody to tell what is settled.

    Attributes:
        is_stopping: Whether it takes nothing more.
    """

    def __init__(self, config: RunnerConfig, *, ahead: int, cancels: bool, commits: bool, settles: bool) -> None:
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None
        self.is_stopping = False
        self._config = config
        self._cancels = cancels
        self._settles = settles
        self._logs: dict[str, Log[Message]] = {}
        self._rooms = Rooms(config.window, self._logs)
        self._commits: Commits[Message] = Commits(config, is_on=commits)
        self._leftovers: Leftovers[Message] = Leftovers()
        self._turns: Turns[Message] = Turns(config.workers + ahead, config.batch or 1, self._leftovers)
        self._touched: dict[Log[Message], None] = {}  # room, loads and what is settled may have changed
        self._leaving: dict[Log[Message], None] = {}
        self._alarms = Alarms()
        self._out: list[Action[Message]] = []
        self._now = 0
        self._is_finished = True
        self._is_stopped = False
        self._is_withdrawing = False  # until that is done, nobody is late

    def add_log(
        self, name: str, *, start: int | None = None, resume_from: str | None = None, now_ms: int | None = None
    ) -> int | None:
        """Begin with a log; return where to read it."""
        self._tick(now_ms)
        self.check_open()
        if check_text("log", name) in self._logs:
            raise ArgumentError("log", name, "be the name of no log that is there; call remove_log first")
        log = self._logs[name] = Log(name, self._config, start, resume_from, tells_settled=self._settles)
        position = log.dispatcher.resume_offset
        return start if position is None else position

    def remove_log(self, name: str, *, until_ms: int, now_ms: int | None = None) -> Log[Message]:
        """Start nothing more of a log, and let it leave when its handlers have ended, or at that time: `Left`.

        It may leave already: the earlier time counts.
        """
        self._tick(now_ms)
        log = self.log(name)
        self._leave(log, until_ms)
        return log

    def lose_log(self, name: str, *, now_ms: int | None = None) -> None:
        """Forget a log at once; nothing of it counts any more."""
        self._tick(now_ms)
        log = self.log(name)
        self._leave(log, self._now)
        self._cancel(log.runs, Why.LEAVES)
        self._abandon(log)
        self._forget(log)

    def log(self, name: str) -> Log[Message]:
        """Return a log that is there; raise why it takes nothing more, or `UnknownLogError`."""
        log = self._logs.get(name)
        if log is None:
            self.check_open()
            raise UnknownLogError(name)
        return log

    def room(self, name: str) -> int:
        """How many messages of a log may be submitted: what is left of the window, or of its own share of that."""
        self.check_open()
        log = self._open_log(name)
        room = self._rooms.room(log)
        if not room:
            self._rooms.refuse(log)
        return room

    def outstanding(self) -> int:
        """How many messages are not done."""
        return sum(log.dispatcher.stats().outstanding for log in self._logs.values())

    # the end

    @property
    def error(self) -> BaseException | None:
        """What stopped it, with the traceback that it had then: each call that raises it would make that longer."""
        return None if self._error is None else self._error.with_traceback(self._trace)

    @error.setter
    def error(self, error: BaseException) -> None:
        self._error, self._trace = error, error.__traceback__

    def stop(self, *, until_ms: int, now_ms: int | None = None) -> None:
        """Make all logs leave; `Stopped` is the last action."""
        self._tick(now_ms)
        self._begin_to_stop()
        for log in self._logs.values():
            self._leave(log, until_ms)

    def fail(self, error: BaseException, *, now_ms: int | None = None) -> None:
        """Stop because of an error; the first one counts."""
        self._tick(now_ms)
        if self.error is not None:
            return
        self.error = error
        if self.is_stopping:
            self._out.append(Stopping())
        else:
            self.stop(until_ms=self._now + self._config.stop_ms)

    def check_open(self) -> None:
        """Raise what made it stop, or `StoppedError`, if it takes nothing more."""
        if self.error is not None:
            raise self.error
        if self.is_stopping:
            raise StoppedError

    # inside

    def _begin_to_stop(self) -> None:
        if not self.is_stopping:
            self.is_stopping = True
            self._out.append(Stopping())

    def _tick(self, now_ms: int | None) -> None:
        if now_ms is not None and now_ms > self._now:
            self._now = now_ms

    def _is_busy(self) -> bool:
        return any(log.is_busy() for log in self._logs.values())

    def _open_log(self, name: str) -> Log[Message]:
        log = self.log(name)
        if log.is_leaving:
            raise UnknownLogError(name)
        return log

    def _leave(self, log: Log[Message], until_ms: int) -> None:
        if not log.is_leaving and log.runs:
            self._out.append(Withdraw(tuple(log.runs)))
            self._is_withdrawing = True
        log.is_leaving = True
        self._leaving[log] = None
        log.to_load.clear()
        self._alarms.at(until_ms, partial(self._end_of_time, log, until_ms))

    def _end_of_time(self, log: Log[Message], until_ms: int) -> None:
        """Cancel what still runs, and wait for its end a little; or let it go at once if it cannot be cancelled."""
        if self._cancels and log.runs:
            self._cancel(log.runs, Why.LEAVES)
            self._alarms.at(until_ms + GRACE_MS, partial(self._abandon, log))
        else:
            self._abandon(log)
        self._alarms.at(until_ms + 2 * GRACE_MS, partial(self._forget, log, is_finished=False))

    def _cancel(self, runs: Iterable[Run[Message]], why: Why) -> None:
        """Cancel each once, whatever asks for it later: it may take its time to clean up."""
        for run in runs:
            if self._cancels and run.cancelled is None:
                run.cancelled = why
                self._out.append(Cancel(run))

    def _abandon(self, log: Log[Message]) -> None:
        """Stop waiting for what runs, and for dead letters that are not written."""
        log.is_finished &= not (log.runs or log.letters)
        for run in log.runs:
            self._leftovers.leave(run)
        log.runs.clear()
        log.letters = 0

    def _forget(self, log: Log[Message], *, is_finished: bool = True) -> None:
        if log.is_gone:
            return
        log.is_gone = True
        log.is_finished &= is_finished
        del self._logs[log.name]
        self._rooms.forget(log)
        self._leftovers.forget(log)
        for books in (self._commits.changed, self._touched, self._leaving):
            books.pop(log, None)
        self._touched.update(self._rooms.full)  # they may use what it has used
        self._is_finished &= log.is_finished or not self.is_stopping
        self._out.append(Left(log, log.is_finished))

    def _let_leave(self) -> None:
        for log in [log for log in self._leaving if log.waits_for_no_handler()]:
            if not (log.is_committing or log in self._commits.changed or log.is_settling or log.settled):
                self._forget(log)
        if self.is_stopping and not self._logs and not self._is_stopped:
            self._is_stopped = True
            self._out.append(Stopped(self._is_finished and not self._turns.busy))
