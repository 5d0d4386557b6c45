"""Globs against the textbook, in random and in small exhaustive worlds; and Danube's own loop, which must be caught."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyshared.glob import Glob, KeyFilter

STAR, ANY_ONE = object(), object()
Matcher = Callable[[str, str], bool]

keys = st.text(alphabet="ab*?\\é🔑", max_size=8)
patterns = st.lists(st.sampled_from(["a", "b", "é", "*", "?", r"\*", r"\?", r"\\"]), max_size=7).map("".join)


def _textbook(text: Sequence[object], pattern: Sequence[object]) -> bool:
    """Give the dynamic program of every textbook: row i says which prefixes of the text match i pattern elements."""
    row = [True] + [False] * len(text)
    for element in pattern:
        if element is STAR:
            reachable = False
            row = [reachable := reachable or cell for cell in row]
        else:
            row = [False] + [
                cell and (element is ANY_ONE or element == unit) for cell, unit in zip(row, text, strict=False)
            ]
    return row[-1]


def _elements(pattern: str) -> list[object]:
    elements: list[object] = []
    escaped = False
    for char in pattern:
        if escaped or char not in "*?\\":
            elements.append(char)
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            elements.append(STAR if char == "*" else ANY_ONE)
    return elements


def _byte_elements(pattern: str) -> list[object]:
    special: dict[int, object] = {ord("*"): STAR, ord("?"): ANY_ONE}
    return [special.get(byte, byte) for byte in pattern.encode()]


def _characters(key: bytes) -> list[str]:
    """Cut bytes into characters the obvious way: the shortest valid ones, and single bytes where there is none."""
    found = []
    while key:
        size = next((n for n in range(1, 5) if _is_character(key[:n])), 1)
        found.append(key[:size].decode() if _is_character(key[:size]) else f"not UTF-8: {key[0]}")
        key = key[size:]
    return found


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


@given(text=keys, pattern=patterns)
@example(text="a*x", pattern="a*")
@example(text="éé", pattern="?*?")
def test_a_glob_agrees_with_the_textbook_on_characters(text: str, pattern: str) -> None:
    assert _textbook(text, _elements(pattern)) is Glob(pattern).matches(text)


@given(key=st.binary(max_size=6) | keys.map(str.encode), pattern=patterns)
@example(key=b"\xc3\xc3\xa9", pattern="?é")
def test_a_glob_agrees_with_the_textbook_on_bytes_that_may_not_be_utf8(key: bytes, pattern: str) -> None:
    assert _textbook(_characters(key), _elements(pattern)) is Glob(pattern).matches(key)


@given(text=keys, pattern=keys)
def test_a_glob_for_danube_agrees_with_the_textbook_on_bytes(text: str, pattern: str) -> None:
    expected = _textbook(text.encode(), _byte_elements(pattern))

    assert expected is Glob(pattern, danube_compat=True).matches(text)


# Chunks that nearly fit at every place: a first literal is found everywhere, and what is behind it fails late.
near_chunks = st.builds(
    lambda piece, times, end: f"{piece * times}{end}",
    st.sampled_from(["a?", "?a", "a?a", "ab?", "a"]),
    st.integers(1, 27),  # three of them are at most `MAX_PATTERN` characters
    st.sampled_from(["", "b", "b?", "?b"]),
)
near_patterns = st.lists(near_chunks, min_size=1, max_size=3).map(lambda chunks: f"*{'*'.join(chunks)}*")
near_keys = st.builds(
    lambda run, times, end: f"{run * times}{end}",
    st.sampled_from(["a", "aaab", "ab"]),
    st.integers(0, 150),
    st.text("ab", max_size=9),
)


@given(text=near_keys, pattern=near_patterns, danube_compat=st.booleans())
def test_a_chunk_that_nearly_fits_everywhere_is_found_as_the_textbook_finds_it(
    text: str, pattern: str, danube_compat: bool
) -> None:
    assert _textbook(text, _elements(pattern)) is Glob(pattern, danube_compat=danube_compat).matches(text)


@given(key=keys, chosen=st.lists(patterns, max_size=5))
def test_a_filter_accepts_what_any_of_its_patterns_matches(key: str, chosen: list[str]) -> None:
    expected = not chosen or any(_textbook(key, _elements(pattern)) for pattern in chosen)

    assert expected is KeyFilter(chosen).accepts(key)


@given(key=keys)
def test_an_escaped_key_is_a_pattern_for_itself_only(key: str) -> None:
    pattern = "".join("\\" + char if char in "*?\\" else char for char in key)

    assert key.encode() == Glob(pattern).exact
    assert Glob(pattern).matches(key)


def _ours(text: str, pattern: str) -> bool:
    return _compiled(pattern).matches(text)


@cache
def _compiled(pattern: str) -> Glob:
    return Glob(pattern, danube_compat=True)


def _danube_v0_15_1(text: str, pattern: str) -> bool:
    """Do what Danube's loop does: it asks "same character?" before "star?", and so takes a star for a letter."""
    if pattern == "*":
        return True
    at = place = 0
    star: int | None = None
    resume = 0
    while at < len(text):
        if place < len(pattern) and pattern[place] in ("?", text[at]):
            at, place = at + 1, place + 1
        elif place < len(pattern) and pattern[place] == "*":
            star, resume = place, at
            place += 1
        elif star is not None:
            resume += 1
            at, place = resume, star + 1
        else:
            return False
    return pattern[place:].strip("*") == ""


def _words(letters: str, longest: int) -> list[str]:
    return ["".join(word) for n in range(longest + 1) for word in product(letters, repeat=n)]


def _wrong_answers(matcher: Matcher, longest: int, letters: str = "ab*?") -> list[tuple[str, str]]:
    """Try every pattern up to a length on every text over some letters up to the same length."""
    texts = _words(letters, longest)
    wrong = []
    for pattern in _words("ab*?", longest):
        elements = _byte_elements(pattern)
        wrong += [(text, pattern) for text in texts if matcher(text, pattern) is not _textbook(text.encode(), elements)]
    return wrong


def test_no_answer_is_wrong_in_the_whole_world_of_three_letters() -> None:
    assert [] == _wrong_answers(_ours, 3)


def test_no_answer_is_wrong_for_patterns_of_five_on_plain_texts_of_five() -> None:
    # chunks with gaps that must be tried again, or that would reach into the tail, need this length
    assert [] == _wrong_answers(_ours, 5, letters="ab")


def test_danubes_loop_is_caught_in_the_whole_world_of_three_letters() -> None:
    wrong = _wrong_answers(_danube_v0_15_1, 3)

    assert {("*aa", "*a"), ("*", "*?"), ("a*b", "a*")} <= set(wrong)
    assert all("*" in text and not _danube_v0_15_1(text, pattern) for text, pattern in wrong)


@pytest.mark.slow
def test_danubes_loop_is_wrong_as_often_as_was_counted_and_ours_never() -> None:
    assert 21_616 == len(_wrong_answers(_danube_v0_15_1, 5))
    assert [] == _wrong_answers(_ours, 5)
