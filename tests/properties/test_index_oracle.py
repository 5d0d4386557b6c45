"""The index against a list of all records: every answer lies within the bounds, and bounds are no wider than needed.

That the list can tell right from wrong is tested too: indexes with plausible faults have to fail it.
"""

from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from keyshared.offsets import Bounds, OffsetIndex


class IndexMachine(RuleBasedStateMachine):
    """Appends, even and uneven, with gaps and with timestamps that go back; retention at any offset."""

    index_class: ClassVar[type[OffsetIndex]] = OffsetIndex

    @initialize(interval=st.sampled_from([1, 1, 2, 3, 4, 8]), start=st.sampled_from([0, 25]))
    def begin(self, interval: int, start: int) -> None:
        self.interval = interval
        self.start = start
        self.records: list[tuple[int, int]] = []
        self.appended = 0
        self.index = self.index_class(interval, start=start)

    def append(self, gap: int, timestamp: int) -> None:
        offset = self.end + gap
        self.records.append((offset, timestamp))
        self.appended += 1
        self.index.append(offset, timestamp)

    @property
    def end(self) -> int:
        return self.records[-1][0] + 1 if self.records else self.start

    @rule(timestamps=st.lists(st.integers(0, 40), min_size=1, max_size=10), gap=st.integers(0, 2))
    def append_unevenly(self, timestamps: list[int], gap: int) -> None:
        for timestamp in timestamps:
            self.append(gap, timestamp)

    @rule(
        count=st.integers(1, 20),
        gap=st.integers(0, 2),
        first=st.integers(0, 40),
        rise=st.sampled_from([-3, -1, 0, 1, 5]),
    )
    def append_evenly(self, count: int, gap: int, first: int, rise: int) -> None:
        for number in range(count):
            self.append(gap, first + rise * number)

    @rule(ahead=st.integers(0, 15))
    def truncate(self, ahead: int) -> None:
        before = self.start + ahead
        self.index.truncate(before)
        self.records = [record for record in self.records if record[0] >= before]
        self.start = before

    @rule(back=st.integers(0, 5))
    def truncate_where_nothing_is_left(self, back: int) -> None:
        self.index.truncate(self.start - min(back, self.start))

    def first_offset(self, timestamp: int) -> int:
        return next((offset for offset, stamped in self.records if stamped >= timestamp), self.end)

    def last_timestamp(self, offset: int) -> int:
        below = [stamped for at, stamped in self.records if at <= offset]
        return below[-1] if below else self.records[0][1]

    @invariant()
    def answers_lie_within_the_bounds(self) -> None:
        for timestamp in range(-5, 45, 6):
            answer = self.first_offset(timestamp)
            bounds = self.index.find_offset(timestamp)
            assert bounds.low <= answer <= bounds.high
            assert self.interval > 1 or bounds.exact
            assert self.start <= bounds.low
        for offset in range(self.start - 2, self.end + 2, 5):
            found = self.index.find_timestamp(offset)
            assert (found is None) == (not self.records)
            if found is not None:
                assert found.low <= self.last_timestamp(offset) <= found.high
                assert self.interval > 1 or found.exact

    @invariant()
    def bounds_are_no_wider_than_a_block(self) -> None:
        """Unless retention cut the block."""
        if not self.records or self.index._cut:
            return
        for timestamp in range(-4, 45, 12):
            low, high = self.index.find_offset(timestamp)
            assert sum(low <= offset <= high for offset, _ in self.records) <= self.interval

    @invariant()
    def says_what_it_holds(self) -> None:
        assert (self.start, self.end) == (self.index.start, self.index.end)
        assert self.index.pieces <= self.appended // self.interval + 1
        self.index.check_invariants()


TestIndex = IndexMachine.TestCase


# Indexes that the list must catch


class BisectsTimestamps(OffsetIndex):
    """Takes timestamps for sorted: bisects those of the pieces, instead of the greatest so far."""

    __slots__ = ()

    def _close_block(self) -> None:
        super()._close_block()
        self._top[-1] = max(self._low[-1], self._high[-1])

    def check_invariants(self) -> None:
        """Its own tops are in order, as far as it knows."""


class ClaimsToBeExact(OffsetIndex):
    """Answers with the beginning of a loose block as if it were sure."""

    __slots__ = ()

    def find_offset(self, timestamp_epoch_ms: int) -> Bounds:
        low, _ = super().find_offset(timestamp_epoch_ms)
        return Bounds(low, low)


class TrustsACutBlock(OffsetIndex):
    """Believes that the record with a block's highest timestamp outlived retention."""

    __slots__ = ()

    def _cut_first(self, before: int) -> None:
        super()._cut_first(before)
        self._cut = False


class ForgetsToForget(OffsetIndex):
    """Lets pieces that are gone count among the greatest timestamps so far."""

    __slots__ = ()

    def truncate(self, before: int) -> None:
        tops, pieces = self._top[:], self.pieces
        super().truncate(before)
        self._top = tops[pieces - self.pieces :]

    def check_invariants(self) -> None:
        """Sees nothing wrong."""


class RoundsDown(OffsetIndex):
    """Finds the last record of a run that is too old, instead of the first that is not."""

    __slots__ = ()

    def _find_in(self, piece: int, timestamp: int) -> Bounds:
        low, high = super()._find_in(piece, timestamp)
        return Bounds(max(self._first[piece], low - 1), max(self._first[piece], high - 1))


class AddsUpEveryBlock(OffsetIndex):
    """Goes on with a run although the record that follows is out of step."""

    __slots__ = ()

    def _continues(self, step: int, rise: int) -> bool:
        return self._step[-1] > 0 and len(self._offsets) == 1 and step == 1 and rise == 0

    def check_invariants(self) -> None:
        """Sees nothing wrong."""


@pytest.mark.parametrize(
    "broken",
    [BisectsTimestamps, ClaimsToBeExact, TrustsACutBlock, ForgetsToForget, RoundsDown, AddsUpEveryBlock],
)
def test_the_list_catches_a_broken_index(broken: type[OffsetIndex]) -> None:
    class Machine(IndexMachine):
        index_class = broken

    # Shrinking would only cost time: nobody reads these counterexamples.
    quick = settings(max_examples=2_000, phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=quick)
