"""Every placement under random schedules of the dispatcher, and the eyes of the judge."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import pytest
from tests.properties.attacking import PAIRS, Attack
from tests.properties.calls import Call, Step
from tests.properties.contract_judge import Broken
from tests.properties.driving import Fast, outcome
from tests.properties.schedules import FILTERS, NAMES, MakePlacement, observe, random_world

from keyshared.config import DrainUnit, Unmatched
from keyshared.dispatcher import ConsumerState
from keyshared.hashing import key_bytes, pulsar_range_hash
from keyshared.placement import HashRange, Moved, Placement, Weight
from keyshared.placement.assigned import AssignedRanges, ExclusiveRanges
from keyshared.placement.autosplit import AutoSplit
from keyshared.ring import HashRing

SEEDS = range(60)
LENGTH = 60
BITS = 3  # few slots: keys share them, points are contested, and ranges run out
PLACES = {"x": (0, 2), "y": (2, 5), "z": (5, 7), "w": (7, 8), "stranger": (5, 7)}


def pulsar_ring(names: Iterable[str]) -> Placement:
    return HashRing.pulsar(names, points=2, range_size=1 << BITS)


def few_points(names: Iterable[str]) -> Placement:
    """A ring of four places with one point for each consumer: who comes late finds its place taken."""
    return HashRing.pulsar(names, points=1, range_size=1 << 2)


def split(names: Iterable[str]) -> Placement:
    return AutoSplit(names, slot_bits=BITS)


def pulsar_split(names: Iterable[str]) -> Placement:
    return AutoSplit.pulsar(names, range_size=1 << BITS)


class Declared(ExclusiveRanges):
    """Whoever joins again declares what it had."""

    def add(self, name: str, *, weight: Weight = 1) -> list[Moved]:
        return self.declare(name, [PLACES[name]]) if name in PLACES else super().add(name, weight=weight)


def exclusive(names: Sequence[str]) -> Placement:
    """With all of them there from the start, because nobody could join otherwise."""
    free = {name: [PLACES[name]] for name in names or ("x", "y", "z", "w")}
    return Declared(free, key_hash=pulsar_range_hash(1 << BITS), slot_bits=BITS)


def assigned(names: Iterable[str]) -> Placement:
    """Slot 7 is a hole."""
    there = names or ("x", "y", "z")
    return AssignedRanges([(HashRange(*PLACES[name]), name) for name in there], slot_bits=BITS)


def assigned_above_a_ring(names: Iterable[str]) -> Placement:
    return AssignedRanges(
        [(HashRange(*PLACES[name]), name) for name in names or ("x", "y")],
        fallback=HashRing(vnodes=2, slot_bits=BITS),
        slot_bits=BITS,
    )


def judged(make: MakePlacement) -> None:
    """Run schedules of pairs of features over the placement, under the eyes of the judge."""
    for seed in SEEDS:
        Attack(seed, PAIRS[7 * seed % len(PAIRS)], LENGTH, start=partial(make, ())).run()


@pytest.mark.parametrize(
    "make", [pulsar_ring, few_points, split, pulsar_split, exclusive, assigned, assigned_above_a_ring]
)
def test_the_dispatcher_keeps_its_promises_over_every_placement(make: MakePlacement) -> None:
    judged(make)


def halves(names: Iterable[str]) -> Placement:
    """Without a hole, and nothing is left for z."""
    places = {"x": HashRange(0, 4), "y": HashRange(4, 8)}
    return AssignedRanges([(places[name], name) for name in names if name in places], slot_bits=BITS)


def taken_and_owned_by_nobody(make: MakePlacement, seed: int) -> list[str]:
    """Offers that `Unmatched.ERROR` let in although nobody can own the key, by the answers of the dispatcher alone."""
    world = random_world(seed, make)
    world.config = replace(
        world.config, unmatched=Unmatched.ERROR, unit=DrainUnit.KEY, ordering_required=False, window=8, max_tracked=16
    )
    dispatcher = Fast(make(["x", "y"]), world.config)
    for name in NAMES:
        outcome(dispatcher, Call("add_consumer", (name,), {"filters": world.choose(FILTERS)}))
    found: list[str] = []
    for _ in range(LENGTH):
        call = world.choose(world.calls)(world)
        known = {message.key for message in dispatcher.outstanding()}
        effects = outcome(dispatcher, call)
        if isinstance(effects, type):
            continue
        now = call.kwargs.get("now_ms", world.now)
        world.learn(Step(call, tuple(effects), observe(dispatcher, world.offered), now))
        if call.name != "offer" or call.args[1] is None:
            continue
        states = {name: consumer.state for name, consumer in dispatcher.stats().consumers.items()}
        connected = {name for name, state in states.items() if state is not ConsumerState.DRAINING}
        all_here = connected and connected >= set(dispatcher.placement.ranges.owners)
        new = key_bytes(call.args[1]) not in known and dispatcher.describe(call.args[0]) is not None
        if all_here and new and dispatcher.owner(call.args[1]) is None:
            found.append(f"#{seed} {call}")
    return found


@pytest.mark.parametrize("make", [few_points, exclusive, halves])
def test_the_policy_to_raise_lets_nothing_in_that_nobody_can_own(make: MakePlacement) -> None:
    assert [] == [call for seed in SEEDS for call in taken_and_owned_by_nobody(make, seed)]


class Reshuffled(AutoSplit):
    """Broken: everybody's ranges are dealt anew at every change."""

    def remove(self, name: str) -> list[Moved]:
        left = [other for other in self.consumers if other != name][::-1]
        super().remove(name)
        self._consumers, self._bounds = {}, []
        for other in left:
            self._join(other)
        return []


def reshuffled(names: Iterable[str]) -> Placement:
    return Reshuffled(names, slot_bits=BITS)


def test_a_placement_that_moves_too_much_is_caught() -> None:
    with pytest.raises(Broken, match="minimal-move"):
        judged(reshuffled)
