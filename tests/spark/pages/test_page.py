"""Parts of a page: times for people, tables of anything."""

import re
import sys
from importlib.resources import files
from pathlib import Path

import pytest

pytest.importorskip("altair")
from keyshared.errors import ArgumentError, MissingExtraError
from keyshared.spark.pages.clock import Clock
from keyshared.spark.pages.page import Figure, Ms, as_html, as_text, checked_target, clipped, duration, listed
from keyshared.spark.pages.parts import Bar, Bars, Facts, Page, Section, Table, Verdict, promises


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999.4, "999 ms"),
        (999.6, "1.0 s"),
        (2_500, "2.5 s"),
        (59_990, "59.9 s"),
        (60_000, "1 min"),
        (3_661_000, "1 h 1 min"),
        (86_400_000, "1 d"),
        (31_536_000_000, "365 d"),
    ],
)
def test_durations_are_written_in_at_most_two_units(milliseconds: float, text: str) -> None:
    assert text == duration(milliseconds)


@pytest.mark.parametrize(
    ("clock", "span_ms", "text"),
    [
        (Clock(), 0, "after 1 min 1 s"),
        (Clock(1_368_328_500_123), 86_400_000, "2013-05-12 03:16"),
        (Clock(1_368_328_500_123), 60_000, "2013-05-12 03:16:01.123"),
        (Clock(253_402_300_799_000), 0, "after 1 min 1 s"),  # the year 10000 is no date
    ],
)
def test_times_are_those_of_the_calendar_where_the_log_has_one(clock: Clock, span_ms: int, text: str) -> None:
    assert text == clock.told(61_000, span_ms=span_ms)


@pytest.mark.parametrize("epoch_ms", [-62_135_596_800_001, 253_402_300_800_000])
def test_a_beginning_that_is_no_date_is_refused(epoch_ms: int) -> None:
    with pytest.raises(ArgumentError, match="epoch_ms is"):
        Clock(epoch_ms)


def body(*parts: Facts | Section, title: str = "T", about: str = "", verdicts: tuple[Verdict, ...] = ()) -> str:
    return as_html(Page(title, about, verdicts, parts)).partition("<main>")[2].partition("</main>")[0].replace("\n", "")


def test_numbers_stand_to_the_right_text_is_text_and_what_differs_is_marked() -> None:
    table = Table("&c", ("a<", "n", "t", "p"), (("<b>", 1_234, Ms(2_500), Figure("3 %", 0.03)),), frozenset({(0, 3)}))
    assert (
        '<div class="table" role="region" aria-label="&amp;c" tabindex="0"><table><caption>&amp;c</caption>'
        '<thead><tr><th scope="col">a&lt;</th><th scope="col" class="number">n</th>'
        '<th scope="col" class="number">t</th><th scope="col" class="number">p</th></tr></thead>'
        '<tbody><tr><td>&lt;b&gt;</td><td class="number">1,234</td><td class="number">2.5 s</td>'
        '<td class="number"><mark>3 %</mark></td></tr></tbody></table></div>'
    ) in body(Section("s", "n", (table,)))


def test_a_table_without_rows_and_a_chart_without_data_say_so() -> None:
    made = body(Section("s", "n", (Table("c&", ("a",), ()), Bars("d&", ()))))
    assert '<p class="soft">c&amp;: none</p><p class="soft">d&amp;: no data</p>' in made


def test_a_long_key_is_clipped_and_a_short_one_is_not() -> None:
    assert "k" * 80 == clipped("k" * 80)
    assert "k" * 79 + "…" == clipped("k" * 81)


def test_a_section_has_its_headline_its_note_and_its_content() -> None:
    made = body(Section("T&", "a < b", (Facts((("a&", "<1"),)),)))
    facts = '<dl class="numbers"><div><dt>a&amp;</dt><dd>&lt;1</dd></div></dl>'
    assert f"<section><h2>T&amp;</h2><p>a &lt; b</p>{facts}</section>" in made


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"order-1", "order-1"),
        ("é €".encode(), "é €"),
        (b"\xff\x00\n", "\\xff\\x00\\n"),
        ("abc\u202edef".encode(), "abc\\u202edef"),  # would turn around what is written after it
        (b"", ""),
    ],
)
def test_every_key_is_written_as_text_that_can_be_seen(key: bytes, text: str) -> None:
    assert text == as_text(key)


def test_a_list_of_names_ends_after_the_eighth() -> None:
    names = [str(i) for i in range(9)]
    assert "0, 1, 2, 3, 4, 5, 6, 7 and 1 more" == listed(names)
    assert "0-1-2-3-4-5-6-7" == listed(names[:8], "-")
    assert "" == listed([])


def test_a_header_without_a_word_about_it_has_no_empty_paragraph() -> None:
    assert "<header><h1>&lt;T&gt;</h1><p>a&amp;b</p></header>" == body(title="<T>", about="a&b")
    assert "<header><h1>T</h1></header>" == body()


def test_every_verdict_stands_in_the_header_with_its_reason() -> None:
    made = body(verdicts=(Verdict("good", "in <order>"), Verdict("bad", "not enough", "because & so")))
    assert (
        '<p class="verdict good">in &lt;order&gt;</p><p class="verdict bad">not enough</p><p>because &amp; so</p>'
    ) in made


def test_a_chart_is_named_and_its_names_cannot_end_the_element_in_which_it_stands() -> None:
    made = body(Section("s", "n", (Bars("load <b>", (Bar("</script><!--", 1, None, "<b>"),)),)))
    assert '<p class="over" aria-hidden="true">load &lt;b&gt;</p>' in made
    assert '<div class="chart" role="img" aria-label="load &lt;b&gt;"><script type="application/json">{' in made
    assert 1 == made.count("</script")
    assert "<!--" not in made


def test_a_page_without_charts_has_no_script_and_allows_none() -> None:
    made = as_html(Page("t", "", (), ()))
    assert "script-src 'none';" in made
    assert "<script" not in made


@pytest.mark.parametrize("package", ["altair", "jinja2", "vl_convert"])
def test_without_the_packages_that_draw_pages_a_target_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for ask in (lambda: checked_target(tmp_path / "page.html"), lambda: as_html(Page("t", "", (), ()))):
        with pytest.raises(MissingExtraError, match=r"install keyshared\[demo\]"):
            ask()


@pytest.mark.parametrize(
    ("violations", "unjudged", "told", "item"),
    [
        ([("fence", 0)], [], "every promise kept", '<li class="good">fence <b>0</b></li>'),
        ([("fence", 1_000)], ["fence"], "1,000 violations", '<li class="bad">fence <b>1,000</b></li>'),
        ([("fence", 0)], ["fence"], "not everything could be judged", '<li class="open">fence <b>not judged</b></li>'),
    ],
)
def test_a_verdict_is_no_better_than_what_was_judged(
    violations: list[tuple[str, int]], unjudged: list[str], told: str, item: str
) -> None:
    made = body(verdicts=(promises(violations, unjudged),))
    assert told in made
    assert item in made
    assert ("every promise kept" == told) == ("every promise kept" in made)


@pytest.mark.parametrize("path", ["", "nowhere/page.html", "."])
def test_a_place_where_no_page_can_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError) as raised:
        checked_target(path)
    assert "path" == raised.value.parameter
    assert tmp_path / "page.html" == checked_target(tmp_path / "page.html")


STYLE = (files("keyshared.spark.pages") / "page.css").read_text(encoding="utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+):(#[0-9a-f]+)", block)) for block in re.findall(r":root\{(.*?)\}", STYLE, re.DOTALL)
)


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 has it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, {**LIGHT, **DARK}], ids=["light", "dark"])
def test_text_and_drawings_stand_out_as_wcag_asks(colours: dict[str, str]) -> None:
    for text in ("text", "soft", "good", "bad", "open"):
        for ground in ("page", "tile"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast(colours["bar"], colours["page"]) >= 4.5  # links
    for mood in ("good", "bad", "open"):
        assert contrast(colours[mood], colours[f"{mood}-back"]) >= 4.5, mood
    for drawn in ("bar", "ideal", *(f"c{i}" for i in range(8)), *(f"state{i}" for i in range(4))):
        assert contrast(colours[drawn], colours["page"]) >= 3, drawn
