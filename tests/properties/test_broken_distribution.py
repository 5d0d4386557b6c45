"""What breaks a distribution, and how: each fault of the rule, the tree or its operation is caught by the judge.

The kinds of damage are those that simulations of the page's model have: who changes one of these sets has changed what
is lost or doubled somewhere.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from tests.changing import lived
from tests.distribution.trees import dice, drained, links_of, random_tree, traffic

from keyshared.copyflags import CopyFlags, FlagsHeader, strip_distribution_headers
from keyshared.distribution import (
    LEVEL_STEP,
    Copy,
    DistributionTree,
    Hop,
    LinkMove,
    Quiesced,
    Quiescence,
    RecordFault,
    Replication,
    ReplicationReport,
    TreeChange,
)
from keyshared.errors import TopologyError

SEEDS = range(40)
LOST, DOUBLED, REORDERED, CIRCLES = "lost", "doubled", "reordered", "circles"


def kinds(report: ReplicationReport, *, ended: bool = True) -> set[str]:
    found = {LOST: report.lost, DOUBLED: report.duplicated, REORDERED: report.reordered, CIRCLES: not ended}
    return {kind for kind, cases in found.items() if cases}


class OwnBitOnly(Hop):
    """Looks at its own flag and at no lower one."""

    __slots__ = ()

    def forward(self, flags: CopyFlags) -> Copy | None:
        return Copy(self.target, flags.crossing(self.level)) if not flags & flags.bit(self.level) else None


class AnyFlagBlocks(Hop):
    """Takes a record that was copied once for one that was copied everywhere."""

    __slots__ = ()

    def forward(self, flags: CopyFlags) -> Copy | None:
        return None if flags else Copy(self.target, flags.crossing(self.level))


class LooksUpwards(Hop):
    """The level check inverted: looks at its own flag and the higher ones."""

    __slots__ = ()

    def forward(self, flags: CopyFlags) -> Copy | None:
        return None if flags >> (self.level - 1) else Copy(self.target, flags.crossing(self.level))


class NoFlags(Hop):
    """Copies whatever comes."""

    __slots__ = ()

    def forward(self, flags: CopyFlags) -> Copy:
        return Copy(self.target, flags)


class FlagAfterTheCopy(Hop):
    """Sets its flag on its own record, when the copy has gone without it."""

    __slots__ = ()

    def forward(self, flags: CopyFlags) -> Copy | None:
        return Copy(self.target, flags) if flags.is_due(self.level) else None


def damage(clusters: Iterable[str], hops: Iterable[Hop]) -> set[str]:
    """What happens to a record from each cluster, in a world of any links."""
    world = Replication(clusters, hops)
    for cluster in world.clusters:
        world.produce(cluster)
    ended = world.settle(max_copies=2_000)
    return kinds(world.report(), ended=ended) - {REORDERED}


def deep_tree(random: Random) -> DistributionTree:
    """A tree in which some cluster has more than one level above it."""
    while True:
        tree = random_tree(random, random.randint(4, 12))
        if tree.max_hops > 1:
            return tree


@pytest.mark.parametrize(
    ("fault", "always", "never"),
    [
        (OwnBitOnly, {DOUBLED}, {LOST, CIRCLES}),
        (AnyFlagBlocks, {LOST}, {DOUBLED, CIRCLES}),
        (LooksUpwards, {LOST}, {CIRCLES}),
        (NoFlags, {CIRCLES, DOUBLED}, set()),
        (FlagAfterTheCopy, {CIRCLES, DOUBLED}, set()),
    ],
)
def test_a_broken_rule_breaks_every_deep_tree(fault: type[Hop], always: set[str], never: set[str]) -> None:
    for seed in SEEDS:
        tree = deep_tree(dice(seed))
        found = damage(tree.clusters, [fault(*hop) for hop in tree.hops()])

        assert always <= found, tree
        assert not never & found, tree
        assert set() == damage(tree.clusters, tree.hops())


def relevelled(tree: DistributionTree, level_of: Callable[[int], int]) -> list[Hop]:
    return [hop._replace(level=level_of(hop.level)) for hop in tree.hops()]


def test_one_level_for_all_nodes_only_loses() -> None:
    for seed in SEEDS:
        tree = deep_tree(dice(seed))
        assert {LOST} == damage(tree.clusters, relevelled(tree, lambda _: 1))


def test_levels_that_grow_towards_the_clusters_lose_and_double() -> None:
    both = 0
    for seed in SEEDS:
        tree = deep_tree(dice(seed))
        found = damage(tree.clusters, relevelled(tree, lambda level: 1_000 - level))
        assert {LOST} & found
        both += {LOST, DOUBLED} == found

    assert len(SEEDS) // 2 < both


def test_a_node_with_the_level_of_the_one_above_it_always_loses() -> None:
    shape = {3: [{2: ["a", {1: ["b", "c"]}]}, "d"]}
    tree = DistributionTree(shape)
    for equal in ({3: 2, 2: 2, 1: 1}, {3: 3, 2: 1, 1: 1}):
        assert LOST in damage(tree.clusters, relevelled(tree, equal.__getitem__))
    with pytest.raises(TopologyError, match="chain of levels from the root is \\(2, 2\\)"):
        DistributionTree({2: [{2: ["a", {1: ["b", "c"]}]}, "d"]})


def test_a_target_outside_the_sibling_subtree_loses_and_doubles_and_is_refused() -> None:
    tried = 0
    for seed in SEEDS:
        random = dice(seed)
        tree = deep_tree(random)
        cluster, level, possible = random.choice(links_of(tree.nested))
        outside = sorted({*tree.clusters} - {*possible, cluster})
        if not outside:
            continue
        wrong = Hop(cluster, level, random.choice(outside))
        hops = [wrong if hop[:2] == wrong[:2] and hop.target in possible else hop for hop in tree.hops()]
        if len(set(hops)) < len(hops):
            continue  # of a wide node: another of its links goes there already
        tried += 1
        assert {LOST, DOUBLED} == damage(tree.clusters, hops)
        with pytest.raises(TopologyError):
            DistributionTree.from_hops(tree.nested, hops)

    assert len(SEEDS) // 2 < tried


def test_a_missing_distributor_loses_and_is_refused() -> None:
    for seed in SEEDS:
        random = dice(seed)
        tree = deep_tree(random)
        missing = random.choice(tree.hops())
        hops = [hop for hop in tree.hops() if hop != missing]
        assert {LOST} == damage(tree.clusters, hops)
        with pytest.raises(TopologyError, match="get nothing from there otherwise"):
            DistributionTree.from_hops(tree.nested, hops)


def test_a_record_that_keeps_the_header_of_another_one_is_lost_for_most() -> None:
    missing = copies = 0
    for seed in SEEDS:
        random = dice(seed)
        tree = deep_tree(random)
        world = Replication(tree.clusters, tree.hops())
        world.produce(random.choice(tree.clusters))
        world.settle()
        for arrival in [each for each in world.arrivals if each.flags]:
            again = Replication(tree.clusters, tree.hops())
            again.produce(arrival.cluster, flags=arrival.flags)
            again.settle()
            assert {LOST} == kinds(again.report())
            missing += len(again.report().lost)
            copies += len(tree.clusters) - 1
            headers = FlagsHeader().write([], arrival.flags)
            fresh = Replication(tree.clusters, tree.hops())
            fresh.produce(arrival.cluster, flags=FlagsHeader().read(strip_distribution_headers(headers)))
            fresh.settle()
            assert fresh.report().exactly_once_in_order

    assert 0.8 < missing / copies


# What is done to a world in the middle of its traffic.
Event = Callable[[Replication, DistributionTree, Random], None]


def moves_to(tree: DistributionTree, target: str) -> Iterable[TreeChange[DistributionTree]]:
    """Changes, one after the other, that move every link away from a cluster as far as that is possible."""
    for hop in tree.hops():
        if hop.target == target:
            siblings = next(
                possible
                for cluster, level, possible in links_of(tree.nested)
                if (cluster, level) == hop[:2] and target in possible
            )
            others = [name for name in siblings if name != target]
            if others:
                change = tree.propose_move(hop, others[0])
                yield change
                tree = change.after


def moved_in_flight(world: Replication, tree: DistributionTree, random: Random) -> None:
    for change in moves_to(tree, random.choice(tree.clusters)):
        world.apply(change)


def moved_after_its_drain(world: Replication, tree: DistributionTree, random: Random) -> None:
    for change in moves_to(tree, random.choice(tree.clusters)):
        token = drained(world, change, random)
        world.apply(change)
        change.before.apply(change, token)


def down_and_back(world: Replication, tree: DistributionTree, random: Random) -> None:
    cluster = random.choice(tree.clusters)
    world.down(cluster)
    up = [other for other in tree.clusters if other != cluster]
    traffic(world, random, 20, origins=up)
    for change in moves_to(tree, cluster):
        world.apply(change)
    traffic(world, random, 20, origins=up)
    world.up(cluster)


def destroyed(world: Replication, tree: DistributionTree, *, rewind: bool) -> None:
    lost = tree.clusters[0]  # nothing was produced there
    world.destroy(lost)
    loss = tree.propose_loss(lost)
    world.apply(TreeChange(loss.before, loss.after, removed=loss.removed, moved=loss.moved, rewind=rewind))


def destroyed_without_rewind(world: Replication, tree: DistributionTree, random: Random) -> None:  # noqa: ARG001 - one kind of call
    destroyed(world, tree, rewind=False)


def destroyed_with_rewind(world: Replication, tree: DistributionTree, random: Random) -> None:  # noqa: ARG001 - one kind of call
    destroyed(world, tree, rewind=True)


def crashes(world: Replication, tree: DistributionTree, random: Random) -> None:  # noqa: ARG001 - one kind of call
    traffic(world, random, 60, crash=0.1)


def renumbered(tree: DistributionTree) -> TreeChange[DistributionTree]:
    """All levels higher by a step, so that old flags look like those of other levels."""
    moved = tuple(LinkMove(hop, hop._replace(level=hop.level + LEVEL_STEP)) for hop in tree.hops())
    drains = tuple(sorted(tree.hops(), key=lambda hop: -hop.level))
    return TreeChange(tree, tree, moved=moved, drains=drains, silent=tree.clusters)


def renumbered_in_flight(world: Replication, tree: DistributionTree, random: Random) -> None:  # noqa: ARG001 - one kind of call
    world.apply(renumbered(tree))


def renumbered_after_its_drain(world: Replication, tree: DistributionTree, random: Random) -> None:
    change = renumbered(tree)
    drained(world, change, random)
    world.apply(change)


def grown_beside_one(world: Replication, tree: DistributionTree, random: Random) -> None:
    world.apply(tree.propose_add("new", near=random.choice(tree.clusters)))


def grown_beside_several(world: Replication, tree: DistributionTree, random: Random) -> None:
    world.apply(tree.propose_add("new", near=random.sample(tree.clusters, 2)))


def grown_after_its_drain(world: Replication, tree: DistributionTree, random: Random) -> None:
    change = tree.propose_add("new", near=random.sample(tree.clusters, 2))
    drained(world, change, random)
    world.apply(change)


def nothing(world: Replication, tree: DistributionTree, random: Random) -> None:
    """Static targets."""


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        (nothing, set()),
        (moved_in_flight, {REORDERED}),
        (moved_after_its_drain, set()),
        (down_and_back, {REORDERED}),
        (destroyed_without_rewind, {LOST}),
        (destroyed_with_rewind, {DOUBLED}),
        (crashes, {DOUBLED}),
        (renumbered_in_flight, {LOST}),
        (renumbered_after_its_drain, set()),
        (grown_beside_one, set()),
        (grown_beside_several, {LOST}),
        (grown_after_its_drain, set()),
    ],
)
def test_what_happens_to_a_running_distribution(event: Event, wanted: set[str]) -> None:
    found: set[str] = set()
    for seed in SEEDS:
        random = dice(seed)
        tree = deep_tree(random)
        origins = tree.clusters[1:]
        world = Replication(tree.clusters, tree.hops())
        traffic(world, random, 60, origins=origins)
        event(world, tree, random)
        traffic(world, random, 60, origins=[name for name in origins if name in world.clusters])
        assert world.settle()
        report = world.report()
        assert () == report.perished
        found |= kinds(report)

    if event is destroyed_without_rewind:
        found -= {REORDERED}  # it can, rarely: a new target is served sooner than the old one's copies arrive
    assert wanted == found


class WithoutTheEnd(Quiescence[DistributionTree]):
    """Takes it for enough that no link copies any more."""

    __slots__ = ()

    def __init__(self, change: TreeChange[DistributionTree]) -> None:
        super().__init__(change)
        self._stages = [stage for stage in self._stages if stage.level]

    @property
    def stop(self) -> tuple[Hop, ...]:
        level = self._stages[0].level if self._stages else 0
        return tuple(moved.old for moved in self._change.moved if moved.old.level > level)


class StopsNothing(Quiescence[DistributionTree]):
    """Lets links that are to move go on."""

    __slots__ = ()

    @property
    def stop(self) -> tuple[Hop, ...]:
        return ()


def after_the_drain(
    plan: Callable[[DistributionTree, Random], TreeChange[DistributionTree] | None],
    drain: type[Quiescence[DistributionTree]],
    *,
    silent: bool = True,
) -> set[str]:
    """What a kind of drain leaves broken, in many worlds together."""
    found: set[str] = set()
    for seed in SEEDS:
        random = dice(seed)
        change = plan(deep_tree(random), random)
        if change is None or not change.needs_drain:
            continue
        world = Replication(change.before.clusters, change.before.hops())
        traffic(world, random, 60)
        drained(world, change, random, drain=drain(change), silent=silent)
        world.apply(change)
        traffic(world, random, 60)
        world.settle()
        found |= kinds(world.report())
        if world.report().perished:
            found.add("perished")
    return found


def a_new_numbering(tree: DistributionTree, random: Random) -> TreeChange[DistributionTree]:
    return tree.propose_add("new", near=random.choice(tree.clusters)).after.propose_renumber()


def a_move(tree: DistributionTree, random: Random) -> TreeChange[DistributionTree] | None:
    return next(iter(moves_to(tree, random.choice(tree.clusters))), None)


def a_removal(tree: DistributionTree, random: Random) -> TreeChange[DistributionTree]:
    return tree.propose_remove(random.choice(tree.clusters))


def test_a_drain_that_does_half_of_its_work_is_caught() -> None:
    assert set() == after_the_drain(a_new_numbering, Quiescence)
    assert set() == after_the_drain(a_move, Quiescence)
    assert set() == after_the_drain(a_removal, Quiescence)
    assert DOUBLED in after_the_drain(a_new_numbering, WithoutTheEnd)
    assert LOST in after_the_drain(a_new_numbering, Quiescence, silent=False)
    assert {REORDERED} == after_the_drain(a_move, StopsNothing)
    assert LOST in after_the_drain(a_removal, StopsNothing)  # it goes on copying to the cluster that leaves
    assert LOST in after_the_drain(a_removal, Quiescence, silent=False)


class LowestLevelFirst(Quiescence[DistributionTree]):
    """Walks the levels in the wrong direction."""

    __slots__ = ()

    def __init__(self, change: TreeChange[DistributionTree]) -> None:
        super().__init__(change)
        self._stages.reverse()


def test_a_drain_in_the_wrong_order_is_caught() -> None:
    tree = DistributionTree({3: [{2: ["a", {1: ["b", "c"]}]}, "d"]}, [Hop("d", 3, "a"), Hop("a", 2, "b")])
    change = tree.propose_move(Hop("d", 3, "a"), "c")

    def reordered(drain: Quiescence[DistributionTree]) -> tuple[RecordFault, ...]:
        world = Replication(tree.clusters, tree.hops())
        world.produce("d")
        world.work(Hop("d", 3, "a"))
        while not drain.observe(world.log_ends(), world.positions()):
            for hop in drain.watch:
                if hop in world.ready():
                    world.work(hop)
        assert Quiesced(change) == drain.quiesced()
        world.apply(change)
        world.produce("d")
        world.work(Hop("d", 3, "c"))
        world.settle()
        return world.report().reordered

    assert () == reordered(Quiescence(change))
    assert (RecordFault("d", 0, "c"),) == reordered(LowestLevelFirst(change))


def from_the_start_by_flags(change: TreeChange[DistributionTree]) -> TreeChange[DistributionTree]:
    """New links read all logs from the start and take old flags for what they would mean now."""
    return replace(change, fill=None, follows=(), drains=()) if change.added else change


class FromTheEndOfEachLog(TreeChange[DistributionTree]):
    """Takes the ends of the logs for the cut, not the places where the leaders stand."""

    __slots__ = ()

    def starts(self, log_ends: Mapping[str, int], positions: Mapping[Hop, int]) -> dict[Hop, int]:
        ends = {each.added: log_ends[each.added.cluster] for each in self.follows}
        return super().starts(log_ends, positions) | ends


def from_the_end_of_each_log(change: TreeChange[DistributionTree]) -> TreeChange[DistributionTree]:
    return FromTheEndOfEachLog(**{each.name: getattr(change, each.name) for each in fields(change)})


class FillsWithOldFlags(Replication):
    """Copies the history with the flags that it has."""

    __slots__ = ()

    def _fill(self, hop: Hop, end: int) -> None:
        for record in self._logs[hop.cluster][:end]:
            self._append(hop.target, record, hop)


class NoDrain(Quiescence[DistributionTree]):
    """Takes everything for drained."""

    __slots__ = ()

    def __init__(self, change: TreeChange[DistributionTree]) -> None:
        super().__init__(change)
        self._stages = []


def unless_added(
    fault: type[Quiescence[DistributionTree]],
) -> Callable[[TreeChange[DistributionTree]], Quiescence[DistributionTree]]:
    """A drain that is broken for added clusters only."""
    return lambda change: fault(change) if change.added else Quiescence(change)


@pytest.mark.parametrize(
    ("parts", "changes", "wanted"),
    [
        ({}, ["move", "remove", "renumber", "add"], set()),
        ({"plan": from_the_start_by_flags}, ["renumber", "add"], {LOST, DOUBLED}),
        ({"plan": from_the_start_by_flags}, ["remove"], {LOST}),
        ({"plan": from_the_start_by_flags}, ["move"], {REORDERED}),
        ({"plan": from_the_end_of_each_log}, ["move", "add"], {LOST}),
        ({"replication": FillsWithOldFlags}, ["move", "add"], {DOUBLED}),
        ({"drain": unless_added(NoDrain)}, ["move", "add"], {LOST}),
        ({"drain": unless_added(StopsNothing)}, ["move", "add"], {LOST}),
        ({"drain": unless_added(LowestLevelFirst)}, ["move", "add"], {LOST}),
    ],
)
def test_a_cluster_that_is_added_in_another_way_is_caught(
    parts: dict[str, Any], changes: list[str], wanted: set[str]
) -> None:
    found: set[str] = set()
    for seed in range(1_000 if wanted else 200):
        random = dice(seed)
        before = random.choices(changes, k=random.randint(0, 3))
        life = lived(random, [*before, random.choice(["add above", "add wide"])], random.randint(2, 6), **parts)
        found |= kinds(life.end())
        if wanted and wanted <= found:
            break

    assert wanted == found


def test_what_had_entered_by_a_cluster_that_is_gone_comes_to_one_that_is_added_later_as_well() -> None:
    tree = DistributionTree([["a", "b"], ["c", "d"]])
    world = Replication(tree.clusters, tree.hops())
    world.produce("d")
    world.settle()
    gone = tree.propose_remove("d")
    world.apply(gone)
    world.apply(gone.after.propose_add("e", near="c"))
    world.settle()

    assert world.report().exactly_once_in_order


def test_what_a_lost_cluster_had_handed_on_to_one_side_only_stays_there() -> None:
    tree = DistributionTree([["a", "b"], ["c", "d"]])
    world = Replication(tree.clusters, tree.hops())
    world.produce("a")
    world.work(Hop("a", 16, "b"))
    world.destroy("a")
    world.apply(tree.propose_loss("a"))
    world.settle()

    assert (RecordFault("a", 0, "c"), RecordFault("a", 0, "d")) == world.report().lost
