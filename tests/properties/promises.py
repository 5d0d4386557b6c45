"""A judge that sees only what went into a dispatcher and what came out, and says which promise was broken.

It keeps its own books from the recorded calls and effects, shares nothing with any dispatcher but the effects, and
trusts no answer that it can work out itself. Only two things are taken from the dispatcher's queries without proof,
because they leave no trace in the effects: that a message waits for its retry, and that room is reserved for loads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from tests.model import Position

from keyshared.config import DrainUnit
from keyshared.effects import (
    Blocked,
    BlockReason,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Dropped,
    DropReason,
    Effect,
    Evicted,
    Ignored,
    IgnoredReason,
    Load,
    Released,
    ReleaseReason,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.effects import Call as IgnoredCall

__all__ = ["Call", "Judge", "Promise", "Queries", "Rules", "Step", "Violation", "check_history"]

Lane: TypeAlias = bytes | int | str
Unit: TypeAlias = Lane | tuple[int, int]
RECEIPT_CALLS = frozenset({"ack", "nack", "reject", "release", "extend"})
ENDING_CALLS = frozenset({"nack", "reject", "release"})
REMEMBERED_DELIVERIES = 8
WHOLE_SUBSCRIPTION = "the whole subscription"


class Promise(StrEnum):
    """The promises that a recorded history can break."""

    ONE_HOLDER = "one-holder"
    KEY_ORDER = "key-order"
    SAFE_CURSOR = "safe-cursor"
    NO_LOSS = "no-loss"
    BOUNDS = "bounds"
    AFFINITY = "affinity"
    MINIMAL_MOVE = "minimal-move"
    ISOLATION = "isolation"
    FAIRNESS = "fairness"
    PROGRESS = "progress"
    FENCE = "fence"
    RESUME = "resume"  # judged by comparing two histories, see the tests of broken variants
    DETERMINISM = "determinism"  # likewise


class Violation(NamedTuple):
    """A broken promise and what proves it."""

    promise: Promise
    proof: str


class Call(NamedTuple):
    """One call of the dispatcher."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        named = [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.name}({', '.join([*map(repr, self.args), *named])})"


@dataclass(frozen=True, kw_only=True)
class Queries:
    """What the dispatcher says about itself after a call."""

    free_slots: int
    next_deadline: int | None
    reasons: Mapping[int, BlockReason | None]  # of every offset offered so far
    obligations: frozenset[Effect]
    owners: Mapping[bytes, str | None]


class Step(NamedTuple):
    """A call that did not raise, its effects, and the state it left behind if somebody asked."""

    call: Call
    effects: Sequence[Effect]
    after: Queries | None = None
    now: int = 0


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The numbers and policies that the user chose."""

    window: int
    max_tracked: int
    max_in_flight_per_consumer: int
    max_in_flight_per_key: int
    max_loaded_per_key: int
    ordering_required: bool = False
    unit: DrainUnit = DrainUnit.KEY
    may_drop: frozenset[DropReason] = frozenset()
    may_skip_unmatched: bool = True


class Ranges(Protocol):
    """What is asked of a placement's value."""

    @property
    def runs(self) -> Iterable[tuple[int, int, str | None]]: ...
    def slot_of(self, key: bytes) -> int: ...
    def owner(self, slot: int) -> str | None: ...
    def walk(self, slot: int) -> Iterable[str]: ...


class Placement(Protocol):
    """What is asked of a placement, so that the judge can follow who joins and leaves."""

    @property
    def ranges(self) -> Ranges: ...
    @property
    def consumers(self) -> Sequence[str]: ...
    def add(self, name: str, *, weight: int = 1) -> object: ...
    def remove(self, name: str) -> object: ...
    def set_weight(self, name: str, weight: int) -> object: ...
    def copy(self) -> Self: ...


class Stage(StrEnum):
    """What the effects have told about an outstanding message."""

    WAITING = "waiting"
    SPILLED = "spilled"
    LOADING = "loading"
    OPEN = "open"
    ARCHIVING = "archiving"
    BLOCKED = "blocked"


STAGE_AFTER: Mapping[type[Effect], Stage] = {
    Spilled: Stage.SPILLED,
    Load: Stage.LOADING,
    DeadLetter: Stage.ARCHIVING,
    Blocked: Stage.BLOCKED,
}


@dataclass
class Record:
    """An outstanding message."""

    offset: int
    key: bytes | None
    stage: Stage = Stage.WAITING
    attempt: int = 0
    consumer: str | None = None
    ended: tuple[tuple[int, str | None], ...] = ()  # attempt and consumer of deliveries that have ended
    acked_late: bool = False
    said_gone: bool = False

    @property
    def receipt(self) -> tuple[int, str | None, int]:
        return self.offset, self.consumer, self.attempt

    def end(self) -> None:
        """The open delivery has ended, and the message is still outstanding."""
        self.stage = Stage.WAITING
        self.ended += ((self.attempt, self.consumer),)

    def remembers(self, receipt: tuple[int, str, int]) -> bool:
        """Whether the receipt names one of the last ended deliveries: of those a late ack counts."""
        _, consumer, attempt = receipt
        return (attempt, consumer) in self.ended[-REMEMBERED_DELIVERIES:]


@dataclass
class Member:
    """A connected consumer."""

    name: str
    filters: tuple[str, ...]
    limit: int
    weight: int
    active: bool = True

    def accepts(self, key: bytes | None) -> bool:
        if key is None:
            return not self.filters or "*" in self.filters
        text = key.decode("utf-8", "surrogateescape")
        return not self.filters or any(fnmatchcase(text, pattern) for pattern in self.filters)


@dataclass
class Turns:
    """Who was served when, in numbers of deliveries, for the judgement of fairness."""

    count: int = 0
    last_of: dict[Lane, tuple[int, str]] = field(default_factory=dict)  # the lane's last delivery and its consumer
    ready_since: dict[Lane, tuple[int, str | None]] = field(default_factory=dict)  # and whom it is ready for


class Judge:
    """Books over one dispatcher's life; ``earlier`` is what it knows of those before."""

    def __init__(self, rules: Rules, placement: Placement, earlier: Position | None = None) -> None:
        self.rules = rules
        self.earlier = earlier or Position(None, None)
        self.placement = placement.copy()
        self.outstanding: dict[int, Record] = {}
        self.members: dict[str, Member] = {}
        self.cursor: int | None = self.earlier.safe
        self.offered: list[int] = [] if self.cursor is None else [self.cursor]
        self.newest: int | None = None  # what this step offers for the first time, if anything
        self.turns = Turns()
        self.owners: Mapping[bytes, str | None] = {}
        self.awaited: set[str] = set()  # in the placement before they have joined
        self.asked_out_of_turn = False
        self.found: list[Violation] = []

    def see(self, step: Step) -> list[Violation]:
        """Judge one more step.

        Args:
            step: Must follow the one seen last.

        Returns:
            What it breaks; empty if nothing.
        """
        self.found = []
        self.newest = None
        self._see_call(step)
        for effect in step.effects:
            self._see_effect(effect, step)
        self._judge_cursor()
        self._judge_bounds()
        if step.after:
            self._judge_obligations(step, step.after)
            self._judge_books(step.after)
            self._judge_moves(step, step.after)
            self._judge_progress(step, step.after)
        return self.found

    # --- what the call itself does ----------------------------------------------------------------------------------

    def _see_call(self, step: Step) -> None:
        call = step.call
        if call.name in RECEIPT_CALLS:
            self._see_receipt(call.name, call.args, step)
        elif call.name == "ack_many":
            for receipt in dict.fromkeys(call.args[0]):
                self._see_receipt("ack", receipt, step)
        elif call.name == "offer":
            self._see_offer(*call.args[:2])
        elif call.name == "offer_many":
            for offset, key, *_ in call.args[0]:
                self._see_offer(offset, key)
        elif call.name in {"loaded", "unblock_offset"} and not _ignored(step, call.args[0]):
            self._put_back(call.args[0])
        elif call.name == "dead_lettered" and not _ignored(step, call.args[0]):
            self._see_confirmation(call.args[0], step)
        else:
            self._see_many(call)
            self._see_membership(call)
            self._judge_pull(step)

    def _see_confirmation(self, offset: int, step: Step) -> None:
        """A confirmed dead letter is the caller's own answer, unless the message stays blocked."""
        stays = any(isinstance(effect, Blocked) and effect.offset == offset for effect in step.effects)
        if not stays and self.outstanding.pop(offset).stage != Stage.ARCHIVING:
            self._blame(Promise.NO_LOSS, f"{step.call} settled a message whose dead letter nobody asked for")

    def _see_many(self, call: Call) -> None:
        """Calls that may be about several outstanding messages."""
        for record in self.outstanding.values():
            gone = call.name == "gone" and record.offset == call.args[0]
            truncated = call.name == "truncate" and record.offset < call.args[0]
            record.said_gone = record.said_gone or gone or truncated
            blocked = record.stage == Stage.BLOCKED
            if call.name == "unblock" and blocked and record.key == _as_bytes(call.args[0]):
                record.stage = Stage.WAITING

    def _see_offer(self, offset: int, key: str | bytes | None) -> None:
        if self.earlier.resume is not None and offset < self.earlier.resume:
            return
        if not self.offered or offset > self.offered[-1]:  # else offered again after a restore
            self.offered.append(offset)
            if self.earlier.knows(offset):
                return
            self.newest = offset
            self.outstanding[offset] = Record(offset, _as_bytes(key))

    def _see_receipt(self, name: str, receipt: tuple[int, str, int], step: Step) -> None:
        offset, consumer, attempt = receipt
        record = self.outstanding.get(offset)
        ignored = _all_ignored(step, receipt)
        if record and record.stage == Stage.OPEN and record.receipt == receipt:
            if ignored:
                self._blame(Promise.NO_LOSS, f"{name}{receipt} names the open delivery and was ignored")
            elif name == "ack":
                del self.outstanding[offset]
            elif name in ENDING_CALLS:
                record.end()
            return
        is_late = bool(name == "ack" and record and record.remembers(receipt))
        # An earlier receipt of the batch may have handed it out: both happened within the call, so nobody is told.
        handed_out = step.call.name == "ack_many" and record is not None and attempt > record.attempt
        if record and record.stage == Stage.WAITING and not ignored and (is_late or handed_out):
            del self.outstanding[offset]
            return
        noted = Ignored(offset, consumer, attempt, IgnoredCall.ACK, IgnoredReason.LATE_ACK_NOTED) in step.effects
        if record and noted:
            record.acked_late = True
        if step.call.name == "ack":
            self._judge_late_ack(receipt, noted=noted, must_count=is_late and _may_end_late(record))
        if not ignored:
            self._blame(Promise.FENCE, f"{name}{receipt} names no open delivery and was not refused")
        touched = any(
            isinstance(effect, Released | Settled | Dropped) and effect.offset == offset for effect in step.effects
        )
        if record and record.stage == Stage.OPEN and touched and step.call.name != "ack_many":
            self._blame(Promise.FENCE, f"{name}{receipt} is stale, but ended {record.receipt}")

    def _judge_late_ack(self, receipt: tuple[int, str, int], *, noted: bool, must_count: bool) -> None:
        if noted and not must_count:
            self._blame(Promise.FENCE, f"ack{receipt} names no delivery that was made and is remembered, but was noted")
        if must_count and not noted:
            self._blame(
                Promise.FENCE, f"ack{receipt} names a delivery that was made and is remembered, but was refused"
            )

    def _see_membership(self, call: Call) -> None:
        name = call.args[0] if call.args else ""
        member = self.members.get(name) if isinstance(name, str) else None
        match call.name:
            case "add_consumer":
                limit = call.kwargs.get("limit")
                limit = self.rules.max_in_flight_per_consumer if limit is None else limit
                weight = call.kwargs.get("weight", 1)
                self.awaited = set(self.placement.consumers) - set(self.members)
                # a name is one session: what an earlier one of that name was served is no turn of this one
                self.turns.last_of = {lane: turn for lane, turn in self.turns.last_of.items() if turn[1] != name}
                self.members[name] = Member(name, tuple(call.kwargs.get("filters", ())), limit, weight)
                self._join_placement()
            case "remove_consumer":
                self._leave(name)
            case "set_placement":
                self.placement = call.args[0].copy()
                self._join_placement()
            case "set_inactive" if member:
                member.active = False
            case "set_active" if member:
                member.active = True
            case "set_limit" if member:
                member.limit = call.args[1]
            case "set_filters" if member:
                member.filters = tuple(call.args[1])
            case "set_weight" if member:
                member.weight = call.args[1]
                self.placement.set_weight(name, call.args[1])

    def _join_placement(self) -> None:
        for member in self.members.values():
            if member.name in self.placement.consumers:
                self.placement.set_weight(member.name, member.weight)
            else:
                self.placement.add(member.name, weight=member.weight)

    def _leave(self, name: str) -> None:
        if self.members.pop(name, None) and name in self.placement.consumers:
            self.placement.remove(name)

    # --- what the effects tell --------------------------------------------------------------------------------------

    def _see_effect(self, effect: Effect, step: Step) -> None:
        match effect:
            case Evicted():
                self._leave(effect.consumer)
                self.turns.last_of.clear()  # what was ready for it may be ready for another only now
            case Released():
                self._see_released(effect)
            case Settled() | Skipped() | Dropped():
                self._see_answer(effect, step)
            case Spilled() | Load() | DeadLetter() | Blocked():
                self._stage(effect, STAGE_AFTER[type(effect)])
            case Deliver():
                self._see_delivery(effect, step)
            case CursorAdvanced():
                self._see_cursor(effect.safe_cursor)
            case _:
                pass

    def _stage(self, effect: Spilled | Load | DeadLetter | Blocked, stage: Stage) -> None:
        if record := self.outstanding.get(effect.offset):
            record.stage = stage
        else:
            self._blame(Promise.NO_LOSS, f"{effect} about a message that is settled or was never offered")

    def _put_back(self, offset: int) -> None:
        if offset in self.outstanding:
            self.outstanding[offset].stage = Stage.WAITING

    def _see_released(self, effect: Released) -> None:
        if effect.reason in {ReleaseReason.NACKED, ReleaseReason.REJECTED, ReleaseReason.RELEASED}:
            return  # as the call asks
        record = self.outstanding.get(effect.offset)
        if record and record.stage == Stage.OPEN and record.receipt == effect[:3]:
            record.end()
            self.turns.ready_since.pop(self._lane(record), None)  # it may wait for its retry now
        else:
            self._blame(Promise.FENCE, f"{effect} ends a delivery that is not open")

    def _see_answer(self, effect: Settled | Skipped | Dropped, step: Step) -> None:
        record = self.outstanding.pop(effect.offset, None)
        if record is None:
            self._blame(Promise.NO_LOSS, f"{effect} answers for a message that is settled or was never offered")
        elif not self._is_justified(effect, record, step):
            self._blame(Promise.NO_LOSS, f"{effect}, which nobody asked for and no policy allows")

    def _is_justified(self, effect: Settled | Skipped | Dropped, record: Record, step: Step) -> bool:
        if isinstance(effect, Dropped):
            return effect.reason in self.rules.may_drop
        if isinstance(effect, Settled):
            return record.acked_late if effect.reason == SettleReason.LATE_ACK else step.call.name == "park"
        if effect.reason == SkipReason.GONE:
            return record.said_gone
        accepted = any(member.accepts(record.key) for member in self.members.values())
        return self.rules.may_skip_unmatched and step.call.name in {"offer", "offer_many"} and not accepted

    def _see_delivery(self, effect: Deliver, step: Step) -> None:
        record = self.outstanding.get(effect.offset)
        # an ack_many may deliver by its first receipt what its second one then acks late
        named = step.call.name == "ack_many" and any(offset == effect.offset for offset, *_ in step.call.args[0])
        if record is None or (record.acked_late and not named):
            self._blame(Promise.NO_LOSS, f"{effect} of a message that is settled, acked late or was never offered")
            return
        if record.stage == Stage.OPEN:
            self._blame(Promise.ONE_HOLDER, f"{effect} while {record.receipt} is open")
        if effect.attempt <= record.attempt:
            self._blame(Promise.FENCE, f"{effect} after attempt {record.attempt}")
        lane = self._lane(record)
        self._judge_delivery(effect, record, lane, step.call)
        record.stage, record.attempt, record.consumer = Stage.OPEN, effect.attempt, effect.consumer
        self.turns.count += 1
        self.turns.last_of[lane] = (self.turns.count, effect.consumer)
        self.turns.ready_since[lane] = self.turns.count, self._ready_for(lane)

    # --- judgements -------------------------------------------------------------------------------------------------

    def _judge_delivery(self, effect: Deliver, record: Record, lane: Lane, call: Call) -> None:
        member = self.members.get(effect.consumer)
        others = [other for other in self._in_lane(lane) if other is not record]
        held = [other for other in others if other.offset < record.offset and other.stage != Stage.OPEN]
        open_ones = [other for other in others if other.stage == Stage.OPEN]
        if held:
            self._blame(Promise.KEY_ORDER, f"{effect} overtakes {held[0]}")
        elsewhere = [other for other in self._open_in_unit(lane) if other.consumer != effect.consumer]
        if elsewhere:
            self._blame(
                Promise.ONE_HOLDER, f"{effect} while {elsewhere[0].receipt} of the same {self.rules.unit} is open"
            )
        if len(open_ones) >= self.rules.max_in_flight_per_key:
            self._blame(Promise.BOUNDS, f"{effect} is number {len(open_ones) + 1} of its key")
        if member is None or not member.active:
            self._blame(Promise.AFFINITY, f"{effect} to a consumer that is not connected and active")
            return
        of_consumer = [other for other in self._open() if other.consumer == effect.consumer and other is not record]
        if call.name == "pull" and call.args[0] != effect.consumer:
            self._blame(Promise.BOUNDS, f"{effect} went to another than {call} asks for")
        if call.name != "pull" and len(of_consumer) >= member.limit:
            self._blame(Promise.BOUNDS, f"{effect} is number {len(of_consumer) + 1} of {member.limit} of its consumer")
        if not (member.accepts(None) if isinstance(lane, int) else effect.consumer == self._owner(lane)):
            self._blame(Promise.AFFINITY, f"{effect}, but the key belongs to {self._owner(lane)}")
        if not isinstance(lane, int) and call.kwargs.get("only") is None:
            self._judge_fairness(effect, lane)

    def _judge_pull(self, step: Step) -> None:
        if step.call.name == "pull":
            self.asked_out_of_turn |= step.call.kwargs.get("only") is not None
            most = step.call.args[1] if step.call.kwargs.get("only") is None else 1
            handed_out = sum(isinstance(effect, Deliver | Load) for effect in step.effects)
            if handed_out > most:
                self._blame(Promise.BOUNDS, f"{step.call} handed out {handed_out}")

    def _judge_fairness(self, effect: Deliver, lane: Lane) -> None:
        last, consumer = self.turns.last_of.get(lane, (0, ""))
        if consumer != effect.consumer:
            return
        for other, (since, taker) in self.turns.ready_since.items():
            moved = taker != self._ready_for(other)  # then it is this consumer's only now
            if other == lane or since >= last or moved or not self._could_serve(effect.consumer, other):
                continue
            if self._is_ready(other):
                self._blame(Promise.FAIRNESS, f"{effect} is the key's second turn since {other!r} is ready")

    def _see_cursor(self, value: int) -> None:
        if self.cursor is not None and value <= self.cursor:
            self._blame(Promise.SAFE_CURSOR, f"cursor {value} after {self.cursor}")
        if value not in self.offered:
            self._blame(Promise.SAFE_CURSOR, f"cursor {value} was never offered")
        passed = [record for record in self.outstanding.values() if record.offset <= value]
        if passed:
            self._blame(Promise.SAFE_CURSOR, f"cursor {value} passed outstanding {passed[0]}")
        self.cursor = value

    def _judge_cursor(self) -> None:
        lowest = min(self.outstanding, default=None)
        settled = [offset for offset in self.offered if lowest is None or offset < lowest]
        if settled and self.cursor != settled[-1]:
            self._blame(Promise.SAFE_CURSOR, f"cursor is {self.cursor}, but all up to {settled[-1]} is settled")

    def _judge_bounds(self) -> None:
        lowest = self.outstanding.get(min(self.outstanding, default=-1))
        spare = self.asked_out_of_turn and lowest is not None and lowest.stage != Stage.SPILLED
        if self._loaded() > self.rules.window + spare:
            self._blame(Promise.BOUNDS, f"{self._loaded()} messages are loaded; the window is {self.rules.window}")
        if len(self.outstanding) > self.rules.max_tracked:
            self._blame(Promise.BOUNDS, f"{len(self.outstanding)} tracked, at most {self.rules.max_tracked} may be")
        for lane in self._lanes():
            loaded = [record for record in self._in_lane(lane) if record.stage != Stage.SPILLED]
            if len(loaded) > self.rules.max_loaded_per_key and not isinstance(lane, int):
                self._blame(Promise.BOUNDS, f"{len(loaded)} messages of {lane!r} are loaded")

    def _judge_obligations(self, step: Step, after: Queries) -> None:
        """What an answer asks for is still to be done when it is given."""
        for effect in step.effects:
            if isinstance(effect, DeadLetter | Load | Deliver) and effect not in after.obligations:
                self._blame(Promise.FENCE, f"{effect} has ended within the call that asks for it")

    def _judge_books(self, after: Queries) -> None:
        """Compare what is outstanding by the effects with what the dispatcher says."""
        open_now = {effect.offset: effect for effect in after.obligations if isinstance(effect, Deliver)}
        for record in self.outstanding.values():
            delivery = open_now.get(record.offset)
            if delivery is None and after.reasons[record.offset] is None:
                self._blame(Promise.NO_LOSS, f"{record} has had no answer, and the dispatcher has forgotten it")
            elif (delivery is not None) != (record.stage == Stage.OPEN):
                self._blame(Promise.FENCE, f"{record} by the effects, but {delivery} by the dispatcher's word")
        for offset, reason in after.reasons.items():
            if offset not in self.outstanding and (reason is not None or offset in open_now):
                self._blame(Promise.NO_LOSS, f"offset {offset} has had its answer, but waits again: {reason}")
        slots = max(0, min(self.rules.window - self._loaded(), self.rules.max_tracked - len(self.outstanding)))
        if after.free_slots != slots:
            self._blame(Promise.BOUNDS, f"{after.free_slots} slots are said to be free, but {slots} are")

    def _judge_moves(self, step: Step, after: Queries) -> None:
        for key, owner in after.owners.items():
            before = self.owners.get(key, owner)
            joined = step.call.name == "add_consumer" and owner != step.call.args[0] not in self.awaited
            left = step.call.name == "remove_consumer" and before != step.call.args[0]
            if owner != before and (joined or left):
                self._blame(Promise.MINIMAL_MOVE, f"{step.call} moved {key!r} from {before} to {owner}")
        self.owners = after.owners

    def _judge_progress(self, step: Step, after: Queries) -> None:
        if step.call.name == "handle_timeout" and after.next_deadline is not None and after.next_deadline <= step.now:
            self._blame(Promise.PROGRESS, f"deadline {after.next_deadline} is past at {step.now}")
        if step.call.name == "offer":
            self._judge_isolation(step)
        waits_for_retry = {
            offset
            for offset, reason in after.reasons.items()
            if reason == BlockReason.RETRY_WAIT and after.next_deadline
        }
        waits_for_others = {offset for offset, reason in after.reasons.items() if reason == BlockReason.QUARANTINED}
        ready: dict[Lane, tuple[int, str | None]] = {}
        for lane in self._lanes():
            candidate = self._candidate(lane)
            draining = candidate and candidate.offset in waits_for_others and bool(self._open_in(lane))
            if candidate is None or candidate.offset in waits_for_retry or draining or not self._is_ready(lane):
                continue
            needs_slot = candidate.stage == Stage.SPILLED
            if self._takers(lane) and not (needs_slot and self._loaded() >= self.rules.window):
                self._blame(Promise.PROGRESS, f"{candidate} waits, but {self._takers(lane)} have room for it")
            if not needs_slot:
                since, taker = self.turns.ready_since.get(lane, (self.turns.count, None))
                now_for = self._ready_for(lane)
                ready[lane] = since if taker == now_for else self.turns.count, now_for
        self.turns.ready_since = ready

    def _judge_isolation(self, step: Step) -> None:
        """What waits may load half the window; the rest is for what can go out."""
        record = None if self.newest is None else self.outstanding.get(self.newest)
        others = self._loaded() - 1 - len(self._open())
        if record and record.stage == Stage.WAITING and not step.effects and 2 * others >= self.rules.window:
            self._blame(Promise.ISOLATION, f"{record} is the {others + 1}th to wait in a window of {self.rules.window}")

    # --- facts ------------------------------------------------------------------------------------------------------

    def _blame(self, promise: Promise, proof: str) -> None:
        self.found.append(Violation(promise, proof))

    def _lane(self, record: Record) -> Lane:
        if self.rules.ordering_required:
            return WHOLE_SUBSCRIPTION
        return record.offset if record.key is None else record.key

    def _lanes(self) -> Iterator[Lane]:
        return iter(dict.fromkeys(map(self._lane, self.outstanding.values())))

    def _in_lane(self, lane: Lane) -> list[Record]:
        return [record for record in self.outstanding.values() if self._lane(record) == lane]

    def _open(self) -> list[Record]:
        return [record for record in self.outstanding.values() if record.stage == Stage.OPEN]

    def _open_in(self, lane: Lane) -> list[Record]:
        return [record for record in self._in_lane(lane) if record.stage == Stage.OPEN]

    def _open_in_unit(self, lane: Lane) -> list[Record]:
        unit = self._unit(lane)
        return [record for record in self._open() if self._unit(self._lane(record)) == unit]

    def _unit(self, lane: Lane) -> Unit:
        """What must not be at two consumers at once: the lane, its slot, or the slots around it with one owner."""
        if self.rules.unit == DrainUnit.KEY or not isinstance(lane, bytes):
            return lane
        ranges = self.placement.ranges
        slot = ranges.slot_of(lane)
        if self.rules.unit == DrainUnit.HASH:
            return slot, slot + 1
        return next((start, stop) for start, stop, _ in ranges.runs if start <= slot < stop)

    def _loaded(self) -> int:
        return sum(record.stage != Stage.SPILLED for record in self.outstanding.values())

    def _candidate(self, lane: Lane) -> Record | None:
        return next((record for record in self._in_lane(lane) if record.stage != Stage.OPEN), None)

    def _owner(self, lane: Lane) -> str | None:
        key = lane if isinstance(lane, bytes) else b""
        ranges = self.placement.ranges
        slot = ranges.slot_of(key)
        if ranges.owner(slot) is None:
            return None
        for name in ranges.walk(slot):
            member = self.members.get(name)
            if member is None or member.accepts(key):
                return member.name if member else None
        return None

    def _is_ready(self, lane: Lane) -> bool:
        """Whether only room at somebody keeps the lane's next message from going out."""
        candidate, open_ones = self._candidate(lane), self._open_in(lane)
        if candidate is None or candidate.stage not in {Stage.WAITING, Stage.SPILLED}:
            return False
        if isinstance(lane, int):
            return any(member.accepts(None) for member in self.members.values())
        owner = self._owner(lane)
        holders = {record.consumer for record in self._open_in_unit(lane)}
        return owner is not None and holders <= {owner} and len(open_ones) < self.rules.max_in_flight_per_key

    def _ready_for(self, lane: Lane) -> str | None:
        """Whose turn it would be to take the lane; a message without a key is ready for everybody."""
        return None if isinstance(lane, int) else self._owner(lane)

    def _could_serve(self, name: str, lane: Lane) -> bool:
        return self.members[name].accepts(None) if isinstance(lane, int) else self._owner(lane) == name

    def _takers(self, lane: Lane) -> list[str]:
        """Who may get the lane's next message and has room whatever is reserved for loads."""
        loading = sum(record.stage == Stage.LOADING for record in self.outstanding.values())
        return [
            member.name
            for member in self.members.values()
            if self._could_serve(member.name, lane)
            and member.active
            and self._used(member.name) + loading < member.limit
        ]

    def _used(self, name: str) -> int:
        return sum(record.consumer == name for record in self._open())


def check_history(rules: Rules, placement: Placement, history: Iterable[Step]) -> list[Violation]:
    """Judge a recorded history.

    Args:
        rules: What the user chose.
        placement: As it was given to the dispatcher.
        history: The calls that did not raise, in order.

    Returns:
        All violations, in order.
    """
    judge = Judge(rules, placement)
    return [violation for step in history for violation in judge.see(step)]


def _may_end_late(record: Record | None) -> bool:
    """Whether the message may be settled by a late ack: it is open, or waits for its next delivery."""
    return record is not None and record.stage in {Stage.OPEN, Stage.WAITING}


def _as_bytes(key: str | bytes | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key


def _all_ignored(step: Step, receipt: tuple[int, str, int]) -> bool:
    """Whether the receipt had no effect, however often the call names it."""
    named = step.call.args[0].count(receipt) if step.call.name == "ack_many" else 1
    ignored = [effect for effect in step.effects if isinstance(effect, Ignored) and effect[:3] == receipt]
    return len(ignored) == named


def _ignored(step: Step, offset: int) -> bool:
    return any(isinstance(effect, Ignored) and effect.offset == offset for effect in step.effects)
