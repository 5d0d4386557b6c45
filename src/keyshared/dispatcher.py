"""The reliable Key-Shared dispatcher: takes facts and the time, returns effects.

It composes the window (order, limits, memory), membership and routing (who owns a key), timers, and the policies of a configuration. Here
are the inputs, one method each, and the order of the effects; nothing else decides what a host is told.

Why lists of effects, and not callbacks or something to poll: cause and effect stay together in a log, a call that raises has emitted
nothing, and the state can be asked, copied and stored between any two calls.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Self

from keyshared.config import DispatcherConfig, Unmatched
from keyshared.drains import Drain, DrainDeadlines, due_order
from keyshared.effects import (
    AckIgnored,
    AckIgnoredReason,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Effect,
    Load,
    ReleaseReason,
    Resumed,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.endings import Endings
from keyshared.errors import (
    ClockError,
    ConfigError,
    InvariantError,
    OffsetOrderError,
    UnmatchedKeyError,
    WindowFullError,
)
from keyshared.explain import Blocking, DispatcherStats, gather_stats, why_blocked
from keyshared.hashing import Key, key_bytes
from keyshared.lanes import Entry, State
from keyshared.members import Member
from keyshared.membership import Membership, held_by
from keyshared.placement import Placement
from keyshared.ranges import Weight
from keyshared.routing import Routing
from keyshared.snapshot import (
    EPOCH_BITS,
    Reader,
    dump_members,
    dump_window,
    load_drains,
    load_member,
    load_window,
    placement_mark,
)
from keyshared.timers import NEVER, Timers
from keyshared.window import InFlightWindow

__all__ = ["KeySharedDispatcher", "Message", "Receipt"]

Message = tuple[int, Key, object]
"""Offset, key and passenger, as `KeySharedDispatcher.offer_many` takes them."""
Receipt = tuple[int, str, int]
"""Offset, consumer and attempt: what names one delivery."""

SNAPSHOT_VERSION: Final = 1

_SPILLED: Final = int(State.SPILLED)
_LOADING: Final = int(State.LOADING)
_IN_FLIGHT: Final = int(State.IN_FLIGHT)
_RETRY_WAIT: Final = int(State.RETRY_WAIT)
_DEAD_LETTERING: Final = int(State.DEAD_LETTERING)
_BLOCKED: Final = int(State.BLOCKED)
_new: Final = tuple.__new__  # builds a Deliver in half the time that its own constructor takes


class KeySharedDispatcher:
    def __init__(self, placement: Placement, config: DispatcherConfig | None = None) -> None:
        config = DispatcherConfig() if config is None else config
        self._config = config
        self._routing = Routing(placement, one_key=b"" if config.ordering_required else None)
        self._window = InFlightWindow(
            self._routing,
            capacity=config.window,
            max_tracked=config.max_tracked,
            per_key=config.max_in_flight_per_key,
            loaded_per_key=config.max_loaded_per_key,
            one_lane=config.ordering_required,
            track_drains=config.drain_timeout_ms is not None,
            start=config.start,
        )
        self._timers = Timers()
        self._endings = Endings(config, self._window, self._timers)
        self._membership = Membership(config, self._routing, self._window, self._timers, self._endings)
        self._drains = (
            None
            if config.drain_timeout_ms is None
            else DrainDeadlines(self._window, self._timers, config.drain_timeout_ms)
        )
        self._ack_timeout_ms = config.ack_timeout_ms
        self._now = 0
        self._reported: int | None = None  # the cursor of the last CursorAdvanced
        self._paused = False
        # Offers up to here are known already: what is below config.start, or what a snapshot has seen.
        self._replay_until: int | None = None if config.start is None else config.start - 1
        self._epoch = 0

    @classmethod
    def restore(
        cls,
        state: object,
        placement: Placement,
        config: DispatcherConfig | None = None,
        *,
        now_ms: int,
        epoch: int = 0,
        items: Mapping[int, object] | None = None,
    ) -> Self:
        data = Reader(state)
        if data.field("version").integer() != SNAPSHOT_VERSION:
            raise data.field("version").refuse(f"be {SNAPSHOT_VERSION}, the version that this release writes")
        new = cls(placement, config)
        new._now = new._checked_now(now_ms)
        new._load(data, epoch, {} if items is None else items)
        return new

    # messages in

    def offer(self, offset: int, key: Key, item: object = None, *, now_ms: int | None = None) -> list[Effect]:
        if now_ms is None:
            now_ms = self._now
        elif type(now_ms) is not int or now_ms < self._now:
            raise ClockError(now_ms, self._now)
        if type(key) is not bytes:
            key = key_bytes(key)
        if self._membership.picky or self._replay_until is not None:
            answer = self._answer_special(offset, key, item, now_ms)
            if answer is not None:
                return answer
        granted = self._window.offer(offset, key, item)
        self._now = now_ms
        return self._finish([], granted)

    def offer_many(self, messages: Iterable[Message], *, now_ms: int | None = None) -> list[Effect]:
        now = self._checked_now(now_ms)
        batch = [(offset, key_bytes(key), item) for offset, key, item in messages]
        self._check_batch(batch)
        self._now = now
        return self._merged([self.offer(*message) for message in batch])

    # answers

    def ack(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect]:
        if now_ms is None:
            now_ms = self._now
        elif type(now_ms) is not int or now_ms < self._now:
            raise ClockError(now_ms, self._now)
        self._now = now_ms
        member = self._membership.members.get(consumer)
        entry = None if member is None else member.open.get(offset)
        if entry is None or entry.attempt != attempt:
            return self._late_ack(offset, consumer, attempt)
        entry.deadline = NEVER
        if self._endings.marks:
            self._endings.marks.pop(offset, None)
        return self._finish([], self._window.settle(entry))

    def ack_many(self, receipts: Iterable[Receipt], *, now_ms: int | None = None) -> list[Effect]:
        receipts = list(receipts)
        self._now = self._checked_now(now_ms)
        return self._merged([self.ack(*receipt) for receipt in receipts])

    def nack(
        self, offset: int, consumer: str, attempt: int, *, delay_ms: int | None = None, now_ms: int | None = None
    ) -> list[Effect]:
        now = self._checked_now(now_ms)
        _check_delay("delay_ms", delay_ms)
        self._now = now
        entry = self._current(offset, consumer, attempt)
        if entry is None:
            return [self._ignored(offset, consumer, attempt)]
        notices: list[Effect] = []
        self._endings.fail(entry, notices, now, delay_ms=delay_ms)
        return self._wake(notices)

    def reject(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect]:
        self._now = self._checked_now(now_ms)
        entry = self._current(offset, consumer, attempt)
        if entry is None:
            return [self._ignored(offset, consumer, attempt)]
        notices: list[Effect] = []
        self._endings.reject(entry, notices)
        return self._wake(notices)

    def release(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect]:
        self._now = self._checked_now(now_ms)
        entry = self._current(offset, consumer, attempt)
        if entry is None:
            return [self._ignored(offset, consumer, attempt)]
        notices: list[Effect] = []
        self._endings.release(entry, notices)
        return self._wake(notices)

    def extend(
        self, offset: int, consumer: str, attempt: int, *, extend_ms: int | None = None, now_ms: int | None = None
    ) -> list[Effect]:
        now = self._checked_now(now_ms)
        _check_delay("extend_ms", extend_ms)
        self._now = now
        entry = self._current(offset, consumer, attempt)
        if entry is None:
            return [self._ignored(offset, consumer, attempt)]
        length = self._ack_timeout_ms if extend_ms is None else extend_ms
        if length is not None:
            self._timers.start(entry, now + length)
        return []

    # poison, spill, the log

    def dead_lettered(self, offset: int, *, now_ms: int | None = None) -> list[Effect]:
        self._now = self._checked_now(now_ms)
        entry = self._window.find(offset)
        if entry is None or entry.state != _DEAD_LETTERING:
            return [_not_applicable(offset, entry, AckIgnoredReason.NOT_DEAD_LETTERING)]
        notices: list[Effect] = []
        self._endings.archived(entry, notices)
        return self._wake(notices)

    def loaded(self, offset: int, item: object = None, *, now_ms: int | None = None) -> list[Effect]:
        self._now = self._checked_now(now_ms)
        entry = self._window.find(offset)
        if entry is None or entry.state != _LOADING:
            return [_not_applicable(offset, entry, AckIgnoredReason.NOT_LOADING)]
        self._window.provide(entry, item)
        return self._wake([])

    def unblock(self, key: Key, *, now_ms: int | None = None) -> list[Effect]:
        now = self._checked_now(now_ms)
        self._endings.unblock(key_bytes(key))
        self._now = now
        return self._wake([])

    def park(self, offset: int, *, now_ms: int | None = None) -> list[Effect]:
        self._now = self._checked_now(now_ms)
        entry = self._window.find(offset)
        if entry is None or entry.state != _BLOCKED:
            return [_not_applicable(offset, entry, AckIgnoredReason.NOT_BLOCKED)]
        notices: list[Effect] = []
        self._endings.park(entry, notices)
        return self._wake(notices)

    def gone(self, offset: int, *, now_ms: int | None = None) -> list[Effect]:
        self._now = self._checked_now(now_ms)
        notices: list[Effect] = []
        entry = self._window.find(offset)
        if entry is not None:
            self._endings.gone(entry, notices)
        return self._wake(notices)

    def truncate(self, before: int, *, now_ms: int | None = None) -> list[Effect]:
        self._now = self._checked_now(now_ms)
        notices: list[Effect] = []
        for entry in self._window.older_than(before):
            self._endings.gone(entry, notices)
        return self._wake(notices)

    # consumers

    def add_consumer(
        self,
        name: str,
        *,
        filters: Iterable[str] = (),
        weight: Weight = 1,
        limit: int | None = None,
        now_ms: int | None = None,
    ) -> list[Effect]:
        now = self._checked_now(now_ms)
        notices: list[Effect] = []
        self._membership.join(name, filters, weight, limit, notices)
        self._now = now
        return self._wake(notices)

    def remove_consumer(self, name: str, *, drain_ms: int | None = 0, now_ms: int | None = None) -> list[Effect]:
        now = self._checked_now(now_ms)
        notices: list[Effect] = []
        self._membership.leave(name, now, drain_ms, notices)
        self._now = now
        return self._wake(notices)

    def set_inactive(self, name: str, *, now_ms: int | None = None) -> list[Effect]:
        self._now = self._checked_now(now_ms)
        self._membership.deactivate(name, self._now)
        return self._wake([])

    def set_active(self, name: str, *, resumed: bool = False, now_ms: int | None = None) -> list[Effect]:
        now = self._checked_now(now_ms)
        notices: list[Effect] = []
        self._membership.activate(name, notices, resumed=resumed)
        self._now = now
        return self._wake(notices)

    def set_limit(self, name: str, limit: int, *, now_ms: int | None = None) -> list[Effect]:
        now = self._checked_now(now_ms)
        self._membership.set_limit(name, limit)
        self._now = now
        return self._wake([])

    def set_filters(self, name: str, filters: Iterable[str], *, now_ms: int | None = None) -> list[Effect]:
        now = self._checked_now(now_ms)
        self._membership.set_filters(name, filters)
        self._now = now
        return self._wake([])

    def set_weight(self, name: str, weight: Weight, *, now_ms: int | None = None) -> list[Effect]:
        now = self._checked_now(now_ms)
        self._membership.set_weight(name, weight)
        self._now = now
        return self._wake([])

    def set_placement(self, placement: Placement, *, now_ms: int | None = None) -> list[Effect]:
        now = self._checked_now(now_ms)
        self._membership.set_placement(placement)
        self._now = now
        return self._wake([])

    # time

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline

    def handle_timeout(self, *, now_ms: int | None = None) -> list[Effect]:
        self._now = now = self._checked_now(now_ms)
        notices: list[Effect] = []
        for timed in due_order(self._timers.pop_due(now)):
            if isinstance(timed, Entry):
                self._message_due(timed, notices)
            elif isinstance(timed, Member):
                self._membership.deadline_reached(timed, notices)
            elif isinstance(timed, Drain):
                for entry in timed.open_entries():
                    self._endings.release(entry, notices, ReleaseReason.DRAIN_TIMEOUT)
        return self._wake(notices)

    def _message_due(self, entry: Entry, notices: list[Effect]) -> None:
        if entry.state == _IN_FLIGHT:
            self._endings.fail(entry, notices, self._now, reason=ReleaseReason.ACK_TIMEOUT)
        elif entry.state == _RETRY_WAIT:
            self._window.move(entry, State.QUEUED)

    # queries

    @property
    def config(self) -> DispatcherConfig:
        return self._config

    @property
    def safe_cursor(self) -> int | None:
        return self._window.cursor.safe_cursor

    @property
    def resume_offset(self) -> int | None:
        return self._window.cursor.resume_offset

    @property
    def free_slots(self) -> int:
        return self._window.free_slots

    def acked_ranges(self) -> list[tuple[int, int]]:
        return self._window.cursor.acked_ranges()

    def owner(self, key: Key) -> str | None:
        data = key_bytes(key)
        if data is None and not self._config.ordering_required:
            return None
        return self._routing.owner(b"" if data is None else data)

    def why_blocked(self, offset: int) -> Blocking | None:
        entry = self._window.find(offset)
        return None if entry is None else why_blocked(self._window, entry, self._config.max_in_flight_per_key)

    def in_flight(self, consumer: str | None = None) -> list[Deliver]:
        members = self._membership.members
        chosen = members.values() if consumer is None else [members[consumer]] if consumer in members else []
        return [_delivery(entry) for member in chosen for entry in held_by(member)]

    def outstanding_effects(self) -> list[Effect]:
        entries = self._window.outstanding()
        archive = [_dead_letter(entry) for entry in entries if entry.state == _DEAD_LETTERING]
        load = [_load(entry) for entry in entries if entry.state == _LOADING]
        return [*archive, *load, *(_delivery(entry) for entry in entries if entry.state == _IN_FLIGHT)]

    def is_current(self, effect: Effect) -> bool:
        match effect:
            case CursorAdvanced(safe_cursor):
                return safe_cursor == self.safe_cursor
            case Resumed():
                return self.free_slots > 0
            case Deliver(offset, _, consumer, attempt):
                return self._current(offset, consumer, attempt) is not None
            case DeadLetter(offset) | Load(offset):
                entry = self._window.find(offset)
                state = _DEAD_LETTERING if isinstance(effect, DeadLetter) else _LOADING
                return entry is not None and entry.state == state
            case _:
                return True

    def stats(self) -> DispatcherStats:
        return gather_stats(self._window, self._membership.members)

    def check_invariants(self) -> None:
        self._window.check_invariants()
        self._membership.check_invariants()

    def snapshot(self) -> dict[str, object]:
        return {
            "version": SNAPSHOT_VERSION,
            "epoch": self._epoch,
            "reported": self._reported,
            "paused": self._paused,
            "ranges": placement_mark(self._routing.ranges),
            "consumers": dump_members(self._membership.members, self._now),
            **dump_window(self._window, self._endings, self._drains, self._now),
        }

    def _load(self, data: Reader, epoch: int, items: Mapping[int, object]) -> None:
        self._epoch = max(epoch, data.field("epoch").count())
        self._window.first_attempt = self._epoch << EPOCH_BITS
        for order, consumer in enumerate(data.field("consumers").items()):
            self._membership.readmit(load_member(consumer, order, self._timers, self._now))
        if data.field("ranges").text() != placement_mark(self._routing.ranges):
            raise data.field("ranges").refuse("belong to the placement that is given: same kind, same settings")
        load_window(data, self._window, self._endings, self._timers, self._now, items)
        load_drains(data, self._window, self._drains, self._now)
        self._reported = data.field("reported").maybe(Reader.integer)
        self._paused = data.field("paused").flag()
        if self._window.cursor.last is not None:
            self._replay_until = self._window.cursor.last
        try:
            self.check_invariants()
        except InvariantError as broken:
            raise data.refuse(f"describe a dispatcher in which {broken.fact}") from broken

    # how a call ends

    def _wake(self, notices: list[Effect]) -> list[Effect]:
        return self._finish(notices, self._window.wake())

    def _finish(self, out: list[Effect], granted: list[Entry]) -> list[Effect]:
        """Add obligations and state to the notices in ``out``: what a call returns."""
        others: list[Entry] | None = None
        notices = len(out)
        for entry in granted:
            if entry.state == _IN_FLIGHT:
                if self._ack_timeout_ms is not None:
                    self._timers.start_last(entry, self._now + self._ack_timeout_ms)
                name = entry.consumer.name  # type: ignore[union-attr]  # whatever is in flight has a consumer
                fields = (entry.offset, entry.key, name, entry.attempt, entry.failures, entry.item)
                out.append(_new(Deliver, fields))
            elif others is None:
                others = [entry]
            else:
                others.append(entry)
        if others is not None:
            out[notices:notices] = _other_obligations(others)
        window = self._window
        if window.emptied:
            self._membership.reap()
        if self._drains is not None:
            self._drains.refresh(self._now)
        safe = window.cursor.safe_cursor
        if safe is not None and safe != self._reported:
            self._reported = safe
            out.append(CursorAdvanced(safe))
        if self._paused:
            self._resume_if_roomy(out)
        elif window.loaded >= window.capacity or window.cursor.outstanding >= window.max_tracked:
            self._paused = True
        return out

    def _resume_if_roomy(self, out: list[Effect]) -> None:
        free = self._window.free_slots
        if free >= max(1, self._window.capacity // 4):
            self._paused = False
            out.append(Resumed(free))

    def _merged(self, calls: list[list[Effect]]) -> list[Effect]:
        """One list of effects for several calls at one instant: kinds in order, each kind as it came, state once."""
        effects = [effect for call in calls for effect in call]
        states = [effect for effect in effects if isinstance(effect, CursorAdvanced | Resumed)]
        merged: list[Effect] = sorted((e for e in effects if not isinstance(e, CursorAdvanced | Resumed)), key=_rank)
        merged.extend([effect for effect in states if isinstance(effect, CursorAdvanced)][-1:])
        if any(isinstance(effect, Resumed) for effect in states):
            self._paused = True
            self._resume_if_roomy(merged)
        return merged

    # checks

    def _checked_now(self, now_ms: int | None) -> int:
        if now_ms is None:
            return self._now
        if type(now_ms) is not int or now_ms < self._now:
            raise ClockError(now_ms, self._now)
        return now_ms

    def _answer_special(self, offset: int, key: bytes | None, item: object, now: int) -> list[Effect] | None:
        """What the rare cases of an offer are answered with; None if it is an offer like any other."""
        if self._replay_until is not None:
            if type(offset) is int and offset <= self._replay_until:
                self._now = now
                entry = self._window.find(offset)
                if entry is not None and entry.item is None and entry.state != _SPILLED:
                    entry.item = item
                return []
        self._window.check_offer(offset)
        unmatched = self._is_unmatched(key)
        if unmatched and self._config.unmatched is Unmatched.ERROR:
            raise UnmatchedKeyError(key)
        self._replay_until = None
        if not unmatched or self._config.unmatched is Unmatched.HOLD:
            return None
        self._now = now
        self._window.cursor.skip(offset)
        return self._finish([Skipped(offset, key, SkipReason.UNMATCHED)], [])

    def _is_unmatched(self, key: bytes | None) -> bool:
        membership = self._membership
        if not membership.picky or key in self._window.lanes:
            return False
        return not membership.accepts(key)

    def _check_batch(self, batch: list[tuple[int, bytes | None, object]]) -> None:
        """Raise what any of the offers would raise, before the first one has changed anything."""
        fresh = [
            message for message in batch if self._replay_until is None or not _is_known(message, self._replay_until)
        ]
        last = self._window.cursor.last
        for offset, _, _ in fresh:
            if type(offset) is not int or (last is not None and offset <= last):
                raise OffsetOrderError(offset, last)
            last = offset
        free = self.free_slots
        if len(fresh) > free:
            raise WindowFullError(min(self._window.capacity, self._window.max_tracked))
        if self._config.unmatched is Unmatched.ERROR:
            for _, key, _ in fresh:
                if self._is_unmatched(key):
                    raise UnmatchedKeyError(key)

    def _current(self, offset: int, consumer: str, attempt: int) -> Entry | None:
        """The message whose current delivery that is, or None."""
        member = self._membership.members.get(consumer)
        entry = None if member is None else member.open.get(offset)
        return entry if entry is not None and entry.attempt == attempt else None

    def _late_ack(self, offset: int, consumer: str, attempt: int) -> list[Effect]:
        ignored = self._ignored(offset, consumer, attempt)
        if ignored.reason is not AckIgnoredReason.STALE_ATTEMPT:
            return [ignored]
        entry: Entry = self._window.find(offset)  # type: ignore[assignment]  # a stale attempt is one of something outstanding
        if entry.state == _IN_FLIGHT:
            self._endings.mark_late(entry)
            return [ignored._replace(reason=AckIgnoredReason.LATE_ACK_NOTED)]
        self._endings.settle(entry)
        return self._wake([])

    def _ignored(self, offset: int, consumer: str, attempt: int) -> AckIgnored:
        return AckIgnored(offset, consumer, attempt, self._why_ignored(self._window.find(offset), consumer, attempt))

    def _why_ignored(self, entry: Entry | None, consumer: str, attempt: int) -> AckIgnoredReason:
        """Why an answer that does not name a current delivery does not apply."""
        if entry is None:
            return AckIgnoredReason.UNKNOWN_OFFSET
        if entry.state == _DEAD_LETTERING:
            return AckIgnoredReason.DEAD_LETTERING
        if entry.state == _BLOCKED:
            return AckIgnoredReason.BLOCKED
        if not 1 <= attempt <= entry.attempt:
            return AckIgnoredReason.UNKNOWN_ATTEMPT
        if attempt == entry.attempt and entry.consumer is not None and entry.consumer.name != consumer:
            return AckIgnoredReason.NOT_HOLDER
        return AckIgnoredReason.STALE_ATTEMPT


def _other_obligations(entries: list[Entry]) -> list[Effect]:
    """Spill notices, dead letters and loads for what was granted; one that was settled within the call is passed over."""
    spilled: list[Effect] = [Spilled(entry.offset) for entry in entries if entry.state == _SPILLED]
    archive: list[Effect] = [_dead_letter(entry) for entry in entries if entry.state == _DEAD_LETTERING]
    return spilled + archive + [_load(entry) for entry in entries if entry.state == _LOADING]


def _dead_letter(entry: Entry) -> DeadLetter:
    return DeadLetter(entry.offset, entry.key, entry.attempt, entry.failures, entry.item)


def _load(entry: Entry) -> Load:
    return Load(entry.offset, entry.key)


def _delivery(entry: Entry) -> Deliver:
    name = entry.consumer.name  # type: ignore[union-attr]  # whatever is in flight has a consumer
    return Deliver(entry.offset, entry.key, name, entry.attempt, entry.failures, entry.item)


def _not_applicable(offset: int, entry: Entry | None, reason: AckIgnoredReason) -> AckIgnored:
    return AckIgnored(offset, None, None, AckIgnoredReason.UNKNOWN_OFFSET if entry is None else reason)


def _is_known(message: tuple[int, bytes | None, object], until: int) -> bool:
    return type(message[0]) is int and message[0] <= until


def _rank(effect: Effect) -> int:
    return _RANKS.get(type(effect), 0)


def _check_delay(parameter: str, value: int | None) -> None:
    if value is not None and (type(value) is not int or value < 0):
        raise ConfigError(parameter, value, "be an int of at least 0, or None")


_RANKS: Final[dict[type[Effect], int]] = {DeadLetter: 1, Load: 2, Deliver: 3}
