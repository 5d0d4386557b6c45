"""What is wrong with one message, from its copies on all clusters: plain Python, the exact half of the audit.

The log of a distribution says of each message which copies with which flags lie on which clusters. That is enough to
name the link that failed: a message that a cluster has not got is missing from the whole of a largest subtree, and
either a distributor beside that subtree had to copy it across and did not, or every copy there had flags too early.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from keyshared.copyflags import CopyFlags
from keyshared.distribution.shape import Branch, Node, leaves
from keyshared.distribution.tree import DistributionTree

__all__ = ["FAULTS", "Copies", "Fault", "faults_of"]

FAULTS: Final = ("lost", "duplicated", "looped")
"""A cluster does not have a message, has it more than once, or has got its own message back."""


class Copies(NamedTuple):
    """Equal copies of a message.

    Attributes:
        cluster: Where they lie.
        flags: Their flags.
        number: How many there are.
    """

    cluster: str
    flags: CopyFlags
    number: int


class Fault(NamedTuple):
    """One message and one cluster that something is wrong with.

    Attributes:
        fault: One of `FAULTS`. A message that has looped is not reported as duplicated as well.
        cluster: The cluster.
        copies: How many copies lie there.
        flags: Their different flags, the smallest first.
        present: Every cluster that has the message.
        origin: Where it was produced: the only cluster with a copy without flags. None if there is no such, or several.
        from_cluster: Of a lost message: the cluster that had to copy it into the subtree that lacks it. None if none
            had to, and for the other faults.
        level: Of a lost message: level of that subtree's parent.
        to_cluster: Of a lost message: the target of the link that failed.
        explanation: What happened, for the reader.
    """

    fault: str
    cluster: str
    copies: int
    flags: tuple[CopyFlags, ...]
    present: tuple[str, ...]
    origin: str | None
    from_cluster: str | None
    level: int | None
    to_cluster: str | None
    explanation: str


def faults_of(tree: DistributionTree, copies: Sequence[Copies]) -> Iterator[Fault]:
    """Judge one message.

    Args:
        tree: The distribution. Where targets have been moved, the tree after that: then `Fault.to_cluster` is the
            target as it is now.
        copies: Every copy of the message on any cluster. Clusters outside the tree are not judged, but show that the
            message exists.

    Yields:
        One fault for each cluster with which something is wrong, in the order of the tree.

    Complexity:
        O(n d + c n), n clusters, d the depth, c different copies.

    Example:
        >>> tree = DistributionTree({3: [{1: ["c1", "c2"]}, {1: ["c3", "c4"]}]})
        >>> found = faults_of(tree, [Copies("c1", CopyFlags(), 1), Copies("c2", CopyFlags(1), 2)])
        >>> [(fault.fault, fault.cluster, fault.explanation) for fault in found][:2]
        [('duplicated', 'c2', '2 copies'), ('lost', 'c3', 'c1 did not copy it to c3 at level 3')]
    """
    present = tuple(sorted({copy.cluster for copy in copies}))
    fresh = {copy.cluster for copy in copies if not copy.flags}
    origin = fresh.pop() if len(fresh) == 1 else None
    for cluster in tree.clusters:
        there = [copy for copy in copies if copy.cluster == cluster]
        flags = tuple(sorted({copy.flags for copy in there}))
        total = sum(copy.number for copy in there)
        if total == 0:
            yield Fault("lost", cluster, 0, (), present, origin, *_missed(tree, cluster, copies))
        elif total > 1:
            # a copy without flags is the message as it was produced: any other copy has been away
            looped = not flags[0] and flags[-1]
            fault, explanation = ("looped", _came_back(flags)) if looped else ("duplicated", f"{total:,} copies")
            yield Fault(fault, cluster, total, flags, present, origin, None, None, None, explanation)


def _came_back(flags: Sequence[CopyFlags]) -> str:
    ways = " and ".join("+".join(map(str, copy.levels)) for copy in flags if copy)
    return f"produced there, and came back across {ways}"


def _missed(
    tree: DistributionTree, cluster: str, copies: Sequence[Copies]
) -> tuple[str | None, int | None, str | None, str]:
    """Return the link that should have brought a message into the largest subtree around a cluster that lacks it."""
    present = {copy.cluster for copy in copies}
    node, empty = _largest_without(tree.root, cluster, present)
    if node is None:
        return None, None, None, "no cluster of the tree has it"
    beside = set(leaves(node)).difference(leaves(empty))
    for copy in copies:
        if copy.cluster in beside and copy.flags.is_due(node.level):
            links = (hop for distributor in tree.distributors(copy.cluster) for hop in distributor.hops)
            hop = next(hop for hop in links if hop.level == node.level and hop.target in leaves(empty))
            text = f"{hop.cluster} did not copy it to {hop.target} at level {hop.level}"
            return *hop, text
    text = f"nobody had to copy it across level {node.level}: a flag was set before"
    return None, node.level, None, text


def _largest_without(root: Branch, cluster: str, present: set[str]) -> tuple[Node | None, Branch]:
    """Return the largest branch that holds a cluster and none of these, and the node above it."""
    above, branch = None, root
    while not present.isdisjoint(leaves(branch)):
        assert isinstance(branch, Node)  # noqa: S101 - a leaf that is present is not missing
        above, branch = branch, next(below for below in branch.branches if cluster in leaves(below))
    return above, branch
