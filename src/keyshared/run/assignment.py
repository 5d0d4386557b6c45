"""One assignment of a log to a runner: its dispatcher, its runs, and what the engine remembers of its messages."""

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

from keyshared.config import DispatcherConfig, Rules
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver
from keyshared.placement.assigned import AssignedRanges
from keyshared.run.commit_token import CrashRecord, Suspect, read_record, read_token, write_token
from keyshared.run.reports import Timeline
from keyshared.run.values import LEAST_TOKEN_BYTES, RunnerConfig, dispatcher_config

__all__ = ["POOL", "Assignment", "Place", "Run", "Trouble", "Why"]

POOL: Final = "workers"
"""The one consumer: workers differ in nothing, so a key may go to any of them."""

MOST_PARTS: Final = 4  # into how many parts the window is divided at most, however many logs there are
SAMPLE_MS: Final = 1_000  # how exact the age of the oldest unfinished message is
MOST_SAMPLES: Final = 4_096

Message = TypeVar("Message")
Place = tuple[str, bytes | int]
"""A key of a log, or a message of it that has no key: nothing runs beside a handler of the same place."""


class Why(Enum):
    """Why a handler was cancelled."""

    TIMEOUT = auto()
    LEAVES = auto()


class Run(Generic[Message]):
    """Start a handler with ``message``; then report `Engine.ended`, or `Engine.withdrawn` if it never began.

    Args:
        log: The assignment that it belongs to.
        deliveries: The deliveries of the dispatcher: one, or a batch of a key in order.
        behind: The rest of the batch, which has to wait for the end of this run.

    Attributes:
        delivery: The first of the deliveries.
        message: What the handler gets: a message, or a list of them.
        started_ms: Written by the runner when the handler begins: its timeout counts from here. None before.
        overdue_ms: When its timeout passes next.
        slow_ms: How long it has to run until it is reported as slow.
        cancelled: Why it was asked to end; None if it was not.
        is_abandoned: Whether the engine waits for it no longer: its outcome does not count.
        is_hung: Whether it has outlasted its timeout, and its cancellation if there was one.
        is_replaced: Whether its place among the workers was given to another one.
    """

    started_ms: int | None = None
    overdue_ms = slow_ms = 0
    cancelled: Why | None = None
    is_abandoned = is_hung = is_replaced = False

    def __init__(
        self,
        log: "Assignment[Message]",
        deliveries: tuple[Deliver[Message], ...],
        behind: tuple[Deliver[Message], ...] = (),
    ) -> None:
        self.log = log
        self.deliveries = deliveries
        self.behind = behind
        delivery = self.delivery = deliveries[0]
        self.message: Any = [each.item for each in deliveries] if log.has_batches else delivery.item

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of its messages, in order."""
        return tuple(each.offset for each in self.deliveries)

    @property
    def place(self) -> Place:
        """The place that it occupies."""
        key = self.delivery.key
        return self.log.name, self.delivery.offset if key is None else key


class Trouble:
    """The record of a message that has failed, was postponed, or was open at a crash.

    Attributes:
        key: Its key.
        failures: How often it has failed, in all processes so far.
        before: How many of these failures its dispatcher does not know, as they are of processes before.
        error: The exception of its last handler.
        is_alone: Whether it runs only while no other such message does, as it was open at a crash.
        state: What became of it: "retry", "postponed", "blocked", "dead letter"; "" while it is handled again.
        since_ms: When that was.
        due_ms: When it comes again, if that is known.
    """

    __slots__ = ("before", "due_ms", "error", "failures", "is_alone", "key", "since_ms", "state")

    def __init__(self, key: bytes | None, failures: int = 0, *, is_alone: bool = False) -> None:
        self.key = key
        self.failures = self.before = failures
        self.error: BaseException | None = None
        self.is_alone = is_alone
        self.state = ""
        self.since_ms = 0
        self.due_ms: int | None = None

    def note(self, state: str, *, now_ms: int, due_ms: int | None = None) -> None:
        """Note what became of the message."""
        self.state, self.since_ms, self.due_ms = state, now_ms, due_ms


def _dispatcher_of_pool(
    config: DispatcherConfig, rules: Rules | None, resume_from: str | None
) -> KeySharedDispatcher[Message]:
    """Return a dispatcher whose only consumer is the pool of workers, which pulls."""
    dispatcher: KeySharedDispatcher[Message] = KeySharedDispatcher(
        AssignedRanges.sole_owner(POOL), config, rules=rules, resume_from=resume_from
    )
    dispatcher.add_consumer(POOL, limit=0)
    return dispatcher


class Assignment(Generic[Message]):
    """A log from `Engine.add_log` until it leaves; when it comes again, that is another assignment.

    Args:
        name: Its name.
        config: Settings of the runner.
        start: Offset to begin with.
        resume_from: Token to begin with.
        tells_settled: Whether settled messages are reported.
        among: How many logs there are now, with this one.

    Attributes:
        dispatcher: Keeps its order. The limit of its only consumer is 0: the engine pulls when a worker is free, so a
            delivery is never older than the free worker.
        part: Messages of it in memory, unless workers are idle; the dispatcher spills beyond that.
        most_tracked: Messages of it that are not done, unless follow-ups are added.
        runs: Runs that the runner has and that have not ended.
        has_batches: Whether handlers get lists.
        waiting: Messages in flight for the dispatcher that have no handler: behind an abandoned handler, behind others
            of their batch, or behind another suspect of a crash.
        paused: The same of a paused key, by offset.
        alone: Messages of a batch that has failed without naming one of them: each is handed out alone.
        troubles: Messages that have failed, by offset, while they are not done.
        kept: Messages that spilled, if there is no ``load``.
        to_load: Offsets to be read again.
        dead_letters: Dead letters that are to be written, or written again.
        used: Messages in memory when they were counted last.
        stored: Position and token of the last commit.
        settled: Offsets that are settled and not yet reported.
        unrecorded: Runs that begin when a commit that names them is made.
        cautious_below: Up to this offset a message may have ended the process before: none begins unrecorded.
        end: Where the log ends, if its reader has said so.
        timeline: When messages were submitted and keys became free, if there are spans.
    """

    def __init__(
        self,
        name: str,
        config: RunnerConfig,
        start: int | None,
        resume_from: str | None,
        *,
        tells_settled: bool = False,
        among: int = 1,
    ) -> None:
        self.name = name
        self._config = config
        self.part = max(1, config.window // min(among, MOST_PARTS))
        self.most_tracked = max(config.max_tracked, 2 * self.part)
        # A dispatcher spills what waits in more than half of its window, and refuses follow-ups if all of it is open.
        self._window = 2 * (self.part + 2 * config.workers)
        cursor, record = read_token(resume_from) if isinstance(resume_from, str) else (resume_from, "")
        below = dispatcher_config(config, self._window, start, tell_settled=tells_settled)
        self.dispatcher: KeySharedDispatcher[Message] = _dispatcher_of_pool(below, config.rules, cursor)
        self.runs: dict[Run[Message], None] = {}
        self.has_batches = config.batch is not None
        self.waiting: set[int] = set()
        self.paused: dict[int, Run[Message]] = {}
        self.alone: set[int] = set()
        self.troubles: dict[int, Trouble] = {}
        self.kept: dict[int, Message] = {}
        self.to_load: list[int] = []
        self.settled: list[int] = []
        self.tells_settled = tells_settled
        self.dead_letters = self.used = self.sample_at_ms = 0
        self.credit = 0  # messages that may be submitted before the next count
        self.alarm_ms: int | None = None  # when the dispatcher has something to do
        self.commit_at_ms = self.commit_attempts = 0
        self.is_hungry = False  # is in the engine's queue of logs that may have something for a worker
        self.is_loading = self.is_committing = self.is_settling = False
        self.is_unstorable = False  # the last attempt of a commit has failed
        self.is_leaving = self.is_gone = False
        self.is_finished = True
        self.is_recorded = False  # a commit of this assignment was made
        self.unrecorded: list[Run[Message]] = []
        self.cautious_below: int | None = None
        self.end: int | None = None
        self.timeline: Timeline | None = None
        self._horizon: int | None = None
        self._samples: deque[tuple[int, int]] = deque()
        self.stored: tuple[int, str] | None = None
        self.committed: int | None = None
        position = self.dispatcher.resume_offset
        if position is not None:
            self.committed = position
            self.stored = position, "" if resume_from is None else resume_from
            self._recall(read_record(record, position))

    def trace(self) -> None:
        """Keep the times that spans show, from now on."""
        self.timeline = Timeline()

    # crashes

    def _recall(self, record: CrashRecord) -> None:
        """Count a failure for each message that was open when the last process crashed.

        Another message may be to blame. So the first crash leaves one more run, and it is alone then.
        """
        self.cautious_below = record.horizon
        limit = self._config.retry.max_redeliveries
        for offset, failures, was_open, was_alone in record.suspects:
            count = failures + was_open
            if was_open and limit is not None and not was_alone:
                count = min(count, limit)
            self.troubles[offset] = trouble = Trouble(None, count, is_alone=was_open or was_alone)
            if trouble.is_alone:
                self.alone.add(offset)

    def is_cautious(self, run: Run[Message]) -> bool:
        """Whether a run may begin only when a commit has recorded it, or that a process works on the log at all."""
        return not self.is_recorded or self._may_crash(run)

    def _may_crash(self, run: Run[Message]) -> bool:
        return self.cautious_below is not None and run.delivery.offset < self.cautious_below

    def to_store(self) -> tuple[int, str] | None:
        """Return position and token as a commit would store them now; None if nothing was read."""
        position = self.dispatcher.resume_offset
        if position is None:
            return None
        record = CrashRecord(self._renewed_horizon(position), tuple(self._suspects()))
        most = self._config.token_bytes
        space = min(most // 4, most - LEAST_TOKEN_BYTES) if record != (None, ()) else 0
        cursor = self.dispatcher.cursor_token(most - space).text
        return position, write_token(cursor, position, record, most)

    def _renewed_horizon(self, position: int) -> int | None:
        """Return the horizon: beyond all that can be read until the next commit, and seldom another one."""
        if self.waits_for_no_handler():
            return None  # an orderly end
        margin = self._config.window
        read_to = max(position, self.read_position or position)
        if self._horizon is None or self._horizon < read_to + margin:
            self._horizon = read_to + 2 * margin
        return self._horizon

    def _suspects(self) -> Iterable[Suspect]:
        """Return the messages to record, the most important ones first."""
        opened = {offset for run in self.runs for offset in run.offsets if self._may_crash(run)}
        known = [
            Suspect(offset, trouble.failures, offset in opened, trouble.is_alone)
            for offset, trouble in self.troubles.items()
            if trouble.failures or trouble.is_alone or offset in opened
        ]
        known.sort(key=lambda each: (not each.is_alone, not each.is_open, -each.failures))
        return [*known, *(Suspect(offset, 0, True, False) for offset in sorted(opened - set(self.troubles)))]

    # messages

    def trouble_of(self, delivery: Deliver[Message]) -> Trouble:
        """Return what is known of a message, from now on to be known."""
        trouble = self.troubles.setdefault(delivery.offset, Trouble(delivery.key))
        trouble.key = delivery.key
        return trouble

    def hold(self, deliveries: Iterable[Deliver[Message]]) -> None:
        """Note that these have no handler yet."""
        self.waiting.update(each.offset for each in deliveries)

    def let_go(self, deliveries: Iterable[Deliver[Message]]) -> None:
        """Note that these have a handler now, or are back in the log."""
        if self.waiting:
            self.waiting.difference_update(each.offset for each in deliveries)

    def forget(self, offset: int) -> None:
        """Forget how handlers of a message have failed: it is done, or was given up."""
        self.troubles.pop(offset, None)
        self.alone.discard(offset)

    # figures

    def count(self) -> int:
        """Messages in memory now. A log that may not track more counts as full."""
        return self._window - self.dispatcher.free_slots + len(self.kept)

    @property
    def read_position(self) -> int | None:
        """The offset after the last message that was submitted; None if nothing is known."""
        last = self.dispatcher.restart_mark.last
        return self.dispatcher.resume_offset if last is None else last + 1

    def sample(self, offset: int, *, now_ms: int) -> None:
        """Remember when an offset was submitted, once in a second."""
        samples = self._samples
        if now_ms >= self.sample_at_ms:
            self.sample_at_ms = now_ms + SAMPLE_MS
            samples.append((offset, now_ms))
            self._drop_samples()
            if len(samples) > MOST_SAMPLES:  # a message is unfinished for hours: its age may be less exact
                self._samples = deque(each for number, each in enumerate(samples) if number % 2 == 0)

    def oldest_ms(self, *, now_ms: int) -> int | None:
        """Age of the oldest unfinished message, to the second; None if there is none."""
        if self.dispatcher.stats().oldest_outstanding is None:
            return None
        self._drop_samples()
        return now_ms - self._samples[0][1] if self._samples else None

    def _drop_samples(self) -> None:
        oldest = self.dispatcher.resume_offset
        samples = self._samples
        while len(samples) > 1 and oldest is not None and samples[1][0] <= oldest:
            samples.popleft()

    def is_busy(self) -> bool:
        """Whether something of it goes on, or will by itself."""
        return bool(
            self.runs
            or self.waiting
            or self.dead_letters
            or self.to_load
            or self.is_loading
            or self.is_committing
            or self.is_settling
            or self.settled
            or self.is_hungry
            or self.dispatcher.next_deadline_ms() is not None
        )

    def waits_for_no_handler(self) -> bool:
        """Whether it leaves, and waits for nothing but its last commit and its last report of settled messages."""
        return self.is_leaving and not self.runs and not self.dead_letters
