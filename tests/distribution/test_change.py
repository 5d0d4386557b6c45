"""The drain before a change: what it watches, what it stops, and the proof that only it makes."""

from typing import Any

import pytest
from tests.distribution.trees import UNBALANCED

from keyshared.distribution import DistributionTree, Hop, Quiesced, Quiescence
from keyshared.errors import ArgumentError, QuiesceError

TREE = DistributionTree(UNBALANCED)
MOVE = TREE.propose_move(Hop("4", 3, "1"), "3")
LEVEL_2, LEVEL_1 = MOVE.drains[:3], MOVE.drains[3:]
ENDS = {"1": 10, "2": 10, "3": 10}


def at(offset: int) -> dict[Hop, int]:
    return dict.fromkeys(MOVE.drains, offset)


def test_levels_drain_one_after_the_other_from_the_top() -> None:
    drain = Quiescence(MOVE)

    assert (LEVEL_2, (Hop("4", 3, "1"),), ()) == (drain.watch, drain.stop, drain.silent)
    assert not drain.observe(ENDS, at(10))
    assert LEVEL_1 == drain.watch
    assert drain.observe(ENDS, at(10))
    assert () == drain.watch
    assert drain.observe({}, {})
    assert MOVE.after == TREE.apply(MOVE, drain.quiesced())


def test_what_came_after_the_turn_of_a_level_had_come_does_not_count() -> None:
    drain = Quiescence(MOVE)
    drain.observe(ENDS, at(9))

    assert LEVEL_2 == drain.watch
    drain.observe(dict.fromkeys("123", 99), at(10))
    assert LEVEL_1 == drain.watch
    assert not drain.observe(dict.fromkeys("123", 99), at(98))
    assert drain.observe(dict.fromkeys("123", 200), at(99))


@pytest.mark.parametrize("late", LEVEL_2)
def test_every_link_of_the_level_is_waited_for(late: Hop) -> None:
    drain = Quiescence(MOVE)

    assert not drain.observe(ENDS, {**at(10), late: 9})
    assert LEVEL_2 == drain.watch
    assert not drain.observe(ENDS, at(10))
    assert LEVEL_1 == drain.watch


def test_links_that_get_another_target_stop_when_their_level_is_over() -> None:
    tree = DistributionTree(UNBALANCED, [Hop("4", 3, "2"), Hop("5", 3, "2"), Hop("1", 2, "2")])
    drain = Quiescence(tree.propose_remove("2"))
    stopped = []
    while drain.watch:
        stopped.append([(hop.cluster, hop.level) for hop in drain.stop])
        drain.observe(dict.fromkeys(tree.clusters, 0), dict.fromkeys(tree.hops(), 0))

    assert [[], [("4", 3), ("5", 3)], [("1", 2), ("4", 3), ("5", 3)]] == stopped
    assert stopped[-1] == [(hop.cluster, hop.level) for hop in drain.stop]
    assert ("2",) == drain.silent


def test_before_levels_change_every_link_reads_to_the_very_end() -> None:
    drain = Quiescence(TREE.propose_renumber())
    watched = []
    while drain.watch:
        assert () == drain.stop
        watched.append({hop.level for hop in drain.watch})
        drain.observe(dict.fromkeys(TREE.clusters, 0), dict.fromkeys(TREE.hops(), 0))

    assert [{3}, {2}, {1}, {1, 2, 3}] == watched
    assert TREE.clusters == drain.silent


@pytest.mark.parametrize(
    ("ends", "positions", "parameter"),
    [
        ({}, at(10), "log_ends['1']"),
        ({"1": 10, "2": 10}, at(10), "log_ends['3']"),
        ({**ENDS, "2": -1}, at(10), "log_ends['2']"),
        ({**ENDS, "2": 1.0}, at(10), "log_ends['2']"),
        ({**ENDS, "2": True}, at(10), "log_ends['2']"),
        (ENDS, {}, f"positions[{LEVEL_2[0]!r}]"),
        (ENDS, {**at(10), LEVEL_2[1]: None}, f"positions[{LEVEL_2[1]!r}]"),
    ],
)
def test_an_observation_that_is_not_complete_is_refused_and_changes_nothing(
    ends: Any, positions: Any, parameter: str
) -> None:
    drain = Quiescence(MOVE)
    with pytest.raises(ArgumentError) as caught:
        drain.observe(ends, positions)

    assert parameter == caught.value.parameter
    drain.observe(dict.fromkeys("123", 5), at(5))
    assert LEVEL_1 == drain.watch  # the marks are those of the second call


def test_there_is_no_proof_before_the_end() -> None:
    drain = Quiescence(MOVE)
    with pytest.raises(QuiesceError, match="the drain is not over") as caught:
        drain.quiesced()
    assert tuple(map(str, MOVE.drains)) == caught.value.pending
    drain.observe(ENDS, at(10))
    with pytest.raises(QuiesceError) as caught:
        drain.quiesced()
    assert tuple(map(str, LEVEL_1)) == caught.value.pending


def test_a_change_that_needs_a_proof_is_not_applied_without_its_own() -> None:
    other = TREE.propose_move(Hop("4", 3, "1"), "2")
    with pytest.raises(QuiesceError, match="no proof of a drain was given"):
        TREE.apply(MOVE)
    for wrong in (Quiesced(other), "proof"):
        with pytest.raises(QuiesceError, match="the proof is that of another change"):
            TREE.apply(MOVE, wrong)  # type: ignore[arg-type]  # that is the point


def test_a_change_that_needs_no_drain_has_none() -> None:
    for change in (DistributionTree(["a", "b"]).propose_add("c", near="a"), TREE.propose_loss("1")):
        with pytest.raises(ArgumentError, match="apply the change without a proof"):
            Quiescence(change)


class TestStarts:
    ADD = TREE.propose_add("n", near=TREE.clusters, source="2")
    LEADERS = tuple(each.leader for each in ADD.follows)

    def test_a_new_link_starts_where_its_leader_stands_and_the_one_that_fills_at_the_end_of_its_log(self) -> None:
        positions = {hop: 10 + number for number, hop in enumerate(self.LEADERS)}
        starts = self.ADD.starts({"2": 99}, positions)

        assert [positions[each.leader] for each in self.ADD.follows] == [
            starts[each.added] for each in self.ADD.follows
        ]
        assert [99] == [offset for hop, offset in starts.items() if hop == self.ADD.fill]
        assert {0} == {offset for hop, offset in starts.items() if hop.cluster == "n"}
        assert set(self.ADD.added) == set(starts)

    def test_beside_one_cluster_only_the_end_of_its_log_counts(self) -> None:
        change = DistributionTree("1").propose_add("n", near="1")

        assert {Hop("1", 16, "n"): 7, Hop("n", 16, "1"): 0} == change.starts({"1": 7}, {})

    def test_a_change_that_adds_nothing_starts_nothing(self) -> None:
        assert {} == MOVE.starts({}, {})

    @pytest.mark.parametrize("wrong", [None, -1, 1.0, True])
    def test_what_is_no_offset_is_refused(self, wrong: Any) -> None:
        with pytest.raises(ArgumentError, match="be an offset"):
            self.ADD.starts({"2": wrong}, dict.fromkeys(self.LEADERS, 1))
        with pytest.raises(ArgumentError, match="be an offset"):
            self.ADD.starts({"2": 1}, {**dict.fromkeys(self.LEADERS, 1), self.LEADERS[0]: wrong})

    @pytest.mark.parametrize(("ends", "positions"), [(None, {}), ({"2": 1}, [1]), ("2", {})])
    def test_what_is_no_mapping_is_refused(self, ends: Any, positions: Any) -> None:
        with pytest.raises(ArgumentError, match="be a mapping"):
            self.ADD.starts(ends, positions)

    def test_leaders_stop_level_by_level_and_stand_until_the_cut_is_known(self) -> None:
        drain = Quiescence(self.ADD)
        stopped = []
        while drain.watch:
            stopped.append({hop.level for hop in drain.stop})
            assert not drain.silent
            drain.observe(dict.fromkeys(TREE.clusters, 0), dict.fromkeys(TREE.hops(), 0))

        assert [set(), {3}, {3, 2}] == stopped
        assert self.LEADERS == drain.stop
