"""Pending acks against a plain dict that is sorted whenever anybody asks."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.draintracker import PendingAck, PendingAcks, Position

positions = st.tuples(st.integers(0, 3), st.integers(0, 3))
hashes = st.integers(-3, 3)


class Step(NamedTuple):
    call: str
    position: Position
    hash: int
    number: int


class Model:
    """Everything by position, and nothing else."""

    def __init__(self) -> None:
        self.acks: dict[Position, PendingAck] = {}

    def take(self, goes: Callable[[PendingAck], bool]) -> list[PendingAck]:
        gone = sorted(ack for ack in self.acks.values() if goes(ack))
        self.acks = {position: ack for position, ack in self.acks.items() if ack not in gone}
        return gone

    def add(self, step: Step) -> bool:
        self.acks[step.position] = PendingAck(step.position, step.hash, step.number, step.number)
        return True

    def remove(self, step: Step) -> PendingAck | None:
        return self.acks.pop(step.position, None)

    def reduce_remaining(self, step: Step) -> int | None:
        known = self.acks.get(step.position)
        if known is None:
            return None
        left = self.acks[step.position] = known._replace(remaining=max(0, known.remaining - step.number))
        return left.remaining

    def remove_up_to(self, step: Step) -> list[PendingAck]:
        return self.take(lambda ack: ack.position <= step.position)

    def remove_hash(self, step: Step) -> list[PendingAck]:
        return self.take(lambda ack: ack.hash == step.hash)

    def clear(self, _: Step) -> list[PendingAck]:
        return self.take(lambda _: True)


CALLS: dict[str, Callable[[PendingAcks, Step], object]] = {
    "add": lambda acks, step: acks.add(step.position, step.hash, step.number, generation=step.number),
    "remove": lambda acks, step: acks.remove(step.position),
    "reduce_remaining": lambda acks, step: acks.reduce_remaining(step.position, step.number),
    "remove_up_to": lambda acks, step: acks.remove_up_to(step.position),
    "remove_hash": lambda acks, step: acks.remove_hash(step.hash),
    "clear": lambda acks, _: acks.clear(),
}
steps = st.lists(
    st.builds(Step, st.sampled_from([*CALLS, "add", "add"]), positions, hashes, st.integers(1, 4)), max_size=40
)


def compare(acks: PendingAcks, history: list[Step]) -> None:
    model = Model()
    for step in history:
        assert getattr(model, step.call)(step) == CALLS[step.call](acks, step), step
        acks.check_invariants()
        left = sorted(model.acks.values())
        assert left == list(acks)
        for hash_ in range(-3, 4):
            mine = [ack.position for ack in left if ack.hash == hash_]
            assert (len(mine), mine) == (acks.count(hash_), acks.positions_of(hash_))
        assert sorted({ack.hash for ack in left if -1 <= ack.hash < 2}) == list(acks.hashes_between(-1, 2))


@given(steps)
def test_pending_acks_are_a_sorted_dict(history: list[Step]) -> None:
    compare(PendingAcks(), history)


class KeepsTheOldHash(PendingAcks):
    """An entry that is replaced stays in the index under the hash that it had."""

    def remove(self, position: Position) -> PendingAck | None:
        ack = super().remove(position)
        if ack is not None:
            self._by_hash.setdefault(ack.hash, {})[position] = None
        return ack


class LeavesTheBoundary(PendingAcks):
    """Everything below a position goes, but not the position."""

    def remove_up_to(self, position: Position) -> list[PendingAck]:
        return super().remove_up_to((position[0], position[1] - 1))


class LessThanNothing(PendingAcks):
    """A double ack of a part is subtracted twice."""

    def reduce_remaining(self, position: Position, messages: int) -> int | None:
        ack = self.get(position)
        if ack is None:
            return None
        self._acks[position] = ack._replace(remaining=ack.remaining - messages)
        return ack.remaining - messages


@pytest.mark.parametrize("broken", [KeepsTheOldHash, LeavesTheBoundary, LessThanNothing])
def test_pending_acks_with_a_fault_fail(broken: type[PendingAcks]) -> None:
    history = [
        Step("add", (1, 1), 1, 2),
        Step("add", (1, 1), 2, 2),
        Step("reduce_remaining", (1, 1), 0, 3),
        Step("remove_up_to", (1, 1), 0, 1),
    ]
    compare(PendingAcks(), history)
    with pytest.raises(AssertionError):
        compare(broken(), history)
