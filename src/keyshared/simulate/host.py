"""The host of a simulated subscription: does what the dispatcher says, works as its consumers, writes the history."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, TypeAlias, cast

from keyshared.config import OnEvict
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import (
    Blocked,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Dropped,
    Effect,
    Evicted,
    Ignored,
    Load,
    Released,
    ReleaseReason,
    Resumed,
    Settled,
    SettleReason,
    Skipped,
    Spilled,
)
from keyshared.simulate.history import Event, Row
from keyshared.simulate.plan import ConsumerPlan, Plan
from keyshared.simulate.service import Answer

__all__ = ["Host", "Passenger", "Worker"]

Passenger: TypeAlias = tuple[int, int | None]
"""What travels with a message: since when it is available, and its own service time."""
_Work: TypeAlias = tuple[int, int, int, "Worker | None", Deliver | DeadLetter | Load]
"""When it ends, a number that decides ties, how long it took, whose it is (None: the host's), and what it is about."""

_new: Final = tuple.__new__  # builds a Row in half the time that its own constructor takes
_OFFERED: Final = Event.OFFERED
_DELIVERED: Final = Event.DELIVERED
_ACKED: Final = Event.ACKED
_CURSOR: Final = Event.CURSOR


class Worker:
    """The process of a consumer: its local queue, and how much it works on."""

    __slots__ = ("alive", "busy", "concurrency", "queue", "service")

    def __init__(self, plan: ConsumerPlan) -> None:
        self.alive = True
        self.busy = 0
        self.concurrency: Final = plan.concurrency
        self.service = plan.service
        # By offset, because a release may take any of them out; only an ordered dict gives its oldest item in O(1).
        self.queue: OrderedDict[int, Deliver] = OrderedDict()

    def kill(self) -> None:
        """It answers nothing any more, whatever it was working on."""
        self.alive = False
        self.queue.clear()


class Host:
    """One dispatcher and everybody who works for it.

    Attributes:
        dispatcher: The real one.
        now: The virtual time; whoever owns the clock sets it.
        rows: What happened since somebody emptied this.
        numbers: The next rows' sequence numbers.
        paused: Nothing may be offered until there is room again.
        endless: A message was delivered too often.
        work: What is under way, as a heap.
        plans: What every consumer that ever joined was told last.
        workers: The process of each of them.
        evicted: Who has been evicted and has not come back.
        owners: Who owned each of the keys seen so far when that was last asked; None if nobody counts.
        again: Since when a message that was delivered before is available again.
        spilled: What travelled with the messages whose payload is not wanted now.
        blocked: The blocked messages of each key.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.dispatcher = KeySharedDispatcher(plan.placement, plan.config)
        self.now = 0
        self.rows: list[Row] = []
        self.numbers = count()
        self.paused = False
        self.endless = False
        self.work: list[_Work] = []
        self._begun = count()
        self.plans: dict[str, ConsumerPlan] = {}
        self.workers: dict[str, Worker] = {}
        self.evicted: set[str] = set()
        self.owners: dict[bytes, str | None] | None = {} if plan.count_moved_keys else None
        self.open: dict[int, Deliver] = {}
        self.again: dict[int, int] = {}
        self.spilled: dict[int, Passenger] = {}
        self.blocked: dict[bytes | None, list[int]] = {}
        self._handlers: Mapping[type[Effect], Callable[[Any], None]] = {
            Ignored: self._see_ignored,
            Evicted: self._see_evicted,
            Released: self._see_released,
            Blocked: self._see_blocked,
            Settled: self._see_settled,
            Dropped: self._see_settled,
            Skipped: self._see_settled,
            DeadLetter: self._see_dead_letter,
            Load: self._see_load,
            Resumed: self._see_resumed,
        }

    def offer(self, offset: int, key: bytes | None, passenger: Passenger) -> None:
        """Hand a message to the dispatcher."""
        effects = self.dispatcher.offer(offset, key, passenger, now_ms=self.now)
        if self.owners is not None and key is not None and key not in self.owners:
            self.owners[key] = self.dispatcher.owner(key)
        fields = (next(self.numbers), self.now, _OFFERED, offset, key, None, None, None, passenger[0], None, None, None)
        self.rows.append(_new(Row, fields))
        if effects and type(effects[0]) is Spilled:  # never about another message than the one that is offered
            self.spilled[offset] = passenger
            self.tell(Event.SPILLED, offset=offset, key=key)
        self.apply(effects)

    def apply(self, effects: list[Effect]) -> None:
        """Do what a call of the dispatcher asks for, in its order."""
        for effect in effects:
            kind = type(effect)
            if kind is Deliver:
                self._deliver(effect)  # type: ignore[arg-type]  # its type is known
            elif kind is CursorAdvanced:
                safe: int = effect[0]  # type: ignore[assignment]  # as above
                fields = (next(self.numbers), self.now, _CURSOR, safe, *_EIGHT_NONES)
                self.rows.append(_new(Row, fields))
            elif kind in self._handlers:
                self._handlers[kind](effect)

    def _deliver(self, effect: Deliver) -> None:
        offset, key, name, attempt, failures, item = effect
        passenger: Passenger = item  # what was offered
        self.open[offset] = effect
        available = passenger[0] if attempt == 1 else self.again.pop(offset)
        fields = (
            next(self.numbers),
            self.now,
            _DELIVERED,
            offset,
            key,
            name,
            attempt,
            failures,
            available,
            None,
            None,
            None,
        )
        self.rows.append(_new(Row, fields))
        self.take(self.workers[name], effect)
        if attempt > self._plan.max_attempts:
            self.endless = True

    # work

    def take(self, worker: Worker, delivery: Deliver) -> None:
        """Start working on a delivery, or put it into the local queue."""
        if worker.busy < worker.concurrency:
            self._start(worker, delivery)
        else:
            worker.queue[delivery.offset] = delivery

    def _start(self, worker: Worker, delivery: Deliver) -> None:
        worker.busy += 1
        passenger: Passenger = delivery.item  # type: ignore[assignment]  # what was offered
        service_ms = worker.service.duration_ms(delivery.offset, delivery.attempt, passenger[1])
        self._schedule(service_ms, worker, delivery)

    def _schedule(self, delay_ms: int, worker: Worker | None, subject: Deliver | DeadLetter | Load) -> None:
        heappush(self.work, (self.now + delay_ms, next(self._begun), delay_ms, worker, subject))

    def finish(self) -> None:
        """End the piece of work that ends first."""
        _, _, service_ms, worker, subject = heappop(self.work)
        if worker is None:
            if isinstance(subject, Load):
                self._loaded(subject)
            else:
                self._archived(cast("DeadLetter", subject))
        elif worker.alive:
            worker.busy -= 1
            if worker.queue:
                self._start(worker, worker.queue.popitem(last=False)[1])
            self._answer(cast("Deliver", subject), service_ms)

    def _answer(self, delivery: Deliver, service_ms: int) -> None:
        offset, key, name, attempt, failures, _ = delivery
        for model in self._plan.answers:
            answer = model.answer(offset, key, attempt)
            if answer is not Answer.ACK:
                self._refuse(delivery, service_ms, answer)
                return
        effects = self.dispatcher.ack(offset, name, attempt, now_ms=self.now)
        if self.open.get(offset) is delivery:
            del self.open[offset]
            fields = (
                next(self.numbers),
                self.now,
                _ACKED,
                offset,
                key,
                name,
                attempt,
                failures,
                None,
                service_ms,
                None,
                None,
            )
            self.rows.append(_new(Row, fields))
        elif not (effects and type(effects[0]) is Ignored):
            # A late success: the delivery had ended on the books, the message was waiting, and this ack settles it.
            self._see_settled(Settled(offset, key, SettleReason.LATE_ACK))
        self.apply(effects)

    def _refuse(self, delivery: Deliver, service_ms: int, answer: Answer) -> None:
        if answer is Answer.SILENT:
            return
        offset, consumer, attempt = delivery.receipt
        if answer is Answer.NACK:
            event, delay = Event.NACKED, self._plan.config.retry.delay_ms(delivery.failures + 1)
            effects = self.dispatcher.nack(offset, consumer, attempt, now_ms=self.now)
        else:
            event, delay = Event.REJECTED, None
            effects = self.dispatcher.reject(offset, consumer, attempt, now_ms=self.now)
        if self.open.get(offset) is delivery:
            self._end(event, delivery, delay, failures=delivery.failures + 1, service_ms=service_ms)
        self.apply(effects)

    def _end(
        self,
        event: Event,
        delivery: Deliver,
        delay_ms: int | None,
        *,
        failures: int,
        service_ms: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Book the end of a delivery that did not settle its message; no delay means that it is given up."""
        offset, key, consumer, attempt, _, _ = delivery
        del self.open[offset]
        self.again[offset] = self.now + (delay_ms or 0)
        self.tell(
            event,
            offset=offset,
            key=key,
            consumer=consumer,
            attempt=attempt,
            failures=failures,
            available_ms=None if delay_ms is None else self.now + delay_ms,
            service_ms=service_ms,
            reason=reason,
        )

    def _archived(self, letter: DeadLetter) -> None:
        offset, key, attempt, failures, _ = letter
        effects = self.dispatcher.dead_lettered(offset, now_ms=self.now)
        stays = any(isinstance(effect, Blocked) and effect.offset == offset for effect in effects)
        event = Event.ARCHIVED if stays else Event.DEAD_LETTERED
        if not stays:
            self.again.pop(offset, None)
        self.tell(event, offset=offset, key=key, attempt=attempt, failures=failures)
        self.apply(effects)

    def _loaded(self, load: Load) -> None:
        passenger = self.spilled.pop(load.offset)
        effects = self.dispatcher.loaded(load.offset, passenger, now_ms=self.now)
        self.tell(Event.LOADED, offset=load.offset, key=load.key)
        self.apply(effects)

    # effects that are rarer than deliveries and cursors

    def _see_ignored(self, effect: Ignored) -> None:
        offset, consumer, attempt, reason = effect
        self.tell(Event.IGNORED, offset=offset, consumer=consumer, attempt=attempt, reason=reason)

    def _see_evicted(self, effect: Evicted) -> None:
        self.evicted.add(effect.consumer)
        self.tell(Event.EVICTED, consumer=effect.consumer, moved_keys=self.moved_keys())

    def _see_released(self, effect: Released) -> None:
        delivery = self.open[effect.offset]
        self.workers[effect.consumer].queue.pop(effect.offset, None)
        config, failures, delay = self._plan.config, delivery.failures, cast("int | None", 0)
        given_up = effect.reason is ReleaseReason.EVICTED and config.on_evict is OnEvict.DROP
        if effect.reason in _FAILURES and not given_up:
            failures += 1
            delay = config.retry.delay_ms(failures)
            if delay is not None and effect.reason is not ReleaseReason.ACK_TIMEOUT:
                delay = 0  # only what the message itself may have caused makes it wait
        event = Event.TIMED_OUT if effect.reason is ReleaseReason.ACK_TIMEOUT else Event.RELEASED
        self._end(event, delivery, None if given_up else delay, failures=failures, reason=effect.reason)

    def _see_blocked(self, effect: Blocked) -> None:
        offset, key, failures = effect
        self.blocked.setdefault(key, []).append(offset)
        self.tell(Event.BLOCKED, offset=offset, key=key, failures=failures)

    def _see_settled(self, effect: Settled | Dropped | Skipped) -> None:
        offset, key, reason = effect
        self.again.pop(offset, None)
        self.tell(_SETTLING[type(effect)], offset=offset, key=key, reason=reason)

    def _see_dead_letter(self, effect: DeadLetter) -> None:
        offset, key, attempt, failures, _ = effect
        self.tell(Event.DEAD_LETTERING, offset=offset, key=key, attempt=attempt, failures=failures)
        self._schedule(self._plan.archive_ms, None, effect)

    def _see_load(self, effect: Load) -> None:
        self.tell(Event.LOADING, offset=effect.offset, key=effect.key)
        self._schedule(self._plan.load_ms, None, effect)

    def _see_resumed(self, effect: Resumed) -> None:  # noqa: ARG002 - that it came is all that counts
        self.paused = False
        self.tell(Event.RESUMED)

    def moved_keys(self) -> int | None:
        """How many keys have changed owners since this was asked last; None if nobody counts. O(keys)."""
        if self.owners is None:
            return None
        moved = 0
        for key, before in self.owners.items():
            after = self.dispatcher.owner(key)
            if after != before:
                self.owners[key] = after
                moved += 1
        return moved

    def tell(
        self,
        event: Event,
        *,
        offset: int | None = None,
        key: bytes | None = None,
        consumer: str | None = None,
        attempt: int | None = None,
        failures: int | None = None,
        available_ms: int | None = None,
        service_ms: int | None = None,
        reason: str | None = None,
        moved_keys: int | None = None,
    ) -> None:
        """Write a row."""
        number = next(self.numbers)
        self.rows.append(
            Row(
                number,
                self.now,
                event,
                offset,
                key,
                consumer,
                attempt,
                failures,
                available_ms,
                service_ms,
                None if reason is None else str(reason),
                moved_keys,
            )
        )


_EIGHT_NONES: Final = (None,) * 8
_FAILURES: Final = frozenset({ReleaseReason.ACK_TIMEOUT, ReleaseReason.EVICTED, ReleaseReason.SESSION_LOST})
_SETTLING: Final[Mapping[type[Effect], Event]] = {
    Settled: Event.SETTLED,
    Dropped: Event.DROPPED,
    Skipped: Event.SKIPPED,
}
