"""The figures of a page as CSV files that the page itself carries. Plain Python; needs no Spark.

A file is an address of the kind ``data:``, which a browser saves without asking anybody: the page goes on loading
nothing, and the link works without scripts.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote

from keyshared.spark.pages.clock import Clock
from keyshared.spark.pages.page import Figure, Ms
from keyshared.spark.pages.parts import ChartPart, Heat, Line, Lines, Table, Timelines, Unit
from keyshared.spark.pages.thinning import thinned

__all__ = ["address", "charted", "csv_text", "file_name", "slug"]

_MARK: Final = "\ufeff"  # without it, some spreadsheets take UTF-8 for something else
_DIGITS: Final = 6
_KEPT: Final = "!$()*+,:;=?@"  # of an address of this kind: what need not be escaped
_LETTERS_OF_TITLE: Final = 60
_LETTERS_OF_CAPTION: Final = 120
_FORMULAS: Final = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the wide ones, too
_GREATEST: Final = re.compile("[,:;][^,:;]* ?at most ")  # a figure, which is no part of a name
_CONTROLS: Final = ("\t", "\r", "\n")


def csv_text(table: Table) -> str:
    r"""Write a table as CSV: exact figures, times in milliseconds or of the calendar, parts of a whole as numbers.

    Args:
        table: What to write. Its texts may contain anything: one that a spreadsheet would take for a formula begins
            with an apostrophe.

    Returns:
        RFC 4180 in UTF-8, with a head and a byte order mark.

    Example:
        >>> table = Table("Waits", ("key", "wait"), (("=1+1", Ms(2_500)),))
        >>> csv_text(table).removeprefix("\ufeff").splitlines()
        ['key,wait (ms)', "'=1+1,2500"]
    """
    written = io.StringIO(newline="")
    writer = csv.writer(written)
    writer.writerow([_plain(head) + _unit(row[place] for row in table.rows) for place, head in enumerate(table.head)])
    writer.writerows([_value(value) for value in row] for row in table.rows)
    return _MARK + written.getvalue()


def address(text: str) -> str:
    """Return the address of a file that consists of a text.

    Args:
        text: Any text.

    Returns:
        Of the kind ``data:``; without quotes, angle brackets, ampersands and slashes.
    """
    return "data:text/csv;charset=utf-8," + quote(text, safe=_KEPT)


def file_name(title: str, caption: str) -> str:
    """Name the file of a table.

    Args:
        title: Of the page; may contain anything.
        caption: Of the table or chart; likewise.

    Returns:
        A name that every system of files takes.

    Example:
        >>> file_name("Orders of <May>", "Lag of each consumer over time, at most 3 messages")
        'orders-of-may-lag-of-each-consumer-over-time.csv'
    """
    about = _GREATEST.split(caption, maxsplit=1)[0]
    words = (slug(title)[:_LETTERS_OF_TITLE], slug(about)[:_LETTERS_OF_CAPTION])
    return "-".join(word.strip("-") for word in words if word) + ".csv"


def slug(text: str) -> str:
    """Return what is left of a text in names of files and of parts of a page: small letters, digits and hyphens.

    Args:
        text: Any text.
    """
    return "-".join(re.findall("[a-z0-9]+", text.lower()))


def charted(part: ChartPart) -> Table | None:
    """Return the figures that a chart shows, as a table.

    Args:
        part: The chart.

    Returns:
        One row for each point in time and one column for each name, empty where a line has no point; one row for each
        stretch of a timeline. Lines have the points that are drawn. None for bars, which have a table below them.
    """
    match part:
        case Lines(about=about, lines=lines, unit=unit, clock=clock, over=over):
            return _wide(about, [Line(line.label, thinned(line.points)) for line in lines], unit, clock, over)
        case Heat(about=about, rows=rows, unit=unit, clock=clock):
            return _wide(about, rows, unit, clock, "")
        case Timelines(about=about, spans=spans, clock=clock):
            stretches = tuple((s.label, s.state, clock.figure(s.from_ms), clock.figure(s.until_ms)) for s in spans)
            return Table(about, ("of", "state", "from", "until"), stretches)
        case _:
            return None


def _wide(caption: str, lines: Sequence[Line], unit: Unit, clock: Clock | None, over: str) -> Table:
    values = [dict(line.points) for line in lines]
    name = "ms" if unit is Unit.DURATION else ""
    moments = sorted({at for each in values for at in each})
    rows = tuple(
        (
            Figure("", at) if clock is None else clock.figure(at),
            *(Figure("", each.get(at), name) for each in values),
        )
        for at in moments
    )
    return Table(caption, ("at" if clock else over, *(line.label for line in lines)), rows)


def _unit(values: Iterable[object]) -> str:
    units = ("ms" if isinstance(value, Ms) else value.unit if isinstance(value, Figure) else "" for value in values)
    unit = next(filter(None, units), "")
    return f" ({unit})" if unit else ""


def _value(value: object) -> str | int | float:
    """Return what stands in a file: text that no spreadsheet takes for a formula, or a number."""
    raw = value.value if isinstance(value, Figure) else value
    if raw is None:
        return ""
    if isinstance(raw, int):
        return int(raw)
    if isinstance(raw, float):
        return int(raw) if raw.is_integer() else float(f"{raw:.{_DIGITS}g}")
    return _plain(str(raw))


def _plain(text: str) -> str:
    dangerous = text.lstrip().startswith(_FORMULAS) or text.startswith(_CONTROLS)
    return f"'{text}" if dangerous else text
