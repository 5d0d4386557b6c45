"""The map of segments: splits, merges, rebucketings, routing, what comes before what, and what it refuses."""

import copy
import json
import pickle
from collections import OrderedDict
from functools import partial
from typing import Any

import pytest

from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.errors import (
    ArgumentError,
    SegmentSealedError,
    SnapshotError,
    UnknownSegmentError,
)
from keyshared.placement import HashRange
from keyshared.segments import Segment, SegmentMap, SegmentStats, assign_round_robin, buckets_for_budget

FOUR = BucketLayout.equal_width(4)
EIGHT = BucketLayout.equal_width(8)


def ranges(segments: SegmentMap) -> dict[int, tuple[int, int]]:
    return {segment.id: (segment.range.start, segment.range.stop) for segment in segments.active}


def test_a_topic_begins_with_segments_of_one_width_that_share_the_budget() -> None:
    assert {0: (0, 65_536)} == ranges(SegmentMap.equal_width())
    assert {0: (0, 21_845), 1: (21_845, 43_690), 2: (43_690, 65_536)} == ranges(SegmentMap.equal_width(3))
    assert [4] == [len(segment.layout) for segment in SegmentMap.equal_width().active]
    assert [2, 2] == [len(segment.layout) for segment in SegmentMap.equal_width(2).active]
    assert [1] * 8 == [len(segment.layout) for segment in SegmentMap.equal_width(8).active]


def test_the_lower_child_of_an_odd_range_is_the_larger_one() -> None:
    # inclusive [0, 4] has its middle at 2: [0, 2] and [3, 4]
    segments = SegmentMap.equal_width().split(0, at=5).split(1)

    assert {3: (0, 3), 4: (3, 5), 2: (5, 65_536)} == ranges(segments)


def test_a_split_may_be_anywhere_and_with_any_buckets() -> None:
    segments = SegmentMap.equal_width().split(0, at=1, layout=EIGHT)

    assert {1: (0, 1), 2: (1, 65_536)} == ranges(segments)
    assert [EIGHT, EIGHT] == [segment.layout for segment in segments.active]


@pytest.mark.parametrize("at", [0, 65_536, -1, 1.5, True])
def test_a_split_point_lies_inside(at: Any) -> None:
    with pytest.raises(ArgumentError, match="inside the segment"):
        SegmentMap.equal_width().split(0, at=at)


def test_a_segment_of_one_hash_cannot_be_split() -> None:
    with pytest.raises(ArgumentError, match="at least two hashes"):
        SegmentMap.equal_width().split(0, at=1).split(1)


def test_a_merge_clamps_the_buckets_but_not_a_layout_that_is_given() -> None:
    segments = SegmentMap.equal_width(2, budget=16)

    assert 8 == len(segments.merge(0, 1, max_buckets=8).segment(2).layout)
    assert EIGHT == segments.merge(0, 1, max_buckets=2, layout=EIGHT).segment(2).layout


@pytest.mark.parametrize(("first", "second"), [(0, 2), (0, 0), (2, 0)])
def test_only_neighbours_merge(first: int, second: int) -> None:
    # the ring has a seam: 0 and 2 meet at hash 0, but no half-open range covers both
    with pytest.raises(ArgumentError, match="be a neighbour of segment"):
        SegmentMap.equal_width(3).merge(first, second)


def test_a_rebucketing_keeps_the_range_and_leaves_the_old_layout_alone() -> None:
    segments = SegmentMap.equal_width(2).rebucket(0, EIGHT)

    assert {2: (0, 32_768), 1: (32_768, 65_536)} == ranges(segments)
    assert (BucketLayout.equal_width(2), EIGHT) == (segments.segment(0).layout, segments.segment(2).layout)
    assert SegmentStats(active=2, sealed=1, buckets=10, rollovers=1, epoch=1) == segments.stats()


def test_a_rebucketing_must_change_something() -> None:
    with pytest.raises(ArgumentError, match="must differ from the one"):
        SegmentMap.equal_width().rebucket(0, FOUR)


def test_a_sealed_segment_changes_no_more() -> None:
    segments = SegmentMap.equal_width().split(0)

    for change in (
        partial(segments.split, 0),
        partial(segments.merge, 0, 1),
        partial(segments.merge, 1, 0),
        partial(segments.rebucket, 0, EIGHT),
    ):
        with pytest.raises(SegmentSealedError, match="segment 0 is sealed; go on with 1, 2"):
            change()


@pytest.mark.parametrize("unknown", [3, -1, "0", None, True])
def test_unknown_segments_are_refused(unknown: Any) -> None:
    segments = SegmentMap.equal_width().split(0)

    for question in (
        segments.segment,
        segments.is_active,
        segments.successors,
        segments.predecessors,
        segments.ancestors,
        segments.split,
        segments.prune,
        lambda each: segments.merge(1, each),
        lambda each: segments.rebucket(each, EIGHT),
    ):
        with pytest.raises(UnknownSegmentError, match="at epoch 1"):
            question(unknown)


def test_a_change_leaves_the_old_map_as_it_was() -> None:
    before = SegmentMap.equal_width(2)
    form = before.to_json()
    before.split(0)
    before.merge(0, 1)
    before.rebucket(1, EIGHT)

    assert form == before.to_json()


def test_merges_in_the_lineage_are_counted_along_the_longest_way() -> None:
    segments = SegmentMap.equal_width().split(0).merge(1, 2).split(3)

    assert [1, 1] == [segment.merges for segment in segments.active]
    assert 2 == segments.merge(4, 5).segment(6).merges
    lopsided = SegmentMap.equal_width(3).merge(0, 1).merge(3, 2)
    assert 2 == lopsided.segment(4).merges


@pytest.mark.parametrize("segment_hash", [-1, 65_536, 1.0, True, None])
def test_a_hash_off_the_ring_has_no_segment(segment_hash: Any) -> None:
    with pytest.raises(ArgumentError, match="segment hash is"):
        SegmentMap.equal_width().locate(segment_hash, 0)
    with pytest.raises(ArgumentError, match="bucket hash is"):
        SegmentMap.equal_width().locate(0, segment_hash)


def test_a_pruned_segment_holds_nobody_up() -> None:
    segments = SegmentMap.equal_width().split(0).split(1)
    pruned = segments.prune(0)

    assert (1, 2) == pruned.readable(())
    assert ((), (1,), 3) == (pruned.predecessors(1), pruned.ancestors(3), pruned.epoch)
    assert (0,) == pruned.segment(1).parents
    again = pruned.prune(1).merge(3, 4)
    assert 5 == again.segment_at(0).id


def test_only_the_oldest_sealed_segment_is_pruned() -> None:
    segments = SegmentMap.equal_width().split(0).split(1)

    with pytest.raises(ArgumentError, match=r"prune \(0,\) first"):
        segments.prune(1)
    with pytest.raises(ArgumentError, match="be sealed"):
        segments.prune(2)


def test_ids_are_never_used_again() -> None:
    segments = SegmentMap.equal_width(2).merge(0, 1).prune(0).prune(1)

    assert (3, 4) == segments.split(2).active_ids


def test_segments_are_dealt_out_by_range_and_name() -> None:
    segments = SegmentMap.equal_width(2).split(0)  # in ring order: 2, 3, 1

    assert {2: "a", 3: "b", 1: "a"} == assign_round_robin(segments, ["b", "a"])
    assert [2, 3, 1] == list(assign_round_robin(segments, ["b", "a"]))
    assert {2: "a", 3: "b", 1: "c"} == assign_round_robin(segments, ["d", "c", "b", "a"])
    assert {} == assign_round_robin(segments, [])


def test_names_sort_as_java_sorts_them() -> None:
    low, high = "\uff61", "\U0001f600"  # the first code unit of the second one is below the first one

    assert {0: high, 1: low} == assign_round_robin(SegmentMap.equal_width(2), [low, high])
    pulsar = BucketPlacement.pulsar(BucketLayout.equal_width(2), [low, high])
    assert (high, low) == (pulsar.owner(0), pulsar.owner(1))
    assert {0: high, 1: "\ud83e"} == assign_round_robin(SegmentMap.equal_width(2), ["\ud83e", high])


@pytest.mark.parametrize("consumers", ["ab", b"cd", None, 5])
def test_names_come_in_a_collection(consumers: Any) -> None:
    with pytest.raises(ArgumentError, match="it must be a collection of names"):
        assign_round_robin(SegmentMap.equal_width(), consumers)


@pytest.mark.parametrize("consumers", [["a", "a"], [""], [1], [None]])
def test_consumers_have_names_of_their_own(consumers: Any) -> None:
    with pytest.raises(ArgumentError):
        assign_round_robin(SegmentMap.equal_width(), consumers)


@pytest.mark.parametrize(("budget", "segments"), [(0, 1), (1, 0), (1.0, 1), (True, 1), (4, None)])
def test_a_budget_is_a_number_of_buckets(budget: Any, segments: Any) -> None:
    with pytest.raises(ArgumentError):
        buckets_for_budget(budget, segments)


@pytest.mark.parametrize("n", [0, 65_537, 1.0, True])
def test_a_topic_has_at_least_one_segment_and_at_most_one_per_hash(n: Any) -> None:
    with pytest.raises(ArgumentError):
        SegmentMap.equal_width(n)


def whole(**changes: Any) -> Segment:
    fields: dict[str, Any] = {"id": 0, "range": HashRange(0, 65_536), "layout": FOUR, **changes}
    return Segment(**fields)


LOWER, UPPER = HashRange(0, 100), HashRange(100, 65_536)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"id": -1}, "id is -1"),
        ({"epoch": -1}, "epoch is -1"),
        ({"merges": True}, "merges is True"),
        ({"layout": (0,)}, "be a BucketLayout"),
        ({"range": (0, 65_536)}, "be a HashRange"),
        ({"range": HashRange(0, 65_537)}, "end at 65536 or before"),
        ({"parents": [0]}, "be a tuple"),
        ({"id": 3, "parents": (0, 1, 2)}, "at most 2 ids"),
        ({"id": 3, "parents": ("0",)}, "be a tuple"),
        ({"id": 3, "parents": (1, 0)}, "lowest first"),
        ({"id": 3, "parents": (1, 1)}, "distinct ids"),
        ({"parents": (0,)}, "below 0"),
    ],
)
def test_a_segment_that_could_never_be_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        whole(**fields)


@pytest.mark.parametrize(
    ("segments", "why"),
    [
        ([], "at least one"),
        ([whole(), whole()], "an id of its own"),
        ([7], "be a Segment"),
        ([whole(range=UPPER)], "start is 100; it must be 0"),
        ([whole(range=LOWER)], "last stop is 100"),
        ([whole(), whole(id=1)], "start is 0; it must be 65536"),
    ],
)
def test_segments_that_do_not_fit_together_are_refused(segments: list[Any], why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        SegmentMap(segments)


@pytest.mark.parametrize("counts", [{"epoch": 0}, {"epoch": 1.0}, {"next_id": 1}, {"rollovers": -1}])
def test_the_counters_of_a_map_are_not_behind_its_segments(counts: dict[str, Any]) -> None:
    segments = SegmentMap.equal_width().rebucket(0, EIGHT)

    with pytest.raises(ArgumentError):
        SegmentMap(segments.segments, **counts)


def test_a_map_is_rebuilt_from_its_segments_alone() -> None:
    segments = SegmentMap.equal_width().split(0)

    assert segments == SegmentMap(reversed(segments.segments))


def test_a_map_is_a_value() -> None:
    segments = SegmentMap.equal_width(2).rebucket(0, EIGHT).prune(0)

    for twin in (copy.deepcopy(segments), pickle.loads(pickle.dumps(segments))):  # noqa: S301  # our own bytes
        assert segments == twin
        assert hash(segments) == hash(twin)
    assert segments != SegmentMap.equal_width(2)
    assert segments != "a map"
    assert "<SegmentMap of 2 active segments of 2 at epoch 2>" == repr(segments)


def test_json_may_bring_its_keys_in_any_order() -> None:
    segments = SegmentMap.equal_width(2).split(0)

    text = json.dumps(segments.to_json(), sort_keys=True)

    assert segments == SegmentMap.from_json(json.loads(text))
    assert segments == SegmentMap.from_json(json.loads(text, object_pairs_hook=OrderedDict))


def damaged(path: tuple[Any, ...], value: Any) -> Any:
    data: Any = json.loads(json.dumps(SegmentMap.equal_width().split(0).to_json()))
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return data


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        damaged(("more",), 1),
        damaged(("version",), 2),
        damaged(("version",), True),
        damaged(("epoch",), 0),
        damaged(("epoch",), None),
        damaged(("next_id",), 2),
        damaged(("next_id",), None),
        damaged(("rollovers",), -1),
        damaged(("segments",), ()),
        damaged(("segments",), []),
        damaged(("segments", 0), [0]),
        damaged(("segments", 0, "more"), 1),
        damaged(("segments", 0, "splits"), "16384"),
        damaged(("segments", 0, "splits"), [1]),
        damaged(("segments", 1, "parents"), {0: 1}),
        damaged(("segments", 1, "stop"), 32_767),
        damaged(("segments", 1, "start"), -1),
    ],
)
def test_damaged_data_is_refused(data: Any) -> None:
    with pytest.raises(SnapshotError):
        SegmentMap.from_json(data)
