"""Corners of the core that single rules seldom reach."""

from typing import Any

from tests.alphabet import AlphabetRing, fill

from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher
from keyshared._core.feature import Feature
from keyshared.config import Poison, RetryPolicy, Unmatched
from keyshared.effects import Call, CursorAdvanced, Deliver, Ignored, IgnoredReason, Load, Resumed


def subscription(*names: str, **config: Any) -> KeySharedDispatcher:
    dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(**config))
    for name in names:
        dispatcher.add_consumer(name, now_ms=0)
    return dispatcher


def test_a_feature_that_overrides_nothing_keeps_and_refuses_nothing() -> None:
    feature = Feature()
    dispatcher = subscription("ann")
    dispatcher.offer(0, "k")
    lane = dispatcher._machine.window.lanes[b"k"]
    owner = dispatcher._machine.window.consumers["ann"]

    assert (None, False, False, [], [], {}, None) == (
        feature.gate,
        feature.refuses(lane, owner),
        feature.must_finish(owner),
        list(feature.keys()),
        list(feature.finish(0)),
        feature.duties(),
        feature.dump(0),
    )


def test_consumers_that_have_left_are_not_kept_until_a_keyless_message_asks() -> None:
    dispatcher = subscription("ann")
    for number in range(200):
        dispatcher.add_consumer(f"c{number}")
        dispatcher.remove_consumer(f"c{number}")
    dispatcher.check_invariants()

    dispatcher.offer(0, None)
    assert ["ann"] == [delivery.consumer for delivery in dispatcher.in_flight()]


def test_a_pause_that_begins_and_ends_among_several_acks_is_over_as_after_single_ones() -> None:
    effects = []
    for at_once in (False, True):
        dispatcher = KeySharedDispatcher(AlphabetRing(), DispatcherConfig(window=6))
        dispatcher.add_consumer("ann", limit=2)
        dispatcher.add_consumer("bob", limit=0)
        fill(dispatcher, "a1", "a2", "b1", "b2", "b3", "a1", "a3")  # the last two are spilled, and a slot is left
        assert 1 == dispatcher.free_slots
        receipts = [(0, "ann", 1), (1, "ann", 1)]
        calls = [dispatcher.ack_many(receipts)] if at_once else [dispatcher.ack(*receipt) for receipt in receipts]
        effects.append([effect for call in calls for effect in call if not isinstance(effect, CursorAdvanced)])
    assert [Load(5, b"a1"), Load(6, b"a3"), Resumed(1)] == effects[0] == effects[1]


def test_the_consumer_with_most_capacity_is_found_after_many_changes() -> None:
    dispatcher = subscription("ann", "bob", max_in_flight_per_consumer=300)
    for offset in range(400):
        dispatcher.set_limit("ann", 300 + offset % 7)
        dispatcher.offer(offset, None)
    dispatcher.check_invariants()

    assert 400 == len(dispatcher.in_flight())


def test_a_deadline_that_is_moved_often_leaves_nothing_behind() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=1_000)
    dispatcher.offer(0, "a", now_ms=0)
    for number in range(300):
        assert [] == dispatcher.extend(0, "ann", 1, extend_ms=1_000 + number)

    assert 1_299 == dispatcher.next_deadline_ms()
    dispatcher.check_invariants()


def test_patterns_that_are_no_short_prefix_are_tried_and_their_answers_are_forgotten_in_time() -> None:
    dispatcher = subscription()
    long = "k" * 70
    dispatcher.add_consumer("ann", filters=[f"{long}*", "kk*", "?x*y"])
    dispatcher.add_consumer("bob", filters=["kk*"])

    assert [None, "ann"] == [dispatcher.owner("k"), dispatcher.owner("axy")]
    assert dispatcher.owner(long + "1") in {"ann", "bob"}
    for number in range(3_000):
        dispatcher.owner(f"{number:0>60}")
    dispatcher.check_invariants()


def test_a_key_gets_the_lane_of_one_that_is_gone() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=None)
    for offset in range(3):
        (delivery,) = dispatcher.offer(offset, f"k{offset}")
        assert isinstance(delivery, Deliver)
        assert f"k{offset}".encode() == delivery.key
        dispatcher.ack(*delivery.receipt)
    dispatcher.check_invariants()

    assert dispatcher.offer(9, "z") == dispatcher.in_flight()


def full_of_failures(**config: Any) -> KeySharedDispatcher:
    """Return a dispatcher of which each message has failed: what waits beyond half the window is spilled."""
    dispatcher = subscription("ann", window=4, max_tracked=20, ack_timeout_ms=None, **config)
    for offset in range(6):
        dispatcher.offer(offset, f"k{offset}", offset, now_ms=0)
        dispatcher.nack(offset, "ann", 1)
    assert (4, 2) == (dispatcher.stats().spilled, dispatcher.stats().loaded)
    dispatcher.check_invariants()
    return dispatcher


def finish(dispatcher: KeySharedDispatcher, effects: list[Any]) -> list[int]:
    """Read again what is to be loaded, ack what is delivered; return what was delivered."""
    served: list[int] = []
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, Load):
            effects += dispatcher.loaded(effect.offset, effect.offset)
        elif isinstance(effect, Deliver):
            assert effect.offset == effect.item
            served.append(effect.offset)
            effects += dispatcher.ack(*effect.receipt)
    dispatcher.check_invariants()
    return sorted(served)


def test_retries_that_were_spilled_are_read_again_when_their_time_has_come() -> None:
    dispatcher = full_of_failures(retry=RetryPolicy(base_delay_ms=50))

    assert list(range(6)) == finish(dispatcher, dispatcher.handle_timeout(now_ms=50))
    assert 5 == dispatcher.safe_cursor


def test_blocked_messages_that_were_spilled_are_read_again_when_they_are_unblocked() -> None:
    dispatcher = full_of_failures(retry=RetryPolicy(max_redeliveries=0), poison=Poison.BLOCK)

    effects = [effect for offset in range(6) for effect in dispatcher.unblock(f"k{offset}")]
    assert list(range(6)) == finish(dispatcher, effects)


def test_messages_without_a_key_are_spilled_and_read_again_too() -> None:
    dispatcher = subscription(window=4, max_tracked=20, ack_timeout_ms=None)
    for offset in range(6):
        dispatcher.offer(offset, None, offset)
    assert 4 == dispatcher.stats().spilled

    assert list(range(6)) == finish(dispatcher, dispatcher.add_consumer("ann"))


def test_several_messages_at_once_may_wait_for_their_time() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=None)
    effects = dispatcher.offer_many([(0, "a", 0, 50), (1, "b", 1, 0)], now_ms=10)

    assert [1] == finish(dispatcher, effects)
    assert [0] == finish(dispatcher, dispatcher.handle_timeout(now_ms=50))


def test_without_a_timeout_the_next_message_goes_out_in_the_place_of_the_settled_one() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=None)
    fill(dispatcher, "k", "k")

    assert [Deliver(1, b"k", "ann", 1, 0, None), CursorAdvanced(0)] == dispatcher.ack(0, "ann", 1)
    assert None is dispatcher.next_deadline_ms()


def test_a_late_ack_among_several_settles_what_waits_for_its_retry() -> None:
    dispatcher = subscription("ann", retry=RetryPolicy(base_delay_ms=100))
    fill(dispatcher, "k", "k", "l")
    dispatcher.nack(0, "ann", 1)

    expected = [Deliver(1, b"k", "ann", 1, 0, None), CursorAdvanced(0)]
    assert expected == dispatcher.ack_many([(0, "ann", 1), (2, "ann", 1)])


def test_a_new_key_counts_at_once_for_who_has_most_room() -> None:
    dispatcher = subscription("ann", "bob", max_in_flight_per_consumer=2)
    key = next(key for key in map(str, range(99)) if dispatcher.owner(key) == "bob")

    assert [Deliver(0, None, "ann", 1, 0, None)] == dispatcher.offer(0, None)
    dispatcher.offer(1, key)
    assert [Deliver(2, None, "ann", 1, 0, None)] == dispatcher.offer(2, None)


def test_a_pull_takes_as_many_of_a_key_as_may_be_open() -> None:
    dispatcher = subscription(max_in_flight_per_key=3)
    dispatcher.add_consumer("ann", limit=0)
    fill(dispatcher, "k", "k", "k", "k")

    assert [0, 1, 2] == [effect.offset for effect in dispatcher.pull("ann", 4) if isinstance(effect, Deliver)]


def test_a_weight_is_set_for_a_name_that_the_placement_brought_along() -> None:
    dispatcher: KeySharedDispatcher[Any] = KeySharedDispatcher(HashRing(["ann"]))

    dispatcher.add_consumer("ann", weight=2)
    assert HashRing({"ann": 2}).ranges == dispatcher.placement.ranges


def test_a_message_that_is_skipped_while_nothing_is_outstanding_is_no_hole() -> None:
    dispatcher = subscription(max_ack_holes=1, unmatched=Unmatched.SKIP)
    dispatcher.add_consumer("ann", filters=["a*"])
    for offset in range(3):
        dispatcher.offer(offset, "b")

    assert [Deliver(3, b"a", "ann", 1, 0, None)] == dispatcher.offer(3, "a")
    for offset in (4, 5):
        dispatcher.offer(offset, "b")
    assert [Deliver(6, b"ab", "ann", 1, 0, None)] == dispatcher.offer(6, "ab")


def test_what_was_known_of_the_capacity_of_a_consumer_is_forgotten_now_and_then() -> None:
    dispatcher = subscription(window=1_000)
    dispatcher.add_consumer("ann", limit=400)
    fill(dispatcher, *[None] * 200)

    for number in range(80):  # its capacity grows, so what was known before stays below
        dispatcher.ack_many([(2 * number, "ann", 1), (2 * number + 1, "ann", 1)])
        assert 1 == len(dispatcher.offer(200 + number, None))
    assert len(dispatcher._machine.window.rooms._heap) < 70
    dispatcher.check_invariants()


def test_late_and_stale_acks_among_several_settle_and_are_ignored_as_single_ones() -> None:
    answers = []
    for at_once in (False, True):
        dispatcher = subscription("ann", ack_timeout_ms=10)
        dispatcher.offer(0, "a", now_ms=0)
        dispatcher.handle_timeout(now_ms=10)  # it waits for its retry, so its late ack settles it
        dispatcher.offer(1, "b")
        receipts = [(0, "ann", 1), (1, "ann", 1), (1, "ann", 1)]
        calls = [dispatcher.ack_many(receipts)] if at_once else [dispatcher.ack(*receipt) for receipt in receipts]
        dispatcher.check_invariants()
        answers.append((dispatcher.safe_cursor, [each for call in calls for each in call if isinstance(each, Ignored)]))

    assert answers[0] == answers[1]
    assert (1, [Ignored(1, "ann", 1, Call.ACK, IgnoredReason.UNKNOWN_OFFSET)]) == answers[1]
