"""The figures, and how exact they are."""

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulate.folding import folded

from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.simulate import (
    Arrival,
    Crash,
    Event,
    FailFirst,
    Fixed,
    Group,
    Join,
    Leave,
    MovedKeys,
    Row,
    SetWeight,
    SimulatedConsumer,
    Simulation,
    Tally,
    Waits,
    summarize,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def delivered(waits: list[int], name: str) -> list[Row]:
    joined = Row(0, 0, Event.JOINED, consumer=name)
    return [joined, *(Row(0, wait, Event.DELIVERED, 1, b"k", name, 1, 0, 0) for wait in waits)]


@given(st.lists(st.integers(0, 10**6)), st.lists(st.integers(0, 9)))
def test_percentiles_are_those_of_the_nearest_rank_of_each_consumer_and_of_all(
    left: list[int], right: list[int]
) -> None:
    tally = Tally()
    tally.add_all(delivered(left, "a") + delivered(right, "b"))
    summary = tally.summary()
    for waits, found in (
        (left, summary.consumers["a"].wait),
        (right, summary.consumers["b"].wait),
        (left + right, summary.wait),
    ):
        ranks = [-(-len(waits) * percent // 100) for percent in (50, 99, 100)]
        assert Waits(*(sorted(waits)[rank - 1] if waits else 0 for rank in ranks)) == found


def test_a_tally_of_nothing_is_all_zero() -> None:
    summary = Tally().summary()
    assert (0, 0, None, 0, None, ()) == (
        summary.messages,
        summary.duration_ms,
        summary.start_ms,
        summary.largest_backlog,
        summary.largest_backlog_ms,
        summary.backlog,
    )


@pytest.mark.parametrize(
    ("points", "hottest", "parameter"), [(0, 1, "points"), (1, -1, "hottest"), (True, 1, "points")]
)
def test_sizes_that_can_never_work_are_refused(points: int, hottest: int, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Tally(points=points, hottest=hottest)
    assert parameter == caught.value.parameter


def test_keys_and_keyless_messages_are_counted_apart() -> None:
    keys = ["a", "b", None, "b", None, None]
    summary, _ = summarize(
        Group(consumers=[SimulatedConsumer("c", Fixed(1))]), [Arrival(i, k) for i, k in enumerate(keys)]
    )
    assert (6, 2, 3) == (summary.messages, summary.keys, summary.keyless)
    assert ((b"b", 2), (b"a", 1)) == summary.hottest_keys


def test_as_many_hot_keys_as_asked_for_are_named() -> None:
    arrivals = [Arrival(i, key) for i, key in enumerate([None, None, None, "a", "b", "b"])]
    summary, _ = summarize(Group(consumers=[SimulatedConsumer("c", Fixed(1))]), arrivals, hottest=1)
    assert () == Tally(hottest=0).summary().hottest_keys
    assert ((b"b", 2),) == summary.hottest_keys


def test_the_figures_of_a_consumer_agree_with_its_deliveries() -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(10)), SimulatedConsumer("b", Fixed(30))],
        changes=[Crash(105, "b")],
        answers=[FailFirst(1)],
    )
    arrivals = [Arrival(i, f"k{i % 9}", at_ms=i * 10) for i in range(50)]
    rows = list(Simulation(plan, arrivals))
    tally = Tally()
    tally.add_all(rows)
    summary = tally.summary()
    for name in ("a", "b"):
        mine = [each for each in folded(rows) if each.consumer == name]
        outcomes = [each.outcome for each in mine]
        figures = summary.consumers[name]
        assert len(mine) == figures.deliveries
        assert outcomes.count("acked") == figures.acked
        assert outcomes.count("nacked") == figures.failed
        assert outcomes.count("evicted") + outcomes.count("timed_out") == figures.lost
        assert max(each.wait_ms or 0 for each in mine) == figures.wait.max_ms
        assert (figures.acked + figures.failed) * (10 if name == "a" else 30) == figures.busy_ms
    assert summary.consumers["b"].lost > 0
    assert sum(row.event is Event.DELIVERED and row.attempt != 1 for row in rows) == summary.redeliveries
    assert 50 == summary.acked


def test_what_is_no_row_is_refused_among_others() -> None:
    tally = Tally()
    with pytest.raises(ArgumentError, match="be a Row"):
        tally.add_all([Row(1, 0, Event.CURSOR)[:5]])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="be a Row"):
        tally.add(("a", "b"))  # type: ignore[arg-type]  # on purpose
    assert Tally().summary() == tally.summary()


def test_what_is_dead_lettered_leaves_the_backlog_too() -> None:
    config = DispatcherConfig(retry=RetryPolicy(max_redeliveries=0))
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(10))], answers=[FailFirst(1)], config=config)
    summary, _ = summarize(plan, [Arrival(i, "k", at_ms=0) for i in range(3)], points=100)
    assert (3, 0) == (summary.messages, summary.acked)
    assert [3, 3, 2, 1] == [point.outstanding for point in summary.backlog]  # a point has the peak of its time


def test_the_backlog_keeps_its_peaks_however_few_points_it_has() -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(10))])
    arrivals = [Arrival(i, "k", at_ms=1000 if i < 20 else 5000 + i) for i in range(30)]
    for points in (1, 2, 7, 1000):
        summary, _ = summarize(plan, arrivals, points=points)
        assert (20, 1000) == (summary.largest_backlog, summary.largest_backlog_ms)
        assert 20 == max(point.outstanding for point in summary.backlog)
        assert 1 <= len(summary.backlog) <= points
        times = [point.at_ms for point in summary.backlog]
        assert sorted(set(times)) == times


def test_the_backlog_begins_with_the_first_message_whatever_the_clock_says() -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(70), limit=1)])

    def points_of(first_ms: int) -> list[tuple[int, int]]:
        arrivals = [Arrival(i, f"k{i % 5}", at_ms=first_ms + i * 50) for i in range(300)]
        summary, _ = summarize(plan, arrivals, points=9)
        return [(point.at_ms - first_ms, point.outstanding) for point in summary.backlog]

    found = points_of(0)
    assert 0 == found[0][0]
    assert found == points_of(1_735_689_600_123)
    assert len(found) >= 5


def test_moved_keys_are_counted_exactly_at_each_change_of_membership() -> None:
    keys = [f"k{i}" for i in range(200)]
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(0)), SimulatedConsumer("b", Fixed(0))],
        changes=[Join(500, SimulatedConsumer("c", Fixed(0))), SetWeight(600, "c", 2), Leave(700, "b"), Crash(800, "a")],
    )
    keyless = Arrival(len(keys), None, at_ms=len(keys))
    summary, outcome = summarize(plan, [*(Arrival(i, key, at_ms=i) for i, key in enumerate(keys)), keyless])
    ring = plan.placement.copy()
    for name in "ab":
        ring.add(name)
    steps: list[tuple[int, Event, str, Callable[[], object]]] = [
        (500, Event.JOINED, "c", lambda: ring.add("c")),
        (600, Event.CHANGED, "c", lambda: ring.set_weight("c", 2)),
        (700, Event.LEFT, "b", lambda: ring.remove("b")),
        (3800, Event.EVICTED, "a", lambda: ring.remove("a")),
    ]
    expected = []
    for at_ms, event, name, change in steps:
        before = [ring.ranges.owner_of(key) for key in keys]
        change()
        moved = sum(old != new for old, new in zip(before, map(ring.ranges.owner_of, keys), strict=True))
        expected.append(MovedKeys(at_ms, event, name, moved, len(keys)))
    first = [MovedKeys(0, Event.JOINED, name, 0, 0) for name in "ab"]
    assert (*first, *expected) == summary.moved_keys
    assert all(each.moved > 0 for each in expected)
    assert outcome.at_rest


def test_nobody_counts_moved_keys_if_the_plan_does_not_want_it() -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(0))], count_moved_keys=False)
    summary, _ = summarize(plan, [Arrival(0, "k")])
    assert () == summary.moved_keys
    assert 1 == summary.acked
