"""One consumer owns everything."""

from math import inf, nan
from typing import Any

import pytest

from keyshared.errors import ArgumentError, ConsumerExistsError, UnknownConsumerError
from keyshared.placement import SoleOwner


def test_who_joins_stands_by() -> None:
    placement = SoleOwner("ann")

    assert [] == placement.add("bob") == placement.set_weight("bob", 3)
    assert (("ann", "bob"), ("ann",)) == (placement.consumers, placement.ranges.owners)


def test_when_the_owner_leaves_nobody_owns_anything() -> None:
    placement = SoleOwner("ann")
    placement.add("bob")
    twin = placement.copy()

    assert [] == placement.remove("bob")
    assert [("ann", None)] == [(move.old, move.new) for move in placement.remove("ann")]
    assert ((), ("ann",)) == (placement.ranges.owners, twin.ranges.owners)


def test_mistakes_raise() -> None:
    with pytest.raises(ConsumerExistsError):
        SoleOwner("ann").add("ann")
    with pytest.raises(UnknownConsumerError):
        SoleOwner("ann").remove("bob")
    with pytest.raises(UnknownConsumerError):
        SoleOwner("ann").set_weight("bob", 1)
    with pytest.raises(UnknownConsumerError):
        SoleOwner("ann").remove(["ann"])  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("name", ["", 5, None, ["ann"], "\ud800"])
def test_a_name_is_a_name(name: Any) -> None:
    placement = SoleOwner("ann")
    with pytest.raises(ArgumentError):
        placement.add(name)
    with pytest.raises(ArgumentError):
        SoleOwner(name or "")
    assert ("ann",) == placement.consumers


@pytest.mark.parametrize("weight", ["heavy", nan, inf, -1, 0, True])
def test_a_weight_that_means_nothing_is_a_weight_all_the_same(weight: Any) -> None:
    placement = SoleOwner("ann")
    with pytest.raises(ArgumentError, match="weight is"):
        placement.add("bob", weight=weight)
    with pytest.raises(ArgumentError, match="weight is"):
        placement.set_weight("ann", weight)
    assert ("ann",) == placement.consumers
