"""Groups and the limit of the subscription meet sessions, latest only, redrive, look-ahead and the token budget."""

from typing import Any

import pytest
from tests.alphabet import Watched, delivered, fill, subscription

from keyshared.config import DispatcherConfig, KeySessions, Rules
from keyshared.dispatcher import Blocking, KeySharedDispatcher, StoredLetter
from keyshared.effects import BlockReason, Load
from keyshared.errors import ConfigError
from keyshared.ring import HashRing


def named(key: bytes) -> str | None:
    """What stands behind the slash."""
    return key.partition(b"/")[2].decode() or None


RULES = Rules(mark="behind the slash", group_of=named)


def grouped(*consumers: str, **config: Any) -> Watched:
    return subscription(*consumers, rules=RULES, **config)


class TestSessions:
    """A key that is flushed waits for that, and its group for nothing."""

    def test_a_group_forgets_whom_it_would_have_served_a_key_that_is_flushed(self) -> None:
        dispatcher = grouped("ann", sessions=KeySessions(flush_ms=None))
        fill(dispatcher, "a1/big", "a1/big")
        dispatcher.pause_group("big")
        assert [] == delivered(dispatcher.ack(0, "ann", 1))
        assert Blocking(BlockReason.FLUSHING, "ann") == dispatcher.why_blocked(1)
        assert [] == delivered(dispatcher.resume_group("big"))
        assert [(1, "ann")] == delivered(dispatcher.flushed("a1/big", 1))


class TestLatestOnly:
    """What supersedes a message waits where that waited."""

    def test_what_was_loaded_for_somebody_does_not_pass_a_full_subscription(self) -> None:
        dispatcher = subscription(max_in_flight=1, latest_only=True, window=4)
        fill(dispatcher, "a1", "b1", "c1")
        dispatcher.add_consumer("ann")
        dispatcher.ack(0, "ann", 1)
        assert Load(2, b"c1") in dispatcher.ack(1, "ann", 1)
        assert [(3, "ann")] == delivered(dispatcher.offer(3, "a1"))
        assert [] == delivered(dispatcher.offer(4, "c1"))
        assert Blocking(BlockReason.SUBSCRIPTION_FULL) == dispatcher.why_blocked(4)
        assert [(4, "ann")] == delivered(dispatcher.ack(3, "ann", 1))


class TestRedrive:
    """A dead letter that comes back is of the group of its key, once."""

    def test_a_key_of_which_nothing_is_outstanding_begins_with_it(self) -> None:
        dispatcher = grouped("ann", redrive=True)
        dispatcher.pause_group("big")
        dispatcher.offer(0, "a1")
        dispatcher.reject(0, "ann", 1)
        dispatcher.dead_lettered(0)
        assert [] == delivered(dispatcher.redrive("a2/big", [StoredLetter(0, 1)]))
        assert Blocking(BlockReason.GROUP_PAUSED, group="big") == dispatcher.why_blocked(0)
        again = Watched.restore(
            dispatcher.snapshot(), dispatcher.placement, dispatcher.config, now_ms=0, rules=dispatcher.rules
        )
        assert [(0, "ann")] == delivered(again.resume_group("big")) == delivered(dispatcher.resume_group("big"))

    def test_a_key_that_no_rule_knows_is_refused_and_nothing_has_come_back(self) -> None:
        rules = Rules(mark="short keys", group_of=lambda key: key.decode() if len(key) < 3 else 7)  # type: ignore[arg-type, return-value]  # the mistake under test
        dispatcher = subscription("ann", rules=rules, redrive=True)
        dispatcher.offer(0, "a1")
        dispatcher.ack(0, "ann", 1)
        before = dispatcher.snapshot()
        with pytest.raises(ConfigError, match="group_of"):
            dispatcher.redrive("a long one", [StoredLetter(0, 1)])
        assert before == dispatcher.snapshot()


class TestAckHoles:
    """It cannot be had together with what shares limits, today."""

    def test_groups_are_refused(self) -> None:
        config = DispatcherConfig(max_ack_holes=80)
        with pytest.raises(ConfigError, match="no group_of with max_ack_holes"):
            KeySharedDispatcher(HashRing(), config, rules=RULES)
        assert KeySharedDispatcher(HashRing(), config, rules=Rules(mark="none")).groups() == []
