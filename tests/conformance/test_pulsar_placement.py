"""Where Pulsar 4 places keys: what its own algorithms printed, and what its selectors' tests assert, against ours."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pytest

from keyshared.errors import ArgumentError, KeySharedError, MisuseError, RangeOverlapError, UnknownConsumerError
from keyshared.hashing import MURMUR3_32, PULSAR_RANGES, PULSAR_RING
from keyshared.placement import HashRange, Moved, RangeMap, gained, lost
from keyshared.placement.assigned import ExclusiveRanges
from keyshared.placement.autosplit import AutoSplit
from keyshared.ring import HashRing

_DATA = Path(__file__).parent / "data"
HASHES: dict[str, Any] = json.loads((_DATA / "pulsar_hashes.json").read_text("utf-8"))
RINGS: dict[str, Any] = json.loads((_DATA / "pulsar_ring.json").read_text("utf-8"))
RANGES: dict[str, Any] = json.loads((_DATA / "pulsar_ranges.json").read_text("utf-8"))
PROBES: list[int] = RINGS["probe_hashes"]

Row: TypeAlias = dict[str, Any]
Spans: TypeAlias = dict[str, list[tuple[int, int]]]


def by_case(rows: Iterable[Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=lambda row: row["case"])


def spans(ranges: Mapping[str, Iterable[HashRange]]) -> Spans:
    return {name: [(piece.start, piece.stop) for piece in pieces] for name, pieces in ranges.items()}


def ours(theirs: Mapping[str, list[list[int]]], size: int, lowest: int) -> Spans:
    """Pulsar's inclusive ranges over our slots: ``lowest`` begins at 0, and there is nothing beyond the last slot."""
    slots = {
        name: [(0 if first == lowest else first, min(last + 1, size)) for first, last in pieces]
        for name, pieces in theirs.items()
    }
    real = {name: [(start, stop) for start, stop in pieces if start < stop] for name, pieces in slots.items()}
    return {name: pieces for name, pieces in real.items() if pieces}


def snapshot(theirs: Iterable[list[int]], size: int, lowest: int) -> list[tuple[int, int, str | None]]:
    """The same of a snapshot; without any consumer, one hole."""
    rows = [(0 if first == lowest else first, min(last + 1, size), str(owner)) for first, last, owner in theirs]
    return [row for row in rows if row[0] < row[1]] or [(0, size, None)]


# hashes


def test_hashes_are_those_of_pulsar() -> None:
    for row in HASHES["murmur3"]:
        data = bytes.fromhex(row["hex"])
        raw = MURMUR3_32.function(data)
        assert (row["raw32"], row["masked31"]) == (raw, raw & 0x7FFFFFFF)
        assert row["sticky_ch"] == PULSAR_RING.slot(data, 16)
        assert row["sticky_autosplit"] == PULSAR_RANGES.slot(data, 16)
        assert row["segment_hash_hi16"] == MURMUR3_32.slot(data, 16)
        assert row["bucket_hash_lo16"] == raw & 0xFFFF


# the ring


def ring_names(row: Row) -> list[str]:
    """Each of Pulsar's instances under a name of its own."""
    return [f"{name}#{number}" for number, name in enumerate(row["names"])]


def built_ring(row: Row) -> HashRing:
    return HashRing.pulsar(ring_names(row), points=row["points"], separator="#", range_size=row["range_max"] + 1)


@by_case(RINGS["rings"])
def test_every_point_is_claimed_as_in_pulsar(row: Row) -> None:
    ring, names = built_ring(row), ring_names(row)
    claims: dict[int, list[str]] = {}
    for point, name in ring.points:
        claims.setdefault(point, []).append(name)

    expected = {point: [names[i] for i in (owner, *(rest[0] if rest else ()))] for point, owner, *rest in row["ring"]}
    assert expected == claims
    owned = Counter(queue[0] for queue in claims.values())
    assert row["name_index_points_added_collisions"] == [
        [ring._consumers[name].index, owned[name], row["points"] - owned[name]] for name in names
    ]
    ring.check_invariants()


@by_case(RINGS["rings"])
def test_owners_on_the_ring_are_those_of_pulsar(row: Row) -> None:
    ring, names = built_ring(row), ring_names(row)
    size = row["range_max"] + 1

    index = {name: str(i) for i, name in enumerate(names)}
    runs = [(start, stop, index[owner]) for start, stop, owner in ring.ranges.runs if owner is not None]
    assert snapshot(row["snapshot"], size, 1) == runs
    probes = range(1, size) if "owner_of_hash_1_to_max" in row else PROBES
    owners = row.get("owner_of_hash_1_to_max") or row["owner_of_probe_hash"]
    assert [names[i] for i in owners] == [ring.ranges.owner(slot) for slot in probes]
    if "owner_of_probe_key" in row:
        assert [names[i] for i in row["owner_of_probe_key"]] == [ring.owner(f"probe-{n}") for n in range(500)]


@by_case(RINGS["transitions"])
def test_who_is_impacted_by_a_join_or_leave_follows_from_what_moved(row: Row) -> None:
    size = row["range_max"] + 1
    ring = HashRing.pulsar(points=row["points"], separator="#", range_size=size)
    for step in row["steps"]:
        name = f"{step['name']}#{step['consumer']}"
        moved = ring.add(name) if step["op"] == "join" else ring.remove(name)
        assert ours(step["removed"], size, 1) == _by_number(lost(moved))
        assert ours(step["added"], size, 1) == _by_number(gained(moved))
        if "snapshot" in step:
            owners = [(a, b, owner and owner.partition("#")[2]) for a, b, owner in ring.ranges.runs]
            assert snapshot(step["snapshot"], size, 1) == owners
        ring.check_invariants()


def _by_number(ranges: Mapping[str, Iterable[HashRange]]) -> Spans:
    return {name.partition("#")[2]: pieces for name, pieces in spans(ranges).items()}


# ranges


@by_case(RANGES["autosplit"])
def test_split_ranges_are_those_of_pulsar(row: Row) -> None:
    size = row["range_size"]
    placement = AutoSplit.pulsar(range_size=size)
    for step in row["steps"]:
        moved = _try_step(placement, step)
        if moved is not None:
            assert ours(step["removed"], size, 0) == spans(lost(moved))
            assert ours(step["added"], size, 0) == spans(gained(moved))
        assert [(bound, str(owner)) for bound, owner in step["range_map"]] == placement._bounds
        assert snapshot(step["snapshot"], size, 0) == list(placement.ranges.runs)
        placement.check_invariants()


def _try_step(placement: AutoSplit, step: Row) -> list[Moved] | None:
    """What moved; None if the step raised, as it should."""
    name = str(step["consumer"])
    if "error" in step:
        with pytest.raises(MisuseError, match="4 consumers"):
            placement.add(name)
        return None
    if step["op"] == "leave" and name not in placement.consumers:
        with pytest.raises(UnknownConsumerError):  # Pulsar looks away
            placement.remove(name)
        return None
    return placement.add(name) if step["op"] == "join" else placement.remove(name)


EXCLUSIVE_ERRORS: dict[str, tuple[type[KeySharedError], str]] = {
    "Must specify key shared meta for consumer.": (ArgumentError, "be given"),
    "Ranges for KeyShared policy must not be empty.": (ArgumentError, "hold at least one range"),
    "Fixed hash range start > end for range: [8,6]": (ArgumentError, "end after it starts"),
    "Consumer's own ranges conflict: [0,3] overlaps with [3,5]": (ArgumentError, r"not overlap its own \(0, 4\)"),
    "Range conflict with consumer c0#0": (RangeOverlapError, "of '0'"),
}
OUTSIDE_16 = [[15, 20]]  # Pulsar's broker would take it; its client, and we, do not


@by_case(RANGES["exclusive"])
def test_declared_ranges_are_taken_and_refused_as_in_pulsar(row: Row) -> None:
    placement = ExclusiveRanges.pulsar(range_size=16)  # theirs has 10 slots, ours needs a power of two
    for step in row["steps"]:
        declared: Any = step["ranges"] and [(first, last + 1) for first, last in step["ranges"]]
        before = placement.copy()
        error = EXCLUSIVE_ERRORS[step["error"]] if "error" in step else None
        if step["ranges"] == OUTSIDE_16:
            error = ArgumentError, "lie within the 16 slots"
        if error is None:
            placement.declare(str(step["consumer"]), declared)
        else:
            with pytest.raises(error[0], match=error[1]):
                placement.declare(str(step["consumer"]), declared)
            assert before == placement
        owners = [None if owner == -1 else str(owner) for owner in step["owner_of_0_to_size"]]
        assert owners == [placement.ranges.owner(slot) for slot in range(row["range_size"])]
        placement.check_invariants()


def test_a_space_of_no_slots_is_refused() -> None:
    for build in (AutoSplit.pulsar, ExclusiveRanges.pulsar, HashRing.pulsar):
        with pytest.raises(ArgumentError, match="be a power of two"):
            build(range_size=0)


# differences

# With a hole beside it, Pulsar's diff loses the part of a range that only one side has, and gives a whole range to an
# owner that never had it. What is right instead: what was lost, and what was gained.
FAULTY_DIFFS: dict[int, tuple[Spans, Spans]] = {
    1: ({"0": [(1, 6)]}, {"1": [(3, 8)]}),
    5: ({"0": [(1, 6)]}, {"1": [(8, 10)]}),
}


@pytest.mark.parametrize("number", range(len(RANGES["snapshot_diff"])))
def test_a_difference_is_pulsars_where_pulsars_is_right(number: int) -> None:
    row = RANGES["snapshot_diff"][number]
    before, after = (
        RangeMap([(HashRange.inclusive(first, last), str(owner)) for first, last, owner in row[side]], slot_bits=4)
        for side in ("before", "after")
    )
    moved = before.moved(after)
    theirs = ours(row["removed"], 16, -1), ours(row["added"], 16, -1)

    if number in FAULTY_DIFFS:
        assert theirs != FAULTY_DIFFS[number]
    assert FAULTY_DIFFS.get(number, theirs) == (spans(lost(moved)), spans(gained(moved)))


# what the tests of Pulsar's selectors assert


def test_nobody_is_selected_without_consumers() -> None:
    for placement in (HashRing.pulsar(), AutoSplit.pulsar(), ExclusiveRanges.pulsar()):
        assert placement.owner("key") is None


def test_keys_are_shared_within_a_fifth_of_fair() -> None:
    ring = HashRing.pulsar(points=200)
    for count, name in enumerate(["c1", "c2", "c3", "c4"], 1):
        ring.add(name)
        owners = Counter(ring.owner(f"key-{i}") for i in range(5000))
        assert all(0.8 < owners[each] * count / 5000 < 1.2 for each in ring.consumers)
    for name in ("c1", "c2", "c3"):
        ring.remove(name)
    assert {"c4"} == {ring.owner(f"key-{i}") for i in range(100)}


def test_consumers_of_one_name_share_evenly_too() -> None:
    ring = HashRing.pulsar((f"c#{i}" for i in range(20)), points=200, separator="#")

    assert all(0.8 < share * 20 < 1.2 for share in ring.ranges.shares().values())
    for name in ring.consumers:
        ring.remove(name)
    assert HashRing.pulsar(points=200, separator="#") == ring


def test_names_that_end_with_a_number_do_not_collide() -> None:
    ring = HashRing.pulsar(["consumer1", "consumer11"])

    ours_, theirs = ({point for point, owner in ring.points if owner == name} for name in ring.consumers)
    assert len(ours_ & theirs) <= 2


@pytest.mark.no_cover
def test_a_hundred_consumers_of_one_name_leave_one_by_one_and_nobody_else_is_touched() -> None:
    ring = HashRing.pulsar((f"c#{i}" for i in range(100)), separator="#")
    names = list(ring.consumers)
    Random(7).shuffle(names)  # reproducible, not secret
    for name in names[:-1]:
        assert {name} == set(lost(ring.remove(name)))
        assert name not in ring.ranges.owners
    assert 1 == len(ring.consumers)


def test_consumers_that_leave_and_come_straight_back_change_less_than_a_hundredth() -> None:
    ring = HashRing.pulsar(f"c{i}" for i in range(10))
    before = ring.ranges
    for name in ("c3", "c7"):
        ring.remove(name)
    for name in ("c7", "c3"):
        ring.add(name)

    assert sum(move.stop - move.start for move in before.moved(ring.ranges)) < 65536 / 100


def test_existing_consumers_never_swap() -> None:
    ring = HashRing.pulsar((f"c{i}" for i in range(30)), points=200)
    for name in ring.consumers:
        left = ring.remove(name)
        assert {name} == set(lost(left))
        joined = ring.add(name)
        assert {name} == set(gained(joined))
        losses = {slot for pieces in lost(joined).values() for piece in pieces for slot in _slots(piece)}
        assert losses == {slot for piece in gained(joined)[name] for slot in _slots(piece)}


def _slots(piece: HashRange) -> range:
    return range(piece.start, piece.stop)


def test_when_all_leave_and_join_in_the_first_order_everything_is_as_before() -> None:
    names = [f"c{i}" for i in range(20)]
    ring = HashRing.pulsar(names)
    before = ring.ranges
    leavers = list(names)
    Random(7).shuffle(leavers)  # reproducible, not secret
    for name in leavers:
        ring.remove(name)
    for name in names:
        ring.add(name)

    assert before == ring.ranges


def test_a_number_that_became_free_is_given_again_and_with_it_the_same_points() -> None:
    ring = HashRing.pulsar(["w#a", "w#b", "w#c"], separator="#")
    points = {point for point, name in ring.points if name == "w#b"}
    ring.remove("w#b")
    ring.add("w#d")

    assert points == {point for point, name in ring.points if name == "w#d"}


def test_two_of_one_name_that_restart_in_the_other_order_swap() -> None:
    ring = HashRing.pulsar(["w#a", "w#b"], separator="#")
    before = ring.ranges
    for name in ("w#a", "w#b"):
        ring.remove(name)
    for name in ("w#b", "w#a"):
        ring.add(name)

    assert {("w#a", "w#b"), ("w#b", "w#a")} == {(move.old, move.new) for move in before.moved(ring.ranges)}


def test_split_ranges_of_four_in_sixty_four_slots_are_the_published_ones() -> None:
    placement = AutoSplit.pulsar(["c1", "c2", "c3", "c4"], range_size=64)

    published = {"c1": [(49, 64)], "c4": [(33, 49)], "c2": [(17, 33)], "c3": [(0, 17)]}
    assert published == {name: spans({name: placement.ranges.ranges_of(name)})[name] for name in published}


def test_every_hash_is_selected_as_published_while_eight_join_and_leave() -> None:
    placement = AutoSplit.pulsar(range_size=64)
    names = [f"c{i}" for i in range(8)]
    for change in [(placement.add, name) for name in names] + [(placement.remove, name) for name in names]:
        change[0](change[1])
        published = {
            slot: name for name in names for piece in placement.ranges.ranges_of(name) for slot in _slots(piece)
        }
        assert published == {slot: owner for slot in range(64) if (owner := placement.ranges.owner(slot)) is not None}


def test_leaving_in_join_order_concentrates_the_load() -> None:
    # Why Pulsar changed its default to the ring: ranges are absorbed, never evened out.
    placement = AutoSplit.pulsar(f"c{i}" for i in range(10))
    for i in range(5):
        placement.remove(f"c{i}")

    assert max(placement.ranges.shares().values()) > 2 * min(placement.ranges.shares().values())
