"""Who accepts a key: all consumers' patterns asked at once, and the answer kept only while it is true."""

from collections.abc import Callable
from functools import partial

import pytest
from tests.work import work_of

from keyshared._dispatch.acceptance import KEPT_BYTES, Acceptance
from keyshared.errors import InvariantError
from keyshared.glob import KeyFilter

LONG = "x" * 65  # as a prefix too long to be looked up


def asked(**filters: list[str]) -> Acceptance:
    made = Acceptance()
    for name, patterns in filters.items():
        made.add(name, KeyFilter(patterns))
    return made


def who(acceptance: Acceptance, key: bytes) -> str:
    """The initials of those who accept the key."""
    accepting = acceptance.of(key)
    assert accepting == accepting & sum(acceptance.bits.values())
    return "".join(sorted(name[0] for name, bit in acceptance.bits.items() if accepting & bit))


def test_patterns_of_every_kind_are_asked_at_once() -> None:
    made = asked(
        ann=["payment", "ship*", "", f"{LONG}*"], bob=["pay*", "shipping"], cat=["*ing", "pay??nt", "é*"], dan=[]
    )

    keys = ["", "payment", "pay", "ship", "shipping", LONG, f"{LONG}y", "étage", "x"]
    assert ["ad", "abcd", "bd", "ad", "abcd", "ad", "ad", "cd", "d"] == [who(made, key.encode()) for key in keys]


def test_nobody_accepts_anything_of_nobody() -> None:
    assert 0 == Acceptance().of(b"a")


@pytest.mark.parametrize("patterns", [["a"], ["a*"], ["?"], ["*a"], []], ids=repr)
def test_who_is_dropped_or_changes_its_filter_is_asked_no_more_with_what_was(patterns: list[str]) -> None:
    made = asked(ann=patterns, bob=["a", "a*", "?", "*a"], cat=["a", "a*", "?", "*a"])

    assert ["abc", "abc"] == [who(made, b"a") for _ in range(2)]
    made.drop("cat")
    assert "ab" == who(made, b"a")
    made.add("ann", KeyFilter(["b?"]))
    assert ["b", "a"] == [who(made, key) for key in (b"a", b"b1")]
    made.drop("bob")
    made.drop("nobody")
    assert ["", "a"] == [who(made, key) for key in (b"a", b"b1")]
    made.check_invariants()


def test_whoever_comes_next_has_no_answers_of_who_left() -> None:
    made = asked(ann=["?"], bob=["??"])
    assert "a" == who(made, b"a")

    made.drop("ann")
    made.add("cat", KeyFilter())
    assert "c" == who(made, b"a")
    made.add("cat", KeyFilter(["b"]))
    assert "" == who(made, b"a")
    made.check_invariants()


def test_an_answer_is_kept_until_patterns_are_added() -> None:
    made = asked(ann=[f"*{number}?x" for number in range(100)], bob=["*?"])
    first, second = (work_of(partial(made.of, b"a1")) for _ in range(2))
    made.drop("bob")

    assert second == work_of(partial(made.of, b"a1"))
    made.add("bob", KeyFilter(["*?"]))
    assert first == work_of(partial(made.of, b"a1")) > 2 * second


def test_answers_about_what_is_outstanding_are_kept_and_others_have_a_bound() -> None:
    outstanding = {b"held-%d" % number: None for number in range(3_000)}
    made = asked(ann=["*?"])
    made.keep_for(outstanding)
    for key in outstanding:
        made.of(key)
    for number in range(20_000):
        made.of(b"gone-%d" % number)

    assert outstanding.keys() <= made._kept.keys()
    assert len(made._kept) <= 2 * len(outstanding)
    outstanding.clear()
    for number in range(8_000):
        made.of(b"gone-%d" % number)
    assert len(made._kept) <= KEPT_BYTES // 128
    made.check_invariants()


def test_long_keys_take_no_more_memory_than_short_ones() -> None:
    made = asked(ann=["*?"])
    for number in range(50):
        made.of(b"%d" % number * 80_000)

    assert 2 * KEPT_BYTES >= sum(map(len, made._kept))


@pytest.mark.no_cover
def test_many_patterns_take_several_tables_and_room_is_made_of_what_was_dropped() -> None:
    made = Acceptance()
    for number in range(12):
        made.add(f"c{number}", KeyFilter([f"*-{number}-{each}-?" for each in range(1_000)]))
    assert 2 == len(made._tables)

    for number in range(1, 12):
        made.drop(f"c{number}")
    assert [2_000 >= sum(table.taken for table in made._tables)] == [1 == len(made._tables)] == [True]
    assert ["c", ""] == [who(made, key) for key in (b"x-0-7-y", b"x-1-7-y")]


def test_joins_and_leaves_cost_what_their_own_patterns_cost() -> None:
    def join_and_leave(count: int) -> None:
        made = Acceptance()
        for number in range(count):
            patterns = [f"{number}", f"{number}-*", f"*-{number}-?"]
            made.add(f"c{number}", KeyFilter(patterns))
            made.of(b"a-%d-b" % number)
        for number in range(count):
            made.drop(f"c{number}")

    small, large = (work_of(partial(join_and_leave, count)) for count in (100, 1_000))
    assert large <= 15 * small


def _answers(made: Acceptance) -> None:
    made._kept[b"a1"] = 0


def _somebody_else(made: Acceptance) -> None:
    made.filters["ann"] = KeyFilter(["b?"])


@pytest.mark.parametrize("damage", [_answers, _somebody_else])
def test_an_answer_that_is_not_that_of_the_patterns_is_found(damage: Callable[[Acceptance], None]) -> None:
    made = asked(ann=["?1"], bob=["*2"])
    assert "a" == who(made, b"a1")
    made.check_invariants()

    damage(made)
    with pytest.raises(InvariantError, match="who accepts b'a1' is whoever has a pattern that matches it"):
        made.check_invariants()
