"""Schedules with a restart in the middle that changes limits, one or all: what that makes possible is due at once.

`check_invariants` is the oracle: between two calls nothing waits that may go out, unless a timeout is due that hands it
out; what time ends has a deadline, if there is such a time now. Limits that are narrower are refused by their name, or
hold.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.placements import RankedPlacement
from tests.properties.driving import Fast, drive
from tests.properties.schedules import Choose, World, any_config

from keyshared.config import DispatcherConfig, GroupLimits
from keyshared.effects import Deliver, Load
from keyshared.errors import SnapshotError

BEFORE, AFTER = 60, 40


def wider(config: DispatcherConfig, choose: Choose) -> DispatcherConfig:
    """The same, with one limit that is wider, or several."""
    per_key, batch = config.max_in_flight_per_key, config.batch_per_key
    limits: list[dict[str, Any]] = [
        {"window": 2 * config.window, "max_tracked": 2 * config.max_tracked},
        {"max_loaded_per_key": 9 * config.max_loaded_per_key},
        {"group": GroupLimits(), "max_in_flight": config.max_in_flight and 9},
        {
            "ack_timeout_ms": config.ack_timeout_ms or 30,
            "drain_timeout_ms": config.drain_timeout_ms or 9,
            "inactive_grace_ms": config.inactive_grace_ms or 12,
            "sessions": config.sessions and replace(config.sessions, flush_ms=config.sessions.flush_ms or 9),
        },
        {"token_bytes": config.token_bytes and 9 * config.token_bytes},
        {"max_in_flight_per_key": per_key + (batch == 1), "batch_per_key": batch + (batch > 1)},
    ]
    limits[-1] |= {"max_loaded_per_key": 1 + config.max_loaded_per_key}
    everything = {name: limit for each in limits for name, limit in each.items()}
    return replace(config, **choose([*limits, everything]))


def narrower(config: DispatcherConfig, choose: Choose) -> DispatcherConfig:
    """The same, with one limit that is as narrow as it can be."""
    most = max(config.max_in_flight_per_key, config.batch_per_key)
    limits: list[dict[str, Any]] = [
        {"max_in_flight_per_key": 1},
        {"batch_per_key": 1},
        {"window": 1},
        {"max_tracked": config.window},
        {"max_loaded_per_key": most},
    ]
    return replace(config, **choose(limits))


def live(seed: int, change: Callable[[DispatcherConfig, Choose], DispatcherConfig] = wider) -> bool:
    """Run a schedule; return whether the restart made anything possible."""
    choose: Choose = Random(seed).choice  # reproducible, not secret
    world = World(any_config(choose), choose)
    world.take_rules()
    dispatcher = Fast(RankedPlacement(), world.config, **world.settings)
    for _ in range(BEFORE):
        drive(dispatcher, world, world.next_call())
    world.config = change(world.config, choose)
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


@given(seed=st.integers(0, 2**32 - 1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_restart_with_a_narrower_limit_is_refused_by_its_name_or_goes_on(seed: int) -> None:
    try:
        live(seed, narrower)
    except SnapshotError as refused:
        assert re.search("max_in_flight_per_key|window|max_tracked|max_loaded_per_key", str(refused)), refused


@given(seed=st.integers(0, 2**32 - 1), latest_only=st.booleans())
def test_what_starves_has_its_slots_before_what_is_new(seed: int, latest_only: bool) -> None:
    choose: Choose = Random(seed).choice  # reproducible, not secret
    window = choose([4, 5, 8])
    config = DispatcherConfig(window=window, max_tracked=100, latest_only=latest_only, ack_timeout_ms=None)
    before: Fast = Fast(RankedPlacement(), config)
    before.add_consumer("a", limit=1)
    for offset in range(choose([window + 1, 2 * window, 4 * window])):
        if before.free_slots:
            before.offer(offset, choose("abcdefghij"))
    before.set_limit("a", 20)  # what is spilled asks for its slot
    wide = replace(config, window=choose([window + 1, 2 * window, 8 * window]))
    again: Fast = Fast.restore(json.loads(json.dumps(before.snapshot())), before.placement, wide, now_ms=0)
    for _ in range(20):
        following = (again.restart_mark.last or 0) + 1
        match choose(["offer", "offers", "loaded", "ack", "timeout"]):
            case "offer" if again.free_slots:
                again.offer(following, choose("abcdefghijz"))
            case "offers":
                new = range(following, following + choose([again.free_slots, again.free_slots // 2]))
                again.offer_many([(offset, choose("abcdefghijz"), None) for offset in new])
            case "timeout":
                again.handle_timeout(now_ms=0)
            case call:
                _answer(again, choose, loads=call == "loaded")
        again.check_invariants()
    while again.outstanding_effects():
        _answer(again, choose, loads=True)
        _answer(again, choose, loads=False)
    assert (0, wide.window) == (again.stats().outstanding, again.free_slots)


def _answer(dispatcher: Fast, choose: Choose, *, loads: bool) -> None:
    """Hand in one payload that is asked for, or ack one delivery, if there is any."""
    kind = Load if loads else Deliver
    asked = [effect for effect in dispatcher.outstanding_effects() if isinstance(effect, kind)]
    match choose(asked) if asked else None:
        case Load(offset):
            dispatcher.loaded(offset)
        case Deliver() as delivery:
            dispatcher.ack(*delivery.receipt)
        case _:
            pass


def test_wider_limits_often_make_something_possible() -> None:
    assert sum(live(seed) for seed in range(400)) > 5
