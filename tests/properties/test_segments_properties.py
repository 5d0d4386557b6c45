"""The map of segments against a slow, obvious model: who owned each block of the ring after every change.

The model knows blocks and nothing else: parents are whoever owned a block before, active is whoever owns one now.
"""

from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from keyshared.buckets import BucketLayout
from keyshared.errors import ArgumentError
from keyshared.segments import Segment, SegmentMap

BLOCKS = 32
WIDTH = 65_536 // BLOCKS


class Model:
    def __init__(self, n: int, buckets: int) -> None:
        self.owner = [block * n // BLOCKS for block in range(BLOCKS)]
        self.parents: dict[int, set[int]] = {i: set() for i in range(n)}
        self.buckets = dict.fromkeys(range(n), buckets)
        self.epoch = 0
        self.older: dict[int, set[int]] = {}

    def replace(self, blocks: range, buckets: int, *, more: bool = False) -> None:
        """Somebody new owns the blocks."""
        new = len(self.parents)
        self.parents[new] = {self.owner[block] for block in blocks}
        self.buckets[new] = buckets
        self.pending = getattr(self, "pending", []) + [(block, new) for block in blocks]
        if not more:
            for block, owner in self.pending:
                self.owner[block] = owner
            self.pending = []
            self.epoch += 1

    def blocks_of(self, segment: int) -> range:
        mine = [block for block, owner in enumerate(self.owner) if owner == segment]
        return range(mine[0], mine[-1] + 1)

    def in_ring_order(self) -> list[int]:
        return list(dict.fromkeys(self.owner))

    def ancestors(self, segment: int) -> set[int]:
        if segment not in self.older:  # parents never change: each is asked once, or merges would double the work
            self.older[segment] = self.parents[segment].union(*map(self.ancestors, self.parents[segment]))
        return self.older[segment]


class SegmentMachine(RuleBasedStateMachine):
    map_class: ClassVar[type[SegmentMap]] = SegmentMap

    @initialize(n=st.sampled_from([1, 2, 4]), budget=st.integers(1, 9))
    def begin(self, n: int, budget: int) -> None:
        self.segments = SegmentMap.equal_width(n, budget=budget)
        self.model = Model(n, max(1, budget // n))

    @rule(pick=st.integers(0, 9), at=st.integers(1, BLOCKS - 1), middle=st.booleans())
    def split(self, pick: int, at: int, *, middle: bool) -> None:
        target = self.pick(pick)
        blocks = self.model.blocks_of(target)
        if len(blocks) == 1 or (middle and len(blocks) % 2):
            return
        cut = blocks[len(blocks) // 2] if middle else blocks[1 + at % (len(blocks) - 1)]
        self.segments = self.segments.split(target, at=None if middle else cut * WIDTH)
        half = max(1, self.model.buckets[target] // 2)
        self.model.replace(range(blocks.start, cut), half, more=True)
        self.model.replace(range(cut, blocks.stop), half)

    @rule(first=st.integers(0, 9), second=st.integers(0, 9), most=st.integers(1, 12))
    def merge(self, first: int, second: int, most: int) -> None:
        pair = [self.pick(first), self.pick(second)]
        if tuple(pair) not in {*pairwise(self.model.in_ring_order()), *pairwise(self.model.in_ring_order()[::-1])}:
            with pytest.raises(ArgumentError):
                self.segments.merge(*pair)
            return
        self.segments = self.segments.merge(*pair, max_buckets=most)
        spans = [self.model.blocks_of(each) for each in pair]
        together = range(min(s.start for s in spans), max(s.stop for s in spans))
        self.model.replace(together, min(most, sum(self.model.buckets[each] for each in pair)))

    @rule(pick=st.integers(0, 9), buckets=st.integers(1, 9))
    def rebucket(self, pick: int, buckets: int) -> None:
        target = self.pick(pick)
        if buckets != self.model.buckets[target]:
            self.segments = self.segments.rebucket(target, BucketLayout.equal_width(buckets))
            self.model.replace(self.model.blocks_of(target), buckets)

    @rule()
    def through_json(self) -> None:
        again = SegmentMap.from_json(self.segments.to_json())
        assert self.segments == again
        assert hash(self.segments) == hash(again)

    @rule(drained=st.sets(st.integers(0, 30)))
    def read(self, drained: set[int]) -> None:
        may = [s for s in self.model.parents if s not in drained and self.model.ancestors(s) <= drained]
        assert tuple(may) == self.segments.readable(drained)

    def pick(self, number: int) -> int:
        active = self.model.in_ring_order()
        return active[number % len(active)]

    @invariant()
    def agrees(self) -> None:
        segments = SegmentMap.__new__(self.map_class)
        for slot in SegmentMap.__slots__:
            setattr(segments, slot, getattr(self.segments, slot))
        model = self.model
        assert tuple(model.in_ring_order()) == segments.active_ids
        edges = [block * WIDTH + step for block in range(BLOCKS) for step in (0, WIDTH - 1)]
        assert [model.owner[edge // WIDTH] for edge in edges] == [segments.segment_at(edge).id for edge in edges]
        for segment, parents in model.parents.items():
            assert tuple(sorted(parents)) == segments.predecessors(segment)
            assert tuple(sorted(model.ancestors(segment))) == segments.ancestors(segment)
            assert model.buckets[segment] == len(segments.segment(segment).layout)
        assert model.epoch == segments.epoch


TestSegments = SegmentMachine.TestCase


class LeftBisect(SegmentMap):
    """A hash on the edge belongs to the segment that ends there: inclusive ranges, taken over as half-open ones."""

    __slots__ = ()

    def segment_at(self, segment_hash: int) -> Segment:
        return super().segment_at(max(0, segment_hash - 1))


class ParentsOnly(SegmentMap):
    """Drains the parents and forgets what came before them."""

    __slots__ = ()

    def ancestors(self, segment: int) -> tuple[int, ...]:
        return self.predecessors(segment)


@pytest.mark.parametrize("broken", [LeftBisect, ParentsOnly])
def test_the_model_catches_a_broken_map(broken: type[SegmentMap]) -> None:
    class Machine(SegmentMachine):
        map_class = broken

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Machine, settings=settings(phases=[Phase.generate], max_examples=200, derandomize=True, database=None)
        )


def changed(segments: SegmentMap, kind: int, number: int) -> SegmentMap:
    active = segments.active
    if kind == 0:
        return segments.split(active[number % len(active)].id)
    if kind == 1 and len(active) > 1:
        lower = number % (len(active) - 1)
        return segments.merge(active[lower].id, active[lower + 1].id)
    chosen = active[number % len(active)]
    return segments.rebucket(chosen.id, BucketLayout.equal_width(len(chosen.layout) % 7 + 1))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=12))
def test_pruning_what_is_oldest_first_never_changes_what_is_active(steps: list[tuple[int, int]]) -> None:
    segments = SegmentMap.equal_width(2)
    for kind, number in steps:
        segments = changed(segments, kind, number)
    active = segments.active
    while segments.stats().sealed:
        segments = segments.prune(next(s.id for s in segments.segments if not segments.is_active(s.id)))
        assert active == segments.active
    assert set(segments.active_ids) == set(segments.readable(()))
