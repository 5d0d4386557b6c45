"""Rule 17: with ``batch_per_key`` above 1 the open deliveries of a key are a batch, which ends as a whole."""

from typing import Any

import pytest
from tests.alphabet import Watched, delivered, fill, subscription

from keyshared.config import OnEvict, RetryPolicy
from keyshared.effects import (
    Deliver,
    Dropped,
    Effect,
    Released,
    ReleaseReason,
)
from keyshared.errors import ArgumentError

AT_ONCE = RetryPolicy(max_redeliveries=2, base_delay_ms=0)


def batching(*keys: str | None, batch: int = 3, **config: Any) -> Watched:
    """Ann holds nothing yet, and everything waits for her."""
    dispatcher = subscription(batch_per_key=batch, **config)
    fill(dispatcher, *keys)
    return dispatcher


def endings(effects: list[Effect]) -> list[tuple[int, ReleaseReason, int, int | None]]:
    """Which deliveries ended how, with the failures by now and the instant of the retry."""
    return [
        (each.offset, each.reason, each.failures, each.retry_at_ms) for each in effects if isinstance(each, Released)
    ]


class TestMaking:
    """A batch is what is at hand when the key has its turn."""

    def test_a_pull_may_ask_for_shorter_ones(self) -> None:
        dispatcher = batching("a1", "a1", "b1", "b1")
        dispatcher.add_consumer("ann", limit=0)
        assert [0, 2] == [
            effect.offset for effect in dispatcher.pull("ann", 9, per_key=1) if isinstance(effect, Deliver)
        ]
        dispatcher.ack(0, "ann", 1)
        assert [(1, "ann")] == delivered(dispatcher.pull("ann", 9))
        for wrong in (0, 4, "2"):
            with pytest.raises(ArgumentError, match="per_key"):
                dispatcher.pull("ann", 1, per_key=wrong)  # type: ignore[arg-type]  # on purpose


class TestEnding:
    """Newer ones of a batch come back when one ends in another way than by its ack."""

    def taken(self, **config: Any) -> Watched:
        dispatcher = batching("a1", "a1", "a1", **{"retry": AT_ONCE} | config)
        dispatcher.add_consumer("ann", now_ms=0)
        return dispatcher

    def test_more_time_where_the_oldest_has_come_back(self) -> None:
        dispatcher = self.taken(ack_timeout_ms=9)
        dispatcher.ack(1, "ann", 1)
        dispatcher.nack(2, "ann", 1, delay_ms=40)
        dispatcher.extend(0, "ann", 1, extend_ms=30)
        assert 30 == dispatcher.next_deadline_ms()

    def test_what_ends_all_that_a_consumer_holds_ends_each_in_its_own_right(self) -> None:
        evicted = self.taken(on_evict=OnEvict.DROP, inactive_grace_ms=0)
        evicted.set_inactive("ann")
        assert [0, 1, 2] == [each.offset for each in evicted.handle_timeout() if isinstance(each, Dropped)]
        assert [ReleaseReason.REMOVED] * 3 == [reason for _, reason, *_ in endings(self.taken().remove_consumer("ann"))]

    def test_a_late_ack_settles_one_and_leaves_the_rest(self) -> None:
        dispatcher = self.taken(retry=RetryPolicy(base_delay_ms=50))
        dispatcher.nack(0, "ann", 1)
        assert [] == dispatcher.ack_through(1, "ann", 1)
        assert [0, 2] == [each.offset for each in dispatcher.outstanding()]


class TestAckThrough:
    """How far a handler has come."""

    def test_what_has_come_back_is_not_settled_with_it(self) -> None:
        dispatcher = subscription("ann", max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a1")
        dispatcher.nack(0, "ann", 1)
        assert [] == dispatcher.ack_through(1, "ann", 1)
        assert [0] == [each.offset for each in dispatcher.outstanding()]

    def test_what_cannot_be_a_receipt_is_refused(self) -> None:
        with pytest.raises(ArgumentError, match="attempt"):
            subscription("ann").ack_through(0, "ann", "1")  # type: ignore[arg-type]  # on purpose
