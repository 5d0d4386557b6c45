"""Histories for the tests of the checker: of dispatchers under random schedules, also with mistakes in them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

from tests.placements import RankedPlacement
from tests.properties.driving import drive
from tests.properties.promises import Call
from tests.properties.schedules import random_world

from keyshared.config import DispatcherConfig, DrainUnit, OnEvict
from keyshared.retry import Poison
from keyshared.testing import Checker, Guarantees, Promise, Violation
from keyshared.testing.adapters.recorder import Recorder
from keyshared.testing.history import Happening

__all__ = ["asks_out_of_turn", "first_broken", "guarantees_of", "mutated", "recorded"]

Factory: TypeAlias = Callable[[Any, DispatcherConfig], Any]

ARCHIVES = {Poison.DEAD_LETTER, Poison.QUARANTINE}


def guarantees_of(config: DispatcherConfig) -> Guarantees:
    """What a dispatcher with this configuration claims."""
    return Guarantees(
        per_key=config.max_in_flight_per_key,
        per_consumer=config.max_in_flight_per_consumer,
        window=config.window,
        max_tracked=config.max_tracked,
        unit_of=RankedPlacement().ranges.slot_of if config.unit is DrainUnit.HASH else None,
        total_order=config.ordering_required,
        fairness=0,
        max_attempts=None if config.retry.max_redeliveries is None else config.retry.max_redeliveries + 1,
        cursor_keeps_up=True,
        may_drop=config.poison is Poison.DROP or config.on_evict is OnEvict.DROP,
        may_skip=True,  # whatever the policy for unmatched ones: schedules say of some that they are gone
        may_dead_letter=config.poison in ARCHIVES,
    )


def recorded(
    factory: Factory, seed: int, calls: int, start: Callable[[], RankedPlacement] = RankedPlacement
) -> tuple[Guarantees, list[Happening]]:
    """What a dispatcher claims, and what happened to it under a random schedule."""
    world = random_world(seed)
    recorder: Any = Recorder(factory(start(), world.config))
    guarantees = guarantees_of(world.config)
    for _ in range(calls):
        call = world.next_call()
        drive(recorder, world, call)
        if asks_out_of_turn(call):
            guarantees = replace(guarantees, fairness=None)
    return guarantees, recorder.history


def asks_out_of_turn(call: Call) -> bool:
    """Whether the host asks for one message, whatever waits before it: a history does not tell of that."""
    return call.name == "pull" and call.kwargs.get("only") is not None


def first_broken(
    factory: Factory, seed: int, calls: int, start: Callable[[], RankedPlacement] = RankedPlacement
) -> list[Violation]:
    """What the first happening that breaks anything breaks; nothing is asked of the dispatcher after that."""
    world = random_world(seed)
    recorder: Any = Recorder(factory(start(), world.config))
    checker = Checker(guarantees_of(world.config))
    for _ in range(calls):
        call = world.next_call()
        drive(recorder, world, call)
        for happening in recorder.history:
            found = checker.feed(happening)
            if asks_out_of_turn(call):
                found = [violation for violation in found if violation.promise is not Promise.FAIRNESS]
            if found:
                return found
        recorder.history.clear()
    return []


def mutated(history: Sequence[Happening], random: Random, mistakes: int) -> list[Happening]:
    """A history in which some happenings are lost, doubled, or have changed places with others nearby."""
    copy = list(history)
    for _ in range(mistakes):
        at = random.randrange(len(copy))
        kind = random.choice(["swap", "drop", "double", "later"])
        if kind == "swap":
            other = min(len(copy) - 1, at + random.randrange(1, 6))
            copy[at], copy[other] = copy[other], copy[at]
        elif kind == "drop" and len(copy) > 1:
            del copy[at]
        elif kind == "double":
            copy.insert(at + random.randrange(3), copy[at])
        else:
            copy.insert(min(len(copy), at + random.randrange(9)), copy.pop(at))
    return copy
