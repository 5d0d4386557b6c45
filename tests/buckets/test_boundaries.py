"""Boundaries from key statistics: hot slots stand alone, the rest is even, and what is refused."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from keyshared.buckets import (
    BucketLayout,
    BucketPlacement,
    HotSlot,
    balanced_boundaries,
    bucket_loads,
    hot_slots,
    imbalance,
    owner_loads,
)
from keyshared.errors import ArgumentError
from keyshared.placement import HashRange, RangeMap
from keyshared.ring import HashRing

Question = Callable[[], object]

FLAT = dict.fromkeys(range(0, 65_536, 64), 1)  # 1024 slots


def test_without_load_widths_are_equal() -> None:
    assert BucketLayout.equal_width(5) == balanced_boundaries({}, 5)
    assert BucketLayout.equal_width(5) == balanced_boundaries([0] * 65_536, 5)
    assert BucketLayout.equal_width(1) == balanced_boundaries({7: 1}, 1)


def test_a_hot_slot_gets_a_bucket_as_narrow_as_itself() -> None:
    skewed = FLAT | {6400: 500}
    layout = balanced_boundaries(skewed, 8)

    assert HashRange(6400, 6401) in layout.ranges
    assert (HotSlot(6400, 500, Fraction(500, 1523)),) == hot_slots(skewed, 8)
    assert 500 == max(bucket_loads(skewed, layout))
    # the rest of 1023 in seven buckets, cut on both sides of the hot slot
    assert 173 >= max(load for load in bucket_loads(skewed, layout) if load != 500)
    # without statistics a tenth of the rest shares a bucket with it
    assert 627 == max(bucket_loads(skewed, BucketLayout.equal_width(8)))


def test_no_slot_is_cut_and_what_is_left_over_goes_where_slots_are() -> None:
    histogram = {10: 1000, 11: 200, 12: 200, 13: 1000, 40_000: 100, 50_000: 100}

    layout = balanced_boundaries(histogram, 12)

    assert [0, 11, 12, 13, 14] == list(layout.starts[:5])
    assert 12 == len(layout)


def test_standing_alone_never_makes_the_heaviest_bucket_heavier() -> None:
    # Both 7s are hot (the mean is 6.75). Alone, they would leave one bucket for all of the rest.
    histogram: dict[int, int] = {10: 7, 20: 1, 30: 7} | dict.fromkeys(range(100, 112), 1)
    loads = bucket_loads(histogram, balanced_boundaries(histogram, 4))

    assert [10, 30] == [one.slot for one in hot_slots(histogram, 4)]
    assert 8 == max(loads)
    assert 12 == sum(load for slot, load in histogram.items() if slot >= 100)


def test_hashes_0_and_1_are_one_slot() -> None:
    histogram = {0: 4, 1: 5, 2: 1, 3: 1}
    layout = balanced_boundaries(histogram, 2)

    assert (2,) == layout.splits
    assert (9, 2) == bucket_loads(histogram, layout)
    assert (HotSlot(1, 9, Fraction(9, 11)),) == hot_slots(histogram, 2)
    assert 3 == len(balanced_boundaries({0: 1}, 3))


def test_boundaries_between_cold_slots_stand_halfway() -> None:
    # keys that nobody has seen yet are shared by the buckets on both sides
    assert (150,) == balanced_boundaries({100: 1, 200: 1}, 2).splits


def test_more_buckets_than_loaded_slots_halve_the_widest() -> None:
    layout = balanced_boundaries({100: 1, 200: 1}, 4)

    assert 4 == len(layout)
    assert max(len(piece) for piece in layout.ranges) < 32_768
    assert [1, 1] == [load for load in bucket_loads({100: 1, 200: 1}, layout) if load]
    assert 32_768 == len(balanced_boundaries({2: 1, 3: 1}, 32_768))


@pytest.mark.parametrize("histogram", [{}, {0: 3, 1: 1, 65_535: 2}, {9: 1, 40_000: 5, 700: 2}, FLAT | {6400: 500}])
def test_order_and_form_of_a_histogram_do_not_matter(histogram: dict[int, int]) -> None:
    whole = [histogram.get(slot, 0) for slot in range(65_536)]
    backwards = dict(sorted(histogram.items(), reverse=True))

    for n in (1, 2, 5, 64):
        assert balanced_boundaries(histogram, n) == balanced_boundaries(whole, n) == balanced_boundaries(backwards, n)


def test_fractions_are_exact() -> None:
    third = Fraction(1, 3)
    histogram: dict[int, int | Fraction] = {10: third, 20: third, 30: third, 40: 1}

    assert (1, 1) == bucket_loads(histogram, balanced_boundaries(histogram, 2))
    assert {Fraction} == {type(load) for load in bucket_loads({9: third, 50_000: third}, BucketLayout.equal_width(2))}


def test_loads_of_consumers_and_how_uneven_they_are() -> None:
    histogram = {100: 6, 20_000: 1, 40_000: 1}
    layout = balanced_boundaries(histogram, 2)
    published = BucketPlacement(BucketLayout.equal_width(2), ["a", "b"])
    ours = BucketPlacement(layout, ["a", "b"])

    assert {"a": 7, "b": 1} == owner_loads(histogram, published.ranges)
    assert {"a": 6, "b": 2} == owner_loads(histogram, ours.ranges)
    assert Fraction(7, 4) == imbalance(owner_loads(histogram, published.ranges).values())
    assert Fraction(3, 2) == imbalance(bucket_loads(histogram, layout))
    assert 1 == imbalance([0, 0])


def test_how_uneven_loads_are_is_exact_whatever_numbers_they_are() -> None:
    for loads, expected in (([1.5, 2.5], Fraction(5, 4)), ([1e308, 1e308], Fraction(1)), ([0.0], Fraction(1))):
        found = imbalance(loads)  # type: ignore[arg-type]  # floats are taken as they are
        assert (Fraction, expected) == (type(found), found)


@pytest.mark.parametrize("load", ["a", None, -1, True, float("nan"), float("inf")])
def test_what_is_compared_is_a_load(load: Any) -> None:
    with pytest.raises(ArgumentError, match="loads is"):
        imbalance([1, load])


def test_load_that_nobody_owns_is_told() -> None:
    half = RangeMap([(HashRange(0, 32_768), "a"), (HashRange(32_768, 32_769), "b")])

    assert {"a": 2, "b": 0, None: 3} == owner_loads({5: 2, 60_000: 3}, half)
    assert {"a": 2, "b": 0} == owner_loads({5: 2}, half)


def test_every_placement_over_as_many_slots_has_loads() -> None:
    ring = HashRing(["a", "b", "c"])

    assert 1024 == sum(owner_loads(FLAT, ring.ranges).values())
    assert imbalance(owner_loads(FLAT, ring.ranges).values()) > 1


@pytest.mark.parametrize(
    ("histogram", "text"),
    [
        ({-1: 1}, "slot is -1; it must be an int from 0 to 65535"),
        ({65_536: 1}, "slot is 65536; it must be an int"),
        ({True: 1}, "slot is True; it must be an int"),
        ({"a": 1}, "slot is 'a'; it must be an int"),
        ({5: -1}, "load is -1; it must be an int or a Fraction of at least 0 (slot 5)"),
        ({5: Fraction(-1, 2)}, "load is Fraction(-1, 2); it must be an int"),
        ({5: 1.5}, "load is 1.5; it must be an int or a Fraction"),
        ({5: Decimal(1)}, "load is Decimal('1'); it must be an int"),
        ({5: True}, "load is True; it must be an int"),
        ([1] * 65_535, "histogram is 'list'; it must be a mapping from slots to loads, or a sequence of 65536 loads"),
        ({1, 2}, "histogram is 'set'; it must be a mapping"),
    ],
)
def test_what_is_no_histogram_is_refused(histogram: Any, text: str) -> None:
    layout, ranges = BucketLayout.equal_width(2), HashRing(["a"]).ranges
    questions: list[Question] = [
        lambda: balanced_boundaries(histogram, 2),
        lambda: bucket_loads(histogram, layout),
        lambda: owner_loads(histogram, ranges),
        lambda: hot_slots(histogram, 2),
    ]
    for question in questions:
        with pytest.raises(ArgumentError) as caught:
            question()
        assert str(caught.value).startswith(text)


def test_other_arguments_are_checked_too() -> None:
    wrong: Any = None
    numbers: list[Any] = [0, 32_769, 2.0, None]
    for n in numbers:
        with pytest.raises(ArgumentError, match="n is"):
            balanced_boundaries({}, n)
        with pytest.raises(ArgumentError, match="n is"):
            hot_slots({}, n)
    with pytest.raises(ArgumentError, match="be a BucketLayout"):
        bucket_loads({}, wrong)
    with pytest.raises(ArgumentError, match="be a RangeMap over 65536 slots"):
        owner_loads({}, wrong)
    with pytest.raises(ArgumentError, match="be a RangeMap over 65536 slots"):
        owner_loads({}, RangeMap(slot_bits=8))
    with pytest.raises(ArgumentError, match="name at least one"):
        imbalance([])
