"""The spread of buckets against the obvious one, and against every balanced spread there is."""

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.errors import ConsumerExistsError, UnknownConsumerError

names = st.sampled_from("abcdef")
weights = st.one_of(st.just(1), st.integers(1, 9), st.fractions(Fraction(1, 50), 50))
operations = st.lists(st.tuples(st.sampled_from(["add", "add", "remove", "set_weight"]), names, weights), max_size=12)

Owners = list[str | None]
Build = Callable[[BucketLayout, list[str]], BucketPlacement]


def _owners(placement: BucketPlacement) -> Owners:
    return [placement.owner(bucket) for bucket in range(len(placement.layout))]


def _slow_quotas(weights: Mapping[str, Fraction | int], seats: int) -> Counter[str]:
    """Deal the buckets one by one: to the first who has none, else to whoever has least for their weight."""
    held: Counter[str] = Counter()
    order = list(weights)

    def claim(name: str) -> tuple[bool, Fraction, int]:
        price = Fraction(2 * held[name] + 1) / weights[name] if held[name] else Fraction(0)
        return held[name] > 0, price, order.index(name)

    for _ in range(seats if order else 0):
        held[min(order, key=claim)] += 1
    return held


def _apply(placement: BucketPlacement, operation: str, name: str, weight: Fraction | int) -> bool:
    try:
        if operation == "remove":
            placement.remove(name)
        else:
            getattr(placement, operation)(name, weight=weight)
    except (ConsumerExistsError, UnknownConsumerError):
        return False
    return True


@given(n=st.integers(1, 60), ops=operations)
def test_counts_are_those_of_the_slow_deal_and_only_what_must_moves(
    n: int, ops: list[tuple[str, str, Fraction | int]]
) -> None:
    placement = BucketPlacement(BucketLayout.equal_width(n))
    there: dict[str, Fraction | int] = {}
    for operation, name, weight in ops:
        before, held = _owners(placement), Counter(_owners(placement))
        if not _apply(placement, operation, name, weight):
            continue
        there = {other: w for other, w in there.items() if operation != "remove" or other != name}
        there |= {} if operation == "remove" else {name: weight}
        after, now = _owners(placement), Counter(_owners(placement))
        placement.check_invariants()
        assert list(there) == list(placement.consumers)
        assert _slow_quotas(there, n) == Counter(owner for owner in after if owner is not None)
        moves = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        # nothing moves twice: as many moves as the counts differ
        assert sum((now - held).values()) == len(moves)
        # and only to, or only from, the one who changed
        assert {old for old, _ in moves} <= {name} or {new for _, new in moves} <= {name}


@given(n=st.integers(1, 60), ops=operations)
def test_equal_consumers_never_differ_by_two_buckets(n: int, ops: list[tuple[str, str, Fraction | int]]) -> None:
    placement = BucketPlacement(BucketLayout.equal_width(n))
    for operation, name, _ in ops:
        _apply(placement, operation, name, 1)
        counts = [len(placement.buckets_of(name)) for name in placement.consumers]
        assert not counts or max(counts) - min(counts) <= 1


def _fewest_moves(before: Owners, consumers: list[str]) -> int:
    """Of all balanced spreads, look for the one that is nearest."""
    least = len(before)
    for spread in product(consumers, repeat=len(before)):
        counts = [spread.count(name) for name in consumers]
        if max(counts) - min(counts) <= 1:
            least = min(least, sum(old != new for old, new in zip(before, spread, strict=True)))
    return least


def _extra_moves(build: Build) -> int:
    """How many moves more than any balanced spread needs, over all small histories of one join and one leave."""
    extra = 0
    for n, k in product(range(1, 7), range(1, 4)):
        for position in range(k + 1):
            there = [name for name in "abcd"[: k + 1] if name != "abcd"[position]]
            placement = build(BucketLayout.equal_width(n), there)
            for change, name in ((placement.add, "abcd"[position]), (placement.remove, there[0])):
                before = _owners(placement)
                change(name)
                moved = sum(old != new for old, new in zip(before, _owners(placement), strict=True))
                extra += moved - _fewest_moves(before, list(placement.consumers))
    return extra


def test_no_balanced_spread_is_nearer_and_the_published_one_is_caught() -> None:
    assert 0 == _extra_moves(BucketPlacement)
    assert _extra_moves(BucketPlacement.pulsar) > 50


def _largest_remainders(weights: Mapping[str, Fraction | int], seats: int) -> Counter[str]:
    """The apportionment that comes to mind first."""
    total = sum(weights.values())
    exact = {name: Fraction(weight * seats) / total for name, weight in weights.items()}
    held = Counter({name: int(share) for name, share in exact.items()})
    for name in sorted(exact, key=lambda name: int(exact[name]) - exact[name])[: seats - held.total()]:
        held[name] += 1
    return held


@pytest.mark.parametrize(("quotas", "gained"), [(_largest_remainders, {"new", "a"}), (_slow_quotas, {"new"})])
def test_rounding_by_largest_remainders_would_make_others_gain(
    quotas: Callable[[Mapping[str, Fraction | int], int], Counter[str]], gained: set[str]
) -> None:
    """Why the counts come from a divisor method: with the other one a join moves buckets between those who stay."""
    members: dict[str, Fraction | int] = {"a": 1, "b": 11, "c": 20}

    assert gained == set(quotas(members | {"new": 3}, 14) - quotas(members, 14))


bucket_loads = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 60)), min_size=1, max_size=14)


def _burdens(placement: BucketPlacement, loads: list[int]) -> dict[str, Fraction]:
    """Load by weight of everybody."""
    return {
        name: Fraction(sum(loads[bucket] for bucket in placement.buckets_of(name)))
        / Fraction(placement.weight_of(name))
        for name in placement.consumers
    }


@given(loads=bucket_loads, ops=operations)
def test_by_load_too_a_change_moves_only_what_concerns_it_and_to_nobodys_harm(
    loads: list[int], ops: list[tuple[str, str, Fraction | int]]
) -> None:
    placement = BucketPlacement.by_load(BucketLayout.equal_width(len(loads)), loads)
    for operation, name, weight in ops:
        before, burdens = _owners(placement), _burdens(placement, loads)
        if not _apply(placement, operation, name, weight):
            continue
        placement.check_invariants()
        after, now = _owners(placement), _burdens(placement, loads)
        moves = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        assert {old for old, _ in moves} <= {name} or {new for _, new in moves} <= {name}
        assert None not in after or not placement.consumers
        if operation != "add" or len(now) == 1:
            continue
        # nobody is heavier for a join, and no bucket is left that would make somebody lighter at the newcomer's
        assert all(now[other] <= burdens[other] for other in burdens)
        assert now[name] <= max(burdens.values())
        for bucket, owner in enumerate(after):
            assert owner is not None
            worthless = owner == name or not loads[bucket]
            assert worthless or now[name] + Fraction(loads[bucket]) / Fraction(weight) >= now[owner]


@given(loads=bucket_loads, k=st.integers(1, 5))
def test_dealt_by_load_nobody_is_above_the_mean_by_the_heaviest_bucket(loads: list[int], k: int) -> None:
    placement = BucketPlacement.by_load(BucketLayout.equal_width(len(loads)), loads, list("abcde"[:k]))

    held = _burdens(placement, loads)
    assert sum(loads) == sum(held.values())
    assert max(held.values()) <= Fraction(sum(loads), k) + max(loads) * Fraction(k - 1, k)
    # as many buckets each, give or take one, where load does not tell them apart
    if len(set(loads)) == 1:
        counts = [len(placement.buckets_of(name)) for name in placement.consumers]
        assert max(counts) - min(counts) <= 1


def test_as_many_buckets_each_is_caught_where_one_bucket_is_hot() -> None:
    loads = [50, *[1] * 15]
    layout = BucketLayout.equal_width(16)

    by_load = BucketPlacement.by_load(layout, loads, list("abcd"))
    by_number = BucketPlacement(layout, list("abcd"))
    assert {50, 5} == set(_burdens(by_load, loads).values())
    assert 53 == max(_burdens(by_number, loads).values())
