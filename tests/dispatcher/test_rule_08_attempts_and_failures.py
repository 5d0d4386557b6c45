"""Rule 8: attempts count deliveries and fence them; failures count what went wrong and cost retries."""

from collections.abc import Callable
from typing import Any

from tests.alphabet import Watched, advanced, deliver, fill, subscription, then

from keyshared.config import Backoff, OnEvict, Poison, RetryPolicy
from keyshared.effects import Call, DeadLetter, Effect, Evicted, Ignored, IgnoredReason, Released, ReleaseReason

ONE_RETRY = RetryPolicy(max_redeliveries=1, base_delay_ms=0)


def test_every_delivery_has_a_new_number_and_the_failures_are_told_with_it() -> None:
    dispatcher = subscription("ann", retry=RetryPolicy(base_delay_ms=0))
    fill(dispatcher, "a1")

    assert [deliver(0, "a1", "ann", 2)] == then(dispatcher.release(0, "ann", 1))
    assert [deliver(0, "a1", "ann", 3, failures=1)] == then(dispatcher.nack(0, "ann", 2))
    assert [deliver(0, "a1", "ann", 4, failures=1)] == then(dispatcher.release(0, "ann", 3))


def test_a_receipt_is_good_for_one_answer() -> None:
    dispatcher = subscription("ann")
    [delivery] = dispatcher.offer(0, "a1")
    assert isinstance(delivery, type(deliver(0, "a1", "ann")))
    dispatcher.nack(*delivery.receipt)

    stale = IgnoredReason.STALE_ATTEMPT
    assert [Ignored(0, "ann", 1, Call.NACK, stale)] == dispatcher.nack(*delivery.receipt)


class TestWhatCostsARetry:
    """With one retry, the second of these is poison and the first is not."""

    def poisoned_by_next_failure(self) -> Watched:
        dispatcher = subscription("ann", retry=ONE_RETRY, inactive_grace_ms=100)
        fill(dispatcher, "a1")
        assert [deliver(0, "a1", "ann", 2, failures=1)] == then(dispatcher.nack(0, "ann", 1))
        return dispatcher

    def archived(self, attempt: int = 2) -> DeadLetter:
        return DeadLetter(0, b"a1", attempt, 2, None)

    def test_a_nack(self) -> None:
        assert [self.archived()] == then(self.poisoned_by_next_failure().nack(0, "ann", 2))

    def test_an_ack_timeout(self) -> None:
        assert [
            Released(0, "ann", 2, ReleaseReason.ACK_TIMEOUT, 2, None),
            self.archived(),
        ] == self.poisoned_by_next_failure().handle_timeout(now_ms=30_000)

    def test_a_lost_session(self) -> None:
        assert [
            Released(0, "ann", 2, ReleaseReason.SESSION_LOST, 2, None),
            self.archived(),
        ] == self.poisoned_by_next_failure().set_active("ann")

    def test_an_eviction(self) -> None:
        dispatcher = self.poisoned_by_next_failure()
        dispatcher.set_inactive("ann")

        assert [
            Evicted("ann"),
            Released(0, "ann", 2, ReleaseReason.EVICTED, 2, None),
            self.archived(),
        ] == dispatcher.handle_timeout(now_ms=100)

    def test_a_reject_costs_all_of_them(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")

        assert [DeadLetter(0, b"a1", 1, 1, None)] == then(dispatcher.reject(0, "ann", 1))

    def test_not_a_release_nor_a_consumer_that_leaves_properly_nor_a_drain(self) -> None:
        # A rolling restart of the consumers must not poison the subscription.
        dispatcher = self.poisoned_by_next_failure()

        assert [deliver(0, "a1", "ann", 3, failures=1)] == then(dispatcher.release(0, "ann", 2))
        dispatcher.remove_consumer("ann")
        assert [deliver(0, "a1", "ann", 4, failures=1)] == dispatcher.add_consumer("ann")
        dispatcher.remove_consumer("ann", drain_ms=50)
        dispatcher.handle_timeout(now_ms=50)
        assert [deliver(0, "a1", "bob", 5, failures=1)] == dispatcher.add_consumer("bob")

    def test_not_an_answer_that_came_too_late(self) -> None:
        dispatcher = self.poisoned_by_next_failure()
        stale = IgnoredReason.STALE_ATTEMPT

        assert [Ignored(0, "ann", 1, Call.NACK, stale)] == dispatcher.nack(0, "ann", 1)
        assert [self.archived()] == then(dispatcher.nack(0, "ann", 2))


class TestBackoff:
    """The delay grows with the failures, not with the deliveries."""

    def test_it_doubles_up_to_its_cap(self) -> None:
        dispatcher = subscription("ann", retry=RetryPolicy(max_delay_ms=3_000))
        fill(dispatcher, "a1")
        due = []
        for attempt in range(1, 5):
            start = dispatcher.next_deadline_ms() if attempt > 1 else 0
            assert start is not None
            dispatcher.handle_timeout(now_ms=start)
            dispatcher.nack(0, "ann", attempt)
            after = dispatcher.next_deadline_ms()
            assert after is not None
            due.append(after - start)

        assert [1_000, 2_000, 3_000, 3_000] == due

    def test_the_shortest_delay_is_a_delay(self) -> None:
        dispatcher = subscription("ann", retry=RetryPolicy(base_delay_ms=1))
        fill(dispatcher, "a1")

        assert [] == then(dispatcher.nack(0, "ann", 1))
        assert [deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.handle_timeout(now_ms=1)

    def test_a_release_in_between_does_not_make_it_longer(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")
        dispatcher.release(0, "ann", 1)
        dispatcher.nack(0, "ann", 2)

        assert 1_000 == dispatcher.next_deadline_ms()

    def test_a_consumer_may_ask_for_more_but_not_for_less(self) -> None:
        dispatcher = subscription("ann", retry=RetryPolicy(backoff=Backoff.FIXED))
        fill(dispatcher, "a1", "a2")
        dispatcher.nack(0, "ann", 1, delay_ms=200)
        assert 1_000 == dispatcher.next_deadline_ms()
        dispatcher.gone(0)

        dispatcher.nack(1, "ann", 1, delay_ms=2_500)
        assert 2_500 == dispatcher.next_deadline_ms()

    def test_a_lost_session_has_done_its_waiting(self) -> None:
        dispatcher = subscription("ann", inactive_grace_ms=None)
        fill(dispatcher, "a1")

        assert [
            Released(0, "ann", 1, ReleaseReason.SESSION_LOST, 1, 0),
            deliver(0, "a1", "ann", 2, failures=1),
        ] == dispatcher.set_active("ann")


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

    def test_what_the_message_may_have_caused_makes_it_wait(self) -> None:
        assert [(ReleaseReason.NACKED, 1, 57)] == self.told(lambda d: d.nack(0, "ann", 1, now_ms=7))
        assert [(ReleaseReason.NACKED, 1, 77)] == self.told(lambda d: d.nack(0, "ann", 1, delay_ms=70, now_ms=7))
        assert [(ReleaseReason.ACK_TIMEOUT, 1, 150)] == self.told(lambda d: d.handle_timeout(now_ms=100))

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

    def test_what_is_given_up_or_settled_never_goes_out_again(self) -> None:
        def second_nack(dispatcher: Watched) -> list[Effect]:
            dispatcher.nack(0, "ann", 1)
            dispatcher.handle_timeout(now_ms=50)
            return dispatcher.nack(0, "ann", 2)

        def nack_what_is_gone(dispatcher: Watched) -> list[Effect]:
            dispatcher.gone(0)
            return dispatcher.nack(0, "ann", 1)

        assert [(ReleaseReason.NACKED, 2, None)] == self.told(second_nack)
        assert [(ReleaseReason.REJECTED, 1, None)] == self.told(lambda d: d.reject(0, "ann", 1))
        assert [(ReleaseReason.NACKED, 0, None)] == self.told(nack_what_is_gone)

    def test_an_ack_tells_nothing_of_it(self) -> None:
        assert [] == self.told(lambda d: d.ack(0, "ann", 1))
