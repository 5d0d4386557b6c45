"""A distribution tree as inline SVG: the shape above its clusters, the links as arcs below. Needs no Spark.

It is drawn by hand because Vega-Lite has neither trees nor curves with arrows between two places.

Colours come from the page's style sheet by class, so that a drawing follows light, dark and print.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from html import escape
from typing import Final

from keyshared.distribution.distributor import Hop
from keyshared.distribution.shape import Branch
from keyshared.distribution.tree import DistributionTree

__all__ = ["NARROW", "WIDE", "on_every_screen", "tree_chart"]

WIDE: Final = 720
"""Width of a drawing in units, which the page scales to the screen, together with its text."""

NARROW: Final = 360
"""The same on a phone."""

_STEP: Final = 46  # from one generation to the next
_TOP: Final = 24
_ARC: Final = 26  # how deep an arc hangs for each cluster that it spans
_LETTER: Final = 8  # its width, about
_ARROW: Final = (
    '<defs><marker id="arrow{width}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8Z" class="bar"/></marker></defs>'
)


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


def tree_chart(
    tree: DistributionTree,
    copies: Mapping[Hop, int],
    *,
    title: str,
    marked: Collection[Hop] = (),
    width: int = WIDE,
) -> str:
    """Draw a tree and its links.

    Args:
        tree: The tree. Names may contain anything.
        copies: How much each link has carried: the more, the thicker its arc. Links that are not in the tree are drawn
            as well, such as one that has got another target.
        title: For readers who hear the page.
        marked: Links to point out.
        width: `WIDE` or `NARROW`.

    Returns:
        An ``<svg>`` element.

    Raises:
        KeyError: A link is from or to a cluster that is not in the tree.

    Complexity:
        O(clusters + links).

    Example:
        >>> tree = DistributionTree({1: ["c1", "c2"]})
        >>> tree_chart(tree, {Hop("c1", 1, "c2"): 7}, title="two clusters").count("<path")
        4
    """
    clusters = tree.clusters
    x = {name: width * (i + 0.5) / len(clusters) for i, name in enumerate(clusters)}
    floor = _TOP + _STEP * tree.max_hops
    most = max(copies.values(), default=0) or 1
    shape = "".join(_branch(tree.root, x, 0, floor))
    most_characters = max(3, width // len(clusters) // _LETTER)
    names = "".join(_cluster(name, at, floor, most_characters) for name, at in x.items())
    arcs = "".join(
        _arc(
            (x[hop.cluster], x[hop.target]),
            (floor, width),
            1 + 4 * count / most,
            "ideal" if hop in marked else "mark",
            _told(hop, count),
        )
        for hop, count in copies.items()
    )
    height = floor + 30 + _ARC * (len(clusters) + 1)
    inside = f"{_ARROW.format(width=width)}{shape}{arcs}{names}"
    return f'<svg class="drawing" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{inside}</svg>'


def _branch(branch: Branch, x: Mapping[str, float], depth: int, floor: int) -> Iterator[str]:
    """Draw nodes with their levels, and lines to what is below."""
    if isinstance(branch, str):
        return
    at, y = _middle(branch, x), _TOP + _STEP * depth
    for below in branch.branches:
        end = floor - 20 if isinstance(below, str) else y + _STEP
        yield f'<path d="M{at:.1f} {y}L{_middle(below, x):.1f} {end}" class="grid"/>'
        yield from _branch(below, x, depth + 1, floor)
    yield f'<circle cx="{at:.1f}" cy="{y}" r="4" class="bar"/>'
    yield f'<text x="{at + 10:.1f}" y="{y + 4}" class="soft">level {branch.level}</text>'


def _middle(branch: Branch, x: Mapping[str, float]) -> float:
    names = (branch,) if isinstance(branch, str) else branch.clusters
    return (x[names[0]] + x[names[-1]]) / 2


def _cluster(name: str, at: float, floor: int, most: int) -> str:
    short = name if len(name) <= most else name[: most - 1] + "…"
    return f'<text x="{at:.1f}" y="{floor}" class="middle">{escape(short)}<title>{escape(name)}</title></text>'


def _told(hop: Hop, count: int) -> str:
    return escape(f"{hop}: {count:,} copies")


def _arc(ends: tuple[float, float], corner: tuple[int, int], thickness: float, kind: str, title: str) -> str:
    """Draw from the left of one name to the left of another, or from right to right: both ways lie side by side."""
    floor, width = corner
    side = -6 if ends[0] < ends[1] else 6
    start, stop = ends[0] + side, ends[1] + side
    depth = floor + 42 + _ARC * 5 * abs(stop - start) / width + (6 if side > 0 else 0)
    return (
        f'<path d="M{start:.1f} {floor + 8}C{start:.1f} {depth:.1f} {stop:.1f} {depth:.1f} {stop:.1f} {floor + 9}" '
        f'class="{kind}" style="fill:none;stroke-width:{thickness:.1f}" marker-end="url(#arrow{width})">'
        f"<title>{title}</title></path>"
    )
