"""From one distribution tree to the next: what changes, what has to be drained first, and the proof that it was.

The rule. When a link gets another target while copies are under way on the old path, newer records overtake older ones.
When levels are renumbered while records with old flags are unread, records are lost or doubled; when a cluster goes
with records that it has not handed on, they are lost. So stop what changes, drain what it has written, and then change.
A copy is due only at levels below the one that it came by, so levels drain from the highest to the lowest, each once.

A cluster that is added gets its history from one log, and later records by flags. Between the two lies a cut: one
position in each log that is read for the new cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from keyshared._checks import check_kind, check_mapping
from keyshared.distribution.distributor import Hop
from keyshared.errors import ArgumentError, QuiesceError, shown

__all__ = ["LinkMove", "LinkStart", "Quiesced", "Quiescence", "TreeChange"]


class _Tracked(Protocol):
    """A tree, which knows how often it was changed."""

    @property
    def edition(self) -> int: ...


_Tree = TypeVar("_Tree", bound=_Tracked)


class LinkMove(NamedTuple):
    """A link that becomes another one: its distributor goes on at its position, with another target or level."""

    old: Hop
    new: Hop


class LinkStart(NamedTuple):
    """A new link that starts at the position of ``leader``, which leads to the source of the history."""

    added: Hop
    leader: Hop


@dataclass(frozen=True, slots=True)
class TreeChange(Generic[_Tree]):
    """A change of a tree that is not in force yet: a value, made by the ``propose_`` methods of `DistributionTree`.

    Attributes:
        before: The tree that it starts from.
        after: The tree that it leads to.
        added: New links; `starts` returns where each one starts.
        removed: Links that end.
        moved: Links that go on with another target or level.
        rewind: Whether moved links start again at the start of the log, because their old target is lost with records
            that it had not handed on. Records are then distributed twice; their readers have to recognise them.
        drains: Links that have to hand on what they have before the change, the highest level first.
        silent: Clusters on which nothing may be produced from the beginning of the drain until the change.
        fill: The link that fills a new cluster before the change comes into force: every record that its cluster has,
            up to where `starts` says, goes to the new cluster as ``fill.forward(CopyFlags())``, in order, whatever its
            own flags are. None if no cluster is added.
        follows: New links that start at the position of another one.
    """

    before: _Tree
    after: _Tree
    added: tuple[Hop, ...] = ()
    removed: tuple[Hop, ...] = ()
    moved: tuple[LinkMove, ...] = ()
    rewind: bool = False
    drains: tuple[Hop, ...] = ()
    silent: tuple[str, ...] = ()
    fill: Hop | None = None
    follows: tuple[LinkStart, ...] = ()

    @property
    def edition(self) -> int:
        """The edition of the tree that proposed it, the only one that it can be applied to."""
        return self.before.edition

    @property
    def needs_drain(self) -> bool:
        """Whether it may only come into force with a proof of its drain."""
        return bool(self.silent or self.moved or self.follows) and not self.rewind

    @property
    def renumbers(self) -> bool:
        """Whether a level changes, so that flags set before mean something else after."""
        return any(moved.old.level != moved.new.level for moved in self.moved)

    def starts(self, log_ends: Mapping[str, int], positions: Mapping[Hop, int]) -> dict[Hop, int]:
        """Return the offset where each added link starts: the cut between what `fill` copies and what goes by flags.

        Args:
            log_ends: The offset after the last record of the cluster that `fill` reads, seen while `Quiescence.stop`
                stood still; it is where the filling ends.
            positions: For each leader of ``follows`` the offset that it reads next, seen while it stood still.

        Example:
            >>> from keyshared.distribution import DistributionTree
            >>> change = DistributionTree(["c1", "c2"]).propose_add("c3", near=["c1", "c2"])
            >>> change.fill, [tuple(each.leader) for each in change.follows]
            (Hop(cluster='c1', level=32, target='c3'), [('c2', 16, 'c1')])
            >>> for hop, offset in change.starts({"c1": 9}, {Hop("c2", 16, "c1"): 7}).items():
            ...     print(offset, hop)
            9 'c1' at level 32 to 'c3'
            7 'c2' at level 32 to 'c3'
            0 'c3' at level 32 to 'c1'
        """
        check_mapping("log_ends", log_ends)
        check_mapping("positions", positions)
        found = dict.fromkeys(self.added, 0)
        for added, leader in self.follows:
            found[added] = _offset("positions", leader, positions.get(leader))
        if self.fill is not None:
            source = self.fill.cluster
            found[self.fill] = _offset("log_ends", source, log_ends.get(source))
        return found

    def check_quiesced(self, quiesced: "Quiesced[_Tree] | None") -> None:
        """Raise QuiesceError unless this change needs no proof, or ``quiesced`` is that of its own `Quiescence`."""
        if not self.needs_drain:
            return
        pending = tuple(map(str, self.drains))
        if quiesced is None:
            raise QuiesceError("copies may be under way and no proof of a drain was given", pending)
        if quiesced != Quiesced(self) or quiesced.change.edition != self.edition:
            raise QuiesceError("the proof is that of another change", pending)


@dataclass(frozen=True, slots=True)
class Quiesced(Generic[_Tree]):
    """The proof that everything that a change would have broken has been drained. Made by `Quiescence.quiesced`.

    One that a host makes itself is no proof, but the host's claim. It allows its ``change``, of this edition of its
    tree.
    """

    change: TreeChange[_Tree]


@dataclass(slots=True)
class _Stage:
    """One part of a drain.

    Attributes:
        level: The level that it is about; 0 for all of them.
        watch: Links that have to reach the end that their cluster's log had when the stage began.
        marks: Those ends by cluster; none before the first observation.
    """

    level: int
    watch: tuple[Hop, ...]
    marks: dict[str, int] = field(default_factory=dict)


class Quiescence(Generic[_Tree]):
    """Walks a change through its drain, level by level, on observations that the host makes.

    Stop what `stop` names, then read the end of every log and the committed position of every link, in this order or at
    once, and hand both to `observe`. Repeat until it returns True. Logs may go on growing meanwhile: a level drains
    what was there when its turn came. What was stopped stays stopped until the change is in force; where a cluster is
    added, until `TreeChange.starts` has its positions. A change that needs no drain is an ArgumentError. Memory O(links
    to be drained).

    Example:
        >>> from keyshared.distribution import DistributionTree
        >>> tree = DistributionTree({3: [{1: ["c1", "c2"]}, {1: ["c3", "c4"]}]})
        >>> change = tree.propose_move(Hop("c1", 3, "c3"), "c4")
        >>> drain = Quiescence(change)
        >>> drain.stop, drain.watch
        ((Hop(cluster='c1', level=3, target='c3'),), (Hop(cluster='c3', level=1, target='c4'), \
Hop(cluster='c4', level=1, target='c3')))
        >>> drain.observe({"c3": 7, "c4": 7}, {Hop("c3", 1, "c4"): 7, Hop("c4", 1, "c3"): 5})
        False
        >>> drain.observe({"c3": 9, "c4": 9}, {Hop("c3", 1, "c4"): 7, Hop("c4", 1, "c3"): 8})
        True
        >>> tree.apply(change, drain.quiesced()).levels("c1")
        (3, 1)
    """

    __slots__ = ("_change", "_stages")

    def __init__(self, change: TreeChange[_Tree]) -> None:
        check_kind("change", change, TreeChange)
        if not change.needs_drain:
            raise ArgumentError("needs_drain", change.needs_drain, "be True; apply the change without a proof")
        self._change = change
        levels = sorted({hop.level for hop in change.drains}, reverse=True)
        self._stages = [_Stage(level, tuple(hop for hop in change.drains if hop.level == level)) for level in levels]
        if change.renumbers:
            # By now no link copies any more. But a record that came by a lower level's link, after a link's own turn,
            # still lies unread before that link; with a new level it could misread the old flags.
            self._stages.append(_Stage(0, change.drains))

    @property
    def watch(self) -> tuple[Hop, ...]:
        """The links that have to move on now; none if everything is drained."""
        return self._stages[0].watch if self._stages else ()

    @property
    def stop(self) -> tuple[Hop, ...]:
        """The links that have to stand still from now on: above the level whose turn it is, those with a new target.

        Where a cluster is added, also those whose position a new link starts at. None if levels change: then nothing is
        produced anywhere, and all links have to read to the very end.
        """
        if self._change.renumbers:
            return ()
        level = self._stages[0].level if self._stages else 0
        still = (*(moved.old for moved in self._change.moved), *(each.leader for each in self._change.follows))
        return tuple(hop for hop in still if hop.level > level)

    @property
    def silent(self) -> tuple[str, ...]:
        """Clusters on which nothing may be produced until the change is in force."""
        return self._change.silent

    def observe(self, log_ends: Mapping[str, int], positions: Mapping[Hop, int]) -> bool:
        """Take an observation made after everything in `stop` had stopped, and return whether the drain is over.

        One call ends at most one level: the next level needs a later observation.

        Args:
            log_ends: For each cluster of `watch` the offset after its last record.
            positions: For each link of `watch` the offset of the record that it reads next.
        """
        check_mapping("log_ends", log_ends)
        check_mapping("positions", positions)
        if not self._stages:
            return True
        stage = self._stages[0]
        ends = {hop.cluster: _offset("log_ends", hop.cluster, log_ends.get(hop.cluster)) for hop in stage.watch}
        read = {hop: _offset("positions", hop, positions.get(hop)) for hop in stage.watch}
        if not stage.marks:
            stage.marks = ends
        if all(read[hop] >= stage.marks[hop.cluster] for hop in stage.watch):
            del self._stages[0]
        return not self._stages

    def quiesced(self) -> Quiesced[_Tree]:
        """Return the proof that `DistributionTree.apply` asks for; QuiesceError while the drain is not over."""
        if self._stages:
            pending = tuple(str(hop) for stage in self._stages for hop in stage.watch)
            raise QuiesceError("the drain is not over", pending)
        return Quiesced(self._change)


def _offset(parameter: str, name: object, value: object) -> int:
    if type(value) is not int or value < 0:
        raise ArgumentError(f"{parameter}[{shown(name)}]", value, "be an offset, an int of at least 0")
    return value
