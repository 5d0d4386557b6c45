"""Entries served by bucket: the unchanged dispatcher, with the bucket as the key."""

from itertools import count

import pytest

from keyshared.buckets import BUCKET_HASH, BucketLayout, BucketPlacement
from keyshared.config import DispatcherConfig
from keyshared.dispatcher import Blocking, KeySharedDispatcher
from keyshared.effects import BlockReason, CursorAdvanced, Deliver, Effect
from keyshared.errors import ArgumentError
from keyshared.placement import RangeMap

FOUR = BucketLayout.equal_width(4)
THREE_AT_ONCE = DispatcherConfig(max_in_flight_per_key=3)


def _deliveries(effects: list[Effect]) -> list[tuple[int, int, str]]:
    """Bucket, offset and consumer of what goes out."""
    return [(FOUR.bucket_of_key(e.key or b""), e.offset, e.consumer) for e in effects if isinstance(e, Deliver)]


def _subscription(*consumers: str) -> KeySharedDispatcher:
    dispatcher = KeySharedDispatcher(BucketPlacement(FOUR), THREE_AT_ONCE)
    for name in consumers:
        dispatcher.add_consumer(name)
    return dispatcher


def test_entries_of_a_bucket_go_to_its_owner_and_several_may_be_open() -> None:
    dispatcher = _subscription("a", "b")
    offsets = count()

    sent = [_deliveries(dispatcher.offer(next(offsets), FOUR.bucket_key(bucket))) for bucket in (0, 0, 3, 0, 0)]
    assert [[(0, 0, "a")], [(0, 1, "a")], [(3, 2, "b")], [(0, 3, "a")], []] == sent
    assert [CursorAdvanced(0), (0, 4, "a")] == [
        effect if isinstance(effect, CursorAdvanced) else _deliveries([effect])[0]
        for effect in reversed(dispatcher.ack(0, "a", 1))
    ]


def test_a_join_moves_half_of_the_buckets_and_each_drains_by_itself() -> None:
    dispatcher = _subscription("a")
    for offset, bucket in enumerate((2, 3, 2, 0)):
        dispatcher.offer(offset, FOUR.bucket_key(bucket))
    dispatcher.add_consumer("b")  # buckets 2 and 3
    assert [2, 2] == [sum(dispatcher.owner(FOUR.bucket_key(i)) == name for i in range(4)) for name in "ab"]

    for offset, bucket in enumerate((2, 3, 0), start=4):
        sent = _deliveries(dispatcher.offer(offset, FOUR.bucket_key(bucket)))
        assert ([(0, 6, "a")] if bucket == 0 else []) == sent
    assert Blocking(BlockReason.DRAINING, "a") == dispatcher.why_blocked(4)

    assert [(3, 5, "b")] == _deliveries(dispatcher.ack(1, "a", 1))  # bucket 3 is drained, bucket 2 is not
    assert [] == _deliveries(dispatcher.ack(0, "a", 1))
    assert [(2, 4, "b")] == _deliveries(dispatcher.ack(2, "a", 1))


def test_a_leave_gives_back_what_it_held_in_the_order_of_each_bucket() -> None:
    dispatcher = _subscription("a", "b")
    for offset, bucket in enumerate((3, 2, 3)):
        dispatcher.offer(offset, FOUR.bucket_key(bucket))

    assert [(3, 0, "a"), (2, 1, "a"), (3, 2, "a")] == sorted(
        _deliveries(dispatcher.remove_consumer("b")), key=lambda delivery: delivery[1]
    )


def test_a_key_that_is_no_bucket_is_refused_and_changes_nothing() -> None:
    dispatcher = _subscription("a")
    before = dispatcher.snapshot()

    for key in (b"order-1", b"", "k"):
        with pytest.raises(ArgumentError, match="be 2 bytes, as BucketLayout"):
            dispatcher.offer(0, key)
        assert before == dispatcher.snapshot()
    with pytest.raises(ArgumentError, match="be 2 bytes"):
        FOUR.bucket_of_key(b"order-1")
    dispatcher.check_invariants()


def test_a_restart_rebuilds_the_owners_that_history_made() -> None:
    dispatcher = _subscription("a", "b", "c")
    dispatcher.remove_consumer("a")
    dispatcher.offer(0, FOUR.bucket_key(1))
    state, stored = dispatcher.snapshot(), dispatcher.placement.ranges.to_json()

    ranges = RangeMap.from_json(stored, key_hash=BUCKET_HASH)
    placement = BucketPlacement.from_ranges(FOUR, ranges, ["b", "c"])
    again = KeySharedDispatcher.restore(state, placement, THREE_AT_ONCE, now_ms=0, epoch=1)
    assert dispatcher.placement.ranges == again.placement.ranges
    assert _deliveries(dispatcher.outstanding_effects()) == _deliveries(again.outstanding_effects())
    assert dispatcher.placement.ranges != BucketPlacement(FOUR, ["b", "c"]).ranges  # what a fresh one would say
