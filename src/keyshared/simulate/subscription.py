"""A simulated subscription: its host carries out the dispatcher's effects, works as its consumers, and records both."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import Any, ClassVar, Final, TypeAlias, cast

from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.effects import (
    Blocked,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    Effect,
    Evicted,
    Ignored,
    KeyBegun,
    KeyEnded,
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
from keyshared.hashing import key_bytes
from keyshared.journal.commands import Command, fields_of
from keyshared.journal.host import Host
from keyshared.simulate.group import (
    Change,
    Crash,
    Group,
    Join,
    Leave,
    Redrive,
    Return,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
    Unblock,
)
from keyshared.simulate.history import Event, History, Row
from keyshared.simulate.service import Answer

__all__ = ["Subscription"]

Passenger: TypeAlias = tuple[int, int | None]
"""What travels with a message: since when it is available, and its own service time."""
_Work: TypeAlias = tuple[int, int, int, "Worker | None", Deliver | DeadLetter | KeyEnding | Load]
"""When it ends, a number that decides ties, how long it took, whose it is (None: the host's), and what it is about."""


class Worker:
    """The process of a consumer: its local queue, and how much it works on.

    Attributes:
        consumer: Its settings of now.
        alive: Whether it answers.
        busy: How many messages it works on.
        queue: By offset, as a release may take any of them out; only an ordered dict gives its oldest item in O(1).
    """

    __slots__ = ("alive", "busy", "consumer", "queue")

    def __init__(self, consumer: SimulatedConsumer) -> None:
        self.consumer = consumer
        self.alive = True
        self.busy = 0
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


class Subscription(Host):
    """One dispatcher and its simulated consumers.

    Attributes:
        paused: Nothing may be offered until there is room again.
        endless: A message was delivered too often.
        work: What is under way, as a heap.
        workers: The process of each consumer that ever joined.
        again: Since when a message is available again that was delivered, unblocked or redriven.
    """

    def __init__(self, group: Group, history: History, note: Callable[[Command], object] | None = None) -> None:
        super().__init__(KeySharedDispatcher(group.placement, group.config, rules=group.rules), note)
        self._group = group
        self._history = history
        self.paused = False
        self.endless = False
        self.work: list[_Work] = []
        self._begun = count()
        self.workers: dict[str, Worker] = {}
        self._evicted: set[str] = set()  # those that have not come back
        self._owners: dict[bytes, str | None] | None = {} if history.counts_moved_keys else None  # as known so far
        self._open: dict[int, Deliver] = {}
        self.again: dict[int, int] = {}
        self._spilled: dict[int, Passenger] = {}  # of messages that are spilled, or may be before their next delivery
        self._offered: tuple[int, Passenger] | None = None  # what was offered last, in case it is spilled at once
        self._blocked: dict[bytes | None, list[int]] = {}
        self._letters: dict[bytes | None, dict[int, StoredLetter[object]]] = {}  # those that may come back

    def bring(self, offset: int, key: bytes | None, passenger: Passenger) -> None:
        """Offer a message to the dispatcher."""
        available = passenger[0]
        effects = self.offer(offset, key, passenger, available if available > self.now else None)
        if self._owners is not None and key is not None and key not in self._owners:
            self._owners[key] = self.dispatcher.owner(key)
        self._history.offered(self.now, offset, key, available)
        self._offered = offset, passenger
        self.carry_out(effects)

    # work

    def _take(self, worker: Worker, delivery: Deliver) -> None:
        """Start working on a delivery, or put it into the local queue."""
        consumer = worker.consumer
        if worker.busy >= consumer.concurrency:
            worker.queue[delivery.offset] = delivery
            return
        worker.busy += 1
        passenger: Passenger = delivery.item  # type: ignore[assignment]  # what was offered
        self._schedule(consumer.service.duration_ms(delivery.offset, delivery.attempt, passenger[1]), worker, delivery)

    def _schedule(self, delay_ms: int, worker: Worker | None, subject: Deliver | DeadLetter | KeyEnding | Load) -> None:
        heappush(self.work, (self.now + delay_ms, next(self._begun), delay_ms, worker, subject))

    def finish(self) -> None:
        """End the piece of work that ends first."""
        _, _, service_ms, worker, subject = heappop(self.work)
        if worker is None:
            self._done[type(subject)](self, subject)
        elif worker.alive:
            delivery = cast("Deliver", subject)
            worker.busy -= 1
            batch = [delivery]
            config = self._group.config
            if worker.consumer.takes_batches and config.batch_per_key > 1 and self._is_open(delivery):
                batch += worker.rest_of(delivery, one_lane=config.ordering_required)
            if worker.queue:
                self._take(worker, worker.queue.popitem(last=False)[1])
            if len(batch) > 1:
                self._answer_batch(batch, service_ms)
            else:
                self._answer(delivery, service_ms)

    def _is_open(self, delivery: Deliver) -> bool:
        return self._open.get(delivery.offset) is delivery

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
            effects = self._call_about("ack_through", batch[done - 1])
            for each in batch[:done]:
                self._see_acked(each, service_ms)
                service_ms = 0  # all of it was one piece of work
            self.carry_out(effects)
        if done < len(batch):
            self._refuse(batch[done], service_ms, *cast("tuple[Answer, str | None]", refusals[done]))

    def _call_about(self, name: str, delivery: Deliver, **fields: Any) -> list[Effect]:  # noqa: ANN401  # of a command
        offset, consumer, attempt = delivery.receipt
        return self.call(name, offset=offset, consumer=consumer, attempt=attempt, **fields)

    def _see_acked(self, delivery: Deliver, service_ms: int) -> None:
        del self._open[delivery.offset]
        self._history.acked(self.now, delivery, service_ms)

    def _answer(self, delivery: Deliver, service_ms: int) -> None:
        offset, key, name, attempt, _, _ = delivery
        refusal = self._refusal(delivery) if self._group.answers else None
        if refusal is not None:
            self._refuse(delivery, service_ms, *refusal)
            return
        effects = self.ack(offset, name, attempt)
        if self._is_open(delivery):
            self._see_acked(delivery, service_ms)
        elif not (effects and type(effects[0]) is Ignored):
            # A late success: the delivery had ended, the message was waiting, and this ack settles it.
            self._see_settled(Settled(offset, key, SettleReason.LATE_ACK), consumer=name, attempt=attempt)
        self.carry_out(effects)

    def _refuse(self, delivery: Deliver, service_ms: int, answer: Answer, reason: str | None) -> None:
        if answer is Answer.SILENT:
            return
        if answer is Answer.POSTPONE:
            delay_ms = self.workers[delivery.consumer].consumer.postpone_ms
            effects, said = self._call_about("release", delivery, duration_ms=delay_ms), {}
        else:
            effects, said = self._call_about(answer.value, delivery, reason=reason), {"reason": reason}
        first = effects[0]
        if isinstance(first, Released):
            self._see_released(first, service_ms=service_ms, **said)
            del effects[0]
        self.carry_out(effects)

    def _archived(self, letter: DeadLetter) -> None:
        offset, key, attempt, failures, passenger, reason = letter
        effects = self.call("dead_lettered", offset=offset)
        stays = any(isinstance(effect, Blocked) and effect.offset == offset for effect in effects)
        event = Event.ARCHIVED if stays else Event.DEAD_LETTERED
        if not stays:
            self._forget(offset)
            if self._group.config.redrive:
                self._letters.setdefault(key, {})[offset] = StoredLetter(offset, attempt, passenger)
        self.tell(event, offset=offset, key=key, attempt=attempt, failures=failures, reason=reason)
        self.carry_out(effects)

    def _loaded(self, load: Load) -> None:
        passenger = self._spilled.pop(load.offset, None)  # None: it was settled meanwhile
        effects = self.dispatcher.loaded(load.offset, passenger, now_ms=self.now)
        self.tell(Event.LOADED, offset=load.offset, key=load.key)
        self.carry_out(effects)

    def _flushed(self, ending: KeyEnding) -> None:
        if self.workers[ending.consumer].alive and self.dispatcher.is_current(ending):
            self.carry_out(self.call("flushed", key=ending.key, attempt=ending.session))

    # changes of the group

    def join(self, consumer: SimulatedConsumer) -> None:
        """Add a consumer; one of that name that was there before is gone."""
        name = consumer.name
        if name in self.workers:
            self.workers[name].kill()
        effects = self.call(
            "add_consumer", consumer=name, filters=consumer.filters, weight=consumer.weight, limit=consumer.limit
        )
        self.workers[name] = Worker(consumer)
        self.tell(Event.JOINED, consumer=name, moved_keys=self._moved_keys())
        self.carry_out(effects)

    def change(self, change: Change) -> None:
        """Carry out a change of the group."""
        match change:
            case Join(_, consumer):
                self.join(consumer)
            case Leave() | Return() if change.name in self._evicted:
                self._evicted.remove(change.name)
                if isinstance(change, Return):
                    self.join(self.workers[change.name].consumer)
            case Leave(_, name, drain_ms):
                self._leave(name, drain_ms)
            case Crash(_, name):
                self.workers[name].kill()
                effects = self.call("set_inactive", consumer=name)
                self.tell(Event.INACTIVE, consumer=name)
                self.carry_out(effects)
            case Return(_, name, resumed):
                self._return(name, resumed=resumed)
            case Unblock(_, key):
                self._unblock(key_bytes(key))
            case Redrive(_, key):
                self._redrive(key_bytes(key))
            case _:
                self._set(change)

    def _leave(self, name: str, drain_ms: int | None) -> None:
        if drain_ms == 0:
            self.workers[name].kill()
        effects = self.call("remove_consumer", consumer=name, duration_ms=drain_ms)
        reason = None if drain_ms == 0 else "draining"
        self.tell(Event.LEFT, consumer=name, reason=reason, moved_keys=self._moved_keys())
        self.carry_out(effects)

    def _return(self, name: str, *, resumed: bool) -> None:
        worker = self.workers[name] = Worker(self.workers[name].consumer)
        kept = [self._open[delivery.offset] for delivery in self.dispatcher.in_flight(name)] if resumed else []
        effects = self.call("set_active", consumer=name, resumed=resumed)
        self.tell(Event.ACTIVE, consumer=name, reason="resumed" if resumed else None)
        for delivery in kept:
            self._take(worker, delivery)
        self.carry_out(effects)

    def _set(self, change: SetLimit | SetWeight | SetService) -> None:
        """Change a consumer; one that has been evicted takes the change with it when it comes back."""
        name, setting = change.name, _SETTINGS[type(change)]
        value: Any = getattr(change, setting)
        effects, moved = list[Effect](), None
        if setting != "service" and name not in self._evicted:
            effects = self.call(f"set_{setting}", consumer=name, **{setting: value})
        if setting == "weight":
            moved = self._moved_keys()
        self.workers[name].consumer = replace(self.workers[name].consumer, **{setting: value})
        self.tell(Event.CHANGED, consumer=name, reason=f"{setting} {value}", moved_keys=moved)
        self.carry_out(effects)

    def _unblock(self, key: bytes | None) -> None:
        effects = self.call("unblock", key=key)
        offsets = self._blocked.pop(key, [])
        for offset in offsets:
            self.again[offset] = self.now
            self.tell(Event.UNBLOCKED, offset=offset, key=key, available_ms=self.now)
        if not offsets:
            self.tell(Event.UNBLOCKED, key=key)
        self.carry_out(effects)

    def _redrive(self, key: bytes | None) -> None:
        """Bring back the dead letters of a key for which there is room, lowest first."""
        stored = self._letters.get(key, {})
        letters = [stored[offset] for offset in sorted(stored)[: self.dispatcher.free_slots]]
        effects = self.redrive(key, letters)
        ignored = {effect.offset for effect in effects if isinstance(effect, Ignored)}
        taken = [letter for letter in letters if letter.offset not in ignored]
        for offset, attempt, _ in taken:
            del stored[offset]
            self.again[offset] = self.now
            self.tell(Event.REDRIVEN, offset=offset, key=key, attempt=attempt, available_ms=self.now)
        if not taken:
            self.tell(Event.REDRIVEN, key=key)
        self.carry_out(effects)

    # effects

    def _deliver(self, effect: Deliver) -> None:
        offset, _, name, attempt, _, item = effect
        passenger: Passenger = item  # what was offered
        self._open[offset] = effect
        if self._spilled:
            self._spilled.pop(offset, None)
        available = passenger[0]
        self._history.delivered(self.now, effect, self.again.pop(offset, available) if self.again else available)
        self._take(self.workers[name], effect)
        if attempt > self._group.max_attempts:
            self.endless = True

    def _advance(self, effect: CursorAdvanced) -> None:
        self._history.advanced(self.now, effect.safe_cursor)

    def _see_released(self, effect: Released, **answer: Any) -> None:  # noqa: ANN401  # more of a row
        offset = effect.offset
        delivery = self._open.pop(offset)
        self._spilled[offset] = delivery.item  # type: ignore[assignment]  # what was offered
        self.workers[effect.consumer].queue.pop(offset, None)
        self.again[offset] = self.now if effect.retry_at_ms is None else effect.retry_at_ms
        if effect.reason in {ReleaseReason.NACKED, ReleaseReason.REJECTED}:
            answer = {"reason": None, **answer}
        self._record(effect, key=delivery.key, **answer)

    def _see_evicted(self, effect: Evicted) -> None:
        self._evicted.add(effect.consumer)
        self._record(effect, moved_keys=self._moved_keys())

    def _see_blocked(self, effect: Blocked) -> None:
        self._blocked.setdefault(effect.key, []).append(effect.offset)
        self._record(effect)

    def _see_settled(self, effect: Settled | Dropped | Skipped, **more: Any) -> None:  # noqa: ANN401  # of a row
        self._forget(effect.offset)
        self._record(effect, **more)

    def _archive(self, effect: DeadLetter) -> None:
        self._schedule(self._group.archive_ms, None, effect)
        self._record(effect)

    def _flush(self, effect: KeyEnding) -> None:
        self._schedule(self._group.flush_ms, None, effect)
        self._record(effect)

    def _load(self, effect: Load) -> None:
        self._schedule(self._group.load_ms, None, effect)
        self.tell(Event.LOADING, offset=effect.offset, key=effect.key)

    def _see_spilled(self, effect: Spilled) -> None:
        offset = effect.offset
        if self._offered is not None and self._offered[0] == offset:
            self._spilled[offset] = self._offered[1]
        outstanding = self.dispatcher.describe(offset)
        self.tell(Event.SPILLED, offset=offset, key=None if outstanding is None else outstanding.key)

    def _resume(self, _: Resumed) -> None:
        self.paused = False
        self.tell(Event.RESUMED)

    def _record(self, effect: Effect, **more: Any) -> None:  # noqa: ANN401  # of a row
        name, offset, key, consumer, attempt, failures, retry_at_ms, call, reason = fields_of(effect)
        event = _EVENTS.get((name, call or reason)) or _EVENTS.get((name, None)) or Event(name)
        found = {"offset": offset, "key": key, "consumer": consumer, "attempt": attempt, "failures": failures}
        self.tell(event, **{**found, "available_ms": retry_at_ms, "reason": reason, **more})

    def _forget(self, offset: int) -> None:
        """Drop what is known of a message that is settled."""
        self.again.pop(offset, None)
        self._spilled.pop(offset, None)

    def _moved_keys(self) -> int | None:
        """Count the keys that have changed owners since the last call; None if they are not counted. O(keys)."""
        if self._owners is None:
            return None
        moved = 0
        for key, before in self._owners.items():
            after = self.dispatcher.owner(key)
            if after != before:
                self._owners[key] = after
                moved += 1
        return moved

    def tell(self, event: Event, **fields: Any) -> None:  # noqa: ANN401  # the fields of a row
        """Record an event of this instant."""
        self._history.record(Row(0, self.now, event, **fields))

    actions: ClassVar[Mapping[type[Effect], Callable[[Any, Any], object]]] = {
        Deliver: _deliver,
        CursorAdvanced: _advance,
        Released: _see_released,
        Evicted: _see_evicted,
        Blocked: _see_blocked,
        **dict.fromkeys((Settled, Dropped, Skipped), _see_settled),
        DeadLetter: _archive,
        KeyEnding: _flush,
        Load: _load,
        Spilled: _see_spilled,
        Resumed: _resume,
        **dict.fromkeys((Ignored, Done, KeyBegun, KeyEnded), _record),
    }
    _done: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        Load: _loaded,
        KeyEnding: _flushed,
        DeadLetter: _archived,
    }


_SETTINGS: Final[dict[type, str]] = {SetLimit: "limit", SetWeight: "weight", SetService: "service"}
# Effects are named as events, except these: by their name and the call that was ignored, or what ended the delivery.
_EVENTS: Final[dict[tuple[str, str | None], Event]] = {
    ("ignored", None): Event.IGNORED_CALL,
    ("ignored", "ack"): Event.IGNORED,
    ("ignored", "nack"): Event.IGNORED_NACK,
    ("ignored", "reject"): Event.IGNORED_NACK,
    ("released", "nacked"): Event.NACKED,
    ("released", "rejected"): Event.REJECTED,
    ("released", "ack_timeout"): Event.TIMED_OUT,
    ("dead_letter", None): Event.DEAD_LETTERING,
}
