"""Boundaries against every way to cut a small histogram, and cuts that come to mind first, which must be caught."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import accumulate, combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.buckets import BucketLayout, balanced_boundaries, bucket_loads, hot_slots

slots = st.one_of(st.integers(0, 12), st.integers(65_530, 65_535), st.integers(0, 65_535))
loads = st.one_of(st.integers(0, 3), st.integers(0, 40), st.fractions(0, 10, max_denominator=6))
histograms = st.dictionaries(slots, loads, max_size=8)

Histogram = Mapping[int, int | Fraction]
Cut = Callable[[Histogram, int], BucketLayout]
Parts = list[list[tuple[int, int | Fraction]]]


def _atoms(histogram: Histogram) -> list[tuple[int, int | Fraction]]:
    """Slots with load in order; 0 and 1 are always together."""
    merged: dict[int, int | Fraction] = {}
    for slot, load in histogram.items():
        merged[max(slot, 1)] = merged.get(max(slot, 1), 0) + load
    return sorted((slot, load) for slot, load in merged.items() if load)


def _all_cuts(atoms: list[tuple[int, int | Fraction]], n: int) -> Iterator[Parts]:
    for buckets in range(1, min(n, len(atoms)) + 1):
        for inner in combinations(range(1, len(atoms)), buckets - 1):
            yield [atoms[start:stop] for start, stop in pairwise((0, *inner, len(atoms)))]


def _heaviest(parts: Parts) -> int | Fraction:
    return max((sum(load for _, load in part) for part in parts), default=0)


def _goals(parts: Parts, hot: list[int]) -> tuple[int | Fraction, list[bool], int | Fraction]:
    """How good a cut is, goal by goal; less is better. ``hot`` is in the order in which slots are to stand alone."""
    single = {part[0][0] for part in parts if len(part) == 1}
    others = [part for part in parts if len(part) > 1 or part[0][0] not in hot]
    return _heaviest(parts), [slot not in single for slot in hot], _heaviest(others)


def _parts(atoms: list[tuple[int, int | Fraction]], layout: BucketLayout) -> Parts:
    found: dict[int, list[tuple[int, int | Fraction]]] = {}
    for slot, load in atoms:
        found.setdefault(layout.bucket_of(slot), []).append((slot, load))
    return list(found.values())


@given(histogram=histograms, n=st.integers(1, 9))
def test_no_cut_is_better_in_any_of_the_three_goals(histogram: Histogram, n: int) -> None:
    layout = balanced_boundaries(histogram, n)

    assert n == len(layout)
    atoms = _atoms(histogram)
    assert sum(histogram.values()) == sum(bucket_loads(histogram, layout)) == sum(load for _, load in atoms)
    if not atoms:
        assert BucketLayout.equal_width(n) == layout
        return
    mean = Fraction(sum(load for _, load in atoms)) / n
    hot = [slot for load, slot in sorted((-load, slot) for slot, load in atoms if load > mean)]
    assert hot == [one.slot for one in hot_slots(histogram, n)]
    best = min(_goals(parts, hot) for parts in _all_cuts(atoms, n))
    assert best == _goals(_parts(atoms, layout), hot)


def _equal_width(histogram: Histogram, n: int) -> BucketLayout:
    return BucketLayout.equal_width(n) if histogram else BucketLayout.equal_width(1)


def _quantiles(histogram: Histogram, n: int) -> BucketLayout:
    """Cut where the running total passes each n-th of the whole."""
    atoms = _atoms(histogram)
    running = list(accumulate(load for _, load in atoms))
    passed = (bisect_left(running, Fraction(i * running[-1], n)) for i in range(1, n))
    return BucketLayout.from_splits(sorted({atoms[i][0] for i in passed if atoms[i][0] > 1}))


def _fill_to_the_mean(histogram: Histogram, n: int) -> BucketLayout:
    """Close a bucket as soon as it holds its mean."""
    atoms = _atoms(histogram)
    mean = Fraction(sum(load for _, load in atoms), n)
    splits: list[int] = []
    held = Fraction(0)
    for slot, load in atoms:
        if held >= mean and len(splits) < n - 1:
            splits.append(slot)
            held = Fraction(0)
        held += load
    return BucketLayout.from_splits(splits)


def _as_many_slots(histogram: Histogram, n: int) -> BucketLayout:
    """Give every bucket as many loaded slots."""
    atoms = _atoms(histogram)
    return BucketLayout.from_splits(sorted({atoms[i * len(atoms) // n][0] for i in range(1, n)} - {1}))


SKEWED: list[dict[int, int]] = [
    {10: 1, 20: 5, 30: 1, 40: 5, 50: 1, 60: 1},
    {10: 3, 20: 3, 30: 3, 40: 9, 50: 1, 60: 1},
    {10: 1, 20: 1, 30: 1, 40: 1, 50: 30, 60: 2},
]


def _faults(cut: Cut) -> int:
    """In how many of the histograms a cut is heavier than it must be."""
    faults = 0
    for histogram in SKEWED:
        for n in range(2, 5):
            lightest = min(_heaviest(parts) for parts in _all_cuts(_atoms(histogram), n))
            faults += max(bucket_loads(histogram, cut(histogram, n))) > lightest
    return faults


@pytest.mark.parametrize("cut", [_equal_width, _quantiles, _fill_to_the_mean, _as_many_slots])
def test_the_cuts_that_come_to_mind_first_are_caught(cut: Cut) -> None:
    assert 0 == _faults(balanced_boundaries)
    assert _faults(cut) > 1
