"""Rules are functions of a key under a name; what they are made of is checked, and what they answer too."""

from dataclasses import replace
from typing import Any

import pytest

from keyshared._dispatch.answers import group_answer, latest_only_answer, limit_answer
from keyshared.config import Rules
from keyshared.errors import ConfigError

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


def test_the_group_of_a_key_is_what_the_function_answers_and_none_is_the_group_without_a_name() -> None:
    assert "acme" == group_answer(lambda key: key.partition(b"/")[0].decode(), KEY)
    assert "" == group_answer(lambda _: None, KEY)


def test_the_limit_of_a_key_is_what_the_function_answers() -> None:
    assert len(KEY) == limit_answer(len, KEY)


def test_whether_only_the_latest_counts_is_what_the_function_answers() -> None:
    assert latest_only_answer(lambda key: key.startswith(b"acme"), KEY)


@pytest.mark.parametrize(
    ("ask", "answer", "text"),
    [
        (group_answer, b"acme", "group_of is b'acme'; it must be a str or None"),
        (limit_answer, 0, "limit_of is 0; it must be an int of at least 1"),
        (limit_answer, True, "limit_of is True; it must be an int of at least 1"),
        (limit_answer, None, "limit_of is None; it must be an int of at least 1"),
        (latest_only_answer, 1, "latest_only is 1; it must be a bool"),
    ],
)
def test_a_function_that_answers_with_something_else_is_a_fault_of_the_configuration(
    ask: Any, answer: object, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(lambda _: answer, KEY)
    assert text == str(caught.value)


@pytest.mark.parametrize("ask", [group_answer, limit_answer, latest_only_answer])
def test_a_function_that_raises_is_a_fault_of_the_configuration_and_its_error_is_the_cause(ask: Any) -> None:
    with pytest.raises(ConfigError, match=r"is LookupError\(b'acme/7'\); it must answer for") as caught:
        ask(raising, KEY)
    assert isinstance(caught.value.__cause__, LookupError)
