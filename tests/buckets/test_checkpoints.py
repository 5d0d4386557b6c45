"""Checkpoints by segment and bucket: what is settled, where to read on, and restarts."""

import json
from typing import Any

import pytest

from keyshared.buckets import BucketCheckpoints
from keyshared.errors import ArgumentError, InvariantError, OffsetOrderError, SegmentBusyError, SnapshotError


def _offered(*buckets: int) -> BucketCheckpoints:
    """Segment 7 with one entry at each offset, in these buckets."""
    checkpoints = BucketCheckpoints()
    for offset, bucket in enumerate(buckets):
        assert checkpoints.offer(7, bucket, offset)
    return checkpoints


def _restarted(checkpoints: BucketCheckpoints) -> BucketCheckpoints:
    return BucketCheckpoints.restore(json.loads(json.dumps(checkpoints.snapshot())))


def test_segments_have_offsets_of_their_own() -> None:
    checkpoints = _offered(0)

    assert checkpoints.offer(8, 0, 0)
    assert checkpoints.settle(8, 0, 0)
    assert (0, 1, None) == tuple(checkpoints.resume_offset(segment) for segment in (7, 8, 9))
    assert (1, 0, 0) == tuple(checkpoints.outstanding(segment) for segment in (7, 8, 9))
    assert "<BucketCheckpoints of 2 segments and 2 buckets>" == repr(checkpoints)


def test_only_what_is_outstanding_there_is_settled() -> None:
    checkpoints = _offered(0, 1)

    assert [False] * 4 == [checkpoints.settle(*place) for place in ((7, 1, 0), (7, 2, 0), (8, 0, 0), (7, 0, 5))]
    assert checkpoints.settle(7, 0, 0)
    assert not checkpoints.settle(7, 0, 0)
    assert checkpoints.safe_cursor(7, 2) is checkpoints.safe_cursor(9, 0) is None


def test_a_restart_reads_from_the_lowest_and_skips_what_was_settled() -> None:
    log = [0, 1, 2, 1, 0, 2, 2]
    checkpoints = _offered(*log)
    for bucket, offset in ((0, 0), (2, 2), (1, 3), (2, 6), (2, 5)):
        checkpoints.settle(7, bucket, offset)

    again = _restarted(checkpoints)
    assert 1 == again.resume_offset(7)
    assert 0 == again.outstanding(7)
    assert [True, False, False, True, False, False] == [again.offer(7, log[i], i) for i in range(1, 7)]
    assert again.offer(7, 2, 7)
    assert [1, 4, 7] == [offset for offset in range(1, 8) for bucket in range(3) if again.settle(7, bucket, offset)]
    assert 8 == again.resume_offset(7)
    again.check_invariants()


def test_offsets_of_a_segment_grow_whatever_the_bucket() -> None:
    checkpoints = _offered(0, 0, 1)
    before = checkpoints.snapshot()

    for bucket in (0, 1, 5):
        with pytest.raises(OffsetOrderError, match="cannot take offset 2 after 2"):
            checkpoints.offer(7, bucket, 2)
    assert before == checkpoints.snapshot()


def test_a_restart_does_not_read_below_the_place_to_read_on() -> None:
    checkpoints = _offered(0, 1)
    checkpoints.settle(7, 0, 0)

    with pytest.raises(OffsetOrderError, match="cannot take offset 0 after 0"):
        _restarted(checkpoints).offer(7, 0, 0)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ((-1, 0, 0), "segment"),
        ((True, 0, 0), "segment"),
        (("7", 0, 0), "segment"),
        ((7, -1, 0), "bucket"),
        ((7, None, 0), "bucket"),
        ((7, 0, -1), "offset"),
        ((7, 0, 1.0), "offset"),
        ((7, 0, 1 << 256), "offset"),
    ],
)
def test_a_place_is_three_numbers(place: tuple[Any, Any, Any], name: str) -> None:
    checkpoints = BucketCheckpoints()
    for question in (checkpoints.offer, checkpoints.settle):
        with pytest.raises(ArgumentError, match=f"{name} is"):
            question(*place)
    assert {"version": 1, "segments": []} == checkpoints.snapshot()


def test_a_drained_segment_can_be_forgotten_and_no_other() -> None:
    checkpoints = _offered(0)
    with pytest.raises(SegmentBusyError) as caught:
        checkpoints.forget(7)
    assert (7, 1) == (caught.value.segment, caught.value.outstanding)

    checkpoints.settle(7, 0, 0)
    checkpoints.forget(7)
    checkpoints.forget(7)
    assert checkpoints.resume_offset(7) is None
    assert BucketCheckpoints().snapshot() == checkpoints.snapshot()


def test_damaged_checkpoints_are_refused() -> None:
    written = _offered(0).snapshot()
    for damaged in ([written], {**written, "more": 1}, {**written, "version": 2}, {**written, "segments": None}):
        with pytest.raises(SnapshotError):
            BucketCheckpoints.restore(damaged)


def test_a_cursor_ahead_of_its_segment_is_found_out() -> None:
    checkpoints = _offered(0)
    checkpoints._segments[7].next = 0
    with pytest.raises(InvariantError, match="bucket 0 is not ahead of its segment"):
        checkpoints.check_invariants()
