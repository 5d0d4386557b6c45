"""Buckets and their owners: balance, least movement, weights, the published spread, and what is refused."""

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from keyshared.buckets import BUCKET_HASH, BucketLayout, BucketPlacement
from keyshared.errors import ArgumentError, ConsumerExistsError, InvariantError, UnknownConsumerError
from keyshared.hashing import XXH64_SEED_42
from keyshared.placement import HashRange, Moved, RangeMap

EIGHT = BucketLayout.equal_width(8)
UNEVEN = BucketLayout([0, 2, 100, 40_001])

Build = Callable[[BucketLayout], BucketPlacement]
Change = Callable[[], object]


def _by_load(layout: BucketLayout) -> BucketPlacement:
    return BucketPlacement.by_load(layout, range(1, len(layout) + 1))


every = pytest.mark.parametrize(
    "build", [BucketPlacement, BucketPlacement.pulsar, _by_load], ids=["ours", "pulsar", "by load"]
)


def _owners(placement: BucketPlacement) -> list[str | None]:
    return [placement.owner(bucket) for bucket in range(len(placement.layout))]


def _counts(placement: BucketPlacement) -> list[int]:
    return [len(placement.buckets_of(name)) for name in placement.consumers]


@every
def test_without_consumers_every_bucket_is_a_hole(build: Build) -> None:
    placement = build(UNEVEN)

    assert [None] * 4 == _owners(placement)
    assert RangeMap(key_hash=BUCKET_HASH) == placement.ranges
    assert () == placement.consumers


@every
def test_the_first_gets_everything_and_the_last_leaves_nothing_owned(build: Build) -> None:
    placement = build(UNEVEN)

    assert [Moved(0, 65536, None, "a")] == placement.add("a")
    assert [Moved(0, 65536, "a", None)] == placement.remove("a")
    assert build(UNEVEN) == placement


def test_a_join_takes_from_those_who_own_most() -> None:
    placement = BucketPlacement(EIGHT, ["a", "b", "c"])
    assert [3, 3, 2] == _counts(placement)

    placement.add("d")
    assert [2, 2, 2, 2] == _counts(placement)
    assert list("aadbbdcc") == _owners(placement)


def test_a_leave_gives_to_those_who_own_least() -> None:
    placement = BucketPlacement(EIGHT, ["a", "b", "c"])

    placement.remove("b")
    assert list("aaaacccc") == _owners(placement)


def test_the_same_calls_give_the_same_owners_and_other_orders_other_ones() -> None:
    there_and_back = BucketPlacement(EIGHT, ["a", "b", "c"])
    there_and_back.remove("a")
    there_and_back.add("a")

    again = BucketPlacement(EIGHT, ["a", "b", "c"])
    again.remove("a")
    again.add("a")
    at_once = BucketPlacement(EIGHT, ["b", "c", "a"])

    assert again == there_and_back
    assert at_once != there_and_back
    assert [3, 3, 2] == _counts(at_once) == _counts(there_and_back)


@every
def test_who_finds_no_bucket_left_owns_nothing_until_there_is_one(build: Build) -> None:
    placement = build(BucketLayout.equal_width(2))
    for name in "abcd":
        placement.add(name)

    assert ("a", "b", "c", "d") == placement.consumers
    assert Counter([1, 1, 0, 0]) == Counter(_counts(placement))
    placement.check_invariants()


def test_with_too_few_buckets_the_first_keep_theirs() -> None:
    placement = BucketPlacement(BucketLayout.equal_width(2), ["a", "b"])

    assert [] == placement.add("c", weight=100)
    assert [Moved(0, 32768, "a", "c")] == placement.remove("a")


def test_weights_share_in_proportion() -> None:
    sixteen = BucketLayout.equal_width(16)

    assert [4, 8, 4] == _counts(BucketPlacement(sixteen, {"a": 1, "b": 2, "c": 1}))
    assert [2, 14] == _counts(BucketPlacement(sixteen, {"a": 0.25, "b": Fraction(7, 4)}))
    assert [1, 1, 14] == _counts(BucketPlacement(sixteen, {"a": 1e-9, "b": 1e-12, "c": 1e9}))


def test_a_weight_moves_buckets_only_to_it_or_only_from_it() -> None:
    placement = BucketPlacement(EIGHT, ["a", "b", "c"])

    assert {"b"} == {move.new for move in placement.set_weight("b", 4)}
    assert {"b"} == {move.old for move in placement.set_weight("b", Fraction(1, 2))}
    assert Fraction(1, 2) == placement.weight_of("b")
    assert [] == placement.set_weight("b", 0.5)


def test_the_least_movement_is_a_fraction_of_what_the_published_spread_moves() -> None:
    layout = BucketLayout.equal_width(1024)

    assert (204, (308, 514)) == (_least(layout, 4), _published(layout, 4))
    assert (128, (292, 515)) == (_least(layout, 7), _published(layout, 7))


def _least(layout: BucketLayout, consumers: int) -> int:
    return _moved(BucketPlacement(layout, map(str, range(consumers))), "new")


def _published(layout: BucketLayout, consumers: int) -> tuple[int, int]:
    """The least and the most that one more consumer moves, depending on where its name sorts."""
    names = [f"c{i}" for i in range(consumers + 1)]
    found = [_moved(BucketPlacement.pulsar(layout, [n for n in names if n != new]), new) for new in names]
    return min(found), max(found)


def _moved(placement: BucketPlacement, new: str) -> int:
    before = _owners(placement)
    placement.add(new)
    return sum(old != now for old, now in zip(before, _owners(placement), strict=True))


def test_the_published_spread_moves_buckets_between_others() -> None:
    placement = BucketPlacement.pulsar(EIGHT, ["b", "c"])

    assert {"a", "b"} == {move.new for move in placement.add("a")}
    assert BucketPlacement.pulsar(EIGHT, ["a", "b", "c"]).ranges == placement.ranges


def test_the_published_spread_does_not_depend_on_the_order_of_joins() -> None:
    one, other = BucketPlacement.pulsar(EIGHT, ["a", "b", "c"]), BucketPlacement.pulsar(EIGHT)
    for name in ("c", "a", "x", "b"):
        other.add(name)
    other.remove("x")

    assert one.ranges == other.ranges


@every
def test_adjacent_buckets_of_a_consumer_are_one_range(build: Build) -> None:
    placement = build(EIGHT)
    placement.add("a")

    assert (HashRange(0, 65536),) == placement.ranges.ranges_of("a")
    assert tuple(range(8)) == placement.buckets_of("a")


def test_the_published_spread_sorts_names_as_java_does() -> None:
    # Java compares UTF-16 units, so a character beyond U+FFFF stands before U+FFFD; in Python it stands after.
    placement = BucketPlacement.pulsar(BucketLayout.equal_width(2), ["\N{REPLACEMENT CHARACTER}", "\U0001f511"])

    assert ["\U0001f511", "\N{REPLACEMENT CHARACTER}"] == _owners(placement)


def test_the_published_spread_takes_no_weights() -> None:
    placement = BucketPlacement.pulsar(EIGHT, ["a", "b"])
    before = placement.copy()

    changes: list[Change] = [lambda: placement.set_weight("a", 2), lambda: placement.add("c", weight=0.5)]
    for change in changes:
        with pytest.raises(ArgumentError, match="Pulsar's spread knows no weights"):
            change()
    assert before == placement
    assert [] == placement.set_weight("a", 1.0)


def test_by_load_a_hot_bucket_counts_for_what_it_is() -> None:
    placement = BucketPlacement.by_load(EIGHT, [7, 1, 1, 1, 1, 1, 1, 1], ["a", "b"])
    assert list("abbbbbbb") == _owners(placement)

    assert {"c"} == {move.new for move in placement.add("c")}
    assert [1, 4, 3] == _counts(placement)
    assert {"a"} == {move.old for move in placement.remove("a")}
    assert [4, 4] == _counts(placement)
    assert "c" == placement.owner(0)


def test_by_load_a_weight_moves_buckets_only_to_it_or_only_from_it() -> None:
    placement = BucketPlacement.by_load(EIGHT, [Fraction(1, 2)] * 8, ["a", "b"])

    assert {"b"} == {move.new for move in placement.set_weight("b", 3)}
    assert [2, 6] == _counts(placement)
    assert {"b"} == {move.old for move in placement.set_weight("b", 1)}
    assert [4, 4] == _counts(placement)
    assert [] == placement.set_weight("b", 1.0)


def test_by_load_buckets_without_load_are_shared_by_number() -> None:
    placement = BucketPlacement.by_load(EIGHT, [0] * 8, ["a", "b"])
    assert [4, 4] == _counts(placement)
    placement.add("c")
    assert [2, 3, 3] == sorted(_counts(placement))

    idle = BucketPlacement.by_load(EIGHT, [1, 1, 0, 0, 0, 0, 0, 0], ["a", "b"])
    assert [4, 4] == _counts(idle)
    idle.add("c")
    assert [4, 4, 0] == _counts(idle)  # nobody gets lighter by it, so nothing moves
    idle.remove("a")
    assert [4, 4] == _counts(idle)
    for name in "bc":
        idle.remove(name)
    assert [None] * 8 == _owners(idle)


def test_new_statistics_are_taken_up_without_a_move() -> None:
    old = BucketPlacement(EIGHT, ["a", "b"])
    fresh = BucketPlacement.from_ranges(EIGHT, old.ranges, old.consumers, loads=[8, 1, 1, 1, 1, 1, 1, 1])

    assert old.ranges == fresh.ranges
    assert old != fresh
    assert {"a"} == {move.old for move in fresh.add("c")}
    assert fresh == pickle.loads(pickle.dumps(fresh))  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("loads", "text"),
    [
        ([1] * 7, "loads is 7; it must be as many as buckets"),
        ([-1] * 8, "load is -1; it must be an int or a Fraction of at least 0"),
        ([1.0] * 8, "load is 1.0"),
        ([True] * 8, "load is True"),
    ],
)
def test_loads_are_exact_and_one_for_each_bucket(loads: Any, text: str) -> None:
    for build in (
        BucketPlacement.by_load,
        lambda *given: BucketPlacement.from_ranges(EIGHT, RangeMap(), loads=given[1]),
    ):
        with pytest.raises(ArgumentError, match=text):
            build(EIGHT, loads)
    layout: Any = 8
    with pytest.raises(ArgumentError, match="be a BucketLayout"):
        BucketPlacement.by_load(layout, loads)


def test_a_placement_is_rebuilt_from_its_value() -> None:
    placement = BucketPlacement(EIGHT, {"a": 1, "b": 2})
    placement.add("c")
    placement.remove("a")
    data = placement.ranges.to_json()

    ranges = RangeMap.from_json(data, key_hash=BUCKET_HASH)
    again = BucketPlacement.from_ranges(EIGHT, ranges, {"b": 2, "c": 1})
    assert placement == again
    assert placement.add("d") == again.add("d")


def test_a_foreign_value_is_balanced_by_the_next_change() -> None:
    published = BucketPlacement.pulsar(EIGHT, ["a", "b"]).ranges
    assert _owners(BucketPlacement.pulsar(EIGHT, ["a", "b"])) == _owners(BucketPlacement.from_ranges(EIGHT, published))

    all_of_a = RangeMap([(HashRange(0, 65536), "a")], key_hash=XXH64_SEED_42)
    placement = BucketPlacement.from_ranges(EIGHT, all_of_a, ["a", "b"])
    assert [8, 0] == _counts(placement)
    placement.add("c")
    assert [3, 3, 2] == _counts(placement)
    assert XXH64_SEED_42 == placement.ranges.key_hash


@pytest.mark.parametrize(
    ("ranges", "consumers", "text"),
    [
        (RangeMap(slot_bits=8), None, "ranges is .* be a RangeMap over 65536 slots"),
        ({}, None, "ranges is {}; it must be a RangeMap over"),
        (RangeMap.from_stops([100, 65536], ["a", "b"]), None, "give every bucket of the layout to one consumer"),
        (RangeMap.from_stops([8192, 65536], ["a", "b"]), ["a"], "consumers is .* name every owner, also 'b'"),
    ],
)
def test_a_value_that_does_not_fit_the_layout_is_refused(ranges: Any, consumers: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        BucketPlacement.from_ranges(EIGHT, ranges, consumers)


@every
@pytest.mark.parametrize("name", ["", None, 7, "\ud800", ["a"]])
def test_a_name_that_can_never_work_is_refused(build: Build, name: Any) -> None:
    placement = build(EIGHT)
    with pytest.raises(ArgumentError, match="name is"):
        placement.add(name)
    assert build(EIGHT) == placement


@every
@pytest.mark.parametrize("weight", [0, -1, True, float("inf"), float("nan"), "2", Decimal(1), None])
def test_a_weight_that_can_never_work_is_refused(build: Build, weight: Any) -> None:
    placement = build(EIGHT)
    placement.add("a")
    before = placement.copy()
    changes: list[Change] = [
        lambda: placement.add("b", weight=weight),
        lambda: placement.set_weight("a", weight),
    ]
    for change in changes:
        with pytest.raises(ArgumentError, match=r"weight is .* be a finite number above 0"):
            change()
    assert before == placement


@every
def test_a_name_is_there_once_or_not_at_all(build: Build) -> None:
    placement = build(EIGHT)
    placement.add("a")
    before = placement.copy()
    gone: Any
    for gone in ("b", None):
        for change in (placement.remove, placement.buckets_of, placement.weight_of):
            with pytest.raises(UnknownConsumerError):
                change(gone)
        with pytest.raises(UnknownConsumerError):
            placement.set_weight(gone, 2)
    with pytest.raises(ConsumerExistsError):
        placement.add("a")
    with pytest.raises(ConsumerExistsError):
        BucketPlacement(EIGHT, ["a", "a"])
    assert before == placement


def test_a_constructor_refuses_what_is_no_layout_and_one_text_for_several_names() -> None:
    layout: Any = [0, 4096]
    with pytest.raises(ArgumentError, match="be a BucketLayout"):
        BucketPlacement(layout)
    with pytest.raises(ArgumentError, match="be a collection of names"):
        BucketPlacement(EIGHT, "ab")
    with pytest.raises(ArgumentError, match="bucket is 8"):
        BucketPlacement(EIGHT).owner(8)


@every
def test_copies_are_independent(build: Build) -> None:
    placement = build(EIGHT)
    placement.add("a")
    twins = [placement.copy(), copy.deepcopy(placement), pickle.loads(pickle.dumps(placement))]  # noqa: S301 - ours
    for twin in twins:
        assert placement == twin
        twin.add("b")
        assert placement != twin
    assert ("a",) == placement.consumers
    assert placement != "a"
    assert "<BucketPlacement of 8 buckets over 1 consumers>" == repr(placement)


def test_the_value_is_built_once_for_each_change() -> None:
    placement = BucketPlacement(EIGHT, ["a"])
    first = placement.ranges

    assert first is placement.ranges
    placement.add("b")
    assert first is not placement.ranges


def _one_place_too_few(placement: BucketPlacement) -> None:
    placement._owners = placement._owners[1:]


def _owner_who_left(placement: BucketPlacement) -> None:
    placement._owners = ("ghost", *placement._owners[1:])


def _stale_value(placement: BucketPlacement) -> None:
    placement._owners = placement._owners[::-1]


@pytest.mark.parametrize(
    ("tamper", "fact"),
    [
        (_one_place_too_few, "every bucket has a place for its owner"),
        (_owner_who_left, "buckets belong to consumers that are there"),
        (_stale_value, "the ranges are those of the buckets"),
    ],
)
def test_a_placement_that_was_tampered_with_is_found_out(tamper: Callable[[BucketPlacement], None], fact: str) -> None:
    placement = BucketPlacement(EIGHT, ["a", "b"])
    placement.check_invariants()
    tamper(placement)
    with pytest.raises(InvariantError, match=fact):
        placement.check_invariants()
