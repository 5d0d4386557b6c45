"""What a runner is told, and what it tells: settings, how a handler ends, dead letters, hooks, figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Generic, NamedTuple, TypeVar

from keyshared._checks import check_bool, check_int, check_kind, configuration
from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.cursor import DEFAULT_TOKEN_BYTES
from keyshared.dispatcher import DispatcherStats
from keyshared.effects import Effect
from keyshared.errors import ArgumentError, MisuseError, shown
from keyshared.run.answers import check_function

__all__ = [
    "BusyKey",
    "CalledFromHookError",
    "EventLoopError",
    "Hooks",
    "Letter",
    "PartlyDone",
    "Reject",
    "RetryLater",
    "RunnerConfig",
    "RunnerStats",
    "StoppedError",
    "UnknownLogError",
]

DEFAULT_WORKERS: Final = 16  # the greatest partition count of most topics; Confluent's parallel consumer has 16 too
DEFAULT_WINDOW: Final = 10_000  # as the dispatcher's
DEFAULT_MAX_TRACKED: Final = 100_000  # a log that is not read again keeps its messages in memory meanwhile
DEFAULT_COMMIT_EVERY_MS: Final = 100  # a crash redoes what was in flight and a tenth of a second
LEAST_TOKEN_BYTES: Final = 64  # any position fits, so that no commit fails because a log has grown
DEFAULT_LETTER_TRIES: Final = 8  # with the delays below: more than 12 seconds of a store that is away
DEFAULT_STOP_MS: Final = 10_000  # a third of the 30 seconds that Kubernetes and systemd grant after SIGTERM

Message_co = TypeVar("Message_co", covariant=True)


class Reject(Exception):  # noqa: N818  # the end of a message, and no fault of the program
    """Raise it in a handler: no retry can help, and the message is given up as `RunnerConfig.poison` says.

    Args:
        reason: Why; it is shown with the dead letter.

    Example:
        >>> raise Reject("no such customer")
        Traceback (most recent call last):
        ...
        keyshared.run.values.Reject: no such customer
    """


class RetryLater(Exception):  # noqa: N818  # as above
    """Raise it in a handler: the message comes again later, and no failure is counted. Its key waits meanwhile.

    Args:
        delay_ms: How much later.

    Raises:
        ArgumentError: ``delay_ms`` is not an int of at least 0.

    Example:
        >>> RetryLater(500).delay_ms
        500
    """

    def __init__(self, delay_ms: int) -> None:
        check_int("delay_ms", delay_ms, 0)
        super().__init__(delay_ms)
        self.delay_ms = delay_ms


class PartlyDone(Exception):  # noqa: N818  # as above
    """Raise it in a handler of batches: its first messages are done, and the next one has ended with an error.

    What follows in the batch comes again behind that one, and no failure is counted for it.

    Args:
        done: How many messages are done, counted from the first.
        error: How the next one has ended: `Reject`, `RetryLater`, or anything else that a handler may raise.

    Raises:
        ArgumentError: ``done`` is not an int of at least 0, or ``error`` is no exception, or a `PartlyDone` itself.

    Example:
        >>> PartlyDone(5, Reject("no such customer")).done
        5
    """

    def __init__(self, done: int, error: BaseException) -> None:
        check_int("done", done, 0)
        if isinstance(check_kind("error", error, BaseException), PartlyDone):
            raise ArgumentError("error", error, "be the exception with which the next message has ended")
        super().__init__(done, error)
        self.done = done
        self.error = error


class StoppedError(MisuseError):
    """Something was asked of a runner that stops or has stopped. If an error made it stop, that is raised instead."""

    def _text(self) -> str:
        return "the runner stops, or has stopped, and takes nothing more; begin another one"


class CalledFromHookError(MisuseError):
    """A hook called its `ThreadRunner`, which waits for the hook to return."""

    def _text(self) -> str:
        return "the runner was called from one of its hooks, and waits for the hook; let another thread make that call"


class EventLoopError(MisuseError):
    """A call that changes an `AsyncRunner` was not made in the event loop of the runner."""

    def _text(self) -> str:
        return (
            "an AsyncRunner is changed in its own event loop only; from another thread use "
            "loop.call_soon_threadsafe or asyncio.run_coroutine_threadsafe"
        )


class UnknownLogError(MisuseError):
    """A log was named that the runner does not have at the moment.

    Attributes:
        log: Its name.
    """

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log

    def _text(self) -> str:
        return f"there is no log {shown(self.log)}; call add_log first, and nothing after remove_log"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """Settings of a runner, for all its logs together unless it says otherwise.

    Args:
        workers: Handlers that run at once.
        batch: How many messages a handler gets at once: a list of up to that many consecutive ones of one key, or of
            one without a key. None: it gets a message, and no list.
        timeout_ms: How long a handler may run, counted from its start; None for ever. A coroutine is cancelled then,
            once, and has failed when it has ended, whatever it returns. A thread or a process cannot be cancelled: it
            goes on, and its key waits for it. `Hooks.overdue` is called each time that this time has passed again.
        window: Messages in memory. A log has room while all logs together hold fewer, or it holds less than its share.
        max_tracked: Messages of one log that are not done, in memory or left in the log.
        max_loaded_per_key: Messages of one key in memory; beyond that they are left in the log if there is a ``load``.
        retry: How often and how late a failed message is tried again.
        poison: What is done with a message whose retries are exhausted, or that was rejected.
        archive_blocked: Whether a message goes to the dead letters before it is blocked. Only with ``Poison.BLOCK``.
        quarantine: Whether the newer messages of its key follow a dead letter until the key is unblocked.
        commit_every_ms: Least time between two commits of a log, unless it leaves or is drained.
        token_bytes: Greatest length of a token, at least 64; the default fits the metadata of a Kafka commit.
        letter_tries: How often the write of a dead letter is tried before the runner stops with its error.
        stop_ms: How long handlers may go on when the runner stops or a log is removed, unless the call says otherwise.
        measure: Whether ages and counts of messages are kept for ``metrics``.

    Raises:
        ConfigError: A field is out of range or of another type.

    Example:
        >>> RunnerConfig(workers=64, timeout_ms=30_000).commit_every_ms
        100
        >>> RunnerConfig(workers=0)
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: workers is 0; it must be an int of at least 1
    """

    workers: int = DEFAULT_WORKERS
    batch: int | None = None
    timeout_ms: int | None = None
    window: int = DEFAULT_WINDOW
    max_tracked: int = DEFAULT_MAX_TRACKED
    max_loaded_per_key: int = 1_000
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    poison: Poison = Poison.DEAD_LETTER
    archive_blocked: bool = False
    quarantine: bool = False
    commit_every_ms: int = DEFAULT_COMMIT_EVERY_MS
    token_bytes: int = DEFAULT_TOKEN_BYTES
    letter_tries: int = DEFAULT_LETTER_TRIES
    stop_ms: int = DEFAULT_STOP_MS
    measure: bool = False

    @configuration()
    def __post_init__(self) -> None:
        for name in ("workers", "window", "max_tracked", "max_loaded_per_key", "letter_tries"):
            check_int(name, getattr(self, name), 1)
        for name in ("commit_every_ms", "stop_ms"):
            check_int(name, getattr(self, name), 0)
        check_bool("measure", self.measure)
        check_int("token_bytes", self.token_bytes, LEAST_TOKEN_BYTES)
        if self.batch is not None:
            check_int("batch", self.batch, 1, " or None for single messages")
        if self.timeout_ms is not None:
            check_int("timeout_ms", self.timeout_ms, 1, " or None for never")
        check_kind("retry", self.retry, RetryPolicy)
        DispatcherConfig(poison=self.poison, archive_blocked=self.archive_blocked, quarantine=self.quarantine)
        if self.batch is not None and self.max_loaded_per_key < self.batch:
            raise ArgumentError(
                "max_loaded_per_key", self.max_loaded_per_key, f"be at least batch, {shown(self.batch)}"
            )
        if self.max_tracked < self.window:
            raise ArgumentError("max_tracked", self.max_tracked, f"be at least window, {shown(self.window)}")


class Letter(NamedTuple, Generic[Message_co]):
    """A message that was given up, for the store of dead letters.

    Attributes:
        log: Its log.
        offset: Its offset. Log and offset name the letter: a crash can cause it to be written twice.
        key: Its key as bytes, or None.
        message: What was submitted.
        failures: How often it has failed.
        error: What its last handler raised; None if it is here because its key is quarantined.
    """

    log: str
    offset: int
    key: bytes | None
    message: Message_co
    failures: int
    error: BaseException | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions that are called when something has happened, for logs and metrics. None: nobody is told.

    They are called one after another, while the runner stands still: return quickly, and do not call the runner, which
    raises `CalledFromHookError` in threads. A hook that raises stops the runner with its error.

    Args:
        ended: A handler has ended: log, the offsets of its messages in order (several of a batch), what it raised or
            None, milliseconds that it ran. `PartlyDone` says which of them has ended with its error; if a coroutine
            was cancelled after its timeout, the error is a `TimeoutError`; one that was cancelled because its log
            leaves, and returned all the same, has a `BaseException` that says so.
        overdue: A handler has run for `RunnerConfig.timeout_ms` or a multiple of it: log, offset (the first one of a
            batch), milliseconds.
        committed: A commit was made: log, position, token.
        noticed: A notice of the dispatcher: log, effect (`Blocked`, `Dropped`, `Skipped`, `Spilled`, ...).
        full: A log has no room: log. Stop reading it.
        roomy: A quarter of the room that it has now is free again: log. Read on.

    Raises:
        ConfigError: One of them cannot be called, or is a coroutine function.
    """

    ended: Callable[[str, Sequence[int], BaseException | None, int], object] | None = None
    overdue: Callable[[str, int, int], object] | None = None
    committed: Callable[[str, int, str], object] | None = None
    noticed: Callable[[str, Effect], object] | None = None
    full: Callable[[str], object] | None = None
    roomy: Callable[[str], object] | None = None

    @configuration()
    def __post_init__(self) -> None:
        for each in fields(self):
            hook = getattr(self, each.name)
            if hook is not None:
                check_function(each.name, hook, "what its description names", is_awaited=False)


class RunnerStats(NamedTuple):
    """Figures of this moment. Those of the second group only grow.

    Attributes:
        running: Handlers that run, or are about to.
        held: Messages that were taken out of their log and have no worker yet: a handler of a lost log still works on
            their key, or older messages of their batch come first, one at a time, because one of them has failed.
        done: Handlers that returned.
        failed: Handlers that raised, or ended in whatever way but by `Reject` after a timeout had cancelled them.
        rejected: Handlers that raised `Reject`.
        put_off: Handlers that raised `RetryLater`.
        released: Handlers that were cancelled, and deliveries that were taken back before they began.
        late: Handlers that ended after their log was gone, so that nothing counted.
        overdue: Times that a handler ran for longer than allowed.
        letters: Dead letters that were written.
        commits: Commits that were made.
        logs: The figures of the dispatcher of each log.
    """

    running: int
    held: int
    done: int
    failed: int
    rejected: int
    put_off: int
    released: int
    late: int
    overdue: int
    letters: int
    commits: int
    logs: dict[str, DispatcherStats]


class BusyKey(NamedTuple):
    """A key with many messages that are not done.

    Attributes:
        log: Its log.
        key: The key.
        outstanding: How many messages of it are not done.
    """

    log: str
    key: bytes | None
    outstanding: int
