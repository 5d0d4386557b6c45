"""Rule 16: what is given back for later holds its key until then, and a reason stays with its message."""

import json
from typing import Any

from tests.alphabet import AlphabetRing, Watched, deliver, delivered, fill, subscription, then

from keyshared.config import Poison, RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.effects import Blocked, BlockReason, DeadLetter, Released, ReleaseReason, Settled, SettleReason


def postponed(**config: Any) -> Watched:
    """Offset 0 waits until 100, offset 1 waits behind it, and offset 2 is of another key."""
    dispatcher = subscription("ann", **config)
    fill(dispatcher, "a1", "a1", "a2")
    assert [Released(0, "ann", 1, ReleaseReason.RELEASED, 0, 100)] == dispatcher.release(0, "ann", 1, delay_ms=100)
    return dispatcher


def restored(original: Watched, **changed: Any) -> Watched:
    state: Any = json.loads(json.dumps(original.snapshot()))
    for name, value in changed.items():
        state["messages"][0][FIELDS[name]] = value
    return Watched.restore(state, AlphabetRing(), original.config, now_ms=0)


FIELDS = {"state": 3, "remaining_ms": 8, "ended": 10, "postponed": 11, "reason": 12}


def test_only_its_own_key_waits_and_until_then() -> None:
    dispatcher = postponed()

    assert Blocking(BlockReason.POSTPONED) == dispatcher.why_blocked(0)
    assert Blocking(BlockReason.OLDER_WAITS, behind=0) == dispatcher.why_blocked(1)
    assert None is dispatcher.why_blocked(2)
    assert (100, 1) == (dispatcher.next_deadline_ms(), dispatcher.stats().delayed)
    assert [] == dispatcher.handle_timeout(now_ms=99)
    assert [deliver(0, "a1", "ann", 2)] == dispatcher.handle_timeout(now_ms=100)


def test_the_longest_delay_of_a_retry_bounds_it_not() -> None:
    dispatcher = postponed(retry=RetryPolicy(base_delay_ms=0, max_delay_ms=0))

    assert 100 == dispatcher.next_deadline_ms()


def test_without_a_delay_it_goes_out_again_at_once() -> None:
    dispatcher = subscription("ann")
    fill(dispatcher, "a1")

    assert [deliver(0, "a1", "ann", 2)] == then(dispatcher.release(0, "ann", 1))


def test_a_late_ack_settles_it_meanwhile() -> None:
    assert [(1, "ann")] == delivered(postponed().ack(0, "ann", 1))


def test_an_ack_that_was_noted_wins_over_the_delay() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=10, retry=RetryPolicy(base_delay_ms=0))
    fill(dispatcher, "a1")
    dispatcher.handle_timeout(now_ms=10)
    dispatcher.ack(0, "ann", 1)

    assert Settled(0, b"a1", SettleReason.LATE_ACK) == then(dispatcher.release(0, "ann", 2, delay_ms=100))[0]


def test_a_retry_after_it_is_a_retry() -> None:
    dispatcher = postponed(ack_timeout_ms=None, retry=RetryPolicy(base_delay_ms=7))
    dispatcher.handle_timeout(now_ms=100)
    dispatcher.nack(0, "ann", 2)

    assert Blocking(BlockReason.RETRY_WAIT) == dispatcher.why_blocked(0)


def test_a_restart_knows_how_long_it_still_waits() -> None:
    again = restored(postponed())

    assert Blocking(BlockReason.POSTPONED) == again.why_blocked(0)
    assert [(0, "ann")] == delivered(again.handle_timeout(now_ms=100))


class TestTheReason:
    """What the last failure said that named one."""

    def failed(self, **config: Any) -> Watched:
        dispatcher = subscription("ann", retry=RetryPolicy(max_redeliveries=1, base_delay_ms=0), **config)
        fill(dispatcher, "a1")
        dispatcher.nack(0, "ann", 1, reason="refused")
        return dispatcher

    def test_a_failure_without_one_keeps_it(self) -> None:
        assert [DeadLetter(0, b"a1", 2, 2, None, "refused")] == then(self.failed().nack(0, "ann", 2))

    def test_a_timeout_keeps_it(self) -> None:
        assert DeadLetter(0, b"a1", 2, 2, None, "refused") == self.failed().handle_timeout(now_ms=30_000)[1]

    def test_the_last_one_counts(self) -> None:
        assert [Blocked(0, b"a1", 2, "gone")] == then(
            self.failed(poison=Poison.BLOCK).reject(0, "ann", 2, reason="gone")
        )

    def test_it_stays_with_a_message_that_is_tried_again(self) -> None:
        dispatcher = self.failed(poison=Poison.BLOCK)
        dispatcher.nack(0, "ann", 2)
        dispatcher.unblock("a1")

        described = dispatcher.describe(0)
        assert described is not None
        assert "refused" == described.reason

    def test_it_does_not_pass_to_what_follows_into_quarantine(self) -> None:
        dispatcher = self.failed(quarantine=True)
        dispatcher.offer(1, "a1")
        dispatcher.nack(0, "ann", 2)

        assert DeadLetter(1, b"a1", 0, 0, None) in dispatcher.dead_lettered(0)

    def test_a_restart_knows_it(self) -> None:
        again = restored(self.failed())

        assert [DeadLetter(0, b"a1", 2, 2, None, "refused")] == then(again.nack(0, "ann", 2))

    def test_one_of_the_greatest_length_is_taken_and_an_empty_one(self) -> None:
        for reason in ("x" * 500, ""):
            dispatcher = self.failed()
            assert DeadLetter(0, b"a1", 2, 2, None, reason) in dispatcher.reject(0, "ann", 2, reason=reason)
