"""Entries served by bucket: the unchanged dispatcher, with the bucket as the key."""

from itertools import count
from typing import Any

import pytest

from keyshared.buckets import BUCKET_HASH, BucketLayout, BucketPlacement
from keyshared.config import DispatcherConfig, DrainUnit, KeySessions, Poison, Rules, Unmatched
from keyshared.dispatcher import Blocking, KeySharedDispatcher
from keyshared.effects import BlockReason, CursorAdvanced, Deliver, Effect
from keyshared.errors import ArgumentError
from keyshared.leases import Lease, LeaseQueue
from keyshared.placement import RangeMap
from keyshared.ring import HashRing

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


class TestKeysThatAreNoBuckets:
    """A bucket key has two bytes: another one has no slot, and is refused before anything changes."""

    @pytest.mark.parametrize(
        ("config", "rules"),
        [
            ({}, None),
            ({"batch_per_key": 3}, None),
            ({"redrive": True}, None),
            ({"sessions": KeySessions()}, None),
            ({"unit": DrainUnit.HASH}, None),
            ({"latest_only": True}, None),
            ({"max_ack_holes": 80}, None),
            ({"max_in_flight": 3}, None),
            ({"ordering_required": True, "poison": Poison.BLOCK, "unmatched": Unmatched.HOLD}, None),
            ({}, Rules(mark="all", group_of=lambda _: "all")),
            ({}, Rules(mark="two", limit_of=lambda _: 2)),
        ],
    )
    @pytest.mark.parametrize("names", [(), ("a",)])
    def test_an_offer_is_refused(self, config: dict[str, Any], rules: Rules | None, names: tuple[str, ...]) -> None:
        dispatcher = KeySharedDispatcher(BucketPlacement(FOUR), DispatcherConfig(**config), rules=rules)
        for name in names:
            dispatcher.add_consumer(name)
        before = dispatcher.snapshot()
        good = FOUR.bucket_key(1)
        calls: list[Any] = [
            lambda: dispatcher.offer(0, "order-1"),
            lambda: dispatcher.offer(0, "order-1", not_before_ms=9),
            lambda: dispatcher.offer_many([(0, good, None), (1, "order-1", None)]),
        ]
        if config.get("redrive"):
            calls.append(lambda: dispatcher.redrive("order-1", []))
        for each in calls:
            with pytest.raises(ArgumentError, match="bucket key"):
                each()
            dispatcher.check_invariants()
            assert before == dispatcher.snapshot()

    def test_a_placement_that_has_no_slot_for_a_key_is_refused(self) -> None:
        dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(max_in_flight_per_consumer=1))
        dispatcher.add_consumer("a")
        dispatcher.offer_many([(0, "order-1", None), (1, "order-2", None)])
        before = dispatcher.snapshot()

        with pytest.raises(ArgumentError, match="bucket key"):
            dispatcher.set_placement(BucketPlacement(FOUR))
        dispatcher.check_invariants()
        assert before == dispatcher.snapshot()
        assert isinstance(dispatcher.placement, HashRing)
        assert 1 == dispatcher.ack(0, "a", 1)[0].offset  # type: ignore[union-attr]

    @pytest.mark.parametrize("way", ["quarantine", "session"])
    def test_nor_one_without_a_slot_for_a_key_of_which_nothing_is_outstanding(self, way: str) -> None:
        kept: dict[str, Any] = {"quarantine": True} if way == "quarantine" else {"sessions": KeySessions(linger_ms=9)}
        dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(**kept))
        dispatcher.add_consumer("a")
        dispatcher.offer(0, "order-1")
        if way == "quarantine":
            dispatcher.reject(0, "a", 1)
            dispatcher.dead_lettered(0)
        else:
            dispatcher.ack(0, "a", 1)

        with pytest.raises(ArgumentError, match="bucket key"):
            dispatcher.set_placement(BucketPlacement(FOUR))
        dispatcher.check_invariants()

    def test_one_with_a_slot_for_each_is_taken(self) -> None:
        dispatcher = KeySharedDispatcher(HashRing())
        dispatcher.add_consumer("a")
        dispatcher.offer(0, FOUR.bucket_key(2))
        assert [] == dispatcher.set_placement(BucketPlacement(FOUR))
        dispatcher.check_invariants()

    def test_a_lease_queue_refuses_it_too(self) -> None:
        queue: LeaseQueue[None] = LeaseQueue(HashRing())
        queue.add_consumer("a")
        queue.offer(0, "order-1")

        with pytest.raises(ArgumentError, match="bucket key"):
            queue.set_placement(BucketPlacement(FOUR))
        queue.check_invariants()
        assert isinstance(queue.consume("a").result, Lease)
