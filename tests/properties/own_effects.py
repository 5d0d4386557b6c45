"""What keyshared's own effects and answers have to be, beyond what any history of any broker tells.

The promises themselves are judged by the kit. Here is what only the host of this dispatcher can see: which effects a
call may return, what `pull` may hand out, runs of slots, and the figures that a host goes by.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tests.properties.calls import Step
from tests.properties.own_groups import OwnGroups
from tests.properties.own_owners import OwnOwners

from keyshared.config import DispatcherConfig, DrainUnit, OnEvict, Poison, Unmatched
from keyshared.dispatcher import ConsumerState, Outstanding
from keyshared.effects import (
    Blocked,
    BlockReason,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    DropReason,
    Effect,
    Ending,
    Ignored,
    IgnoredReason,
    KeyEnding,
    Load,
    Released,
    ReleaseReason,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.testing import Promise, Violation

__all__ = ["OwnEffects"]

REMEMBERED_DELIVERIES = 8
NO_FAILURES = {
    ReleaseReason.BATCH_BROKEN: Promise.WHOLE_BATCH,
    ReleaseReason.DRAIN_TIMEOUT: Promise.ATTEMPTS,
    ReleaseReason.RELEASED: Promise.ATTEMPTS,
    ReleaseReason.REMOVED: Promise.ATTEMPTS,
}
"""Ends that count no failure, and the promise that says so."""


class OwnEffects:
    """Follows one dispatcher, from call to call."""

    def __init__(self, config: DispatcherConfig, rules: Any = None) -> None:
        self.config = config
        self.rules = rules
        self.groups = OwnGroups(config.group, rules)
        self.owners = OwnOwners(config)
        self.keys: dict[int, bytes | None] = {}
        self.gone: set[int] = set()
        self.known: set[int] = set()  # what was outstanding before the call
        self.redriven: set[int] = set()  # what of that has come back
        self.before: set[Deliver] = set()  # what was open before the call
        self.busy: set[str] = set()  # who had something open, or to flush, before the call
        self.ended: dict[int, Sequence[tuple[int, str]]] = {}  # of what is outstanding: its ended deliveries
        self.last: dict[int, Deliver] = {}
        self.restart: Any = None  # what a restart would redo, after the call before, and its mark
        self.said: dict[int, str] = {}  # by the last failure that named a reason
        self.offered_at: dict[int, int | None] = {}  # None: by the clock of an earlier life

    def is_latest_only(self, key: bytes) -> bool:
        by_rule: bool = self.rules is not None and self.rules.latest_only is not None and self.rules.latest_only(key)
        return self.config.latest_only or by_rule

    def see(self, step: Step, dispatcher: Any) -> list[Violation]:
        """What the latest call breaks."""
        open_now = {effect for effect in step.after.obligations if isinstance(effect, Deliver)}
        of_open = {effect.offset for effect in open_now}
        known = {offset for offset, reason in step.after.reasons.items() if reason is not None} | of_open
        self._note(step, known)
        found = [
            Violation(promise, f"{step.call}: {text}", (), "")
            for promise, text in (
                *self._obligations(step),
                *self._answers(step),
                *self._endings(step),
                *self._marks(dispatcher, known),
                *self._late_acks(step),
                *self._reasons(step),
                *self._health(step, dispatcher),
                *self._pulled(step),
                *self._failures(step),
                *self._batches(step, open_now),
                *self._figures(step),
                *self._rooms(step, dispatcher),
                *self._drains(step, dispatcher, open_now),
                *self._units(step, dispatcher, open_now),
                *self.groups.see(step, open_now),
                *self.owners.see(step, dispatcher, self.busy),
            )
        ]
        self._remember(step, open_now, known)
        return found

    def restarted(self) -> None:
        """The clock may have started anew."""
        self.offered_at = dict.fromkeys(self.keys)
        self.groups.begin_anew()

    def _note(self, step: Step, known: set[int]) -> None:
        """What the host has said: which key a message has, and what can no longer be read."""
        name, args, _ = step.call
        offered = [args] if name == "offer" else args[0] if name == "offer_many" else ()
        for offset, key, *_ in offered:
            self.keys.setdefault(offset, key.encode() if isinstance(key, str) else key)
        if name == "redrive":
            key = args[0].encode() if isinstance(args[0], str) else args[0]
            self.redriven |= {offset for offset, _, _ in args[1]} - self.known
            self.keys |= dict.fromkeys(self.redriven - self.keys.keys(), key)
        if name == "gone":
            self.gone.add(args[0])
        elif name == "truncate":
            skipped = {effect.offset for effect in step.effects if isinstance(effect, Skipped)}
            self.gone |= {offset for offset in known | skipped | self.last.keys() if offset < args[0]}

    def _remember(self, step: Step, open_now: set[Deliver], outstanding: set[int]) -> None:
        for effect in step.effects:
            if isinstance(effect, Deliver):
                self._end(effect.offset)
                self.last[effect.offset] = effect
        for offset in [offset for offset, delivery in self.last.items() if delivery not in open_now]:
            self._end(offset)
        self.ended = {offset: ended for offset, ended in self.ended.items() if offset in outstanding}
        self.said = {offset: reason for offset, reason in self.said.items() if offset in outstanding}
        self.gone &= outstanding
        self.redriven &= outstanding
        self.known = outstanding
        self.before = open_now
        self.busy = {each.consumer for each in step.after.obligations if isinstance(each, Deliver | KeyEnding)}

    def _end(self, offset: int) -> None:
        delivery = self.last.pop(offset, None)
        if delivery is not None:
            self.ended[offset] = [*self.ended.get(offset, ()), (delivery.attempt, delivery.consumer)]

    # --- what a call returns ----------------------------------------------------------------------------------------

    def _obligations(self, step: Step) -> Iterator[tuple[Promise, str]]:
        """What an answer asks for is still to be done when it is given; the item of a spilled letter is told once."""
        spilled = {effect.offset for effect in step.effects if isinstance(effect, Spilled)}
        for effect in step.effects:
            asked = effect
            if isinstance(effect, DeadLetter) and effect.offset in spilled:
                asked = effect._replace(item=None)
            if isinstance(effect, DeadLetter | Load | Deliver) and asked not in step.after.obligations:
                yield Promise.FENCE, f"{effect} has ended within the call that asks for it"

    def _answers(self, step: Step) -> Iterator[tuple[Promise, str]]:
        """Nothing is given up unless somebody asked for it, or a policy says so."""
        config = self.config
        for effect in step.effects:
            match effect:
                case Dropped(_, _, reason):
                    poison = reason is DropReason.POISON
                    is_right = config.poison is Poison.DROP if poison else config.on_evict is OnEvict.DROP
                case Settled(_, _, SettleReason.PARKED):
                    is_right = step.call.name == "park"
                case Skipped(offset, _, SkipReason.GONE):
                    is_right = offset in self.gone
                case Skipped(offset, key, SkipReason.SUPERSEDED):
                    newer = [other for other, its_key in self.keys.items() if other > offset and its_key == key]
                    is_right = key is not None and self.is_latest_only(key) and bool(newer)
                case Skipped():
                    is_right = config.unmatched is Unmatched.SKIP and step.call.name in {"offer", "offer_many"}
                case _:
                    is_right = True
            if not is_right:
                yield Promise.NO_LOSS, f"{effect}, which nobody asked for and no policy allows"

    def _endings(self, step: Step) -> Iterator[tuple[Promise, str]]:
        """What was settled is told with the way in which it was."""
        said = {effect.offset: effect for effect in step.effects if isinstance(effect, Settled | Skipped | Dropped)}
        for effect in step.effects:
            if isinstance(effect, Done) and effect.how not in self._how(step, said.get(effect.offset)):
                yield Promise.SETTLED_ONCE, f"{effect} ended in another way"

    def _how(self, step: Step, notice: Effect | None) -> set[Ending]:
        if isinstance(notice, Dropped):
            return {Ending.DROPPED}
        if isinstance(notice, Settled | Skipped):
            return {Ending(notice.reason)}
        match step.call.name:
            case "ack" | "ack_through":
                is_open = step.call.args in {each.receipt for each in self.before}
                return {Ending.ACKED if is_open else Ending.LATE_ACK}
            case "ack_many":
                return {Ending.ACKED, Ending.LATE_ACK}
            case "dead_lettered":
                return {Ending.DEAD_LETTERED}
            case _:
                return {Ending.EARLIER}

    def _marks(self, dispatcher: Any, known: set[int]) -> Iterator[tuple[Promise, str]]:
        """The mark changes with what a restart would redo."""
        redone = (dispatcher.resume_offset, known - self.redriven)
        mark = dispatcher.restart_mark
        if self.restart is not None and self.restart[0] != redone and self.restart[1] == mark:
            yield Promise.SETTLED_ONCE, f"{mark} stands for {self.restart[0]} and for {redone}"
        self.restart = redone, mark

    def _failures(self, step: Step) -> Iterator[tuple[Promise, str]]:
        """What was given back, or comes back with others, has not failed."""
        for effect in step.effects:
            if isinstance(effect, Released) and effect.reason in NO_FAILURES:
                delivery = self.last.get(effect.offset)
                if delivery is not None and delivery.failures != effect.failures:
                    yield NO_FAILURES[effect.reason], f"{effect} counts as a failure"

    def _batches(self, step: Step, open_now: set[Deliver]) -> Iterator[tuple[Promise, str]]:
        """What is acked up to a point is acked."""
        if step.call.name != "ack_through":
            return
        offset, consumer, attempt = step.call.args
        named = next((each for each in self.before if each.receipt == (offset, consumer, attempt)), None)
        if named is None or not (self.config.ordering_required or named.key is not None):
            return
        for each in self.before & open_now:
            if each.offset < offset and (self.config.ordering_required or each.key == named.key):
                yield Promise.WHOLE_BATCH, f"{each} stayed open"

    def _late_acks(self, step: Step) -> Iterator[tuple[Promise, str]]:
        """An ack of a delivery that was made and is remembered counts; of any other it does not."""
        if step.call.name != "ack":
            return
        offset, consumer, attempt = step.call.args
        was_made = (attempt, consumer) in self.ended.get(offset, ())[-REMEMBERED_DELIVERIES:]
        waits_for_the_host = step.after.reasons.get(offset) in {BlockReason.BLOCKED, BlockReason.DEAD_LETTERING}
        ignored = [effect for effect in step.effects if isinstance(effect, Ignored)]
        noted = any(effect.reason is IgnoredReason.LATE_ACK_NOTED for effect in ignored)
        if noted and not was_made:
            yield Promise.FENCE, "names no delivery that was made and is remembered, and was noted"
        if was_made and ignored and not noted and not waits_for_the_host:
            yield Promise.FENCE, "names a delivery that was made and is remembered, and was refused"

    def _reasons(self, step: Step) -> Iterator[tuple[Promise, str]]:
        """What is poison says why, as its last failure that named a reason did."""
        _, args, others = step.call
        reason = others.get("reason")
        if reason is not None and not any(isinstance(effect, Ignored) for effect in step.effects):
            self.said[args[0]] = reason
        for effect in step.effects:
            if isinstance(effect, Blocked | DeadLetter) and effect.reason != self.said.get(effect.offset):
                yield Promise.REASON_TRAVELS, f"{effect} says something else than the last failure"

    def _health(self, step: Step, dispatcher: Any) -> Iterator[tuple[Promise, str]]:
        """The ages are those of the oldest messages, to within a second."""
        for offset in self.keys:
            self.offered_at.setdefault(offset, step.now)
        if not self.config.measure:
            return
        health = dispatcher.health()
        reasons = step.after.reasons
        of_log = {offset: reason for offset, reason in reasons.items() if offset not in self.redriven}
        waiting = [offset for offset, reason in of_log.items() if reason is not None]
        open_now = {effect.offset for effect in step.after.obligations if isinstance(effect, Deliver)} - self.redriven
        for said, offsets in ((health.oldest_ms, [*waiting, *open_now]), (health.longest_blocked_ms, waiting)):
            since = self.offered_at[min(offsets)] if offsets else None
            if offsets and since is None:
                continue
            age = None if since is None else step.now - since
            right = said is None if age is None else said is not None and age <= said < age + 1_000
            if not right:
                yield Promise.HEALTH_ADDS_UP, f"{said} ms are said to be the age of what is {age} ms old"

    def _pulled(self, step: Step) -> Iterator[tuple[Promise, str]]:
        if step.call.name != "pull":
            return
        name, most = step.call.args
        handed_out = [effect for effect in step.effects if isinstance(effect, Deliver | Load)]
        if len(handed_out) > (1 if step.call.is_out_of_turn else most):
            yield Promise.BOUNDS, f"handed out {len(handed_out)}"
        if any(isinstance(effect, Deliver) and effect.consumer != name for effect in handed_out):
            yield Promise.BOUNDS, f"handed out {handed_out} to another"

    # --- what it says of itself -------------------------------------------------------------------------------------

    def _figures(self, step: Step) -> Iterator[tuple[Promise, str]]:
        deadline = step.after.next_deadline
        if step.call.name == "handle_timeout" and deadline is not None and deadline <= step.now:
            yield Promise.PROGRESS, f"deadline {deadline} is past at {step.now}"

    def _rooms(self, step: Step, dispatcher: Any) -> Iterator[tuple[Promise, str]]:
        if hasattr(dispatcher, "stats"):  # the model has no figures
            outstanding = list(dispatcher.outstanding())
            yield from self._loads_and_room(step, dispatcher, outstanding)
            yield from self._room_for_keys(step, dispatcher, outstanding)

    def _loads_and_room(
        self, step: Step, dispatcher: Any, outstanding: Sequence[Outstanding]
    ) -> Iterator[tuple[Promise, str]]:
        """What is loaded, and who has room for what: a history does not tell it of spilled and keyless messages."""
        config, consumers = self.config, dispatcher.stats().consumers
        loaded = [message for message in outstanding if message.loaded]
        tracked = config.max_tracked if config.spill else config.window
        slots = min(config.window - len(loaded), tracked - len(outstanding))
        if config.look_ahead is not None:
            states = [each.state for each in consumers.values()]
            connected = sum(state is not ConsumerState.DRAINING for state in states)
            slots = min(
                slots, config.look_ahead.limit(connected) - sum(message.blocking is not None for message in outstanding)
            )
        slots = max(0, slots)
        if step.after.free_slots != slots:
            yield Promise.BOUNDS, f"{step.after.free_slots} slots are said to be free, but {slots} are"
        lowest = min((message.offset for message in outstanding), default=None)
        of_its_own = sum(message.offset == lowest for message in loaded)  # it is loaded though the window is full
        if len(loaded) - of_its_own > config.window:
            yield Promise.BOUNDS, f"{len(loaded)} messages are loaded; the window is {config.window}"
        for key in {message.key for message in loaded} - {None}:
            of_key = sum(message.key == key and message.offset not in self.redriven for message in loaded)
            if config.spill and of_key > config.max_loaded_per_key:
                yield Promise.BOUNDS, f"{of_key} messages of {key!r} are loaded"
        loading = sum(reason is BlockReason.LOADING for reason in step.after.reasons.values())
        active = {name: each for name, each in consumers.items() if each.state is ConsumerState.ACTIVE}
        with_room = {name for name, each in active.items() if each.in_flight + loading < each.limit}
        for message in outstanding:
            consumer = None if message.blocking is None else message.blocking.consumer
            match None if message.blocking is None else message.blocking.reason:
                case BlockReason.CONSUMER_FULL:
                    can_go = consumer in with_room or (consumer is None and with_room >= active.keys())
                case BlockReason.WINDOW_FULL:
                    can_go = len(loaded) < config.window
                case _:
                    can_go = False
            if can_go:
                yield Promise.PROGRESS, f"{message} waits, and what it waits for is there"

    def _room_for_keys(
        self, step: Step, dispatcher: Any, outstanding: Sequence[Outstanding]
    ) -> Iterator[tuple[Promise, str]]:
        """Neither more nor less may be offered of a key than the limits of what waits say."""
        config = self.config
        one = config.ordering_required
        keys = [message.key for message in outstanding if message.blocking is not None]
        waiting = [b"" if one else key for key in keys if one or key is not None]
        for key in step.after.owners:
            left = [step.after.free_slots]
            if config.max_waiting_per_key is not None:
                left.append(config.max_waiting_per_key - waiting.count(b"" if one else key))
            room = dispatcher.room_for(key)
            if room != max(0, min(left)):
                yield Promise.BOUNDS, f"{room} of {key!r} may be offered, but {left} are left"

    def _drains(self, step: Step, dispatcher: Any, open_now: set[Deliver]) -> Iterator[tuple[Promise, str]]:
        """A key that drains waits for somebody who has something of its unit."""
        for offset, reason in step.after.reasons.items():
            if reason is BlockReason.DRAINING:
                key = self.keys[offset]
                unit, owner = self._unit(dispatcher, key), dispatcher.owner(key)
                others = [each for each in open_now if each.consumer != owner]
                if not any(self._unit(dispatcher, each.key) == unit for each in others):
                    yield Promise.PROGRESS, f"offset {offset} drains, but nobody else has anything of its unit"

    def _units(self, step: Step, dispatcher: Any, open_now: set[Deliver]) -> Iterator[tuple[Promise, str]]:
        """A run of slots changes with the placement, so no history can tell of it."""
        for effect in step.effects:
            if not isinstance(effect, Deliver) or effect.key is None:
                continue
            unit = self._unit(dispatcher, effect.key)
            for other in self.before & open_now:
                if other.consumer != effect.consumer and self._unit(dispatcher, other.key) == unit:
                    yield Promise.ONE_HOLDER, f"{effect} while {other} of its {self.config.unit} is open"

    def _unit(self, dispatcher: Any, key: bytes | None) -> object:
        """What must not be at two consumers at once: the key, its slot, or the slots around it with one owner."""
        if self.config.ordering_required:
            return b""
        if key is None or self.config.unit is DrainUnit.KEY:
            return key or object()
        ranges = dispatcher.placement.ranges
        slot = ranges.slot_of(key)
        if self.config.unit is DrainUnit.HASH:
            return slot
        return next((start, stop) for start, stop, _ in ranges.runs if start <= slot < stop)
