"""The unchecked core of the dispatcher: takes facts and the time, returns effects.

It composes the rooms of the core and has a method for each input about messages; what is about consumers and groups
goes to their rooms, and then to `Machine.wake`. What depends on the types and ranges of arguments is checked by
`KeySharedDispatcher`; what depends on the state is checked here, before anything changes. ``now`` is never below the
instant of the last call.
"""

from collections.abc import Sequence
from typing import Any, Final

from keyshared._core.admission import Admission, Offered
from keyshared._core.chosen import Chosen, window_for
from keyshared._core.endings import REMEMBERED_DELIVERIES, Endings
from keyshared._core.feature import Feature
from keyshared._core.lanes import overrides
from keyshared._core.membership import Membership
from keyshared._core.outbox import Outbox
from keyshared._core.quotas import Clock
from keyshared._core.records import BLOCKED, DEAD_LETTERING, IN_FLIGHT, LOADING, Consumer, ConsumerState, Entry
from keyshared._core.routing import Routing
from keyshared._core.timers import Duties, Duty, Stage, Timers, due_order
from keyshared._core.values import Receipt, StoredLetter
from keyshared.config import DispatcherConfig, Rules
from keyshared.cursor.token import Position
from keyshared.effects import (
    Call,
    CursorAdvanced,
    Deliver,
    Done,
    Effect,
    Ending,
    Ignored,
    IgnoredReason,
    ReleaseReason,
    SettleReason,
    Skipped,
    SkipReason,
)
from keyshared.errors import ConfigError, KeySharedError
from keyshared.placement.protocol import Placement

__all__ = ["Machine"]

_Effects = list[Effect[Any]]

_new: Final[Any] = tuple.__new__  # builds an effect in half the time that its own constructor takes


class Machine(Clock):
    """A dispatcher whose arguments were checked.

    Attributes:
        epoch: How often the dispatcher was restored after a crash.
    """

    def __init__(
        self,
        placement: Placement,
        config: DispatcherConfig,
        rules: Rules | None = None,
        extra: Feature | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.rules = rules
        self.epoch = 0
        notices: list[Effect] = []
        self._notices = notices
        self.timers = timers = Timers()
        self.routing = routing = Routing(placement)
        parts = window_for(config, rules, routing, self)
        self.window = window = parts.window
        self.endings = endings = Endings(config, window, timers, notices)
        chosen = Chosen(config, parts, routing, timers, endings.end, extra)
        self.features = features = chosen.features
        self.units, self.groups, self.sessions = chosen.units, chosen.groups, chosen.sessions
        self.health, self.holes, self.total = chosen.health, chosen.holes, parts.total
        self._tells = chosen.settled is not None
        endings.on_fail = tuple(each.failed_one for each in features if overrides(each, "failed_one"))
        self._on_skip = tuple(each.skipped for each in features if overrides(each, "skipped"))
        self.membership = Membership(config, routing, window, timers, endings, notices, parts.new_ready, features)
        self.members = window.consumers
        self._has_latest = config.latest_only or (rules is not None and rules.latest_only is not None)
        self.admission = Admission(config, window, self.membership)
        self.membership.on_change = self.admission.refresh
        self._ack_timeout_ms = config.ack_timeout_ms
        self.outbox = Outbox(window, self.membership, self.admission, timers, notices, features, self._ack_timeout_ms)
        # no feature looks at the end of each call, and only the window bounds what waits
        self._is_plain = self.outbox.is_plain and not self.admission.looks_ahead
        self._is_quick = self._is_plain and window.is_bare and window.rule_of is None
        window.keeps_spare = self._is_quick
        self._one_key = config.ordering_required
        self._duties: Duties = {
            Entry: Duty(Stage.DELIVERIES, _offset_of, self.endings.due),
            Consumer: Duty(Stage.CONSUMERS, _order_of, self.membership.due),
        }
        for feature in self.features:
            self._duties.update(feature.duties())
        self.outbox.resume(paused=False)

    def resume_at(self, position: Position) -> None:
        """Take over what a cursor token says; nothing was offered yet."""
        self.window.cursor.resume_at(position)
        self.admission.begin()
        self.outbox.resume(paused=False)

    def recount(self) -> None:
        """Make features count what they derive from the window, which was restored."""
        for feature in self.features:
            feature.restored()

    def begin(self, now: int) -> None:
        """Go on after a restore: start times that were not limited before, and hand out what the settings allow."""
        self.endings.restored(now)
        for member in self.members.values():
            self.membership.time_away(member, now)
        self.admission.begin()
        window = self.window
        for lane in window.lanes.values():  # a lane that waits for memory keeps its turn, unless its limit is lower now
            if lane.place is not window.starved or lane.open >= lane.rule.turn:
                window.touched[lane] = None
        window.freed = {member: None for member in self.members.values() if member.ready.lanes}
        if self.total is not None:
            window.note_room(self.total)
        self.wake(now)

    def wake(self, now: int) -> _Effects:
        """End a call that has changed one of the rooms: hand out what is possible now, and return its effects."""
        self.now = now
        self.window.wake()
        return self.outbox.finish(now)

    # messages

    def offer(self, offset: int, key: bytes | None, item: object, not_before_ms: int | None, now: int) -> _Effects:
        """Take the next message of the log."""
        window, cursor = self.window, self.window.cursor
        if self.admission.asks:
            key = b"" if self._one_key else key
            answer = self._admit(offset, key, item, now)
            if answer is not None:
                return answer
        else:
            last = cursor.last
            if (
                last is None
                or offset <= last
                or window.loaded >= window.capacity
                or cursor.outstanding >= window.max_tracked
            ):
                self.admission.check(offset)
            if self._is_quick and key not in window.lanes and key is not None and not_before_ms is None:
                delivered = self._offer_first(offset, key, item, now)
                if delivered is not None:
                    return delivered
        deadline = not_before_ms if not_before_ms is not None and not_before_ms > now else None
        older = self._overtaken(key) if self._has_latest and key is not None else None
        if older:
            self.now = now
            self._notices += [Skipped(each.offset, key, SkipReason.SUPERSEDED) for each in older]
            entry = window.replace(older, offset, item, deadline)
        else:
            before, self.now = self.now, now
            try:
                entry = window.offer(offset, key, item, deadline)
            except ConfigError:  # a rule of the user's has raised, and nothing has changed
                self.now = before
                raise
            if (
                self._is_plain
                and not (window.granted or window.dropped)
                and window.loaded < window.capacity
                and cursor.outstanding < window.max_tracked
                and deadline is None
            ):  # it waits
                return []
        if deadline is not None:
            self.timers.start(entry, deadline)
        return self.outbox.finish(now)

    def _offer_first(self, offset: int, key: bytes, item: object, now: int) -> _Effects | None:
        """Deliver the only message of its key at once, if possible: `Outbox.finish` written out."""
        window, outbox = self.window, self.outbox
        entry = window.offer_first(offset, key, item)
        if entry is None:
            return None
        self.now = now
        if self._ack_timeout_ms is not None:
            entry.deadline = self.timers.start_last([entry], now + self._ack_timeout_ms)
        if window.loaded >= window.capacity or window.cursor.outstanding >= window.max_tracked:
            outbox.paused = True
        name = entry.lane.holder.name  # type: ignore[union-attr]  # an open message has one
        return [_new(Deliver, (offset, key, name, entry.attempt, 0, item))]

    def _overtaken(self, key: bytes) -> list[Entry] | None:
        """Return what the next message of a key takes the place of."""
        lane = self.window.lanes.get(key)
        return None if lane is None or lane.fresh is None or not lane.rule.latest else self.window.overtaken(lane)

    def _admit(self, offset: int, key: bytes | None, item: object, now: int) -> _Effects | None:
        """Answer an offer that is known or not wanted; None for any other, which may be taken now."""
        if self.admission.is_known(offset):
            self.now = now
            self.admission.remember(offset, item)
            if self._tells and self.window.find(offset) is None:
                return [Done(offset, key, Ending.EARLIER)]
            return []
        how = self.admission.admit(offset, key)
        if how is None:
            return None
        self.now = now
        if how is Ending.UNMATCHED:
            self._notices.append(Skipped(offset, key, SkipReason.UNMATCHED))
        self.window.cursor.skip(offset)
        for skipped in self._on_skip:
            skipped(offset, key, how)
        return self.wake(now)

    def offer_many(self, messages: Sequence[Offered], now: int) -> _Effects:
        """Take several messages at one instant, as single offers in one list."""
        if self._one_key:
            messages = [(offset, b"", item, until) for offset, _, item, until in messages]
        try:
            self.admission.check_batch(messages)
        except KeySharedError:
            self.window.prepared.clear()
            raise
        self.now = now
        if not self._is_plain or self.admission.asks or self._has_latest:
            calls = [self.offer(offset, key, item, until, now) for offset, key, item, until in messages]
            settled = _skipped_in(calls) if self._has_latest else ()
            return self.outbox.merge(calls, settled)
        window, timers, is_quick = self.window, self.timers, self._is_quick
        lanes, offer = window.lanes, window.offer
        for offset, key, item, not_before_ms in messages:
            if not_before_ms is None or not_before_ms <= now:
                first = None
                if is_quick and key not in lanes and key is not None:
                    first = window.offer_first(offset, key, item)
                if first is None:
                    offer(offset, key, item, None)
                else:
                    window.granted.append(first)
            else:
                timers.start(window.offer(offset, key, item, not_before_ms), not_before_ms)
        return self.outbox.finish(now)

    # answers

    def ack(self, offset: int, consumer: str, attempt: int, now: int) -> _Effects:
        """Settle one delivery."""
        self.now = now
        member = self.members.get(consumer)
        entry = None if member is None else member.open.get(offset)
        if entry is None or entry.attempt != attempt:
            ignored = self._late_ack(offset, consumer, attempt)
            return self.wake(now) if ignored is None else [ignored]
        window, outbox = self.window, self.outbox
        following = window.ack(entry)
        if (
            not self._is_plain
            or window.granted
            or window.emptied
            or (outbox.paused and window.loaded <= outbox.resume_at)
        ):
            if following is not None:
                window.granted.append(following)
            return outbox.finish(now)
        out: _Effects = []  # what `Outbox.finish` would return for most acks
        if following is not None:
            if self._ack_timeout_ms is not None:
                following.deadline = self.timers.start_last([following], now + self._ack_timeout_ms)
            out.append(outbox.delivery(following))
        safe = window.cursor.safe_cursor
        if safe != outbox.reported:
            outbox.reported = safe
            out.append(_new(CursorAdvanced, (safe,)))
        return out

    def ack_many(self, receipts: Sequence[Receipt], now: int) -> _Effects:
        """Settle several deliveries at one instant, as single acks in one list."""
        self.now = now
        if not self._is_plain:
            calls = [self.ack(*receipt, now) for receipt in receipts]
            return self.outbox.merge(calls, {receipt[0] for receipt in receipts})
        window, outbox, members = self.window, self.outbox, self.members
        ack, granted, capacity = window.ack, window.granted, window.capacity
        for offset, consumer, attempt in receipts:
            member = members.get(consumer)
            entry = None if member is None else member.open.get(offset)
            if entry is None or entry.attempt != attempt:
                ignored = self._late_ack(offset, consumer, attempt)
                if ignored is not None:
                    self._notices.append(ignored)
                else:
                    window.wake()
            else:
                following = ack(entry)
                if following is not None:
                    granted.append(following)
            if window.loaded >= capacity:
                outbox.paused = True
        return outbox.finish(now)

    def ack_through(self, offset: int, consumer: str, attempt: int, now: int) -> _Effects:
        """Settle a delivery and every older open one of its key."""
        entry = self._current(offset, consumer, attempt)
        if entry is None:
            return self.ack(offset, consumer, attempt, now)
        through = [each for each in entry.lane.opened() if each.offset <= offset]
        return self.ack_many([(each.offset, consumer, each.attempt) for each in through], now)

    def nack(
        self, offset: int, consumer: str, attempt: int, delay_ms: int | None, reason: str | None, now: int
    ) -> _Effects:
        """Note that a delivery failed."""
        return self._end(Call.NACK, ReleaseReason.NACKED, (offset, consumer, attempt), delay_ms, reason, now)

    def reject(self, offset: int, consumer: str, attempt: int, reason: str | None, now: int) -> _Effects:
        """Note that no retry can help."""
        return self._end(Call.REJECT, ReleaseReason.REJECTED, (offset, consumer, attempt), None, reason, now)

    def release(self, offset: int, consumer: str, attempt: int, delay_ms: int, now: int) -> _Effects:
        """Take a delivery back untouched."""
        return self._end(Call.RELEASE, ReleaseReason.RELEASED, (offset, consumer, attempt), delay_ms, None, now)

    def _end(
        self, call: Call, how: ReleaseReason, receipt: Receipt, delay_ms: int | None, why: str | None, now: int
    ) -> _Effects:
        self.now = now
        entry = self._current(*receipt)
        if entry is None:
            return [self._ignored(call, receipt)]
        self.endings.end(entry, how, now, delay_ms, why)
        return self.wake(now)

    def extend(self, offset: int, consumer: str, attempt: int, extend_ms: int | None, now: int) -> _Effects:
        """Move the deadline of a delivery, and of its whole batch."""
        self.now = now
        entry = self._current(offset, consumer, attempt)
        if entry is None:
            return [self._ignored(Call.EXTEND, (offset, consumer, attempt))]
        length = self.config.ack_timeout_ms if extend_ms is None else extend_ms
        if length is not None:
            for each in self.endings.together(entry):
                self.timers.start(each, now + length)
        return []

    def _current(self, offset: int, consumer: str, attempt: int) -> Entry | None:
        """Return the message whose open delivery a receipt names."""
        member = self.members.get(consumer)
        entry = None if member is None else member.open.get(offset)
        return entry if entry is not None and entry.attempt == attempt else None

    def _late_ack(self, offset: int, consumer: str, attempt: int) -> Ignored | None:
        """Answer an ack that names no open delivery; None if it has settled the message, and `wake` is to follow."""
        ignored = self._ignored(Call.ACK, (offset, consumer, attempt))
        entry = self.window.find(offset)
        if entry is None or ignored.reason is not IgnoredReason.STALE_ATTEMPT:
            return ignored
        if entry.state == IN_FLIGHT:
            entry.note.mark = SettleReason.LATE_ACK  # type: ignore[union-attr]  # an earlier delivery left one
            return ignored._replace(reason=IgnoredReason.LATE_ACK_NOTED)
        self.endings.settle(entry, Ending.LATE_ACK)
        return None

    def _ignored(self, call: Call, receipt: Receipt) -> Ignored:
        """Return why an answer does not apply: its receipt names no open delivery."""
        offset, consumer, attempt = receipt
        entry = self.window.find(offset)
        ended = () if entry is None or entry.note is None else entry.note.ended
        had = next((name for made, name in ended if made == attempt), None)
        if entry is None:
            reason = IgnoredReason.UNKNOWN_OFFSET
        elif entry.state == DEAD_LETTERING:
            reason = IgnoredReason.DEAD_LETTERING
        elif entry.state == BLOCKED:
            reason = IgnoredReason.BLOCKED
        elif entry.state == IN_FLIGHT and attempt == entry.attempt:
            reason = IgnoredReason.NOT_HOLDER
        elif had is not None:
            reason = IgnoredReason.STALE_ATTEMPT if had == consumer else IgnoredReason.NOT_HOLDER
        elif len(ended) == REMEMBERED_DELIVERIES and 1 <= attempt < ended[0][0]:
            reason = IgnoredReason.FORGOTTEN_ATTEMPT
        else:
            reason = IgnoredReason.UNKNOWN_ATTEMPT
        return Ignored(offset, consumer, attempt, call, reason)

    # poison, memory, the log

    def dead_lettered(self, offset: int, now: int) -> _Effects:
        """Note that a dead letter is written."""
        entry = self._held(offset, DEAD_LETTERING, now)
        if entry is None:
            return [self._not_held(offset, Call.DEAD_LETTERED, IgnoredReason.NOT_DEAD_LETTERING)]
        self.endings.archived(entry)
        return self.wake(now)

    def park(self, offset: int, now: int) -> _Effects:
        """Settle one blocked message."""
        entry = self._held(offset, BLOCKED, now)
        if entry is None:
            return [self._not_held(offset, Call.PARK, IgnoredReason.NOT_BLOCKED)]
        self.endings.park(entry)
        return self.wake(now)

    def unblock(self, key: bytes | None, now: int) -> _Effects:
        """Unblock all messages of a key, and end its quarantine."""
        self.now = now
        self.endings.unblock(b"" if self._one_key else key)
        return self.wake(now)

    def unblock_offset(self, offset: int, reset_failures: bool, now: int) -> _Effects:  # as all others
        """Unblock one message."""
        entry = self._held(offset, BLOCKED, now)
        if entry is None:
            return [self._not_held(offset, Call.UNBLOCK_OFFSET, IgnoredReason.NOT_BLOCKED)]
        self.endings.unblock_one(entry, reset_failures=reset_failures)
        return self.wake(now)

    def loaded(self, offset: int, item: object, now: int) -> _Effects:
        """Take the payload that a `Load` asked for."""
        entry = self._held(offset, LOADING, now)
        if entry is None:
            return [self._not_held(offset, Call.LOADED, IgnoredReason.NOT_LOADING)]
        return self.wake(now) if self.window.provide(entry, item) else []

    def _held(self, offset: int, state: int, now: int) -> Entry | None:
        """Return the message of an offset if it is in that state."""
        self.now = now
        entry = self.window.find(offset)
        return entry if entry is not None and entry.state == state else None

    def _not_held(self, offset: int, call: Call, otherwise: IgnoredReason) -> Ignored:
        reason = IgnoredReason.UNKNOWN_OFFSET if self.window.find(offset) is None else otherwise
        return Ignored(offset, None, None, call, reason)

    def redrive(self, key: bytes | None, letters: Sequence[StoredLetter[Any]], now: int) -> _Effects:
        """Track dead letters of a key again."""
        if key is not None and self.routing.refuses_keys:
            self.routing.check_slot(key)
        self._notices += self.admission.let_back(key, sorted(letters, key=_offset_of))
        self.now = now
        return self.wake(now)

    def gone(self, offset: int, now: int) -> _Effects:
        """Settle a message that can no longer be read."""
        self.now = now
        entry = self.window.find(offset)
        if entry is not None:
            self.endings.gone(entry)
        return self.wake(now)

    def truncate(self, before: int, now: int) -> _Effects:
        """Settle everything outstanding of the log below an offset, as `gone` does."""
        self.now = now
        for cell in self.window.cursor:
            if cell.offset >= before:
                break
            self.endings.gone(cell)  # type: ignore[arg-type]  # the cells of a window are its entries
        return self.wake(now)

    # sessions, pulls, time

    def flushed(self, key: bytes, session: int, now: int) -> _Effects:
        """Note that a consumer has flushed what it kept for a key."""
        self.now = now
        if self.sessions is None or not self.sessions.flushed(key, session):
            return [Ignored(None, None, session, Call.FLUSHED, IgnoredReason.NOT_FLUSHING)]
        return self.wake(now)

    def pull(self, name: str, most: int, only: int | None, per_key: int | None, now: int) -> _Effects:
        """Hand a consumer some of what waits for it, past its limit."""
        member = self.membership.connected(name)
        self.now = now
        entry = None if only is None else self.window.find(only)
        if member.state is not ConsumerState.ACTIVE or (entry is None and only is not None):
            return []
        past_quotas = self.holes is not None and self.holes.is_full
        if past_quotas:
            lowest = self.holes.lowest  # type: ignore[union-attr]  # it is there
            if lowest is None or entry not in {None, lowest}:
                return []
            entry = lowest
        self.window.pull(member, most if entry is None else 1, entry, per_key, past_quotas=past_quotas)
        return self.outbox.finish(now)

    def handle_timeout(self, now: int) -> _Effects:
        """Do what is due."""
        self.now = now
        for duty, timed in due_order(self.timers.pop_due(now), self._duties):
            duty.act(timed, now)
        return self.wake(now)


def _offset_of(entry: Entry | StoredLetter[Any]) -> int:
    return entry.offset


def _order_of(consumer: Consumer) -> int:
    return consumer.order


def _skipped_in(calls: list[_Effects]) -> set[int]:
    """Return the offsets that calls have settled without a delivery that counted."""
    return {effect.offset for call in calls for effect in call if isinstance(effect, Skipped)}
