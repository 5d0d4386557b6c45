"""The dispatcher's configuration: every field is checked, and every error names it."""

import json
import pickle
from typing import Any

import pytest

from keyshared.config import Backoff, DispatcherConfig, DrainUnit, LookAhead, OnEvict, Poison, RetryPolicy, Unmatched
from keyshared.errors import ConfigError, SnapshotError

LIMITS = ["window", "max_tracked", "max_in_flight_per_consumer", "max_in_flight_per_key", "max_loaded_per_key"]
ORDERED: dict[str, Any] = {"ordering_required": True, "unmatched": Unmatched.HOLD, "poison": Poison.BLOCK}


def refusal(**fields: Any) -> ConfigError:  # any mistake in any field
    with pytest.raises(ConfigError) as caught:
        DispatcherConfig(**fields)
    return caught.value


def test_the_defaults_are_the_documented_ones() -> None:
    config = DispatcherConfig()
    expected = {
        "window": 10_000,
        "max_tracked": 1_000_000,
        "max_in_flight_per_consumer": 1_000,
        "max_in_flight_per_key": 1,
        "batch_per_key": 1,
        "max_in_flight": None,
        "max_loaded_per_key": 1_000,
        "ack_timeout_ms": 30_000,
        "retry": {"max_redeliveries": 5, "base_delay_ms": 1_000, "max_delay_ms": 60_000, "backoff": "exponential"},
        "poison": "DEAD_LETTER",
        "on_evict": "redeliver",
        "unmatched": "skip",
        "inactive_grace_ms": 3_000,
        "drain_timeout_ms": None,
        "ordering_required": False,
        "redrive": False,
        "unit": "key",
        "latest_only": False,
        "measure": False,
        "start": None,
        "group": {"weight": 1, "max_in_flight": None, "per_second": None, "burst": 1},
        "sessions": None,
        "tell_settled": False,
        "spill": True,
        "max_waiting_per_key": None,
        "max_waiting_per_consumer": None,
        "look_ahead": None,
        "token_bytes": None,
    }
    assert expected == config.to_json()


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "10", None])
@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_below_one_or_of_another_type_is_refused(name: str, value: object) -> None:
    error = refusal(**{name: value})
    assert (name, value, "be an int of at least 1") == (error.parameter, error.value, error.requirement)


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_may_be_as_low_as_the_others_allow(name: str) -> None:
    limits: dict[str, Any] = dict.fromkeys(LIMITS, 5) | {"max_in_flight_per_key": 1, "window": 1, name: 5}
    config = DispatcherConfig(**limits)
    assert 5 == getattr(config, name)


@pytest.mark.parametrize(("name", "least"), [("ack_timeout_ms", 1), ("inactive_grace_ms", 0), ("drain_timeout_ms", 0)])
def test_times_have_a_least_value_and_may_be_never(name: str, least: int) -> None:
    accepted: list[dict[str, Any]] = [{name: least}, {name: None}]
    assert [least, None] == [getattr(DispatcherConfig(**fields), name) for fields in accepted]
    for value in (least - 1, True, 0.5, "1"):
        error = refusal(**{name: value})
        assert (name, value) == (error.parameter, error.value)
        assert f"be an int of at least {least}, or None for never" == error.requirement


def test_fewer_tracked_than_loaded_messages_make_no_sense() -> None:
    assert "max_tracked is 9; it must be at least window, 10" == str(refusal(window=10, max_tracked=9))
    assert 10 == DispatcherConfig(window=10, max_tracked=10).max_tracked


def test_what_is_in_flight_of_a_key_is_loaded() -> None:
    assert "max_loaded_per_key is 1; it must be at least max_in_flight_per_key, 2" in str(
        refusal(max_loaded_per_key=1, max_in_flight_per_key=2)
    )
    assert 2 == DispatcherConfig(max_loaded_per_key=2, max_in_flight_per_key=2).max_loaded_per_key


@pytest.mark.parametrize(
    ("name", "value", "requirement"),
    [
        ("retry", None, "be a RetryPolicy"),
        ("retry", {}, "be a RetryPolicy"),
        ("poison", "DEAD_LETTER", "be a Poison"),
        ("on_evict", "drop", "be one of OnEvict.REDELIVER, OnEvict.DROP"),
        ("unmatched", "skip", "be one of Unmatched.SKIP, Unmatched.HOLD, Unmatched.ERROR"),
        ("ordering_required", 1, "be a bool"),
        ("redrive", 1, "be a bool"),
        ("tell_settled", 1, "be a bool"),
        ("unit", "hash", "be one of DrainUnit.KEY, DrainUnit.HASH, DrainUnit.RANGE"),
        ("look_ahead", 5, "be a LookAhead, or None for no limit"),
        ("token_bytes", 73, "be an int of at least 74, or None for no budget"),
    ],
)
def test_policies_are_values_of_their_type_and_never_text(name: str, value: object, requirement: str) -> None:
    error = refusal(**{name: value})
    assert (name, value, requirement) == (error.parameter, error.value, error.requirement)


@pytest.mark.parametrize("other", ["redrive", "latest_only"])
def test_a_token_budget_cannot_be_kept_beside_what_waits_or_is_settled_by_another_rule(other: str) -> None:
    error = refusal(token_bytes=80, **{other: True})
    assert ("token_bytes", 80) == (error.parameter, error.value)
    assert error.requirement.startswith(f"be None with {other}")


@pytest.mark.parametrize("value", [True, "0", 1.5])
def test_a_start_that_is_no_int_is_refused(value: object) -> None:
    assert "start" == refusal(start=value).parameter
    assert [-5, 2**63, None] == [DispatcherConfig(start=start).start for start in (-5, 2**63, None)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unmatched", Unmatched.SKIP),
        ("on_evict", OnEvict.DROP),
        ("poison", Poison.DROP),
        ("poison", Poison.DEAD_LETTER),
        ("poison", Poison.QUARANTINE),
    ],
)
def test_ordering_required_refuses_policies_that_let_later_messages_overtake(
    name: str, value: Any
) -> None:  # a member of three types
    error = refusal(**(ORDERED | {name: value}))
    assert (name, value) == (error.parameter, error.value)
    assert "with ordering_required" in error.requirement
    assert value == getattr(DispatcherConfig(**{name: value}), name)


@pytest.mark.parametrize("unit", [DrainUnit.HASH, DrainUnit.RANGE])
def test_ordering_required_has_one_lane_and_nothing_larger_to_drain(unit: DrainUnit) -> None:
    error = refusal(**ORDERED, unit=unit)
    assert ("unit", unit) == (error.parameter, error.value)
    assert DrainUnit.KEY is DispatcherConfig(**ORDERED, unit=DrainUnit.KEY).unit


@pytest.mark.parametrize("poison", [Poison.BLOCK, Poison.BLOCK_AND_DEAD_LETTER])
@pytest.mark.parametrize("unmatched", [Unmatched.HOLD, Unmatched.ERROR])
def test_ordering_required_goes_with_the_policies_that_wait(poison: Poison, unmatched: Unmatched) -> None:
    assert DispatcherConfig(ordering_required=True, poison=poison, unmatched=unmatched).ordering_required


def test_a_configuration_is_a_value() -> None:
    assert DispatcherConfig() == DispatcherConfig(window=10_000)
    assert DispatcherConfig() == pickle.loads(pickle.dumps(DispatcherConfig()))  # noqa: S301  # our own bytes
    with pytest.raises(AttributeError):
        DispatcherConfig().window = 1  # type: ignore[misc]  # the mistake under test
    with pytest.raises(TypeError):
        DispatcherConfig(5)  # type: ignore[call-arg]  # the mistake under test: fields are named


@pytest.mark.parametrize(
    "config",
    [
        DispatcherConfig(),
        DispatcherConfig(**ORDERED, start=17, ack_timeout_ms=None, inactive_grace_ms=None, drain_timeout_ms=0),
        DispatcherConfig(
            on_evict=OnEvict.DROP,
            unmatched=Unmatched.ERROR,
            poison=Poison.QUARANTINE,
            unit=DrainUnit.RANGE,
            retry=RetryPolicy(max_redeliveries=None, backoff=Backoff.FIXED),
        ),
        DispatcherConfig(look_ahead=LookAhead(per_consumer=7), token_bytes=80),
    ],
)
def test_the_plain_form_survives_json(config: DispatcherConfig) -> None:
    assert config == DispatcherConfig.from_json(json.loads(json.dumps(config.to_json())))


@pytest.mark.parametrize("data", [None, [], "config", {}, {"window": 1}, DispatcherConfig().to_json() | {"extra": 1}])
def test_a_plain_form_with_other_fields_is_refused(data: object) -> None:
    with pytest.raises(SnapshotError, match=r"config is .* exactly the fields window, max_tracked"):
        DispatcherConfig.from_json(data)


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ({"window": "10"}, "window"),
        ({"window": True}, "window"),
        ({"max_tracked": 1}, "max_tracked"),
        ({"poison": "drop"}, "poison"),
        ({"poison": None}, "poison"),
        ({"on_evict": "keep"}, "on_evict"),
        ({"unmatched": ["skip"]}, "unmatched"),
        ({"unit": "slot"}, "unit"),
        ({"look_ahead": {"per_consumer": 1}}, "config.look_ahead"),
        ({"token_bytes": "80"}, "token_bytes"),
        ({"ordering_required": True}, "unmatched"),
        ({"retry": None}, "config.retry"),
        ({"retry": {"backoff": "fixed"}}, "config.retry"),
        (
            {"retry": {"max_redeliveries": 1, "base_delay_ms": -1, "max_delay_ms": 1, "backoff": "fixed"}},
            "base_delay_ms",
        ),
        ({"retry": {"max_redeliveries": 1, "base_delay_ms": 1, "max_delay_ms": 1, "backoff": "no"}}, "backoff"),
    ],
)
def test_a_forged_plain_form_raises_one_error_that_names_the_field(change: dict[str, object], parameter: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        DispatcherConfig.from_json(DispatcherConfig().to_json() | change)
    assert caught.value.parameter.endswith(parameter)


def test_reading_a_plain_form_leaves_it_as_it_was() -> None:
    data = DispatcherConfig().to_json()
    DispatcherConfig.from_json(data)
    assert DispatcherConfig().to_json() == data


@pytest.mark.parametrize("name", ["max_waiting_per_key", "max_waiting_per_consumer"])
def test_what_waits_is_limited_only_where_nothing_is_spilled(name: str) -> None:
    limited: dict[str, Any] = {name: 3}
    assert f"{name} is 3; it must be None unless spill is False" in str(refusal(**limited))
    assert 3 == getattr(DispatcherConfig(spill=False, **limited), name)
    for value in (0, True, 1.5):
        error = refusal(spill=False, **{name: value})
        assert (name, value) == (error.parameter, error.value)
    assert "spill is None" in str(refusal(spill=None))


def test_without_spilling_the_limits_of_what_is_spilled_count_for_nothing() -> None:
    config = DispatcherConfig(spill=False, window=10, max_tracked=1, max_loaded_per_key=1, max_in_flight_per_key=2)
    assert config == DispatcherConfig.from_json(config.to_json())
