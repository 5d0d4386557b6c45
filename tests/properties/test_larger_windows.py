"""Restarts with a larger window: what starves has its slots before what is new, and in the end all is settled."""

import json
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.placements import RankedPlacement
from tests.properties.driving import Fast
from tests.properties.schedules import Choose

from keyshared.config import DispatcherConfig
from keyshared.effects import Deliver, Load


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
