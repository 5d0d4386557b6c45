"""Many lives of one dispatcher over one log, against a set: what is redone is what was not acked when it was stored.

The oracle knows no cells, stretches or positions. It has the log, the set of offsets that are settled as far as the
present life can know, and the set of those that it has been offered. A life ends by a crash: the next one begins from
the last token, from a snapshot of this moment, or from the bare cursor, reads what it likes, and may crash at once.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared._core.snapshot import sealed
from keyshared.config import DispatcherConfig
from keyshared.cursor import ContiguousCursor, CursorToken
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import CursorAdvanced, Deliver, Effect
from keyshared.errors import ArgumentError
from keyshared.ring import HashRing

CONFIG = DispatcherConfig(ack_timeout_ms=None)


class Lives:
    """Appends, reads, acks, commits and crashes, each as often as this schedule likes it."""

    def __init__(self, dispatcher_class: type[KeySharedDispatcher], seed: int) -> None:
        self.dispatcher_class = dispatcher_class
        self.choose = Random(seed)  # reproducible, not secret
        self.first = self.top = self.choose.choice([0, 7, -5, 2**40])
        self.log: list[int] = []
        self.settled: set[int] = set()
        self.stored: tuple[CursorToken, frozenset[int]] | None = None
        self.live(dispatcher_class(HashRing(), DispatcherConfig(start=self.first, ack_timeout_ms=None)))

    def run(self, steps: int) -> None:
        """Make so many calls, and look after each."""
        weights = [self.choose.choice(of) for of in STEPS.values()]
        for step in self.choose.choices(list(STEPS), weights, k=steps):
            step(self)
            self.check()

    def check(self) -> None:
        """Compare with the oracle."""
        self.nothing_outstanding_is_skipped()
        self.the_position_never_passes_what_is_not_settled()
        self.the_next_life_would_redo_what_is_not_settled_and_nothing_else()

    def live(self, dispatcher: KeySharedDispatcher) -> None:
        """Begin a life; whoever was connected connects again."""
        self.dispatcher = dispatcher
        if "c" not in dispatcher.stats().consumers:
            dispatcher.add_consumer("c")
        self.unread = [offset for offset in self.log if offset >= self.position]
        self.offered: set[int] = set()

    @property
    def position(self) -> int:
        resume = self.dispatcher.resume_offset
        assert resume is not None
        return resume

    # what happens

    def append(self) -> None:
        for _ in range(self.choose.randint(1, 20)):
            self.top += self.choose.choice([1, 1, 1, 1, 2, 30])
            self.log.append(self.top)
            self.unread.append(self.top)

    def read(self) -> None:
        for _ in range(min(self.choose.randint(1, 20), len(self.unread))):
            offset = self.unread.pop(0)
            self.see(self.dispatcher.offer(offset, f"k{offset % 7}"), [offset])

    def read_a_batch(self) -> None:
        count = self.choose.randint(1, 20)
        batch, self.unread = self.unread[:count], self.unread[count:]
        self.see(self.dispatcher.offer_many([(offset, f"k{offset % 7}", None) for offset in batch]), batch)

    def read_past_what_is_known(self) -> None:
        """A host that filters by itself: to the dispatcher, what is settled looks like a gap."""
        count = self.choose.randint(1, 20)
        for offset in self.unread[:count]:
            if offset not in self.settled:
                self.see(self.dispatcher.offer(offset, f"k{offset % 7}"), [offset])
        del self.unread[:count]

    def see(self, effects: list[Effect], offsets: list[int]) -> None:
        delivered = [effect.offset for effect in effects if isinstance(effect, Deliver)]
        assert not self.settled.intersection(delivered), "what was settled is done again"
        if not set(offsets) - self.settled:
            assert all(isinstance(effect, CursorAdvanced) for effect in effects)
        self.offered.update(offsets)

    def ack(self) -> None:
        for _ in range(self.choose.randint(1, 12)):
            if held := self.dispatcher.in_flight():
                delivery = self.choose.choice(held)
                self.dispatcher.ack(*delivery.receipt)
                self.settled.add(delivery.offset)

    def ack_all_but_the_oldest(self) -> None:
        for delivery in self.dispatcher.in_flight()[1:]:
            self.dispatcher.ack(*delivery.receipt)
            self.settled.add(delivery.offset)

    def compact(self) -> None:
        """The log loses a message that this life has not read yet, settled or not."""
        if self.unread:
            offset = self.choose.choice(self.unread)
            self.unread.remove(offset)
            self.log.remove(offset)

    # what is stored, and how it ends

    def commit(self) -> None:
        spare = self.choose.choice([0, 3, 12, 10_000, 10_000])
        token = self.dispatcher.cursor_token(least(self.dispatcher) + spare)
        stretches = self.dispatcher.acked_ranges()
        dropped = stretches[len(stretches) - token.omitted_ranges :]
        kept = frozenset(o for o in self.settled if not any(start <= o < stop for start, stop in dropped))
        assert token.omitted_span == sum(stop - start for start, stop in dropped)
        assert spare < 10_000 or token.complete
        self.stored = token, kept

    def crash_to_the_token(self) -> None:
        if self.stored is None:
            return
        token, kept = self.stored
        self.settled = set(kept)
        self.live(self.dispatcher_class(HashRing(), CONFIG, resume_from=token.text))

    def commit_and_crash(self) -> None:
        self.commit()
        self.crash_to_the_token()

    def crash_to_a_snapshot(self) -> None:
        state = json.loads(json.dumps(self.dispatcher.snapshot()))
        unread, offered = self.unread, self.offered
        self.live(self.dispatcher_class.restore(state, HashRing(), CONFIG, now_ms=0, epoch=1))
        if self.choose.random() < 1 / 2:
            self.unread = unread
        self.offered = offered

    def crash_to_the_bare_cursor(self) -> None:
        cursor = self.dispatcher.safe_cursor
        start = self.first if cursor is None else cursor + 1
        self.settled = {offset for offset in self.settled if offset < start}
        self.stored = None
        self.live(self.dispatcher_class(HashRing(), DispatcherConfig(start=start, ack_timeout_ms=None)))

    # what must hold

    def nothing_outstanding_is_skipped(self) -> None:
        outstanding = {message.offset for message in self.dispatcher.outstanding()}
        assert self.offered - self.settled == outstanding
        self.dispatcher.check_invariants()

    def the_position_never_passes_what_is_not_settled(self) -> None:
        open_ones = set(self.log) - self.settled
        safe = self.dispatcher.safe_cursor
        assert all(self.position <= offset and (safe is None or safe < offset) for offset in open_ones)

    def the_next_life_would_redo_what_is_not_settled_and_nothing_else(self) -> None:
        again = ContiguousCursor.from_token(self.dispatcher.cursor_token(1_000_000).text)
        redone = [offset for offset in self.log if offset >= self.position and again.offer(offset)]
        assert [offset for offset in self.log if offset not in self.settled] == redone


def least(dispatcher: KeySharedDispatcher) -> int:
    """How long a text has to be for the position alone, by the word of the error."""
    with pytest.raises(ArgumentError) as caught:
        dispatcher.cursor_token(0)
    return next(int(word) for word in caught.value.requirement.split() if word.isdigit())


RARE: Final = (0, 0, 1)
SOME: Final = (0, 1, 4)
MUCH: Final = (1, 4, 8)
STEPS: Final[dict[Callable[[Lives], None], tuple[int, ...]]] = {
    Lives.append: MUCH,
    Lives.read: MUCH,
    Lives.read_a_batch: SOME,
    Lives.read_past_what_is_known: SOME,
    Lives.ack: MUCH,
    Lives.ack_all_but_the_oldest: SOME,
    Lives.compact: SOME,
    Lives.commit: SOME,
    Lives.crash_to_the_token: SOME,
    Lives.commit_and_crash: MUCH,
    Lives.crash_to_a_snapshot: SOME,
    Lives.crash_to_the_bare_cursor: RARE,
}
"""How much of each a schedule may have: it draws one of three weights for each, so that some have none of it."""

SEEDS: Final = st.integers(0, 2**64)


@given(SEEDS)
def test_what_is_redone_in_any_life_is_what_was_not_acked_at_the_last_token(seed: int) -> None:
    Lives(KeySharedDispatcher, seed).run(40)


# Dispatchers that the oracle must catch


class ForgetsTheStretches(KeySharedDispatcher):
    """Takes the position of a token, and nothing else."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._machine.window.cursor._known.clear()


class ForgetsAtTheSecondRestart(KeySharedDispatcher):
    """Writes into its token only what it has read and settled itself."""

    def cursor_token(self, max_bytes: int = 4_096) -> CursorToken:
        self._machine.window.cursor._known.clear()
        return super().cursor_token(max_bytes)


class ForgetsWhatItHasPassed(KeySharedDispatcher):
    """Lets a stretch go when the first offset above it is offered, also if it was not read again."""

    def cursor_token(self, max_bytes: int = 4_096) -> CursorToken:
        cursor = self._machine.window.cursor
        cursor._known = cursor._known[cursor._passed :]
        cursor._passed = 0
        return super().cursor_token(max_bytes)


class SnapshotForgetsTheStretches(KeySharedDispatcher):
    """A snapshot in a life that began from a token holds only what that life has offered."""

    def snapshot(self) -> dict[str, object]:
        state = {**super().snapshot(), "settled": []}
        del state["checksum"]
        return sealed(state)


@pytest.mark.parametrize(
    "broken", [ForgetsTheStretches, ForgetsAtTheSecondRestart, ForgetsWhatItHasPassed, SnapshotForgetsTheStretches]
)
def test_the_oracle_catches_a_broken_restart(broken: type[KeySharedDispatcher]) -> None:
    assert any(fails(broken, seed) for seed in range(100))


def fails(broken: type[KeySharedDispatcher], seed: int) -> bool:
    try:
        Lives(broken, seed).run(40)
    except AssertionError:
        return True
    return False
