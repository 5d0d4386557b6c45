"""Simulated consumers that postpone, take batches and say why; messages that are for later; logs that spill nothing."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from tests.histories import HistoryJudge
from tests.simulate.folding import folded

from keyshared.config import DispatcherConfig, Poison, RetryPolicy, Unmatched
from keyshared.effects import BlockReason
from keyshared.errors import ArgumentError
from keyshared.simulate import (
    Answer,
    Arrival,
    Event,
    FailFirst,
    Fixed,
    Group,
    PerMessage,
    Poisoned,
    Row,
    SampledAnswers,
    SimulatedConsumer,
    Simulation,
    Stop,
    summarize,
)

LAST = RetryPolicy(max_redeliveries=0)


def run(plan: Group, arrivals: Iterable[Arrival]) -> list[Row]:
    rows = list(Simulation(plan, arrivals))
    HistoryJudge().see_all(rows)
    return rows


def one(service_ms: int = 10, *, consumer: dict[str, Any] | None = None, **fields: Any) -> Group:
    return Group(consumers=[SimulatedConsumer("a", Fixed(service_ms), **consumer or {})], **fields)


def told(rows: Iterable[Row], *events: Event) -> list[tuple[Any, ...]]:
    return [(row.at_ms, row.event, row.offset) for row in rows if row.event in events]


def ends(rows: Iterable[Row]) -> list[tuple[int, int | None, int | None, str]]:
    return [(each.offset, each.delivered_ms, each.ended_ms, each.outcome) for each in folded(rows)]


class TestPostponing:
    PLAN = one(
        consumer={"postpone_ms": 500}, answers=[FailFirst(1, Answer.POSTPONE)], config=DispatcherConfig(retry=LAST)
    )

    def test_what_is_postponed_comes_again_after_its_time_and_has_not_failed(self) -> None:
        rows = run(self.PLAN, [Arrival(0, "k"), Arrival(1, "l", at_ms=1)])

        assert [
            (0, 0, 10, "released"),
            (1, 1, 20, "released"),
            (0, 510, 520, "acked"),
            (1, 520, 530, "acked"),
        ] == ends(rows)
        postponed = next(row for row in rows if row.event is Event.RELEASED)
        assert (0, 510, 10, "released") == (
            postponed.failures,
            postponed.available_ms,
            postponed.service_ms,
            postponed.reason,
        )

    def test_it_is_counted_apart_from_what_is_lost(self) -> None:
        summary, state = summarize(self.PLAN, [Arrival(0, "k")])
        figures = summary.consumers["a"]

        assert state.at_rest
        assert (2, 1, 1, 0, 0) == (figures.deliveries, figures.acked, figures.postponed, figures.failed, figures.lost)

    def test_an_answer_of_a_delivery_that_is_over_is_ignored(self) -> None:
        config = DispatcherConfig(ack_timeout_ms=5, retry=RetryPolicy(max_redeliveries=1, base_delay_ms=60_000))
        rows = run(one(config=config, answers=[FailFirst(1, Answer.POSTPONE)], until_ms=20), [Arrival(0, "k")])

        assert [(5, Event.TIMED_OUT, 0), (10, Event.IGNORED_CALL, 0)] == told(
            rows, Event.TIMED_OUT, Event.IGNORED, Event.IGNORED_NACK, Event.IGNORED_CALL
        )

    @pytest.mark.parametrize("answer", [Answer.NACK, Answer.REJECT])
    def test_a_refusal_of_a_delivery_that_is_over_is_ignored(self, answer: Answer) -> None:
        config = DispatcherConfig(ack_timeout_ms=5, retry=RetryPolicy(max_redeliveries=1, base_delay_ms=60_000))
        rows = run(one(config=config, answers=[FailFirst(1, answer)], until_ms=20), [Arrival(0, "k")])

        assert [(10, Event.IGNORED_NACK, 0)] == told(rows, Event.IGNORED, Event.IGNORED_NACK, Event.IGNORED_CALL)


def test_each_message_is_said_to_be_done_once_and_how() -> None:
    config = DispatcherConfig(tell_settled=True, retry=LAST)
    rows = run(one(config=config, answers=[Poisoned(["l"])]), [Arrival(0, "k"), Arrival(1, "l")])

    done = [(row.offset, row.key, row.reason) for row in rows if row.event is Event.DONE]
    assert [(0, b"k", "acked"), (1, b"l", "dead_lettered")] == done


class TestNotBefore:
    def test_a_message_for_later_holds_its_key_until_its_time_and_no_other(self) -> None:
        arrivals = [Arrival(0, "k", not_before_ms=300), Arrival(1, "k", at_ms=1), Arrival(2, "l", at_ms=2)]
        rows = run(one(), arrivals)

        assert [(2, 2, 12, "acked"), (0, 300, 310, "acked"), (1, 310, 320, "acked")] == ends(rows)
        assert [300, 1, 2] == [row.available_ms for row in rows if row.event is Event.OFFERED]
        assert [0, 0, 309] == [each.wait_ms for each in folded(rows)]

    def test_a_time_that_has_passed_says_nothing(self) -> None:
        rows = run(one(), [Arrival(0, "k", at_ms=50, not_before_ms=20)])

        assert [(0, 50, 60, "acked")] == ends(rows)
        assert [50] == [row.available_ms for row in rows if row.event is Event.OFFERED]

    def test_what_waits_for_its_time_may_be_spilled(self) -> None:
        config = DispatcherConfig(window=2, max_tracked=4, max_loaded_per_key=1)
        rows = run(one(config=config), [Arrival(offset, "k", not_before_ms=100) for offset in range(3)])

        assert [(0, Event.SPILLED, 1), (0, Event.SPILLED, 2)] == told(rows, Event.SPILLED)
        assert [(0, 100), (1, 110), (2, 120)] == [(each.offset, each.delivered_ms) for each in folded(rows)]

    def test_the_state_says_what_waits_for_its_time(self) -> None:
        simulation = Simulation(one(until_ms=50), [Arrival(0, "k", not_before_ms=100)])
        list(simulation)

        assert (Stop.UNTIL, {BlockReason.NOT_BEFORE: 1}) == (simulation.state.stop, simulation.state.why_blocked)

    @pytest.mark.parametrize("wrong", [-1, 1.5, True, "soon"])
    def test_a_time_that_is_none_is_refused(self, wrong: Any) -> None:
        with pytest.raises(ArgumentError, match="not_before_ms"):
            list(Simulation(one(), [Arrival(0, "k", not_before_ms=wrong)]))


class _FailsOnce(NamedTuple):
    """One message fails when it is delivered first."""

    offset: int
    reason: str | None = None

    def answer(self, offset: int, key: bytes | None, attempt: int) -> Answer:  # noqa: ARG002 - of the protocol
        return Answer.NACK if (offset, attempt) == (self.offset, 1) else Answer.ACK


class TestBatches:
    ARRIVALS = tuple(Arrival(offset, "k") for offset in range(5))

    def plan(self, **fields: Any) -> Group:
        config = DispatcherConfig(batch_per_key=3, retry=RetryPolicy(max_redeliveries=3, base_delay_ms=100))
        return one(**{"consumer": {"takes_batches": True}, "config": config, **fields})

    def test_a_batch_is_one_piece_of_work_and_is_acked_at_once(self) -> None:
        rows = run(self.plan(), self.ARRIVALS)

        assert [(0, 0, 10), *[(o, 10, 20) for o in (1, 2, 3)], (4, 20, 30)] == [end[:3] for end in ends(rows)]
        assert [10, 10, 0, 0, 10] == [row.service_ms for row in rows if row.event is Event.ACKED]

    def test_a_consumer_that_takes_single_messages_answers_each(self) -> None:
        rows = run(self.plan(consumer={}), self.ARRIVALS)

        assert [10, 20, 30, 40, 50] == [row.at_ms for row in rows if row.event is Event.ACKED]

    def test_it_is_acked_up_to_what_fails_and_the_rest_comes_back(self) -> None:
        rows = run(self.plan(answers=[_FailsOnce(2)]), self.ARRIVALS)

        assert [
            (10, Event.ACKED, 0),
            (20, Event.ACKED, 1),
            (20, Event.NACKED, 2),
            (20, Event.RELEASED, 3),
        ] == told(rows, Event.ACKED, Event.NACKED, Event.RELEASED)[:4]
        assert (3, "batch_broken") in [(row.offset, row.reason) for row in rows]
        assert 120 == next(row.at_ms for row in rows if row.event is Event.DELIVERED and row.attempt == 2)

    def test_a_batch_whose_first_message_fails_is_broken_at_once(self) -> None:
        rows = run(self.plan(answers=[Poisoned(offsets=[1])], until_ms=30), self.ARRIVALS)

        assert [(20, Event.NACKED, 1), (20, Event.RELEASED, 2), (20, Event.RELEASED, 3)] == told(
            rows, Event.NACKED, Event.RELEASED
        )

    def test_the_one_lane_has_batches_of_any_keys(self) -> None:
        config = DispatcherConfig(
            batch_per_key=2, ordering_required=True, poison=Poison.BLOCK, unmatched=Unmatched.HOLD
        )
        arrivals = [Arrival(offset, key) for offset, key in enumerate(["k", "l", None])]

        assert [10, 20, 20] == [
            row.at_ms for row in run(self.plan(config=config), arrivals) if row.event is Event.ACKED
        ]

    def test_messages_without_a_key_and_other_keys_are_no_batch(self) -> None:
        arrivals = [Arrival(offset, key) for offset, key in enumerate([None, None, "k", "l"])]

        assert [10, 20, 30, 40] == [row.at_ms for row in run(self.plan(), arrivals) if row.event is Event.ACKED]

    def test_the_late_ack_of_one_that_was_taken_back_settles_none_of_the_batch_that_came_after_it(self) -> None:
        config = DispatcherConfig(batch_per_key=3, ack_timeout_ms=15, retry=RetryPolicy(base_delay_ms=0))
        plan = one(20, consumer={"takes_batches": True}, config=config, until_ms=20)
        rows = run(plan, self.ARRIVALS)

        assert [(15, Event.TIMED_OUT, 0), (20, Event.IGNORED, 0)] == told(
            rows, Event.ACKED, Event.TIMED_OUT, Event.IGNORED
        )

    def test_what_came_back_behind_newer_ones_of_its_key_is_in_no_batch_with_them(self) -> None:
        """An ack through the last of a batch settles what is older, not what is newer."""
        config = DispatcherConfig(max_in_flight_per_key=2, ack_timeout_ms=50, retry=RetryPolicy(base_delay_ms=0))
        plan = Group(consumers=[SimulatedConsumer("a", PerMessage(), takes_batches=True)], config=config)
        rows = run(plan, [Arrival(0, "other", 0, 49), Arrival(1, "k", 0, 10), Arrival(2, "k", 30, 5)])

        assert [(50, Event.TIMED_OUT, 1), (64, Event.ACKED, 2), (74, Event.ACKED, 1)] == told(
            rows, Event.ACKED, Event.TIMED_OUT
        )[1:]

    def test_where_none_come_as_a_batch_each_message_is_answered_by_itself(self) -> None:
        """settled-once: what stood behind a failure left the queue with it, and was acked with a newer one, untold."""
        retry = RetryPolicy(max_redeliveries=1, base_delay_ms=0)
        config = DispatcherConfig(max_in_flight_per_key=3, window=3, retry=retry)
        consumer = SimulatedConsumer("a", Fixed(1), takes_batches=True)
        plan = Group(consumers=[consumer], config=config, answers=[Poisoned(offsets=[1])])
        rows = run(plan, [Arrival(offset, "k", 0) for offset in range(4)])

        assert [(1, Event.ACKED, 0), (3, Event.ACKED, 2), (4, Event.ACKED, 3)] == told(
            rows, Event.ACKED, Event.TIMED_OUT
        )


class TestReasons:
    def test_what_a_consumer_says_stands_in_its_row_and_in_the_dead_letter(self) -> None:
        config = DispatcherConfig(retry=RetryPolicy(max_redeliveries=1, base_delay_ms=0))
        rows = run(one(config=config, answers=[Poisoned(["k"], reason="card refused")]), [Arrival(0, "k")])

        events = (Event.NACKED, Event.DEAD_LETTERING, Event.DEAD_LETTERED)
        assert {"card refused"} == {row.reason for row in rows if row.event in events}

    @pytest.mark.parametrize(
        "answers", [FailFirst(1, Answer.REJECT, "no"), SampledAnswers([Answer.REJECT], reason="no")]
    )
    @pytest.mark.parametrize("archive_blocked", [False, True])
    def test_it_stands_in_the_row_of_what_is_blocked(self, answers: Any, archive_blocked: bool) -> None:
        config = DispatcherConfig(poison=Poison.BLOCK, archive_blocked=archive_blocked)
        rows = run(one(config=config, answers=[answers]), [Arrival(0, "k")])

        assert {"no"} == {row.reason for row in rows if row.event in {Event.REJECTED, Event.BLOCKED, Event.ARCHIVED}}

    def test_nothing_is_said_unless_a_model_says_it(self) -> None:
        rows = run(one(config=DispatcherConfig(retry=LAST), answers=[Poisoned(["k"])]), [Arrival(0, "k")])

        assert {None} == {row.reason for row in rows if row.event in {Event.NACKED, Event.DEAD_LETTERED}}


def test_a_log_that_spills_nothing_waits_for_its_slowest_consumer() -> None:
    config = DispatcherConfig(window=2, spill=False)
    rows = run(one(config=config), [Arrival(offset, "k") for offset in range(4)])

    assert [] == told(rows, Event.SPILLED, Event.LOADING)
    assert [0, 0, 10, 20] == [row.at_ms for row in rows if row.event is Event.OFFERED]
