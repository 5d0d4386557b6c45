"""Why a consumer that asks gets nothing: read off the dispatcher, version by version."""

from typing import Final

from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import BlockReason
from keyshared.explain import Blocking, Outstanding
from keyshared.leasevalues import EmptyReason, Nothing

__all__ = ["explain_empty", "explain_lowest"]

_NOBODY: Final = frozenset({BlockReason.NO_CONSUMER, BlockReason.UNOWNED})


def explain_empty(dispatcher: KeySharedDispatcher, consumer: str) -> Nothing | None:
    """Find the first version that this consumer waits for; None if one can go to it now. O(n)."""
    mine = ownerless = None
    nothing = Nothing(EmptyReason.EMPTY)
    for message in dispatcher.outstanding():
        nothing = Nothing(EmptyReason.OTHERS)
        why = message.blocking
        if why is None or why.reason is BlockReason.OLDER_WAITS:
            continue  # leased; or it is the older one that says why
        if _asks_only(dispatcher, message, consumer):
            if message.loaded:
                return None
            mine = mine or _unread(message, BlockReason.WINDOW_FULL if _is_full(dispatcher) else BlockReason.LOADING)
        elif why.reason in _NOBODY:
            ownerless = ownerless or message
        elif mine is None and _belongs_to(dispatcher, message, consumer):
            mine = message
    found = mine or ownerless
    return nothing if found is None else _waiting(found, EmptyReason.WAITING)


def explain_lowest(dispatcher: KeySharedDispatcher, consumer: str) -> Nothing | None:
    """Say what the lowest version waits for; None if it can go to this consumer now. Something is outstanding. O(1)."""
    message = next(dispatcher.outstanding())
    if _asks_only(dispatcher, message, consumer):
        if message.loaded:
            return None
        message = _unread(message, BlockReason.LOADING)  # it has a slot of its own
    return _waiting(message, EmptyReason.ACK_HOLES)


def _waiting(message: Outstanding, reason: EmptyReason) -> Nothing:
    why = message.blocking
    return Nothing(reason, message.offset, None if why is None else why.consumer, message.deadline_ms, why)


def _asks_only(dispatcher: KeySharedDispatcher, message: Outstanding, consumer: str) -> bool:
    """Whether the version waits for nothing but that this consumer asks."""
    why = message.blocking
    if why is None:
        return False
    if dispatcher.config.ordering_required and why.reason in _NOBODY:
        return True  # nobody holds the line, so whoever asks is next
    in_line = dispatcher.config.ordering_required or why.consumer in {None, consumer}
    return why.reason is BlockReason.CONSUMER_FULL and in_line


def _unread(message: Outstanding, reason: BlockReason) -> Outstanding:
    """The version was spilled: what asks for it gets a `Load` first, or has to wait for a slot."""
    return message._replace(blocking=Blocking(reason))


def _is_full(dispatcher: KeySharedDispatcher) -> bool:
    return dispatcher.stats().loaded >= dispatcher.config.window


def _belongs_to(dispatcher: KeySharedDispatcher, message: Outstanding, consumer: str) -> bool:
    if message.key is None or dispatcher.config.ordering_required:
        return True
    return dispatcher.owner(message.key) == consumer
