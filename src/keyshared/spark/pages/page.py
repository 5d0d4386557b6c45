"""Parts of a page of HTML: sections, tables, and times the way people read them. Plain Python; needs no Spark."""

from collections.abc import Collection, Iterable, Sequence
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias

from keyshared.errors import ArgumentError
from keyshared.spark.pages.charts import nice_ceiling

__all__ = [
    "Counts",
    "Ms",
    "Part",
    "against",
    "as_text",
    "checked_target",
    "clipped",
    "duration",
    "facts",
    "header",
    "listed",
    "nice_duration",
    "page",
    "section",
    "table",
    "verdict",
]

Counts: TypeAlias = Sequence[tuple[str, int]]
"""How often something was found, by name."""

_MOST_LISTED: Final = 8
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


def nice_duration(milliseconds: float) -> float:
    """Return the next round time: where an axis ends.

    Args:
        milliseconds: The longest time to show.

    Returns:
        A round number of milliseconds, seconds, minutes, hours or days, whichever is the largest unit that fits.

    Example:
        >>> duration(nice_duration(2_100)), duration(nice_duration(100_000)), duration(nice_duration(1e10))
        ('4.0 s', '4 min', '200 d')
    """
    sizes = (_DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS)
    size = next((size for size in sizes if milliseconds >= size), 1)
    return nice_ceiling(milliseconds / size) * size


def clipped(key: str) -> str:
    """Cut a key to what a page can show.

    Args:
        key: The key, as text.

    Returns:
        Its first 80 characters at most.
    """
    return key if len(key) <= _MAX_CHARACTERS_OF_A_KEY else key[: _MAX_CHARACTERS_OF_A_KEY - 1] + "…"


def as_text(key: bytes) -> str:
    r"""Write a key for people.

    Args:
        key: Any bytes.

    Returns:
        The text that it is in UTF-8, with an escape for each byte that is none, and for each character that cannot be
        seen or that would turn around what follows.

    Example:
        >>> print(as_text(b"order\xff\n"))
        order\xff\n
    """
    text = key.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def listed(names: Sequence[str], between: str = ", ") -> str:
    """Write names one after the other, as many as a page can show.

    Args:
        names: Any number of them.
        between: What stands between two.

    Returns:
        The first eight at most, and how many there are besides.

    Example:
        >>> listed([f"c{n}" for n in range(10)])
        'c0, c1, c2, c3, c4, c5, c6, c7 and 2 more'
    """
    more = len(names) - _MOST_LISTED
    return between.join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def checked_target(path: str | PathLike[str]) -> Path:
    """Check that a page can be written, before a job starts that takes hours.

    Args:
        path: Where it is to be written.

    Returns:
        The same.

    Raises:
        ArgumentError: It is empty, a folder, or in a folder that is not there.
    """
    if not str(path):
        raise ArgumentError("path", path, "be where the page is to be written")
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise ArgumentError("path", str(path), "name a file in a folder that is there")
    return target


def header(title: str, about: str, *content: str) -> str:
    """Write the top of a page.

    Args:
        title: Headline.
        about: What the figures are of; may be empty.
        content: Elements.

    Returns:
        An element.
    """
    told = f"<p>{escape(about)}</p>" if about else ""
    return f"<header><h1>{escape(title)}</h1>{told}{''.join(content)}</header>"


def verdict(violations: Counts | None, unjudged: Collection[str] = ()) -> str:
    """Write whether promises were kept.

    Args:
        violations: Broken promises by id, zeros included; None without an audit.
        unjudged: Those of them that could not be judged, or not in full.

    Returns:
        Elements.
    """
    if violations is None:
        return '<p class="verdict open">promises not audited</p>'
    broken = sum(count for _, count in violations)
    kind, told = "good", "every promise kept"
    if broken:
        kind, told = "bad", f"{broken:,} violations"
    elif unjudged:
        kind, told = "open", "no violation found, but not everything could be judged"
    promises = "".join(_promise(name, count, judged=name not in unjudged) for name, count in violations)
    return (
        f'<p class="verdict {kind}">{told}</p><ul class="promises" aria-label="violations by promise">{promises}</ul>'
    )


def _promise(name: str, count: int, *, judged: bool) -> str:
    kind = "bad" if count else "good" if judged else "open"
    told = f"{count:,}" if count or judged else "not judged"
    return f'<li class="{kind}">{escape(name)} <b>{told}</b></li>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Write tiles with a number each.

    Args:
        pairs: Names and values.

    Returns:
        An element.
    """
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="numbers">{cells}</dl>'


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table; numbers, `Ms` and `Part` stand to the right.

    It scrolls by itself where it is wider than the page, also by keys.

    Args:
        caption: What it shows.
        head: Names of the columns.
        rows: As many values each; they may contain anything.

    Returns:
        An element; without rows, one that says so.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return f'<p class="soft">{escape(caption)}: none</p>'
    # a head stands over its column: to the right where the numbers are
    heads = (_NUMBER if first.startswith(f"<td{_NUMBER}") else "" for first in cells[0])
    names = "".join(f'<th scope="col"{number}>{escape(name)}</th>' for name, number in zip(head, heads, strict=True))
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    told = escape(caption)
    return (
        f'<div class="table" role="region" aria-label="{told}" tabindex="0"><table><caption>{told}</caption>'
        f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def page(title: str, body: str) -> str:
    """Write a page that refers to nothing outside itself.

    Args:
        title: Its title; may contain anything.
        body: Elements.

    Returns:
        A complete HTML document.
    """
    style = (files("keyshared.spark.pages") / "page.css").read_text(encoding="utf-8")
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
    return f"<section><h2>{escape(title)}</h2><p>{escape(note)}</p>{''.join(content)}</section>"


def _cell(value: object) -> str:
    if isinstance(value, Ms):
        return f"<td{_NUMBER}>{duration(value)}</td>"
    if isinstance(value, int):
        return f"<td{_NUMBER}>{value:,}</td>"
    if isinstance(value, Part):
        return f"<td{_NUMBER}>{escape(value)}</td>"
    return f"<td>{escape(str(value))}</td>"


def against(value: float, ideal: float) -> str:
    """Compare a load with its ideal.

    Args:
        value: The load.
        ideal: The load that there should be.

    Returns:
        Like "+4.2%".
    """
    return f"{value / ideal - 1:+.1%}" if ideal else "no share"
