"""Rule 10: what becomes of a message that is given up, and of those behind it, which are never thrown away."""

from typing import Any

from tests.alphabet import Watched, advanced, deliver, fill, subscription

from keyshared.config import Poison, RetryPolicy
from keyshared.effects import (
    Call,
    DeadLetter,
    Ignored,
    IgnoredReason,
)


def poisoned(poison: Poison = Poison.DEAD_LETTER, **config: Any) -> Watched:
    """One failure is too many; 0, 1 and 3 are of key a1, 2 of a2."""
    dispatcher = subscription("ann", **{"poison": poison, "retry": RetryPolicy(max_redeliveries=0), **config})
    fill(dispatcher, "a1", "a1", "a2", "a1")
    return dispatcher


class TestBlock:
    """Kept, and the key with it, until somebody decides."""

    def test_unblocked_it_is_delivered_again_before_everything_newer(self) -> None:
        dispatcher = poisoned(Poison.BLOCK)
        dispatcher.nack(0, "ann", 1)

        assert [deliver(0, "a1", "ann", 2)] == dispatcher.unblock("a1")
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 2)

    def test_there_is_nothing_to_unblock_or_park_where_nothing_is_blocked(self) -> None:
        dispatcher = poisoned(Poison.BLOCK)
        before = dispatcher.snapshot()

        assert ([], []) == (dispatcher.unblock("a1"), dispatcher.unblock("never seen"))
        assert [Ignored(0, None, None, Call.PARK, IgnoredReason.NOT_BLOCKED)] == dispatcher.park(0)
        assert [Ignored(9, None, None, Call.PARK, IgnoredReason.UNKNOWN_OFFSET)] == dispatcher.park(9)
        assert before == dispatcher.snapshot()


class TestQuarantine:
    """The dead letters own the key: everything of it goes there, in order, one at a time."""

    def test_unblock_lets_go_what_waited_for_the_quarantine(self) -> None:
        dispatcher = poisoned(quarantine=True, max_in_flight_per_key=2)
        dispatcher.nack(0, "ann", 1)

        assert [deliver(0, "a1", "ann", 2)] == dispatcher.unblock("a1")

    def test_unblock_leaves_the_failures_of_what_waits_for_its_retry(self) -> None:
        retry = RetryPolicy(max_redeliveries=1, base_delay_ms=5)
        dispatcher = poisoned(quarantine=True, max_in_flight_per_key=2, retry=retry)
        dispatcher.nack(1, "ann", 1, now_ms=0)
        dispatcher.reject(0, "ann", 1, now_ms=0)

        assert [] == dispatcher.unblock("a1", now_ms=1)
        dispatcher.dead_lettered(0, now_ms=1)
        assert deliver(1, "a1", "ann", 2, failures=1) in dispatcher.handle_timeout(now_ms=5)

    def test_it_needs_no_consumer(self) -> None:
        dispatcher = poisoned(quarantine=True)
        dispatcher.nack(0, "ann", 1)
        dispatcher.remove_consumer("ann")

        assert [DeadLetter(1, b"a1", 0, 0, None), advanced(0)] == dispatcher.dead_lettered(0)
