"""Rule 21: the first delivery of a message waits for its time, its key behind it, and nothing else does."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, deliver, delivered, subscription, then

from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.dispatcher import Blocking, KeySharedDispatcher
from keyshared.effects import BlockReason, DeadLetter, Load, Spilled
from keyshared.errors import ArgumentError
from keyshared.journal import Command, Journal
from keyshared.ring import HashRing

NOT_BEFORE = Blocking(BlockReason.NOT_BEFORE)


def scheduled(**config: Any) -> Watched:
    """Offset 0 waits until 100."""
    dispatcher = subscription("ann", **config)
    assert [] == dispatcher.offer(0, "a1", "item", not_before_ms=100)
    return dispatcher


def spilled() -> Watched:
    """Offset 1 waits until 100 with its payload dropped, behind offset 0 that is open."""
    dispatcher = subscription("ann", max_loaded_per_key=1)
    dispatcher.offer(0, "a1")
    assert [Spilled(1)] == dispatcher.offer(1, "a1", not_before_ms=100)
    return dispatcher


def restored(original: Watched, **changed: Any) -> Watched:
    state: Any = json.loads(json.dumps(original.snapshot()))
    for index, value in changed.items():
        state["messages"][0][int(index.removeprefix("field_"))] = value
    return Watched.restore(state, AlphabetRing(), original.config, now_ms=0)


def test_its_key_waits_behind_it_and_other_keys_do_not() -> None:
    dispatcher = scheduled(max_in_flight_per_key=2)

    assert [] == dispatcher.offer(1, "a1")
    assert [(2, "ann")] == delivered(dispatcher.offer(2, "a2"))
    assert (NOT_BEFORE, Blocking(BlockReason.OLDER_WAITS, behind=0)) == (
        dispatcher.why_blocked(0),
        dispatcher.why_blocked(1),
    )
    assert (100, 1) == (dispatcher.next_deadline_ms(), dispatcher.stats().delayed)
    assert [] == dispatcher.handle_timeout(now_ms=99)
    assert [(0, "ann"), (1, "ann")] == delivered(dispatcher.handle_timeout(now_ms=100))


def test_a_time_that_has_come_says_nothing() -> None:
    dispatcher = subscription("ann")

    assert [(0, "ann")] == delivered(dispatcher.offer(0, "a1", not_before_ms=7, now_ms=7))


def test_a_retry_does_not_look_at_it() -> None:
    dispatcher = scheduled(retry=RetryPolicy(base_delay_ms=0))
    dispatcher.handle_timeout(now_ms=100)

    assert [deliver(0, "a1", "ann", 2, failures=1, item="item")] == then(dispatcher.nack(0, "ann", 1))


def test_it_waits_behind_what_is_open_of_its_key_or_of_none() -> None:
    dispatcher = subscription("ann")
    dispatcher.offer(0, "a1")

    assert [] == dispatcher.offer(1, "a1", not_before_ms=100)
    assert [] == dispatcher.offer(2, None, not_before_ms=50)
    assert [(2, "ann")] == delivered(dispatcher.handle_timeout(now_ms=50))
    assert [] == delivered(dispatcher.ack(0, "ann", 1))
    assert [(1, "ann")] == delivered(dispatcher.handle_timeout(now_ms=100))


def test_a_batch_may_name_it_for_some() -> None:
    dispatcher = subscription("ann")

    assert [(0, "ann"), (2, "ann")] == delivered(
        dispatcher.offer_many([(0, "a1", None), (1, "a2", None, 100), (2, "a3", None, None)])
    )
    assert NOT_BEFORE == dispatcher.why_blocked(1)


def test_a_batch_on_a_ring_may_name_a_time_that_is_to_come_and_one_that_has_come() -> None:
    dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig())
    dispatcher.add_consumer("ann", now_ms=50)

    assert [(1, "ann"), (2, "ann")] == delivered(
        dispatcher.offer_many([(0, "a1", None, 100), (1, "a2", None, 50), (2, "a3", None)], now_ms=50)
    )
    assert [] == dispatcher.handle_timeout(now_ms=99)
    assert [(0, "ann")] == delivered(dispatcher.handle_timeout(now_ms=100))


def test_what_waits_for_its_time_counts_as_waiting_and_is_spilled_as_such() -> None:
    dispatcher = subscription("ann", window=4)
    for offset in range(2):
        assert [] == dispatcher.offer(offset, f"a{offset}", not_before_ms=100)

    assert [Spilled(2)] == dispatcher.offer(2, "a2", not_before_ms=100)
    assert (NOT_BEFORE, 2) == (dispatcher.why_blocked(2), dispatcher.free_slots)
    assert [Load(2, b"a2")] == dispatcher.handle_timeout(now_ms=100)[:1]
    assert [(2, "ann")] == delivered(dispatcher.loaded(2))


def test_what_is_loaded_before_its_time_goes_on_waiting() -> None:
    dispatcher = spilled()
    assert Load(1, b"a1") in dispatcher.ack(0, "ann", 1)

    assert [] == dispatcher.loaded(1)
    assert NOT_BEFORE == dispatcher.why_blocked(1)
    assert [(1, "ann")] == delivered(dispatcher.handle_timeout(now_ms=100))


def test_what_is_being_loaded_when_its_time_comes_goes_out_when_it_is_there() -> None:
    dispatcher = spilled()
    dispatcher.ack(0, "ann", 1)

    assert [] == dispatcher.handle_timeout(now_ms=100)
    assert [(1, "ann")] == delivered(dispatcher.loaded(1))


def test_a_quarantine_waits_for_it_too() -> None:
    dispatcher = subscription("ann", quarantine=True)
    dispatcher.offer(0, "a1")
    dispatcher.reject(0, "ann", 1)
    dispatcher.dead_lettered(0)

    assert [] == dispatcher.offer(1, "a1", not_before_ms=100)
    assert [DeadLetter(1, b"a1", 0, 0, None)] == dispatcher.handle_timeout(now_ms=100)


def test_what_is_gone_waits_no_longer() -> None:
    dispatcher = scheduled()
    dispatcher.gone(0)

    assert None is dispatcher.next_deadline_ms()


@pytest.mark.parametrize("original", [scheduled, spilled])
def test_a_restart_knows_how_long_it_still_waits(original: Any) -> None:
    before = original()
    again = restored(before)

    assert before.snapshot() == again.snapshot()
    assert NOT_BEFORE == again.why_blocked(max(again.safe_cursor or 0, len(before.snapshot()["messages"]) - 1))
    assert before.next_deadline_ms() == again.next_deadline_ms()


@pytest.mark.parametrize("wrong", ["soon", 1.5, True])
def test_a_time_that_is_none_is_refused_and_changes_nothing(wrong: Any) -> None:
    dispatcher = subscription("ann")

    with pytest.raises(ArgumentError, match="not_before_ms"):
        dispatcher.offer(0, "a1", not_before_ms=wrong)
    with pytest.raises(ArgumentError, match="not_before_ms"):
        dispatcher.offer_many([(0, "a1", None, wrong)])
    assert [(0, "ann")] == delivered(dispatcher.offer(0, "a1"))


def test_a_journal_keeps_the_time_of_what_it_has_no_room_for_yet() -> None:
    config = subscription(window=1, max_tracked=1).config
    journal = Journal(HashRing(), config)
    told = journal.apply_all(
        [
            Command(0, 0, "add_consumer", consumer="c1"),
            Command(1, 0, "offer", offset=0, key="a"),
            Command(2, 0, "offer", offset=1, key="b", duration_ms=50),
            Command(3, 0, "offer", offset=2, key="c", duration_ms=-1),
        ]
    )
    assert ["deliver", "refused"] == [each.effect for each in told]

    again = Journal.from_bytes(journal.to_bytes(), HashRing(), config)
    again.apply(Command(4, 10, "ack", offset=0, consumer="c1", attempt=1))
    assert [(50, "deliver", 1)] == [(each.at_ms, each.effect, each.offset) for each in again.advance(60)]
