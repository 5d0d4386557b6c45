"""Rule 3: every offset is tracked, but only a window of payloads is kept; others are read again at their turn."""

import pytest
from tests.alphabet import Watched, advanced, deliver, fill, subscription

from keyshared.dispatcher import Blocking
from keyshared.effects import (
    BlockReason,
    Load,
    Resumed,
    Spilled,
)
from keyshared.errors import WindowFullError


class TestManyKeysForAFullConsumer:
    """Waiting messages take at most half the window."""

    def test_a_payload_that_comes_too_late_for_its_consumer_goes_to_the_new_owner(self) -> None:
        dispatcher = self.with_one_load_for_ann()

        assert [] == dispatcher.remove_consumer("ann")
        assert [deliver(3, "a3", "bob", item="x")] == dispatcher.loaded(3, "x")

    def test_a_payload_is_not_handed_out_before_an_older_message_that_failed_meanwhile(self) -> None:
        dispatcher = subscription("ann", window=6, max_in_flight_per_consumer=2, max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a2", "a3", "a4", "a5", "a1")
        assert Load(5, b"a1") in dispatcher.set_limit("ann", 10)
        dispatcher.nack(0, "ann", 1)

        assert [] == dispatcher.loaded(5, "x")
        assert [
            deliver(0, "a1", "ann", 2, failures=1),
            deliver(5, "a1", "ann", item="x"),
        ] == dispatcher.handle_timeout(now_ms=1_000)

    def test_a_consumer_that_falls_silent_leaves_the_payload_in_its_lane(self) -> None:
        dispatcher = self.with_one_load_for_ann()
        dispatcher.set_inactive("ann")

        assert [] == dispatcher.loaded(3, "x")
        assert Blocking(BlockReason.CONSUMER_INACTIVE, "ann") == dispatcher.why_blocked(3)
        assert [deliver(3, "a3", "ann", item="x")] == dispatcher.set_active("ann")

    def with_one_load_for_ann(self) -> Watched:
        """Message 3 is being read again, for a consumer that has room for nothing else."""
        dispatcher = subscription("ann", "bob", window=4, max_in_flight_per_consumer=1)
        fill(dispatcher, "a0", "a1", "a2", "a3")
        dispatcher.ack(0, "ann", 1)
        dispatcher.ack(1, "ann", 1)
        assert [Load(3, b"a3"), advanced(2)] == dispatcher.ack(2, "ann", 1)
        return dispatcher


class TestPause:
    """``free_slots == 0`` is the pause, and it ends once."""

    def test_tracked_offsets_are_bounded_too(self) -> None:
        dispatcher = subscription("ann", window=2, max_tracked=3, max_loaded_per_key=1)
        assert [deliver(0, "a1", "ann"), Spilled(1), Spilled(2)] == fill(dispatcher, "a1", "a1", "a1")
        assert (0, 1) == (dispatcher.free_slots, dispatcher.stats().loaded)
        with pytest.raises(WindowFullError, match="all 3 slots"):
            dispatcher.offer(3, "a2")

        assert [Load(1, b"a1"), advanced(0), Resumed(1)] == dispatcher.ack(0, "ann", 1)


class TestAStranger:
    """Who asks for the lowest message by its offset gets it loaded beyond the window, if it is theirs."""

    @pytest.mark.parametrize("key", ["a9", None])
    def test_nothing_is_loaded_for_who_could_not_get_it(self, key: str | None) -> None:
        dispatcher = subscription(window=2)
        dispatcher.add_consumer("ann", limit=0)
        dispatcher.add_consumer("bob", filters=["b*"])
        dispatcher.offer_many([(0, "a1", None), (1, key, None)])
        dispatcher.truncate(1)
        dispatcher.offer_many([(2, "b1", None), (3, "b2", None)])
        dispatcher.set_limit("ann", 1)
        assert 1 == dispatcher.stats().starved_keys

        assert [] == dispatcher.pull("bob", 1, only=1)
        assert 2 == dispatcher.stats().loaded
        assert [Load(1, None if key is None else key.encode())] == dispatcher.pull("ann", 1, only=1)
        assert 3 == dispatcher.stats().loaded
