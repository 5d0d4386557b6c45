"""Pending acks: one consumer's unacked entries by position and by hash, one behaviour a test."""

import copy
import pickle
from collections.abc import Callable

import pytest

from keyshared.draintracker import PendingAck, PendingAcks, Position
from keyshared.errors import ArgumentError, InvariantError


def pending(*entries: tuple[Position, int]) -> PendingAcks:
    acks = PendingAcks()
    for position, hash_ in entries:
        assert acks.add(position, hash_)
    return acks


THREE = [((2, 5), 7), ((1, 9), 8), ((2, 0), 7)]


def positions(acks: PendingAcks) -> list[Position]:
    return [ack.position for ack in acks]


# Adding


def test_an_entry_is_pending_once_it_is_added() -> None:
    acks = PendingAcks()
    assert acks.add((1, 2), 7, 10, generation=3)
    assert PendingAck((1, 2), 7, 10, 3) == acks.get((1, 2))
    assert (1, True, False) == (len(acks), (1, 2) in acks, (1, 3) in acks)


def test_nothing_is_added_once_it_is_closed() -> None:
    acks = pending(*THREE)
    acks.close()
    assert acks.closed
    assert not acks.add((1, 1), 7)
    assert (0, None, 0) == (len(acks), acks.get((1, 1)), acks.count(7))


def test_a_position_that_is_pending_is_replaced_and_the_size_stays() -> None:
    acks = pending(*THREE)
    assert acks.add((2, 0), 9, 4)
    assert (3, PendingAck((2, 0), 9, 4)) == (len(acks), acks.get((2, 0)))
    assert ([(2, 5)], [(2, 0)]) == (acks.positions_of(7), acks.positions_of(9))
    acks.check_invariants()


# Walking


def test_a_walk_goes_up_through_the_positions() -> None:
    assert [(1, 9), (2, 0), (2, 5)] == positions(pending(*THREE))


# Removing


def test_closing_answers_everything_in_order_and_once() -> None:
    acks = pending(*THREE)
    assert [(1, 9), (2, 0), (2, 5)] == [ack.position for ack in acks.close()]
    assert [] == acks.close()


# Mistakes


def test_a_part_of_what_is_not_pending_answers_none() -> None:
    assert PendingAcks().reduce_remaining((1, 1), 1) is None


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda acks: acks.add([1, 2], 7), r"position is \[1, 2\]"),
        (lambda acks: acks.add((1,), 7), r"position is \(1,\)"),
        (lambda acks: acks.add((1, 2.0), 7), r"position is \(1, 2.0\)"),
        (lambda acks: acks.add((True, 2), 7), "position is .* a pair of ints"),
        (lambda acks: acks.add((1, 2), None), "hash_ is None"),
        (lambda acks: acks.add((1, 2), 7, -1), "remaining is -1; it must be an int of at least 0"),
        (lambda acks: acks.add((1, 2), 7, True), "remaining is True"),
        (lambda acks: acks.add((1, 2), 7, generation="1"), "generation is '1'"),
        (lambda acks: acks.reduce_remaining((2, 5), 0), "messages is 0; it must be an int of at least 1"),
        (lambda acks: acks.reduce_remaining((2, 5), True), "messages is True"),
        (lambda acks: acks.remove_up_to(3), "position is 3"),
    ],
)
def test_a_mistake_raises_and_changes_nothing(call: Callable[[PendingAcks], object], text: str) -> None:
    acks = pending(*THREE)
    before = list(acks)
    with pytest.raises(ArgumentError, match=text):
        call(acks)
    assert before == list(acks)
    acks.check_invariants()


# The structure


def test_a_copy_and_a_pickle_go_on_alone() -> None:
    acks = pending(*THREE)
    for again in (copy.deepcopy(acks), pickle.loads(pickle.dumps(acks))):  # noqa: S301  # our own bytes
        assert list(acks) == list(again)
        again.remove_hash(7)
        again.check_invariants()
        assert 3 == len(acks)


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (lambda acks: acks._acks.update({(9, 9): PendingAck((9, 8), 7)}), "knows its position"),
        (lambda acks: acks._acks.update({(2, 0): PendingAck((2, 0), 7, -1)}), "less than no messages"),
        (lambda acks: acks._by_hash.pop(8), "index by hash"),
        (lambda acks: acks._by_hash.update({5: {}}), "and nothing else"),
        (lambda acks: setattr(acks, "_closed", True), "nothing is pending once"),
    ],
)
def test_damage_is_found(damage: Callable[[PendingAcks], object], fact: str) -> None:
    acks = pending(*THREE)
    acks.check_invariants()
    damage(acks)
    with pytest.raises(InvariantError, match=fact):
        acks.check_invariants()
