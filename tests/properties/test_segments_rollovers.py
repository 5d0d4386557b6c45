"""Order of keys across rollovers: every interleaving of small worlds, random ones of larger worlds, and faults."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.rollover_world import Change, Key, World, explore, merge_lowest, rebucket_lowest, split_lowest

from keyshared.buckets import BatchLimits, BucketLayout
from keyshared.errors import KeySharedError
from keyshared.segments import PublishEntry, SegmentMap, SegmentProducer, SegmentProgress

LOW, LOW_OTHER_BUCKET, HIGH = (0, 0), (0, 40_000), (40_000, 0)
SINGLE, PAIRS = BatchLimits(max_messages=1), BatchLimits(max_messages=2)
SMALL: dict[str, tuple[int, list[Key], list[Change], BatchLimits]] = {
    "split": (1, [LOW, HIGH, LOW], [split_lowest], SINGLE),
    "more buckets": (2, [LOW, LOW_OTHER_BUCKET, LOW], [rebucket_lowest], SINGLE),
    "merge": (2, [LOW, LOW], [merge_lowest], SINGLE),
    "merge of both": (2, [LOW, HIGH], [merge_lowest], SINGLE),
    "split and merge": (1, [LOW, LOW], [split_lowest, merge_lowest], SINGLE),
    "twice rebucketed": (1, [LOW, LOW], [rebucket_lowest, rebucket_lowest], SINGLE),
    "one bucket becomes four, pairs": (1, [LOW, LOW_OTHER_BUCKET, LOW, LOW], [rebucket_lowest], PAIRS),
}


def small(
    name: str,
    producer: type[SegmentProducer] = SegmentProducer,
    progress: type[SegmentProgress] = SegmentProgress,
) -> World:
    n, keys, changes, limits = SMALL[name]
    segments = SegmentMap.equal_width(n, budget=1 if name.startswith("one bucket") else 4)
    return World(segments, keys, changes, limits=limits, producer=producer, progress=progress)


@pytest.mark.parametrize("name", SMALL)
def test_the_order_of_keys_survives_every_interleaving(name: str) -> None:
    assert 300 < explore(small(name), bound=20_000)


keys = st.tuples(st.sampled_from([0, 20_000, 40_000]), st.sampled_from([0, 20_000, 40_000, 65_535]))
changes = st.sampled_from([split_lowest, merge_lowest, rebucket_lowest])


@given(
    st.lists(keys, max_size=12),
    st.lists(changes, max_size=4),
    st.integers(1, 4),
    st.lists(st.integers(0, 30), max_size=120),
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
)
@example([], [split_lowest, rebucket_lowest, merge_lowest, rebucket_lowest], 1, [], (0, 0, 0))
def test_the_order_of_keys_survives_any_rollovers(
    drawn: list[Key], planned: list[Change], batch: int, choices: list[int], budgets: tuple[int, int, int]
) -> None:
    def possible(change: Change) -> Change:
        return lambda segments: change(segments) if len(segments.active) > 1 else split_lowest(segments)

    world = World(
        SegmentMap.equal_width(2),
        drawn,
        [possible(each) for each in planned],
        limits=BatchLimits(max_messages=batch),
        prunes=budgets[0],
        restarts=budgets[1],
        breaks=budgets[2],
    )
    run(world, choices)


def test_the_order_of_keys_survives_a_crash_of_the_reader_and_a_pruning_at_any_point() -> None:
    segments = SegmentMap.equal_width()
    world = World(segments, [LOW, LOW], [split_lowest], limits=SINGLE, prunes=1, restarts=1)
    assert 500 < explore(world, bound=20_000)


def test_the_order_of_keys_survives_a_broken_connection_of_the_producer_at_any_point() -> None:
    world = World(SegmentMap.equal_width(), [LOW, HIGH, LOW], [split_lowest], limits=SINGLE, breaks=1)
    assert 500 < explore(world, bound=30_000)


def run(world: World, choices: Sequence[int]) -> None:
    ahead = iter(choices)
    while actions := world.actions():
        world.act(actions[next(ahead, 0) % len(actions)])
    world.check_end()


class ReadsEverything(SegmentProgress):
    """Reads a successor before what comes before it is drained."""

    __slots__ = ()

    def _now_readable(self) -> tuple[int, ...]:
        done = set(self.drained)
        return tuple(one.id for one in self._segments.segments if one.id not in done)

    def check_invariants(self) -> None:
        pass  # or it would be caught by itself; so below


class ReadsParentsToTheirEnd(SegmentProgress):
    """Takes a segment that was read to its end for drained, although something of it is not settled."""

    __slots__ = ()

    @property
    def drained(self) -> tuple[int, ...]:
        return tuple(sorted(self._ended))

    def reached_end(self, segment: int) -> tuple[int, ...]:
        super().reached_end(segment)
        return self._newly_readable()

    def check_invariants(self) -> None:
        pass


class AppliesTheNewLayout(SegmentProgress):
    """Routes the entries of a sealed segment by the buckets of its successor."""

    __slots__ = ()

    def _layout(self, segment: int) -> BucketLayout:
        return self._segments.segment_at(self._segments.segment(segment).range.start).layout

    def check_invariants(self) -> None:
        pass


class KeepsWriting(SegmentProducer):
    """Sends what a seal refused to the very same segment again."""

    __slots__ = ()

    def update(self, segments: SegmentMap) -> list[PublishEntry]:
        self._segments = segments
        return []

    def check_invariants(self) -> None:
        pass


class DoesNotHold(SegmentProducer):
    """Writes to successors while older messages are unanswered."""

    __slots__ = ()

    def _now_blocked(self) -> frozenset[int]:
        return frozenset()

    def check_invariants(self) -> None:
        pass


class ForgetsTheRefused(SegmentProducer):
    """Goes on with the successor, and leaves what was refused to nobody."""

    __slots__ = ()

    def refused(self, segment: int, sequence_id: int, *, sealed: bool = True) -> list[PublishEntry]:  # noqa: ARG002
        return self.confirmed(segment, sequence_id)

    def check_invariants(self) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("split", ReadsEverything),
        ("merge", ReadsParentsToTheirEnd),
        ("one bucket becomes four, pairs", AppliesTheNewLayout),
    ],
)
def test_a_broken_reader_is_caught(name: str, broken: type[SegmentProgress]) -> None:
    with pytest.raises(AssertionError, match=r"is the next one|nobody else works|is of one bucket"):
        explore(small(name, progress=broken), bound=20_000)


@pytest.mark.parametrize("broken", [KeepsWriting, DoesNotHold, ForgetsTheRefused])
def test_a_broken_producer_is_caught(broken: type[SegmentProducer]) -> None:
    # its own batcher may notice before the judge does that an older message comes after a newer one
    with pytest.raises((AssertionError, KeySharedError)):
        explore(small("split", producer=broken), bound=20_000)
