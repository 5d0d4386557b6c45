"""Files of plans: what is in them, what is wrong with them, and the ones that the guide shows."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from keyshared.errors import ArgumentError, MissingExtraError
from keyshared.simulate import Crash, Fixed
from keyshared.spark import load_plan, load_plans

GUIDE = Path(__file__).parents[3] / "docs" / "spark-plans.md"
TOML = 'consumers = [{ name = "c", count = 2, service = "20 ms" }]\n'


def shown(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_a_toml_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "two.TOML").write_text(TOML)
    plan = load_plan(tmp_path / "two.TOML")
    assert [("c1", Fixed(20)), ("c2", Fixed(20))] == [(each.name, each.service) for each in plan.consumers]


def test_plans_are_named_by_themselves_or_by_their_files(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TOML)
    (tmp_path / "other.toml").write_text(f'name = "of my own"\n{TOML}')
    plans = load_plans([str(tmp_path / "two.toml"), tmp_path / "other.toml"])
    assert ["two", "of my own"] == [*plans]
    assert plans["two"] == plans["of my own"]


def test_the_plans_of_the_guide_are_read_and_the_one_in_yaml_is_the_same(tmp_path: Path) -> None:
    today, *_ = shown("toml")
    (tmp_path / "today.toml").write_text(today)
    plan = load_plan(tmp_path / "today.toml")
    assert {"c4", "c9"} <= {getattr(change, "name", "c9") for change in plan.changes}
    assert any(isinstance(change, Crash) for change in plan.changes)
    pytest.importorskip("yaml")
    (tmp_path / "today.yaml").write_text(shown("yaml")[0])
    assert plan == load_plan(tmp_path / "today.yaml")


@pytest.mark.parametrize("number", range(1, 3))
def test_every_plan_of_the_guide_is_read(tmp_path: Path, number: int) -> None:
    texts = shown("toml")
    assert 2 <= len(texts)
    if number < len(texts):
        (tmp_path / "plan.toml").write_text(texts[number])
        assert load_plan(tmp_path / "plan.toml").consumers


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", "{}", "plan is 'a.json'; it must be a file that ends in .toml, .yaml, .yml"),
        ("a.toml", "x = ", "plan is 'a.toml'; it must hold TOML that can be read: Invalid value (at end of document)"),
        ("a.toml", "x = 1\nx = 2", "plan is 'a.toml'; it must hold TOML that can be read: Cannot overwrite a value"),
        (
            "a.toml",
            'consumers = [{ name = "c", limits = 3 }]',
            "a.toml: a key of consumers[0] is 'limits'; it must be a kn",
        ),
        ("a.toml", "[config.retry]\nbase_delay_ms = -3", "a.toml: config.retry.base_delay_ms is -3; it must be an int"),
        ("a.toml", "name = 3", "a.toml: name is 3; it must be"),
        ("a.toml", b"\xff", "plan is 'a.toml'; it must be a file of UTF-8 text that can be read"),
    ],
)
def test_what_is_wrong_is_told_with_the_file_and_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | bytes, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ArgumentError) as caught:
        load_plan(name)
    assert str(caught.value).startswith(told)


def test_a_file_that_is_not_there_is_told_with_the_one_that_comes_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "today.toml").write_text(TOML)
    with pytest.raises(ArgumentError, match=r"plan is 'tody.toml'; it must be a file that exists; did you mean today"):
        load_plan("tody.toml")
    with pytest.raises(ArgumentError, match=r"plan is 'none/tody.toml'; it must be a file that exists$"):
        load_plan("none/tody.toml")
    with pytest.raises(ArgumentError, match=r"path is 5; it must be the path of a file"):
        load_plan(5)  # type: ignore[arg-type]


def test_two_plans_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "plan.toml").write_text(TOML)
    with pytest.raises(ArgumentError, match=r"b/plan.toml: name is 'plan'; it must be another one than in the files"):
        load_plans([tmp_path / "a" / "plan.toml", tmp_path / "b" / "plan.toml"])
    with pytest.raises(ArgumentError, match=r"paths is \[\]; it must name at least one file"):
        load_plans([])
    with pytest.raises(ArgumentError, match="paths is 'plan"):
        load_plans("plan.toml")


def test_a_yaml_file_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "a.yml").write_text("consumers: []")
    with pytest.raises(MissingExtraError, match=r"needs the package 'yaml'.*install keyshared\[yaml\]"):
        load_plan(tmp_path / "a.yml")


def test_numbers_in_yaml_are_those_of_toml_and_what_stands_in_quotes_is_text(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "a.yaml").write_text(
        "name: '1:30'\nuntil_ms: 1_000\nconsumers: [{name: \"010\", weight: 0.5, limit: 0x10, service: 0}]"
    )
    plan = load_plans([tmp_path / "a.yaml"])["1:30"]
    [consumer] = plan.consumers
    assert (1_000, "010", 0.5, 16, Fixed(0)) == (
        plan.until_ms,
        consumer.name,
        consumer.weight,
        consumer.limit,
        consumer.service,
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("consumers: [", "it must hold YAML that can be read: while parsing a flow node"),
        ("- a", "a.yaml is ['a']; it must hold keys and values, such as a list of consumers"),
        ("", "a.yaml is None; it must hold keys and values"),
        ("consumers:\n- name: a\n  limit: 1\n  limit: 2", "a.yaml: a key is 'limit'; it must stand once in the table "),
        ("consumers: &x [{name: a}]\nchanges: *x", "a.yaml: changes[0].kind is None; it must be one of join"),
        ("name: no\nconsumers: []", "a.yaml: name is False; it must be"),
        (
            "consumers: []\nuntil_ms: 12:30:00",
            "a.yaml: a number in line 2 is '12:30:00'; it must be a decimal number, or stand in quotes: in YAML ",
        ),
        ("until_ms: 1:30.5", "a number in line 1 is '1:30.5'; it must be a decimal number"),
        ("consumers:\n- name: a\n  count: 010", "a number in line 3 is '010'; it must be a decimal number, or stand"),
        ("answers:\n- keys: [k, 007]", "in YAML 007 is 7"),
        ("{010: 1}", "a number in line 1 is '010'"),
        ("x: !!python/object:os.system {}", "it must hold YAML that can be read: could not determine a constructor"),
    ],
)
def test_what_is_wrong_in_yaml_is_told_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(text)
    with pytest.raises(ArgumentError) as caught:
        load_plan("a.yaml")
    assert told in str(caught.value)
