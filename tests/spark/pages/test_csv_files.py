"""Figures as files: read back by what knows nothing of how they were written. No Spark, no drawing."""

import csv
import io
import re
from fractions import Fraction
from urllib.parse import unquote
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.spark.pages.clock import Clock
from keyshared.spark.pages.csv_files import address, charted, csv_text, file_name
from keyshared.spark.pages.page import Figure, Ms, named, off, share
from keyshared.spark.pages.parts import Bar, Bars, Heat, Line, Lines, Span, Table, Timelines, Unit

FORMULAS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def read(table: Table) -> list[list[str]]:
    return list(csv.reader(io.StringIO(csv_text(table).removeprefix("\ufeff"), newline=""), strict=True))


def test_figures_are_exact_where_the_page_is_short() -> None:
    rows = (
        ("a", 1_234, Ms(61_001), share(1, 3), off(3, 4), Figure("1.33", float(Fraction(4, 3))), named("k" * 1_001)),
        ("b", -5, Ms(0), share(1, 0), off(3, 0), Figure("2", 2.0), named("k")),
    )
    table = Table("c", ("n", "count", "wait", "of all", "off", "ratio", "key"), rows)
    assert [
        ["n", "count", "wait (ms)", "of all", "off", "ratio", "key"],
        ["a", "1234", "61001", "0.333333", "-0.25", "1.33333", "k" * 1_000],
        ["b", "-5", "0", "", "", "2", "k"],
    ] == read(table)


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\rx", "\nx", "\uff1d1", '=cmd|" /C"!A0']
)
def test_what_a_spreadsheet_would_run_is_text(text: str) -> None:
    table = Table("c", (text,), ((text,), (named(text),), (Figure(text, text, number=False),)))
    assert [[f"'{text}"]] * 4 == read(table)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_any_text_comes_back_from_the_address_of_the_file(texts: list[str]) -> None:
    link = address(csv_text(Table("c", ("key",), tuple((text,) for text in texts))))
    assert not re.search(r"[\s<>\"'&/]", link.removeprefix("data:text/csv"))
    with urlopen(link) as file:  # noqa: S310 - the address is the file
        found = list(csv.reader(io.StringIO(file.read().decode("utf-8-sig"), newline=""), strict=True))
    assert len(texts) + 1 == len(found)
    for text, (told,) in zip(texts, found[1:], strict=True):
        assert told in {text, f"'{text}"}
        assert not told.lstrip().startswith(FORMULAS)


def test_charts_over_time_are_tables_with_a_column_for_each_name() -> None:
    lines = Lines(
        about="w", lines=(Line("p99", ((0, 1.5), (10, 2))), Line("p50", ((10, 1),))), unit=Unit.DURATION, value="wait"
    )
    found = charted(lines)
    assert found is not None
    assert [["at (ms after the start)", "p99 (ms)", "p50 (ms)"], ["0", "1.5", ""], ["10", "2", "1"]] == read(found)
    heat = charted(Heat(about="h", rows=(Line("a", ((0, 0.5),)),), width_ms=1, value="v", clock=Clock(7)))
    assert heat is not None
    assert [["at (UTC)", "a"], ["1970-01-01 00:00:00.007", "0.5"]] == read(heat)
    spans = charted(Timelines(about="t", spans=(Span("a", 0, 9, "up"),), states=("up",)))
    assert spans is not None
    assert ["a", "up", "0", "9"] == read(spans)[1]
    over = charted(Lines(about="b", lines=(Line("x", ((65_536, 1),)),), value="v", clock=None, over="bucket hash"))
    assert over is not None
    assert [["bucket hash", "x"], ["65536", "1"]] == read(over)
    assert charted(Bars("b", (Bar("a", 1, None, "1"),))) is None  # a table below has them


def test_a_line_has_the_points_that_are_drawn_and_no_more() -> None:
    found = charted(Lines(about="l", lines=(Line("a", tuple((t, t % 97) for t in range(20_000))),), value="v"))
    assert found is not None
    assert len(found.rows) <= 724


@pytest.mark.parametrize(
    ("title", "caption", "name"),
    [
        ("Replay", "Keys with most messages", "replay-keys-with-most-messages.csv"),
        ("../../etc", "a/b\\c: d", "etc-a-b-c-d.csv"),
        ("</a>", "é", "a.csv"),
        ("t", "Lag of key order:1,2 over time, at most 3 messages", "t-lag-of-key-order-1-2-over-time.csv"),
        ("t", "Wait over time, p99 at most 1 min", "t-wait-over-time.csv"),
        ("x" * 500, "y" * 500, f"{'x' * 60}-{'y' * 120}.csv"),
    ],
)
def test_files_have_names_that_every_system_takes(title: str, caption: str, name: str) -> None:
    assert name == file_name(title, caption)


def test_an_address_holds_the_text_as_it_is() -> None:
    assert "a,b\n€\n" == unquote(address("a,b\n€\n").partition(",")[2])
