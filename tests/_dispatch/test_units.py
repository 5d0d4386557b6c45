"""The books of drain units, by themselves; what they are for is tested in tests/dispatcher/test_drain_units.py."""

import pytest

from keyshared._dispatch.units import RangeUnits, SlotUnits, units_of
from keyshared._window.lanes import IN_FLIGHT
from keyshared.config import DrainUnit
from keyshared.errors import InvariantError
from keyshared.hashing import KeyHash
from keyshared.placement import RangeMap
from keyshared.window import Consumer, Entry, Lane


def _first_byte(data: bytes) -> int:
    return data[0]


FIRST_BYTE = KeyHash("first byte", 8, _first_byte)
WIDE = KeyHash("first byte twice", 9, lambda data: 2 * data[0])


class Owned:
    """A placement of 256 slots that can be replaced: where each run ends."""

    def __init__(self, *stops: int) -> None:
        self.assign(*stops)

    def assign(self, *stops: int, key_hash: KeyHash = FIRST_BYTE) -> None:
        owners = [f"c{number}" for number in range(len(stops) + 1)]
        size = 1 << key_hash.bits
        self.ranges = RangeMap.from_stops([*stops, size], owners, key_hash=key_hash, slot_bits=key_hash.bits)


def flying(offset: int, key: bytes, consumer: Consumer) -> Entry:
    entry = Entry(offset, key, None, Lane(key))
    entry.state = IN_FLIGHT
    entry.lane.holder = consumer
    return entry


def opened(units: SlotUnits, offset: int, key: bytes, consumer: Consumer) -> Entry:
    entry = flying(offset, key, consumer)
    units.opened(units.unit_of(key), entry)
    return entry


ANN, BOB, CAT = (Consumer(name, order, 1) for order, name in enumerate(("ann", "bob", "cat")))
kinds = pytest.mark.parametrize("kind", [SlotUnits, RangeUnits])


def test_a_unit_is_a_slot_or_the_start_of_a_run() -> None:
    assert [0x61, 0x40] == [units_of(unit, Owned(0x40)).unit_of(b"a") for unit in (DrainUnit.HASH, DrainUnit.RANGE)]


@kinds
def test_somebody_else_is_whoever_holds_something_and_is_not_the_owner(kind: type[SlotUnits]) -> None:
    units = kind(Owned())
    unit = units.unit_of(b"a")
    assert (False, None, []) == (
        units.is_foreign(unit, ANN),
        units.holder_besides(unit, ANN),
        units.open_besides(unit, ANN),
    )
    of_bob = opened(units, 5, b"a1", BOB)
    assert (True, BOB, [of_bob]) == (
        units.is_foreign(unit, ANN), units.holder_besides(unit, ANN), units.open_besides(unit, ANN),
    )  # fmt: skip
    assert (False, None) == (units.is_foreign(unit, BOB), units.holder_besides(unit, BOB))
    of_cat = opened(units, 3, b"a2", CAT)
    assert (True, CAT, [of_cat]) == (
        units.is_foreign(unit, BOB), units.holder_besides(unit, BOB), units.open_besides(unit, BOB),
    )  # fmt: skip
    assert (BOB, [of_cat, of_bob]) == (units.holder_besides(unit, ANN), units.open_besides(unit, ANN))
    units.closed(unit, of_bob)
    assert (True, False) == (units.is_foreign(unit, BOB), units.is_foreign(unit, CAT))
    units.closed(unit, of_cat)
    assert {} == units.open


@kinds
def test_a_delivery_is_admitted_and_counted_unless_somebody_else_holds_the_unit(kind: type[SlotUnits]) -> None:
    units = kind(Owned())
    unit = units.unit_of(b"a")
    first, second, third = (flying(offset, b"a", ANN) for offset in range(3))
    assert [True, True] == [units.admits(unit, first, ANN), units.admits(unit, second, ANN)]
    assert {unit: {ANN: {0: first, 1: second}}} == units.open
    assert not units.admits(unit, third, BOB)
    assert {unit: {ANN: {0: first, 1: second}}} == units.open


@kinds
def test_an_end_is_counted_by_the_short_way_unless_a_lane_waits_for_it(kind: type[SlotUnits]) -> None:
    units = kind(Owned())
    unit = units.unit_of(b"a")
    first, second = (opened(units, offset, b"a", ANN) for offset in range(2))
    assert units.releases(unit, first)
    assert {unit: {ANN: {1: second}}} == units.open
    units.wait(unit, Lane(b"a2"))
    assert not units.releases(unit, second)
    assert {unit: {ANN: {1: second}}} == units.open


@kinds
def test_a_unit_is_vacated_when_somebody_has_finished_with_it_and_a_lane_waits(kind: type[SlotUnits]) -> None:
    units = kind(Owned())
    unit = units.unit_of(b"a")
    first, second, third = (opened(units, offset, b"a", BOB) for offset in range(3))
    units.closed(unit, first)
    lane = Lane(b"a")
    units.wait(unit, lane)
    units.closed(unit, second)
    assert ({}, []) == (units.vacated, units.take_vacated())
    units.closed(unit, third)
    assert {unit: None} == units.vacated
    assert [lane] == units.take_vacated()
    assert {} == units.vacated
    units.stop_waiting(unit, lane)
    units.closed(unit, opened(units, 3, b"a", BOB))
    assert {} == units.vacated


@kinds
def test_a_lane_that_waits_no_more_is_not_among_those_of_a_vacated_unit(kind: type[SlotUnits]) -> None:
    units = kind(Owned())
    unit = units.unit_of(b"a")
    lanes = [Lane(b"a1"), Lane(b"a2")]
    for lane in lanes:
        units.wait(unit, lane)
    units.closed(unit, opened(units, 0, b"a", BOB))
    units.stop_waiting(unit, lanes[0])
    assert [lanes[1]] == units.take_vacated()


class TestFollow:
    def test_the_same_placement_changes_nothing(self) -> None:
        for kind in (SlotUnits, RangeUnits):
            units = kind(Owned(0x40))
            entry = opened(units, 0, b"a", ANN)
            units.follow()
            assert [entry] == list(units.open.values())

    @pytest.mark.parametrize("kind", [SlotUnits, RangeUnits])
    def test_units_are_behind_from_a_change_of_placement_until_they_follow(self, kind: type[SlotUnits]) -> None:
        owned = Owned(0x40)
        units = kind(owned)
        behind = [units.is_behind]
        owned.assign(0x62)
        behind.append(units.is_behind)
        units.follow()
        assert [False, True, False] == [*behind, units.is_behind]

    def test_slots_stay_what_they_are_in_another_placement_of_the_same_space(self) -> None:
        owned = Owned()
        units = SlotUnits(owned)
        entry = opened(units, 0, b"a", ANN)
        owned.assign(0x40)
        units.follow()
        assert {0x61: entry} == units.open

    def test_what_is_open_and_who_waits_goes_along_with_its_slots(self) -> None:
        owned = Owned(0x40)
        units = RangeUnits(owned)
        low, left, right = (opened(units, number, key, ANN) for number, key in enumerate((b"\1", b"a", b"b")))
        lane = Lane(b"b2")
        units.wait(0x40, lane)
        owned.assign(0x40, 0x62)
        units.follow()
        assert {0: low, 0x40: left, 0x62: right} == units.open
        units.check_invariants([low, left, right], [lane])
        owned.assign(0x62)
        units.follow()
        assert {0: {ANN: {0: low, 1: left}}, 0x62: right} == units.open

    def test_a_run_that_stays_is_not_looked_at(self) -> None:
        class Counting(RangeUnits):
            asked = 0

            def unit_of(self, key: bytes) -> int:
                self.asked += 1
                return super().unit_of(key)

        owned = Owned(0x40, 0x62)
        units = Counting(owned)
        for offset, key in enumerate((b"a1", b"a2", b"a3", b"b1")):
            opened(units, offset, key, ANN)
        units.asked = 0
        owned.assign(0x40, 0x62, 0x70)
        units.follow()
        assert 1 == units.asked

    @pytest.mark.parametrize("kind", [SlotUnits, RangeUnits])
    def test_in_another_space_everything_gets_its_new_place(self, kind: type[SlotUnits]) -> None:
        owned = Owned(0x40)
        units = kind(owned)
        entries = [opened(units, 0, b"\1", ANN), opened(units, 1, b"a", ANN)]
        lane = Lane(b"a2")
        units.wait(units.unit_of(b"a"), lane)
        owned.assign(0xC0, key_hash=WIDE)
        units.follow()
        assert [units.unit_of(b"\1"), units.unit_of(b"a")] == sorted(units.open)
        units.check_invariants(entries, [lane])

    def test_what_was_vacated_under_a_name_of_before_is_forgotten_with_the_name(self) -> None:
        owned = Owned(0x40)
        units = RangeUnits(owned)
        entry = opened(units, 0, b"a", ANN)
        units.wait(0x40, Lane(b"b"))
        units.closed(0x40, entry)
        owned.assign(0x62)
        units.follow()
        assert [] == units.take_vacated()


@kinds
def test_a_recount_finds_what_is_counted_wrongly(kind: type[SlotUnits]) -> None:
    units = kind(Owned())
    entry = opened(units, 0, b"a", ANN)
    keyless = Entry(1, None, None, Lane(None))
    units.check_invariants([entry, keyless], [])
    with pytest.raises(InvariantError, match="count exactly the open deliveries"):
        units.check_invariants([], [])
    with pytest.raises(InvariantError, match="know exactly the lanes that wait"):
        units.check_invariants([entry], [Lane(b"a")])
