"""Range maps against the obvious model: a dict from every slot to its owner."""

import json
import pickle
from collections import Counter
from fractions import Fraction
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from keyshared.hashing import KeyHash
from keyshared.placement import HashRange, Moved, RangeMap

BITS = 5
SIZE = 1 << BITS


def _first_byte(data: bytes) -> int:
    return data[0]


HASH = KeyHash("first byte", 8, _first_byte)
Model = list[str | None]

# few long runs, so that neighbours, holes and whole-space runs all come up
models = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(1, SIZE)), max_size=12).map(
    lambda runs: ([owner for owner, n in runs for _ in range(n)] + [None] * SIZE)[:SIZE]
)


def _built(model: Model) -> RangeMap:
    return RangeMap.from_stops(range(1, SIZE + 1), model, key_hash=HASH, slot_bits=BITS)


def _clockwise(model: Model, slot: int) -> list[str]:
    seen: list[str] = []
    for owner in model[slot:] + model[:slot]:
        if owner is not None and owner not in seen:
            seen.append(owner)
    return seen


@given(models)
def test_every_slot_and_key_has_the_owner_of_the_model(model: Model) -> None:
    built = _built(model)

    built.check_invariants()
    assert model == [built.owner(slot) for slot in range(SIZE)]
    assert model == [built.owner_of(bytes([slot << 3 | 5])) for slot in range(SIZE)]
    assert tuple(sorted({owner for owner in model if owner})) == built.owners


@given(models)
def test_the_walk_is_the_models(model: Model) -> None:
    built = _built(model)

    assert [_clockwise(model, slot) for slot in range(SIZE)] == [list(built.walk(slot)) for slot in range(SIZE)]


@given(models)
def test_ranges_and_shares_are_the_models(model: Model) -> None:
    built = _built(model)

    for owner in ("a", "b", "c", None):
        slots = [slot for piece in built.ranges_of(owner) for slot in range(piece.start, piece.stop)]
        assert [slot for slot in range(SIZE) if model[slot] == owner] == slots
    assert {owner: Fraction(n, SIZE) for owner, n in Counter(model).items()} == built.shares()


@given(models, models)
def test_what_moved_is_exact_and_as_long_as_can_be(before: Model, after: Model) -> None:
    moves = _built(before).moved(_built(after))

    expected: list[Moved] = []
    for slot, (old, new) in enumerate(zip(before, after, strict=True)):
        if old == new:
            continue
        if expected and expected[-1][1:] == (slot, old, new):
            expected[-1] = expected[-1]._replace(stop=slot + 1)
        else:
            expected.append(Moved(slot, slot + 1, old, new))
    assert expected == moves


@given(models, models)
def test_maps_are_equal_exactly_when_they_answer_alike(one: Model, other: Model) -> None:
    assert (one == other) is (_built(one) == _built(other)) is (not _built(one).moved(_built(other)))
    assert hash(_built(one)) == hash(_built(list(one)))


@given(models, st.randoms(use_true_random=False))
def test_the_order_of_assignments_does_not_matter(model: Model, shuffler: Random) -> None:
    pieces = [(HashRange(slot, slot + 1), owner) for slot, owner in enumerate(model) if owner is not None]
    shuffler.shuffle(pieces)

    assert _built(model) == RangeMap(pieces, key_hash=HASH, slot_bits=BITS)


@given(models)
def test_json_and_pickle_give_the_same_map_back(model: Model) -> None:
    built = _built(model)

    assert built == RangeMap.from_json(json.loads(json.dumps(built.to_json())), key_hash=HASH)
    assert built == pickle.loads(pickle.dumps(built))  # noqa: S301 - our own bytes
