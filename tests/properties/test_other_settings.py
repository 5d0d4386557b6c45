"""Schedules of several lives with other settings each: what those make possible is due at once, and no offer is torn.

`check_invariants` is the oracle: between two calls nothing waits that may go out, unless a timeout is due that hands it
out; what is open, away or flushed has a deadline if there is a time for it now. A restore is refused only where a limit
is below what is in use, and says which.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, count
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.leasing import letters
from tests.placements import RankedPlacement
from tests.properties.driving import Fast, drive
from tests.properties.lease_host import Call, Host, bring_to_an_end
from tests.properties.schedules import Choose, World, any_config
from tests.properties.slow_groups import GROUP_RULES
from tests.properties.test_lease_schedules import Schedule
from tests.properties.test_lease_schedules import any_config as any_lease_config

from keyshared.config import DispatcherConfig, GroupLimits, KeySessions
from keyshared.effects import Deliver, Load
from keyshared.errors import SnapshotError
from keyshared.leases import LeaseConfig, LeaseQueue

CALLS, LIVES = 30, 3
NAMED = ("max_in_flight_per_key", "fit the window", "fit max_tracked", "max_loaded_per_key", "where spill is False")


def other(config: DispatcherConfig, choose: Choose) -> DispatcherConfig:
    """The same with one setting that is another, or several: most limits are wider, some are narrower."""
    per_key, batch, loaded = config.max_in_flight_per_key, config.batch_per_key, config.max_loaded_per_key
    others: list[dict[str, Any]] = [
        {"window": 2 * config.window, "max_tracked": 2 * config.max_tracked},
        {"max_loaded_per_key": 9 * loaded},
        {"group": GroupLimits(), "max_in_flight": config.max_in_flight and 9},
        {"ack_timeout_ms": config.ack_timeout_ms or 30, "inactive_grace_ms": config.inactive_grace_ms or 9},
        {"max_ack_holes": config.max_ack_holes and 9 * config.max_ack_holes},
        {"max_in_flight_per_key": per_key + (batch == 1), "batch_per_key": batch + (batch > 1)},
    ]
    others[-1] |= {"max_loaded_per_key": 1 + loaded}
    if config.sessions is not None:
        others[3]["sessions"] = KeySessions(linger_ms=choose([0, 5]), flush_ms=choose([0, 6]))
    wider = {name: setting for each in others for name, setting in each.items()}
    narrower = {"max_in_flight_per_key": 1, "batch_per_key": 2 if batch > 1 else 1}
    return replace(config, **choose([*others, *[wider] * 4, narrower, {**wider, **narrower}]))


def again(dispatcher: Any, world: World) -> Any:
    """The next life of a dispatcher, or the same one if its limits would be below what is in use."""
    config = other(world.config, world.choose)
    state = json.loads(json.dumps(dispatcher.snapshot()))
    try:
        restored = Fast.restore(state, dispatcher.placement, config, now_ms=world.now, **world.settings)
    except SnapshotError as refused:
        assert any(name in str(refused) for name in NAMED)
        return dispatcher
    world.config, world.free_slots, world.next_deadline = config, restored.free_slots, restored.next_deadline_ms()
    return restored


def drive_all(dispatcher: Any, world: World) -> None:
    for _ in range(CALLS):
        call, mark = world.next_call(), dispatcher.restart_mark
        if drive(dispatcher, world, call) is None:
            assert mark == dispatcher.restart_mark, "a call that raises has taken nothing"
        dispatcher.check_invariants()


def live(seed: int) -> int:
    """Run a schedule; return how many restarts made something possible."""
    choose: Choose = Random(seed).choice  # reproducible, not secret
    world = World(any_config(choose), choose)
    world.take_rules()
    dispatcher = Fast(RankedPlacement(), world.config, **world.settings)
    drive_all(dispatcher, world)
    due = 0
    for _ in range(LIVES - 1):
        before = set(dispatcher.outstanding_effects())
        dispatcher = again(dispatcher, world)
        made = {effect for effect in set(dispatcher.outstanding_effects()) - before if isinstance(effect, Deliver)}
        due += bool(made)
        third = Fast.restore(
            dispatcher.snapshot(), dispatcher.placement, world.config, now_ms=world.now, **world.settings
        )
        assert third.outstanding_effects() == dispatcher.outstanding_effects(), "another life finds nothing to do"
        drive_all(dispatcher, world)
    return due


@given(seed=st.integers(0, 2**32 - 1))
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=80)
def test_a_restart_with_other_settings_leaves_nothing_behind(seed: int) -> None:
    live(seed)


def test_other_settings_often_make_something_possible() -> None:
    assert any(due > 2 for due in accumulate(map(live, range(80))))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_what_there_is_room_for_can_be_offered_whatever_a_restart_has_made_possible(seed: int) -> None:
    choose: Choose = Random(seed).choice  # reproducible, not secret
    config = DispatcherConfig(
        latest_only=True, window=choose([2, 3, 4]), max_tracked=24, max_in_flight_per_key=choose([1, 2])
    )
    dispatcher: Fast = Fast(RankedPlacement(), config)
    offsets = count()
    dispatcher.add_consumer("x", limit=1)
    _offer_some(dispatcher, choose, offsets, times=9)
    dispatcher.set_limit("x", choose([2, 3, 9]))
    wider = replace(config, window=2 * config.window, max_in_flight_per_key=3)
    again: Fast = Fast.restore(dispatcher.snapshot(), RankedPlacement(), wider, now_ms=0)
    again.check_invariants()
    _offer_some(again, choose, offsets, times=3)
    while again.stats().outstanding:
        for effect in again.outstanding_effects():
            if isinstance(effect, Load):
                again.loaded(effect.offset)
            elif isinstance(effect, Deliver):
                again.ack(*effect.receipt)
            again.check_invariants()
    assert (0, wider.window) == (again.stats().loaded, again.free_slots)


def _offer_some(dispatcher: Fast, choose: Choose, offsets: Iterator[int], *, times: int) -> None:
    """Offer what there is room for, one by one or as many as can be."""
    for _ in range(times):
        most = min(choose([1, 1, 9]), dispatcher.free_slots)
        dispatcher.offer_many([(next(offsets), choose("abcdefgh"), None) for _ in range(most)])
        dispatcher.check_invariants()


@given(seed=st.integers(0, 2**32 - 1), grouped=st.booleans(), latest=st.booleans())
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=25)
def test_a_lease_queue_goes_on_with_wider_limits(seed: int, grouped: bool, latest: bool) -> None:
    choose = Random(seed)  # reproducible, not secret
    config = any_lease_config(choose, redrive=False, grouped=grouped, latest=latest)
    host = Host(config, letters({"a-m": "x", "n-z": "y"}), GROUP_RULES if grouped else None)
    host.make(Call("add_consumer", ("x",)))
    host.make(Call("add_consumer", ("y",)))
    schedule = Schedule(host, choose)
    for _ in range(60):
        schedule.one()
    queue, host.config = host.queue, wider_leases(config)
    placement = None if config.dispatcher.ordering_required else queue.dispatcher.placement
    host.queue = LeaseQueue.restore(queue.snapshot(), placement, host.config, now_ms=host.now, rules=host.rules)

    deadline = host.queue.next_deadline_ms()
    assert deadline is None or deadline > host.now, "nothing waits for a call at the instant of the restart"
    host.queue.check_invariants()
    for _ in range(40):
        schedule.one()
    bring_to_an_end(host)


def wider_leases(config: LeaseConfig) -> LeaseConfig:
    below = config.dispatcher
    wider = replace(
        below,
        window=2 * below.window,
        max_tracked=2 * below.max_tracked,
        max_loaded_per_key=1 + below.max_loaded_per_key,
        max_in_flight_per_key=below.max_in_flight_per_key + (below.batch_per_key == 1),
        batch_per_key=below.batch_per_key + (below.batch_per_key > 1),
        group=GroupLimits(),
    )
    return replace(config, dispatcher=wider)
