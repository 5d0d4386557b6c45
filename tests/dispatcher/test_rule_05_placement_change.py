"""Rule 5: a change of placement moves keys at once, unless somebody else still works on them."""

from tests.alphabet import advanced, deliver, fill, subscription

from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason, Released, ReleaseReason


def test_a_change_that_is_taken_back_before_the_drain_is_over_leaves_the_key_where_it_was() -> None:
    # A list of pending reassignments, kept on the side, would still send 1 to ann.
    dispatcher = subscription("bob")
    fill(dispatcher, "a1", "a1")
    dispatcher.add_consumer("ann")

    dispatcher.remove_consumer("ann")
    assert Blocking(BlockReason.KEY_IN_FLIGHT, "bob") == dispatcher.why_blocked(1)
    assert [deliver(1, "a1", "bob"), advanced(0)] == dispatcher.ack(0, "bob", 1)


def test_new_filters_and_weights_move_what_waits_too() -> None:
    dispatcher = subscription("ann", "cat", max_in_flight_per_consumer=1)
    fill(dispatcher, "b1", "b2", "b3")

    assert [deliver(1, "b2", "ann")] == dispatcher.set_weight("ann", 2)
    assert [] == dispatcher.set_filters("ann", ["a*"])
    assert "cat" == dispatcher.owner("b3")
    assert [deliver(2, "b3", "cat"), advanced(0)] == dispatcher.ack(0, "cat", 1)


class TestDrainTimeout:
    """A key that moved does not wait for ever, if the host says how long."""

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

    def test_an_ack_after_it_is_a_late_success(self) -> None:
        dispatcher = subscription("bob", drain_timeout_ms=100)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann", limit=0)
        dispatcher.handle_timeout(now_ms=100)

        assert [advanced(0)] == dispatcher.ack(0, "bob", 1)
