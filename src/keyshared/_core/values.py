"""The values that calls take and queries return."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeAlias

from keyshared._core.records import ConsumerState
from keyshared.effects import BlockReason, Ending, Item_co

__all__ = [
    "MAX_REASON",
    "Blocking",
    "ConsumerStats",
    "DispatcherStats",
    "Full",
    "GroupStats",
    "Health",
    "KeySession",
    "MetricRow",
    "Outstanding",
    "Receipt",
    "RestartMark",
    "SessionPhase",
    "StoredLetter",
]

Receipt: TypeAlias = tuple[int, str, int]
"""Offset, consumer and attempt: they name one delivery."""

MAX_REASON: Final = 500
"""Characters that the reason of a failure may have: it is kept and stored for each message that has one."""

MetricRow: TypeAlias = tuple[str, tuple[tuple[str, str], ...], int | float]
"""Name, labels and value of one figure."""

_MS: Final = 1_000


class StoredLetter(NamedTuple, Generic[Item_co]):
    """A dead letter that comes back: the fields of its `DeadLetter`.

    Attributes:
        offset: The message's offset, under which it comes back.
        attempt: Its last delivery, from 0 to below 2**63 - 2**31; the next deliveries have higher numbers.
        item: A passenger that comes back with its `Deliver`.
    """

    offset: int
    attempt: int
    item: Item_co = None  # type: ignore[assignment]  # an item that was not given is None, whatever type the items have


class Blocking(NamedTuple):
    """Why an outstanding message is not at a consumer.

    Attributes:
        reason: What it waits for first.
        consumer: The consumer that this is about: the holder of the key or, while that drains, of its drain unit; or
            the consumer without capacity. None where it is about no single consumer.
        behind: The older message of its key that has to move first, if it waits for that or its key is in quarantine;
            or the lowest outstanding message of all, if there are too many ack holes.
        group: The group that this is about.
    """

    reason: BlockReason
    consumer: str | None = None
    behind: int | None = None
    group: str | None = None


class SessionPhase(StrEnum):
    """The phase of a session of a key."""

    WORKING = "working"  # a delivery of the key is open
    LINGERING = "lingering"  # none is, and its consumer keeps the key for a while
    FLUSHING = "flushing"  # it has to end, and its consumer was asked to flush


class KeySession(NamedTuple):
    """A session of a key that has not ended.

    Attributes:
        key: The key.
        consumer: The consumer that keeps state for it.
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
        attempt: Number of its last delivery, 0 before the first.
        failures: How many of its deliveries failed.
        loaded: Whether its payload is, or will be, in memory.
        deadline_ms: When its delivery times out or its wait is over; None if it waits for something without an end.
        blocking: What it waits for; None while it is in flight.
        ended: Its last deliveries that have ended, attempt and consumer, oldest first: a late ack of these counts.
        reason: The reason of the last failure that named one.
    """

    offset: int
    key: bytes | None
    attempt: int
    failures: int
    loaded: bool
    deadline_ms: int | None
    blocking: Blocking | None
    ended: tuple[tuple[int, str], ...] = ()
    reason: str | None = None


class RestartMark(NamedTuple):
    """The work that a restart would redo, as a mark: while two are equal, nothing was settled or offered in between.

    Attributes:
        last: Greatest offset offered so far, None before any.
        outstanding: How many offered messages are not settled.
    """

    last: int | None
    outstanding: int


class Full(StrEnum):
    """The limit that leaves no free slot."""

    WINDOW = "window"
    TRACKED = "tracked"
    LOOK_AHEAD = "look_ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """Figures of one consumer.

    Attributes:
        state: Whether it is active, inactive or draining.
        limit: How many deliveries it may have open while active.
        in_flight: How many it has open.
        loading: How many more are being loaded for it.
        ready_keys: Keys whose next message waits for capacity at it.
    """

    state: ConsumerState
    limit: int
    in_flight: int
    loading: int
    ready_keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherStats:
    """Figures of a dispatcher at the instant of its last call.

    Attributes:
        outstanding: Messages offered and not settled.
        in_flight: Those that are at a consumer.
        loaded: Those whose payload is, or will be, in memory.
        spilled: Those whose payload was dropped, and that no `Load` has asked for again yet.
        delayed: Those that wait for an instant with their payload in memory: for their retry, or the end of a delay.
        dead_lettering: Those whose dead letter is being written, with their payload in memory.
        blocked: Those that wait for `unblock` or `park`, with their payload in memory.
        keys: Keys that have an outstanding message.
        quarantined_keys: Keys whose messages go to the dead-letter store.
        ownerless_keys: Keys that no consumer owns.
        draining_keys: Keys that wait for deliveries of their drain unit to end at other consumers than their owner.
        starved_keys: Keys whose turn has come but for which no slot of the window is free.
        keyless_waiting: Messages without a key for which no consumer has capacity.
        free_slots: Messages that may be offered now.
        paused_by: The limit that leaves no free slot, None while there is one.
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
    """Figures of a group of keys.

    Attributes:
        name: Its name; empty for the keys that are in no other.
        weight: How many turns in a row its keys get.
        max_in_flight: How many of its deliveries may be open; None for no limit.
        open: How many are.
        ready: Keys that wait for their turn, for capacity, or for the group to open.
        tokens: Permits of its rate: deliveries that may begin before `handle_timeout` brings more; None without a rate.
        paused: Whether `pause_group` holds it.
        next_token_ms: When time brings the next permit; None while there is one, or without a rate.
    """

    name: str
    weight: int
    max_in_flight: int | None
    open: int
    ready: int
    tokens: int | None
    paused: bool
    next_token_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Figures of a dispatcher, for monitoring, at the instant of its last call.

    Ages count from the offer, to within one second, rounded up. Counts are since the start and survive a snapshot.

    Attributes:
        oldest_ms: Age of the oldest outstanding message; None if nothing is outstanding, or without ``measure``.
        longest_blocked_ms: Age of the oldest outstanding message that is not open; None likewise.
        blocked_offset: The offset of that message; None if there is none.
        busiest: Keys with the most outstanding messages, with their number; of equals the first by its bytes.
        ended: How many messages were settled, by how they ended; None without ``measure``.
        delivered: How many deliveries were made; None likewise.
        failed: How many of them failed; None likewise.
    """

    oldest_ms: int | None
    longest_blocked_ms: int | None
    blocked_offset: int | None
    busiest: tuple[tuple[bytes, int], ...]
    ended: Mapping[Ending, int] | None
    delivered: int | None
    failed: int | None

    def rows(self) -> list[MetricRow]:
        """Return the figures under the names that docs/howto-health.md lists, without those that are None.

        Returns:
            Name, labels and value of each, in the form of OpenMetrics: times in seconds, counters with ``_total``. A
            key is written as text, with escapes for bytes that are no UTF-8.

        Example:
            >>> health = Health(oldest_ms=1_500, longest_blocked_ms=None, blocked_offset=None, busiest=((b"k", 2),),
            ...     ended=None, delivered=None, failed=None)
            >>> health.rows()
            [('keyshared_oldest_age_seconds', (), 1.5), ('keyshared_key_outstanding', (('key', 'k'),), 2)]
        """
        ages = [
            ("keyshared_oldest_age_seconds", self.oldest_ms),
            ("keyshared_blocked_age_seconds", self.longest_blocked_ms),
        ]
        counts = [("keyshared_deliveries_total", self.delivered), ("keyshared_failures_total", self.failed)]
        return [
            *((name, (), age / _MS) for name, age in ages if age is not None),
            *(("keyshared_key_outstanding", (("key", _text(key)),), number) for key, number in self.busiest),
            *(("keyshared_settled_total", (("how", how.value),), number) for how, number in (self.ended or {}).items()),
            *((name, (), count) for name, count in counts if count is not None),
        ]


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
