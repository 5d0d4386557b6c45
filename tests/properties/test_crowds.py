"""Crowds of keys with a message or two each, who wait for consumers that come, go and have hardly any room.

Nearly all of them wait alone. A dispatcher that has a lane for each, and one that is made anew of a snapshot now and
then, have to do what the first one does.
"""

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.calls import Call
from tests.properties.driving import outcome
from tests.properties.test_waiting_alone import KEYS, NAMES, LosesItsPlace, Twins

from keyshared._window.lanes import Entry
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import DeadLetter, Deliver, Effect, Load
from keyshared.errors import KeySharedError
from keyshared.ring import HashRing
from keyshared.window import InFlightWindow

SEEDS = range(8)
KINDS = [
    *["offer"] * 12,
    *["offer_some"] * 3,
    *["ack"] * 3,
    *["oblige"] * 3,
    *["fail"] * 2,
    *["end"] * 2,
    *["limit"] * 2,
    *["pull", "join", "leave", "own", "away", "redrive", "time"],
]


class Crowd(Twins):
    """Three dispatchers, the third of which is restored after every third call or so."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.remade: Any = KeySharedDispatcher(HashRing(), self.config)
        self.delivered: dict[int, Deliver] = {}
        self.seen: Counter[str] = Counter()
        for name in NAMES[: random.choice([1, 2, 3])]:
            self.call("add_consumer", name, limit=random.choice([0, 1, 2]))
        for _ in range(3):
            self._offer_some()

    def remake(self) -> None:
        """Restore the third dispatcher from a snapshot of the first."""
        # Its clock and not the host's: a call that raises does not move it.
        items = {each.offset: "item" for each in self.lean.outstanding()}
        snapshot, now = self.lean.snapshot(), self.lean._now
        self.seen["is restored"] += len(self.alone())
        self.remade = KeySharedDispatcher.restore(snapshot, HashRing(), self.config, now_ms=now, items=items)

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Effect] | type[KeySharedError]:
        """Make a call of all three."""
        alone = self.alone()
        owned = {entry.offset: self.lean.owner(entry.key) for entry in alone}
        came_of_it = super().call(name, *args, **kwargs)
        assert outcome(self.remade, Call(name, args, kwargs | {"now_ms": self.now})) == came_of_it
        assert self.remade.snapshot() == self.lean.snapshot()
        assert self.remade.stats() == self.lean.stats()
        if not isinstance(came_of_it, type):
            self.delivered |= {effect.offset: effect for effect in came_of_it if isinstance(effect, Deliver)}
        self.seen["waits alone"] += len(set(self.alone()) - set(alone))
        self.seen["gets a lane"] += sum(entry.lane.head is entry for entry in alone)
        self.seen["moves"] += sum(self.lean.owner(entry.key) != owned[entry.offset] for entry in alone)
        return came_of_it

    def alone(self) -> list[Entry]:
        """What waits alone."""
        waiting = self.lean._window._all_waiting()
        return [entry for entry in waiting if isinstance(entry, Entry) and entry.lane.head is None]

    def step(self) -> None:
        """Make one of the calls that a host makes."""
        self.now += self.random.choice([0, 0, 1, 9])
        if self.random.random() < 0.3:
            self.remake()
        getattr(self, "_" + self.random.choice(KINDS))()

    def _offer(self) -> None:
        self.offset += 1
        later = self.random.choice([{}, {}, {}, {}, {"not_before_ms": self.now + 3}])
        self.call("offer", self.offset, self._key(), "item", **later)

    def _offer_some(self) -> None:
        batch = [(self.offset + place, self._key(), "item") for place in range(1, min(4, self.lean.free_slots) + 1)]
        self.offset += len(batch)
        self.call("offer_many", batch)

    def _key(self) -> bytes:
        """Mostly any of many, sometimes one of which something waits alone."""
        alone = [entry.key for entry in self.alone() if entry.key is not None]
        return self.random.choice(alone if alone and self.random.random() < 0.25 else KEYS)

    def _ack(self) -> None:
        opened = [effect.receipt for effect in self.lean.in_flight()]
        self.call("ack_many", self.random.sample(opened, (len(opened) + 1) // 2))

    def _fail(self) -> None:
        opened = [effect.receipt for effect in self.lean.in_flight()]
        if opened:
            self.call(self.random.choice(["nack", "reject", "release"]), *self.random.choice(opened))
        self.call("unblock", self._key())

    def _oblige(self) -> None:
        for effect in self.lean.outstanding_effects():
            if isinstance(effect, Load):
                self.call("loaded", effect.offset, "item")
            elif isinstance(effect, DeadLetter):
                self.call("dead_lettered", effect.offset)
            else:
                continue
            return

    def _end(self) -> None:
        self.call(self.random.choice(["gone", "gone", "gone", "truncate"]), self._waiting())

    def _waiting(self) -> int:
        """The offset of something that waits alone, if there is any."""
        alone = [entry.offset for entry in self.alone()]
        return self.random.choice(alone or [self.offset])

    def _limit(self) -> None:
        self.call("set_limit", self._name(), self.random.choice([0, 0, 1, 2]))

    def _pull(self) -> None:
        self.call("pull", self._name(), 2, only=self.random.choice([None, self._waiting()]))

    def _join(self) -> None:
        self.call("add_consumer", self.random.choice(NAMES), limit=self.random.choice([0, 1, 2]))

    def _leave(self) -> None:
        self.call("remove_consumer", self._name(), drain_ms=self.random.choice([0, 6, None]))

    def _own(self) -> None:
        name, args = self.random.choice([("set_weight", 3), ("set_filters", ["1*"]), ("set_filters", [])])
        self.call(name, self._name(), args)

    def _away(self) -> None:
        self.call(self.random.choice(["set_inactive", "set_active"]), self._name())

    def _name(self) -> str:
        connected: list[str] = list(self.lean._window.consumers)
        return self.random.choice(connected or NAMES)

    def _redrive(self) -> None:
        outstanding = {each.offset for each in self.lean.outstanding()}
        done = [effect for offset, effect in self.delivered.items() if offset not in outstanding]
        if done and self.config.redrive:
            effect = self.random.choice(done)
            self.call("redrive", effect.key, [(effect.offset, effect.attempt, "item")])

    def _time(self) -> None:
        self.now = max(self.now, self.lean.next_deadline_ms() or 0)
        self.call("handle_timeout")


def run(random: Random, calls: int, fault: type[InFlightWindow] | None = None) -> Crowd:
    crowd = Crowd(random)
    if fault is not None:
        crowd.lean._window.__class__ = fault
    for _ in range(calls):
        crowd.step()
    return crowd


@given(st.randoms(use_true_random=False))
def test_a_crowd_is_served_alike_with_lanes_without_and_after_a_restart_at_any_call(random: Random) -> None:
    run(random, 15)


def run_all(fault: type[InFlightWindow] | None = None) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        seen += run(Random(seed), 60, fault).seen  # reproducible, not secret
    return seen


def test_crowds_wait_alone_are_passed_to_lanes_move_and_are_restored() -> None:
    seen = run_all()
    for what, least in {"waits alone": 60, "is restored": 100, "gets a lane": 30, "moves": 10}.items():
        assert seen[what] >= least, seen


@pytest.mark.interpreted("changes the class of a living part")
def test_a_message_that_begins_to_wait_anew_with_its_lane_is_caught_in_a_crowd() -> None:
    with pytest.raises(AssertionError):
        run_all(LosesItsPlace)
