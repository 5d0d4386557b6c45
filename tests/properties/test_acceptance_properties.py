"""All patterns at once against each pattern alone, through changes of who is there and of what they want."""

from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.broken import AnswersOutliveAFilter

from keyshared._core.routing import Acceptance
from keyshared.errors import InvariantError
from keyshared.glob import KeyFilter

NAMES = ("ann", "bob", "cat", "dan")

# Patterns that share what they begin and end with, and differ in one place; keys that nearly match them.
PIECES = ("a", "ab", "aba", "b", "?", "*", "a?", "*?", "?*", "**", "é", "\N{KEY}", r"\*", r"\?", r"\\")
KEY_PIECES = (b"a", b"ab", b"ba", b"b", "é".encode(), "\N{KEY}".encode(), b"*", b"?", b"\\", b"\xc3")
pieces = st.sampled_from(PIECES)
patterns = st.one_of(
    st.lists(pieces, max_size=6).map("".join),
    st.builds("{}{}{}".format, st.sampled_from(["", "ab", "*", "?"]), pieces, st.sampled_from(["", "ba", "*", "?"])),
    st.builds(lambda piece, times, end: piece * times + end, pieces, st.integers(1, 80), pieces),
)
key_pieces = st.sampled_from(KEY_PIECES)
keys = st.one_of(
    st.lists(key_pieces, max_size=6).map(b"".join),
    st.builds(lambda piece, times, end: piece * times + end, key_pieces, st.integers(1, 90), key_pieces),
    st.binary(max_size=4),
)
some = st.lists(patterns, max_size=6)
filters = st.one_of(some, some.map(lambda own: [*own, *(f"ab*{number}?" for number in range(60))]))
changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(NAMES), filters),
        st.tuples(st.just("drop"), st.sampled_from(NAMES), st.just(())),
        st.tuples(st.just("ask"), st.just(""), keys),
    ),
    max_size=12,
)


def follow(made: Acceptance, plan: list[tuple[str, str, Any]], asked: list[bytes]) -> None:
    """Make the changes; after each, compare what is said of every key with what each filter says."""
    known: dict[str, KeyFilter] = {}
    for change, name, given_ in plan:
        if change == "add":
            known[name] = KeyFilter(given_)
            made.add(name, known[name])
        elif change == "drop":
            known.pop(name, None)
            made.drop(name)
        else:
            made.of(given_)
        for key in asked:
            accepting = made.of(key)
            told = {name for name, bit in made.bits.items() if accepting & bit}
            assert told == {name for name, accepts in known.items() if accepts.accepts(key)}, key
            assert bool(accepting) == bool(told)
        made.check_invariants()


@given(plan=changes, asked=st.lists(keys, min_size=1, max_size=6))
@example(plan=[("add", "ann", ["*ab*ba*"])], asked=[b"aba", b"abba"])
@example(plan=[("add", "ann", ["*?"]), ("drop", "ann", ()), ("add", "bob", [])], asked=[b"a", b""])
@example(plan=[("add", "ann", ["?" * 200 + "*"])], asked=[b"a" * 200, b"a" * 199, b""])
def test_all_patterns_at_once_say_what_each_says_alone(plan: list[tuple[str, str, Any]], asked: list[bytes]) -> None:
    follow(Acceptance(), plan, asked)


class LeaversAreStillAsked(Acceptance):
    """The patterns of a consumer that has left stay, for the next one that gets its bit."""

    def drop(self, name: str) -> None:
        general = self._general
        super().drop(name)
        self._general = general


class FirstPatternWins(Acceptance):
    """Once a consumer accepts a key, no other pattern is tried."""

    def of(self, key: bytes) -> int:
        accepting = super().of(key)
        return accepting & -accepting


def is_caught(broken: type[Acceptance]) -> bool:
    """Whether one of many random plans shows a fault."""
    for seed in range(300):
        random = Random(seed)  # reproducible, not secret
        own = ["".join(random.choices(PIECES, k=random.randint(0, 5))) for _ in range(40)]
        plan: list[tuple[str, str, Any]] = [
            (random.choice(["add", "add", "drop"]), random.choice(NAMES), random.choices(own, k=3)) for _ in range(8)
        ]
        try:
            follow(broken(), plan, [b"".join(random.choices(KEY_PIECES, k=random.randint(0, 4))) for _ in range(8)])
        except (AssertionError, InvariantError):
            return True
    return False


@pytest.mark.parametrize("broken", [AnswersOutliveAFilter.part, LeaversAreStillAsked, FirstPatternWins])
def test_faults_are_caught(broken: type[Acceptance]) -> None:
    assert is_caught(broken)


def test_the_random_plans_catch_nothing_in_what_is_right() -> None:
    assert not is_caught(Acceptance)
