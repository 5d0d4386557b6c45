"""Rule 8: attempts count deliveries and fence them; failures count what went wrong and cost retries."""

from collections.abc import Callable
from typing import Any

from tests.alphabet import Watched, advanced, deliver, fill, subscription, then

from keyshared.config import Backoff, OnEvict, Poison, RetryPolicy
from keyshared.effects import Effect, Released, ReleaseReason


class TestBackoff:
    """The delay grows with the failures, not with the deliveries."""

    def test_a_consumer_may_ask_for_more_but_not_for_less(self) -> None:
        dispatcher = subscription("ann", retry=RetryPolicy(backoff=Backoff.FIXED))
        fill(dispatcher, "a1", "a2")
        dispatcher.nack(0, "ann", 1, delay_ms=200)
        assert 1_000 == dispatcher.next_deadline_ms()
        dispatcher.gone(0)

        dispatcher.nack(1, "ann", 1, delay_ms=2_500)
        assert 2_500 == dispatcher.next_deadline_ms()


def test_unblocking_forgives_the_failures_and_keeps_the_numbers() -> None:
    dispatcher = subscription("ann", poison=Poison.BLOCK, retry=RetryPolicy(max_redeliveries=0))
    fill(dispatcher, "a1")
    dispatcher.nack(0, "ann", 1)

    assert [deliver(0, "a1", "ann", 2)] == dispatcher.unblock("a1")
    assert [advanced(0)] == dispatcher.ack(0, "ann", 2)


def test_a_longest_delay_of_zero_means_at_once_whatever_else_is_asked_for() -> None:
    for backoff in Backoff:
        dispatcher = subscription("ann", retry=RetryPolicy(base_delay_ms=1_000, max_delay_ms=0, backoff=backoff))
        fill(dispatcher, "a1")

        assert [deliver(0, "a1", "ann", 2, failures=1)] == then(dispatcher.nack(0, "ann", 1))
        assert [deliver(0, "a1", "ann", 3, failures=2)] == then(dispatcher.nack(0, "ann", 2, delay_ms=5_000))


class TestWhatIsTold:
    """Each end of a delivery but its ack says how it ended, the failures by now, and when the message may go out."""

    RETRY = RetryPolicy(max_redeliveries=1, base_delay_ms=50)

    def told(self, end: Callable[[Watched], list[Effect]], **config: Any) -> list[tuple[object, ...]]:
        dispatcher = subscription("ann", retry=self.RETRY, ack_timeout_ms=100, inactive_grace_ms=100, **config)
        fill(dispatcher, "a1")
        return [effect[3:] for effect in end(dispatcher) if isinstance(effect, Released)]

    def test_what_its_consumer_caused_is_a_failure_and_no_wait(self) -> None:
        def evict(dispatcher: Watched) -> list[Effect]:
            dispatcher.extend(0, "ann", 1, extend_ms=200)
            dispatcher.set_inactive("ann")
            return dispatcher.handle_timeout(now_ms=100)

        assert [(ReleaseReason.SESSION_LOST, 1, 7)] == self.told(lambda d: d.set_active("ann", now_ms=7))
        assert [(ReleaseReason.EVICTED, 1, 100)] == self.told(evict)
        assert [(ReleaseReason.EVICTED, 1, None)] == self.told(evict, on_evict=OnEvict.DROP)

    def test_what_is_no_failure_is_put_back_at_once(self) -> None:
        assert [(ReleaseReason.RELEASED, 0, 7)] == self.told(lambda d: d.release(0, "ann", 1, now_ms=7))
        assert [(ReleaseReason.REMOVED, 0, 7)] == self.told(lambda d: d.remove_consumer("ann", now_ms=7))
