"""A page as one file of HTML: Jinja2's templates, one style sheet, and Vega-Lite once for all of its charts."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from keyshared.spark.pages.charts import chart
from keyshared.spark.pages.csv_files import address, charted, csv_text, file_name, slug
from keyshared.spark.pages.parts import ChartPart, Detail, Drawing, Page, Section, Table

__all__ = ["rendered"]

_PACKAGE: Final = "keyshared.spark.pages"
_EXPORTS: Final = "window.vegaEmbed=vegaEmbed;window.vega=vega;"
_ENDS_SCRIPT: Final = re.compile(r"<(?=/script|!--)", re.IGNORECASE)


def rendered(page: Page) -> str:
    """Write a page: see `keyshared.spark.pages.page.as_html`.

    Args:
        page: What is on it; may contain anything.

    Returns:
        A complete HTML document. It runs no script but its own, and may load nothing, by its content security policy.
    """
    drawn = any(isinstance(part, ChartPart) and not part.empty for part in _parts(page))
    scripts = (_vega(), _text("page.js")) if drawn else ()
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            style=Markup(_text("page.css")),  # noqa: S704 - our own file
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own and Vega's
            hashes=[_hash(script) for script in scripts],
        )
    )


def _parts(page: Page) -> Iterator[object]:
    for section in page.parts:
        for part in section.parts if isinstance(section, Section) else ():
            yield from part.parts if isinstance(part, Detail) else (part,)


def _chart(part: ChartPart) -> Markup:
    """Return a chart as data: no text in it can end the element in which it stands."""
    told = json.dumps(chart(part), separators=(",", ":"), ensure_ascii=False)
    return Markup(told.replace("<", "\\u003c"))  # noqa: S704 - as above


def _drawing(part: Drawing) -> Markup:
    return Markup(part.svg)  # noqa: S704 - it is escaped where it is drawn


def _address(table: Table) -> str:
    return address(csv_text(table))


def _file_name(caption: str, title: str) -> str:
    return file_name(title, caption)


def _table_id(caption: str) -> str:
    return f"table-{slug(caption)}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(_PACKAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {
        "chart": _chart,
        "drawing": _drawing,
        "charted": charted,
        "address": _address,
        "file_name": _file_name,
        "table_id": _table_id,
    }
    return made


@cache
def _vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    return _ENDS_SCRIPT.sub(r"<\\", vl_convert.javascript_bundle(_EXPORTS))


def _text(name: str) -> str:
    return (files(_PACKAGE) / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return b64encode(sha256(script.encode()).digest()).decode()
