"""Rules are functions of a key under a name; what they are made of is checked, and what they answer too."""

from dataclasses import replace
from typing import Any

import pytest

from keyshared.config import DispatcherConfig, Poison, Rules
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.errors import ArgumentError, ConfigError
from keyshared.ring import HashRing

KEY = b"acme/7"


def raising(key: bytes) -> Any:
    raise LookupError(key)


def with_rule(rules: Rules, name: str, function: Any) -> Rules:
    return replace(rules, **{name: function})


@pytest.mark.parametrize("mark", ["", b"v1", None, 7])
def test_rules_have_a_mark_that_names_them(mark: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Rules(mark=mark)
    assert ("mark", mark) == (caught.value.parameter, caught.value.value)


@pytest.mark.parametrize("name", ["group_of", "limit_of", "latest_only"])
def test_a_rule_is_a_function_or_none(name: str) -> None:
    rules = Rules(mark="v1")
    assert getattr(rules, name) is None
    assert raising is getattr(with_rule(rules, name, raising), name)
    with pytest.raises(ConfigError, match=f"{name} is 'acme'; it must be callable with the bytes of a key, or be None"):
        with_rule(rules, name, "acme")


def offered(**functions: Any) -> KeySharedDispatcher:
    """A dispatcher with these rules that was offered one message of the key."""
    dispatcher = KeySharedDispatcher(HashRing(), rules=Rules(mark="v1", **functions))
    dispatcher.add_consumer("c1")
    dispatcher.offer(0, KEY)
    return dispatcher


def test_the_group_of_a_key_is_what_the_function_returns_and_none_is_the_group_without_a_name() -> None:
    by_tenant = offered(group_of=lambda key: key.partition(b"/")[0].decode())
    assert ["acme"] == [group.name for group in by_tenant.groups()]
    assert [""] == [group.name for group in offered(group_of=lambda _: None).groups()]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("group_of", b"acme", "group_of is b'acme'; it must be a str or None"),
        ("limit_of", 0, "limit_of is 0; it must be an int of at least 1"),
        ("limit_of", True, "limit_of is True; it must be an int of at least 1"),
        ("limit_of", None, "limit_of is None; it must be an int of at least 1"),
        ("latest_only", 1, "latest_only is 1; it must be a bool"),
    ],
)
def test_a_function_that_returns_something_else_is_a_fault_of_the_configuration(
    name: str, value: object, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        offered(**{name: lambda _: value})
    assert text == str(caught.value)


@pytest.mark.parametrize("name", ["group_of", "limit_of", "latest_only"])
def test_a_function_that_raises_is_a_fault_of_the_configuration_and_its_error_is_the_cause(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is LookupError\(b'acme/7'\); it must") as caught:
        offered(**{name: raising})
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize("name", ["group_of", "limit_of", "latest_only"])
def test_one_lane_for_all_keys_has_no_rule_of_a_key(name: str) -> None:
    config = DispatcherConfig(ordering_required=True, poison=Poison.BLOCK)
    with pytest.raises(ConfigError, match=f"have no {name} with ordering_required"):
        KeySharedDispatcher(HashRing(), config, rules=with_rule(Rules(mark="v1"), name, raising))


def test_rules_are_rules() -> None:
    with pytest.raises(ArgumentError, match="rules is 5; it must be a Rules, or None"):
        KeySharedDispatcher(HashRing(), rules=5)  # type: ignore[arg-type]  # the mistake under test
