"""Two small charts as inline SVG: bars with a mark for the ideal, and values over time. Plain Python; needs no Spark.

Colours come from the page's style sheet by class, so that a chart follows light, dark and print. A drawing is scaled to
the screen together with its text, so a phone gets a narrow drawing of its own (`on_every_screen`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final, NamedTuple

__all__ = ["NARROW", "WIDE", "Bar", "Line", "Mark", "bars", "nice_ceiling", "on_every_screen", "panels", "thinned"]

WIDE: Final = 720
"""Width of a drawing in units, which the page scales to the screen."""

NARROW: Final = 360
"""The same on a phone."""

_ROW: Final = 30
_LABEL: Final = 108
_VALUE: Final = 124
_LABEL_CHARACTERS: Final = 11  # what fits in front of a bar
_PANEL_CHARACTERS: Final = 26  # what fits over a panel, beside its highest value
_PANEL: Final = 120
_PANEL_HEAD: Final = 24
_GAP: Final = 16  # between the floor of a panel and the head of the next
_AXIS: Final = 64
_RIGHT: Final = 12
_MARK_LINES: Final = 3
_MARK_LINE: Final = 18


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a bar chart.

    Attributes:
        label: What it is of.
        value: Its length.
        ideal: Where the mark is; None for no mark.
        text: What is written beside it.
    """

    label: str
    value: float
    ideal: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """Values over time.

    Attributes:
        label: What it is of.
        points: (time, value), in order of time; the value holds until the next point.
    """

    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one moment.

    Attributes:
        at: When.
        label: What, in a word or two.
    """

    at: float
    label: str


def on_every_screen(draw: Callable[[int], str]) -> str:
    """Draw twice, for wide screens and for phones; the style sheet shows one of them.

    Args:
        draw: Makes a drawing of a width.

    Returns:
        Two elements.

    Example:
        >>> on_every_screen("<svg width={}/>".format)
        '<div class="wide"><svg width=720/></div><div class="narrow"><svg width=360/></div>'
    """
    return f'<div class="wide">{draw(WIDE)}</div><div class="narrow">{draw(NARROW)}</div>'


def bars(rows: Sequence[Bar], *, title: str, width: int = WIDE) -> str:
    """Draw horizontal bars, with a mark where one ideally would end.

    Args:
        rows: From top to bottom.
        title: For readers who hear the page.
        width: `WIDE` or `NARROW`.

    Returns:
        An ``<svg>`` element.

    Example:
        >>> bars([Bar("c1", 3.0, 2.5, "3")], title="load").startswith("<svg")
        True
    """
    longest = max((max(row.value, row.ideal or 0) for row in rows), default=0) or 1
    scale = (width - _LABEL - _VALUE) / longest
    height = _ROW * len(rows) + 8
    drawn = [_bar(row, 4 + i * _ROW, scale) for i, row in enumerate(rows)]
    return _svg(width, height, title, drawn)


def panels(
    series: Sequence[Line],
    *,
    title: str,
    marks: Sequence[Mark] = (),
    unit: Callable[[float], str] = str,
    scale: Callable[[float], str] = "{:,.0f}".format,
    ceiling: Callable[[float], float] | None = None,
    width: int = WIDE,
) -> str:
    """Draw values over time, a panel for each series below the other, all with the same axes.

    One panel for all would hide a daily rise and fall of one series behind that of another.

    Args:
        series: From top to bottom. Those without points are left out, and points that cannot be seen.
        title: For readers who hear the page.
        marks: Moments to point out in all panels.
        unit: Writes a time below the axis.
        scale: Writes a value beside it.
        ceiling: Says where the axis ends, by the greatest value; `nice_ceiling` by default.
        width: `WIDE` or `NARROW`.

    Returns:
        An ``<svg>`` element; without any point, one that says so.

    Example:
        >>> "no data" in panels([], title="backlog")
        True
    """
    shown = [Line(line.label, thinned(line.points, limit=width)) for line in series if line.points]
    if not shown:
        return _svg(width, 40, title, ['<text x="0" y="24" class="soft">no data</text>'])
    times = [time for line in shown for time, _ in line.points] + [mark.at for mark in marks]
    first, last = min(times), max(times)
    top = (ceiling or nice_ceiling)(max(value for line in shown for _, value in line.points))
    head = 4 + (_MARK_LINE * _MARK_LINES if marks else 0)
    bottom = head + _PANEL * len(shown)
    x_scale = (width - _AXIS - _RIGHT) / ((last - first) or 1)

    def x(time: float) -> float:
        return _AXIS + (time - first) * x_scale

    grid = _Grid(top, scale, x, width - _RIGHT)
    drawn = [part for i, line in enumerate(shown) for part in _panel(line, head + _PANEL * (i + 1) - _GAP, grid)]
    drawn += [_mark(x(mark.at), (width, bottom - _GAP), i, mark.label) for i, mark in enumerate(marks)]
    drawn += [
        _tick(x(time), bottom + 4, anchor, unit(time))
        for time, anchor in ((first, ""), ((first + last) / 2, " middle"), (last, " end"))
    ]
    return _svg(width, bottom + 12, title, drawn)


def thinned(points: Sequence[tuple[float, float]], *, limit: int = WIDE) -> tuple[tuple[float, float], ...]:
    """Leave out points that cannot be seen, but never a peak.

    Args:
        points: (time, value) in order of time.
        limit: About how many to keep.

    Returns:
        All points if there are few; else the first, the last, and the highest and the lowest of each of ``limit / 2``
        slices of time.

    Example:
        >>> thinned([(t, 9 if t == 501 else 0) for t in range(1000)], limit=4)
        ((0, 0), (500, 0), (501, 9), (999, 0))
    """
    if len(points) <= limit:
        return tuple(points)
    first, last = points[0][0], points[-1][0]
    width = (last - first) / (limit // 2) or 1
    slices: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        slices.setdefault(int((point[0] - first) / width), []).append(point)
    kept = {points[0], points[-1]}
    for inside in slices.values():
        kept |= {max(inside, key=_value), min(inside, key=_value)}
    return tuple(sorted(kept))


def nice_ceiling(value: float) -> float:
    """Return the next round number: where an axis ends.

    Args:
        value: The greatest value to show.

    Returns:
        1, 2, 4, 6, 8 or 10 times a power of ten, and at least 4: half of it is a whole number.

    Example:
        >>> nice_ceiling(7), nice_ceiling(130), nice_ceiling(0)
        (8, 200, 4)
    """
    if value <= 4:  # noqa: PLR2004 - as above
        return 4
    power: float = 10 ** floor(log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)


def _value(point: tuple[float, float]) -> float:
    return point[1]


def _svg(width: int, height: float, title: str, inside: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {width} {ceil(height)}" role="img" aria-label="{escape(title)}">{"".join(inside)}</svg>'


def _short(label: str, most: int = _LABEL_CHARACTERS) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _bar(row: Bar, y: int, scale: float) -> str:
    length, end = row.value * scale, max(row.value, row.ideal or 0) * scale
    label, text = escape(row.label), escape(row.text)
    ideal = "" if row.ideal is None else f'<path d="M{_LABEL + row.ideal * scale:.1f} {y}v{_ROW - 4}" class="ideal"/>'
    return (
        f"<g><title>{label}: {text}</title>"
        f'<text x="{_LABEL - 8}" y="{y + 18}" class="end">{escape(_short(row.label))}</text>'
        f'<rect x="{_LABEL}" y="{y + 4}" width="{length:.1f}" height="{_ROW - 12}" rx="3" class="bar"/>{ideal}'
        f'<text x="{_LABEL + end + 8:.1f}" y="{y + 18}" class="soft">{text}</text></g>'
    )


class _Grid(NamedTuple):
    """The scales that all panels of a chart share."""

    top: float
    scale: Callable[[float], str]
    x: Callable[[float], float]
    right: int


def _panel(line: Line, floor_y: float, grid: _Grid) -> list[str]:
    """Draw an area with steps: a value holds until the next one."""
    top, scale, x, right = grid
    unit = (_PANEL - _GAP - _PANEL_HEAD) / top
    steps = "".join(f"V{floor_y - value * unit:.1f}H{x(after):.1f}" for value, after in _spans(line.points))
    name, peak = escape(_short(line.label, _PANEL_CHARACTERS)), max(value for _, value in line.points)
    area = f"M{x(line.points[0][0]):.1f} {floor_y:.1f}{steps}V{floor_y:.1f}Z"
    return [
        f'<text x="{_AXIS}" y="{floor_y - _PANEL + _GAP + 12:.1f}">{name}: at most {escape(scale(peak))}</text>',
        *(_grid_line(floor_y - value * unit, right, scale(value)) for value in (0, top / 2, top)),
        f'<path d="{area}" class="area"><title>{escape(line.label)}</title></path>',
    ]


def _spans(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield each value with the time until which it holds; the last one has no width."""
    yield from ((value, after) for (_, value), (after, _) in pairwise(points))
    yield points[-1][1], points[-1][0]


def _grid_line(y: float, right: int, text: str) -> str:
    return (
        f'<path d="M{_AXIS} {y:.1f}H{right}" class="grid"/>'
        f'<text x="{_AXIS - 8}" y="{y + 4:.1f}" class="soft end">{escape(text)}</text>'
    )


def _tick(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="soft{anchor}">{escape(text)}</text>'


def _mark(x: float, corner: tuple[float, float], index: int, label: str) -> str:
    # neighbours write on different lines, and near the right edge to the left of their own
    right, bottom = corner
    side, anchor = (-5, " end") if x > right * 0.6 else (5, "")
    y = 14 + index % _MARK_LINES * _MARK_LINE
    return (
        f'<path d="M{x:.1f} {y - 12}V{bottom:.1f}" class="mark"/>'
        f'<text x="{x + side:.1f}" y="{y}" class="note{anchor}">{escape(_short(label, _PANEL_CHARACTERS))}</text>'
    )
