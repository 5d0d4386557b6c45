"""The hash ring as a builder: joins, leaves, weights, ties, and what it refuses."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from keyshared.errors import (
    ArgumentError,
    ConsumerExistsError,
    InvariantError,
    KeyTypeError,
    UnknownConsumerError,
)
from keyshared.hashing import DANUBE_32, KeyHash, danube32
from keyshared.placement import Moved, RangeMap
from keyshared.placement.ring_points import RingPoints
from keyshared.ring import HashRing


def _last_four_bits(data: bytes) -> int:
    return danube32(data) & 15


TINY = KeyHash("tiny", 4, _last_four_bits)


def test_a_lone_consumer_owns_everything() -> None:
    ring = HashRing()

    assert [Moved(0, 65536, None, "a")] == ring.add("a")
    assert {"a": 1} == ring.ranges.shares()
    assert [Moved(0, 65536, "a", None)] == ring.remove("a")
    assert HashRing() == ring


def test_names_and_numbers_of_virtual_nodes_never_run_together() -> None:
    ring = HashRing(["a", "a1", "a\x001"], vnodes=120)

    assert 360 == len({point for point, _ in ring.points})


@pytest.mark.parametrize(
    ("weight", "points"),
    [
        (1, 10),
        (2, 20),
        (0.5, 5),
        (Fraction(1, 4), 3),  # 2.5: half goes up
        (0.35, 3),  # binary 0.35 is below 0.35, so 3.4999...
        (Fraction(35, 100), 4),
        (0.01, 1),
        (1e-300, 1),
    ],
)
def test_a_weight_multiplies_the_points_rounded_half_up_and_at_least_one(weight: Any, points: int) -> None:
    ring = HashRing({"a": weight}, vnodes=10)

    assert points == len(ring.points)
    assert weight == ring.weight_of("a")
    ring.check_invariants()


def test_shares_follow_weights() -> None:
    shares = HashRing({"small": 1, "big": 3}, vnodes=400).ranges.shares()

    assert Fraction(70, 100) < shares["big"] < Fraction(80, 100)


def test_a_weight_that_gives_as_many_points_is_remembered_and_moves_nothing() -> None:
    ring = HashRing({"a": 2, "b": 1})

    assert [] == ring.set_weight("b", 1.001)
    assert 1.001 == ring.weight_of("b")
    ring.check_invariants()


def test_of_equal_points_the_smaller_name_owns_whatever_the_order_of_joins() -> None:
    for names in (["a", "b"], ["b", "a"]):
        ring = HashRing(names, vnodes=200, slot_bits=4, key_hash=TINY)

        # 200 points each in 16 slots: both have every point
        assert {"a": 1} == ring.ranges.shares()
        assert [Moved(0, 16, "a", "b")] == ring.remove("a")


def test_the_preference_list_is_the_walk_from_the_key() -> None:
    ring = HashRing(["a", "b", "c"])

    everyone = ring.owners("order-1", 5)
    assert sorted(everyone) == ["a", "b", "c"]
    assert everyone[0] == ring.owner("order-1") == ring.owner(b"order-1")
    assert [everyone[:n] for n in range(4)] == [ring.owners("order-1", n) for n in range(4)]


def test_those_who_stand_in_are_those_who_inherit() -> None:
    ring = HashRing(["a", "b", "c", "d"], slot_bits=32)
    preferred = ring.owners("order-1", 4)

    for expected in preferred:
        assert expected == ring.owner("order-1")
        ring.remove(expected)


def test_rings_are_equal_when_they_answer_alike_now_and_later() -> None:
    ring = HashRing(["a", "b"])

    assert HashRing({"a": 1.0, "b": 1}) == ring
    different = [
        HashRing(["a", "c"]),
        HashRing({"a": 1, "b": 2}),
        HashRing(["a", "b"], vnodes=99),
        HashRing(["a", "b"], slot_bits=15),
        HashRing(["a", "b"], key_hash=DANUBE_32),
        ring.ranges,
    ]
    assert ring not in different
    assert HashRing.danube([1, 2]) != HashRing.danube([2, 1])
    assert HashRing.danube([1, 2]) == HashRing.danube(["1", "2"])
    assert HashRing.danube([1, 2]) != HashRing(["1", "2"], slot_bits=32, key_hash=DANUBE_32)


def test_a_ring_describes_itself() -> None:
    assert "<HashRing of 2 consumers with 200 points>" == repr(HashRing(["a", "b"]))


def _unchanged_by(call: Callable[[HashRing], object], error: type[Exception], match: str) -> None:
    ring = HashRing({"a": 2, "b": 1})
    with pytest.raises(error, match=match):
        call(ring)
    assert HashRing({"a": 2, "b": 1}) == ring
    assert ("a", "b") == ring.consumers
    ring.check_invariants()


def test_a_name_that_is_there_is_refused() -> None:
    _unchanged_by(lambda ring: ring.add("a"), ConsumerExistsError, "'a' is already there")
    with pytest.raises(ConsumerExistsError):
        HashRing(["a", "b", "a"])


@pytest.mark.parametrize("name", ["c", "", None, 5, ["a"]], ids=repr)
def test_a_name_that_is_not_there_is_refused(name: Any) -> None:
    _unchanged_by(lambda ring: ring.remove(name), UnknownConsumerError, "not connected")
    _unchanged_by(lambda ring: ring.set_weight(name, 2), UnknownConsumerError, "not connected")
    _unchanged_by(lambda ring: ring.weight_of(name), UnknownConsumerError, "not connected")


@pytest.mark.parametrize("name", ["", None, 5, b"c", "\ud800"], ids=ascii)
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    _unchanged_by(lambda ring: ring.add(name), ArgumentError, "name is")


@pytest.mark.parametrize(
    "weight", [0, -1, 0.0, float("nan"), float("inf"), True, None, "1", Decimal(1), 10_001, 1e300, 10**400]
)
def test_a_weight_that_can_never_work_is_refused(weight: Any) -> None:
    _unchanged_by(lambda ring: ring.add("c", weight=weight), ArgumentError, "weight is")
    _unchanged_by(lambda ring: ring.set_weight("a", weight), ArgumentError, "weight is")


@pytest.mark.parametrize("n", [-1, 1.0, None, True])
def test_a_number_of_owners_that_is_none_is_refused(n: Any) -> None:
    _unchanged_by(lambda ring: ring.owners("k", n), ArgumentError, "n is")


def test_only_keys_have_owners() -> None:
    _unchanged_by(lambda ring: ring.owner(5), KeyTypeError, "int")  # type: ignore[arg-type]  # that is the point
    _unchanged_by(lambda ring: ring.owners(None, 1), ArgumentError, "key is")  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"vnodes": 0}, "vnodes"),
        ({"vnodes": 1.0}, "vnodes"),
        ({"vnodes": 1_000_001}, "vnodes"),
        ({"slot_bits": 0}, "slot_bits"),
        ({"slot_bits": 33}, "slot_bits"),
        ({"slot_bits": 5, "key_hash": TINY}, "slot_bits"),
        ({"key_hash": "xxh64:42"}, "key_hash"),
        ({"consumers": "abc"}, "consumers"),
        ({"consumers": b"abc"}, "consumers"),
        ({"consumers": [1]}, "name"),
        ({"consumers": {"a": 0}}, "weight"),
    ],
    ids=repr,
)
def test_a_ring_that_can_never_work_is_refused(options: Any, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        HashRing(**options)

    assert parameter == caught.value.parameter


@pytest.mark.parametrize(
    "consumer_id",
    [-1, 2**64, "01", "", "x", "1.0", "+1", " 1", "\u0661", "9" * 5000, 1.0, True, None],
    ids=lambda value: ascii(value)[:12],
)
def test_a_danube_id_is_an_unsigned_64_bit_number(consumer_id: Any) -> None:
    with pytest.raises(ArgumentError, match=r"decimal digits|digits of an unsigned"):
        HashRing.danube([consumer_id])


def test_a_danube_ring_takes_new_ids_by_their_digits() -> None:
    ring = HashRing.danube([2**64 - 1])

    assert {"0"} == {move.new for move in ring.add("0")}
    with pytest.raises(ArgumentError, match="consumer id of Danube"):
        ring.add("c0")
    assert (str(2**64 - 1), "0") == ring.consumers
    assert (DANUBE_32, 32) == (ring.ranges.key_hash, ring.ranges.slot_bits)


def _danube_owner(ids: list[str], vnodes: int, key_hash: int, mask: int) -> str:
    """Danube's own way: append in join order, sort stably by point, look for the first point that is not below."""
    entries = sorted(
        ((danube32(f"{i}-{v}".encode()) & mask, i) for i in ids for v in range(vnodes)), key=lambda entry: entry[0]
    )
    equal = [i for point, i in entries if point == key_hash]
    if equal:
        return equal[-1]
    return next((i for point, i in entries if point >= key_hash), entries[0][1])


@pytest.mark.parametrize("mask", [15, 3, 1, 0])
@pytest.mark.parametrize("vnodes", [1, 2, 3, 5])
def test_danubes_ties_hold_however_many_points_fall_together(
    vnodes: int, mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = KeyHash("tiny danube", 32, lambda data: danube32(data) & mask)
    monkeypatch.setattr("keyshared.ring.DANUBE_32", tiny)
    ring = HashRing.danube(vnodes=vnodes)

    for name in ("5", "3", "9", "1", "12", "7"):
        ring.add(name)
        ring.check_invariants()
        ids = list(ring.consumers)
        assert [_danube_owner(ids, vnodes, h, mask) for h in range(20)] == [ring.ranges.owner(h) for h in range(20)]
    for name in ("9", "5"):
        ring.remove(name)
        ring.add(name)
    ids = list(ring.consumers)
    assert ["3", "1", "12", "7", "9", "5"] == ids
    assert [_danube_owner(ids, vnodes, h, mask) for h in range(20)] == [ring.ranges.owner(h) for h in range(20)]


@pytest.mark.parametrize(
    ("name", "separator", "like"),
    [
        ("w#1", None, "w#1"),
        ("w#1", "#", "w"),
        ("a#b#1", "#", "a#b"),
        ("w", "#", "w"),
        ("w#", "#", "w"),
        ("#1", "#", "#1"),
        ("w::1", "::", "w"),
        ("w@1", "#", "w@1"),
    ],
)
def test_what_follows_the_last_separator_takes_no_part_in_the_points(name: str, separator: Any, like: str) -> None:
    ring = HashRing.pulsar([name], separator=separator)

    assert [point for point, _ in HashRing.pulsar([like]).points] == [point for point, _ in ring.points]
    assert (name, separator) == (*ring.consumers, ring.separator)


def test_pulsars_slot_zero_never_occurs_and_goes_with_the_first() -> None:
    ring = HashRing.pulsar(["a", "b", "c"])

    assert 0 not in {ring.ranges.slot_of(f"key-{i}") for i in range(1000)}
    assert ring.ranges.owner(1) == ring.ranges.owner(0)


def test_pulsars_consumers_are_equal_only_if_they_came_in_the_same_order_and_have_the_same_numbers() -> None:
    ring = HashRing.pulsar(["a", "b"], separator="#")
    renumbered = HashRing.pulsar(["w#0", "w#1"], separator="#")
    renumbered.remove("w#0")

    assert HashRing.pulsar(["b", "a"], separator="#") != ring
    assert HashRing.pulsar(["a", "b"]) != ring
    assert HashRing.pulsar(["w#1"], separator="#") != renumbered
    assert renumbered.copy() == renumbered
    assert renumbered == pickle.loads(pickle.dumps(renumbered))  # noqa: S301 - our own bytes
    assert {"w#0"} == {move.new for move in renumbered.copy().add("w#0")}


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"separator": ""}, "separator"),
        ({"separator": 5}, "separator"),
        ({"points": 0}, "vnodes"),
        ({"range_size": 65535}, "range_size"),
        ({"names": [""]}, "name"),
        ({"names": "ab"}, "consumers"),
    ],
    ids=str,
)
def test_a_ring_that_pulsar_could_not_have_is_refused(options: Any, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        HashRing.pulsar(**options)

    assert parameter == caught.value.parameter


def test_two_of_one_number_are_found_out() -> None:
    ring = HashRing.pulsar(["w#1", "w#2"], separator="#")
    first, second = ring._consumers.values()
    ring._consumers["w#2"] = replace(second, index=first.index)
    points = [p for name, member in ring._consumers.items() for p in ring._points_of(name, member, 0, member.vnodes)]
    ring._points = RingPoints(points, 16, 16, latest_owns_exact=False)

    with pytest.raises(InvariantError, match="different numbers"):
        ring.check_invariants()


def test_numbers_that_were_given_back_twice_are_found_out() -> None:
    ring = HashRing.pulsar(["w#1", "w#2", "x"], separator="#")
    ring.check_invariants()
    ring._numbers.remove(("w", 0))

    with pytest.raises(InvariantError, match="which are taken"):
        ring.check_invariants()


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (lambda ring: ring._points._buckets[0].pop(), "points are those"),
        (lambda ring: ring._points._buckets.reverse(), "points are those"),
        (lambda ring: ring._points._buckets.append([]), "a bucket for every slot"),
        (lambda ring: setattr(ring, "_ranges", RangeMap()), "ranges are those"),
        (lambda ring: setattr(ring, "_vnodes", 7), "how many points"),
    ],
    ids=["lost points", "order", "buckets", "stale value", "weights"],
)
def test_a_broken_ring_is_found_out(damage: Callable[[HashRing], object], fact: str) -> None:
    ring = HashRing(["a", "b"])
    damage(ring)

    with pytest.raises(InvariantError, match=fact):
        ring.check_invariants()


def test_a_name_or_weight_for_which_the_function_of_the_hash_raises_changes_nothing() -> None:
    refused = False

    def moody(data: bytes) -> int:
        if refused:
            raise ZeroDivisionError
        return data[-1]

    ring = HashRing(["a"], vnodes=3, key_hash=KeyHash("moody", 8, moody), slot_bits=8)
    before = ring.copy()
    refused = True
    assert [] == ring.set_weight("a", 1)
    changes: list[Callable[[], object]] = [lambda: ring.add("b"), lambda: ring.set_weight("a", 2)]
    for change in changes:
        with pytest.raises(ArgumentError, match="its function raised ZeroDivisionError"):
            change()
    refused = False
    ring.check_invariants()
    assert before == ring


@pytest.mark.parametrize("answer", [-1, 256, "a", None])
def test_a_name_or_key_of_which_the_function_of_the_hash_makes_no_hash_is_refused(answer: Any) -> None:
    ring = HashRing(
        ["a"], vnodes=3, key_hash=KeyHash("odd", 8, lambda data: answer if data[0] in b"bk" else data[-1]), slot_bits=8
    )
    before = ring.copy()
    with pytest.raises(ArgumentError, match=r"key is b'b.*; it must have a hash 'odd'; its function returned"):
        ring.add("b")
    assert before == ring
    for _ in range(2):
        with pytest.raises(ArgumentError, match="key is b'k'; it must have a hash 'odd'; its function returned"):
            ring.owner(b"k")
        assert [(0, 256, "a")] == list(ring.ranges.runs)  # from now on they are at hand
