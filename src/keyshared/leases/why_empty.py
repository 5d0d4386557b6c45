"""Why a consumer that asks gets nothing."""

from dataclasses import replace
from typing import Final, cast

from keyshared._core.explain import describe
from keyshared._core.machine import Machine
from keyshared._core.records import Consumer
from keyshared._core.values import Blocking, Outstanding
from keyshared.effects import BlockReason
from keyshared.leases.lease import EmptyReason, NothingToLease
from keyshared.leases.table import LeaseTable

__all__ = ["capacity_of", "has_too_many_holes", "why_empty"]

_BEHIND: Final = frozenset({BlockReason.OLDER_WAITS, BlockReason.QUARANTINED})
_UNOWNED: Final = frozenset({BlockReason.NO_CONSUMER, BlockReason.UNOWNED})


def capacity_of(table: LeaseTable, consumer: Consumer, most: int | None) -> int | NothingToLease:
    """Return how many more messages a consumer may hold, or which cap is reached; the queue may hold ``most``. O(1)."""
    config, held = table.machine.config, table.by_offset
    if config.ordering_required and held:
        holder = next(iter(held.values())).consumer
        if holder != consumer.name:
            return NothingToLease(EmptyReason.LINE_HELD, consumer=holder)
    capacity = config.max_in_flight_per_consumer - len(consumer.open)
    if capacity < 1:
        return NothingToLease(EmptyReason.CONSUMER_LIMIT, consumer=consumer.name)
    if most is not None:
        capacity = min(capacity, most - len(held))
    return capacity if capacity > 0 else NothingToLease(EmptyReason.QUEUE_LIMIT)


def has_too_many_holes(machine: Machine) -> bool:
    """Return whether only the lowest outstanding message is handed out."""
    return machine.holes is not None and machine.holes.is_full


def why_empty(table: LeaseTable, consumer: Consumer, most: int | None) -> NothingToLease | None:
    """Return why a consumer would get nothing; None if there is something for it. O(n)."""
    capacity = capacity_of(table, consumer, most)
    if isinstance(capacity, NothingToLease):
        return capacity
    machine = table.machine
    if not has_too_many_holes(machine):
        return _first_waiting(machine, consumer.name)
    lowest = next(machine.window.outstanding())
    waiting = _lowest_waiting(machine, describe(machine, lowest), consumer.name)
    grant = table.by_offset.get(lowest.offset)
    if waiting is None or grant is None:
        return waiting
    return replace(waiting, consumer=grant.consumer, until_ms=table.deadline_of(lowest))


def _first_waiting(machine: Machine, consumer: str) -> NothingToLease | None:
    """Find the first message that this consumer waits for; None if one can go to it now. O(n)."""
    mine = ownerless = None
    groups = [] if machine.groups is None else machine.groups.stats()
    permits = {group.name: group.next_token_ms for group in groups}
    nothing = NothingToLease(EmptyReason.EMPTY)
    for entry in machine.window.outstanding():
        message = describe(machine, entry)
        nothing, why = NothingToLease(EmptyReason.OTHERS), message.blocking
        if why is None or (why.reason in _BEHIND and why.behind is not None):
            continue  # leased; or the older one says why
        if why.reason is BlockReason.GROUP_RATE:
            message = message._replace(deadline_ms=permits[cast("str", why.group)])
        if _only_asking_is_left(machine, message, consumer):
            if message.loaded:
                return None
            mine = mine or _unread(message, BlockReason.WINDOW_FULL if _is_full(machine) else BlockReason.LOADING)
        elif why.reason in _UNOWNED:
            ownerless = ownerless or message
        elif mine is None and _belongs_to(machine, message, consumer):
            mine = message
    found = mine or ownerless
    return nothing if found is None else _waiting(found, EmptyReason.WAITING)


def _lowest_waiting(machine: Machine, message: Outstanding, consumer: str) -> NothingToLease | None:
    """Return what the lowest message waits for; None if it can go to this consumer now."""
    if _only_asking_is_left(machine, message, consumer):
        if message.loaded:
            return None
        message = _unread(message, BlockReason.LOADING)  # it has a slot of its own
    return _waiting(message, EmptyReason.ACK_HOLES)


def _waiting(message: Outstanding, reason: EmptyReason) -> NothingToLease:
    why = message.blocking
    return NothingToLease(reason, message.offset, None if why is None else why.consumer, message.deadline_ms, why)


def _only_asking_is_left(machine: Machine, message: Outstanding, consumer: str) -> bool:
    """Return whether a message waits for nothing but that this consumer asks."""
    why = message.blocking
    if why is None:
        return False
    is_line = machine.config.ordering_required
    if is_line and why.reason in _UNOWNED:
        return True  # no consumer holds the line, so the next consumer that asks gets it
    return why.reason is BlockReason.CONSUMER_FULL and (is_line or why.consumer in {None, consumer})


def _unread(message: Outstanding, reason: BlockReason) -> Outstanding:
    """Return a spilled message with what it waits for: a `Load`, or a free slot before that."""
    return message._replace(blocking=Blocking(reason))


def _is_full(machine: Machine) -> bool:
    return machine.window.loaded >= machine.window.capacity


def _belongs_to(machine: Machine, message: Outstanding, consumer: str) -> bool:
    if message.key is None or machine.config.ordering_required:
        return True
    return machine.routing.owner(message.key) == consumer
