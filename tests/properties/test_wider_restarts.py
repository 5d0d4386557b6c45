"""Schedules with a restart in the middle that widens every limit, one or all: what that makes possible is due at once.

`check_invariants` is the oracle: between two calls nothing waits that may go out, unless a timeout is due that hands it
out; what is open has a deadline if there is an ack timeout.
"""

import json
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.placements import RankedPlacement
from tests.properties.driving import Fast, drive
from tests.properties.schedules import Choose, World, any_config

from keyshared.config import DispatcherConfig, GroupLimits

BEFORE, AFTER = 60, 40


def wider(config: DispatcherConfig, choose: Choose) -> DispatcherConfig:
    """The same, with one limit that is wider, or several."""
    per_key, batch = config.max_in_flight_per_key, config.batch_per_key
    limits: list[dict[str, Any]] = [
        {"window": 2 * config.window, "max_tracked": 2 * config.max_tracked},
        {"max_loaded_per_key": 9 * config.max_loaded_per_key},
        {"group": GroupLimits(), "max_in_flight": config.max_in_flight and 9},
        {"ack_timeout_ms": config.ack_timeout_ms or 30},
        {"token_bytes": config.token_bytes and 9 * config.token_bytes},
        {"max_in_flight_per_key": per_key + (batch == 1), "batch_per_key": batch + (batch > 1)},
    ]
    limits[-1] |= {"max_loaded_per_key": 1 + config.max_loaded_per_key}
    everything = {name: limit for each in limits for name, limit in each.items()}
    return replace(config, **choose([*limits, everything]))


def live(seed: int) -> bool:
    """Run a schedule; return whether the restart made anything possible."""
    choose: Choose = Random(seed).choice  # reproducible, not secret
    world = World(any_config(choose), choose)
    world.take_rules()
    dispatcher = Fast(RankedPlacement(), world.config, **world.settings)
    for _ in range(BEFORE):
        drive(dispatcher, world, world.next_call())
    world.config = wider(world.config, choose)
    state = json.loads(json.dumps(dispatcher.snapshot()))
    again = Fast.restore(state, dispatcher.placement, world.config, now_ms=world.now, **world.settings)
    is_due: bool = again._window.wants_wake
    assert not is_due or again.next_deadline_ms() <= world.now
    if choose([True, False]):
        again.handle_timeout(now_ms=world.now)
        assert not again._window.wants_wake
    for _ in range(AFTER):
        drive(again, world, world.next_call())
        again.check_invariants()
    return is_due


@given(seed=st.integers(0, 2**32 - 1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_restart_with_wider_limits_leaves_nothing_behind(seed: int) -> None:
    live(seed)


def test_wider_limits_often_make_something_possible() -> None:
    assert sum(live(seed) for seed in range(400)) > 5
