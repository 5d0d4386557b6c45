"""Under constant load a topic comes to rest, and never does more than what parts it from there.

Load lies on the ring of hashes, not on segments: what is split shares its traffic out by range, and what is merged adds
it up. How many changes there may be is counted beforehand, by `distance`, which knows the ring and the thresholds only.
"""

from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.errors import ArgumentError
from keyshared.placement import HashRange
from keyshared.segments import (
    AutoScale,
    LastActions,
    Merge,
    NoAction,
    Rates,
    Rebucket,
    SegmentLoad,
    SegmentMap,
    Split,
    apply_decision,
    autoscale,
    decide,
)

BLOCKS = 16  # of equal width, each with a traffic of its own
STEP = 10  # ms between two evaluations
AT_REST = 12  # evaluations without an action, longer than every pause of any policy here


@dataclass(frozen=True)
class World:
    """What stays as it is."""

    policy: AutoScale
    consumers: int
    traffic: tuple[tuple[int, ...], ...]  # of each block, in each of the four rates

    def rates(self, span: HashRange) -> Rates:
        """The traffic of a range of hashes, exactly."""
        width = 65_536 // BLOCKS
        total = [Fraction(0)] * 4
        for block, rates in enumerate(self.traffic):
            common = min(span.stop, (block + 1) * width) - max(span.start, block * width)
            if common > 0:
                total = [value + Fraction(rate * common, width) for value, rate in zip(total, rates, strict=True)]
        return Rates(*total)

    def is_hot(self, span: HashRange) -> bool:
        return any(rate > most for rate, most in zip(self.rates(span).values, self.policy.split.values, strict=True))

    def hot_halves(self, span: HashRange) -> int:
        """How many splits it takes until nothing of a range is above a threshold."""
        if len(span) == 1 or not self.is_hot(span):
            return 0
        middle = span.start + (len(span) + 1) // 2
        return 1 + self.hot_halves(HashRange(span.start, middle)) + self.hot_halves(HashRange(middle, span.stop))

    def distance(self, segments: SegmentMap) -> dict[type, int]:
        """How often a topic may change before it is at rest."""
        n = len(segments.active)
        splits = max(self.consumers - n, 0) + sum(self.hot_halves(segment.range) for segment in segments.active)
        return {Split: splits, Merge: max(n + splits - self.policy.min_segments, 0), Rebucket: 1 + splits}


def any_world(choose: Random) -> tuple[World, SegmentMap]:
    """Small thresholds of all proportions, and traffic around them; what `AutoScale` refuses is drawn again."""
    unit = choose.choice([1, 10, 100])
    while True:
        try:
            policy = AutoScale(
                max_segments=choose.choice([2, 4, 9, 64]),
                min_segments=choose.choice([1, 1, 2]),
                max_merges=1_000,
                max_buckets=choose.choice([1, 4, 64]),
                split_cooldown_ms=choose.choice([0, 15, 40]),
                rebucket_cooldown_ms=choose.choice([0, 15]),
                merge_cooldown_ms=choose.choice([0, 15, 40]),
                merge_window_ms=choose.choice([0, 15, 40]),
                split_floor=choose.choice([0, 1, 4, 10, 30]) * unit,
                split=Rates(*[choose.choice([10, 10, 30, 60]) * unit for _ in range(4)]),
                merge=Rates(*[choose.choice([1, 5, 5, 9, 20]) * unit for _ in range(4)]),
            )
        except ArgumentError:
            continue
        break
    some = [0, 0, 1, 2, 4] if choose.random() < 0.8 else [0, 0, 0, 0, 50]  # a hot key
    scale = choose.choice([1, 2, 4])
    shape = [choose.choice([0, 0, 1]) * scale for _ in range(4)]
    traffic = tuple(tuple(choose.choice(some) * unit * each // 2 for each in shape) for _ in range(BLOCKS))
    world = World(policy, choose.randrange(12), traffic)
    n = choose.choice([each for each in (1, 2, 3, 5, 8) if each <= 2 * policy.max_segments])
    return world, SegmentMap.equal_width(n, budget=min(4, policy.max_buckets))


def come_to_rest(world: World, segments: SegmentMap) -> None:
    """Do what is decided until nothing is, and count."""
    may_do = world.distance(segments)
    done: list[Any] = []
    now, quiet = 0, 0
    since = {segment.id: 0 for segment in segments.active}
    last: dict[str, int] = {}
    while quiet < AT_REST:
        now += STEP
        loads = {each.id: SegmentLoad(world.rates(each.range), since[each.id]) for each in segments.active}
        consumers = {"s": world.consumers}
        decision = decide(segments, loads, consumers, world.policy, now_ms=now, last=LastActions(**last))
        if isinstance(decision, NoAction):
            quiet += 1
            continue
        quiet = 0
        done.append(decision)
        last[f"{type(decision).__name__.lower()}_ms"] = now
        segments = apply_decision(segments, decision, world.policy)
        since |= {segment.id: now for segment in segments.active if segment.id not in since}
        kinds = {kind: sum(isinstance(each, kind) for each in done) for kind in may_do}
        assert all(kinds[kind] <= most for kind, most in may_do.items()), f"{kinds} of {may_do}: {done}"


@given(st.randoms(use_true_random=False))
def test_under_constant_load_a_topic_does_no_more_than_what_parts_it_from_rest(choose: Random) -> None:
    come_to_rest(*any_world(choose))


def test_two_segments_of_900_messages_and_two_consumers_are_at_rest() -> None:
    """What Pulsar's defaults merge and split in turn."""
    policy = AutoScale(merge_cooldown_ms=0, split_cooldown_ms=0, merge_window_ms=0)
    world = World(policy, 2, tuple((1_800 // BLOCKS + (block % 2), 0, 0, 0) for block in range(BLOCKS)))
    segments = SegmentMap.equal_width(2)

    assert world.distance(segments)[Split] == 0
    come_to_rest(world, segments)


def first_fault(seeds: range) -> AssertionError | None:
    for seed in seeds:
        try:
            come_to_rest(*any_world(Random(seed)))  # reproducible, not secret
        except AssertionError as fault:
            return fault
    return None


def test_a_merge_that_consumers_undo_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As PIP-483 has it: what is quiet is merged, whatever the consumers make of it."""
    assert None is first_fault(range(100))
    monkeypatch.setattr(autoscale, "_most_that_consumers_leave", lambda _: float("inf"))
    assert None is not first_fault(range(100))


def test_thresholds_that_lie_too_near_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a threshold to merge that is just below that to split."""

    def only_below(policy: AutoScale) -> None:
        if any(cold >= hot for cold, hot in zip(policy.merge.values, policy.split.values, strict=True)):
            raise ArgumentError("merge", policy.merge, "be below the thresholds to split")

    monkeypatch.setattr(AutoScale, "__post_init__", only_below)
    assert None is not first_fault(range(100))
