"""One stay of a log in a runner: its dispatcher, what the heart remembers of it, and what is handed out of it."""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver
from keyshared.placement.sole_owner import SoleOwner
from keyshared.run.values import RunnerConfig

__all__ = ["POOL", "Log", "Run", "Why"]

POOL: Final = "workers"
"""The one consumer: workers differ in nothing, so a key may go to any of them."""

Message = TypeVar("Message")


class Why(Enum):
    """Why a handler was cancelled."""

    TIMEOUT = auto()
    LEAVES = auto()


class Run(Generic[Message]):
    """Start a handler with ``message``; then report `Heart.ended`, or `Heart.withdrawn` if it never began.

    Args:
        log: The stay of a log that it belongs to.
        deliveries: What the dispatcher said: one, or a batch of a key in order.
        behind: The rest of the batch, which has to wait for the end of this run.

    Attributes:
        delivery: The first of the deliveries.
        message: What the handler gets: a message, or a list of them.
        started_ms: Written by the runner when the handler begins: its timeout counts from here. None before.
        named_ms: When it was last said to be overdue; -1 if never.
        cancelled: Why it was asked to end; None if it was not.
        is_abandoned: Whether it was let go: its answer no longer counts.
    """

    __slots__ = (
        "behind",
        "cancelled",
        "deliveries",
        "delivery",
        "is_abandoned",
        "log",
        "message",
        "named_ms",
        "started_ms",
    )

    def __init__(
        self, log: "Log[Message]", deliveries: tuple[Deliver[Message], ...], behind: tuple[Deliver[Message], ...] = ()
    ) -> None:
        self.log = log
        self.deliveries = deliveries
        self.behind = behind
        self.delivery = deliveries[0]
        self.message: Any = [each.item for each in deliveries] if log.has_batches else self.delivery.item
        self.started_ms: int | None = None
        self.named_ms = -1
        self.cancelled: Why | None = None
        self.is_abandoned = False

    @property
    def offsets(self) -> tuple[int, ...]:
        """What it has, in order."""
        return tuple(each.offset for each in self.deliveries)

    @property
    def place(self) -> tuple[str, bytes | int]:
        """What nothing else may run for beside it: its key, or its message if that has none."""
        key = self.delivery.key
        return self.log.name, self.delivery.offset if key is None else key


class Log(Generic[Message]):
    """A log from `Heart.add_log` until it leaves; when it comes again, that is another one.

    Args:
        name: Its name.
        config: Settings of the runner.
        start: Offset to begin with.
        resume_from: Token to begin with.
        tells_settled: Whether somebody is told what is settled.

    Attributes:
        dispatcher: Keeps its order. The limit of its only consumer is 0: the heart pulls when a worker is free, so a
            delivery is never older than the wish to run it.
        runs: Handed to the runner, and not ended.
        has_batches: Whether handlers get lists.
        waiting: Messages in flight on the books that have no handler: behind a handler of an earlier stay, or behind
            others of their batch.
        alone: Messages of a batch that has failed, without a word which of them was it: each is handed out alone.
        errors: What the last handler of a message raised, while that is not done.
        kept: Messages that spilled, if nobody can read them again.
        to_load: Offsets to be read again.
        letters: Dead letters that are to be written, or written again.
        used: Messages in memory when they were counted last.
        stored: Position and token of the last commit.
        settled: Offsets that are settled, and that nobody was told of.
        tells_settled: Whether somebody is told.
    """

    __slots__ = (
        "_window",
        "alarm_ms",
        "alone",
        "commit_at_ms",
        "dispatcher",
        "errors",
        "has_batches",
        "is_committing",
        "is_finished",
        "is_gone",
        "is_hungry",
        "is_leaving",
        "is_loading",
        "is_settling",
        "is_unstorable",
        "kept",
        "letters",
        "name",
        "runs",
        "settled",
        "stored",
        "tells_settled",
        "to_load",
        "used",
        "waiting",
    )

    def __init__(
        self,
        name: str,
        config: RunnerConfig,
        start: int | None,
        resume_from: str | None,
        *,
        tells_settled: bool = False,
    ) -> None:
        # Twice the runner's window: a dispatcher spills what waits in more than half of its own.
        self._window = 2 * config.window
        self.name = name
        self.dispatcher: KeySharedDispatcher[Message] = KeySharedDispatcher(
            SoleOwner(POOL),
            DispatcherConfig(
                window=self._window,
                batch_per_key=config.batch or 1,
                max_tracked=max(config.max_tracked, self._window),
                max_loaded_per_key=config.max_loaded_per_key,
                measure=config.measure,
                ack_timeout_ms=None,  # counted by the heart, from the start of the handler
                retry=config.retry,
                poison=config.poison,
                archive_blocked=config.archive_blocked,
                quarantine=config.quarantine,
                start=start,
                tell_settled=tells_settled,
            ),
            resume_from=resume_from,
        )
        self.dispatcher.add_consumer(POOL, limit=0)
        self.runs: dict[Run[Message], None] = {}
        self.has_batches = config.batch is not None
        self.waiting: set[int] = set()
        self.alone: set[int] = set()
        self.errors: dict[int, BaseException] = {}
        self.kept: dict[int, Message] = {}
        self.to_load: list[int] = []
        self.settled: list[int] = []
        self.tells_settled = tells_settled
        self.letters = 0
        self.used = 0
        self.alarm_ms: int | None = None  # when the dispatcher has something to do
        self.commit_at_ms = 0
        self.is_hungry = False  # stands in the heart's line of logs that may have something for a worker
        self.is_loading = False
        self.is_committing = False
        self.is_settling = False
        self.is_unstorable = False  # a commit of it has failed
        self.is_leaving = False
        self.is_gone = False
        self.is_finished = True
        self.stored: tuple[int, str] | None = None
        position = self.dispatcher.resume_offset
        if position is not None:
            self.stored = position, self.cursor_token(config.token_bytes)

    def cursor_token(self, most_bytes: int) -> str:
        """Return the text of the token as it is now."""
        return self.dispatcher.cursor_token(most_bytes).text

    def hold(self, deliveries: Iterable[Deliver[Message]]) -> None:
        """Note that these have no handler yet."""
        self.waiting.update(each.offset for each in deliveries)

    def let_go(self, deliveries: Iterable[Deliver[Message]]) -> None:
        """Note that these have a handler now, or are back in the log."""
        if self.waiting:
            self.waiting.difference_update(each.offset for each in deliveries)

    def forget(self, offset: int) -> None:
        """Forget how handlers of a message have failed: it is done, or was given up."""
        self.errors.pop(offset, None)
        self.alone.discard(offset)

    def count(self) -> int:
        """Messages in memory now. A log that may not track more counts as full."""
        return self._window - self.dispatcher.free_slots + len(self.kept)

    def is_busy(self) -> bool:
        """Whether something of it goes on, or will by itself."""
        return bool(
            self.runs
            or self.waiting
            or self.letters
            or self.to_load
            or self.is_loading
            or self.is_committing
            or self.is_settling
            or self.settled
            or self.is_hungry
            or self.dispatcher.next_deadline_ms() is not None
        )

    def waits_for_no_handler(self) -> bool:
        """Whether it leaves, and waits for nothing but its last commit, and that the last settled ones are told of."""
        return self.is_leaving and not self.runs and not self.letters
