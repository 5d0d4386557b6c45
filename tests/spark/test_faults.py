"""The judge of one message finds what the core's judge finds, and its proofs hold. Needs no Spark."""

from collections.abc import Sequence
from random import Random

import pytest
from tests.distribution.trees import BALANCED, UNBALANCED, all_shapes
from tests.spark.copylogs import Lying, any_bit, broken_logs, counted, ignored, judged, own_bit_only, spread

from keyshared.copyflags import CopyFlags
from keyshared.distribution import DistributionTree, Node
from keyshared.distribution.shape import leaves
from keyshared.spark.copy_audit import Copies, Fault, faults_of

TREES = [
    DistributionTree(BALANCED),
    DistributionTree(UNBALANCED),
    DistributionTree({9: [{8: ["1", "2", "3"]}, {5: ["4", {4: ["5", "6"]}]}, "9"]}),
    *(DistributionTree(shape) for shape in all_shapes(["a", "b", "c", "d"])),
]
UNBALANCED_TREE = TREES[1]


def check_proof(tree: DistributionTree, copies: Sequence[Copies], fault: Fault) -> None:
    """A link that is blamed had to copy, and nobody on its other side has the message; or nobody had to."""
    present = {copy.cluster for copy in copies}
    assert tuple(sorted(present)) == fault.present
    if fault.level is None:
        assert present.isdisjoint(tree.clusters)
        return
    if fault.from_cluster is not None:
        hop = next(hop for hop in tree.hops() if tuple(hop) == (fault.from_cluster, fault.level, fault.to_cluster))
        assert any(copy.cluster == hop.cluster and copy.flags.is_due(hop.level) for copy in copies)
    sides = [branch for branch in _node(tree, fault).branches if fault.cluster in leaves(branch)]
    assert present.isdisjoint(leaves(sides[0]))
    if fault.from_cluster is None:
        beside = set(_node(tree, fault).clusters) & present
        assert beside
        assert not any(copy.cluster in beside and copy.flags.is_due(fault.level) for copy in copies)
    else:
        assert fault.to_cluster in leaves(sides[0])


def _node(tree: DistributionTree, fault: Fault) -> Node:
    """The node of the fault's level above its cluster."""
    branch = tree.root
    while isinstance(branch, Node) and branch.level != fault.level:
        branch = next(below for below in branch.branches if fault.cluster in leaves(below))
    assert isinstance(branch, Node)
    return branch


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.nested))
def test_every_fault_is_found_once_and_its_proof_holds(tree: DistributionTree) -> None:
    seen = set()
    for lying in broken_logs(tree, Random(1), 400):
        copies = counted(lying)
        faults = list(faults_of(tree, copies))
        assert [fault.cluster for fault in faults] == sorted({f.cluster for f in faults}, key=tree.clusters.index)
        lost, doubled = judged(tree, lying)
        assert lost == {fault.cluster for fault in faults if fault.fault == "lost"}
        assert doubled == {fault.cluster for fault in faults if fault.fault != "lost"}
        for fault in faults:
            seen.add(fault.fault)
            there = [copy for copy in copies if copy.cluster == fault.cluster]
            assert sum(copy.number for copy in there) == fault.copies
            assert tuple(sorted(copy.flags for copy in there)) == fault.flags
            if fault.fault == "lost":
                check_proof(tree, copies, fault)
            else:
                assert (None, None, None) == (fault.from_cluster, fault.level, fault.to_cluster)
    assert {"lost", "duplicated", "looped"} == seen


def faults(lying: Sequence[Lying]) -> list[tuple[str, str, str | None, str]]:
    found = faults_of(UNBALANCED_TREE, counted(lying))
    return [(fault.fault, fault.cluster, fault.origin, fault.explanation) for fault in found]


def test_a_distributor_that_did_not_copy_is_named_for_the_whole_subtree_that_misses_the_message() -> None:
    plan = [hop for hop in UNBALANCED_TREE.hops() if tuple(hop) != ("1", 3, "4")]
    why = "1 did not copy it to 4 at level 3"
    assert [("lost", "4", "1", why), ("lost", "5", "1", why)] == faults(spread("m", plan, "1"))


def test_a_header_that_was_kept_is_named_as_such() -> None:
    why = "no cluster had to copy it across level 3: a flag was set before"
    found = faults(spread("m", UNBALANCED_TREE.hops(), "1", flags=0b100))
    assert [("lost", "4", None, why), ("lost", "5", None, why)] == found


def test_a_message_that_is_back_where_it_was_produced_has_looped_and_elsewhere_it_is_duplicated() -> None:
    found = faults(spread("m", UNBALANCED_TREE.hops(), "4", due=ignored))
    assert {"4"} == {cluster for fault, cluster, _, _ in found if fault == "looped"}
    assert {"1", "2", "3", "5"} == {cluster for fault, cluster, _, _ in found if fault == "duplicated"}
    assert "produced there, and came back across 1 and" in found[3][3]


def test_two_copies_without_flags_are_a_duplicate() -> None:
    lying = spread("m", UNBALANCED_TREE.hops(), "4")
    assert [("duplicated", "4", "4", "2 copies")] == faults([*lying, lying[0]])


def test_an_origin_that_is_not_certain_is_not_named() -> None:
    lying = [record._replace(flags=CopyFlags()) for record in spread("m", UNBALANCED_TREE.hops(), "4")[:2]]
    assert {None} == {origin for _, _, origin, _ in faults(lying)}


def test_a_message_that_only_other_clusters_have_is_lost_on_every_one() -> None:
    found = faults([Lying("m", "gone", CopyFlags())])
    assert [("lost", name, "gone", "no cluster of the tree has it") for name in "12345"] == found


@pytest.mark.parametrize("due", [own_bit_only, any_bit, ignored])
def test_each_broken_rule_is_found(due: object) -> None:
    broken = [spread("m", UNBALANCED_TREE.hops(), origin, due=due) for origin in "12345"]  # type: ignore[arg-type] # one of three
    assert any(faults(lying) for lying in broken)
    assert not any(faults(spread("m", UNBALANCED_TREE.hops(), origin)) for origin in "12345")
