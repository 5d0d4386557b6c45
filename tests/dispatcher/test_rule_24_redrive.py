"""Rule 24: a dead letter comes back at the place in its key that it always had, and the position does not know it."""

from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, delivered, fill, subscription

from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.effects import (
    Call,
    DeadLetter,
    Done,
    Ending,
    Ignored,
    IgnoredReason,
    Load,
)
from keyshared.errors import (
    ArgumentError,
    ConfigError,
    OffsetOrderError,
    RedriveTooEarlyError,
    WindowFullError,
)

LAST_LETTER = (1 << 63) - (1 << 31) - 1


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


class TestPlace:
    """It stands where it always stood."""

    def test_all_letters_come_before_any_delivery(self) -> None:
        dispatcher = redriving("ann", max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a1", "a1")
        dispatcher.ack(0, "ann", 1), dispatcher.ack(1, "ann", 1), dispatcher.ack(2, "ann", 1)
        letters = [StoredLetter(2, 1, None), StoredLetter(0, 1, None), StoredLetter(1, 1, None)]
        assert [(0, "ann"), (1, "ann")] == delivered(dispatcher.redrive("a1", letters))


class TestIgnored:
    """A letter that is outstanding, or would go straight back, changes nothing."""

    def test_of_two_letters_of_one_offset_the_first_one_counts(self) -> None:
        dispatcher = redriving("ann")
        fill(dispatcher, "a1")
        dispatcher.ack(0, "ann", 1)
        effects = dispatcher.redrive("a1", [StoredLetter(0, 7, "first"), StoredLetter(0, 1, "second")])
        assert [ignored(0, 1, IgnoredReason.IS_OUTSTANDING), deliver(0, "a1", "ann", 8, item="first")] == effects


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

    def test_letters_that_find_no_free_slot_are_refused_together(self) -> None:
        dispatcher = redriving("ann", window=3)
        fill(dispatcher, "a1", "a1", "a1")
        letters = bury(dispatcher, 0, 1)
        dispatcher.offer(3, "b1")
        with pytest.raises(WindowFullError):
            dispatcher.redrive("a1", letters)
        assert [] == dispatcher.redrive("a1", letters[:1])


class TestMemory:
    """What is back has its payload, and counts."""

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


class TestSettlement:
    """Of each return it is said once that it is done."""

    def test_what_is_read_again_while_it_is_back_is_not_done_yet(self) -> None:
        dispatcher = redriving("ann", tell_settled=True, start=5)
        dispatcher.redrive("a1", [StoredLetter(3, 1)])
        assert [] == dispatcher.offer(3, "a1", "from the log")
        assert "from the log" == dispatcher.in_flight()[0].item
        assert [Done(2, b"b1", Ending.EARLIER)] == dispatcher.offer(2, "b1")
