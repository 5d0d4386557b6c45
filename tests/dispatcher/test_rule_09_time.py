"""Rule 9: time acts in ``handle_timeout`` and nowhere else."""

from tests.alphabet import advanced, deliver, fill, subscription

from keyshared.config import RetryPolicy
from keyshared.effects import Call, DeadLetter, Evicted, Ignored, IgnoredReason, Released, ReleaseReason

TIMEOUT = ReleaseReason.ACK_TIMEOUT


def test_nothing_is_due_without_deadlines() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=None)
    fill(dispatcher, "a1")
    assert [deliver(1, "a2", "ann"), deliver(2, "a3", "ann")] == dispatcher.offer_many(
        [(1, "a2", None), (2, "a3", None)]
    )

    assert None is dispatcher.next_deadline_ms()
    assert [] == dispatcher.handle_timeout(now_ms=10**12)


def test_a_deadline_is_due_at_its_instant() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=100)
    dispatcher.offer(0, "a1", now_ms=7)

    assert 107 == dispatcher.next_deadline_ms()
    assert [] == dispatcher.handle_timeout(now_ms=106)
    assert [Released(0, "ann", 1, TIMEOUT, 1, 1107)] == dispatcher.handle_timeout(now_ms=107)
    assert 1_107 == dispatcher.next_deadline_ms()
    assert [deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.handle_timeout(now_ms=1_107)


def test_messages_that_are_offered_together_are_due_together() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=100)
    dispatcher.offer_many([(0, "a1", None), (1, "a2", None)], now_ms=7)

    assert 107 == dispatcher.next_deadline_ms()
    assert [Released(0, "ann", 1, TIMEOUT, 1, 1107), Released(1, "ann", 1, TIMEOUT, 1, 1107)] == (
        dispatcher.handle_timeout(now_ms=107)
    )


def test_other_calls_move_the_clock_and_let_nothing_fall_due() -> None:
    # An ack that arrives a moment after its deadline, before the timer fired, is in time.
    dispatcher = subscription("ann", ack_timeout_ms=100)
    fill(dispatcher, "a1", "a1")

    assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1, now_ms=500)
    assert 600 == dispatcher.next_deadline_ms()


def test_calls_that_come_too_early_or_too_often_are_free() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=100)
    fill(dispatcher, "a1")
    before = dispatcher.snapshot()

    assert [] == dispatcher.handle_timeout()
    assert [] == dispatcher.handle_timeout(now_ms=0)
    assert before == dispatcher.snapshot()


def test_everything_due_ends_first_in_the_order_of_its_deadlines_then_of_its_offsets() -> None:
    # Waking each lane as its timer fires would hand 3 to ann before her other deliveries have ended.
    dispatcher = subscription("ann", "bob", ack_timeout_ms=100, max_in_flight_per_consumer=2)
    dispatcher.offer(0, "a1", now_ms=0)
    dispatcher.offer(1, "b1", now_ms=5)
    dispatcher.offer(2, "a2", now_ms=5)
    dispatcher.offer(3, "a3", now_ms=5)
    dispatcher.extend(0, "ann", 1, extend_ms=101)

    assert [
        Released(1, "bob", 1, TIMEOUT, 1, 1200),
        Released(2, "ann", 1, TIMEOUT, 1, 1200),
        Released(0, "ann", 1, TIMEOUT, 1, 1200),
        deliver(3, "a3", "ann"),
    ] == dispatcher.handle_timeout(now_ms=200)


def test_what_ended_wakes_by_its_lowest_offset_not_by_its_deadline() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=100, retry=RetryPolicy(base_delay_ms=0))
    dispatcher.offer(0, "a1", now_ms=0)
    dispatcher.offer(1, "a2", now_ms=0)
    dispatcher.extend(0, "ann", 1, extend_ms=150)

    assert [
        Released(1, "ann", 1, TIMEOUT, 1, 150),
        Released(0, "ann", 1, TIMEOUT, 1, 150),
        deliver(0, "a1", "ann", 2, failures=1),
        deliver(1, "a2", "ann", 2, failures=1),
    ] == dispatcher.handle_timeout(now_ms=150)


def test_consumers_that_have_room_again_are_served_in_the_order_of_joining() -> None:
    dispatcher = subscription("zoe", "ann", ack_timeout_ms=100, max_in_flight_per_consumer=1)
    fill(dispatcher, "a1", "z1", "a2", "z2")

    assert [
        Released(0, "ann", 1, TIMEOUT, 1, 1100),
        Released(1, "zoe", 1, TIMEOUT, 1, 1100),
        deliver(3, "z2", "zoe"),
        deliver(2, "a2", "ann"),
    ] == dispatcher.handle_timeout(now_ms=100)


def test_retries_and_timeouts_of_one_instant_go_by_offset() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=1_000, max_in_flight_per_consumer=2)
    fill(dispatcher, "a1", "a2")
    dispatcher.nack(0, "ann", 1)

    assert [
        Released(1, "ann", 1, TIMEOUT, 1, 2000),
        deliver(0, "a1", "ann", 2, failures=1),
    ] == dispatcher.handle_timeout(now_ms=1_000)


def test_evictions_come_last_even_if_they_were_due_first() -> None:
    # The timeout is what happened first to the message: it is a failure of its own, and ann has no delivery to lose.
    dispatcher = subscription("ann", "bob", ack_timeout_ms=100, inactive_grace_ms=10)
    fill(dispatcher, "a1", "a2")
    dispatcher.extend(1, "ann", 1, extend_ms=500)
    dispatcher.set_inactive("ann")

    assert [
        Released(0, "ann", 1, TIMEOUT, 1, 1100),
        Evicted("ann"),
        Released(1, "ann", 1, ReleaseReason.EVICTED, 1, 100),
        deliver(1, "a2", "bob", 2, failures=1),
    ] == dispatcher.handle_timeout(now_ms=100)


def test_several_evictions_go_by_deadline_then_by_join_order() -> None:
    dispatcher = subscription("cat", "bob", "ann", inactive_grace_ms=10)
    dispatcher.set_inactive("ann", now_ms=0)
    dispatcher.set_inactive("bob", now_ms=1)
    dispatcher.set_inactive("cat", now_ms=1)

    assert [Evicted("ann"), Evicted("cat"), Evicted("bob")] == dispatcher.handle_timeout(now_ms=50)


def test_new_delays_count_from_the_call_not_from_the_deadline_that_was_missed() -> None:
    # A host that slept an hour must not find every retry overdue at once.
    dispatcher = subscription("ann", ack_timeout_ms=100)
    fill(dispatcher, "a1")

    assert [Released(0, "ann", 1, TIMEOUT, 1, 3601000)] == dispatcher.handle_timeout(now_ms=3_600_000)
    assert 3_601_000 == dispatcher.next_deadline_ms()


def test_a_retry_without_delay_is_ready_in_the_same_call_but_does_not_time_out_in_it() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=100, retry=RetryPolicy(base_delay_ms=0))
    fill(dispatcher, "a1")

    assert [
        Released(0, "ann", 1, TIMEOUT, 1, 100000),
        deliver(0, "a1", "ann", 2, failures=1),
    ] == dispatcher.handle_timeout(now_ms=100_000)
    assert 100_100 == dispatcher.next_deadline_ms()


def test_an_extended_delivery_has_the_time_it_was_given() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=100)
    fill(dispatcher, "a1")

    assert [] == dispatcher.extend(0, "ann", 1, now_ms=90)
    assert 190 == dispatcher.next_deadline_ms()
    assert [] == dispatcher.extend(0, "ann", 1, extend_ms=20)
    assert 110 == dispatcher.next_deadline_ms()


def test_without_an_ack_timeout_an_extension_can_still_set_one() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=None)
    fill(dispatcher, "a1")

    assert [] == dispatcher.extend(0, "ann", 1)
    assert None is dispatcher.next_deadline_ms()
    assert [] == dispatcher.extend(0, "ann", 1, extend_ms=20)
    assert 20 == dispatcher.next_deadline_ms()


def test_an_extension_that_came_too_late_is_refused() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=100)
    fill(dispatcher, "a1")
    dispatcher.handle_timeout(now_ms=100)

    stale = IgnoredReason.STALE_ATTEMPT
    assert [Ignored(0, "ann", 1, Call.EXTEND, stale)] == dispatcher.extend(0, "ann", 1)


def test_the_next_deadline_is_that_of_something_alive() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=100, max_in_flight_per_consumer=3)
    for offset in range(3):
        dispatcher.offer(offset, f"a{offset}", now_ms=10 * offset)
    dispatcher.ack(0, "ann", 1)
    assert 110 == dispatcher.next_deadline_ms()

    dispatcher.nack(1, "ann", 1)
    assert 120 == dispatcher.next_deadline_ms()
    dispatcher.reject(2, "ann", 1)
    assert 1_020 == dispatcher.next_deadline_ms()
    dispatcher.gone(1)
    assert None is dispatcher.next_deadline_ms()
    assert [DeadLetter(2, b"a2", 1, 1, None)] == dispatcher.outstanding_effects()


def test_what_a_late_call_has_put_back_does_not_time_out_a_second_time() -> None:
    # Both deadlines have passed when the host gets round to it: the drain's came first, and the ack's is moot then.
    dispatcher = subscription("bob", ack_timeout_ms=100, drain_timeout_ms=50)
    fill(dispatcher, "a1", "a1")
    dispatcher.add_consumer("ann")

    assert 50 == dispatcher.next_deadline_ms()
    assert [
        Released(0, "bob", 1, ReleaseReason.DRAIN_TIMEOUT, 0, 200),
        deliver(0, "a1", "ann", 2),
    ] == dispatcher.handle_timeout(now_ms=200)
    assert 300 == dispatcher.next_deadline_ms()


def test_of_drains_that_are_over_at_one_instant_that_of_the_lowest_offset_acts_first() -> None:
    dispatcher = subscription("bob", ack_timeout_ms=None, drain_timeout_ms=50)
    fill(dispatcher, "a1", "a2")
    dispatcher.add_consumer("ann")
    dispatcher.offer(2, "a2")  # a2 begins to drain first
    dispatcher.offer(3, "a1")

    drain = ReleaseReason.DRAIN_TIMEOUT
    assert [
        Released(0, "bob", 1, drain, 0, 50),
        Released(1, "bob", 1, drain, 0, 50),
        deliver(0, "a1", "ann", 2),
        deliver(1, "a2", "ann", 2),
    ] == dispatcher.handle_timeout(now_ms=50)


def test_of_a_drain_that_waits_for_several_the_lowest_offset_counts() -> None:
    dispatcher = subscription("bob", ack_timeout_ms=None, drain_timeout_ms=50, max_in_flight_per_key=2)
    fill(dispatcher, "a1", "a2", "a1")
    dispatcher.add_consumer("ann")
    dispatcher.offer(3, "a2")  # a2 begins to drain first
    dispatcher.offer(4, "a1")

    ended = [effect for effect in dispatcher.handle_timeout(now_ms=50) if isinstance(effect, Released)]
    assert [0, 2, 1] == [effect.offset for effect in ended]


def test_of_drains_that_a_late_host_finds_over_the_one_that_was_over_first_acts_first() -> None:
    dispatcher = subscription("bob", ack_timeout_ms=None, drain_timeout_ms=50)
    fill(dispatcher, "a1", "a2")
    dispatcher.add_consumer("ann", now_ms=0)
    dispatcher.offer(2, "a2", now_ms=0)
    dispatcher.offer(3, "a1", now_ms=1)

    drain = ReleaseReason.DRAIN_TIMEOUT
    assert [Released(1, "bob", 1, drain, 0, 99), Released(0, "bob", 1, drain, 0, 99)] == dispatcher.handle_timeout(
        now_ms=99
    )[:2]


def test_an_ack_timeout_acts_before_a_drain_that_is_over_at_the_same_instant() -> None:
    dispatcher = subscription("bob", ack_timeout_ms=50, drain_timeout_ms=50, retry=RetryPolicy(base_delay_ms=0))
    fill(dispatcher, "a1", "a1")
    dispatcher.add_consumer("ann")

    assert [
        Released(0, "bob", 1, TIMEOUT, 1, 50),
        deliver(0, "a1", "ann", 2, failures=1),
    ] == dispatcher.handle_timeout(now_ms=50)


def test_an_ack_timeout_acts_before_a_drain_also_where_it_was_set_after_the_drain_began() -> None:
    dispatcher = subscription("bob", ack_timeout_ms=None, drain_timeout_ms=50, retry=RetryPolicy(base_delay_ms=0))
    fill(dispatcher, "a1", "a1")
    dispatcher.add_consumer("ann")
    dispatcher.extend(0, "bob", 1, extend_ms=50)

    assert Released(0, "bob", 1, TIMEOUT, 1, 50) == dispatcher.handle_timeout(now_ms=50)[0]
