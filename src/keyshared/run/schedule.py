"""When things happen: which runs begin when workers are free, which handlers run for too long, what is due."""

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

from keyshared.effects import Deliver, Effect
from keyshared.run.assignment import POOL, Assignment, Place, Run, Why
from keyshared.run.batches import runs_of

__all__ = ["Alarms", "LateRun", "RunQueue", "Watch"]

Message = TypeVar("Message")

_NEVER: Final = 1 << 62  # milliseconds


class Alarms:
    """Functions by the time at which they are due; of one time, the oldest alarm first.

    Example:
        >>> alarms = Alarms()
        >>> alarms.at(20, lambda: print("late"))
        >>> alarms.at(10, lambda: print("early"))
        >>> alarms.ring(now_ms=15)
        early
        >>> alarms.next_ms
        20
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def next_ms(self) -> int | None:
        """When the next one is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def at(self, due_ms: int, act: Callable[[], None]) -> None:
        """Set an alarm. It cannot be taken back: the function checks what is true then."""
        self._count += 1
        heappush(self._heap, (due_ms, self._count, act))

    def ring(self, *, now_ms: int) -> None:
        """Call all functions that are due."""
        while self._heap and self._heap[0][0] <= now_ms:
            heappop(self._heap)[2]()


class LateRun(NamedTuple, Generic[Message]):
    """A handler that runs for long.

    Attributes:
        run: Its run.
        ran_ms: How long it has run.
        is_overdue: Whether its timeout, or a multiple of it, has passed.
        is_slow: Whether it is to be reported.
        is_hung: Whether another worker should take its place.
    """

    run: Run[Message]
    ran_ms: int
    is_overdue: bool
    is_slow: bool
    is_hung: bool


class Watch(Generic[Message]):
    """Finds handlers that have run for too long. It counts from the start of the handler.

    Args:
        timeout_ms: How long a handler may run; None for no limit.
        slow_ms: How long it runs before it is reported, and then each time twice as long; None for never.
        grace_ms: How long a cancelled handler has for its end before it counts as hung.
        logs: All logs, kept up to date by their owner.

    Attributes:
        due_ms: When to `look` next; None while nothing runs.
    """

    def __init__(
        self, timeout_ms: int | None, slow_ms: int | None, grace_ms: int, logs: dict[str, Assignment[Message]]
    ) -> None:
        self._timeout_ms = _NEVER if timeout_ms is None else timeout_ms
        self._slow_ms = _NEVER if slow_ms is None else min(slow_ms, self._timeout_ms)
        self._first_ms = min(self._timeout_ms, self._slow_ms)
        self._grace_ms = grace_ms
        self._logs = logs
        self.due_ms: int | None = None

    def begin(self, *, now_ms: int) -> bool:
        """Return whether there is a ``due_ms``, now that the first of several runs begins; the others are due later."""
        if self._first_ms == _NEVER:
            return False
        self.due_ms = now_ms + self._first_ms
        return True

    def look(self, *, now_ms: int) -> list[LateRun[Message]]:
        """Return the handlers that have run for too long, and move ``due_ms``."""
        late = []
        runs = [run for log in self._logs.values() for run in log.runs]
        next_ms = now_ms + self._first_ms
        for run in runs:
            if run.started_ms is None:
                continue  # still on its way to a worker: its time has not begun
            ran_ms = now_ms - run.started_ms
            is_overdue, is_slow, is_hung = (ran_ms >= due_ms for due_ms in self._due_ms(run))
            if is_overdue or is_slow or is_hung:
                late.append(LateRun(run, ran_ms, is_overdue, is_slow, is_hung))
            if is_overdue:
                run.overdue_ms = ran_ms + self._timeout_ms
            if is_slow:
                run.slow_ms = 2 * ran_ms
            run.is_hung |= is_hung
            next_ms = min(next_ms, run.started_ms + min(self._due_ms(run)))
        self.due_ms = next_ms if runs else None
        return late

    def _due_ms(self, run: Run[Message]) -> tuple[int, int, int]:
        """Return for how long a run has to run to be overdue, slow or hung, the next time."""
        hangs = not run.is_hung and run.cancelled is not Why.LEAVES
        return (
            run.overdue_ms or self._timeout_ms,
            run.slow_ms or self._slow_ms,
            self._timeout_ms + self._grace_ms if hangs else _NEVER,
        )


class RunQueue(Generic[Message]):
    """Starts first the runs that had to wait, then those of each hungry log, one turn after another.

    Args:
        capacity: How many runs there may be at once.
        batch: The greatest length of a batch. A log's turn is at least that many messages. They may turn out to be of
            as many keys, and then those that find no worker are due before any other log.

    Attributes:
        busy: How many runs occupy a worker.
        paused_keys: Keys of which nothing begins.
    """

    def __init__(self, capacity: int, batch: int) -> None:
        self.busy = 0
        self.paused_keys: set[bytes] = set()
        self._capacity = capacity
        self._batch = batch
        self._hungry: deque[Assignment[Message]] = deque()
        self._due: deque[Run[Message]] = deque()
        self._abandoned: dict[Place, int] = {}  # handlers that an earlier assignment has left behind
        self._behind: dict[Place, list[Run[Message]]] = {}  # what waits for their end
        self._suspects: deque[Run[Message]] = deque()
        self._suspect: Run[Message] | None = None  # of these one at a time: one of them ended the process before

    def has_room(self) -> bool:
        """Whether another run may begin."""
        return self.busy < self._capacity

    def want(self, log: Assignment[Message]) -> None:
        """Add a log to those that may have something for a worker."""
        if not log.is_hungry and not log.is_leaving:
            log.is_hungry = True
            self._hungry.append(log)

    def add(self, run: Run[Message]) -> None:
        """Start a run as soon as there is a free worker."""
        self._due.append(run)

    def hand_out(
        self,
        start: Callable[[Run[Message]], None],
        hear: Callable[[Assignment[Message], list[Effect[Message]]], None],
        *,
        now_ms: int,
    ) -> None:
        """Start as many runs as there are free workers; pass on all other effects of the dispatchers."""
        due, hungry = self._due, self._hungry
        while due and self.busy < self._capacity:
            self._begin(due.popleft(), start)
        while hungry and self.busy < self._capacity:
            log = hungry.popleft()
            log.is_hungry = False
            if log.is_leaving:
                continue
            share = max(self._batch, (self._capacity - self.busy) // (len(hungry) + 1))
            effects = log.dispatcher.pull(POOL, share, now_ms=now_ms)
            deliveries = [effect for effect in effects if isinstance(effect, Deliver)]
            for run in runs_of(log, deliveries):
                if run.behind:
                    log.hold(run.behind)
                self._begin(run, start)
            hear(log, effects if not deliveries else [each for each in effects if not isinstance(each, Deliver)])
            if len(deliveries) == share:
                self.want(log)

    # what has to wait

    def abandon(self, run: Run[Message]) -> None:
        """Wait for a handler no longer; its outcome does not count, but its place stays taken until it ends."""
        run.is_abandoned = True
        self._abandoned[run.place] = self._abandoned.get(run.place, 0) + 1
        self.ended(run)

    def ended_abandoned(self, run: Run[Message]) -> None:
        """Queue the runs that waited for an abandoned handler: it has ended."""
        place = run.place
        self._abandoned[place] -= 1
        if not self._abandoned[place]:
            del self._abandoned[place]
            self._due += self._behind.pop(place, ())

    def ended(self, run: Run[Message]) -> None:
        """Queue the next suspect if this run has ended, or has to wait for something else."""
        if run is self._suspect:
            self._suspect = None
        if self._suspect is None and self._suspects:
            self._due.append(self._suspects.popleft())

    def resume(self, key: bytes, logs: Iterable[Assignment[Message]]) -> None:
        """Queue the runs of a key that was paused."""
        self.paused_keys.discard(key)
        for log in logs:
            for offset, run in [(offset, run) for offset, run in log.paused.items() if run.delivery.key == key]:
                del log.paused[offset]
                log.hold(run.deliveries)
                self._due.append(run)

    def take_back(self, log: Assignment[Message], offset: int) -> Run[Message] | None:
        """Remove and return the run of a message that waits here."""
        for runs in (self._due, self._suspects, *self._behind.values()):
            for run in [run for run in runs if run.log is log and run.delivery.offset == offset]:
                runs.remove(run)
                self.ended(run)
                return run
        return log.paused.pop(offset, None)

    def forget(self, log: Assignment[Message]) -> None:
        """Drop what waits of a log that leaves."""
        for place in [place for place, runs in self._behind.items() if runs[0].log is log]:
            del self._behind[place]
        for runs in (self._due, self._suspects):
            kept = [run for run in runs if run.log is not log]
            runs.clear()
            runs.extend(kept)
        log.paused.clear()
        if self._suspect is not None and self._suspect.log is log:
            self.ended(self._suspect)

    def _begin(self, run: Run[Message], start: Callable[[Run[Message]], None]) -> None:
        log = run.log
        if self._abandoned and run.place in self._abandoned:
            log.hold(run.deliveries)
            self._behind.setdefault(run.place, []).append(run)
            self.ended(run)
        elif self.paused_keys and run.delivery.key in self.paused_keys:
            log.let_go(run.deliveries)
            log.paused[run.delivery.offset] = run
            self.ended(run)
        elif log.troubles and self._is_second_suspect(run):
            log.hold(run.deliveries)
            self._suspects.append(run)
        elif self.busy < self._capacity:
            start(run)
        else:
            log.hold(run.deliveries)
            self._due.append(run)

    def _is_second_suspect(self, run: Run[Message]) -> bool:
        trouble = run.log.troubles.get(run.delivery.offset)
        if trouble is None or not trouble.is_alone:
            return False
        if self._suspect is not None and self._suspect is not run:
            return True
        self._suspect = run
        return False
