"""Dead letters that come back to a lease queue, one behaviour at a time."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.leasing import WatchedQueue, count_reserved, fill, lease, letters, queue, reserve

from keyshared.config import Poison
from keyshared.dispatcher import StoredLetter
from keyshared.effects import Call, DeadLetter, Done, Ending, Ignored, IgnoredReason
from keyshared.errors import ArgumentError, ClockError, ConfigError, RedriveTooEarlyError, WindowFullError
from keyshared.leases import (
    InvalidHandle,
    InvalidHandleReason,
    LeaseAnswer,
    LeaseQueue,
    Reservation,
)

BACK: LeaseAnswer[list[Ignored], object] = LeaseAnswer([], [])


def with_a_letter(*keys: str, **config: Any) -> tuple[WatchedQueue, StoredLetter[Any]]:
    """A queue of ann's whose message 0 is in the dead-letter store, and that letter."""
    made = queue("ann", "bob", **{"redrive": True, **config})
    made.offer(0, "a", "first", now_ms=0)
    held = lease(made, "ann")
    letter = made.reject(0, held.id).effects[-1]
    assert isinstance(letter, DeadLetter)
    made.dead_lettered(0)
    fill(made, *keys, start=1)
    return made, StoredLetter(letter.offset, letter.attempt, letter.item)


def invalid(offset: int, lease_id: int, reason: InvalidHandleReason) -> LeaseAnswer[InvalidHandle, object]:
    return LeaseAnswer(InvalidHandle(offset, lease_id, reason), [])


def test_a_letter_is_leased_before_what_is_newer_of_its_key() -> None:
    made, letter = with_a_letter("a", "b")

    assert BACK == made.redrive("a", [letter])
    again = lease(made, "ann")
    assert (0, 2) == again.offsets
    assert ("first", 1) == (again.messages[0].item, again.messages[0].delivery_count), "counted anew"
    made.ack(0, again.id)
    assert (1,) == lease(made, "ann").offsets


def test_what_is_leased_of_the_key_stays_so_and_the_letter_is_next() -> None:
    made, letter = with_a_letter("a", "a")
    held = lease(made, "ann")

    made.redrive("a", [letter])
    assert ([held], 0) == (made.leases(), count_reserved(made))
    made.ack(1, held.id)
    assert (0,) == lease(made, "ann").offsets


def test_what_is_reserved_of_the_key_is_committed_all_the_same() -> None:
    made, letter = with_a_letter("a")
    reservation = reserve(made, "ann")

    made.redrive("a", [letter])
    assert (1,) == made.commit(reservation.id).result.offsets  # type: ignore[union-attr]  # it is a lease


def test_what_an_abort_gives_back_stands_behind_the_letter() -> None:
    made, letter = with_a_letter("a")
    reservation = reserve(made, "ann")

    made.redrive("a", [letter])
    made.abort(reservation.id)
    assert (0,) == lease(made, "ann").offsets


def test_the_lease_from_before_is_fenced() -> None:
    made, letter = with_a_letter()
    made.redrive("a", [letter])

    assert invalid(0, 1, InvalidHandleReason.NOT_LEASED) == made.ack(0, 1)
    again = lease(made, "ann")
    assert invalid(0, 1, InvalidHandleReason.STALE) == made.ack(0, 1)
    assert LeaseAnswer(None, []) == made.ack(0, again.id), "the trim cursor has passed it long ago"
    assert invalid(0, again.id, InvalidHandleReason.BELOW_TRIM) == made.ack(0, again.id)


def test_the_trim_cursor_does_not_know_it_and_the_depth_does() -> None:
    made, letter = with_a_letter("b")
    made.redrive("a", [letter])

    assert (1, 2) == (made.resume_offset, made.stats().outstanding)
    made.truncate(2)
    assert (0,) == lease(made, "ann").offsets, "its item is not in the log"


def test_a_lease_of_it_expires_as_any_other_and_may_be_the_last_one() -> None:
    made, letter = with_a_letter(max_delivery_attempts=1, poison=Poison.DEAD_LETTER)
    made.redrive("a", [letter])
    again = lease(made, "ann")

    effects = made.handle_timeout(now_ms=again.deadline_ms).effects
    assert isinstance(effects[-1], DeadLetter)
    assert effects[-1].attempt > letter.attempt, "and a letter of it names another delivery"


def test_it_goes_to_whoever_owns_its_key_now() -> None:
    made, letter = with_a_letter()
    made.set_placement(letters({"a-z": "bob"}))
    made.redrive("a", [letter])

    assert (0,) == lease(made, "bob").offsets


def test_redriving_twice_makes_no_second_copy() -> None:
    made, letter = with_a_letter()
    made.redrive("a", [letter])

    ignored = Ignored(0, None, letter.attempt, Call.REDRIVE, IgnoredReason.IS_OUTSTANDING)
    assert LeaseAnswer([ignored], []) == made.redrive("a", [letter])
    assert 1 == made.stats().outstanding


def test_a_quarantined_key_takes_nothing() -> None:
    made, letter = with_a_letter(poison=Poison.DEAD_LETTER, quarantine=True)

    ignored = Ignored(0, None, letter.attempt, Call.REDRIVE, IgnoredReason.IS_QUARANTINED)
    assert LeaseAnswer([ignored], []) == made.redrive("a", [letter])
    made.unblock("a")
    assert BACK == made.redrive("a", [letter])


def test_time_acts_in_the_call_too() -> None:
    made, letter = with_a_letter("b")
    held = lease(made, "ann")

    answer = made.redrive("a", [letter], now_ms=held.deadline_ms)
    assert ([], [1]) == (answer.result, [effect[0] for effect in answer.effects])


def test_each_return_is_done_once_more() -> None:
    made, letter = with_a_letter(tell_settled=True)
    made.redrive("a", [letter])

    assert [Done(0, b"a", Ending.ACKED)] == made.ack(0, lease(made, "ann").id).effects


def test_a_line_takes_letters_back_too() -> None:
    made = queue("ann", ordering_required=True, poison=Poison.BLOCK, archive_blocked=True, redrive=True)
    fill(made, "a", "b")
    made.reject(0, lease(made, "ann", 1).id)
    made.dead_lettered(0)
    made.park(0)

    made.redrive("a", [StoredLetter(0, 1)])
    assert (0,) == lease(made, "ann").offsets


def test_it_goes_on_after_a_restart_with_its_item_in_hand() -> None:
    made, letter = with_a_letter("a")
    made.redrive("a", [letter])
    held = reserve(made, "ann")
    state = json.loads(json.dumps(made.snapshot()))
    again = LeaseQueue.restore(state, letters({"a-z": "ann"}), made.config, now_ms=0, items={0: "first"})

    [reservation] = again.reservations()
    assert isinstance(reservation, Reservation)
    assert (held.offsets, "first") == (reservation.offsets, reservation.messages[0].item)
    again.check_invariants()
    assert [0] == [ignored.offset for ignored in again.redrive("a", [letter]).result]


@pytest.mark.parametrize(
    ("letter", "error"),
    [((0,), ArgumentError), ((7, 1, None), RedriveTooEarlyError), (("0", 1, None), ArgumentError)],
)
def test_a_letter_that_cannot_come_back_is_refused_and_nothing_has_changed(letter: Any, error: type[Exception]) -> None:
    made, good = with_a_letter()
    with pytest.raises(error):
        made.redrive("a", [good, letter], now_ms=7)
    assert (0, 0) == (made.stats().outstanding, made._machine.now)


def test_each_letter_needs_a_slot() -> None:
    made, letter = with_a_letter("b", "b", window=2, max_tracked=2)
    with pytest.raises(WindowFullError):
        made.redrive("a", [letter])


def test_a_queue_that_was_not_asked_for_it_redrives_nothing() -> None:
    made = queue("ann")
    with pytest.raises(ArgumentError, match="redrive"):
        made.redrive("a", [])


def test_a_cap_on_holes_could_hold_what_the_lowest_message_waits_for() -> None:
    with pytest.raises(ConfigError, match="max_ack_holes"):
        queue("ann", redrive=True, max_ack_holes=3)


def test_time_may_pass_while_letters_are_read() -> None:
    made, letter = with_a_letter("a")

    def letters_read() -> Iterator[StoredLetter[Any]]:
        made.handle_timeout(now_ms=100)
        yield letter

    assert [] == made.redrive("a", letters_read()).result
    with pytest.raises(ClockError):
        made.redrive("a", [], now_ms=99)
