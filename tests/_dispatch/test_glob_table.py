"""Tables of patterns: one pass over a key answers as each pattern alone does, at a cost that has a bound."""

from functools import partial
from itertools import product

import pytest
from tests.work import work_of

from keyshared._dispatch import glob_table
from keyshared._dispatch.glob_table import MAX_CHARACTERS, MAX_PATTERNS, MAX_STEPS_KNOWN, GlobTable
from keyshared.glob import Glob

ANN, BOB, CAT = 1, 2, 4
FILLER = [f"filler-{number}-?*x" for number in range(200)]  # so many that a pass is worth it; no key here matches any


def table(patterns: dict[str, int], filler: int = 1 << 20) -> GlobTable:
    """A table of patterns, each with its consumer."""
    made = GlobTable()
    for pattern, consumer in {**dict.fromkeys(FILLER, filler), **patterns}.items():
        made.add(Glob(pattern), consumer)
    return made


@pytest.fixture
def passes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a pass costs, it is made."""
    monkeypatch.setattr(glob_table, "_FEW", 1)
    monkeypatch.setattr(glob_table, "_STEPS_EACH", 1_000_000)


@pytest.mark.no_cover
@pytest.mark.usefixtures("passes_only")
def test_no_answer_is_wrong_in_the_whole_world_of_three_letters_all_patterns_at_once() -> None:
    words = ["".join(word) for size in range(5) for word in product("ab*?", repeat=size)]
    globs = [Glob(word) for word in words]
    together = GlobTable()
    for number, glob in enumerate(globs):
        together.add(glob, 1 << number)

    for text in ["".join(word) for size in range(6) for word in product("abc", repeat=size)]:
        expected = sum(1 << number for number, glob in enumerate(globs) if glob.matches(text))
        assert expected == together.takers(text.encode()), text


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"order-1", ANN),
        (b"order-1-eu", ANN | BOB),
        ("order-é-eu".encode(), ANN | BOB),
        (b"order-\xff-eu", ANN | BOB),
        (b"order--eu", ANN),
        (b"order-", 0),
        (b"x\xc3x", CAT),
        (b"", 0),
        (b"*", 0),
    ],
)
def test_characters_are_those_of_utf8_and_bytes_that_are_none_are_one_each(key: bytes, expected: int) -> None:
    assert expected == table({"order-?*": ANN, "*-?-eu": BOB, "x?x": CAT}).takers(key)


def test_a_consumer_that_accepts_is_named_once_however_many_of_its_patterns_match() -> None:
    made = table({"*a": ANN, "a?*": ANN, "*b*": ANN, "*?a*a": BOB, "*c*c": CAT})

    assert ANN | BOB == made.takers(b"aabaa")
    assert ANN | BOB | CAT == made.takers(b"aacacaac" + b"a" * 40 + b"c") | made.takers(b"aabaa")


@pytest.mark.interpreted("counts steps of the interpreter")
def test_once_everybody_accepts_the_rest_of_the_key_is_not_read() -> None:
    made = table(dict.fromkeys([f"a?{number}*" for number in range(10)], ANN), filler=ANN)

    assert ANN == made.takers(b"ax1" + b"?" * 190)
    assert work_of(partial(made.takers, b"ax1")) == work_of(partial(made.takers, b"ax1" + b"?" * 190))


def test_who_is_dropped_accepts_nothing_more_and_others_go_on() -> None:
    made = table({"*a": ANN, "*?a": BOB, "a*" + "b" * MAX_CHARACTERS: ANN})
    key = b"xa" + b"a" * 3

    made.drop(ANN)
    assert BOB == made.takers(key)
    assert 0 == made.takers(b"a" + b"b" * MAX_CHARACTERS)
    assert (len(FILLER) + 2, len(FILLER) + 1) == (made.taken, made.living)
    made.drop(ANN)
    made.add(Glob("x*a"), ANN)
    assert ANN | BOB == made.takers(key)


def test_it_tells_what_it_holds() -> None:
    long = Glob("*" + "x" * MAX_CHARACTERS + "y")
    made = GlobTable()
    for glob, consumer in ((Glob("a?"), ANN), (Glob("*b"), BOB), (long, BOB), (Glob("?c"), ANN)):
        made.add(glob, consumer)

    made.drop(CAT)
    assert {(Glob("a?"), ANN), (Glob("?c"), ANN), (Glob("*b"), BOB), (long, BOB)} == set(made.patterns())


@pytest.mark.no_cover
def test_it_is_full_of_patterns_or_of_what_it_knows_of_them() -> None:
    many, long = GlobTable(), GlobTable()
    while not many.is_full:
        many.add(Glob(f"*{many.taken}?"), ANN)
    while not long.is_full:
        long.add(Glob("*" + "".join(chr(300 + long.taken) for _ in range(MAX_CHARACTERS))), ANN)

    assert MAX_PATTERNS == many.taken
    assert MAX_STEPS_KNOWN == long.taken * MAX_CHARACTERS


def test_patterns_that_are_too_long_are_asked_alone() -> None:
    longest, longer = "?" * MAX_CHARACTERS + "*x", "*" + "a" * MAX_CHARACTERS + "?"
    made = table({longest: ANN, longer: BOB})

    assert len(FILLER) == made.taken
    assert ANN == made.takers(b"y" * MAX_CHARACTERS + b"x")
    assert BOB == made.takers(b"a" * (MAX_CHARACTERS + 1))


@pytest.mark.parametrize("size", [50, 150, 2_000, 80_000])
def test_a_pass_that_costs_too_much_is_given_up_and_answers_the_same(size: int) -> None:
    made = table({"*" + "a" * 40 + "?*b": ANN, "*a?a*c": BOB, "*" + "a?" * 20 + "*": CAT})

    assert BOB | CAT == made.takers(b"a" * size + b"c")
    assert ANN | CAT == made.takers(b"a" * size + b"b")


def test_the_work_of_a_pass_grows_no_faster_than_the_key() -> None:
    made = table(dict.fromkeys((f"eu-*-{number}-?*-order" for number in range(2_000)), ANN))
    small, middle, large = (work_of(partial(made.takers, b"eu-" + b"1-2-" * size)) for size in (8, 16, 24))

    assert large - middle <= 1.1 * (middle - small)


def test_the_work_for_a_key_of_any_length_is_bounded_by_asking_each_pattern() -> None:
    made = table(dict.fromkeys((f"*{'a' * (number % 40)}{number}*" for number in range(1_000)), ANN))
    alone = work_of(lambda: [glob.matches(b"a" * 80_000) for glob, _ in made.patterns()])

    assert work_of(partial(made.takers, b"a" * 900)) <= 3 * alone
    assert work_of(partial(made.takers, b"a" * 80_000)) <= 3 * alone


@pytest.mark.no_cover
def test_the_work_for_a_key_hardly_grows_with_the_patterns() -> None:
    few, many = (table({f"eu-{number}-*-order": ANN for number in range(size)}) for size in (100, 4_000))
    key = b"eu-77-1234-order"

    assert work_of(partial(many.takers, key)) <= 1.2 * work_of(partial(few.takers, key))
