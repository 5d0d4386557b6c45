"""Rule 14: of each message it is said once that it is done, and a mark changes with what a restart would redo."""

import json
from typing import Any

from tests.alphabet import AlphabetRing, advanced, deliver, fill, subscription

from keyshared.config import DispatcherConfig, OnEvict, Unmatched
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Done, Effect, Ending, Skipped, SkipReason

TELLING = DispatcherConfig(tell_settled=True)


def telling(*consumers: str, **config: Any) -> KeySharedDispatcher:
    return subscription(*consumers, tell_settled=True, **config)


def done(effects: list[Effect]) -> list[tuple[int, Ending]]:
    return [(effect.offset, effect.how) for effect in effects if isinstance(effect, Done)]


class TestHowItEnded:
    def test_an_eviction_that_gives_up_tells_of_each_in_offset_order(self) -> None:
        dispatcher = telling("ann", on_evict=OnEvict.DROP, inactive_grace_ms=5)
        fill(dispatcher, "a1", "a2")
        dispatcher.set_inactive("ann", now_ms=0)

        assert [(0, Ending.DROPPED), (1, Ending.DROPPED)] == done(dispatcher.handle_timeout(now_ms=5))

    def test_what_nobody_accepts(self) -> None:
        dispatcher = telling(unmatched=Unmatched.SKIP)
        dispatcher.add_consumer("ann", filters=["a*"])

        skipped = Skipped(0, b"b1", SkipReason.UNMATCHED)
        assert [skipped, Done(0, b"b1", Ending.UNMATCHED), advanced(0)] == dispatcher.offer(0, "b1")


class TestEarlierLives:
    def test_what_a_token_knows_is_told_again_when_it_is_read_again(self) -> None:
        before = telling("ann")
        fill(before, "a1", "a2", "a3")
        before.ack_many([(0, "ann", 1), (2, "ann", 1)])
        after = KeySharedDispatcher(AlphabetRing(), TELLING, resume_from=before.cursor_token().text)
        after.add_consumer("ann")

        told = [done(after.offer(offset, f"a{offset + 1}")) for offset in range(3)]
        assert [[(0, Ending.EARLIER)], [], [(2, Ending.EARLIER)]] == told
        assert [(1, Ending.ACKED)] == done(after.ack(1, "ann", 1))

    def test_a_snapshot_tells_of_what_it_knows_as_settled_and_not_of_what_is_outstanding(self) -> None:
        before = telling("ann")
        fill(before, "a1", "a2")
        before.ack(1, "ann", 1)
        state = json.loads(json.dumps(before.snapshot()))
        after = KeySharedDispatcher.restore(state, AlphabetRing(), TELLING, now_ms=0)

        assert [[], [(1, Ending.EARLIER)]] == [done(after.offer(offset, f"a{offset + 1}")) for offset in range(2)]
        assert [(0, Ending.ACKED)] == done(after.ack(0, "ann", 1))
        assert [] == done(after.offer(2, "a3"))

    def test_a_batch_tells_of_known_messages_before_it_delivers_new_ones(self) -> None:
        dispatcher = telling("ann", start=1)

        effects = dispatcher.offer_many([(0, "a1", None), (1, "a2", None)])
        assert [Done(0, b"a1", Ending.EARLIER), deliver(1, "a2", "ann")] == effects
