"""Claims as a text."""

from dataclasses import fields

import pytest

from keyshared.testing import Claims, ClaimsError, Promise, read_claims


def test_nothing_written_is_what_is_claimed_by_default() -> None:
    assert read_claims("") == Claims()


def test_every_claim_that_is_no_function_can_be_written() -> None:
    numbers = [each.name for each in fields(Claims) if each.type == int | None]
    flags = ["latest_only", *(each.name for each in fields(Claims) if each.type is bool)]
    lines = [*(f"{name} = 7" for name in numbers), *(f"{name} = true" for name in flags), "tolerance_ms = 6"]
    text = "\n".join(lines)
    expected = Claims(**dict.fromkeys(numbers, 7), **dict.fromkeys(flags, True), tolerance_ms=6)  # type: ignore[arg-type]
    assert read_claims(text) == expected
    functions = {"unit_of", "limit_of"}
    assert {each.name for each in fields(Claims)} == {*numbers, *flags, "promises", "tolerance_ms"} | functions


def test_any_number_is_a_word_because_toml_has_no_null() -> None:
    assert read_claims('per_key = "any"').per_key is None


def test_promises_are_written_by_their_ids() -> None:
    assert read_claims('promises = ["fence"]').promises == {Promise.FENCE}
    assert read_claims("promises = []").promises == set()


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("per_key", "text"),
        ("per_key = 1\nper_key = 2", "text"),
        ("x = " + "[" * 100_000, "text"),
        ("per_key = 0", "per_key"),
        ('rewinds = "any"', "rewinds"),
        ('tolerance_ms = "any"', "tolerance_ms"),
        ("unit_of = 1", "unit_of"),
        ("[per_key]\nleast = 1", "per_key"),
        ("[claims]\nper_key = 1", "claims"),
        ("promises = [[]]", "promises"),
        ('promises = ["order"]', "promises"),
        ('promises = "any"', "promises"),
    ],
)
def test_a_claim_that_cannot_be_is_named(text: str, parameter: str) -> None:
    with pytest.raises(ClaimsError) as raised:
        read_claims(text)
    assert raised.value.parameter == parameter
