"""A driver of keyshared's own dispatcher: the kit proves the library, and it is an example to copy."""

from collections import deque
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Protocol

from keyshared.config import DispatcherConfig, RetryPolicy, Unmatched
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import (
    Blocked,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    Effect,
    Ignored,
    KeyBegun,
    KeyEnded,
    KeyEnding,
    Load,
    Released,
    ReleaseReason,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
)
from keyshared.ring import HashRing
from keyshared.testing import history as h
from keyshared.testing.driver import Delivery, Driver
from keyshared.testing.history import Event, HoldReason, SettledBy

__all__ = ["DispatcherDriver", "owners_told", "told_of"]


class _Owners(Protocol):
    """Whoever can say where a key belongs."""

    def owner(self, key: bytes, /) -> str | None: ...


class DispatcherDriver(Driver):
    """Operates a `KeySharedDispatcher`, or anything of its surface, as a small broker with a log would.

    Attributes:
        dispatcher_class: What is operated.
        config: Limits, timeouts and policies.
    """

    takes_filters = True
    dispatcher_class: ClassVar[Any] = KeySharedDispatcher
    config: ClassVar[DispatcherConfig] = DispatcherConfig(
        window=32,
        max_tracked=64,
        max_loaded_per_key=2,
        max_in_flight_per_consumer=2,
        ack_timeout_ms=100,
        retry=RetryPolicy(max_redeliveries=2, base_delay_ms=10, max_delay_ms=10),
        unmatched=Unmatched.HOLD,
        start=0,
    )

    def __init__(self) -> None:
        self.dispatcher = self.dispatcher_class(self.make_placement(), self.config)
        self.log: list[bytes | None] = []
        self.earliest: dict[int, int] = {}  # of what was published for later
        self.offered = 0
        self.inboxes: dict[str, list[Delivery]] = {}
        self.told: list[Event] = []
        self.owners: dict[bytes, str | None] = {}
        self.todo: deque[Effect] = deque()
        self.now = 0
        self.epoch = 0

    def make_placement(self) -> Any:  # noqa: ANN401  # whatever the dispatcher takes
        """Make the placement, with nobody in it."""
        return HashRing()

    # Each call hands the effects on; what the broker does by itself (reading on, loading, archiving) follows at once.

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        """Join with an empty inbox."""
        self.inboxes[consumer] = []
        self._apply(self.dispatcher.add_consumer(consumer, filters=filters))

    def disconnect(self, consumer: str) -> None:
        """Leave at once; what was not read is put back like everything else."""
        self._apply(self.dispatcher.remove_consumer(consumer))
        del self.inboxes[consumer]

    def publish(self, key: bytes | None) -> int:
        """Append to the log; it is offered when there is a slot."""
        self.log.append(key)
        self._apply([])
        return len(self.log) - 1

    def publish_later(self, key: bytes | None, ms: int) -> int:
        """Append to the log, with the instant before which it is not delivered."""
        self.earliest[len(self.log)] = self.now + ms
        return self.publish(key)

    def receive(self, consumer: str) -> Sequence[Delivery]:
        """Empty the inbox."""
        inbox = self.inboxes[consumer]
        deliveries = [*inbox]
        inbox.clear()
        return deliveries

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        """Ack by receipt."""
        return self._answer(self.dispatcher.ack(delivery.offset, consumer, delivery.attempt))

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        """Nack by receipt."""
        return self._answer(self.dispatcher.nack(delivery.offset, consumer, delivery.attempt))

    def ack_through(self, consumer: str, delivery: Delivery) -> bool | None:
        """Ack by receipt, with all older ones of the key."""
        return self._answer(self.dispatcher.ack_through(delivery.offset, consumer, delivery.attempt))

    def postpone(self, consumer: str, delivery: Delivery, ms: int) -> bool | None:
        """Release by receipt, for later."""
        return self._answer(self.dispatcher.release(delivery.offset, consumer, delivery.attempt, delay_ms=ms))

    def advance(self, ms: int) -> None:
        """Move time on in one step."""
        self.now += ms
        self._apply(self.dispatcher.handle_timeout(now_ms=self.now))

    def cursor(self) -> int | None:
        """Return the offset to resume from."""
        resume: int | None = self.dispatcher.resume_offset
        return resume

    def restart(self) -> None:
        """Restore a snapshot; the sessions are lost, so everybody is removed."""
        self.epoch += 1
        state: Mapping[str, object] = self.dispatcher.snapshot()
        items: dict[int, object] = dict(enumerate(self.log))
        self.dispatcher = self.dispatcher_class.restore(
            state, self.dispatcher.placement, self.config, now_ms=self.now, epoch=self.epoch, items=items
        )
        for name in self.inboxes:  # nobody is there: what one of them held must not go to the next one to leave
            self._apply(self.dispatcher.set_limit(name, 0))
        for name in list(self.inboxes):
            self.disconnect(name)

    def notices(self) -> Sequence[Event]:
        """Return who owns which key, and what was settled, held or released."""
        told = [*owners_told(self.dispatcher, self.log, self.owners), *self.told]
        self.told.clear()
        return told

    # --- the broker around it ---------------------------------------------------------------------------------------

    def _answer(self, effects: list[Effect]) -> bool:
        counted = not any(isinstance(effect, Ignored) for effect in effects)
        self._apply(effects)
        return counted

    def _apply(self, effects: Sequence[Effect]) -> None:
        """Act on effects in the order of the calls: those of a call made meanwhile come after the rest."""
        self.todo += effects
        while self.todo or (self.offered < len(self.log) and self.dispatcher.free_slots):
            if self.todo:
                self._act(self.todo.popleft())
                continue
            offset = self.offered
            self.offered += 1
            before = self.earliest.get(offset)
            self.todo += self.dispatcher.offer(offset, self.log[offset], offset, not_before_ms=before)

    def _act(self, effect: Effect) -> None:
        match effect:
            case Deliver(offset, key, consumer, attempt):
                self.inboxes[consumer].append(Delivery(offset, key, attempt))
            case Load(offset):
                self.todo += self.dispatcher.loaded(offset, offset)
            case DeadLetter(offset):
                self.told.append(h.DeadLettered(offset=offset))  # written; and now it may say that it is settled
                self.todo += self.dispatcher.dead_lettered(offset)
            case KeyBegun(key, consumer, session):
                self.told.append(h.SessionBegun(key=key, consumer=consumer, session=session))
            case KeyEnding(key, consumer, session):
                self.told.append(h.SessionEnding(key=key, consumer=consumer, session=session))
                self.todo += self.dispatcher.flushed(key, session)
            case KeyEnded(key, consumer, session, why):
                ends = h.SessionEnds(why.value)
                self.told.append(h.SessionEnded(key=key, consumer=consumer, session=session, reason=ends))
            case Released(offset, consumer, attempt, reason):
                kind = h.Expired if reason is ReleaseReason.ACK_TIMEOUT else h.Released
                self.told.append(kind(offset=offset, consumer=consumer, attempt=attempt))
                inbox = self.inboxes[consumer]
                self.inboxes[consumer] = [each for each in inbox if (each.offset, each.attempt) != (offset, attempt)]
            case _:
                self.told += told_of(effect)


def told_of(effect: Effect) -> list[Event]:
    """Return what an effect says of a message that is no longer open.

    Args:
        effect: Any; of most there is nothing to tell.
    """
    match effect:
        case Dropped(offset):
            return [h.Dropped(offset=offset)]
        case Skipped(offset, _, reason):
            made_way = reason is SkipReason.SUPERSEDED
            superseded = h.Settled(offset=offset, reason=SettledBy.SUPERSEDED)
            return [superseded if made_way else h.Skipped(offset=offset)]
        case Settled(offset, _, reason):
            how = SettledBy.LATE_ACK if reason is SettleReason.LATE_ACK else SettledBy.OPERATOR
            return [h.Settled(offset=offset, reason=how)]
        case Done(offset, _, how):
            return [h.Done(offset=offset, reason=str(how))]
        case Blocked(offset):
            return [h.Held(offset=offset, reason=HoldReason.BLOCKED)]
        case _:
            return []


def owners_told(
    placement: _Owners, log: Sequence[bytes | None], known: MutableMapping[bytes, str | None]
) -> list[Event]:
    """Return who owns the keys of a log now, where that is not known yet.

    Args:
        placement: Asked for each key.
        log: Keys, in any order and more than once.
        known: Who is known to own which; brought up to date.
    """
    told: list[Event] = []
    for key in dict.fromkeys(key for key in log if key is not None):
        owner = placement.owner(key)
        if key not in known or known[key] != owner:
            known[key] = owner
            told.append(h.Owned(key=key, consumer=owner))
    return told
