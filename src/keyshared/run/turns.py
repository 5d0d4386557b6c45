"""Which runs begin when workers are free."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from keyshared.effects import Deliver, Effect
from keyshared.run.batches import runs_of
from keyshared.run.leftovers import Leftovers
from keyshared.run.log import POOL, Log, Run

__all__ = ["Turns"]

Message = TypeVar("Message")


class Turns(Generic[Message]):
    """Hands free workers what was held first, then what each hungry log has, one turn after another.

    Args:
        capacity: How many runs there may be at once.
        batch: The greatest length of a batch. A log's turn is at least that many messages. They may turn out to be of
            as many keys, and then those that find no worker are due before any other log.
        leftovers: What keys have to wait for.

    Attributes:
        busy: How many runs there are.
    """

    def __init__(self, capacity: int, batch: int, leftovers: Leftovers[Message]) -> None:
        self.busy = 0
        self._capacity = capacity
        self._batch = batch
        self._leftovers = leftovers
        self._hungry: deque[Log[Message]] = deque()
        self._due: deque[Run[Message]] = deque()

    def has_room(self) -> bool:
        """Whether another run may begin."""
        return self.busy < self._capacity

    def want(self, log: Log[Message]) -> None:
        """Put a log in the line of those that may have something for a worker."""
        if not log.is_hungry and not log.is_leaving:
            log.is_hungry = True
            self._hungry.append(log)

    def add(self, run: Run[Message]) -> None:
        """Start a run as soon as there is room."""
        self._due.append(run)

    def hand_out(
        self,
        start: Callable[[Run[Message]], None],
        tell: Callable[[Log[Message], list[Effect[Message]]], None],
        *,
        now_ms: int,
    ) -> None:
        """Start what there is room for; tell what else the dispatchers have said."""
        while self._due and self.has_room():
            start(self._due.popleft())
        while self._hungry and self.has_room():
            log = self._hungry.popleft()
            log.is_hungry = False
            if log.is_leaving:
                continue
            share = max(self._batch, (self._capacity - self.busy) // (len(self._hungry) + 1))
            effects = log.dispatcher.pull(POOL, share, now_ms=now_ms)
            deliveries = [effect for effect in effects if isinstance(effect, Deliver)]
            for run in runs_of(log, deliveries):
                self._begin(run, start)
            tell(log, [effect for effect in effects if not isinstance(effect, Deliver)])
            if len(deliveries) == share:
                self.want(log)

    def _begin(self, run: Run[Message], start: Callable[[Run[Message]], None]) -> None:
        log = run.log
        if run.behind:
            log.hold(run.behind)
        if self._leftovers.must_wait(run):
            log.hold(run.deliveries)
        elif self.has_room():
            start(run)
        else:
            log.hold(run.deliveries)
            self._due.append(run)
