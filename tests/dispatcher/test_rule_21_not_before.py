"""Rule 21: the first delivery of a message waits for its time, its key behind it, and nothing else does."""

from typing import Any

import pytest
from tests.alphabet import delivered, subscription

from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason, DeadLetter, Load, Spilled
from keyshared.errors import ArgumentError
from keyshared.journal import Command, Journal
from keyshared.ring import HashRing

NOT_BEFORE = Blocking(BlockReason.NOT_BEFORE)


def test_a_batch_may_name_it_for_some() -> None:
    dispatcher = subscription("ann")

    assert [(0, "ann"), (2, "ann")] == delivered(
        dispatcher.offer_many([(0, "a1", None), (1, "a2", None, 100), (2, "a3", None, None)])
    )
    assert NOT_BEFORE == dispatcher.why_blocked(1)


def test_what_waits_for_its_time_counts_as_waiting_and_is_spilled_as_such() -> None:
    dispatcher = subscription("ann", window=4)
    for offset in range(2):
        assert [] == dispatcher.offer(offset, f"a{offset}", not_before_ms=100)

    assert [Spilled(2)] == dispatcher.offer(2, "a2", not_before_ms=100)
    assert (NOT_BEFORE, 2) == (dispatcher.why_blocked(2), dispatcher.free_slots)
    assert [Load(2, b"a2")] == dispatcher.handle_timeout(now_ms=100)[:1]
    assert [(2, "ann")] == delivered(dispatcher.loaded(2))


def test_a_quarantine_waits_for_it_too() -> None:
    dispatcher = subscription("ann", quarantine=True)
    dispatcher.offer(0, "a1")
    dispatcher.reject(0, "ann", 1)
    dispatcher.dead_lettered(0)

    assert [] == dispatcher.offer(1, "a1", not_before_ms=100)
    assert [DeadLetter(1, b"a1", 0, 0, None)] == dispatcher.handle_timeout(now_ms=100)


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
