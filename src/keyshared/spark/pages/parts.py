"""What a page consists of, as plain values: `keyshared.spark.pages.page.as_html` makes HTML of them.

Whatever they hold is text, and is escaped there. Plain Python; needs no Spark.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple, TypeAlias

from keyshared.spark.pages.clock import COUNTED, Clock
from keyshared.spark.pages.page import Figure, Ms, duration

__all__ = [
    "Bar",
    "Bars",
    "Cell",
    "Counts",
    "Detail",
    "Drawing",
    "Facts",
    "Heat",
    "Line",
    "Lines",
    "Mark",
    "Page",
    "Promise",
    "Proof",
    "Section",
    "Span",
    "Table",
    "Timelines",
    "Unit",
    "Verdict",
    "files_section",
    "promises",
]

Counts: TypeAlias = Sequence[tuple[str, int]]
"""How often something was found, by name."""


class Unit(StrEnum):
    """What the values of a chart are."""

    NUMBER = "number"
    DURATION = "duration"  # milliseconds
    SHARE = "share"  # 1 is all of it


class Cell(NamedTuple):
    """What stands in a table.

    Attributes:
        text: As text.
        number: Whether it stands to the right.
        marked: Whether it is pointed out.
        anchor: The part of the page to which it leads; empty for none.
    """

    text: str
    number: bool
    marked: bool
    anchor: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table; numbers, `Ms` and each `Figure` that is a number stand to the right.

    Attributes:
        caption: What it shows.
        head: Names of the columns.
        rows: As many values each; they may contain anything.
        marked: Places that are pointed out: numbers of a row and a column.
    """

    kind: ClassVar = "table"
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    marked: frozenset[tuple[int, int]] = frozenset()

    @property
    def cells(self) -> list[list[Cell]]:
        """Return what stands where."""
        return [
            [Cell(*_told(value), (y, x) in self.marked, _anchor(value)) for x, value in enumerate(row)]
            for y, row in enumerate(self.rows)
        ]

    @property
    def anchors(self) -> set[str]:
        """Return the parts of the page to which the table leads."""
        return {_anchor(value) for row in self.rows for value in row} - {""}

    @property
    def numbers(self) -> list[bool]:
        """Return of each column whether numbers are in it: its head stands over them."""
        return [_told(value)[1] for value in self.rows[0]]


@dataclass(frozen=True, slots=True)
class Facts:
    """Tiles with a figure each.

    Attributes:
        pairs: Names and figures.
    """

    kind: ClassVar = "facts"
    pairs: tuple[tuple[str, str], ...]


class Promise(NamedTuple):
    """What became of a promise.

    Attributes:
        name: Its id.
        told: How often it was broken.
        state: "good", "bad" or "open".
    """

    name: str
    told: str
    state: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the reader has to know first.

    Attributes:
        state: "good", "bad" or "open".
        told: In a few words.
        why: In a sentence, or empty.
        promises: What became of each, or nothing.
    """

    kind: ClassVar = "verdict"
    state: str
    told: str
    why: str = ""
    promises: tuple[Promise, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """A violation with what proves it.

    Attributes:
        title: What was broken, and where.
        told: What is wrong, in a sentence.
        happened: The happenings that prove it, one in a line.
    """

    kind: ClassVar = "proof"
    title: str
    told: str
    happened: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture that no chart can show.

    Attributes:
        svg: An element of our own, with everything in it escaped.
    """

    kind: ClassVar = "drawing"
    svg: str


class Bar(NamedTuple):
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
class Bars:
    """Horizontal bars, with a mark where one ideally would end.

    Attributes:
        about: What is to be seen, for readers who hear the page.
        rows: From top to bottom.
        unit: Of the values.
    """

    kind: ClassVar = "chart"
    about: str
    rows: tuple[Bar, ...]
    unit: Unit = Unit.NUMBER

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not self.rows


class Line(NamedTuple):
    """Values over time.

    Attributes:
        label: What it is of.
        points: (milliseconds, value), in order of time; the value holds until the next point.
    """

    label: str
    points: tuple[tuple[float, float], ...]


class Mark(NamedTuple):
    """Something that happened at one moment.

    Attributes:
        at_ms: When.
        label: What.
    """

    at_ms: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Values over time, or over anything else that has numbers.

    Attributes:
        about: What is to be seen, for readers who hear the page.
        lines: Their legend is in this order.
        marks: Moments to point out; numbered from 1.
        unit: Of the values.
        value: What they are.
        clock: When the first thing happened; None if what is below the values is no time.
        over: What is below the values then.
    """

    kind: ClassVar = "chart"
    about: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    unit: Unit = Unit.NUMBER
    value: str
    clock: Clock | None = COUNTED
    over: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not any(line.points for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Values over time, a row for each of many: the greater, the darker.

    Attributes:
        about: What is to be seen, for readers who hear the page.
        rows: From top to bottom, each with values over time; what is 0 need not be there.
        width_ms: For how long each value holds.
        marks: As in `Lines`.
        unit: Of the values.
        value: What they are.
        most: From where on a value is as dark as can be; None for the greatest one.
        full: From where on a value has another colour; None for nowhere.
        clock: When the first thing happened.
    """

    kind: ClassVar = "chart"
    about: str
    rows: tuple[Line, ...]
    width_ms: float
    marks: tuple[Mark, ...] = ()
    unit: Unit = Unit.NUMBER
    value: str
    most: float | None = None
    full: float | None = None
    clock: Clock = COUNTED

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not any(value for line in self.rows for _, value in line.points)


class Span(NamedTuple):
    """A stretch of time in which something was in one state.

    Attributes:
        label: What it is of.
        from_ms: When it begins.
        until_ms: When it ends.
        state: The state.
    """

    label: str
    from_ms: float
    until_ms: float
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timelines:
    """States over time, a row for each of many.

    Attributes:
        about: What is to be seen, for readers who hear the page.
        spans: Rows are in the order in which they are named first.
        states: All that there can be, in the order of the legend.
        marks: As in `Lines`.
        clock: When the first thing happened.
    """

    kind: ClassVar = "chart"
    about: str
    spans: tuple[Span, ...]
    states: tuple[str, ...]
    marks: tuple[Mark, ...] = ()
    clock: Clock = COUNTED

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not self.spans


ChartPart: TypeAlias = Bars | Lines | Heat | Timelines


@dataclass(frozen=True, slots=True)
class Section:
    """Parts below a headline.

    Attributes:
        title: The headline.
        note: What is to be seen, in a sentence or two.
        parts: What stands there.
    """

    kind: ClassVar = "section"
    title: str
    note: str
    parts: tuple["SectionPart", ...] = ()


@dataclass(frozen=True, slots=True)
class Detail:
    """Parts about one thing, which are seen once a link to them is followed.

    Attributes:
        anchor: Its name in addresses: letters, digits and hyphens.
        title: What it is about.
        listed: Captions of the tables that lead to it, for the ways back.
        parts: What stands there.
    """

    kind: ClassVar = "detail"
    anchor: str
    title: str
    listed: tuple[str, ...]
    parts: tuple[ChartPart | Facts | Table, ...]


SectionPart: TypeAlias = ChartPart | Detail | Drawing | Facts | Proof | Table


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page.

    Attributes:
        title: Its headline.
        about: What the figures are of; may be empty.
        verdicts: What the reader has to know first.
        parts: What stands below.
    """

    title: str
    about: str
    verdicts: tuple[Verdict, ...]
    parts: tuple[Facts | Section, ...]


def files_section(frames: str) -> Section:
    """Return the part of a page about figures that can be taken away.

    Args:
        frames: Which frames have all rows, and how they are written, in a sentence.

    Returns:
        A section without parts: the links stand below tables and charts.
    """
    note = (
        "Below each table and each chart over time is a link to its figures, as a CSV file that this page carries: "
        f"times in milliseconds or of the calendar, parts of a whole as numbers. {frames}"
    )
    return Section("Figures to take away", note)


def promises(violations: Counts | None, unjudged: Collection[str] = ()) -> Verdict:
    """Judge whether promises were kept.

    Args:
        violations: Broken promises by id, zeros included; None without an audit.
        unjudged: Those of them that could not be judged, or not in full.

    Returns:
        The verdict: no better than what was judged.
    """
    if violations is None:
        return Verdict("open", "promises not audited")
    broken = sum(count for _, count in violations)
    state, told = "good", "every promise kept"
    if broken:
        state, told = "bad", f"{broken:,} violations"
    elif unjudged:
        state, told = "open", "no violation found, but not everything could be judged"
    return Verdict(state, told, "", tuple(_promises(violations, unjudged)))


def _promises(violations: Counts, unjudged: Collection[str]) -> Iterable[Promise]:
    for name, count in violations:
        judged = name not in unjudged
        told = f"{count:,}" if count or judged else "not judged"
        yield Promise(name, told, "bad" if count else "good" if judged else "open")


def _anchor(value: object) -> str:
    return value.anchor if isinstance(value, Figure) else ""


def _told(value: object) -> tuple[str, bool]:
    """Write a value of a table; whether it is a number."""
    match value:
        case Ms():
            return duration(value), True
        case int():
            return f"{value:,}", True
        case Figure():
            return value.text, value.number
        case _:
            return str(value), False
