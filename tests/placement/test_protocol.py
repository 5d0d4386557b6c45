"""Every way to build a placement has the same face."""

import pickle

import pytest

from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.errors import ArgumentError, ConsumerExistsError, UnknownConsumerError
from keyshared.hashing import XXH64_SEED_42
from keyshared.placement import HashRange, Placement, RangeMap
from keyshared.placement.assigned import AssignedRanges, ExclusiveRanges
from keyshared.placement.autosplit import AutoSplit
from keyshared.ring import HashRing

WEIGHTED: dict[str, Placement] = {
    "ring": HashRing(),
    "danube": HashRing.danube(),
    "pulsar": HashRing.pulsar(),
    "assigned": AssignedRanges(fallback=HashRing()),
    "buckets": BucketPlacement(BucketLayout.equal_width(64), key_hash=XXH64_SEED_42),
}
UNWEIGHTED: dict[str, Placement] = {
    "split": AutoSplit(),
    "pulsar split": AutoSplit.pulsar(),
    "exclusive": ExclusiveRanges({"1": [(0, 1000)], "2": [(1000, 65536)]}),
    "pulsar exclusive": ExclusiveRanges.pulsar({"1": [(0, 1000)], "2": [(1000, 65536)]}),
    "assigned by hand": AssignedRanges([(HashRange(0, 1000), "1"), (HashRange(1000, 65536), "2")]),
    "celeriant": AssignedRanges.celeriant([(HashRange(0, 1000), "1"), (HashRange(1000, 65536), "2")]),
}
weighted = pytest.mark.parametrize("placement", WEIGHTED.values(), ids=WEIGHTED.keys())
unweighted = pytest.mark.parametrize("placement", UNWEIGHTED.values(), ids=UNWEIGHTED.keys())
everyone = pytest.mark.parametrize(
    "placement", [*WEIGHTED.values(), *UNWEIGHTED.values()], ids=[*WEIGHTED.keys(), *UNWEIGHTED.keys()]
)


@weighted
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


@unweighted
def test_a_dispatcher_can_use_one_without_weights(placement: Placement) -> None:
    mine = placement.copy()
    for name in ("1", "2"):
        if name not in mine.consumers:
            mine.add(name)

    assert ("1", "2") == mine.consumers
    before = mine.ranges
    assert ("1", "2") == before.owners
    assert [] == mine.set_weight("1", 1)
    with pytest.raises(ArgumentError, match="weight is 2"):
        mine.set_weight("1", 2)
    assert mine.ranges.owner_of(b"k") == next(mine.ranges.walk(mine.ranges.slot_of(b"k")))
    moved = mine.remove("2")
    assert {"2"} == {move.old for move in moved}
    assert ("1",) == mine.ranges.owners


@everyone
def test_its_value_is_the_same_object_until_something_changes(placement: Placement) -> None:
    assert placement.ranges is placement.ranges
    assert placement.copy().ranges == placement.ranges


@everyone
def test_strangers_are_refused(placement: Placement) -> None:
    with pytest.raises(UnknownConsumerError):
        placement.remove("nobody")
    with pytest.raises(UnknownConsumerError):
        placement.set_weight("nobody", 1)


@everyone
def test_a_name_is_there_once(placement: Placement) -> None:
    mine = placement.copy()
    if "1" not in mine.consumers:
        mine.add("1")

    with pytest.raises(ConsumerExistsError):
        mine.add("1")


@everyone
def test_its_value_survives_json_and_it_survives_pickling(placement: Placement) -> None:
    again: Placement = pickle.loads(pickle.dumps(placement))  # noqa: S301  # our own bytes

    assert placement.ranges == RangeMap.from_json(placement.ranges.to_json())
    assert (placement, placement.ranges, placement.consumers) == (again, again.ranges, again.consumers)
