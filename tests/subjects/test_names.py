import pickle
from functools import partial
from typing import Any

import pytest
from tests.work import work_of

from keyshared.errors import ArgumentError
from keyshared.subjects import NameIssue, NamePattern, NameProblem, NameTranslation, ParsedName

FOUR = "{tenant}-{instance}-{environment}-{topic}"


def problem(answer: object) -> NameIssue:
    assert isinstance(answer, NameProblem)
    return answer.problem


def test_a_subject_of_the_source_is_renamed_for_a_cluster_without_instances() -> None:
    here = NamePattern.from_brackets("[tenant|instance|environment]-topic").for_subjects()
    there = NamePattern.from_brackets("[tenant|environment]-topic").for_subjects()
    renamed = NameTranslation(here, there).translate("tenant-instance-environment-mytopic-value")
    assert "tenant-environment-mytopic-value" == renamed


def test_users_know_only_the_last_field() -> None:
    technical = NamePattern(FOUR, known={"tenant": "t", "instance": "i", "environment": "e"})
    assert "t-i-e-mytopic" == NameTranslation(NamePattern("{topic}"), technical).translate("mytopic")
    assert "mytopic" == NameTranslation(technical, NamePattern("{topic}")).translate("t-i-e-mytopic")


def test_both_notations_are_one_pattern() -> None:
    assert NamePattern(FOUR) == NamePattern.from_brackets("[tenant|instance|environment]-topic")
    assert ("tenant", "instance", "environment", "topic") == NamePattern(FOUR).fields
    assert NamePattern("{a}.{b}.{c}") == NamePattern.from_brackets("a.[b|c]", separator=".")


def test_a_subject_has_one_of_the_suffixes_and_a_topic_none() -> None:
    topics = NamePattern("{topic}")
    assert ParsedName((("topic", "orders-key"),)) == topics.parse("orders-key")
    assert ParsedName((("topic", "orders"),), "-key") == topics.for_subjects().parse("orders-key")
    for name in ("orders", "-value", "com.acme.Order"):
        assert NameIssue.NO_MATCH is problem(topics.for_subjects().parse(name))


def test_constants_need_not_be_given_to_format() -> None:
    pattern = NamePattern(FOUR, known={"tenant": "acme", "instance": "eu", "environment": ["dev", "prod"]})
    assert "acme-eu-dev-t-key" == pattern.for_subjects().format({"topic": "t", "environment": "dev"}, "-key")
    assert ("acme", None, None) == tuple(pattern.constant(field) for field in ("tenant", "environment", "nothing"))


@pytest.mark.parametrize(
    ("values", "suffix", "parameter"),
    [
        ({"tenant": "a"}, "", "values['topic']"),
        ({"topic": "t"}, "", "values['tenant']"),
        ({"tenant": "a-b", "topic": "t"}, "", "values['tenant']"),
        ({"tenant": "a", "topic": ""}, "", "values['topic']"),
        ({"tenant": "a", "topic": 7}, "", "values['topic']"),
        ({"tenant": "a", "topic": "t", "site": "s"}, "", "values"),
        ({"tenant": "a", "topic": "t"}, "-value", "suffix"),
    ],
)
def test_what_cannot_be_read_back_is_not_written(values: dict[str, Any], suffix: str, parameter: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        NamePattern("{tenant}-{topic}").format(values, suffix)
    assert parameter == raised.value.parameter


def test_a_value_that_is_not_known_is_not_written() -> None:
    with pytest.raises(ArgumentError, match=r"be one of \('dev', 'prod'\)"):
        NamePattern("{env}", known={"env": ["dev", "prod"]}).format({"env": "test"})


@pytest.mark.parametrize(
    ("text", "options", "parameter"),
    [
        ("", {}, "text"),
        (7, {}, "text"),
        ("topic", {}, "text"),
        ("{a}-{a}", {}, "text"),
        ("{a}-{b", {}, "text"),
        ("{a}-{b c}", {}, "text"),
        ("{a}", {"known": {"b": "x"}}, "known"),
        ("{a}", {"known": {"a": ""}}, "known['a']"),
        ("{a}", {"known": {"a": []}}, "known['a']"),
        ("{a}", {"known": {"a": 7}}, "known['a']"),
        ("{a}", {"plain": ["b"]}, "plain"),
        ("{a}", {"plain": "a"}, "plain"),
        ("{a}-{b}", {"plain": ["a"], "known": {"a": "x"}}, "plain"),
        ("{a}", {"suffixes": "-key"}, "suffixes"),
        ("{a}", {"suffixes": 7}, "suffixes"),
        ("{a}", {"suffixes": ["-key", 7]}, "suffixes"),
    ],
)
def test_a_pattern_that_can_never_work_is_refused(text: Any, options: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        NamePattern(text, **options)
    assert parameter == raised.value.parameter


def test_a_pattern_tells_what_it_was_made_of() -> None:
    pattern = NamePattern.from_brackets("[tenant|instance|environment]-topic").for_subjects()
    assert (FOUR, ("tenant", "instance", "environment", "topic")) == (pattern.text, pattern.fields)
    assert ("-key", "-value") == pattern.suffixes


@pytest.mark.parametrize(
    "text", ["", "[a|b", "[a||b]", "[a|b]-", "a b", "{a}-b", "[a|b]c", "a[b]", "a-b[c]-d", "[a][b]", "[a|b].c"]
)
def test_brackets_hold_names_only(text: str) -> None:
    with pytest.raises(ArgumentError):
        NamePattern.from_brackets(text)


def test_what_stands_beside_a_bracket_is_not_taken_for_a_part_of_a_name() -> None:
    with pytest.raises(ArgumentError, match="have '-' between a bracket and what is beside it"):
        NamePattern.from_brackets("[tenant|instance]topic")
    assert "{a}-{b}-{c}-{d}" == NamePattern.from_brackets("a-[b|c]-[d]").text


def test_a_field_that_the_pattern_does_not_have_has_no_value() -> None:
    pattern = NamePattern("{topic}")
    assert (True, False) == (pattern.allows("topic", "x"), pattern.allows("nothing", "x"))
    parsed = pattern.parse("x")
    assert isinstance(parsed, ParsedName)
    with pytest.raises(KeyError, match="nothing"):
        parsed["nothing"]


def test_a_separator_is_not_empty() -> None:
    with pytest.raises(ArgumentError, match="separator"):
        NamePattern.from_brackets("[a|b]", separator="")


@pytest.mark.parametrize("name", ["", 7, None, b"a-b"])
def test_only_texts_are_names(name: Any) -> None:
    with pytest.raises(ArgumentError, match="name"):
        NamePattern("{a}").parse(name)


def test_equal_patterns_are_equal_and_survive_pickle() -> None:
    one = NamePattern("{a}-{b}", known={"a": ["x", "y"]}).for_subjects()
    other = NamePattern("{a}-{b}", known={"a": ["y", "x"]}, plain=(), suffixes=["-value", "-key"])
    assert one == other == pickle.loads(pickle.dumps(one))  # noqa: S301  # our own bytes
    assert {one} == {other}
    assert one != NamePattern("{a}-{b}")
    assert one != "{a}-{b}"
    assert eval(repr(one)) == one  # noqa: S307  # our own text


def test_a_hopeless_name_costs_no_exponential_time() -> None:
    pattern = NamePattern("-".join(f"{{f{n}}}" for n in range(12)) + "!", plain=())
    assert NameIssue.NO_MATCH is problem(pattern.parse("-a" * 60))


def test_a_field_that_is_added_has_the_default_or_the_constant_of_the_target() -> None:
    source, target = NamePattern("{topic}"), NamePattern("{site}-{topic}")
    assert "eu-t" == NameTranslation(source, target, defaults={"site": "eu"}).translate("t")
    assert "us-t" == NameTranslation(source, NamePattern("{site}-{topic}", known={"site": "us"})).translate("t")
    with pytest.raises(ArgumentError, match="site"):
        NameTranslation(source, target)
    with pytest.raises(ArgumentError, match="site"):
        NameTranslation(source, NamePattern("{site}-{topic}", known={"site": ["eu", "us"]}))


@pytest.mark.parametrize(
    ("source", "target", "defaults", "parameter"),
    [
        (NamePattern("{a}"), NamePattern("{a}"), {"a": "x"}, "defaults"),
        (NamePattern("{a}"), NamePattern("{b}-{a}"), {"b": "x-y"}, "defaults['b']"),
        (NamePattern("{a}"), NamePattern("{b}-{a}"), {"b": 7}, "defaults['b']"),
        (NamePattern("{a}", known={"a": "x"}), NamePattern("{a}", known={"a": "y"}), {}, "target.known['a']"),
        (NamePattern("{a}").for_subjects(), NamePattern("{a}"), {}, "target.suffixes"),
        (NamePattern("{a}"), NamePattern("{a}").for_subjects(), {}, "target.suffixes"),
        ("{a}", NamePattern("{a}"), {}, "source"),
        (NamePattern("{a}"), "{a}", {}, "target"),
    ],
)
def test_a_translation_that_can_never_work_is_refused(
    source: Any, target: Any, defaults: dict[str, Any], parameter: str
) -> None:
    with pytest.raises(ArgumentError) as raised:
        NameTranslation(source, target, defaults=defaults)
    assert parameter == raised.value.parameter


def test_a_name_that_the_source_cannot_read_is_not_translated() -> None:
    source = NamePattern("{tenant}-{topic}", plain=())
    translation = NameTranslation(source, NamePattern("{tenant}.{topic}"))
    assert NameIssue.NO_MATCH is problem(translation.translate("orders"))
    assert source.parse("a-b-c") == translation.translate("a-b-c")


def test_a_value_that_the_target_does_not_allow_is_named() -> None:
    translation = NameTranslation(NamePattern("{tenant}-{topic}"), NamePattern("{topic}-{tenant}"))
    assert NameProblem("a-b-c", NameIssue.NOT_ALLOWED, field="topic") == translation.translate("a-b-c")


def test_a_name_that_the_target_could_not_read_is_not_made() -> None:
    target = NamePattern("{env}-{topic}", known={"env": ["a", "a-b"]})
    answer = NameTranslation(NamePattern("{env}.{topic}"), target).translate("a.b-c")
    assert isinstance(answer, NameProblem)
    assert NameIssue.AMBIGUOUS_THERE == answer.problem
    assert {"a", "a-b"} == {one["env"] for one in answer.readings}


def test_a_dropped_field_makes_collisions_possible_unless_it_is_constant() -> None:
    target = NamePattern("{tenant}-{topic}")
    loose = NameTranslation(NamePattern("{tenant}-{instance}-{topic}"), target)
    fixed = NameTranslation(NamePattern("{tenant}-{instance}-{topic}", known={"instance": "eu"}), target)
    assert (("instance",), False, True) == (loose.dropped, loose.is_injective, fixed.is_injective)
    assert "a-eu-t" == fixed.inverse().translate("a-t")
    with pytest.raises(ArgumentError, match="instance"):
        loose.inverse()
    assert "a-us-t" == loose.inverse(defaults={"instance": "us"}).translate("a-t")


@pytest.mark.parametrize("names", ["abc", b"xyz", 7, ["a", ""], ["a", None]])
def test_a_set_of_names_holds_texts(names: Any) -> None:
    with pytest.raises(ArgumentError, match="names"):
        NameTranslation(NamePattern("{a}"), NamePattern("{a}")).resolve(names)


def test_a_translation_shows_what_it_is_made_of() -> None:
    translation = NameTranslation(NamePattern("{a}"), NamePattern("{b}.{a}"), defaults={"b": "x"})
    assert "NameTranslation(NamePattern('{a}', known={}, plain=[], suffixes=('',))" in repr(translation)
    assert (NamePattern("{a}"), NamePattern("{b}.{a}")) == (translation.source, translation.target)


def test_groups_are_translated_like_topics() -> None:
    known = {"tenant": "acme", "instance": "eu"}
    here, there = (
        NamePattern("{tenant}-{instance}-{environment}-{group}", known=known),
        NamePattern("{environment}_{group}"),
    )
    assert "prod_billing-app" == NameTranslation(here, there).translate("acme-eu-prod-billing-app")


def test_the_work_of_reading_a_name_grows_with_its_length_only() -> None:
    pattern = NamePattern("{a}{b}{c}{d}-x", plain=[])
    small, middle, large = (work_of(partial(pattern.parse, "-" * size)) for size in (500, 1_000, 1_500))

    assert 1.1 * (middle - small) > large - middle


@pytest.mark.no_cover
def test_a_pattern_of_many_fields_is_read_without_going_deep() -> None:
    pattern = NamePattern("-".join(f"{{f{number}}}" for number in range(1_500)))

    assert isinstance(pattern.parse("-".join("v" * 1_500)), ParsedName)
