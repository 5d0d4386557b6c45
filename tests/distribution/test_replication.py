"""The simulation of clusters that distribute, and the judge of what arrived."""

from dataclasses import replace
from typing import Any

import pytest
from tests.distribution.trees import BALANCED

from keyshared.copyflags import CopyFlags
from keyshared.distribution import (
    Copy,
    DistributionTree,
    Hop,
    RecordArrival,
    RecordFault,
    Replication,
    ReplicationReport,
    TreeChange,
    judge,
)
from keyshared.errors import ArgumentError, ClockError

TREE = DistributionTree(BALANCED)
FIRST = Hop("1", 3, "3")  # the first link of the tree


def world() -> Replication:
    return Replication(TREE.clusters, TREE.hops())


def at(cluster: str, sequence: int, origin: str = "a", at_ms: int = 0) -> RecordArrival:
    return RecordArrival(at_ms, cluster, origin, sequence)


class TestJudge:
    def test_records_that_are_everywhere_once_in_order_are_right(self) -> None:
        report = judge([at("a", 0), at("b", 0, at_ms=7), at("a", 1), at("b", 1, at_ms=4)], ["a", "b"])

        assert ReplicationReport(2, 2, (), (), (), (), 7) == report
        assert report.exactly_once_in_order

    def test_nothing_is_right(self) -> None:
        assert ReplicationReport(0, 0, (), (), (), (), 0) == judge([], ["a"])

    def test_what_one_has_and_another_one_lacks_is_lost(self) -> None:
        report = judge([at("a", 0), at("b", 0), at("a", 1)], ["a", "b", "c"])

        assert (RecordFault("a", 0, "c"), RecordFault("a", 1, "b"), RecordFault("a", 1, "c")) == report.lost
        assert () == report.perished
        assert not report.exactly_once_in_order

    def test_what_only_clusters_have_that_are_gone_has_perished(self) -> None:
        report = judge([at("a", 0), at("b", 0), at("a", 1), at("b", 0, "b")], ["b", "c"])

        assert (RecordFault("a", 1, "a"),) == report.perished
        assert (RecordFault("a", 0, "c"), RecordFault("b", 0, "c")) == report.lost
        assert not report.exactly_once_in_order

    def test_what_is_somewhere_twice_is_named_once(self) -> None:
        report = judge([at("a", 0), at("b", 0), at("b", 0), at("b", 0)], ["a", "b"])

        assert ((RecordFault("a", 0, "b"),), 3) == (report.duplicated, report.copies)
        assert () == report.reordered
        assert not report.exactly_once_in_order

    def test_a_record_after_a_newer_one_of_its_origin_is_out_of_order(self) -> None:
        rows = [at("a", 0), at("a", 1), at("a", 2), at("b", 2), at("b", 0), at("b", 1), at("b", 0, "c")]
        report = judge(rows, ["a", "b"])

        assert (RecordFault("a", 0, "b"), RecordFault("a", 1, "b")) == report.reordered
        assert not report.exactly_once_in_order

    def test_a_repetition_is_not_out_of_order(self) -> None:
        assert () == judge([at("a", 0), at("a", 1), at("a", 0)], ["a"]).reordered

    def test_origins_have_no_order_between_them(self) -> None:
        rows = [at("a", 0), at("b", 0, "b"), at("a", 0, "b"), at("b", 0)]

        assert judge(rows, ["a", "b"]).exactly_once_in_order

    def test_what_is_wrong_on_a_cluster_that_is_gone_does_not_count(self) -> None:
        rows = [at("a", 0), at("a", 1), at("b", 1), at("b", 0), at("b", 0)]

        assert judge(rows, ["a"]).exactly_once_in_order


class TestReplication:
    def test_a_link_takes_one_record_after_the_other_and_copies_what_is_due(self) -> None:
        clusters = world()
        assert [0, 1] == [clusters.produce("1", now_ms=3), clusters.produce("1")]
        assert [FIRST, Hop("1", 1, "2")] == clusters.ready()
        assert clusters.work(FIRST, now_ms=5)
        assert (1, 0) == (clusters.positions()[FIRST], clusters.positions()[Hop("1", 1, "2")])
        assert {"1": 2, "2": 0, "3": 1, "4": 0} == clusters.log_ends()
        assert RecordArrival(5, "3", "1", 0, CopyFlags(0b100), FIRST) == clusters.arrivals[-1]
        assert not clusters.work(Hop("3", 3, "1"))
        assert 1 == clusters.positions()[Hop("3", 3, "1")]

    def test_a_crash_before_the_commit_takes_the_record_again(self) -> None:
        clusters = world()
        clusters.produce("1")
        assert clusters.work(FIRST, crash=True)
        assert 0 == clusters.positions()[FIRST]
        assert clusters.settle()
        assert (RecordFault("1", 0, "3"), RecordFault("1", 0, "4")) == clusters.report().duplicated

    def test_a_cluster_that_is_down_stops_its_links_and_comes_back_with_its_log(self) -> None:
        clusters = world()
        clusters.produce("1")
        clusters.down("3")
        assert [Hop("1", 1, "2")] == clusters.ready()
        assert clusters.settle()
        assert (RecordFault("1", 0, "3"), RecordFault("1", 0, "4")) == clusters.report().lost
        with pytest.raises(ArgumentError, match="be up"):
            clusters.produce("3")
        clusters.up("3")
        assert clusters.settle()
        assert clusters.report().exactly_once_in_order

    def test_a_cluster_that_is_destroyed_is_gone_with_what_only_it_had(self) -> None:
        clusters = world()
        clusters.produce("3")
        clusters.down("3")
        clusters.destroy("3")
        assert ("1", "2", "4") == clusters.clusters
        assert [] == clusters.ready()
        assert (RecordFault("3", 0, "3"),) == clusters.report().perished
        clusters.produce("1")
        clusters.settle()
        clusters.apply(TREE.propose_loss("3"))
        clusters.settle()
        assert () == clusters.report().lost
        with pytest.raises(ArgumentError, match="cluster is '3'; it must be one of '1', '2', '4'"):
            clusters.produce("3")

    def test_a_moved_link_goes_on_where_it_was_and_a_rewound_one_at_the_start(self) -> None:
        for change, position in ((TREE.propose_move(FIRST, "4"), 1), (TREE.propose_loss("3"), 0)):
            clusters = world()
            clusters.produce("1")
            clusters.work(FIRST)
            clusters.work(Hop("1", 1, "2"))
            clusters.apply(change)
            assert 1 == clusters.positions()[Hop("1", 1, "2")]
            assert position == clusters.positions()[Hop("1", 3, "4")]
            assert FIRST not in clusters.positions()
            assert set(change.after.hops()) == set(clusters.positions())
            assert change.after.clusters == clusters.clusters

    def test_an_added_cluster_is_filled_from_the_start(self) -> None:
        tree = DistributionTree([["1", "2"], ["3", "4"]])
        clusters = Replication(tree.clusters, tree.hops())
        clusters.produce("1")
        clusters.settle()
        clusters.apply(tree.propose_add("5", near="4"))
        assert ("1", "2", "3", "4", "5") == clusters.clusters
        clusters.settle()
        assert clusters.report().exactly_once_in_order

    def test_a_new_cluster_is_filled_up_to_the_cut_as_if_everything_was_produced_at_its_source(self) -> None:
        clusters = world()
        clusters.produce("1")
        clusters.settle()
        change = TREE.propose_add("5", near="3", wide=True, source="4")
        starts = change.starts(clusters.log_ends(), clusters.positions())
        clusters.produce("4")
        clusters.settle()
        clusters.apply(change, starts=starts, now_ms=3)

        assert [RecordArrival(3, "5", "1", 0, CopyFlags(0b1), Hop("4", 1, "5"))] == [
            arrival for arrival in clusters.arrivals if arrival.cluster == "5"
        ]
        clusters.settle()
        assert clusters.report().exactly_once_in_order

    def test_a_new_cluster_is_not_filled_from_one_that_is_down_or_gone(self) -> None:
        change = DistributionTree(["1", "2"]).propose_add("3", near="1")
        clusters = Replication("12", change.before.hops())
        clusters.down("1")
        with pytest.raises(ArgumentError, match="be up"):
            clusters.apply(change)
        clusters.destroy("1")
        with pytest.raises(ArgumentError, match="cluster is '1'; it must be one of '2'"):
            clusters.apply(change)
        assert ("2",) == clusters.clusters

    def test_a_new_link_does_not_follow_one_whose_cluster_is_gone(self) -> None:
        change = TREE.propose_add("5", near="3", wide=True)
        clusters = world()
        clusters.destroy("4")
        with pytest.raises(ArgumentError, match="be an offset"):
            clusters.apply(change)
        assert ("1", "2", "3") == clusters.clusters

    def test_a_destroyed_cluster_does_not_come_back_with_a_change_that_knows_nothing_of_it(self) -> None:
        clusters = world()
        clusters.destroy("4")
        clusters.apply(TREE.propose_move(FIRST, "4"))
        assert ("1", "2", "3") == clusters.clusters
        clusters.produce("1")
        assert clusters.settle()
        assert (RecordFault("1", 0, "3"),) == clusters.report().lost

    def test_a_new_cluster_is_up_even_if_it_has_the_name_of_one_that_was_not(self) -> None:
        clusters = world()
        clusters.down("3")
        clusters.destroy("3")
        loss = TREE.propose_loss("3")
        clusters.apply(loss)
        clusters.apply(loss.after.propose_add("3", near="4"))
        clusters.produce("3")
        clusters.settle()
        assert clusters.report().exactly_once_in_order

    def test_a_cluster_with_the_name_of_one_that_is_gone_is_another_one(self) -> None:
        tree = DistributionTree([["a", "b"], "c"])
        for filled in (True, False):
            clusters = Replication(tree.clusters, tree.hops())
            for _ in range(2):
                clusters.produce("a")
                clusters.settle()
                remove = tree.propose_remove("b")
                clusters.apply(remove)
                add = remove.after.propose_add("b", near="a")
                starts = add.starts(clusters.log_ends(), clusters.positions())
                clusters.apply(add if filled else replace(add, fill=None), starts=starts)
                tree = add.after
                clusters.settle()
            report = clusters.report()

            assert {"a", "b (1)", "b (2)", "c", *("b" * filled)} == {arrival.cluster for arrival in clusters.arrivals}
            assert filled == report.exactly_once_in_order
            assert (() if filled else (RecordFault("a", 0, "b"), RecordFault("a", 1, "b"))) == report.lost

    def test_a_new_cluster_takes_nobodys_log(self) -> None:
        tree = DistributionTree(["a", "b"])
        add = tree.propose_add("c", near="a")
        clusters = Replication("abc", tree.hops())
        clusters.produce("c")
        with pytest.raises(ArgumentError, match="change is 'c'; it must add a cluster whose log is empty"):
            clusters.apply(add)
        assert {"a": 0, "b": 0, "c": 1} == clusters.log_ends()

        empty = Replication("abc", tree.hops())
        empty.apply(add)
        empty.produce("c")
        empty.settle()
        assert empty.report().exactly_once_in_order

    def test_a_new_cluster_has_no_link_from_one_that_is_gone(self) -> None:
        tree = DistributionTree([["1", "2"], ["3", "4"]])
        clusters = Replication(tree.clusters, tree.hops())
        clusters.produce("1")
        clusters.settle()
        clusters.destroy("2")
        add = tree.propose_add("5", near=["1", "2"])
        clusters.apply(add, starts=dict.fromkeys(add.added, 0))
        assert "2" not in {hop.cluster for hop in clusters.positions() if hop.target == "5"}
        assert ["1"] == [hop.cluster for hop in clusters.ready()]
        assert clusters.settle()

    def test_clusters_that_link_to_each_other_can_both_be_destroyed(self) -> None:
        tree = DistributionTree([["1", "2"], ["3", "4"]])
        assert {Hop("1", 32, "3"), Hop("3", 32, "1")} < set(tree.hops())
        first = tree.propose_loss("1")
        second = tree.apply(first).propose_loss("3")
        clusters = Replication(tree.clusters, tree.hops())
        for lost in ("1", "3"):
            clusters.destroy(lost)
        for loss in (first, second):
            clusters.apply(loss)

        assert set(second.after.hops()) == set(clusters.positions())
        clusters.produce("2")
        assert clusters.settle()
        assert clusters.report().exactly_once_in_order

    def test_records_in_circles_are_stopped(self) -> None:
        class NoFlags(Hop):
            """Copies whatever comes."""

            __slots__ = ()

            def forward(self, flags: CopyFlags) -> Copy:
                return Copy(self.target, flags)

        clusters = Replication("ab", [NoFlags("a", 1, "b"), NoFlags("b", 1, "a")])
        clusters.produce("a")
        assert not clusters.settle(max_copies=50)
        assert 50 == clusters.report().copies

    def test_as_many_copies_as_it_takes_are_enough(self) -> None:
        for most, ended in ((2, False), (3, True)):
            clusters = world()
            clusters.produce("1")
            assert ended == clusters.settle(max_copies=most)
            assert most == clusters.report().copies

    @pytest.mark.parametrize(
        ("clusters", "hops", "parameter"),
        [
            (["a", "a"], [], "clusters"),
            (["a", "b"], [Hop("a", 1, "b")] * 2, "hops"),
            (["a", "b"], [Hop("a", 1, "c")], "hop"),
            (["a", "b"], [Hop("c", 1, "b")], "hop"),
        ],
    )
    def test_a_world_that_makes_no_sense_is_refused(self, clusters: Any, hops: Any, parameter: str) -> None:
        with pytest.raises(ArgumentError) as caught:
            Replication(clusters, hops)

        assert parameter == caught.value.parameter

    def test_a_mistake_changes_nothing(self) -> None:
        clusters = world()
        clusters.produce("1", now_ms=5)
        before = (clusters.log_ends(), clusters.positions(), list(clusters.arrivals))
        wide = TREE.propose_add("5", near="3", wide=True)
        moved = wide.after.propose_move(Hop("5", 3, "1"), "2")
        starts = wide.starts(clusters.log_ends(), clusters.positions())
        twice = TreeChange(TREE, TREE, added=(FIRST,))
        mistakes: list[tuple[type[Exception], Any]] = [
            (ArgumentError, lambda: clusters.produce("9")),
            (ArgumentError, lambda: clusters.produce("1", flags=-1)),
            (ArgumentError, lambda: clusters.work(Hop("3", 3, "1"))),
            (ArgumentError, lambda: clusters.work(Hop("9", 3, "1"))),
            (ArgumentError, lambda: clusters.work(tuple(FIRST))),  # type: ignore[arg-type]  # that is the point
            (ArgumentError, lambda: clusters.settle(max_copies=-1)),
            (ArgumentError, lambda: clusters.down("9")),
            (ArgumentError, lambda: clusters.up("9")),
            (ArgumentError, lambda: clusters.destroy("9")),
            (ArgumentError, lambda: clusters.apply(moved)),
            (ArgumentError, lambda: clusters.apply(twice)),
            (ArgumentError, lambda: clusters.apply(wide, starts={})),
            (ArgumentError, lambda: clusters.apply(wide, starts=[7])),  # type: ignore[arg-type]  # that is the point
            (ArgumentError, lambda: clusters.apply(wide, starts=starts | {Hop("3", 1, "5"): -1})),
            (ArgumentError, lambda: clusters.apply(wide, starts=starts | {Hop("4", 1, "5"): 1})),
            (ArgumentError, lambda: clusters.apply(wide, starts=starts | {Hop("5", 1, "4"): True})),
            (ArgumentError, lambda: clusters.apply(wide, starts=starts | {Hop("5", 1, "4"): 1})),
            (ClockError, lambda: clusters.produce("1", now_ms=4)),
            (ClockError, lambda: clusters.work(FIRST, now_ms=4)),
            (ClockError, lambda: clusters.down("1", now_ms=4)),
            (ClockError, lambda: clusters.up("1", now_ms=4)),
            (ClockError, lambda: clusters.destroy("1", now_ms=4)),
            (ClockError, lambda: clusters.apply(TREE.propose_loss("3"), now_ms=4)),
            (ClockError, lambda: clusters.settle(now_ms=4)),
            (ClockError, lambda: clusters.settle(now_ms=5.0)),  # type: ignore[arg-type]  # that is the point
        ]
        for kind, mistake in mistakes:
            with pytest.raises(kind):
                mistake()
            assert before == (clusters.log_ends(), clusters.positions(), clusters.arrivals)
        assert [FIRST, Hop("1", 1, "2")] == clusters.ready()
