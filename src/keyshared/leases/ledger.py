"""The dispatcher of a lease queue, and beside it, in step with it, what covers its open deliveries.

Every method is one step after which the two agree; `LeaseQueue` decides which step is next. Nothing that the dispatcher
knows is kept a second time: who holds a key, what waits and why, how often a delivery failed, and how far the queue may
be trimmed are asked of it.
"""

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

from keyshared import placement as placements
from keyshared._checks import checked_now, require
from keyshared._core.reader import Reader
from keyshared._core.values import Blocking, Outstanding
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import (
    BlockReason,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Done,
    Effect,
    Load,
    Released,
    ReleaseReason,
    Resumed,
)
from keyshared.errors import ArgumentError
from keyshared.leases.book import Grant, LeaseBook
from keyshared.leases.config import LeaseConfig
from keyshared.leases.values import EmptyReason, InvalidHandle, InvalidHandleReason, NothingToLease
from keyshared.placement.protocol import Placement

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LeaseLedger", "checked_placement", "explain_empty", "explain_lowest"]


_BEHIND: Final = frozenset({BlockReason.OLDER_WAITS, BlockReason.QUARANTINED})
_NOBODY: Final = frozenset({BlockReason.NO_CONSUMER, BlockReason.UNOWNED})


def explain_empty(dispatcher: KeySharedDispatcher[Any], consumer: str, now: int) -> NothingToLease | None:
    """Find the first message that this consumer waits for; None if one can go to it now. O(n)."""
    mine = ownerless = None
    tokens = {group.name: group.next_token_ms for group in dispatcher.groups()}

    def timed(message: Outstanding) -> Outstanding:
        why = message.blocking
        if why is None or why.reason is not BlockReason.GROUP_RATE:
            return message
        return message._replace(deadline_ms=tokens[cast("str", why.group)])

    nothing = NothingToLease(EmptyReason.EMPTY)
    for message in map(timed, dispatcher.outstanding()):
        nothing = NothingToLease(EmptyReason.OTHERS)
        why = message.blocking
        if why is None or (why.reason in _BEHIND and why.behind is not None):
            continue  # leased; or it is the older one that says why
        if _asks_only(dispatcher, message, consumer, now):
            if message.loaded:
                return None
            mine = mine or _unread(message, BlockReason.WINDOW_FULL if _is_full(dispatcher) else BlockReason.LOADING)
        elif why.reason in _NOBODY:
            ownerless = ownerless or message
        elif mine is None and _belongs_to(dispatcher, message, consumer):
            mine = message
    found = mine or ownerless
    return nothing if found is None else _waiting(found, EmptyReason.WAITING)


def explain_lowest(dispatcher: KeySharedDispatcher[Any], consumer: str, now: int) -> NothingToLease | None:
    """Return what the lowest message waits for; None if it can go to this consumer now. There is one. O(1)."""
    message = next(dispatcher.outstanding())
    if _asks_only(dispatcher, message, consumer, now):
        if message.loaded:
            return None
        message = _unread(message, BlockReason.LOADING)  # it has a slot of its own
    return _waiting(message, EmptyReason.ACK_HOLES)


def _waiting(message: Outstanding, reason: EmptyReason) -> NothingToLease:
    why = message.blocking
    return NothingToLease(reason, message.offset, None if why is None else why.consumer, message.deadline_ms, why)


def _asks_only(dispatcher: KeySharedDispatcher[Any], message: Outstanding, consumer: str, now: int) -> bool:
    """Whether the message waits for nothing but that this consumer asks."""
    why = message.blocking
    if why is None:
        return False
    if why.reason is BlockReason.GROUP_RATE and message.deadline_ms is not None and message.deadline_ms <= now:
        return _belongs_to(dispatcher, message, consumer)  # time has brought a token, which is handed out to who asks
    if dispatcher.config.ordering_required and why.reason in _NOBODY:
        return True  # nobody holds the line, so whoever asks is next
    in_line = dispatcher.config.ordering_required or why.consumer in {None, consumer}
    return why.reason is BlockReason.CONSUMER_FULL and in_line


def _unread(message: Outstanding, reason: BlockReason) -> Outstanding:
    """The message was spilled: what asks for it gets a `Load` first, or has to wait for a slot."""
    return message._replace(blocking=Blocking(reason))


def _is_full(dispatcher: KeySharedDispatcher[Any]) -> bool:
    return dispatcher.stats().loaded >= dispatcher.config.window


def _belongs_to(dispatcher: KeySharedDispatcher[Any], message: Outstanding, consumer: str) -> bool:
    if message.key is None or dispatcher.config.ordering_required:
        return True
    return dispatcher.owner(message.key) == consumer


_OWN_REASONS: Final = {
    BlockReason.DEAD_LETTERING: InvalidHandleReason.DEAD_LETTERING,
    BlockReason.BLOCKED: InvalidHandleReason.BLOCKED,
}
_RANKS: Final[dict[type[Effect], int]] = {Done: 1, DeadLetter: 2, Load: 3, CursorAdvanced: 4}  # notices before them


class LeaseLedger:
    """The state of a lease queue.

    Attributes:
        dispatcher: Who may get what. All its consumers have a limit of 0.
        book: What covers its open deliveries.
        leased: How many messages were leased since the start, if that is measured.
        tail: The greatest offset offered.
        now: The time of the last call.
    """

    __slots__ = ("_config", "book", "dispatcher", "leased", "now", "tail")

    def __init__(self, config: LeaseConfig, dispatcher: KeySharedDispatcher[Any]) -> None:
        self._config = config
        self.dispatcher = dispatcher
        self.book = LeaseBook()
        self.leased = 0
        self.tail = None if config.start is None else config.start - 1
        self.now = 0

    # time

    def checked_now(self, now_ms: int | None) -> int:
        """Return the time of this call; raises `ClockError`."""
        return checked_now(now_ms, self.now)

    def begin(self, now: int) -> list[Effect[Any]]:
        """End what is over by now: reservations first, which end without a count; drains of consumers last."""
        if now == self.now:
            return []  # it has acted, and nothing that was started since is due yet
        self.now = now
        steps = [self.release(grant) for grant in self.book.take_due(now)]
        if self._is_due() or self._config.measure:  # ages are of the last call
            steps.append(self.note(self.dispatcher.handle_timeout(now_ms=now)))
        steps += [self.leave(consumer, ReleaseReason.DRAIN_TIMEOUT) for consumer in self.book.take_drained(now)]
        return self.merged(*steps)

    def _is_due(self) -> bool:
        deadline = self.dispatcher.next_deadline_ms()
        return deadline is not None and deadline <= self.now

    # what begins and ends

    def is_new(self, offset: object) -> bool:
        """Return whether an offset is new to the queue, also to its life before a restart."""
        return type(offset) is int and (self.tail is None or offset > self.tail)

    def offered(self, offset: int) -> None:
        """Note a new message that was taken."""
        self.tail = offset

    def take(
        self, consumer: str, most: int, per_key: int | None
    ) -> tuple[list[Deliver[Any]] | NothingToLease, list[Effect[Any]]]:
        """Open deliveries for a consumer; nothing covers them yet."""
        room = self.room(consumer)
        if isinstance(room, NothingToLease):
            return room, []
        moved: list[Effect[Any]] = []
        if self._config.ordering_required and self.line != consumer:
            # Nobody else holds anything, so nothing has to drain.
            moved = self.dispatcher.set_placement(placements.SoleOwner(consumer), now_ms=self.now)
        effects = self.dispatcher.pull(consumer, min(most, room), per_key=per_key, now_ms=self.now)
        taken = [effect for effect in effects if isinstance(effect, Deliver)]
        others: list[Effect[Any]] = [effect for effect in effects if not isinstance(effect, Deliver)]
        nothing = NothingToLease(EmptyReason.NOT_READY)
        if self.has_too_many_holes:
            nothing = NothingToLease(EmptyReason.ACK_HOLES, self.dispatcher.resume_offset)
        return taken or nothing, self.merged(moved, others)

    def settled(self, offset: int) -> None:
        """The lease of a message ends because it was acked."""
        self.book.end(offset)

    def note(self, effects: list[Effect[Any]]) -> list[Effect[Any]]:
        """Take in what has ended or was settled; returns all but the ends of reservations, which nobody is told of."""
        untold: set[int] = set()
        for effect in effects:
            if isinstance(effect, Released) and not self.book.end(effect.offset).committed:
                untold.add(effect.offset)
        if not untold:
            return effects
        return [effect for effect in effects if not isinstance(effect, Released) or effect.offset not in untold]

    def release(self, grant: Grant) -> list[Effect[Any]]:
        """End a reservation; nothing is counted."""
        steps = []
        while grant.deliveries:  # with each one ends what is newer of its batch
            steps.append(self._release(next(iter(grant.deliveries.values()))))
        return self.merged(*steps)

    def begin_lease(self, grant: Grant) -> None:
        """Make a lease of a reservation: its messages get the time of a lease, each batch as one."""
        deliveries: Iterable[Deliver[Any]] = grant.deliveries.values()
        if self._config.batch_per_key > 1:
            deliveries = {self._lane(delivery): delivery for delivery in deliveries}.values()
        for delivery in deliveries:
            self.dispatcher.extend(*delivery.receipt, now_ms=self.now)
        self.book.commit(grant)
        self._count(grant)

    def lease(self, consumer: str, taken: list[Deliver[Any]]) -> Grant:
        """Cover open deliveries by a new lease."""
        grant = self.book.lease(consumer, taken)
        self._count(grant)
        return grant

    def _count(self, grant: Grant) -> None:
        """Count a lease for `health`: the dispatcher counts reservations too, which are nobody's deliveries."""
        if self._config.measure:
            self.leased += len(grant.deliveries)

    def through(self, delivery: Deliver[Any]) -> list[Deliver[Any]]:
        """Return a delivery and every older one of its key that the same lease covers. O(what the lease covers)."""
        lane = self._lane(delivery)
        covered = self.book.by_offset[delivery.offset].deliveries.values()
        return [each for each in covered if each.offset <= delivery.offset and self._lane(each) == lane]

    def fail(self, delivery: Deliver[Any], delay_ms: int, reason: str | None = None) -> list[Effect[Any]]:
        """End the lease of a message; the delivery has counted."""
        told = self.dispatcher.nack(*delivery.receipt, delay_ms=delay_ms, reason=reason, now_ms=self.now)
        return self.note(told)

    def reject(self, delivery: Deliver[Any], reason: str | None) -> list[Effect[Any]]:
        """End the lease of a message that is poison now; the delivery has counted."""
        return self.note(self.dispatcher.reject(*delivery.receipt, reason=reason, now_ms=self.now))

    def postpone(self, delivery: Deliver[Any], delay_ms: int) -> list[Effect[Any]]:
        """End the lease of a message; nothing is counted."""
        return self.note(self.dispatcher.release(*delivery.receipt, delay_ms=delay_ms, now_ms=self.now))

    def leave(self, consumer: str, reason: ReleaseReason) -> list[Effect[Any]]:
        """End all that a consumer holds: its leases have counted, its reservations have not."""
        held = self.dispatcher.in_flight(consumer)
        steps = {delivery.offset: self._lose(delivery, reason) for delivery in self._newest_first(held)}
        return self.merged(*[steps[delivery.offset] for delivery in held])

    def merged(self, *steps: list[Effect[Any]]) -> list[Effect[Any]]:
        """Merge the effects of several steps: in the order of one step, and without what a later step has ended."""
        told = [effects for effects in steps if effects]
        if not told:
            return []
        if len(told) == 1 and told[0] is steps[-1]:  # nothing to put in order, and no later step
            return told[0]
        effects = [effect for step in told for effect in step]
        resumed = any(isinstance(effect, Resumed) for effect in effects) and self.dispatcher.free_slots
        merged = [e for e in effects if not isinstance(e, Resumed) and self.dispatcher.is_current(e)]
        return sorted(merged, key=_rank) + ([Resumed(resumed)] if resumed else [])

    def _lose(self, delivery: Deliver[Any], reason: ReleaseReason) -> list[Effect[Any]]:
        if not self.book.by_offset[delivery.offset].committed:
            return self._release(delivery)
        told = self.fail(delivery, 0)
        return [effect._replace(reason=reason) if isinstance(effect, Released) else effect for effect in told]

    def _release(self, delivery: Deliver[Any]) -> list[Effect[Any]]:
        """End the reservation of a message."""
        return self.note(self.dispatcher.release(*delivery.receipt, now_ms=self.now))

    def _newest_first(self, deliveries: list[Deliver[Any]]) -> list[Deliver[Any]]:
        """Order deliveries so that the end of none breaks a batch: keys as they come, each from its end."""
        lanes: dict[object, list[Deliver[Any]]] = {}
        for delivery in deliveries:
            lanes.setdefault(self._lane(delivery), []).append(delivery)
        return list(chain.from_iterable(map(reversed, lanes.values())))

    def _lane(self, delivery: Deliver[Any]) -> object:
        """What deliveries that wait for one another have in common; a message without a key has only itself."""
        if self._config.ordering_required:
            return None
        return delivery.offset if delivery.key is None else delivery.key

    # queries

    @property
    def line(self) -> str | None:
        """With ordering_required, who owns everything: who asked last while nobody held anything."""
        return self.dispatcher.owner(None) if self._config.ordering_required else None

    def room(self, consumer: str) -> int | NothingToLease:
        """Return how many more messages a consumer may hold, or which cap is reached."""
        held = self.book.held
        if self._config.ordering_required:
            holder = next(iter(held), consumer)
            if holder != consumer:
                return NothingToLease(EmptyReason.LINE_HELD, consumer=holder)
        room = self._config.max_in_flight_per_consumer - held.get(consumer, 0)
        if room < 1:
            return NothingToLease(EmptyReason.CONSUMER_LIMIT, consumer=consumer)
        if self._config.max_in_flight is not None:
            room = min(room, self._config.max_in_flight - len(self.book.by_offset))
        return room if room > 0 else NothingToLease(EmptyReason.QUEUE_LIMIT)

    def why_empty(self, consumer: str) -> NothingToLease | None:
        """Return why `take` has nothing; None if it has something."""
        room = self.room(consumer)
        if isinstance(room, NothingToLease):
            return room
        if not self.has_too_many_holes:
            return explain_empty(self.dispatcher, consumer, self.now)
        lowest = explain_lowest(self.dispatcher, consumer, self.now)
        grant = None if lowest is None else self.book.by_offset.get(cast("int", lowest.offset))
        if lowest is None or grant is None:
            return lowest
        return replace(lowest, consumer=grant.consumer, until_ms=self.deadline_of(cast("int", lowest.offset)))

    def deadline_of(self, offset: int) -> int:
        """Return when what covers a message ends: the lease or reservation, or the drain of who holds it."""
        message = cast("Outstanding", self.dispatcher.describe(offset))
        grant = self.book.by_offset[offset]
        deadlines = (message.deadline_ms, grant.deadline, self.book.cut_off(grant.consumer))
        return min(deadline for deadline in deadlines if deadline is not None)

    def invalid(self, offset: int, lease_id: int) -> InvalidHandle:
        """Return why a handle names no current lease."""
        return InvalidHandle(offset, lease_id, self._invalid_reason(offset, lease_id))

    def _invalid_reason(self, offset: int, lease_id: int) -> InvalidHandleReason:
        grant = self.book.by_offset.get(offset)
        if grant is not None:
            return InvalidHandleReason.NOT_COMMITTED if grant.id == lease_id else InvalidHandleReason.STALE
        message = self.dispatcher.describe(offset)
        if message is not None:
            why = message.blocking
            own = None if why is None else _OWN_REASONS.get(why.reason)
            return InvalidHandleReason.NOT_LEASED if own is None else own
        if self.tail is None or offset > self.tail:
            return InvalidHandleReason.NOT_OFFERED
        keep_from = self.dispatcher.resume_offset
        below = keep_from is not None and offset < keep_from
        return InvalidHandleReason.BELOW_TRIM if below else InvalidHandleReason.SETTLED

    @property
    def has_too_many_holes(self) -> bool:
        """Whether only the lowest outstanding message is handed out."""
        holes = self.dispatcher._machine.holes  # noqa: SLF001  # part of this package
        return holes is not None and holes.is_full

    @property
    def _last_offered(self) -> int | None:
        """The greatest offset offered, as the dispatcher knows it; just before the start before any."""
        last, keep_from = self.dispatcher.restart_mark.last, self.dispatcher.resume_offset
        if keep_from is None:
            return last
        return keep_from - 1 if last is None else max(last, keep_from - 1)

    # restarts

    def dump(self) -> dict[str, object]:
        """Return all of it as plain data."""
        # What is stored is how far deadlines are away; nothing is due, so this only tells the dispatcher the time.
        self.dispatcher.handle_timeout(now_ms=self.now)
        return {
            "dispatcher": self.dispatcher.snapshot(),
            "line": self.line,
            "leased": self.leased,
            **self.book.dump(self.now),
        }

    def load(self, data: Reader, *, now: int, epoch: int) -> None:
        """Take over what is not the dispatcher's, which is restored already."""
        self.now = now
        self.tail = self._last_offered
        self.leased = data.field("leased").count()
        in_flight = {delivery.offset: delivery for delivery in self.dispatcher.in_flight()}
        self.book.load(data, in_flight, now=now, epoch=epoch)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the books contradict one another. For tests; O(n)."""
        self.dispatcher.check_invariants()
        require(self.tail == self._last_offered, "the tail is the greatest offset offered")
        self.book.check_invariants(self.dispatcher.in_flight())


def _rank(effect: Effect) -> int:
    return _RANKS.get(type(effect), 0)


def checked_placement(placement: Placement | None, config: LeaseConfig) -> Placement:
    """Return the placement that a dispatcher starts with."""
    if config.ordering_required:
        if placement is not None:
            raise ArgumentError("placement", placement, "be None with ordering_required: whoever asks first gets all")
        return placements.SoleOwner()
    if placement is None:
        raise ArgumentError("placement", placement, "be a placement, unless ordering_required is set")
    return placement
