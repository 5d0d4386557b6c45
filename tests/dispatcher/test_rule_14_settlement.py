"""Rule 14: of each message it is said once that it is done, and a mark changes with what a restart would redo."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, advanced, deliver, fill, subscription

from keyshared.config import DispatcherConfig, OnEvict, Poison, RetryPolicy, Unmatched
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import DeadLetter, Done, Effect, Ending, Skipped, SkipReason, Spilled

TELLING = DispatcherConfig(tell_settled=True)


def telling(*consumers: str, **config: Any) -> KeySharedDispatcher:
    return subscription(*consumers, tell_settled=True, **config)


def done(effects: list[Effect]) -> list[tuple[int, Ending]]:
    return [(effect.offset, effect.how) for effect in effects if isinstance(effect, Done)]


class TestHowItEnded:
    def test_an_ack_is_told_with_the_key_before_what_it_makes_possible(self) -> None:
        dispatcher = telling("ann")
        fill(dispatcher, "a1", "a1")

        assert [Done(0, b"a1", Ending.ACKED), deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_nothing_is_told_unless_it_is_asked_for(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")

        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_an_ack_of_an_ended_delivery_is_late(self) -> None:
        dispatcher = telling("ann")
        fill(dispatcher, "a1")
        dispatcher.nack(0, "ann", 1)

        assert [(0, Ending.LATE_ACK)] == done(dispatcher.ack(0, "ann", 1))

    def test_a_late_ack_that_was_noted_counts_when_the_newer_delivery_ends(self) -> None:
        dispatcher = telling("ann", retry=RetryPolicy(base_delay_ms=0))
        fill(dispatcher, "a1")
        dispatcher.nack(0, "ann", 1)

        assert [] == done(dispatcher.ack(0, "ann", 1))
        assert [(0, Ending.LATE_ACK)] == done(dispatcher.release(0, "ann", 2))

    def test_a_dead_letter_is_done_when_it_is_written(self) -> None:
        dispatcher = telling("ann")
        fill(dispatcher, "a1")

        assert [] == done(dispatcher.reject(0, "ann", 1))
        assert [Done(0, b"a1", Ending.DEAD_LETTERED), advanced(0)] == dispatcher.dead_lettered(0)

    def test_what_stays_blocked_is_done_when_it_is_parked(self) -> None:
        dispatcher = telling("ann", poison=Poison.BLOCK, archive_blocked=True)
        fill(dispatcher, "a1")
        dispatcher.reject(0, "ann", 1)

        assert [] == done(dispatcher.dead_lettered(0))
        assert [(0, Ending.PARKED)] == done(dispatcher.park(0))

    def test_poison_that_is_dropped(self) -> None:
        dispatcher = telling("ann", poison=Poison.DROP)
        fill(dispatcher, None)

        effects = dispatcher.reject(0, "ann", 1)
        assert ["Released", "Dropped", "Done", "CursorAdvanced"] == [type(effect).__name__ for effect in effects]
        assert [(0, Ending.DROPPED)] == done(effects)

    def test_an_eviction_that_gives_up_tells_of_each_in_offset_order(self) -> None:
        dispatcher = telling("ann", on_evict=OnEvict.DROP, inactive_grace_ms=5)
        fill(dispatcher, "a1", "a2")
        dispatcher.set_inactive("ann", now_ms=0)

        assert [(0, Ending.DROPPED), (1, Ending.DROPPED)] == done(dispatcher.handle_timeout(now_ms=5))

    def test_what_nobody_accepts(self) -> None:
        dispatcher = telling(unmatched=Unmatched.SKIP)
        dispatcher.add_consumer("ann", filters=["a*"])

        skipped = Skipped(0, b"b1", SkipReason.UNMATCHED)
        assert [skipped, Done(0, b"b1", Ending.UNMATCHED), advanced(0)] == dispatcher.offer(0, "b1")

    def test_what_can_no_longer_be_read_is_told_in_the_order_of_the_log(self) -> None:
        dispatcher = telling("ann", max_in_flight_per_consumer=1)
        fill(dispatcher, "a1", "a1", "a2")

        assert [(1, Ending.GONE), (2, Ending.GONE)] == done(dispatcher.truncate(3))
        assert [(0, Ending.GONE)] == done(dispatcher.release(0, "ann", 1))

    def test_a_spilled_message_is_no_end(self) -> None:
        dispatcher = telling("ann", max_loaded_per_key=1)
        fill(dispatcher, "a1")

        assert [Spilled(1)] == dispatcher.offer(1, "a1")

    def test_several_acks_are_told_in_their_order_before_all_obligations(self) -> None:
        dispatcher = telling("ann", "bob")
        fill(dispatcher, "a1", "b1", "a1", "b1")

        effects = dispatcher.ack_many([(1, "bob", 1), (0, "ann", 1)])
        assert [
            Done(1, b"b1", Ending.ACKED),
            Done(0, b"a1", Ending.ACKED),
            deliver(3, "b1", "bob"),
            deliver(2, "a1", "ann"),
            advanced(1),
        ] == effects

    def test_it_stands_before_a_dead_letter_of_the_same_call(self) -> None:
        dispatcher = telling("ann", quarantine=True)
        fill(dispatcher, "a1", "a1")
        dispatcher.reject(0, "ann", 1)

        told, letter, _ = dispatcher.dead_lettered(0)
        assert [Done, DeadLetter] == [type(told), type(letter)]


class TestEarlierLives:
    def test_what_a_token_knows_is_told_again_when_it_is_read_again(self) -> None:
        before = telling("ann")
        fill(before, "a1", "a2", "a3")
        before.ack_many([(0, "ann", 1), (2, "ann", 1)])
        after = KeySharedDispatcher(AlphabetRing(), TELLING, resume_from=before.cursor_token().text)
        after.add_consumer("ann")

        told = [done(after.offer(offset, f"a{offset + 1}")) for offset in range(3)]
        assert [[(0, Ending.EARLIER)], [], [(2, Ending.EARLIER)]] == told
        assert [(1, Ending.ACKED)] == done(after.ack(1, "ann", 1))

    def test_what_lies_below_the_start_is_done(self) -> None:
        dispatcher = telling("ann", start=7)

        assert [Done(6, b"a1", Ending.EARLIER)] == dispatcher.offer(6, "a1")

    def test_a_snapshot_tells_of_what_it_knows_as_settled_and_not_of_what_is_outstanding(self) -> None:
        before = telling("ann")
        fill(before, "a1", "a2")
        before.ack(1, "ann", 1)
        state = json.loads(json.dumps(before.snapshot()))
        after = KeySharedDispatcher.restore(state, AlphabetRing(), TELLING, now_ms=0)

        assert [[], [(1, Ending.EARLIER)]] == [done(after.offer(offset, f"a{offset + 1}")) for offset in range(2)]
        assert [(0, Ending.ACKED)] == done(after.ack(0, "ann", 1))
        assert [] == done(after.offer(2, "a3"))

    def test_a_batch_tells_of_known_messages_before_it_delivers_new_ones(self) -> None:
        dispatcher = telling("ann", start=1)

        effects = dispatcher.offer_many([(0, "a1", None), (1, "a2", None)])
        assert [Done(0, b"a1", Ending.EARLIER), deliver(1, "a2", "ann")] == effects


class TestRestartMark:
    def test_it_changes_with_each_settlement_and_each_offer_also_behind_a_slow_head(self) -> None:
        dispatcher = subscription("ann")
        marks = [dispatcher.restart_mark]
        for offset in range(3):
            dispatcher.offer(offset, f"a{offset}")
            marks.append(dispatcher.restart_mark)
        for offset in (2, 1, 0):
            dispatcher.ack(offset, "ann", 1)
            marks.append(dispatcher.restart_mark)

        assert 7 == len(set(marks))
        assert ((None, 0), (2, 0)) == (marks[0], marks[-1])

    def test_it_stands_still_while_nothing_is_settled_or_offered(self) -> None:
        dispatcher = subscription("ann")
        fill(dispatcher, "a1", "a1")
        mark = dispatcher.restart_mark
        dispatcher.nack(0, "ann", 1)
        dispatcher.handle_timeout(now_ms=1_000)
        dispatcher.add_consumer("bob")

        assert mark == dispatcher.restart_mark

    @pytest.mark.parametrize("policy", [Unmatched.SKIP, Unmatched.HOLD])
    def test_it_counts_what_is_skipped(self, policy: Unmatched) -> None:
        dispatcher = subscription(unmatched=policy)
        dispatcher.add_consumer("ann", filters=["a*"])
        dispatcher.offer(0, "b1")

        assert (0, 1 if policy is Unmatched.HOLD else 0) == dispatcher.restart_mark
