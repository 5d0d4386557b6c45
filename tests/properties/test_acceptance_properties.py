"""All patterns at once against each pattern alone, through changes of who is there and of what they want."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.placements import RankedPlacement
from tests.properties import schedules
from tests.broken import AnswersOutliveAFilter
from tests.properties.driving import Fast, drive
from tests.properties.schedules import random_world
from tests.properties.watch import Watch

from keyshared._dispatch import acceptance, glob_table
from keyshared._dispatch.acceptance import Acceptance
from keyshared._dispatch.glob_table import GlobTable
from keyshared.errors import InvariantError
from keyshared.glob import KeyFilter

NAMES = ("ann", "bob", "cat", "dan")


@contextmanager
def passes(*, always: bool) -> Iterator[None]:
    """Whether a pass is made however few patterns there are, or where it is worth it."""
    if not always:
        yield
        return
    with patch.object(glob_table, "_FEW", 1), patch.object(glob_table, "_STEPS_EACH", 1_000_000):
        yield


# Patterns that share what they begin and end with, and differ in one place; keys that nearly match them.
PIECES = ("a", "ab", "aba", "b", "?", "*", "a?", "*?", "?*", "**", "é", "\N{KEY}", r"\*", r"\?", r"\\")
KEY_PIECES = (b"a", b"ab", b"ba", b"b", "é".encode(), "\N{KEY}".encode(), b"*", b"?", b"\\", b"\xc3")
pieces = st.sampled_from(PIECES)
patterns = st.one_of(
    st.lists(pieces, max_size=6).map("".join),
    st.builds("{}{}{}".format, st.sampled_from(["", "ab", "*", "?"]), pieces, st.sampled_from(["", "ba", "*", "?"])),
    st.builds(lambda piece, times, end: piece * times + end, pieces, st.integers(1, 90), pieces),
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


@given(plan=changes, asked=st.lists(keys, min_size=1, max_size=6), always=st.booleans())
@example(plan=[("add", "ann", ["*ab*ba*"])], asked=[b"aba", b"abba"], always=True)
@example(plan=[("add", "ann", ["*?"]), ("drop", "ann", ()), ("add", "bob", [])], asked=[b"a", b""], always=True)
@example(plan=[("add", "ann", ["?" * 300 + "*"])], asked=[b"a" * 300, b"a" * 299, b""], always=True)
def test_all_patterns_at_once_say_what_each_says_alone(
    plan: list[tuple[str, str, Any]], asked: list[bytes], always: bool
) -> None:
    with passes(always=always):
        follow(Acceptance(), plan, asked)


@given(own=st.lists(patterns.map(lambda each: "*" + each), min_size=1, max_size=8), key=keys)
def test_a_pass_that_is_given_up_at_any_step_answers_the_same(own: list[str], key: bytes) -> None:
    expected = KeyFilter(own).accepts(key)
    for steps in (0, 1, 2, 5, 20, 100):
        with patch.object(glob_table, "_FEW", 1), patch.object(glob_table, "_STEPS_EACH", steps):
            made = Acceptance()
            made.add("ann", KeyFilter(own))
            assert expected is bool(made.of(key))


class LeaversAreStillAsked(Acceptance):
    """The patterns of who has left stay, for whoever gets their bit."""

    def drop(self, name: str) -> None:
        tables, self._tables = self._tables, []
        super().drop(name)
        self._tables = tables


class OverlapsAreForgiven(GlobTable):
    """A star lets the next chunk begin where the last character was read."""

    def _enter(self, chunks: list[list[str | None]], consumer: int) -> None:
        super()._enter(chunks, consumer)
        for place, loops in enumerate(self._loops):
            if place:
                self._loops[place - 1] |= loops


class OneByteIsOneCharacter(GlobTable):
    """A key is read byte by byte."""

    def _accepting(self, key: bytes) -> int | None:
        return super()._accepting(key.decode("latin-1").encode())


class EndsDoNotCount(GlobTable):
    """Whoever was at its end before the key was is said to match."""

    def _enter(self, chunks: list[list[str | None]], consumer: int) -> None:
        super()._enter(chunks, consumer)
        self._dones = list(self._ends)


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


@pytest.mark.parametrize("broken", [AnswersOutliveAFilter._Fault, LeaversAreStillAsked])
def test_answers_of_before_a_change_are_caught(broken: type[Acceptance]) -> None:
    assert is_caught(broken)


@pytest.mark.interpreted("changes a name of a module")
@pytest.mark.parametrize("broken", [OverlapsAreForgiven, OneByteIsOneCharacter, EndsDoNotCount])
def test_a_pass_that_reads_wrongly_is_caught(broken: type[GlobTable], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "GlobTable", broken)
    with passes(always=True):
        assert is_caught(Acceptance)


def test_the_random_plans_catch_nothing_in_what_is_right() -> None:
    assert not is_caught(Acceptance)
    with passes(always=True):
        assert not is_caught(Acceptance)


MANY = (
    (),
    ("?", "*a*"),
    ("??", "*[^]?", "b*?"),
    ("*?", "z?*"),
    ("?a*", "*b", "c?*", "?*?"),
)


def test_lives_with_many_patterns_break_no_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "FILTERS", MANY)
    passed = _counted(monkeypatch)
    with passes(always=True):
        for seed in range(60):
            world = random_world(seed, with_rules=True)
            dispatcher = Fast(RankedPlacement(), world.config, **world.settings)
            watch = Watch(dispatcher, world.config)
            for _ in range(50):
                step = drive(watch.recorder, world, world.next_call())
                assert step is None or not watch.see(step), seed
                dispatcher.check_invariants()
    assert passed() > 200


def _counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the passes over keys."""
    asked: list[bytes] = []
    accepting = GlobTable._accepting

    def counting(table: GlobTable, key: bytes) -> int | None:
        asked.append(key)
        return accepting(table, key)

    monkeypatch.setattr(GlobTable, "_accepting", counting)
    return lambda: len(asked)
