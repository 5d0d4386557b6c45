"""Why a consumer that asks gets nothing."""

from dataclasses import replace
from typing import Any, Final, cast

from keyshared._core.values import Blocking, Outstanding
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import BlockReason
from keyshared.leases.state import LeaseState
from keyshared.leases.values import EmptyReason, NothingToLease

__all__ = ["why_empty"]

_BEHIND: Final = frozenset({BlockReason.OLDER_WAITS, BlockReason.QUARANTINED})
_UNOWNED: Final = frozenset({BlockReason.NO_CONSUMER, BlockReason.UNOWNED})


def why_empty(state: LeaseState, consumer: str) -> NothingToLease | None:
    """Return why a consumer would get nothing; None if there is something for it. O(n)."""
    capacity = state.capacity(consumer)
    if isinstance(capacity, NothingToLease):
        return capacity
    if not state.has_too_many_holes:
        return _first_waiting(state.dispatcher, consumer, state.now)
    lowest = _lowest_waiting(state.dispatcher, consumer, state.now)
    grant = None if lowest is None else state.table.by_offset.get(cast("int", lowest.offset))
    if lowest is None or grant is None:
        return lowest
    return replace(lowest, consumer=grant.consumer, until_ms=state.deadline_of(cast("int", lowest.offset)))


def _first_waiting(dispatcher: KeySharedDispatcher[Any], consumer: str, now: int) -> NothingToLease | None:
    """Find the first message that this consumer waits for; None if one can go to it now. O(n)."""
    mine = ownerless = None
    permits = {group.name: group.next_token_ms for group in dispatcher.groups()}
    nothing = NothingToLease(EmptyReason.EMPTY)
    for each in dispatcher.outstanding():
        nothing = NothingToLease(EmptyReason.OTHERS)
        message, why = each, each.blocking
        if why is None or (why.reason in _BEHIND and why.behind is not None):
            continue  # leased; or the older one says why
        if why.reason is BlockReason.GROUP_RATE:
            message = each._replace(deadline_ms=permits[cast("str", why.group)])
        if _only_asking_is_left(dispatcher, message, consumer, now):
            if message.loaded:
                return None
            mine = mine or _unread(message, BlockReason.WINDOW_FULL if _is_full(dispatcher) else BlockReason.LOADING)
        elif why.reason in _UNOWNED:
            ownerless = ownerless or message
        elif mine is None and _belongs_to(dispatcher, message, consumer):
            mine = message
    found = mine or ownerless
    return nothing if found is None else _waiting(found, EmptyReason.WAITING)


def _lowest_waiting(dispatcher: KeySharedDispatcher[Any], consumer: str, now: int) -> NothingToLease | None:
    """Return what the lowest message waits for; None if it can go to this consumer now. There is one. O(1)."""
    message = next(dispatcher.outstanding())
    if _only_asking_is_left(dispatcher, message, consumer, now):
        if message.loaded:
            return None
        message = _unread(message, BlockReason.LOADING)  # it has a slot of its own
    return _waiting(message, EmptyReason.ACK_HOLES)


def _waiting(message: Outstanding, reason: EmptyReason) -> NothingToLease:
    why = message.blocking
    return NothingToLease(reason, message.offset, None if why is None else why.consumer, message.deadline_ms, why)


def _only_asking_is_left(dispatcher: KeySharedDispatcher[Any], message: Outstanding, consumer: str, now: int) -> bool:
    """Return whether a message waits for nothing but that this consumer asks."""
    why = message.blocking
    if why is None:
        return False
    if why.reason is BlockReason.GROUP_RATE and message.deadline_ms is not None and message.deadline_ms <= now:
        return _belongs_to(dispatcher, message, consumer)  # time has brought a permit for the next consumer that asks
    is_line = dispatcher.config.ordering_required
    if is_line and why.reason in _UNOWNED:
        return True  # no consumer holds the line, so the next consumer that asks gets it
    return why.reason is BlockReason.CONSUMER_FULL and (is_line or why.consumer in {None, consumer})


def _unread(message: Outstanding, reason: BlockReason) -> Outstanding:
    """Return a spilled message with what it waits for: a `Load`, or a free slot before that."""
    return message._replace(blocking=Blocking(reason))


def _is_full(dispatcher: KeySharedDispatcher[Any]) -> bool:
    return dispatcher.stats().loaded >= dispatcher.config.window


def _belongs_to(dispatcher: KeySharedDispatcher[Any], message: Outstanding, consumer: str) -> bool:
    if message.key is None or dispatcher.config.ordering_required:
        return True
    return dispatcher.owner(message.key) == consumer
