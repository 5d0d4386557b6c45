"""Inputs for a dispatcher: small configurations, and every call with current, stale and forged arguments.

Whoever drives it brings `choose`, so Hypothesis draws and shrinks the very schedules that a seeded generator walks.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol, TypeAlias, TypeVar

from tests.placements import RankedPlacement
from tests.properties.promises import Call, Queries, Rules, Step

from keyshared.config import DispatcherConfig, DrainUnit, OnEvict, Unmatched
from keyshared.effects import BlockReason, DeadLetter, Deliver, DropReason, Effect, Load
from keyshared.retry import Backoff, Poison, RetryPolicy

__all__ = ["CALLS", "Choose", "Dispatcher", "World", "any_config", "config_rules", "observe", "random_world"]

_Option = TypeVar("_Option")


class Choose(Protocol):
    """Picks one of several."""

    def __call__(self, options: Sequence[_Option], /) -> _Option: ...


Receipt: TypeAlias = tuple[int, str, int]
MakePlacement: TypeAlias = Callable[[Sequence[str]], Any]
"""Builds a placement, real or not, with these names in it."""

KEYS: tuple[bytes | str | None, ...] = ("a", b"a", b"b", "c", None, "h")  # c and h are in one slot
OWNED_KEYS = (b"a", b"b", b"c", b"h", b"")
NAMES = ("x", "y", "z")
FILTERS: tuple[tuple[str, ...], ...] = ((), (), ("a",), ("b", "c*"), ("*",), ("?",))


class Why(Protocol):
    """The answer to why a message is not at a consumer."""

    @property
    def reason(self) -> BlockReason: ...


class Dispatcher(Protocol):
    """The queries of the model and of the real dispatcher; the calls go by name."""

    @property
    def safe_cursor(self) -> int | None: ...
    @property
    def resume_offset(self) -> int | None: ...
    @property
    def free_slots(self) -> int: ...
    def next_deadline_ms(self) -> int | None: ...
    def why_blocked(self, offset: int, /) -> Why | None: ...
    def outstanding_effects(self) -> Sequence[Effect]: ...
    def is_current(self, effect: Effect, /) -> bool: ...
    def owner(self, key: bytes, /) -> str | None: ...
    def snapshot(self) -> Mapping[str, Any]: ...
    def check_invariants(self) -> None: ...


def any_config(choose: Choose) -> DispatcherConfig:
    """A configuration so small that every limit is reached within a few calls."""
    ordering = choose([False, False, False, True])
    poisons = [Poison.BLOCK, Poison.BLOCK_AND_DEAD_LETTER]
    if not ordering:
        poisons += [Poison.DROP, Poison.DEAD_LETTER, Poison.QUARANTINE]
    window = choose([1, 2, 3, 4, 8])
    per_key = choose([1, 1, 2, 3])
    return DispatcherConfig(
        window=window,
        max_tracked=window + choose([0, 2, 6]),
        max_in_flight_per_consumer=choose([1, 2, 3]),
        max_in_flight_per_key=per_key,
        max_loaded_per_key=per_key + choose([0, 1, 3]),
        ack_timeout_ms=choose([10, 10, None]),
        retry=RetryPolicy(
            max_redeliveries=choose([0, 1, 2, None]), base_delay_ms=choose([0, 5]), backoff=choose(list(Backoff))
        ),
        poison=choose(poisons),
        on_evict=OnEvict.REDELIVER if ordering else choose(list(OnEvict)),
        unmatched=choose([Unmatched.HOLD, Unmatched.ERROR] + ([] if ordering else [Unmatched.SKIP])),
        inactive_grace_ms=choose([3, 12, None]),
        drain_timeout_ms=choose([None, None, 4]),
        ordering_required=ordering,
        start=choose([None, 0]),
        unit=DrainUnit.KEY if ordering else choose([DrainUnit.KEY, *DrainUnit]),
    )


def config_rules(config: DispatcherConfig) -> Rules:
    """What a configuration promises, in the judge's words."""
    may_drop = {DropReason.POISON: config.poison == Poison.DROP, DropReason.EVICTED: config.on_evict == OnEvict.DROP}
    return Rules(
        window=config.window,
        max_tracked=config.max_tracked,
        max_in_flight_per_consumer=config.max_in_flight_per_consumer,
        max_in_flight_per_key=config.max_in_flight_per_key,
        max_loaded_per_key=config.max_loaded_per_key,
        ordering_required=config.ordering_required,
        unit=config.unit,
        may_drop=frozenset(reason for reason, allowed in may_drop.items() if allowed),
        may_skip_unmatched=config.unmatched == Unmatched.SKIP,
    )


def observe(dispatcher: Dispatcher, offered: Sequence[int]) -> Queries:
    """Ask a dispatcher everything that the judge wants to know."""
    answers = {offset: dispatcher.why_blocked(offset) for offset in offered}
    return Queries(
        free_slots=dispatcher.free_slots,
        next_deadline=dispatcher.next_deadline_ms(),
        reasons={offset: answer.reason if answer else None for offset, answer in answers.items()},
        obligations=frozenset(dispatcher.outstanding_effects()),
        owners={key: dispatcher.owner(key) for key in OWNED_KEYS},
    )


class World:
    """What the host knows, and the calls it could make next."""

    def __init__(
        self, config: DispatcherConfig, choose: Choose, make_placement: MakePlacement = RankedPlacement
    ) -> None:
        self.config = config
        self.choose = choose
        self.make_placement = make_placement
        self.filters = FILTERS
        self.calls = choose([CALLS, CALLS, HANDOVERS])
        self.now = 0
        self.offered: list[int] = []
        self.delivered: list[Deliver] = []
        self.obligations: Sequence[Effect] = ()
        self.free_slots = config.window
        self.next_deadline: int | None = None

    def learn(self, step: Step) -> None:
        """Take in what a call has done."""
        name, args, _ = step.call
        new = [args[0]] if name == "offer" else [message[0] for message in args[0]] if name == "offer_many" else []
        self.offered += [offset for offset in new if not self.offered or offset > self.offered[-1]]
        self.delivered += [effect for effect in step.effects if isinstance(effect, Deliver)]
        if step.after:
            self.obligations = sorted(step.after.obligations, key=lambda effect: effect[0])
            self.free_slots = step.after.free_slots
            self.next_deadline = step.after.next_deadline
        self.now = step.now

    # --- messages ---------------------------------------------------------------------------------------------------

    def offer(self) -> Call:
        offset = self._next_offset()
        return self._timed("offer", offset, self.choose(KEYS), _item(offset))

    def offer_many(self) -> Call:
        messages = []
        offset = self._next_offset()
        # a batch that raises in the middle is a matter of its own
        most = 0 if self.config.unmatched == Unmatched.ERROR else min(self.free_slots, 4)
        for _ in range(self.choose(range(most + 1))):
            messages.append((offset, self.choose(KEYS), _item(offset)))
            offset += self.choose([1, 1, 3])
        return self._timed("offer_many", messages)

    def ack(self) -> Call:
        return self._timed("ack", *self._receipt())

    def ack_many(self) -> Call:
        return self._timed("ack_many", [self._receipt() for _ in range(self.choose([0, 1, 2, 3]))])

    def nack(self) -> Call:
        return self._timed("nack", *self._receipt(), delay_ms=self.choose([None, 0, 7]))

    def reject(self) -> Call:
        return self._timed("reject", *self._receipt())

    def release(self) -> Call:
        return self._timed("release", *self._receipt())

    def extend(self) -> Call:
        return self._timed("extend", *self._receipt(), extend_ms=self.choose([None, 1, 25]))

    def oblige(self) -> Call:
        """Do what the dispatcher has asked for."""
        asked = [effect for effect in self.obligations if isinstance(effect, Load | DeadLetter)]
        if not asked:
            return self.handle_timeout()
        effect = self.choose(asked)
        if isinstance(effect, DeadLetter):
            return self._timed("dead_lettered", effect.offset)
        return self._timed("loaded", effect.offset, _item(effect.offset))

    def confirm_anything(self) -> Call:
        offset = self._some_offset()
        name = self.choose(["dead_lettered", "loaded", "park", "gone", "unblock_offset"])
        if name == "unblock_offset":
            return self._timed(name, offset, reset_failures=self.choose([False, True]))
        return self._timed(name, offset, _item(offset)) if name == "loaded" else self._timed(name, offset)

    def truncate(self) -> Call:
        return self._timed("truncate", self._some_offset())

    def unblock(self) -> Call:
        return self._timed("unblock", self.choose(KEYS))

    # --- consumers --------------------------------------------------------------------------------------------------

    def add_consumer(self) -> Call:
        filters = self._filters()
        weight, limit = self.choose([1, 1, 2]), self.choose([None, None, 0, 0, 1, 2])
        return self._timed("add_consumer", self.choose(NAMES), filters=filters, weight=weight, limit=limit)

    def remove_consumer(self) -> Call:
        return self._timed("remove_consumer", self.choose(NAMES), drain_ms=self.choose([0, 6, None]))

    def leave(self) -> Call:
        return self._timed("remove_consumer", self.choose(NAMES), drain_ms=None)

    def set_inactive(self) -> Call:
        return self._timed("set_inactive", self.choose(NAMES))

    def set_active(self) -> Call:
        return self._timed("set_active", self.choose(NAMES), resumed=self.choose([False, True]))

    def set_limit(self) -> Call:
        return self._timed("set_limit", self.choose(NAMES), self.choose([0, 1, 2, 3]))

    def pull(self) -> Call:
        only = self.choose([None, None, self._some_offset()])
        return self._timed("pull", self.choose(NAMES), self.choose([1, 2, 3]), only=only)

    def set_filters(self) -> Call:
        return self._timed("set_filters", self.choose(NAMES), self._filters())

    def set_weight(self) -> Call:
        return self._timed("set_weight", self.choose(NAMES), self.choose([1, 2, 3]))

    def set_placement(self) -> Call:
        names = self.choose([(), ("x",), ("z", "y"), ("stranger", "x")])
        return self._timed("set_placement", self.make_placement(names))

    # --- time and misuse --------------------------------------------------------------------------------------------

    def handle_timeout(self) -> Call:
        due = self.now if self.next_deadline is None else max(self.now, self.next_deadline)
        return Call("handle_timeout", kwargs={"now_ms": self.choose([due, due, self.now, self.now + 1, self.now + 20])})

    def misuse(self) -> Call:
        """A call that must raise, whatever the state, and change nothing."""
        offset, late = self._next_offset(), {"now_ms": self.now + 1}
        return self.choose(
            [
                Call("offer", (offset, 5), late),
                Call("offer", (offset, bytearray(b"a")), late),
                Call("offer", (str(offset), b"a"), late),
                Call("offer", (offset, b"a"), {"now_ms": self.now - 1}),
                Call("ack", (offset, "x", 1), {"now_ms": self.now - 1}),
                Call("handle_timeout", kwargs={"now_ms": "soon"}),
                Call("add_consumer", ("new",), {"limit": -1, **late}),
                Call("remove_consumer", ("x",), {"drain_ms": -1, **late}),
                Call("set_limit", ("nobody", 1), late),
                Call("pull", ("nobody", 1), late),
                Call("pull", ("x", 0), late),
                Call("pull", ("x", 1), {"only": "x", **late}),
                Call("set_filters", ("nobody", ()), late),
                Call("set_weight", ("nobody", 1), late),
                Call("set_active", ("nobody",), late),
                Call("unblock", (5,), late),
            ]
        )

    def offer_again(self) -> Call:
        """An old offset: an error, except when the host starts reading again after a restore."""
        offset = self.choose(self.offered) if self.offered else self._next_offset()
        return self._timed("offer", offset, self.choose(KEYS), _item(offset))

    # --- choices ----------------------------------------------------------------------------------------------------

    def _timed(self, name: str, *args: object, **kwargs: object) -> Call:
        now_ms = self.choose([None, None, self.now, self.now + 1, self.now + 4])
        return Call(name, args, kwargs if now_ms is None else {**kwargs, "now_ms": now_ms})

    def _filters(self) -> tuple[str, ...]:
        # what is handed over whole has one owner; now and then it is tried all the same
        whole = self.config.ordering_required or self.config.unit != DrainUnit.KEY
        return self.choose([(), (), (), (), (), ("a",)] if whole else self.filters)

    def _next_offset(self) -> int:
        return (self.offered[-1] if self.offered else -1) + self.choose([1, 1, 1, 4])

    def _some_offset(self) -> int:
        return self.choose([*self.offered, -3])

    def _receipt(self) -> Receipt:
        """Mostly of an open delivery, sometimes of an old one, sometimes forged."""
        open_now = [effect.receipt for effect in self.obligations if isinstance(effect, Deliver)]
        known = [effect.receipt for effect in self.delivered]
        kind = self.choose(["open", "open", "open", "known", "forged"])
        if kind == "forged" and known and self.choose([True, False]):
            offset, _, attempt = self.choose(known)  # of a real delivery, but by anybody
            return offset, self.choose(NAMES), attempt
        if kind == "open" and open_now:
            return self.choose(open_now)
        if kind != "forged" and known:
            return self.choose(known)
        return self._some_offset(), self.choose(NAMES), self.choose([0, 1, 2, 3])


CALLS: tuple[Callable[[World], Call], ...] = (
    *(World.offer, World.offer, World.offer, World.offer_many, World.ack, World.ack, World.ack_many, World.nack),
    *(World.reject, World.release, World.extend, World.oblige, World.oblige, World.confirm_anything, World.truncate),
    *(World.unblock, World.add_consumer, World.add_consumer, World.remove_consumer, World.set_inactive),
    *(
        World.set_active,
        World.set_limit,
        World.pull,
        World.pull,
        World.set_filters,
        World.set_weight,
        World.set_placement,
    ),
    *(World.handle_timeout, World.handle_timeout, World.misuse, World.offer_again),
)


HANDOVERS: tuple[Callable[[World], Call], ...] = (
    *(World.offer, World.offer, World.offer, World.offer_many, World.ack, World.ack, World.release, World.oblige),
    *(World.add_consumer, World.add_consumer, World.remove_consumer, World.leave, World.leave, World.set_weight),
    *(World.set_placement, World.set_active, World.handle_timeout, World.unblock),
)
"""What happens while consumers come and go and finish what they have; everything else is left out."""


def random_world(seed: int, make_placement: MakePlacement = RankedPlacement) -> World:
    """A world whose choices follow from a number."""
    choose: Choose = Random(seed).choice  # noqa: S311  # reproducible, not secret
    return World(any_config(choose), choose, make_placement)


def _item(offset: int) -> str:
    return f"item {offset}"
