"""Rule 17: with ``batch_per_key`` above 1 the open deliveries of a key are a batch, which ends as a whole."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, delivered, fill, subscription
from tests.broken import BatchWithAHole
from tests.kit.recorder import Recorder

from keyshared.config import DispatcherConfig, OnEvict, Poison, RetryPolicy, Unmatched
from keyshared.dispatcher import Blocking, KeySharedDispatcher
from keyshared.effects import (
    BlockReason,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    Effect,
    Ending,
    Ignored,
    IgnoredReason,
    Load,
    Released,
    ReleaseReason,
)
from keyshared.errors import ArgumentError
from keyshared.testing import Claims, Promise, check_history

AT_ONCE = RetryPolicy(max_redeliveries=2, base_delay_ms=0)


def batching(*keys: str | None, batch: int = 3, **config: Any) -> Watched:
    """Ann holds nothing yet, and everything waits for her."""
    dispatcher = subscription(batch_per_key=batch, **config)
    fill(dispatcher, *keys)
    return dispatcher


def endings(effects: list[Effect]) -> list[tuple[int, ReleaseReason, int, int | None]]:
    """Which deliveries ended how, with the failures by now and the instant of the retry."""
    return [
        (each.offset, each.reason, each.failures, each.retry_at_ms) for each in effects if isinstance(each, Released)
    ]


class TestMaking:
    """A batch is what is at hand when the key has its turn."""

    def test_consecutive_messages_go_out_side_by_side_and_no_more_than_a_batch(self) -> None:
        dispatcher = batching("a1", "b1", "a1", "a1", "a1")
        assert [0, 2, 3, 1] == [
            effect.offset for effect in dispatcher.add_consumer("ann") if isinstance(effect, Deliver)
        ]
        assert Blocking(BlockReason.KEY_IN_FLIGHT, "ann") == dispatcher.why_blocked(4)

    def test_it_does_not_wait_to_grow_and_nothing_joins_it(self) -> None:
        dispatcher = subscription("ann", batch_per_key=3)
        assert [(0, "ann")] == delivered(fill(dispatcher, "a1", "a1", "a1"))
        assert [(1, "ann"), (2, "ann")] == delivered(dispatcher.ack(0, "ann", 1))

    def test_the_next_one_comes_when_all_of_it_has_ended(self) -> None:
        dispatcher = batching("a1", "a1", "a1", "a1", "a1")
        dispatcher.add_consumer("ann")
        assert [] == dispatcher.ack(1, "ann", 1)
        assert [advanced(1)] == dispatcher.ack(0, "ann", 1)
        assert [deliver(3, "a1", "ann"), deliver(4, "a1", "ann"), advanced(2)] == dispatcher.ack(2, "ann", 1)

    def test_the_consumer_s_room_makes_it_shorter(self) -> None:
        dispatcher = batching("a1", "a1", "a1")
        assert [(0, "ann"), (1, "ann")] == delivered(dispatcher.add_consumer("ann", limit=2))

    def test_what_is_spilled_ends_it(self) -> None:
        dispatcher = batching("a1", "a1", "a1", "a1", max_loaded_per_key=3)
        assert [(0, "ann"), (1, "ann"), (2, "ann")] == delivered(dispatcher.add_consumer("ann"))
        assert [Load(3, b"a1"), advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_a_loaded_message_takes_along_what_is_at_hand_behind_it(self) -> None:
        dispatcher = batching("a1", "a1", "a1", "a1", batch=2, max_loaded_per_key=2)
        dispatcher.add_consumer("ann")
        assert [Load(2, b"a1"), Load(3, b"a1"), advanced(1)] == dispatcher.ack_through(1, "ann", 1)
        assert [] == dispatcher.loaded(3, "again")
        assert [(2, "ann"), (3, "ann")] == delivered(dispatcher.loaded(2, "again"))

    def test_what_is_pulled_out_of_its_turn_goes_alone(self) -> None:
        dispatcher = batching("a1", "a1")
        dispatcher.add_consumer("ann", limit=0)
        assert [(0, "ann")] == delivered(dispatcher.pull("ann", 9, only=0))

    def test_what_waits_for_its_retry_ends_it(self) -> None:
        dispatcher = batching("a1", "a1", "a1", retry=RetryPolicy(base_delay_ms=50))
        dispatcher.add_consumer("ann")
        dispatcher.nack(1, "ann", 1)
        assert [(0, "ann")] == delivered(dispatcher.release(0, "ann", 1))
        assert [] == dispatcher.ack(0, "ann", 2)[:-1]
        assert [(1, "ann"), (2, "ann")] == delivered(dispatcher.handle_timeout(now_ms=50))

    def test_messages_without_a_key_are_no_batch(self) -> None:
        dispatcher = batching(None, None)
        assert [(0, "ann"), (1, "ann")] == delivered(dispatcher.add_consumer("ann"))
        assert [advanced(0)] == dispatcher.ack_through(0, "ann", 1)

    def test_of_another_key_with_room_for_one_a_batch_is_one_turn(self) -> None:
        dispatcher = batching("a1", "a1", "a1", "b1", batch=2)
        dispatcher.add_consumer("ann", limit=0)
        assert [(0, "ann"), (1, "ann")] == delivered(dispatcher.set_limit("ann", 2))
        assert [(3, "ann")] == delivered(dispatcher.ack_through(1, "ann", 1)[:1])

    def test_a_pull_may_ask_for_shorter_ones(self) -> None:
        dispatcher = batching("a1", "a1", "b1", "b1")
        dispatcher.add_consumer("ann", limit=0)
        assert [0, 2] == [
            effect.offset for effect in dispatcher.pull("ann", 9, per_key=1) if isinstance(effect, Deliver)
        ]
        dispatcher.ack(0, "ann", 1)
        assert [(1, "ann")] == delivered(dispatcher.pull("ann", 9))
        for wrong in (0, 4, "2"):
            with pytest.raises(ArgumentError, match="per_key"):
                dispatcher.pull("ann", 1, per_key=wrong)  # type: ignore[arg-type]  # on purpose

    def test_one_lane_for_everything_has_batches_too(self) -> None:
        total: dict[str, Any] = {"unmatched": Unmatched.HOLD, "ordering_required": True, "poison": Poison.BLOCK}
        dispatcher = batching("a1", "b1", None, "c1", **total)
        assert [(0, "ann"), (1, "ann"), (2, "ann")] == delivered(dispatcher.add_consumer("ann"))
        assert [deliver(3, "", "ann"), advanced(2)] == dispatcher.ack_through(2, "ann", 1)


class TestEnding:
    """Newer ones of a batch come back when one ends in another way than by its ack."""

    def taken(self, **config: Any) -> Watched:
        dispatcher = batching("a1", "a1", "a1", **{"retry": AT_ONCE} | config)
        dispatcher.add_consumer("ann", now_ms=0)
        return dispatcher

    def test_a_failure_in_the_middle_brings_back_what_is_newer_without_a_failure(self) -> None:
        dispatcher = self.taken()
        assert [
            (1, ReleaseReason.NACKED, 1, 0),
            (2, ReleaseReason.BATCH_BROKEN, 0, 0),
        ] == endings(dispatcher.nack(1, "ann", 1))
        assert [(0, "ann")] == [(each.offset, each.consumer) for each in dispatcher.in_flight()]
        again = dispatcher.ack(0, "ann", 1)
        assert [(1, 2, 1), (2, 2, 0)] == [(d.offset, d.attempt, d.failures) for d in again if isinstance(d, Deliver)]

    @pytest.mark.parametrize("how", ["release", "reject"])
    def test_a_release_and_a_reject_do_the_same(self, how: str) -> None:
        effects = getattr(self.taken(), how)(0, "ann", 1)
        assert [ReleaseReason.BATCH_BROKEN] * 2 == [reason for _, reason, *_ in endings(effects)][1:]
        assert isinstance(effects[-1], DeadLetter if how == "reject" else Deliver)

    def test_a_timeout_fails_the_oldest_and_no_other(self) -> None:
        assert [
            (0, ReleaseReason.ACK_TIMEOUT, 1, 9),
            (1, ReleaseReason.BATCH_BROKEN, 0, 9),
            (2, ReleaseReason.BATCH_BROKEN, 0, 9),
        ] == endings(self.taken(ack_timeout_ms=9).handle_timeout(now_ms=9))

    def test_more_time_for_one_is_more_time_for_all(self) -> None:
        dispatcher = self.taken(ack_timeout_ms=9)
        dispatcher.release(0, "ann", 1, now_ms=1)  # and all are out again, until 10
        dispatcher.ack(0, "ann", 2)
        assert [] == dispatcher.extend(2, "ann", 2, extend_ms=90)
        assert 91 == dispatcher.next_deadline_ms()
        assert [1, 2] == [offset for offset, *_ in endings(dispatcher.handle_timeout(now_ms=91))]

    def test_more_time_where_the_oldest_has_come_back(self) -> None:
        dispatcher = self.taken(ack_timeout_ms=9)
        dispatcher.ack(1, "ann", 1)
        dispatcher.nack(2, "ann", 1, delay_ms=40)
        dispatcher.extend(0, "ann", 1, extend_ms=30)
        assert 30 == dispatcher.next_deadline_ms()

    def test_more_time_for_the_only_message_of_a_key(self) -> None:
        dispatcher = subscription("ann", batch_per_key=3, ack_timeout_ms=9)
        fill(dispatcher, "a1")
        dispatcher.extend(0, "ann", 1, extend_ms=50)
        assert 50 == dispatcher.next_deadline_ms()

    def test_what_ends_all_that_a_consumer_holds_ends_each_in_its_own_right(self) -> None:
        evicted = self.taken(on_evict=OnEvict.DROP, inactive_grace_ms=0)
        evicted.set_inactive("ann")
        assert [0, 1, 2] == [each.offset for each in evicted.handle_timeout() if isinstance(each, Dropped)]
        assert [ReleaseReason.REMOVED] * 3 == [reason for _, reason, *_ in endings(self.taken().remove_consumer("ann"))]

    def test_a_late_ack_settles_one_and_leaves_the_rest(self) -> None:
        dispatcher = self.taken(retry=RetryPolicy(base_delay_ms=50))
        dispatcher.nack(0, "ann", 1)
        assert [] == dispatcher.ack_through(1, "ann", 1)
        assert [0, 2] == [each.offset for each in dispatcher.outstanding()]

    def test_a_drain_timeout_puts_all_of_it_back_uncounted(self) -> None:
        dispatcher = batching("b1", "b1", "b1", drain_timeout_ms=20, ack_timeout_ms=None, batch=2)
        dispatcher.add_consumer("ann", now_ms=0)
        dispatcher.add_consumer("bob", now_ms=0)
        assert Blocking(BlockReason.DRAINING, "ann") == dispatcher.why_blocked(2)
        effects = dispatcher.handle_timeout(now_ms=20)
        assert [ReleaseReason.DRAIN_TIMEOUT] * 2 == [reason for _, reason, *_ in endings(effects)]
        assert [(0, "bob"), (1, "bob")] == delivered(effects)


class TestAckThrough:
    """How far a handler has come."""

    def test_it_settles_what_is_open_of_the_key_up_to_there(self) -> None:
        dispatcher = batching("a1", "b1", "a1", "a1", "a1")
        dispatcher.add_consumer("ann")
        assert [advanced(0)] == dispatcher.ack_through(2, "ann", 1)
        assert [1, 3] == [each.offset for each in dispatcher.in_flight()]

    def test_it_works_without_batches(self) -> None:
        dispatcher = subscription("ann", max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a1", "a1")
        assert [deliver(2, "a1", "ann"), advanced(1)] == dispatcher.ack_through(1, "ann", 1)

    def test_what_has_come_back_is_not_settled_with_it(self) -> None:
        dispatcher = subscription("ann", max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a1")
        dispatcher.nack(0, "ann", 1)
        assert [] == dispatcher.ack_through(1, "ann", 1)
        assert [0] == [each.offset for each in dispatcher.outstanding()]

    def test_one_that_names_nothing_current_settles_nothing_older(self) -> None:
        dispatcher = batching("a1", "a1")
        dispatcher.add_consumer("ann")
        (ignored,) = dispatcher.ack_through(1, "ann", 7)
        assert isinstance(ignored, Ignored)
        assert IgnoredReason.UNKNOWN_ATTEMPT is ignored.reason
        assert 2 == len(dispatcher.in_flight())

    def test_what_cannot_be_a_receipt_is_refused(self) -> None:
        with pytest.raises(ArgumentError, match="attempt"):
            subscription("ann").ack_through(0, "ann", "1")  # type: ignore[arg-type]  # on purpose


class TestWithOtherRules:
    """What other rules say of a message holds for each message of a batch."""

    def test_each_message_of_a_batch_is_told_once_and_how_it_ended(self) -> None:
        dispatcher = batching("a1", "a1", "a1", "a1", "a1", batch=5, tell_settled=True, retry=AT_ONCE)
        dispatcher.add_consumer("ann")
        acked = [Done(offset, b"a1", Ending.ACKED) for offset in range(5)]
        assert [*acked[:2], advanced(1)] == dispatcher.ack_through(1, "ann", 1)
        dispatcher.nack(3, "ann", 1)
        assert [Done(4, b"a1", Ending.LATE_ACK)] == dispatcher.ack(4, "ann", 1)
        assert [acked[2], deliver(3, "a1", "ann", 2, failures=1), advanced(2)] == dispatcher.ack_through(2, "ann", 1)
        assert [acked[3], advanced(4)] == dispatcher.ack_through(3, "ann", 2)

    def test_what_is_postponed_keeps_back_what_came_back_with_it(self) -> None:
        dispatcher = batching("a1", "a1", "a1")
        dispatcher.add_consumer("ann", now_ms=0)
        broken = [(1, ReleaseReason.RELEASED, 0, 50), (2, ReleaseReason.BATCH_BROKEN, 0, 0)]
        assert broken == endings(dispatcher.release(1, "ann", 1, delay_ms=50))
        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
        why = dispatcher.why_blocked(1), dispatcher.why_blocked(2)
        assert [(BlockReason.POSTPONED, None), (BlockReason.OLDER_WAITS, 1)] == [
            (each.reason, each.behind) for each in why if each is not None
        ]
        again = Watched.restore(
            json.loads(json.dumps(dispatcher.snapshot())), AlphabetRing(), dispatcher.config, now_ms=0
        )
        for each in (dispatcher, again):
            assert [(1, "ann"), (2, "ann")] == delivered(each.handle_timeout(now_ms=50))

    def test_a_message_that_is_for_later_ends_a_batch_and_begins_the_next_one(self) -> None:
        dispatcher = subscription(batch_per_key=3)
        dispatcher.offer(0, "a1", now_ms=0)
        dispatcher.offer(1, "a1", not_before_ms=50)
        dispatcher.offer(2, "a1")
        assert [(0, "ann")] == delivered(dispatcher.add_consumer("ann"))
        assert [] == dispatcher.handle_timeout(now_ms=50)
        assert [(1, "ann"), (2, "ann")] == delivered(dispatcher.ack(0, "ann", 1))

    def test_the_reason_of_a_failure_is_that_of_the_one_that_failed(self) -> None:
        dispatcher = batching("a1", "a1")
        dispatcher.add_consumer("ann")
        dispatcher.nack(0, "ann", 1, reason="refused")
        assert ["refused", None] == [each.reason for each in dispatcher.outstanding()]


def test_a_snapshot_knows_the_batch_because_it_knows_what_is_open() -> None:
    dispatcher = batching("a1", "a1", "a1", "a1", batch=2)
    dispatcher.add_consumer("ann", now_ms=0)
    dispatcher.ack(1, "ann", 1)
    state = json.loads(json.dumps(dispatcher.snapshot()))
    again = Watched.restore(state, AlphabetRing(), dispatcher.config, now_ms=0)
    assert [(2, "ann"), (3, "ann")] == delivered(dispatcher.ack(0, "ann", 1)) == delivered(again.ack(0, "ann", 1))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"batch_per_key": 0}, "batch_per_key is 0"),
        ({"batch_per_key": 2, "max_in_flight_per_key": 2}, "in batches or in a pipeline"),
        ({"batch_per_key": 2, "max_loaded_per_key": 1}, "be at least batch_per_key, 2"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(config: dict[str, int], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        DispatcherConfig(**config)  # type: ignore[arg-type]  # ints only


@pytest.mark.parametrize(("broken", "found"), [(KeySharedDispatcher, []), (BatchWithAHole, [Promise.KEY_ORDER])])
def test_a_hole_in_a_batch_is_found(broken: type[Any], found: list[Promise]) -> None:
    config = DispatcherConfig(batch_per_key=3, retry=RetryPolicy(base_delay_ms=50))
    recorder = Recorder(broken(AlphabetRing(), config))
    fill(recorder, "a1", "a1", "a1")  # type: ignore[arg-type]  # it has any call
    recorder.add_consumer("ann")
    recorder.nack(1, "ann", 1)
    recorder.release(0, "ann", 1)
    promises = frozenset({Promise.KEY_ORDER, Promise.WHOLE_BATCH, Promise.FAIRNESS})
    claims = Claims(promises=promises, per_key=3, batches=True, fairness=0)
    assert found == [violation.promise for violation in check_history(recorder.history, claims)]
