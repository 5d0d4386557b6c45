"""Promise resume, from a cursor token: what was acked above a hole stays acked, through any number of lives."""

from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, deliver, subscription

from keyshared.config import DispatcherConfig, Unmatched
from keyshared.effects import Deliver
from keyshared.errors import SnapshotError, UnmatchedKeyError, WindowFullError


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


def test_the_position_of_the_token_counts_and_not_the_start_of_the_first_life() -> None:
    assert 5 == next_life(all_acked_but(5), start=0).resume_offset
    assert 100 == next_life(all_acked_but(), start=7).resume_offset


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
