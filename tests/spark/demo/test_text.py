"""The summary in a terminal: every figure is there, and columns stand below one another."""

import io
import re
import subprocess
import sys

import pytest

pytest.importorskip("rich")
from rich.console import RenderableType
from tests.spark.replays.test_replay_report import full, report

from keyshared.spark.demo.text import columns, summary, tell


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def plain(*parts: RenderableType) -> str:
    """What a file gets."""
    out = io.StringIO()
    tell(out, *parts)
    return out.getvalue()


def test_every_figure_of_the_report_is_told() -> None:
    text = plain(summary(full()))
    for told in ("336,776", "4,043", "2,512", "337,000", "224", "168,388 messages a second", "1 min 1 s"):
        assert told in text
    for told in ("c1 → c2", "c1 leaves", "c9 joins", "one-holder", "+1.0%", "412", "10.2%", "10.0%", "1 d 1 h"):
        assert told in text
    for told in ("1,024 buckets, 2 consumers", "46865", "1,575", "1.75", "chot", "1,175", "68 slots carry more"):
        assert told in text
    [equal] = [line for line in text.splitlines() if line.startswith("  equal widths")]
    assert ["1.50", "1.02"] == equal.split()[-2:]


def test_what_was_not_judged_is_told_and_why() -> None:
    violations = (("key-order", 0), ("no-loss", 0))
    text = plain(summary(report(violations=violations, unjudged={"no-loss": "the plan ends early"})))
    assert ["no-loss not judged", "key-order 0"] == [
        " ".join(line.split())
        for name in ("no-loss", "key-order")
        for line in text.splitlines()
        if line.startswith(f"  {name}")
    ]
    assert "no-loss was not judged: the plan ends early" in text


def test_a_report_that_compares_no_boundaries_has_no_such_section() -> None:
    assert "bucket" not in plain(summary(report()))


def test_columns_stand_below_one_another_numbers_to_the_right() -> None:
    rows = [("a", "1", "x → y"), ("long key", "1,000", "z")]
    lines = plain(columns(rows, heads=("key", "messages", "who"), left=(0, 2)))
    assert [
        "  key       messages  who",
        "  a                1  x → y",
        "  long key     1,000  z",
    ] == lines.splitlines()


def test_cells_that_are_too_long_are_cut() -> None:
    assert "  abcd…  1\n" == plain(columns([("abcdef", "1")], widest=5))


def test_a_report_of_nothing_is_told_without_a_division_by_zero() -> None:
    text = plain(summary(report(messages=0, deliveries=0)))
    assert re.search("largest backlog +0\n", text)


def test_a_change_before_any_key_has_no_share() -> None:
    [joins] = [line for line in plain(summary(full())).splitlines() if line.startswith("  c9 joins")]
    assert ["c9", "joins", "7.0", "s", "0", "0", "10.0%"] == joins.split()


def test_no_line_is_wider_than_a_terminal_allows() -> None:
    wordy = report(source="many words " * 90, hot_keys=full().hot_keys)
    assert max(map(len, plain(summary(wordy)).splitlines())) <= 110


def test_what_looks_like_markup_is_text() -> None:
    assert "  [red]a[/red] :smile:\n" == plain(columns([("[red]a[/red] :smile:",)]))


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"])
def test_a_file_gets_the_same_whatever_the_environment_says_of_the_terminal(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = plain(summary(full()))
    monkeypatch.setenv(variable, "1")
    assert before == plain(summary(full()))
    assert "\x1b" not in before
    assert [] == [line for line in before.splitlines() if line != line.rstrip()]


def test_a_terminal_gets_colours_and_no_line_that_is_wider_than_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Terminal()
    tell(screen, summary(full()))
    assert "\x1b[" in screen.getvalue()
    assert 60 >= max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in screen.getvalue().splitlines())


def test_without_rich_the_error_names_the_extra_of_the_demo() -> None:
    code = "import sys; sys.modules['rich'] = None; import keyshared.spark; import keyshared.spark.demo"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert 1 == ran.returncode
    assert ran.stderr.endswith("this needs the package 'rich', which is not installed; install keyshared[demo]\n")
