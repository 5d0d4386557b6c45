"""Rule 7: work that was finished late was still finished."""

import pytest
from tests.alphabet import Watched, advanced, deliver, fill, subscription, then

from keyshared.config import Poison, RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.effects import (
    BlockReason,
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


class TestNotOpen:
    """Nobody works on the message: the late ack settles it."""

    def test_a_message_that_waits_for_its_retry_is_settled_and_not_sent_again(self) -> None:
        # Refusing it, because the message is not in flight, is a needless duplicate.
        dispatcher = subscription("ann")
        fill(dispatcher, "a1", "a1")
        dispatcher.handle_timeout(now_ms=30_000)

        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert 60_000 == dispatcher.next_deadline_ms()
        assert [] == dispatcher.handle_timeout(now_ms=31_000)

    def test_a_message_that_was_put_back_and_waits_for_room_is_settled(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")
        dispatcher.set_limit("ann", 0)
        dispatcher.release(0, "ann", 1)

        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_an_earlier_attempt_than_the_last_one_counts_as_well(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")
        dispatcher.release(0, "ann", 1)
        dispatcher.nack(0, "ann", 2)

        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_the_consumer_may_have_left_meanwhile(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")
        dispatcher.remove_consumer("ann")

        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)


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

    def test_it_holds_the_key_until_that_attempt_has_ended(self) -> None:
        # Taken for the current one, ann's ack would start message 1 while bob still works on 0.
        dispatcher = self.redelivered()

        assert Blocking(BlockReason.KEY_IN_FLIGHT, "bob") == dispatcher.why_blocked(1)
        assert [NOTED] == dispatcher.ack(0, "ann", 1)
        assert 60_000 == dispatcher.next_deadline_ms()

    def test_its_own_ack_is_an_ack(self) -> None:
        assert [deliver(1, "a1", "bob"), advanced(0)] == self.redelivered().ack(0, "bob", 2)

    @pytest.mark.parametrize("end", ["nack", "reject", "release"])
    def test_however_the_consumer_ends_it_the_message_is_done(self, end: str) -> None:
        dispatcher = self.redelivered()

        assert [SETTLED, deliver(1, "a1", "bob"), advanced(0)] == then(getattr(dispatcher, end)(0, "bob", 2))

    def test_its_timeout_settles_it(self) -> None:
        assert [
            Released(0, "bob", 2, ReleaseReason.ACK_TIMEOUT, 1, None),
            SETTLED,
            deliver(1, "a1", "bob"),
            advanced(0),
        ] == self.redelivered().handle_timeout(now_ms=60_000)

    def test_the_loss_of_its_session_settles_it(self) -> None:
        assert [
            Released(0, "bob", 2, ReleaseReason.SESSION_LOST, 1, None),
            SETTLED,
            deliver(1, "a1", "bob"),
            advanced(0),
        ] == self.redelivered().set_active("bob")

    def test_the_leaving_of_its_consumer_settles_it(self) -> None:
        dispatcher = self.redelivered()

        assert [
            Released(0, "bob", 2, ReleaseReason.REMOVED, 1, None),
            SETTLED,
            advanced(0),
        ] == dispatcher.remove_consumer("bob")

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

    @pytest.mark.parametrize(
        ("receipt", "reason"),
        [
            ((0, "stranger", 1), IgnoredReason.NOT_HOLDER),
            ((0, "bob", 1), IgnoredReason.NOT_HOLDER),
            ((0, "ann", 2), IgnoredReason.NOT_HOLDER),
            ((0, "ann", 77_777), IgnoredReason.UNKNOWN_ATTEMPT),
            ((0, "ann", 0), IgnoredReason.UNKNOWN_ATTEMPT),
        ],
    )
    @pytest.mark.parametrize("answer", ["ack", "nack", "reject", "release", "extend"])
    def test_an_answer_by_who_never_had_it_changes_nothing(
        self, answer: str, receipt: tuple[int, str, int], reason: IgnoredReason
    ) -> None:
        # Promise fence: believed, one guess of a stranger would settle work that nobody has done.
        dispatcher = subscription("ann", "bob", retry=RetryPolicy(base_delay_ms=10))
        fill(dispatcher, "a1")
        dispatcher.set_filters("ann", ["x"])
        dispatcher.release(0, "ann", 1)
        dispatcher.nack(0, "bob", 2)
        before = dispatcher.snapshot()

        assert [Ignored(*receipt, Call(answer), reason)] == getattr(dispatcher, answer)(*receipt)
        assert before == dispatcher.snapshot()

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

    def test_a_new_session_speaks_for_the_old_one_of_its_name(self) -> None:
        dispatcher = subscription("ann", max_in_flight_per_consumer=1)
        fill(dispatcher, "a1")
        dispatcher.remove_consumer("ann")
        dispatcher.add_consumer("ann", limit=0)

        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_the_last_eight_deliveries_are_remembered_and_older_ones_get_an_answer_of_their_own(self) -> None:
        dispatcher = after_releases(9)

        forgotten = Ignored(0, "ann", 1, Call.ACK, IgnoredReason.FORGOTTEN_ATTEMPT)
        assert [forgotten] == dispatcher.ack(0, "ann", 1)
        assert [Ignored(0, "ann", 0, Call.ACK, IgnoredReason.UNKNOWN_ATTEMPT)] == dispatcher.ack(0, "ann", 0)
        assert [advanced(0)] == dispatcher.ack(0, "bob", 2)

    def test_what_was_settled_leaves_nothing_behind(self) -> None:
        # Remembered for ever, every retry of a subscription's life would cost memory.
        dispatcher = after_releases(2)
        dispatcher.ack(0, "ann", 1)
        dispatcher.add_consumer("cat")
        fill(dispatcher, "a2", start=1)
        dispatcher.release(1, "cat", 1)
        dispatcher.ack(1, "cat", 2)

        assert [] == list(dispatcher.outstanding())
        assert [] == dispatcher.snapshot()["messages"]


class TestNeverMistaken:
    """What names no delivery that there was, or a message whose fate is decided, changes nothing."""

    @pytest.mark.parametrize(
        ("receipt", "reason"),
        [
            ((9, "ann", 1), IgnoredReason.UNKNOWN_OFFSET),
            ((0, "bob", 1), IgnoredReason.NOT_HOLDER),
            ((0, "nobody", 1), IgnoredReason.NOT_HOLDER),
            ((0, "ann", 0), IgnoredReason.UNKNOWN_ATTEMPT),
            ((0, "ann", -1), IgnoredReason.UNKNOWN_ATTEMPT),
            ((0, "ann", 2), IgnoredReason.UNKNOWN_ATTEMPT),
            ((1, "ann", 1), IgnoredReason.UNKNOWN_ATTEMPT),
        ],
    )
    @pytest.mark.parametrize("answer", ["ack", "nack", "reject", "release", "extend"])
    def test_an_answer_to_what_was_never_delivered(
        self, answer: str, receipt: tuple[int, str, int], reason: IgnoredReason
    ) -> None:
        dispatcher = subscription("ann", "bob")
        fill(dispatcher, "a1", "a1")
        before = dispatcher.snapshot()

        assert [Ignored(*receipt, Call(answer), reason)] == getattr(dispatcher, answer)(*receipt)
        assert before == dispatcher.snapshot()

    @pytest.mark.parametrize("answer", ["nack", "reject", "release", "extend"])
    def test_a_stale_attempt_can_neither_delay_nor_fail_the_current_one(self, answer: str) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")
        dispatcher.release(0, "ann", 1)
        before = dispatcher.snapshot()

        stale = Ignored(0, "ann", 1, Call(answer), IgnoredReason.STALE_ATTEMPT)
        assert [stale] == getattr(dispatcher, answer)(0, "ann", 1)
        assert before == dispatcher.snapshot()

    def test_a_second_ack_is_an_ack_of_nothing(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")
        dispatcher.ack(0, "ann", 1)

        assert [Ignored(0, "ann", 1, Call.ACK, IgnoredReason.UNKNOWN_OFFSET)] == dispatcher.ack(0, "ann", 1)

    @pytest.mark.parametrize(
        ("poison", "reason"),
        [(Poison.DEAD_LETTER, IgnoredReason.DEAD_LETTERING), (Poison.BLOCK, IgnoredReason.BLOCKED)],
    )
    @pytest.mark.parametrize("answer", ["ack", "nack"])
    def test_a_message_that_was_given_up_does_not_come_back_by_a_late_answer(
        self, answer: str, poison: Poison, reason: IgnoredReason
    ) -> None:
        # Its dead letter may be half written, or somebody may be looking at it.
        dispatcher = subscription("ann", poison=poison)
        fill(dispatcher, "a1")
        dispatcher.reject(0, "ann", 1)

        assert [Ignored(0, "ann", 1, Call(answer), reason)] == getattr(dispatcher, answer)(0, "ann", 1)
        assert None is dispatcher.safe_cursor
