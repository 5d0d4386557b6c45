"""Settings of a runner, its hooks, dead letters and figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Generic, NamedTuple, TypeVar

from keyshared._checks import check_bool, check_int, check_kind, configuration
from keyshared.config import DispatcherConfig, GroupLimits, Poison, RetryPolicy, Rules
from keyshared.cursor import DEFAULT_TOKEN_BYTES
from keyshared.dispatcher import DispatcherStats
from keyshared.effects import Effect
from keyshared.errors import ArgumentError, shown
from keyshared.run.functions import check_function

__all__ = ["BusyKey", "DeadLetter", "Hooks", "RunnerConfig", "RunnerStats"]

DEFAULT_WORKERS: Final = 16  # the greatest partition count of most topics; Confluent's parallel consumer has 16 too
DEFAULT_WINDOW: Final = 10_000  # as the dispatcher's
DEFAULT_MAX_TRACKED: Final = 100_000  # a log that is not read again keeps its messages in memory meanwhile
DEFAULT_COMMIT_EVERY_MS: Final = 100  # a crash redoes what was in flight and a tenth of a second
LEAST_TOKEN_BYTES: Final = 64  # any position fits, so that no commit fails because a log has grown
DEFAULT_CALL_ATTEMPTS: Final = 8  # with delays of 100 ms and more: a store may be away for more than 12 seconds
DEFAULT_SLOW_MS: Final = 60_000  # an operator wants to know of a handler that runs for a minute
DEFAULT_MAX_HUNG_WORKERS: Final = 16  # as many threads as there are workers by default
FOLLOW_UPS: Final = 1_000  # messages beyond max_tracked that submits may add which do not wait
DEFAULT_STOP_MS: Final = 10_000  # a third of the 30 seconds that Kubernetes and systemd grant after SIGTERM

_LEAST: Final = dict.fromkeys(
    ("workers", "window", "max_tracked", "max_loaded_per_key", "call_attempts", "max_in_flight_per_key"), 1
) | {"commit_every_ms": 0, "stop_ms": 0, "max_hung_workers": 0, "token_bytes": LEAST_TOKEN_BYTES}
_OR_NONE: Final = {
    "batch": " or None for single messages",
    "timeout_ms": " or None for never",
    "slow_ms": " or None for no records",
    "max_in_flight": " or None for no limit",
}

Message_co = TypeVar("Message_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """Settings of a runner, for all its logs together unless it says otherwise.

    Args:
        workers: Handlers that run at once.
        batch: How many messages a handler gets at once: a list of up to that many consecutive ones of one key, or of
            one without a key. None: it gets a message, and no list.
        timeout_ms: How long a handler may run, counted from its start; None for ever. A coroutine is cancelled then,
            once, and has failed when it has ended, whatever it returns. A process is killed, and its message has
            failed. A thread cannot be ended: it goes on, its key waits for it, and another thread takes its place.
            `Hooks.overdue` is called each time that this time has passed again.
        slow_ms: Handlers that run for so long are logged at WARNING, and again each time that they have run twice as
            long. None for no such records.
        max_hung_workers: How many handlers that outlast ``timeout_ms`` are replaced before the runner stops with
            `HungWorkersError`.
        window: Messages in memory of all logs together. While workers are idle a log gets capacity beyond that, and
            leaves what has to wait in the log, if there is a ``load``.
        max_tracked: Messages of one log that are not done, in memory or left in the log. A submit that does not wait
            may add 1,000 more.
        max_loaded_per_key: Messages of one key in memory; beyond that they are left in the log if there is a ``load``.
        retry: How often and how late a failed message is tried again.
        poison: What is done with a message whose retries are exhausted, or that was rejected.
        archive_blocked: With ``Poison.BLOCK``: whether a dead letter of the message is written first.
        quarantine: With ``Poison.DEAD_LETTER``: whether the newer messages of its key follow it, until ``unblock``.
        commit_every_ms: Least time between two commits of a log, unless it leaves or is drained.
        token_bytes: Greatest length of a token, at least 64; the default fits the metadata of a Kafka commit.
        call_attempts: How often a call of ``commit``, ``dead_letter``, ``load`` or ``settled`` is tried before the
            runner stops with its error.
        stop_ms: How long handlers may go on when the runner stops or a log is removed, unless the call says otherwise.
        measure: Whether ages and counts of messages are kept for ``metrics``.
        rules: Functions of a key: its group, how many of its messages may be handled at once, latest only.
        group: Limits of each group for which ``set_group`` was not called. All limits count for each log by itself.
        max_in_flight: Messages of one log that are handled at once; None for no limit but the workers.
        max_in_flight_per_key: Messages of one key that are handled at once.
        latest_only: Whether a message that waits for its first handler is given up when a newer one of its key comes.
        redrive: Whether dead letters may come back with ``redrive``.

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
    call_attempts: int = DEFAULT_CALL_ATTEMPTS
    stop_ms: int = DEFAULT_STOP_MS
    measure: bool = False
    slow_ms: int | None = DEFAULT_SLOW_MS
    max_hung_workers: int = DEFAULT_MAX_HUNG_WORKERS
    rules: Rules | None = None
    group: GroupLimits = field(default_factory=GroupLimits)
    max_in_flight: int | None = None
    max_in_flight_per_key: int = 1
    latest_only: bool = False
    redrive: bool = False

    @configuration()
    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            check_int(name, getattr(self, name), least)
        for name in ("archive_blocked", "quarantine", "measure", "latest_only", "redrive"):
            check_bool(name, getattr(self, name))
        for name, otherwise in _OR_NONE.items():
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1, otherwise)
        for name, kind in (("retry", RetryPolicy), ("poison", Poison), ("group", GroupLimits)):
            check_kind(name, getattr(self, name), kind)
        if self.rules is not None:
            check_kind("rules", self.rules, Rules, ", or None")
        if self.batch is not None and self.max_loaded_per_key < self.batch:
            raise ArgumentError(
                "max_loaded_per_key", self.max_loaded_per_key, f"be at least batch, {shown(self.batch)}"
            )
        if self.max_tracked < self.window:
            raise ArgumentError("max_tracked", self.max_tracked, f"be at least window, {shown(self.window)}")
        dispatcher_config(self, 2 * self.window, None, tell_settled=False)


def dispatcher_config(config: RunnerConfig, window: int, start: int | None, *, tell_settled: bool) -> DispatcherConfig:
    """Return the configuration of the dispatcher of one log.

    Args:
        config: Settings of the runner.
        window: Messages in memory, at most.
        start: Offset to begin with.
        tell_settled: Whether each settled message is reported.

    Raises:
        ConfigError: Two settings contradict each other.
    """
    return DispatcherConfig(
        window=window,
        batch_per_key=config.batch or 1,
        max_tracked=max(config.max_tracked, window) + FOLLOW_UPS,
        max_loaded_per_key=config.max_loaded_per_key,
        max_in_flight=config.max_in_flight,
        max_in_flight_per_key=config.max_in_flight_per_key,
        latest_only=config.latest_only,
        redrive=config.redrive,
        group=config.group,
        measure=config.measure,
        ack_timeout_ms=None,  # the engine counts from the start of the handler
        retry=config.retry,
        poison=config.poison,
        archive_blocked=config.archive_blocked,
        quarantine=config.quarantine,
        start=start,
        tell_settled=tell_settled,
    )


class DeadLetter(NamedTuple, Generic[Message_co]):
    """A message that was given up, for the store of dead letters.

    Attributes:
        log: Its log.
        offset: Its offset. Log and offset identify the dead letter: a crash can cause it to be written twice.
        key: Its key as bytes, or None.
        message: The submitted message.
        failures: How often it has failed, restarts included.
        error: The exception of its last handler; `CrashedError` if its processes have died; None if it is here because
            its key is quarantined.
        attempt: The number of its last delivery, for ``redrive``.
    """

    log: str
    offset: int
    key: bytes | None
    message: Message_co
    failures: int
    error: BaseException | None
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions that the runner calls when something has happened. None: no call.

    The runner calls them one after another and does nothing else meanwhile: return quickly, and do not call the runner,
    which raises `CalledFromHookError` in threads. A hook that raises stops the runner with its error; a note on the
    error names log, offset and key.

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
        running: Handlers that run or are about to begin.
        held: Messages that were taken out of their log and have no worker yet: a handler of a lost log still works on
            their key, or older messages of their batch come first, one at a time, because one of them has failed.
        done: Handlers that returned.
        failed: Handlers that raised, or that a timeout had cancelled or killed, unless they raised `Reject`.
        rejected: Handlers that raised `Reject`.
        postponed: Handlers that raised `RetryLater`.
        released: Handlers that were cancelled, and deliveries that were taken back before they began.
        late: Handlers that ended after their log was gone, so that nothing counted.
        overdue: How often a handler ran for ``timeout_ms`` or a multiple of it.
        replaced: Hung handlers whose place another one has taken.
        expired: Messages that were lost: ``load`` did not find them any more.
        dead_letters: Dead letters that were written.
        commits: Commits that were made.
        logs: The figures of the dispatcher of each log.
    """

    running: int
    held: int
    done: int
    failed: int
    rejected: int
    postponed: int
    released: int
    late: int
    overdue: int
    replaced: int
    expired: int
    dead_letters: int
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
