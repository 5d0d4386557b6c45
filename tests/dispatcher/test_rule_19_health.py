"""Rule 19: with ``measure`` a dispatcher says how old its messages are, and counts what becomes of them."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, fill, subscription
from tests.broken import CountsAreLostOverARestart, CountsTheOfferTwice
from tests.kit.recorder import Recorder

from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.dispatcher import Health, KeySharedDispatcher, StoredLetter
from keyshared.effects import Done, Ending
from keyshared.errors import ArgumentError, SnapshotError
from keyshared.testing import Claims, Promise, check_history


def measured(*consumers: str, **config: Any) -> Watched:
    return subscription(*consumers, measure=True, **config)


def restored(original: KeySharedDispatcher[Any], *, now_ms: int = 0, **config: Any) -> Watched:
    state = json.loads(json.dumps(original.snapshot()))
    fields = {"measure": True, **config}
    return Watched.restore(state, AlphabetRing(), DispatcherConfig(**fields), now_ms=now_ms)


class TestAges:
    """They count from the offer, to within one second, rounded up."""

    def test_of_the_oldest_message_and_of_the_oldest_one_that_nobody_has(self) -> None:
        dispatcher = measured("ann")
        dispatcher.offer(0, "a1", now_ms=1_000)
        dispatcher.offer(1, "a1", now_ms=3_000)
        dispatcher.offer(2, "a1", now_ms=6_000)
        health = dispatcher.health()
        assert (5_000, 3_000, 1) == (health.oldest_ms, health.longest_blocked_ms, health.blocked_offset)

    def test_of_the_lowest_that_is_left_whatever_was_settled_in_which_order(self) -> None:
        dispatcher = measured("ann")
        for offset, key in enumerate(["a1", "a2", "a3", "a4"]):
            dispatcher.offer(offset, key, now_ms=2_000 * offset)
        for offset in (1, 0, 3):
            dispatcher.ack(offset, "ann", 1)
        assert (2_000, None) == (dispatcher.health().oldest_ms, dispatcher.health().blocked_offset)

    def test_messages_of_one_second_have_one_age(self) -> None:
        dispatcher = measured()
        for offset in range(4):
            dispatcher.offer(offset, "a1", now_ms=600 * offset)
        ages = []
        for offset in range(4):
            ages.append(dispatcher.health().oldest_ms)
            dispatcher.gone(offset)
        assert [1_800, 1_800, 600, 600] == ages

    def test_nothing_is_old_when_all_is_done_and_then_it_begins_anew(self) -> None:
        dispatcher = measured("ann")
        dispatcher.offer(0, "a1", now_ms=0)
        dispatcher.ack(0, "ann", 1, now_ms=10)
        assert dispatcher.health().oldest_ms is None
        dispatcher.offer(1, "a1", now_ms=500)
        dispatcher.handle_timeout(now_ms=700)
        assert 200 == dispatcher.health().oldest_ms

    def test_a_postponement_changes_no_age(self) -> None:
        dispatcher = measured("ann", ack_timeout_ms=None)
        dispatcher.offer(0, "a1", now_ms=0)
        dispatcher.release(0, "ann", 1, delay_ms=60_000, now_ms=5_000)
        assert (5_000, 0) == (dispatcher.health().longest_blocked_ms, dispatcher.health().blocked_offset)

    def test_what_has_come_back_from_the_dead_letter_store_has_no_age(self) -> None:
        dispatcher = measured("ann", redrive=True)
        dispatcher.offer(0, "a1", now_ms=0)
        dispatcher.reject(0, "ann", 1)
        dispatcher.dead_lettered(0)
        dispatcher.redrive("a1", [StoredLetter(0, 1, None)], now_ms=9_000)
        health = dispatcher.health()
        assert (None, None, ((b"a1", 1),)) == (health.oldest_ms, health.blocked_offset, health.busiest)
        dispatcher.ack(0, "ann", 2)
        assert {Ending.DEAD_LETTERED: 1, Ending.ACKED: 1} == dispatcher.health().ended


class TestCounts:
    """They count since the start, each message once."""

    def test_of_what_was_settled_by_how_it_ended(self) -> None:
        dispatcher = measured("ann", poison=Poison.DROP, retry=RetryPolicy(max_redeliveries=0))
        fill(dispatcher, "a1", "a2", "a3")
        dispatcher.ack(0, "ann", 1)
        dispatcher.reject(1, "ann", 1)
        assert {Ending.ACKED: 1, Ending.DROPPED: 1} == dispatcher.health().ended

    def test_of_deliveries_and_failures(self) -> None:
        dispatcher = measured("ann", retry=RetryPolicy(base_delay_ms=0))
        fill(dispatcher, "a1")
        dispatcher.nack(0, "ann", 1)
        dispatcher.release(0, "ann", 2)
        assert (3, 1) == (dispatcher.health().delivered, dispatcher.health().failed)

    def test_they_are_the_same_where_each_message_is_told_too(self) -> None:
        dispatcher = measured("ann", tell_settled=True)
        fill(dispatcher, "a1")
        assert Done(0, b"a1", Ending.ACKED) in dispatcher.ack(0, "ann", 1)
        assert {Ending.ACKED: 1} == dispatcher.health().ended

    def test_what_a_token_knows_counts_when_it_is_read_again(self) -> None:
        first = subscription("ann")
        fill(first, "a1", "a2")
        first.ack(1, "ann", 1)
        token = first.cursor_token(1_000).text
        again = Watched(AlphabetRing(), DispatcherConfig(measure=True), resume_from=token)
        fill(again, "a1", "a2")
        assert {Ending.EARLIER: 1} == again.health().ended

    def test_they_belong_to_the_caller(self) -> None:
        dispatcher = measured("ann")
        dispatcher.health().ended[Ending.GONE] = 5  # type: ignore[index]  # what it may not do
        assert {} == dispatcher.health().ended


class TestBusiestKeys:
    """They are named with or without ``measure``."""

    def test_the_keys_with_most_outstanding_messages_come_first(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a3", "a2", "a1", "a2", None, None, None)
        assert ((b"a2", 2), (b"a1", 1)) == dispatcher.health(busiest=2).busiest
        assert () == dispatcher.health(busiest=0).busiest

    def test_without_it_nobody_knows_the_rest(self) -> None:
        dispatcher = subscription()
        fill(dispatcher, "a1")
        assert dispatcher.health() == Health(
            oldest_ms=None,
            longest_blocked_ms=None,
            blocked_offset=0,
            busiest=((b"a1", 1),),
            ended=None,
            delivered=None,
            failed=None,
        )

    def test_a_number_of_keys_that_is_none_is_refused(self) -> None:
        with pytest.raises(ArgumentError, match=r"busiest is -1; it must be an int of at least 0"):
            subscription().health(busiest=-1)


class TestRestart:
    """Ages and counts go on."""

    def test_from_a_snapshot_on_another_clock(self) -> None:
        original = measured("ann")
        original.offer(0, "a1", now_ms=5_000)
        original.offer(1, "a1", now_ms=8_000)
        original.ack(0, "ann", 1, now_ms=9_000)
        again = restored(original, now_ms=3)
        assert original.health() == again.health()
        assert (1_000, {Ending.ACKED: 1}) == (again.health().oldest_ms, again.health().ended)

    def test_what_was_outstanding_before_it_was_switched_on_is_new_then(self) -> None:
        original = subscription()
        original.offer(0, "a1", now_ms=5_000)
        again = restored(original)
        again.handle_timeout(now_ms=70)
        assert (70, {}) == (again.health().oldest_ms, again.health().ended)

    def test_a_snapshot_that_measured_is_refused_by_who_does_not(self) -> None:
        with pytest.raises(SnapshotError, match=r"health .* must be absent"):
            restored(measured(), measure=False)


class TestNames:
    """The figures have the names that every host exports."""

    def test_each_figure_is_a_row(self) -> None:
        dispatcher = measured("ann")
        dispatcher.offer(0, b"a\xff", now_ms=0)
        dispatcher.offer(1, b"a\xff", now_ms=1_500)
        dispatcher.ack(0, "ann", 1)
        assert [
            ("keyshared_oldest_age_seconds", (), 0.0),
            ("keyshared_key_outstanding", (("key", "a\\xff"),), 1),
            ("keyshared_settled_total", (("how", "acked"),), 1),
            ("keyshared_deliveries_total", (), 2),
            ("keyshared_failures_total", (), 0),
        ] == dispatcher.health().rows()

    def test_what_nobody_measured_has_no_row(self) -> None:
        assert [] == subscription("ann").health().rows()


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (KeySharedDispatcher, []),
        (CountsTheOfferTwice, [Promise.HEALTH_ADDS_UP]),
        (CountsAreLostOverARestart, [Promise.HEALTH_ADDS_UP]),
    ],
)
def test_counts_that_do_not_survive_a_restart_are_found(broken: type[Any], found: list[Promise]) -> None:
    config = DispatcherConfig(measure=True)
    recorder = Recorder(broken(AlphabetRing(), config))
    recorder.add_consumer("ann")
    fill(recorder, "a1", "a2")  # type: ignore[arg-type]  # it has any call
    recorder.ack(1, "ann", 1)
    recorder.restarted(broken.restore(recorder.snapshot(), AlphabetRing(), config, now_ms=0), now_ms=0)
    fill(recorder, "a1", "a2", "a3")  # type: ignore[arg-type]  # as above
    claims = Claims(promises={Promise.HEALTH_ADDS_UP}, measures=True)
    assert found == [violation.promise for violation in check_history(recorder.history, claims)]
