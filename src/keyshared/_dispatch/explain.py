"""Why is nothing happening? What a dispatcher can say about a message, and about itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from keyshared._dispatch.endings import Ended, Endings
from keyshared._dispatch.members import Member, MemberState
from keyshared._dispatch.membership import Membership
from keyshared._window.lanes import Consumer, Entry, State
from keyshared.effects import BlockReason
from keyshared.window import InFlightWindow

if TYPE_CHECKING:
    from keyshared._window.served import Scope

__all__ = [
    "Blocking",
    "ConsumerStats",
    "DispatcherStats",
    "Full",
    "GroupStats",
    "KeySession",
    "Outstanding",
    "RestartMark",
    "SessionPhase",
    "describe",
    "gather_stats",
    "why_blocked",
]

_OWN_REASONS: Final = {
    State.DEAD_LETTERING: BlockReason.DEAD_LETTERING,
    State.BLOCKED: BlockReason.BLOCKED,
    State.LOADING: BlockReason.LOADING,
}


class Blocking(NamedTuple):
    """Why an outstanding message is not at a consumer.

    Attributes:
        reason: What it waits for first.
        consumer: The consumer that this is about: who holds the key or, while that drains, something of its drain unit;
            or who has no room. None where it is about nobody.
        behind: The older message of its key that has to move first, if it waits for that or its key is in quarantine;
            or the lowest outstanding one of all, if the token is full.
        group: The group that this is about.
    """

    reason: BlockReason
    consumer: str | None = None
    behind: int | None = None
    group: str | None = None


class SessionPhase(StrEnum):
    """What a session of a key does now."""

    WORKING = "working"  # something of the key is open
    LINGERING = "lingering"  # nothing is, and its consumer keeps the key for a while
    FLUSHING = "flushing"  # it has to end, and its consumer was asked to flush


class KeySession(NamedTuple):
    """A session of a key that has not ended.

    Attributes:
        key: The key; b"" for all messages with ``ordering_required``.
        consumer: Who keeps something for it.
        session: Its number.
        phase: What it does now.
        deadline_ms: When it has lingered, or flushed, for long enough; None if time does not end it.
    """

    key: bytes
    consumer: str
    session: int
    phase: SessionPhase
    deadline_ms: int | None


class Outstanding(NamedTuple):
    """A message that is not settled.

    Attributes:
        offset: The message.
        key: Its key.
        attempt: Deliveries so far.
        failures: How many of them failed.
        loaded: Whether its payload is, or will be, in memory.
        deadline_ms: When its delivery times out or its wait is over; None if it waits for something without an end.
        blocking: What it waits for; None while it is in flight, and where `why_blocked` says None.
        ended: Its last deliveries that have ended, attempt and consumer, oldest first: a late ack of these counts.
        reason: What the last failure that named a reason said.
    """

    offset: int
    key: bytes | None
    attempt: int
    failures: int
    loaded: bool
    deadline_ms: int | None
    blocking: Blocking | None
    ended: tuple[Ended, ...] = ()
    reason: str | None = None


def describe(window: InFlightWindow, membership: Membership, endings: Endings, entry: Entry) -> Outstanding:
    """What is known of a message that is not settled. O(log n)."""
    return Outstanding(
        offset=entry.offset,
        key=entry.key,
        attempt=entry.attempt,
        failures=endings.failures_of(entry.offset),
        loaded=entry.state != State.SPILLED,
        deadline_ms=entry.deadline,
        blocking=why_blocked(window, membership, endings, entry),
        ended=endings.ended(entry.offset),
        reason=endings.reason_of(entry.offset),
    )


def why_blocked(  # noqa: C901, PLR0911  # one return for each reason
    window: InFlightWindow, membership: Membership, endings: Endings, entry: Entry
) -> Blocking | None:
    """What an outstanding message waits for; None if it is in flight, or goes out in a call that is due. O(log n)."""
    if entry.state == State.IN_FLIGHT:
        return None
    if entry.state == State.DELAYED or (entry.state == State.SPILLED and entry.deadline is not None):
        if entry.attempt == 0:
            return Blocking(BlockReason.NOT_BEFORE)
        return Blocking(BlockReason.POSTPONED if endings.is_postponed(entry) else BlockReason.RETRY_WAIT)
    own = _OWN_REASONS.get(State(entry.state))
    if own is not None:
        return Blocking(own, entry.consumer.name if own is BlockReason.LOADING and entry.consumer else None)
    lane = window.lane_of(entry)
    first, holder = lane.candidate, None if lane.holder is None else lane.holder.name
    behind = None if first is None or first is entry else first.offset
    if lane.key in window.quarantined:
        return Blocking(BlockReason.QUARANTINED, holder, behind)
    if behind is not None:
        return Blocking(BlockReason.OLDER_WAITS, behind=behind)
    if lane.key is None:
        return _why_keyless(window, entry)
    owner = window.owner_of(lane)
    if owner is None:
        unowned = membership.is_only_unowned(lane.key)
        return Blocking(BlockReason.UNOWNED if unowned else BlockReason.NO_CONSUMER)
    if lane.holder is owner and lane.open >= window.turn_limit(lane):
        return Blocking(BlockReason.KEY_IN_FLIGHT, holder)
    elsewhere = window.holder_elsewhere(lane, owner)
    if elsewhere is not None:
        return Blocking(BlockReason.DRAINING, elsewhere.name)
    refused = window.gate.why(lane, owner)
    if refused is not None:
        return cast("Blocking", refused)
    if window.is_held(entry):
        return Blocking(BlockReason.TOKEN_FULL, behind=window.cursor.resume_offset)
    return _why_not_now(window, entry, owner)


def _why_keyless(window: InFlightWindow, entry: Entry) -> Blocking | None:
    eligible = [consumer for consumer in window.consumers.values() if consumer.keyless]
    if not eligible:
        return Blocking(BlockReason.NO_CONSUMER)
    if window.is_held(entry):
        return Blocking(BlockReason.TOKEN_FULL, behind=window.cursor.resume_offset)
    if all(_is_inactive(consumer) for consumer in eligible):
        return Blocking(BlockReason.CONSUMER_INACTIVE)
    if any(consumer.free > 0 for consumer in eligible):
        return _why_no_room(window, entry) or (None if window.wants_wake else Blocking(BlockReason.SUBSCRIPTION_FULL))
    return Blocking(BlockReason.CONSUMER_FULL)


def _why_not_now(window: InFlightWindow, entry: Entry, owner: Consumer) -> Blocking | None:
    group = window.closed_group(entry.lane)
    if group is not None:
        return Blocking(_why_closed(group), group=group.name)
    if _is_inactive(owner):
        return Blocking(BlockReason.CONSUMER_INACTIVE, owner.name)
    if owner.free <= 0:
        return Blocking(BlockReason.CONSUMER_FULL, owner.name)
    return _why_no_room(window, entry) or (
        None if window.wants_wake else Blocking(BlockReason.CONSUMER_FULL, owner.name)
    )


def _why_no_room(window: InFlightWindow, entry: Entry) -> Blocking | None:
    """What else there is no room for if a consumer has room; of both, a slot comes before the subscription."""
    is_full = window.is_subscription_full
    # While the subscription is full, what is to be loaded stands where it waits for that.
    needs_slot = entry.lane.listed is window.starved or (is_full and entry.state == State.SPILLED)
    if needs_slot and window.loaded >= window.capacity:
        return Blocking(BlockReason.WINDOW_FULL)
    return Blocking(BlockReason.SUBSCRIPTION_FULL) if is_full else None


def _why_closed(group: "Scope") -> BlockReason:
    if group.paused:
        return BlockReason.GROUP_PAUSED
    return BlockReason.GROUP_RATE if group.tokens == 0 else BlockReason.GROUP_FULL


def _is_inactive(consumer: Consumer) -> bool:
    return isinstance(consumer, Member) and consumer.state is not MemberState.ACTIVE


class RestartMark(NamedTuple):
    """What a restart would redo, as a mark: two that are equal say that nothing was settled or offered in between.

    Attributes:
        last: Greatest offset offered so far, None before any.
        outstanding: How many offered messages are not settled.
    """

    last: int | None
    outstanding: int


class Full(StrEnum):
    """Which limit leaves no free slot."""

    WINDOW = "window"
    TRACKED = "tracked"
    LOOK_AHEAD = "look_ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """What one consumer does now.

    Attributes:
        state: Whether it is active, inactive or draining.
        limit: How many deliveries it may have open while active.
        in_flight: How many it has open.
        loading: How many more are being loaded for it.
        ready_keys: Keys whose next message waits for room at it.
    """

    state: MemberState
    limit: int
    in_flight: int
    loading: int
    ready_keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherStats:
    """One look at a dispatcher; every figure is read from the one state there is.

    Attributes:
        outstanding: Messages offered and not settled.
        in_flight: Those that are at a consumer.
        loaded: Those whose payload is, or will be, in memory.
        spilled: Those whose payload was dropped, and no `Load` has asked for it again yet.
        delayed: Those that wait for an instant with their payload in memory: their retry, or the end of a delay. One
            that waits for its first delivery and is spilled counts as spilled.
        dead_lettering: Those whose dead letter is being written.
        blocked: Those that wait for `unblock` or `park`.
        keys: Keys that have an outstanding message; with ``ordering_required`` all of them, and none, are one.
        quarantined_keys: Keys whose messages go to the dead-letter store.
        ownerless_keys: Keys that nobody owns.
        draining_keys: Keys that wait for the end of deliveries of their drain unit at others than their owner.
        starved_keys: Keys whose turn has come but for whom no slot of the window is free.
        keyless_waiting: Messages without a key that no consumer has room for.
        free_slots: Messages that may be offered now.
        paused_by: Which limit it is that leaves no free slot, None while there is one.
        oldest_outstanding: Lowest outstanding offset, or None.
        consumers: Every consumer by name, in the order of joining.
    """

    outstanding: int
    in_flight: int
    loaded: int
    spilled: int
    delayed: int
    dead_lettering: int
    blocked: int
    keys: int
    quarantined_keys: int
    ownerless_keys: int
    draining_keys: int
    starved_keys: int
    keyless_waiting: int
    free_slots: int
    paused_by: Full | None
    oldest_outstanding: int | None
    consumers: dict[str, ConsumerStats]


class GroupStats(NamedTuple):
    """What a group is like at this moment.

    Attributes:
        name: Its name; empty for the keys that are in no other group.
        weight: How many turns in a row its keys get.
        max_in_flight: How many of its deliveries may be open; None for no limit.
        open: How many are.
        ready: Keys that wait for their turn, for room, or for the group to open.
        tokens: How many of its deliveries may begin before `handle_timeout` brings more; None without a rate.
        paused: Whether `pause_group` holds it.
        next_token_ms: When time has brought it another token; None while it has one, or without a rate.
    """

    name: str
    weight: int
    max_in_flight: int | None
    open: int
    ready: int
    tokens: int | None
    paused: bool
    next_token_ms: int | None = None


def gather_stats(window: InFlightWindow, members: Mapping[str, Member]) -> DispatcherStats:
    """Read the figures. O(consumers), and O(what has come back beside the log)."""
    beside = window.beside
    outstanding = window.cursor.outstanding + len(beside)
    lowest = [window.cursor.resume_offset] if window.cursor.outstanding else []
    return DispatcherStats(
        outstanding=outstanding,
        in_flight=window.loaded - window.waiting,
        loaded=window.loaded,
        spilled=outstanding - window.loaded,
        delayed=window.held[State.DELAYED],
        dead_lettering=window.held[State.DEAD_LETTERING],
        blocked=window.held[State.BLOCKED],
        keys=len(window.lanes),
        quarantined_keys=len(window.quarantined),
        ownerless_keys=len(window.ownerless),
        draining_keys=len(window.draining),
        starved_keys=len(window.starved),
        keyless_waiting=len(window.shared),
        free_slots=window.free_slots,
        paused_by=_full(window),
        oldest_outstanding=min((offset for offset in (*lowest, *beside) if offset is not None), default=None),
        consumers={
            name: ConsumerStats(
                state=member.state,
                limit=member.quota,
                in_flight=len(member.open),
                loading=len(member.reserved),
                ready_keys=len(member.ready),
            )
            for name, member in members.items()
        },
    )


def _full(window: InFlightWindow) -> Full | None:
    if window.free_slots:
        return None
    if window.memory_left <= 0:
        return Full.WINDOW
    return Full.TRACKED if window.cursor.outstanding >= window.max_tracked else Full.LOOK_AHEAD
