"""The published page on Axual's distribution model: both trees, and the four steps of its example."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.distribution.trees import BALANCED, UNBALANCED, all_plans, arrivals

from keyshared.copyflags import CopyFlags
from keyshared.distribution import DistributionTree, Hop, Replication

PAGE = json.loads((Path(__file__).parent / "data" / "axual_page.json").read_text("utf-8"))
STEPS = PAGE["four steps"]


def nested(tree: Any) -> Any:
    return tree if isinstance(tree, str) else {tree[0]: [nested(branch) for branch in tree[1]]}


TREES = {row["name"]: nested(row["tree"]) for row in PAGE["trees"]}


def four_clusters() -> DistributionTree:
    return DistributionTree(TREES[STEPS["tree"]], [Hop(*link) for link in STEPS["links"]])


def test_the_trees_of_the_tests_are_those_of_the_page() -> None:
    assert [BALANCED, UNBALANCED] == list(TREES.values())


@pytest.mark.parametrize("row", PAGE["trees"], ids=lambda row: row["name"])
def test_a_cluster_runs_one_distributor_for_every_level_above_it(row: Any) -> None:
    tree = DistributionTree(nested(row["tree"]))

    assert row["levels"] == {cluster: list(tree.levels(cluster)) for cluster in tree.clusters}
    assert row["levels"] == {name: [each.level for each in tree.distributors(name)] for name in tree.clusters}


@pytest.mark.parametrize("row", STEPS["decisions"], ids=lambda row: f"{row['step']}-level-{row['level']}")
def test_the_four_steps_distributor_by_distributor(row: Any) -> None:
    flags = CopyFlags(int(row["flags"], 2))
    (distributor,) = (each for each in four_clusters().distributors(row["cluster"]) if each.level == row["level"])

    assert row["mask"] == f"{CopyFlags.mask(row['level']):04b}"
    assert row["masked"] == f"{flags & CopyFlags.mask(row['level']):04b}"
    assert row["copies"] == [[copy.target, f"{copy.flags:04b}"] for copy in distributor.copies(flags)]


def test_the_four_steps_are_all_that_happens() -> None:
    decided = [
        (each.cluster, f"{each.flags:04b}", each.level, [[copy.target, f"{copy.flags:04b}"] for copy in each.copies])
        for each in four_clusters().explain(STEPS["origin"])
    ]

    assert sorted((row["cluster"], row["flags"], row["level"], row["copies"]) for row in STEPS["decisions"]) == sorted(
        decided
    )


def test_the_four_steps_in_the_simulation() -> None:
    tree = four_clusters()
    world = Replication(tree.clusters, tree.hops())
    world.produce("1")
    world.settle()

    assert [("1", "0000"), ("2", "0001"), ("3", "0100"), ("4", "0101")] == sorted(
        (arrival.cluster, f"{arrival.flags:04b}") for arrival in world.arrivals
    )


@pytest.mark.parametrize(("shape", "plans"), [(BALANCED, 16), (UNBALANCED, 144)], ids=["four clusters", "unbalanced"])
def test_any_cluster_of_the_subtree_can_be_the_target(shape: Any, plans: int) -> None:
    chosen = list(all_plans(shape))

    assert plans == len(chosen)
    for hops in chosen:
        tree = DistributionTree.from_hops(shape, hops)
        tree.check_invariants()
        for origin in tree.clusters:
            assert dict.fromkeys(tree.clusters, 1) == dict(arrivals(tree.hops(), origin))


def test_without_a_header_no_flag_is_set_and_all_distributors_have_work_to_do() -> None:
    tree = DistributionTree(UNBALANCED)
    for cluster in tree.clusters:
        due = CopyFlags().due(CopyFlags.of(*tree.levels(cluster)))
        assert tree.levels(cluster) == due.levels
