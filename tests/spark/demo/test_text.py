"""The summary in a terminal: every figure is there, and columns stand below one another."""

import re

from tests.spark.replays.test_replay_report import full, report

from keyshared.spark.demo.text import columns, summary


def test_every_figure_of_the_report_is_told() -> None:
    text = summary(full())
    for told in ("336,776", "4,043", "2,512", "337,000", "224", "168,388 messages a second", "1 min 1 s"):
        assert told in text
    for told in ("c1 → c2", "c1 leaves", "c9 joins", "one-holder", "+1.0%", "412", "10.2%", "10.0%", "1 d 1 h"):
        assert told in text
    for told in ("1,024 buckets, 2 consumers", "46865", "1,575", "1.75", "chot", "1,175", "68 slots carry more"):
        assert told in text
    [equal] = [line for line in text.splitlines() if line.startswith("  equal widths")]
    assert ["1.50", "1.02"] == equal.split()[-2:]


def test_a_report_that_compares_no_boundaries_has_no_such_section() -> None:
    assert "bucket" not in summary(report())


def test_columns_stand_below_one_another_numbers_to_the_right() -> None:
    lines = columns([("key", "messages", "who"), ("a", "1", "x → y"), ("long key", "1,000", "z")], left=(0, 2))
    assert [
        "  key       messages  who",
        "  a                1  x → y",
        "  long key     1,000  z",
    ] == lines.splitlines()


def test_cells_that_are_too_long_are_cut() -> None:
    assert "  abcd…  1\n" == columns([("abcdef", "1")], widest=5)


def test_a_report_of_nothing_is_told_without_a_division_by_zero() -> None:
    text = summary(report(messages=0, deliveries=0))
    assert re.search("largest backlog +0\n", text)


def test_a_change_before_any_key_has_no_share() -> None:
    [joins] = [line for line in summary(full()).splitlines() if line.startswith("  c9 joins")]
    assert ["c9", "joins", "7.0", "s", "0", "0", "10.0%"] == joins.split()


def test_no_line_is_wider_than_a_terminal_allows() -> None:
    wordy = report(source="many words " * 90, hot_keys=full().hot_keys)
    assert max(map(len, summary(wordy).splitlines())) <= 110
