"""Exactly once from every origin: in all small trees, in random ones in any interleaving, and through changes."""

from collections.abc import Iterable, Sequence
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.changing import movable
from tests.distribution.trees import (
    BALANCED,
    UNBALANCED,
    all_plans,
    all_shapes,
    arrivals,
    chosen_hops,
    dice,
    drained,
    random_tree,
    shapes,
    traffic,
)

from keyshared.distribution import DistributionTree, Replication, ReplicationReport, TreeChange
from keyshared.errors import TopologyError

NAMES = ["a", "b", "c", "d", "e", "f"]
seeds = st.integers(0, 1 << 32)


def assert_everywhere_once(tree: DistributionTree) -> None:
    once = dict.fromkeys(tree.clusters, 1)
    for origin in tree.clusters:
        assert once == arrivals(tree.hops(), origin), (tree, origin)


def interleaved(tree: DistributionTree, moves: Iterable[tuple[bool, int]]) -> ReplicationReport:
    """Produce records, or let one of the links work that have something to read, and in the end all of them."""
    world = Replication(tree.clusters, tree.hops())
    for at, (fresh, number) in enumerate(moves):
        ready = world.ready()
        if fresh:
            world.produce(tree.clusters[number % len(tree.clusters)], now_ms=at)
        elif ready:
            world.work(ready[number % len(ready)], now_ms=at)
    assert world.settle()
    return world.report()


@pytest.mark.parametrize("shape", [BALANCED, UNBALANCED], ids=["balanced", "unbalanced"])
def test_all_targets_of_the_trees_of_the_page_under_every_first_choice(shape: object) -> None:
    for hops in all_plans(shape):
        tree = DistributionTree.from_hops(shape, hops)
        for origin in tree.clusters:
            twice = [(True, tree.clusters.index(origin))] * 2
            assert interleaved(tree, [*twice, *((False, pick) for pick in range(9))]).exactly_once_in_order


@pytest.mark.parametrize("size", range(1, 7))
def test_all_trees_up_to_six_clusters(size: int) -> None:
    shapes_of_size = list(all_shapes(NAMES[:size]))

    assert [1, 1, 3, 11, 45, 197][size - 1] == len(shapes_of_size)
    for nested in shapes_of_size:
        assert_everywhere_once(DistributionTree(nested))


def test_all_targets_of_all_trees_up_to_five_clusters() -> None:
    plans = 0
    for size in range(1, 6):
        for nested in all_shapes(NAMES[:size]):
            shape = DistributionTree(nested).nested
            for hops in all_plans(shape):
                plans += 1
                assert_everywhere_once(DistributionTree.from_hops(shape, hops))

    assert 1 + 1 + 5 + 59 + 1552 == plans


def test_every_other_target_of_all_trees_of_six_clusters() -> None:
    for nested in all_shapes(NAMES):
        tree = DistributionTree(nested)
        for hop, target in movable(tree):
            assert_everywhere_once(tree.propose_move(hop, target).after)


@given(shapes(), seeds)
def test_random_trees_and_targets(nested: object, seed: int) -> None:
    shape = DistributionTree(nested).nested
    tree = DistributionTree.from_hops(shape, chosen_hops(shape, dice(seed)))

    assert_everywhere_once(tree)
    assert tree == DistributionTree(tree.nested, tree.hops())


@given(shapes(), seeds, st.lists(st.tuples(st.booleans(), st.integers(0, 255)), max_size=80))
def test_random_trees_under_random_interleavings(nested: object, seed: int, moves: Sequence[tuple[bool, int]]) -> None:
    shape = DistributionTree(nested).nested
    tree = DistributionTree(shape, chosen_hops(shape, dice(seed)))
    report = interleaved(tree, moves)

    assert report.exactly_once_in_order
    assert report.produced * (len(tree.clusters) - 1) == report.copies


def a_change(tree: DistributionTree, kind: str, random: Random) -> TreeChange[DistributionTree] | None:
    if kind == "move":
        choices = movable(tree)
        return tree.propose_move(*random.choice(choices)) if choices else None
    if kind == "remove":
        return tree.propose_remove(random.choice(tree.clusters))
    if kind == "add":
        near = random.sample(tree.clusters, random.randint(1, len(tree.clusters)))
        return tree.propose_add("new", near=near, wide=len(near) == 1 and random.random() < 0.5)
    # only levels that are not as they would be handed out change: those after a cluster was put in between
    return tree.propose_add("new", near=random.choice(tree.clusters)).after.propose_renumber()


@given(st.sampled_from(["move", "remove", "renumber", "add"]), st.integers(2, 9), seeds)
def test_a_change_after_its_drain_loses_doubles_and_reorders_nothing(kind: str, leaves: int, seed: int) -> None:
    random = dice(seed)
    change = a_change(random_tree(random, leaves), kind, random)
    if change is None or not change.needs_drain:
        return
    tree = change.before
    world = Replication(tree.clusters, tree.hops())
    traffic(world, random, 30)
    token = drained(world, change, random)
    world.apply(change)
    assert change.after == tree.apply(change, token)
    traffic(world, random, 30)
    world.settle()

    assert world.report().exactly_once_in_order
    assert set(change.after.hops()) == set(world.positions())


@given(st.integers(1, 9), seeds)
def test_a_cluster_is_added_beside_one_at_any_time_and_gets_everything(leaves: int, seed: int) -> None:
    random = dice(seed)
    tree = random_tree(random, leaves)
    change = tree.propose_add("new", near=random.choice(tree.clusters))
    world = Replication(tree.clusters, tree.hops())
    traffic(world, random, 30)
    world.apply(change)
    assert change.after == tree.apply(change)
    traffic(world, random, 30)
    world.settle()

    assert world.report().exactly_once_in_order
    assert_everywhere_once(change.after)


@given(st.integers(2, 9), seeds)
def test_a_lost_cluster_costs_duplicates_but_nothing_that_others_produced(leaves: int, seed: int) -> None:
    random = dice(seed)
    tree = random_tree(random, leaves)
    lost = random.choice(tree.clusters)
    others = [cluster for cluster in tree.clusters if cluster != lost]
    world = Replication(tree.clusters, tree.hops())
    traffic(world, random, 30, origins=others)
    world.destroy(lost)
    traffic(world, random, 10, origins=others)
    world.apply(tree.propose_loss(lost))
    traffic(world, random, 20)
    world.settle()
    report = world.report()

    assert ((), ()) == (report.lost, report.perished)


@given(st.integers(2, 6), seeds, st.lists(st.sampled_from(["move", "remove", "add", "loss"]), max_size=6))
@example(2, 0, ["add", "add", "add", "add", "move", "add"])
def test_whatever_was_changed_the_tree_is_right(leaves: int, seed: int, kinds: Sequence[str]) -> None:
    random = dice(seed)
    tree = random_tree(random, leaves)
    for number, kind in enumerate(kinds):
        change: TreeChange[DistributionTree] | None = None
        if kind == "add":
            near = random.choice(tree.clusters)
            try:
                change = tree.propose_add(f"new {number}", near=near)
            except TopologyError as refusal:  # five below one another leave no level between the last two
                assert refusal.requirement.startswith("leave one free in between")
                change = tree.propose_add(f"new {number}", near=near, wide=True)
        elif kind == "move":
            change = a_change(tree, "move", random)
        elif len(tree.clusters) > 1:
            cluster = random.choice(tree.clusters)
            change = tree.propose_loss(cluster) if kind == "loss" else tree.propose_remove(cluster)
        if change is not None:
            tree = change.after
            tree.check_invariants()
            assert tree == DistributionTree.from_hops(tree.nested, tree.hops())
