"""Rule 3: every offset is tracked, but only a window of payloads is kept; others are read again at their turn."""

import pytest
from tests.alphabet import Watched, advanced, deliver, fill, subscription, then

from keyshared.dispatcher import Blocking
from keyshared.effects import (
    BlockReason,
    Call,
    Ignored,
    IgnoredReason,
    Load,
    Released,
    ReleaseReason,
    Resumed,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.errors import WindowFullError


class TestOneHotKey:
    """A key has at most ``max_loaded_per_key`` payloads."""

    def test_its_newer_messages_spill_and_other_keys_have_the_window(self) -> None:
        # With one shared queue, a hot key fills it and everybody waits for that key.
        dispatcher = subscription("ann", window=10, max_loaded_per_key=2)

        assert [deliver(0, "a1", "ann")] == dispatcher.offer(0, "a1")
        assert [] == dispatcher.offer(1, "a1")
        assert [Spilled(2)] == dispatcher.offer(2, "a1", "payload")
        assert [Spilled(3)] == dispatcher.offer(3, "a1")
        assert 8 == dispatcher.free_slots
        assert [deliver(4, "a2", "ann")] == dispatcher.offer(4, "a2")

    def test_a_settled_message_hands_its_slot_to_the_oldest_spilled_one(self) -> None:
        dispatcher = subscription("ann", window=10, max_loaded_per_key=2)
        dispatcher.offer_many([(offset, "a1", None) for offset in range(4)])

        assert [Load(2, b"a1"), deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert 8 == dispatcher.free_slots
        assert [] == dispatcher.loaded(2, "again")
        assert [Load(3, b"a1"), deliver(2, "a1", "ann", item="again"), advanced(1)] == dispatcher.ack(1, "ann", 1)

    def test_the_next_message_waits_while_the_spilled_one_is_read(self) -> None:
        dispatcher = subscription("ann", window=10, max_loaded_per_key=1)
        dispatcher.offer_many([(0, "a1", None), (1, "a1", None)])

        assert [Load(1, b"a1"), advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert Blocking(BlockReason.LOADING) == dispatcher.why_blocked(1)
        assert [deliver(1, "a1", "ann", item="x")] == dispatcher.loaded(1, "x")


class TestManyKeysForAFullConsumer:
    """Waiting messages take at most half the window."""

    def test_a_slow_consumer_leaves_half_the_window_to_the_others(self) -> None:
        dispatcher = subscription("ann", "bob", window=4, max_in_flight_per_consumer=1)
        assert [deliver(0, "a0", "ann")] == dispatcher.offer(0, "a0")
        assert [] == dispatcher.offer(1, "a1")
        assert [] == dispatcher.offer(2, "a2")

        assert [Spilled(3)] == dispatcher.offer(3, "a3")
        assert [Spilled(4)] == dispatcher.offer(4, "a4")
        assert [deliver(5, "b0", "bob")] == dispatcher.offer(5, "b0")

    def test_half_of_an_odd_window_is_not_rounded(self) -> None:
        dispatcher = subscription("ann", window=5, max_in_flight_per_consumer=1)

        assert [deliver(0, "a0", "ann"), Spilled(4)] == fill(dispatcher, "a0", "a1", "a2", "a3", "a4")

    def test_a_message_that_can_go_out_is_never_spilled(self) -> None:
        dispatcher = subscription("ann", "bob", window=4, max_in_flight_per_consumer=2)
        dispatcher.set_limit("ann", 0)
        dispatcher.offer_many([(0, "a0", None), (1, "a1", None)])

        assert [deliver(2, "b0", "bob")] == dispatcher.offer(2, "b0")
        assert [deliver(3, "b1", "bob")] == dispatcher.offer(3, "b1")

    def test_its_payload_is_asked_for_when_there_is_room_and_the_room_is_kept_for_it(self) -> None:
        dispatcher = subscription("ann", window=4, max_in_flight_per_consumer=1)
        dispatcher.offer_many([(offset, f"a{offset}", None) for offset in range(4)])
        dispatcher.ack(0, "ann", 1)
        dispatcher.ack(1, "ann", 1)

        assert [Load(3, b"a3"), advanced(2)] == dispatcher.ack(2, "ann", 1)
        assert Blocking(BlockReason.LOADING, "ann") == dispatcher.why_blocked(3)
        assert [] == dispatcher.offer(4, "a4")
        assert Blocking(BlockReason.CONSUMER_FULL, "ann") == dispatcher.why_blocked(4)
        assert [deliver(3, "a3", "ann", item="again")] == dispatcher.loaded(3, "again")

    def test_a_key_that_has_spilled_spills_on_although_the_crowd_is_gone(self) -> None:
        # Kept loaded, 4 would be ready before 3, and whoever serves what is at hand would reorder them.
        dispatcher = subscription("ann", window=4, max_in_flight_per_consumer=1)
        assert [deliver(0, "a0", "ann"), Spilled(3)] == fill(dispatcher, "a0", "a1", "a2", "a3")
        dispatcher.ack(0, "ann", 1)

        assert [Spilled(4)] == dispatcher.offer(4, "a3")
        assert [] == dispatcher.offer(5, "a5")

    def test_a_payload_that_comes_too_late_for_its_consumer_goes_to_the_new_owner(self) -> None:
        dispatcher = self.with_one_load_for_ann()

        assert [] == dispatcher.remove_consumer("ann")
        assert [deliver(3, "a3", "bob", item="x")] == dispatcher.loaded(3, "x")

    def test_a_reservation_ends_with_the_message_it_was_for(self) -> None:
        dispatcher = self.with_one_load_for_ann()
        assert [] == dispatcher.offer(4, "a4")

        assert [Skipped(3, b"a3", SkipReason.GONE), deliver(4, "a4", "ann"), advanced(3)] == dispatcher.gone(3)

    def test_a_payload_is_not_handed_to_the_consumer_it_was_meant_for_if_the_key_has_moved(self) -> None:
        dispatcher = subscription("cat", window=4, max_in_flight_per_consumer=1)
        fill(dispatcher, "c0", "c1", "c2", "b3")
        for offset in (0, 1, 2):
            dispatcher.ack(offset, "cat", 1)
        assert Blocking(BlockReason.LOADING, "cat") == dispatcher.why_blocked(3)
        assert [] == dispatcher.add_consumer("bob")

        assert [deliver(3, "b3", "bob", item="x")] == dispatcher.loaded(3, "x")

    def test_a_payload_is_not_handed_out_before_an_older_message_that_failed_meanwhile(self) -> None:
        dispatcher = subscription("ann", window=6, max_in_flight_per_consumer=2, max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a2", "a3", "a4", "a5", "a1")
        assert Load(5, b"a1") in dispatcher.set_limit("ann", 10)
        dispatcher.nack(0, "ann", 1)

        assert [] == dispatcher.loaded(5, "x")
        assert [
            deliver(0, "a1", "ann", 2, failures=1),
            deliver(5, "a1", "ann", item="x"),
        ] == dispatcher.handle_timeout(now_ms=1_000)

    def test_a_consumer_that_drains_does_not_wait_for_a_payload(self) -> None:
        dispatcher = subscription("ann", window=4, max_in_flight_per_consumer=1)
        fill(dispatcher, "a0", "a1", "a2", "a3")
        for offset in (0, 1):
            dispatcher.ack(offset, "ann", 1)
        assert [Load(3, b"a3")] == dispatcher.set_limit("ann", 2)
        dispatcher.remove_consumer("ann", drain_ms=None)

        assert Blocking(BlockReason.LOADING) == dispatcher.why_blocked(3)
        assert [advanced(2)] == dispatcher.ack(2, "ann", 1)
        assert {} == dispatcher.stats().consumers

    def test_a_consumer_that_falls_silent_leaves_the_payload_in_its_lane(self) -> None:
        dispatcher = self.with_one_load_for_ann()
        dispatcher.set_inactive("ann")

        assert [] == dispatcher.loaded(3, "x")
        assert Blocking(BlockReason.CONSUMER_INACTIVE, "ann") == dispatcher.why_blocked(3)
        assert [deliver(3, "a3", "ann", item="x")] == dispatcher.set_active("ann")

    def with_one_load_for_ann(self) -> Watched:
        """Message 3 is being read again, for a consumer that has room for nothing else."""
        dispatcher = subscription("ann", "bob", window=4, max_in_flight_per_consumer=1)
        fill(dispatcher, "a0", "a1", "a2", "a3")
        dispatcher.ack(0, "ann", 1)
        dispatcher.ack(1, "ann", 1)
        assert [Load(3, b"a3"), advanced(2)] == dispatcher.ack(2, "ann", 1)
        return dispatcher

    def test_a_spilled_message_waits_for_memory_when_its_turn_comes_in_a_full_window(self) -> None:
        dispatcher = subscription("ann", "bob", "cat", window=2, max_in_flight_per_consumer=2)
        dispatcher.set_limit("ann", 0)
        assert [] == dispatcher.offer(0, "a0")
        assert [Spilled(1)] == dispatcher.offer(1, "a1")
        dispatcher.offer(2, "b0")
        dispatcher.set_limit("ann", 1)
        assert 0 == dispatcher.free_slots

        assert [] == dispatcher.set_limit("ann", 2)
        assert Blocking(BlockReason.WINDOW_FULL) == dispatcher.why_blocked(1)
        dispatcher.set_limit("ann", 1)  # now it lacks both
        assert Blocking(BlockReason.CONSUMER_FULL, "ann") == dispatcher.why_blocked(1)
        dispatcher.set_limit("ann", 2)
        assert [Load(1, b"a1")] == dispatcher.ack(2, "bob", 1)
        assert [deliver(1, "a1", "ann", item="x")] == dispatcher.loaded(1, "x")


class TestPause:
    """``free_slots == 0`` is the pause, and it ends once."""

    def test_offering_into_a_full_window_raises_and_the_end_of_the_pause_is_said_once_at_a_quarter(self) -> None:
        dispatcher = subscription("ann", window=14)
        dispatcher.offer_many([(offset, f"a{offset}", None) for offset in range(14)])
        assert 0 == dispatcher.free_slots
        with pytest.raises(WindowFullError, match="all 14 slots"):
            dispatcher.offer(14, "a14")

        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert [advanced(1)] == dispatcher.ack(1, "ann", 1)
        assert [advanced(2), Resumed(3)] == dispatcher.ack(2, "ann", 1)
        assert [advanced(3)] == dispatcher.ack(3, "ann", 1)

    def test_a_window_that_fills_up_again_before_the_quarter_stays_one_pause(self) -> None:
        dispatcher = subscription("ann", window=8)
        dispatcher.offer_many([(offset, f"a{offset}", None) for offset in range(8)])
        dispatcher.ack(0, "ann", 1)
        assert [deliver(8, "a8", "ann")] == dispatcher.offer(8, "a8")

        assert [advanced(3), Resumed(3)] == dispatcher.ack_many([(offset, "ann", 1) for offset in (1, 2, 3)])

    def test_tracked_offsets_are_bounded_too(self) -> None:
        dispatcher = subscription("ann", window=2, max_tracked=3, max_loaded_per_key=1)
        assert [deliver(0, "a1", "ann"), Spilled(1), Spilled(2)] == fill(dispatcher, "a1", "a1", "a1")
        assert (0, 1) == (dispatcher.free_slots, dispatcher.stats().loaded)
        with pytest.raises(WindowFullError, match="all 3 slots"):
            dispatcher.offer(3, "a2")

        assert [Load(1, b"a1"), advanced(0), Resumed(1)] == dispatcher.ack(0, "ann", 1)

    def test_the_smallest_window_works(self) -> None:
        dispatcher = subscription("ann", window=1)
        assert [deliver(0, "a1", "ann")] == dispatcher.offer(0, "a1")

        assert [advanced(0), Resumed(1)] == dispatcher.ack(0, "ann", 1)


class TestNothingIsOfferedTwice:
    """What was spilled is the host's to read again; a failure there has two answers, and neither is an offer."""

    def test_an_unfinished_load_is_asked_for_again_until_it_is_answered(self) -> None:
        dispatcher = subscription("ann", window=10, max_loaded_per_key=1)
        dispatcher.offer_many([(0, "a1", None), (1, "a1", None)])
        load = Load(1, b"a1")
        assert not dispatcher.is_current(load)
        dispatcher.ack(0, "ann", 1)

        assert dispatcher.is_current(load)
        assert [load] == dispatcher.outstanding_effects()
        dispatcher.loaded(1)
        assert not dispatcher.is_current(load)
        assert [deliver(1, "a1", "ann")] == dispatcher.outstanding_effects()

    def test_a_payload_nobody_asked_for_is_not_taken(self) -> None:
        dispatcher = subscription("ann", window=10, max_loaded_per_key=1)
        dispatcher.offer_many([(0, "a1", "own"), (1, "a1", None)])

        not_loading = IgnoredReason.NOT_LOADING
        assert [Ignored(0, None, None, Call.LOADED, not_loading)] == dispatcher.loaded(0, "other")
        assert [Ignored(1, None, None, Call.LOADED, not_loading)] == dispatcher.loaded(1, "too early")
        assert [Ignored(7, None, None, Call.LOADED, IgnoredReason.UNKNOWN_OFFSET)] == dispatcher.loaded(
            7, "never offered"
        )
        assert [deliver(0, "a1", "ann", item="own")] == dispatcher.in_flight()

    def test_what_can_no_longer_be_read_is_settled_and_the_key_goes_on(self) -> None:
        dispatcher = subscription("ann", window=10, max_loaded_per_key=1)
        dispatcher.offer_many([(offset, "a1", None) for offset in range(3)])
        dispatcher.ack(0, "ann", 1)

        assert [Skipped(1, b"a1", SkipReason.GONE), Load(2, b"a1"), advanced(1)] == dispatcher.gone(1)

    def test_a_message_at_its_consumer_is_gone_only_once_that_delivery_has_ended(self) -> None:
        dispatcher = subscription("ann")
        dispatcher.offer(0, "a1")

        assert [] == dispatcher.gone(0)
        assert [Skipped(0, b"a1", SkipReason.GONE), advanced(0)] == then(dispatcher.nack(0, "ann", 1))

    def test_an_ack_of_a_message_that_is_gone_is_an_ack(self) -> None:
        dispatcher = subscription("ann")
        dispatcher.offer(0, "a1")
        dispatcher.gone(0)

        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_gone_says_nothing_about_what_is_not_outstanding(self) -> None:
        dispatcher = subscription("ann")

        assert ([], []) == (dispatcher.gone(5), dispatcher.truncate(5))

    def test_a_truncated_log_settles_what_waits_below_the_cut_in_offset_order(self) -> None:
        dispatcher = subscription("ann")
        dispatcher.offer_many([(0, "a1", None), (1, "a1", None), (2, "a2", None), (3, "a2", None), (4, "a1", None)])

        assert [Skipped(1, b"a1", SkipReason.GONE), Skipped(3, b"a2", SkipReason.GONE)] == dispatcher.truncate(4)
        assert [
            Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 0, None),
            Skipped(0, b"a1", SkipReason.GONE),
            Released(2, "ann", 1, ReleaseReason.ACK_TIMEOUT, 0, None),
            Skipped(2, b"a2", SkipReason.GONE),
            deliver(4, "a1", "ann"),
            advanced(3),
        ] == dispatcher.handle_timeout(now_ms=30_000)


class TestAStranger:
    """Who asks for the lowest message by its offset gets it loaded beyond the window, if it is theirs."""

    @pytest.mark.parametrize("key", ["a9", None])
    def test_nothing_is_loaded_for_who_could_not_get_it(self, key: str | None) -> None:
        dispatcher = subscription(window=2)
        dispatcher.add_consumer("ann", limit=0)
        dispatcher.add_consumer("bob", filters=["b*"])
        dispatcher.offer_many([(0, "a1", None), (1, key, None)])
        dispatcher.truncate(1)
        dispatcher.offer_many([(2, "b1", None), (3, "b2", None)])
        dispatcher.set_limit("ann", 1)
        assert 1 == dispatcher.stats().starved_keys

        assert [] == dispatcher.pull("bob", 1, only=1)
        assert 2 == dispatcher.stats().loaded
        assert [Load(1, None if key is None else key.encode())] == dispatcher.pull("ann", 1, only=1)
        assert 3 == dispatcher.stats().loaded
