"""Rule 23: of one key one consumer keeps something at a time, and it has let go of it before the next one begins."""

import json
from copy import deepcopy
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, delivered, fill, subscription

from keyshared._core.snapshot import sealed
from keyshared.config import DispatcherConfig, DrainUnit, KeySessions, Poison, RetryPolicy, Unmatched
from keyshared.dispatcher import Blocking, KeySession, KeySharedDispatcher, SessionPhase
from keyshared.effects import (
    BlockReason,
    Call,
    Effect,
    Evicted,
    Ignored,
    IgnoredReason,
    KeyBegun,
    KeyEnd,
    KeyEnded,
    KeyEnding,
    Load,
    Spilled,
)
from keyshared.errors import ArgumentError, ConfigError, KeyTypeError, SnapshotError
from keyshared.journal.commands import Command, call, fields_of

AT_ONCE = RetryPolicy(max_redeliveries=2, base_delay_ms=0)
NOT_FLUSHING = Ignored(None, None, 1, Call.FLUSHED, IgnoredReason.NOT_FLUSHING)


def sessions(*consumers: str, linger_ms: int = 0, flush_ms: int | None = 0, **config: Any) -> Watched:
    """A subscription with sessions of keys."""
    return subscription(*consumers, sessions=KeySessions(linger_ms=linger_ms, flush_ms=flush_ms), **config)


def flushing(*consumers: str, flush_ms: int | None = 10, **config: Any) -> Watched:
    """Ann was asked to flush a1, and another message of it waits."""
    dispatcher = sessions("ann", *consumers, flush_ms=flush_ms, **config)
    dispatcher.offer(0, "a1", now_ms=0)
    assert [ending("a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)
    assert [] == dispatcher.offer(1, "a1")
    return dispatcher


def begun(key: str, consumer: str, session: int = 1) -> KeyBegun:
    return KeyBegun(key.encode(), consumer, session)


def ending(key: str, consumer: str, session: int = 1) -> KeyEnding:
    return KeyEnding(key.encode(), consumer, session)


def ended(key: str, consumer: str, reason: KeyEnd, session: int = 1) -> KeyEnded:
    return KeyEnded(key.encode(), consumer, session, reason)


def of_sessions(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, KeyBegun | KeyEnding | KeyEnded)]


class TestBeginning:
    """A key begins at a consumer with the first delivery to it."""

    def test_it_is_told_before_the_delivery_and_once(self) -> None:
        dispatcher = sessions("ann", max_in_flight_per_key=2)
        assert [begun("a1", "ann"), deliver(0, "a1", "ann")] == dispatcher.offer(0, "a1")
        assert [deliver(1, "a1", "ann")] == dispatcher.offer(1, "a1")
        assert [begun("a2", "ann", 2), deliver(2, "a2", "ann")] == dispatcher.offer(2, "a2")

    def test_it_goes_on_while_one_delivery_follows_the_other(self) -> None:
        dispatcher = sessions("ann")
        fill(dispatcher, "a1", "a1")
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_one_that_is_lost_in_the_call_in_which_it_has_lingered_is_not_to_be_flushed(self) -> None:
        dispatcher = sessions("ann", linger_ms=5, flush_ms=100, inactive_grace_ms=5)
        dispatcher.offer(0, "a1", now_ms=0)
        dispatcher.ack(0, "ann", 1)
        dispatcher.set_inactive("ann")

        assert [Evicted("ann"), ended("a1", "ann", KeyEnd.LOST)] == dispatcher.handle_timeout(now_ms=5)

    def test_a_message_without_a_key_has_none(self) -> None:
        dispatcher = sessions("ann")
        assert [deliver(0, None, "ann")] == dispatcher.offer(0, None)
        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert [] == dispatcher.sessions()

    def test_with_ordering_required_everything_is_one_key(self) -> None:
        dispatcher = sessions("ann", ordering_required=True, unmatched=Unmatched.HOLD, poison=Poison.BLOCK)
        assert [begun("", "ann"), deliver(0, "", "ann")] == dispatcher.offer(0, "a1")
        assert [] == dispatcher.offer(1, None)
        assert [deliver(1, "", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert [ended("", "ann", KeyEnd.IDLE), advanced(1)] == dispatcher.ack(1, "ann", 1)

    def test_what_several_calls_at_one_instant_tell_stands_in_one_list(self) -> None:
        dispatcher = sessions("ann", window=2, max_in_flight_per_consumer=1)
        effects = dispatcher.offer_many([(0, "a1", None), (1, "a2", None)])
        assert [begun("a1", "ann"), deliver(0, "a1", "ann")] == effects
        assert [
            begun("a2", "ann", 2),
            ended("a1", "ann", KeyEnd.IDLE),
            ended("a2", "ann", KeyEnd.IDLE, 2),
        ] == of_sessions(dispatcher.ack_many([(0, "ann", 1), (1, "ann", 1)]))

    def test_it_stands_behind_what_is_spilled_and_before_what_is_loaded(self) -> None:
        dispatcher = sessions("ann", max_loaded_per_key=1)
        first, *others = [(0, "a1", None), (1, "a1", None), (2, "a2", None)]
        dispatcher.offer(*first)
        effects = [Spilled(1), begun("a2", "ann", 2), deliver(2, "a2", "ann")]
        assert effects == dispatcher.offer_many(others)
        assert [ended("a1", "ann", KeyEnd.IDLE), Load(1, b"a1"), advanced(0)] == dispatcher.ack(0, "ann", 1)


class TestEnding:
    """It ends when nothing of the key is open for a while, or the key belongs to somebody else."""

    def test_without_a_linger_it_ends_with_the_last_delivery(self) -> None:
        dispatcher = sessions("ann")
        dispatcher.offer(0, "a1")
        assert [ended("a1", "ann", KeyEnd.IDLE), advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert [begun("a1", "ann", 2), deliver(1, "a1", "ann")] == dispatcher.offer(1, "a1")

    def test_it_lingers_and_goes_on_with_the_next_message(self) -> None:
        dispatcher = sessions("ann", linger_ms=5, ack_timeout_ms=None)
        dispatcher.offer(0, "a1", now_ms=0)
        assert [advanced(0)] == dispatcher.ack(0, "ann", 1, now_ms=1)
        assert (6, [KeySession(b"a1", "ann", 1, SessionPhase.LINGERING, 6)]) == (
            dispatcher.next_deadline_ms(),
            dispatcher.sessions(),
        )
        assert [] == dispatcher.handle_timeout(now_ms=5)
        assert [deliver(1, "a1", "ann")] == dispatcher.offer(1, "a1")
        assert [KeySession(b"a1", "ann", 1, SessionPhase.WORKING, None)] == dispatcher.sessions()
        assert [] == dispatcher.handle_timeout(now_ms=6)
        assert [advanced(1)] == dispatcher.ack(1, "ann", 1, now_ms=7)
        assert [ended("a1", "ann", KeyEnd.IDLE)] == dispatcher.handle_timeout(now_ms=12)
        assert [] == dispatcher.sessions()

    def test_a_key_that_waits_for_its_retry_is_let_go(self) -> None:
        dispatcher = sessions("ann", linger_ms=5, retry=RetryPolicy(base_delay_ms=100))
        dispatcher.offer(0, "a1", now_ms=0)
        dispatcher.nack(0, "ann", 1)
        assert [ended("a1", "ann", KeyEnd.IDLE)] == dispatcher.handle_timeout(now_ms=5)
        assert [begun("a1", "ann", 2), deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.handle_timeout(now_ms=100)

    def test_the_dead_letter_store_is_no_consumer(self) -> None:
        dispatcher = sessions("ann", quarantine=True)
        fill(dispatcher, "a1", "a1")
        assert [ended("a1", "ann", KeyEnd.IDLE)] == of_sessions(dispatcher.reject(0, "ann", 1))
        assert [] == of_sessions(dispatcher.dead_lettered(0))

    def test_of_a_key_that_moves_the_next_begins_where_the_last_delivery_ends(self) -> None:
        dispatcher = sessions("bob", linger_ms=100)
        fill(dispatcher, "a1", "a1")
        assert [] == dispatcher.add_consumer("ann")
        assert [
            ended("a1", "bob", KeyEnd.MOVED),
            begun("a1", "ann", 2),
            deliver(1, "a1", "ann"),
            advanced(0),
        ] == dispatcher.ack(0, "bob", 1)

    def test_a_key_that_comes_back_to_its_consumer_in_time_has_not_moved(self) -> None:
        dispatcher = sessions("bob", linger_ms=100)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann")
        assert [] == dispatcher.remove_consumer("ann")
        assert [deliver(1, "a1", "bob"), advanced(0)] == dispatcher.ack(0, "bob", 1)

    def test_a_key_without_messages_moves_at_once(self) -> None:
        dispatcher = sessions("bob", linger_ms=100)
        fill(dispatcher, "b1", "a1")
        dispatcher.ack_many([(0, "bob", 1), (1, "bob", 1)])
        assert [ended("a1", "bob", KeyEnd.MOVED, 2)] == dispatcher.add_consumer("ann")

    def test_a_key_that_belongs_to_nobody_now_has_moved_too(self) -> None:
        dispatcher = sessions("ann", linger_ms=100)
        fill(dispatcher, "a1")
        dispatcher.ack(0, "ann", 1)
        assert [ended("a1", "ann", KeyEnd.MOVED)] == dispatcher.set_filters("ann", ["b*"])

    def test_who_leaves_and_has_nothing_to_flush_is_absent_at_once(self) -> None:
        dispatcher = sessions("ann", "bob", linger_ms=100)
        fill(dispatcher, "a1")
        dispatcher.ack(0, "ann", 1)
        assert [ended("a1", "ann", KeyEnd.LEFT)] == dispatcher.remove_consumer("ann", drain_ms=None)
        assert ["bob"] == list(dispatcher.stats().consumers)

    def test_who_finishes_before_it_leaves_has_left(self) -> None:
        dispatcher = sessions("ann", "bob", linger_ms=100)
        fill(dispatcher, "a1", "a2", "a2")
        assert [] == dispatcher.remove_consumer("ann", drain_ms=None)
        assert [ended("a1", "ann", KeyEnd.LEFT), advanced(0)] == dispatcher.ack(0, "ann", 1)
        effects = dispatcher.ack(1, "ann", 1)
        assert [ended("a2", "ann", KeyEnd.LEFT, 2), begun("a2", "bob", 3)] == of_sessions(effects)

    def test_who_finishes_at_the_last_moment_has_left_and_lost_nothing(self) -> None:
        dispatcher = sessions("ann", "bob", drain_timeout_ms=5, ack_timeout_ms=None)
        fill(dispatcher, "a1", "a1")
        dispatcher.remove_consumer("ann", drain_ms=5, now_ms=0)
        effects = dispatcher.handle_timeout(now_ms=5)
        assert [ended("a1", "ann", KeyEnd.LEFT), begun("a1", "bob", 2)] == of_sessions(effects)
        assert ["bob"] == list(dispatcher.stats().consumers)


class TestLosing:
    """Who is gone flushes nothing."""

    def test_an_eviction_ends_all_sessions(self) -> None:
        dispatcher = sessions("ann", "bob", linger_ms=100, flush_ms=None, inactive_grace_ms=5)
        fill(dispatcher, "a1", "a2")
        dispatcher.ack(0, "ann", 1)
        dispatcher.set_inactive("ann", now_ms=0)
        effects = of_sessions(dispatcher.handle_timeout(now_ms=5))
        lost = [ended("a1", "ann", KeyEnd.LOST), ended("a2", "ann", KeyEnd.LOST, 2)]
        assert [*lost, begun("a2", "bob", 3)] == effects

    def test_so_does_a_leave_without_a_drain(self) -> None:
        dispatcher = flushing("bob")
        effects = of_sessions(dispatcher.remove_consumer("ann"))
        assert [ended("a1", "ann", KeyEnd.LOST), begun("a1", "bob", 2)] == effects

    def test_and_a_drain_that_takes_too_long(self) -> None:
        dispatcher = flushing("bob", flush_ms=None)
        assert [] == dispatcher.remove_consumer("ann", drain_ms=5)
        effects = dispatcher.handle_timeout(now_ms=5)
        assert [ended("a1", "ann", KeyEnd.LOST), begun("a1", "bob", 2), deliver(1, "a1", "bob")] == effects
        assert ["bob"] == list(dispatcher.stats().consumers)

    def test_and_somebody_else_of_that_name(self) -> None:
        dispatcher = flushing("bob")
        dispatcher.remove_consumer("ann", drain_ms=None)
        effects = dispatcher.add_consumer("ann")
        assert [ended("a1", "ann", KeyEnd.LOST), begun("a1", "ann", 2), deliver(1, "a1", "ann")] == effects

    def test_who_comes_back_without_what_it_had_begins_anew(self) -> None:
        dispatcher = sessions("ann", linger_ms=100, retry=AT_ONCE)
        fill(dispatcher, "a1", "a2")
        dispatcher.ack(0, "ann", 1)
        dispatcher.set_inactive("ann")
        assert [] == dispatcher.set_active("ann", resumed=True)
        dispatcher.set_inactive("ann")
        lost = [ended("a1", "ann", KeyEnd.LOST), ended("a2", "ann", KeyEnd.LOST, 2)]
        assert [*lost, begun("a2", "ann", 3)] == of_sessions(dispatcher.set_active("ann"))


class TestFlushing:
    """With flush_ms a session has ended when its consumer says so."""

    def test_the_key_waits_for_it(self) -> None:
        dispatcher = flushing()
        assert Blocking(BlockReason.FLUSHING, "ann") == dispatcher.why_blocked(1)
        assert [KeySession(b"a1", "ann", 1, SessionPhase.FLUSHING, 10)] == dispatcher.sessions()
        assert [begun("a2", "ann", 2), deliver(2, "a2", "ann")] == dispatcher.offer(2, "a2")
        assert [ended("a1", "ann", KeyEnd.IDLE), begun("a1", "ann", 3), deliver(1, "a1", "ann")] == dispatcher.flushed(
            "a1", 1
        )

    def test_who_says_so_unasked_is_not_heard(self) -> None:
        dispatcher = flushing()
        assert [NOT_FLUSHING] == dispatcher.flushed("a2", 1)
        assert [NOT_FLUSHING._replace(attempt=2)] == dispatcher.flushed("a1", 2)
        dispatcher.flushed("a1", 1)
        assert [NOT_FLUSHING] == dispatcher.flushed("a1", 1)
        assert [NOT_FLUSHING._replace(attempt=2)] == dispatcher.flushed("a1", 2)  # something of it is open
        assert [NOT_FLUSHING] == subscription("ann").flushed("a1", 1)

    def test_it_may_take_so_long_and_no_longer(self) -> None:
        dispatcher = flushing(linger_ms=0)
        assert [] == dispatcher.handle_timeout(now_ms=9)
        effects = dispatcher.handle_timeout(now_ms=10)
        assert [ended("a1", "ann", KeyEnd.FLUSH_TIMEOUT), begun("a1", "ann", 2), deliver(1, "a1", "ann")] == effects

    def test_or_for_ever(self) -> None:
        assert flushing(flush_ms=None, ack_timeout_ms=None).next_deadline_ms() is None

    def test_a_session_that_has_lingered_is_flushed(self) -> None:
        dispatcher = sessions("ann", linger_ms=5, flush_ms=7)
        dispatcher.offer(0, "a1", now_ms=0)
        dispatcher.ack(0, "ann", 1)
        assert [ending("a1", "ann")] == dispatcher.handle_timeout(now_ms=5)
        assert 12 == dispatcher.next_deadline_ms()

    def test_a_key_that_moves_is_flushed_when_its_last_delivery_has_ended(self) -> None:
        dispatcher = sessions("bob", linger_ms=100, flush_ms=None)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann")
        assert Blocking(BlockReason.DRAINING, "bob") == dispatcher.why_blocked(1)
        assert [ending("a1", "bob"), advanced(0)] == dispatcher.ack(0, "bob", 1)
        assert Blocking(BlockReason.FLUSHING, "bob") == dispatcher.why_blocked(1)
        effects = dispatcher.flushed("a1", 1)
        assert [ended("a1", "bob", KeyEnd.MOVED), begun("a1", "ann", 2), deliver(1, "a1", "ann")] == effects

    def test_who_leaves_is_there_until_it_has_flushed(self) -> None:
        dispatcher = sessions("ann", "bob", linger_ms=100, flush_ms=None)
        fill(dispatcher, "a1")
        dispatcher.ack(0, "ann", 1)
        assert [ending("a1", "ann")] == dispatcher.remove_consumer("ann", drain_ms=None)
        assert [] == dispatcher.offer(1, "a1")
        effects = dispatcher.flushed("a1", 1)
        assert [ended("a1", "ann", KeyEnd.LEFT), begun("a1", "bob", 2), deliver(1, "a1", "bob")] == effects
        assert ["bob"] == list(dispatcher.stats().consumers)

    def test_a_key_that_comes_back_while_it_is_flushed_waits(self) -> None:
        dispatcher = sessions("bob", flush_ms=None)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann")
        dispatcher.ack(0, "bob", 1)
        assert [] == dispatcher.remove_consumer("ann")
        assert Blocking(BlockReason.FLUSHING, "bob") == dispatcher.why_blocked(1)
        effects = dispatcher.flushed("a1", 1)
        assert [ended("a1", "bob", KeyEnd.MOVED), begun("a1", "bob", 2), deliver(1, "a1", "bob")] == effects

    def test_what_waits_for_room_waits_for_the_flush_as_well(self) -> None:
        dispatcher = sessions("ann", flush_ms=None, max_in_flight_per_consumer=1)
        fill(dispatcher, "a1", "a2", "a1")
        assert [begun("a2", "ann", 2), ending("a1", "ann")] == of_sessions(dispatcher.ack(0, "ann", 1))
        assert Blocking(BlockReason.FLUSHING, "ann") == dispatcher.why_blocked(2)
        assert [] == dispatcher.set_limit("ann", 5)
        assert [(2, "ann")] == delivered(dispatcher.flushed("a1", 1))

    def test_nor_is_it_pulled(self) -> None:
        dispatcher = flushing()
        assert [] == dispatcher.pull("ann", 5)
        assert [] == dispatcher.pull("ann", 1, only=1)

    def test_what_is_spilled_is_loaded_afterwards(self) -> None:
        dispatcher = sessions("bob", flush_ms=None, max_loaded_per_key=1, max_in_flight_per_key=1)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann")
        assert [ending("a1", "bob"), Load(1, b"a1"), advanced(0)] == dispatcher.ack(0, "bob", 1)
        assert [] == dispatcher.loaded(1)
        assert Blocking(BlockReason.FLUSHING, "bob") == dispatcher.why_blocked(1)
        assert [(1, "ann")] == delivered(dispatcher.flushed("a1", 1))

    def test_a_quarantined_key_does_not_wait_for_it(self) -> None:
        dispatcher = sessions("ann", flush_ms=None, quarantine=True)
        fill(dispatcher, "a1", "a1")
        dispatcher.reject(0, "ann", 1)
        effects = dispatcher.dead_lettered(0)
        assert [("DeadLetter", 1), ("CursorAdvanced", 0)] == [(type(each).__name__, each[0]) for each in effects]

    def test_a_unit_and_a_session_must_both_be_free(self) -> None:
        dispatcher = sessions("bob", flush_ms=None, unit=DrainUnit.HASH)
        fill(dispatcher, "a1", "a2", "a1")
        dispatcher.add_consumer("ann")
        assert [ending("a1", "bob"), advanced(0)] == dispatcher.ack(0, "bob", 1)
        assert Blocking(BlockReason.DRAINING, "bob") == dispatcher.why_blocked(2)
        assert [ended("a1", "bob", KeyEnd.MOVED)] == dispatcher.flushed("a1", 1)
        assert [begun("a1", "ann", 3)] == [
            effect for effect in dispatcher.ack(1, "bob", 1) if isinstance(effect, KeyBegun)
        ]

    def test_a_new_key_waits_for_its_unit_as_well(self) -> None:
        dispatcher = sessions("bob", flush_ms=None, unit=DrainUnit.HASH)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("ann")
        assert [] == dispatcher.offer(1, "a2")
        assert [ending("a1", "bob"), begun("a2", "ann", 2)] == of_sessions(dispatcher.ack(0, "bob", 1))[::-1]

    def test_a_drain_of_a_unit_is_over_before_the_flush_of_a_key(self) -> None:
        dispatcher = sessions("bob", flush_ms=None, unit=DrainUnit.HASH)
        fill(dispatcher, "a1", "a2", "a1")
        dispatcher.add_consumer("ann")
        dispatcher.ack(0, "bob", 1)
        dispatcher.ack(1, "bob", 1)
        assert Blocking(BlockReason.FLUSHING, "bob") == dispatcher.why_blocked(2)
        assert [begun("a1", "ann", 3)] == [
            effect for effect in dispatcher.flushed("a1", 1) if isinstance(effect, KeyBegun)
        ]

    def test_a_drain_timeout_ends_the_deliveries_and_then_the_flush_has_its_time(self) -> None:
        dispatcher = sessions("bob", flush_ms=7, drain_timeout_ms=5, ack_timeout_ms=None)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann", now_ms=0)
        assert [ending("a1", "bob")] == of_sessions(dispatcher.handle_timeout(now_ms=5))
        assert 12 == dispatcher.next_deadline_ms()
        effects = of_sessions(dispatcher.handle_timeout(now_ms=12))
        assert [ended("a1", "bob", KeyEnd.FLUSH_TIMEOUT), begun("a1", "ann", 2)] == effects

    def test_an_obligation_can_be_asked_for_again(self) -> None:
        dispatcher = flushing()
        assert [ending("a1", "ann")] == dispatcher.outstanding_effects()
        assert dispatcher.is_current(ending("a1", "ann"))
        dispatcher.flushed("a1", 1)
        assert not dispatcher.is_current(ending("a1", "ann"))
        assert not subscription("ann").is_current(ending("a1", "ann"))

    @pytest.mark.parametrize(
        ("key", "session", "error"), [(None, 1, ArgumentError), (7, 1, KeyTypeError), ("a1", "1", ArgumentError)]
    )
    def test_what_names_no_session_is_refused(self, key: Any, session: Any, error: type[Exception]) -> None:
        with pytest.raises(error):
            flushing().flushed(key, session)


class TestSnapshot:
    """A restored dispatcher knows who keeps what."""

    @staticmethod
    def restored(dispatcher: KeySharedDispatcher, epoch: int = 0) -> Watched:
        state: Any = json.loads(json.dumps(dispatcher.snapshot()))
        return Watched.restore(state, AlphabetRing(), dispatcher.config, now_ms=0, epoch=epoch)

    def test_a_flush_goes_on_for_the_time_that_was_left(self) -> None:
        original = flushing("bob")
        original.handle_timeout(now_ms=4)
        again = self.restored(original)
        assert [KeySession(b"a1", "ann", 1, SessionPhase.FLUSHING, 6)] == again.sessions()
        assert [ended("a1", "ann", KeyEnd.IDLE), begun("a1", "ann", 2), deliver(1, "a1", "ann")] == again.flushed(
            "a1", 1
        )

    def test_so_does_a_linger_and_work(self) -> None:
        original = sessions("ann", linger_ms=5, ack_timeout_ms=None)
        fill(original, "a1", "a2")
        original.ack(0, "ann", 1, now_ms=0)
        again = self.restored(original)
        assert original.sessions() == again.sessions()
        assert [advanced(1)] == again.ack(1, "ann", 1)
        assert of_sessions(again.handle_timeout(now_ms=5)) == [
            ended("a1", "ann", KeyEnd.IDLE),
            ended("a2", "ann", KeyEnd.IDLE, 2),
        ]

    def test_no_number_comes_again(self) -> None:
        original = sessions("ann")
        fill(original, "a1")
        original.ack(0, "ann", 1)
        assert [begun("a1", "ann", 2), deliver(1, "a1", "ann")] == self.restored(original).offer(1, "a1")
        number = (3 << 32) + 1
        effects = self.restored(original, epoch=3).offer(1, "a1")
        assert [begun("a1", "ann", number), deliver(1, "a1", "ann", number)] == effects

    def test_sessions_can_be_switched_on_over_a_restart(self) -> None:
        plain = subscription("ann")
        fill(plain, "a1", "b1")
        config = DispatcherConfig(sessions=KeySessions())
        again = Watched.restore(plain.snapshot(), AlphabetRing(), config, now_ms=0)
        assert [(b"a1", 1), (b"b1", 2)] == [(each.key, each.session) for each in again.sessions()]
        assert [ended("a1", "ann", KeyEnd.IDLE), advanced(0)] == again.ack(0, "ann", 1)

    @pytest.mark.parametrize("flush_ms", [0, 500])
    def test_a_flush_without_an_end_gets_the_whole_time_of_now(self, flush_ms: int) -> None:
        config = DispatcherConfig(sessions=KeySessions(flush_ms=flush_ms))
        again = Watched.restore(flushing(flush_ms=None).snapshot(), AlphabetRing(), config, now_ms=7)

        assert 7 + flush_ms == again.next_deadline_ms()
        told = again.handle_timeout(now_ms=7 + flush_ms)
        assert [ended("a1", "ann", KeyEnd.FLUSH_TIMEOUT), begun("a1", "ann", 2), deliver(1, "a1", "ann")] == told

    def test_a_flush_with_an_end_keeps_what_is_left(self) -> None:
        for flush_ms in (None, 0, 500):
            config = DispatcherConfig(sessions=KeySessions(flush_ms=flush_ms))
            again = Watched.restore(flushing().snapshot(), AlphabetRing(), config, now_ms=7)
            assert 17 == again.next_deadline_ms()

    def test_but_not_off(self) -> None:
        dispatcher = sessions("ann")
        dispatcher.offer(0, "a1")
        with pytest.raises(SnapshotError, match="be absent: the configuration does not ask for it"):
            Watched.restore(dispatcher.snapshot(), AlphabetRing(), DispatcherConfig(), now_ms=0)


def test_an_open_delivery_without_a_session_is_refused() -> None:
    dispatcher = sessions("ann")
    fill(dispatcher, "a1", "a2")
    state: dict[str, Any] = deepcopy(dispatcher.snapshot())
    del state["checksum"]
    del state["features"]["sessions"]["sessions"][0]

    with pytest.raises(SnapshotError, match="have one of every key that something is open of"):
        Watched.restore(sealed(state), AlphabetRing(), dispatcher.config, now_ms=0)


def test_a_row_of_a_log_can_say_that_it_is_flushed() -> None:
    dispatcher = flushing()
    effects = call(dispatcher, Command(0, 5, "flushed", key="a1", attempt=1), now_ms=5)
    rows = [fields_of(effect) for effect in effects[:2]]
    assert [
        ("key_ended", None, b"a1", "ann", 1, None, None, None, "idle"),
        ("key_begun", None, b"a1", "ann", 2, None, None, None, None),
    ] == rows


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="linger_ms"):
        KeySessions(linger_ms=-1)
    with pytest.raises(ConfigError, match="flush_ms"):
        KeySessions(flush_ms=-1)
    with pytest.raises(ConfigError, match="sessions"):
        DispatcherConfig(sessions=5)  # type: ignore[arg-type]  # that is the mistake


def test_a_configuration_survives_json() -> None:
    config = DispatcherConfig(sessions=KeySessions(linger_ms=5, flush_ms=None))
    assert config == DispatcherConfig.from_json(json.loads(json.dumps(config.to_json())))
    short = DispatcherConfig.from_json({"sessions": {"linger_ms": 5}})
    assert DispatcherConfig(sessions=KeySessions(linger_ms=5)) == short
    with pytest.raises(SnapshotError, match=r"config\.sessions"):
        DispatcherConfig.from_json({"sessions": {"linger": 5}})


def test_a_plain_dispatcher_has_no_sessions() -> None:
    dispatcher = subscription("ann")
    assert [deliver(0, "a1", "ann")] == dispatcher.offer(0, "a1")
    assert [] == dispatcher.sessions()
