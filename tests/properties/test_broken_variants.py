"""The judge catches every broken dispatcher within a small budget of schedules, and says which promise it breaks."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model import ModelDispatcher
from tests.placements import RankedPlacement
from tests.properties.broken import BROKEN
from tests.properties.calls import Step
from tests.properties.driving import Factory, Fast, offered_by, outcome, run_schedule
from tests.properties.found_at import FOUND_AT, remembered_first
from tests.properties.schedules import random_world

from keyshared.testing import Promise, Violation

pytestmark = pytest.mark.interpreted("changes the class of a living part")

SEEDS = range(1_200)  # a search ends with the first that shows what is looked for
CALLS = 60
COMPARED = {Promise.RESUME, Promise.DETERMINISM}  # seen only by comparing two runs
JUDGED = [(promise, broken) for promise, variants in BROKEN.items() for broken in variants if promise not in COMPARED]


def interrupted(history: Sequence[Step], factory: Any, seed: int) -> list[Violation]:
    """Run a recorded history again with a crash after every call: the effects must stay the same."""
    world = random_world(seed, with_rules=True)
    config = world.config
    offered: set[int] = set()
    dispatcher = factory(RankedPlacement(), config, **world.settings)
    for number, step in enumerate(history):
        effects = outcome(dispatcher, step.call)
        if effects != list(step.effects):
            return [
                _blame(Promise.RESUME, f"#{number} {step.call}: {list(step.effects)}, but {effects} after a restore")
            ]
        state = json.loads(json.dumps(dispatcher.snapshot()))
        offered.update(offered_by(step.call))
        items = {offset: f"item {offset}" for offset in offered}
        again = dispatcher.placement
        dispatcher = factory.restore(state, again, config, now_ms=step.now, items=items, **world.settings)
    return []


def repeated(history: Sequence[Step], factory: Factory, seed: int) -> list[Violation]:
    """Run a recorded history again: the effects must be the same."""
    world = random_world(seed, with_rules=True)
    dispatcher = factory(RankedPlacement(), world.config, **world.settings)
    for number, step in enumerate(history):
        effects = outcome(dispatcher, step.call)
        if effects != list(step.effects):
            return [_blame(Promise.DETERMINISM, f"#{number} {step.call}: {list(step.effects)}, then {effects}")]
    return []


def _blame(promise: Promise, explanation: str) -> Violation:
    return Violation(promise, explanation, (), "")


def first_violations(factory: type[Any], promise: Promise) -> list[Violation]:
    """What the first schedule shows that breaks this promise, perhaps beside others."""
    placement = getattr(factory, "starts_with", RankedPlacement)
    for seed in remembered_first(SEEDS, f"{promise} {factory.__name__}"):
        history, found = run_schedule(factory, seed, CALLS, placement)
        if promise == Promise.RESUME:
            found = interrupted(history, factory, seed)
        elif promise == Promise.DETERMINISM:
            found = repeated(history, factory, seed)
        if promise in {violation.promise for violation in found}:
            return found
    return []


@pytest.mark.parametrize(("promise", "broken"), JUDGED, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_judge_catches_a_broken_dispatcher_and_names_its_promise(promise: Promise, broken: type[Any]) -> None:
    assert promise in {violation.promise for violation in first_violations(broken, promise)}


@pytest.mark.parametrize("broken", BROKEN[Promise.RESUME])
def test_a_crash_after_every_call_shows_a_snapshot_that_forgets(broken: type[Any]) -> None:
    assert [violation.promise for violation in first_violations(broken, Promise.RESUME)] == [Promise.RESUME]


@pytest.mark.parametrize("broken", BROKEN[Promise.DETERMINISM])
def test_a_second_run_shows_an_order_that_is_not_determined(broken: type[Any]) -> None:
    assert [violation.promise for violation in first_violations(broken, Promise.DETERMINISM)] == [Promise.DETERMINISM]


def test_every_promise_has_a_broken_dispatcher() -> None:
    assert set(Promise) == set(BROKEN)


def test_every_search_that_is_remembered_is_made() -> None:
    made = {
        search
        for promise, variants in BROKEN.items()
        for broken in variants
        for search in (f"{promise} {broken.__name__}", f"history of {broken.__name__}")
    }
    assert made >= FOUND_AT.keys()


@pytest.mark.parametrize("factory", [ModelDispatcher, Fast], ids=["model", "fast"])
def test_the_judge_finds_nothing_in_a_correct_dispatcher(factory: Factory) -> None:
    assert [violation for seed in range(100) for violation in run_schedule(factory, seed, CALLS)[1]] == []


@given(st.integers(0, 2**32 - 1))
def test_a_correct_dispatcher_neither_forgets_in_a_crash_nor_depends_on_the_run(seed: int) -> None:
    history, _ = run_schedule(Fast, seed, CALLS)
    assert interrupted(history, Fast, seed) == []
    assert repeated(history, Fast, seed) == []
