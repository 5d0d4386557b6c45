"""Charts as Vega-Lite specifications, made by Altair; their data goes beside them, column by column.

Colours are variables of the page's style sheet, so that a chart follows light, dark and print. A chart is as wide as
the page: the script of the page draws it again when that changes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import altair as alt

from keyshared.spark.pages.clock import Clock
from keyshared.spark.pages.page import DAY_MS, MINUTE_MS
from keyshared.spark.pages.parts import Bars, ChartPart, Heat, Line, Lines, Mark, Timelines, Unit
from keyshared.spark.pages.thinning import thinned

__all__ = ["chart"]

Columns: TypeAlias = Mapping[str, Sequence[object]]

_DIGITS: Final = 4  # of a value: more cannot be seen, and take room
_HEIGHT: Final = 220
_SHORT_FROM: Final = 10_000  # an axis says 20k
_MARK_LINES: Final = 3
_END: Final = 0.1  # of the time
_NARROW: Final = 350
_SHORT_NAME: Final = 12
_COLOURS: Final = 8
_AUTOSIZE: Final = {"type": "fit-x", "contains": "padding"}
_BAR: Final = "var(--bar)"
_IDEAL: Final = "var(--ideal)"
_SOFT: Final = "var(--soft)"
_TEXT: Final = "var(--text)"
_MOST_TEXTS: Final = 40  # bars with a text beside each
_DATES: Final = {
    "year": "%Y",
    "quarter": "%b",
    "month": "%b",
    "week": "%d %b",
    "date": "%d %b",
    "day": "%d %b",
    "hours": "%H:%M",
    "minutes": "%H:%M",
    "seconds": "%H:%M:%S",
    "milliseconds": "%S.%L",
}
_TIMES: Final = ((DAY_MS, "days"), (60 * MINUTE_MS, "hours"), (MINUTE_MS, "minutes"), (1_000, "seconds"), (1, "ms"))


def chart(part: ChartPart) -> dict[str, object]:
    """Draw a chart.

    Args:
        part: What is to be seen. Names may contain anything.

    Returns:
        ``spec``, in Vega-Lite, and ``data``, its data sets by name, each with its columns by name; the values of `Heat`
        as a list for each of its rows.

    Complexity:
        O(size of the part); a line has 720 points at most, or so.

    Example:
        >>> from keyshared.spark.pages.parts import Bar
        >>> chart(Bars("load", (Bar("c1", 3, 2, "3"),)))["data"]["bars"]["value"]
        [3]
    """
    drawn, data = _DRAWN_BY[type(part)](part)
    spec = drawn.properties(width="container", autosize=_AUTOSIZE).to_dict()
    spec.pop("$schema")  # an address: pages have none
    spec.pop("config", None)  # the page has one for all charts
    return {"spec": spec, "data": data}


def _bars(part: Bars) -> tuple[alt.LayerChart, dict[str, Columns]]:
    longest = max(max(row.value, row.ideal or 0) for row in part.rows)
    shown = _Values(part.unit, longest)
    names = [row.label for row in part.rows]
    y = alt.Y("label:N").scale(domain=_different(names)).axis(title=None, labelLimit=110, domain=False, ticks=False)
    # room at the right for what is written there
    x = shown.axis(alt.X("value:Q"), "").scale(domain=[0, longest * 1.35 / shown.size or 1], nice=False)
    tips = [alt.Tooltip("label:N", title="of"), alt.Tooltip("text:N", title=" ")]
    base = alt.Chart(alt.NamedData("bars")).encode(y=y)
    layers = [base.mark_bar(color=_BAR, cornerRadiusEnd=3, height={"band": 0.6}).encode(x=x, tooltip=tips)]
    if len(names) <= _MOST_TEXTS:
        # a phone has no room for them, and the table below has them all
        told = alt.expr(f"width < {_NARROW} ? '' : datum.text")
        texts = base.mark_text(align="left", dx=6, color=_SOFT, text=told).encode(x="end:Q")
        layers.append(texts)
    if any(row.ideal is not None for row in part.rows):
        layers.append(
            base.mark_tick(color=_IDEAL, thickness=2.5, height={"band": 0.9})
            .transform_filter("isValid(datum.ideal)")
            .encode(x="ideal:Q", tooltip=tips)
        )
    data: Columns = {
        "label": names,
        "value": shown.of(row.value for row in part.rows),
        "ideal": [None if row.ideal is None else shown.one(row.ideal) for row in part.rows],
        "end": shown.of(max(row.value, row.ideal or 0) for row in part.rows),
        "text": [row.text for row in part.rows],
    }
    return alt.layer(*layers).properties(height=_height(len(names), 26)), {"bars": data}


def _lines(part: Lines) -> tuple[alt.LayerChart, dict[str, Columns]]:
    lines = [Line(line.label, thinned(line.points)) for line in part.lines if line.points]
    points = [(line.label, at, value) for line in lines for at, value in line.points]
    shown = _Values(part.unit, max(value for _, _, value in points))
    times = _Times(part.clock, part.over, [at for _, at, _ in points] + [mark.at_ms for mark in part.marks])
    names = _different([line.label for line in lines])
    picked = alt.selection_point(fields=["label"], bind="legend", name="picked")
    # a wheel alone scrolls the page
    zoom = alt.selection_interval(bind="scales", encodings=["x"], zoom="wheel![event.shiftKey]", name="zoom")
    colour = (
        alt.Color("label:N")
        .scale(domain=names, range=[f"var(--c{i % _COLOURS})" for i in range(len(names))])
        .legend(None if len(names) == 1 else _legend(names))
    )
    y = shown.axis(alt.Y("value:Q"), part.value).scale(domainMin=0)
    tips = [
        alt.Tooltip("label:N", title="of"),
        times.tip("at"),
        alt.Tooltip("value:Q", title=shown.title(part.value), format=shown.format),
    ]
    drawn = (
        alt.Chart(alt.NamedData("lines"))
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            x=times.x("at"), y=y, color=colour, opacity=alt.when(picked).then(alt.value(1)).otherwise(alt.value(0.1))
        )
        .add_params(picked, zoom)
    )
    # wider than what can be seen, so that a finger finds it
    found = (
        alt.Chart(alt.NamedData("lines"))
        .mark_point(size=120, opacity=0, filled=True)
        .encode(x=times.x("at"), y="value:Q", tooltip=tips)
    )
    data: Columns = {
        "label": [label for label, _, _ in points],
        "at": times.of(at for _, at, _ in points),
        "value": shown.of(value for _, _, value in points),
    }
    layers, marked = _marked([drawn, found], part.marks, times)
    return alt.layer(*layers).properties(height=_HEIGHT), {"lines": data, **marked}


def _heat(part: Heat) -> tuple[alt.LayerChart, dict[str, Columns]]:
    most = part.most or max(value for row in part.rows for _, value in row.points)
    shown = _Values(part.unit, most)
    starts = sorted({at for row in part.rows for at, _ in row.points})
    ends = [at + part.width_ms for at in starts]
    times = _Times(part.clock, "", starts + ends)
    values = [dict(row.points) for row in part.rows]
    names = _different([row.label for row in part.rows])
    y = alt.Y("label:N").scale(domain=names).axis(title=None, labelLimit=110, domain=False, ticks=False)
    opacity = alt.Opacity("value:Q").scale(domain=[0, shown.one(most)], range=[0.08, 1], clamp=True).legend(None)
    tips = [
        alt.Tooltip("label:N", title="of"),
        times.tip("at"),
        alt.Tooltip("value:Q", title=shown.title(part.value), format=shown.format),
    ]
    colour = alt.value(_BAR)
    if part.full is not None:
        colour = alt.when(f"datum.value >= {shown.one(part.full)}").then(alt.value(_IDEAL)).otherwise(alt.value(_BAR))
    drawn = (
        alt.Chart(alt.NamedData("heat"))
        .mark_rect()
        .encode(x=times.x("at"), x2="until", y=y, opacity=opacity, color=colour, tooltip=tips)
    )
    data: Columns = {
        "label": [row.label for row in part.rows],
        "at": times.of(starts),
        "until": times.of(ends),
        "value": [shown.of(each.get(at, 0) for at in starts) for each in values],
    }
    layers, marked = _marked([drawn], part.marks, times)
    return alt.layer(*layers).properties(height=_height(len(names), 18)), {"heat": data, **marked}


def _timelines(part: Timelines) -> tuple[alt.LayerChart, dict[str, Columns]]:
    spans = part.spans
    times = _Times(part.clock, "", [at for span in spans for at in (span.from_ms, span.until_ms)])
    names = _different([span.label for span in spans])
    y = alt.Y("label:N").scale(domain=names).axis(title=None, labelLimit=110, domain=False, ticks=False)
    colours = [f"var(--state{i})" for i in range(len(part.states))]
    colour = (
        alt.Color("state:N")
        .scale(domain=list(part.states), range=colours)
        .legend(alt.Legend(title=None, orient="top", symbolType="square"))
    )
    tips = [alt.Tooltip("label:N", title="of"), alt.Tooltip("state:N"), times.tip("at"), times.tip("until", "until")]
    drawn = (
        alt.Chart(alt.NamedData("spans"))
        .mark_bar(height={"band": 0.7})
        .encode(x=times.x("at"), x2="until", y=y, color=colour, tooltip=tips)
    )
    data: Columns = {
        "label": [span.label for span in spans],
        "state": [span.state for span in spans],
        "at": times.of(span.from_ms for span in spans),
        "until": times.of(span.until_ms for span in spans),
    }
    layers, marked = _marked([drawn], part.marks, times)
    return alt.layer(*layers).properties(height=_height(len(names), 18)), {"spans": data, **marked}


class _Values:
    """Values of a chart, all in one unit that people can read."""

    def __init__(self, unit: Unit, most: float) -> None:
        self._unit = unit
        self.size, self._name = 1.0, ""
        if unit is Unit.DURATION:
            self.size, self._name = next(((size, name) for size, name in _TIMES if most >= size), _TIMES[-1])
        self._scale = "~s" if most / self.size >= _SHORT_FROM else ",~r"
        self.format = ".0%" if unit is Unit.SHARE else ",.4~r" if unit is Unit.DURATION else ",.4~f"

    def title(self, what: str) -> str:
        return f"{what}, {self._name}".removeprefix(", ") if self._name else what

    def axis(self, channel: alt.X | alt.Y, what: str) -> alt.X | alt.Y:
        form = ".0%" if self._unit is Unit.SHARE else self._scale
        return channel.axis(title=self.title(what) or None, format=form, tickCount=4)

    def one(self, value: float) -> float:
        return _rounded(value / self.size)

    def of(self, values: Iterable[float]) -> list[float]:
        return [self.one(value) for value in values]


class _Times:
    """Times of a chart: of the calendar, or counted from the start in a unit that people can read."""

    def __init__(self, clock: Clock | None, over: str, times: Sequence[float]) -> None:
        self._base = None if clock is None else clock.epoch_ms
        self._zone = "" if clock is None else clock.zone
        span = max(times) - min(times)
        size, name = next(((size, name) for size, name in _TIMES if span >= size), _TIMES[-1])
        self._size, self._title = (1, over) if clock is None else (size, f"{name} after the start")
        self.ends = self.of([min(times), max(times) if span else max(times) + 1])

    def x(self, field: str) -> alt.X:
        if self._base is None:
            axis = alt.Axis(title=self._title, format="~s" if self._size == 1 else ",~r", labelFlush=True, tickCount=6)
            return alt.X(f"{field}:Q").scale(nice=False, zero=False).axis(axis)
        axis = alt.Axis(title=self._zone, format=_DATES, labelFlush=True, tickCount=6, labelOverlap=True)
        return alt.X(f"{field}:T").scale(type="utc", nice=False).axis(axis)

    def tip(self, field: str, title: str = "at") -> alt.Tooltip:
        if self._base is None:
            # "after the start" stands below the axis
            return alt.Tooltip(f"{field}:Q", title=f"{title}, {self._title.partition(' ')[0]}", format=",.4~r")
        return alt.Tooltip(f"{field}:T", title=f"{title} ({self._zone})", format="%Y-%m-%d %H:%M:%S", formatType="utc")

    def of(self, times: Iterable[float]) -> list[float]:
        if self._base is not None:
            return [self._base + round(at) for at in times]
        return [_precise(at / self._size) for at in times]


def _marked(
    layers: list[alt.Chart], marks: Sequence[Mark], times: _Times
) -> tuple[list[alt.Chart], dict[str, Columns]]:
    """Add moments, each with its number; what it was is in its tooltip, and in a table of the page.

    The ends are points that nobody sees: a domain in numbers would be taken for one in another unit, or zone.
    """
    ends = alt.Chart(alt.NamedData("ends")).mark_point(opacity=0).encode(x=times.x("at"))
    layers = [*layers, ends]
    bounds: dict[str, Columns] = {"ends": {"at": times.ends}}
    if not marks:
        return layers, bounds
    base = alt.Chart(alt.NamedData("marks")).encode(
        x=times.x("at"), tooltip=[alt.Tooltip("what:N", title="what"), times.tip("at")]
    )
    rules = base.mark_rule(color=_SOFT, strokeDash=[4, 4], strokeWidth=1.5)
    numbers = base.mark_text(
        align=alt.expr("datum.late ? 'right' : 'left'"),
        baseline="top",
        dx=alt.expr("datum.late ? -3 : 3"),
        color=_TEXT,
        fontWeight="bold",
        lineBreak="\n",
    ).encode(y=alt.value(2), text="number:N")
    at = times.of(mark.at_ms for mark in marks)
    first, last = times.ends
    data: Columns = {
        "at": at,
        "late": [each > last - (last - first) * _END for each in at],  # there is no room to the right of it
        "what": [mark.label for mark in marks],
        # neighbours write on different lines
        "number": ["\n" * (place % _MARK_LINES) + str(place + 1) for place in range(len(marks))],
    }
    return [*layers, rules, numbers], {**bounds, "marks": data}


def _legend(names: Sequence[str]) -> alt.Legend:
    """Return a legend that a phone has room for."""
    short = max(map(len, names)) <= _SHORT_NAME
    return alt.Legend(title=None, orient="top", columns=2 if short else 1, labelLimit=90 if short else 220)


def _height(rows: int, step: int) -> int:
    """Return the height of a chart; very many rows are narrower."""
    return rows * (step if rows <= _MOST_TEXTS else 12)


def _different(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _rounded(value: float) -> float:
    """Cut a value to what can be seen of it; whole numbers stay whole."""
    if isinstance(value, int) or value == int(value):
        return int(value)
    return float(f"{value:.{_DIGITS}g}")


def _precise(time: float) -> float:
    return int(time) if time == int(time) else round(time, 6)


_DRAWN_BY: Final[Mapping[type[ChartPart], Callable[[Any], tuple[alt.LayerChart, dict[str, Columns]]]]] = {
    Bars: _bars,
    Lines: _lines,
    Heat: _heat,
    Timelines: _timelines,
}
