"""The charts: they show what they were given, and thinning never hides a peak. Altair checks each against Vega-Lite."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("altair")
from keyshared.spark.pages.charts import chart
from keyshared.spark.pages.clock import Clock
from keyshared.spark.pages.parts import Bar, Bars, Heat, Line, Lines, Mark, Span, Timelines, Unit
from keyshared.spark.pages.thinning import thinned

HOUR = 3_600_000


def drawn(part: Bars | Heat | Lines | Timelines) -> tuple[dict[str, Any], dict[str, Any]]:
    made: dict[str, Any] = chart(part)
    return made["spec"], made["data"]


def fields(spec: dict[str, Any], channel: str) -> list[object]:
    return [layer["encoding"].get(channel, {}).get("field") for layer in spec["layer"]]


def test_bars_are_as_long_as_their_values_and_marks_stand_at_the_ideal() -> None:
    spec, data = drawn(Bars("t", (Bar("a", 10, 20, "ten"), Bar("b", 40, None, "forty"))))
    bars = data["bars"]
    assert (["a", "b"], [10, 40], [20, None]) == (bars["label"], bars["value"], bars["ideal"])
    assert (["ten", "forty"], [20, 40]) == (bars["text"], bars["end"])  # what is written stands behind bar and mark
    assert ["value", "end", "ideal"] == fields(spec, "x")
    assert 54 == spec["layer"][0]["encoding"]["x"]["scale"]["domain"][1]


def test_bars_without_an_ideal_have_no_mark_and_very_many_no_texts() -> None:
    spec, _ = drawn(Bars("t", tuple(Bar(str(i), i, None, "") for i in range(41))))
    assert ["value"] == fields(spec, "x")


def test_bars_of_nothing_have_an_axis_all_the_same() -> None:
    spec, _ = drawn(Bars("t", (Bar("a", 0, None, "0"),)))
    assert [0, 1] == spec["layer"][0]["encoding"]["x"]["scale"]["domain"]


def test_times_and_durations_are_in_units_that_people_read() -> None:
    lines = (Line("a", ((0, HOUR), (3 * HOUR, 2 * HOUR))), Line("none", ()))
    spec, data = drawn(Lines(about="t", lines=lines, unit=Unit.DURATION, value="wait"))
    assert {"label": ["a", "a"], "at": [0, 3], "value": [1, 2]} == data["lines"]
    encoding = spec["layer"][0]["encoding"]
    assert ("hours after the start", "wait, hours") == (encoding["x"]["axis"]["title"], encoding["y"]["axis"]["title"])
    assert ["a"] == encoding["color"]["scale"]["domain"]


def test_times_of_the_calendar_are_drawn_as_utc() -> None:
    part = Lines(about="t", lines=(Line("a", ((5, 1),)),), value="messages", clock=Clock(1_368_328_500_000))
    spec, data = drawn(part)
    assert [1_368_328_500_005] == data["lines"]["at"]
    x = spec["layer"][0]["encoding"]["x"]
    assert ("temporal", "utc", "UTC") == (x["type"], x["scale"]["type"], x["axis"]["title"])


def test_what_is_no_time_is_left_as_it_is() -> None:
    part = Lines(about="t", lines=(Line("a", ((0, 1), (65_536, 2))),), value="m", clock=None, over="bucket hash")
    spec, data = drawn(part)
    assert [0, 65_536] == data["lines"]["at"]
    assert "bucket hash" == spec["layer"][0]["encoding"]["x"]["axis"]["title"]


def test_a_mark_outside_the_points_widens_the_axis_and_neighbours_write_on_different_lines() -> None:
    marks = (Mark(0, "early"), Mark(40, "late"))
    spec, data = drawn(Lines(about="t", lines=(Line("a", ((10, 1), (20, 1))),), marks=marks, value="m"))
    assert [0, 40] == data["ends"]["at"]
    assert "ends" in [layer.get("data", {}).get("name") for layer in spec["layer"]]
    marked = {"at": [0, 40], "late": [False, True], "what": ["early", "late"], "number": ["1", "\n2"]}
    assert marked == data["marks"]  # the number of a late one stands before it


def test_heat_leaves_out_what_is_nothing_keeps_its_row_and_marks_what_is_full() -> None:
    rows = (Line("a", ((0, 0.5), (10, 0))), Line("b", ((0, 0),)))
    part = Heat(about="t", rows=rows, width_ms=10, unit=Unit.SHARE, value="busy", most=1, full=0.95)
    spec, data = drawn(part)
    grid = {"label": ["a", "b"], "at": [0, 10], "until": [10, 20], "value": [[0.5, 0], [0, 0]]}
    assert grid == data["heat"]  # the page draws nothing for 0
    encoding = spec["layer"][0]["encoding"]
    assert ["a", "b"] == encoding["y"]["scale"]["domain"]
    assert [0, 1] == encoding["opacity"]["scale"]["domain"]
    assert "datum.value >= 0.95" == encoding["color"]["condition"][0]["test"]


def test_heat_of_nothing_but_zeros_is_empty() -> None:
    assert Heat(about="t", rows=(Line("a", ((0, 0),)),), width_ms=1, value="m").empty


def test_timelines_show_each_state_with_a_colour_of_its_own() -> None:
    spans = (Span("a", 0, 10, "up"), Span("b", 0, 5, "up"), Span("b", 5, 10, "away"))
    spec, data = drawn(Timelines(about="t", spans=spans, states=("up", "draining", "away")))
    assert (["a", "b", "b"], ["up", "up", "away"]) == (data["spans"]["label"], data["spans"]["state"])
    colour = spec["layer"][0]["encoding"]["color"]["scale"]
    assert {"up": "var(--state0)", "draining": "var(--state1)", "away": "var(--state2)"} == dict(
        zip(colour["domain"], colour["range"], strict=True)
    )


def test_charts_name_no_address() -> None:
    spec, _ = drawn(Bars("t", (Bar("a", 1, None, "1"),)))
    assert {"$schema", "config"}.isdisjoint(spec)


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
