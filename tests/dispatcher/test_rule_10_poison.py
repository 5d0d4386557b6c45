"""Rule 10: what becomes of a message that is given up, and of those behind it, which are never thrown away."""

from typing import Any

from tests.alphabet import Watched, advanced, deliver, fill, subscription, then

from keyshared.config import Poison, RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.effects import (
    Blocked,
    BlockReason,
    Call,
    DeadLetter,
    Dropped,
    DropReason,
    Ignored,
    IgnoredReason,
    Load,
    Settled,
    SettleReason,
)


def poisoned(poison: Poison = Poison.DEAD_LETTER, **config: Any) -> Watched:
    """One failure is too many; 0, 1 and 3 are of key a1, 2 of a2."""
    dispatcher = subscription("ann", **{"poison": poison, "retry": RetryPolicy(max_redeliveries=0), **config})
    fill(dispatcher, "a1", "a1", "a2", "a1")
    return dispatcher


class TestDrop:
    """Given up, reported, settled."""

    def test_the_message_is_lost_and_those_behind_it_are_not(self) -> None:
        assert [
            Dropped(0, b"a1", DropReason.POISON),
            deliver(1, "a1", "ann"),
            advanced(0),
        ] == then(poisoned(Poison.DROP).nack(0, "ann", 1))


class TestDeadLetter:
    """Written elsewhere, and settled when that is confirmed."""

    def test_the_key_waits_until_the_write_is_confirmed(self) -> None:
        # Settled on the attempt to write it, a message is lost when the write fails.
        dispatcher = poisoned(Poison.DEAD_LETTER)

        assert [DeadLetter(0, b"a1", 1, 1, None)] == then(dispatcher.nack(0, "ann", 1))
        assert (None, Blocking(BlockReason.DEAD_LETTERING)) == (dispatcher.safe_cursor, dispatcher.why_blocked(0))
        assert Blocking(BlockReason.OLDER_WAITS, behind=0) == dispatcher.why_blocked(1)
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.dead_lettered(0)

    def test_an_unconfirmed_write_is_asked_for_again(self) -> None:
        dispatcher = poisoned(Poison.DEAD_LETTER)
        [letter] = then(dispatcher.nack(0, "ann", 1))

        assert [letter, deliver(2, "a2", "ann")] == dispatcher.outstanding_effects()
        assert dispatcher.is_current(letter)
        dispatcher.dead_lettered(0)
        assert not dispatcher.is_current(letter)

    def test_other_keys_do_not_notice(self) -> None:
        dispatcher = poisoned(Poison.DEAD_LETTER)
        dispatcher.nack(0, "ann", 1)

        assert [deliver(4, "a2", "ann")] == [*dispatcher.offer(4, "a2"), *dispatcher.ack(2, "ann", 1)]

    def test_confirming_what_is_not_being_written_changes_nothing(self) -> None:
        dispatcher = poisoned(Poison.DEAD_LETTER)
        before = dispatcher.snapshot()

        not_asked = IgnoredReason.NOT_DEAD_LETTERING
        assert [Ignored(0, None, None, Call.DEAD_LETTERED, not_asked)] == dispatcher.dead_lettered(0)
        assert [Ignored(9, None, None, Call.DEAD_LETTERED, IgnoredReason.UNKNOWN_OFFSET)] == dispatcher.dead_lettered(9)
        assert before == dispatcher.snapshot()

    def test_the_payload_goes_with_it(self) -> None:
        dispatcher = subscription("ann")
        dispatcher.offer(0, "a1", "payload")

        assert [DeadLetter(0, b"a1", 1, 1, "payload")] == then(dispatcher.reject(0, "ann", 1))

    def test_several_of_a_key_can_be_on_their_way_there(self) -> None:
        dispatcher = poisoned(Poison.DEAD_LETTER, max_in_flight_per_key=3)
        dispatcher.reject(3, "ann", 1)
        dispatcher.reject(0, "ann", 1)

        assert [] == dispatcher.dead_lettered(3)
        assert [advanced(0)] == dispatcher.dead_lettered(0)


class TestBlock:
    """Kept, and the key with it, until somebody decides."""

    def test_only_its_key_stands_still(self) -> None:
        dispatcher = poisoned(Poison.BLOCK)

        assert [Blocked(0, b"a1", 1)] == then(dispatcher.nack(0, "ann", 1))
        assert Blocking(BlockReason.BLOCKED) == dispatcher.why_blocked(0)
        assert [] == dispatcher.ack(2, "ann", 1)
        assert [deliver(4, "a2", "ann")] == dispatcher.offer(4, "a2")

    def test_unblocked_it_is_delivered_again_before_everything_newer(self) -> None:
        dispatcher = poisoned(Poison.BLOCK)
        dispatcher.nack(0, "ann", 1)

        assert [deliver(0, "a1", "ann", 2)] == dispatcher.unblock("a1")
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 2)

    def test_parked_it_is_settled_and_the_key_goes_on(self) -> None:
        dispatcher = poisoned(Poison.BLOCK)
        dispatcher.nack(0, "ann", 1)

        assert [
            Settled(0, b"a1", SettleReason.PARKED),
            deliver(1, "a1", "ann"),
            advanced(0),
        ] == dispatcher.park(0)

    def test_unblock_acts_on_all_of_the_key_and_park_on_one(self) -> None:
        dispatcher = poisoned(Poison.BLOCK, max_in_flight_per_key=3)
        for offset in (3, 0, 1):
            dispatcher.nack(offset, "ann", 1)

        assert [Settled(1, b"a1", SettleReason.PARKED)] == dispatcher.park(1)
        assert [deliver(0, "a1", "ann", 2), deliver(3, "a1", "ann", 2)] == dispatcher.unblock(b"a1")

    def test_there_is_nothing_to_unblock_or_park_where_nothing_is_blocked(self) -> None:
        dispatcher = poisoned(Poison.BLOCK)
        before = dispatcher.snapshot()

        assert ([], []) == (dispatcher.unblock("a1"), dispatcher.unblock("never seen"))
        assert [Ignored(0, None, None, Call.PARK, IgnoredReason.NOT_BLOCKED)] == dispatcher.park(0)
        assert [Ignored(9, None, None, Call.PARK, IgnoredReason.UNKNOWN_OFFSET)] == dispatcher.park(9)
        assert before == dispatcher.snapshot()

    def test_blocked_messages_without_a_key_are_unblocked_together(self) -> None:
        dispatcher = subscription("ann", poison=Poison.BLOCK)
        fill(dispatcher, None, None)
        dispatcher.reject(0, "ann", 1)
        dispatcher.reject(1, "ann", 1)

        assert [deliver(0, None, "ann", 2), deliver(1, None, "ann", 2)] == dispatcher.unblock(None)

    def test_a_blocked_message_outlives_its_consumer(self) -> None:
        dispatcher = poisoned(Poison.BLOCK)
        dispatcher.nack(0, "ann", 1)
        dispatcher.remove_consumer("ann")

        assert [deliver(2, "a2", "bob", 2)] == dispatcher.add_consumer("bob")
        assert [deliver(0, "a1", "bob", 2)] == dispatcher.unblock("a1")

    def test_what_is_blocked_can_still_be_gone_from_the_log(self) -> None:
        dispatcher = poisoned(Poison.BLOCK)
        dispatcher.nack(0, "ann", 1)

        assert deliver(1, "a1", "ann") in dispatcher.truncate(1)
        assert [] == dispatcher.unblock("a1")

    def test_one_blocked_message_can_be_let_go_on_alone(self) -> None:
        dispatcher = poisoned(Poison.BLOCK, max_in_flight_per_key=2)
        dispatcher.nack(0, "ann", 1)
        dispatcher.nack(1, "ann", 1)

        assert [] == dispatcher.unblock_offset(1)
        assert [deliver(0, "a1", "ann", 2), deliver(1, "a1", "ann", 2)] == dispatcher.unblock_offset(0)
        assert [Ignored(0, None, None, Call.UNBLOCK_OFFSET, IgnoredReason.NOT_BLOCKED)] == dispatcher.unblock_offset(0)

    def test_one_that_keeps_its_failures_gets_one_more_delivery(self) -> None:
        dispatcher = poisoned(Poison.BLOCK)
        dispatcher.nack(0, "ann", 1)

        assert [deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.unblock_offset(0, reset_failures=False)
        assert [Blocked(0, b"a1", 2)] == then(dispatcher.nack(0, "ann", 2))


class TestBlockAndDeadLetter:
    """A copy for whoever looks at it, and the key waits for what they find."""

    def test_it_is_written_first_and_blocked_then(self) -> None:
        dispatcher = poisoned(Poison.BLOCK, archive_blocked=True)

        assert [DeadLetter(0, b"a1", 1, 1, None)] == then(dispatcher.nack(0, "ann", 1))
        assert ([], None) == (dispatcher.unblock("a1"), dispatcher.safe_cursor)
        assert [Blocked(0, b"a1", 1)] == dispatcher.dead_lettered(0)
        assert [deliver(0, "a1", "ann", 2)] == dispatcher.unblock("a1")


class TestQuarantine:
    """The dead letters own the key: everything of it goes there, in order, one at a time."""

    def test_what_follows_takes_the_same_way_in_order(self) -> None:
        # To deliver 1 normally, its effects without those of 0, is what such a key must be protected from.
        dispatcher = poisoned(quarantine=True)

        assert [DeadLetter(0, b"a1", 1, 1, None)] == then(dispatcher.nack(0, "ann", 1))
        assert [DeadLetter(1, b"a1", 0, 0, None), advanced(0)] == dispatcher.dead_lettered(0)
        assert [DeadLetter(3, b"a1", 0, 0, None), advanced(1)] == dispatcher.dead_lettered(1)
        assert [] == dispatcher.dead_lettered(3)
        assert [DeadLetter(4, b"a1", 0, 0, "late")] == dispatcher.offer(4, "a1", "late")

    def test_other_keys_go_their_usual_way(self) -> None:
        dispatcher = poisoned(quarantine=True)
        dispatcher.nack(0, "ann", 1)

        assert [] == dispatcher.ack(2, "ann", 1)
        assert [deliver(4, "a2", "ann")] == dispatcher.offer(4, "a2")

    def test_it_waits_for_what_a_consumer_still_has_of_the_key(self) -> None:
        dispatcher = poisoned(quarantine=True, max_in_flight_per_key=2)

        assert [] == then(dispatcher.nack(0, "ann", 1))
        assert Blocking(BlockReason.QUARANTINED, "ann") == dispatcher.why_blocked(0)
        assert [DeadLetter(0, b"a1", 1, 1, None)] == dispatcher.ack(1, "ann", 1)

    def test_unblock_gives_the_key_back_to_its_consumer(self) -> None:
        dispatcher = poisoned(quarantine=True)
        dispatcher.nack(0, "ann", 1)

        assert [] == dispatcher.unblock("a1")
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.dead_lettered(0)

    def test_unblock_lets_go_what_waited_for_the_quarantine(self) -> None:
        dispatcher = poisoned(quarantine=True, max_in_flight_per_key=2)
        dispatcher.nack(0, "ann", 1)

        assert [deliver(0, "a1", "ann", 2)] == dispatcher.unblock("a1")

    def test_unblock_counts_a_second_poison_message_anew(self) -> None:
        """attempts: its failures were at their limit, and nobody had asked for its dead letter yet."""
        dispatcher = poisoned(quarantine=True, max_in_flight_per_key=2)
        dispatcher.nack(0, "ann", 1)
        dispatcher.nack(1, "ann", 1)

        assert Blocking(BlockReason.QUARANTINED, behind=0) == dispatcher.why_blocked(1)
        assert [] == dispatcher.unblock("a1")
        assert Blocking(BlockReason.OLDER_WAITS, behind=0) == dispatcher.why_blocked(1)
        assert deliver(1, "a1", "ann", 2) in dispatcher.dead_lettered(0)

    def test_unblock_leaves_the_failures_of_what_waits_for_its_retry(self) -> None:
        retry = RetryPolicy(max_redeliveries=1, base_delay_ms=5)
        dispatcher = poisoned(quarantine=True, max_in_flight_per_key=2, retry=retry)
        dispatcher.nack(1, "ann", 1, now_ms=0)
        dispatcher.reject(0, "ann", 1, now_ms=0)

        assert [] == dispatcher.unblock("a1", now_ms=1)
        dispatcher.dead_lettered(0, now_ms=1)
        assert deliver(1, "a1", "ann", 2, failures=1) in dispatcher.handle_timeout(now_ms=5)

    def test_a_key_stays_quarantined_after_its_last_message(self) -> None:
        dispatcher = subscription("ann", quarantine=True)
        fill(dispatcher, "a1")
        dispatcher.reject(0, "ann", 1)
        assert [advanced(0)] == dispatcher.dead_lettered(0)

        assert [DeadLetter(1, b"a1", 0, 0, None)] == dispatcher.offer(1, "a1")

    def test_the_empty_key_is_a_key_that_can_be_quarantined(self) -> None:
        dispatcher = subscription("ann", quarantine=True)
        fill(dispatcher, "", "")
        dispatcher.reject(0, "ann", 1)

        assert [DeadLetter(1, b"", 0, 0, None), advanced(0)] == dispatcher.dead_lettered(0)

    def test_its_wait_for_open_deliveries_is_no_drain_and_has_no_deadline(self) -> None:
        dispatcher = poisoned(quarantine=True, max_in_flight_per_key=2, drain_timeout_ms=100, ack_timeout_ms=None)
        dispatcher.nack(0, "ann", 1)

        assert None is dispatcher.next_deadline_ms()

    def test_spilled_messages_are_read_again_on_their_way(self) -> None:
        dispatcher = poisoned(quarantine=True, max_loaded_per_key=1)
        dispatcher.nack(0, "ann", 1)

        assert [Load(1, b"a1"), advanced(0)] == dispatcher.dead_lettered(0)
        assert [DeadLetter(1, b"a1", 0, 0, "x")] == dispatcher.loaded(1, "x")

    def test_it_needs_no_consumer(self) -> None:
        dispatcher = poisoned(quarantine=True)
        dispatcher.nack(0, "ann", 1)
        dispatcher.remove_consumer("ann")

        assert [DeadLetter(1, b"a1", 0, 0, None), advanced(0)] == dispatcher.dead_lettered(0)

    def test_a_message_without_a_key_has_nothing_to_quarantine(self) -> None:
        dispatcher = subscription("ann", quarantine=True)
        fill(dispatcher, None, None)

        assert [DeadLetter(0, None, 1, 1, None)] == then(dispatcher.reject(0, "ann", 1))
        assert [advanced(0)] == dispatcher.dead_lettered(0)
        assert [deliver(2, None, "ann")] == dispatcher.offer(2, None)
