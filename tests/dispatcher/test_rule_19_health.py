"""Rule 19: with ``measure`` a dispatcher says how old its messages are, and counts what becomes of them."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, subscription

from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.effects import Ending
from keyshared.errors import ArgumentError


def measured(*consumers: str, **config: Any) -> Watched:
    return subscription(*consumers, measure=True, **config)


def restored(original: KeySharedDispatcher[Any], *, now_ms: int = 0, **config: Any) -> Watched:
    state = json.loads(json.dumps(original.snapshot()))
    fields = {"measure": True, **config}
    return Watched.restore(state, AlphabetRing(), DispatcherConfig(**fields), now_ms=now_ms)


class TestAges:
    """They count from the offer, to within one second, rounded up."""

    def test_what_has_come_back_from_the_dead_letter_store_has_no_age(self) -> None:
        dispatcher = measured("ann", redrive=True)
        dispatcher.offer(0, "a1", now_ms=0)
        dispatcher.reject(0, "ann", 1)
        dispatcher.dead_lettered(0)
        dispatcher.redrive("a1", [StoredLetter(0, 1, None)], now_ms=9_000)
        health = dispatcher.health()
        assert (None, None, ((b"a1", 1),)) == (health.oldest_ms, health.blocked_offset, health.busiest)
        dispatcher.ack(0, "ann", 2)
        assert {Ending.DEAD_LETTERED: 1, Ending.ACKED: 1} == dispatcher.health().ended


class TestBusiestKeys:
    """They are named with or without ``measure``."""

    def test_a_number_of_keys_that_is_none_is_refused(self) -> None:
        with pytest.raises(ArgumentError, match=r"busiest is -1; it must be an int of at least 0"):
            subscription().health(busiest=-1)


class TestRestart:
    """Ages and counts go on."""

    def test_what_was_outstanding_before_it_was_switched_on_is_new_then(self) -> None:
        original = subscription()
        original.offer(0, "a1", now_ms=5_000)
        again = restored(original)
        again.handle_timeout(now_ms=70)
        assert (70, {}) == (again.health().oldest_ms, again.health().ended)

    def test_what_is_read_again_is_not_counted_again(self) -> None:
        original = measured("ann")
        original.offer(0, "a1")
        original.offer(1, "b1")
        original.ack(1, "ann", 1)
        again = restored(original)
        again.offer(0, "a1")
        again.offer(1, "b1")
        assert {Ending.ACKED: 1} == again.health().ended


class TestNames:
    """The figures have the names that every host exports."""

    def test_each_figure_is_a_row(self) -> None:
        dispatcher = measured("ann")
        dispatcher.offer(0, b"a\xff", now_ms=0)
        dispatcher.offer(1, b"a\xff", now_ms=1_500)
        dispatcher.ack(0, "ann", 1)
        assert [
            ("keyshared_oldest_age_seconds", (), 0.0),
            ("keyshared_key_outstanding", (("key", "a\\xff"),), 1),
            ("keyshared_settled_total", (("how", "acked"),), 1),
            ("keyshared_deliveries_total", (), 2),
            ("keyshared_failures_total", (), 0),
        ] == dispatcher.health().rows()

    def test_what_nobody_measured_has_no_row(self) -> None:
        assert [] == subscription("ann").health().rows()
