"""The host of a simulated subscription: carries out the dispatcher's effects, works as its consumers, records both."""

from collections import OrderedDict
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, TypeAlias, cast

from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.effects import (
    Blocked,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Dropped,
    Effect,
    Evicted,
    Ignored,
    KeyEnding,
    Load,
    Released,
    ReleaseReason,
    Resumed,
    Settled,
    SettleReason,
    Skipped,
    Spilled,
)
from keyshared.journal.commands import fields_of
from keyshared.simulate.group import Group, SimulatedConsumer
from keyshared.simulate.history import Event, History, Row
from keyshared.simulate.service import Answer

__all__ = ["Host", "Passenger", "Worker"]

Passenger: TypeAlias = tuple[int, int | None]
"""What travels with a message: since when it is available, and its own service time."""
_Work: TypeAlias = tuple[int, int, int, "Worker | None", Deliver | DeadLetter | KeyEnding | Load]
"""When it ends, a number that decides ties, how long it took, whose it is (None: the host's), and what it is about."""


class Worker:
    """The process of a consumer: its local queue, and how much it works on."""

    __slots__ = ("alive", "busy", "concurrency", "postpone_ms", "queue", "service", "takes_batches")

    def __init__(self, consumer: SimulatedConsumer) -> None:
        self.alive = True
        self.busy = 0
        self.concurrency: Final = consumer.concurrency
        self.takes_batches: Final = consumer.takes_batches
        self.postpone_ms: Final = consumer.postpone_ms
        self.service = consumer.service
        # By offset, because a release may take any of them out; only an ordered dict gives its oldest item in O(1).
        self.queue: OrderedDict[int, Deliver] = OrderedDict()

    def rest_of(self, delivery: Deliver, *, one_lane: bool) -> list[Deliver]:
        """Take the rest of a delivery's batch out of the local queue, where it comes next."""
        rest: list[Deliver] = []
        for each in self.queue.values():
            if not (one_lane or each.key == delivery.key is not None):
                break
            rest.append(each)
        for each in rest:
            del self.queue[each.offset]
        return rest

    def kill(self) -> None:
        """End the process: it answers nothing any more, whatever it was working on."""
        self.alive = False
        self.queue.clear()


class Host:
    """One dispatcher and its simulated consumers.

    Attributes:
        dispatcher: The real one.
        now: The virtual time; the engine sets it.
        paused: Nothing may be offered until there is room again.
        endless: A message was delivered too often.
        work: What is under way, as a heap.
        consumers: Each consumer that ever joined, with its latest settings.
        workers: The process of each of them.
        evicted: Consumers that were evicted and have not come back.
        owners: The last known owner of each key seen so far; None if moved keys are not counted.
        open: The open deliveries by offset.
        again: Since when a message is available again that was delivered, unblocked or redriven.
        spilled: What travelled with messages that are spilled, or may be before their next delivery.
        blocked: The blocked messages of each key.
        letters: The dead letters of each key that are settled, where they may come back.
    """

    def __init__(self, group: Group, history: History) -> None:
        self._group = group
        self.dispatcher = KeySharedDispatcher(group.placement, group.config, rules=group.rules)
        self._history = history
        self.now = 0
        self.paused = False
        self.endless = False
        self.work: list[_Work] = []
        self._begun = count()
        self.consumers: dict[str, SimulatedConsumer] = {}
        self.workers: dict[str, Worker] = {}
        self.evicted: set[str] = set()
        self.owners: dict[bytes, str | None] | None = {} if history.counts_moved_keys else None
        self.open: dict[int, Deliver] = {}
        self.again: dict[int, int] = {}
        self.spilled: dict[int, Passenger] = {}
        self._offered: tuple[int, Passenger] | None = None  # what was offered last, in case it is spilled at once
        self.blocked: dict[bytes | None, list[int]] = {}
        self.letters: dict[bytes | None, dict[int, StoredLetter[object]]] = {}

    def offer(self, offset: int, key: bytes | None, passenger: Passenger) -> None:
        """Offer a message to the dispatcher."""
        later = passenger[0] if passenger[0] > self.now else None
        effects = self.dispatcher.offer(offset, key, passenger, not_before_ms=later, now_ms=self.now)
        if self.owners is not None and key is not None and key not in self.owners:
            self.owners[key] = self.dispatcher.owner(key)
        self._history.offered(self.now, offset, key, passenger[0])
        self._offered = offset, passenger
        self.apply(effects)

    def apply(self, effects: list[Effect]) -> None:
        """Carry out the effects of a call, in their order."""
        for effect in effects:
            if type(effect) is Deliver:
                self._deliver(effect)
            elif type(effect) is CursorAdvanced:
                self._history.advanced(self.now, effect.safe_cursor)
            else:
                self._see(effect)

    def _deliver(self, effect: Deliver) -> None:
        offset, _, name, attempt, _, item = effect
        passenger: Passenger = item  # what was offered
        self.open[offset] = effect
        if self.spilled:
            self.spilled.pop(offset, None)
        available = passenger[0]
        self._history.delivered(self.now, effect, self.again.pop(offset, available) if self.again else available)
        self.take(self.workers[name], effect)
        if attempt > self._group.max_attempts:
            self.endless = True

    # work

    def take(self, worker: Worker, delivery: Deliver) -> None:
        """Start working on a delivery, or put it into the local queue."""
        if worker.busy >= worker.concurrency:
            worker.queue[delivery.offset] = delivery
            return
        worker.busy += 1
        passenger: Passenger = delivery.item  # type: ignore[assignment]  # what was offered
        service_ms = worker.service.duration_ms(delivery.offset, delivery.attempt, passenger[1])
        self._schedule(service_ms, worker, delivery)

    def _schedule(self, delay_ms: int, worker: Worker | None, subject: Deliver | DeadLetter | KeyEnding | Load) -> None:
        heappush(self.work, (self.now + delay_ms, next(self._begun), delay_ms, worker, subject))

    def finish(self) -> None:
        """End the piece of work that ends first."""
        _, _, service_ms, worker, subject = heappop(self.work)
        if worker is None:
            if isinstance(subject, Load):
                self._loaded(subject)
            elif isinstance(subject, KeyEnding):
                self._flushed(subject)
            else:
                self._archived(cast("DeadLetter", subject))
        elif worker.alive:
            delivery = cast("Deliver", subject)
            worker.busy -= 1
            batch = [delivery]
            config = self._group.config
            if worker.takes_batches and config.batch_per_key > 1 and self._is_open(delivery):
                batch += worker.rest_of(delivery, one_lane=config.ordering_required)
            if worker.queue:
                self.take(worker, worker.queue.popitem(last=False)[1])
            if len(batch) > 1:
                self._answer_batch(batch, service_ms)
            else:
                self._answer(delivery, service_ms)

    def _is_open(self, delivery: Deliver) -> bool:
        return self.open.get(delivery.offset) is delivery

    def _refusal(self, delivery: Deliver) -> tuple[Answer, str | None] | None:
        """Return what a consumer answers to a delivery, and why, if that is no ack."""
        for model in self._group.answers:
            answer = model.answer(delivery.offset, delivery.key, delivery.attempt)
            if answer is not Answer.ACK:
                return answer, model.reason
        return None

    def _answer_batch(self, batch: list[Deliver], service_ms: int) -> None:
        """Ack up to the first message that fails, and answer that one."""
        refusals = [self._refusal(each) for each in batch]
        done = next((place for place, refusal in enumerate(refusals) if refusal is not None), len(batch))
        if done:
            effects = self.dispatcher.ack_through(*batch[done - 1].receipt, now_ms=self.now)
            for each in batch[:done]:
                self._see_acked(each, service_ms)
                service_ms = 0  # all of it was one piece of work
            self.apply(effects)
        if done < len(batch):
            self._refuse(batch[done], service_ms, *cast("tuple[Answer, str | None]", refusals[done]))

    def _see_acked(self, delivery: Deliver, service_ms: int) -> None:
        del self.open[delivery.offset]
        self._history.acked(self.now, delivery, service_ms)

    def _answer(self, delivery: Deliver, service_ms: int) -> None:
        offset, key, name, attempt, _, _ = delivery
        refusal = self._refusal(delivery) if self._group.answers else None
        if refusal is not None:
            self._refuse(delivery, service_ms, *refusal)
            return
        effects = self.dispatcher.ack(offset, name, attempt, now_ms=self.now)
        if self._is_open(delivery):
            self._see_acked(delivery, service_ms)
        elif not (effects and type(effects[0]) is Ignored):
            # A late success: the delivery had ended, the message was waiting, and this ack settles it.
            self._see(Settled(offset, key, SettleReason.LATE_ACK), consumer=name, attempt=attempt)
        self.apply(effects)

    def _refuse(self, delivery: Deliver, service_ms: int, answer: Answer, reason: str | None) -> None:
        if answer is Answer.SILENT:
            return
        if answer is Answer.POSTPONE:
            delay_ms = self.workers[delivery.consumer].postpone_ms
            effects = self.dispatcher.release(*delivery.receipt, delay_ms=delay_ms, now_ms=self.now)
        else:
            refuse = self.dispatcher.nack if answer is Answer.NACK else self.dispatcher.reject
            effects = refuse(*delivery.receipt, reason=reason, now_ms=self.now)
        if isinstance(effects[0], Released):
            said = {} if answer is Answer.POSTPONE else {"reason": reason}
            self._see(effects.pop(0), service_ms=service_ms, **said)
        self.apply(effects)

    def _archived(self, letter: DeadLetter) -> None:
        offset, key, attempt, failures, passenger, reason = letter
        effects = self.dispatcher.dead_lettered(offset, now_ms=self.now)
        stays = any(isinstance(effect, Blocked) and effect.offset == offset for effect in effects)
        event = Event.ARCHIVED if stays else Event.DEAD_LETTERED
        if not stays:
            self._forget(offset)
            if self._group.config.redrive:
                self.letters.setdefault(key, {})[offset] = StoredLetter(offset, attempt, passenger)
        self.tell(event, offset=offset, key=key, attempt=attempt, failures=failures, reason=reason)
        self.apply(effects)

    def redrive(self, key: bytes | None) -> None:
        """Bring back the dead letters of a key for which there is room, lowest first."""
        stored = self.letters.get(key, {})
        letters = [stored[offset] for offset in sorted(stored)[: self.dispatcher.free_slots]]
        effects = self.dispatcher.redrive(key, letters, now_ms=self.now)
        ignored = {effect.offset for effect in effects if isinstance(effect, Ignored)}
        taken = [letter for letter in letters if letter.offset not in ignored]
        for offset, attempt, _ in taken:
            del stored[offset]
            self.again[offset] = self.now
            self.tell(Event.REDRIVEN, offset=offset, key=key, attempt=attempt, available_ms=self.now)
        if not taken:
            self.tell(Event.REDRIVEN, key=key)
        self.apply(effects)

    def _loaded(self, load: Load) -> None:
        passenger = self.spilled.pop(load.offset, None)  # None: it was settled meanwhile
        effects = self.dispatcher.loaded(load.offset, passenger, now_ms=self.now)
        self.tell(Event.LOADED, offset=load.offset, key=load.key)
        self.apply(effects)

    def _flushed(self, ending: KeyEnding) -> None:
        if self.workers[ending.consumer].alive and self.dispatcher.is_current(ending):
            self.apply(self.dispatcher.flushed(ending.key, ending.session, now_ms=self.now))

    # effects that are rarer than deliveries and cursors

    def _see(self, effect: Effect, **more: Any) -> None:  # noqa: ANN401, C901  # one case for each effect; more of a row
        """Do what an effect asks for, and record it."""
        match effect:
            case Evicted(consumer):
                self.evicted.add(consumer)
                more["moved_keys"] = self.moved_keys()
            case Released():
                more = self._see_released(effect) | more
            case Blocked(offset, key):
                self.blocked.setdefault(key, []).append(offset)
            case Settled(offset) | Dropped(offset) | Skipped(offset):
                self._forget(offset)
            case DeadLetter():
                self._schedule(self._group.archive_ms, None, effect)
            case KeyEnding():
                self._schedule(self._group.flush_ms, None, effect)
            case Load(offset, key):
                more = {"offset": offset, "key": key}
                self._schedule(self._group.load_ms, None, effect)
            case Spilled(offset):
                if self._offered is not None and self._offered[0] == offset:
                    self.spilled[offset] = self._offered[1]
                outstanding = self.dispatcher.describe(offset)
                more = {"offset": offset, "key": None if outstanding is None else outstanding.key}
            case Resumed():
                self.paused = False
            case _:
                pass  # it is only recorded
        self._record(effect, more)

    def _record(self, effect: Effect, more: dict[str, Any]) -> None:
        fields = fields_of(effect)
        if fields is None:
            self.tell(_EVENTS[type(effect)], **more)
            return
        name, offset, key, consumer, attempt, failures, retry_at_ms, call, reason = fields
        event = _EVENTS_BY_FIELD.get((name, call or reason)) or _EVENTS.get(type(effect)) or Event(name)
        found = {"offset": offset, "key": key, "consumer": consumer, "attempt": attempt, "failures": failures}
        self.tell(event, **{**found, "available_ms": retry_at_ms, "reason": reason, **more})

    def _see_released(self, effect: Released) -> dict[str, Any]:
        offset = effect.offset
        delivery = self.open.pop(offset)
        self.spilled[offset] = delivery.item  # type: ignore[assignment]  # what was offered
        self.workers[effect.consumer].queue.pop(offset, None)
        self.again[offset] = self.now if effect.retry_at_ms is None else effect.retry_at_ms
        asked_for = effect.reason in {ReleaseReason.NACKED, ReleaseReason.REJECTED}
        return {"key": delivery.key, **({"reason": None} if asked_for else {})}

    def _forget(self, offset: int) -> None:
        """Drop what is known of a message that is settled."""
        self.again.pop(offset, None)
        self.spilled.pop(offset, None)

    def moved_keys(self) -> int | None:
        """Count the keys that have changed owners since the last call; None if they are not counted. O(keys)."""
        if self.owners is None:
            return None
        moved = 0
        for key, before in self.owners.items():
            after = self.dispatcher.owner(key)
            if after != before:
                self.owners[key] = after
                moved += 1
        return moved

    def tell(self, event: Event, **fields: Any) -> None:  # noqa: ANN401  # the fields of a row
        """Record an event of this instant."""
        self._history.record(Row(0, self.now, event, **fields))


_EVENTS: Final[dict[type[Effect], Event]] = {
    DeadLetter: Event.DEAD_LETTERING,
    Ignored: Event.IGNORED_CALL,
    Load: Event.LOADING,
    Resumed: Event.RESUMED,
    Spilled: Event.SPILLED,
}
# Others are named like their effect; these by the call that was ignored, or by what ended the delivery.
_EVENTS_BY_FIELD: Final[dict[tuple[str, str | None], Event]] = {
    ("ignored", "ack"): Event.IGNORED,
    ("ignored", "nack"): Event.IGNORED_NACK,
    ("ignored", "reject"): Event.IGNORED_NACK,
    ("released", "nacked"): Event.NACKED,
    ("released", "rejected"): Event.REJECTED,
    ("released", "ack_timeout"): Event.TIMED_OUT,
}
