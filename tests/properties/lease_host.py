"""A host of a lease queue: it makes one call at a time, looks at every answer, and can bring its queue to an end."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.leasing import assigned, letters
from tests.properties.forks import copies_of

from keyshared._core.snapshot import _MessageRow, _NoteRow
from keyshared.config import Rules
from keyshared.dispatcher import ConsumerState
from keyshared.effects import CursorAdvanced, DeadLetter, Deliver, Done, Effect, Ending, Load, Resumed
from keyshared.leases import Lease, LeaseAnswer, LeaseConfig, LeaseQueue, Reservation
from keyshared.placement.assigned import AssignedRanges

__all__ = ["RANKS", "Call", "Host", "bring_to_an_end"]

RANKS = {Done: 1, DeadLetter: 2, Load: 3, Deliver: 4, CursorAdvanced: 5, Resumed: 6}


@dataclass(frozen=True)
class Call:
    """One call of the queue; ``name`` may be ``crash`` too."""

    name: str
    args: tuple[Any, ...] = ()
    passed_ms: int = 0
    options: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        return f"{self.name}{self.args}{dict(self.options) or ''}" + (
            f" after {self.passed_ms} ms" if self.passed_ms else ""
        )


class Host:
    """A queue and what its host knows; everything else is asked of the queue."""

    queue_class: ClassVar[Any] = LeaseQueue

    def __init__(self, config: LeaseConfig, ranges: AssignedRanges, rules: Rules | None = None) -> None:
        self.config, self.ranges, self.rules = config, ranges, rules
        self.queue: Any = self.queue_class(None if config.dispatcher.ordering_required else ranges, config, rules=rules)
        self.offered = 0
        self.epoch = 0
        self.now = 0
        self.told: tuple[Call, ...] = ()
        self.done: set[int] = set()

    def forks(self) -> "Callable[[], Host]":
        """What makes an independent host in the same state, each time; what never changes is shared."""
        shared = (
            self.config,
            self.ranges,
            self.told,
            self.queue.config,
            self.queue._machine.routing.ranges,
            self.rules,
        )
        return copies_of(self, shared)

    # what it sees

    @property
    def consumers(self) -> list[str]:
        stats = self.queue.stats()
        return [name for name, each in stats.consumers.items() if each.state is ConsumerState.ACTIVE]

    @property
    def leases(self) -> Sequence[Lease]:
        return tuple(self.queue.leases())

    @property
    def obligations(self) -> Sequence[Effect]:
        owed = self.queue.outstanding_effects()
        return tuple(effect for effect in owed if isinstance(effect, DeadLetter | Load))

    def messages(self) -> list[tuple[int, str]]:
        """What is outstanding, and its state."""
        return sorted((message[0], message[3]) for message in self.queue.snapshot()["messages"])

    def settled_with_a_key(self) -> list[tuple[int, Any]]:
        """Offsets that a dead-letter store could have, each with its key."""
        waiting = {offset for offset, _ in self.messages()}
        offered = [call.args for call in self.told if call.name == "offer"]
        return [(offset, key) for offset, key in offered if offset not in waiting]

    def blocked(self) -> list[int]:
        return [offset for offset, state in self.messages() if state == "blocked"]

    def identity(self) -> str:
        """What the future depends on: all but numbers that only rise."""
        state = self.queue.snapshot()
        attempt, note = _MessageRow._fields.index("attempt"), _MessageRow._fields.index("note")
        for message in state["messages"]:
            message[attempt] = 0
            if message[note] is not None:  # this host answers for no delivery that has ended
                forgotten = _NoteRow(*message[note])._replace(ended=[])
                if self.config.max_delivery_attempts is None:
                    forgotten = forgotten._replace(failures=0)
                message[note] = list(forgotten) if any(forgotten) else None
        features = state["features"]
        leases = features["leases"]
        features.pop("health", None)  # figures change nothing
        del leases["ids"], leases["leased"], state["epoch"], state["checksum"]
        leases["grants"] = [grant[1:] for grant in leases["grants"]]
        return json.dumps([state, self.offered, list(self.ranges.ranges.runs)], sort_keys=True)

    # what it does

    def make(self, call: Call) -> LeaseAnswer[Any, Any]:
        """Make a call, and look at its answer."""
        self.told = (*self.told, call)
        self.now += call.passed_ms
        if call.name == "crash":
            return self.crash()
        only = self.only_one_allowed() if call.name in {"reserve", "consume"} else None
        outcome: LeaseAnswer[Any, Any] = getattr(self.queue, call.name)(
            *call.args, **dict(call.options), now_ms=self.now
        )
        if call.name == "offer":
            self.offered += 1
        elif call.name == "redrive":
            self.done -= {letter[0] for letter in call.args[1]} - {ignored.offset for ignored in outcome.result}
        elif call.name == "set_placement":
            self.ranges = call.args[0]
        elif call.name == "remove_consumer" and call.args[0] in self.ranges.consumers:
            self.ranges = self.ranges.copy()
            self.ranges.remove(call.args[0])
        self.look_at(outcome.effects)
        if only is not None and isinstance(outcome.result, Lease | Reservation):
            assert (only,) == outcome.result.offsets, f"{self.told}: {outcome} in spite of too many holes"
        return outcome

    def only_one_allowed(self) -> int | None:
        """With too many holes, the message that closes them."""
        self.look_at(self.queue.handle_timeout(now_ms=self.now).effects)
        most = self.config.dispatcher.max_ack_holes
        return self.queue.resume_offset if most is not None and len(self.queue.acked_ranges()) > most else None

    def look_at(self, effects: Sequence[Effect]) -> None:
        """What an answer promises, whichever call it is of."""
        self.queue.check_invariants()
        ranks = [RANKS.get(type(effect), 0) for effect in effects]
        assert ranks == sorted(ranks), f"{self.told}: {effects} are out of order"
        states = [type(effect) for effect in effects if isinstance(effect, CursorAdvanced | Resumed)]
        assert len(states) == len(set(states)), f"{self.told}: {effects} repeat a state"
        ended = [effect for effect in effects if RANKS.get(type(effect), 0) and not self.queue.is_current(effect)]
        assert not ended, f"{self.told}: {ended} are over already"
        if self.config.dispatcher.tell_settled:
            self.count_the_done([effect for effect in effects if isinstance(effect, Done)])

    def count_the_done(self, told: Sequence[Done]) -> None:
        """Everything that was offered is outstanding, or was told once that it is done."""
        now = [done.offset for done in told if done.how is not Ending.EARLIER]
        assert len(now) == len(set(now) - self.done), f"{self.told}: {told} are told again"
        self.done.update(now)
        waiting = {offset for offset, _ in self.messages()}
        assert self.done | waiting == set(range(self.offered)), f"{self.told}: not all that is settled is told"
        assert not self.done & waiting, f"{self.told}: {self.done & waiting} are not done"

    def crash(self) -> LeaseAnswer[None, object]:
        """Go on from what JSON keeps, in the next epoch."""
        self.epoch += 1
        state = json.loads(json.dumps(self.queue.snapshot()))
        ranges = None if self.config.dispatcher.ordering_required else self.ranges
        before = self.obligations, self.queue.stats()
        self.queue = type(self.queue).restore(
            state, ranges, self.config, now_ms=self.now, epoch=self.epoch, rules=self.rules
        )
        assert before == (self.obligations, self.queue.stats()), f"{self.told} forgets"
        self.queue.check_invariants()
        if self.config.dispatcher.tell_settled:
            self.read_again()
        return LeaseAnswer(None, [])

    def read_again(self) -> None:
        """Offer the log once more, for a source that may have missed what is done."""
        for call in [call for call in self.told if call.name == "offer"]:
            effects = self.queue.offer(*call.args, now_ms=self.now).effects
            earlier = [] if call.args[0] not in self.done else [Ending.EARLIER]
            assert earlier == [effect.how for effect in effects], f"{self.told}: {effects}"


def fulfil(effect: Effect) -> Call:
    """What a host does about an obligation."""
    return Call("loaded" if isinstance(effect, Load) else "dead_lettered", (effect[0],))


def next_round(host: Host) -> Iterator[Call]:
    """What a fair host does next: it meets obligations, acks, gives back what is reserved, asks, and waits."""
    yield from map(fulfil, host.obligations)
    for lease in host.leases:
        yield from (Call("ack", handle) for handle in lease.handles)
    yield from (Call("abort", (reservation.id,)) for reservation in host.queue.reservations())
    yield from (Call("consume", (name, 9)) for name in host.consumers)
    yield from (Call("park", (offset,)) for offset in host.blocked())
    yield from (Call("resume_group", (group.name,)) for group in host.queue.groups() if group.paused)
    due = host.queue.next_deadline_ms()
    if due is not None:
        yield Call("handle_timeout", (), max(due - host.now, 0))


def bring_to_an_end(host: Host, known: set[str] | None = None) -> None:
    """Let a fair host empty the queue; states of which it is ``known`` that they can be emptied are an end, too."""
    start = len(host.told)
    known = set() if known is None else known
    seen: list[str] = []
    somebody_owns_everything(host)
    while host.queue.stats().outstanding:
        before = host.identity()
        if before in known:
            break
        assert before not in seen, f"{host.told[:start]} leaves {host.messages()} for ever: {host.told[start:][-12:]}"
        seen.append(before)
        for call in list(next_round(host)):
            if call.name == "handle_timeout" and host.identity() != before:
                break  # there was something else to do
            host.make(call)
    known.update(seen)


def somebody_owns_everything(host: Host) -> None:
    """Both consumers ask, or else the one that stays has everything."""
    owners = {owner for *_, owner in host.ranges.ranges.runs if owner is not None}
    if {"x", "y"} == set(host.consumers) == owners:
        return
    if "x" not in host.consumers:
        host.make(Call("remove_consumer", ("x",)))  # it may be draining
        host.make(Call("add_consumer", ("x",)))
    if not host.config.dispatcher.ordering_required:
        host.make(Call("set_placement", (assigned(letters(), "a-z", "x"),)))
