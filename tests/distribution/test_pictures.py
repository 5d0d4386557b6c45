"""Pictures of a tree: everything is in them, and no name can break them."""

import re
from pathlib import Path

from tests.distribution.trees import UNBALANCED

from keyshared.distribution import DistributionTree, dot, mermaid

TREE = DistributionTree(UNBALANCED)


def test_mermaid_draws_every_cluster_node_and_link() -> None:
    lines = mermaid(TREE).splitlines()

    assert "flowchart TD" == lines[0]
    clusters = dict(re.findall(r'(n\w+)\[\("(\w+)"\)\]', mermaid(TREE)))
    assert TREE.clusters == tuple(clusters.values())
    assert ["3", "2", "1", "1"] == re.findall(r"level (\d+)", mermaid(TREE))
    assert len(TREE.clusters) + 4 - 1 == sum(" --- " in line for line in lines)
    links = re.findall(r'(n\w+) -\. "(\d+)" \.-> (n\w+)', mermaid(TREE))
    assert list(TREE.hops()) == [(clusters[source], int(level), clusters[target]) for source, level, target in links]


def test_dot_draws_the_same() -> None:
    picture = dot(TREE)

    assert picture.startswith("digraph distribution {\n")
    assert picture.endswith("\n}")
    clusters = dict(re.findall(r'(n\w+) \[label="(\w+)", shape', picture))
    assert TREE.clusters == tuple(clusters.values())
    assert ["3", "2", "1", "1"] == re.findall(r'"level (\d+)"', picture)
    assert len(TREE.clusters) + 4 - 1 == picture.count("[dir=none]")
    links = re.findall(r'(n\w+) -> (n\w+) \[label="(\d+)"', picture)
    assert list(TREE.hops()) == [(clusters[source], int(level), clusters[target]) for source, target, level in links]


def test_the_picture_in_the_documentation_is_what_is_drawn() -> None:
    page = (Path(__file__).parents[2] / "docs" / "distribution.md").read_text("utf-8")
    tree = DistributionTree({3: [{1: ["c1", "c2"]}, {1: ["c3", "c4"]}]})

    assert f"```mermaid\n{mermaid(tree)}\n```" in page


def test_a_cluster_alone_is_a_picture() -> None:
    assert 'flowchart TD\n    n[("c1")]' == mermaid(DistributionTree("c1"))
    assert 'digraph distribution {\n    n [label="c1", shape=cylinder];\n}' == dot(DistributionTree("c1"))


def test_names_are_quoted_whatever_is_in_them() -> None:
    tree = DistributionTree(['say "hi"; end', "back\\slash\nline"])

    assert 'n_0[("say #34;hi#34;#59; end")]' in mermaid(tree)
    assert 'n_1[("back#92;slash#10;line")]' in mermaid(tree)
    assert 'n_0 [label="say \\"hi\\"; end", shape=cylinder];' in dot(tree)
    assert 'n_1 [label="back\\\\slash\\nline", shape=cylinder];' in dot(tree)
    assert len(mermaid(DistributionTree(["a", "b"])).splitlines()) == len(mermaid(tree).splitlines())
    assert len(dot(DistributionTree(["a", "b"])).splitlines()) == len(dot(tree).splitlines())
