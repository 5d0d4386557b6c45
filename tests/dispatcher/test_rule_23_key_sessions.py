"""Rule 23: of one key one consumer keeps something at a time, and it has let go of it before the next one begins."""

import json
from copy import deepcopy
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, fill, subscription

from keyshared._core.snapshot import sealed
from keyshared.config import DispatcherConfig, KeySessions
from keyshared.effects import (
    Call,
    Effect,
    Ignored,
    IgnoredReason,
    KeyBegun,
    KeyEnd,
    KeyEnded,
    KeyEnding,
)
from keyshared.errors import ArgumentError, ConfigError, KeyTypeError, SnapshotError
from keyshared.journal.commands import Command, call, fields_of

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


class TestEnding:
    """It ends when nothing of the key is open for a while, or the key belongs to somebody else."""

    def test_who_finishes_at_the_last_moment_has_left_and_lost_nothing(self) -> None:
        dispatcher = sessions("ann", "bob", drain_timeout_ms=5, ack_timeout_ms=None)
        fill(dispatcher, "a1", "a1")
        dispatcher.remove_consumer("ann", drain_ms=5, now_ms=0)
        effects = dispatcher.handle_timeout(now_ms=5)
        assert [ended("a1", "ann", KeyEnd.LEFT), begun("a1", "bob", 2)] == of_sessions(effects)
        assert ["bob"] == list(dispatcher.stats().consumers)


class TestLosing:
    """Who is gone flushes nothing."""

    def test_and_somebody_else_of_that_name(self) -> None:
        dispatcher = flushing("bob")
        dispatcher.remove_consumer("ann", drain_ms=None)
        effects = dispatcher.add_consumer("ann")
        assert [ended("a1", "ann", KeyEnd.LOST), begun("a1", "ann", 2), deliver(1, "a1", "ann")] == effects


class TestFlushing:
    """With flush_ms a session has ended when its consumer says so."""

    @pytest.mark.parametrize(
        ("key", "session", "error"), [(None, 1, ArgumentError), (7, 1, KeyTypeError), ("a1", "1", ArgumentError)]
    )
    def test_what_names_no_session_is_refused(self, key: Any, session: Any, error: type[Exception]) -> None:
        with pytest.raises(error):
            flushing().flushed(key, session)


class TestSnapshot:
    """A restored dispatcher knows who keeps what."""

    @pytest.mark.parametrize("flush_ms", [0, 500])
    def test_a_flush_without_an_end_gets_the_whole_time_of_now(self, flush_ms: int) -> None:
        config = DispatcherConfig(sessions=KeySessions(flush_ms=flush_ms))
        again = Watched.restore(flushing(flush_ms=None).snapshot(), AlphabetRing(), config, now_ms=7)

        assert 7 + flush_ms == again.next_deadline_ms()
        told = again.handle_timeout(now_ms=7 + flush_ms)
        assert [ended("a1", "ann", KeyEnd.FLUSH_TIMEOUT), begun("a1", "ann", 2), deliver(1, "a1", "ann")] == told


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
