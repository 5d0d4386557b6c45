"""When consumers are there, as a plan and the deliveries tell it. No Spark."""

import pytest

from keyshared.config import DispatcherConfig
from keyshared.simulate import Crash, Group, Join, Leave, Return, SetLimit, SetWeight, SimulatedConsumer
from keyshared.simulate.group import Change
from keyshared.spark.replays.stays import Room, State, Stay, Visit, joins, rooms, stays

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
            (Leave(120, "a", drain_ms=None), Join(140, SimulatedConsumer("a"))),
            [(100, 120, UP), (120, 140, DRAINING), (140, 200, UP)],
        ),
        (
            (Leave(120, "a", drain_ms=None), Join(180, SimulatedConsumer("a"))),
            [(100, 120, UP), (120, 160, DRAINING), (160, 180, AWAY), (180, 200, UP)],
        ),
        (
            (Leave(110, "a"), Join(120, SimulatedConsumer("a")), Leave(180, "a", drain_ms=None)),
            [(100, 110, UP), (110, 120, AWAY), (120, 180, UP), (180, 190, DRAINING), (190, 200, AWAY)],
        ),
        ((Leave(170, "a", drain_ms=None),), [(100, 170, UP), (170, 200, AWAY)]),  # nothing was left to drain
        ((Leave(300, "a"), SetWeight(120, "a", 2)), [(100, 200, UP)]),
    ],
)
def test_a_consumer_is_up_draining_or_away(changes: tuple[Change, ...], expected: list[tuple[int, int, State]]) -> None:
    plan = Group(consumers=[SimulatedConsumer("a")], changes=changes)
    assert [Stay("a", *each) for each in expected] == list(
        stays(plan, 100, 200, {Visit("a", 0): 160, Visit("a", 1): 190})
    )


def test_who_joins_later_is_not_there_before() -> None:
    plan = Group(changes=[Join(150, SimulatedConsumer("b"))])
    assert (Stay("b", 150, 200, UP),) == stays(plan, 100, 200, {})
    assert {"b": [150]} == joins(plan)


def rooms_of(plan: Group) -> list[tuple[object, ...]]:
    return [tuple(room) for room in rooms(plan, stays(plan, 100, 200, {}))]


def test_who_is_away_has_no_room() -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a")], changes=[Crash(120, "a"), Return(150, "a"), SetWeight(170, "a", 2)]
    )
    assert [("a", 100, 120, 1), ("a", 150, 200, 1)] == rooms_of(plan)


def test_room_is_the_concurrency_or_the_limit_whichever_is_less_at_the_time() -> None:
    back = Join(160, SimulatedConsumer("a", concurrency=3, limit=2))
    plan = Group(
        consumers=[SimulatedConsumer("a", limit=5), SimulatedConsumer("b", concurrency=4, limit=1)],
        changes=[SetLimit(50, "b", 2), Leave(110, "a"), SetLimit(130, "b", 9), back],
        config=DispatcherConfig(max_in_flight_per_consumer=3, batch_per_key=6),
    )
    assert [("a", 100, 110, 1), ("a", 160, 200, 2), ("b", 100, 130, 2), ("b", 130, 200, 4)] == rooms_of(plan)
    batches = Group(consumers=[SimulatedConsumer("a", takes_batches=True)], config=plan.config)
    assert [Room("a", 100, 200, 1)] == list(rooms(batches, stays(batches, 100, 200, {})))
