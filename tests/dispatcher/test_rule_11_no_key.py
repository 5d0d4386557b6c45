"""Rule 11: messages without a key have no order, and go where there is most room."""

from tests.alphabet import advanced, deliver, delivered, fill, subscription, then

from keyshared.config import Backoff, RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason, Load, Released, ReleaseReason, Spilled


def test_the_next_of_a_key_does_not_overtake_it_either() -> None:
    dispatcher = subscription("ann", max_in_flight_per_consumer=1)
    fill(dispatcher, "a1", "a1", None)

    assert [deliver(2, None, "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)
    assert [deliver(1, "a1", "ann")] == dispatcher.ack(2, "ann", 1)


def test_they_spill_like_any_other() -> None:
    dispatcher = subscription("ann", window=4, max_in_flight_per_consumer=1)

    assert [deliver(0, "a1", "ann"), Spilled(3)] == fill(dispatcher, "a1", None, None, None)
    dispatcher.ack(0, "ann", 1)
    dispatcher.ack(1, "ann", 1)
    assert [Load(3, None), advanced(2)] == dispatcher.ack(2, "ann", 1)
    assert [deliver(3, None, "ann", item="x")] == dispatcher.loaded(3, "x")


def test_without_a_consumer_that_takes_them_any_more_they_wait_for_one() -> None:
    dispatcher = subscription("ann", max_in_flight_per_consumer=1)
    fill(dispatcher, "a1", None)
    dispatcher.set_filters("ann", ["a*"])

    assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
    assert Blocking(BlockReason.NO_CONSUMER) == dispatcher.why_blocked(1)
    assert [deliver(1, None, "bob")] == dispatcher.add_consumer("bob")


def test_an_inactive_consumer_gets_none() -> None:
    dispatcher = subscription("ann", "bob")
    dispatcher.set_inactive("ann")
    assert [(0, "bob"), (1, "bob")] == delivered(fill(dispatcher, None, None))

    dispatcher.set_inactive("bob")
    assert [] == dispatcher.offer(2, None)
    assert Blocking(BlockReason.CONSUMER_INACTIVE) == dispatcher.why_blocked(2)


def test_one_that_stood_back_behind_a_busy_consumer_goes_to_an_idle_one_in_the_same_call() -> None:
    # Both have room for one. What is ready for ann is older, so it takes her slot; bob's must not stay empty for that.
    retry = RetryPolicy(base_delay_ms=10, backoff=Backoff.FIXED)
    dispatcher = subscription("ann", "bob", max_in_flight_per_consumer=1, ack_timeout_ms=10, retry=retry)
    assert [(0, "ann"), (2, "bob")] == delivered(fill(dispatcher, "a", "aa", None))
    assert [] == then(dispatcher.nack(2, "bob", 1))

    released = Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, 20)
    expected = [released, deliver(1, "aa", "ann"), deliver(2, None, "bob", 2, failures=1)]
    assert expected == dispatcher.handle_timeout(now_ms=10)
