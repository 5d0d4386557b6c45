"""The cursor against a slow, obvious model: a list of what was offered, a set of what is open, integers one by one.

The model shares no code with the cursor and never thinks in cells, heads or ranges. That it can tell right from wrong
is tested too: cursors with the faults seen in the field have to fail it.
"""

import math
from collections.abc import Iterable
from typing import ClassVar

import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from keyshared.cursor import Cell, ContiguousCursor, Cursor, OfferAnswer
from keyshared.errors import ArgumentError, OffsetOrderError, SnapshotError

BASES = (0, 10, -20, 2**63 - 2**50, -(2**62))


def runs_of(integers: Iterable[int]) -> list[tuple[int, int]]:
    """Maximal runs of neighbours, as half-open ranges."""
    runs: list[tuple[int, int]] = []
    for integer in sorted(integers):
        if runs and runs[-1][1] == integer:
            runs[-1] = (runs[-1][0], integer + 1)
        else:
            runs.append((integer, integer + 1))
    return runs


class Model:
    """What the cursor promises, in the plainest words."""

    def __init__(self, start: int | None) -> None:
        self.start = start
        self.offered: list[int] = []  # in this process
        self.open: set[int] = set()
        self.floor: int | None = None  # the safe cursor before the restart
        self.remembered: set[int] = set()  # every integer that the token said is settled

    @property
    def last(self) -> int | None:
        return self.offered[-1] if self.offered else self.floor

    @property
    def safe_cursor(self) -> int | None:
        below = [offset for offset in self.offered if all(offset < other for other in self.open)]
        return max(below, default=self.floor)

    @property
    def resume_offset(self) -> int | None:
        if self.open:
            return min(self.open)
        if self.last is None:
            return self.start
        resume = self.last + 1
        while resume in self.remembered:
            resume += 1
        return resume

    @property
    def acked(self) -> set[int]:
        """Every integer above the resume offset that no open offset separates from a settled one above it."""
        resume, last = self.resume_offset, self.last
        if resume is None:
            return set()
        ahead = {integer for integer in self.remembered if integer > resume}
        here: set[int] = set()
        closed = False
        offered = set(self.offered)
        for integer in range(resume if last is None else last, resume, -1):
            if integer in self.open:
                closed = False
            elif integer in offered:
                closed = True
            if closed:
                here.add(integer)
        return ahead | here

    def offer(self, offset: int) -> OfferAnswer | type[Exception]:
        last = self.last
        if self.start is not None and offset < self.start and (last is None or last < self.start):
            return OfferAnswer.REWIND
        if last is not None and offset <= last:
            return OffsetOrderError
        self.offered.append(offset)
        if offset in self.remembered:
            return OfferAnswer.SETTLED
        self.open.add(offset)
        return OfferAnswer.WORK

    def restarted(self, kept: int) -> "Model":
        """After a restart from a token that held so many of the acked runs, lowest first."""
        again = Model(self.resume_offset)
        again.floor = self.safe_cursor
        for start, stop in runs_of(self.acked)[:kept]:
            again.remembered.update(range(start, stop))
        if again.floor is not None and again.start is not None:
            again.remembered.update(range(again.floor + 1, again.start))
        return again


def attempt(cursor: ContiguousCursor, offset: int) -> OfferAnswer | type[Exception]:
    try:
        return cursor.offer(offset)
    except OffsetOrderError as error:
        return type(error)


def least_budget(cursor: ContiguousCursor) -> int:
    """What the error says the position alone needs."""
    with pytest.raises(ArgumentError) as caught:
        cursor.to_token(0)
    return next(int(word) for word in caught.value.requirement.split() if word.isdigit())


class CursorMachine(RuleBasedStateMachine):
    """Offers with gaps, double and unknown acks, compaction, restarts from tokens of any size."""

    cursor_class: ClassVar[type[ContiguousCursor]] = ContiguousCursor

    @initialize(base=st.sampled_from(BASES), start=st.sampled_from([None, 0, 3]))
    def begin(self, base: int, start: int | None) -> None:
        self.top = base
        self.cursor = self.cursor_class(None if start is None else base + start)
        self.model = Model(None if start is None else base + start)
        self.unread: list[int] = []  # of the log, after a restart
        self.log: list[int] = []
        self.cursors: list[int] = []
        self.resumes: list[int] = []

    @rule(gap=st.integers(1, 6))
    def offer_one(self, gap: int) -> None:
        self.offer_next(gap)

    @rule(gaps=st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=2, max_size=12))
    def offer_several(self, gaps: list[int]) -> None:
        for gap in gaps:
            self.offer_next(gap)

    @rule(back=st.integers(0, 30))
    def offer_again(self, back: int) -> None:
        last = self.model.last
        offset = (self.top if last is None else last) - back
        if last is not None:
            assert self.model.offer(offset) == attempt(self.cursor, offset)

    @rule(ahead=st.integers(1, 6))
    def skip(self, ahead: int) -> None:
        if not self.unread:
            # Unchecked: above the last offset and not below the start is the caller's duty.
            self.top = max(self.top + ahead, self.top if self.model.start is None else self.model.start)
            self.log.append(self.top)
            self.model.offered.append(self.top)
            self.cursor.core.skip(self.top)

    @rule(index=st.integers(0, 40))
    def settle_open(self, index: int) -> None:
        if self.model.open:
            offset = sorted(self.model.open)[index % len(self.model.open)]
            self.model.open.discard(offset)
            assert self.cursor.settle(offset)

    @rule(distance=st.integers(0, 40))
    def settle_any(self, distance: int) -> None:
        offset = self.top - distance
        expected = offset in self.model.open
        self.model.open.discard(offset)
        assert expected == self.cursor.settle(offset)

    @rule(ahead=st.integers(1, 6))
    def settle_what_was_never_offered(self, ahead: int) -> None:
        assert not self.cursor.settle(self.top + ahead)

    @rule(distances=st.lists(st.integers(-2, 30), max_size=12))
    def settle_many(self, distances: list[int]) -> None:
        offsets = [self.top - distance for distance in distances]
        expected = len(self.model.open & set(offsets))
        self.model.open -= set(offsets)
        assert expected == self.cursor.settle_many(offsets)

    @precondition(lambda self: self.unread)
    @rule()
    def compact(self) -> None:
        """The log loses a message that had not been read again."""
        self.log.remove(self.unread.pop(0))

    @rule(spare=st.integers(0, 12) | st.just(10_000))
    def restart(self, spare: int) -> None:
        token = self.cursor.to_token(least_budget(self.cursor) + spare)
        runs = runs_of(self.model.acked)
        left_over = runs[len(runs) - token.omitted_ranges :]
        note(f"{token}, {runs}")
        assert sum(stop - start for start, stop in left_over) == token.omitted_span
        assert token.complete == (not left_over)
        still_open = self.model.open | set(self.unread) - self.model.remembered
        self.model = self.model.restarted(len(runs) - len(left_over))
        self.cursor = self.cursor_class.from_token(token.text)
        resume = self.model.resume_offset
        self.unread = [offset for offset in self.log if resume is not None and offset >= resume]
        again = {offset for offset in self.unread if offset not in self.model.remembered}
        assert still_open <= again
        assert spare < 10_000 or still_open == again

    @rule()
    def read_a_token_twice(self) -> None:
        token = self.cursor.to_token(1_000_000)
        assert token.complete
        assert token.text == self.cursor_class.from_token(token.text).to_token(1_000_000).text

    def offer_next(self, gap: int) -> None:
        if self.unread:
            offset = self.unread.pop(0)
        else:
            self.top = offset = self.top + gap
            self.log.append(offset)
        assert self.model.offer(offset) == attempt(self.cursor, offset)

    @invariant()
    def answers_as_the_model(self) -> None:
        cursor, model = self.cursor, self.model
        assert model.last == cursor.last
        assert model.safe_cursor == cursor.safe_cursor
        assert model.resume_offset == cursor.resume_offset
        assert len(model.open) == cursor.outstanding
        assert sorted(model.open) == list(cursor)
        assert runs_of(model.acked) == cursor.acked_ranges()
        cursor.check_invariants()

    @invariant()
    def finds_just_the_open_ones(self) -> None:
        around = range(self.top - 12, self.top + 2)
        assert [offset in self.model.open for offset in around] == [
            self.cursor.core.find(o) is not None for o in around
        ]

    @invariant()
    def never_moves_back_and_never_passes_what_is_open(self) -> None:
        for history, now in ((self.cursors, self.cursor.safe_cursor), (self.resumes, self.cursor.resume_offset)):
            if now is None:
                assert not history
            else:
                assert not history or history[-1] <= now
                history.append(now)
        resume, safe = self.cursor.resume_offset, self.cursor.safe_cursor
        for offset in self.model.open | set(self.unread) - self.model.remembered:
            assert resume is not None
            assert resume <= offset
            assert safe is None or safe < offset


TestCursor = CursorMachine.TestCase


# Cursors that the oracle must catch


class WithCore(ContiguousCursor):
    """The face of a core that has a fault."""

    __slots__ = ()
    Core: ClassVar[type[Cursor]]

    def __init__(self, start: int | None = None) -> None:
        super().__init__(start)
        self.core = self.Core(start)


class StrictChain(WithCore):
    """Moves from n to n + 1 only: right until the first gap in the offsets, then stalls for good."""

    class Core(Cursor):
        __slots__ = ("wall",)

        def __init__(self, start: int | None = None) -> None:
            super().__init__(start)
            self.wall: int | None = None

        def append(self, cell: Cell) -> None:
            if self.wall is None and self.last is not None and cell.offset != self.last + 1:
                self.wall = self.last
            super().append(cell)

        def close(self, cell: Cell) -> None:
            super().close(cell)
            if self.wall is not None and self.safe_cursor is not None:
                self.safe_cursor = min(self.wall, self.safe_cursor)


class CountsOffsets(ContiguousCursor):
    """Takes the safe cursor plus one for the next offset there is."""

    __slots__ = ()

    @property
    def resume_offset(self) -> int | None:
        return super().resume_offset if self.safe_cursor is None else self.safe_cursor + 1


class StoresUnknownAcks(ContiguousCursor):
    """Remembers an ack of an offset that it has never seen, and believes it later."""

    __slots__ = ("stored",)

    def __init__(self, start: int | None = None) -> None:
        super().__init__(start)
        self.stored: set[int] = set()

    def settle(self, offset: int) -> bool:
        if self.last is None or offset > self.last:
            self.stored.add(offset)
        return super().settle(offset)

    def offer(self, offset: int) -> OfferAnswer:
        answer = super().offer(offset)
        return OfferAnswer.SETTLED if offset in self.stored and super().settle(offset) else answer


class HighestAck(WithCore):
    """Commits the greatest offset that was acked, whatever is open below."""

    class Core(Cursor):
        __slots__ = ()

        def close(self, cell: Cell) -> None:
            super().close(cell)
            self.safe_cursor = max(cell.offset, self.safe_cursor or cell.offset)


class CountsDoubleAcks(ContiguousCursor):
    """Counts every ack, so a second one makes room that is not there."""

    __slots__ = ()

    def settle(self, offset: int) -> bool:
        known = super().settle(offset)
        if not known and self.last is not None and offset <= self.last and self.outstanding:
            self.core.outstanding -= 1
        return known


class ForgetsAckedRanges(ContiguousCursor):
    """Restarts from the position alone."""

    __slots__ = ()

    @classmethod
    def from_token(cls, text: str) -> "ForgetsAckedRanges":
        cursor = super().from_token(text)
        cursor.core._known.clear()
        return cursor


class MergesOverOpenOnes(ContiguousCursor):
    """Takes everything between the first and the last acked offset for acked."""

    __slots__ = ()

    def acked_ranges(self) -> list[tuple[int, int]]:
        ranges = super().acked_ranges()
        return [(ranges[0][0], ranges[-1][1])] if ranges else []


@pytest.mark.parametrize(
    "broken",
    [
        StrictChain,
        CountsOffsets,
        StoresUnknownAcks,
        HighestAck,
        CountsDoubleAcks,
        ForgetsAckedRanges,
        MergesOverOpenOnes,
    ],
)
def test_the_oracle_catches_a_broken_cursor(broken: type[ContiguousCursor]) -> None:
    class Machine(CursorMachine):
        cursor_class = broken

    # Shrinking would only cost time: nobody reads these counterexamples.
    quick = settings(max_examples=2_000, phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=quick)


# Tokens, for every budget and for any text


@st.composite
def cursors(draw: st.DrawFn) -> tuple[ContiguousCursor, list[int], set[int]]:
    """A cursor, what it was offered, and what of that is open."""
    base = draw(st.sampled_from(BASES))
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 300, 2**40]), min_size=1, max_size=25))
    log = [base + sum(gaps[:index]) for index in range(len(gaps))]
    settled = draw(st.sets(st.sampled_from(log)))
    cursor = ContiguousCursor()
    for offset in log:
        cursor.offer(offset)
    cursor.settle_many(draw(st.permutations(sorted(settled))))
    return cursor, log, set(log) - settled


@given(cursors())
def test_with_every_budget_a_restart_redelivers_what_is_open_and_what_was_confessed(
    case: tuple[ContiguousCursor, list[int], set[int]],
) -> None:
    cursor, log, open_ones = case
    ranges = cursor.acked_ranges()
    least = least_budget(cursor)
    omitted_before: float = math.inf
    for budget in range(least, len(cursor.to_token(10_000).text) + 1):
        token = cursor.to_token(budget)
        again = ContiguousCursor.from_token(token.text)
        confessed = ranges[len(ranges) - token.omitted_ranges :]
        expected = [
            offset for offset in log if offset in open_ones or any(start <= offset < stop for start, stop in confessed)
        ]
        assert expected == [offset for offset in log if again.offer(offset)]
        assert len(token.text) <= budget
        assert token.text.isascii()
        assert token.omitted_ranges <= omitted_before
        assert sum(stop - start for start, stop in confessed) == token.omitted_span
        omitted_before = token.omitted_ranges
        again.check_invariants()
    assert 0 == omitted_before
    with pytest.raises(ArgumentError):
        cursor.to_token(least - 1)


@given(cursors(), st.data())
def test_any_order_of_the_same_acks_leads_to_the_same_answers(
    case: tuple[ContiguousCursor, list[int], set[int]], data: st.DataObject
) -> None:
    cursor, log, open_ones = case
    twin = ContiguousCursor()
    acks = data.draw(st.permutations([offset for offset in log if offset not in open_ones]))
    for offset in log:
        twin.offer(offset)
        if data.draw(st.booleans()):
            twin.settle_many(ack for ack in acks if ack <= offset)
    twin.settle_many(acks)
    assert cursor.to_token() == twin.to_token()
    assert list(cursor) == list(twin)


@given(st.text() | st.binary().map(lambda data: "ksc1." + data.hex()) | st.none() | st.integers())
def test_any_other_value_raises_a_snapshot_error_and_nothing_else(text: object) -> None:
    with pytest.raises(SnapshotError):
        ContiguousCursor.from_token(text)  # type: ignore[arg-type]  # the mistake under test
