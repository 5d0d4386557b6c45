"""Progress of an ordered subscription: what may be read, what is drained, and what is refused."""

import json
from typing import Any

import pytest

from keyshared.buckets import BucketLayout
from keyshared.errors import (
    ArgumentError,
    InvariantError,
    OffsetOrderError,
    SegmentOrderError,
    SegmentSealedError,
    SnapshotError,
    UnknownSegmentError,
)
from keyshared.segments import SegmentMap, SegmentProgress, SegmentState, removable

WHOLE = SegmentMap.equal_width()  # one segment of four buckets
HALVES = WHOLE.split(0)
ACTIVE, SEALED, DRAINED = SegmentState


def after_split() -> SegmentProgress:
    """Offset 3 of segment 0 is outstanding in bucket 1, the split is known."""
    progress = SegmentProgress(WHOLE)
    progress.offer(0, 3, 20_000, 20_000)
    progress.update(HALVES)
    return progress


def test_an_entry_belongs_to_the_bucket_of_its_stamp() -> None:
    progress = SegmentProgress(WHOLE)

    assert (1,) == progress.offer(0, 0, 16_384, 32_767)
    assert (3,) == progress.offer(0, 9, 65_535, 65_535)
    assert [0, 9, 10] == [progress.resume_offset(0, bucket) for bucket in (1, 3, 0)]
    progress.settle(0, 1, 0)
    assert [10, 9, 10] == [progress.resume_offset(0, bucket) for bucket in (1, 3, 0)]


def test_a_straddling_entry_belongs_to_every_bucket_between_its_bounds_and_a_bad_stamp_to_all() -> None:
    progress = SegmentProgress(WHOLE)

    assert (1, 2, 3) == progress.offer(0, 0, 20_000, 60_000)
    assert (0, 1, 2, 3) == progress.offer(0, 1, 60_000, 20_000)
    progress.reached_end(0)
    for bucket in range(1, 4):
        progress.settle(0, bucket, 0)
    for bucket in range(4):
        assert progress.state(0) is SEALED
        progress.settle(0, bucket, 1)
    assert progress.state(0) is DRAINED


def test_a_segment_goes_from_active_to_sealed_to_drained_to_removable() -> None:
    progress = SegmentProgress(WHOLE)
    progress.offer(0, 3, 20_000, 20_000)
    assert (ACTIVE, (0,)) == (progress.state(0), progress.readable)

    assert () == progress.update(HALVES)
    assert (SEALED, (0,)) == (progress.state(0), progress.readable)
    assert ((0,), (0,)) == (progress.waiting_for(1), progress.waiting_for(2))

    assert () == progress.reached_end(0)
    assert (SEALED, ()) == (progress.state(0), progress.readable)
    assert () == removable(HALVES, [progress])

    assert (1, 2) == progress.settle(0, 1, 3)
    assert (DRAINED, (1, 2), (0,)) == (progress.state(0), progress.readable, progress.drained)
    assert ((), ()) == (progress.waiting_for(0), progress.waiting_for(1))
    assert (0,) == removable(HALVES, [progress])

    pruned = HALVES.prune(0)
    assert () == progress.update(pruned)
    assert ((), (1, 2)) == (progress.drained, progress.readable)
    progress.check_invariants()


def test_acks_of_nothing_outstanding_are_ignored() -> None:
    progress = after_split()
    progress.reached_end(0)

    assert () == progress.settle(0, 1, 2)
    assert () == progress.settle(0, 0, 3)
    assert () == progress.settle(1, 0, 3)
    assert () == progress.settle(99, 7, 3)
    assert (1, 2) == progress.settle(0, 1, 3)
    assert () == progress.settle(0, 1, 3)


def test_a_map_that_is_not_newer_is_ignored() -> None:
    progress = after_split()

    assert () == progress.update(WHOLE)
    assert HALVES is progress.segments


def test_a_successor_is_not_read_early() -> None:
    progress = after_split()

    with pytest.raises(SegmentOrderError, match="segment 1 has to wait for segment 0"):
        progress.offer(1, 0, 0, 0)
    with pytest.raises(SegmentOrderError):
        progress.reached_end(2)
    assert [None, None] == [progress.resume_offset(1, bucket) for bucket in range(2)]
    progress.check_invariants()


def test_nothing_comes_after_the_end() -> None:
    progress = after_split()
    progress.reached_end(0)
    with pytest.raises(SegmentSealedError, match="segment 0 is sealed; go on with 1, 2"):
        progress.offer(0, 4, 0, 0)
    progress.settle(0, 1, 3)
    with pytest.raises(SegmentSealedError):
        progress.offer(0, 4, 0, 0)
    assert () == progress.reached_end(0)


@pytest.mark.parametrize("offset", [3, 2, -1, 4.0, True, None])
def test_offsets_of_a_segment_grow_in_all_its_buckets_together(offset: Any) -> None:
    progress = after_split()
    with pytest.raises(OffsetOrderError, match="after 3"):
        progress.offer(0, offset, 0, 65_535)
    assert (0, 1, 2, 3) == progress.offer(0, 4, 0, 65_535)


@pytest.mark.parametrize("offset", [2**63, -(2**63)])
def test_an_offset_of_more_than_63_bits_changes_nothing(offset: int) -> None:
    progress = SegmentProgress(SegmentMap.equal_width())
    before = progress.snapshot()
    with pytest.raises(ArgumentError, match="63 bits"):
        progress.offer(0, offset, 0, 0)
    assert before == progress.snapshot()


def test_a_first_offset_is_an_int() -> None:
    progress = SegmentProgress(WHOLE)
    with pytest.raises(OffsetOrderError):
        progress.offer(0, "0", 0, 0)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentError):
        progress.offer(0, 1 << 300, 0, 65_535)
    with pytest.raises(ArgumentError, match="bound of an entry"):
        progress.offer(0, 0, 0, None)  # type: ignore[arg-type]  # on purpose
    assert (0,) == progress.offer(0, 0, 0, 0)


def test_unknown_segments_and_buckets_are_refused() -> None:
    progress = after_split()
    for question in (
        lambda: progress.offer(9, 0, 0, 0),
        lambda: progress.reached_end(9),
        lambda: progress.state(9),
        lambda: progress.waiting_for(9),
        lambda: progress.resume_offset(9, 0),
    ):
        with pytest.raises(UnknownSegmentError):
            question()
    for bucket in (4, -1, True):
        with pytest.raises(ArgumentError, match="bucket is"):
            progress.settle(0, bucket, 3)
        with pytest.raises(ArgumentError, match="bucket is"):
            progress.resume_offset(0, bucket)


def test_a_restart_goes_on_after_what_was_drained() -> None:
    lines = HALVES.split(1)
    progress = SegmentProgress(lines, drained=[0, 1])

    assert ((0, 1), (2, 3, 4), DRAINED) == (progress.drained, progress.readable, progress.state(1))
    with pytest.raises(SegmentSealedError):
        progress.offer(0, 0, 0, 0)
    progress.check_invariants()
    assert (0, 1) == removable(lines, [progress, progress])
    assert () == removable(lines, [progress, SegmentProgress(lines)])
    progress.update(lines.prune(0))
    assert (1,) == progress.drained
    assert (0, 1) == removable(lines, [])


@pytest.mark.parametrize("drained", [[2], [1], [0, 3], [0, 77], [-1], ["0"]])
def test_what_was_drained_has_its_ancestors_with_it(drained: list[int]) -> None:
    with pytest.raises(ArgumentError, match="drained is"):
        SegmentProgress(HALVES.split(1), drained=drained)


def test_a_map_is_a_map_of_the_same_topic() -> None:
    with pytest.raises(ArgumentError):
        SegmentProgress(None)  # type: ignore[arg-type]  # on purpose
    progress = after_split()
    with pytest.raises(ArgumentError):
        progress.update(None)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentError, match="of one topic"):
        progress.update(SegmentMap.equal_width(3).split(0).split(1))
    with pytest.raises(ArgumentError, match="be a SegmentMap"):
        HALVES.supersedes(None)  # type: ignore[arg-type]  # on purpose
    assert HALVES is progress.segments


def halfway() -> SegmentProgress:
    """Segment 0 drained, of segment 1 offset 1 settled and 0 and 2 outstanding in its two buckets, 2 not begun."""
    progress = SegmentProgress(HALVES)
    progress.reached_end(0)
    for offset, bucket_hash in enumerate([0, 40_000, 40_000]):
        progress.offer(1, offset, bucket_hash, bucket_hash)
    progress.settle(1, 1, 1)
    return progress


def test_of_a_straddling_entry_the_parts_that_are_not_settled_come_again() -> None:
    progress = SegmentProgress(WHOLE)
    progress.offer(0, 0, 20_000, 60_000)
    progress.settle(0, 2, 0)

    assert (1, 3) == SegmentProgress.restore(progress.snapshot(), WHOLE).offer(0, 0, 20_000, 60_000)


@pytest.mark.parametrize("offsets", [(), (0,)])
def test_a_segment_that_was_drained_before_the_map_that_seals_it_stays_drained(offsets: tuple[int, ...]) -> None:
    progress = SegmentProgress(WHOLE)
    for offset in offsets:
        progress.offer(0, offset, 5, 5)
    progress.reached_end(0)
    for offset in offsets:
        progress.settle(0, 0, offset)
    written = json.loads(json.dumps(progress.snapshot()))

    for again in (SegmentProgress(WHOLE, drained=progress.drained), SegmentProgress.restore(written, WHOLE)):
        assert (DRAINED, (), ()) == (again.state(0), again.readable, again.reached_end(0))
        with pytest.raises(SegmentSealedError):
            again.offer(0, 1, 5, 5)
        again.check_invariants()
        assert written == again.snapshot()
        assert (1, 2) == again.update(HALVES)
        again.check_invariants()
    assert (1, 2) == SegmentProgress.restore(written, HALVES).readable


def test_an_end_that_was_seen_is_to_be_seen_again_while_something_is_not_settled() -> None:
    progress = SegmentProgress(WHOLE)
    progress.offer(0, 0, 5, 5)
    progress.reached_end(0)

    assert (0,) == SegmentProgress.restore(progress.snapshot(), WHOLE).readable


def test_a_checkpoint_fits_a_newer_map() -> None:
    newer = HALVES.prune(0).rebucket(1, BucketLayout.equal_width(1)).prune(1)
    again = SegmentProgress.restore(halfway().snapshot(), newer)

    assert ((), (2, 3)) == (again.drained, again.readable)


def test_a_token_may_be_too_small_for_a_position() -> None:
    for progress in (halfway(), SegmentProgress(SegmentMap.equal_width())):  # also where there is no position yet
        with pytest.raises(ArgumentError, match="max_token_bytes is 36; it must be an int of at least 37"):
            progress.snapshot(36)
        progress.snapshot(37)


def test_the_least_token_holds_the_position_of_any_log() -> None:
    progress = SegmentProgress(SegmentMap.equal_width())
    for offset in (1 - 2**63, 2**63 - 1):
        assert (0,) == progress.offer(0, offset, 0, 0)
    again = SegmentProgress.restore(progress.snapshot(37), SegmentMap.equal_width())
    assert 1 - 2**63 == again.resume_offset(0)


ROW: Any = halfway().snapshot()["segments"][0]  # type: ignore[index]  # plain data


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"version": True},
        {"more": 1},
        {"drained": 7},
        {"drained": ["0"]},
        {"drained": [1]},
        {"segments": {}},
        {"segments": [7]},
        {"segments": [{"segment": 1}]},
        {"segments": [{**ROW, "segment": "1"}]},
        {"segments": [{**ROW, "segment": 77}]},
        {"segments": [{**ROW, "buckets": {}}]},
        {"segments": [{**ROW, "buckets": [0]}]},
        {"segments": [{**ROW, "buckets": [[0]]}]},
        {"segments": [{**ROW, "buckets": [[{}, "ksc1."]]}]},
        {"segments": [{**ROW, "buckets": [[0, "ksc1."]]}]},
        {"segments": [{**ROW, "buckets": [[0, None]]}]},
    ],
)
def test_a_damaged_checkpoint_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(SnapshotError):
        SegmentProgress.restore({**halfway().snapshot(), **changed}, HALVES)


def test_a_checkpoint_is_a_mapping_and_needs_a_map() -> None:
    with pytest.raises(SnapshotError):
        SegmentProgress.restore(None, HALVES)
    with pytest.raises(ArgumentError, match="be a SegmentMap"):
        SegmentProgress.restore(halfway().snapshot(), None)  # type: ignore[arg-type]  # on purpose


def test_broken_progress_is_found_out() -> None:
    def broken(name: str, value: Any) -> SegmentProgress:
        progress = after_split()
        progress.reached_end(0)
        setattr(progress, name, value)
        return progress

    cursors = after_split()._cursors[0]
    for progress, fact in (
        (broken("_readable", {0, 1}), "follows from what is drained"),
        (broken("_cursors", {0: cursors, 1: cursors}), "touched after"),
    ):
        with pytest.raises(InvariantError, match=fact):
            progress.check_invariants()


@pytest.mark.parametrize("place", [None, 3])
def test_a_place_to_read_on_that_loses_a_message_is_found_out(place: int | None) -> None:
    progress = after_split()
    progress._cursors[0].next = place

    with pytest.raises(InvariantError, match="ahead of its segment"):
        progress.check_invariants()


def test_where_reading_goes_on_follows_from_the_cursors_after_a_restart_that_read_only_a_part() -> None:
    progress = SegmentProgress(WHOLE)
    for offset, bucket_hash in [(5, 0), (6, 20_000), (7, 0), (8, 20_000), (9, 40_000)]:
        progress.offer(0, offset, bucket_hash, bucket_hash)
    for bucket, offset in [(1, 6), (0, 7), (2, 9)]:
        progress.settle(0, bucket, offset)
    again = SegmentProgress.restore(progress.snapshot(), WHOLE)

    assert () == again.offer(0, 6, 20_000, 20_000)  # 5 is gone from the log
    assert 8 == again.resume_offset(0)  # 7 was settled before
    once_more = SegmentProgress.restore(again.snapshot(), WHOLE)
    assert [8, 8, 10] == [once_more.resume_offset(0, bucket) for bucket in range(3)]
    assert again.snapshot() == once_more.snapshot()
    once_more.check_invariants()
