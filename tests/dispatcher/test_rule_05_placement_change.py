"""Rule 5: a change of placement moves keys at once, unless somebody else still works on them."""

from tests.alphabet import AlphabetRing, advanced, deliver, fill, subscription, then

from keyshared.config import RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason, DeadLetter, Released, ReleaseReason


def test_what_waits_for_a_full_consumer_goes_to_the_newcomer_in_the_call_that_adds_it() -> None:
    dispatcher = subscription("bob", max_in_flight_per_consumer=1)
    fill(dispatcher, "b1", "a2", "a1", "b2")

    assert [deliver(1, "a2", "ann")] == dispatcher.add_consumer("ann")
    assert [deliver(2, "a1", "ann")] == dispatcher.ack(1, "ann", 1)
    assert [deliver(3, "b2", "bob"), advanced(1)] == dispatcher.ack(0, "bob", 1)


def test_a_key_in_flight_goes_to_nobody_until_its_holder_has_finished() -> None:
    # Handing 1 to ann at once would let it overtake 0, which bob is still working on.
    dispatcher = subscription("bob")
    fill(dispatcher, "a1", "a1")

    assert [] == dispatcher.add_consumer("ann")
    assert Blocking(BlockReason.DRAINING, "bob") == dispatcher.why_blocked(1)
    assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "bob", 1)


def test_a_draining_key_gets_nothing_more_at_its_old_owner_either() -> None:
    # With room for two of a key, topping the old owner up would keep it draining for ever.
    dispatcher = subscription("bob", max_in_flight_per_key=2)
    fill(dispatcher, "a1", "a1", "a1", "a1")
    dispatcher.add_consumer("ann")

    assert [advanced(0)] == dispatcher.ack(0, "bob", 1)
    expected = [deliver(2, "a1", "ann"), deliver(3, "a1", "ann"), advanced(1)]
    assert expected == dispatcher.ack(1, "bob", 1)


def test_a_message_offered_while_its_key_drains_waits_for_the_drain_too() -> None:
    dispatcher = subscription("bob")
    fill(dispatcher, "a1")
    dispatcher.add_consumer("ann")

    assert [] == dispatcher.offer(1, "a1")
    assert Blocking(BlockReason.DRAINING, "bob") == dispatcher.why_blocked(1)
    assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "bob", 1)


def test_a_failed_message_is_retried_at_the_new_owner_and_keeps_its_place() -> None:
    dispatcher = subscription("bob")
    fill(dispatcher, "a1", "a1")
    dispatcher.add_consumer("ann")

    assert [] == then(dispatcher.nack(0, "bob", 1))
    assert [deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.handle_timeout(now_ms=1_000)
    assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 2)


def test_a_change_that_is_taken_back_before_the_drain_is_over_leaves_the_key_where_it_was() -> None:
    # A list of pending reassignments, kept on the side, would still send 1 to ann.
    dispatcher = subscription("bob")
    fill(dispatcher, "a1", "a1")
    dispatcher.add_consumer("ann")

    dispatcher.remove_consumer("ann")
    assert Blocking(BlockReason.KEY_IN_FLIGHT, "bob") == dispatcher.why_blocked(1)
    assert [deliver(1, "a1", "bob"), advanced(0)] == dispatcher.ack(0, "bob", 1)


def test_lanes_that_wait_for_an_owner_go_out_in_the_order_they_began_to_wait() -> None:
    dispatcher = subscription(max_in_flight_per_consumer=2)
    fill(dispatcher, "a3", "a1", "a2", "a3")

    assert [deliver(0, "a3", "ann"), deliver(1, "a1", "ann")] == dispatcher.add_consumer("ann")
    assert [deliver(2, "a2", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)


def test_several_messages_of_a_key_that_waited_take_turns_with_the_other_keys() -> None:
    # Examining the first lane until it is dry would send a1 twice before a2, which waited as long, has had one turn.
    dispatcher = subscription(max_in_flight_per_consumer=3, max_in_flight_per_key=2)
    fill(dispatcher, "a1", "a1", "a2", "a3")

    expected = [deliver(0, "a1", "ann"), deliver(2, "a2", "ann"), deliver(3, "a3", "ann")]
    assert expected == dispatcher.add_consumer("ann")


def test_new_filters_and_weights_move_what_waits_too() -> None:
    dispatcher = subscription("ann", "cat", max_in_flight_per_consumer=1)
    fill(dispatcher, "b1", "b2", "b3")

    assert [deliver(1, "b2", "ann")] == dispatcher.set_weight("ann", 2)
    assert [] == dispatcher.set_filters("ann", ["a*"])
    assert "cat" == dispatcher.owner("b3")
    assert [deliver(2, "b3", "cat"), advanced(0)] == dispatcher.ack(0, "cat", 1)


def test_another_placement_moves_what_waits_and_takes_the_connected_along() -> None:
    dispatcher = subscription("bob", "cat", max_in_flight_per_consumer=1)
    fill(dispatcher, "b1", "b2", "c1", "c2")

    assert [] == dispatcher.set_placement(AlphabetRing(["cat"]))
    assert ["bob", "cat"] == [dispatcher.owner(key) for key in ("b2", "c2")]
    assert [] == dispatcher.set_placement(AlphabetRing(["ann", "bob", "cat"]))
    assert None is dispatcher.owner("a1")
    assert [deliver(1, "b2", "bob"), advanced(0)] == dispatcher.ack(0, "bob", 1)


def test_keys_of_a_name_that_only_the_placement_knows_wait_for_it() -> None:
    dispatcher = subscription("bob")
    dispatcher.set_placement(AlphabetRing(["ann", "bob"]))

    assert [] == dispatcher.offer(0, "a1")
    assert Blocking(BlockReason.NO_CONSUMER) == dispatcher.why_blocked(0)
    assert [deliver(0, "a1", "ann")] == dispatcher.add_consumer("ann")


class TestDrainTimeout:
    """A key that moved does not wait for ever, if the host says how long."""

    def test_the_old_owners_deliveries_end_on_the_books_without_a_failure(self) -> None:
        dispatcher = subscription("bob", drain_timeout_ms=100)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann", now_ms=10)

        assert 110 == dispatcher.next_deadline_ms()
        assert [] == dispatcher.handle_timeout(now_ms=109)
        assert [
            Released(0, "bob", 1, ReleaseReason.DRAIN_TIMEOUT, 0, 110),
            deliver(0, "a1", "ann", 2),
        ] == dispatcher.handle_timeout(now_ms=110)

    def test_it_starts_when_something_waits_and_not_before(self) -> None:
        dispatcher = subscription("bob", drain_timeout_ms=100, ack_timeout_ms=None)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("ann", now_ms=10)
        assert None is dispatcher.next_deadline_ms()

        dispatcher.offer(1, "a1", now_ms=50)
        assert 150 == dispatcher.next_deadline_ms()

    def test_a_further_change_does_not_start_it_again(self) -> None:
        dispatcher = subscription("cat", drain_timeout_ms=100)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("bob", now_ms=10)

        dispatcher.add_consumer("ann", now_ms=60)
        assert 110 == dispatcher.next_deadline_ms()
        assert [
            Released(0, "cat", 1, ReleaseReason.DRAIN_TIMEOUT, 0, 110),
            deliver(0, "a1", "ann", 2),
        ] == dispatcher.handle_timeout(now_ms=110)

    def test_a_drain_that_ended_in_time_leaves_no_deadline(self) -> None:
        dispatcher = subscription("bob", drain_timeout_ms=100, ack_timeout_ms=None)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann", now_ms=10)

        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "bob", 1)
        assert None is dispatcher.next_deadline_ms()

    def test_a_message_behind_one_that_was_settled_while_it_drained_has_a_deadline(self) -> None:
        for settle, offset, again in (("gone", 1, 130), ("truncate", 2, None)):
            dispatcher = subscription("bob", drain_timeout_ms=100, ack_timeout_ms=None)
            fill(dispatcher, "a1")
            dispatcher.add_consumer("ann", now_ms=10)
            dispatcher.offer(1, "a1", now_ms=20)
            getattr(dispatcher, settle)(offset)
            assert None is dispatcher.next_deadline_ms()

            dispatcher.offer(2, "a1", now_ms=30)
            assert (1, 130) == (dispatcher.stats().draining_keys, dispatcher.next_deadline_ms())
            released, *_ = dispatcher.handle_timeout(now_ms=130)
            assert Released(0, "bob", 1, ReleaseReason.DRAIN_TIMEOUT, 0, again) == released

    def test_a_key_at_its_limit_is_counted_from_the_moment_in_which_it_moves(self) -> None:
        dispatcher = subscription("bob")
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann")

        assert 1 == dispatcher.stats().draining_keys

    def test_a_quarantined_key_waits_for_its_own_deliveries_and_does_not_drain(self) -> None:
        dispatcher = subscription(
            "bob",
            drain_timeout_ms=100,
            ack_timeout_ms=None,
            max_in_flight_per_key=2,
            retry=RetryPolicy(max_redeliveries=0),
            quarantine=True,
        )
        fill(dispatcher, "a1", "a1", "a1")
        dispatcher.add_consumer("ann", now_ms=10)
        assert (1, 110) == (dispatcher.stats().draining_keys, dispatcher.next_deadline_ms())

        dispatcher.reject(0, "bob", 1)
        assert (0, None) == (dispatcher.stats().draining_keys, dispatcher.next_deadline_ms())
        assert Blocking(BlockReason.QUARANTINED, "bob") == dispatcher.why_blocked(0)
        assert [DeadLetter(0, b"a1", 1, 1, None)] == then(dispatcher.release(1, "bob", 1))

    def test_all_deliveries_of_the_key_end_together_and_come_back_in_order(self) -> None:
        dispatcher = subscription("bob", drain_timeout_ms=100, max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a1", "a1")
        dispatcher.add_consumer("ann", now_ms=0)

        drain = ReleaseReason.DRAIN_TIMEOUT
        assert [
            Released(0, "bob", 1, drain, 0, 100),
            Released(1, "bob", 1, drain, 0, 100),
            deliver(0, "a1", "ann", 2),
            deliver(1, "a1", "ann", 2),
        ] == dispatcher.handle_timeout(now_ms=100)

    def test_what_of_the_key_was_given_back_before_only_keeps_its_place(self) -> None:
        dispatcher = subscription("bob", drain_timeout_ms=100, max_in_flight_per_key=3)
        fill(dispatcher, "a1", "a1", "a1")
        dispatcher.set_limit("bob", 0)
        dispatcher.release(1, "bob", 1)
        dispatcher.add_consumer("ann", now_ms=10)

        drain = ReleaseReason.DRAIN_TIMEOUT
        assert [
            Released(0, "bob", 1, drain, 0, 110),
            Released(2, "bob", 1, drain, 0, 110),
            *(deliver(offset, "a1", "ann", 2) for offset in range(3)),
        ] == dispatcher.handle_timeout(now_ms=110)

    def test_an_ack_after_it_is_a_late_success(self) -> None:
        dispatcher = subscription("bob", drain_timeout_ms=100)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann", limit=0)
        dispatcher.handle_timeout(now_ms=100)

        assert [advanced(0)] == dispatcher.ack(0, "bob", 1)
