"""All promises that one history can show, judged from docs/history.md and docs/contract.md alone.

Slow and obvious: it shares no code with the checker but the values of a history and what is claimed. It looks at
everything again in each row, and forgets nothing. Where a history leaves it open what has become of a message, it keeps
all the possibilities, and says that a promise is broken only if it is whichever of them is true.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from tests.testing.slow_books import DONE, EXPIRED, OPEN, WAITS, Consumer, Message, SlowBooks
from tests.testing.slow_groups import SlowGroups
from tests.testing.slow_sessions import SlowSessions
from tests.testing.slow_turns import SlowTurns

from keyshared.cursor.token import Position, write_token
from keyshared.testing.guarantees import Guarantees, Promise
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Done,
    Dropped,
    Expired,
    Freed,
    Gone,
    Happening,
    Held,
    HoldReason,
    Measured,
    Nacked,
    Owned,
    PlacementChanged,
    Published,
    Quiet,
    Redriven,
    Released,
    Settled,
    SettledBy,
    Skipped,
)

__all__ = ["THE_END", "contradicts", "found_in", "found_in_all"]

Found: TypeAlias = set[tuple[Promise, int]]
THE_END = -1
"""Instead of a row: what shows when the history is over."""


def contradicts(history: Sequence[Happening]) -> bool:
    """Whether the offsets of what is published do not grow, or something comes back that may still be published."""
    for row, happening in enumerate(history):
        before = history[:row]
        published = [other.offset for other in before if isinstance(other, Published)]
        redriven = [other.offset for other in before if isinstance(other, Redriven)]
        if isinstance(happening, Published) and any(happening.offset <= other for other in [*published, *redriven]):
            return True
        if isinstance(happening, Redriven) and published and happening.offset > max(published):
            return True
    return False


def found_in(history: Sequence[Happening], guarantees: Guarantees) -> Found:
    """Which promises are broken, and in which rows that may be said."""
    judge = SlowJudge(guarantees)
    found = {(promise, row) for row, happening in enumerate(history) for promise in judge.take(happening)}
    found |= {(Promise.NO_LOSS, THE_END) for _ in judge.unpublished}
    found |= {(Promise.LATEST_ONLY, THE_END) for _ in judge.heirless}
    return {(promise, row) for promise, row in found if promise in guarantees.promises}


def found_in_all(history: Sequence[Happening], guarantees: Guarantees) -> Found:
    """The same, said when the history is over: that something was overtaken which is lost is not said then."""
    judge = SlowJudge(guarantees)
    for happening in history:
        judge.take(happening)
    losses = judge.overtaken_losses() if Promise.NO_LOSS in guarantees.promises else set()
    return found_in(history, guarantees) - {(Promise.KEY_ORDER, row) for row in losses}


class SlowJudge(SlowBooks):
    """Judges each row by everything that was told before it."""

    def __init__(self, guarantees: Guarantees) -> None:
        super().__init__(guarantees)
        self.ready: dict[bytes, tuple[Message, str | None, int | None]] = {}
        self.looked_ms: int | None = None
        self.measured: tuple[int, int, int] | None = None  # what was counted last, was done then, and may have been
        self.not_given_up: set[int] = set()  # what was blamed for that
        self.heirless: list[tuple[str, bytes | int]] = []  # of which the last one was superseded, by nothing so far
        self.turns = SlowTurns(self)
        self.groups = SlowGroups(self)
        self.token_is_full = False  # since a moment of quiet: the token was above three quarters, and never at one half
        self.key_sessions = SlowSessions(self)
        self.overtaken: list[tuple[int, Message, int]] = []  # in which row, what, and how often it had been delivered
        self.lost: list[tuple[Message, int]] = []  # what, and how often it had been delivered

    # --- one row ------------------------------------------------------------------------------------------------

    def take(self, happening: Happening) -> set[Promise]:
        if happening.at_ms is not None and (self.now is None or happening.at_ms > self.now):
            self.now = happening.at_ms
        open_before = self.turns.surely_open()
        for message in self.outstanding.values():
            if message.due_ms is not None and self.now is not None and self.now >= message.due_ms:
                message.due_ms = None
                if OPEN in message.can_be:
                    message.can_be |= {EXPIRED}
                    message.came_back = True
        self.turns.note_ends(open_before)
        if isinstance(happening, AtRest):  # nothing more happens by itself
            self.notice_expiries()
        broken = {*self.overdue(), *self.judged(happening), *self.key_sessions.judged(happening)}
        if isinstance(happening, Delivered) and self.turns.pass_over(happening):
            broken.add(Promise.FAIRNESS)
        if isinstance(happening, Delivered) and self.groups.pass_over(happening):
            broken.add(Promise.GROUP_FAIRNESS)
        open_before = self.turns.surely_open()
        if isinstance(happening, Settled) and happening.reason is SettledBy.SUPERSEDED:
            superseded = self.outstanding.get(happening.offset)
            if superseded is not None:
                self.turns.hand_on(superseded)
        self.apply(happening)
        self.turns.note_ends(open_before)
        self.turns.look(happening)
        self.groups.look(happening)
        self.history.append(happening)
        self.weigh(happening)
        self.key_sessions.look()
        self.look_again()
        return broken

    def judged(self, happening: Happening) -> Iterator[Promise]:  # noqa: C901, PLR0912  # one case for each kind
        match happening:
            case Delivered():
                yield from self.delivery(happening)
            case Published():
                own = "key", b"" if self.claims.total_order else happening.key
                self.heirless = [each for each in self.heirless if each != own]
                yield from self.publication(happening)
            case Redriven():
                yield from self.return_of_a_message(happening)
            case Acked() | Nacked():
                yield from self.answer(happening)
            case Expired() | Released():
                yield from self.end_of_a_delivery(happening)
            case Settled() | DeadLettered() | Dropped() | Skipped():
                yield from self.end_of_a_message(happening)
            case Done():
                yield from self.word_of_an_end(happening)
            case Held() | Freed():
                message = self.outstanding.get(happening.offset)
                again = isinstance(happening, Held) and happening.reason is HoldReason.SPILLED
                if message is not None and message.is_spilled and not again and self.window_is_full(message):
                    yield Promise.BOUNDS
                spilling = {HoldReason.SPILLED, HoldReason.LOADING}
                if isinstance(happening, Held) and happening.reason in spilling and not self.claims.spills:
                    yield Promise.BOUNDS
            case Measured():
                yield from self.count_of_what_is_done(happening)
            case Owned():
                yield from self.owner(happening)
            case Committed():
                yield from self.cursor(happening)
            case Quiet() | AtRest():
                yield from self.quiet(happening)
                yield from self.not_superseded()
            case _:
                pass  # it only changes what is judged later

    # --- the judgements -----------------------------------------------------------------------------------------

    def delivery(self, happening: Delivered) -> Iterator[Promise]:  # noqa: C901, PLR0912  # one step for each promise
        offset, consumer = happening.offset, happening.consumer
        message, lane = self.outstanding.get(offset), self.lane(offset, happening.key)
        others = [each for each in lane if each is not message]
        key = happening.key if message is None else message.key
        if message is not None and message.is_surely(OPEN):
            yield Promise.ONE_HOLDER
        beside = [each for each in (*others, *self.of_its_unit(key)) if each is not message and each.is_surely(OPEN)]
        if any(each.consumer != consumer for each in beside):
            yield Promise.ONE_HOLDER

        is_over = message is None and self.is_over(offset)
        waiting = [each for each in others if each.is_surely(WAITS, EXPIRED) and self.holds_its_key(each)]
        if self.log_is_told and not is_over and any(each.offset < offset for each in waiting):
            yield Promise.KEY_ORDER
            self.overtaken.append((len(self.history), waiting[0], len(waiting[0].deliveries)))
        elif self.log_is_told and not is_over and any(self.is_passed_either_way(each, happening) for each in others):
            yield Promise.KEY_ORDER

        if waiting and waiting[0].redriven is not None and waiting[0].offset < offset:
            yield Promise.REDRIVE_ORDER

        open_of_key = [each for each in others if each.is_surely(OPEN)]
        if (most := self.most_open(key)) is not None and len(open_of_key) >= most:
            yield Promise.BOUNDS
        if self.claims.batches and open_of_key and not self.is_next_of_a_turn(offset, key):
            yield Promise.WHOLE_BATCH
        limit = self.limit(consumer)
        at_consumer = [
            each
            for each in self.outstanding.values()
            if each is not message and each.is_surely(OPEN) and each.consumer == consumer
        ]
        if limit is not None and len(at_consumer) >= limit:
            yield Promise.BOUNDS
        all_open = [each for each in self.outstanding.values() if each is not message and each.is_surely(OPEN)]
        if self.claims.open_at_once is not None and len(all_open) >= self.claims.open_at_once:
            yield Promise.BOUNDS
        if message is not None and message.is_spilled and self.window_is_full(message):
            yield Promise.BOUNDS

        yield from self.place_of_a_delivery(happening)

        last = None if message is None else message.last_attempt
        if happening.attempt is not None and last is not None and happening.attempt <= last:
            yield Promise.FENCE

        if message is not None and self.is_spent(message):
            yield Promise.ATTEMPTS

        wanted = None if message is None else message.not_before_ms
        if wanted is not None and self.now is not None and self.now < wanted - self.claims.tolerance_ms:
            yield Promise.NOT_EARLY

        if self.log_is_told and (is_over or (message is not None and message.own_key != happening.key)):
            yield Promise.NO_LOSS

        if self.token_is_full and offset in self.outstanding_of_log()[1:]:
            yield Promise.TOKEN_BUDGET

    def is_passed_either_way(self, older: Message, happening: Delivered) -> bool:
        """Whether an older message waits, or is open, and then too many are or at two consumers: a nack was seen."""
        if not older.nack_was_only_seen or OPEN not in older.can_be or DONE in older.can_be:
            return False
        if older.offset >= happening.offset or not self.holds_its_key(older):
            return False
        claimed, most = self.claims.promises, self.most_open(older.key)
        lane = [each for each in self.lane(older.offset, older.key) if each.offset != happening.offset]
        open_ones = [each for each in lane if each.is_surely(OPEN)]
        too_many = Promise.BOUNDS in claimed and most is not None and len(open_ones) + 1 >= most
        return too_many or (Promise.ONE_HOLDER in claimed and older.consumer != happening.consumer)

    def apply(self, happening: Happening) -> None:
        super().apply(happening)
        if isinstance(happening, Delivered):
            self.see_what_was_done(happening)

    def see_what_was_done(self, happening: Delivered) -> None:
        """What is open or done is done, if the delivery would break what is claimed while it is open."""
        message = self.outstanding.get(happening.offset)
        if message is None:
            return
        others = [each for each in self.lane(message.offset, message.key) if each is not message]
        claimed, most = self.claims.promises, self.most_open(message.key)
        beside = [each for each in others if each.is_surely(OPEN)]
        is_full = Promise.BOUNDS in claimed and most is not None and len(beside) + 1 >= most
        for each in others:
            is_elsewhere = Promise.ONE_HOLDER in claimed and each.consumer != happening.consumer
            if each.can_be == {OPEN, DONE} and (is_full or is_elsewhere):
                self.finish(each)

    def is_next_of_a_turn(self, offset: int, key: bytes | None) -> bool:
        """Whether the row before tells of another delivery of the same key."""
        before = self.history[-1]
        last = self.outstanding.get(before.offset) if isinstance(before, Delivered) else None
        if last is None:
            return False
        return self.claims.total_order or last.offset == offset or (key is not None and last.key == key)

    def is_batch_broken(self, message: Message) -> bool:
        """Whether something older of its key has come back while it stayed open."""
        older = [each for each in self.lane(message.offset, message.key) if each.offset < message.offset]
        waiting = [each for each in older if each.is_surely(WAITS, EXPIRED) and self.holds_its_key(each)]
        return bool(waiting) and (waiting[0].redriven is None or bool(waiting[0].deliveries))

    def is_spent(self, message: Message) -> bool:
        most = self.claims.max_attempts
        return most is not None and message.failures >= most and not message.is_kept_back

    def place_of_a_delivery(self, happening: Delivered) -> Iterator[Promise]:
        consumer = happening.consumer
        session = self.consumers.get(consumer)
        if session is None and self.consumers_are_told:
            yield Promise.AFFINITY
        if session is not None and session.is_suspended:
            yield Promise.AFFINITY
        place = self.place(happening.offset, happening.key)
        if place is None:
            return
        if place in self.owned:
            if self.owned[place][-1][1] != consumer:
                yield Promise.AFFINITY
            return
        if place not in self.went_to or not self.consumers_are_told or session is None:
            return
        since, before = self.went_to[place]
        changes = [each for each in self.history[since + 1 :] if isinstance(each, Connected | Gone | PlacementChanged)]
        if before == consumer:
            return
        if not changes:
            yield Promise.AFFINITY
            return
        old = self.consumers.get(before)
        old_stayed = old is not None and old.since < since
        new_joined = session.since > since
        came_and_went = any(each.since > since and each not in self.consumers.values() for each in self.sessions)
        by_hand = any(isinstance(each, PlacementChanged) for each in changes)
        if old_stayed and not new_joined and not came_and_went and not by_hand:
            yield Promise.MINIMAL_MOVE

    def publication(self, happening: Published) -> Iterator[Promise]:
        offset = happening.offset
        if any(other < offset for other in self.unpublished):
            yield Promise.NO_LOSS
        message = self.outstanding.get(offset)
        if message is not None and (message.key != happening.key or message.other_keys):
            yield Promise.NO_LOSS
        if self.keys_of_done.get(offset, set()) - {happening.key}:
            yield Promise.NO_LOSS
        yield from self.what_came_before(happening)
        if message is None and offset not in self.done:
            if self.is_full():
                yield Promise.BOUNDS
            if self.too_many_wait(self.place(offset, happening.key)):
                yield Promise.BOUNDS
            waiting = [each for each in self.outstanding.values() if each.is_surely(WAITS, EXPIRED)]
            of_all = self.claims.look_ahead
            if of_all is not None and self.consumers_are_told and len(waiting) >= of_all(len(self.consumers)):
                yield Promise.BOUNDS

    def what_came_before(self, happening: Published) -> Iterator[Promise]:
        """A delivery before the time that is told only now, and a cursor that has passed the message."""
        offset = happening.offset
        went_ms, until_ms = self.first_ms.get(offset), happening.until_ms
        if until_ms is not None and went_ms is not None and went_ms < until_ms - self.claims.tolerance_ms:
            yield Promise.NOT_EARLY
        passed = [each for each in self.beyond if offset < each[0] and offset not in each[1]]
        if passed:
            yield Promise.SAFE_CURSOR
        self.beyond = [each for each in self.beyond if each[0] > offset + 1 and each not in passed[:1]]

    def too_many_wait(self, place: bytes | None) -> bool:
        """Whether as many wait already as may, of a key that is published or of its owner's keys."""
        if place is None:
            return False
        owners = {key: told[-1][1] for key, told in self.owned.items()}
        waiting = [
            self.place(each.offset, each.key)
            for each in self.outstanding.values()
            if each.is_surely(WAITS, EXPIRED) and self.place(each.offset, each.key) is not None
        ]
        most, owner = self.claims.waiting_per_key, owners.get(place)
        if most is not None and waiting.count(place) >= most:
            return True
        most = self.claims.waiting_per_consumer
        at_owner = [key for key in waiting if owner is not None and key is not None and owners.get(key) == owner]
        return most is not None and len(at_owner) >= most

    def is_full(self) -> bool:
        tracked = [each for each in self.outstanding.values() if DONE not in each.can_be]
        most = self.claims.max_tracked
        return (most is not None and len(tracked) >= most) or self.window_is_full()

    def return_of_a_message(self, happening: Redriven) -> Iterator[Promise]:
        message = self.outstanding.get(happening.offset)
        if message is not None and DONE not in message.can_be:
            yield Promise.REDRIVE_ORDER
        elif self.is_full():
            yield Promise.BOUNDS

    def answer(self, happening: Acked | Nacked) -> Iterator[Promise]:
        message = self.outstanding.get(happening.offset)
        is_ack = isinstance(happening, Acked) and happening.counted is not False and self.claims.batches
        may_break = is_ack and message is not None and self.log_is_told
        if may_break and message is not None and self.names_open_one(message, happening):
            yield from [Promise.WHOLE_BATCH] * self.is_batch_broken(message)
        if happening.counted is None:
            return
        if not happening.counted:
            if message is not None and self.names_open_one(message, happening) and self.log_is_told:
                yield Promise.NO_LOSS
        elif isinstance(happening, Nacked):
            yield from self.end_of_a_delivery(happening)
        elif message is None:
            if not self.is_told_twice(happening) and self.log_is_told and self.is_over(happening.offset):
                yield Promise.NO_LOSS
        else:
            named = self.names(message, happening)
            if named == "none" or (named == "earlier" and message.is_surely(OPEN)):
                yield Promise.FENCE

    def names_open_one(self, message: Message, happening: Acked | Nacked) -> bool:
        """Whether an answer can name nothing but a delivery that is surely open."""
        may_be_late = self.may_also_name_earlier(message, happening)
        return message.is_surely(OPEN) and self.names(message, happening) == "last" and not may_be_late

    def is_told_twice(self, happening: Acked) -> bool:
        """Whether an ack that has ended the message was seen by somebody, and the system says so too: once."""
        seen = self.only_seen.get(happening.offset, [])
        same = [each for each in seen if each.consumer == happening.consumer]
        if not any(len({each.attempt, happening.attempt} - {None}) <= 1 for each in same):
            return False
        del self.only_seen[happening.offset]
        return True

    def end_of_a_delivery(self, happening: Nacked | Expired | Released) -> Iterator[Promise]:
        message = self.outstanding.get(happening.offset)
        if message is None:
            if self.is_over(happening.offset):
                yield Promise.FENCE
        elif not isinstance(happening, Nacked) and self.unsaid_of(message, happening):
            pass  # it says how a delivery ended that had no such row
        elif not isinstance(happening, Nacked) and self.may_name_older(message, happening.attempt):
            pass  # or one of before the history
        elif self.names(message, happening) != "last" or not (
            message.can_be & {OPEN, EXPIRED} or message.end_was_only_seen
        ):
            yield Promise.FENCE

    def end_of_a_message(self, happening: Settled | DeadLettered | Dropped | Skipped) -> Iterator[Promise]:
        known = self.outstanding.get(happening.offset)
        is_told = known is not None and (known.said is not None or known.is_published)
        if isinstance(happening, DeadLettered) and is_told and known is not None:
            yield from [Promise.REASON_TRAVELS] * (happening.reason not in {known.said, *known.may_have_said})
        if not self.log_is_told:
            return
        message = self.outstanding.get(happening.offset)
        if message is None and self.is_over(happening.offset):
            yield Promise.NO_LOSS
        match happening:
            case Settled(reason=how):
                yield from self.settlement(how, message)
            case DeadLettered() if not self.claims.may_dead_letter:
                yield Promise.NO_LOSS
            case Dropped() if not self.claims.may_drop:
                yield Promise.NO_LOSS
            case Skipped() if not self.claims.may_skip:
                yield Promise.NO_LOSS

    def settlement(self, how: SettledBy, message: Message | None) -> Iterator[Promise]:
        if how is SettledBy.NOBODY or (how is SettledBy.SUPERSEDED and not self.may_supersede(message)):
            yield Promise.NO_LOSS
        elif message is None:
            return
        elif how is SettledBy.LATE_ACK and not message.has_late_ack and not self.may_name_older(message):
            yield Promise.NO_LOSS
        elif how is SettledBy.SUPERSEDED and (message.deliveries or message.redriven is not None):
            yield Promise.LATEST_ONLY
        elif how is SettledBy.SUPERSEDED and self.heir_of(message) is None:
            if self.newest.get(self.lane_name(message), -1) > message.offset:
                yield Promise.LATEST_ONLY
            else:
                self.heirless.append(self.lane_name(message))

    def word_of_an_end(self, happening: Done) -> Iterator[Promise]:
        message = self.outstanding.get(happening.offset)
        may_be_done = happening.offset in self.untold or (message is not None and DONE in message.can_be)
        may_be_older = not self.log_is_told or happening.offset < self.published[0]
        has_ended_before = may_be_older and message is None and happening.offset not in self.done
        if self.claims.tells_done and not may_be_done and not has_ended_before:
            yield Promise.SETTLED_ONCE

    def count_of_what_is_done(self, happening: Measured) -> Iterator[Promise]:
        doubtful = sum(DONE in each.can_be for each in self.outstanding.values())
        before, self.measured = self.measured, (happening.count, self.ends, doubtful)
        if before is None or not self.claims.measures:
            return
        more, ended = happening.count - before[0], self.ends - before[1]
        if not ended - before[2] <= more <= ended + doubtful:
            yield Promise.HEALTH_ADDS_UP

    def owner(self, happening: Owned) -> Iterator[Promise]:
        """The changes since the key had its owner that stand together, before the last `Owned` or just before this."""
        if happening.key not in self.owned:
            return
        since, old = self.owned[happening.key][-1]
        if old is None or happening.consumer is None or old == happening.consumer:
            return
        for at, change in self.latest_changes():
            moves = (
                isinstance(change, PlacementChanged)
                or (isinstance(change, Connected) and change.consumer == happening.consumer)
                or (isinstance(change, Gone) and change.consumer == old)
            )
            if at > since and moves:
                return
        yield Promise.MINIMAL_MOVE if self.is_right_after_them() else Promise.AFFINITY

    def latest_changes(self) -> list[tuple[int, Happening]]:
        """The last changes with nothing between them that ends them: no `Owned`, and nothing that comes and goes."""
        found: list[tuple[int, Happening]] = []
        for at in reversed(range(len(self.history))):
            happening = self.history[at]
            if isinstance(happening, Connected | Gone | PlacementChanged):
                found.append((at, happening))
            elif found and isinstance(happening, Owned | Published | Redriven | Delivered | Quiet | AtRest):
                break
        return found

    def is_right_after_them(self) -> bool:
        for happening in reversed(self.history):
            if isinstance(happening, Connected | Gone | PlacementChanged):
                return True
            if isinstance(happening, Published | Redriven | Delivered | Quiet | AtRest):
                return False
        return False

    def cursor(self, happening: Committed) -> Iterator[Promise]:
        resume = happening.resume_offset
        before = [earlier.resume_offset for earlier in self.history if isinstance(earlier, Committed)]
        if before and resume < before[-1]:
            yield Promise.SAFE_CURSOR
        if not self.log_is_told:
            return
        log = [each for each in self.outstanding.values() if each.redriven is None]
        if any(each.offset < resume and DONE not in each.can_be for each in log):
            yield Promise.SAFE_CURSOR
        if resume > self.published[-1] + 1 and (not self.beyond or self.beyond[-1][0] < resume):
            self.beyond.append((resume, set(self.told)))

    def quiet(self, happening: Quiet | AtRest) -> Iterator[Promise]:  # noqa: C901  # one step for each promise
        waiting = [each for each in self.outstanding.values() if each.is_surely(WAITS, EXPIRED) and each.held is None]
        if isinstance(happening, AtRest) and any(self.is_spent(each) for each in waiting):
            yield Promise.ATTEMPTS
        if self.claims.tells_done and self.untold:
            yield Promise.SETTLED_ONCE
        if not self.log_is_told:
            return
        if self.claims.cursor_keeps_up and self.cursor_lags():
            yield Promise.SAFE_CURSOR
        if self.held_for_nothing():
            yield Promise.TOKEN_BUDGET
        self.forget_what_was_unsure()
        if any(self.could_go_out(key, lane) for key, lane in self.lanes()):
            yield Promise.PROGRESS
        if self.waits_too_full():
            yield Promise.ISOLATION
        if isinstance(happening, AtRest):
            if self.unpublished:
                yield Promise.NO_LOSS
            stuck = [lane for key, lane in self.lanes() if self.is_stuck(key, lane)]
            for lane in stuck:
                yield Promise.NO_LOSS
                oldest = next(each for each in lane if each.is_surely(WAITS, EXPIRED))
                self.lost.append((oldest, len(oldest.deliveries)))

    def overtaken_losses(self) -> set[int]:
        """In which rows something was overtaken that was not delivered again from then on, and is lost."""
        return {
            row
            for row, message, deliveries in self.overtaken
            if any(lost is message and at_last == deliveries for lost, at_last in self.lost)
        }

    def not_superseded(self) -> Iterator[Promise]:
        """What waits for its first delivery, as a newer one of its key does: said once of each."""
        if self.heirless:
            self.heirless = []
            yield Promise.LATEST_ONLY
        on_its_way = {HoldReason.DEAD_LETTERING, HoldReason.BLOCKED}
        for key, lane in self.lanes():
            undelivered = [each for each in lane if not each.deliveries and each.redriven is None]
            waiting = [each for each in undelivered if each.held is None or each.held.reason not in on_its_way]
            older = {each.offset for each in waiting[:-1]} if key is not None else set()
            if key is not None and self.is_latest_only(key) and not older <= self.not_given_up:
                yield Promise.LATEST_ONLY
            self.not_given_up |= older

    def outstanding_of_log(self) -> list[int]:
        of_log = [offset for offset, each in self.outstanding.items() if each.redriven is None]
        return [offset for offset in self.published if offset in of_log]

    def token_length(self) -> int:
        """The length of the token that a restart would go on from, if nothing of it were left out."""
        if not self.published:
            return 0
        outstanding = self.outstanding_of_log()
        resume = outstanding[0] if outstanding else self.published[-1] + 1
        below = [offset for offset in self.published if offset < resume]
        settled: list[tuple[int, int]] = []
        for before, offset in pairwise(self.published):
            if offset > resume and offset not in outstanding:
                start = settled.pop()[0] if settled and settled[-1][1] == before + 1 else before + 1
                settled.append((start, offset + 1))
        return len(write_token(Position(resume, below[-1] if below else None, settled), 100_000)[0])

    def weigh(self, happening: Happening) -> None:
        budget, length = self.claims.token_bytes, self.token_length() if self.claims.token_bytes else 0
        in_doubt = any(DONE in each.can_be for each in self.outstanding.values())
        if budget is None or in_doubt or 2 * length <= budget:
            self.token_is_full = False
        elif isinstance(happening, Quiet | AtRest) and 4 * length > 3 * budget:
            self.token_is_full = True

    def held_for_nothing(self) -> bool:
        """Whether something is held back for the token that is the lowest one, or while the token is short."""
        budget = self.claims.token_bytes
        held = [each for each in self.outstanding.values() if each.held and each.held.reason is HoldReason.TOKEN_FULL]
        if budget is None or any(DONE in each.can_be for each in self.outstanding.values()):
            return False
        lowest = self.outstanding_of_log()[:1]
        return any([each.offset] == lowest or 2 * self.token_length() <= budget for each in held)

    def forget_what_was_unsure(self) -> None:
        """What only a moment of quiet makes sure of has been ready since that moment."""
        for key, lane in self.lanes():
            if key is not None and self.readiness(key, lane) is None:
                self.ready.pop(key, None)

    def cursor_lags(self) -> bool:
        if any(DONE in each.can_be for each in self.outstanding.values()):
            return False
        log = [offset for offset, each in self.outstanding.items() if each.redriven is None]
        lowest = min(log, default=None)
        if lowest is not None and not self.outstanding[lowest].is_published:
            return False
        below = [offset for offset in self.published if lowest is None or offset < lowest]
        cursors = [earlier.resume_offset for earlier in self.history if isinstance(earlier, Committed)]
        return bool(below) and (not cursors or cursors[-1] <= below[-1])

    def waits_too_full(self) -> bool:
        """What was published alone since the last quiet waits, though what waits fills half the window without it."""
        since: list[Happening] = []
        for happening in reversed(self.history):
            if isinstance(happening, Quiet | AtRest):
                break
            if not isinstance(happening, Owned | Committed):
                since.append(happening)
        if (
            self.claims.window is None
            or not self.claims.spills
            or len(since) != 1
            or not isinstance(since[0], Published)
        ):
            return False
        newest = self.outstanding.get(since[0].offset)
        if newest is None or not newest.is_surely(WAITS, EXPIRED) or newest.held is not None:
            return False
        waiting = [
            each
            for each in self.outstanding.values()
            if each is not newest and each.is_surely(WAITS, EXPIRED) and not each.is_spilled
        ]
        return 2 * len(waiting) >= self.claims.window

    def could_go_out(self, key: bytes | None, lane: list[Message]) -> bool:
        alone = next(iter(self.consumers)) if len(self.consumers) == 1 else None
        ready = self.readiness(key, lane) or self.readiness(key, lane, alone)
        return ready is not None and key is not None and bool(self.takers(key, ready[1]))

    def readiness(
        self, key: bytes | None, lane: list[Message], alone: str | None = None
    ) -> tuple[Message, str | None] | None:
        """The message that nothing but room keeps from going out, and the owner of its key: else who is alone."""
        waiting = [each for each in lane if each.is_surely(WAITS, EXPIRED) and self.holds_its_key(each)]
        open_ones = [each for each in lane if each.is_surely(OPEN)]
        if key is None or not waiting or self.is_unsure(lane):
            return None
        limit = self.turn_limit(key)
        if limit is not None and len(open_ones) >= limit:
            return None
        told = self.owned.get(key)
        owner = alone if told is None else told[-1][1]
        if (told is not None and owner is None) or (open_ones and owner is None):
            return None
        if any(each.consumer != owner for each in open_ones):
            return None
        return None if self.waits_for_held(waiting[0], lane) else (waiting[0], owner)

    def turn_limit(self, key: bytes | None) -> int | None:
        return 1 if self.claims.batches else self.most_open(key)

    def most_open(self, key: bytes | None) -> int | None:
        """How many of a key may be open."""
        limits = [] if self.claims.per_key is None else [self.claims.per_key]
        if self.claims.limit_of is not None and key is not None:
            limits.append(self.claims.limit_of(key))
        return min(limits, default=None)

    def is_latest_only(self, key: bytes) -> bool:
        claimed = self.claims.latest_only
        return claimed(key) if callable(claimed) else claimed

    def may_supersede(self, message: Message | None) -> bool:
        claimed = self.claims.latest_only
        if not callable(claimed) or message is None:
            return bool(claimed)
        return message.key is not None and claimed(message.key)

    def is_unsure(self, lane: list[Message]) -> bool:
        return any(OPEN in each.can_be and not each.is_surely(OPEN) for each in lane)

    def waits_for_held(self, message: Message, lane: list[Message]) -> bool:
        behind = [
            each for each in lane if each.offset < message.offset and DONE in each.can_be and self.holds_its_key(each)
        ]
        return any(self.is_held(each) for each in [message, *behind])

    def takers(self, key: bytes | None, owner: str | None) -> list[Consumer]:
        """Who would have to take it: its owner; everybody if nobody knows who that is."""
        of_unit = [each for each in self.of_its_unit(key) if OPEN in each.can_be and each.consumer != owner]
        if of_unit:
            return []
        if owner is not None:
            there = [self.consumers[owner]] if owner in self.consumers else []
        else:
            there = list(self.consumers.values())
        return there if all(self.has_room(each) for each in there) else []

    def is_stuck(self, key: bytes | None, lane: list[Message]) -> bool:
        waiting = [each for each in lane if each.is_surely(WAITS, EXPIRED)]
        if not waiting or any(OPEN in each.can_be for each in lane) or self.waits_for_held(waiting[0], lane):
            return False
        told = self.owned.get(key) if key is not None else None
        if told is not None and told[-1][1] is None:
            return False
        return bool(self.takers(key, None if told is None else told[-1][1]))

    def overdue(self) -> Iterator[Promise]:
        """What has been ready for too long by this time, before the row that tells it changes anything."""
        within = self.claims.progress_ms
        if within is None or self.now is None or self.claims.unit_of is not None or self.now == self.looked_ms:
            return
        self.looked_ms = self.now
        self.look_again()
        if not self.log_is_told:
            return
        latest = self.now - within
        for key, (_, owner, since_ms) in self.ready.items():
            takers = self.takers(key, owner)
            rooms = [taker.has_room_since_ms for taker in takers]
            if takers and all(each is not None and each < latest for each in [since_ms, *rooms]):
                yield Promise.PROGRESS

    def look_again(self) -> None:
        """Note what is ready and who has room, and since when."""
        ready: dict[bytes, tuple[Message, str | None, int | None]] = {}
        for key, lane in self.lanes():
            found = self.readiness(key, lane)
            if found is not None and key is not None:
                before = self.ready.get(key)
                same = before is not None and before[0] is found[0] and before[1] == found[1]
                ready[key] = before if same and before is not None and before[2] is not None else (*found, self.now)
        self.ready = ready
        for consumer in self.consumers.values():
            has_room = self.has_room(consumer, also_for_loads=False)
            if has_room and (not consumer.had_room or consumer.has_room_since_ms is None):
                consumer.has_room_since_ms = self.now
            consumer.had_room = has_room
