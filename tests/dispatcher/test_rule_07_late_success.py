"""Rule 7: work that was finished late was still finished."""

from tests.alphabet import Watched, advanced, deliver, fill, subscription, then

from keyshared.config import RetryPolicy
from keyshared.effects import (
    Call,
    Ignored,
    IgnoredReason,
    Released,
    ReleaseReason,
    Settled,
    SettleReason,
)

NOTED = Ignored(0, "ann", 1, Call.ACK, IgnoredReason.LATE_ACK_NOTED)
SETTLED = Settled(0, b"a1", SettleReason.LATE_ACK)


class TestNewerAttemptOpen:
    """Somebody else works on it by now: that attempt keeps key, slot and timer, and whatever ends it, it is done."""

    def redelivered(self) -> Watched:
        """0 timed out at ann, who is still at it; bob has attempt 2."""
        dispatcher = subscription("ann", "bob", retry=RetryPolicy(base_delay_ms=0))
        fill(dispatcher, "a1", "a1")
        dispatcher.set_filters("ann", ["x"])
        assert [
            Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, 30000),
            deliver(0, "a1", "bob", 2, failures=1),
        ] == dispatcher.handle_timeout(now_ms=30_000)
        assert [NOTED] == dispatcher.ack(0, "ann", 1)
        return dispatcher

    def test_its_own_ack_is_an_ack(self) -> None:
        assert [deliver(1, "a1", "bob"), advanced(0)] == self.redelivered().ack(0, "bob", 2)

    def test_a_message_that_is_gone_besides_counts_as_acked(self) -> None:
        dispatcher = self.redelivered()
        dispatcher.gone(0)

        assert [SETTLED, deliver(1, "a1", "bob"), advanced(0)] == then(dispatcher.nack(0, "bob", 2))


def after_releases(times: int) -> Watched:
    """0 was given back so often, by ann and bob in turns, who left then; it waits for somebody to come."""
    dispatcher = subscription()
    fill(dispatcher, "a1")
    for attempt in range(1, times + 1):
        holder = "ann" if attempt % 2 else "bob"
        dispatcher.add_consumer(holder)
        dispatcher.remove_consumer(holder)
    return dispatcher


def crashed(dispatcher: Watched) -> Watched:
    return Watched.restore(dispatcher.snapshot(), dispatcher.placement, dispatcher.config, now_ms=0, epoch=1)


class TestWhoSaysSo:
    """A late ack counts only if that delivery was made, and to that consumer."""

    def test_an_attempt_that_an_epoch_passed_over_was_never_delivered(self) -> None:
        dispatcher = subscription("ann", retry=RetryPolicy(base_delay_ms=10))
        fill(dispatcher, "a1")
        dispatcher.nack(0, "ann", 1)
        again = crashed(dispatcher)
        again.handle_timeout(now_ms=10)
        again.nack(0, "ann", (1 << 32) + 1)

        for attempt in (77_777, 1 << 32, (1 << 32) + 5):
            unknown = Ignored(0, "ann", attempt, Call.ACK, IgnoredReason.UNKNOWN_ATTEMPT)
            assert [unknown] == again.ack(0, "ann", attempt)
        assert [advanced(0)] == again.ack(0, "ann", 1)

    def test_a_delivery_of_before_a_crash_still_counts_after_it(self) -> None:
        dispatcher = after_releases(3)
        again = crashed(dispatcher)

        assert ((1, "ann"), (2, "bob"), (3, "ann")) == next(again.outstanding()).ended
        assert [advanced(0)] == again.ack(0, "bob", 2)

    def test_the_last_eight_deliveries_are_remembered_and_older_ones_get_an_answer_of_their_own(self) -> None:
        dispatcher = after_releases(9)

        forgotten = Ignored(0, "ann", 1, Call.ACK, IgnoredReason.FORGOTTEN_ATTEMPT)
        assert [forgotten] == dispatcher.ack(0, "ann", 1)
        assert [Ignored(0, "ann", 0, Call.ACK, IgnoredReason.UNKNOWN_ATTEMPT)] == dispatcher.ack(0, "ann", 0)
        assert [advanced(0)] == dispatcher.ack(0, "bob", 2)
