"""Rule 11: messages without a key have no order, and go where there is most room."""

from tests.alphabet import advanced, deliver, delivered, fill, subscription, then

from keyshared.config import Backoff, RetryPolicy, Unmatched
from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason, Load, Released, ReleaseReason, Spilled


def test_none_of_them_holds_another_back() -> None:
    # Under one common "no key" they would be one key: one in flight, at one consumer.
    dispatcher = subscription("ann", "bob", max_in_flight_per_consumer=2)

    assert [(0, "ann"), (1, "bob"), (2, "ann"), (3, "bob")] == delivered(fill(dispatcher, None, None, None, None))
    assert None is dispatcher.owner(None)


def test_the_empty_key_is_a_key() -> None:
    dispatcher = subscription("ann")

    assert [deliver(0, "", "ann")] == fill(dispatcher, "", "")
    assert Blocking(BlockReason.KEY_IN_FLIGHT, "ann") == dispatcher.why_blocked(1)


def test_they_go_to_whoever_has_most_room_and_the_earliest_joined_on_a_tie() -> None:
    dispatcher = subscription("zoe")
    dispatcher.set_limit("zoe", 2)
    dispatcher.add_consumer("ann", limit=3)

    assert ["ann", "zoe", "ann", "zoe", "ann"] == [name for _, name in delivered(fill(dispatcher, *[None] * 5))]


def test_only_consumers_without_filters_or_with_a_bare_star_get_them() -> None:
    dispatcher = subscription("ann")
    dispatcher.add_consumer("bob", filters=["b*"], limit=5_000)
    dispatcher.add_consumer("cat", filters=["c*", "*"], limit=2_000)

    assert ["cat", "cat"] == [name for _, name in delivered(fill(dispatcher, None, None))]


def test_when_nobody_has_room_they_wait_for_anybody() -> None:
    # Queued at one consumer, they would wait for that one while another is idle.
    dispatcher = subscription("ann", "bob", max_in_flight_per_consumer=1)
    fill(dispatcher, "a1", "b1")

    assert [] == fill(dispatcher, None, None, start=2)
    assert Blocking(BlockReason.CONSUMER_FULL) == dispatcher.why_blocked(2)
    assert [deliver(2, None, "bob")] == dispatcher.ack(1, "bob", 1)
    assert [deliver(3, None, "ann"), advanced(1)] == dispatcher.ack(0, "ann", 1)


def test_they_take_turns_with_the_keys_by_age() -> None:
    dispatcher = subscription("ann", max_in_flight_per_consumer=1)
    fill(dispatcher, "a1", None, "a2", None)

    assert [deliver(1, None, "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)
    assert [deliver(2, "a2", "ann"), advanced(1)] == dispatcher.ack(1, "ann", 1)
    assert [deliver(3, None, "ann"), advanced(2)] == dispatcher.ack(2, "ann", 1)


def test_a_key_does_not_overtake_a_message_without_one_that_waits() -> None:
    dispatcher = subscription("ann", "bob", max_in_flight_per_consumer=1)
    fill(dispatcher, "a1", "b1", None)
    dispatcher.set_limit("ann", 0)
    dispatcher.set_limit("bob", 0)
    dispatcher.ack(0, "ann", 1)
    dispatcher.offer(3, "a2")

    assert [deliver(2, None, "ann")] == dispatcher.set_limit("ann", 1)
    assert [deliver(3, "a2", "ann")] == dispatcher.set_limit("ann", 2)


def test_the_next_of_a_key_does_not_overtake_it_either() -> None:
    dispatcher = subscription("ann", max_in_flight_per_consumer=1)
    fill(dispatcher, "a1", "a1", None)

    assert [deliver(2, None, "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)
    assert [deliver(1, "a1", "ann")] == dispatcher.ack(2, "ann", 1)


def test_a_consumer_that_begins_to_take_them_takes_all_that_waits_in_the_order_of_waiting() -> None:
    # Queued behind the message without a key, x1 would stay in the list of a consumer that is idle.
    dispatcher = subscription("bob", unmatched=Unmatched.HOLD)
    dispatcher.set_filters("bob", ["b*"])
    assert [] == fill(dispatcher, "x1", None)

    assert [deliver(0, "x1", "bob"), deliver(1, None, "bob")] == dispatcher.set_filters("bob", [])


def test_one_that_fails_again_and_again_does_not_starve_the_others() -> None:
    dispatcher = subscription("ann", max_in_flight_per_consumer=1, retry=RetryPolicy(base_delay_ms=0))
    fill(dispatcher, None, None)

    assert [deliver(1, None, "ann")] == then(dispatcher.nack(0, "ann", 1))
    assert [deliver(0, None, "ann", 2, failures=1)] == then(dispatcher.nack(1, "ann", 1))


def test_a_failed_one_may_be_retried_anywhere_and_is_overtaken_meanwhile() -> None:
    dispatcher = subscription("ann")
    fill(dispatcher, None)
    dispatcher.nack(0, "ann", 1)
    dispatcher.add_consumer("bob", limit=2_000)

    assert [deliver(1, None, "bob")] == dispatcher.offer(1, None)
    assert [deliver(0, None, "bob", 2, failures=1)] == dispatcher.handle_timeout(now_ms=1_000)


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


def test_what_stands_back_behind_one_that_a_busy_consumer_takes_goes_to_its_idle_owner_in_the_same_call() -> None:
    # When both are put back, the one without a key is in nobody's hands yet, so bob's waits its turn behind it.
    dispatcher = subscription(
        "ann", max_in_flight_per_consumer=2, ack_timeout_ms=10, retry=RetryPolicy(base_delay_ms=0)
    )
    assert [(0, "ann"), (1, "ann")] == delivered(fill(dispatcher, None, "b", "a"))
    assert [] == dispatcher.add_consumer("bob", limit=1)

    assert [
        Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, 10),
        Released(1, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, 10),
        deliver(2, "a", "ann"),
        deliver(0, None, "ann", 2, failures=1),
        deliver(1, "b", "bob", 2, failures=1),
    ] == dispatcher.handle_timeout(now_ms=10)
