"""Dispatchers with one realistic fault each, and the promise that the fault breaks: the judge has to catch them all."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Self

from tests.kit.broken_own import NeverGivesUp, NewestKeyFirst
from tests.model import Consumer, Lane, Message, ModelDispatcher, Placement, Queue, State, Unit
from tests.placements import RankedPlacement, Ranking

from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import CursorAdvanced, Effect, ReleaseReason
from keyshared.testing import Promise

__all__ = ["BROKEN"]


class PutBackAtTheTail(ModelDispatcher):
    """A message that comes back is queued behind the newer ones of its key, as in a plain queue."""

    def _end(self, message: Message, reason: ReleaseReason | None = None) -> bool:
        outstanding = super()._end(message, reason)
        if outstanding:
            self.messages[message.offset] = self.messages.pop(message.offset)
        return outstanding


class RetryLetsNewerOnesPass(ModelDispatcher):
    """A message that waits for its retry does not hold its key (Pulsar's PIP-379)."""

    def _candidate(self, lane: Lane) -> Message | None:
        passed = {State.IN_FLIGHT, State.RETRY_WAIT}
        return next((message for message in self._in_lane(lane) if message.state not in passed), None)


class DeadLetterLetsNewerOnesPass(ModelDispatcher):
    """The key goes on before the dead letter is written."""

    def _candidate(self, lane: Lane) -> Message | None:
        passed = {State.IN_FLIGHT, State.DEAD_LETTERING}
        return next((message for message in self._in_lane(lane) if message.state not in passed), None)


class MovesWithoutDraining(ModelDispatcher):
    """A key goes to its new owner while the old one still works on it."""

    def _awaited(self, lane: Lane) -> list[Message]:  # noqa: ARG002  # the fault
        return []


class UnitIgnored(ModelDispatcher):
    """A key of a slot or run that drains goes out because nothing of the key itself is open elsewhere."""

    def _unit(self, lane: Lane) -> Unit:
        return lane


class UnitFreedByItsFirstEnd(ModelDispatcher):
    """A unit has a mark instead of a count: the first delivery of any of its keys that ends frees it for all."""

    def __init__(self, placement: Placement, config: DispatcherConfig | None = None) -> None:
        super().__init__(placement, config)
        self.free: set[Unit] = set()

    def _close(self, message: Message) -> None:
        super()._close(message)
        self.free.add(self._unit(self._lane(message)))

    def _open(self, message: Message, consumer: str) -> None:
        super()._open(message, consumer)
        self.free.discard(self._unit(self._lane(message)))

    def _awaited(self, lane: Lane) -> list[Message]:
        awaited = super()._awaited(lane)
        is_free = self._unit(lane) in self.free
        return [message for message in awaited if self._lane(message) == lane] if is_free else awaited


class UnitOfTheMapBefore(ModelDispatcher):
    """After a change of placement, units are still those of the placement that was changed."""

    before: Placement | None = None

    def _join_placement(self) -> None:
        self.before = self.placement.copy()
        super()._join_placement()

    def _leave_placement(self, consumer: Consumer) -> None:
        self.before = self.placement.copy()
        super()._leave_placement(consumer)

    def _runs(self) -> list[tuple[int, int]]:
        placement = self.placement if self.before is None else self.before
        return [(start, stop) for start, stop, _ in placement.ranges.runs]


class EvictionAcks(ModelDispatcher):
    """The open deliveries of an evicted consumer are forgotten as if they had been acked."""

    def _evict(self, consumer: Consumer) -> None:
        for message in self._open_of(consumer.name):
            self._close(message)
            self._settle(message)
        super()._evict(consumer)


class RemovalForgets(ModelDispatcher):
    """A consumer that leaves takes its open messages with it; the cursor is cautious, so nobody notices."""

    def _forget(self, consumer: Consumer, reason: ReleaseReason) -> None:
        held = self._open_of(consumer.name)
        super()._forget(consumer, reason)
        for message in held:
            self.messages.pop(message.offset, None)


class PoisonIsDroppedUnasked(ModelDispatcher):
    """What is exhausted is settled without a word, whatever the policy says."""

    def _poison(self, message: Message) -> None:
        self._settle(message)


class CursorOneTooFar(ModelDispatcher):
    """The safe cursor is the next offset to read, not the last one settled."""

    def _effects(self) -> list[Effect]:
        effects = super()._effects()
        return [
            CursorAdvanced(effect.safe_cursor + 1) if isinstance(effect, CursorAdvanced) else effect
            for effect in effects
        ]


class CursorJumpsToTheAck(ModelDispatcher):
    """The cursor is the greatest settled offset."""

    @property
    def safe_cursor(self) -> int | None:
        return max((offset for offset in self.offered if offset not in self.messages), default=None)


class CursorStallsAtGaps(ModelDispatcher):
    """The cursor counts up by one and waits for ever for an offset that was compacted away."""

    @property
    def safe_cursor(self) -> int | None:
        cursor = None
        for offset in self.offered:
            if offset in self.messages or (cursor is not None and offset != cursor + 1):
                break
            cursor = offset
        return cursor


class StaleAckSettles(ModelDispatcher):
    """Whoever names an open offset settles it, whatever the attempt."""

    def _current(self, offset: int, consumer: str, attempt: int, *, late_ok: bool = False) -> Message | None:
        message = self.messages.get(offset)
        if message and message.state == State.IN_FLIGHT:
            return super()._current(offset, message.consumer or "", message.attempt, late_ok=late_ok)
        return super()._current(offset, consumer, attempt, late_ok=late_ok)

    def _ack(self, offset: int, consumer: str, attempt: int) -> None:
        message = self.messages.get(offset)
        if message and message.state == State.IN_FLIGHT:
            super()._ack(offset, message.consumer or "", message.attempt)
        else:
            super()._ack(offset, consumer, attempt)


class AttemptsStandStill(ModelDispatcher):
    """A redelivery after a timeout carries the same number as the delivery that timed out."""

    def _open(self, message: Message, consumer: str) -> None:
        message.attempt = min(message.attempt, 0)
        super()._open(message, consumer)


class BelievesAnybody(KeySharedDispatcher):
    """Takes an ack for one of an earlier delivery whoever sends it, and whatever attempt it names."""

    def _late_ack(self, offset: int, consumer: str, attempt: int, now: int) -> list[Effect]:
        if ended := self._endings.ended(offset):
            attempt, consumer = ended[-1]
        return super()._late_ack(offset, consumer, attempt, now)


class ForgetsTooEarly(KeySharedDispatcher):
    """Remembers only the last delivery of a message: work that took two timeouts is done once more for nothing."""

    def _late_ack(self, offset: int, consumer: str, attempt: int, now: int) -> list[Effect]:
        if note := self._notes.get(offset):
            note.ended = note.ended[-1:]
        return super()._late_ack(offset, consumer, attempt, now)


class EndedObligationsStand(ModelDispatcher):
    """An answer asks for what the same call has ended: a `Load` of what it truncates, say."""

    def _unmet(self, obligations: Sequence[Effect]) -> list[Effect]:
        return list(obligations)


class LimitForgottenOnRetry(ModelDispatcher):
    """The per-consumer limit is checked for first deliveries only."""

    def _has_room(self, name: str) -> bool:
        consumer = self._find(name)
        retries = [message for message in self._all(State.QUEUED) if message.attempt]
        mine = [message for message in retries if message.key and self._owner(message.key) == name]
        return super()._has_room(name) or (bool(mine) and consumer is not None and consumer.status == "active")


class KeyLimitOffByOne(ModelDispatcher):
    """One message too many of a key is out."""

    def _examine_keyed(self, lane: Lane, message: Message) -> bool:
        owner = self._owner_of(lane)
        at_limit = len(self._open_in(lane)) == self.config.max_in_flight_per_key
        if owner and at_limit and not self._awaited(lane) and self._has_room(owner):
            return self._send(lane, message, owner)
        return super()._examine_keyed(lane, message)


class WindowForgottenOnLoad(ModelDispatcher):
    """Loads do not ask whether the window has room."""

    def _request_load(self, lane: Lane, message: Message, consumer: str | None) -> None:
        self._unlist(lane)
        self._load(message, consumer)


class AnyoneWithRoom(ModelDispatcher):
    """A key whose owner is full goes to whoever has room."""

    def _owner(self, key: bytes | None) -> str | None:
        owner = super()._owner(key)
        if owner and not self._has_room(owner):
            return next((consumer.name for consumer in self._not_draining() if self._has_room(consumer.name)), owner)
        return owner


class InactiveStillServed(ModelDispatcher):
    """A consumer whose connection is lost gets messages until it is evicted."""

    def _has_room(self, name: str) -> bool:
        consumer = self._find(name)
        return consumer is not None and consumer.status != "draining" and self._room(consumer) > 0


class ModuloRanking(Ranking):
    """The slot modulo the number of consumers says who owns it."""

    def walk(self, slot: int) -> Iterator[str]:
        names = sorted(self.weights)
        first = slot % max(1, len(names))
        return iter(names[first:] + names[:first])


class ModuloPlacement(RankedPlacement):
    """The obvious way to deal out keys, in which a join moves most of them."""

    ranking = ModuloRanking


class JoinReshuffles(ModelDispatcher):
    """Keys are dealt out by a placement that moves them between consumers that stay."""

    starts_with = ModuloPlacement


class RaisedLimitWakesNobody(ModelDispatcher):
    """After `set_limit` the lanes that waited for room wait for the next ack."""

    def set_limit(self, name: str, limit: int, *, now_ms: int | None = None) -> list[Effect]:
        def set_limit() -> None:
            self._connected(name).limit = limit

        return self._call(now_ms, set_limit)


class JoinWakesNobody(ModelDispatcher):
    """A consumer that joins gets new messages only."""

    def _examine_all_listed(self) -> None:
        pass


class AckWakesOnlyItsKey(ModelDispatcher):
    """The room that an ack frees is not offered to other keys."""

    def _serve(self, consumer: Consumer) -> None:
        pass


class UnitEndWakesOnlyItsKey(ModelDispatcher):
    """The last delivery that others hold of a unit ends, and the other keys of the unit are not asked again."""

    def _no_longer_kept(self, touched: Sequence[Lane]) -> list[Lane]:  # noqa: ARG002  # the fault
        return []


class RetryNeverWakes(ModelDispatcher):
    """A retry that is due stays on the timer."""

    def _end_one(self, message: Message) -> None:
        if message.state != State.RETRY_WAIT:
            super()._end_one(message)


class SameKeyTwiceInARow(ModelDispatcher):
    """A lane that was served keeps the first place on the ready list."""

    def _list(self, lane: Lane, queue: Queue, consumer: str | None = None) -> None:
        known = self._listing(lane)
        super()._list(lane, queue, consumer)
        if queue == Queue.READY and known is None:
            self.listings.insert(0, self.listings.pop())


class NewestFirst(ModelDispatcher):
    """The ready list is a stack."""

    def _serve(self, consumer: Consumer) -> None:
        self.listings.reverse()
        super()._serve(consumer)
        self.listings.reverse()


class HotKeyFillsTheWindow(ModelDispatcher):
    """Nothing is spilled because others wait."""

    def _track(self, message: Message) -> None:
        lane = self._lane(message)
        self.messages[message.offset] = message
        loaded = [other for other in self._in_lane(lane) if other.state != State.SPILLED]
        if len(loaded) > self.config.max_loaded_per_key or len(loaded) < len(self._in_lane(lane)):
            self._spill(message)
        else:
            self._examine_fully(lane)


class SnapshotForgetsAckedRanges(ModelDispatcher):
    """Only the cursor survives: everything above it that was settled is outstanding again."""

    @classmethod
    def restore(
        cls,
        state: Mapping[str, Any],
        placement: Placement,
        config: DispatcherConfig | None = None,
        *,
        now_ms: int,
        epoch: int = 0,
        items: Mapping[int, object] | None = None,
    ) -> Self:
        new = super().restore(state, placement, config, now_ms=now_ms, epoch=epoch, items=items)
        for offset in new.offered:
            if new.safe_cursor is not None and offset > new.safe_cursor:
                new.messages.setdefault(offset, Message(offset, None, None))
        new.messages = dict(sorted(new.messages.items()))
        return new


class SnapshotForgetsReadyOrder(ModelDispatcher):
    """The order in which lanes waited is that of their offsets after a restore."""

    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        return {**state, "listings": sorted(state["listings"], key=repr)}


class SnapshotForgetsFailures(ModelDispatcher):
    """After a crash every poison message has all its retries again."""

    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        return {**state, "messages": [message | {"failures": 0} for message in state["messages"]]}


class SnapshotForgetsEndedDeliveries(ModelDispatcher):
    """After a crash no late ack counts any more."""

    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        return {**state, "messages": [message | {"ended": []} for message in state["messages"]]}


class OrderOfASet(ModelDispatcher):
    """Lanes wake in an order that changes from one process to the next, like that of a set of strings."""

    processes: Iterator[int] = count()

    def __init__(self, placement: Placement, config: DispatcherConfig | None = None) -> None:
        super().__init__(placement, config)
        self.backwards = bool(next(self.processes) % 2)

    def _lowest_offset(self, lane: Lane) -> int:
        return -super()._lowest_offset(lane) if self.backwards else super()._lowest_offset(lane)


BROKEN: Mapping[Promise, Sequence[type[Any]]] = {
    Promise.ONE_HOLDER: (MovesWithoutDraining, UnitIgnored, UnitFreedByItsFirstEnd),
    Promise.KEY_ORDER: (PutBackAtTheTail, RetryLetsNewerOnesPass, DeadLetterLetsNewerOnesPass),
    Promise.SAFE_CURSOR: (CursorOneTooFar, CursorJumpsToTheAck, CursorStallsAtGaps),
    Promise.NO_LOSS: (EvictionAcks, RemovalForgets, PoisonIsDroppedUnasked),
    Promise.BOUNDS: (LimitForgottenOnRetry, KeyLimitOffByOne, WindowForgottenOnLoad),
    Promise.AFFINITY: (AnyoneWithRoom, InactiveStillServed),
    Promise.MINIMAL_MOVE: (JoinReshuffles,),
    Promise.ISOLATION: (HotKeyFillsTheWindow,),
    Promise.FAIRNESS: (SameKeyTwiceInARow, NewestFirst, NewestKeyFirst),
    Promise.ATTEMPTS: (NeverGivesUp,),
    Promise.PROGRESS: (
        RaisedLimitWakesNobody,
        JoinWakesNobody,
        AckWakesOnlyItsKey,
        UnitEndWakesOnlyItsKey,
        UnitOfTheMapBefore,
        RetryNeverWakes,
    ),
    Promise.FENCE: (StaleAckSettles, AttemptsStandStill, BelievesAnybody, ForgetsTooEarly, EndedObligationsStand),
    Promise.RESUME: (
        SnapshotForgetsAckedRanges,
        SnapshotForgetsReadyOrder,
        SnapshotForgetsFailures,
        SnapshotForgetsEndedDeliveries,
    ),
    Promise.DETERMINISM: (OrderOfASet,),
}
