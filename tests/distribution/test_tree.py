"""The distribution tree: links, what is refused, what a record does, and how a tree becomes the next one."""

import copy
import pickle
from itertools import count
from typing import Any

import pytest
from tests.distribution.trees import BALANCED, UNBALANCED
from tests.hostile import shared
from tests.work import work_of

from keyshared.copyflags import CopyFlags
from keyshared.distribution import (
    MAX_DEPTH,
    MAX_LINKS,
    Copy,
    DistributionTree,
    Distributor,
    Hop,
    LinkMove,
    LinkStart,
    Quiesced,
    Quiescence,
    Replication,
    TreeChange,
)
from keyshared.distribution import tree as tree_module
from keyshared.errors import ArgumentError, InvariantError, QuiesceError, TopologyError

WIDE: Any = {2: ["a", {1: ["b", "c"]}, "d"]}
ALONE = DistributionTree("c1")


ROOMY = DistributionTree([["1", ["2", "3"]], ["4", "5"]])


def drained(world: Replication, change: TreeChange[DistributionTree]) -> Quiesced[DistributionTree]:
    drain = Quiescence(change)
    while not drain.observe(world.log_ends(), world.positions()):
        for hop in drain.watch:
            if hop in world.ready():
                world.work(hop)
    return drain.quiesced()


def in_good_order(world: Replication, change: TreeChange[DistributionTree]) -> DistributionTree:
    """Drain what has to be drained, and bring the change into force."""
    quiesced = drained(world, change) if change.needs_drain else None
    world.apply(change)
    return change.before.apply(change, quiesced)


def names(hops: Any) -> list[tuple[str, int, str]]:
    return [tuple(hop) for hop in hops]


def test_the_clusters_of_a_subtree_copy_to_those_of_its_sibling_in_turn() -> None:
    tree = DistributionTree({2: [{1: ["a", "b", "c"]}, {1: ["d", "e"]}]})

    assert ["d", "e", "d"] == [hop.target for hop in tree.hops() if hop.level == 2 and hop.cluster in "abc"]
    assert ["a", "b"] == [hop.target for hop in tree.hops() if hop.level == 2 and hop.cluster in "de"]


def test_a_distributor_in_a_wide_node_copies_to_each_sibling() -> None:
    tree = DistributionTree(WIDE)

    assert (Distributor("a", 2, ("b", "d")),) == tree.distributors("a")
    assert (Distributor("c", 2, ("a", "d")), Distributor("c", 1, ("b",))) == tree.distributors("c")
    assert (Copy("b", CopyFlags(2)), Copy("d", CopyFlags(2))) == tree.copies("a", CopyFlags())


def test_a_chosen_target_takes_the_place_of_the_default() -> None:
    tree = DistributionTree(WIDE, [Hop("a", 2, "c"), Hop("d", 2, "c")])

    assert [("a", 2, "c"), ("a", 2, "d")] == names(hop for hop in tree.hops() if hop.cluster == "a")
    assert [("d", 2, "a"), ("d", 2, "c")] == names(hop for hop in tree.hops() if hop.cluster == "d")


@pytest.mark.parametrize(
    ("hop", "path", "parameter", "text"),
    [
        (Hop("1", 3, "1"), "tree", "target of '1' at level 3", "'4', '5'"),  # itself
        (Hop("1", 3, "2"), "tree", "target of '1' at level 3", "'4', '5'"),  # its own side
        (Hop("3", 2, "2"), "tree[0]", "target of '3' at level 2", "'1'"),  # too near
        (Hop("3", 1, "1"), "tree[0][1]", "target of '3' at level 1", "'2'"),  # too far
        (Hop("3", 1, "9"), "tree[0][1]", "target of '3' at level 1", "'2'"),
        (Hop("9", 1, "1"), "tree", "cluster", "'1', '2', '3', '4', '5'"),
        (Hop("4", 2, "1"), "tree[1][0]", "level of a distributor on '4'", "3, 1"),
        (Hop("1", 1, "2"), "tree[0][0]", "level of a distributor on '1'", "3, 2"),
        (Hop("1", 0, "2"), "tree[0][0]", "level of a distributor on '1'", "3, 2"),
    ],
)
def test_a_link_to_a_wrong_place_is_refused_and_the_right_ones_are_named(
    hop: Hop, path: str, parameter: str, text: str
) -> None:
    with pytest.raises(TopologyError, match=text) as caught:
        DistributionTree(UNBALANCED, [hop])

    assert (path, parameter) == (caught.value.path, caught.value.parameter)


def test_a_cluster_alone_has_no_level_for_a_link() -> None:
    with pytest.raises(TopologyError, match="be one of those above it: none"):
        DistributionTree("a", [Hop("a", 1, "b")])


def test_two_targets_in_one_sibling_are_refused() -> None:
    with pytest.raises(TopologyError, match="be given once for '4', '5'; '4' was given already"):
        DistributionTree(UNBALANCED, [Hop("1", 3, "4"), Hop("1", 3, "5")])
    with pytest.raises(TopologyError, match="be given once"):
        DistributionTree(UNBALANCED, [Hop("1", 3, "4"), Hop("1", 3, "4")])


@pytest.mark.parametrize("hop", [("1", 3, "4"), None, "1"])
def test_a_link_that_is_none_is_refused(hop: Any) -> None:
    with pytest.raises(ArgumentError, match="be a Hop"):
        DistributionTree(UNBALANCED, [hop])


def test_a_deployed_plan_makes_the_tree_again_and_every_missing_link_is_found() -> None:
    tree = DistributionTree(UNBALANCED, [Hop("1", 3, "5")])

    assert tree == DistributionTree.from_hops(UNBALANCED, tree.hops())
    for missing in tree.hops():
        with pytest.raises(TopologyError, match="get nothing from there otherwise") as caught:
            DistributionTree.from_hops(UNBALANCED, [hop for hop in tree.hops() if hop != missing])
        assert f"target of {missing.cluster!r} at level {missing.level}" == caught.value.parameter


def test_a_cluster_alone_needs_no_link() -> None:
    assert ALONE == DistributionTree.from_hops("c1", [])
    assert (("c1",), (), (), 0, "c1") == (
        ALONE.clusters,
        ALONE.hops(),
        ALONE.levels("c1"),
        ALONE.max_hops,
        ALONE.nested,
    )
    nothing: list[tuple[object, ...]] = [ALONE.copies("c1", CopyFlags()), ALONE.explain("c1"), ALONE.crowded]
    assert [(), (), (), ()] == [*nothing, ALONE.distributors("c1")]
    ALONE.check_invariants()


def test_a_cluster_that_is_not_there_is_refused_with_those_that_are() -> None:
    tree = DistributionTree(BALANCED)
    calls: list[Any] = [tree.levels, tree.distributors, tree.explain, tree.propose_remove, tree.propose_loss]
    for call in [*calls, lambda cluster: tree.copies(cluster, CopyFlags())]:
        with pytest.raises(ArgumentError, match="'9'; it must be one of '1', '2', '3', '4'"):
            call("9")


def test_a_decision_has_a_text() -> None:
    texts = [str(decision) for decision in DistributionTree(WIDE).explain("d")]

    assert "d level 2: 0000 & 0011 = 0000, copies to a with 0010, b with 0010" == texts[0]
    assert "b level 2: 0010 & 0011 = 0010, done already" in texts
    assert "b level 1: 0010 & 0001 = 0000, copies to c with 0011" in texts


def test_a_decision_about_high_levels_names_them() -> None:
    assert [
        "a level 32: crossed nothing, copies to c with 32",
        "a level 16: crossed nothing, copies to b with 16",
        "c level 32: crossed 32, done already",
        "c level 16: crossed 32, copies to d with 32+16",
    ] == [str(decision) for decision in DistributionTree([["a", "b"], ["c", "d"]]).explain("a")][:4]
    low_under_high = DistributionTree({9: [{1: ["a", "b"]}, "c"]}).explain("c")
    assert "a level 1: crossed 9, copies to b with 9+1" in map(str, low_under_high)


def test_a_record_takes_as_many_hops_as_the_longest_chain_has_levels() -> None:
    assert [2, 3, 2] == [DistributionTree(nested).max_hops for nested in (BALANCED, UNBALANCED, WIDE)]


def test_subtrees_without_a_free_level_are_warned_of() -> None:
    assert (("1",), ("2",), ("3",), ("4",)) == DistributionTree(BALANCED).crowded
    assert () == DistributionTree([["1", "2"], ["3", "4"]]).crowded


def test_trees_are_values() -> None:
    tree = DistributionTree(UNBALANCED, [Hop("1", 3, "5")])
    twins = [
        DistributionTree(tree.nested, tree.hops()),
        pickle.loads(pickle.dumps(tree)),  # noqa: S301  # our own bytes
        copy.deepcopy(tree),
    ]

    assert [tree] * 3 == twins
    assert {tree} == set(twins)
    assert tree != DistributionTree(UNBALANCED)
    assert tree != DistributionTree(BALANCED)
    assert DistributionTree("c2") != ALONE
    assert tree != "tree"
    assert "<DistributionTree of 5 clusters, 12 links: " in repr(tree)


def test_broken_insides_are_found() -> None:
    for broken in (lambda hops: hops[1:], lambda hops: (hops[0]._replace(target="c2"), *hops[1:])):
        tree = DistributionTree([["c1", "c2"], ["c3", "c4"]])
        tree._hops["c1"] = broken(tree._hops["c1"])
        with pytest.raises(InvariantError, match="a record from 'c1' arrives once everywhere"):
            tree.check_invariants()


class TestAdding:
    def test_only_links_with_the_new_cluster_come_into_being(self) -> None:
        tree = DistributionTree([["c1", "c2"], ["c3", "c4"]], [Hop("c1", 32, "c4")])
        change = tree.propose_add("c5", near="c2")

        assert {32: [{16: ["c1", {8: ["c2", "c5"]}]}, {16: ["c3", "c4"]}]} == change.after.nested
        assert [("c2", 8, "c5"), ("c5", 32, "c3"), ("c5", 16, "c1"), ("c5", 8, "c2")] == names(change.added)
        assert set(tree.hops()) | set(change.added) == set(change.after.hops())
        assert ((), (), (), (), False, False) == (
            change.removed,
            change.moved,
            change.drains,
            change.silent,
            change.rewind,
            change.needs_drain,
        )
        assert (Hop("c2", 8, "c5"), ()) == (change.fill, change.follows)
        assert change.after == tree.apply(change)
        change.after.check_invariants()

    def test_beside_several_the_links_that_lead_to_the_source_are_drained_and_followed(self) -> None:
        change = ROOMY.propose_add("n", near=["2", "1"])  # the smallest subtree of both is that of 3, too

        assert Hop("1", 40, "n") == change.fill
        assert (
            LinkStart(Hop("2", 40, "n"), Hop("2", 32, "1")),
            LinkStart(Hop("3", 40, "n"), Hop("3", 32, "1")),
        ) == change.follows
        assert (Hop("2", 32, "1"), Hop("3", 32, "1")) == change.drains
        assert ((), True) == (change.silent, change.needs_drain)
        with pytest.raises(QuiesceError, match="to be drained: '2' at level 32 to '1', '3' at level 32 to '1'"):
            ROOMY.apply(change)

    def test_the_links_to_the_source_drain_the_highest_level_first(self) -> None:
        wide = DistributionTree(UNBALANCED).propose_add("n", near="5", wide=True)
        everywhere = ROOMY.propose_add("n", near=ROOMY.clusters, source="3")

        assert (Hop("5", 1, "n"), (LinkStart(Hop("4", 1, "n"), Hop("4", 1, "5")),)) == (wide.fill, wide.follows)
        assert [("4", 48), ("5", 48), ("1", 32), ("2", 16)] == [hop[:2] for hop in everywhere.drains]
        assert Hop("3", 64, "n") == everywhere.fill

    @pytest.mark.parametrize("source", ["1", "n", "", 5])
    def test_the_source_is_one_that_copies_to_the_new_cluster(self, source: Any) -> None:
        assert Hop("2", 24, "n") == ROOMY.propose_add("n", near=["3", "2"]).fill
        assert Hop("3", 24, "n") == ROOMY.propose_add("n", near=["3", "2"], source="3").fill
        with pytest.raises(ArgumentError, match=r"source is .*; it must be one of '2', '3', which will copy to 'n'"):
            ROOMY.propose_add("n", near=["2", "3"], source=source)

    def test_near_several_is_above_their_smallest_subtree(self) -> None:
        tree = DistributionTree([["c1", "c2"], ["c3", "c4"]])

        assert {32: [{24: [{16: ["c1", "c2"]}, "c5"]}, {16: ["c3", "c4"]}]} == tree.propose_add(
            "c5", near=["c2", "c1"]
        ).after.nested
        assert {48: [{32: [{16: ["c1", "c2"]}, {16: ["c3", "c4"]}]}, "c5"]} == tree.propose_add(
            "c5", near={"c1", "c4"}
        ).after.nested

    def test_wide_needs_no_free_level(self) -> None:
        tree = DistributionTree(BALANCED)
        with pytest.raises(TopologyError, match="leave one free"):
            tree.propose_add("5", near="4")
        change = tree.propose_add("5", near="4", wide=True)

        assert {3: [{1: ["1", "2"]}, {1: ["3", "4", "5"]}]} == change.after.nested
        assert [("3", 1, "5"), ("4", 1, "5"), ("5", 3, "1"), ("5", 1, "3"), ("5", 1, "4")] == names(change.added)
        change.after.check_invariants()

    def test_four_fit_one_below_the_other_and_then_the_warning_comes(self) -> None:
        tree = DistributionTree(["c0", "c1"])
        for number in range(2, 6):
            assert ("c0",) not in tree.crowded
            tree = tree.apply(tree.propose_add(f"c{number}", near="c0"))

        assert (16, 8, 4, 2, 1) == tree.levels("c0")
        assert (("c0",), ("c5",)) == tuple(each for each in tree.crowded if len(each) == 1 and each[0] in {"c0", "c5"})
        with pytest.raises(TopologyError, match="leave one free"):
            tree.propose_add("c6", near="c0")

    def test_the_second_cluster_is_added_to_one_alone(self) -> None:
        assert {16: ["c1", "c2"]} == ALONE.propose_add("c2", near="c1").after.nested

    @pytest.mark.parametrize(
        ("cluster", "near", "parameter"),
        [("1", "2", "cluster"), ("", "2", "cluster"), (5, "2", "cluster"), ("5", "9", "near"), ("5", [], "near")],
    )
    def test_a_wrong_name_is_refused(self, cluster: Any, near: Any, parameter: str) -> None:
        with pytest.raises(ArgumentError) as caught:
            DistributionTree(BALANCED).propose_add(cluster, near=near, wide=True)

        assert parameter == caught.value.parameter


class TestMoving:
    def test_a_target_moves_within_its_subtree_and_that_is_what_is_drained(self) -> None:
        tree = DistributionTree(UNBALANCED)
        change = tree.propose_move(Hop("4", 3, "1"), "3")

        assert (LinkMove(Hop("4", 3, "1"), Hop("4", 3, "3")),) == change.moved
        assert {("1", 2), ("2", 2), ("3", 2), ("2", 1), ("3", 1)} == {(hop.cluster, hop.level) for hop in change.drains}
        assert [2, 2, 2, 1, 1] == [hop.level for hop in change.drains]
        assert ((), (), (), True) == (change.added, change.removed, change.silent, change.needs_drain)
        assert Hop("4", 3, "3") in change.after.hops()
        assert tree.hops() == tuple(Hop("4", 3, "1") if hop == Hop("4", 3, "3") else hop for hop in change.after.hops())

    @pytest.mark.parametrize("target", ["1", "5", "4", "9"])
    def test_elsewhere_it_cannot_go(self, target: str) -> None:
        with pytest.raises(TopologyError, match=r"at tree: target of '4' at level 3 .* be one of '2', '3' instead"):
            DistributionTree(UNBALANCED).propose_move(Hop("4", 3, "1"), target)

    @pytest.mark.parametrize("hop", [Hop("4", 3, "2"), Hop("4", 2, "1"), None])
    def test_a_link_that_is_not_there_does_not_move(self, hop: Any) -> None:
        with pytest.raises(ArgumentError, match="hop"):
            DistributionTree(UNBALANCED).propose_move(hop, "3")


class TestRemoving:
    def test_links_to_the_cluster_move_and_its_own_end_and_levels_stay(self) -> None:
        tree = DistributionTree(UNBALANCED, [Hop("4", 3, "2"), Hop("5", 3, "2"), Hop("1", 2, "2")])
        change = tree.propose_remove("2")

        assert {3: [{2: ["1", "3"]}, {1: ["4", "5"]}]} == change.after.nested
        assert {Hop("4", 3, "2"), Hop("5", 3, "2"), Hop("1", 2, "2")} == {moved.old for moved in change.moved}
        assert all((old.cluster, old.level) == (new.cluster, new.level) for old, new in change.moved)
        assert {hop for hop in tree.hops() if hop.cluster == "2"} | {Hop("3", 1, "2")} == set(change.removed)
        assert ("2",) == change.silent
        assert {hop for hop in tree.hops() if {hop.cluster, hop.target} <= {"1", "2", "3"}} | {
            hop for hop in tree.hops() if hop.cluster == "2"
        } == set(change.drains)
        assert change.needs_drain
        change.after.check_invariants()

    def test_a_lost_cluster_is_not_waited_for(self) -> None:
        tree = DistributionTree(UNBALANCED)
        change, drained = tree.propose_loss("2"), tree.propose_remove("2")

        assert (drained.after, drained.moved, drained.removed) == (change.after, change.moved, change.removed)
        assert ((), (), True, False) == (change.drains, change.silent, change.rewind, change.needs_drain)
        assert change.after == tree.apply(change)

    def test_the_last_but_one_leaves_one_alone(self) -> None:
        tree = DistributionTree(["c1", "c2"])

        assert ALONE == tree.propose_remove("c2").after == tree.propose_loss("c2").after
        assert tree.propose_remove("c2").needs_drain
        for call in (ALONE.propose_remove, ALONE.propose_loss):
            with pytest.raises(ArgumentError, match="not be the only one"):
                call("c1")


class TestRenumbering:
    def test_levels_are_handed_out_again_and_targets_stay(self) -> None:
        tree = DistributionTree(UNBALANCED, [Hop("1", 3, "5")])
        change = tree.propose_renumber()

        assert {48: [{32: ["1", {16: ["2", "3"]}]}, {16: ["4", "5"]}]} == change.after.nested
        assert [(hop.cluster, hop.target) for hop in tree.hops()] == [
            (hop.cluster, hop.target) for hop in change.after.hops()
        ]
        assert set(tree.hops()) == {moved.old for moved in change.moved} == set(change.drains)
        assert (tree.clusters, True) == (change.silent, change.needs_drain)

    def test_a_tree_that_has_its_levels_already_changes_nothing(self) -> None:
        tree = DistributionTree([["c1", "c2"], "c3"])
        change = tree.propose_renumber()

        assert TreeChange(tree, tree) == change
        assert tree == tree.apply(change)


def test_a_change_of_another_tree_is_refused() -> None:
    tree = DistributionTree([["c1", "c2"], ["c3", "c4"]])
    change = tree.propose_add("c5", near="c1")
    later = tree.apply(tree.propose_add("c6", near="c1"))
    for wrong in (change, None, "change"):
        with pytest.raises(ArgumentError, match="be proposed by this very tree"):
            later.apply(wrong)  # type: ignore[arg-type]  # that is the point


def test_a_change_and_its_proof_are_those_of_one_edition() -> None:
    tree = DistributionTree([["a", "x"], ["b", "c"]])
    add, move = tree.propose_add("n", near="c"), tree.propose_move(Hop("a", 32, "b"), "c")
    world = Replication(tree.clusters, tree.hops())
    proof = drained(world, move)
    moved = in_good_order(world, move)
    back = in_good_order(world, moved.propose_move(Hop("a", 32, "c"), "b"))
    again = back.propose_move(Hop("a", 32, "b"), "c")

    assert (0, 1, 2) == (tree.edition, moved.edition, back.edition)
    assert (tree, move) == (back, again)
    for old in (add, move):
        with pytest.raises(ArgumentError, match="be proposed by this very tree"):
            back.apply(old, proof)
    with pytest.raises(QuiesceError, match="the proof is that of another change"):
        back.apply(again, proof)
    assert moved == in_good_order(world, again)


def test_a_tree_that_is_stored_keeps_its_edition() -> None:
    tree = DistributionTree(["a", "b"])
    later = tree.apply(tree.propose_add("c", near="a"))

    for stored in (
        pickle.loads(pickle.dumps(later)),  # noqa: S301  # our own bytes
        copy.deepcopy(later),
        DistributionTree(later.nested, later.hops(), later.edition),
        DistributionTree.from_hops(later.nested, later.hops(), later.edition),
    ):
        assert (later, 1) == (stored, stored.edition)
    for wrong in (-1, 1.0, True):
        with pytest.raises(ArgumentError) as caught:
            DistributionTree(["a", "b"], edition=wrong)  # type: ignore[arg-type]  # that is the point
        assert "edition" == caught.value.parameter


@pytest.mark.no_cover
def test_a_tree_does_not_grow_deeper_than_one_may_be() -> None:
    tree = DistributionTree("c0")
    for number in range(1, MAX_DEPTH + 1):
        change = tree.propose_add(f"c{number}", near=tree.clusters)
        tree = change.after
    with pytest.raises(TopologyError) as caught:
        tree.propose_add("one more", near=tree.clusters)

    assert ("depth", MAX_DEPTH + 1) == (caught.value.parameter, caught.value.value)
    assert MAX_DEPTH == tree.max_hops
    assert tree == pickle.loads(pickle.dumps(tree)) == DistributionTree(tree.nested)  # noqa: S301  # our own bytes
    assert tree.propose_renumber().after == tree
    assert "one more" in tree.propose_add("one more", near="c0", wide=True).after.clusters


def test_a_change_that_would_make_a_tree_too_deep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyshared.distribution.tree.MAX_DEPTH", 1)
    tree = DistributionTree("c0").propose_add("c1", near="c0").after

    with pytest.raises(TopologyError, match="depth is 2; it must be at most 1; add clusters wide"):
        tree.propose_add("c2", near=tree.clusters)


def test_what_looks_like_a_link_is_none() -> None:
    with pytest.raises(ArgumentError, match=r"hop is .* it must be a Hop"):
        DistributionTree(BALANCED).propose_move(("1", 3, "3"), "4")  # type: ignore[arg-type]  # that is the point


class TestWork:
    """What a tree costs grows with its links, and what would have too many of them is refused."""

    def test_too_many_links_are_refused_before_any_is_made(self) -> None:
        def work(size: int) -> int:
            def build() -> None:
                with pytest.raises(TopologyError, match=f"number of links is {size * (size - 1)}; it must be at most"):
                    DistributionTree([f"c{number}" for number in range(size)])

            return work_of(build)

        assert 2.2 * work(2_000) > work(4_000)

    def test_a_part_that_stands_in_a_tree_twice_is_read_once(self) -> None:
        def build() -> None:
            with pytest.raises(TopologyError, match="be named once"):
                DistributionTree(shared(90))

        assert 3_000 > work_of(build)

    @pytest.mark.parametrize("what", ["build", "remove"])
    def test_a_link_finds_its_place_without_a_search(self, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = 0

        class Counted(Hop):
            """Counts how often one link is compared with another, or looked up."""

            __slots__ = ()

            def __eq__(self, other: object) -> bool:
                nonlocal asked
                asked += 1
                return tuple.__eq__(self, other)

            def __hash__(self) -> int:
                nonlocal asked
                asked += 1
                return tuple.__hash__(self)

        monkeypatch.setattr(tree_module, "Hop", Counted)

        def work(size: int) -> float:
            """How often, for each link."""
            nonlocal asked
            shape = [[f"c{number}" for number in range(size)], ["x", "y"]]
            tree = DistributionTree(shape)
            links = tree.hops()
            asked = 0
            if what == "build":
                assert tree == DistributionTree(shape, links)
            else:
                assert size // 2 == len(tree.propose_remove("x").moved)
            return asked / len(links)

        assert 1.5 * work(10) + 1 > work(40)

    @pytest.mark.no_cover
    def test_as_many_links_as_are_allowed_are_made(self) -> None:
        size = next(size for size in count() if size * (size - 1) > MAX_LINKS) - 1

        assert MAX_LINKS >= len(DistributionTree([f"c{number}" for number in range(size)]).hops())
