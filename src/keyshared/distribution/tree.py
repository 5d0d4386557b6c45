"""The distribution tree: which cluster copies what where, proved to reach every cluster exactly once.

Clusters are the leaves of a tree whose nodes have levels that decrease strictly towards the leaves. For each level
above it a cluster copies to one cluster of each sibling subtree. With copy flags that is enough, by induction on the
level: a record that enters a subtree without a flag of its level or below reaches every cluster in it exactly once, and
what is copied on the way carries such a flag, so nothing leaves the subtree again. All that this needs is checked when
a tree is made; a tree that exists is right.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from keyshared._checks import check_int, check_kind, check_text
from keyshared.copyflags import CopyFlags
from keyshared.distribution.change import LinkMove, LinkStart, Quiesced, TreeChange
from keyshared.distribution.distributor import Copy, CopyDecision, Distributor, Hop, check_flags
from keyshared.distribution.shape import (
    MAX_DEPTH,
    Branch,
    Nested,
    Node,
    Path,
    add,
    count_links,
    crowded,
    depth,
    leaves,
    parse,
    path_of,
    path_text,
    places,
    relevel,
    remove,
    to_nested,
)
from keyshared.errors import ArgumentError, InvariantError, TopologyError

__all__ = ["MAX_LINKS", "DistributionTree"]

MAX_LINKS: Final = 250_000
"""Links of one tree: 500 clusters side by side, or 15,000 in pairs of pairs."""


class _Slot(NamedTuple):
    """A place for a link: one for each cluster, node above it, and sibling subtree there."""

    cluster: str
    node: Node
    path: tuple[int, ...]
    siblings: tuple[str, ...]
    default: str

    @property
    def key(self) -> tuple[str, int]:
        return self.cluster, self.node.level


class DistributionTree:
    """Which cluster copies what where: an immutable value.

    A cluster that is not in the tree is an ArgumentError.

    Args:
        nested: The shape. A text is a cluster, a list is a node whose level is handed out (with room for nodes in
            between), ``{level: [...]}`` is a node with a level of your own. Two or more branches to a node.
        hops: Links that have a target of your choice. The others get one by default: the clusters of a subtree copy to
            those of its sibling in turn, so that no link carries more than it has to.
        edition: Of a tree that was stored as its shape and links: its `edition`.

    Raises:
        TopologyError: The shape is not in order (see `parse`), or a link is not: its cluster, level or target is not in
            the tree, its target is not in a sibling subtree of that level, or it is given twice.

    Complexity:
        O(n d k), n clusters, d the depth, k the branches of a node; O(n) for each of ``hops``.

    Source:
        Axual "Distribution model"; differs: nodes may have more than two branches, whose distributors copy to each of
        the siblings with the same flag.

    Example:
        >>> tree = DistributionTree({3: [{1: ["c1", "c2"]}, {1: ["c3", "c4"]}]})
        >>> [tuple(hop) for hop in tree.hops() if hop.cluster == "c1"]
        [('c1', 3, 'c3'), ('c1', 1, 'c2')]
        >>> tree.copies("c3", CopyFlags(0b100))
        (Copy(target='c4', flags=CopyFlags(0b101)),)
        >>> DistributionTree([["c1", "c2"], ["c3", "c4"]]).levels("c1")
        (32, 16)
    """

    __slots__ = ("_edition", "_hops", "_links", "_root")

    def __init__(self, nested: Nested, hops: Iterable[Hop] = (), edition: int = 0) -> None:
        self._fill(parse(nested), hops, check_int("edition", edition, 0))

    @classmethod
    def from_hops(cls, nested: Nested, hops: Iterable[Hop], edition: int = 0) -> "DistributionTree":
        """Check links that are deployed somewhere; all must be given, as none gets a default.

        Raises:
            TopologyError: As for the constructor, or a link is missing.

        Example:
            >>> DistributionTree.from_hops({1: ["c1", "c2"]}, [Hop("c1", 1, "c2")])
            Traceback (most recent call last):
            ...
            keyshared.errors.TopologyError: at tree: target of 'c2' at level 1 is None; it must be one of 'c1', \
which get nothing from there otherwise
        """
        given = tuple(hops)
        built = cls(nested, given, edition)
        there = set(given)
        for slot, hop in zip(_slots(built._root), built._links, strict=True):
            if hop not in there:
                requirement = f"be one of {_shown(slot.siblings)}, which get nothing from there otherwise"
                raise TopologyError(path_text(slot.path), _target_of(*slot.key), None, requirement)
        return built

    def _changed(self, root: Branch, hops: Iterable[Hop]) -> "DistributionTree":
        """Make the tree that a change leads to."""
        built = DistributionTree.__new__(DistributionTree)
        built._fill(root, hops, self._edition + 1)
        return built

    def _fill(self, root: Branch, hops: Iterable[Hop], edition: int) -> None:
        self._root = root
        self._edition = edition
        links = count_links(root)
        if links > MAX_LINKS:
            raise TopologyError("tree", "number of links", links, f"be at most {MAX_LINKS}; put clusters under nodes")
        deep = depth(root)  # of a shape that was read it is known; a change puts a node above what is there
        if deep > MAX_DEPTH:
            raise TopologyError("tree", "depth", deep, f"be at most {MAX_DEPTH}; add clusters wide")
        slots = _slots(root)
        chosen = _placed(root, slots, hops)
        self._links = tuple(
            Hop(slot.cluster, slot.node.level, chosen.get(number, slot.default)) for number, slot in enumerate(slots)
        )
        hops_of: dict[str, list[Hop]] = {cluster: [] for cluster in leaves(root)}
        for hop in self._links:
            hops_of[hop.cluster].append(hop)
        self._hops = {cluster: tuple(own) for cluster, own in hops_of.items()}

    @property
    def clusters(self) -> tuple[str, ...]:
        """All clusters, in the order of the shape."""
        return leaves(self._root)

    @property
    def nested(self) -> Nested:
        """The shape with every level written out: new data that the constructor reads."""
        return to_nested(self._root)

    @property
    def root(self) -> Branch:
        """The shape as branches; immutable."""
        return self._root

    @property
    def edition(self) -> int:
        """The number of changes so far. Changes and proofs are those of one edition; it is no part of equality."""
        return self._edition

    @property
    def max_hops(self) -> int:
        """The most copies that a record takes one after the other: the longest chain of levels. O(n), n clusters."""
        return max(map(len, map(self.levels, self.clusters)))

    @property
    def crowded(self) -> tuple[tuple[str, ...], ...]:
        """The subtrees beside which `propose_add` finds no free level, each as its clusters: a warning."""
        return tuple(map(leaves, crowded(self._root)))

    def levels(self, cluster: str) -> tuple[int, ...]:
        """List the levels of a cluster's distributors: one for each node above it, the highest first."""
        return tuple(dict.fromkeys(hop.level for hop in self._hops[self._known("cluster", cluster)]))

    def hops(self) -> tuple[Hop, ...]:
        """List every link: one for each cluster, level above it (highest first) and sibling subtree there."""
        return self._links

    def distributors(self, cluster: str) -> tuple[Distributor, ...]:
        """List the distributors that have to run on a cluster: one for each level above it, the highest first."""
        targets = defaultdict(list)
        for hop in self._hops[self._known("cluster", cluster)]:
            targets[hop.level].append(hop.target)
        return tuple(Distributor(cluster, level, tuple(names)) for level, names in targets.items())

    def copies(self, cluster: str, flags: CopyFlags) -> tuple[Copy, ...]:
        """Return the copies that a cluster makes of a record with these flags, the highest level first."""
        check_flags(flags)
        made = (hop.forward(flags) for hop in self._hops[self._known("cluster", cluster)])
        return tuple(copy for copy in made if copy is not None)

    def explain(self, origin: str) -> tuple[CopyDecision, ...]:
        """Follow a record from the cluster that produces it to the last decision about it, in the order of hops.

        Example:
            >>> tree = DistributionTree({3: [{1: ["c1", "c2"]}, {1: ["c3", "c4"]}]})
            >>> for decision in tree.explain("c1")[:4]:
            ...     str(decision)
            'c1 level 3: 0000 & 0111 = 0000, copies to c3 with 0100'
            'c1 level 1: 0000 & 0001 = 0000, copies to c2 with 0001'
            'c3 level 3: 0100 & 0111 = 0100, done already'
            'c3 level 1: 0100 & 0001 = 0000, copies to c4 with 0101'
        """
        decisions = []
        arrived = deque([Copy(self._known("origin", origin), CopyFlags())])
        while arrived:
            cluster, flags = arrived.popleft()
            for distributor in self.distributors(cluster):
                copies = distributor.copies(flags)
                decisions.append(CopyDecision(cluster, flags, distributor.level, copies))
                arrived.extend(copies)
        return tuple(decisions)

    def propose_add(
        self, cluster: str, *, near: str | Collection[str], wide: bool = False, source: str | None = None
    ) -> "TreeChange[DistributionTree]":
        """Propose a new cluster. No level and no link that is there changes, and production goes on everywhere.

        The new cluster is filled before it takes part: with everything that one cluster has, up to a cut; see
        `TreeChange.fill` and `TreeChange.starts`. Beside one cluster that can be done at any time. Beside a subtree of
        several it needs a drain, during which the links that lead to the source of the history stop for a while.

        Args:
            cluster: Its name. Its log has to be empty.
            near: A cluster that it shall share most of its way with; or several, for the smallest subtree that holds
                them all.
            wide: Make it one more branch of the node above, instead of putting a new node with a free level there.
            source: Whose log it is filled from: a cluster of the subtree beside it, with ``wide`` any one below the
                node above. By default the first one of ``near``, in the order of the shape.

        Raises:
            ArgumentError: The name is taken, ``near`` is not in the tree, or ``source`` would not copy to the new
                cluster.
            TopologyError: There is no free level (see `crowded`), no node to be a branch of, or the tree becomes too
                deep or gets too many links.

        Example:
            >>> tree = DistributionTree([["c1", "c2"], ["c3", "c4"]])
            >>> change = tree.propose_add("c5", near="c4")
            >>> change.after.nested
            {32: [{16: ['c1', 'c2']}, {16: ['c3', {8: ['c4', 'c5']}]}]}
            >>> change.fill, change.needs_drain
            (Hop(cluster='c4', level=8, target='c5'), False)
            >>> tree.apply(change).levels("c5")
            (32, 16, 8)
            >>> [str(hop) for hop in tree.propose_add("c5", near=["c3", "c4"]).drains]
            ["'c4' at level 16 to 'c3'"]
        """
        check_text("cluster", cluster)
        if cluster in self._hops:
            raise ArgumentError("cluster", cluster, f"not be one of {_shown(self.clusters)}")
        asked = (near,) if isinstance(near, str) else tuple(near)
        if not asked:
            raise ArgumentError("near", near, "name at least one cluster")
        for name in asked:
            self._known("near", name)
        root = add(self._root, path_of(self._root, asked), cluster, wide=wide)
        after = self._changed(root, self._links)
        there = set(self._links)
        added = tuple(hop for hop in after._links if hop not in there)
        feeds = {hop.cluster: hop for hop in added if hop.target == cluster}
        first = next(name for name in self.clusters if name in asked)
        fill = feeds.get(first if source is None else source)
        if fill is None:
            raise ArgumentError("source", source, f"be one of {_shown(feeds)}, which will copy to {cluster!r}")
        follows = tuple(LinkStart(feeds[hop.cluster], hop) for hop in self._leading_to(fill.cluster, feeds))
        drains = tuple(each.leader for each in follows)
        return TreeChange(self, after, added=added, drains=drains, fill=fill, follows=follows)

    def propose_move(self, hop: Hop, target: str) -> "TreeChange[DistributionTree]":
        """Propose another target for a link, such as before maintenance of the old one. Needs a drain.

        Raises:
            TopologyError: The target is not in the link's sibling subtree, or is what it was.
        """
        slot = self._slot_of(hop)
        if target == hop.target or target not in slot.siblings:
            others = tuple(name for name in slot.siblings if name != hop.target)
            where = path_text(slot.path)
            raise TopologyError(where, _target_of(*slot.key), target, f"be one of {_shown(others)} instead")
        moved = LinkMove(hop, hop._replace(target=target))
        after = self._changed(self._root, (moved.new if other == hop else other for other in self._links))
        return TreeChange(self, after, moved=(moved,), drains=self._inside([slot]))

    def propose_remove(self, cluster: str) -> "TreeChange[DistributionTree]":
        """Propose to take a cluster out in good order. Needs a drain, and nothing produced on the cluster meanwhile.

        Links to the cluster move to others of its subtree; levels stay as they are. The only cluster stays.
        """
        change = self._without(cluster)
        old = {moved.old for moved in change.moved}
        slots = [slot for slot, hop in zip(_slots(self._root), self._links, strict=True) if hop in old]
        drains = self._inside(slots, *self._hops[cluster])
        return TreeChange(
            self, change.after, removed=change.removed, moved=change.moved, drains=drains, silent=(cluster,)
        )

    def propose_loss(self, cluster: str) -> "TreeChange[DistributionTree]":
        """Propose to go on without a cluster that is destroyed. Comes into force at once.

        The records that the lost cluster had received and not handed on are sent again: the links that led to it go
        back to the start of their logs, so that the clusters of its subtree get duplicates. Those produced on it that
        had not left it on every level stay missing where they had not arrived.
        """
        change = self._without(cluster)
        return TreeChange(self, change.after, removed=change.removed, moved=change.moved, rewind=True)

    def propose_renumber(self) -> "TreeChange[DistributionTree]":
        """Propose to hand out all levels again, with room in between. Needs a drain, and nothing produced meanwhile."""
        root = relevel(self._root)
        slots = _slots(root)
        hops = [Hop(slot.cluster, slot.node.level, old.target) for slot, old in zip(slots, self._links, strict=True)]
        after = self._changed(root, hops)
        moved = tuple(LinkMove(old, new) for old, new in zip(self._links, after._links, strict=True) if old != new)
        if not moved:
            return TreeChange(self, after)
        drains = tuple(sorted(self._links, key=_by_level))
        return TreeChange(self, after, moved=moved, drains=drains, silent=self.clusters)

    def apply(
        self, change: "TreeChange[DistributionTree]", quiesced: "Quiesced[DistributionTree] | None" = None
    ) -> "DistributionTree":
        """Return the tree after a change that this tree proposed.

        Raises:
            ArgumentError: The change was proposed by another tree, or by another edition of this one.
            QuiesceError: It needs a proof of `Quiescence`, and ``quiesced`` is none, or that of another change.
        """
        if getattr(change, "before", None) != self or change.edition != self._edition:
            raise ArgumentError("change", change, "be proposed by this very tree; propose it again")
        change.check_quiesced(quiesced)
        return change.after

    def check_invariants(self) -> None:
        """Send a record from every cluster and count where it arrives; an InvariantError is a bug in this library.

        O(n^2 d k), n clusters, d the depth, k the branches of a node.
        """
        once = dict.fromkeys(self.clusters, 1)
        for origin in self.clusters:
            arrivals = Counter([origin])
            for decision in self.explain(origin):
                arrivals.update(copy.target for copy in decision.copies)
            if arrivals != once:
                raise InvariantError(f"a record from {origin!r} arrives once everywhere, not {dict(arrivals)}")

    def _known(self, parameter: str, cluster: str) -> str:
        if cluster not in self._hops:
            raise ArgumentError(parameter, cluster, f"be one of {_shown(self.clusters)}")
        return cluster

    def _slot_of(self, hop: Hop) -> _Slot:
        if check_kind("hop", hop, Hop) not in self._links:
            raise ArgumentError("hop", hop, "be one of hops()")
        return next(slot for slot, other in zip(_slots(self._root), self._links, strict=True) if other == hop)

    def _inside(self, slots: Iterable[_Slot], *more: Hop) -> tuple[Hop, ...]:
        """Return the links between the clusters of these sibling subtrees, and more, the highest level first."""
        found = dict.fromkeys(more)
        for siblings in dict.fromkeys(slot.siblings for slot in slots):
            inside = set(siblings)
            # a link between two clusters of a subtree belongs to a node of it: targets are across the link's own node
            found.update(dict.fromkeys(hop for hop in self._links if hop.cluster in inside and hop.target in inside))
        return tuple(sorted(found, key=_by_level))

    def _leading_to(self, source: str, clusters: Collection[str]) -> tuple[Hop, ...]:
        """Return the links by which records entering at these clusters come to one of them, the highest level first."""
        slots = zip(_slots(self._root), self._links, strict=True)
        found = [hop for slot, hop in slots if slot.cluster in clusters and source in slot.siblings]
        return tuple(sorted(found, key=_by_level))

    def _without(self, cluster: str) -> "TreeChange[DistributionTree]":
        self._known("cluster", cluster)
        if isinstance(self._root, str):
            raise ArgumentError("cluster", cluster, "not be the only one")
        kept = [hop for hop in self._links if cluster not in (hop.cluster, hop.target)]
        after = self._changed(remove(self._root, cluster), kept)
        stays = set(kept)
        new = {(hop.cluster, hop.level): hop for hop in after._links if hop not in stays}
        moved, removed = [], []
        for hop in self._links:
            if hop.target == cluster and (hop.cluster, hop.level) in new:
                moved.append(LinkMove(hop, new[hop.cluster, hop.level]))
            elif cluster in (hop.cluster, hop.target):
                removed.append(hop)
        return TreeChange(self, after, removed=tuple(removed), moved=tuple(moved))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DistributionTree):
            return NotImplemented
        return self._root == other._root and self._links == other._links

    def __hash__(self) -> int:
        return hash((self._root, self._links))

    def __repr__(self) -> str:
        return f"<DistributionTree of {len(self._hops)} clusters, {len(self._links)} links: {self.nested}>"

    def __reduce__(self) -> tuple[object, ...]:
        return DistributionTree, (self.nested, self._links, self._edition)


def _slots(root: Branch) -> tuple[_Slot, ...]:
    """Return every place for a link: cluster by cluster, from the root down, sibling by sibling."""
    found: dict[str, list[_Slot]] = {cluster: [] for cluster in leaves(root)}
    for slot in _slots_below(root, ()):
        found[slot.cluster].append(slot)
    return tuple(slot for slots in found.values() for slot in slots)


def _slots_below(branch: Branch, path: tuple[int, ...]) -> Iterator[_Slot]:
    """Yield the same places node by node."""
    if isinstance(branch, str):
        return
    for index, own in enumerate(branch.branches):
        for turn, cluster in enumerate(leaves(own)):
            for other in branch.branches:
                if other is not own:
                    siblings = leaves(other)
                    yield _Slot(cluster, branch, path, siblings, siblings[turn % len(siblings)])
        yield from _slots_below(own, (*path, index))


def _placed(root: Branch, slots: tuple[_Slot, ...], hops: Iterable[Hop]) -> dict[int, str]:
    """Return the chosen targets by the number of their slot."""
    by_key: dict[tuple[str, int], list[int]] = defaultdict(list)
    for number, slot in enumerate(slots):
        by_key[slot.key].append(number)
    chosen: dict[int, str] = {}
    where = places(root) if hops else {}
    for hop in hops:
        check_kind("hop", hop, Hop)
        number = _slot_number(root, slots, by_key, where, hop)
        if number in chosen:
            requirement = f"be given once for {_shown(slots[number].siblings)}; {chosen[number]!r} was given already"
            raise TopologyError(
                path_text(slots[number].path), _target_of(hop.cluster, hop.level), hop.target, requirement
            )
        chosen[number] = hop.target
    return chosen


def _slot_number(
    root: Branch,
    slots: tuple[_Slot, ...],
    by_key: dict[tuple[str, int], list[int]],
    places_of: dict[str, Path],
    hop: Hop,
) -> int:
    if hop.cluster not in places_of:
        raise TopologyError("tree", "cluster", hop.cluster, f"be one of {_shown(leaves(root))}")
    numbers = by_key.get((hop.cluster, hop.level))
    if numbers is None:
        levels = sorted({level for cluster, level in by_key if cluster == hop.cluster}, reverse=True)
        where = path_text(path_of(root, [hop.cluster]))
        requirement = f"be one of those above it: {', '.join(map(str, levels)) or 'none'}"
        raise TopologyError(where, f"level of a distributor on {hop.cluster!r}", hop.level, requirement)
    node = slots[numbers[0]].path
    deep = len(node)
    there = places_of.get(hop.target, ())
    if there[:deep] == node and len(there) > deep:
        own, other = places_of[hop.cluster][deep], there[deep]
        if other != own:  # the slots of a cluster at a level are in the order of the branches, its own left out
            return numbers[other - (other > own)]
    allowed = tuple(name for number in numbers for name in slots[number].siblings)
    requirement = f"be one of {_shown(allowed)}, the clusters across that level"
    where = path_text(slots[numbers[0]].path)
    raise TopologyError(where, _target_of(hop.cluster, hop.level), hop.target, requirement)


def _target_of(cluster: str, level: int) -> str:
    return f"target of {cluster!r} at level {level}"


def _shown(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _by_level(hop: Hop) -> int:
    return -hop.level
