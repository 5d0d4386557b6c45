"""One wording for one fault."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest

from keyshared._checks import (
    OFFSET_STOP,
    check_int,
    check_log_offset,
    check_offset,
    check_position,
    check_text,
    checked_now,
)
from keyshared.errors import ArgumentError, ClockError


class Small(IntEnum):
    ONE = 1


def test_a_number_that_is_large_enough_comes_back() -> None:
    assert (3, 7) == (check_int("limit", 3, 3), check_int("limit", 7, 3))


@pytest.mark.parametrize("value", [2, -1, 3.0, "3", None, True, Small.ONE])
def test_what_is_no_int_or_too_small_is_refused_by_name(value: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_int("limit", value, 3, ", or None for never")
    assert f"limit is {value!r}; it must be an int of at least 3, or None for never" == str(caught.value)


@pytest.mark.parametrize(
    ("check", "taken"),
    [
        (check_offset, [1 - OFFSET_STOP, OFFSET_STOP - 1]),
        (check_position, [1 - OFFSET_STOP, OFFSET_STOP]),
        (check_log_offset, [0, OFFSET_STOP - 1]),
    ],
)
def test_offsets_and_positions_have_one_bound(check: Callable[[str, object], None], taken: list[int]) -> None:
    lowest, highest = taken
    for offset in taken:
        check("before", offset)
    for refused in (lowest - 1, highest + 1, True, 1.0, "1", None):
        with pytest.raises(ArgumentError, match=r"before is .*63 bits"):
            check("before", refused)


def test_a_text_comes_back() -> None:
    assert check_text("topic", "orders") == "orders"


@pytest.mark.parametrize("value", ["", b"orders", 1, None])
def test_what_is_no_text_or_empty_is_refused_by_name(value: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_text("topic", value)
    assert f"topic is {value!r}; it must be a non-empty str" == str(caught.value)


def test_a_clock_goes_on_or_stands() -> None:
    assert (5, 5, 6) == (checked_now(None, 5), checked_now(5, 5), checked_now(6, 5))


@pytest.mark.parametrize("value", [4, -1, 6.0, "6", True])
def test_a_clock_that_goes_back_or_is_none_is_refused(value: Any) -> None:
    with pytest.raises(ClockError):
        checked_now(value, 5)
