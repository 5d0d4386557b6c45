"""Rule 6: a name is one session, from joining to leaving or eviction."""

from tests.alphabet import advanced, deliver, fill, subscription

from keyshared.config import OnEvict
from keyshared.dispatcher import Blocking, ConsumerState
from keyshared.effects import (
    BlockReason,
    Call,
    Dropped,
    DropReason,
    Evicted,
    Ignored,
    IgnoredReason,
    Released,
    ReleaseReason,
)


class TestLeaving:
    """``remove_consumer``, at once or drained."""

    def test_a_drained_consumer_finishes_what_it_holds_and_gets_nothing_more(self) -> None:
        dispatcher = subscription("ann", "bob", max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a1")

        assert [] == dispatcher.remove_consumer("ann", drain_ms=500)
        assert ConsumerState.DRAINING is dispatcher.stats().consumers["ann"].state
        assert [deliver(2, "a2", "bob")] == fill(dispatcher, "a2", "a1", start=2)
        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert [deliver(3, "a1", "bob"), advanced(1)] == dispatcher.ack(1, "ann", 1)
        assert ["bob"] == list(dispatcher.stats().consumers)


class TestInactive:
    """The grace period, and its end."""

    def test_it_keeps_its_keys_gets_nothing_and_its_acks_count(self) -> None:
        dispatcher = subscription("ann", "bob")
        fill(dispatcher, "a1")

        assert [] == dispatcher.set_inactive("ann")
        assert [] == fill(dispatcher, "a2", "a1", start=1)
        assert Blocking(BlockReason.CONSUMER_INACTIVE, "ann") == dispatcher.why_blocked(1)
        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert [deliver(1, "a2", "ann"), deliver(2, "a1", "ann")] == dispatcher.set_active("ann", resumed=True)

    def test_its_ack_timeouts_go_on(self) -> None:
        dispatcher = subscription("ann", ack_timeout_ms=100, inactive_grace_ms=None)
        fill(dispatcher, "a1")
        dispatcher.set_inactive("ann")

        assert [Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, 1100)] == dispatcher.handle_timeout(now_ms=100)

    def test_at_most_once_drops_what_it_held_and_nothing_else(self) -> None:
        dispatcher = subscription("ann", "bob", inactive_grace_ms=100, on_evict=OnEvict.DROP)
        fill(dispatcher, "a1", "a1")
        dispatcher.set_inactive("ann")

        assert [
            Evicted("ann"),
            Released(0, "ann", 1, ReleaseReason.EVICTED, 1, None),
            Dropped(0, b"a1", DropReason.EVICTED),
            deliver(1, "a1", "bob"),
            advanced(0),
        ] == dispatcher.handle_timeout(now_ms=100)

    def test_an_evicted_name_can_join_again_and_its_old_acks_are_fenced(self) -> None:
        dispatcher = subscription("ann", inactive_grace_ms=100)
        fill(dispatcher, "a1")
        dispatcher.set_inactive("ann")
        dispatcher.handle_timeout(now_ms=100)

        assert [deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.add_consumer("ann")
        stale = IgnoredReason.STALE_ATTEMPT
        assert [Ignored(0, "ann", 1, Call.NACK, stale)] == dispatcher.nack(0, "ann", 1)
