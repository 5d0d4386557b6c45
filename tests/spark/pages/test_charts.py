"""The drawings: they are well-formed, they show what they were given, and thinning never hides a peak."""

from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.spark.pages.charts import Bar, Line, Mark, bars, nice_ceiling, panels, thinned

NASTY = '<b onload="x">&\'é\u2026'


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("text")]  # noqa: S314 - our own output


def with_class(svg: str, name: str) -> list[ET.Element]:
    return [e for e in ET.fromstring(svg).iter() if name in e.get("class", "").split()]  # noqa: S314 - our own output


def test_bars_are_as_long_as_their_values_and_marks_stand_at_the_ideal() -> None:
    drawn = bars([Bar("a", 10, 20, "ten"), Bar("b", 40, 20, "forty"), Bar("c", 0, 0, "none")], title="t")
    widths = [float(bar.attrib["width"]) for bar in with_class(drawn, "bar")]
    starts = [float(bar.attrib["x"]) for bar in with_class(drawn, "bar")]
    ideals = [float(mark.attrib["d"].split()[0][1:]) for mark in with_class(drawn, "ideal")]
    assert 4 * widths[0] == pytest.approx(widths[1])
    assert widths[2] == 0
    assert widths[1] / 2 == pytest.approx(ideals[0] - starts[0])
    assert ideals[0] == ideals[1]
    assert ["a", "ten", "b", "forty", "c", "none"] == texts(drawn)


def test_a_bar_without_an_ideal_has_no_mark_and_its_text_behind_it() -> None:
    drawn = bars([Bar("a", 10, None, "ten")], title="t")
    assert [] == with_class(drawn, "ideal")
    [bar], [text] = with_class(drawn, "bar"), with_class(drawn, "soft")
    assert float(bar.attrib["x"]) + float(bar.attrib["width"]) + 8 == float(text.attrib["x"])


def test_values_are_written_as_asked_for() -> None:
    drawn = panels([Line("a", ((0, 3), (1, 3)))], title="t", scale=lambda value: f"{value:.0f} <s>")
    assert ["a: at most 3 <s>", "0 <s>", "2 <s>", "4 <s>"] == texts(drawn)[:4]


def test_no_bars_are_an_empty_drawing() -> None:
    assert texts(bars([], title="t")) == []


def test_names_are_escaped_and_long_ones_shortened_with_the_whole_in_the_tooltip() -> None:
    drawn = bars([Bar(NASTY, 1, 1, NASTY)], title=NASTY) + panels(
        [Line(NASTY, ((0, 1),))], title=NASTY, marks=[Mark(0, NASTY)]
    )
    root = ET.fromstring(f"<all>{drawn}</all>")  # noqa: S314 - our own output
    assert [NASTY, NASTY] == [svg.attrib["aria-label"] for svg in root]
    assert [f"{NASTY}: {NASTY}", NASTY] == [title.text for title in root.iter("title")]
    assert NASTY[:10] + "…" == next(root.iter("text")).text


def test_panels_hold_a_value_until_the_next_and_share_their_axes() -> None:
    drawn = panels(
        [Line("a", ((0, 0), (50, 4), (100, 0))), Line("b", ((0, 2), (100, 2)))], title="t", unit=lambda t: f"{t:.0f} s"
    )
    first, second = (area.attrib["d"] for area in with_class(drawn, "area"))
    assert first.startswith("M64.0 108.0V108.0H386.0V28.0H708.0V108.0")
    assert second.startswith("M64.0 228.0V188.0H708.0")  # half as high on the same scale
    assert ["a: at most 4", "b: at most 2"] == [text for text in texts(drawn) if "at most" in text]
    assert ["0 s", "50 s", "100 s"] == texts(drawn)[-3:]


def test_a_mark_outside_the_points_widens_the_axis_and_stays_inside_the_drawing() -> None:
    drawn = panels([Line("a", ((10, 1), (20, 1)))], title="t", marks=[Mark(0, "early"), Mark(40, "late")])
    places = [float(mark.attrib["d"][1:].split()[0]) for mark in with_class(drawn, "mark")]
    assert [64.0, 708.0] == places
    labels = with_class(drawn, "note")
    assert ["note", "note end"] == [label.attrib["class"] for label in labels]
    assert labels[0].attrib["y"] != labels[1].attrib["y"]  # neighbours never write over one another


def test_a_line_of_one_point_and_a_line_of_none_are_no_error() -> None:
    drawn = panels([Line("none", ()), Line("one", ((5, 0),))], title="t")
    assert ["one: at most 0"] == [text for text in texts(drawn) if "at most" in text]
    assert ["no data"] == texts(panels([Line("none", ())], title="t"))


@given(st.lists(st.integers(0, 100), min_size=1, max_size=300), st.integers(4, 40))
def test_thinning_keeps_the_ends_the_extremes_and_the_order(values: list[int], limit: int) -> None:
    points = list(enumerate(values))
    kept = thinned(points, limit=limit)
    assert set(kept) <= set(points)
    assert all(a < b for a, b in pairwise(kept))
    assert (points[0], points[-1]) == (kept[0], kept[-1])
    assert {max(values), min(values)} <= {value for _, value in kept}
    assert len(kept) <= limit + 4


def test_many_points_of_one_moment_are_thinned_too() -> None:
    assert ((7, 0), (7, 99)) == thinned([(7, v) for v in range(100)], limit=4)


@given(st.floats(0, 1e12))
def test_an_axis_ends_at_a_round_number_not_far_above_the_value(value: float) -> None:
    end = nice_ceiling(value)
    assert value <= end
    assert end == 4 or end <= 2 * value
    assert end / 2 == int(end / 2)
