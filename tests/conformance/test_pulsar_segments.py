"""Scalable topics as Pulsar has them: its own examples of splits, merges, batching and hashes, against ours."""

import json
from pathlib import Path
from typing import Any

import pytest

from keyshared.buckets import BatchLimits, BatchMessage, BucketBatcher, BucketLayout, hash_halves
from keyshared.segments import SegmentMap, buckets_for_budget

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "pulsar_segments.json").read_text("utf-8"))


@pytest.mark.parametrize(("budget", "segments", "buckets"), VECTORS["buckets_for_budget"])
def test_a_budget_is_shared_out_as_in_pulsar(budget: int, segments: int, buckets: int) -> None:
    assert buckets == buckets_for_budget(budget, segments)
    assert [buckets] * segments == [len(s.layout) for s in SegmentMap.equal_width(segments, budget=budget).active]


@pytest.mark.parametrize(("buckets", "halves"), VECTORS["split_halves"])
def test_a_split_halves_buckets_as_in_pulsar(buckets: int, halves: list[int]) -> None:
    assert halves == [len(s.layout) for s in SegmentMap.equal_width(budget=buckets).split(0).active]


@pytest.mark.parametrize(("first", "second", "together"), VECTORS["merge_sums"])
def test_a_merge_sums_buckets_as_in_pulsar(first: int, second: int, together: int) -> None:
    segments = SegmentMap.equal_width(2, budget=2 * first)
    if second != first:
        segments = segments.rebucket(1, BucketLayout.equal_width(second))
    lower, upper = segments.active_ids
    assert [together] == [len(s.layout) for s in segments.merge(lower, upper).active]


@pytest.mark.parametrize(("splits", "rows"), VECTORS["bucket_of"])
def test_a_message_is_batched_in_the_bucket_that_pulsar_says(splits: list[int], rows: list[list[int]]) -> None:
    layout = BucketLayout.from_splits(splits)
    batcher = BucketBatcher(layout)
    for sequence_id, (bucket_hash, _) in enumerate(rows):
        batcher.add(BatchMessage(sequence_id, bucket_hash=bucket_hash))
    expected: dict[int, list[int]] = {}
    for sequence_id, (_, bucket) in enumerate(rows):
        expected.setdefault(bucket, []).append(sequence_id)

    batches = {layout.bucket_of(e.hash_min): [m.sequence_id for m in e.messages] for e in batcher.flush()}
    assert expected == batches


@pytest.mark.parametrize(("data", "raw", "segment_hash", "bucket_hash"), VECTORS["halves"])
def test_a_key_goes_where_pulsar_sends_it(data: str, raw: int, segment_hash: int, bucket_hash: int) -> None:
    assert (segment_hash, bucket_hash) == hash_halves(raw), data
    # 16 segments of 16 buckets: the digits of the hash can be read off
    segments = SegmentMap.equal_width(16, budget=256)
    assert (segment_hash >> 12, bucket_hash >> 12) == segments.locate(segment_hash, bucket_hash)


@pytest.mark.parametrize(("data", "raw", "segment_hash", "bucket_hash"), VECTORS["halves"][:20])
def test_the_hash_is_the_unmasked_murmur3(data: str, raw: int, segment_hash: int, bucket_hash: int) -> None:
    mmh3 = pytest.importorskip("mmh3")
    assert raw == mmh3.hash(bytes.fromhex(data), 0, signed=False)
    assert raw == segment_hash << 16 | bucket_hash


def test_a_container_becomes_an_entry_for_each_bucket() -> None:
    batcher = BucketBatcher(BucketLayout.from_splits([32_768]), BatchLimits(max_delay_ms=None))
    for sequence_id, bucket_hash in enumerate([10, 40_000, 20, 50_000]):
        batcher.add(BatchMessage(sequence_id, bucket_hash=bucket_hash))

    assert [(10, 20, 2), (40_000, 50_000, 3)] == [(e.hash_min, e.hash_max, e.sequence_id) for e in batcher.flush()]
