"""Rule 15: without spilling every payload is at hand, and what may wait for a key or a consumer is bounded."""

import json
from collections import deque
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, deliver, fill, subscription
from tests.kit.recorder import Recorder

from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher
from keyshared.config import Unmatched
from keyshared.effects import (
    Deliver,
    Load,
    Released,
    ReleaseReason,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.errors import KeyFullError, SnapshotError
from keyshared.testing import Claims, Promise, check_history
from keyshared.testing import history as past


def unspilled(*consumers: str, window: int = 10, **config: Any) -> Watched:
    return subscription(*consumers, window=window, spill=False, **config)


def test_what_no_filter_accepts_takes_no_place_in_a_batch() -> None:
    config = DispatcherConfig(window=10, spill=False, max_waiting_per_key=1, unmatched=Unmatched.SKIP)
    recorder = Recorder(KeySharedDispatcher(AlphabetRing(), config))
    recorder.add_consumer("ann", filters=["b*"])
    effects = recorder.offer_many([(0, "a1", None), (1, "a1", None), (2, "b1", None)])

    assert [Skipped(offset, b"a1", SkipReason.UNMATCHED) for offset in (0, 1)] == effects[:2]
    told = [each for each in recorder.history if isinstance(each, past.Published | past.Skipped)]
    assert [0, 0, 1, 1, 2] == [each.offset for each in told]
    claims = Claims(promises={Promise.BOUNDS, Promise.NO_LOSS}, may_skip=True)
    assert [] == check_history(recorder.history, claims)


def lag(spill: bool) -> tuple[int, int]:
    """A host that caps what is outstanding, and a pool that is slower: how much is spilled, and how much loaded."""
    messages, cap = 2_000, 400
    dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(window=500, max_tracked=500, spill=spill))
    dispatcher.add_consumer("pool", limit=8)
    todo: deque[Any] = deque()
    offered = done = loads = spills = 0
    while done < messages:
        while offered < messages and offered - done < cap and dispatcher.free_slots:
            todo.extend(dispatcher.offer(offered, f"key-{offered % 50}", offered))
            offered += 1
        for effect in [todo.popleft() for _ in range(len(todo))]:
            if isinstance(effect, Deliver):
                assert effect.item == effect.offset
                todo.extend(dispatcher.ack(*effect.receipt))
                done += 1
            elif isinstance(effect, Load):
                loads += 1
                todo.extend(dispatcher.loaded(effect.offset, effect.offset))
            spills += isinstance(effect, Spilled)
    return spills, loads


class TestAHostThatKeepsItsPayloads:
    """What waits is in memory anyway: to drop and to load it would be work for nothing."""

    def test_it_spills_and_loads_nothing_while_it_lags(self) -> None:
        spills, loads = lag(spill=True)
        assert spills == loads > 1_000  # most of them, in a state that is normal

        assert (0, 0) == lag(spill=False)

    def test_a_snapshot_with_spilled_messages_is_refused(self) -> None:
        spilling = subscription("ann", window=10, max_loaded_per_key=1)
        fill(spilling, "a1", "a1")
        state = json.loads(json.dumps(spilling.snapshot()))
        config = DispatcherConfig(window=10, spill=False)

        with pytest.raises(SnapshotError, match=r"payload is at hand where spill is False"):
            KeySharedDispatcher.restore(state, AlphabetRing(), config, now_ms=0)
        spilling.ack(0, "ann", 1)  # now it is being loaded
        with pytest.raises(SnapshotError, match=r"payload is at hand where spill is False"):
            KeySharedDispatcher.restore(spilling.snapshot(), AlphabetRing(), config, now_ms=0)
        spilling.loaded(1, "again")
        again = KeySharedDispatcher.restore(spilling.snapshot(), AlphabetRing(), config, now_ms=0)
        assert [1] == [each.offset for each in again.outstanding()]


class TestTheLimitOfAKey:
    """At most so many messages of a key wait; what is open does not count."""

    def test_beyond_it_an_offer_is_refused_and_changes_nothing(self) -> None:
        dispatcher = unspilled("ann", max_waiting_per_key=2)
        fill(dispatcher, "a1", "a1", "a1")
        before = dispatcher.snapshot()

        assert (7, 0, 2) == (dispatcher.free_slots, dispatcher.room_for("a1"), dispatcher.room_for("a2"))
        with pytest.raises(KeyFullError, match="2 messages of key b'a1' may wait") as caught:
            dispatcher.offer(3, "a1")
        assert (b"a1", 2) == (caught.value.key, caught.value.capacity)
        assert before == dispatcher.snapshot()
        assert [deliver(3, "a2", "ann")] == dispatcher.offer(3, "a2")  # the offset is still free
        dispatcher.ack(0, "ann", 1)
        assert 1 == dispatcher.room_for("a1")

    def test_what_is_put_back_may_exceed_it(self) -> None:
        dispatcher = unspilled("ann", max_waiting_per_key=1)
        fill(dispatcher, "a1", "a1")

        assert [Released(0, "ann", 1, ReleaseReason.NACKED, 1, 1_000)] == dispatcher.nack(0, "ann", 1)
        assert 0 == dispatcher.room_for("a1")
        dispatcher.handle_timeout(now_ms=1_000)
        assert 0 == dispatcher.room_for("a1")  # offset 1 still waits
        dispatcher.ack(0, "ann", 2)
        assert 1 == dispatcher.room_for("a1")
