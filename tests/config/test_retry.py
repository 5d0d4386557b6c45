"""Retry policies are data: what they return, and what they refuse."""

import json
from pathlib import Path

import pytest

from keyshared.config import Backoff, RetryPolicy
from keyshared.errors import ArgumentError, ConfigError

ROWS = json.loads((Path(__file__).parents[1] / "conformance" / "data" / "danube_retry.json").read_text("utf-8"))["rows"]


def test_every_row_that_danube_answers_is_answered_the_same() -> None:
    assert 245 == len(ROWS)
    for row in ROWS:
        policy = RetryPolicy(
            max_redeliveries=row["max_redelivery"],
            base_delay_ms=row["base"],
            max_delay_ms=row["max"],
            backoff=Backoff(row["strategy"]),
        )
        expected = None if row["result"] == "exhausted" else row["result"]
        assert expected == policy.delay_ms(row["attempts"], row["requested"]), row


def test_the_default_policy_doubles_from_a_second_and_gives_up_after_five_redeliveries() -> None:
    policy = RetryPolicy()
    assert [1_000, 2_000, 4_000, 8_000, 16_000, None] == [policy.delay_ms(failures) for failures in range(1, 7)]


def test_a_fixed_delay_does_not_grow() -> None:
    policy = RetryPolicy(base_delay_ms=7, backoff=Backoff.FIXED)
    assert [7, 7, 7] == [policy.delay_ms(failures) for failures in (1, 3, 5)]


def test_without_a_limit_a_message_is_never_exhausted_and_the_delay_stays_capped() -> None:
    policy = RetryPolicy(max_redeliveries=None)
    assert [60_000, 60_000] == [policy.delay_ms(failures) for failures in (100, 10**9)]


def test_the_doubling_stops_at_two_to_the_63() -> None:
    policy = RetryPolicy(max_redeliveries=None, base_delay_ms=1, max_delay_ms=2**63 - 1)
    assert [2**62, 2**63 - 1, 2**63 - 1, 2**63 - 1] == [policy.delay_ms(failures) for failures in (63, 64, 65, 10_000)]


def test_no_redelivery_at_all_exhausts_at_the_first_failure() -> None:
    assert None is RetryPolicy(max_redeliveries=0).delay_ms(1)


def test_a_requested_delay_lengthens_but_never_shortens_and_never_passes_the_cap() -> None:
    policy = RetryPolicy(base_delay_ms=1_000, max_delay_ms=5_000)
    assert [1_000, 1_000, 2_500, 5_000] == [policy.delay_ms(1, requested) for requested in (0, 999, 2_500, 10**9)]


def test_an_exhausted_message_stays_exhausted_whatever_delay_is_requested() -> None:
    assert None is RetryPolicy(max_redeliveries=1).delay_ms(2, 10)


def test_a_cap_below_the_base_wins() -> None:
    assert 10 == RetryPolicy(base_delay_ms=1_000, max_delay_ms=10).delay_ms(1)


def test_zero_delays_mean_at_once() -> None:
    assert 0 == RetryPolicy(base_delay_ms=0).delay_ms(4)


@pytest.mark.parametrize("value", [-1, True, 1.5, "3"])
@pytest.mark.parametrize("parameter", ["max_redeliveries", "base_delay_ms", "max_delay_ms"])
def test_a_number_that_is_no_count_is_refused(parameter: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        RetryPolicy(**{parameter: value})  # type: ignore[arg-type]  # the mistake under test
    assert (parameter, value) == (caught.value.parameter, caught.value.value)


@pytest.mark.parametrize("parameter", ["base_delay_ms", "max_delay_ms"])
def test_only_the_number_of_redeliveries_may_be_unlimited(parameter: str) -> None:
    with pytest.raises(ConfigError, match=parameter):
        RetryPolicy(**{parameter: None})  # type: ignore[arg-type]  # the mistake under test


def test_a_backoff_given_as_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"backoff is 'fixed'; it must be one of Backoff\.FIXED, Backoff\.EXP"):
        RetryPolicy(backoff="fixed")  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize(
    ("failures", "requested"), [(-1, None), (True, None), (1.0, None), (1, -1), (1, "5"), (1, True)]
)
def test_a_question_that_makes_no_sense_is_refused(failures: object, requested: object) -> None:
    with pytest.raises(ArgumentError, match=r"failures|requested_ms"):
        RetryPolicy().delay_ms(failures, requested)  # type: ignore[arg-type]  # the mistake under test


def test_a_policy_is_a_value() -> None:
    assert RetryPolicy() == RetryPolicy(max_redeliveries=5)
    assert 1 == len({RetryPolicy(), RetryPolicy()})
    with pytest.raises(AttributeError):
        RetryPolicy().max_redeliveries = 1  # type: ignore[misc]  # the mistake under test
