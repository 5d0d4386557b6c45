"""Restarts with wider limits: what those make possible is due at once, and no offer is torn.

`attacking` restarts a dispatcher with each wider limit in the middle of its schedules. Here is what comes after it: all
that there is room for is taken, and a lease queue goes on.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.leasing import letters
from tests.placements import RankedPlacement
from tests.properties.driving import Fast
from tests.properties.lease_host import Call, Host, bring_to_an_end
from tests.properties.schedules import Choose
from tests.properties.slow_groups import GROUP_RULES
from tests.properties.test_lease_schedules import Schedule
from tests.properties.test_lease_schedules import any_config as any_lease_config

from keyshared.config import DispatcherConfig, GroupLimits
from keyshared.effects import Deliver, Load
from keyshared.leases import LeaseConfig, LeaseQueue


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
    placement = None if config.dispatcher.ordering_required else queue.placement
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
