"""One consumer owns everything."""

from math import inf, nan
from typing import Any

import pytest

from keyshared.errors import ArgumentError, ConsumerExistsError, InvariantError, KeyTypeError, UnknownConsumerError
from keyshared.placement import AssignedRanges, AutoSplit, ExclusiveRanges, HashRange, SoleOwner
from keyshared.ring import HashRing
from keyshared.window import InFlightWindow


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


@pytest.mark.parametrize(
    "placement",
    [
        SoleOwner("ann"),
        HashRing(["ann"]),
        AutoSplit(["ann"]),
        AssignedRanges([(HashRange(0, 65536), "ann")]),
        ExclusiveRanges({"ann": [(0, 65536)]}),
    ],
    ids=lambda placement: type(placement).__name__,
)
def test_every_builder_says_who_owns_a_key_and_serves_a_window_without_a_dispatcher(placement: Any) -> None:
    window = InFlightWindow(placement, capacity=9)
    window.add("ann", limit=5)
    (entry,) = window.offer(0, b"k")

    assert ("ann", "ann") == (placement.owner("k"), entry.consumer and entry.consumer.name)
    placement.check_invariants()


@pytest.mark.parametrize("owners", [None, 7, "ann", {"k": "ann"}], ids=repr)
def test_what_cannot_say_who_owns_a_key_is_refused_before_a_message_is(owners: Any) -> None:
    with pytest.raises(ArgumentError, match=r"owners is .*it has no owner"):
        InFlightWindow(owners, capacity=9)


def test_nobody_owns_a_key_where_there_is_no_owner() -> None:
    assert None is SoleOwner().owner(b"k")
    with pytest.raises(ArgumentError):
        SoleOwner("ann").owner(None)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(KeyTypeError):
        SoleOwner("ann").owner(5)  # type: ignore[arg-type]  # on purpose


def test_equal_ones_have_the_same_owner_and_consumers() -> None:
    placement = SoleOwner("ann")
    twin = placement.copy()

    assert placement == twin != SoleOwner("bob")
    twin.add("bob")
    assert placement != twin
    assert placement != "ann"
    assert "<SoleOwner 'ann' of 2 consumers>" == repr(twin)


def test_an_owner_that_is_no_consumer_is_found() -> None:
    placement = SoleOwner("ann")
    placement._consumers.clear()

    with pytest.raises(InvariantError, match="the owner is a consumer"):
        placement.check_invariants()


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
