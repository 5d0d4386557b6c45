"""Where Celeriant places partition keys, and what its AssignRange accepts."""

import json
from pathlib import Path
from typing import Any

import pytest

from keyshared.errors import RangeOverlapError, UnownedSlotError
from keyshared.hashing import CELERIANT_BE, CELERIANT_LE, KeyHash, partition_key_bytes
from keyshared.placement import HashRange, Moved
from keyshared.placement.assigned import AssignedRanges, Unowned, member_name

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "celeriant_slots.json").read_text("utf-8"))
LOWER, UPPER = HashRange.inclusive(0, 0x7FFF), HashRange.inclusive(0x8000, 0xFFFF)


@pytest.mark.parametrize(
    ("key_hash", "rows"),
    [(CELERIANT_LE, VECTORS["little_endian"]), (CELERIANT_BE, VECTORS["big_endian"])],
    ids=["little endian", "big endian"],
)
def test_slots_are_those_of_celeriant(key_hash: KeyHash, rows: list[dict[str, Any]]) -> None:
    assert rows
    keys = [partition_key_bytes(int(row["partition_key"])) for row in rows]

    assert [row["slot"] for row in rows] == [key_hash.slot(key, 16) for key in keys]


def test_a_key_belongs_to_whom_its_slot_was_assigned() -> None:
    owners = {LOWER: member_name("g", "c1"), UPPER: member_name("g", "c2")}
    placement = AssignedRanges.celeriant(owners.items())

    for row in VECTORS["little_endian"]:
        expected = owners[LOWER if row["slot"] in LOWER else UPPER]
        assert expected == placement.owner(partition_key_bytes(int(row["partition_key"])))


def test_equal_bounds_are_idempotent_or_reassign_and_a_part_splits() -> None:
    one, two = member_name("g", "c1"), member_name("g", "c2")
    placement = AssignedRanges.celeriant([(LOWER, one)])

    assert [] == placement.assign(LOWER, one)
    assert [Moved(0, 0x8000, one, two)] == placement.assign(LOWER, two)
    assert [Moved(0x1000, 0x2000, two, one)] == placement.assign(HashRange.inclusive(0x1000, 0x1FFF), one)


def test_a_partial_overlap_is_refused() -> None:
    placement = AssignedRanges.celeriant([(LOWER, member_name("g", "c1"))])

    with pytest.raises(RangeOverlapError):
        placement.assign(HashRange.inclusive(0x7FFF, 0x8000), member_name("g", "c1"))


def test_equal_ids_in_two_groups_are_two_owners() -> None:
    # Celeriant compares the bare id here, so it sees no change and starts no drain.
    placement = AssignedRanges.celeriant([(LOWER, member_name("g1", "c"))])

    assert [Moved(0, 0x8000, "g1/c", "g2/c")] == placement.assign(LOWER, member_name("g2", "c"))


def test_a_gap_is_shown_and_can_be_an_error() -> None:
    key = partition_key_bytes(42)  # slot 58486, in the upper half
    placement = AssignedRanges.celeriant([(LOWER, "g/c")])
    loud = AssignedRanges([(LOWER, "g/c")], unowned=Unowned.ERROR, key_hash=CELERIANT_LE)

    assert (UPPER,) == placement.unowned()
    assert placement.owner(key) is None
    with pytest.raises(UnownedSlotError, match="no consumer owns slot 58486"):
        loud.owner(key)
