"""Rule 6: a name is one session, from joining to leaving or eviction."""

import pytest
from tests.alphabet import advanced, deliver, fill, subscription

from keyshared.config import OnEvict
from keyshared.dispatcher import Blocking, ConsumerState
from keyshared.effects import (
    BlockReason,
    Call,
    Dropped,
    DropReason,
    Evicted,
    Ignored,
    IgnoredReason,
    Released,
    ReleaseReason,
)
from keyshared.errors import ConsumerExistsError


class TestLeaving:
    """``remove_consumer``, at once or drained."""

    def test_what_it_held_goes_to_the_others_in_offset_order_without_a_failure(self) -> None:
        dispatcher = subscription("ann", "bob")
        fill(dispatcher, "a1", "a2", "a1")

        assert [
            Released(0, "ann", 1, ReleaseReason.REMOVED, 0, 0),
            Released(1, "ann", 1, ReleaseReason.REMOVED, 0, 0),
            deliver(0, "a1", "bob", 2),
            deliver(1, "a2", "bob", 2),
        ] == dispatcher.remove_consumer("ann")
        assert [deliver(2, "a1", "bob"), advanced(0)] == dispatcher.ack(0, "bob", 2)

    def test_put_back_messages_stand_before_newer_ones_of_their_key(self) -> None:
        # Appended to a queue of waiting messages, 0 would come after 2.
        dispatcher = subscription("ann")
        fill(dispatcher, "a1", "a2", "a1")
        dispatcher.remove_consumer("ann")
        fill(dispatcher, "a1", start=3)

        assert [deliver(0, "a1", "bob", 2), deliver(1, "a2", "bob", 2)] == dispatcher.add_consumer("bob")
        assert [deliver(2, "a1", "bob"), advanced(0)] == dispatcher.ack(0, "bob", 2)
        assert [advanced(1)] == dispatcher.ack(1, "bob", 2)
        assert [deliver(3, "a1", "bob"), advanced(2)] == dispatcher.ack(2, "bob", 1)

    def test_a_name_that_is_unknown_or_gone_leaves_quietly(self) -> None:
        dispatcher = subscription("ann")

        assert [] == dispatcher.remove_consumer("bob")
        assert [] == dispatcher.remove_consumer("ann")
        assert [] == dispatcher.remove_consumer("ann", drain_ms=None)

    def test_a_drained_consumer_finishes_what_it_holds_and_gets_nothing_more(self) -> None:
        dispatcher = subscription("ann", "bob", max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a1")

        assert [] == dispatcher.remove_consumer("ann", drain_ms=500)
        assert ConsumerState.DRAINING is dispatcher.stats().consumers["ann"].state
        assert [deliver(2, "a2", "bob")] == fill(dispatcher, "a2", "a1", start=2)
        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert [deliver(3, "a1", "bob"), advanced(1)] == dispatcher.ack(1, "ann", 1)
        assert ["bob"] == list(dispatcher.stats().consumers)

    def test_a_drain_ends_at_its_deadline_without_a_failure(self) -> None:
        dispatcher = subscription("ann", "bob")
        fill(dispatcher, "a1")
        dispatcher.remove_consumer("ann", drain_ms=500, now_ms=1)

        assert 501 == dispatcher.next_deadline_ms()
        assert [
            Released(0, "ann", 1, ReleaseReason.DRAIN_TIMEOUT, 0, 501),
            deliver(0, "a1", "bob", 2),
        ] == dispatcher.handle_timeout(now_ms=501)

    def test_a_drain_without_a_deadline_waits_for_acks_and_timeouts(self) -> None:
        dispatcher = subscription("ann", ack_timeout_ms=None)
        fill(dispatcher, "a1")

        assert [] == dispatcher.remove_consumer("ann", drain_ms=None)
        assert None is dispatcher.next_deadline_ms()
        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_with_nothing_in_flight_there_is_nothing_to_drain(self) -> None:
        dispatcher = subscription("ann")

        dispatcher.remove_consumer("ann", drain_ms=500)
        assert {} == dispatcher.stats().consumers
        assert None is dispatcher.next_deadline_ms()

    def test_removing_it_once_more_can_cut_a_drain_short(self) -> None:
        dispatcher = subscription("ann", "bob")
        fill(dispatcher, "a1")
        dispatcher.remove_consumer("ann", drain_ms=None)

        assert [
            Released(0, "ann", 1, ReleaseReason.REMOVED, 0, 0),
            deliver(0, "a1", "bob", 2),
        ] == dispatcher.remove_consumer("ann")


class TestComingBack:
    """``add_consumer`` is a new session, ``set_active`` continues one."""

    @pytest.mark.parametrize("state", ["active", "inactive"])
    def test_a_name_that_is_there_cannot_join_again(self, state: str) -> None:
        dispatcher = subscription("ann")
        if state == "inactive":
            dispatcher.set_inactive("ann")

        with pytest.raises(ConsumerExistsError, match="'ann' is already there"):
            dispatcher.add_consumer("ann")

    def test_joining_again_while_draining_ends_the_drain(self) -> None:
        dispatcher = subscription("ann", "bob")
        fill(dispatcher, "a1", "a1")
        dispatcher.remove_consumer("ann", drain_ms=500)

        assert [
            Released(0, "ann", 1, ReleaseReason.REMOVED, 0, 0),
            deliver(0, "a1", "ann", 2),
        ] == dispatcher.add_consumer("ann")
        assert 30_000 == dispatcher.next_deadline_ms()

    def test_a_lost_session_is_sent_again_what_it_held_at_once(self) -> None:
        # Danube leaves it to the ack timeout: half a minute of nothing after every reconnect.
        dispatcher = subscription("ann")
        fill(dispatcher, "a1", "a2")
        dispatcher.set_inactive("ann")

        assert [
            Released(0, "ann", 1, ReleaseReason.SESSION_LOST, 1, 0),
            Released(1, "ann", 1, ReleaseReason.SESSION_LOST, 1, 0),
            deliver(0, "a1", "ann", 2, failures=1),
            deliver(1, "a2", "ann", 2, failures=1),
        ] == dispatcher.set_active("ann")

    def test_a_resumed_session_keeps_what_it_held(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1", "a1")
        dispatcher.set_inactive("ann")

        assert [] == dispatcher.set_active("ann", resumed=True)
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_a_session_can_be_lost_without_having_been_inactive(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")

        assert [
            Released(0, "ann", 1, ReleaseReason.SESSION_LOST, 1, 0),
            deliver(0, "a1", "ann", 2, failures=1),
        ] == dispatcher.set_active("ann")


class TestInactive:
    """The grace period, and its end."""

    def test_it_keeps_its_keys_gets_nothing_and_its_acks_count(self) -> None:
        dispatcher = subscription("ann", "bob")
        fill(dispatcher, "a1")

        assert [] == dispatcher.set_inactive("ann")
        assert [] == fill(dispatcher, "a2", "a1", start=1)
        assert Blocking(BlockReason.CONSUMER_INACTIVE, "ann") == dispatcher.why_blocked(1)
        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert [deliver(1, "a2", "ann"), deliver(2, "a1", "ann")] == dispatcher.set_active("ann", resumed=True)

    def test_its_ack_timeouts_go_on(self) -> None:
        dispatcher = subscription("ann", ack_timeout_ms=100, inactive_grace_ms=None)
        fill(dispatcher, "a1")
        dispatcher.set_inactive("ann")

        assert [Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, 1100)] == dispatcher.handle_timeout(now_ms=100)

    def test_a_second_message_that_it_is_inactive_does_not_prolong_the_grace_period(self) -> None:
        dispatcher = subscription("ann", inactive_grace_ms=100)
        dispatcher.set_inactive("ann", now_ms=0)

        dispatcher.set_inactive("ann", now_ms=60)
        assert [Evicted("ann")] == dispatcher.handle_timeout(now_ms=100)

    def test_after_the_grace_period_it_is_evicted_and_what_it_held_is_delivered_elsewhere(self) -> None:
        dispatcher = subscription("ann", "bob", inactive_grace_ms=100)
        fill(dispatcher, "a1", "a2", "a1")
        dispatcher.set_inactive("ann", now_ms=5)

        assert 105 == dispatcher.next_deadline_ms()
        assert [] == dispatcher.handle_timeout(now_ms=104)
        assert [
            Evicted("ann"),
            Released(0, "ann", 1, ReleaseReason.EVICTED, 1, 105),
            Released(1, "ann", 1, ReleaseReason.EVICTED, 1, 105),
            deliver(0, "a1", "bob", 2, failures=1),
            deliver(1, "a2", "bob", 2, failures=1),
        ] == dispatcher.handle_timeout(now_ms=105)
        assert ["bob"] == list(dispatcher.stats().consumers)

    def test_what_only_waited_for_it_moves_on_too(self) -> None:
        # With nothing in flight there is no key to free; an eviction that only frees keys leaves these for ever.
        dispatcher = subscription("ann", "bob", inactive_grace_ms=100)
        dispatcher.set_inactive("ann")
        fill(dispatcher, "a1", "a2")

        assert [Evicted("ann"), deliver(0, "a1", "bob"), deliver(1, "a2", "bob")] == dispatcher.handle_timeout(
            now_ms=100
        )

    def test_at_most_once_drops_what_it_held_and_nothing_else(self) -> None:
        dispatcher = subscription("ann", "bob", inactive_grace_ms=100, on_evict=OnEvict.DROP)
        fill(dispatcher, "a1", "a1")
        dispatcher.set_inactive("ann")

        assert [
            Evicted("ann"),
            Released(0, "ann", 1, ReleaseReason.EVICTED, 1, None),
            Dropped(0, b"a1", DropReason.EVICTED),
            deliver(1, "a1", "bob"),
            advanced(0),
        ] == dispatcher.handle_timeout(now_ms=100)

    def test_at_most_once_is_about_evictions_and_not_about_a_consumer_that_came_back(self) -> None:
        dispatcher = subscription("ann", on_evict=OnEvict.DROP)
        fill(dispatcher, "a1")

        lost = Released(0, "ann", 1, ReleaseReason.SESSION_LOST, 1, 0)
        assert [lost, deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.set_active("ann")

    def test_a_grace_period_of_zero_ends_at_the_next_look_at_the_clock(self) -> None:
        dispatcher = subscription("ann", inactive_grace_ms=0)
        assert [] == dispatcher.set_inactive("ann", now_ms=7)

        assert 7 == dispatcher.next_deadline_ms()
        assert [Evicted("ann")] == dispatcher.handle_timeout(now_ms=7)

    def test_without_a_grace_period_it_stays_for_ever(self) -> None:
        dispatcher = subscription("ann", inactive_grace_ms=None)
        dispatcher.set_inactive("ann")

        assert None is dispatcher.next_deadline_ms()
        assert [] == dispatcher.handle_timeout(now_ms=10**12)

    def test_coming_back_in_time_cancels_the_eviction(self) -> None:
        dispatcher = subscription("ann", inactive_grace_ms=100)
        dispatcher.set_inactive("ann")
        dispatcher.set_active("ann", now_ms=99)

        assert None is dispatcher.next_deadline_ms()
        assert [] == dispatcher.handle_timeout(now_ms=100)

    def test_an_evicted_name_can_join_again_and_its_old_acks_are_fenced(self) -> None:
        dispatcher = subscription("ann", inactive_grace_ms=100)
        fill(dispatcher, "a1")
        dispatcher.set_inactive("ann")
        dispatcher.handle_timeout(now_ms=100)

        assert [deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.add_consumer("ann")
        stale = IgnoredReason.STALE_ATTEMPT
        assert [Ignored(0, "ann", 1, Call.NACK, stale)] == dispatcher.nack(0, "ann", 1)

    def test_a_consumer_that_drains_is_already_leaving(self) -> None:
        dispatcher = subscription("ann", ack_timeout_ms=None)
        fill(dispatcher, "a1")
        dispatcher.remove_consumer("ann", drain_ms=None)

        assert [] == dispatcher.set_inactive("ann")
        assert None is dispatcher.next_deadline_ms()

    def test_a_limit_set_while_it_is_away_counts_when_it_is_back(self) -> None:
        dispatcher = subscription("ann")
        dispatcher.set_inactive("ann")
        fill(dispatcher, "a1", "a2")

        assert [] == dispatcher.set_limit("ann", 1)
        assert [deliver(0, "a1", "ann")] == dispatcher.set_active("ann")
