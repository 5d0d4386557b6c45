"""The layout of entry buckets, the halves of a hash, and the routing of entries by both of their bounds."""

import copy
import pickle
from collections import Counter
from typing import Any

import pytest

from keyshared.buckets import (
    BadStamp,
    BucketLayout,
    EntryPart,
    HashHalves,
    Straddles,
    hash_halves,
    key_halves,
)
from keyshared.errors import ArgumentError, KeyTypeError, LayoutMismatchError
from keyshared.hashing import DANUBE_32, XXH64_SEED_42, KeyHash
from keyshared.placement import HashRange

QUARTERS = BucketLayout.equal_width(4)


def _sixteen_bits(data: bytes) -> int:
    return len(data)


def test_the_halves_of_a_hash_share_no_bit() -> None:
    assert HashHalves(segment=0x8000, bucket=0x0001) == hash_halves(0x8000_0001)
    assert HashHalves(0, 0) == hash_halves(0)
    assert HashHalves(0xFFFF, 0xFFFF) == hash_halves(0xFFFF_FFFF)


@pytest.mark.parametrize("raw", [-1, 1 << 32, True, 1.0, None])
def test_only_an_unsigned_32_bit_number_has_halves(raw: Any) -> None:
    with pytest.raises(ArgumentError, match=r"raw is .* an unsigned 32-bit hash"):
        hash_halves(raw)


def test_a_wider_hash_gives_its_top_32_bits() -> None:
    raw = XXH64_SEED_42.function(b"order-1") >> 32

    assert hash_halves(raw) == key_halves("order-1", XXH64_SEED_42)
    assert hash_halves(DANUBE_32.function(b"order-1")) == key_halves(b"order-1", DANUBE_32)


def test_a_key_needs_a_hash_of_32_bits_and_bytes() -> None:
    narrow: Any
    for narrow in (KeyHash("narrow", 31, _sixteen_bits), None):
        with pytest.raises(ArgumentError, match="be a KeyHash of at least 32 bits"):
            key_halves("a", narrow)
    key: Any = 7
    with pytest.raises(KeyTypeError):
        key_halves(key, XXH64_SEED_42)


def _most_crowded(cells: Counter[tuple[int, int]], keys: int, segments: int, buckets: int) -> float:
    """The greatest count of a cell (or of an empty one, 0) against the mean."""
    return max(cells.values()) / (keys / segments / buckets)


@pytest.mark.no_cover
@pytest.mark.parametrize("key_hash", [XXH64_SEED_42, DANUBE_32], ids=lambda h: h.name)
def test_buckets_fill_evenly_within_every_segment(key_hash: KeyHash) -> None:
    segments, buckets, keys = 8, 4, 32_000
    wide, narrow = BucketLayout.equal_width(segments), BucketLayout.equal_width(buckets)
    halves = [key_halves(f"order-{i}", key_hash) for i in range(keys)]

    cells = Counter((wide.bucket_of(h.segment), narrow.bucket_of(h.bucket)) for h in halves)
    assert segments * buckets == len(cells)
    assert _most_crowded(cells, keys, segments, buckets) < 1.15

    # what goes wrong with two remainders of one number: 8 and 4 have a common divisor
    raws = [key_hash.slot(b"order-%d" % i, 32) for i in range(keys)]
    broken = Counter((raw % segments, raw % buckets) for raw in raws)
    assert segments == len(broken)
    assert _most_crowded(broken, keys, segments, buckets) > 3.5


@pytest.mark.no_cover
def test_equal_widths_differ_by_one_at_most() -> None:
    for n in (1, 2, 3, 4, 7, 1000, 1024, 32_768):
        layout = BucketLayout.equal_width(n)
        widths = {len(piece) for piece in layout.ranges}
        assert n == len(layout)
        assert max(widths) - min(widths) <= 1


@pytest.mark.parametrize("n", [0, -1, 32_769, True, 2.0, "4"])
def test_a_number_of_buckets_is_an_int_that_leaves_the_first_two_hashes_together(n: Any) -> None:
    with pytest.raises(ArgumentError, match=r"n is .* from 1 to 32768"):
        BucketLayout.equal_width(n)


def test_one_layout_has_four_spellings() -> None:
    assert QUARTERS == BucketLayout([0, 16384, 32768, 49152])
    assert QUARTERS == BucketLayout.from_splits([16384, 32768, 49152])
    assert QUARTERS == BucketLayout.from_ranges(QUARTERS.ranges)
    assert (0, 16384, 32768, 49152) == QUARTERS.starts
    assert (16384, 32768, 49152) == QUARTERS.splits
    assert HashRange(49152, 65536) == QUARTERS.ranges[-1]


def test_a_layout_is_a_value() -> None:
    assert QUARTERS == pickle.loads(pickle.dumps(QUARTERS))  # noqa: S301 - our own bytes
    assert QUARTERS == copy.deepcopy(QUARTERS)
    assert hash(QUARTERS) == hash(BucketLayout.equal_width(4))
    assert QUARTERS != BucketLayout.equal_width(3)
    assert QUARTERS != (16384, 32768, 49152)
    assert QUARTERS == eval(repr(QUARTERS))  # noqa: S307 - our own text


@pytest.mark.parametrize(
    ("starts", "text"),
    [
        ([], "starts is (); it must name at least one bucket"),
        ([1], "first start is 1; it must be 0, or the lowest hashes have no bucket"),
        ([False, 9], "first start is False; it must be 0, or the lowest hashes have no bucket"),
        ([0, 1], "split is 1; it must be an int below 65536 and greater than 1, the end of what bucket 0 must contain"),
        ([0, 9, 9], "split is 9; it must be an int below 65536 and greater than 9, the one before it"),
        ([0, 9, 8], "split is 8; it must be an int below 65536 and greater than 9, the one before it"),
        ([0, 65536], "split is 65536; it must be an int below 65536 and greater than 1"),
        ([0, 2.0], "split is 2.0; it must be an int below 65536"),
    ],
)
def test_starts_that_do_not_tile_the_space_are_refused(starts: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        BucketLayout(starts)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ([], "starts is (); it must name at least one bucket"),
        ([HashRange(1, 65536)], "start is 1; it must be 0, where the bucket before it ends"),
        ([HashRange(0, 8), HashRange(9, 65536)], "start is 9; it must be 8, where the bucket before it ends"),
        ([HashRange(0, 8), HashRange(7, 65536)], "start is 7; it must be 8, where the bucket before it ends"),
        ([HashRange(0, 65535)], "last stop is 65535; it must be 65536, the number of hashes"),
        ([HashRange(0, 65537)], "last stop is 65537; it must be 65536, the number of hashes"),
        ([HashRange(0, 1), HashRange(1, 65536)], "split is 1; it must be an int below 65536 and greater than 1"),
        ([(0, 65536)], "range is (0, 65536); it must be a HashRange"),
    ],
)
def test_declared_ranges_that_do_not_tile_the_space_are_refused(ranges: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        BucketLayout.from_ranges(ranges)
    assert str(caught.value).startswith(text)


def test_every_consumer_of_a_segment_declares_the_same_buckets() -> None:
    QUARTERS.check_declared(BucketLayout.equal_width(4))
    with pytest.raises(LayoutMismatchError) as caught:
        QUARTERS.check_declared(BucketLayout.equal_width(2))
    assert ((0, 32768), QUARTERS.starts) == (caught.value.declared, caught.value.agreed)
    declared: Any = [0, 16384, 32768, 49152]
    with pytest.raises(ArgumentError, match="be a BucketLayout"):
        QUARTERS.check_declared(declared)


def test_a_bucket_knows_its_range_and_the_hash_that_stands_for_it() -> None:
    layout = BucketLayout([0, 2, 65535])

    assert [HashRange(0, 2), HashRange(2, 65535), HashRange(65535, 65536)] == [layout.range_of(i) for i in range(3)]
    assert [1, 2, 65535] == [layout.canonical_hash(i) for i in range(3)]
    assert [0, 1, 2] == [layout.bucket_of(layout.canonical_hash(i)) for i in range(3)]


@pytest.mark.parametrize("bucket", [-1, 4, True, 1.0])
def test_a_bucket_that_is_not_there_is_refused(bucket: Any) -> None:
    for question in (QUARTERS.range_of, QUARTERS.canonical_hash):
        with pytest.raises(ArgumentError, match=r"bucket is .* from 0 to 3"):
            question(bucket)


@pytest.mark.parametrize("bucket_hash", [-1, 65536, True, 1.0])
def test_a_hash_that_is_not_there_is_refused(bucket_hash: Any) -> None:
    with pytest.raises(ArgumentError, match=r"bucket hash is .* from 0 to 65535"):
        QUARTERS.bucket_of(bucket_hash)
    with pytest.raises(ArgumentError, match="bucket hash is"):
        QUARTERS.split([(1, "a"), (bucket_hash, "b")])


def test_an_entry_goes_to_a_bucket_only_if_both_of_its_bounds_do() -> None:
    assert 0 == QUARTERS.route(0, 0)
    assert 0 == QUARTERS.route(0, 16383)
    assert Straddles(0, 1) == QUARTERS.route(0, 16384)
    assert Straddles(1, 3) == QUARTERS.route(20_000, 65535)
    assert 3 == QUARTERS.route(49152, 65535)
    assert 0 == BucketLayout.equal_width(1).route(0, 65535)


@pytest.mark.parametrize("stamp", [(9, 8), (-1, 8), (8, 65536)])
def test_a_stamp_that_cannot_be_true_is_an_answer(stamp: tuple[int, int]) -> None:
    assert BadStamp(*stamp) == QUARTERS.route(*stamp)


@pytest.mark.parametrize(("stamp", "bound"), [((None, 8), "None"), ((8, None), "None"), ((8, 9.0), "9.0")])
def test_a_bound_that_is_no_number_is_the_callers_mistake(stamp: Any, bound: str) -> None:
    with pytest.raises(ArgumentError, match=f"bound of an entry is {bound}; .* bucket_of"):
        QUARTERS.route(*stamp)


def test_a_straddling_entry_is_split_by_bucket_in_order() -> None:
    messages = [(40_000, "a"), (5, "b"), (33_000, "c"), (3, "d"), (40_000, "e")]

    assert [
        EntryPart(2, 33_000, 40_000, ((40_000, "a"), (33_000, "c"), (40_000, "e"))),
        EntryPart(0, 3, 5, ((5, "b"), (3, "d"))),
    ] == QUARTERS.split(messages)
    assert [] == QUARTERS.split([])


def test_routing_by_the_lowest_hash_alone_sends_keys_to_who_does_not_own_them() -> None:
    """The published rule, broken: `route` and `split` keep every message in the bucket of its own hash."""
    old, new = BucketLayout.equal_width(2), BucketLayout.equal_width(4)
    entry = [(10, "a"), (20_000, "b")]  # one bucket of the producer's old layout, two of the new one
    hashes = [bucket_hash for bucket_hash, _ in entry]
    assert 0 == old.route(min(hashes), max(hashes))

    by_min = [(new.bucket_of(min(hashes)), bucket_hash) for bucket_hash in hashes]
    assert [20_000] == [bucket_hash for bucket, bucket_hash in by_min if new.bucket_of(bucket_hash) != bucket]

    assert Straddles(0, 1) == new.route(min(hashes), max(hashes))
    for part in new.split(entry):
        assert part.bucket == new.route(part.hash_min, part.hash_max)
        assert {part.bucket} == {new.bucket_of(bucket_hash) for bucket_hash, _ in part.messages}
