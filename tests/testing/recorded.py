"""Histories for the tests of the checker: of dispatchers under random schedules, also with mistakes in them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

from tests.placements import RankedPlacement
from tests.properties.driving import drive
from tests.properties.schedules import guarantees_of, random_world

from keyshared.testing import Checker, Guarantees, Promise, Violation
from keyshared.testing.adapters.recorder import Recorder
from keyshared.testing.history import Happening

__all__ = ["first_broken", "mutated", "recorded"]

Factory: TypeAlias = Callable[..., Any]  # of a placement and a configuration, perhaps rules


def recorded(
    factory: Factory, seed: int, calls: int, start: Callable[[], RankedPlacement] = RankedPlacement
) -> tuple[Guarantees, list[Happening]]:
    """What a dispatcher claims, and what happened to it under a random schedule."""
    world = random_world(seed, with_rules=True)
    recorder: Any = Recorder(factory(start(), world.config, **world.settings))
    guarantees = guarantees_of(world.config, rules=world.rules)
    for _ in range(calls):
        call = world.next_call()
        drive(recorder, world, call)
        if call.is_out_of_turn:
            guarantees = replace(guarantees, fairness=None)
    return guarantees, recorder.history


def first_broken(
    factory: Factory, seed: int, calls: int, start: Callable[[], RankedPlacement] = RankedPlacement
) -> list[Violation]:
    """What the first happening that breaks anything breaks; nothing is asked of the dispatcher after that."""
    world = random_world(seed, with_rules=True)
    recorder: Any = Recorder(factory(start(), world.config, **world.settings))
    checker = Checker(guarantees_of(world.config, rules=world.rules))
    for _ in range(calls):
        call = world.next_call()
        drive(recorder, world, call)
        for happening in recorder.history:
            found = checker.feed(happening)
            if call.is_out_of_turn:
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
