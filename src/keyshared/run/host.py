"""What both runners have in common: the heart, the hooks, and everything that answers at once."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, TypeVar, assert_never, cast, overload

from keyshared._checks import check_int, check_kind
from keyshared._core.values import MetricRow
from keyshared.dispatcher import Blocking
from keyshared.hashing.named import Key
from keyshared.run.actions import (
    Action,
    Cancel,
    Commit,
    Full,
    Left,
    LoadMany,
    Noticed,
    Overdue,
    Roomy,
    Settle,
    Stopped,
    Stopping,
    Withdraw,
    WriteLetter,
)
from keyshared.run.answers import check_function, check_hook_answer
from keyshared.run.clock import now_ms
from keyshared.run.heart import Heart
from keyshared.run.log import Log, Run
from keyshared.run.values import BusyKey, Hooks, RunnerConfig, RunnerStats

__all__ = ["Asked", "Handle", "Host", "left_ms", "until_ms"]

Message = TypeVar("Message")
Handle = Callable[[Message], object] | Callable[[list[Message]], object]
Asked = WriteLetter[Message] | LoadMany[Message] | Commit[Message] | Settle[Message]
Ended = tuple[Run[Message], BaseException | None, int]

NO_HOOKS: Final = Hooks()
_ARGUMENTS: Final = {
    "commit": "a log, a position and a token",
    "dead_letter": "a Letter",
    "load": "a log and offsets",
    "settled": "a log and offsets",
    "executor": "no argument",
}


def until_ms(within_ms: int | None, name: str = "within_ms") -> int | None:
    """When a call that may take so long is over; None for never."""
    return None if within_ms is None else now_ms() + check_int(name, within_ms, 0)


def left_ms(until: int | None) -> int | None:
    """What is left until then."""
    return None if until is None else max(0, until - now_ms())


class Host(ABC, Generic[Message]):
    """The part of a runner that never waits.

    Args:
        calls: The functions that a user may leave out, by name.
        guard: Held around everything that touches the heart.
        hooks: Functions that are told what happens.
        config: Settings.
        has_queue: Whether messages may wait beside the workers, so that none of them has to wait for the next step.
        cancels: As for the heart.
        awaits: Whether what the calls return is awaited.
    """

    def __init__(
        self,
        calls: dict[str, Callable[..., Any] | None],
        guard: AbstractContextManager[Any],
        *,
        hooks: Hooks | None,
        config: RunnerConfig | None,
        has_queue: bool,
        cancels: bool,
        awaits: bool,
    ) -> None:
        for name, function in calls.items():
            if function is not None:
                check_function(name, function, _ARGUMENTS[name], is_awaited=awaits and name != "executor")
        self._config = RunnerConfig() if config is None else check_kind("config", config, RunnerConfig)
        self._hooks = NO_HOOKS if hooks is None else check_kind("hooks", hooks, Hooks)
        self._calls = calls
        self._guard = guard
        self._heart: Heart[Message] = Heart(
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

        A handler that still works for an earlier stay of the log holds its key until it ends.

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
            EventLoopError: It is an `AsyncRunner`, and this is not its event loop; likewise for all that changes one.
        """
        self._check_caller()
        with self._guard:
            position = self._heart.add_log(log, start=start, resume_from=resume_from, now_ms=now_ms())
            self._begin()
            return position

    def lose_log(self, log: str) -> None:
        """Forget a log that belongs to somebody else already: cancel what runs, commit nothing, ignore its answers.

        A commit that is being made at that moment may still come to its end: let the store refuse it, as Kafka does.
        Neither its refusal nor its success counts, and no hook is told.

        Raises:
            UnknownLogError: There is no such log.
            StoppedError: The runner has stopped; if an error made it stop, that is raised instead.
        """
        self._check_caller()
        with self._guard:
            self._heart.lose_log(log, now_ms=now_ms())
            self._step()

    def try_submit(self, log: str, offset: int, key: Key, message: Message) -> bool:
        """Take the next message of a log if there is room. Never waits; `submit` says what it raises.

        Returns:
            Whether it was taken.
        """
        self._check_caller()
        with self._guard:
            if not self._heart.room(log):
                return False
            self._heart.submit(log, offset, key, message, now_ms=now_ms())
            self._has_more()
            return True

    def room(self, log: str) -> int:
        """Return how many messages of a log would be taken without waiting; pause its reader at 0.

        Raises:
            UnknownLogError: There is no such log.
            StoppedError: The runner stops; if an error made it stop, that is raised instead.
        """
        with self._guard:
            return self._heart.room(log)

    def unblock(self, log: str, key: Key) -> bool:
        """Try all blocked messages of a key again (`Poison.BLOCK`), and end its quarantine.

        Returns:
            Whether a message of the key was blocked, or the key in quarantine.

        Raises:
            UnknownLogError: There is no such log.
            StoppedError: The runner has stopped; if an error made it stop, that is raised instead.
        """
        self._check_caller()
        with self._guard:
            found = self._heart.unblock(log, key, now_ms=now_ms())
            self._step()
            return found

    @property
    def error(self) -> BaseException | None:
        """What stopped the runner; None while it runs, and after an orderly stop."""
        return self._heart.error

    def stats(self) -> RunnerStats:
        """Return the figures of this moment. O(logs)."""
        with self._guard:
            return self._heart.stats()

    def metrics(self, busiest: int = 0) -> list[MetricRow]:
        """Return the figures of this moment under the names that docs/howto-health.md lists. O(messages not done).

        With `RunnerConfig.measure` there are ages and counts of messages, too. `PrometheusCollector` and
        `observe_metrics` hand all of them to whoever collects.

        Args:
            busiest: How many keys of each log there are figures for; each is a label.
        """
        with self._guard:
            rows = self._heart.metrics(busiest=busiest, now_ms=now_ms())
            self._step()
            return rows

    def why_blocked(self, log: str, offset: int) -> Blocking | None:
        """Return what a message waits for; None if it is at a handler, or done.

        Raises:
            UnknownLogError: There is no such log.
            StoppedError: The runner has stopped; if an error made it stop, that is raised instead.
        """
        with self._guard:
            return self._heart.why_blocked(log, offset)

    def busiest_keys(self, most: int = 10) -> list[BusyKey]:
        """Return the keys with the most messages that are not done, the busiest first. O(messages not done)."""
        with self._guard:
            return self._heart.busiest_keys(most)

    def _take_some(self, log: str, rows: deque[tuple[int, Key, Message]], most: int) -> None:
        """Take of these what there is room for; what raises is taken out."""
        many = min(self._heart.room(log), len(rows), most)
        if rows and not many:
            return  # to take nothing is no news: it would wake whoever waits for room, again and again
        try:
            self._heart.submit_many(log, (rows.popleft() for _ in range(many)), now_ms=now_ms())
        finally:
            self._has_more()

    def _check_caller(self) -> None:
        """Raise if what changes something may not be called from here."""

    # What happens under the guard.

    def _begin(self) -> None:
        """Start whatever works; a runner of which a part cannot start is of no use."""
        if not self._is_over:
            try:
                self._begin_work()
            except BaseException as error:
                self._break(error)
                raise

    @abstractmethod
    def _begin_work(self) -> None:
        """Start whatever works, if that has not been done."""

    @abstractmethod
    def _has_more(self) -> None:
        """Something was submitted: see that a free worker gets it."""

    @abstractmethod
    def _start(self, run: Run[Message]) -> None:
        """Hand a run to a worker."""

    @abstractmethod
    def _cancel(self, run: Run[Message]) -> None:
        """Cancel a handler, if that can be done."""

    @abstractmethod
    def _withdraw(self, runs: tuple[Run[Message], ...]) -> None:
        """Take back what has not begun."""

    @abstractmethod
    def _ask(self, asked: Asked[Message]) -> None:
        """Call ``commit``, ``dead_letter``, ``load`` or ``settled``, and report the answer."""

    @abstractmethod
    def _wake(self) -> None:
        """Wake every call that waits: for room, for a log that leaves, for the end."""

    def _step(self) -> None:
        """Report what has ended, and do what is to be done. What fails here is our own fault, and ends everything."""
        try:
            now = now_ms()
            while self._ended:
                self._report([self._ended.popleft() for _ in range(len(self._ended))], now)
            while actions := self._heart.advance(now_ms=now):
                for action in actions:
                    if type(action) is Run:
                        self._start(action)
                    else:
                        self._do(action)
        except BaseException as error:  # noqa: BLE001  # every call raises it from now on
            self._break(error)

    def _report(self, ended: list[Ended[Message]], now: int) -> None:
        errors = self._heart.ended_many([(run, raised) for run, raised, _ in ended], now_ms=now)
        if self._hooks.ended is not None:
            for (run, _, ended_ms), error in zip(ended, errors, strict=True):
                ran_ms = ended_ms - (run.started_ms or ended_ms)
                self._tell(self._hooks.ended, run.log.name, run.offsets, error, ran_ms)

    def _give_back(self, run: Run[Message], error: BaseException) -> None:
        """A handler could not begin, as none could: that stops the runner, and is no failure of the message.

        Once the runner is over its executors are closed, and whoever was left behind finds that.
        """
        if not self._is_over:
            self._heart.fail(error, now_ms=now_ms())
        self._heart.withdrawn(run)
        self._step()

    def _let_leave(self, log: str, within_ms: int | None) -> Log[Message]:
        now = now_ms()
        leaving = self._heart.remove_log(log, until_ms=now + self._allowed(within_ms), now_ms=now)
        self._step()
        return leaving

    def _has_left(self, log: Log[Message]) -> bool:
        if self._heart.error is not None and (not log.is_gone or log.is_unstorable):
            raise self._heart.error
        return log.is_finished

    def _begin_stop(self, within_ms: int | None) -> None:
        now = now_ms()
        self._heart.stop(until_ms=now + self._allowed(within_ms), now_ms=now)
        self._begin()
        self._step()

    def _allowed(self, within_ms: int | None) -> int:
        return self._config.stop_ms if within_ms is None else check_int("within_ms", within_ms, 0)

    def _is_at_rest(self) -> bool:
        """Whether a drain need not wait any longer."""
        if self._heart.hurry():
            self._step()
        return self._is_over or self._heart.is_stopping or self._heart.is_idle()

    def _is_drained(self) -> bool:
        self._heart.check_open()
        return not self._heart.outstanding()

    def _outcome(self) -> bool:
        """How the runner has ended."""
        if self._heart.error is not None:
            raise self._heart.error
        return self._is_finished

    def _break(self, error: BaseException) -> None:
        if self._heart.error is None:
            self._heart.error = error
        self._is_over = True
        self._wake()

    def _do(self, action: Action[Message]) -> None:  # noqa: C901  # one branch for each kind
        match action:
            case Run():
                self._start(action)
            case Cancel(run):
                self._cancel(run)
            case Withdraw(runs):
                self._withdraw(runs)
            case WriteLetter() | LoadMany() | Commit() | Settle():
                self._ask(action)
            case Overdue(run, ran_ms):
                self._tell(self._hooks.overdue, run.log.name, run.delivery.offset, ran_ms)
            case Noticed(log, effect):
                self._tell(self._hooks.noticed, log.name, effect)
            case Full(log):
                self._tell(self._hooks.full, log.name)
            case Roomy(log):
                self._tell(self._hooks.roomy, log.name)
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
                self._heart.committed(asked, error, now_ms=now_ms())
                if error is None and not log.is_gone:
                    self._tell(self._hooks.committed, log.name, position, token)
            case WriteLetter():
                self._heart.written(asked, error, now_ms=now_ms())
            case Settle():
                self._heart.settled(asked, error, now_ms=now_ms())
            case LoadMany(_, offsets):
                messages, error = _of_each(answer, offsets) if error is None else ({}, error)
                self._heart.loaded(asked, messages, error, now_ms=now_ms())

    def _call_of(self, asked: Asked[Message]) -> tuple[str, Callable[..., Any], tuple[Any, ...]]:
        """What to call, by its name, and with what."""
        name: str
        arguments: tuple[object, ...]
        match asked:
            case Commit(log, position, token):
                name, arguments = "commit", (log.name, position, token)
            case WriteLetter(_, letter):
                name, arguments = "dead_letter", (letter,)
            case LoadMany(log, offsets):
                name, arguments = "load", (log.name, offsets)
            case Settle(log, offsets):
                name, arguments = "settled", (log.name, offsets)
            case _:
                assert_never(asked)
        return name, cast("Callable[..., Any]", self._calls[name]), arguments  # the heart knows which there are

    def _tell(self, hook: Callable[..., object] | None, *arguments: object) -> None:
        if hook is not None:
            try:
                if (answer := hook(*arguments)) is not None:
                    check_hook_answer(answer)
            except BaseException as error:  # noqa: BLE001  # it stops the runner in order
                self._heart.fail(error)


def _of_each(answer: Any, offsets: tuple[int, ...]) -> tuple[dict[int, Any], BaseException | None]:  # noqa: ANN401
    """What a ``load`` has answered for each offset, and why that is not all."""
    messages: dict[int, Any] = {}
    try:
        for offset in offsets:
            messages[offset] = answer[offset]
    except BaseException as error:  # noqa: BLE001  # an offset that is left out, or no mapping at all
        return messages, error
    return messages, None
