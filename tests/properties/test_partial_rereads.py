"""Restarts of bucket cursors at any point, also while a restart reads again: nothing is lost, nothing comes twice."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.buckets import BucketCheckpoints
from keyshared.segments import SegmentMap, SegmentProgress

SEGMENTS = SegmentMap.equal_width()
BUCKETS = 4


class Checkpoints:
    """`BucketCheckpoints` of one segment."""

    def __init__(self) -> None:
        self.made = BucketCheckpoints()

    def offer(self, bucket: int, offset: int) -> bool:
        return self.made.offer(0, bucket, offset)

    def settle(self, bucket: int, offset: int) -> None:
        assert self.made.settle(0, bucket, offset)

    def resume(self) -> int | None:
        return self.made.resume_offset(0)

    def restart(self) -> None:
        written = self.made.snapshot()
        self.made = BucketCheckpoints.restore(written)
        assert written == self.made.snapshot()


class Progress:
    """`SegmentProgress` of one segment."""

    def __init__(self) -> None:
        self.made = SegmentProgress(SEGMENTS)

    def offer(self, bucket: int, offset: int) -> bool:
        stamp = bucket * 16_384
        return bool(self.made.offer(0, offset, stamp, stamp))

    def settle(self, bucket: int, offset: int) -> None:
        self.made.settle(0, bucket, offset)

    def resume(self) -> int | None:
        return self.made.resume_offset(0)

    def restart(self) -> None:
        written = self.made.snapshot()
        self.made = SegmentProgress.restore(written, SEGMENTS)
        assert written == self.made.snapshot()


def live(make: Callable[[], Any], choose: Random) -> None:
    """Read, settle, restart, and lose entries of the log to compaction; compare with a set of what is settled."""
    weights = [choose.random() for _ in range(4)]
    buckets = {offset * choose.choice([1, 1, 3]): choose.randrange(BUCKETS) for offset in range(12)}
    subject, settled, outstanding = make(), set(), []
    ahead = sorted(buckets)
    for _ in range(60):
        action = choose.choices(["read", "settle", "restart", "lose"], weights)[0]
        if action == "read" and ahead:
            offset = ahead.pop(0)
            needed = subject.offer(buckets[offset], offset)
            assert needed is (offset not in settled)
            outstanding += [offset] * needed
        elif action == "settle" and outstanding:
            offset = outstanding.pop(choose.randrange(len(outstanding)))
            subject.settle(buckets[offset], offset)
            settled.add(offset)
        elif action == "restart":
            subject.restart()
            outstanding = []
            resume = subject.resume()
            ahead = [offset for offset in sorted(buckets) if resume is None or offset >= resume]
            assert not set(buckets) - settled - set(ahead)
        elif action == "lose" and ahead:
            gone = choose.choice(ahead)
            ahead.remove(gone)
            del buckets[gone]
        subject.made.check_invariants()


@pytest.mark.parametrize("make", [Checkpoints, Progress])
@given(choose=st.randoms(use_true_random=False))
def test_no_restart_loses_an_entry_or_asks_for_a_settled_one(make: Callable[[], Any], choose: Random) -> None:
    live(make, choose)
