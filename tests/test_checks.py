"""One wording for one fault."""

import ast
import re
from collections.abc import Callable
from enum import Enum, IntEnum
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import keyshared
from keyshared._checks import (
    OFFSET_STOP,
    check_bool,
    check_callable,
    check_enum,
    check_extra,
    check_int,
    check_kind,
    check_log_offset,
    check_log_position,
    check_mapping,
    check_members,
    check_number,
    check_offset,
    check_position,
    check_several,
    check_text,
    checked_kinds,
    checked_list,
    checked_now,
    checked_rows,
    configuration,
    java_order,
    require,
)
from keyshared.errors import ArgumentError, ClockError, ConfigError, InvariantError, MissingExtraError, SnapshotError


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
        (check_log_position, [0, OFFSET_STOP]),
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


NO_NUMBERS = [-1, True, "1", None, float("inf"), float("nan")]


class Letter(Enum):
    A = "a"
    B = "b"
    C = "c"


class Bell:
    """A protocol."""

    def ring(self) -> None: ...


REFUSED = [
    (lambda: check_int("n", True), "n is True; it must be an int"),
    (lambda: check_int("n", 8, 1, most=7), "n is 8; it must be an int from 1 to 7"),
    (lambda: check_int("n", 0, 1, ", or None", most=7), "n is 0; it must be an int from 1 to 7, or None"),
    (lambda: check_bool("on", 1), "on is 1; it must be a bool"),
    (lambda: check_enum("one", "a", Letter), "one is 'a'; it must be one of Letter.A, Letter.B, Letter.C"),
    (lambda: check_enum("one", Letter.C, Letter, Letter.A), f"one is {Letter.C!r}; it must be one of Letter.A"),
    (lambda: check_callable("f", 7, "a key"), "f is 7; it must be callable with a key"),
    (lambda: check_kind("n", "7", int, ", or None"), "n is '7'; it must be an int, or None"),
    (lambda: check_several("names", "ab", "names"), "names is 'ab'; it must be a collection of names"),
    (lambda: check_several("names", b"ab", "names"), "names is b'ab'; it must be a collection of names"),
    (lambda: check_several("names", 7, "names"), "names is 7; it must be a collection of names"),
    *((lambda v=v: check_number("x", v), f"x is {v!r}; it must be a finite number of at least 0") for v in NO_NUMBERS),
    (lambda: check_number("x", 0.0, above=True), "x is 0.0; it must be a finite number above 0"),
    (lambda: list(checked_kinds("n", [7, "8"], int)), "n is '8'; it must be an int"),
    (lambda: list(checked_rows("row", [(1, 2), "ab"], 2, "a and b")), "row is 'ab'; it must be a tuple of a and b"),
    (lambda: list(checked_rows("row", [[1]], 2, "a and b")), "row is [1]; it must be a tuple of a and b"),
    (lambda: check_mapping("loads", []), "loads is []; it must be a mapping"),
    (lambda: check_members("bell", 7, Bell), "bell is 7; it must be what Bell describes: it has no ring"),
]


@pytest.mark.parametrize(("check", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_cannot_be_is_refused_in_these_words(check: Callable[[], object], text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        check()
    assert ArgumentError is type(caught.value)
    assert text == str(caught.value)


def test_what_can_be_comes_back() -> None:
    assert (-5, 7) == (check_int("n", -5), check_int("n", 7, 1, most=7))
    assert (False, Letter.B) == (check_bool("on", False), check_enum("one", Letter.B, Letter, Letter.A, Letter.B))
    assert ([], 0, Fraction(1, 3)) == (
        check_several("names", [], "names"),
        check_number("x", 0),
        check_number("x", Fraction(1, 3), above=True),
    )
    check_callable("f", len, "a text")
    check_members("bell", Bell(), Bell)
    assert ([1], [(1, 2)], {}) == (
        list(checked_kinds("n", [1], int)),
        list(checked_rows("row", [(1, 2)], 2, "two")),
        check_mapping("loads", {}),
    )
    assert ["a"] == checked_list("names", iter(["a"]), "names")


def test_a_class_is_no_object_of_its_own() -> None:
    with pytest.raises(ArgumentError, match="be an instance, such as Bell"):
        check_members("bell", Bell, Bell)


def test_a_package_that_is_not_there_is_named_with_its_extra() -> None:
    with pytest.raises(MissingExtraError, match=r"package 'x_y', .* install keyshared\[demo\]"):
        check_extra("demo", "json", "x_y")


def test_names_sort_as_in_java() -> None:
    assert ["\U0001f600", "\uff61"] == sorted(["\uff61", "\U0001f600"], key=java_order)


def test_a_fact_that_does_not_hold_is_an_error_of_ours() -> None:
    require(True, "it holds")
    with pytest.raises(InvariantError, match="it does not"):
        require([], "it does not")


def test_a_field_of_a_configuration_is_refused_as_such() -> None:
    with pytest.raises(ConfigError) as caught, configuration():
        check_int("window", 0, 1)
    assert ConfigError("window", 0, "be an int of at least 1").args == caught.value.args


def test_an_error_of_its_own_kind_stays_what_it_is() -> None:
    with pytest.raises(SnapshotError), configuration():
        raise SnapshotError("version", 9, "be 1")
    with pytest.raises(ClockError), configuration():
        checked_now(1, 2)


# the sources

SOURCES = Path(keyshared.__file__).parent
SAID_BY_A_CHECKER = re.compile(
    r"be (an int|a str|a bool|a mapping|a non-empty str)(, or None( for .*)?)?"
    r"|be an int (of at least \S+|from \S+ to \S+)(, or None( for .*)?)?"
    r"|be an? [A-Z]\w+(, or None( for .*)?)?|be one of [A-Z]\w+\.[A-Z].*|be a collection of .*|be callable with .*"
    r"|.*(not empty|True or False|\ba text\b|not one text).*"
)
# Each of these is asked for every message, and a call would cost more than the question; or it asks for something else.
BY_HAND = {
    ("_arguments.py", "consumer"),
    ("_arguments.py", "attempt"),
    ("_arguments.py", "letters"),
    ("buckets/batcher.py", "message"),
    ("buckets/batcher.py", "sequence_id"),
    ("buckets/batcher.py", "size"),
    ("buckets/batcher.py", "bucket_hash"),
    ("leases/answers.py", "lease_id"),
    ("simulate/summary.py", "row"),
}


@cache
def raised() -> list[tuple[str, str, list[ast.expr]]]:
    """Errors of arguments that the sources make, with their module and their arguments."""
    found: list[tuple[str, str, list[ast.expr]]] = []
    for path in sorted(SOURCES.rglob("*.py")):
        module = path.relative_to(SOURCES).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(ast.Name("ArgumentError" | "ConfigError" as name), args) if module != "_checks.py":
                    found.append((module, name, args))
    return found


def said(node: ast.expr) -> str:
    """The text of a literal, with something in the place of what is filled in."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in parts)


@pytest.mark.no_cover
def test_what_a_checker_says_is_said_by_no_other() -> None:
    found = {(module, said(args[0])) for module, _, args in raised() if SAID_BY_A_CHECKER.fullmatch(said(args[-1]))}

    assert BY_HAND == found


def test_only_configuration_makes_an_error_of_a_configuration() -> None:
    assert [] == [module for module, kind, _ in raised() if kind == "ConfigError"]
    assert {"ArgumentError"} == {kind for _, kind, _ in raised()}
