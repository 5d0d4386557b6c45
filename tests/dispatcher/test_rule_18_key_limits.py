"""Rule 18: with ``Rules(limit_of=...)`` each key may have as many deliveries open as its rule says."""

import json
from typing import Any

import pytest
from tests.alphabet import Watched, delivered, fill, subscription

from keyshared.config import DispatcherConfig, GroupLimits, Rules
from keyshared.dispatcher import Blocking, KeySharedDispatcher
from keyshared.effects import BlockReason
from keyshared.errors import ConfigError, SnapshotError


def digit(key: bytes) -> int:
    """The limit of a key is its last character."""
    return int(key[-1:])


RULES = Rules(mark="last digit", limit_of=digit)


def limited(*consumers: str, **config: Any) -> Watched:
    return subscription(*consumers, rules=RULES, **config)


def again(dispatcher: KeySharedDispatcher, *, rules: Rules | None = RULES, **config: Any) -> Watched:
    """What a restart makes of it."""
    state = json.loads(json.dumps(dispatcher.snapshot()))
    new = Watched.restore(state, dispatcher.placement, DispatcherConfig(**config), now_ms=0, rules=rules)
    assert state == new.snapshot()
    return new


class TestWhatItMeets:
    """A rule of a key beside other verbs."""

    def test_a_closed_group_holds_a_key_that_is_below_its_limit(self) -> None:
        rules = Rules(mark="both", limit_of=digit, group_of=lambda _: "all")
        dispatcher = subscription("ann", rules=rules, group=GroupLimits(max_in_flight=1))
        fill(dispatcher, "a2", "a2")
        assert Blocking(BlockReason.GROUP_FULL, group="all") == dispatcher.why_blocked(1)
        assert [(1, "ann")] == delivered(dispatcher.ack(0, "ann", 1))

    def test_a_full_token_lets_only_the_lowest_go_whatever_the_limit(self) -> None:
        dispatcher = limited("ann", max_ack_holes=20, max_in_flight_per_consumer=100)
        fill(dispatcher, "a2", *(f"a{number}1" for number in range(1, 60)))
        for offset in range(2, 60, 2):
            dispatcher.ack(offset, "ann", 1)
        dispatcher.offer(60, "a2")
        assert Blocking(BlockReason.ACK_HOLES, behind=0) == dispatcher.why_blocked(60)
        dispatcher.nack(0, "ann", 1, now_ms=0)
        assert [(0, "ann")] == delivered(dispatcher.handle_timeout(now_ms=60_000))


class TestWhatIsRefused:
    """Whatever has no answer changes nothing."""

    def test_a_function_that_raises_is_named(self) -> None:
        dispatcher = limited("ann")
        with pytest.raises(ConfigError, match="limit_of is ValueError") as caught:
            dispatcher.offer(0, "none")
        assert isinstance(caught.value.__cause__, ValueError)
        assert [(0, "ann")] == delivered(dispatcher.offer(0, "a1"))


class TestAnotherLife:
    """A snapshot has the mark; the function is asked again."""

    @pytest.mark.parametrize("rules", [None, Rules(mark="another", limit_of=digit)])
    def test_rules_of_another_mark_are_refused(self, rules: Rules | None) -> None:
        with pytest.raises(SnapshotError, match="the mark of the rules that are given"):
            again(limited("ann"), rules=rules)

    @pytest.mark.parametrize("config", [{}, {"batch_per_key": 5}])
    def test_more_open_deliveries_than_the_rule_allows_are_refused(self, config: dict[str, Any]) -> None:
        with pytest.raises(
            SnapshotError, match="never had more open than its limit, see max_in_flight_per_key, batch_per_key and"
        ):
            again(limited_with_three_open(), rules=Rules(mark=RULES.mark, limit_of=lambda _: 2), **config)


def limited_with_three_open() -> Watched:
    dispatcher = limited("ann")
    fill(dispatcher, "a3", "a3", "a3", "a3")
    assert [0, 1, 2] == [delivery.offset for delivery in dispatcher.in_flight()]
    return dispatcher
