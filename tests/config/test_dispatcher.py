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
        "max_in_flight_per_consumer": 50,
        "max_in_flight_per_key": 1,
        "batch_per_key": 1,
        "max_in_flight": None,
        "max_loaded_per_key": 1_000,
        "ack_timeout_ms": 30_000,
        "retry": {"max_redeliveries": 5, "base_delay_ms": 1_000, "max_delay_ms": 60_000, "backoff": "exponential"},
        "poison": "dead_letter",
        "archive_blocked": False,
        "quarantine": False,
        "on_evict": "redeliver",
        "unmatched": "hold",
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
        "look_ahead": None,
        "max_ack_holes": None,
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
        ("poison", "dead_letter", "be one of Poison.DROP, Poison.DEAD_LETTER, Poison.BLOCK"),
        ("on_evict", "drop", "be one of OnEvict.REDELIVER, OnEvict.DROP"),
        ("unmatched", "skip", "be one of Unmatched.HOLD, Unmatched.SKIP, Unmatched.ERROR"),
        ("ordering_required", 1, "be a bool"),
        ("redrive", 1, "be a bool"),
        ("tell_settled", 1, "be a bool"),
        ("unit", "hash", "be one of DrainUnit.KEY, DrainUnit.HASH, DrainUnit.RANGE"),
        ("look_ahead", 5, "be a LookAhead, or None"),
        ("sessions", 5, "be a KeySessions, or None"),
        ("group", None, "be a GroupLimits"),
        ("max_ack_holes", -1, "be an int of at least 0, or None for no bound"),
        ("window", 1 << 63, "be an int of at most 63 bits"),
    ],
)
def test_policies_are_values_of_their_type_and_never_text(name: str, value: object, requirement: str) -> None:
    error = refusal(**{name: value})
    assert (name, value, requirement) == (error.parameter, error.value, error.requirement)


@pytest.mark.parametrize("other", ["redrive", "latest_only", "max_in_flight"])
def test_a_bound_on_ack_holes_is_refused_where_the_lowest_message_could_wait_for_another_one(other: str) -> None:
    error = refusal(max_ack_holes=80, **{other: True if other != "max_in_flight" else 3})
    assert ("max_ack_holes", 80) == (error.parameter, error.value)
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


@pytest.mark.parametrize("archive_blocked", [False, True])
@pytest.mark.parametrize("unmatched", [Unmatched.HOLD, Unmatched.ERROR])
def test_ordering_required_goes_with_the_policies_that_wait(archive_blocked: bool, unmatched: Unmatched) -> None:
    config = DispatcherConfig(**ORDERED | {"unmatched": unmatched}, archive_blocked=archive_blocked)
    assert config.ordering_required


@pytest.mark.parametrize(
    ("switch", "poison"),
    [("quarantine", Poison.BLOCK), ("quarantine", Poison.DROP), ("archive_blocked", Poison.DEAD_LETTER)],
)
def test_a_switch_of_another_poison_policy_is_refused(switch: str, poison: Poison) -> None:
    error = refusal(poison=poison, **{switch: True})
    assert (switch, True) == (error.parameter, error.value)


def test_batches_are_refused_where_there_could_never_be_two_messages() -> None:
    assert "batch_per_key" == refusal(batch_per_key=2, max_in_flight_per_key=2).parameter
    assert "batch_per_key" == refusal(batch_per_key=2, latest_only=True).parameter
    assert "latest_only" == refusal(**ORDERED, latest_only=True).parameter


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
            quarantine=True,
            unit=DrainUnit.RANGE,
            retry=RetryPolicy(max_redeliveries=None, backoff=Backoff.FIXED),
        ),
        DispatcherConfig(look_ahead=LookAhead(per_consumer=7), max_ack_holes=80),
    ],
)
def test_the_plain_form_survives_json(config: DispatcherConfig) -> None:
    assert config == DispatcherConfig.from_json(json.loads(json.dumps(config.to_json())))


@pytest.mark.parametrize("data", [None, [], "config", DispatcherConfig().to_json() | {"extra": 1}])
def test_a_plain_form_with_unknown_fields_is_refused(data: object) -> None:
    with pytest.raises(SnapshotError, match=r"config is .* fields of window, max_tracked"):
        DispatcherConfig.from_json(data)


def test_absent_fields_take_their_defaults() -> None:
    assert DispatcherConfig() == DispatcherConfig.from_json({})
    read = DispatcherConfig.from_json({"window": 5, "retry": {"max_redeliveries": 2}, "look_ahead": {}})
    assert DispatcherConfig(window=5, retry=RetryPolicy(max_redeliveries=2), look_ahead=LookAhead()) == read


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ({"window": "10"}, "window"),
        ({"window": True}, "window"),
        ({"max_tracked": 1}, "max_tracked"),
        ({"poison": "DROP"}, "poison"),
        ({"poison": None}, "poison"),
        ({"on_evict": "keep"}, "on_evict"),
        ({"unmatched": ["skip"]}, "unmatched"),
        ({"unit": "slot"}, "unit"),
        ({"look_ahead": {"consumers": 1}}, "config.look_ahead"),
        ({"look_ahead": 7}, "config.look_ahead"),
        ({"max_ack_holes": "80"}, "max_ack_holes"),
        ({"ordering_required": True}, "poison"),
        ({"retry": None}, "retry"),
        ({"retry": {"jitter": "fixed"}}, "config.retry"),
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


def test_what_waits_is_limited_only_where_nothing_is_spilled() -> None:
    name = "max_waiting_per_key"
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
