"""Names against brute force: every split is tried, and there and back again is where it began."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import Phase, given, reject, settings
from hypothesis import strategies as st
from tests.work import work_of

from keyshared.errors import ArgumentError
from keyshared.subjects import NameIssue, NamePattern, NameProblem, NameTranslation, ParsedName, ResolvedNames

FIELDS = ("p", "q", "r")
words = st.text("ab-.", min_size=1, max_size=3)


@dataclass(frozen=True)
class Spec:
    """A pattern as its author thinks of it, before anything is derived."""

    literals: tuple[str, ...]
    fields: tuple[str, ...]
    known: dict[str, list[str]]
    plain: tuple[str, ...] | None
    suffixes: tuple[str, ...]

    def build(self, kind: type[NamePattern] = NamePattern) -> NamePattern:
        text = self.literals[0] + "".join(
            f"{{{field}}}{literal}" for field, literal in zip(self.fields, self.literals[1:], strict=True)
        )
        return kind(text, known=self.known, plain=self.plain, suffixes=self.suffixes)

    def allowed(self, field: str, value: str) -> bool:
        unknown = [one for one in self.fields if one not in self.known]
        if field in self.known:
            return value in self.known[field]
        is_plain = field in self.plain if self.plain is not None else field != unknown[-1]
        return value != "" and not (is_plain and any(one in value for one in self.literals[1:-1] if one))

    def readings(self, name: str) -> Iterator[ParsedName]:
        """Put every pair of cuts around every field, and keep what fits."""
        for suffix in self.suffixes or ("",):
            body = name.removesuffix(suffix)
            if body + suffix != name:
                continue
            for cuts in combinations_with_replacement(range(len(body) + 1), 2 * len(self.fields)):
                edges = (0, *cuts, len(body))
                pieces = [body[start:stop] for start, stop in pairwise(edges)]
                values = dict(zip(self.fields, pieces[1::2], strict=True))
                if tuple(pieces[::2]) == self.literals and all(self.allowed(*pair) for pair in values.items()):
                    yield ParsedName(tuple(values.items()), suffix)


@st.composite
def specs(draw: st.DrawFn, fields: tuple[str, ...] = FIELDS, *, suffixes: bool = True) -> Spec:
    chosen = tuple(draw(st.permutations(fields)))[: draw(st.integers(1, len(fields)))]
    inner = [draw(st.sampled_from(["-", "-", ".", "--", ""])) for _ in chosen[1:]]
    ends = [draw(st.sampled_from(["", "", "a-"])) for _ in range(2)]
    known = draw(st.dictionaries(st.sampled_from(chosen), st.lists(words, min_size=1, max_size=2), max_size=2))
    unknown = [field for field in chosen if field not in known]
    plain = draw(st.none() | st.lists(st.sampled_from(unknown), unique=True).map(tuple)) if unknown else None
    tails = draw(st.sampled_from([(), ("-a", "-b"), ("", "-b")])) if suffixes else ()
    return Spec((ends[0], *inner, ends[1]), chosen, known, plain, tails)


names = st.text("ab-.", min_size=1, max_size=7)
LONGEST = 10  # brute force tries every way to cut a name six times


@st.composite
def specs_with_names(draw: st.DrawFn) -> tuple[Spec, str]:
    """A pattern and any name; half of the names are written by the pattern, because random ones rarely fit it."""
    spec = draw(specs())
    if draw(st.booleans()):
        return spec, draw(names)
    values = [draw(st.sampled_from(spec.known.get(field, "ab-."))) for field in spec.fields]
    body = spec.literals[0] + "".join(value + after for value, after in zip(values, spec.literals[1:], strict=True))
    name = body + draw(st.sampled_from(spec.suffixes or ("",)))
    return spec, name if len(name) <= LONGEST else draw(names)


def check_readings(spec: Spec, name: str, kind: type[NamePattern]) -> None:
    pattern = spec.build(kind)
    expected = list(dict.fromkeys(spec.readings(name)))
    answer = pattern.parse(name)
    if len(expected) == 1:
        assert expected[0] == answer
        assert name == pattern.format(dict(expected[0].fields), expected[0].suffix)
        return
    assert isinstance(answer, NameProblem)
    assert (NameIssue.AMBIGUOUS if expected else NameIssue.NO_MATCH) is answer.problem
    assert min(2, len(expected)) == len(set(answer.readings))
    assert set(answer.readings) <= set(expected)


def check_values(spec: Spec, values: dict[str, str], which: int, kind: type[NamePattern]) -> None:
    """What is written is read back as it was, or as ambiguous; what is not allowed is not written."""
    pattern = spec.build(kind)
    suffix = pattern.suffixes[which % len(pattern.suffixes)]
    values = {field: values[field] for field in spec.fields}
    if not all(spec.allowed(*pair) for pair in values.items()):
        with pytest.raises(ArgumentError):
            pattern.format(values, suffix)
        return
    answer = pattern.parse(pattern.format(values, suffix))
    meant = ParsedName(tuple(values.items()), suffix)
    assert answer == meant or (isinstance(answer, NameProblem) and answer.problem is NameIssue.AMBIGUOUS)


@given(specs_with_names())
def test_a_name_is_read_as_brute_force_reads_it(drawn: tuple[Spec, str]) -> None:
    check_readings(*drawn, NamePattern)


@given(specs(), st.text("ab-.", min_size=1, max_size=3), st.integers(1, 400), names)
def test_the_work_of_reading_grows_with_the_name_only(spec: Spec, run: str, times: int, end: str) -> None:
    pattern = spec.build()
    name = run * times + end
    tries = len(spec.suffixes) + 1  # one reading needs each of them

    assert 60 * tries * (len(name) + 10) >= work_of(lambda: pattern.parse(name))


@given(specs(), st.fixed_dictionaries(dict.fromkeys(FIELDS, words)), st.integers(0, 1))
def test_what_is_written_is_read_back(spec: Spec, values: dict[str, str], which: int) -> None:
    check_values(spec, values, which, NamePattern)


def check_way_back(
    here: Spec, there: Spec, fresh: list[dict[str, str]], defaults: dict[str, str], kind: type[NameTranslation]
) -> None:
    source, target = here.build().for_subjects(), there.build().for_subjects()
    added = {field: defaults[field] for field in there.fields if field not in here.fields and field not in there.known}
    dropped = {field: defaults[field] for field in here.fields if field not in there.fields and field not in here.known}
    try:
        way = kind(source, target, defaults=added)
        back = kind(target, source, defaults=dropped) if way.is_injective else None
    except ArgumentError:
        reject()
    subjects = [
        source.format({field: values[field] for field in here.fields}, "-value")
        for values in fresh
        if all(here.allowed(field, values[field]) for field in here.fields)
    ]
    plan = way.resolve(subjects)
    # each subject is accounted for once, and no two share a translation
    told = [name for name, _ in plan.translated] + [one.name for one in plan.problems]
    told += [name for one in plan.collisions for name in one.names]
    assert sorted(set(subjects)) == sorted(told)
    for name, translated in plan.translated:
        assert translated.endswith("-value")
        meant, told_there = source.parse(name), target.parse(translated)
        assert isinstance(meant, ParsedName)
        assert isinstance(told_there, ParsedName)
        for field, value in told_there.fields:
            assert dict(meant.fields).get(field, added.get(field, value)) == value
    assert len({translated for _, translated in plan.translated}) == len(plan.translated)
    for one in plan.collisions:
        assert len(one.names) > 1
        assert {one.translated} == {way.translate(name) for name in one.names}
    if back is not None:
        assert plan.collisions == ()
        assert dict(plan.translated) == {back.translate(translated): translated for _, translated in plan.translated}


pairs = (
    specs(suffixes=False),
    specs(suffixes=False),
    st.lists(st.fixed_dictionaries(dict.fromkeys(FIELDS, words)), max_size=6),
    st.fixed_dictionaries({field: st.sampled_from(["a", "b"]) for field in FIELDS}),
)


@given(*pairs)
def test_there_and_back_is_the_same_name(
    here: Spec, there: Spec, fresh: list[dict[str, str]], defaults: dict[str, str]
) -> None:
    check_way_back(here, there, fresh, defaults, NameTranslation)


# Variants with a fault each: the checks have to find it


class FirstFieldIsGreedy(NamePattern):
    """Takes the longest value for each field from the left on, and never doubts."""

    def parse(self, name: str) -> ParsedName | NameProblem:
        readings = list(self._readings(name))
        return readings[-1] if readings else NameProblem(name, NameIssue.NO_MATCH)


class Guesses(NamePattern):
    """Takes the shortest values, and never says that there are others."""

    def parse(self, name: str) -> ParsedName | NameProblem:
        return next(iter(self._readings(name)), NameProblem(name, NameIssue.NO_MATCH))


class KnownIsPlain(NamePattern):
    """Lets no value have a separator, not even a known one."""

    def _known_stops(self, body: str, field: str, start: int) -> Iterator[int]:
        return (s for s in super()._known_stops(body, field, start) if not self._has_separator(body[start:s]))


class SuffixStays(NamePattern):
    """Reads the suffix as a part of the topic."""

    def _readings(self, name: str) -> Iterator[ParsedName]:
        return (
            ParsedName((*one.fields[:-1], (one.fields[-1][0], one.fields[-1][1] + one.suffix)))
            for one in super()._readings(name)
        )


class LosesTheSuffix(NameTranslation):
    """Translates the topic and forgets what stood behind it."""

    def translate(self, name: str) -> str | NameProblem:
        answer = super().translate(name)
        return answer if isinstance(answer, NameProblem) else answer.removesuffix("-value")


class TrustsTheTarget(NameTranslation):
    """Makes names that the target can read in several ways."""

    def translate(self, name: str) -> str | NameProblem:
        answer, parsed = super().translate(name), self.source.parse(name)
        if isinstance(answer, NameProblem) and answer.problem is NameIssue.AMBIGUOUS_THERE:
            assert isinstance(parsed, ParsedName)
            kept = {field: value for field, value in parsed.fields if field in self.target.fields}
            return self.target.format(kept | self._defaults, parsed.suffix)
        return answer


class LastOneWins(NameTranslation):
    """Lets one of several names that collide have the translation."""

    def resolve(self, names: Iterable[str]) -> ResolvedNames:
        plan = super().resolve(names)
        winners = tuple((one.names[-1], one.translated) for one in plan.collisions)
        return ResolvedNames((*plan.translated, *winners), (), plan.problems)


QUICK = settings(max_examples=3_000, phases=[Phase.generate], derandomize=True, database=None)


@pytest.mark.parametrize("broken", [FirstFieldIsGreedy, Guesses, KnownIsPlain, SuffixStays])
def test_a_pattern_with_a_fault_fails(broken: type[NamePattern]) -> None:
    check: Callable[[], None] = QUICK(
        given(specs_with_names())(lambda drawn: check_readings(drawn[0], drawn[1], broken))
    )
    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("broken", [LosesTheSuffix, TrustsTheTarget, LastOneWins])
def test_a_translation_with_a_fault_fails(broken: type[NameTranslation]) -> None:
    check: Callable[[], None] = QUICK(
        given(*pairs)(lambda here, there, fresh, defaults: check_way_back(here, there, fresh, defaults, broken))
    )
    with pytest.raises((AssertionError, ArgumentError)):
        check()
