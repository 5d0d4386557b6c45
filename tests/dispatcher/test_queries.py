"""What can be asked between any two calls, and whether an effect that waited in a queue still holds."""

import pytest
from tests.alphabet import advanced, deliver, fill, subscription, then

from keyshared.config import RetryPolicy
from keyshared.dispatcher import Blocking, Outstanding
from keyshared.effects import (
    BlockReason,
    Call,
    DeadLetter,
    Evicted,
    Ignored,
    IgnoredReason,
    Load,
    Resumed,
    Settled,
    SettleReason,
    Spilled,
)


class TestIsCurrent:
    """Asked just before an obligation is met."""

    def test_a_delivery_is_until_it_has_ended(self) -> None:
        dispatcher = subscription("ann")
        [delivery] = dispatcher.offer(0, "a1")
        assert dispatcher.is_current(delivery)

        assert [deliver(0, "a1", "ann", 2)] == then(dispatcher.release(0, "ann", 1))
        assert not dispatcher.is_current(delivery)
        assert dispatcher.is_current(deliver(0, "a1", "ann", 2))
        assert not dispatcher.is_current(deliver(0, "a1", "bob", 2))

    def test_a_cursor_is_until_it_moves_on(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1", "a2")
        dispatcher.ack(0, "ann", 1)
        assert dispatcher.is_current(advanced(0))

        dispatcher.ack(1, "ann", 1)
        assert [False, True] == [dispatcher.is_current(advanced(offset)) for offset in (0, 1)]

    def test_the_end_of_a_pause_is_while_there_is_room(self) -> None:
        dispatcher = subscription("ann", window=1)
        assert dispatcher.is_current(Resumed(1))

        dispatcher.offer(0, "a1")
        assert not dispatcher.is_current(Resumed(1))

    def test_an_obligation_of_a_message_that_is_settled_is_not(self) -> None:
        dispatcher = subscription("ann")

        assert [False, False] == [
            dispatcher.is_current(effect) for effect in (DeadLetter(0, b"a1", 1, 1, None), Load(0, b"a1"))
        ]

    def test_a_notice_always_is(self) -> None:
        ignored = Ignored(0, "ann", 1, Call.ACK, IgnoredReason.UNKNOWN_OFFSET)

        for notice in (ignored, Evicted("ann"), Spilled(0), Settled(0, None, SettleReason.PARKED)):
            assert subscription().is_current(notice)


def test_deliveries_in_flight_are_told_by_join_order_and_offset() -> None:
    dispatcher = subscription("bob", "ann")
    fill(dispatcher, "a1", "b1", "b2", "a2")
    dispatcher.release(1, "bob", 1)

    bobs = [deliver(1, "b1", "bob", 2), deliver(2, "b2", "bob")]
    assert [*bobs, deliver(0, "a1", "ann"), deliver(3, "a2", "ann")] == dispatcher.in_flight()
    assert (bobs, []) == (dispatcher.in_flight("bob"), dispatcher.in_flight("nobody"))


def test_outstanding_obligations_are_told_in_the_order_in_which_calls_return_them() -> None:
    dispatcher = subscription("ann", max_loaded_per_key=1)
    fill(dispatcher, "a1", "a2", "a2", "a3")
    dispatcher.ack(1, "ann", 1)
    dispatcher.reject(3, "ann", 1)

    assert [
        DeadLetter(3, b"a3", 1, 1, None),
        Load(2, b"a2"),
        deliver(0, "a1", "ann"),
    ] == dispatcher.outstanding_effects()


@pytest.mark.parametrize(
    ("reason", "consumer"),
    [(BlockReason.CONSUMER_FULL, "ann"), (BlockReason.CONSUMER_INACTIVE, "ann"), (BlockReason.KEY_IN_FLIGHT, "ann")],
)
def test_whom_a_message_waits_for_is_named(reason: BlockReason, consumer: str) -> None:
    dispatcher = subscription("ann", inactive_grace_ms=None)
    fill(dispatcher, "a1")
    if reason is BlockReason.CONSUMER_FULL:
        dispatcher.set_limit("ann", 1)
    elif reason is BlockReason.CONSUMER_INACTIVE:
        dispatcher.set_inactive("ann")
    dispatcher.offer(1, "a1" if reason is BlockReason.KEY_IN_FLIGHT else "a2")

    assert Blocking(reason, consumer) == dispatcher.why_blocked(1)
    assert None is dispatcher.why_blocked(0)


class TestDescribe:
    """All that is known of a message."""

    def test_of_one_in_flight_one_that_waits_and_one_that_is_settled(self) -> None:
        dispatcher = subscription("ann", ack_timeout_ms=100)
        dispatcher.offer(0, "a1", now_ms=5)
        fill(dispatcher, "a2", "a2", start=1)
        dispatcher.ack(1, "ann", 1)

        assert Outstanding(0, b"a1", 1, 0, True, 105, None) == dispatcher.describe(0)
        assert None is dispatcher.describe(1)
        assert [0, 2] == [message.offset for message in dispatcher.outstanding()]

    def test_of_one_that_waits_for_its_retry(self) -> None:
        dispatcher = subscription("ann", retry=RetryPolicy(base_delay_ms=7))
        fill(dispatcher, "a1")
        dispatcher.nack(0, "ann", 1)

        waits = Blocking(BlockReason.RETRY_WAIT)
        assert [Outstanding(0, b"a1", 1, 1, True, 7, waits, ((1, "ann"),))] == [*dispatcher.outstanding()]


def test_of_the_limits_of_a_key_and_of_its_consumer_that_of_the_key_is_named() -> None:
    dispatcher = subscription("ann", max_in_flight_per_consumer=1)
    fill(dispatcher, "a1", "a1", "a2")

    assert Blocking(BlockReason.KEY_IN_FLIGHT, "ann") == dispatcher.why_blocked(1)
    assert Blocking(BlockReason.CONSUMER_FULL, "ann") == dispatcher.why_blocked(2)


def test_a_question_about_a_key_that_has_moved_does_not_change_the_order_of_what_comes_later() -> None:
    def life(*, asked: bool) -> list[object]:
        dispatcher = subscription("bob", max_in_flight_per_key=2, max_in_flight_per_consumer=3)
        fill(dispatcher, "a1", "a1", "a1", "a2")
        dispatcher.add_consumer("ann")
        if asked:
            assert Blocking(BlockReason.DRAINING, "bob") == dispatcher.why_blocked(2)
            assert [0, 1, 2, 3] == [each.offset for each in dispatcher.outstanding()]
        dispatcher.offer(4, "a1")
        dispatcher.offer(5, "a2")
        return [
            dispatcher.stats(),
            dispatcher.snapshot(),
            dispatcher.ack(0, "bob", 1),
            dispatcher.remove_consumer("ann"),
        ]

    assert life(asked=False) == life(asked=True)
