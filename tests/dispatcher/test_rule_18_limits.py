"""Rule 18: how much may wait for the consumers that are connected, and how long the restart token may become."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, deliver, delivered, fill, subscription

from keyshared.config import DispatcherConfig, LookAhead, Poison
from keyshared.dispatcher import Blocking, KeySharedDispatcher
from keyshared.effects import BlockReason, DeadLetter, Resumed
from keyshared.errors import LookAheadFullError, SnapshotError, WindowFullError

MOST = 20  # holes; with more only the lowest message goes out, until there are 10


def looking(*consumers: str, per_consumer: int = 2, per_subscription: int = 3, **config: Any) -> Watched:
    look_ahead = LookAhead(per_consumer=per_consumer, per_subscription=per_subscription)
    dispatcher = subscription(look_ahead=look_ahead, **config)
    for name in consumers:
        dispatcher.add_consumer(name)
    return dispatcher


def restored(dispatcher: Any, **config: Any) -> KeySharedDispatcher[object]:
    state = json.loads(json.dumps(dispatcher.snapshot()))
    return KeySharedDispatcher.restore(state, AlphabetRing(), DispatcherConfig(**config), now_ms=0)


class TestLookAhead:
    """As many messages may wait as the connected consumers are worth."""

    def test_nothing_is_read_while_nobody_is_there(self) -> None:
        dispatcher = looking()

        assert (0, "look_ahead") == (dispatcher.free_slots, dispatcher.stats().paused_by)
        with pytest.raises(LookAheadFullError, match="0 messages may wait for the consumers that are connected"):
            dispatcher.offer(0, "a1")
        assert [Resumed(2)] == dispatcher.add_consumer("ann")

    def test_what_is_open_does_not_count_and_all_else_does(self) -> None:
        dispatcher = looking("ann", per_subscription=10)
        assert [(0, "ann"), (1, "ann")] == delivered(fill(dispatcher, "a1", "a2"))

        assert 2 == dispatcher.free_slots
        dispatcher.offer(2, "a1")
        dispatcher.nack(1, "ann", 1)  # a retry waits, too
        assert 0 == dispatcher.free_slots == dispatcher.room_for("a3")
        before = dispatcher.snapshot()
        with pytest.raises(WindowFullError) as caught:
            dispatcher.offer(3, "a3")
        assert 2 == caught.value.capacity
        with pytest.raises(LookAheadFullError):
            dispatcher.offer_many([(3, "a3", None)])
        with pytest.raises(LookAheadFullError):
            dispatcher.offer(3, "a3", not_before_ms=50)
        assert before == dispatcher.snapshot()
        assert [Resumed(1)] == dispatcher.ack(0, "ann", 1)[-1:]

    def test_a_join_raises_it_in_that_call_up_to_the_cap_and_a_leave_lowers_it(self) -> None:
        dispatcher = looking("ann", "bob")
        fill(dispatcher, "a1", "a1", "a1", "a1")
        assert (0, "look_ahead") == (dispatcher.free_slots, dispatcher.stats().paused_by)
        assert [] == dispatcher.remove_consumer("bob")
        dispatcher.ack(0, "ann", 1)
        assert 0 == dispatcher.free_slots  # 2 wait, for one consumer

        assert [Resumed(1)] == dispatcher.add_consumer("cat")
        assert 1 == dispatcher.free_slots  # 3 and not 4 for two

    def test_who_is_inactive_counts_and_who_drains_does_not(self) -> None:
        dispatcher = looking("ann", "bob", per_subscription=0)
        fill(dispatcher, "b1")
        dispatcher.set_inactive("ann")
        assert 4 == dispatcher.free_slots
        dispatcher.remove_consumer("bob", drain_ms=None)
        assert 2 == dispatcher.free_slots

    def test_the_pause_ends_when_a_quarter_of_the_limit_is_free(self) -> None:
        dispatcher = looking("ann", per_consumer=8, per_subscription=0)
        fill(dispatcher, *["a1"] * 9)
        assert 0 == dispatcher.free_slots

        assert [(1, "ann")] == delivered(dispatcher.ack(0, "ann", 1))
        assert 1 == dispatcher.free_slots
        assert [Resumed(2)] == dispatcher.ack(1, "ann", 1)[-1:]

    def test_the_pause_does_not_end_before_a_quarter_of_the_window_is_free(self) -> None:
        dispatcher = looking("ann", per_consumer=4, per_subscription=0, window=4, spill=False)
        fill(dispatcher, *["a1"] * 4)
        assert (0, "window") == (dispatcher.free_slots, dispatcher.stats().paused_by)
        with pytest.raises(WindowFullError, match="all 4 slots"):
            dispatcher.offer_many([(4, "a2", None)])
        assert [Resumed(1)] == dispatcher.ack(0, "ann", 1)[-1:]

    def test_all_that_is_tracked_may_be_the_tighter_limit(self) -> None:
        dispatcher = looking("ann", per_consumer=9, per_subscription=0, window=2, max_tracked=2, max_loaded_per_key=1)
        fill(dispatcher, "a1", "a1")
        assert "tracked" == dispatcher.stats().paused_by

    def test_a_snapshot_needs_nothing_of_it(self) -> None:
        dispatcher = looking("ann")
        fill(dispatcher, "a1", "a1", "a1")
        again = restored(dispatcher, look_ahead=LookAhead(per_consumer=2, per_subscription=3))
        assert 0 == again.free_slots
        more = restored(dispatcher, look_ahead=LookAhead(per_consumer=5))
        assert (3, []) == (more.free_slots, more.offer(3, "a1"))

    def test_it_goes_with_batches_and_settlements_told(self) -> None:
        dispatcher = looking(per_consumer=9, per_subscription=0, batch_per_key=3, tell_settled=True, max_ack_holes=MOST)
        dispatcher.add_consumer("ann", limit=0)
        fill(dispatcher, *["a1"] * 5)
        assert [(0, "ann"), (1, "ann"), (2, "ann")] == delivered(dispatcher.pull("ann", 4))
        assert 7 == dispatcher.free_slots


def holes(*rest: str | None, **config: Any) -> Watched:
    """Ann has every second one of 60 messages done; 0 is open, and nothing new goes out."""
    config = {"max_ack_holes": MOST, "poison": Poison.BLOCK, **config}
    dispatcher = subscription("ann", max_in_flight_per_consumer=100, **config)
    fill(dispatcher, *(f"a{number}" for number in range(60)))
    for offset in range(2, 60, 2):
        dispatcher.ack(offset, "ann", 1)
    fill(dispatcher, *rest, start=60)
    return dispatcher


def holes_without_a_bound() -> Watched:
    return holes(max_ack_holes=None)


def settle_up_to(dispatcher: Any, offset: int) -> list[tuple[int, str]]:
    """Settle from below until this one goes out; return what goes out with it."""
    effects = []
    while dispatcher.why_blocked(offset) is not None:
        effects = dispatcher.ack(dispatcher.resume_offset, "ann", 1)
    return delivered(effects)


class TestAckHoles:
    """With too many holes only the lowest outstanding message goes out, until there are half as many."""

    def test_nothing_new_goes_out_and_it_says_why(self) -> None:
        dispatcher = holes("x", None, "a1")

        assert len(dispatcher.acked_ranges()) > MOST
        held = Blocking(BlockReason.ACK_HOLES, behind=0)
        assert [held, held] == [dispatcher.why_blocked(offset) for offset in (60, 61)]
        assert Blocking(BlockReason.KEY_IN_FLIGHT, "ann") == dispatcher.why_blocked(62)
        dispatcher.release(5, "ann", 1)
        assert held == dispatcher.why_blocked(5)

    def test_all_goes_on_at_one_half_in_its_order(self) -> None:
        dispatcher = holes("x", None, "y")

        assert [(60, "ann"), (61, "ann"), (62, "ann")] == settle_up_to(dispatcher, 60)
        assert len(dispatcher.acked_ranges()) <= MOST // 2
        assert [deliver(63, "z", "ann")] == dispatcher.offer(63, "z")

    def test_the_lowest_goes_out_at_any_time(self) -> None:
        dispatcher = holes("x")

        assert [(0, "ann")] == delivered(dispatcher.release(0, "ann", 1))
        dispatcher.release(1, "ann", 1)
        assert [(1, "ann")] == delivered(dispatcher.ack(0, "ann", 2))  # now this is the lowest

    def test_if_the_lowest_is_delayed_the_subscription_waits_for_it(self) -> None:
        dispatcher = holes("x")

        assert [] == delivered(dispatcher.release(0, "ann", 1, delay_ms=50, now_ms=0))
        assert BlockReason.POSTPONED is dispatcher.why_blocked(0).reason  # type: ignore[union-attr]  # it waits
        assert [(0, "ann")] == delivered(dispatcher.handle_timeout(now_ms=50))
        dispatcher.offer(61, "late", not_before_ms=90)
        dispatcher.handle_timeout(now_ms=90)
        assert BlockReason.ACK_HOLES is dispatcher.why_blocked(61).reason  # type: ignore[union-attr]  # it waits

    def test_what_is_open_may_be_settled_and_what_is_archived_is_not_held_back(self) -> None:
        dispatcher = holes(quarantine=True, poison=Poison.DEAD_LETTER)

        assert [] == delivered(dispatcher.ack(5, "ann", 1))
        (letter,) = [each for each in dispatcher.reject(7, "ann", 1) if isinstance(each, DeadLetter)]
        assert 7 == letter.offset

    def test_pull_hands_out_the_lowest_and_nothing_else(self) -> None:
        dispatcher = holes("x", "y")
        dispatcher.set_limit("ann", 0)
        dispatcher.release(0, "ann", 1)

        assert [] == dispatcher.pull("ann", 5, only=60)
        assert [(0, "ann")] == delivered(dispatcher.pull("ann", 5))
        assert [] == dispatcher.pull("ann", 5)

    def test_a_log_that_is_done_in_order_never_fills_it(self) -> None:
        dispatcher = subscription("ann", max_ack_holes=0)
        for offset in range(200):
            assert [(offset, "ann")] == delivered(dispatcher.offer(offset, "a1"))
            dispatcher.ack(offset, "ann", 1)

    def test_a_snapshot_remembers_that_it_was_full(self) -> None:
        dispatcher = holes("x")
        for offset in (0, *range(1, 25, 2)):  # it comes down, and not to one half
            dispatcher.ack(offset, "ann", 1)
        assert MOST // 2 < len(dispatcher.acked_ranges()) <= MOST
        assert dispatcher.snapshot()["features"]["ack_holes"] is True  # type: ignore[index]  # a dict

        again = restored(dispatcher, max_ack_holes=MOST)
        assert BlockReason.ACK_HOLES is again.why_blocked(60).reason  # type: ignore[union-attr]  # it waits
        assert [(60, "ann")] == settle_up_to(dispatcher, 60) == settle_up_to(again, 60)
        assert "ack_holes" not in again.snapshot()["features"]  # type: ignore[operator]  # a dict

    def test_the_lowest_without_a_key_goes_to_most_room_before_and_after_a_restart(self) -> None:
        dispatcher = subscription(max_ack_holes=MOST, max_in_flight_per_consumer=100)
        dispatcher.add_consumer("bob", limit=1)
        dispatcher.add_consumer("ann")
        fill(dispatcher, "a0", None, *(f"a{number}" for number in range(2, 60)))
        for offset in range(2, 60, 2):
            dispatcher.ack(offset, "ann", 1)
        dispatcher.release(1, "ann", 1)

        again = restored(dispatcher, max_ack_holes=MOST, max_in_flight_per_consumer=100)
        assert [(1, "ann")] == delivered(dispatcher.ack(0, "ann", 1)) == delivered(again.ack(0, "ann", 1))

    def test_a_snapshot_without_it_begins_with_the_count_and_one_with_it_needs_the_bound(self) -> None:
        dispatcher = holes("x")
        with pytest.raises(SnapshotError, match="the configuration does not ask for it"):
            restored(dispatcher)
        again = restored(holes_without_a_bound(), max_ack_holes=MOST)
        assert again.snapshot()["features"]["ack_holes"] is True  # type: ignore[index]  # a dict

    def test_holes_of_a_token_count_when_they_are_read_again(self) -> None:
        text = holes().cursor_token().text
        config = DispatcherConfig(max_ack_holes=MOST, max_in_flight_per_consumer=100)
        again: KeySharedDispatcher[object] = KeySharedDispatcher(AlphabetRing(), config, resume_from=text)
        again.add_consumer("ann")

        for offset in range(60):
            again.offer(offset, f"a{offset}")
            again.check_invariants()
        opened = [each.offset for each in again.in_flight()]
        assert MOST + 1 == len(opened) - 1  # 0 and 1 have no hole between them
        assert Blocking(BlockReason.ACK_HOLES, behind=0) == again.why_blocked(59)
