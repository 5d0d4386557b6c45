"""The runner base: the engine, the hooks, the log records, and every call that does not wait."""

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from time import monotonic_ns, time_ns
from typing import Any, Final, Generic, TypeVar, assert_never, cast, overload

from keyshared._checks import check_int, check_kind
from keyshared.hashing import Key
from keyshared.run.actions import (
    Action,
    Cancel,
    Commit,
    Full,
    Left,
    LoadMany,
    Noticed,
    Overdue,
    Replace,
    Roomy,
    Settle,
    Stopped,
    Stopping,
    Withdraw,
    WriteDeadLetter,
)
from keyshared.run.assignment import Assignment, Run
from keyshared.run.engine import Engine
from keyshared.run.functions import check_function, check_hook_answer
from keyshared.run.metrics import MetricRow
from keyshared.run.operator_calls import Answer, Verbs
from keyshared.run.reports import ERROR, WARNING, Report, cause
from keyshared.run.spans import Spans
from keyshared.run.values import Hooks, RunnerConfig, RunnerStats

__all__ = ["IN_HANDLER_OF", "Asked", "Runner", "left_ms", "now_ms", "on_our_clock", "seconds", "until_ms"]

Message = TypeVar("Message")
Handle = Callable[[Message], object] | Callable[[list[Message]], object]
Asked = WriteDeadLetter[Message] | LoadMany[Message] | Commit[Message] | Settle[Message]
Ended = tuple[Run[Message], BaseException | None, int]
Row = tuple[int, Key, Message] | tuple[int, Key, Message, int | None]

LOGGER: Final = logging.getLogger("keyshared.run")
NO_HOOKS: Final = Hooks()
_LONGEST_SLEEP_MS: Final = 3_600_000  # Python cannot wait for ever by a number; sleepers look at the time again
_ARGUMENTS: Final = {
    "commit": ("a log, a position and a token", 3),
    "dead_letter": ("a DeadLetter", 1),
    "load": ("a log and offsets", 2),
    "settled": ("a log and offsets", 2),
    "executor": ("no argument", 0),
}

IN_HANDLER_OF: Final[ContextVar[object]] = ContextVar("keyshared_runner", default=None)
"""The runner whose handler this is, also in tasks that a handler starts: a submit to it must not wait."""


def now_ms() -> int:
    """Return the time of the clock of both runners."""
    return monotonic_ns() // 1_000_000


def seconds(ms: int) -> float:
    """Return how long to sleep if so much is left: at least 0, and at most an hour.

    Example:
        >>> seconds(1_500), seconds(-1), seconds(10**13)
        (1.5, 0.0, 3600.0)
    """
    return min(max(0, ms), _LONGEST_SLEEP_MS) / 1_000


def until_ms(within_ms: int | None, name: str = "within_ms") -> int | None:
    """Return when a call that may take so long is over; None for never."""
    return None if within_ms is None else now_ms() + check_int(name, within_ms, 0)


def left_ms(until: int | None) -> int | None:
    """Return how much time is left until then."""
    return None if until is None else max(0, until - now_ms())


class Runner(Verbs, Generic[Message]):
    """The part of a runner that never waits.

    Args:
        calls: The functions that a user may leave out, by name.
        guard: Held around everything that touches the engine.
        hooks: Functions that are called when something has happened.
        config: Settings.
        logger: Where records go.
        spans: Makes a span for each run of a handler.
        has_queue: Whether messages may wait beside the workers, so that none of them has to wait for the next step.
        cancels: Whether handlers can be ended: cancelled, or killed with their process.
        awaits: Whether what the calls return is awaited.
    """

    def __init__(
        self,
        calls: dict[str, Callable[..., Any] | None],
        guard: AbstractContextManager[Any],
        *,
        hooks: Hooks | None,
        config: RunnerConfig | None,
        logger: logging.Logger | None,
        spans: Spans | None,
        has_queue: bool,
        cancels: bool,
        awaits: bool,
    ) -> None:
        for name, function in calls.items():
            if function is not None:
                what, many = _ARGUMENTS[name]
                may_await = awaits and name != "executor"
                check_function(name, function, what, is_awaited=may_await, arguments=many)
        self._config = RunnerConfig() if config is None else check_kind("config", config, RunnerConfig)
        self._hooks = NO_HOOKS if hooks is None else check_kind("hooks", hooks, Hooks)
        self._logger = LOGGER if logger is None else check_kind("logger", logger, logging.Logger)
        self._spans = None if spans is None else check_kind("spans", spans, Spans)
        self._calls = calls
        self._guard = guard
        self._engine: Engine[Message] = Engine(
            self._config,
            ahead=self._config.workers if has_queue else 0,
            cancels=cancels,
            commits=calls["commit"] is not None,
            writes=calls["dead_letter"] is not None,
            loads=calls["load"] is not None,
            settles=calls["settled"] is not None,
        )
        self._ended: deque[Ended[Message]] = deque()
        self._is_over = False
        self._is_finished = False

    @overload
    def add_log(self, log: str, *, start: int, resume_from: str | None = None) -> int: ...
    @overload
    def add_log(self, log: str, *, start: int | None = None, resume_from: str | None = None) -> int | None: ...
    def add_log(self, log: str, *, start: int | None = None, resume_from: str | None = None) -> int | None:
        """Begin with a log: a partition, a stream, a queue. It may have been here before.

        An abandoned handler of an earlier assignment of the log holds its key until it ends.

        Args:
            log: Its name.
            start: Offset to begin with, if the log was committed up to there; what lies below is done. None: the first
                submitted message is the beginning, and is committed as such.
            resume_from: Token of the last commit; its position counts instead of ``start``.

        Returns:
            The offset to read from: the position of the token, or else ``start``.

        Raises:
            ArgumentError: The name is there already, or an argument can never work.
            SnapshotError: The token is damaged or foreign: begin with ``start`` alone, and redo what lies above.
            StoppedError: The runner stops; if an error made it stop, that is raised instead.
            EventLoopError: It is an `AsyncRunner`, and this is not its event loop; likewise for every call that changes
                one, except those of `Verbs`.
        """
        self._check_caller()
        with self._guard:
            position = self._engine.add_log(log, start=start, resume_from=resume_from, now_ms=now_ms())
            if self._spans is not None:
                self._engine.log(log).trace()
            self._begin()
            self._step()
            return position

    def lose_log(self, log: str) -> None:
        """Forget a log that another process owns already: cancel what runs, commit nothing, ignore its outcome.

        A commit that is being made at that moment may still come to its end: let the store refuse it, as Kafka does.
        Neither its refusal nor its success counts, and no hook is called.

        Raises:
            UnknownLogError: There is no such log.
            StoppedError: The runner has stopped; if an error made it stop, that is raised instead.
        """
        self._check_caller()
        with self._guard:
            self._engine.lose_log(log, now_ms=now_ms())
            self._step()

    def try_submit(self, log: str, offset: int, key: Key, message: Message) -> bool:
        """Take the next message of a log if there is capacity. Never waits; `submit` says what it raises.

        Returns:
            Whether it was taken.
        """
        self._check_caller()
        with self._guard:
            if not self._engine.room(log):
                return False
            self._engine.submit(log, offset, key, message, now_ms=now_ms())
            self._has_more()
            return True

    def room(self, log: str) -> int:
        """Return how many messages of a log would be taken without waiting; pause its reader at 0.

        Raises:
            UnknownLogError: There is no such log.
            StoppedError: The runner stops; if an error made it stop, that is raised instead.
        """
        with self._guard:
            return self._engine.room(log)

    def set_log_end(self, log: str, end: int) -> None:
        """Note the offset at which a log ends now, for the metric ``keyshared_unread``. May be called by any thread.

        Raises:
            UnknownLogError: There is no such log.
            StoppedError: The runner has stopped; if an error made it stop, that is raised instead.
        """
        with self._guard:
            self._engine.set_log_end(log, end)

    @property
    def error(self) -> BaseException | None:
        """The error that stopped the runner; None while it runs, and after an orderly stop."""
        return self._engine.error

    def stats(self) -> RunnerStats:
        """Return the figures of this moment. O(logs)."""
        with self._guard:
            return self._engine.stats()

    def metrics(self, busiest: int = 0) -> list[MetricRow]:
        """Return the figures of this moment under the names that docs/howto-health.md lists. O(messages not done).

        With `RunnerConfig.measure` there are ages and counts of messages, too. `PrometheusCollector` and
        `observe_metrics` export all of them.

        Args:
            busiest: How many keys of each log there are figures for; each is a label.
        """
        return self._control(lambda engine: engine.metrics(busiest=busiest))

    def _control(self, act: Callable[[Engine[Any]], Answer]) -> Answer:
        with self._guard:
            self._engine.note_time(now_ms=now_ms())
            answer = act(self._engine)
            self._step()
            return answer

    def _take_some(self, log: str, rows: deque[Any], most: int) -> None:
        """Take of these what there is capacity for; a row that raises is removed."""
        many = min(self._engine.room(log), len(rows), most)
        if rows and not many:
            return  # to take nothing would wake each call that waits for capacity, again and again
        try:
            self._engine.submit_many(log, (rows.popleft() for _ in range(many)), now_ms=now_ms())
        finally:
            self._has_more()

    def _take_at_once(self, log: str, rows: Iterable[Any]) -> None:
        """Take all of these, also beyond the window."""
        for row in rows:
            self._engine.check_space(log)
            self._engine.submit_many(log, [row], now_ms=now_ms())
        self._has_more()

    def _is_own_handler(self) -> bool:
        """Whether a handler of this runner makes the call, so that nothing may wait for capacity."""
        return IN_HANDLER_OF.get() is self

    def _check_caller(self) -> None:
        """Raise if a call that changes something may not be made from here."""

    def _report_stuck(self) -> None:
        """Log what is stuck, as an operator has asked for by a signal."""

        def report(engine: Engine[Any]) -> None:
            lines = [Report(WARNING, "stuck", each.sentence, each._asdict()) for each in engine.stuck(0)]
            engine.reports += lines or [Report(WARNING, "stuck", "nothing is stuck", {})]

        self._control(report)

    # Everything below happens under the guard.

    def _begin(self) -> None:
        """Start the threads or tasks that work; a runner of which a part cannot start is of no use."""
        if not self._is_over:
            try:
                self._begin_work()
            except BaseException as error:
                self._break(error)
                raise

    @abstractmethod
    def _begin_work(self) -> None:
        """Start the threads or tasks that work, if that has not been done."""

    @abstractmethod
    def _has_more(self) -> None:
        """Something was submitted: see that a free worker gets it."""

    @abstractmethod
    def _start(self, run: Run[Message]) -> None:
        """Hand a run to a worker."""

    @abstractmethod
    def _cancel(self, run: Run[Message]) -> None:
        """Cancel a handler, or kill its process, if that can be done."""

    @abstractmethod
    def _replace(self, run: Run[Message]) -> None:
        """Start another worker in the place of the one whose handler hangs."""

    @abstractmethod
    def _withdraw(self, runs: tuple[Run[Message], ...]) -> None:
        """Take back what has not begun."""

    @abstractmethod
    def _ask(self, asked: Asked[Message]) -> None:
        """Call ``commit``, ``dead_letter``, ``load`` or ``settled``, and report the outcome."""

    @abstractmethod
    def _wake(self) -> None:
        """Wake every call that waits: for capacity, for a log that leaves, for the end."""

    def _step(self) -> None:
        """Report what has ended, and carry out all actions. An error in here is a fault of this library, and final."""
        try:
            now = now_ms()
            ended, engine = self._ended, self._engine
            while ended:
                self._report_ends([ended.popleft() for _ in range(len(ended))], now)
            while actions := engine.advance(now_ms=now):
                for action in actions:
                    if type(action) is Run:
                        self._start(action)
                    else:
                        self._do(action)
            if engine.reports:
                self._write_reports()
        except BaseException as error:  # noqa: BLE001  # every call raises it from now on
            self._break(error)

    def _report_ends(self, ended: list[Ended[Message]], now: int) -> None:
        errors = self._engine.ended_many([(run, raised) for run, raised, _ in ended], now_ms=now)
        if self._hooks.ended is not None:
            for (run, _, ended_ms), error in zip(ended, errors, strict=True):
                ran_ms = ended_ms - (run.started_ms or ended_ms)
                self._tell("ended", run.log, run.delivery, run.log.name, run.offsets, error, ran_ms)

    def _write_reports(self) -> None:
        reports = self._engine.reports
        written, reports[:] = list(reports), []
        for report in written:
            if self._logger.isEnabledFor(report.level):
                self._outside(self._write_report, report)

    def _write_report(self, report: Report) -> None:
        fields = {"event": report.event, **report.fields}
        self._logger.log(report.level, "%s", report, exc_info=report.error, extra={"keyshared": fields})

    def _not_begun(self, run: Run[Message], error: BaseException | None) -> None:
        """Report that a handler did not begin: it was taken back, or no executor could run it, which is an error.

        Once the runner is over its executors are closed, and abandoned workers find that.
        """
        if error is not None and not self._is_over:
            delivery = run.delivery
            self._engine.fail(
                error, now_ms=now_ms(), log=run.log, offset=delivery.offset, key=delivery.key, during="the executor"
            )
        self._engine.withdrawn(run)
        self._step()

    def _let_leave(self, log: str, within_ms: int | None) -> Assignment[Message]:
        now = now_ms()
        leaving = self._engine.remove_log(log, until_ms=now + self._allowed(within_ms), now_ms=now)
        self._step()
        return leaving

    def _has_left(self, log: Assignment[Message]) -> bool:
        if self._engine.error is not None and (not log.is_gone or log.is_unstorable):
            raise self._engine.error
        return log.is_finished

    def _begin_stop(self, within_ms: int | None) -> None:
        now = now_ms()
        self._engine.stop(until_ms=now + self._allowed(within_ms), now_ms=now)
        self._begin()
        self._step()

    def _allowed(self, within_ms: int | None) -> int:
        return self._config.stop_ms if within_ms is None else check_int("within_ms", within_ms, 0)

    def _is_at_rest(self) -> bool:
        """Whether a drain need not wait any longer."""
        if self._engine.hurry():
            self._step()
        return self._is_over or self._engine.is_stopping or self._engine.is_idle()

    def _is_drained(self) -> bool:
        self._engine.check_open()
        return not self._engine.outstanding()

    def _outcome(self) -> bool:
        """Return or raise how the runner has ended."""
        if self._engine.error is not None:
            raise self._engine.error
        return self._is_finished

    def _break(self, error: BaseException) -> None:
        if self._engine.error is None:
            self._engine.error = error
            text = f"the runner has stopped because of a fault: {cause(error)}"
            self._outside(self._write_report, Report(ERROR, "stopped_by_error", text, {"reason": cause(error)}, error))
        self._is_over = True
        self._wake()

    def _do(self, action: Action[Message]) -> None:  # noqa: C901  # one branch for each kind
        match action:
            case Run():
                self._start(action)
            case Cancel(run):
                self._cancel(run)
            case Replace(run):
                self._replace(run)
            case Withdraw(runs):
                self._withdraw(runs)
            case WriteDeadLetter() | LoadMany() | Commit() | Settle():
                self._ask(action)
            case Overdue(run, ran_ms):
                self._tell("overdue", run.log, run.delivery, run.log.name, run.delivery.offset, ran_ms)
            case Noticed(log, effect):
                self._tell("noticed", log, effect, log.name, effect)
            case Full(log):
                self._tell("full", log, None, log.name)
            case Roomy(log):
                self._tell("roomy", log, None, log.name)
                self._wake()
            case Left() | Stopping():
                self._wake()
            case Stopped(is_finished):
                self._is_finished = is_finished
                self._is_over = True
                self._wake()
            case _:
                assert_never(action)

    def _answer(self, asked: Asked[Message], answer: Any, error: BaseException | None) -> None:  # noqa: ANN401
        """Report what came of a call of ``commit``, ``dead_letter``, ``load`` or ``settled``."""
        try:
            self._take_answer(asked, answer, error)
        except BaseException as fault:  # noqa: BLE001  # our own, as in a step
            self._break(fault)
        self._step()

    def _take_answer(self, asked: Asked[Message], answer: Any, error: BaseException | None) -> None:  # noqa: ANN401
        match asked:
            case Commit(log, position, token):
                self._engine.committed(asked, error, now_ms=now_ms())
                if error is None and not log.is_gone:
                    self._tell("committed", log, None, log.name, position, token)
            case WriteDeadLetter():
                self._engine.written(asked, error, now_ms=now_ms())
            case Settle():
                self._engine.settled(asked, error, now_ms=now_ms())
            case LoadMany(_, offsets):
                messages, error = _of_each(answer, offsets) if error is None else ({}, error)
                self._engine.loaded(asked, messages, error, now_ms=now_ms())

    def _call_of(self, asked: Asked[Message]) -> tuple[str, Callable[..., Any], tuple[Any, ...]]:
        """Return what to call, by its name, and its arguments."""
        name: str
        arguments: tuple[object, ...]
        match asked:
            case Commit(log, position, token):
                name, arguments = "commit", (log.name, position, token)
            case WriteDeadLetter(_, dead_letter):
                name, arguments = "dead_letter", (dead_letter,)
            case LoadMany(log, offsets):
                name, arguments = "load", (log.name, offsets)
            case Settle(log, offsets):
                name, arguments = "settled", (log.name, offsets)
            case _:
                assert_never(asked)
        return name, cast("Callable[..., Any]", self._calls[name]), arguments  # the engine knows which there are

    def _tell(self, name: str, log: Assignment[Message], about: Any, *arguments: object) -> None:  # noqa: ANN401
        """Call a hook, if there is one of that name; if it raises, that stops the runner in order."""
        hook = getattr(self._hooks, name)
        if hook is None:
            return
        try:
            if (answer := self._outside(hook, *arguments)) is not None:
                check_hook_answer(answer)
        except BaseException as error:  # noqa: BLE001  # whatever a user's function raises
            offset, key = getattr(about, "offset", None), getattr(about, "key", None)
            self._engine.fail(error, log=log, offset=offset, key=key, during=f"the hook {name}")

    def _outside(self, call: Callable[..., Answer], *arguments: object) -> Answer:
        """Call a function of the user, or a logger."""
        return call(*arguments)


def on_our_clock(row: Any) -> Any:  # noqa: ANN401  # the engine checks rows
    """Return a row with the time in it on the clock of runners; None for a time that has passed."""
    if not isinstance(row, tuple) or len(row) != 4 or row[3] is None:  # noqa: PLR2004
        return row
    left = check_int("not_before_epoch_ms", row[3]) - time_ns() // 1_000_000
    return (*row[:3], now_ms() + left if left > 0 else None)


def _of_each(answer: Any, offsets: tuple[int, ...]) -> tuple[dict[int, Any], BaseException | None]:  # noqa: ANN401
    """Return what a ``load`` has returned for each offset, and why that is not all."""
    messages: dict[int, Any] = {}
    try:
        for offset in offsets:
            messages[offset] = answer[offset]
    except BaseException as error:  # noqa: BLE001  # an offset that is left out, or no mapping at all
        return messages, error
    return messages, None
