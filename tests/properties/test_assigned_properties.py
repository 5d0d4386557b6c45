"""Assigned ranges against the obvious model: a dict from every slot to whom it was assigned last."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.errors import ArgumentError, RangeOverlapError
from keyshared.placement import HashRange, Moved
from keyshared.placement.assigned import AssignedRanges
from keyshared.ring import HashRing

BITS = 4
SIZE = 1 << BITS

names = st.sampled_from(["a", "b", "c"])
spans = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(
    lambda pair: HashRange(pair[0], min(SIZE, pair[0] + pair[1]))
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), spans, names),
        st.tuples(st.just("release"), spans, names),
        st.tuples(st.just("leave"), spans, names),
        st.tuples(st.just("join"), spans, names),
    ),
    max_size=12,
)
Operations = list[tuple[str, HashRange, str]]


class SlowRanges:
    """One owner a slot, the number of the assignment it comes from, and a ring for the rest."""

    def __init__(self, *, with_ring: bool) -> None:
        self.assigned: dict[int, tuple[str, int]] = {}
        self.ring = HashRing(vnodes=2, slot_bits=BITS) if with_ring else None
        self.known: list[str] = []
        self.count = 0

    def owners(self) -> list[str | None]:
        below = [self.ring.ranges.owner(slot) if self.ring else None for slot in range(SIZE)]
        return [self.assigned[slot][0] if slot in self.assigned else below[slot] for slot in range(SIZE)]

    def overlaps_partly(self, piece: HashRange) -> bool:
        """Whether a range without gaps, assigned at once and not cut since, lies partly in this one and goes beyond."""
        if {self.assigned.get(slot) for slot in range(piece.start, piece.stop)} - {None} == set():
            return False
        for start, stop in self.uncut():
            ours, theirs = set(range(piece.start, piece.stop)), set(range(start, stop))
            if ours & theirs and not ours <= theirs and not theirs <= ours:
                return True
        return False

    def uncut(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for slot in sorted(self.assigned):
            if found and found[-1][1] == slot and self.assigned[slot] == self.assigned[slot - 1]:
                found[-1] = (found[-1][0], slot + 1)
            else:
                found.append((slot, slot + 1))
        return found

    def apply(self, operation: str, piece: HashRange, name: str) -> None:
        if operation == "assign":
            self.count += 1
            self.assigned.update(dict.fromkeys(range(piece.start, piece.stop), (name, self.count)))
        elif operation == "release":
            self.assigned = {slot: was for slot, was in self.assigned.items() if slot not in piece}
        elif operation == "leave":
            self.known.remove(name)
            self.assigned = {slot: was for slot, was in self.assigned.items() if was[0] != name}
            if self.ring and name in self.ring.consumers:
                self.ring.remove(name)
        elif self.ring:
            self.ring.add(name)
        if operation in {"assign", "join"} and name not in self.known:
            self.known.append(name)


def call(placement: AssignedRanges, operation: str, piece: HashRange, name: str) -> list[Moved]:
    if operation == "assign":
        return placement.assign(piece, name)
    if operation == "release":
        return placement.release(piece)
    return placement.remove(name) if operation == "leave" else placement.add(name)


def replay(make: Callable[..., AssignedRanges], ops: Operations, *, strict: bool, with_ring: bool) -> None:
    """Apply everything to both, and compare after every step."""
    fallback = HashRing(vnodes=2, slot_bits=BITS) if with_ring else None
    placement = make(slot_bits=BITS, strict_overlap=strict, fallback=fallback)
    model = SlowRanges(with_ring=with_ring)
    for operation, piece, name in ops:
        if (operation == "join") is (name in model.known) and operation in {"join", "leave"}:
            continue
        before = placement.ranges
        if strict and operation == "assign" and model.overlaps_partly(piece):
            with pytest.raises(RangeOverlapError):
                placement.assign(piece, name)
            assert before is placement.ranges
            continue
        moves = call(placement, operation, piece, name)
        model.apply(operation, piece, name)
        owners = model.owners()
        assert owners == [placement.ranges.owner(slot) for slot in range(SIZE)]
        assert before.moved(placement.ranges) == moves
        assert [slot for slot in range(SIZE) if owners[slot] is None] == [
            slot for hole in placement.unowned() for slot in range(hole.start, hole.stop)
        ]
        assert model.uncut() == [(span.start, span.stop) for span, _ in placement.assignments]
        assert tuple(model.known) == placement.consumers
        placement.check_invariants()


@given(ops=operations, strict=st.booleans(), with_ring=st.booleans())
def test_every_slot_belongs_to_whom_it_was_assigned_last(ops: Operations, *, strict: bool, with_ring: bool) -> None:
    replay(AssignedRanges, ops, strict=strict, with_ring=with_ring)


class FirstWins(AssignedRanges):
    """Broken: an assignment leaves alone what somebody owns, as a list of assignments that is read from the front."""

    def _put(self, piece: HashRange, owner: str) -> None:
        older, self._pieces = self._pieces, []
        super()._put(piece, owner)
        for start, stop, name in older:
            super()._put(HashRange(start, stop), name)


class NoSplit(AssignedRanges):
    """Broken: what an assignment touches is dropped as a whole."""

    def _replace(self, piece: HashRange, new: list[tuple[int, int, str]]) -> None:
        self._pieces[self._touched(piece.start, piece.stop)] = new


class LastOnly(AssignedRanges):
    """Broken: of several that an assignment touches, only the last one makes way."""

    def _touched(self, start: int, stop: int) -> slice:
        found = super()._touched(start, stop)
        return slice(max(found.start, found.stop - 1), found.stop)


class ExactOnly(AssignedRanges):
    """Broken: prior owners are found by equal bounds only, so a part of a range counts as new."""

    def _check_overlap(self, piece: HashRange, consumer: str) -> None:
        if (piece.start, piece.stop) not in [(start, stop) for start, stop, _ in self._pieces]:
            super()._check_overlap(HashRange(piece.start, piece.start + 1), consumer)


CUTS: Operations = [
    ("assign", HashRange(0, 8), "a"),
    ("assign", HashRange(2, 4), "b"),
    ("assign", HashRange(6, 10), "c"),
    ("assign", HashRange(3, 7), "d"),
]


@pytest.mark.parametrize(
    ("broken", "strict"), [(FirstWins, False), (NoSplit, False), (LastOnly, False), (ExactOnly, True)]
)
def test_a_broken_placement_is_caught(broken: Callable[..., AssignedRanges], *, strict: bool) -> None:
    replay(AssignedRanges, CUTS, strict=strict, with_ring=False)
    with pytest.raises((AssertionError, ArgumentError, pytest.fail.Exception)):
        replay(broken, CUTS, strict=strict, with_ring=False)
