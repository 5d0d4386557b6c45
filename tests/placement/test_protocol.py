"""Every way to build a placement has the same face."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.errors import ArgumentError, ConsumerExistsError, KeySharedError, KeyTypeError, UnknownConsumerError
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


def started(placement: Placement) -> Placement:
    """Return a copy in which consumer 1 is known."""
    mine = placement.copy()
    if "1" not in mine.consumers:
        mine.add("1")
    return mine


@everyone
def test_its_value_is_the_same_object_until_something_changes(placement: Placement) -> None:
    mine = started(placement)
    first = mine.ranges

    assert first is mine.ranges
    mine.remove("1")
    assert first is not mine.ranges


@everyone
def test_a_copy_is_equal_and_shares_nothing_that_can_change(placement: Placement) -> None:
    mine = started(placement)
    twin = mine.copy()

    assert (mine, mine.ranges, mine.consumers) == (twin, twin.ranges, twin.consumers)
    twin.remove("1")
    assert mine not in [twin, "placement"]
    assert "1" in mine.consumers
    with pytest.raises(TypeError, match="unhashable"):
        hash(mine)


MISTAKES: list[tuple[str, Any, type[KeySharedError]]] = [
    ("add", ("1",), ConsumerExistsError),
    *(("add", (name,), ArgumentError) for name in ("", None, 5, "\ud800")),
    ("remove", ("nobody",), UnknownConsumerError),
    ("remove", (["1"],), UnknownConsumerError),
    ("set_weight", ("nobody", 1), UnknownConsumerError),
    *(("set_weight", ("1", weight), ArgumentError) for weight in (0, True, "1")),
]


@everyone
def test_a_mistake_raises_and_changes_nothing(placement: Placement) -> None:
    mine = started(placement)
    before = mine.copy()

    for method, arguments, error in MISTAKES:
        with pytest.raises(error):
            getattr(mine, method)(*arguments)
        assert before == mine


@everyone
@pytest.mark.parametrize("again", [lambda p: pickle.loads(pickle.dumps(p)), copy.deepcopy], ids=["pickle", "deepcopy"])  # noqa: S301  # our own bytes
def test_it_survives_pickling_and_deep_copies(placement: Placement, again: Callable[[Placement], Placement]) -> None:
    mine = started(placement)
    twin = again(mine)

    assert (mine, mine.ranges, mine.consumers) == (twin, twin.ranges, twin.consumers)
    assert mine.remove("1") == twin.remove("1")
    assert mine.ranges == RangeMap.from_json(mine.ranges.to_json()) == twin.ranges


@pytest.mark.parametrize("key", [None, 5])
@pytest.mark.parametrize("placement", [HashRing(), *UNWEIGHTED.values()], ids=["ring", *UNWEIGHTED.keys()])
def test_only_keys_have_owners(placement: Any, key: Any) -> None:
    with pytest.raises(ArgumentError if key is None else KeyTypeError):
        placement.owner(key)
