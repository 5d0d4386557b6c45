"""How many messages may wait before nothing more is read: the numbers of Pulsar, and what is refused."""

from typing import Any

import pytest

from keyshared.config import LookAhead, look_ahead_limit
from keyshared.config.limits import NO_LOOK_AHEAD_LIMIT
from keyshared.errors import ArgumentError, ConfigError

PULSARS = [  # KeySharedLookAheadConfigTest: per consumer, per subscription, the same unacked, consumers, expected
    (5, 100, 0, 0, 5, 25),
    (5, 100, 0, 0, 100, 100),
    (5, 0, 0, 0, 100, 500),
    (0, 6_000, 0, 0, 100, 6_000),
    (0, 0, 0, 0, 100, 2_147_483_647),
    (0, 0, 1, 10, 100, 10),
    (0, 0, 22, 0, 100, 2_200),
]


@pytest.mark.parametrize("row", PULSARS)
def test_the_limit_is_the_one_that_pulsar_computes(row: tuple[int, ...]) -> None:
    per_consumer, per_subscription, unacked, unacked_of_all, consumers, limit = row
    assert limit == look_ahead_limit(
        consumers,
        per_consumer=per_consumer,
        per_subscription=per_subscription,
        max_unacked_per_consumer=unacked,
        max_unacked_per_subscription=unacked_of_all,
    )
    if per_consumer or per_subscription:
        look_ahead = LookAhead(per_consumer=per_consumer, per_subscription=per_subscription)
        assert limit == look_ahead.limit(consumers)


def test_a_number_below_0_is_no_limit_as_0_is() -> None:
    assert 500 == look_ahead_limit(100, per_consumer=5, per_subscription=-1)
    assert 7 == look_ahead_limit(100, per_consumer=-1, per_subscription=-1, max_unacked_per_subscription=7)


def test_the_defaults_are_those_of_pulsar_4() -> None:
    limits = [LookAhead().limit(consumers) for consumers in (0, 1, 10, 11)]
    assert [0, 2_000, 20_000, 20_000] == limits


def test_no_limit_is_greater_than_the_greatest_int_of_pulsar() -> None:
    assert NO_LOOK_AHEAD_LIMIT == look_ahead_limit(1 << 40, per_consumer=1 << 40, per_subscription=0)


def test_no_limit_at_all_is_no_look_ahead() -> None:
    with pytest.raises(ConfigError, match="look_ahead=None is no limit"):
        LookAhead(per_consumer=0, per_subscription=0)


@pytest.mark.parametrize("name", ["per_consumer", "per_subscription"])
def test_a_number_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is -1; it must be an int of at least 0"):
        LookAhead(**{name: -1})
    numbers: dict[str, Any] = {"per_consumer": 1, "per_subscription": 1, name: "5"}
    with pytest.raises(ArgumentError, match=f"{name} is '5'; it must be an int"):
        look_ahead_limit(1, **numbers)


def test_nobody_can_be_connected_less_than_not_at_all() -> None:
    with pytest.raises(ArgumentError, match="consumers is -1; it must be an int of at least 0"):
        look_ahead_limit(-1, per_consumer=1, per_subscription=1)
