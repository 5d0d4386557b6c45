"""The host of a simulated subscription: carries out the dispatcher's effects, works as its consumers, records both."""

from collections import OrderedDict
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Final, Protocol, TypeAlias, assert_never, cast

from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.effects import (
    Blocked,
    Call,
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
from keyshared.simulate.group import Group, SimulatedConsumer
from keyshared.simulate.history import Event
from keyshared.simulate.service import Answer

__all__ = ["Host", "Passenger", "Recorder", "Worker"]

Passenger: TypeAlias = tuple[int, int | None]
"""What travels with a message: since when it is available, and its own service time."""
_OfSession: TypeAlias = KeyBegun | KeyEnding | KeyEnded
_Rare: TypeAlias = (
    Ignored
    | Evicted
    | Released
    | Blocked
    | Dropped
    | Skipped
    | Settled
    | Spilled
    | Done
    | _OfSession
    | DeadLetter
    | Load
    | Resumed
)
_Work: TypeAlias = tuple[int, int, int, "Worker | None", Deliver | DeadLetter | KeyEnding | Load]
"""When it ends, a number that decides ties, how long it took, whose it is (None: the host's), and what it is about."""


class Recorder(Protocol):
    """Records what happens: all of it (`keyshared.simulate.history`) or deliveries only."""

    counts_moved_keys: bool

    def offered(self, now: int, offset: int, key: bytes | None, available_ms: int) -> None:
        """Record that a message was offered."""

    def delivered(self, now: int, delivery: Deliver, available_ms: int) -> None:
        """Record that a delivery began."""

    def acked(self, now: int, delivery: Deliver, service_ms: int) -> None:
        """Record that an ack ended a delivery in time."""

    def advanced(self, now: int, safe_cursor: int) -> None:
        """Record where the safe cursor is."""

    def tell(self, now: int, event: Event, **fields: int | bytes | str | None) -> None:
        """Record anything else, with the fields of `keyshared.simulate.Row` that apply."""


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
        """Take what came with a delivery as one batch out of the local queue, where it is what comes next."""
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
    """One dispatcher and everybody who works for it.

    Attributes:
        dispatcher: The real one.
        now: The virtual time; whoever owns the clock sets it.
        paused: Nothing may be offered until there is room again.
        endless: A message was delivered too often.
        work: What is under way, as a heap.
        consumers: Each consumer that ever joined, with its latest settings.
        workers: The process of each of them.
        evicted: Who has been evicted and has not come back.
        owners: Who owned each of the keys seen so far when that was last asked; None if nobody counts.
        again: Since when a message is available again that was delivered, unblocked or redriven.
        spilled: What travelled with messages that are spilled, or may be before their next delivery.
        blocked: The blocked messages of each key.
        letters: The dead letters of each key that are settled, where they may come back.
    """

    def __init__(self, group: Group, recorder: Recorder) -> None:
        self._group = group
        self.dispatcher = KeySharedDispatcher(group.placement, group.config, rules=group.rules)
        self._recorder = recorder
        self.now = 0
        self.paused = False
        self.endless = False
        self.work: list[_Work] = []
        self._begun = count()
        self.consumers: dict[str, SimulatedConsumer] = {}
        self.workers: dict[str, Worker] = {}
        self.evicted: set[str] = set()
        self.owners: dict[bytes, str | None] | None = {} if recorder.counts_moved_keys else None
        self.open: dict[int, Deliver] = {}
        self.again: dict[int, int] = {}
        self.spilled: dict[int, Passenger] = {}
        self.blocked: dict[bytes | None, list[int]] = {}
        self.letters: dict[bytes | None, dict[int, StoredLetter[object]]] = {}

    def offer(self, offset: int, key: bytes | None, passenger: Passenger) -> None:
        """Hand a message to the dispatcher."""
        later = passenger[0] if passenger[0] > self.now else None
        effects = self.dispatcher.offer(offset, key, passenger, not_before_ms=later, now_ms=self.now)
        if self.owners is not None and key is not None and key not in self.owners:
            self.owners[key] = self.dispatcher.owner(key)
        self._recorder.offered(self.now, offset, key, passenger[0])
        if effects and effects[0] == Spilled(offset):
            self.spilled[offset] = passenger
        self.apply(effects)

    def apply(self, effects: list[Effect]) -> None:
        """Do what a call of the dispatcher asks for, in its order."""
        for effect in effects:
            if type(effect) is Deliver:
                self._deliver(effect)
            elif type(effect) is CursorAdvanced:
                self._recorder.advanced(self.now, effect.safe_cursor)
            else:
                self._see(cast("_Rare", effect))

    def _deliver(self, effect: Deliver) -> None:
        offset, _, name, attempt, _, item = effect
        passenger: Passenger = item  # what was offered
        self.open[offset] = effect
        if self.spilled:
            self.spilled.pop(offset, None)
        available = passenger[0]
        self._recorder.delivered(self.now, effect, self.again.pop(offset, available) if self.again else available)
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
            rest: list[Deliver] = []
            config = self._group.config
            if worker.takes_batches and config.batch_per_key > 1 and self._is_open(delivery):
                rest = worker.rest_of(delivery, one_lane=config.ordering_required)
            if worker.queue:
                self.take(worker, worker.queue.popitem(last=False)[1])
            if rest:
                self._answer_batch([delivery, *rest], service_ms)
            else:
                self._answer(delivery, service_ms)

    def _is_open(self, delivery: Deliver) -> bool:
        return self.open.get(delivery.offset) is delivery

    def _refusal(self, delivery: Deliver) -> tuple[Answer, str | None] | None:
        """What a consumer answers to a delivery, and why, if that is no ack."""
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
        self._recorder.acked(self.now, delivery, service_ms)

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
            # A late success: the delivery had ended on the books, the message was waiting, and this ack settles it.
            self._see_settled(Settled(offset, key, SettleReason.LATE_ACK), name, attempt)
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
        first, *others = effects
        if isinstance(first, Released):
            self._see_released(first, service_ms, reason)
        else:
            others = [first]
        self.apply(others)

    def _archived(self, letter: DeadLetter) -> None:
        offset, key, attempt, failures, passenger, reason = letter
        effects = self.dispatcher.dead_lettered(offset, now_ms=self.now)
        stays = any(isinstance(effect, Blocked) and effect.offset == offset for effect in effects)
        event = Event.ARCHIVED if stays else Event.DEAD_LETTERED
        if not stays:
            self.again.pop(offset, None)
            self.spilled.pop(offset, None)
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

    def _see(self, effect: _Rare) -> None:  # noqa: C901  # one case for each effect
        match effect:
            case Ignored():
                self._see_ignored(effect)
            case Evicted(consumer):
                self.evicted.add(consumer)
                self.tell(Event.EVICTED, consumer=consumer, moved_keys=self.moved_keys())
            case Released():
                self._see_released(effect)
            case Blocked():
                self._see_blocked(effect)
            case Settled() | Dropped() | Skipped():
                self._see_settled(effect)
            case Spilled(offset):
                outstanding = self.dispatcher.describe(offset)
                self.tell(Event.SPILLED, offset=offset, key=None if outstanding is None else outstanding.key)
            case Done(offset, key, how):
                self.tell(Event.DONE, offset=offset, key=key, reason=how)
            case KeyBegun() | KeyEnding() | KeyEnded():
                self._see_session(effect)
            case DeadLetter():
                self._see_dead_letter(effect)
            case Load():
                self._see_load(effect)
            case Resumed():
                self.paused = False
                self.tell(Event.RESUMED)
            case _:
                assert_never(effect)

    def _see_ignored(self, effect: Ignored) -> None:
        offset, consumer, attempt, call, reason = effect
        event = _IGNORED.get(call, Event.IGNORED_CALL)
        self.tell(event, offset=offset, consumer=consumer, attempt=attempt, reason=reason)

    def _see_released(self, effect: Released, service_ms: int | None = None, said: str | None = None) -> None:
        offset, consumer, attempt, reason, failures, retry_at_ms = effect
        delivery = self.open.pop(offset)
        key = delivery.key
        self.spilled[offset] = delivery.item  # type: ignore[assignment]  # what was offered
        self.workers[consumer].queue.pop(offset, None)
        self.again[offset] = self.now if retry_at_ms is None else retry_at_ms
        self.tell(
            _ENDINGS.get(reason, Event.RELEASED),
            offset=offset,
            key=key,
            consumer=consumer,
            attempt=attempt,
            failures=failures,
            available_ms=retry_at_ms,
            service_ms=service_ms,
            reason=said if reason in _ASKED_FOR else reason,
        )

    def _see_blocked(self, effect: Blocked) -> None:
        offset, key, failures, reason = effect
        self.blocked.setdefault(key, []).append(offset)
        self.tell(Event.BLOCKED, offset=offset, key=key, failures=failures, reason=reason)

    def _see_settled(
        self, effect: Settled | Dropped | Skipped, consumer: str | None = None, attempt: int | None = None
    ) -> None:
        offset, key, reason = effect
        self.again.pop(offset, None)
        self.spilled.pop(offset, None)
        event = _SETTLING[type(effect)]
        self.tell(event, offset=offset, key=key, consumer=consumer, attempt=attempt, reason=reason)

    def _see_dead_letter(self, effect: DeadLetter) -> None:
        offset, key, attempt, failures, _, reason = effect
        self.tell(Event.DEAD_LETTERING, offset=offset, key=key, attempt=attempt, failures=failures, reason=reason)
        self._schedule(self._group.archive_ms, None, effect)

    def _see_session(self, effect: _OfSession) -> None:
        reason = effect.reason if isinstance(effect, KeyEnded) else None
        key, consumer, session = effect[:3]
        self.tell(_OF_SESSIONS[type(effect)], key=key, consumer=consumer, attempt=session, reason=reason)
        if isinstance(effect, KeyEnding):
            self._schedule(self._group.flush_ms, None, effect)

    def _see_load(self, effect: Load) -> None:
        self.tell(Event.LOADING, offset=effect.offset, key=effect.key)
        self._schedule(self._group.load_ms, None, effect)

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

    def tell(self, event: Event, **fields: int | bytes | str | None) -> None:
        """Record something that happens now."""
        self._recorder.tell(self.now, event, **fields)


_ASKED_FOR: Final = frozenset({ReleaseReason.NACKED, ReleaseReason.REJECTED})
_ENDINGS: Final[Mapping[ReleaseReason, Event]] = {
    ReleaseReason.NACKED: Event.NACKED,
    ReleaseReason.REJECTED: Event.REJECTED,
    ReleaseReason.ACK_TIMEOUT: Event.TIMED_OUT,
}
_IGNORED: Final[Mapping[Call, Event]] = {
    Call.ACK: Event.IGNORED,
    Call.NACK: Event.IGNORED_NACK,
    Call.REJECT: Event.IGNORED_NACK,
}
_OF_SESSIONS: Final[Mapping[type[Effect], Event]] = {
    KeyBegun: Event.KEY_BEGUN,
    KeyEnding: Event.KEY_ENDING,
    KeyEnded: Event.KEY_ENDED,
}
_SETTLING: Final[Mapping[type[Effect], Event]] = {
    Settled: Event.SETTLED,
    Dropped: Event.DROPPED,
    Skipped: Event.SKIPPED,
}
