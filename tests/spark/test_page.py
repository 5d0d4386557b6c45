"""Parts of a page: times for people, tables of anything."""

import pytest

from keyshared.spark.page import Ms, Part, clipped, duration, section, table


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


def test_numbers_stand_to_the_right_and_text_is_text() -> None:
    assert (
        '<div class="table"><table><thead><tr><th>a&lt;</th><th class="number">n</th><th class="number">t</th>'
        '<th class="number">p</th></tr></thead><tbody><tr><td>&lt;b&gt;</td><td class="number">1,234</td>'
        '<td class="number">2.5 s</td><td class="number">3 %</td></tr></tbody></table></div>'
    ) == table(("a<", "n", "t", "p"), [("<b>", 1_234, Ms(2_500), Part("3 %"))])


def test_a_table_without_rows_says_so() -> None:
    assert '<p class="soft">none</p>' == table(("a",), [])


def test_a_long_key_is_clipped_and_a_short_one_is_not() -> None:
    assert "k" * 80 == clipped("k" * 80)
    assert "k" * 79 + "…" == clipped("k" * 81)


def test_a_section_has_its_headline_its_note_and_its_content() -> None:
    assert "<section><h2>T</h2><p>a &lt; b</p><p>x</p></section>" == section("T", "a < b", "<p>x</p>")
