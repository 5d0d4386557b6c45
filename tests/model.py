"""The dispatcher written for reading: the executable specification that the fast one is compared with.

Two collections hold everything: `messages` (the outstanding ones, by offset) and `listings` (which lane waits where,
oldest first: the position in this list *is* the sequence number). Every other fact is found by scanning these two: who
holds a key, how much room a consumer has, how many slots are free. That is slow, and nothing in it can go stale.

A *lane* is the run of outstanding messages that must stay in order: those of one key; a message without a key is a lane
of its own; with ``ordering_required`` all messages have one key.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from tests.model_groups import ALL, GroupRow, ModelScopes
from tests.model_sessions import Session, SessionRule

from keyshared.config import DispatcherConfig, DrainUnit, GroupLimits, OnEvict, Poison, Rules, Unmatched
from keyshared.dispatcher import Health, KeySession
from keyshared.effects import (
    Blocked,
    BlockReason,
    Call,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    DropReason,
    Effect,
    Ending,
    Evicted,
    Ignored,
    IgnoredReason,
    KeyEnd,
    KeyEnding,
    Load,
    Released,
    ReleaseReason,
    Resumed,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.errors import (
    ArgumentError,
    ClockError,
    ConfigError,
    ConsumerExistsError,
    KeyFullError,
    KeyTypeError,
    LookAheadFullError,
    OffsetOrderError,
    RedriveTooEarlyError,
    SnapshotError,
    UnknownConsumerError,
    UnmatchedKeyError,
    WindowFullError,
)

__all__ = ["ModelDispatcher", "Placement", "Position", "Unit", "Why"]

Lane: TypeAlias = bytes | int
"""A key, or the offset of a message without one."""

Unit: TypeAlias = bytes | int | str
"""What is handed over as a whole: a lane, a slot, or a run of slots."""

FAILURES = frozenset(
    {
        ReleaseReason.NACKED,
        ReleaseReason.REJECTED,
        ReleaseReason.ACK_TIMEOUT,
        ReleaseReason.EVICTED,
        ReleaseReason.SESSION_LOST,
    }
)
BREAKS_A_BATCH = frozenset(
    {ReleaseReason.NACKED, ReleaseReason.REJECTED, ReleaseReason.RELEASED, ReleaseReason.ACK_TIMEOUT}
)
NEVER_CHANGES = frozenset({bool, bytes, int, type(None), str, tuple, DispatcherConfig})
SNAPSHOT_VERSION = 2
REMEMBERED_DELIVERIES = 8


class Ranges(Protocol):
    """What the model asks of a placement's value: the owner of a key, and who would own it after that one."""

    @property
    def runs(self) -> Iterable[tuple[int, int, str | None]]: ...
    def slot_of(self, key: bytes) -> int: ...
    def owner(self, slot: int) -> str | None: ...
    def walk(self, slot: int) -> Iterable[str]: ...


class Placement(Protocol):
    """What the model asks of a placement."""

    @property
    def ranges(self) -> Ranges: ...
    @property
    def consumers(self) -> Sequence[str]: ...
    def add(self, name: str, *, weight: int = 1) -> object: ...
    def remove(self, name: str) -> object: ...
    def set_weight(self, name: str, weight: int) -> object: ...
    def copy(self) -> Self: ...


class State(StrEnum):
    """Where an outstanding message stands."""

    QUEUED = "queued"
    SPILLED = "spilled"
    LOADING = "loading"
    IN_FLIGHT = "in_flight"  # the only state that counts as open
    DELAYED = "delayed"  # until its deadline
    DEAD_LETTERING = "dead_lettering"
    BLOCKED = "blocked"


class Status(StrEnum):
    """Where a consumer stands."""

    ACTIVE = "active"
    INACTIVE = "inactive"  # keeps its keys for the grace period
    DRAINING = "draining"  # out of the placement, finishing what it has


class Queue(StrEnum):
    """Where a lane can wait."""

    READY = "ready"  # for room at its owner
    SHARED = "shared"  # keyless: for room at anybody
    OWNERLESS = "ownerless"
    DRAINING = "draining"
    KEPT_BACK = "kept_back"  # for the end of a session of its key
    LOAD = "load"  # for a slot of the window


class Listing(NamedTuple):
    """One lane waiting in one queue."""

    lane: Lane
    queue: Queue
    consumer: str | None = None  # of a ready queue


class Position(NamedTuple):
    """What a token says: where the next life reads on, and what is settled above that."""

    resume: int | None
    safe: int | None
    settled: tuple[tuple[int, int], ...] = ()  # half-open stretches

    def knows(self, offset: int) -> bool:
        """Whether the offset lies in a stretch."""
        return any(start <= offset < stop for start, stop in self.settled)


class Why(NamedTuple):
    """The answer of `ModelDispatcher.why_blocked`."""

    reason: BlockReason
    holder: str | None = None  # who is waited for, if the lane drains: of several the one who joined first
    group: str | None = None  # which one is closed


class Copied:
    """What is copied before each call: a copy of its members, in a third of the time that it takes to ask how."""

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin


@dataclass
class Message(Copied):
    """An outstanding message."""

    offset: int
    key: bytes | None
    item: object
    state: State = State.QUEUED
    attempt: int = 0
    failures: int = 0
    consumer: str | None = None  # of the last delivery
    deadline: int | None = None  # of the ack or of the retry wait
    reserved_by: str | None = None  # whose room a LOADING message takes
    ended: tuple[tuple[int, str], ...] = ()  # attempt and consumer of deliveries that were not acked
    acked_late: bool = False
    gone: bool = False
    redriven: bool = False  # it came back, and the position does not know it
    postponed: bool = False  # what it waits for, while it is delayed: the end of a postponement, or a retry
    reason: str | None = None  # what the last failure that named one said
    since: int | None = None  # when it was offered, to within a second
    dropped: bool = False  # it is not queued, and its payload is spilled

    @property
    def has_slot(self) -> bool:
        """Whether its payload takes a slot of the window."""
        return self.state != State.SPILLED and not self.dropped


@dataclass
class Consumer(Copied):
    """A connected or draining consumer."""

    name: str
    filters: tuple[str, ...]
    weight: int | None
    limit: int
    status: Status = Status.ACTIVE
    deadline: int | None = None  # of the grace period or of the drain


@dataclass
class Outbox:
    """The effects of one call, by kind, because that is the order in which they are returned."""

    notices: list[Effect] = field(default_factory=list)
    spilled: list[int] = field(default_factory=list)  # offsets
    done: list[Effect] = field(default_factory=list)
    sessions: list[Effect] = field(default_factory=list)
    dead_letters: list[Effect] = field(default_factory=list)
    loads: list[Effect] = field(default_factory=list)
    deliveries: list[Effect] = field(default_factory=list)


def as_key(key: object) -> bytes | None:
    """Turn what the caller calls a key into bytes."""
    if isinstance(key, str):
        return key.encode()
    if key is None or isinstance(key, bytes):
        return key
    raise KeyTypeError(type(key).__name__)


def matches(pattern: str, text: str) -> bool:
    """Whether a glob of ``*`` and ``?`` matches the whole text."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return matches(pattern[1:], text) or (bool(text) and matches(pattern, text[1:]))
    return bool(text) and pattern[0] in {"?", text[0]} and matches(pattern[1:], text[1:])


def is_int(value: object, at_least: int) -> bool:
    """Whether the value is a whole number of at least this size."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


def require_int(parameter: str, value: object, at_least: int) -> None:
    """Refuse anything but a whole number of at least this size."""
    if not is_int(value, at_least):
        raise ArgumentError(parameter, value, f"be an int of at least {at_least}")


def require_reason(reason: object) -> None:
    """Refuse what is no text, or too long."""
    if reason is not None and (not isinstance(reason, str) or len(reason) > 500):
        raise ArgumentError("reason", reason, "be a str of at most 500 characters, or None")


class ModelDispatcher:
    """The slow, obvious dispatcher."""

    def __init__(
        self,
        placement: Placement,
        config: DispatcherConfig | None = None,
        *,
        rules: Rules | None = None,
        resume_from: Position | None = None,
    ) -> None:
        self.config = config or DispatcherConfig()
        self.rules = rules
        self.has_groups = bool(rules and rules.group_of)
        self.has_total = self.config.max_in_flight is not None or self.config.max_ack_holes is not None
        self.has_scopes = self.has_groups or self.has_total
        limits = self.config.group if self.has_groups else GroupLimits()
        self.scopes = ModelScopes(rules, limits, self.config.max_in_flight)
        self.placement = placement.copy()
        self.now = 0
        self.epoch = 0
        self.messages: dict[int, Message] = {}  # the outstanding ones, in offset order
        self.consumers: list[Consumer] = []  # in join order
        self.listings: list[Listing] = []  # in sequence order
        self.drain_deadlines: dict[Lane, int] = {}
        self.turn = self.config.batch_per_key  # how many messages of a key go out at once
        self.quarantined: set[bytes] = set()
        self.settled: dict[Ending, int] = {}
        self.delivered = self.failed = 0
        self.noted: int | None = None  # when the last offer of which the time was noted came
        self.noted_last: int | None = None
        self.earlier = resume_from or Position(None, None)  # what is known of earlier lives
        if self.earlier.resume is None:
            self.earlier = Position(self.config.start, None)
        self.reported_cursor: int | None = self.earlier.safe
        self.offered: list[int] = [] if self.reported_cursor is None else [self.reported_cursor]
        self.paused = False
        self.sessions_of_lanes: dict[Lane, Session] = {}
        self.last_session = 0
        self.replaying = self.earlier.resume is not None  # until the first offset that is not known already
        self.paused = self.free_slots == 0
        self._begin()

    # --- inputs: messages -------------------------------------------------------------------------------------------

    def offer(
        self,
        offset: int,
        key: bytes | str | None,
        item: object = None,
        *,
        not_before_ms: int | None = None,
        now_ms: int | None = None,
    ) -> list[Effect]:
        return self._call(now_ms, lambda: self._offer(offset, key, item, not_before_ms))

    def offer_many(self, messages: Iterable[tuple[Any, ...]], *, now_ms: int | None = None) -> list[Effect]:
        def offer_each() -> None:
            new = [message for message in messages if self._is_new(message[0])]
            if len(new) > self.free_slots:
                raise self._full_error()
            fresh = [Message(offset, self._key(key), item) for offset, key, item, *_ in new]
            skips = self.config.unmatched == Unmatched.SKIP
            self._check_waiting([each for each in fresh if not (skips and self._is_unmatched(each))])
            for message in messages:
                self._offer(*message)
                self._tell_spilled()  # as after a call of its own

        return self._call(now_ms, offer_each)

    def ack(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect]:
        return self._call(now_ms, lambda: self._ack(offset, consumer, attempt), Call.ACK)

    def ack_many(self, receipts: Iterable[tuple[int, str, int]], *, now_ms: int | None = None) -> list[Effect]:
        def ack_each() -> None:
            for receipt in receipts:
                self._ack(*receipt)
                self._sessions.look()  # as after a call of its own
                self._tell_spilled()
                self.paused = self.paused or self.free_slots == 0  # as after a call of its own

        return self._call(now_ms, ack_each, Call.ACK)

    def ack_through(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect]:
        message = self.messages.get(offset)
        if (
            not message
            or message.state != State.IN_FLIGHT
            or (message.consumer, message.attempt) != (consumer, attempt)
        ):
            return self.ack(offset, consumer, attempt, now_ms=now_ms)
        older = [each for each in self._open_in(self._lane(message)) if each.offset <= offset]
        receipts = [(each.offset, each.consumer or "", each.attempt) for each in older]
        return self.ack_many(receipts, now_ms=now_ms)

    def nack(
        self,
        offset: int,
        consumer: str,
        attempt: int,
        *,
        delay_ms: int | None = None,
        reason: str | None = None,
        now_ms: int | None = None,
    ) -> list[Effect]:
        def nack() -> None:
            if delay_ms is not None:
                require_int("delay_ms", delay_ms, 0)
            require_reason(reason)
            if message := self._current(offset, consumer, attempt):
                self._note_reason(message, reason)
                self._release(message, ReleaseReason.NACKED, delay_ms)
            self._wake()

        return self._call(now_ms, nack, Call.NACK)

    def reject(
        self, offset: int, consumer: str, attempt: int, *, reason: str | None = None, now_ms: int | None = None
    ) -> list[Effect]:
        def reject() -> None:
            require_reason(reason)
            if message := self._current(offset, consumer, attempt):
                self._note_reason(message, reason)
                self._release(message, ReleaseReason.REJECTED)
            self._wake()

        return self._call(now_ms, reject, Call.REJECT)

    def release(
        self, offset: int, consumer: str, attempt: int, *, delay_ms: int = 0, now_ms: int | None = None
    ) -> list[Effect]:
        def release() -> None:
            require_int("delay_ms", delay_ms, 0)
            if message := self._current(offset, consumer, attempt):
                self._release(message, ReleaseReason.RELEASED, delay_ms)
            self._wake()

        return self._call(now_ms, release, Call.RELEASE)

    def extend(
        self, offset: int, consumer: str, attempt: int, *, extend_ms: int | None = None, now_ms: int | None = None
    ) -> list[Effect]:
        def extend() -> None:
            if extend_ms is not None:
                require_int("extend_ms", extend_ms, 1)
            message = self._current(offset, consumer, attempt)
            longer = self.config.ack_timeout_ms if extend_ms is None else extend_ms
            if message and longer is not None:
                batch = self._open_in(self._lane(message)) if self.config.batch_per_key > 1 else [message]
                for each in batch:
                    each.deadline = self.now + longer

        return self._call(now_ms, extend, Call.EXTEND)

    def dead_lettered(self, offset: int, *, now_ms: int | None = None) -> list[Effect]:
        def dead_lettered() -> None:
            message = self._expect(offset, State.DEAD_LETTERING, IgnoredReason.NOT_DEAD_LETTERING)
            if message and self.config.archive_blocked:
                self._block(message)
            elif message:
                self._settle(message, Ending.DEAD_LETTERED)
            self._wake()

        return self._call(now_ms, dead_lettered, Call.DEAD_LETTERED)

    def loaded(self, offset: int, item: object, *, now_ms: int | None = None) -> list[Effect]:
        def loaded() -> None:
            if message := self._expect(offset, State.LOADING, IgnoredReason.NOT_LOADING):
                self._loaded(message, item)
            self._wake()

        return self._call(now_ms, loaded, Call.LOADED)

    def redrive(
        self, key: bytes | str | None, letters: Iterable[tuple[int, int, object]], *, now_ms: int | None = None
    ) -> list[Effect]:
        return self._call(now_ms, lambda: self._redrive(self._key(key), list(letters)), Call.REDRIVE)

    def unblock(self, key: bytes | str | None, *, now_ms: int | None = None) -> list[Effect]:
        def unblock() -> None:
            wanted = self._key(key)
            if wanted is not None and wanted in self.quarantined:
                self.quarantined.remove(wanted)
                self.touched.append(wanted)
                for message in [*self._all(State.QUEUED), *self._all(State.LOADING), *self._all(State.SPILLED)]:
                    if message.key == wanted and (message.state != State.SPILLED or message.deadline is None):
                        message.failures = 0
            for message in self._all(State.BLOCKED):
                if message.key == wanted:
                    message.failures = 0
                    self._queue(message)
            self._wake()

        return self._call(now_ms, unblock)

    def unblock_offset(self, offset: int, *, reset_failures: bool = True, now_ms: int | None = None) -> list[Effect]:
        def unblock_offset() -> None:
            if message := self._expect(offset, State.BLOCKED, IgnoredReason.NOT_BLOCKED):
                message.failures = 0 if reset_failures else message.failures
                self._queue(message)
            self._wake()

        return self._call(now_ms, unblock_offset, Call.UNBLOCK_OFFSET)

    def park(self, offset: int, *, now_ms: int | None = None) -> list[Effect]:
        def park() -> None:
            if message := self._expect(offset, State.BLOCKED, IgnoredReason.NOT_BLOCKED):
                self.out.notices.append(Settled(offset, message.key, SettleReason.PARKED))
                self._settle(message, Ending.PARKED)
            self._wake()

        return self._call(now_ms, park, Call.PARK)

    def gone(self, offset: int, *, now_ms: int | None = None) -> list[Effect]:
        return self._call(now_ms, lambda: self._gone([offset]))

    def truncate(self, before: int, *, now_ms: int | None = None) -> list[Effect]:
        return self._call(now_ms, lambda: self._gone([offset for offset in self._log() if offset < before]))

    def flushed(self, key: bytes | str | None, session: int, *, now_ms: int | None = None) -> list[Effect]:
        def flushed() -> None:
            wanted = self._key(key)
            if wanted is None:
                raise ArgumentError("key", key, "be a key")
            require_int("session", session, 1)
            known = self._sessions.flushing(wanted, session)
            if known and known.ending:
                self._sessions.end(known, known.ending)
            else:
                self.out.notices.append(Ignored(None, None, session, Call.FLUSHED, IgnoredReason.NOT_FLUSHING))
            self._wake()

        return self._call(now_ms, flushed)

    # --- inputs: consumers ------------------------------------------------------------------------------------------

    def add_consumer(
        self,
        name: str,
        *,
        filters: Sequence[str] = (),
        weight: int | None = None,
        limit: int | None = None,
        now_ms: int | None = None,
    ) -> list[Effect]:
        def add() -> None:
            old = self._find(name)
            self._check_filters(filters)
            if old and old.status != Status.DRAINING:
                raise ConsumerExistsError(name)
            most = self.config.max_in_flight_per_consumer if limit is None else limit
            require_int("limit", most, 0)
            if old:
                self._forget(old, ReleaseReason.REMOVED)
            self.consumers.append(Consumer(name, tuple(filters), weight, most))
            self._join_placement()
            self.freed.append(name)
            self._wake(moved=True)

        return self._call(now_ms, add)

    def remove_consumer(self, name: str, drain_ms: int | None = 0, *, now_ms: int | None = None) -> list[Effect]:
        def remove() -> None:
            if drain_ms is not None:
                require_int("drain_ms", drain_ms, 0)
            if consumer := self._find(name):
                moved = consumer.status != Status.DRAINING
                self._leave_placement(consumer)
                if drain_ms == 0:
                    self._forget(consumer, ReleaseReason.REMOVED)
                elif not self._open_of(name) and not self._sessions.holds(name):
                    self.consumers.remove(consumer)
                else:
                    consumer.status = Status.DRAINING
                    consumer.deadline = None if drain_ms is None else self.now + drain_ms
                self._wake(moved=moved)

        return self._call(now_ms, remove)

    def set_inactive(self, name: str, *, now_ms: int | None = None) -> list[Effect]:
        def set_inactive() -> None:
            consumer = self._find(name)
            if consumer and consumer.status == Status.ACTIVE:
                grace = self.config.inactive_grace_ms
                consumer.status = Status.INACTIVE
                consumer.deadline = None if grace is None else self.now + grace

        return self._call(now_ms, set_inactive)

    def set_active(self, name: str, *, resumed: bool = False, now_ms: int | None = None) -> list[Effect]:
        def set_active() -> None:
            consumer = self._connected(name)
            if not resumed:
                for message in self._open_of(name):
                    self._release(message, ReleaseReason.SESSION_LOST)
                self._sessions.lose(name)
            consumer.status = Status.ACTIVE
            consumer.deadline = None
            self.freed.append(name)
            self._wake()

        return self._call(now_ms, set_active)

    def set_limit(self, name: str, limit: int, *, now_ms: int | None = None) -> list[Effect]:
        def set_limit() -> None:
            require_int("limit", limit, 0)
            self._connected(name).limit = limit
            self.freed.append(name)
            self._wake()

        return self._call(now_ms, set_limit)

    def pull(
        self,
        name: str,
        most: int,
        *,
        only: int | None = None,
        per_key: int | None = None,
        now_ms: int | None = None,
    ) -> list[Effect]:
        def pull() -> None:
            require_int("most", most, 1)
            if per_key is not None and not (is_int(per_key, 1) and per_key <= self.config.batch_per_key):
                raise ArgumentError("per_key", per_key, "be from 1 to batch_per_key")
            if only is not None and not isinstance(only, int):
                raise ArgumentError("only", only, "be an int")
            consumer = self._connected(name)
            limit = consumer.limit
            only_one = only is not None or self.scopes.paused
            self.turn = 1 if only_one else per_key or self.config.batch_per_key
            wanted, holds = only, self.scopes.paused
            if holds:
                lowest = min(self._log(), default=None)
                wanted = lowest if lowest is not None and only in {None, lowest} else -1
            consumer.limit += (most if wanted is None else 1) - self._room(consumer)
            if wanted is None:
                self._serve(consumer)
            for listing in list(self.listings):
                message = self._candidate(listing.lane)
                if message and message.offset == wanted and consumer.status == Status.ACTIVE:
                    self._take_only(listing, message, consumer, past_scopes=holds)
            if consumer.status == Status.ACTIVE:
                self._relieve()
            consumer.limit = limit
            self.turn = self.config.batch_per_key

        return self._call(now_ms, pull)

    def set_filters(self, name: str, filters: Sequence[str], *, now_ms: int | None = None) -> list[Effect]:
        def set_filters() -> None:
            self._check_filters(filters)
            self._connected(name).filters = tuple(filters)
            self._wake(moved=True)

        return self._call(now_ms, set_filters)

    def set_weight(self, name: str, weight: int, *, now_ms: int | None = None) -> list[Effect]:
        def set_weight() -> None:
            self._connected(name).weight = weight
            self.placement.set_weight(name, weight)  # refuses what can never be a weight
            self._wake(moved=True)

        return self._call(now_ms, set_weight)

    def set_placement(self, placement: Placement, *, now_ms: int | None = None) -> list[Effect]:
        def set_placement() -> None:
            self.placement = placement.copy()
            self._join_placement()
            self._wake(moved=True)

        return self._call(now_ms, set_placement)

    # --- inputs: groups ---------------------------------------------------------------------------------------------

    def set_group(self, name: str, *, now_ms: int | None = None, **limits: Any) -> list[Effect]:
        def set_group() -> None:
            self.scopes.set_group(name, limits)
            self.scopes.note_room(name)
            self._wake()

        return self._call(now_ms, set_group)

    def pause_group(self, name: str, *, now_ms: int | None = None) -> list[Effect]:
        def pause_group() -> None:
            self.scopes.pause(name)
            self._wake()

        return self._call(now_ms, pause_group)

    def resume_group(self, name: str, *, now_ms: int | None = None) -> list[Effect]:
        def resume_group() -> None:
            self.scopes.resume(name)
            self.scopes.note_room(name)
            self._wake()

        return self._call(now_ms, resume_group)

    def groups(self) -> list[GroupRow]:
        rows: list[GroupRow] = []
        busy = {self._group(self._lane(each)) for each in self.messages.values()}
        ready = [self._group(listing.lane) for listing in self.listings if listing.queue == Queue.READY]
        for name, group in sorted(self.scopes.groups.items()):
            limits, rate = group.limits, group.limits.per_second is not None
            group.pass_time(self.now)
            is_new = not group.is_set and not group.paused and (not rate or group.thousandths == 1000 * limits.burst)
            if self.has_groups and (name in busy or not is_new):
                opened, tokens = self._open_groups().count(name), group.thousandths // 1000 if rate else None
                most = limits.max_in_flight
                more = group.when(1000) if rate and not tokens else None
                rows.append((name, limits.weight, most, opened, ready.count(name), tokens, group.paused, more))
        return rows

    # --- inputs: time -----------------------------------------------------------------------------------------------

    def handle_timeout(self, *, now_ms: int) -> list[Effect]:
        def handle_timeout() -> None:
            self._end_what_is_due()
            self._sessions.end_what_is_due()
            for name in self.scopes.groups:
                self.scopes.note_room(name)
            evicted = self._end_consumers_that_are_due()
            self._wake(moved=evicted)

        return self._call(now_ms, handle_timeout)

    def next_deadline_ms(self) -> int | None:
        of_messages = [message.deadline for message in self.messages.values()]
        of_consumers = [consumer.deadline for consumer in self.consumers]
        of_sessions = [session.deadline for session in self.sessions_of_lanes.values()]
        of_all = [*self.drain_deadlines.values(), *self.scopes.deadlines(self._open_groups())]
        deadlines = [*of_messages, *of_consumers, *of_sessions, *of_all]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # --- queries ----------------------------------------------------------------------------------------------------

    @property
    def safe_cursor(self) -> int | None:
        lowest = min(self._log(), default=None)
        return max((offset for offset in self.offered if lowest is None or offset < lowest), default=None)

    @property
    def resume_offset(self) -> int | None:
        if self._log():
            return min(self._log())
        if not self.offered:
            return self.earlier.resume
        resume = max(self.offered[-1] + 1, self.earlier.resume or 0)
        for start, stop in sorted(self.earlier.settled):
            if start <= resume < stop:
                resume = stop
        return resume

    def acked_ranges(self) -> list[tuple[int, int]]:
        resume, _, settled = self.token()
        return [(start, stop) for start, stop in settled if start < stop and (resume is None or resume < stop)]

    @property
    def restart_mark(self) -> tuple[int | None, int]:
        return (self.offered[-1] if self.offered else None, len(self._log()))

    def token(self) -> Position:
        """What the next life has to know if there is no snapshot."""
        stretches = [
            (below + 1, 1 + max(offset for offset in self.offered if above is None or offset < above))
            for below, above in pairwise([*self._log(), None])
            if below is not None
        ]
        return Position(self.resume_offset, self.safe_cursor, (*self.earlier.settled, *stretches))

    @property
    def free_slots(self) -> int:
        return max(0, min(self._slots, self._may_wait))

    @property
    def _slots(self) -> int:
        tracked = self.config.max_tracked if self.config.spill else self.config.window
        return min(self.config.window - self._loaded_count(), tracked - len(self.messages))

    @property
    def _look_ahead(self) -> int:
        """How many messages may wait for as many consumers as are connected."""
        look_ahead, consumers = self.config.look_ahead, len(self._not_draining())
        if look_ahead is None:
            return 1 << 40
        per_consumer, most = look_ahead.per_consumer, look_ahead.per_subscription
        return min(per_consumer * consumers if per_consumer else 1 << 40, most or 1 << 40)

    @property
    def _may_wait(self) -> int:
        return self._look_ahead - (len(self.messages) - len(self._all(State.IN_FLIGHT)))

    def _is_roomy(self) -> bool:
        """Whether a quarter of the window is free, and of what may wait."""
        return self._slots >= max(1, self.config.window // 4) and self._may_wait >= max(1, self._look_ahead // 4)

    def owner(self, key: bytes | str | None) -> str | None:
        wanted = self._key(key)
        return None if wanted is None else self._owner(wanted)

    def sessions(self) -> list[KeySession]:
        return self._sessions.told()

    @property
    def _sessions(self) -> SessionRule:
        return SessionRule(self)

    def why_blocked(self, offset: int) -> Why | None:
        message = self.messages.get(offset)
        if message is None or message.state == State.IN_FLIGHT:
            return None
        reason = self._reason(message)
        if reason in {BlockReason.GROUP_FULL, BlockReason.GROUP_PAUSED, BlockReason.GROUP_RATE}:
            return Why(reason, group=self._group(self._lane(message)))
        session = self._sessions.of(self._lane(message))
        if reason == BlockReason.FLUSHING and session:
            return Why(reason, session.consumer)
        if reason != BlockReason.DRAINING:
            return Why(reason)
        held = {other.consumer for other in self._awaited(self._lane(message))}
        return Why(reason, next(consumer.name for consumer in self.consumers if consumer.name in held))

    def describe(self, offset: int) -> Message | None:
        return self.messages.get(offset)

    def health(self, *, busiest: int = 10) -> Health:
        keys = [message.key for message in self.messages.values() if message.key is not None]
        counted = sorted({(-keys.count(key), key) for key in keys})
        of_log = [message for message in self.messages.values() if not message.redriven]
        blocked = [message for message in of_log if message.state != State.IN_FLIGHT]
        measures = self.config.measure
        ages = [
            self.now - first.since if measures and first is not None and first.since is not None else None
            for first in (next(iter(of_log), None), next(iter(blocked), None))
        ]
        return Health(
            oldest_ms=ages[0],
            longest_blocked_ms=ages[1],
            blocked_offset=blocked[0].offset if blocked else None,
            busiest=tuple((key, -number) for number, key in counted[:busiest]),
            ended=self.settled if measures else None,
            delivered=self.delivered if measures else None,
            failed=self.failed if measures else None,
        )

    def outstanding_effects(self) -> list[Effect]:
        archive = [self._dead_letter(message) for message in self._all(State.DEAD_LETTERING)]
        loads = [Load(message.offset, message.key) for message in self._all(State.LOADING)]
        deliveries = [self._deliver(message) for message in self._all(State.IN_FLIGHT)]
        flushes = [
            KeyEnding(self._sessions.key(session.lane), session.consumer, session.number)
            for session in self._sessions.all
            if session.ending is not None
        ]
        return [*flushes, *archive, *loads, *deliveries]

    def is_current(self, effect: Effect) -> bool:
        match effect:
            case Deliver():
                open_now = [(each.offset, each.consumer, each.attempt) for each in self._all(State.IN_FLIGHT)]
                return effect.receipt in open_now
            case DeadLetter() | Load():
                state = State.LOADING if isinstance(effect, Load) else State.DEAD_LETTERING
                return any(message.offset == effect.offset for message in self._all(state))
            case KeyEnding():
                return self._sessions.flushing(effect.key, effect.session) is not None
            case CursorAdvanced():
                return effect.safe_cursor == self.safe_cursor
            case Resumed():
                return effect.free_slots == self.free_slots
            case _:
                return False

    def check_invariants(self) -> None:
        assert list(self.messages) == sorted(self.messages)
        assert self.free_slots >= 0
        assert len({listing.lane for listing in self.listings}) == len(self.listings)
        for consumer in [] if self.scopes.paused else self.consumers:
            ready = [each for each in self.listings if self._could_take(consumer, each) and self._is_awake(each)]
            assert not (ready and self._has_room(consumer.name)), f"{consumer} has room for {ready}"
        if self._loaded_count() < self.config.window:
            assert not [listing for listing in self.listings if listing.queue == Queue.LOAD]
        for lane in map(self._lane, self.messages.values()):
            assert len({message.consumer for message in self._open_in(lane)}) <= 1
            assert not self._is_listed(lane, Queue.DRAINING) or self._awaited(lane), f"{lane!r} drains from nobody"

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything but placement, config and items, as JSON-able data; deadlines as what remains of them."""
        return {
            "version": SNAPSHOT_VERSION,
            "messages": [self._frozen(message) for message in self.messages.values()],
            "consumers": [
                asdict(consumer) | {"deadline": self._remaining(consumer.deadline)} for consumer in self.consumers
            ],
            "listings": [[_lane_to_json(lane), queue, consumer] for lane, queue, consumer in self.listings],
            "sessions": [
                [_lane_to_json(each.lane), each.consumer, each.number, each.ending, self._remaining(each.deadline)]
                for each in self._sessions.all
            ],
            "last_session": self.last_session,
            "drain_deadlines": [
                [_lane_to_json(lane), self._remaining(deadline)] for lane, deadline in self.drain_deadlines.items()
            ],
            "quarantined": sorted(key.hex() for key in self.quarantined),
            "scopes": self.scopes.snapshot(self.now),
            "offered": list(self.offered),
            "earlier": list(self.earlier),
            "reported_cursor": self.reported_cursor,
            "paused": self.paused,
            "epoch": self.epoch,
            "counts": [self.settled, self.delivered, self.failed],
            "noted": None if self.noted is None else self.now - self.noted,
        }

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
        rules: Rules | None = None,
    ) -> Self:
        if state.get("version") != SNAPSHOT_VERSION:
            raise SnapshotError("version", state.get("version"), f"be {SNAPSHOT_VERSION}")
        new = cls(placement, config, rules=rules)
        new.now = now_ms
        new.scopes.now = now_ms
        new.scopes.load(state["scopes"], now_ms)
        new.epoch = max(epoch, state["epoch"])
        for stored in state["messages"]:
            message = new._thawed(stored, items or {})
            new.messages[message.offset] = message
        for stored in state["consumers"]:
            deadline = new._restored(stored["deadline"])
            consumer = Consumer(**stored | {"deadline": deadline, "filters": tuple(stored["filters"])})
            consumer.status = Status(consumer.status)
            new.consumers.append(consumer)
        new.listings = [
            Listing(_lane_from_json(lane), Queue(queue), consumer) for lane, queue, consumer in state["listings"]
        ]
        for stored_lane, name, number, ending, left in state["sessions"]:
            lane = _lane_from_json(stored_lane)
            why = None if ending is None else KeyEnd(ending)
            new.sessions_of_lanes[lane] = Session(lane, name, number, why, new._restored(left))
        new.last_session = state["last_session"]
        new.drain_deadlines = {_lane_from_json(lane): now_ms + left for lane, left in state["drain_deadlines"]}
        new.quarantined = {bytes.fromhex(key) for key in state["quarantined"]}
        new.offered = list(state["offered"])
        resume, safe, settled = state["earlier"]
        new.earlier = Position(resume, safe, tuple((start, stop) for start, stop in settled))
        new.reported_cursor = state["reported_cursor"]
        new.paused = state["paused"]
        settled, new.delivered, new.failed = state["counts"]
        new.settled = {Ending(how): number for how, number in settled.items()}
        new.noted = None if state["noted"] is None else now_ms - state["noted"]
        new.noted_last = new.offered[-1] if new.offered else None
        new.replaying = True
        new._join_placement()
        new._go_on_after_restart()
        return new

    def _go_on_after_restart(self) -> None:
        """Hand out what the settings of this life allow; what a call would return, the host sees as outstanding."""
        if self.scopes.paused and 2 * self._holes() <= (self.config.max_ack_holes or 0):
            self.scopes.paused = False
        self._weigh()
        starved = [listing.lane for listing in self.listings if listing.queue == Queue.LOAD]
        self.touched += [lane for lane in map(self._lane, self.messages.values()) if lane not in starved]
        self.freed += [consumer.name for consumer in self.consumers]
        for scope in [*self.scopes.groups, ALL]:
            self.scopes.note_room(scope)
        self._wake()
        self._sessions.look()
        self._effects()
        self._begin()

    def _frozen(self, message: Message) -> dict[str, Any]:
        key = None if message.key is None else message.key.hex()
        age = None if message.since is None else self.now - message.since
        stored = asdict(message) | {"key": key, "deadline": self._remaining(message.deadline), "since": age}
        del stored["item"]
        return stored

    def _thawed(self, stored: Mapping[str, Any], items: Mapping[int, object]) -> Message:
        key = None if stored["key"] is None else bytes.fromhex(stored["key"])
        item = items.get(stored["offset"])
        return Message(
            **{
                **stored,
                "key": key,
                "item": item,
                "state": State(stored["state"]),
                "deadline": self._restored(stored["deadline"]),
                "since": None if stored["since"] is None else self.now - stored["since"],
                "ended": tuple((attempt, consumer) for attempt, consumer in stored["ended"]),
            }
        )

    def _remaining(self, deadline: int | None) -> int | None:
        return None if deadline is None else deadline - self.now

    def _restored(self, remaining: int | None) -> int | None:
        return None if remaining is None else self.now + remaining

    # --- one call ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.out = Outbox()
        self.touched = list[Lane]()  # lanes of which something ended, settled, was put back, unblocked or loaded
        self.freed = list[str]()  # consumers that may have room now
        self.came_back: list[int] = []  # what was in flight, or is archived, since the call began

    def _call(self, now_ms: int | None, action: Callable[[], None], call: Call = Call.ACK) -> list[Effect]:
        """Run one call: if it raises, nothing has happened. The name is of a call that can be ignored."""
        before = self._books()
        self.answered = call
        try:
            self._check_clock(now_ms)
            self.now = self.now if now_ms is None else now_ms
            self.scopes.now = self.now
            action()
            self._sessions.look()
            self._note_times()
        except BaseException:
            self.__dict__.update(before)
            raise
        effects = self._effects()
        self._begin()
        return effects

    def _check_clock(self, now_ms: int | None) -> None:
        if now_ms is not None and not is_int(now_ms, self.now):
            raise ClockError(now_ms, self.now)

    def _books(self) -> dict[str, Any]:
        """A copy of everything that a call may change; items are the caller's and stay the same objects."""
        copied = {name: value if type(value) in NEVER_CHANGES else copy(value) for name, value in vars(self).items()}
        copied["messages"] = {offset: copy(message) for offset, message in self.messages.items()}
        copied["consumers"] = [copy(consumer) for consumer in self.consumers]
        copied["sessions_of_lanes"] = {lane: copy(session) for lane, session in self.sessions_of_lanes.items()}
        copied["placement"] = self.placement.copy()
        copied["scopes"] = self.scopes.copy()
        copied["out"] = Outbox()
        return copied

    def _note_times(self) -> None:
        """Note when messages were offered: once in a second is enough."""
        last = self.offered[-1] if self.offered else None
        of_log = [message for message in self.messages.values() if not message.redriven]
        if not of_log:
            self.noted = None
        elif self.noted is None or (last != self.noted_last and self.now - self.noted >= 1_000):
            self.noted = self.now
        self.noted_last = last
        for message in of_log:
            message.since = self.noted if message.since is None else message.since

    def _effects(self) -> list[Effect]:
        self._tell_spilled()
        out = self.out
        self.delivered += len(out.deliveries)
        done = out.done if self.config.tell_settled else []
        obligations = self._unmet([*out.dead_letters, *out.loads, *out.deliveries])
        sessions = [each for each in out.sessions if not isinstance(each, KeyEnding) or self.is_current(each)]
        effects = [*out.notices, *done, *sessions, *obligations]
        if self.safe_cursor is not None and self.safe_cursor != self.reported_cursor:
            self.reported_cursor = self.safe_cursor
            effects.append(CursorAdvanced(self.safe_cursor))
        if self.paused and self._is_roomy():
            self.paused = False
            effects.append(Resumed(self.free_slots))
        self.paused = self.paused or self.free_slots == 0
        return effects

    def _unmet(self, obligations: Sequence[Effect]) -> list[Effect]:
        """Obligations without those that the call itself has ended: `truncate` overtakes its own loads."""
        return [effect for effect in obligations if self.is_current(effect)]

    # --- the life of a message --------------------------------------------------------------------------------------

    def _offer(self, offset: int, raw_key: bytes | str | None, item: object, not_before_ms: int | None = None) -> None:  # noqa: C901  # one step for each question
        key = self._key(raw_key)
        if not_before_ms is not None and type(not_before_ms) is not int:
            raise ArgumentError("not_before_ms", not_before_ms, "be an int, or None")
        last = self.offered[-1] if self.offered else None
        if type(offset) is not int:
            raise OffsetOrderError(offset, last)
        start = self.earlier.resume
        below_start = start is not None and offset < start and (last is None or last < start)
        if below_start or (last is not None and offset <= last):
            if not self.replaying:
                raise OffsetOrderError(offset, last)
            known = self.messages.get(offset)
            if known is None:
                self.out.done.append(Done(offset, key, Ending.EARLIER))
            elif known.item is None and known.has_slot:
                known.item = item
            return
        if self.earlier.knows(offset):
            self.replaying = False
            self.offered.append(offset)
            self._weigh()
            self._tell_done(Message(offset, key, item), Ending.EARLIER)
            self._wake()
            return
        self._check_room()
        message = Message(offset, key, item)
        self._check_waiting([message])
        if self.config.unmatched == Unmatched.ERROR and (self._is_unmatched(message) or self._nobody_can_own(message)):
            raise UnmatchedKeyError(key)
        self.replaying = False
        self.offered.append(offset)
        if self._is_unmatched(message) and self.config.unmatched == Unmatched.SKIP:
            self._weigh()
            self.out.notices.append(Skipped(offset, key, SkipReason.UNMATCHED))
            self._tell_done(message, Ending.UNMATCHED)
            self._wake()
        else:
            if not_before_ms is not None and not_before_ms > self.now:
                message.deadline = not_before_ms
            self._track(message)

    def _check_room(self) -> None:
        if self._slots <= 0:
            window_is_full = self._loaded_count() >= self.config.window
            raise WindowFullError(self.config.window if window_is_full else self.config.max_tracked)
        if self._may_wait <= 0:
            raise LookAheadFullError(self._look_ahead)

    def _is_new(self, offset: object) -> bool:
        """Whether an offset is neither known nor settled in an earlier life."""
        last = self.offered[-1] if self.offered else None
        start = self.earlier.resume
        if not isinstance(offset, int) or (start is not None and offset < start):
            return False
        return (last is None or offset > last) and not self.earlier.knows(offset)

    def room_for(self, raw_key: bytes | str | None) -> int:
        message = Message(-1, self._key(raw_key), None)
        room = self.free_slots
        if not isinstance(self._lane(message), int) and self.config.max_waiting_per_key is not None:
            room = min(room, self.config.max_waiting_per_key - len(self._waiting_in_lane(message)))
        return max(0, room)

    def _check_waiting(self, new: Sequence[Message]) -> None:
        """Refuse messages that would be too many even if all of them had to wait."""
        ordered = [message for message in new if not isinstance(self._lane(message), int)]
        most = self.config.max_waiting_per_key
        for message in ordered:
            beside = [other for other in ordered if self._lane(other) == self._lane(message)]
            if most is not None and len(self._waiting_in_lane(message)) + len(beside) > most:
                raise KeyFullError(message.key, most)

    def _waiting_in_lane(self, message: Message) -> list[Message]:
        return [other for other in self._in_lane(self._lane(message)) if other.state != State.IN_FLIGHT]

    def _is_unmatched(self, message: Message) -> bool:
        """Whether somebody is there, nobody accepts the key, and nothing of it is outstanding."""
        accepted = any(self._accepts(consumer, message.key) for consumer in self.consumers)
        return bool(self.consumers) and not accepted and not self._in_lane(self._lane(message))

    def _nobody_can_own(self, message: Message) -> bool:
        """Whether somebody is connected, nobody owns the key, and nothing of it is outstanding."""
        unowned = message.key is not None and self._is_unowned(message.key)
        return unowned and bool(self._not_draining()) and not self._in_lane(self._lane(message))

    def _is_unowned(self, key: bytes | None) -> bool:
        """Whether the slot is a hole, or all who own something are connected and none of them accepts the key."""
        if self._slot_owner(key) is None:
            return True
        owning = list(self.placement.ranges.walk(self._slot(key)))
        connected = [consumer for consumer in self._not_draining() if consumer.name in owning]
        strangers = len(owning) - len(connected)
        return not strangers and not any(self._accepts(consumer, key) for consumer in connected)

    def _track(self, message: Message) -> None:
        overtaken = self._overtaken(message)
        if overtaken:
            self._supersede(overtaken, message)
            return
        lane = self._lane(message)
        loaded = [other for other in self._in_lane(lane) if other.has_slot]
        spilled = self._spilled_in(lane) or self._came_back_without_slot(lane)
        self._note_groups([lane])
        self.messages[message.offset] = message
        if self.config.spill and (spilled or len(loaded) >= self.config.max_loaded_per_key):
            self._spill(message)
        elif message.deadline is not None:
            message.state = State.DELAYED
        if self._candidate(lane) is message:
            self._examine_fully(lane)
            self._serve_freed()
        self._serve_shared()
        self._relieve()
        self._spill_if_crowded(message)

    def _note_groups(self, lanes: Sequence[Lane]) -> None:
        """Keep the groups of new messages, or raise because nobody knows them."""
        for lane in lanes:
            if (group := self._group(lane)) is not None:
                self.scopes.group(group)

    def _overtaken(self, message: Message) -> list[Message]:
        """What waits for its first delivery and makes way for this one."""
        if message.key is None or not self._is_latest_only(message.key):
            return []
        waits = {State.QUEUED, State.SPILLED, State.LOADING, State.DELAYED}
        new = [other for other in self._in_lane(message.key) if other.attempt == 0 and not other.redriven]
        return [other for other in new if other.state in waits]

    def _is_latest_only(self, key: bytes) -> bool:
        """Whether of this key only the latest message counts."""
        if self.rules is None or self.rules.latest_only is None:
            return self.config.latest_only
        return self.rules.latest_only(key)

    def _limit_by_rule(self, lane: Lane) -> int:
        """How many of a lane may be open by its rule, if it has one. That is never more than may be loaded."""
        if self.rules is None or self.rules.limit_of is None or not isinstance(lane, bytes):
            return 1 << 63
        limit = self.rules.limit_of(lane)
        return min(limit, self.config.max_loaded_per_key) if self.config.spill else limit

    def _turn_limit(self, lane: Lane) -> int:
        """With how many open deliveries a lane waits for its next turn: of a batch, all have to end."""
        has_rule = self.rules is not None and self.rules.limit_of is not None and self.config.batch_per_key == 1
        return self._limit_by_rule(lane) if has_rule else self.config.max_in_flight_per_key

    def _supersede(self, older: Sequence[Message], message: Message) -> None:
        """Settle what waits for its first delivery; a newer one has the slot of the oldest, and stands where it did."""
        lane, first = self._lane(message), older[0]
        was_next = self._candidate(lane)
        for other in older:
            self.out.notices.append(Skipped(other.offset, other.key, SkipReason.SUPERSEDED))
            self._tell_done(other, Ending.SUPERSEDED)
            del self.messages[other.offset]
        loaded = [other for other in self._in_lane(lane) if other.has_slot]
        self.messages[message.offset] = message
        needs_slot = first.state == State.SPILLED
        has_room = len(loaded) < self.config.max_loaded_per_key and not self._came_back_without_slot(lane)
        if needs_slot and self.config.spill and not has_room:
            self._spill(message)
        elif message.deadline is not None:
            message.state = State.DELAYED
            self._spill_if_crowded(message, needs_slot)
        if first.reserved_by:
            self.freed.append(first.reserved_by)
        keeps_its_place = message.deadline is None and self._listing(lane)
        if message is self._candidate(lane) and not keeps_its_place:
            if first.reserved_by and message.state == State.QUEUED and self._may_go_to(lane, first.reserved_by):
                self._open(message, first.reserved_by)
            self._touch(message)
        following = self._candidate(lane)
        if following is not None and following is not message and following is not was_next:
            self._touch(following)  # what came back behind the older one
        self._wake()
        self._spill_if_crowded(message, needs_slot)

    def _spill_if_crowded(self, message: Message, is_asked: bool = True) -> None:
        """Drop the payload of what has to wait while others that wait take half the window."""
        others_waiting = self._loaded_count() - 1 - len(self._all(State.IN_FLIGHT))
        waits = message.state in {State.QUEUED, State.DELAYED}
        if is_asked and self.config.spill and waits and 2 * others_waiting >= self.config.window:
            self._spill(message)

    def _spill(self, message: Message) -> None:
        message.state = State.SPILLED
        message.item = None
        self.out.spilled.append(message.offset)

    def _spill_what_came_back(self) -> None:
        """Drop the payload of what came back in this call and still waits, while others take half the window."""
        came_back, self.came_back = self.came_back, []
        for offset in came_back:
            message = self.messages.get(offset)
            if message is None or not message.has_slot or message.redriven or not self.config.spill:
                continue
            waiting = self._loaded_count() - len(self._all(State.IN_FLIGHT))
            if message.state in {State.IN_FLIGHT, State.LOADING} or 2 * (waiting - 1) < self.config.window:
                continue
            if message.state == State.QUEUED:
                message.state = State.SPILLED
            else:
                message.dropped = True
            self.out.spilled.append(message.offset)

    def _tell_spilled(self) -> None:
        """Tell what is spilled at the end of a call, and not loaded again in it."""
        spilled, self.out.spilled = self.out.spilled, []
        for offset in spilled:
            message = self.messages.get(offset)
            if message is not None and not message.has_slot:
                message.item = None
                self.out.notices.append(Spilled(offset))

    def _spilled_in(self, lane: Lane) -> list[Message]:
        """What of a lane was spilled before its first delivery."""
        return [other for other in self._in_lane(lane) if other.state == State.SPILLED and other.attempt == 0]

    def _came_back_without_slot(self, lane: Lane) -> bool:
        """Whether a message of a lane came back from a delivery, and is spilled."""
        return any(other.attempt > 0 and not other.has_slot for other in self._in_lane(lane))

    def _queue(self, message: Message) -> None:
        """Let a message that was held wait for its turn."""
        message.state = State.SPILLED if message.dropped else State.QUEUED
        message.dropped = False
        self._touch(message)

    def _ack(self, offset: int, consumer: str, attempt: int) -> None:
        message = self._current(offset, consumer, attempt, late_ok=True)
        if message is None:
            return
        is_open = message.state == State.IN_FLIGHT
        if is_open and attempt < message.attempt:
            message.acked_late = True
            self.out.notices.append(Ignored(offset, consumer, attempt, self.answered, IgnoredReason.LATE_ACK_NOTED))
            return
        if is_open:
            self._close(message)
        self._settle(
            message, Ending.ACKED if is_open else Ending.LATE_ACK
        )  # also when it waits for its next delivery: a late success is a success
        self._wake()

    def _current(self, offset: int, consumer: str, attempt: int, *, late_ok: bool = False) -> Message | None:
        """The message whose open delivery (for an ack: any delivery) this receipt names; a notice if there is none."""
        message = self.messages.get(offset)
        reason = None
        if message is None:
            reason = IgnoredReason.UNKNOWN_OFFSET
        elif message.state == State.DEAD_LETTERING:
            reason = IgnoredReason.DEAD_LETTERING
        elif message.state == State.BLOCKED:
            reason = IgnoredReason.BLOCKED
        elif message.state == State.IN_FLIGHT and attempt == message.attempt:
            reason = None if consumer == message.consumer else IgnoredReason.NOT_HOLDER
        else:
            reason = self._why_not_late(message, consumer, attempt)
            if late_ok and reason == IgnoredReason.STALE_ATTEMPT:
                reason = None
        if reason is None:
            return message
        self.out.notices.append(Ignored(offset, consumer, attempt, self.answered, reason))
        return None

    def _why_not_late(self, message: Message, consumer: str, attempt: int) -> IgnoredReason:
        """What is wrong with an answer to a delivery that is not open; a stale attempt if that consumer had it."""
        remembered = message.ended[-REMEMBERED_DELIVERIES:]
        if (attempt, consumer) in remembered:
            return IgnoredReason.STALE_ATTEMPT
        if attempt in dict(remembered):
            return IgnoredReason.NOT_HOLDER
        if len(remembered) == REMEMBERED_DELIVERIES and 1 <= attempt < remembered[0][0]:
            return IgnoredReason.FORGOTTEN_ATTEMPT
        return IgnoredReason.UNKNOWN_ATTEMPT

    def _expect(self, offset: int, state: State, otherwise: IgnoredReason) -> Message | None:
        """The message if it is in this state, or a notice that it is not."""
        message = self.messages.get(offset)
        if message and message.state == state:
            return message
        reason = otherwise if message else IgnoredReason.UNKNOWN_OFFSET
        self.out.notices.append(Ignored(offset, None, None, self.answered, reason))
        return None

    def _open(self, message: Message, consumer: str) -> None:
        message.state = State.IN_FLIGHT
        message.attempt = max(message.attempt, self.epoch << 32) + 1
        if (group := self._group(self._lane(message))) is not None:
            self.scopes.use(group)
        message.consumer = consumer
        self._sessions.opened(self._lane(message), consumer)
        timeout = self.config.ack_timeout_ms
        message.deadline = None if timeout is None else self.now + timeout
        self.out.deliveries.append(self._deliver(message))

    def _close(self, message: Message) -> None:
        """End an open delivery: the message is put back, its consumer has room again or, if draining, may be done."""
        assert message.consumer is not None
        message.state = State.QUEUED
        message.deadline = None
        self.came_back.append(message.offset)
        self._touch(message)
        for scope in self._scopes_of(self._lane(message)):
            self.scopes.note_room(scope)
        self.freed.append(message.consumer)
        if message.key is not None:
            self._touch_what_waits_for_unit(message, message.consumer)
        self._let_go_if_done(message.consumer)

    def _let_go_if_done(self, name: str) -> None:
        """Forget a draining consumer that has nothing open and nothing to flush."""
        holder = self._find(name)
        if holder and holder.status == Status.DRAINING and not (self._open_of(name) or self._sessions.holds(name)):
            self._remove(holder)

    def _release(self, message: Message, reason: ReleaseReason, delay_ms: int | None = None) -> None:
        """End an open delivery without its ack, and tell that before what becomes of the message."""
        assert message.consumer is not None
        place, receipt = len(self.out.notices), (message.offset, message.consumer, message.attempt)
        newer = [each for each in self._open_in(self._lane(message)) if each.offset > message.offset]
        again = self._go_on(message, reason, delay_ms) if self._end(message, reason) else None
        self.out.notices.insert(place, Released(*receipt, reason, message.failures, again))
        if self.config.batch_per_key > 1 and reason in BREAKS_A_BATCH:
            for each in newer:
                self._release(each, ReleaseReason.BATCH_BROKEN)

    def _end(self, message: Message, reason: ReleaseReason | None = None) -> bool:
        """End an open delivery; whether the message is still outstanding: no late ack had come in."""
        self._close(message)
        message.ended += ((message.attempt, message.consumer or ""),)
        if message.acked_late:
            self.out.notices.append(Settled(message.offset, message.key, SettleReason.LATE_ACK))
            self._settle(message, Ending.LATE_ACK)
            return False
        if message.gone:
            self.out.notices.append(Skipped(message.offset, message.key, SkipReason.GONE))
            self._settle(message, Ending.GONE)
            return False
        message.failures += reason in FAILURES
        self.failed += reason in FAILURES
        return True

    def _go_on(self, message: Message, reason: ReleaseReason, delay_ms: int | None) -> int | None:
        """Wait for the retry, retry now, or give up; when it may go out again."""
        if reason not in FAILURES:
            return self._postpone(message, delay_ms) if delay_ms else self.now
        if reason == ReleaseReason.EVICTED and self.config.on_evict == OnEvict.DROP:
            self.out.notices.append(Dropped(message.offset, message.key, DropReason.EVICTED))
            self._settle(message, Ending.DROPPED)
            return None
        delay = self.config.retry.delay_ms(message.failures, delay_ms)
        if delay is None or reason == ReleaseReason.REJECTED:
            self._poison(message)
            return None
        if delay == 0 or reason in {ReleaseReason.EVICTED, ReleaseReason.SESSION_LOST}:
            return self.now  # that the consumer is lost is not the message's fault
        message.state = State.DELAYED
        message.deadline = self.now + delay
        return message.deadline

    def _postpone(self, message: Message, delay_ms: int) -> int:
        """Wait for as long as was asked for; when it may go out again."""
        message.state, message.postponed = State.DELAYED, True
        message.deadline = self.now + delay_ms
        return message.deadline

    def _note_reason(self, message: Message, reason: str | None) -> None:
        message.reason = message.reason if reason is None else reason

    def _poison(self, message: Message) -> None:
        poison = self.config.poison
        if poison == Poison.DROP:
            self.out.notices.append(Dropped(message.offset, message.key, DropReason.POISON))
            self._settle(message, Ending.DROPPED)
        elif self.config.quarantine and message.key is not None:
            self.quarantined.add(message.key)
        elif poison == Poison.DEAD_LETTER or self.config.archive_blocked:
            self._archive(message)
        else:
            self._block(message)

    def _archive(self, message: Message) -> None:
        message.state = State.DEAD_LETTERING
        self.out.dead_letters.append(self._dead_letter(message))

    def _block(self, message: Message) -> None:
        message.state = State.BLOCKED
        self.out.notices.append(Blocked(message.offset, message.key, message.failures, message.reason))

    def _tell_done(self, message: Message, how: Ending) -> None:
        self.settled[how] = self.settled.get(how, 0) + 1
        self.out.done.append(Done(message.offset, message.key, how))

    def _settle(self, message: Message, how: Ending) -> None:
        """Forget a message; its slot goes to the oldest spilled one of its lane, if there is one."""
        self._tell_done(message, how)
        self._touch(message)
        if message.reserved_by:
            self.freed.append(message.reserved_by)
        del self.messages[message.offset]
        self._weigh()
        lane = self._lane(message)
        loaded = [other for other in self._in_lane(lane) if other.has_slot]
        has_room = self._loaded_count() < self.config.window and len(loaded) < self.config.max_loaded_per_key
        spilled = [] if self._came_back_without_slot(lane) else self._spilled_in(lane)
        if spilled and message.has_slot and has_room:
            self._load(spilled[0], None)

    def _load(self, message: Message, consumer: str | None) -> None:
        message.state = State.LOADING
        is_reserved = any(other.reserved_by for other in self._in_lane(self._lane(message)))
        message.reserved_by = None if is_reserved else consumer
        self.out.loads.append(Load(message.offset, message.key))

    def _loaded(self, message: Message, item: object) -> None:
        """Take a payload; who reserved room for it gets it at once, if it still may."""
        lane, consumer = self._lane(message), message.reserved_by
        message.state, message.item, message.reserved_by = State.QUEUED, item, None
        if message.deadline is not None:
            message.state = State.DELAYED  # its time has not come yet
        self._touch(message)
        if consumer is None:
            return
        self.freed.append(consumer)
        if message is self._candidate(lane) and self._may_go_to(lane, consumer):
            self._send(lane, message, consumer)

    def _redrive(self, key: bytes | None, letters: list[tuple[int, int, object]]) -> None:
        """Put dead letters back where they always stood, all of them before anything goes out."""
        if not self.config.redrive:
            raise ConfigError("redrive", False, "be True to redrive: DispatcherConfig(redrive=True)")
        for offset, attempt, _ in letters:
            if type(offset) is not int:
                raise ArgumentError("offset", offset, "be an int")
            require_int("attempt", attempt, 0)
        start, last = self.earlier.resume, self.offered[-1] if self.offered else None
        for offset, _, _ in letters:
            is_below = (start is not None and offset < start) or (last is not None and offset <= last)
            if not is_below:
                raise RedriveTooEarlyError(offset, last)
        new, free, full = 0, self.free_slots, self._full_error()
        for offset, attempt, item in sorted(letters, key=lambda letter: letter[0]):
            if key in self.quarantined or offset in self.messages:
                why = IgnoredReason.IS_QUARANTINED if key in self.quarantined else IgnoredReason.IS_OUTSTANDING
                self.out.notices.append(Ignored(offset, None, attempt, self.answered, why))
                continue
            new += 1
            self.messages[offset] = Message(offset, key, item, attempt=attempt, redriven=True)
            self._touch(self.messages[offset])
        if new > free:
            raise full
        self._note_groups(self.touched)
        self.messages = dict(sorted(self.messages.items()))
        self._wake()

    def _full_error(self) -> WindowFullError:
        """What to raise for more messages than there are free slots: it names the limit that leaves least room."""
        if self._may_wait < max(0, self._slots):
            return LookAheadFullError(self._look_ahead)
        tracked = self.config.max_tracked if self.config.spill else self.config.window
        by_memory = self.config.window - self._loaded_count() <= tracked - len(self.messages)
        return WindowFullError(self.config.window if by_memory else tracked)

    def _log(self) -> list[int]:
        """The outstanding offsets that hold the position."""
        return [offset for offset, message in self.messages.items() if not message.redriven]

    def _gone(self, offsets: Iterable[int]) -> None:
        for message in [self.messages[offset] for offset in offsets if offset in self.messages]:
            if message.state == State.IN_FLIGHT:
                message.gone = True
            else:
                self.out.notices.append(Skipped(message.offset, message.key, SkipReason.GONE))
                self._settle(message, Ending.GONE)
        self._wake()

    def _deliver(self, message: Message) -> Deliver:
        assert message.consumer is not None
        return Deliver(message.offset, message.key, message.consumer, message.attempt, message.failures, message.item)

    def _dead_letter(self, message: Message) -> DeadLetter:
        return DeadLetter(message.offset, message.key, message.attempt, message.failures, message.item, message.reason)

    # --- consumers --------------------------------------------------------------------------------------------------

    def _check_filters(self, filters: Sequence[str]) -> None:
        if isinstance(filters, str) or not all(isinstance(pattern, str) for pattern in filters):
            raise ArgumentError("filters", filters, "be a sequence of glob patterns")
        if filters and (self.config.ordering_required or self.config.unit != DrainUnit.KEY):
            raise ArgumentError("filters", filters, "be empty with ordering_required or a unit larger than a key")

    def _find(self, name: str) -> Consumer | None:
        return next((consumer for consumer in self.consumers if consumer.name == name), None)

    def _connected(self, name: str) -> Consumer:
        consumer = self._find(name)
        if consumer is None or consumer.status == Status.DRAINING:
            raise UnknownConsumerError(name)
        return consumer

    def _join_placement(self) -> None:
        for consumer in self.consumers:
            if consumer.status == Status.DRAINING:
                continue
            if consumer.name not in self.placement.consumers:
                self.placement.add(consumer.name, weight=1 if consumer.weight is None else consumer.weight)
            elif consumer.weight is not None:
                self.placement.set_weight(consumer.name, consumer.weight)

    def _leave_placement(self, consumer: Consumer) -> None:
        """Leave the placement and give up the room that was reserved for loads."""
        if consumer.status != Status.DRAINING and consumer.name in self.placement.consumers:
            self.placement.remove(consumer.name)
        for message in self._all(State.LOADING):
            if message.reserved_by == consumer.name:
                message.reserved_by = None

    def _forget(self, consumer: Consumer, reason: ReleaseReason) -> None:
        """Put back what the consumer holds, count no failure, and forget it."""
        for message in self._open_of(consumer.name):
            self._release(message, reason)
        self._sessions.lose(consumer.name)
        if consumer in self.consumers:  # a draining one has gone with its last delivery
            self._remove(consumer)

    def _remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        self.scopes.forget(consumer.name)

    def _evict(self, consumer: Consumer) -> None:
        self.out.notices.append(Evicted(consumer.name))
        self._leave_placement(consumer)
        for message in self._open_of(consumer.name):
            self._release(message, ReleaseReason.EVICTED)
        self._sessions.lose(consumer.name)
        self._remove(consumer)

    # --- time -------------------------------------------------------------------------------------------------------

    def _end_what_is_due(self) -> None:
        """Ack timeouts, retry waits and drain deadlines of lanes, in (deadline, offset) order."""
        due = [
            (message.deadline, message.offset, 0, self._lane(message))
            for message in self.messages.values()
            if message.deadline is not None and message.deadline <= self.now
        ]
        for lane, deadline in self.drain_deadlines.items():
            if deadline <= self.now:
                due.append(
                    (deadline, min((each.offset for each in self._awaited(lane)), default=0), 1, lane)
                )  # after a message due at the same instant; nobody is awaited in broken variants only
        for deadline, offset, is_lane, lane in sorted(due):
            timed = self.messages.get(offset)
            if is_lane:
                del self.drain_deadlines[lane]  # if it then waits for others, its time begins anew
                for message in self._awaited(lane):
                    self._release(message, ReleaseReason.DRAIN_TIMEOUT)
            elif timed and timed.deadline == deadline:  # else something due before it has ended it
                self._end_one(timed)

    def _end_one(self, message: Message) -> None:
        if message.state == State.DELAYED:
            message.deadline = None
            message.postponed = False
            self._queue(message)
        elif message.state in {State.SPILLED, State.LOADING}:
            message.deadline = None
            self._touch(message)
        else:
            self._release(message, ReleaseReason.ACK_TIMEOUT)

    def _end_consumers_that_are_due(self) -> bool:
        """Drains and grace periods that are over, in (deadline, join order); whether somebody was evicted."""
        due = [consumer for consumer in self.consumers if consumer.deadline is not None]
        due = [consumer for consumer in due if consumer.deadline <= self.now]  # type: ignore[operator]  # filtered above
        evicted = False
        for consumer in sorted(due, key=lambda consumer: consumer.deadline or 0):
            if consumer.status == Status.DRAINING:
                self._forget(consumer, ReleaseReason.DRAIN_TIMEOUT)
            else:
                self._evict(consumer)
                evicted = True
        return evicted

    # --- where lanes go ---------------------------------------------------------------------------------------------

    def _wake(self, *, moved: bool = False) -> None:
        """Deliver whatever this call has made deliverable."""
        if moved:
            self.scopes.remembered[ALL] = []
        self._examine_in_turns(sorted(set(self.touched), key=self._lowest_offset))
        if moved:
            self._examine_all_listed()
        self._serve_freed()
        self._serve_what_scopes_remember()
        self._serve_shared()
        self._send_lowest()
        self._relieve()
        self.touched.clear()

    def _serve_freed(self) -> None:
        while self.freed:
            freed, self.freed = self.freed, []
            for consumer in [consumer for consumer in self.consumers if consumer.name in freed]:
                self._serve(consumer)

    def _relieve(self) -> None:
        """Spill what came back and still waits, and load what waits for a slot."""
        self._spill_what_came_back()
        self._fill_slots()
        self._serve_freed()

    def _serve_shared(self) -> None:
        """Each message without a key goes to whoever has most room then."""
        while self._shared_listings() and (roomiest := self._most_room(self.consumers)):
            if self.has_total and not self.scopes.admits(ALL, roomiest.name, self._open_groups()):
                self.scopes.remember(ALL, roomiest.name)
                return
            self._serve(roomiest)

    def _serve_what_scopes_remember(self) -> None:
        """Serve those that the scopes remember that have opened: one turn each, and round again."""
        opened, self.scopes.opened = self.scopes.opened, []
        groups = sorted(scope for scope in set(opened) if scope is not ALL)
        for scope in [*groups, *([ALL] if ALL in opened else [])]:
            while (names := self.scopes.remembered.get(scope)) and self.scopes.is_open(scope, self._open_groups()):
                name = names.pop(0)
                self.scopes.granted[scope] = name
                self._tidy()
                self._serve(self._connected(name))
                self.scopes.granted.pop(scope, None)

    def _touch_what_waits_for_unit(self, message: Message, holder: str) -> None:
        """Look at the lanes that drain, if this was the last that its holder had of their unit."""
        unit = self._unit(self._lane(message))
        if any(self._unit(self._lane(other)) == unit for other in self._open_of(holder)):
            return
        waiting = [listing.lane for listing in self.listings if listing.queue == Queue.DRAINING]
        self.touched += [lane for lane in waiting if self._unit(lane) == unit]

    def _examine_all_listed(self) -> None:
        """Find new places for all lanes that wait, in turns of one message: nobody is served twice before others."""
        lanes = [listing.lane for listing in self.listings]
        self.listings = []
        self._tidy()
        self._examine_in_turns(lanes)
        for lane in dict.fromkeys(map(self._lane, self.messages.values())):
            left_behind = not self._is_keyless(lane) and self._drains(lane)
            if left_behind and not self._listing(lane):
                self._examine_fully(lane)

    def _group(self, lane: Lane) -> str | None:
        """The group of a lane; a message without a key is in none."""
        return None if self._is_keyless(lane) else self.scopes.name_of(lane if isinstance(lane, bytes) else None)

    def _scopes_of(self, lane: Lane) -> list[str | None]:
        return [ALL] if self._is_keyless(lane) else [self._group(lane), ALL]

    def _open_groups(self) -> list[str | None]:
        return [self._group(self._lane(message)) for message in self._all(State.IN_FLIGHT)]

    def _is_open(self, lane: Lane) -> bool:
        scopes = self._scopes_of(lane) if self.has_scopes else []
        return all(self.scopes.is_open(scope, self._open_groups()) for scope in scopes)

    def _is_admitted(self, lane: Lane, consumer: str) -> bool:
        scopes = self._scopes_of(lane) if self.has_scopes else []
        return all(self.scopes.admits(scope, consumer, self._open_groups()) for scope in scopes)

    def _shared_listings(self) -> list[Listing]:
        return [listing for listing in self.listings if listing.queue == Queue.SHARED]

    def _examine_in_turns(self, turns: list[Lane]) -> None:
        while turns:
            lane = turns.pop(0)
            if self._examine(lane):
                turns.append(lane)

    def _examine_fully(self, lane: Lane) -> None:
        while self._examine(lane):
            pass

    def _examine(self, lane: Lane) -> bool:
        """Send the lane's candidate out, or list the lane where it has to wait; whether a message was opened."""
        opened = False
        message = self._candidate(lane)
        not_yet = message is not None and message.state == State.SPILLED and message.deadline is not None
        if message is None or message.state not in {State.QUEUED, State.SPILLED} or not_yet:
            self._unlist(lane)
        elif message.key in self.quarantined:
            self._examine_quarantined(lane, message)
        elif self._is_keyless(lane):
            consumer = self._most_room(self.consumers)
            others = [listing for listing in self._shared_listings() if self._is_awake(listing)]
            if consumer and not self._somebody_waits_for(consumer) and not others:
                opened = self._send(lane, message, consumer.name)
            else:
                self._list(lane, Queue.SHARED)
        else:
            opened = self._examine_keyed(lane, message)
        if lane in self.drain_deadlines and not self._is_listed(lane, Queue.DRAINING):
            del self.drain_deadlines[lane]
        return opened

    def _examine_quarantined(self, lane: Lane, message: Message) -> None:
        """The dead-letter store owns the key: one at a time, after what is still open elsewhere."""
        if self._open_in(lane):
            self._unlist(lane)
        elif message.state == State.SPILLED:
            self._request_load(lane, message, None)
        else:
            self._unlist(lane)
            self._archive(message)
            self.came_back.append(message.offset)

    def _examine_keyed(self, lane: Lane, message: Message) -> bool:
        owner = self._owner_of(lane)
        if owner is None:
            self._list(lane, Queue.OWNERLESS)
        elif self._drains(lane):
            self._list(lane, Queue.DRAINING)
            if self.config.drain_timeout_ms is not None:
                self.drain_deadlines.setdefault(lane, self.now + self.config.drain_timeout_ms)
        elif len(self._open_in(lane)) >= self._turn_limit(lane):
            self._unlist(lane)
        elif self._sessions.refuses(lane, owner):
            self._list(lane, Queue.KEPT_BACK)
        elif not self.has_scopes and self._has_room(owner) and not self._somebody_waits_for(self._connected(owner)):
            return self._send(lane, message, owner)
        else:
            self._list(lane, Queue.READY, owner)
            self.freed.append(owner)
        return False

    def _send(self, lane: Lane, message: Message, consumer: str) -> bool:
        """Open the candidate at this consumer, or ask for its payload; whether it was opened."""
        if self.has_scopes and self._is_passed_over(lane, consumer):
            return False
        opened = self._send_at_once(lane, message, consumer)
        for scope in self._scopes_of(lane):
            self.scopes.granted.pop(scope, None)
        return opened

    def _is_passed_over(self, lane: Lane, consumer: str) -> bool:
        """List a lane that may not go out now; the scope that is in the way remembers the consumer."""
        for scope in self._scopes_of(lane):
            if self.scopes.admits(scope, consumer, self._open_groups()):
                continue
            self._list(lane, *((Queue.SHARED, None) if self._is_keyless(lane) else (Queue.READY, consumer)))
            if scope is ALL:
                self.scopes.remember(ALL, consumer)
            else:
                self.scopes.sleep(scope, consumer)
            return True
        return False

    def _send_at_once(self, lane: Lane, message: Message, consumer: str) -> bool:
        if message.state == State.SPILLED:
            self._request_load(lane, message, consumer)
            return False
        self._unlist(lane)
        self._open(message, consumer)
        for _ in range(min(self.turn, self._limit_by_rule(lane)) - 1):
            following = self._candidate(lane)
            if following and following.state == State.QUEUED and self._has_room(consumer) and self._is_open(lane):
                self._open(following, consumer)
        return True

    def _request_load(self, lane: Lane, message: Message, consumer: str | None) -> None:
        queue = [listing for listing in self.listings if listing.queue == Queue.LOAD]
        if queue or self._loaded_count() >= self.config.window:
            self._list(lane, Queue.LOAD)
        else:
            self._unlist(lane)
            self._load(message, consumer)

    def _serve(self, consumer: Consumer) -> None:
        """Give the consumer the lanes that wait for it, longest wait first, one message each."""
        if self.has_scopes:
            self._serve_by_groups(consumer)
            return
        while self._has_room(consumer.name):
            listing = next((listing for listing in self.listings if self._could_take(consumer, listing)), None)
            if listing is None:
                return
            message = self._candidate(listing.lane)
            assert message is not None
            self._take_turn(listing.lane, message, consumer)

    def _serve_by_groups(self, consumer: Consumer) -> None:
        """As `_serve`, group after group, while the subscription is open."""
        name = consumer.name
        while self._has_room(name):
            waiting = [listing for listing in self.listings if self._could_take(consumer, listing)]
            shared = [listing for listing in waiting if listing.queue == Queue.SHARED]
            first = self._next_group(name)
            of_group = [each for each in waiting if each not in shared and self._group(each.lane) == first]
            turns = [*shared[:1], *(of_group[:1] if first is not None else [])]
            if not turns:
                return
            if not self.scopes.admits(ALL, name, self._open_groups()):
                self.scopes.remember(ALL, name)
                return
            turn = min(turns, key=self.listings.index)
            message = self._candidate(turn.lane)
            assert message is not None
            if turn.queue == Queue.READY:
                self.scopes.begin_turn(name, first or "")
            self._unlist(turn.lane)
            self._take_turn(turn.lane, message, consumer)
            if turn.queue == Queue.READY:
                self.scopes.end_turn(self._ready().get(name, []))

    def _next_group(self, consumer: str) -> str | None:
        """The group whose turn it is. Those that are closed remember the consumer."""
        while awake := self.scopes.rotation.get(consumer):
            if self.scopes.admits(awake[0], consumer, self._open_groups()):
                return awake[0]
            self.scopes.sleep(awake[0], consumer)
        return None

    def _take_turn(self, lane: Lane, message: Message, consumer: Consumer) -> None:
        if self._has_room(consumer.name) and self._send(lane, message, consumer.name):
            self._examine_fully(lane)

    def _take_only(self, listing: Listing, message: Message, consumer: Consumer, *, past_scopes: bool = False) -> None:
        """Hand out this one message. The lowest one outstanding is loaded whether the window is full or not."""
        could_take = self._could_take(consumer, listing)
        if not past_scopes and not self._is_admitted(listing.lane, consumer.name):
            return
        if message.state == State.SPILLED and message.offset == min(self._log(), default=None):
            keyless = self._is_keyless(listing.lane)
            is_owner = message.key in self.quarantined or self._owner_of(listing.lane) == consumer.name
            may_get = self._accepts(consumer, None) if keyless else is_owner
            if could_take or (listing.queue == Queue.LOAD and may_get):
                self._unlist(listing.lane)
                self._load(message, consumer.name if could_take else None)
        elif could_take and self._has_room(consumer.name) and self._send_at_once(listing.lane, message, consumer.name):
            self._examine_fully(listing.lane)

    def _send_lowest(self) -> None:
        """While there are too many holes, the lowest message goes out past all others, with a slot of its own."""
        lowest = self.messages[min(self._log())] if self.scopes.paused and self._log() else None
        if lowest is None or self._candidate(self._lane(lowest)) is not lowest:
            return
        lane = self._lane(lowest)
        listing = self._listing(lane)
        keyless, owner = self._is_keyless(lane), self._owner_of(lane)
        taker = self._most_room(self.consumers) if keyless else self._find(owner or "")
        if listing is not None and taker is not None and self._has_room(taker.name):
            self._take_only(listing, lowest, taker, past_scopes=True)

    def _is_held(self, message: Message | None) -> bool:
        """Whether a message has to wait until there are fewer holes, or until it is the lowest one."""
        return self.scopes.paused and message is not None and message.offset != min(self._log(), default=None)

    def _holes(self) -> int:
        """How many stretches above the lowest outstanding message are settled."""
        return sum(
            any(below < offset and (above is None or offset < above) for offset in self.offered)
            for below, above in pairwise([*self._log(), None])
            if below is not None
        )

    def _weigh(self) -> None:
        """See how many holes there are: with too many, nothing but the lowest goes out until there are half as many."""
        most = self.config.max_ack_holes
        if most is None:
            return
        if self._holes() > most:
            self.scopes.paused = True
        elif self.scopes.paused and 2 * self._holes() <= most:
            self.scopes.paused = False
            self.scopes.note_room(ALL)

    def _fill_slots(self) -> None:
        """Load the lanes that wait for a slot of the window."""
        while self._loaded_count() < self.config.window:
            lane = next((listing.lane for listing in self.listings if listing.queue == Queue.LOAD), None)
            if lane is None:
                return
            self._unlist(lane)
            message = self._candidate(lane)
            taker = self._taker(lane)
            if message and message.state == State.SPILLED and (message.key in self.quarantined or taker):
                self._load(message, None if message.key in self.quarantined else taker)
            else:
                self._examine_fully(lane)

    def _taker(self, lane: Lane) -> str | None:
        """Who would get the lane's next message and has room for it."""
        if self._is_keyless(lane):
            consumer = self._most_room(self.consumers)
            return consumer.name if consumer and self._is_admitted(lane, consumer.name) else None
        owner = self._owner_of(lane)
        return owner if owner and self._has_room(owner) and self._is_admitted(lane, owner) else None

    def _may_go_to(self, lane: Lane, consumer: str) -> bool:
        """Whether this consumer may be sent the lane's candidate, whoever else waits."""
        message, known = self._candidate(lane), self._find(consumer)
        if message is None or known is None or message.key in self.quarantined or not self._has_room(consumer):
            return False
        if not self._is_admitted(lane, consumer):
            return False
        if self._is_keyless(lane):
            return self._accepts(known, None)
        return (
            self._owner_of(lane) == consumer
            and not self._awaited(lane)
            and not self._sessions.refuses(lane, consumer)
            and len(self._open_in(lane)) < self._turn_limit(lane)
        )

    def _reason(self, message: Message) -> BlockReason:
        lane = self._lane(message)
        if message.attempt == 0 and message.deadline is not None and message.state in {State.DELAYED, State.SPILLED}:
            return BlockReason.NOT_BEFORE
        own_state = {
            State.DELAYED: BlockReason.POSTPONED if message.postponed else BlockReason.RETRY_WAIT,
            State.DEAD_LETTERING: BlockReason.DEAD_LETTERING,
            State.BLOCKED: BlockReason.BLOCKED,
            State.LOADING: BlockReason.LOADING,
        }
        if message.state in own_state:
            return own_state[message.state]
        if message.key in self.quarantined:
            return BlockReason.QUARANTINED
        if message is not self._candidate(lane):
            return BlockReason.OLDER_WAITS
        if self._is_keyless(lane):
            return self._reason_keyless(lane)
        return self._reason_keyed(lane)

    def _reason_keyless(self, lane: Lane) -> BlockReason:
        eligible = [consumer for consumer in self._not_draining() if self._accepts(consumer, None)]
        if not eligible:
            return BlockReason.NO_CONSUMER
        if self._is_held(self._candidate(lane)):
            return BlockReason.ACK_HOLES
        if all(consumer.status != Status.ACTIVE for consumer in eligible):
            return BlockReason.CONSUMER_INACTIVE
        return self._reason_of_room(lane, any(self._has_room(consumer.name) for consumer in eligible))

    def _reason_of_group(self, lane: Lane) -> BlockReason:
        group = self.scopes.group(self._group(lane) or "")
        if group.paused:
            return BlockReason.GROUP_PAUSED
        most = group.limits.max_in_flight
        is_full = most is not None and self._open_groups().count(self._group(lane)) >= most
        return BlockReason.GROUP_FULL if is_full else BlockReason.GROUP_RATE

    def _reason_keyed(self, lane: Lane) -> BlockReason:
        owner = self._owner_of(lane)
        if owner is None:
            key = lane if isinstance(lane, bytes) else None
            wanted = any(self._accepts(consumer, key) for consumer in self._not_draining())
            return BlockReason.UNOWNED if wanted and self._is_unowned(key) else BlockReason.NO_CONSUMER
        if self._drains(lane):
            return BlockReason.DRAINING
        if len(self._open_in(lane)) >= self._turn_limit(lane):
            return BlockReason.KEY_IN_FLIGHT
        if self._sessions.refuses(lane, owner) or self._is_held(self._candidate(lane)):
            return BlockReason.FLUSHING if self._sessions.refuses(lane, owner) else BlockReason.ACK_HOLES
        return self._reason_beside_key(lane, owner)

    def _reason_beside_key(self, lane: Lane, owner: str) -> BlockReason:
        group = self._group(lane)
        waits = owner in self.scopes.remembered.get(group, [])
        if self.has_groups and (waits or not self.scopes.is_open(group, self._open_groups())):
            return self._reason_of_group(lane)
        if self._connected(owner).status != Status.ACTIVE:
            return BlockReason.CONSUMER_INACTIVE
        return self._reason_of_room(lane, self._has_room(owner))

    def _reason_of_room(self, lane: Lane, somebody_has_room: bool) -> BlockReason:
        message = self._candidate(lane)
        is_spilled = message is not None and message.state == State.SPILLED
        if somebody_has_room and is_spilled and self._loaded_count() >= self.config.window:
            return BlockReason.WINDOW_FULL
        return BlockReason.SUBSCRIPTION_FULL if somebody_has_room else BlockReason.CONSUMER_FULL

    # --- lists of lanes ---------------------------------------------------------------------------------------------

    def _listing(self, lane: Lane) -> Listing | None:
        return next((listing for listing in self.listings if listing.lane == lane), None)

    def _is_listed(self, lane: Lane, queue: Queue) -> bool:
        listing = self._listing(lane)
        return listing is not None and listing.queue == queue

    def _list(self, lane: Lane, queue: Queue, consumer: str | None = None) -> None:
        """Put the lane at the end of a queue; one that is already there keeps its place."""
        listing = Listing(lane, queue, consumer)
        if self._listing(lane) != listing:
            self.listings = [listing for listing in self.listings if listing.lane != lane]
            self.listings.append(listing)
            self._tidy()

    def _unlist(self, lane: Lane) -> None:
        self.listings = [listing for listing in self.listings if listing.lane != lane]
        self._tidy()

    def _ready(self) -> dict[str, list[str]]:
        """By consumer, the groups of which lanes are ready for it."""
        ready: dict[str, list[str]] = {}
        for listing in self.listings:
            if listing.queue == Queue.READY and listing.consumer is not None:
                ready.setdefault(listing.consumer, []).append(self._group(listing.lane) or "")
        return ready

    def _tidy(self) -> None:
        if self.has_scopes:
            self.scopes.tidy(self._ready())

    def _is_awake(self, listing: Listing) -> bool:
        """Whether the scopes of a lane that waits let it be served."""
        remembered = self.scopes.remembered
        if listing.queue == Queue.SHARED:
            return self.scopes.is_open(ALL, self._open_groups()) and not remembered.get(ALL)
        asleep = listing.consumer in remembered.get(ALL, []) or listing.consumer in remembered.get(
            self._group(listing.lane), []
        )
        return not asleep

    def _could_take(self, consumer: Consumer, listing: Listing) -> bool:
        if listing.queue == Queue.SHARED:
            return self._accepts(consumer, None)
        return listing.queue == Queue.READY and listing.consumer == consumer.name

    def _somebody_waits_for(self, consumer: Consumer) -> bool:
        return any(self._could_take(consumer, each) and self._is_awake(each) for each in self.listings)

    # --- facts found by scanning ------------------------------------------------------------------------------------

    def _key(self, key: object) -> bytes | None:
        """What the caller calls a key, in bytes; with ``ordering_required`` all are one."""
        wanted = as_key(key)
        return b"" if self.config.ordering_required else wanted

    def _lane(self, message: Message) -> Lane:
        return message.offset if message.key is None else message.key

    def _is_keyless(self, lane: Lane) -> bool:
        return isinstance(lane, int)

    def _touch(self, message: Message) -> None:
        self.touched.append(self._lane(message))

    def _in_lane(self, lane: Lane) -> list[Message]:
        return [message for message in self.messages.values() if self._lane(message) == lane]

    def _open_in(self, lane: Lane) -> list[Message]:
        return [message for message in self._in_lane(lane) if message.state == State.IN_FLIGHT]

    def _open_of(self, name: str) -> list[Message]:
        return [message for message in self._all(State.IN_FLIGHT) if message.consumer == name]

    def _all(self, state: State) -> list[Message]:
        return [message for message in self.messages.values() if message.state == state]

    def _loaded_count(self) -> int:
        return sum(message.has_slot for message in self.messages.values())

    def _lowest_offset(self, lane: Lane) -> int:
        return min((message.offset for message in self._in_lane(lane)), default=-1)

    def _candidate(self, lane: Lane) -> Message | None:
        """The lane's oldest message that is not open: nothing newer may overtake it."""
        return next((message for message in self._in_lane(lane) if message.state != State.IN_FLIGHT), None)

    def _awaited(self, lane: Lane) -> list[Message]:
        """What others than its owner hold of the lane's unit: nothing of the lane goes out before these have ended."""
        owner, unit = self._owner_of(lane), self._unit(lane)
        open_here = [other for other in self._all(State.IN_FLIGHT) if self._unit(self._lane(other)) == unit]
        return [other for other in open_here if other.consumer != owner]

    def _drains(self, lane: Lane) -> bool:
        """Whether what others hold is in the way, and not only what the owner itself holds of the key."""
        open_ones = self._open_in(lane)
        all_at_owner = {message.consumer for message in open_ones} == {self._owner_of(lane)}
        waits_for_owner = all_at_owner and len(open_ones) >= self._turn_limit(lane)
        return bool(self._awaited(lane)) and not waits_for_owner

    def _unit(self, lane: Lane) -> Unit:
        """What the lane is handed over together with, in the placement of now."""
        if self.config.unit == DrainUnit.KEY or not isinstance(lane, bytes):
            return lane
        slot = self.placement.ranges.slot_of(lane)
        if self.config.unit == DrainUnit.HASH:
            return f"slot {slot}"
        return next(f"slots {start} to {stop}" for start, stop in self._runs() if start <= slot < stop)

    def _runs(self) -> list[tuple[int, int]]:
        """Where the runs of the placement begin and end."""
        return [(start, stop) for start, stop, _ in self.placement.ranges.runs]

    def _owner_of(self, lane: Lane) -> str | None:
        return self._owner(lane if isinstance(lane, bytes) else None)

    def _owner(self, key: bytes | None) -> str | None:
        """The first consumer of the key's walk that accepts the key; nobody if the walk meets a stranger first.

        Nor does a walk begin where nobody owns the slot.
        """
        if self._slot_owner(key) is None:
            return None
        for name in self.placement.ranges.walk(self._slot(key)):
            consumer = self._find(name)
            if consumer is None or consumer.status == Status.DRAINING:
                return None
            if self._accepts(consumer, key):
                return name
        return None

    def _slot_owner(self, key: bytes | None) -> str | None:
        return self.placement.ranges.owner(self._slot(key))

    def _slot(self, key: bytes | None) -> int:
        return self.placement.ranges.slot_of(b"" if key is None else key)

    def _accepts(self, consumer: Consumer, key: bytes | None) -> bool:
        if not consumer.filters:
            return True
        if key is None:
            return "*" in consumer.filters
        text = key.decode("utf-8", "surrogateescape")
        return any(matches(pattern, text) for pattern in consumer.filters)

    def _not_draining(self) -> list[Consumer]:
        return [consumer for consumer in self.consumers if consumer.status != Status.DRAINING]

    def _room(self, consumer: Consumer) -> int:
        reserved = [message for message in self._all(State.LOADING) if message.reserved_by == consumer.name]
        return consumer.limit - len(self._open_of(consumer.name)) - len(reserved)

    def _has_room(self, name: str) -> bool:
        consumer = self._find(name)
        return consumer is not None and consumer.status == Status.ACTIVE and self._room(consumer) > 0

    def _most_room(self, consumers: Sequence[Consumer]) -> Consumer | None:
        """Who of these gets a message without a key: who accepts it and has most room, the earliest of equals."""
        able = [consumer for consumer in consumers if self._has_room(consumer.name) and self._accepts(consumer, None)]
        return max(able, key=self._room, default=None)


def _lane_to_json(lane: Lane) -> list[Any]:
    return ["key", lane.hex()] if isinstance(lane, bytes) else ["other", lane]


def _lane_from_json(stored: Sequence[Any]) -> Lane:
    kind, lane = stored
    return bytes.fromhex(lane) if kind == "key" else lane
