"""When consumers are there, as a plan and the deliveries tell it. No Spark."""

import pytest

from keyshared.simulate import ConsumerPlan, Crash, Join, Leave, Plan, Return, SetWeight
from keyshared.simulate.plan import Change
from keyshared.spark.replays.stays import State, Stay, concurrencies, here_ms, stays

UP, DRAINING, AWAY = State.UP, State.DRAINING, State.AWAY


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((), [(100, 200, UP)]),
        ((Crash(120, "a"),), [(100, 120, UP), (120, 200, AWAY)]),
        ((Crash(120, "a"), Return(150, "a")), [(100, 120, UP), (120, 150, AWAY), (150, 200, UP)]),
        ((Leave(120, "a"),), [(100, 120, UP), (120, 200, AWAY)]),
        ((Leave(120, "a", drain_ms=None),), [(100, 120, UP), (120, 160, DRAINING), (160, 200, AWAY)]),
        ((Leave(120, "a", drain_ms=10),), [(100, 120, UP), (120, 130, DRAINING), (130, 200, AWAY)]),
        (
            (Leave(120, "a", drain_ms=None), Join(140, ConsumerPlan("a"))),
            [(100, 120, UP), (120, 140, DRAINING), (140, 200, UP)],
        ),
        ((Leave(170, "a", drain_ms=None),), [(100, 170, UP), (170, 200, AWAY)]),  # nothing was left to drain
        ((Leave(300, "a"), SetWeight(120, "a", 2)), [(100, 200, UP)]),
    ],
)
def test_a_consumer_is_up_draining_or_away(changes: tuple[Change, ...], expected: list[tuple[int, int, State]]) -> None:
    plan = Plan(consumers=[ConsumerPlan("a")], changes=changes)
    assert [Stay("a", *each) for each in expected] == list(stays(plan, 100, 200, {"a": 160}))


def test_who_joins_later_is_not_there_before() -> None:
    plan = Plan(changes=[Join(150, ConsumerPlan("b"))])
    stayed = stays(plan, 100, 200, {})
    assert (Stay("b", 150, 200, UP),) == stayed
    assert [0, 10, 50] == [here_ms(stayed, "b", *each) for each in ((100, 150), (140, 160), (100, 300))]
    assert 0 == here_ms(stayed, "a", 100, 200)


def test_who_is_away_is_not_counted_as_there() -> None:
    plan = Plan(consumers=[ConsumerPlan("a")], changes=[Crash(120, "a"), Return(150, "a")])
    assert 70 == here_ms(stays(plan, 100, 200, {}), "a", 100, 200)


def test_a_consumer_that_comes_back_with_more_hands_is_measured_by_the_most_it_had() -> None:
    back = Join(20, ConsumerPlan("a", concurrency=3))
    plan = Plan(consumers=[ConsumerPlan("a"), ConsumerPlan("b", concurrency=2)], changes=[Leave(10, "a"), back])
    assert {"a": 3, "b": 2} == concurrencies(plan)
