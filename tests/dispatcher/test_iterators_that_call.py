"""What is given as an iterator may call the dispatcher while it is read: its calls come before the one that reads."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.alphabet import fill, subscription

from keyshared.config import RetryPolicy
from keyshared.effects import Ignored
from keyshared.errors import ClockError, OffsetOrderError


def test_a_delivery_that_ends_while_receipts_are_read_is_not_settled() -> None:
    dispatcher = subscription(batch_per_key=2, retry=RetryPolicy(base_delay_ms=0), tell_settled=True)
    fill(dispatcher, "a1", "a1")
    dispatcher.add_consumer("ann")

    def receipts() -> Iterator[tuple[int, str, int]]:
        yield 1, "ann", 1
        dispatcher.nack(0, "ann", 1)  # its batch has broken: 1 has come back, and is out again

    effects = dispatcher.ack_many(receipts())
    single = subscription(batch_per_key=2, retry=RetryPolicy(base_delay_ms=0), tell_settled=True)
    fill(single, "a1", "a1")
    single.add_consumer("ann")
    single.nack(0, "ann", 1)
    assert single.ack(1, "ann", 1) == effects
    assert single.snapshot() == dispatcher.snapshot()


def test_a_consumer_may_leave_while_its_receipts_are_read() -> None:
    dispatcher = subscription("ann")
    fill(dispatcher, "a1", "b1")

    def receipts() -> Iterator[tuple[int, str, int]]:
        yield 0, "ann", 1
        dispatcher.remove_consumer("ann")

    assert [] == [effect for effect in dispatcher.ack_many(receipts()) if isinstance(effect, Ignored)], "it is late"
    assert [1] == [each.offset for each in dispatcher.outstanding()]


def test_a_message_that_is_offered_while_a_batch_is_read_is_not_taken_twice() -> None:
    dispatcher = subscription("ann")

    def messages() -> Iterator[tuple[int, str, None]]:
        for offset in (5, 6):
            dispatcher.offer(offset, "a1")
            yield offset, "a1", None

    with pytest.raises(OffsetOrderError):
        dispatcher.offer_many(messages())
    assert [5, 6] == [each.offset for each in dispatcher.outstanding()]


@pytest.mark.parametrize("name", ["ack_many", "offer_many", "redrive", "add_consumer", "set_filters"])
def test_the_clock_does_not_go_back_by_the_call_that_reads(name: str) -> None:
    dispatcher = subscription("ann", redrive=True)

    def nothing() -> Iterator[Any]:
        dispatcher.handle_timeout(now_ms=100)
        yield from ()

    calls = {
        "ack_many": lambda **now: dispatcher.ack_many(nothing(), **now),
        "offer_many": lambda **now: dispatcher.offer_many(nothing(), **now),
        "redrive": lambda **now: dispatcher.redrive("a1", nothing(), **now),
        "add_consumer": lambda **now: dispatcher.add_consumer("bob", filters=nothing(), **now),
        "set_filters": lambda **now: dispatcher.set_filters("ann", nothing(), **now),
    }
    with pytest.raises(ClockError):
        calls[name](now_ms=50)
    calls[name]()
    with pytest.raises(ClockError):
        dispatcher.handle_timeout(now_ms=99)
