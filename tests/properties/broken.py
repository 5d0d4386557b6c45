"""The real dispatcher with one realistic fault each, and the promise that it breaks: the judge catches each of them."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from tests.broken_parts import Broken, put_at_the_tail
from tests.kit.broken_own import NeverGivesUp, NewestKeyFirst
from tests.placements import RankedPlacement, Ranking
from tests.properties.broken_admission import (
    JoinRecountsNothing,
    OpenCountsAsWaiting,
    SpillsAllTheSame,
    WaitsBeyondTheKeyLimit,
)
from tests.properties.broken_batches import BROKEN_BATCHES
from tests.properties.broken_groups import BROKEN_GROUPS, SubscriptionLimitOffByOne
from tests.properties.broken_health import AgeOfTheNewest, CountsOnlyAcks
from tests.properties.broken_key_rules import (
    KeyLimitForgottenOnRetry,
    KeyLimitIsIgnored,
    KeyLimitIsOneForAll,
    KeyRuleForgottenInACrash,
    LatestRuleIsIgnored,
    RuleOfOneKeyCountsForAll,
)
from tests.properties.broken_later import (
    DelayHoldsOtherKeys,
    FirstDeliveryIsEarly,
    LoadedForgetsItsTime,
    NewerPassesThePostponed,
    PostponedForNoLongerThanARetry,
    PostponedGoesAtOnce,
    PostponedNeverWakes,
    PostponingCounts,
    ReasonIsLost,
    ReasonOfAnotherMessage,
    RestartForgetsTheTime,
    RipeNeverWakes,
    SpilledForgetsItsTime,
)
from tests.properties.broken_latest import (
    KeepsTheOlder,
    SupersededHoldsTheCursor,
    SupersedesADelivered,
)
from tests.properties.broken_limits import (
    BudgetHoldsTheLowest,
    BudgetNeverCloses,
    BudgetNeverOpens,
    LookAheadForgetsTheCap,
    LookAheadOfTheLeft,
)
from tests.properties.broken_redrive import (
    OldAckSettlesARedriven,
    RedriveAtTheTail,
    RedriveMovesTheCursorBack,
    RedriveOutOfOrder,
    RedriveTwiceMakesTwo,
)
from tests.properties.broken_sessions import BROKEN_SESSIONS
from tests.properties.broken_settlement import (
    AckNotTold,
    ArchiveToldTwice,
    ForgetsHowItEnded,
    MarkStandsStill,
    SkipNotTold,
)

from keyshared._dispatch.acceptance import Acceptance
from keyshared._dispatch.endings import Endings
from keyshared._dispatch.members import Member, MemberState
from keyshared._dispatch.membership import Membership, held_by
from keyshared._dispatch.outbox import Outbox, load
from keyshared._dispatch.routing import Routing
from keyshared._dispatch.snapshot import _MessageRow
from keyshared._dispatch.unit_gate import UnitGate
from keyshared._dispatch.units import Placed, SlotUnits
from keyshared._window.gate import DrainGate, KeyGate
from keyshared._window.lanes import SETTLED, Consumer, Entry, Lane, ReadyList, State, WorkList
from keyshared.config import DispatcherConfig
from keyshared.cursor import Cell, ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import CursorAdvanced, Effect, Ending, ReleaseReason
from keyshared.glob import KeyFilter
from keyshared.placement.ranges import RangeMap
from keyshared.testing import Promise
from keyshared.window import InFlightWindow

__all__ = ["BROKEN", "RestartGivesRoom"]


class PutBackAtTheTail(Broken):
    """A message that comes back is queued behind the newer ones of its key, as in a plain queue."""

    class _Fault(InFlightWindow):
        def move(self, entry: Entry, to: State) -> None:
            super().move(entry, to)
            if entry.lane.spilled is None:
                put_at_the_tail(entry)


class RetryLetsNewerOnesPass(Broken):
    """A message that waits for its retry does not hold its key (Pulsar's PIP-379)."""

    class _Fault(InFlightWindow):
        def move(self, entry: Entry, to: State) -> None:
            if entry.state == State.DELAYED:
                entry.lane.take_back(entry)
            super().move(entry, to)
            if to is State.DELAYED:
                entry.lane.back.remove(entry)  # type: ignore[union-attr]  # it was just put there


class DeadLetterLetsNewerOnesPass(Broken):
    """The key goes on before the dead letter is written."""

    class _Fault(InFlightWindow):
        def move(self, entry: Entry, to: State) -> None:
            if entry.state == State.DEAD_LETTERING:
                entry.lane.take_back(entry)
            super().move(entry, to)
            if to is State.DEAD_LETTERING:
                entry.lane.back.remove(entry)  # type: ignore[union-attr]  # it was just put there


class MovesWithoutDraining(Broken):
    """A key goes to its new owner while the old one still works on it."""

    class _Fault(DrainGate):
        __slots__ = ()

        def keeps(self, lane: Lane, owner: Consumer) -> bool:  # noqa: ARG002  # the fault
            return False


class UnitIgnored(KeySharedDispatcher[object]):
    """A key of a slot or run that drains goes out because nothing of the key itself is open elsewhere."""

    def __init__(self, placement: Any, config: DispatcherConfig | None = None, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        self._window._gate, self._window._counts = KeyGate(), None


class UnitFreedByItsFirstEnd(Broken):
    """A unit has a mark instead of a count: the first delivery of any of its keys that ends frees it for all."""

    class _Fault(SlotUnits):
        __slots__ = ()

        def closed(self, unit: int, entry: Entry) -> None:  # noqa: ARG002  # the fault
            self.open.pop(unit, None)
            if unit in self._waiting:
                self.vacated[unit] = None


class MapBefore:
    """What the ranges were before the last change of them that was seen."""

    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        self.seen = self.before = placed.ranges

    @property
    def ranges(self) -> RangeMap:
        if self.placed.ranges is not self.seen:
            self.before, self.seen = self.seen, self.placed.ranges
        return self.before


class UnitOfTheMapBefore(KeySharedDispatcher[object]):
    """After a change of placement, units are still those of the placement that was changed."""

    def __init__(self, placement: Any, config: DispatcherConfig | None = None, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        if isinstance(self._window._gate, UnitGate):
            self._window._gate._units._placed = MapBefore(self._routing)


class EvictionAcks(Broken):
    """The open deliveries of an evicted consumer are forgotten as if they had been acked."""

    class _Fault(Membership):
        __slots__ = ()

        def _end_all(self, member: Member, reason: ReleaseReason, notices: list[Effect], now: int) -> None:
            if reason is ReleaseReason.EVICTED:
                for entry in held_by(member):
                    self._endings.settle(entry, Ending.ACKED)
            super()._end_all(member, reason, notices, now)


class RemovalForgets(Broken):
    """A consumer that leaves takes its open messages with it."""

    class _Fault(Membership):
        __slots__ = ()

        def _end_all(self, member: Member, reason: ReleaseReason, notices: list[Effect], now: int) -> None:
            held = held_by(member)
            super()._end_all(member, reason, notices, now)
            for entry in held:
                if reason is ReleaseReason.REMOVED and entry.state != SETTLED:
                    self._endings.settle(entry, Ending.ACKED)


class PoisonIsDroppedUnasked(Broken):
    """What is exhausted is settled without a word, whatever the policy says."""

    class _Fault(Endings):
        __slots__ = ()

        def _poison(self, entry: Entry, notices: list[Effect]) -> None:  # noqa: ARG002  # the fault
            self.settle(entry, Ending.ACKED)


class SkipsWhatOthersAccept(Broken):
    """Only the consumer that joined first is asked whether anybody accepts a key."""

    class _Fault(Membership):
        __slots__ = ()

        def accepts(self, key: bytes | None) -> bool:
            return any(member.accepts.accepts(key) for member in [*self.members.values()][:1])


class CursorOneTooFar(Broken):
    """The safe cursor is the next offset to read, not the last one settled."""

    class _Fault(Outbox):
        __slots__ = ()

        def finish(self, out: list[Effect], granted: list[Entry], now: int) -> list[Effect]:
            effects = super().finish(out, granted, now)
            return [
                CursorAdvanced(effect.safe_cursor + 1) if isinstance(effect, CursorAdvanced) else effect
                for effect in effects
            ]


class CursorJumpsToTheAck(Broken):
    """The cursor is the greatest settled offset."""

    class _Fault(ContiguousCursor):
        __slots__ = ()

        def close(self, cell: Cell) -> None:
            greatest = cell.offset if self.safe_cursor is None else max(cell.offset, self.safe_cursor)
            super().close(cell)
            self.safe_cursor = greatest


class CursorStallsAtGaps(Broken):
    """The cursor counts up by one and waits for ever for an offset that was compacted away."""

    class _Fault(ContiguousCursor):
        __slots__ = ()

        def append(self, cell: Cell) -> None:
            if self.last is not None and cell.offset > self.last + 1:
                lane = Lane(None)
                missing = Entry(self.last + 1, None, None, lane)
                lane.append(missing)
                super().append(missing)
            super().append(cell)

        def append_many(self, cells: Sequence[Cell]) -> None:
            for cell in cells:
                self.append(cell)


class StaleAckSettles(KeySharedDispatcher[object]):
    """Whoever names an open offset settles it, whatever the attempt."""

    def ack(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect[object]]:
        opened = next((delivery for delivery in self.in_flight() if delivery.offset == offset), None)
        receipt = (offset, consumer, attempt) if opened is None else opened.receipt
        return super().ack(*receipt, now_ms=now_ms)


class AttemptsStandStill(Broken):
    """A redelivery carries the same number as the delivery before it."""

    class _Fault(InFlightWindow):
        def _open(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> None:
            entry.attempt = 0
            super()._open(lane, entry, consumer, granted)


class BelievesAnybody(KeySharedDispatcher[object]):
    """Takes an ack for one of an earlier delivery whoever sends it, and whatever attempt it names."""

    def _late_ack(self, offset: int, consumer: str, attempt: int, now: int) -> list[Effect[object]]:
        if ended := self._endings.ended(offset):
            attempt, consumer = ended[-1]
        return super()._late_ack(offset, consumer, attempt, now)


class ForgetsTooEarly(KeySharedDispatcher[object]):
    """Remembers only the last delivery of a message: work that took two timeouts is done once more for nothing."""

    def _late_ack(self, offset: int, consumer: str, attempt: int, now: int) -> list[Effect[object]]:
        if note := self._notes.get(offset):
            note.ended = note.ended[-1:]
        return super()._late_ack(offset, consumer, attempt, now)


class EndedObligationsStand(Broken):
    """An answer asks for what the same call has ended: a `Load` of what it truncates, say."""

    class _Fault(Outbox):
        __slots__ = ()

        def finish(self, out: list[Effect], granted: list[Entry], now: int) -> list[Effect]:
            ended = [load(entry) for entry in granted if entry.state == SETTLED]
            return super().finish([*out, *ended], granted, now)


class RestartGivesRoom(Broken):
    """After a restart every consumer is served once more, as if it had got room just then."""

    class _Fault(InFlightWindow):
        def begin_anew(self) -> None:
            pass


class LimitForgottenOnRetry(Broken):
    """The per-consumer limit is checked for first deliveries only."""

    class _Fault(InFlightWindow):
        def _step(self, lane: Lane, granted: list[Entry]) -> bool:
            goes_on = super()._step(lane, granted)
            owner, entry = lane.owner, lane.candidate
            if owner is None or not owner.limit or lane.listed is not owner.ready or not (entry and entry.attempt):
                return goes_on
            self._unlist(lane)
            return self._send(lane, entry, owner, granted)


class KeyLimitOffByOne(KeySharedDispatcher[object]):
    """One message too many of a key is out."""

    def __init__(self, placement: Any, config: DispatcherConfig | None = None, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        self._window.per_key += 1


class WindowForgottenOnLoad(Broken):
    """Loads do not ask whether the window has room."""

    class _Fault(InFlightWindow):
        def _load_in_turn(self, lane: Lane, entry: Entry, consumer: Consumer | None, granted: list[Entry]) -> None:
            self._unlist(lane)
            self._load(lane, entry, consumer, granted)


class AnyoneWithRoom(Broken):
    """A key whose owner is full goes to whoever has room."""

    class _Fault(InFlightWindow):
        def _ask_owner(self, lane: Lane, key: bytes) -> Consumer | None:
            owner = super()._ask_owner(lane, key)
            if owner is not None and owner.free <= 0:
                others = self.consumers.values()
                owner = lane.owner = next((other for other in others if other.free > 0), owner)
            return owner


class InactiveStillServed(Broken):
    """A consumer whose connection is lost gets messages until it is evicted."""

    class _Fault(Membership):
        __slots__ = ()

        def deactivate(self, name: str, now: int) -> None:
            super().deactivate(name, now)
            member = self.members.get(name)
            if member is not None and member.state is MemberState.INACTIVE:
                self._window.set_limit(member, member.quota)


class FilterOfBefore(Broken):
    """A filter that is replaced goes on to decide who owns a key."""

    class _Fault(Routing):
        __slots__ = ()

        def set_filter(self, name: str, accepts: KeyFilter) -> None:
            super().set_filter(name, self.filters.get(name, accepts))


class AnswersOutliveAFilter(Broken):
    """What is kept of who accepts a key is still said when patterns have been added."""

    class _Fault(Acceptance):
        __slots__ = ()

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


class JoinReshuffles(KeySharedDispatcher[object]):
    """Keys are dealt out by a placement that moves them between consumers that stay."""

    starts_with = ModuloPlacement


class RaisedLimitWakesNobody(Broken):
    """After `set_limit` the lanes that waited for room wait for the next ack."""

    class _Fault(Membership):
        __slots__ = ()

        def set_limit(self, name: str, limit: int) -> None:
            super().set_limit(name, limit)
            self._window._freed.clear()


class JoinWakesNobody(Broken):
    """A consumer that joins gets new messages only."""

    class _Fault(Membership):
        __slots__ = ()

        def join(self, name: str, *args: Any, **kwargs: Any) -> None:
            super().join(name, *args, **kwargs)
            self._window._stale = False


class AckWakesOnlyItsKey(Broken):
    """The room that an ack frees is not offered to other keys."""

    class _Fault(InFlightWindow):
        def settle(self, entry: Entry) -> list[Entry]:
            self.remove(entry)
            self._freed.clear()
            return self.wake()


class UnitEndWakesOnlyItsKey(Broken):
    """The last delivery that others hold of a unit ends, and the other keys of the unit are not asked again."""

    class _Fault(InFlightWindow):
        def _no_more_kept(self, draining: Sequence[Lane], touched: Mapping[Lane, None]) -> list[Lane]:  # noqa: ARG002  # the fault
            return []


class LoadedWakesNobody(Broken):
    """A message that is at hand again goes on waiting, also if nothing of its key is before it."""

    class _Fault(InFlightWindow):
        def provide(self, entry: Entry, item: object) -> bool:
            super().provide(entry, item)
            return False


class RetryNeverWakes(Broken):
    """A retry that is due is taken from the timer, and goes on waiting."""

    class _Fault(Endings):
        __slots__ = ()

        def due(self, entry: Entry, notices: list[Effect], now: int) -> None:
            if entry.state != State.DELAYED:
                super().due(entry, notices, now)


class SameKeyTwiceInARow(Broken):
    """A lane that was served keeps the first place on the ready list."""

    class _Fault(InFlightWindow):
        last: Lane | None = None

        def settle(self, entry: Entry) -> list[Entry]:
            self.last = entry.lane
            return super().settle(entry)

        def _list(self, lane: Lane, where: WorkList | ReadyList) -> None:
            super()._list(lane, where)
            is_plain = isinstance(where, OrderedDict)  # else groups take turns
            if lane is self.last and lane.owner is not None and where is lane.owner.ready and is_plain:
                where.move_to_end(lane, last=False)  # type: ignore[union-attr]  # it is an OrderedDict


class HotKeyFillsTheWindow(Broken):
    """Nothing is spilled because others wait."""

    class _Fault(InFlightWindow):
        def _spill_if_crowded(self, lane: Lane, entry: Entry, granted: list[Entry]) -> None:
            pass

        def _spill_alone(self, entry: Entry) -> list[Entry]:  # noqa: ARG002  # as above
            return []


class SnapshotForgetsAckedRanges(KeySharedDispatcher[object]):
    """Only the cursor survives: nothing above it that was settled is known any more."""

    def snapshot(self) -> dict[str, Any]:
        state: dict[str, Any] = super().snapshot()
        first, *others = state["messages"] or [None]
        if first is None:
            return state
        last = first[0]
        for row in others:
            row[1], last = last, row[0]
        return {**state, "last": last}


class SnapshotForgetsReadyOrder(KeySharedDispatcher[object]):
    """The order in which lanes waited is that of their offsets after a restore."""

    def snapshot(self) -> dict[str, Any]:
        state: dict[str, Any] = super().snapshot()
        return {**state, "waiting": sorted(state["waiting"], key=lambda row: row[-1])}


class SnapshotForgetsFailures(KeySharedDispatcher[object]):
    """After a crash every poison message has all its retries again."""

    def snapshot(self) -> dict[str, Any]:
        state: dict[str, Any] = super().snapshot()
        return {**state, "messages": [_without(row, "failures", 0) for row in state["messages"]]}


class SnapshotForgetsEndedDeliveries(KeySharedDispatcher[object]):
    """After a crash a late ack counts of the last deliveries that have ended: of one, or of as many as have failed."""

    def snapshot(self) -> dict[str, Any]:
        state: dict[str, Any] = super().snapshot()
        ended, failures = (_MessageRow._fields.index(name) for name in ("ended", "failures"))
        kept = [row[ended][-max(1, row[failures]) :] for row in state["messages"]]  # fewer than failed are refused
        rows = zip(state["messages"], kept, strict=True)
        return {**state, "messages": [_without(row, "ended", last) for row, last in rows]}


def _without(row: list[object], field: str, forgotten: object) -> list[object]:
    return list(_MessageRow(*row)._replace(**{field: forgotten}))


class OrderOfASet(Broken):
    """Lanes wake in an order that changes from one process to the next, like that of a set of strings."""

    _processes: Iterator[int] = count()

    class _Fault(InFlightWindow):
        backwards = False

        def _examine_in_turns(self, lanes: list[Lane], granted: list[Entry]) -> None:
            super()._examine_in_turns(lanes[::-1] if self.backwards else lanes, granted)

    def __init__(self, placement: Any, config: DispatcherConfig | None = None, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        vars(self._window)["backwards"] = bool(next(self._processes) % 2)


BROKEN: Mapping[Promise, Sequence[type[Any]]] = {
    Promise.ONE_HOLDER: (MovesWithoutDraining, UnitIgnored, UnitFreedByItsFirstEnd),
    Promise.KEY_ORDER: (
        PutBackAtTheTail,
        RetryLetsNewerOnesPass,
        DeadLetterLetsNewerOnesPass,
        NewerPassesThePostponed,
    ),
    Promise.WHOLE_BATCH: BROKEN_BATCHES,
    Promise.LATEST_ONLY: (KeepsTheOlder, LatestRuleIsIgnored, SupersedesADelivered),
    Promise.REDRIVE_ORDER: (RedriveAtTheTail, RedriveOutOfOrder, RedriveTwiceMakesTwo),
    Promise.SAFE_CURSOR: (
        CursorOneTooFar,
        CursorJumpsToTheAck,
        CursorStallsAtGaps,
        RedriveMovesTheCursorBack,
        SupersededHoldsTheCursor,
    ),
    Promise.NO_LOSS: (
        EvictionAcks,
        RemovalForgets,
        PoisonIsDroppedUnasked,
        RuleOfOneKeyCountsForAll,
        SkipsWhatOthersAccept,
    ),
    Promise.SETTLED_ONCE: (AckNotTold, SkipNotTold, ForgetsHowItEnded, ArchiveToldTwice, MarkStandsStill),
    Promise.BOUNDS: (
        LimitForgottenOnRetry,
        KeyLimitForgottenOnRetry,
        KeyLimitIsIgnored,
        KeyLimitOffByOne,
        SubscriptionLimitOffByOne,
        WindowForgottenOnLoad,
        SpillsAllTheSame,
        WaitsBeyondTheKeyLimit,
        OpenCountsAsWaiting,
        JoinRecountsNothing,
        LookAheadForgetsTheCap,
        LookAheadOfTheLeft,
    ),
    Promise.ONE_SESSION: BROKEN_SESSIONS,
    Promise.AFFINITY: (AnyoneWithRoom, InactiveStillServed, FilterOfBefore, AnswersOutliveAFilter),
    Promise.MINIMAL_MOVE: (JoinReshuffles,),
    Promise.ISOLATION: (HotKeyFillsTheWindow,),
    Promise.GROUP_FAIRNESS: BROKEN_GROUPS,
    Promise.FAIRNESS: (SameKeyTwiceInARow, NewestKeyFirst),
    Promise.ATTEMPTS: (NeverGivesUp, PostponingCounts),
    Promise.PROGRESS: (
        RaisedLimitWakesNobody,
        JoinWakesNobody,
        KeyLimitIsOneForAll,
        AckWakesOnlyItsKey,
        UnitEndWakesOnlyItsKey,
        UnitOfTheMapBefore,
        LoadedWakesNobody,
        RetryNeverWakes,
        PostponedNeverWakes,
        RipeNeverWakes,
        DelayHoldsOtherKeys,
    ),
    Promise.NOT_EARLY: (
        PostponedGoesAtOnce,
        PostponedForNoLongerThanARetry,
        FirstDeliveryIsEarly,
        LoadedForgetsItsTime,
        SpilledForgetsItsTime,
    ),
    Promise.TOKEN_BUDGET: (BudgetNeverCloses, BudgetNeverOpens, BudgetHoldsTheLowest),
    Promise.REASON_TRAVELS: (ReasonIsLost, ReasonOfAnotherMessage),
    Promise.HEALTH_ADDS_UP: (CountsOnlyAcks, AgeOfTheNewest),
    Promise.FENCE: (
        StaleAckSettles,
        AttemptsStandStill,
        BelievesAnybody,
        ForgetsTooEarly,
        EndedObligationsStand,
        OldAckSettlesARedriven,
    ),
    Promise.RESUME: (
        SnapshotForgetsAckedRanges,
        SnapshotForgetsReadyOrder,
        SnapshotForgetsFailures,
        SnapshotForgetsEndedDeliveries,
        KeyRuleForgottenInACrash,
        RestartForgetsTheTime,
    ),
    Promise.DETERMINISM: (OrderOfASet,),
}
