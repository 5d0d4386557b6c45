"""Rule 16: what is given back for later holds its key until then, and a reason stays with its message."""

import json
from typing import Any

from tests.alphabet import AlphabetRing, Watched, deliver, delivered, fill, subscription, then

from keyshared.config import Poison, RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason, DeadLetter, Released, ReleaseReason, Settled, SettleReason


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


def test_a_late_ack_settles_it_meanwhile() -> None:
    assert [(1, "ann")] == delivered(postponed().ack(0, "ann", 1))


def test_an_ack_that_was_noted_wins_over_the_delay() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=10, retry=RetryPolicy(base_delay_ms=0))
    fill(dispatcher, "a1")
    dispatcher.handle_timeout(now_ms=10)
    dispatcher.ack(0, "ann", 1)

    assert Settled(0, b"a1", SettleReason.LATE_ACK) == then(dispatcher.release(0, "ann", 2, delay_ms=100))[0]


class TestTheReason:
    """What the last failure said that named one."""

    def failed(self, **config: Any) -> Watched:
        dispatcher = subscription("ann", retry=RetryPolicy(max_redeliveries=1, base_delay_ms=0), **config)
        fill(dispatcher, "a1")
        dispatcher.nack(0, "ann", 1, reason="refused")
        return dispatcher

    def test_it_stays_with_a_message_that_is_tried_again(self) -> None:
        dispatcher = self.failed(poison=Poison.BLOCK)
        dispatcher.nack(0, "ann", 2)
        dispatcher.unblock("a1")

        described = dispatcher.describe(0)
        assert described is not None
        assert "refused" == described.reason

    def test_a_restart_knows_it(self) -> None:
        again = restored(self.failed())

        assert [DeadLetter(0, b"a1", 2, 2, None, "refused")] == then(again.nack(0, "ann", 2))
