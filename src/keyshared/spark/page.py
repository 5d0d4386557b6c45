"""Parts of a page of HTML: sections, tables, and times the way people read them. Plain Python; needs no Spark."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Final

__all__ = ["Ms", "Part", "clipped", "duration", "page", "section", "table"]

_NUMBER: Final = ' class="number"'
_MAX_CHARACTERS_OF_A_KEY: Final = 80
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_UNITS: Final = (
    (_DAY_MS, "d", _HOUR_MS, "h"),
    (_HOUR_MS, "h", _MINUTE_MS, "min"),
    (_MINUTE_MS, "min", _SECOND_MS, "s"),
)


class Ms(int):
    """Milliseconds in a table."""


class Part(str):
    """A figure that is text already, such as per cent, in a table."""

    __slots__ = ()


def duration(milliseconds: float) -> str:
    """Write a time the way people read it, in at most two units.

    Args:
        milliseconds: 0 or more.

    Returns:
        Like "340 ms", "2.5 s", "3 min 20 s", "4 h 5 min" or "12 d 3 h".

    Example:
        >>> duration(340), duration(200_000), duration(26 * 3_600_000)
        ('340 ms', '3 min 20 s', '1 d 2 h')
    """
    whole = round(milliseconds)
    if whole < _SECOND_MS:
        return f"{whole} ms"
    if whole < _MINUTE_MS:
        return f"{whole // 100 / 10} s"  # cut, not rounded: 59.99 s is not 60 s
    size, name, small, small_name = next(unit for unit in _UNITS if whole >= unit[0])
    rest = whole % size // small
    return f"{whole // size} {name}" + (f" {rest} {small_name}" if rest else "")


def clipped(key: str) -> str:
    """Cut a key to what a page can show.

    Args:
        key: The key, as text.

    Returns:
        Its first 80 characters at most.
    """
    return key if len(key) <= _MAX_CHARACTERS_OF_A_KEY else key[: _MAX_CHARACTERS_OF_A_KEY - 1] + "…"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Make a table; numbers, `Ms` and `Part` stand to the right.

    Args:
        head: Names of the columns.
        rows: As many values each; they may contain anything.

    Returns:
        An element; without rows, one that says so.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return '<p class="soft">none</p>'
    # a head stands over its column: to the right where the numbers are
    heads = (_NUMBER if first.startswith(f"<td{_NUMBER}") else "" for first in cells[0])
    names = "".join(f"<th{number}>{escape(name)}</th>" for name, number in zip(head, heads, strict=True))
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return f'<div class="table"><table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>'


def page(title: str, body: str) -> str:
    """Make a page that refers to nothing outside itself.

    Args:
        title: Its title; may contain anything.
        body: Elements.

    Returns:
        A complete HTML document.
    """
    style = (files("keyshared.spark") / "report.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>{body}</main></body></html>\n"
    )


def section(title: str, note: str, *content: str) -> str:
    """Put content below a headline.

    Args:
        title: The headline.
        note: What is to be seen, in a sentence or two.
        content: Elements.

    Returns:
        An element.
    """
    return f"<section><h2>{title}</h2><p>{escape(note)}</p>{''.join(content)}</section>"


def _cell(value: object) -> str:
    if isinstance(value, Ms):
        return f"<td{_NUMBER}>{duration(value)}</td>"
    if isinstance(value, int):
        return f"<td{_NUMBER}>{value:,}</td>"
    if isinstance(value, Part):
        return f"<td{_NUMBER}>{escape(value)}</td>"
    return f"<td>{escape(str(value))}</td>"
