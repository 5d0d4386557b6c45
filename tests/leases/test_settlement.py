"""What a lease queue tells its transport: each message is done once, and how."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.leasing import WatchedQueue, fill, lease, letters, queue, reserve

from keyshared.config import Poison
from keyshared.effects import (
    CursorAdvanced,
    DeadLetter,
    Done,
    Dropped,
    DropReason,
    Effect,
    Ending,
    Released,
    ReleaseReason,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
)
from keyshared.errors import ClockError
from keyshared.leases import Duplicate, LeaseAnswer, LeaseQueue

LAST: dict[str, Any] = {"max_delivery_attempts": 1}


def telling(*keys: str, **config: Any) -> WatchedQueue:
    """A queue of ann's that says what is done."""
    made = queue("ann", **{"tell_settled": True, **config})
    fill(made, *keys)
    return made


def done(effects: list[Effect]) -> list[tuple[int, Ending]]:
    return [(effect.offset, effect.how) for effect in effects if isinstance(effect, Done)]


def restored(made: LeaseQueue, now_ms: int = 0) -> LeaseQueue:
    state = json.loads(json.dumps(made.snapshot()))
    return LeaseQueue.restore(state, letters({"a-z": "ann"}), made.config, now_ms=now_ms, epoch=1)


def test_an_ack_is_told_although_the_trim_cursor_waits() -> None:
    made = telling("a", "b")
    held = lease(made, "ann")

    assert [Done(1, b"b", Ending.ACKED)] == made.ack(1, held.id).effects
    assert [] == done(made.ack(1, held.id).effects), "and nothing is told twice"
    assert [Done(0, b"a", Ending.ACKED), CursorAdvanced(1)] == made.ack(0, held.id).effects


def test_nobody_is_told_who_did_not_ask() -> None:
    made = telling("a", tell_settled=False)

    assert [CursorAdvanced(0)] == made.ack(0, lease(made, "ann").id).effects


def test_acks_of_several_are_told_in_their_order() -> None:
    made = telling("a", "b", "c")
    held = lease(made, "ann")

    answer = made.ack_many([(2, held.id), (0, held.id), (1, 99)])
    assert [(2, Ending.ACKED), (0, Ending.ACKED)] == done(answer.effects)


def parked(made: WatchedQueue) -> list[Effect]:
    made.nack(0, lease(made, "ann").id)
    return made.park(0).effects


def archived(made: WatchedQueue) -> list[Effect]:
    assert [] == done(made.nack(0, lease(made, "ann").id).effects), "it is not written yet"
    return made.dead_lettered(0).effects


def gone_in_a_reservation(made: WatchedQueue) -> list[Effect]:
    reservation = reserve(made, "ann")
    assert LeaseAnswer(None, []) == made.gone(0)
    return made.abort(reservation.id).effects


def expired(made: WatchedQueue) -> list[Effect]:
    held = lease(made, "ann", now_ms=0)
    return made.handle_timeout(now_ms=held.deadline_ms).effects


def cut_off(made: WatchedQueue) -> list[Effect]:
    lease(made, "ann")
    return made.remove_consumer("ann").effects


WAYS: dict[str, tuple[Poison, Callable[[WatchedQueue], list[Effect]], Ending]] = {
    "parked": (Poison.BLOCK, parked, Ending.PARKED),
    "archived": (Poison.DEAD_LETTER, archived, Ending.DEAD_LETTERED),
    "gone at once": (Poison.DROP, lambda made: made.gone(0).effects, Ending.GONE),
    "truncated": (Poison.DROP, lambda made: made.truncate(1).effects, Ending.GONE),
    "gone in a reservation": (Poison.DROP, gone_in_a_reservation, Ending.GONE),
    "expired for the last time": (Poison.DROP, expired, Ending.DROPPED),
    "cut off for the last time": (Poison.DROP, cut_off, Ending.DROPPED),
}


@pytest.mark.parametrize("way", WAYS)
def test_however_a_message_ends_it_is_told_once(way: str) -> None:
    poison, end, how = WAYS[way]
    made = telling("a", poison=poison, **LAST)

    effects = end(made)
    assert [(0, how)] == done(effects)
    assert CursorAdvanced(0) == effects[-1]
    assert [] == done(made.gone(0).effects)


def test_what_is_archived_and_then_blocked_is_not_done_yet() -> None:
    made = telling("a", poison=Poison.BLOCK, archive_blocked=True, **LAST)

    assert [] == archived(made)[1:]
    settled, told, _ = made.park(0).effects
    assert (Settled(0, b"a", SettleReason.PARKED), Done(0, b"a", Ending.PARKED)) == (settled, told)


def test_it_stands_behind_what_time_and_the_call_tell_and_before_what_is_asked() -> None:
    made = telling("a", "b", "c", **LAST)
    held = lease(made, "ann", 2, now_ms=0)
    made.gone(0)

    assert [
        Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 0, None),
        Skipped(0, b"a", SkipReason.GONE),
        Released(1, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, None),
        Skipped(2, b"c", SkipReason.GONE),
        Done(0, b"a", Ending.GONE),
        Done(2, b"c", Ending.GONE),
        DeadLetter(1, b"b", 1, 1, None),
        CursorAdvanced(0),
    ] == made.gone(2, now_ms=held.deadline_ms).effects


def test_a_policy_that_drops_is_told_before_it() -> None:
    made = telling("a", poison=Poison.DROP, **LAST)

    _, dropped, told, _ = made.nack(0, lease(made, "ann").id).effects
    assert (Dropped(0, b"a", DropReason.POISON), Done(0, b"a", Ending.DROPPED)) == (dropped, told)


def test_what_is_read_again_after_a_restart_is_told_again_and_what_is_outstanding_when_it_ends() -> None:
    made = telling("a", "b")
    held = lease(made, "ann")
    made.ack(1, held.id)
    again = restored(made)

    assert [] == again.offer(0, "a").effects
    assert [Done(1, b"b", Ending.EARLIER)] == again.offer(1, "b").effects
    assert [(0, Ending.ACKED)] == done(again.ack(0, held.id).effects)
    assert [] == again.offer(2, "c").effects


def test_what_lies_below_the_start_was_done_earlier() -> None:
    assert [Done(3, b"a", Ending.EARLIER)] == telling(start=4).offer(3, "a").effects


def test_a_duplicate_used_no_offset_so_nothing_of_it_is_done() -> None:
    made = telling()
    made.offer(0, "a", producer=("web", 1))

    assert LeaseAnswer(Duplicate("web", 1, 1), []) == made.offer(1, "a", producer=("web", 1))


def test_what_is_settled_while_handles_are_read_is_done_once() -> None:
    made = telling("a")
    held = lease(made, "ann")
    told: list[tuple[int, Ending]] = []

    def handles() -> Iterator[tuple[int, int]]:
        told.extend(done(made.ack(0, held.id, now_ms=5).effects))
        yield 0, held.id

    answer = made.ack_many(handles())
    assert ([0], []) == ([each.offset for each in answer.result], done(answer.effects))
    assert [(0, Ending.ACKED)] == told
    with pytest.raises(ClockError):
        made.ack_many([], now_ms=4)
