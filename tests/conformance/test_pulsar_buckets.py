"""Entry buckets answer what Pulsar's selector answers: layouts, halves of a hash, spreads, and what a change moves."""

import json
from pathlib import Path
from typing import Any

import pytest

from keyshared.buckets import BucketLayout, BucketPlacement, HashHalves, hash_halves, key_halves
from keyshared.hashing import MURMUR3_32
from keyshared.placement import Moved, RangeMap

DATA: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "pulsar_buckets.json").read_text("utf-8"))
SPREADS: list[dict[str, Any]] = DATA["spreads"]


@pytest.mark.parametrize(("n", "splits"), [row for row in DATA["equal_width"] if row[0]])
def test_equal_widths_start_where_theirs_do(n: int, splits: list[int]) -> None:
    assert splits == list(BucketLayout.equal_width(n).splits)


@pytest.mark.parametrize(("splits", "rows"), DATA["bucket_of"])
def test_a_hash_is_in_the_bucket_theirs_is_in(splits: list[int], rows: list[list[int]]) -> None:
    layout = BucketLayout.from_splits(splits)

    assert rows == [[bucket_hash, layout.bucket_of(bucket_hash)] for bucket_hash, _ in rows]


def test_uneven_buckets_have_their_canonical_hashes() -> None:
    layout = BucketLayout(DATA["uneven"]["uneven_bucket_starts"])

    for bucket_hash, bucket, canonical in DATA["uneven"]["hash_bucket_canonical"]:
        assert bucket == layout.bucket_of(bucket_hash)
        assert canonical == layout.canonical_hash(bucket)
        assert bucket == layout.bucket_of_key(layout.bucket_key(bucket))


def test_the_halves_are_those_of_the_unmasked_hash() -> None:
    layout = BucketLayout.equal_width(1024)
    for text, raw, segment, bucket, sticky in DATA["hash_halves"]:
        assert HashHalves(segment, bucket) == hash_halves(raw) == key_halves(bytes.fromhex(text), MURMUR3_32)
        # an entry without a stamp goes by the classic sticky hash; both say the same bucket
        assert layout.bucket_of(bucket) == layout.bucket_of(sticky)


@pytest.mark.parametrize("case", SPREADS, ids=lambda case: f"{case['n_buckets']}-{len(case['names'])}")
def test_the_spread_is_theirs(case: dict[str, Any]) -> None:
    layout = BucketLayout.equal_width(case["n_buckets"])
    placement = BucketPlacement.pulsar(layout, case["names"])

    assert case["bucket_starts"] == list(layout.starts)
    assert [case["names"][index] for index in case["owners_after_joins"]] == [
        placement.owner(bucket) for bucket in range(len(layout))
    ]


@pytest.mark.parametrize("case", [c for c in SPREADS if c["steps"]], ids=lambda case: f"{len(case['names'])}")
def test_every_change_impacts_the_ranges_theirs_does(case: dict[str, Any]) -> None:
    layout, names = BucketLayout.equal_width(case["n_buckets"]), case["names"]
    placement = BucketPlacement.pulsar(layout)
    for step in case["steps"]:
        name = names[step["consumer"]]
        moves = placement.add(name) if step["op"] == "join" else placement.remove(name)
        assert _by_bucket(step["snapshot"], names, layout) == _owners(placement.ranges, layout)
        assert _impacted(step["removed"], names) == _sides(moves, "old")
        assert _impacted(step["added"], names) == _sides(moves, "new")


def _by_bucket(snapshot: list[list[int]], names: list[str], layout: BucketLayout) -> list[str]:
    owners = {start: names[index] for start, _, index in snapshot}
    assert [(piece.start, piece.stop - 1) for piece in layout.ranges] == [(start, end) for start, end, _ in snapshot]
    return [owners[start] for start in layout.starts]


def _owners(ranges: RangeMap, layout: BucketLayout) -> list[str | None]:
    return [ranges.owner(start) for start in layout.starts]


def _impacted(by_index: dict[str, list[list[int]]], names: list[str]) -> dict[str, set[int]]:
    return {
        names[int(index)]: {slot for start, end in ranges for slot in range(start, end + 1)}
        for index, ranges in by_index.items()
    }


def _sides(moves: list[Moved], side: str) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for move in moves:
        owner = getattr(move, side)
        if owner is not None:
            found.setdefault(owner, set()).update(range(move.start, move.stop))
    return found
