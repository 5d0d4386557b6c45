"""Rule 22: with ``latest_only`` a message that waits for its first delivery makes way for a newer one of its key."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, delivered, fill, subscription, then
from tests.broken import LetterBehindSleeps, NewestGoesToTheTail, VoidLoadWakesNobody
from tests.kit.recorder import Recorder

from keyshared._core.values import Full
from keyshared.config import DispatcherConfig, Poison, RetryPolicy, Unmatched
from keyshared.dispatcher import Blocking, KeySharedDispatcher, StoredLetter
from keyshared.effects import (
    Blocked,
    BlockReason,
    Call,
    DeadLetter,
    Done,
    Ending,
    Ignored,
    IgnoredReason,
    Load,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.errors import (
    ArgumentError,
    InvariantError,
    KeyFullError,
    UnmatchedKeyError,
    WindowFullError,
)
from keyshared.journal import Command, Journal
from keyshared.ring import HashRing
from keyshared.testing import Claims, Promise, check_history

AT_ONCE = RetryPolicy(max_redeliveries=0, base_delay_ms=0)


def latest(*consumers: str, **config: Any) -> Watched:
    return subscription(*consumers, latest_only=True, **config)


def superseded(offset: int, key: str) -> Skipped:
    return Skipped(offset, key.encode(), SkipReason.SUPERSEDED)


def outstanding(dispatcher: Watched) -> list[int]:
    return [message.offset for message in dispatcher.outstanding()]


def restored(original: Watched, **changed: Any) -> Watched:
    state = json.loads(json.dumps(original.snapshot()))
    return Watched.restore(state, AlphabetRing(), replace(original.config, **changed), now_ms=0)


def busy(*, limit: int = 1, **config: Any) -> Watched:
    """Ann works on offset 0 of another key, and has room for no more."""
    dispatcher = latest("ann", **config)
    dispatcher.set_limit("ann", limit)
    fill(dispatcher, "a9")
    return dispatcher


class TestMakingWay:
    """What waits for its first delivery is settled when a newer message of its key is offered."""

    def test_the_older_one_is_settled_in_the_call_that_offers_the_newer_one(self) -> None:
        dispatcher = latest(tell_settled=True)
        assert [] == fill(dispatcher, "a1")
        assert [superseded(0, "a1"), Done(0, b"a1", Ending.SUPERSEDED), advanced(0)] == dispatcher.offer(1, "a1", "new")
        assert [deliver(1, "a1", "ann", item="new")] == dispatcher.add_consumer("ann")
        assert 1 == dispatcher.resume_offset

    def test_of_each_key_one_message_waits_however_many_are_offered(self) -> None:
        dispatcher = latest()
        fill(dispatcher, "a1", "b1", "a1", "a1", "b1", "a1")
        assert [4, 5] == outstanding(dispatcher)

    def test_what_is_open_stays_and_goes_first(self) -> None:
        dispatcher = latest("ann")
        assert [(0, "ann")] == delivered(fill(dispatcher, "a1", "a1"))
        assert [superseded(1, "a1")] == dispatcher.offer(2, "a1")
        assert [Blocking(BlockReason.KEY_IN_FLIGHT, "ann")] == [dispatcher.why_blocked(2)]
        assert [(2, "ann")] == delivered(dispatcher.ack(0, "ann", 1))

    def test_as_many_as_may_be_open_of_a_key_go_out_before_anything_waits(self) -> None:
        dispatcher = latest("ann", max_in_flight_per_key=2)
        assert [(0, "ann"), (1, "ann")] == delivered(fill(dispatcher, "a1", "a1", "a1"))
        assert [superseded(2, "a1")] == dispatcher.offer(3, "a1")

    def test_messages_without_a_key_never_make_way(self) -> None:
        dispatcher = latest()
        assert [] == fill(dispatcher, None, None)
        assert [0, 1] == outstanding(dispatcher)

    def test_an_offer_needs_a_slot_as_any_other(self) -> None:
        dispatcher = latest(window=1)
        fill(dispatcher, "a1")
        with pytest.raises(WindowFullError):
            dispatcher.offer(1, "a1")
        assert [0] == outstanding(dispatcher)

    def test_a_policy_that_refuses_a_key_is_not_asked_of_one_that_waits(self) -> None:
        dispatcher = latest("ann", unmatched=Unmatched.ERROR)
        dispatcher.set_limit("ann", 0)
        fill(dispatcher, "a1")
        dispatcher.set_filters("ann", ["b*"])
        assert [superseded(0, "a1"), advanced(0)] == dispatcher.offer(1, "a1")
        with pytest.raises(UnmatchedKeyError):
            dispatcher.offer(2, "a2")

    def test_several_that_waited_before_it_was_switched_on_make_way_oldest_first(self) -> None:
        original = subscription("ann", tell_settled=True)
        fill(original, "a1", "a1", "a1", "a2", "a1")
        dispatcher = restored(original, latest_only=True)
        ways = [effect for effect in dispatcher.offer(5, "a1") if isinstance(effect, Skipped | Done)]
        assert [1, 2, 4, 1, 2, 4] == [effect.offset for effect in ways]
        assert [0, 3, 5] == outstanding(dispatcher)

    def test_a_batch_of_offers_leaves_the_last_one_of_each_key(self) -> None:
        dispatcher = latest("ann")
        effects = dispatcher.offer_many([(offset, key, None) for offset, key in enumerate(["a1", "a1", "a2", "a1"])])
        assert [superseded(1, "a1"), deliver(0, "a1", "ann"), deliver(2, "a2", "ann")] == effects

    def test_what_a_batch_of_offers_asks_for_and_replaces_is_not_asked_for(self) -> None:
        dispatcher = busy(window=4)
        fill(dispatcher, "a1", "a2", "a3", "a4", start=1)  # the last two are spilled
        acks = [dispatcher.ack(offset, "ann", 1) for offset in range(3)]
        assert [Load(3, b"a3"), advanced(2)] == acks[-1]
        effects = dispatcher.offer_many([(5, "a3", None, 100), (6, "a4", None)])  # ann has room for a4 by the first
        assert [superseded(3, "a3"), superseded(4, "a4"), deliver(6, "a4", "ann"), advanced(4)] == effects


class TestWhatWasDelivered:
    """It is never superseded, whatever has become of its delivery."""

    @pytest.mark.parametrize("poison", [Poison.BLOCK, Poison.DEAD_LETTER])
    def test_poison_stays(self, poison: Poison) -> None:
        dispatcher = latest("ann", retry=AT_ONCE, poison=poison)
        fill(dispatcher, "a1", "a1")
        (kept,) = then(dispatcher.nack(0, "ann", 1))
        assert isinstance(kept, Blocked | DeadLetter)
        assert [superseded(1, "a1")] == dispatcher.offer(2, "a1")
        assert [0, 2] == outstanding(dispatcher)

    def test_a_retry_goes_first_and_then_the_latest(self) -> None:
        dispatcher = latest("ann", retry=RetryPolicy(base_delay_ms=50))
        fill(dispatcher, "a1", "a1")
        dispatcher.nack(0, "ann", 1)
        assert [superseded(1, "a1")] == dispatcher.offer(2, "a1")
        assert [(0, "ann")] == delivered(dispatcher.handle_timeout(now_ms=1_000))
        assert [(2, "ann")] == delivered(dispatcher.ack(0, "ann", 2))

    def test_what_came_back_stays_while_nobody_has_it(self) -> None:
        dispatcher = latest("ann")
        fill(dispatcher, "a1")
        dispatcher.remove_consumer("ann")
        assert [] == fill(dispatcher, "a1", start=1)
        assert [superseded(1, "a1")] == dispatcher.offer(2, "a1")
        assert [0, 2] == outstanding(dispatcher)

    def test_what_a_quarantine_archives_stays_and_what_waits_behind_it_makes_way(self) -> None:
        dispatcher = latest("ann", retry=AT_ONCE, quarantine=True)
        fill(dispatcher, "a1", "a1")
        dispatcher.nack(0, "ann", 1)
        assert [DeadLetter(1, b"a1", 0, 0, None)] == dispatcher.dead_lettered(0)[:1]
        assert [] == fill(dispatcher, "a1", start=2)
        assert [superseded(2, "a1")] == dispatcher.offer(3, "a1")
        assert [1, 3] == outstanding(dispatcher)

    def test_what_has_come_back_from_the_dead_letter_store_stays_and_goes_first(self) -> None:
        dispatcher = latest("ann", redrive=True)
        fill(dispatcher, "a1", "a1")
        dispatcher.reject(0, "ann", 1)
        dispatcher.dead_lettered(0)
        dispatcher.redrive("a1", [StoredLetter(0, 1, None)])
        assert [] == fill(dispatcher, "a1", start=2)
        assert [superseded(2, "a1")] == dispatcher.offer(3, "a1")
        assert [(0, "ann")] == delivered(dispatcher.ack(1, "ann", 1))

    def test_what_has_come_back_stays_also_behind_what_was_never_delivered(self) -> None:
        dispatcher = latest("ann", redrive=True, retry=AT_ONCE, quarantine=True)
        fill(dispatcher, "a1", "a1")
        dispatcher.nack(0, "ann", 1)
        dispatcher.dead_lettered(0)  # offset 1 is being archived now
        fill(dispatcher, "a1", start=2)
        dispatcher.gone(2)
        dispatcher.unblock("a1")
        dispatcher.redrive("a1", [StoredLetter(2, 0, None)])
        assert [] == fill(dispatcher, "a1", start=3)
        assert [1, 2, 3] == outstanding(dispatcher)


class TestItsPlace:
    """The newer one stands where the older one stood, and has its slot."""

    def test_a_key_that_changes_all_the_time_is_not_sent_to_the_tail(self) -> None:
        dispatcher = busy()
        fill(dispatcher, "a1", "a2", "a1", start=1)
        assert [(3, "ann")] == delivered(dispatcher.ack(0, "ann", 1))
        assert [(2, "ann")] == delivered(dispatcher.ack(3, "ann", 1))

    def test_it_keeps_its_key_draining_until_the_same_deadline(self) -> None:
        dispatcher = latest("ann", drain_timeout_ms=10)
        dispatcher.offer(0, "b1", now_ms=0)
        dispatcher.add_consumer("bob", now_ms=1)
        assert [] == dispatcher.offer(1, "b1", now_ms=2)
        assert [superseded(1, "b1")] == dispatcher.offer(2, "b1", now_ms=9)
        assert (Blocking(BlockReason.DRAINING, "ann"), 12) == (dispatcher.why_blocked(2), dispatcher.next_deadline_ms())

    def test_what_took_a_slot_leaves_it_to_the_newer_one(self) -> None:
        dispatcher = busy(window=4)
        assert [] == fill(dispatcher, "a1", "a2", start=1)
        assert [Spilled(3)] == fill(dispatcher, "a3", start=3)  # two wait already
        assert [superseded(1, "a1")] == dispatcher.offer(4, "a1", "kept")
        assert [deliver(4, "a1", "ann", item="kept")] == dispatcher.ack(0, "ann", 1)[:1]

    def test_what_was_spilled_makes_way_and_the_newer_one_is_spilled_as_any_other(self) -> None:
        dispatcher = busy(window=4)
        fill(dispatcher, "a1", "a2", "a3", start=1)  # the last one is spilled
        assert [superseded(3, "a3"), Spilled(4)] == dispatcher.offer(4, "a3")
        dispatcher.gone(1)
        assert [superseded(4, "a3")] == dispatcher.offer(5, "a3", "kept")  # there is room by now
        assert Load not in map(type, dispatcher.ack(0, "ann", 1))

    def test_the_limit_of_what_is_loaded_of_a_key_holds(self) -> None:
        dispatcher = latest("ann", max_loaded_per_key=1)
        assert [Spilled(1)] == fill(dispatcher, "a1", "a1")[1:]
        assert [superseded(1, "a1"), Spilled(2)] == dispatcher.offer(2, "a1")

    def test_room_for_its_key_is_needed_as_for_any_other(self) -> None:
        dispatcher = busy(spill=False, max_waiting_per_key=1)
        fill(dispatcher, "a1", start=1)
        with pytest.raises(KeyFullError):
            dispatcher.offer(2, "a1")


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

    def test_the_newer_one_goes_out_to_whoever_had_room_for_the_load(self) -> None:
        dispatcher = self.loading()
        assert [superseded(3, "b3"), deliver(4, "b3", "bob"), advanced(3)] == dispatcher.offer(4, "b3")
        ignored = Ignored(3, None, None, Call.LOADED, IgnoredReason.UNKNOWN_OFFSET)
        assert [ignored] == dispatcher.loaded(3, "late")

    def test_another_owner_gets_it_if_the_key_has_moved_meanwhile(self) -> None:
        dispatcher = self.loading()
        dispatcher.set_filters("bob", ["c*"])
        assert [(4, "ann")] == delivered(dispatcher.offer(4, "b3"))

    def test_it_waits_for_room_if_that_was_taken_away(self) -> None:
        dispatcher = self.loading()
        dispatcher.set_limit("bob", 0)
        assert [superseded(3, "b3"), advanced(3)] == dispatcher.offer(4, "b3")
        assert [(4, "bob")] == delivered(dispatcher.set_limit("bob", 1))

    def test_it_goes_out_if_the_load_was_for_nobody_yet(self) -> None:
        dispatcher = latest("ann", max_loaded_per_key=1)
        fill(dispatcher, "a1", "a1")
        assert Load(1, b"a1") in dispatcher.ack(0, "ann", 1)  # it has the slot of offset 0
        assert [superseded(1, "a1"), deliver(2, "a1", "ann"), advanced(1)] == dispatcher.offer(2, "a1")


class TestNotBefore:
    """The latest decides: its time counts, and no other."""

    def test_the_time_of_the_older_one_is_forgotten(self) -> None:
        dispatcher = latest("ann")
        dispatcher.offer(0, "a1", not_before_ms=100)
        assert [superseded(0, "a1"), deliver(1, "a1", "ann"), advanced(0)] == dispatcher.offer(1, "a1")
        assert dispatcher.next_deadline_ms() == DispatcherConfig().ack_timeout_ms

    def test_the_time_of_the_newer_one_counts(self) -> None:
        dispatcher = busy()
        fill(dispatcher, "a1", "a2", start=1)
        assert [superseded(1, "a1")] == dispatcher.offer(3, "a1", not_before_ms=100)
        assert [(2, "ann")] == delivered(dispatcher.ack(0, "ann", 1))
        assert [(3, "ann")] == delivered([*dispatcher.ack(2, "ann", 1), *dispatcher.handle_timeout(now_ms=100)])

    def test_a_time_that_has_come_says_nothing(self) -> None:
        dispatcher = latest()
        fill(dispatcher, "a1")
        assert [superseded(0, "a1"), advanced(0)] == dispatcher.offer(1, "a1", not_before_ms=7, now_ms=7)
        assert [(1, "ann")] == delivered(dispatcher.add_consumer("ann"))

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

    def test_what_is_spilled_has_its_slot_before_anything_new(self) -> None:
        again = self.again(self.held("b1", "c1", "d1", "e1", "f1", "g1", "h1"))
        before = again.snapshot()

        assert (0, Full.WINDOW) == (again.free_slots, again.stats().paused_by)
        with pytest.raises(WindowFullError):
            again.offer_many([(offset, key, None) for offset, key in enumerate(["e1", "x1"], start=9)])
        with pytest.raises(WindowFullError):
            again.offer(9, "e1")
        assert before == again.snapshot()

    def test_what_there_is_room_for_can_be_offered_together(self) -> None:
        again = self.again(self.held("b1", "c1", "d1", "e1", "f1", "g1", "h1"), window=12)
        assert 4 == again.free_slots

        again.offer_many([(offset, key, None) for offset, key in enumerate(["e1", "i1", "j1", "k1"], start=9)])
        assert (1, 12) == (again.free_slots, again.restart_mark.last)

    def test_a_key_that_may_have_more_open_is_not_forgotten_by_what_makes_way_behind(self) -> None:
        held = subscription("ann", latest_only=True, retry=AT_ONCE, redrive=True)
        fill(held, "a1")
        held.reject(0, "ann", 1)
        held.dead_lettered(0)
        fill(held, "a1", "a1", start=1)
        held.redrive("a1", [StoredLetter(0, 1)])
        again = self.again(held, window=1_000, max_in_flight_per_key=2)

        assert deliver(0, "a1", "ann", 2) in again.outstanding_effects()
        assert [superseded(2, "a1")] == again.offer(3, "a1")


def test_it_is_refused_where_there_would_be_nothing_to_choose_from() -> None:
    with pytest.raises(ArgumentError, match=r"latest_only is True; it must be False with ordering_required"):
        DispatcherConfig(latest_only=True, ordering_required=True, unmatched=Unmatched.HOLD, poison=Poison.BLOCK)
    with pytest.raises(ArgumentError, match=r"batch_per_key is 2; it must be 1 with latest_only"):
        DispatcherConfig(latest_only=True, batch_per_key=2)


def test_a_journal_says_what_made_way() -> None:
    journal = Journal(HashRing(), DispatcherConfig(latest_only=True))
    assert [] == journal.apply(Command(0, 0, "offer", offset=0, key=b"k"))
    skipped, advanced = journal.apply(Command(1, 0, "offer", offset=1, key=b"k"))
    assert ("skipped", 0, "superseded") == (skipped.effect, skipped.offset, skipped.reason)
    assert "cursor_advanced" == advanced.effect


@pytest.mark.parametrize(("broken", "found"), [(KeySharedDispatcher, []), (NewestGoesToTheTail, [Promise.FAIRNESS])])
def test_a_key_that_loses_its_place_is_found(broken: type[Any], found: list[Promise]) -> None:
    recorder = Recorder(broken(AlphabetRing(), DispatcherConfig(latest_only=True, max_in_flight_per_consumer=1)))
    recorder.add_consumer("ann")
    fill(recorder, "a9", "a1", "a2", "a1")  # type: ignore[arg-type]  # it has any call
    recorder.ack(0, "ann", 1)
    claims = Claims(promises={Promise.FAIRNESS, Promise.LATEST_ONLY}, latest_only=True, per_consumer=1, fairness=0)
    assert found == [violation.promise for violation in check_history(recorder.history, claims)]


@pytest.mark.parametrize(("broken", "found"), [(KeySharedDispatcher, []), (VoidLoadWakesNobody, [Promise.PROGRESS])])
def test_a_key_that_waits_for_a_load_that_is_void_is_found(broken: type[Any], found: list[Promise]) -> None:
    recorder = Recorder(broken(AlphabetRing(), DispatcherConfig(latest_only=True, max_loaded_per_key=1)))
    recorder.add_consumer("ann")
    fill(recorder, "a1", "a1")  # type: ignore[arg-type]  # it has any call
    recorder.ack(0, "ann", 1)
    recorder.offer(2, "a1")
    claims = Claims(promises={Promise.PROGRESS, Promise.LATEST_ONLY}, latest_only=True)
    assert found == [violation.promise for violation in check_history(recorder.history, claims)]


def test_what_came_back_behind_a_superseded_message_goes_out() -> None:
    dispatcher = latest("ann", redrive=True)
    dispatcher.offer(3, "b1", not_before_ms=40, now_ms=0)
    dispatcher.offer(9, "a9", now_ms=0)
    assert [] == dispatcher.redrive("b1", [StoredLetter(7, 2), StoredLetter(8, 1)], now_ms=0)

    effects = dispatcher.offer(11, "b1", now_ms=1)

    assert [superseded(3, "b1"), deliver(7, "b1", "ann", 3), advanced(3)] == effects
    assert [deliver(8, "b1", "ann", 2)] == dispatcher.ack(7, "ann", 3, now_ms=2)


def test_who_supersedes_a_message_waits_for_its_own_instant_behind_what_came_back() -> None:
    dispatcher = latest("ann", redrive=True)
    dispatcher.offer(3, "b1", not_before_ms=40, now_ms=0)
    dispatcher.redrive("b1", [StoredLetter(2, 1)], now_ms=0)

    assert [superseded(3, "b1"), advanced(3)] == dispatcher.offer(4, "b1", not_before_ms=9, now_ms=1)
    assert [] == dispatcher.ack(2, "ann", 2, now_ms=8)
    assert [deliver(4, "b1", "ann", 1)] == dispatcher.handle_timeout(now_ms=9)


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
