"""The shape of a distribution tree: nested data read, levelled, proved to be in order, and edited by copying.

A branch is a cluster (its name) or a `Node` with a level and at least two branches. Everything that is wrong with a
shape is found here, and named by its place in the data that was given: ``tree[0][1]`` is the second branch of the first
branch.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, Union, cast

from keyshared.copyflags import MAX_LEVEL
from keyshared.errors import TopologyError

__all__ = [
    "LEVEL_STEP",
    "MAX_DEPTH",
    "Branch",
    "Nested",
    "Node",
    "Path",
    "add",
    "at",
    "count_links",
    "crowded",
    "depth",
    "highest_level",
    "leaves",
    "parse",
    "path_of",
    "path_text",
    "places",
    "relevel",
    "remove",
    "to_nested",
]

LEVEL_STEP: Final = 16  # levels between two nodes that are handed out: four clusters fit one below the other
MAX_DEPTH: Final = 100  # nodes one below the other: a message may take a hop for each; and the walks are recursive

Nested: TypeAlias = object
"""A cluster's name, a list of branches, or a mapping ``{level: list of branches}``; checked by `parse`."""

Branch: TypeAlias = Union[str, "Node"]
Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A root or intermediate node: a level, above those of the nodes below it, and at least two branches.

    ``clusters`` is every cluster below it, in order.
    """

    level: int
    branches: tuple[Branch, ...]
    clusters: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clusters", tuple(name for branch in self.branches for name in leaves(branch)))


def parse(nested: Nested) -> Branch:
    """Read a shape and prove that it is in order.

    Lists get a level `LEVEL_STEP` or more above the nodes below them, on a multiple of it, so that there is room for
    nodes in between. O(n d), n clusters, d the depth.

    Raises:
        TopologyError: A cluster is named twice or is no text, a node has less than two branches, a level is none,
            levels do not decrease strictly from the root to a cluster, or the data is too deep.

    Source:
        Axual "Distribution model": levels decrease towards the clusters in its examples; that they must is our finding.

    Example:
        >>> parse({3: [["c1", "c2"], {1: ["c3", "c4"]}]})
        Traceback (most recent call last):
        ...
        keyshared.errors.TopologyError: at tree[0]: chain of levels from the root is (3, 16); it must decrease strictly
    """
    root = _read(nested, (), {})
    _check_levels(root, (), ())
    return root


def _read(nested: Nested, path: Path, seen: dict[str, Path]) -> Branch:
    """Read a branch; names are checked on the way, so that parts that occur twice are not read twice."""
    if type(nested) is str and nested:
        if nested in seen:
            where = path_text(seen[nested])
            raise TopologyError(path_text(path), "cluster", nested, f"be named once; it is at {where} already")
        seen[nested] = path
        return nested
    if len(path) >= MAX_DEPTH:
        raise TopologyError(path_text(path), "depth", len(path) + 1, f"be at most {MAX_DEPTH}")
    level: int | None = None
    branches: object = nested
    if isinstance(nested, Mapping):
        if len(nested) != 1:
            raise TopologyError(path_text(path), "number of levels", len(nested), "be 1, with its list of branches")
        ((level, branches),) = nested.items()
        if type(level) is not int or not 1 <= level <= MAX_LEVEL:
            raise TopologyError(path_text(path), "level", level, f"be an int from 1 to {MAX_LEVEL}")
    if not isinstance(branches, list | tuple):
        requirement = "be a cluster (a non-empty str), a list of branches, or {level: list of branches}"
        raise TopologyError(path_text(path), "branch", branches, requirement)
    if len(branches) < 2:  # noqa: PLR2004  # there is nothing to distribute between
        raise TopologyError(path_text(path), "number of branches", len(branches), "be at least 2")
    read = tuple(_read(branch, (*path, index), seen) for index, branch in enumerate(branches))
    return Node(_level_above(read, path) if level is None else level, read)


def _level_above(branches: tuple[Branch, ...], path: Path) -> int:
    """Return the next multiple of the step above the levels below."""
    level = (max(map(highest_level, branches)) // LEVEL_STEP + 1) * LEVEL_STEP
    if level > MAX_LEVEL:
        raise TopologyError(path_text(path), "level", level, f"be at most {MAX_LEVEL}; use lower levels below")
    return level


def _check_levels(branch: Branch, above: tuple[int, ...], path: Path) -> None:
    if isinstance(branch, str):
        return
    levels = (*above, branch.level)
    if above and above[-1] <= branch.level:
        raise TopologyError(path_text(path), "chain of levels from the root", levels, "decrease strictly")
    for index, below in enumerate(branch.branches):
        _check_levels(below, levels, (*path, index))


def _placed(branch: Branch, path: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(branch, str):
        yield branch, path
        return
    for index, below in enumerate(branch.branches):
        yield from _placed(below, (*path, index))


def places(root: Branch) -> dict[str, Path]:
    """Return the place of each cluster. O(n d), n clusters, d the depth."""
    return dict(_placed(root, ()))


def count_links(branch: Branch) -> int:
    """Count the links of a tree: one for each cluster, level above it, and sibling there. O(n d)."""
    if isinstance(branch, str):
        return 0
    across = len(leaves(branch)) * (len(branch.branches) - 1)
    return across + sum(map(count_links, branch.branches))


def depth(branch: Branch) -> int:
    """Count the nodes of the longest chain from the root to a cluster."""
    return 0 if isinstance(branch, str) else 1 + max(map(depth, branch.branches))


def path_text(path: Path) -> str:
    """Write a place in the nested data as Python would address it in lists."""
    return "tree" + "".join(f"[{index}]" for index in path)


def leaves(branch: Branch) -> tuple[str, ...]:
    """Return the clusters of a branch, in order."""
    return (branch,) if isinstance(branch, str) else branch.clusters


def highest_level(branch: Branch) -> int:
    """Return the level of a node; 0 for a cluster."""
    return 0 if isinstance(branch, str) else branch.level


def at(root: Branch, path: Path) -> Branch:
    """Return the branch at a place."""
    for index in path:  # paths are made here, and lead through nodes
        root = cast("Node", root).branches[index]
    return root


def path_of(root: Branch, clusters: Collection[str]) -> Path:
    """Return the place of the smallest branch that holds all of these clusters; they must be there."""
    wanted = set(clusters)
    path: list[int] = []
    while not isinstance(root, str):
        inside = [index for index, below in enumerate(root.branches) if wanted <= set(leaves(below))]
        if not inside:
            break
        path.append(inside[0])
        root = root.branches[inside[0]]
    return tuple(path)


def add(root: Branch, path: Path, cluster: str, *, wide: bool) -> Branch:
    """Add a cluster next to the branch at a place, without touching a level that is there.

    Args:
        root: The tree.
        path: The place.
        cluster: Its name, not there yet.
        wide: As one more branch of the node above, instead of under a new node with a free level.

    Raises:
        TopologyError: There is no free level, or no node above.
    """
    near = at(root, path)
    if wide:
        if not path:
            raise TopologyError(path_text(path), "node above", None, "exist; leave wide out for a new root")
        above = cast("Node", at(root, path[:-1]))
        return _with(root, path[:-1], replace(above, branches=(*above.branches, cluster)))
    return _with(root, path, Node(_free_level(root, path), (near, cluster)))


def _free_level(root: Branch, path: Path) -> int:
    """Return a level between those of the branch at a place and of the node above it: the middle, for room."""
    below = highest_level(at(root, path))
    if not path:
        level = (below // LEVEL_STEP + 1) * LEVEL_STEP
        if level > MAX_LEVEL:
            raise TopologyError(path_text(path), "level of a new root", level, f"be at most {MAX_LEVEL}")
        return level
    above = highest_level(at(root, path[:-1]))
    if above - below < 2:  # noqa: PLR2004  # neighbours
        requirement = "leave one free in between; add the cluster wide, or renumber after a drain"
        raise TopologyError(path_text(path), "levels above and of the branch", (above, below), requirement)
    return (above + below) // 2


def crowded(root: Branch) -> Iterator[Branch]:
    """Yield the branches that have no free level above them."""
    if isinstance(root, str):
        return
    for below in root.branches:
        if root.level - highest_level(below) == 1:
            yield below
        yield from crowded(below)


def remove(root: Branch, cluster: str) -> Branch:
    """Remove a cluster that is not the only one; a node that is left with one branch makes way for it."""
    node = cast("Node", root)
    kept = tuple(
        remove(below, cluster) if cluster in leaves(below) else below for below in node.branches if below != cluster
    )
    return kept[0] if len(kept) == 1 else replace(node, branches=kept)


def relevel(branch: Branch) -> Branch:
    """Hand out all levels again, as for lists."""
    return branch if isinstance(branch, str) else parse(_unlevelled(branch))


def _unlevelled(branch: Branch) -> Nested:
    return branch if isinstance(branch, str) else [_unlevelled(below) for below in branch.branches]


def to_nested(branch: Branch) -> Nested:
    """Return the tree as data that `parse` reads, with every level written out."""
    return branch if isinstance(branch, str) else {branch.level: [to_nested(below) for below in branch.branches]}


def _with(root: Branch, path: Path, branch: Branch) -> Branch:
    """Copy a tree with another branch at a place."""
    if not path:
        return branch
    node = cast("Node", root)
    changed = _with(node.branches[path[0]], path[1:], branch)
    return replace(node, branches=(*node.branches[: path[0]], changed, *node.branches[path[0] + 1 :]))
