"""The dispatcher of a lease queue and its lease table, in step.

Every method is one step after which the two agree; `LeaseQueue` decides which step is next. The dispatcher alone knows
who holds a key, what waits and why, how often a delivery failed, and how far the queue may be trimmed.
"""

from itertools import chain
from typing import Any, Final

from keyshared._checks import checked_now, require
from keyshared._core.reader import Reader
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
from keyshared.leases.config import LeaseConfig
from keyshared.leases.table import Grant, LeaseTable
from keyshared.leases.values import EmptyReason, InvalidHandle, InvalidHandleReason, NothingToLease
from keyshared.placement.assigned import AssignedRanges

__all__ = ["Effects", "LeaseState"]

Effects = list[Effect[Any]]

_OWN_REASONS: Final = {
    BlockReason.DEAD_LETTERING: InvalidHandleReason.DEAD_LETTERING,
    BlockReason.BLOCKED: InvalidHandleReason.BLOCKED,
}
_RANKS: Final[dict[type[Effect], int]] = {Done: 1, DeadLetter: 2, Load: 3, CursorAdvanced: 4}  # notices before them


class LeaseState:
    """The state of a lease queue.

    Attributes:
        dispatcher: Decides who may get what. All its consumers have a limit of 0.
        machine: Its unchecked core.
        table: The grants that cover its open deliveries.
        leased: How many messages were leased since the start, if that is measured.
        now: The time of the last call.
    """

    __slots__ = ("_batches", "_is_line", "_measures", "_most", "dispatcher", "leased", "machine", "now", "table")

    def __init__(self, config: LeaseConfig, dispatcher: KeySharedDispatcher[Any]) -> None:
        self.dispatcher = dispatcher
        self.machine = dispatcher._machine  # noqa: SLF001  # part of this package
        self.table = LeaseTable()
        self.leased = 0
        self.now = 0
        self._most = config.max_in_flight
        self._batches = config.dispatcher.batch_per_key > 1
        self._is_line = config.dispatcher.ordering_required
        self._measures = config.dispatcher.measure

    # time

    def checked_now(self, now_ms: int | None) -> int:
        """Return the time of this call; raises `ClockError`."""
        return checked_now(now_ms, self.now)

    def begin(self, now: int) -> Effects:
        """End what is over by now: reservations first, which end without a count; drains of consumers last."""
        if now == self.now:
            return []  # time has acted, and nothing that was started since is due yet
        self.now = now
        expired, drained = self.table.take_due(now)
        steps = [self.release(grant) for grant in expired]
        if self._measures or self._is_due():  # ages are those of the last call
            steps.append(self.note(self.machine.handle_timeout(now)))
        steps += [self.leave(consumer, ReleaseReason.DRAIN_TIMEOUT) for consumer in drained]
        return self.merged(*steps)

    def _is_due(self) -> bool:
        deadline = self.machine.timers.next_deadline
        return deadline is not None and deadline <= self.now

    # what begins and ends

    def take(
        self, consumer: str, most: int, per_key: int | None
    ) -> tuple[list[Deliver[Any]] | NothingToLease, Effects]:
        """Open deliveries for a consumer; no grant covers them yet."""
        capacity = self.capacity(consumer)
        if isinstance(capacity, NothingToLease):
            return capacity, []
        moved: Effects = []
        if self._is_line and self.line != consumer:
            # No other consumer holds anything, so nothing has to drain.
            moved = self.dispatcher.set_placement(AssignedRanges.sole_owner(consumer), now_ms=self.now)
        effects = self.machine.pull(consumer, min(most, capacity), None, per_key, self.now)
        taken = [effect for effect in effects if isinstance(effect, Deliver)]
        others: Effects = [effect for effect in effects if not isinstance(effect, Deliver)]
        nothing = NothingToLease(EmptyReason.NOT_READY)
        if self.has_too_many_holes:
            nothing = NothingToLease(EmptyReason.ACK_HOLES, self.dispatcher.resume_offset)
        return taken or nothing, self.merged(moved, others)

    def lease(self, taken: list[Deliver[Any]]) -> Grant:
        """Cover open deliveries by a new lease."""
        return self._counted(self.table.cover(taken, None))

    def commit(self, grant: Grant) -> Grant:
        """Make a lease of a reservation: its messages get the time of a lease, each batch as one."""
        deliveries = list(grant.deliveries.values())
        if self._batches:
            deliveries = list({self._lane(delivery): delivery for delivery in deliveries}.values())
        for delivery in deliveries:
            self.machine.extend(*delivery.receipt, None, self.now)
        self.table.commit(grant)
        return self._counted(grant)

    def note(self, effects: Effects) -> Effects:
        """End the grants of what was released; return all effects but the releases of reservations."""
        unreported: set[int] = set()
        for effect in effects:
            if isinstance(effect, Released) and not self.table.end(effect.offset).committed:
                unreported.add(effect.offset)
        if not unreported:
            return effects
        return [effect for effect in effects if not isinstance(effect, Released) or effect.offset not in unreported]

    def release(self, grant: Grant) -> Effects:
        """End a reservation; nothing is counted."""
        steps = []
        while grant.deliveries:  # each one ends what is newer of its batch, too
            steps.append(self._release(next(iter(grant.deliveries.values()))))
        return self.merged(*steps)

    def through(self, delivery: Deliver[Any]) -> list[Deliver[Any]]:
        """Return a delivery and every older one of its key that the same lease covers. O(what the lease covers)."""
        lane = self._lane(delivery)
        covered = self.table.by_offset[delivery.offset].deliveries.values()
        return [each for each in covered if each.offset <= delivery.offset and self._lane(each) == lane]

    def leave(self, consumer: str, reason: ReleaseReason) -> Effects:
        """End all that a consumer holds: its leases have counted, its reservations have not."""
        held = self.dispatcher.in_flight(consumer)
        steps = {delivery.offset: self._lose(delivery, reason) for delivery in self._newest_first(held)}
        return self.merged(*[steps[delivery.offset] for delivery in held])

    def merged(self, *steps: Effects) -> Effects:
        """Merge the effects of several steps: in the order of one step, and without what a later step has ended."""
        reported = [effects for effects in steps if effects]
        if not reported:
            return []
        if len(reported) == 1 and reported[0] is steps[-1]:  # nothing to put in order, and no later step
            return reported[0]
        effects = [effect for step in reported for effect in step]
        resumed = any(isinstance(effect, Resumed) for effect in effects) and self.dispatcher.free_slots
        merged = [e for e in effects if not isinstance(e, Resumed) and self.dispatcher.is_current(e)]
        return sorted(merged, key=_rank) + ([Resumed(resumed)] if resumed else [])

    def _counted(self, grant: Grant) -> Grant:
        """Count a lease for `health`: the dispatcher counts reservations too, which are not delivered to anybody."""
        if self._measures:
            self.leased += len(grant.deliveries)
        return grant

    def _lose(self, delivery: Deliver[Any], reason: ReleaseReason) -> Effects:
        if not self.table.by_offset[delivery.offset].committed:
            return self._release(delivery)
        effects = self.note(self.machine.nack(*delivery.receipt, 0, None, self.now))
        return [effect._replace(reason=reason) if isinstance(effect, Released) else effect for effect in effects]

    def _release(self, delivery: Deliver[Any]) -> Effects:
        """End the reservation of a message."""
        return self.note(self.machine.release(*delivery.receipt, 0, self.now))

    def _newest_first(self, deliveries: list[Deliver[Any]]) -> list[Deliver[Any]]:
        """Order deliveries so that the end of none breaks a batch: keys as they come, each from its end."""
        lanes: dict[object, list[Deliver[Any]]] = {}
        for delivery in deliveries:
            lanes.setdefault(self._lane(delivery), []).append(delivery)
        return list(chain.from_iterable(map(reversed, lanes.values())))

    def _lane(self, delivery: Deliver[Any]) -> object:
        """Return what deliveries that wait for one another have in common; a message without a key has only itself."""
        if self._is_line:
            return None
        return delivery.offset if delivery.key is None else delivery.key

    # queries

    @property
    def line(self) -> str | None:
        """With ordering_required, the consumer that owns everything: the last to ask while none held anything."""
        return self.dispatcher.owner(None) if self._is_line else None

    @property
    def tail(self) -> int | None:
        """The greatest offset offered; before any, the one below the start."""
        last, start = self.dispatcher.restart_mark.last, self.dispatcher.resume_offset
        if start is None:
            return last
        return start - 1 if last is None else max(last, start - 1)

    @property
    def has_too_many_holes(self) -> bool:
        """Whether only the lowest outstanding message is handed out."""
        holes = self.machine.holes
        return holes is not None and holes.is_full

    def capacity(self, consumer: str) -> int | NothingToLease:
        """Return how many more messages a consumer may hold, or which cap is reached."""
        held = self.table.held
        if self._is_line:
            holder = next(iter(held), consumer)
            if holder != consumer:
                return NothingToLease(EmptyReason.LINE_HELD, consumer=holder)
        capacity = self.dispatcher.config.max_in_flight_per_consumer - held.get(consumer, 0)
        if capacity < 1:
            return NothingToLease(EmptyReason.CONSUMER_LIMIT, consumer=consumer)
        if self._most is not None:
            capacity = min(capacity, self._most - len(self.table.by_offset))
        return capacity if capacity > 0 else NothingToLease(EmptyReason.QUEUE_LIMIT)

    def deadline_of(self, offset: int) -> int:
        """Return when the lease or reservation of a message ends, or the drain of its consumer if that is earlier."""
        entry = self.machine.window.find(offset)
        grant = self.table.by_offset[offset]
        deadlines = (entry.deadline, grant.deadline, self.table.cut_off(grant.consumer))  # type: ignore[union-attr]
        return min(deadline for deadline in deadlines if deadline is not None)

    def invalid(self, offset: int, lease_id: int) -> InvalidHandle:
        """Return why a handle names no current lease."""
        return InvalidHandle(offset, lease_id, self._invalid_reason(offset, lease_id))

    def _invalid_reason(self, offset: int, lease_id: int) -> InvalidHandleReason:
        grant = self.table.by_offset.get(offset)
        if grant is not None:
            return InvalidHandleReason.NOT_COMMITTED if grant.id == lease_id else InvalidHandleReason.STALE
        message = self.dispatcher.describe(offset)
        if message is not None:
            why = message.blocking
            return InvalidHandleReason.NOT_LEASED if why is None else _OWN_REASONS.get(why.reason, _NOT_LEASED)
        tail, start = self.tail, self.dispatcher.resume_offset
        if tail is None or offset > tail:
            return InvalidHandleReason.NOT_OFFERED
        below = start is not None and offset < start
        return InvalidHandleReason.BELOW_TRIM if below else InvalidHandleReason.SETTLED

    # restarts

    def dump(self) -> dict[str, object]:
        """Return all of it as plain data."""
        # Deadlines are stored as remaining time; nothing is due, so this only sets the clock of the dispatcher.
        self.machine.handle_timeout(self.now)
        return {
            "dispatcher": self.dispatcher.snapshot(),
            "line": self.line,
            "leased": self.leased,
            **self.table.dump(self.now),
        }

    def load(self, data: Reader, *, now: int, epoch: int) -> None:
        """Take over all but the dispatcher, which is restored already."""
        self.now = now
        self.leased = data.field("leased").count()
        in_flight = {delivery.offset: delivery for delivery in self.dispatcher.in_flight()}
        self.table.load(data, in_flight, now=now, epoch=epoch)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the dispatcher and the table contradict each other. For tests; O(n)."""
        self.dispatcher.check_invariants()
        limits = [consumer.limit for consumer in self.dispatcher.stats().consumers.values()]
        require(not any(limits), "every consumer has to ask")
        self.table.check_invariants(self.dispatcher.in_flight())


_NOT_LEASED: Final = InvalidHandleReason.NOT_LEASED


def _rank(effect: Effect) -> int:
    return _RANKS.get(type(effect), 0)
