"""Rule 22: with ``Rules(latest_only=...)`` the newer message takes the place of the older one for some keys only."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, delivered, fill, subscription

from keyshared.config import GroupLimits, RetryPolicy, Rules
from keyshared.effects import Effect, Skipped, SkipReason
from keyshared.errors import ConfigError, SnapshotError

LATER = RetryPolicy(base_delay_ms=50)


def is_state(key: bytes) -> bool:
    """A key that ends in s has states, of which the latest counts; any other has events, which all count."""
    return key.endswith(b"s")


RULES = Rules(mark="states", latest_only=is_state)


def mixed(*consumers: str, **config: Any) -> Watched:
    return subscription(*consumers, rules=RULES, **config)


def superseded(effects: list[Effect]) -> list[int]:
    return [effect.offset for effect in effects if isinstance(effect, Skipped)]


def outstanding(dispatcher: Watched) -> list[int]:
    return [message.offset for message in dispatcher.outstanding()]


def test_only_keys_whose_rule_says_so_are_superseded() -> None:
    dispatcher = mixed()
    effects = fill(dispatcher, "as", "ae", None, "as", "ae", None, "as")
    assert [0, 3] == superseded(effects)
    assert [1, 2, 4, 5, 6] == outstanding(dispatcher)
    assert [6, 1, 2, 5] == [offset for offset, _ in delivered(dispatcher.add_consumer("ann"))]


def test_what_was_delivered_is_retried_and_the_latest_follows() -> None:
    dispatcher = mixed("ann", retry=LATER)
    fill(dispatcher, "as", "as")
    dispatcher.nack(0, "ann", 1, now_ms=0)
    assert [Skipped(1, b"as", SkipReason.SUPERSEDED)] == dispatcher.offer(2, "as")
    assert [(0, "ann")] == delivered(dispatcher.handle_timeout(now_ms=100))
    assert [deliver(2, "as", "ann"), advanced(1)] == dispatcher.ack(0, "ann", 2)


def test_a_group_is_asked_beside_it() -> None:
    rules = Rules(mark="both", latest_only=is_state, group_of=lambda key: key[:1].decode())
    dispatcher = subscription("ann", rules=rules, group=GroupLimits(max_in_flight=1))
    assert [0] == [offset for offset, _ in delivered(fill(dispatcher, "as", "as", "as"))]
    assert [2] == [offset for offset, _ in delivered(dispatcher.ack(0, "ann", 1))]


def test_a_restart_asks_the_rule_again() -> None:
    dispatcher = mixed()
    fill(dispatcher, "as", "ae")
    state = json.loads(json.dumps(dispatcher.snapshot()))
    restored = Watched.restore(state, AlphabetRing(), now_ms=0, rules=RULES)
    assert [0] == superseded(fill(restored, "as", "ae", start=2))
    with pytest.raises(SnapshotError, match="the mark of the rules that are given"):
        Watched.restore(state, AlphabetRing(), now_ms=0)


@pytest.mark.parametrize("answer", [None, 1, "yes"])
def test_an_answer_that_is_no_bool_is_refused_and_changes_nothing(answer: object) -> None:
    dispatcher = subscription("ann", rules=Rules(mark="odd", latest_only=lambda _: answer))  # type: ignore[arg-type, return-value]  # the mistake under test
    before = dispatcher.snapshot()
    with pytest.raises(ConfigError, match="latest_only"):
        dispatcher.offer(0, "a")
    with pytest.raises(ConfigError, match="latest_only"):
        dispatcher.offer(0, "a", not_before_ms=50)
    with pytest.raises(ConfigError, match="latest_only"):
        dispatcher.offer_many([(0, None, None), (1, "a", None)])
    assert before == dispatcher.snapshot()
