"""Every way to build a placement has the same face."""

import pytest

from keyshared.placement import Placement
from keyshared.ring import HashRing

PLACEMENTS: list[Placement] = [HashRing(), HashRing.danube()]


@pytest.mark.parametrize("placement", PLACEMENTS, ids=["ring", "danube"])
def test_a_dispatcher_can_use_it(placement: Placement) -> None:
    mine = placement.copy()

    mine.add("1")
    mine.add("2", weight=2)
    changed = mine.set_weight("1", 3)
    assert ("1", "2") == mine.consumers
    assert {"1"} == {move.new for move in changed}
    assert mine.ranges.owner_of(b"k") == next(mine.ranges.walk(mine.ranges.slot_of(b"k")))
    mine.remove("2")
    assert ("1",) == mine.ranges.owners
    assert () == placement.consumers
