"""Rule 22: with ``latest_only`` a message that waits for its first delivery makes way for a newer one of its key."""

from dataclasses import replace
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, deliver, delivered, fill, subscription
from tests.broken import LetterBehindSleeps

from keyshared.config import DispatcherConfig
from keyshared.dispatcher import StoredLetter
from keyshared.effects import (
    Load,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.errors import (
    InvariantError,
)
from keyshared.journal import Command, Journal
from keyshared.ring import HashRing


def latest(*consumers: str, **config: Any) -> Watched:
    return subscription(*consumers, latest_only=True, **config)


def superseded(offset: int, key: str) -> Skipped:
    return Skipped(offset, key.encode(), SkipReason.SUPERSEDED)


def busy(*, limit: int = 1, **config: Any) -> Watched:
    """Ann works on offset 0 of another key, and has room for no more."""
    dispatcher = latest("ann", **config)
    dispatcher.set_limit("ann", limit)
    fill(dispatcher, "a9")
    return dispatcher


class TestLoads:
    """What was to be loaded is there now, and the load is void."""

    def loading(self) -> Watched:
        """Bob has room for offset 3, which is being loaded for him."""
        dispatcher = latest("ann", "bob", window=4)
        dispatcher.set_limit("bob", 1)
        fill(dispatcher, "b9", "b1", "b2", "b3")  # the last one is spilled
        loads = [effect for offset in range(3) for effect in dispatcher.ack(offset, "bob", 1)]
        assert Load(3, b"b3") in loads
        return dispatcher

    def test_another_owner_gets_it_if_the_key_has_moved_meanwhile(self) -> None:
        dispatcher = self.loading()
        dispatcher.set_filters("bob", ["c*"])
        assert [(4, "ann")] == delivered(dispatcher.offer(4, "b3"))


class TestNotBefore:
    """The latest decides: its time counts, and no other."""

    def test_what_waits_for_its_time_is_spilled_as_any_other(self) -> None:
        dispatcher = busy(window=4)
        fill(dispatcher, "a1", "a2", "a3", start=1)  # the last one is spilled
        assert [superseded(3, "a3"), Spilled(4)] == dispatcher.offer(4, "a3", not_before_ms=100)
        dispatcher.gone(1)
        assert [superseded(4, "a3")] == dispatcher.offer(5, "a3", not_before_ms=100)


class TestAWiderRestart:
    """What it has made possible goes out, or is read again, before what is new takes the place of anything."""

    def held(self, *keys: str) -> Watched:
        """The window is full of what is open or read again, and the rest of the keys starves."""
        dispatcher = subscription("ann", latest_only=True, window=4, max_tracked=20, max_in_flight_per_consumer=1)
        fill(dispatcher, "a1", *keys)
        dispatcher.set_limit("ann", 20)
        assert 0 == dispatcher.free_slots
        return dispatcher

    def again(self, held: Watched, window: int = 8, **config: Any) -> Watched:
        return Watched.restore(held.snapshot(), AlphabetRing(), replace(held.config, window=window, **config), now_ms=7)

    def test_what_starved_is_read_again_when_the_restore_returns(self) -> None:
        again = self.again(self.held("b1", "c1", "d1", "e1"))

        assert Load(4, b"e1") in again.outstanding_effects()
        assert [superseded(4, "e1"), deliver(5, "e1", "ann", item="new")] == again.offer(5, "e1", "new")
        assert (3, None) == (again.free_slots, again.stats().paused_by)


def test_a_journal_says_what_made_way() -> None:
    journal = Journal(HashRing(), DispatcherConfig(latest_only=True))
    assert [] == journal.apply(Command(0, 0, "offer", offset=0, key=b"k"))
    skipped, advanced = journal.apply(Command(1, 0, "offer", offset=1, key=b"k"))
    assert ("skipped", 0, "superseded") == (skipped.effect, skipped.offset, skipped.reason)
    assert "cursor_advanced" == advanced.effect


@pytest.mark.interpreted("changes the class of a living part")
def test_a_letter_that_goes_on_waiting_for_what_is_superseded_is_found() -> None:
    dispatcher = LetterBehindSleeps(AlphabetRing(), DispatcherConfig(latest_only=True, redrive=True))
    dispatcher.add_consumer("ann")
    dispatcher.offer(3, "b1", not_before_ms=40, now_ms=0)
    dispatcher.offer(9, "a9", now_ms=0)
    dispatcher.redrive("b1", [StoredLetter(7, 2)], now_ms=0)
    dispatcher.offer(11, "b1", now_ms=1)

    with pytest.raises(InvariantError, match="waits for its owner, or for memory"):
        dispatcher.check_invariants()
