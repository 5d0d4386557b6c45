"""The real dispatcher with one realistic fault each: most of them are one part of the core that is built wrong.

A class of the core is replaced while a dispatcher is made, so everything else of it is as it is. `BROKEN` lists the
faults by the promise that each breaks; `tests/properties/test_broken_variants.py` lets the judge find them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar, Final, NamedTuple
from unittest.mock import patch

from tests.placements import RankedPlacement, Ranking

from keyshared import dispatcher as face
from keyshared._core import chosen, machine, routing
from keyshared._core.ack_holes import AckHoles
from keyshared._core.admission import Admission
from keyshared._core.drains import DrainUnits
from keyshared._core.endings import Endings
from keyshared._core.groups import Groups
from keyshared._core.health import Measure, TellSettled
from keyshared._core.machine import Machine
from keyshared._core.membership import Membership
from keyshared._core.outbox import Outbox
from keyshared._core.quotas import TokenBucket
from keyshared._core.records import (
    DEAD_LETTERING,
    DELAYED,
    QUEUED,
    SETTLED,
    SPILLED,
    Consumer,
    Entry,
    Lane,
    Note,
    Place,
    Rule,
)
from keyshared._core.rotation import Rotation
from keyshared._core.routing import Acceptance, Routing
from keyshared._core.sessions import Session, Sessions
from keyshared._core.snapshot import _MessageRow, _NoteRow, sealed
from keyshared._core.window import Window
from keyshared.cursor import Cell, Cursor
from keyshared.dispatcher import KeySharedDispatcher, RestartMark, StoredLetter
from keyshared.effects import (
    CursorAdvanced,
    Done,
    Effect,
    Ending,
    Ignored,
    KeyEnd,
    KeyEnded,
    Load,
    ReleaseReason,
)
from keyshared.glob import KeyFilter
from keyshared.testing import Promise

__all__ = ["BROKEN", "Broken", "Fault"]

_MADE_IN: Final[Mapping[type, tuple[Any, str]]] = {
    kind: (module, kind.__name__)
    for module, kinds in (
        (chosen, (AckHoles, Cursor, DrainUnits, Groups, Measure, Rule, Sessions, TellSettled, Window)),
        (machine, (Admission, Endings, Membership, Outbox, Routing)),
        (routing, (Acceptance,)),
        (face, (Machine,)),
    )
    for kind in kinds
}
"""Which name of which module makes a part."""

_Effects = list[Effect[Any]]


class Broken(KeySharedDispatcher[Any]):
    """A dispatcher one part of which is of the class ``part`` wherever it has such a part.

    Attributes:
        part: A subclass of a class of the core; None for a fault elsewhere.
    """

    part: ClassVar[type | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with ExitStack() as stack:
            if self.part is not None:
                ((module, name),) = (where for kind, where in _MADE_IN.items() if issubclass(self.part, kind))
                stack.enter_context(patch.object(module, name, self.part))
            super().__init__(*args, **kwargs)
        self.tamper(self._machine)

    def tamper(self, core: Any) -> None:
        """Change a dispatcher that was made."""


class _AlwaysAsks(Window):
    """A window without the written-out paths, which faults below override."""

    def watch(self, *args: Any, **kwargs: Any) -> None:
        super().watch(*args, **kwargs)
        self.is_bare = False


# one-holder


class MovesWithoutDraining(Broken):
    """A key goes to its new owner while the old one still works on it."""

    class part(_AlwaysAsks):
        def look(self, lane: Lane) -> bool:
            if lane.open and lane.key is not None:
                lane.holder = self.owner_of(lane) or lane.holder
            return super().look(lane)

        def _close(self, entry: Entry) -> None:
            entry.lane.holder = next(each for each in self.consumers.values() if entry.offset in each.open)
            super()._close(entry)


class UnitIgnored(Broken):
    """A key of a slot or run that drains goes out because nothing of the key itself is open elsewhere."""

    class part(DrainUnits):
        def refuses(self, lane: Lane, owner: Consumer) -> bool:  # the fault
            return False


class UnitFreedByItsFirstEnd(Broken):
    """A unit has a mark instead of a count: the first delivery of any of its keys that ends frees it for all."""

    class part(DrainUnits):
        def closed(self, entry: Entry, consumer: Consumer) -> None:  # the fault
            unit = self.unit_of(entry.lane)
            self._holders.pop(unit, None)
            self._window.touched.update(dict.fromkeys(self._waiting.pop(unit, ())))


# key-order


def _to_the_tail(entry: Entry) -> None:
    lane = entry.lane
    if lane.tail is not entry and lane.spilled is None:
        lane.unlink(entry)
        entry.newer = None
        lane.append(entry)


class PutBackAtTheTail(Broken):
    """A message that comes back is queued behind the newer ones of its key, as in a plain queue."""

    class part(_AlwaysAsks):
        def put_back(self, entry: Entry, state: int) -> None:
            super().put_back(entry, state)
            _to_the_tail(entry)


class _Passing(_AlwaysAsks):
    """Newer messages of a key pass one that is put into a state."""

    passed: ClassVar[int]

    def put_back(self, entry: Entry, state: int) -> None:
        lane = entry.lane
        if entry.state == self.passed and entry not in (lane.back or ()):
            lane.take_back(entry)
        super().put_back(entry, state)
        if entry.state == self.passed and self.lets_pass(entry) and lane.back:
            lane.back.remove(entry)

    def lets_pass(self, entry: Entry) -> bool:  # for others
        return True


class RetryLetsNewerOnesPass(Broken):
    """A message that waits for its retry does not hold its key (Pulsar's PIP-379)."""

    class part(_Passing):
        passed = DELAYED


class DeadLetterLetsNewerOnesPass(Broken):
    """The key goes on before the dead letter is written."""

    class part(_Passing):
        passed = DEAD_LETTERING


class NewerPassesThePostponed(Broken):
    """What is given back for later does not hold its key."""

    class part(_Passing):
        passed = DELAYED

        def lets_pass(self, entry: Entry) -> bool:
            return entry.note is not None and entry.note.postponed


# whole-batch


class MiddleFailureGoesOn(Broken):
    """When one of a batch fails, the newer ones stay out."""

    class part(Endings):
        def end(self, entry: Entry, reason: ReleaseReason, now: int, delay_ms: Any = None, why: Any = None) -> None:
            self._end_one(entry, reason, now, delay_ms, why)


class BrokenBatchCountsFailures(Broken):
    """When one of a batch fails, the newer ones have failed too."""

    class part(Endings):
        def _end_one(self, entry: Entry, reason: ReleaseReason, *others: Any) -> None:
            if reason is ReleaseReason.BATCH_BROKEN:
                entry.note = entry.note or Note()
                entry.note.failures += 1
            super()._end_one(entry, reason, *others)


class SecondBatchBesideTheFirst(Broken):
    """What comes later goes out beside a batch that is not full, or not done."""

    class part(Rule):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.turn = max(self.turn, self.batch)


class AckThroughSkipsOne(Broken):
    """Of what is acked together, the oldest is forgotten."""

    def ack_through(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> _Effects:
        opened = next((one for one in self.in_flight() if one.receipt == (offset, consumer, attempt)), None)
        same = [
            one for one in self.in_flight() if opened is not None and one.key == opened.key and one.offset <= offset
        ]
        receipts = [one.receipt for one in sorted(same, key=lambda one: one.offset)[1:]]
        return self.ack_many(receipts or [(offset, consumer, attempt)], now_ms=now_ms)


# latest-only


class KeepsTheOlder(Broken):
    """Only what is in memory makes way: what is spilled, or being loaded, is delivered before the newer one."""

    class part(Window):
        def overtaken(self, lane: Lane) -> list[Entry]:
            return [each for each in super().overtaken(lane) if each.state == QUEUED]


class LatestRuleIsIgnored(Broken):
    """No key is one of which only the latest message counts."""

    class part(Window):
        def overtaken(self, lane: Lane) -> list[Entry]:  # the fault
            return []


class SupersedesADelivered(Broken):
    """Whatever waits makes way, also what came back from its consumer."""

    class part(Window):
        def overtaken(self, lane: Lane) -> list[Entry]:
            return [*(each for each in lane.back or () if each.state == QUEUED), *super().overtaken(lane)]


# redrive-order


class RedriveAtTheTail(Broken):
    """What comes back is treated as if it was offered: it is behind everything of its key."""

    class part(Window):
        def come_back(self, *args: Any) -> Entry:
            entry = super().come_back(*args)
            _to_the_tail(entry)
            return entry


class RedriveOutOfOrder(Broken):
    """What comes back together goes out as the dead-letter store lists it: the newest first."""

    class part(Window):
        def come_back(self, *args: Any) -> Entry:
            entry = super().come_back(*args)
            if entry.lane.back:
                entry.lane.back.sort(key=lambda each: -each.offset)
            return entry


class RedriveTwiceMakesTwo(Broken):
    """Redriving a letter twice makes two messages of it."""

    class part(Admission):
        def let_back(self, key: bytes | None, letters: Sequence[StoredLetter[Any]]) -> list[Ignored]:
            for letter in letters:
                self._window.beside.pop(letter.offset, None)
            return super().let_back(key, letters)


# safe-cursor


class CursorOneTooFar(Broken):
    """The safe cursor is the next offset to read, not the last one settled."""

    class part(Outbox):
        def finish(self, now: int) -> _Effects:
            return [
                CursorAdvanced(effect.safe_cursor + 1) if isinstance(effect, CursorAdvanced) else effect
                for effect in super().finish(now)
            ]


class CursorJumpsToTheAck(Broken):
    """The cursor is the greatest settled offset."""

    class part(Cursor):
        __slots__ = ()

        def close(self, cell: Cell) -> None:
            greatest = cell.offset if self.safe_cursor is None else max(cell.offset, self.safe_cursor)
            super().close(cell)
            self.safe_cursor = greatest


class CursorStallsAtGaps(Broken):
    """The cursor counts up by one and waits for ever for an offset that was compacted away."""

    class part(Cursor):
        __slots__ = ()

        def append(self, cell: Cell) -> None:
            if self.last is not None and cell.offset > self.last + 1:
                super().append(Entry(self.last + 1, None, Lane(None, Rule(1, 1, 1, (), latest=False))))
            super().append(cell)


class RedriveMovesTheCursorBack(Broken):
    """The cursor waits for what has come back, so it moves back."""

    class part(Window):
        def come_back(self, offset: int, *others: Any) -> Entry:
            entry = super().come_back(offset, *others)
            if self.cursor.safe_cursor is not None:
                self.cursor.safe_cursor = min(self.cursor.safe_cursor, offset - 1)
            return entry


class SupersededHoldsTheCursor(Broken):
    """An offer never moves the cursor, so nobody is told."""

    def offer(self, *args: Any, **kwargs: Any) -> _Effects:
        effects = super().offer(*args, **kwargs)
        return [effect for effect in effects if not isinstance(effect, CursorAdvanced)]


# no-loss


class EvictionAcks(Broken):
    """The open deliveries of an evicted consumer are forgotten as if they had been acked."""

    class part(Membership):
        def _end_all(self, member: Consumer, reason: ReleaseReason, now: int) -> None:
            if reason is ReleaseReason.EVICTED:
                for entry in list(member.open.values()):
                    self._endings.settle(entry, Ending.ACKED)
            super()._end_all(member, reason, now)


class RemovalForgets(Broken):
    """A consumer that leaves takes its open messages with it."""

    class part(Membership):
        def _end_all(self, member: Consumer, reason: ReleaseReason, now: int) -> None:
            held = list(member.open.values())
            super()._end_all(member, reason, now)
            for entry in held:
                if reason is ReleaseReason.REMOVED and entry.state != SETTLED:
                    self._endings.settle(entry, Ending.ACKED)


class PoisonIsDroppedUnasked(Broken):
    """What is exhausted is settled without a word, whatever the policy says."""

    class part(Endings):
        def _give_up(self, entry: Entry, note: Note, *, drops: bool) -> None:  # the fault
            self._window.settle(entry, Ending.ACKED)


class RuleOfOneKeyCountsForAll(Broken):
    """The functions are asked for the first key, and never again."""

    class part(Window):
        first: Rule | None = None

        def new_lane(self, key: bytes | None) -> Lane:
            lane = super().new_lane(key)
            if self.rule_of is not None and key is not None:
                self.first = self.first or lane.rule
                lane.rule = self.first
            return lane


class SkipsWhatOthersAccept(Broken):
    """Only the consumer that joined first is asked whether anybody accepts a key."""

    class part(Membership):
        def accepts(self, key: bytes | None) -> bool:
            first = next(iter(self.members.values()))
            return first.accepts.takes_keyless if key is None else first.accepts.accepts(key)


# settled-once


class AckNotTold(Broken):
    """Says how messages end, but of an ack its consumer knows already."""

    class part(TellSettled):
        def settled(self, entry: Entry, how: Ending) -> None:
            if how is not Ending.ACKED:
                super().settled(entry, how)


class SkipNotTold(Broken):
    """What nobody accepts is settled in a path of its own, which forgets to say so."""

    class part(TellSettled):
        def skipped(self, offset: int, key: bytes | None, how: Ending) -> None:
            pass


class ForgetsHowItEnded(Broken):
    """Says of each message that it was acked, also of one that was parked."""

    class part(TellSettled):
        def settled(self, entry: Entry, how: Ending) -> None:  # the fault
            super().settled(entry, Ending.ACKED)


class ArchiveToldTwice(Broken):
    """Says that a message is done when its dead letter is written, and again when it is settled."""

    def dead_lettered(self, offset: int, *, now_ms: int | None = None) -> _Effects:
        effects = super().dead_lettered(offset, now_ms=now_ms)
        return [*(effect for effect in effects if isinstance(effect, Done)), *effects]


class MarkStandsStill(Broken):
    """Takes the cursor for what a restart would redo: behind a slow head nothing seems to happen."""

    @property
    def restart_mark(self) -> RestartMark:
        return RestartMark(self.safe_cursor, 0)


# bounds


class LimitForgottenOnRetry(Broken):
    """The limit of a consumer is checked for first deliveries only."""

    class part(_AlwaysAsks):
        def look(self, lane: Lane) -> bool:
            goes_on = super().look(lane)
            owner = lane.owner
            if owner is None or not owner.limit or not lane.back or lane.place is not owner.ready:
                return goes_on
            if lane.back[0].state != QUEUED:
                return goes_on
            self._leave(lane)
            return self._open_turn(lane, lane.back[0], owner)


class _OtherRule(_AlwaysAsks):
    """Some lanes are looked at as if their key had another limit."""

    def look(self, lane: Lane) -> bool:
        rule = lane.rule
        lane.rule = other = copy(rule)
        other.limit = other.turn = self.limit_of(lane)
        try:
            return super().look(lane)
        finally:
            lane.rule = rule

    def limit_of(self, lane: Lane) -> int:
        raise NotImplementedError


class KeyLimitForgottenOnRetry(Broken):
    """The limit of a key is asked for first deliveries only."""

    class part(_OtherRule):
        def limit_of(self, lane: Lane) -> int:
            return lane.rule.loaded if lane.back else lane.rule.turn


class KeyLimitIsIgnored(Broken):
    """As much of a key is open as may be loaded."""

    class part(_OtherRule):
        def limit_of(self, lane: Lane) -> int:
            return lane.rule.turn if lane.rule is self.rule else lane.rule.loaded


class KeyLimitOffByOne(Broken):
    """One message too many of a key is out."""

    class part(_OtherRule):
        def limit_of(self, lane: Lane) -> int:
            return lane.rule.turn + 1


class KeyLimitIsOneForAll(Broken):
    """While something of a key is open, nothing more of it goes out, whatever its rule says."""

    class part(_OtherRule):
        def limit_of(self, lane: Lane) -> int:
            return 1 if lane.rule is self.rule else min(1, lane.rule.turn)


class SubscriptionLimitOffByOne(Broken):
    """One more may be open than the subscription has."""

    def tamper(self, core: Any) -> None:
        if core.total is not None and core.total.limit is not None:
            core.total.limit += 1


class WindowForgottenOnLoad(Broken):
    """Loads do not ask whether the window has a slot."""

    class part(Window):
        def _load_in_turn(self, lane: Lane, entry: Entry, consumer: Consumer | None) -> Place | None:
            self._load(lane, entry, consumer)
            return None


class SpillsAllTheSame(Broken):
    """Spills what waits beyond half the window, though spilling is off."""

    def tamper(self, core: Any) -> None:
        core.window.spills = True


class WaitsBeyondTheKeyLimit(Broken):
    """Refuses a message when more of its key wait than may, not when as many do."""

    class part(Admission):
        def _waiting_of(self, key: bytes) -> int:
            return super()._waiting_of(key) - 1


class OpenCountsAsWaiting(Broken):
    """Counts what is open of a key, too: with a limit of 1 nothing may wait."""

    class part(Admission):
        def _waiting_of(self, key: bytes) -> int:
            lane = self._window.lanes.get(key)
            return 0 if lane is None else lane.loaded


class LookAheadForgetsTheCap(Broken):
    """As many messages may wait as all consumers together may leave waiting, however many consumers there are."""

    class part(Admission):
        def __init__(self, config: Any, *others: Any) -> None:
            if config.look_ahead is not None and config.look_ahead.per_consumer:
                config = replace(config, look_ahead=replace(config.look_ahead, per_subscription=0))
            super().__init__(config, *others)


class LookAheadOfTheLeft(Broken):
    """A consumer that drains goes on to count."""

    class part(Admission):
        def _may_wait(self, look_ahead: Any) -> int:
            more = len(self._membership.members) - self._routing.connected
            limit: int = look_ahead.limit(self._routing.connected + more) - look_ahead.limit(self._routing.connected)
            may_wait: int = super()._may_wait(look_ahead)
            return may_wait + limit


# one-session


class BeginsBeforeTheEnd(Broken):
    """Of a key that has moved the next session begins, and then the one before it ends."""

    class part(Sessions):
        def opened(self, entry: Entry, consumer: Consumer) -> None:
            place = len(self._told)
            super().opened(entry, consumer)
            self._told[place:] = self._told[place:][::-1]


class EndsWhileOpen(Broken):
    """A session ends with the first of its deliveries that does."""

    class part(Sessions):
        def closed(self, entry: Entry, consumer: Consumer) -> None:
            super().closed(entry, consumer)
            session = self._by_key.get(entry.lane.key or b"")
            if session is not None and session.open:
                self._told.append(KeyEnded(session.key, session.consumer.name, session.number, KeyEnd.IDLE))


class DeliversWhileFlushing(Broken):
    """A consumer that was asked to flush is handed more of the key."""

    class part(Sessions):
        def refuses(self, lane: Lane, owner: Consumer) -> bool:
            session = self._by_key.get(lane.key or b"")
            return super().refuses(lane, owner) and (session is None or session.consumer is not owner)


class LingerForgotten(Broken):
    """A session ends with its last delivery, however long it should linger."""

    class part(Sessions):
        def _look(self, session: Session, now: int) -> None:
            super()._look(session, now)
            if session.deadline is not None and session.ending is None:
                self._close(session, KeyEnd.IDLE, now)


class LostSessionStaysOpen(Broken):
    """A consumer that is gone is asked to flush like all others."""

    class part(Sessions):
        def lost(self, consumer: Consumer) -> None:
            pass


class SessionNumberComesAgain(Broken):
    """The first session is number 1, and so are all others."""

    class part(Sessions):
        def opened(self, entry: Entry, consumer: Consumer) -> None:
            self._last = 0
            super().opened(entry, consumer)


# affinity, minimal-move


class AnyoneWithRoom(Broken):
    """A key whose owner is full goes to any consumer that has capacity."""

    class part(_AlwaysAsks):
        def _ask_owner(self, lane: Lane) -> Consumer | None:
            owner = super()._ask_owner(lane)
            if owner is not None and owner.free <= 0:
                owner = lane.owner = next((each for each in self.consumers.values() if each.free > 0), owner)
            return owner


class InactiveStillServed(Broken):
    """A consumer whose connection is lost gets messages until it is evicted."""

    class part(Membership):
        def deactivate(self, name: str, now: int) -> None:
            super().deactivate(name, now)
            if name in self.members:
                self._window.set_limit(self.members[name], self.members[name].quota)


class FilterOfBefore(Broken):
    """A filter that is replaced goes on to decide who owns a key."""

    class part(Routing):
        def set_filter(self, name: str, accepts: KeyFilter) -> None:
            super().set_filter(name, self.filters.get(name, accepts))


class AnswersOutliveAFilter(Broken):
    """What is kept of who accepts a key is still said when patterns have been added."""

    class part(Acceptance):
        def add(self, name: str, accepts: KeyFilter) -> None:
            kept = self._kept
            super().add(name, accepts)
            self._kept = kept


class ModuloRanking(Ranking):
    """The slot modulo the number of consumers says who owns it."""

    def walk(self, slot: int) -> Iterator[str]:
        names = sorted(self.weights)
        first = slot % max(1, len(names))
        return iter(names[first:] + names[:first])


class ModuloPlacement(RankedPlacement):
    """The obvious way to deal out keys, in which a join moves most of them."""

    ranking = ModuloRanking


class JoinReshuffles(Broken):
    """Keys are dealt out by a placement that moves them between consumers that stay."""

    starts_with = ModuloPlacement


# isolation


class HotKeyFillsTheWindow(Broken):
    """Nothing is spilled because others wait."""

    class part(Window):
        def _spill_if_crowded(self, lane: Lane, entry: Entry) -> None:
            pass


class RetriesFillTheWindow(Broken):
    """What comes back keeps its payload, however much of it waits."""

    class part(Window):
        def _spill_returned(self) -> None:
            self.returned.clear()


# fairness, group-fairness


class SameKeyTwiceInARow(Broken):
    """A lane that was served keeps the first place on the ready list."""

    class part(_AlwaysAsks):
        last: Lane | None = None

        def _close(self, entry: Entry) -> None:
            self.last = entry.lane
            super()._close(entry)

        def enlist(self, lane: Lane, place: Place | None) -> None:
            super().enlist(lane, place)
            if lane is self.last and type(place) is Place and lane.owner is not None and place is lane.owner.ready:
                others = dict(place.lanes)
                place.lanes.clear()
                place.lanes.update({lane: others[lane]} | others)


class NewestKeyFirst(Broken):
    """What waits for capacity is a stack: the key that came last goes first, and old ones starve."""

    class part(_AlwaysAsks):
        def _serve(self, consumer: Consumer) -> None:
            ready = consumer.ready
            if type(ready) is Place:
                newest = dict(reversed(ready.lanes.items()))
                ready.lanes.clear()
                ready.lanes.update(newest)
            super()._serve(consumer)


class GroupLimitForgottenOnRetry(Broken):
    """Only first deliveries count for the limit of a group."""

    class part(_AlwaysAsks):
        def _open(self, lane: Lane, entry: Entry, consumer: Consumer) -> None:
            super()._open(lane, entry, consumer)
            self._forget_retry(entry, -1)

        def _close(self, entry: Entry) -> None:
            self._forget_retry(entry, 1)
            super()._close(entry)

        def _forget_retry(self, entry: Entry, change: int) -> None:
            if entry.attempt % (1 << 32) > 1:
                for quota in entry.lane.rule.quotas:
                    quota.open += change


class _Serving(Broken):
    """The ready lists of consumers are of another class."""

    ready: ClassVar[type[Rotation]]

    def tamper(self, core: Any) -> None:
        if core.groups is not None:
            core.membership._new_ready = lambda: self.ready(core.groups._book.changed)


class OldestGroupWins(_Serving):
    """Keys are served by age, whatever group they are in."""

    class ready(Rotation):
        def head(self) -> Lane | None:
            if super().head() is None:
                return None
            consumer = self._consumer_here()
            able = [next(iter(self._queues[group])) for group in self._awake if group.admits(consumer)]
            oldest = min(able, key=lambda lane: self.lanes[lane])
            self._awake.move_to_end(oldest.rule.quotas[0], last=False)
            self._left = 0
            return oldest


class WeightIsIgnored(_Serving):
    """A group has turns until none of its keys waits."""

    class ready(Rotation):
        def took(self, lane: Lane) -> None:
            super().took(lane)
            self._left = 1_000


class PausedGroupServed(Broken):
    """A pause is noted, and nobody looks at the note."""

    class part(Groups):
        def pause(self, name: str) -> None:
            self._book.named(name)


class _Generous(TokenBucket):
    __slots__ = ()

    def take(self) -> None:
        if not self.is_full:
            super().take()


class TokensOutOfNowhere(Broken):
    """A bucket that is full stays full when a permit is taken from it."""

    def tamper(self, core: Any) -> None:
        if core.groups is None:
            return
        book = core.groups._book
        set_limits = book.set_limits

        def generous(group: Any, limits: Any) -> None:
            set_limits(group, limits)
            if group.rate is not None:
                group.rate.__class__ = _Generous

        book.set_limits = generous


# attempts


class NeverGivesUp(Broken):
    """A message that fails is tried again, however often it has failed."""

    class part(Endings):
        def _delay_after_failure(self, note: Note, reason: ReleaseReason, delay_ms: int | None) -> int | None:
            delay = super()._delay_after_failure(note, reason, delay_ms)
            return 0 if delay is None and reason is not ReleaseReason.REJECTED else delay


class PostponingCounts(Broken):
    """What is given back for later has failed once more."""

    class part(Endings):
        def _end_one(self, entry: Entry, reason: ReleaseReason, now: int, delay_ms: Any, why: Any) -> None:
            if reason is ReleaseReason.RELEASED and delay_ms:
                entry.note = entry.note or Note()
                entry.note.failures += 1
            super()._end_one(entry, reason, now, delay_ms, why)


# progress


class RaisedLimitWakesNobody(Broken):
    """After `set_limit` the lanes that waited for capacity wait for the next ack."""

    class part(Membership):
        def set_limit(self, name: str, limit: int) -> None:
            super().set_limit(name, limit)
            self._window.freed.clear()


class JoinWakesNobody(Broken):
    """A consumer that joins gets new messages only."""

    class part(Membership):
        def join(self, name: str, *args: Any, **kwargs: Any) -> None:
            super().join(name, *args, **kwargs)
            self._window.is_stale = False
            self._window.freed.clear()


class AckWakesOnlyItsKey(Broken):
    """The capacity that an ack frees is not offered to other keys."""

    class part(_AlwaysAsks):
        def ack(self, entry: Entry) -> None:
            self.settle(entry, Ending.ACKED)
            self.freed.clear()
            self.wake()


class UnitEndWakesOnlyItsKey(Broken):
    """The last delivery that others hold of a unit ends, and the other keys of the unit are not asked again."""

    class part(DrainUnits):
        def closed(self, entry: Entry, consumer: Consumer) -> None:
            touched = dict(self._window.touched)
            super().closed(entry, consumer)
            self._window.touched = touched


class UnitOfTheMapBefore(Broken):
    """After a change of placement, units are still those of the placement that was changed."""

    class part(DrainUnits):
        def moved(self) -> None:
            if not self._is_run:
                super().moved()


class LoadedWakesNobody(Broken):
    """A message that is in memory again goes on waiting, also if nothing of its key is before it."""

    class part(Window):
        def provide(self, entry: Entry, item: object) -> bool:
            if entry.consumer is not None or entry.deadline is not None:
                return super().provide(entry, item)
            entry.item, entry.state = item, QUEUED
            return False


class RetryNeverWakes(Broken):
    """A retry that is due is taken from the timer, and goes on waiting."""

    class part(Endings):
        def due(self, entry: Entry, now: int) -> None:
            if entry.state != DELAYED or entry.note is None:
                super().due(entry, now)


class PostponedNeverWakes(Broken):
    """Nothing starts the clock of what is given back for later."""

    class part(Endings):
        def _end_one(self, entry: Entry, *others: Any) -> None:
            super()._end_one(entry, *others)
            if entry.state == DELAYED and entry.note is not None and entry.note.postponed:
                entry.deadline = None


class RipeNeverWakes(Broken):
    """What was spilled while it waited for its time is not asked again when that has come."""

    class part(Endings):
        def due(self, entry: Entry, now: int) -> None:
            if entry.state != SPILLED:
                super().due(entry, now)


class DelayHoldsOtherKeys(Broken):
    """What waits for its time keeps its place at the consumer that gave it back, and other keys wait for that."""

    class part(_AlwaysAsks):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.kept: dict[int, Consumer] = {}

        def put_back(self, entry: Entry, state: int) -> None:
            holder = entry.lane.holder
            super().put_back(entry, state)
            before = self.kept.pop(entry.offset, None)
            if before is not None:
                self._free(before)
            if state == DELAYED and holder is not None:
                self.kept[entry.offset] = holder
                holder.free -= 1


# not-early


class PostponedGoesAtOnce(Broken):
    """What is given back for later is free at once."""

    def release(self, *receipt: Any, delay_ms: int = 0, now_ms: int | None = None) -> _Effects:  # the fault
        return super().release(*receipt, now_ms=now_ms)


class PostponedForNoLongerThanARetry(Broken):
    """The longest delay of a retry bounds what a consumer asks for, too."""

    def release(self, *receipt: Any, delay_ms: int = 0, now_ms: int | None = None) -> _Effects:
        most = self.config.retry.max_delay_ms
        return super().release(*receipt, delay_ms=min(delay_ms, most), now_ms=now_ms)


class FirstDeliveryIsEarly(Broken):
    """What is offered for later goes out as soon as its turn comes."""

    def offer(self, *args: Any, not_before_ms: int | None = None, now_ms: int | None = None) -> _Effects:  # the fault
        return super().offer(*args, now_ms=now_ms)


class LoadedForgetsItsTime(Broken):
    """What was spilled while it waited for its time goes out as soon as it is loaded."""

    class part(Window):
        def provide(self, entry: Entry, item: object) -> bool:
            entry.deadline = None
            return super().provide(entry, item)


class SpilledForgetsItsTime(Broken):
    """What is spilled when it is offered for later keeps its place, and not its time."""

    class part(Machine):
        def offer(self, offset: int, *others: Any) -> _Effects:
            effects = super().offer(offset, *others)
            entry = self.window.find(offset)
            if entry is not None and entry.state == SPILLED:
                entry.deadline = None
            return effects


# token-budget


class BudgetNeverCloses(Broken):
    """There may be any number of holes, and everything goes on."""

    class part(AckHoles):
        def _judge(self) -> None:
            pass


class BudgetNeverOpens(Broken):
    """Once there were too many holes, only the lowest message goes out for ever."""

    class part(AckHoles):
        def _judge(self) -> None:
            self._total.paused = self._total.paused or self.count > self._most


class BudgetHoldsTheLowest(Broken):
    """While there are too many holes nothing goes out, not even what would close one."""

    class part(AckHoles):
        def woken(self) -> None:
            pass


# reason-travels


class ReasonIsLost(Broken):
    """A failure that names no reason wipes out that of the one before."""

    class part(Endings):
        def _end_one(self, entry: Entry, *others: Any) -> None:
            if entry.note is not None:
                entry.note.reason = None
            super()._end_one(entry, *others)


class ReasonOfAnotherMessage(Broken):
    """There is one last reason, of the message that failed last."""

    class part(Endings):
        def _end_one(self, entry: Entry, reason: ReleaseReason, now: int, delay_ms: Any, why: Any) -> None:
            for other in self._window.outstanding() if why is not None else ():
                if other.note is not None:
                    other.note.reason = why
            super()._end_one(entry, reason, now, delay_ms, why)


# health-adds-up


class CountsOnlyAcks(Broken):
    """What is done in another way is not counted."""

    class part(Measure):
        def settled(self, entry: Entry, how: Ending) -> None:
            if how is Ending.ACKED:
                super().settled(entry, how)


class AgeOfTheNewest(Broken):
    """The age is that of the last message that was offered."""

    class part(Measure):
        def age_of(self, offset: int, now: int) -> int:
            return super().age_of(max(offset, self._last or 0), now)


class CountsAreLostOverARestart(Broken):
    """After a crash the counts begin from nothing."""

    class part(Measure):
        def load(self, row: Any, now: int) -> None:
            super().load(row, now)
            self._ended = dict.fromkeys(Ending, 0)


# fence


class StaleAckSettles(Broken):
    """An ack that names an open offset settles it, whatever the attempt."""

    def ack(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> _Effects:
        opened = next((delivery for delivery in self.in_flight() if delivery.offset == offset), None)
        receipt = (offset, consumer, attempt) if opened is None else opened.receipt
        return super().ack(*receipt, now_ms=now_ms)


class AttemptsStandStill(Broken):
    """A redelivery carries the same number as the delivery before it."""

    class part(_AlwaysAsks):
        def _open(self, lane: Lane, entry: Entry, consumer: Consumer) -> None:
            entry.attempt = 0
            super()._open(lane, entry, consumer)


class BelievesAnybody(Broken):
    """Takes an ack for one of an earlier delivery whoever sends it, and whatever attempt it names."""

    class part(Machine):
        def _late_ack(self, offset: int, consumer: str, attempt: int) -> Ignored | None:
            entry = self.window.find(offset)
            if entry is not None and entry.note is not None and entry.note.ended:
                attempt, consumer = entry.note.ended[-1]
            return super()._late_ack(offset, consumer, attempt)


class ForgetsTooEarly(Broken):
    """Remembers only the last delivery of a message: work that took two timeouts is done once more for nothing."""

    class part(Machine):
        def _late_ack(self, offset: int, consumer: str, attempt: int) -> Ignored | None:
            entry = self.window.find(offset)
            if entry is not None and entry.note is not None:
                entry.note.ended = entry.note.ended[-1:]
            return super()._late_ack(offset, consumer, attempt)


class EndedObligationsStand(Broken):
    """An answer asks for what the same call has ended: a `Load` of what it truncates, say."""

    class part(Outbox):
        def _obligations(self, now: int) -> _Effects:
            ended = [Load(each.offset, each.lane.key) for each in self._window.granted if each.state == SETTLED]
            return [*ended, *super()._obligations(now)]


class OldAckSettlesARedriven(Broken):
    """An ack of a delivery from before the dead letter settles what has come back."""

    class part(Machine):
        def _late_ack(self, offset: int, consumer: str, attempt: int) -> Ignored | None:
            entry = self.window.beside.get(offset)
            if entry is None or attempt > entry.attempt:
                return super()._late_ack(offset, consumer, attempt)
            self.endings.settle(entry, Ending.LATE_ACK)
            return None


# resume


class _Forgetful(Broken):
    """A snapshot that leaves something out."""

    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        del state["checksum"]
        return sealed({**state, **self.forget(state)})

    def forget(self, state: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    @staticmethod
    def notes(state: dict[str, Any], **forgotten: Any) -> dict[str, Any]:
        rows = [_MessageRow(*row) for row in state["messages"]]
        notes = [None if row.note is None else list(_NoteRow(*row.note)._replace(**forgotten)) for row in rows]
        return {"messages": [list(row._replace(note=note)) for row, note in zip(rows, notes, strict=True)]}


class SnapshotForgetsReadyOrder(_Forgetful):
    """The order in which lanes waited is that of their offsets after a restore."""

    def forget(self, state: dict[str, Any]) -> dict[str, Any]:
        return {"waiting": sorted(state["waiting"], key=lambda row: row[2])}


class SnapshotForgetsFailures(_Forgetful):
    """After a crash every poison message has all its retries again."""

    def forget(self, state: dict[str, Any]) -> dict[str, Any]:
        return self.notes(state, failures=0)


class SnapshotForgetsEndedDeliveries(_Forgetful):
    """After a crash a late ack of a delivery that has ended does not count."""

    def forget(self, state: dict[str, Any]) -> dict[str, Any]:
        return self.notes(state, ended=[])


class RestartForgetsTheTime(_Forgetful):
    """After a crash nothing waits for its time any more."""

    def forget(self, state: dict[str, Any]) -> dict[str, Any]:
        rows = [_MessageRow(*row) for row in state["messages"]]
        return {"messages": [list(row._replace(remaining_ms=0) if row.state == "delayed" else row) for row in rows]}


class SnapshotForgetsAckedRanges(_Forgetful):
    """Only the cursor survives: nothing above it that was settled is known any more."""

    def forget(self, state: dict[str, Any]) -> dict[str, Any]:
        rows, last = [_MessageRow(*row) for row in state["messages"]], None
        chained: list[list[Any]] = []
        for row in rows:
            chained.append(list(row if last is None or row.before is None else row._replace(before=last)))
            last = row.offset
        return {"messages": chained, **({"last": last} if "last" in state and last is not None else {})}


class KeyRuleForgottenInACrash(Broken):
    """What comes out of a snapshot has no rule until its key comes back."""

    class part(Machine):
        def begin(self, now: int) -> None:
            for lane in self.window.lanes.values():
                lane.rule = self.window.rule
            super().begin(now)


# determinism


class OrderOfASet(Broken):
    """Lanes wake in an order that changes from one process to the next, like that of a set of strings."""

    processes: ClassVar[Iterator[int]] = count()

    class part(Window):
        backwards = False

        def _look_each(self, lanes: Any) -> None:
            super()._look_each(list(lanes)[::-1] if self.backwards else lanes)

    def tamper(self, core: Any) -> None:
        core.window.backwards = bool(next(self.processes) % 2)


# a fault that a single test looks for


class _BadReplace(Window):
    """Something goes wrong while a newer message takes the place of older ones."""

    replaced: Lane | None = None

    def replace(self, older: list[Entry], *others: Any) -> Entry:
        self.replaced = older[0].lane if self.is_bad(older) else None
        try:
            return super().replace(older, *others)
        finally:
            self.replaced = None

    def is_bad(self, older: list[Entry]) -> bool:  # for others
        return True

    def _may_get(self, lane: Lane, consumer: Consumer) -> bool:
        return lane is not self.replaced and super()._may_get(lane, consumer)

    def wake(self) -> None:
        if self.replaced is not None:
            self.touched.pop(self.replaced, None)
        super().wake()


class LetterBehindSleeps(Broken):
    """A dead letter that came back behind the replaced message goes on waiting for it."""

    class part(_BadReplace):
        pass


class Fault(NamedTuple):
    """A broken dispatcher, and the features of a schedule that shows it soon."""

    broken: type[Broken]
    features: Sequence[str] = ()


BROKEN: Mapping[Promise, Sequence[Fault]] = {
    Promise.ONE_HOLDER: (
        Fault(MovesWithoutDraining, ("pipelines",)),
        Fault(UnitIgnored, ("hash_unit", "range_unit")),
        Fault(UnitFreedByItsFirstEnd, ("range_unit",)),
    ),
    Promise.KEY_ORDER: (
        Fault(PutBackAtTheTail),
        Fault(RetryLetsNewerOnesPass),
        Fault(DeadLetterLetsNewerOnesPass),
        Fault(NewerPassesThePostponed),
    ),
    Promise.WHOLE_BATCH: tuple(
        Fault(broken, ("batches",)) for broken in (MiddleFailureGoesOn, SecondBatchBesideTheFirst)
    ),
    Promise.LATEST_ONLY: (
        Fault(KeepsTheOlder, ("latest",)),
        Fault(LatestRuleIsIgnored, ("latest", "latest_of")),
        Fault(SupersedesADelivered, ("latest",)),
    ),
    Promise.REDRIVE_ORDER: tuple(
        Fault(broken, ("redrive",)) for broken in (RedriveAtTheTail, RedriveOutOfOrder, RedriveTwiceMakesTwo)
    ),
    Promise.SAFE_CURSOR: (
        Fault(CursorOneTooFar),
        Fault(CursorJumpsToTheAck),
        Fault(CursorStallsAtGaps),
        Fault(RedriveMovesTheCursorBack, ("redrive",)),
        Fault(SupersededHoldsTheCursor, ("latest",)),
    ),
    Promise.NO_LOSS: (
        Fault(EvictionAcks),
        Fault(RemovalForgets),
        Fault(PoisonIsDroppedUnasked),
        Fault(SkipsWhatOthersAccept, ("filters",)),
        Fault(AckThroughSkipsOne, ("batches", "pipelines")),
    ),
    Promise.SETTLED_ONCE: tuple(
        Fault(broken, ("settled",))
        for broken in (AckNotTold, SkipNotTold, ForgetsHowItEnded, ArchiveToldTwice, MarkStandsStill)
    ),
    Promise.BOUNDS: (
        Fault(LimitForgottenOnRetry),
        Fault(KeyLimitForgottenOnRetry, ("pipelines", "redrive")),
        Fault(KeyLimitIsIgnored, ("limit_of",)),
        Fault(KeyLimitOffByOne),
        Fault(RuleOfOneKeyCountsForAll, ("limit_of",)),
        Fault(SubscriptionLimitOffByOne, ("max_in_flight",)),
        Fault(WindowForgottenOnLoad, ("small",)),
        Fault(SpillsAllTheSame, ("no_spill",)),
        Fault(WaitsBeyondTheKeyLimit, ("no_spill",)),
        Fault(OpenCountsAsWaiting, ("no_spill",)),
        Fault(LookAheadForgetsTheCap, ("look_ahead",)),
        Fault(LookAheadOfTheLeft, ("look_ahead",)),
    ),
    Promise.ONE_SESSION: tuple(
        Fault(broken, ("sessions",))
        for broken in (
            BeginsBeforeTheEnd,
            EndsWhileOpen,
            DeliversWhileFlushing,
            LingerForgotten,
            LostSessionStaysOpen,
            SessionNumberComesAgain,
        )
    ),
    Promise.AFFINITY: (
        Fault(AnyoneWithRoom),
        Fault(InactiveStillServed),
        Fault(FilterOfBefore, ("filters",)),
        Fault(AnswersOutliveAFilter, ("filters",)),
    ),
    Promise.MINIMAL_MOVE: (Fault(JoinReshuffles),),
    Promise.ISOLATION: (Fault(HotKeyFillsTheWindow), Fault(RetriesFillTheWindow, ("small",))),
    Promise.FAIRNESS: (Fault(SameKeyTwiceInARow), Fault(NewestKeyFirst)),
    Promise.GROUP_FAIRNESS: (
        Fault(GroupLimitForgottenOnRetry, ("groups",)),
        Fault(OldestGroupWins, ("groups",)),
        Fault(WeightIsIgnored, ("groups",)),
        Fault(PausedGroupServed, ("groups",)),
        Fault(TokensOutOfNowhere, ("rates",)),
    ),
    Promise.ATTEMPTS: (
        Fault(NeverGivesUp),
        Fault(PostponingCounts),
        Fault(BrokenBatchCountsFailures, ("batches",)),
    ),
    Promise.PROGRESS: (
        Fault(RaisedLimitWakesNobody),
        Fault(JoinWakesNobody),
        Fault(KeyLimitIsOneForAll, ("pipelines", "limit_of")),
        Fault(AckWakesOnlyItsKey),
        Fault(UnitEndWakesOnlyItsKey, ("range_unit", "hash_unit")),
        Fault(UnitOfTheMapBefore, ("runs",)),
        Fault(LoadedWakesNobody, ("small",)),
        Fault(RetryNeverWakes),
        Fault(PostponedNeverWakes),
        Fault(RipeNeverWakes, ("not_before", "small")),
        Fault(DelayHoldsOtherKeys),
        Fault(BudgetHoldsTheLowest, ("holes",)),
    ),
    Promise.NOT_EARLY: (
        Fault(PostponedGoesAtOnce),
        Fault(PostponedForNoLongerThanARetry),
        Fault(FirstDeliveryIsEarly, ("not_before",)),
        Fault(LoadedForgetsItsTime, ("not_before", "small")),
        Fault(SpilledForgetsItsTime, ("not_before", "small")),
    ),
    Promise.TOKEN_BUDGET: (Fault(BudgetNeverCloses, ("holes",)), Fault(BudgetNeverOpens, ("holes",))),
    Promise.REASON_TRAVELS: (Fault(ReasonIsLost), Fault(ReasonOfAnotherMessage)),
    Promise.HEALTH_ADDS_UP: (
        Fault(CountsOnlyAcks, ("measure",)),
        Fault(AgeOfTheNewest, ("measure",)),
        Fault(CountsAreLostOverARestart, ("measure", "restarts")),
    ),
    Promise.FENCE: (
        Fault(StaleAckSettles),
        Fault(AttemptsStandStill),
        Fault(BelievesAnybody),
        Fault(ForgetsTooEarly),
        Fault(EndedObligationsStand, ("small",)),
        Fault(OldAckSettlesARedriven, ("redrive",)),
    ),
    Promise.RESUME: tuple(
        Fault(broken, ("restarts", *features))
        for broken, *features in (
            (SnapshotForgetsAckedRanges,),
            (SnapshotForgetsReadyOrder,),
            (SnapshotForgetsFailures,),
            (SnapshotForgetsEndedDeliveries,),
            (KeyRuleForgottenInACrash, "limit_of"),
            (RestartForgetsTheTime,),
        )
    ),
    Promise.DETERMINISM: (Fault(OrderOfASet),),
}
