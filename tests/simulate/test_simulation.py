"""A whole subscription on a virtual clock."""

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import pytest
from tests.histories import HistoryJudge
from tests.simulate.folding import folded

from keyshared.config import Backoff, DispatcherConfig, OnEvict, Poison, RetryPolicy, Unmatched
from keyshared.effects import BlockReason
from keyshared.errors import ArgumentError, KeyTypeError, OffsetOrderError, UnmatchedKeyError
from keyshared.simulate import (
    Answer,
    Arrival,
    Crash,
    Event,
    FailFirst,
    Fixed,
    Group,
    Join,
    Leave,
    Pace,
    PerMessage,
    Poisoned,
    Return,
    Row,
    Sampled,
    SampledAnswers,
    Scaled,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
    Simulation,
    Stop,
    Unblock,
    summarize,
)

NO_RETRY = RetryPolicy(max_redeliveries=0)
AT_ONCE = RetryPolicy(max_redeliveries=5, base_delay_ms=0)


def run(plan: Group, arrivals: Iterable[Arrival]) -> tuple[list[Row], Simulation]:
    simulation = Simulation(plan, arrivals)
    rows = list(simulation)
    HistoryJudge().see_all(rows)
    return rows, simulation


def one(service_ms: int = 10, **fields: Any) -> Group:
    return Group(consumers=[SimulatedConsumer("a", Fixed(service_ms))], **fields)


def told(rows: Iterable[Row], *events: Event) -> list[tuple[Any, ...]]:
    return [(row.at_ms, row.event, row.offset) for row in rows if not events or row.event in events]


def same_key(number: int, gap_ms: int = 0) -> list[Arrival]:
    return [Arrival(offset, "k", at_ms=offset * gap_ms) for offset in range(number)]


def many_keys(number: int, keys: int = 10, gap_ms: int = 1) -> Iterator[Arrival]:
    return (Arrival(offset, f"k{offset % keys}", at_ms=offset * gap_ms) for offset in range(number))


# the exact history


def test_a_tiny_subscription_has_exactly_this_history() -> None:
    plan = one(
        config=DispatcherConfig(retry=RetryPolicy(max_redeliveries=0, base_delay_ms=50)),
        answers=[Poisoned(offsets=[1])],
        archive_ms=5,
    )
    rows, simulation = run(plan, [Arrival(0, "k", 100), Arrival(1, "k", 104), Arrival(2, "k", 104)])
    expected = [
        Row(0, 100, Event.JOINED, consumer="a", moved_keys=0),
        Row(1, 100, Event.OFFERED, 0, b"k", available_ms=100),
        Row(2, 100, Event.DELIVERED, 0, b"k", "a", 1, 0, 100),
        Row(3, 104, Event.OFFERED, 1, b"k", available_ms=104),
        Row(4, 104, Event.OFFERED, 2, b"k", available_ms=104),
        Row(5, 110, Event.ACKED, 0, b"k", "a", 1, 0, service_ms=10),
        Row(6, 110, Event.DELIVERED, 1, b"k", "a", 1, 0, 104),
        Row(7, 110, Event.CURSOR, 0),
        Row(8, 120, Event.NACKED, 1, b"k", "a", 1, 1, service_ms=10),
        Row(9, 120, Event.DEAD_LETTERING, 1, b"k", attempt=1, failures=1),
        Row(10, 125, Event.DEAD_LETTERED, 1, b"k", attempt=1, failures=1),
        Row(11, 125, Event.DELIVERED, 2, b"k", "a", 1, 0, 104),
        Row(12, 125, Event.CURSOR, 1),
        Row(13, 135, Event.ACKED, 2, b"k", "a", 1, 0, service_ms=10),
        Row(14, 135, Event.CURSOR, 2),
    ]
    assert expected == rows
    assert (Stop.AT_REST, 135, 2) == (
        simulation.state.stop,
        simulation.state.at_ms,
        simulation.state.safe_cursor,
    )


def test_a_retry_waits_as_long_as_the_policy_says() -> None:
    policy = RetryPolicy(max_redeliveries=2, base_delay_ms=50, backoff=Backoff.FIXED)
    rows, _ = run(one(config=DispatcherConfig(retry=policy), answers=[FailFirst(1)]), same_key(1))
    expected = [(0, 0, 10, "nacked"), (60, 60, 70, "acked")]
    assert expected == [(each.available_ms, each.delivered_ms, each.ended_ms, each.outcome) for each in folded(rows)]


def test_deliveries_that_never_end_are_told_last() -> None:
    plan = one(config=DispatcherConfig(ack_timeout_ms=None), answers=[Poisoned(offsets=[0], reply=Answer.SILENT)])
    rows, simulation = run(plan, [Arrival(0, "x"), Arrival(1, "y")])
    assert [(1, "acked", 0), (0, "open", 0)] == [(each.offset, each.outcome, each.wait_ms) for each in folded(rows)]
    assert (1, 1, {}) == (
        simulation.state.outstanding,
        simulation.state.open_deliveries,
        simulation.state.why_blocked,
    )
    assert Stop.STUCK is simulation.state.stop


# ties


def test_an_answer_at_the_very_deadline_is_in_time() -> None:
    rows, _ = run(one(10, config=DispatcherConfig(ack_timeout_ms=10)), same_key(1))
    assert [(10, Event.ACKED, 0)] == told(rows, Event.ACKED, Event.TIMED_OUT)


def test_work_that_ends_comes_before_changes_and_changes_before_arrivals() -> None:
    plan = one(10, changes=[Leave(10, "a"), Join(10, SimulatedConsumer("b", Fixed(1)))])
    rows, _ = run(plan, same_key(2, gap_ms=10))
    expected = [Event.ACKED, Event.CURSOR, Event.LEFT, Event.JOINED, Event.OFFERED, Event.DELIVERED]
    assert expected == [row.event for row in rows if row.at_ms == 10]


# arrivals


def test_arrivals_are_read_one_ahead_and_no_further() -> None:
    pulled = count()
    last = -1

    def source() -> Iterator[Arrival]:
        nonlocal last
        for offset in range(100_000):
            last = next(pulled)
            yield Arrival(offset, f"k{offset % 7}", at_ms=offset)

    offered = 0
    for row in Simulation(one(1), source()):
        offered += row.event is Event.OFFERED
        assert last <= offered  # the one that is offered next has been read
        if offered == 500:
            break
    assert 500 == last


def test_a_message_whose_time_goes_back_arrives_with_the_one_before_it() -> None:
    rows, _ = run(one(1), [Arrival(0, "a", 50), Arrival(1, "b", 20), Arrival(2, "c", 60)])
    assert [50, 50, 60] == [row.at_ms for row in rows if row.event is Event.OFFERED]


def test_it_begins_with_the_first_change_if_that_is_earlier_than_the_first_message() -> None:
    rows, _ = run(one(changes=[Leave(30, "a")]), [])
    assert [(30, Event.JOINED, None), (30, Event.LEFT, None)] == told(rows)


def test_it_begins_when_the_plan_says() -> None:
    rows, _ = run(one(start_ms=70), [Arrival(0, "a", 50), Arrival(1, "b", 90)])
    assert [(70, None), (70, 70), (90, 90)] == [
        (row.at_ms, row.available_ms) for row in rows if row.event in {Event.JOINED, Event.OFFERED}
    ]


def test_nothing_at_all_is_at_rest() -> None:
    rows, simulation = run(Group(), [])
    assert ([], True, 0) == (rows, simulation.state.at_rest, simulation.state.at_ms)


def test_a_backlog_is_read_as_fast_as_the_window_allows() -> None:
    plan = one(10, pace=Pace.BACKLOG, config=DispatcherConfig(window=4, max_tracked=4))
    rows, simulation = run(plan, many_keys(20, gap_ms=1_000_000))
    assert simulation.state.at_rest
    assert 200 == simulation.state.at_ms
    assert [0, 0, 0, 0, 10] == [row.available_ms for row in rows if row.event is Event.OFFERED][:5]


def test_a_message_waits_outside_while_there_is_no_room() -> None:
    plan = one(10, config=DispatcherConfig(window=2, max_tracked=2))
    rows, _ = run(plan, [Arrival(offset, f"k{offset}", at_ms=0) for offset in range(3)])
    expected = [(0, Event.OFFERED, 0), (0, Event.OFFERED, 1), (0, Event.PAUSED, None), (10, Event.RESUMED, None)]
    assert [*expected, (10, Event.OFFERED, 2)] == told(rows, Event.OFFERED, Event.PAUSED, Event.RESUMED)[:5]
    assert [0, 0, 10] == [each.wait_ms for each in folded(rows)]  # from its arrival, not from its offer


@pytest.mark.parametrize(
    ("arrival", "parameter"),
    [
        (Arrival(0, "k", -1), "at_ms"),
        (Arrival(0, "k", 1.5), "at_ms"),  # type: ignore[arg-type]
        (Arrival(0, "k", 0, -1), "service_ms"),
        (Arrival(0, "k", 0, True), "service_ms"),
    ],
    ids=count(),
)
def test_arrivals_with_impossible_times_are_refused(arrival: Arrival, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        list(Simulation(one(), [arrival]))
    assert parameter == caught.value.parameter


def test_what_the_dispatcher_refuses_is_refused() -> None:
    with pytest.raises(OffsetOrderError):
        list(Simulation(one(), [Arrival(1, "k"), Arrival(1, "k")]))
    with pytest.raises(KeyTypeError):
        list(Simulation(one(), [Arrival(1, 7)]))  # type: ignore[arg-type]
    picky = Group(
        consumers=[SimulatedConsumer("a", Fixed(1), filters=["x*"])], config=DispatcherConfig(unmatched=Unmatched.ERROR)
    )
    with pytest.raises(UnmatchedKeyError):
        list(Simulation(picky, [Arrival(1, "k")]))


def test_only_a_plan_can_be_simulated() -> None:
    with pytest.raises(ArgumentError, match="group"):
        Simulation({}, [])  # type: ignore[arg-type]


# service


def test_a_message_brings_its_own_service_time() -> None:
    plan = Group(consumers=[SimulatedConsumer("a")])
    rows, _ = run(plan, [Arrival(0, "x", 0, 5), Arrival(1, "y", 0, 7)])
    assert [(5, 5), (12, 7)] == [(row.at_ms, row.service_ms) for row in rows if row.event is Event.ACKED]


def test_a_consumer_works_on_as_many_messages_at_once_as_it_can() -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(10), concurrency=3)])
    rows, _ = run(plan, [Arrival(offset, f"k{offset}") for offset in range(7)])
    assert [10, 10, 10, 20, 20, 20, 30] == [row.at_ms for row in rows if row.event is Event.ACKED]


def test_the_limit_holds_back_what_the_local_queue_would_take() -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(10), limit=2)])
    rows, _ = run(plan, [Arrival(offset, f"k{offset}") for offset in range(4)])
    assert [0, 0, 10, 20] == [row.at_ms for row in rows if row.event is Event.DELIVERED]


@pytest.mark.no_cover
def test_a_slow_consumer_does_not_hold_up_the_others() -> None:
    fast = [SimulatedConsumer("a", Fixed(2)), SimulatedConsumer("b", Fixed(2))]
    slow = SimulatedConsumer("c", Scaled(Fixed(2), 50))
    config = DispatcherConfig(ack_timeout_ms=None)
    same, _ = summarize(Group(consumers=[*fast, SimulatedConsumer("c", Fixed(2))], config=config), many_keys(3000, 100))
    summary, state = summarize(Group(consumers=[*fast, slow], config=config), many_keys(3000, 100))
    assert state.at_rest
    assert summary.consumers["c"].wait.p50_ms > 1000
    for name in ("a", "b"):
        assert same.consumers[name] == summary.consumers[name]


def test_a_consumer_can_become_slower() -> None:
    rows, _ = run(one(10, changes=[SetService(15, "a", Fixed(100))]), same_key(3))
    assert [10, 20, 120] == [row.at_ms for row in rows if row.event is Event.ACKED]
    assert ["service Fixed(ms=100)"] == [row.reason for row in rows if row.event is Event.CHANGED]


# consumers come and go


def test_a_leaver_hands_back_what_it_had() -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(10))],
        changes=[Join(5, SimulatedConsumer("b", Fixed(10))), Leave(5, "a")],
    )
    rows, _ = run(plan, same_key(1))
    expected = [("a", 0, 5, "removed"), ("b", 5, 15, "acked")]
    assert expected == [(e.consumer, e.available_ms, e.ended_ms, e.outcome) for e in folded(rows)]


def test_a_draining_leaver_finishes_what_it_has() -> None:
    plan = one(10, changes=[Join(5, SimulatedConsumer("b", Fixed(10))), Leave(5, "a", None)])
    rows, _ = run(plan, same_key(2))
    assert [("a", 10, "acked"), ("b", 20, "acked")] == [(e.consumer, e.ended_ms, e.outcome) for e in folded(rows)]
    assert ["draining"] == [row.reason for row in rows if row.event is Event.LEFT]


def test_a_drain_that_takes_too_long_is_cut_off_and_the_late_answer_is_only_noted() -> None:
    plan = one(10, changes=[Join(5, SimulatedConsumer("b", Fixed(10))), Leave(5, "a", 3)])
    rows, _ = run(plan, same_key(1))
    assert [("a", 8, "drain_timeout"), ("b", 18, "acked")] == [
        (each.consumer, each.ended_ms, each.outcome) for each in folded(rows)
    ]
    assert [(10, "late_ack_noted")] == [(row.at_ms, row.reason) for row in rows if row.event is Event.IGNORED]


def test_a_name_that_joins_again_while_it_drains_starts_afresh() -> None:
    plan = one(10, changes=[Leave(5, "a", None), Join(6, SimulatedConsumer("a", Fixed(1)))])
    rows, _ = run(plan, same_key(2))
    expected = [(0, 6, "removed"), (0, 7, "acked"), (1, 8, "acked")]
    assert expected == [(each.offset, each.ended_ms, each.outcome) for each in folded(rows)]


def test_a_crashed_consumer_is_evicted_after_its_grace() -> None:
    config = DispatcherConfig(inactive_grace_ms=100)
    plan = one(10, config=config, changes=[Crash(5, "a"), Join(200, SimulatedConsumer("b", Fixed(1)))])
    rows, simulation = run(plan, same_key(2))
    assert [(0, 105, "evicted"), (0, 201, "acked"), (1, 202, "acked")] == [
        (each.offset, each.ended_ms, each.outcome) for each in folded(rows)
    ]
    assert [(5, Event.INACTIVE, None), (105, Event.EVICTED, None)] == told(rows, Event.INACTIVE, Event.EVICTED)
    assert simulation.state.at_rest


def test_eviction_may_drop_what_was_open() -> None:
    config = DispatcherConfig(inactive_grace_ms=100, on_evict=OnEvict.DROP)
    rows, simulation = run(one(10, config=config, changes=[Crash(5, "a")]), same_key(1))
    released = next(row for row in rows if row.event is Event.RELEASED)
    assert (None, 1) == (released.available_ms, released.failures)
    assert [(105, Event.DROPPED, 0)] == told(rows, Event.DROPPED)
    assert simulation.state.at_rest


def test_a_consumer_that_returns_in_time_gets_its_deliveries_again() -> None:
    rows, _ = run(one(10, changes=[Crash(5, "a"), Return(50, "a")]), same_key(2))
    assert [(0, 50, "session_lost"), (0, 60, "acked"), (1, 70, "acked")] == [
        (each.offset, each.ended_ms, each.outcome) for each in folded(rows)
    ]


def test_a_consumer_that_resumes_starts_again_on_what_it_has() -> None:
    rows, _ = run(one(10, changes=[Crash(5, "a"), Return(50, "a", resumed=True)]), same_key(2))
    assert [(0, 60, "acked"), (1, 70, "acked")] == [(e.offset, e.ended_ms, e.outcome) for e in folded(rows)]
    assert ["resumed"] == [row.reason for row in rows if row.event is Event.ACTIVE]


def test_a_consumer_that_returns_too_late_joins_again_as_it_was_last_told_to_be() -> None:
    changes = [
        Crash(5, "a"),
        SetLimit(4000, "a", 1),
        SetWeight(4000, "a", 2),
        SetService(4000, "a", Fixed(3)),
        Return(5000, "a"),
    ]
    rows, _ = run(one(10, changes=changes), [Arrival(0, "x"), Arrival(1, "y")])
    assert [0, 5000] == [row.at_ms for row in rows if row.event is Event.JOINED]
    assert [5003, 5006] == [row.at_ms for row in rows if row.event is Event.ACKED]
    assert [5000, 5003] == [row.at_ms for row in rows if row.event is Event.DELIVERED and row.at_ms > 0]


def test_leaving_after_an_eviction_changes_nothing_more() -> None:
    rows, _ = run(
        one(10, changes=[Crash(5, "a"), Leave(9000, "a"), Join(9001, SimulatedConsumer("a", Fixed(1)))]), same_key(1)
    )
    assert [] == told(rows, Event.LEFT)
    assert [(9002, Event.ACKED, 0)] == told(rows, Event.ACKED)


def test_limits_and_weights_change_at_once() -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(10), limit=1)], changes=[SetLimit(3, "a", 2), SetWeight(4, "a", 5)]
    )
    rows, _ = run(plan, [Arrival(0, "x"), Arrival(1, "y")])
    assert [0, 3] == [row.at_ms for row in rows if row.event is Event.DELIVERED]
    assert ["limit 2", "weight 5"] == [row.reason for row in rows if row.event is Event.CHANGED]


# failures


def test_a_delivery_that_takes_too_long_times_out_and_its_late_ack_settles_it() -> None:
    policy = RetryPolicy(base_delay_ms=1000)
    rows, simulation = run(one(80, config=DispatcherConfig(ack_timeout_ms=50, retry=policy)), same_key(1))
    timed_out = next(row for row in rows if row.event is Event.TIMED_OUT)
    assert (50, 1, 1050) == (timed_out.at_ms, timed_out.failures, timed_out.available_ms)
    assert [(80, "late_ack")] == [(row.at_ms, row.reason) for row in rows if row.event is Event.SETTLED]
    assert simulation.state.at_rest
    assert 80 == simulation.state.at_ms


def test_what_waits_in_the_local_queue_is_dropped_when_it_times_out() -> None:
    config = DispatcherConfig(ack_timeout_ms=50, retry=RetryPolicy(base_delay_ms=100, backoff=Backoff.FIXED))
    rows, _ = run(one(40, config=config), [Arrival(0, "x"), Arrival(1, "y"), Arrival(2, "z")])
    ended = [(each.offset, each.attempt, each.ended_ms, each.outcome) for each in folded(rows)]
    # 1 is being worked on at 50 and is acked late at 80; 2 still waits, is dropped, and comes again at 150.
    assert [(0, 1, 40, "acked"), (1, 1, 50, "timed_out"), (2, 1, 50, "timed_out"), (2, 2, 190, "acked")] == ended


def test_a_silent_consumer_is_answered_for_by_the_timeout() -> None:
    config = DispatcherConfig(ack_timeout_ms=50, retry=AT_ONCE)
    rows, _ = run(one(10, config=config, answers=[FailFirst(1, Answer.SILENT)]), same_key(1))
    assert [(50, "timed_out"), (60, "acked")] == [(each.ended_ms, each.outcome) for each in folded(rows)]


def test_a_rejected_message_is_poison_at_once() -> None:
    config = DispatcherConfig(poison=Poison.DROP)
    rows, _ = run(one(10, config=config, answers=[Poisoned(["k"], reply=Answer.REJECT)]), same_key(1))
    assert [(10, Event.REJECTED, 0), (10, Event.DROPPED, 0)] == told(rows, Event.REJECTED, Event.DROPPED)


BEHIND = {BlockReason.BLOCKED: 1, BlockReason.OLDER_WAITS: 2}


@pytest.mark.parametrize(
    ("poison", "settled", "left", "reasons", "letters"),
    [
        ({"poison": Poison.DROP}, {Event.ACKED: 27, Event.DROPPED: 3}, 0, {}, []),
        ({}, {Event.ACKED: 27, Event.DEAD_LETTERED: 3}, 0, {}, [4, 14, 24]),
        ({"quarantine": True}, {Event.ACKED: 27, Event.DEAD_LETTERED: 3}, 0, {}, [4, 14, 24]),
        ({"poison": Poison.BLOCK}, {Event.ACKED: 27}, 3, BEHIND, []),
        ({"poison": Poison.BLOCK, "archive_blocked": True}, {Event.ACKED: 27}, 3, BEHIND, [4]),
    ],
    ids=["drop", "dead-letter", "quarantine", "block", "block-and-dead-letter"],
)
def test_a_poisoned_key_stops_nothing_else(
    poison: dict[str, Any], settled: dict[Event, int], left: int, reasons: dict[BlockReason, int], letters: list[int]
) -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(3)), SimulatedConsumer("b", Fixed(5))],
        config=DispatcherConfig(**poison, retry=RetryPolicy(max_redeliveries=2, base_delay_ms=20)),
        answers=[Poisoned(["k4"])],
        archive_ms=7,
    )
    rows, simulation = run(plan, many_keys(30))
    assert settled == Counter(HistoryJudge().see_all(rows).settled.values())
    assert (left, reasons) == (simulation.state.outstanding, simulation.state.why_blocked)
    assert (Stop.STUCK if left else Stop.AT_REST) is simulation.state.stop
    archived = [row.offset for row in rows if row.event in {Event.ARCHIVED, Event.DEAD_LETTERED}]
    assert letters == archived


def test_what_is_unblocked_goes_out_again() -> None:
    plan = one(
        10,
        config=DispatcherConfig(poison=Poison.BLOCK, retry=NO_RETRY),
        answers=[FailFirst(1)],
        changes=[Unblock(500, "k"), Unblock(600, "k"), Unblock(700, "other")],
    )
    rows, simulation = run(plan, same_key(2))
    assert [(500, 0, 500), (600, 1, 600), (700, None, None)] == [
        (row.at_ms, row.offset, row.available_ms) for row in rows if row.event is Event.UNBLOCKED
    ]
    assert [(510, Event.ACKED, 0), (610, Event.ACKED, 1)] == told(rows, Event.ACKED)
    assert simulation.state.at_rest


def test_endless_retries_end_with_the_most_attempts_allowed() -> None:
    config = DispatcherConfig(retry=RetryPolicy(max_redeliveries=None, base_delay_ms=0))
    rows, simulation = run(one(1, config=config, answers=[Poisoned(["k"])], max_attempts=20), same_key(1))
    assert 21 == sum(row.event is Event.DELIVERED for row in rows)
    assert Stop.ATTEMPTS is simulation.state.stop


# spill


def test_spilled_messages_are_read_again_when_their_turn_comes() -> None:
    config = DispatcherConfig(window=100, max_loaded_per_key=1)
    plan = Group(consumers=[SimulatedConsumer("a", PerMessage())], config=config, load_ms=4)
    rows, simulation = run(plan, [Arrival(offset, "k", 0, 10 + offset) for offset in range(3)])
    assert [(0, Event.SPILLED, 1), (0, Event.SPILLED, 2)] == told(rows, Event.SPILLED)
    expected = [(10, Event.LOADING, 1), (14, Event.LOADED, 1), (25, Event.LOADING, 2), (29, Event.LOADED, 2)]
    assert expected == told(rows, Event.LOADING, Event.LOADED)
    assert [(10, 10), (25, 11), (41, 12)] == [(row.at_ms, row.service_ms) for row in rows if row.event is Event.ACKED]
    assert simulation.state.at_rest


def test_what_is_superseded_was_spilled_or_is_being_read_and_the_newer_one_is_spilled_too() -> None:
    config = DispatcherConfig(window=2, max_loaded_per_key=1, latest_only=True)
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(10))], config=config, load_ms=4)
    rows, simulation = run(plan, [Arrival(offset, "k", at_ms) for offset, at_ms in enumerate([0, 1, 2, 12, 23])])
    assert [(1, Event.SPILLED, 1), (2, Event.SPILLED, 2)] == told(rows, Event.SPILLED)
    assert [(2, Event.SKIPPED, 1), (12, Event.SKIPPED, 2)] == told(rows, Event.SKIPPED)
    assert [(10, Event.LOADING, 2), (14, Event.LOADED, 2)] == told(rows, Event.LOADING, Event.LOADED)
    assert [(14, Event.IGNORED_CALL, 2)] == told(rows, Event.IGNORED_CALL)
    assert simulation.state.at_rest
    assert {} == simulation._engine.host._spilled


def test_a_message_that_supersedes_another_and_is_spilled_at_once_is_delivered() -> None:
    config = DispatcherConfig(window=2, latest_only=True)
    plan = Group(changes=[Join(50, SimulatedConsumer("a", Fixed(10)))], config=config, pace=Pace.BACKLOG)
    rows, simulation = run(plan, [Arrival(offset, key) for offset, key in enumerate("mlkk")])
    assert [2] == [row.offset for row in rows if row.event is Event.SKIPPED]
    assert [0, 1, 3] == [row.offset for row in rows if row.event is Event.ACKED]
    assert simulation.state.at_rest


# the end


def test_without_consumers_it_stops_and_says_why() -> None:
    _, simulation = run(Group(config=DispatcherConfig(window=2, max_tracked=2)), same_key(3))
    state = simulation.state
    assert (Stop.STUCK, False, 2) == (state.stop, state.all_offered, state.outstanding)
    assert {BlockReason.NO_CONSUMER: 1, BlockReason.OLDER_WAITS: 1} == state.why_blocked
    assert not state.at_rest


def test_nothing_happens_after_the_planned_end() -> None:
    rows, simulation = run(one(10, until_ms=25), same_key(5))
    assert 20 == rows[-1].at_ms
    assert (Stop.UNTIL, 25, 3) == (simulation.state.stop, simulation.state.at_ms, simulation.state.outstanding)


@pytest.mark.parametrize("begins", [{}, {"start_ms": 6}])
def test_nothing_happens_in_a_plan_that_ends_before_it_begins(begins: dict[str, int]) -> None:
    rows, simulation = run(one(10, until_ms=5, **begins), [Arrival(0, "k", 100), Arrival(1, "k", 101)])
    assert [] == rows
    assert (5, Stop.UNTIL, False) == (simulation.state.at_ms, simulation.state.stop, simulation.state.all_offered)


def test_the_state_can_be_asked_on_the_way() -> None:
    simulation = Simulation(one(10), same_key(2))
    for row in simulation:
        if row.event is Event.DELIVERED:
            break
    state = simulation.state
    assert (None, False, 1, 1) == (state.stop, state.all_offered, state.outstanding, state.open_deliveries)


def test_a_message_that_nobody_accepts_is_skipped() -> None:
    config = DispatcherConfig(unmatched=Unmatched.SKIP)
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(1), filters=["x*"])], config=config)
    rows, simulation = run(plan, [Arrival(0, "k"), Arrival(1, "x1")])
    assert [(0, Event.SKIPPED, 0), (1, Event.ACKED, 1)] == told(rows, Event.SKIPPED, Event.ACKED)
    assert simulation.state.at_rest


# everything at once

ROUGH = Group(
    consumers=[
        SimulatedConsumer("a", Sampled([1, 2, 3, 40], seed=1)),
        SimulatedConsumer("b", Scaled(Sampled([1, 2, 3, 40], seed=1), 3), limit=4),
        SimulatedConsumer("c", PerMessage(default_ms=4), concurrency=2),
    ],
    changes=[
        Join(300, SimulatedConsumer("d", Fixed(2), weight=2)),
        Crash(500, "a"),
        Return(530, "a"),
        Leave(900, "c", 20),
        Crash(1_500, "b"),
        SetWeight(1_600, "d", 1),
        Join(1_700, SimulatedConsumer("c", Fixed(3))),
        Return(9_000, "b"),
    ],
    config=DispatcherConfig(
        window=32,
        max_tracked=200,
        max_loaded_per_key=4,
        ack_timeout_ms=100,
        drain_timeout_ms=60,
        inactive_grace_ms=50,
        retry=RetryPolicy(max_redeliveries=None, base_delay_ms=5, max_delay_ms=50),
    ),
    answers=[SampledAnswers([Answer.ACK] * 17 + [Answer.NACK, Answer.NACK, Answer.SILENT], seed=2)],
    load_ms=3,
)


def rough_arrivals() -> Iterator[Arrival]:
    for offset in range(0, 4_000, 2):
        yield Arrival(offset, None if offset % 22 == 0 else f"k{offset * 7 % 31}", at_ms=offset)


@pytest.mark.no_cover
def test_every_message_is_settled_once_through_joins_leaves_crashes_and_failures() -> None:
    rows, simulation = run(ROUGH, rough_arrivals())
    assert simulation.state.at_rest
    judge = HistoryJudge().see_all(rows)
    assert list(range(0, 4_000, 2)) == sorted(judge.settled)
    assert {Event.ACKED, Event.SETTLED} >= set(judge.settled.values())
    assert {"evicted", "session_lost", "timed_out", "nacked"} <= {each.outcome for each in folded(rows)}
    assert {Event.SPILLED, Event.PAUSED, Event.IGNORED, Event.CHANGED} <= {row.event for row in rows}


def test_nothing_is_remembered_of_messages_that_are_settled() -> None:
    poisonous = one(config=DispatcherConfig(retry=RetryPolicy(max_redeliveries=0)), answers=[FailFirst(1)])
    for plan, arrivals in ((ROUGH, rough_arrivals()), (poisonous, [Arrival(0, "k")])):
        _, simulation = run(plan, arrivals)
        host = simulation._engine.host
        assert simulation.state.at_rest
        assert [0] * 4 == [len(books) for books in (host._open, host.again, host._spilled, host._blocked)]


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: [row for row in rows if row.event is not Event.ACKED],
        lambda rows: [row for row in rows if row.offset != 0 or row.event is not Event.OFFERED],
        lambda rows: sorted(rows, key=lambda row: row.event is not Event.OFFERED),
        lambda rows: [row._replace(consumer="z") if row.event is Event.ACKED else row for row in rows],
        lambda rows: [row._replace(key=b"k") if row.event is Event.OFFERED else row for row in rows],
        lambda rows: [row._replace(offset=10**6) if row.event is Event.CURSOR else row for row in rows],
        lambda rows: [row._replace(attempt=1) for row in rows],
    ],
    ids=["no-acks", "never-offered", "shuffled", "foreign-acks", "one-key", "cursor-ahead", "no-fence"],
)
def test_the_judge_of_these_tests_sees_a_spoiled_history(spoil: Callable[[list[Row]], list[Row]]) -> None:
    rows, _ = run(ROUGH, rough_arrivals())
    renumbered = [row._replace(sequence=number) for number, row in enumerate(spoil(rows))]
    with pytest.raises((AssertionError, KeyError)):
        HistoryJudge().see_all(renumbered)


@pytest.mark.no_cover
def test_the_same_plan_gives_the_same_rows() -> None:
    travelled = pickle.loads(pickle.dumps(ROUGH))  # noqa: S301 - what was pickled just now
    assert list(Simulation(ROUGH, rough_arrivals())) == list(Simulation(travelled, rough_arrivals()))


def test_a_simulation_changes_nothing_in_its_plan() -> None:
    before = pickle.dumps(ROUGH)
    list(Simulation(ROUGH, rough_arrivals()))
    assert before == pickle.dumps(ROUGH)


def test_a_log_is_read_on_when_the_key_that_stopped_it_has_room_again() -> None:
    config = DispatcherConfig(window=10, spill=False, max_waiting_per_key=1)
    rows, simulation = run(one(10, config=config), same_key(4))

    assert simulation.state.at_rest
    told = [(row.event, row.key) for row in rows if row.event in {Event.PAUSED, Event.RESUMED}]
    assert [(Event.PAUSED, b"k"), (Event.RESUMED, None)] * 2 == told
