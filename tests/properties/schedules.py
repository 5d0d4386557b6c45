"""Inputs for a dispatcher: small configurations, and every call with current, stale and forged arguments.

Whoever drives it brings `choose`, so Hypothesis draws and shrinks the very schedules that a seeded generator walks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Protocol, TypeAlias, TypeVar

from tests.placements import RankedPlacement
from tests.properties.calls import Call, Queries, Step

from keyshared.config import (
    Backoff,
    DispatcherConfig,
    DrainUnit,
    GroupLimits,
    KeySessions,
    LookAhead,
    OnEvict,
    Poison,
    RetryPolicy,
    Rules,
    Unmatched,
)
from keyshared.effects import DeadLetter, Deliver, Effect, Evicted, KeyEnding, Load
from keyshared.testing import Claims, Promise
from keyshared.testing.claims import JUDGED

__all__ = [
    "CALLS",
    "FILTERS",
    "Choose",
    "World",
    "any_config",
    "any_mix",
    "claims_of",
    "mixed",
    "observe",
    "place_of",
    "random_world",
]

_Option = TypeVar("_Option")


class Choose(Protocol):
    """Picks one of several."""

    def __call__(self, options: Sequence[_Option], /) -> _Option: ...


Receipt: TypeAlias = tuple[int, str, int]
MakePlacement: TypeAlias = Callable[[Sequence[str]], Any]
"""Builds a placement, real or not, with these names in it."""

KEYS: tuple[bytes | str | None, ...] = (
    "a",
    b"a",
    b"b",
    "c",
    None,
    "h",
    "j",
    "d",
)  # a and j share a slot, c and h another
RANKED_SLOT_OF = RankedPlacement().ranges.slot_of
OWNED_KEYS = (b"a", b"b", b"c", b"h", b"j", b"d", b"")
NAMES = ("x", "y", "z", "w", "v", "u", "t")
FILTERS: tuple[tuple[str, ...], ...] = ((), (), ("a",), ("b", "c*"), ("*",), ("?",))


GROUPS = {b"a": "A", b"b": "A", b"c": "B", b"h": None, b"j": "B", b"d": "C"}
WEIGHTS = {"A": 2, "B": 1, "": 1, "C": 3, "other": 1}


def named_group(key: bytes) -> str | None:
    return GROUPS.get(key, "other")


LIMITS = {b"a": 2, b"b": 3, b"c": 1, b"h": 1, b"j": 5}


def named_limit(key: bytes) -> int:
    return LIMITS.get(key, 1)


def is_latest(key: bytes) -> bool:
    return key in {b"a", b"c", b"d"}


LATE_WITH_GROUPS = 6
LATE_WITH_KEY_RULES, CROWD_WITH_KEY_RULES = 700, 2
RULES = Rules(mark="groups of the tests", group_of=named_group)
LIMIT_RULES = Rules(mark="limits of the tests", limit_of=named_limit)
LATEST_RULES = Rules(mark="latest keys of the tests", latest_only=is_latest)
KEY_RULES = Rules(mark="both of the tests", limit_of=named_limit, latest_only=is_latest)


LOOK_AHEADS = (
    LookAhead(per_consumer=2, per_subscription=5),
    LookAhead(per_consumer=8, per_subscription=0),
    LookAhead(per_consumer=0, per_subscription=4),
    LookAhead(per_consumer=0, per_subscription=6),
)


def any_config(choose: Choose) -> DispatcherConfig:
    """A configuration so small that every limit is reached within a few calls."""
    ordering = choose([False, False, False, False, False, True])
    policies: list[Mapping[str, Any]] = [{"poison": Poison.BLOCK}, {"poison": Poison.BLOCK, "archive_blocked": True}]
    if not ordering:
        policies += [{"poison": Poison.DROP}, {"poison": Poison.DEAD_LETTER}]
        policies.append({"poison": Poison.DEAD_LETTER, "quarantine": True})
    window = choose([1, 2, 3, 4, 8, 16, 16, 16])
    per_key, batch = choose([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3)])
    spill = choose([True, True, True, True, False])
    waits: Sequence[int | None] = [None] if spill else [None, 1, 2, 4]
    max_ack_holes = choose([*[None] * 6, 1, 2])
    return DispatcherConfig(
        window=window,
        max_tracked=window + choose([0, 2, 6]),
        max_in_flight_per_consumer=(per_consumer := choose([1, 2, 3, 8])),
        max_in_flight_per_key=per_key,
        batch_per_key=batch,
        max_loaded_per_key=max(per_key, batch) + choose([0, 1, 3, 20]),
        ack_timeout_ms=choose([10, 30, None, None]),
        retry=RetryPolicy(
            max_redeliveries=choose([0, 1, 2, None]),
            base_delay_ms=choose([0, 5, 5]),
            max_delay_ms=choose([60_000, 60_000, 60_000, 6, 0]),
            backoff=(backoff := choose(list(Backoff))),
        ),
        **choose(policies),
        on_evict=OnEvict.REDELIVER if ordering else choose(list(OnEvict)),
        unmatched=choose([Unmatched.HOLD, Unmatched.ERROR] + ([] if ordering else [Unmatched.SKIP])),
        inactive_grace_ms=(grace_ms := choose([3, 4, 12, None])),
        drain_timeout_ms=choose([None, 4, 4, 9]),
        ordering_required=ordering,
        start=(start := choose([None, 0])),
        unit=DrainUnit.KEY if ordering else choose([*DrainUnit, DrainUnit.RANGE]),
        redrive=max_ack_holes is None and choose([True, True, False]),
        tell_settled=choose([True, True, False]),
        # Drawn with something that has nothing to do with it: a draw of its own would change all schedules.
        max_in_flight={2: 1, 3: 2, 8: 4}.get(per_consumer) if grace_ms == 12 and max_ack_holes is None else None,
        measure=start == 0,
        latest_only=max_ack_holes is None and batch == 1 and not ordering and backoff is Backoff.FIXED,
        spill=spill,
        max_waiting_per_key=choose(waits),
        look_ahead=choose([*[None] * 8, *LOOK_AHEADS]),
        max_ack_holes=max_ack_holes,
        sessions=choose([None, None, KeySessions(linger_ms=choose([0, 0, 5]), flush_ms=choose([0, 4, 9, None]))]),
    )


def claims_of(
    config: DispatcherConfig, slot_of: Callable[[bytes], int] = RANKED_SLOT_OF, rules: Rules | None = None
) -> Claims:
    """What a dispatcher with this configuration claims, over a placement with these slots."""
    redeliveries, batches = config.retry.max_redeliveries, config.batch_per_key > 1
    limit, group = (None, None) if rules is None else (rules.limit_of, rules.group_of)
    latest_only = config.latest_only if rules is None else rules.latest_only or config.latest_only
    unclaimed = {
        *(() if group is None else (Promise.FAIRNESS,)),
        *(() if batches else (Promise.WHOLE_BATCH,)),
        *(() if latest_only else (Promise.LATEST_ONLY,)),
        *(() if config.sessions else (Promise.ONE_SESSION,)),
    }
    return Claims(
        promises=JUDGED - unclaimed,
        per_key=config.batch_per_key if batches else config.max_in_flight_per_key if limit is None else None,
        batches=batches,
        limit_of=None if limit is None else partial(_most_open, limit, config),
        latest_only=latest_only,
        per_consumer=config.max_in_flight_per_consumer,
        max_tracked=config.max_tracked,
        unit_of=slot_of if config.unit is DrainUnit.HASH else None,
        total_order=config.ordering_required,
        open_at_once=config.max_in_flight,
        fairness=0 if group is None else None,  # groups take turns: the judge of the contract counts them
        max_attempts=None if redeliveries is None else redeliveries + 1,
        cursor_keeps_up=True,
        tells_done=config.tell_settled,
        sessions=config.sessions is not None,
        linger_ms=None if config.sessions is None else config.sessions.linger_ms,
        may_drop=config.poison is Poison.DROP or config.on_evict is OnEvict.DROP,
        may_skip=True,  # whatever the policy for unmatched ones: schedules say of some that they are gone
        may_dead_letter=config.poison is Poison.DEAD_LETTER,
    )


def _most_open(limit_of: Callable[[bytes], int], config: DispatcherConfig, key: bytes) -> int:
    return min(limit_of(key), config.max_loaded_per_key) if config.spill else limit_of(key)


def observe(dispatcher: Any, offered: Sequence[int]) -> Queries:
    """Ask a dispatcher everything that the judge wants to know."""
    answers = {offset: dispatcher.why_blocked(offset) for offset in offered}
    return Queries(
        free_slots=dispatcher.free_slots,
        next_deadline=dispatcher.next_deadline_ms(),
        blockings=answers,
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
        self.filters = choose([FILTERS, FILTERS[2:], FILTERS[:1]])
        self.limits: Sequence[int | None] = choose([(None,), (None,), (None, None, 0, 0, 1, 2)])
        self.crowd = choose([2, 2, 4])  # about as many are connected: of few, each leave moves much
        self.late_ms = choose([0, LATE_WITH_GROUPS, 700])  # how late the host is at most when it comes to the clock
        self.joining = choose([0, 2, 3])  # how many consumers join before anything else happens
        self.rules: Rules | None = None
        makes_holes = config.max_ack_holes is not None and choose([True, True, False])
        self.calls = mixed(_HOLES, choose) if makes_holes else any_mix(choose)
        self.keys = tuple(choose(KEYS) for _ in range(choose([12, 24] if makes_holes else [1, 2, 3, 12])))
        choose([0, 0, 1, 8])  # nothing: without this draw all schedules would be others
        self.strides = (1, 1, 1, 4)
        self.now = 0
        self.offered: list[int] = []
        self.key_of: dict[int, Any] = {}  # as each was offered last
        self.delivered: list[Deliver] = []
        self.obligations: Sequence[Effect] = ()
        self.outstanding: set[int] = set()
        self.free_slots = config.window
        self.next_deadline: int | None = None
        self.connected: dict[str, None] = {}

    def take_rules(self) -> None:
        """Let keys be in groups in some schedules, and have limits of their own, or be superseded, in others."""
        # Nothing is drawn to see in which: a draw of its own would change all schedules.
        if self.config.ordering_required:
            return
        if self.late_ms == LATE_WITH_KEY_RULES and self.crowd == CROWD_WITH_KEY_RULES:
            self._take_key_rules()
        elif self.late_ms == LATE_WITH_GROUPS and self.config.max_ack_holes is None:
            self._take_groups()

    def _take_key_rules(self) -> None:
        """Many messages of few keys, so that limits and superseding show."""
        choose, config = self.choose, self.config
        self.rules = LIMIT_RULES
        if config.max_ack_holes is None and not config.latest_only:
            self.rules = choose([LIMIT_RULES, LATEST_RULES, KEY_RULES])
        roomy = replace(config, max_in_flight_per_consumer=8, window=16, max_tracked=22)
        self.config = choose([config, roomy])
        self.free_slots = self.config.window
        self.keys = choose([self.keys, (b"a", b"b"), (b"a", b"c", b"h", b"j", None)])

    def _take_groups(self) -> None:
        """Many keys, few slots, and limits that change."""
        choose = self.choose
        self.rules = RULES
        limits_too = replace(RULES, mark="all of the tests", limit_of=named_limit)
        if choose([False, False, True]):
            self.rules = limits_too if self.config.latest_only else replace(limits_too, latest_only=is_latest)
        self.calls += (World.change_group,)
        limits: Mapping[str, int] = choose([{}, {}, {}, {"max_in_flight": 1}, {"per_second": 100, "burst": 2}])
        self.config = replace(self.config, group=GroupLimits(**limits))
        if choose([True, True, False]):
            self.keys = tuple(GROUPS)
            self.calls = mixed(_GROUPS, choose)
            self.crowd = self.joining = choose([1, 1, 2])
            self.limits = choose([(1,), (1,), (1, 2), (None,)])
            self.filters = ((),)
            self.config = replace(
                self.config,
                window=16,
                max_tracked=22,
                max_loaded_per_key=20,
                unmatched=Unmatched.HOLD,
                max_in_flight=choose([None, None, 2]),
            )
            self.free_slots = 16

    @property
    def settings(self) -> dict[str, Any]:
        """What a dispatcher of this world is made with, besides its placement and configuration."""
        return {} if self.rules is None else {"rules": self.rules}

    def learn(self, step: Step) -> None:
        """Take in what a call has done."""
        name, args, _ = step.call
        new = [args[0]] if name == "offer" else [message[0] for message in args[0]] if name == "offer_many" else []
        self.offered += [offset for offset in new if not self.offered or offset > self.offered[-1]]
        self.key_of |= {message[0]: message[1] for message in ([args] if name == "offer" else args[0] if new else [])}
        self.delivered += [effect for effect in step.effects if isinstance(effect, Deliver)]
        if name == "add_consumer":
            self.connected[args[0]] = None
        gone = [args[0]] if name == "remove_consumer" else []
        for left in [*gone, *(effect.consumer for effect in step.effects if isinstance(effect, Evicted))]:
            self.connected.pop(left, None)
        self.obligations = sorted(step.after.obligations, key=place_of)
        known = {offset for offset, reason in step.after.reasons.items() if reason is not None}
        self.outstanding = known | {effect.offset for effect in self._open()}
        self.free_slots = step.after.free_slots
        self.next_deadline = step.after.next_deadline
        self.now = step.now

    def next_call(self) -> Call:
        """What happens next."""
        if len(self.connected) < self.joining and not self.offered:
            return self.add_consumer()
        return self.choose(self.calls)(self)

    # --- messages ---------------------------------------------------------------------------------------------------

    def offer(self) -> Call:
        if self.free_slots == 0 and self.choose([True, True, True, False]):
            return self.choose([World.ack, World.oblige, World.gone])(self)
        offset = self._next_offset()
        return self._timed("offer", offset, self._key(), _item(offset), **self._not_before())

    def _not_before(self) -> dict[str, int]:
        return self.choose([{}, {}, {}, {}, {"not_before_ms": self.now + 3}, {"not_before_ms": self.now + 40}])

    def offer_many(self) -> Call:
        messages = []
        offset = self._next_offset()
        # a batch that raises in the middle is a matter of its own
        most = 0 if self.config.unmatched == Unmatched.ERROR else min(self.free_slots, 4)
        for _ in range(self.choose(range(most + 1))):
            messages.append((offset, self.choose(self.keys), _item(offset), *self._not_before().values()))
            offset += self.choose(self.strides)
        return self._timed("offer_many", messages)

    def ack(self) -> Call:
        return self._timed("ack", *self._receipt())

    def ack_many(self) -> Call:
        return self._timed("ack_many", [self._receipt() for _ in range(self.choose([0, 1, 2, 3]))])

    def ack_through(self) -> Call:
        return self._timed("ack_through", *self._receipt())

    def nack(self) -> Call:
        return self._timed("nack", *self._receipt(), delay_ms=self.choose([None, 0, 7]), **self._reason())

    def reject(self) -> Call:
        return self._timed("reject", *self._receipt(), **self._reason())

    def release(self) -> Call:
        return self._timed("release", *self._receipt(), delay_ms=self.choose([0, 0, 5, 90]))

    def _reason(self) -> dict[str, str]:
        return self.choose([{}, {"reason": "refused"}, {"reason": "no\nroute \u2192 b"}])

    def extend(self) -> Call:
        return self._timed("extend", *self._receipt(), extend_ms=self.choose([None, 1, 25]))

    def oblige(self) -> Call:
        """Do what the dispatcher has asked for."""
        asked = [effect for effect in self.obligations if isinstance(effect, Load | DeadLetter | KeyEnding)]
        if not asked:
            return self.ack()
        effect = self.choose(asked)
        if isinstance(effect, KeyEnding):
            return self._timed("flushed", effect.key, effect.session)
        if isinstance(effect, DeadLetter):
            return self._timed("dead_lettered", effect.offset)
        return self._timed("loaded", effect.offset, _item(effect.offset))

    def confirm_anything(self) -> Call:
        offset = self._some_offset()
        if self.config.sessions is not None and self.choose([True, False]):
            return self._timed("flushed", self.choose(self.keys), self.choose([1, 2, 3, 5, 8]))
        name = self.choose(["dead_lettered", "loaded", "park", "unblock_offset"])
        if name == "unblock_offset":
            return self._timed(name, offset, reset_failures=self.choose([False, True]))
        return self._timed(name, offset, _item(offset)) if name == "loaded" else self._timed(name, offset)

    def gone(self) -> Call:
        return self._timed("gone", self._some_offset())

    def truncate(self) -> Call:
        return self._timed("truncate", self._some_offset())

    def redrive(self) -> Call:
        """Some messages of a key come back, most of them done, and perhaps one of them twice."""
        if not self.offered or not self.config.redrive:
            return self.choose([World.reject, World.oblige])(self)
        done = [offset for offset in self.offered if offset not in self.outstanding]
        chosen = self.choose([done or self.offered, done or self.offered, self.offered])
        first = self.choose(chosen[-8:])
        key = self.key_of[first]
        of_key = [offset for offset in chosen[-12:] if self.key_of[offset] == key]
        offsets = [first, *(self.choose(of_key) for _ in range(self.choose([0, 0, 1, 1, 3])))]
        return self._timed("redrive", key, [(offset, self._last_attempt(offset), _item(offset)) for offset in offsets])

    def _last_attempt(self, offset: int) -> int:
        return max((effect.attempt for effect in self.delivered if effect.offset == offset), default=0)

    def unblock(self) -> Call:
        return self._timed("unblock", self.choose(self.keys))

    # --- consumers --------------------------------------------------------------------------------------------------

    def add_consumer(self) -> Call:
        if len(self.connected) >= self.crowd and self.choose([True, True, True, False]):
            return self.leave()
        filters = self._filters()
        weight, limit = self.choose([1, 1, 2]), self.choose(self.limits)
        return self._timed("add_consumer", self._name(connected=False), filters=filters, weight=weight, limit=limit)

    def remove_consumer(self) -> Call:
        return self._timed("remove_consumer", self._name(), drain_ms=self.choose([0, 6, None]))

    def leave(self) -> Call:
        """Somebody leaves who has something to finish."""
        holders = [effect.consumer for effect in self._open()] or NAMES
        return self._timed("remove_consumer", self.choose(holders), drain_ms=None)

    def set_inactive(self) -> Call:
        return self._timed("set_inactive", self._name())

    def set_active(self) -> Call:
        return self._timed("set_active", self._name(), resumed=self.choose([False, True]))

    def set_limit(self) -> Call:
        return self._timed("set_limit", self._name(), self.choose([0, 1, 2, 3, 8]))

    def pull(self) -> Call:
        only = self.choose([None, None, self._some_offset()])
        per_key = self.choose([None, None, 1, self.config.batch_per_key])
        return self._timed("pull", self._name(), self.choose([1, 2, 3]), only=only, per_key=per_key)

    def set_filters(self) -> Call:
        return self._timed("set_filters", self._name(), self._filters())

    def set_weight(self) -> Call:
        return self._timed("set_weight", self._name(), self.choose([1, 2, 3]))

    def change_group(self) -> Call:
        group = self.choose(list(WEIGHTS)[:4])
        name = self.choose(["set_group", "set_group", "pause_group", "resume_group", "resume_group"])
        if name != "set_group":
            return self._timed(name, group)
        most, rate, burst = self.choose([None, 1, 2]), self.choose([None, None, 100, 300]), self.choose([1, 3])
        limits = {"weight": WEIGHTS[group], "max_in_flight": most, "per_second": rate, "burst": burst}
        return self._timed(name, group, **limits)

    def set_placement(self) -> Call:
        names = self.choose([(), (), (), (), ("z", "y"), ("stranger", "x")])
        return self._timed("set_placement", self.make_placement(names))

    # --- time and misuse --------------------------------------------------------------------------------------------

    def handle_timeout(self) -> Call:
        due = self.now if self.next_deadline is None else max(self.now, self.next_deadline)
        return Call(
            "handle_timeout",
            kwargs={"now_ms": self.choose([due, due + self.late_ms, due + self.late_ms, self.now + 1])},
        )

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
                Call("offer", (offset, b"a"), {"not_before_ms": "soon", **late}),
                Call("nack", ("x", 1, 1), {"reason": "x" * 501, **late}),
                Call("release", (offset, "x", 1), {"delay_ms": -1, **late}),
                Call("handle_timeout", kwargs={"now_ms": "soon"}),
                Call("add_consumer", ("new",), {"limit": -1, **late}),
                Call("remove_consumer", ("x",), {"drain_ms": -1, **late}),
                Call("set_limit", ("nobody", 1), late),
                Call("pull", ("nobody", 1), late),
                Call("pull", ("x", 0), late),
                Call("pull", ("x", 1), {"per_key": self.config.batch_per_key + 1, **late}),
                Call("pull", ("x", 1), {"only": "x", **late}),
                Call("set_filters", ("nobody", ()), late),
                Call("set_weight", ("nobody", 1), late),
                Call("set_active", ("nobody",), late),
                Call("unblock", (5,), late),
                Call("redrive", (5, []), late),
                Call("redrive", ("a", [(offset + 3, 1, None)]), late),
                Call("redrive", ("a", [(0, -1, None)]), late),
            ]
        )

    def offer_again(self) -> Call:
        """An old offset: an error, except when the host starts reading again after a restore."""
        offset = self.choose(self.offered) if self.offered else self._next_offset()
        return self._timed("offer", offset, self.choose(self.keys), _item(offset))

    # --- choices ----------------------------------------------------------------------------------------------------

    def _timed(self, name: str, *args: object, **kwargs: object) -> Call:
        now_ms = self.choose([None, None, self.now, self.now + 1, self.now + 4])
        return Call(name, args, kwargs if now_ms is None else {**kwargs, "now_ms": now_ms})

    def _filters(self) -> tuple[str, ...]:
        # what is handed over whole has one owner; now and then it is tried all the same
        whole = self.config.ordering_required or self.config.unit != DrainUnit.KEY
        return self.choose([(), (), (), (), (), ("a",)] if whole else self.filters)

    def _name(self, *, connected: bool = True) -> str:
        """Mostly one that is connected, or one that is not."""
        fitting = [name for name in NAMES if (name in self.connected) == connected]
        takes_it = self.choose([True, True, True, False])
        return self.choose(fitting if fitting and takes_it else NAMES)

    def _open(self) -> list[Deliver]:
        return [effect for effect in self.obligations if isinstance(effect, Deliver)]

    def _key(self) -> bytes | str | None:
        """Often one that somebody works on: what comes behind that is where the rules are."""
        held: Sequence[bytes | str | None] = [effect.key for effect in self._open()]
        takes_it = self.choose([True, False])
        return self.choose(held if held and takes_it else self.keys)

    def _next_offset(self) -> int:
        return (self.offered[-1] if self.offered else -1) + self.choose(self.strides)

    def _some_offset(self) -> int:
        """Mostly of one of the last messages."""
        return self.choose(self.choose([self.offered[-3:], self.offered[-8:], [*self.offered, -3]]) or [-3])

    def _receipt(self) -> Receipt:
        """Mostly of an open delivery, sometimes of an old one, sometimes forged."""
        open_now = [effect.receipt for effect in self._open()]
        known = [effect.receipt for effect in self.delivered]
        again = [receipt for receipt in known if receipt[0] in self.outstanding and receipt not in open_now]
        stays: bool = bool(again) and self.choose([True, True, False])
        if stays:
            known = again  # of what came back, or goes out again: nothing else can be settled by it
        kind = self.choose(["open", "open", "open", "known", "forged"])
        if kind == "forged" and known and self.choose([True, False]):
            offset, _, attempt = self.choose(known)  # of a real delivery, but by anybody
            return offset, self.choose(NAMES), attempt
        if kind == "open" and open_now:
            return self.choose(open_now)
        if kind != "forged" and known:
            return self.choose(known)
        return self._some_offset(), self.choose(NAMES), self.choose([0, 1, 2, 3])


Kind: TypeAlias = Callable[[World], Call]

CALLS: tuple[Kind, ...] = (
    *(
        World.offer,
        World.offer,
        World.offer,
        World.offer_many,
        World.ack,
        World.ack,
        World.ack_many,
        World.ack_through,
        World.nack,
    ),
    *(World.reject, World.release, World.extend, World.oblige, World.oblige, World.confirm_anything, World.truncate),
    *(
        World.gone,
        World.redrive,
        World.redrive,
        World.unblock,
        World.add_consumer,
        World.add_consumer,
        World.remove_consumer,
        World.set_inactive,
    ),
    *(World.set_active, World.set_limit, World.pull, World.pull, World.set_filters, World.set_weight),
    *(World.set_placement, World.handle_timeout, World.handle_timeout, World.misuse, World.offer_again),
)
"""A little of everything, in the same proportions always."""

_HAND_OVERS: Mapping[Kind, int] = {
    World.offer: 10,
    World.ack: 3,
    World.ack_through: 1,
    World.add_consumer: 8,
    World.leave: 4,
    World.remove_consumer: 1,
    World.set_placement: 2,
    World.set_weight: 2,
    World.set_filters: 3,
    World.set_inactive: 3,
    World.set_active: 2,
    World.set_limit: 1,
    World.handle_timeout: 4,
    World.gone: 3,
    World.truncate: 2,
    World.release: 1,
    World.reject: 1,
    World.unblock: 1,
    World.oblige: 3,
}
LONG_DRAINS: Mapping[Kind, int] = {
    World.offer: 8,
    World.leave: 5,
    World.add_consumer: 6,
    World.gone: 3,
    World.truncate: 2,
    World.set_weight: 3,
    World.set_placement: 2,
    World.set_inactive: 6,
    World.handle_timeout: 6,
    World.ack: 1,
    World.oblige: 4,
}
"""Few answers and many changes: what drains goes on draining while keys move again."""

_SPILLS: Mapping[Kind, int] = {
    World.redrive: 1,
    World.offer: 8,
    World.offer_many: 3,
    World.ack: 4,
    World.ack_many: 1,
    World.ack_through: 1,
    World.oblige: 5,
    World.set_limit: 4,
    World.pull: 4,
    World.add_consumer: 2,
    World.leave: 1,
    World.set_placement: 1,
    World.confirm_anything: 2,
    World.gone: 1,
    World.truncate: 1,
    World.release: 1,
    World.handle_timeout: 1,
}
_FAILURES: Mapping[Kind, int] = {
    World.offer: 6,
    World.redrive: 3,
    World.ack: 2,
    World.ack_through: 1,
    World.nack: 4,
    World.reject: 4,
    World.release: 1,
    World.extend: 1,
    World.oblige: 5,
    World.confirm_anything: 4,
    World.gone: 1,
    World.truncate: 1,
    World.unblock: 3,
    World.add_consumer: 3,
    World.leave: 2,
    World.set_inactive: 2,
    World.set_active: 2,
    World.set_placement: 1,
    World.handle_timeout: 4,
}
_GROUPS: Mapping[Kind, int] = {
    World.offer: 2,
    World.offer_many: 8,
    World.ack: 8,
    World.change_group: 3,
    World.handle_timeout: 3,
    World.nack: 3,
    World.oblige: 2,
    World.release: 1,
}
"""Several keys of several groups wait at few consumers."""

_HOLES: Mapping[Kind, int] = {
    World.offer: 12,
    World.offer_many: 4,
    World.ack: 9,
    World.ack_many: 1,
    World.oblige: 5,
    World.release: 1,
    World.nack: 1,
    World.gone: 1,
    World.add_consumer: 3,
    World.leave: 1,
    World.pull: 2,
    World.set_limit: 1,
    World.handle_timeout: 3,
}
"""Much is done, and of some keys nothing."""

_EVERYTHING: Mapping[Kind, int] = {kind: CALLS.count(kind) for kind in CALLS}
_NEVER_LEFT_OUT = (World.offer, World.add_consumer, World.ack)


def any_mix(choose: Choose) -> tuple[Kind, ...]:
    """The calls of one schedule, each as often as its weight: some kinds not at all, some far more than the others.

    Faults hide where two rare things meet often. No fixed proportions bring every two of them together.
    """
    return mixed(choose([LONG_DRAINS, _HAND_OVERS, _SPILLS, _FAILURES, _FAILURES, _EVERYTHING]), choose)


def mixed(theme: Mapping[Kind, int], choose: Choose) -> tuple[Kind, ...]:
    """The calls of a theme with weights of this schedule's own."""
    mix: list[Kind] = []
    for kind, weight in theme.items():
        mix += [kind] * (weight * choose([1, 1, 3] if kind in _NEVER_LEFT_OUT else [0, 1, 1, 3]))
    return tuple(mix)


def random_world(seed: int, make_placement: MakePlacement = RankedPlacement, *, with_rules: bool = False) -> World:
    """A world whose choices follow from a number; only whoever takes its `settings` may have rules."""
    choose: Choose = Random(seed).choice  # reproducible, not secret
    world = World(any_config(choose), choose, make_placement)
    if with_rules:
        world.take_rules()
    return world


def place_of(effect: Effect) -> tuple[bool, int]:
    """Obligations by offset, then those to flush by session."""
    if isinstance(effect, KeyEnding):
        return True, effect.session
    assert isinstance(effect, DeadLetter | Load | Deliver)
    return False, effect.offset


def _item(offset: int) -> str:
    return f"item {offset}"
