"""How a page writes times, keys and names, and where it goes. Plain Python; needs no Spark."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from keyshared._checks import check_extra, check_kind
from keyshared.errors import ArgumentError

if TYPE_CHECKING:
    from keyshared.spark.pages.parts import Page

__all__ = [
    "DAY_MS",
    "MINUTE_MS",
    "Figure",
    "Ms",
    "against",
    "as_html",
    "as_text",
    "check_words",
    "checked_target",
    "clipped",
    "duration",
    "listed",
    "named",
    "off",
    "share",
]

MINUTE_MS: Final = 60_000
"""Milliseconds of a minute."""

DAY_MS: Final = 86_400_000
"""Milliseconds of a day."""

_DRAWN_BY: Final = ("jinja2", "altair", "vl_convert")
_MOST_LISTED: Final = 8
_MAX_CHARACTERS_OF_A_KEY: Final = 80
_MAX_CHARACTERS_IN_A_FILE: Final = 1_000
_SECOND_MS: Final = 1_000
_HOUR_MS: Final = 60 * MINUTE_MS
_UNITS: Final = (
    (DAY_MS, "d", _HOUR_MS, "h"),
    (_HOUR_MS, "h", MINUTE_MS, "min"),
    (MINUTE_MS, "min", _SECOND_MS, "s"),
)


class Ms(int):
    """Milliseconds in a table."""


class Figure(NamedTuple):
    """What a table shows in one form to people, and gives in another one to programs.

    Attributes:
        text: On the page.
        value: In a file: as exact as it is known; None if there is none.
        unit: Of the value, for the head of its column.
        number: Whether it stands to the right.
        anchor: The part of the page to which it leads; empty for none.
    """

    text: str
    value: str | float | None
    unit: str = ""
    number: bool = True
    anchor: str = ""


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
    if whole < MINUTE_MS:
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


def named(key: str, anchor: str = "") -> Figure:
    """Return a key, or another name, for a table: clipped on the page, and longer in a file.

    Args:
        key: The key, as text.
        anchor: The part of the page to which it leads; empty for none.

    Returns:
        Its first 80 characters at most, and its first 1,000.
    """
    return Figure(clipped(key), key[:_MAX_CHARACTERS_IN_A_FILE], number=False, anchor=anchor)


def share(part: float, whole: float, *, digits: int = 1) -> Figure:
    """Return a part of a whole for a table.

    Args:
        part: The part.
        whole: The whole; 0 if there is none.
        digits: Of the per cent, behind the point.

    Returns:
        Per cent on the page, a number in a file, and nothing without a whole.

    Example:
        >>> share(1, 8).text, share(1, 8).value
        ('12.5%', 0.125)
    """
    return Figure(f"{part / whole:.{digits}%}", part / whole) if whole else Figure("", None)


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
        MissingExtraError: The packages that draw a page are not installed.
    """
    given: object = path
    if not isinstance(given, str | PathLike) or not str(given):
        raise ArgumentError("path", path, "be where the page is to be written")
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise ArgumentError("path", str(path), "name a file in a folder that is there")
    check_extra("demo", *_DRAWN_BY)
    return target


def check_words(title: object, about: object) -> None:
    """Check what a page is called, and what is said of it.

    Args:
        title: The headline.
        about: What it is about, for the reader.

    Raises:
        ArgumentError: One of them is no text.
    """
    check_kind("title", title, str)
    check_kind("about", about, str)


def against(value: float, ideal: float) -> str:
    """Compare a load with its ideal.

    Args:
        value: The load.
        ideal: The load that there should be.

    Returns:
        Like "+4.2%".
    """
    return f"{value / ideal - 1:+.1%}" if ideal else "no share"


def off(value: float, ideal: float) -> Figure:
    """Return for a table how far a load is off its ideal.

    Args:
        value: The load.
        ideal: The load that there should be.
    """
    return Figure(against(value, ideal), value / ideal - 1 if ideal else None)


def as_html(page: "Page") -> str:
    """Write a page that refers to nothing outside itself.

    Args:
        page: What is on it; may contain anything.

    Returns:
        A complete HTML document.

    Raises:
        MissingExtraError: The packages that draw a page are not installed.

    Complexity:
        O(size of the page). The first page of a process takes some seconds longer: scripts for charts are put together.
    """
    check_extra("demo", *_DRAWN_BY)
    from keyshared.spark.pages.render import rendered  # noqa: PLC0415 - workers need no pages, and may lack the extra

    return rendered(page)
