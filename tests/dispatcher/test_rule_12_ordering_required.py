"""Rule 12: with ``ordering_required`` the whole subscription is one lane."""

from typing import Any

import pytest
from tests.alphabet import Watched, advanced, deliver, fill, subscription, then

from keyshared.config import Poison, Unmatched
from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason, Evicted, Released, ReleaseReason
from keyshared.errors import ArgumentError


def ordered(*consumers: str, **config: Any) -> Watched:
    strict: dict[str, Any] = {"ordering_required": True, "unmatched": Unmatched.HOLD, "poison": Poison.BLOCK}
    return subscription(*consumers, **strict | config)


def test_everything_goes_in_offset_order_to_one_consumer_whatever_its_key() -> None:
    dispatcher = ordered("ann", "bob")

    assert [deliver(0, "", "ann")] == fill(dispatcher, "b1", "a1", None)
    assert ["ann", "ann", "ann"] == [dispatcher.owner(key) for key in ("b1", "a1", None)]
    assert [deliver(1, "", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)
    assert [deliver(2, "", "ann"), advanced(1)] == dispatcher.ack(1, "ann", 1)


def test_a_failure_holds_everything() -> None:
    dispatcher = ordered("ann")
    fill(dispatcher, "a1", "b1", None)

    assert [] == then(dispatcher.nack(0, "ann", 1))
    assert Blocking(BlockReason.OLDER_WAITS, behind=0) == dispatcher.why_blocked(2)
    assert [deliver(0, "", "ann", 2, failures=1)] == dispatcher.handle_timeout(now_ms=1_000)


def test_the_next_consumer_takes_over_when_the_owner_is_gone_and_not_before_its_work_has_ended() -> None:
    dispatcher = ordered("ann", "bob", inactive_grace_ms=10)
    fill(dispatcher, "a1", None)
    dispatcher.set_inactive("ann")

    assert [] == dispatcher.offer(2, "b1")
    assert [
        Evicted("ann"),
        Released(0, "ann", 1, ReleaseReason.EVICTED, 1, 10),
        deliver(0, "", "bob", 2, failures=1),
    ] == dispatcher.handle_timeout(now_ms=10)


def test_any_key_names_the_one_lane() -> None:
    dispatcher = ordered("ann")
    fill(dispatcher, "a1", "b1")
    dispatcher.reject(0, "ann", 1)

    assert [deliver(0, "", "ann", 2)] == dispatcher.unblock("b1")


def test_filters_are_refused_because_the_one_lane_has_one_owner() -> None:
    dispatcher = ordered("ann")
    before = dispatcher.snapshot()

    with pytest.raises(ArgumentError, match=r"filters .* ordering_required"):
        dispatcher.add_consumer("bob", filters=["b*"])
    with pytest.raises(ArgumentError, match=r"filters .* ordering_required"):
        dispatcher.set_filters("ann", ["*"])
    assert before == dispatcher.snapshot()
