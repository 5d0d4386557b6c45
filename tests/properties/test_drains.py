"""Schedules in which keys go on draining while others move, time runs out, and nobody answers.

`check_invariants` derives from the messages which lanes drain and compares that with the books and with the timers.
There, and in schedules of all features, a dispatcher that is asked everything between all calls does what one does that
is asked nothing.
"""

import json
from copy import deepcopy
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.asking import ask_everything
from tests.placements import RankedPlacement
from tests.properties.driving import INPUTS, Fast, drive, outcome, questions
from tests.properties.schedules import KEYS, LONG_DRAINS, Choose, World, any_config, mixed

from keyshared.config import DispatcherConfig, DrainUnit

LENGTH = 120
ASKED_EVERY = 3  # calls: what a query writes stays written


def draining_world(choose: Choose, *, drain_timeout_ms: int | None) -> World:
    """Few consumers, many keys, little that ends a delivery, and a host that is late."""
    config = DispatcherConfig(
        window=choose([8, 16, 32]),
        max_in_flight_per_consumer=choose([3, 8]),
        max_in_flight_per_key=choose([1, 1, 2]),
        drain_timeout_ms=drain_timeout_ms,
        inactive_grace_ms=choose([4, 9]),
        unit=choose([*DrainUnit, DrainUnit.RANGE, DrainUnit.RANGE]),
        ack_timeout_ms=choose([None, None, 30]),
    )
    world = World(config, choose)
    world.calls = mixed(LONG_DRAINS, choose)
    world.keys, world.filters, world.limits = KEYS, ((),), (None,)
    world.crowd, world.late_ms = 2, 20
    return world


@given(seed=st.integers(0, 2**32 - 1))
def test_who_drains_and_until_when_follows_from_the_books_also_after_a_restore(seed: int) -> None:
    world = draining_world(Random(seed).choice, drain_timeout_ms=4)  # reproducible, not secret
    dispatcher = Fast(RankedPlacement(), world.config)
    for _ in range(LENGTH):
        drive(dispatcher, world, world.next_call())
        dispatcher.check_invariants()
    state = json.loads(json.dumps(dispatcher.snapshot()))
    again = Fast.restore(state, dispatcher.placement, world.config, now_ms=world.now)
    again.check_invariants()
    assert (state, dispatcher.next_deadline_ms()) == (again.snapshot(), again.next_deadline_ms())


@given(seed=st.integers(0, 2**32 - 1))
def test_a_dispatcher_that_is_asked_everything_does_what_one_does_that_is_asked_nothing(seed: int) -> None:
    choose: Choose = Random(seed).choice  # as above
    if choose([True, False]):
        world = draining_world(choose, drain_timeout_ms=choose([None, None, 4]))
    else:
        world = World(any_config(choose), choose)
        world.take_rules()
    asked, silent = (Fast(RankedPlacement(), world.config, **world.settings) for _ in range(2))
    for number in range(LENGTH):
        call = world.next_call()
        step = drive(asked, world, call)
        effects = outcome(silent, call)
        assert isinstance(effects, type) if step is None else list(step.effects) == effects, f"{call}: {effects}"
        if not number % ASKED_EVERY:
            ask_everything(asked, questions(world), INPUTS)
    copied = deepcopy(silent)
    assert (asked.snapshot(), asked.stats()) == (copied.snapshot(), copied.stats())
