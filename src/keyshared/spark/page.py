"""One page about a log of deliveries, and the same in twenty lines for a terminal: `Figures` as HTML and as text.

Altair describes the charts, and vl-convert draws them when the page is written, for a wide and for a narrow screen. So
the page is one file without scripts, and opens at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from keyshared._checks import check_extra
from keyshared.spark.causes import causes_of
from keyshared.spark.page_figures import Figures, as_text

if TYPE_CHECKING:
    import altair as alt

__all__ = ["duration", "page_html", "summary_text", "write_page"]

_WIDE: Final = 780
_NARROW: Final = 300
_NAMED_MARKS: Final = 8  # more would hide one another
_MARK_ROWS: Final = 4
_HEIGHT: Final = 190
_MOST_ROWS: Final = 30  # consumers in a chart or a table
_PLACES: Final = 10
_LINES: Final = 20  # of the text about one group
_LEAST: Final = 3  # an empty line, the head of a table, and a row
_EPOCH_MS: Final = 631_152_000_000  # 1990: later times are dates
_DAYS_MS: Final = 2 * 86_400_000  # from here on an axis shows days
_COLORS: Final = ("#d9622b", "#3b82c4", "#2f9e63", "#8b5cc4", "#b8860b", "#c2458a")
_HOUR_MS: Final = 3_600_000
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def write_page(found: Sequence[Figures], path: str | Path, *, title: str = "Deliveries", about: str = "") -> None:
    """Write a page about a log of deliveries: one HTML file without scripts.

    Args:
        found: What `figures` returned.
        path: The file; an older one is replaced.
        title: Headline.
        about: What was simulated, for the reader.

    Raises:
        MissingExtraError: ``keyshared[demo]``, which draws pages, is not installed.
        OSError: The file cannot be written.

    Example:
        >>> write_page(figures(deliveries, audit(deliveries)), "page.html", title="Orders of May")  # doctest: +SKIP
    """
    Path(path).write_text(page_html(found, title=title, about=about), encoding="utf-8")


def page_html(found: Sequence[Figures], *, title: str = "Deliveries", about: str = "") -> str:
    """Return the page of `write_page` as text.

    Args:
        found: As there.
        title: As there.
        about: As there.

    Returns:
        A whole HTML document.

    Raises:
        MissingExtraError: As there.
    """
    check_extra("demo", "altair", "jinja2", "vl_convert")
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - only pages need the extra

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = (files("keyshared.spark") / "page.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        title=title,
        about=about,
        compared=_compared(found) if len(found) > 1 else None,
        groups=[_group(each) for each in found],
    )


def summary_text(found: Sequence[Figures], *, title: str = "Deliveries", about: str = "") -> str:
    """Return the same for a terminal: of one group in twenty lines.

    Args:
        found: What `figures` returned.
        title: Headline.
        about: What was simulated.

    Returns:
        Lines of text.
    """
    lines = [title, *([" ".join(about.split())] if about else [])]
    for each in found:
        lines += ["", *([f"group {each.name}"] if each.name else [])]
        lines += [f"{_MARKS[state]} {text}" for state, text in _chips(each)]
        lines += [line for line in [_promises(each)] if line]
        lines += [f"  {cause.name}: {cause.text} {cause.remedy}" for cause in causes_of(each)]
        tiles = [f"{name} {value}" for name, value in _tiles(each)]
        lines += ["", *("; ".join(tiles[at : at + 5]) for at in range(0, len(tiles), 5))]
        if len(found) == 1:
            room = max((_LINES - len(lines)) // 2, _LEAST)
            lines += [*_aligned(_consumers(each), room), *_aligned(_hot_keys(each), room)]
    if len(found) > 1:
        head, rows = _compared(found)
        lines += _aligned(_Table("Groups side by side", "", head, rows), len(rows) + _LEAST)
    return "\n".join(lines)


_MARKS: Final = {"good": "[ok]", "bad": "[!!]", "open": "[??]"}


def duration(ms: float | None) -> str:
    """Return a time as people write it.

    Args:
        ms: Milliseconds; None and NaN become nothing.

    Example:
        >>> duration(850), duration(12_340), duration(5_400_000), duration(None)
        ('850 ms', '12.3 s', '1.5 h', '')
    """
    if ms is None:
        return ""
    for length, unit in _UNITS:
        if ms >= length:
            return f"{ms / length:,.1f} {unit}"
    return f"{ms:,.0f} ms"


class _Table(NamedTuple):
    title: str
    note: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class _Chart(NamedTuple):
    title: str
    note: str
    wide: object
    narrow: object


def _group(each: Figures) -> dict[str, object]:
    return {
        "name": each.name,
        "chips": _chips(each),
        "promises": _promises(each),
        "causes": causes_of(each),
        "tiles": _tiles(each),
        "proofs": each.proofs,
        "charts": [*_charts(each)],
        "tables": [_consumers(each), _places(each), _hot_keys(each)],
    }


def _chips(each: Figures) -> list[tuple[str, str]]:
    """Return the two verdicts: were the promises kept, and was the group enough?"""
    if each.violations:
        broken = (f"{row['promise']} {row['violations']:,}" for row in each.promises if row["violations"])
        first = ("bad", f"broken: {', '.join(broken)}")
    elif not each.promises:
        first = ("open", "promises were not judged")
    elif each.unjudged:
        first = ("open", f"no promise broken; not judged: {', '.join(each.unjudged)}")
    else:
        first = ("good", "every promise kept")
    p99 = duration(each.total["wait_p99_ms"])
    if each.is_enough is None:
        second = ("open", "nothing was delivered")
    elif each.total["unfinished"]:
        second = ("bad", f"not enough: {each.total['unfinished']:,} messages were not done at the end")
    elif each.is_enough:
        second = ("good", f"enough: 99 of 100 deliveries wait at most {p99}")
    else:
        second = ("bad", f"not enough: 1 of 100 deliveries waits {p99} or longer; {duration(each.enough_ms)} would do")
    return [first, second]


def _promises(each: Figures) -> str:
    parts = [f"{row['promise']} {row['violations']:,}" for row in each.promises]
    counts = f"Violations: {', '.join(parts)}." if parts else ""
    return " ".join([counts, *(f"{promise} was not judged: {why}." for promise, why in each.unjudged.items())]).strip()


def _tiles(each: Figures) -> list[tuple[str, str]]:
    total = each.total
    ended = ("dead_lettered", "dropped", "skipped")
    settled = [f"{total[name]:,} {name.replace('_', ' ')}" for name in ended if total[name]]
    return [
        ("messages", f"{total['messages']:,}"),
        ("keys", f"{each.keys:,}"),
        ("topic-partitions", f"{len(each.topic_partitions):,}"),
        ("deliveries", f"{total['deliveries']:,}"),
        ("redelivered", f"{total['redeliveries']:,}"),
        ("failed", f"{total['failed']:,}"),
        ("settled without ack", ", ".join(settled) or "0"),
        ("wait, half of the deliveries", duration(total["wait_p50_ms"])),
        ("wait, 99 of 100 deliveries", duration(total["wait_p99_ms"])),
        ("largest backlog", _peaks(each).get("all", "0")),
    ]


def _peaks(each: Figures) -> dict[str, str]:
    """Return the largest backlog of all topic-partitions together and of some, and when it was."""
    peaks: dict[str, Any] = {}
    for row in each.backlog:
        if row["backlog"] > peaks.setdefault(row["topic_partition"], row)["backlog"]:
            peaks[row["topic_partition"]] = row
    return {name: f"{row['backlog']:,} at {_at(each, row['start_ms'])}" for name, row in peaks.items()}


def _consumers(each: Figures) -> _Table:
    deliveries = each.total["deliveries"] or 1
    rows = [
        (
            row["name"],
            f"{row['deliveries']:,}",
            f"{row['deliveries'] / deliveries:.1%}",
            f"{row['use']:.0%}",
            duration(row["busy_ms"] / row["answered"] if row["answered"] else None),
            f"{row['failed']:,}",
            f"{row['lost']:,}",
            duration(row["wait_p50_ms"]),
            duration(row["wait_p99_ms"]),
        )
        for row in sorted(each.consumers, key=lambda row: -(row["wait_p99_ms"] or 0))[:_MOST_ROWS]
    ]
    note = "Use is the share of its time, and of its concurrency in all topic-partitions, in which a consumer worked."
    head = ("consumer", "deliveries", "share", "use", "time each", "failed", "lost", "wait p50", "wait p99")
    return _Table("Consumers", note, head, rows)


def _places(each: Figures) -> _Table:
    largest = _peaks(each)
    rows = [
        (
            row["name"],
            f"{row['messages']:,}",
            f"{row['unfinished']:,}",
            duration(row["wait_p50_ms"]),
            duration(row["wait_p99_ms"]),
            duration(row["wait_max_ms"]),
            largest.get(row["name"], ""),
        )
        for row in each.topic_partitions[:_PLACES]
    ]
    note = f"The topic-partitions that waited longest, of {len(each.topic_partitions):,}."
    head = ("topic-partition", "messages", "not done", "wait p50", "wait p99", "longest wait", "largest backlog")
    return _Table("Topic-partitions", note, head, rows)


def _hot_keys(each: Figures) -> _Table:
    rows = [
        (
            as_text(row["key"]),
            row["topic_partition"],
            f"{row['messages']:,}",
            f"{row['messages'] / (each.total['messages'] or 1):.1%}",
            f"{row['wait_ms'] / (each.total['wait_ms'] or 1):.1%}",
            duration(row["p99"]),
            duration(row["busy_ms"] / row["messages"] if row["messages"] else None),
            ", ".join(row["consumers"]),
        )
        for row in each.hot_keys
    ]
    head = (
        "hottest key",
        "topic-partition",
        "messages",
        "share",
        "of all waiting",
        "wait p99",
        "work each",
        "consumers",
    )
    return _Table(
        "Hottest keys", f"The keys that waited longest, of {each.keys:,}; each in its topic-partition.", head, rows
    )


def _compared(found: Sequence[Figures]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    head = ("group", "promises", "enough", "wait p50", "wait p99", "longest wait", "redelivered", "why not")
    states = {True: "yes", False: "no", None: ""}
    rows = [
        (
            each.name,
            _chips(each)[0][1],
            states[each.is_enough],
            duration(each.total["wait_p50_ms"]),
            duration(each.total["wait_p99_ms"]),
            duration(each.total["wait_max_ms"]),
            f"{each.total['redeliveries']:,}",
            ", ".join(cause.name for cause in causes_of(each)),
        )
        for each in found
    ]
    return head, rows


def _at(each: Figures, ms: float) -> str:
    """Return an instant: a date, or the time since the first message where the log has no dates."""
    if each.total["start_ms"] >= _EPOCH_MS:
        return f"{datetime.fromtimestamp(ms / 1_000, UTC):%d %b %Y %H:%M}"
    return f"+{duration(ms - each.total['start_ms'])}"


def _aligned(table: _Table, most: int) -> list[str]:
    """Return an empty line, the head and the first rows of a table: at most so many lines."""
    if not table.rows:
        return []
    rows = table.rows[: most - 2]
    name = table.head[0] if len(rows) == len(table.rows) else f"{table.head[0]} ({len(rows)} of {len(table.rows)})"
    cells = [[name, *table.head[1:]], *([cell[:40] for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.head))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return ["", *(line.rstrip() for line in lines)]


# charts


def _charts(each: Figures) -> Iterator[_Chart]:
    clock = _Clock(int(each.total["start_ms"]), int(each.total["end_ms"]), each.marks)
    if each.waits:
        longest = max(row["p99"] for row in each.waits)
        length, unit = next(((length, unit) for length, unit in _UNITS if longest >= length), (1, "ms"))
        waits = [
            (row["start_ms"], row[name] / length, text)
            for name, text in (("p99", "99 of 100 wait at most"), ("p50", "half wait at most"))
            for row in each.waits
        ]
        note = "From when a message could be delivered to when a consumer began its work. Dashed: the group changed."
        yield _chart("Waits over time", note, lambda width: _lines(waits, f"wait ({unit})", clock, width))
    if each.backlog:
        backlog = [(row["start_ms"], row["backlog"], row["topic_partition"]) for row in each.backlog]
        note = "The most messages that had arrived and were not done, in each of 120 intervals."
        yield _chart("Backlog over time", note, lambda width: _lines(backlog, "messages", clock, width))
    if each.use:
        note = "The darker, the busier a consumer was. If messages wait while it is light, they wait for a key."
        yield _chart("Use of consumers over time", note, lambda width: _heat(each, clock, width))


class _Clock(NamedTuple):
    """The axis of time: dates, or hours since the first message where the log has no dates."""

    first_ms: int
    last_ms: int
    marks: Sequence[tuple[int, str]]

    @property
    def is_dated(self) -> bool:
        return self.first_ms >= _EPOCH_MS

    def at(self, times: Iterable[int]) -> pd.Series:
        """Return times for the axis."""
        column = pd.Series(list(times), dtype="int64")
        return pd.to_datetime(column, unit="ms", utc=True) if self.is_dated else (column - self.first_ms) / _HOUR_MS

    def axis(self, width: int) -> "alt.X":
        import altair as alt  # noqa: PLC0415 - only pages need the extra

        count = 8 if width > _NARROW else 4
        if not self.is_dated:
            axis = alt.Axis(tickCount=count, labelOverlap=True)
            return alt.X("at:Q", title="hours since the first message", axis=axis)
        form = "%H:%M" if self.last_ms - self.first_ms < _DAYS_MS else "%b %d"
        title = f"{datetime.fromtimestamp(self.first_ms / 1_000, UTC):%Y-%m-%d}, UTC" if form == "%H:%M" else "UTC"
        axis = alt.Axis(tickCount=count, labelOverlap=True, format=form)
        return alt.X("at:T", title=title, scale=alt.Scale(type="utc"), axis=axis)


def _chart(title: str, note: str, draw: "Callable[[int], alt.LayerChart | alt.Chart]") -> _Chart:
    import vl_convert  # noqa: PLC0415 - only pages need the extra
    from markupsafe import Markup  # noqa: PLC0415 - as above

    def svg(width: int) -> Markup:
        made = draw(width).configure(background="transparent").configure_view(stroke=None)
        made = made.configure_axis(
            labelColor="currentColor",
            titleColor="currentColor",
            domainColor="currentColor",
            tickColor="currentColor",
            gridColor="currentColor",
            gridOpacity=0.15,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
        ).configure_legend(
            labelColor="currentColor", titleColor="currentColor", labelFontSize=12, labelLimit=width - 60
        )
        return Markup(vl_convert.vegalite_to_svg(made.to_dict()))  # noqa: S704 - vl-convert escapes what it draws

    return _Chart(title, note, svg(_WIDE), svg(_NARROW))


def _lines(rows: Sequence[tuple[int, float, str]], label: str, clock: _Clock, width: int) -> "alt.LayerChart":
    """Draw a line for each name: (time, value, name)."""
    import altair as alt  # noqa: PLC0415 - only pages need the extra

    names = list(dict.fromkeys(name for _, _, name in rows))
    data = pd.DataFrame(rows, columns=["start_ms", "value", "of"]).assign(at=clock.at(row[0] for row in rows))
    legend = alt.Legend(orient="top", title=None, columns=1 if width <= _NARROW else 3, symbolType="stroke")
    drawn = (
        alt.Chart(data)
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            x=clock.axis(width),
            y=alt.Y("value:Q", title=label, axis=alt.Axis(tickCount=5)),
            color=alt.Color("of:N", legend=legend, scale=alt.Scale(domain=names, range=_COLORS[: len(names)])),
        )
    )
    return alt.layer(drawn, _rules(clock, width)).properties(width=width, height=_HEIGHT)


def _rules(clock: _Clock, width: int) -> "alt.LayerChart":
    """Draw the changes of the group."""
    import altair as alt  # noqa: PLC0415 - only pages need the extra

    marks = [mark for mark in clock.marks if clock.first_ms <= mark[0] <= clock.last_ms]
    data = pd.DataFrame({"at": clock.at(mark[0] for mark in marks), "text": [mark[1] for mark in marks]})
    base = alt.Chart(data).encode(x=clock.axis(width))
    rules = base.mark_rule(strokeDash=[4, 4], color="currentColor", opacity=0.6)
    if len(marks) > _NAMED_MARKS or width <= _NARROW:
        return alt.layer(rules)
    texts = [  # one below the other, since the next change may come soon
        alt.Chart(data[row::_MARK_ROWS])
        .mark_text(align="left", dx=4, dy=2 + 13 * row, baseline="top", color="currentColor", fontSize=11)
        .encode(x=clock.axis(width), y=alt.value(0), text="text:N")
        for row in range(min(_MARK_ROWS, len(marks)))
    ]
    return alt.layer(rules, *texts)


def _heat(each: Figures, clock: _Clock, width: int) -> "alt.Chart":
    """Draw how much of its time each consumer worked."""
    import altair as alt  # noqa: PLC0415 - only pages need the extra

    names = [row["name"] for row in each.consumers[:_MOST_ROWS]]
    use = [row for row in each.use if row["consumer"] in names]
    data = pd.DataFrame(use).assign(
        at=clock.at(row["start_ms"] for row in use), end=clock.at(row["start_ms"] + each.width_ms for row in use)
    )
    legend = alt.Legend(orient="top", title="in use", format="%", gradientLength=width // 3)
    colors = alt.Scale(domain=[0, 1], range=["#3b82c41f", "#0b4f8f"])
    return (
        alt.Chart(data)
        .mark_rect()
        .encode(
            x=clock.axis(width),
            x2="end",
            y=alt.Y("consumer:N", title=None, sort=names),
            color=alt.Color("use:Q", legend=legend, scale=colors),
        )
        .properties(width=width, height=max(60, 18 * len(names)))
    )
