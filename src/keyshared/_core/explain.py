"""Why is nothing happening? What the core says about one message, and about itself.

`why_blocked` reads the state of a message and the place of its lane; it decides nothing a second time.
"""

from collections import Counter
from typing import Final

from keyshared._core.machine import Machine
from keyshared._core.quotas import Quota
from keyshared._core.records import (
    BLOCKED,
    DEAD_LETTERING,
    DELAYED,
    IN_FLIGHT,
    LOADING,
    SPILLED,
    Consumer,
    ConsumerState,
    Entry,
    Lane,
    holds_slot,
)
from keyshared._core.values import Blocking, ConsumerStats, DispatcherStats, Health, Outstanding
from keyshared.effects import BlockReason

__all__ = ["describe", "gather_health", "gather_stats", "why_blocked"]

_OWN_REASONS: Final = {DEAD_LETTERING: BlockReason.DEAD_LETTERING, BLOCKED: BlockReason.BLOCKED}


def describe(machine: Machine, entry: Entry) -> Outstanding:
    """Return what is known of a message that is not settled. O(log n)."""
    note = entry.note
    return Outstanding(
        offset=entry.offset,
        key=entry.key,
        attempt=entry.attempt,
        failures=0 if note is None else note.failures,
        loaded=holds_slot(entry),
        deadline_ms=entry.deadline,
        blocking=why_blocked(machine, entry),
        ended=() if note is None else note.ended,
        reason=None if note is None else note.reason,
    )


def why_blocked(machine: Machine, entry: Entry) -> Blocking | None:  # noqa: PLR0911  # one return for each reason
    """Return what an outstanding message waits for; None if it is in flight. O(log n)."""
    state, lane = entry.state, entry.lane
    if state == IN_FLIGHT:
        return None
    if state == DELAYED or (state == SPILLED and entry.deadline is not None):
        if not entry.attempt:
            return Blocking(BlockReason.NOT_BEFORE)
        postponed = entry.note is not None and entry.note.postponed
        return Blocking(BlockReason.POSTPONED if postponed else BlockReason.RETRY_WAIT)
    if state in _OWN_REASONS:
        return Blocking(_OWN_REASONS[state])
    if state == LOADING:
        return Blocking(BlockReason.LOADING, _name(entry.consumer))
    first, holder = lane.next, _name(lane.holder)
    behind = None if first is None or first is entry else first.offset
    if lane.key in machine.window.quarantined:
        return Blocking(BlockReason.QUARANTINED, holder, behind)
    if behind is not None:
        return Blocking(BlockReason.OLDER_WAITS, behind=behind)
    if lane.key is None:
        return _why_keyless(machine, entry)
    return _why_there(machine, entry)


def _name(consumer: Consumer | None) -> str | None:
    return None if consumer is None else consumer.name


def _why_keyless(machine: Machine, entry: Entry) -> Blocking:
    eligible = [consumer for consumer in machine.window.consumers.values() if consumer.keyless]
    if not eligible:
        return Blocking(BlockReason.NO_CONSUMER)
    held = _why_held(machine, entry)
    if held is not None:
        return held
    if all(consumer.state is not ConsumerState.ACTIVE for consumer in eligible):
        return Blocking(BlockReason.CONSUMER_INACTIVE)
    if all(consumer.free <= 0 for consumer in eligible):
        return Blocking(BlockReason.CONSUMER_FULL)
    return _why_full(machine, entry)


def _why_there(machine: Machine, entry: Entry) -> Blocking:  # noqa: PLR0911  # as above
    """Read the place where the lane of its message waits."""
    window, lane, place = machine.window, entry.lane, entry.lane.place
    if place is None:
        return Blocking(BlockReason.KEY_IN_FLIGHT, _name(lane.holder))
    if place is window.ownerless:
        key: bytes = lane.key  # type: ignore[assignment]  # keyless lanes do not wait there
        unowned = machine.membership.is_only_unowned(key)
        return Blocking(BlockReason.UNOWNED if unowned else BlockReason.NO_CONSUMER)
    owner: Consumer = window.owner_of(lane)  # type: ignore[assignment]  # a lane in any other place has one
    if place is window.draining:
        return Blocking(BlockReason.DRAINING, _name(_holder_besides(machine, lane, owner)))
    if place is not owner.ready and place is not window.starved:
        session = None if machine.sessions is None or lane.key is None else machine.sessions.of(lane.key)
        return Blocking(place.reason, None if session is None else session.consumer.name)
    held = _why_held(machine, entry)
    if held is not None:
        return held
    group = None if machine.groups is None else lane.rule.quotas[0]
    if group is not None and (not group.has_room or owner in group.waiting):
        return Blocking(_why_closed(group), group=group.name)
    if owner.state is not ConsumerState.ACTIVE:
        return Blocking(BlockReason.CONSUMER_INACTIVE, owner.name)
    if owner.free <= 0:
        return Blocking(BlockReason.CONSUMER_FULL, owner.name)
    return _why_full(machine, entry)


def _holder_besides(machine: Machine, lane: Lane, owner: Consumer) -> Consumer | None:
    """Return the consumer, other than the owner, that has open deliveries of a key, or of its drain unit."""
    return lane.holder if machine.units is None else machine.units.holder_besides(lane, owner)


def _why_held(machine: Machine, entry: Entry) -> Blocking | None:
    """Return a reason if there are too many ack holes for any message but the lowest."""
    holes = machine.holes
    if holes is None or not holes.is_full or holes.lowest is entry:
        return None
    return Blocking(BlockReason.ACK_HOLES, behind=machine.window.cursor.resume_offset)


def _why_closed(group: Quota[Consumer]) -> BlockReason:
    if group.paused:
        return BlockReason.GROUP_PAUSED
    is_full = group.limit is not None and group.open >= group.limit
    return BlockReason.GROUP_FULL if is_full else BlockReason.GROUP_RATE


def _why_full(machine: Machine, entry: Entry) -> Blocking:
    """Return which of memory and the subscription is full; of both, memory."""
    needs_slot = entry.state == SPILLED and machine.window.loaded >= machine.window.capacity
    return Blocking(BlockReason.WINDOW_FULL if needs_slot else BlockReason.SUBSCRIPTION_FULL)


def gather_stats(machine: Machine) -> DispatcherStats:
    """Return the figures of this moment. O(consumers), and O(redriven messages)."""
    window = machine.window
    lowest = [window.cursor.resume_offset] if window.cursor.outstanding else []
    return DispatcherStats(
        outstanding=window.tracked,
        in_flight=window.loaded - window.waiting,
        loaded=window.loaded,
        spilled=window.tracked - window.loaded,
        delayed=window.held[DELAYED],
        dead_lettering=window.held[DEAD_LETTERING],
        blocked=window.held[BLOCKED],
        keys=len(window.lanes),
        quarantined_keys=len(window.quarantined),
        ownerless_keys=len(window.ownerless),
        draining_keys=len(window.draining),
        starved_keys=len(window.starved),
        keyless_waiting=len(window.keyless),
        free_slots=machine.admission.free_slots,
        paused_by=machine.admission.paused_by,
        oldest_outstanding=min((offset for offset in (*lowest, *window.beside) if offset is not None), default=None),
        consumers={
            name: ConsumerStats(
                state=consumer.state,
                limit=consumer.quota,
                in_flight=len(consumer.open),
                loading=len(consumer.reserved),
                ready_keys=len(consumer.ready),
            )
            for name, consumer in machine.members.items()
        },
    )


def gather_health(machine: Machine, busiest: int) -> Health:
    """Return the figures of this moment; a redriven message has no age. O(outstanding + keys log keys)."""
    now, window, kept = machine.now, machine.window, machine.health
    of_log = [entry for entry in window.outstanding() if entry.offset not in window.beside]
    oldest = of_log[0].offset if of_log else None
    blocked = next((entry.offset for entry in of_log if entry.state != IN_FLIGHT), None)
    keys = Counter(entry.key for entry in window.outstanding() if entry.key is not None)
    return Health(
        oldest_ms=None if kept is None or oldest is None else kept.age_of(oldest, now),
        longest_blocked_ms=None if kept is None or blocked is None else kept.age_of(blocked, now),
        blocked_offset=blocked,
        busiest=tuple(sorted(keys.items(), key=_most_first)[:busiest]),
        ended=None if kept is None else kept.ended,
        delivered=None if kept is None else kept.made,
        failed=None if kept is None else kept.failed,
    )


def _most_first(counted: tuple[bytes, int]) -> tuple[int, bytes]:
    key, number = counted
    return -number, key
