"""Promise resume, from a cursor token: what was acked above a hole stays acked, through any number of lives."""

from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, subscription

from keyshared.config import DispatcherConfig, Unmatched
from keyshared.effects import Deliver, Effect
from keyshared.errors import OffsetOrderError, SnapshotError, UnmatchedKeyError, WindowFullError

NO_POSITION = "ksc1.AGq-GkM"


def next_life(dispatcher: Watched, *consumers: str, **config: Any) -> Watched:
    """Crash, and begin again from the token."""
    again = Watched(AlphabetRing(), DispatcherConfig(**config), resume_from=dispatcher.cursor_token().text)
    for name in consumers:
        assert [] == again.add_consumer(name)
    return again


def all_acked_but(*open_ones: int, count: int = 100) -> Watched:
    dispatcher = subscription("ann", start=0, max_in_flight_per_consumer=1_000)
    dispatcher.offer_many([(offset, f"a{offset}", None) for offset in range(count)])
    dispatcher.ack_many([(offset, "ann", 1) for offset in range(count) if offset not in open_ones])
    return dispatcher


def redone(dispatcher: Watched, stop: int) -> list[int]:
    """What a life delivers that reads on from its position."""
    start = dispatcher.resume_offset or 0
    effects = [effect for offset in range(start, stop) for effect in dispatcher.offer(offset, f"a{offset}")]
    return [effect.offset for effect in effects if isinstance(effect, Deliver)]


def test_a_life_redoes_what_was_not_acked_and_so_does_every_later_one() -> None:
    # Taken from what this life has offered alone, the second token would forget 94 acks, and a third life redo them.
    first = all_acked_but(5)
    second = next_life(first, "ann")
    third = next_life(second, "ann")

    assert [5, 100, 101] == redone(second, 102)
    assert [(6, 100)] == second.acked_ranges()
    assert [5, 100, 101] == redone(third, 102)
    assert [5, 100, 101] == redone(next_life(next_life(third), "ann"), 102)


@pytest.mark.no_cover
@pytest.mark.parametrize("read_until", [5, 6, 50, 100, 103])
def test_a_life_that_crashes_early_forgets_nothing(read_until: int) -> None:
    second = next_life(all_acked_but(5), "ann")
    redone(second, read_until)

    assert [5, 100] == redone(next_life(second, "ann"), 101)


def test_a_stretch_that_was_not_offered_again_is_not_forgotten() -> None:
    # A host may leave out what it knows to be settled, and a log may have lost it.
    second = next_life(all_acked_but(5), "ann")
    second.offer(5, "a5")
    second.offer(200, "a200")

    assert [5, 100] == redone(next_life(second, "ann"), 101)


def test_the_cursor_passes_what_is_known_as_it_is_read_again() -> None:
    second = next_life(all_acked_but(5, count=8), "ann")

    assert (4, 5, [(6, 8)]) == (second.safe_cursor, second.resume_offset, second.acked_ranges())
    assert [deliver(5, "a5", "ann")] == second.offer(5, "a5")
    assert [] == second.offer(6, "a6")
    assert [advanced(6)] == second.ack(5, "ann", 1)
    assert (6, 8) == (second.safe_cursor, second.resume_offset)
    assert [advanced(7)] == second.offer(7, "a7")


def test_what_lies_below_the_position_is_known_to_be_done() -> None:
    second = next_life(all_acked_but(5), "ann")

    assert [[], [], []] == [second.offer(offset, "a1") for offset in (0, 4, 3)]
    assert [] == second.offer_many([(1, "a1", None), (2, "a2", None)])
    second.offer(5, "a5")
    with pytest.raises(OffsetOrderError):
        second.offer(4, "a4")


def test_a_batch_may_hold_what_is_known_and_needs_no_room_for_it() -> None:
    second = next_life(all_acked_but(5, 50), "ann", window=2, max_loaded_per_key=1)
    batch = [(offset, f"a{offset}", None) for offset in range(4, 100)]

    with pytest.raises(WindowFullError):
        second.offer_many([*batch, (100, "a100", None)])
    assert [deliver(5, "a5", "ann"), deliver(50, "a50", "ann")] == second.offer_many(batch)
    with pytest.raises(WindowFullError):
        second.offer(100, "a100")


def test_what_is_known_is_taken_without_a_free_slot_and_without_anybody_who_accepts_it() -> None:
    second = next_life(all_acked_but(5, 8), "ann", window=1, max_loaded_per_key=1, unmatched=Unmatched.ERROR)
    second.set_filters("ann", ["a5"])
    second.offer(5, "a5")

    assert [[], []] == [second.offer(6, "b1"), second.offer(7, "c1")]
    assert [] == second.offer_many([])
    second.ack(5, "ann", 1)
    with pytest.raises(UnmatchedKeyError):
        second.offer(8, "b1")


@pytest.mark.no_cover
@pytest.mark.parametrize("read_until", [5, 6, 50, 100, 102])
def test_a_snapshot_of_such_a_life_keeps_the_stretches(read_until: int) -> None:
    second = next_life(all_acked_but(5, 7), "ann")
    redone(second, read_until)
    state = second.snapshot()
    again = Watched.restore(state, second.placement, second.config, now_ms=0)

    assert state == again.snapshot()
    assert (second.acked_ranges(), second.resume_offset) == (again.acked_ranges(), again.resume_offset)
    expected = [offset for offset in (5, 7, 100, 101) if offset >= read_until]
    assert expected == redone(again, 102)
    assert [5, 7, 100, 101] == redone(next_life(again, "ann"), 102)


def test_the_position_of_the_token_counts_and_not_the_start_of_the_first_life() -> None:
    assert 5 == next_life(all_acked_but(5), start=0).resume_offset
    assert 100 == next_life(all_acked_but(), start=7).resume_offset


def test_a_token_without_a_position_is_that_of_a_life_in_which_nothing_happened() -> None:
    assert NO_POSITION == subscription().cursor_token().text
    assert 7 == next_life(subscription(), start=7).resume_offset
    assert None is next_life(subscription()).resume_offset


def test_what_the_budget_left_out_is_redone_and_nothing_else() -> None:
    first = all_acked_but(*range(0, 100, 2))
    token = first.cursor_token(40)
    left_out = [
        offset for start, stop in first.acked_ranges()[-token.omitted_ranges :] for offset in range(start, stop)
    ]
    second = Watched(AlphabetRing(), resume_from=token.text)
    second.add_consumer("ann", limit=1_000)

    assert 0 < len(left_out) == token.omitted_span
    assert sorted([*range(0, 100, 2), *left_out]) == redone(second, 100)


@pytest.mark.parametrize("text", ["", "ksc1.", "ksc1.FwEAAapiuzZ", 7])
def test_what_is_no_token_is_refused(text: Any) -> None:
    with pytest.raises(SnapshotError):
        Watched(AlphabetRing(), resume_from=text)


def test_the_cursor_of_the_token_is_not_reported_as_news() -> None:
    second = next_life(all_acked_but(5))
    effects: list[Effect] = second.add_consumer("ann")

    assert ([], 4) == (effects, second.safe_cursor)
