"""The placement value: owners, shares, the clockwise walk, and the difference of two maps."""

import copy
import pickle
from fractions import Fraction
from typing import Any

import pytest

from keyshared.errors import ArgumentError, InvariantError, SnapshotError
from keyshared.hashing import DANUBE_32, XXH64_SEED_42, KeyHash
from keyshared.placement import HashRange, RangeMap


def _first_byte(data: bytes) -> int:
    return data[0]


BYTE = KeyHash("first byte", 8, _first_byte)


def _bytes_map(*stops_and_owners: tuple[int, str | None]) -> RangeMap:
    """Give a map whose slot of a key is the key's first byte."""
    stops, owners = zip(*stops_and_owners, strict=True)
    return RangeMap.from_stops(stops, owners, key_hash=BYTE, slot_bits=8)


HOLED = _bytes_map((10, None), (20, "b"), (30, "a"), (40, None), (50, "b"), (256, None))


def test_a_range_can_be_read_from_inclusive_bounds() -> None:
    assert HashRange(3, 6) == HashRange.inclusive(3, 5)
    assert HashRange(3, 4) == HashRange.inclusive(3, 3)


@pytest.mark.parametrize(("first", "last", "parameter"), [(3, 2, "stop"), (-1, 2, "start"), (0, "2", "last")])
def test_inclusive_bounds_that_are_no_range_are_refused(first: Any, last: Any, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        HashRange.inclusive(first, last)

    assert parameter == caught.value.parameter


def test_a_range_is_half_open() -> None:
    piece = HashRange(3, 5)

    assert [False, True, True, False] == [slot in piece for slot in (2, 3, 4, 5)]
    assert "3" not in piece
    assert 2 == len(piece)
    assert sorted([HashRange(3, 6), HashRange(1, 9), piece]) == [HashRange(1, 9), piece, HashRange(3, 6)]


@pytest.mark.parametrize(
    ("start", "stop", "parameter"),
    [(-1, 5, "start"), (5, 5, "stop"), (5, 4, "stop"), (0.0, 4, "start"), (0, "4", "stop"), (False, 4, "start")],
)
def test_a_range_that_is_none_is_refused(start: Any, stop: Any, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        HashRange(start, stop)

    assert parameter == caught.value.parameter


def test_assignments_make_a_map_in_any_order_and_leave_holes() -> None:
    built = RangeMap(
        [(HashRange(40, 50), "b"), (HashRange(20, 30), "a"), (HashRange(10, 20), "b")], key_hash=BYTE, slot_bits=8
    )

    assert HOLED == built
    built.check_invariants()


def test_a_map_without_assignments_is_one_hole() -> None:
    empty = RangeMap()

    assert [(0, 65536, None)] == list(empty.runs)
    assert () == empty.owners
    assert empty.owner_of("order-1") is None
    assert [] == list(empty.walk(0))
    assert {None: 1} == empty.shares()


def test_a_slot_belongs_to_the_range_that_holds_it() -> None:
    expected = {0: None, 9: None, 10: "b", 19: "b", 20: "a", 29: "a", 30: None, 39: None, 40: "b", 49: "b", 255: None}

    assert expected == {slot: HOLED.owner(slot) for slot in expected}
    assert expected == {slot: HOLED.owner_of(bytes([slot])) for slot in expected}
    assert list(expected) == [HOLED.slot_of(bytes([slot])) for slot in expected]


@pytest.mark.parametrize("slot", [-1, 256, 1.0, "1", None, True])
def test_a_slot_that_is_not_there_is_refused_at_once(slot: Any) -> None:
    with pytest.raises(ArgumentError, match="from 0 to 255"):
        HOLED.owner(slot)
    with pytest.raises(ArgumentError, match="from 0 to 255"):
        HOLED.walk(slot)


def test_a_message_without_a_key_has_no_slot() -> None:
    with pytest.raises(ArgumentError, match="without a key has no slot"):
        HOLED.owner_of(None)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ArgumentError, match="without a key has no slot"):
        HOLED.slot_of(None)  # type: ignore[arg-type]  # that is the point


def test_shares_are_exact_and_add_up() -> None:
    shares = HOLED.shares()

    assert {"a": Fraction(10, 256), "b": Fraction(20, 256), None: Fraction(226, 256)} == shares
    assert ["a", "b", None] == list(shares)
    assert 1 == sum(shares.values())


def test_the_walk_is_lazy() -> None:
    class Watched(tuple[str | None, ...]):
        __slots__ = ()
        seen: list[int] = []  # noqa: RUF012 - one test, one instance

        def __getitem__(self, index: Any) -> Any:
            self.seen.append(index)
            return super().__getitem__(index)

    many = _bytes_map(*((stop, f"c{stop % 7}") for stop in range(1, 257)))
    object.__setattr__(many, "_runs", Watched(many._runs))

    assert "c6" == next(many.walk(5))
    assert [5] == Watched.seen


@pytest.mark.parametrize(
    "other",
    [RangeMap(key_hash=DANUBE_32), RangeMap(slot_bits=15), RangeMap(key_hash=BYTE, slot_bits=8), None, "map"],
)
def test_maps_of_other_hashes_or_spaces_do_not_compare(other: Any) -> None:
    with pytest.raises(ArgumentError, match=r"be a RangeMap over 2\*\*16 slots of hash xxh64:42"):
        RangeMap().moved(other)


def test_maps_are_values() -> None:
    twin = _bytes_map((10, None), (20, "b"), (30, "a"), (40, None), (50, "b"), (256, None))

    assert HOLED == twin
    assert hash(HOLED) == hash(twin)
    assert RangeMap() != RangeMap(slot_bits=15)
    assert RangeMap() != RangeMap(key_hash=DANUBE_32)
    assert HOLED != _bytes_map((256, "a"))
    assert RangeMap() != "map"
    assert BYTE == HOLED.key_hash
    assert 8 == HOLED.slot_bits


def test_a_map_describes_itself() -> None:
    assert "<RangeMap of 2 owners in 6 runs over 2**8 slots of hash first byte>" == repr(HOLED)


def test_a_pickle_costs_a_few_bytes_for_each_run() -> None:
    # owners are built anew for every run, as a reader of a file would
    owners = [f"a consumer with a long name {stop % 10}"[:] for stop in range(1, 65537)]
    big = RangeMap.from_stops(range(1, 65537), owners)

    assert 65536 * 7 > len(pickle.dumps(big))


def test_a_map_of_a_known_hash_is_read_without_naming_it() -> None:
    built = RangeMap.from_json(RangeMap(key_hash=DANUBE_32, slot_bits=32).to_json())

    assert DANUBE_32 is built.key_hash


GOOD = RangeMap([(HashRange(10, 20), "a"), (HashRange(20, 30), "b")]).to_json()


def test_the_json_form_is_this_one() -> None:
    assert {
        "version": 1,
        "hash": "xxh64:42",
        "slot_bits": 16,
        "owners": ["a", "b"],
        "stops": [10, 20, 30, 65536],
        "runs": [None, 0, 1, None],
    } == GOOD


@pytest.mark.parametrize(
    "forged",
    [
        None,
        {k: v for k, v in GOOD.items() if k != "runs"},
        {**GOOD, "more": 1},
        {**GOOD, "version": 2},
        {**GOOD, "version": True},
        {**GOOD, "hash": "md5"},
        {**GOOD, "slot_bits": 17},
        {**GOOD, "slot_bits": 33},
        {**GOOD, "owners": ["a"]},
        {**GOOD, "owners": ["b", "a"]},
        {**GOOD, "owners": ["a", "b", "c"]},
        {**GOOD, "owners": ["a", ""]},
        {**GOOD, "owners": ["a", None]},
        {**GOOD, "stops": [10, 20, 30]},
        {**GOOD, "stops": [10, 20, 20, 65536]},
        {**GOOD, "stops": [10, 20.0, 30, 65536]},
        {**GOOD, "stops": None},
        {**GOOD, "runs": [None, 0, 2, None]},
        {**GOOD, "runs": [None, 0, -1, None]},
        {**GOOD, "runs": [None, 0, True, None]},
        {**GOOD, "runs": [None, 0, "b", None]},
        {**GOOD, "runs": [None, 0, 1]},
        {**GOOD, "runs": {}},
    ],
    ids=repr,
)
def test_forged_json_is_refused(forged: Any) -> None:
    with pytest.raises(SnapshotError):
        RangeMap.from_json(forged)


def test_json_of_another_hash_than_the_named_one_is_refused() -> None:
    with pytest.raises(SnapshotError, match="hash is 'xxh64:42'"):
        RangeMap.from_json(GOOD, key_hash=DANUBE_32)


@pytest.mark.parametrize(
    ("assignments", "options", "parameter"),
    [
        ([(HashRange(0, 10), "a"), (HashRange(9, 20), "b")], {}, "range"),
        ([(HashRange(0, 10), "a"), (HashRange(0, 10), "a")], {}, "range"),
        ([((0, 10), "a")], {}, "range"),
        ([(HashRange(0, 65537), "a")], {}, "stop"),
        ([(HashRange(0, 10), "")], {}, "owner"),
        ([(HashRange(0, 10), None)], {}, "owner"),
        ([(HashRange(0, 10), b"a")], {}, "owner"),
        ([], {"slot_bits": 0}, "slot_bits"),
        ([], {"slot_bits": 33}, "slot_bits"),
        ([], {"slot_bits": True}, "slot_bits"),
        ([], {"slot_bits": 9, "key_hash": BYTE}, "slot_bits"),
        ([], {"key_hash": "xxh64:42"}, "key_hash"),
    ],
)
def test_assignments_that_can_never_work_are_refused(assignments: Any, options: Any, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        RangeMap(assignments, **options)

    assert parameter == caught.value.parameter


@pytest.mark.parametrize(
    ("stops", "owners", "parameter"),
    [
        ([65536], [], "owners"),
        ([], [], "last stop"),
        ([65535], ["a"], "last stop"),
        ([65536, 65536], ["a", "b"], "stop"),
        ([0, 65536], ["a", "b"], "stop"),
        ([5.0, 65536], ["a", "b"], "stop"),
        ([5, 65536], ["a", ""], "owner"),
        ([5, 65536], [None, 7], "owner"),
        ([5, 65536], [None, "a", "b"], "owners"),
    ],
)
def test_stops_that_do_not_tile_the_space_are_refused(stops: Any, owners: Any, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        RangeMap.from_stops(stops, owners)

    assert parameter == caught.value.parameter


@pytest.mark.parametrize(
    ("field", "value", "fact"),
    [
        ("_stops", (10, 20, 30, 40, 40, 256), "grow strictly"),
        ("_stops", (10, 20, 30, 40, 50, 255), "tile 256 slots, not 255"),
        ("_runs", (None, "b", "a", None, "b"), "every run"),
        ("_runs", (None, "b", "b", None, "b", None), "neighbouring"),
        ("_owners", ("b", "a"), "owners are"),
    ],
)
def test_a_broken_map_is_found_out(field: str, value: Any, fact: str) -> None:
    broken = copy.copy(HOLED)
    setattr(broken, field, value)

    with pytest.raises(InvariantError, match=fact):
        broken.check_invariants()


def test_the_default_space_is_the_top_16_bits_of_xxh64() -> None:
    assert (XXH64_SEED_42, 16) == (RangeMap().key_hash, RangeMap().slot_bits)


def test_a_key_for_which_the_function_of_the_hash_raises_is_named() -> None:
    def first(data: bytes) -> int:
        return data[0]

    made = RangeMap.from_stops([256], ["a"], key_hash=KeyHash("first", 8, first), slot_bits=8)
    assert "a" == made.owner_of("k") == made.finder()(b"k")
    for ask in (made.slot_of, made.owner_of, made.finder()):
        with pytest.raises(ArgumentError, match="key is b''; it must have a hash 'first'; its function raised IndexEr"):
            ask(b"")
