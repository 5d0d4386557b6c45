"""Rule 18: how much may wait for the consumers that are connected, and how long the restart token may become."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, delivered, fill, subscription

from keyshared.config import DispatcherConfig, LookAhead, Poison
from keyshared.dispatcher import Blocking, KeySharedDispatcher
from keyshared.effects import BlockReason, Resumed
from keyshared.errors import LookAheadFullError, SnapshotError

MOST = 20  # holes; with more only the lowest message goes out, until there are 10


def looking(*consumers: str, per_consumer: int = 2, per_subscription: int = 3, **config: Any) -> Watched:
    look_ahead = LookAhead(per_consumer=per_consumer, per_subscription=per_subscription)
    dispatcher = subscription(look_ahead=look_ahead, **config)
    for name in consumers:
        dispatcher.add_consumer(name)
    return dispatcher


def restored(dispatcher: Any, **config: Any) -> KeySharedDispatcher[object]:
    state = json.loads(json.dumps(dispatcher.snapshot()))
    return KeySharedDispatcher.restore(state, AlphabetRing(), DispatcherConfig(**config), now_ms=0)


class TestLookAhead:
    """As many messages may wait as the connected consumers are worth."""

    def test_nothing_is_read_while_nobody_is_there(self) -> None:
        dispatcher = looking()

        assert (0, "look_ahead") == (dispatcher.free_slots, dispatcher.stats().paused_by)
        with pytest.raises(LookAheadFullError, match="0 messages may wait for the consumers that are connected"):
            dispatcher.offer(0, "a1")
        assert [Resumed(2)] == dispatcher.add_consumer("ann")


def holes(*rest: str | None, **config: Any) -> Watched:
    """Ann has every second one of 60 messages done; 0 is open, and nothing new goes out."""
    config = {"max_ack_holes": MOST, "poison": Poison.BLOCK, **config}
    dispatcher = subscription("ann", max_in_flight_per_consumer=100, **config)
    fill(dispatcher, *(f"a{number}" for number in range(60)))
    for offset in range(2, 60, 2):
        dispatcher.ack(offset, "ann", 1)
    fill(dispatcher, *rest, start=60)
    return dispatcher


def holes_without_a_bound() -> Watched:
    return holes(max_ack_holes=None)


def settle_up_to(dispatcher: Any, offset: int) -> list[tuple[int, str]]:
    """Settle from below until this one goes out; return what goes out with it."""
    effects = []
    while dispatcher.why_blocked(offset) is not None:
        effects = dispatcher.ack(dispatcher.resume_offset, "ann", 1)
    return delivered(effects)


class TestAckHoles:
    """With too many holes only the lowest outstanding message goes out, until there are half as many."""

    def test_nothing_new_goes_out_and_it_says_why(self) -> None:
        dispatcher = holes("x", None, "a1")

        assert len(dispatcher.acked_ranges()) > MOST
        held = Blocking(BlockReason.ACK_HOLES, behind=0)
        assert [held, held] == [dispatcher.why_blocked(offset) for offset in (60, 61)]
        assert Blocking(BlockReason.KEY_IN_FLIGHT, "ann") == dispatcher.why_blocked(62)
        dispatcher.release(5, "ann", 1)
        assert held == dispatcher.why_blocked(5)

    def test_pull_hands_out_the_lowest_and_nothing_else(self) -> None:
        dispatcher = holes("x", "y")
        dispatcher.set_limit("ann", 0)
        dispatcher.release(0, "ann", 1)

        assert [] == dispatcher.pull("ann", 5, only=60)
        assert [(0, "ann")] == delivered(dispatcher.pull("ann", 5))
        assert [] == dispatcher.pull("ann", 5)

    def test_a_snapshot_remembers_that_it_was_full(self) -> None:
        dispatcher = holes("x")
        for offset in (0, *range(1, 25, 2)):  # it comes down, and not to one half
            dispatcher.ack(offset, "ann", 1)
        assert MOST // 2 < len(dispatcher.acked_ranges()) <= MOST
        assert dispatcher.snapshot()["features"]["ack_holes"] is True  # type: ignore[index]  # a dict

        again = restored(dispatcher, max_ack_holes=MOST)
        assert BlockReason.ACK_HOLES is again.why_blocked(60).reason  # type: ignore[union-attr]  # it waits
        assert [(60, "ann")] == settle_up_to(dispatcher, 60) == settle_up_to(again, 60)
        assert "ack_holes" not in again.snapshot()["features"]  # type: ignore[operator]  # a dict

    def test_a_snapshot_without_it_begins_with_the_count_and_one_with_it_needs_the_bound(self) -> None:
        dispatcher = holes("x")
        with pytest.raises(SnapshotError, match="the configuration does not ask for it"):
            restored(dispatcher)
        again = restored(holes_without_a_bound(), max_ack_holes=MOST)
        assert again.snapshot()["features"]["ack_holes"] is True  # type: ignore[index]  # a dict

    def test_holes_of_a_token_count_when_they_are_read_again(self) -> None:
        text = holes().cursor_token().text
        config = DispatcherConfig(max_ack_holes=MOST, max_in_flight_per_consumer=100)
        again: KeySharedDispatcher[object] = KeySharedDispatcher(AlphabetRing(), config, resume_from=text)
        again.add_consumer("ann")

        for offset in range(60):
            again.offer(offset, f"a{offset}")
            again.check_invariants()
        opened = [each.offset for each in again.in_flight()]
        assert MOST + 1 == len(opened) - 1  # 0 and 1 have no hole between them
        assert Blocking(BlockReason.ACK_HOLES, behind=0) == again.why_blocked(59)
