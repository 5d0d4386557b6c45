"""Rule 24: a dead letter comes back at the place in its key that it always had, and the position does not know it."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, delivered, fill, subscription

from keyshared.config import DispatcherConfig, Poison, RetryPolicy, Unmatched
from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.effects import (
    BlockReason,
    Call,
    DeadLetter,
    Done,
    Effect,
    Ending,
    Ignored,
    IgnoredReason,
    Load,
    Released,
    ReleaseReason,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.errors import (
    ArgumentError,
    ConfigError,
    KeyFullError,
    KeyTypeError,
    OffsetOrderError,
    RedriveTooEarlyError,
    WindowFullError,
)

LAST_LETTER = (1 << 63) - (1 << 31) - 1
LATER = RetryPolicy(max_redeliveries=3, base_delay_ms=50)


def redriving(*consumers: str, **config: Any) -> Watched:
    """A subscription whose dead letters may come back."""
    return subscription(*consumers, redrive=True, **config)


def bury(dispatcher: KeySharedDispatcher, *offsets: int, consumer: str = "ann") -> list[StoredLetter]:
    """Reject messages as they go out, and write their dead letters."""
    letters = []
    for offset in offsets:
        (letter,) = [each for each in dispatcher.reject(offset, consumer, 1) if isinstance(each, DeadLetter)]
        dispatcher.dead_lettered(offset)
        letters.append(StoredLetter(letter.offset, letter.attempt, letter.item))
    return letters


def ignored(offset: int, attempt: int, reason: IgnoredReason) -> Ignored:
    return Ignored(offset, None, attempt, Call.REDRIVE, reason)


def restored(dispatcher: KeySharedDispatcher, **others: Any) -> Watched:
    state = json.loads(json.dumps(dispatcher.snapshot()))
    return Watched.restore(state, AlphabetRing(), dispatcher.config, now_ms=0, **others)


@pytest.mark.parametrize("is_letter", [False, True])
def test_a_letter_that_comes_back_to_a_crowded_window_keeps_its_payload(is_letter: bool) -> None:
    dispatcher = redriving("ann", window=4, max_in_flight_per_consumer=1)
    fill(dispatcher, "a1")
    if is_letter:
        dispatcher.redrive("a1", bury(dispatcher, 0))
    fill(dispatcher, "a2", "a3", start=1)
    dispatcher.set_limit("ann", 0)
    attempt = dispatcher.in_flight()[0].attempt

    effects = dispatcher.release(0, "ann", attempt)
    assert ([] if is_letter else [Spilled(0)]) == [each for each in effects if isinstance(each, Spilled)]


class TestPlace:
    """It stands where it always stood."""

    def test_it_goes_out_before_everything_newer_that_waits(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1", "a1", "a1")
        letters = bury(dispatcher, 0)
        assert [] == dispatcher.redrive("a1", letters)
        assert [deliver(0, "a1", "ann", 2)] == dispatcher.nack(1, "ann", 1, delay_ms=9)[1:]

    def test_what_is_open_stays_open_and_it_goes_out_beside_that(self) -> None:
        dispatcher = redriving("ann", max_in_flight_per_key=3)
        fill(dispatcher, "a1", "a1", "a1", "a1")
        letters = bury(dispatcher, 0)
        dispatcher.ack(1, "ann", 1)
        assert [(0, "ann")] == delivered(dispatcher.redrive("a1", letters))
        assert [0, 2, 3] == [effect.offset for effect in dispatcher.in_flight("ann")]

    def test_several_go_out_in_their_order_whatever_order_they_are_given_in(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1", "a1", "a1", "a1")
        letters = bury(dispatcher, 0, 1, 2)
        assert [] == dispatcher.redrive("a1", reversed(letters))
        assert [(0, "ann")] == delivered(dispatcher.ack(3, "ann", 1))
        assert [(1, "ann")] == delivered(dispatcher.ack(0, "ann", 2))
        assert [(2, "ann")] == delivered(dispatcher.ack(1, "ann", 2))

    def test_one_that_came_back_later_stands_before_a_newer_one_that_came_back_first(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1", "a1", "a1")
        old, new = bury(dispatcher, 0, 1)
        assert [] == dispatcher.redrive("a1", [new]) + dispatcher.redrive("a1", [old])
        assert [(0, "ann")] == delivered(dispatcher.ack(2, "ann", 1))

    def test_it_stands_behind_older_ones_that_wait(self) -> None:
        dispatcher = redriving("ann", max_in_flight_per_key=2, retry=LATER)
        fill(dispatcher, "a1", "a1", "a1")
        dispatcher.nack(0, "ann", 1)
        letters = bury(dispatcher, 1)
        assert [] == dispatcher.redrive("a1", letters)
        assert BlockReason.OLDER_WAITS == dispatcher.why_blocked(1).reason  # type: ignore[union-attr]  # it waits
        assert [(0, "ann"), (1, "ann")] == delivered(dispatcher.handle_timeout(now_ms=50))

    def test_it_stands_behind_an_older_one_that_was_never_delivered_in_this_life(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1", "a1")
        dispatcher.gone(1)
        text = dispatcher.cursor_token().text
        again = Watched(AlphabetRing(), DispatcherConfig(redrive=True), resume_from=text)
        fill(again, "a1", "a1", "a1")
        assert [] == again.redrive("a1", [StoredLetter(1, 1, "one")])
        assert [(0, "ann")] == delivered(again.add_consumer("ann"))
        assert [deliver(1, "a1", "ann", 2, item="one"), advanced(1)] == again.ack(0, "ann", 1)
        assert [(2, "ann")] == delivered(again.ack(1, "ann", 2))

    def test_what_is_offered_afterwards_waits_behind_it(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1", "b1")
        letters = bury(dispatcher, 0)
        dispatcher.set_limit("ann", 1)
        assert [] == dispatcher.redrive("a1", letters) + dispatcher.offer(2, "a1")
        assert [(0, "ann")] == delivered(dispatcher.ack(1, "ann", 1))
        assert [(2, "ann")] == delivered(dispatcher.ack(0, "ann", 2))

    def test_a_message_without_a_key_holds_nothing(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, None, None, None)
        letters = bury(dispatcher, 0, 1)
        assert [(0, "ann"), (1, "ann")] == delivered(dispatcher.redrive(None, letters))

    def test_with_ordering_required_it_stands_before_everything_newer_of_the_log(self) -> None:
        config = {
            "ordering_required": True,
            "poison": Poison.BLOCK,
            "archive_blocked": True,
            "unmatched": Unmatched.HOLD,
        }
        dispatcher = redriving("ann", **config)
        fill(dispatcher, "a1", "b1", None, "c1")
        for offset in (0, 1, 2):
            bury(dispatcher, offset)
            dispatcher.park(offset)
        assert [] == dispatcher.redrive("b1", [StoredLetter(1, 1, None)]) + dispatcher.redrive(
            None, [StoredLetter(2, 1, None)]
        )
        assert [(1, "ann")] == delivered(dispatcher.ack(3, "ann", 1))
        assert [(2, "ann")] == delivered(dispatcher.ack(1, "ann", 2))

    def test_it_goes_to_whoever_owns_the_key_now_once_nobody_else_has_it_open(self) -> None:
        dispatcher = redriving("bob")
        fill(dispatcher, "a1", "a1")
        letters = bury(dispatcher, 0, consumer="bob")
        dispatcher.add_consumer("ann")
        assert [] == dispatcher.redrive("a1", letters)
        assert BlockReason.DRAINING == dispatcher.why_blocked(0).reason  # type: ignore[union-attr]  # it waits
        assert [(0, "ann")] == delivered(dispatcher.ack(1, "bob", 1))

    def test_all_letters_come_before_any_delivery(self) -> None:
        dispatcher = redriving("ann", max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a1", "a1")
        dispatcher.ack(0, "ann", 1), dispatcher.ack(1, "ann", 1), dispatcher.ack(2, "ann", 1)
        letters = [StoredLetter(2, 1, None), StoredLetter(0, 1, None), StoredLetter(1, 1, None)]
        assert [(0, "ann"), (1, "ann")] == delivered(dispatcher.redrive("a1", letters))


class TestLife:
    """From its first delivery on it is a message as any other."""

    def test_its_failures_begin_at_0_and_its_attempts_above_the_one_that_is_given(self) -> None:
        dispatcher = redriving("ann", retry=RetryPolicy(max_redeliveries=1, base_delay_ms=0))
        fill(dispatcher, "a1")
        dispatcher.nack(0, "ann", 1)
        (letter,) = [each for each in dispatcher.nack(0, "ann", 2) if isinstance(each, DeadLetter)]
        dispatcher.dead_lettered(0)
        back = StoredLetter(letter.offset, letter.attempt, "again")
        assert [deliver(0, "a1", "ann", 3, item="again")] == dispatcher.redrive("a1", [back])
        assert [deliver(0, "a1", "ann", 4, failures=1, item="again")] == dispatcher.nack(0, "ann", 3)[1:]

    def test_what_fails_again_is_archived_again_under_the_same_offset(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1", "a1")
        letters = bury(dispatcher, 0)
        dispatcher.redrive("a1", letters)
        dispatcher.ack(1, "ann", 1)
        archive = [each for each in dispatcher.reject(0, "ann", 2) if isinstance(each, DeadLetter)]
        assert [(0, 2, 1)] == [(each.offset, each.attempt, each.failures) for each in archive]
        assert [] == dispatcher.dead_lettered(0)
        assert dispatcher.describe(0) is None

    def test_an_ack_of_a_delivery_from_before_does_not_settle_it(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1")
        letters = bury(dispatcher, 0)
        dispatcher.redrive("a1", letters)
        assert [Ignored(0, "ann", 1, Call.ACK, IgnoredReason.UNKNOWN_ATTEMPT)] == dispatcher.ack(0, "ann", 1)
        assert [] == dispatcher.ack(0, "ann", 2)

    def test_a_late_ack_of_a_delivery_since_then_settles_it(self) -> None:
        dispatcher = redriving("ann", retry=LATER)
        fill(dispatcher, "a1")
        dispatcher.redrive("a1", bury(dispatcher, 0))
        dispatcher.nack(0, "ann", 2)
        assert [] == dispatcher.ack(0, "ann", 2)
        assert dispatcher.describe(0) is None

    def test_an_evicted_consumer_gives_it_back(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1")
        dispatcher.redrive("a1", bury(dispatcher, 0))
        assert [Released(0, "ann", 2, ReleaseReason.REMOVED, 0, 0)] == dispatcher.remove_consumer("ann")
        assert [(0, "bob")] == delivered(dispatcher.add_consumer("bob"))

    def test_whoever_truncates_the_log_keeps_it_and_gone_settles_it(self) -> None:
        dispatcher = redriving()
        fill(dispatcher, "a1", "b1")
        dispatcher.gone(0)
        dispatcher.redrive("a1", [StoredLetter(0, 1, None)])
        assert [Skipped(1, b"b1", SkipReason.GONE), advanced(1)] == dispatcher.truncate(5)
        assert [Skipped(0, b"a1", SkipReason.GONE)] == dispatcher.gone(0)

    def test_what_it_holds_is_told_as_of_any_message(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1", "a1")
        dispatcher.redrive("a1", bury(dispatcher, 0))
        assert [0, 1] == [each.offset for each in dispatcher.outstanding()]
        stats = dispatcher.stats()
        assert (2, 0, 0) == (stats.outstanding, stats.oldest_outstanding, stats.spilled)
        dispatcher.ack(1, "ann", 1)
        assert 0 == dispatcher.stats().oldest_outstanding


class TestIgnored:
    """A letter that is outstanding, or would go straight back, changes nothing."""

    def test_redriving_twice_makes_no_second_copy(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1", "a1")
        letters = bury(dispatcher, 0)
        dispatcher.redrive("a1", letters)
        assert [ignored(0, 1, IgnoredReason.IS_OUTSTANDING)] == dispatcher.redrive("a1", letters)
        assert [ignored(1, 0, IgnoredReason.IS_OUTSTANDING)] == dispatcher.redrive("a1", [StoredLetter(1, 0, None)])

    def test_of_two_letters_of_one_offset_the_first_one_counts(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1")
        dispatcher.ack(0, "ann", 1)
        effects = dispatcher.redrive("a1", [StoredLetter(0, 7, "first"), StoredLetter(0, 1, "second")])
        assert [ignored(0, 1, IgnoredReason.IS_OUTSTANDING), deliver(0, "a1", "ann", 8, item="first")] == effects

    def test_a_quarantined_key_takes_nothing_until_it_is_unblocked(self) -> None:
        dispatcher = redriving("ann", quarantine=True)
        fill(dispatcher, "a1", "a1")
        letters = bury(dispatcher, 0)
        assert [ignored(0, 1, IgnoredReason.IS_QUARANTINED)] == dispatcher.redrive("a1", letters)
        dispatcher.unblock("a1")
        dispatcher.dead_lettered(1)
        assert [(0, "ann")] == delivered(dispatcher.redrive("a1", letters))

    def test_none_is_not_a_letter_too_many(self) -> None:
        assert [] == redriving("ann").redrive("a1", [])


class TestRefused:
    """What can never work, or not now, raises and changes nothing."""

    def test_a_dispatcher_that_was_not_asked_for_it_redrives_nothing(self) -> None:
        with pytest.raises(
            ConfigError, match=r"redrive is False; it must be True to redrive: DispatcherConfig\(redrive=True\)"
        ):
            subscription("ann").redrive("a1", [])

    @pytest.mark.parametrize(
        "letter", [None, (0, 1), (0, 1, None, None), [0, 1, None], ("0", 1, None), (0, "1", None), (0, -1, None)]
    )
    def test_what_is_no_letter_is_refused(self, letter: Any) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1")
        with pytest.raises(ArgumentError):
            dispatcher.redrive("a1", [letter])

    def test_an_attempt_that_leaves_no_room_for_more_is_refused(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1")
        bury(dispatcher, 0)
        before = dispatcher.snapshot()
        with pytest.raises(ArgumentError, match=f"attempt is {LAST_LETTER + 1}; it must be below {LAST_LETTER + 1}: "):
            dispatcher.redrive("a1", [StoredLetter(0, LAST_LETTER + 1)])
        assert before == dispatcher.snapshot()

    def test_an_offset_that_may_still_be_offered_is_refused_with_all_others(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1", "a1")
        letters = bury(dispatcher, 0)
        with pytest.raises(
            RedriveTooEarlyError, match="cannot redrive offset 2: the log was offered up to 1"
        ) as raised:
            dispatcher.redrive("a1", [*letters, StoredLetter(2, 1, None)])
        assert isinstance(raised.value, OffsetOrderError)
        assert (2, 1) == (raised.value.offset, raised.value.last)
        assert [(1, "ann")] == [(each.offset, each.consumer) for each in dispatcher.in_flight()]

    def test_before_anything_is_known_of_the_log_nothing_comes_back(self) -> None:
        with pytest.raises(RedriveTooEarlyError):
            redriving("ann").redrive("a1", [StoredLetter(0, 1, None)])

    @pytest.mark.parametrize("offset", [0, 6])
    def test_below_the_start_everything_may_come_back(self, offset: int) -> None:
        dispatcher = redriving("ann", start=7)
        assert [(offset, "ann")] == delivered(dispatcher.redrive("a1", [StoredLetter(offset, 1, None)]))
        with pytest.raises(RedriveTooEarlyError):
            dispatcher.redrive("a1", [StoredLetter(7, 1, None)])
        assert [(7, "ann")] == delivered(dispatcher.offer(7, "b1"))

    def test_what_a_token_knows_as_settled_comes_back_once_it_is_offered_again(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "b1", "a1")
        bury(dispatcher, 1)
        again = Watched(AlphabetRing(), DispatcherConfig(redrive=True), resume_from=dispatcher.cursor_token().text)
        with pytest.raises(RedriveTooEarlyError):
            again.redrive("a1", [StoredLetter(1, 1, None)])
        fill(again, "b1", "a1")
        again.redrive("a1", [StoredLetter(1, 1, None)])
        assert [(0, "ann"), (1, "ann")] == delivered(again.add_consumer("ann"))

    def test_letters_that_find_no_free_slot_are_refused_together(self) -> None:
        dispatcher = redriving("ann", window=3)
        fill(dispatcher, "a1", "a1", "a1")
        letters = bury(dispatcher, 0, 1)
        dispatcher.offer(3, "b1")
        with pytest.raises(WindowFullError):
            dispatcher.redrive("a1", letters)
        assert [] == dispatcher.redrive("a1", letters[:1])


class TestPosition:
    """The log does not know that anything has come back."""

    def test_position_token_and_mark_are_as_before(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1", "b1", "a1")
        letters = bury(dispatcher, 0)

        def position() -> tuple[object, ...]:
            token = dispatcher.cursor_token().text
            return dispatcher.safe_cursor, dispatcher.resume_offset, token, dispatcher.restart_mark

        before = position()
        dispatcher.redrive("a1", letters)
        assert before == position()
        assert [] == dispatcher.acked_ranges()
        dispatcher.ack(2, "ann", 1)
        acked = position()
        assert [] == dispatcher.ack(0, "ann", 2)
        assert acked == position() != before

    def test_a_cursor_that_moves_is_told_while_something_is_back(self) -> None:
        dispatcher = redriving("ann", max_in_flight_per_key=2)
        fill(dispatcher, "a1", "b1", "c1")
        dispatcher.redrive("a1", bury(dispatcher, 0))
        assert [[], [advanced(2)]] == [dispatcher.ack(2, "ann", 1), dispatcher.ack(1, "ann", 1)]
        assert [deliver(3, "a2", "ann")] == dispatcher.offer(3, "a2")
        assert [advanced(3)] == dispatcher.ack(3, "ann", 1)
        assert 0 == next(dispatcher.outstanding()).offset

    def test_what_reads_on_is_unmatched_where_only_something_that_is_back_is_outstanding(self) -> None:
        dispatcher = redriving("ann", unmatched=Unmatched.SKIP)
        fill(dispatcher, "a1")
        dispatcher.redrive("a1", bury(dispatcher, 0))
        dispatcher.set_filters("ann", ["b*"])
        assert [Skipped(1, b"c1", SkipReason.UNMATCHED), advanced(1)] == dispatcher.offer(1, "c1")


class TestMemory:
    """What is back has its payload, and counts."""

    def test_it_takes_a_slot_of_the_window_and_of_what_is_tracked(self) -> None:
        dispatcher = redriving("ann", window=3, max_tracked=3)
        fill(dispatcher, "a1", "b1")
        letters = bury(dispatcher, 0)
        assert 2 == dispatcher.free_slots
        dispatcher.redrive("a1", letters)
        assert 1 == dispatcher.free_slots
        dispatcher.offer(2, "c1")
        with pytest.raises(WindowFullError):
            dispatcher.offer(3, "c1")
        dispatcher.ack(0, "ann", 2)
        assert 1 == dispatcher.free_slots

    def test_it_is_never_spilled_and_what_is_spilled_beside_it_is_loaded_as_ever(self) -> None:
        dispatcher = redriving("ann", max_loaded_per_key=1)
        effects = fill(dispatcher, "a1", "a1", "a1", "a1")
        assert [Spilled(1), Spilled(2), Spilled(3)] == [each for each in effects if isinstance(each, Spilled)]
        archive = dispatcher.reject(0, "ann", 1)
        assert [DeadLetter] == [type(each) for each in archive[1:]]
        assert [Load(1, b"a1")] == dispatcher.dead_lettered(0)[:1]
        assert [] == dispatcher.redrive("a1", [StoredLetter(0, 1, "zero")])[1:]
        assert [(0, "ann")] == delivered(dispatcher.in_flight())
        assert [] == dispatcher.loaded(1)
        assert [deliver(1, "a1", "ann")] == dispatcher.ack(0, "ann", 2)
        assert [Load(2, b"a1")] == [each for each in dispatcher.ack(1, "ann", 1) if isinstance(each, Load)]

    def test_a_slot_that_it_frees_loads_nothing_beyond_the_limit_of_its_key(self) -> None:
        dispatcher = redriving(max_loaded_per_key=1)
        fill(dispatcher, "a1")
        dispatcher.gone(0)
        fill(dispatcher, "a1", "a1", start=1)
        dispatcher.redrive("a1", [StoredLetter(0, 1, None)])
        assert [Skipped(0, b"a1", SkipReason.GONE)] == dispatcher.gone(0)
        assert 1 == dispatcher.stats().loaded

    def test_between_spilled_ones_it_stays_loaded(self) -> None:
        dispatcher = redriving("ann", max_loaded_per_key=1)
        fill(dispatcher, "a1", "a1", "a1", "a1")
        dispatcher.gone(2)
        text = dispatcher.cursor_token().text
        again = Watched(AlphabetRing(), dispatcher.config, resume_from=text)
        fill(again, "a1", "a1", "a1", "a1")
        again.redrive("a1", [StoredLetter(2, 1, "two")])
        assert [(0, "ann")] == delivered(again.add_consumer("ann"))
        assert [Load(1, b"a1"), advanced(0)] == again.ack(0, "ann", 1)
        assert [deliver(1, "a1", "ann", item="one")] == again.loaded(1, "one")
        assert [deliver(2, "a1", "ann", 2, item="two"), advanced(2)] == again.ack(1, "ann", 1)
        assert [Load(3, b"a1")] == again.ack(2, "ann", 2)

    def test_the_limits_of_what_waits_count_it_and_do_not_refuse_it(self) -> None:
        dispatcher = redriving(window=9, spill=False, max_waiting_per_key=2)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("ann")
        fill(dispatcher, "a1", start=1)
        letters = bury(dispatcher, 0)
        fill(dispatcher, "a1", start=2)
        assert [] == dispatcher.redrive("a1", letters)
        assert 0 == dispatcher.room_for("a1")
        with pytest.raises(KeyFullError):
            dispatcher.offer(3, "a1")
        assert [(0, "ann")] == delivered(dispatcher.ack(1, "ann", 1))
        assert 1 == dispatcher.room_for("a1")


class TestSettlement:
    """Of each return it is said once that it is done."""

    def test_each_return_ends_with_a_word_of_its_own(self) -> None:
        dispatcher = redriving("ann", tell_settled=True)
        fill(dispatcher, "a1")
        dispatcher.reject(0, "ann", 1)
        assert [Done(0, b"a1", Ending.DEAD_LETTERED), advanced(0)] == dispatcher.dead_lettered(0)
        dispatcher.redrive("a1", [StoredLetter(0, 1)])
        assert [Done(0, b"a1", Ending.ACKED)] == dispatcher.ack(0, "ann", 2)
        dispatcher.redrive("a1", [StoredLetter(0, 2)])
        dispatcher.reject(0, "ann", 3)
        assert [Done(0, b"a1", Ending.DEAD_LETTERED)] == dispatcher.dead_lettered(0)

    def test_what_is_read_again_while_it_is_back_is_not_done_yet(self) -> None:
        dispatcher = redriving("ann", tell_settled=True, start=5)
        dispatcher.redrive("a1", [StoredLetter(3, 1)])
        assert [] == dispatcher.offer(3, "a1", "from the log")
        assert "from the log" == dispatcher.in_flight()[0].item
        assert [Done(2, b"b1", Ending.EARLIER)] == dispatcher.offer(2, "b1")


class TestSnapshot:
    """A snapshot knows what is back, so a restart of one needs no second redrive."""

    def test_a_restored_dispatcher_goes_on_with_what_was_back(self) -> None:
        dispatcher = redriving("ann", retry=LATER, max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a1", "a1", "b1", None)
        dispatcher.redrive("a1", bury(dispatcher, 0, 1))
        dispatcher.redrive("b1", bury(dispatcher, 3))
        dispatcher.redrive(None, bury(dispatcher, 4))
        dispatcher.nack(3, "ann", 2)
        again = restored(dispatcher, items={4: "item"})
        assert dispatcher.snapshot() == again.snapshot()
        assert dispatcher.stats() == again.stats()
        assert dispatcher.handle_timeout(now_ms=60) == again.handle_timeout(now_ms=60)
        assert "item" in [each.item for each in again.in_flight()]

    def test_the_greatest_letter_that_is_taken_is_stored_however_often_it_fails(self) -> None:
        dispatcher = redriving("ann", retry=LATER)
        fill(dispatcher, "a1")
        bury(dispatcher, 0)
        dispatcher.redrive("a1", [StoredLetter(0, LAST_LETTER)])
        for attempt in range(LAST_LETTER + 1, LAST_LETTER + 4):
            dispatcher = restored(dispatcher)
            assert [attempt] == [each.attempt for each in dispatcher.in_flight("ann")]
            dispatcher.nack(0, "ann", attempt)
            dispatcher.handle_timeout(now_ms=dispatcher.next_deadline_ms())

    def test_letters_of_the_last_epoch_come_back(self) -> None:
        dispatcher = restored(redriving("ann"), epoch=(1 << 31) - 1)
        dispatcher.offer(0, "a1")
        (first,) = dispatcher.in_flight("ann")
        (letter,) = [each for each in dispatcher.reject(0, "ann", first.attempt) if isinstance(each, DeadLetter)]
        dispatcher.dead_lettered(0)
        (again,) = dispatcher.redrive("a1", [StoredLetter(letter.offset, letter.attempt)])
        assert again == deliver(0, "a1", "ann", letter.attempt + 1)

    def test_a_blocked_one_is_blocked_again(self) -> None:
        dispatcher = redriving("ann", poison=Poison.BLOCK)
        fill(dispatcher, "a1")
        dispatcher.reject(0, "ann", 1)
        dispatcher.park(0)
        dispatcher.redrive("a1", [StoredLetter(0, 1, None)])
        dispatcher.reject(0, "ann", 2)
        again = restored(dispatcher)
        assert [deliver(0, "a1", "ann", 3)] == again.unblock("a1")

    def test_one_behind_something_that_was_never_delivered_is_there_again(self) -> None:
        dispatcher = redriving()
        fill(dispatcher, "a1", "a1", "a1")
        dispatcher.gone(1)
        dispatcher.redrive("a1", [StoredLetter(1, 1, None)])
        again = restored(dispatcher)
        assert dispatcher.snapshot() == again.snapshot()
        dispatcher.gone(0), again.gone(0)
        assert dispatcher.snapshot() == restored(again).snapshot()

    def test_nothing_is_kept_where_nothing_is_back(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1")
        assert {} == dispatcher.snapshot()["features"]
        assert dispatcher.snapshot() == restored(dispatcher).snapshot()


def test_the_effects_of_a_letter_are_those_of_a_call_of_its_own() -> None:
    dispatcher = redriving("ann")
    fill(dispatcher, "a1")
    effects: list[Effect] = dispatcher.redrive("a1", bury(dispatcher, 0), now_ms=9)
    assert [deliver(0, "a1", "ann", 2)] == effects
    with pytest.raises(KeyTypeError):
        dispatcher.redrive(5, [])  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize(("attempt", "outstanding"), [(2, 1), (1, 0)])
def test_an_answer_from_before_is_fenced_by_the_attempt_of_the_last_delivery_only(
    attempt: int, outstanding: int
) -> None:
    """A message that was archived, unblocked and acked has had a delivery that its letter does not know."""
    dispatcher = redriving("ann", poison=Poison.BLOCK, archive_blocked=True)
    fill(dispatcher, "a1")
    bury(dispatcher, 0)
    assert [deliver(0, "a1", "ann", 2)] == dispatcher.unblock("a1")
    dispatcher.ack(0, "ann", 2)

    dispatcher.redrive("a1", [StoredLetter(0, attempt)])
    dispatcher.ack(0, "ann", 2)
    assert outstanding == dispatcher.stats().outstanding
