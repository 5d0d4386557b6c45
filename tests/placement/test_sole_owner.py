"""One consumer owns everything."""

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
    with pytest.raises(ArgumentError):
        SoleOwner("")
