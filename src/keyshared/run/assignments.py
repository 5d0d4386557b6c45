"""The assignments of a runner: they come, share its memory, and leave, one after another or all at its end."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from keyshared._checks import check_text
from keyshared.errors import ArgumentError
from keyshared.run.actions import Action, Cancel, Left, Stopped, Stopping, Withdraw
from keyshared.run.assignment import Assignment, Run, Why
from keyshared.run.errors import StoppedError, UnknownLogError
from keyshared.run.memory import MemoryBudget
from keyshared.run.reports import ERROR, Report, cause, place
from keyshared.run.schedule import Alarms, RunQueue
from keyshared.run.values import RunnerConfig

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["GRACE_MS", "Assignments"]

GRACE_MS: Final = 1_000
"""How long a cancelled handler has for its end when its log leaves, and then the last commit of that log."""

Message = TypeVar("Message")


class Assignments(ABC, Generic[Message]):
    """Knows which logs the runner has, and lets them leave in order.

    Its arguments are those of `Engine`.

    Attributes:
        is_stopping: Whether it takes nothing more.
        reports: What is to be logged; the runner takes it out.
    """

    def __init__(
        self,
        config: RunnerConfig,
        *,
        ahead: int = 0,
        cancels: bool = False,
        commits: bool = False,
        writes: bool = False,
        loads: bool = False,
        settles: bool = False,
    ) -> None:
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None
        self.is_stopping = False
        self.reports: list[Report] = []
        self._config = config
        self._cancels = cancels
        self._commits = commits
        self._writes = writes
        self._settles = settles
        self._loads = loads
        self._logs: dict[str, Assignment[Message]] = {}
        capacity = config.workers + ahead
        self._memory = MemoryBudget(config.window, capacity, self._logs)
        self._schedule: RunQueue[Message] = RunQueue(capacity, config.batch or 1)
        self._touched: dict[Assignment[Message], None] = {}  # memory, loads and settled messages may have changed
        self._changed: dict[Assignment[Message], None] = {}  # there may be something else to commit
        self._leaving: dict[Assignment[Message], None] = {}
        self._alarms = Alarms()
        self._hung = 0  # handlers whose places other workers have
        self._out: list[Action[Message]] = []
        self._now = 0
        self._is_finished = True
        self._is_stopped = False
        self._is_withdrawing = False  # until that is done, no alarm rings

    def add_log(
        self, name: str, *, start: int | None = None, resume_from: str | None = None, now_ms: int | None = None
    ) -> int | None:
        """Begin with a log; return the offset to read from."""
        self.note_time(now_ms=now_ms)
        self.check_open()
        if check_text("log", name) in self._logs:
            raise ArgumentError("log", name, "be the name of no log that is there; call remove_log first")
        many = len(self._logs) + 1
        log: Assignment[Message] = Assignment(
            name, self._config, start, resume_from, tells_settled=self._settles, among=many
        )
        self._logs[name] = log
        self._set_up(log)
        position = log.dispatcher.resume_offset
        if position is not None:
            self._changed[log] = None  # its first commit says that a process works on it
        return start if position is None else position

    def remove_log(self, name: str, *, until_ms: int, now_ms: int | None = None) -> Assignment[Message]:
        """Start nothing more of a log, and let it leave when its handlers have ended, or at that time: `Left`.

        It may leave already: the earlier time counts.
        """
        self.note_time(now_ms=now_ms)
        log = self.log(name)
        self._leave(log, until_ms)
        return log

    def lose_log(self, name: str, *, now_ms: int | None = None) -> None:
        """Forget a log at once; nothing of it counts any more."""
        self.note_time(now_ms=now_ms)
        log = self.log(name)
        self._leave(log, self._now)
        self._cancel(log.runs, Why.LEAVES)
        self._abandon(log)
        self._forget(log)

    def log(self, name: str) -> Assignment[Message]:
        """Return the assignment of a log; raise why it takes nothing more, or `UnknownLogError`."""
        log = self._logs.get(name)
        if log is None:
            self.check_open()
            raise UnknownLogError(name)
        return log

    def room(self, name: str) -> int:
        """Return how many messages of a log may be submitted now."""
        self.check_open()
        log = self._open_log(name)
        self._memory.count(log)  # messages may have been submitted on credit
        room = self._memory.room(log, is_idle=self._is_idle_for(log))
        if not room:
            self._memory.refuse(log)
        return room

    def outstanding(self) -> int:
        """Return how many messages are not done."""
        return sum(log.dispatcher.stats().outstanding for log in self._logs.values())

    # the end

    @property
    def error(self) -> BaseException | None:
        """The error that stopped it, with the traceback of then: each call that raises it would make that longer."""
        return None if self._error is None else self._error.with_traceback(self._trace)

    @error.setter
    def error(self, error: BaseException) -> None:
        self._error, self._trace = error, error.__traceback__

    def stop(self, *, until_ms: int, now_ms: int | None = None) -> None:
        """Make all logs leave; `Stopped` is the last action."""
        self.note_time(now_ms=now_ms)
        self._begin_to_stop()
        for log in self._logs.values():
            self._leave(log, until_ms)

    def fail(
        self,
        error: BaseException,
        *,
        now_ms: int | None = None,
        log: Assignment[Message] | None = None,
        offset: int | None = None,
        key: bytes | None = None,
        during: str = "",
    ) -> None:
        """Stop because of an error; the first one counts. A note on the error, and a report, say where it was.

        Args:
            error: The error.
            now_ms: The time.
            log: The log that it is about.
            offset: The message that it is about.
            key: The key of the message.
            during: What the runner did, such as "a commit".
        """
        self.note_time(now_ms=now_ms)
        if self.error is not None:
            return
        self.error = error
        where = "" if log is None else place(log.name, offset, key)
        about = " of ".join(each for each in (during, where) if each)
        if about:
            error.add_note(f"keyshared: the runner stopped because of {about}")
        fields = {"log": None if log is None else log.name, "offset": offset, "key": key, "reason": cause(error)}
        text = f"the runner stops because of an error{f' in {during}' if during else ''}: {cause(error)}"
        self.reports.append(Report(ERROR, "stopped_by_error", text, fields, error))
        if self.is_stopping:
            self._out.append(Stopping())
        else:
            self.stop(until_ms=self._now + self._config.stop_ms)

    def check_open(self) -> None:
        """Raise what made it stop, or `StoppedError`, if it takes nothing more."""
        if self._error is not None:
            raise self.error or StoppedError
        if self.is_stopping:
            raise StoppedError

    # inside

    def _set_up(self, log: Assignment[Message]) -> None:
        """Set the limits of groups that were set for all logs."""

    def _begin_to_stop(self) -> None:
        if not self.is_stopping:
            self.is_stopping = True
            self._out.append(Stopping())

    def note_time(self, *, now_ms: int | None) -> None:
        """Note the time; an earlier one than before, or None, changes nothing."""
        if now_ms is not None and now_ms > self._now:
            self._now = now_ms

    def _is_busy(self) -> bool:
        return any(log.is_busy() for log in self._logs.values())

    def _is_idle_for(self, log: Assignment[Message]) -> bool:
        """Whether workers are idle although a log has messages in memory: these wait, and could wait in the log."""
        return self._loads and not log.is_hungry and self._schedule.has_room()

    def _open_log(self, name: str) -> Assignment[Message]:
        log = self._logs.get(name) or self.log(name)
        if log.is_leaving:
            raise UnknownLogError(name)
        return log

    def _leave(self, log: Assignment[Message], until_ms: int) -> None:
        unrecorded, log.unrecorded = log.unrecorded, []
        for run in unrecorded:
            self._take_back(run)
        if not log.is_leaving and log.runs:
            self._out.append(Withdraw(tuple(log.runs)))
            self._is_withdrawing = True
        log.is_leaving = True
        log.credit = 0
        self._leaving[log] = None
        self._changed[log] = None  # its last commit says that it has ended in order
        log.to_load.clear()
        self._alarms.at(until_ms, partial(self._end_of_time, log, until_ms))

    @abstractmethod
    def _take_back(self, run: Run[Message]) -> None:
        """Return a run that has not begun to its log."""

    def _end_of_time(self, log: Assignment[Message], until_ms: int) -> None:
        """Cancel what still runs, and wait for its end a little; or abandon it at once if it cannot be cancelled."""
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

    def _abandon(self, log: Assignment[Message]) -> None:
        """Stop waiting for what runs, and for dead letters that are not written."""
        log.is_finished &= not (log.runs or log.dead_letters)
        for run in log.runs:
            self._schedule.abandon(run)
        log.runs.clear()
        log.dead_letters = 0

    def _forget(self, log: Assignment[Message], *, is_finished: bool = True) -> None:
        if log.is_gone:
            return
        log.is_gone = True
        log.is_finished &= is_finished
        del self._logs[log.name]
        self._memory.forget(log)
        self._schedule.forget(log)
        for known in (self._changed, self._touched, self._leaving):
            known.pop(log, None)
        self._touched.update(self._memory.full)  # they may use what it has used
        self._is_finished &= log.is_finished or not self.is_stopping
        self._out.append(Left(log, log.is_finished))

    def _let_leave(self) -> None:
        for log in [log for log in self._leaving if log.waits_for_no_handler()]:
            if not (log.is_committing or log in self._changed or log.is_settling or log.settled):
                self._forget(log)
        if self.is_stopping and not self._logs and not self._is_stopped:
            self._is_stopped = True
            self._out.append(Stopped(self._is_finished and not (self._schedule.busy or self._hung)))
