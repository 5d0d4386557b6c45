"""Histories for the tests of the checker: of dispatchers under random schedules, also with mistakes in them."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

from tests.kit.recorder import Recorder
from tests.placements import RankedPlacement
from tests.properties.driving import drive
from tests.properties.schedules import claims_of, random_world

from keyshared.testing import Checker, Claims, Promise, Violation
from keyshared.testing.history import Event

__all__ = ["first_broken", "kept", "mutated", "recorded"]

Factory: TypeAlias = Callable[..., Any]  # of a placement and a configuration, perhaps rules


def kept(checker: Checker) -> int:
    """How much a checker remembers, in bytes as pickled."""
    return len(pickle.dumps(checker))


def recorded(
    factory: Factory, seed: int, calls: int, start: Callable[[], RankedPlacement] = RankedPlacement
) -> tuple[Claims, list[Event]]:
    """What a dispatcher claims, and what happened to it under a random schedule."""
    world = random_world(seed, with_rules=True)
    recorder: Any = Recorder(factory(start(), world.config, **world.settings))
    claims = claims_of(world.config, rules=world.rules)
    for _ in range(calls):
        call = world.next_call()
        drive(recorder, world, call)
        if call.is_out_of_turn:
            claims = replace(claims, fairness=None)
    return claims, recorder.history


def first_broken(
    factory: Factory, seed: int, calls: int, start: Callable[[], RankedPlacement] = RankedPlacement
) -> list[Violation]:
    """What the first event that breaks anything breaks; nothing is asked of the dispatcher after that."""
    world = random_world(seed, with_rules=True)
    recorder: Any = Recorder(factory(start(), world.config, **world.settings))
    checker = Checker(claims_of(world.config, rules=world.rules))
    for _ in range(calls):
        call = world.next_call()
        drive(recorder, world, call)
        for event in recorder.history:
            found = checker.feed(event)
            if call.is_out_of_turn:
                found = [violation for violation in found if violation.promise is not Promise.FAIRNESS]
            if found:
                return found
        recorder.history.clear()
    return []


def mutated(history: Sequence[Event], random: Random, mistakes: int) -> list[Event]:
    """A history in which some events are lost, doubled, or have changed places with others nearby."""
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
