"""Glob patterns over keys, and filters made of them."""

import pickle
from functools import partial
from typing import Any, SupportsIndex

import pytest
from tests.work import work_of

from keyshared.errors import ArgumentError, KeyTypeError
from keyshared.glob import MAX_GAP_CHUNK, Glob, KeyFilter


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        ("payment", ["payment"], ["payments", "a payment", "PAYMENT", "", "paymen"]),
        ("ship*", ["ship", "shipping", "shipment"], ["shi", "a ship", "Ship"]),
        ("eu-west-?", ["eu-west-1", "eu-west-é", "eu-west-🔑"], ["eu-west-", "eu-west-12"]),
        ("*", ["", "anything", "a/b", ".hidden"], []),
        ("**", ["", "anything"], []),
        ("", [""], ["a", " "]),
        ("?", ["a", "é", "*"], ["", "ab"]),
        ("??", ["ab", "é🔑"], ["é", "abc"]),
        ("*-order", ["eu-order", "-order"], ["eu-orders", "order"]),
        ("eu-*-order", ["eu--order", "eu-west-order"], ["eu-order", "us-west-order"]),
        ("*-*-*", ["a-b-c", "--"], ["a-b", "-"]),
        ("a*a", ["aa", "aba"], ["a", "ab"]),
        ("*ab*ab*", ["abab", "xabyabz"], ["ab", "xaby"]),
        ("a?c*", ["abc", "aéc!"], ["ac", "abbc"]),
        ("*?b*c?", ["abcd", "xxbxxcé"], ["bcd", "abc"]),
        ("?*?", ["ab", "éé"], ["a", "é"]),
        ("*a?b*", ["aacb", "aaaéb!"], ["aa", "bca", "ab"]),
        ("*a?*b", ["axb", "aabb"], ["xab", "ab"]),
        ("[ab]{c}", ["[ab]{c}"], ["a{c}"]),
        (r"a\*", ["a*"], ["a", "ab", r"a\*"]),
        (r"\?\*\\", ["?*\\"], ["a*\\"]),
        (r"\a", ["a"], [r"\a"]),
        (r"\**", ["*", "*abc"], ["abc", ""]),
        (r"*\?", ["?", "what?"], ["what"]),
        (r"*\*?", ["a*b", "**"], ["*", "ab"]),
    ],
)
def test_a_pattern_matches_the_whole_key(pattern: str, accepted: list[str], refused: list[str]) -> None:
    glob = Glob(pattern)

    assert accepted == [key for key in accepted + refused if glob.matches(key)]
    assert accepted == [key for key in accepted + refused if glob.matches(key.encode())]


@pytest.mark.parametrize(("pattern", "key"), [("a*", "a*x"), ("*c", "*abc"), ("star*", "star*key"), ("*?", "*")])
def test_a_star_in_the_key_is_no_star(pattern: str, key: str) -> None:
    assert Glob(pattern).matches(key)
    assert Glob(pattern, danube_compat=True).matches(key)


def test_for_danube_a_question_mark_is_a_byte_and_a_backslash_ordinary() -> None:
    assert not Glob("us-?", danube_compat=True).matches("us-é")
    assert Glob("us-??", danube_compat=True).matches("us-é")
    assert Glob(r"a\*", danube_compat=True).matches(r"a\bc")
    assert Glob("\\", danube_compat=True).matches("\\")


@pytest.mark.parametrize("key", [b"\xff", b"\xc3", b"\x80"])
def test_a_byte_that_is_not_utf8_is_one_character(key: bytes) -> None:
    assert Glob("?").matches(key)
    assert Glob("a?*b").matches(b"a" + key + b"b")
    assert not Glob("??").matches(key)
    assert Glob("*").matches(key)
    assert not Glob("\u00ff").matches(key)


def test_bytes_that_are_not_utf8_do_not_spoil_their_neighbours() -> None:
    assert Glob("?é?").matches(b"\xc3" + "é".encode() + b"\xa9")
    assert Glob("*é*").matches(b"\xc3" + "é".encode() + b"\xa9")


def test_a_lone_backslash_at_the_end_is_refused() -> None:
    with pytest.raises(ArgumentError, match="lone backslash"):
        Glob("a\\")
    assert Glob("a\\\\").matches("a\\")


@pytest.mark.parametrize("pattern", [None, b"a", 5, "\ud800"])
def test_a_pattern_that_is_none_is_refused(pattern: Any) -> None:
    with pytest.raises(ArgumentError, match="pattern is"):
        Glob(pattern)


@pytest.mark.parametrize("pattern", ["a?", "a*"])
def test_only_keys_are_matched(pattern: str) -> None:
    with pytest.raises(KeyTypeError, match="int"):
        Glob(pattern).matches(5)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ArgumentError, match="matches no pattern"):
        Glob(pattern).matches(None)  # type: ignore[arg-type]  # as above


def test_a_glob_is_a_value() -> None:
    glob = Glob("a?*", danube_compat=True)

    assert Glob("a?*", danube_compat=True) == glob
    assert glob not in [Glob("a?*"), Glob("a*", danube_compat=True), "a?*"]
    assert hash(Glob("a?*", danube_compat=True)) == hash(glob)
    assert ["Glob('a?*', danube_compat=True)", "Glob('a')"] == [repr(glob), repr(Glob("a"))]
    assert glob == pickle.loads(pickle.dumps(glob))  # noqa: S301 - our own bytes
    assert ("a?*", True) == (glob.pattern, glob.danube_compat)


class _Counted(bytes):
    """A key that counts the characters that are looked at, on the bytes and on the text that they are read as."""

    steps: list[int]

    def find(self, sub: Any, start: SupportsIndex | None = None, end: SupportsIndex | None = None) -> int:
        found = super().find(sub, start, end)
        self.steps.append(_scanned(found, start, end, len(self), len(sub)))
        return found

    def startswith(self, prefix: Any, *places: Any) -> bool:
        self.steps.append(1 + len(prefix))
        return super().startswith(prefix, *places)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        text = _CountedText(super().decode(encoding, errors))
        text.steps = self.steps
        return text


class _CountedText(str):
    __slots__ = ("steps",)
    steps: list[int]

    def find(self, sub: Any, start: SupportsIndex | None = None, end: SupportsIndex | None = None) -> int:
        found = super().find(sub, start, end)
        self.steps.append(_scanned(found, start, end, len(self), len(sub)))
        return found

    def startswith(self, prefix: Any, *places: Any) -> bool:
        self.steps.append(1 + len(prefix))
        return super().startswith(prefix, *places)


def _scanned(found: int, start: Any, end: Any, size: int, wanted: int) -> int:
    begin, stop = (start or 0), (size if end is None else end)
    return (found + wanted if found >= 0 else stop) - begin


def _steps_of(pattern: str, key: bytes) -> int:
    counted = _Counted(key)
    counted.steps = []
    assert not Glob(pattern).matches(counted)
    return sum(counted.steps)


@pytest.mark.parametrize("pattern", ["*a*a*a*a*b", "*a*a*a*a*b*", "a*a*a*a*b*c", "*" * 50 + "b*"])
def test_stars_cost_one_pass_over_the_key(pattern: str) -> None:
    size = 10_000

    assert size + 10 * len(pattern) >= _steps_of(pattern, b"a" * size)


@pytest.mark.parametrize("pattern", ["*a?a?a?a?b*", "*?a?b*a?c*", "*a?*a?*a?*a?*b?*", "*aaaa?b*aaaa?b*"])
def test_question_marks_cost_at_most_key_times_pattern(pattern: str) -> None:
    size = 3_000

    assert 4 * size * len(pattern) >= _steps_of(pattern, b"a" * size)


def test_a_filter_without_patterns_accepts_everything() -> None:
    everything = KeyFilter()

    assert everything.accepts_all
    assert everything.takes_keyless
    assert everything.accepts(b"")
    assert everything.accepts("x")
    assert everything.accepts(None)
    assert () == everything.patterns


def test_the_empty_pattern_accepts_only_the_empty_key() -> None:
    empty = KeyFilter([""])

    assert [True, False, False] == [empty.accepts(key) for key in (b"", b"a", None)]
    assert not empty.accepts_all


@pytest.mark.parametrize(
    ("patterns", "accepts_all", "takes_keyless"),
    [
        (["*"], True, True),
        (["a", "*"], True, True),
        (["**"], True, False),
        (["?*"], False, False),
        ([r"\*"], False, False),
        (["a*"], False, False),
    ],
)
def test_messages_without_a_key_go_to_unfiltered_consumers_and_to_a_plain_star(
    patterns: list[str], accepts_all: bool, takes_keyless: bool
) -> None:
    chosen = KeyFilter(patterns)

    assert (accepts_all, takes_keyless) == (chosen.accepts_all, chosen.takes_keyless)
    assert takes_keyless is chosen.accepts(None)


def test_any_pattern_is_enough() -> None:
    chosen = KeyFilter(["payment", "ship*", "eu-west-?", "*-vip", "", r"a\*b*"])

    accepted = ["payment", "ship", "shipping", "eu-west-é", "a-vip", "-vip", "", "a*b", "a*bc"]
    refused = ["payments", "shi", "eu-west-12", "vip", "aab", " "]
    assert accepted == [key for key in accepted + refused if chosen.accepts(key)]
    assert accepted == [key for key in accepted + refused if chosen.accepts(key.encode())]


def test_a_filter_for_danube_matches_bytes() -> None:
    assert not KeyFilter(["us-?"], danube_compat=True).accepts("us-é")
    assert KeyFilter(["us-?"]).accepts("us-é")
    assert KeyFilter(["\\"], danube_compat=True).accepts("\\")


def test_a_filter_is_a_value() -> None:
    chosen = KeyFilter(["a", "b*", "a"])

    assert KeyFilter(["b*", "a"]) == chosen
    assert hash(KeyFilter(["b*", "a"])) == hash(chosen)
    assert chosen not in [KeyFilter(["a"]), KeyFilter(["a", "b*"], danube_compat=True), "a"]
    assert ("a", "b*") == chosen.patterns
    assert (Glob("a"), Glob("b*")) == chosen.globs
    assert "KeyFilter(['a', 'b*'])" == repr(chosen)
    assert "KeyFilter([], danube_compat=True)" == repr(KeyFilter(danube_compat=True))
    assert chosen == pickle.loads(pickle.dumps(chosen))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("patterns", ["ship*", b"ship*", [5], ["a", None], ["a\\"]], ids=repr)
def test_a_filter_that_can_never_work_is_refused(patterns: Any) -> None:
    with pytest.raises(ArgumentError):
        KeyFilter(patterns)


def test_a_filter_takes_only_keys() -> None:
    with pytest.raises(KeyTypeError, match="int"):
        KeyFilter(["a"]).accepts(5)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("danube_compat", [False, True])
def test_the_work_of_a_match_grows_with_the_key_only(danube_compat: bool) -> None:
    glob = Glob(f"*{'a?' * 500}b*", danube_compat=danube_compat)
    small, middle, large = (work_of(partial(glob.matches, "a" * size)) for size in (2_000, 4_000, 6_000))

    assert [2_000, 2_000] == [middle - small, large - middle]


@pytest.mark.parametrize("danube_compat", [False, True])
def test_a_chunk_whose_beginning_stands_at_many_wrong_places_is_found_or_not(danube_compat: bool) -> None:
    glob = Glob("*a?b*", danube_compat=danube_compat)

    assert glob.matches("a" * 50 + "xb")
    assert not glob.matches("a" * 50 + "xyb")


def test_a_chunk_with_gaps_that_is_too_long_to_search_for_is_refused() -> None:
    half = "?" * (MAX_GAP_CHUNK // 2)

    assert Glob(f"*{half}{half}*").matches("a" * MAX_GAP_CHUNK)
    assert Glob(f"{half}{half}?*").matches("a" * MAX_GAP_CHUNK + "b")  # it has one place only
    assert Glob(f"*{'a' * MAX_GAP_CHUNK}a*").matches("a" * 2_000)  # the interpreter looks for it
    with pytest.raises(ArgumentError, match="at most 1024 characters between two stars if there is a"):
        Glob(f"*{half}{half}?*")
    with pytest.raises(ArgumentError, match="at most 1024"):
        Glob(f"*é{half}{half}*", danube_compat=True)
