"""Who is there when, and what an even split gives them."""

import pytest

from keyshared.simulate import Crash, Group, Join, Leave, Return, SetLimit, SetWeight, SimulatedConsumer, Unblock
from keyshared.spark.replays.presence import Moment, Phase, everybody, ideal_moves, phases, shares

A, B, C = SimulatedConsumer("a"), SimulatedConsumer("b"), SimulatedConsumer("c", weight=2)


def test_everybody_is_named_once_in_the_order_of_joining() -> None:
    plan = Group(consumers=[B, A], changes=[Leave(1, "b"), Join(2, C), Join(3, B)])
    assert ("b", "a", "c") == everybody(plan)


def test_a_phase_begins_where_somebody_comes_goes_or_weighs_more() -> None:
    plan = Group(
        consumers=[A, B],
        changes=[
            Crash(10, "a"),
            Unblock(15, b"k"),
            Join(20, C),
            SetWeight(30, "a", 3),
            Return(40, "a"),
            Leave(50, "b"),
        ],
    )
    assert (
        Phase(0, {"a": 1, "b": 1}),
        Phase(10, {"b": 1}),
        Phase(20, {"b": 1, "c": 2}),
        Phase(40, {"b": 1, "c": 2, "a": 3}),  # the weight that it got while it was away
        Phase(50, {"c": 2, "a": 3}),
    ) == phases(plan)


def test_changes_that_move_nobody_and_changes_of_one_instant_make_no_phase_of_their_own() -> None:
    plan = Group(consumers=[A], changes=[SetLimit(5, "a", 7), Join(9, B), Leave(9, "b"), Join(9, C)])
    assert (Phase(0, {"a": 1}), Phase(9, {"a": 1, "c": 2})) == phases(plan)


def test_a_plan_of_nobody_has_a_phase_of_nobody() -> None:
    assert (Phase(0, {}),) == phases(Group())
    assert {} == shares({})


def test_shares_go_by_weight_and_are_even_among_those_who_weigh_nothing() -> None:
    assert {"a": 0.25, "b": 0.75} == shares({"a": 1, "b": 3})
    assert {"a": 0.5, "b": 0.5} == shares({"a": 0, "b": 0})


def test_one_of_n_has_to_move_when_one_of_n_comes_or_goes() -> None:
    plan = Group(consumers=[A, B], changes=[Crash(10, "a"), Join(20, SimulatedConsumer("d")), SetWeight(30, "d", 3)])
    moments = [
        Moment(13, "evicted", "a"),
        Moment(20, "joined", "d"),
        Moment(30, "changed", "d"),
        Moment(40, "left", "b"),
    ]
    assert pytest.approx([1 / 2, 1 / 2, 1 / 4, 1 / 4]) == list(ideal_moves(plan, moments))


def test_everything_moves_from_the_last_and_to_the_first() -> None:
    plan = Group(consumers=[A], changes=[Leave(10, "a"), Join(20, B)])
    assert [1, 1] == list(ideal_moves(plan, [Moment(10, "left", "a"), Moment(20, "joined", "b")]))


def test_a_weight_that_changes_during_an_absence_moves_nothing_until_the_return() -> None:
    plan = Group(consumers=[A, B], changes=[Crash(10, "a"), SetWeight(20, "a", 3), Return(30, "a")])
    moments = [Moment(12, "evicted", "a"), Moment(20, "changed", "a"), Moment(30, "joined", "a")]
    assert [1 / 2, 0, 3 / 4] == list(ideal_moves(plan, moments))
