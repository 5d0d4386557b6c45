"""The demo's group: loaded as it says, one lost, one gained, whatever the log is."""

import pytest

from keyshared.errors import ArgumentError
from keyshared.simulate import Arrival, Event, Simulation, Stop, summarize
from keyshared.spark.demo.plan import CONCURRENCY, LOAD, Story, Workload
from keyshared.spark.replays.presence import everybody

MESSAGES = 4_000


def even_log(story: Story, *, messages: int = MESSAGES) -> list[Arrival]:
    service_ms = max(1, round(story.ms_for_work))
    span = story.workload.span_ms
    return [Arrival(i, f"k{i % 997}", i * span // messages, service_ms) for i in range(messages)]


def even_story(*, consumers: int = 8, span_ms: int = 1_000_000) -> Story:
    workload = Workload(first_ms=0, span_ms=span_ms, busiest=float(MESSAGES), mean=1.0, largest=1.0)
    return Story(consumers=consumers, workload=workload)


def test_the_group_is_as_busy_as_it_says() -> None:
    story = even_story()
    summary, outcome = summarize(story.plan(), even_log(story))
    busy_ms = sum(consumer.busy_ms for consumer in summary.consumers.values())
    slots_ms = story.consumers * CONCURRENCY * story.workload.span_ms
    assert pytest.approx(LOAD, rel=0.03) == busy_ms / slots_ms
    assert Stop.AT_REST is outcome.stop
    assert summary.redeliveries > 0
    assert 0 == summary.dead_lettered


def test_one_crashes_is_evicted_and_what_it_had_goes_out_again_and_one_joins() -> None:
    story = even_story(consumers=3)
    rows = list(Simulation(story.plan(), even_log(story)))
    told = [(row.event, row.consumer) for row in rows if row.event in {Event.INACTIVE, Event.EVICTED, Event.JOINED}]
    assert [(Event.JOINED, name) for name in ("c1", "c2", "c3")] == told[:3]
    assert [(Event.INACTIVE, "c1"), (Event.EVICTED, "c1"), (Event.JOINED, "c4")] == told[3:]
    crashed, joined = (
        next(row.at_ms for row in rows if row.event is Event.INACTIVE),
        next(row.at_ms for row in rows if row.consumer == "c4"),
    )
    assert (333_333, 666_666) == (crashed, joined) == (story.crash_ms, story.join_ms)
    lost = {row.offset for row in rows if row.event is Event.RELEASED and row.reason == "evicted"}
    assert lost
    assert lost <= {row.offset for row in rows if row.event is Event.DELIVERED and (row.attempt or 0) > 1}


def test_the_plan_has_the_consumers_of_the_story() -> None:
    story = even_story(consumers=3)
    assert ("c1", "c2", "c3", "c4") == story.names == everybody(story.plan())


@pytest.mark.parametrize("span_ms", [0, 1, 50])
def test_a_log_of_hardly_any_time_is_replayed_to_its_end(span_ms: int) -> None:
    story = even_story(span_ms=span_ms)
    summary, outcome = summarize(story.plan(), even_log(story, messages=100))
    assert outcome.at_rest
    assert 100 == summary.acked + summary.late_acked


def test_a_log_without_work_has_a_plan() -> None:
    workload = Workload(first_ms=0, span_ms=10, busiest=0.0, mean=0.0, largest=0.0)
    story = Story(consumers=2, workload=workload)
    _, outcome = summarize(story.plan(), [Arrival(0, "k", 0, 1), Arrival(1, None, 10, 1)])
    assert outcome.at_rest


@pytest.mark.parametrize("consumers", [1, 0, -3, 2.0, True])
def test_a_group_that_cannot_lose_one_is_refused(consumers: int) -> None:
    with pytest.raises(ArgumentError, match="it must be an int of at least 2, because one of them crashes"):
        even_story(consumers=consumers)
