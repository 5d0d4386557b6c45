"""Pictures of a distribution tree as text: for Mermaid, which GitHub and most wikis draw, and for Graphviz.

Both show the shape with solid lines, and every link as an arrow with its level. Names may hold any characters.
"""

from collections.abc import Callable, Iterator
from typing import Final

from keyshared._checks import check_kind
from keyshared.distribution.shape import Branch
from keyshared.distribution.tree import DistributionTree

__all__ = ["dot", "mermaid"]

_ROOT: Final = "n"


def mermaid(tree: DistributionTree) -> str:
    """Draw a tree as a Mermaid flowchart: lines of text for a block marked ``mermaid``. O(n d), n links, d the depth.

    Example:
        >>> print(mermaid(DistributionTree({1: ["c1", "c2"]})))
        flowchart TD
            n(["level 1"])
            n_0[("c1")]
            n_1[("c2")]
            n --- n_0
            n --- n_1
            n_0 -. "1" .-> n_1
            n_1 -. "1" .-> n_0
    """
    lines = _drawn(
        tree,
        node=lambda name, level: f'{name}(["level {level}"])',
        cluster=lambda name, label: f'{name}[("{_mermaid_text(label)}")]',
        edge=lambda above, below: f"{above} --- {below}",
        link=lambda source, target, level: f'{source} -. "{level}" .-> {target}',
    )
    return "\n    ".join(["flowchart TD", *lines])


def dot(tree: DistributionTree) -> str:
    """Draw a tree for Graphviz as a digraph in the DOT language. O(n d), n links, d the depth.

    Example:
        >>> print(dot(DistributionTree({1: ["c1", "c2"]})))
        digraph distribution {
            n [label="level 1"];
            n_0 [label="c1", shape=cylinder];
            n_1 [label="c2", shape=cylinder];
            n -> n_0 [dir=none];
            n -> n_1 [dir=none];
            n_0 -> n_1 [label="1", style=dashed, constraint=false];
            n_1 -> n_0 [label="1", style=dashed, constraint=false];
        }
    """
    lines = _drawn(
        tree,
        node=lambda name, level: f'{name} [label="level {level}"];',
        cluster=lambda name, label: f'{name} [label="{_dot_text(label)}", shape=cylinder];',
        edge=lambda above, below: f"{above} -> {below} [dir=none];",
        link=lambda source, target, level: f'{source} -> {target} [label="{level}", style=dashed, constraint=false];',
    )
    return "\n    ".join(["digraph distribution {", *lines]) + "\n}"


def _drawn(
    tree: DistributionTree,
    *,
    node: Callable[[str, int], str],
    cluster: Callable[[str, str], str],
    edge: Callable[[str, str], str],
    link: Callable[[str, str, int], str],
) -> Iterator[str]:
    """Yield the lines of a picture: the branches from the root down, what hangs below what, and the links."""
    check_kind("tree", tree, DistributionTree)
    placed = list(_named(tree.root, _ROOT))
    for name, branch in placed:
        yield cluster(name, branch) if isinstance(branch, str) else node(name, branch.level)
    for name, _ in placed[1:]:
        yield edge(name.rpartition("_")[0], name)
    name_of = {branch: name for name, branch in placed if isinstance(branch, str)}
    for hop in tree.hops():
        yield link(name_of[hop.cluster], name_of[hop.target], hop.level)


def _named(branch: Branch, name: str) -> Iterator[tuple[str, Branch]]:
    """Yield every branch with an identifier made of its place: names of clusters may hold anything."""
    yield name, branch
    if not isinstance(branch, str):
        for index, below in enumerate(branch.branches):
            yield from _named(below, f"{name}_{index}")


def _mermaid_text(label: str) -> str:
    """Quote a name for Mermaid by character code, for it takes neither a backslash nor a doubled quote."""
    return "".join(char if char.isalnum() or char in " ._-/:" else f"#{ord(char)};" for char in label)


def _dot_text(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
