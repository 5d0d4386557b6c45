"""Rule 9: time acts in ``handle_timeout`` and nowhere else."""

from tests.alphabet import fill, subscription

from keyshared.config import RetryPolicy
from keyshared.effects import DeadLetter, Evicted, Released, ReleaseReason

TIMEOUT = ReleaseReason.ACK_TIMEOUT


def test_messages_that_are_offered_together_are_due_together() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=100)
    dispatcher.offer_many([(0, "a1", None), (1, "a2", None)], now_ms=7)

    assert 107 == dispatcher.next_deadline_ms()
    assert [Released(0, "ann", 1, TIMEOUT, 1, 1107), Released(1, "ann", 1, TIMEOUT, 1, 1107)] == (
        dispatcher.handle_timeout(now_ms=107)
    )


def test_calls_that_come_too_early_or_too_often_are_free() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=100)
    fill(dispatcher, "a1")
    before = dispatcher.snapshot()

    assert [] == dispatcher.handle_timeout()
    assert [] == dispatcher.handle_timeout(now_ms=0)
    assert before == dispatcher.snapshot()


def test_several_evictions_go_by_deadline_then_by_join_order() -> None:
    dispatcher = subscription("cat", "bob", "ann", inactive_grace_ms=10)
    dispatcher.set_inactive("ann", now_ms=0)
    dispatcher.set_inactive("bob", now_ms=1)
    dispatcher.set_inactive("cat", now_ms=1)

    assert [Evicted("ann"), Evicted("cat"), Evicted("bob")] == dispatcher.handle_timeout(now_ms=50)


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


def test_an_ack_timeout_acts_before_a_drain_also_where_it_was_set_after_the_drain_began() -> None:
    dispatcher = subscription("bob", ack_timeout_ms=None, drain_timeout_ms=50, retry=RetryPolicy(base_delay_ms=0))
    fill(dispatcher, "a1", "a1")
    dispatcher.add_consumer("ann")
    dispatcher.extend(0, "bob", 1, extend_ms=50)

    assert Released(0, "bob", 1, TIMEOUT, 1, 50) == dispatcher.handle_timeout(now_ms=50)[0]
