"""One change after the other, adds last and in between: nothing lost, nothing doubled, all in order."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.changing import KINDS, Changing, Event, all_adds, all_other_changes, every_end, lived, tree_with_odd_levels
from tests.distribution.trees import all_plans, all_shapes, dice

from keyshared.distribution import DistributionTree, Nested

seeds = st.integers(0, 1 << 32)


@st.composite
def mixes(draw: st.DrawFn, kinds: Sequence[str] = KINDS) -> list[str]:
    """Kinds of changes, heavy on some of them and without others."""
    some = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=len(kinds)))
    return draw(st.lists(st.sampled_from(some), min_size=1, max_size=6))


@given(mixes(), st.integers(1, 6), seeds)
def test_whatever_was_changed_and_whatever_lags_every_cluster_has_everything_once_in_order(
    kinds: list[str], leaves: int, seed: int
) -> None:
    life = lived(dice(seed), kinds, leaves)

    assert life.end().exactly_once_in_order, (life.tree, kinds)
    assert set(life.tree.hops()) == set(life.world.positions())


@given(mixes(("add", "add above", "add wide", "remove", "move")), st.integers(2, 6), seeds)
def test_a_cluster_that_takes_the_name_of_one_that_is_gone_has_everything_once(
    kinds: list[str], leaves: int, seed: int
) -> None:
    random = dice(seed)
    life = Changing(tree_with_odd_levels(random, leaves), random, reborn=True)
    for kind in ("remove", "add", *kinds):
        life.traffic(random.choice((0, 5, 20)))
        life.change(kind)
    report = life.end()

    assert ((), (), ()) == (report.lost, report.perished, report.duplicated), (life.tree, kinds)
    for cluster, log in life.world._logs.items():
        there = [arrival[2:4] for arrival in life.world.arrivals if arrival.cluster == cluster]
        assert [record[:2] for record in log] == there


@given(mixes((*KINDS, "loss")), st.integers(1, 6), seeds)
def test_a_loss_among_other_changes_costs_nothing_that_clusters_produced_which_are_there(
    kinds: list[str], leaves: int, seed: int
) -> None:
    random = dice(seed)
    life = Changing(tree_with_odd_levels(random, leaves), random)
    for kind in kinds:
        life.traffic(random.choice((0, 5, 20)))
        if kind == "loss":
            life.lose()
        else:
            life.change(kind)
    report = life.end()
    there = set(life.tree.clusters)

    assert not [case for case in (*report.lost, *report.perished, *report.reordered) if case.origin in there]


def shapes_with_odd_levels(size: int) -> list[Nested]:
    """Every shape of so many clusters, its levels three apart."""

    def levelled(nested: Nested) -> tuple[Nested, int]:
        if not isinstance(nested, list):
            return nested, 0
        branches = [levelled(branch) for branch in nested]
        level = max(below for _, below in branches) + 3
        return {level: [branch for branch, _ in branches]}, level

    return [levelled(nested)[0] for nested in all_shapes(["a", "b", "c"][:size])]


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_add_after_every_change_of_all_trees_up_to_three_clusters_in_every_order(size: int) -> None:
    for nested in shapes_with_odd_levels(size):
        for hops in all_plans(nested):
            start = DistributionTree(nested, hops)
            for first in all_other_changes(start):
                # of an origin that leaves nothing comes any more; another one gives what comes later
                origin = start.clusters[0]
                later = origin if origin in first.after.clusters else first.after.clusters[0]
                for add in all_adds(first.after, "new"):
                    for report in every_end(start, [origin, first, later, add, later, "new"]):
                        assert report.exactly_once_in_order, (start, first, add)


@pytest.mark.parametrize("size", [1, 2])
def test_every_add_after_every_add_in_every_order(size: int) -> None:
    for nested in shapes_with_odd_levels(size):
        start = DistributionTree(nested)
        firsts = {add.after: add for add in all_adds(start, "new")}  # filled from one cluster is enough here
        for first in firsts.values():
            for second in all_adds(first.after, "newer"):
                events: list[Event] = ["a", first, "a", "new", second, "a"]
                for report in every_end(start, events):
                    assert report.exactly_once_in_order, (start, first, second)
