"""The drawing of a tree: well-formed, complete, and safe with any name. Needs no Spark."""

import re
from xml.etree import ElementTree as ET

from tests.distribution.trees import UNBALANCED

from keyshared.distribution import DistributionTree, Hop
from keyshared.spark.pages.treechart import NARROW, WIDE, tree_chart

TREE = DistributionTree(UNBALANCED)


def drawn(
    tree: DistributionTree, copies: dict[Hop, int], marked: tuple[Hop, ...] = (), width: int = WIDE
) -> ET.Element:
    svg = tree_chart(tree, copies, title="a <tree>", marked=marked, width=width)
    return ET.fromstring(svg)  # noqa: S314 - our own text


def test_every_cluster_level_and_link_is_drawn() -> None:
    svg = drawn(TREE, dict.fromkeys(TREE.hops(), 5))
    texts = [text.text for text in svg.iter("text")]
    assert ["1", "2", "3", "4", "5", "level 1", "level 1", "level 2", "level 3"] == sorted(filter(None, texts))
    titles = [title.text for path in svg.iter("path") for title in path.iter("title")]
    assert [f"{hop}: 5 copies" for hop in TREE.hops()] == titles
    assert 8 == sum(path.get("class") == "grid" for path in svg.iter("path"))
    assert "a <tree>" == svg.get("aria-label")


def test_links_that_carry_more_are_thicker_and_marked_ones_have_another_class() -> None:
    first, second = TREE.hops()[:2]
    svg = drawn(TREE, {first: 100, second: 50}, marked=(second,))
    arcs = [path for path in svg.iter("path") if list(path)]
    assert [("mark", "5.0"), ("ideal", "3.0")] == [
        (arc.get("class"), re.findall(r"stroke-width:([\d.]+)", str(arc.get("style")))[0]) for arc in arcs
    ]


def test_everything_lies_inside_the_picture() -> None:
    for tree in (TREE, DistributionTree([[["a", "b"], "c"], "d"]), DistributionTree("alone")):
        for wanted in (WIDE, NARROW):
            svg = drawn(tree, dict.fromkeys(tree.hops(), 1), width=wanted)
            width, height = map(float, str(svg.get("viewBox")).split()[2:])
            assert wanted == width
            drawings = [str(path.get("d")) for path in svg.findall("path")]
            points = [tuple(map(float, pair)) for d in drawings for pair in re.findall(r"([\d.]+) ([\d.]+)", d)]
            assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_names_may_contain_anything() -> None:
    nasty = "<b>\"&' a name that is much too long"
    svg = drawn(DistributionTree({1: [nasty, "b"]}), {Hop(nasty, 1, "b"): 1})
    assert nasty in [title.text for text in svg.iter("text") for title in text.iter("title")]
    assert [f"{nasty!r} at level 1 to 'b': 1 copies"] == [
        title.text for path in svg.iter("path") for title in path.iter("title")
    ]
