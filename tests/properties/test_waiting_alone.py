"""The only message of its key waits without a lane: no host sees the difference, and no fault in that stays hidden."""

from random import Random
from typing import Any

import pytest
from tests.properties.calls import Call
from tests.properties.driving import outcome

from keyshared._window.lanes import Alone, Entry, Lane
from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import DeadLetter, Effect, Load
from keyshared.errors import InvariantError, KeySharedError
from keyshared.ring import HashRing
from keyshared.window import InFlightWindow

SEEDS = range(12)
CALLS = 120
KEYS = [b"%d" % number for number in range(30)]
NAMES = ["ann", "bob", "cat"]


class Twins:
    """A dispatcher, and one that has a lane for whatever waits; both hear the same calls."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.config = config = DispatcherConfig(
            window=random.choice([6, 12, 40]),
            max_tracked=40,
            max_in_flight_per_consumer=random.choice([1, 2, 4]),
            max_in_flight_per_key=random.choice([1, 1, 2, 3]),
            max_loaded_per_key=random.choice([3, 40]),
            ack_timeout_ms=random.choice([20, None]),
            retry=RetryPolicy(max_redeliveries=1, base_delay_ms=random.choice([0, 5])),
            poison=random.choice([Poison.DEAD_LETTER, Poison.BLOCK, Poison.QUARANTINE]),
            redrive=random.random() < 0.5,
        )
        self.lean: Any = KeySharedDispatcher(HashRing(), config)
        self.laned: Any = KeySharedDispatcher(HashRing(), config)
        self.laned._window._is_lean = False
        self.keys = [*random.sample(KEYS, random.choice([3, 12, 30])), *random.choice([[], [None]])]
        self.offset = self.now = 0
        self.waited_alone = 0

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Effect] | type[KeySharedError]:
        """Make a call, and compare what comes of it and all that can be asked."""
        call = Call(name, args, kwargs | {"now_ms": self.now})
        came_of_it = outcome(self.lean, call)
        assert outcome(self.laned, call) == came_of_it
        assert self.laned.snapshot() == self.lean.snapshot()
        assert self.laned.stats() == self.lean.stats()
        assert list(self.laned.outstanding()) == list(self.lean.outstanding())
        assert self.laned.outstanding_effects() == self.lean.outstanding_effects()
        self.lean.check_invariants()
        self.waited_alone += any(isinstance(waiting, Entry) for waiting in self.lean._window._all_waiting())
        return came_of_it

    def step(self) -> None:  # noqa: C901, PLR0912  # one branch for each kind of call
        """Make one of the calls that a host makes."""
        random, lean = self.random, self.lean
        self.now += random.choice([0, 0, 1, 9])
        opened = [effect.receipt for effect in lean.in_flight()]
        duties = [effect for effect in lean.outstanding_effects() if isinstance(effect, Load | DeadLetter)]
        outstanding = [each.offset for each in lean.outstanding()]
        name = random.choice(NAMES)
        roll = random.random()
        if roll < 0.4:
            self.offset += random.choice([1, 1, 3])
            self.call("offer", self.offset, random.choice(self.keys), "item")
        elif roll < 0.5:
            batch = [(self.offset + 1 + place, random.choice(self.keys), "item") for place in range(4)]
            self.offset += 4
            self.call("offer_many", batch)
        elif roll < 0.65 and opened:
            self.call("ack", *random.choice(opened))
        elif roll < 0.7 and opened:
            self.call("ack_many", random.sample(opened, (len(opened) + 1) // 2))
        elif roll < 0.73 and opened:
            self.call(random.choice(["nack", "reject", "ack_through"]), *random.choice(opened))
        elif roll < 0.76 and opened:
            self.call("release", *random.choice(opened), delay_ms=random.choice([0, 7]))
        elif roll < 0.84 and duties:
            duty = random.choice(duties)
            self.call("loaded" if isinstance(duty, Load) else "dead_lettered", duty.offset)
        elif roll < 0.88 and outstanding:
            self.call("gone", random.choice(outstanding))
        elif roll < 0.9:
            self.call("unblock", random.choice(self.keys))
        elif roll < 0.92:
            self.call("pull", name, 2, only=random.choice([None, *outstanding]))
        elif roll < 0.94:
            self.call("set_limit", name, random.choice([0, 1, 3]))
        elif roll < 0.96:
            self.call("add_consumer", name)
        elif roll < 0.97:
            self.call(random.choice(["remove_consumer", "set_inactive", "set_active"]), name)
        else:
            self.call("handle_timeout")


def run(seed: int, fault: type[InFlightWindow] | None = None) -> Twins:
    twins = Twins(Random(seed))  # reproducible, not secret
    if fault is not None:
        twins.lean._window.__class__ = fault
    for name in NAMES:
        twins.call("add_consumer", name)
    for _ in range(CALLS):
        twins.step()
    return twins


def test_no_call_and_no_query_shows_whether_a_message_waits_alone() -> None:
    assert 60 < sum(run(seed).waited_alone for seed in SEEDS)


class StaysWhereItsOwnerWas(InFlightWindow):
    """A change of owners looks at lanes only."""

    __slots__ = ()

    def _all_waiting(self) -> list[Lane | Entry]:
        return [waiting for waiting in super()._all_waiting() if isinstance(waiting, Lane)]


class LosesItsPlace(InFlightWindow):
    """A message that gets a lane begins to wait anew."""

    __slots__ = ()

    def _lane_of(self, entry: Entry) -> Lane:
        was_alone, lane = isinstance(entry.lane, Alone), super()._lane_of(entry)
        where = lane.listed
        if was_alone and where is not None and entry in where:
            self._unlist(lane)
            self._list(lane, where)
        return lane


class KeepsItsSlot(InFlightWindow):
    """What waits alone is spilled, and its slot of the window stays taken."""

    __slots__ = ()

    def _spill_alone(self, entry: Entry) -> list[Entry]:
        spilled = super()._spill_alone(entry)
        self.loaded += len(spilled)
        return spilled


class CountsNoGaps(InFlightWindow):
    """What is settled behind the head of its lane is left linked, and nobody knows."""

    __slots__ = ()

    def remove(self, entry: Entry) -> None:
        super().remove(entry)
        entry.lane.gaps = 0


@pytest.mark.interpreted("changes the class of a living part")
@pytest.mark.parametrize("fault", [StaysWhereItsOwnerWas, LosesItsPlace, KeepsItsSlot, CountsNoGaps])
def test_a_window_that_forgets_what_has_no_lane_is_caught(fault: type[InFlightWindow]) -> None:
    assert any(_is_caught(seed, fault) for seed in SEEDS)


def _is_caught(seed: int, fault: type[InFlightWindow]) -> bool:
    try:
        run(seed, fault)
    except (AssertionError, InvariantError):
        return True
    return False
