"""Rule 18 (a): at most ``max_in_flight`` deliveries are open at once, at all consumers together."""

import json

import pytest
from tests.alphabet import Watched, delivered, fill, subscription

from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.dispatcher import Blocking, StoredLetter
from keyshared.effects import BlockReason, Spilled
from keyshared.errors import ConfigError


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3"])
def test_a_limit_is_at_least_one(value: object) -> None:
    with pytest.raises(ConfigError, match="max_in_flight is"):
        DispatcherConfig(max_in_flight=value)  # type: ignore[arg-type]  # the mistake under test


def test_a_retry_counts_as_any_delivery() -> None:
    dispatcher = subscription("ann", max_in_flight=1, retry=RetryPolicy(base_delay_ms=0))
    fill(dispatcher, "a1", "a2")
    assert [(1, "ann")] == delivered(dispatcher.nack(0, "ann", 1))


def test_several_deliveries_that_end_at_once_are_followed_by_whoever_has_room() -> None:
    dispatcher = subscription(max_in_flight=2, ack_timeout_ms=10)
    dispatcher.add_consumer("ann", filters=["a*"])
    for name in ("bob", "cat"):
        dispatcher.add_consumer(name, limit=1)
    fill(dispatcher, "a1", "a2", None, None)
    assert [(2, "bob"), (3, "cat")] == delivered(dispatcher.handle_timeout(now_ms=10))


def test_a_restart_keeps_who_is_served_next_and_a_higher_limit_counts_at_once() -> None:
    dispatcher = subscription("ann", "bob", "cat", max_in_flight=1)
    fill(dispatcher, "a1", "c1", "b1", "a2")
    state = json.loads(json.dumps(dispatcher.snapshot()))
    for most, opened, expected in ((1, [0], [1]), (2, [0, 1], [2])):
        again = Watched.restore(state, dispatcher.placement, DispatcherConfig(max_in_flight=most), now_ms=0)
        assert opened == sorted(each.offset for each in again.in_flight())
        effects = again.ack(0, "ann", 1)
        assert expected == sorted(offset for offset, _ in delivered(effects))


@pytest.mark.parametrize("key", ["d1", None])
def test_a_slot_of_the_window_is_named_before_room_in_the_subscription(key: str | None) -> None:
    dispatcher = subscription("ann", window=4, max_in_flight=1, redrive=True, start=0)
    fill(dispatcher, "a1", "b1", "c1", start=10)
    assert [Spilled(13)] == dispatcher.offer(13, key)
    assert Blocking(BlockReason.SUBSCRIPTION_FULL) == dispatcher.why_blocked(13)
    dispatcher.redrive("x1", [StoredLetter(-5, 1)])  # takes the last slot
    assert 0 == dispatcher.free_slots
    assert Blocking(BlockReason.WINDOW_FULL) == dispatcher.why_blocked(13)
    assert Blocking(BlockReason.SUBSCRIPTION_FULL) == dispatcher.why_blocked(12), "its payload is at hand"
