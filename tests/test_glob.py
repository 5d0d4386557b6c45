"""Glob patterns over keys, and filters made of them."""

import pickle
from typing import Any

import pytest

from keyshared.errors import ArgumentError, KeyTypeError
from keyshared.glob import MAX_PATTERN, MAX_TRIED, Glob, KeyFilter


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


@pytest.mark.parametrize("danube_compat", [False, True])
@pytest.mark.parametrize("part", ["a", "a?", "?a", "aaaa?"])
def test_no_star_is_ever_tried_again(part: str, danube_compat: bool) -> None:
    glob = Glob(f"*{f'{part}*' * (200 // len(part) // 2)}b", danube_compat=danube_compat)

    assert not glob.matches(b"a" * 2_000)  # with stars that are tried again this would never end


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


def test_a_pattern_that_is_too_long_to_search_for_is_refused() -> None:
    half = "?" * (MAX_PATTERN // 2)

    assert Glob(f"*{half}{half[1:]}").matches("a" * MAX_PATTERN)
    assert Glob("a" * 2_000).matches("a" * 2_000)
    assert Glob(f"{'a' * 2_000}*").matches("a" * 2_001)
    for pattern in (f"*{half}{half}", f"*{half}{half}*", f"*{'a' * MAX_PATTERN}", f"{half}{half}?"):
        with pytest.raises(ArgumentError, match=r"have at most 256 characters, or no \? and no other stars"):
            Glob(pattern)


def test_stars_at_the_end_only_are_a_prefix() -> None:
    found = [Glob(pattern).prefix for pattern in ("ab*", "ab**", "**", "a*b*", "ab?*", "ab")]
    assert found == [b"ab", b"ab", b"", None, None, None]


def test_a_filter_of_too_many_patterns_to_try_is_refused() -> None:
    tried = [f"*-{number}-*" for number in range(MAX_TRIED)]
    quick = [f"eu-{number}" for number in range(1_000)] + [f"us-{number}-*" for number in range(1_000)]

    assert KeyFilter(tried + quick).accepts("a-99-b")
    with pytest.raises(ArgumentError, match="have at most 100 patterns that are neither one key nor a prefix"):
        KeyFilter([*tried, "*-more-*"])
